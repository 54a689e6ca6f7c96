"""What the elements of an array are called, and that each name given out is taken back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robopos.errors import LogError
from robopos.logs import Decoder, LogMessage, StreamSpec, parse_schema, read_log, schema_text, serialize, write_log
from robopos.logs.units import unit_of

JOINTS, TRAJECTORY = "sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory"
# Letters that stand for something in a path.
NAMES = st.text(st.sampled_from("[].ab01²\n"), max_size=6)


def encoded(kind: str, message: dict[str, Any], text: str | None = None) -> bytes:
    return serialize(parse_schema(kind, text or schema_text(kind)), message)


def joints_log(path: Path, *steps: tuple[list[str], list[float]]) -> Path:
    messages = [{"name": names, "position": values} for names, values in steps]
    return write_log(path, [LogMessage("/j", JOINTS, 10 + i, message) for i, message in enumerate(messages)])


def test_a_joint_that_is_called_by_a_number_is_no_place_in_the_array(tmp_path: Path) -> None:
    path = joints_log(tmp_path / "a.mcap", *[(["1", "2"], [11, 22]), (["2", "3"], [22, 33])] * 3)
    log = read_log(path, {"j": StreamSpec("/j", ["position"])}, clock="log")
    assert log["j"].names == ("position[1]", "position[2]", "position[3]")
    nan = math.nan
    np.testing.assert_array_equal(log["j"].values, [[11, 22, nan], [nan, 22, 33]] * 3)
    assert any("position[1] is not in 3 of 6 messages" in text for text in log.warnings)
    live = Decoder(JOINTS, schema_text(JOINTS), log["j"].names)
    data = encoded(JOINTS, {"name": ["2", "3"], "position": [22, 33]})
    np.testing.assert_array_equal(live.decode(data).values, [nan, 22, 33])


def test_an_array_without_names_is_asked_by_numbers_and_one_with_names_by_those(tmp_path: Path) -> None:
    for names in ([], ["a"], ["a", "a"], ["a", ""]):  # none, too few, one twice, one empty: they name nothing
        path = joints_log(tmp_path / "a.mcap", (names, [1, 2]))
        assert read_log(path, {"j": StreamSpec("/j", ["position[1]"])})["j"].values.tolist() == [[2]]
        assert read_log(path, {"j": StreamSpec("/j", ["position"])})["j"].names == ("position[0]", "position[1]")
    path = joints_log(tmp_path / "a.mcap", (["a", "b"], [1, 2]))
    with pytest.raises(LogError, match=r"no message has position\[1\]; there are position\[a\], position\[b\]"):
        read_log(path, {"j": StreamSpec("/j", ["position[1]"])})


def test_a_digit_of_another_script_is_a_name(tmp_path: Path) -> None:
    path = joints_log(tmp_path / "a.mcap", (["²", "q"], [1, 2]), (["q"], [2]))
    values = read_log(path, {"j": StreamSpec("/j", ["position[²]"])})["j"].values
    np.testing.assert_array_equal(values, [[1], [math.nan]])


def test_names_of_a_fixed_array_are_those_of_the_message() -> None:
    text = "string[] names\nfloat64[2] force\nB b\n===\nMSG: a/B\nfloat64[2] torque\n"
    decoder = Decoder("a/msg/A", text, ["force", "b"])
    data = encoded("a/msg/A", {"names": ["l", "r"], "force": [1, 2], "b": {"torque": [3, 4]}}, text)
    assert decoder.decode(data).values.tolist() == [1, 2, 3, 4]
    assert decoder.names == ("force[l]", "force[r]", "b.torque[l]", "b.torque[r]")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=4))
def test_every_name_given_out_is_taken_back(tmp_path: Path, steps: list[list[str]]) -> None:
    rows = [{f"position[{name}]": 10.0 * i + n for n, name in enumerate(names)} for i, names in enumerate(steps)]
    path = joints_log(
        tmp_path / "a.mcap",
        *[(names, [10.0 * i + n for n in range(len(names))]) for i, names in enumerate(steps)],
    )
    stream = read_log(path, {"j": StreamSpec("/j", ["position"])}, clock="log", cache=False)["j"]
    again = read_log(path, {"j": StreamSpec("/j", stream.names)}, clock="log", cache=False)["j"]
    assert again.names == stream.names
    np.testing.assert_array_equal(again.values, stream.values)
    if all(len(set(names)) == len(names) and "" not in names for names in steps):
        want = [[row.get(name, math.nan) for name in stream.names] for row in rows]
        np.testing.assert_array_equal(stream.values, want)
        assert set(stream.names) == set().union(*rows)


@settings(max_examples=100, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=3), st.integers(1, 2))
def test_every_name_inside_a_list_of_types_is_taken_back(names: list[str], points: int) -> None:
    values = [{"positions": [10.0 * p + n for n in range(len(names))]} for p in range(points)]
    data = encoded(TRAJECTORY, {"joint_names": names, "points": values})
    first = Decoder(TRAJECTORY, schema_text(TRAJECTORY), ["points"])
    row = first.decode(data).values
    second = Decoder(TRAJECTORY, schema_text(TRAJECTORY), first.names)
    assert second.decode(data).values.tolist() == row.tolist()
    if len(set(names)) == len(names) and "" not in names:
        for p, point in enumerate(values):
            asked = [f"points[{p}].positions[{name}]" for name in names]
            assert (
                Decoder(TRAJECTORY, schema_text(TRAJECTORY), asked).decode(data).values.tolist() == (point["positions"])
            )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("points[0.positions", "not closed"),
        ("points[0]x.positions", "not closed"),
        ("points[0].positions[a", "not closed"),
        ("points[0].positions[a].b", "not closed"),
        ("points.positions", "name the element"),
        ("points[0].nothing", "no field 'nothing' in 'points[0]'"),
        ("points[0].positions.x", "has no parts"),
        ("joint_names", "is text"),
    ],
)
def test_a_path_whose_brackets_are_wrong_is_named(path: str, words: str) -> None:
    with pytest.raises(LogError) as caught:
        Decoder(TRAJECTORY, schema_text(TRAJECTORY), [path])
    assert words in str(caught.value) and TRAJECTORY in str(caught.value)


def test_many_elements_by_their_names_cost_what_one_array_costs() -> None:
    kind, count = "std_msgs/msg/Float64MultiArray", 8000
    decoder = Decoder(kind, schema_text(kind), [f"data[{n}]" for n in range(count)])
    assert decoder.decode(encoded(kind, {"data": list(range(count))})).values.tolist() == list(range(count))


def test_two_values_of_one_name_are_no_column() -> None:
    data = json.dumps({"a.b": 1, "a": {"b": 2}, "c": 3}).encode()
    assert Decoder("", "", ["c"], "json").decode(data).values.tolist() == [3]
    with pytest.raises(LogError, match=r"two values of the message are named 'a\.b'"):
        Decoder("", "", ["a.b"], "json").decode(data)


def test_a_field_may_be_called_as_the_column_of_arrival_times(tmp_path: Path) -> None:
    message = LogMessage("/t", "a/msg/B", 5, {"arrival_ns": 1}, schema="float64 arrival_ns\n")
    path = write_log(tmp_path / "a.mcap", [message])
    frame = read_log(path, {"t": StreamSpec("/t", ["arrival_ns"])})["t"].to_pandas()
    assert list(frame.columns) == ["arrival_ns"] * 2 and frame.iloc[0].tolist() == [5, 1]


def test_a_joint_name_tells_no_unit() -> None:
    for joint in ("a[b].range.q", "a.twist.linear.x"):
        assert unit_of(JOINTS, f"position[{joint}]") == ""
    assert unit_of("sensor_msgs/msg/LaserScan", "ranges[3]") == "m"
