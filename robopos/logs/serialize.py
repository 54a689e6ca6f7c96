"""Field mappings to ROS 2 cdr bytes (plain XCDR1, little endian)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robopos.errors import LogError
from robopos.logs.schema import NUMBERS, Field, MessageType
from robopos.stamps import NS_PER_S

_TIMES = frozenset({"builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration"})
_STRUCTS = {code: struct.Struct("<" + letter) for code, letter in zip(
    ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"), "BbHhIiQqfd", strict=True
)}  # fmt: skip


def serialize(message: MessageType, value: Mapping[str, Any] | None) -> bytes:
    """Serialize one message.

    Args:
        message: the type.
        value: nested mapping of fields; a missing field takes its default, or zero, empty text, no elements.
            A Time or Duration may be an int of nanoseconds.

    Raises:
        LogError: an unknown field, a value of the wrong kind or range, a fixed array of another size.
    """
    out = bytearray(b"\x00\x01\x00\x00")
    _write(out, message, {} if value is None else value, message.name)
    return bytes(out)


def _write(out: bytearray, message: MessageType, value: Any, where: str) -> None:
    if message.name in _TIMES and isinstance(value, (int, np.integer)):
        sec, nanosec = divmod(int(value), NS_PER_S)
        value = {"sec": sec, "nanosec": nanosec}
    if not isinstance(value, Mapping):
        raise LogError(f"{where}: expected a mapping of fields, got {type(value).__name__}")
    if len(value) > 0:
        known = {field.name for field in message.fields}
        for name in value:
            if name not in known:
                raise LogError(
                    f"{where}: {message.name} has no field {name!r}; its fields are {', '.join(sorted(known))}"
                )
    for field in message.fields:
        item = value.get(field.name, field.default)
        path = f"{where}.{field.name}"
        if field.array == "one":
            _write_one(out, field, item, path)
        else:
            _write_array(out, field, item, path)


def _align(out: bytearray, width: int) -> None:
    out.extend(b"\0" * (-(len(out) - 4) % width))


def _write_one(out: bytearray, field: Field, item: Any, path: str) -> None:
    if field.message is not None:
        _write(out, field.message, {} if item is None else item, path)
    elif field.primitive in NUMBERS:
        packer = _STRUCTS[NUMBERS[field.primitive]]
        _align(out, packer.size)
        try:
            out += packer.pack(0 if item is None else item if NUMBERS[field.primitive][0] == "f" else _whole(item))
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            raise LogError(f"{path}: {item!r} is no {field.primitive} ({error})") from error
    elif field.primitive == "string":
        if item is not None and not isinstance(item, str):
            raise LogError(f"{path}: {item!r} is no string")
        try:
            raw = (item or "").encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise LogError(f"{path}: {item!r} is no string ({error})") from error
        _align(out, 4)
        out += (len(raw) + 1).to_bytes(4, "little") + raw + b"\0"
    else:
        raise LogError(f"{path}: {field.primitive} is not written")


def _whole(item: Any) -> int:
    """The number, not cut: a fraction or a text is refused, as in a list."""
    number = int(item)
    if number != item:
        raise ValueError("no whole number")
    return number


def _write_array(out: bytearray, field: Field, item: Any, path: str) -> None:
    if item is None:
        item = [None] * field.size if field.array == "fixed" else []
    if not isinstance(item, (Sequence, np.ndarray)) or isinstance(item, str):
        raise LogError(f"{path}: expected a list of values, got {type(item).__name__}")
    if field.array == "fixed" and len(item) != field.size:
        raise LogError(f"{path}: expected {field.size} values, got {len(item)}")
    if field.array == "sequence":
        _align(out, 4)
        out += len(item).to_bytes(4, "little")
    if field.primitive in NUMBERS and len(item) > 0 and item[0] is not None:
        code = NUMBERS[field.primitive]
        try:
            values = np.frombuffer(item, "u1") if isinstance(item, (bytes, bytearray)) else np.asarray(item)
            if values.dtype.kind not in "biufO":  # texts would be read, complex numbers cut
                raise TypeError(f"got {values.dtype}")
            with np.errstate(over="ignore", invalid="ignore"):
                packed = values.astype("<" + code)
            if code == "f4" and (np.isinf(packed) & np.isfinite(values.astype("f8"))).any():
                raise OverflowError("float too large")
        except (TypeError, ValueError, OverflowError) as error:
            raise LogError(f"{path}: these are no {field.primitive} values ({error})") from error
        if packed.ndim != 1 or (code[0] != "f" and not np.array_equal(packed, values)):
            raise LogError(f"{path}: values do not fit a list of {field.primitive}")
        _align(out, int(code[1]))
        out += packed.tobytes()
        return
    for index, one in enumerate(item):
        _write_one(out, field, one, f"{path}[{index}]")
