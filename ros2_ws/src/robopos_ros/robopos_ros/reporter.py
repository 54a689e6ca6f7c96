"""Gathers what the parts of the node know, and publishes it on `/diagnostics` now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType

from robopos.serving import Engine
from robopos_ros.diagnostics import Report, input_status, node_status
from robopos_ros.health import InputHealth, Rates
from robopos_ros.inference import Inference
from robopos_ros.outputs import Outputs
from robopos_ros.parameters import Settings
from robopos_ros.watch import OK, WARN, Changes, Finding, InputWatch, NodeWatch, look_at_simulated_time

if TYPE_CHECKING:
    from rclpy.lifecycle import LifecycleNode


@dataclass
class Watched:
    """One activation, as the reports see it."""

    engine: Engine
    inference: Inference
    health: Mapping[str, InputHealth]
    outputs: Outputs
    rates: Rates = field(default_factory=Rates)
    node: NodeWatch = field(default_factory=NodeWatch)
    inputs: dict[str, InputWatch] = field(default_factory=dict)


class Reporter:
    """The publisher and its timer.

    Attributes:
        state: of the lifecycle.
        problem: why the last transition failed; empty when it did not.
        facts: of the configured bundle.
        watched: the activation, while there is one.
    """

    def __init__(self, node: LifecycleNode, settings: Settings) -> None:
        self._node = node
        self.settings = settings
        self.state, self.problem = "unconfigured", ""
        self.facts: dict[str, Any] = {}
        self.watched: Watched | None = None
        self._clock_watch = NodeWatch()
        self._changes = Changes()
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = self._make_timer()

    def _make_timer(self) -> Any:
        # By a clock that always runs: simulated time may stand still, and that is worth a report.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        return self._node.create_timer(self.settings.diagnostics_period_s, self.publish, clock=steady)

    def enter(self, state: str, problem: str = "") -> None:
        """A transition has ended in `state`."""
        self.state, self.problem = state, problem

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        before, self.settings = self.settings.diagnostics_period_s, settings
        if settings.diagnostics_period_s != before:
            self._node.destroy_timer(self._timer)
            self._timer = self._make_timer()

    def publish(self) -> None:
        """Report now."""
        name, bundle = self._node.get_fully_qualified_name(), self.facts.get("bundle", "")
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        findings = self._clock_watch.look_at_clock() + look_at_simulated_time(self._node.get_clock())
        problem, values = self.problem, dict(self.facts) | {"clock_steps": self._clock_watch.clock_steps}
        watched = self.watched
        if watched is not None:
            problem = watched.inference.failure or problem
            counts = watched.inference.snapshot()
            findings += watched.node.look(counts, self.settings, time.monotonic())
            findings += self._black_box(watched.inference, values)
            values |= counts | {"listeners": watched.outputs.listeners()}
            message.status += self._inputs(watched, name, bundle, counts["engine"]["streams"])
        message.status.insert(0, node_status(name, bundle, Report(self.state, problem, values, findings)))
        self._publisher.publish(message)
        if watched is not None:
            self._log(self._changes.look(message.status))

    def _log(self, changes: Iterable[Finding]) -> None:
        logger = self._node.get_logger()
        for level, text in changes:
            if level == OK:  # a line of its own for each severity: rclpy knows a call by its place
                logger.info(text)
            else:
                logger.warning(text)

    def _black_box(self, inference: Inference, values: dict[str, Any]) -> list[Finding]:
        box = inference.black_box
        if box is None:
            return []
        values["black_box"] = {"file": box.path or "", "messages": box.messages, "predictions": box.predictions}
        return [Finding(WARN, f"the black box ended: {box.failure}")] if box.failure else []

    def _inputs(self, watched: Watched, name: str, bundle: str, engine: Mapping[str, Any]) -> list[Any]:
        now_ns = time.monotonic_ns()
        rates = watched.rates.update({key: health.received for key, health in watched.health.items()})
        limit_s = self.settings.max_input_age_s or watched.engine.bundle.layout.max_gap_s
        statuses = []
        for stream in watched.engine.inputs:
            key, health = stream.name, watched.health[stream.name]
            watch = watched.inputs.setdefault(key, InputWatch())
            found = watch.look(health, engine[key], ", ".join(stream.fields), limit_s, now_ns)
            full = f"{name}: {stream.topic}"
            statuses.append(input_status(full, bundle, health, found, engine[key], rates.get(key), now_ns))
        return statuses
