"""Train and judge one cell of the grid."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robopos.arrays import Floats, Ints
from robopos.comparison.attention import attention_over_time
from robopos.comparison.cells import Cell, Sums, fingerprint, keep_cell
from robopos.comparison.costs import order_effects, serving_costs
from robopos.comparison.data import StudyData, View
from robopos.comparison.settings import CellKey
from robopos.errors import RoboposError, SequenceError
from robopos.model import Bundle, ModelSettings, SequenceTransformer, pick_device
from robopos.sequences import SequenceDataset, TokenColumns, difference
from robopos.training import Predictions, overall_skill, predict, score
from robopos.training.data import SequenceData
from robopos.training.fit import StepProgress, fit
from robopos.training.module import SequenceModule

TellWork = Callable[[int], None]
"""Is told the units of work done; a cell has ``work_of`` of them."""
BINS = 24  # of the picture of attention


def work_of(data: StudyData) -> int:
    """Units of work of one cell: training steps, and what judging takes beside them, about."""
    return _steps(data) + _judging(data) * len(data.conditions)


def make_cell(data: StudyData, key: CellKey, out: Path, tell: TellWork = lambda done: None) -> Cell:
    """Train, judge under every condition, and write the cell's folder.

    An error of the cell's own (a loss that is not finite, a scheme that does not fit) makes a failed cell.
    """
    started = time.perf_counter()
    print_of = fingerprint(data.settings, key, data.hashes)
    try:
        bundle, cell = _made(data, key, tell)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        cell = Cell(key, error=reason, seconds=time.perf_counter() - started)
        keep_cell(out, cell, print_of)
        return cell
    cell = replace(cell, seconds=time.perf_counter() - started)
    keep_cell(out, cell, print_of, bundle.save)
    return cell


def probe_seconds(data: StudyData, key: CellKey, steps: int = 10) -> float:
    """About how long a cell will take on this machine: a few steps and one condition are made and scaled up."""
    gap = data.gap(data.settings.variant(key.scheme))
    training, copies = data.training(key.regime, gap)
    view = data.view(data.conditions[0], gap)
    bundle, step_ms = _train(data, key, training, copies, steps, 1.0, 1.0, lambda done: None)
    started = time.perf_counter()
    judge(bundle, view)
    return (time.perf_counter() - started) * len(data.conditions) + _steps(data) * step_ms / 1e3


def _made(data: StudyData, key: CellKey, tell: TellWork) -> tuple[Bundle, Cell]:
    settings, variant = data.settings, data.settings.variant(key.scheme)
    gap = data.gap(variant)
    training, copies = data.training(key.regime, gap)
    scale, rate, before = _search(data, key, training, copies, tell)
    bundle, step_ms = _train(data, key, training, copies, settings.max_steps, scale, rate, lambda n: tell(before + n))
    views = {c.name: data.view(c, gap) for c in data.conditions}
    recorded = views[data.conditions[0].name]
    parameters = sum(p.numel() for p in bundle.network.parameters())
    costs: dict[str, Any] = {"parameters": parameters, "train_step_ms": step_ms}
    costs |= serving_costs(bundle, recorded.dataset, recorded.anchors)
    costs |= order_effects(bundle, recorded.dataset, recorded.anchors)
    if len(settings.search.trials) > 1:
        costs |= {"scale": scale, "learning_rate": rate * settings.optimizer.learning_rate}
    bundle.network.to(pick_device("auto"))
    sums, skipped = {}, {}
    for number, (name, view) in enumerate(views.items()):
        try:
            sums[name] = judge(bundle, view)
        except RoboposError as error:
            skipped[name] = str(error)
        tell(before + settings.max_steps + _judging(data) * (number + 1))
    pictures = _pictures(data, bundle, recorded, gap)
    bundle.network.cpu()
    return bundle, Cell(key, costs, sums, skipped, pictures)


def _steps(data: StudyData) -> int:
    settings = data.settings
    searched = settings.search.steps * len(settings.search.trials) if len(settings.search.trials) > 1 else 0
    return searched + settings.max_steps


def _judging(data: StudyData) -> int:
    return max(1, data.settings.max_steps // 40)


def _search(
    data: StudyData, key: CellKey, training: SequenceDataset, copies: list[SequenceDataset], tell: TellWork
) -> tuple[float, float, int]:
    """The scale and rate whose short training is best on the validation split, and the steps that took."""
    search = data.settings.search
    if len(search.trials) == 1:
        return *search.trials[0], 0
    best, found = -np.inf, search.trials[0]
    for number, (scale, rate) in enumerate(search.trials):
        bundle, _ = _train(data, key, training, copies, search.steps, scale, rate, lambda n: None)
        skill = overall_skill(score(bundle.layout, predict(bundle, training, "validation")))
        best, found = (skill, (scale, rate)) if skill > best else (best, found)
        tell(search.steps * (number + 1))
    return *found, search.steps * len(search.trials)


def _train(
    data: StudyData,
    key: CellKey,
    training: SequenceDataset,
    copies: list[SequenceDataset],
    steps: int,
    scale: float,
    rate: float,
    tell: TellWork,
) -> tuple[Bundle, float]:
    """A trained bundle on the CPU, and the median milliseconds of a step."""
    settings = data.settings
    source = SequenceData(
        data.files,
        settings.sequence,
        settings.split,
        batch_size=settings.batch_size,
        batches_per_epoch=steps,
        seed=key.seed,
        augment=settings.augment,
    ).use(training, copies)
    optimizer = replace(settings.optimizer, learning_rate=settings.optimizer.learning_rate * rate)
    module = SequenceModule(settings.variant(key.scheme).network(settings.network), optimizer)
    torch.manual_seed(key.seed)
    module.adopt(training.layout, source.normalization, training.median_interval_s() * scale)
    start_alike(module.network, data, settings.network, key.seed)
    at: list[float] = []

    def note(step: int, _: Any) -> None:
        at.append(time.perf_counter())
        tell(step)

    fit(module, source, max_steps=steps, seed=key.seed, callbacks=[StepProgress(note)])
    module.cpu()
    if not all(bool(torch.isfinite(p).all()) for p in module.network.parameters()):
        raise SequenceError("the training diverged: weights are not finite (lower optimizer.learning_rate)")
    told = source.describe() | {"steps": steps, "regime": key.regime}
    return module.bundle(told), float(np.median(np.diff(at))) * 1e3 if len(at) > 1 else 0.0


@torch.no_grad()
def start_alike(network: SequenceTransformer, data: StudyData, shared: ModelSettings, seed: int) -> None:
    """Give a network the initial weights of one without positions and gap, where shapes agree."""
    torch.manual_seed(seed)
    plain = replace(shared, positions="none", position_options={})
    common = SequenceTransformer(data.layout, plain).state_dict()
    own = network.state_dict()
    fitting = {n: t for n, t in common.items() if n in own and own[n].shape == t.shape}
    network.load_state_dict(fitting, strict=False)


def judge(bundle: Bundle, view: View) -> Sums:
    """The sums of one condition.

    Raises:
        RoboposError: the condition is impossible for this scheme (a table that ends), or has no anchor.
    """
    if not len(view.anchors):
        raise SequenceError("no anchor has enough history left")
    if view.condition.longer > 1:
        bundle = lengthened(bundle, view.condition.longer)
    predictions = predict(bundle, view.dataset, "test", anchors=view.anchors)
    return sum_blocks(bundle.layout.target_kinds, predictions, view.block)


def lengthened(bundle: Bundle, factor: int) -> Bundle:
    """The same weights under a longer band."""
    old = bundle.settings
    longer = replace(
        old,
        context=old.context * factor,
        context_s=None if old.context_s is None else old.context_s * factor,
        window=old.window * factor,
        burn_in=None if old.burn_in is None else old.burn_in * factor,
    )
    network = SequenceTransformer(bundle.layout, longer)
    network.load_state_dict(bundle.network.state_dict())
    device = next(bundle.network.parameters()).device
    return replace(bundle, settings=longer, network=network.to(device).eval())


def sum_blocks(kinds: tuple[str, ...], predictions: Predictions, block: Ints) -> Sums:
    """Squared errors (A, H, T) of model and simple predictors, summed over the anchors of each block of time."""
    labels, number = np.unique(block, return_inverse=True)
    scored = predictions.scored

    def total(values: Floats) -> Floats:
        sums: Floats = np.zeros((len(labels), *values.shape[1:]))
        np.add.at(sums, number, np.where(scored, values, 0.0))
        return sums.reshape(len(labels), -1)

    def error(values: Floats) -> Floats:
        return total(difference(kinds, values, predictions.truth) ** 2)

    return Sums(
        block=labels,
        model=error(predictions.values),
        hold=error(predictions.hold_last),
        move=error(predictions.constant_velocity),
        count=total(np.ones(scored.shape)),
    )


def _pictures(data: StudyData, bundle: Bundle, recorded: View, gap: bool) -> dict[str, NDArray[Any]]:
    dataset, anchors = data.trace(gap)
    predictions = predict(bundle, dataset, "test", anchors=anchors)
    shared = data.settings.network
    reach_s = shared.context * data.interval_s if shared.context_s is None else shared.context_s
    edges_s = np.linspace(0.0, reach_s, BINS + 1)
    columns = TokenColumns(
        recorded.dataset.table,
        bundle.normalization,
        recorded.dataset.of_split("test"),
        device=next(bundle.network.parameters()).device,
    )
    return {
        "trace_time_s": (predictions.reference_ns - predictions.reference_ns[0]) / 1e9,
        "trace_truth": predictions.truth,
        "trace_model": predictions.values,
        "trace_hold": predictions.hold_last,
        "attention_edges_s": edges_s,
        "attention": attention_over_time(bundle, columns, recorded.anchors, edges_s),
    }
