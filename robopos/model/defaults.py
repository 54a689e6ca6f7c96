"""The rule that gives position options their values from the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from robopos.model.settings import ModelSettings


def fill_position_options(settings: ModelSettings, interval_s: float) -> ModelSettings:
    """Options that the user left out, from the median interval between tokens.

    Periods of a scheme on time run from 2 intervals (the shortest that samples can tell apart) to 4 times the reach of
    attention in seconds, so that the slowest turns by a quarter over it. A learned table on the index has a row for
    each token of the window.
    """
    reach_s = settings.context_s if settings.context_s is not None else settings.context * interval_s
    options: dict[str, Any] = {}
    for part in settings.positions.split("+"):
        if part in ("time-sinusoidal", "time-rotary"):
            options |= {"min_period_s": 2 * interval_s, "max_period_s": max(4 * reach_s, 4 * interval_s)}
        elif part == "index-learned":
            options |= {"max_length": settings.window}
    return replace(settings, position_options=options | settings.position_options)
