"""Hostile logs: each ends with a named error, in bounded memory and time."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from security_support import (
    CDR,
    MAGIC,
    channel,
    chunk,
    message,
    read,
    record,
    schema,
    told,
    write,
    write_one,
)

from robopos.logs import inspect_log, iter_messages, log_files, parse_schema, read_log
from robopos.logs.container import Container

TB = 1 << 40
KNOWN = (schema("a/msg/B", "ros2msg", "float64 x\n"), channel())
ZEROS = zstandard.ZstdCompressor(level=19).compress(bytes(200_000_000))


@pytest.mark.parametrize(
    ("compression", "packed", "size", "said"),
    [
        ("zstd", zstandard.compress(b"abc"), TB, "claims to unpack to"),
        ("lz4", lz4.frame.compress(b"abc"), TB, "claims to unpack to"),
        ("", b"abc", TB, "instead of"),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10**8)), 100, "does not unpack"),
        ("lz4", lz4.frame.compress(bytes(10**8), store_size=False), 100, "unpacks to 101 bytes instead of 100"),
        ("zstd", ZEROS, 200_000_000, "opcode 0"),
    ],
)
def test_a_chunk_cannot_unpack_to_more_than_it_may(
    tmp_path: Path, compression: str, packed: bytes, size: int, said: str
) -> None:
    assert said in read(write(tmp_path / "a.mcap", *KNOWN, chunk(compression, packed, size)))


def test_a_file_of_bombs_is_refused_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap", *KNOWN, *[chunk("zstd", ZEROS, 200_000_000)] * 20)
    assert "claim to unpack to 4000000000" in read(path)


def test_records_that_reach_beyond_the_file(tmp_path: Path) -> None:
    for length in (1 << 63, (1 << 64) - 1, 10**9):
        path = write(tmp_path / "a.mcap", *KNOWN, struct.pack("<BQ", 5, length) + b"abc")
        assert "no messages" in read(path)
        assert any("bytes are lost" in loss for loss in Container(path).losses)


def test_many_broken_records_take_time_that_grows_with_the_file_alone(tmp_path: Path) -> None:
    count = 20_000
    starts = [100 + 9 * number for number in range(count)]
    indexes = b"".join(record(8, struct.pack("<QQQ", 0, 0, start) + bytes(40)) for start in starts)
    body = MAGIC + bytes(92) + (b"\0" + b"\xff" * 8) * count
    path = tmp_path / "a.mcap"
    path.write_bytes(body + indexes + record(2, struct.pack("<QQI", len(body), 0, 0)) + MAGIC)
    assert "cannot be" in read(path)


def test_an_index_that_names_one_message_a_million_times(tmp_path: Path) -> None:
    body = message(CDR + bytes(8))
    index = record(7, struct.pack("<HI", 1, 16 * 1_000_000) + struct.pack("<QQ", 1, 0) * 1_000_000)
    assert "more than once" in read(write(tmp_path / "a.mcap", *KNOWN, chunk("", body, len(body)), index))


def test_a_topic_of_fifty_megabytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap", KNOWN[0], channel("/" + "x" * 50_000_000), message(CDR + bytes(8)))
    answer = read(path)
    assert "a name of 50000001 bytes (the limit is 4096)" in answer and len(answer) < 500


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mcap")
    (tmp_path / "loop.mcap").symlink_to("loop.mcap")
    (tmp_path / "folder.mcap").mkdir()
    (tmp_path / "device.mcap").symlink_to("/dev/zero")
    for name, said in [
        ("pipe.mcap", "a pipe or a device"),
        ("device.mcap", "a pipe or a device"),
        ("folder.mcap", "no .mcap file"),
        ("loop.mcap", "no such file"),
        ("a\0b", "no such file"),
        ("a" * 5000, "cannot be read"),
    ]:
        assert said in read(tmp_path / name), name


def nested(depth: int, width: int) -> str:
    types = ["float64 x\nT0 a\n"]
    for number in range(depth):
        types.append(f"===\nMSG: a/T{number}\n" + "".join(f"T{number + 1} f{place}\n" for place in range(width)))
    return "".join(types) + f"===\nMSG: a/T{depth}\nuint8 y\n"


IN_IDL = "module a {{ module msg {{ {} struct B {{ double x; {} }}; }}; }};"


@pytest.mark.parametrize(
    ("encoding", "definition", "said"),
    [
        ("ros2msg", "float64 x\nB b\n", "contains itself"),
        ("ros2msg", "float64 x\nC c\n===\nMSG: a/C\nD d\n===\nMSG: a/D\nC c\n", "contains itself"),
        ("ros2msg", nested(5000, 1), "more than 64 types inside each other"),
        ("ros2msg", nested(30, 2), "more than 4096 fields"),
        ("ros2msg", "float64 x\n" + "".join(f"uint8 f{n}\n" for n in range(50_000)), "more than 4096 fields"),
        ("ros2msg", "float64 x\n" + "".join(f"uint8 f{n}\n" for n in range(1_000_000)), "the limit is 1000000"),
        ("ros2msg", "float64 x\nuint8[1000000000000] y\n", "an array of '1000000000000' elements"),
        ("ros2msg", f"float64 x\nuint8[{'9' * 5000}] y\n", "elements"),
        ("ros2msg", f"float64 x\nuint8 {'y' * 1000}\n", "name has 1000 letters"),
        ("ros2msg", f"float64 x\n{'a' * 50_000}/ \n", "is not a field definition"),
        ("ros1msg", "float64 x\nE[999999999] e\n===\nMSG: a/E\n", "more than 4096 fields"),
        ("ros2idl", "module a { struct B {" * 20_000, "modules inside each other|should be|more"),
        ("ros2idl", "module a { " * 20_000 + "struct B {", "modules inside each other"),
        ("ros2idl", IN_IDL.format("", "sequence<" * 20_000 + "double y;"), "sequence of arrays"),
        ("ros2idl", IN_IDL.format("", "octet y[1000000000000];"), "an array of '1000000000000' elements"),
        ("ros2idl", IN_IDL.format("", "octet y[-5];"), "an array of '-5' elements"),
        ("ros2idl", IN_IDL.format(f"const long X = {'9' * 5000};", "octet y[X];"), "an array of 'X' elements"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_schema_has_limits(tmp_path: Path, encoding: str, definition: str, said: str) -> None:
    wire = "ros1" if encoding == "ros1msg" else "cdr"
    answer = read(write_one(tmp_path / "a.mcap", definition, CDR + bytes(8), encoding, wire))
    assert any(part in answer for part in said.split("|")), answer[:300]


@pytest.mark.parametrize("default", ["-" * 900 + "1", "-" * 100_000 + "1", "[" * 100_000, "9" * 100_000, "9**9**9**9"])
def test_a_default_is_not_computed(tmp_path: Path, default: str) -> None:
    assert parse_schema("a/msg/B", f"float64[] x [{'0, ' * 500}]\n").fields[0].default is None  # too long
    assert read(write_one(tmp_path / "a.mcap", f"float64 x {default}\n", CDR + bytes(8))) == ""


MOST = b"\xff\xff\xff\xff"
LITTLE = struct.pack("<I", 10_000_000) + bytes(10_000_016)


@pytest.mark.parametrize(
    ("definition", "data", "field", "said"),
    [
        ("float64[] y\nfloat64 x\n", MOST + bytes(100), "x", "needs 34359738360 bytes"),
        ("string y\nfloat64 x\n", MOST + bytes(100), "x", "needs 4294967295 bytes"),
        ("string[] y\nfloat64 x\n", MOST + bytes(100), "x", "needs 17179869180 bytes"),
        ("E[] y\nfloat64 x\n===\nMSG: a/E\n", MOST + bytes(100), "x", "needs 4294967295 bytes"),
        ("E[] y\nfloat64 x\n===\nMSG: a/E\nuint8 q\n", LITTLE, "x", "more than 262144 numbers and texts"),
        ("string[] y\nfloat64 x\n", struct.pack("<I", 2_000_000) + bytes(8_000_016), "x", "the limit is 262144"),
        ("uint8[] y\nfloat64 x\n", LITTLE, "y", "expands to 10000000 columns; the limit is 16384"),
        ("float64 x\nuint8[100000000] y\n", bytes(8), "y", "expands to 100000000 columns"),
    ],
)
def test_a_cdr_message_has_limits(tmp_path: Path, definition: str, data: bytes, field: str, said: str) -> None:
    assert said in read(write_one(tmp_path / "a.mcap", definition, CDR + data, "ros2msg"), field)


def json_log(path: Path, *data: bytes) -> Path:
    return write(path, channel("/t", "json", schema=0), *[message(one, 1 + n) for n, one in enumerate(data)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is no JSON"),
        (b'{"x":' * 200 + b"1" + b"}" * 200, "deeper than 64"),
        (b'{"x":' + b"9" * 400 + b"}", "does not become numbers"),
        (b'{"x":[' + b"9" * 400 + b"]}", "does not become numbers"),
        (b'{"x":' + b"9" * 1_000_000 + b"}", "is no JSON"),
        (b'{"x":["a",' + b"1," * 1_000_000 + b"1]}", "holds more than 262144 items"),
        (b'{"x":[' + b"1," * 1_000_000 + b"1]}", "expands to 1000001 columns"),
        (b'{"' + b"x" * 5000 + b'":1}', "has 5000 letters"),
        (b'{"x":1,"header":{"stamp":{"sec":' + b"9" * 40 + b"}}}", "do not fit int64"),
        (b'{"x":1,"header":{"stamp":{"sec":-99999999999}}}', "do not fit int64"),
        (b'{"x":1,"s":"\\ud800"}', ""),
        (b"\xff\xfe\xfd", "is no JSON"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_a_json_message_has_limits(tmp_path: Path, data: bytes, said: str) -> None:
    answer = read(json_log(tmp_path / "a.mcap", data))
    assert said in answer and bool(said) == bool(answer)


def test_messages_with_ever_new_names_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robopos.logs import decode

    monkeypatch.setattr(decode, "_COLUMN_BYTES", 1 << 20)
    path = json_log(tmp_path / "a.mcap", *[b'{"x":{"k%d":1}}' % number for number in range(1000)])
    assert "1000 messages with 1000 columns" in read(path)


def descriptor(*files: tuple[str, list[str]], fields: int = 1) -> bytes:
    pb = pytest.importorskip("google.protobuf.descriptor_pb2")
    whole = pb.FileDescriptorSet()
    for number, (name, imports) in enumerate(files):
        file = whole.file.add(name=name, package="a", syntax="proto3", dependency=imports)
        if number == 0:
            kind = file.message_type.add(name="B")
            kind.field.add(name="b", number=1, label=1, type=11, type_name=".a.B")
            kind.field.add(name="r", number=2, label=3, type=1)
            for place in range(fields):
                kind.field.add(name=f"x{place or ''}", number=3 + place, label=1, type=1)
    return bytes(whole.SerializeToString())


def inside(count: int) -> bytes:
    data = b""
    for _ in range(count):
        length, size = len(data), b""
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        data = b"\x0a" + size + bytes([length]) + data
    return data


def test_protobuf_has_limits(tmp_path: Path) -> None:
    one = ("f.proto", [])
    path = tmp_path / "a.mcap"

    def answer(definition: bytes, data: bytes = b"", field: str = "x") -> str:
        return read(write_one(path, definition, data, "protobuf", "protobuf"), field)

    assert answer(descriptor(one), inside(30)) == ""  # a type that holds itself is read as far as it goes
    assert "deeper than 64" in answer(descriptor(one), inside(90))
    assert "is no a.B" in answer(descriptor(one), inside(20_000))
    assert "16384" in answer(descriptor(one), b"\x12\x80\xa4\xe8\x03" + bytes(8_000_000), "r")
    assert "descriptor is broken" in answer(descriptor(("a.proto", ["b.proto"]), ("b.proto", ["a.proto"])))
    assert "descriptor is broken" in answer(descriptor(("a.proto", ["elsewhere.proto"])))
    assert "descriptor is broken" in answer(descriptor(one, fields=100_000))
    assert "descriptor is broken" in answer(b"\xff\xff\xff")
    chain = [("f0.proto", [])] + [(f"f{n}.proto", [f"f{n - 1}.proto"]) for n in range(1, 2000)]
    assert answer(descriptor(*chain)) == ""


META = "rosbag2_bagfile_information:\n  relative_file_paths: [{}]\n"


def test_metadata_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "bag"
    folder.mkdir()
    write(tmp_path / "secret.mcap", *KNOWN, message(CDR + bytes(8)))
    for name in ("../secret.mcap", str(tmp_path / "secret.mcap"), "..", "''"):
        (folder / "metadata.yaml").write_text(META.format(name))
        assert "which is not there" in told(lambda: log_files(folder)), name
    write(folder / "secret.mcap", *KNOWN, message(CDR + bytes(8)))
    (folder / "metadata.yaml").write_text(META.format("../secret.mcap, secret.mcap"))
    assert log_files(folder) == (folder / "secret.mcap",)


@pytest.mark.parametrize("suffix", ["bag", "db3"])
def test_a_damaged_bag_is_a_named_error(tmp_path: Path, suffix: str) -> None:
    head = {"bag": b"#ROSBAG V2.0\n", "db3": b"SQLite format 3\0"}[suffix]
    path = tmp_path / f"a.{suffix}"
    for rest in (b"", b"\xff" * 5000, bytes(5000), struct.pack("<I", 2**31) * 100):
        path.write_bytes(head + rest)
        assert str(path) in told(lambda: list(iter_messages(path)))
        assert str(path) in told(lambda: inspect_log(path))


def test_a_cache_file_that_was_altered_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from logs_support import SPEC, make

    monkeypatch.setenv("ROBOPOS_CACHE", str(tmp_path / "cache"))
    path = make(tmp_path / "a.mcap")
    want = read_log(path, SPEC)["t"].values.tolist()
    (kept,) = (tmp_path / "cache" / "logs").glob("*.arrow")
    whole = kept.read_bytes()
    foot = len(whole) - 10 - int.from_bytes(whole[-10:-6], "little")
    for at in range(foot, len(whole), 11):
        data = bytearray(whole)
        data[at : at + 4] = b"\xff" * 4
        kept.write_bytes(data)
        assert read_log(path, SPEC)["t"].values.tolist() == want
