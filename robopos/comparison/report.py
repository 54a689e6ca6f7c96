"""A study's cells as CSV, Markdown and a plot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from robopos._version import __version__
from robopos.comparison.study import Cell, Study

CELLS, REPORT, PLOT = "cells.csv", "report.md", "comparison.png"


def write_cells(folder: Path, cells: Sequence[Cell]) -> pd.DataFrame:
    """All rows of all cells so far; written beside and renamed, so that a file is always whole."""
    rows = [
        row | {"parameters": cell.parameters, "train_s": round(cell.train_s, 3)} for cell in cells for row in cell.rows
    ]
    frame = pd.DataFrame(rows)
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{CELLS}"
    frame.to_csv(beside, index=False)
    os.replace(beside, folder / CELLS)
    return frame


def summarize(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a scheme and condition: mean and spread over seeds of the skill against holding the last value.

    A seed's skill is the mean over targets and horizons. ``spread`` is the standard deviation over seeds (ddof 1).
    """
    by_seed = frame.groupby(["scheme", "condition", "seed"], sort=False)["skill_hold_last"].mean()
    grouped = by_seed.groupby(["scheme", "condition"], sort=False)
    table = grouped.agg(["mean", "std", "count"]).rename(columns={"std": "spread", "count": "seeds"}).reset_index()
    return table.fillna({"spread": 0.0})


def write_report(folder: Path, study: Study, cells: Sequence[Cell]) -> Path:
    """Write the Markdown report and its plot beside the CSV; returns the report's path."""
    frame = write_cells(folder, cells)
    draw(frame, folder / PLOT)
    path = folder / REPORT
    path.write_text(_markdown(study, frame))
    return path


def markdown_table(frame: pd.DataFrame) -> str:
    """Schemes down, conditions across: mean ± spread of skill over seeds; then parameters and training time."""
    table = summarize(frame)
    conditions = list(dict.fromkeys(frame["condition"]))
    lines = [
        f"| scheme | {' | '.join(conditions)} | parameters | training (s) |",
        "|---|" + "---:|" * (len(conditions) + 2),
    ]
    for scheme in dict.fromkeys(frame["scheme"]):
        row = table[table["scheme"] == scheme].set_index("condition")
        shown = [f"{row.loc[c, 'mean']:.3f} ± {row.loc[c, 'spread']:.3f}" for c in conditions]
        own = frame[frame["scheme"] == scheme]
        cost = f"{own['parameters'].iloc[0]:,} | {own.groupby('seed')['train_s'].first().mean():.1f}"
        lines.append(f"| {scheme} | {' | '.join(shown)} | {cost} |")
    rival = frame.drop_duplicates(["condition", "target", "horizon_s"])
    squares = (rival["rmse_constant_velocity"] / rival["rmse_hold_last"]) ** 2
    moved = (1 - squares).groupby(rival["condition"], sort=False).mean()
    lines.append(f"| *constant velocity* | {' | '.join(f'{moved[c]:.3f}' for c in conditions)} | 0 | |")
    return "\n".join(lines)


def _markdown(study: Study, frame: pd.DataFrame) -> str:
    settings = study.settings
    lines = [
        "# Index or time",
        "",
        f"{len(settings.schemes)} schemes x {len(settings.seeds)} seeds, {settings.max_steps} steps of "
        f"{settings.batch_size} windows each, on {', '.join(Path(p).name for p in settings.logs)}; "
        f"{len(study.conditions[0].anchors)} test anchors, the same for every scheme and condition. "
        f"Written by robopos {__version__}.",
        "",
        "Skill is 1 − MSE / MSE of holding the last value, averaged over targets and horizons "
        "(1 is perfect, 0 is no better); mean ± standard deviation over seeds.",
        "",
        markdown_table(frame),
        "",
        f"![skill by scheme and condition]({PLOT})",
        "",
        "## Error by target and horizon",
        "",
    ]
    lines += _errors(study, frame)
    lines += ["", _caution(frame, settings.seeds), ""]
    return "\n".join(lines)


def _errors(study: Study, frame: pd.DataFrame) -> list[str]:
    lines: list[str] = []
    for condition in dict.fromkeys(frame["condition"]):
        part = frame[frame["condition"] == condition]
        schemes = list(dict.fromkeys(part["scheme"]))
        lines += [
            f"RMSE, {condition}, mean over seeds:",
            "",
            f"| target | horizon (s) | anchors | {' | '.join(schemes)} | hold last | constant velocity |",
            "|---|---:|---:|" + "---:|" * (len(schemes) + 2),
        ]
        for (target, horizon_s), rows in part.groupby(["target", "horizon_s"], sort=False):
            means = rows.groupby("scheme", sort=False)["rmse"].mean()
            values = [means[s] for s in schemes]
            first = rows.iloc[0]
            values += [first["rmse_hold_last"], first["rmse_constant_velocity"]]
            unit = f" ({first['unit']})" if first["unit"] else ""
            shown = " | ".join(f"{v:.4g}" for v in values)
            lines.append(f"| {target}{unit} | {horizon_s:g} | {first['count']} | {shown} |")
        lines.append("")
    return lines


def _caution(frame: pd.DataFrame, seeds: Sequence[int]) -> str:
    spread = summarize(frame)["spread"].max()
    return (
        f"With {len(seeds)} seeds the spread is a rough guess: differences below about {2 * spread:.3f} "
        "(twice the largest spread) show nothing."
    )


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Skill by scheme, a panel a condition; a dot a seed, a bar their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    conditions, schemes = list(dict.fromkeys(frame["condition"])), list(dict.fromkeys(frame["scheme"]))
    by_seed = frame.groupby(["scheme", "condition", "seed"], sort=False)["skill_hold_last"].mean()
    figure, axes = plt.subplots(
        1, len(conditions), figsize=(1.2 + 3.6 * len(conditions), 0.9 + 0.45 * len(schemes)), sharey=True, squeeze=False
    )
    rows = np.arange(len(schemes))
    for axis, condition in zip(axes[0], conditions, strict=True):
        for row, scheme in zip(rows, schemes, strict=True):
            values: Any = by_seed[scheme, condition].to_numpy()
            axis.barh(row, values.mean(), color="#4C78A8" if scheme.startswith("time") else "#9AA5B1", height=0.6)
            axis.plot(values, np.full(len(values), row), "o", color="black", markersize=3.5)
        axis.set_title(condition, fontsize=10)
        axis.set_xlabel("skill against hold last")
        axis.axvline(0, color="black", linewidth=0.8)
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(rows, schemes)
    axes[0][0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
