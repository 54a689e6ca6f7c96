"""Streaming with cached keys gives what one long forward gives, for ever."""

from __future__ import annotations

import pytest
import torch
from sequences_support import input_stream

from robopos.errors import ConfigError
from robopos.model import ModelSettings, SequenceTransformer, StreamState, pick_mode
from robopos.model.defaults import fill_position_options
from robopos.positions import Positions
from robopos.sequences import SequenceLayout, Tokens

EPOCH_NS = 1_700_000_000_000_000_000
STREAMING = (
    "none",
    "index-rotary",
    "time-rotary",
    "index-alibi",
    "time-alibi",
    "index-relative",
    "time-relative",
    "index-alibi+time-rotary",
)
CONTEXT = 12


def layout() -> SequenceLayout:
    streams = (input_stream("a", ("x", "y", "z")), input_stream("b", ("u", "v", "w")))
    return SequenceLayout(streams, ((0, 0), (1, 2)), (0.1, 0.4), 5.0, None)


def network(scheme: str, context_s: float | None = None, **settings: object) -> SequenceTransformer:
    torch.manual_seed(0)
    asked = ModelSettings(positions=scheme, **({"context": CONTEXT, "context_s": context_s, "window": 32} | settings))
    made = SequenceTransformer(layout(), fill_position_options(asked, 0.02)).eval()
    # Far from its quiet start, so that what is wrong would show; a relative bias starts without an opinion.
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter), alpha=0.02)
    return made.requires_grad_(False)


def stream(count: int, epoch_ns: int = EPOCH_NS) -> Tokens:
    """Irregular, now and then late, with ties."""
    generator = torch.Generator().manual_seed(3)
    shape = (1, count, 6)
    steps = torch.randint(0, 30_000_000, (count,), generator=generator) * torch.randint(
        0, 2, (count,), generator=generator
    )
    late = torch.randint(0, 25_000_000, (count,), generator=generator)
    kind = torch.randint(2, (1, count), generator=generator)
    return Tokens(
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) < 0.7,
        torch.nn.functional.one_hot(kind, 2).bool(),
        Positions(time_ns=epoch_ns + steps.cumsum(0) - late),
    )


def part(tokens: Tokens, start: int, stop: int, size: int | None = None) -> Tokens:
    """Tokens ``start`` to ``stop``, padded behind to ``size``."""
    missing = 0 if size is None else size - (stop - start)
    values, measured, observed = (torch.nn.functional.pad(x[:, start:stop], (0, 0, 0, missing)) for x in tokens[:3])
    time_ns = torch.nn.functional.pad(tokens.positions.time_ns[start:stop], (0, missing), value=7)
    return Tokens(
        values + 1e3 * (missing > 0) * ~observed.any(-1, keepdim=True), measured, observed, Positions(time_ns=time_ns)
    )


def run(net: SequenceTransformer, tokens: Tokens, sizes: list[int]) -> tuple[StreamState, torch.Tensor]:
    """Absorb all tokens in blocks of the sizes, in turn."""
    state, encoded, start, turn = net.start(), [], 0, 0
    count = tokens.values.shape[1]
    while start < count:
        stop = min(start + sizes[turn % len(sizes)], count)
        encoded.append(state.absorb(net.step, part(tokens, start, stop), stop - start))
        start, turn = stop, turn + 1
    return state, torch.cat(encoded, dim=1)


def forward(net: SequenceTransformer, tokens: Tokens) -> torch.Tensor:
    time_ns = tokens.positions.time_ns[None]
    return net.encode(tokens._replace(positions=Positions(time_ns=time_ns, valid=torch.ones_like(time_ns).bool())))


def assert_exact_at_points(scheme: str, context_s: float | None, messages: int, block: int) -> None:
    """At 20 points over a stream: against a float64 forward over as many tokens as can touch the last one."""
    net, exact = network(scheme, context_s), network(scheme, context_s).double()
    tokens = stream(messages)
    _, encoded = run(net, tokens, [block, 1, block, block])
    _, encoded64 = run(exact, tokens, [block, 1, block, block])
    points = torch.linspace(net.reach, messages - 1, 20).long().tolist()
    expected = torch.stack([forward(exact, part(tokens, p - net.reach, p + 1))[0, -1] for p in points])
    error = encoded[0, points].double() - expected
    assert error.abs().max() <= 1e-5 and error.square().mean().sqrt() <= 1e-6
    assert (encoded64[0, points] - expected).abs().max() <= 1e-12
    assert expected.abs().max() > 1


@pytest.mark.parametrize("context_s", [None, 0.08])
@pytest.mark.parametrize("scheme", STREAMING)
def test_streaming_equals_a_forward_in_float64(scheme: str, context_s: float | None):
    assert_exact_at_points(scheme, context_s, messages=4_000, block=64)


@pytest.mark.slow
@pytest.mark.parametrize("context_s", [None, 0.08])
@pytest.mark.parametrize("scheme", STREAMING)
def test_streaming_equals_a_forward_after_100_000_messages(scheme: str, context_s: float | None):
    assert_exact_at_points(scheme, context_s, messages=100_000, block=320)


@pytest.mark.parametrize("scheme", STREAMING)
def test_blocks_padded_blocks_and_single_tokens_give_the_same(scheme: str):
    net, tokens = network(scheme, 0.08), stream(60)
    _, single = run(net, tokens, [1])
    state, blocks = run(net, tokens, [5, 1, 17, 40])
    torch.testing.assert_close(blocks, single, atol=1e-5, rtol=0)
    padded, encoded = net.start(), []
    for start in range(0, 60, 5):
        encoded.append(padded.absorb(net.step, part(tokens, start, start + 5, size=8), 5)[:, :5])
    torch.testing.assert_close(torch.cat(encoded, dim=1), single, atol=1e-5, rtol=0)
    # What is left behind is the same too: the last tokens, each in its slot.
    assert padded.count == state.count == 60
    for ours, theirs in zip(padded.ring, state.ring, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert state.ring.index.sort().values.tolist() == list(range(60 - CONTEXT, 60))


@pytest.mark.parametrize("epoch_ns", [0, EPOCH_NS + 987_654_321, 2**62])
@pytest.mark.parametrize("scheme", ["time-rotary", "time-alibi", "time-relative"])
def test_the_epoch_does_not_matter(scheme: str, epoch_ns: int):
    net = network(scheme, 0.08)
    _, here = run(net, stream(300), [16])
    _, there = run(net, stream(300, epoch_ns), [16])
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def test_a_step_writes_nothing_and_the_caller_one_block():
    net, tokens = network("time-rotary"), stream(30)
    state, _ = run(net, part(tokens, 0, 20), [20])
    before = [tensor.clone() for tensor in state.ring]
    block = part(tokens, 20, 23)
    positions = Positions(torch.arange(20, 23), block.positions.time_ns, torch.ones(3, dtype=torch.bool))
    output = net.step(block._replace(positions=positions), state.ring)
    assert all(torch.equal(a, b) for a, b in zip(before, state.ring, strict=True))
    assert output.keys.shape == (2, 1, 4, 3, 16) == output.values.shape and output.encoded.shape == (1, 3, 64)
    state.ring.write(output, positions, 20, 3)
    slots = [20 % CONTEXT, 21 % CONTEXT, 22 % CONTEXT]
    assert state.ring.index[slots].tolist() == [20, 21, 22]
    assert torch.equal(state.ring.keys[..., slots, :], output.keys)


def test_a_cleared_state_is_a_new_one():
    net, tokens = network("index-alibi+time-rotary", 0.08), stream(80)
    state, _ = run(net, part(tokens, 0, 40), [8])
    state.clear()
    again = state.absorb(net.step, part(tokens, 40, 80), 40)
    torch.testing.assert_close(again, net.start().absorb(net.step, part(tokens, 40, 80), 40))
    assert state.count == 40


def test_a_ring_of_one_slot_and_a_context_of_one_token():
    net, tokens = network("time-rotary", context=1), stream(20)
    _, encoded = run(net, tokens, [1, 3])
    torch.testing.assert_close(encoded, forward(net, tokens), atol=1e-5, rtol=0)


def test_schemes_that_add_positions_do_not_stream_and_say_why():
    net = network("index-learned")
    assert pick_mode(net.positions, None) == "window" == pick_mode(net.positions, "window")
    with pytest.raises(ConfigError, match="'stream' is not possible with the scheme 'index-learned': it adds"):
        net.start()
    with pytest.raises(ConfigError, match="mode is 'fast', must be one of stream, window"):
        pick_mode(net.positions, "fast")
    assert pick_mode(network("none").positions, None) == "stream"
