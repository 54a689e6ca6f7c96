"""What a build must have put into its place; run by `colcon test`, from the built package."""

from pathlib import Path

import pytest
import yaml
from ament_index_python.packages import get_package_prefix, get_package_share_directory
from robopos_ros.parameters import PARAMETERS
from robopos_ros.play import build_parser


@pytest.fixture
def share() -> Path:
    return Path(get_package_share_directory("robopos_ros"))


def test_the_parameter_file_fits_the_node(share):
    given = yaml.safe_load((share / "config" / "predictor.yaml").read_text())["/**"]["ros__parameters"]
    assert set(given) == set(PARAMETERS) - {"bundle"}


def test_launch_files_are_python(share):
    found = sorted((share / "launch").glob("*.launch.py"))
    assert [path.name for path in found] == ["play.launch.py", "predict.launch.py"]
    for path in found:
        compile(path.read_text(), str(path), "exec")


def test_executables_stand_where_ros2_run_looks():
    folder = Path(get_package_prefix("robopos_ros")) / "lib" / "robopos_ros"
    assert {"play", "predictor"} <= {path.name for path in folder.iterdir()}


def test_the_player_knows_its_options():
    assert build_parser().parse_args(["a.mcap", "--clock"]).clock == 100.0
