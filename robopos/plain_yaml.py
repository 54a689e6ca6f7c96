"""YAML files that come from elsewhere: plain types, and an answer in bounded time and memory.

`yaml.SafeLoader` makes no objects of other classes, but it has no limits: a short text may stand for a huge tree
(aliases of aliases), and some scalars take time that grows with the square of their length.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robopos.errors import RoboposError

MAX_BYTES = 4_000_000
MAX_NODES = 1_000_000
MAX_NUMBER = 64  # characters of a number


class _Loader(yaml.SafeLoader):
    """A number of many digits is refused before it is converted, and merges (`<<`) before they have grown large."""

    merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        # Merges of merges copy their entries, in some releases each as often as it is reached.
        self.merged += len(node.value)
        if self.merged > MAX_NODES:
            raise yaml.constructor.ConstructorError(None, None, "merges of too many entries", node.start_mark)

    def number(self, node: yaml.ScalarNode) -> object:
        if len(node.value) > MAX_NUMBER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return self.construct_yaml_float(node) if node.tag.endswith("float") else self.construct_yaml_int(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.number)


def read_yaml(path: Path, error: type[RoboposError]) -> Any:
    """The content of a YAML file, in plain types.

    Args:
        path: the file.
        error: the class of what is raised.

    Raises:
        FileNotFoundError: it is not there.
        RoboposError: of the class `error`: no regular file, more than MAX_BYTES, no YAML, or a tree of more than
            MAX_NODES when every alias is counted as what it stands for.
    """
    try:
        # Opening a pipe would wait for its writer.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: is no regular file")
        if status.st_size > MAX_BYTES:
            raise error(f"{path}: has {status.st_size} bytes; the limit is {MAX_BYTES}")
        content = yaml.load(path.read_text("utf-8"), _Loader)
        _count(content, {})
    except FileNotFoundError:
        raise
    except (yaml.YAMLError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as broken:
        # Beside YAMLError, the constructors of PyYAML let through what int(), datetime() and the like raise.
        raise error(f"{path}: cannot be read as YAML: {' '.join(str(broken).split())[:300]}") from None
    return content


def _count(value: object, known: dict[int, int]) -> int:
    """Nodes of a tree in which every alias is a tree of its own; a node that holds itself has no end."""
    if not isinstance(value, (Mapping, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_NODES
        known[id(value)] = 1 + sum(_count(item, known) for item in _parts(value))
    if known[id(value)] > MAX_NODES:
        raise ValueError(f"its aliases stand for more than {MAX_NODES} nodes")
    return known[id(value)]


def _parts(value: Mapping[Any, Any] | list[Any]) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, Mapping) else value
