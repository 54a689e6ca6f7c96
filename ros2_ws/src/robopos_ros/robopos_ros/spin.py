"""Running a node: which executor, and for how long."""

from __future__ import annotations

import threading

import rclpy
from rclpy.executors import Executor, SingleThreadedExecutor

from robopos_ros.node import Predictor

try:
    from rclpy.experimental.events_executor import EventsExecutor
except ImportError:  # before Jazzy
    EventsExecutor = None

POLL_S = 0.1  # an unbounded spin() may not see a signal


def spin(node: Predictor, stop: threading.Event) -> None:
    """Serve the node until `stop`.

    The events executor costs a third of the other one per message, but cannot hand over the middleware's
    stamps; so a bundle that needs them changes the executor.
    """
    while not stop.is_set() and rclpy.ok():
        with_stamps = node.needs_source_stamps
        executor: Executor = SingleThreadedExecutor() if EventsExecutor is None or with_stamps else EventsExecutor()
        executor.add_node(node)
        try:
            while not stop.is_set() and rclpy.ok() and node.needs_source_stamps == with_stamps:
                try:
                    executor.spin_once(timeout_sec=POLL_S)
                except ValueError as error:  # of rclpy's time source, for a /clock before 1970
                    said = f"a callback failed, the node goes on (a /clock before 1970?): {error}"
                    node.get_logger().error(said, throttle_duration_sec=5.0)
        finally:
            executor.remove_node(node)
            executor.shutdown()
