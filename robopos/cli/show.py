"""Tables, progress and written texts, the same for every command."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from robopos.cli.printable import printable
from robopos.files import whole_file
from robopos.texts import json_text, markdown_table


def console() -> Console:
    """Standard output; wide enough for a table where there is no terminal to ask."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def notes(lines: Iterable[str]) -> None:
    """Print what had to be said, for example about logs."""
    for line in lines:
        print(printable(f"note: {line}"))


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


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1, keys: int = 1) -> None:
    """Print a table. What does not fit beside each other comes below, as a table that begins with the same keys.

    Numbers are never cut. Texts fold, down to ``READABLE`` characters, and so do the words above the numbers.

    Args:
        title: stands above; "" is none.
        columns: what stands above the columns.
        rows: a text for each column.
        texts: so many of the columns, the first, are texts on the left; the others are numbers on the right.
        keys: so many of the columns, the first, name a row.
    """
    out = console()
    columns = [printable(column) for column in columns]
    rows = [[printable(cell) for cell in row] for row in rows]
    cells = [max((_width(row[i]) for row in rows), default=0) for i in range(len(columns))]
    full = [max(cell, _width(column)) for cell, column in zip(cells, columns, strict=True)]
    pieces = [column.split("\n") if "\n" in column else column.split() for column in columns]
    folded = [min(cell, READABLE) if i < texts else cell for i, cell in enumerate(cells)]
    least = [max([cell, *map(_width, piece)]) for cell, piece in zip(folded, pieces, strict=True)]
    if not sys.stdout.isatty():
        out.width = max(out.width, _across(full))
    if title:
        out.print(Text(printable(title)))
    for number, part in enumerate(_parts(full if _across(full) <= out.width else least, keys, out.width)):
        if number:
            out.print()
        widths = _widened([least[i] for i in part], [full[i] for i in part], out.width)
        shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for i, width in zip(part, widths, strict=True):
            shown.add_column(Text(columns[i]), justify="left" if i < texts else "right", width=width, overflow="fold")
        for row in rows:
            shown.add_row(*(Text(row[i]) for i in part))
        out.width = max(out.width, _across(widths))  # narrower than one number: the terminal wraps it
        out.print(shown)


READABLE = 20  # characters of a text column; a topic of usual length is whole


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _across(widths: Sequence[int]) -> int:
    """Characters from the left to the right of a table of columns that wide."""
    return sum(widths) + 3 * (len(widths) - 1)


def _parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """The columns of each table: the keys, and as many of the others as there is room for, at least one."""
    parts = [list(range(keys))]
    for i in range(keys, len(widths)):
        if len(parts[-1]) > keys and _across([widths[j] for j in [*parts[-1], i]]) > room:
            parts.append(list(range(keys)))
        parts[-1].append(i)
    return parts


def _widened(least: Sequence[int], full: Sequence[int], room: int) -> list[int]:
    """The least widths; what is left of the room goes to the first columns, as far as they can use it."""
    widths, left = list(least), room - _across(least)
    for i, most in enumerate(full):
        more = max(0, min(left, most - widths[i]))
        widths[i], left = widths[i] + more, left - more
    return widths


def scores(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows of ``robopos.training.score`` as a table."""
    table(title, list(SCORE_COLUMNS), score_cells(rows), keys=2)


SCORE_COLUMNS = (
    *("target", "horizon", "anchors", "MAE", "RMSE", "hold last", "const. velocity"),
    *("skill (hold)", "skill (vel.)", "in 90 %"),
)


def number(value: float | None, digits: str) -> str:
    """A figure that may be unknown."""
    return "-" if value is None or math.isnan(value) else format(value, digits)


def score_cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of ``robopos.training.score`` as text, in the order of ``SCORE_COLUMNS``."""
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
    return markdown_table(SCORE_COLUMNS, score_cells(rows)) + "\n"


def write_json(to: str | TextIO | None, content: Any) -> None:
    """JSON into a file or a stream; ``None`` writes nothing."""
    write_text(to, json_text(content))


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
