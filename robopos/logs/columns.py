"""Messages of one channel to columns, many rows at a time.

The records of a block are gathered as fixed-width rows, so that a field is a strided view. The first message
that is not yet decoded is walked; all rows of the same layout (compared byte by byte where it matters, see
`Template`) are taken with it, and so on until none is left. A row alone takes the same template, so the result
does not depend on the road.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robopos.errors import LogError
from robopos.logs.chunk import Block
from robopos.logs.decoder import NS, Decoder
from robopos.logs.template import Template

_HEAD = np.dtype(
    {
        "names": ["opcode", "length", "channel", "log", "publish"],
        "formats": ["u1", "<u8", "<u2", "<u8", "<u8"],
        "offsets": [0, 1, 9, 15, 23],
        "itemsize": 31,
    }
)
_HEAD_BYTES = 31
_MESSAGE = 5
_AFTER_LENGTH = 22  # the bytes of a message record that are not payload
_SKEW = 3  # rows begin here in the record, so that the cdr origin falls on a multiple of 8
_ROWS = 16384  # rows gathered at once: bounds the memory of loose messages
_LAYOUTS = 64  # more layouts than this in one gather: the rest message by message
_MAX_NS = 2**63 - 1
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass
class Columns:
    """The rows of one stream while it is read: every block writes its own rows.

    `stamp` is 0 where a message has no header; `kept` is False where a message could not be decoded.
    """

    values: npt.NDArray[np.float64]
    stamp: Ints
    log: Ints
    publish: Ints
    order: Ints
    kept: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int, columns: int) -> Columns:
        """Room for so many rows, not yet filled."""
        stamp, log, publish, order = (np.empty(rows, np.int64) for _ in range(4))
        return cls(np.empty((rows, columns)), stamp, log, publish, order, np.ones(rows, np.bool_))


@dataclass
class Tally:
    """What one block had to tell: names it holds, frames, rows without a column, messages that are broken."""

    found: list[dict[str, None]]
    held: dict[str, None] = field(default_factory=dict)
    frames: dict[str, None] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    first_error: str = ""


def decode_block(
    decoder: Decoder, opened: memoryview, block: Block, offsets: Ints, channel: int, columns: Columns, first: int
) -> Tally:
    """Decode the messages of one channel in one opened block into rows `first` and on.

    Args:
        decoder: of the channel's type.
        opened: the unpacked bytes.
        block: numbered over the whole log.
        offsets: int64 (n,), offsets of the message records; checked here.
        channel: the id that the records must carry.
        columns: written in place.
        first: the first row.

    Raises:
        LogError: an offset that is not at a message of the channel. A message that does not decode is told in
            the tally instead.
    """
    tally = Tally([{} for _ in decoder.fields])
    raw = np.frombuffer(opened, np.uint8)
    for begin in range(0, len(offsets), _ROWS):
        part = offsets[begin : begin + _ROWS]
        rows = slice(first + begin, first + begin + len(part))
        lengths = _heads(raw, part, channel, rows, columns)
        columns.order[rows] = part
        columns.order[rows] += block.number << 40
        _Gather(decoder, opened, raw, part, lengths, columns, rows.start, tally).run()
    return tally


def _heads(raw: Bytes, offsets: Ints, channel: int, rows: slice, columns: Columns) -> Ints:
    """Check the records and write their times; returns the payload lengths."""
    if len(offsets) and (offsets.min() < 0 or offsets.max() > len(raw) - _HEAD_BYTES):
        raise LogError("the message index points outside the chunk")
    heads = _gather(raw, offsets, _HEAD_BYTES).view(_HEAD)
    if (heads["opcode"] != _MESSAGE).any() or (heads["channel"] != channel).any():
        raise LogError("the message index points at bytes that are no message of its channel")
    lengths = heads["length"].astype(np.int64) - _AFTER_LENGTH
    if len(lengths) and (lengths.min() < 0 or (offsets + _HEAD_BYTES + lengths > len(raw)).any()):
        raise LogError("a message is larger than the chunk that holds it")
    log, publish = heads["log"], heads["publish"]
    if len(log) and (log.max() > _MAX_NS or publish.max() > _MAX_NS):
        raise LogError("a log or publish time is beyond the year 2262")
    columns.log[rows] = log
    columns.publish[rows] = publish
    return lengths


def _gather(raw: Bytes, offsets: Ints, width: int) -> npt.NDArray[np.void]:
    """`width` bytes from each offset, as one contiguous row each."""
    windows: npt.NDArray[np.void] = np.ndarray((len(raw) - width + 1,), f"V{width}", raw.data, 0, (1,))
    return windows[offsets]


def read_heads(opened: memoryview, offsets: Ints, channel: int, columns: Columns) -> None:
    """Check the records of one channel in one opened block and write their times alone.

    Raises:
        LogError: an offset that is not at a message of the channel.
    """
    raw = np.frombuffer(opened, np.uint8)
    for begin in range(0, len(offsets), _ROWS):
        part = offsets[begin : begin + _ROWS]
        _heads(raw, part, channel, slice(begin, begin + len(part)), columns)


class _Gather:
    """One gather of rows, split by layout."""

    def __init__(
        self,
        decoder: Decoder,
        opened: memoryview,
        raw: Bytes,
        offsets: Ints,
        lengths: Ints,
        columns: Columns,
        first: int,
        tally: Tally,
    ) -> None:
        self.decoder = decoder
        self.opened = opened
        self.raw = raw
        self.offsets = offsets
        self.lengths = lengths
        self.columns = columns
        self.first = first
        self.tally = tally

    def run(self) -> None:
        left = np.arange(len(self.offsets))
        for _ in range(_LAYOUTS):
            if len(left) == 0:
                return
            template = self._template(int(left[0]))
            if template is None:
                left = left[1:]
                continue
            left = self._take(template, left)
        for row in left:
            template = self._template(int(row))
            if template is not None:
                self._one(template, int(row))

    def _payload(self, row: int) -> memoryview:
        start = int(self.offsets[row]) + _HEAD_BYTES
        return self.opened[start : start + int(self.lengths[row])]

    def _template(self, row: int) -> Template | None:
        """The layout of one row; None (and a word in the tally) when it does not decode."""
        try:
            return self.decoder.template(self._payload(row))
        except LogError as error:
            self.columns.kept[self.first + row] = False
            self.tally.broken += 1
            self.tally.first_error = self.tally.first_error or str(error)
            return None

    def _one(self, template: Template, row: int) -> None:
        decoded = self.decoder.decode_as(template, self._payload(row))
        self.columns.values[self.first + row] = decoded.values
        self.columns.stamp[self.first + row] = decoded.stamp_ns or 0
        if decoded.frame_id is not None:
            self.tally.frames[decoded.frame_id] = None
        self._tell(template, 1)

    def _tell(self, template: Template, rows: int) -> None:
        for column, names in zip(self.tally.found, template.found, strict=True):
            column.update(dict.fromkeys(names))
        self.tally.held.update(dict.fromkeys(template.held))
        for number in template.missing:
            self.tally.missing[number] = self.tally.missing.get(number, 0) + rows

    def _take(self, template: Template, left: Ints) -> Ints:
        """Decode every row of `left` that has this layout; returns the others."""
        width = -(-(template.end + _HEAD_BYTES - _SKEW) // 8) * 8
        offsets, lengths = self.offsets[left], self.lengths[left]
        fits = (lengths >= template.end) & (lengths <= template.limit)
        inside = fits & (offsets + (_SKEW + width) <= len(self.raw))
        chosen = left if inside.all() else left[inside]
        if len(chosen):
            rows = _gather(self.raw, self.offsets[chosen] + _SKEW, width)
            same = _same(template, rows, width)
            if not same.all():
                rows, chosen = rows[same], chosen[same]
            self._write(template, rows, width, chosen)
        # The row that gave the template may stand too close to the end of the block to be gathered.
        for row in left[fits & ~inside]:
            if template.fits(self._payload(int(row))):
                self._one(template, int(row))
                chosen = np.append(chosen, row)
        return left[:0] if len(chosen) == len(left) else np.setdiff1d(left, chosen, assume_unique=True)

    def _write(self, template: Template, rows: npt.NDArray[np.void], width: int, chosen: Ints) -> None:
        columns, count = self.columns, len(rows)
        if count == 0:
            return
        whole = int(chosen[-1]) - int(chosen[0]) + 1 == count
        target: slice | Ints = chosen + self.first
        if whole:
            target = slice(self.first + int(chosen[0]), self.first + int(chosen[-1]) + 1)
        for group in template.groups:
            view = _view(rows, width, group.offset, group.dtype, group.size)
            columns.values[target, group.first : group.first + group.size] = view
        for number in template.missing:
            columns.values[target, number] = np.nan
        if template.stamp is None:
            columns.stamp[target] = 0
        else:
            sec = np.dtype(template.order + ("u4" if self.decoder.ros1 else "i4"))
            stamp = _view(rows, width, template.stamp, sec, 1)[:, 0].astype(np.int64) * NS
            nanosec = np.dtype(template.order + "u4")
            stamp += _view(rows, width, template.stamp + 4, nanosec, 1)[:, 0].astype(np.int64)
            columns.stamp[target] = stamp
        if template.frame is not None:
            self._frames(_view(rows, width, template.frame[0], np.dtype("u1"), template.frame[1]))
        self._tell(template, count)

    def _frames(self, names: npt.NDArray[np.generic]) -> None:
        if names.shape[1] == 0 or (names == names[0]).all():
            names = names[:1]
        for name in dict.fromkeys(row.tobytes() for row in names):
            self.tally.frames[name.decode("utf-8", "replace")] = None


def _view(
    rows: npt.NDArray[np.void], width: int, offset: int, dtype: np.dtype[np.generic], count: int
) -> npt.NDArray[np.generic]:
    """The numbers at one payload offset of all rows: (n, count), a view."""
    start = offset + _HEAD_BYTES - _SKEW
    view: npt.NDArray[np.generic] = np.ndarray((len(rows), count), dtype, rows.data, start, (width, dtype.itemsize))
    return view


def _same(template: Template, rows: npt.NDArray[np.void], width: int) -> npt.NDArray[np.bool_]:
    """Which rows pass the checks of the template."""
    same = np.ones(len(rows), np.bool_)
    for offset, want in template.checks:
        body = len(want) // 4 * 4
        for start, dtype, part in ((offset, "<u4", want[:body]), (offset + body, "u1", want[body:])):
            expected = np.frombuffer(part, dtype)
            view = _view(rows, width, start, expected.dtype, len(expected))
            for number in range(len(expected)):
                same &= view[:, number] == expected[number]
    return same
