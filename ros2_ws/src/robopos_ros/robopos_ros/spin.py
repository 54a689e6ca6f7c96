"""Running a node: the executor, and signals that end it cleanly."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import rclpy
from rclpy.executors import Executor, SingleThreadedExecutor

from robopos_ros.node import Predictor

try:
    from rclpy.experimental.events_executor import EventsExecutor
except ImportError:  # before Jazzy
    EventsExecutor = None

POLL_S = 0.1  # an unbounded spin() may not see a signal


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set; a second signal ends the process the hard way."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop


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
                executor.spin_once(timeout_sec=POLL_S)
        finally:
            executor.remove_node(node)
            executor.shutdown()
