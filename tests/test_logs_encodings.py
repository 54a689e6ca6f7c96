"""Other encodings, recordings of several files, and bags that are no MCAP."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import Writer
from rosbags.rosbag1 import Writer as Bag1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Bag2
from rosbags.typesys import Stores, get_typestore

from robopos.errors import LogError
from robopos.logs import Decoder, LogMessage, StreamSpec, inspect_log, iter_messages, log_files, read_log, write_log
from robopos.logs.paths import separate_logs
from robopos.logs.schema import parse_schema
from robopos.logs.schemas import schema_text, standard_types
from robopos.logs.serialize import serialize


def write_other(path: Path, encoding: str, schema: tuple[str, str, bytes] | None, payloads: list[bytes]) -> Path:
    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start("", "test")
        number = writer.register_schema(*schema) if schema else 0
        channel = writer.register_channel("/t", encoding, number)
        for place, data in enumerate(payloads):
            writer.add_message(channel, 1000 + place, data, 1000 + place)
        writer.finish()
    return path


def json_messages() -> list[bytes]:
    messages: list[dict[str, Any]] = []
    for i in range(4):
        stamp = {"sec": 0, "nanosec": 900 + i}
        joints = {"name": ["b", "a"] if i == 2 else ["a", "b"], "position": [2, 1] if i == 2 else [1, 2]}
        messages.append(
            {"header": {"stamp": stamp, "frame_id": "f"}, "ok": i > 1, "arm": joints, "v": {"x": i, "y": 0.5}}
        )
    return [json.dumps(message).encode() for message in messages]


@pytest.mark.parametrize("schema", [("Thing", "jsonschema", b"{}"), None])
def test_json_with_and_without_schema(tmp_path: Path, schema: tuple[str, str, bytes] | None) -> None:
    path = write_other(tmp_path / "j.mcap", "json", schema, json_messages())
    stream = read_log(path, {"t": StreamSpec("t", ["v", "ok", "arm.position"])})["t"]
    assert stream.names == ("v.x", "v.y", "ok", "arm.position[a]", "arm.position[b]")
    assert stream.values.tolist() == [[i, 0.5, i > 1, 1, 2] for i in range(4)]
    assert stream.time_ns.tolist() == [900, 901, 902, 903]
    assert stream.frame_ids == ("f",)
    with pytest.raises(LogError, match=r"no message has w; there are .*v\.x, v\.y"):
        read_log(path, {"t": StreamSpec("t", ["w"])})
    assert inspect_log(path).topics[0].clock == "header"


def test_json_that_is_none_is_counted(tmp_path: Path) -> None:
    good = json_messages()
    path = write_other(tmp_path / "j.mcap", "json", None, [*good, b"{", b"[1]", b"\xff"])
    with pytest.raises(LogError, match="3 of 7 messages do not decode"):
        read_log(path, {"t": StreamSpec("t", ["v"])})
    assert len(read_log(path, {"t": StreamSpec("t", ["v"])}, on_damage="skip")["t"]) == 4


def protobuf_thing() -> tuple[bytes, type]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="thing.proto", package="robot", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    vector = file.message_type.add(name="Vector")
    thing = file.message_type.add(name="Thing")
    number = descriptor_pb2.FieldDescriptorProto
    for place, name in enumerate("xy", 1):
        vector.field.add(name=name, number=place, type=number.TYPE_DOUBLE, label=number.LABEL_OPTIONAL)
    message = {"type": number.TYPE_MESSAGE, "label": number.LABEL_OPTIONAL}
    thing.field.add(name="timestamp", number=1, type_name=".google.protobuf.Timestamp", **message)
    thing.field.add(name="v", number=2, type_name=".robot.Vector", **message)
    thing.field.add(name="list", number=3, type=number.TYPE_FLOAT, label=number.LABEL_REPEATED)
    thing.field.add(name="count", number=4, type=number.TYPE_INT64, label=number.LABEL_OPTIONAL)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    files.file.extend([file, timestamp])  # the importing file first: order must not matter
    pool = descriptor_pool.DescriptorPool()
    pool.Add(timestamp)
    pool.Add(file)
    return files.SerializeToString(), message_factory.GetMessageClass(pool.FindMessageTypeByName("robot.Thing"))


def test_protobuf_messages_read_as_columns(tmp_path: Path) -> None:
    schema, thing = protobuf_thing()
    payloads = []
    for i in range(4):
        message = thing(list=[1.5, i], count=i)
        message.timestamp.nanos = 900 + i
        if i != 3:
            message.v.x = i
        payloads.append(message.SerializeToString())
    path = write_other(tmp_path / "p.mcap", "protobuf", ("robot.Thing", "protobuf", schema), payloads)
    log = read_log(path, {"t": StreamSpec("t", ["v", "list", "count"])})
    assert log["t"].names == ("v.x", "v.y", "list[0]", "list[1]", "count")
    want = np.array([[i, 0, 1.5, i, i] for i in range(3)] + [[math.nan, math.nan, 1.5, 3, 3]])
    np.testing.assert_array_equal(log["t"].values, want)
    assert log["t"].time_ns.tolist() == [900, 901, 902, 903]
    assert any("v.x is not in 1 of 4 messages" in text for text in log.warnings)
    raw = next(iter_messages(path))
    live = Decoder(raw.type, raw.schema, ["v.x", "count"], raw.encoding)
    assert live.decode(payloads[2]).values.tolist() == [2, 2]
    assert base64.b64decode(raw.schema) == schema
    with pytest.raises(LogError, match=r"robot\.Thing"):
        live.decode(b"\xff\xff")
    with pytest.raises(LogError, match="descriptor is broken"):
        Decoder("robot.Other", raw.schema, ["x"], "protobuf")


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    path = write_other(tmp_path / "c.mcap", "cbor", ("T", "", b""), [b"\xa0"])
    with pytest.raises(LogError, match="encoding 'cbor' is not read; known are cdr, ros1, json, protobuf"):
        read_log(path, {"t": StreamSpec("t", ["x"])})
    assert "cbor" in inspect_log(path).topics[0].note


def ros1_messages() -> tuple[Any, str, list[bytes]]:
    store = get_typestore(Stores.ROS1_NOETIC)
    types = store.types
    joints = types["sensor_msgs/msg/JointState"]
    payloads = []
    for i in range(6):
        header = types["std_msgs/msg/Header"](i, types["builtin_interfaces/msg/Time"](3, 10 + i), f"f{i // 4}")
        names = ["b", "a"] if i == 5 else ["a", "b"]
        values = [2.0, 1.0] if i == 5 else [1.0, 2.0]
        message = joints(header, names, np.array(values), np.array([]), np.array([i, i], float))
        payloads.append(bytes(store.serialize_ros1(message, joints.__msgtype__)))
    text, _ = store.generate_msgdef("sensor_msgs/msg/JointState")
    return store, text, payloads


def check_ros1(stream: Any) -> None:
    assert stream.names == ("position[a]", "position[b]", "effort[a]", "effort[b]")
    assert stream.values.tolist() == [[1, 2, i, i] for i in range(6)]
    assert stream.time_ns.tolist() == [3_000_000_010 + i for i in range(6)]
    assert stream.frame_ids == ("f0", "f1")


ROS1_SPEC = {"t": StreamSpec("/t", ["position", "effort"])}


def test_ros1_messages_in_mcap(tmp_path: Path) -> None:
    _, text, payloads = ros1_messages()
    schema = ("sensor_msgs/JointState", "ros1msg", text.encode())
    stream = read_log(write_other(tmp_path / "r.mcap", "ros1", schema, payloads), ROS1_SPEC)["t"]
    check_ros1(stream)
    assert Decoder("sensor_msgs/JointState", text, ["header.seq"], "ros1").decode(payloads[4]).values.tolist() == [4]


def test_a_ros1_bag_reads_as_its_messages(tmp_path: Path) -> None:
    store, _, payloads = ros1_messages()
    with Bag1(tmp_path / "r.bag") as bag:
        connection = bag.add_connection("/t", "sensor_msgs/msg/JointState", typestore=store)
        for place, data in enumerate(payloads):
            bag.write(connection, 1000 + place, data)
    stream = read_log(tmp_path / "r.bag", ROS1_SPEC)["t"]
    check_ros1(stream)
    assert stream.arrival_ns.tolist() == [1000 + i for i in range(6)]
    assert stream.encoding == "ros1"
    (tmp_path / "broken.bag").write_bytes((tmp_path / "r.bag").read_bytes()[:200])
    with pytest.raises(LogError, match=r"broken\.bag: rosbags cannot read"):
        read_log(tmp_path / "broken.bag", ROS1_SPEC)


@pytest.mark.parametrize("plugin", list(StoragePlugin))
@pytest.mark.parametrize("version", [8, 9])
def test_a_rosbag2_folder_reads_in_either_storage(tmp_path: Path, plugin: StoragePlugin, version: int) -> None:
    store = get_typestore(Stores.ROS2_HUMBLE)
    kind = "geometry_msgs/msg/Vector3"
    with Bag2(tmp_path / "bag", version=version, storage_plugin=plugin) as bag:  # type: ignore[arg-type]
        connection = bag.add_connection("/t", kind, typestore=store)
        for i in range(7):
            bag.write(connection, 1000 + i, store.serialize_cdr(store.types[kind](i, 2.0, 3.0), kind))
    stream = read_log(tmp_path / "bag", {"t": StreamSpec("/t", ["x", "z"])})["t"]
    assert stream.values.tolist() == [[i, 3] for i in range(7)]
    assert stream.arrival_ns.tolist() == [1000 + i for i in range(7)]
    assert inspect_log(tmp_path / "bag").messages == 7


def test_split_files_are_one_log(tmp_path: Path) -> None:
    kind = "geometry_msgs/msg/Vector3"
    for part in range(3):
        messages = [LogMessage("/t", kind, 10 * part + i, {"x": 10 * part + i}) for i in range(5)]
        write_log(tmp_path / f"split_{part}.mcap", messages)
    spec = {"t": StreamSpec("/t", ["x"])}
    want = [10 * part + i for part in range(3) for i in range(5)]
    names = [f"split_{part}.mcap" for part in range(3)]
    (tmp_path / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  relative_file_paths:\n" + "".join(f"  - {name}\n" for name in names)
    )
    for paths in (tmp_path, [tmp_path / name for name in reversed(names)], str(tmp_path / "split_*.mcap")):
        stream = read_log(paths, spec)["t"]
        assert stream.values[:, 0].tolist() == want
        assert len(set(stream.order.tolist())) == len(want)
    (tmp_path / names[1]).unlink()
    with pytest.raises(LogError, match=r"metadata\.yaml names split_1\.mcap"):
        read_log(tmp_path, spec)


def test_a_file_that_a_writer_has_not_finished_is_no_log_of_its_folder(tmp_path: Path) -> None:
    kind, folder = "geometry_msgs/msg/Vector3", tmp_path / "logs"
    (folder / ".half").mkdir(parents=True)
    (folder / ".half" / "metadata.yaml").write_text("")
    (folder / ".4711.b.mcap").write_bytes(b"\x89MCAP0\r\n")
    (folder / ".4711.c.bag").write_bytes(b"")
    write_log(folder / "a.mcap", [LogMessage("/t", kind, 1 + i, {"x": i}) for i in range(5)])
    assert log_files(folder) == separate_logs(folder) == (folder / "a.mcap",)
    # A copy into the folder that is read, as it is read.
    write_log(folder / "out.mcap", (raw._replace(topic="/copy") for raw in iter_messages(folder)))
    assert read_log(folder / "out.mcap", {"t": StreamSpec("/copy", ["x"])})["t"].values[:, 0].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    (folder / "a.mcap").unlink()
    (folder / "out.mcap").unlink()
    with pytest.raises(LogError, match=r"logs: the folder holds no \.mcap file"):
        log_files(folder)


def test_every_standard_type_is_written_as_another_library_reads_it(tmp_path: Path) -> None:
    store = get_typestore(Stores.ROS2_KILTED)
    checked = 0
    for kind in standard_types():
        if kind not in store.types:
            continue
        data = serialize(parse_schema(kind, schema_text(kind)), {})
        message = store.deserialize_cdr(data, kind)
        assert bytes(store.serialize_cdr(message, kind)) == data, kind
        checked += 1
    assert checked > 90


def test_written_logs_open_in_rosbags(tmp_path: Path) -> None:
    from rosbags.highlevel import AnyReader

    kind = "sensor_msgs/msg/JointState"
    message = {"header": {"stamp": 5_000_000_007, "frame_id": "b"}, "name": ["a"], "position": np.array([0.25])}
    for compression in ("zstd", "lz4", "none"):
        path = write_log(
            tmp_path / f"{compression}.mcap", [LogMessage("/j", kind, 9, message)], compression=compression
        )
        with AnyReader([path]) as reader:
            ((connection, time, raw),) = reader.messages()
            read = reader.deserialize(raw, connection.msgtype)
        assert (connection.topic, connection.msgtype, time) == ("/j", kind, 9)
        assert (read.header.stamp.sec, read.header.stamp.nanosec, read.position.tolist()) == (5, 7, [0.25])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"positions": [1]}, r"no field 'positions'; its fields are effort, header, name, position, velocity"),
        ({"position": "x"}, "expected a list"),
        ({"position": ["x"]}, "no float64 values"),
        ({"name": [3]}, "is no string"),
        ({"header": 3}, "expected a mapping"),
        ({"header": {"stamp": {"sec": 2**40}}}, "is no int32"),
    ],
)
def test_a_message_that_does_not_fit_its_type_leaves_the_old_file(
    tmp_path: Path, message: dict[str, Any], words: str
) -> None:
    path = tmp_path / "x.mcap"
    path.write_bytes(b"old")
    with pytest.raises(LogError, match=words):
        write_log(path, [LogMessage("/j", "sensor_msgs/msg/JointState", 1, message)])
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.mcap"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n", 1.7, "1.7 is no int32"),
        ("n", np.float32(2.5), "is no int32"),
        ("n", "5", "'5' is no int32"),
        ("n", b"5", "is no int32"),
        ("n", math.nan, "is no int32"),
        ("ns", [1.7], "do not fit a list of int32"),
        ("ns", ["5"], "no int32 values"),
        ("x", "5", "'5' is no float32"),
        ("x", 1e40, "is no float32"),
        ("xs", ["5"], "no float32 values"),
        ("xs", [1j], "no float32 values"),
        ("xs", [1.0, 1e40], "no float32 values"),
        ("s", "\ud800", "is no string"),
        ("stamp", {"sec": 0.5}, "0.5 is no int32"),
    ],
)
def test_a_value_that_would_be_changed_is_refused(field: str, value: Any, words: str) -> None:
    text = "int32 n\nint32[] ns\nfloat32 x\nfloat32[] xs\nstring s\nbuiltin_interfaces/Time stamp\n"
    with pytest.raises(LogError) as caught:
        serialize(parse_schema("a/msg/B", text), {field: value})
    assert words in str(caught.value) and f"a/msg/B.{field}" in str(caught.value)


def test_a_whole_number_of_any_kind_is_an_integer() -> None:
    kind = parse_schema("a/msg/B", "int32 n\nint32[] ns\nfloat32[] xs\n")
    want = serialize(kind, {"n": 3, "ns": [3], "xs": [math.inf, 3.0]})
    for three in (3.0, np.int8(3), np.float64(3), np.array(3)):
        assert serialize(kind, {"n": three, "ns": [three], "xs": [math.inf, three]}) == want


def test_one_topic_has_one_type_in_a_written_log(tmp_path: Path) -> None:
    kinds = ("std_msgs/msg/Float64", "std_msgs/msg/Float32")
    with pytest.raises(LogError, match="was written as std_msgs/msg/Float64"):
        write_log(tmp_path / "x.mcap", [LogMessage("/t", kind, 1, {"data": 1.0}) for kind in kinds])
    with pytest.raises(LogError, match="log time -1 ns"):
        write_log(tmp_path / "x.mcap", [LogMessage("/t", kinds[0], -1, {})])
    for time in (1.5e18, math.nan, "15"):
        with pytest.raises(LogError, match=r"topic /t: publish time .* is no integer of nanoseconds"):
            write_log(tmp_path / "x.mcap", [LogMessage("/t", kinds[0], np.int64(1), {}, time)])  # type: ignore[arg-type]
    with pytest.raises(LogError, match=r"folder .* does not exist"):
        write_log(tmp_path / "none" / "x.mcap", [])
