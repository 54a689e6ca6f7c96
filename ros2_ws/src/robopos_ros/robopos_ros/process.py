"""The node as a process of its own on a private network: 127.0.0.1 and a domain that nobody uses."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from robopos.errors import ServingError

PROFILE = Path(__file__).with_name("loopback.xml")
MOST_DOMAIN = 232  # the ports of a higher one are beyond 65535


def check_domain() -> None:
    """Look at ROS_DOMAIN_ID before the middleware does, which ends the process for one that is too high.

    Raises:
        ServingError: it is no domain.
    """
    text = os.environ.get("ROS_DOMAIN_ID", "")
    if text and not (text.isascii() and text.isdecimal() and int(text) <= MOST_DOMAIN):
        raise ServingError(f"ROS_DOMAIN_ID is {text!r}, must be a whole number from 0 to {MOST_DOMAIN}, or not set")


def private_environment(domain_id: int) -> dict[str, str]:
    """What to set, here and for child processes, before the first ROS 2 participant is made."""
    humble = os.environ.get("ROS_DISTRO") == "humble"  # knows the older names only
    profile = "FASTRTPS_DEFAULT_PROFILES_FILE" if humble else "FASTDDS_DEFAULT_PROFILES_FILE"
    local = {"ROS_LOCALHOST_ONLY": "1"} if humble else {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    return local | {
        "ROS_DOMAIN_ID": str(domain_id),
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        profile: str(PROFILE),
    }


def free_domain() -> int:
    """A domain whose first ports nobody on this machine has bound (DDS: 7400 + 250 a domain)."""
    candidates = list(range(1, 100))
    random.shuffle(candidates)
    for domain_id in candidates:
        try:
            for offset in (0, 10, 11):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind(("127.0.0.1", 7400 + 250 * domain_id + offset))
        except OSError:
            continue
        return domain_id
    raise ServingError("no free ROS domain among 1 to 99: too many ROS 2 processes on this machine")


class NodeProcess:
    """`python -m robopos_ros` with the given parameters; used as a context manager, it never outlives the block."""

    def __init__(self, parameters: Mapping[str, Any], domain_id: int, arguments: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "robopos_ros", "--ros-args", *arguments]
        for name, value in parameters.items():
            # ROS reads values as YAML, of which JSON is a part.
            text = json.dumps(str(value) if isinstance(value, Path) else value)
            command += ["-p", f"{name}:={text}"]
        self._log = tempfile.TemporaryFile("w+", prefix="robopos_ros-")  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | private_environment(domain_id),
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that killed it."""
        return self._process.poll()

    def output(self) -> str:
        """What it has said so far."""
        self._log.seek(0)
        return self._log.read()

    def stop(self, number: int = signal.SIGINT, timeout_s: float = 20.0) -> int:
        """Send a signal and wait for the end.

        Raises:
            ServingError: it was still there after `timeout_s`; it is killed then.
        """
        self._process.send_signal(number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            name = signal.Signals(number).name
            raise ServingError(f"the node did not end within {timeout_s:g} s of {name} and was killed") from None

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
