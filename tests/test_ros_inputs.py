"""What comes in, over real DDS: publishers of every kind, messages of every kind. One node for most of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import SEQUENCE

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from robopos_ros import lockstep
from robopos_ros.client import Client
from robopos_ros.frames import Frames
from robopos_ros.inputs import BEST_EFFORT, RELIABLE, Arrivals, Offer, pick_reliability
from robopos_ros.process import NodeProcess

from robopos.logs import schema_text
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize
from robopos.sequences import SequenceSettings, StreamSettings
from robopos.serving import Engine

pytestmark = pytest.mark.ros

JOINTS, IMU = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"
INPUTS = {"joint_states": JOINTS, "imu": IMU}
TYPES = {kind: parse_schema(kind, schema_text(kind)) for kind in (JOINTS, IMU)}
START_NS = 1_700_000_100_000_000_000


def joints(time_ns: int, shoulder: float = 0.1, elbow: float = 0.2, **changed: Any) -> bytes:
    header = {"stamp": time_ns, "frame_id": changed.pop("frame_id", "base")}
    content = {"header": header, "name": ["shoulder", "elbow"], "position": [shoulder, elbow]} | changed
    return serialize(TYPES[JOINTS], content)


def imu(time_ns: int, rate: float = 0.3) -> bytes:
    header = {"stamp": time_ns, "frame_id": "base"}
    return serialize(TYPES[IMU], {"header": header, "angular_velocity": {"x": rate, "y": 0.0, "z": 0.0}})


class Robot(NamedTuple):
    """The node of this module and its other side; `times` never repeats."""

    node: NodeProcess
    client: Client
    bundle: Path
    box: Path
    times: Iterator[int]

    def fresh(self) -> Client:
        """Forget the messages of the test before."""
        assert self.client.reset()[0]
        self.client.node_values("queued", lambda value: value == "0")
        self.client.predictions.clear()
        return self.client

    def answered(self, data: bytes, topic: str = "joint_states") -> Any:
        """The prediction of the joints that answers a message."""
        self.client.predictions.clear()
        self.client.publish(topic, data)
        heard = self.client.spin_until(lambda: any(h.stream == "joints" for h in self.client.predictions), 20)
        assert heard, self.node.output()
        return next(h.message for h in self.client.predictions if h.stream == "joints")

    def told(self, topic: str, good: Callable[[DiagnosticStatus], bool]) -> DiagnosticStatus:
        """The first report of an input that is good."""
        return self.client.report(f"/predictor: {topic}", good)


def times() -> Iterator[int]:
    now_ns = START_NS
    while True:
        now_ns += 25_000_000
        yield now_ns


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, arm_log) -> Path:
    streams = {name: StreamSettings(**stream) for name, stream in SEQUENCE["streams"].items()}
    sequence = SequenceSettings(**SEQUENCE | {"streams": streams, "max_lateness_s": 0.5})
    return ros_support.make_bundle(tmp_path_factory.mktemp("bundle") / "arm", arm_log, sequence=sequence)


@pytest.fixture(scope="module")
def robot(bundle, tmp_path_factory) -> Iterator[Robot]:
    box = tmp_path_factory.mktemp("box")
    with ros_support.running(bundle, INPUTS, ["joints", "imu"], black_box=box) as (node, client):
        robot = Robot(node, client, bundle, box, times())
        robot.answered(joints(next(robot.times)))
        robot.answered(imu(next(robot.times)), "imu")
        yield robot


def values(status: DiagnosticStatus) -> dict[str, str]:
    return {value.key: value.value for value in status.values}


def level(status: DiagnosticStatus) -> int:
    return int.from_bytes(status.level, "little")


def test_joints_are_known_by_their_names_in_each_message(robot):
    robot.fresh()
    at_ns = [next(robot.times) for _ in range(3)]
    reference = Engine.load(robot.bundle, device="cpu")
    for k, time_ns in enumerate(at_ns):
        reference.push("joints", time_ns, [0.1 * k, -0.2 * k])
    robot.answered(joints(at_ns[0], 0.0, 0.0))
    # Another order, and a joint more.
    robot.answered(joints(at_ns[1], name=["elbow", "gripper", "shoulder"], position=[-0.2, 9.0, 0.1]))
    message = robot.answered(joints(at_ns[2], 0.2, -0.4))
    expected = reference.predict().values[:, reference.targets["joints"]]
    np.testing.assert_allclose([p.positions for p in message.points], expected, atol=1e-5)


def test_wrong_joint_names_and_nan_are_counted_and_named(robot):
    client = robot.fresh()
    client.publish("joint_states", joints(next(robot.times), name=["a", "b"]))
    status = robot.told("joint_states", lambda s: "held none of" in s.message)
    assert "1 messages held none of position[shoulder], position[elbow]" in status.message
    assert level(status) == 1
    client.publish("joint_states", joints(next(robot.times), math.nan, math.inf))
    robot.told("joint_states", lambda s: "held none of" in s.message)
    robot.answered(joints(next(robot.times)))
    # Half of it is there: it is taken.
    message = robot.answered(joints(next(robot.times), math.nan, 0.3))
    assert np.isfinite([p.positions for p in message.points]).all()
    assert "1 values missing or not finite" in robot.told("joint_states", lambda s: "missing" in s.message).message
    # A number that overflows the network: nothing that is not finite leaves the node, which recovers.
    client.predictions.clear()
    client.publish("joint_states", joints(next(robot.times), 1e300, 0.3))
    client.node_values("not_finite", lambda value: int(value) > 0)
    robot.fresh()
    robot.answered(joints(next(robot.times)))


def test_malformed_bytes_are_refused(robot):
    client = robot.fresh()
    before = int(values(robot.told("joint_states", lambda s: True))["refused"])
    good = joints(next(robot.times))
    # Not an empty payload: Fast DDS itself then hands over nothing more of that publisher.
    garbage = [b"\x00", b"\x00\x01\x00\x00", b"\xff" * 40, good[:-9]]
    for data in garbage:
        client.publish("joint_states", data)
    status = robot.told("joint_states", lambda s: int(values(s)["refused"]) == before + len(garbage))
    assert "sensor_msgs/msg/JointState" in values(status)["last_refusal"]
    assert "refused 4 bytes on /joint_states" in robot.node.output()
    client.publish("joint_states", garbage[0])
    status = robot.told("joint_states", lambda s: "1 messages refused, the last one: " in s.message)
    assert level(status) == 2
    assert values(robot.told("imu", lambda s: True))["refused"] == "0"
    robot.answered(good)


def test_late_future_and_zero_stamps(robot):
    client = robot.fresh()
    robot.answered(joints(next(robot.times)))
    newest_ns = next(robot.times)
    robot.answered(joints(newest_ns))
    client.publish("joint_states", joints(newest_ns - 700_000_000))
    robot.told("joint_states", lambda s: "1 messages came too late and were dropped" in s.message)
    # A little late is a token with its own, earlier time; horizons count from the newest.
    message = robot.answered(joints(newest_ns - 100_000_000))
    assert lockstep.nanoseconds(message.header.stamp) == newest_ns
    # These stamps are of long ago by the node's clock; one of tomorrow is another story, and said.
    assert "behind this node's clock" in robot.told("joint_states", lambda s: "behind" in s.message).message
    tomorrow_ns = client.now_ns() + 86_400 * 10**9
    message = robot.answered(joints(tomorrow_ns))
    assert lockstep.nanoseconds(message.header.stamp) == tomorrow_ns
    assert "ahead of this node's clock" in robot.told("joint_states", lambda s: "ahead" in s.message).message
    client.node_values("engine.resets.gap", lambda value: int(value) >= 1)
    # Without a stamp the arrival counts, which is now: back by a day, and so the start of another context.
    before_ns = client.now_ns()
    message = robot.answered(joints(0))
    assert before_ns <= lockstep.nanoseconds(message.header.stamp) <= client.now_ns()
    assert "1 messages without a stamp" in robot.told("joint_states", lambda s: "without a stamp" in s.message).message
    client.node_values("engine.resets.clock_jump", lambda value: int(value) >= 1)


def test_another_frame_is_said_and_taken(robot):
    robot.fresh()
    robot.answered(joints(next(robot.times), frame_id="tool0"))
    status = robot.told("joint_states", lambda s: "'tool0'" in s.message)
    assert "1 messages in the frame 'tool0', which the model was not trained on" in status.message
    assert level(status) == 1


def test_a_second_publisher_and_another_type_are_reported(robot):
    client = robot.fresh()
    second = client.publisher("imu", IMU, QoSProfile(depth=10))
    with Client({"imu": "std_msgs/msg/Float64"}, [], client.domain_id):
        status = robot.told("imu", lambda s: "2 publishers" in s.message and "published as" in s.message)
    assert status.message.startswith("published as std_msgs/msg/Float64, which the bundle does not read")
    assert level(status) == 2
    assert values(status)["publishers"] == "/robopos_client, /robopos_client"
    client.drop(second)
    robot.told("imu", lambda s: "publish" not in s.message)


def test_best_effort_is_heard_and_reliable_again_after_it(robot):
    client = robot.fresh()
    assert values(robot.told("imu", lambda s: True))["reliability"] == "reliable"
    unreliable = QoSProfile(depth=10, reliability=QoSReliabilityPolicy.BEST_EFFORT)
    second = client.publisher("imu", IMU, unreliable)
    robot.told("imu", lambda s: values(s)["reliability"] == "best effort")
    assert client.spin_until(lambda: second.get_subscription_count() > 0, 20)
    robot.answered(joints(next(robot.times)))
    client.predictions.clear()
    # Best effort may lose one: there are more.
    for _ in range(40):
        second.publish(imu(next(robot.times)))
        if client.spin_until(lambda: bool(client.predictions), 0.5):
            break
    assert client.predictions
    client.drop(second)
    robot.told("imu", lambda s: values(s)["reliability"] == "reliable")
    client.wait_connected()
    robot.answered(imu(next(robot.times)), "imu")
    assert "subscribed anew to /imu, best effort, as its publishers offer" in robot.node.output()


def test_a_flood_and_a_burst_after_silence(robot):
    client = robot.fresh()
    robot.answered(joints(next(robot.times)))
    robot.answered(imu(next(robot.times)), "imu")
    keys = ("admitted", "published", "skipped", "too_early")
    client.spin_for(0.3)  # a report that counts both
    status = client.report("/predictor", lambda s: True)
    before = {key: int(values(status)[key]) for key in keys}
    sent = 5000
    for count in range(sent):  # a second's worth at 5 kHz, as fast as they go
        client.publish("joint_states", joints(next(robot.times), 0.001 * (count % 100)))
    client.node_values("queued", lambda value: value == "0", 120)
    robot.answered(joints(next(robot.times)))
    status = client.report("/predictor", lambda s: values(s)["queued"] == "0")
    told = {key: int(values(status)[key]) - before[key] for key in before}
    # What a queue of 100 could not hold is lost in the middleware; what came in is accounted for, to the last one.
    assert 100 <= told["admitted"] <= sent + 1
    assert told["admitted"] == told["published"] + told["skipped"] + told["too_early"]
    assert client.state() == "active"
    # Silence for longer than the bundle's max_gap_s, by the stamps, then a burst.
    for _ in range(200):
        next(robot.times)
    for _ in range(50):
        client.publish("joint_states", joints(next(robot.times)))
    robot.answered(joints(next(robot.times)))
    client.node_values("engine.resets.gap", lambda value: int(value) >= 1)


def test_settings_that_change_while_it_runs(robot):
    client = robot.fresh()
    assert (
        client.set_parameter("min_context", 17) == "the parameter 'min_context' is 17, but the model sees 16 messages"
    )
    assert client.set_parameter("min_context", 3) == ""
    client.publish("joint_states", joints(next(robot.times)))
    client.publish("joint_states", joints(next(robot.times)))
    client.node_values("engine.streams.joints.received", lambda value: True)
    client.spin_for(0.5)
    assert client.predictions == []
    robot.answered(joints(next(robot.times)))
    assert client.set_parameter("min_context", 1) == ""
    assert client.set_parameter("trigger", "rate") == ""
    assert client.set_parameter("rate_hz", 4.0) == ""
    client.predictions.clear()
    sent = 0
    while len(client.predictions) < 4 and sent < 2000:
        client.publish("joint_states", joints(next(robot.times)))
        client.spin_for(0.02)
        sent += 1
    assert sent > 20  # 4 predictions of one stream or more in about a second, of some fifty messages
    assert "trigger" in client.set_parameter("trigger", "never")
    assert client.set_parameter("rate_hz", 0.001).startswith("Parameter rate_hz out of range")
    assert client.set_parameter("trigger", "message") == ""
    assert client.set_parameter("publish_expired", False) == ""
    client.publish("joint_states", joints(next(robot.times)))
    client.node_values("expired", lambda value: int(value) >= 1)
    assert "not publishing: the last horizon passed" in robot.node.output()
    assert client.set_parameter("publish_expired", True) == ""


def test_replay_of_all_this_is_what_was_published(robot, tmp_path):
    robot.fresh()  # so that the last recording is finished
    robot.client.node_values("queued", lambda value: value == "0")
    robot.client.spin_for(0.5)
    compared = [
        ros_support.assert_replay_is_what_was_published(robot.bundle, recording, tmp_path / "unused")
        for recording in ros_support.recordings(robot.box)
    ]
    assert len(compared) >= 8
    assert sum(compared) >= 25
    assert "Traceback" not in robot.node.output()


def test_reliability_is_what_all_publishers_offer():
    good, poor = Offer("/a", IMU, True), Offer("/b", IMU, False)
    assert pick_reliability("auto", [good, good], BEST_EFFORT) == RELIABLE
    assert pick_reliability("auto", [good, poor], RELIABLE) == BEST_EFFORT
    assert pick_reliability("auto", [], BEST_EFFORT) == BEST_EFFORT
    assert pick_reliability("reliable", [poor], BEST_EFFORT) == RELIABLE
    assert pick_reliability("best_effort", [good], RELIABLE) == BEST_EFFORT


def test_arrivals_do_not_go_back_unless_the_clock_was_set():
    arrivals = Arrivals(5.0)
    seconds = 10**9
    assert arrivals.take(100 * seconds) == (100 * seconds, False)
    assert arrivals.take(96 * seconds) == (100 * seconds, False)
    assert arrivals.take(101 * seconds) == (101 * seconds, False)
    assert arrivals.take(95 * seconds) == (95 * seconds, True)
    arrivals.forget()
    assert arrivals.take(2 * seconds) == (2 * seconds, False)


def test_frames_are_read_from_either_byte_order():
    frames = Frames(["base"])
    assert frames.other(joints(1)) is None
    assert frames.other(joints(1, frame_id="tool")) == "tool"
    assert frames.other(joints(1, frame_id="bas")) == "bas"
    big = b"\x00\x00\x00\x00" + bytes(8) + (5).to_bytes(4, "big")
    assert frames.other(big + b"base\0") is None
    assert frames.other(big + b"tool\0") == "tool"
    assert frames.other(b"\x00\x01\x00\x00" + bytes(8) + b"\xff\xff\xff\xff") is None
    assert frames.other(b"\x00") is None
