"""The picture of an evaluation: it says whose it is, and what part of it all it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from robopos.cli import main
from robopos.training.figures import _part_drawn


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The title of each figure that is saved."""
    seen: list[str] = []
    save = Figure.savefig

    def remember(figure: Figure, *arguments: object, **options: object) -> None:
        seen.append(figure.texts[0].get_text())
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", remember)
    return seen


@pytest.mark.parametrize(
    ("shown", "targets", "seconds", "told"),
    [(6, 8, 60, "6 of 8 targets, 30 of 60 s"), (6, 6, 60, "30 of 60 s"), (6, 8, 20, "6 of 8 targets"), (6, 6, 30, "")],
)
def test_the_part_that_is_drawn(shown: int, targets: int, seconds: int, told: str):
    assert _part_drawn(shown, targets, np.arange(0, seconds + 1) * 1_000_000_000) == told


def test_two_logs_have_the_time_of_both_and_not_the_days_between():
    first, day = np.arange(0, 26) * 1_000_000_000, 86_400_000_000_000
    assert _part_drawn(1, 1, np.concatenate([first + day, first])) == "30 of 50 s"


def test_the_title_names_the_bundle_the_log_and_the_split(
    trained: Path, arm_log: Path, tmp_path: Path, titles: list[str]
):
    plot = tmp_path / "fit.png"
    command = ["evaluate", str(trained / "bundle"), str(arm_log), "--plot", str(plot)]
    assert main(command) == 0 and main([*command, "--split", "test"]) == 0
    whole, test = (title.splitlines() for title in titles)
    assert whole == [f"{trained / 'bundle'} on {arm_log} (all)", "30 of 40 s"]
    assert test == [f"{trained / 'bundle'} on {arm_log} (test)"]
    assert plot.read_bytes().startswith(b"\x89PNG")
