"""Train each scheme with each seed under one budget; judge all on the same anchors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robopos.comparison.conditions import AS_RECORDED, drop_name, dropped
from robopos.comparison.settings import StudySettings
from robopos.errors import SequenceError
from robopos.logs import read_log
from robopos.model import Bundle
from robopos.positions import build_positions
from robopos.sequences import SequenceDataset, TokenColumns, log_streams, resolve_layout
from robopos.sequences.tokens import Ints
from robopos.training import predict, score
from robopos.training.data import SequenceData
from robopos.training.fit import StepProgress, fit
from robopos.training.module import SequenceModule

DROP_SEED = 20_000  # of the messages dropped at test time: the same for every scheme and training seed


@dataclass(frozen=True)
class Cell:
    """One trained network's scores: rows of ``robopos.training.score`` with scheme, seed and condition."""

    scheme: str
    seed: int
    parameters: int
    train_s: float
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Condition:
    """The data as one condition shows it, and the anchors at which all are judged."""

    name: str
    dataset: SequenceDataset
    anchors: Ints


class Study:
    """A comparison; ``run`` yields its cells as they are done.

    Raises:
        RoboposError: a wrong scheme, log or setting, before any training.
    """

    def __init__(self, settings: StudySettings) -> None:
        self.settings = settings
        for scheme in settings.schemes:
            build_positions(scheme, dim=64, heads=4)  # an unknown name is an error now, not after an hour
        logs = [read_log(p, log_streams(settings.sequence), clock=settings.sequence.clock) for p in settings.logs]
        layout = resolve_layout(settings.sequence, logs[0])
        self.dataset = SequenceDataset.build(logs, layout, settings.split)
        self.conditions = self._conditions(
            {drop_name(share): dropped(logs, share, DROP_SEED) for share in settings.drops}
        )

    def _conditions(self, degraded: dict[str, list[Any]]) -> list[Condition]:
        normalization = self.dataset.fit_normalization()
        datasets = {AS_RECORDED: self.dataset} | {n: self.dataset.degraded(logs) for n, logs in degraded.items()}
        places, common = {}, None
        for name, dataset in datasets.items():
            columns = TokenColumns(dataset.table, normalization, dataset.of_split("test"))
            anchors = columns.anchors(self.settings.network.history)
            places[name] = self.dataset.locate(dataset.table)
            # The same messages under every condition: those that survive all of them, with enough history in each.
            here = places[name][anchors]
            common = here if common is None else np.intersect1d(common, here)
        if common is None or not len(common):
            raise SequenceError(
                f"no test anchor has {self.settings.network.history} tokens before it under every condition: "
                "shorten network.context, or raise split.test"
            )
        common = common[:: max(1, len(common) // self.settings.max_anchors)]
        return [Condition(name, dataset, np.searchsorted(places[name], common)) for name, dataset in datasets.items()]

    @property
    def cells(self) -> list[tuple[str, int]]:
        """The grid, seed by seed, so that an interrupted study has whole rounds."""
        return [(scheme, seed) for seed in self.settings.seeds for scheme in self.settings.schemes]

    def run_cell(self, scheme: str, seed: int, progress: Callable[[int], None] | None = None) -> Cell:
        """Train and judge one cell; ``progress`` is told the steps done."""
        settings = self.settings
        data = SequenceData(
            settings.logs,
            settings.sequence,
            settings.split,
            batch_size=settings.batch_size,
            batches_per_epoch=settings.max_steps,
            seed=seed,
        ).use(self.dataset)
        module = SequenceModule(replace(settings.network, positions=scheme), settings.optimizer)
        callbacks = [] if progress is None else [StepProgress(lambda step, _: progress(step))]
        started = time.perf_counter()
        fit(module, data, max_steps=settings.max_steps, seed=seed, callbacks=callbacks)
        train_s = time.perf_counter() - started
        bundle = module.bundle()
        rows = [
            {"scheme": scheme, "seed": seed, "condition": condition.name} | row
            for condition in self.conditions
            for row in self._judge(bundle, condition)
        ]
        parameters = sum(p.numel() for p in module.network.parameters())
        return Cell(scheme, seed, parameters, train_s, rows)

    def _judge(self, bundle: Bundle, condition: Condition) -> list[dict[str, Any]]:
        predictions = predict(bundle, condition.dataset, "test", anchors=condition.anchors)
        return score(bundle.layout, predictions)
