"""What the live engine keeps, counts and refuses; snapshots; predictions between messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import START_NS, training_config, write_yaml

from robopos.cli import main
from robopos.errors import ServingError
from robopos.logs import LogMessage, iter_messages, read_log
from robopos.model import Bundle, residual_scale_at
from robopos.sequences import SequenceDataset, Verdict
from robopos.serving import Engine
from robopos.training import predict
from robopos.training.ages import AgedColumns

NAMES = {"/joint_states": "joints", "/imu": "imu"}


@pytest.fixture(params=["stream", "window"])
def engine(request: pytest.FixtureRequest, trained: Path) -> Engine:
    return Engine.load(trained / "bundle", device="cpu", mode=request.param)


@pytest.fixture
def streaming(trained: Path) -> Engine:
    return Engine.load(trained / "bundle", device="cpu")


def messages(log: Path, count: int) -> list:
    return [(NAMES[m.topic], m.data, m.log_time_ns) for m in list(iter_messages(log))[:count]]


def feed(engine: Engine, log: Path, start: int, stop: int) -> None:
    for name, data, arrival_ns in messages(log, stop)[start:]:
        engine.push_raw(name, data, arrival_ns)


def test_what_waits_is_absorbed_in_blocks_and_gives_the_same(trained: Path, arm_log: Path):
    often, seldom = (Engine.load(trained / "bundle", device="cpu") for _ in range(2))
    for start in range(0, 120, 20):
        for number in range(start, start + 20):
            feed(often, arm_log, number, number + 1)
            single = often.predict()
        feed(seldom, arm_log, start, start + 20)
        np.testing.assert_allclose(seldom.predict().values, single.values, atol=1e-5)
    assert (often.stats.steps, seldom.stats.steps) == (120, 6)  # 20 tokens are one block of 32
    assert often.stats.absorbed == seldom.stats.absorbed == 120
    assert (often.stats.predictions, seldom.stats.predictions) == (120, 6)
    assert (often.stats.backlog_most, seldom.stats.backlog_most, seldom.stats.backlog) == (1, 20, 0)


def test_absorbing_without_a_prediction_changes_no_prediction(trained: Path, arm_log: Path):
    one, other = (Engine.load(trained / "bundle", device="cpu") for _ in range(2))
    feed(one, arm_log, 0, 40)
    feed(other, arm_log, 0, 25)
    other.absorb()
    assert (other.stats.backlog, other.stats.predictions) == (0, 0)
    feed(other, arm_log, 25, 40)
    np.testing.assert_allclose(other.predict().values, one.predict().values, atol=1e-5)
    np.testing.assert_array_equal(other.predict().values, other.predict().values)


def test_too_long_a_backlog_is_a_reset_that_is_counted(trained: Path, arm_log: Path):
    engine = Engine.load(trained / "bundle", device="cpu", max_backlog=30)
    feed(engine, arm_log, 0, 30)
    assert engine.stats.resets == {} and engine.stats.backlog == 30
    feed(engine, arm_log, 30, 50)
    assert engine.stats.resets == {"backlog": 1} and engine.tokens == 20 and engine.stats.backlog_most == 30
    fresh = Engine.load(trained / "bundle", device="cpu")
    feed(fresh, arm_log, 30, 50)
    np.testing.assert_array_equal(engine.predict().values, fresh.predict().values)


def test_a_message_that_makes_no_token_does_not_overfill_a_backlog(trained: Path, arm_log: Path):
    engine = Engine.load(trained / "bundle", device="cpu", max_backlog=30)
    feed(engine, arm_log, 0, 30)
    assert engine.push("imu", engine.stats.newest_ns, [np.nan] * 3) == Verdict.EMPTY
    assert engine.stats.resets == {} and engine.stats.backlog == 30


def test_a_backlog_of_none_is_refused(trained: Path):
    with pytest.raises(ServingError, match="max_backlog is 0, must be a number of tokens >= 1"):
        Engine.load(trained / "bundle", device="cpu", max_backlog=0)


def test_a_reset_forgets_the_cache(engine: Engine, trained: Path, arm_log: Path):
    feed(engine, arm_log, 0, 60)
    engine.predict()
    engine.reset("asked")
    assert engine.predict() is None and engine.tokens == 0
    feed(engine, arm_log, 60, 75)
    fresh = Engine.load(trained / "bundle", device="cpu", mode=engine.mode)
    feed(fresh, arm_log, 60, 75)
    np.testing.assert_allclose(engine.predict().values, fresh.predict().values, atol=1e-6)
    assert engine.stats.resets == {"asked": 1}


def test_a_gap_between_two_predictions_forgets_too(engine: Engine, trained: Path):
    for i in range(40):
        engine.push("joints", START_NS + i * 10**7, [np.sin(i), 0.2])
    engine.predict()
    later = START_NS + 100 * 10**9
    assert engine.push("joints", later, [0.1, 0.2]) is Verdict.GAP
    fresh = Engine.load(trained / "bundle", device="cpu", mode=engine.mode)
    fresh.push("joints", later, [0.1, 0.2])
    np.testing.assert_allclose(engine.predict().values, fresh.predict().values, atol=1e-6)
    assert engine.stats.resets == {"gap": 1} and engine.tokens == 1


def test_odd_stamps_are_counted_by_kind_and_stream(streaming: Engine):
    at = START_NS
    streaming.push("joints", at, [0.1, 0.2], arrival_ns=at + 10)
    streaming.push("joints", at, [0.1, 0.2], arrival_ns=at + 20)  # the same stamp again
    streaming.push("imu", at - 5_000_000, [0.1, 0.2, 0.3], arrival_ns=at + 30)  # late, within what is kept
    streaming.push("imu", at + 90_000_000, [0.1, 0.2, 0.3], arrival_ns=at + 40)  # ahead of its arrival
    joints, imu = streaming.stats.streams["joints"], streaming.stats.streams["imu"]
    assert (joints.repeated_stamps, joints.out_of_order, joints.future_stamps) == (1, 0, 0)
    assert (imu.repeated_stamps, imu.out_of_order, imu.future_stamps) == (0, 1, 1)
    assert joints.admitted == imu.admitted == 2
    assert streaming.stats.ages_s() == {"joints": 0.09, "imu": 0.0}
    assert streaming.stats.to_dict()["streams"]["joints"]["age_s"] == 0.09
    assert np.isfinite(streaming.predict().values).all()
    # A stamp of years ahead is a gap, the clock's way back a jump: two resets, each with its reason.
    streaming.push("imu", at + 10**17, [0.1, 0.2, 0.3], arrival_ns=at + 50)
    streaming.push("imu", at + 100_000_000, [0.1, 0.2, 0.3], arrival_ns=at + 60)
    assert streaming.stats.resets == {"gap": 1, "clock_jump": 1} and imu.future_stamps == 3
    assert np.isfinite(streaming.predict().values[:, 2]).all()


def test_a_header_without_a_stamp_takes_the_arrival_and_is_counted(streaming: Engine, tmp_path: Path):
    from robopos.logs import write_log

    content = {"header": {"stamp": 0, "frame_id": "base"}, "name": ["shoulder", "elbow"], "position": [0.1, 0.2]}
    write_log(tmp_path / "zero.mcap", [LogMessage("/joint_states", "sensor_msgs/msg/JointState", START_NS, content)])
    (message,) = iter_messages(tmp_path / "zero.mcap")
    assert streaming.push_raw("joints", message.data, arrival_ns=START_NS) is Verdict.ADMITTED
    assert streaming.stats.streams["joints"].zero_stamps == 1 and streaming.stats.newest_ns == START_NS


@pytest.mark.parametrize("time_ns", [1.5, True, None, "now", 2**63, -(2**63) - 1])
def test_a_time_that_is_no_int64_is_refused_and_counted(engine: Engine, time_ns: object):
    with pytest.raises(ServingError, match="must be an integer of nanoseconds"):
        engine.push("joints", time_ns, [0.1, 0.2])
    assert engine.stats.streams["joints"].refused == 1 and engine.tokens == 0
    if time_ns is not None:
        engine.push("joints", START_NS, [0.1, 0.2])
        with pytest.raises(ServingError, match=r"at_ns is .*, must be an integer of nanoseconds"):
            engine.predict(at_ns=time_ns)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300, -1e300])
def test_a_value_that_is_no_measurement_never_enters_the_cache(engine: Engine, trained: Path, bad: float):
    for i in range(30):
        engine.push("joints", START_NS + i * 10**7, [0.1, 0.2])
    engine.push("joints", START_NS + 30 * 10**7, [bad, 0.2])
    engine.predict()
    for i in range(31, 40):
        engine.push("joints", START_NS + i * 10**7, [0.1, 0.2])
    assert np.isfinite(engine.predict().values[:, :2]).all()
    with pytest.raises(ServingError, match=r"values of shape \(1,\)"):
        engine.push("joints", START_NS, [bad])
    assert engine.stats.streams["joints"].refused == 1


def test_a_band_that_tokens_cut_before_seconds_do_is_counted(trained: Path):
    """The band is 12 tokens or 0.5 s."""
    engine = Engine.load(trained / "bundle", device="cpu")
    for i in range(20):
        engine.push("joints", START_NS + i * 60_000_000, [0.1, 0.2])  # 12 tokens last 0.66 s
    assert engine.stats.band_truncated == 0
    for i in range(20):
        engine.push("joints", START_NS + 1_200_000_000 + i * 20_000_000, [0.1, 0.2])  # 0.22 s
    assert engine.stats.band_truncated == 14  # from the 7th on


def test_a_snapshot_goes_on_where_it_was_taken(engine: Engine, trained: Path, arm_log: Path, tmp_path: Path):
    feed(engine, arm_log, 0, 50)
    engine.predict()
    feed(engine, arm_log, 50, 57)  # some wait
    torch.save(engine.snapshot(), tmp_path / "state.pt")
    feed(engine, arm_log, 57, 90)
    expected = engine.predict()
    other = Engine.load(trained / "bundle", device="cpu", mode=engine.mode)
    feed(other, arm_log, 200, 230)
    other.predict()
    other.restore(torch.load(tmp_path / "state.pt", weights_only=True))
    assert other.tokens == min(57, 24) and other.stats.resets["restored"] == 1
    feed(other, arm_log, 57, 90)
    again = other.predict()
    np.testing.assert_array_equal(again.values, expected.values)
    assert again.time_ns == expected.time_ns


def test_a_snapshot_is_a_copy(streaming: Engine, arm_log: Path):
    feed(streaming, arm_log, 0, 30)
    before = streaming.predict().values
    saved = streaming.snapshot()
    feed(streaming, arm_log, 30, 60)
    assert not np.array_equal(streaming.predict().values, before)
    streaming.restore(saved)
    np.testing.assert_array_equal(streaming.predict().values, before)


def test_a_snapshot_of_something_else_is_refused(trained: Path, arm_log: Path):
    one, window = (Engine.load(trained / "bundle", device="cpu", mode=mode) for mode in ("stream", "window"))
    feed(one, arm_log, 0, 10)
    with pytest.raises(ServingError, match=r"the snapshot \(mode stream\) is not of this bundle in this mode"):
        window.restore(one.snapshot())
    bundle = Bundle.load(trained / "bundle")
    with torch.no_grad():
        bundle.network.norm.weight.add_(1e-3)
    with pytest.raises(ServingError, match="is not of this bundle"):
        Engine(bundle, device="cpu").restore(one.snapshot())


@pytest.fixture(scope="module")
def aged(arm_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle trained to predict from up to 0.2 s after the newest message."""
    folder = tmp_path_factory.mktemp("aged")
    config = write_yaml(folder / "train.yaml", training_config(arm_log, max_input_age_s=0.2))
    assert main(["train", "--config", str(config), "--out", str(folder)]) == 0
    return folder / "bundle"


def test_targets_of_aged_windows_lie_behind_the_age(arm_log: Path, aged: Path):
    bundle = Bundle.load(aged)
    dataset = SequenceDataset.build([read_log(arm_log, bundle.layout.log_streams())], bundle.layout)
    columns = AgedColumns(dataset, bundle.normalization, "all", "cpu", None, max_age_s=0.2, seed=1)
    ends = torch.tensor([400, 700])
    batch = columns.batch(ends, 200)
    assert batch.age_s.shape == (2, 200) and batch.age_s.min() < 0.01 and 0.19 < batch.age_s.max() <= 0.2
    _, number = columns.windows(ends, 200)
    base = dataset.baselines.base[number]
    horizons_s = batch.age_s.numpy()[..., None] + np.array([0.1, 0.25])
    scale = residual_scale_at(horizons_s, bundle.layout, bundle.normalization)
    values = batch.targets.double().numpy() * scale + base[:, :, None]
    reference_s = (dataset.table.reference_ns[number] - START_NS) / 1e9
    seconds = reference_s[..., None] + horizons_s
    error = np.where(batch.mask[..., 0].numpy(), values[..., 0] - np.sin(2.1 * seconds), 0.0)
    assert batch.mask.float().mean() > 0.95
    assert np.abs(error).max() < 0.01  # linear interpolation of the shoulder's sine


def test_a_prediction_between_messages_is_told_the_time(aged: Path, arm_log: Path):
    engine = Engine.load(aged, device="cpu")
    told, untold = [], []
    for name, data, arrival_ns in messages(arm_log, 400):
        engine.push_raw(name, data, arrival_ns)
        now = engine.predict()
        later = engine.predict(at_ns=now.time_ns + 200_000_000)
        assert later.time_ns == now.time_ns + 200_000_000 and later.horizons_s.tolist() == [0.1, 0.25]
        truth = np.sin(2.1 * ((later.time_ns - START_NS) / 1e9 + later.horizons_s))
        told.append(later.values[:, 0] - truth)
        untold.append(now.values[:, 0] - truth)
    rms = [np.sqrt(np.square(errors[30:]).mean()) for errors in (told, untold)]
    assert rms[0] < 0.6 * rms[1], rms
    at = engine.predict().time_ns
    np.testing.assert_allclose(engine.predict(at_ns=at + 1).values, engine.predict().values, atol=1e-4)
    for wrong in (at + 200_000_001, at - 1):
        with pytest.raises(ServingError, match=r"was trained to predict from 0 to 0\.2 s after it"):
            engine.predict(at_ns=wrong)


def test_one_thread_for_small_networks_and_the_callers_number_after(streaming: Engine, trained: Path):
    torch.set_num_threads(2)
    try:
        streaming.push("joints", START_NS, [0.1, 0.2])
        seen = []
        forward = streaming.bundle.network.predict
        streaming.bundle.network.predict = lambda *given: (seen.append(torch.get_num_threads()), forward(*given))[1]
        streaming.predict()
        assert seen == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_float64_modules_serve_in_float64(trained: Path, arm_log: Path):
    bundle = Bundle.load(trained / "bundle")
    bundle.network.double()
    dataset = SequenceDataset.build([read_log(arm_log, bundle.layout.log_streams())], bundle.layout)
    anchors = np.arange(100, 130)
    expected = predict(bundle, dataset, "all", anchors=anchors).values
    engine = Engine(bundle, device="cpu")
    live = []
    for name, data, arrival_ns in messages(arm_log, 130):
        engine.push_raw(name, data, arrival_ns)
        live.append(engine.predict().values)
    np.testing.assert_allclose(np.stack(live)[anchors], expected, atol=1e-12)
