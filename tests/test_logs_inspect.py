"""The clock audit, its command, and the drafted configuration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import arm_messages

from robopos.cli import main
from robopos.errors import LogError
from robopos.logs import LogMessage, RawMessage, inspect_log, iter_messages, write_log
from robopos.logs.audit import audit
from robopos.logs.draft import draft_config
from robopos.logs.plot import audit_figure
from robopos.logs.report import lateness, offset_of, steps_of

MS = 1_000_000
TWIST = "geometry_msgs/msg/TwistStamped"


def twist(topic: str, log: int, stamp: int, x: float = 0.0) -> LogMessage:
    return LogMessage(topic, TWIST, log, {"header": {"stamp": stamp, "frame_id": "f"}, "twist": {"linear": {"x": x}}})


def test_steps_gaps_and_missing_messages() -> None:
    times = np.arange(100, dtype=np.int64) * 10 * MS
    times = np.delete(times, [20, 50, 51, 52, 53])
    steps, gaps, longest, drops = steps_of(times)
    assert steps is not None
    assert (steps.p50_ms, steps.max_ms) == (10.0, 50.0)
    assert (gaps, longest, drops) == (1, 0.05, 5)
    assert steps_of(times[:1]) == (None, 0, 0.0, None)


def test_bursts_do_not_tell_what_is_missing() -> None:
    times = np.cumsum(np.tile([1, 1, 1, 97], 50)).astype(np.int64) * MS
    _, _, _, drops = steps_of(times)
    assert drops is None


def test_offset_and_drift_of_two_clocks_are_found() -> None:
    log = np.arange(1000, dtype=np.int64) * 10 * MS
    clock = log - 5 * MS + (log * 50e-6).astype(np.int64)
    offset = offset_of(clock, log)
    assert offset is not None
    assert offset.drift_ppm == pytest.approx(50, abs=0.5)
    assert offset.p50_ms == pytest.approx(-5 + 0.25, abs=0.01)
    assert offset_of(log[:0], log[:0]) is None


def test_lateness_is_what_arrival_order_does_to_header_order() -> None:
    a, b = np.array([10, 30], np.int64), np.array([20, 25], np.int64)
    late = lateness([a, b], [np.array([1, 2]), np.array([3, 4])], [np.array([0, 1]), np.array([2, 3])])
    np.testing.assert_allclose(late[0], [0, 0])
    np.testing.assert_allclose(late[1], [10e-9, 5e-9])


@pytest.fixture
def odd_log(tmp_path: Path) -> Path:
    messages = [twist("/a", 10_000 * MS + 10 * MS * i, 10_000 * MS + 10 * MS * i - 3 * MS) for i in range(100)]
    late = [twist("/b", 10_000 * MS + 10 * MS * i + 1, 10_000 * MS + 10 * MS * i - 500 * MS, np.nan) for i in range(50)]
    image = {"data": b"abc", "format": "jpeg"}
    images = [LogMessage("/image", "sensor_msgs/msg/CompressedImage", 10_000 * MS + i, image) for i in range(3)]
    bare = [LogMessage("/bare", "geometry_msgs/msg/Twist", 10_000 * MS + 20 * MS * i, {}) for i in range(20)]
    return write_log(tmp_path / "odd.mcap", messages + late + images + bare)


def test_the_report_of_a_log(odd_log: Path) -> None:
    report = inspect_log(odd_log)
    assert report.messages == 173
    topics = {topic.topic: topic for topic in report.topics}
    assert list(topics) == ["/a", "/b", "/bare", "/image"]
    a, b, image = topics["/a"], topics["/b"], topics["/image"]
    assert a.header_offset is not None and a.header_offset.p50_ms == pytest.approx(-3)
    assert a.rate_hz == pytest.approx(100) and a.late_share == 0 and a.nan_share == 0
    assert b.late_share == 1 and b.latest_s == pytest.approx(0.497)
    assert b.nan_share == pytest.approx(1 / 6)
    assert topics["/bare"].clock == "log" and topics["/bare"].header_offset is None
    assert (image.fields, image.note, image.count) == (0, "only listed", 3)
    assert (a.layouts, a.fields, a.channels) == (1, 6, 1)


def test_fields_and_missing_numbers_are_those_of_all_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message is empty, a joint comes later, nobody sends an effort."""
    kind = "sensor_msgs/msg/JointState"
    steps = [([], [])] + [(["a"], [1.0])] * 50 + [(["a", "b"], [1.0, np.nan])] * 25 + [(["b"], [2.0])] * 24
    messages = [
        LogMessage("/j", kind, 10_000 * MS + i, {"name": names, "position": values})
        for i, (names, values) in enumerate(steps)
    ]
    path = write_log(tmp_path / "a.mcap", messages)
    for numbers in (1 << 23, 64):  # all at once, and a few messages at a time
        monkeypatch.setattr("robopos.logs.audit._NUMBERS", numbers)
        (topic,) = inspect_log(path).topics
        assert (topic.count, topic.fields, topic.undecoded, topic.layouts) == (100, 2, 0, 4)
        assert topic.nan_share == pytest.approx((1 + 24 + 51 + 25) / 200)
    empty = write_log(tmp_path / "b.mcap", [item._replace(message={}) for item in messages])
    (topic,) = inspect_log(empty).topics
    assert (topic.fields, topic.nan_share) == (0, None)


def test_a_topic_of_two_types_or_definitions_is_told(tmp_path: Path) -> None:
    kinds = ("std_msgs/msg/Float64", "std_msgs/msg/Float32")
    copies = [
        *write_and_copy(tmp_path / "a.mcap", LogMessage("/x", kinds[0], 1, {"data": 1.0})),
        *write_and_copy(tmp_path / "b.mcap", LogMessage("/x", kinds[1], 2, {"data": 1.0})),
        *write_and_copy(tmp_path / "c.mcap", LogMessage("/y", "a/msg/B", 3, {"x": 1.0}, schema="float64 x\n")),
        *write_and_copy(tmp_path / "d.mcap", LogMessage("/y", "a/msg/B", 4, {"y": 1.0}, schema="float64 y\n")),
        *write_and_copy(tmp_path / "e.mcap", LogMessage("/z", "a/msg/B", 5, {"x": 1.0}, schema="float64 x\n")),
        *write_and_copy(tmp_path / "f.mcap", LogMessage("/z", "a/msg/B", 6, {"x": 1.0}, schema="float64 x  # m\n")),
    ]
    x, y, z = inspect_log(write_log(tmp_path / "log.mcap", copies)).topics
    assert (x.count, x.channels, x.fields, x.undecoded) == (2, 2, 0, 0)
    assert x.note == f"carries both {kinds[0]} and {kinds[1]}"
    assert (y.fields, y.note) == (0, "carries two different definitions of a/msg/B")
    assert (z.count, z.fields, z.note) == (2, 1, "")


def write_and_copy(path: Path, message: LogMessage) -> list[RawMessage]:
    return list(iter_messages(write_log(path, [message])))


def test_a_topic_that_reads_like_a_formula_is_drawn_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "odd.mcap"
    write_log(log, [m._replace(topic=f"_{m.topic}/$\\foo$") for m in arm_messages(seconds=2)])
    assert main(["inspect", str(log), "--plot", str(tmp_path / "plot.png")]) == 0
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_a_table_json_and_a_plot(odd_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(odd_log)]) == 0
    table = capsys.readouterr().out
    assert "/bare" in table and "100.00" in table and "only listed" in table
    plot = odd_log.parent / "plot.png"
    assert main(["inspect", str(odd_log), "--json", "-", "--plot", str(plot)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [topic["count"] for topic in report["topics"]] == [100, 50, 20, 3]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_topic_has_one_colour_in_all_panels(odd_log: Path) -> None:
    first = [LogMessage("/Bare", "geometry_msgs/msg/Twist", 10_000 * MS + 20 * MS * i, {}) for i in range(20)]
    more = write_log(odd_log.parent / "more.mcap", first)  # without a header, and before the others by its name
    panels = audit_figure(audit([odd_log, more])[1]).axes
    colors = [{line.get_label(): tuple(line.get_color()) for line in panel.lines} for panel in panels]
    assert [list(drawn) for drawn in colors] == [["/Bare", "/a", "/b", "/bare", "/image"], ["/a", "/b"], ["/a", "/b"]]
    assert len(set(colors[0].values())) == 5
    assert all(drawn[topic] == colors[0][topic] for drawn in colors for topic in drawn)


def test_a_broken_file_is_one_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.mcap"
    path.write_bytes(b"nothing")
    for command in (["inspect", str(path)], ["init", str(path), "-o", str(tmp_path / "c.yaml")]):
        assert main(command) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "x.mcap: the file is no MCAP file" in error


def test_the_drafted_configuration_names_its_reasons(arm_log: Path) -> None:
    text = draft_config(arm_log)
    config = yaml.safe_load(text)
    sequence = config["data"]["sequence"]
    assert sequence["clock"] == "header" and "reaches the log" in text
    assert sequence["streams"]["joint_states"]["fields"] == ["position"]
    # The third component never changes, the linear acceleration neither.
    assert sequence["streams"]["imu"]["fields"] == ["angular_velocity.x", "angular_velocity.y"]
    assert "# Left out, empty or without change: angular_velocity.z, linear_acceleration.\n" in text
    assert "# Left out, empty or without change: velocity, effort.\n" in text
    assert sequence["targets"]["joint_states"] == ["position"]
    assert sequence["horizons_s"] == [0.1, 0.2, 0.5]


def test_a_wheel_that_turns_on_is_seen_in_steps(tmp_path: Path) -> None:
    path, messages = tmp_path / "wheels.mcap", []
    for i in range(300):
        header = {"stamp": 10_000 * MS + 20 * MS * i}
        message = {"header": header, "name": ["wheel", "arm"], "position": [0.1 * i, np.sin(0.1 * i)]}
        messages.append(LogMessage("/j", "sensor_msgs/msg/JointState", 10_000 * MS + 20 * MS * i, message))
    stream = yaml.safe_load(draft_config(write_log(path, messages)))["data"]["sequence"]["streams"]["j"]
    assert stream["fields"] == ["position"]
    assert stream["transform"] == {"position[wheel]": "difference"}


def test_nothing_is_said_of_fields_where_none_was_left_out(tmp_path: Path) -> None:
    point = "geometry_msgs/msg/PointStamped"
    messages = []
    for i in range(200):
        log, x = 10_000 * MS + 20 * MS * i, float(np.sin(i))
        messages.append(
            LogMessage("/p", point, log, {"header": {"stamp": log}, "point": {"x": x, "y": -x, "z": 2 * x}})
        )
    assert "Left out" not in draft_config(write_log(tmp_path / "point.mcap", messages))


def test_a_log_whose_stamps_are_zero_is_drafted_on_the_log_clock(tmp_path: Path) -> None:
    path = tmp_path / "zero.mcap"
    write_log(path, [twist("/a", 10_000 * MS + i * MS, 0, float(i)) for i in range(200)])
    assert "clock: log  # /a has header stamps of zero" in draft_config(path)


def stepping_back(path: Path, times: int, by_ms: float) -> Path:
    """1000 messages at 100 Hz, of which some have a stamp that far below the one before."""
    messages = []
    for i in range(1000):
        log = 1_000_000 * MS + 10 * MS * i
        late = round((by_ms + 10) * MS) if i % 20 == 10 and i < 20 * times else 0
        messages.append(twist("/a", log, log - 3 * MS - late, float(np.sin(i))))
    return write_log(path, messages)


@pytest.mark.parametrize(
    ("times", "by_ms", "clock", "told"),
    [
        (0, 0, "header", "the sensors' own stamps; /a reaches the log 3.0 ms after them\n"),
        (1, 9.95, "header", "ms after them; steps back in /a: 1 of 1000 stamps, at most 9.95 ms\n"),
        (10, 900, "header", "ms after them; steps back in /a: 10 of 1000 stamps, at most 900 ms\n"),
        (11, 5, "log", "clock: log  # steps back in /a: 11 of 1000 stamps, at most 5 ms\n"),
        (1, 1100, "log", "clock: log  # steps back in /a: 1 of 1000 stamps, at most 1.1 s\n"),
    ],
)
def test_stamps_that_go_back_far_or_often_are_no_clock(
    tmp_path: Path, times: int, by_ms: float, clock: str, told: str
) -> None:
    text = draft_config(stepping_back(tmp_path / "back.mcap", times, by_ms))
    sequence = yaml.safe_load(text)["data"]["sequence"]
    assert sequence["max_gap_s"] == 1.0
    assert sequence["clock"] == clock and told in text


def test_no_offset_is_told_as_nothing(tmp_path: Path) -> None:
    at = [1_000_000 * MS + 10 * MS * i for i in range(200)]
    path = write_log(tmp_path / "same.mcap", [twist("/a", log, log, float(np.sin(i))) for i, log in enumerate(at)])
    assert "/a reaches the log 0.0 ms after them\n" in draft_config(path)


def test_a_log_without_anything_to_learn_is_named(tmp_path: Path) -> None:
    path = tmp_path / "still.mcap"
    write_log(path, [twist("/a", 10_000 * MS + i * MS, 10_000 * MS + i * MS) for i in range(200)])
    with pytest.raises(LogError, match=r"still\.mcap: no topic .* geometry_msgs/TwistStamped"):
        draft_config(path)


@pytest.mark.slow
def test_a_drafted_configuration_trains_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, config = tmp_path / "arm.mcap", tmp_path / "config.yaml"
    write_log(log, arm_messages(60.0))
    assert main(["init", str(log), "-o", str(config), "--train-out", str(tmp_path / "run")]) == 0
    assert main(["init", str(log), "-o", str(config)]) == 1  # never over a file that is there
    assert main(["train", "--config", str(config), "--trainer.max_steps", "20", "--trainer.accelerator", "cpu"]) == 0
    assert "bundle:" in capsys.readouterr().out
