"""All figures of a study in one long table: what the report shows is looked up here, and written as cells.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from robopos.arrays import Floats
from robopos.comparison.cells import Cell, Sums
from robopos.comparison.settings import RECORDED, StudySettings
from robopos.comparison.statistics import (
    Estimate,
    Interval,
    Statistic,
    block_weights,
    error_in_units_of,
    estimate,
    interval,
    rmse,
    rmse_of_hold,
    rmse_of_velocity,
    skill,
    skill_of_velocity,
)
from robopos.sequences import SequenceLayout

COLUMNS = (
    *("quantity", "scheme", "against", "regime", "condition", "seed"),
    *("target", "unit", "horizon_s", "value", "low", "high"),
)
KEYS = COLUMNS[:6]
ALL_SEEDS = "all"
HOLD, VELOCITY = "hold last", "constant velocity"


class Figures:
    """The long table, with look-up.

    Args:
        frame: one row a figure, columns ``COLUMNS``; ``seed`` is a number or ``all``, what does not apply is "".
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        names = [*KEYS, "target", "horizon_s"]
        rows = frame[[*names, "value", "low", "high"]].itertuples(index=False)
        self._found = {tuple(row[: len(names)]): Interval(*row[len(names) :]) for row in rows}

    def get(
        self,
        quantity: str,
        scheme: str,
        regime: str = "",
        condition: str = "",
        *,
        against: str = "",
        seed: int | str = ALL_SEEDS,
        target: str = "",
        horizon_s: float | str = "",
    ) -> Interval | None:
        """One figure, or ``None`` where the study has none."""
        return self._found.get((quantity, scheme, against, regime, condition, str(seed), target, horizon_s))

    def seeds(self, scheme: str, regime: str, condition: str) -> Floats:
        """The skill of each seed."""
        keys = ("skill", scheme, "", regime, condition)
        values = [v.value for k, v in self._found.items() if k[:5] == keys and k[5] != ALL_SEEDS]
        return np.array(values)


def collect(settings: StudySettings, layout: SequenceLayout, cells: Sequence[Cell]) -> Figures:
    """Every figure of the cells that were made."""
    columns = [
        {"horizon_s": h, "target": name, "unit": unit}
        for h, (name, unit) in product(layout.horizons_s, zip(layout.target_names, layout.target_units, strict=True))
    ]
    done = [cell for cell in cells if cell.error is None]
    rows: list[dict[str, Any]] = []
    conditions = list(dict.fromkeys(name for cell in done for name in cell.sums))
    scale = next((rmse_of_hold(_total(c.sums[RECORDED])) for c in done), np.ones(len(columns)))
    for regime, condition in product(settings.regimes, conditions):
        here = [cell for cell in done if cell.key.regime == regime and condition in cell.sums]
        if here:
            rows += _of_condition(settings, columns, scale, here, regime, condition)
    rows += [row for cell in _by_scheme(done).values() for row in _costs(cell)]
    frame = pd.DataFrame([{c: row.get(c, "") for c in COLUMNS} for row in rows], columns=list(COLUMNS))
    for name in ("value", "low", "high"):
        frame[name] = pd.to_numeric(frame[name].replace("", np.nan)).astype(np.float64)
    frame["seed"] = frame["seed"].astype(str)
    return Figures(frame)


def _of_condition(
    settings: StudySettings,
    columns: list[dict[str, Any]],
    scale: Floats,
    cells: list[Cell],
    regime: str,
    condition: str,
) -> list[dict[str, Any]]:
    common = {"regime": regime, "condition": condition}
    first = cells[0].sums[condition]
    weights = block_weights(len(first.block), settings.resamples)
    rows: list[dict[str, Any]] = []

    def add(quantity: str, scheme: str, value: Interval | float, **more: Any) -> None:
        ends = value._asdict() if isinstance(value, Interval) else {"value": value}
        rows.append(common | {"quantity": quantity, "scheme": scheme, "seed": ALL_SEEDS} | ends | more)

    simple: tuple[tuple[str, Statistic, Statistic | None], ...] = (
        (HOLD, rmse_of_hold, None),
        (VELOCITY, rmse_of_velocity, skill_of_velocity),
    )
    for name, errors, skill_of in simple:
        if skill_of is not None:
            add("skill", name, interval(estimate(skill_of, [first], weights)))
        add("error", name, interval(estimate(error_in_units_of(scale, errors), [first], weights)))
        for column, value in zip(columns, errors(_total(first)), strict=True):
            add("rmse", name, float(value), **column)
    for column, count in zip(columns, _total(first).count, strict=True):
        add("count", "", float(count), **column)

    skills: dict[str, tuple[list[int], Estimate]] = {}
    errors_of: dict[str, Estimate] = {}
    for scheme, group in _by_scheme(cells).items():
        sums = [cell.sums[condition] for cell in group]
        seeds = [cell.key.seed for cell in group]
        skills[scheme] = seeds, estimate(skill, sums, weights)
        errors_of[scheme] = estimate(rmse, sums, weights)
        add("skill", scheme, interval(skills[scheme][1]))
        add("error", scheme, interval(estimate(error_in_units_of(scale), sums, weights)))
        for n, seed in enumerate(seeds):
            add("skill", scheme, float(skills[scheme][1].points[n]), seed=seed)
            for k, column in enumerate(columns):
                add("rmse", scheme, float(errors_of[scheme].points[n, k]), seed=seed, **column)
        for k, column in enumerate(columns):
            add("rmse", scheme, interval(errors_of[scheme].column(k)), **column)
    for scheme, against in product(skills, skills):
        if scheme == against:
            continue
        ours, theirs = _common(skills[scheme][0], skills[against][0])
        if not ours:
            continue
        apart = skills[scheme][1].seeds(ours) - skills[against][1].seeds(theirs)
        add("skill difference", scheme, interval(apart), against=against)
        if against == settings.reference_name:
            apart = errors_of[scheme].seeds(ours) - errors_of[against].seeds(theirs)
            for k, column in enumerate(columns):
                add("rmse difference", scheme, interval(apart.column(k)), against=against, **column)
    return rows


def _costs(cells: list[Cell]) -> list[dict[str, Any]]:
    """Medians over seeds and regimes."""
    rows = []
    for name in cells[0].costs:
        values = [value for cell in cells if (value := cell.costs.get(name)) is not None]  # null is no number
        if name == "mode":
            name, values = "streams", [value == "stream" for value in values]
        value = float(np.median(values)) if values else np.nan
        rows.append({"quantity": name, "scheme": cells[0].key.scheme, "seed": ALL_SEEDS, "value": value})
    return rows


def _by_scheme(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.key.scheme, []).append(cell)
    return groups


def _common(ours: list[int], theirs: list[int]) -> tuple[list[int], list[int]]:
    """The rows of the seeds that both have."""
    shared = [seed for seed in ours if seed in theirs]
    return [ours.index(seed) for seed in shared], [theirs.index(seed) for seed in shared]


def _total(sums: Sums) -> Sums:
    return Sums(sums.block, *(column.sum(0) for column in sums[1:]))
