"""The thread that owns the engine: callbacks hand messages over and never wait for a prediction."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from robopos.errors import RoboposError
from robopos.serving import Engine, Prediction
from robopos_ros.health import InputHealth, Latencies
from robopos_ros.parameters import Settings


class Logger(Protocol):
    """The part of rclpy's logger that is used here."""

    def warning(self, message: str, **kwargs: Any) -> bool: ...

    def error(self, message: str, **kwargs: Any) -> bool: ...


class Received(NamedTuple):
    """A message as it came in."""

    name: str
    data: bytes
    arrival_ns: int  # the node's clock at receipt
    publish_ns: int | None  # the middleware's source stamp, where it is asked for
    monotonic_ns: int


class Published(NamedTuple):
    """What became of one prediction's streams."""

    streams: int
    not_finite: tuple[str, ...]  # names of values for whose sake their stream was left out


@dataclass
class Counts:
    """What became of the messages since activation."""

    admitted: int = 0  # messages that became tokens; each asks for a prediction
    published: int = 0
    skipped: int = 0  # predictions left out because more messages were waiting already
    too_early: int = 0  # predictions not published: too little context yet
    stale: int = 0  # predictions not published: an input was silent for too long
    not_finite: int = 0  # predictions with a stream left out: a value was NaN or infinite


class Inference:
    """Takes messages in order of receipt, predicts after each, publishes what may be published.

    When several wait, all are taken and one prediction is made. A failure nobody foresaw ends the thread:
    `failure` says why, and the next activation starts a new one.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        inputs: Mapping[str, InputHealth],
        publish: Callable[[Prediction], Published],
        logger: Logger,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._inputs = inputs
        self._publish = publish
        self._logger = logger
        self._queue: list[Received] = []
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="inference", daemon=False)
        self.counts = Counts()
        self.engine_time = Latencies()
        self.receipt_to_publish = Latencies()
        self.failure = ""
        self._engine_stats: dict[str, Any] = engine.stats.to_dict()

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    def put(self, message: Received) -> None:
        """Hand a message over; returns at once."""
        with self._condition:
            self._queue.append(message)
            self._condition.notify()

    def stop(self) -> None:
        """Finish the step at hand and end the thread; messages still waiting are dropped."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def snapshot(self) -> dict[str, Any]:
        """Counts of the node and of the engine, as of the last step."""
        with self._condition:
            waiting = len(self._queue)
        return {
            **asdict(self.counts),
            "queued": waiting,
            "engine_ms": self.engine_time.percentiles_ms(),
            "receipt_to_publish_ms": self.receipt_to_publish.percentiles_ms(),
            "engine": self._engine_stats,
        }

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._step(batch)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            self._logger.error(f"inference stopped, activate again to restart it:\n{traceback.format_exc()}")

    def _next_batch(self) -> list[Received]:
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._stopping)
            if self._stopping:
                return []
            batch, self._queue = self._queue, []
            return batch

    def _step(self, batch: list[Received]) -> None:
        admitted = [message for message in batch if self._push(message)]
        if admitted:
            self.counts.admitted += len(admitted)
            self.counts.skipped += len(admitted) - 1
            started_s = time.perf_counter()
            prediction = self._engine.predict()
            self.engine_time.add(time.perf_counter() - started_s)
            if prediction is not None and self._may_publish():
                self._hand_on(prediction, admitted[-1])
        self._engine_stats = self._engine.stats.to_dict()

    def _push(self, message: Received) -> bool:
        """Whether the message became a token."""
        try:
            self._engine.push_raw(
                message.name, message.data, arrival_ns=message.arrival_ns, publish_ns=message.publish_ns
            )
        except RoboposError as error:
            health = self._inputs[message.name]
            health.refuse(str(error))
            self._logger.warning(
                f"refused {len(message.data)} bytes on {health.topic} ({health.refused} messages so far): {error}",
                throttle_duration_sec=5.0,
            )
            return False
        return self._engine.advanced

    def _may_publish(self) -> bool:
        least = self._settings.min_context
        if not (self._engine.settled if least == 0 else self._engine.tokens >= least):
            self.counts.too_early += 1
            return False
        limit_s = self._settings.max_input_age_s
        now_ns = time.monotonic_ns()
        silent = [health.topic for health in self._inputs.values() if health.age_s(now_ns) > limit_s > 0]
        if silent:
            self.counts.stale += 1
            self._logger.warning(
                f"not publishing: nothing for more than {limit_s:g} s on {', '.join(silent)}",
                throttle_duration_sec=5.0,
            )
        return not silent

    def _hand_on(self, prediction: Prediction, newest: Received) -> None:
        published = self._publish(prediction)
        if published.streams:
            self.counts.published += 1
            self.receipt_to_publish.add((time.monotonic_ns() - newest.monotonic_ns) * 1e-9)
        if published.not_finite:
            self.counts.not_finite += 1
            self._logger.warning(
                f"left out of a prediction, not finite: {', '.join(published.not_finite)}",
                throttle_duration_sec=5.0,
            )
