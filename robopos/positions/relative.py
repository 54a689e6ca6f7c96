"""Relative bias: a learned number a head and a bucket of distances."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from robopos.errors import PositionError
from robopos.positions.base import Clock, Lookup, Options, ScoreBias, clock_of
from robopos.stamps import NS_PER_S

MAX_DISTANCE = 128
MIN_S = 0.005
MAX_S = 10.0


class RelativeBias(ScoreBias):
    """One learned number a head and a bucket of Δ = position of the query − position of the key.

    On `index` the buckets are those of T5 for causal attention: one a token up to half of them, then
    log-spaced up to `max_distance`. On `time` they are log-spaced: bucket 0 holds Δ <= 0, bucket 1 what is
    below `min_s`, the last what is `max_s` and above. Source: Raffel et al. 2020, "Exploring the limits of
    transfer learning with a unified text-to-text transformer".

    Args:
        heads: heads of the attention.
        clock: `index` or `time`; `time` when `min_s` or `max_s` is given, else `index`.
        buckets: how many, 4 to 256 and even (32).
        max_distance: on `index`, tokens from which on all share the last bucket (128).
        min_s, max_s: on `time`, seconds (0.005 and 10).

    Attributes:
        weight: (heads, buckets), initially 0: no opinion.
        boundaries: int64 (buckets − 1,), the first tick of bucket 1, 2, …

    Raises:
        PositionError: a number of buckets or a range that makes no sense, an option of the other clock.
    """

    OPTIONS: ClassVar[Options] = {"index": ("buckets", "max_distance"), "time": ("buckets", "min_s", "max_s")}
    BUCKETS: ClassVar[int] = 32
    boundaries: Tensor

    def __init__(
        self,
        heads: int,
        *,
        clock: Clock | None = None,
        buckets: int = BUCKETS,
        max_distance: int | None = None,
        min_s: float | None = None,
        max_s: float | None = None,
    ) -> None:
        super().__init__(heads, clock_of(clock, min_s, max_s))
        if not 4 <= buckets <= 256 or buckets % 2:
            raise PositionError(f"buckets is {buckets}; allowed are even numbers from 4 to 256")
        if self.clock == "index":
            if min_s is not None or max_s is not None:
                raise PositionError("min_s and max_s are for the clock 'time'; 'index' takes max_distance")
            bounds = token_boundaries(buckets, MAX_DISTANCE if max_distance is None else max_distance)
        else:
            if max_distance is not None:
                raise PositionError("max_distance is for the clock 'index'; 'time' takes min_s and max_s")
            bounds = time_boundaries(buckets, MIN_S if min_s is None else min_s, MAX_S if max_s is None else max_s)
        self.weight = nn.Parameter(torch.zeros(heads, buckets))
        self.register_buffer("boundaries", torch.tensor(bounds))

    def term(self, queries: Tensor, keys: Tensor) -> RelativeTerm:
        distance = queries.unsqueeze(-1) - keys.unsqueeze(-2)
        # One byte a pair, shared by the heads and the layers.
        bucket = torch.bucketize(distance, self.boundaries, right=True, out_int32=True).to(torch.uint8)
        return RelativeTerm(self.weight, bucket)


class RelativeTerm(NamedTuple):
    """The bias between given queries and keys."""

    weight: Tensor
    """(heads, buckets)."""
    bucket: Tensor
    """uint8 (..., Nq, Nk)."""

    def scores(self, rows: slice, end: int | None) -> Tensor:
        """(..., heads, rows, end), for a block of queries."""
        bucket = self.bucket[..., rows, :end]
        # The bucket's number read off the row of each head; a gather along the table's own axis.
        picked = self.weight.index_select(1, bucket.flatten().int())
        return picked.view(self.weight.shape[0], *bucket.shape).movedim(0, -3)

    def lookup(self, batch: int) -> Lookup:
        """The number of one score's bucket."""
        weight, bucket = self.weight, self.bucket.expand(batch, *self.bucket.shape[-2:])

        def bias(window: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
            return weight[head, bucket[window, row, column].int()]

        return bias

    def folded(self, valid: Tensor | None) -> Tensor | None:
        """Never: the bucket belongs to the pair."""
        return None


def token_boundaries(buckets: int, max_distance: int) -> list[int]:
    """The first distance of bucket 1, 2, … as T5 numbers them for causal attention.

    Raises:
        PositionError: `max_distance` does not leave a token to each bucket.
    """
    exact = buckets // 2
    if max_distance < buckets:
        raise PositionError(f"max_distance is {max_distance}; with {buckets} buckets it is at least {buckets}")

    def bucket_of(distance: int) -> int:
        if distance < exact:
            return distance
        share = math.log(distance / exact) / math.log(max_distance / exact)
        return min(exact + int(share * (buckets - exact)), buckets - 1)

    # Bisection: the greatest distance is anyone's number.
    distances = range(max_distance + 1)
    return [bisect_left(distances, bucket, key=bucket_of) for bucket in range(1, buckets)]


def time_boundaries(buckets: int, min_s: float, max_s: float) -> list[int]:
    """1 ns, then geometric steps from `min_s` to `max_s`, in nanoseconds.

    Raises:
        PositionError: the range makes no sense.
    """
    if not 2e-9 <= min_s < max_s < math.inf:
        raise PositionError(
            f"buckets from min_s={min_s} to max_s={max_s} make no sense: allowed is 2e-9 <= min_s < max_s < inf"
        )
    steps = buckets - 3
    return [1, *(round(min_s * NS_PER_S * (max_s / min_s) ** (step / steps)) for step in range(steps + 1))]
