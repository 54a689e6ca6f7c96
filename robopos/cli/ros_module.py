"""What the commands that run `robopos_ros` share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from robopos.errors import ServingError


def run_module(module: str, arguments: Sequence[str]) -> NoReturn:
    """Let `python -m module` take this process over, so that signals and the exit code are its own.

    Raises:
        ServingError: ROS 2 for Python or robopos_ros is not installed.
    """
    if find_spec("rclpy") is None:
        raise ServingError(
            "ROS 2 for Python (rclpy) is not installed: pip install 'robopos[ros]' on x86-64 Linux, "
            "elsewhere source the set-up of a ROS 2 installation"
        )
    if find_spec("robopos_ros") is None:
        raise ServingError("the package robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
