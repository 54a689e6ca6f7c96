"""Conditions change what is seen, never the truth; all schemes are judged at the same anchors."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_comparison_study import settings

from robopos.comparison import StudySettings
from robopos.comparison.conditions import drop_name
from robopos.comparison.data import StudyData, View
from robopos.comparison.make import judge
from robopos.comparison.settings import AUGMENTED, HALF_RATE, RECORDED, ConditionSettings
from robopos.model import Bundle, ModelSettings, SequenceTransformer
from robopos.sequences import SequenceDataset
from robopos.sequences.degrade import AugmentSettings


@pytest.fixture(scope="module")
def data(arm_log: Path) -> StudyData:
    return StudyData(settings(arm_log, conditions=ConditionSettings(stream="imu", jitter_s=0.004, burst_s=0.4)))


@pytest.fixture(scope="module")
def views(data: StudyData) -> dict[str, View]:
    return {c.name: data.view(c, False) for c in data.conditions}


def counts(data: StudyData, dataset: SequenceDataset) -> dict[str, int]:
    """Test tokens by stream."""
    stream = np.concatenate([dataset.table.stream[b.start : b.stop] for b in dataset.of_split("test")])
    return {s.name: int((stream == n).sum()) for n, s in enumerate(data.layout.streams)}


def test_the_conditions_by_name(data: StudyData):
    offset_ms = 4 * data.interval_s * 1e3
    assert [c.name for c in data.conditions] == [
        *("as recorded", "jitter 4 ms", "drops 10%", "drops 30%", "drops 50%", "drops 70%", "gaps of 400 ms"),
        *("half the rate", "imu at 1/4 of its rate", "imu missing"),
        *(f"clock of imu off by {offset_ms:.3g} ms", "2 x the context", "+10 years"),
    ]


def test_shares_that_differ_by_less_than_a_percent_are_conditions_of_their_own():
    names = [drop_name(share) for share in (0.07, 0.12, 0.125, 0.29)]
    assert names == ["drops 7%", "drops 12%", "drops 12.5%", "drops 29%"]


def test_each_condition_takes_away_what_it_says(data: StudyData, views: dict[str, View]):
    whole = counts(data, views["as recorded"].dataset)
    for share in (0.1, 0.3, 0.5, 0.7):
        left = sum(counts(data, views[f"drops {share:.0%}"].dataset).values()) / sum(whole.values())
        assert left == pytest.approx(1 - share, abs=0.09)
    half, slow, missing = (
        counts(data, views[n].dataset) for n in ("half the rate", "imu at 1/4 of its rate", "imu missing")
    )
    for name, count in whole.items():
        assert half[name] == pytest.approx(count / 2, abs=2)
        assert slow[name] == pytest.approx(count / (4 if name == "imu" else 1), abs=2)
        assert missing[name] == (0 if name == "imu" else count)
    bursts = counts(data, views["gaps of 400 ms"].dataset)
    assert 0.6 < sum(bursts.values()) / sum(whole.values()) < 1


def test_the_same_condition_is_the_same_whenever_it_is_made(data: StudyData, views: dict[str, View]):
    again = StudyData(data.settings)
    for condition in again.conditions:
        view = again.view(condition, False)
        np.testing.assert_array_equal(view.anchors, views[condition.name].anchors)
        np.testing.assert_array_equal(view.dataset.table.time_ns, views[condition.name].dataset.table.time_ns)


def test_the_truth_is_that_of_the_undegraded_log(data: StudyData, views: dict[str, View]):
    whole = views["as recorded"].dataset
    for name in ("drops 70%", "half the rate", "imu missing"):
        degraded = views[name].dataset
        same = whole.locate(degraded.table)
        at_same_time = degraded.table.reference_ns == whole.table.reference_ns[same]
        assert at_same_time.mean() > 0.5
        np.testing.assert_array_equal(degraded.targets[at_same_time], whole.targets[same][at_same_time])
        # What is held may be older: the robot saw no more.
        ages = degraded.baselines.base_age_s[at_same_time], whole.baselines.base_age_s[same][at_same_time]
        assert (np.nan_to_num(ages[0], nan=np.inf) >= np.nan_to_num(ages[1], nan=np.inf)).all()


def test_jitter_and_offset_move_stamps_not_arrivals(data: StudyData, views: dict[str, View]):
    whole = views["as recorded"].dataset.table
    jittered = views["jitter 4 ms"].dataset.table
    np.testing.assert_array_equal(jittered.arrival_ns, whole.arrival_ns)
    assert (jittered.time_ns - whole.time_ns).std() == pytest.approx(4e6, rel=0.1)
    offset = next(v for n, v in views.items() if n.startswith("clock of imu")).dataset.table
    moved = offset.time_ns - whole.time_ns
    assert set(np.unique(moved[whole.stream == 1])) == {round(4 * data.interval_s * 1e9)}
    assert (moved[whole.stream == 0] == 0).all()


def test_anchors_have_their_history_and_blocks_of_time_are_the_same_everywhere(data: StudyData, views: dict[str, View]):
    whole = views["as recorded"]
    assert len(whole.anchors) == data.settings.max_anchors and (np.diff(whole.anchors) > 0).all()
    for name, view in views.items():
        history = data.settings.network.history * (2 if name == "2 x the context" else 1)
        for block in view.dataset.of_split("test"):
            inside = view.anchors[(view.anchors >= block.start) & (view.anchors < block.stop)]
            assert (inside >= block.start + history).all()
        assert (np.diff(view.block) >= 0).all()
        gap = data.view(view.condition, True)
        np.testing.assert_array_equal(gap.anchors, view.anchors)
        np.testing.assert_array_equal(gap.block, view.block)
    first_ns = whole.dataset.table.arrival_ns.min()
    for name in ("drops 50%", "half the rate", "+10 years"):
        view = views[name]
        since_ns = view.dataset.table.arrival_ns[view.anchors] - view.condition.shift_ns - first_ns
        np.testing.assert_array_equal(view.block, since_ns // round(data.settings.block_s * 1e9))


def test_years_change_no_prediction_of_any_clock(data: StudyData, views: dict[str, View]):
    layout, normalization = data.layout, data.whole(False).fit_normalization()
    for name in ("index-rotary", "time-rotary", "time-sinusoidal"):
        network = SequenceTransformer(layout, ModelSettings(positions=name, context=12, context_s=0.5, window=24))
        bundle = Bundle(layout, network.settings, normalization, network.eval())
        now, later = (judge(bundle, views[n]) for n in ("as recorded", "+10 years"))
        np.testing.assert_allclose(later.model, now.model, rtol=1e-4)
        np.testing.assert_array_equal(later.hold, now.hold)
        np.testing.assert_array_equal(later.count, now.count)


def test_sums_are_those_of_the_errors(data: StudyData, views: dict[str, View]):
    from robopos.training import predict

    layout, normalization = data.layout, data.whole(False).fit_normalization()
    network = SequenceTransformer(layout, ModelSettings(context=12, context_s=0.5, window=24))
    bundle = Bundle(layout, network.settings, normalization, network.eval())
    view = views["drops 50%"]
    sums = judge(bundle, view)
    predictions = predict(bundle, view.dataset, "test", anchors=view.anchors)
    label = sums.block[len(sums.block) // 2]
    column, total, held, count = 4, 0.0, 0.0, 0  # horizon 1, target 1 of 3
    for a in np.flatnonzero(view.block == label):
        truth = predictions.truth[a, 1, 1]
        if np.isfinite(truth) and np.isfinite(predictions.hold_last[a, 1, 1]):
            total += (predictions.values[a, 1, 1] - truth) ** 2
            held += (predictions.hold_last[a, 1, 1] - truth) ** 2
            count += 1
    row = list(sums.block).index(label)
    assert count > 0 and sums.count[row, column] == count
    assert sums.model[row, column] == pytest.approx(total) and sums.hold[row, column] == pytest.approx(held)


def test_regimes_train_on_what_they_say(arm_log: Path):
    augment = AugmentSettings(copies=2, drop=0.6)
    regimes = [RECORDED, AUGMENTED, HALF_RATE]
    given: StudySettings = settings(arm_log, augment=augment, regimes=regimes)
    data = StudyData(given)
    recorded, augmented, half = (data.training(regime, False) for regime in regimes)
    assert recorded == (data.whole(False), [])
    assert augmented[0] is recorded[0] and len(augmented[1]) == 2
    assert all(0.4 * len(recorded[0].table) < len(c.table) < len(recorded[0].table) for c in augmented[1])
    assert len(half[0].table) == pytest.approx(len(recorded[0].table) / 2, abs=2)
    assert half[0].median_interval_s() > 1.5 * recorded[0].median_interval_s()


@pytest.mark.parametrize("given", ["", "*.mcap"])
def test_each_log_of_a_folder_or_pattern_is_a_log_of_its_own(two_runs: Path, given: str):
    files = sorted(two_runs.iterdir())
    named = StudyData(replace(settings(files[0]), logs=[str(file) for file in files]))
    together = StudyData(settings(two_runs / given))
    assert together.interval_s == named.interval_s and together.hashes == named.hashes
    assert list(together.describe()["hashes"]) == ["run1.mcap", "run2.mcap"]
    np.testing.assert_array_equal(together.whole(False).table.log, named.whole(False).table.log)


def test_logs_that_share_a_name_are_told_by_their_paths(two_runs: Path, tmp_path: Path):
    first, other = sorted(two_runs.iterdir())
    same = tmp_path / first.name
    shutil.copy(other, same)
    data = StudyData(replace(settings(first), logs=[str(first), str(same), str(other)]))
    assert list(data.describe()["hashes"]) == [str(first), str(same), other.name]
    assert len(set(data.hashes.values())) == 2
