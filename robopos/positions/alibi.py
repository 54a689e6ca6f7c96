"""ALiBi: a penalty on the scores that grows in a straight line with the distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.base import Clock, Lookup, Options, ScoreBias

# Eight heads on time then forget over 1/8 s to 16 s, where eight heads on tokens forget over 2 to 256.
TIME_SLOPE_PER_TOKEN_SLOPE = 16.0
# Beyond this, rounding of the folded key terms in float32 exceeds 1e-5 of a score.
FOLD_LIMIT = 64.0


class AlibiBias(ScoreBias):
    """−slope·Δ, with Δ = position of the query − position of the key and one slope a head.

    Signed, so a message later in time than the query is favoured as much as one earlier is penalized: under
    softmax only the key's own term is left, which the fast path uses. Source: Press et al. 2022, "Train
    short, test long: attention with linear biases".

    Args:
        heads: heads of the attention.
        clock: `index` (default) or `time`.
        slopes: one a head, >= 0, per token or per second. None: the geometric ones of the paper, times 16
            per second on `time`.

    Attributes:
        slopes: (heads,).

    Raises:
        PositionError: slopes of another number than heads, negative or not finite.
    """

    OPTIONS: ClassVar[Options] = {"index": ("slopes",), "time": ("slopes",)}
    slopes: Tensor

    def __init__(self, heads: int, *, clock: Clock = "index", slopes: Sequence[float] | None = None) -> None:
        super().__init__(heads, clock)
        if slopes is None:
            scale = TIME_SLOPE_PER_TOKEN_SLOPE if clock == "time" else 1.0
            slopes = [scale * slope for slope in geometric_slopes(heads)]
        if len(slopes) != heads or not all(0 <= slope < math.inf for slope in slopes):
            raise PositionError(f"slopes are {list(slopes)}; allowed are {heads} numbers >= 0, one a head")
        self.register_buffer("slopes", torch.tensor(slopes, dtype=torch.get_default_dtype()))

    def term(self, queries: Tensor, keys: Tensor) -> AlibiTerm:
        return AlibiTerm(self.slopes.to(self.angle_dtype) * self.unit, queries, keys)


class AlibiTerm(NamedTuple):
    """The bias between given queries and keys."""

    slopes: Tensor
    """(heads,), per tick."""
    queries: Tensor
    """int64 (..., Nq) ticks."""
    keys: Tensor
    """int64 (..., Nk) ticks."""

    def scores(self, rows: slice, end: int | None) -> Tensor:
        """(..., heads, rows, end), for a block of queries; the distance is taken in integers."""
        distance = self.queries[..., rows].unsqueeze(-1) - self.keys[..., :end].unsqueeze(-2)
        return distance.unsqueeze(-3).to(self.slopes.dtype) * -self.slopes[:, None, None]

    def lookup(self, batch: int) -> Lookup:
        """−slope·Δ of one score."""
        slopes = self.slopes
        queries = self.queries.expand(batch, self.queries.shape[-1])
        keys = self.keys.expand(batch, self.keys.shape[-1])

        def bias(window: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return (queries[window, row] - keys[window, column]).to(slopes.dtype) * -slopes[head]

        return bias

    def folded(self, valid: Tensor | None) -> Tensor | None:
        """(..., heads, Nk): slope·(key − middle), to which the bias reduces under softmax.

        None where that would round the scores: slope × span of the keys above 64, or where the host cannot
        look at the span without stalling the device.
        """
        if self.keys.device.type != "cpu" or torch.compiler.is_compiling() or self.keys.numel() == 0:
            return None
        keys = self.keys
        if valid is not None:
            # An empty slot may hold any number; it must not stretch the span.
            first = valid.long().argmax(-1, keepdim=True)
            keys = torch.where(valid, keys, keys.expand(valid.shape).gather(-1, first))
        oldest, newest = keys.amin(-1, keepdim=True), keys.amax(-1, keepdim=True)
        if float((newest - oldest).max() * self.slopes.max()) > FOLD_LIMIT:
            return None
        from_middle = keys - oldest - (newest - oldest) // 2
        return from_middle.unsqueeze(-2).to(self.slopes.dtype) * self.slopes[:, None]


def geometric_slopes(heads: int) -> list[float]:
    """The slopes of Press et al. 2022: 2^(−8/heads), its square, …; between powers of two, every second one
    of the next power fills up."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-8 * (head + 0.5) / power) for head in range(power)]
    return slopes + between[: heads - power]
