"""Tables on terminals of every width: no number is cut, texts stay readable, a pipe gets one wide table."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from robopos.cli import main
from robopos.cli.show import scores, table
from robopos.logs import LogMessage, write_log

MS = 1_000_000
WIDTHS = (60, 80, 120)
LONG = "/robot/left_arm/wrist/twist_filtered"


class Terminal(io.StringIO):
    """A text that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_width(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], list[str]]:
    """The lines that something prints on a terminal of a width."""

    def shown(width: int, prints: Callable[[], object]) -> list[str]:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setenv("COLUMNS", str(width))
            patch.setenv("TERM", "xterm")
            prints()
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).splitlines()

    return shown


def numbers(lines: list[str]) -> Counter[str]:
    """The cells that begin with a digit or a sign: what stands between two spaces or more."""
    cells = (cell for line in lines for cell in re.split(r"\s{2,}", line.strip()))
    return Counter(cell for cell in cells if re.match(r"[+-]?\d", cell))


def score_rows() -> list[dict]:
    names = ("joint_states.position[left_front_wheel_joint]", "imu_data.angular_velocity.x", "cmd_vel.linear.x")
    return [
        {"target": name, "unit": "rad/s", "horizon_s": horizon_s, "count": 13_871 + i}
        | {"mae": 0.013751 * (i + 1), "rmse": 1234.5 + i, "rmse_hold_last": 0.58832, "rmse_constant_velocity": 1e-7}
        | {"skill_hold_last": 0.977 - i, "skill_constant_velocity": -19.851, "coverage_90": None}
        for i, name in enumerate(names)
        for horizon_s in (0.1, 0.25)
    ]


@pytest.fixture
def odd_log(tmp_path: Path) -> Path:
    """A topic with long names, stamps that go back and gaps of minutes; a topic without header."""
    messages = []
    for i in range(300):
        log = 10_000_000 * MS + 10 * MS * i + (400_000 * MS if i > 200 else 0)
        stamp = log - 3 * MS - (25 * MS if i % 7 == 0 else 0)
        header = {"stamp": stamp, "frame_id": "f"}
        messages.append(LogMessage(LONG, "geometry_msgs/msg/TwistStamped", log, {"header": header}))
        messages.append(LogMessage("/cmd", "geometry_msgs/msg/Twist", log, {}))
    return write_log(tmp_path / "odd.mcap", messages)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_score_is_cut(width: int, at_width: Callable, capsys: pytest.CaptureFixture[str]):
    scores("scores", score_rows())
    wide = capsys.readouterr().out.splitlines()
    lines = at_width(width, lambda: scores("scores", score_rows()))
    assert max(map(len, lines)) <= width and "…" not in "".join(lines)
    assert len(numbers(wide)) > 15 and not numbers(wide) - numbers(lines)
    assert "(rad/s)" in "".join(lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_inspect_cuts_no_number(width: int, odd_log: Path, at_width: Callable, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(odd_log)]) == 0
    wide = capsys.readouterr().out.splitlines()
    lines = at_width(width, lambda: main(["inspect", str(odd_log)]))
    assert max(map(len, lines)) <= width and "…" not in "".join(lines)
    told = numbers(wide[1:])  # the first line is the name of the file and what it holds
    assert len(told) > 10 and not told - numbers(lines)
    # A type is folded into pieces that can be read, if at all.
    assert any("geometry_msgs/msg/Tw" in line for line in lines)


def test_a_pipe_gets_one_table(odd_log: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(odd_log)]) == 0
    out = capsys.readouterr().out
    assert out.count("topic") == 1 and f"{LONG}   geometry_msgs/msg/TwistStamped" in out


def test_a_terminal_narrower_than_a_row_loses_nothing(at_width: Callable):
    rows = [["a" * 50, "123456.789", "42"], ["[bold]b", "1", "2"]]
    lines = at_width(12, lambda: table("", ["name", "length", "count"], rows))
    assert {"123456.789", "42", "1", "2"} <= numbers(lines).keys()
    assert "a" * 20 in "".join(lines) and any("[bold]b" in line for line in lines)
