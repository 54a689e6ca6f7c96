"""The pages: links lead somewhere, figures are those that were measured, and Sphinx builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from robopos import __version__

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("ros2_ws/src/*/*.md"), *ROOT.glob("*/README.md")]
)
FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?\)")


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of it."""
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](#three) [c](gone.md) [d](page.md#one-two)\n```text\n[e](gone.md)\n```\n"
    )
    assert broken_links(page) == ["#three", "gone.md"]


def test_the_rows_of_the_benchmarks_page_are_those_of_the_results():
    measured = (ROOT / "benchmarks/RESULTS.md").read_text().splitlines()
    rows = [line for line in (ROOT / "docs/benchmarks.md").read_text().splitlines() if line.startswith("|")]
    assert len(rows) > 30
    assert [row for row in rows if row not in measured] == [], "copy the rows of benchmarks/RESULTS.md as they stand"


def test_the_citation_names_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__ and cited["title"].startswith("robopos")


@pytest.mark.slow
def test_the_docs_build_without_a_warning(tmp_path: Path):
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), ".", str(tmp_path / "html")],
        cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    reference = {page.stem: page.read_text() for page in (tmp_path / "html/docs/api").glob("*.html")}
    for package in ("positions", "logs", "sequences", "model", "training", "serving", "comparison"):
        names = __import__(f"robopos.{package}", fromlist=["__all__"]).__all__
        missing = [name for name in names if f'id="robopos.{package}.{name}"' not in reference[package]]
        assert missing == [], f"robopos.{package}: without a docstring, and so not in the reference"
