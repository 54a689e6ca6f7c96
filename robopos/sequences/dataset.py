"""Logs with everything that training and evaluation ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from robopos.arrays import Floats, Ints
from robopos.errors import SequenceError
from robopos.sequences.features import Normalization, fit_normalization, with_center
from robopos.sequences.geometry import difference
from robopos.sequences.layout import SequenceLayout
from robopos.sequences.settings import SplitSettings
from robopos.sequences.splits import Block, split_blocks, whole_blocks
from robopos.sequences.targets import Baselines, read_baselines, read_targets
from robopos.sequences.tokens import TokenTable, choose_tokens, make_tokens, read_messages
from robopos.sequences.windows import TokenColumns

if TYPE_CHECKING:
    from robopos.logs import Log


@dataclass(frozen=True)
class SequenceDataset:
    """Tokens, what is known at each, what is to be predicted from each, and the blocks they lie in.

    ``messages`` are all that was read, with blocks ``message_blocks`` in their numbers; ``table`` the tokens among
    them, of numbers ``chosen`` (n,), to which ``baselines``, ``targets`` (n, H, T; NaN where the log cannot say) and
    ``blocks`` belong.
    """

    layout: SequenceLayout
    messages: TokenTable
    message_blocks: list[Block]
    chosen: Ints
    table: TokenTable
    baselines: Baselines
    targets: Floats
    blocks: list[Block]

    @classmethod
    def build(cls, logs: Sequence[Log], layout: SequenceLayout, split: SplitSettings | None = None) -> SequenceDataset:
        """From read logs; ``split=None`` takes each gap-free run whole, as split ``all``."""
        messages = read_messages(logs, layout)
        blocks = whole_blocks(messages) if split is None else split_blocks(messages, layout, split)
        stop = _stop_of(blocks, len(messages))
        return cls._made(layout, messages, blocks, messages, messages.segment, stop)

    def degraded(self, logs: Sequence[Log]) -> SequenceDataset:
        """What a robot would see of degraded logs (messages taken away), judged by the truth of this data.

        Blocks are those of this data; targets are read from it at the reference times that remain.
        """
        messages = read_messages(logs, self.layout)
        place = _locate(self.messages, messages)
        blocks = []
        for block in self.message_blocks:
            start, end = np.searchsorted(place, [block.start, block.stop]).tolist()
            edges = np.flatnonzero(np.diff(messages.segment[start:end])) + 1 + start
            blocks += [Block(block.split, a, b) for a, b in pairwise([start, *edges.tolist(), end]) if b > a]
        stop = _stop_of(self.message_blocks, len(self.messages))[place]
        return self._made(self.layout, messages, blocks, self.messages, self.messages.segment[place], stop)

    @classmethod
    def _made(
        cls,
        layout: SequenceLayout,
        messages: TokenTable,
        message_blocks: list[Block],
        truth: TokenTable,
        truth_segment: Ints,
        truth_stop: Ints,
    ) -> SequenceDataset:
        chosen = choose_tokens(messages, layout)
        table = make_tokens(messages, layout, chosen)
        targets = read_targets(layout, truth, table.reference_ns, truth_segment[chosen], truth_stop[chosen])
        blocks = []
        for block in message_blocks:
            start, stop = np.searchsorted(chosen, [block.start, block.stop]).tolist()
            blocks += [Block(block.split, start, stop)] if stop > start else []
        baselines = read_baselines(layout, messages).take(chosen)
        return cls(layout, messages, message_blocks, chosen, table, baselines, targets, blocks)

    def locate(self, table: TokenTable) -> Ints:
        """(n,) the number that each token of ``table``, of the same files, has in this data's table.

        Raises:
            SequenceError: a token of ``table`` is no token of this data.
        """
        return _locate(self.table, table)

    def of_split(self, split: str) -> list[Block]:
        """The blocks of one split."""
        return [block for block in self.blocks if block.split == split]

    def fit_normalization(self) -> Normalization:
        """Statistics of the training split alone."""
        tokens = _numbers(self.of_split("train"))
        messages = _numbers([block for block in self.message_blocks if block.split == "train"])
        return fit_normalization(
            self.layout,
            self.table.features[tokens],
            self.messages.observed[messages],
            self.baselines.base[tokens],
            self.targets[tokens],
        )

    def targets_after(self, age_ns: Ints) -> Floats:
        """(n, H, T) the targets if horizons counted from so long (n,) after each token's reference time."""
        stop = _stop_of(self.message_blocks, len(self.messages))[self.chosen]
        return read_targets(self.layout, self.messages, self.table.reference_ns + age_ns, self.table.segment, stop)

    def base(self, normalization: Normalization) -> Floats:
        """(n, T) what predictions count from."""
        return with_center(self.layout, self.baselines.base, normalization.center)

    def columns(
        self,
        normalization: Normalization,
        split: str,
        device: torch.device | str = "cpu",
        store: torch.device | str | None = None,
    ) -> TokenColumns:
        """The columns of one split's windows, with targets, for a device."""
        residual = difference(self.layout.target_kinds, self.targets, self.base(normalization)[:, None])
        residual /= normalization.residual_scale
        return TokenColumns(self.table, normalization, self.of_split(split), residual, device, store)

    def median_interval_s(self, split: str = "train") -> float:
        """The median time between neighbouring tokens of a split (s); ties do not count."""
        steps = np.concatenate([np.diff(self.table.reference_ns[b.start : b.stop]) for b in self.of_split(split)])
        steps = steps[steps > 0]
        return float(np.median(steps)) / 1e9 if len(steps) else 1.0


def _numbers(blocks: list[Block]) -> Ints:
    """The numbers in blocks, one after the other."""
    return np.concatenate([np.arange(block.start, block.stop) for block in blocks])


def _locate(ours: TokenTable, theirs: TokenTable) -> Ints:
    """(n,) the number in ``ours`` of each row of ``theirs``, by log and place in the file."""
    numbers = {key: n for n, key in enumerate(zip(ours.log.tolist(), ours.order.tolist(), strict=True))}
    try:
        return np.array(
            [numbers[key] for key in zip(theirs.log.tolist(), theirs.order.tolist(), strict=True)], np.int64
        )
    except KeyError:
        raise SequenceError("the degraded log has a message that is no token of the undegraded one") from None


def _stop_of(blocks: list[Block], count: int) -> Ints:
    """The end of each message's block, (n,); those of no block are in no window, so theirs does not matter."""
    stop = np.zeros(count, np.int64)
    for block in blocks:
        stop[block.start : block.stop] = block.stop
    return stop
