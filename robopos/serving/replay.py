"""A log through the engine, message by message, as if it were live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robopos.errors import LogError, ServingError
from robopos.logs import LogMessage, RawMessage, iter_messages, write_log
from robopos.serving.engine import Engine, Prediction

TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
PREFIX = "/predictor/prediction"  # where the ROS 2 node publishes under its default name


class Step(NamedTuple):
    """One message of the log, and the prediction after it: ``None`` for other topics and before enough history."""

    message: RawMessage
    prediction: Prediction | None
    latency_s: float


@dataclass
class ReplaySummary:
    """What a replay did."""

    messages: int = 0
    predictions: int = 0
    undecodable: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain types; latencies as percentiles in milliseconds."""
        known = np.asarray(self.latencies_s) * 1e3
        p50, p99 = np.percentile(known, [50, 99]).tolist() if len(known) else (None, None)
        return {
            "messages": self.messages,
            "predictions": self.predictions,
            "undecodable": self.undecodable,
            "latency_p50_ms": p50,
            "latency_p99_ms": p99,
        }


def replay(
    engine: Engine, paths: str | Path | list[str], *, last_s: float | None = None, settle: bool = True
) -> Iterator[Step]:
    """Push a log's messages in arrival order and predict after each that became a token.

    Args:
        last_s: predict only over the last so many seconds of the log; what comes before is pushed without.
        settle: predict only with as much history as evaluation asks for.

    Raises:
        LogError: the log cannot be read.
        ServingError: the log has none of the bundle's topics.
    """
    names = {"/" + stream.topic.lstrip("/"): stream.name for stream in engine.inputs}
    from_ns = None
    if last_s is not None:
        newest_ns = max((m.log_time_ns for m in iter_messages(paths)), default=0)
        from_ns = newest_ns - round(last_s * 1e9)
    found = False
    for message in iter_messages(paths):
        name = names.get("/" + message.topic.lstrip("/"))
        prediction, started = None, time.perf_counter()
        if name is not None:
            found = True
            # Bytes that are no message are counted by the engine; a robot would go on too.
            with suppress(LogError):
                engine.push_raw(name, message.data, message.log_time_ns, message.publish_time_ns)
            wanted = from_ns is None or message.log_time_ns >= from_ns
            if engine.advanced and wanted and (engine.settled or not settle):
                prediction = engine.predict()
            else:
                engine.absorb()
        yield Step(message, prediction, time.perf_counter() - started)
    if not found:
        raise ServingError(f"{paths}: none of the bundle's topics is there: {', '.join(names)}")


def replay_to_log(
    engine: Engine,
    paths: str | Path | list[str],
    out: str | Path,
    *,
    last_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplaySummary:
    """Write the log's messages (of the last ``last_s``) with the predictions beside them, as MCAP.

    Each stream that is predicted has a topic ``/predictor/prediction/<stream>`` of JointTrajectory: header.stamp is the
    reference time, joint_names the fields, time_from_start the horizons.
    """
    summary = ReplaySummary()

    def messages() -> Iterator[LogMessage]:
        started = False
        for step in replay(engine, paths, last_s=last_s):
            summary.messages += 1
            if progress is not None:
                progress(summary.messages)
            started = started or last_s is None or step.prediction is not None
            if not started:
                continue
            raw = step.message
            yield LogMessage(raw.topic, raw.type, raw.log_time_ns, raw.data, raw.publish_time_ns, raw.schema)
            if step.prediction is not None:
                summary.predictions += 1
                summary.latencies_s.append(step.latency_s)
                yield from trajectories(engine, step.prediction, raw.log_time_ns)

    write_log(out, messages())
    summary.undecodable = sum(stats.undecodable for stats in engine.stats.streams.values())
    return summary


def trajectories(engine: Engine, prediction: Prediction, log_time_ns: int) -> Iterator[LogMessage]:
    """One JointTrajectory a predicted stream; a stream with a value that is not finite gives none."""
    for name, columns in engine.targets.items():
        values = prediction.values[:, columns]
        if not np.isfinite(values).all():
            continue
        points = [
            {"positions": row.tolist(), "time_from_start": round(horizon_s * 1e9)}
            for row, horizon_s in zip(values, prediction.horizons_s.tolist(), strict=True)
        ]
        content = {
            "header": {"stamp": prediction.time_ns, "frame_id": ""},
            "joint_names": [prediction.names[column].removeprefix(f"{name}.") for column in columns],
            "points": points,
        }
        yield LogMessage(f"{PREFIX}/{name}", TRAJECTORY, log_time_ns, content)
