"""What the benchmarks share: cases that take turns at being timed, and figures with their targets."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class Figure(NamedTuple):
    """One line of a result; ``target`` such as ">= 3". It and ``reached`` are None where there is none."""

    name: str
    value: float
    unit: str
    target: str | None
    reached: bool | None


class Report:
    """Prints figures as they come and keeps them."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def add(
        self, name: str, value: float, unit: str = "", *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """One figure, and the target that it is held against, from above or from below."""
        target, reached = None, None
        if at_most is not None:
            target, reached = f"<= {at_most:g}", value <= at_most
        elif at_least is not None:
            target, reached = f">= {at_least:g}", value >= at_least
        self.figures.append(Figure(name, value, unit, target, reached))
        told = "" if target is None else f"{target} {'reached' if reached else 'NOT reached'}"
        print(f"{name:72} {value:12.5g} {unit:9} {told}", flush=True)

    def write_json(self, path: str | Path) -> None:
        """A list of {name, value, unit, target, reached}."""
        Path(path).write_text(json.dumps([figure._asdict() for figure in self.figures], indent=1) + "\n")

    def write_markdown(self, path: str | Path, title: str) -> None:
        """A table."""
        lines = [f"# {title}", "", "| figure | value | unit | target | reached |", "|---|---|---|---|---|"]
        for name, value, unit, target, reached in self.figures:
            told = {None: "", True: "yes", False: "no"}[reached]
            lines.append(f"| {name} | {value:.5g} | {unit} | {target or ''} | {told} |")
        Path(path).write_text("\n".join(lines) + "\n")


def parser(description: str, quick: str) -> argparse.ArgumentParser:
    """With ``--quick`` (its help is ``quick``) and ``--json``."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument(
        "--json", metavar="FILE", help="write the figures: a list of {name, value, unit, target, reached}"
    )
    return made


def in_turns(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 2,
    in_a_row: Mapping[str, int] = MappingProxyType({}),
    wait: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each call of each case. They take turns, so that a load from elsewhere meets them all.

    Args:
        warm_up: rounds before those that count.
        in_a_row: how often a round calls a case, where that is not once.
        wait: returns when a device has done all that it was given.
    """
    times_s: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warm_up + rounds):
        for name, case in cases.items():
            for _ in range(in_a_row.get(name, 1)):
                wait()
                started = time.perf_counter()
                case()
                wait()
                if turn >= warm_up:
                    times_s[name].append(time.perf_counter() - started)
    return times_s


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each case."""
    return {name: statistics.median(taken) for name, taken in times.items()}
