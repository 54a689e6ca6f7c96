"""`inspect_log`: every topic of a log, its clocks and its layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from robopos.arrays import Floats, Ints
from robopos.errors import LogError
from robopos.logs.columns import Columns, Tally, decode_block, decode_times
from robopos.logs.decoder import Decoder, schema_encoding
from robopos.logs.fields import numeric_paths
from robopos.logs.paths import PathLike
from robopos.logs.report import LogReport, TopicReport, lateness, offset_of, steps_of
from robopos.logs.schema import MessageType, parse_schema
from robopos.logs.source import Part, Source, schema_of
from robopos.logs.template import has_header

_NUMBERS = 1 << 23  # decoded at once


@dataclass
class Audit:
    """One topic while it is audited; the times are int64 (n,) in arrival order once it is whole."""

    topic: str
    type: str
    encoding: str
    decoder: Decoder | None
    fields: int
    note: str
    channels: int = 0
    stamp: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    log: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    publish: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    order: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    schema: str = ""
    decoded: int = 0
    undecoded: int = 0
    found: list[dict[str, None]] = field(default_factory=list)  # for each path, the names that messages hold
    there: dict[str, int] = field(default_factory=dict)  # numbers that are not NaN, by name
    parts: list[Columns] = field(default_factory=list)

    @property
    def has_header(self) -> bool:
        """Whether its stamps are there."""
        return self.decoder is not None and self.decoder.has_header

    @property
    def time(self) -> Ints:
        """Header stamps where they are there and not zero, else log times."""
        return np.where(self.stamp != 0, self.stamp, self.log) if self.has_header else self.log

    @property
    def nan_share(self) -> float | None:
        """Share of NaN and of what is missing, over the names that some message holds."""
        names = {name for column in self.found for name in column}
        numbers = self.decoded * len(names)
        return 1 - sum(self.there.get(name, 0) for name in names) / numbers if numbers else None

    def widen(self, found: list[dict[str, None]]) -> bool:
        """Whether messages held names that the decoder lacks; it has them now."""
        if self.decoder is None or not self.decoder.named:
            return False
        self.found = self.found or [{} for _ in found]
        for column, more in zip(self.found, found, strict=True):
            column.update(more)
        try:
            return self.decoder.widen([tuple(column) for column in self.found])
        except LogError:  # more than a stream may have: those that came first are told
            return False

    def put(self, columns: Columns, tally: Tally) -> None:
        """Take in the times and the counts of some messages."""
        self.undecoded += tally.broken
        self.decoded += int(np.count_nonzero(columns.kept))
        if self.decoder is not None and self.decoder.named:
            there = np.count_nonzero(~np.isnan(columns.values[columns.kept]), axis=0)
            for name, count in zip(self.decoder.names, there.tolist(), strict=True):
                self.there[name] = self.there.get(name, 0) + count
        columns.stamp[~columns.kept] = 0
        columns.values = np.empty((0, 0))
        self.parts.append(columns)

    def join(self, type: str, schema: str, encoding: str) -> None:
        """One more channel of the topic; of another type, neither is read, as `read_log` has it."""
        self.channels += 1
        if (type, encoding, schema) == (self.type, self.encoding, self.schema):
            return
        if (type, encoding) != (self.type, self.encoding):
            self.decoder, self.note = None, f"carries both {self.type or 'no schema'} and {type or 'no schema'}"
        elif self.decoder is not None:
            other = _open(self.topic, type, schema, encoding)
            if other.decoder is None or not other.decoder.same_type(self.decoder):
                self.decoder, self.note = None, f"carries two different definitions of {self.type}"


def inspect_log(paths: PathLike | Iterable[PathLike]) -> LogReport:
    """Inspect a log: per topic its count, rate, jitter, gaps, offsets between clocks, lateness and layouts.

    Images, point clouds and texts are listed with their clocks, their contents are not decoded. Damage does not
    stop the inspection: it stands in the report.

    Args:
        paths: an MCAP file, a folder, a pattern, or a list of them, read as one log.

    Raises:
        LogError: a file that is not there or is no MCAP file.
    """
    return report_of(*audit(paths))


def audit(
    paths: PathLike | Iterable[PathLike], *, progress: Callable[[int, int], None] | None = None
) -> tuple[Source, list[Audit], list[str]]:
    """The audits of all topics by name, with what is damaged; ``progress`` is told chunks done and all."""
    source = Source(paths)
    damage = [text for container in source.containers for text in container.losses + container.damages]
    audits: dict[str, Audit] = {}
    of_channel: dict[tuple[int, int], Audit] = {}
    for container in source.containers:
        for channel in container.channels.values():
            name, text = schema_of(container, channel)
            if channel.topic not in audits:
                audits[channel.topic] = _open(channel.topic, name, text, channel.encoding)
                audits[channel.topic].schema = text
            audits[channel.topic].join(name, text, channel.encoding)
            of_channel[id(container), channel.id] = audits[channel.topic]
    for part in source.parts:
        if progress is not None:
            progress(part.number, len(source.parts))
        try:
            opened = part.open()
        except LogError as error:
            damage.append(str(error))
            continue
        for number in part.container.channels_of(part.block):
            one = of_channel.get((id(part.container), number))
            if one is not None:
                try:
                    _read(one, part, opened, number)
                except LogError as error:
                    damage.append(f"{part.container.path}: chunk at byte {part.block.start}: {error}")
    for one in audits.values():
        _close(one)
    return source, [audits[topic] for topic in sorted(audits)], list(dict.fromkeys(damage))


def _open(topic: str, type: str, text: str, encoding: str) -> Audit:
    if encoding in ("json", "protobuf"):
        try:
            return Audit(topic, type, encoding, Decoder(type, text, (), encoding), 0, f"{encoding}: only its stamps")
        except LogError as error:
            return Audit(topic, type, encoding, None, 0, str(error))
    if not type:
        return Audit(topic, type, encoding, None, 0, "no schema")
    try:
        message = parse_schema(type, text, schema_encoding(text, encoding == "ros1"))
        paths = _readable(message)
        decoder = Decoder(type, text, paths, encoding)
    except LogError as error:
        return Audit(topic, type, encoding, None, 0, str(error))
    if not paths and not has_header(message):
        return Audit(topic, type, encoding, None, 0, "no numeric field of its own")
    return Audit(topic, type, encoding, decoder, 0, "" if paths else "only listed")


def _readable(message: MessageType) -> list[str]:
    """The numeric paths worth decoding: none of an image, a cloud, or a list of structures."""
    if any(item.array == "sequence" and item.primitive in ("uint8", "byte", "int8", "char") for item in message.fields):
        return []
    stamps = ("header.stamp.sec", "header.stamp.nanosec", "header.seq")
    return [path for path in numeric_paths(message) if "[]" not in path and path not in stamps]


def _read(one: Audit, part: Part, opened: memoryview, number: int) -> None:
    offsets = part.container.offsets(part.block, number)
    block = part.block._replace(number=part.number)
    decoder = one.decoder
    if decoder is None:
        columns = Columns.empty(len(offsets), 0)
        columns.stamp[:] = 0
        decode_times(opened, offsets, number, columns)
        columns.order = (block.number << 40) + offsets
        one.parts.append(columns)
        return
    if not decoder.named:
        _name(decoder, opened, offsets)
    begin = 0
    while begin < len(offsets):
        width = len(decoder.names) if decoder.named else 0
        some = offsets[begin : begin + max(1, _NUMBERS // max(width, 1))]
        columns = Columns.empty(len(some), width)
        tally = decode_block(decoder, opened, block, some, number, columns, 0)
        if one.widen(tally.found):
            continue  # once more, with the names that came later
        one.put(columns, tally)
        begin += len(some)


def _name(decoder: Decoder, opened: memoryview, offsets: Ints) -> None:
    for at in offsets.tolist():
        try:
            length = int.from_bytes(opened[at + 1 : at + 9], "little")
            decoder.read(opened[at + 31 : at + 9 + length])
            return
        except LogError:
            continue


def _close(one: Audit) -> None:
    if one.parts:
        log = np.concatenate([part.log for part in one.parts])
        order = np.concatenate([part.order for part in one.parts])
        arrival = np.lexsort((order, log))
        one.log, one.order = log[arrival], order[arrival]
        one.stamp = np.concatenate([part.stamp for part in one.parts])[arrival]
        one.publish = np.concatenate([part.publish for part in one.parts])[arrival]
        one.parts = []
    if one.decoded:
        one.fields = len({name for column in one.found for name in column})
    elif one.decoder is not None and one.decoder.named:
        one.fields = len(one.decoder.names)


def late_of(audits: list[Audit]) -> dict[str, Floats]:
    """Lateness in s of every message with a header stamp, by topic."""
    with_stamps = [one for one in audits if one.has_header and one.stamp.any()]
    late = lateness([one.time for one in with_stamps], [one.log for one in with_stamps], [o.order for o in with_stamps])
    return {one.topic: values for one, values in zip(with_stamps, late, strict=True)}


def report_of(source: Source, audits: list[Audit], damage: list[str]) -> LogReport:
    """The figures of the audits."""
    late = late_of(audits)
    ends = [(int(one.log[0]), int(one.log[-1])) for one in audits if len(one.log)]
    return LogReport(
        paths=tuple(str(path) for path in source.paths),
        bytes=sum(len(container.data) for container in source.containers),
        messages=sum(len(one.log) for one in audits),
        start_ns=min((start for start, _ in ends), default=None),
        end_ns=max((end for _, end in ends), default=None),
        topics=tuple(_topic(one, late.get(one.topic)) for one in audits),
        damage=tuple(damage),
    )


def _topic(one: Audit, late: Floats | None) -> TopicReport:
    time = one.time
    steps, gaps, longest, drops = steps_of(time)
    span = int(time.max() - time.min()) if len(time) else 0
    deltas = np.diff(time)
    stamped = one.stamp != 0
    return TopicReport(
        topic=one.topic,
        type=one.type,
        encoding=one.encoding,
        channels=one.channels,
        count=len(one.log),
        fields=one.fields,
        clock="header" if one.has_header else "log",
        rate_hz=(len(time) - 1) / (span / 1e9) if span > 0 else None,
        steps=steps,
        gaps=gaps,
        longest_gap_s=longest,
        drops=drops,
        duplicates=int(np.count_nonzero(deltas == 0)),
        backward=int(np.count_nonzero(deltas < 0)),
        furthest_back_s=max(0.0, -float(deltas.min(initial=0)) / 1e9),
        zero_stamps=int(np.count_nonzero(~stamped)) - one.undecoded if one.has_header else 0,
        header_offset=offset_of(one.stamp[stamped], one.log[stamped]) if one.has_header else None,
        publish_offset=offset_of(one.publish, one.log),
        late_share=None if late is None else float(np.count_nonzero(late)) / len(late),
        latest_s=None if late is None else float(late.max()),
        layouts=0 if one.decoder is None else one.decoder.layouts,
        nan_share=one.nan_share,
        undecoded=one.undecoded,
        note=one.note,
    )
