"""One decoder for logs and live messages: bytes to a row of numbers."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from robopos.arrays import Floats
from robopos.errors import LogError
from robopos.logs.fields import check_columns, check_paths, static_names
from robopos.logs.schema import MessageType, parse_schema
from robopos.logs.template import Template, compile_template, has_header, template_of
from robopos.logs.tree import Parse, lay, parser, stamp_and_frame
from robopos.stamps import NS_PER_S

# Layouts kept; a stream alternates between few (two publishers, an array that is now and then empty).
_KEPT = 16
ENCODINGS = ("cdr", "ros1", "json", "protobuf")
# What begins an IDL text, and is no line of a .msg text: there, words such as these stand behind a `#`.
_IDL = re.compile(r"^(?:[^#\n]*\*/)?[ \t]*module\s+\w+\s*(?://[^\n]*\s*)?\{", re.MULTILINE)


class Decoded(NamedTuple):
    """One decoded message: `values` float64 (d,), the header's stamp in ns and frame, None without a header."""

    values: Floats
    stamp_ns: int | None
    frame_id: str | None


class Decoder:
    """Reads the asked fields out of serialized messages of one type.

    Args:
        type: "sensor_msgs/msg/Imu".
        schema: the full text of its definition: ros2msg or ros2idl for cdr, ros1msg for ros1, the
            FileDescriptorSet in base64 for protobuf; not used for json.
        fields: field paths, see `robopos.logs.StreamSpec`.
        encoding: "cdr" (ROS 2), "ros1", "json" or "protobuf".

    `layouts` counts the layouts met so far.

    Raises:
        LogError: the schema is empty or broken, a field is not in the type, the encoding is unknown.
    """

    def __init__(self, type: str, schema: str, fields: Sequence[str], encoding: str = "cdr") -> None:
        if encoding not in ENCODINGS:
            raise LogError(f"{type}: message encoding {encoding!r} is not read; known are {', '.join(ENCODINGS)}")
        self.type = type
        self.fields = tuple(fields)
        self.ros1 = encoding == "ros1"
        self.layouts = 0
        self._templates: list[Template] = []
        self._counted: list[tuple[tuple[int, bytes], ...]] = []
        self._message: MessageType | None = None
        self._parse: Parse | None = None
        self._stamped = False
        self._static: list[tuple[str, ...] | None] = [None] * len(self.fields)
        if encoding in ("json", "protobuf"):
            self._parse = parser(type, schema, encoding)
        else:
            if not schema.strip() and type.rsplit("/", 1)[-1] != "Empty":
                raise LogError(f"{type}: the schema is empty, so its fields are unknown")
            self._message = parse_schema(type, schema, schema_encoding(schema, self.ros1))
            check_paths(self._message, self.fields, type)
            self._static = [static_names(self._message, path) for path in self.fields]
        self._names = None if None in self._static else self.expand(())

    @property
    def names(self) -> tuple[str, ...]:
        """The expanded field names, one a column.

        Raises:
            LogError: a field expands by what the messages hold (joint names), and none was decoded yet.
        """
        if self._names is None:
            raise LogError(
                f"{self.type}: {', '.join(self.fields)} expand by what a message holds: decode one first, "
                "or ask for expanded names such as 'position[shoulder]'"
            )
        return self._names

    def expand(self, found: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """The columns, where each field that the type alone does not expand holds the names `found` for it.

        A field for which nothing was found stays as it is: a column of what is missing.
        """
        parts = [
            (found[number] or (self.fields[number],)) if static is None else static
            for number, static in enumerate(self._static)
        ]
        names = tuple(dict.fromkeys(name for part in parts for name in part))
        check_columns(self.type or "the message", len(names))
        return names

    def widen(self, found: Sequence[Sequence[str]]) -> bool:
        """Take in the names that later messages held (see `expand`); whether there are new ones. Not among threads."""
        names = self.expand(found)
        if set(names) <= set(self.names):
            return False
        self._names = names
        self._counted, self._templates = [template.checks for template in self._templates], []
        return True

    @property
    def named(self) -> bool:
        """Whether `names` is fixed."""
        return self._names is not None

    @property
    def columnar(self) -> bool:
        """Whether equal layouts can be told by comparing bytes, so that many messages are read at once."""
        return self._message is not None

    @property
    def has_header(self) -> bool:
        """Whether the messages have a stamp: by the type, or where that does not tell, by those seen so far."""
        return self._stamped if self._message is None else has_header(self._message)

    def same_type(self, other: Decoder) -> bool:
        """Whether both read the same definition, comments and constants aside."""
        return self._message == other._message

    def decode(self, data: bytes | memoryview) -> Decoded:
        """Decode one payload. A named element that the message has not is NaN.

        The first message fixes `names` where the fields alone do not.

        Raises:
            LogError: the bytes do not fit the schema.
        """
        return self.read(data)[0]

    def read(self, data: bytes | memoryview) -> tuple[Decoded, Template]:
        """Decode one payload, and say how it is laid out.

        Raises:
            LogError: the bytes do not fit the schema.
        """
        if self._parse is None:
            template = self.template(data)
            return self.decode_as(template, data), template
        tree = self._parse(bytes(data))
        layout, payload = lay(self.type, tree)
        if self._names is None:
            self._names = self.expand(template_of(layout, self.fields, (), payload).found)
        template = template_of(layout, self.fields, self._names, payload)
        if template.missing:
            template = template._replace(held=tuple(item.path for item in layout.numbers))
        stamp, frame = stamp_and_frame(tree)
        self._stamped = self._stamped or stamp is not None
        return Decoded(template.numbers(payload, len(self._names)), stamp, frame), template

    def decode_as(self, template: Template, data: bytes | memoryview) -> Decoded:
        """Decode one payload that fits `template`."""
        stamp = None
        if template.stamp is not None:
            # Seconds are int32 in ROS 2 and uint32 in ROS 1.
            code = template.order + ("II" if self.ros1 else "iI")
            sec, nanosec = struct.unpack_from(code, data, template.stamp)
            stamp = sec * NS_PER_S + nanosec
        frame = None
        if template.frame is not None:
            offset, length = template.frame
            frame = bytes(data[offset : offset + length]).decode("utf-8", "replace")
        return Decoded(template.numbers(data, len(self.names)), stamp, frame)

    def template(self, data: bytes | memoryview) -> Template:
        """The layout of one payload of a columnar encoding, compiled at first sight.

        Raises:
            LogError: the bytes do not fit the schema.
        """
        kept = self._templates
        for template in kept:
            if template.fits(data):
                return template
        if self._message is None:
            raise LogError(f"{self.type}: this encoding has no fixed layouts")
        if self._names is None:
            found = compile_template(self._message, self.fields, (), data, self.ros1).found
            self._names = self.expand(found)
        template = compile_template(self._message, self.fields, self._names, data, self.ros1)
        self.layouts += template.checks not in self._counted
        # A new list, so that threads that read the old one are not disturbed.
        self._templates = [template, *kept[: _KEPT - 1]]
        return template


def schema_encoding(schema: str, ros1: bool) -> str:
    """Which text a definition is: "ros1msg", "ros2msg" or "ros2idl"."""
    if ros1:
        return "ros1msg"
    return "ros2idl" if _IDL.search(schema) else "ros2msg"
