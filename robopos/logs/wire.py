"""Where everything lies in one serialized message: a walk of the type over the bytes.

Two serializations share the walk. ROS 2 `cdr`: plain XCDR1 (OMG DDS-XTypes 1.3 §7.4.1) behind a header of four
bytes, primitives aligned to their size counted from the end of that header, either byte order, strings with a
length that counts their closing zero. ROS 1: the same without header, alignment and closing zero.

The structural words (lengths of strings and sequences) alone decide where the rest lies: two messages with
equal structural words have equal layouts. That is what the column decoder relies on.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from robopos.errors import LogError
from robopos.logs.schema import NUMBERS, Field, MessageType

# Tools that only estimate the serialized size may leave this many stray bytes, once more an empty sequence.
STRAY = 8
# Numbers, texts and arrays of one message: each costs time and memory, whatever its size.
MAX_ITEMS = 1 << 18


class Numbers(NamedTuple):
    """Numbers at `offset` of the payload: numpy code without byte order; `size` is how many, -1 for a single one."""

    path: str
    code: str
    offset: int
    size: int


class Text(NamedTuple):
    """A string at `offset` of the payload, `length` bytes without a closing zero."""

    path: str
    offset: int
    length: int


class Walk(NamedTuple):
    """The layout of one message.

    Attributes:
        order: "<" or ">".
        numbers, texts: what the message holds, in wire order.
        words: offsets of the structural uint32 words.
        end: bytes that the message needs.
        stray: bytes that may follow.
    """

    order: str
    numbers: list[Numbers]
    texts: list[Text]
    words: list[int]
    end: int
    stray: int


def walk(message: MessageType, data: bytes | memoryview, *, ros1: bool = False) -> Walk:
    """Lay `message` over one payload.

    Raises:
        LogError: the bytes are too short, a length points outside them, too many bytes are left over, or the
            header names a serialization other than plain XCDR1.
    """
    order = "<" if ros1 else byte_order(message.name, data)
    walker = _Walker(message.name, data, order, ros1)
    walker.message(message, "")
    stray = STRAY + STRAY * walker.empties
    if len(data) - walker.at > stray:
        raise LogError(
            f"{message.name}: the message has {len(data)} bytes and its schema describes {walker.at}: "
            "the schema does not fit the bytes"
        )
    return Walk(order, walker.numbers, walker.texts, walker.words, walker.at, stray)


def byte_order(name: str, data: bytes | memoryview) -> str:
    """Read the encapsulation header of a cdr payload: "<" or ">".

    Raises:
        LogError: fewer than 4 bytes, or another serialization (parameter lists, XCDR2).
    """
    if len(data) < 4:
        raise LogError(f"{name}: a message of {len(data)} bytes has no cdr header (4 bytes)")
    kind = data[0] << 8 | data[1]
    if kind > 1:
        what = "XCDR2" if 6 <= kind <= 11 else "a parameter list" if kind in (2, 3) else "unknown"
        raise LogError(f"{name}: serialization 0x{kind:04x} ({what}) is not read; plain XCDR1 (0x0000, 0x0001) is")
    return "<" if kind == 1 else ">"


def min_size(message: MessageType) -> int:
    """The fewest bytes that a value of this type takes, padding aside."""
    return sum(_min_field(field) for field in message.fields)


def _min_field(field: Field) -> int:
    if field.array == "sequence":
        return 4
    one = min_size(field.message) if field.message is not None else _width(field.primitive)
    return one * (field.size if field.array == "fixed" else 1)


def _width(primitive: str | None) -> int:
    return int(NUMBERS.get(str(primitive), "u4")[1])


class _Walker:
    def __init__(self, root: str, data: bytes | memoryview, order: str, ros1: bool) -> None:
        self.root = root
        self.data = data
        self.size = len(data)
        self.ros1 = ros1
        self.at = 0 if ros1 else 4
        self.word = struct.Struct(order + "I")
        self.numbers: list[Numbers] = []
        self.texts: list[Text] = []
        self.words: list[int] = []
        self.empties = 0

    def message(self, message: MessageType, prefix: str) -> None:
        if len(self.numbers) + len(self.texts) > MAX_ITEMS:
            raise LogError(f"{self.root}: the message holds more than {MAX_ITEMS} numbers and texts")
        for field in message.fields:
            path = prefix + field.name
            count = -1
            if field.array == "fixed":
                count = field.size
            elif field.array == "sequence":
                count = self.length(path)
                self.empties += count == 0
            if field.message is not None:
                if count < 0:
                    self.message(field.message, path + ".")
                    continue
                one = min_size(field.message)
                self.claim(path, one * count)
                if one > 0:
                    for index in range(count):
                        self.message(field.message, f"{path}[{index}].")
            elif field.primitive in NUMBERS:
                code = NUMBERS[field.primitive]
                if count != 0:
                    width = int(code[1])
                    self.align(width)
                    self.claim(path, width * abs(count))
                    self.numbers.append(Numbers(path, code, self.at, count))
                    self.at += width * abs(count)
                else:
                    self.numbers.append(Numbers(path, code, self.at, 0))
            elif field.primitive == "wstring":
                raise LogError(f"{self.root}: field {path} is a wstring, whose bytes differ between vendors: not read")
            elif count < 0:
                self.text(path)
            else:
                self.claim(path, 4 * count)
                if count > MAX_ITEMS:
                    raise LogError(f"{self.root}: field {path} holds {count} texts; the limit is {MAX_ITEMS}")
                for index in range(count):
                    self.text(f"{path}[{index}]")

    def align(self, width: int) -> None:
        if not self.ros1 and width > 1:
            self.at += -(self.at - 4) % width

    def claim(self, path: str, size: int) -> None:
        if self.at + size > self.size:
            raise LogError(
                f"{self.root}: field {path} needs {size} bytes at offset {self.at} "
                f"but the message has {self.size}: the schema does not fit the bytes"
            )

    def length(self, path: str) -> int:
        self.align(4)
        self.claim(path, 4)
        (value,) = self.word.unpack_from(self.data, self.at)
        self.words.append(self.at)
        self.at += 4
        return int(value)

    def text(self, path: str) -> None:
        length = self.length(path)
        self.claim(path, length)
        self.texts.append(Text(path, self.at, length if self.ros1 else max(length - 1, 0)))
        self.at += length
