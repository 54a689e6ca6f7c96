"""What is to be predicted, and what the simplest predictors say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopos.sequences.features import Floats
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.tokens import Ints, TokenTable


class Baselines(NamedTuple):
    """What is known of each target at each token: (n, T) each.

    ``base`` the last observed value (NaN before the first), ``velocity`` per second from the last two observed
    values, ``base_age_s`` reference time minus the time of ``base``.
    """

    base: Floats
    velocity: Floats
    base_age_s: Floats

    def constant_velocity(self, horizons_s: tuple[float, ...]) -> Floats:
        """(n, H, T): base + velocity · (age + horizon)."""
        ahead = self.base_age_s[:, None] + np.asarray(horizons_s)[:, None]
        return self.base[:, None] + self.velocity[:, None] * ahead

    def hold_last(self, horizons_s: tuple[float, ...]) -> Floats:
        """(n, H, T): base at every horizon."""
        return np.repeat(self.base[:, None], len(horizons_s), axis=1)


def read_targets(layout: SequenceLayout, truth: TokenTable, reference_ns: Ints, segment: Ints, stop: Ints) -> Floats:
    """Targets by linear interpolation on the stamps of ``truth``.

    A value is read between the two neighbouring samples around reference + horizon. It is masked where there is no
    sample on one side, where the two are further apart than the stream's ``max_interpolation_s``, across segments,
    and where a sample belongs to another split. Of samples with one stamp, the one that arrived last counts.

    Args:
        truth: the tokens whose values are the truth (of the undegraded log).
        reference_ns: (n,) reference times.
        segment: (n,) the segment of ``truth`` that each belongs to.
        stop: (n,) only samples of the tokens of ``truth`` before this number may be read.

    Returns:
        (n, H, T) float64, NaN where the log cannot say.
    """
    count, horizons_ns = len(reference_ns), [round(h * 1e9) for h in layout.horizons_s]
    values = np.full((count, len(horizons_ns), len(layout.targets)), np.nan)
    for label in np.unique(segment):
        asked = np.flatnonzero(segment == label)
        tokens = np.flatnonzero(truth.segment == label)
        for t, (s, _) in enumerate(layout.targets):
            limit_ns = round(layout.streams[s].max_interpolation_s * 1e9)
            known = tokens[np.isfinite(truth.observed[tokens, t])]
            known = known[np.argsort(truth.time_ns[known], kind="stable")]
            stamps = truth.time_ns[known]
            keep = np.append(stamps[1:] != stamps[:-1], True)[: len(stamps)]
            known, stamps = known[keep], stamps[keep]
            if not len(known):
                continue
            for h, horizon_ns in enumerate(horizons_ns):
                query = reference_ns[asked] + horizon_ns
                right = np.searchsorted(stamps, query)
                inside = right < len(stamps)
                right = np.minimum(right, len(stamps) - 1)
                exact = inside & (stamps[right] == query)
                left = np.where(exact, right, right - 1)
                inside &= left >= 0
                left = np.maximum(left, 0)
                span = stamps[right] - stamps[left]
                inside &= span <= limit_ns
                weight = (query - stamps[left]) / np.maximum(span, 1)
                inside &= np.maximum(known[left], known[right]) < stop[asked]
                low, high = truth.observed[known[left], t], truth.observed[known[right], t]
                values[asked, h, t] = np.where(inside, low + (high - low) * weight, np.nan)
    return values


def read_baselines(table: TokenTable) -> Baselines:
    """The last observed value of each target at or before each token, in arrival order, within its segment."""
    count, width = table.observed.shape
    start = table.segment_starts()
    base, velocity, age_s = (np.full((count, width), np.nan) for _ in range(3))
    for t in range(width):
        known = np.isfinite(table.observed[:, t])
        last = _last_true(known)
        valid = last >= start
        source = last[valid]
        base[valid, t] = table.observed[source, t]
        age_s[valid, t] = (table.reference_ns[valid] - table.time_ns[source]) / 1e9

        observations = np.flatnonzero(known)
        slope = np.zeros(count)
        if len(observations) > 1:
            now, before = observations[1:], observations[:-1]
            elapsed_s = (table.time_ns[now] - table.time_ns[before]) / 1e9
            usable = (table.segment[now] == table.segment[before]) & (elapsed_s > 0)
            change = table.observed[now, t] - table.observed[before, t]
            slope[now[usable]] = change[usable] / elapsed_s[usable]
        velocity[valid, t] = slope[source]
    return Baselines(base, velocity, age_s)


def _last_true(mask: NDArray[np.bool_]) -> Ints:
    """The index of the last true element at or before each, or -1."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1)) if len(mask) else np.zeros(0, np.int64)
