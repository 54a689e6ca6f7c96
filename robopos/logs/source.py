"""All files of a log as one: their blocks in order, their topics, their messages."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from robopos.arrays import Ints
from robopos.errors import LogError
from robopos.logs.chunk import Block, open_block
from robopos.logs.columns import Columns, decode_times
from robopos.logs.container import Channel, Container
from robopos.logs.paths import PathLike, log_files
from robopos.logs.records import RawMessage, topic_key

# Encodings of schemas that are no texts.
_BINARY = frozenset({"protobuf", "flatbuffer"})


class Part(NamedTuple):
    """One block of one file; `number` counts over the whole log."""

    container: Container
    block: Block
    number: int

    def open(self) -> memoryview:
        """The unpacked bytes. Raises LogError where they are damaged."""
        return open_block(self.container.data, self.block, str(self.container.path))


class Source:
    """The files of one log, in order.

    Args:
        paths: see `robopos.logs.paths.log_files`.

    Raises:
        LogError: a file that is not there or no MCAP file.
    """

    def __init__(self, paths: PathLike | Iterable[PathLike]) -> None:
        self.paths = log_files(paths)
        self.containers = [Container(path) for path in self.paths]
        self.parts: list[Part] = []
        for container in self.containers:
            for block in container.blocks:
                self.parts.append(Part(container, block, len(self.parts)))

    @property
    def name(self) -> str:
        """How messages call the log."""
        return str(self.paths[0]) + (f" (and {len(self.paths) - 1} more)" if len(self.paths) > 1 else "")

    def topics(self) -> list[str]:
        """All topics, sorted."""
        return sorted({channel.topic for item in self.containers for channel in item.channels.values()})

    def channels(self, topic: str) -> list[tuple[Container, Channel]]:
        """Every channel of a topic in every file: several publishers write several channels."""
        key = topic_key(topic)
        return [
            (container, channel)
            for container in self.containers
            for channel in container.channels.values()
            if topic_key(channel.topic) == key
        ]


def schema_of(container: Container, channel: Channel) -> tuple[str, str]:
    """(type, text) of a channel; ("", "") where it names no schema. A binary schema is given in base64."""
    schema = container.schemas.get(channel.schema_id)
    if schema is None:
        return "", ""
    if schema.encoding in _BINARY:
        return schema.name, base64.b64encode(schema.data).decode()
    return schema.name, schema.data.decode("utf-8", "replace")


def schema_bytes(schema: str, encoding: str) -> bytes:
    """What `schema_of` gave as a text, as it stood in the file."""
    return base64.b64decode(schema) if encoding in _BINARY else schema.encode()


def count_messages(paths: PathLike | Iterable[PathLike]) -> int:
    """How many messages a log has, by its indexes: nothing is unpacked.

    Raises:
        LogError: a file that is not there or no MCAP file.
    """
    return sum(
        count
        for container in Source(paths).containers
        for channel, count in container.counts().items()
        if channel in container.channels
    )


def iter_messages(paths: PathLike | Iterable[PathLike], topics: Iterable[str] | None = None) -> Iterator[RawMessage]:
    """Raw messages in arrival order: log time, then file order.

    Args:
        paths: a file, a folder, a pattern, or a list of them, read as one log.
        topics: only these (a leading slash makes no difference); None takes all.

    Yields:
        `RawMessage`; its payload is a copy, so it may be kept.

    Raises:
        LogError: a file that cannot be read, a damaged chunk, a topic that is not there. A file that is cut at
            its end gives what stands before.
    """
    source = Source(paths)
    for container in source.containers:
        if container.damages:
            raise LogError(container.damages[0])
    if isinstance(topics, str):
        raise LogError(f"iter_messages: topics is a list, not the text {topics!r}")
    keys = None if topics is None else {topic_key(topic) for topic in topics}
    if keys is not None:
        for key in keys:
            if not source.channels(key):
                raise LogError(no_topic(source, key))
    numbers, offsets, channels, log, publish = _sorted_heads(source, keys)

    @lru_cache(maxsize=4)
    def opened(number: int) -> memoryview:
        return source.parts[number].open()

    known: dict[tuple[int, int], tuple[str, str, str, str, str]] = {}
    for row in range(len(numbers)):
        part = source.parts[int(numbers[row])]
        number = int(channels[row])
        facts = known.get((id(part.container), number))
        if facts is None:
            channel = part.container.channels[number]
            schema = part.container.schemas.get(channel.schema_id)
            kind = "" if schema is None else schema.encoding
            facts = (channel.topic, *schema_of(part.container, channel), channel.encoding, kind)
            known[id(part.container), number] = facts
        data = opened(part.number)
        at = int(offsets[row])
        length = int.from_bytes(data[at + 1 : at + 9], "little")
        payload = bytes(data[at + 31 : at + 9 + length])
        yield RawMessage(*facts[:4], int(log[row]), int(publish[row]), payload, facts[4])


def _sorted_heads(source: Source, keys: set[str] | None) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(part, offset, channel, log time, publish time) of every asked message, in arrival order."""
    found: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in range(5)]
    for part in source.parts:
        wanted = []
        for number in part.container.channels_of(part.block):
            channel = part.container.channels.get(number)
            if channel is None:
                continue
            if keys is None or topic_key(channel.topic) in keys:
                wanted.append(number)
        if not wanted:
            continue
        opened = part.open()
        for number in wanted:
            offsets = part.container.offsets(part.block, number)
            heads = Columns.empty(len(offsets), 0)
            try:
                decode_times(opened, offsets, number, heads)
            except LogError as error:
                raise LogError(f"{part.container.path}: chunk at byte {part.block.start}: {error}") from None
            rows = (np.full(len(offsets), part.number), offsets, np.full(len(offsets), number))
            for column, values in zip(found, (*rows, heads.log, heads.publish), strict=True):
                column.append(values)
    numbers, offsets, channels, log, publish = (np.concatenate(column) for column in found)
    order = np.lexsort((offsets, numbers, log))
    return numbers[order], offsets[order], channels[order], log[order], publish[order]


def no_topic(source: Source, topic: str) -> str:
    """The message for a topic that is not there."""
    damage = [text for container in source.containers for text in container.damages + container.losses]
    rest = f" ({damage[0]})" if damage else ""
    return f"{source.name}: no topic {topic!r}; there are {', '.join(source.topics()) or 'none at all'}{rest}"
