"""The other side of the node: publishes its inputs, hears its predictions and diagnostics, asks for transitions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from robopos.errors import ServingError
from robopos_ros.process import private_environment
from robopos_ros.types import message_class

TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "shutdown": Transition.TRANSITION_UNCONFIGURED_SHUTDOWN,
}


class Heard(NamedTuple):
    """A prediction as it came back."""

    stream: str
    message: JointTrajectory
    heard_s: float  # time.perf_counter()


class Client:
    """Speaks to one node `predictor` in a domain of its own; to be used as a context manager.

    Args:
        inputs: type name of each topic to publish on.
        streams: streams whose predictions are heard.
        domain_id: the node's.
        namespace: the node's and its topics'; empty or such as "/left".
    """

    def __init__(self, inputs: Mapping[str, str], streams: list[str], domain_id: int, namespace: str = "") -> None:
        self.domain_id = domain_id
        os.environ.update(private_environment(domain_id))
        self._context = Context()
        rclpy.init(args=[], context=self._context, domain_id=domain_id)
        self._node = rclpy.create_node("robopos_client", context=self._context)
        self._namespace, self._name = namespace, f"{namespace}/predictor"
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        qos = QoSProfile(depth=1000)  # reliable, keep last
        self._publishers = {topic: self.publisher(topic, kind, qos) for topic, kind in inputs.items()}
        self.predictions: list[Heard] = []
        self._streams = streams
        for stream in streams:
            topic = f"{self._name}/prediction/{stream}"
            self._node.create_subscription(JointTrajectory, topic, self._keeper(stream), qos)
        self._listened: list[str] = []
        self.diagnostics: DiagnosticArray | None = None  # the newest
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._keep_diagnostics, 10)
        self._change = self._node.create_client(ChangeState, f"{self._name}/change_state")
        self._set = self._node.create_client(SetParameters, f"{self._name}/set_parameters")
        self._reset = self._node.create_client(Trigger, f"{self._name}/reset")
        self._get = self._node.create_client(GetState, f"{self._name}/get_state")

    def _keeper(self, stream: str) -> Callable[[JointTrajectory], None]:
        def keep(message: JointTrajectory) -> None:
            self.predictions.append(Heard(stream, message, time.perf_counter()))

        return keep

    def _keep_diagnostics(self, message: DiagnosticArray) -> None:
        self.diagnostics = message

    def publisher(self, topic: str, kind: str, qos: QoSProfile) -> Publisher:
        """One more publisher, in the node's namespace."""
        return self._node.create_publisher(message_class(kind), f"{self._namespace}/{topic}", qos)

    def drop(self, publisher: Publisher) -> None:
        """Take a publisher down."""
        self._node.destroy_publisher(publisher)

    def listen(self, topic: str, kind: str) -> list[Any]:
        """A list that grows with the messages on a topic below the node's own name."""
        return self.listen_at(f"{self._name}/{topic}", kind)

    def listen_at(self, topic: str, kind: str) -> list[Any]:
        """A list that grows with the messages on a topic."""
        heard: list[Any] = []
        self._listened.append(topic)
        self._node.create_subscription(message_class(kind), topic, heard.append, QoSProfile(depth=1000))
        return heard

    def subscribe_raw(self, topic: str, kind: str, take: Callable[[bytes], None]) -> None:
        """Have the serialized bytes of a topic."""

        def receive(data: bytes) -> None:  # rclpy counts a callback's arguments
            take(data)

        self._node.create_subscription(message_class(kind), topic, receive, QoSProfile(depth=1000), raw=True)

    def publish(self, topic: str, data: bytes) -> None:
        """Send serialized bytes as they are."""
        self._publishers[topic].publish(data)

    def spin_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Serve until `done` or the time is over; whether it is done."""
        end_s = time.monotonic() + timeout_s
        while not done():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self._executor.spin_once(timeout_sec=min(left_s, 0.1))
        return True

    def spin_once(self, timeout_s: float) -> None:
        """Serve one thing, or wait for one."""
        self._executor.spin_once(timeout_sec=timeout_s)

    def connected_to(self, topic: str) -> bool:
        """Whether somebody hears what is published on one of the topics."""
        return self._publishers[topic].get_subscription_count() > 0

    def spin_for(self, duration_s: float) -> None:
        """Serve for a while."""
        self.spin_until(lambda: False, duration_s)

    def hear(self, count: int, timeout_s: float) -> bool:
        """Serve until so many predictions are there; whether they came in time."""
        return self.spin_until(lambda: len(self.predictions) >= count, timeout_s)

    def state(self, timeout_s: float = 20.0) -> str:
        """The node's lifecycle state, by its service."""
        return self._call(self._get, GetState.Request(), timeout_s).current_state.label

    def change(self, transition: str, timeout_s: float = 60.0) -> bool:
        """Ask for a transition; whether it succeeded."""
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[transition]))
        return self._call(self._change, request, timeout_s).success

    def now_ns(self) -> int:
        """The clock of this side."""
        return int(self._node.get_clock().now().nanoseconds)

    def reset(self, timeout_s: float = 20.0) -> tuple[bool, str]:
        """Ask for the context to be forgotten; whether that will be, and what was said."""
        answer = self._call(self._reset, Trigger.Request(), timeout_s)
        return answer.success, answer.message

    def set_parameter(self, name: str, value: Any, timeout_s: float = 20.0) -> str:
        """Set one of the node's parameters; why it was refused, or nothing."""
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        result = self._call(self._set, request, timeout_s).results[0]
        return "" if result.successful else result.reason

    def wait_connected(self, timeout_s: float = 60.0, names: Mapping[str, str] | None = None) -> None:
        """Wait until the active node says that it hears every topic and is heard.

        Until both ends of a connection know of it, what one of them sends is lost. `names` are the node's own for
        topics that it remaps.

        Raises:
            ServingError: it did not come to that in time.
        """

        inputs = {f"{self._name}: {(names or {}).get(topic, topic)}" for topic in self._publishers}

        def connected() -> bool:
            array, self.diagnostics = self.diagnostics, None
            if array is None:
                return False
            told = {status.name: {v.key: v.value for v in status.values} for status in array.status}
            if told.get(self._name, {}).get("state") != "active":
                return False
            heard = all(told[self._name].get(f"listeners.{stream}") != "0" for stream in self._streams)
            # Where the node cannot tell (Humble) what this side knows must do.
            hears = all(told.get(name, {}).get("connected", "1") != "0" for name in inputs)
            matched = all(publisher.get_subscription_count() > 0 for publisher in self._publishers.values())
            return heard and hears and matched

        if not self.spin_until(connected, timeout_s):
            raise ServingError(f"the node did not become active, hear the inputs and be heard within {timeout_s:g} s")

    def wait_heard(self, timeout_s: float = 60.0) -> None:
        """Wait until everything that `listen` was asked for has a publisher that knows of it.

        Raises:
            ServingError: it did not come to that in time.
        """

        def heard() -> bool:
            return all(self._node.count_publishers(topic) > 0 for topic in self._listened)

        if not self.spin_until(heard, timeout_s):
            raise ServingError(f"nobody publishes {', '.join(self._listened)}")
        self.spin_for(0.3)

    def report(self, name: str, good: Callable[[DiagnosticStatus], bool], timeout_s: float = 20.0) -> DiagnosticStatus:
        """The first status of this name that is good, of those that come from now on.

        Raises:
            ServingError: none was in time; it tells the last one.
        """
        last: list[DiagnosticStatus] = []

        def found() -> bool:
            if self.diagnostics is None:
                return False
            last[:] = [status for status in self.diagnostics.status if status.name == name]
            self.diagnostics = None
            return bool(last) and good(last[0])

        self.diagnostics = None
        if not self.spin_until(found, timeout_s):
            raise ServingError(f"no such report of {name} within {timeout_s:g} s; the last: {last}")
        return last[0]

    def node_values(self, key: str, good: Callable[[str], bool], timeout_s: float = 20.0) -> str:
        """A value of the node's own status, as soon as it is good."""
        report = self.report(self._name, lambda s: any(v.key == key and good(v.value) for v in s.values), timeout_s)
        return next(v.value for v in report.values if v.key == key)

    def _call(self, client: Any, request: Any, timeout_s: float) -> Any:
        if not self.spin_until(client.service_is_ready, timeout_s):
            raise ServingError(f"the node offered no {client.srv_name} within {timeout_s:g} s")
        future = client.call_async(request)
        if not self.spin_until(future.done, timeout_s):
            raise ServingError(f"{client.srv_name} did not answer within {timeout_s:g} s")
        return future.result()

    def close(self) -> None:
        """Leave the domain."""
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
