"""Two looks for every plot: on a light page and on a dark one."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from robopos.texts import drawn

# Distinct in both looks, and for most kinds of colour blindness (after Okabe and Ito).
PALETTE = ("#0f88c8", "#e07b00", "#00a37a", "#cc5fa0", "#8c6bd1", "#b39b00", "#d1495b", "#5aa9e6")
INK = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
PAPER = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Theme:
    """Colours of one look; ``good`` and ``bad`` of differences that are shown."""

    name: str
    page: str
    text: str
    muted: str
    good: str
    bad: str
    colormap: str = "cividis"

    def panels(self, count: int, columns: int, width: float, height: float, sharey: bool = False) -> tuple[Any, Any]:
        """A figure with ``count`` panels of a size, at most so many beside each other; spare ones are blank."""
        import matplotlib.pyplot as plt

        columns = min(columns, count)
        rows = math.ceil(count / columns)
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(width * columns, height * rows + 0.5),
            squeeze=False,
            sharey=sharey,
            layout="constrained",
        )
        axes = grid.ravel()
        for axis in axes[count:]:
            axis.axis("off")
        return figure, axes[:count]

    def legend(self, figure: Any) -> None:
        """One legend for all panels, below them; none where nothing was drawn."""
        handles: dict[str, Any] = {}
        for axis in figure.axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        if not handles:
            return
        # About so many letters stand beside each other at this size.
        columns = max(1, int(figure.get_figwidth() * 11) // (6 + max(map(len, handles))))
        loc = "outside lower center"
        figure.legend(handles.values(), list(handles), loc=loc, ncols=columns, fontsize=8, frameon=False)

    def is_light_cell(self, value: float, low: float, high: float) -> bool:
        """Whether black is read better than white on a cell of a picture."""
        import matplotlib

        red, green, blue, _ = matplotlib.colormaps[self.colormap]((value - low) / (high - low))
        return 0.3 * red + 0.59 * green + 0.11 * blue > 0.5

    def render(self, draw: Callable[[Theme], Any | None]) -> bytes | None:
        """A drawing in this look, as PNG; ``None`` where there is nothing to draw."""
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        with matplotlib.rc_context(self._style()):  # type: ignore[arg-type]  # a key each of some hundred
            figure = draw(self)
            if figure is None:
                return None
            written = io.BytesIO()
            figure.savefig(written, format="png", dpi=110)
            plt.close(figure)
        return written.getvalue()

    def _style(self) -> dict[str, Any]:
        ink = dict.fromkeys(INK, self.text)
        paper = dict.fromkeys(PAPER, self.page)
        return (
            ink
            | paper
            | {
                "axes.grid": True,
                "grid.color": self.muted,
                "grid.alpha": 0.25,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "font.size": 8.5,
            }
        )


LIGHT = Theme("light", "#ffffff", "#1c2126", "#8a949e", "#00805e", "#c0392b")
DARK = Theme("dark", "#14181c", "#e4e8ec", "#7d8893", "#35c79a", "#ff7b6b")
THEMES = (LIGHT, DARK)


def line_of(schemes: Sequence[str], scheme: str, theme: Theme) -> dict[str, Any]:
    """A scheme's line and its label, everywhere the same: on time solid, on the index dashed, others dotted."""
    label = drawn(scheme)
    if scheme not in schemes:
        return {"color": theme.muted, "linestyle": ":", "marker": "", "linewidth": 1.4, "label": label}
    number = list(schemes).index(scheme)
    style = "-" if scheme.startswith("time") else "--" if scheme.startswith("index") else "-."
    return {
        "label": label,
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": style,
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.5,
    }
