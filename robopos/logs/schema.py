"""Message definitions as trees: the text of a schema to `MessageType`.

Two texts are read: the concatenated `.msg` form that rosbag2 and ROS 1 write (sections divided by a line of
`=`, each headed `MSG: pkg/Type`), after the ROS interface definition rules, and (in `idl`) OMG IDL.
"""

from __future__ import annotations

import ast
import re
from typing import Literal, NamedTuple

from robopos.errors import LogError

# Bytes of each primitive and its numpy letter; `string` and `wstring` have no fixed size.
NUMBERS: dict[str, str] = {
    "bool": "u1",
    "byte": "u1",
    "char": "u1",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
    "float32": "f4",
    "float64": "f8",
}
TEXTS = frozenset({"string", "wstring"})
# No message of a robot comes near these; a schema that goes beyond is refused before it costs time or memory.
MAX_SCHEMA = 1_000_000  # letters of the text
MAX_NAME = 255  # letters of a field's name
MAX_DEPTH = 64  # types inside types
MAX_FIELDS = 4096  # fields of a type and the types inside, elements of fixed arrays of types counted one by one
MAX_DEFAULT = 1000  # letters of a default that is read

_SECTION = re.compile(r"^={3,}[ \t\r]*$", re.MULTILINE)
_HEAD = re.compile(r"^(?:MSG|IDL):\s*(\S+)\s*$")
_LINE = re.compile(
    r"^(?P<type>[A-Za-z][\w/]*)(?:<=\d+)?(?P<array>\[(?:<=)?\d*\])?\s+(?P<name>[A-Za-z]\w*)\s*(?P<rest>.*)$"
)


class Field(NamedTuple):
    """One field: `array` is "one" value, a "fixed" number (`size`) of them, or a "sequence".

    `primitive` names the primitive, or is None where `message` is the nested type.
    """

    name: str
    array: Literal["one", "fixed", "sequence"]
    size: int
    primitive: str | None
    message: MessageType | None
    default: object = None


class MessageType(NamedTuple):
    """A message type "pkg/msg/Type" (ROS 1: "pkg/Type") with its fields in wire order."""

    name: str
    fields: tuple[Field, ...]


class RawField(NamedTuple):
    """A field whose type is still a name."""

    type: str
    array: Literal["one", "fixed", "sequence"]
    size: int
    name: str
    default: object


def short_name(name: str) -> str:
    """ "sensor_msgs/msg/Imu" and "sensor_msgs/Imu" to "sensor_msgs/Imu"."""
    parts = name.split("/")
    return f"{parts[0]}/{parts[-1]}" if len(parts) > 1 else name


def long_name(name: str) -> str:
    """ "sensor_msgs/Imu" to "sensor_msgs/msg/Imu", as ROS 2 tools name it."""
    parts = name.split("/")
    return f"{parts[0]}/msg/{parts[1]}" if len(parts) == 2 else name


def parse_schema(name: str, text: str, encoding: str = "ros2msg") -> MessageType:
    """Parse the full text of a schema.

    Args:
        name: the type of the root message.
        text: concatenated definitions ("ros2msg", "ros1msg") or IDL ("ros2idl").
        encoding: which of the three.

    Raises:
        LogError: a line that is no field, a nested type without a definition, a type that contains itself, more than
            MAX_SCHEMA letters, MAX_DEPTH types inside each other, or MAX_FIELDS fields.
    """
    if len(text) > MAX_SCHEMA:
        raise LogError(f"{name}: the schema has {len(text)} letters; the limit is {MAX_SCHEMA}")
    if encoding == "ros2idl":
        from robopos.logs.idl import parse_idl

        return link(name, parse_idl(name, text), ros1=False)
    if encoding not in ("ros2msg", "ros1msg"):
        raise LogError(
            f"{name}: schema encoding {encoding!r} has no fields to read here; "
            "known are ros2msg, ros2idl, ros1msg, jsonschema and protobuf"
        )
    return link(name, _sections(name, text), ros1=encoding == "ros1msg")


def _sections(name: str, text: str) -> dict[str, list[RawField]]:
    definitions: dict[str, list[RawField]] = {}
    for number, section in enumerate(_SECTION.split(text)):
        lines = section.strip().splitlines()
        current = short_name(name)
        if number > 0:
            while lines and not lines[0].strip():
                lines.pop(0)
            head = _HEAD.match(lines[0].strip()) if lines else None
            if head is None:
                if not lines:
                    continue
                raise LogError(f"{name}: the schema has a section without a 'MSG: pkg/Type' line")
            current = short_name(head.group(1))
            lines.pop(0)
        fields = [field for line in lines if (field := _field(name, line)) is not None]
        definitions.setdefault(current, fields)
    return definitions


def _field(name: str, line: str) -> RawField | None:
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    match = _LINE.match(line)
    if match is None:
        raise LogError(f"{name}: the schema line {line[:80]!r} is not a field definition")
    rest = match["rest"]
    if rest.startswith("="):
        return None  # a constant has no place in the bytes
    kind = match["type"]
    array: Literal["one", "fixed", "sequence"] = "one"
    size = 0
    if match["array"]:
        inner = match["array"][1:-1]
        array = "fixed" if inner.isdigit() else "sequence"
        size = array_size(name, inner) if inner.isdigit() else 0
    return RawField(kind, array, size, match["name"], _default(kind, rest))


def array_size(name: str, word: str) -> int:
    """The size of a fixed array.

    Raises:
        LogError: it is no number of at most nine digits.
    """
    if not word.isdigit() or not word.isascii() or len(word) > 9:
        raise LogError(f"{name}: the schema has an array of {word[:40]!r} elements")
    return int(word)


def _default(kind: str, rest: str) -> object:
    if kind not in TEXTS:
        rest = rest.split("#", 1)[0]
    rest = rest.strip()
    if not rest or rest.startswith("#") or len(rest) > MAX_DEFAULT:
        return None
    if kind in TEXTS and rest[0] not in "\"'[":
        return rest.split("#", 1)[0].strip()
    literal = {"true": "True", "false": "False"}.get(rest.lower(), rest)
    literal = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", literal))
    try:
        value: object = ast.literal_eval(literal)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None  # a default is only used in writing, where none means zero
    return value


def link(name: str, definitions: dict[str, list[RawField]], *, ros1: bool) -> MessageType:
    """Resolve the type names of `definitions` into the tree of `name`.

    Raises:
        LogError: a definition is missing, or a type contains itself.
    """
    done: dict[str, MessageType] = {}
    sizes: dict[str, int] = {}

    def build(current: str, trail: tuple[str, ...]) -> MessageType:
        if current in done:
            return done[current]
        if current in trail:
            raise LogError(f"{name}: the type {current} contains itself")
        if len(trail) >= MAX_DEPTH:
            raise LogError(f"{name}: the schema has more than {MAX_DEPTH} types inside each other")
        raw = definitions.get(current)
        if raw is None:
            raw = _BUILTIN.get(current)
        if raw is None:
            raise LogError(f"{name}: the schema has no definition of {current}")
        package = current.split("/")[0]
        fields = []
        size = 1
        for item in raw:
            if len(item.name) > MAX_NAME:
                raise LogError(f"{name}: a field's name has {len(item.name)} letters; the limit is {MAX_NAME}")
            kind = item.type
            if ros1:
                kind = {"byte": "int8", "time": "ros1/Time", "duration": "ros1/Duration"}.get(kind, kind)
            if kind in NUMBERS or kind in TEXTS:
                fields.append(Field(item.name, item.array, item.size, kind, None, item.default))
                size += 1
                continue
            if "/" not in kind:
                kind = "std_msgs/Header" if kind == "Header" else f"{package}/{kind}"
            nested = build(short_name(kind), (*trail, current))
            size += sizes[short_name(kind)] * (item.size if item.array == "fixed" else 1)
            fields.append(Field(item.name, item.array, item.size, None, nested, item.default))
        if not fields and not ros1:
            # IDL has no empty structure: ROS 2 writes one byte for an empty message.
            fields.append(Field("structure_needs_at_least_one_member", "one", 0, "uint8", None))
        if size > MAX_FIELDS:
            raise LogError(f"{name}: the schema describes more than {MAX_FIELDS} fields")
        sizes[current] = size
        done[current] = MessageType(current if ros1 else long_name(current), tuple(fields))
        return done[current]

    return build(short_name(name), ())


def _time(seconds: str, fraction: str) -> list[RawField]:
    return [
        RawField(seconds, "one", 0, "sec", None),
        RawField(fraction, "one", 0, "nanosec", None),
    ]


# Primitives of ROS 1, and the two types that older ROS 2 recorders leave out of the text.
_BUILTIN: dict[str, list[RawField]] = {
    "builtin_interfaces/Time": _time("int32", "uint32"),
    "builtin_interfaces/Duration": _time("int32", "uint32"),
    "ros1/Time": _time("uint32", "uint32"),
    "ros1/Duration": _time("int32", "int32"),
}
