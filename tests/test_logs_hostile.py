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
from logs_support import BARE, COUNT, SPEC, START_NS, changed, make, numbers
from mcap.writer import CompressionType, IndexType

from robopos.errors import LogError
from robopos.logs import (
    LogMessage,
    RawMessage,
    StreamSpec,
    inspect_log,
    iter_messages,
    read_log,
    write_log,
)
from robopos.logs.container import Container


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


@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_where_every_chunk_is_damaged_the_first_is_named(tmp_path: Path, on_damage: str) -> None:
    content = {"header": {"stamp": START_NS}, "name": ["elbow"], "position": [0.5]}
    joints = [LogMessage("/joints", "sensor_msgs/msg/JointState", START_NS + number, content) for number in range(9)]
    path = write_log(tmp_path / "flipped.mcap", joints)
    blocks = Container(path).blocks

    def flip(data: bytearray) -> None:
        for block in blocks:
            data[block.start + block.length - 9] ^= 0x40

    changed(path, flip)
    # Names of joints are known from a message alone: here the columns cannot even be named.
    with pytest.raises(LogError, match=rf"chunk at byte {blocks[0].start}.*; no other chunk of the topic helps"):
        read_log(path, {"j": StreamSpec("/joints", ["position"])}, on_damage=on_damage)


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
