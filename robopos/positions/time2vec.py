"""Time2Vec: one straight line and many learned waves."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from robopos.errors import PositionError
from robopos.positions.base import AdditiveEncoding, Clock, Options, clock_of
from robopos.positions.periods import frequencies_of, periods_for
from robopos.positions.phases import learned_angle


class Time2VecEncoding(AdditiveEncoding):
    """Channel 0 is slope·t + offset, the others are sin(2π·frequency·t + shift), all learned.

    Source: Kazemi et al. 2019, "Time2Vec: learning a vector representation of time". The frequencies start
    at geometric periods and the line at one unit per longest period; the shifts start anywhere on the circle.

    Args:
        dim: width, at least 2.
        clock: `index` or `time`; `time` when a period is given, else `index`.
        base: on `index`, the ratio that sets the longest initial period (10000).
        min_period_s, max_period_s: on `time`, the initial range in seconds (0.02 and 20).

    Attributes:
        slope, offset: (), the line, per token or per second.
        frequency, shift: (dim − 1,), cycles per token or per second, and radians.

    Raises:
        PositionError: a width below 2, a range that makes no sense, an option of the other clock.
    """

    OPTIONS: ClassVar[Options] = {"index": ("base",), "time": ("min_period_s", "max_period_s")}

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
        if dim < 2:
            raise PositionError(f"dim is {dim}; the line and at least one wave need 2")
        periods = periods_for(self.clock, dim - 1, base, min_period_s, max_period_s)
        frequencies = frequencies_of(self.clock, periods)
        self.slope = nn.Parameter(frequencies[-1].clone())
        self.offset = nn.Parameter(torch.zeros(()))
        self.frequency = nn.Parameter(frequencies)
        self.shift = nn.Parameter(torch.empty(dim - 1).uniform_(-math.pi, math.pi))

    def periods(self) -> Tensor:
        return 1 / self.frequency.detach().double().abs().clamp(min=1e-12)

    def encode(self, ticks: Tensor) -> Tensor:
        dtype = self.angle_dtype
        angles = learned_angle(ticks, self.frequency, self.unit, dtype) + self.shift.to(dtype)
        line = ticks.to(dtype) * self.unit * self.slope.to(dtype) + self.offset.to(dtype)
        return torch.cat((line.unsqueeze(-1), angles.sin()), dim=-1)
