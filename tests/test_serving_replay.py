"""Replay at a pace, its latencies, its error over time, and its parity with evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import START_NS, arm_messages

from robopos.cli import main
from robopos.errors import ConfigError, ServingError
from robopos.logs import read_log, write_log
from robopos.model import Bundle
from robopos.sequences import SequenceDataset
from robopos.serving import Engine, ReplaySummary, replay
from robopos.training import predict
from robopos.training.served import batch_parity, error_over_time


class Clock:
    """Time that passes when somebody sleeps or works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        self.now_s, self.slept_s = 0.0, 0.0
        module = sys.modules["robopos.serving.replay"]
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds


@pytest.fixture
def short_log(tmp_path: Path) -> Path:
    write_log(tmp_path / "short.mcap", arm_messages(seconds=4, seed=3))
    return tmp_path / "short.mcap"


def test_a_pace_keeps_to_the_logs_own_time(trained: Path, short_log: Path, monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    engine = Engine.load(trained / "bundle", device="cpu")
    steps = []
    for step in replay(engine, short_log, rate=2.0):
        due_s = (step.message.log_time_ns - (steps[0] if steps else step).message.log_time_ns) / 1e9 / 2
        assert clock.now_s == pytest.approx(due_s, abs=1e-9)
        steps.append(step)
    span_s = (steps[-1].message.log_time_ns - steps[0].message.log_time_ns) / 1e9
    assert clock.slept_s == pytest.approx(span_s / 2) and not any(step.skipped for step in steps)
    assert sum(step.prediction is not None for step in steps) == engine.stats.predictions > 150


def test_a_late_replay_leaves_predictions_out_and_no_token(
    trained: Path, short_log: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock(monkeypatch)
    engine = Engine.load(trained / "bundle", device="cpu")
    answer = engine.predict

    def slow():
        clock.now_s += 0.1
        return answer()

    monkeypatch.setattr(engine, "predict", slow)
    steps = list(replay(engine, short_log, rate=1.0))
    made = [step.token for step in steps if step.prediction is not None]
    assert sum(step.skipped for step in steps) > 100 and 30 < len(made) < 60
    assert steps[-1].prediction is not None, "nothing is due after the last message"
    assert engine.stats.absorbed == len(steps) == steps[-1].token + 1
    every = {s.token: s.prediction for s in replay(Engine.load(trained / "bundle", device="cpu"), short_log)}
    for step in steps:
        if step.prediction is not None:
            np.testing.assert_allclose(step.prediction.values, every[step.token].values, atol=1e-5)


def test_a_small_backlog_is_absorbed_before_it_is_full(trained: Path, short_log: Path):
    made = []
    for backlog in (8, 1024):
        engine = Engine.load(trained / "bundle", device="cpu", max_backlog=backlog)
        made.append([s.prediction.values for s in replay(engine, short_log, last_s=0.5) if s.prediction is not None])
        assert engine.stats.resets == {}
    assert len(made[0]) == len(made[1]) > 10
    np.testing.assert_allclose(made[0], made[1], atol=1e-5)


@pytest.mark.parametrize("last_s", [0.0, float("nan"), float("inf")])
def test_a_span_that_is_no_time_is_refused(trained: Path, short_log: Path, last_s: float):
    with pytest.raises(ServingError, match=r"last_s is .*, must be a time > 0 in s and below 1e"):
        next(replay(Engine.load(trained / "bundle", device="cpu"), short_log, last_s=last_s))


def test_a_rate_that_is_none_is_refused(trained: Path, short_log: Path):
    with pytest.raises(ServingError, match=r"rate is 0, must be from 0\.001 to 1e\+06 \(1 is real time\)"):
        next(replay(Engine.load(trained / "bundle", device="cpu"), short_log, rate=0.0))


def test_the_histogram_counts_every_latency_once():
    summary = ReplaySummary(latencies_s=[0.0, 0.0001, 0.00011, 0.0009, 0.004, 7.0])
    counted = {bound: count for bound, count in summary.histogram() if count}
    assert counted == {0.1: 2, 0.2: 1, 1.0: 1, 5.0: 1, None: 1}


@pytest.mark.parametrize("mode", ["stream", "window"])
def test_the_command_proves_parity_on_a_log(trained: Path, tmp_path: Path, capsys, mode: str):
    log, out, told = tmp_path / "new.mcap", tmp_path / "out.mcap", tmp_path / "told.json"
    write_log(log, arm_messages(seconds=6, seed=7, gap_s=30.0))
    arguments = ["replay", trained / "bundle", log, "-o", out, "--mode", mode, "--compare-batch", "--json", told]
    assert main([str(a) for a in arguments]) == 0
    printed = capsys.readouterr().out
    assert f"mode {mode}" in printed and "against evaluation of the same log" in printed and "reset 1 x: gap" in printed
    summary = json.loads(told.read_text())
    assert summary["compare_batch"]["predictions"] == summary["predictions"] > 200
    assert summary["compare_batch"]["largest"] < 1e-5
    assert sum(count for _, count in summary["latency_histogram_ms"]) == summary["predictions"]
    rows = summary["error_over_time"]
    assert rows[0]["from_s"] < 1 and rows[-1]["to_s"] > 35 and sum(row["count"] for row in rows) > 500
    assert all(row["skill"] > 0 for row in rows)


def test_the_command_fails_where_live_and_evaluated_differ(
    trained: Path, short_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    take = Engine.predict

    def off(self: Engine):
        prediction = take(self)
        return prediction._replace(values=prediction.values + 1e-3)

    monkeypatch.setattr(Engine, "predict", off)
    arguments = ["replay", trained / "bundle", short_log, "-o", tmp_path / "out.mcap", "--compare-batch"]
    assert main([str(a) for a in arguments]) == 1
    assert "live and evaluated predictions differ by" in capsys.readouterr().err


def test_parity_and_errors_are_those_of_the_numbers_given(trained: Path, arm_log: Path):
    bundle = Bundle.load(trained / "bundle")
    dataset = SequenceDataset.build([read_log(arm_log, bundle.layout.log_streams())], bundle.layout)
    tokens = np.arange(100, 400)
    predictions = predict(bundle, dataset, "all", anchors=tokens)
    values = predictions.values.copy()
    assert batch_parity(bundle, dataset, tokens, values, "stream").largest < 1e-5
    values[50, 1, 2] += 0.5
    parity = batch_parity(bundle, dataset, tokens, values, "stream")
    assert parity.token == 150 and parity.largest == pytest.approx(0.5 / bundle.normalization.residual_scale[1, 2])
    values[60, 0, 0] = np.nan
    assert batch_parity(bundle, dataset, tokens, values, "stream").largest == np.inf

    exact = error_over_time(bundle, dataset, tokens, predictions.truth, parts=4)
    held = error_over_time(bundle, dataset, tokens, predictions.hold_last, parts=4)
    assert [row["skill"] for row in exact] == [1.0] * 4 and [row["skill"] for row in held] == [0.0] * 4
    assert sum(row["count"] for row in held) == predictions.scored.sum()
    assert held[0]["from_s"] == (predictions.reference_ns[0] - dataset.table.reference_ns[0]) / 1e9
    assert dataset.table.reference_ns[0] > START_NS


@pytest.mark.parametrize(("options", "resets"), [([], {}), (["--max-gap-s", "1"], {"gap": 1})])
def test_rules_of_admission_are_the_bundles_unless_given(trained: Path, tmp_path: Path, options, resets):
    log, told = tmp_path / "gap.mcap", tmp_path / "told.json"
    write_log(log, arm_messages(seconds=6, seed=7, gap_s=1.5))  # the bundle's rule is 2 s
    arguments = ["replay", str(trained / "bundle"), str(log), "-o", str(tmp_path / "out.mcap"), "--json", str(told)]
    assert main([*arguments, *options]) == 0
    assert json.loads(told.read_text())["stats"]["resets"] == resets


@pytest.mark.parametrize("rule", ["max_gap_s", "max_lateness_s"])
def test_a_rule_of_admission_is_a_positive_number_of_seconds(trained: Path, rule: str):
    bundle = Bundle.load(trained / "bundle")
    assert getattr(bundle.with_admission(**{rule: 0.25}).layout, rule) == 0.25
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match=f"{rule} is .*, must be a number of seconds > 0"):
            bundle.with_admission(**{rule: wrong})
