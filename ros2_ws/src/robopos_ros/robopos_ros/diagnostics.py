"""What `/diagnostics` says: one status for the node, one for each input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from robopos_ros.health import InputHealth

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@dataclass(frozen=True)
class Report:
    """What the node's own status is made of."""

    state: str  # of the lifecycle
    problem: str  # why the last configure failed or inference stopped; empty when nothing did
    values: Mapping[str, Any]


def node_status(name: str, bundle: str, report: Report) -> DiagnosticStatus:
    """The node: ERROR when something failed, WARN while it does not predict, else OK."""
    if report.problem:
        level, message = ERROR, report.problem
    elif report.state != "active":
        level, message = WARN, report.state
    else:
        level, message = OK, "active"
    return _status(name, bundle, level, message, {"state": report.state, **report.values})


def input_status(
    name: str, bundle: str, health: InputHealth, rate_hz: float | None, limit_s: float, now_ns: int, refused: int
) -> DiagnosticStatus:
    """One input: ERROR when messages were refused since the report before, WARN when it is silent, else OK."""
    age_s = health.age_s(now_ns)
    if refused:
        level, message = ERROR, f"{refused} messages refused, the last one: {health.refusal}"
    elif health.received == 0:
        level, message = WARN, "no message yet"
    elif age_s > limit_s > 0:
        level, message = WARN, f"silent for {age_s:.1f} s, more than {limit_s:g} s"
    else:
        level, message = OK, "receiving"
    values: dict[str, Any] = {"received": health.received, "refused": health.refused}
    if health.refused:
        values["last_refusal"] = health.refusal
    if rate_hz is not None:
        values["rate_hz"] = rate_hz
    if math.isfinite(age_s):
        values["age_s"] = age_s
    return _status(name, bundle, level, message, values)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _status(name: str, bundle: str, level: bytes, message: str, values: Mapping[str, Any]) -> DiagnosticStatus:
    pairs = [KeyValue(key=key, value=_text(value)) for key, value in flatten(values)]
    return DiagnosticStatus(level=level, name=name, message=message, hardware_id=bundle, values=pairs)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
