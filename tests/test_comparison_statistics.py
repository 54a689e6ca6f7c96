"""Intervals against a slow oracle, and by simulation: they must hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from comparison_support import sums

from robopos.comparison.statistics import (
    FEWEST_BLOCKS,
    Estimate,
    block_weights,
    error_in_units_of,
    estimate,
    interval,
    rmse,
    rmse_of_hold,
    skill,
    skill_of_velocity,
)


def slow_skill(model: np.ndarray, hold: np.ndarray, times: list[int]) -> float:
    """The skill on blocks of which each stands ``times`` there, written out."""
    ratios = []
    for column in range(model.shape[1]):
        error = sum(times[b] * model[b, column] for b in range(len(times)))
        held = sum(times[b] * hold[b, column] for b in range(len(times)))
        if held > 0:
            ratios.append(1 - error / held)
    return sum(ratios) / len(ratios) if ratios else math.nan


def test_skill_and_rmse_are_those_of_a_slow_oracle():
    generator = np.random.default_rng(1)
    seeds = [sums(generator.random((7, 3)), 0.5 + generator.random((7, 3))) for _ in range(2)]
    seeds = [s._replace(hold=s.hold * [1, 0, 1], count=s.count * [1, 0, 1]) for s in seeds]
    weights = block_weights(7, 50)
    found, errors = estimate(skill, seeds, weights), estimate(rmse, seeds, weights)
    for s, one in enumerate(seeds):
        assert found.points[s] == pytest.approx(slow_skill(one.model, one.hold, [1] * 7))
        for r in (0, 17, 49):
            times = [int(w) for w in weights[r]]
            assert sum(times) == 7
            assert found.draws[s, r] == pytest.approx(slow_skill(one.model, one.hold, times))
            total, count = (sum(t * c[b, 2] for b, t in enumerate(times)) for c in (one.model, one.count))
            assert errors.draws[s, r, 2] == pytest.approx(math.sqrt(total / count))
    assert not np.isfinite(errors.points[:, 1]).any(), "nothing was scored there"
    assert skill_of_velocity(seeds[0]._replace(move=seeds[0].hold)) == pytest.approx(0, abs=1e-12)


def test_error_in_units_leaves_out_what_is_not_scored():
    one = sums(np.full((4, 2), 4.0))
    one = one._replace(count=one.count * [1, 0], model=one.model * [1, 0])
    assert estimate(error_in_units_of(np.array([2.0, 5.0])), [one], block_weights(4, 5)).points == pytest.approx(1.0)


def test_a_constant_target_is_left_out_without_a_warning(recwarn: pytest.WarningsRecorder):
    still = sums(np.full((4, 2), 4.0), hold=np.array([[1.0, 0.0]] * 4))
    scale = rmse_of_hold(still._replace(hold=still.hold.sum(0), count=still.count.sum(0)))
    assert estimate(error_in_units_of(scale), [still], block_weights(4, 5)).points == pytest.approx(2.0)
    assert not recwarn


def test_the_mean_of_seeds_has_the_t_interval_where_blocks_are_alike():
    points = np.array([0.1, 0.2, 0.4])
    found = interval(Estimate(points, np.repeat(points[:, None], 200_000, axis=1), 10))
    half = 4.302653 * points.std(ddof=1) / math.sqrt(3)  # Student's t, 2 degrees of freedom, 97.5 %
    assert found.value == pytest.approx(points.mean())
    assert found.high - found.value == pytest.approx(half, rel=0.05)
    assert found.value - found.low == pytest.approx(half, rel=0.05)


@pytest.mark.parametrize("blocks", [1, FEWEST_BLOCKS - 1])
def test_few_blocks_have_no_interval_and_say_nothing(blocks: int):
    errors = np.linspace(0.4, 0.6, 2 * blocks).reshape(blocks, 2)
    few = interval(estimate(skill, [sums(errors)], block_weights(blocks, 10)))
    assert few.value == pytest.approx(0.5) and np.isnan([few.low, few.high]).all()
    assert not few.known and not few.shown and not few.open
    enough = np.linspace(0.4, 0.6, 2 * FEWEST_BLOCKS).reshape(FEWEST_BLOCKS, 2)
    assert interval(estimate(skill, [sums(enough)], block_weights(FEWEST_BLOCKS, 10))).known


def test_one_seed_has_the_interval_of_its_blocks():
    errors = np.random.default_rng(0).random((20, 1))
    found = interval(estimate(skill, [sums(errors)], block_weights(20, 20_000)))
    half = 1.96 * errors.std(ddof=1) / math.sqrt(20)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_nothing_scored_is_no_figure():
    nothing = interval(estimate(skill, [sums(np.zeros((5, 2)), np.zeros((5, 2)))], block_weights(5, 10)))
    assert np.isnan(nothing).all() and not nothing.shown


def test_pairing_takes_out_what_schemes_have_in_common():
    common = np.random.default_rng(0).random((15, 2))
    ours, theirs = ([sums(common + shift)] for shift in (0.30, 0.35))
    weights = block_weights(15, 1000)
    first, second = (estimate(skill, seeds, weights) for seeds in (ours, theirs))
    paired, alone = interval(first - second), interval(first)
    assert paired.value == pytest.approx(0.05) and paired.shown
    assert paired.high - paired.low < 0.01 * (alone.high - alone.low)


@pytest.mark.parametrize(("seeds", "between"), [(3, 0.0), (3, 0.05), (5, 0.05), (1, 0.0)])
def test_intervals_hold_a_known_difference_as_often_as_they_say(seeds: int, between: float):
    """Schemes whose true skills differ by 0.03; blocks err alike, seeds (if there are several) apart."""
    generator, blocks, held, runs = np.random.default_rng([seeds, round(between * 100)]), 15, 0, 300
    weights = block_weights(blocks, 400)
    for _ in range(runs):
        hard = generator.gamma(4.0, 0.25, (blocks, 1))
        own = [0.03 * generator.standard_normal((blocks, 1)) for _ in range(2)]
        groups = []
        for scheme, error in enumerate((0.47, 0.50)):
            at = [error + between * generator.standard_normal() for _ in range(seeds)]
            groups.append([sums(hard * (a + own[scheme]), hard) for a in at])
        apart = estimate(skill, groups[0], weights) - estimate(skill, groups[1], weights)
        found = interval(apart)
        held += found.low <= 0.03 <= found.high
    assert 0.90 <= held / runs <= 0.99


def test_resamples_are_the_same_whenever_they_are_drawn():
    np.testing.assert_array_equal(block_weights(9, 30), block_weights(9, 30))
    assert not np.array_equal(block_weights(9, 30)[0], block_weights(9, 30)[1])
