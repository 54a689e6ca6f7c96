"""`read_log`: topics of a log to columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from robopos.errors import LogError
from robopos.logs.columns import Columns, Tally, decode_block
from robopos.logs.finish import check_offsets, finish
from robopos.logs.log import Log
from robopos.logs.paths import PathLike
from robopos.logs.reading import Reading
from robopos.logs.records import Clock, StreamSpec, check_clock
from robopos.logs.source import Part, Source


class _Job(NamedTuple):
    """The rows of one stream in one block: channel ids with their first rows."""

    stream: Reading
    channel: int
    first: int


def read_log(
    paths: PathLike | Iterable[PathLike],
    streams: Mapping[str, StreamSpec],
    *,
    clock: Clock = "header",
    on_damage: Literal["error", "skip"] = "error",
    workers: int | None = None,
) -> Log:
    """Read topics of one log into float64 columns.

    Args:
        paths: an MCAP file, a folder, a pattern, or a list of them, read as one log.
        streams: what to read, by a name of your own.
        clock: "header", "log" or "publish", for the streams whose specification names none. Under "header" a
            message without a header or with a zero stamp takes its log time.
        on_damage: "error" raises at the first damaged chunk or message; "skip" reads the rest and tells in
            `Log.warnings` how much is missing. A file that is only cut at its end is read up to there either
            way, with a warning.
        workers: threads that unpack and decode; None takes the number of processors, at most 8.

    Returns:
        A `Log`; the rows of each stream stand in arrival order (log time, then file order).

    Raises:
        LogError: naming file, topic and field: a topic or field that is not there, a topic without messages, a
            joint that no message names, damage, header clocks that are more than 1 s from the log clock while
            some stream has to use the log clock.
    """
    check_clock(clock, "read_log")
    if on_damage not in ("error", "skip"):
        raise LogError(f"read_log: on_damage {on_damage!r} is none of error, skip")
    if workers is not None and workers < 1:
        raise LogError(f"read_log: workers is {workers}; it must be at least 1")
    if not streams:
        raise LogError("read_log: name at least one stream")
    source = Source(paths)
    warnings = [text for container in source.containers for text in container.losses]
    for container in source.containers:
        if container.damages and on_damage == "error":
            raise LogError(container.damages[0] + " (on_damage='skip' reads the rest)")
        warnings += container.damages
    readings = [Reading(name, spec, source) for name, spec in streams.items()]
    damages = _decode(readings, on_damage, workers)
    again = [reading for reading in readings if reading.expand_by_names()]
    if again:
        _decode(again, on_damage, workers)
    warnings += damages
    finished = {}
    for reading in readings:
        finished[reading.name] = finish(reading, reading.spec.clock or clock, on_damage, warnings)
    check_offsets(source.name, finished)
    return Log(finished, source.paths, tuple(dict.fromkeys(warnings)))


def _decode(readings: list[Reading], on_damage: str, workers: int | None) -> list[str]:
    """Decode all blocks of these streams; returns what is damaged."""
    jobs: dict[int, list[_Job]] = {}
    parts: dict[int, Part] = {}
    for reading in readings:
        rows = 0
        for part, channel, count in reading.blocks():
            parts[part.number] = part
            jobs.setdefault(part.number, []).append(_Job(reading, channel, rows))
            rows += count
        if rows == 0:
            raise LogError(f"{reading.where} has no messages")
        _first_names(reading)
        reading.columns = Columns.empty(rows, len(reading.decoder.names))
        reading.tallies = []
    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        numbers = sorted(jobs)
        results = list(pool.map(lambda number: _run(parts[number], jobs[number]), numbers))
    damages = []
    for number, (tallies, error) in zip(numbers, results, strict=True):
        if error:
            if on_damage == "error":
                raise LogError(f"{error} (on_damage='skip' reads the rest)")
            lost = sum(parts[number].container.count(parts[number].block, job.channel) for job in jobs[number])
            damages.append(f"{error}; {lost} messages of the asked topics are lost")
        for job, tally in zip(jobs[number], tallies, strict=True):
            job.stream.tallies.append(tally)
    return damages


def _first_names(reading: Reading) -> None:
    """Let the first message that decodes name the columns, before threads share the decoder."""
    for part, channel, count in reading.blocks():
        if reading.decoder.named:
            return
        try:
            opened = part.open()
        except LogError:
            continue
        for at in part.container.offsets(part.block, channel)[:count].tolist():
            try:
                length = int.from_bytes(opened[at + 1 : at + 9], "little")
                reading.decoder.read(opened[at + 31 : at + 9 + length])
                return
            except LogError:
                continue
    if not reading.decoder.named:
        raise LogError(f"{reading.where}: not one message decodes as {reading.type}")


def _run(part: Part, jobs: list[_Job]) -> tuple[list[Tally], str]:
    tallies: list[Tally] = []
    try:
        opened = part.open()
        for job in jobs:
            offsets = part.container.offsets(part.block, job.channel)
            block = part.block._replace(number=part.number)
            tallies.append(
                decode_block(job.stream.decoder, opened, block, offsets, job.channel, job.stream.columns, job.first)
            )
    except LogError as error:
        for job in jobs[len(tallies) :]:
            count = part.container.count(part.block, job.channel)
            job.stream.columns.kept[job.first : job.first + count] = False
            tallies.append(Tally([{} for _ in job.stream.decoder.fields]))
        text = str(error)
        where = str(part.container.path)
        return tallies, text if text.startswith(where) else f"{where}: chunk at byte {part.block.start}: {text}"
    return tallies, ""
