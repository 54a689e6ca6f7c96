"""A log through the engine, message by message, as if it were live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robopos.arrays import Floats
from robopos.errors import LogError, ServingError
from robopos.logs import LogMessage, RawMessage, iter_messages, topic_key, write_log
from robopos.serving.engine import Engine, Prediction
from robopos.serving.steps import EAGER_BLOCKS
from robopos.serving.trajectory import TOPIC_PREFIX, Trajectories
from robopos.stamps import LONGEST_S

LEAST_RATE, MOST_RATE = 1e-3, 1e6  # times as fast as recorded
HISTOGRAM_MS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Step(NamedTuple):
    """One message of the log, and the prediction after it: ``None`` for other topics and before enough history.

    ``token`` is the number of the token that the message became, as evaluation counts them, ``None`` where it became
    none. ``skipped`` says that a prediction was left out because the next message was due already.
    """

    message: RawMessage
    prediction: Prediction | None
    latency_s: float
    token: int | None = None
    skipped: bool = False


@dataclass
class ReplaySummary:
    """What a replay did: the topics it met, predictions by their token's number, and what each message took."""

    messages: int = 0
    predictions: int = 0
    skipped: int = 0
    undecodable: int = 0
    latencies_s: list[float] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    tokens: list[int] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def histogram(self) -> list[tuple[float | None, int]]:
        """Messages by latency: (upper bound in ms, count), the last without a bound."""
        place = np.searchsorted(HISTOGRAM_MS, np.asarray(self.latencies_s) * 1e3)
        counts = np.bincount(place, minlength=len(HISTOGRAM_MS) + 1).tolist()
        return list(zip([*HISTOGRAM_MS, None], counts, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain types; latencies as percentiles in milliseconds."""
        known = np.asarray(self.latencies_s) * 1e3
        p50, p99 = np.percentile(known, [50, 99]).tolist() if len(known) else (None, None)
        return {
            "messages": self.messages,
            "predictions": self.predictions,
            "skipped": self.skipped,
            "undecodable": self.undecodable,
            "latency_p50_ms": p50,
            "latency_p99_ms": p99,
            "latency_histogram_ms": [list(row) for row in self.histogram()],
        }


class Pace:
    """Waits until each message is due: log time, ``rate`` times as fast.

    Raises:
        ServingError: a rate out of range.
    """

    def __init__(self, rate: float) -> None:
        if not LEAST_RATE <= rate <= MOST_RATE:
            raise ServingError(f"rate is {rate:g}, must be from {LEAST_RATE:g} to {MOST_RATE:g} (1 is real time)")
        self._rate = rate
        self._first_ns: int | None = None
        self._started_s = 0.0

    def left_s(self, log_time_ns: int) -> float:
        """Seconds until it is due, negative when it is late; the first message is due at once."""
        if self._first_ns is None:
            self._first_ns, self._started_s = log_time_ns, time.monotonic()
        return (log_time_ns - self._first_ns) / 1e9 / self._rate - (time.monotonic() - self._started_s)

    def wait(self, log_time_ns: int) -> None:
        """Return when it is due."""
        left_s = self.left_s(log_time_ns)
        if left_s > 0:
            time.sleep(left_s)


def replay(
    engine: Engine,
    paths: str | Path | list[str],
    *,
    last_s: float | None = None,
    settle: bool = True,
    rate: float | None = None,
) -> Iterator[Step]:
    """Push a log's messages in arrival order and predict after each that became a token.

    Args:
        last_s: predict only over the last so many seconds of the log; what comes before is pushed without.
        settle: predict only with as much history as evaluation asks for.
        rate: so many times as fast as the log was recorded, and a prediction is left out when the next message is due
            already, as a robot would; ``None`` is as fast as it can, with every prediction.

    Raises:
        LogError: the log cannot be read.
        ServingError: the log has none of the bundle's topics, or a rate or a ``last_s`` out of range.
    """
    names = {topic_key(stream.topic): stream.name for stream in engine.inputs}
    pace = None if rate is None else Pace(rate)
    from_ns = None
    if last_s is not None:
        if not 0 < last_s < LONGEST_S:
            raise ServingError(f"last_s is {last_s:g}, must be a time > 0 in s and below {LONGEST_S:g}")
        newest_ns = max((m.log_time_ns for m in iter_messages(paths)), default=0)
        from_ns = newest_ns - round(last_s * 1e9)
    found, tokens = False, 0
    for message, following in _with_next(iter_messages(paths)):
        name = names.get(topic_key(message.topic))
        wanted = from_ns is None or message.log_time_ns >= from_ns
        if pace is not None and wanted:
            pace.wait(message.log_time_ns)
        prediction, token, skipped, started = None, None, False, time.perf_counter()
        if name is not None:
            found = True
            # Bytes that are no message are counted by the engine; a robot would go on too.
            with suppress(LogError):
                engine.push_raw(name, message.data, message.log_time_ns, message.publish_time_ns)
            asked = engine.advanced and wanted and (engine.settled or not settle)
            if engine.advanced:
                token, tokens = tokens, tokens + 1
            skipped = asked and pace is not None and following is not None and pace.left_s(following) <= 0
            if asked and not skipped:
                prediction = engine.predict()
            elif not asked and engine.stats.backlog >= min(EAGER_BLOCKS[-1], engine.max_backlog):
                engine.absorb()
        yield Step(message, prediction, time.perf_counter() - started, token, skipped)
    if not found:
        raise ServingError(f"{paths}: none of the bundle's topics is there: /{', /'.join(names)}")


def _with_next(messages: Iterable[RawMessage]) -> Iterator[tuple[RawMessage, int | None]]:
    """Each message with the log time of the one after it."""
    before: RawMessage | None = None
    for message in messages:
        if before is not None:
            yield before, message.log_time_ns
        before = message
    if before is not None:
        yield before, None


def replay_to_log(
    engine: Engine,
    paths: str | Path | list[str],
    out: str | Path,
    *,
    last_s: float | None = None,
    rate: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplaySummary:
    """Write the log's messages (of the last ``last_s``) with the predictions beside them, as MCAP.

    Predictions that stand in the log already, on the topics named below, are left out.
    Each stream that is predicted has a topic ``/predictor/prediction/<stream>`` of JointTrajectory: header.stamp is the
    reference time, joint_names the fields, time_from_start the horizons.
    """
    summary, trajectories = ReplaySummary(), Trajectories(engine.bundle.layout)

    def messages() -> Iterator[LogMessage | RawMessage]:
        started = False
        for step in replay(engine, paths, last_s=last_s, rate=rate):
            summary.messages += 1
            summary.topics.add(topic_key(step.message.topic))
            summary.skipped += step.skipped
            if progress is not None:
                progress(summary.messages)
            started = started or last_s is None or step.prediction is not None
            if not started:
                continue
            raw = step.message
            if raw.topic.startswith(f"{TOPIC_PREFIX}/"):
                continue  # a node's recording: the predictions made here take the place of those in it
            yield raw
            if step.prediction is not None and step.token is not None:
                summary.predictions += 1
                summary.latencies_s.append(step.latency_s)
                summary.tokens.append(step.token)
                summary.values.append(step.prediction.values)
                yield from trajectories.of(step.prediction, raw.log_time_ns)

    write_log(out, messages())
    summary.undecodable = sum(stats.undecodable for stats in engine.stats.streams.values())
    return summary
