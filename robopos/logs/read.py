"""`read_log`: topics of a log to columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from robopos.errors import LogError
from robopos.logs import cache as kept
from robopos.logs.decode import decode
from robopos.logs.finish import check_offsets, finish
from robopos.logs.log import Log, Stream
from robopos.logs.paths import PathLike
from robopos.logs.reading import Reading
from robopos.logs.records import ON_DAMAGE, OnDamage, StreamSpec, check_clock
from robopos.logs.source import Source
from robopos.stamps import Clock


def read_log(
    paths: PathLike | Iterable[PathLike],
    streams: Mapping[str, StreamSpec],
    *,
    clock: Clock = "header",
    on_damage: OnDamage = "error",
    cache: bool = True,
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
        cache: keep the columns as Arrow files in the user's cache folder (see `robopos.logs.cache`), and take them
            when the same is asked of the same content again. Needs pyarrow; nothing damaged is kept.
        workers: threads that unpack and decode; None takes the number of processors, at most 8.

    Returns:
        A `Log`; the rows of each stream stand in arrival order (log time, then file order).

    Raises:
        LogError: naming file, topic and field: a topic or field that is not there, a topic without messages, a
            joint that no message names, damage, header clocks that are more than 1 s from the log clock while
            some stream has to use the log clock.
    """
    check_clock(clock, "read_log")
    if on_damage not in ON_DAMAGE:
        raise LogError(f"read_log: on_damage {on_damage!r} is none of {', '.join(ON_DAMAGE)}")
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
    files = _cache_files(source, streams, clock) if cache and not warnings else {}
    found = {name: entry for name, path in files.items() if (entry := kept.load(path)) is not None}
    readings = [Reading(name, spec, source) for name, spec in streams.items() if name not in found]
    damages = decode(readings, on_damage, workers) if readings else []
    again = [reading for reading in readings if reading.expand_by_names()]
    if again:
        decode(again, on_damage, workers)
    warnings += damages
    finished: dict[str, Stream] = {}
    for name, entry in found.items():
        finished[name] = entry.stream
        warnings += [source.name + text for text in entry.warnings]
    for reading in readings:
        own: list[str] = []
        stream = finish(reading, reading.spec.clock or clock, on_damage, own)
        finished[reading.name] = stream
        if reading.name in files and not damages and not reading.broken:
            # Without the name of the log: the content decides, it may be called otherwise next time.
            nameless = [text.removeprefix(source.name) for text in own]
            own += filter(None, [kept.store(files[reading.name], stream, nameless)])
        warnings += own
    finished = {name: finished[name] for name in streams}
    check_offsets(source.name, finished)
    return Log(finished, source.paths, tuple(dict.fromkeys(warnings)))


def _cache_files(source: Source, streams: Mapping[str, StreamSpec], clock: Clock) -> dict[str, Path]:
    if not kept.available():
        return {}
    contents = [kept.content_key(container) for container in source.containers]
    return {name: kept.stream_path(contents, name, spec, spec.clock or clock) for name, spec in streams.items()}
