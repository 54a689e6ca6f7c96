"""Where attention looks, over elapsed time, for any scheme: the weights are read off by attending to unit vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robopos.arrays import Floats, Ints
from robopos.model import Bundle
from robopos.positions import Plan
from robopos.sequences import TokenColumns

WINDOWS = 32


class Recorder:
    """A plan that also keeps the weights of each attention, (B, heads, N, N)."""

    def __init__(self, plan: Plan, kept: list[Tensor]) -> None:
        self._plan, self._kept = plan, kept

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """As the plan."""
        return self._plan.rotate(q, k)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As the plan; the weights are kept."""
        count, width = v.shape[-2:]
        # Unit vectors as values: what comes out is the weight of each key. As many at a time as a head is wide.
        units = torch.eye(count, -(-count // width) * width, dtype=v.dtype, device=v.device)
        parts = [self._plan.attend(q, k, part.expand_as(v)) for part in torch.split(units, width, dim=-1)]
        self._kept.append(torch.cat(parts, dim=-1)[..., :count])
        return self._plan.attend(q, k, v)


@contextmanager
def recorded(blocks: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Inside, every forward of these blocks puts its attention weights into the list, block by block."""
    kept: list[Tensor] = []

    def wrap(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        x, plan = arguments
        return x, Recorder(plan, kept)

    handles = [block.register_forward_pre_hook(wrap) for block in blocks]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def attention_over_time(bundle: Bundle, columns: TokenColumns, anchors: Ints, edges_s: Floats) -> Floats:
    """(L, len(edges_s) - 1): the share of its attention that a window's last token pays to tokens of each age.

    Means over windows that end with anchors, and over heads. Newer tokens (late messages) count with the first bin;
    older ones than the last edge are left out: a row sums to 1 less what they get.
    """
    picked = anchors[:: max(1, len(anchors) // WINDOWS)][:WINDOWS]
    ends = torch.from_numpy(picked).to(columns.device)
    tokens, _ = columns.windows(ends, bundle.settings.window)
    with recorded(bundle.network.blocks) as kept:
        bundle.network.encode(tokens)
    time_ns, valid = tokens.positions.time_ns, tokens.positions.valid
    assert time_ns is not None and valid is not None
    age_s = ((time_ns[:, -1:] - time_ns).double() / 1e9).clamp(min=float(edges_s[0])).cpu().numpy()  # (B, N)
    last = [(weights[:, :, -1].mean(1) * valid).double().cpu().numpy() for weights in kept]  # each (B, N)
    return np.array([np.histogram(age_s, edges_s, weights=shares)[0] for shares in last]) / len(picked)
