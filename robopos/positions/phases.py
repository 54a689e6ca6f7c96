"""Exact phases: fixed-point turns instead of floating-point angles.

A frequency is an integer, the *increment*: turns·2⁻⁶⁴ per tick, where a tick is one token or one
nanosecond. `ticks * increments` wraps in int64 exactly as a phase wraps at a full turn, so the phase is
exact for every epoch and every age; only its conversion to an angle in [−π, π] rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import torch
from torch import Tensor

TURN = 2**64
RADIANS = 2 * math.pi / TURN
DIGITS = 50


def increments_of(periods: Sequence[Decimal]) -> Tensor:
    """int64 (F,): round(2⁶⁴ / period), made with exact arithmetic, wrapped to the sign of int64."""
    with localcontext() as context:
        context.prec = DIGITS
        turns = [int((TURN / period).to_integral_value()) for period in periods]
    return torch.tensor([(turn + TURN // 2) % TURN - TURN // 2 for turn in turns], dtype=torch.int64)


def periods_of(increments: Tensor) -> Tensor:
    """float64 (F,) ticks: the inverse of `increments_of`, but for rounding; 2⁶⁴ for what does not turn."""
    turn = float(TURN)  # torch takes no integer so large
    return turn / (increments.double() % turn).clamp(min=1)


def phase(ticks: Tensor, increments: Tensor) -> Tensor:
    """int64 (..., N) ticks and (F,) increments → int64 (..., N, F) turns·2⁻⁶⁴, wrapped, exact."""
    return ticks.unsqueeze(-1) * increments


def learned_angle(ticks: Tensor, frequency: Tensor, unit: float, dtype: torch.dtype) -> Tensor:
    """Radians (..., N, F) of int64 (..., N) ticks at learned frequencies (F,), in cycles per `unit`⁻¹ ticks.

    The value is as exact as that of fixed increments: the frequency becomes one. The gradient is that of
    2π·frequency·elapsed, whose own value, a large float, is never used.
    """
    cycles = frequency.detach().double() * unit
    # Whole cycles per tick are invisible; without them the increment fits. Doubling wraps, float could not.
    increments = ((cycles - cycles.round()) * (TURN // 2)).round().long() * 2
    elapsed = (ticks.to(dtype) * unit).unsqueeze(-1)
    moving = frequency.to(dtype)
    return angle(phase(ticks, increments), dtype) + (moving - moving.detach()) * elapsed * (2 * math.pi)


def angle(phases: Tensor, dtype: torch.dtype) -> Tensor:
    """The phase in radians, [−π, π], in float32 or float64."""
    return phases.to(dtype) * RADIANS
