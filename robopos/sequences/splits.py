"""Blocks of tokens that windows never leave: gap-free runs, cut into training, validation and test by time."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from robopos.arrays import Ints
from robopos.errors import SequenceError
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.settings import SplitSettings
from robopos.sequences.tokens import TokenTable

SPLITS = ("train", "validation", "test")


class Block(NamedTuple):
    """Tokens ``start`` to ``stop`` (not included) of one segment, all of one split."""

    split: str
    start: int
    stop: int


def guard_s(layout: SequenceLayout) -> float:
    """The time left unused before a later split: the furthest horizon and the widest interpolation bracket."""
    return max(layout.horizons_s) + max(layout.streams[s].max_interpolation_s for s, _ in layout.targets)


def whole_blocks(table: TokenTable) -> list[Block]:
    """Each segment as one block (evaluation of a log that no part of was trained on)."""
    return _cut(np.zeros(len(table), np.int64), table, ("all",))


def split_blocks(table: TokenTable, layout: SequenceLayout, split: SplitSettings) -> list[Block]:
    """Blocks of each split, by time or by log.

    By time, the tokens of the guard between two splits belong to none; between logs no guard is needed.

    Raises:
        SequenceError: a split has no token.
    """
    label = _by_log(table, split) if split.by == "log" else _by_time(table, layout, split)
    for number, name in enumerate(SPLITS):
        if not (label == number).any():
            raise SequenceError(f"the {name} split has no token: {_too_short(layout, split)}")
    return _cut(label, table, SPLITS)


def _too_short(layout: SequenceLayout, split: SplitSettings) -> str:
    if split.by == "log":
        return "its logs have none"
    furthest = max(layout.horizons_s)
    return (
        f"the log is too short for its share; each later split gives up {guard_s(layout):g} s as a guard, the furthest "
        f"horizon of {furthest:g} s and {guard_s(layout) - furthest:g} s of interpolation: shorten horizons_s, "
        "or give a longer log"
    )


def _by_time(table: TokenTable, layout: SequenceLayout, split: SplitSettings) -> Ints:
    label = np.full(len(table), -1, np.int64)
    guard_ns = round(guard_s(layout) * 1e9)
    for log in np.unique(table.log):
        tokens = np.flatnonzero(table.log == log)
        arrival_ns = table.arrival_ns[tokens]
        first, last = arrival_ns.min(), arrival_ns.max()
        shares = (0.0, 1.0 - split.validation - split.test, 1.0 - split.test)
        cuts = [first + round(float(last - first) * share) for share in shares]
        part = np.searchsorted(np.asarray(cuts[1:]), arrival_ns, side="right")
        in_guard = (part > 0) & (arrival_ns - np.asarray(cuts)[part] < guard_ns)
        label[tokens] = np.where(in_guard, -1, part)
    return label


def _by_log(table: TokenTable, split: SplitSettings) -> Ints:
    logs = int(table.log.max()) + 1
    if logs < len(SPLITS):
        raise SequenceError(f"split.by is 'log' with {logs} logs: it needs at least {len(SPLITS)}, or take 'time'")
    test = max(1, round(split.test * logs))
    validation = min(max(1, round(split.validation * logs)), logs - test - 1)
    return np.searchsorted([logs - test - validation, logs - test], table.log, side="right")


def _cut(label: Ints, table: TokenTable, names: tuple[str, ...]) -> list[Block]:
    edges = np.flatnonzero((np.diff(label) != 0) | (np.diff(table.segment) != 0)) + 1
    bounds = [0, *edges.tolist(), len(table)]
    return [
        Block(names[label[start]], start, stop)
        for start, stop in pairwise(bounds)
        if stop > start and label[start] >= 0
    ]
