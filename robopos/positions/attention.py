"""Scaled dot-product attention under a visibility, with or without biases on the scores.

Biases take the cheapest road that is exact: folded into one more channel of queries and keys; by blocks of
queries, so that the (heads, Nq, Nk) scores never exist at once; or FlexAttention where a GPU has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from robopos.positions.base import BiasTerm
from robopos.positions.flex import compiled_fused_attention, fused_attention, fuses
from robopos.positions.visibility import Visibility

# Queries of one block: its scores, (heads, 64, Nk), fit the caches of a core.
BLOCK = 64
# Channels of a head: kernels work in vectors of 8.
WIDTH = 8


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
    """(..., heads, Nq, D), (..., heads, Nk, D), (..., heads, Nk, D) → (..., heads, Nq, D).

    Rows that see nothing give 0.
    """
    return _blank(_masked(q, k, v, visible), visible)


def folded_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, key_terms: Tensor) -> Tensor:
    """Attention with a bias that depends on the key alone: `key_terms` (..., heads, Nk), float32 or float64.

    The terms become channels of the keys, against ones in the queries; v is widened too, since kernels take
    the fast path for equal widths only, and all to a multiple of 8 channels, the width that they like best.
    Narrow types carry a term as a sum of three.
    """
    dtype = _working_dtype(q)
    rest, terms = key_terms * q.shape[-1] ** 0.5, []
    for _ in range(1 if dtype == key_terms.dtype or dtype.itemsize >= 4 else 3):
        terms.append(rest.to(dtype))
        rest = rest - terms[-1].to(rest.dtype)
    extra = len(terms) + -(q.shape[-1] + len(terms)) % WIDTH
    ones = q.new_ones((*q.shape[:-1], extra), dtype=dtype)
    wide_q = torch.cat((q.to(dtype), ones), dim=-1)
    terms += [torch.zeros_like(terms[0])] * (extra - len(terms))
    wide_k = torch.cat((k.to(dtype), torch.stack(terms, dim=-1).expand(*k.shape[:-1], -1)), dim=-1)
    wide_v = torch.cat((v.to(dtype), v.new_zeros((*v.shape[:-1], extra), dtype=dtype)), dim=-1)
    out = _masked(wide_q, wide_k, wide_v, visible, scale=q.shape[-1] ** -0.5)[..., : v.shape[-1]]
    return _blank(out, visible)


def biased_attention(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, terms: Sequence[BiasTerm]) -> Tensor:
    """Attention with any biases, by blocks of queries; each block's scores are made again for the backward.

    On a GPU it is one fused kernel. Compiled for a CPU it is one block: a loop would be unrolled for one N.
    """
    # No length is compared while compiling: it would become a guard, and another length a new graph.
    compiling, count = torch.compiler.is_compiling(), q.shape[-2]
    if fuses(q) and (compiling or count > BLOCK):
        dtype = _working_dtype(q)
        fused = fused_attention if compiling else compiled_fused_attention()
        return _blank(fused(q.to(dtype), k.to(dtype), v.to(dtype), visible.mask, terms), visible)
    if compiling or count <= BLOCK:
        return _blank(_block(q, k, v, visible.mask, terms, slice(None)), visible)
    learns = torch.is_grad_enabled() and _any_learns(q, k, v, terms)
    blocks = []
    for start in range(0, count, BLOCK):
        arguments = (q, k, v, visible.mask, terms, slice(start, start + BLOCK))
        # Kept for the backward, the blocks' scores together would be the array that blocks avoid.
        blocks.append(
            checkpoint(_block, *arguments, use_reentrant=False, preserve_rng_state=False)
            if learns
            else _block(*arguments)
        )
    return _blank(torch.cat(blocks, dim=-2), visible)


def _block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, terms: Sequence[BiasTerm], rows: slice) -> Tensor:
    q = q[..., rows, :]
    if mask is None:
        # In row order nothing after the block's last row is seen; the block keeps its square's corner.
        end = k.shape[-2] if rows.stop is None else min(rows.stop, k.shape[-2])
        order = torch.arange(end, device=q.device)
        seen = order <= order[rows].unsqueeze(-1)
        shown = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, -torch.inf)
        k, v = k[..., :end, :], v[..., :end, :]
    else:
        end, shown = k.shape[-2], mask[..., rows, :]
    scores = sum((term.scores(rows, end) for term in terms), start=shown)
    return scaled_dot_product_attention(q, k, v, attn_mask=_like_queries(scores, q))


def _masked(q: Tensor, k: Tensor, v: Tensor, visible: Visibility, scale: float | None = None) -> Tensor:
    if visible.mask is None:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    mask = _like_queries(visible.mask, q)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def _blank(out: Tensor, visible: Visibility) -> Tensor:
    return out if visible.seeing is None else out.masked_fill(~visible.seeing, 0)


def _any_learns(q: Tensor, k: Tensor, v: Tensor, terms: Sequence[BiasTerm]) -> bool:
    leaves = [q, k, v, *tree_leaves(tuple(terms))]
    return any(leaf.requires_grad for leaf in leaves)


def _like_queries(mask: Tensor, q: Tensor) -> Tensor:
    # The fast kernels want a mask of the queries' type and of as many dimensions.
    return mask[(None,) * (q.dim() - mask.dim())].to(q.dtype)


def _working_dtype(q: Tensor) -> torch.dtype:
    device = q.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else q.dtype
