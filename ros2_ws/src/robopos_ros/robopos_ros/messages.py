"""Parts of messages: a stamp, and numbers at one horizon with labels that say what they are."""

from __future__ import annotations

import array
from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from robopos.stamps import NS_PER_S


def time_message(time_ns: int) -> Time:
    """Nanoseconds as a stamp.

    Raises:
        OverflowError: the seconds are outside the stamp's 32 bits.
    """
    sec, nanosec = divmod(time_ns, NS_PER_S)
    if not -(2**31) <= sec < 2**31:
        raise OverflowError(f"the time {time_ns} ns does not fit the 32-bit seconds of a ROS 2 stamp")
    return Time(sec=sec, nanosec=nanosec)


def labelled_array(horizon_s: float, names: Sequence[str], row: NDArray[np.float64]) -> Float64MultiArray:
    """`row` (T,) at one horizon: the labels of the dimensions say which horizon and which fields."""
    message = Float64MultiArray(data=array.array("d", np.ascontiguousarray(row, np.float64).tobytes()))
    message.layout.dim = [
        MultiArrayDimension(label=f"horizon_s:{horizon_s:g}", size=1, stride=len(row)),
        MultiArrayDimension(label=f"fields:{','.join(names)}", size=len(row), stride=len(row)),
    ]
    return message
