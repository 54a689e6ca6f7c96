"""Every road of the decoder gives the numbers that another library wrote."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from robopos.errors import LogError
from robopos.logs import Decoder, LogMessage, StreamSpec, columns, read_log, schema_text, write_log
from robopos.logs.decoder import schema_encoding
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize

NUMBERS = {
    "bool": st.booleans(),
    "byte": st.integers(0, 127),  # the other library refuses the upper half
    "char": st.integers(0, 2**8 - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    **{f"int{b}": st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
    **{f"uint{b}": st.integers(0, 2**b - 1) for b in (8, 16, 32, 64)},
}
DTYPES = {"bool": np.bool_, "byte": np.uint8, "char": np.uint8} | {
    name: np.dtype(name) for name in NUMBERS if name not in ("bool", "byte", "char")
}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, list[tuple[str, str, int | None]]]:
    """Types by name, each a list of (field, type, array): array None, -1 for a sequence, else the size."""
    names = [f"t_msgs/T{number}" for number in range(draw(st.integers(1, 3)))]
    types = {}
    for number, name in enumerate(names):
        kinds = st.sampled_from([*NUMBERS, "string"] + names[number + 1 :] * 3)
        arrays = st.sampled_from([None, None, None, -1, 0, 2, 3]).map(lambda size: None if size == 0 else size)
        fields = draw(st.lists(st.tuples(kinds, arrays), min_size=1, max_size=5))
        types[name] = [(f"f{place}", kind, array) for place, (kind, array) in enumerate(fields)]
    return types


def definition(fields: list[tuple[str, str, int | None]]) -> str:
    mark = {None: "", -1: "[]"}
    lines = ["uint8 A_CONSTANT=7  # not on the wire"]
    lines += [f"{kind}{mark.get(array, f'[{array}]')} {name}  # comment" for name, kind, array in fields]
    return "\n".join(lines) + "\n"


def full_text(types: dict[str, list[tuple[str, str, int | None]]]) -> str:
    names = list(types)
    parts = [definition(types[names[0]])]
    parts += [f"{'=' * 80}\nMSG: {name}\n{definition(types[name])}" for name in names[1:]]
    return "".join(parts)


def draw_value(draw: st.DrawFn, types: dict[str, Any], kind: str, array: int | None) -> Any:
    if array is not None:
        size = draw(st.integers(0, 3)) if array == -1 else array
        return [draw_value(draw, types, kind, None) for _ in range(size)]
    if kind in types:
        return {name: draw_value(draw, types, inner, size) for name, inner, size in types[kind]}
    return draw(NUMBERS.get(kind, TEXT))


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], list[bool]]:
    types = draw(schemas())
    root = next(iter(types))
    values = [draw_value(draw, types, root, None) for _ in range(draw(st.integers(1, 6)))]
    # Layouts that come back, as streams have them.
    order = draw(st.lists(st.integers(0, len(values) - 1), min_size=len(values), max_size=12))
    return types, [values[place] for place in order], draw(st.lists(st.booleans(), min_size=1, max_size=3))


def flatten(types: dict[str, Any], kind: str, value: Any, prefix: str, found: dict[str, float]) -> None:
    for name, inner, array in types[kind]:
        items = [(name, value[name])] if array is None else [(f"{name}[{i}]", v) for i, v in enumerate(value[name])]
        for label, item in items:
            if inner in types:
                flatten(types, inner, item, f"{prefix}{label}.", found)
            elif inner != "string":
                found[prefix + label] = float(item)


def to_rosbags(store: Any, types: dict[str, Any], kind: str, value: Any) -> Any:
    fields = {}
    for name, inner, array in types[kind]:
        item = value[name]
        if inner in types:
            items = [to_rosbags(store, types, inner, one) for one in (item if array is not None else [item])]
            fields[name] = items if array is not None else items[0]
        elif inner != "string" and array is not None:
            fields[name] = np.array(item, DTYPES[inner])
        else:
            fields[name] = item
    return store.types[kind.replace("/", "/msg/")](**fields)


def has_number(types: dict[str, Any], kind: str) -> bool:
    return any(inner != "string" and (inner not in types or has_number(types, inner)) for _, inner, _ in types[kind])


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool(((left == right) | (np.isnan(left) & np.isnan(right))).all())


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=logs(), gather_all=st.booleans())
def test_random_types_and_values_on_every_road(tmp_path: Path, case: Any, gather_all: bool) -> None:
    types, values, little = case
    root = next(iter(types))
    fields = [name for name, kind, _ in types[root] if kind in NUMBERS or (kind in types and has_number(types, kind))]
    if not fields:
        return
    store = get_typestore(Stores.EMPTY)
    for name, inner in types.items():
        store.register(get_types_from_msg(definition(inner), name.replace("/", "/msg/")))
    long = root.replace("/", "/msg/")
    raw = [
        bytes(store.serialize_cdr(to_rosbags(store, types, root, value), long, little_endian=little[i % len(little)]))
        for i, value in enumerate(values)
    ]
    rows: list[dict[str, float]] = []
    for value in values:
        rows.append({})
        flatten(types, root, value, "", rows[-1])
    names = {name for row in rows for name in row}
    text = full_text(types)
    path = tmp_path / "random.mcap"
    write_log(path, [LogMessage("/t", long, 1 + i, data, schema=text) for i, data in enumerate(raw)])
    # A sequence that is empty in every message is an error of its own, tested below.
    fields = [
        field for field in fields if any(name == field or name.startswith((f"{field}.", f"{field}[")) for name in names)
    ]
    if not fields:
        return
    with pytest.MonkeyPatch.context() as patch:
        if not gather_all:
            patch.setattr(columns, "_LAYOUTS", 0)  # message by message
        stream = read_log(path, {"t": StreamSpec("/t", fields)}, clock="log")["t"]
    assert set(stream.names) == names
    want = np.array([[row.get(name, math.nan) for name in stream.names] for row in rows])
    assert same(stream.values, want)
    live = Decoder(long, text, stream.names)
    assert live.names == stream.names
    assert same(np.array([live.decode(data).values for data in raw]), want)


def joint_state(names: list[str], values: list[float], stamp: int = 0) -> dict[str, Any]:
    return {"header": {"stamp": stamp, "frame_id": "base"}, "name": names, "position": values}


def test_joints_follow_their_names(tmp_path: Path) -> None:
    """The order changes, a joint comes later, one goes: values follow the names, and a warning says what is NaN."""
    path, kind = tmp_path / "joints.mcap", "sensor_msgs/msg/JointState"
    steps = [joint_state(["a", "b"], [1, 2])] * 3 + [joint_state(["b", "a"], [2, 1])] * 3
    steps += [joint_state(["c", "a"], [3, 1])] * 2
    write_log(path, [LogMessage("/j", kind, 10 + i, step) for i, step in enumerate(steps)])
    log = read_log(path, {"j": StreamSpec("j", ["position"])}, clock="log")
    assert log["j"].names == ("position[a]", "position[b]", "position[c]")
    nan = math.nan
    assert same(log["j"].values, np.array([[1, 2, nan]] * 6 + [[1, nan, 3]] * 2))
    assert any("position[b] is not in 2 of 8 messages" in text for text in log.warnings)
    assert any("position[c] is not in 6 of 8 messages" in text for text in log.warnings)


def test_a_joint_that_never_comes_is_an_error_that_lists_the_others(tmp_path: Path) -> None:
    path, kind = tmp_path / "joints.mcap", "sensor_msgs/msg/JointState"
    write_log(path, [LogMessage("/j", kind, 10 + i, joint_state(["a", "b"], [1, 2])) for i in range(3)])
    with pytest.raises(LogError, match=r"no message has position\[elbow\]; there are position\[a\], position\[b\]"):
        read_log(path, {"j": StreamSpec("j", ["position[elbow]"])})


def test_a_field_that_is_empty_in_every_message_is_an_error(tmp_path: Path) -> None:
    path, kind = tmp_path / "joints.mcap", "sensor_msgs/msg/JointState"
    write_log(path, [LogMessage("/j", kind, 10 + i, joint_state(["a"], [1])) for i in range(3)])
    with pytest.raises(LogError, match="no message has velocity"):
        read_log(path, {"j": StreamSpec("j", ["position", "velocity"])})


def test_a_swapped_pair_of_equally_long_names_is_seen(tmp_path: Path) -> None:
    """Structural words are equal here; only the letters of the names tell the layouts apart."""
    path, kind = tmp_path / "joints.mcap", "sensor_msgs/msg/JointState"
    steps = [
        joint_state(["left", "rite"], [i, -i]) if i % 3 else joint_state(["rite", "left"], [-i, i]) for i in range(40)
    ]
    write_log(path, [LogMessage("/j", kind, 10 + i, step) for i, step in enumerate(steps)])
    values = read_log(path, {"j": StreamSpec("j", ["position[left]", "position[rite]"])})["j"].values
    assert same(values, np.array([[i, -i] for i in range(40)], float))


def test_garbage_in_padding_does_not_split_layouts() -> None:
    """Padding after a string may hold anything; the same layout is still one."""
    kind = "sensor_msgs/msg/JointState"
    decoder = Decoder(kind, schema_text(kind), ["position[ab]"])
    data = bytearray(serialize(parse_schema(kind, schema_text(kind)), joint_state(["ab", "c"], [5, 6])))
    place = data.index(b"ab\0") + 3
    assert data[place] == 0
    decoder.decode(bytes(data))
    data[place] = 0xAA
    assert decoder.decode(bytes(data)).values.tolist() == [5.0]
    assert decoder.layouts == 1


def test_one_message_of_another_length_is_found_among_many(tmp_path: Path) -> None:
    kind = "geometry_msgs/msg/Twist"
    data = serialize(parse_schema(kind, schema_text(kind)), {})
    path = tmp_path / "odd.mcap"
    for odd in (data + bytes(20), data[:-8]):
        write_log(path, [LogMessage("/t", kind, 1 + i, odd if i == 5 else data) for i in range(10)])
        with pytest.raises(LogError, match="1 of 10 messages do not decode"):
            read_log(path, {"t": StreamSpec("/t", ["linear"])})
        log = read_log(path, {"t": StreamSpec("/t", ["linear"])}, on_damage="skip")
        assert log["t"].arrival_ns.tolist() == [1, 2, 3, 4, 5, 7, 8, 9, 10]
        assert any("1 of 10 messages do not decode" in text for text in log.warnings)


@pytest.mark.parametrize("kind", ["std_msgs/msg/Float64", "std_msgs/msg/Empty", "geometry_msgs/msg/Twist"])
def test_payloads_too_short_or_too_long_are_refused(kind: str) -> None:
    data = serialize(parse_schema(kind, schema_text(kind)), {})
    decoder = Decoder(kind, schema_text(kind), [])
    decoder.decode(data)
    for bad in (b"", data[:3], data[:-1], data + bytes(17)):
        with pytest.raises(LogError, match=kind):
            decoder.decode(bad)


def test_stray_bytes_after_a_message_are_accepted() -> None:
    kind = "sensor_msgs/msg/JointState"
    data = serialize(parse_schema(kind, schema_text(kind)), joint_state(["a"], [1.5]))
    assert Decoder(kind, schema_text(kind), ["position[a]"]).decode(data + bytes(8)).values.tolist() == [1.5]


@pytest.mark.parametrize(("kind", "word"), [(7, "XCDR2"), (3, "parameter list"), (0x1234, "unknown")])
def test_other_serializations_are_refused_by_name(kind: int, word: str) -> None:
    decoder = Decoder("std_msgs/msg/Float64", schema_text("std_msgs/msg/Float64"), ["data"])
    with pytest.raises(LogError, match=word):
        decoder.decode(kind.to_bytes(2, "big") + bytes(10))


def test_a_length_of_two_gigabytes_allocates_nothing() -> None:
    decoder = Decoder("std_msgs/msg/Float64MultiArray", schema_text("std_msgs/msg/Float64MultiArray"), ["data"])
    data = b"\0\1\0\0" + bytes(8) + (2**31).to_bytes(4, "little")
    with pytest.raises(LogError, match=r"field data needs 17179869184 bytes"):
        decoder.decode(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["sensor_msgs/msg/JointState", "diagnostic_msgs/msg/DiagnosticArray"]))
def test_garbage_never_crashes(data: bytes, kind: str) -> None:
    decoder = Decoder(kind, schema_text(kind), ["header.stamp.sec"])
    for payload in (data, b"\0\1\0\0" + data, b"\0\0\0\0" + data):
        try:
            decoder.decode(payload)
        except LogError as error:
            assert kind in str(error)


IDL = """
module a_msgs { module msg {
  typedef double double__3[3];
  module Thing_Constants { const int32 N = 2; };
  @verbatim (language="comment", text="a thing")
  struct Inner { float x; sequence<uint16> list; };
  struct Thing {
    int64 number;
    string<10> label;
    double__3 vector;
    sequence<a_msgs::msg::Inner, 4> inners;
    @unit (value="m") octet flags[2];
  };
}; };
"""
AS_MSG = """int64 number
string label
float64[3] vector
Inner[] inners
byte[2] flags
===
MSG: a_msgs/Inner
float32 x
uint16[] list
"""


def test_idl_and_msg_texts_are_one_type() -> None:
    fields = ["number", "vector", "inners[1].x", "inners[0].list", "flags"]
    message = {"number": -5, "label": "hi", "vector": [1, 2, 3], "flags": [8, 9]}
    message["inners"] = [{"x": 0.5, "list": [1, 2]}, {"x": 1.5}]
    data = serialize(parse_schema("a_msgs/msg/Thing", AS_MSG), message)
    idl, msg = (Decoder("a_msgs/msg/Thing", text, fields) for text in (IDL, AS_MSG))
    assert idl.same_type(msg)
    assert idl.decode(data).values.tolist() == msg.decode(data).values.tolist() == [-5, 1, 2, 3, 1.5, 1, 2, 8, 9]
    assert idl.names[4:7] == ("inners[1].x", "inners[0].list[0]", "inners[0].list[1]")


@pytest.mark.parametrize(
    "text",
    [
        IDL,
        IDL.replace("module a_msgs {", "module a_msgs\n\n{"),
        IDL.replace("module a_msgs {", "module\n  a_msgs // the package\n{"),
        "// generated\r\n#include <x.idl>\n/* of ours\n struct of a module */ " + IDL.strip(),
        "=" * 80 + "\nIDL: a_msgs/msg/Thing\n" + IDL,
    ],
)
def test_an_idl_text_is_told_by_its_module(text: str) -> None:
    assert schema_encoding(text, ros1=False) == "ros2idl"
    assert "number" in Decoder("a_msgs/msg/Thing", text, ["number"]).names


def test_a_msg_text_may_speak_of_modules_and_structs() -> None:
    text = (
        "# The construct of the power module we carry.\n# As in IDL: */ module power { struct Power { double x; }; };\n"
        'string module "{"\nfloat64 volts  # struct volts of module {\nfloat64 struct\n'
    )
    decoder = Decoder("a_msgs/msg/Power", text, ["volts", "struct"])
    data = serialize(parse_schema("a_msgs/msg/Power", text), {"volts": 12.5, "struct": 1})
    assert decoder.decode(data).values.tolist() == [12.5, 1]


@pytest.mark.parametrize("part", ["\n", "module ", "module a ", "*/ ", "/*", "module a //", " \t"])
def test_the_text_is_told_in_time_that_grows_with_it_alone(part: str) -> None:
    started = time.perf_counter()
    assert schema_encoding(part * (1_000_000 // len(part)), ros1=False) == "ros2msg"
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("angular", "has no field 'angular'"),
        ("orientation.v", "has no field 'v' in 'orientation'"),
        ("header.frame_id", "is text"),
        ("orientation.x.y", "has no parts"),
        ("orientation[0].x", "is no array"),
    ],
)
def test_a_wrong_path_is_named_with_what_is_there(path: str, words: str) -> None:
    with pytest.raises(LogError) as caught:
        Decoder("sensor_msgs/msg/Imu", schema_text("sensor_msgs/msg/Imu"), [path])
    assert words in str(caught.value) and "sensor_msgs/msg/Imu" in str(caught.value)
