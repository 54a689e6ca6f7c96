"""The node as its own process over real DDS: what it publishes, refuses and survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from builtin_interfaces.msg import Time
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from robopos_ros import lockstep
from robopos_ros.client import Client
from robopos_ros.process import NodeProcess, free_domain, private_environment
from rosgraph_msgs.msg import Clock

from robopos.errors import ServingError
from robopos.logs import RawMessage, iter_messages
from robopos.model import Bundle
from robopos.serving import Engine
from robopos.serving.export import export_step

pytestmark = pytest.mark.ros

INPUTS = {"odometry": "nav_msgs/msg/Odometry", "range": "sensor_msgs/msg/Range"}
STREAMS = ["base", "beacon"]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return ros_support.make_log(tmp_path_factory.mktemp("log") / "robot.mcap", 400)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, log) -> Path:
    return ros_support.make_bundle(tmp_path_factory.mktemp("bundle") / "robot", log)


@pytest.fixture(scope="module")
def messages(log) -> list[RawMessage]:
    return list(iter_messages(log))


@contextmanager
def running(bundle: Path, **parameters: object) -> Iterator[tuple[NodeProcess, Client]]:
    """A node and its other side; the node's words are shown when something fails."""
    domain_id = free_domain()
    asked = {
        "bundle": bundle,
        "device": "cpu",
        "min_context": 1,
        "publish_expired": True,
        "diagnostics_period_s": 0.2,
    } | parameters
    with NodeProcess(asked, domain_id) as node, Client(INPUTS, STREAMS, domain_id) as client:
        try:
            yield node, client
        finally:
            print(node.output())


def answered(client: Client, messages: list[RawMessage]) -> int:
    """Publish, each message after the prediction of `base` that answers the one before; how many were answered."""
    client.predictions.clear()
    for count, message in enumerate(messages):
        client.publish(lockstep.topic_of(message), message.data)
        if not client.spin_until(lambda n=count: heard(client, "base") > n, 10):
            return count
    client.spin_for(0.3)  # the other stream's prediction may come after
    return len(messages)


def silent(client: Client, messages: list[RawMessage]) -> bool:
    """Publish one message after the other; whether nothing came back."""
    client.predictions.clear()
    for message in messages:
        client.publish(lockstep.topic_of(message), message.data)
        client.spin_for(0.05)
    client.spin_for(0.3)
    return client.predictions == []


def heard(client: Client, stream: str) -> int:
    return sum(prediction.stream == stream for prediction in client.predictions)


def diagnostics(client: Client) -> dict[str, tuple[int, str, dict[str, str]]]:
    """The newest report that was not sent before now, by name."""
    client.diagnostics = None
    assert client.spin_until(lambda: client.diagnostics is not None, 10), "no diagnostics"
    return {
        s.name: (int.from_bytes(s.level, "little"), s.message, {v.key: v.value for v in s.values})
        for s in client.diagnostics.status
    }


def test_lockstep_300_messages_number_by_number(bundle, log):
    result = lockstep.run(bundle, log, most=300)
    assert result.differences == []
    assert result.messages == 300
    assert result.predictions == 300
    assert result.max_difference <= 1e-5
    assert result.node_exit_code == 0
    assert set(result.latency_ms) == {"p50", "p95", "p99"}


def test_lockstep_sees_another_model(bundle, log, messages, tmp_path):
    other = ros_support.make_bundle(tmp_path / "other", log, positions="index-rotary")
    with running(bundle) as (_, client):
        client.wait_connected()
        result = lockstep.compare(Engine.load(other, device="cpu"), messages[:12], client, tolerance=1e-5)
    assert result.max_difference > 1e-3
    assert any("values differ by" in difference for difference in result.differences)
    assert not result.agrees


def test_lockstep_refuses_clocks_that_a_log_cannot_give(log, tmp_path):
    bundle = ros_support.make_bundle(tmp_path / "publish", log, clock="publish")
    with pytest.raises(ServingError, match="stream base takes its time from the publish clock"):
        lockstep.run(bundle, log, most=10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly_while_messages_come(bundle, messages, tmp_path, number):
    with running(bundle, black_box=tmp_path / "box") as (node, client):
        client.wait_connected()
        assert answered(client, messages[:10]) == 10
        for message in messages[10:60]:
            client.publish(lockstep.topic_of(message), message.data)
        started_s = time.monotonic()
        assert node.stop(number) == 0
        assert time.monotonic() - started_s < 15
        assert "Traceback" not in node.output()
    (recording,) = ros_support.recordings(tmp_path / "box")
    assert ros_support.assert_replay_is_what_was_published(bundle, recording, tmp_path / "replay.mcap") >= 10


def test_every_transition_by_service(bundle, messages):
    with running(bundle, autostart=False) as (node, client):
        assert client.state() == "unconfigured"
        assert diagnostics(client)["/predictor"][:2] == (1, "unconfigured")
        assert client.change("configure")
        assert client.state() == "inactive"
        assert silent(client, messages[:5])
        for _ in range(2):
            assert client.change("activate")
            assert client.state() == "active"
            client.wait_connected()
            assert answered(client, messages[:8]) == 8
            first = next(heard.message for heard in client.predictions if heard.stream == "base")
            assert client.change("deactivate")
            assert silent(client, messages[8:12])
        assert client.change("cleanup")
        assert client.state() == "unconfigured"
        assert client.change("configure")
        assert client.change("activate")
        client.wait_connected()
        # What was heard before deactivation is forgotten: the same first message gives the same first prediction.
        assert answered(client, messages[:1]) == 1
        again = client.predictions[0].message
        assert [p.positions for p in again.points] == [p.positions for p in first.points]
        assert client.change("deactivate")
        assert client.change("cleanup")
        assert client.change("shutdown")
        assert client.state() == "finalized"
        assert node.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("max_input_age_s:=soon", "'soon' is no number from 0 to 86400"),
        ("qos_depth:=0", "Parameter qos_depth out of range. Min: 1"),
        ("qos_depth", "Couldn't parse parameter override rule: '-p qos_depth'"),
    ],
)
def test_arguments_that_make_no_sense_end_it_in_one_line(argument, said):
    done = subprocess.run(
        [sys.executable, "-m", "robopos_ros", "--ros-args", "-p", argument],
        env=os.environ | private_environment(free_domain()),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("[ERROR]")]  # rcl's own
    assert line.startswith("robopos_ros: ")
    assert said in line


@pytest.mark.parametrize("broken", [False, True])
def test_a_bundle_that_cannot_be_loaded_fails_configure_only(bundle, tmp_path, broken):
    bad = tmp_path / "bad"
    if broken:
        bad.mkdir()
        (bad / "bundle.yaml").write_bytes((bundle / "bundle.yaml").read_bytes())
        (bad / "model.safetensors").write_bytes(b"not weights")
    with running(bad) as (node, client):
        assert client.state() == "unconfigured"
        level, said, _ = diagnostics(client)["/predictor"]
        assert level == 2
        assert said.startswith("configure failed: ")
        assert str(bad) in said
        assert f"[predictor]: {said}" in node.output()
        assert not client.change("configure")
        # It lives: given the right bundle, it works.
        assert client.set_parameter("bundle", str(bundle)) == ""
        assert client.change("configure")
        assert client.change("activate")
        assert client.state() == "active"
        assert node.stop(signal.SIGINT) == 0


def test_diagnostics_and_parameters_of_an_active_node(bundle, messages):
    with running(bundle) as (_, client):
        client.wait_connected()
        # The node's count of publishers may be a moment older than the connection.
        waiting = client.report("/predictor: range", lambda status: status.message == "no message yet")
        assert waiting.level == b"\x01"
        assert answered(client, messages[:40]) == 40
        report = diagnostics(client)
        level, said, values = report["/predictor"]
        assert (level, said) == (0, "active")
        assert values["mode"] == Engine.load(bundle, device="cpu").mode
        assert values["published"] == values["admitted"] == "40"
        assert values["engine.predictions"] == "40"
        assert values["engine.streams.beacon.admitted"] == "10"
        assert values["engine.resets.activate"] == "1"
        assert 0 < float(values["engine_ms.p50"]) <= float(values["receipt_to_publish_ms.p99"])
        level, said, values = report["/predictor: odometry"]
        assert (level, said, values["received"]) == (0, "receiving", "30")
        assert float(values["age_s"]) < 5
        rates_hz = []
        for message in messages[40:100]:
            client.publish(lockstep.topic_of(message), message.data)
            client.diagnostics = None
            client.spin_for(0.02)
            if client.diagnostics is not None:
                (mine,) = [s for s in client.diagnostics.status if s.name == "/predictor: odometry"]
                rates_hz += [float(pair.value) for pair in mine.values if pair.key == "rate_hz"]
        assert 5 < max(rates_hz) < 100
        reason = client.set_parameter("bundle", "elsewhere")
        assert reason == "bundle: read on configure only; clean up first (the node is active)"


def test_nothing_is_published_while_an_input_is_silent(bundle, messages):
    with running(bundle, max_input_age_s=0.6) as (_, client):
        client.wait_connected()
        odometry = [m for m in messages if lockstep.topic_of(m) == "odometry"]
        assert silent(client, odometry[:3])  # no range yet
        assert answered(client, messages[3:12]) == 9
        client.spin_for(0.7)
        assert silent(client, odometry[9:12])
        assert int(diagnostics(client)["/predictor"][2]["stale"]) == 6
        level, said, _ = diagnostics(client)["/predictor: range"]
        assert (level, said.partition(" for ")[0]) == (1, "silent")


def test_context_is_what_evaluation_asked_for_by_default(bundle, messages):
    history = Engine.load(bundle, device="cpu").bundle.settings.history
    with running(bundle, min_context=0) as (_, client):
        client.wait_connected()
        assert silent(client, messages[:history])
        assert answered(client, messages[history : history + 3]) == 3


def test_min_context_beyond_the_window_is_refused(bundle):
    with running(bundle, min_context=17) as (_, client):
        assert client.state() == "unconfigured"
        said = diagnostics(client)["/predictor"][1]
        assert "'min_context' is 17, but the model sees 16 messages" in said


def test_steps_of_robopos_export_serve(bundle, messages, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'robopos[export]'")
    files = [tmp_path / f"block{block}.onnx" for block in (1, 8)]
    for file, block in zip(files, (1, 8), strict=True):
        export_step(Bundle.load(bundle), "onnx", file, block=block)
    # Admission is the node's own: the steps fit all the same.
    with running(bundle, step=", ".join(map(str, files)), max_gap_s=3.0) as (_, client):
        client.wait_connected()
        result = lockstep.compare(Engine.load(bundle, device="cpu"), messages[:40], client, tolerance=1e-4)
        assert result.differences == []
        assert result.predictions == 40
        assert diagnostics(client)["/predictor"][2]["step"] == f"{files[0]}, {files[1]}"


def test_a_step_that_is_not_there_fails_configure_only(bundle, tmp_path):
    with running(bundle, step=str(tmp_path / "none.onnx")) as (_, client):
        assert client.state() == "unconfigured"
        assert diagnostics(client)["/predictor"][1].endswith("none.onnx: no exported step there")
        assert client.set_parameter("step", "eager") == ""
        assert client.change("configure")


def test_depth_and_durability_of_an_input_can_be_overridden(bundle, messages):
    """A publisher that keeps its last messages for whoever comes later, heard by a node that asks for two of them."""
    override = "qos_overrides./odometry.subscription"
    parameters = {"autostart": False, f"{override}.durability": "transient_local", f"{override}.depth": 2}
    with running(bundle, **parameters) as (_, client):
        keeping = QoSProfile(depth=5, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        publisher = client.publisher("odometry", INPUTS["odometry"], keeping)
        for message in [m for m in messages if lockstep.topic_of(m) == "odometry"][:4]:
            publisher.publish(message.data)
        assert client.change("configure")
        assert client.change("activate")
        client.report("/predictor: odometry", lambda status: "no message yet" not in status.message)
        client.spin_for(0.5)
        assert diagnostics(client)["/predictor: odometry"][2]["received"] == "2"


def test_publish_clock_takes_the_source_stamp(log, messages, tmp_path):
    bundle = ros_support.make_bundle(tmp_path / "publish", log, clock="publish")
    # With simulated time and no /clock the node's own clock stands at zero: these stamps are the middleware's.
    with running(bundle, autostart=False, use_sim_time=True) as (node, client):
        # Configured while it spins: the executor that cannot hand over stamps makes way.
        assert client.change("configure")
        assert client.change("activate")
        client.wait_connected()
        before_ns = time.time_ns()
        assert answered(client, messages[:8]) == 8
        level, said, _ = diagnostics(client)["/predictor"]
        assert (level, said) == (1, "use_sim_time is set, but nothing came on /clock: this node's time stands at 0")
        stamps_ns = [lockstep.nanoseconds(h.message.header.stamp) for h in client.predictions if h.stream == "base"]
        assert before_ns <= stamps_ns[0] < stamps_ns[-1] <= time.time_ns()
        assert min(np.diff(stamps_ns)) > 0
        clock = client.publisher("clock", "rosgraph_msgs/msg/Clock", QoSProfile(depth=1))
        assert client.spin_until(lambda: clock.get_subscription_count() > 0, 20)
        clock.publish(Clock(clock=Time(sec=-5)))
        assert ros_support.wait_for(lambda: "the node goes on (a /clock before 1970?)" in node.output())
        assert answered(client, messages[8:12]) == 4
        assert node.stop(signal.SIGTERM) == 0


def test_robopos_serve_is_the_node(bundle):
    domain_id = free_domain()
    command = [sys.executable, "-m", "robopos", "serve", str(bundle), "--device", "cpu", "-p", "qos_depth:=7"]
    with (
        subprocess.Popen(command, env=os.environ | private_environment(domain_id), stderr=subprocess.PIPE) as served,
        Client(INPUTS, STREAMS, domain_id) as client,
    ):
        try:
            client.wait_connected()
            assert client.state() == "active"
            served.send_signal(signal.SIGTERM)
            assert served.wait(20) == 0
        finally:
            served.kill()


def test_robopos_serve_names_a_missing_bundle(tmp_path):
    command = [sys.executable, "-m", "robopos", "serve", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"robopos serve: {tmp_path / 'none'}: no bundle there (bundle.yaml is missing)\n"
