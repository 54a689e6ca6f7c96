"""The records of one MCAP file, by the specification at mcap.dev/spec.

The file is mapped into memory and its top-level records are walked once from the front, summary or not: a whole
file, one without index and one whose recorder crashed take the same road. Chunks are only opened where their
messages are wanted, where they have no message index, or where a channel is declared nowhere else.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
import zlib
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robopos.arrays import Ints
from robopos.errors import LogError
from robopos.logs.chunk import RECORD, Block, check_expansion, open_block, records
from robopos.logs.foreign import as_mcap, foreign_kind

MAGIC = b"\x89MCAP0\r\n"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX, STATISTICS, DATA_END = 2, 3, 4, 5, 6, 7, 8, 11, 15
_FOOTER_BYTES = RECORD.size + 20
_CHUNK_HEAD = struct.Struct("<QQQII")
_INDEX_HEAD = struct.Struct("<HI")
_MESSAGE_BYTES = 22
MAX_NAME_BYTES = 4096  # of a topic, a type or an encoding
INDEX_ENTRY = np.dtype([("log_time", "<u8"), ("offset", "<u8")])


class Schema(NamedTuple):
    """A schema record; `data` is text for the ROS encodings."""

    id: int
    name: str
    encoding: str
    data: bytes


class Channel(NamedTuple):
    """A channel record: one topic as one publisher wrote it. `schema_id` 0 means none."""

    id: int
    schema_id: int
    topic: str
    encoding: str


class Statistics(NamedTuple):
    """What the writer counted: all messages, and those of each channel id (may be empty)."""

    messages: int
    per_channel: dict[int, int]


class Container:
    """One MCAP file, walked.

    Attributes:
        path: the file.
        data: its bytes.
        schemas, channels: by id.
        blocks: chunks and stretches of loose messages, in file order.
        statistics: the writer's counts, None without a summary.
        losses: what is cut off at the end of the file; the rest is intact.
        damages: what is wrong in the middle: an error, unless the caller skips damage.

    Raises:
        LogError: the file cannot be opened or is no MCAP file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.schemas: dict[int, Schema] = {}
        self.channels: dict[int, Channel] = {}
        self.blocks: list[Block] = []
        self.statistics: Statistics | None = None
        self.losses: list[str] = []
        self.damages: list[str] = []
        self.data = _map(path)
        self._indexes: list[dict[int, tuple[int, int]]] = []
        self._scans: dict[int, dict[int, Ints]] = {}
        self._loose: dict[int, list[int]] = {}
        self._loose_span: tuple[int, int] | None = None
        self._ended = False
        self._walk()
        check_expansion(self.blocks, len(self.data), str(path))
        self._settle()

    def channels_of(self, block: Block) -> list[int]:
        """The channel ids that have messages in the block."""
        return list(self._scans[block.number] if block.number in self._scans else self._indexes[block.number])

    def count(self, block: Block, channel: int) -> int:
        """How many messages of `channel` the block holds."""
        scan = self._scans.get(block.number)
        if scan is not None:
            return len(scan.get(channel, ()))
        return self._indexes[block.number].get(channel, (0, 0))[1]

    def offsets(self, block: Block, channel: int) -> Ints:
        """Ints of the records of `channel` in the opened block, int64 (n,), in the order of the index.

        They come from the file's own index and may be wrong: check them against the records.
        """
        scan = self._scans.get(block.number)
        if scan is not None:
            return scan.get(channel, np.empty(0, np.int64))
        start, count = self._indexes[block.number].get(channel, (0, 0))
        return np.frombuffer(self.data, INDEX_ENTRY, count, start)["offset"].astype(np.int64)

    def counts(self) -> dict[int, int]:
        """Messages of each channel id over the whole file."""
        total: dict[int, int] = {}
        for block in self.blocks:
            for channel in self.channels_of(block):
                total[channel] = total.get(channel, 0) + self.count(block, channel)
        return total

    # --- the walk over the top-level records ---

    def _walk(self) -> None:
        data, size = self.data, len(self.data)
        at = len(MAGIC)
        while at < size and not (self._ended and data[at:] == MAGIC):
            opcode, length = RECORD.unpack_from(data, at) if size - at >= RECORD.size else (0, 0)
            body = at + RECORD.size
            if opcode == 0 or length > size - body:
                at = self._broken(at, opcode, length)
                continue
            try:
                self._record(opcode, at, body, length)
            except (struct.error, ValueError) as error:
                self.damages.append(f"{self.path}: the record at byte {at} (opcode {opcode}) is malformed: {error}")
            at = body + length
        self._close_loose()
        if not self._ended and not self.losses:
            self._lose(size, "ends without a footer")
        elif self._ended and at >= size and not self.losses:
            self.losses.append(f"{self.path}: the closing magic bytes are missing; no message is lost")

    def _broken(self, at: int, opcode: int, length: int) -> int:
        """A record that cannot be: go on at the next chunk that the summary names, or at the end of the file."""
        size = len(self.data)
        starts = self._chunk_starts
        onward = bisect_right(starts, at)
        if onward < len(starts):
            self.damages.append(
                f"{self.path}: the record at byte {at} (opcode {opcode}) claims {length} bytes, which cannot be; "
                f"bytes {at} to {starts[onward]} are unreadable"
            )
            return starts[onward]
        if self._ended:
            self.losses.append(f"{self.path}: the last {size - at} bytes are not the closing magic; no message is lost")
        else:
            rest = bytes(self.data[at:])
            self._lose(at, "holds only zeros" if not any(rest) else "is cut or unreadable")
        return size

    def _lose(self, at: int, what: str) -> None:
        size = len(self.data)
        self.losses.append(
            f"{self.path}: the file {what} from byte {at} of {size} (was the recorder killed?): "
            f"what stands before is read, {size - at} bytes are lost"
        )

    @cached_property
    def _chunk_starts(self) -> list[int]:
        """Ints of all chunks by the summary, ascending; empty when there is none."""
        data = self.data
        foot = len(data) - len(MAGIC) - _FOOTER_BYTES
        if foot < 0 or data[-len(MAGIC) :] != MAGIC or data[foot] != FOOTER:
            return []
        (at,) = struct.unpack_from("<Q", data, foot + RECORD.size)
        starts = []
        while 0 < at <= foot - RECORD.size:
            opcode, length = RECORD.unpack_from(data, at)
            if opcode == CHUNK_INDEX and length >= 24:
                starts.append(int(struct.unpack_from("<Q", data, at + RECORD.size + 16)[0]))
            at += RECORD.size + length
        return sorted(start for start in starts if start < foot)

    def _record(self, opcode: int, at: int, body: int, length: int) -> None:
        data = self.data
        if opcode == MESSAGE:
            if length < _MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes")
            start = self._loose_span[0] if self._loose_span else at
            self._loose_span = (start, body + length)
            self._loose.setdefault(struct.unpack_from("<H", data, body)[0], []).append(at - start)
        elif opcode == CHUNK:
            self._close_loose()
            _, _, unpacked, crc, name = _CHUNK_HEAD.unpack_from(data, body)
            after = body + _CHUNK_HEAD.size + name
            if after + 8 > body + length:
                raise ValueError(f"a compression name of {name} bytes")
            compression = bytes(data[after - name : after]).decode("utf-8", "replace")
            (packed,) = struct.unpack_from("<Q", data, after)
            if packed > body + length - after - 8:
                raise ValueError(f"{packed} bytes in a record of {length}")
            self.blocks.append(Block(len(self.blocks), after + 8, packed, compression, unpacked, crc))
            self._indexes.append({})
        elif opcode == MESSAGE_INDEX:
            channel, size = _INDEX_HEAD.unpack_from(data, body)
            if size % INDEX_ENTRY.itemsize or size + _INDEX_HEAD.size > length:
                raise ValueError(f"a message index of {size} bytes")
            if self.blocks and size:
                entries = (body + _INDEX_HEAD.size, size // INDEX_ENTRY.itemsize)
                self._indexes[-1][channel] = entries
        elif opcode == STATISTICS:
            self.statistics = _statistics(data, body, length)
        elif opcode == DATA_END:
            self._check_loose(at, struct.unpack_from("<I", data, body)[0])
        elif opcode == FOOTER:
            self._ended = True
        else:
            self._declare(opcode, data[body : body + length])

    def _check_loose(self, end: int, crc: int) -> None:
        """Loose messages have no CRC but that of the whole data section, where the writer stored one."""
        if crc and (self._scans or self._loose) and zlib.crc32(self.data[:end]) != crc:
            self.damages.append(f"{self.path}: the data section has a wrong CRC: its bytes were changed")

    def _close_loose(self) -> None:
        if self._loose_span is None:
            return
        start, end = self._loose_span
        number = len(self.blocks)
        self.blocks.append(Block(number, start, end - start, "", end - start, 0))
        self._indexes.append({})
        self._scans[number] = {channel: np.array(at, np.int64) for channel, at in self._loose.items()}
        self._loose_span, self._loose = None, {}

    def _declare(self, opcode: int, body: memoryview) -> None:
        if opcode == SCHEMA:
            (number,) = struct.unpack_from("<H", body)
            name, at = _name(body, 2)
            encoding, at = _name(body, at)
            (size,) = struct.unpack_from("<I", body, at)
            if at + 4 + size > len(body):
                raise ValueError(f"schema {name!r} claims {size} bytes")
            self.schemas.setdefault(number, Schema(number, name, encoding, bytes(body[at + 4 : at + 4 + size])))
        elif opcode == CHANNEL:
            number, schema = struct.unpack_from("<HH", body)
            topic, at = _name(body, 4)
            encoding, _ = _name(body, at)
            self.channels.setdefault(number, Channel(number, schema, topic, encoding))

    # --- what the walk left open ---

    def _settle(self) -> None:
        """Scan the chunks whose index is missing, cut or short, and those that declare unknown channels."""
        if not self._ended:
            self.statistics = None
            self._settle_tail()
        for block in self.blocks:
            if not self._indexes[block.number]:
                self._scan(block)
        if self.statistics is not None and not self._agrees(self.statistics):
            for block in self.blocks:
                self._scan(block)
            if not self._agrees(self.statistics):
                held = sum(self.counts().values())
                self.damages.append(
                    f"{self.path}: the statistics count {self.statistics.messages} messages, the file holds {held}"
                )
        for block in self.blocks:
            if not all(self._declared(channel) for channel in self.channels_of(block)):
                self._scan(block)
        for channel, count in self.counts().items():
            if channel not in self.channels:
                self.losses.append(f"{self.path}: {count} messages name channel {channel}, which no record declares")

    def _settle_tail(self) -> None:
        """The last chunk of a file that breaks off: its index may be cut, its end may be zeros."""
        if not self.blocks or self.blocks[-1].number in self._scans:
            return
        block = self.blocks[-1]
        try:
            self._scans[block.number] = self._records_of(block)
        except LogError as error:
            self.losses.append(f"{error}; it is the last one before the file breaks off and is lost")
            self.blocks.pop()
            self._indexes.pop()

    def _declared(self, channel: int) -> bool:
        if channel not in self.channels:
            return False
        schema = self.channels[channel].schema_id
        return schema == 0 or schema in self.schemas

    def _agrees(self, statistics: Statistics) -> bool:
        counts = self.counts()
        per_channel = {channel: count for channel, count in statistics.per_channel.items() if count}
        if per_channel and per_channel != counts:
            return False
        return statistics.messages == sum(counts.values())

    def _scan(self, block: Block) -> None:
        """Find the messages of a block without its index; a block that cannot be read is damage."""
        if block.number in self._scans:
            return
        try:
            self._scans[block.number] = self._records_of(block)
        except LogError as error:
            lost = sum(count for _, count in self._indexes[block.number].values())
            self.damages.append(f"{error}; {lost or 'all'} of its messages are lost")
            self._scans[block.number] = {}

    def _records_of(self, block: Block) -> dict[int, Ints]:
        found: dict[int, list[int]] = {}
        where = f"{self.path}: chunk at byte {block.start}"
        opened = open_block(self.data, block, str(self.path))
        try:
            for record in records(opened, where):
                if record.opcode == MESSAGE and record.length >= _MESSAGE_BYTES:
                    channel = int(struct.unpack_from("<H", opened, record.body)[0])
                    found.setdefault(channel, []).append(record.at)
                elif record.opcode in (SCHEMA, CHANNEL):
                    self._declare(record.opcode, opened[record.body : record.body + record.length])
        except (struct.error, ValueError) as error:
            raise LogError(f"{where} holds a malformed record: {error}") from error
        return {channel: np.array(at, np.int64) for channel, at in found.items()}


def _map(path: Path) -> memoryview:
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise LogError(f"{path}: is a folder, a pipe or a device; a log is a regular file")
        with open(path, "rb") as stream:
            head = stream.read(16)
            if head.startswith(MAGIC):
                return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        kind = foreign_kind(head)
        if kind is None:
            what = "is no MCAP file" if head else "is empty"
            raise LogError(f"{path}: the file {what} (an MCAP file begins with \\x89MCAP0)")
        with as_mcap(path, kind) as copy:
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror or error})") from error


def _name(body: memoryview, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<I", body, at)
    if size > MAX_NAME_BYTES or at + 4 + size > len(body):
        raise ValueError(f"a name of {size} bytes (the limit is {MAX_NAME_BYTES})")
    return bytes(body[at + 4 : at + 4 + size]).decode("utf-8", "replace"), at + 4 + size


def _statistics(data: memoryview, body: int, length: int) -> Statistics:
    (messages,) = struct.unpack_from("<Q", data, body)
    at = body + 8 + 2 + 4 + 4 + 4 + 4 + 8 + 8
    (size,) = struct.unpack_from("<I", data, at)
    if at + 4 + size > body + length:
        raise ValueError(f"statistics of {size} bytes")
    pairs = np.frombuffer(data, np.dtype([("channel", "<u2"), ("count", "<u8")]), size // 10, at + 4)
    return Statistics(messages, {int(pair["channel"]): int(pair["count"]) for pair in pairs})
