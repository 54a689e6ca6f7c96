"""All blocks of some streams to columns, in threads: unpacking and numpy release the interpreter's lock."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from robopos.errors import LogError
from robopos.logs.columns import Columns, Tally, decode_block
from robopos.logs.reading import Reading
from robopos.logs.records import OnDamage
from robopos.logs.source import Part

# Columns may take this much, or so many times what the log's messages take.
_COLUMN_BYTES, _COLUMN_SHARE = 1 << 30, 16


class _Job(NamedTuple):
    """The rows of one stream in one block: channel ids with their first rows."""

    stream: Reading
    channel: int
    first: int


def decode(readings: list[Reading], on_damage: OnDamage, workers: int | None) -> list[str]:
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
        _check_memory(reading, rows)
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


def _check_memory(reading: Reading, rows: int) -> None:
    """Refuse columns that need far more memory than the messages have bytes: a few names that appear once each."""
    columns = len(reading.decoder.names)
    held = sum(part.block.size for part in {part.number: part for part, _, _ in reading.blocks()}.values())
    if rows * columns * 8 > max(_COLUMN_BYTES, _COLUMN_SHARE * held):
        raise LogError(
            f"{reading.where}: {rows} messages with {columns} columns would take {rows * columns * 8 / 1e9:.0f} GB, "
            f"and the log holds {held / 1e9:.3f} GB: ask for fewer fields"
        )


def _first_names(reading: Reading) -> None:
    """Let the first message that decodes name the columns, before threads share the decoder."""
    damage = ""
    first = ""
    for part, channel, count in reading.blocks():
        if reading.decoder.named:
            return
        try:
            opened = part.open()
        except LogError as error:
            damage = damage or f"{error}; no other chunk of the topic helps"
            continue
        for at in part.container.offsets(part.block, channel)[:count].tolist():
            try:
                length = int.from_bytes(opened[at + 1 : at + 9], "little")
                reading.decoder.read(opened[at + 31 : at + 9 + length])
                return
            except LogError as error:
                first = first or str(error)
    if not reading.decoder.named:
        kind = reading.type or reading.encoding
        raise LogError(damage or f"{reading.where}: not one message decodes as {kind}; the first: {first}")


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
