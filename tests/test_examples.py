"""Each example as a user starts it: a process in an empty folder, judged by what it prints and leaves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from robopos.logs import StreamSpec, inspect_log, read_log
from robopos.model import Bundle

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where train_from_python.py ran; `printed.txt` is what it said."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "printed.txt").write_text(run("train_from_python.py", folder))
    return folder


def test_every_example_is_listed_and_tested() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == set(re.findall(r"(\w+\.py) ", (EXAMPLES / "README.md").read_text()))
    assert [name for name in scripts if f'run("{name}"' not in Path(__file__).read_text()] == []


def test_time_tells_more_than_number_and_no_epoch_matters(tmp_path: Path) -> None:
    printed = run("positions_plain_torch.py", tmp_path)
    hold = float(re.search(r"^holding the last value: RMSE ([\d.]+)$", printed, re.M).group(1))
    found = {
        name: (float(error), float(change))
        for name, error, change in re.findall(r"^([\w-]+): RMSE ([\d.]+), changes by ([\d.e+-]+) when", printed, re.M)
    }
    assert set(found) == {"index-rotary", "time-rotary"}
    assert found["time-rotary"][0] < 0.7 * found["index-rotary"][0] < 0.3 * hold
    assert all(change < 1e-5 for _, change in found.values())


def test_the_frames_hold_the_logs_values(tmp_path: Path) -> None:
    printed = run("mcap_to_pandas.py", tmp_path)
    out = tmp_path / "runs" / "examples"
    log = read_log(out / "arm.mcap", {"joints": StreamSpec("/joint_states", ["position", "velocity"])})["joints"]
    joints = pd.read_csv(out / "joints.csv", index_col="time", parse_dates=True)
    assert f"joints: {len(log)} rows, a step of 25.0 ms (median)" in printed
    assert joints[list(log.names)].to_numpy() == pytest.approx(log.values)
    assert (joints.index.as_unit("ns").asi8 == log.time_ns).all()
    wide = pd.read_csv(out / "side_by_side.csv")
    assert len(wide) == len(log) and wide["angular_velocity.z"].notna().mean() > 0.99


def test_the_frames_of_a_topic_that_was_named(tmp_path: Path) -> None:
    assert "run.mcap: 5 s" in run("sample_log.py", tmp_path, "run.mcap", "--seconds", "5")
    printed = run("mcap_to_pandas.py", tmp_path, "run.mcap", "/command", "data")
    assert re.search(r"side_by_side.csv in runs/examples: \d\d rows of 3 columns", printed)


def test_the_sample_has_what_real_logs_have(tmp_path: Path) -> None:
    run("sample_log.py", tmp_path, "a.mcap", "--seconds", "20")
    run("sample_log.py", tmp_path, "b.mcap", "--seconds", "20", "--seed", "1")
    assert (tmp_path / "a.mcap").read_bytes() != (tmp_path / "b.mcap").read_bytes()
    topics = {topic.topic: topic for topic in inspect_log(tmp_path / "a.mcap").topics}
    assert set(topics) == {"/joint_states", "/imu", "/command"}
    assert topics["/command"].clock == "log" and topics["/imu"].clock == "header"
    assert all(t.drops > 0 and t.steps.jitter_ms > 1 for t in topics.values())


def test_training_beats_holding_and_leaves_a_bundle(folder: Path) -> None:
    skills = re.findall(r"skill (-?[\d.]+)$", (folder / "printed.txt").read_text(), re.M)
    assert len(skills) == 4 and min(map(float, skills)) > 0.3
    bundle = Bundle.load(folder / "runs" / "examples" / "bundle")
    assert [round(row["skill_hold_last"], 2) for row in bundle.metrics] == list(map(float, skills))


def test_the_engine_answers_each_joint_state(folder: Path) -> None:
    printed = run("live_engine.py", folder)
    count, error = re.search(r"^(\d+) predictions in mode stream, .* RMSE ([\d.]+) rad$", printed, re.M).groups()
    joints = int(re.search(r"joints: (\d+) messages, imu: \d+ messages, command: \d+ messages", printed).group(1))
    assert joints - 40 < int(count) < joints and float(error) < 0.1
    assert len(re.findall(r"^elbow .* expected at", printed, re.M)) == int(count) // 40


def test_the_predictions_stand_beside_the_log(folder: Path) -> None:
    printed = run("write_predictions.py", folder)
    expected, measured = (
        read_log(
            folder / "runs" / "examples" / "expected.mcap",
            {"joints": StreamSpec(topic, ["position[shoulder]", "position[elbow]"])},
        )["joints"]
        for topic in ("/expected/joint_states", "/joint_states")
    )
    assert f"{len(expected)} states expected 0.3 s before" in printed and len(measured) - 40 < len(expected)
    # At the time it is about, an expected angle lies nearer to the measured one than the angle 0.3 s before does.
    start_ns, horizon_ns = measured.time_ns[0], 300_000_000
    inside = expected.time_ns <= measured.time_ns[-1]
    due = expected.time_ns[inside] - start_ns
    for expected_angles, angles in zip(expected.values[inside].T, measured.values.T, strict=True):
        happened, before = (np.interp(t, measured.time_ns - start_ns, angles) for t in (due, due - horizon_ns))
        assert np.square(expected_angles - happened).mean() < 0.7 * np.square(before - happened).mean()
