"""Learned vectors: a table of token numbers, or a polyline over time."""

from __future__ import annotations

import math
import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from robopos.errors import PositionError
from robopos.positions.base import AdditiveEncoding, Clock, Options, clock_of
from robopos.positions.positions import Positions
from robopos.stamps import NS_PER_S

MAX_LENGTH = 1024
MOST_ROWS = 1 << 20
MAX_S = 10.0


class LearnedEncoding(AdditiveEncoding):
    """One learned vector a token number; on time, vectors at knots with straight lines between them.

    On `index` the table has `max_length` rows and a position outside it is an error. On `time` the
    `max_length` rows are knots at equal steps over [0, max_s]: the encoding is continuous in time and has a
    slope everywhere but at the knots. Beyond the ends it is held, and the tokens are counted in `outside`.
    Source of the table: Radford et al. 2019 (GPT-2); initial values from N(0, 0.02²) as there.

    Args:
        dim: width.
        clock: `index` or `time`; `time` when `max_s` is given, else `index`.
        max_length: rows of the table (1024).
        max_s: on `time`, the seconds that the knots span (10).
        strict: on `time`, a time outside [0, max_s] is an error instead of held.

    Attributes:
        weight: (max_length, dim).
        outside: int64 (), tokens held at an end so far, counted in eager mode; not in `state_dict`.

    Raises:
        PositionError: a table too small, a span that is not positive, an option of the other clock.

    Values are checked where the host can look, in eager mode on the CPU. Elsewhere, where a check would
    stall the device and an index out of bounds would kill it, the rows that are an error become NaN.
    """

    OPTIONS: ClassVar[Options] = {"index": ("max_length",), "time": ("max_length", "max_s", "strict")}
    outside: Tensor

    def __init__(
        self,
        dim: int,
        *,
        clock: Clock | None = None,
        max_length: int = MAX_LENGTH,
        max_s: float | None = None,
        strict: bool | None = None,
    ) -> None:
        super().__init__(dim, clock_of(clock, max_s, strict))
        if self.clock == "index" and (max_s is not None or strict is not None):
            raise PositionError("max_s and strict belong to the clock 'time'; 'index' takes max_length")
        shortest = 1 if self.clock == "index" else 2
        if not shortest <= max_length <= MOST_ROWS:
            raise PositionError(
                f"max_length is {max_length}; a table on {self.clock} has {shortest} to {MOST_ROWS} rows"
            )
        self.strict = self.clock == "index" or bool(strict)
        self.step_ns = _step_ns(MAX_S if max_s is None else max_s, max_length) if self.clock == "time" else 1
        self.weight = nn.Parameter(torch.empty(max_length, dim).normal_(std=0.02))
        self.register_buffer("outside", torch.zeros((), dtype=torch.int64), persistent=False)

    @property
    def max_length(self) -> int:
        """Rows of the table."""
        return self.weight.shape[0]

    @property
    def max_s(self) -> float:
        """Seconds that the knots span."""
        return self.step_ns * (self.max_length - 1) / NS_PER_S

    def at(self, positions: Positions, count: int) -> Tensor:
        # Counted tokens need no look at values: their last number is known on every device.
        counted = positions.index is None and positions.valid is None
        if self.clock == "index" and counted and count > self.max_length and not torch.compiler.is_compiling():
            raise self._outside(self.max_length)
        return super().at(positions, count)

    def encode(self, ticks: Tensor) -> Tensor:
        last = self.max_length - 1
        held = ticks.clamp(0, last * self.step_ns)
        beyond = held != ticks
        self._report(ticks, beyond)
        if self.clock == "index":
            rows = nn.functional.embedding(held, self.weight)
        else:
            # Whole knots in integers first: the fraction is exact however long the span is.
            knot = (held // self.step_ns).clamp(max=last - 1)
            fraction = ((held - knot * self.step_ns).to(self.angle_dtype) / self.step_ns).unsqueeze(-1)
            weight = self.weight.to(self.angle_dtype)
            before = nn.functional.embedding(knot, weight)
            rows = before + fraction * (nn.functional.embedding(knot + 1, weight) - before)
        if self.strict and not _host_can_look(ticks):
            rows = rows.masked_fill(beyond.unsqueeze(-1), math.nan)
        return rows

    def resize(self, new_length: int) -> LearnedEncoding:
        """Grow the table to `new_length` rows, in place; the optimizer must be told of the new parameter.

        The old rows are kept. The new ones repeat the table's course, stretched to the new length, as a
        start better than noise: they are untrained, which a warning says.

        Raises:
            PositionError: the table would shrink.
        """
        length = self.max_length
        if new_length < length:
            raise PositionError(f"new_length is {new_length}; the table has {length} rows and can only grow")
        with torch.no_grad():
            course = nn.functional.interpolate(
                self.weight.T.unsqueeze(0).float(), new_length, mode="linear", align_corners=True
            )
            rows = torch.cat((self.weight, course[0].T[length:].to(self.weight.dtype)))
        self.weight = nn.Parameter(rows, requires_grad=self.weight.requires_grad)
        if new_length > length:
            warnings.warn(
                f"rows {length} to {new_length - 1} of the learned table are untrained: they were "
                "interpolated from the others; train before relying on positions there",
                stacklevel=2,
            )
        return self

    def _report(self, ticks: Tensor, beyond: Tensor) -> None:
        if not self.strict:
            if not torch.compiler.is_compiling():
                self.outside += beyond.sum()
        elif _host_can_look(ticks) and bool(beyond.any()):
            raise self._outside(int(ticks[beyond][0]))

    def _outside(self, tick: int) -> PositionError:
        if self.clock == "index":
            return PositionError(
                f"position {tick} is outside the learned table of max_length={self.max_length}: "
                f"allowed are 0 to {self.max_length - 1}"
            )
        return PositionError(
            f"time {tick / NS_PER_S} s after the origin is outside the knots, which span 0 to "
            f"max_s={self.max_s}; strict=False holds the nearest knot"
        )


def _step_ns(max_s: float, knots: int) -> int:
    if not 0 < max_s < math.inf:
        raise PositionError(f"max_s is {max_s}; it must be a positive number of seconds")
    # Rounded up, so that max_s itself is never outside.
    return -(-round(max_s * NS_PER_S) // (knots - 1))


def _host_can_look(ticks: Tensor) -> bool:
    return ticks.device.type == "cpu" and not torch.compiler.is_compiling()
