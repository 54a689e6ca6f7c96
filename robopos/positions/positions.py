"""Where tokens stand: their number, their time stamp, and whether they are there at all."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.stamps import NS_PER_S


class Positions(NamedTuple):
    """The positions of a batch of windows of N tokens; every field may be left out.

    Leading dimensions are free: `(N,)` serves every window of a batch alike.
    """

    index: Tensor | None = None  # type: ignore[assignment]
    """int64 (..., N): the token number, which is the order of attention. None counts the valid tokens."""
    time_ns: Tensor | None = None
    """int64 (..., N): the stamp in nanoseconds, of any epoch."""
    valid: Tensor | None = None
    """bool (..., N): False for padding and empty slots. None: every token is there."""
    origin_ns: Tensor | int | None = None
    """int64, (), (...) or (..., 1): where additive schemes count time from. None: the first valid token."""

    @classmethod
    def arange(cls, count: int, *, device: torch.device | str | None = None) -> Positions:
        """Token numbers 0 … count − 1, index (count,)."""
        return cls(index=torch.arange(count, device=device))

    @classmethod
    def from_seconds(cls, time_s: Tensor, *, index: Tensor | None = None, valid: Tensor | None = None) -> Positions:
        """Stamps given as float64 seconds (..., N), rounded to the nanosecond."""
        return cls(index=index, time_ns=nanoseconds(time_s), valid=valid)

    def to(self, device: torch.device | str) -> Positions:
        """On another device."""
        index, time_ns, valid = (
            None if field is None else field.to(device) for field in (self.index, self.time_ns, self.valid)
        )
        origin_ns = self.origin_ns.to(device) if isinstance(self.origin_ns, Tensor) else self.origin_ns
        return Positions(index, time_ns, valid, origin_ns)

    def token_index(self, count: int | None = None) -> Tensor:
        """int64 (..., N): the index, or the count of valid tokens before each (padding repeats the last).

        Raises:
            PositionError: nothing says how many tokens there are, or a field is of the wrong kind or length.
        """
        count = self.length(count)
        if self.index is not None:
            return self.index
        if self.valid is not None:
            return (self.valid.long().cumsum(-1) - 1).clamp(min=0)
        device = None if self.time_ns is None else self.time_ns.device
        return torch.arange(count, device=device)

    def stamps_ns(self) -> Tensor:
        """int64 (..., N): the stamps.

        Raises:
            PositionError: there are none, or they are not integers.
        """
        if self.time_ns is None:
            raise PositionError("time_ns is missing: a scheme on time and a band in seconds need stamps")
        return integers(self.time_ns, "time_ns")

    def elapsed_ns(self) -> Tensor:
        """int64 (..., N): time since `origin_ns`, or since the first valid token of each window."""
        time_ns = self.stamps_ns()
        return time_ns - self._origin(time_ns)

    def length(self, count: int | None = None) -> int:
        """N, after checking that every given field has the right type and that all agree on it.

        Raises:
            PositionError: naming the field, what it is, and what is allowed.
        """
        if self.valid is not None and self.valid.dtype != torch.bool:
            raise PositionError(f"valid is {_dtype(self.valid)}; it must be bool")
        for name, field in (("index", self.index), ("time_ns", self.time_ns), ("valid", self.valid)):
            if field is None:
                continue
            if name != "valid":
                integers(field, name)
            if field.dim() == 0:
                raise PositionError(f"{name} has shape (); it must be (..., N), one entry a token")
            if count is not None and field.shape[-1] != count:
                raise PositionError(f"{name} has {field.shape[-1]} tokens where {count} are expected")
            count = field.shape[-1]
        if count is None:
            raise PositionError("positions are empty: give index, time_ns or valid, so that N is known")
        return count

    def _origin(self, time_ns: Tensor) -> Tensor | int:
        origin = self.origin_ns
        if origin is None:
            if self.valid is None:
                return time_ns[..., :1]
            if time_ns.shape[-1] == 0:
                return 0
            stamps = time_ns + torch.zeros_like(self.valid, dtype=torch.int64)
            return stamps.gather(-1, self.valid.expand_as(stamps).long().argmax(-1, keepdim=True))
        if isinstance(origin, int):
            return origin
        integers(origin, "origin_ns")
        # One origin a window, (...), stands beside stamps (..., N): it lacks the token dimension.
        return origin.unsqueeze(-1) if origin.dim() == time_ns.dim() - 1 else origin


def integers(values: Tensor, name: str) -> Tensor:
    """`values`, if they are int64.

    Raises:
        PositionError: they are of another type; floating-point stamps lose the nanoseconds.
    """
    if values.dtype != torch.int64:
        remedy = "seconds are given by name: time_s=… or Positions.from_seconds(…)" if name == "time_ns" else ""
        raise PositionError(f"{name} is {_dtype(values)}; it must be int64" + (f" ({remedy})" if remedy else ""))
    return values


def nanoseconds(time_s: Tensor) -> Tensor:
    """float64 seconds (..., N) as int64 nanoseconds (..., N), rounded.

    Raises:
        PositionError: the seconds are not float64; float32 resolves 0.1 ms after half an hour. Or they are no time:
            not finite, or beyond int64 nanoseconds (292 years).
    """
    if time_s.dtype != torch.float64:
        raise PositionError(f"time_s is {_dtype(time_s)}; it must be float64 seconds")
    time_ns = (time_s * NS_PER_S).round()
    # Inside a compiled graph there is nobody to raise to.
    if not torch.compiler.is_compiling() and not (time_ns.abs() < 2.0**63).all():
        raise PositionError("time_s holds a value that is not finite, or more than 292 years: no int64 nanoseconds")
    return time_ns.long()


def _dtype(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
