"""The live engine: what a step costs against computing the window anew, on one thread, and whether memory grows.

    python benchmarks/streaming.py [--quick] [--json FILE] [--soak MESSAGES]

Model `small` (6 layers, width 256, context 512), random weights, full ring; an IMU at 400 Hz and six joints at 200 Hz
as serialized ROS 2 messages. Roads are timed in turns, so that what else the machine does meets them alike; a ratio is
of medians in one run. `--quick` leaves out torch.compile and AOTInductor (minutes of compilation) and shortens the
memory run; `--soak 1000000` lengthens it.
"""

from __future__ import annotations

import gc
import os
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Report, in_turns, medians, parser

from robopos.errors import ServingError
from robopos.logs import LogMessage, iter_messages, read_log, write_log
from robopos.model import Bundle, ModelSettings, SequenceTransformer, Step, StreamState
from robopos.model.defaults import fill_position_options
from robopos.positions import Positions
from robopos.sequences import (
    SequenceDataset,
    SequenceSettings,
    SplitSettings,
    StreamSettings,
    Tokens,
    log_streams,
    resolve_layout,
)
from robopos.serving import Engine
from robopos.serving.export import export_step, random_tokens
from robopos.serving.exported import load_step
from robopos.serving.steps import BLOCK

START_NS = 1_700_000_000_000_000_000
JOINTS = [f"joint_{number}" for number in range(6)]
SEQUENCE = SequenceSettings(
    streams={
        "joints": StreamSettings("/joint_states", ["position", "velocity"]),
        "imu": StreamSettings("/imu", ["angular_velocity", "linear_acceleration"]),
    },
    targets={"joints": ["position"]},
    horizons_s=[0.05, 0.1, 0.2, 0.5],
)
EVERY = 12  # messages a prediction: 600 a second, predictions at 50 Hz


def traffic(seconds: float) -> list[tuple[str, bytes, int]]:
    """(stream, serialized message, stamp) in order of arrival."""
    messages = []
    for number in range(int(seconds * 400)):
        stamp_ns, phase = START_NS + number * 2_500_000, number / 400
        header = {"stamp": stamp_ns, "frame_id": "base"}
        gyro = {"x": float(np.sin(phase)), "y": 0.1, "z": float(np.cos(phase))}
        content: dict[str, Any] = {"header": header, "angular_velocity": gyro, "linear_acceleration": gyro | {"z": 9.8}}
        messages.append(LogMessage("/imu", "sensor_msgs/msg/Imu", stamp_ns + 1_000_000, content))
        if number % 2 == 0:
            angle = phase + np.arange(6)
            content = {
                "header": header,
                "name": JOINTS,
                "position": list(np.sin(angle)),
                "velocity": list(np.cos(angle)),
            }
            messages.append(LogMessage("/joint_states", "sensor_msgs/msg/JointState", stamp_ns + 1_500_000, content))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traffic.mcap"
        write_log(path, messages)
        names = {"/imu": "imu", "/joint_states": "joints"}
        return [(names[m.topic], bytes(m.data), m.log_time_ns) for m in iter_messages(path)]


def endless(messages: list[tuple[str, bytes, int]]) -> Iterator[tuple[str, bytes, int]]:
    """The messages again and again, later each time: the stamp stands behind the encapsulation's four bytes."""
    span_ns = 2 * messages[-1][2] - messages[0][2] - messages[-2][2]
    shift_ns = 0
    while True:
        for name, data, arrival_ns in messages:
            sec, nanosec = struct.unpack_from("<iI", data, 4)
            stamp_ns = sec * 10**9 + nanosec + shift_ns
            yield name, data[:4] + struct.pack("<iI", *divmod(stamp_ns, 10**9)) + data[12:], arrival_ns + shift_ns
        shift_ns += span_ns


def make_bundle(size: str, context: int) -> Bundle:
    """Random weights on the traffic's layout."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.mcap"
        names = {"imu": ("/imu", "sensor_msgs/msg/Imu"), "joints": ("/joint_states", "sensor_msgs/msg/JointState")}
        write_log(path, [LogMessage(*names[name], at, data) for name, data, at in traffic(20)])
        log = read_log(path, log_streams(SEQUENCE))
        layout = resolve_layout(SEQUENCE, log)
        dataset = SequenceDataset.build([log], layout, SplitSettings())
        normalization = dataset.fit_normalization()
    asked = ModelSettings(size=size, context=context, context_s=2.0, window=2 * context)
    torch.manual_seed(0)
    settings = fill_position_options(asked, 1 / 600)
    return Bundle(layout, settings, normalization, SequenceTransformer(layout, settings).eval().requires_grad_(False))


def part(tokens: Tokens, start: int, stop: int) -> Tokens:
    values, measured, observed = (x[:, start:stop] for x in tokens[:3])
    return Tokens(values, measured, observed, Positions(time_ns=tokens.positions.time_ns[start:stop]))


WINDOW = "window computed anew, eager"
Road = tuple[Callable[[], object], int]
"""What to call, and how many times in a row."""


class Roads:
    """Ways to make a prediction after the next token of a full ring, with the head."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        self._bundle, self._folder = bundle, folder
        self._network, self._context = bundle.network, bundle.settings.context
        self._tokens = random_tokens(bundle, 4 * self._context, seed=1)

    def window(self) -> dict[str, Road]:
        """What a step is held against."""
        window = part(self._tokens, 0, self._context)
        window = window._replace(positions=Positions(time_ns=window.positions.time_ns[None]))
        return {WINDOW: (lambda: self._network.last(window), 1)}

    def steps(self, label: str, of_size: Callable[[int], Step]) -> dict[str, Road]:
        """Single tokens, and blocks, each with a ring of its own."""
        return {
            f"step, {label}": (self._road(of_size(1), 1), 20),
            f"step of {BLOCK} tokens, {label}": (self._road(of_size(BLOCK), BLOCK), 10),
        }

    def exported(self, label: str, kind: str, suffix: str) -> dict[str, Road]:
        """Steps from files; none where the tools are missing."""

        def of_size(size: int) -> Step:
            path = self._folder / f"step{size}{suffix}"
            with torch.inference_mode(False):
                parity = export_step(self._bundle, kind, path, block=size)
            print(f"{label}, blocks of {size}: parity {parity.largest:.1e} over {parity.steps} steps")
            return load_step(path, self._bundle, torch.device("cpu"), 1)[1]

        try:
            return self.steps(label, of_size)
        except ServingError as error:
            print(f"{label}: not measured: {error}")
            return {}

    def _road(self, step: Step, size: int) -> Callable[[], object]:
        state: StreamState = self._network.start()
        state.absorb(self._network.step, part(self._tokens, 0, self._context), self._context)
        place = self._context

        def call() -> object:
            nonlocal place
            place = self._context if place + size > 4 * self._context else place
            state.absorb(step, part(self._tokens, place, place + size), size)
            place += size
            assert state.encoded is not None
            return self._network.predict(state.encoded)

        return call


def timed(report: Report, roads: dict[str, Road], rounds: int) -> dict[str, float]:
    """Medians in seconds, and for each step how many times faster it is than the window beside it."""
    calls = {name: call for name, (call, _) in roads.items()}
    times = in_turns(calls, rounds, in_a_row={name: count for name, (_, count) in roads.items()})
    median = medians(times)
    for name, values in times.items():
        report.add(f"small: {name}, p50", 1e3 * median[name], "ms")
        report.add(f"small: {name}, p99", 1e3 * float(np.percentile(values, 99)), "ms")
    return {name: median[WINDOW] / value for name, value in median.items()}


@torch.inference_mode()
def steps(report: Report, quick: bool) -> None:
    """One prediction against the window. A kind of step is timed beside the window alone, as one is deployed alone."""
    bundle = make_bundle("small", 512)
    rounds = 12 if quick else 30
    faster: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        roads = Roads(bundle, Path(folder))
        window, step = roads.window(), bundle.network.step
        faster |= timed(report, window | roads.steps("eager", lambda _: step), rounds)
        faster |= timed(report, window | roads.exported("ONNX Runtime", "onnx", ".onnx"), rounds)
        if not quick:
            faster |= timed(report, window | roads.exported("AOTInductor", "aotinductor", ".pt2"), rounds)
            compiled = torch.compile(step, dynamic=False, fullgraph=True)
            faster |= timed(report, window | roads.steps("torch.compile", lambda _: compiled), rounds)
    labels = [
        label for label in ("eager", "ONNX Runtime", "AOTInductor", "torch.compile") if f"step, {label}" in faster
    ]
    exported = [label for label in labels if label in ("ONNX Runtime", "AOTInductor")]
    fastest = max(exported, key=lambda label: faster[f"step, {label}"], default=None)
    for label in labels:
        target = 18 if label == "eager" else 38 if label == fastest else None
        report.add(f"small: window / step, {label}", faster[f"step, {label}"], "x", at_least=target)
    for label in labels:
        ratio = faster[f"step, {label}"] / faster[f"step of {BLOCK} tokens, {label}"]
        report.add(f"small: step of {BLOCK} tokens / step, {label}", ratio, "x", at_most=3)


def pushes(report: Report) -> None:
    """What a message costs before the network."""
    engine = Engine(make_bundle("tiny", 64), device="cpu")
    times = []
    for number, (name, data, arrival_ns) in zip(range(6000), endless(traffic(10)), strict=False):
        started = time.perf_counter()
        engine.push_raw(name, data, arrival_ns)
        times.append((time.perf_counter() - started) * 1e6)
        if number % 100 == 0:
            engine.absorb()
    report.add("push_raw: decode, admit, tokenize, p50", float(np.percentile(times, 50)), "us", at_most=60)
    report.add("push_raw: decode, admit, tokenize, p99", float(np.percentile(times, 99)), "us")


def resident_mb() -> float:
    """Resident size of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def live_tensors() -> int:
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated things that are merely looked at
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def memory(report: Report, messages: int, warm: int) -> None:
    """Whether anything grows, and whether `tiny` keeps up with 600 messages and 50 predictions a second."""
    engine = Engine(make_bundle("tiny", 64), device="cpu")
    resident, tensors, latencies = 0.0, 0, []
    started, busy_s = 0.0, 0.0
    for number, (name, data, arrival_ns) in enumerate(endless(traffic(10)), start=1):
        started = time.perf_counter()
        engine.push_raw(name, data, arrival_ns)
        if number % EVERY == 0:
            before = time.perf_counter()
            engine.predict()
            latencies.append((time.perf_counter() - before) * 1e3)
            latencies = latencies[-10_000:]
        busy_s += time.perf_counter() - started
        if number == warm:
            tensors, resident = live_tensors(), resident_mb()
        if number == messages:
            break
    report.add(f"tiny: resident size, {messages} against {warm} messages", resident_mb() - resident, "MB", at_most=5)
    report.add(
        f"tiny: live tensors, {messages} against {warm} messages", live_tensors() - tensors, "tensors", at_most=0
    )
    report.add("tiny: time busy / time recorded, 600 messages/s, 50 Hz", busy_s / (messages / 600), "x", at_most=1)
    report.add(f"tiny: predict after {EVERY} messages, p50", float(np.percentile(latencies, 50)), "ms")
    report.add(f"tiny: predict after {EVERY} messages, p99", float(np.percentile(latencies, 99)), "ms")
    if engine.stats.resets or engine.stats.absorbed < messages - EVERY:
        raise SystemExit(f"messages were lost: {engine.stats}")


def main() -> None:
    options = parser(__doc__, "no compiled steps, a shorter memory run")
    options.add_argument("--soak", type=int, metavar="N", help="messages of the memory run (default: 100000)")
    args = options.parse_args()
    torch.set_num_threads(1)
    report = Report()
    pushes(report)
    steps(report, args.quick)
    messages = args.soak or (30_000 if args.quick else 100_000)
    memory(report, messages, min(10_000, messages // 3))
    if args.json:
        report.write_json(args.json)


if __name__ == "__main__":
    main()
