"""Logs as a writer leaves them, for the tests that break them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcap.writer import CompressionType, IndexType, Writer

from robopos.logs import (
    StreamSpec,
    read_log,
    schema_text,
)
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize

TWIST = "geometry_msgs/msg/TwistStamped"
COUNT = 120
START_NS = 1_700_000_000_000_000_000
SPEC = {"t": StreamSpec("/twist", ["twist.linear.x"])}


def payload(number: int, stamp: int | None = None) -> bytes:
    stamp = START_NS + number * 10_000_000 if stamp is None else stamp
    message = {"header": {"stamp": stamp, "frame_id": "base"}, "twist": {"linear": {"x": number}}}
    return serialize(parse_schema(TWIST, schema_text(TWIST)), message)


def make(path: Path, compression: CompressionType = CompressionType.ZSTD, count: int = COUNT, **options: Any) -> Path:
    """Messages in chunks of about eight, on one topic; the options go to the writer."""
    with open(path, "wb") as stream:
        writer = Writer(stream, compression=compression, chunk_size=1000, **options)
        writer.start("ros2", "test")
        schema = writer.register_schema(TWIST, "ros2msg", schema_text(TWIST).encode())
        channel = writer.register_channel("/twist", "cdr", schema)
        for number in range(count):
            time = START_NS + number * 10_000_000 + 1
            writer.add_message(channel, time, payload(number), time + 1, number)
        writer.finish()
    return path


def numbers(path: Path, **options: Any) -> list[float]:
    return read_log(path, SPEC, **options)["t"].values[:, 0].tolist()


def changed(path: Path, change: Callable[[bytearray], Any]) -> Path:
    data = bytearray(path.read_bytes())
    kept = change(data)
    path.write_bytes(bytes(data if kept is None else kept))
    return path


BARE = {
    "index_types": IndexType.NONE,
    "repeat_channels": False,
    "repeat_schemas": False,
    "use_statistics": False,
    "use_summary_offsets": False,
}
