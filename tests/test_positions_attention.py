"""Attention under a plan, against a dense float64 formula that is written out here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from robopos.errors import PositionError
from robopos.positions import Positions, build_positions

SCHEMES = ["none", "index-rotary", "time-rotary", "index-rotary+time-rotary"]
DIM, HEADS = 32, 4


def stamps(batch: int, count: int, *, late: bool = False) -> Tensor:
    """Irregular stamps at a real epoch; with late messages and ties where asked."""
    steps = torch.randint(0, 30_000_000, (batch, count))
    time_ns = 1_700_000_000 * 10**9 + steps.cumsum(-1)
    if late:
        time_ns[:, 3] = time_ns[:, 4]
        time_ns[:, 6] -= 50_000_000
    return time_ns


def heads(batch: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(batch, HEADS, count, DIM // HEADS, dtype=dtype)


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Positions,
    keys: Positions,
    context: int | None = None,
    context_s: float | None = None,
) -> Tensor:
    """The definition, one row at a time: q and k rotated already; every field of the positions given."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for i in range(q.shape[2]):
            if not queries.valid[b, i]:
                continue
            seen = [
                j
                for j in range(k.shape[2])
                if keys.valid[b, j]
                and keys.index[b, j] <= queries.index[b, i]
                and (context is None or queries.index[b, i] - keys.index[b, j] < context)
                and (context_s is None or int(queries.time_ns[b, i] - keys.time_ns[b, j]) <= round(context_s * 1e9))
            ]
            if seen:
                scores = torch.einsum("hd,hjd->hj", q[b, :, i], k[b][:, seen]) / q.shape[-1] ** 0.5
                out[b, :, i] = torch.einsum("hj,hjd->hd", scores.softmax(-1), v[b][:, seen])
    return out


def full(batch: int, count: int, **fields: Tensor) -> Positions:
    known = {
        "index": torch.arange(count).expand(batch, count),
        "time_ns": stamps(batch, count, late=True),
        "valid": torch.ones(batch, count, dtype=torch.bool),
    }
    return Positions(**{**known, **fields})


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize(("context", "context_s"), [(None, None), (5, None), (None, 0.06), (5, 0.06), (1, None)])
def test_attention_equals_the_dense_formula(name: str, context: int | None, context_s: float | None) -> None:
    scheme = build_positions(name, dim=DIM, heads=HEADS).double()
    positions = full(2, 17)
    q, k, v = (heads(2, 17, torch.float64).requires_grad_() for _ in range(3))
    out = scheme.attend(q, k, v, positions, context=context, context_s=context_s)
    turned = scheme.rotate(q, k, positions)
    expected = dense(*turned, v, positions, positions, context, context_s)
    assert_close(out, expected)
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), (q, k, v))
    expected_grads = torch.autograd.grad((expected * weight).sum(), (q, k, v))
    assert_close(grads, expected_grads)


@pytest.mark.parametrize("name", SCHEMES)
def test_plain_causal_attention_takes_no_mask_and_is_the_same(name: str) -> None:
    scheme = build_positions(name, dim=DIM, heads=HEADS)
    positions = full(2, 17)._replace(valid=None)
    plan = scheme.plan(positions)
    assert plan.visible.mask is None
    q, k, v = heads(2, 17), heads(2, 17), heads(2, 17)
    masked = scheme.plan(positions._replace(valid=torch.ones(2, 17, dtype=torch.bool)))
    assert masked.visible.mask is not None
    assert_close(plan.attend(q, k, v), masked.attend(q, k, v))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("context_s", [None, 0.1])
def test_cached_keys_in_a_ring_give_what_the_whole_window_gives(name: str, context_s: float | None) -> None:
    scheme = build_positions(name, dim=DIM, heads=HEADS).double()
    positions = full(2, 30)
    q, k, v = heads(2, 30, torch.float64), heads(2, 30, torch.float64), heads(2, 30, torch.float64)
    whole = scheme.attend(q, k, v, positions, context=8, context_s=context_s)

    ring = torch.arange(12)
    # Slots start as garbage: they are not valid until written.
    cached_k, cached_v = torch.full((2, 2, HEADS, 12, DIM // HEADS), 1e3, dtype=torch.float64)
    slots = Positions(
        index=torch.full((2, 12), 77),
        time_ns=torch.zeros(2, 12, dtype=torch.int64),
        valid=torch.zeros(2, 12, dtype=torch.bool),
    )
    for start in range(0, 30, 3):
        new = slice(start, start + 3)
        queries = Positions(*(field[:, new] for field in positions[:3]))
        where = ring[torch.arange(start, start + 3) % 12]
        for slot, field in zip(slots[:3], queries[:3], strict=True):
            slot[:, where] = field
        plan = scheme.plan(queries, slots, context=8, context_s=context_s)
        turned_q, cached_k[:, :, where] = plan.rotate(q[:, :, new], k[:, :, new])
        cached_v[:, :, where] = v[:, :, new]
        assert_close(plan.attend(turned_q, cached_k, cached_v), whole[:, :, new])


@pytest.mark.parametrize("name", [*SCHEMES, "index-sinusoidal", "time-sinusoidal", "index-learned"])
@pytest.mark.parametrize("context_s", [None, 0.08])
def test_left_and_right_padding_give_the_same(name: str, context_s: float | None) -> None:
    scheme = build_positions(name, dim=DIM, heads=HEADS).double()
    time_ns, x = stamps(2, 10), torch.randn(2, 10, DIM, dtype=torch.float64)
    empty_time, empty = torch.randint(0, 10**9, (2, 4)), torch.randn(2, 4, DIM, dtype=torch.float64)
    there, absent = torch.ones(2, 10, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool)

    def run(order: list[int], tokens: list[Tensor]) -> Tensor:
        positions = Positions(
            time_ns=torch.cat([[time_ns, empty_time][i] for i in order], -1),
            valid=torch.cat([[there, absent][i] for i in order], -1),
        )
        added = scheme.add(torch.cat([tokens[i] for i in order], 1), positions)
        qkv = added.view(2, 14, HEADS, -1).transpose(1, 2)
        return scheme.attend(qkv, qkv, qkv, positions, context=6, context_s=context_s)

    right, left = run([0, 1], [x, empty]), run([1, 0], [x, empty])
    assert_close(right[:, :, :10], left[:, :, 4:])
    assert torch.equal(right[:, :, 10:], torch.zeros_like(right[:, :, 10:]))
    assert torch.equal(left[:, :, :4], torch.zeros_like(left[:, :, :4]))


def test_padded_rows_give_zero_and_finite_gradients() -> None:
    scheme = build_positions("time-rotary", dim=DIM, heads=HEADS)
    positions = full(2, 9, valid=torch.zeros(2, 9, dtype=torch.bool))
    q = heads(2, 9).requires_grad_()
    out = scheme.attend(q, q, q, positions, context=4)
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("context", [None, 4])
def test_empty_and_single_token_sequences(count: int, context: int | None) -> None:
    scheme = build_positions("index-sinusoidal+index-learned+time-rotary", dim=DIM, heads=HEADS)
    positions = Positions(time_ns=torch.arange(count).expand(2, count))
    x = scheme.add(torch.randn(2, count, DIM), positions)
    q = x.view(2, count, HEADS, DIM // HEADS).transpose(1, 2)
    assert scheme.attend(q, q, q, positions, context=context).shape == (2, HEADS, count, DIM // HEADS)


def test_a_shared_position_serves_every_window() -> None:
    scheme = build_positions("index-rotary", dim=DIM, heads=HEADS)
    q, k, v = heads(3, 12), heads(3, 12), heads(3, 12)
    alone = scheme.attend(q, k, v, Positions.arange(12), context=5)
    each = scheme.attend(q, k, v, Positions(index=torch.arange(12).expand(3, 12)), context=5)
    assert_close(alone, each)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_makes_the_mask_in_the_type_of_the_attention(dtype: torch.dtype) -> None:
    scheme = build_positions("time-rotary", dim=DIM, heads=HEADS)
    positions = full(2, 17)
    q, k, v = heads(2, 17), heads(2, 17), heads(2, 17)
    expected = scheme.attend(q, k, v, positions, context=6)
    with torch.autocast("cpu", dtype):
        plan = scheme.plan(positions, context=6)
        assert plan.visible.mask.dtype == dtype
        out = plan.attend(*plan.rotate(q, k), v)
    assert_close(out.float(), expected, atol=5e-2, rtol=0)


def test_the_order_of_attention_is_the_index_and_not_the_time() -> None:
    scheme = build_positions("none", dim=DIM, heads=HEADS)
    v = torch.eye(3).expand(1, HEADS, 3, 3)
    q = torch.zeros_like(v)
    # Token 1 is stamped before token 0: it still sees it, and token 0 does not see token 1.
    positions = Positions(time_ns=torch.tensor([[100, 0, 200]]))
    out = scheme.attend(q, q, v, positions, context_s=1e-7)[0, 0]
    assert_close(out, torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]))


def test_errors_of_the_band_name_what_is_missing() -> None:
    scheme = build_positions("none", dim=DIM, heads=HEADS)
    with pytest.raises(PositionError, match="time_ns is missing"):
        scheme.plan(Positions.arange(4), context_s=1.0)
    with pytest.raises(PositionError, match="context is 0"):
        scheme.plan(Positions.arange(4), context=0)
    with pytest.raises(PositionError, match="context_s is -1"):
        scheme.plan(full(1, 7), context_s=-1)
    with pytest.raises(PositionError, match="index is missing"):
        scheme.plan(Positions(time_ns=torch.arange(3)), full(1, 7))
    with pytest.raises(PositionError, match="positions are empty"):
        scheme.plan(Positions())
    rotary = build_positions("index-rotary", dim=DIM, heads=HEADS)
    with pytest.raises(PositionError, match="k has 5 tokens; the plan rotates its 4"):
        rotary.plan(Positions.arange(4)).rotate(heads(1, 4), heads(1, 5))
    with pytest.raises(PositionError, match="have 4, 5 and 5 tokens; the plan is of 4 queries and 4 keys"):
        scheme.plan(Positions.arange(4), context=2).attend(heads(1, 4), heads(1, 5), heads(1, 5))
    with pytest.raises(PositionError, match="have 4, 4 and 5 tokens"):
        scheme.plan(Positions.arange(4)).attend(heads(1, 4), heads(1, 4), heads(1, 5))
