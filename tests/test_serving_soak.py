"""A long run over rough traffic: nothing grows, nothing is lost unsaid, and the numbers stay those of evaluation.

`ROBOPOS_SOAK_MESSAGES=1000000` lengthens it.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import START_NS

from robopos.errors import ServingError
from robopos.model import Bundle, bundle_identity
from robopos.sequences import LiveTokens
from robopos.serving import Engine

MESSAGES = int(os.environ.get("ROBOPOS_SOAK_MESSAGES", "30000"))
WIDTH = {"joints": 2, "imu": 3}


def rough_traffic(count: int) -> Iterator[tuple[str, int, np.ndarray]]:
    """Two streams with jitter; late, repeated and far stamps, missing, infinite and too many values, gaps, jumps."""
    generator = np.random.default_rng(5)
    now_ns, base_ns = START_NS, 0
    for kind in generator.integers(0, 2000, count).tolist():
        name = "joints" if kind % 3 else "imu"
        now_ns += int(generator.exponential(8e6))
        row = np.sin(now_ns % 10**10 / 1e9 + np.arange(WIDTH[name]))
        stamp_ns = now_ns + base_ns
        if kind < 20:
            row[0] = [np.nan, np.inf, 1e300, -1e30][kind % 4]
        elif kind < 25:
            row = np.append(row, 1.0)
        elif kind < 60:
            stamp_ns -= 30_000_000
        elif kind < 70:
            now_ns -= int(generator.integers(0, 1000))
        elif kind == 70:
            base_ns += 10**12  # a gap
        elif kind == 71:
            base_ns -= 10**12  # the clock steps back
        elif kind == 72:
            row[:] = np.nan
        yield name, stamp_ns, row


def resident_mb() -> float:
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        pytest.skip("resident size is read from /proc")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def live_tensors() -> int:
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated things that are merely looked at
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def exact(bundle: Bundle, recent: LiveTokens) -> torch.Tensor:
    """(D,) after the newest token, from a float64 forward over the last tokens."""
    tokens = recent.tokens()
    return bundle.network.encode(tokens)[0, -1]


@pytest.mark.slow
def test_a_long_run_stays_the_same(trained: Path):
    engine, judge = Engine.load(trained / "bundle", device="cpu"), Bundle.load(trained / "bundle")
    judge.network.double()
    layout, reach = judge.layout, judge.network.reach + 1
    recent = LiveTokens(layout, judge.normalization, reach)
    refused, worst, squares, checked, checks = 0, 0.0, 0.0, 0, 20
    warm, tensors, resident = MESSAGES // 3, 0, 0.0
    for number, (name, time_ns, row) in enumerate(rough_traffic(MESSAGES), start=1):
        try:
            engine.push(name, time_ns, row)
        except ServingError:
            refused += 1
        else:
            recent.push(layout.stream_number(name), time_ns, row)
        if number % 7 == 0:
            prediction = engine.predict()
            seen = np.isfinite(recent.base)
            assert prediction is None or np.isfinite(prediction.values[:, seen]).all()
        if number % (MESSAGES // checks) == 0 and engine.predict() is not None:
            with torch.inference_mode():
                encoded = engine.snapshot()["stream"]["encoded"][0].double()
                error = encoded - exact(judge, recent)
            worst, squares, checked = (
                max(worst, float(error.abs().max())),
                squares + float(error.square().mean()),
                checked + 1,
            )
        if number == warm:
            tensors, resident = live_tensors(), resident_mb()
    assert checked >= 18 and worst <= 1e-5 and (squares / checked) ** 0.5 <= 1e-6
    assert live_tensors() <= tensors and resident_mb() <= resident + 5
    stats = engine.stats
    streams = stats.streams.values()
    assert sum(s.received for s in streams) == MESSAGES and sum(s.refused for s in streams) == refused > 0
    assert all(s.received == s.admitted + s.refused + s.empty + s.late + s.thinned for s in streams)
    assert stats.resets["gap"] > 3 and stats.resets["clock_jump"] > 3 and set(stats.resets) == {"gap", "clock_jump"}
    assert all(min(s.missing_values, s.out_of_order) > 0 for s in streams) and sum(s.empty for s in streams) > 0
    # Every token was absorbed but for those that a gap made meaningless before a prediction.
    assert 0 <= sum(s.admitted for s in streams) - stats.absorbed <= 7 * sum(stats.resets.values())
    assert bundle_identity(engine.bundle) == bundle_identity(Bundle.load(trained / "bundle"))
