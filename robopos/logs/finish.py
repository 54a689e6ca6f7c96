"""From decoded rows to a `Stream`: arrival order, clocks, and everything that has to be said."""

from __future__ import annotations

import numpy as np

from robopos.arrays import Ints
from robopos.errors import LogError
from robopos.logs.columns import Columns
from robopos.logs.log import Stream
from robopos.logs.reading import Reading
from robopos.logs.records import OnDamage
from robopos.logs.units import unit_of
from robopos.stamps import Clock

# A header clock further than this from the log clock cannot be mixed with log times.
MAX_CLOCK_OFFSET_NS = 1_000_000_000
_SAMPLES = 4096


def finish(reading: Reading, clock: Clock, on_damage: OnDamage, warnings: list[str]) -> Stream:
    """Make the stream of one reading; `warnings` grows.

    Raises:
        LogError: undecodable messages (unless `on_damage` is "skip"), none left, a named element that no
            message has.
    """
    columns, decoder = reading.columns, reading.decoder
    total = len(columns.log)
    broken = reading.broken
    if broken:
        first = next(tally.first_error for tally in reading.tallies if tally.first_error)
        text = f"{reading.where}: {broken} of {total} messages do not decode; the first: {first}"
        if on_damage == "error":
            raise LogError(f"{text} (on_damage='skip' reads the rest)")
        warnings.append(text)
    _arrange(columns)
    if len(columns.log) == 0:
        raise LogError(f"{reading.where}: no message is left, all {total} are damaged")
    if int(columns.log.min()) < 0 or int(columns.publish.min()) < 0:
        raise LogError(f"{reading.where}: a log or publish time lies beyond 2^63 - 1 ns (the year 2262)")
    _tell_missing(reading, warnings)
    used, time, zeros = _clock(columns, decoder.has_header, clock)
    if zeros:
        warnings.append(f"{reading.where}: {zeros} of {len(time)} header stamps are zero: their log time is used")
    return Stream(
        name=reading.name,
        topic=reading.topic,
        type=reading.type,
        schema=reading.schema,
        encoding=reading.encoding,
        names=decoder.names,
        units=tuple(unit_of(reading.type, name) for name in decoder.names),
        frame_ids=tuple(dict.fromkeys(name for tally in reading.tallies for name in tally.frames)),
        clock=used,
        time_ns=time,
        arrival_ns=columns.log,
        order=columns.order,
        values=columns.values,
        zero_stamps=zeros,
        offset_ns=_offset(columns) if decoder.has_header else None,
    )


def _offset(columns: Columns) -> int | None:
    """Median of header stamp minus log time over at most some thousand messages spread over the log."""
    step = max(1, len(columns.stamp) // _SAMPLES)
    stamp, log = columns.stamp[::step], columns.log[::step]
    stamped = stamp != 0
    return int(np.median((stamp - log)[stamped])) if stamped.any() else None


def _arrange(columns: Columns) -> None:
    """Drop what was not decoded and sort by arrival, in place where nothing has to move."""
    log, order = columns.log, columns.order
    rows: Ints | None = None
    if not columns.kept.all():
        rows = np.flatnonzero(columns.kept)
        log, order = log[rows], order[rows]
    unsorted = (log[1:] < log[:-1]) | ((log[1:] == log[:-1]) & (order[1:] < order[:-1]))
    if unsorted.any():
        sort = np.lexsort((order, log))
        rows = sort if rows is None else rows[sort]
    if rows is None:
        return
    for name in ("stamp", "log", "publish", "order", "kept"):
        setattr(columns, name, getattr(columns, name)[rows])
    # One column at a time: a second copy of all values would double the memory.
    for number in range(columns.values.shape[1]):
        columns.values[: len(rows), number] = columns.values[rows, number]
    columns.values = columns.values[: len(rows)]


def _clock(columns: Columns, has_header: bool, clock: Clock) -> tuple[Clock, Ints, int]:
    """(clock used, times, zero stamps); the rule of `message_time_ns` for whole columns."""
    if clock == "publish":
        return clock, np.where(columns.publish != 0, columns.publish, columns.log), 0
    if clock == "log" or not has_header:
        return "log", columns.log, 0
    zero = columns.stamp == 0
    zeros = int(np.count_nonzero(zero))
    return clock, np.where(zero, columns.log, columns.stamp) if zeros else columns.stamp, zeros


def _tell_missing(reading: Reading, warnings: list[str]) -> None:
    missing: dict[int, int] = {}
    for tally in reading.tallies:
        for number, rows in tally.missing.items():
            missing[number] = missing.get(number, 0) + rows
    total = len(reading.columns.log)
    never = [reading.decoder.names[number] for number, rows in missing.items() if rows >= total]
    if never:
        there = f"; there are {', '.join(reading.held())}" if reading.held() else ""
        raise LogError(f"{reading.where}: no message has {', '.join(never)}{there}")
    for number, rows in sorted(missing.items()):
        warnings.append(
            f"{reading.where}: {reading.decoder.names[number]} is not in {rows} of {total} messages: NaN there"
        )


def check_offsets(where: str, streams: dict[str, Stream]) -> None:
    """Refuse to mix a header clock and the log clock when they are more than 1 s apart.

    Raises:
        LogError: naming the stream that has only log time, and the offset of the others.
    """
    apart = {
        name: stream.offset_ns
        for name, stream in streams.items()
        if stream.clock == "header" and stream.offset_ns is not None and abs(stream.offset_ns) > MAX_CLOCK_OFFSET_NS
    }
    if not apart:
        return
    for name, stream in streams.items():
        if stream.clock == "log" or stream.zero_stamps:
            other, offset = next(iter(apart.items()))
            why = "has zero header stamps" if stream.zero_stamps else "runs on the log clock"
            raise LogError(
                f"{where}: stream {name!r} ({stream.topic}) {why}, but the header stamps of {other!r} are "
                f"{offset / 1e9:.3f} s from log time: read all with clock='log', or correct the clocks"
            )
