"""A drafted configuration: names that YAML and ROS take, fields by all messages, damage told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mcap.writer import Writer

from robopos.errors import LogError
from robopos.logs import LogMessage, RawMessage, StreamSpec, draft_config, iter_messages, read_log, write_log

JOINTS = "sensor_msgs/msg/JointState"
START_NS, STEP_NS = 1_700_000_000_000_000_000, 10_000_000


def joints(topic: str, count: int = 200, names: tuple[str, ...] = ("q",), first: int = 0) -> list[LogMessage]:
    """At 100 Hz; the first so many are empty."""
    messages = []
    for i in range(count):
        at = START_NS + i * STEP_NS
        values = [] if i < first else [float(np.sin(i / 9 + n)) for n in range(len(names))]
        content = {"header": {"stamp": at}, "name": names, "position": values}
        messages.append(LogMessage(topic, JOINTS, at, content))
    return messages


def drafted(path: Path) -> dict[str, Any]:
    return yaml.safe_load(draft_config(path))


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("/no", "no"),
        ("/On", "on"),
        ("/null", "null"),
        ("/y", "y"),
        ("/123", "stream_123"),
        ("/0x1f", "stream_0x1f"),
        ("/1_0", "stream_1_0"),
        ("/left-arm/é", "left_arm"),
        ("/a: b", "a_b"),
        ("/²", "stream"),
        ("", "stream"),
    ],
)
def test_a_stream_has_a_name_that_yaml_and_ros_take(tmp_path: Path, topic: str, name: str) -> None:
    path = write_log(tmp_path / "a.mcap", joints(topic))
    assert list(drafted(path)["data"]["sequence"]["streams"]) == [name]
    assert list(drafted(path)["data"]["sequence"]["targets"]) == [name]
    assert f"'{name}':" in draft_config(path) or name not in ("no", "on", "null", "y")


def test_streams_have_names_of_their_own(tmp_path: Path) -> None:
    topics = ["/a", "/a_2", "/a-2", "/a.2", "a/2", "/A"]
    path = write_log(tmp_path / "a.mcap", [m for topic in topics for m in joints(topic, 110)])
    streams = drafted(path)["data"]["sequence"]["streams"]
    assert sorted(stream["topic"] for stream in streams.values()) == sorted(topics)
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) for name in streams)


def test_joints_with_brackets_are_drafted_as_they_are_read(tmp_path: Path) -> None:
    names = ("arm[0]", "arm[1].x", "still")
    messages = joints("/j", names=names)
    for item in messages:
        item.message["position"][2] = 1.0  # type: ignore[index, call-overload]
    path = write_log(tmp_path / "a.mcap", messages)
    fields = drafted(path)["data"]["sequence"]["streams"]["j"]["fields"]
    assert fields == ["position[arm[0]]", "position[arm[1].x]"]
    assert read_log(path, {"j": StreamSpec("/j", fields)})["j"].values.shape == (200, 2)


def test_fields_are_judged_by_all_messages(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", joints("/j", first=1))
    assert drafted(path)["data"]["sequence"]["streams"]["j"]["fields"] == ["position"]
    assert "# Left out, empty or without change: velocity, effort.\n" in draft_config(path)
    path = write_log(tmp_path / "b.mcap", joints("/j", first=150))
    with pytest.raises(LogError, match="no topic of a type that the draft knows"):
        draft_config(path)


def chunked(path: Path, messages: list[RawMessage]) -> Path:
    """The messages in many small chunks, with a byte of one of them changed."""
    with open(path, "wb") as stream:
        writer = Writer(stream, chunk_size=2000)
        writer.start("ros2", "test")
        schema = writer.register_schema(JOINTS, "ros2msg", messages[0].schema.encode())
        channel = writer.register_channel("/j", "cdr", schema)
        for item in messages:
            writer.add_message(channel, item.log_time_ns, item.data, item.publish_time_ns)
        writer.finish()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    return path


def test_a_damaged_chunk_is_skipped_and_training_is_told_to(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "a.mcap", joints("/j", 1000))
    path = chunked(tmp_path / "b.mcap", list(iter_messages(whole)))
    with pytest.raises(LogError, match="on_damage"):
        read_log(path, {"j": StreamSpec("/j", ["position"])})
    assert drafted(path)["data"]["on_damage"] == "skip"
    assert drafted(path)["data"]["sequence"]["streams"]["j"]["fields"] == ["position"]
    assert "b.mcap is damaged (`robopos inspect` tells where)" in draft_config(path)
    assert "on_damage" not in draft_config(whole)


def test_what_is_wrong_with_the_only_log_is_told(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", joints("/j"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(LogError, match=r"no topic of a type that the draft knows .*cut or unreadable"):
        draft_config(path)


def test_a_topic_of_two_types_is_left_out(tmp_path: Path) -> None:
    kinds = ("std_msgs/msg/Float64", "std_msgs/msg/Float32")
    two = [LogMessage("/x", kinds[i % 2], START_NS + i * STEP_NS, {"data": np.sin(i)}) for i in range(240)]
    parts = [write_log(tmp_path / f"{n}.mcap", [m for m in two if m.type == kind]) for n, kind in enumerate(kinds)]
    raw = list(iter_messages(parts))
    path = write_log(tmp_path / "log.mcap", [*raw, *joints("/j")])
    assert list(drafted(path)["data"]["sequence"]["streams"]) == ["j"]
    with pytest.raises(LogError, match=f"no topic .*carries both {kinds[0]} and {kinds[1]}"):
        draft_config(write_log(tmp_path / "log.mcap", raw))
