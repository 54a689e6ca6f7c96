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

from robopos.arrays import Floats, Ints
from robopos.errors import LogError
from robopos.logs.chunk import Block
from robopos.logs.decoder import Decoded, Decoder
from robopos.logs.gather import HEAD_BYTES, PAYLOAD, SKEW, Bytes, Rows, gather, read_heads
from robopos.logs.template import Template
from robopos.stamps import NS_PER_S

_ROWS = 16384  # rows gathered at once: bounds the memory of loose messages
_LAYOUTS = 64  # more layouts than this in one gather: the rest message by message


@dataclass
class Columns:
    """The rows of one stream while it is read: every block writes its own rows.

    `stamp` is 0 where a message has no header; `kept` is False where a message could not be decoded.
    """

    values: Floats
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
    """What one block had to tell.

    Attributes:
        found: for each asked path, the names that messages hold.
        held: names of the arrays out of which single elements were asked.
        frames: frame ids of the headers, in order of appearance.
        missing: messages without the column, by its number.
        broken, first_error: messages that do not decode, and what is wrong with the first.
    """

    found: list[dict[str, None]]
    held: dict[str, None] = field(default_factory=dict)
    frames: dict[str, None] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    first_error: str = ""

    def add(self, template: Template, rows: int) -> None:
        """Count so many messages of one layout."""
        for column, names in zip(self.found, template.found, strict=True):
            column.update(dict.fromkeys(names))
        self.held.update(dict.fromkeys(template.held))
        for number in template.missing:
            self.missing[number] = self.missing.get(number, 0) + rows


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
        lengths = read_heads(raw, part, channel, columns.log[rows], columns.publish[rows])
        held = lengths * len(part) if isinstance(lengths, int) else int(lengths.sum())
        if held > len(raw):
            raise LogError("the message index names messages more than once")
        np.add(part, block.number << 40, out=columns.order[rows])
        _Gather(decoder, opened, raw, part, lengths, columns, rows.start, tally).run()
    return tally


def decode_times(opened: memoryview, offsets: Ints, channel: int, columns: Columns) -> None:
    """Check the records of one channel in one opened block and write their times alone.

    Raises:
        LogError: an offset that is not at a message of the channel, or a log time after the year 2262.
    """
    raw = np.frombuffer(opened, np.uint8)
    for begin in range(0, len(offsets), _ROWS):
        rows = slice(begin, begin + _ROWS)
        read_heads(raw, offsets[rows], channel, columns.log[rows], columns.publish[rows])
    if len(offsets) and int(columns.log.min()) < 0:
        raise LogError("a log time lies beyond 2^63 - 1 ns (the year 2262)")


@dataclass
class _Gather:
    """Some rows of one channel, split by layout."""

    decoder: Decoder
    opened: memoryview
    raw: Bytes
    offsets: Ints
    lengths: int | Ints
    columns: Columns
    first: int
    tally: Tally

    def run(self) -> None:
        if not self.decoder.columnar:
            for row in range(len(self.offsets)):
                self._alone(row)
            return
        left: Ints | None = None  # all
        for _ in range(_LAYOUTS):
            template = self._template(0 if left is None else int(left[0]))
            if template is not None:
                left = self._take(template, left)
            else:
                left = np.arange(1, len(self.offsets)) if left is None else left[1:]
            if len(left) == 0:
                return
        for row in range(len(self.offsets)) if left is None else left:
            template = self._template(int(row))
            if template is not None:
                self._one(template, int(row))

    def _payload(self, row: int) -> memoryview:
        start = int(self.offsets[row]) + HEAD_BYTES
        length = self.lengths if isinstance(self.lengths, int) else int(self.lengths[row])
        return self.opened[start : start + length]

    def _template(self, row: int) -> Template | None:
        """The layout of one row; None (and a word in the tally) when it does not decode."""
        try:
            return self.decoder.template(self._payload(row))
        except LogError as error:
            self._refuse(row, error)
            return None

    def _refuse(self, row: int, error: LogError) -> None:
        self.columns.kept[self.first + row] = False
        self.tally.broken += 1
        self.tally.first_error = self.tally.first_error or str(error)

    def _alone(self, row: int) -> None:
        try:
            self._put(row, *self.decoder.read(self._payload(row)))
        except LogError as error:
            self._refuse(row, error)

    def _one(self, template: Template, row: int) -> None:
        self._put(row, self.decoder.decode_as(template, self._payload(row)), template)

    def _put(self, row: int, decoded: Decoded, template: Template) -> None:
        self.columns.values[self.first + row] = decoded.values
        self.columns.stamp[self.first + row] = decoded.stamp_ns or 0
        if decoded.frame_id is not None:
            self.tally.frames[decoded.frame_id] = None
        self.tally.add(template, 1)

    def _take(self, template: Template, left: Ints | None) -> Ints:
        """Decode every row of `left` (None: all) that has this layout; returns the others."""
        width = template.row.itemsize
        room = len(self.raw) - SKEW - width
        if left is None and isinstance(self.lengths, int) and int(self.offsets.max()) <= room:
            rows = gather(self.raw, self.offsets + SKEW, width)
            same, alike = _same(template, rows)
            if same is None:
                self._write(template, rows, slice(self.first, self.first + len(rows)), alike)
                return self.offsets[:0]
            left = np.arange(len(self.offsets))
            self._write(template, rows[same], left[same] + self.first, False)
            return left[~same]
        if left is None:
            left = np.arange(len(self.offsets))
        offsets = self.offsets[left]
        lengths = self.lengths if isinstance(self.lengths, int) else self.lengths[left]
        fits = np.broadcast_to((lengths >= template.end) & (lengths <= template.limit), left.shape)
        taken = fits & (offsets <= room)
        if taken.any():
            rows = gather(self.raw, offsets[taken] + SKEW, width)
            same, alike = _same(template, rows)
            if same is not None:
                rows = rows[same]
                taken[taken] = same
            self._write(template, rows, left[taken] + self.first, alike)
        # A row may stand too close to the end of the block to be gathered.
        for place in np.flatnonzero(fits & (offsets > room)):
            if template.fits(self._payload(int(left[place]))):
                self._one(template, int(left[place]))
                taken[place] = True
        return left[~taken]

    def _write(self, template: Template, rows: Rows, target: slice | Ints, alike: bool) -> None:
        if len(rows) == 0:
            return
        columns = self.columns
        fields = rows.view(template.row)
        for number, group in enumerate(template.groups):
            columns.values[target, group.first : group.first + group.size] = fields[f"g{number}"]
        for missing in template.missing:
            columns.values[target, missing] = np.nan
        if template.stamp is None:
            columns.stamp[target] = 0
        else:
            stamp = np.multiply(fields["sec"], NS_PER_S, dtype=np.int64)
            stamp += fields["nanosec"]
            columns.stamp[target] = stamp
        if template.frame is not None:
            start, length = template.frame
            names = _view(rows, start, np.dtype("u1"), length)
            if alike or length == 0 or (names == names[0]).all():
                names = names[:1]
            for name in dict.fromkeys(row.tobytes() for row in names):
                self.tally.frames[name.decode("utf-8", "replace")] = None
        self.tally.add(template, len(rows))


def _view(rows: Rows, offset: int, dtype: np.dtype[np.generic], count: int) -> npt.NDArray[np.generic]:
    """The numbers at one payload offset of all rows: (n, count), a view."""
    strides = (rows.itemsize, dtype.itemsize)
    view: npt.NDArray[np.generic] = np.ndarray((len(rows), count), dtype, rows.data, PAYLOAD + offset, strides)
    return view


def _same(template: Template, rows: Rows) -> tuple[npt.NDArray[np.bool_] | None, bool]:
    """Which rows pass the checks of the template, None for all; and whether all have its strings as well."""
    fields = rows.view(template.row)
    if all((fields[f"q{number}"] == want).all() for number, want in enumerate(template.quick)):
        return None, template.frame_in_quick
    same = np.ones(len(rows), np.bool_)
    for offset, want in template.checks:
        body = len(want) // 4 * 4
        for start, dtype, part in ((offset, "<u4", want[:body]), (offset + body, "u1", want[body:])):
            expected = np.frombuffer(part, dtype)
            view = _view(rows, start, expected.dtype, len(expected))
            for number in range(len(expected)):
                same &= view[:, number] == expected[number]
    return (None if same.all() else same), False
