"""The plan of one forward pass: everything that positions contribute to attention, for all layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.attention import attention, biased_attention, folded_attention
from robopos.positions.base import BiasTerm
from robopos.positions.rotary import turn
from robopos.positions.visibility import Visibility


class Plan(NamedTuple):
    """Tables and masks, made once per forward by `PositionScheme.plan`. A pytree: tensors and None only."""

    rotation: Tensor | None
    """(..., 1, Nq, D / 2, 2): cosine and sine for the new tokens, None without rotary."""
    visible: Visibility
    """Which keys each query sees."""
    biases: tuple[BiasTerm, ...] = ()
    """What is added to the scores."""
    key_terms: Tensor | None = None
    """(..., heads, Nk): the biases in their folded form, where that is exact."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Turn q and k (..., heads, Nq, D) of the new tokens; cached keys were turned when they were new.

        Raises:
            PositionError: q or k have another number of tokens than the plan's queries.
        """
        if self.rotation is None:
            return q, k
        count = self.rotation.shape[-3]
        for name, x in (("q", q), ("k", k)):
            if x.shape[-2] != count:
                raise PositionError(f"{name} has {x.shape[-2]} tokens; the plan rotates its {count} new ones alone")
        return turn(q, self.rotation), turn(k, self.rotation)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of q (..., heads, Nq, D), already turned, over k and v (..., heads, Nk, D).

        Returns:
            (..., heads, Nq, D); padded rows and rows that see no key are 0.

        Raises:
            PositionError: q, k and v have other numbers of tokens than the plan's queries and keys.
        """
        self._check_lengths(q, k, v)
        if not self.biases:
            return attention(q, k, v, self.visible)
        if self.key_terms is not None:
            return folded_attention(q, k, v, self.visible, self.key_terms)
        return biased_attention(q, k, v, self.visible, self.biases)

    def _check_lengths(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        # Without a mask the plan fits every length of plain causal attention.
        queries, keys = (q.shape[-2], q.shape[-2]) if self.visible.mask is None else self.visible.mask.shape[-2:]
        if (q.shape[-2], k.shape[-2], v.shape[-2]) != (queries, keys, keys):
            raise PositionError(
                f"q, k and v have {q.shape[-2]}, {k.shape[-2]} and {v.shape[-2]} tokens; "
                f"the plan is of {queries} queries and {keys} keys"
            )
