"""Cells on a Ray cluster: the same cells, their folders sent back whole. Needs the extra ``ray``."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from robopos.comparison.cells import Cell, fingerprint, keep_cell, keep_folder
from robopos.comparison.data import StudyData
from robopos.comparison.local import Tell
from robopos.comparison.make import make_cell, work_of
from robopos.comparison.settings import CellKey, StudySettings
from robopos.errors import ConfigError

LOCAL = "local"


class Worker:
    """One process of the cluster, with the study's data; it must find the logs under the same paths."""

    def __init__(self, settings: StudySettings) -> None:
        torch.set_num_threads(1)
        self._data = StudyData(settings)

    def make(self, key: CellKey) -> tuple[bytes, str | None]:
        """A cell's folder as a tar file, and its error."""
        with tempfile.TemporaryDirectory() as folder:
            cell = make_cell(self._data, key, Path(folder))
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(Path(folder) / "cells" / key.slug, arcname=".")
        return packed.getvalue(), cell.error


def run_ray(data: StudyData, out: Path, keys: Sequence[CellKey], address: str, workers: int | None, tell: Tell) -> None:
    """Cells by actors of a cluster, one a GPU where it has some, else one a core.

    Args:
        address: of the cluster's head, ``auto``, or ``local``: a cluster on this machine, for the time of the study.
        workers: how many actors; ``None`` takes what the cluster has.

    Raises:
        ConfigError: Ray is missing, or there is no cluster at the address.
    """
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ModuleNotFoundError:
        raise ConfigError("--ray needs Ray: pip install 'robopos[ray]'") from None
    try:
        here = address == LOCAL
        ray.init(
            address=address,
            num_cpus=workers if here else None,
            include_dashboard=False if here else None,
            log_to_driver=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"--ray {address}: {' '.join(str(error).split())[:200]}") from None
    try:
        _drive(ray, data, out, list(keys), workers, tell)
    finally:
        ray.shutdown()


def _drive(ray: Any, data: StudyData, out: Path, waiting: list[CellKey], workers: int | None, tell: Tell) -> None:
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    count = min(workers or gpus or int(resources.get("CPU", 1)), len(waiting))
    kind = ray.remote(num_cpus=1, num_gpus=1 if gpus else 0, max_restarts=-1)(Worker)
    busy: dict[Any, tuple[Any, CellKey]] = {}
    each, done = work_of(data), 0
    for _ in range(count):
        actor, key = kind.remote(data.settings), waiting.pop(0)
        busy[actor.make.remote(key)] = actor, key
    while busy:
        (ready,), _ = ray.wait(list(busy), num_returns=1)
        actor, key = busy.pop(ready)
        try:
            packed, error = ray.get(ready)
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                keep_folder(out, key, partial(archive.extractall, filter="data"))
        except ray.exceptions.RayError as failure:
            error = " ".join(str(failure).split())[-300:]
            keep_cell(out, Cell(key, error=error), fingerprint(data.settings, key, data.hashes))
        done += 1
        tell(done * each, f"{key}: " + ("done" if error is None else f"failed: {error}"))
        if waiting:
            key = waiting.pop(0)
            busy[actor.make.remote(key)] = actor, key
