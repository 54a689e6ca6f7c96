"""Logs with everything that training and evaluation ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from robopos.errors import SequenceError
from robopos.logs import Log
from robopos.sequences.features import Floats, Normalization
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.settings import SplitSettings
from robopos.sequences.splits import Block, split_blocks, whole_blocks
from robopos.sequences.targets import Baselines, read_baselines, read_targets
from robopos.sequences.tokens import Ints, TokenTable, tokenize
from robopos.sequences.windows import TokenColumns, fit_normalization


@dataclass(frozen=True)
class SequenceDataset:
    """Tokens, what is known at each, what is to be predicted from each, and the blocks they lie in."""

    layout: SequenceLayout
    table: TokenTable
    baselines: Baselines
    targets: Floats  # (n, H, T), NaN where the log cannot say
    blocks: list[Block]

    @classmethod
    def build(cls, logs: Sequence[Log], layout: SequenceLayout, split: SplitSettings | None = None) -> SequenceDataset:
        """From read logs; ``split=None`` takes each gap-free run whole, as split ``all``."""
        table = tokenize(logs, layout)
        blocks = whole_blocks(table) if split is None else split_blocks(table, layout, split)
        targets = read_targets(layout, table, table.reference_ns, table.segment, _stop_of(blocks, len(table)))
        return cls(layout, table, read_baselines(table), targets, blocks)

    def degraded(self, logs: Sequence[Log]) -> SequenceDataset:
        """What a robot would see of degraded logs (messages taken away), judged by the truth of this data.

        Blocks are those of this data; targets are read from it at the reference times that remain.
        """
        table = tokenize(logs, self.layout)
        place = self.locate(table)
        stop = _stop_of(self.blocks, len(self.table))[place]
        targets = read_targets(self.layout, self.table, table.reference_ns, self.table.segment[place], stop)
        blocks = []
        for block in self.blocks:
            start, end = np.searchsorted(place, [block.start, block.stop]).tolist()
            edges = np.flatnonzero(np.diff(table.segment[start:end])) + 1 + start
            bounds = [start, *edges.tolist(), end]
            blocks += [Block(block.split, a, b) for a, b in pairwise(bounds) if b > a]
        return SequenceDataset(self.layout, table, read_baselines(table), targets, blocks)

    def locate(self, table: TokenTable) -> Ints:
        """(n,) the number that each token of ``table``, of the same files, has in this data.

        Raises:
            SequenceError: a message of ``table`` is no token of this data.
        """
        numbers = {key: number for number, key in enumerate(zip(*_keys(self.table), strict=True))}
        try:
            return np.array([numbers[key] for key in zip(*_keys(table), strict=True)], np.int64)
        except KeyError:
            raise SequenceError("the degraded log has a message that is no token of the undegraded one") from None

    def of_split(self, split: str) -> list[Block]:
        """The blocks of one split."""
        return [block for block in self.blocks if block.split == split]

    def fit_normalization(self) -> Normalization:
        """Statistics of the training split alone."""
        return fit_normalization(self.layout, self.table, self.of_split("train"), self.baselines.base, self.targets)

    def columns(self, normalization: Normalization, split: str, device: torch.device | str = "cpu") -> TokenColumns:
        """The columns of one split's windows, with targets, on a device."""
        return TokenColumns(
            self.layout, self.table, normalization, self.of_split(split), self.baselines.base, self.targets, device
        )

    def median_interval_s(self, split: str = "train") -> float:
        """The median time between neighbouring tokens of a split (s); ties do not count."""
        steps = np.concatenate([np.diff(self.table.reference_ns[b.start : b.stop]) for b in self.of_split(split)])
        steps = steps[steps > 0]
        return float(np.median(steps)) / 1e9 if len(steps) else 1.0


def _keys(table: TokenTable) -> tuple[list[int], list[int]]:
    """A message's name: its log, and its place in the file."""
    return table.log.tolist(), table.order.tolist()


def _stop_of(blocks: list[Block], count: int) -> Ints:
    """The end of each token's block, (n,); tokens of no block are in no window, so theirs does not matter."""
    stop = np.zeros(count, np.int64)
    for block in blocks:
        stop[block.start : block.stop] = block.stop
    return stop
