"""What is learned: gradients, and the exactness of learned frequencies."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from robopos.positions import FourierEncoding, RelativeBias, Time2VecEncoding, build_positions

TICKS = {"index": torch.tensor([0, 1, 7, -3, 40]), "time": torch.tensor([0, 10**7, 10**9, -(10**8), 3 * 10**9])}


@pytest.mark.parametrize("scheme", ["learned", "fourier", "time2vec"])
@pytest.mark.parametrize("clock", ["index", "time"])
def test_gradients_of_additive_schemes(clock: str, scheme: str) -> None:
    name = f"{clock}-{scheme}"
    options = {"max_length": 50} if scheme == "learned" else {}
    part = build_positions(name, dim=6, **options).double().parts[name]
    ticks = TICKS[clock].clamp(min=0) if scheme == "learned" else TICKS[clock]
    names, values = zip(*part.named_parameters(), strict=True)
    assert values

    def encode(*parameters: torch.Tensor) -> torch.Tensor:
        keyword = {} if clock == "index" else {"time_ns": ticks}
        arguments = (ticks,) if clock == "index" else ()
        return torch.func.functional_call(
            part, dict(zip(names, parameters, strict=True)), arguments, keyword, strict=False
        )

    assert torch.autograd.gradcheck(encode, values)


@pytest.mark.parametrize("clock", ["index", "time"])
def test_gradients_of_relative_are_exact(clock: str) -> None:
    bias = RelativeBias(3, clock=clock).double()
    torch.nn.init.normal_(bias.weight)
    ticks = TICKS[clock]

    def scores(weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(bias, {"weight": weight}, (ticks, ticks), strict=False)

    assert torch.autograd.gradcheck(scores, (bias.weight,))


def test_learned_frequencies_are_exact_for_years() -> None:
    encoding = Time2VecEncoding(9, min_period_s=0.01, max_period_s=100.0)
    with torch.no_grad():
        encoding.shift.zero_()
    ticks = torch.arange(0, 10**9, 9_999_937) + 10 * 365 * 86_400 * 10**9
    found = encoding(time_ns=ticks)[..., 1:]
    for wave, frequency in enumerate(encoding.frequency.tolist()):
        # The increment that the frequency becomes, in turns·2⁻⁶⁴ per ns; from there on Python's integers.
        increment = 2 * round(frequency * (1 / 10**9) * 2.0**63)
        turns = [tick * increment % 2**64 / 2.0**64 for tick in ticks.tolist()]
        expected = torch.tensor([math.sin(2 * math.pi * turn) for turn in turns], dtype=torch.float64)
        assert (found[:, wave].double() - expected).abs().max() <= 5e-7


def test_frequencies_beyond_one_turn_a_tick_wrap() -> None:
    encoding = FourierEncoding(4, features=4)
    ticks = torch.arange(10)
    with torch.no_grad():
        encoding.frequency.copy_(torch.tensor([0.25, 0.5]))
        slow = encoding(ticks)
        encoding.frequency.copy_(torch.tensor([1.25, -0.5]))
        assert_close(encoding(ticks), slow)


def test_fourier_is_a_network_over_scaled_waves() -> None:
    encoding = FourierEncoding(5, features=4, min_period_s=0.5, max_period_s=2.0)
    assert_close(encoding.frequency, torch.tensor([2.0, 0.5]))
    seconds = torch.tensor([0.0, 0.125, 1.0])
    angles = 2 * math.pi * seconds[:, None] * encoding.frequency
    waves = torch.cat((angles.cos(), angles.sin()), dim=-1) / math.sqrt(4)
    first, _, last = encoding.mlp
    expected = last(torch.nn.functional.gelu(first(waves)))
    assert_close(encoding(time_ns=(seconds * 1e9).long()), expected, atol=1e-5, rtol=0)


def test_time2vec_is_a_line_and_waves() -> None:
    encoding = Time2VecEncoding(3, clock="time")
    with torch.no_grad():
        encoding.slope.fill_(2.0)
        encoding.offset.fill_(1.0)
        encoding.frequency.copy_(torch.tensor([1.0, 0.25]))
        encoding.shift.copy_(torch.tensor([0.0, math.pi / 2]))
    found = encoding(time_ns=torch.tensor([0, 250_000_000, 10**9]))
    expected = torch.tensor([[1.0, 0.0, 1.0], [1.5, 1.0, math.cos(math.pi / 8)], [3.0, 0.0, 0.0]])
    assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_learned_frequency_finds_the_one_in_the_data() -> None:
    encoding = Time2VecEncoding(2, min_period_s=0.9, max_period_s=2.0)
    time_ns = 1_700_000_000 * 10**9 + torch.arange(0, 2 * 10**9, 10**7)
    elapsed = time_ns - time_ns[0]
    target = torch.sin(2 * math.pi * elapsed / 1e9)
    optimizer = torch.optim.Adam([encoding.frequency, encoding.shift], lr=0.02)
    with torch.no_grad():
        encoding.frequency.fill_(1.15)
        encoding.shift.zero_()
    for _ in range(200):
        loss = (encoding(time_ns=elapsed)[:, 1] - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(encoding.frequency.detach()) == pytest.approx(1.0, abs=0.01)
