"""What the node knows of itself: counts and ages of each input, latencies of the last while."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field


@dataclass
class InputHealth:
    """One input. The executor's thread writes what was received and who publishes, the inference thread the rest."""

    topic: str  # as the node's graph knows it: in its namespace, remapped
    received: int = 0
    received_ns: int | None = None  # monotonic clock, at the newest message
    largest_gap_s: float = 0.0  # between two messages, by the monotonic clock
    refused: int = 0
    refusal: str = ""  # why, of the newest one refused
    other_frames: int = 0  # messages with another frame_id than the bundle's
    other_frame: str = ""  # of the newest of them
    publishers: tuple[str, ...] = ()  # nodes that publish the topic in its type
    other_types: tuple[str, ...] = ()  # types that others publish under the topic's name
    reliability: str = ""  # of the subscription
    connected: int | None = None  # publishers that the subscription has matched; None where rclpy cannot tell

    def receive(self, monotonic_ns: int) -> None:
        """Count a message at its receipt."""
        if self.received_ns is not None:
            self.largest_gap_s = max(self.largest_gap_s, (monotonic_ns - self.received_ns) * 1e-9)
        self.received += 1
        self.received_ns = monotonic_ns

    def refuse(self, reason: str) -> None:
        """Count a message that the engine would not take."""
        self.refused += 1
        self.refusal = reason

    def age_s(self, monotonic_ns: int) -> float:
        """Seconds since the newest message; infinite before the first."""
        return float("inf") if self.received_ns is None else (monotonic_ns - self.received_ns) * 1e-9


class Samples:
    """Numbers of the last `window_s` seconds; any thread may add and ask."""

    def __init__(self, window_s: float = 10.0, most: int = 20_000) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=most)

    def add(self, value: float) -> None:
        """One more, now."""
        with self._lock:
            self._samples.append((time.monotonic(), value))

    def ascending(self) -> list[float]:
        """Those of the window, sorted."""
        oldest = time.monotonic() - self._window_s
        with self._lock:
            while self._samples and self._samples[0][0] < oldest:
                self._samples.popleft()
            return sorted(value for _, value in self._samples)

    def percentiles_ms(self) -> dict[str, float]:
        """p50, p95 and p99 of seconds, in ms; empty when nothing happened in the window."""
        seconds = self.ascending()
        return percentiles_ms(seconds) if seconds else {}


def percentiles_ms(ascending_s: list[float]) -> dict[str, float]:
    """p50, p95 and p99 of durations in ascending order, by the nearest rank."""
    last = len(ascending_s) - 1
    return {f"p{percent}": 1e3 * ascending_s[round(last * percent / 100)] for percent in (50, 95, 99)}


class Rates:
    """Messages per second of each input between two askings."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._asked_s: float | None = None

    def update(self, counts: dict[str, int]) -> dict[str, float]:
        """Rates since the last call (Hz); empty the first time."""
        now_s = time.monotonic()
        rates = {}
        if self._asked_s is not None and now_s > self._asked_s:
            interval_s = now_s - self._asked_s
            rates = {name: (count - self._before.get(name, 0)) / interval_s for name, count in counts.items()}
        self._before, self._asked_s = dict(counts), now_s
        return rates


@dataclass
class Increases:
    """How much each of some counts grew between two askings."""

    before: dict[str, int] = field(default_factory=dict)

    def update(self, counts: dict[str, int]) -> dict[str, int]:
        """Growth since the last call; since zero the first time."""
        grown = {name: count - self.before.get(name, 0) for name, count in counts.items()}
        self.before = dict(counts)
        return grown
