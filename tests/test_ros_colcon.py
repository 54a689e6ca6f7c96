"""The workspace built by colcon, against the ROS 2 of this environment."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robopos[ros]' or source ROS 2")
pytest.importorskip("robopos_ros", reason="robopos_ros is not installed: pip install --no-deps ros2_ws/src/robopos_ros")

import ros_support
from robopos_ros.client import Client
from robopos_ros.process import free_domain, private_environment

pytestmark = [pytest.mark.ros, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[1]
INPUTS = {"odometry": "nav_msgs/msg/Odometry", "range": "sensor_msgs/msg/Range"}


@pytest.fixture(scope="module")
def colcon(tmp_path_factory) -> dict[str, str]:
    """An environment in which `python -m colcon` runs; colcon wants an older setuptools, so it stands apart."""
    folder = tmp_path_factory.mktemp("colcon")
    wanted = ["colcon-common-extensions", "setuptools<80", "pytest"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(folder),
    ]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"colcon cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    return os.environ | {"PYTHONPATH": str(folder), "AMENT_PREFIX_PATH": sys.prefix, "COLCON_LOG_LEVEL": "30"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, colcon) -> Path:
    """A copy of the repository's ROS parts, built."""
    top = tmp_path_factory.mktemp("repository")
    ignored = shutil.ignore_patterns("build", "install", "log", "*.egg-info", "__pycache__")
    for part in ("ros2_ws", "launch", "configs"):
        shutil.copytree(ROOT / part, top / part, ignore=ignored)
    run(["build"], top / "ros2_ws", colcon)
    return top / "ros2_ws"


def run(arguments: list[str], workspace: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "colcon", *arguments],
        cwd=workspace,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(workspace: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment that sourcing install/setup.bash gives."""
    command = f'source "{workspace}/install/setup.bash" && env -0'
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, check=True, timeout=60)
    return dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if "=" in pair)


def test_its_tests_are_run_and_counted(workspace, colcon):
    run(["test", "--return-code-on-test-failure"], workspace, colcon)
    tree = ast.parse((ROOT / "ros2_ws/src/robopos_ros/test/test_package.py").read_text())
    count = sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body)
    told = run(["test-result", "--all"], workspace, colcon)
    summary = re.search(r"Summary: (\d+) tests, (\d+) errors, (\d+) failures, (\d+) skipped", told)
    assert summary is not None, told
    assert [int(number) for number in summary.groups()] == [count, 0, 0, 0]


def test_the_built_executable_is_the_node(workspace, colcon, tmp_path):
    log = ros_support.make_log(tmp_path / "robot.mcap", 400)
    bundle = ros_support.make_bundle(tmp_path / "robot", log)
    domain_id = free_domain()
    environment = built(workspace, {k: v for k, v in colcon.items() if k != "PYTHONPATH"})
    environment |= private_environment(domain_id)
    executable = workspace / "install" / "robopos_ros" / "lib" / "robopos_ros" / "predictor"
    where = subprocess.run(
        [sys.executable, "-c", "import robopos_ros; print(robopos_ros.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert where.stdout.startswith(str(workspace / "install"))  # the built package, not the one in the sources
    share = workspace / "install" / "robopos_ros" / "share" / "robopos_ros"
    given = ["--params-file", str(share / "config" / "predictor.yaml"), "-p", f"bundle:={bundle}"]
    given += ["-p", "diagnostics_period_s:=0.2"]
    with (
        subprocess.Popen([str(executable), "--ros-args", *given], env=environment) as node,
        Client(INPUTS, ["base"], domain_id) as client,
    ):
        try:
            client.wait_connected()
            node.terminate()
            assert node.wait(20) == 0
        finally:
            node.kill()
