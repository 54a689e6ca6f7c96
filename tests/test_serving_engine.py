"""The live engine: the numbers of evaluation, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import START_NS, arm_messages

from robopos.errors import BundleError, ConfigError, LogError, ServingError
from robopos.logs import StreamSpec, iter_messages, read_log, write_log
from robopos.model import Bundle, SequenceTransformer
from robopos.model.defaults import fill_position_options
from robopos.sequences import SequenceDataset, Verdict
from robopos.serving import Engine, replay, replay_to_log
from robopos.training import predict


@pytest.fixture
def engine(trained: Path) -> Engine:
    return Engine.load(trained / "bundle", device="cpu")


def evaluated(folder: Path, log: Path, mode: str):
    bundle = Bundle.load(folder / "bundle")
    dataset = SequenceDataset.build([read_log(log, bundle.layout.log_streams())], bundle.layout)
    return predict(bundle, dataset, "all", mode=mode)


@pytest.mark.parametrize("mode", ["stream", "window"])
@pytest.mark.parametrize("gap_s", [0.0, 30.0])
def test_a_replayed_log_gives_what_evaluation_gives(trained: Path, tmp_path: Path, gap_s: float, mode: str):
    log = tmp_path / "new.mcap"
    write_log(log, arm_messages(seconds=12, seed=7, gap_s=gap_s))
    expected = evaluated(trained, log, mode)
    engine = Engine.load(trained / "bundle", device="cpu", mode=mode)
    live = [step.prediction for step in replay(engine, log) if step.prediction is not None]
    assert [p.time_ns for p in live] == expected.reference_ns.tolist()
    values = np.stack([p.values for p in live])
    assert np.isfinite(values).all() and len(live) > 300
    np.testing.assert_allclose(values, expected.values, atol=1e-5)
    assert engine.stats.resets == ({"gap": 1} if gap_s else {})
    assert engine.mode == mode


def test_modes_differ_by_what_the_window_forgets(trained: Path, tmp_path: Path):
    """Two layers of 12 tokens reach 22 tokens back, a window of 24 holds them: equal. A shorter one is not."""
    bundle = Bundle.load(trained / "bundle")
    log = tmp_path / "new.mcap"
    write_log(log, arm_messages(seconds=6, seed=7))
    dataset = SequenceDataset.build([read_log(log, bundle.layout.log_streams())], bundle.layout)
    stream, window = (predict(bundle, dataset, "all", mode=mode).values for mode in ("stream", "window"))
    np.testing.assert_allclose(stream, window, atol=1e-5)
    bundle.network.settings = settings = replace(bundle.settings, window=13)
    short = predict(replace(bundle, settings=settings), dataset, "all", mode="window").values
    assert np.abs(stream - short).max() > 1e-4


def test_evaluation_of_some_anchors_gives_what_evaluation_of_all_gives(trained: Path, arm_log: Path):
    bundle = Bundle.load(trained / "bundle")
    dataset = SequenceDataset.build([read_log(arm_log, bundle.layout.log_streams())], bundle.layout)
    every = predict(bundle, dataset, "all")
    some = np.array([900, 500, 501, 1200])
    few = predict(bundle, dataset, "all", anchors=some, batch_size=50)
    np.testing.assert_allclose(few.values, every.values[some - every.anchors[0]], atol=1e-5)
    assert few.anchors.tolist() == some.tolist()


SCHEMES = (
    "none",
    "index-sinusoidal",
    "time-sinusoidal",
    "index-rotary",
    "index-learned",
    "time-alibi",
    "time-relative",
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_serves_as_it_is_evaluated(arm_log: Path, trained: Path, scheme: str):
    made = Bundle.load(trained / "bundle")
    settings = fill_position_options(replace(made.settings, positions=scheme, position_options={}), 0.02)
    torch.manual_seed(1)
    bundle = replace(made, settings=settings, network=SequenceTransformer(made.layout, settings).eval())
    dataset = SequenceDataset.build([read_log(arm_log, made.layout.log_streams())], made.layout)
    engine = Engine(bundle, device="cpu")
    assert engine.mode == ("window" if scheme.endswith(("sinusoidal", "learned")) else "stream")
    live = []
    for step in replay(engine, arm_log):
        live += [step.prediction.values] if step.prediction is not None else []
        if len(live) == 60:
            break
    first = made.settings.history
    expected = predict(bundle, dataset, "all", anchors=np.arange(first, first + 60))
    np.testing.assert_allclose(np.stack(live), expected.values, atol=1e-5)


def test_a_mode_that_the_scheme_cannot_is_refused(trained: Path):
    made = Bundle.load(trained / "bundle")
    settings = replace(made.settings, positions="time-sinusoidal", position_options={})
    bundle = replace(made, settings=settings, network=SequenceTransformer(made.layout, settings))
    with pytest.raises(ConfigError, match=r"'stream' is not possible with the scheme 'time-sinusoidal': it adds pos"):
        Engine(bundle, device="cpu", mode="stream")
    with pytest.raises(ConfigError, match="mode is 'fast', must be one of stream, window"):
        Engine.load(trained / "bundle", device="cpu", mode="fast")


def test_pushed_values_equal_pushed_bytes(trained: Path, arm_log: Path):
    raw, plain = (Engine.load(trained / "bundle", device="cpu") for _ in range(2))
    fields = {s.name: StreamSpec(s.topic, list(s.fields)) for s in raw.inputs}
    log = read_log(arm_log, fields)
    place = dict.fromkeys(log, 0)
    names = {"/joint_states": "joints", "/imu": "imu"}
    for message in list(iter_messages(arm_log))[:80]:
        name = names[message.topic]
        row, place[name] = place[name], place[name] + 1
        raw.push_raw(name, message.data, arrival_ns=message.log_time_ns)
        plain.push(name, int(log[name].time_ns[row]), log[name].values[row])
    np.testing.assert_array_equal(raw.predict().values, plain.predict().values)


def test_a_prediction_says_what_it_is(engine: Engine, arm_log: Path):
    assert engine.predict() is None
    for message in list(iter_messages(arm_log))[:40]:
        engine.push_raw({"/joint_states": "joints", "/imu": "imu"}[message.topic], message.data, message.log_time_ns)
    prediction = engine.predict()
    assert prediction.names == ("joints.position[shoulder]", "joints.position[elbow]", "imu.angular_velocity.x")
    assert prediction.values.shape == (2, 3) and prediction.std is None
    assert prediction.horizons_s.tolist() == [0.1, 0.25]
    assert dict(engine.targets) == {"joints": (0, 1), "imu": (2,)}
    assert engine.settled and engine.tokens == 24


def test_a_target_not_seen_yet_is_nan_and_the_others_are_not(engine: Engine):
    engine.push("imu", START_NS, [0.1, 0.2, 0.3])
    values = engine.predict().values
    assert np.isnan(values[:, :2]).all() and np.isfinite(values[:, 2]).all()


def test_wrong_input_is_refused_by_name_and_changes_nothing(engine: Engine):
    engine.push("joints", START_NS, [0.1, 0.2])
    before = engine.predict().values
    with pytest.raises(ServingError, match="stream 'lidar' is unknown; the bundle's are joints, imu"):
        engine.push("lidar", START_NS, [1.0])
    with pytest.raises(ServingError, match=r"values of shape \(3,\), expected \(2,\): position"):
        engine.push("joints", START_NS, [1.0, 2.0, 3.0])
    with pytest.raises(ServingError, match=r"time_ns is 1\.5, must be an integer"):
        engine.push("joints", 1.5, [1.0, 2.0])
    for garbage in (b"", b"\x00", b"\xff" * 64, bytes(3000)):
        with pytest.raises(LogError):
            engine.push_raw("joints", garbage, arrival_ns=START_NS)
    assert engine.push("joints", START_NS + 1, [np.nan, np.inf]) is Verdict.EMPTY
    np.testing.assert_array_equal(engine.predict().values, before)
    stats = engine.stats.streams["joints"]
    assert (stats.undecodable, stats.empty, stats.admitted) == (4, 1, 1)


def test_a_value_that_is_not_finite_is_masked(engine: Engine):
    engine.push("joints", START_NS, [0.5, -0.5])
    assert engine.push("joints", START_NS + 10**7, [np.nan, -0.4]) is Verdict.ADMITTED
    assert np.isfinite(engine.predict().values[:, :2]).all()
    assert engine.stats.streams["joints"].missing_values == 1


def test_a_clock_that_steps_back_resets(engine: Engine):
    for i in range(10):
        engine.push("joints", START_NS + i * 10**7, [0.1, 0.2])
    assert engine.push("joints", START_NS - 3600 * 10**9, [0.1, 0.2]) is Verdict.CLOCK_JUMP
    assert engine.tokens == 1 and engine.stats.resets == {"clock_jump": 1}
    engine.reset("asked")
    assert engine.tokens == 0 and engine.predict() is None and engine.stats.resets["asked"] == 1


def test_predicting_for_another_time_than_trained_is_refused(engine: Engine):
    engine.push("joints", START_NS, [0.1, 0.2])
    assert engine.predict(at_ns=START_NS) is not None
    with pytest.raises(ServingError, match=r"at_ns is 0\.05 s after the newest message; .* max_input_age_s is 0"):
        engine.predict(at_ns=START_NS + 50_000_000)


def test_an_unknown_device_is_refused(trained: Path):
    with pytest.raises(BundleError, match="device 'abacus' cannot be used"):
        Engine.load(trained / "bundle", device="abacus")


def test_replay_writes_predictions_beside_the_original_topics(engine: Engine, arm_log: Path, tmp_path: Path):
    out = tmp_path / "out.mcap"
    summary = replay_to_log(engine, arm_log, out, last_s=5.0)
    topics = [m.topic for m in iter_messages(out)]
    assert topics.count("/predictor/prediction/joints") == summary.predictions > 200
    originals = {(m.topic, m.log_time_ns): m.data for m in iter_messages(arm_log)}
    kept = [m for m in iter_messages(out) if not m.topic.startswith("/predictor")]
    assert len(kept) >= summary.predictions and all(originals[m.topic, m.log_time_ns] == m.data for m in kept)

    # An independent reader agrees with what the engine said.
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    again = Engine.load(engine.bundle.save(tmp_path / "bundle"), device="cpu")
    said = [s.prediction for s in replay(again, arm_log, last_s=5.0) if s.prediction is not None]
    store = get_typestore(Stores.ROS2_JAZZY)
    with AnyReader([out], default_typestore=store) as reader:
        connections = [c for c in reader.connections if c.topic == "/predictor/prediction/joints"]
        read = [reader.deserialize(data, c.msgtype) for c, _, data in reader.messages(connections)]
    assert len(read) == len(said)
    for message, prediction in zip(read[::50], said[::50], strict=True):
        stamp = message.header.stamp
        assert stamp.sec * 10**9 + stamp.nanosec == prediction.time_ns
        assert message.joint_names == ["position[shoulder]", "position[elbow]"]
        assert [p.time_from_start.nanosec for p in message.points] == [100_000_000, 250_000_000]
        np.testing.assert_array_equal([p.positions for p in message.points], prediction.values[:, :2])


def test_a_log_without_the_topics_is_refused(engine: Engine, tmp_path: Path):
    path = tmp_path / "other.mcap"
    write_log(path, [m._replace(topic=f"/other{m.topic}") for m in arm_messages(seconds=1)])
    with pytest.raises(ServingError, match=r"none of the bundle's topics is there: /joint_states, /imu"):
        list(replay(engine, path))


def test_values_of_another_unit_are_counted_and_kept(engine: Engine):
    stats = engine.stats.streams["joints"]
    for number, elbow in enumerate((0.1, np.nan, 57.3, 1e12)):  # degrees among radians; beyond all measure
        engine.push("joints", START_NS + 25_000_000 * number, [0.2, elbow])
    assert (stats.admitted, stats.far_out, stats.missing_values) == (4, 2, 1)
    engine.push("joints", START_NS + 25_000_000 * 4, [0.2, 0.1])
    assert stats.far_out == 2
