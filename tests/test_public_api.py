"""What the packages offer: listed, explained, their own; and nothing else is taken from one by another."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "robopos"
PACKAGES = ("positions", "logs", "sequences", "model", "training", "serving", "comparison")
# Public by their own names: importing them with their package would bring what most users of it do not need.
MODULES = {
    "robopos.logs.audit": "many names, for `robopos inspect`",
    "robopos.logs.plot": "matplotlib",
    "robopos.positions.diagnostics": "many names, for a look at trained networks",
    "robopos.sequences.degrade": "the readers of logs",
    "robopos.training.data": "lightning",
    "robopos.training.figures": "matplotlib",
    "robopos.training.fit": "lightning",
    "robopos.training.lightning_cli": "lightning",
    "robopos.training.module": "lightning",
    "robopos.training.parser": "jsonargparse",
    "robopos.training.served": "the readers of logs",
}


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_what_a_package_lists_is_there_explained_and_its_own(package: str) -> None:
    module = importlib.import_module(f"robopos.{package}".rstrip("."))
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        item = getattr(module, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            assert item.__module__.startswith("robopos."), f"{name} comes from {item.__module__}"
            assert inspect.getdoc(item) and not item.__doc__.startswith(f"{name}("), f"{name} is not explained"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_listed_class_offers_is_explained(package: str) -> None:
    module = importlib.import_module(f"robopos.{package}")
    bare = [
        f"{name}.{part}"
        for name in module.__all__
        if inspect.isclass(item := getattr(module, name))
        for part, member in vars(item).items()
        if not part.startswith("_") and (inspect.isroutine(member) or isinstance(member, (property, cached_property)))
        if part != "extra_repr" and not inspect.getdoc(getattr(item, part))
    ]
    assert not bare


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_a_package_leaks_no_other_name(package: str) -> None:
    module = importlib.import_module(f"robopos.{package}".rstrip("."))
    for name, item in vars(module).items():
        own_module = isinstance(item, types.ModuleType) and item.__name__.startswith("robopos.")
        assert name.startswith("_") or name in module.__all__ or own_module, f"robopos.{package} shows {name}"


@pytest.mark.parametrize("package", [*PACKAGES, "cli"])
def test_a_package_takes_from_others_what_they_list(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("robopos.")):
                continue
            other = node.module.split(".")[1]
            if other in PACKAGES and other != package and node.module not in MODULES:
                listed = importlib.import_module(node.module).__all__ if node.module.count(".") == 1 else ()
                hidden = [item.name for item in node.names if item.name not in listed]
                submodules = [name for name in hidden if f"{node.module}.{name}" in MODULES]
                assert hidden == submodules, f"{path} takes {', '.join(hidden)} from {node.module}"
