"""Messages that carry their own names: JSON (by RFC 8259) and protobuf, as the MCAP registry describes them.

A message becomes a tree of mappings, lists, numbers and texts, and that tree a layout over an array of float64,
so that paths, element names and missing values follow the same rules as in the other encodings.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from graphlib import TopologicalSorter
from typing import Any

from robopos.errors import LogError
from robopos.logs.schema import MAX_DEPTH, MAX_NAME
from robopos.logs.wire import MAX_ITEMS, Numbers, Text, Walk

Parse = Callable[[bytes], Any]
# Where a stamp and a frame stand: ROS messages and Foxglove's well-known schemas.
_STAMPS = ("header.stamp", "timestamp")
_FRAMES = ("header.frame_id", "frame_id")
_SECONDS = ("sec", "secs", "seconds")
_FRACTIONS = ("nanosec", "nsec", "nsecs", "nanos")


def parser(type: str, schema: str, encoding: str) -> Parse:
    """The function that turns the payload of one message into a tree.

    Args:
        type: full name of the type.
        schema: for protobuf the FileDescriptorSet in base64 (as the readers of this package give it); not used
            for JSON.
        encoding: "json" or "protobuf".

    Raises:
        LogError: `protobuf` is not installed, or the descriptor is broken.
    """
    return _json if encoding == "json" else _protobuf(type, schema)


def lay(name: str, tree: Any) -> tuple[Walk, bytes]:
    """Lay a tree out: (layout, bytes) with its numbers as float64 and its texts as UTF-8, in order.

    Raises:
        LogError: the tree is no mapping, is deeper than MAX_DEPTH, has more than MAX_ITEMS numbers and texts, a
            name longer than MAX_NAME, or a number that is no float64.
    """
    if not isinstance(tree, Mapping):
        raise LogError(f"{name}: the message is no mapping of fields")
    numbers: list[Numbers] = []
    texts: list[Text] = []
    out = bytearray()

    def visit(value: Any, path: str, depth: int) -> None:
        if depth > MAX_DEPTH or len(numbers) + len(texts) > MAX_ITEMS:
            raise LogError(f"{name}: the message is deeper than {MAX_DEPTH} or holds more than {MAX_ITEMS} items")
        if isinstance(value, Mapping):
            for key, item in value.items():
                if len(key) > MAX_NAME:
                    raise LogError(f"{name}: a name in the message has {len(key)} letters; the limit is {MAX_NAME}")
                visit(item, f"{path}.{key}" if path else str(key), depth + 1)
        elif isinstance(value, (list, tuple)):
            if value and all(isinstance(item, (int, float)) for item in value):
                numbers.append(Numbers(path, "f8", len(out), len(value)))
                out.extend(struct.pack(f"<{len(value)}d", *map(float, value)))
            else:
                for index, item in enumerate(value):
                    visit(item, f"{path}[{index}]", depth + 1)
        elif isinstance(value, (int, float)):
            numbers.append(Numbers(path, "f8", len(out), -1))
            out.extend(struct.pack("<d", float(value)))
        elif isinstance(value, str):
            raw = value.encode("utf-8", "replace")  # JSON may hold half of a surrogate pair
            texts.append(Text(path, len(out), len(raw)))
            out.extend(raw)

    try:
        visit(tree, "", 0)
    except OverflowError as error:
        raise LogError(f"{name}: the message does not become numbers ({error})") from error
    return Walk("<", numbers, texts, [], len(out), 0), bytes(out)


def stamp_and_frame(tree: Any) -> tuple[int | None, str | None]:
    """(stamp in ns, frame id) of a tree, None where it has none."""
    stamp, frame = None, None
    for path in _STAMPS:
        time = _at(tree, path)
        if isinstance(time, Mapping):
            sec = next((time[key] for key in _SECONDS if key in time), None)
            nanosec = next((time[key] for key in _FRACTIONS if key in time), 0)
            if isinstance(sec, int) and isinstance(nanosec, int):
                stamp = sec * 1_000_000_000 + nanosec
                if not -(2**63) <= stamp < 2**63:
                    raise LogError(f"{path} is no time: {str(stamp)[:40]} ns do not fit int64")
                break
    for path in _FRAMES:
        found = _at(tree, path)
        if isinstance(found, str):
            frame = found
            break
    return stamp, frame


def _at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return None
        tree = tree[part]
    return tree


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LogError(f"the message is no JSON ({error})") from error


def _protobuf(type: str, schema: str) -> Parse:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ImportError:
        raise LogError(f"{type}: protobuf messages need: pip install 'robopos[protobuf]'") from None
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema))
        pool = descriptor_pool.DescriptorPool()
        named = {file.name: file for file in files.file}
        for name in TopologicalSorter({name: list(file.dependency) for name, file in named.items()}).static_order():
            if name not in named:
                raise KeyError(f"{name}, which another file imports")
            pool.Add(named[name])
        factory = message_factory.GetMessageClass(pool.FindMessageTypeByName(type))
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise LogError(f"{type}: the protobuf descriptor is broken ({error})") from error

    def parse(data: bytes) -> Any:
        try:
            return _plain(factory.FromString(data))
        except DecodeError as error:
            raise LogError(f"{type}: the message is no {type} ({error})") from error

    return parse


def _plain(message: Any) -> dict[str, Any]:
    """A protobuf message as plain types; a nested message that is not set is left out, bytes and maps too."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        nested = field.message_type
        if field.type == field.TYPE_BYTES or (nested is not None and nested.GetOptions().map_entry):
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            plain[field.name] = [_plain(item) if nested is not None else item for item in value]
        elif nested is None:
            plain[field.name] = value
        elif message.HasField(field.name):
            plain[field.name] = _plain(value)
    return plain
