"""The node's parameters: one table, from which they are declared, read, checked and documented."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

QOS_OVERRIDES = "qos_overrides."


@dataclass(frozen=True)
class Entry:
    """One parameter: its default gives its type.

    `when` it is read: "start" (read-only), "configure" (refused on a configured node) or "running" (takes effect
    at once). `choices` are the values of a word.
    """

    default: Any
    description: str
    when: str = "configure"
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def descriptor(self) -> ParameterDescriptor:
        """What `ros2 param describe` shows."""
        made = ParameterDescriptor(description=self.description, read_only=self.when == "start")
        if self.choices:
            made.additional_constraints = f"one of: {', '.join(self.choices)}"
            made.dynamic_typing = "off" in self.choices  # which YAML reads as false
        if isinstance(self.default, float):
            made.dynamic_typing = True  # 50 is a number too
            made.floating_point_range = [FloatingPointRange(from_value=self.low, to_value=self.high)]
        elif isinstance(self.default, int) and not isinstance(self.default, bool):
            made.integer_range = [IntegerRange(from_value=self.low, to_value=self.high)]
        return made

    def clean(self, value: Any) -> Any:
        """What is meant: YAML reads a bare off as false, and 50 as an integer."""
        if self.choices:
            return "off" if value is False else value
        return float(value) if isinstance(self.default, float) else value

    def problem(self, value: Any) -> str:
        """Why a word or a number is not allowed, or nothing. Other types and ranges are rclpy's own business."""
        if self.choices and self.clean(value) not in self.choices:
            return f"{value!r} is none of {', '.join(self.choices)}"
        if isinstance(self.default, float):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not self.low <= value <= self.high:
                return f"{value!r} is no number from {self.low:g} to {self.high:g}"
        return ""


PARAMETERS = {
    "bundle": Entry("", "folder of the model bundle"),
    "device": Entry("auto", "torch device of the engine: auto, cpu, cuda, cuda:0"),
    "step": Entry(
        "eager",
        "how each message is computed in mode stream: eager, compile, graph (CUDA), or the file of robopos export; "
        "several files, of different block sizes, are parted by commas",
    ),
    "autostart": Entry(True, "configure and activate at start; false waits for a lifecycle manager", "start"),
    "trigger": Entry(
        "message",
        "when to predict: after each message, or at a fixed rate while new messages come",
        "running",
        choices=("message", "rate"),
    ),
    "rate_hz": Entry(50.0, "predictions per second at most, for trigger rate (Hz)", "running", 0.01, 10_000.0),
    "target_topics": Entry([""], "topics of the bundle whose predictions are published; none means all"),
    "publish_horizon_s": Entry(
        0.0,
        "publish the stream's own type too, on ~/prediction/STREAM/at_horizon, at this horizon (s); 0: not",
        "configure",
        0.0,
        86_400.0,
    ),
    "limits": Entry(
        "off",
        "predictions outside the training range and its margin: off does not look, warn tells, stop leaves them out",
        "running",
        choices=("off", "warn", "stop"),
    ),
    "min_context": Entry(
        0,
        "messages in the model's window before a prediction is published; 0 takes what evaluation asked for",
        "running",
        0,
        1_000_000,
    ),
    "max_input_age_s": Entry(
        0.0, "publish nothing while an input has been silent for longer (s); 0 sets no limit", "running", 0.0, 86_400.0
    ),
    "publish_expired": Entry(
        False,
        "publish though the last horizon has passed by the node's clock: for recorded messages without /clock",
        "running",
    ),
    "max_gap_s": Entry(
        0.0,
        "a longer silence forgets the context (s); 0 takes the bundle's, as replay does",
        "configure",
        0.0,
        86_400.0,
    ),
    "max_lateness_s": Entry(
        0.0,
        "drop a message so far behind the newest stamp (s); 0 takes the bundle's, as replay does",
        "configure",
        0.0,
        86_400.0,
    ),
    "qos_depth": Entry(100, "messages kept for each input while the node is busy (keep last)", "configure", 1, 100_000),
    "qos_reliability": Entry(
        "auto",
        "of the inputs; auto is reliable where all publishers of the topic offer it, else best effort",
        choices=("auto", "reliable", "best_effort"),
    ),
    "black_box": Entry(
        "", "folder for recordings of what was taken and what was published (MCAP); empty records nothing"
    ),
    "diagnostics_period_s": Entry(1.0, "time between two messages on /diagnostics (s)", "running", 0.05, 60.0),
}


@dataclass(frozen=True)
class Settings:
    """The values of `PARAMETERS` at one moment."""

    bundle: str
    device: str
    step: str
    autostart: bool
    trigger: str
    rate_hz: float
    target_topics: Sequence[str]
    publish_horizon_s: float
    limits: str
    min_context: int
    max_input_age_s: float
    publish_expired: bool
    max_gap_s: float
    max_lateness_s: float
    qos_depth: int
    qos_reliability: str
    black_box: str
    diagnostics_period_s: float


def declare(node: Node) -> None:
    """Declare every parameter on the node."""
    for name, entry in PARAMETERS.items():
        node.declare_parameter(name, entry.default, entry.descriptor())


def unknown_overrides(node: Node) -> list[str]:
    """Parameters given at start that the node does not have, in words: a misspelt one would do nothing in silence."""
    found = []
    for name in _overrides(node):
        if not node.has_parameter(name) and not name.startswith(QOS_OVERRIDES):
            near = difflib.get_close_matches(name, PARAMETERS, 1)
            found.append(f"no parameter is called '{name}': ignored" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def ignored_qos_overrides(node: Node) -> list[str]:
    """Overrides of QoS given at start that no subscription took, in words; known when all of them are made."""
    taken = node.get_parameters_by_prefix(QOS_OVERRIDES.rstrip("."))
    topics = ", ".join(sorted({name.partition(".")[0] for name in taken}))
    return [
        f"no subscription takes '{name}': ignored; depth and durability of {topics} can be overridden, "
        "reliability is the parameter qos_reliability"
        for name in _overrides(node)
        if name.startswith(QOS_OVERRIDES) and not node.has_parameter(name)
    ]


def _overrides(node: Node) -> Collection[str]:
    """Names of the parameters given at start; rclpy tells of them by no public name."""
    return getattr(node, "_parameter_overrides", {})


def read(node: Node) -> Settings:
    """The parameters as they stand now.

    Raises:
        InvalidParameterValueException: a word that is not allowed.
    """
    values = {field.name: _value(node, field.name) for field in fields(Settings)}
    for name, value in values.items():
        if problem := PARAMETERS[name].problem(value):
            raise InvalidParameterValueException(name, value, problem)
        values[name] = PARAMETERS[name].clean(value)
    return Settings(**values)


def _value(node: Node, name: str) -> Any:
    if isinstance(PARAMETERS[name].default, list):
        return node.get_parameter_or(name).value or []  # ROS has no type for an empty list: it counts as not set
    return node.get_parameter(name).value


def changed(settings: Settings, parameters: Sequence[Parameter], state: str) -> Settings | str:
    """The settings of a node in `state` after a change, or why it is refused."""
    ours = [parameter for parameter in parameters if parameter.name in PARAMETERS]
    if state != "unconfigured":
        fixed = [parameter.name for parameter in ours if PARAMETERS[parameter.name].when == "configure"]
        if fixed:
            return f"{', '.join(fixed)}: read on configure only; clean up first (the node is {state})"
    for parameter in ours:
        if problem := PARAMETERS[parameter.name].problem(parameter.value):
            return f"{parameter.name}: {problem}"
    values = {p.name: PARAMETERS[p.name].clean(p.value) for p in ours}
    return replace(settings, **values)
