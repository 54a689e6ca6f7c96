"""Tables, progress and written texts, the same for every command."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from robopos.cli.printable import printable
from robopos.files import whole_file


def console() -> Console:
    """Standard output; wide enough for a table where there is no terminal to ask."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


class Progress:
    """A bar with the time left, on standard error; nothing where that is no terminal.

    Use it as a context and call ``update(done)``. Without a total it shows that work goes on, and for how long.
    """

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            known = self._total is not None
            columns = (MofNCompleteColumn(), TimeRemainingColumn()) if known else (TimeElapsedColumn(),)
            self._bar = RichProgress(
                *(TextColumn("{task.description}"), BarColumn(), *columns, TextColumn("{task.fields[note]}")),
                console=Console(stderr=True, highlight=False),
                redirect_stdout=sys.stdout.isatty(),  # else what is printed meanwhile would leave its file
            )
            self._task = self._bar.add_task(self._label, total=self._total, note="")
            self._bar.start()
        return self

    def update(self, done: int, note: str = "", *, total: int | None = None) -> None:
        """Show ``done`` of the total, which is only known by now where it is given here."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, note=escape(note))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column on the left, numbers on the right."""
    shown = Table(title=escape(printable(title)), title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(escape(printable(column)), justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*(escape(printable(cell)) for cell in row))  # a field's [name] is no markup
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


def write_json(to: str | TextIO | None, content: Any) -> None:
    """JSON into a file or a stream; ``None`` writes nothing."""
    write_text(to, json.dumps(content, indent=1) + "\n")


def write_text(to: str | TextIO | None, text: str) -> None:
    """Text into a file, which is whole or not there, or into a stream; ``None`` writes nothing."""
    if isinstance(to, str):
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(to) as beside:
            beside.write_text(text, encoding="utf-8")
    elif to is not None:
        to.write(text)


def step_note(metrics: Mapping[str, float]) -> str:
    """The losses of a training step in a few words."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
