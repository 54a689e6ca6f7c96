"""Every command of the pages is run, page by page and in order, in a folder that has what the pages take for granted.

The convention of the pages: commands stand in `sh` fences, one a line; `python` fences of a page share their names; a
fence that cannot run here has `<!-- not run: reason -->` before it. What need not be made first: run.mcap, other.mcap,
my.yaml, my_compare.yaml, runs/mine/bundle, and the repository's own files.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

import docs_support
import pytest
from docs_support import PAGES, ROOT, Command, Fence, commands, cut_short, fail, fences

from robopos.cli import build_parser, main

# What sets a machine up, or needs more than one: by the first word, and why it is not run.
SET_UP = {
    "pip": "installs",
    "apt": "installs",
    "sudo": "changes the machine",
    "rosdep": "installs",
    "python3": "makes the virtual environment",
    ".": "sets the shell up",
    "cd": "sets the shell up",
    "export": "sets the shell up",
    "git": "fetches the repository",
    "make": "makes an environment of its own: only whether the target is there",
    "colcon": "builds the workspace: tests/test_ros_colcon.py",
    "ros2": "needs an installed ROS 2: tests/test_ros_launch.py checks launch files and arguments",
    "torchrun": "needs several GPUs or machines",
    "docker": "needs a daemon",
    "scp": "needs a robot",
    "ssh": "needs a robot",
}
# What a shell runs here. `robopos` runs in this process, which spares it seconds of imports, but for two commands:
# `doctor` looks at what a fresh process finds, `export` leaves torch's traces in the log.
SHELL = ("python", "mkdir", "cp", "ls", "cat", "head", "tail")
FRESH = ("doctor", "export")
# Runs until it is stopped, or on ROS 2: each in a test of its own.
SERVING = re.compile(r"robopos (serve|play) |python -m robopos_ros")
# A script that is named here takes long, and has a test of its own.
EXAMPLES = (ROOT / "tests" / "test_examples.py").read_text()
# It downloads: tests/test_data_prepare.py. Here its arguments are looked at.
PREPARE = "python data/prepare.py"
# What they say when they are at work; lock-step ends by itself.
READY = {"robopos serve": "predicts ", "robopos play": "nobody subscribed", "python -m robopos_ros ": "predicts "}


def to_run(page: str) -> list[Fence]:
    """The fences of a page that are run; none where the page breaks the convention, which has a test of its own."""
    try:
        return [f for f in fences(page) if f.not_run is None and f.language in docs_support.RUN_LANGUAGES]
    except pytest.fail.Exception:
        return []


def commands_to_run(page: str) -> list[Command]:
    return [command for fence in to_run(page) if fence.language == "sh" for command in commands(fence)]


@pytest.mark.parametrize("page", PAGES)
def test_fences_and_words_are_known(page: str) -> None:
    for fence in fences(page):
        for command in commands(fence) if fence.language == "sh" else ():
            if fence.not_run is None:
                check_words(command)
            check_spelling(command)
    for command in docs_support.spoken_commands(page):
        check_spelling(command)


def check_words(command: Command) -> None:
    """Fail unless the command is one that can be judged."""
    if re.search(r"&&|;", command.text):
        fail(command.where, "one command a line")
    first = command.words[0]
    known = ("robopos", *SHELL, *SET_UP)
    if first not in known:
        fail(
            command.where,
            f"{first!r} is none of {', '.join(known)}: tests/test_docs_commands.py says what becomes of each",
        )
    if first == "make":
        missing = [word for word in command.words[1:] if "=" not in word and word not in docs_support.make_targets()]
        if missing:
            fail(command.where, f"the Makefile has no target {', '.join(missing)}")


def check_spelling(command: Command) -> None:
    """Fail where `robopos` takes no such command or option; files are not looked for, and arguments may be left out."""
    words = [word.strip("[]") for word in shlex.split(re.split(r" [>|] ", command.text)[0])]
    if words[0] != "robopos" or len(words) < 2 or words[1].isupper():
        return
    said, code = io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            build_parser().parse_args(words[1:])
        except SystemExit as end:
            code = end.code
    if code and "arguments are required" not in said.getvalue():
        fail(command.where, said.getvalue())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that each page starts from."""
    folder = docs_support.make_workspace(tmp_path_factory.mktemp("pages") / "prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["init", "run.mcap", "-o", "my.yaml"]) == 0
        assert main(["train", "--config", "my.yaml", "--out", "runs/mine", *docs_support.SHORT_TRAINING]) == 0
        docs_support.write_study(folder)
    return folder


@pytest.fixture
def workspace(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of it, as the current folder and as HOME."""
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if to_run(page)])
def test_what_a_page_says_runs(page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robopos.positions import build

    monkeypatch.setattr(build, "SCHEMES", dict(build.SCHEMES))  # a page may add to them
    names: dict[str, object] = {"__name__": page}
    for fence in to_run(page):
        if fence.language == "python":
            run_python(fence, names)
        else:
            for command in commands(fence):
                run_command(command)


def run_python(fence: Fence, names: dict[str, object]) -> None:
    """Run a fence; a failure names the line of the page."""
    failure: Exception | None = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * (fence.line - 1) + fence.text, fence.page, "exec"), names)
    except Exception as error:
        failure = error
    if failure is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(failure.__traceback__) if frame.filename == fence.page]
        line = (lines[-1] if lines else getattr(failure, "lineno", None)) or fence.line
        text = fence.text.splitlines()[line - fence.line].strip()
        fail(f"{fence.page}:{line}: {text}", f"{type(failure).__name__}: {failure}")


def run_command(command: Command) -> None:
    """Run a command, unless it sets up, serves, or is tested elsewhere; then look at what can be."""
    check_words(command)
    words = cut_short(command)
    if words[0] in SET_UP or SERVING.match(command.text):
        return
    if command.text.startswith(PREPARE):
        told = subprocess.run([sys.executable, *words[1:], "--help"], capture_output=True, text=True, check=False)
        if told.returncode or any(word not in told.stdout for word in words[2:]):
            fail(command.where, told.stderr or told.stdout)
    elif len(words) == 2 and words[1].startswith("examples/") and f'"{Path(words[1]).name}"' in EXAMPLES:
        return
    elif words[0] == "robopos" and words[1] not in FRESH and not re.search(r"[>|]", command.text):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = main(words[1:])
            except SystemExit as end:
                code = end.code
        if code:
            fail(command.where, f"exit code {code}\n{said.getvalue()[-2000:]}")
    else:
        more = shlex.join(words[len(command.words) :])
        text = re.sub(r"(?= [>|] |$)", lambda _: f" {more}", command.text, count=1)
        line = ["bash", "-o", "pipefail", "-c", text]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            fail(command.where, f"exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [c for page in PAGES for c in commands_to_run(page) if SERVING.match(c.text)],
    ids=lambda command: f"{command.page}:{command.line}",
)
def test_what_runs_until_it_is_stopped(command: Command, workspace: Path) -> None:
    if find_spec("rclpy") is None or find_spec("robopos_ros") is None:
        pytest.skip("ROS 2 for Python (rclpy) or robopos_ros is not installed")
    from robopos_ros.process import free_domain, private_environment

    words = cut_short(command)
    environment = os.environ | private_environment(free_domain()) | {"PYTHONUNBUFFERED": "1"}
    ready = next((said for start, said in READY.items() if command.text.startswith(start)), None)
    with (
        open("said.txt", "w") as said,
        subprocess.Popen(words, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True) as run,
    ):
        until_s = time.monotonic() + 120
        while run.poll() is None and time.monotonic() < until_s:
            if ready is not None and ready in Path("said.txt").read_text():
                run.send_signal(signal.SIGINT)
                ready = None
            time.sleep(0.1)
        code = run.poll()
        if code is None:
            run.kill()
    if code != 0 or ready is not None:
        why = f"exit code {code}" if ready is None else f"it never said {ready!r}"
        fail(command.where, f"{why}\n{Path('said.txt').read_text()[-2000:]}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("robopos inspect nowhere.mcap", "nowhere.mcap"),
        ("robopos dance run.mcap", "invalid choice: 'dance'"),
        ("dance run.mcap", "'dance' is none of robopos"),
        ("make dance", "the Makefile has no target dance"),
        ("python data/prepare.py dance", "mower"),
        ("python nowhere.py", "nowhere.py"),
        ("mkdir a && mkdir b", "one command a line"),
    ],
)
def test_what_does_not_run_is_named_with_its_line(text: str, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    fence = fences("docs/x.md", f"# Page\n\n```sh\n# first\n{text}  # comment\n```\n")[0]
    with pytest.raises(pytest.fail.Exception) as failure:
        for command in commands(fence):
            run_command(command)
    assert str(failure.value).startswith(f"docs/x.md:5: {text}\n") and said in str(failure.value)


def test_python_that_does_not_run_is_named_with_its_line() -> None:
    fence = fences("docs/x.md", "```python\nx = 1\nx + y\n```\n")[0]
    with pytest.raises(pytest.fail.Exception, match=r"(?s)^docs/x.md:3: x \+ y\nNameError: name 'y'"):
        run_python(fence, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\nls\n```", "docs/x.md:1\na fence is marked 'bash'"),
        ("\n```sh\nls\n", "docs/x.md:2\nthe fence is not closed"),
        ("<!-- not run: -->\n```sh\nls\n```", "docs/x.md:1\n'not run' without a reason"),
        ("<!-- not run: it installs -->\nprose\n```sh\nls\n```", "docs/x.md:1\n'not run' stands before no fence"),
    ],
)
def test_a_page_that_breaks_the_convention_is_named(text: str, said: str) -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        fences("docs/x.md", text)
    assert str(failure.value).startswith(said)


def test_a_command_goes_on_behind_a_backslash() -> None:
    text = "- in a list\n\n  ```sh\n  a --b '#c' \\\n      --d  # why\n\n  # alone\n  e #f\n  ```\n"
    found = list(commands(fences("docs/x.md", text)[0]))
    assert [(c.line, c.text) for c in found] == [(4, "a --b '#c' --d"), (8, "e #f")]
