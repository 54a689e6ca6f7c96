"""The node's parameters: one table, from which they are declared, read and documented."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node


@dataclass(frozen=True)
class Entry:
    """One parameter: its default gives its type."""

    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    fixed: bool = False  # read once, when the node starts

    def descriptor(self) -> ParameterDescriptor:
        """What `ros2 param describe` shows."""
        made = ParameterDescriptor(description=self.description, read_only=self.fixed)
        if isinstance(self.default, float):
            made.floating_point_range = [FloatingPointRange(from_value=self.low, to_value=self.high)]
        elif isinstance(self.default, int) and not isinstance(self.default, bool):
            made.integer_range = [IntegerRange(from_value=self.low, to_value=self.high)]
        return made


PARAMETERS = {
    "bundle": Entry("", "folder of the model bundle; read on configure"),
    "device": Entry("auto", "torch device of the engine: auto, cpu, cuda, cuda:0; read on configure"),
    "autostart": Entry(True, "configure and activate at start; false waits for a lifecycle manager", fixed=True),
    "qos_depth": Entry(100, "messages kept for each input while the node is busy (reliable, keep last)", 1, 100_000),
    "min_context": Entry(
        0,
        "messages in the model's window before a prediction is published; 0 takes what evaluation asked for",
        0,
        1_000_000,
    ),
    "max_input_age_s": Entry(
        0.0, "publish nothing while an input has been silent for longer (s); 0 sets no limit", 0.0, 86_400.0
    ),
    "diagnostics_period_s": Entry(1.0, "time between two messages on /diagnostics (s)", 0.05, 60.0, fixed=True),
}


@dataclass(frozen=True)
class Settings:
    """The values of `PARAMETERS` at one moment."""

    bundle: str
    device: str
    autostart: bool
    qos_depth: int
    min_context: int
    max_input_age_s: float
    diagnostics_period_s: float


def declare(node: Node) -> None:
    """Declare every parameter on the node."""
    for name, entry in PARAMETERS.items():
        node.declare_parameter(name, entry.default, entry.descriptor())


def read(node: Node) -> Settings:
    """The parameters as they stand now."""
    return Settings(**{field.name: node.get_parameter(field.name).value for field in fields(Settings)})
