"""Sphinx: the project's Markdown as pages (MyST), and the API from docstrings. `make docs` builds it.

The source folder is the repository, so that links between docs/ and the READMEs beside the code work as they stand.
"""

from __future__ import annotations

from importlib import import_module
from inspect import unwrap
from types import FunctionType
from typing import Any

from robopos import __version__

project = "robopos"
author = "The robopos authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**.md", "examples/README.md"),
    *("data/README.md", "benchmarks/RESULTS.md", "ros2_ws/README.md", "ros2_ws/src/robopos_ros/README.md"),
]
# Folders that are not worth walking.
exclude_patterns = [".*", "build", "runs", "report", "tests", "ros2_ws/build", "ros2_ws/install", "ros2_ws/log"]
myst_heading_anchors = 3
default_role = "code"  # docstrings write `names` so

html_theme = "furo"
html_title = f"robopos {version}"

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # a class lists its fields once, not again as members
napoleon_use_rtype = False


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what Python says of a named tuple's fields."""
    return True if (getattr(member, "__doc__", None) or "").startswith("Alias for field number") else None


def _plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Two ways in which autodoc and Napoleon misread what stands for itself."""
    if what == "data" and obj.__doc__ == type(obj).__doc__:
        lines.clear()  # the manual of dict or tuple
    elif what in ("attribute", "data", "property"):
        # A colon in the first line is a colon; Napoleon would take what stands before it for a type.
        lines[:0] = ["..", ""]  # an empty comment


def _constants(app: Any, docname: str, source: list[str]) -> None:
    """Public constants and aliases, which `automodule` passes over: their docstrings stand in another module."""
    package = docname.removeprefix("docs/api/")
    if package in (docname, "index", "robopos"):
        return
    module = import_module(f"robopos.{package}")
    names = [name for name in module.__all__ if not isinstance(unwrap(getattr(module, name)), (type, FunctionType))]
    lines = [f"\n.. autodata:: {module.__name__}.{name}" for name in names]
    source[0] = source[0].removesuffix("```\n") + "\n".join(lines) + "\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _constants)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _plain, priority=100)  # before Napoleon
