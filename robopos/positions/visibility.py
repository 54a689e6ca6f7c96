"""Who sees whom: the causal band in tokens and in seconds, and padding."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.positions import Positions
from robopos.stamps import LONGEST_S, NS_PER_S


class Visibility(NamedTuple):
    """The keys that each query sees. Both None: plain causal attention, row by row."""

    mask: Tensor | None
    """(..., 1, Nq, Nk): 0 where the key is seen, −inf where not."""
    seeing: Tensor | None
    """bool (..., 1, Nq, 1): queries that are there and see a key; the others give 0. None: all of them."""


def visibility(
    queries: Positions,
    keys: Positions | None,
    context: int | None,
    context_s: float | None,
    dtype: torch.dtype,
) -> Visibility:
    """Key j is seen by query i if it is valid, not later in order, and within the band.

    Args:
        queries: positions (..., Nq).
        keys: positions (..., Nk) in any order, with `index`; None: the queries themselves.
        context: tokens of the band: index_i − index_j < context.
        context_s: seconds of the band: time_i − time_j <= context_s.
        dtype: type of the mask, best that of the attention.

    Raises:
        PositionError: a band that is not positive, keys without index, a band in seconds without time_ns.
    """
    if context is not None and context < 1:
        raise PositionError(f"context is {context}; it must be at least 1 token")
    if context_s is not None and not 0 < context_s < LONGEST_S:
        raise PositionError(f"context_s is {context_s}; it must be a number of seconds > 0 and below {LONGEST_S:g}")
    if keys is not None and (keys.index is None or queries.index is None):
        raise PositionError("index is missing: with keys given apart, queries and keys both need token numbers")
    unbanded = context is None and context_s is None
    if unbanded and keys is None and _in_row_order(queries):
        return Visibility(None, None)

    keyed = queries if keys is None else keys
    row, column = queries.token_index(), keyed.token_index()
    # Comparisons broadcast without an (Nq, Nk) array of int64 differences.
    seen = column.unsqueeze(-2) <= row.unsqueeze(-1)
    if context is not None:
        seen = seen & (column.unsqueeze(-2) > (row - context).unsqueeze(-1))
    if context_s is not None:
        oldest = queries.stamps_ns() - round(context_s * NS_PER_S)
        seen = seen & (keyed.stamps_ns().unsqueeze(-2) >= oldest.unsqueeze(-1))
    valid = keyed.valid
    if valid is not None:
        seen = seen & valid.unsqueeze(-2)

    # A token that is there sees at least itself; rows can be blind through padding or foreign keys alone.
    seeing: Tensor | None = None
    if keys is not None or queries.valid is not None:
        seeing = seen.any(-1, keepdim=True)
        if queries.valid is not None:
            seeing = seeing & queries.valid.unsqueeze(-1)
        # A softmax over nothing is NaN on some backends: blind rows look at every key and are zeroed after.
        seen = seen | ~seeing
        seeing = seeing.unsqueeze(-3)
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
    return Visibility(mask.unsqueeze(-3), seeing)


def _in_row_order(positions: Positions) -> bool:
    if positions.valid is not None:
        return False
    index = positions.index
    if index is None:
        positions.length()
        return True
    # Given numbers are looked at where that costs nothing; elsewhere the mask says the same.
    if index.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return bool((index.diff(dim=-1) > 0).all())
