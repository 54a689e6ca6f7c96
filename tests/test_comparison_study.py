"""The study: one budget, the same anchors, a report that says what the cells say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import SEQUENCE, write_yaml
from test_sequences_dataset import sequence_settings

from robopos.cli import main
from robopos.comparison import StudySettings, summarize
from robopos.comparison.conditions import dropped
from robopos.comparison.study import Study
from robopos.logs import Log, read_log
from robopos.model import ModelSettings
from robopos.sequences import log_streams


def config(log: Path, **changes: object) -> dict:
    return {
        "logs": [str(log)],
        "sequence": SEQUENCE,
        "split": {"validation": 0.1, "test": 0.3},
        "network": {"context": 12, "context_s": 0.5, "window": 24},
        "schemes": ["none", "time-rotary"],
        "seeds": [1, 2],
        "max_steps": 12,
        "batch_size": 8,
    } | changes


@pytest.fixture(scope="module")
def report(arm_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    written = write_yaml(folder / "compare.yaml", config(arm_log))
    assert main(["compare", "--config", str(written), "--out", str(folder / "report")]) == 0
    return folder / "report"


def test_a_row_for_each_scheme_seed_condition_target_and_horizon(report: Path):
    cells = pd.read_csv(report / "cells.csv")
    assert len(cells) == 2 * 2 * 2 * 3 * 2
    assert set(cells["condition"]) == {"as recorded", "50% of the tokens dropped"}
    assert not cells.duplicated(["scheme", "seed", "condition", "target", "horizon_s"]).any()
    assert cells["rmse"].notna().all()


def test_all_are_judged_on_the_same_anchors(report: Path):
    cells = pd.read_csv(report / "cells.csv")
    judged = ["count", "rmse_hold_last", "rmse_constant_velocity"]
    for _, rows in cells.groupby(["condition", "target", "horizon_s"]):
        assert (rows[judged].nunique() == 1).all()


def test_the_report_says_what_the_cells_say(report: Path):
    cells = pd.read_csv(report / "cells.csv")
    text = (report / "report.md").read_text()
    for row in summarize(cells).itertuples():
        assert f"{row.mean:.3f} ± {row.spread:.3f}" in text
    assert (report / "comparison.png").read_bytes().startswith(b"\x89PNG")
    seeds = cells[(cells["scheme"] == "none") & (cells["condition"] == "as recorded")].groupby("seed")
    means = seeds["skill_hold_last"].mean()
    table = summarize(cells).set_index(["scheme", "condition"]).loc[("none", "as recorded")]
    np.testing.assert_allclose([table["mean"], table["spread"]], [means.mean(), means.std(ddof=1)])


def test_the_same_seed_gives_the_same_cell(arm_log: Path):
    settings = StudySettings(
        [str(arm_log)], sequence_settings(), network=ModelSettings(context=12, window=24), max_steps=3, batch_size=4
    )
    study = Study(settings)
    first, again = (study.run_cell("index-rotary", 1) for _ in range(2))
    other = study.run_cell("index-rotary", 2)
    assert first.rows == again.rows
    assert first.rows[0]["rmse"] != other.rows[0]["rmse"]


def test_dropped_messages_are_the_same_for_a_seed_and_as_many_as_asked(arm_log: Path):
    log = read_log(arm_log, log_streams(sequence_settings()))
    (a,), (b,), (c,) = (dropped([log], 0.3, seed) for seed in (1, 1, 2))
    assert isinstance(a, Log)
    np.testing.assert_array_equal(a["joints"].time_ns, b["joints"].time_ns)
    assert not np.array_equal(a["joints"].time_ns, c["joints"].time_ns)
    assert abs(len(a["joints"]) / len(log["joints"]) - 0.7) < 0.05


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schemes": ["time-sundial"]}, "time-sundial"),
        ({"schemes": ["none", "none"]}, "schemes is"),
        ({"seeds": []}, "seeds is []"),
        ({"drops": [1.5]}, "drops is 1.5, must be shares between 0 and 1"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"colour": 3}, "colour"),
        ({"network": {"context": 5000, "window": 9000}}, "shorten network.context"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, changes: dict, said: str
):
    written = write_yaml(tmp_path / "compare.yaml", config(arm_log, **changes))
    assert main(["compare", "--config", str(written), "--out", str(tmp_path / "report")]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("robopos compare: ")]
    assert len(lines) == 1 and said in lines[0]
