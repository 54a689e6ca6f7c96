"""A prediction in the stream's own message type, at one horizon.

A floating-point field that is not predicted is NaN, which is "not known" in these types; an integer is 0, a text is
empty. Imu says -1 in the covariance of what it does not hold; covariances and variances are 0 where nothing is known.
"""

from __future__ import annotations

import array
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from robopos.errors import ServingError
from robopos_ros import covariance
from robopos_ros.messages import time_message

_NAMED = re.compile(r"^(?P<base>\w+)\[(?P<label>.+)\]$")
_FLOATS = ("double", "float")
_LABELS = "name"  # the field of JointState that names the elements of its arrays


class OwnType:
    """Makes messages of one stream's type from its predicted fields.

    Args:
        kind: the type's name, such as "sensor_msgs/msg/Imu".
        message_class: its class.
        fields: the predicted field paths.
        frame_id: for the header.

    Raises:
        ServingError: a field has no place in a message of the type that is made from the prediction alone.
    """

    def __init__(self, kind: str, message_class: type, fields: Sequence[str], frame_id: str) -> None:
        self._kind, self._class, self._frame_id = kind, message_class, frame_id
        self._fields = tuple(fields)
        self._types: Mapping[str, str] = message_class.get_fields_and_field_types()
        self._joints = self._types.get(_LABELS) == "sequence<string>"
        for path in fields:
            problem = self._problem(path)
            if problem:
                raise ServingError(f"{kind}: {path!r} {problem}")

    def make(self, time_ns: int, values: Sequence[float], stds: Sequence[float] | None) -> Any:
        """The message about `time_ns`; values and standard deviations in the order of `fields`."""
        message = self._class()
        _clear(message)
        if "header" in self._types:
            message.header.stamp = time_message(time_ns)
            message.header.frame_id = self._frame_id
        known = dict(zip(self._fields, values, strict=True))
        _normalize(known)
        if self._joints:
            self._set_joints(message, known)
        else:
            for path, value in known.items():
                owner, _, name = path.rpartition(".")
                setattr(_inner(message, owner), name, value)
        covariance.fill(
            message, self._kind, known, None if stds is None else dict(zip(self._fields, stds, strict=True))
        )
        return message

    def _problem(self, path: str) -> str:
        if self._joints:
            named = _NAMED.match(path)
            good = named is not None and self._types.get(named["base"]) == "sequence<double>"
            return "" if good else "is no element of a joint's array"
        if "[" in path:
            return "is an element of an array"
        owner, _, name = path.rpartition(".")
        try:
            kind = type(_inner(self._class(), owner)).get_fields_and_field_types()[name]
        except (AttributeError, KeyError):
            return "is no field of the installed type"
        return "" if kind in _FLOATS else f"is of type {kind}, not a floating-point number"

    def _set_joints(self, message: Any, known: Mapping[str, float]) -> None:
        split = [(_NAMED.match(path), value) for path, value in known.items()]
        joints = list(dict.fromkeys(named["label"] for named, _ in split if named))
        setattr(message, _LABELS, joints)
        for named, value in split:
            assert named is not None
            if not getattr(message, named["base"]):  # an array nothing is predicted of stays empty
                setattr(message, named["base"], array.array("d", [math.nan] * len(joints)))
            getattr(message, named["base"])[joints.index(named["label"])] = value


def _inner(message: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        message = getattr(message, part)
    return message


def _clear(message: Any) -> None:
    """NaN in every floating-point field; arrays stay as they are made: empty, or zero as covariances want it."""
    for name, kind in message.get_fields_and_field_types().items():
        if kind in _FLOATS:
            setattr(message, name, math.nan)
        elif "/" in kind and "<" not in kind and "[" not in kind:
            _clear(getattr(message, name))


def _normalize(known: dict[str, float]) -> None:
    """Give quaternions that are predicted whole the length 1."""
    for path in [path for path in known if path.endswith("orientation.w") or path.endswith("rotation.w")]:
        names = [path[:-1] + axis for axis in "xyzw"]
        if all(name in known for name in names):
            length = math.sqrt(sum(known[name] ** 2 for name in names))
            if length > 0:
                known.update({name: known[name] / length for name in names})
