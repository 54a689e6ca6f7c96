"""Training for predictions between messages: each token's horizons count from some time after its message."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robopos.model import residual_scale_at
from robopos.sequences import Normalization, SequenceDataset, TokenColumns, Tokens, difference


class AgedBatch(NamedTuple):
    """A `Batch` whose horizons count from ``age_s`` (B, N) float64 seconds after each token's reference time."""

    tokens: Tokens
    targets: Tensor
    mask: Tensor
    age_s: Tensor


class AgedColumns(TokenColumns):
    """Columns with a targets' time of their own for each token, drawn once, evenly from 0 to ``max_age_s``.

    Args:
        dataset: whose tokens; targets beyond a token's block stay masked, as without ages.
        normalization, split, device, store: as for ``SequenceDataset.columns``.
        max_age_s: the longest age (s).
        seed: of the draw.
    """

    def __init__(
        self,
        dataset: SequenceDataset,
        normalization: Normalization,
        split: str,
        device: torch.device | str,
        store: torch.device | str | None,
        max_age_s: float,
        seed: int,
    ) -> None:
        age_ns = np.random.default_rng(seed).integers(0, round(max_age_s * 1e9), len(dataset.table), endpoint=True)
        # The head knows the horizon alone, not its number: so does the scale.
        horizons_s = age_ns[:, None] / 1e9 + np.asarray(dataset.layout.horizons_s)
        scale = residual_scale_at(horizons_s, dataset.layout, normalization)
        base, targets = dataset.base(normalization), dataset.targets_after(age_ns)
        residual = difference(dataset.layout.target_kinds, targets, base[:, None]) / scale
        super().__init__(dataset.table, normalization, dataset.of_split(split), residual, device, store)
        self.age_s = self._keep(age_ns / 1e9)  # (n,)

    def batch(self, ends: Tensor, length: int) -> AgedBatch:  # type: ignore[override]
        """Windows with their targets and ages."""
        _, number = self.windows(ends, length)
        return AgedBatch(*super().batch(ends, length), self._pick(self.age_s, number))
