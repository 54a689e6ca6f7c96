"""Messages one by one to the same tokens that a log gives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from robopos.positions import Positions
from robopos.sequences.admission import DROPPED, STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.features import Floats, Normalization, transform_rows
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.windows import Tokens


@dataclass
class _Token:
    time_ns: int
    stream: int
    values: NDArray[np.float32]  # (d,) of its stream
    measured: NDArray[np.bool_]  # (d,)


@dataclass
class LiveTokens:
    """The last ``length`` admitted messages, and what is known of the targets: the state of a live sequence."""

    layout: SequenceLayout
    normalization: Normalization
    length: int
    base: Floats = field(init=False)  # (T,) last observed value of each target, NaN before the first
    window: deque[_Token] = field(init=False)

    def __post_init__(self) -> None:
        self._admission = Admission.of(self.layout)
        self._previous: dict[int, tuple[Floats, int]] = {}
        self.window = deque(maxlen=self.length)
        self._forget()

    def _forget(self) -> None:
        self.base = np.full(len(self.layout.targets), np.nan)
        self._previous.clear()
        self.window.clear()

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
        row = np.where(np.isfinite(row), row, np.nan)
        verdict = self._admission.push(stream, time_ns, bool(np.isfinite(row).any()))
        if verdict in DROPPED:
            return verdict
        if verdict in STARTS_SEGMENT:
            self._forget()
        described = self.layout.streams[stream]
        features = transform_rows(described, row[None], np.array([time_ns], np.int64), self._previous.get(stream))
        self._previous[stream] = (row, time_ns)
        values, measured = self.normalization.apply(features, self.layout.feature_slices[stream])
        self.window.append(_Token(time_ns, stream, values[0], measured[0]))
        for t, (s, f) in enumerate(self.layout.targets):
            if s == stream and np.isfinite(row[f]):
                self.base[t] = row[f]
        return verdict

    def tokens(self) -> Tokens:
        """The window as the network takes it: (1, N, ...), N = messages held."""
        count = len(self.window)
        values = np.zeros((1, count, self.layout.num_features), np.float32)
        measured = np.zeros(values.shape, bool)
        observed = np.zeros((1, count, len(self.layout.streams)), bool)
        for i, token in enumerate(self.window):
            columns = self.layout.feature_slices[token.stream]
            values[0, i, columns] = token.values
            measured[0, i, columns] = token.measured
            observed[0, i, token.stream] = True
        time_ns = torch.tensor([[token.time_ns for token in self.window]], dtype=torch.int64)
        return Tokens(
            torch.from_numpy(values),
            torch.from_numpy(measured),
            torch.from_numpy(observed),
            Positions(time_ns=time_ns, valid=torch.ones_like(time_ns, dtype=torch.bool)),
        )
