"""Messages one by one to the same tokens that a log gives."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from robopos.arrays import Floats
from robopos.errors import SequenceError
from robopos.positions import Positions
from robopos.sequences.admission import DROPPED, STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.features import FAR_OUT, Normalization, StreamMemory, log_elapsed, transform_rows, with_center
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.windows import Tokens
from robopos.stamps import NS_PER_S


class LiveTokens:
    """The last admitted messages as tokens, and what is known of the targets: the state of a live sequence.

    Args:
        layout, normalization: those of training.
        capacity: tokens held; one more pushes the oldest out.
        band: tokens of the attention's band and its seconds: ``band_truncated`` counts tokens for which the first
            ends before the second.

    Attributes:
        base: (T,) what a prediction after the newest token counts from: the last observed value of each target, NaN
            before the first; the training mean of a target that the model does not see.
        reference_ns: the newest time admitted up to the newest token, from which horizons count; ``None`` before it.
        count: tokens since the start or the last reset.
        made: tokens since the start.
        far_out: whether the newest message made a token with a value more than ``FAR_OUT`` standard deviations from
            the mean of training.
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
        self._memory: dict[int, StreamMemory] = {}
        self._known: dict[int, tuple[Floats, int]] = {}  # of each stream the newest features (f,), and their time
        self._recent_ns: deque[int] = deque(maxlen=context)
        self._first = 0
        self._values = np.zeros((capacity, layout.num_features), np.float32)
        self._measured = np.zeros((capacity, layout.num_features), bool)
        self._observed = np.zeros((capacity, len(layout.streams)), bool)
        self._time_ns = np.zeros(capacity, np.int64)
        self.band_truncated = self.made = 0
        self.far_out = False
        self._forget()

    def _forget(self) -> None:
        self.reference_ns: int | None = None
        unknown = np.full(len(self.layout.targets), np.nan)
        self.base = self._observed_base = with_center(self.layout, unknown, self.normalization.center)
        self._last_token_ns: int | None = None
        self.count = self.held = 0
        self._memory.clear()
        self._known.clear()
        self._recent_ns.clear()

    def reset(self) -> None:
        """Start anew: the next message is the first of a segment."""
        self._admission.reset()
        self._forget()

    @property
    def newest_ns(self) -> int | None:
        """The newest time admitted so far."""
        return self._admission.newest_ns

    def push(self, stream: int, time_ns: int, row: Floats) -> Verdict:
        """Take the next message in order of arrival; ``row`` (d,) are its raw values, not finite is missing."""
        self.far_out = False
        known = np.isfinite(row)
        row = np.where(known, row, np.nan)
        verdict = self._admission.push(stream, time_ns, bool(known.any()))
        if verdict in DROPPED:
            return verdict
        if verdict in STARTS_SEGMENT:
            self._forget()
        described = self.layout.streams[stream]
        made = transform_rows(described, row[None], np.array([time_ns], np.int64), self._memory.get(stream))
        assert made.memory is not None
        self._memory[stream] = made.memory
        self._known[stream] = (made.features[0], time_ns)
        observed = [(t, f) for t, (s, f) in enumerate(self.layout.targets) if s == stream and known[f]]
        if observed:
            self._observed_base = self._observed_base.copy()
            for t, f in observed:
                self._observed_base[t] = made.values[0, f]
        if self.layout.reference in (None, stream):
            self.reference_ns, self.base = self._admission.newest_ns, self._observed_base
            self._put(stream, time_ns)
        return verdict

    def _put(self, stream: int, time_ns: int) -> None:
        if self.held == self.capacity:
            self._first = (self._first + 1) % self.capacity
            self.held -= 1
        slot = (self._first + self.held) % self.capacity
        features, carried = self._features(stream, time_ns)
        values, measured = self.normalization.apply(features[None], slice(None))
        self._values[slot], self._measured[slot] = values[0], measured[0]
        masked = np.isfinite(features) & ~measured[0]
        self.far_out = bool((np.abs(values[0]) > FAR_OUT).any() or masked.any())
        self._observed[slot] = False
        self._observed[slot, carried] = True
        self._time_ns[slot] = time_ns
        self._last_token_ns = time_ns
        self.made += 1
        self.held += 1
        self.count += 1
        if self._band_ns is not None:
            full = len(self._recent_ns) == self._recent_ns.maxlen
            self.band_truncated += full and time_ns - self._recent_ns[0] <= self._band_ns
            self._recent_ns.append(time_ns)

    def _features(self, stream: int, time_ns: int) -> tuple[Floats, list[int]]:
        """(F,) features of a token, NaN where not measured, and the streams it carries."""
        layout = self.layout
        features = np.full(layout.num_features, np.nan)
        carried = [stream] if layout.reference is None else list(self._known)
        for number in carried:
            features[layout.feature_slices[number]] = self._known[number][0]
        for number, column in zip(layout.aged, range(layout.age_slice.start, layout.age_slice.stop), strict=True):
            if number in self._known and self.reference_ns is not None:
                age_s = (self.reference_ns - self._known[number][1]) / 1e9
                features[column] = log_elapsed(np.float64(age_s))
        if layout.gap_feature and self._last_token_ns is not None:
            features[layout.gap_slice] = log_elapsed(np.float64((time_ns - self._last_token_ns) / 1e9))
        return features, carried

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
        one, two, three = (torch.from_numpy(array)[None] for array in (values, measured, observed))
        return Tokens(one, two, three, Positions(time_ns=torch.from_numpy(self._time_ns[slots])))

    def snapshot(self) -> dict[str, Any]:
        """The state in plain types and tensors."""
        tokens = self._gather(self.held, self.held)
        return {
            "newest_ns": self._admission.newest_ns,
            "last_kept_ns": dict(self._admission.last_kept_ns),
            "memory": {
                stream: (torch.from_numpy(m.row.copy()), m.time_ns, torch.from_numpy(m.quaternions.copy()))
                for stream, m in self._memory.items()
            },
            "known": {stream: (torch.from_numpy(row.copy()), at) for stream, (row, at) in self._known.items()},
            "reference_ns": self.reference_ns,
            "last_token_ns": self._last_token_ns,
            "observed_base": torch.from_numpy(self._observed_base.copy()),
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
        for stream, (row, at, quaternions) in state["memory"].items():
            self._memory[stream] = StreamMemory(row.numpy().copy(), at, quaternions.numpy().copy())
        self._known.update({stream: (row.numpy().copy(), at) for stream, (row, at) in state["known"].items()})
        self.reference_ns, self._last_token_ns = state["reference_ns"], state["last_token_ns"]
        self._observed_base = state["observed_base"].numpy().copy()
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
