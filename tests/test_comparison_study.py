"""The study: one budget, the same anchors, cells that are whole, and only those made anew that must be."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from conftest import SEQUENCE, write_yaml
from sequences_support import sequence_settings

from robopos.cli import main
from robopos.comparison import CellKey, Study, StudySettings
from robopos.comparison.cells import fingerprint, load_cell
from robopos.comparison.data import StudyData
from robopos.comparison.make import make_cell, start_alike
from robopos.comparison.settings import AUGMENTED, HALF_RATE, RECORDED, ConditionSettings, SearchSettings
from robopos.errors import ConfigError
from robopos.model import Bundle, ModelSettings, SequenceTransformer
from robopos.sequences.degrade import AugmentSettings
from robopos.training.module import SequenceModule
from robopos.training.parser import SettingsParser

CONFIGS = Path(__file__).parent.parent / "configs"
QUIET = {"burst_s": 0, "jitter_s": 0, "slow_every": 1, "missing": False, "longer_context": 1, "epoch_years": 0}


def settings(log: Path, **changes: object) -> StudySettings:
    given = {
        "network": ModelSettings(context=12, context_s=0.5, window=24),
        "schemes": ["index-rotary", "time-rotary"],
        "seeds": [1, 2],
        "max_steps": 3,
        "batch_size": 4,
        "max_anchors": 150,
        "block_s": 2.0,
    }
    return StudySettings([str(log)], sequence_settings(), **(given | changes))


def config(log: Path, **changes: object) -> dict:
    """The same for the command, with few conditions."""
    return {
        "logs": [str(log)],
        "sequence": SEQUENCE,
        "network": {"context": 12, "context_s": 0.5, "window": 24},
        "schemes": ["index-rotary", "time-rotary"],
        "seeds": [1, 2],
        "max_steps": 3,
        "batch_size": 4,
        "max_anchors": 50,
        "block_s": 2.0,
        "resamples": 50,
        "conditions": QUIET | {"drops": [0.5], "clock_offset_s": 0},
    } | changes


def compare(folder: Path, content: dict, *options: str) -> int:
    written = write_yaml(folder / "compare.yaml", content)
    return main(["compare", "--config", str(written), "--out", str(folder / "report"), "--workers", "1", *options])


def test_every_scheme_starts_from_the_same_weights_where_shapes_agree(arm_log: Path):
    data = StudyData(settings(arm_log))
    networks = {}
    for name in ("none", "index-learned", "time-rotary"):
        torch.manual_seed(hash(name) % 1000)
        networks[name] = SequenceTransformer(data.layout, ModelSettings(positions=name, context=12, window=24))
        start_alike(networks[name], data, data.settings.network, seed=5)
    first = networks.pop("none").state_dict()
    for network in networks.values():
        state = network.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in first.items())
    gap = SequenceTransformer(data.layout_of(True), ModelSettings(context=12, window=24))
    start_alike(gap, data, data.settings.network, seed=5)
    apart = {n for n, t in first.items() if not torch.equal(gap.state_dict()[n], t)}
    assert apart == {"embed.weight"}


def test_the_same_seed_gives_the_same_cell_and_another_one_another(arm_log: Path, tmp_path: Path):
    data = StudyData(settings(arm_log, conditions=ConditionSettings(drops=[0.5])))
    keys = [CellKey("index-rotary", RECORDED, 1), CellKey("index-rotary", RECORDED, 2)]
    first, again = (make_cell(data, keys[0], tmp_path / name) for name in ("a", "b"))
    other = make_cell(data, keys[1], tmp_path / "a")
    assert first.error is None and list(first.sums) == [c.name for c in data.conditions]
    for condition, one in first.sums.items():
        for ours, same in zip(one, again.sums[condition], strict=True):
            np.testing.assert_array_equal(ours, same)
        np.testing.assert_array_equal(one.hold, other.sums[condition].hold)
        np.testing.assert_array_equal(one.count, other.sums[condition].count)
        assert not np.array_equal(one.model, other.sums[condition].model)
    kept = load_cell(tmp_path / "a", keys[0], fingerprint(data.settings, keys[0], data.hashes))
    assert kept is not None and kept.costs == first.costs
    np.testing.assert_array_equal(kept.sums[RECORDED].model, first.sums[RECORDED].model)
    bundle = Bundle.load(tmp_path / "a" / "cells" / keys[0].slug / "bundle")
    assert bundle.settings.positions == "index-rotary" and bundle.training["steps"] == 3


def test_the_bundle_of_a_cell_names_the_files_that_a_folder_stands_for(two_runs: Path, tmp_path: Path):
    data, key = StudyData(settings(two_runs, max_steps=1)), CellKey("index-rotary", RECORDED, 1)
    assert make_cell(data, key, tmp_path).error is None
    bundle = Bundle.load(tmp_path / "cells" / key.slug / "bundle")
    assert bundle.training["logs"] == [str(file) for file in sorted(two_runs.iterdir())]


def test_rivals_regimes_and_impossible_conditions(arm_log: Path, tmp_path: Path):
    schemes = [
        "index-learned",
        {"positions": "index-rotary", "gap_feature": True},
        {"positions": "time-rotary", "context_s": None},
    ]
    augment = AugmentSettings(copies=2, drop=0.5)
    regimes = [RECORDED, AUGMENTED, HALF_RATE]
    data = StudyData(settings(arm_log, schemes=schemes, augment=augment, regimes=regimes, max_steps=1))
    keys = [
        CellKey("index-learned", RECORDED, 1),
        CellKey("index-rotary + gap", AUGMENTED, 1),
        CellKey("time-rotary, no band in s", HALF_RATE, 1),
    ]
    learned, gap, free = (make_cell(data, key, tmp_path) for key in keys)
    assert [c.error for c in (learned, gap, free)] == [None] * 3
    assert list(learned.skipped) == ["2 x the context"] and "max_length=24" in learned.skipped["2 x the context"]
    assert not gap.skipped and not free.skipped
    bundles = [Bundle.load(tmp_path / "cells" / key.slug / "bundle") for key in keys]
    assert [b.layout.gap_feature for b in bundles] == [False, True, False]
    assert [b.settings.context_s for b in bundles] == [0.5, 0.5, None]
    assert bundles[2].settings.position_options["min_period_s"] > 1.5 * 2 * data.interval_s, "from the thinned log"
    assert learned.costs["mode"] == "window" and gap.costs["mode"] == free.costs["mode"] == "stream"
    assert gap.costs["parameters"] > free.costs["parameters"]
    assert learned.costs["reach_tokens"] <= 24


def test_a_search_takes_the_trial_that_is_best_on_the_validation_split(arm_log: Path, tmp_path: Path):
    search = SearchSettings(learning_rates=[1e-6, 1.0], steps=30)
    data = StudyData(settings(arm_log, search=search, seeds=[1], max_steps=2))
    cell = make_cell(data, CellKey("time-rotary", RECORDED, 1), tmp_path)
    assert cell.error is None
    assert cell.costs["learning_rate"] == data.settings.optimizer.learning_rate


def test_what_a_cell_depends_on_and_what_not(arm_log: Path):
    before = settings(arm_log)
    key, hashes = CellKey("time-rotary", RECORDED, 1), {"log": "1"}
    same = replace(before, seeds=[1, 7], schemes=["time-rotary"], resamples=5, reference="time-rotary")
    assert fingerprint(before, key, hashes) == fingerprint(same, key, hashes)
    prints = {
        fingerprint(before, key, hashes),
        fingerprint(before, key, {"log": "2"}),
        fingerprint(before, key._replace(seed=2), hashes),
        fingerprint(replace(before, max_steps=4), key, hashes),
        fingerprint(replace(before, block_s=3.0), key, hashes),
        fingerprint(replace(before, conditions=ConditionSettings(drops=[0.2])), key, hashes),
    }
    assert len(prints) == 6


def test_an_interrupted_study_goes_on_and_a_changed_one_starts_anew(arm_log: Path, tmp_path: Path):
    quiet = ConditionSettings(**QUIET, drops=[0.5], clock_offset_s=0)
    few = settings(arm_log, conditions=quiet, max_anchors=50)
    study = Study(few, tmp_path)
    assert study.missing() == study.cells and study.estimate_s(study.cells) > 0
    study.run(study.missing("seed 1"), lambda done, note: None, workers=1)
    cells = tmp_path / "cells"
    first = {folder.name: (folder / "cell.json").stat().st_mtime_ns for folder in cells.iterdir()}
    kept, broken = "index-rotary--as-recorded--1", "time-rotary--as-recorded--1"
    assert sorted(first) == [kept, broken] and len(study.results().cells) == 2
    (cells / broken / "figures.npz").write_bytes(b"broken")
    told: list[int] = []
    study = Study(few, tmp_path)
    study.run(study.missing(), lambda done, note: told.append(done), workers=1)
    second = {folder.name: (folder / "cell.json").stat().st_mtime_ns for folder in cells.iterdir()}
    assert len(second) == 4 and second[kept] == first[kept] and second[broken] > first[broken]
    assert told == sorted(told) and told[-1] == study.work(study.cells) * 3 // 4
    assert Study(few, tmp_path).missing() == []
    assert Study(replace(few, max_steps=4), tmp_path).missing() == study.cells


def test_a_seed_is_added_and_remembered(arm_log: Path, tmp_path: Path):
    one = settings(arm_log, schemes=["time-rotary"], seeds=[1], max_steps=1)
    study = Study(one, tmp_path, add_seed=4)
    assert [key.seed for key in study.cells] == [1, 4]
    assert len(Study(one, tmp_path).cells) == 1, "nothing was made yet"
    study.run(study.missing(), lambda done, note: None, workers=1)
    assert [key.seed for key in Study(one, tmp_path).cells] == [1, 4]
    assert Study(one, tmp_path).missing() == [] and len(Study(one, tmp_path, add_seed=5).missing()) == 1


def test_a_dry_run_makes_nothing(arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert compare(tmp_path, config(arm_log, schemes=["time-rotary"], seeds=[1]), "--dry-run") == 0
    said = capsys.readouterr().out
    assert "1 cells of 3 steps, 3 conditions; to make: 1" in said and "to make  time-rotary, seed 1" in said
    assert "about " in said and said.endswith(" min\n") and not (tmp_path / "report").exists()


def test_ctrl_c_while_a_dry_run_estimates_is_an_interrupt(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(module: SequenceModule, *_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SequenceModule, "training_step", interrupted)
    assert compare(tmp_path, config(arm_log, schemes=["time-rotary"], seeds=[1]), "--dry-run") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "robopos compare: interrupted"


def test_a_cell_that_fails_is_reported_and_the_others_go_on(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    short = {"positions": "index-learned", "position_options": {"max_length": 4}}
    content = config(arm_log, schemes=[short, "time-rotary"], seeds=[1])
    assert compare(tmp_path, content) == 1
    said = capsys.readouterr().err
    assert "1 of 2 cells failed" in said and "index-learned, max_length 4, seed 1: PositionError" in said
    report = (tmp_path / "report" / "report.md").read_text()
    assert "Failed: index-learned, max_length 4, seed 1" in report
    table = pd.read_csv(tmp_path / "report" / "cells.csv")
    assert "time-rotary" in set(table["scheme"])
    # It is tried again: nothing says that it must fail for ever.
    assert compare(tmp_path, content, "--dry-run") == 0
    assert "to make: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schemes": ["time-sundial"]}, "time-sundial"),
        ({"schemes": ["none", "none"]}, "schemes is"),
        ({"schemes": [{"positions": "none", "context_s": -1}]}, "schemes.context_s is -1"),
        ({"schemes": [{"positions": "none", "gap": True}]}, "schemes is 'gap', must be one of positions, gap_feature"),
        ({"schemes": [{"gap_feature": True}]}, "schemes: "),
        ({"seeds": []}, "seeds is []"),
        ({"regimes": ["double"]}, "regimes is 'double'"),
        ({"regimes": ["augmented"]}, "augment.copies is 0"),
        ({"reference": "none"}, "reference is 'none'"),
        ({"conditions": {"drops": [1.5]}}, "conditions.drops is 1.5, must be shares between 0 and 1"),
        ({"conditions": {"stream": "camera"}}, "conditions.stream is 'camera'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"search": {"scales": []}}, "search.scales is []"),
        ({"seeds": [1, -1]}, "seeds is -1, must be whole numbers from 0"),
        ({"seeds": [2**32]}, "seeds is 4294967296"),
        ({"conditions": {"epoch_years": 1000}}, "conditions.epoch_years is 1000, must be from -100 to 100"),
        ({"conditions": {"clock_offset_s": -1e10}}, "conditions.clock_offset_s is -10000000000.0"),
        ({"block_s": 1e10}, "block_s is 10000000000.0"),
        ({"block_s": 1e-10}, "block_s is 1e-10"),
        ({"colour": 3}, "colour"),
        ({"network": {"context": 5000, "window": 9000}}, "shorten network.context"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, changes: dict, said: str
):
    assert compare(tmp_path, config(arm_log, **changes)) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("robopos compare: ")]
    assert len(lines) == 1 and said in lines[0]


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_folder_that_cannot_be_is_refused_before_any_training(arm_log: Path, tmp_path: Path, inside: str):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"out is '.*file is no folder that can be written to"):
        Study(settings(arm_log), tmp_path / "file" / inside)
    assert Study(settings(arm_log), tmp_path / "new" / "folder").missing()


@pytest.mark.parametrize("years", [-100, 100])
def test_the_furthest_dates_can_be_judged(arm_log: Path, years: int):
    data = StudyData(settings(arm_log, conditions=ConditionSettings(**QUIET | {"epoch_years": years}, drops=[])))
    now, moved = data.view(data.conditions[0], False), data.view(data.conditions[-1], False)
    assert moved.condition.name == f"{years:+d} years"
    np.testing.assert_array_equal(moved.anchors, now.anchors)
    np.testing.assert_array_equal(moved.block, now.block)


def test_a_name_that_no_cell_has_is_an_error(arm_log: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"only is 'sundial'.*index-rotary, seed 1"):
        Study(settings(arm_log), tmp_path).missing("sundial")


@pytest.mark.parametrize(
    ("name", "schemes", "seeds"),
    [("compare.yaml", 6, 3), ("compare_mower_demo.yaml", 5, 3), ("compare_tiny.yaml", 2, 2)],
)
def test_shipped_configurations_are_read(name: str, schemes: int, seeds: int):
    parser = SettingsParser()
    parser.add_class_arguments(StudySettings, None)
    values = yaml.safe_load((CONFIGS / name).read_text())
    read = StudySettings(**parser.instantiate_classes(parser.parse_object(values)))
    assert len(read.variants) == schemes and len(read.seeds) == seeds
    assert set(asdict(read)) >= set(values)


def test_the_same_command_gives_the_same_table(arm_log: Path, tmp_path: Path):
    figures, tables = [], []
    for name in ("one", "again"):
        (tmp_path / name).mkdir()
        assert compare(tmp_path / name, config(arm_log)) == 0
        frame = pd.read_csv(tmp_path / name / "report" / "cells.csv", dtype=str)
        figures.append(frame[~frame.quantity.isin(["train_step_ms", "serving_step_ms"])])
        lines = (tmp_path / name / "report" / "report.md").read_text().splitlines()
        tables.append([line for line in lines if line.startswith(("| as recorded", "| drops 50%", "On the log"))])
    pd.testing.assert_frame_equal(*figures)
    assert tables[0] == tables[1]
    assert len(tables[0]) >= 5  # the first paragraph; skill and differences under both conditions


@pytest.mark.slow
def test_processes_give_what_one_process_gives_and_ctrl_c_leaves_whole_cells(arm_log: Path, tmp_path: Path):
    content = config(arm_log, max_steps=300)  # long enough to be interrupted on a fast machine
    written = write_yaml(tmp_path / "compare.yaml", content)
    out = tmp_path / "many"
    command = [
        sys.executable,
        "-m",
        "robopos",
        "compare",
        "--config",
        str(written),
        "--out",
        str(out),
        "--workers",
        "2",
    ]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not list(out.glob("cells/*/cell.json")):
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert said.splitlines()[-1] == (
        "robopos compare: interrupted: the same command goes on from the cells that are done"
    )
    left = list((out / "cells").iterdir())
    assert 1 <= len(left) < 4
    assert all((folder / "figures.npz").is_file() and not folder.name.startswith(".") for folder in left)
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert compare(tmp_path, content) == 0
    together, alone = (pd.read_csv(f / "cells.csv").query("quantity == 'skill'") for f in (out, tmp_path / "report"))
    pd.testing.assert_frame_equal(together, alone, rtol=1e-9)


@pytest.mark.slow
def test_a_process_that_dies_fails_its_cell_alone(arm_log: Path, tmp_path: Path):
    study = Study(settings(arm_log, seeds=[1, 2], max_steps=150), tmp_path)
    killed: list[int] = []

    def kill_once(done: int, note: str) -> None:
        if not killed and "seed" in note:
            process = multiprocessing.active_children()[0]
            killed.append(process.pid)
            process.kill()

    study.run(study.missing(), kill_once, workers=2)
    failed = [cell for cell in study.made() if cell.error is not None]
    assert len(study.made()) == 4 and len(failed) == 1 and "code -9" in str(failed[0].error)


@pytest.mark.slow
def test_a_local_ray_cluster_of_two_workers_gives_the_same_cells(arm_log: Path, tmp_path: Path):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'robopos[ray]')")
    content = config(arm_log, seeds=[1])
    assert compare(tmp_path, content) == 0
    here = pd.read_csv(tmp_path / "report" / "cells.csv").query("quantity == 'skill'")
    shutil.rmtree(tmp_path / "report")
    written = write_yaml(tmp_path / "compare.yaml", content)
    options = ["--ray", "local", "--workers", "2"]
    assert main(["compare", "--config", str(written), "--out", str(tmp_path / "report"), *options]) == 0
    there = pd.read_csv(tmp_path / "report" / "cells.csv").query("quantity == 'skill'")
    pd.testing.assert_frame_equal(here, there, rtol=1e-9)
