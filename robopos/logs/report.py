"""What an inspection tells about a log, and the arithmetic of its figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robopos.arrays import Floats, Ints

# A step longer than this many median steps is a gap; longer than 1.5, messages are missing in it.
GAP = 3.0
MISSING = 1.5
# Only a topic whose steps are mostly within half a median step of the median tells what is missing.
EVEN = 0.8


@dataclass(frozen=True)
class Steps:
    """Steps between the stamps of consecutive messages, milliseconds.

    `jitter_ms` is the standard deviation of the steps without the gaps.
    """

    p01_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    jitter_ms: float


@dataclass(frozen=True)
class Offset:
    """One clock minus another, milliseconds: percentiles, and the drift of a straight line (1 ppm = 1 µs/s)."""

    p05_ms: float
    p50_ms: float
    p95_ms: float
    drift_ppm: float


@dataclass(frozen=True)
class TopicReport:
    """One topic.

    Attributes:
        topic, type, encoding: as the log has them; type "" where no schema is declared.
        channels: how many publishers' channels carry it.
        count: messages.
        fields: numeric columns that can be read of it; 0 for what is only listed (images, clouds, text).
        clock: the clock of the figures: "header" where the type has one, else "log".
        rate_hz: messages a second from first to last stamp; None below two messages.
        steps: None below two messages.
        gaps, longest_gap_s: steps above 3 median steps.
        drops: messages that seem to be missing, by the median step; None where there is no even step.
        duplicates, backward: stamps equal to, and below, the one before.
        furthest_back_s: the largest step from a stamp to one below it; 0 where none goes back.
        zero_stamps: header stamps of zero.
        header_offset: header stamp minus log time; None without header.
        publish_offset: publish time minus log time.
        late_share, latest_s: share of messages whose stamp lies behind a stamp that arrived earlier on any topic
            with a header, and by how much at most; None without header.
        layouts: different layouts of the bytes (a frame, joint order or array length that changes).
        nan_share: share of numbers that are NaN or missing; None where nothing was decoded.
        undecoded: messages whose bytes do not fit the schema.
        note: why the topic is only listed, else "".
    """

    topic: str
    type: str
    encoding: str
    channels: int
    count: int
    fields: int
    clock: str
    rate_hz: float | None
    steps: Steps | None
    gaps: int
    longest_gap_s: float
    drops: int | None
    duplicates: int
    backward: int
    furthest_back_s: float
    zero_stamps: int
    header_offset: Offset | None
    publish_offset: Offset | None
    late_share: float | None
    latest_s: float | None
    layouts: int
    nan_share: float | None
    undecoded: int
    note: str


@dataclass(frozen=True)
class LogReport:
    """A whole log: its files, extent in log time (ns), topics by name, and what is damaged or lost."""

    paths: tuple[str, ...]
    bytes: int
    messages: int
    start_ns: int | None
    end_ns: int | None
    topics: tuple[TopicReport, ...]
    damage: tuple[str, ...]

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last log time."""
        return 0.0 if self.start_ns is None or self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {**asdict(self), "duration_s": self.duration_s}


def steps_of(time: Ints) -> tuple[Steps | None, int, float, int | None]:
    """(steps, gaps, longest gap in s, estimated drops) of stamps int64 (n,) in arrival order."""
    deltas = np.diff(time)
    if len(deltas) == 0:
        return None, 0, 0.0, None
    forward = deltas[deltas > 0]
    median = float(np.median(forward)) if len(forward) else 0.0
    long = forward[forward > GAP * median]
    regular = deltas[np.abs(deltas) <= GAP * median] if median else deltas
    even = np.abs(forward - median) <= 0.5 * median
    drops = None
    if median and even.mean() >= EVEN:
        missing = forward[forward > MISSING * median]
        drops = int((np.rint(missing / median) - 1).sum())
    p01, p50, p95, p99 = (float(value) / 1e6 for value in np.percentile(deltas, [1, 50, 95, 99]))
    jitter = float(regular.std()) / 1e6 if len(regular) else 0.0
    steps = Steps(p01, p50, p95, p99, float(deltas.max()) / 1e6, jitter)
    return steps, len(long), float(long.max()) / 1e9 if len(long) else 0.0, drops


def offset_of(clock: Ints, log: Ints) -> Offset | None:
    """`clock` minus `log`, int64 (n,) each; None without messages."""
    if len(log) == 0:
        return None
    offset = (clock - log).astype(np.float64) / 1e6
    p05, p50, p95 = (float(value) for value in np.percentile(offset, [5, 50, 95]))
    seconds = (log - log[0]).astype(np.float64) / 1e9
    drift = 0.0
    if len(log) >= 20 and seconds[-1] > 0:
        # Medians of ten parts: single late messages do not tilt the line.
        parts = np.array_split(np.arange(len(log)), 10)
        x = np.array([np.median(seconds[part]) for part in parts])
        y = np.array([np.median(offset[part]) for part in parts])
        if np.ptp(x) > 0:
            drift = float(np.polyfit(x, y, 1)[0]) * 1e3
    return Offset(p05, p50, p95, drift)


def lateness(stamps: list[Ints], logs: list[Ints], orders: list[Ints]) -> list[Floats]:
    """How far each stamp lies behind the newest stamp that arrived before it on any of these topics, seconds.

    Three lists of int64 (n,), one entry a topic; returns float64 (n,) a topic, 0 for what is not late.
    """
    if not stamps:
        return []
    stamp, log, order = (np.concatenate(parts) for parts in (stamps, logs, orders))
    arrival = np.lexsort((order, log))
    sorted_stamps = stamp[arrival]
    late = np.empty(len(stamp))
    late[arrival] = (np.maximum.accumulate(sorted_stamps) - sorted_stamps) / 1e9 if len(stamp) else 0.0
    return list(np.split(late, np.cumsum([len(part) for part in stamps])[:-1]))
