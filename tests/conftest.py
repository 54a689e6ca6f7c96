"""Small logs, made by the project's own writer, and one small trained bundle."""

from __future__ import annotations

import copy
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from robopos.logs import LogMessage, write_log

# Small networks on shared cores: a second thread waits more than it works.
torch.set_num_threads(1)

# Parallel test runners ignore SIGINT in their workers, and processes inherit that; those of a terminal do not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

START_NS = 1_700_000_000_000_000_000
EXTRA_LOGS = os.environ.get("ROBOPOS_EXTRA_LOGS")


def arm_messages(seconds: float = 40.0, seed: int = 0, gap_s: float = 0.0) -> list[LogMessage]:
    """Two joints at about 40 Hz and an IMU at about 20 Hz, with jitter and drops; a gap in the middle if asked for.

    The header's stamp runs 2 to 6 ms before the log time, so that the two clocks differ and order may too.
    """
    generator = np.random.default_rng(seed)
    messages = []
    for rate_hz, kind in ((40.0, "joints"), (20.0, "imu")):
        times_s = np.arange(0.0, seconds, 1 / rate_hz) + generator.uniform(0, 0.3 / rate_hz, int(seconds * rate_hz))
        times_s = times_s[generator.random(len(times_s)) > 0.05]
        for time_s in times_s:
            shifted_s = time_s + (gap_s if time_s > seconds / 2 else 0.0)
            stamp_ns = START_NS + round(shifted_s * 1e9)
            log_ns = stamp_ns + int(generator.integers(2_000_000, 6_000_000))
            header = {"stamp": stamp_ns, "frame_id": "base"}
            a, b = np.sin(2.1 * time_s), 0.5 * np.sin(3.4 * time_s + 1)
            if kind == "joints":
                content = {"header": header, "name": ["shoulder", "elbow"], "position": [a, b]}
                messages.append(LogMessage("/joint_states", "sensor_msgs/msg/JointState", log_ns, content))
            else:
                content = {
                    "header": header,
                    "angular_velocity": {"x": 2.1 * np.cos(2.1 * time_s), "y": a * b, "z": 0.0},
                }
                messages.append(LogMessage("/imu", "sensor_msgs/msg/Imu", log_ns, content))
    return sorted(messages, key=lambda message: message.log_time_ns)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a C++ compiler the tests that compile are skipped, and say so."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        for item in items:
            if item.get_closest_marker("compiler"):
                item.add_marker(pytest.mark.skip(reason="torch.compile needs a C++ compiler (g++, or CXX) here"))


@pytest.fixture(autouse=True)
def _no_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that another program takes over must be run as a process of its own, or the tests end there."""

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"a test would have been replaced by {arguments}")

    monkeypatch.setattr(os, "execv", refuse)


@pytest.fixture(scope="session")
def arm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MCAP file of ``arm_messages``."""
    path = tmp_path_factory.mktemp("logs") / "arm.mcap"
    write_log(path, arm_messages())
    return path


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two logs whose stamps overlap."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        write_log(folder / f"run{seed}.mcap", arm_messages(20.0, seed))
    return folder


ODD_NAMES = ["$\\foo$", "<b>p|q</b>"]  # for mathematics, tables and pages


@pytest.fixture(scope="session")
def odd_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The arm's log with joints of odd names."""
    path = tmp_path_factory.mktemp("odd") / "odd.mcap"
    messages = [m for m in arm_messages(20.0) if m.topic == "/joint_states"]
    write_log(path, [m._replace(message={**m.message, "name": ODD_NAMES}) for m in messages])
    return path


@pytest.fixture(scope="session")
def cut_log(arm_log: Path) -> Path:
    """The arm's log as a killed recorder leaves it."""
    whole = arm_log.read_bytes()
    cut = arm_log.with_name("cut.mcap")
    cut.write_bytes(whole[: len(whole) * 9 // 10])
    return cut


SEQUENCE = {
    "streams": {
        "joints": {"topic": "/joint_states", "fields": ["position[shoulder]", "position[elbow]"]},
        "imu": {"topic": "imu", "fields": ["angular_velocity"]},
    },
    "targets": {"joints": ["position"], "imu": ["angular_velocity.x"]},
    "horizons_s": [0.1, 0.25],
    "max_gap_s": 2.0,
}


def training_config(log: Path, **network: object) -> dict:
    """A configuration that trains in seconds."""
    return {
        "data": {"logs": [str(log)], "sequence": SEQUENCE, "batch_size": 8, "batches_per_epoch": 40},
        "model": {"network": {"context": 12, "context_s": 0.5, "window": 24} | network},
        "trainer": {"max_steps": 120, "accelerator": "cpu"},
    }


def changed(config: dict, path: str, value: object) -> dict:
    """A copy of a configuration with another value at a dotted path."""
    config = copy.deepcopy(config)
    *groups, last = path.split(".")
    inner = config
    for group in groups:
        inner = inner[group]
    inner[last] = value
    return config


def write_yaml(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.fixture(scope="session")
def trained(arm_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of `robopos train` on the arm's log."""
    from robopos.cli import main

    folder = tmp_path_factory.mktemp("trained")
    config = write_yaml(folder / "train.yaml", training_config(arm_log))
    assert main(["train", "--config", str(config), "--out", str(folder / "run")]) == 0
    return folder / "run"
