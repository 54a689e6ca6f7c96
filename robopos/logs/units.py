"""SI units of the standard types, by REP 103 and the message definitions."""

from __future__ import annotations

import re

from robopos.logs.schema import short_name

# By the name of a part of the path, the last that matches wins.
_PARTS = {
    "angular_velocity": "rad/s",
    "linear_acceleration": "m/s^2",
    "magnetic_field": "T",
    "latitude": "deg",
    "longitude": "deg",
    "altitude": "m",
    "range": "m",
    "ranges": "m",
    "min_range": "m",
    "max_range": "m",
    "voltage": "V",
    "current": "A",
    "charge": "Ah",
    "force": "N",
    "torque": "N*m",
    "fluid_pressure": "Pa",
    "angle_min": "rad",
    "angle_max": "rad",
}
_TYPED = {
    "sensor_msgs/Temperature": {"temperature": "degC"},
    "sensor_msgs/BatteryState": {"temperature": "degC"},
}
_STANDARD = ("std_msgs", "geometry_msgs", "sensor_msgs", "nav_msgs", "trajectory_msgs")
_VECTORS = (
    (re.compile(r"(^|\.)twist(\.twist)?\.linear\."), "m/s"),
    (re.compile(r"(^|\.)twist(\.twist)?\.angular\."), "rad/s"),
    (re.compile(r"(^|\.)accel(\.accel)?\.linear\."), "m/s^2"),
    (re.compile(r"(^|\.)accel(\.accel)?\.angular\."), "rad/s^2"),
    (re.compile(r"(^|\.)(pose\.)?position\.[xyz]$"), "m"),
    (re.compile(r"(^|\.)translation\.[xyz]$"), "m"),
)
# The number of an element before a dot; else a label, which runs to the end and may hold anything.
_BRACKETS = re.compile(r"\[\d+\](?=\.)|\[.*", re.DOTALL)


def unit_of(type: str, name: str) -> str:
    """The unit of one column of a standard type; "" where the type does not fix it (a joint: rad or m)."""
    kind = short_name(type)
    if kind.split("/")[0] not in _STANDARD:
        return ""
    if kind in ("geometry_msgs/Twist", "geometry_msgs/Accel"):
        name = f"{kind.rsplit('/', 1)[1].lower()}.{name}"
    name = _BRACKETS.sub("", name)
    for pattern, unit in _VECTORS:
        if pattern.search(name):
            return unit
    parts = name.split(".")
    if any(part.endswith("covariance") for part in parts):
        return ""
    typed = _TYPED.get(kind, {})
    units = [typed.get(part) or _PARTS.get(part) for part in parts]
    return next((unit for unit in reversed(units) if unit), "")
