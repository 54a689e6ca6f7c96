"""A comparison: its grid, what of it is made, and the making of the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from robopos.comparison.cells import Cell, fingerprint, load_cell
from robopos.comparison.cluster import run_ray
from robopos.comparison.data import StudyData
from robopos.comparison.local import Tell, default_workers, run_here, run_processes
from robopos.comparison.make import probe_seconds, work_of
from robopos.comparison.results import Results
from robopos.comparison.settings import CellKey, StudySettings
from robopos.errors import ConfigError, RoboposError
from robopos.files import whole_file
from robopos.serving import intra_op_threads

ADDED = "added_seeds.json"


class Study:
    """A comparison in an output folder.

    Args:
        settings: what to compare.
        out: the folder of cells and report.
        add_seed: one seed more than the settings name; the folder remembers it for later calls.

    Raises:
        RoboposError: a wrong scheme, log or setting, before any training.
    """

    def __init__(self, settings: StudySettings, out: str | Path, add_seed: int | None = None) -> None:
        self.out = Path(out)
        _refuse_unwritable(self.out)
        seeds = list(dict.fromkeys([*settings.seeds, *self._added()]))
        if add_seed is not None and add_seed not in seeds:
            seeds.append(add_seed)
        self.settings = replace(settings, seeds=seeds)
        self.data = StudyData(self.settings)
        self._named = settings.seeds

    def _added(self) -> list[int]:
        try:
            return [int(seed) for seed in json.loads((self.out / ADDED).read_text())]
        except (OSError, ValueError, TypeError):
            return []

    @property
    def cells(self) -> list[CellKey]:
        """The whole grid."""
        return self.settings.cells()

    def made(self) -> list[Cell]:
        """The cells that are there, failed ones too."""
        found = (load_cell(self.out, key, fingerprint(self.settings, key, self.data.hashes)) for key in self.cells)
        return [cell for cell in found if cell is not None]

    def missing(self, only: str | None = None) -> list[CellKey]:
        """The cells still to make, failed ones among them; ``only`` those whose name holds that text.

        Raises:
            ConfigError: no cell of the grid has that text in its name.
        """
        done = {cell.key for cell in self.made() if cell.error is None}
        chosen = [key for key in self.cells if only is None or only in str(key) or only in key.slug]
        if not chosen:
            raise ConfigError(f"only is {only!r}, which no cell has in its name; the first is called {self.cells[0]}")
        return [key for key in chosen if key not in done]

    def work(self, keys: Sequence[CellKey]) -> int:
        """Units of work of these cells, of which ``run`` tells how many are done."""
        return work_of(self.data) * len(keys)

    def estimate_s(self, keys: Sequence[CellKey], workers: int | None = None) -> float:
        """About how long these cells will take: from the cells that are there, else from a few steps of each scheme."""
        took = {cell.key.scheme: cell.seconds for cell in self.made() if cell.error is None}
        with intra_op_threads(1):
            for key in keys:
                if key.scheme not in took:
                    try:
                        took[key.scheme] = probe_seconds(self.data, key)
                    except RoboposError:
                        took[key.scheme] = 0.0  # it will fail as fast, and be reported
        total = sum(took[key.scheme] for key in keys)
        return total / max(1, min(workers or default_workers(), len(keys)))

    def run(self, keys: Sequence[CellKey], tell: Tell, *, workers: int | None = None, ray: str | None = None) -> None:
        """Make these cells, here or on a cluster; each is kept as soon as it is done, failed ones with their error."""
        if self.settings.seeds != self._named:
            self.out.mkdir(parents=True, exist_ok=True)
            added = [seed for seed in self.settings.seeds if seed not in self._named]
            with whole_file(self.out / ADDED) as beside:
                beside.write_text(json.dumps(added) + "\n")
        count = workers or default_workers()
        if ray is not None:
            run_ray(self.data, self.out, keys, ray, workers, tell)
        elif min(count, len(keys)) == 1:
            run_here(self.data, self.out, keys, tell)
        elif keys:
            run_processes(self.data, self.out, keys, count, tell)

    def results(self, command: str = "") -> Results:
        """All that is there so far, for the report."""
        return Results(self.settings, self.data.layout, self.made(), self.data.describe(), command)


def _refuse_unwritable(out: Path) -> None:
    """Before any training, not after the first."""
    there = next((folder for folder in (out, *out.absolute().parents) if folder.exists()), out)
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigError(f"out is {str(out)!r}: {there} is no folder that can be written to")
