"""What the tests of the node share: a small log made here, and a bundle of random weights that reads it."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from robopos.logs import LogMessage, read_log, write_log
from robopos.model import Bundle, ModelSettings
from robopos.model.defaults import fill_position_options
from robopos.model.network import SequenceTransformer
from robopos.sequences import (
    SequenceDataset,
    SequenceSettings,
    SplitSettings,
    StreamSettings,
    log_streams,
    resolve_layout,
)

START_NS = 1_700_000_000_000_000_000


def robot_messages(count: int, start_ns: int = START_NS) -> list[LogMessage]:
    """Odometry about 20 Hz and a range sensor now and then, at irregular times; messages in order of time."""
    messages, time_ns = [], start_ns
    for i in range(count):
        time_ns += 30_000_000 + 7_919_000 * (i % 5)
        phase = 0.17 * i
        header = {"stamp": time_ns - 3_000_000, "frame_id": "base_link"}
        if i % 4 == 3:
            message = {"header": header, "range": 5 + 2 * math.sin(phase / 3)}
            messages.append(LogMessage("range", "sensor_msgs/msg/Range", time_ns, message))
        else:
            linear = {"x": math.sin(phase), "y": 0.1 * math.cos(phase), "z": 0.0}
            message = {"header": header, "twist": {"twist": {"linear": linear}}}
            messages.append(LogMessage("odometry", "nav_msgs/msg/Odometry", time_ns, message))
    return messages


def make_log(path: Path, count: int) -> Path:
    """`robot_messages` as a log."""
    return write_log(path, robot_messages(count))


def make_bundle(
    folder: Path, log: Path, *, positions: str = "time-rotary", clock: str = "header", loss: str = "mse"
) -> Path:
    """A bundle with the normalization of `log` and untrained weights: its numbers mean nothing, but are its own."""
    sequence = SequenceSettings(
        streams={
            "base": StreamSettings("odometry", ["twist.twist.linear.x", "twist.twist.linear.y"]),
            "beacon": StreamSettings("range", ["range"], transform="difference"),
        },
        targets={"base": ["twist.twist.linear.x", "twist.twist.linear.y"], "beacon": ["range"]},
        horizons_s=[0.1, 0.25],
        clock=clock,
    )
    data = read_log(log, log_streams(sequence), clock=clock)
    layout = resolve_layout(sequence, data)
    dataset = SequenceDataset.build([data], layout, SplitSettings())
    settings = ModelSettings(positions=positions, context=8, context_s=2.0, window=16, loss=loss)
    settings = fill_position_options(settings, dataset.median_interval_s())
    torch.manual_seed(7)
    network = SequenceTransformer(layout, settings)
    with torch.no_grad():
        for parameter in network.parameters():
            # An untrained head predicts "no change"; with weights everywhere each input reaches the output.
            parameter.add_(0.2 * torch.randn_like(parameter))
    return Bundle(layout, settings, dataset.fit_normalization(), network).save(folder)
