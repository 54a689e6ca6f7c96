"""Messages copied from log to log: bytes, encodings and schemas stay, whatever they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import arm_messages
from mcap.reader import make_reader
from mcap.writer import Writer

from robopos.errors import LogError
from robopos.logs import LogMessage, iter_messages, serialize, write_log
from robopos.logs.schema import parse_schema
from robopos.logs.schemas import schema_text
from robopos.serving import Engine, replay_to_log

# (topic, message encoding, (type, schema encoding, schema) or None, payload)
Channel = tuple[str, str, tuple[str, str, bytes] | None, bytes]
ODD: list[Channel] = [
    ("/status", "json", None, b'{"a":1}'),
    ("/status", "json", ("Status", "jsonschema", b'{"type":"object"}'), b'{"a":2}'),
    ("/idl", "cdr", ("my/msg/Foo", "ros2idl", b"module my { module msg { struct Foo { double x; }; }; };"), b"\0\1"),
    ("/empty", "cdr", ("my/msg/Foo", "ros2msg", b""), b"\0\1\0\0"),
    ("/broken", "cdr", ("my/msg/Foo", "ros2msg", b"Bar x"), b"not at all"),
    ("/ros1", "ros1", ("std_msgs/Float64", "ros1msg", b"float64 data"), bytes(8)),
    ("/proto", "protobuf", ("foxglove.Log", "protobuf", b"\x0a\x02ab\xff"), b"\xff\xfe"),
    ("/flat", "flatbuffer", ("Log", "flatbuffer", b"\x10\x00\xff\xfe"), b"\x01"),
    ("/two", "cdr", ("std_msgs/msg/Float64", "ros2msg", b"float64 data"), b"\0\1\0\0" + bytes(8)),
    ("/two", "cdr", ("std_msgs/msg/Int32", "ros2msg", b"int32 data"), b"\0\1\0\0" + bytes(4)),
]


def write_odd(path: Path, start_ns: int, beside: list[LogMessage]) -> Path:
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("ros2", "test")
        for place, (topic, encoding, schema, data) in enumerate(ODD):
            number = writer.register_schema(*schema) if schema else 0
            channel = writer.register_channel(topic, encoding, number)
            writer.add_message(channel, start_ns + place, data, start_ns + place + 7)
        known: dict[str, int] = {}
        for item in beside:
            text = schema_text(item.type)
            if item.topic not in known:
                number = writer.register_schema(item.type, "ros2msg", text.encode())
                known[item.topic] = writer.register_channel(item.topic, "cdr", number)
            data = serialize(parse_schema(item.type, text), item.message)
            writer.add_message(known[item.topic], item.log_time_ns, data, item.log_time_ns)
        writer.finish()
    return path


def odd_of(path: Path) -> list[tuple[Channel, int, int]]:
    with open(path, "rb") as stream:
        found = []
        for schema, channel, message in make_reader(stream).iter_messages():
            declared = None if schema is None else (schema.name, schema.encoding, schema.data)
            item: Channel = channel.topic, channel.message_encoding, declared, message.data
            if item in ODD:
                found.append((item, message.log_time, message.publish_time))
        return found


def test_messages_of_any_encoding_are_copied_as_they_are(tmp_path: Path) -> None:
    path = write_odd(tmp_path / "odd.mcap", 1000, [])
    copy = write_log(tmp_path / "copy.mcap", iter_messages(path))
    assert odd_of(copy) == odd_of(path)
    assert [item for item, _, _ in odd_of(copy)] == ODD


def test_a_replay_keeps_the_topics_that_nobody_asked_for(trained: Path, tmp_path: Path) -> None:
    beside = arm_messages(seconds=4, seed=3)
    path = write_odd(tmp_path / "odd.mcap", beside[0].log_time_ns, beside)
    engine = Engine.load(trained / "bundle", device="cpu")
    summary = replay_to_log(engine, path, tmp_path / "out.mcap")
    assert summary.predictions > 0 and summary.undecodable == 0
    assert odd_of(tmp_path / "out.mcap") == odd_of(path)


def test_a_copied_topic_takes_no_other_type(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", [LogMessage("/t", "std_msgs/msg/Float64", 1, {"data": 1.0})])
    more = LogMessage("/t", "std_msgs/msg/Float32", 2, {"data": 1.0})
    with pytest.raises(LogError, match="was written as std_msgs/msg/Float64: it cannot also carry std_msgs/msg/Float3"):
        write_log(tmp_path / "b.mcap", [*iter_messages(path), more])
    write_log(tmp_path / "b.mcap", [*iter_messages(path), more._replace(type="std_msgs/msg/Float64")])
    assert len(list(iter_messages(tmp_path / "b.mcap", ["/t"]))) == 2


def test_a_topic_that_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"topic '/\\udc80' or its schema is no text"):
        write_log(tmp_path / "a.mcap", [LogMessage("/\udc80", "std_msgs/msg/Float64", 1, {})])
