"""Messages one by one to the same tokens that a log gives."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from robopos.errors import SequenceError
from robopos.positions import Positions
from robopos.sequences.admission import DROPPED, NS_PER_S, STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.features import Floats, Normalization, transform_rows
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.windows import Tokens


class LiveTokens:
    """The last admitted messages as tokens, and what is known of the targets: the state of a live sequence.

    Args:
        layout, normalization: those of training.
        capacity: tokens held; one more pushes the oldest out.
        band: tokens of the attention's band and its seconds: ``band_truncated`` counts tokens for which the first
            ends before the second.

    Attributes:
        base: (T,) the last observed value of each target, NaN before the first.
        count: messages admitted since the start or the last reset.
        held: tokens that wait here, of which ``take`` hands out the oldest.
    """

    def __init__(
        self,
        layout: SequenceLayout,
        normalization: Normalization,
        capacity: int,
        band: tuple[int, float | None] = (1, None),
    ) -> None:
        self.layout, self.normalization, self.capacity = layout, normalization, capacity
        context, context_s = band
        self._band_ns = None if context_s is None else round(context_s * NS_PER_S)
        self._admission = Admission.of(layout)
        self._previous: dict[int, tuple[Floats, int]] = {}
        self._recent_ns: deque[int] = deque(maxlen=context)
        self._first = 0
        self._values = np.zeros((capacity, layout.num_features), np.float32)
        self._measured = np.zeros((capacity, layout.num_features), bool)
        self._observed = np.zeros((capacity, len(layout.streams)), bool)
        self._time_ns = np.zeros(capacity, np.int64)
        self.band_truncated = 0
        self._forget()

    def _forget(self) -> None:
        self.base = np.full(len(self.layout.targets), np.nan)
        self.count = self.held = 0
        self._previous.clear()
        self._recent_ns.clear()

    def reset(self) -> None:
        """Start anew: the next message is the first of a segment."""
        self._admission.reset()
        self._forget()

    @property
    def reference_ns(self) -> int | None:
        """The newest time admitted so far; horizons count from it."""
        return self._admission.newest_ns

    def push(self, stream: int, time_ns: int, row: Floats) -> Verdict:
        """Take the next message in order of arrival; ``row`` (d,) are its raw values, not finite is missing."""
        known = np.isfinite(row)
        row = np.where(known, row, np.nan)
        verdict = self._admission.push(stream, time_ns, bool(known.any()))
        if verdict in DROPPED:
            return verdict
        if verdict in STARTS_SEGMENT:
            self._forget()
        described = self.layout.streams[stream]
        features = transform_rows(described, row[None], np.array([time_ns], np.int64), self._previous.get(stream))
        self._previous[stream] = (row, time_ns)
        self._put(stream, time_ns, features)
        for t, (s, f) in enumerate(self.layout.targets):
            if s == stream and known[f]:
                self.base[t] = row[f]
        return verdict

    def _put(self, stream: int, time_ns: int, features: Floats) -> None:
        columns = self.layout.feature_slices[stream]
        if self.held == self.capacity:
            self._first = (self._first + 1) % self.capacity
            self.held -= 1
        slot = (self._first + self.held) % self.capacity
        self._values[slot] = 0.0
        self._measured[slot] = False
        self._observed[slot] = False
        values, measured = self.normalization.apply(features, columns)
        self._values[slot, columns], self._measured[slot, columns] = values[0], measured[0]
        self._observed[slot, stream] = True
        self._time_ns[slot] = time_ns
        self.held += 1
        self.count += 1
        if self._band_ns is not None:
            full = len(self._recent_ns) == self._recent_ns.maxlen
            self.band_truncated += full and time_ns - self._recent_ns[0] <= self._band_ns
            self._recent_ns.append(time_ns)

    def tokens(self) -> Tokens:
        """All tokens held, (1, N, ...), N = ``held``."""
        tokens = self._gather(self.held, self.held)
        time_ns = tokens.positions.time_ns
        assert time_ns is not None
        return tokens._replace(positions=Positions(time_ns=time_ns[None], valid=torch.ones_like(time_ns[None]).bool()))

    def take(self, size: int) -> tuple[Tokens, int]:
        """Hand out the oldest tokens held, at most ``size`` of them and at least one.

        Returns:
            (1, size, ...) tokens with ``positions.time_ns`` (size,), padded behind; and how many they are.
        """
        count = min(size, self.held)
        tokens = self._gather(count, size)
        self._first = (self._first + count) % self.capacity
        self.held -= count
        return tokens, count

    def _gather(self, count: int, size: int) -> Tokens:
        slots = (self._first + np.minimum(np.arange(size), count - 1)) % self.capacity
        values, measured, observed = self._values[slots], self._measured[slots], self._observed[slots]
        # Padding stands at the last token's time, where no scheme meets a number it never saw.
        values[count:], measured[count:], observed[count:] = 0.0, False, False
        arrays = (torch.from_numpy(array)[None] for array in (values, measured, observed))
        return Tokens(*arrays, Positions(time_ns=torch.from_numpy(self._time_ns[slots])))

    def snapshot(self) -> dict[str, Any]:
        """The state in plain types and tensors."""
        tokens = self._gather(self.held, self.held)
        return {
            "newest_ns": self._admission.newest_ns,
            "last_kept_ns": dict(self._admission.last_kept_ns),
            "previous": {stream: (torch.from_numpy(row.copy()), at) for stream, (row, at) in self._previous.items()},
            "recent_ns": list(self._recent_ns),
            "base": torch.from_numpy(self.base.copy()),
            "count": self.count,
            "values": tokens.values[0],
            "measured": tokens.measured[0],
            "observed": tokens.observed[0],
            "time_ns": tokens.positions.time_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot of tokens with the same layout.

        Raises:
            SequenceError: more tokens wait in it than are held here.
        """
        held = len(state["time_ns"])
        if held > self.capacity:
            raise SequenceError(f"the snapshot holds {held} tokens, here at most {self.capacity} are held")
        self.reset()
        self._admission.newest_ns = state["newest_ns"]
        self._admission.last_kept_ns.update(state["last_kept_ns"])
        self._previous.update({stream: (row.numpy().copy(), at) for stream, (row, at) in state["previous"].items()})
        self._recent_ns.extend(state["recent_ns"])
        self.base = state["base"].numpy().copy()
        self.count, self.held, self._first = state["count"], held, 0
        for array, saved in (
            (self._values, state["values"]),
            (self._measured, state["measured"]),
            (self._observed, state["observed"]),
            (self._time_ns, state["time_ns"]),
        ):
            array[:held] = saved.numpy()
