"""A position scheme as a network uses it: one object, whatever its parts are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from robopos.positions.attention import BLOCK
from robopos.positions.base import AdditiveEncoding, BiasTerm, Part, Rotation, ScoreBias
from robopos.positions.plan import Plan
from robopos.positions.positions import Positions
from robopos.positions.rotary import rotation_table
from robopos.positions.visibility import Visibility, visibility


class PositionScheme(nn.Module):
    """The parts of a scheme, by their names; made by `build_positions`.

    Attributes:
        name: as given to `build_positions`.
        parts: the encodings and biases, by `CLOCK-SCHEME`.
    """

    like: Tensor
    parts: Mapping[str, Part]

    def __init__(self, name: str, parts: Mapping[str, Part]) -> None:
        super().__init__()
        self.name = name
        self.parts = nn.ModuleDict(parts)  # type: ignore[assignment]  # such a mapping, but of Module by its type
        self.register_buffer("like", torch.empty(0), persistent=False)

    @property
    def streams(self) -> bool:
        """Whether cached keys stay valid as the window slides: no part is added to the tokens."""
        return not self._additive()

    @property
    def reads_index(self) -> bool:
        """Whether a part is on the clock `index`."""
        return any(part.clock == "index" for part in self.parts.values())

    def add(self, x: Tensor, positions: Positions) -> Tensor:
        """x (..., N, dim) plus the additive parts; x itself for schemes without.

        Raises:
            PositionError: the positions lack what a part needs, or do not fit x.
        """
        encoding = self.encoding(positions, x.shape[-2])
        return x if encoding is None else x + encoding.to(x.dtype)

    def encoding(self, positions: Positions, count: int) -> Tensor | None:
        """(..., N, dim), the sum of the additive parts for N = `count` tokens; None without any."""
        total: Tensor | None = None
        for part in self._additive():
            encoding = part.at(positions, count)
            total = encoding if total is None else total + encoding
        return total

    def plan(
        self,
        queries: Positions,
        keys: Positions | None = None,
        *,
        context: int | None = None,
        context_s: float | None = None,
    ) -> Plan:
        """What attention needs, computed once and shared by the layers.

        Args:
            queries: positions (..., Nq) of the new tokens.
            keys: positions (..., Nk) of the keys they attend to, in any order (a ring); None: those.
            context: a token sees itself and the context − 1 tokens before it, by index.
            context_s: a token sees tokens up to so many seconds older, by time_ns.

        Raises:
            PositionError: the positions lack what a part or the band needs.
        """
        queries.length()
        if keys is not None:
            keys.length()
        visible = visibility(queries, keys, context, context_s, self._mask_dtype())
        keyed = queries if keys is None else keys
        biases = self._biases(queries, keyed)
        return Plan(self._rotation(queries), visible, biases, _folded(biases, queries, keyed))

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Turn q and k (..., heads, N, D) by their positions; unchanged without rotary."""
        return Plan(self._rotation(positions), Visibility(None, None)).rotate(q, k)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Positions,
        *,
        context: int | None = None,
        context_s: float | None = None,
    ) -> Tensor:
        """Self-attention of q, k, v (..., heads, N, D): plan, rotate and attend in one call."""
        plan = self.plan(positions, context=context, context_s=context_s)
        q, k = plan.rotate(q, k)
        return plan.attend(q, k, v)

    def extra_repr(self) -> str:
        return self.name

    def _additive(self) -> list[AdditiveEncoding]:
        return [part for part in self.parts.values() if isinstance(part, AdditiveEncoding)]

    def _rotation(self, queries: Positions) -> Tensor | None:
        parts = [part for part in self.parts.values() if isinstance(part, Rotation)]
        if not parts:
            return None
        # Turning twice is turning by the sum, and phases add exactly.
        phases = parts[0].phases(parts[0].ticks(queries))
        temperature = parts[0].temperature
        for part in parts[1:]:
            phases = phases + part.phases(part.ticks(queries))
            temperature *= part.temperature
        return rotation_table(phases, temperature, parts[0].angle_dtype)

    def _biases(self, queries: Positions, keys: Positions) -> tuple[BiasTerm, ...]:
        parts = [part for part in self.parts.values() if isinstance(part, ScoreBias)]
        return tuple(part.term(part.ticks(queries), part.ticks(keys)) for part in parts)

    def _mask_dtype(self) -> torch.dtype:
        # Attention casts its mask in every layer unless it has the type of the queries already.
        device = self.like.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.like.dtype


def _folded(biases: tuple[BiasTerm, ...], queries: Positions, keys: Positions) -> Tensor | None:
    # One block of scores, as in a streaming step, costs less than widened keys and values.
    if not biases or torch.compiler.is_compiling() or queries.length() <= BLOCK:
        return None
    total: Tensor | None = None
    for bias in biases:
        terms = bias.folded(keys.valid)
        if terms is None:
            return None
        total = terms if total is None else total + terms
    return total
