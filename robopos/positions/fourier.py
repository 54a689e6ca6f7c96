"""Learned Fourier features: waves whose frequencies are trained, mixed by a small network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from robopos.errors import PositionError
from robopos.positions.base import AdditiveEncoding, Clock, Options, clock_of
from robopos.positions.periods import frequencies_of, periods_for
from robopos.positions.phases import learned_angle

MOST = 8192  # features, and units of the hidden layer


class FourierEncoding(AdditiveEncoding):
    """Cosines and sines of learned frequencies, scaled by 1/√features, then Linear, GELU, Linear.

    Source: Li et al. 2021, "Learnable Fourier features for multi-dimensional spatial positional encoding".
    The frequencies start at geometric periods, as those of the sinusoids, instead of at normal draws: one
    clock in one dimension has no scale that a draw could be given.

    Args:
        dim: width.
        clock: `index` or `time`; `time` when a period is given, else `index`.
        features: cosines and sines together, even (dim, rounded up to even).
        hidden: width of the hidden layer (dim).
        base: on `index`, the ratio that sets the longest initial period (10000).
        min_period_s, max_period_s: on `time`, the initial range in seconds (0.02 and 20).

    Attributes:
        frequency: (features / 2,), cycles per token or per second.

    Raises:
        PositionError: an odd number of features, a range that makes no sense, an option of the other clock.
    """

    OPTIONS: ClassVar[Options] = {
        "index": ("features", "hidden", "base"),
        "time": ("features", "hidden", "min_period_s", "max_period_s"),
    }

    def __init__(
        self,
        dim: int,
        *,
        clock: Clock | None = None,
        features: int | None = None,
        hidden: int | None = None,
        base: float | None = None,
        min_period_s: float | None = None,
        max_period_s: float | None = None,
    ) -> None:
        super().__init__(dim, clock_of(clock, min_period_s, max_period_s))
        features = dim + dim % 2 if features is None else features
        hidden = dim if hidden is None else hidden
        if not 2 <= features <= MOST or features % 2:
            raise PositionError(f"features is {features}; cosines and sines come in pairs: even, from 2 to {MOST}")
        if not 1 <= hidden <= MOST:
            raise PositionError(f"hidden is {hidden}; it must be from 1 to {MOST}")
        periods = periods_for(self.clock, features // 2, base, min_period_s, max_period_s)
        self.frequency = nn.Parameter(frequencies_of(self.clock, periods))
        self.mlp = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def periods(self) -> Tensor:
        return 1 / self.frequency.detach().double().abs().clamp(min=1e-12)

    def encode(self, ticks: Tensor) -> Tensor:
        angles = learned_angle(ticks, self.frequency, self.unit, self.angle_dtype)
        waves = torch.cat((angles.cos(), angles.sin()), dim=-1) * (2 * self.frequency.numel()) ** -0.5
        mixed: Tensor = self.mlp(waves.to(self.like.dtype))
        return mixed
