"""Texts for programs, pages and plots: JSON that every reader takes, Markdown and labels that no name breaks."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any


def json_text(content: Any) -> str:
    """As JSON, which has no infinity and no NaN: such a number is ``null``."""
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, (list, tuple)) else content


def markdown_text(text: str) -> str:
    """A text for one line of Markdown, where ``|`` ends a cell, ``$`` begins a formula and ``<`` a tag."""
    return re.sub(r"([\\|$])", r"\\\1", html.escape(" ".join(text.splitlines()), quote=False))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: texts in the first column, figures on the right in the others."""
    lines = [[markdown_text(cell) for cell in line] for line in (header, *rows)]
    lines.insert(1, ["---", *["---:"] * (len(header) - 1)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drawn(name: str) -> str:
    """A name that matplotlib draws as it is: ``$`` begins no formula, and ``_`` takes no label out of the legend."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name
