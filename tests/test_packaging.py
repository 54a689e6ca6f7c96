"""The wheel is built from the source distribution, and works outside of the repository without any extra."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from conftest import training_config, write_yaml

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow
# What the extras bring; not google.protobuf, which TensorBoard, of the core, brings too.
OF_EXTRAS = (
    "rosbags",
    "pyarrow",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "ray",
    "mujoco",
    "rclpy",
    "robopos_ros",
    "sphinx",
)


def run(command: Sequence[object], **options: object) -> str:
    """Standard output; what went wrong is shown where it failed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(part) for part in command],
        **{"env": clean, "timeout": 600, "capture_output": True, "text": True, "check": False} | options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, out: Path) -> None:
    """Source distribution, and a wheel from it, with the tools that are here."""
    pytest.importorskip("build", reason="the tool `build` is not installed (it is of the extra dev)")
    pytest.importorskip("setuptools")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, built from a copy: the repository stays as it is."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("robopos", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build(source, folder / "dist")
    return folder / "dist"


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def shipped() -> set[str]:
    """The files of the package, as they stand in the repository."""
    listed = [path for path in (ROOT / "robopos").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(ROOT).as_posix() for path in listed}


def test_the_wheel_holds_the_package_and_nothing_else(built: Path):
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        entry_points = wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))).decode()
        metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
        licences = [n for n in wheel.namelist() if n.endswith("LICENSE")]
    assert names == shipped()
    assert {"robopos/py.typed", "robopos/logs/standard_types.msg"} <= names
    assert "robopos = robopos.cli:main" in entry_points and licences
    assert "Requires-Dist: torch>=2.5\n" in metadata and "Provides-Extra: ros\n" in metadata


def test_the_source_distribution_holds_what_a_wheel_is_made_of(built: Path):
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert shipped() | {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert not any(name.startswith("tests/") for name in names)


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and, as links, the libraries of this one except what the extras bring."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    run([*pip, "--no-deps", "--no-index", only(built, "*.whl")])
    site = only(folder, "lib/python*/site-packages")
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    libraries |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    for item in (item for library in sorted(libraries) for item in Path(library).iterdir()):
        name = re.split(r"[-.]", item.name)[0]
        if name not in (*OF_EXTRAS, "robopos", "__pycache__") and item.suffix != ".pth":
            with contextlib.suppress(FileExistsError):
                (site / item.name).symlink_to(item)
    return folder


def test_the_wheel_reads_trains_judges_and_replays_without_any_extra(environment: Path, arm_log: Path, tmp_path: Path):
    where = "import robopos; print(robopos.__file__)"
    assert Path(run([environment / "bin" / "python", "-c", where], cwd=tmp_path).strip()).is_relative_to(environment)
    seen = f"from importlib.util import find_spec; print([name for name in {OF_EXTRAS!r} if find_spec(name)])"
    assert run([environment / "bin" / "python", "-c", seen], cwd=tmp_path) == "[]\n"

    def robopos(*arguments: object) -> str:
        return run([environment / "bin" / "robopos", *arguments], cwd=tmp_path)

    log = shutil.copy(arm_log, tmp_path / "arm.mcap")
    assert "/joint_states" in robopos("inspect", log)
    robopos("init", log, "-o", "drafted.yaml")
    assert "streams" in yaml.safe_load((tmp_path / "drafted.yaml").read_text())["data"]["sequence"]
    config = training_config(log)
    config["trainer"]["max_steps"] = 5
    write_yaml(tmp_path / "train.yaml", config)
    assert "bundle: run/bundle" in robopos("train", "--config", "train.yaml", "--out", "run")
    robopos("evaluate", "run/bundle", log, "--json", "scores.json", "--plot", "fit.png")
    assert len(json.loads((tmp_path / "scores.json").read_text())) == 6
    told = json.loads(robopos("replay", "run/bundle", log, "-o", "out.mcap", "--compare-batch", "--json", "-"))
    # Protobuf is of an extra too: no plain log asks for it.
    read = (
        f"import sys; from robopos.logs import inspect_log; inspect_log({str(log)!r}); print('google' in sys.modules)"
    )
    assert run([environment / "bin" / "python", "-c", read], cwd=tmp_path) == "False\n"
    assert told["predictions"] > 1000 and told["compare_batch"]["largest"] < 1e-4


def test_the_ros_package_builds_a_wheel_with_launch_files_and_parameters(tmp_path: Path):
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("ros2_ws/src/robopos_ros", "launch", "configs/ros"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    pytest.importorskip("setuptools")
    package = source / "ros2_ws" / "src" / "robopos_ros"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run([*pip, "--wheel-dir", tmp_path / "dist", package])
    with zipfile.ZipFile(only(tmp_path / "dist", "*.whl")) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    modules = {f"robopos_ros/{path.name}" for path in (package / "robopos_ros").iterdir() if path.is_file()}
    assert modules == {name for name in names if name.startswith("robopos_ros/")}
    shares = {name.partition("/share/")[2] for name in names if "/share/" in name}
    wanted = {f"robopos_ros/launch/{path.name}" for path in (ROOT / "launch").glob("*.launch.py")}
    wanted |= {f"robopos_ros/config/{path.name}" for path in (ROOT / "configs" / "ros").glob("*.yaml")}
    wanted |= {"robopos_ros/package.xml", "ament_index/resource_index/packages/robopos_ros"}
    assert shares == wanted
    assert "predictor = robopos_ros.__main__:main" in entry_points
