"""What the node knows of itself: counts and ages of each input, latencies of the last while."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass


@dataclass
class InputHealth:
    """One input. The thread of callbacks writes what was received, the inference thread what was refused."""

    topic: str
    received: int = 0
    received_ns: int | None = None  # monotonic clock, at the newest message
    refused: int = 0
    refusal: str = ""  # why, of the newest one refused

    def receive(self, monotonic_ns: int) -> None:
        """Count a message at its receipt."""
        self.received += 1
        self.received_ns = monotonic_ns

    def refuse(self, reason: str) -> None:
        """Count a message that the engine would not take."""
        self.refused += 1
        self.refusal = reason

    def age_s(self, monotonic_ns: int) -> float:
        """Seconds since the newest message; infinite before the first."""
        return float("inf") if self.received_ns is None else (monotonic_ns - self.received_ns) * 1e-9


class Latencies:
    """Durations of the last `window_s` seconds; any thread may add and ask."""

    def __init__(self, window_s: float = 10.0, most: int = 20_000) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=most)

    def add(self, seconds: float) -> None:
        """One more duration, ended now."""
        with self._lock:
            self._samples.append((time.monotonic(), seconds))

    def percentiles_ms(self) -> dict[str, float]:
        """p50, p95 and p99 in ms; empty when nothing happened in the window."""
        oldest = time.monotonic() - self._window_s
        with self._lock:
            while self._samples and self._samples[0][0] < oldest:
                self._samples.popleft()
            seconds = sorted(duration for _, duration in self._samples)
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
