"""What the textbooks say about positions, checked on this package."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from robopos.errors import PositionError
from robopos.positions import (
    LearnedEncoding,
    Positions,
    RotaryEmbedding,
    SinusoidalEncoding,
    build_positions,
)


def test_sinusoid_of_four_channels() -> None:
    encoding = SinusoidalEncoding(dim=4)(torch.arange(3))
    expected = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000]])
    assert_close(encoding, expected, atol=6e-4, rtol=0)


def test_sinusoid_products_depend_on_the_distance_alone() -> None:
    encoding = SinusoidalEncoding(dim=4)(torch.arange(2000))
    products = (encoding[:-2] * encoding[2:]).sum(-1)
    assert_close(products, torch.full_like(products, 0.5837), atol=5e-5, rtol=0)


@pytest.mark.parametrize(("length", "dim", "count"), [(1024, 768, 786_432), (2048, 512, 1_048_576)])
def test_learned_tables_have_length_times_width_parameters(length: int, dim: int, count: int) -> None:
    encoding = LearnedEncoding(dim=dim, max_length=length)
    assert sum(parameter.numel() for parameter in encoding.parameters()) == count


def test_position_l_of_a_table_with_l_rows_is_an_error() -> None:
    encoding = LearnedEncoding(dim=8, max_length=16)
    assert encoding(torch.tensor([15])).shape == (1, 8)
    with pytest.raises(PositionError, match=r"position 16 .* max_length=16"):
        encoding(torch.tensor([3, 16]))
    with pytest.raises(PositionError, match="position -1"):
        encoding(torch.tensor([-1]))


def test_counted_tokens_beyond_the_table_are_an_error_on_every_device() -> None:
    scheme = build_positions("index-learned", dim=8, max_length=16).to("meta")
    # On "meta" there are no values to look at, as on an accelerator.
    with pytest.raises(PositionError, match="max_length=16"):
        scheme.add(torch.empty(1, 17, 8, device="meta"), Positions())


def test_attention_without_positions_is_permutation_equivariant() -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    order = torch.randperm(9)
    # Without an order there is no causality either: every token is as old as every other.
    together = Positions(index=torch.zeros(9, dtype=torch.int64))
    scheme = build_positions("none", dim=32, heads=4).double()
    out = scheme.attend(q, k, v, together)
    shuffled = scheme.attend(q[..., order, :], k[..., order, :], v[..., order, :], together)
    assert_close(shuffled, out[..., order, :])


def test_attention_with_positions_is_not_permutation_equivariant() -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    order = torch.arange(8, -1, -1)
    together = Positions(index=torch.zeros(9, dtype=torch.int64), time_ns=torch.arange(9) * 10_000_000)
    scheme = build_positions("time-rotary", dim=32, heads=4).double()
    out = scheme.attend(q, k, v, together)
    shuffled = scheme.attend(q[..., order, :], k[..., order, :], v[..., order, :], together)
    assert (shuffled - out[..., order, :]).abs().max() > 1e-2


def test_rotary_turns_neighbouring_channels_by_position_times_frequency() -> None:
    rotary = RotaryEmbedding(dim=4)
    x = torch.tensor([[[0.0] * 4, [1.0, 0.0, 0.0, 1.0]]])
    turned, _ = rotary.rotate(x, x, Positions.arange(2))
    one, hundredth = torch.tensor(1.0), torch.tensor(0.01)
    expected = torch.stack((one.cos(), one.sin(), -hundredth.sin(), hundredth.cos()))
    assert_close(turned[0, 1], expected)


def test_resize_keeps_the_rows_and_says_what_is_untrained() -> None:
    encoding = LearnedEncoding(dim=8, max_length=16)
    before = encoding.weight.detach().clone()
    with pytest.warns(UserWarning, match="rows 16 to 31 .* untrained"):
        encoding.resize(32)
    assert encoding.max_length == 32
    assert torch.equal(encoding.weight[:16], before)
    assert torch.equal(encoding.weight[31], before[15])
    assert encoding(torch.tensor([31])).shape == (1, 8)
    with pytest.raises(PositionError, match="only grow"):
        encoding.resize(31)


def test_resize_on_time_extends_the_span_and_keeps_the_encoding() -> None:
    encoding = LearnedEncoding(dim=8, max_length=11, max_s=1.0)
    time_ns = torch.arange(0, 10**9, 37_000_000)
    before = encoding(time_ns=time_ns)
    with pytest.warns(UserWarning, match="untrained"):
        encoding.resize(21)
    assert encoding.max_s == pytest.approx(2.0)
    assert_close(encoding(time_ns=time_ns), before)


def test_learned_time_is_continuous_and_held_at_the_ends() -> None:
    encoding = LearnedEncoding(dim=8, max_length=11, max_s=1.0)
    around = torch.tensor([299_999_999, 300_000_000, 300_000_001])
    left, knot, right = encoding(time_ns=around)
    assert_close(knot, encoding.weight[3])
    assert_close(left, right, atol=1e-7, rtol=0)
    assert int(encoding.outside) == 0
    outside = encoding(time_ns=torch.tensor([-5, 10**9 + 1, 2 * 10**9]))
    assert_close(outside, encoding.weight[[0, 10, 10]])
    assert int(encoding.outside) == 3


def test_strict_learned_time_refuses_what_is_outside() -> None:
    encoding = LearnedEncoding(dim=8, max_s=1.0, strict=True)
    assert encoding(time_s=torch.tensor([1.0], dtype=torch.float64)).shape == (1, 8)
    with pytest.raises(PositionError, match=r"time 1.5 s .* max_s=1"):
        encoding(time_s=torch.tensor([1.5], dtype=torch.float64))
