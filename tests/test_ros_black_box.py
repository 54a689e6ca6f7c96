"""The black box: what the engine took and what was published, and `robopos replay` of it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from robopos_ros import lockstep
from robopos_ros.black_box import BlackBox, Message, NewContext
from robopos_ros.client import Client
from robopos_ros.process import NodeProcess, free_domain

from robopos.errors import ServingError
from robopos.logs import iter_messages
from robopos.serving import Engine

pytestmark = pytest.mark.ros

INPUTS = {"odometry": "nav_msgs/msg/Odometry", "range": "sensor_msgs/msg/Range"}


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return ros_support.make_log(tmp_path_factory.mktemp("log") / "robot.mcap", 400)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, log) -> Path:
    return ros_support.make_bundle(tmp_path_factory.mktemp("bundle") / "robot", log)


@pytest.fixture
def box(tmp_path, bundle):
    """A black box in a folder of its own, and what it complained of."""
    said: list[str] = []
    inputs = Engine.load(bundle, device="cpu").inputs
    made = BlackBox(tmp_path / "deep" / "box", inputs, {"device": "cpu"}, said.append)
    yield made, said
    made.close()


def test_inputs_stand_in_the_order_in_which_they_were_taken(box, log):
    made, said = box
    messages = list(iter_messages(log))[:30]
    stream_of = {"odometry": "base", "range": "beacon"}
    for count, message in enumerate(messages):
        made.put(Message(stream_of[message.topic], message.data, 100 + count, 50 + count))
    made.put(NewContext("asked by service"))
    made.put(Message("base", b"\x00no message", 7, 7))  # by a clock that was set back
    made.close()
    first, second = ros_support.recordings(made.path.parent)
    again = list(iter_messages(first))
    assert [(m.topic.lstrip("/"), m.data, m.schema) for m in again] == [(m.topic, m.data, m.schema) for m in messages]
    assert [(m.log_time_ns, m.publish_time_ns) for m in again] == [(100 + i, 50 + i) for i in range(30)]
    assert said == []
    assert [m.data for m in iter_messages(second)] == [b"\x00no message"]
    assert b"asked by service" in second.read_bytes()
    assert said == []
    made.put(NewContext("after the end"))  # harmless: a late callback


def test_each_message_is_in_the_file_at_once(box, log):
    made, _ = box
    message = next(iter_messages(log))
    for count in range(3):
        made.put(Message("base", message.data, count, count))
        assert ros_support.wait_for(lambda n=count: made.messages == n + 1)
        # Without the end of the file, as after SIGKILL.
        assert len(list(iter_messages(made.path))) == count + 1


def test_a_full_disk_ends_the_recording_and_is_said(box, log, monkeypatch):
    made, said = box
    data = next(iter_messages(log)).data
    made.put(Message("base", data, 1, 1))
    assert ros_support.wait_for(lambda: made.messages == 1)
    made._file._stream.close()  # as good as a disk that is gone
    made.put(Message("base", data, 2, 2))
    assert ros_support.wait_for(lambda: said)
    made.put(Message("base", data, 3, 3))
    assert said == [f"the black box ends, the node goes on: {made.path}: ValueError: write to closed file"]


def test_a_folder_that_is_gone_is_named_and_not_the_file_before(box, log):
    made, said = box
    data = next(iter_messages(log)).data
    made.put(Message("base", data, 1, 1))
    assert ros_support.wait_for(lambda: made.messages == 1)
    shutil.rmtree(made.path.parent)
    made.put(NewContext("asked by service"))
    made.put(Message("base", data, 2, 2))
    assert ros_support.wait_for(lambda: said)
    assert said[0].startswith(f"the black box ends, the node goes on: {made.path.parent}: FileNotFoundError: ")


def test_a_folder_that_cannot_be_is_named(tmp_path, bundle):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ServingError, match=r"the parameter 'black_box' is .*file/box: cannot be written to"):
        BlackBox(tmp_path / "file" / "box", Engine.load(bundle, device="cpu").inputs, {}, print)


def test_replay_of_the_recording_is_what_was_published(bundle, log, tmp_path):
    """In lock-step, then in a burst; asked to forget in between; killed in the middle of it all."""
    messages = list(iter_messages(log))
    folder = tmp_path / "box"
    domain_id = free_domain()
    parameters = {"bundle": bundle, "device": "cpu", "publish_expired": True, "black_box": folder}
    with NodeProcess(parameters, domain_id) as node, Client(INPUTS, ["base"], domain_id) as client:
        client.wait_connected()
        history = Engine.load(bundle, device="cpu").bundle.settings.history
        for message in messages[:history]:
            client.publish(lockstep.topic_of(message), message.data)
            client.spin_for(0.002)
        for count, message in enumerate(messages[history : history + 10], 1):
            client.publish(lockstep.topic_of(message), message.data)
            assert client.hear(count, 20), node.output()
        for message in messages[history + 10 : history + 100]:
            client.publish(lockstep.topic_of(message), message.data)
            client.spin_for(0.001)
        client.node_values("queued", lambda value: value == "0")
        client.spin_for(0.5)
        assert client.reset() == (True, "the context is forgotten before the next message")
        client.node_values("engine.resets.asked by service", lambda value: value == "1")
        heard = len(client.predictions)
        for message in messages[: history + 60]:
            client.publish(lockstep.topic_of(message), message.data)
            client.spin_for(0.001)
        assert client.hear(heard + 5, 20), node.output()
        node.stop(signal.SIGKILL)
    recordings = ros_support.recordings(folder)
    # `base` and `beacon` are predicted; how much of the end was on its way when SIGKILL came, nobody knows.
    for recording, least in zip(recordings, (20, 8), strict=True):
        out = tmp_path / f"replay-{recording.name}"
        assert ros_support.assert_replay_is_what_was_published(bundle, recording, out, settle=True) >= least
