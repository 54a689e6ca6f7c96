"""A study's results: its cells and all figures of them, as the report needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from robopos.comparison.cells import Cell
from robopos.comparison.settings import RECORDED, StudySettings
from robopos.comparison.table import Figures, collect
from robopos.sequences import SequenceLayout


@dataclass(frozen=True)
class Results:
    """What was made so far; ``facts`` are those of ``StudyData.describe``, ``command`` is what was typed."""

    settings: StudySettings
    layout: SequenceLayout
    cells: Sequence[Cell]
    facts: Mapping[str, Any]
    command: str

    @cached_property
    def figures(self) -> Figures:
        """All figures of the cells that are done."""
        return collect(self.settings, self.layout, self.cells)

    @property
    def done(self) -> list[Cell]:
        """The cells that have figures."""
        return [cell for cell in self.cells if cell.error is None]

    @property
    def failed(self) -> list[Cell]:
        """The cells that ended with an error."""
        return [cell for cell in self.cells if cell.error is not None]

    @property
    def schemes(self) -> list[str]:
        """Those that have figures, in the order of the settings."""
        done = {cell.key.scheme for cell in self.done}
        return [scheme.name for scheme in self.settings.variants if scheme.name in done]

    @property
    def conditions(self) -> list[str]:
        """Those that have anchors."""
        return [name for name, count in self.facts["anchors"].items() if count]

    @property
    def regimes(self) -> list[str]:
        """Those that have figures, in the order of the settings."""
        done = {cell.key.regime for cell in self.done}
        return [regime for regime in self.settings.regimes if regime in done]

    @property
    def regime(self) -> str:
        """The first that has figures: what one-panel plots and the first paragraph speak of."""
        return next(iter(self.regimes), self.settings.regimes[0])

    @property
    def blocks(self) -> int:
        """Blocks of time of the test split as recorded."""
        return int(self.facts["blocks"][RECORDED])

    def first(self, scheme: str) -> Cell | None:
        """The scheme's cell of the first regime and seed that has one."""
        return next((cell for cell in self.done if cell.key.scheme == scheme), None)
