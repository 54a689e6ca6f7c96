"""Tables and progress on the terminal, the same for every command."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

LINE_EVERY_S = 5.0


def console() -> Console:
    """Standard output; wide enough for a table where there is no terminal to ask."""
    return Console(width=None if sys.stdout.isatty() else 180, highlight=False)


class Progress:
    """A bar with the time left on a terminal; elsewhere a line now and then.

    Use it as a context and call ``update(done)``.
    """

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, max(total, 1)
        self._started = self._spoke = time.monotonic()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        if sys.stdout.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = RichProgress(*columns, TextColumn("{task.fields[note]}"), console=console())
            self._task = self._bar.add_task(self._label, total=self._total, note="")
            self._bar.start()
        return self

    def update(self, done: int, note: str = "") -> None:
        """Show ``done`` of the total."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=escape(note))
            return
        now = time.monotonic()
        if now - self._spoke >= LINE_EVERY_S and done < self._total:
            self._spoke = now
            left_s = (now - self._started) / max(done, 1) * (self._total - done)
            # The very first steps take long for other reasons, and would promise hours.
            left = f", about {left_s:.0f} s left" if done > 0.02 * self._total else ""
            print(f"{self._label}: {done} of {self._total}{left} {note}".rstrip(), flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif kind is None:
            print(f"{self._label}: done in {time.monotonic() - self._started:.1f} s", flush=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column on the left, numbers on the right."""
    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*map(escape, row))  # a field's [name] is no markup
    console().print(shown)


def scores(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows of ``robopos.training.score`` as a table."""
    table(title, list(SCORE_COLUMNS), score_cells(rows))


SCORE_COLUMNS = (
    *("target", "horizon", "anchors", "MAE", "RMSE", "hold last", "const. velocity"),
    *("skill (hold)", "skill (vel.)", "in 90 %"),
)


def score_cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of ``robopos.training.score`` as text, in the order of ``SCORE_COLUMNS``."""

    def number(value: float | None, digits: str) -> str:
        return "-" if value is None or math.isnan(value) else format(value, digits)

    return [
        [
            f"{row['target']} ({row['unit']})" if row["unit"] else row["target"],
            f"{row['horizon_s']:g} s",
            str(row["count"]),
            number(row["mae"], ".4g"),
            number(row["rmse"], ".4g"),
            number(row["rmse_hold_last"], ".4g"),
            number(row["rmse_constant_velocity"], ".4g"),
            number(row["skill_hold_last"], "+.3f"),
            number(row["skill_constant_velocity"], "+.3f"),
            number(row["coverage_90"], ".2f"),
        ]
        for row in rows
    ]


def markdown_scores(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``robopos.training.score`` as a Markdown table."""
    lines = [SCORE_COLUMNS, ["---"] + ["---:"] * (len(SCORE_COLUMNS) - 1), *score_cells(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_json(path: str | None, content: Any) -> None:
    """JSON into a file; ``None`` writes nothing."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: str | None, text: str) -> None:
    """Write beside and rename, so that a file is always whole; ``None`` writes nothing."""
    if path is None:
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}")
    beside.write_text(text)
    os.replace(beside, target)


def step_note(metrics: Mapping[str, float]) -> str:
    """The losses of a training step in a few words."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
