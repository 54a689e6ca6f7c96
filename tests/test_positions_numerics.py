"""Phases are exact: measured against Python's integers, for every age and epoch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from robopos.positions import Positions, RotaryEmbedding, SinusoidalEncoding, build_positions

TEN_YEARS_NS = 10 * 365 * 86_400 * 10**9
SHIFTS_NS = [1, 3_600 * 10**9, 50 * 365 * 86_400 * 10**9, -50 * 365 * 86_400 * 10**9]


def exact_angle(tick: int, increment: int) -> float:
    """The angle in [−π, π) of an integer phase, with one rounding at the end."""
    turns = tick * increment % 2**64
    return math.ldexp((turns if turns < 2**63 else turns - 2**64) * 2, -64) * math.pi


def encoding_error(encoding: SinusoidalEncoding, ticks: list[int]) -> float:
    given_ticks = torch.tensor(ticks)
    found = encoding(given_ticks) if encoding.clock == "index" else encoding(time_ns=given_ticks)
    expected = torch.tensor(
        [
            [wave(exact_angle(tick, i)) for i in encoding.increments.tolist() for wave in (math.sin, math.cos)]
            for tick in ticks
        ],
        dtype=torch.float64,
    )
    return float((found.double() - expected).abs().max())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40))
def test_time_sinusoid_is_exact_at_any_epoch(ticks: list[int]) -> None:
    encoding = SinusoidalEncoding(dim=16, min_period_s=1e-3, max_period_s=86_400)
    assert encoding_error(encoding, ticks) <= 5e-7


def test_time_sinusoid_is_exact_over_ten_years_of_a_robot() -> None:
    generator = torch.Generator().manual_seed(0)
    ages = torch.randint(0, TEN_YEARS_NS, (2000,), generator=generator)
    encoding = SinusoidalEncoding(dim=32, min_period_s=1e-3, max_period_s=86_400)
    for epoch in (0, 1_700_000_000 * 10**9):
        assert encoding_error(encoding, (ages + epoch).tolist()) <= 5e-7


def test_index_sinusoid_is_exact_to_a_million_million_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    ticks = torch.randint(0, 10**12, (2000,), generator=generator).tolist()
    assert encoding_error(SinusoidalEncoding(dim=32), ticks) <= 5e-7


def test_increments_are_the_nominal_periods() -> None:
    time = SinusoidalEncoding(dim=8, min_period_s=0.001, max_period_s=1.0)
    assert time.increments.tolist() == [round(2**64 / 10**n) for n in (6, 7, 8, 9)]
    index = SinusoidalEncoding(dim=4).increments.double() / 2.0**64
    assert_close(index, torch.tensor([1, 1 / 100], dtype=torch.float64) / (2 * math.pi), rtol=1e-15, atol=0)


@pytest.mark.parametrize("shift", SHIFTS_NS)
@pytest.mark.parametrize("name", ["time-sinusoidal", "time-learned", "time-sinusoidal+time-learned"])
def test_additive_schemes_are_bit_identical_under_a_shift(name: str, shift: int) -> None:
    scheme = build_positions(name, dim=16, heads=2)
    time_ns = 1_700_000_000 * 10**9 + torch.randint(0, 10**10, (3, 20)).sort().values
    x = torch.randn(3, 20, 16)
    assert torch.equal(scheme.add(x, Positions(time_ns=time_ns)), scheme.add(x, Positions(time_ns=time_ns + shift)))


@pytest.mark.parametrize("shift", SHIFTS_NS)
def test_rotary_scores_do_not_change_under_a_shift(shift: int) -> None:
    rotary = RotaryEmbedding(dim=64, min_period_s=1e-3, max_period_s=100.0)
    time_ns = 1_700_000_000 * 10**9 + torch.randint(0, 10**10, (2, 64)).sort().values
    q, k = torch.randn(2, 2, 4, 64, 64)

    def scores(positions: Positions) -> torch.Tensor:
        turned_q, turned_k = rotary.rotate(q, k, positions)
        return turned_q @ turned_k.mT / 8

    assert_close(scores(Positions(time_ns=time_ns)), scores(Positions(time_ns=time_ns + shift)), atol=1e-5, rtol=0)


def test_narrow_inputs_never_round_the_angle() -> None:
    rotary = RotaryEmbedding(dim=64, min_period_s=1e-3, max_period_s=100.0)
    positions = Positions(time_ns=1_700_000_000 * 10**9 + torch.arange(512) * 5_000_000)
    q = torch.nn.functional.normalize(torch.randn(4, 512, 64), dim=-1) * 8
    wide, _ = rotary.rotate(q, q, positions)
    narrow, _ = rotary.rotate(q.bfloat16(), q.bfloat16(), positions)
    assert narrow.dtype == torch.bfloat16
    assert (narrow.float() - wide).pow(2).mean().sqrt() <= 2.8e-3
    scheme = build_positions("time-sinusoidal", dim=64).bfloat16()
    found = scheme.add(torch.zeros(1, 512, 64, dtype=torch.bfloat16), positions)
    expected = SinusoidalEncoding(dim=64, clock="time")(time_ns=positions.elapsed_ns())
    assert (found.float() - expected).pow(2).mean().sqrt() <= 2.8e-3


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "fourier", "time2vec"])
def test_periods_are_those_asked_for(kind: str) -> None:
    part = build_positions(f"time-{kind}", dim=64, heads=4, min_period_s=0.05, max_period_s=7.0).parts[f"time-{kind}"]
    periods_s = part.periods()
    assert periods_s is not None
    assert_close(periods_s[[0, -1]], torch.tensor([0.05, 7.0], dtype=torch.float64), rtol=1e-6, atol=0)


def test_a_scheme_without_waves_has_no_periods() -> None:
    parts = build_positions("time-alibi+index-relative+time-learned", dim=8, heads=2).parts.values()
    assert [part.periods() for part in parts] == [None, None, None]


def test_positions_go_to_a_device_with_every_field() -> None:
    one = torch.zeros(3, dtype=torch.int64)
    moved = Positions(one, one, one.bool(), one[0]).to("meta")
    assert {field.device.type for field in moved if isinstance(field, torch.Tensor)} == {"meta"} and None not in moved
    assert Positions(time_ns=one, origin_ns=5).to("meta").origin_ns == 5
