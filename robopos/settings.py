"""What all settings share: a named error for a wrong value, and the way from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from robopos.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


def require(condition: bool, parameter: str, value: object, allowed: str) -> None:
    """Raise a ``ConfigError`` that names the parameter, its value and what is allowed."""
    if not condition:
        raise ConfigError(f"{parameter} is {value!r}, must be {allowed}")


def from_mapping(cls: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """A settings object from plain values; an unknown or missing name is a ``ConfigError``."""
    known = [field.name for field in fields(cls)]
    for name in values:
        require(name in known, where, name, f"one of {', '.join(known)}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
