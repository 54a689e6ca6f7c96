"""Options of positions by the rule: every scheme builds, and what the user gave stays."""

from __future__ import annotations

import pytest

from robopos.model import ModelSettings
from robopos.model.defaults import fill_position_options
from robopos.positions import build_positions
from robopos.positions.build import CLOCKS, SCHEMES

NAMES = [f"{clock}-{scheme}" for clock in CLOCKS for scheme in SCHEMES]


@pytest.mark.parametrize("name", ["none", *NAMES, "index-alibi+time-alibi", "index-sinusoidal+time-rotary"])
@pytest.mark.parametrize("interval_s", [1e-3, 0.2, 5.0])
@pytest.mark.parametrize("context_s", [None, 0.5])
def test_every_scheme_builds_at_any_rate(name: str, interval_s: float, context_s: float | None):
    settings = fill_position_options(ModelSettings(positions=name, context_s=context_s), interval_s)
    build_positions(name, dim=64, heads=4, **settings.position_options)


def test_the_rule_follows_rate_and_band_and_yields_to_the_user():
    settings = ModelSettings(positions="time-rotary", context_s=6.0, position_options={"max_period_s": 99.0})
    assert fill_position_options(settings, 0.25).position_options == {"min_period_s": 0.5, "max_period_s": 99.0}
    settings = fill_position_options(ModelSettings(positions="time-alibi", context=32), 0.5)
    # Four heads: 2^-2 to 2^-8 a token (Press 2022), twice that a second at two tokens a second.
    assert settings.position_options["slopes"] == [2 * 2.0**-k for k in (2, 4, 6, 8)]
    assert fill_position_options(ModelSettings(positions="index-learned", window=99), 1.0).position_options == {
        "max_length": 99
    }
