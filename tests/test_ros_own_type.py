"""Predictions in the stream's own type: values, covariances, and what says that something is not known.

Needs no torch, so that it runs on any ROS 2 distribution.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

from robopos_ros.covariance import UNPREDICTED, rotation_variances
from robopos_ros.messages import labelled_array, time_message
from robopos_ros.own_type import OwnType
from robopos_ros.types import message_class

from robopos.errors import ServingError

pytestmark = pytest.mark.ros

AT_NS = 1_700_000_000_123_456_789


def nanoseconds(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def own(kind: str, fields: dict[str, float], stds: list[float] | None = None, frame: str = "base"):
    """A message of the type from predicted fields."""
    return OwnType(kind, message_class(kind), list(fields), frame).make(AT_NS, list(fields.values()), stds)


def test_imu_says_minus_one_for_what_it_does_not_hold():
    message = own("sensor_msgs/msg/Imu", {f"angular_velocity.{a}": v for a, v in zip("xyz", (1, 2, 3), strict=True)})
    assert nanoseconds(message.header.stamp) == AT_NS
    assert message.header.frame_id == "base"
    assert (message.angular_velocity.x, message.angular_velocity.z) == (1, 3)
    assert list(message.angular_velocity_covariance) == [0] * 9  # of unknown variance
    assert message.orientation_covariance[0] == message.linear_acceleration_covariance[0] == -1
    assert math.isnan(message.linear_acceleration.x)


def test_covariance_is_the_square_of_the_std():
    fields = {"angular_velocity.x": 1.0, "angular_velocity.z": 2.0}
    message = own("sensor_msgs/msg/Imu", fields, [0.5, 3.0])
    assert np.diag(message.angular_velocity_covariance.reshape(3, 3)).tolist() == [0.25, UNPREDICTED, 9.0]
    fields = {"twist.twist.linear.x": 1.0, "twist.twist.angular.z": 2.0, "pose.pose.position.y": 3.0}
    message = own("nav_msgs/msg/Odometry", fields, [0.5, 3.0, 2.0])
    assert np.diag(message.twist.covariance.reshape(6, 6)).tolist() == [0.25, *[UNPREDICTED] * 4, 9.0]
    assert np.diag(message.pose.covariance.reshape(6, 6)).tolist() == [UNPREDICTED, 4.0, *[UNPREDICTED] * 4]
    assert math.isnan(message.pose.pose.orientation.w)
    message = own("geometry_msgs/msg/TwistWithCovarianceStamped", {"twist.twist.linear.y": 1.0}, [3.0])
    assert message.twist.covariance[7] == 9.0


def test_rotation_variances_are_those_of_sampled_quaternions():
    generator = np.random.default_rng(3)
    mean = np.array([0.1, -0.3, 0.5, 0.8])
    mean /= np.linalg.norm(mean)
    std = np.array([1e-3, 2e-3, 5e-4, 3e-3])
    names = [f"q.{axis}" for axis in "xyzw"]
    told = rotation_variances("q", dict(zip(names, mean, strict=True)), dict(zip(names, std, strict=True)))
    samples = mean + std * generator.standard_normal((200_000, 4))
    samples /= np.linalg.norm(samples, axis=1, keepdims=True)
    v, w = samples[:, :3], samples[:, 3:]
    # sample ⊗ conjugate(mean), whose vector part is half the small rotation from the mean to the sample
    turn = 2 * (-w * mean[:3] + mean[3] * v - np.cross(v, mean[:3]))
    np.testing.assert_allclose(turn.var(axis=0), told, rtol=0.03)


def test_quaternions_get_their_length_back():
    fields = {f"orientation.{axis}": v for axis, v in zip("xyzw", (0.0, 0.0, 3.0, 4.0), strict=True)}
    message = own("sensor_msgs/msg/Imu", fields, [0.1] * 4)
    assert (message.orientation.z, message.orientation.w) == (0.6, 0.8)
    assert message.orientation_covariance[8] > 0


def test_joints_are_named_and_what_is_not_predicted_is_nan_or_empty():
    fields = {"position[elbow]": 1.0, "position[wrist.roll]": 2.0, "velocity[elbow]": 3.0}
    message = own("sensor_msgs/msg/JointState", fields)
    assert message.name == ["elbow", "wrist.roll"]
    assert message.position.tolist() == [1.0, 2.0]
    assert message.velocity[0] == 3.0
    assert math.isnan(message.velocity[1])
    assert len(message.effort) == 0


def test_fix_range_and_twist():
    fields = {"latitude": 60.0, "longitude": 10.0, "altitude": 5.0}
    message = own("sensor_msgs/msg/NavSatFix", fields, [1e-5, 1e-5, 2.0])
    assert message.position_covariance_type == message.COVARIANCE_TYPE_DIAGONAL_KNOWN
    east, north, up = np.diag(message.position_covariance.reshape(3, 3))
    assert (up, north) == (4.0, pytest.approx(1.1132**2, rel=1e-3))
    assert east == pytest.approx(north / 4, rel=1e-3)  # half as long a degree, at 60 degrees
    assert message.status.status == message.status.STATUS_NO_FIX
    assert own("sensor_msgs/msg/NavSatFix", {"latitude": 60.0}, [1e-5]).position_covariance_type == 0
    message = own("sensor_msgs/msg/Range", {"range": 1.5})
    assert message.range == 1.5
    assert math.isnan(message.max_range)
    message = own("geometry_msgs/msg/Twist", {"linear.x": 1.5})
    assert (message.linear.x, math.isnan(message.linear.y)) == (1.5, True)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("Range", "range"),
        ("Temperature", "temperature"),
        ("FluidPressure", "fluid_pressure"),
        ("RelativeHumidity", "relative_humidity"),
        ("Illuminance", "illuminance"),
    ],
)
def test_the_variance_of_one_measured_value_is_the_square_of_its_std_and_0_is_unknown(kind, field):
    kind = f"sensor_msgs/msg/{kind}"
    if not hasattr(message_class(kind)(), "variance"):
        pytest.skip("Range has no variance in Humble")
    assert own(kind, {field: 0.5}, [0.25]).variance == 0.0625
    assert own(kind, {field: 0.5}).variance == 0
    assert own(kind, {field: 0.5, "variance": 2.0}, [0.25, 0.1]).variance == 2.0  # predicted, as strange as it is
    assert own(kind, {field: 0.5}, [1e30]).variance > 1e38


@pytest.mark.parametrize(
    ("kind", "path", "said"),
    [
        ("std_msgs/msg/Float64MultiArray", "data[0]", "'data\\[0\\]' is an element of an array"),
        ("std_msgs/msg/Int32", "data", "'data' is of type int32, not a floating-point number"),
        ("sensor_msgs/msg/JointState", "position[", "is no element of a joint's array"),
        ("sensor_msgs/msg/Imu", "orientation.v", "is no field of the installed type"),
    ],
)
def test_what_has_no_place_in_its_own_type_is_named(kind, path, said):
    with pytest.raises(ServingError, match=f"{kind}: .*{said}"):
        OwnType(kind, message_class(kind), [path], "")


def test_an_array_says_what_it_holds():
    message = labelled_array(0.25, ["a", "b"], np.array([1.0, 2.0]))
    assert [(d.label, d.size, d.stride) for d in message.layout.dim] == [("horizon_s:0.25", 1, 2), ("fields:a,b", 2, 2)]
    assert message.data.tolist() == [1.0, 2.0]
    assert nanoseconds(time_message(-1)) == -1
    with pytest.raises(OverflowError, match="does not fit the 32-bit seconds"):
        time_message(2**31 * 10**9)
