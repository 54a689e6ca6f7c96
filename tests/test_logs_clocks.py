"""Stamps, clocks and the order of messages: each odd case with a defined answer."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from logs_support import COUNT, SPEC, START_NS, TWIST, changed, make, payload
from mcap.writer import CompressionType

from robopos.errors import LogError
from robopos.logs import (
    Decoder,
    LogMessage,
    StreamSpec,
    inspect_log,
    iter_messages,
    message_time_ns,
    read_log,
    schema_text,
    write_log,
)
from robopos.logs.container import Container
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize


def test_stamps_that_repeat_go_back_or_are_absurd_are_kept_and_counted(tmp_path: Path) -> None:
    stamps = [5, 5, 3, 2**31 * 10**9 - 1, -(2**31) * 10**9, 7]
    path = tmp_path / "stamps.mcap"
    write_log(path, [LogMessage("/twist", TWIST, 1 + i, payload(i, stamp)) for i, stamp in enumerate(stamps)])
    stream = read_log(path, SPEC)["t"]
    assert stream.time_ns.tolist() == stamps
    assert (stream.duplicates, stream.backward) == (1, 2)
    report = inspect_log(path).topics[0]
    assert (report.duplicates, report.backward) == (1, 2)


def test_a_log_time_beyond_int64_is_named(tmp_path: Path) -> None:
    path = make(tmp_path / "late.mcap", CompressionType.NONE, enable_crcs=False)
    container = Container(path)
    block = container.blocks[2]
    at = block.start + int(container.offsets(block, 1)[0])
    changed(path, lambda data: struct.pack_into("<Q", data, at + 15, 2**63 + 1))
    with pytest.raises(LogError, match=r"beyond 2\^63"):
        read_log(path, SPEC)
    with pytest.raises(LogError, match=r"beyond 2\^63"):
        list(iter_messages(path))
    assert inspect_log(path).messages == COUNT


def test_rows_stand_in_arrival_order_whatever_the_file_order(tmp_path: Path) -> None:
    path = tmp_path / "order.mcap"
    times = [30, 10, 20, 10, 10]
    write_log(path, [LogMessage("/twist", TWIST, time, payload(i)) for i, time in enumerate(times)])
    stream = read_log(path, SPEC)["t"]
    assert stream.arrival_ns.tolist() == [10, 10, 10, 20, 30]
    assert stream.values[:, 0].tolist() == [1, 3, 4, 2, 0]
    raw = list(iter_messages(path))
    assert [item.data for item in raw] == [payload(i) for i in (1, 3, 4, 2, 0)]


def test_zero_stamps_take_log_time_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "zero.mcap"
    stamps = [0 if i % 2 else 1000 + i for i in range(10)]
    write_log(path, [LogMessage("/twist", TWIST, 1100 + i, payload(i, stamp)) for i, stamp in enumerate(stamps)])
    log = read_log(path, SPEC)
    assert log["t"].time_ns.tolist() == [stamp or 1100 + i for i, stamp in enumerate(stamps)]
    assert log["t"].zero_stamps == 5
    assert any("5 of 10 header stamps are zero" in text for text in log.warnings)
    assert inspect_log(path).topics[0].zero_stamps == 5


def test_two_clocks_twenty_minutes_apart_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "clocks.mcap"
    late = 20 * 60 * 10**9
    messages = [LogMessage("/twist", TWIST, START_NS + i, payload(i, START_NS + i - late)) for i in range(10)]
    messages += [LogMessage("/bare", "geometry_msgs/msg/Twist", START_NS + i, {}) for i in range(10)]
    write_log(path, messages)
    both = SPEC | {"bare": StreamSpec("/bare", ["linear.x"])}
    with pytest.raises(LogError, match=r"stream 'bare' .* -1200.000 s from log time"):
        read_log(path, both)
    assert read_log(path, both, clock="log")["bare"].clock == "log"
    with pytest.raises(LogError, match="'bare'"):
        read_log(path, SPEC | {"bare": StreamSpec("/bare", ["linear.x"], clock="log")})
    assert read_log(path, SPEC)["t"].offset_ns == -late


def test_each_stream_reads_by_the_clock_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "clocks.mcap"
    messages = [LogMessage("/twist", TWIST, 100 + i, payload(i, 50 + i), publish_time_ns=80 + i) for i in range(3)]
    messages += [LogMessage("/bare", "geometry_msgs/msg/Twist", 100 + i, {}, publish_time_ns=90 + i) for i in range(3)]
    write_log(path, messages)
    specs = SPEC | {"bare": StreamSpec("bare", ["linear.x"]), "own": StreamSpec("twist", ["twist"], clock="publish")}
    for clock, want in (("header", (50, 100, 80)), ("log", (100, 100, 80)), ("publish", (80, 90, 80))):
        log = read_log(path, specs, clock=clock)
        assert tuple(int(log[name].time_ns[0]) for name in ("t", "bare", "own")) == want
    assert read_log(path, specs)["bare"].clock == "log"


@pytest.mark.parametrize("clock", ["header", "log", "publish"])
@pytest.mark.parametrize("kind", [TWIST, "geometry_msgs/msg/Twist"])
def test_the_clock_rule_is_one_offline_and_live(tmp_path: Path, clock: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    text = schema_text(kind)
    path = tmp_path / "clock.mcap"
    raw = []
    for log in range(10, 40):
        message = {"header": {"stamp": int(rng.integers(0, 3)) * 7}} if kind == TWIST else {}
        data = serialize(parse_schema(kind, text), message)
        raw.append(LogMessage("/twist", kind, log, data, publish_time_ns=int(rng.integers(0, 3)) * 5))
    write_log(path, raw)
    field = "twist.linear.x" if kind == TWIST else "linear.x"
    decoder = Decoder(kind, text, [field])
    live = [
        message_time_ns(decoder.decode(item.data).stamp_ns, item.log_time_ns, item.publish_time_ns, clock)
        for item in iter_messages(path)
    ]
    stream = read_log(path, {"t": StreamSpec("/twist", [field])}, clock=clock, cache=False)["t"]  # type: ignore[arg-type]
    assert stream.time_ns.tolist() == live
    with pytest.raises(LogError, match="clock 'sensor'"):
        message_time_ns(1, 2, 3, "sensor")


@pytest.mark.parametrize(
    "header",
    [
        "string frame_id",
        "float64 stamp",
        "builtin_interfaces/Time[2] stamp",
        "Own stamp\n===\nMSG: std_msgs/Own\nint64 sec",
    ],
)
def test_a_header_without_a_stamp_is_no_header(tmp_path: Path, header: str) -> None:
    """A log brings the definitions of its types along, and may define a header as it likes."""
    text = f"std_msgs/Header header\nfloat64 x\n===\nMSG: std_msgs/Header\n{header}\n"
    kind = parse_schema("own_msgs/msg/Own", text)
    messages = [
        LogMessage("/own", kind.name, START_NS + i, serialize(kind, {"x": float(i)}), schema=text) for i in range(9)
    ]
    path = write_log(tmp_path / "own.mcap", messages)
    stream = read_log(path, {"own": StreamSpec("/own", ["x"])}, clock="header")["own"]
    assert stream.values[:, 0].tolist() == list(range(9))
    assert stream.time_ns.tolist() == [START_NS + i for i in range(9)]
