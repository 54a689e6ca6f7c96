"""Error in the streams' own units, against what needs no model. Needs no Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from robopos.model import Bundle, Physical
from robopos.sequences import SequenceDataset, SequenceLayout
from robopos.sequences.features import Floats
from robopos.sequences.tokens import Ints


class Predictions(NamedTuple):
    """Predictions at anchors; A anchors.

    ``anchors`` (A,) token numbers; ``reference_ns`` (A,); ``values``, ``truth``, ``hold_last`` and
    ``constant_velocity`` (A, H, T) in units, NaN where the log cannot say; ``std`` (A, H, T) or ``None``.
    """

    anchors: Ints
    reference_ns: Ints
    values: Floats
    std: Floats | None
    truth: Floats
    hold_last: Floats
    constant_velocity: Floats

    @property
    def scored(self) -> np.ndarray:
        """(A, H, T): where truth and base are both known, so that every predictor is judged on the same."""
        return np.isfinite(self.truth) & np.isfinite(self.hold_last)


@torch.no_grad()
def predict(
    bundle: Bundle,
    dataset: SequenceDataset,
    split: str,
    *,
    anchors: Ints | None = None,
    batch_size: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions as served in window mode: one window of ``bundle.settings.window`` tokens for each anchor.

    Args:
        split: whose blocks windows stay in.
        anchors: token numbers; by default each that has ``burn_in`` tokens before it.
        progress: is told anchors done and all.
    """
    device = next(bundle.network.parameters()).device
    columns = dataset.columns(bundle.normalization, split, device)
    if anchors is None:
        anchors = columns.anchors(bundle.settings.history)
    horizons = bundle.layout.horizons_s
    values: list[Physical] = []
    for first in range(0, len(anchors), batch_size):
        part = anchors[first : first + batch_size]
        tokens, _ = columns.windows(torch.from_numpy(part).to(device), bundle.settings.window)
        mean, log_std = bundle.network.last(tokens)
        values.append(bundle.physical(mean, log_std, dataset.baselines.base[part]))
        if progress is not None:
            progress(min(first + batch_size, len(anchors)), len(anchors))
    shape = (0, len(horizons), len(bundle.layout.targets))
    known = type(dataset.baselines)(*(column[anchors] for column in dataset.baselines))
    stds = [v.std for v in values if v.std is not None]
    return Predictions(
        anchors=anchors,
        reference_ns=dataset.table.reference_ns[anchors],
        values=np.concatenate([v.values for v in values]) if values else np.zeros(shape),
        std=np.concatenate(stds) if stds else None,
        truth=dataset.targets[anchors],
        hold_last=known.hold_last(horizons),
        constant_velocity=known.constant_velocity(horizons),
    )


def score(layout: SequenceLayout, predictions: Predictions) -> list[dict[str, Any]]:
    """One row a target and horizon: count, MAE, RMSE and the simple predictors' RMSE in units, and skill.

    Skill is 1 − MSE / MSE of the reference (Murphy 1988): 1 is perfect, 0 no better, below 0 worse. Rows hold plain
    types; a score over no value is ``None``.
    """
    rows = []
    scored = predictions.scored
    for t, (name, unit) in enumerate(zip(layout.target_names, layout.target_units, strict=True)):
        for h, horizon_s in enumerate(layout.horizons_s):
            at = scored[:, h, t]
            error = predictions.values[at, h, t] - predictions.truth[at, h, t]
            held = predictions.hold_last[at, h, t] - predictions.truth[at, h, t]
            moved = predictions.constant_velocity[at, h, t] - predictions.truth[at, h, t]
            rows.append(
                {
                    "target": name,
                    "unit": unit,
                    "horizon_s": horizon_s,
                    "count": int(at.sum()),
                    "mae": _mean(np.abs(error)),
                    "rmse": _rms(error),
                    "rmse_hold_last": _rms(held),
                    "rmse_constant_velocity": _rms(moved),
                    "skill_hold_last": _skill(error, held),
                    "skill_constant_velocity": _skill(error, moved),
                }
            )
    return rows


def overall_skill(rows: list[dict[str, Any]], against: str = "hold_last") -> float:
    """The mean skill over targets and horizons; NaN where nothing was scored."""
    skills = [row[f"skill_{against}"] for row in rows if row[f"skill_{against}"] is not None]
    return float(np.mean(skills)) if skills else math.nan


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _rms(error: Floats) -> float | None:
    return float(np.sqrt((error**2).mean())) if len(error) else None


def _skill(error: Floats, reference: Floats) -> float | None:
    total = float((reference**2).sum())
    return 1.0 - float((error**2).sum()) / total if total > 0 else None
