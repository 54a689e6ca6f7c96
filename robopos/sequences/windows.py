"""Windows of tokens, gathered by index from columns that live on the device."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robopos.errors import SequenceError
from robopos.positions import Positions
from robopos.sequences.arrays import Floats, Ints
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
        positions = Positions(*(None if field is None else field.to(device) for field in self.positions))
        return Tokens(self.values.to(device), self.measured.to(device), self.observed.to(device), positions)


class Batch(NamedTuple):
    """Windows with what is to be predicted at each token.

    ``targets`` (B, N, H, T) normalized residuals to the base, 0 where masked; ``mask`` (B, N, H, T).
    """

    tokens: Tokens
    targets: Tensor
    mask: Tensor


class TokenColumns:
    """The columns of a token table as tensors on one device; ``windows`` gathers from them.

    Args:
        table: its n tokens.
        normalization: applied once, here.
        blocks: the blocks that windows stay in.
        residual: (n, H, T) targets minus base in units of their scale, NaN where the log cannot say; given where
            windows carry targets.
    """

    def __init__(
        self,
        table: TokenTable,
        normalization: Normalization,
        blocks: list[Block],
        residual: Floats | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        values, measured = normalization.apply(table.features, slice(None))
        start = np.arange(len(table))
        for block in blocks:
            start[block.start : block.stop] = block.start
        self.blocks = blocks
        self.values = torch.from_numpy(values).to(device)  # (n, F)
        self.measured = torch.from_numpy(measured).to(device)  # (n, F)
        self.carries = torch.from_numpy(table.carries).to(device)  # (n, S)
        self.time_ns = torch.from_numpy(table.time_ns).to(device)  # (n,)
        self.start = torch.from_numpy(start).to(device)  # (n,) first token that a window ending here may hold
        self.targets = self.mask = None
        if residual is not None:
            mask = np.isfinite(residual)
            self.mask = torch.from_numpy(mask).to(device)  # (n, H, T)
            self.targets = torch.from_numpy(np.where(mask, residual, 0.0).astype(np.float32)).to(device)

    def windows(self, ends: Tensor, length: int) -> tuple[Tokens, Tensor]:
        """The windows of ``length`` tokens that end with (and hold) tokens ``ends`` (B,).

        A window that would begin before its block is shorter: it is padded on the left, with ``valid`` false.

        Returns:
            the tokens, and their numbers (B, length), 0 where padded.
        """
        number = ends[:, None] + torch.arange(1 - length, 1, device=ends.device)  # (B, N)
        valid = number >= self.start[ends][:, None]
        number = torch.where(valid, number, 0)
        tokens = Tokens(
            values=self.values[number] * valid[..., None],
            measured=self.measured[number] & valid[..., None],
            observed=self.carries[number] & valid[..., None],
            positions=Positions(time_ns=self.time_ns[number], valid=valid),
        )
        return tokens, number

    def batch(self, ends: Tensor, length: int) -> Batch:
        """Windows with their targets; columns made without targets cannot give one."""
        if self.targets is None or self.mask is None:
            raise SequenceError("these columns were made without targets")
        tokens, number = self.windows(ends, length)
        valid = tokens.positions.valid
        return Batch(tokens, self.targets[number], self.mask[number] & valid[..., None, None])

    def anchors(self, min_history: int) -> Ints:
        """Tokens that have at least ``min_history`` tokens before them in their block."""
        parts = [np.arange(b.start + min_history, b.stop) for b in self.blocks if b.stop - b.start > min_history]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class WindowSampler:
    """Random training windows; batch number ``step`` is the same whenever it is asked for.

    Args:
        columns: with targets.
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
        columns: TokenColumns,
        length: int,
        batch_size: int,
        seed: int,
        min_history: int,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.columns, self.length, self.batch_size, self.seed = columns, length, batch_size, seed
        self.rank, self.ranks = rank, ranks
        ends = []
        for block in columns.blocks:
            size = block.stop - block.start
            if size > min_history:
                # A block shorter than a window gives itself, whole.
                ends.append(np.arange(block.start + min(size, length) - 1, block.stop))
        if not ends:
            longest = max((b.stop - b.start for b in columns.blocks), default=0)
            raise SequenceError(
                f"no gap-free run of the training split is longer than the {min_history} tokens of burn-in "
                f"(the longest has {longest}): shorten the model's context, or raise max_gap_s"
            )
        self._ends = torch.from_numpy(np.concatenate(ends))

    def __len__(self) -> int:
        """Windows that there are."""
        return len(self._ends)

    def sample(self, step: int) -> Batch:
        """The batch of a step."""
        digest = hashlib.blake2b(f"{self.seed}/{step}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        pick = torch.randint(len(self._ends), (self.ranks, self.batch_size), generator=generator)[self.rank]
        return self.columns.batch(self._ends[pick].to(self.columns.values.device), self.length)
