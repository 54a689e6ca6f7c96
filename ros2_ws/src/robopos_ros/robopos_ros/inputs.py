"""The subscriptions: serialized bytes from the middleware straight to the inference thread."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rclpy.qos import QoSProfile, QoSReliabilityPolicy

from robopos.errors import ServingError
from robopos.serving import Engine
from robopos_ros.health import InputHealth
from robopos_ros.inference import Received

if TYPE_CHECKING:
    from rclpy.lifecycle import LifecycleNode


def message_class(name: str) -> Any:
    """The class of a type name such as "sensor_msgs/msg/Imu".

    Raises:
        ServingError: the package is not installed, or has no such message.
    """
    package, _, rest = name.partition("/")
    short = rest.rpartition("/")[2]
    try:
        return getattr(importlib.import_module(f"{package}.msg"), short)
    except ImportError as error:
        raise ServingError(f"{name}: the ROS 2 package {package} is not installed ({error})") from None
    except AttributeError:
        raise ServingError(f"{name}: the ROS 2 package {package} has no message {short}") from None


def needs_source_stamps(engine: Engine) -> bool:
    """Whether a stream's time is the middleware's source stamp."""
    return any(stream.clock == "publish" for stream in engine.inputs)


class Inputs:
    """The subscriptions of one activation, on topics relative to the node's namespace."""

    def __init__(
        self,
        node: LifecycleNode,
        engine: Engine,
        health: dict[str, InputHealth],
        depth: int,
        put: Callable[[Received], None],
    ) -> None:
        self._node = node
        self._clock = node.get_clock()
        self._put = put
        self._health = health
        with_info = needs_source_stamps(engine)
        qos = QoSProfile(depth=depth, reliability=QoSReliabilityPolicy.RELIABLE)
        self._subscriptions = [
            node.create_subscription(
                message_class(stream.type),
                stream.topic,
                self._receiver_with_info(stream.name) if with_info else self._receiver(stream.name),
                qos,
                raw=True,
            )
            for stream in engine.inputs
        ]

    def _receiver(self, name: str) -> Callable[[bytes], None]:
        def receive(data: bytes) -> None:
            self._take(name, data, None)

        return receive

    def _receiver_with_info(self, name: str) -> Callable[[bytes, Any], None]:
        def receive(data: bytes, info: Any) -> None:
            self._take(name, data, info["source_timestamp"] or None)

        return receive

    def _take(self, name: str, data: bytes, publish_ns: int | None) -> None:
        monotonic_ns = time.monotonic_ns()
        self._health[name].receive(monotonic_ns)
        self._put(Received(name, data, self._clock.now().nanoseconds, publish_ns, monotonic_ns))

    def destroy(self) -> None:
        """Take the subscriptions down."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
