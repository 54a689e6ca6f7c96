"""Context extension for rotary: static changes of its periods for longer windows than were trained."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext
from typing import Literal, NamedTuple, get_args

from robopos.errors import PositionError
from robopos.positions.phases import DIGITS

Scaling = Literal["linear", "ntk", "yarn"]
# Waves that turned more often than this in the trained window are kept, fewer than once are stretched.
YARN_FAST, YARN_SLOW = 32, 1


class Stretched(NamedTuple):
    """Periods after the extension, and by how much queries and keys are scaled."""

    periods: list[Decimal]
    temperature: float


def stretch(
    periods: list[Decimal], scaling: Scaling | None, factor: float | None, original: Decimal | None
) -> Stretched:
    """Stretch `periods` for windows `factor` times as long as the trained ones.

    Args:
        periods: in ticks, shortest first.
        scaling: `linear` stretches every wave (Chen et al. 2023, "Position interpolation"); `ntk` the slowest
            fully, the fastest not at all, those between geometrically (bloc97 2023, "NTK-aware scaled RoPE");
            `yarn` by how often a wave turned in the trained window, and sharpens attention by
            0.1·ln(factor) + 1 on queries and keys (Peng et al. 2023, §3.2 and §3.4).
        factor: above 1.
        original: ticks of the trained window, for `yarn`.

    Raises:
        PositionError: an unknown scaling, a factor of 1 or less, a setting missing or without use.
    """
    if scaling is None:
        if factor is not None or original is not None:
            raise PositionError("factor, original_length and original_s need scaling='linear', 'ntk' or 'yarn'")
        return Stretched(periods, 1.0)
    if scaling not in get_args(Scaling):
        raise PositionError(f"scaling is {scaling!r}; allowed are 'linear', 'ntk' and 'yarn'")
    if factor is None or not 1 < factor < math.inf:
        raise PositionError(f"factor is {factor}; scaling={scaling!r} needs a finite number above 1")
    if (scaling == "yarn") != (original is not None):
        raise PositionError(
            f"scaling={scaling!r}: 'yarn' needs original_length (on index) or original_s (on time), above 0; "
            "the others take neither"
        )
    temperature = 0.1 * math.log(factor) + 1 if scaling == "yarn" else 1.0
    with localcontext() as context:
        context.prec = DIGITS
        times = Decimal(str(factor))
        if scaling == "linear":
            stretched = [period * times for period in periods]
        elif scaling == "ntk":
            last = max(len(periods) - 1, 1)
            stretched = [period * times ** (Decimal(k) / last) for k, period in enumerate(periods)]
        else:
            assert original is not None
            stretched = [_yarn(period, times, original) for period in periods]
    changed = sum(new != old for new, old in zip(stretched, periods, strict=True))
    warnings.warn(
        f"rotary with scaling={scaling!r} and factor={factor}: {changed} of {len(periods)} frequencies are not "
        "those that weights trained without it have seen, and are untrained for them; fine-tune",
        stacklevel=3,
    )
    return Stretched(stretched, temperature)


def _yarn(period: Decimal, factor: Decimal, original: Decimal) -> Decimal:
    turns = original / period
    kept = min(max((turns - YARN_SLOW) / (YARN_FAST - YARN_SLOW), Decimal(0)), Decimal(1))
    # The frequencies are mixed, not the periods.
    return period / (kept + (1 - kept) / factor)
