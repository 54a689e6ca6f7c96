"""Variances of predictions in the covariance fields of the standard types, by each type's convention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FLOAT32_MOST = float(np.finfo(np.float32).max)
UNPREDICTED = 1e6  # variance of a component that nothing is known of, beside others that are known
METRES_PER_DEGREE = 111_319.5  # of latitude

_XYZ = ("x", "y", "z")


class Block(NamedTuple):
    """Three components and where their variances stand: on the diagonal of `field`, from `first` on."""

    path: str
    field: str
    size: int  # of the square matrix
    first: int = 0
    rotation: bool = False  # the path is a quaternion, its variance is about the axes x, y, z
    absent: float | None = None  # what element 0 says when no component is predicted


_BLOCKS: dict[str, tuple[Block, ...]] = {
    "sensor_msgs/msg/Imu": (
        Block("orientation", "orientation_covariance", 3, rotation=True, absent=-1.0),
        Block("angular_velocity", "angular_velocity_covariance", 3, absent=-1.0),
        Block("linear_acceleration", "linear_acceleration_covariance", 3, absent=-1.0),
    ),
    "sensor_msgs/msg/MagneticField": (Block("magnetic_field", "magnetic_field_covariance", 3),),
}
# Types of one measured value, which say in the field `variance` how sure it is; 0 is "unknown" there.
_MEASURED = {
    "sensor_msgs/msg/FluidPressure": "fluid_pressure",
    "sensor_msgs/msg/Illuminance": "illuminance",
    "sensor_msgs/msg/Range": "range",
    "sensor_msgs/msg/RelativeHumidity": "relative_humidity",
    "sensor_msgs/msg/Temperature": "temperature",
}


def _with_covariance(prefix: str, kind: str) -> tuple[Block, ...]:
    at = f"{prefix}." if prefix else ""
    if kind == "pose":
        return (
            Block(f"{at}pose.position", f"{at}covariance", 6),
            Block(f"{at}pose.orientation", f"{at}covariance", 6, first=3, rotation=True),
        )
    return (
        Block(f"{at}{kind}.linear", f"{at}covariance", 6),
        Block(f"{at}{kind}.angular", f"{at}covariance", 6, first=3),
    )


for _kind, _name in (("pose", "Pose"), ("twist", "Twist"), ("accel", "Accel")):
    _BLOCKS[f"geometry_msgs/msg/{_name}WithCovariance"] = _with_covariance("", _kind)
    _BLOCKS[f"geometry_msgs/msg/{_name}WithCovarianceStamped"] = _with_covariance(_kind, _kind)
_BLOCKS["nav_msgs/msg/Odometry"] = _with_covariance("pose", "pose") + _with_covariance("twist", "twist")


def fill(message: Any, kind: str, values: Mapping[str, float], stds: Mapping[str, float] | None) -> None:
    """Set the covariances, or the variance, of a message of type `kind`.

    Args:
        values: predicted values by field path.
        stds: their standard deviations; None where the model gives none. Zeros in a matrix then say "unknown".
    """
    for block in _BLOCKS.get(kind, ()):
        _fill_block(message, block, values, stds)
    if kind == "sensor_msgs/msg/NavSatFix":
        _fill_fix(message, values, stds)
    if kind in _MEASURED and hasattr(message, "variance") and "variance" not in values:  # Humble's Range has none
        std = (stds or {}).get(_MEASURED[kind], 0.0)
        message.variance = min(std * std, FLOAT32_MOST)  # Range's is of 32 bits


def _fill_block(message: Any, block: Block, values: Mapping[str, float], stds: Mapping[str, float] | None) -> None:
    owner, _, name = block.field.rpartition(".")
    for part in owner.split(".") if owner else ():
        message = getattr(message, part)
    matrix = getattr(message, name)
    predicted = any(path.startswith(f"{block.path}.") for path in values)
    if not predicted:
        if block.absent is not None:
            matrix[0] = block.absent
        elif stds is not None:
            _diagonal(matrix, block, [UNPREDICTED] * 3)
        return
    if stds is None:
        return
    if block.rotation:
        _diagonal(matrix, block, rotation_variances(block.path, values, stds))
    else:
        known = [stds.get(f"{block.path}.{axis}") for axis in _XYZ]
        _diagonal(matrix, block, [UNPREDICTED if std is None else std * std for std in known])


def rotation_variances(path: str, values: Mapping[str, float], stds: Mapping[str, float]) -> list[float]:
    """Variances (rad²) about x, y, z of a quaternion whose components are independent; unknown unless all are there."""
    names = [f"{path}.{axis}" for axis in "xyzw"]
    if not all(name in values for name in names):
        return [UNPREDICTED] * 3
    x, y, z, w = (values[name] for name in names)
    # A small change dq turns by 2 · (dq ⊗ q*), vector part.
    jacobian = 2 * np.array([[w, -z, y, -x], [z, w, -x, -y], [-y, x, w, -z]])
    variances = np.array([stds[name] ** 2 for name in names])
    return [float(variance) for variance in jacobian**2 @ variances]


def _diagonal(matrix: Any, block: Block, variances: list[float]) -> None:
    for axis, variance in enumerate(variances):
        matrix[(block.first + axis) * (block.size + 1)] = variance


def _fill_fix(message: Any, values: Mapping[str, float], stds: Mapping[str, float] | None) -> None:
    message.status.status = message.status.STATUS_NO_FIX  # a prediction is no fix
    message.position_covariance_type = message.COVARIANCE_TYPE_UNKNOWN
    names = ("longitude", "latitude", "altitude")  # east, north, up
    if stds is None or not all(name in stds for name in names):
        return
    east, north, up = (stds[name] for name in names)
    east *= METRES_PER_DEGREE * math.cos(math.radians(values["latitude"]))
    north *= METRES_PER_DEGREE
    for axis, std in enumerate((east, north, up)):
        message.position_covariance[4 * axis] = std * std
    message.position_covariance_type = message.COVARIANCE_TYPE_DIAGONAL_KNOWN
