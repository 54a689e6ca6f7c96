"""Writing MCAP logs: ROS 2 profile, cdr messages, ros2msg schemas, as rosbag2 and Foxglove read them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from mcap.writer import CompressionType, Writer

from robopos.errors import LogError
from robopos.files import whole_file
from robopos.logs.records import LogMessage
from robopos.logs.schema import MessageType, long_name, parse_schema
from robopos.logs.schemas import schema_text
from robopos.logs.serialize import serialize

_COMPRESSION = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}


def write_log(
    path: str | os.PathLike[str],
    messages: Iterable[LogMessage],
    *,
    compression: Literal["zstd", "lz4", "none"] = "zstd",
) -> Path:
    """Write messages to an MCAP file, in the given order; an older file at `path` is replaced when all is written.

    Args:
        path: the file to make; its folder must exist.
        messages: consumed one by one, so a generator of any length is fine. All messages of a topic have one
            type and schema.
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
        self.schemas: dict[tuple[str, str], tuple[int, MessageType]] = {}
        self.channels: dict[str, tuple[int, str, str, MessageType]] = {}
        self.sequence: dict[int, int] = {}

    def write_all(self, messages: Iterable[LogMessage]) -> None:
        for message in messages:
            channel, kind = self._channel(message)
            data = message.message
            if not isinstance(data, bytes):
                try:
                    data = serialize(kind, data)
                except LogError as error:
                    raise LogError(f"{self.target}: topic {message.topic}: {error}") from None
            log_time = int(message.log_time_ns)
            publish_time = log_time if message.publish_time_ns is None else int(message.publish_time_ns)
            for what, value in (("log time", log_time), ("publish time", publish_time)):
                if not 0 <= value < 2**63:
                    raise LogError(f"{self.target}: topic {message.topic}: {what} {value} ns is outside 0 to 2^63 - 1")
            sequence = self.sequence[channel] = self.sequence.get(channel, -1) + 1
            self.writer.add_message(channel, log_time, data, publish_time, sequence)

    def _channel(self, message: LogMessage) -> tuple[int, MessageType]:
        known = self.channels.get(message.topic)
        if known is not None and known[1] == message.type and message.schema in (None, known[2]):
            return known[0], known[3]
        name = long_name(message.type)
        schema = schema_text(name) if message.schema is None else message.schema
        if known is not None and (long_name(known[1]) != name or known[2] != schema):
            raise LogError(
                f"{self.target}: topic {message.topic} was written as {known[1]}: "
                f"it cannot also carry {message.type} or another definition of it"
            )
        if (name, schema) not in self.schemas:
            kind = parse_schema(name, schema)
            number = self.writer.register_schema(name, "ros2msg", schema.encode())
            self.schemas[name, schema] = number, kind
        number, kind = self.schemas[name, schema]
        channel = known[0] if known else self.writer.register_channel(message.topic, "cdr", number, {})
        self.channels[message.topic] = channel, message.type, schema, kind
        return channel, kind
