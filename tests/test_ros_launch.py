"""Launch file, parameter file and package: they name what is there, and the build carries them along."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LAUNCH = ROOT / "launch" / "predict.launch.py"
EXAMPLE = ROOT / "launch" / "play.launch.py"
CONFIG = ROOT / "configs" / "ros" / "predictor.yaml"
PACKAGE = ROOT / "ros2_ws" / "src" / "robopos_ros"

pytestmark = pytest.mark.ros


def calls(name: str, path: Path) -> list[ast.Call]:
    """All calls of a function in a launch file."""
    tree = ast.parse(path.read_text())
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == name]


def keyword(call: ast.Call, name: str) -> ast.expr:
    return next(k.value for k in call.keywords if k.arg == name)


class Made:
    """Stands for any class of the launch system, which the wheels do not bring: keeps what it is made of."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args, self.kwargs = args, kwargs

    def perform(self, context: SimpleNamespace) -> str:
        """As a LaunchConfiguration does."""
        return context.launch_configurations[self.args[0]]


NAMES = {
    "launch": ("LaunchContext", "LaunchDescription"),
    "launch.actions": ("DeclareLaunchArgument", "OpaqueFunction"),
    "launch.substitutions": ("LaunchConfiguration", "PathJoinSubstitution"),
    "launch_ros": (),
    "launch_ros.actions": ("LifecycleNode",),
    "launch_ros.parameter_descriptions": ("ParameterValue",),
    "launch_ros.substitutions": ("FindPackageShare",),
}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("a_launch_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def started(monkeypatch):
    """The launch file with other arguments: what it declares, and the node that it starts."""
    for module, names in NAMES.items():
        made = ModuleType(module)
        for name in names:
            setattr(made, name, type(name, (Made,), {}))
        monkeypatch.setitem(sys.modules, module, made)

    def start(**arguments: str) -> tuple[dict[str, dict[str, object]], dict[str, object]]:
        *declared, function = load(LAUNCH).generate_launch_description().args[0]
        options = {each.args[0]: each.kwargs for each in declared}
        assert set(arguments) <= set(options)
        given = {name: each.get("default_value") for name, each in options.items()} | arguments
        (node,) = function.kwargs["function"](SimpleNamespace(launch_configurations=given))
        return options, node.kwargs

    return start


def test_arguments_are_declared_and_explained(started):
    declared, _ = started(bundle="b")
    expected = ["autostart", "bundle", "device", "log_level", "namespace", "params_file", "use_sim_time"]
    assert sorted(declared) == expected
    assert all(options["description"] for options in declared.values())


def test_an_argument_counts_for_more_than_the_file_only_when_it_is_given(started):
    for arguments in ({"bundle": "b"}, {"bundle": "b", "device": "cuda", "autostart": "false", "use_sim_time": "true"}):
        _, node = started(**arguments)
        file, values = node["parameters"]
        assert file.args == ("params_file",)
        assert {name: value.args[0].args[0] for name, value in values.items()} == {name: name for name in arguments}
    assert {name: value.kwargs["value_type"] for name, value in values.items()} == {
        "bundle": str,
        "device": str,
        "autostart": bool,
        "use_sim_time": bool,
    }


def test_the_example_gives_the_player_and_the_node_what_they_know():
    pytest.importorskip("rclpy", reason="rclpy is not installed: the player cannot be imported")
    from robopos_ros.play import build_parser

    declared = [call.args[0].value for call in calls("DeclareLaunchArgument", EXAMPLE)]
    assert {call.args[0].value for call in calls("LaunchConfiguration", EXAMPLE)} == set(declared)
    (player,) = calls("Node", EXAMPLE)
    words = [
        node.value
        if isinstance(node, ast.Constant)
        else {"log": "a.mcap", "rate": "2", "loop": "0"}[node.args[0].value]
        for node in keyword(player, "arguments").elts
    ]
    args = build_parser().parse_args(words)
    assert (str(args.log), args.rate, args.loop, args.clock, args.wait_s) == ("a.mcap", 2.0, 0, 100.0, 60.0)
    (included,) = calls("IncludeLaunchDescription", EXAMPLE)
    (given,) = [n for n in ast.walk(keyword(included, "launch_arguments")) if isinstance(n, ast.Dict)]
    predict = [call.args[0].value for call in calls("DeclareLaunchArgument", LAUNCH)]
    assert {key.value for key in given.keys} <= set(predict)
    assert f'"{keyword(player, "executable").value} = robopos_ros.play:main"' in (PACKAGE / "setup.py").read_text()


def test_the_parameter_file_sets_every_parameter_but_the_bundle():
    pytest.importorskip("rclpy", reason="rclpy is not installed: the node's parameters cannot be read")
    from robopos_ros.parameters import PARAMETERS

    in_file = yaml.safe_load(CONFIG.read_text())["/**"]["ros__parameters"]
    assert sorted([*in_file, "bundle"]) == sorted(PARAMETERS)
    for name, value in in_file.items():
        # The file shows the defaults, with their types: ROS refuses an integer for a float.
        assert (type(value), value) == (type(PARAMETERS[name].default), PARAMETERS[name].default), name


def test_the_readme_lists_the_parameters_as_they_are():
    pytest.importorskip("rclpy", reason="rclpy is not installed: the node's parameters cannot be read")
    from robopos_ros.parameters import PARAMETERS

    rows = [line.split(" | ") for line in (PACKAGE / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name.strip("|` "): (default.strip("` |"), meaning.strip(" |")) for name, default, meaning in rows}
    assert listed == {name: (str(entry.default).lower(), entry.description) for name, entry in PARAMETERS.items()}


def test_the_node_takes_the_parameter_file():
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from robopos_ros.process import free_domain, private_environment

    code = (
        "import rclpy; from robopos_ros.node import Predictor\n"
        "rclpy.init(); node = Predictor(); print(node.settings); node.destroy_node(); rclpy.try_shutdown()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--ros-args", "--params-file", str(CONFIG), "-p", "qos_depth:=7"],
        env=os.environ | private_environment(free_domain()),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "qos_depth=7, qos_reliability='auto'" in done.stdout


def test_the_launch_files_run_where_launch_is():
    pytest.importorskip("launch_ros", reason="launch_ros is not installed: it comes with a ROS 2 installation only")
    for path, entities in ((LAUNCH, 8), (EXAMPLE, 6)):
        assert len(load(path).generate_launch_description().entities) == entities


def build_wheel(package: Path, out: Path) -> tuple[list[str], str]:
    """Names in the wheel, and what the build said."""
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", str(out)]
    done = subprocess.run([*command, str(package)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist(), done.stdout + done.stderr


def copy_package(to: Path) -> Path:
    ignored = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")
    return Path(shutil.copytree(PACKAGE, to, ignore=ignored))


def test_the_build_carries_launch_and_parameter_file(tmp_path):
    package = copy_package(tmp_path / "repository" / "ros2_ws" / "src" / "robopos_ros")
    shutil.copytree(LAUNCH.parent, tmp_path / "repository" / "launch")
    shutil.copytree(CONFIG.parent, tmp_path / "repository" / "configs" / "ros")
    names, _ = build_wheel(package, tmp_path / "out")
    share = [name.partition(".data/data/")[2] for name in names if ".data/data/share" in name]
    assert sorted(share) == [
        "share/ament_index/resource_index/packages/robopos_ros",
        "share/robopos_ros/config/predictor.yaml",
        "share/robopos_ros/launch/play.launch.py",
        "share/robopos_ros/launch/predict.launch.py",
        "share/robopos_ros/package.xml",
    ]
    assert "robopos_ros/loopback.xml" in names


def test_the_package_builds_alone_and_says_what_it_lacks(tmp_path):
    names, said = build_wheel(copy_package(tmp_path / "robopos_ros"), tmp_path / "out")
    assert "robopos_ros/node.py" in names
    assert not any("launch" in name for name in names)
    assert "no launch/*.launch.py" in said
