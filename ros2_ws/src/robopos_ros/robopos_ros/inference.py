"""The thread that owns the engine: callbacks hand messages over and never wait for a prediction."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from robopos.errors import RoboposError
from robopos.serving import Engine, Prediction
from robopos_ros.black_box import BlackBox, Message, NewContext
from robopos_ros.black_box import Published as Recorded
from robopos_ros.health import InputHealth, Samples
from robopos_ros.outputs import Published
from robopos_ros.parameters import Settings

MOST_WAITING = 10_000  # messages; more of them are older than any prediction is worth
ABSORB_AT = 256  # tokens that wait in the engine
STATS_PERIOD_S = 0.1  # between two copies of the engine's statistics, which cost as much as reading a message


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


class Forget(NamedTuple):
    """Stands between messages: what came before is forgotten."""

    reason: str


@dataclass
class Counts:
    """What became of the messages since activation."""

    admitted: int = 0  # messages that became tokens; each asks for a prediction
    published: int = 0
    skipped: int = 0  # predictions left out because more messages were waiting already, or the rate asks for fewer
    too_early: int = 0  # predictions not published: too little context yet
    stale: int = 0  # predictions not published: an input was silent for too long
    expired: int = 0  # predictions not published: the last horizon had passed
    not_finite: int = 0  # predictions with a stream left out: a value was NaN or infinite
    beyond_limits: int = 0  # predictions with a value outside the bundle's limits
    stamp_overflow: int = 0  # predictions not published, or not in the stream's own type: no stamp holds their time
    overrun: int = 0  # messages thrown away because too many were waiting; the context is forgotten then


class Inference:
    """Takes messages in order of receipt, predicts after each or at a rate, publishes what may be published.

    When several wait, all are taken and one prediction is made. A failure nobody foresaw ends the thread:
    `failure` says why, and the next activation starts a new one.

    Attributes:
        settings: may be exchanged while it runs.
        black_box: records, where there is one.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        inputs: Mapping[str, InputHealth],
        publish: Callable[[Prediction, str], Published],
        logger: Logger,
        now_ns: Callable[[], int],
        black_box: BlackBox | None = None,
    ) -> None:
        self._engine = engine
        self.settings = settings
        self._inputs = inputs
        self._publish = publish
        self._logger = logger
        self._now_ns = now_ns
        self.black_box = black_box
        # None only wakes the thread. Every message crosses here: a queue of C, not a Condition.
        self._queue: queue.SimpleQueue[Received | Forget | None] = queue.SimpleQueue()
        self._draining = threading.Lock()  # two that drain at once would part what belongs together
        self._stopping = False
        self._fresh: Received | None = None  # the newest token without a prediction
        self._waiting = 0  # tokens without a prediction
        self._next_tick_s = 0.0
        self._thread = threading.Thread(target=self._run, name="inference", daemon=False)
        self.counts = Counts()
        self.engine_time = Samples()
        self.receipt_to_publish = Samples()
        self.horizon_left_s = Samples()
        self.failure = ""
        self._busy_s = 0.0  # of the thread since activation
        self._engine_stats: dict[str, Any] = engine.stats.to_dict()
        self._stats_due_s: float | None = None  # None while the copy is what there is

    def start(self) -> None:
        """Begin to take messages."""
        self._thread.start()

    def put(self, message: Received) -> None:
        """Hand a message over; returns at once."""
        if self._queue.qsize() >= MOST_WAITING:
            self._throw_away()
        self._queue.put(message)

    def _throw_away(self) -> None:
        """Put into the place of all that waits that it is to be forgotten."""
        with self._draining:
            self.counts.overrun += sum(isinstance(item, Received) for item in self._drained())
            self._queue.put(Forget("backlog"))

    def forget(self, reason: str) -> None:
        """Let the engine forget what was handed over so far; returns at once."""
        self._queue.put(Forget(reason))

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        self.settings = settings
        self._next_tick_s = 0.0
        self._queue.put(None)

    def stop(self) -> None:
        """Finish the message at hand and end the thread; messages still waiting are dropped."""
        self._stopping = True
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def snapshot(self) -> dict[str, Any]:
        """Counts of the node and of the engine, not older than `STATS_PERIOD_S` while the engine is not busy."""
        left = self.horizon_left_s.ascending()
        return {
            **asdict(self.counts),
            "queued": self._queue.qsize(),
            "busy_ms": round(1e3 * self._busy_s),
            "engine_ms": self.engine_time.percentiles_ms(),
            "receipt_to_publish_ms": self.receipt_to_publish.percentiles_ms(),
            "horizon_left_ms": {"least": 1e3 * left[0], "p50": 1e3 * left[len(left) // 2]} if left else {},
            "engine": self._engine_stats,
        }

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                started_s = time.monotonic()
                self._step(batch)
                self._busy_s += time.monotonic() - started_s
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            self._logger.error(f"inference stopped, activate again to restart it:\n{traceback.format_exc()}")

    def _next_batch(self) -> list[Received | Forget] | None:
        """What came in; nothing when only a prediction is due, None at the end."""
        while not self._stopping:
            batch = self._taken()
            if batch or self._due():
                return batch
            self._copy_stats()
            due_s = [at_s for at_s in (self._stats_due_s, self._tick_s()) if at_s is not None]
            wait_s = max(0.0, min(due_s) - time.monotonic()) if due_s else None
            with suppress(queue.Empty):
                first = self._queue.get(timeout=wait_s)
                if first is not None and not self._stopping:
                    return [first, *self._taken()]
        return None

    def _taken(self) -> list[Received | Forget]:
        """All that waits, taken out."""
        with self._draining:
            return self._drained()

    def _drained(self) -> list[Received | Forget]:
        items: list[Received | Forget] = []
        with suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                if item is not None:
                    items.append(item)
        return items

    def _tick_s(self) -> float | None:
        return None if self._fresh is None else self._next_tick_s

    def _copy_stats(self) -> None:
        if self._stats_due_s is not None and time.monotonic() >= self._stats_due_s:
            self._engine_stats, self._stats_due_s = self._engine.stats.to_dict(), None

    def _due(self) -> bool:
        if self._fresh is None:
            return False
        return self.settings.trigger == "message" or time.monotonic() >= self._next_tick_s

    def _step(self, batch: list[Received | Forget]) -> None:
        for item in batch:
            if self._stopping:
                return
            if isinstance(item, Forget):
                self._forget(item.reason)
            elif self._push(item):
                self.counts.admitted += 1
                self._fresh, self._waiting = item, self._waiting + 1
                if self._engine.stats.backlog >= ABSORB_AT:
                    self._engine.absorb()
        if self._due():
            self._predict()
        if self._stats_due_s is None:
            self._stats_due_s = time.monotonic() + STATS_PERIOD_S
        self._copy_stats()

    def _forget(self, reason: str) -> None:
        self._engine.reset(reason)
        self.counts.skipped += self._waiting
        self._fresh, self._waiting = None, 0
        if self.black_box is not None:
            self.black_box.put(NewContext(reason))
        self._logger.warning(f"the context is forgotten: {reason}", throttle_duration_sec=1.0)

    def _push(self, message: Received) -> bool:
        """Whether the message became a token."""
        if self.black_box is not None:
            publish_ns = message.arrival_ns if message.publish_ns is None else message.publish_ns
            self.black_box.put(Message(message.name, message.data, message.arrival_ns, publish_ns))
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

    def _predict(self) -> None:
        newest, self._fresh = self._fresh, None
        assert newest is not None
        self.counts.skipped += self._waiting - 1
        self._waiting = 0
        if self.settings.trigger == "rate":
            period_s, now_s = 1 / self.settings.rate_hz, time.monotonic()
            self._next_tick_s += period_s
            if self._next_tick_s <= now_s:  # the grid was missed, or nothing came for a while: it begins anew
                self._next_tick_s = now_s + period_s
        started_s = time.perf_counter()
        prediction = self._engine.predict()
        self.engine_time.add(time.perf_counter() - started_s)
        if prediction is not None and self._may_publish(prediction):
            self._hand_on(prediction, newest)

    def _may_publish(self, prediction: Prediction) -> bool:
        settings = self.settings
        least = settings.min_context
        if not (self._engine.settled if least == 0 else self._engine.tokens >= least):
            self.counts.too_early += 1
            return False
        limit_s = settings.max_input_age_s
        now_ns = time.monotonic_ns()
        silent = [health.topic for health in self._inputs.values() if health.age_s(now_ns) > limit_s > 0]
        if silent:
            self.counts.stale += 1
            self._logger.warning(
                f"not publishing: nothing for more than {limit_s:g} s on {', '.join(silent)}",
                throttle_duration_sec=5.0,
            )
            return False
        left_s = float(prediction.horizons_s[-1]) - (self._now_ns() - prediction.time_ns) * 1e-9
        if left_s < 0:
            self.counts.expired += 1
            if not settings.publish_expired:
                self._logger.warning(
                    f"not publishing: the last horizon passed {-left_s:.3g} s ago by this node's clock "
                    "(for recorded messages set use_sim_time and play /clock, or set publish_expired)",
                    throttle_duration_sec=5.0,
                )
                return False
        self.horizon_left_s.add(left_s)
        return True

    def _hand_on(self, prediction: Prediction, newest: Received) -> None:
        published = self._publish(prediction, self.settings.limits)
        if published.trajectories:
            self.counts.published += 1
            self.receipt_to_publish.add((time.monotonic_ns() - newest.monotonic_ns) * 1e-9)
            if self.black_box is not None:
                self.black_box.put(Recorded(newest.arrival_ns, published.trajectories))
        if published.not_finite:
            self.counts.not_finite += 1
            self._logger.warning(
                f"left out of a prediction, not finite: {', '.join(published.not_finite)}",
                throttle_duration_sec=5.0,
            )
        if published.stamp_overflow:
            self.counts.stamp_overflow += 1
            self._logger.warning(
                f"not publishing: from {prediction.time_ns} ns on, the seconds do not fit the 32 bits of a stamp "
                "(a sensor with a wrong clock?)",
                throttle_duration_sec=5.0,
            )
        if published.beyond_limits:
            self.counts.beyond_limits += 1
            did = "left out of" if self.settings.limits == "stop" else "published in"
            self._logger.warning(
                f"{did} a prediction, beyond the bundle's limits: {', '.join(published.beyond_limits)}",
                throttle_duration_sec=5.0,
            )
