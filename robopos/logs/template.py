"""A compiled layout: what must be equal for a message to have it, and where its asked numbers lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robopos.arrays import Floats
from robopos.logs.fields import Place, find
from robopos.logs.gather import PAYLOAD
from robopos.logs.schema import Field, MessageType, short_name
from robopos.logs.wire import Text, Walk, walk


class Group(NamedTuple):
    """Columns `first` to `first + size` lie one after another from `offset`; `dtype` with byte order."""

    first: int
    size: int
    offset: int
    dtype: np.dtype[np.generic]


class Template(NamedTuple):
    """The layout of every message whose length is in [end, limit] and whose `checks` hold.

    Attributes:
        end, limit: fewest and most bytes of a payload.
        checks: (offset, bytes) that must be equal: structural words and the strings that name elements.
        quick: words that cover all checks and the strings and padding between them: where they are equal the
            checks hold; where not, the checks decide.
        frame_in_quick: whether they cover the frame id.
        row: dtype of a gathered row, with the fields q0, q1, ... (quick), g0, g1, ... (groups), sec, nanosec.
        groups: where the columns are; a column in none of them is not in these messages.
        missing: numbers of the columns that these messages have not.
        stamp: offset of header.stamp, or None; `order` is its byte order.
        frame: (offset, length) of header.frame_id, or None.
        found: for each asked path, the names that these messages hold.
        held: names of the arrays out of which single elements were asked.
    """

    end: int
    limit: int
    checks: tuple[tuple[int, bytes], ...]
    quick: tuple[npt.NDArray[np.generic], ...]
    frame_in_quick: bool
    row: np.dtype[np.void]
    groups: tuple[Group, ...]
    missing: tuple[int, ...]
    order: str
    stamp: int | None
    frame: tuple[int, int] | None
    found: tuple[tuple[str, ...], ...]
    held: tuple[str, ...]

    def fits(self, data: bytes | memoryview) -> bool:
        """Whether one payload has this layout."""
        if not self.end <= len(data) <= self.limit:
            return False
        return all(data[offset : offset + len(want)] == want for offset, want in self.checks)

    def numbers(self, data: bytes | memoryview, columns: int) -> Floats:
        """The asked numbers of one payload that fits, float64 (columns,); what is missing is NaN."""
        row = np.full(columns, np.nan) if self.missing else np.empty(columns)
        for group in self.groups:
            row[group.first : group.first + group.size] = np.frombuffer(data, group.dtype, group.size, group.offset)
        return row


def has_header(message: MessageType) -> bool:
    """Whether the message begins with a std_msgs/Header named `header`, which has a stamp."""
    first = message.fields[0] if message.fields else None
    return (
        first is not None
        and first.name == "header"
        and first.array == "one"
        and first.message is not None
        and short_name(first.message.name) == "std_msgs/Header"
        and any(map(_is_stamp, first.message.fields))
    )


def _is_stamp(field: Field) -> bool:
    """Whether a field is the stamp that a header has everywhere; a log may define its types as it likes."""
    parts = field.message.fields if field.message is not None else ()
    whole = field.name == "stamp" and field.array == "one" and all(part.array == "one" for part in parts)
    primitives = tuple(part.primitive for part in parts)
    return whole and primitives in (("int32", "uint32"), ("uint32", "uint32")) and parts[0].name == "sec"


def compile_template(
    message: MessageType, paths: Sequence[str], names: Sequence[str], data: bytes | memoryview, ros1: bool
) -> Template:
    """Walk one message and keep what a message of the same layout needs.

    Args:
        message: the type.
        paths: the asked field paths.
        names: the columns.
        data: one payload.
        ros1: the serialization (else cdr).

    Raises:
        LogError: the bytes do not fit the type.
    """
    layout = walk(message, data, ros1=ros1)
    stamp, frame = None, None
    if has_header(message):
        stamp = next(item.offset for item in layout.numbers if item.path == "header.stamp.sec")
        frame = next(((t.offset, t.length) for t in layout.texts if t.path == "header.frame_id"), None)
    head = [] if ros1 else [(0, 2)]  # the byte order
    return template_of(layout, paths, names, data, head=head, stamp=stamp, frame=frame, sec="u4" if ros1 else "i4")


def template_of(
    layout: Walk,
    paths: Sequence[str],
    names: Sequence[str],
    data: bytes | memoryview,
    *,
    head: Sequence[tuple[int, int]] = (),
    stamp: int | None = None,
    frame: tuple[int, int] | None = None,
    sec: str = "i4",
) -> Template:
    """The template of one laid out payload; `head` are further bytes to check, `sec` is the type of its seconds."""
    found = find(layout, paths, data)
    places: dict[str, Place] = {}
    for column in found.columns:
        places.update(column)
    checks = _checks(data, [*head] + [(word, 4) for word in layout.words] + found.label_texts)
    spans = _spans([(offset, len(want)) for offset, want in checks], layout.texts, layout.end)
    groups = _groups(names, places, layout.order)
    return Template(
        end=layout.end,
        limit=layout.end + layout.stray,
        checks=checks,
        quick=tuple(np.frombuffer(data, f"u{unit}", count, offset).copy() for offset, unit, count in spans),
        frame_in_quick=frame is not None and any(o <= frame[0] and sum(frame) <= o + u * c for o, u, c in spans),
        row=_row(spans, groups, stamp, layout.order + sec, layout.order + "u4", layout.end),
        groups=groups,
        missing=tuple(number for number, name in enumerate(names) if name not in places),
        order=layout.order,
        stamp=stamp,
        frame=frame,
        found=tuple(tuple(column) for column in found.columns),
        held=tuple(dict.fromkeys(found.held)),
    )


def _checks(data: bytes | memoryview, ranges: list[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    """Equal byte ranges, neighbours joined."""
    checks: list[list[int]] = []
    for offset, length in sorted(item for item in ranges if item[1] > 0):
        if checks and checks[-1][0] + checks[-1][1] == offset:
            checks[-1][1] += length
        else:
            checks.append([offset, length])
    return tuple((offset, bytes(data[offset : offset + length])) for offset, length in checks)


def _spans(checks: list[tuple[int, int]], texts: Sequence[Text], end: int) -> list[tuple[int, int, int]]:
    """(offset, unit, count) of words that cover the checks, with the strings and the padding between them."""
    ranges = sorted(checks + [(text.offset, text.length) for text in texts if text.length])
    spans: list[tuple[int, int]] = []
    for offset, length in ranges:
        if spans and offset - spans[-1][1] < 8:
            spans[-1] = spans[-1][0], max(spans[-1][1], offset + length)
        else:
            spans.append((offset, offset + length))
    words = []
    for start, stop in spans:
        stop = min(start + -(-(stop - start) // 4) * 4, end)
        unit = 4 if start % 4 == 0 and (stop - start) % 4 == 0 else 1
        words.append((start, unit, (stop - start) // unit))
    return words


def _row(
    spans: list[tuple[int, int, int]], groups: tuple[Group, ...], stamp: int | None, sec: str, nanosec: str, end: int
) -> np.dtype[np.void]:
    fields: dict[str, tuple[object, int]] = {}
    for number, (offset, unit, count) in enumerate(spans):
        fields[f"q{number}"] = ((f"u{unit}", (count,)), offset)
    for number, group in enumerate(groups):
        fields[f"g{number}"] = ((group.dtype, (group.size,)), group.offset)
    if stamp is not None:
        fields |= {"sec": (sec, stamp), "nanosec": (nanosec, stamp + 4)}
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [PAYLOAD + offset for _, offset in fields.values()],
            # Rows of a multiple of 8 bytes keep every row as aligned as the first.
            "itemsize": -(-(PAYLOAD + end) // 8) * 8,
        }
    )


def _groups(names: Sequence[str], places: dict[str, Place], order: str) -> tuple[Group, ...]:
    groups: list[Group] = []
    for number, name in enumerate(names):
        place = places.get(name)
        if place is None:
            continue
        if groups:
            last = groups[-1]
            width = last.dtype.itemsize
            if (
                last.first + last.size == number
                and last.offset + width * last.size == place.offset
                and last.dtype == np.dtype(order + place.code)
            ):
                groups[-1] = last._replace(size=last.size + 1)
                continue
        groups.append(Group(number, 1, place.offset, np.dtype(order + place.code)))
    return tuple(groups)
