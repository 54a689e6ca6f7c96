"""Pictures of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robopos.arrays import Ints
from robopos.files import whole_file
from robopos.sequences import SequenceLayout
from robopos.training.evaluation import Predictions

TRACE_S = 30.0  # of the log shown in a trace
MOST_TARGETS = 6


def draw_evaluation(
    layout: SequenceLayout, predictions: Predictions, rows: Sequence[dict[str, Any]], path: str | Path, title: str
) -> None:
    """For each target (the first 6): what was predicted at the furthest horizon over time, and error over horizon.

    Below the title stands what part of the targets and of the time is drawn, where it is not all.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = list(enumerate(layout.target_names))[:MOST_TARGETS]
    figure, axes = plt.subplots(len(shown), 2, figsize=(12, 2.4 * len(shown)), squeeze=False, width_ratios=(2.2, 1))
    # Names are no formulas, whatever `$` they hold.
    for (t, name), (trace, errors) in zip(shown, axes, strict=True):
        _trace(trace, layout, predictions, t)
        _errors(errors, [row for row in rows if row["target"] == name])
        unit = layout.target_units[t]
        trace.set_ylabel(f"{name}\n({unit})" if unit else name, fontsize=8, parse_math=False)
    axes[0][0].set_title(f"{layout.horizons_s[-1]:g} s ahead", fontsize=10)
    axes[0][1].set_title("RMSE over horizon", fontsize=10)
    axes[-1][0].set_xlabel("time (s)")
    axes[-1][1].set_xlabel("horizon (s)")
    axes[0][0].legend(fontsize=7, loc="upper right")
    axes[0][1].legend(fontsize=7)
    part = _part_drawn(len(shown), len(layout.target_names), predictions.reference_ns)
    figure.suptitle(f"{title}\n{part}" if part else title, fontsize=10, wrap=True, parse_math=False)
    figure.tight_layout()
    with whole_file(path) as beside:
        figure.savefig(beside, dpi=120, format="png")
    plt.close(figure)


def _part_drawn(shown: int, targets: int, reference_ns: Ints) -> str:
    """Such as "6 of 8 targets, 30 of 60 s"; "" where all is drawn."""
    steps_s = np.diff(reference_ns) / 1e9
    seconds = steps_s[np.abs(steps_s) <= TRACE_S].sum()  # the time between two logs is part of neither
    parts = [f"{shown} of {targets} targets"] if shown < targets else []
    parts += [f"{TRACE_S:g} of {seconds:.0f} s"] if seconds > TRACE_S else []
    return ", ".join(parts)


def _trace(axis: Any, layout: SequenceLayout, predictions: Predictions, target: int) -> None:
    time_s = (predictions.reference_ns - predictions.reference_ns[0]) / 1e9 + layout.horizons_s[-1]
    part = (time_s >= time_s[0]) & (time_s <= time_s[0] + TRACE_S)
    time_s, values = time_s[part], predictions.values[part, -1, target]
    axis.plot(time_s, predictions.truth[part, -1, target], color="black", linewidth=1.2, label="truth")
    axis.plot(time_s, values, color="#4C78A8", linewidth=1.0, label="predicted")
    axis.plot(time_s, predictions.hold_last[part, -1, target], color="#9AA5B1", linewidth=0.8, label="hold last")
    if predictions.std is not None:
        spread = predictions.std[part, -1, target]
        axis.fill_between(time_s, values - spread, values + spread, color="#4C78A8", alpha=0.2, linewidth=0)


def _errors(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    horizons_s = [row["horizon_s"] for row in rows]
    for key, color, label in (
        ("rmse", "#4C78A8", "model"),
        ("rmse_hold_last", "#9AA5B1", "hold last"),
        ("rmse_constant_velocity", "#E45756", "constant velocity"),
    ):
        axis.plot(
            horizons_s, [np.nan if row[key] is None else row[key] for row in rows], "o-", color=color, label=label
        )
    top = max((row["rmse_hold_last"] or 0.0) for row in rows)
    if top > 0:
        # Constant velocity may be far off; the others are what is compared.
        axis.set_ylim(0, 2 * top)
