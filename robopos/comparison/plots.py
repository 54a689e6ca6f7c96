"""The report's plots of figures. Each function draws one and gives the figure, in the colours of the current theme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robopos.comparison.conditions import HALF_NAME, drop_name
from robopos.comparison.results import Results
from robopos.comparison.settings import HALF_RATE, RECORDED
from robopos.comparison.table import HOLD
from robopos.comparison.theme import Theme, line_of
from robopos.texts import drawn

MOST_TARGETS = 6
MOST_TRACES = 3
LEAST_OLDER = 0.005  # of attention, that is told


def error_over_horizon(results: Results, theme: Theme) -> Any:
    """RMSE over the horizon, a panel a target."""
    names = results.layout.target_names[:MOST_TARGETS]
    figure, axes = theme.panels(len(names), 3, 3.6, 2.7)
    for axis, target, unit in zip(axes, names, results.layout.target_units, strict=False):
        for scheme in [*results.schemes, HOLD]:
            values = [
                results.figures.get("rmse", scheme, results.regime, RECORDED, target=target, horizon_s=h)
                for h in results.layout.horizons_s
            ]
            known = [np.nan if value is None else value.value for value in values]
            axis.plot(results.layout.horizons_s, known, **line_of(results.schemes, scheme, theme))
        axis.set_title(drawn(target), fontsize=9)
        axis.set_xlabel("horizon (s)")
        axis.set_ylabel(drawn(f"RMSE ({unit})" if unit else "RMSE"))
        axis.set_ylim(bottom=0)
    theme.legend(figure)
    return figure


def error_over_drops(results: Results, theme: Theme) -> Any | None:
    """Error over the share of lost messages, with intervals, a panel a regime."""
    shares = [0.0, *sorted(results.settings.conditions.drops)]
    names = [RECORDED, *(drop_name(share) for share in shares[1:])]
    if len(shares) < 2:
        return None
    regimes = results.regimes
    figure, axes = theme.panels(len(regimes), 3, 4.6 if len(regimes) > 1 else 7.5, 3.4)
    for axis, regime in zip(axes, regimes, strict=False):
        tops: list[float] = []
        for scheme in [*results.schemes, HOLD]:
            values = [results.figures.get("error", scheme, regime, name) for name in names]
            at = [(share, value) for share, value in zip(shares, values, strict=True) if value is not None]
            if not at:
                continue
            x, y = [share for share, _ in at], [value.value for _, value in at]
            style = line_of(results.schemes, scheme, theme)
            axis.plot(x, y, **style)
            tops.append(max(y))
            if scheme != HOLD:
                low, high = [value.low for _, value in at], [value.high for _, value in at]
                axis.fill_between(x, low, high, color=style["color"], alpha=0.10, linewidth=0)
        axis.set_title(f"trained {regime}", fontsize=9)
        axis.set_xlabel("share of messages lost")
        axis.set_ylabel("error / error of holding, as recorded")
        axis.set_ylim(bottom=0, top=1.15 * highest if (highest := max(tops, default=0.0)) > 0 else None)
    theme.legend(figure)
    return figure


def rate_shift(results: Results, theme: Theme) -> Any | None:
    """Skill by the rate of training and of test, a panel a scheme."""
    regimes = [r for r in (RECORDED, HALF_RATE) if r in results.regimes]
    tests = [c for c in (RECORDED, HALF_NAME) if c in results.conditions]
    if not regimes or len(tests) < 2:
        return None
    figure, axes = theme.panels(len(results.schemes), 3, 3.2, 0.9 + 0.75 * len(regimes))
    for axis, scheme in zip(axes, results.schemes, strict=False):
        found = [[results.figures.get("skill", scheme, regime, test) for test in tests] for regime in regimes]
        values = np.array([[np.nan if v is None else v.value for v in row] for row in found])
        axis.imshow(values, cmap=theme.colormap, vmin=-0.5, vmax=0.8, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            light = theme.is_light_cell(value, -0.5, 0.8)
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color="black" if light else "white")
        axis.set_xticks(range(len(tests)), ["full rate", "half rate"])
        axis.set_yticks(range(len(regimes)), ["full rate" if r == RECORDED else "half rate" for r in regimes])
        axis.set_title(drawn(scheme), fontsize=9)
        axis.grid(False)
        axis.set_ylabel("trained at", fontsize=8)
        axis.set_xlabel("judged at", fontsize=8)
    return figure


def forest(results: Results, theme: Theme) -> Any | None:
    """Paired differences of skill to the reference, with intervals, a panel a scheme."""
    reference = results.settings.reference_name
    others = [scheme for scheme in results.schemes if scheme != reference]
    if not others or reference not in results.schemes:
        return None
    figure, axes = theme.panels(len(others), 3, 3.9, 0.9 + 0.24 * len(results.conditions), sharey=True)
    rows = np.arange(len(results.conditions))
    for axis, scheme in zip(axes, others, strict=False):
        axis.axvline(0, color=theme.text, linewidth=0.8)
        for row, condition in zip(rows, results.conditions, strict=True):
            apart = results.figures.get("skill difference", scheme, results.regime, condition, against=reference)
            if apart is None:
                continue
            color = theme.muted if not apart.shown else theme.good if apart.value > 0 else theme.bad
            axis.plot([apart.low, apart.high], [row, row], color=color, linewidth=1.8)
            axis.plot(apart.value, row, "o", color=color, markersize=4.5)
        axis.set_title(drawn(scheme), fontsize=9)
        axis.set_yticks(rows, results.conditions)
        axis.set_xlabel(drawn(f"skill minus that of {reference}"), fontsize=8)
    axes[0].invert_yaxis()
    return figure


def traces(results: Results, theme: Theme) -> Any | None:
    """What the schemes predicted over the same half minute, at the furthest horizon."""
    cells = [cell for scheme in results.schemes if (cell := results.first(scheme)) is not None]
    if not cells or not len(cells[0].pictures["trace_time_s"]):
        return None
    names = results.layout.target_names
    shown = sorted({round(n) for n in np.linspace(0, len(names) - 1, min(MOST_TRACES, len(names)))})
    figure, axes = theme.panels(len(shown), 1, 9.6, 2.2)
    ahead_s = results.layout.horizons_s[-1]
    for axis, target in zip(axes, shown, strict=True):
        first = cells[0].pictures
        time_s = first["trace_time_s"] + ahead_s
        axis.plot(time_s, first["trace_truth"][:, -1, target], color=theme.text, linewidth=1.8, label="truth")
        style = line_of(results.schemes, HOLD, theme) | {"marker": ""}
        axis.plot(time_s, first["trace_hold"][:, -1, target], **style)
        for cell in cells:
            style = line_of(results.schemes, cell.key.scheme, theme) | {"marker": "", "linewidth": 1.0}
            axis.plot(time_s, cell.pictures["trace_model"][:, -1, target], **style)
        unit = results.layout.target_units[target]
        axis.set_ylabel(drawn(f"{names[target]}\n({unit})" if unit else names[target]), fontsize=8)
    axes[-1].set_xlabel(f"time (s); predicted {ahead_s:g} s ahead")
    theme.legend(figure)
    return figure


def attention(results: Results, theme: Theme) -> Any:
    """The share of attention by the age of the token, a panel a layer; means over heads, windows and seeds."""
    cells = [c for c in results.cells if c.error is None and c.key.regime == results.regime]
    layers = len(cells[0].pictures["attention"]) if cells else 1
    shown = sorted({0, layers - 1})
    figure, axes = theme.panels(len(shown), 2, 5.0, 3.2)
    for axis, layer in zip(axes, shown, strict=True):
        lines = ["age of the token (s)"]
        for scheme in results.schemes:
            found = [c.pictures for c in cells if c.key.scheme == scheme]
            if found:
                shares = np.mean([pictures["attention"][layer] for pictures in found], 0)
                style = line_of(results.schemes, scheme, theme)
                look = {name: style[name] for name in ("color", "linestyle", "label")}
                axis.stairs(shares, found[0]["attention_edges_s"], **look)
                if (older := 1 - shares.sum()) >= LEAST_OLDER:
                    lines.append(f"{scheme}: {older:.0%} is older than shown")
        axis.set_title(f"layer {layer + 1} of {layers}", fontsize=9)
        axis.set_xlabel(drawn("\n".join(lines)))
        axis.set_ylabel("share of attention")
        axis.set_yscale("log")
    theme.legend(figure)
    return figure


PLOTS: dict[str, tuple[Callable[[Results, Theme], Any | None], str]] = {
    "error_over_horizon": (
        error_over_horizon,
        "Error over the horizon as recorded, in each target's unit: mean RMSE over seeds.",
    ),
    "error_over_drops": (
        error_over_drops,
        "Error over the share of messages lost at test time, with 95 % intervals; 1 is holding the last value on the "
        "log as recorded.",
    ),
    "rate_shift": (rate_shift, "Skill when the rate of training and that of the test differ."),
    "forest": (
        forest,
        "Paired differences of skill to the reference scheme with 95 % intervals; grey where the interval holds 0: no "
        "difference shown.",
    ),
    "traces": (traces, "The same half minute of the test split, predicted at the furthest horizon (first seed)."),
    "attention": (attention, "Where the last token of a window looks, by the age of what it looks at."),
}
