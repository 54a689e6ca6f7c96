"""Streaming state: cached keys and values of the last tokens, and what is written to them after each step.

A key is turned by its exact phase when it is new and never again, so a cache may be as old as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robopos.errors import ConfigError
from robopos.positions import Positions, PositionScheme
from robopos.sequences import Tokens


class Ring(NamedTuple):
    """The last S tokens as every layer keeps them; L layers, width D in heads.

    The token with number ``i`` stands in slot ``i % S``; an empty slot is not ``valid``.
    """

    keys: Tensor
    """(L, B, heads, S, D / heads), turned already."""
    values: Tensor
    """(L, B, heads, S, D / heads)."""
    time_ns: Tensor
    """int64 (S,)."""
    index: Tensor  # type: ignore[assignment]
    """int64 (S,): the token's number."""
    valid: Tensor
    """bool (S,)."""

    @classmethod
    def empty(cls, layers: int, heads: int, slots: int, width: int, like: Tensor) -> Ring:
        """A ring of ``slots`` empty slots, of the type and on the device of ``like``."""
        cache = like.new_zeros(layers, 1, heads, slots, width // heads)
        numbers = torch.zeros(slots, dtype=torch.int64, device=like.device)
        return cls(cache, cache.clone(), numbers, numbers.clone(), numbers.bool())

    def positions_with(self, new: Positions) -> Positions:
        """Positions of the ring's tokens and of the new ones behind them, (S + N,)."""
        index, time_ns, valid = given_positions(new)
        return Positions(
            torch.cat([self.index, index]), torch.cat([self.time_ns, time_ns]), torch.cat([self.valid, valid])
        )

    def write(self, step: StepOutput, positions: Positions, first: int, count: int) -> None:
        """Put the first ``count`` tokens of a step, which begin with number ``first``, into their slots."""
        index, time_ns, _ = given_positions(positions)
        for rows, slots in self._spans(first, count):
            self.keys[..., slots, :] = step.keys[..., rows, :]
            self.values[..., slots, :] = step.values[..., rows, :]
            self.time_ns[slots] = time_ns[rows]
            self.index[slots] = index[rows]
            self.valid[slots] = True

    def _spans(self, first: int, count: int) -> Iterator[tuple[slice, slice]]:
        # Neighbouring rows stand in neighbouring slots but for the wrap; older rows than S would be overwritten.
        size = self.valid.shape[0]
        row = max(0, count - size)
        while row < count:
            slot = (first + row) % size
            length = min(count - row, size - slot)
            yield slice(row, row + length), slice(slot, slot + length)
            row += length


class StepOutput(NamedTuple):
    """What one block of N tokens gives."""

    encoded: Tensor
    """(B, N, D): what the network knows after each token."""
    keys: Tensor
    """(L, B, heads, N, D / heads), turned."""
    values: Tensor
    """(L, B, heads, N, D / heads)."""


def given_positions(positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
    """``index``, ``time_ns`` and ``valid`` (N,) of a block, which has them all."""
    index, time_ns, valid, _ = positions
    assert isinstance(index, Tensor) and isinstance(time_ns, Tensor) and isinstance(valid, Tensor)
    return index, time_ns, valid


Step = Callable[[Tokens, Ring], StepOutput]
"""A block of tokens against a ring: pure, it writes nothing. Positions of the tokens are (N,), each field given."""


@dataclass
class StreamState:
    """All that a network remembers of a stream."""

    ring: Ring
    count: int = 0
    """Tokens absorbed since the start: the number of the next one."""
    encoded: Tensor | None = field(default=None)
    """(B, D): what the network knows after the newest token; ``None`` before the first."""

    def absorb(self, step: Step, tokens: Tokens, count: int) -> Tensor:
        """Take the first ``count`` tokens of a block; the rest is padding. ``index`` and ``valid`` are set here.

        Args:
            tokens: values (1, N, ...), with ``time_ns`` (N,).

        Returns:
            (B, N, D), rows from ``count`` on without meaning.
        """
        time_ns = tokens.positions.time_ns
        assert time_ns is not None
        order = torch.arange(time_ns.shape[0], device=time_ns.device)
        positions = Positions(index=order + self.count, time_ns=time_ns, valid=order < count)
        output = step(tokens._replace(positions=positions), self.ring)
        self.ring.write(output, positions, self.count, count)
        self.count += count
        self.encoded = output.encoded[:, count - 1].clone()
        return output.encoded

    def clear(self) -> None:
        """Forget all tokens. Slots are only marked empty: their numbers are never seen again."""
        self.ring.valid.fill_(False)
        self.count = 0
        self.encoded = None

    def snapshot(self) -> dict[str, Any]:
        """A copy in plain types and tensors."""
        encoded = None if self.encoded is None else self.encoded.clone()
        return {"ring": [tensor.clone() for tensor in self.ring], "count": self.count, "encoded": encoded}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from a snapshot of a state of the same shape."""
        for tensor, old in zip(self.ring, saved["ring"], strict=True):
            tensor.copy_(old)
        self.count = saved["count"]
        self.encoded = None if saved["encoded"] is None else saved["encoded"].to(self.ring.keys.device)


MODES = ("stream", "window")


def pick_mode(scheme: PositionScheme, asked: str | None) -> str:
    """How a network with this scheme is served and evaluated: ``stream`` or ``window``.

    Args:
        asked: ``None`` takes ``stream`` where the scheme allows it.

    Raises:
        ConfigError: an unknown mode, or ``stream`` with a scheme that does not stream.
    """
    if asked is None:
        return "stream" if scheme.streams else "window"
    if asked not in MODES:
        raise ConfigError(f"mode is {asked!r}, must be one of {', '.join(MODES)}")
    if asked == "stream" and not scheme.streams:
        raise ConfigError(
            f"mode 'stream' is not possible with the scheme {scheme.name!r}: it adds positions to the tokens, counted "
            "from the window's first one, so that a window that slides is computed anew: ask for mode 'window'"
        )
    return asked
