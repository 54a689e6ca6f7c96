"""The rule that gives position options their values from the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from robopos.model.settings import SIZES, ModelSettings
from robopos.positions import RelativeBias, geometric_slopes


def fill_position_options(settings: ModelSettings, interval_s: float) -> ModelSettings:
    """Options that the user left out, from the median interval between tokens.

    Schemes on time take the scale of their index counterparts through the interval and the band: periods run from 2
    intervals (the shortest that samples can tell apart) to 4 times the reach of attention in seconds, so that the
    slowest turns by a quarter over it; alibi's slopes per token become slopes per second; relative buckets run from
    one interval to the reach; a learned table of times spans a window. On the index, a learned table has a row for each
    token of the window, and relative buckets run to the context.
    """
    parts = settings.positions.split("+")
    options: dict[str, Any] = {}
    for part in parts:
        options |= _options(part, settings, interval_s)
    if {"index-alibi", "time-alibi"} <= set(parts):
        # One option cannot be both per token and per second.
        options.pop("slopes", None)
    return replace(settings, position_options=options | settings.position_options)


def _options(part: str, settings: ModelSettings, interval_s: float) -> dict[str, Any]:
    reach_s = settings.context_s if settings.context_s is not None else settings.context * interval_s
    if part in ("time-sinusoidal", "time-rotary", "time-fourier", "time-time2vec"):
        return {"min_period_s": 2 * interval_s, "max_period_s": max(4 * reach_s, 4 * interval_s)}
    if part == "time-alibi":
        return {"slopes": [slope / interval_s for slope in geometric_slopes(SIZES[settings.size].heads)]}
    if part == "time-relative":
        return {"min_s": interval_s, "max_s": max(reach_s, 2 * interval_s)}
    if part == "time-learned":
        return {"max_s": settings.window * interval_s}
    if part == "index-learned":
        return {"max_length": settings.window}
    if part == "index-relative":
        # A bucket holds a token at least.
        return {"max_distance": max(settings.context, settings.position_options.get("buckets", RelativeBias.BUCKETS))}
    return {}
