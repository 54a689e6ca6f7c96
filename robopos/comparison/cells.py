"""What one training of the grid leaves on disk, and how it is read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopos._version import __version__
from robopos.arrays import Floats, Ints
from robopos.comparison.settings import CellKey, StudySettings
from robopos.files import whole_folder
from robopos.texts import json_text

CELL, FIGURES, BUNDLE = "cell.json", "figures.npz", "bundle"
DONE, FAILED = "done", "failed"
MAX_FIGURE_BYTES = 1 << 30  # unpacked
# What changes the report alone, and the lists from which a cell takes one entry.
NOT_OF_A_CELL = ("schemes", "regimes", "seeds", "resamples", "reference", "clock_measured", "logs")


class Sums(NamedTuple):
    """Squared errors under one condition, summed in blocks of time; K columns: a horizon and a target each.

    ``block`` (B,); ``model``, ``hold``, ``move`` (constant velocity) and ``count`` (B, K).
    """

    block: Ints
    model: Floats
    hold: Floats
    move: Floats
    count: Floats  # type: ignore[assignment]  # hides the count of a tuple


@dataclass(frozen=True)
class Cell:
    """One training and its figures.

    ``sums`` by condition; ``skipped`` says why a condition has none; ``costs`` and ``pictures`` (arrays for the plots)
    by name; ``error`` is that of a failed cell.
    """

    key: CellKey
    costs: Mapping[str, Any] = field(default_factory=dict)
    sums: Mapping[str, Sums] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None


def fingerprint(settings: StudySettings, key: CellKey, hashes: Mapping[str, str]) -> str:
    """A hash of all that a cell depends on: a cell made under another one is made again."""
    plain = {name: value for name, value in asdict(settings).items() if name not in NOT_OF_A_CELL}
    plain |= {"scheme": asdict(settings.variant(key.scheme)), "regime": key.regime, "seed": key.seed}
    plain |= {"logs": list(hashes.values()), "version": __version__}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def keep_folder(out: Path, key: CellKey, fill: Callable[[Path], object]) -> Path:
    """Make a cell's folder, whole or not at all; an older one is replaced."""
    target = out / "cells" / key.slug
    with whole_folder(target) as folder:
        fill(folder)
    return target


def keep_cell(out: Path, cell: Cell, print_of: str, save_bundle: Callable[[Path], object] | None = None) -> Path:
    """Write a cell: its description, its figures, and its bundle where it has one."""
    arrays: dict[str, Any] = {f"picture/{name}": array for name, array in cell.pictures.items()}
    for number, sums in enumerate(cell.sums.values()):
        arrays |= {f"{number}/{name}": array for name, array in sums._asdict().items()}
    described = {
        "status": DONE if cell.error is None else FAILED,
        **cell.key._asdict(),
        "fingerprint": print_of,
        "seconds": round(cell.seconds, 3),
        "costs": dict(cell.costs),
        "conditions": list(cell.sums),
        "skipped": dict(cell.skipped),
        "error": cell.error,
    }

    def fill(folder: Path) -> None:
        if save_bundle is not None:
            save_bundle(folder / BUNDLE)
        if arrays:
            np.savez_compressed(folder / FIGURES, **arrays)
        (folder / CELL).write_text(json_text(described))

    return keep_folder(out, cell.key, fill)


def load_cell(out: Path, key: CellKey, print_of: str) -> Cell | None:
    """A cell that was made under these settings, failed ones too; ``None`` where there is none."""
    folder = out / "cells" / key.slug
    try:
        described = json.loads((folder / CELL).read_text())
        if described["fingerprint"] != print_of:
            return None
        seconds = float(described["seconds"])
        if described["status"] != DONE:
            return Cell(key, seconds=seconds, error=str(described["error"]))
        with np.load(folder / FIGURES, allow_pickle=False) as arrays:
            if sum(item.file_size for item in arrays.zip.infolist()) > MAX_FIGURE_BYTES:
                return None
            sums = {
                name: Sums(*(arrays[f"{number}/{column}"] for column in Sums._fields))
                for number, name in enumerate(described["conditions"])
            }
            pictures = {n.removeprefix("picture/"): arrays[n] for n in arrays.files if n.startswith("picture/")}
        for one in sums.values():
            shapes = {column.shape for column in one[1:]}
            if len(shapes) != 1 or one.model.ndim != 2 or one.block.shape != one.model.shape[:1]:
                return None
        return Cell(key, dict(described["costs"]), sums, dict(described["skipped"]), pictures, seconds)
    except Exception:
        # Not there, or broken by hand (zip, JSON and numpy each have their own errors): made again.
        return None
