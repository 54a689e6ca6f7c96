"""Made-up cells with known differences, for tests of statistics, words and tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robopos.comparison import Results
from robopos.comparison.cells import Cell, Sums
from robopos.comparison.settings import RECORDED, CellKey, StudySettings
from robopos.sequences import SequenceSettings, StreamSettings

COLUMNS = 2  # one target at two horizons
COSTS = {
    **{"parameters": 100, "train_step_ms": 3.0, "mode": "stream", "serving_step_ms": 0.5, "state_bytes": 2000},
    **{"band_tokens": 12.0, "band_s": 0.4, "reach_tokens": 23.0, "shuffle_effect": 0.4, "stretch_effect": 0.0},
}


def settings(**changes: object) -> StudySettings:
    """Of a study whose log is never read."""
    sequence = SequenceSettings({"a": StreamSettings("a", ["x"])}, {"a": ["x"]}, [0.1, 0.2])
    given = {"schemes": ["index-rotary", "time-rotary"], "seeds": [1, 2, 3], "resamples": 400} | changes
    return StudySettings(["no.mcap"], sequence, **given)


def sums(model: np.ndarray, hold: np.ndarray | None = None, count: float = 100.0) -> Sums:
    """Of mean squared errors (B, K); holding errs by 1 unless given."""
    ones = np.ones_like(model)
    hold = ones if hold is None else hold
    return Sums(np.arange(len(model)), model * count, hold * count, 2 * ones * count, ones * count)


def cells(
    errors: Mapping[str, float], seeds: list[int], blocks: int = 12, noise: float = 0.02, regime: str = RECORDED
) -> list[Cell]:
    """A cell a scheme and seed, of mean squared error ``errors[scheme]``; blocks err alike under all schemes."""
    common = 0.2 * np.random.default_rng(0).random((blocks, COLUMNS))
    made = []
    for number, (scheme, error) in enumerate(errors.items()):
        for seed in seeds:
            own = noise * np.random.default_rng([number, seed]).standard_normal((blocks, COLUMNS))
            found = {RECORDED: sums(error + common + own)}
            made.append(Cell(CellKey(scheme, regime, seed), COSTS, found))
    return made


class Layout:
    """What results ask of a layout."""

    horizons_s = (0.1, 0.2)
    target_names, target_units = ("a.x",), ("m",)


def results(study: StudySettings, given: list[Cell], blocks: int = 12) -> Results:
    """Of made-up cells, judged as recorded alone."""
    facts = {"anchors": {RECORDED: 100}, "blocks": {RECORDED: blocks}, "hashes": {"no.mcap": "0"}, "notes": []}
    return Results(study, Layout, given, facts, "")  # type: ignore[arg-type]
