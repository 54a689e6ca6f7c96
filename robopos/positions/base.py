"""The plug-in contract: what a position scheme is, in three kinds.

An `AdditiveEncoding` is added to the tokens; a `Rotation` turns queries and keys; a `ScoreBias` is added
to the attention scores. A new scheme is one file with one such class and one line in `build.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from robopos.errors import PositionError
from robopos.positions.phases import angle
from robopos.positions.positions import Positions, integers, nanoseconds
from robopos.stamps import NS_PER_S

Clock = Literal["index", "time"]
Options = dict[Clock, tuple[str, ...]]


def clock_of(clock: Clock | None, *time_options: object) -> Clock:
    """The clock asked for; without one, `time` if an option that only time has was given, else `index`."""
    return clock or ("time" if any(option is not None for option in time_options) else "index")


class Part(nn.Module):
    """One scheme on one clock: ticks are token numbers on `index`, nanoseconds on `time`."""

    OPTIONS: ClassVar[Options]
    """The names of the options that the class takes on each clock."""
    like: Tensor

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        if clock not in get_args(Clock):
            raise PositionError(f"clock is {clock!r}; it must be 'index' or 'time'")
        self.clock: Clock = clock
        # Integer buffers do not follow `module.to(dtype)`: this empty one does, and says what was asked for.
        self.register_buffer("like", torch.empty(0), persistent=False)

    @property
    def unit(self) -> float:
        """Tokens or seconds in one tick."""
        return 1.0 if self.clock == "index" else 1.0 / NS_PER_S

    @property
    def angle_dtype(self) -> torch.dtype:
        """Angles are float32, or float64 in a float64 module; never anything narrower."""
        return torch.float64 if self.like.dtype == torch.float64 else torch.float32

    def ticks(self, positions: Positions | Tensor) -> Tensor:
        """int64 (..., N): this scheme's clock read off `positions`, or the ticks themselves."""
        if isinstance(positions, Positions):
            return positions.token_index() if self.clock == "index" else positions.stamps_ns()
        return integers(positions, "index" if self.clock == "index" else "time_ns")

    def periods(self) -> Tensor | None:
        """float64 (F,): the periods of its waves, fixed or learned, in tokens or seconds; None without waves."""
        return None


class AdditiveEncoding(Part):
    """A vector a token, added to the token."""

    def __init__(self, dim: int, clock: Clock) -> None:
        super().__init__(clock)
        if dim < 1:
            raise PositionError(f"dim is {dim}; it must be at least 1")
        self.dim = dim

    def forward(
        self,
        index: Tensor | None = None,
        *,
        time_ns: Tensor | None = None,
        time_s: Tensor | None = None,
    ) -> Tensor:
        """Encode token numbers or times exactly as given: nothing is subtracted first.

        Args:
            index: int64 (..., N) token numbers, on the clock `index`.
            time_ns: int64 (..., N) nanoseconds, on the clock `time`.
            time_s: float64 (..., N) seconds instead, rounded to the nanosecond.

        Returns:
            (..., N, dim) in the module's own type.

        Raises:
            PositionError: not exactly the one argument that the clock asks for, or of the wrong type.
        """
        given = [
            name for name, value in (("index", index), ("time_ns", time_ns), ("time_s", time_s)) if value is not None
        ]
        allowed = ["index"] if self.clock == "index" else ["time_ns", "time_s"]
        if len(given) != 1 or given[0] not in allowed:
            raise PositionError(
                f"{type(self).__name__} on the clock {self.clock!r} takes one of {allowed}, not {given}"
            )
        if index is not None:
            ticks = integers(index, "index")
        elif time_ns is not None:
            ticks = integers(time_ns, "time_ns")
        else:
            assert time_s is not None
            ticks = nanoseconds(time_s)
        return self.encode(ticks).to(self.like.dtype)

    def at(self, positions: Positions, count: int) -> Tensor:
        """(..., N, dim) for the N = `count` tokens of a window; time counts from the window's origin."""
        positions.length(count)
        return self.encode(positions.token_index(count) if self.clock == "index" else positions.elapsed_ns())

    def encode(self, ticks: Tensor) -> Tensor:
        """int64 (..., N) → (..., N, dim), in float32 (float64 in a float64 module)."""
        raise NotImplementedError


class Rotation(Part):
    """A phase a token and a pair of channels, by which queries and keys are turned."""

    temperature: float

    def phases(self, ticks: Tensor) -> Tensor:
        """int64 (..., N) → int64 (..., N, head_dim / 2) turns·2⁻⁶⁴."""
        raise NotImplementedError

    def angles(self, ticks: Tensor) -> Tensor:
        """int64 (..., N) → (..., N, head_dim / 2) radians in [−π, π]."""
        return angle(self.phases(ticks), self.angle_dtype)


Lookup = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(window, head, query, key) indices → the bias of that score; all four are int tensors ()."""


class BiasTerm(Protocol):
    """What one bias contributes to one attention: a pytree of tensors, which travels in the plan."""

    def scores(self, rows: slice, end: int | None) -> Tensor:
        """(..., heads, rows, end): the dense formula for a block of queries and the first keys."""
        ...

    def lookup(self, batch: int) -> Lookup:
        """The same bias, one score at a time, for windows (batch, …)."""
        ...

    def folded(self, valid: Tensor | None) -> Tensor | None:
        """(..., heads, Nk): terms of the keys to which the formula reduces under softmax, or None."""
        ...


class ScoreBias(Part):
    """A number a head, a query and a key, added to the scaled scores before softmax."""

    def __init__(self, heads: int, clock: Clock) -> None:
        super().__init__(clock)
        if heads < 1:
            raise PositionError(f"heads is {heads}; it must be at least 1")
        self.heads = heads

    def forward(self, query_positions: Positions | Tensor, key_positions: Positions | Tensor) -> Tensor:
        """The same as `scores`."""
        return self.scores(query_positions, key_positions)

    def scores(self, query_positions: Positions | Tensor, key_positions: Positions | Tensor) -> Tensor:
        """The dense formula, (..., heads, N, M), which the fast paths are tested against.

        Args:
            query_positions: `Positions`, or int64 (..., N) token numbers or nanoseconds, as the clock is.
            key_positions: the same, (..., M).

        Raises:
            PositionError: they lack what the clock needs, or are not integers.
        """
        return self.term(self.ticks(query_positions), self.ticks(key_positions)).scores(slice(None), None)

    def term(self, queries: Tensor, keys: Tensor) -> BiasTerm:
        """The bias between int64 ticks (..., Nq) and (..., Nk)."""
        raise NotImplementedError
