"""From logs to tokens, targets, splits and windows; live and offline the same."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import arm_messages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sequences_support import sequence_settings

from robopos.errors import ConfigError, SequenceError
from robopos.logs import Log, read_log, write_log
from robopos.sequences import (
    LiveTokens,
    Normalization,
    SequenceDataset,
    SequenceLayout,
    SplitSettings,
    TokenColumns,
    WindowSampler,
    log_streams,
    read_messages,
    resolve_layout,
)


@pytest.fixture(scope="module")
def log(arm_log: Path) -> Log:
    return read_log(arm_log, log_streams(sequence_settings()), clock="header")


@pytest.fixture(scope="module")
def layout(log: Log) -> SequenceLayout:
    return resolve_layout(sequence_settings(), log)


def test_tokens_stand_in_arrival_order_with_their_header_times(log: Log, layout: SequenceLayout):
    table = read_messages([log], layout)
    assert len(table) == len(log["joints"]) + len(log["imu"])
    assert (np.diff(table.arrival_ns) >= 0).all()
    assert (np.diff(table.time_ns) < 0).any()  # a header time earlier than one that arrived before
    assert (table.reference_ns == np.maximum.accumulate(table.time_ns)).all()
    of_imu = table.stream == 1
    assert np.isnan(table.features[of_imu, :2]).all() and np.isfinite(table.features[of_imu, 2:]).all()
    np.testing.assert_array_equal(table.features[~of_imu, :2], log["joints"].values)


def test_difference_and_rate_are_of_the_message_before_in_the_same_stream(log: Log):
    streams = dict(sequence_settings().streams)
    transform = {"position[shoulder]": "difference", "position[elbow]": "rate"}
    streams["joints"] = replace(streams["joints"], transform=transform)
    layout = resolve_layout(sequence_settings(streams=streams), log)
    table = read_messages([log], layout)
    joints = table.features[table.stream == 0, :2]
    values, time_ns = log["joints"].values, log["joints"].time_ns
    assert np.isnan(joints[0]).all()
    np.testing.assert_allclose(joints[1:, 0], np.diff(values[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(joints[1:, 1], np.diff(values[:, 1]) / (np.diff(time_ns) / 1e9), rtol=1e-12)


def slow_target(layout: SequenceLayout, log: Log, time_ns: int, name: str) -> float:
    """Linear interpolation, one sample after the other."""
    stream_name, field = name.split(".", 1)
    stream = log[stream_name]
    column = stream.names.index(field)
    samples = sorted(zip(stream.time_ns.tolist(), stream.values[:, column].tolist(), strict=True))
    limit_ns = layout.streams[layout.stream_number(stream_name)].max_interpolation_s * 1e9
    for (left_ns, left), (right_ns, right) in itertools.pairwise(samples):
        if left_ns <= time_ns <= right_ns and right_ns - left_ns <= limit_ns:
            return left + (right - left) * (time_ns - left_ns) / (right_ns - left_ns)
    return math.nan


def test_targets_equal_a_slow_interpolation(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout)
    tokens = np.random.default_rng(0).choice(len(dataset.table), 40, replace=False).tolist()
    for token in [*tokens, len(dataset.table) - 1]:
        for h, horizon_s in enumerate(layout.horizons_s):
            for t, name in enumerate(layout.target_names):
                expected = slow_target(
                    layout, log, int(dataset.table.reference_ns[token]) + round(horizon_s * 1e9), name
                )
                np.testing.assert_allclose(dataset.targets[token, h, t], expected, atol=1e-9)
    assert np.isnan(dataset.targets[-1]).all()


def test_samples_too_far_apart_give_no_target(log: Log):
    streams = {n: replace(s, max_interpolation_s=1e-3) for n, s in sequence_settings().streams.items()}
    dataset = SequenceDataset.build([log], resolve_layout(sequence_settings(streams=streams), log))
    assert np.isfinite(dataset.targets).mean() < 0.05
    with pytest.raises(SequenceError, match=r"never known in the training split.*max_interpolation_s"):
        SequenceDataset.build([log], dataset.layout, SplitSettings()).fit_normalization()


def test_base_is_the_last_value_at_or_before_the_token_and_the_velocity_its_slope(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout)
    table, baselines = dataset.table, dataset.baselines
    for token in (0, 1, 57, 500):
        for t in range(len(layout.targets)):
            seen = [i for i in range(token + 1) if np.isfinite(table.observed[i, t])]
            if not seen:
                assert np.isnan(baselines.base[token, t])
                continue
            assert baselines.base[token, t] == table.observed[seen[-1], t]
            assert baselines.base_age_s[token, t] == (table.reference_ns[token] - table.time_ns[seen[-1]]) / 1e9
            if len(seen) > 1:
                a, b = seen[-2:]
                slope = (table.observed[b, t] - table.observed[a, t]) / ((table.time_ns[b] - table.time_ns[a]) / 1e9)
                np.testing.assert_allclose(baselines.velocity[token, t], slope)
                ahead = baselines.base[token, t] + slope * (baselines.base_age_s[token, t] + 0.1)
                np.testing.assert_allclose(baselines.constant_velocity(layout)[token, 0, t], ahead)


def test_a_gap_parts_segments_and_nothing_crosses_it(tmp_path: Path):
    path = tmp_path / "gap.mcap"
    write_log(path, arm_messages(gap_s=30.0))
    log = read_log(path, log_streams(sequence_settings()))
    layout = resolve_layout(sequence_settings(), log)
    dataset = SequenceDataset.build([log], layout)
    assert dataset.table.counts["gap"] == 1
    first, second = dataset.blocks
    assert first.stop == second.start
    assert np.isnan(dataset.baselines.base[second.start]).any()
    # A reference time just before the gap has no target in it.
    assert np.isnan(dataset.targets[first.stop - 1]).all()
    columns = TokenColumns(dataset.table, unit_normalization(layout), dataset.blocks)
    tokens, _ = columns.windows(torch.tensor([second.start + 3]), 10)
    assert tokens.positions.valid.tolist() == [[False] * 6 + [True] * 4]


def unit_normalization(layout: SequenceLayout) -> Normalization:
    features, horizons, targets = layout.num_features, len(layout.horizons_s), len(layout.targets)
    return Normalization(
        np.zeros(features),
        np.ones(features),
        np.zeros(targets),
        np.ones((horizons, targets)),
        -np.ones(targets),
        np.ones(targets),
    )


def test_splits_stand_in_order_with_a_guard_and_targets_stay_inside(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings(0.2, 0.2))
    assert [b.split for b in dataset.blocks] == ["train", "validation", "test"]
    arrival = dataset.table.arrival_ns
    for before, after in zip(dataset.blocks, dataset.blocks[1:], strict=False):
        assert arrival[after.start] - arrival[before.stop] >= (0.25 + 1.0 - 0.1) * 1e9
        # The last reference time of a split would need a sample of after it: masked.
        assert np.isnan(dataset.targets[before.stop - 1]).all()
    whole = SequenceDataset.build([log], layout)
    block = dataset.blocks[0]
    inside = slice(block.start, block.stop - 80)
    np.testing.assert_array_equal(dataset.targets[inside], whole.targets[inside])


def test_splits_by_log_take_whole_logs_in_order(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log] * 5, layout, SplitSettings(0.2, 0.4, by="log"))
    size = len(log["joints"]) + len(log["imu"])
    parts = [(b.split, b.start, b.stop) for b in dataset.blocks]
    names = ["train", "train", "validation", "test", "test"]
    assert parts == [(name, i * size, (i + 1) * size) for i, name in enumerate(names)]
    with pytest.raises(SequenceError, match=r"split\.by is 'log' with 2 logs: it needs at least 3"):
        SequenceDataset.build([log] * 2, layout, SplitSettings(by="log"))


def test_normalization_knows_the_training_split_only(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    normalization = dataset.fit_normalization()
    block = dataset.of_split("train")[0]
    expected = np.nanmean(dataset.table.features[block.start : block.stop], axis=0)
    np.testing.assert_allclose(normalization.mean, expected)
    changed = dataset.table.features.copy()
    changed[block.stop :] += 100.0
    other = replace(dataset, table=replace(dataset.table, features=changed)).fit_normalization()
    np.testing.assert_array_equal(other.mean, normalization.mean)
    assert normalization.std[4] == 1.0  # angular_velocity.z never varies


def test_the_sampler_repeats_its_batches_and_ranks_share_one(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    columns = dataset.columns(dataset.fit_normalization(), "train")
    one = WindowSampler([columns], 24, 6, seed=3, min_history=12)
    again, other = WindowSampler([columns], 24, 6, 3, 12), WindowSampler([columns], 24, 6, 4, 12)
    assert torch.equal(one.sample(5).tokens.values, again.sample(5).tokens.values)
    assert not torch.equal(one.sample(5).tokens.values, one.sample(6).tokens.values)
    assert not torch.equal(one.sample(5).tokens.values, other.sample(5).tokens.values)
    halves = [WindowSampler([columns], 24, 3, 3, 12, rank=rank, ranks=2).sample(5) for rank in range(2)]
    whole = torch.cat([half.tokens.values for half in halves])
    assert torch.equal(whole, one.sample(5).tokens.values)


def test_windows_hold_what_the_table_holds(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    columns = dataset.columns(unit_normalization(layout), "train")
    batch = columns.batch(torch.tensor([200]), 16)
    part = slice(185, 201)
    features = dataset.table.features[part]
    np.testing.assert_array_equal(batch.tokens.measured[0].numpy(), np.isfinite(features))
    np.testing.assert_allclose(batch.tokens.values[0].numpy(), np.nan_to_num(features), rtol=1e-6)
    np.testing.assert_array_equal(batch.tokens.positions.time_ns[0].numpy(), dataset.table.time_ns[part])
    np.testing.assert_array_equal(batch.tokens.observed[0].int().argmax(-1).numpy(), dataset.table.stream[part])
    residual = dataset.targets[part] - dataset.baselines.base[part][:, None]
    np.testing.assert_array_equal(batch.mask[0].numpy(), np.isfinite(residual))
    np.testing.assert_allclose(batch.targets[0].numpy(), np.nan_to_num(residual), rtol=1e-5, atol=1e-6)


def test_a_context_longer_than_every_run_is_named(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    columns = dataset.columns(dataset.fit_normalization(), "train")
    with pytest.raises(SequenceError, match="longer than the 100000 tokens of burn-in"):
        WindowSampler([columns], 100_001, 4, 0, 100_000)


VARIANTS = {
    "messages": {},
    "rows": {"tokens": "rows", "reference": "joints"},
    "gap": {"gap_feature": True},
    "rows and gap": {"tokens": "rows", "reference": "imu", "gap_feature": True},
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    missing=st.floats(0, 0.5),
    lateness=st.sampled_from([None, 0.003]),
    variant=st.sampled_from(list(VARIANTS)),
    action=st.booleans(),
)
def test_messages_one_by_one_give_the_tokens_of_the_log(
    log: Log, seed: int, missing: float, lateness: float | None, variant: str, action: bool
):
    generator = np.random.default_rng(seed)
    streams = {}
    for name, stream in log.items():
        rows = np.sort(generator.choice(len(stream), 60, replace=False))
        values = stream.values[rows].copy()
        values[generator.random(values.shape) < missing] = np.nan
        columns = {c: getattr(stream, c)[rows] for c in ("time_ns", "arrival_ns", "order")}
        streams[name] = replace(stream, values=values, **columns)
    thinned = Log(streams, log.paths, log.warnings)
    asked = dict(sequence_settings().streams)
    asked["imu"] = replace(asked["imu"], transform="rate", max_rate_hz=5.0)
    asked["joints"] = replace(asked["joints"], transform={"position[elbow]": "difference"}, angle=["position"])
    if action and VARIANTS[variant].get("reference") != "imu":
        asked["imu"] = replace(asked["imu"], role="action")
    changes = {"streams": asked, "max_lateness_s": lateness, "max_gap_s": 0.8} | VARIANTS[variant]
    layout = resolve_layout(sequence_settings(**changes), log)
    dataset = SequenceDataset.build([thinned], layout)
    features = layout.num_features
    normalization = replace(unit_normalization(layout), mean=np.full(features, 0.3), std=np.full(features, 0.7))
    columns = TokenColumns(dataset.table, normalization, dataset.blocks)

    live = LiveTokens(layout, normalization, capacity=20)
    messages = sorted(
        (int(s.arrival_ns[i]), int(s.order[i]), layout.stream_number(n), int(s.time_ns[i]), s.values[i])
        for n, s in streams.items()
        for i in range(len(s))
        if layout.streams[layout.stream_number(n)].input
    )
    token = 0
    for _, _, stream, time_ns, row in messages:
        live.push(stream, time_ns, row)
        if live.made == token:
            continue
        here = live.tokens()
        there, _ = columns.windows(torch.tensor([token]), 20)
        valid = there.positions.valid[0]
        assert torch.equal(here.values[0], there.values[0, valid])
        assert torch.equal(here.measured[0], there.measured[0, valid])
        assert torch.equal(here.observed[0], there.observed[0, valid])
        assert torch.equal(here.positions.time_ns[0], there.positions.time_ns[0, valid])
        assert live.reference_ns == dataset.table.reference_ns[token]
        seen = np.array(layout.target_seen)
        np.testing.assert_array_equal(live.base[seen], dataset.baselines.base[token][seen])
        np.testing.assert_array_equal(live.base[~seen], normalization.center[~seen])
        token += 1
    assert token == len(dataset.table) > 20


def test_rows_hold_the_last_values_with_their_age(log: Log):
    layout = resolve_layout(sequence_settings(tokens="rows", reference="joints"), log)
    assert layout.feature_names[-1] == "age.imu"
    table = SequenceDataset.build([log], layout).table
    assert len(table) == len(log["joints"])
    imu, joints = log["imu"], log["joints"]
    for row in (3, 100, 700):
        arrived = np.flatnonzero(imu.arrival_ns < joints.arrival_ns[row])
        np.testing.assert_array_equal(table.features[row, 2:5], imu.values[arrived[-1]])
        age_s = (table.reference_ns[row] - imu.time_ns[arrived[-1]]) / 1e9
        np.testing.assert_allclose(table.features[row, 5], np.log10(max(age_s, 1e-3)))
        assert table.carries[row].all()


def test_the_gap_is_the_time_since_the_token_before(log: Log):
    layout = resolve_layout(sequence_settings(gap_feature=True), log)
    table = SequenceDataset.build([log], layout).table
    gap_s = np.diff(table.time_ns) / 1e9
    np.testing.assert_allclose(table.features[1:, -1], np.log10(np.maximum(gap_s, 1e-3)))
    assert np.isnan(table.features[0, -1]) and layout.feature_names[-1] == "gap"


def test_an_action_is_a_target_and_no_input(log: Log):
    streams = dict(sequence_settings().streams)
    streams["imu"] = replace(streams["imu"], role="action", interpolation="hold")
    settings_ = sequence_settings(streams=streams, targets={"imu": ["angular_velocity.x"]}, horizons_s=[0.0, 0.1])
    layout = resolve_layout(settings_, log)
    assert layout.num_features == 2 and [s.name for s in layout.inputs] == ["joints"]
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    assert len(dataset.table) == len(log["joints"])
    imu = log["imu"]
    for row in (5, 300):
        now_ns = dataset.table.reference_ns[row]
        held = imu.values[np.flatnonzero(imu.time_ns <= now_ns)[-1], 0]
        assert dataset.targets[row, 0, 0] == held
    normalization = dataset.fit_normalization()
    train = dataset.of_split("train")[0]
    last_ns = dataset.table.arrival_ns[train.stop - 1]
    np.testing.assert_allclose(normalization.center, imu.values[imu.arrival_ns <= last_ns, 0].mean(), rtol=1e-2)
    with pytest.raises(ConfigError, match=r"horizons_s is 0\.0"):
        sequence_settings(horizons_s=[0.0, 0.1])


def test_nothing_that_arrives_later_reaches_an_input(log: Log, layout: SequenceLayout):
    table = read_messages([log], layout)
    end = 300
    after_ns = table.arrival_ns[end]
    changed = {}
    for name, stream in log.items():
        values = stream.values.copy()
        values[stream.arrival_ns > after_ns] += 1000.0
        changed[name] = replace(stream, values=values)
    dataset, other = (SequenceDataset.build([made], layout) for made in (log, Log(changed, log.paths, ())))
    for a, b in ((dataset.table.features, other.table.features), (dataset.baselines.base, other.baselines.base)):
        np.testing.assert_array_equal(a[: end + 1], b[: end + 1])
    assert not np.array_equal(dataset.table.features[end + 1 :], other.table.features[end + 1 :])


def test_a_degraded_log_is_judged_by_the_whole_truth(log: Log, layout: SequenceLayout):
    dataset = SequenceDataset.build([log], layout, SplitSettings())
    kept = {}
    for name, stream in log.items():
        mask = np.random.default_rng(1).random(len(stream)) < 0.5
        columns = {c: getattr(stream, c)[mask] for c in ("time_ns", "arrival_ns", "order", "values")}
        kept[name] = replace(stream, **columns)
    worse = dataset.degraded([Log(kept, log.paths, ())])
    place = dataset.locate(worse.table)
    same = worse.table.reference_ns == dataset.table.reference_ns[place]
    assert same.mean() > 0.5
    np.testing.assert_array_equal(worse.targets[same], dataset.targets[place][same])
    for block in worse.blocks:
        whole = next(b for b in dataset.blocks if b.split == block.split)
        assert place[block.start] >= whole.start and place[block.stop - 1] < whole.stop
    with pytest.raises(SequenceError, match="no token of the undegraded"):
        worse.degraded([log])


def test_two_logs_are_two_segments(log: Log, layout: SequenceLayout):
    table = read_messages([log, log], layout)
    half = len(table) // 2
    assert table.segment[:half].tolist() == [0] * half and table.segment[half:].tolist() == [1] * half
    np.testing.assert_array_equal(table.segment_starts(), np.repeat([0, half], half))
