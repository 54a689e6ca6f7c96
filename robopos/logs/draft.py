"""`draft_config`: a commented training configuration from what a log holds and how its clocks run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robopos.errors import LogError
from robopos.logs.audit import inspect_log
from robopos.logs.decode import decode
from robopos.logs.finish import MAX_CLOCK_OFFSET_NS
from robopos.logs.log import Stream
from robopos.logs.paths import PathLike, separate_logs
from robopos.logs.read import read_log
from robopos.logs.reading import Reading
from robopos.logs.records import StreamSpec, topic_key
from robopos.logs.report import LogReport, TopicReport
from robopos.logs.schema import short_name
from robopos.logs.source import Source

# Fields that say how a robot moves, by type; the first are the better targets.
_FIELDS: dict[str, tuple[str, ...]] = {
    "sensor_msgs/JointState": ("position", "velocity", "effort"),
    "nav_msgs/Odometry": ("twist.twist.linear", "twist.twist.angular", "pose.pose.position"),
    "geometry_msgs/TwistStamped": ("twist",),
    "geometry_msgs/Twist": ("linear", "angular"),
    "geometry_msgs/AccelStamped": ("accel",),
    "geometry_msgs/WrenchStamped": ("wrench",),
    "geometry_msgs/PoseStamped": ("pose.position", "pose.orientation"),
    "geometry_msgs/PoseWithCovarianceStamped": ("pose.pose.position", "pose.pose.orientation"),
    "geometry_msgs/QuaternionStamped": ("quaternion",),
    "geometry_msgs/Vector3Stamped": ("vector",),
    "geometry_msgs/PointStamped": ("point",),
    "sensor_msgs/Imu": ("angular_velocity", "linear_acceleration"),
    "sensor_msgs/Range": ("range",),
    "sensor_msgs/MagneticField": ("magnetic_field",),
    "sensor_msgs/NavSatFix": ("latitude", "longitude", "altitude"),
    "sensor_msgs/BatteryState": ("voltage", "current"),
    "std_msgs/Float64": ("data",),
    "std_msgs/Float32": ("data",),
    "std_msgs/Float64MultiArray": ("data",),
    "std_msgs/Float32MultiArray": ("data",),
}
# Without a bound: the model sees their steps.
_UNBOUNDED = ("pose.pose.position", "pose.position", "latitude", "longitude", "altitude", "point")
_TURNS = 4 * math.pi  # a joint that went further, in rad, turns without end
# Texts that YAML takes for something else.
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_NICE_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_FEWEST = 100  # messages of a topic
_MOST_BACKWARD = 0.01  # of a topic's stamps below the one before; more is no clock to go by
_MOST_TARGETS = 12


class _Chosen(NamedTuple):
    topic: TopicReport
    name: str
    fields: list[str]
    left_out: list[str]  # of the type's fields, or their columns
    unbounded: list[str]
    targets: list[str]
    damaged: bool


class _Times(NamedTuple):
    period_s: float  # median step of the first stream with targets
    horizons_s: list[float]
    rate_hz: float  # tokens of all streams
    max_gap_s: float


def draft_config(paths: PathLike | Iterable[PathLike], out: str = "runs/train") -> str:
    """A configuration for `robopos train`, as YAML with the reason beside each choice.

    Args:
        paths: the logs; the first is measured, all are listed.
        out: folder for the results.

    Raises:
        LogError: a log cannot be read, or no topic of the first holds numbers that change.
    """
    logs = separate_logs(paths)
    report = inspect_log(logs[0])
    chosen = _choose(logs[0], report)
    times = _times(chosen)
    clock, reason = _clock([item.topic for item in chosen], times.max_gap_s)
    return _text(logs, chosen, times, clock, reason, out)


def _choose(path: Path, report: LogReport) -> list[_Chosen]:
    order = list(_FIELDS)
    fitting = [
        topic
        for topic in report.topics
        if short_name(topic.type) in _FIELDS and topic.count >= _FEWEST and not topic.undecoded and topic.rate_hz
    ]
    fitting.sort(key=lambda topic: (order.index(short_name(topic.type)), _is_command(topic.topic), topic.topic))
    chosen: list[_Chosen] = []
    refused: list[str] = []
    room = _MOST_TARGETS
    source = Source(path)
    for topic in fitting:
        fields = _FIELDS[short_name(topic.type)]
        try:
            stream, damaged = _read(source, topic.topic, fields)
        except LogError as error:  # two types on one topic, say
            refused.append(str(error))
            continue
        kept = [path for field in fields if _width(stream, field) for path in _moving(stream, field)]
        if not kept:
            continue
        left_out = [path for field in fields for path in _left_out(stream, field, kept)]
        unbounded = [item for field in kept for item in _unbounded(stream, field)]
        targets = _targets(stream, [field for field in kept if field not in unbounded], room)
        room -= sum(_width(stream, field) for field in targets)
        chosen.append(_Chosen(topic, _name(topic.topic, chosen), kept, left_out, unbounded, targets, damaged))
    if chosen and not any(item.targets for item in chosen):
        # Only positions without a bound: they are what there is to predict.
        chosen[0] = chosen[0]._replace(targets=chosen[0].unbounded[:1])
    if not chosen:
        there = ", ".join(sorted({short_name(topic.type) for topic in report.topics})) or "none"
        reasons = [f" ({reason})" for reason in (*refused, *report.damage)]
        raise LogError(
            f"{path}: no topic of a type that the draft knows has {_FEWEST} messages or more with numbers that change; "
            f"the types there are {there}, the draft knows {', '.join(sorted(_FIELDS))}: name topic and fields of any "
            f"other numeric type in a configuration of your own{''.join(reasons[:1])}"
        )
    return chosen


def _is_command(topic: str) -> bool:
    """What was measured is the better target than what was commanded."""
    return any(word in topic.lower() for word in ("command", "cmd", "control", "setpoint", "goal"))


def _unbounded(stream: Stream, field: str) -> list[str]:
    """The field, or those of its columns, that may grow without end: positions in the world, joints that turn on."""
    if field.startswith(_UNBOUNDED):
        return [field]
    if short_name(stream.type) != "sensor_msgs/JointState" or not field.startswith("position"):
        return []
    columns = [number for number, name in enumerate(stream.names) if _below(name, field)]
    turning = [
        stream.names[n] for n in columns if np.nanmax(stream.values[:, n]) - np.nanmin(stream.values[:, n]) > _TURNS
    ]
    return [field] if len(turning) == len(columns) else turning


def _targets(stream: Stream, fields: Sequence[str], room: int) -> list[str]:
    """The first field, or as many of its columns as there is room for; of single columns up to two."""
    if not fields or room <= 0:
        return []
    if _width(stream, fields[0]) > room:
        return [name for name in stream.names if _below(name, fields[0])][:room]
    return [field for field in fields[:2] if field == fields[0] or (field in stream.names and room > 1)]


def _read(source: Source, topic: str, fields: Sequence[str]) -> tuple[Stream, bool]:
    """The columns of those fields that some message holds (an effort may be empty in all); whether damage took some."""
    reading = Reading("s", StreamSpec(topic, fields), source)
    damages = decode([reading], "skip", None)
    held = [field for place, field in enumerate(fields) if any(tally.found[place] for tally in reading.tallies)]
    if not held:
        raise LogError(f"{reading.where}: no message has {', '.join(fields)}")
    log = read_log(source.paths, {"s": StreamSpec(topic, held)}, clock="log", on_damage="skip", cache=False)
    return log["s"], bool(damages or any(container.damages for container in source.containers))


def _below(name: str, field: str) -> bool:
    return name == field or name.startswith((field + ".", field + "["))


def _width(stream: Stream, field: str) -> int:
    return sum(_below(name, field) for name in stream.names)


def _moving(stream: Stream, field: str) -> list[str]:
    """The field, or only those of its columns that change and are mostly there."""
    columns = [number for number, name in enumerate(stream.names) if _below(name, field)]
    alive = []
    for number in columns:
        values = stream.values[:, number]
        finite = values[np.isfinite(values)]
        if len(finite) > len(values) / 2 and np.ptp(finite) > 0:
            alive.append(stream.names[number])
    return [field] if len(alive) == len(columns) else alive


def _left_out(stream: Stream, field: str, kept: Sequence[str]) -> list[str]:
    """The field, where none of its columns is kept, or those that are not."""
    columns = [name for name in stream.names if _below(name, field)]
    out = [name for name in columns if not any(_below(name, path) for path in kept)]
    return [field] if len(out) == len(columns) else out


def _name(topic: str, chosen: Sequence[_Chosen]) -> str:
    """A name for the stream that a ROS topic may carry, as that of its predictions does."""
    name = re.sub("[^A-Za-z0-9]+", "_", topic_key(topic)).strip("_").lower()
    if not name[:1].isalpha():
        name = f"stream_{name}".rstrip("_")
    taken = {item.name for item in chosen}
    further = (f"{name}_{number}" for number in range(2, len(taken) + 2))
    return next(one for one in (name, *further) if one not in taken)


def _times(chosen: Sequence[_Chosen]) -> _Times:
    first = next(item for item in chosen if item.targets)
    period_s = _step_s(first) or 1 / (first.topic.rate_hz or 1.0)
    start = next((number for number, nice in enumerate(_NICE_S) if nice >= 3 * period_s), len(_NICE_S) - 3)
    horizons_s = list(_NICE_S[start : start + 3])
    rates = [item.topic.rate_hz or 1.0 for item in chosen]
    return _Times(period_s, horizons_s, sum(rates), max(1.0, 5 / min(rates), 2 * horizons_s[-1]))


def _step_s(item: _Chosen) -> float:
    return item.topic.steps.p50_ms / 1e3 if item.topic.steps else 0.0


def _clock(topics: Sequence[TopicReport], max_gap_s: float) -> tuple[str, str]:
    """The clock and the reason for it."""
    zeros = [topic.topic for topic in topics if topic.zero_stamps]
    if zeros:
        return "log", f"{zeros[0]} has header stamps of zero"
    with_header = [topic for topic in topics if topic.header_offset is not None]
    if not with_header:
        return "log", "no stream has a header"
    worst = max(with_header, key=lambda topic: abs(topic.header_offset.p50_ms) if topic.header_offset else 0.0)
    offset = worst.header_offset.p50_ms if worst.header_offset else 0.0
    if len(with_header) < len(topics) and abs(offset) * 1e6 > MAX_CLOCK_OFFSET_NS:
        return (
            "log",
            f"some streams have no header, and the stamps of {worst.topic} are {offset / 1e3:.1f} s off log time",
        )
    for topic in with_header:
        # Few and small steps back are late messages, which the model sees as they are.
        if topic.backward > _MOST_BACKWARD * topic.count or topic.furthest_back_s > max_gap_s:
            return "log", _backward(topic)
    reason = f"the sensors' own stamps; {worst.topic} reaches the log {round(-offset, 1) + 0.0:.1f} ms after them"
    late = max(with_header, key=lambda topic: topic.backward / topic.count)
    return "header", f"{reason}; {_backward(late)}" if late.backward else reason


def _backward(topic: TopicReport) -> str:
    most_s = topic.furthest_back_s
    most = f"{most_s:.3g} s" if most_s >= 1 else f"{most_s * 1e3:.3g} ms"
    return f"steps back in {topic.topic}: {topic.backward} of {topic.count} stamps, at most {most}"


def _text(logs: Sequence[Path], chosen: Sequence[_Chosen], times: _Times, clock: str, reason: str, out: str) -> str:
    targeted = [item for item in chosen if item.targets]
    horizons_s, rate_hz = times.horizons_s, times.rate_hz
    context = int(min(256, max(32, math.ceil(5 * horizons_s[-1] * rate_hz / 32) * 32)))
    context_s = min(5 * horizons_s[-1], context / rate_hz)
    lines = [
        f"# Drafted from {logs[0].name}; `robopos train --config` takes it as it is.",
        "seed_everything: 1",
        f"out: {_quoted(out)}",
        "",
        "data:",
        "  logs:",
        *[f"    - {_quoted(str(path))}" for path in logs],
        *(
            [f"  on_damage: skip  # {logs[0].name} is damaged (`robopos inspect` tells where): the rest of it is read"]
            if any(item.damaged for item in chosen)
            else []
        ),
        "  sequence:",
        f"    clock: {clock}  # {reason}",
        "    # A silence of all streams that long, or a step of the clock, starts a new segment.",
        f"    max_gap_s: {times.max_gap_s:.3g}",
        "    # Of types that are known, the fields that say how a robot moves; more can be added by their names.",
        "    streams:",
    ]
    for item in chosen:
        step = f"{_step_s(item) * 1e3:.3g} ms" if _step_s(item) else "bursts"
        lines += [
            f"      {_quoted(item.name)}:  # {item.topic.type}, {item.topic.rate_hz:.3g} Hz, median step {step}",
            f"        topic: {_quoted(item.topic.topic)}",
            f"        fields: [{', '.join(map(_quoted, item.fields))}]",
            *([f"        # Left out, empty or without change: {', '.join(item.left_out)}."] if item.left_out else []),
            f"        max_interpolation_s: {max(1.0, 3 / (item.topic.rate_hz or 1.0)):.3g}",
        ]
        if item.unbounded:
            lines += [
                "        # Without a bound: the model sees their steps.",
                f"        transform: {{{', '.join(f'{_quoted(field)}: difference' for field in item.unbounded)}}}",
            ]
    lines += ["    targets:"]
    lines += [f"      {_quoted(item.name)}: [{', '.join(map(_quoted, item.targets))}]" for item in targeted]
    lines += [
        f"    # From 3 steps of {targeted[0].name} ({times.period_s * 1e3:.3g} ms) on.",
        f"    horizons_s: [{', '.join(f'{value:g}' for value in horizons_s)}]",
        "  split: {validation: 0.15, test: 0.15}",
        "  batch_size: 32",
        "  batches_per_epoch: 200",
        "",
        "model:",
        "  network:",
        "    # Its periods run from 2 median steps to 4 contexts, measured when training starts.",
        "    positions: time-rotary",
        "    size: tiny",
        f"    context: {context}  # tokens; the log has {rate_hz:.3g} a second",
        f"    context_s: {context_s:.3g}  # at most 5 of the longest horizon, and what the tokens reach",
        f"    window: {2 * context}",
        "    dropout: 0.1",
        "    loss: huber",
        "  optimizer:",
        "    learning_rate: 0.002",
        "    weight_decay: 0.05",
        "    warmup_steps: 50",
        "",
        "trainer:",
        "  max_steps: 1000",
    ]
    # A line feed in a topic's or a file's name would end the comment that tells it, and begin a setting.
    return "".join("".join(letter if letter.isprintable() else "?" for letter in line) + "\n" for line in lines)


def _quoted(text: str) -> str:
    if not text.isprintable():
        return json.dumps(text)  # also YAML, in double quotes
    plain = all(letter.isalnum() or letter in "_./-" for letter in text) and text[:1].isalpha()
    return text if plain and text.lower() not in _WORDS else "'" + text.replace("'", "''") + "'"
