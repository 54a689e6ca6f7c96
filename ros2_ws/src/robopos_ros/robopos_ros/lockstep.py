"""Plays a log through the node, the next message after the prediction, and compares number by number.

    python -m robopos_ros.lockstep BUNDLE LOG --last-s 20

The node runs as its own process over real DDS on this machine alone; the same messages go through an engine
here. What the node publishes must be what the engine predicts.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robopos.errors import RoboposError, ServingError
from robopos.logs import RawMessage, iter_messages
from robopos.serving import Engine
from robopos_ros.health import percentiles_ms
from robopos_ros.process import NodeProcess, free_domain
from robopos_ros.threads import use_one_thread

if TYPE_CHECKING:
    from robopos_ros.client import Client, Heard

PAUSE_S = 0.03  # after a message that no prediction answers: nothing tells that the node has taken it
PATIENCE_S = 10.0  # for a prediction


@dataclass
class Result:
    """What the comparison found."""

    messages: int = 0
    predictions: int = 0
    max_difference: float = 0.0
    tolerance: float = 0.0
    differences: list[str] = field(default_factory=list)  # what does not agree, in words
    latency_ms: dict[str, float] = field(default_factory=dict)  # publish to prediction received
    node_exit_code: int | None = None

    @property
    def agrees(self) -> bool:
        """Whether the node did what the engine does, and ended cleanly."""
        return not self.differences and self.predictions > 0 and self.node_exit_code == 0


def choose_messages(
    engine: Engine, log: Path, *, last_s: float | None = None, most: int | None = None
) -> list[RawMessage]:
    """The log's messages on the bundle's topics: of the last `last_s`, or the first `most`.

    Raises:
        ServingError: a stream's time is not in its messages, or nothing is left to play.
    """
    for stream in engine.inputs:
        if stream.clock != "header":
            raise ServingError(
                f"stream {stream.name} takes its time from the {stream.clock} clock, which differs between a "
                "log and a live node: numbers can be compared for streams with header stamps only"
            )
    messages = list(iter_messages(log, [stream.topic for stream in engine.inputs]))
    if last_s is not None and messages:
        from_ns = messages[-1].log_time_ns - round(last_s * 1e9)
        messages = [message for message in messages if message.log_time_ns >= from_ns]
    messages = messages[:most]
    if not messages:
        raise ServingError(f"{log}: no message to play")
    return messages


class Expected(NamedTuple):
    """What the node should publish after a message."""

    time_ns: int
    streams: dict[str, np.ndarray]  # values (H, columns); none when it should stay silent


class Reference:
    """The engine on this side: fed the same messages, asked after each."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._stream_of = {stream.topic: stream.name for stream in engine.inputs}
        layout = engine.bundle.layout
        self.horizons_ns = [round(horizon_s * 1e9) for horizon_s in layout.horizons_s]
        self.names = {
            stream: [layout.target_names[column].removeprefix(f"{stream}.") for column in columns]
            for stream, columns in engine.targets.items()
        }

    def take(self, message: RawMessage) -> Expected:
        """The prediction after this message, without streams that have a value that is not finite."""
        stream = self._stream_of[topic_of(message)]
        try:
            self.engine.push_raw(stream, message.data, message.log_time_ns, message.publish_time_ns)
        except RoboposError:  # the node refuses it too
            return Expected(0, {})
        prediction = self.engine.predict() if self.engine.advanced else None
        if prediction is None:
            return Expected(0, {})
        values = {name: prediction.values[:, columns] for name, columns in self.engine.targets.items()}
        return Expected(prediction.time_ns, {name: rows for name, rows in values.items() if np.isfinite(rows).all()})


def topic_of(message: RawMessage) -> str:
    """The topic as a bundle writes it."""
    return message.topic.lstrip("/")


def compare(
    engine: Engine, messages: Sequence[RawMessage], client: Client, tolerance: float, progress: bool = False
) -> Result:
    """Play in lock-step to a node that is connected already; stops at the first prediction that is missing."""
    result, reference = Result(tolerance=tolerance), Reference(engine)
    latencies_s = []
    for message in messages:
        wanted = reference.take(message)
        client.predictions.clear()
        sent_s = time.perf_counter()
        client.publish(topic_of(message), message.data)
        result.messages += 1
        where = f"message {result.messages} on {message.topic}"
        if not wanted.streams:
            client.spin_for(PAUSE_S)
        elif client.hear(len(wanted.streams), PATIENCE_S):
            latencies_s.append(client.predictions[-1].heard_s - sent_s)
            result.predictions += 1
        for heard in client.predictions:
            result.differences += differences(reference, wanted, heard, where, result)
        if missing := set(wanted.streams) - {heard.stream for heard in client.predictions}:
            result.differences.append(f"{where}: nothing on {', '.join(sorted(missing))} in {PATIENCE_S:g} s")
            break
        if progress and result.messages % 50 == 0:
            _say(f"{result.messages} of {len(messages)} messages, max difference {result.max_difference:.3g}")
    if latencies_s:
        result.latency_ms = percentiles_ms(sorted(latencies_s))
    return result


def differences(reference: Reference, wanted: Expected, heard: Heard, where: str, result: Result) -> list[str]:
    """What of one published prediction is not as expected; the numbers' difference goes into `result`."""
    where, message = f"{where}, stream {heard.stream}", heard.message
    if heard.stream not in wanted.streams:
        return [f"{where}: published, but the engine predicts nothing"]
    found = [
        ("names", list(message.joint_names), reference.names[heard.stream]),
        ("reference time", nanoseconds(message.header.stamp), wanted.time_ns),
        ("horizons", [nanoseconds(point.time_from_start) for point in message.points], reference.horizons_ns),
    ]
    wrong = [f"{where}: {what} {got}, expected {expected}" for what, got, expected in found if got != expected]
    if wrong:
        return wrong
    positions = np.array([point.positions for point in message.points])
    difference = float(np.abs(positions - wanted.streams[heard.stream]).max())
    result.max_difference = max(result.max_difference, difference)
    # Written so that NaN does not pass.
    return [] if difference <= result.tolerance else [f"{where}: values differ by {difference:.3g}"]


def nanoseconds(time: Any) -> int:
    """A Time or Duration message as a whole number."""
    return time.sec * 10**9 + time.nanosec


def run(
    bundle: Path,
    log: Path,
    *,
    last_s: float | None = None,
    most: int | None = None,
    device: str = "cpu",
    tolerance: float = 1e-5,
    progress: bool = False,
) -> Result:
    """Start the node, compare, stop it."""
    from robopos_ros.client import Client

    use_one_thread()
    engine = Engine.load(bundle, device=device)
    messages = choose_messages(engine, log, last_s=last_s, most=most)
    domain_id = free_domain()
    if progress:
        _say(f"{len(messages)} messages of {log}; starting the node in ROS domain {domain_id}")
    inputs = {stream.topic: stream.type for stream in engine.inputs}
    parameters = {
        "bundle": bundle.resolve(),
        "device": device,
        "min_context": 1,
        "publish_expired": True,
        "diagnostics_period_s": 0.2,
    }
    with NodeProcess(parameters, domain_id) as node, Client(inputs, list(engine.targets), domain_id) as client:
        try:
            client.wait_connected()
            result = compare(engine, messages, client, tolerance, progress)
            result.node_exit_code = node.stop(signal.SIGINT)
        except ServingError as error:
            raise ServingError(f"{error}; the node said: {node.output().strip() or 'nothing'}") from None
        if result.node_exit_code != 0:
            result.differences.append(f"the node ended with exit code {result.node_exit_code}: {node.output()}")
    return result


def _say(line: str) -> None:
    print(f"[lockstep] {line}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the node and the engine agree, 1 when not."""
    parser = argparse.ArgumentParser(prog="python -m robopos_ros.lockstep", description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, help="folder of the bundle")
    parser.add_argument("log", type=Path, help="MCAP log with the bundle's topics")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--last-s", type=float, help="play the last so many seconds of the log")
    part.add_argument("--first", type=int, metavar="COUNT", help="play the first so many messages")
    parser.add_argument("--device", default="cpu", help="torch device of both engines (default: cpu)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="largest difference allowed (default: 1e-5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    args = parser.parse_args(argv)
    try:
        result = run(
            args.bundle,
            args.log,
            last_s=args.last_s,
            most=args.first,
            device=args.device,
            tolerance=args.tolerance,
            progress=True,
        )
        if args.json is not None:
            args.json.write_text(json.dumps(asdict(result) | {"agrees": result.agrees}, indent=2) + "\n")
    except (RoboposError, OSError) as error:
        print(f"robopos_ros.lockstep: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"robopos_ros.lockstep: ROS 2 for Python is missing ({error}): install robopos[ros]", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    latency = ", ".join(f"{name} {value:.1f} ms" for name, value in result.latency_ms.items())
    _say(
        f"{result.messages} messages, {result.predictions} predictions compared, "
        f"max difference {result.max_difference:.3g}; publish to prediction: {latency or 'none'}"
    )
    for difference in result.differences[:5]:
        print(f"robopos_ros.lockstep: {difference}", file=sys.stderr)
    if not result.agrees and not result.differences:
        print("robopos_ros.lockstep: nothing was compared: the engine predicted nothing", file=sys.stderr)
    return 0 if result.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
