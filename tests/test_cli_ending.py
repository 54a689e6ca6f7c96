"""How commands end: exit codes, Ctrl-C, and outputs that are whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import training_config, write_yaml

from robopos.cli import main
from robopos.cli.ending import DONE, FAILED, INTERRUPTED, WRONG_USAGE, exit_code
from robopos.errors import ConfigError
from robopos.files import whole_file, whole_folder


def interrupted(command: list[object], ready: Callable[[], bool], folder: Path) -> str:
    """Start `robopos`, press Ctrl-C when it is at work, and return what it said on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "robopos", *map(str, command)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and its children do.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + 240
        while process.poll() is None and not ready() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None and ready(), "it ended, or never came to its work"
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == INTERRUPTED, said
        return said
    finally:
        process.kill()


@pytest.mark.slow
def test_ctrl_c_in_a_replay_leaves_the_older_file(trained: Path, arm_log: Path, tmp_path: Path):
    out = tmp_path / "out.mcap"
    out.write_bytes(b"older")
    command = ["replay", trained / "bundle", arm_log, "-o", out, "--rate", "1"]  # 40 s
    said = interrupted(command, lambda: len(list(tmp_path.iterdir())) == 2, tmp_path)
    assert said == "robopos replay: interrupted\n"
    assert list(tmp_path.iterdir()) == [out] and out.read_bytes() == b"older"


@pytest.mark.slow
def test_ctrl_c_in_a_training_leaves_whole_checkpoints_to_go_on_from(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log)
    config["trainer"]["max_steps"] = 1_000_000
    written = write_yaml(tmp_path / "train.yaml", config)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    said = interrupted(["train", "-c", written, "-o", tmp_path / "run"], last.is_file, tmp_path)
    assert (
        said.splitlines()[-1]
        == f"robopos train: interrupted: --ckpt_path last with the same options goes on from {last}"
    )
    assert "Traceback" not in said and not (tmp_path / "run" / "bundle").exists()
    assert {path.name for path in last.parent.iterdir()} == {"best.ckpt", "last.ckpt"}
    for path in last.parent.iterdir():
        assert main(["bundle", str(path), "-o", str(tmp_path / path.stem)]) == DONE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plot", "positions", "time-rotary", "-o", "scheme.png"], DONE),
        (["inspect", "nowhere.mcap"], FAILED),
        (["inspect"], WRONG_USAGE),
        (["inspect", "run.mcap", "--colour"], WRONG_USAGE),
        (["dance"], WRONG_USAGE),
        ([], WRONG_USAGE),
    ],
)
def test_exit_codes(tmp_path: Path, arguments: list[str], code: int):
    done = subprocess.run(
        [sys.executable, "-m", "robopos", *arguments], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == code
    assert bool(done.stderr) == (code != DONE)


def test_what_stops_the_work_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def ended(error: BaseException | None, *, debug: bool = False) -> tuple[int, str]:
        def work() -> None:
            if error is not None:
                raise error

        return exit_code("robopos x", work, debug=debug), capsys.readouterr().err

    assert ended(None) == (DONE, "")
    assert ended(ConfigError("y is 3")) == (FAILED, "robopos x: y is 3\n")
    assert ended(KeyboardInterrupt()) == (INTERRUPTED, "robopos x: interrupted\n")
    assert ended(KeyboardInterrupt("go on")) == (INTERRUPTED, "robopos x: interrupted: go on\n")
    assert ended(FileNotFoundError(2, "No such file", "a.b")) == (FAILED, "robopos x: a.b: No such file\n")
    said = "robopos x: unexpected ValueError: two lines (run again with --debug)\n"
    assert ended(ValueError("two\nlines")) == (FAILED, said)
    code, said = ended(ConfigError("y is 3"), debug=True)
    assert code == FAILED and said.startswith("Traceback") and said.endswith("robopos x: y is 3\n")


def test_a_reader_that_goes_away_is_no_error_to_talk_of(arm_log: Path):
    for options in ("", "--json -"):  # by rich, and by ourselves
        command = f"{sys.executable} -m robopos inspect {arm_log} {options} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout == "1\n"
        assert "roken" not in done.stderr and "robopos inspect" not in done.stderr, done.stderr


class Interrupt:
    """A writer in the middle of which Ctrl-C is pressed."""

    def __call__(self, *arguments: object, **_: object) -> None:
        for path in arguments:
            if isinstance(path, Path):
                path.write_bytes(b"half")
        raise KeyboardInterrupt


WRITERS = {
    "savefig": "matplotlib.figure.Figure.savefig",
    "mcap": "mcap.writer.Writer.add_message",
    "weights": "robopos.model.bundle.save_file",
    "export": "robopos.serving.export.check_step",
}


@pytest.mark.parametrize(
    ("writer", "arguments"),
    [
        ("savefig", ["plot", "positions", "time-rotary", "-o", "OUT.png"]),
        ("savefig", ["inspect", "LOG", "--plot", "OUT.png"]),
        ("savefig", ["evaluate", "BUNDLE", "LOG", "--plot", "OUT.png"]),
        ("text", ["inspect", "LOG", "--json", "OUT.json"]),
        ("text", ["evaluate", "BUNDLE", "LOG", "--json", "OUT.json"]),
        ("text", ["evaluate", "BUNDLE", "LOG", "--markdown", "OUT.md"]),
        ("text", ["check", "BUNDLE", "LOG", "--json", "OUT.json"]),
        ("text", ["init", "LOG", "-o", "OUT.yaml", "--force"]),
        ("mcap", ["evaluate", "BUNDLE", "LOG", "--mcap", "OUT.mcap"]),
        ("mcap", ["replay", "BUNDLE", "LOG", "-o", "OUT.mcap"]),
        ("weights", ["bundle", "CKPT", "-o", "OUT"]),
        ("export", ["export", "BUNDLE", "--to", "onnx", "-o", "OUT.onnx"]),
    ],
)
def test_an_interrupted_output_leaves_the_older_one_and_nothing_else(
    trained: Path, arm_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, arguments: list[str]
):
    if writer == "export":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxscript")
    names = {"LOG": arm_log, "BUNDLE": trained / "bundle", "CKPT": trained / "checkpoints" / "last.ckpt"}
    given = [str(tmp_path / a) if a.startswith("OUT") else str(names.get(a, a)) for a in arguments]
    out = next(Path(a) for a, asked in zip(given, arguments, strict=True) if asked.startswith("OUT"))
    if writer == "weights":
        assert main(given) == DONE
        older = (out / "model.safetensors").read_bytes()
        monkeypatch.setattr(WRITERS[writer], lambda state, path: Interrupt()(path))
    else:
        out.write_bytes(older := b"older")
        if writer == "text":
            monkeypatch.setattr(Path, "write_text", lambda path, *_, **__: Interrupt()(path))
        else:
            monkeypatch.setattr(WRITERS[writer], lambda _, *arguments, **__: Interrupt()(*arguments))
    assert main(given) == INTERRUPTED
    assert (out / "model.safetensors" if writer == "weights" else out).read_bytes() == older
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "a.png"
    with whole_file(path) as beside:
        assert beside.suffix == ".png" and beside.parent == tmp_path
        beside.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError) as failed, whole_file(tmp_path / "no" / "b.txt") as beside:
        beside.write_text("new")
    assert failed.value.filename == str(tmp_path / "no" / "b.txt")


def test_a_pipe_and_a_link_are_written_not_replaced(tmp_path: Path):
    pipe, link, aim = tmp_path / "pipe", tmp_path / "link", tmp_path / "aim"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with whole_file(pipe) as path:
        path.write_text("through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    link.symlink_to(aim)
    with whole_file(link) as path:
        path.write_text("there")
    assert link.is_symlink() and aim.read_text() == "there"


def test_a_folder_takes_its_place_when_it_is_whole(tmp_path: Path):
    target = tmp_path / "deep" / "folder"
    for text in ("first", "second"):
        with whole_folder(target) as folder:
            (folder / "a").write_text(text)
        assert (target / "a").read_text() == text and list(target.parent.iterdir()) == [target]
    with pytest.raises(KeyboardInterrupt), whole_folder(target) as folder:
        (folder / "a").write_text("third")
        raise KeyboardInterrupt
    assert (target / "a").read_text() == "second" and list(target.parent.iterdir()) == [target]


def test_a_folder_that_cannot_take_its_place_leaves_the_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target, rename = tmp_path / "folder", Path.rename
    with whole_folder(target) as folder:
        (folder / "a").write_text("first")

    def refuse_new(path: Path, to: Path) -> Path:
        if path.name == "new":
            raise KeyboardInterrupt
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refuse_new)
    with pytest.raises(KeyboardInterrupt), whole_folder(target) as folder:
        (folder / "a").write_text("second")
    assert (target / "a").read_text() == "first" and list(tmp_path.iterdir()) == [target]
