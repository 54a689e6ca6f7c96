"""What `/diagnostics` says: one status for the node, one for each input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from robopos_ros.health import InputHealth
from robopos_ros.watch import ERROR, OK, WARN, Finding


@dataclass(frozen=True)
class Report:
    """What the node's own status is made of."""

    state: str  # of the lifecycle
    problem: str  # why the last configure failed or inference stopped; empty when nothing did
    values: Mapping[str, Any]
    findings: Sequence[Finding] = ()


def node_status(name: str, bundle: str, report: Report) -> DiagnosticStatus:
    """The node: ERROR when something failed, WARN while it does not predict or a watchdog barks, else OK."""
    findings = list(report.findings)
    if report.state != "active":
        findings.insert(0, Finding(WARN, report.state))
    if report.problem:
        findings = [Finding(ERROR, report.problem), *report.findings]
    return _status(name, bundle, findings, "active", {"state": report.state, **report.values})


def input_status(
    name: str,
    bundle: str,
    health: InputHealth,
    findings: Sequence[Finding],
    engine: Mapping[str, Any],
    rate_hz: float | None,
    now_ns: int,
) -> DiagnosticStatus:
    """One input, with the engine's counts of it."""
    age_s = health.age_s(now_ns)
    values: dict[str, Any] = {"topic": health.topic, "received": health.received, "refused": health.refused}
    if health.refused:
        values["last_refusal"] = health.refusal
    if rate_hz is not None:
        values["rate_hz"] = rate_hz
    if math.isfinite(age_s):
        values["age_s"] = age_s
    values |= {"largest_gap_s": health.largest_gap_s, "other_frames": health.other_frames}
    values |= {"publishers": ", ".join(health.publishers), "reliability": health.reliability}
    if health.connected is not None:
        values["connected"] = health.connected
    # `received` and `refused` of the engine are those above.
    values |= {key: value for key, value in engine.items() if key not in values and isinstance(value, int)}
    return _status(name, bundle, findings, "receiving", values)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _status(
    name: str, bundle: str, findings: Sequence[Finding], good: str, values: Mapping[str, Any]
) -> DiagnosticStatus:
    level = max((finding.level for finding in findings), default=OK)
    message = "; ".join(finding.text for finding in sorted(findings, key=lambda f: f.level, reverse=True)) or good
    pairs = [KeyValue(key=key, value=_text(value)) for key, value in flatten(values)]
    return DiagnosticStatus(level=level, name=name, message=message, hardware_id=bundle, values=pairs)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
