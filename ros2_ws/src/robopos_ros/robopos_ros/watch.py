"""Watchdogs: what changed for the worse between two reports, in words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from diagnostic_msgs.msg import DiagnosticStatus

from robopos_ros.health import Increases, InputHealth
from robopos_ros.parameters import Settings

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
CLOCK_STEP_S = 0.1  # of the system clock against the monotonic one, or of stamps ahead of this node's clock
BEHIND_S = 1.0  # of stamps behind their arrival
RECORDED_S = 60.0  # further apart, the messages are hardly of now
SLOW = 0.2  # share of predictions that were skipped
BUSY = 0.5  # of the time: below, messages that came together were answered by one prediction, which is no slowness


class Finding(NamedTuple):
    """Something worth a level above OK."""

    level: bytes
    text: str


class RosClock(Protocol):
    """The part of rclpy's clock that is used here."""

    @property
    def ros_time_is_active(self) -> bool: ...

    def now(self) -> Any: ...


class NodeWatch:
    """Looks at the counts of the node as a whole."""

    def __init__(self) -> None:
        self._increases = Increases()
        self._resets = Increases({"activate": 1})
        self._looked_s: float | None = None
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self.clock_steps = 0

    def look(self, counts: Mapping[str, Any], settings: Settings, now_s: float) -> list[Finding]:
        """What happened since the last look; `counts` are `Inference.snapshot()`, `now_s` the monotonic clock."""
        elapsed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        grown = self._increases.update({name: value for name, value in counts.items() if isinstance(value, int)})
        found = []

        def say(level: bytes, text: str) -> None:
            found.append(Finding(level, text))

        if n := grown["overrun"]:
            say(ERROR, f"{n} messages thrown away: they come faster than the model takes them")
        slow = settings.trigger == "message" and grown["skipped"] > SLOW * max(1, grown["admitted"])
        if slow and grown["busy_ms"] > 1e3 * BUSY * elapsed_s:
            n, of = grown["skipped"], grown["admitted"]
            say(WARN, f"inference is slower than the messages: {n} of {of} predictions skipped")
        if n := grown["expired"]:
            what = "published though" if settings.publish_expired else "not published:"
            say(WARN, f"{n} predictions {what} the last horizon had passed (clocks out of step, or recorded messages?)")
        if n := grown["stale"]:
            say(WARN, f"{n} predictions not published: an input was silent")
        if n := grown["stamp_overflow"]:
            say(WARN, f"{n} predictions not published: no stamp holds their time (a sensor with a wrong clock?)")
        if n := grown["not_finite"]:
            say(WARN, f"{n} predictions held a value that is not finite")
        if (n := grown["beyond_limits"]) and settings.limits == "stop":
            say(ERROR, f"{n} predictions beyond the bundle's limits, left out")
        elif n:
            say(WARN, f"{n} predictions beyond the bundle's limits")
        resets = self._resets.update(counts["engine"]["resets"])
        if reasons := [f"{reason} ({n})" for reason, n in resets.items() if n > 0]:
            say(WARN, f"the context was forgotten: {', '.join(reasons)}")
        return found

    def look_at_clock(self) -> list[Finding]:
        """Whether the system clock was set since the last look."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        step_s, self._offset_ns = (offset_ns - self._offset_ns) * 1e-9, offset_ns
        if abs(step_s) <= CLOCK_STEP_S:
            return []
        self.clock_steps += 1
        return [Finding(WARN, f"the system clock stepped by {step_s:+.3f} s")]


def look_at_simulated_time(clock: RosClock) -> list[Finding]:
    """Whether simulated time is still to come: until then every prediction looks early enough."""
    if not clock.ros_time_is_active or clock.now().nanoseconds > 0:
        return []
    return [Finding(WARN, "use_sim_time is set, but nothing came on /clock: this node's time stands at 0")]


class InputWatch:
    """Looks at one input."""

    def __init__(self) -> None:
        self._increases = Increases()

    def look(
        self, health: InputHealth, engine: Mapping[str, Any], fields: str, limit_s: float, now_ns: int
    ) -> list[Finding]:
        """What is wrong with it now, or was since the last look.

        Args:
            engine: the engine's counts of this stream.
            fields: what the model reads of it, in words.
            limit_s: how long it may be silent.
            now_ns: the monotonic clock.
        """
        counts = {name: value for name, value in engine.items() if isinstance(value, int)}
        grown = self._increases.update(counts | {"_refused": health.refused, "_frames": health.other_frames})
        found = []

        def say(level: bytes, text: str) -> None:
            found.append(Finding(level, text))

        if health.other_types:
            say(ERROR, f"published as {', '.join(health.other_types)}, which the bundle does not read")
        if n := grown["_refused"]:
            say(ERROR, f"{n} messages refused, the last one: {health.refusal}")
        age_s = health.age_s(now_ns)
        if health.received == 0 and not health.other_types:
            say(WARN, "no message yet" if health.publishers else f"no message yet, and nobody publishes {health.topic}")
        elif age_s > limit_s > 0:
            say(WARN, f"silent for {age_s:.1f} s, more than {limit_s:g} s")
        if n := grown["empty"]:
            say(WARN, f"{n} messages held none of {fields}")
        elif n := grown["missing_values"]:
            say(WARN, f"{n} values missing or not finite")
        if n := grown["far_out"]:
            say(WARN, f"{n} messages far outside of what was trained on: another unit, or another robot?")
        if n := grown["late"]:
            say(WARN, f"{n} messages came too late and were dropped")
        if n := grown["zero_stamps"]:
            say(WARN, f"{n} messages without a stamp: their arrival counts")
        if n := grown["_frames"]:
            say(WARN, f"{n} messages in the frame {health.other_frame!r}, which the model was not trained on")
        if len(health.publishers) > 1:
            say(WARN, f"{len(health.publishers)} publishers: {', '.join(health.publishers)}")
        if (ahead_s := _ahead_s(engine)) is not None and grown["received"]:
            recorded = " (recorded messages? set use_sim_time, and play with --clock)"
            remedy = recorded if abs(ahead_s) > RECORDED_S else ""
            if ahead_s > CLOCK_STEP_S:
                say(WARN, f"stamps are {ahead_s:.3g} s ahead of this node's clock{remedy}")
            elif ahead_s < -BEHIND_S:
                say(WARN, f"stamps are {-ahead_s:.3g} s behind this node's clock{remedy}")
        return found


class Changes:
    """Turns statuses into lines for the log: once when one has been bad for two reports, once when it is good again.

    Who has no view of `/diagnostics` at hand is told what is wrong; what lasts for one report alone is not told.
    """

    def __init__(self) -> None:
        self._bad: dict[str, int] = {}  # reports in a row

    def look(self, statuses: Sequence[DiagnosticStatus]) -> list[Finding]:
        """What is worth a line since the last look."""
        found = []
        for status in statuses:
            before = self._bad.get(status.name, 0)
            self._bad[status.name] = 0 if status.level == OK else before + 1
            if status.level != OK and before == 1:
                found.append(Finding(status.level, f"{status.name}: {status.message}"))
            elif status.level == OK and before > 1:
                found.append(Finding(OK, f"{status.name}: {status.message} again"))
        return found


def _ahead_s(engine: Mapping[str, Any]) -> float | None:
    time_ns, arrival_ns = engine["last_time_ns"], engine["last_arrival_ns"]
    return None if time_ns is None or arrival_ns is None else (time_ns - arrival_ns) * 1e-9
