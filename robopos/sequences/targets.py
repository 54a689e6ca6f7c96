"""What is to be predicted, and what the simplest predictors say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robopos.arrays import Floats, Ints
from robopos.sequences.geometry import compose, difference
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.tokens import TokenTable, last_true


class Baselines(NamedTuple):
    """What is known of each target at each message: (n, T) each.

    ``base`` the last observed value (NaN before the first), ``velocity`` per second from the last two observed
    values, ``base_age_s`` reference time minus the time of ``base``.
    """

    base: Floats
    velocity: Floats
    base_age_s: Floats

    def take(self, rows: Ints) -> Baselines:
        """Those of these messages."""
        return Baselines(*(column[rows] for column in self))

    def constant_velocity(self, layout: SequenceLayout) -> Floats:
        """(n, H, T): base + velocity · (age + horizon), on the circle and the sphere where the target lies there."""
        ahead_s = self.base_age_s[:, None] + np.asarray(layout.horizons_s)[:, None]
        return compose(layout.target_kinds, self.base[:, None], self.velocity[:, None] * ahead_s)

    def hold_last(self, layout: SequenceLayout) -> Floats:
        """(n, H, T): base at every horizon."""
        return np.repeat(self.base[:, None], len(layout.horizons_s), axis=1)


def read_targets(layout: SequenceLayout, truth: TokenTable, reference_ns: Ints, segment: Ints, stop: Ints) -> Floats:
    """Targets read off the stamps of ``truth`` at reference + horizon.

    ``linear``: between the two neighbouring samples, masked where one is missing or they are further apart than the
    stream's ``max_interpolation_s``. ``hold``: the last sample at or before the time, masked where it is older than
    that. Masked too: across segments, and where a sample belongs to another split. Of samples with one stamp, the one
    that arrived last counts.

    Args:
        truth: the messages whose values are the truth (of the undegraded log).
        reference_ns: (n,) reference times.
        segment: (n,) the segment of ``truth`` that each belongs to.
        stop: (n,) only samples of the messages of ``truth`` before this number may be read.

    Returns:
        (n, H, T) float64, NaN where the log cannot say.
    """
    values = np.full((len(reference_ns), len(layout.horizons_s), len(layout.targets)), np.nan)
    for label in np.unique(segment):
        asked = np.flatnonzero(segment == label)
        rows = np.flatnonzero(truth.segment == label)
        for t in range(len(layout.targets)):
            samples = rows[np.isfinite(truth.observed[rows, t])]
            samples = samples[np.argsort(truth.time_ns[samples], kind="stable")]
            stamps = truth.time_ns[samples]
            samples = samples[np.append(stamps[1:] != stamps[:-1], True)[: len(stamps)]]
            if len(samples):
                for h, horizon_s in enumerate(layout.horizons_s):
                    times_ns = reference_ns[asked] + round(horizon_s * 1e9)
                    values[asked, h, t] = _read_one(layout, truth, t, samples, times_ns, stop[asked])
    return values


def _read_one(
    layout: SequenceLayout, truth: TokenTable, target: int, samples: Ints, times_ns: Ints, stop: Ints
) -> Floats:
    """One target at (n,) times, from samples in order of time."""
    stream = layout.streams[layout.targets[target][0]]
    limit_ns = round(stream.max_interpolation_s * 1e9)
    stamps = truth.time_ns[samples]
    left = np.searchsorted(stamps, times_ns, side="right") - 1
    known = left >= 0
    left = np.maximum(left, 0)
    low = truth.observed[samples[left], target]
    if stream.interpolation == "hold":
        known &= (times_ns - stamps[left] <= limit_ns) & (samples[left] < stop)
        return np.where(known, low, np.nan)
    right = np.where(stamps[left] == times_ns, left, left + 1)
    known &= right < len(stamps)
    right = np.minimum(right, len(stamps) - 1)
    span_ns = stamps[right] - stamps[left]
    known &= (span_ns <= limit_ns) & (np.maximum(samples[left], samples[right]) < stop)
    weight = (times_ns - stamps[left]) / np.maximum(span_ns, 1)
    kind = layout.target_kinds[target : target + 1]
    # Component by component, also on the sphere: neighbours are close, and their signs agree already.
    kind = kind if kind == ("angle",) else ("linear",)
    change = difference(kind, truth.observed[samples[right], target, None], low[:, None])[:, 0] * weight
    return np.where(known, compose(kind, low[:, None], change[:, None])[:, 0], np.nan)


def read_baselines(layout: SequenceLayout, messages: TokenTable) -> Baselines:
    """The last observed value of each target at or before each message, in arrival order, within its segment."""
    count, width = messages.observed.shape
    start = messages.segment_starts()
    base, velocity, age_s = (np.full((count, width), np.nan) for _ in range(3))
    for t in range(width):
        known = np.isfinite(messages.observed[:, t])
        last = last_true(known)
        valid = last >= start
        source = last[valid]
        base[valid, t] = messages.observed[source, t]
        age_s[valid, t] = (messages.reference_ns[valid] - messages.time_ns[source]) / 1e9
        velocity[valid, t] = _slopes(layout, messages, t)[source]
    return Baselines(base, velocity, age_s)


def _slopes(layout: SequenceLayout, messages: TokenTable, target: int) -> Floats:
    """(n,) at each sample of a target, its change per second since the sample before; 0 where there is none."""
    slope = np.zeros(len(messages))
    samples = np.flatnonzero(np.isfinite(messages.observed[:, target]))
    if len(samples) > 1:
        now, before = samples[1:], samples[:-1]
        elapsed_s = (messages.time_ns[now] - messages.time_ns[before]) / 1e9
        usable = (messages.segment[now] == messages.segment[before]) & (elapsed_s > 0)
        kind = ("angle",) if layout.target_kinds[target] == "angle" else ("linear",)
        change = difference(kind, messages.observed[now, target, None], messages.observed[before, target, None])[:, 0]
        slope[now[usable]] = change[usable] / elapsed_s[usable]
    return slope
