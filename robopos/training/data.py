"""Logs as a Lightning data module: read once, columns on the device, windows by index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning import LightningDataModule

from robopos.errors import ConfigError, SequenceError
from robopos.logs import read_log
from robopos.sequences import (
    Batch,
    Normalization,
    SequenceDataset,
    SequenceSettings,
    SplitSettings,
    TokenColumns,
    WindowSampler,
    log_streams,
    resolve_layout,
)
from robopos.sequences.settings import require
from robopos.training.ages import AgedColumns

if TYPE_CHECKING:
    from robopos.training.module import SequenceModule

VALIDATION_WINDOWS = 2048
VALIDATION_BATCH = 256


class TrainingBatches:
    """One epoch of random windows. ``consumed`` counts batches over all epochs: it is the sampler's step."""

    def __init__(self, data: SequenceData, sampler: WindowSampler) -> None:
        self._data, self._sampler = data, sampler

    def __len__(self) -> int:
        return self._data.batches_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(len(self)):
            yield self._sampler.sample(self._data.consumed)
            self._data.consumed += 1


class AnchorBatches:
    """Windows that end with given tokens, in order."""

    def __init__(self, columns: TokenColumns, anchors: np.ndarray, length: int, batch_size: int) -> None:
        ends = torch.from_numpy(anchors).to(columns.values.device)
        self._columns, self._parts, self._length = columns, ends.split(batch_size), length

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        for ends in self._parts:
            yield self._columns.batch(ends, self._length)


class SequenceData(LightningDataModule):
    """Recorded logs for training.

    Args:
        logs: paths of MCAP files.
        sequence: streams, targets and horizons.
        split: shares of each log's time for validation and test.
        batch_size: windows of a training batch.
        batches_per_epoch: training batches between two validations.
        seed: of the order of windows.
    """

    def __init__(
        self,
        logs: list[str],
        sequence: SequenceSettings,
        split: SplitSettings = SplitSettings(),  # noqa: B008  frozen, and LightningCLI reads defaults here
        batch_size: int = 32,
        batches_per_epoch: int = 200,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require(len(logs) > 0, "data.logs", logs, "at least one path")
        require(batch_size >= 1, "data.batch_size", batch_size, "a number of windows >= 1")
        require(batches_per_epoch >= 1, "data.batches_per_epoch", batches_per_epoch, "a number of batches >= 1")
        self.logs, self.sequence, self.split = logs, sequence, split
        self.batch_size, self.batches_per_epoch, self.seed = batch_size, batches_per_epoch, seed
        self.consumed = 0
        self.read_s = 0.0
        self._dataset: SequenceDataset | None = None
        self._normalization: Normalization | None = None

    @property
    def dataset(self) -> SequenceDataset:
        """The read logs; reads them when first asked."""
        if self._dataset is None:
            started = time.perf_counter()
            read = [read_log(path, log_streams(self.sequence), clock=self.sequence.clock) for path in self.logs]
            self._dataset = SequenceDataset.build(read, resolve_layout(self.sequence, read[0]), self.split)
            self.read_s = time.perf_counter() - started
        return self._dataset

    @property
    def normalization(self) -> Normalization:
        """Statistics of the training split."""
        if self._normalization is None:
            self._normalization = self.dataset.fit_normalization()
        return self._normalization

    def use(self, dataset: SequenceDataset) -> SequenceData:
        """Take data that is already read (a comparison reads its logs once)."""
        self._dataset, self._normalization = dataset, None
        return self

    def setup(self, stage: str) -> None:
        """Read what is not read yet, so that an error comes before training starts."""
        _ = self.normalization

    def describe(self) -> dict[str, Any]:
        """What a bundle tells of its training data; plain types."""
        blocks = self.dataset.blocks
        return {
            "logs": list(self.logs),
            "split": {"validation": self.split.validation, "test": self.split.test},
            "tokens": {split: sum(b.stop - b.start for b in blocks if b.split == split) for split in _names(blocks)},
            "messages": dict(self.dataset.table.counts),
            "seed": self.seed,
        }

    def columns(self, split: str, device: torch.device | str) -> TokenColumns:
        """The columns of a split on a device."""
        return self.dataset.columns(self.normalization, split, device)

    def train_dataloader(self) -> TrainingBatches:
        module = self._module()
        columns = self.columns("train", module.device)
        if module.settings.max_input_age_s > 0:
            columns = AgedColumns(
                self.dataset,
                self.normalization,
                "train",
                module.device,
                max_age_s=module.settings.max_input_age_s,
                seed=self.seed,
            )
        sampler = WindowSampler(
            columns,
            length=module.settings.window,
            batch_size=self.batch_size,
            seed=self.seed,
            min_history=module.settings.history,
            rank=self.trainer.global_rank,
            ranks=self.trainer.world_size,
        )
        return TrainingBatches(self, sampler)

    def val_dataloader(self) -> AnchorBatches:
        module = self._module()
        columns = self.columns("validation", module.device)
        anchors = columns.anchors(module.settings.history)
        if not len(anchors):
            raise SequenceError(
                f"no run of the validation split is longer than the {module.settings.history} tokens of burn-in: "
                "shorten the model's context, or raise split.validation"
            )
        anchors = anchors[:: max(1, len(anchors) // VALIDATION_WINDOWS)]
        return AnchorBatches(columns, anchors, module.settings.window, VALIDATION_BATCH)

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.consumed = int(state_dict["consumed"])

    def _module(self) -> SequenceModule:
        if self.trainer is None:
            raise ConfigError("the data module gives batches to a Trainer; without one use SequenceDataset")
        return self.trainer.lightning_module  # type: ignore[return-value]


def _names(blocks: list[Any]) -> list[str]:
    return list(dict.fromkeys(block.split for block in blocks))
