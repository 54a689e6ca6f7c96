"""The network: causal, blind to padding, limited by its band."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SEQUENCE
from sequences_support import sequence_settings

from robopos.errors import ConfigError
from robopos.logs import read_log
from robopos.model import ModelSettings, SequenceTransformer, loss_of
from robopos.model.defaults import fill_position_options
from robopos.positions import Positions
from robopos.sequences import SequenceLayout, Tokens, log_streams, resolve_layout

SCHEMES = ("none", "index-sinusoidal", "time-sinusoidal", "index-rotary", "time-rotary", "index-learned")


@pytest.fixture(scope="module")
def layout(arm_log: Path) -> SequenceLayout:
    return resolve_layout(sequence_settings(), read_log(arm_log, log_streams(sequence_settings())))


def network(layout: SequenceLayout, scheme: str, **settings: object) -> SequenceTransformer:
    torch.manual_seed(0)
    asked = ModelSettings(positions=scheme, **({"context": 8, "context_s": 1.0, "window": 24} | settings))
    made = SequenceTransformer(layout, fill_position_options(asked, 0.02)).eval()
    # Far from its quiet start, so that what should not matter would show.
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)
    return made


def random_tokens(layout: SequenceLayout, count: int, seed: int = 0) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, count, layout.num_features)
    stream = torch.randint(len(layout.streams), (2, count), generator=generator)
    steps = torch.randint(1, 40_000_000, (2, count), generator=generator)
    return Tokens(
        torch.randn(shape, generator=generator),
        torch.rand(shape, generator=generator) < 0.7,
        torch.nn.functional.one_hot(stream, len(layout.streams)).bool(),
        Positions(time_ns=1_700_000_000_000_000_000 + steps.cumsum(-1), valid=torch.ones(2, count, dtype=torch.bool)),
    )


def padded(tokens: Tokens, left: int, right: int) -> Tokens:
    def pad(x: torch.Tensor) -> torch.Tensor:
        width = (0, 0) * (x.ndim - 2) + (left, right)
        return torch.nn.functional.pad(x, width)

    values, measured, observed, positions = tokens
    return Tokens(
        pad(values) + 5.0 * (~pad(positions.valid))[..., None],
        pad(measured),
        pad(observed),
        Positions(time_ns=pad(positions.time_ns), valid=pad(positions.valid)),
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_a_later_token_changes_nothing_before_it(layout: SequenceLayout, scheme: str):
    net, tokens = network(layout, scheme), random_tokens(layout, 20)
    values = tokens.values.clone()
    values[:, 12:] += 3.0
    before, _ = net(tokens)
    after, _ = net(tokens._replace(values=values))
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.allclose(before[:, 12:], after[:, 12:])


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_padding_on_either_side_changes_nothing(layout: SequenceLayout, scheme: str):
    net, tokens = network(layout, scheme), random_tokens(layout, 15)
    plain, _ = net(tokens)
    left, _ = net(padded(tokens, 5, 0))
    right, _ = net(padded(tokens, 0, 6))
    torch.testing.assert_close(left[:, 5:], plain, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(right[:, :15], plain, atol=2e-5, rtol=1e-4)
    assert torch.isfinite(left).all() and torch.isfinite(right).all()


@torch.no_grad()
def test_the_band_limits_what_a_layer_sees_in_tokens_and_in_seconds(layout: SequenceLayout):
    tokens = random_tokens(layout, 24)
    changed = tokens.values.clone()
    changed[:, 0] += 3.0
    # 2 layers of 4 tokens reach 6 tokens back: token 0 reaches token 6 and no further.
    net = network(layout, "time-rotary", context=4, context_s=None)
    a, _ = net(tokens)
    b, _ = net(tokens._replace(values=changed))
    assert torch.equal(a[:, 7:], b[:, 7:]) and not torch.equal(a[:, 6], b[:, 6])
    # A band of no more than the shortest step: each token sees itself alone.
    net = network(layout, "time-rotary", context=20, context_s=1e-9)
    a, _ = net(tokens)
    b, _ = net(tokens._replace(values=changed))
    assert torch.equal(a[:, 1:], b[:, 1:]) and not torch.equal(a[:, 0], b[:, 0])


@pytest.mark.parametrize("scheme", ["time-rotary", "time-sinusoidal"])
@torch.no_grad()
def test_moving_all_times_by_years_changes_nothing(layout: SequenceLayout, scheme: str):
    net, tokens = network(layout, scheme), random_tokens(layout, 20)
    moved = Positions(time_ns=tokens.positions.time_ns + 1_000_000_007 * 300_000_000, valid=tokens.positions.valid)
    here, _ = net(tokens)
    there, _ = net(tokens._replace(positions=moved))
    torch.testing.assert_close(here, there, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_stretching_time_reaches_the_output_of_time_schemes_only(layout: SequenceLayout):
    tokens = random_tokens(layout, 20)
    time_ns = tokens.positions.time_ns
    slower = Positions(time_ns=time_ns[:, :1] + 2 * (time_ns - time_ns[:, :1]), valid=tokens.positions.valid)
    for scheme in SCHEMES:
        net = network(layout, scheme, context_s=None)
        same = torch.equal(net(tokens)[0], net(tokens._replace(positions=slower))[0])
        assert same != scheme.startswith("time"), scheme


def test_the_last_token_alone_gives_what_the_whole_gives(layout: SequenceLayout):
    net, tokens = network(layout, "time-rotary", loss="gaussian"), random_tokens(layout, 20)
    with torch.no_grad():
        mean, log_std = net(tokens)
        last_mean, last_log_std = net.last(tokens)
    torch.testing.assert_close(last_mean, mean[:, -1])
    torch.testing.assert_close(last_log_std, log_std[:, -1])
    assert mean.shape == (2, 20, len(SEQUENCE["horizons_s"]), 3)


def test_an_action_of_the_present_alone_is_predicted(layout: SequenceLayout):
    present = replace(layout, horizons_s=(0.0,))
    mean, _ = network(present, "time-rotary")(random_tokens(present, 20))
    assert mean.shape[2] == 1 and torch.isfinite(mean).all()


def test_losses_count_what_the_mask_keeps():
    targets, mean = torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, 7.5]])
    mask = torch.tensor([[True, False]])
    log_std = torch.zeros(1, 2)
    for kind, expected in (("mse", 4.0), ("huber", 1.5), ("gaussian", 2.0)):
        total, count = loss_of(kind, mean, log_std, targets, mask)
        assert (total.item(), count.item()) == (expected, 1)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"size": "huge"}, "network.size is 'huge', must be one of tiny, small, base"),
        ({"context": 0}, "network.context is 0"),
        ({"window": 64}, r"network.window is 64, must be > network.context \(64\) tokens"),
        ({"context_s": -1.0}, "network.context_s is -1.0"),
        ({"loss": "l1"}, "network.loss is 'l1'"),
        ({"dropout": 1.0}, "network.dropout is 1.0"),
        ({"burn_in": 500}, "network.burn_in is 500"),
        ({"max_input_age_s": -0.1}, "network.max_input_age_s is -0.1, must be a time >= 0 in s"),
    ],
)
def test_wrong_settings_name_the_parameter(settings: dict, match: str):
    with pytest.raises(ConfigError, match=match):
        ModelSettings(**settings)
