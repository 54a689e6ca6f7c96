"""Which messages become tokens: one state machine, offline and live.

Messages come in arrival order. Sorting by stamp would show a model what had not arrived yet, so a late
message stays where it arrived, with its true (earlier) time.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from robopos.sequences.layout import SequenceLayout
from robopos.stamps import NS_PER_S


class Verdict(enum.IntEnum):
    """What becomes of a message."""

    ADMITTED = 0
    GAP = 1  # admitted as the first of a new segment: all streams were silent for longer than max_gap_s
    CLOCK_JUMP = 2  # admitted as the first of a new segment: the clock stepped back by more than max_gap_s
    LATE = 3  # dropped: more than max_lateness_s behind the newest stamp
    THINNED = 4  # dropped: sooner than 1 / max_rate_hz after the last kept message of its stream
    EMPTY = 5  # dropped: not one finite value
    TARGET = 6  # kept as what is to be predicted, never seen by the model


STARTS_SEGMENT = (Verdict.GAP, Verdict.CLOCK_JUMP)
DROPPED = (Verdict.LATE, Verdict.THINNED, Verdict.EMPTY)


class Admission:
    """The admission of one run of messages. ``newest_ns`` is the reference time of a prediction made now."""

    def __init__(
        self,
        max_gap_s: float,
        max_lateness_s: float | None,
        max_rate_hz: Sequence[float | None],
        seen: Sequence[bool] | None = None,
    ) -> None:
        self._seen = [True] * len(max_rate_hz) if seen is None else list(seen)
        self._max_gap_ns = round(max_gap_s * NS_PER_S)
        self._max_lateness_ns = None if max_lateness_s is None else round(max_lateness_s * NS_PER_S)
        self._min_interval_ns = [0 if rate is None else round(NS_PER_S / rate) for rate in max_rate_hz]
        self.newest_ns: int | None = None
        self.last_kept_ns: dict[int, int] = {}

    @classmethod
    def of(cls, layout: SequenceLayout) -> Admission:
        """The admission that a layout asks for."""
        rates = [stream.max_rate_hz for stream in layout.streams]
        return cls(layout.max_gap_s, layout.max_lateness_s, rates, [stream.input for stream in layout.streams])

    def reset(self) -> None:
        """Forget all: the next message is the first of a segment."""
        self.newest_ns = None
        self.last_kept_ns.clear()

    def push(self, stream: int, time_ns: int, measured: bool = True) -> Verdict:
        """Judge the next message in arrival order.

        Args:
            stream: its number.
            time_ns: its chosen clock.
            measured: whether it carries a finite value at all.
        """
        if not measured:
            return Verdict.EMPTY
        if not self._seen[stream]:
            return Verdict.TARGET
        verdict = Verdict.ADMITTED
        if self.newest_ns is not None:
            behind_ns = self.newest_ns - time_ns
            if abs(behind_ns) > self._max_gap_ns:
                verdict = Verdict.CLOCK_JUMP if behind_ns > 0 else Verdict.GAP
                self.reset()
            elif self._max_lateness_ns is not None and behind_ns > self._max_lateness_ns:
                return Verdict.LATE
        interval_ns = self._min_interval_ns[stream]
        if interval_ns:
            last = self.last_kept_ns.get(stream)
            if last is not None and time_ns - last < interval_ns:
                return Verdict.THINNED
            self.last_kept_ns[stream] = time_ns
        self.newest_ns = time_ns if self.newest_ns is None else max(self.newest_ns, time_ns)
        return verdict
