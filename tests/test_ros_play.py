"""`robopos play` as a process, alone and with a node; `robopos doctor`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from robopos_ros.client import Client
from robopos_ros.process import free_domain, private_environment

from robopos.logs import LogMessage, iter_messages, write_log

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return ros_support.make_log(tmp_path_factory.mktemp("log") / "robot.mcap", 200)


@pytest.fixture
def here(monkeypatch):
    """`robopos play` in this process; its exit code."""
    from robopos_ros import play

    for name, value in private_environment(free_domain()).items():
        monkeypatch.setenv(name, value)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield lambda *arguments: play.main([str(argument) for argument in arguments])
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
        signal.signal(number, handler)


@contextmanager
def playing(domain_id: int, *arguments: str | Path) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "robopos", "play", *map(str, arguments)]
    environment = os.environ | private_environment(domain_id)
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) as player:
        try:
            yield player
        finally:
            player.kill()


def test_bytes_order_and_clock_are_the_logs(log, tmp_path):
    messages = list(iter_messages(log))
    mixed = [LogMessage(m.topic, m.type, m.log_time_ns, m.data, schema=m.schema) for m in messages]
    strange = LogMessage("strange", "no_such_msgs/msg/Thing", mixed[-1].log_time_ns, b"\0\1\0\0\1", schema="uint8 x\n")
    path = write_log(tmp_path / "mixed.mcap", [*mixed, strange])
    domain_id = free_domain()
    with Client({}, [], domain_id) as client:
        heard: list[tuple[str, bytes]] = []
        for topic, kind in (("odometry", "nav_msgs/msg/Odometry"), ("range", "sensor_msgs/msg/Range")):
            client.subscribe_raw(f"/left/{topic}", kind, lambda data, topic=topic: heard.append((topic, data)))
        clock = client.listen_at("/clock", "rosgraph_msgs/msg/Clock")
        started_s = time.monotonic()
        with playing(domain_id, path, "--rate", "10", "--clock", "20", "--namespace", "left") as player:
            assert client.spin_until(lambda: len(heard) >= len(messages), 60)
            assert time.monotonic() - started_s >= (messages[-1].log_time_ns - messages[0].log_time_ns) * 1e-9 / 10
            out, err = player.communicate(timeout=30)
        client.spin_for(0.2)
    for topic in ("odometry", "range"):
        assert [data for name, data in heard if name == topic] == [m.data for m in messages if m.topic == topic]
    assert player.returncode == 0
    assert out.startswith(f"{len(messages)} messages on 2 topics, 1 times round; at most ")
    assert err.startswith(
        "robopos play: left out: strange: no_such_msgs/msg/Thing: the ROS 2 package no_such_msgs is not"
    )
    told = [t.clock.sec * 10**9 + t.clock.nanosec for t in clock]
    assert told == sorted(told)
    assert {m.log_time_ns for m in messages[1:]} <= set(told)
    assert len(told) > len(messages)  # between messages too: every 50 ms of the log's time


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "0"], "--rate is 0, must be >= 0.001"),
        (["--loop", "-1"], "--loop is -1, must be >= 0"),
        (["--clock", "-5"], "--clock is -5, must be >= 0.001"),
        (["--last-s", "nan"], "--last-s is nan, must be >= 0"),
        (["--wait-s", "nan"], "--wait-s is nan, must be >= 0"),
        (
            ["--namespace", "bad name"],
            "--namespace is 'bad name': no name in ROS 2 "
            "(topic name must not contain characters other than alphanumerics, '_', or '/')",
        ),
        (["--lock-step", "--rate", "2"], "--lock-step goes as fast as the answers come: leave out --rate"),
        (["--topics", "imu"], "{log}: no message to play"),
    ],
)
def test_what_makes_no_sense_is_one_line(log, arguments, said, here, capsys):
    assert here(log, *arguments) == 1
    assert capsys.readouterr().err == f"robopos play: {said.format(log=log)}\n"


@pytest.mark.parametrize("domain", ["abc", "233", "-1", "5x"])
def test_a_domain_that_is_none_is_one_line(log, domain, here, capsys, monkeypatch):
    from robopos_ros import __main__ as node

    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    said = f"ROS_DOMAIN_ID is '{domain}', must be a whole number from 0 to 232, or not set\n"
    assert here(log) == 1
    assert capsys.readouterr().err == f"robopos play: {said}"
    assert node.main([]) == 1
    assert capsys.readouterr().err == f"robopos_ros: {said}"


def test_a_log_whose_time_no_stamp_holds_gives_no_clock(tmp_path, here, capsys):
    message = LogMessage("a", "std_msgs/msg/Float64", 2**31 * 10**9, {"data": 0.0})
    log = write_log(tmp_path / "late.mcap", [message])
    assert here(log, "--clock") == 1
    said = "robopos play: --clock: the time 2147483648000000000 ns does not fit the 32-bit seconds of a ROS 2 stamp\n"
    assert capsys.readouterr().err == said


def test_topics_that_cannot_be_played_are_named(log, tmp_path, here, capsys):
    odd = write_log(
        tmp_path / "odd.mcap",
        [
            LogMessage(m.topic.replace("range", "range-data"), m.type, m.log_time_ns, m.data, schema=m.schema)
            for m in list(iter_messages(log))[:8]
        ],
    )
    assert here(odd, "--rate", "100", "--wait-s", "0", "--topics", "/nope", "/range-data", "odometry") == 0
    told = capsys.readouterr()
    assert told.out.startswith("6 messages on 1 topics, 1 times round; ")
    first, second, _ = told.err.splitlines()
    assert first.startswith("robopos play: left out: range-data: no name in ROS 2 (topic name must not contain")
    assert second == "robopos play: left out: /nope: the log has no message of it"


def test_lock_step_says_once_what_it_waits_for(log, here, capsys, monkeypatch):
    from robopos_ros import player

    monkeypatch.setattr(player, "UNANSWERED_S", 0.2)
    assert here(log, "--lock-step", "--patience-s", "0.05", "--wait-s", "0", "--last-s", "0.5") == 0
    told = capsys.readouterr()
    said = "no answer for 0.2 s: nobody publishes a JointTrajectory below /predictor/prediction: is the node active"
    assert told.err.count(said) == 1
    assert told.out.endswith("; 0 answered, 11 not\n")
    with player.Player([], "", None, "/predictor/prediction") as silent:
        silent._answer_topics["/predictor/prediction/base"] = None
        assert "without --clock the node may take the log's stamps for past" in silent._waited_for()


def test_a_node_on_simulated_time(log, tmp_path):
    """Lock-step, a loop, a player that is killed and comes back; replay of each recording is what was published."""
    bundle = ros_support.make_bundle(tmp_path / "robot", log)
    parameters = {"use_sim_time": True, "publish_expired": False, "black_box": tmp_path / "box"}
    with ros_support.running(bundle, {}, ["base"], **parameters) as (node, client):
        domain_id = client.domain_id
        with playing(domain_id, log, "--lock-step", "--clock", "--patience-s", "20") as player:
            # While this side only waits, nothing of it costs the two processes time.
            assert client.spin_until(lambda: player.poll() is not None, 120)
            out, err = player.communicate()
        assert (player.returncode, err) == (0, ""), node.output()
        assert out.endswith("200 answered, 0 not\n")
        lock_step = ros_support.recordings(tmp_path / "box")[0]
        # The same as `robopos replay` of the log itself, which predicts with full history alone.
        replayed = ros_support.published_in(ros_support.replay_by_command(bundle, log, tmp_path / "replayed.mcap"))
        recorded = {(inputs, topic): data for inputs, topic, data in ros_support.published_in(lock_step)}
        assert len(replayed) > 300
        for inputs, topic, data in replayed:
            ros_support.assert_same(data, recorded[inputs, topic])

        with playing(domain_id, log, "--rate", "10", "--clock", "--loop", "2") as player:
            assert client.spin_until(lambda: player.poll() is not None, 120)
        # Once when the first round began, once between the two.
        client.node_values("engine.resets.simulated time went back", lambda count: count == "2")
        assert player.returncode == 0

        with playing(domain_id, log, "--loop", "0", "--clock") as player:
            client.predictions.clear()
            assert client.hear(5, 60)
            player.send_signal(signal.SIGKILL)
        client.spin_for(0.3)
        client.predictions.clear()
        with playing(domain_id, log, "--loop", "0", "--clock") as player:
            assert client.hear(5, 60)
            player.send_signal(signal.SIGINT)
            assert client.spin_until(lambda: player.poll() is not None, 20)
            assert player.returncode == 0
        assert client.state() == "active"
        assert node.stop(signal.SIGTERM) == 0
        assert "Traceback" not in node.output()
    recordings = ros_support.recordings(tmp_path / "box")
    assert len(recordings) == 5
    for recording in recordings:
        assert ros_support.assert_replay_is_what_was_published(bundle, recording, tmp_path / "unused") >= 5


def doctor(tmp_path: Path, **environment: str) -> tuple[subprocess.CompletedProcess, dict[str, dict[str, str]]]:
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "robopos", "doctor", "--json", str(found)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done, {finding["what"]: finding for finding in json.loads(found.read_text())}


def test_doctor_says_what_is_here(tmp_path):
    done, found = doctor(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {found[what]["state"] for what in ("python", "torch", "rclpy", "rmw", "robopos_ros")} == {"ok"}
    assert "rmw_" in found["rmw"]["said"]
    assert len(done.stdout.splitlines()) >= len(found)


def test_doctor_says_what_to_do_without_rclpy(tmp_path):
    (tmp_path / "rclpy.py").write_text("raise ImportError('built for another Python')\n")
    done, found = doctor(tmp_path, PYTHONPATH=str(tmp_path), ROS_DISTRO="humble")
    assert done.returncode == 0  # robopos works without ROS 2
    assert found["rclpy"]["said"] == "ImportError: built for another Python"
    assert found["rclpy"]["remedy"].startswith("ROS_DISTRO is humble: its rclpy needs the Python that it was built for")
    assert "robopos_ros" not in found


def test_doctor_tells_a_middleware_that_does_not_start_from_an_rclpy_that_is_absent(tmp_path):
    done, found = doctor(tmp_path, RMW_IMPLEMENTATION="rmw_nowhere_cpp", ROS_DISTRO="jazzy")
    assert done.returncode == 0
    assert "rclpy" not in found
    assert found["rmw"]["state"] == "missing"
    assert "rmw_nowhere_cpp" in found["rmw"]["said"]
    assert found["rmw"]["remedy"] == "RMW_IMPLEMENTATION is rmw_nowhere_cpp: install that middleware, or unset it"


def test_doctor_says_which_domain_is_none(tmp_path):
    _, found = doctor(tmp_path, ROS_DOMAIN_ID="500")
    assert found["rclpy"]["state"] == found["rmw"]["state"] == found["robopos_ros"]["state"] == "ok"
    assert found["domain"] == {
        "state": "missing",
        "what": "domain",
        "said": "ROS_DOMAIN_ID is '500': neither robopos serve nor robopos play starts",
        "remedy": "set it to a whole number from 0 to 232, or unset it",
    }


def test_doctor_says_that_without_torch_nothing_works(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')\n")
    done, found = doctor(tmp_path, PYTHONPATH=str(tmp_path))
    assert found["torch"]["state"] == "broken"
    assert done.returncode == 1
    assert done.stderr == "robopos doctor: robopos cannot work here: torch\n"
