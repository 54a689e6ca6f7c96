"""The page about positions: its code runs, its pictures are there, it names every scheme and option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robopos.positions.build import SCHEMES

PAGE = Path(__file__).parents[1] / "docs" / "positions.md"


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_code_of_the_page_runs(code: str) -> None:
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert names["out"].shape == (1, 8, 4, 32)


def test_the_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text())
    assert len(pictures) >= 5
    assert [name for name in pictures if not (PAGE.parent / name).is_file()] == []


def test_every_scheme_has_its_row() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [name for name in SCHEMES if not any(f"`{name}`" in row for row in rows)] == []
