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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Report, in_turns, medians, parser

from robopos.errors import ServingError
from robopos.logs import LogMessage, iter_messages, read_log, write_log
from robopos.model import Bundle, ModelSettings, SequenceTransformer, StreamState
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


def step_roads(bundle: Bundle, folder: Path, quick: bool) -> dict[str, tuple[Callable[[], object], int]]:
    """Each way to make a prediction after the next token, with the head."""
    network, context = bundle.network, bundle.settings.context
    tokens = random_tokens(bundle, 4 * context, seed=1)
    window = part(tokens, 0, context)
    window = window._replace(positions=Positions(time_ns=window.positions.time_ns[None]))

    def road(step: Any, size: int) -> Callable[[], object]:
        state: StreamState = network.start()
        state.absorb(network.step, part(tokens, 0, context), context)
        place = context

        def call() -> object:
            nonlocal place
            place = context if place + size > 4 * context else place
            state.absorb(step, part(tokens, place, place + size), size)
            place += size
            assert state.encoded is not None
            return network.predict(state.encoded)

        return call

    roads: dict[str, tuple[Callable[[], object], int]] = {
        "window computed anew, eager": (lambda: network.last(window), 1),
        "step, eager": (road(network.step, 1), 20),
        f"step of {BLOCK} tokens, eager": (road(network.step, BLOCK), 10),
    }
    kinds = [("ONNX Runtime", "onnx", ".onnx")] + ([] if quick else [("AOTInductor", "aotinductor", ".pt2")])
    for label, kind, suffix in kinds:
        for size in (1, BLOCK):
            path = folder / f"step{size}{suffix}"
            name = f"step, {label}" if size == 1 else f"step of {size} tokens, {label}"
            try:
                with torch.inference_mode(False):
                    parity = export_step(bundle, kind, path, block=size)
            except ServingError as error:
                print(f"{name}: not measured: {error}")
                continue
            print(f"{name}: parity {parity.largest:.1e} over {parity.steps} steps")
            roads[name] = (road(load_step(path, bundle, torch.device("cpu"), 1)[1], size), 20 if size == 1 else 10)
    if not quick:
        compiled = torch.compile(network.step, dynamic=False, fullgraph=True)
        roads["step, torch.compile"] = (road(compiled, 1), 20)
    return roads


@torch.inference_mode()
def steps(report: Report, quick: bool) -> None:
    """One prediction against the window."""
    bundle = make_bundle("small", 512)
    with tempfile.TemporaryDirectory() as folder:
        roads = step_roads(bundle, Path(folder), quick)
        calls = {name: call for name, (call, _) in roads.items()}
        repeats = {name: count for name, (_, count) in roads.items()}
        times = in_turns(calls, 12 if quick else 40, in_a_row=repeats)
    median = medians(times)
    for name, values in times.items():
        report.add(f"small: {name}, p50", 1e3 * median[name], "ms")
        report.add(f"small: {name}, p99", 1e3 * float(np.percentile(values, 99)), "ms")
    window = median["window computed anew, eager"]
    report.add("small: window / step, eager", window / median["step, eager"], "x", at_least=18)
    exported = {name: value for name, value in median.items() if name in ("step, ONNX Runtime", "step, AOTInductor")}
    if exported:
        fastest = min(exported, key=exported.__getitem__)
        report.add(f"small: window / {fastest}", window / exported[fastest], "x", at_least=38)
    for label in ("eager", "ONNX Runtime", "AOTInductor"):
        if f"step of {BLOCK} tokens, {label}" in median:
            ratio = median[f"step of {BLOCK} tokens, {label}"] / median[f"step, {label}"]
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
