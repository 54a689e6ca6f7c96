"""Broken and odd logs, each made here, each with a defined answer."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.writer import CompressionType, IndexType, Writer

from robopos.errors import LogError
from robopos.logs import (
    Decoder,
    LogMessage,
    RawMessage,
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


@pytest.mark.parametrize("compression", list(CompressionType))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_chunking": False},
        {"enable_crcs": False},
        {"index_types": IndexType.NONE},
        {"index_types": IndexType.CHUNK},
        {"index_types": IndexType.MESSAGE},
        {"repeat_channels": False, "repeat_schemas": False},
        BARE,
        {**BARE, "use_chunking": False},
    ],
    ids=lambda options: "+".join(options) or "all",
)
def test_every_kind_of_whole_file_is_read_without_a_word(
    tmp_path: Path, compression: CompressionType, options: dict[str, Any]
) -> None:
    """With and without chunks, index, summary, statistics, CRC."""
    path = make(tmp_path / "whole.mcap", compression, **options)
    log = read_log(path, SPEC)
    assert log.warnings == ()
    assert log["t"].values[:, 0].tolist() == list(range(COUNT))
    assert (np.diff(log["t"].order) > 0).all()
    assert inspect_log(path).damage == ()


def test_lz4_frames_that_do_not_tell_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lz4.frame, "compress", partial(lz4.frame.compress, store_size=False))
    path = make(tmp_path / "lz4.mcap", CompressionType.LZ4)
    assert lz4.frame.get_frame_info(Container(path).data[Container(path).blocks[0].start :])["content_size"] == 0
    assert numbers(path) == list(range(COUNT))


def test_a_killed_recorder_leaves_its_intact_chunks(tmp_path: Path) -> None:
    path = make(tmp_path / "killed.mcap")
    last = Container(path).blocks[-1]
    changed(path, lambda data: data[: last.start + last.length // 2])
    log = read_log(path, SPEC)
    assert log["t"].values[:, 0].tolist() == list(range(len(log["t"])))
    assert 100 <= len(log["t"]) < COUNT
    assert any("bytes are lost" in text and str(path) in text for text in log.warnings)


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_cut_at_every_byte_of_the_last_two_chunks_gives_the_intact_prefix(
    tmp_path: Path, compression: CompressionType
) -> None:
    whole = make(tmp_path / "whole.mcap", compression, count=30)
    container = Container(whole)
    ends = [block.start + block.length for block in container.blocks]
    held = np.cumsum([container.count(block, 1) for block in container.blocks])
    data = whole.read_bytes()
    path = tmp_path / "cut.mcap"
    summary = range(ends[-1] + 200, len(data), 7)
    step = {CompressionType.ZSTD: 1, CompressionType.LZ4: 4, CompressionType.NONE: 11}[compression]
    for cut in [*range(ends[-3], ends[-1] + 200, step), *summary]:
        path.write_bytes(data[:cut])
        chunks = sum(end <= cut for end in ends)
        log = read_log(path, SPEC)
        assert log["t"].values[:, 0].tolist() == list(range(held[chunks - 1])), cut
        assert log.warnings, cut


def test_the_last_kilobytes_are_zeros(tmp_path: Path) -> None:
    """What a power cut leaves: the chunk that the zeros reach into is lost with them, the rest is whole."""
    path = make(tmp_path / "zeros.mcap")
    blocks = Container(path).blocks
    middle = blocks[-3].start + blocks[-3].length // 2

    def zero(data: bytearray) -> None:
        data[middle:] = bytes(len(data) - middle)

    log = read_log(changed(path, zero), SPEC)
    assert log["t"].values[:, 0].tolist() == list(range(len(log["t"])))
    assert 80 <= len(log["t"]) < 110
    assert len(log.warnings) == 2


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_flipped_byte_names_its_chunk_and_skip_counts_the_loss(tmp_path: Path, compression: CompressionType) -> None:
    path = make(tmp_path / "flipped.mcap", compression)
    container = Container(path)
    block = container.blocks[4]

    def flip(data: bytearray) -> None:
        data[block.start + block.length - 9] ^= 0x40

    changed(path, flip)
    with pytest.raises(LogError, match=rf"flipped.mcap: chunk at byte {block.start}"):
        read_log(path, SPEC)
    log = read_log(path, SPEC, on_damage="skip")
    lost = container.count(block, 1)
    assert len(log["t"]) == COUNT - lost
    assert any(f"chunk at byte {block.start}" in text and f"{lost} messages" in text for text in log.warnings)
    assert inspect_log(path).damage
    with pytest.raises(LogError, match="chunk at byte"):
        list(iter_messages(path))


def test_loose_messages_are_checked_by_the_crc_of_the_data_section(tmp_path: Path) -> None:
    path = make(tmp_path / "loose.mcap", use_chunking=False, enable_data_crcs=True)
    assert numbers(path) == list(range(COUNT))

    def flip(data: bytearray) -> None:
        data[len(data) // 2] ^= 1

    with pytest.raises(LogError, match="data section has a wrong CRC"):
        numbers(changed(path, flip))


def test_a_broken_record_in_the_middle_is_stepped_over_by_the_chunk_index(tmp_path: Path) -> None:
    path = make(tmp_path / "claims.mcap")
    container = Container(path)
    record = container.data.tobytes().rindex(b"\x06", 0, container.blocks[5].start - 40)
    assert struct.unpack_from("<Q", container.data, record + 1)[0] < 2000

    def claim(data: bytearray) -> None:
        struct.pack_into("<Q", data, record + 1, 2**62)

    changed(path, claim)
    with pytest.raises(LogError, match=f"record at byte {record} .* claims {2**62} bytes"):
        read_log(path, SPEC)
    log = read_log(path, SPEC, on_damage="skip")
    assert len(log["t"]) == COUNT - container.count(container.blocks[5], 1)
    assert any("statistics count 120 messages" in text for text in log.warnings)


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.LZ4])
@pytest.mark.parametrize("size", [2**31, 2**62, 2**20])
def test_a_chunk_that_claims_gigabytes_is_refused_before_any_allocation(
    tmp_path: Path, compression: CompressionType, size: int
) -> None:
    path = make(tmp_path / "huge.mcap", compression)
    block = Container(path).blocks[3]
    head = block.start - 8 - len(block.compression) - 4 - 4 - 8

    def claim(data: bytearray) -> None:
        assert struct.unpack_from("<Q", data, head)[0] == block.size
        struct.pack_into("<Q", data, head, size)

    changed(path, claim)
    with pytest.raises(LogError, match=r"claims to unpack to|does not unpack|instead of"):
        read_log(path, SPEC)
    assert len(numbers(path, on_damage="skip")) < COUNT


def test_an_unknown_compression_is_named(tmp_path: Path) -> None:
    path = make(tmp_path / "odd.mcap")
    changed(path, lambda data: bytearray(data.replace(b"zstd", b"zztd")))
    with pytest.raises(LogError, match="compression 'zztd'; known are zstd, lz4 and none"):
        read_log(path, SPEC)


def test_an_index_that_lies_is_found(tmp_path: Path) -> None:
    path = make(tmp_path / "lies.mcap")
    container = Container(path)
    place, _ = container._indexes[2][1]

    def lie(data: bytearray) -> None:
        struct.pack_into("<Q", data, place + 8, 17)

    changed(path, lie)
    with pytest.raises(LogError, match="index points"):
        read_log(path, SPEC)

    def far(data: bytearray) -> None:
        struct.pack_into("<Q", data, place + 8, 2**63 + 5)

    with pytest.raises(LogError, match="index points outside"):
        read_log(changed(path, far), SPEC)


def test_an_index_that_is_short_is_found_by_the_statistics(tmp_path: Path) -> None:
    path = make(tmp_path / "short.mcap")
    container = Container(path)
    place, count = container._indexes[2][1]

    def shorten(data: bytearray) -> None:
        # The record of the index keeps its length, its array is said to hold one entry less.
        struct.pack_into("<I", data, place - 4, 16 * (count - 1))

    log = read_log(changed(path, shorten), SPEC)
    assert log["t"].values[:, 0].tolist() == list(range(COUNT))


def test_a_message_larger_than_its_chunk(tmp_path: Path) -> None:
    path = make(tmp_path / "large.mcap", CompressionType.NONE, enable_crcs=False)
    container = Container(path)
    block = container.blocks[2]
    at = block.start + int(container.offsets(block, 1)[-1])

    def enlarge(data: bytearray) -> None:
        struct.pack_into("<Q", data, at + 1, 2**31)

    changed(path, enlarge)
    with pytest.raises(LogError, match="larger than the chunk"):
        read_log(path, SPEC)
    log = read_log(path, SPEC, on_damage="skip")
    assert len(log["t"]) == COUNT - container.count(block, 1)


def test_a_file_that_is_no_log_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "x.mcap"
    for content, words in (
        (b"", "is empty"),
        (b"#ROSBAG V2.0\n" + bytes(50), "ROS 1 bag"),
        (b"hello, robot", "is no MCAP file"),
    ):
        path.write_bytes(content)
        for call in (lambda: read_log(path, SPEC), lambda: inspect_log(path), lambda: list(iter_messages(path))):
            with pytest.raises(LogError) as caught:
                call()
            assert words in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(LogError, match="no such file"):
        read_log(tmp_path / "none.mcap", SPEC)


def test_a_missing_topic_lists_those_there(tmp_path: Path) -> None:
    path = make(tmp_path / "a.mcap")
    with pytest.raises(LogError, match=r"no topic '/twst'; there are /twist"):
        read_log(path, {"t": StreamSpec("/twst", ["x"])})
    with pytest.raises(LogError, match="no topic"):
        list(iter_messages(path, ["/twst"]))


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    compression=st.sampled_from(list(CompressionType)),
    chunked=st.booleans(),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=9), st.integers(0, 9)), min_size=1),
)
def test_random_damage_is_read_or_refused_by_name(
    tmp_path: Path, compression: CompressionType, chunked: bool, damage: list[tuple[float, bytes, int]]
) -> None:
    """Bytes are replaced, inserted and cut out anywhere: nothing but a LogError that names the file comes out."""
    path = make(tmp_path / "damaged.mcap", compression, count=30, use_chunking=chunked)
    data = bytearray(path.read_bytes())
    for place, put, cut in damage:
        at = int(place * len(data))
        data[at : at + cut] = put
    path.write_bytes(data)
    calls: list[Callable[[], Any]] = [
        lambda: read_log(path, SPEC, cache=False),
        lambda: read_log(path, SPEC, cache=False, on_damage="skip", clock="log"),
        lambda: inspect_log(path),
        lambda: list(iter_messages(path)),
    ]
    for call in calls:
        try:
            call()
        except LogError as error:
            assert str(path) in str(error)


# --- files from elsewhere ---

EXTRA = os.environ.get("ROBOPOS_EXTRA_LOGS")
extra = pytest.mark.skipif(not EXTRA, reason="ROBOPOS_EXTRA_LOGS names no folder of further logs")


@extra
def test_the_conformance_files_hold_what_their_lists_say() -> None:
    paths = sorted(Path(str(EXTRA), "conformance").glob("*.mcap"))
    assert len(paths) > 30
    for path in paths:
        listed = json.loads(path.with_suffix(".json").read_text())["records"]
        want = []
        for record in listed:
            if record["type"] == "Message":
                fields = dict(record["fields"])
                want.append((int(fields["log_time"]), bytes(int(byte) for byte in fields["data"])))
        got: list[RawMessage] = list(iter_messages(path))
        assert [(item.log_time_ns, item.data) for item in got] == sorted(want, key=lambda item: item[0]), path
        assert inspect_log(path).damage == (), path


@extra
def test_further_hostile_files_are_read_or_refused_by_name() -> None:
    paths = sorted(Path(str(EXTRA), "hostile").glob("*.mcap"))
    assert len(paths) > 20
    for path in paths:
        try:
            report = inspect_log(path)
        except LogError as error:
            assert str(path) in str(error)
            continue
        for topic in report.topics:
            if not topic.fields or topic.undecoded == topic.count:
                continue
            try:
                raw = list(iter_messages(path, [topic.topic]))
            except LogError as error:
                assert str(path) in str(error)
                assert report.damage
            else:
                assert len(raw) == topic.count
