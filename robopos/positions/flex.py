"""Biased attention as one fused kernel, for GPUs: FlexAttention computes each score where it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from robopos.positions.base import BiasTerm

# The smallest head that the kernel multiplies.
MIN_WIDTH = 16


@functools.cache
def compiled_fused_attention() -> Callable[..., Tensor]:
    """`fused_attention` compiled: uncompiled, FlexAttention makes every score. Not at import, which it slows."""
    compiled: Callable[..., Tensor] = torch.compile(fused_attention)
    return compiled


def fuses(q: Tensor) -> bool:
    """Whether FlexAttention serves q: on CUDA, with (B, heads, Nq, D) and wide enough heads.

    On the CPU it has no backward; there attention goes by blocks.
    """
    return q.device.type == "cuda" and q.dim() == 4 and q.shape[-1] >= MIN_WIDTH


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, terms: Sequence[BiasTerm]) -> Tensor:
    """(B, heads, Nq, D), (B, heads, Nk, D) twice → (B, heads, Nq, D), the biases added to the scores.

    Args:
        mask: (…, 1, Nq, Nk), 0 or −inf; None: causal, row by row.
        terms: the biases.
    """
    batch = q.shape[0]
    lookups = [term.lookup(batch) for term in terms]
    shown = None if mask is None else mask.expand(batch, 1, *mask.shape[-2:])

    def score(value: Tensor, b: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        for lookup in lookups:
            value = value + lookup(b, head, row, column)
        if shown is None:
            return torch.where(row >= column, value, -torch.inf)
        return value + shown[b, 0, row, column]

    out = flex_attention(q, k, v, score_mod=score)
    assert isinstance(out, Tensor)
    return out
