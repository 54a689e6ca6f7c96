"""Long work shows a bar with the time left on a terminal, and nothing where standard error is none."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SEQUENCE, training_config, write_yaml

from robopos.cli import main
from robopos.cli.show import Progress


def on_a_terminal(command: list[object], folder: Path) -> tuple[str, str]:
    """Standard output, which is a pipe, and standard error, which is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "robopos", *map(str, command)], cwd=folder, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            read = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        shown += read
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, shown
    return out.decode(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def test_a_terminal_shows_a_bar_with_counts_and_the_time_left(arm_log: Path, tmp_path: Path):
    out, shown = on_a_terminal(["inspect", arm_log], tmp_path)
    assert re.search(r"inspect .*━.* \d+/\d+ [\d:-]+", shown), shown
    assert "/joint_states" in out and "━━━━━━" not in out.replace("─", "")


@pytest.mark.slow
def test_a_replay_counts_its_messages(trained: Path, arm_log: Path, tmp_path: Path):
    _, shown = on_a_terminal(["replay", trained / "bundle", arm_log, "-o", tmp_path / "o.mcap"], tmp_path)
    total = re.findall(r"replay .* (\d+)/(\d+) \d:\d\d:\d\d", shown)[-1]
    assert total[0] == total[1] and int(total[0]) > 1000


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (["inspect", "LOG"], "inspect"),
        (["evaluate", "BUNDLE", "LOG"], "evaluate"),
        (["replay", "BUNDLE", "LOG", "-o", "OUT.mcap", "--last-s", "1"], "replay"),
        (["train", "-c", "TRAIN", "-o", "OUT"], "train"),
        (["export", "BUNDLE", "--to", "onnx", "-o", "OUT.onnx"], "export"),
        pytest.param(["compare", "-c", "COMPARE", "-o", "OUT", "--workers", "1"], "compare", marks=pytest.mark.slow),
    ],
)
def test_elsewhere_it_is_silent(
    trained: Path,
    arm_log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    label: str,
):
    if label == "export":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxscript")
    entered: list[str] = []
    enter = Progress.__enter__

    def remember(progress: Progress) -> Progress:
        entered.append(progress._label)
        return enter(progress)

    monkeypatch.setattr(Progress, "__enter__", remember)
    train = training_config(arm_log)
    train["trainer"]["max_steps"] = 2
    compare = {
        "logs": [str(arm_log)],
        "sequence": SEQUENCE,
        "network": {"context": 12, "context_s": 0.5, "window": 24},
        "schemes": ["none"],
        "seeds": [1],
        "max_steps": 2,
        "max_anchors": 20,
        "conditions": {"jitter_s": None, "drops": [], "burst_s": None, "half_rate": False},
    }
    names = {
        "LOG": arm_log,
        "BUNDLE": trained / "bundle",
        "TRAIN": write_yaml(tmp_path / "train.yaml", train),
        "COMPARE": write_yaml(tmp_path / "compare.yaml", compare),
    }
    given = [str(tmp_path / a) if a.startswith("OUT") else str(names.get(a, a)) for a in command]
    assert main(given) == 0
    written = capsys.readouterr()
    assert entered == [label]
    assert written.err == "" and f"{label} ━" not in written.out


def test_the_time_left_is_that_of_the_pace_and_words_stay_in_their_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    class Terminal:
        text = ""
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None: ...

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress("work", 1000) as progress:
        for done in range(0, 40, 4):
            progress.update(done, "[note]")
            time.sleep(0.02)
        print("a word")
    assert capsys.readouterr().out == "a word\n" and "a word" not in terminal.text
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.text)
    hours, minutes, seconds = map(int, re.findall(r"36/1000 (\d+):(\d\d):(\d\d)", shown)[-1])
    assert 2 <= 3600 * hours + 60 * minutes + seconds <= 60  # about 5 s on a free machine
    assert "[note]" in shown
