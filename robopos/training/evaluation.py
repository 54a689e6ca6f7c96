"""Error in the streams' own units, against what needs no model. Needs no Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robopos.arrays import Floats, Ints
from robopos.model import Bundle, SequenceTransformer, pick_mode
from robopos.positions import Positions
from robopos.sequences import SequenceDataset, SequenceLayout, TokenColumns, difference

CENTRAL_90 = 1.6448536269514722  # standard deviations to either side that hold 90 % of a Gaussian


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
    def scored(self) -> NDArray[np.bool_]:
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
    mode: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions as served: with cached keys over whole gap-free blocks, or one window for each anchor.

    Args:
        split: whose blocks tokens stay in.
        anchors: token numbers; by default each that has ``burn_in`` tokens before it.
        batch_size: windows, or tokens of a block, computed at once.
        mode: ``stream`` or ``window``, as the engine has them; ``None`` takes ``stream`` where the scheme allows it.
        progress: is told anchors done and all.

    Raises:
        ConfigError: ``stream`` with a scheme that does not stream.
    """
    mode = pick_mode(bundle.network.positions, mode)
    device = next(bundle.network.parameters()).device
    columns = dataset.columns(bundle.normalization, split, device)
    if anchors is None:
        anchors = columns.anchors(bundle.settings.history)
    horizons = bundle.layout.horizons_s
    values = np.full((len(anchors), len(horizons), len(bundle.layout.targets)), np.nan)
    stds = np.full_like(values, np.nan) if bundle.settings.loss == "gaussian" else None
    encode = _encode_blocks if mode == "stream" else _encode_windows
    done = 0
    for rows, encoded in encode(bundle.network, columns, anchors, batch_size):
        mean, log_std = bundle.network.predict(encoded)
        values[rows], std = bundle.physical(mean, log_std, dataset.baselines.base[anchors[rows]])
        if stds is not None:
            stds[rows] = std
        done += len(rows)
        if progress is not None:
            progress(done, len(anchors))
    known = dataset.baselines.take(anchors)
    return Predictions(
        anchors=anchors,
        reference_ns=dataset.table.reference_ns[anchors],
        values=values,
        std=stds,
        truth=dataset.targets[anchors],
        hold_last=known.hold_last(bundle.layout),
        constant_velocity=known.constant_velocity(bundle.layout),
    )


Encoded = Iterator[tuple[Ints, Tensor]]
"""Rows of the anchors (R,), and what the network knows after each of these tokens (R, D)."""


def _encode_windows(network: SequenceTransformer, columns: TokenColumns, anchors: Ints, size: int) -> Encoded:
    for first in range(0, len(anchors), size):
        rows = np.arange(first, min(first + size, len(anchors)))
        ends = torch.from_numpy(anchors[rows]).to(columns.values.device)
        tokens, _ = columns.windows(ends, network.settings.window)
        yield rows, network.encode(tokens)[:, -1]


def _encode_blocks(network: SequenceTransformer, columns: TokenColumns, anchors: Ints, size: int) -> Encoded:
    for block in columns.blocks:
        inside = np.flatnonzero((anchors >= block.start) & (anchors < block.stop))
        if not len(inside):
            continue
        state = network.start()
        # Further back than the layers' bands together nothing reaches an anchor.
        begin = max(block.start, int(anchors[inside].min()) - network.reach)
        for start in range(begin, int(anchors[inside].max()) + 1, size):
            stop = min(start + size, block.stop)
            tokens, _ = columns.windows(torch.tensor([stop - 1], device=columns.values.device), stop - start)
            assert tokens.positions.time_ns is not None
            tokens = tokens._replace(positions=Positions(time_ns=tokens.positions.time_ns[0]))
            encoded = state.absorb(network.step, tokens, stop - start)
            rows = inside[(anchors[inside] >= start) & (anchors[inside] < stop)]
            yield rows, encoded[0, torch.from_numpy(anchors[rows] - start)]


def score(layout: SequenceLayout, predictions: Predictions) -> list[dict[str, Any]]:
    """One row a target and horizon: count, MAE, RMSE and the simple predictors' RMSE in units, skill and coverage.

    Skill is 1 − MSE / MSE of the reference (Murphy 1988): 1 is perfect, 0 no better, below 0 worse. Rows hold plain
    types; a score over no value is ``None``. ``coverage_90`` is the share of values within the central 90 % of the
    predicted Gaussian (0.9 is honest), ``None`` without standard deviations.
    """
    rows = []
    scored = predictions.scored
    kinds, truth = layout.target_kinds, predictions.truth
    errors = difference(kinds, predictions.values, truth)
    errors_held = difference(kinds, predictions.hold_last, truth)
    errors_moved = difference(kinds, predictions.constant_velocity, truth)
    for t, (name, unit) in enumerate(zip(layout.target_names, layout.target_units, strict=True)):
        for h, horizon_s in enumerate(layout.horizons_s):
            at = scored[:, h, t]
            error, held, moved = (e[at, h, t] for e in (errors, errors_held, errors_moved))
            inside = None if predictions.std is None else np.abs(error) <= CENTRAL_90 * predictions.std[at, h, t]
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
                    "coverage_90": None if inside is None else _mean(inside.astype(np.float64)),
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
