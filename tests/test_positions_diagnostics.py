"""The diagnostics tell a network with positions from one without."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions import Positions, SinusoidalEncoding, build_positions
from robopos.positions.diagnostics import (
    Network,
    distance_products,
    equivariance_error,
    padding_effect,
    shift_effect,
    shuffle_effect,
    stretch_effect,
)

EPOCH = 1_700_000_000 * 10**9


def network(name: str, **band: float) -> Network:
    """One causal attention layer of four heads over tokens (B, N, 32)."""
    torch.manual_seed(0)
    scheme = build_positions(name, dim=32, heads=4)
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)

    def run(x: Tensor, positions: Positions) -> Tensor:
        q = scheme.add(x, positions).view(*x.shape[:2], 4, 8).transpose(1, 2)
        return scheme.attend(q, q, q, positions, **band).transpose(1, 2).flatten(-2)

    return run


@pytest.fixture
def window() -> tuple[Tensor, Positions]:
    torch.manual_seed(1)
    time_ns = EPOCH + torch.randint(1, 60_000_000, (2, 20)).cumsum(-1)
    return torch.randn(2, 20, 32), Positions(index=torch.arange(20).expand(2, 20), time_ns=time_ns)


@pytest.mark.parametrize(
    ("name", "order", "time"),
    [
        ("none", False, False),
        ("index-sinusoidal", True, False),
        ("time-sinusoidal", True, True),
        ("index-rotary", True, False),
        ("time-rotary", True, True),
        ("index-alibi", True, False),
        ("time-alibi", True, True),
    ],
)
def test_order_and_time_reach_the_output_where_they_should(
    name: str, order: bool, time: bool, window: tuple[Tensor, Positions]
) -> None:
    run = network(name)
    shuffled, stretched = shuffle_effect(run, *window), stretch_effect(run, *window)
    assert shuffled > 0.05 if order else shuffled < 1e-6
    assert stretched > 0.05 if time else stretched == 0


def test_a_band_in_seconds_lets_time_reach_any_network(window: tuple[Tensor, Positions]) -> None:
    assert stretch_effect(network("none", context_s=0.2), *window) > 0.05


@pytest.mark.parametrize("name", ["time-sinusoidal", "time-rotary", "time-alibi", "time-relative"])
def test_shifts_are_invisible(name: str, window: tuple[Tensor, Positions]) -> None:
    for shift in (1, 10**18, -(10**18)):
        assert shift_effect(network(name), *window, shift) < 1e-5


def test_a_shift_shows_in_a_network_that_reads_absolute_time(window: tuple[Tensor, Positions]) -> None:
    def absolute(x: Tensor, positions: Positions) -> Tensor:
        return x + (positions.time_ns.unsqueeze(-1) % 10**9).float()

    assert shift_effect(absolute, *window, 10**8) > 0.05


@pytest.mark.parametrize("index", [True, False])
def test_padding_is_invisible_and_a_network_that_ignores_it_is_caught(
    index: bool, window: tuple[Tensor, Positions]
) -> None:
    x, positions = window
    if not index:
        positions = positions._replace(index=None)
    assert padding_effect(network("index-sinusoidal+time-rotary"), x, positions, 5) < 1e-5

    def careless(x: Tensor, positions: Positions) -> Tensor:
        return network("index-rotary")(x, Positions.arange(x.shape[1]))

    assert padding_effect(careless, x, positions, 5) > 0.05
    with pytest.raises(PositionError, match="full windows"):
        padding_effect(careless, x, positions._replace(valid=torch.zeros(20, dtype=torch.bool)), 5)


def test_attention_without_positions_is_equivariant() -> None:
    x, time_ns = torch.randn(2, 4, 20, 8), torch.arange(20) * 10**7
    assert equivariance_error(build_positions("none", 32, 4), x) < 1e-6
    assert equivariance_error(build_positions("time-rotary", 32, 4), x, time_ns) > 0.05
    with pytest.raises(PositionError, match="'index-rotary' reads the token number"):
        equivariance_error(build_positions("index-rotary", 32, 4), x)


def test_products_of_sinusoids_depend_on_the_distance_alone() -> None:
    vectors = SinusoidalEncoding(32)(torch.arange(100))
    products = distance_products(vectors, 7)
    assert products.shape == (93,)
    assert float(products.max() - products.min()) < 1e-4
    assert float(distance_products(torch.randn(100, 32), 7).std()) > 1
    with pytest.raises(PositionError, match="offset is 100"):
        distance_products(vectors, 100)


def test_short_windows_are_refused() -> None:
    with pytest.raises(PositionError, match="3 or more"):
        shuffle_effect(network("none"), torch.randn(1, 2, 32), Positions.arange(2))
