"""Alibi and relative: the formulas, and the fast roads against them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robopos.positions import AlibiBias, Positions, RelativeBias, build_positions
from robopos.positions.attention import BLOCK, biased_attention, folded_attention
from robopos.positions.flex import fused_attention

EPOCH = 1_700_000_000 * 10**9
BIASED = ["index-alibi", "time-alibi", "index-relative", "time-relative", "time-rotary+time-alibi"]


def build(name: str, **options: object) -> torch.nn.Module:
    scheme = build_positions(name, dim=32, heads=4, **options)
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    return scheme


def windows(count: int, step_ns: int = 10_000_000) -> Positions:
    """Two windows with jitter, a late message and a tie."""
    time_ns = EPOCH + torch.randint(0, 2 * step_ns, (2, count)).cumsum(-1)
    time_ns[:, 5] -= 4 * step_ns
    time_ns[:, 8] = time_ns[:, 7]
    return Positions(index=torch.arange(count).expand(2, count), time_ns=time_ns)


def dense(scheme: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, positions: Positions, context: int) -> Tensor:
    """softmax(q·k / √D + bias) over the band, all at once in float64."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    for part in scheme.parts.values():
        if isinstance(part, AlibiBias | RelativeBias):
            scores = scores + part.scores(positions, positions)
    index = positions.index[0]
    distance = index.unsqueeze(-1) - index
    seen = (distance >= 0) & (distance < context)
    if positions.valid is None:
        return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    seen = seen & positions.valid.unsqueeze(-2) & positions.valid.unsqueeze(-1)
    return scores.masked_fill(~seen.unsqueeze(1), -torch.inf).softmax(-1).nan_to_num(0) @ v


def test_alibi_is_minus_slope_times_distance() -> None:
    index = AlibiBias(heads=8)
    assert_close(index.slopes, 2.0 ** -torch.arange(1, 9))
    scores = index.scores(torch.tensor([5, 2]), torch.tensor([5, 3, 0]))
    expected = -torch.tensor([[0.0, 2.0, 5.0], [-3.0, -1.0, 2.0]])
    assert_close(scores, expected * index.slopes[:, None, None])
    time = AlibiBias(heads=1, clock="time", slopes=[8.0])
    late = time.scores(torch.tensor([EPOCH]), torch.tensor([EPOCH - 10**9, EPOCH + 500_000_000]))
    assert_close(late, torch.tensor([[[-8.0, 4.0]]]))


def test_alibi_slopes_of_other_head_counts_fill_up_from_the_next_power_of_two() -> None:
    assert_close(AlibiBias(heads=6).slopes, 2.0 ** -torch.tensor([2, 4, 6, 8, 1, 3]))
    assert_close(AlibiBias(heads=1).slopes, torch.tensor([2.0**-8]))
    assert_close(AlibiBias(heads=8, clock="time").slopes, 2.0 ** (4 - torch.arange(1.0, 9.0)))


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """The rule in words: one bucket a token for the near half, equal ratios for the far half."""
    near = buckets // 2
    if distance <= 0:
        return 0
    if distance < near:
        return distance
    ratio = math.log(distance / near) / math.log(max_distance / near)
    return min(near + math.floor(ratio * (buckets - near)), buckets - 1)


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 100), (4, 9)])
def test_relative_on_index_has_the_buckets_of_t5(buckets: int, max_distance: int) -> None:
    bias = RelativeBias(heads=1, buckets=buckets, max_distance=max_distance)
    with torch.no_grad():
        bias.weight.copy_(torch.arange(float(buckets)))
    found = bias.scores(torch.arange(-3, 300), torch.tensor([0]))[0, :, 0]
    expected = [t5_bucket(distance, buckets, max_distance) for distance in range(-3, 300)]
    assert found.tolist() == expected


def test_relative_on_index_may_reach_as_far_as_it_likes() -> None:
    bias = RelativeBias(heads=1, buckets=32, max_distance=10**15)
    first = bias.boundaries.tolist()
    assert [t5_bucket(distance, 32, 10**15) for distance in first] == list(range(1, 32))
    assert [t5_bucket(distance - 1, 32, 10**15) for distance in first] == list(range(31))


def test_relative_on_time_is_exact_at_its_boundaries() -> None:
    bias = RelativeBias(heads=1, buckets=6, min_s=0.001, max_s=1.0)
    assert bias.boundaries.tolist() == [1, 10**6, 10**7, 10**8, 10**9]
    with torch.no_grad():
        bias.weight.copy_(torch.arange(6.0))
    ages = torch.tensor([-(10**9), 0, 1, 10**6 - 1, 10**6, 10**8 - 1, 10**8, 10**9, 10**18])
    found = bias.scores(torch.tensor([EPOCH]), EPOCH - ages)
    assert found.flatten().tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("shift", [1, 3_600 * 10**9, 50 * 365 * 86_400 * 10**9, -50 * 365 * 86_400 * 10**9])
@pytest.mark.parametrize("bias", [AlibiBias(4, clock="time"), RelativeBias(4, clock="time")])
def test_biases_do_not_change_under_a_shift(bias: torch.nn.Module, shift: int) -> None:
    torch.nn.init.normal_(getattr(bias, "weight", torch.empty(1)))
    time_ns = windows(50).time_ns
    assert torch.equal(bias.scores(time_ns + shift, time_ns + shift), bias.scores(time_ns, time_ns))


@pytest.mark.parametrize("name", BIASED)
@pytest.mark.parametrize("count", [9, 2 * BLOCK + 3])
@pytest.mark.parametrize("context", [None, 20])
@pytest.mark.parametrize("padded", [False, True])
def test_biased_attention_equals_the_dense_formula(name: str, count: int, context: int | None, padded: bool) -> None:
    scheme, positions = build(name).double(), windows(count)
    if padded:
        positions = positions._replace(valid=torch.arange(count).expand(2, count) >= torch.tensor([[0], [4]]))
    q, k, v = (torch.randn(2, 4, count, 8, dtype=torch.float64).requires_grad_() for _ in range(3))
    turned_q, turned_k = scheme.rotate(q, k, positions)
    found = scheme.plan(positions, context=context).attend(turned_q, turned_k, v)
    expected = dense(scheme, turned_q, turned_k, v, positions, context or count)
    assert_close(found, expected)
    learned = [q, k, v, *scheme.parameters()]
    direction = torch.randn_like(found)
    assert_close(
        torch.autograd.grad((found * direction).sum(), learned, retain_graph=True),
        torch.autograd.grad((expected * direction).sum(), learned),
    )


@pytest.mark.parametrize("padded", [False, True])
def test_alibi_folds_within_its_limit_and_not_beyond(padded: bool) -> None:
    count = 2 * BLOCK
    positions = windows(count)
    if padded:
        # An empty slot holds zeros, 54 years away: it must not count for the span.
        valid = torch.arange(count).expand(2, count) >= 3
        positions = positions._replace(valid=valid, time_ns=positions.time_ns.where(valid, 0))
    span_s = (positions.time_ns[:, 3:].amax(-1) - positions.time_ns[:, 3:].amin(-1)).max() / 1e9
    within = build("time-alibi", slopes=[60 / float(span_s), 1.0, 0.1, 0.0])
    beyond = build("time-alibi", slopes=[68 / float(span_s), 1.0, 0.1, 0.0])
    assert beyond.plan(positions).key_terms is None
    plan = within.plan(positions)
    assert plan.key_terms is not None
    q, k, v = torch.randn(3, 2, 4, count, 8)
    blocks = biased_attention(q, k, v, plan.visible, plan.biases)
    assert_close(plan.attend(q, k, v), blocks, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.03), (torch.float16, 4e-3)])
def test_narrow_types_fold_without_rounding_the_bias(dtype: torch.dtype, tolerance: float) -> None:
    positions = windows(2 * BLOCK)
    scheme = build("time-alibi", slopes=[20.0, 8.0, 1.0, 0.1])
    plan = scheme.plan(positions)
    q, k, v = torch.randn(3, 2, 4, 2 * BLOCK, 8).to(dtype)
    expected = folded_attention(q.float(), k.float(), v.float(), plan.visible, plan.key_terms)
    found = plan.attend(q, k, v)
    assert found.dtype == dtype
    assert_close(found.float(), expected, atol=tolerance, rtol=0)
    rounded = folded_attention(q, k, v, plan.visible, plan.key_terms.to(dtype).float())
    error = (found.float() - expected).pow(2).mean()
    assert error < 0.5 * (rounded.float() - expected).pow(2).mean()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.numel = max(self.numel, *sizes, 0)
        return out


@pytest.mark.parametrize("name", ["none", "time-rotary", "time-alibi", "index-alibi", "time-relative"])
def test_training_never_makes_the_scores_of_all_heads_at_once(name: str) -> None:
    count = 6 * BLOCK
    scheme, positions = build(name), windows(count)
    q = torch.randn(2, 4, count, 8, requires_grad=True)
    with Largest() as largest:
        plan = scheme.plan(positions)
        plan.attend(*plan.rotate(q, q), q).sum().backward()
    assert largest.numel <= 2 * count * count < 2 * 4 * count * count


def test_blocks_keep_no_scores_for_the_backward() -> None:
    scheme, positions = build("time-relative"), windows(6 * BLOCK)
    q = torch.randn(2, 4, 6 * BLOCK, 8, requires_grad=True)
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scheme.plan(positions).attend(q, q, q)
    assert kept
    # All blocks together: the causal half of the scores would be this much.
    assert sum(tensor.numel() for tensor in kept.values()) < 2 * 4 * (6 * BLOCK) ** 2 // 2


@pytest.mark.parametrize("name", ["index-alibi", "time-alibi", "time-relative"])
def test_cached_keys_in_ring_order_give_what_the_window_gives(name: str) -> None:
    scheme, positions = build(name).double(), windows(40)
    q, k, v = torch.randn(3, 2, 4, 40, 8, dtype=torch.float64)
    whole = scheme.attend(q, k, v, positions, context=16)
    order = torch.randperm(40)
    keys = Positions(*(field[:, order] for field in positions[:2]))
    queries = Positions(*(field[:, 37:] for field in positions[:2]))
    plan = scheme.plan(queries, keys, context=16)
    assert_close(plan.attend(q[:, :, 37:], k[:, :, order], v[:, :, order]), whole[:, :, 37:])


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "context"), [("time-alibi", 50), ("time-relative", None)])
def test_the_fused_kernel_equals_the_blocks(name: str, context: int | None) -> None:
    scheme, positions = build(name), windows(2 * BLOCK)
    plan = scheme.plan(positions, context=context)
    q, k, v = torch.randn(3, 2, 4, 2 * BLOCK, 16)
    with torch.no_grad():
        expected = biased_attention(q, k, v, plan.visible, plan.biases)
        # Forward on the CPU, the only part of it that runs there.
        found = torch.compile(fused_attention, dynamic=False)(q, k, v, plan.visible.mask, plan.biases)
    assert_close(found, expected, atol=1e-5, rtol=0)
