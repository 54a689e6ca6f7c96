"""A module imports only from floors below its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "robopos"
ALLOWED = {
    "positions": set(),
    "logs": set(),
    "sequences": {"logs", "positions"},
    "model": {"logs", "positions", "sequences"},
    "training": {"logs", "positions", "sequences", "model"},
    "serving": {"logs", "positions", "sequences", "model"},
    "comparison": {"logs", "positions", "sequences", "model", "training", "serving"},
    "cli": {"logs", "positions", "sequences", "model", "training", "serving", "comparison"},
}
SHARED = {"_version", "arrays", "errors", "files", "plain_yaml", "settings", "stamps", "texts"}
FOREIGN = {"logs": {"torch", "lightning", "rclpy"}, "positions": {"numpy", "lightning", "rclpy"}}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_from_the_floors_below(package: str):
    for path in (ROOT / package).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "robopos" and len(parts) > 1 and parts[1] != package:
                assert parts[1] in ALLOWED[package] | SHARED, f"{path} imports {name}"
            forbidden = FOREIGN.get(package, {"rclpy"})
            assert parts[0] not in forbidden, f"{path} imports {name}"


@pytest.mark.parametrize("folder", [ROOT, Path(__file__).parent], ids=["robopos", "tests"])
def test_no_module_is_longer_than_400_lines(folder: Path):
    paths = list(folder.rglob("*.py"))
    assert len(paths) > 50
    for path in paths:
        assert len(path.read_text().splitlines()) <= 400, path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("robopos", {"torch", "rclpy", "lightning"}),
        ("robopos.logs", {"torch", "lightning", "rclpy", "matplotlib"}),
        ("robopos.positions", {"lightning", "mcap", "rclpy", "matplotlib"}),
        ("robopos.sequences", {"mcap", "lightning", "rclpy", "matplotlib"}),
        ("robopos.model", {"mcap", "lightning", "rclpy", "matplotlib"}),
        ("robopos.serving", {"lightning", "rclpy", "matplotlib"}),
        ("robopos.training", {"lightning", "rclpy", "matplotlib"}),
    ],
)
def test_importing_brings_nothing_that_is_not_needed(module: str, absent: set[str]):
    code = f"import sys, {module}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
