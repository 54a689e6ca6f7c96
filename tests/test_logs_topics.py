"""Topics and schemas that are missing, broken or do not fit: each with a defined answer."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from logs_support import BARE, COUNT, SPEC, TWIST, changed, make, numbers, payload
from mcap.writer import CompressionType, Writer

from robopos.errors import LogError
from robopos.logs import (
    StreamSpec,
    count_messages,
    inspect_log,
    iter_messages,
    read_log,
    schema_text,
)
from robopos.logs.container import Container


def write_raw(
    path: Path, type: str, encoding: str, schema: bytes, payloads: list[bytes], *, declared: bool = True
) -> Path:
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        number = writer.register_schema(type, encoding, schema) if declared else 0
        channel = writer.register_channel("/twist", "cdr", number)
        for place, data in enumerate(payloads):
            writer.add_message(channel, 1 + place, data, 1 + place)
        writer.finish()
    return path


def test_a_schema_that_is_missing_empty_or_broken(tmp_path: Path) -> None:
    data = [payload(i) for i in range(3)]
    path = write_raw(tmp_path / "a.mcap", TWIST, "ros2msg", b"", data, declared=False)
    with pytest.raises(LogError, match="no schema is declared"):
        read_log(path, SPEC)
    path = write_raw(tmp_path / "b.mcap", TWIST, "ros2msg", b"", data)
    with pytest.raises(LogError, match="schema is empty"):
        read_log(path, SPEC)
    path = write_raw(tmp_path / "c.mcap", TWIST, "ros2msg", b"std_msgs/Header header\n???\n", data)
    with pytest.raises(LogError, match=r"'\?\?\?' is not a field definition"):
        read_log(path, SPEC)
    path = write_raw(tmp_path / "d.mcap", TWIST, "ros2msg", b"float64 a\nThing b\n", data)
    with pytest.raises(LogError, match="no definition of geometry_msgs/Thing"):
        read_log(path, {"t": StreamSpec("/twist", ["a"])})
    path = write_raw(tmp_path / "e.mcap", "a/msg/B", "ros2msg", b"float64 x\nB next\n", data)
    with pytest.raises(LogError, match="contains itself"):
        read_log(path, {"t": StreamSpec("/twist", ["x"])})
    assert len(inspect_log(path).topics) == 1


def test_a_schema_that_does_not_fit_the_bytes(tmp_path: Path) -> None:
    text = schema_text("sensor_msgs/msg/Imu").encode()
    path = write_raw(tmp_path / "a.mcap", "sensor_msgs/msg/Imu", "ros2msg", text, [payload(i) for i in range(3)])
    spec = {"t": StreamSpec("/twist", ["orientation"])}
    with pytest.raises(LogError, match=r"3 of 3 messages do not decode.*does not fit"):
        read_log(path, spec)
    with pytest.raises(LogError, match="no message is left"):
        read_log(path, spec, on_damage="skip")
    assert inspect_log(path).topics[0].undecoded == 3


def test_a_topic_without_messages_is_named(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.mcap", TWIST, "ros2msg", schema_text(TWIST).encode(), [])
    with pytest.raises(LogError, match="topic /twist has no messages"):
        read_log(path, SPEC)
    assert inspect_log(path).topics[0].count == 0


def test_the_empty_message_type_has_its_one_byte(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.mcap", "std_msgs/msg/Empty", "ros2msg", b"", [b"\0\1\0\0\0"] * 4)
    stream = read_log(path, {"t": StreamSpec("/twist", ["structure_needs_at_least_one_member"])}, clock="log")["t"]
    assert stream.values.tolist() == [[0.0]] * 4


def test_two_channels_of_one_topic_are_both_read(tmp_path: Path) -> None:
    path = tmp_path / "two.mcap"
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        schemas = [
            writer.register_schema(TWIST, "ros2msg", (schema_text(TWIST) + note).encode())
            for note in ("", "# the same\n")
        ]
        channels = [writer.register_channel("/twist", "cdr", schema) for schema in schemas]
        for number in range(50):
            writer.add_message(channels[number % 2], 1 + number, payload(number), 1)
        writer.finish()
    assert numbers(path) == list(range(50))
    assert inspect_log(path).topics[0].channels == 2
    assert len(list(iter_messages(path, ["twist"]))) == 50
    assert count_messages(path) == len(list(iter_messages(path)))


def test_two_types_on_one_topic_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "two.mcap"
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        for kind in (TWIST, "sensor_msgs/msg/Imu"):
            schema = writer.register_schema(kind, "ros2msg", schema_text(kind).encode())
            writer.add_message(writer.register_channel("/twist", "cdr", schema), 1, payload(0), 1)
        writer.finish()
    with pytest.raises(LogError, match=f"carries both {TWIST} and sensor_msgs/msg/Imu"):
        read_log(path, SPEC)


def test_a_message_of_an_undeclared_channel_is_told(tmp_path: Path) -> None:
    path = make(tmp_path / "undeclared.mcap", CompressionType.NONE, **BARE, enable_crcs=False)
    container = Container(path)
    block = container.blocks[6]
    at = block.start + int(container.offsets(block, 1)[0])
    log = read_log(changed(path, lambda data: struct.pack_into("<H", data, at + 9, 77)), SPEC)
    assert len(log["t"]) == COUNT - 1
    assert any("1 messages name channel 77" in text for text in log.warnings)
