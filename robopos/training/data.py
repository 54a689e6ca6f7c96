"""Logs as a Lightning data module: read once, columns on the device, windows by index."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning import LightningDataModule, Trainer

from robopos.arrays import Ints
from robopos.errors import ConfigError, SequenceError
from robopos.logs import ON_DAMAGE, OnDamage, read_logs
from robopos.sequences import (
    Batch,
    Block,
    Normalization,
    SequenceDataset,
    SequenceSettings,
    SplitSettings,
    TokenColumns,
    WindowSampler,
    log_streams,
    resolve_layout,
)
from robopos.sequences.degrade import AugmentSettings
from robopos.settings import require
from robopos.training.ages import AgedColumns

if TYPE_CHECKING:
    from robopos.training.module import SequenceModule

MEMORY = ("auto", "device", "host")
VALIDATION_TOKENS = 2**17  # in the windows of one validation, so that it costs little beside an epoch
VALIDATION_BATCH = 256


class TrainingBatches:
    """One epoch of random windows. ``consumed`` counts batches over all epochs: it is the sampler's step."""

    def __init__(self, data: SequenceData, sampler: WindowSampler) -> None:
        self._data, self._sampler = data, sampler

    def __len__(self) -> int:
        return self._data.batches_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        # After a resume in the middle of an epoch, what is left of it.
        for _ in range(len(self) - self._data.consumed % len(self)):
            self._data.consumed += 1
            yield self._sampler.sample(self._data.consumed - 1)


class AnchorBatches:
    """Windows that end with given tokens, in order."""

    def __init__(self, columns: TokenColumns, anchors: Ints, length: int, batch_size: int) -> None:
        self._columns, self._parts, self._length = columns, torch.split(torch.from_numpy(anchors), batch_size), length

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        for ends in self._parts:
            yield self._columns.batch(ends, self._length)


class SequenceData(LightningDataModule):
    """Recorded logs for training.

    Args:
        logs: paths of logs: MCAP files, rosbag2 folders, folders of them, or patterns; read in parallel.
        sequence: streams, targets and horizons.
        split: what is kept for validation and test: shares of each log's time, or whole logs.
        batch_size: windows of a training batch.
        batches_per_epoch: training batches between two validations.
        seed: of the order of windows, and of degraded copies.
        augment: degraded copies of the training logs, off by default.
        memory: where the columns lie: ``device``, ``host`` (pinned, for data too large for the GPU), or ``auto``: on
            the device where they take less than half of its free memory.
        on_damage: ``error`` stops at a damaged log; ``skip`` takes what can be read, and leaves out a log that cannot.
    """

    def __init__(
        self,
        logs: list[str],
        sequence: SequenceSettings,
        split: SplitSettings = SplitSettings(),  # noqa: B008  frozen, and LightningCLI reads defaults here
        batch_size: int = 32,
        batches_per_epoch: int = 200,
        seed: int = 0,
        augment: AugmentSettings = AugmentSettings(),  # noqa: B008
        memory: str = "auto",
        on_damage: OnDamage = "error",
    ) -> None:
        super().__init__()
        require(len(logs) > 0, "data.logs", logs, "at least one path")
        require(batch_size >= 1, "data.batch_size", batch_size, "a number of windows >= 1")
        require(batches_per_epoch >= 1, "data.batches_per_epoch", batches_per_epoch, "a number of batches >= 1")
        require(seed >= 0, "data.seed", seed, "a whole number >= 0")
        require(memory in MEMORY, "data.memory", memory, f"one of {', '.join(MEMORY)}")
        self.logs, self.sequence, self.split = logs, sequence, split
        require(on_damage in ON_DAMAGE, "data.on_damage", on_damage, f"one of {', '.join(ON_DAMAGE)}")
        self.augment, self.memory, self.on_damage = augment, memory, on_damage
        self.notes: list[str] = []  # what had to be said about the logs
        self.batch_size, self.batches_per_epoch, self.seed = batch_size, batches_per_epoch, seed
        self.consumed = 0
        self.read_s = 0.0
        self._dataset: SequenceDataset | None = None
        self._normalization: Normalization | None = None
        self._copies: list[SequenceDataset] = []
        self._paths = list(logs)

    @property
    def dataset(self) -> SequenceDataset:
        """The read logs; reads them when first asked."""
        if self._dataset is None:
            started = time.perf_counter()
            found = read_logs(
                self.logs, log_streams(self.sequence), clock=self.sequence.clock, on_damage=self.on_damage
            )
            self.notes = [*found.refused, *(warning for log in found.logs for warning in log.warnings)]
            read = found.logs
            if not read:
                raise SequenceError(f"data.logs: none of {len(found.refused)} logs can be read: {found.refused[0]}")
            self._paths = [str(path) for log in read for path in log.paths]
            self._dataset = SequenceDataset.build(read, resolve_layout(self.sequence, read[0]), self.split)
            generator = np.random.default_rng(self.seed)
            self._copies = [
                self._dataset.degraded([self.augment.degrade(log, generator) for log in read])
                for _ in range(self.augment.copies)
            ]
            self.read_s = time.perf_counter() - started
        return self._dataset

    @property
    def normalization(self) -> Normalization:
        """Statistics of the training split."""
        if self._normalization is None:
            self._normalization = self.dataset.fit_normalization()
        return self._normalization

    def use(self, dataset: SequenceDataset, copies: Sequence[SequenceDataset] = ()) -> SequenceData:
        """Take data that is already read, with its degraded copies (a comparison reads its logs once)."""
        self._dataset, self._normalization, self._copies = dataset, None, list(copies)
        return self

    def setup(self, stage: str) -> None:
        """Read what is not read yet, so that an error comes before training starts."""
        _ = self.normalization

    def describe(self) -> dict[str, Any]:
        """What a bundle tells of its training data; plain types."""
        blocks = self.dataset.blocks
        return {
            "logs": self._paths,
            "split": asdict(self.split),
            "tokens": {split: sum(b.stop - b.start for b in blocks if b.split == split) for split in _names(blocks)},
            "messages": dict(self.dataset.table.counts),
            "seed": self.seed,
            "augment": asdict(self.augment),
        }

    def columns(self, dataset: SequenceDataset, split: str, device: torch.device) -> TokenColumns:
        """The columns of a split for a device, without ages."""
        return dataset.columns(self.normalization, split, device, self._store(dataset, device))

    def _store(self, dataset: SequenceDataset, device: torch.device) -> torch.device:
        """Where the columns of a dataset lie."""
        host = torch.device("cpu")
        if self.memory != "auto" or device.type != "cuda":
            return host if self.memory == "host" else device
        free, _ = torch.cuda.mem_get_info(device)
        table = dataset.table
        each = table.features.shape[1] * 5 + table.carries.shape[1] + dataset.targets[:1].size * 5 + 16
        return device if len(table) * each * (1 + self.augment.copies) < free / 2 else host

    def train_dataloader(self) -> TrainingBatches:
        trainer, module = self._trained()
        age_s, device = module.settings.max_input_age_s, module.device
        columns: list[TokenColumns] = []
        for number, dataset in enumerate([self.dataset, *self._copies]):
            if age_s > 0:
                store, seed = self._store(dataset, device), self.seed + number
                columns.append(AgedColumns(dataset, self.normalization, "train", device, store, age_s, seed))
            else:
                columns.append(self.columns(dataset, "train", device))
        sampler = WindowSampler(
            columns,
            length=module.settings.window,
            batch_size=self.batch_size,
            seed=self.seed,
            min_history=module.settings.history,
            rank=trainer.global_rank,
            ranks=trainer.world_size,
        )
        return TrainingBatches(self, sampler)

    def val_dataloader(self) -> AnchorBatches:
        trainer, module = self._trained()
        columns = self.columns(self.dataset, "validation", module.device)
        anchors = columns.anchors(module.settings.history)
        if not len(anchors):
            raise SequenceError(
                f"no run of the validation split is longer than the {module.settings.history} tokens of burn-in: "
                "shorten the model's context, or raise split.validation"
            )
        most = max(VALIDATION_BATCH, VALIDATION_TOKENS // module.settings.window)
        anchors = anchors[:: max(1, len(anchors) // most)]
        anchors = anchors[trainer.global_rank :: trainer.world_size]
        return AnchorBatches(columns, anchors, module.settings.window, VALIDATION_BATCH)

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.consumed = int(state_dict["consumed"])

    def _trained(self) -> tuple[Trainer, SequenceModule]:
        """Who trains on this data."""
        if self.trainer is None:
            raise ConfigError("the data module gives batches to a Trainer; without one use SequenceDataset")
        return self.trainer, self.trainer.lightning_module  # type: ignore[return-value]


def _names(blocks: list[Block]) -> list[str]:
    return list(dict.fromkeys(block.split for block in blocks))
