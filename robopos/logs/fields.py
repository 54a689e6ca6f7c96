"""Field paths: from what the user asked to the numbers of one message.

A path names fields by dots and elements by brackets: `pose.pose.position.x`, `covariance[4]`,
`position[shoulder]`. A path that holds several numbers expands to all of them in the order of the definition.
Elements of an array are named by the joint names of the message where there are as many names as elements,
else by their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from robopos.errors import LogError
from robopos.logs.schema import Field, MessageType
from robopos.logs.wire import Numbers, Walk

_INDEX = re.compile(r"\[[^\]]*\]")
_MARK = re.compile(r"[.\[]")
_LAST = re.compile(r"^(?P<base>.*)\[(?P<label>[^\]]*)\]$")
# Fields whose strings name the elements of the arrays beside or below them.
LABEL_FIELDS = ("name", "names", "joint_names")
MAX_COLUMNS = 16_384  # of one stream


class Place(NamedTuple):
    """One number of a payload: numpy code without byte order, and its offset."""

    code: str
    offset: int


class Found(NamedTuple):
    """What one message holds for the asked paths.

    Attributes:
        columns: for each asked path, its expanded names with their places, in order.
        held: names of the arrays out of which single elements were asked.
        label_texts: (offset, length) of the strings that were asked for the names of elements.
    """

    columns: list[dict[str, Place]]
    held: list[str]
    label_texts: list[tuple[int, int]]


def check_paths(message: MessageType, paths: Iterable[str], where: str) -> None:
    """Check each path against the type alone.

    Raises:
        LogError: naming the path that the type has not, or that holds no number, and the fields there.
    """
    for path in paths:
        current = message
        parts = _INDEX.sub("", path).split(".")
        brackets = [("[" in part) for part in _split(path)]
        for position, part in enumerate(parts):
            field = next((item for item in current.fields if item.name == part), None)
            above = ".".join(parts[:position])
            if field is None:
                raise LogError(
                    f"{where}: {current.name} has no field {part!r}{f' in {above!r}' if above else ''} "
                    f"(asked: {path!r}); there are {', '.join(item.name for item in current.fields)}"
                )
            if brackets[position] and field.array == "one":
                raise LogError(f"{where}: field {part!r} of {path!r} is no array: leave out the brackets")
            last = position == len(parts) - 1
            if field.message is not None:
                current = field.message
                if field.array != "one" and not (last or brackets[position]):
                    raise LogError(f"{where}: {part!r} of {path!r} is an array: name the element, as in '{part}[0]'")
                if last and not _numeric(field):
                    raise LogError(f"{where}: field {path!r} holds no number")
            elif not last:
                raise LogError(f"{where}: field {'.'.join(parts[: position + 1])!r} of {path!r} has no parts")
            elif not _numeric(field):
                raise LogError(f"{where}: field {path!r} is text, not a number")


def _split(path: str) -> list[str]:
    """Split at the dots outside brackets: a joint name may hold a dot."""
    parts, depth, current = [], 0, ""
    for letter in path:
        depth += (letter == "[") - (letter == "]")
        if letter == "." and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [*parts, current]


def _numeric(field: Field) -> bool:
    if field.message is not None:
        return any(_numeric(item) for item in field.message.fields)
    return field.primitive not in ("string", "wstring")


def numeric_paths(message: MessageType, prefix: str = "") -> list[str]:
    """Paths of all numeric fields of a type, arrays unexpanded."""
    paths: list[str] = []
    for field in message.fields:
        if field.message is not None:
            end = "" if field.array == "one" else "[]"
            paths += numeric_paths(field.message, f"{prefix}{field.name}{end}.")
        elif _numeric(field):
            paths.append(prefix + field.name)
    return paths


def check_columns(what: str, count: int) -> None:
    """Raise LogError when `what` would become more than MAX_COLUMNS columns."""
    if count > MAX_COLUMNS:
        raise LogError(f"{what} expands to {count} columns; the limit is {MAX_COLUMNS}: ask for single elements of it")


def static_names(message: MessageType, path: str) -> tuple[str, ...] | None:
    """The names that `path` expands to where the type alone decides that, else None."""
    names: list[str] = []

    def expand(current: MessageType, parts: Sequence[str], prefix: str) -> bool:
        for field in current.fields:
            if parts and field.name != _INDEX.sub("", parts[0]):
                continue
            bracket = parts[0][len(field.name) :] if parts else ""
            full = prefix + field.name
            if field.array == "sequence" and not bracket:
                if not _numeric(field):
                    continue
                return False
            if field.array == "fixed" and not bracket and _numeric(field):
                check_columns(path, len(names) + field.size)
            labels = [bracket] if bracket else [f"[{i}]" for i in range(field.size)]
            for label in labels if field.array != "one" else [""]:
                if field.message is not None:
                    if not expand(field.message, parts[1:], full + label + "."):
                        return False
                elif _numeric(field):
                    names.append(full + label)
        return True

    return tuple(names) if expand(message, _split(path), "") else None


def find(walk: Walk, paths: Sequence[str], data: bytes | memoryview) -> Found:
    """Find the asked paths in one message.

    An element that the message has not (a joint not named, an array too short) is left out.
    """
    labels = _Labels(walk, data)
    # By every path above them, so that many paths and many numbers do not multiply.
    below: dict[str, list[Numbers]] = {}
    for numbers in walk.numbers:
        for stem in _stems(numbers.path):
            below.setdefault(stem, []).append(numbers)
    columns: list[dict[str, Place]] = []
    held: list[str] = []
    for path in paths:
        found: dict[str, Place] = {}
        for numbers in below.get(path, ()):
            name, width = numbers.path, int(numbers.code[1])
            check_columns(path, len(found) + max(numbers.size, 1))
            if numbers.size < 0:
                found[name] = Place(numbers.code, numbers.offset)
                continue
            for index, label in enumerate(labels.of(numbers)):
                found[f"{name}[{label}]"] = Place(numbers.code, numbers.offset + index * width)
        match = _LAST.match(path)
        if match is None or path in below:
            columns.append(found)
            continue
        for numbers in below.get(match["base"], ()):
            name, width = numbers.path, int(numbers.code[1])
            if name == match["base"] and numbers.size > 0:
                check_columns(name, numbers.size)
                held += [f"{name}[{label}]" for label in labels.of(numbers)]
                position = labels.position(numbers, match["label"])
                if position is not None:
                    found[path] = Place(numbers.code, numbers.offset + position * width)
        columns.append(found)
    return Found(columns, held, labels.used())


@lru_cache(maxsize=256)  # messages of a stream have the same few
def _stems(path: str) -> tuple[str, ...]:
    """The path, and what stands before each of its dots and brackets."""
    return (path, *(path[: mark.start()] for mark in _MARK.finditer(path)))


class _Labels:
    """Joint names of one message, by the array that they name."""

    def __init__(self, walk: Walk, data: bytes | memoryview) -> None:
        self._groups: dict[str, list[tuple[str, int, int]]] = {}
        self._used: dict[str, None] = {}
        for text in walk.texts:
            match = _LAST.match(text.path)
            if match is not None and match["base"].rsplit(".", 1)[-1] in LABEL_FIELDS:
                word = bytes(data[text.offset : text.offset + text.length]).decode("utf-8", "replace")
                self._groups.setdefault(match["base"], []).append((word, text.offset, text.length))

    def _group(self, numbers: Numbers) -> str | None:
        parent = numbers.path
        while self._groups:
            parent = parent.rsplit(".", 1)[0] if "." in parent else ""
            for name in LABEL_FIELDS:
                base = f"{parent}.{name}" if parent else name
                if base in self._groups:
                    return base
            if not parent:
                return None
        return None

    def _names(self, numbers: Numbers) -> list[str] | None:
        group = self._group(numbers)
        if group is None:
            return None
        self._used[group] = None
        names = [item[0] for item in self._groups[group]]
        if len(names) != numbers.size or len(set(names)) != len(names) or "" in names:
            return None
        return names

    def of(self, numbers: Numbers) -> list[str]:
        return self._names(numbers) or [str(index) for index in range(numbers.size)]

    def position(self, numbers: Numbers, label: str) -> int | None:
        names = self._names(numbers)
        if names is not None and label in names:
            return names.index(label)
        if label.isdigit() and int(label) < numbers.size:
            return int(label)
        return None

    def used(self) -> list[tuple[int, int]]:
        return [(offset, length) for group in self._used for _, offset, length in self._groups[group]]
