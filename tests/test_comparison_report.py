"""The report says what the cells say: its words, its tables, its page."""

from __future__ import annotations

import base64
import io
import math
import re
import shlex
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from comparison_support import cells, results
from comparison_support import settings as made_up
from test_comparison_study import compare, config

from robopos.cli import main
from robopos.comparison.attention import attention_over_time, recorded
from robopos.comparison.cells import keep_cell, load_cell
from robopos.comparison.costs import history, order_effects
from robopos.comparison.data import StudyData
from robopos.comparison.plots import attention, error_over_horizon
from robopos.comparison.settings import HALF_RATE, RECORDED
from robopos.comparison.tables import order_table
from robopos.comparison.theme import LIGHT
from robopos.model import Bundle, ModelSettings, SequenceTransformer
from robopos.sequences import TokenColumns

TINY = Path(__file__).parent.parent / "configs" / "compare_tiny.yaml"


@pytest.fixture(scope="module")
def report(arm_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the smallest shipped study on a log that the tests make."""
    out = tmp_path_factory.mktemp("compare") / "report"
    started = time.monotonic()
    options = ["--logs", f"[{arm_log}]", "--out", str(out), "--workers", "1"]
    assert main(["compare", "--config", str(TINY), *options]) == 0
    assert time.monotonic() - started < 60
    return out


@pytest.fixture(scope="module")
def frame(report: Path) -> pd.DataFrame:
    text = {"seed": str, "against": str, "scheme": str, "target": str, "condition": str, "regime": str}
    return pd.read_csv(report / "cells.csv", dtype=text, keep_default_na=False, na_values={"value": [""]})


class Page(HTMLParser):
    """Tables by id, addresses, and the text of the first paragraph."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self._table = self._cell = None
        self._summary = False
        self.summary = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset", "action", "data") and v]
        if tag == "table":
            self._table = self.tables.setdefault(str(given["id"]), [])
        elif tag == "tr" and self._table is not None:
            self._table.append([])
        elif tag in ("td", "th") and self._table is not None:
            self._cell = ""
        self._summary = self._summary or given.get("class") == "summary"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self._table[-1].append(self._cell)
            self._cell = None
        elif tag == "table":
            self._table = None
        elif tag == "p":
            self._summary = False

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell += data
        if self._summary:
            self.summary += data


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    parsed = Page()
    parsed.feed((report / "index.html").read_text())
    return parsed


def rows_of(frame: pd.DataFrame, **values: str) -> pd.DataFrame:
    """The rows that have these values."""
    for name, value in values.items():
        frame = frame[frame[name] == value]
    return frame


def figures_of(cell: str) -> list[float]:
    """The numbers of a table's cell: a value, and an interval where there is one."""
    text = cell.replace("\u2212", "-").replace("\u2205", "")
    return [float(part) for part in text.replace("[", " ").replace("]", " ").replace(",", " ").split()]


def test_every_picture_decodes_in_both_looks(page: Page):
    image = pytest.importorskip("PIL.Image")
    pictures = [a for a in page.addresses if a.startswith("data:image/png;base64,")]
    assert len(pictures) == 2 * page.tags.count("img") >= 14
    assert page.tags.count("source") == page.tags.count("img")
    for picture in pictures:
        opened = image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2], validate=True)))
        opened.load()
        assert min(opened.size) > 100


def test_no_address_leads_outside_the_page(report: Path, page: Page):
    assert page.addresses and all(a.startswith("data:image/png;base64,") for a in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    text = (report / "index.html").read_text()
    assert "http" not in text and "@import" not in text and "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_a_report_of_the_second_regime_alone(arm_log: Path, tmp_path: Path):
    content = config(arm_log, regimes=[RECORDED, HALF_RATE], seeds=[1], max_steps=1)
    assert compare(tmp_path, content, "--only", "trained half rate") == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "\nTrained half rate and judged on" in text and "\n## Skill, trained half rate (as recorded is" in text
    assert "trained as recorded" not in text and "2 of 4 cells are not made yet" in text
    assert (tmp_path / "report" / "plots" / "attention.png").is_file()


def test_no_name_breaks_a_plot_a_table_or_a_page(odd_log: Path, tmp_path: Path):
    sequence = {"streams": {"joints": {"topic": "joint_states", "fields": ["position"]}}}
    sequence |= {"targets": {"joints": ["position"]}, "horizons_s": [0.1]}
    schemes = [{"positions": name, "label": f"_{name}|$\\foo$"} for name in ("index-rotary", "time-rotary")]
    content = config(odd_log, sequence=sequence, schemes=schemes, seeds=[1], max_steps=1)
    assert compare(tmp_path, content) == 0
    out = tmp_path / "report"
    assert len(list((out / "plots").iterdir())) == 7
    written, scores = (out / "report.md").read_text(), tmp_path / "scores.md"
    bundle = next(out.glob("cells/*/bundle"))
    assert (
        main(["evaluate", str(bundle), str(odd_log), "--plot", str(tmp_path / "a.png"), "--markdown", str(scores)]) == 0
    )
    for text in (written, scores.read_text()):
        assert "<b>" not in text and "&lt;b&gt;p\\|q&lt;/b&gt;" in text and "$\\\\foo" not in text.replace("\\$", "")
        tables = [[re.split(r"(?<!\\)\|", line) for line in part.splitlines()] for part in text.split("\n\n")]
        assert all(len({len(line) for line in table}) == 1 for table in tables if len(table[0]) > 1)


def test_a_label_that_begins_with_an_underscore_is_in_the_legend():
    given = cells({"_mine": 0.5}, [1])
    figure = error_over_horizon(results(made_up(schemes=[{"positions": "none", "label": "_mine"}]), given), LIGHT)
    assert [text.get_text().strip() for text in figure.legends[0].get_texts()] == ["_mine", "hold last"]


def test_an_effect_that_is_no_number_is_told_as_none(tmp_path: Path):
    study = made_up(schemes=["index-rotary"], seeds=[1])
    cell = cells({"index-rotary": 0.5}, [1])[0]
    keep_cell(tmp_path, replace(cell, costs={**cell.costs, "shuffle_effect": math.nan}), "print")
    assert '"shuffle_effect": null' in next(tmp_path.glob("cells/*/cell.json")).read_text()
    read = load_cell(tmp_path, cell.key, "print")
    assert order_table(results(study, [read])).rows == [["index-rotary", "-", "0.0%"]]


def test_a_split_by_logs_is_told_as_one(two_runs: Path, arm_log: Path, tmp_path: Path):
    split = {"by": "log", "validation": 0.3, "test": 0.3}
    content = config(arm_log, logs=[str(two_runs), str(arm_log)], split=split, schemes=["none"], seeds=[1], max_steps=1)
    assert compare(tmp_path, content) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "\n- split: whole logs: 30% validation, 30% test at the end\n" in text
    assert "other logs than these" in text


def test_what_is_lost_of_a_log_is_told(cut_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert compare(tmp_path, config(cut_log, schemes=["none"], seeds=[1], max_steps=1)) == 0
    lost = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"note: {cut_log}: ")]
    assert len(lost) == 1 and "bytes" in lost[0]
    assert f"\n- {lost[0].removeprefix('note: ')}\n" in (tmp_path / "report" / "report.md").read_text()


def test_every_figure_of_the_main_table_is_one_of_the_cells(page: Page, frame: pd.DataFrame):
    table = page.tables["main"]
    header, rows = table[0], table[1:]
    assert header == ["condition", "anchors", "index-rotary", "time-rotary", "constant velocity"]
    assert [row[0] for row in rows] == ["as recorded", "drops 50%", "half the rate"]
    compared = 0
    for row in rows:
        for scheme, cell in zip(header[2:], row[2:], strict=True):
            at = rows_of(frame, quantity="skill", seed="all", scheme=scheme, condition=row[0])
            assert len(at) == 1
            expected = [float(at[name].iloc[0]) for name in ("value", "low", "high")]
            assert figures_of(cell) == pytest.approx(expected, abs=5.1e-4)
            compared += 1
    assert compared == 9
    count = frame.query("quantity == 'count' and condition == 'as recorded'")["value"]
    assert int(rows[0][1]) >= count.max() > 0


def test_every_paired_difference_is_one_of_the_cells(page: Page, frame: pd.DataFrame):
    table = page.tables["differences"]
    assert table[0] == ["condition", "time-rotary"]
    for condition, cell in table[1:]:
        common = {"scheme": "time-rotary", "against": "index-rotary", "condition": condition}
        at = rows_of(frame, quantity="skill difference", **common).iloc[0]
        ends = [float(at["low"]), float(at["high"])]
        assert figures_of(cell) == pytest.approx([float(at["value"]), *ends], abs=5.1e-4)
        assert ("\u2205" in cell) == (ends[0] <= 0 <= ends[1])


def test_the_seeds_skills_are_means_over_targets_and_horizons(frame: pd.DataFrame):
    columns = ["target", "horizon_s"]
    held = rows_of(frame, quantity="rmse", scheme="hold last", condition=RECORDED).set_index(columns)["value"]
    for seed in ("1", "2"):
        at = {"seed": seed, "scheme": "time-rotary", "condition": RECORDED}
        errors = rows_of(frame, quantity="rmse", **at).set_index(columns)["value"]
        assert len(errors) == len(held) == 6
        expected = (1 - (errors / held) ** 2).mean()
        assert rows_of(frame, quantity="skill", **at)["value"].iloc[0] == pytest.approx(expected)


def test_the_markdown_has_the_same_table_and_says_how_it_was_made(report: Path, page: Page, arm_log: Path):
    text = (report / "report.md").read_text()
    for row in page.tables["main"][1:]:
        assert f"| {' | '.join(row)} |" in text
    assert page.summary in text
    for said in ("robopos ", "torch ", "seeds: 1, 2", "SHA-256 ", "command: robopos compare --config"):
        assert said in text
    command = next(line for line in text.splitlines() if line.startswith("- command: "))
    assert shlex.split(command.removeprefix("- command: "))[:3] == ["robopos", "compare", "--config"]
    for name in ("forest", "error_over_drops", "error_over_horizon", "rate_shift", "traces", "attention", "positions"):
        assert f"plots/{name}.png" in text
        assert (report / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def data(arm_log: Path) -> StudyData:
    from test_comparison_study import settings as on_log

    return StudyData(on_log(arm_log))


def bundle_of(data: StudyData, positions: str, **network: object) -> Bundle:
    torch.manual_seed(0)
    given = ModelSettings(positions=positions, **({"context": 12, "context_s": 0.5, "window": 24} | network))
    made = SequenceTransformer(data.layout, given).eval()
    return Bundle(data.layout, given, data.whole(False).fit_normalization(), made)


@pytest.mark.parametrize("positions", ["none", "time-rotary", "index-alibi", "time-relative"])
def test_attention_is_read_off_any_scheme_and_changes_nothing(data: StudyData, positions: str):
    bundle, dataset = bundle_of(data, positions), data.whole(False)
    columns = TokenColumns(dataset.table, bundle.normalization, dataset.of_split("test"))
    anchors = data.view(data.conditions[0], False).anchors
    tokens, _ = columns.windows(torch.from_numpy(anchors[-4:]), 24)
    with torch.no_grad():
        plain = bundle.network.encode(tokens)
        with recorded(bundle.network.blocks) as kept:
            torch.testing.assert_close(bundle.network.encode(tokens), plain)
    assert len(kept) == 2 and kept[0].shape == (4, 4, 24, 24)
    torch.testing.assert_close(kept[0].sum(-1), torch.ones(4, 4, 24))
    assert (kept[1].triu(1) == 0).all() and (kept[1][..., -1, :-12] == 0).all()
    edges_s = np.array([0.0, 0.1, 0.25, 0.5])
    shares = attention_over_time(bundle, columns, anchors, edges_s)
    assert shares.shape == (2, 3)
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-5)
    # What is further back than the axis is in no bin.
    near = attention_over_time(bundle, columns, anchors, edges_s[:2])
    np.testing.assert_allclose(near, shares[:, :1])
    assert (near.sum(1) < 0.7).all()
    if positions == "none":
        # One token in a window of one sees itself alone.
        alone = bundle_of(data, "none", context=1, window=2)
        np.testing.assert_allclose(attention_over_time(alone, columns, anchors, edges_s), [[1, 0, 0]] * 2, atol=1e-6)


def test_order_and_time_reach_the_networks_whose_positions_say_so(data: StudyData):
    view = data.view(data.conditions[0], False)
    effects = {
        name: order_effects(bundle_of(data, name, context_s=None), view.dataset, view.anchors)
        for name in ("index-rotary", "time-rotary")
    }
    assert all(effect["shuffle_effect"] > 1e-3 for effect in effects.values())
    assert effects["index-rotary"]["stretch_effect"] == 0
    assert effects["time-rotary"]["stretch_effect"] > 1e-3


def test_the_history_is_counted(data: StudyData):
    view = data.view(data.conditions[0], False)
    free = history(bundle_of(data, "time-rotary", context_s=None), view.dataset, view.anchors)
    assert free["band_tokens"] == 12 and free["reach_tokens"] == 2 * 11 + 1
    table = view.dataset.table
    spans_s = (table.time_ns[view.anchors] - table.time_ns[view.anchors - 11]) / 1e9
    assert free["band_s"] == pytest.approx(np.median(spans_s), rel=0.05)
    banded = history(bundle_of(data, "time-rotary", context_s=0.05), view.dataset, view.anchors)
    assert banded["band_s"] <= 0.05 and banded["band_tokens"] < 12 and math.isfinite(banded["reach_tokens"])
    window = history(bundle_of(data, "time-sinusoidal", context_s=None, context=20), view.dataset, view.anchors)
    assert window["reach_tokens"] == 24


def test_the_picture_says_how_much_attention_is_older_than_its_axis():
    pictures = {"attention_edges_s": np.array([0.0, 1.0, 2.0]), "attention": np.array([[0.7, 0.3], [0.4, 0.18]])}
    given = [replace(cell, pictures=pictures) for cell in cells({"index-rotary": 0.5}, [1, 2])]
    figure = attention(results(made_up(schemes=["index-rotary"]), given), LIGHT)
    first, last = (axis.get_xlabel().splitlines() for axis in figure.axes)
    assert first == ["age of the token (s)"]
    assert last == ["age of the token (s)", "index-rotary: 42% is older than shown"]
