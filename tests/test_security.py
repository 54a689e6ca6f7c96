"""SECURITY.md names a test for every limit; what is shown and written stays harmless."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from comparison_support import cells
from conftest import arm_messages
from security_support import CDR, channel, message, schema, write

from robopos.cli import main
from robopos.cli.printable import MOST, printable
from robopos.comparison import page, tables
from robopos.comparison.cells import FIGURES, keep_cell, load_cell
from robopos.comparison.settings import slug
from robopos.logs import draft_config, write_log

ROOT = Path(__file__).parent.parent
ORDERS = "\x1b[31m\x07\r\x9b2J\u202e"
TOPIC = f"/joint_states\nevil: {{class_path: os.mkdir}}\n#{ORDERS}"


def test_every_test_that_the_table_names_is_there() -> None:
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(set(named)) >= 30
    for file, name in named:
        functions = {
            node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert name in functions, f"{file}::{name}"


def test_every_test_of_an_attack_stands_in_the_table() -> None:
    table = (ROOT / "SECURITY.md").read_text()
    for path in Path(__file__).parent.glob("test_security_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert f"`tests/{path.name}::{node.name}`" in table


def test_every_row_of_the_table_names_a_test() -> None:
    whole = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in whole.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    assert len(rows) >= 20
    for row in rows[2:]:
        assert "`tests/" in row, row


def test_what_orders_a_terminal_about_is_written_out() -> None:
    assert printable(ORDERS) == "\\x1b[31m\\x07\\r\\x9b2J\\u202e"
    assert printable("µ − ×\nπ") == "µ − ×\nπ"
    assert len(printable("x" * 10**6)) < MOST + 100


def test_names_of_a_log_do_not_reach_the_terminal_as_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.mcap", schema(f"a/{ORDERS}", "ros2msg", "?"), channel(TOPIC), message(CDR))
    assert main(["inspect", str(path)]) == 0
    assert main(["evaluate", str(tmp_path / f"no{ORDERS}bundle"), str(path)]) == 1
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert text and all(letter == "\n" or letter.isprintable() for letter in text)
    assert "\\x1b[31m" in shown.out and "\\x1b[31m" in shown.err
    assert len(shown.err.splitlines()) == 1
    assert main(["inspect", str(path), "--json", "-"]) == 0
    assert all(letter == "\n" or letter.isprintable() for letter in capsys.readouterr().out)


def test_a_drafted_configuration_takes_no_settings_from_names(tmp_path: Path) -> None:
    path = tmp_path / "log\nevil: 1\n#.mcap"
    write_log(path, [m._replace(topic=TOPIC) if m.topic == "/joint_states" else m for m in arm_messages(20.0)])
    drafted = yaml.safe_load(draft_config([path], "runs/x"))
    assert set(drafted) == {"seed_everything", "out", "data", "model", "trainer"}
    assert drafted["data"]["logs"] == [str(path)]
    assert TOPIC in [stream["topic"] for stream in drafted["data"]["sequence"]["streams"].values()]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_of_a_log_are_text_in_the_report() -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    table = tables.Table(evil, [evil, evil], [[evil, evil]])
    looks = {"light": b"x", "dark": b"y"}
    whole = page.page(
        evil,
        evil,
        [(evil, page.table_html(table, evil) + page.plot_html(looks, evil) + page.note_html([evil]))],
        {evil: evil},
    )
    tags = _Tags()
    tags.feed(whole)
    assert "script" not in {tag for tag, _ in tags.found}
    assert [attributes["src"][:5] for tag, attributes in tags.found if tag == "img" and attributes["src"]] == ["data:"]
    assert not any(name.startswith("on") for _, attributes in tags.found for name in attributes)


@pytest.mark.parametrize("label", ["../../x", "/etc/x", "..", "a/../../b", "\0", "x\n"])
def test_a_label_names_no_folder_outside(label: str) -> None:
    assert re.fullmatch(r"([a-z0-9][a-z0-9.-]*)?", slug(label))  # no slash, and no leading dot


class _Evil:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_cell_that_was_altered_is_made_again(tmp_path: Path) -> None:
    (cell,) = cells({"time-rotary": 0.5}, [1])
    folder = keep_cell(tmp_path, cell, "print")
    assert load_cell(tmp_path, cell.key, "print") is not None
    assert load_cell(tmp_path, cell.key, "another print") is None
    kept = shutil.copytree(folder, tmp_path / "kept")
    described = json.loads((folder / "cell.json").read_text())
    arrays = dict(np.load(folder / FIGURES))

    def altered(figures: dict[str, np.ndarray] | bytes | None = None, **changes: object) -> object:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        (folder / "cell.json").write_text(json.dumps(described | changes))
        if isinstance(figures, bytes):
            (folder / FIGURES).write_bytes(figures)
        elif figures is not None:
            np.savez_compressed(folder / FIGURES, **figures)
        return load_cell(tmp_path, cell.key, "print")

    assert altered() is not None
    assert altered(b"PK\3\4 no archive") is None
    assert altered(arrays | {"0/model": np.array([_Evil(tmp_path / "owned")], object)}) is None
    assert not (tmp_path / "owned").exists()
    assert altered(arrays | {"0/model": np.zeros((len(arrays["0/block"]), 99))}) is None
    for changes in (
        {"seconds": None},
        {"conditions": 5},
        {"conditions": ["a", "b"]},
        {"costs": 5},
        {"fingerprint": []},
    ):
        assert altered(**changes) is None, changes
    (folder / "cell.json").write_text("[" * 100_000)
    assert load_cell(tmp_path, cell.key, "print") is None


def test_a_cell_that_unpacks_to_gigabytes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = cells({"time-rotary": 0.5}, [1])
    folder = keep_cell(tmp_path, cell, "print")
    with zipfile.ZipFile(folder / FIGURES, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("picture/more.npy", bytes(20_000_000))
    monkeypatch.setattr("robopos.comparison.cells.MAX_FIGURE_BYTES", 10_000_000)
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was unpacked"))
    assert load_cell(tmp_path, cell.key, "print") is None


def test_compromised_releases_are_excluded() -> None:
    assert '"lightning>=2.4,!=2.6.2,!=2.6.3"' in (ROOT / "pyproject.toml").read_text()
    assert not re.search(r"^(pytorch-)?lightning==2\.6\.[23]$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
