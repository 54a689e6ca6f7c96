"""What the tests of the node share: a small log made here, and a bundle of random weights that reads it."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from rclpy.serialization import deserialize_message
from robopos_ros.client import Client
from robopos_ros.process import NodeProcess, free_domain
from trajectory_msgs.msg import JointTrajectory

from robopos.logs import LogMessage, iter_messages, read_log, write_log
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
from robopos.serving import Engine, replay
from robopos.serving.trajectory import TOPIC_PREFIX, Trajectories

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


def robot_sequence(clock: str = "header") -> SequenceSettings:
    """What a bundle reads of `robot_messages`."""
    return SequenceSettings(
        streams={
            "base": StreamSettings("odometry", ["twist.twist.linear.x", "twist.twist.linear.y"]),
            "beacon": StreamSettings("range", ["range"], transform="difference"),
        },
        targets={"base": ["twist.twist.linear.x", "twist.twist.linear.y"], "beacon": ["range"]},
        horizons_s=[0.1, 0.25],
        clock=clock,
    )


def make_bundle(
    folder: Path,
    log: Path,
    *,
    positions: str = "time-rotary",
    clock: str = "header",
    loss: str = "mse",
    sequence: SequenceSettings | None = None,
) -> Path:
    """A bundle with the normalization of `log` and untrained weights: its numbers mean nothing, but are its own."""
    sequence = robot_sequence(clock) if sequence is None else sequence
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


@contextmanager
def running(
    bundle: Path, inputs: dict[str, str], streams: list[str], **parameters: object
) -> Iterator[tuple[NodeProcess, Client]]:
    """A node that is active and connected, and its other side; the node's words are shown when something fails."""
    usual = {"device": "cpu", "min_context": 1, "publish_expired": True, "diagnostics_period_s": 0.2}
    domain_id = free_domain()
    with (
        NodeProcess({"bundle": bundle} | usual | parameters, domain_id) as node,
        Client(inputs, streams, domain_id) as client,
    ):
        try:
            client.wait_connected()
            yield node, client
        finally:
            print(node.output())


def recordings(folder: Path) -> list[Path]:
    """The files of a black box, oldest first."""
    return sorted(folder.glob("*.mcap"))


def published_in(path: Path) -> list[tuple[int, str, bytes]]:
    """The predictions in a recording or a replay: inputs before it, topic, bytes."""
    found, inputs = [], 0
    for message in iter_messages(path):
        if message.topic.startswith(TOPIC_PREFIX):
            found.append((inputs, message.topic, message.data))
        else:
            inputs += 1
    return found


def replay_by_command(bundle: Path, log: Path, out: Path) -> Path:
    """`robopos replay` of a log, into `out`."""
    command = [sys.executable, "-m", "robopos", "replay", str(bundle), str(log), "-o", str(out), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def assert_same(data: bytes, other: bytes) -> None:
    """Two serialized predictions: of the same time and fields, with the same numbers."""
    assert stamp_and_names(data) == stamp_and_names(other)
    np.testing.assert_allclose(positions(data), positions(other), rtol=0, atol=1e-5)


def assert_replay_is_what_was_published(bundle: Path, recording: Path, out: Path, *, settle: bool = False) -> int:
    """Every prediction of a recording against a replay of it; returns how many there were.

    With `settle`, by the command `robopos replay`, which predicts with full history alone; else by its function.
    """
    if settle:
        replayed = {
            (inputs, topic): data for inputs, topic, data in published_in(replay_by_command(bundle, recording, out))
        }
    else:
        engine = Engine.load(bundle, device="cpu")
        trajectories = Trajectories(engine.bundle.layout)
        replayed, inputs = {}, 0
        for step in replay(engine, recording, settle=False):
            if step.message.topic.startswith(TOPIC_PREFIX):
                continue
            inputs += 1
            for made in trajectories.of(step.prediction, 0) if step.prediction is not None else ():
                replayed[inputs, made.topic] = made.message
    published = published_in(recording)
    for inputs, topic, data in published:
        assert_same(data, replayed[inputs, topic])
    return len(published)


def positions(data: bytes) -> np.ndarray:
    """The positions of all points of a JointTrajectory, in order."""
    return np.array([point.positions for point in deserialize_message(data, JointTrajectory).points])


def stamp_and_names(data: bytes) -> tuple[int, list[str]]:
    """What a JointTrajectory is about."""
    message = deserialize_message(data, JointTrajectory)
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec, list(message.joint_names)


def wait_for(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    """Whether it came true in time."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True
