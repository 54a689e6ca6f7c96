"""What a user asks for: which streams, which targets, how time is cut. One documented line a field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from robopos.errors import ConfigError

TRANSFORMS = ("value", "difference", "rate")
CLOCKS = ("header", "log", "publish")


def require(condition: bool, parameter: str, value: object, allowed: str) -> None:
    """Raise a ``ConfigError`` that names the parameter, its value and what is allowed."""
    if not condition:
        raise ConfigError(f"{parameter} is {value!r}, must be {allowed}")


def _positive(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0  # type: ignore[operator,arg-type]


@dataclass(frozen=True)
class StreamSettings:
    """One input stream.

    Args:
        topic: topic of the log, with or without the leading slash.
        fields: field paths, for example ``twist.twist.linear.x`` or ``position[shoulder]``; vectors and arrays expand.
        transform: what the model sees of a field: ``value``, ``difference`` to the message before, or ``rate``
            (difference per second); one word for the stream, or a word for each field path.
        clock: ``header``, ``log`` or ``publish``; ``null`` takes the clock of the whole.
        max_rate_hz: keep the first message at least 1/rate after the last kept; ``null`` keeps all.
        max_interpolation_s: a target is read between two samples at most so far apart (s), else it is masked.
    """

    topic: str
    fields: list[str]
    transform: str | dict[str, str] = "value"
    clock: str | None = None
    max_rate_hz: float | None = None
    max_interpolation_s: float = 1.0

    def __post_init__(self) -> None:
        require(bool(self.topic.strip("/")), "topic", self.topic, "the name of a topic")
        require(len(self.fields) > 0, f"fields of topic {self.topic}", self.fields, "at least one field path")
        words = self.transform.values() if isinstance(self.transform, Mapping) else [self.transform]
        for word in words:
            require(word in TRANSFORMS, f"transform of topic {self.topic}", word, f"one of {', '.join(TRANSFORMS)}")
        if isinstance(self.transform, Mapping):
            for path in self.transform:
                known = any(_covers(path, asked) or _covers(asked, path) for asked in self.fields)
                require(known, f"transform of topic {self.topic}", path, f"a path of fields {self.fields}")
        require(
            self.clock is None or self.clock in CLOCKS, f"clock of topic {self.topic}", self.clock, ", ".join(CLOCKS)
        )
        require(
            self.max_rate_hz is None or _positive(self.max_rate_hz),
            f"max_rate_hz of topic {self.topic}",
            self.max_rate_hz,
            "a rate > 0 in Hz, or null",
        )
        require(
            _positive(self.max_interpolation_s),
            f"max_interpolation_s of topic {self.topic}",
            self.max_interpolation_s,
            "a time > 0 in s",
        )

    def transform_of(self, name: str) -> str:
        """The transform of one expanded field name: the longest path that covers it decides."""
        if not isinstance(self.transform, Mapping):
            return self.transform
        paths = [path for path in self.transform if _covers(path, name)]
        return self.transform[max(paths, key=len)] if paths else "value"


def _covers(path: str, name: str) -> bool:
    return name == path or name.startswith((path + ".", path + "["))


@dataclass(frozen=True)
class SequenceSettings:
    """How streams become tokens and targets.

    Args:
        streams: input streams by name.
        targets: field paths to predict, by stream name; a path covers the fields below it.
        horizons_s: how far ahead of the reference time to predict (s).
        clock: which stamp is a token's time: ``header`` (header.stamp), ``log`` or ``publish``.
        max_gap_s: a longer silence of all streams, or a step back of the clock by more, starts a new segment (s).
        max_lateness_s: a message that far behind the newest stamp is dropped (s); ``null`` keeps late messages.
    """

    streams: dict[str, StreamSettings]
    targets: dict[str, list[str]]
    horizons_s: list[float]
    clock: str = "header"
    max_gap_s: float = 5.0
    max_lateness_s: float | None = None

    def __post_init__(self) -> None:
        require(len(self.streams) > 0, "streams", self.streams, "at least one stream")
        require(len(self.targets) > 0, "targets", self.targets, "at least one field of a stream")
        for name in self.targets:
            require(name in self.streams, "targets", name, f"one of the streams {', '.join(self.streams)}")
        require(len(self.horizons_s) > 0, "horizons_s", self.horizons_s, "at least one time > 0 in s")
        for horizon in self.horizons_s:
            require(_positive(horizon), "horizons_s", horizon, "times > 0 in s")
        ascending = all(a < b for a, b in pairwise(self.horizons_s))
        require(ascending, "horizons_s", self.horizons_s, "in ascending order")
        require(self.clock in CLOCKS, "clock", self.clock, f"one of {', '.join(CLOCKS)}")
        require(_positive(self.max_gap_s), "max_gap_s", self.max_gap_s, "a time > 0 in s")
        late = self.max_lateness_s
        require(
            late is None or (_positive(late) and late <= self.max_gap_s),
            "max_lateness_s",
            late,
            f"null or a time > 0 in s and <= max_gap_s ({self.max_gap_s})",
        )


@dataclass(frozen=True)
class SplitSettings:
    """Time blocks of each log, in order: training, validation, test.

    Args:
        validation: share of a log's time.
        test: share of a log's time, at its end.
    """

    validation: float = 0.15
    test: float = 0.15

    def __post_init__(self) -> None:
        require(0 < self.validation < 1, "split.validation", self.validation, "a share between 0 and 1")
        require(0 < self.test < 1, "split.test", self.test, "a share between 0 and 1")
        total = self.validation + self.test
        require(total < 1, "split.validation + split.test", total, "below 1: training needs the rest")


def from_mapping(cls: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A settings object from plain values; an unknown or missing name is a ``ConfigError``."""
    known = cls.__dataclass_fields__
    for name in values:
        require(name in known, where, name, f"one of {', '.join(known)}")
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
