"""Recordings that are no MCAP: sqlite `.db3` bags of ROS 2 and `.bag` files of ROS 1, through `rosbags`.

Their messages are copied, bytes unchanged, into a temporary MCAP file that has no name any more, so that every
later step is the one that MCAP files take.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO, Any

from mcap.writer import CompressionType, Writer

from robopos.errors import LogError
from robopos.logs.schemas import schema_text

SIGNATURES = {b"#ROSBAG ": "a ROS 1 bag", b"SQLite format 3\0": "a sqlite bag"}


def foreign_kind(head: bytes) -> str | None:
    """What a file that begins with these bytes is, when this module can read it."""
    return next((kind for signature, kind in SIGNATURES.items() if head.startswith(signature)), None)


def as_mcap(path: Path, kind: str) -> IO[bytes]:
    """Copy the messages of a foreign recording into an unnamed temporary MCAP file.

    Raises:
        LogError: `rosbags` is not installed, or cannot read the file.
    """
    try:
        from rosbags.highlevel import AnyReader
    except ImportError:
        raise LogError(f"{path}: the file is {kind}; reading it needs: pip install 'robopos[rosbags]'") from None
    out = tempfile.TemporaryFile(suffix=".mcap")  # noqa: SIM115 (the caller closes it)
    writer = Writer(out, compression=CompressionType.NONE)
    writer.start(profile="ros2", library="robopos")
    try:
        with AnyReader([path]) as reader:
            ros1 = not getattr(reader, "is2", True)
            channels: dict[int, int] = {}
            for connection in reader.connections:
                channels[connection.id] = _channel(writer, connection, ros1)
            for connection, time, data in reader.messages():
                if time < 0:
                    raise LogError(f"{path}: topic {connection.topic} has a message before 1970")
                writer.add_message(channels[connection.id], time, bytes(data), time)
    except LogError:
        raise
    except Exception as error:  # of a damaged file it lets through whatever its parts raise
        raise LogError(f"{path}: rosbags cannot read this file as {kind} ({type(error).__name__}: {error})") from error
    writer.finish()  # type: ignore[no-untyped-call]
    out.flush()
    return out


def _channel(writer: Writer, connection: Any, ros1: bool) -> int:
    text = connection.msgdef.data
    if not text:
        # Older ROS 2 recorders store no definitions.
        try:
            text = schema_text(connection.msgtype)
        except LogError:
            text = ""
    schema = writer.register_schema(connection.msgtype, "ros1msg" if ros1 else "ros2msg", text.encode())
    return int(writer.register_channel(connection.topic, "ros1" if ros1 else "cdr", schema))
