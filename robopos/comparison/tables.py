"""The report's tables, as plain rows of text: once for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from robopos.comparison.results import Results
from robopos.comparison.settings import HALF_RATE, RECORDED
from robopos.comparison.statistics import Interval
from robopos.comparison.table import HOLD, VELOCITY
from robopos.comparison.words import number, with_interval
from robopos.texts import markdown_table

NOTHING = "-"
NONE_SHOWN = "\u2205"  # the sign of "no difference shown"


class Table(NamedTuple):
    """A table with a title; the first column is text, the others are figures."""

    title: str
    header: list[str]
    rows: list[list[str]]


def skill_table(results: Results, regime: str) -> Table:
    """Conditions down, schemes across: mean skill and its interval. The main table is that of the first regime."""
    header = ["condition", "anchors", *results.schemes, VELOCITY]
    rows = []
    for condition in results.conditions:
        found = [results.figures.get("skill", s, regime, condition) for s in header[2:]]
        rows.append([condition, str(results.facts["anchors"][condition]), *map(_or_nothing, found)])
    note = " (as recorded is double the rate here)" if regime == HALF_RATE else ""
    return Table(f"Skill, trained {regime}{note}", header, rows)


def difference_table(results: Results, regime: str) -> Table | None:
    """Conditions down, schemes across: the paired difference of skill to the reference."""
    reference = results.settings.reference_name
    others = [scheme for scheme in results.schemes if scheme != reference]
    if not others or reference not in results.schemes:
        return None
    rows = []
    for condition in results.conditions:
        found = [results.figures.get("skill difference", s, regime, condition, against=reference) for s in others]
        rows.append([condition, *(_difference(value, 3) for value in found)])
    return Table(f"Skill minus that of {reference}, seed by seed, trained {regime}", ["condition", *others], rows)


def error_table(results: Results, condition: str) -> Table:
    """Targets and horizons down: RMSE in units of the simple predictors and the schemes."""
    schemes = [HOLD, VELOCITY, *results.schemes]
    rows = []
    for target, unit, horizon_s in _columns(results):
        get = partial(results.figures.get, "rmse", regime=results.regime, condition=condition)
        found = [get(s, target=target, horizon_s=horizon_s) for s in schemes]
        shown = [NOTHING if v is None else _significant(v.value) for v in found]
        rows.append([f"{target} ({unit})" if unit else target, f"{horizon_s:g}", *shown])
    title = f"RMSE in units, {condition}, trained {results.regime}, means over seeds"
    return Table(title, ["target", "horizon (s)", *schemes], rows)


def unit_difference_table(results: Results) -> Table | None:
    """Targets and horizons down: the paired difference of RMSE to the reference, in units, as recorded."""
    reference = results.settings.reference_name
    others = [scheme for scheme in results.schemes if scheme != reference]
    if not others or reference not in results.schemes:
        return None
    rows = []
    for target, unit, horizon_s in _columns(results):
        get = partial(results.figures.get, "rmse difference", regime=results.regime, condition=RECORDED)
        found = [get(s, target=target, horizon_s=horizon_s, against=reference) for s in others]
        rows.append([f"{target} ({unit})" if unit else target, f"{horizon_s:g}", *(_difference(v, 4) for v in found)])
    title = f"RMSE minus that of {reference} in units, as recorded, trained {results.regime} (below 0 is better)"
    return Table(title, ["target", "horizon (s)", *others], rows)


def cost_table(results: Results) -> Table:
    """What each scheme costs."""
    header = [
        *("scheme", "parameters", "training step (ms)", "mode", "serving step (ms)", "state (kB)"),
        *("tokens in a band", "seconds in a band", "tokens through all layers"),
    ]
    rows = []
    for scheme in results.schemes:

        def cost(name: str, scheme: str = scheme) -> float:
            found = results.figures.get(name, scheme)
            return float("nan") if found is None else found.value

        rows.append(
            [
                scheme,
                f"{cost('parameters'):,.0f}",
                number(cost("train_step_ms"), 1),
                "stream" if cost("streams") == 1 else "window",
                number(cost("serving_step_ms"), 2),
                number(cost("state_bytes") / 1000, 1),
                number(cost("band_tokens"), 0),
                number(cost("band_s"), 2),
                number(cost("reach_tokens"), 0),
            ]
        )
    return Table("What each scheme costs", header, rows)


def order_table(results: Results) -> Table:
    """The shuffle test of the trained networks."""
    header = ["scheme", "tokens before it change places", "time runs at half speed"]
    rows = []
    for scheme in results.schemes:
        found = [results.figures.get(name, scheme) for name in ("shuffle_effect", "stretch_effect")]
        rows.append([scheme, *(NOTHING if v is None or v.value != v.value else f"{v.value:.1%}" for v in found)])
    return Table("How much the last output changes, of its own size, when", header, rows)


def seed_table(results: Results) -> Table:
    """The skill of each seed as recorded."""
    seeds = results.settings.seeds
    rows = []
    for scheme, regime in product(results.schemes, results.regimes):
        found = [results.figures.get("skill", scheme, regime, RECORDED, seed=seed) for seed in seeds]
        rows.append([f"{scheme}, trained {regime}", *(NOTHING if v is None else number(v.value) for v in found)])
    return Table("Skill of each training, as recorded", ["scheme", *(f"seed {s}" for s in seeds)], rows)


def notes(results: Results) -> list[str]:
    """Of the logs; cells that failed, conditions that were impossible, anchors and scores that are missing."""
    found = list(results.facts["notes"])
    found += [f"Failed: {cell.key}: {cell.error}" for cell in results.failed]
    missing = len(results.settings.cells()) - len(results.cells)
    found += [f"{missing} of {len(results.settings.cells())} cells are not made yet."] if missing else []
    empty = [name for name, count in results.facts["anchors"].items() if not count]
    found += [f"{name}: no anchor has enough history left, so nothing is judged." for name in empty]
    found += [f"{name}: {reason}" for name in results.conditions if (reason := _unscored(results, name))]
    skipped: dict[str, None] = {}
    for cell in results.done:
        for condition, reason in cell.skipped.items():
            if condition not in empty:
                skipped[f"{cell.key.scheme}, {condition}: not possible: {reason}."] = None
    return found + list(skipped)


def _unscored(results: Results, condition: str) -> str:
    """Why a condition with anchors has no skill; "" where it has one, or no cell."""
    get = partial(results.figures.get, regime=results.regime, condition=condition)
    skill = get("skill", VELOCITY)
    if skill is None or skill.value == skill.value:
        return ""
    counts = [get("count", "", target=target, horizon_s=h) for target, _, h in _columns(results)]
    if any(count is not None and count.value for count in counts):
        return "no skill: holding the last value makes no error."
    return "nothing is scored: at no anchor are a target's last value and its truth known."


def markdown(table: Table) -> str:
    """As Markdown."""
    return markdown_table(table.header, table.rows)


def _columns(results: Results) -> Sequence[tuple[str, str, float]]:
    layout = results.layout
    named = zip(layout.target_names, layout.target_units, strict=True)
    return [(target, unit, h) for (target, unit), h in product(named, layout.horizons_s)]


def _or_nothing(value: Interval | None) -> str:
    return NOTHING if value is None else with_interval(value)


def _difference(value: Interval | None, digits: int) -> str:
    if value is None:
        return NOTHING
    return with_interval(value, digits, plus=True) + (f" {NONE_SHOWN}" if value.open else "")


def _significant(value: float) -> str:
    return NOTHING if value != value else f"{value:.4g}".replace("-", "\u2212")
