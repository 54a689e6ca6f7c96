"""The recordings' text, row by row, as messages of standard ROS 2 types. Pure parsing: no files, no network.

Each maker takes the texts of its source files and returns messages in order of time. Nothing is resampled,
smoothed or filtered; what is derived (the mower's pose and twist) is said in data/README.md.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from robopos.errors import RoboposError
from robopos.logs import LogMessage

# The recordings count seconds from an arbitrary start; every log puts that zero at 2020-01-01T00:00:00Z.
EPOCH_NS = 1_577_836_800_000_000_000
FEET = ("FL", "FR", "RL", "RR")
# sensor_msgs/msg/Range asks for limits that the mower's recording does not give: all around, and beyond the
# longest range in it (75 m).
RANGE_LIMITS = {"field_of_view": 2 * math.pi, "min_range": 0.0, "max_range": 100.0}
# First element of a covariance: -1 says "this message has no orientation" (sensor_msgs/msg/Imu).
NO_ORIENTATION = [-1.0] + [0.0] * 8

Rows = Iterator[tuple[str, list[str]]]
Fields = dict[str, object]


class RecordingError(RoboposError):
    """A row of a recording does not read as its columns say."""


@dataclass(frozen=True)
class Recording:
    """How one log is made."""

    members: tuple[str, ...]  # source files in the wheel's data folder
    make: Callable[..., list[LogMessage]]  # their texts, in the same order -> messages
    digest: str  # SHA-256 of the written log's topics, times and payloads


def time_ns(seconds: str) -> int:
    """A decimal number of seconds as a stamp, exact to the nanosecond."""
    return EPOCH_NS + round(Decimal(seconds) * 1_000_000_000)


def mower(odometry: str, ranges: str) -> list[LogMessage]:
    """Odometry about 5 Hz and ranges to four radio beacons, from two tables of numbers."""
    messages = list(_mower_odometry(_table("Plaza1_DR.txt", odometry, 3)))
    for where, (seconds, _antenna, beacon, range_m) in _table("Plaza1_TD.txt", ranges, 4):
        stamp_ns = time_ns(seconds)
        number = _integer(where, beacon)
        message = _stamped(stamp_ns, "base_link") | RANGE_LIMITS | {"range": float(range_m)}
        messages.append(LogMessage(f"range/beacon_{number}", "sensor_msgs/msg/Range", stamp_ns, message))
    return _by_time(messages)


def _mower_odometry(rows: Rows) -> Iterator[LogMessage]:
    # A row is what was travelled and turned since the row before: so the first one, which has no interval,
    # only starts the clock, and the pose starts at zero there.
    # The heading is kept as the cosine and sine of its half, which is what a quaternion holds.
    x_m = y_m = 0.0
    cosine, sine = 1.0, 0.0
    previous_ns: int | None = None
    for where, (seconds, distance_text, turn_text) in rows:
        stamp_ns, distance_m, turn = time_ns(seconds), float(distance_text), float(turn_text)
        if previous_ns is None:
            previous_ns = stamp_ns
            continue
        if stamp_ns <= previous_ns:
            raise RecordingError(f"{where}: time does not advance, so increments have no rate")
        interval_s = (stamp_ns - previous_ns) * 1e-9
        c, s = _cos_sin(turn / 2)
        turned_cosine, turned_sine = cosine * c - sine * s, sine * c + cosine * s
        # The angles of the two halves, before and after, add up to the mean heading of the step.
        x_m += distance_m * (cosine * turned_cosine - sine * turned_sine)
        y_m += distance_m * (sine * turned_cosine + cosine * turned_sine)
        length = math.sqrt(turned_cosine * turned_cosine + turned_sine * turned_sine)
        cosine, sine = turned_cosine / length, turned_sine / length
        pose = {
            "position": {"x": x_m, "y": y_m, "z": 0.0},
            "orientation": {"x": 0.0, "y": 0.0, "z": sine, "w": cosine},
        }
        twist = {
            "linear": {"x": distance_m / interval_s, "y": 0.0, "z": 0.0},
            "angular": {"x": 0.0, "y": 0.0, "z": turn / interval_s},
        }
        message = _stamped(stamp_ns, "odom") | {
            "child_frame_id": "base_link",
            "pose": {"pose": pose},
            "twist": {"twist": twist},
        }
        yield LogMessage("odometry", "nav_msgs/msg/Odometry", stamp_ns, message)
        previous_ns = stamp_ns


def _cos_sin(angle: float) -> tuple[float, float]:
    """Cosine and sine by their series: the same bits everywhere; C libraries differ in the last."""
    cosine, sine, term, order = 0.0, 0.0, 1.0, 0
    while abs(term) > 1e-20:
        # Terms of e^(i·angle): even orders are real, odd ones imaginary, and the signs go ++--.
        sign = -1.0 if order % 4 in (2, 3) else 1.0
        if order % 2:
            sine += sign * term
        else:
            cosine += sign * term
        order += 1
        term *= angle / order
    return cosine, sine


def car(imu: str, positions: str) -> list[LogMessage]:
    """A car's IMU at 100 Hz and its positions at 1 Hz."""
    messages = []
    for _, (seconds, _interval, *values) in _table("KittiEquivBiasedImu.txt", imu, 8, skip_header=True):
        stamp_ns = time_ns(seconds)
        acceleration, rate = values[:3], values[3:]
        messages.append(_imu(stamp_ns, "imu_link", rate, acceleration))
    for _, (seconds, *values) in _table("KittiGps_converted.txt", positions, 4, skip_header=True, comma=True):
        stamp_ns = time_ns(seconds)
        message = _stamped(stamp_ns, "map") | {"point": _vector(values)}
        messages.append(LogMessage("position", "geometry_msgs/msg/PointStamped", stamp_ns, message))
    return _by_time(messages)


def stairs(imu: str, contacts: str) -> list[LogMessage]:
    """A quadruped on stairs: its IMU about 100 Hz, which feet touch the ground, and where those feet are."""
    messages = []
    for where, row in _records("legged_staircase/imu.csv", imu):
        stamp_ns = time_ns(_cell(where, row, "timestamp_s"))
        rate = [_cell(where, row, f"omega_{axis}") for axis in "xyz"]
        acceleration = [_cell(where, row, f"acc_{axis}") for axis in "xyz"]
        messages.append(_imu(stamp_ns, "imu_link", rate, acceleration))
    events: dict[str, tuple[int, set[str]]] = {}
    for where, row in _records("legged_staircase/contacts.csv", contacts):
        stamp_ns = time_ns(_cell(where, row, "timestamp_s"))
        foot = _text(where, row, "foot_name")
        if foot not in FEET:
            raise RecordingError(f"{where}: foot {foot!r} is none of {', '.join(FEET)}")
        events.setdefault(_text(where, row, "event_index"), (stamp_ns, set()))[1].add(foot)
        point = [_cell(where, row, f"body_{axis}") for axis in "xyz"]
        message = _stamped(stamp_ns, "base_link") | {"point": _vector(point)}
        messages.append(LogMessage(f"foot/{foot.lower()}", "geometry_msgs/msg/PointStamped", stamp_ns, message))
    for stamp_ns, touching in events.values():
        message = _stamped(stamp_ns, "base_link") | {
            "name": list(FEET),
            "position": [float(foot in touching) for foot in FEET],
        }
        messages.append(LogMessage("contacts", "sensor_msgs/msg/JointState", stamp_ns, message))
    return _by_time(messages)


def quadruped(imu: str) -> list[LogMessage]:
    """A quadruped's IMU with orientation: stamps every 2.5 ms, receive times that repeat and lag."""
    messages = []
    for where, row in _records("quadraped_imu_data.csv", imu):
        received_ns = EPOCH_NS + _integer(where, _cell(where, row, "%time"))
        stamp_ns = EPOCH_NS + _integer(where, _cell(where, row, "field.header.stamp"))
        rate = [_cell(where, row, f"field.angular_velocity.{axis}") for axis in "xyz"]
        acceleration = [_cell(where, row, f"field.linear_acceleration.{axis}") for axis in "xyz"]
        orientation = [_cell(where, row, f"field.orientation.{axis}") for axis in "xyzw"]
        frame_id = _text(where, row, "field.header.frame_id")
        messages.append(_imu(stamp_ns, frame_id, rate, acceleration, orientation, received_ns=received_ns))
    return _by_time(messages)


def _imu(
    stamp_ns: int,
    frame_id: str,
    rate: Iterable[str],
    acceleration: Iterable[str],
    orientation: Iterable[str] | None = None,
    *,
    received_ns: int | None = None,
) -> LogMessage:
    message = _stamped(stamp_ns, frame_id) | {
        "angular_velocity": _vector(rate),
        "linear_acceleration": _vector(acceleration),
    }
    if orientation is None:
        message["orientation_covariance"] = NO_ORIENTATION
    else:
        message["orientation"] = _vector(orientation, "xyzw")
    return LogMessage("imu", "sensor_msgs/msg/Imu", stamp_ns if received_ns is None else received_ns, message)


def _stamped(stamp_ns: int, frame_id: str) -> Fields:
    return {"header": {"stamp": stamp_ns, "frame_id": frame_id}}


def _vector(values: Iterable[str], axes: str = "xyz") -> dict[str, float]:
    return {axis: float(value) for axis, value in zip(axes, values, strict=True)}


def _by_time(messages: list[LogMessage]) -> list[LogMessage]:
    # Stable: rows of one time keep the order of their file.
    return sorted(messages, key=lambda message: message.log_time_ns)


def _table(name: str, text: str, columns: int, *, skip_header: bool = False, comma: bool = False) -> Rows:
    """Rows of numbers, each with its place for errors."""
    for line, row in enumerate(text.splitlines(), start=1):
        cells = row.split("," if comma else None)
        if not cells or (skip_header and line == 1):
            continue
        where = f"{name}, line {line}"
        if len(cells) != columns:
            raise RecordingError(f"{where}: {len(cells)} columns, expected {columns}")
        for cell in cells:
            _number(where, cell)
        yield where, cells


def _records(name: str, text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Rows of a CSV with a header, each with its place for errors."""
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        yield f"{name}, line {line}", row


def _text(where: str, row: Mapping[str, str], column: str) -> str:
    value = row.get(column)
    if value is None:
        raise RecordingError(f"{where}: no column {column!r}")
    return value


def _cell(where: str, row: Mapping[str, str], column: str) -> str:
    """A number, still as text: times need all of its digits."""
    value = _text(where, row, column)
    _number(where, value)
    return value


def _number(where: str, cell: str) -> None:
    try:
        finite = Decimal(cell).is_finite()
    except InvalidOperation:
        finite = False
    if not finite:
        raise RecordingError(f"{where}: {cell!r} is not a finite number")


def _integer(where: str, cell: str) -> int:
    number = Decimal(cell)
    if number != int(number):
        raise RecordingError(f"{where}: {cell!r} is not a whole number")
    return int(number)


RECORDINGS = {
    "mower": Recording(
        ("Plaza1_DR.txt", "Plaza1_TD.txt"),
        mower,
        "f40fbecf355005d4260d613490102ffac4af232d1be75a11da251cf0994777d9",
    ),
    "car": Recording(
        ("KittiEquivBiasedImu.txt", "KittiGps_converted.txt"),
        car,
        "237fefb0554dd8f617507565b56e82bbc1da2c8ce8b55974f8ebaa2dc26f1c3d",
    ),
    "stairs": Recording(
        ("legged_staircase/imu.csv", "legged_staircase/contacts.csv"),
        stairs,
        "9b2893f0e9dac65a2c89930b11cf92dd0a469090565791ef8c3e512989226136",
    ),
    "quadruped": Recording(
        ("quadraped_imu_data.csv",),
        quadruped,
        "99dad27ae81a1655a2804009d2e499971062c4f93706a36690a6c7ebe467d8db",
    ),
}
