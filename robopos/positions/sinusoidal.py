"""Sinusoids: fixed waves, added to the tokens."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.base import AdditiveEncoding, Clock, Options, clock_of
from robopos.positions.periods import periods_for
from robopos.positions.phases import TURN, angle, increments_of, periods_of, phase


class SinusoidalEncoding(AdditiveEncoding):
    """Sine and cosine of fixed periods, interleaved: channel 2k is sin, 2k + 1 is cos.

    On `index` the periods are 2π·base^(2k/dim) tokens; on `time` they run in geometric steps from
    `min_period_s` to `max_period_s`. Source: Vaswani et al. 2017, "Attention is all you need", §3.5.

    Args:
        dim: width, even.
        clock: `index` or `time`; `time` when a period is given, else `index`.
        base: on `index`, the ratio that sets the longest period (10000).
        min_period_s, max_period_s: on `time`, seconds (0.02 and 20).

    Attributes:
        increments: int64 (dim / 2,), turns·2⁻⁶⁴ per token or per nanosecond; they define the frequencies.

    Raises:
        PositionError: an odd width, a range that makes no sense, an option of the other clock.
    """

    OPTIONS: ClassVar[Options] = {"index": ("base",), "time": ("min_period_s", "max_period_s")}
    increments: Tensor
    ahead: Tensor

    def __init__(
        self,
        dim: int,
        *,
        clock: Clock | None = None,
        base: float | None = None,
        min_period_s: float | None = None,
        max_period_s: float | None = None,
    ) -> None:
        super().__init__(dim, clock_of(clock, min_period_s, max_period_s))
        if dim % 2:
            raise PositionError(f"dim is {dim}; sinusoids come in pairs, so it must be even")
        periods = periods_for(self.clock, dim // 2, base, min_period_s, max_period_s)
        self.register_buffer("increments", increments_of(periods))
        # A cosine is a sine a quarter turn ahead, which is exact in integers.
        self.register_buffer("ahead", torch.tensor([0, TURN // 4]).repeat(dim // 2), persistent=False)

    def periods(self) -> Tensor:
        return periods_of(self.increments) * self.unit

    def encode(self, ticks: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            # One sine a channel, without interleaving, is one fused loop; in eager it would be twice the integers.
            return angle(phase(ticks, self.increments.repeat_interleave(2)) + self.ahead, self.angle_dtype).sin()
        angles = angle(phase(ticks, self.increments), self.angle_dtype)
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
