"""The command line: what it prints, and that an error is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import arm_messages

from robopos.cli import COMMANDS, main
from robopos.logs import iter_messages, write_log


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "robopos", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


TAKEN_OVER = ("play",)  # `--help` is that of the program that takes the process over
SETTINGS = ("train", "compare")  # `--help` lists the settings, which are those of classes


def test_help_imports_nothing_heavy():
    asked = [["--help"], *([name, "--help"] for name in COMMANDS if name not in TAKEN_OVER + SETTINGS)]
    code = (
        "import sys; from robopos.cli import main\n"
        f"for asked in {asked!r}:\n"
        "    try: main(asked)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'lightning', 'pandas', 'matplotlib', 'rich', 'rclpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert f"    {command} " in done.stdout


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in TAKEN_OVER])
def test_each_command_has_help(command: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert "usage: robopos" in capsys.readouterr().out


@pytest.mark.ros
@pytest.mark.parametrize("command", TAKEN_OVER)
def test_commands_of_ros_have_help(command: str):
    pytest.importorskip("rclpy", reason="ROS 2 for Python (rclpy) is not installed")
    done = run(command, "--help")
    assert done.returncode == 0 and "usage: robopos play" in done.stdout, done.stderr


def test_evaluate_prints_scores_and_writes_them(trained: Path, arm_log: Path, tmp_path: Path, capsys):
    out = tmp_path / "scores.json"
    assert main(["evaluate", str(trained / "bundle"), str(arm_log), "--split", "test", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "joints.position[shoulder]" in printed and "skill against hold last" in printed
    rows = json.loads(out.read_text())
    assert len(rows) == 6 and rows[0]["skill_hold_last"] > 0


def test_scores_that_are_no_numbers_are_null_and_a_dash(trained: Path, tmp_path: Path, capsys):
    huge, out = tmp_path / "huge.mcap", tmp_path / "scores.json"
    messages = [m for m in arm_messages(20.0) if m.topic == "/imu"]
    joints = [m for m in arm_messages(20.0) if m.topic != "/imu"]
    for m in joints:
        m.message["position"] = [1e300 * value for value in m.message["position"]]
    write_log(huge, sorted(messages + joints, key=lambda m: m.log_time_ns))
    assert main(["evaluate", str(trained / "bundle"), str(huge), "--json", str(out)]) == 0
    assert "mean: -\n" in capsys.readouterr().out
    assert "Infinity" not in out.read_text() and "NaN" not in out.read_text()
    assert json.loads(out.read_text())[0]["rmse_hold_last"] is None


def test_evaluate_says_when_the_log_was_trained_on(trained: Path, arm_log: Path, capsys):
    assert main(["evaluate", str(trained / "bundle"), str(arm_log)]) == 0
    assert "this log was trained on" in capsys.readouterr().out


@pytest.mark.parametrize("pattern", ["", "*.mcap"])
def test_evaluate_takes_each_log_of_a_folder_or_pattern_by_itself(
    trained: Path, two_runs: Path, tmp_path: Path, pattern: str
):
    told = []
    for logs in ([two_runs / pattern], sorted(two_runs.iterdir())):
        command = ["evaluate", trained / "bundle", *logs, "--json", tmp_path / "out.json"]
        assert main(list(map(str, command))) == 0
        told.append(json.loads((tmp_path / "out.json").read_text()))
    assert told[0] == told[1]


def test_check_takes_each_log_of_a_folder_by_itself(trained: Path, two_runs: Path, capsys):
    windows_s = []
    for log in (two_runs, min(two_runs.iterdir())):
        assert main(["check", str(trained / "bundle"), str(log)]) == 0
        windows_s.append(float(capsys.readouterr().out.split("windows of ")[-1].split()[0]))
    assert windows_s[0] == pytest.approx(windows_s[1], rel=0.2), "those of both together last half as long"


@pytest.mark.parametrize("command", ["evaluate", "check", "replay"])
def test_what_is_lost_of_a_log_is_told(trained: Path, cut_log: Path, tmp_path: Path, capsys, command: str):
    options = ["-o", str(tmp_path / "out.mcap")] if command == "replay" else []
    assert main([command, str(trained / "bundle"), str(cut_log), *options]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1 and notes[0].startswith(f"note: {cut_log}: ") and "bytes" in notes[0]


def test_replay_writes_a_log_and_a_summary(trained: Path, arm_log: Path, tmp_path: Path, capsys):
    out, summary = tmp_path / "out.mcap", tmp_path / "summary.json"
    arguments = ["replay", trained / "bundle", arm_log, "-o", out, "--last-s", 3, "--json", summary]
    assert main([str(a) for a in arguments]) == 0
    told = json.loads(summary.read_text())
    written = [m for m in iter_messages(out) if m.topic == "/predictor/prediction/joints"]
    assert told["predictions"] == len(written) > 100
    assert f"{len(written)} predictions" in capsys.readouterr().out


def test_replay_of_a_log_without_one_of_the_sensors_tells_what_it_can(
    trained: Path, arm_log: Path, tmp_path: Path, capsys
):
    silent, out, summary = tmp_path / "silent.mcap", tmp_path / "out.mcap", tmp_path / "summary.json"
    write_log(silent, [m for m in arm_messages() if m.topic != "/imu"])
    command = ["replay", trained / "bundle", silent, "-o", out, "--json", summary, "--compare-batch"]
    assert main(list(map(str, command))) == 0
    said = capsys.readouterr().out
    assert "not in the log: imu" in said and f"predictions: {out}" in said
    told = json.loads(summary.read_text())
    assert told["compare_batch"]["largest"] < 1e-4 and told["predictions"] > 100
    assert all(row["count"] for row in told["error_over_time"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "BUNDLE", "nowhere.mcap"], "nowhere.mcap"),
        (["evaluate", "nowhere", "LOG"], "nowhere: no bundle there"),
        (["evaluate", "BUNDLE", "LOG", "--device", "abacus"], "device 'abacus'"),
        (["replay", "BUNDLE", "LOG", "-o", "LOG"], "is the log itself"),
        (["replay", "BUNDLE", "FOLDER", "-o", "LOG"], "is the log itself, or a file of it: name another file"),
        (["replay", "BUNDLE", "LOG", "-o", "OUT", "--last-s", "-1"], "--last-s is -1"),
        (["replay", "BUNDLE", "LOG", "-o", "OUT", "--last-s", "inf"], "last_s is inf"),
        (["replay", "BUNDLE", "LOG", "-o", "OUT", "--rate", "1e-300"], "rate is 1e-300, must be from 0.001"),
        (["replay", "BUNDLE", "TEXT", "-o", "OUT"], "notes.mcap"),
        (["inspect", "TEXT"], "notes.mcap"),
        (["inspect", "nowhere.mcap"], "nowhere.mcap"),
    ],
)
def test_an_error_is_one_line_and_a_code(
    trained: Path, arm_log: Path, tmp_path: Path, capsys, arguments: list[str], said: str
):
    text = tmp_path / "notes.mcap"
    text.write_text("this is no log")
    names = {"BUNDLE": trained / "bundle", "LOG": arm_log, "OUT": tmp_path / "out.mcap", "TEXT": text}
    names["FOLDER"] = arm_log.parent
    assert main([str(names.get(a, a)) for a in arguments]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"robopos {arguments[0]}: ") and said in lines[0]
    assert not (tmp_path / "out.mcap").exists()


def test_debug_shows_the_traceback():
    assert "Traceback" not in run("evaluate", "nowhere", "nowhere.mcap").stderr
    done = run("evaluate", "nowhere", "nowhere.mcap", "--debug")
    assert done.returncode == 1 and "Traceback" in done.stderr and "no bundle there" in done.stderr


def test_wrong_usage_is_code_2():
    assert run("evaluate").returncode == 2
    assert run("dance").returncode == 2
