"""Every scheme by name: options, errors, types, shapes, copies."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from robopos.errors import PositionError
from robopos.positions import (
    AlibiBias,
    FourierEncoding,
    LearnedEncoding,
    Positions,
    RelativeBias,
    RotaryEmbedding,
    SinusoidalEncoding,
    Time2VecEncoding,
    build_positions,
)

ADDITIVE = ("sinusoidal", "learned", "fourier", "time2vec")
IN_SCORES = ("rotary", "alibi", "relative")
NAMES = [f"{clock}-{scheme}" for clock in ("index", "time") for scheme in (*ADDITIVE, *IN_SCORES)]
COMBINED = ["index-sinusoidal+time-rotary", "index-alibi+time-alibi", "time-rotary+time-relative"]
EPOCH = 1_700_000_000 * 10**9


def forward(scheme: torch.nn.Module, x: torch.Tensor, positions: Positions, **band: float) -> torch.Tensor:
    """What a layer does: tokens (B, N, 32) and four heads in, (B, 4, N, 8) out."""
    x = scheme.add(x, positions)
    q = x.view(*x.shape[:-1], 4, 8).transpose(-2, -3)
    plan = scheme.plan(positions, **band)
    return plan.attend(*plan.rotate(q, q), q)


def stamped(*shape: int) -> Positions:
    return Positions(time_ns=EPOCH + torch.randint(0, 30_000_000, shape).cumsum(-1))


@pytest.mark.parametrize("name", ["none", *NAMES, *COMBINED])
def test_every_scheme_works_with_its_defaults(name: str) -> None:
    scheme = build_positions(name, dim=32, heads=4)
    x, positions = torch.randn(2, 12, 32), stamped(2, 12)
    out = forward(scheme, x, positions, context=5, context_s=0.1)
    assert out.shape == (2, 4, 12, 8)
    assert out.isfinite().all()
    in_scores = all(part.split("-")[-1] in ("none", *IN_SCORES) for part in name.split("+"))
    assert scheme.streams is in_scores
    assert torch.equal(scheme.add(x, positions), x) is in_scores


@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_sees_its_own_clock_and_not_the_other(name: str) -> None:
    scheme = build_positions(name, dim=32, heads=4)
    for part in scheme.parts.values():
        if isinstance(part, RelativeBias):
            torch.nn.init.normal_(part.weight)
    x = torch.randn(1, 12, 32)
    positions = stamped(1, 12)._replace(index=torch.arange(12).expand(1, 12))
    changed = {
        "index": positions._replace(index=positions.index * 3),
        "time": positions._replace(time_ns=EPOCH + (positions.time_ns - EPOCH) * 3),
    }
    out = forward(scheme, x, positions)
    for clock, other in changed.items():
        difference = float((forward(scheme, x, other) - out).detach().abs().max())
        assert difference > 1e-4 if name.startswith(clock) else difference == 0


def test_combined_schemes_do_both() -> None:
    scheme = build_positions("index-sinusoidal+time-rotary", dim=32, heads=4, min_period_s=0.5)
    assert list(scheme.parts) == ["index-sinusoidal", "time-rotary"]
    alone = build_positions("index-sinusoidal", dim=32, heads=4)
    rotary = build_positions("time-rotary", dim=32, heads=4, min_period_s=0.5)
    x, positions = torch.randn(1, 6, 32), stamped(1, 6)
    assert torch.equal(scheme.add(x, positions), alone.add(x, positions))
    q = torch.randn(1, 4, 6, 8)
    assert torch.equal(scheme.rotate(q, q, positions)[0], rotary.rotate(q, q, positions)[0])


def test_two_encodings_are_added() -> None:
    both = build_positions("index-sinusoidal+time-learned", dim=32)
    x, positions = torch.randn(2, 6, 32), stamped(2, 6)
    expected = (
        x + both.parts["index-sinusoidal"](torch.arange(6)) + both.parts["time-learned"](time_ns=positions.elapsed_ns())
    )
    assert_close(both.add(x, positions), expected)


def test_two_rotations_are_their_sum_and_two_biases_too() -> None:
    both = build_positions("index-rotary+time-rotary", dim=32, heads=4).double()
    positions, q = stamped(1, 6), torch.randn(1, 4, 6, 8, dtype=torch.float64)
    found, _ = both.rotate(q, q, positions)
    expected = q
    for name in ("time-rotary", "index-rotary"):
        expected, _ = build_positions(name, dim=32, heads=4).double().rotate(expected, expected, positions)
    assert_close(found, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "time-rotatory", "dim": 8}, "unknown scheme 'time-rotatory'; allowed: 'none' alone, .*rotary"),
        ({"name": "rotary", "dim": 8}, "unknown scheme 'rotary'"),
        ({"name": "none+time-rotary", "dim": 8}, "unknown scheme 'none'"),
        ({"name": "time-rotary+time-rotary", "dim": 8}, "stands twice"),
        ({"name": "time-rotary", "dim": 9, "heads": 2}, "dim=9 and heads=2"),
        ({"name": "time-rotary", "dim": 6, "heads": 2}, "dim of one head is 3; .*even"),
        ({"name": "index-sinusoidal", "dim": 5}, "dim is 5; .*even"),
        ({"name": "time-rotary", "dim": 8, "max_length": 9}, "no option max_length; allowed: factor, max_p"),
        ({"name": "none", "dim": 8, "base": 9}, "no option base; allowed: none"),
        ({"name": "index-rotary", "dim": 8, "min_period_s": 1.0}, "no option min_period_s; allowed: .*base"),
        ({"name": "time-rotary", "dim": 8, "min_period_s": 2.0, "max_period_s": 1.0}, "2e-9 <= min_period_s < max"),
        ({"name": "time-sinusoidal", "dim": 8, "min_period_s": 0}, "min_period_s=0"),
        ({"name": "time-fourier", "dim": 8, "max_period_s": float("nan")}, "max_period_s=nan"),
        ({"name": "index-rotary", "dim": 8, "base": 1.0}, "base is 1.0"),
        ({"name": "index-learned", "dim": 8, "max_length": 0}, "max_length is 0"),
        ({"name": "time-learned", "dim": 8, "max_length": 1}, "max_length is 1"),
        ({"name": "time-learned", "dim": 8, "max_s": -1}, "max_s is -1"),
        ({"name": "time-fourier", "dim": 8, "features": 3}, "features is 3"),
        ({"name": "time-fourier", "dim": 8, "hidden": 0}, "hidden is 0"),
        ({"name": "index-time2vec", "dim": 1}, "dim is 1"),
        ({"name": "time-alibi", "dim": 8, "heads": 2, "slopes": [1.0]}, "allowed are 2 numbers"),
        ({"name": "time-alibi", "dim": 8, "heads": 2, "slopes": [1.0, -1.0]}, "numbers >= 0"),
        ({"name": "time-relative", "dim": 8, "buckets": 5}, "buckets is 5"),
        ({"name": "time-relative", "dim": 8, "min_s": 3.0, "max_s": 1.0}, "min_s=3.0 to max_s=1.0"),
        ({"name": "index-relative", "dim": 8, "max_distance": 31}, "max_distance is 31"),
    ],
)
def test_errors_name_what_is_wrong_and_what_is_allowed(arguments: dict, message: str) -> None:
    with pytest.raises(PositionError, match=message):
        build_positions(**arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SinusoidalEncoding(8, clock="index", min_period_s=1.0), "for the clock 'time'"),
        (lambda: SinusoidalEncoding(8, clock="time", base=9.0), "for the clock 'index'|belong"),
        (lambda: LearnedEncoding(8, clock="index", max_s=1.0), "for the clock 'time'|belong"),
        (lambda: RelativeBias(2, clock="index", min_s=1.0), "for the clock 'time'"),
        (lambda: RelativeBias(2, clock="time", max_distance=99), "for the clock 'index'"),
        (lambda: RotaryEmbedding(8, clock="index", original_s=1.0), "other clock"),
        (lambda: SinusoidalEncoding(8, clock="wall"), "clock is 'wall'"),
        (lambda: AlibiBias(0), "heads is 0"),
        (lambda: LearnedEncoding(0), "dim is 0"),
    ],
)
def test_classes_refuse_the_options_of_the_other_clock(make, message: str) -> None:
    with pytest.raises(PositionError, match=message):
        make()


def test_a_clock_is_understood_from_its_options() -> None:
    assert SinusoidalEncoding(8).clock == "index"
    assert SinusoidalEncoding(8, max_period_s=9.0).clock == "time"
    assert LearnedEncoding(8, max_s=9.0).clock == "time"
    assert RotaryEmbedding(8, min_period_s=0.5).clock == "time"
    assert RelativeBias(8, max_s=9.0).clock == "time"


def test_what_a_scheme_lacks_is_named() -> None:
    x = torch.randn(1, 4, 8)
    with pytest.raises(PositionError, match="time_ns is missing"):
        build_positions("time-sinusoidal", dim=8).add(x, Positions.arange(4))
    with pytest.raises(PositionError, match="time_ns is missing"):
        build_positions("time-rotary", dim=8).plan(Positions.arange(4))
    with pytest.raises(PositionError, match="index has 5 tokens where 4 are expected"):
        build_positions("index-sinusoidal", dim=8).add(x, Positions.arange(5))
    with pytest.raises(PositionError, match=r"index has shape \(\)"):
        build_positions("index-rotary", dim=8).plan(Positions(index=torch.tensor(1)))
    with pytest.raises(PositionError, match="valid is int64; it must be bool"):
        build_positions("none", dim=8).plan(Positions(valid=torch.ones(4, dtype=torch.int64)))


def test_floating_point_stamps_are_refused_unless_given_as_seconds_by_name() -> None:
    seconds = torch.tensor([0.0, 0.25], dtype=torch.float64)
    with pytest.raises(PositionError, match=r"time_ns is float64; it must be int64 .*from_seconds"):
        build_positions("time-rotary", dim=8).plan(Positions(time_ns=seconds))
    encoding = SinusoidalEncoding(8, clock="time")
    with pytest.raises(PositionError, match="time_ns is float64"):
        encoding(time_ns=seconds)
    with pytest.raises(PositionError, match="index is float32"):
        SinusoidalEncoding(8)(torch.tensor([1.0]))
    with pytest.raises(PositionError, match="time_s is float32; it must be float64"):
        encoding(time_s=seconds.float())
    with pytest.raises(PositionError, match="takes one of"):
        encoding(torch.arange(2))
    with pytest.raises(PositionError, match="takes one of"):
        SinusoidalEncoding(8)(time_ns=torch.arange(2))
    stamps = torch.tensor([0, 250_000_000])
    assert torch.equal(encoding(time_s=seconds), encoding(time_ns=stamps))
    assert torch.equal(Positions.from_seconds(seconds).time_ns, stamps)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e11, -1e11])
def test_seconds_that_are_no_time_are_refused(wrong: float) -> None:
    with pytest.raises(PositionError, match="not finite, or more than 292 years"):
        Positions.from_seconds(torch.tensor([0.0, wrong], dtype=torch.float64))


def test_the_origin_is_the_first_valid_token_unless_given() -> None:
    time_ns = torch.tensor([[70, 5, 9], [1, 2, 3]])
    valid = torch.tensor([[False, True, True], [True, True, False]])
    first = Positions(time_ns=time_ns, valid=valid)
    assert first.elapsed_ns().tolist() == [[65, 0, 4], [0, 1, 2]]
    assert Positions(time_ns=time_ns).elapsed_ns().tolist() == [[0, -65, -61], [0, 1, 2]]
    for origin in (5, torch.tensor(5), torch.tensor([5, 5]), torch.tensor([[5], [5]])):
        assert first._replace(origin_ns=origin).elapsed_ns().tolist() == [[65, 0, 4], [-4, -3, -2]]
    shared = Positions(time_ns=time_ns[0], valid=valid)
    assert shared.elapsed_ns().tolist() == [[65, 0, 4], [0, -65, -61]]


def test_index_counts_the_valid_tokens() -> None:
    valid = torch.tensor([[False, False, True, True], [True, False, True, False]])
    assert Positions(valid=valid).token_index().tolist() == [[0, 0, 0, 1], [0, 0, 1, 1]]
    assert Positions(time_ns=torch.tensor([[5, 3, 9]])).token_index().tolist() == [0, 1, 2]


@settings(deadline=None, max_examples=40)
@given(
    batch=st.lists(st.integers(1, 3), max_size=3),
    count=st.integers(0, 6),
    name=st.sampled_from(["sinusoidal", "learned", "fourier", "time2vec"]),
    clock=st.sampled_from(["index", "time"]),
)
def test_any_batch_shape_gives_what_each_token_gives(batch: list[int], count: int, name: str, clock: str) -> None:
    encoding = build_positions(f"{clock}-{name}", dim=6).parts[f"{clock}-{name}"]
    ticks = torch.randint(0, 50 if clock == "index" else 10**9, (*batch, count))
    found = encoding(ticks) if clock == "index" else encoding(time_ns=ticks)
    assert found.shape == (*batch, count, 6)
    flat = encoding(ticks.flatten()) if clock == "index" else encoding(time_ns=ticks.flatten())
    assert_close(found.flatten(0, -2), flat, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(st.integers(-40_000_000, 60_000_000), min_size=2, max_size=9),
    shift=st.integers(-(10**18), 10**18),
    name=st.sampled_from(["time-rotary", "time-alibi", "time-relative"]),
    context_s=st.sampled_from([None, 0.05]),
)
def test_attention_on_time_is_shift_invariant_with_late_messages_and_ties(
    steps: list[int], shift: int, name: str, context_s: float | None
) -> None:
    generator = torch.Generator().manual_seed(len(steps))
    scheme = build_positions(name, dim=32, heads=4)
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    x = torch.randn(1, len(steps), 32, generator=generator)
    time_ns = torch.tensor(steps).cumsum(-1).unsqueeze(0)
    out = forward(scheme, x, Positions(time_ns=time_ns), context_s=context_s)
    moved = forward(scheme, x, Positions(time_ns=time_ns + shift), context_s=context_s)
    assert_close(moved, out, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [*NAMES, *COMBINED])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_modules_of_every_type(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scheme = build_positions(name, dim=32, heads=4)
    x, positions = torch.randn(2, 12, 32), stamped(2, 12)
    expected = forward(scheme, x, positions, context=6)
    out = forward(scheme.to(dtype), x.to(dtype), positions, context=6)
    assert out.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float64 else 0.15
    assert_close(out.float(), expected, atol=tolerance, rtol=0)


def test_float64_modules_have_float64_angles() -> None:
    ticks = torch.arange(0, 10**12, 9_876_543_211)
    single = SinusoidalEncoding(8)
    double = copy.deepcopy(single).double()
    phases = ticks.unsqueeze(-1) * single.increments
    expected = (phases.double() * (2 * torch.pi / 2.0**64)).sin()
    assert_close(double(ticks)[..., ::2], expected, atol=1e-14, rtol=0)
    assert 1e-9 < (single(ticks)[..., ::2].double() - expected).abs().max() < 5e-7


@pytest.mark.parametrize("name", [*NAMES, *COMBINED])
def test_state_dict_and_deepcopy_keep_everything(name: str) -> None:
    scheme = build_positions(name, dim=32, heads=4)
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    other = build_positions(name, dim=32, heads=4)
    other.load_state_dict(scheme.state_dict())
    x, positions = torch.randn(1, 9, 32), stamped(1, 9)
    out = forward(scheme, x, positions)
    assert torch.equal(forward(other, x, positions), out)
    assert torch.equal(forward(copy.deepcopy(scheme), x, positions), out)


def test_increments_travel_in_the_state_dict_and_define_the_frequencies() -> None:
    trained = build_positions("time-rotary", dim=32, heads=4, max_period_s=7.0)
    fresh = build_positions("time-rotary", dim=32, heads=4)
    assert trained.state_dict()["parts.time-rotary.increments"].dtype == torch.int64
    fresh.load_state_dict(trained.state_dict())
    positions, q = stamped(1, 5), torch.randn(1, 4, 5, 8)
    assert torch.equal(fresh.rotate(q, q, positions)[0], trained.rotate(q, q, positions)[0])


@pytest.mark.parametrize(("name", "count"), list(itertools.product([*NAMES, *COMBINED], [0, 1])))
def test_empty_and_single_token_windows(name: str, count: int) -> None:
    scheme = build_positions(name, dim=32, heads=4)
    out = forward(scheme, torch.randn(2, count, 32), stamped(2, count), context=4)
    assert out.shape == (2, 4, count, 8)


def test_classes_alone_equal_the_schemes() -> None:
    x, positions = torch.zeros(1, 7, 8), stamped(1, 7)
    elapsed = positions.time_ns - positions.time_ns[:, :1]
    for name, kind in (("fourier", FourierEncoding), ("time2vec", Time2VecEncoding)):
        encoding = kind(8, clock="time")
        scheme = build_positions(f"time-{name}", dim=8)
        scheme.parts[f"time-{name}"].load_state_dict(encoding.state_dict())
        assert torch.equal(scheme.add(x, positions), encoding(time_ns=elapsed))
