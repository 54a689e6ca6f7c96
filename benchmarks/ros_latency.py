"""What the ROS 2 node costs: from a message published to its prediction received, and CPU for each message.

    python benchmarks/ros_latency.py --quick --json ros.json

Two processes on 127.0.0.1, one after the other: a subscriber that does nothing, an echo that publishes the bytes it
receives (the floor of rclpy and the middleware), and the node with a `tiny` and a `small` bundle of random weights,
each computed eagerly and by the steps of `robopos export --to onnx`.
This process publishes JointState at a fixed rate and takes the time until the answer of the same stamp. The node's own
rules apply; its inputs are one token a message. Ratios on a busy machine mean more than times.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measuring import Report

from robopos.logs import LogMessage, read_log, schema_text, write_log
from robopos.logs.schema import parse_schema
from robopos.logs.serialize import serialize
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
from robopos.serving import Engine
from robopos.serving.export import export_step

JOINTS, TRAJECTORY = "sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory"
TOPIC, ANSWER, ECHO = "/joint_states", "/predictor/prediction/joints", "/echo"
NAMES = [f"joint{i}" for i in range(6)]
TYPE = parse_schema(JOINTS, schema_text(JOINTS))
TICKS = os.sysconf("SC_CLK_TCK")
RATES_HZ = (100, 500, 1000)
LOSS_HZ = 500  # at which nothing may be lost, and at which CPU is told


def joints(time_ns: int) -> bytes:
    """Six joints that move."""
    phase = np.sin(time_ns % 10**10 * 1e-9 + np.arange(len(NAMES)))
    content = {"header": {"stamp": time_ns, "frame_id": "base"}, "name": NAMES, "position": phase, "velocity": phase}
    return serialize(TYPE, content)


def make_bundle(folder: Path, size: str) -> Path:
    """A bundle that predicts six joints; its weights are random, its cost is real."""
    start_ns = 1_700_000_000_000_000_000
    stamps_ns = [start_ns + 2_000_000 * i for i in range(10_000)]
    log = folder / "joints.mcap"
    write_log(log, [LogMessage(TOPIC, JOINTS, time_ns, joints(time_ns)) for time_ns in stamps_ns])
    fields = [f"position[{name}]" for name in NAMES]
    sequence = SequenceSettings(
        streams={"joints": StreamSettings(TOPIC, fields)}, targets={"joints": fields}, horizons_s=[0.1, 0.2]
    )
    data = read_log(log, log_streams(sequence))
    layout = resolve_layout(sequence, data)
    dataset = SequenceDataset.build([data], layout, SplitSettings())
    settings = ModelSettings(size=size, context=64, context_s=0.5, window=128, loss="mse")
    settings = fill_position_options(settings, dataset.median_interval_s())
    bundle = Bundle(layout, settings, dataset.fit_normalization(), SequenceTransformer(layout, settings))
    return bundle.save(folder / size)


class Step(NamedTuple):
    """The engine alone, for each message."""

    wall_s: float  # median
    cpu_s: float  # mean


def export(bundle: Path) -> list[Path]:
    """The bundle's steps for one token and for eight, as the engine takes several that wait."""
    files = [bundle.parent / f"{bundle.name}{block}.onnx" for block in (1, 8)]
    for file, block in zip(files, (1, 8), strict=True):
        export_step(Bundle.load(bundle), "onnx", file, block=block)
    return files


def engine_step(bundle: Path, steps: list[Path], rate_hz: int, seconds: float) -> Step:
    """Push and predict with nothing around it, but at the rate: after a pause the caches are cold and a step slower."""
    engine = Engine.load(bundle, device="cpu", step=steps or "eager")
    count, walls_s, cpu_s = round(rate_hz * seconds), [], 0.0
    started_s = time.perf_counter()
    for number in range(count):
        data = joints(1_700_000_100_000_000_000 + 2_000_000 * number)
        while (left_s := started_s + number / rate_hz - time.perf_counter()) > 0:
            time.sleep(left_s)
        before_s, before_cpu_s = time.perf_counter(), time.process_time()
        engine.push_raw("joints", data, arrival_ns=1)
        engine.predict()
        walls_s.append(time.perf_counter() - before_s)
        cpu_s += time.process_time() - before_cpu_s
        if time.perf_counter() - started_s > 1.5 * seconds:  # it cannot hold the rate
            break
    return Step(float(np.median(walls_s)), cpu_s / len(walls_s))


# --- the other process ---


def serve_role(role: str) -> None:
    """A subscriber, or an echo, on the executor that the node uses."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile
    from robopos_ros.signals import stop_on_signals
    from robopos_ros.types import message_class

    try:
        from rclpy.experimental.events_executor import EventsExecutor as Executor
    except ImportError:
        Executor = SingleThreadedExecutor
    stop = stop_on_signals()
    rclpy.init(args=[], signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    node = rclpy.create_node(role)
    kind = message_class(JOINTS)
    publisher = node.create_publisher(kind, ECHO, QoSProfile(depth=10)) if role == "echo" else None

    def receive(data: bytes) -> None:
        if publisher is not None:
            publisher.publish(data)

    node.create_subscription(kind, TOPIC, receive, QoSProfile(depth=100), raw=True)
    executor = Executor()
    executor.add_node(node)
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()


@contextmanager
def other_process(role: str, domain_id: int, bundle: Path | None, steps: list[Path]) -> Iterator[int]:
    """Its process id."""
    from robopos_ros.process import private_environment

    command = [sys.executable, __file__, "--role", role]
    if bundle is not None:
        command = [sys.executable, "-m", "robopos_ros", "--ros-args", "-p", f"bundle:={bundle}", "-p", "device:=cpu"]
        command += ["-p", "min_context:=1", "-p", f"step:={','.join(map(str, steps)) or 'eager'}"]
    with subprocess.Popen(command, env=os.environ | private_environment(domain_id)) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(20)


def cpu_s(pid: int) -> float:
    """CPU that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# --- this process ---


class Measured(NamedTuple):
    """One rate."""

    sent: int
    answered: int
    p50_s: float
    p99_s: float
    cpu_share: float
    cpu_per_message_s: float


class Driver:
    """Publishes at a rate and hears the answers."""

    def __init__(self, domain_id: int, answer: tuple[str, str]) -> None:
        from robopos_ros.client import Client

        self._client = Client({TOPIC.strip("/"): JOINTS}, [], domain_id)
        self._sent_s: dict[int, float] = {}
        self._latencies_s: list[float] = []
        self._client.subscribe_raw(answer[0], answer[1], self._hear)

    def _hear(self, data: bytes) -> None:
        sec, nanosec = struct.unpack_from("<iI", data, 4)  # both types begin with a Header
        sent_s = self._sent_s.pop(sec * 10**9 + nanosec, None)
        if sent_s is not None:
            self._latencies_s.append(time.perf_counter() - sent_s)

    def measure(self, pid: int, rate_hz: int, seconds: float) -> Measured:
        """Publish for a while, then wait for what is on its way."""
        self._sent_s, self._latencies_s = {}, []
        count, period_s = round(rate_hz * seconds), 1 / rate_hz
        before_s, started_s = cpu_s(pid), time.perf_counter()
        for number in range(count):
            due_s = started_s + number * period_s
            while (left_s := due_s - time.perf_counter()) > 0:
                self._client.spin_once(min(left_s, 0.01))
            stamp_ns = time.time_ns()
            data = joints(stamp_ns)
            self._sent_s[stamp_ns] = time.perf_counter()
            self._client.publish(TOPIC.strip("/"), data)
        self._client.spin_for(0.5)
        used_s, wall_s = cpu_s(pid) - before_s, time.perf_counter() - started_s
        latencies_s = np.array(self._latencies_s or [np.nan])
        p50_s, p99_s = np.percentile(latencies_s, [50, 99]).tolist()
        return Measured(count, len(self._latencies_s), p50_s, p99_s, used_s / wall_s, used_s / count)

    def connect(self, patience_s: float = 60.0) -> None:
        """Until messages arrive at all, and all of them are answered where there are answers."""
        self._client.spin_until(lambda: self._client.connected_to(TOPIC.strip("/")), patience_s)
        self._client.spin_for(1.0)

    def received(self) -> int:
        """What the node says to have received."""
        name = f"/predictor: {TOPIC.strip('/')}"
        self._client.spin_for(1.2)  # two reports, the second one after the last message
        status = self._client.report(name, lambda status: True)
        return int(next(value.value for value in status.values if value.key == "received"))

    def close(self) -> None:
        self._client.close()


def run_case(
    role: str, bundle: Path | None, steps: list[Path], rates_hz: tuple[int, ...], seconds: float
) -> tuple[dict, dict]:
    """For each rate what was measured, and how many messages the node did not receive."""
    from robopos_ros.process import free_domain

    domain_id = free_domain()
    measured, lost = {}, {}
    with other_process(role, domain_id, bundle, steps) as pid:
        driver = Driver(domain_id, (ECHO, JOINTS) if bundle is None else (ANSWER, TRAJECTORY))
        try:
            driver.connect()
            driver.measure(pid, 100, 1.0)  # warm
            for rate_hz in rates_hz:
                before = driver.received() if bundle is not None else 0
                measured[rate_hz] = driver.measure(pid, rate_hz, seconds)
                if bundle is not None:
                    lost[rate_hz] = measured[rate_hz].sent - (driver.received() - before)
        finally:
            driver.close()
    return measured, lost


def add_latency(report: Report, name: str, told: Measured, echo: Measured, step: Step, rate_hz: int) -> None:
    """From publish to answer. No target where the engine alone is busy for most of the time: the node then waits in
    a queue, by design."""
    report.add(f"{name}: p50", 1e3 * told.p50_s, "ms")
    report.add(f"{name}: p99", 1e3 * told.p99_s, "ms")
    goal_ms = 1.3e3 * step.wall_s + 0.3 if step.wall_s < 0.7 / rate_hz else None
    report.add(f"{name}: p50 over the echo", 1e3 * (told.p50_s - echo.p50_s), "ms", at_most=goal_ms)


def add_node(
    report: Report,
    title: str,
    bundle: Path,
    steps: list[Path],
    echo: dict[int, Measured],
    bare_s: float,
    seconds: float,
) -> None:
    """The node at every rate, each beside the engine alone."""
    node, lost = run_case("node", bundle, steps, RATES_HZ, seconds)
    for rate_hz, told in node.items():
        step = engine_step(bundle, steps, rate_hz, seconds)
        report.add(f"engine {title}, alone, {rate_hz} Hz: step", 1e3 * step.wall_s, "ms")
        name = f"node {title}, {rate_hz} Hz"
        if told.answered:
            add_latency(report, name, told, echo[rate_hz], step, rate_hz)
        report.add(f"{name}: answered of those sent", 100 * told.answered / told.sent, "%")
        loss_goal = 0 if bundle.name == "tiny" and rate_hz == LOSS_HZ else None
        report.add(f"{name}: messages lost", lost[rate_hz], at_most=loss_goal)
        report.add(f"{name}: CPU share", 100 * told.cpu_share, "%")
        if rate_hz == LOSS_HZ:
            goal_us = 1e6 * (bare_s + step.cpu_s) + 60
            report.add(f"{name}: CPU a message", 1e6 * told.cpu_per_message_s, "us", at_most=goal_us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two seconds a rate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--role", choices=("echo", "sink"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        serve_role(args.role)
        return
    torch.set_num_threads(1)
    seconds = 2.0 if args.quick else 10.0
    report = Report()
    report.add("load average at the start", os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder:
        sink, _ = run_case("sink", None, [], (LOSS_HZ,), seconds)
        bare_s = sink[LOSS_HZ].cpu_per_message_s
        report.add(f"raw subscriber alone, {LOSS_HZ} Hz: CPU a message", 1e6 * bare_s, "us")
        echo, _ = run_case("echo", None, [], RATES_HZ, seconds)
        for rate_hz, told in echo.items():
            report.add(f"echo, {rate_hz} Hz: p50", 1e3 * told.p50_s, "ms")
            report.add(f"echo, {rate_hz} Hz: p99", 1e3 * told.p99_s, "ms")
            report.add(f"echo, {rate_hz} Hz: CPU share", 100 * told.cpu_share, "%")
            report.add(f"echo, {rate_hz} Hz: CPU a message", 1e6 * told.cpu_per_message_s, "us")
        for size in ("tiny", "small"):
            bundle = make_bundle(Path(folder), size)
            for kind, steps in (("eager", []), ("onnx", export(bundle))):
                add_node(report, f"{size}, {kind}", bundle, steps, echo, bare_s, seconds)
    report.add("load average at the end", os.getloadavg()[0])
    if args.json is not None:
        report.write_json(args.json)


if __name__ == "__main__":
    main()
