"""What a scheme costs: parameters, a step of serving, memory, and the history that it buys."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from robopos.arrays import Ints
from robopos.model import Bundle, as_function, pick_mode
from robopos.positions import Positions
from robopos.positions.diagnostics import shuffle_effect, stretch_effect
from robopos.sequences import SequenceDataset, TokenColumns
from robopos.serving import intra_op_threads

REPEATS, WARM_UP = 30, 5
WINDOWS = 16


@torch.no_grad()
def serving_costs(bundle: Bundle, dataset: SequenceDataset, anchors: Ints) -> dict[str, Any]:
    """Mode, milliseconds of one prediction (one token, one CPU thread, median), and bytes of state.

    The network must be on the CPU, where robots that have no GPU serve it.
    """
    network, settings = bundle.network, bundle.settings
    mode = pick_mode(network.positions, None)
    columns = TokenColumns(dataset.table, bundle.normalization, dataset.of_split("test"))
    tokens, _ = columns.windows(torch.from_numpy(anchors[-1:]), settings.window)
    if mode == "window":
        held = [*tokens[:3], tokens.positions.time_ns, tokens.positions.valid]

        def step() -> None:
            network.last(tokens)
    else:
        state = network.start()
        assert tokens.positions.time_ns is not None
        row = tokens._replace(positions=Positions(time_ns=tokens.positions.time_ns[0]))
        state.absorb(network.step, row, settings.window)
        one = tokens._replace(
            values=tokens.values[:, -1:],
            measured=tokens.measured[:, -1:],
            observed=tokens.observed[:, -1:],
            positions=Positions(time_ns=tokens.positions.time_ns[0, -1:]),
        )
        held = list(state.ring)

        def step() -> None:
            network.predict(state.absorb(network.step, one, 1)[:, -1:])

    memory = sum(tensor.numel() * tensor.element_size() for tensor in held if tensor is not None)
    with intra_op_threads(1):
        step_ms = _median_ms(step)
    return {"mode": mode, "serving_step_ms": step_ms, "state_bytes": memory} | history(bundle, dataset, anchors)


def history(bundle: Bundle, dataset: SequenceDataset, anchors: Ints) -> dict[str, float]:
    """What a prediction sees, medians over anchors: tokens and seconds of one band, and tokens through all layers."""
    settings, table = bundle.settings, dataset.table
    start = np.arange(len(table))
    for block in dataset.of_split("test"):
        start[block.start : block.stop] = block.start
    number = anchors[:, None] - np.arange(settings.context)  # (A, context)
    inside = number >= start[anchors][:, None]
    age_ns = table.time_ns[anchors][:, None] - table.time_ns[np.maximum(number, 0)]
    if settings.context_s is not None:
        inside &= age_ns <= settings.context_s * 1e9
    seen = np.median(inside.sum(1))
    reach = len(bundle.network.blocks) * (seen - 1) + 1
    if pick_mode(bundle.network.positions, None) == "window":
        reach = min(reach, settings.window)
    return {
        "band_tokens": float(seen),
        "band_s": float(np.median(np.where(inside, age_ns, 0).max(1)) / 1e9),
        "reach_tokens": float(reach),
    }


@torch.no_grad()
def order_effects(bundle: Bundle, dataset: SequenceDataset, anchors: Ints) -> dict[str, float]:
    """How much the last output changes when the tokens before it change places, and when time runs at half speed.

    Of the output's own size: 0 is nothing. Windows are as long as the context.
    """
    length = bundle.settings.context
    if length < 3:
        return {}
    columns = TokenColumns(dataset.table, bundle.normalization, dataset.of_split("test"))
    start = columns.start.numpy()
    whole = anchors[anchors - start[anchors] >= length - 1]
    tokens, _ = columns.windows(torch.from_numpy(whole[:: max(1, len(whole) // WINDOWS)][:WINDOWS]), length)
    network, x, positions = as_function(bundle, tokens)
    shuffled, stretched = shuffle_effect(network, x, positions), stretch_effect(network, x, positions)
    return {"shuffle_effect": shuffled, "stretch_effect": stretched}


def _median_ms(step: Callable[[], None]) -> float:
    took = []
    for _ in range(WARM_UP + REPEATS):
        started = time.perf_counter()
        step()
        took.append(time.perf_counter() - started)
    return float(np.median(took[WARM_UP:])) * 1e3
