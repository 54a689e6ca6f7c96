"""Rotary: queries and keys are turned, so that their product depends on the distance alone."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import ClassVar

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.base import Clock, Options, Rotation, clock_of
from robopos.positions.periods import periods_for
from robopos.positions.phases import angle, increments_of, periods_of, phase
from robopos.positions.positions import Positions
from robopos.positions.scaling import Scaling, stretch
from robopos.stamps import NS_PER_S


class RotaryEmbedding(Rotation):
    """Rotary position embedding, on pairs of neighbouring channels (2k, 2k + 1).

    On `index` the periods are 2π·base^(2k/dim) tokens; on `time` they run in geometric steps from
    `min_period_s` to `max_period_s`. Source: Su et al. 2021, "RoFormer".

    Args:
        dim: width of one head, even.
        clock: `index` or `time`; `time` when a period is given, else `index`.
        base: on `index`, the ratio that sets the longest period (10000).
        min_period_s, max_period_s: on `time`, seconds (0.02 and 20).
        scaling: `linear`, `ntk` or `yarn` for windows longer than were trained, see `scaling.stretch`.
        factor: how many times as long, above 1.
        original_length, original_s: for `yarn`, the trained window in tokens on `index`, seconds on `time`.

    Attributes:
        increments: int64 (dim / 2,), turns·2⁻⁶⁴ per token or per nanosecond; they define the frequencies.
        temperature: what queries and keys are multiplied by (1 but for `yarn`).

    Raises:
        PositionError: an odd width, a range that makes no sense, an option of the other clock.
    """

    OPTIONS: ClassVar[Options] = {
        "index": ("base", "scaling", "factor", "original_length"),
        "time": ("min_period_s", "max_period_s", "scaling", "factor", "original_s"),
    }
    increments: Tensor

    def __init__(
        self,
        dim: int,
        *,
        clock: Clock | None = None,
        base: float | None = None,
        min_period_s: float | None = None,
        max_period_s: float | None = None,
        scaling: Scaling | None = None,
        factor: float | None = None,
        original_length: int | None = None,
        original_s: float | None = None,
    ) -> None:
        super().__init__(clock_of(clock, min_period_s, max_period_s, original_s))
        if dim < 2 or dim % 2:
            raise PositionError(f"dim of one head is {dim}; rotary turns pairs of channels: it must be even")
        self.dim = dim
        original = _window(self.clock, original_length, original_s)
        periods = periods_for(self.clock, dim // 2, base, min_period_s, max_period_s)
        stretched = stretch(periods, scaling, factor, original)
        self.temperature = stretched.temperature
        self.register_buffer("increments", increments_of(stretched.periods))

    def periods(self) -> Tensor:
        return periods_of(self.increments) * self.unit

    def phases(self, ticks: Tensor) -> Tensor:
        return phase(ticks, self.increments)

    def forward(self, q: Tensor, k: Tensor, positions: Positions | Tensor) -> tuple[Tensor, Tensor]:
        """The same as `rotate`."""
        return self.rotate(q, k, positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions | Tensor) -> tuple[Tensor, Tensor]:
        """Turn q and k (..., heads, N, dim) by their positions: `Positions`, or int64 ticks (..., N)."""
        table = rotation_table(self.phases(self.ticks(positions)), self.temperature, self.angle_dtype)
        return turn(q, table), turn(k, table)


def rotation_table(phases: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """int64 (..., N, F) → (..., 1, N, F, 2): cosine and sine, with a dimension for the heads."""
    angles = angle(phases, dtype)
    return (torch.stack((angles.cos(), angles.sin()), dim=-1) * temperature).unsqueeze(-4)


def turn(x: Tensor, table: Tensor) -> Tensor:
    """Turn each pair of channels of x (..., heads, N, 2F) by `table` (..., 1, N, F, 2), in its type.

    bf16 is turned in float32 and cast after: turning by a rounded table doubles the error.
    """
    pairs = x.to(table.dtype).reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    if torch.compiler.is_compiling():
        # Compilers fuse the real form and know no complex numbers.
        real, imaginary = pairs.unbind(-1)
        cosine, sine = table.unbind(-1)
        turned = torch.stack((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)
    else:
        if not _is_complex_view(pairs):
            pairs = pairs.contiguous()
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(table))
    return turned.flatten(-2).to(x.dtype)


def _window(clock: Clock, original_length: int | None, original_s: float | None) -> Decimal | None:
    """The trained window in ticks of the clock."""
    given, foreign, name = (
        (original_length, original_s, "original_s")
        if clock == "index"
        else (original_s, original_length, "original_length")
    )
    if foreign is not None:
        raise PositionError(f"{name} is for the other clock; this one is {clock!r}")
    if given is None:
        return None
    if not 0 < given < math.inf:
        raise PositionError(f"the original window is {given}; it must be above 0")
    return Decimal(str(given)) * (1 if clock == "index" else NS_PER_S)


def _is_complex_view(pairs: Tensor) -> bool:
    *strides, last = pairs.stride()
    return last == 1 and pairs.storage_offset() % 2 == 0 and all(stride % 2 == 0 for stride in strides)
