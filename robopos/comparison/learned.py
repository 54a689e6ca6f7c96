"""What trained positions look like: frequencies, tables and biases as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from robopos.comparison.theme import PALETTE, Theme
from robopos.model import Bundle
from robopos.positions import AlibiBias, FourierEncoding, LearnedEncoding, Part, RelativeBias, Time2VecEncoding
from robopos.texts import drawn


def draw_positions(bundles: Mapping[str, Bundle], theme: Theme) -> Any | None:
    """One panel a part of each scheme: a table as a picture, a bias over distance, periods as points."""
    parts = [
        (f"{scheme}: {name}" if scheme != name else scheme, part)
        for scheme, bundle in bundles.items()
        for name, part in bundle.network.positions.parts.items()
    ]
    if not parts:
        return None
    figure, axes = theme.panels(len(parts), 3, 3.8, 2.7)
    for axis, (title, part) in zip(axes, parts, strict=True):
        _draw(axis, part, theme)
        axis.set_title(drawn(title), fontsize=9)
    return figure


@torch.no_grad()
def _draw(axis: Any, part: Part, theme: Theme) -> None:
    unit = "tokens" if part.clock == "index" else "s"
    if isinstance(part, LearnedEncoding):
        table = part.weight.detach().float().numpy()
        end = table.shape[0] if part.clock == "index" else part.max_s
        limit = float(np.abs(table).max())
        extent = (0, end, table.shape[1], 0)
        axis.imshow(table.T, aspect="auto", cmap="RdBu", vmin=-limit, vmax=limit, extent=extent, interpolation="none")
        axis.set_xlabel(f"position ({unit})")
        axis.set_ylabel("channel")
        axis.grid(False)
        return
    if isinstance(part, RelativeBias):
        bounds = part.boundaries.double().numpy() * part.unit
        weight = part.weight.detach().float().numpy()
        for head, row in enumerate(weight):
            axis.step(bounds, row[1 : len(bounds) + 1], where="post", color=PALETTE[head % len(PALETTE)])
        axis.set_xlabel(f"distance ({unit})")
        axis.set_ylabel("bias of each head")
        axis.set_xscale("symlog", linthresh=max(float(bounds[bounds > 0].min()), 1e-9))
        return
    if isinstance(part, AlibiBias):
        slopes = part.slopes.float().numpy()
        axis.plot(np.arange(len(slopes)) + 1, slopes, "o", color=theme.good)
        axis.set_xlabel("head")
        axis.set_ylabel(f"slope (1/{unit.rstrip('s') or 's'})")
        axis.set_yscale("log")
        return
    periods = part.periods()
    if periods is None:
        return
    learned = isinstance(part, (FourierEncoding, Time2VecEncoding))
    axis.plot(np.arange(len(periods)), periods.numpy(), ".", color=theme.good if learned else theme.muted)
    axis.set_yscale("log")
    axis.set_xlabel("pair of channels")
    axis.set_ylabel(f"{'learned' if learned else 'fixed'} period ({unit})")
