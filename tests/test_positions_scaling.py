"""Context extension of rotary: what each method does to the frequencies, and what it says."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch.testing import assert_close

from robopos.errors import PositionError
from robopos.positions import Positions, RotaryEmbedding, build_positions


def extended(**options: object) -> RotaryEmbedding:
    with pytest.warns(UserWarning, match="untrained"):
        return RotaryEmbedding(64, **options)


def cycles(rotary: RotaryEmbedding) -> torch.Tensor:
    return rotary.increments.double() / 2.0**64


@pytest.mark.parametrize("clock", ["index", "time"])
def test_linear_stretches_every_wave(clock: str) -> None:
    plain = RotaryEmbedding(64, clock=clock)
    assert_close(cycles(extended(clock=clock, scaling="linear", factor=4)), cycles(plain) / 4, rtol=1e-12, atol=1e-19)
    # The trained angles return at four times the position.
    x = torch.randn(1, 5, 64)
    ticks = torch.arange(5) * 1_000
    long, _ = extended(clock=clock, scaling="linear", factor=4).rotate(x, x, ticks * 4)
    assert_close(long, plain.rotate(x, x, ticks)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("clock", ["index", "time"])
def test_ntk_keeps_the_fastest_wave_and_stretches_the_slowest_fully(clock: str) -> None:
    ratio = cycles(RotaryEmbedding(64, clock=clock)) / cycles(extended(clock=clock, scaling="ntk", factor=8))
    assert_close(ratio[0], torch.tensor(1.0, dtype=torch.float64))
    assert_close(ratio[-1], torch.tensor(8.0, dtype=torch.float64))
    assert_close(ratio, 8.0 ** (torch.arange(32, dtype=torch.float64) / 31))


def test_ntk_on_index_is_a_larger_base() -> None:
    base = 10000.0 * 8 ** (64 / 62)
    expected = cycles(RotaryEmbedding(64, base=base))
    assert_close(cycles(extended(scaling="ntk", factor=8)), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("window", [{"clock": "index", "original_length": 2048}, {"original_s": 2.0}])
def test_yarn_keeps_fast_waves_stretches_slow_ones_and_sharpens(window: dict) -> None:
    plain = RotaryEmbedding(64, clock="index" if "original_length" in window else "time")
    rotary = extended(scaling="yarn", factor=16, **window)
    ticks = window.get("original_length") or window["original_s"] * 1e9
    turns = cycles(plain) * ticks
    ratio = cycles(rotary) / cycles(plain)
    ones = torch.ones_like(ratio)
    assert_close(ratio[turns > 32], ones[turns > 32])
    assert_close(ratio[turns < 1], ones[turns < 1] / 16)
    between = (turns >= 1) & (turns <= 32)
    assert between.any()
    kept = (turns - 1) / 31
    assert_close(ratio[between], (kept + (1 - kept) / 16)[between])
    assert rotary.temperature == pytest.approx(0.1 * math.log(16) + 1)
    x = torch.randn(1, 3, 64)
    turned, _ = rotary.rotate(x, x, torch.arange(3))
    assert_close(turned.norm(dim=-1), x.norm(dim=-1) * rotary.temperature)


def test_the_warning_counts_what_is_untrained() -> None:
    with pytest.warns(UserWarning, match="32 of 32 frequencies .* fine-tune"):
        RotaryEmbedding(64, scaling="linear", factor=2)
    with pytest.warns(UserWarning, match="31 of 32 frequencies"):
        RotaryEmbedding(64, scaling="ntk", factor=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RotaryEmbedding(64)


def test_scaling_by_name_leaves_cached_keys_valid() -> None:
    with pytest.warns(UserWarning):
        scheme = build_positions("time-rotary", dim=64, heads=4, scaling="yarn", factor=2, original_s=5.0)
    assert scheme.streams
    positions, q = Positions(time_ns=torch.arange(8) * 10**8), torch.randn(1, 4, 8, 16)
    turned, _ = scheme.rotate(q, q, positions)
    first, _ = scheme.rotate(q[:, :, :3], q[:, :, :3], Positions(time_ns=positions.time_ns[:3]))
    assert torch.equal(turned[:, :, :3], first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": "dynamic", "factor": 2}, "scaling is 'dynamic'; allowed are 'linear', 'ntk' and 'yarn'"),
        ({"scaling": "linear"}, "factor is None"),
        ({"scaling": "linear", "factor": 1.0}, "factor is 1.0; .*above 1"),
        ({"factor": 2.0}, "need scaling"),
        ({"scaling": "yarn", "factor": 2.0}, "'yarn' needs original_length"),
        ({"scaling": "ntk", "factor": 2.0, "original_length": 9}, "the others take neither"),
        ({"scaling": "yarn", "factor": 2.0, "original_length": 0}, "original window is 0"),
        ({"clock": "time", "scaling": "yarn", "factor": 2.0, "original_length": 9}, "other clock"),
    ],
)
def test_a_scaling_that_makes_no_sense_is_named(options: dict, message: str) -> None:
    with pytest.raises(PositionError, match=message):
        RotaryEmbedding(64, **options)
