"""Scaled dot-product attention under a visibility, with or without biases."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from robopos.positions.visibility import Visibility


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """(..., heads, Nq, D), (..., heads, Nk, D), (..., heads, Nk, D) → (..., heads, Nq, D).

    Rows that see nothing give 0.
    """
    if visible.mask is None:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    # The fast kernels want a mask of as many dimensions as the queries.
    mask = visible.mask[(None,) * (q.dim() - visible.mask.dim())]
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
    return blank(out, visible)


def blank(out: Tensor, visible: Visibility) -> Tensor:
    """`out` (..., heads, Nq, D) with 0 in the rows that see nothing."""
    return out if visible.seeing is None else out.masked_fill(~visible.seeing, 0)
