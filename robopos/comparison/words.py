"""What the figures show and what they do not, in words that are computed from them."""

from __future__ import annotations

from collections.abc import Sequence

from robopos.comparison.results import Results
from robopos.comparison.settings import HALF_RATE, RECORDED, SchemeSettings
from robopos.comparison.statistics import FEWEST_BLOCKS, Interval
from robopos.comparison.table import ALL_SEEDS, Figures

FEW = 3  # conditions that are named; more are counted


def number(value: float, digits: int = 3, plus: bool = False) -> str:
    """A figure as the report prints it."""
    if value != value:
        return "-"
    return format(value, f"{'+' if plus else ''}.{digits}f").replace("-", "\u2212")


def with_interval(value: Interval, digits: int = 3, plus: bool = False) -> str:
    """A figure with its interval, if there is one."""
    shown = number(value.value, digits, plus)
    if not value.known:
        return shown
    return f"{shown} [{number(value.low, digits, plus)}, {number(value.high, digits, plus)}]"


def clock_pairs(schemes: Sequence[SchemeSettings]) -> list[tuple[str, str]]:
    """(on time, on the index): schemes that differ in their clock alone."""
    found = []
    for ours in schemes:
        for theirs in schemes:
            same = (ours.gap_feature, ours.context_s) == (theirs.gap_feature, theirs.context_s)
            kinds = ours.positions.replace("time-", ""), theirs.positions.replace("index-", "")
            on_both = ours.positions.startswith("time-") and theirs.positions.startswith("index-")
            if same and on_both and kinds[0] == kinds[1]:
                found.append((ours.name, theirs.name))
    return found


def gap_rivals(schemes: Sequence[SchemeSettings]) -> list[tuple[str, str]]:
    """(on time, on the index with the gap as an input): schemes of one kind."""
    rivals = [s for s in schemes if s.gap_feature and s.positions.startswith("index-")]
    ours = [s for s in schemes if s.positions.startswith("time-") and not s.gap_feature]
    return [
        (a.name, b.name)
        for b in rivals
        for a in ours
        if a.positions.replace("time-", "") == b.positions.replace("index-", "")
    ]


def comparison(
    figures: Figures, conditions: Sequence[str], regime: str, scheme: str, against: str
) -> tuple[list[str], list[str], list[str]]:
    """The conditions under which a scheme is shown better, shown worse, and neither; without interval it is none."""
    better: list[str] = []
    worse: list[str] = []
    neither: list[str] = []
    for condition in conditions:
        apart = figures.get("skill difference", scheme, regime, condition, against=against)
        if apart is not None and apart.known:
            target = neither if apart.open else better if apart.value > 0 else worse
            target.append(condition)
    return better, worse, neither


def summary(results: Results) -> str:
    """The first paragraph."""
    settings, figures, regime = results.settings, results.figures, results.regime
    schemes = [s for s in settings.variants if figures.get("skill", s.name, regime, RECORDED)]
    if not schemes:
        return "No cell is done: nothing is shown."
    if settings.clock_measured:
        sentences = _ranking(results, schemes) + _clocks(results, schemes)
    else:
        reference = _from_stamps(settings.variant(settings.reference_name))
        alike = [scheme for scheme in schemes if _from_stamps(scheme) == reference]
        sentences = _ranking(results, alike) if len(alike) > 1 else []
    return " ".join(sentences + _limits(results))


def _from_stamps(scheme: SchemeSettings) -> tuple[bool, bool, object]:
    """What a scheme takes from the stamps: between two that differ in it, unmeasured stamps decide nothing."""
    return "time-" in scheme.positions, scheme.gap_feature, scheme.context_s


def _clocks(results: Results, schemes: Sequence[SchemeSettings]) -> list[str]:
    figures, regime, sentences = results.figures, results.regime, []
    for title, pairs in (
        ("The same scheme on two clocks", clock_pairs(schemes)),
        ("Against the index with the gap between messages as an input", gap_rivals(schemes)),
    ):
        told = [_pair(figures, results.conditions, regime, *pair) for pair in pairs]
        sentences += [f"{title}: " + "; ".join(told) + "."] if told else []
    if HALF_RATE in results.regimes and regime != HALF_RATE:
        told = [
            f"{ours} against {theirs} {_verdict(apart)}"
            for ours, theirs in clock_pairs(schemes) + gap_rivals(schemes)
            if (apart := figures.get("skill difference", ours, HALF_RATE, RECORDED, against=theirs))
        ]
        if told:
            sentences.append("Trained at half the rate and judged at the full one: " + "; ".join(told) + ".")
    return sentences


def _ranking(results: Results, schemes: Sequence[SchemeSettings]) -> list[str]:
    figures, regime, settings = results.figures, results.regime, results.settings
    where = "On the log as recorded" if regime == RECORDED else f"Trained {regime} and judged on the log as recorded"
    skills = {s.name: figures.get("skill", s.name, regime, RECORDED) for s in schemes}
    known = {name: value for name, value in skills.items() if value is not None and value.value == value.value}
    if not known:
        return [f"{where}, no scheme has a skill."]
    best = max(known, key=lambda name: known[name].value)
    of = "" if settings.clock_measured else " of those that take the same from the stamps"
    sentences = [f"{where}, the largest mean skill{of} has {best}: {with_interval(known[best])}."]
    reference = settings.reference_name
    if reference not in known or len(known) == 1:
        return sentences
    groups: dict[str, list[str]] = {"better": [], "worse": [], "no difference shown": [], "no interval": []}
    for name in known:
        apart = figures.get("skill difference", name, regime, RECORDED, against=reference)
        if apart is not None:
            sign = "better" if apart.value > 0 else "worse"
            word = sign if apart.shown else "no difference shown" if apart.open else "no interval"
            groups[word].append(f"{name} ({with_interval(apart, plus=True)})")
    told = [f"{word}: {', '.join(names)}" for word, names in groups.items() if names]
    return [*sentences, f"Against {reference}, seed by seed: {'; '.join(told)}."] if told else sentences


def _pair(figures: Figures, conditions: Sequence[str], regime: str, ours: str, theirs: str) -> str:
    better, worse, neither = comparison(figures, conditions, regime, ours, theirs)
    told = [f"is better under {', '.join(better)}"] if better else []
    told += [f"is worse under {', '.join(worse)}"] if worse else []
    if neither:
        rest = ", ".join(neither) if len(neither) <= FEW else f"the other {len(neither)} conditions"
        told.append(f"shows no difference under {rest if better or worse else 'any condition'}")
    return f"{ours} against {theirs} " + (", and ".join(told) or "has no interval under any condition")


def _verdict(apart: Interval) -> str:
    sign = "is better" if apart.value > 0 else "is worse"
    word = sign if apart.shown else "shows no difference" if apart.open else "has no interval"
    return f"{word} ({with_interval(apart, plus=True)})"


def _limits(results: Results) -> list[str]:
    settings, frame, blocks = results.settings, results.figures.frame, results.blocks
    seeds = int(frame[(frame["quantity"] == "skill") & (frame["seed"] != ALL_SEEDS)]["seed"].nunique())
    intervals = frame[(frame["quantity"] == "skill difference") & frame["low"].notna()]
    logs = "this one" if len(results.facts["hashes"]) == 1 else "these"
    limits = [
        f"What this does not show: other robots, other logs than {logs}, "
        f"other budgets than {settings.max_steps} steps, or larger networks; the test split has {blocks} blocks of "
        f"{settings.block_s:g} s, and conditions made on a computer are no real faults."
    ]
    if blocks < FEWEST_BLOCKS:
        limits.append(
            f"Intervals need {FEWEST_BLOCKS} blocks of time or more, so there are none: judge on a longer log, or on "
            "shorter blocks (block_s) if errors that far apart are independent."
        )
    if seeds == 1:
        limits.append("One seed: how much trainings differ is unknown and not in the intervals.")
    elif seeds == 2:
        limits.append("Two seeds say little about how much trainings differ, so the intervals are wide.")
    if len(intervals) > 2:
        # Each pair stands there in both directions.
        limits.append(
            f"Of the {len(intervals) // 2} differences of skill in cells.csv about one interval in twenty leaves out 0 "
            "by chance: a single one proves nothing."
        )
    if not settings.clock_measured:
        limits.insert(
            0, "The stamps of this log were not measured by a clock, so nothing here speaks for or against time."
        )
    return limits
