"""Recordings from elsewhere: every number as another library reads it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from robopos.logs import StreamSpec, inspect_log, iter_messages, read_log
from robopos.logs.fields import numeric_paths
from robopos.logs.schema import parse_schema
from robopos.logs.source import Source, schema_of

EXTRA = os.environ.get("ROBOPOS_EXTRA_LOGS")
pytestmark = pytest.mark.skipif(not EXTRA, reason="ROBOPOS_EXTRA_LOGS names no folder of further logs")
ROWS = 100
PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def logs() -> list[Path]:
    folder = Path(str(EXTRA))
    paths = sorted(folder.glob("logs/*.mcap")) + sorted(folder.glob("logs/g1/*.mcap"))[:1]
    names = (
        "all_std_types_2_msgs_each",
        "jointstate_names_reordered",
        "jointstate_two_publishers",
        "two_channels_one_topic",
    )
    return paths + [folder / "hostile" / f"{name}.mcap" for name in names]


def value_at(message: Any, name: str) -> float:
    """Follow an expanded name into a message that rosbags decoded; NaN where it is not."""
    parent, value = message, message
    for field, label in PART.findall(name):
        if field:
            parent, value = value, getattr(value, field)
            continue
        place = int(label) if label.isdigit() else -1
        names = list(getattr(parent, "name", ()))
        if label in names and len(value) == len(names):
            place = names.index(label)
        if not 0 <= place < len(value):
            return float("nan")
        value = value[place]
    return float(value)


def numeric_topics(path: Path) -> dict[str, list[str]]:
    """Field paths of every topic that is decoded, covariances and images aside."""
    source = Source(path)
    found = {}
    for topic in inspect_log(path).topics:
        if not topic.fields or topic.undecoded or topic.fields > 800:
            continue
        container, channel = source.channels(topic.topic)[0]
        paths = numeric_paths(parse_schema(*schema_of(container, channel)))
        found[topic.topic] = [path for path in paths if "[]" not in path]
    return found


@pytest.mark.slow
def test_every_number_is_the_one_that_rosbags_reads() -> None:
    compared = 0
    for path in logs():
        for topic, paths in numeric_topics(path).items():
            message_count = sum(1 for _ in iter_messages(path, [topic]))
            stream = read_held(path, topic, paths)
            assert len(stream) == message_count
            with AnyReader([path]) as reader:
                wanted = [connection for connection in reader.connections if connection.topic == topic]
                rows = []
                for connection, _, raw in reader.messages(connections=wanted):
                    message = reader.deserialize(raw, connection.msgtype)
                    rows.append([value_at(message, name) for name in stream.names])
                    if len(rows) == ROWS:
                        break
            # Ties of log time may stand in another order there.
            order = (
                np.lexsort(np.array(rows).T[::-1]) if len(set(stream.arrival_ns[:ROWS])) < len(rows) else slice(None)
            )
            ours = stream.values[: len(rows)]
            ours = ours[np.lexsort(ours.T[::-1])] if not isinstance(order, slice) else ours
            np.testing.assert_array_equal(ours, np.array(rows)[order], err_msg=f"{path} {topic}")
            compared += ours.size
    assert compared > 150_000


def read_held(path: Path, topic: str, paths: list[str]) -> Any:
    """Read all fields that are not empty in every message."""
    from robopos.errors import LogError

    while True:
        try:
            return read_log(path, {"s": StreamSpec(topic, paths)}, clock="log", cache=False)["s"]
        except LogError as error:
            missing = re.search(r"no message has ([^;]*)", str(error))
            assert missing is not None, error
            gone = set(missing.group(1).split(", "))
            assert gone & set(paths)
            paths = [path for path in paths if path not in gone]
