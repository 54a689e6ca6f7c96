"""Failures within transitions, warm-up, watchdogs, and two nodes side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from diagnostic_msgs.msg import DiagnosticStatus
from robopos_ros import lockstep
from robopos_ros.client import Client
from robopos_ros.health import InputHealth
from robopos_ros.inference import Counts
from robopos_ros.parameters import PARAMETERS, Settings
from robopos_ros.process import NodeProcess, free_domain, private_environment
from robopos_ros.warm_up import warm_up
from robopos_ros.watch import ERROR, OK, WARN, Changes, InputWatch, NodeWatch, look_at_simulated_time

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


def settings(**changed) -> Settings:
    return Settings(**{name: entry.default for name, entry in PARAMETERS.items()} | changed)


IN_PROCESS = """
import sys
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn as Return
from rclpy.parameter import Parameter
from robopos_ros.node import Predictor

class Broken(Predictor):
    fail = True

    def on_activate(self, state):
        if self.fail:
            raise ZeroDivisionError("a bug")
        return super().on_activate(state)

bundle, box = sys.argv[1:3]
rclpy.init(args=sys.argv)
node = Broken()
node.set_parameters([Parameter("bundle", value=bundle), Parameter("device", value="cpu")])
for _ in range(2):
    assert node.trigger_configure() == Return.SUCCESS
    assert node.trigger_activate() == Return.ERROR
    assert node._reporter.state == "unconfigured" and node._engine is None
    print("PROBLEM", node._reporter.problem)
node.fail = False
node.set_parameters([Parameter("black_box", value=box)])
assert node.trigger_configure() == Return.SUCCESS
assert node.trigger_activate() == Return.FAILURE
assert node._reporter.state == "inactive"
print("PROBLEM", node._reporter.problem)
assert node.trigger_cleanup() == Return.SUCCESS
assert node._reporter.problem == ""
node.set_parameters([Parameter("black_box", value="")])
for _ in range(3):
    assert node.trigger_configure() == Return.SUCCESS
    for _ in range(2):
        assert node.trigger_activate() == Return.SUCCESS
        stats = node._engine.stats
        assert stats.streams["base"].late == 0 and stats.resets == {"activate": 1}
        stats.streams["base"].late = 7  # of this activation: the next report after another one must not tell it
        assert node.trigger_deactivate() == Return.SUCCESS
    assert node.trigger_cleanup() == Return.SUCCESS
    assert node._reporter.problem == ""
assert node.trigger_shutdown() == Return.SUCCESS
node.destroy_node()
rclpy.try_shutdown()
print("THE END")
"""


def run_alone(code: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A program in a domain of its own, and what it printed after PROBLEM."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | private_environment(free_domain()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done, [line.removeprefix("PROBLEM ") for line in done.stdout.splitlines() if line.startswith("PROBLEM")]


def test_errors_within_transitions_lead_back_to_work(bundle, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    box = tmp_path / "file" / "box"
    done, problems = run_alone(IN_PROCESS, str(bundle), str(box))
    assert problems[:2] == ["an error in a transition"] * 2
    assert problems[2].startswith(f"activate failed: the parameter 'black_box' is {box}: cannot be written to")
    assert done.stdout.endswith("THE END\n")


WITH_OVERRIDES = """
import sys
import threading
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn as Return
from robopos_ros.node import Predictor

rclpy.init(args=sys.argv)
node = Predictor()
assert node.settings.target_topics == [], node.settings
assert node.trigger_configure() == Return.SUCCESS
before = [s.topic_name for s in node.subscriptions]
told = node.trigger_activate()
print("PROBLEM", node._reporter.problem)
if told != Return.SUCCESS:
    assert told == Return.FAILURE and node._reporter.state == "inactive"
    assert [s.topic_name for s in node.subscriptions] == before
    assert not any(stream.mean.is_activated for stream in node._outputs._streams.values())
    assert "inference" not in [thread.name for thread in threading.enumerate()]
node.destroy_node()
rclpy.try_shutdown()
"""


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("durability:=wrong", "activate failed: no subscription to /range: RuntimeError: Unexpected QoS override"),
        ("depth:=abc", "activate failed: no subscription to /range: InvalidParameterTypeException: "),
        ("reliability:=best_effort", ""),
    ],
)
def test_overrides_of_qos_that_make_no_sense_are_named_and_undone(bundle, override, problem):
    arguments = [f"bundle:={bundle}", "device:=cpu", "target_topics:=[]"]
    arguments += [f"qos_overrides./range.subscription.{override}", "qos_overrides./odometry.subscription.depth:=7"]
    done, (said,) = run_alone(WITH_OVERRIDES, "--ros-args", *(word for each in arguments for word in ("-p", each)))
    assert said.startswith(problem) and bool(said) == bool(problem)
    assert said in done.stderr
    ignored = [line for line in done.stderr.splitlines() if "no subscription takes" in line]
    assert len(ignored) == (not problem)
    if ignored:
        assert "'qos_overrides./range.subscription.reliability': ignored" in ignored[0]
        assert "depth and durability of /odometry, /range can be overridden" in ignored[0]


def test_two_nodes_side_by_side(bundle, log, tmp_path):
    """In two namespaces of one domain, one of them with its input under another name."""
    messages = list(iter_messages(log))
    domain_id = free_domain()
    usual = {"bundle": bundle, "device": "cpu", "min_context": 1, "publish_expired": True, "diagnostics_period_s": 0.2}
    right_inputs = {"wheels": INPUTS["odometry"], "range": INPUTS["range"]}
    with (
        NodeProcess(usual | {"black_box": tmp_path / "left"}, domain_id, ["-r", "__ns:=/left"]) as one,
        NodeProcess(
            usual | {"black_box": tmp_path / "right"}, domain_id, ["-r", "__ns:=/right", "-r", "odometry:=wheels"]
        ) as other,
        Client(INPUTS, ["base"], domain_id, "/left") as left,
        Client(right_inputs, ["base"], domain_id, "/right") as right,
    ):
        left.wait_connected()
        right.wait_connected(names={"wheels": "odometry"})
        odometry = [message for message in messages if message.topic == "odometry"]
        for client, topic, mine in ((left, "odometry", odometry[:10]), (right, "wheels", odometry[10:20])):
            reference = lockstep.Reference(Engine.load(bundle, device="cpu"))
            for count, message in enumerate(mine, 1):
                expected = reference.take(message)
                client.publish(topic, message.data)
                assert client.hear(count, 20), one.output() + other.output()
            heard = client.predictions[-1].message
            assert lockstep.nanoseconds(heard.header.stamp) == expected.time_ns
            np.testing.assert_allclose([p.positions for p in heard.points], expected.streams["base"], atol=1e-5)
        left.spin_for(0.3)
        assert len(left.predictions) == len(right.predictions) == 10
        assert (one.stop(), other.stop()) == (0, 0)
    for side in ("left", "right"):
        (recording,) = ros_support.recordings(tmp_path / side)
        assert ros_support.assert_replay_is_what_was_published(bundle, recording, tmp_path / "replay.mcap") == 10


def test_warm_up_leaves_nothing_behind(bundle, log):
    engine, fresh = (Engine.load(bundle, device="cpu") for _ in range(2))
    warm_up(engine)
    assert engine.predict() is None
    assert engine.stats.to_dict() == fresh.stats.to_dict()
    for message in list(iter_messages(log))[:20]:
        for each in (engine, fresh):
            stream = "base" if message.topic == "odometry" else "beacon"
            each.push_raw(stream, message.data, message.log_time_ns, message.publish_time_ns)
    np.testing.assert_array_equal(engine.predict().values, fresh.predict().values)
    assert engine.stats.band_truncated == fresh.stats.band_truncated


def test_warm_up_predicts_from_rows_too(log, tmp_path):
    sequence = replace(ros_support.robot_sequence(), tokens="rows", reference="beacon")  # not the first stream
    engine = Engine.load(ros_support.make_bundle(tmp_path / "rows", log, sequence=sequence), device="cpu")
    made, predict = [], engine.predict

    def counting():
        made.append(predict())
        return made[-1]

    engine.predict = counting
    warm_up(engine)
    assert len(made) == 3 and None not in made
    assert engine.stats.to_dict() == Engine(engine.bundle, device="cpu").stats.to_dict()


COUNTS = asdict(Counts()) | {"busy_ms": 0}


def told(watch: NodeWatch, settings: Settings, resets: dict[str, int] | None = None, now_s: float = 0.0, **counts: int):
    return watch.look(COUNTS | counts | {"engine": {"resets": {"activate": 1} | (resets or {})}}, settings, now_s)


def test_messages_that_come_together_are_no_slowness():
    watch = NodeWatch()
    assert told(watch, settings(), now_s=10.0) == []
    assert told(watch, settings(), now_s=11.0, admitted=100, skipped=50, busy_ms=200) == []
    ((_, text),) = told(watch, settings(), now_s=12.0, admitted=200, skipped=100, busy_ms=1000)
    assert text == "inference is slower than the messages: 50 of 100 predictions skipped"


def test_the_node_watch_tells_what_changed_and_only_that():
    watch = NodeWatch()
    assert told(watch, settings(), admitted=100, skipped=5) == []
    ((level, text),) = told(watch, settings(), admitted=200, skipped=55, busy_ms=900)
    assert (level, text) == (WARN, "inference is slower than the messages: 50 of 100 predictions skipped")
    assert told(watch, settings(trigger="rate"), admitted=300, skipped=155) == []
    ((level, text),) = told(watch, settings(), {"gap": 2}, admitted=300, skipped=155)
    assert (level, text) == (WARN, "the context was forgotten: gap (2)")
    grown = {"admitted": 300, "skipped": 155, "beyond_limits": 3}
    ((level, text),) = told(watch, settings(limits="stop"), {"gap": 2}, **grown)
    assert (level, text) == (ERROR, "3 predictions beyond the bundle's limits, left out")
    ((level, text),) = told(watch, settings(), {"gap": 2}, **grown, overrun=7)
    assert (level, text.partition(":")[0]) == (ERROR, "7 messages thrown away")
    assert told(watch, settings(), {"gap": 2}, **grown, overrun=7) == []
    ((level, text),) = told(watch, settings(), {"gap": 2}, **grown, overrun=7, stamp_overflow=1)
    assert (level, text) == (
        WARN,
        "1 predictions not published: no stamp holds their time (a sensor with a wrong clock?)",
    )


def status(level: bytes, message: str) -> DiagnosticStatus:
    return DiagnosticStatus(level=level, name="/predictor: imu", message=message)


def test_the_log_is_told_once_what_stays_wrong_and_when_it_is_good_again():
    changes = Changes()
    assert changes.look([status(WARN, "no message yet")]) == []  # every start begins like this
    assert changes.look([status(WARN, "no message yet")]) == [(WARN, "/predictor: imu: no message yet")]
    assert changes.look([status(WARN, "no message yet")]) == []
    assert changes.look([status(OK, "receiving")]) == [(OK, "/predictor: imu: receiving again")]
    assert changes.look([status(ERROR, "refused")]) == changes.look([status(OK, "receiving")]) == []


def test_a_number_may_be_written_without_a_point_and_a_wrong_one_is_named():
    rate = PARAMETERS["rate_hz"]
    assert (rate.problem(20), rate.problem(20.5), rate.clean(20)) == ("", "", 20.0)
    for wrong in (0, -1.0, "fast", True, float("nan")):
        assert rate.problem(wrong) == f"{wrong!r} is no number from 0.01 to 10000"


def test_misspelt_parameters_are_named_and_integers_taken(bundle):
    parameters = {"rate_hz": 20, "max_input_age_s": 2, "publsh_horizon_s": 0.25}
    with ros_support.running(bundle, INPUTS, ["base"], **parameters) as (node, client):
        said = "no parameter is called 'publsh_horizon_s': ignored; did you mean publish_horizon_s?"
        assert ros_support.wait_for(lambda: said in node.output())
        assert "'rate_hz'" not in node.output()
        assert client.set_parameter("rate_hz", 30) == ""
        assert client.set_parameter("rate_hz", 0) == "rate_hz: 0 is no number from 0.01 to 10000"


def test_a_step_of_the_system_clock_is_told_once():
    watch = NodeWatch()
    assert watch.look_at_clock() == []
    watch._offset_ns -= 2_000_000_000  # as if the clock had been set on by two seconds
    ((level, text),) = watch.look_at_clock()
    assert (level, text) == (WARN, "the system clock stepped by +2.000 s")
    assert watch.look_at_clock() == []
    assert watch.clock_steps == 1


@pytest.mark.parametrize(("simulated", "now_ns", "count"), [(True, 0, 1), (True, 1, 0), (False, 0, 0)])
def test_simulated_time_that_is_still_to_come_is_said(simulated, now_ns, count):
    clock = SimpleNamespace(ros_time_is_active=simulated, now=lambda: SimpleNamespace(nanoseconds=now_ns))
    found = look_at_simulated_time(clock)
    said = "use_sim_time is set, but nothing came on /clock: this node's time stands at 0"
    assert found == [(WARN, said)] * count


def test_the_input_watch_names_silence_and_absence(bundle):
    engine = Engine.load(bundle, device="cpu")
    health, watch = InputHealth("odometry"), InputWatch()

    def look(now_s: float) -> list[str]:
        counts = engine.stats.to_dict()["streams"]["base"]
        return [text for _, text in watch.look(health, counts, "x", 1.5, round(now_s * 1e9))]

    assert look(0.0) == ["no message yet, and nobody publishes odometry"]
    health.publishers = ("/driver",)
    assert look(0.0) == ["no message yet"]
    health.receive(1_000_000_000)
    assert look(2.0) == []
    engine.stats.streams["base"].far_out = 3
    assert look(2.0) == ["3 messages far outside of what was trained on: another unit, or another robot?"]
    assert look(3.0) == ["silent for 2.0 s, more than 1.5 s"]
    health.receive(3_500_000_000)
    assert health.largest_gap_s == 2.5
