"""The parts of the node that need no middleware, with a real engine."""

from __future__ import annotations

import math
import queue
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from rclpy.logging import get_logger
from rclpy.serialization import deserialize_message
from robopos_ros import inference as inference_module
from robopos_ros.black_box import Message
from robopos_ros.health import InputHealth, Rates, Samples, percentiles_ms
from robopos_ros.inference import Forget, Inference, Received
from robopos_ros.outputs import Outputs, Published
from robopos_ros.parameters import PARAMETERS, Settings
from robopos_ros.types import message_class
from trajectory_msgs.msg import JointTrajectory

from robopos.errors import ServingError
from robopos.logs import iter_messages
from robopos.serving import Engine, Prediction
from robopos.serving.trajectory import Trajectories, TrajectoryWriter

pytestmark = pytest.mark.ros

STREAM_OF = {"odometry": "base", "range": "beacon"}


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return ros_support.make_log(tmp_path_factory.mktemp("log") / "robot.mcap", 400)


@pytest.fixture
def engine(tmp_path, log) -> Engine:
    return Engine.load(ros_support.make_bundle(tmp_path / "bundle", log), device="cpu")


def settings(**changed) -> Settings:
    recorded = {"min_context": 1, "publish_expired": True}
    return Settings(**{name: entry.default for name, entry in PARAMETERS.items()} | recorded | changed)


class Collector:
    """Takes predictions where the node would publish them."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.predictions: list[Prediction] = []
        self.pause_s = pause_s

    def __call__(self, prediction: Prediction, limits: str) -> Published:
        time.sleep(self.pause_s)
        self.predictions.append(prediction)
        return Published({"base": b""})


def start(engine: Engine, publish, **changed) -> tuple[Inference, dict[str, InputHealth]]:
    health = {stream.name: InputHealth(stream.topic) for stream in engine.inputs}
    return Inference(engine, settings(**changed), health, publish, get_logger("test"), time.time_ns), health


def put(inference: Inference, messages, health) -> None:
    for message in messages:
        name = STREAM_OF[message.topic]
        health[name].receive(time.monotonic_ns())
        inference.put(Received(name, message.data, message.log_time_ns, None, time.monotonic_ns()))


def wait_for(condition) -> None:
    end_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in 20 s"
        time.sleep(0.005)


def test_a_backlog_gives_one_prediction_and_loses_no_token(engine, log):
    messages = list(iter_messages(log))[:50]
    collector = Collector()
    inference, health = start(engine, collector)
    put(inference, messages, health)  # before the thread runs: all of them wait
    inference.start()
    wait_for(lambda: inference.counts.published == 1)
    inference.stop()
    assert (inference.counts.admitted, inference.counts.skipped) == (50, 49)
    reference = Engine(engine.bundle, device="cpu")
    for message in messages:
        reference.push_raw(STREAM_OF[message.topic], message.data, message.log_time_ns)
    (prediction,) = collector.predictions
    assert prediction.time_ns == reference.predict().time_ns
    np.testing.assert_allclose(prediction.values, reference.predict().values, rtol=0, atol=1e-6)


def test_handing_over_never_waits_for_a_prediction(engine, log):
    messages = list(iter_messages(log))[:100]
    inference, health = start(engine, Collector(pause_s=0.2))
    inference.start()
    put(inference, messages[:1], health)
    wait_for(lambda: engine.tokens == 1)
    started_s = time.monotonic()
    put(inference, messages[1:], health)
    assert time.monotonic() - started_s < 0.1
    wait_for(lambda: inference.counts.admitted == 100)
    inference.stop()
    counts = inference.counts
    assert counts.published + counts.skipped + counts.too_early == 100
    assert counts.skipped >= 90


class Interrupted(queue.SimpleQueue):
    """Lets another thread run after the first item that is taken out."""

    def __init__(self, other: threading.Thread) -> None:
        super().__init__()
        self.other = other

    def get_nowait(self):
        item = super().get_nowait()
        if self.other.ident is None:
            self.other.start()
            self.other.join(0.3)
        return item


def test_what_is_thrown_away_is_not_parted_with_the_inference_thread(engine, log, monkeypatch):
    monkeypatch.setattr(inference_module, "MOST_WAITING", 4)
    inference, health = start(engine, Collector())
    taken = []
    thread = threading.Thread(target=lambda: taken.extend(inference._taken()))  # as the inference thread does
    inference._queue = Interrupted(thread)
    messages = list(iter_messages(log))[:4]
    put(inference, messages[:3], health)
    inference.forget("asked by service")
    put(inference, messages[3:], health)
    thread.join()
    first, *others = [*taken, *inference._taken()]
    # A message of the four without the word to forget would stand in a context with a hole.
    assert first == Forget("backlog")
    assert [other.data for other in others] == [messages[3].data]
    assert inference.counts.overrun == 3


class Records:
    """Takes what a black box would record."""

    def __init__(self) -> None:
        self.items: list[object] = []

    def put(self, item: object) -> None:
        self.items.append(item)


def test_stopping_waits_for_one_message_and_not_for_all(engine, log, monkeypatch):
    messages = list(iter_messages(log))
    inference, health = start(engine, Collector())
    inference.black_box = Records()
    taken, push_raw = [], engine.push_raw

    def slowly(name, data, **stamps):
        time.sleep(0.02)
        taken.append(data)
        return push_raw(name, data, **stamps)

    monkeypatch.setattr(engine, "push_raw", slowly)
    put(inference, messages, health)
    inference.start()
    wait_for(lambda: inference.counts.admitted >= 3)
    started_s = time.monotonic()
    inference.stop()
    assert time.monotonic() - started_s < 2  # of 8
    assert len(taken) < len(messages)
    assert [item.data for item in inference.black_box.items if isinstance(item, Message)] == taken


class Publishers:
    """Where a node would make them: keeps what is published, by topic. One topic may be no name."""

    def __init__(self, wrong: str = "") -> None:
        self.sent: dict[str, list] = {}
        self.wrong = wrong

    def create_lifecycle_publisher(self, kind, topic, qos):
        if topic == self.wrong:
            raise RuntimeError("no name of a topic")
        self.sent[topic] = []
        return SimpleNamespace(publish=self.sent[topic].append, topic=topic)

    def destroy_lifecycle_publisher(self, publisher):
        del self.sent[publisher.topic]


def stamped(message, sec: int, nanosec: int):
    """The message with another stamp."""
    data = bytearray(message.data)
    struct.pack_into("<iI", data, 4, sec, nanosec)
    return message._replace(data=bytes(data))


def test_a_time_that_no_stamp_holds_is_counted_and_published_by_nobody(engine, log):
    most = 2**31 - 1
    messages = list(iter_messages(log))[:12]
    messages[4] = stamped(messages[4], most, 2**32 - 1)  # beyond it
    messages[8] = stamped(messages[8], most, 800_000_000)  # with the horizon beyond it
    node = Publishers()
    outputs = Outputs(node, engine, settings(publish_horizon_s=0.25))
    predictions = []

    def publish(prediction: Prediction, limits: str) -> Published:
        predictions.append(prediction)
        return outputs.publish(prediction, limits)

    inference, health = start(engine, publish)
    inference.start()
    for count, message in enumerate(messages, 1):
        put(inference, [message], health)
        wait_for(lambda n=count: len(predictions) == n)
    inference.stop()
    assert inference.failure == ""
    assert (inference.counts.stamp_overflow, inference.counts.published) == (2, 11)
    assert len(node.sent["~/prediction/base"]) == 11
    assert len(node.sent["~/prediction/base/at_horizon"]) == 10
    trajectories = Trajectories(engine.bundle.layout)
    replayed = [made.message for p in predictions for made in trajectories.of(p, 0) if made.topic.endswith("base")]
    assert replayed == node.sent["~/prediction/base"]


def test_publishers_that_cannot_all_be_made_are_taken_down(engine):
    node = Publishers("~/prediction/beacon/at_horizon")
    with pytest.raises(RuntimeError, match="no name"):
        Outputs(node, engine, settings(publish_horizon_s=0.25))
    assert node.sent == {}


def test_an_unforeseen_failure_ends_the_thread_and_is_said(engine, log):
    def fail(prediction: Prediction, limits: str) -> Published:
        raise ZeroDivisionError("a bug")

    inference, health = start(engine, fail)
    inference.start()
    put(inference, list(iter_messages(log))[:1], health)
    wait_for(lambda: inference.failure)
    assert inference.failure == "ZeroDivisionError: a bug"
    inference.stop()
    assert "inference" not in [thread.name for thread in threading.enumerate()]


def test_a_trajectory_holds_names_times_and_values_as_predicted(engine, log):
    odometry = next(m for m in iter_messages(log) if m.topic == "odometry")
    engine.push_raw("base", odometry.data, odometry.log_time_ns)
    prediction = engine.predict()
    values = prediction.values[:, engine.targets["base"]]
    data = TrajectoryWriter.of(engine.bundle.layout, "base").write(prediction.time_ns, values)
    message = deserialize_message(data, JointTrajectory)
    assert list(message.joint_names) == ["twist.twist.linear.x", "twist.twist.linear.y"]
    assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == prediction.time_ns
    assert [(p.time_from_start.sec, p.time_from_start.nanosec) for p in message.points] == [
        (0, 100_000_000),
        (0, 250_000_000),
    ]
    assert np.array_equal([p.positions for p in message.points], values)
    # The beacon was never heard: it has no value to predict from.
    assert np.isnan(prediction.values[:, engine.targets["beacon"]]).all()


def test_message_classes_are_found_or_named():
    assert message_class("sensor_msgs/msg/Imu").__name__ == "Imu"
    with pytest.raises(ServingError, match="the ROS 2 package no_such_msgs is not installed"):
        message_class("no_such_msgs/msg/Imu")
    with pytest.raises(ServingError, match="the ROS 2 package sensor_msgs has no message Imux"):
        message_class("sensor_msgs/msg/Imux")


def test_percentiles_by_nearest_rank():
    assert percentiles_ms([i / 1000 for i in range(101)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles_ms([0.004]) == {"p50": 4.0, "p95": 4.0, "p99": 4.0}


def test_latencies_forget_what_is_old():
    latencies = Samples(window_s=0.2)
    latencies.add(1.0)
    assert latencies.percentiles_ms()["p50"] == 1000.0
    time.sleep(0.25)
    assert latencies.percentiles_ms() == {}


def test_rates_and_ages_follow_what_was_received():
    rates = Rates()
    assert rates.update({"imu": 5}) == {}
    time.sleep(0.1)
    assert rates.update({"imu": 15})["imu"] == pytest.approx(100, rel=0.3)
    health = InputHealth("imu")
    assert health.age_s(0) == math.inf
    health.receive(1_000_000_000)
    assert health.age_s(3_500_000_000) == 2.5
