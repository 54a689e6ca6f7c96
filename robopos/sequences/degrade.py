"""Logs as a worse day would have recorded them: for augmentation in training, and for conditions at evaluation.

What is taken away is taken from the input, never from the truth; a stamp that is moved keeps its message's arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robopos.arrays import Floats, Ints
from robopos.logs import Log, Stream
from robopos.settings import require

Keep = Callable[[Stream], NDArray[np.bool_]]


def keep(log: Log, chosen: Keep) -> Log:
    """A log with the messages that ``chosen`` says, stream by stream."""
    streams = {}
    for name, stream in log.items():
        kept = chosen(stream)
        columns = {c: getattr(stream, c)[kept] for c in ("time_ns", "arrival_ns", "order", "values")}
        streams[name] = replace(stream, **columns)
    return Log(streams, log.paths, log.warnings)


def drop_messages(log: Log, share: float, generator: np.random.Generator) -> Log:
    """Each message lost with the probability ``share``, independently."""
    return keep(log, lambda stream: generator.random(len(stream)) >= share)


def drop_bursts(log: Log, burst_s: float, every_s: float, generator: np.random.Generator) -> Log:
    """All streams silent together for ``burst_s``, on average once every ``every_s`` seconds."""
    arrivals = [stream.arrival_ns for stream in log.values() if len(stream)]
    first = min((int(arrival_ns.min()) for arrival_ns in arrivals), default=0)
    last = max((int(arrival_ns.max()) for arrival_ns in arrivals), default=0)
    starts = generator.uniform(first, last, generator.poisson((last - first) / 1e9 / every_s))
    starts.sort()

    def outside(stream: Stream) -> NDArray[np.bool_]:
        if not len(starts):
            return np.ones(len(stream), bool)
        latest = np.searchsorted(starts, stream.arrival_ns, side="right") - 1
        since: Floats = stream.arrival_ns - starts[np.maximum(latest, 0)]
        return (latest < 0) | (since >= burst_s * 1e9)

    return keep(log, outside)


def thin(log: Log, every: int, first: int = 0, only: str | None = None) -> Log:
    """Each stream at a fraction of its rate: one message of ``every``; ``only`` names the one stream to thin."""

    def chosen(stream: Stream) -> NDArray[np.bool_]:
        if only not in (None, stream.name):
            return np.ones(len(stream), bool)
        kept: NDArray[np.bool_] = np.arange(len(stream)) % every == first % every
        return kept

    return keep(log, chosen)


def silence(log: Log, only: str) -> Log:
    """One stream without messages."""
    return keep(log, lambda stream: np.full(len(stream), stream.name != only))


def jitter_stamps(log: Log, std_s: float, generator: np.random.Generator) -> Log:
    """Stamps moved by normal noise of ``std_s`` seconds; what arrived when stays."""
    streams = {
        name: replace(stream, time_ns=stream.time_ns + _round(generator.normal(0.0, std_s * 1e9, len(stream))))
        for name, stream in log.items()
    }
    return Log(streams, log.paths, log.warnings)


def offset_stamps(log: Log, offset_s: float, only: str) -> Log:
    """One stream's stamps moved by ``offset_s``, as of a clock that runs apart; what arrived when stays."""
    moved = replace(log[only], time_ns=log[only].time_ns + round(offset_s * 1e9))
    return Log({name: moved if name == only else stream for name, stream in log.items()}, log.paths, log.warnings)


def move_epoch(log: Log, shift_ns: int) -> Log:
    """Every stamp and every arrival moved alike: the same run on another date."""
    streams = {
        name: replace(stream, time_ns=stream.time_ns + shift_ns, arrival_ns=stream.arrival_ns + shift_ns)
        for name, stream in log.items()
    }
    return Log(streams, log.paths, log.warnings)


def _round(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)


@dataclass(frozen=True)
class AugmentSettings:
    """Degraded copies of the training logs, seen beside the logs themselves; off by default.

    Each copy draws how much it is degraded, evenly up to the amounts given here; targets come from the whole logs.

    Args:
        copies: how many; 0 is off.
        drop: at most this share of the messages lost, independently.
        burst_s: all streams silent for up to so long (s), about every 20 times as long.
        thin: each stream at its rate divided by up to this whole number.
        jitter_s: stamps moved by normal noise of up to this standard deviation (s).
    """

    copies: int = 0
    drop: float = 0.0
    burst_s: float = 0.0
    thin: int = 1
    jitter_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.copies >= 0, "augment.copies", self.copies, "a number >= 0")
        require(0 <= self.drop < 1, "augment.drop", self.drop, "a share from 0 to below 1")
        require(self.burst_s >= 0, "augment.burst_s", self.burst_s, "a time >= 0 in s")
        require(self.thin >= 1, "augment.thin", self.thin, "a whole number >= 1")
        require(self.jitter_s >= 0, "augment.jitter_s", self.jitter_s, "a time >= 0 in s")
        changes = self.drop or self.burst_s or self.thin > 1 or self.jitter_s
        require(bool(self.copies) == bool(changes), "augment.copies", self.copies, "> 0 with some degradation, else 0")

    def degrade(self, log: Log, generator: np.random.Generator) -> Log:
        """One degraded copy."""
        if self.thin > 1:
            every = int(generator.integers(1, self.thin, endpoint=True))
            log = thin(log, every, int(generator.integers(every)))
        if self.drop > 0:
            log = drop_messages(log, generator.uniform(0, self.drop), generator)
        if self.burst_s > 0:
            log = drop_bursts(log, generator.uniform(0, self.burst_s), 20 * self.burst_s, generator)
        if self.jitter_s > 0:
            log = jitter_stamps(log, generator.uniform(0, self.jitter_s), generator)
        return log
