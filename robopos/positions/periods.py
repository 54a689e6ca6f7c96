"""Which periods a scheme of fixed waves has, on either clock, and how rotary stretches them."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.base import Clock
from robopos.positions.phases import DIGITS
from robopos.stamps import NS_PER_S

PI = Decimal("3.14159265358979323846264338327950288419716939937510")
BASE = 10000.0
# The rule min = 2 × median Δt, max = 4 × context_s, for streams of 100 Hz and a context of 5 s.
MIN_PERIOD_S = 0.02
MAX_PERIOD_S = 20.0


def periods_for(
    clock: Clock,
    count: int,
    base: float | None,
    min_period_s: float | None,
    max_period_s: float | None,
) -> list[Decimal]:
    """`count` periods in ticks of the clock, shortest first; None takes the default.

    Raises:
        PositionError: an option of the other clock, or a range that makes no sense.
    """
    if clock == "index":
        if min_period_s is not None or max_period_s is not None:
            raise PositionError("min_period_s and max_period_s are for the clock 'time'; 'index' takes base")
        return index_periods(count, BASE if base is None else base)
    if base is not None:
        raise PositionError("base belongs to the clock 'index'; 'time' takes min_period_s and max_period_s")
    return time_periods(
        count,
        MIN_PERIOD_S if min_period_s is None else min_period_s,
        MAX_PERIOD_S if max_period_s is None else max_period_s,
    )


def frequencies_of(clock: Clock, periods: list[Decimal]) -> Tensor:
    """(F,) cycles per token or per second, in the default type."""
    ticks = 1 if clock == "index" else NS_PER_S
    return torch.tensor([float(ticks / period) for period in periods], dtype=torch.get_default_dtype())


def index_periods(count: int, base: float) -> list[Decimal]:
    """Periods in tokens, 2π·base^(k / count) for k < count (Vaswani et al. 2017, §3.5; Su et al. 2021).

    Raises:
        PositionError: `base` is not a finite number above 1.
    """
    if not 1 < base < math.inf:
        raise PositionError(f"base is {base}; it must be a finite number above 1")
    with localcontext() as context:
        context.prec = DIGITS
        return [2 * PI * Decimal(str(base)) ** (Decimal(k) / count) for k in range(count)]


def time_periods(count: int, min_period_s: float, max_period_s: float) -> list[Decimal]:
    """Periods in nanoseconds, in geometric steps from the shortest to the longest, both included.

    Raises:
        PositionError: the range makes no sense; a period below 2 ns cannot be seen by a clock of 1 ns.
    """
    if not 2e-9 <= min_period_s < max_period_s < math.inf:
        raise PositionError(
            f"periods from min_period_s={min_period_s} to max_period_s={max_period_s} make no sense: "
            "allowed is 2e-9 <= min_period_s < max_period_s < inf"
        )
    with localcontext() as context:
        context.prec = DIGITS
        # Through str, so that 0.02 means 0.02 and not the nearest binary fraction.
        shortest, longest = Decimal(str(min_period_s)), Decimal(str(max_period_s))
        steps = max(count - 1, 1)
        return [NS_PER_S * shortest * (longest / shortest) ** (Decimal(k) / steps) for k in range(count)]
