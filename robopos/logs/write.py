"""Writing MCAP logs: ROS 2 profile, cdr messages, ros2msg schemas, as rosbag2 and Foxglove read them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import index
from pathlib import Path
from typing import Literal

from mcap.writer import CompressionType, Writer

from robopos.errors import LogError
from robopos.files import whole_file
from robopos.logs.records import LogMessage, RawMessage
from robopos.logs.schema import MessageType, long_name, parse_schema
from robopos.logs.schemas import schema_text
from robopos.logs.serialize import serialize
from robopos.logs.source import schema_bytes

_COMPRESSION = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}


def write_log(
    path: str | os.PathLike[str],
    messages: Iterable[LogMessage | RawMessage],
    *,
    compression: Literal["zstd", "lz4", "none"] = "zstd",
) -> Path:
    """Write messages to an MCAP file, in the given order; an older file at `path` is replaced when all is written.

    Args:
        path: the file to make; its folder must exist.
        messages: consumed one by one, so a generator of any length is fine. All `LogMessage` of a topic have one
            type and schema. A `RawMessage` is copied as it is, whatever its encoding and its schema.
        compression: of the chunks.

    Returns:
        The path.

    Raises:
        LogError: no folder, an unknown compression, a message that does not fit its type, one topic with two
            types. Nothing is left at `path` then but what was there before.
    """
    target = Path(path)
    if compression not in _COMPRESSION:
        raise LogError(f"{target}: compression {compression!r} is none of {', '.join(_COMPRESSION)}")
    if not target.parent.is_dir():
        raise LogError(f"{target}: its folder {target.parent} does not exist")
    with whole_file(target) as beside, open(beside, "wb") as stream:
        writer = Writer(stream, compression=_COMPRESSION[compression])
        writer.start(profile="ros2", library="robopos")
        _Topics(target, writer).write_all(messages)
        writer.finish()  # type: ignore[no-untyped-call]
    return target


class _Topics:
    """The channels of one file while it is written."""

    def __init__(self, target: Path, writer: Writer) -> None:
        self.target = target
        self.writer = writer
        self.schemas: dict[tuple[str, str, str], int] = {}
        self.channels: dict[tuple[str, str, int], int] = {}
        self.types: dict[str, tuple[str, str]] = {}
        self.made: dict[tuple[str, str, str | None], tuple[int, MessageType]] = {}
        self.sequence: dict[int, int] = {}

    def write_all(self, messages: Iterable[LogMessage | RawMessage]) -> None:
        for message in messages:
            channel, data = self._copied(message) if isinstance(message, RawMessage) else self._made(message)
            log_time = self._time_ns(message.log_time_ns, f"topic {message.topic}: log time")
            publish_time = log_time
            if message.publish_time_ns is not None:
                publish_time = self._time_ns(message.publish_time_ns, f"topic {message.topic}: publish time")
            sequence = self.sequence[channel] = self.sequence.get(channel, -1) + 1
            self.writer.add_message(channel, log_time, data, publish_time, sequence)

    def _time_ns(self, value: int, what: str) -> int:
        try:
            time_ns = index(value)  # a float has lost nanoseconds already
        except TypeError:
            raise LogError(f"{self.target}: {what} {value!r} is no integer of nanoseconds") from None
        if not 0 <= time_ns < 2**63:
            raise LogError(f"{self.target}: {what} {value} ns is outside 0 to 2^63 - 1")
        return time_ns

    def _copied(self, raw: RawMessage) -> tuple[int, bytes]:
        return self._channel(raw.topic, raw.encoding, raw.type, raw.schema_encoding, raw.schema), raw.data

    def _made(self, message: LogMessage) -> tuple[int, bytes]:
        key = message.topic, message.type, message.schema
        if key not in self.made:
            name = long_name(message.type)
            text = schema_text(name) if message.schema is None else message.schema
            kind = parse_schema(name, text)
            known = self.types.get(message.topic)
            if known is not None and (long_name(known[0]), known[1]) != (name, text):
                raise LogError(
                    f"{self.target}: topic {message.topic} was written as {known[0]}: "
                    f"it cannot also carry {message.type} or another definition of it"
                )
            self.made[key] = self._channel(message.topic, "cdr", name, "ros2msg", text), kind
        channel, kind = self.made[key]
        data = message.message
        if not isinstance(data, bytes):
            try:
                data = serialize(kind, data)
            except LogError as error:
                raise LogError(f"{self.target}: topic {message.topic}: {error}") from None
        return channel, data

    def _channel(self, topic: str, encoding: str, type: str, schema_encoding: str, schema: str) -> int:
        """The channel for messages of one topic, encoding and schema, which are not looked into."""
        declared = type, schema_encoding, schema
        try:
            if declared not in self.schemas:
                data = schema_bytes(schema, schema_encoding)
                # Number 0 stands for none.
                number = self.writer.register_schema(type, schema_encoding, data) if any(declared) else 0
                self.schemas[declared] = number
            key = topic, encoding, self.schemas[declared]
            if key not in self.channels:
                self.channels[key] = self.writer.register_channel(topic, encoding, key[2], {})
        except UnicodeEncodeError as error:
            raise LogError(f"{self.target}: topic {topic!r} or its schema is no text ({error})") from None
        self.types.setdefault(topic, (type, schema))
        return self.channels[key]
