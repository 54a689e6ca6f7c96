"""The network as a Lightning module."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from robopos.errors import ConfigError
from robopos.model import Bundle, ModelSettings, SequenceTransformer, fill_position_options, loss_of
from robopos.sequences import Batch, Normalization, SequenceLayout, step_seed
from robopos.settings import from_mapping, require
from robopos.training.ages import AgedBatch

if TYPE_CHECKING:
    from robopos.training.data import SequenceData

WARM_UP = 3  # steps in which a compiled training may compile


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW with a linear warm-up, then a cosine to a tenth.

    Args:
        learning_rate: at its peak.
        weight_decay: of matrices; vectors (norms, biases) have none.
        warmup_steps: steps of the linear rise.
    """

    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup_steps: int = 50

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "model.optimizer.learning_rate", self.learning_rate, "> 0")
        require(self.weight_decay >= 0, "model.optimizer.weight_decay", self.weight_decay, ">= 0")
        require(self.warmup_steps >= 0, "model.optimizer.warmup_steps", self.warmup_steps, "steps >= 0")


class SequenceModule(LightningModule):
    """A causal Transformer on timestamped streams.

    Args:
        network: size, positions, band and loss of the network.
        optimizer: learning rate and its schedule.
        compile: compile the training step with ``torch.compile``; after its warm-up a recompilation is an error.
    """

    network: SequenceTransformer

    def __init__(
        self,
        network: ModelSettings = ModelSettings(),  # noqa: B008  frozen, and LightningCLI reads defaults here
        optimizer: OptimizerSettings = OptimizerSettings(),
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.compiled = compile
        self.settings, self.optimizer_settings = network, optimizer
        self.layout: SequenceLayout | None = None
        self.normalization: Normalization | None = None
        self.trained: dict[str, Any] = {}  # what a checkpoint told of its training

    def configure_model(self) -> None:
        """Build the network, where ``prepare`` has not, now that the data tells streams, targets and rates."""
        if self.layout is None:
            self.prepare(self._data())

    def _data(self) -> SequenceData:
        data: SequenceData | None = self.trainer.datamodule  # type: ignore[attr-defined]  # the Trainer sets it late
        if data is None:
            raise ConfigError("SequenceModule is trained with a SequenceData data module")
        return data

    def prepare(self, data: SequenceData) -> None:
        """Build the network for the data; callbacks that copy the weights at once (averaging) need it so early."""
        self.adopt(data.dataset.layout, data.normalization, data.dataset.median_interval_s())

    def adopt(self, layout: SequenceLayout, normalization: Normalization, interval_s: float) -> None:
        """Build the network for a layout; options of positions that are not given follow from the rate."""
        settings = fill_position_options(self.settings, interval_s)
        self._take(layout, normalization, settings)

    def _take(self, layout: SequenceLayout, normalization: Normalization, settings: ModelSettings) -> None:
        self.layout, self.normalization, self.settings = layout, normalization, settings
        self.network = SequenceTransformer(layout, settings)
        if self.compiled:
            self.network.compile()

    def on_train_batch_start(self, batch: Batch | AgedBatch, batch_idx: int) -> None:
        # Dropout of each step by its number, so that a resumed training is the uninterrupted one.
        torch.manual_seed(step_seed(self._data().seed, self.global_step, self.global_rank))
        # The step of logged rows. Lightning's own count is one ahead after a resume at the end of an epoch.
        self.trainer.fit_loop.epoch_loop._batches_that_stepped = self.global_step

    def training_step(self, batch: Batch | AgedBatch, batch_idx: int) -> Tensor:
        ahead_s = None
        if isinstance(batch, AgedBatch):
            horizons_s = torch.tensor(self.network.horizons_s, dtype=torch.float64, device=batch.age_s.device)
            ahead_s = batch.age_s[..., None] + horizons_s
        with self._recompilation():
            mean, log_std = self.network(batch.tokens, ahead_s)
        # The first tokens of a window saw less than the band holds; live, only a fresh start does.
        mask = batch.mask & (self._history_of(batch) >= self.settings.history)[..., None, None]
        total, count = loss_of(self.settings.loss, mean, log_std, batch.targets, mask)
        # Of all ranks' tokens together: each rank's gradient is averaged, so its sum counts `ranks` times.
        everywhere = self.trainer.strategy.reduce(count, reduce_op="sum")
        loss = total * self.trainer.world_size / everywhere.clamp(min=1)
        self.log("train_loss", loss, prog_bar=True, sync_dist=True)
        return loss

    def _recompilation(self) -> AbstractContextManager[Any]:
        """After the warm-up a compiled step has met all there is to meet: what recompiles then, would for ever."""
        if self.compiled and self.global_step >= WARM_UP and hasattr(torch.compiler, "set_stance"):
            stance: AbstractContextManager[None] = torch.compiler.set_stance("fail_on_recompile")
            return stance
        return nullcontext()

    @staticmethod
    def _history_of(batch: Batch | AgedBatch) -> Tensor:
        # (B, N): valid tokens before each one in its window
        valid = batch.tokens.positions.valid
        assert valid is not None  # windows say which of their tokens are there
        return valid.long().cumsum(-1) - 1

    def on_validation_epoch_start(self) -> None:
        self._sums = torch.zeros(4, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        mean, log_std = self.network.last(batch.tokens)
        targets, mask = batch.targets[:, -1], batch.mask[:, -1]
        total, count = loss_of(self.settings.loss, mean, log_std, targets, mask)
        error = ((mean.float() - targets) ** 2 * mask).sum()
        # The targets are residuals: holding the last value predicts 0.
        held = (targets**2 * mask).sum()
        self._sums += torch.stack([total, count, error, held]).double()

    def on_validation_epoch_end(self) -> None:
        gathered = self.all_gather(self._sums)
        assert isinstance(gathered, Tensor)  # as what was given
        total, count, error, held = gathered.reshape(-1, 4).sum(0)
        self.log("val_loss", (total / count.clamp(min=1)).float(), prog_bar=True)
        self.log("val_skill", (1 - error / held.clamp(min=1e-12)).float(), prog_bar=True)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        settings = self.optimizer_settings
        matrices = [p for p in self.parameters() if p.requires_grad and p.ndim >= 2]
        vectors = [p for p in self.parameters() if p.requires_grad and p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95))
        steps = self.trainer.estimated_stepping_batches

        def factor(step: int) -> float:
            if step < settings.warmup_steps:
                return (step + 1) / settings.warmup_steps
            share = (step - settings.warmup_steps) / max(1.0, steps - settings.warmup_steps)
            return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Plain types only: a checkpoint is always loaded with ``weights_only=True``."""
        if self.layout is None or self.normalization is None:
            raise ConfigError("there is no network yet: nothing to save")
        checkpoint["robopos"] = {
            "layout": self.layout.to_dict(),
            "normalization": self.normalization.to_dict(),
            "network": self.settings.to_dict(),
            "optimizer": asdict(self.optimizer_settings),
            "training": self._data().describe() | {"steps": self.global_step},
        }

    @classmethod
    def from_checkpoint(cls, path: str) -> SequenceModule:
        """The module of a checkpoint file, with its weights."""
        checkpoint = read_checkpoint(path)
        described = checkpoint["robopos"]
        try:
            network, optimizer, layout, normalization = saved_settings(described)
            module = cls(network, optimizer)
            module._take(layout, normalization, module.settings)
            module.load_state_dict(checkpoint["state_dict"])
            module.trained = described["training"]
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{path}: the weights do not fit: {' '.join(str(error).split())[:200]}") from None
        return module

    def bundle(self, training: dict[str, Any] | None = None, metrics: Any = ()) -> Bundle:
        """The trained network as what is deployed."""
        if self.layout is None or self.normalization is None:
            raise ConfigError("there is no network yet: train first")
        network = self.network.eval()
        return Bundle(
            self.layout, self.settings, self.normalization, network, training or {}, [dict(row) for row in metrics]
        )


def saved_settings(
    described: Mapping[str, Any],
) -> tuple[ModelSettings, OptimizerSettings, SequenceLayout, Normalization]:
    """What a checkpoint tells under ``robopos``, apart from its training."""
    layout = SequenceLayout.from_dict(described["layout"])
    return (
        from_mapping(ModelSettings, described["network"], "network"),
        from_mapping(OptimizerSettings, described["optimizer"], "optimizer"),
        layout,
        Normalization.from_dict(described["normalization"], layout),
    )


def read_checkpoint(path: str) -> dict[str, Any]:
    """What a checkpoint file holds; nothing in it is run.

    Raises:
        ConfigError: it is no regular file, is not of robopos, or holds more than tensors and plain types.
    """
    if not Path(path).is_file():
        raise ConfigError(f"{path}: {'is no regular file' if Path(path).exists() else 'no such checkpoint'}")
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        checkpoint["robopos"]["layout"]
    except pickle.UnpicklingError:
        # Its own words advise to load the file without that protection.
        raise ConfigError(
            f"{path}: not a checkpoint of robopos: damaged, or it holds more than tensors and plain types"
        ) from None
    except Exception as error:
        raise ConfigError(f"{path}: not a checkpoint of robopos: {' '.join(str(error).split())[:200]}") from None
    return checkpoint
