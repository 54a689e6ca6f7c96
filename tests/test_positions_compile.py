"""Compiled and exported, every scheme is the eager one, for every length without recompiling."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from robopos.positions import Positions, SinusoidalEncoding, build_positions

ADDITIVE = ("sinusoidal", "learned", "fourier", "time2vec")
IN_SCORES = ("rotary", "alibi", "relative")
NAMES = [f"{clock}-{scheme}" for clock in ("index", "time") for scheme in (*ADDITIVE, *IN_SCORES)]
EPOCH = 1_700_000_000 * 10**9
LENGTHS = (5, 2, 3, 9, 16, 17, 64, 65, 130, 7)


class Layer(torch.nn.Module):
    """One attention layer under a scheme."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.scheme = build_positions(name, dim=32, heads=4)
        for parameter in self.scheme.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, x: Tensor, time_ns: Tensor, valid: Tensor | None = None) -> Tensor:
        positions = Positions(time_ns=time_ns, valid=valid)
        x = self.scheme.add(x, positions)
        q = x.view(*x.shape[:2], 4, 8).transpose(1, 2)
        plan = self.scheme.plan(positions, context=6, context_s=0.2)
        return plan.attend(*plan.rotate(q, q), q)


def window(count: int) -> tuple[Tensor, Tensor]:
    time_ns = EPOCH + torch.randint(0, 10**15, (1,)) + torch.randint(0, 40_000_000, (2, count)).cumsum(-1)
    return torch.randn(2, count, 32), time_ns


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield


@pytest.mark.parametrize("name", ["none", *NAMES, "index-sinusoidal+time-rotary"])
def test_ten_lengths_and_epochs_without_recompiling(name: str) -> None:
    layer = Layer(name)
    # The graph and its guards are what is tested here; inductor's kernels are below.
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in LENGTHS:
        x, time_ns = window(count)
        assert_close(compiled(x, time_ns), layer(x, time_ns), atol=1e-5, rtol=1e-4)


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["time-sinusoidal+time-rotary+time-alibi", "time-fourier+index-learned"])
def test_inductor_keeps_the_wrap_and_the_gradients(name: str) -> None:
    layer = Layer(name)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    # Inductor has a matrix product of its own for N <= 64, and guards it: both lengths lie above.
    for count in (70, 100):
        x, time_ns = window(count)
        valid = torch.arange(count).expand(2, count) > 1
        x.requires_grad_()
        expected, found = layer(x, time_ns, valid), compiled(x, time_ns, valid)
        # Weights of size 1 sum 32 products of size 1 in another order: a few 1e-6 of the largest, on outputs near 1.
        assert_close(found, expected, atol=5e-5, rtol=1e-4)
        learned = [x, *layer.parameters()]
        found_gradients = torch.autograd.grad(found.square().sum(), learned)
        for got, want in zip(found_gradients, torch.autograd.grad(expected.square().sum(), learned), strict=True):
            # By the norm: eager float32 is itself 2e-5 of it from float64, and single elements cancel to 1e-2.
            assert (got - want).norm() <= 2e-4 * want.norm()


def test_arange_inside_the_compiled_function() -> None:
    scheme = build_positions("index-sinusoidal+index-rotary", dim=32, heads=4)

    def layer(x: Tensor) -> Tensor:
        positions = Positions.arange(x.shape[1])
        q = scheme.add(x, positions).view(*x.shape[:2], 4, 8).transpose(1, 2)
        return scheme.attend(q, q, q, positions)

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in LENGTHS:
        x = torch.randn(2, count, 32)
        assert_close(compiled(x), layer(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["none", *NAMES])
def test_export_serves_other_lengths(name: str) -> None:
    layer = Layer(name).eval()
    x, time_ns = window(12)
    length = torch.export.Dim("length", min=2, max=512)
    exported = torch.export.export(layer, (x, time_ns), dynamic_shapes={"x": {1: length}, "time_ns": {1: length}})
    for count in (12, 2, 33):
        x, time_ns = window(count)
        assert_close(exported.module()(x, time_ns), layer(x, time_ns), atol=1e-5, rtol=1e-4)


def test_a_streaming_step_compiles_once_for_every_time_and_slot() -> None:
    scheme = build_positions("time-rotary+time-alibi", dim=32, heads=4)

    def step(q: Tensor, cached: Tensor, query: Positions, slots: Positions) -> Tensor:
        plan = scheme.plan(query, slots, context=8, context_s=1.0)
        q, _ = plan.rotate(q, q)
        return plan.attend(q, cached, cached)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    cached = torch.randn(1, 4, 8, 8)
    for number in range(100, 106):
        # Slot j holds the newest token whose number leaves j after division by 8.
        index = number - (number - torch.arange(8)) % 8
        slots = Positions(index[None], EPOCH + index[None] * 10**7, torch.ones(1, 8, dtype=torch.bool))
        query = Positions(torch.tensor([[number]]), torch.tensor([[EPOCH + number * 10**7]]))
        q = torch.randn(1, 4, 1, 8)
        assert_close(compiled(q, cached, query, slots), step(q, cached, query, slots), atol=1e-5, rtol=1e-4)


def test_plans_are_pytrees_of_tensors() -> None:
    scheme = build_positions("time-rotary+time-alibi+index-relative", dim=32, heads=4)
    plan = scheme.plan(Positions(time_ns=window(70)[1]), context=8)
    leaves, spec = torch.utils._pytree.tree_flatten(plan)
    assert all(leaf is None or isinstance(leaf, Tensor) for leaf in leaves)
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    q = torch.randn(2, 4, 70, 8)
    assert torch.equal(again.attend(q, q, q), plan.attend(q, q, q))


def test_a_position_outside_a_compiled_table_shows_as_nan() -> None:
    encoding = build_positions("index-learned", dim=4, max_length=8).parts["index-learned"]
    compiled = torch.compile(encoding, fullgraph=True, backend="aot_eager")
    found = compiled(torch.tensor([0, 7, 8, -1]))
    assert found.isfinite().all(-1).tolist() == [True, True, False, False]


@pytest.mark.compiler
def test_compiled_sinusoids_are_as_exact_as_eager_ones() -> None:
    encoding = SinusoidalEncoding(16, min_period_s=1e-3, max_period_s=86_400)
    ticks = EPOCH + torch.arange(0, 10**18, 10**15 + 7)
    compiled = torch.compile(encoding, fullgraph=True)
    exact = SinusoidalEncoding(16, min_period_s=1e-3, max_period_s=86_400).double()
    assert (compiled(time_ns=ticks).double() - exact(time_ns=ticks)).abs().max() <= 5e-7
