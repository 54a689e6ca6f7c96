"""Ways to compute the block step of a network, by the size of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from robopos.errors import ServingError
from robopos.model import Bundle, Ring, SequenceTransformer, Step, StepOutput, given_positions
from robopos.positions import Positions
from robopos.sequences import Tokens

BLOCK = 8
"""Tokens of a block where several wait; one alone, the common case, has a step of its own."""

EAGER_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
"""Any size costs nothing to have where nothing is compiled; a block of 64 costs about two single steps."""


def eager_steps(bundle: Bundle) -> dict[int, Step]:
    """The network itself."""
    return dict.fromkeys(EAGER_BLOCKS, bundle.network.step)


def compiled_steps(bundle: Bundle) -> dict[int, Step]:
    """The network through ``torch.compile``, one program for each size; the first calls take minutes."""
    return {size: torch.compile(bundle.network.step, dynamic=False, fullgraph=True) for size in (1, BLOCK)}


def graphed_steps(bundle: Bundle) -> dict[int, Step]:
    """The network as CUDA graphs, one for each size.

    Raises:
        ServingError: the network is not on a CUDA device.
    """
    if next(bundle.network.parameters()).device.type != "cuda":
        raise ServingError("step 'graph' is a CUDA graph: it needs a CUDA device")
    return {size: GraphStep(bundle.network) for size in (1, BLOCK)}


class GraphStep:
    """A step captured at its first call and replayed from then on, always with the ring of that call."""

    def __init__(self, network: SequenceTransformer) -> None:
        self._network = network
        self._captured: tuple[torch.cuda.CUDAGraph, Tokens, Ring, StepOutput] | None = None

    def __call__(self, tokens: Tokens, ring: Ring) -> StepOutput:
        if self._captured is None or self._captured[2].keys is not ring.keys:
            self._captured = self._capture(tokens, ring)
        graph, inputs, _, output = self._captured
        for mine, given in zip(_tensors(inputs), _tensors(tokens), strict=True):
            mine.copy_(given)
        graph.replay()
        return output

    def _capture(self, tokens: Tokens, ring: Ring) -> tuple[torch.cuda.CUDAGraph, Tokens, Ring, StepOutput]:
        values, measured, observed, index, time_ns, valid = (x.clone() for x in _tensors(tokens))
        inputs = Tokens(values, measured, observed, Positions(index, time_ns, valid))
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # libraries set themselves up before a capture
                self._network.step(inputs, ring)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._network.step(inputs, ring)
        return graph, inputs, ring, output


def _tensors(tokens: Tokens) -> list[Tensor]:
    return [tokens.values, tokens.measured, tokens.observed, *given_positions(tokens.positions)]


def exported_steps(
    paths: Sequence[str | Path], bundle: Bundle, device: torch.device, threads: int | None
) -> dict[int, Step]:
    """Steps from files; several files of different block sizes work together.

    Raises:
        ServingError: a file cannot serve this bundle, see `exported.load_step`.
    """
    from robopos.serving.exported import load_step

    loaded = dict(load_step(path, bundle, device, threads) for path in paths)
    return {size: loaded[size] for size in sorted(loaded)}


def size_for(sizes: Sequence[int], waiting: int) -> int:
    """The smallest block that holds all that waits, else the largest there is; ``sizes`` ascend."""
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


STEPS: dict[str, Callable[[Bundle], dict[int, Step]]] = {
    "eager": eager_steps,
    "compile": compiled_steps,
    "graph": graphed_steps,
}
