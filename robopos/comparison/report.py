"""A study's report: index.html, report.md, cells.csv and the plots."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from robopos._version import __version__
from robopos.comparison import page, tables
from robopos.comparison.cells import BUNDLE
from robopos.comparison.learned import draw_positions
from robopos.comparison.plots import PLOTS
from robopos.comparison.results import Results
from robopos.comparison.settings import RECORDED
from robopos.comparison.theme import THEMES, Theme
from robopos.comparison.words import summary
from robopos.errors import RoboposError
from robopos.files import whole_file
from robopos.model import Bundle
from robopos.texts import markdown_text

PAGE, MARKDOWN, CELLS, PLOT_FOLDER = "index.html", "report.md", "cells.csv", "plots"
TITLE = "Index or time"
LEARNED = (
    "What each scheme's positions are after training (first seed): learned tables, biases and periods, fixed periods."
)
HOW_TO_READ = (
    "Skill is 1 minus the squared error divided by that of holding the last value, averaged over targets and horizons: "
    "1 is perfect, 0 no better than holding. In brackets: 95 % intervals, blocks of time by the bootstrap and seeds by "
    "Student's t. All schemes are judged at the same anchors of a condition; targets are read off the undegraded log. "
    f"Differences are paired, seed by seed and block by block; {tables.NONE_SHOWN} marks intervals that hold 0: no "
    "difference shown."
)


def write_report(out: Path, results: Results) -> Path:
    """Write all files of the report whole; returns the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    _replace(out / CELLS, results.figures.frame.to_csv(index=False, float_format="%.9g").encode())
    plots = draw_all(out, results)
    for name, (looks, _) in plots.items():
        (out / PLOT_FOLDER).mkdir(exist_ok=True)
        _replace(out / PLOT_FOLDER / f"{name}.png", looks["light"])
    words = summary(results)
    _replace(out / MARKDOWN, _markdown(results, words, plots).encode())
    _replace(out / PAGE, _html(results, words, plots).encode())
    return out / PAGE


Plots = dict[str, tuple[dict[str, bytes], str]]
"""Looks and caption by name."""


def draw_all(out: Path, results: Results) -> Plots:
    """Every plot that there is something for, in both looks."""
    if not results.done:
        return {}
    bundles = _bundles(out, results)
    drawers: dict[str, tuple[Callable[[Theme], Any | None], str]] = {
        name: (partial(draw, results), caption) for name, (draw, caption) in PLOTS.items()
    }
    drawers["positions"] = (partial(draw_positions, bundles), LEARNED)
    plots: Plots = {}
    for name, (drawer, caption) in drawers.items():
        looks = {theme.name: theme.render(drawer) for theme in THEMES}
        drawn = {look: png for look, png in looks.items() if png is not None}
        if len(drawn) == len(THEMES):
            plots[name] = drawn, caption
    return plots


def _bundles(out: Path, results: Results) -> dict[str, Bundle]:
    found = {}
    for scheme in results.schemes:
        cell = results.first(scheme)
        try:
            if cell is not None:
                found[scheme] = Bundle.load(out / "cells" / cell.key.slug / BUNDLE)
        except RoboposError:
            continue  # taken away to save room: the figures do not need it
    return found


def _tables(results: Results) -> dict[str, tables.Table]:
    """By id, in the order of the report; the first is the main table."""
    found: dict[str, tables.Table | None] = {"main": tables.skill_table(results, results.regime)}
    found["differences"] = tables.difference_table(results, results.regime)
    for number, regime in enumerate(results.regimes[1:]):
        found[f"main-{number}"] = tables.skill_table(results, regime)
        found[f"differences-{number}"] = tables.difference_table(results, regime)
    found["costs"] = tables.cost_table(results)
    found["errors"] = tables.error_table(results, RECORDED)
    found["unit-differences"] = tables.unit_difference_table(results)
    found["order"] = tables.order_table(results)
    found["seeds"] = tables.seed_table(results)
    return {name: table for name, table in found.items() if table is not None}


def _facts(results: Results) -> dict[str, str]:
    settings, facts = results.settings, results.facts
    split = settings.split
    return {
        "command": results.command,
        "logs": ", ".join(f"{name} (SHA-256 {digest})" for name, digest in facts["hashes"].items()),
        "messages": ", ".join(f"{name} {count:,}" for name, count in facts["streams"].items()),
        "split": f"{'time blocks' if split.by == 'time' else 'whole logs'}: "
        f"{split.validation:.0%} validation, {split.test:.0%} test at the end",
        "seeds": ", ".join(map(str, settings.seeds)),
        "budget": f"{settings.max_steps} steps of {settings.batch_size} windows of {settings.network.window} tokens "
        f"each, in the same order; the same initial weights where shapes agree",
        "network": f"{settings.network.size}, context {settings.network.context} tokens and "
        + ("no band in s" if settings.network.context_s is None else f"{settings.network.context_s:g} s"),
        "periods, slopes, tables": "by one rule, from the median interval between tokens "
        f"({facts['interval_s']:.4g} s) and the context",
        "intervals": f"{settings.resamples} resamples of blocks of {settings.block_s:g} s",
        "versions": f"robopos {__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}",
    }


def _markdown(results: Results, words: str, plots: Plots) -> str:
    parts = [f"# {TITLE}", markdown_text(words)]
    shown = [f"## {markdown_text(t.title)}\n\n{tables.markdown(t)}" for t in _tables(results).values()]
    parts += [shown[0], HOW_TO_READ]
    parts += [f"- {markdown_text(line)}" for line in tables.notes(results)]
    parts += shown[1:]
    parts += [f"![{caption}]({PLOT_FOLDER}/{name}.png)\n\n{caption}" for name, (_, caption) in plots.items()]
    parts += ["## How it was made", "\n".join(f"- {k}: {markdown_text(v)}" for k, v in _facts(results).items())]
    return "\n\n".join(parts) + "\n"


def _html(results: Results, words: str, plots: Plots) -> str:
    shown = {name: page.table_html(table, name) for name, table in _tables(results).items()}
    drawn = {name: page.plot_html(looks, caption) for name, (looks, caption) in plots.items()}
    skills = "".join(content for name, content in shown.items() if name.startswith(("main", "differences")))
    remarks = page.note_html(tables.notes(results))
    sections = [
        ("Skill under each condition", page.text_html(HOW_TO_READ) + remarks + skills + drawn.pop("forest", "")),
        ("Rates and losses", drawn.pop("rate_shift", "") + drawn.pop("error_over_drops", "")),
        (
            "Error in units",
            drawn.pop("error_over_horizon", "") + shown["errors"] + shown.get("unit-differences", ""),
        ),
        ("Costs", shown["costs"]),
        ("Traces", drawn.pop("traces", "")),
        ("Positions and attention", shown["order"] + "".join(drawn.values())),
        ("Seeds", shown["seeds"]),
    ]
    return page.page(TITLE, words, [(heading, content) for heading, content in sections if content], _facts(results))


def _replace(path: Path, content: bytes) -> None:
    with whole_file(path) as beside:
        beside.write_bytes(content)
