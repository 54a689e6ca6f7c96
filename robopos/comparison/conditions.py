"""The conditions under which trained networks are judged: what the robot would see on a worse day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robopos.comparison.settings import RECORDED, ConditionSettings
from robopos.logs import Log
from robopos.sequences import degrade

# Of what is drawn at test time (losses, jitter, bursts): the same for every scheme and training seed.
SEED = 20_000
YEAR_NS = 31_557_600 * 10**9
HALF = 2

Change = Callable[[Log, np.random.Generator], Log]


@dataclass(frozen=True)
class Condition:
    """One way to look at the test split.

    Args:
        name: what tables call it.
        change: what becomes of a log; ``None`` leaves it.
        seed: of what the change draws.
        longer: the network's context is so many times that of its training.
        shift_ns: the change moves every stamp and arrival by so much, and does nothing else.
    """

    name: str
    change: Change | None = None
    seed: int = 0
    longer: int = 1
    shift_ns: int = 0

    def apply(self, logs: Sequence[Log]) -> list[Log]:
        """The logs under the condition; the same whenever it is asked for."""
        if self.change is None:
            return list(logs)
        generator = np.random.default_rng([SEED, self.seed])
        return [self.change(log, generator) for log in logs]


def drop_name(share: float) -> str:
    """What the condition of independent losses is called."""
    return f"drops {100 * share:.10g}%"


def half_rate(log: Log, _: np.random.Generator) -> Log:
    """Every second message of each stream."""
    return degrade.thin(log, HALF)


HALF_NAME = "half the rate"


def list_conditions(settings: ConditionSettings, logs: Sequence[Log], interval_s: float) -> list[Condition]:
    """All that the settings ask for, ``as recorded`` first.

    Args:
        interval_s: the median interval between tokens, from which unset lengths of time follow.
    """
    counts = {name: sum(len(log[name]) for log in logs) for name in logs[0]}
    stream = settings.stream or max(counts, key=lambda name: counts[name])
    jitter_s = interval_s / 2 if settings.jitter_s is None else settings.jitter_s
    burst_s = 16 * interval_s if settings.burst_s is None else settings.burst_s
    offset_s = 4 * interval_s if settings.clock_offset_s is None else settings.clock_offset_s
    every = settings.slow_every
    found: list[tuple[str, Change]] = []
    if jitter_s > 0:
        found.append((f"jitter {_short(jitter_s)}", lambda log, g: degrade.jitter_stamps(log, jitter_s, g)))
    found += [(drop_name(share), _drop(share)) for share in settings.drops]
    if burst_s > 0:
        every_s = 20 * burst_s
        found.append((f"gaps of {_short(burst_s)}", lambda log, g: degrade.drop_bursts(log, burst_s, every_s, g)))
    if settings.half_rate:
        found.append((HALF_NAME, half_rate))
    several = len(counts) > 1
    if several and every > 1:
        found.append((f"{stream} at 1/{every} of its rate", lambda log, g: degrade.thin(log, every, only=stream)))
    if several and settings.missing:
        found.append((f"{stream} missing", lambda log, g: degrade.silence(log, stream)))
    if several and offset_s != 0:
        name = f"clock of {stream} off by {_short(offset_s)}"
        found.append((name, lambda log, g: degrade.offset_stamps(log, offset_s, stream)))
    conditions = [Condition(RECORDED)]
    conditions += [Condition(name, change, seed=number) for number, (name, change) in enumerate(found)]
    if settings.longer_context > 1:
        conditions.append(Condition(f"{settings.longer_context} x the context", longer=settings.longer_context))
    if settings.epoch_years:
        shift_ns = settings.epoch_years * YEAR_NS
        name = f"{settings.epoch_years:+d} years"
        conditions.append(Condition(name, lambda log, g: degrade.move_epoch(log, shift_ns), shift_ns=shift_ns))
    return conditions


def _drop(share: float) -> Change:
    return lambda log, generator: degrade.drop_messages(log, share, generator)


def _short(seconds: float) -> str:
    return f"{seconds:.3g} s" if abs(seconds) >= 1 else f"{seconds * 1e3:.3g} ms"
