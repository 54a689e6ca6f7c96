"""What an engine predicted over a log, against evaluation of the same log and against the truth. Needs no Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from robopos.arrays import Floats, Ints
from robopos.model import Bundle
from robopos.sequences import SequenceDataset, difference
from robopos.training.evaluation import predict


class BatchParity(NamedTuple):
    """How far live predictions are from those of evaluation, in scales of the residuals."""

    predictions: int
    largest: float
    rms: float
    token: int
    """Where the largest difference is."""


def batch_parity(
    bundle: Bundle,
    dataset: SequenceDataset,
    tokens: Ints,
    values: Floats,
    mode: str,
    progress: Callable[[int, int], None] | None = None,
) -> BatchParity:
    """Compare with evaluation in the same mode.

    Args:
        dataset: the log that was replayed, whole.
        tokens: (A,) numbers of the tokens after which was predicted, at least one.
        values: (A, H, T) what was predicted; a value missing on one side alone is a difference without bound.
    """
    batch = predict(bundle, dataset, "all", anchors=tokens, mode=mode, progress=progress)
    apart = np.abs(difference(bundle.layout.target_kinds, values, batch.values)) / bundle.normalization.residual_scale
    both_missing = np.isnan(values) & np.isnan(batch.values)
    apart = np.where(both_missing, 0.0, np.nan_to_num(apart, nan=np.inf))
    return BatchParity(
        predictions=len(tokens),
        largest=float(apart.max()),
        rms=float(np.sqrt((apart**2).mean())),
        token=int(tokens[int(apart.reshape(len(tokens), -1).max(1).argmax())]),
    )


def error_over_time(
    bundle: Bundle, dataset: SequenceDataset, tokens: Ints, values: Floats, parts: int = 10
) -> list[dict[str, Any]]:
    """Error in ``parts`` equal spans of the time predicted over.

    Returns:
        a row a span that has predictions: ``from_s`` and ``to_s`` since the log's first token, ``count`` of values
        judged, ``rmse`` and ``rmse_hold_last`` in scales of the residuals over all targets and horizons, ``skill``
        (1 minus their squares' ratio, ``None`` where nothing moved). Plain types.
    """
    truth = dataset.targets[tokens]
    held = dataset.baselines.take(tokens).hold_last(bundle.layout)
    kinds, scale = bundle.layout.target_kinds, bundle.normalization.residual_scale
    scored = np.isfinite(truth) & np.isfinite(held) & np.isfinite(values)
    squares = np.where(scored, (difference(kinds, values, truth) / scale) ** 2, 0.0).sum((1, 2))
    squares_held = np.where(scored, (difference(kinds, held, truth) / scale) ** 2, 0.0).sum((1, 2))
    counts = scored.sum((1, 2))
    at_s = (dataset.table.reference_ns[tokens] - dataset.table.reference_ns[0]) / 1e9
    edges = np.linspace(at_s.min(), at_s.max(), parts + 1)
    part = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, parts - 1)
    rows = []
    for number in range(parts):
        here = part == number
        count = int(counts[here].sum())
        if not count:
            continue
        error, reference = float(squares[here].sum()), float(squares_held[here].sum())
        rows.append(
            {
                "from_s": float(edges[number]),
                "to_s": float(edges[number + 1]),
                "count": count,
                "rmse": (error / count) ** 0.5,
                "rmse_hold_last": (reference / count) ** 0.5,
                "skill": 1.0 - error / reference if reference > 0 else None,
            }
        )
    return rows
