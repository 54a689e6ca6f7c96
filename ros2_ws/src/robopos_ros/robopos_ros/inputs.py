"""The subscriptions: serialized bytes from the middleware straight to the inference thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rclpy.qos import QoSPolicyKind, QoSProfile, QoSReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from robopos.errors import ServingError
from robopos.logs import long_name
from robopos.sequences import InputStream
from robopos.serving import Engine
from robopos.stamps import NS_PER_S
from robopos_ros.frames import Frames
from robopos_ros.health import InputHealth
from robopos_ros.inference import Inference, Received
from robopos_ros.parameters import Settings
from robopos_ros.types import message_class

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

if TYPE_CHECKING:
    from rclpy.lifecycle import LifecycleNode

RELIABLE, BEST_EFFORT = QoSReliabilityPolicy.RELIABLE, QoSReliabilityPolicy.BEST_EFFORT
GRAPH_PERIOD_S = 1.0  # who publishes what is asked for so often, and at once after an event of incompatible QoS


def needs_source_stamps(engine: Engine) -> bool:
    """Whether a stream's time is the middleware's source stamp."""
    return any(stream.clock == "publish" for stream in engine.inputs)


class Offer(NamedTuple):
    """One publisher of a topic, as the graph tells of it."""

    node: str
    type: str
    reliable: bool


def pick_reliability(asked: str, offers: Sequence[Offer], now: QoSReliabilityPolicy) -> QoSReliabilityPolicy:
    """What to subscribe with: `auto` is reliable where all publishers offer it; without any, it stays as it is."""
    if asked != "auto":
        return RELIABLE if asked == "reliable" else BEST_EFFORT
    if not offers:
        return now
    return RELIABLE if all(offer.reliable for offer in offers) else BEST_EFFORT


class Arrivals:
    """Arrival stamps that do not go back, unless the clock steps back by more than `max_step_s`."""

    def __init__(self, max_step_s: float) -> None:
        self._max_step_ns = round(max_step_s * NS_PER_S)
        self._newest_ns: int | None = None

    def take(self, now_ns: int) -> tuple[int, bool]:
        """The stamp, and whether the clock stepped back so far that what came before is another story."""
        newest_ns = self._newest_ns
        stepped = newest_ns is not None and newest_ns - now_ns > self._max_step_ns
        if newest_ns is not None and not stepped:
            now_ns = max(now_ns, newest_ns)
        self._newest_ns = now_ns
        return now_ns, stepped

    def forget(self) -> None:
        """The clock was set: any stamp may follow."""
        self._newest_ns = None


class Inputs:
    """The subscriptions of one activation, on topics relative to the node's namespace.

    Raises:
        ServingError: one of them cannot be made; there are none then.
    """

    def __init__(
        self,
        node: LifecycleNode,
        engine: Engine,
        health: dict[str, InputHealth],
        settings: Settings,
        inference: Inference,
    ) -> None:
        self._inference = inference
        self._now = node.get_clock().now
        self.arrivals = Arrivals(engine.bundle.layout.max_gap_s)
        with_info = needs_source_stamps(engine)
        self._inputs: list[_Input] = []
        for stream in engine.inputs:
            known = health[stream.name]
            receive = self._receiver(stream, known, with_info)
            try:
                self._inputs.append(_Input(node, stream, known, settings, receive))
            except Exception as error:  # rclpy's, for an override of QoS that makes no sense
                self.destroy()
                raise ServingError(f"no subscription to {known.topic}: {type(error).__name__}: {error}") from error

    def _receiver(self, stream: InputStream, health: InputHealth, with_info: bool) -> Callable[..., None]:
        frames = Frames.of(stream)

        def take(data: bytes, publish_ns: int | None = None) -> None:
            monotonic_ns = time.monotonic_ns()
            health.receive(monotonic_ns)
            other = None if frames is None else frames.other(data)
            if other is not None:
                health.other_frames, health.other_frame = health.other_frames + 1, other
            arrival_ns, stepped = self.arrivals.take(self._now().nanoseconds)
            if stepped:
                self._inference.forget("the node's clock stepped back")
            self._inference.put(Received(stream.name, data, arrival_ns, publish_ns, monotonic_ns))

        def receive(data: bytes) -> None:  # rclpy counts a callback's arguments
            take(data)

        def receive_with_info(data: bytes, info: Any) -> None:
            take(data, info["source_timestamp"] or None)

        return receive_with_info if with_info else receive

    def refresh(self) -> None:
        """Look at who publishes, where that is due, and subscribe anew where the reliability no longer fits."""
        for each in self._inputs:
            each.refresh()

    def destroy(self) -> None:
        """Take the subscriptions down."""
        for each in self._inputs:
            each.unsubscribe()
        self._inputs.clear()


class _Input:
    """One subscription, made anew when publishers offer another reliability."""

    def __init__(
        self,
        node: LifecycleNode,
        stream: InputStream,
        health: InputHealth,
        settings: Settings,
        receive: Callable[..., None],
    ) -> None:
        self._node, self._stream, self._health, self._receive = node, stream, health, receive
        self._settings = settings
        self._looked_s = -GRAPH_PERIOD_S
        self._incompatible = False
        # The graph may know publishers before the first subscription does.
        topic = node.resolve_topic_name(stream.topic)
        self._reliability = pick_reliability(settings.qos_reliability, self._offers(topic), RELIABLE)
        self._subscription = self._subscribe()

    def _subscribe(self) -> Any:
        self._health.reliability = "reliable" if self._reliability == RELIABLE else "best effort"
        return self._node.create_subscription(
            message_class(self._stream.type),
            self._stream.topic,
            self._receive,
            QoSProfile(depth=self._settings.qos_depth, reliability=self._reliability),
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=self._note_incompatible),
            qos_overriding_options=QoSOverridingOptions([QoSPolicyKind.DEPTH, QoSPolicyKind.DURABILITY]),
            raw=True,
        )

    def _note_incompatible(self, event: Any) -> None:
        self._incompatible = True  # not in the event's own callback: the subscription that told is to be destroyed

    def _offers(self, topic: str) -> list[Offer]:
        """Publishers in the stream's own type; the others go into the health."""
        offers = [
            Offer(
                f"{info.node_namespace.rstrip('/')}/{info.node_name}",
                long_name(info.topic_type),
                info.qos_profile.reliability != BEST_EFFORT,
            )
            for info in self._node.get_publishers_info_by_topic(topic)
        ]
        ours = [offer for offer in offers if offer.type == long_name(self._stream.type)]
        self._health.publishers = tuple(sorted(offer.node for offer in ours))
        self._health.other_types = tuple(sorted({offer.type for offer in offers} - {offer.type for offer in ours}))
        return ours

    def refresh(self) -> None:
        now_s = time.monotonic()
        if hasattr(self._subscription, "get_publisher_count"):  # not in Humble
            self._health.connected = self._subscription.get_publisher_count()
        if not self._incompatible and now_s - self._looked_s < GRAPH_PERIOD_S:
            return
        self._incompatible, self._looked_s = False, now_s
        offers = self._offers(self._subscription.topic_name)
        reliability = pick_reliability(self._settings.qos_reliability, offers, self._reliability)
        if reliability == self._reliability:
            return
        self._reliability = reliability
        self.unsubscribe()
        self._subscription = self._subscribe()
        self._node.get_logger().info(
            f"subscribed anew to {self._subscription.topic_name}, {self._health.reliability}, as its publishers offer"
        )

    def unsubscribe(self) -> None:
        self._node.destroy_subscription(self._subscription)
