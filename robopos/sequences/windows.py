"""Windows of tokens, gathered by index from columns that live on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robopos.arrays import Floats, Ints
from robopos.errors import SequenceError
from robopos.positions import Positions
from robopos.sequences.features import Normalization
from robopos.sequences.splits import Block
from robopos.sequences.tokens import TokenTable


class Tokens(NamedTuple):
    """The input of the network.

    ``values`` (B, N, F) normalized features, 0 where not measured; ``measured`` (B, N, F) which were;
    ``observed`` (B, N, S) which streams the token carries; ``positions`` with (B, N) fields.
    """

    values: Tensor
    measured: Tensor
    observed: Tensor
    positions: Positions

    def to(self, device: torch.device | str) -> Tokens:
        """On another device."""
        return Tokens(
            self.values.to(device), self.measured.to(device), self.observed.to(device), self.positions.to(device)
        )


class Batch(NamedTuple):
    """Windows with what is to be predicted at each token.

    ``targets`` (B, N, H, T) normalized residuals to the base, 0 where masked; ``mask`` (B, N, H, T).
    """

    tokens: Tokens
    targets: Tensor
    mask: Tensor


class TokenColumns:
    """The columns of a token table as tensors; ``windows`` gathers from them, to one device.

    They live on that device, or in host memory (pinned for a GPU) where they are too large for it.

    Args:
        table: its n tokens.
        normalization: applied once, here.
        blocks: the blocks that windows stay in.
        residual: (n, H, T) targets minus base in units of their scale, NaN where the log cannot say; given where
            windows carry targets.
        device: where windows go.
        store: where the columns lie; ``None`` takes ``device``.
    """

    def __init__(
        self,
        table: TokenTable,
        normalization: Normalization,
        blocks: list[Block],
        residual: Floats | None = None,
        device: torch.device | str = "cpu",
        store: torch.device | str | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.store = self.device if store is None else torch.device(store)
        values, measured = normalization.apply(table.features, slice(None))
        start = np.arange(len(table))
        for block in blocks:
            start[block.start : block.stop] = block.start
        self.blocks = blocks
        self.values = self._keep(values)  # (n, F)
        self.measured = self._keep(measured)  # (n, F)
        self.carries = self._keep(table.carries)  # (n, S)
        self.time_ns = self._keep(table.time_ns)  # (n,)
        self.start = self._keep(start)  # (n,) first token that a window ending here may hold
        self.targets = self.mask = None
        if residual is not None:
            mask = np.isfinite(residual)
            self.mask = self._keep(mask)  # (n, H, T)
            self.targets = self._keep(np.where(mask, residual, 0.0).astype(np.float32))

    def _keep(self, column: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(column).to(self.store)
        return tensor.pin_memory() if self.store.type == "cpu" and self.device.type == "cuda" else tensor

    def _pick(self, column: Tensor, number: Tensor) -> Tensor:
        return column[number].to(self.device, non_blocking=True)

    def windows(self, ends: Tensor, length: int) -> tuple[Tokens, Tensor]:
        """The windows of ``length`` tokens that end with (and hold) tokens ``ends`` (B,).

        A window that would begin before its block is shorter: it is padded on the left, with ``valid`` false.

        Returns:
            the tokens, and their numbers (B, length), 0 where padded.
        """
        ends = ends.to(self.store)
        number = ends[:, None] + torch.arange(1 - length, 1, device=self.store)  # (B, N)
        valid = number >= self.start[ends][:, None]
        number = torch.where(valid, number, 0)
        there = valid.to(self.device)
        tokens = Tokens(
            values=self._pick(self.values, number) * there[..., None],
            measured=self._pick(self.measured, number) & there[..., None],
            observed=self._pick(self.carries, number) & there[..., None],
            positions=Positions(time_ns=self._pick(self.time_ns, number), valid=there),
        )
        return tokens, number

    def batch(self, ends: Tensor, length: int) -> Batch:
        """Windows with their targets; columns made without targets cannot give one."""
        if self.targets is None or self.mask is None:
            raise SequenceError("these columns were made without targets")
        tokens, number = self.windows(ends, length)
        valid = tokens.positions.valid
        assert valid is not None
        return Batch(tokens, self._pick(self.targets, number), self._pick(self.mask, number) & valid[..., None, None])

    def anchors(self, min_history: int) -> Ints:
        """Tokens that have at least ``min_history`` tokens before them in their block."""
        parts = [np.arange(b.start + min_history, b.stop) for b in self.blocks if b.stop - b.start > min_history]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class WindowSampler:
    """Random training windows; batch number ``step`` is the same whenever it is asked for.

    Args:
        columns: with targets; of several (degraded copies of the same data) each batch takes one.
        length: tokens of a window.
        batch_size: windows of a batch, on each rank.
        seed: of the order.
        min_history: tokens at the start of a window that have no loss; shorter blocks are left out.
        rank, ranks: ranks take disjoint rows of one global batch.

    Raises:
        SequenceError: no block is longer than ``min_history``.
    """

    def __init__(
        self,
        columns: Sequence[TokenColumns],
        length: int,
        batch_size: int,
        seed: int,
        min_history: int,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.columns, self.length, self.batch_size, self.seed = tuple(columns), length, batch_size, seed
        self.rank, self.ranks = rank, ranks
        self._ends = [self._ends_of(part.blocks, min_history) for part in self.columns]

    def _ends_of(self, blocks: list[Block], min_history: int) -> Tensor:
        ends = []
        for block in blocks:
            size = block.stop - block.start
            if size > min_history:
                # A block shorter than a window gives itself, whole.
                ends.append(np.arange(block.start + min(size, self.length) - 1, block.stop))
        if not ends:
            longest = max((b.stop - b.start for b in blocks), default=0)
            raise SequenceError(
                f"no gap-free run of the training split is longer than the {min_history} tokens of burn-in "
                f"(the longest has {longest}): shorten the model's context, or raise max_gap_s"
            )
        return torch.from_numpy(np.concatenate(ends))

    def sample(self, step: int) -> Batch:
        """The batch of a step."""
        generator = torch.Generator().manual_seed(step_seed(self.seed, step))
        copy = int(torch.randint(len(self.columns), (), generator=generator))
        ends = self._ends[copy]
        pick = torch.randint(len(ends), (self.ranks, self.batch_size), generator=generator)[self.rank]
        return self.columns[copy].batch(ends[pick], self.length)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """A seed of its own for each step and rank, the same in every process and after a resume."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
