"""The first paragraph and the notes of a report say what the figures say, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from comparison_support import COSTS, cells, results, settings, sums

from robopos.comparison.cells import Cell
from robopos.comparison.settings import HALF_RATE, RECORDED, CellKey, SchemeSettings
from robopos.comparison.tables import notes
from robopos.comparison.words import clock_pairs, gap_rivals, summary


def told(errors: dict[str, float], blocks: int = 12, **changes: object) -> str:
    """The first paragraph of made-up cells."""
    study = settings(**({"schemes": list(errors)} | changes))
    return summary(results(study, cells(errors, study.seeds, blocks), blocks))


def test_words_say_which_is_better_and_where_no_difference_is_shown():
    better = told({"index-rotary": 0.5, "time-rotary": 0.3})
    assert "Against index-rotary, seed by seed: better: time-rotary (+0.1" in better
    assert "time-rotary against index-rotary is better under as recorded" in better
    worse = told({"index-rotary": 0.3, "time-rotary": 0.5})
    assert "the largest mean skill has index-rotary" in worse and "worse: time-rotary (\u22120.2" in worse
    same = told({"index-rotary": 0.3, "time-rotary": 0.301})
    assert "no difference shown: time-rotary" in same and "shows no difference under any condition" in same
    assert "better" not in same and "worse" not in same


def test_words_make_no_claim_from_few_blocks():
    few = told({"index-rotary": 0.5, "time-rotary": 0.3}, blocks=4)
    assert "no interval: time-rotary (+0.1" in few
    assert "time-rotary against index-rotary has no interval under any condition" in few
    assert "Intervals need 5 blocks of time or more, so there are none" in few
    assert "better" not in few and "worse" not in few and "no difference" not in few


def test_words_say_what_is_not_shown():
    usual = told({"index-rotary": 0.5, "time-rotary": 0.3})
    assert "What this does not show: other robots" in usual and "seeds" not in usual.partition("not show")[2]
    assert "One seed: how much trainings differ is unknown" in told(
        {"index-rotary": 0.5, "time-rotary": 0.3}, seeds=[1]
    )
    assert "other logs than this one" in usual


def test_words_make_no_claim_on_clocks_where_stamps_were_not_measured():
    gap = {"positions": "index-rotary", "gap_feature": True}
    errors = {"index-rotary": 0.5, "index-alibi": 0.4, "none": 0.6, "time-rotary": 0.3, "index-rotary + gap": 0.3}
    schemes = [*list(errors)[:4], gap]
    unmeasured = told(errors, schemes=schemes, clock_measured=False)
    assert "stamps of this log were not measured by a clock, so nothing here speaks for or against time" in unmeasured
    assert "time-" not in unmeasured and "gap" not in unmeasured
    assert "of those that take the same from the stamps has index-alibi" in unmeasured
    assert "better: index-alibi" in unmeasured and "worse: none" in unmeasured
    alone = told({"index-rotary": 0.5, "time-rotary": 0.3}, clock_measured=False)
    assert alone.startswith("The stamps of this log were not measured") and "rotary" not in alone


def test_words_name_the_regime_and_speak_of_the_first_that_has_figures():
    study = settings(regimes=[RECORDED, HALF_RATE])
    given = cells({"index-rotary": 0.5, "time-rotary": 0.3}, study.seeds, regime=HALF_RATE)
    found = results(study, given)
    assert found.regime == HALF_RATE
    said = "Trained half rate and judged on the log as recorded, the largest mean skill has time-rotary"
    assert summary(found).startswith(said)


def test_words_and_notes_where_nothing_has_a_skill():
    study = settings(seeds=[1])
    still, unseen = np.zeros((12, 2)), np.zeros((12, 2))
    constant = Cell(CellKey("index-rotary", RECORDED, 1), COSTS, {RECORDED: sums(still, hold=still)})
    assert summary(results(study, [constant])).startswith("On the log as recorded, no scheme has a skill. What")
    assert f"{RECORDED}: no skill: holding the last value makes no error." in notes(results(study, [constant]))
    none = Cell(constant.key, COSTS, {RECORDED: sums(unseen, hold=unseen, count=0.0)})
    assert any(note.startswith(f"{RECORDED}: nothing is scored") for note in notes(results(study, [none])))
    usual = results(study, cells({"index-rotary": 0.5, "time-rotary": 0.3}, [1]))
    assert notes(usual) == []


def test_pairs_of_clocks_and_rivals():
    rival = SchemeSettings("index-rotary", gap_feature=True)
    free = SchemeSettings("time-rotary", context_s=None)
    schemes = [SchemeSettings(n) for n in ("none", "index-alibi", "index-rotary", "time-rotary")] + [rival, free]
    assert clock_pairs(schemes) == [("time-rotary", "index-rotary")]
    assert gap_rivals(schemes) == [
        ("time-rotary", "index-rotary + gap"),
        ("time-rotary, no band in s", "index-rotary + gap"),
    ]


def test_differences_are_paired_by_the_seeds_that_both_have():
    study = settings()
    given = [
        c
        for c in cells({"index-rotary": 0.5, "time-rotary": 0.3}, [1, 2, 3])
        if c.key.seed != 3 or "time" in c.key.scheme
    ]
    figures = results(study, given).figures
    apart = figures.get("skill difference", "time-rotary", RECORDED, RECORDED, against="index-rotary")
    ours = [figures.get("skill", "time-rotary", RECORDED, RECORDED, seed=s).value for s in (1, 2)]
    theirs = [figures.get("skill", "index-rotary", RECORDED, RECORDED, seed=s).value for s in (1, 2)]
    assert apart.value == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert figures.get("skill", "index-rotary", RECORDED, RECORDED, seed=3) is None
    units = figures.get(
        "rmse difference", "time-rotary", RECORDED, RECORDED, against="index-rotary", target="a.x", horizon_s=0.1
    )
    assert units.value < 0 and units.shown


def test_a_failed_cell_has_no_figures():
    study = settings()
    failed = Cell(CellKey("time-rotary", RECORDED, 1), error="it broke")
    found = results(study, [*cells({"index-rotary": 0.5}, [1]), failed])
    assert found.figures.get("skill", "time-rotary", RECORDED, RECORDED) is None
    assert "time-rotary" not in summary(found)
