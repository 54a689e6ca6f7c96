"""Ways to compute the block step of a network: eager, compiled, or an exported file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from robopos.model import Ring, SequenceTransformer, StepOutput
from robopos.sequences import Tokens

BLOCK = 8


class BlockStep(Protocol):
    """A step that takes blocks of fixed sizes."""

    sizes: tuple[int, ...]
    """The sizes of a block, ascending; fewer tokens are padded."""

    def __call__(self, tokens: Tokens, ring: Ring) -> StepOutput: ...


class EagerStep:
    """The network itself. One token alone is the common case and has a size of its own."""

    sizes = (1, BLOCK)

    def __init__(self, network: SequenceTransformer) -> None:
        self._network = network

    def __call__(self, tokens: Tokens, ring: Ring) -> StepOutput:
        return self._network.step(tokens, ring)


def size_for(sizes: tuple[int, ...], waiting: int) -> int:
    """The smallest block that holds all that waits, else the largest there is."""
    return next((size for size in sizes if size >= waiting), sizes[-1])


@contextmanager
def intra_op_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads inside; ``None`` changes nothing."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
