"""A prediction as messages that fit every stream: JointTrajectory over all horizons, Float64MultiArray."""

from __future__ import annotations

import array
from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration, Time
from numpy.typing import NDArray
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

NS = 1_000_000_000


def time_message(time_ns: int) -> Time:
    """Nanoseconds as a stamp.

    Raises:
        OverflowError: the seconds are outside the stamp's 32 bits.
    """
    sec, nanosec = divmod(time_ns, NS)
    if not -(2**31) <= sec < 2**31:
        raise OverflowError(f"the time {time_ns} ns does not fit the 32-bit seconds of a ROS 2 stamp")
    return Time(sec=sec, nanosec=nanosec)


def trajectory(
    time_ns: int, horizons_s: NDArray[np.float64], names: Sequence[str], values: NDArray[np.float64]
) -> JointTrajectory:
    """`values` (H, T) as points: `time_from_start` is the horizon, `header.stamp` the time that horizons count from."""
    message = JointTrajectory()
    message.header.stamp = time_message(time_ns)
    message.joint_names = list(names)
    rows = np.ascontiguousarray(values, np.float64)
    for horizon_s, row in zip(horizons_s.tolist(), rows, strict=True):
        sec, nanosec = divmod(round(horizon_s * NS), NS)
        point = JointTrajectoryPoint(time_from_start=Duration(sec=sec, nanosec=nanosec))
        point.positions = array.array("d", row.tobytes())
        message.points.append(point)
    return message


def labelled_array(horizon_s: float, names: Sequence[str], row: NDArray[np.float64]) -> Float64MultiArray:
    """`row` (T,) at one horizon: the labels of the dimensions say which horizon and which fields."""
    message = Float64MultiArray(data=array.array("d", np.ascontiguousarray(row, np.float64).tobytes()))
    message.layout.dim = [
        MultiArrayDimension(label=f"horizon_s:{horizon_s:g}", size=1, stride=len(row)),
        MultiArrayDimension(label=f"fields:{','.join(names)}", size=len(row), stride=len(row)),
    ]
    return message
