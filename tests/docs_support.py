"""The pages' fences and commands, and the folder in which they are run."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
import yaml

from robopos.logs import LogMessage, write_log

ROOT = Path(__file__).resolve().parents[1]
SINGLE_PAGES = (
    *("README.md", "CONTRIBUTING.md", "data/README.md", "examples/README.md"),
    *("ros2_ws/README.md", "ros2_ws/src/robopos_ros/README.md"),
)
PAGES = (*SINGLE_PAGES, *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))

# What fences may hold; only the first two are run. `{...}` is a directive of the documentation's builder.
RUN_LANGUAGES = ("sh", "python")
SHOWN_LANGUAGES = ("text", "yaml", "json", "xml", "dockerfile")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)$")
_NOT_RUN = re.compile(r"^ *<!-- not run: *(?P<reason>.*?) *-->$")


def fail(where: str, why: str) -> NoReturn:
    """Fail the test with the place in the page and what is wrong there."""
    pytest.fail(f"{where}\n{why.strip()}", pytrace=False)


class Fence(NamedTuple):
    """A fenced block. `line` is that of its first line of text; `not_run` the reason where it is not to be run."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None


class Command(NamedTuple):
    """One command of a page, without its comment."""

    page: str
    line: int
    text: str

    @property
    def where(self) -> str:
        """Page, line and text, for a message."""
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


def fences(page: str, text: str | None = None) -> list[Fence]:
    """The fences of a page, in order.

    A fence that is not closed or of an unknown language, or "not run" without a reason or a fence, fails the test.
    """
    lines = ((ROOT / page).read_text() if text is None else text).splitlines()
    found: list[Fence] = []
    start: re.Match[str] | None = None
    first, not_run = 0, ""
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if start is not None:
            if fence is not None and not fence["language"]:
                held = [text.removeprefix(start["indent"]) for text in lines[first : number - 1]]
                found.append(Fence(page, first + 1, start["language"].strip(), "\n".join(held), not_run or None))
                start, not_run = None, ""
        elif fence is not None:
            _check_language(page, number, fence["language"].strip())
            start, first = fence, number
        elif match := _NOT_RUN.match(line):
            first, not_run = number, match["reason"]
            if not not_run:
                fail(f"{page}:{number}", "'not run' without a reason")
        elif line.strip() and not_run:
            fail(f"{page}:{first}", "'not run' stands before no fence")
    if start is not None:
        fail(f"{page}:{first}", "the fence is not closed")
    return found


def _check_language(page: str, line: int, language: str) -> None:
    if not language.startswith("{") and language not in (*RUN_LANGUAGES, *SHOWN_LANGUAGES):
        known = ", ".join((*RUN_LANGUAGES, *SHOWN_LANGUAGES))
        fail(f"{page}:{line}", f"a fence is marked {language!r}: use one of {known}")


def commands(fence: Fence) -> Iterator[Command]:
    """The commands of an `sh` fence: one a line, continued behind a backslash, comments after ` # `."""
    joined, first = "", fence.line
    for number, line in enumerate(fence.text.splitlines(), fence.line):
        if not joined:
            first = number
        text = re.sub(r"(^|\s+)# .*$", "", line).strip()
        if text.endswith("\\"):
            joined += text[:-1].rstrip() + " "
            continue
        if joined + text:
            yield Command(fence.page, first, joined + text)
        joined = ""


def spoken_commands(page: str) -> Iterator[Command]:
    """What stands as `robopos …` within the prose of a page."""
    inside = False
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        inside ^= _FENCE.match(line) is not None
        for text in [] if inside else re.findall(r"`(robopos [^`]*)`", line):
            yield Command(page, number, text)


def make_targets() -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M))


# Appended to what a page says, so that long work ends soon: options that users have too, and the last of two counts.
SHORT_TRAINING = [
    *("--trainer.max_steps", "4", "--data.batch_size", "2"),
    *("--model.network.context", "16", "--model.network.window", "32"),
    "--force",  # runs/mine is there
]
SHORT_STUDY = [
    *("--max_steps", "4", "--batch_size", "2", "--max_anchors", "40", "--resamples", "20", "--workers", "1"),
    *("--network.context", "16", "--network.window", "32"),
    *("--seeds", "[1]", "--schemes", "[index-rotary, time-rotary]", "--regimes", "[as recorded]"),
    *("--conditions.drops", "[0.5]", "--conditions.jitter_s", "0", "--conditions.burst_s", "0"),
    *("--conditions.half_rate", "false", "--conditions.missing", "false", "--conditions.slow_every", "1"),
    *("--conditions.longer_context", "1", "--conditions.epoch_years", "0", "--conditions.clock_offset_s", "0"),
]
MORE_OPTIONS = {
    "robopos init": ["--force"],  # my.yaml is there
    "robopos train": SHORT_TRAINING,
    "robopos compare": SHORT_STUDY,
    "robopos replay": ["--last-s", "3"],
    "robopos play": ["--wait-s", "0.2"],
    "python -m robopos_ros.lockstep": ["--last-s", "3"],
    "python examples/sample_log.py": ["--seconds", "60"],
    "python data/simulate_arm.py": ["--episodes", "2", "--episode-s", "20"],
}


def cut_short(command: Command) -> list[str]:
    """The words of a command, with what ends it soon."""
    words = command.words
    more = MORE_OPTIONS.get(" ".join(words[: 3 if words[1:2] == ["-m"] else 2]), [])
    return words if {"--help", "--print_config"} & set(words) else [*words, *more]


def make_workspace(folder: Path) -> Path:
    """What the pages take for granted: the repository's own files, two logs of a robot, and what was made of them."""
    for name in ("configs", "data", "examples", "docs", "launch", "ros2_ws"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("cache", "*build", "install", "log", "__pycache__"),
        )
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from sample_log import messages
    finally:
        sys.path.remove(str(ROOT / "examples"))
    write_log(folder / "run.mcap", messages(seconds=60))
    write_log(folder / "other.mcap", messages(seconds=20, seed=1))
    (folder / "data" / "cache").mkdir()
    write_log(folder / "data" / "cache" / "mower.mcap", mower_messages())
    return folder


def write_study(folder: Path) -> None:
    """my_compare.yaml, of the streams that my.yaml has: a study of a few seconds."""
    mine = yaml.safe_load((folder / "my.yaml").read_text())
    study = {
        "logs": mine["data"]["logs"],
        "sequence": mine["data"]["sequence"],
        "split": mine["data"]["split"],
        "network": {"context": 12, "context_s": 0.5, "window": 24},
        "schemes": ["index-rotary", "time-rotary"],
        "seeds": [1, 2],
        "max_steps": 4,
    }
    (folder / "my_compare.yaml").write_text(yaml.safe_dump(study, sort_keys=False))


def mower_messages(seconds: float = 400.0) -> Iterator[LogMessage]:
    """Topics and rates of the mower's log (data/README.md), in place of the recording, which is a download."""
    start_ns = 1_577_836_800_000_000_000
    for i in range(round(5 * seconds)):
        time_s = 0.2 * i + 0.02 * math.sin(7 * i)
        time_ns = start_ns + round(time_s * 1e9)
        header = {"stamp": time_ns, "frame_id": "base"}
        twist = {"twist": {"linear": {"x": 1 + 0.2 * math.sin(0.3 * time_s)}, "angular": {"z": math.sin(0.2 * time_s)}}}
        pose = {"pose": {"position": {"x": time_s, "y": 5 * math.cos(0.2 * time_s)}}}
        yield LogMessage("odometry", "nav_msgs/msg/Odometry", time_ns, {"header": header, "twist": twist, "pose": pose})
        if i % 2:
            beacon = (0, 1, 5, 6)[i // 2 % 4]
            reading = {"header": header, "range": 20 + 10 * math.sin(0.1 * time_s + beacon)}
            yield LogMessage(f"range/beacon_{beacon}", "sensor_msgs/msg/Range", time_ns + 1_000_000, reading)
