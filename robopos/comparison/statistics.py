"""Point values and intervals: blocks of time by the bootstrap, trainings by Student's t, schemes paired in both.

Neighbouring anchors err alike, so whole blocks of time are drawn, the same for all schemes. Of trainings there are too
few to draw from: their spread enters as the t distribution of a mean of so many seeds. With one seed it is unknown
and left out; the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from robopos.arrays import Floats
from robopos.comparison.cells import Sums

SEED = 40_000
LEVEL = 0.95
FEWEST_BLOCKS = 5
"""With fewer, resamples repeat each other and their quantiles mean nothing: no interval is given."""


class Interval(NamedTuple):
    """A value with its 95 % interval; the ends are NaN where there are fewer than ``FEWEST_BLOCKS`` blocks of time."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.low == self.low

    @property
    def shown(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    @property
    def open(self) -> bool:
        """Whether the interval holds 0: "no difference shown". Without an interval nothing is said at all."""
        return self.known and not self.shown


class Estimate(NamedTuple):
    """A statistic of S seeds: ``points`` (S, ...) on all ``blocks``, ``draws`` (S, R, ...) on resampled ones."""

    points: Floats
    draws: Floats
    blocks: int

    def __sub__(self, other: Estimate) -> Estimate:
        """The paired difference: seed by seed, resample by resample."""
        return Estimate(self.points - other.points, self.draws - other.draws, self.blocks)

    def column(self, number: int) -> Estimate:
        """One of the K values of a statistic that has so many."""
        return Estimate(self.points[..., number], self.draws[..., number], self.blocks)

    def seeds(self, rows: Sequence[int]) -> Estimate:
        """Some of the seeds."""
        return Estimate(self.points[list(rows)], self.draws[list(rows)], self.blocks)


Statistic = Callable[[Sums], Floats]
"""Sums whose arrays are (..., K), without blocks -> (...), or (..., K)."""


def block_weights(blocks: int, resamples: int) -> Floats:
    """(R, B): how often each block stands in each resample."""
    generator = np.random.default_rng([SEED, blocks])
    return generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples).astype(np.float64)


def estimate(statistic: Statistic, seeds: Sequence[Sums], weights: Floats) -> Estimate:
    """A statistic on the whole and on every resample, for each seed's sums."""
    points = [statistic(_weighed(sums, np.ones((1, len(sums.block)))))[0] for sums in seeds]
    draws = [statistic(_weighed(sums, weights)) for sums in seeds]
    return Estimate(np.array(points), np.array(draws), weights.shape[1])


def _weighed(sums: Sums, weights: Floats) -> Sums:
    return Sums(sums.block, *(weights @ column for column in sums[1:]))


def interval(estimated: Estimate) -> Interval:
    """Mean over seeds and its interval."""
    points, draws, blocks = estimated
    value = float(points.mean())
    if blocks < FEWEST_BLOCKS or not np.isfinite(value):
        return Interval(value, np.nan, np.nan)
    # The bootstrap of n things is too narrow by sqrt((n - 1) / n).
    deviations = (draws.mean(0) - value) * np.sqrt(blocks / (blocks - 1))
    if len(points) > 1:
        generator = np.random.default_rng([SEED, len(points)])
        spread = points.std(ddof=1) / np.sqrt(len(points))
        deviations = deviations + spread * generator.standard_t(len(points) - 1, size=len(deviations))
    low, high = np.nanquantile(deviations, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(value + low), float(value + high))


def skill(sums: Sums) -> Floats:
    """The mean over targets and horizons of 1 - squared error / that of holding the last value; NaN where nothing is
    scored."""
    return _mean_ratio(sums.model, sums.hold)


def skill_of_velocity(sums: Sums) -> Floats:
    """The same of constant velocity."""
    return _mean_ratio(sums.move, sums.hold)


def rmse(sums: Sums) -> Floats:
    """(..., K): the root of the mean squared error of each target and horizon, in its unit."""
    return _root(sums.model, sums.count)


def rmse_of_hold(sums: Sums) -> Floats:
    """The same of holding the last value."""
    return _root(sums.hold, sums.count)


def rmse_of_velocity(sums: Sums) -> Floats:
    """The same of constant velocity."""
    return _root(sums.move, sums.count)


def error_in_units_of(scale: Floats, of: Callable[[Sums], Floats] = rmse) -> Statistic:
    """The root mean square over targets and horizons of the RMSE divided by ``scale`` (K,), where it is known."""

    def statistic(sums: Sums) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = (of(sums) / scale) ** 2
        known = np.isfinite(squares)
        return _root(np.where(known, squares, 0.0).sum(-1), known.sum(-1))

    return statistic


def _root(total: Floats, count: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(total / count)


def _mean_ratio(error: Floats, reference: Floats) -> Floats:
    known = reference > 0
    ratios = np.where(known, 1 - error / np.where(known, reference, 1.0), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = ratios.sum(-1) / known.sum(-1)
    return mean
