"""What the node publishes of a prediction: trajectories, standard deviations, the stream's own type, limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from robopos_ros import lockstep
from robopos_ros.client import Client
from robopos_ros.outputs import chosen_streams, horizon_row
from robopos_ros.process import NodeProcess, free_domain

from robopos.errors import ServingError
from robopos.logs import LogMessage, iter_messages, write_log
from robopos.model import Bundle
from robopos.sequences import SequenceSettings, StreamSettings
from robopos.serving import Engine

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return ros_support.make_log(tmp_path_factory.mktemp("log") / "robot.mcap", 400)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, log) -> Path:
    return ros_support.make_bundle(tmp_path_factory.mktemp("bundle") / "robot", log, loss="gaussian")


def test_horizon_and_topics_must_be_the_bundles(bundle):
    engine = Engine.load(bundle, device="cpu")
    assert horizon_row([0.1, 0.25], 0.25) == 1
    with pytest.raises(ServingError, match="'publish_horizon_s' is 0\\.2, but the bundle predicts at 0\\.1, 0\\.25 s"):
        horizon_row([0.1, 0.25], 0.2)
    assert chosen_streams(engine, [""]) == ["base", "beacon"]
    assert chosen_streams(engine, ["/range"]) == ["beacon"]
    with pytest.raises(ServingError, match="'target_topics' names imu; the bundle predicts odometry, range"):
        chosen_streams(engine, ["imu", "range"])


def test_own_type_and_std_over_the_wire_and_limits_while_it_runs(bundle, log, tmp_path):
    messages = list(iter_messages(log))[:40]
    engine = Engine.load(bundle, device="cpu")
    # The same weights with the training range of half the log: some predictions are beyond it.
    loaded = Bundle.load(bundle)
    narrow = replace(loaded.normalization, high=loaded.normalization.low + 0.02)
    narrowed = replace(loaded, normalization=narrow).save(tmp_path / "narrow")
    domain_id = free_domain()
    parameters = {"bundle": narrowed, "device": "cpu", "min_context": 1, "publish_expired": True}
    parameters |= {"publish_horizon_s": 0.25, "target_topics": ["odometry"], "diagnostics_period_s": 0.2}
    inputs = {"odometry": "nav_msgs/msg/Odometry", "range": "sensor_msgs/msg/Range"}
    with NodeProcess(parameters, domain_id) as node, Client(inputs, ["base"], domain_id) as client:
        odometry = client.listen("prediction/base/at_horizon", "nav_msgs/msg/Odometry")
        std = client.listen("prediction/base/std", "trajectory_msgs/msg/JointTrajectory")
        client.wait_connected()
        client.wait_heard()
        reference = lockstep.Reference(engine)
        for count, message in enumerate(messages[:20], 1):
            reference.take(message)
            client.publish(lockstep.topic_of(message), message.data)
            assert client.hear(count, 20), node.output()
        assert client.spin_until(lambda: len(odometry) == len(std) == 20, 20)
        expected = engine.predict()
        x, y = engine.targets["base"]
        assert odometry[-1].twist.twist.linear.x == pytest.approx(expected.values[1, x], abs=1e-5)
        assert odometry[-1].twist.covariance[7] == pytest.approx(expected.std[1, y] ** 2, rel=1e-3)
        assert odometry[-1].header.frame_id == "base_link"
        assert lockstep.nanoseconds(odometry[-1].header.stamp) == expected.time_ns + 250_000_000
        np.testing.assert_allclose([p.positions for p in std[-1].points], expected.std[:, [x, y]], rtol=1e-3)
        # With the word that YAML would read as a boolean, and back.
        assert client.set_parameter("limits", False) == ""
        assert client.set_parameter("limits", "sometimes") == "limits: 'sometimes' is none of off, warn, stop"
        assert client.set_parameter("limits", "stop") == ""
        client.predictions.clear()
        for message in messages[20:]:
            client.publish(lockstep.topic_of(message), message.data)
            client.spin_for(0.03)
        client.spin_for(0.5)
        beyond = client.node_values("beyond_limits", lambda value: int(value) > 0)
        assert int(beyond) + len(client.predictions) == 20
        assert "beyond the bundle's limits: base.twist.twist.linear.x" in node.output()
        assert client.set_parameter("target_topics", ["range"]).startswith("target_topics: read on configure only")


def test_what_is_no_floating_point_number_goes_as_a_labelled_array(tmp_path):
    """Encoder counts: the prediction of an integer is none, so it is not published in the stream's own type."""
    kind = "std_msgs/msg/Int32"
    times_ns = [ros_support.START_NS + 20_000_000 * i for i in range(600)]
    counts = [LogMessage("ticks", kind, time_ns, {"data": i * i // 10}) for i, time_ns in enumerate(times_ns)]
    log = write_log(tmp_path / "ticks.mcap", counts)
    sequence = SequenceSettings(
        streams={"ticks": StreamSettings("ticks", ["data"], transform="difference")},
        targets={"ticks": ["data"]},
        horizons_s=[0.1, 0.25],
        clock="log",
    )
    # Without a header a message's time is its arrival: by the token index the numbers do not hang on it.
    bundle = ros_support.make_bundle(tmp_path / "bundle", log, positions="index-rotary", clock="log", sequence=sequence)
    engine = Engine.load(bundle, device="cpu")
    with ros_support.running(bundle, {"ticks": kind}, ["ticks"], publish_horizon_s=0.25) as (node, client):
        arrays = client.listen("prediction/ticks/at_horizon", "std_msgs/msg/Float64MultiArray")
        client.wait_heard()
        for count, message in enumerate(list(iter_messages(log))[:10], 1):
            engine.push_raw("ticks", message.data, arrival_ns=message.log_time_ns)
            client.publish("ticks", message.data)
            assert client.hear(count, 20), node.output()
        assert client.spin_until(lambda: len(arrays) == 10, 10)
        assert arrays[-1].data.tolist() == pytest.approx(engine.predict().values[1].tolist(), rel=1e-4)
        assert [d.label for d in arrays[-1].layout.dim] == ["horizon_s:0.25", "fields:data"]
        assert "ticks at 0.25 s as std_msgs/msg/Float64MultiArray, because " in node.output()
