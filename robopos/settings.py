"""What all settings share: a named error for a wrong value, and the way from plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from robopos.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


def require(condition: bool, parameter: str, value: object, allowed: str) -> None:
    """Raise a ``ConfigError`` that names the parameter, its value and what is allowed."""
    if not condition:
        raise ConfigError(f"{parameter} is {value!r}, must be {allowed}")


def from_mapping(cls: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """A settings object from plain values.

    Raises:
        ConfigError: an unknown or missing name, or a value of another type; a number that is not finite fits none.
    """
    require(isinstance(values, Mapping), where, values, "a mapping of names to values")
    known = get_type_hints(cls)
    for name in values:
        require(name in known, where, name, f"one of {', '.join(field.name for field in fields(cls))}")
        require(fits(values[name], known[name]), f"{where}.{name}", values[name], f"of type {type_word(known[name])}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def fits(value: object, hint: Any) -> bool:
    """Whether a plain value is of an annotated type: numbers, texts, lists and mappings of them, and unions."""
    if hint is Any:
        return True
    if get_origin(hint) in (UnionType, Union):
        return any(fits(value, one) for one in get_args(hint))
    kind = get_origin(hint) or hint
    if kind is Literal:
        return value in get_args(hint)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in (list, tuple):
        return isinstance(value, (list, tuple)) and all(fits(item, get_args(hint)[0]) for item in value)
    return isinstance(value, kind)


def type_word(hint: Any) -> str:
    """An annotated type in a line."""
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
