"""Training from Python: the same modules that `robopos train` drives, without files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lightning import Callback, Trainer, seed_everything

from robopos.training.data import SequenceData
from robopos.training.module import SequenceModule

TellStep = Callable[[int, Mapping[str, float]], None]


def fit(
    module: SequenceModule,
    data: SequenceData,
    *,
    max_steps: int,
    seed: int,
    callbacks: Sequence[Callback] = (),
    accelerator: str = "auto",
) -> SequenceModule:
    """Train for a number of steps and return the module; nothing is written.

    The weights start from ``seed``; the order of windows comes from the data module's own seed.
    """
    quiet()
    seed_everything(seed, verbose=False)
    trainer = Trainer(
        max_steps=max_steps,
        accelerator=accelerator,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        callbacks=list(callbacks),
    )
    with interrupts():
        trainer.fit(module, datamodule=data)
    return module.eval()


@contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C in a ``Trainer.fit`` inside is a ``KeyboardInterrupt`` again: Lightning makes a ``SystemExit`` of it."""
    try:
        yield
    except SystemExit as interrupt:
        if isinstance(interrupt.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from interrupt
        raise


def quiet() -> None:
    """Advice of Lightning's that does not hold here: a window is an index gather, and a run may go on in its folder."""
    warnings.filterwarnings("ignore", ".*LightningCLI's args parameter.*")
    warnings.filterwarnings("ignore", ".*exists and is not empty.*")
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*GPU available but not used.*")
    warnings.filterwarnings("ignore", ".*number of training batches.*smaller than the logging interval.*")
    # The data module's state says how much of the epoch is done.
    warnings.filterwarnings("ignore", ".*checkpoint that ended before the epoch ended.*")
    # Going on from the end of an epoch, Lightning ends that epoch once more, before there is a new loss.
    warnings.filterwarnings("ignore", r".*ModelCheckpoint\(monitor='val_loss'\).* could not find the monitored key.*")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)


class LastValidation(Callback):
    """Validates, and so saves, after the last step too where that is inside an epoch."""

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        if 0 < trainer.max_steps <= trainer.global_step:
            trainer.should_stop = True  # a stop that is asked for is validated, one at max_steps is not


class StepProgress(Callback):
    """Tells a function the steps done and the latest losses; it decides how to show them."""

    def __init__(self, tell: TellStep) -> None:
        self._tell = tell

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        shown = {name: float(value) for name, value in trainer.progress_bar_metrics.items()}
        self._tell(trainer.global_step, shown)
