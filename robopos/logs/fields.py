"""Field paths: from what the user asked to the numbers of one message.

A path names fields by dots and elements by brackets: `pose.pose.position.x`, `covariance[4]`,
`position[shoulder]`. A path that holds several numbers expands to all of them in the order of the definition.
Elements of an array are named by the joint names of the message where there are as many names as elements,
each another and none empty, else by their number: never by both, or the number of an element could be taken for a
joint that is called so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from robopos.errors import LogError
from robopos.logs.schema import Field, MessageType
from robopos.logs.wire import Numbers, Walk

_MARK = re.compile(r"[.\[]")
_BRACKET = re.compile(r"\[")
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
        _steps(message, path, where)


class _Step(NamedTuple):
    """One field of a path, with its brackets or ""."""

    field: Field
    bracket: str


def _steps(message: MessageType, path: str, where: str) -> list[_Step]:
    """The fields that a path names one inside the other, by the type: a joint's name may hold dots and brackets."""
    steps: list[_Step] = []
    current, rest = message, path
    while True:
        name = _MARK.split(rest, maxsplit=1)[0]
        above = path[: len(path) - len(rest)].removesuffix(".")
        field = next((item for item in current.fields if item.name == name), None)
        if field is None:
            raise LogError(
                f"{where}: {current.name} has no field {name!r}{f' in {above!r}' if above else ''} "
                f"(asked: {path!r}); there are {', '.join(item.name for item in current.fields)}"
            )
        rest = rest[len(name) :]
        bracket = ""
        if rest.startswith("["):
            if field.array == "one":
                raise LogError(f"{where}: field {name!r} of {path!r} is no array: leave out the brackets")
            # Behind the label of a number nothing can follow, so it runs to the end.
            end = len(rest) if field.message is None else rest.find("]") + 1
            bracket, rest = rest[:end], rest[end:]
            if not bracket.endswith("]") or rest[:1] not in ("", "."):
                raise LogError(f"{where}: the brackets of {name!r} in {path!r} are not closed")
        steps.append(_Step(field, bracket))
        if not rest:
            break
        rest = rest[1:]
        if field.message is None:
            raise LogError(f"{where}: field {'.'.join(step.field.name for step in steps)!r} of {path!r} has no parts")
        if field.array != "one" and not bracket:
            raise LogError(f"{where}: {name!r} of {path!r} is an array: name the element, as in '{name}[0]'")
        current = field.message
    if not _numeric(field):
        what = "is text, not a number" if field.message is None else "holds no number"
        raise LogError(f"{where}: field {path!r} {what}")
    return steps


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

    def expand(field: Field, bracket: str, prefix: str, labelled: bool) -> bool:
        full = prefix + field.name
        if not _numeric(field):
            return True
        if field.array == "sequence" and not bracket:
            return False
        if field.array == "fixed" and not bracket:
            if labelled and field.message is None:
                return False
            check_columns(path, len(names) + field.size)
        labels = [bracket] if bracket or field.array == "one" else [f"[{i}]" for i in range(field.size)]
        for label in labels:
            if field.message is None:
                names.append(full + label)
                continue
            inside = labelled or _has_labels(field.message)
            if not all(expand(item, "", f"{full}{label}.", inside) for item in field.message.fields):
                return False
        return True

    *above, last = _steps(message, path, message.name)
    prefix = "".join(f"{step.field.name}{step.bracket}." for step in above)
    parents = [message, *(step.field.message for step in above)]
    labelled = any(parent is not None and _has_labels(parent) for parent in parents)
    return tuple(names) if expand(last.field, last.bracket, prefix, labelled) else None


def _has_labels(message: MessageType) -> bool:
    """Whether strings of the type may name the elements of its arrays."""
    return any(
        field.name in LABEL_FIELDS and field.array != "one" and field.primitive == "string" for field in message.fields
    )


def find(walk: Walk, paths: Sequence[str], data: bytes | memoryview) -> Found:
    """Find the asked paths in one message.

    An element that the message has not (a joint not named, an array too short) is left out.

    Raises:
        LogError: a path expands to more than MAX_COLUMNS names, or two values have one name (keys of JSON with dots).
    """
    labels = _Labels(walk, data)
    # By every path above them, so that many paths and many numbers do not multiply.
    below: dict[str, list[Numbers]] = {}
    for numbers in walk.numbers:
        for stem in _stems(numbers.path):
            below.setdefault(stem, []).append(numbers)
    columns: list[dict[str, Place]] = []
    places: dict[str, Place] = {}
    held: dict[Numbers, None] = {}

    def put(name: str, numbers: Numbers, index: int = 0) -> None:
        place = Place(numbers.code, numbers.offset + index * int(numbers.code[1]))
        if places.setdefault(name, place) != place:
            raise LogError(f"two values of the message are named {name!r}")
        columns[-1][name] = place

    for path in paths:
        columns.append({})
        if path in below or not path.endswith("]"):
            for numbers in below.get(path, ()):
                check_columns(path, len(columns[-1]) + max(numbers.size, 1))
                if numbers.size < 0:
                    put(numbers.path, numbers)
                    continue
                for label, index in labels.of(numbers).items():
                    put(f"{numbers.path}[{label}]", numbers, index)
            continue
        # An element: the array is what stands before one of the brackets, as its label may hold some too.
        for mark in _BRACKET.finditer(path):
            array, label = path[: mark.start()], path[mark.end() : -1]
            for numbers in below.get(array, ()):
                if numbers.path == array and numbers.size > 0:
                    check_columns(array, numbers.size)
                    held[numbers] = None
                    if label in labels.of(numbers):
                        put(path, numbers, labels.of(numbers)[label])
    names = [f"{numbers.path}[{label}]" for numbers in held for label in labels.of(numbers)]
    return Found(columns, names, labels.used())


@lru_cache(maxsize=256)  # messages of a stream have the same few
def _stems(path: str) -> tuple[str, ...]:
    """The path, and what stands before each of its dots and brackets."""
    return (path, *(path[: mark.start()] for mark in _MARK.finditer(path)))


class _Labels:
    """Joint names of one message, by the array that they name."""

    def __init__(self, walk: Walk, data: bytes | memoryview) -> None:
        self._groups: dict[str, list[tuple[str, int, int]]] = {}
        self._used: dict[str, None] = {}
        self._known: dict[Numbers, dict[str, int]] = {}
        for text in walk.texts:
            base, bracket, _ = text.path.rpartition("[")
            if bracket and base.rsplit(".", 1)[-1] in LABEL_FIELDS:
                word = bytes(data[text.offset : text.offset + text.length]).decode("utf-8", "replace")
                self._groups.setdefault(base, []).append((word, text.offset, text.length))

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

    def of(self, numbers: Numbers) -> dict[str, int]:
        """The elements of an array by what each is called: the names of the message, where they are, else numbers."""
        if numbers not in self._known:
            self._known[numbers] = {label: index for index, label in enumerate(self._of(numbers))}
        return self._known[numbers]

    def _of(self, numbers: Numbers) -> list[str]:
        group = self._group(numbers)
        if group is not None:
            self._used[group] = None
            names = [item[0] for item in self._groups[group]]
            if len(names) == numbers.size and len(set(names)) == len(names) and "" not in names:
                return names
        return [str(index) for index in range(numbers.size)]

    def used(self) -> list[tuple[int, int]]:
        """(offset, length) of the strings that were asked."""
        return [(offset, length) for group in self._used for _, offset, length in self._groups[group]]
