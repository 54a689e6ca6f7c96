"""A prediction as messages: one JointTrajectory for each stream that is predicted, on `~/prediction/<stream>`."""

from __future__ import annotations

import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from builtin_interfaces.msg import Duration, Time
from rclpy.qos import QoSProfile
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robopos.serving import Engine, Prediction
from robopos_ros.inference import Published

if TYPE_CHECKING:
    from rclpy.lifecycle import LifecycleNode

NS = 1_000_000_000


def topic_of(stream: str) -> str:
    """Where a stream's predictions go, below the node's own name."""
    return f"~/prediction/{stream}"


def trajectory(prediction: Prediction, stream: str, columns: tuple[int, ...]) -> JointTrajectory:
    """The predicted values of one stream: names without the stream, one point a horizon."""
    message = JointTrajectory()
    message.header.stamp = Time(sec=prediction.time_ns // NS, nanosec=prediction.time_ns % NS)
    message.joint_names = [prediction.names[column].removeprefix(f"{stream}.") for column in columns]
    values = np.ascontiguousarray(prediction.values[:, columns], np.float64)
    for horizon_s, row in zip(prediction.horizons_s.tolist(), values, strict=True):
        horizon_ns = round(horizon_s * NS)
        point = JointTrajectoryPoint(time_from_start=Duration(sec=horizon_ns // NS, nanosec=horizon_ns % NS))
        point.positions = array.array("d", row.tobytes())
        message.points.append(point)
    return message


class Outputs:
    """The publishers of one configured bundle; silent while the node is not active."""

    def __init__(self, node: LifecycleNode, engine: Engine) -> None:
        self._node = node
        self._targets: Mapping[str, tuple[int, ...]] = engine.targets
        qos = QoSProfile(depth=10)  # reliable, keep last
        self._publishers = {
            stream: node.create_lifecycle_publisher(JointTrajectory, topic_of(stream), qos) for stream in self._targets
        }

    def publish(self, prediction: Prediction) -> Published:
        """Publish every stream whose values are finite."""
        streams, not_finite = 0, []
        for stream, columns in self._targets.items():
            finite = np.isfinite(prediction.values[:, columns]).all(axis=0)
            if finite.all():
                self._publishers[stream].publish(trajectory(prediction, stream, columns))
                streams += 1
            else:
                not_finite += [prediction.names[c] for c, ok in zip(columns, finite, strict=True) if not ok]
        return Published(streams, tuple(not_finite))

    def destroy(self) -> None:
        """Take the publishers down."""
        for publisher in self._publishers.values():
            self._node.destroy_lifecycle_publisher(publisher)
        self._publishers.clear()
