"""Going on from a checkpoint: the same settings, the rows of metrics so far; and no training replaced by accident."""

from __future__ import annotations

import csv
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_only

from robopos.errors import ConfigError
from robopos.model import ModelSettings
from robopos.sequences import Normalization, SequenceLayout
from robopos.training.data import SequenceData
from robopos.training.module import OptimizerSettings, SequenceModule, saved_settings

ABSENT = "not there"
# Where the layout has another word than the option that it comes from.
OPTIONS = {"transforms": "transform", "kinds": "angle"}


def refuse_replacing(out: Path) -> None:
    """Raise a ``ConfigError`` where a folder holds a training already."""
    for found, what in (("bundle/bundle.yaml", "a trained bundle"), ("checkpoints/last.ckpt", "checkpoints")):
        if (out / found).is_file():
            raise ConfigError(
                f"{out} holds {what}: --ckpt_path last goes on from it, --force replaces it, -o names another folder"
            )


def remove_training(out: Path) -> None:
    """Remove what an earlier training left, so that nothing of it is taken for the new one's."""
    # The bundle is replaced as a whole when there is a new one; the CSV logger starts its file anew.
    old = [out / "checkpoints" / name for name in ("best.ckpt", "last.ckpt")]
    for file in [*old, *(out / "tensorboard").glob("events.out.tfevents.*")]:
        file.unlink(missing_ok=True)


def refuse_another_training(
    path: str, checkpoint: Mapping[str, Any], module: SequenceModule, data: SequenceData
) -> int:
    """Compare the settings and the data of a training with those of the checkpoint that it goes on from.

    Args:
        path: where the checkpoint stands.
        checkpoint: as `read_checkpoint` gives it.
        module: with its network built.
        data: what it is trained on.

    Returns:
        the checkpoint's step.

    Raises:
        ConfigError: names the first setting of model, sequence or split that differs; or other data: the weights
            know numbers only as the normalization of the first data scaled them.
    """
    described = checkpoint["robopos"]
    try:
        network, optimizer, layout, normalization = saved_settings(described)
        then = _options(network, optimizer, layout, described["training"]["split"])
        logs = described["training"]["logs"]
        step = int(checkpoint["global_step"])
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not a checkpoint to go on from: {type(error).__name__} {error}") from None
    # Data before the model: options of positions follow from them.
    now = _options(module.settings, module.optimizer_settings, data.dataset.layout, asdict(data.split))
    _refuse_difference(path, then, now, "data")
    if not _same(normalization, data.normalization):
        raise ConfigError(
            f"data.logs: the training data are not those of {path}, which began on {reprlib.repr(logs)}: "
            "give the same logs, or -o names another folder for a new training"
        )
    _refuse_difference(path, then, now, "model")
    return step


def _refuse_difference(path: str, then: Mapping[str, Any], now: Mapping[str, Any], group: str) -> None:
    different = _first_difference(then[group], now[group], group)
    if different is not None:
        option, before, here = different
        used = Path(path).parent.parent / "csv" / "config.yaml"
        where = f": {used} holds them" if used.is_file() else ""
        raise ConfigError(
            f"{option} is {_short(here)}, in {path} it is {_short(before)}: repeat the options of the first run{where}"
        )


def _same(one: Normalization, other: Normalization) -> bool:
    """Whether two statistics are of the same data, summed on whatever machine."""
    return all(np.allclose(getattr(one, f.name), getattr(other, f.name), rtol=1e-6) for f in fields(one))


def _options(
    network: ModelSettings, optimizer: OptimizerSettings, layout: SequenceLayout, split: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings under the names that a user gives them."""
    sequence = layout.to_dict()
    sequence["streams"] = {
        stream["name"]: {OPTIONS.get(name, name): value for name, value in stream.items()}
        for stream in sequence["streams"]
    }
    sequence["targets"] = [f"{layout.streams[s].name} {layout.streams[s].fields[f]}" for s, f in layout.targets]
    if layout.reference is not None:
        sequence["reference"] = layout.streams[layout.reference].name
    return {
        "data": {"sequence": sequence, "split": split},
        "model": {"network": network.to_dict(), "optimizer": asdict(optimizer)},
    }


def _first_difference(then: object, now: object, path: str) -> tuple[str, object, object] | None:
    if not (isinstance(then, Mapping) and isinstance(now, Mapping)):
        return None if then == now else (path, then, now)
    for name in dict.fromkeys([*now, *then]):
        found = _first_difference(then.get(name, ABSENT), now.get(name, ABSENT), f"{path}.{name}")
        if found is not None:
            return found
    return None


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return "given"  # a whole stream, say; its name stands before
    return ABSENT if value == ABSENT else reprlib.repr(value)


@rank_zero_only
def keep_rows(logger: CSVLogger, step: int) -> None:
    """Let a CSV logger go on in its file: it keeps the rows before ``step`` that stand there."""
    file = Path(logger.log_dir) / "metrics.csv"
    if not file.is_file():
        return
    with file.open(newline="") as text:
        rows = [row for row in csv.DictReader(text) if int(row["step"]) < step]
    # Its writer removes the file when it is made; the rows go through it, so that later columns find their place.
    logger.experiment.metrics.extend(rows)
    logger.save()
