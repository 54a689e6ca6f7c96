"""What the benchmarks of training compute: windows of streams that no robot ever sent, and one training step.

Needs neither a log nor Lightning.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from robopos.model import ModelSettings, SequenceTransformer, loss_of
from robopos.model.defaults import fill_position_options
from robopos.sequences import (
    Batch,
    SequenceDataset,
    SequenceLayout,
    SequenceSettings,
    SplitSettings,
    StreamSettings,
    TokenColumns,
    WindowSampler,
    resolve_layout,
)

START_NS = 1_700_000_000_000_000_000
JOINTS, JOINTS_HZ, IMU_HZ = 6, 100.0, 50.0


class Stream(NamedTuple):
    """What sequences ask of a stream of a log."""

    topic: str
    names: tuple[str, ...]
    time_ns: np.ndarray
    order: np.ndarray
    values: np.ndarray
    type: str = "synthetic"
    schema: str = ""
    encoding: str = "cdr"
    frame_ids: tuple[str, ...] = ()
    clock: str = "header"

    @property
    def arrival_ns(self) -> np.ndarray:
        return self.time_ns

    @property
    def units(self) -> tuple[str, ...]:
        return ("",) * len(self.names)


class Streams(dict[str, Stream]):
    """What sequences ask of a log."""

    paths = (Path("synthetic"),)


def _stream(topic: str, names: list[str], rate_hz: float, seconds: float, number: int) -> Stream:
    """Smooth motion with noise, at times that jitter by a tenth of the period."""
    generator = np.random.default_rng(number)
    time_s = (np.arange(round(seconds * rate_hz)) + generator.uniform(0, 0.1, round(seconds * rate_hz))) / rate_hz
    phase = time_s[:, None] * generator.uniform(0.5, 5.0, len(names)) + generator.uniform(0, 6, len(names))
    values = np.sin(phase) + generator.normal(0, 0.01, phase.shape)
    time_ns = START_NS + np.round(time_s * 1e9).astype(np.int64)
    return Stream(topic, tuple(names), time_ns, np.arange(len(time_ns)) * 2 + number, values)


class Work(NamedTuple):
    """Windows to train on, and what a network for them needs to know."""

    layout: SequenceLayout
    columns: TokenColumns
    interval_s: float


def make_work(tokens: int, device: torch.device | str = "cpu") -> Work:
    """Columns of about so many tokens: six joints at 100 Hz and an IMU at 50 Hz, joints to be predicted."""
    seconds = tokens / (JOINTS_HZ + IMU_HZ)
    joints = [f"{field}[{n}]" for field in ("position", "velocity") for n in range(JOINTS)]
    imu = [f"{field}.{axis}" for field in ("angular_velocity", "linear_acceleration") for axis in "xyz"]
    log = Streams(joints=_stream("joints", joints, JOINTS_HZ, seconds, 0), imu=_stream("imu", imu, IMU_HZ, seconds, 1))
    settings = SequenceSettings(
        streams={name: StreamSettings(stream.topic, list(stream.names)) for name, stream in log.items()},
        targets={"joints": ["position"]},
        horizons_s=[0.05, 0.1, 0.2],
    )
    layout = resolve_layout(settings, log)  # type: ignore[arg-type]
    dataset = SequenceDataset.build([log], layout, SplitSettings())  # type: ignore[list-item]
    columns = dataset.columns(dataset.fit_normalization(), "train", device)
    return Work(layout, columns, dataset.median_interval_s())


def make_network(work: Work, settings: ModelSettings, kind: type[SequenceTransformer]) -> SequenceTransformer:
    """A network with the same first weights for the same settings, on the device of the windows."""
    torch.manual_seed(0)
    filled = fill_position_options(settings, work.interval_s)
    return kind(work.layout, filled).to(work.columns.values.device)


def make_sampler(work: Work, settings: ModelSettings, batch_size: int) -> WindowSampler:
    """Random windows of the training split."""
    return WindowSampler([work.columns], settings.window, batch_size, seed=0, min_history=settings.history)


class TrainingStep:
    """Forward, loss, backward, clipping and AdamW on one batch.

    Args:
        network: to train.
        compiled: through ``torch.compile``; the first call takes its time.
        narrow: bfloat16 where autocast allows it.
    """

    def __init__(self, network: SequenceTransformer, *, compiled: bool = False, narrow: bool = False) -> None:
        self.network = network.train()
        self._loss = torch.compile(self._loss_of, dynamic=False) if compiled else self._loss_of
        self._narrow = narrow
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05)

    def _loss_of(self, batch: Batch) -> Tensor:
        mean, log_std = self.network(batch.tokens)
        settings, valid = self.network.settings, batch.tokens.positions.valid
        mask = batch.mask & (valid.long().cumsum(-1) > settings.history)[..., None, None]
        total, count = loss_of(settings.loss, mean, log_std, batch.targets, mask)
        return total / count.clamp(min=1)

    def __call__(self, batch: Batch) -> Tensor:
        """The loss before the step."""
        device = batch.mask.device.type
        with torch.autocast(device, torch.bfloat16) if self._narrow else nullcontext():
            loss = self._loss(batch)
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        return loss.detach()


def step_flops(network: SequenceTransformer, batch_size: int) -> float:
    """Floating-point operations of a training step: 6 for each weight and token, and attention inside the band.

    As Chowdhery 2022 (PaLM, appendix B) counts them, 12 · width for each pair of tokens that see each other; the head
    counts once a horizon. Norms, positions and the optimizer are not counted.
    """
    settings, head = network.settings, network.head
    once = sum(weight.numel() for weight in network.parameters() if weight.ndim == 2)
    once -= head.out.weight.numel() + head.ahead.weight.numel()
    weights = once + len(network.horizons_s) * head.out.weight.numel()
    pairs = sum(min(place + 1, settings.context) for place in range(settings.window))
    dim = network.embed.out_features
    return float(batch_size) * (6 * weights * settings.window + 12 * len(network.blocks) * dim * pairs)
