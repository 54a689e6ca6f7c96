"""The publishers of a log's messages, and when each message is due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.exceptions import InvalidTopicNameException
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.validate_full_topic_name import validate_full_topic_name
from rosgraph_msgs.msg import Clock
from trajectory_msgs.msg import JointTrajectory

from robopos.errors import ServingError
from robopos.logs import RawMessage, long_name
from robopos.stamps import NS_PER_S
from robopos_ros.messages import time_message
from robopos_ros.types import message_class

SETTLE_S = 0.5  # after the last new subscription
DEPTH = 1000  # messages that a slow subscriber may be behind
UNANSWERED_S = 5.0  # of lock-step without an answer, after which it is said what is waited for


class Player:
    """Speaks for the robot that recorded a log; to be used as a context manager.

    Args:
        messages: in the order of their log time.
        namespace: before each topic.
        clock_hz: of /clock; None publishes none.
        answers: the topic below which predictions are heard, for `lock_step`.

    Attributes:
        messages: those that can be published.
        left_out: topics that cannot, and why.
        published, answered: messages.
        latest_s: how late the latest message was.

    Raises:
        ServingError: a namespace that is none, a log whose time /clock cannot tell, or ROS 2 does not start.
    """

    def __init__(
        self, messages: Sequence[RawMessage], namespace: str, clock_hz: float | None, answers: str | None
    ) -> None:
        prefix = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
        if prefix and (problem := _name_problem(prefix)):
            raise ServingError(f"--namespace is {namespace!r}: {problem}")
        if clock_hz is not None and messages:
            try:
                time_message(messages[-1].log_time_ns)
            except OverflowError as error:
                raise ServingError(f"--clock: {error}") from None
        self._context = Context()
        try:
            rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
            self._node = rclpy.create_node("robopos_player", context=self._context)
        except RuntimeError as error:  # rcl's
            raise ServingError(f"ROS 2 does not start: {' '.join(str(error).split())}") from None
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._publishers: dict[str, Any] = {}
        self.left_out: list[str] = []
        self._make_publishers(messages, prefix)
        self.topics = list(self._publishers)
        self.messages = [message for message in messages if message.topic in self._publishers]
        self.published = self.answered = 0
        self.latest_s = 0.0
        self._clock_step_ns = None if clock_hz is None else round(NS_PER_S / clock_hz)
        self._clock = None if clock_hz is None else self._node.create_publisher(Clock, "/clock", 100)
        self._clock_told_ns: int | None = None
        self._answers_below = None if answers is None else answers.rstrip("/")
        self._answer_topics: dict[str, Any] = {}
        self._heard: set[str] = set()

    def _make_publishers(self, messages: Sequence[RawMessage], prefix: str) -> None:
        qos = QoSProfile(
            depth=DEPTH,
            reliability=QoSReliabilityPolicy.RELIABLE,
            durability=QoSDurabilityPolicy.VOLATILE,
        )
        for topic, (kind, encoding) in {m.topic: (m.type, m.encoding) for m in messages}.items():
            if encoding != "cdr":
                self.left_out.append(f"{topic}: its messages are {encoding}, ROS 2 takes cdr")
                continue
            name = f"{prefix}/{topic.strip('/')}"
            if problem := _name_problem(name):
                self.left_out.append(f"{topic}: {problem}")
                continue
            try:
                made = message_class(long_name(kind))
            except ServingError as error:
                self.left_out.append(f"{topic}: {error}")
                continue
            self._publishers[topic] = self._node.create_publisher(made, name, qos)

    def wait_for_subscriber(self, timeout_s: float, stop: threading.Event) -> bool:
        """Wait until somebody subscribes and no more come; whether there is anybody."""
        end_s, count, since_s = time.monotonic() + timeout_s, 0, 0.0
        while not stop.is_set():
            self._executor.spin_once(timeout_sec=0.05)
            self._find_answers()
            now_s = time.monotonic()
            subscribed = sum(publisher.get_subscription_count() for publisher in self._publishers.values())
            if subscribed != count:
                count, since_s = subscribed, now_s
            if count and now_s - since_s > SETTLE_S:
                return True
            if now_s > end_s:
                return False
        return False

    def paced(self, rate: float, stop: threading.Event) -> None:
        """Play once, each message when it is due."""
        first_ns, started_s = self.messages[0].log_time_ns, time.monotonic()
        for message in self.messages:
            due_s = started_s + (message.log_time_ns - first_ns) / NS_PER_S / rate
            while (left_s := due_s - time.monotonic()) > 0 and not stop.is_set():
                if self._clock_step_ns is not None:
                    self._tell_clock(message.log_time_ns - round(left_s * rate * NS_PER_S))
                    left_s = min(left_s, self._clock_step_ns / NS_PER_S / rate)
                time.sleep(min(left_s, 0.1))
            if stop.is_set():
                return
            self.latest_s = max(self.latest_s, time.monotonic() - due_s)
            self._publish(message)
        self._clock_told_ns = None

    def lock_step(self, patience_s: float, stop: threading.Event, say: Callable[[str], object]) -> None:
        """Play once, each message after the answer to the one before.

        An answer is a prediction on each of the topics that answered last time, or on any at first. When none comes
        for a while, `say` is told once what is waited for.
        """
        expected: set[str] = set()
        answered_s, told = time.monotonic(), False
        for message in self.messages:
            if stop.is_set():
                return
            self._find_answers()
            self._heard.clear()
            self._publish(message)
            end_s = time.monotonic() + patience_s
            while not stop.is_set() and not (self._heard and self._heard >= expected) and time.monotonic() < end_s:
                self._executor.spin_once(timeout_sec=0.02)
                if not told and not self._heard and time.monotonic() - answered_s > UNANSWERED_S:
                    say(self._waited_for())
                    told = True
            if self._heard:
                self.answered += 1
                expected = set(self._heard)
                answered_s = time.monotonic()
        self._clock_told_ns = None

    def _waited_for(self) -> str:
        none = f"no answer for {UNANSWERED_S:g} s"
        if not self._answer_topics:
            return (
                f"{none}: nobody publishes a JointTrajectory below {self._answers_below}: "
                "is the node active, and is that its name? (--lock-step TOPIC)"
            )
        told = f"{none} on {', '.join(self._answer_topics)}: it comes when the node has enough context"
        if self._clock is not None:
            return told
        return (
            f"{told}; without --clock the node may take the log's stamps for past: "
            "start it with use_sim_time and play with --clock, or set its publish_expired"
        )

    def _find_answers(self) -> None:
        """Subscribe to predictions as their topics appear."""
        if self._answers_below is None:
            return
        for topic, kinds in self._node.get_topic_names_and_types():
            name = topic.removeprefix(f"{self._answers_below}/")
            if name == topic or "/" in name or topic in self._answer_topics:
                continue
            if "trajectory_msgs/msg/JointTrajectory" in kinds:
                self._answer_topics[topic] = self._node.create_subscription(
                    JointTrajectory, topic, self._hearer(topic), QoSProfile(depth=DEPTH), raw=True
                )

    def _hearer(self, topic: str) -> Any:
        def hear(data: bytes) -> None:
            self._heard.add(topic)

        return hear

    def _publish(self, message: RawMessage) -> None:
        self._tell_clock(message.log_time_ns, always=True)
        self._publishers[message.topic].publish(message.data)
        self.published += 1

    def _tell_clock(self, now_ns: int, always: bool = False) -> None:
        if self._clock is None or self._clock_step_ns is None:
            return
        told_ns = self._clock_told_ns
        if told_ns is None or now_ns - told_ns >= self._clock_step_ns or (always and now_ns > told_ns):
            self._clock.publish(Clock(clock=time_message(now_ns)))
            self._clock_told_ns = now_ns

    def drain(self, timeout_s: float = 5.0) -> None:
        """Wait until subscribers have acknowledged what was published."""
        for publisher in self._publishers.values():
            publisher.wait_for_all_acked(rclpy.duration.Duration(seconds=timeout_s))

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)


def _name_problem(name: str) -> str:
    """Why the full name of a topic or a namespace is none, or nothing."""
    try:
        validate_full_topic_name(name)
    except InvalidTopicNameException as error:  # a second and a third line point at the place
        return f"no name in ROS 2 ({str(error).splitlines()[0].removeprefix('Invalid topic name: ').rstrip(':')})"
    return ""
