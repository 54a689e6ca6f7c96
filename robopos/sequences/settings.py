"""What a user asks for: which streams, which targets, how time is cut. One documented line a field."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from robopos.settings import require
from robopos.stamps import CLOCKS, LONGEST_S, Clock

TRANSFORMS = ("value", "difference", "rate")
ROLES = ("observation", "action")
INTERPOLATIONS = ("linear", "hold")
TOKENS = ("messages", "rows")
TIME = f"a time > 0 in s and below {LONGEST_S:g}"
# Part of a ROS 2 topic's name (https://design.ros2.org/articles/topic_and_service_names.html): predictions carry it.
STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _positive(value: object, below: float = math.inf) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < below  # type: ignore[operator]


def _is_time(value: object) -> bool:
    return _positive(value, LONGEST_S)


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
        interpolation: ``linear`` between two samples, or ``hold`` (commands): the last sample at or before the time.
        angle: paths of fields that are angles (rad): sine and cosine in, wrapped differences out. Quaternions
            (``orientation.x`` to ``.w``) are known by their names.
        role: ``observation``, or ``action``: what the model shall do, a target that it does not see.
        input: ``true`` lets the model see an action stream too; ``null`` follows the role.
    """

    topic: str
    fields: list[str]
    transform: str | dict[str, str] = "value"
    clock: Clock | None = None
    max_rate_hz: float | None = None
    max_interpolation_s: float = 1.0
    interpolation: str = "linear"
    angle: list[str] = field(default_factory=list)
    role: str = "observation"
    input: bool | None = None

    def __post_init__(self) -> None:
        require(bool(self.topic.strip("/")), "topic", self.topic, "the name of a topic")
        require(len(self.fields) > 0, f"fields of topic {self.topic}", self.fields, "at least one field path")
        words = self.transform.values() if isinstance(self.transform, Mapping) else [self.transform]
        for word in words:
            require(word in TRANSFORMS, f"transform of topic {self.topic}", word, f"one of {', '.join(TRANSFORMS)}")
        for option, paths in (("transform", self.transform), ("angle", self.angle)):
            for path in paths if not isinstance(paths, str) else ():
                known = any(covers(path, asked) or covers(asked, path) for asked in self.fields)
                require(known, f"{option} of topic {self.topic}", path, f"a path of fields {self.fields}")
        for option, allowed in (("interpolation", INTERPOLATIONS), ("role", ROLES)):
            value = getattr(self, option)
            require(value in allowed, f"{option} of topic {self.topic}", value, f"one of {', '.join(allowed)}")
        require(
            self.input is not False or self.role == "action",
            f"input of topic {self.topic}",
            self.input,
            "true or null for an observation (leave the stream out instead)",
        )
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
            _is_time(self.max_interpolation_s),
            f"max_interpolation_s of topic {self.topic}",
            self.max_interpolation_s,
            TIME,
        )

    @property
    def is_input(self) -> bool:
        """Whether the model sees the stream."""
        return self.role == "observation" if self.input is None else self.input

    def transform_of(self, name: str) -> str:
        """The transform of one expanded field name: the longest path that covers it decides."""
        if not isinstance(self.transform, Mapping):
            return self.transform
        paths = [path for path in self.transform if covers(path, name)]
        return self.transform[max(paths, key=len)] if paths else "value"


def covers(path: str, name: str) -> bool:
    """Whether a path names a field or something above it."""
    return name == path or name.startswith((path + ".", path + "["))


@dataclass(frozen=True)
class SequenceSettings:
    """How streams become tokens and targets.

    Args:
        streams: input streams by name.
        targets: field paths to predict, by stream name; a path covers the fields below it.
        horizons_s: how far ahead of the reference time to predict (s); 0 only where all targets are actions.
        clock: which stamp is a token's time: ``header`` (header.stamp), ``log`` or ``publish``.
        max_gap_s: a longer silence of all streams, or a step back of the clock by more, starts a new segment (s).
        max_lateness_s: a message that far behind the newest stamp is dropped (s); ``null`` keeps late messages.
        tokens: ``messages``: each message is a token at its own time; ``rows``: one token a message of the
            ``reference`` stream, in which the other streams hold their last value, with its age.
        reference: the stream whose messages are the rows.
        gap_feature: give the model the time since the token before (its logarithm) as an input.
    """

    streams: dict[str, StreamSettings]
    targets: dict[str, list[str]]
    horizons_s: list[float]
    clock: Clock = "header"
    max_gap_s: float = 5.0
    max_lateness_s: float | None = None
    tokens: str = "messages"
    reference: str | None = None
    gap_feature: bool = False

    def __post_init__(self) -> None:
        require(len(self.streams) > 0, "streams", self.streams, "at least one stream")
        require(len(self.targets) > 0, "targets", self.targets, "at least one field of a stream")
        for name in self.streams:
            good = STREAM_NAME.fullmatch(name) is not None
            require(good, "streams", name, "a name of letters, digits and _ that begins with a letter")
        for name in self.targets:
            require(name in self.streams, "targets", name, f"one of the streams {', '.join(self.streams)}")
        require(len(self.horizons_s) > 0, "horizons_s", self.horizons_s, "at least one time > 0 in s")
        seen = [name for name in self.streams if self.streams[name].is_input]
        require(len(seen) > 0, "streams", list(self.streams), "with at least one that the model sees")
        topics = [self.streams[name].topic.strip("/") for name in seen]
        twice = [name for name, topic in zip(seen, topics, strict=True) if topics.count(topic) > 1]
        require(not twice, "streams", twice, "of one topic each where the model sees them: name all fields in one")
        actions = all(self.streams[name].role == "action" for name in self.targets)
        for horizon in self.horizons_s:
            allowed = _is_time(horizon) or (horizon == 0 and actions)
            require(allowed, "horizons_s", horizon, f"{TIME} (0 only where all targets are actions)")
        require(self.tokens in TOKENS, "tokens", self.tokens, f"one of {', '.join(TOKENS)}")
        if self.tokens == "rows":
            require(self.reference in seen, "reference", self.reference, f"one of the input streams {', '.join(seen)}")
        else:
            require(self.reference is None, "reference", self.reference, "null unless tokens is rows")
        ascending = all(a < b for a, b in pairwise(self.horizons_s))
        require(ascending, "horizons_s", self.horizons_s, "in ascending order")
        require(self.clock in CLOCKS, "clock", self.clock, f"one of {', '.join(CLOCKS)}")
        require(_is_time(self.max_gap_s), "max_gap_s", self.max_gap_s, TIME)
        late = self.max_lateness_s
        require(
            late is None or (_is_time(late) and late <= self.max_gap_s),
            "max_lateness_s",
            late,
            f"null or a time > 0 in s and <= max_gap_s ({self.max_gap_s})",
        )


@dataclass(frozen=True)
class SplitSettings:
    """What is trained on, what is validated on, what is judged on, in this order.

    Args:
        validation: share of each log's time, or of the logs.
        test: share of each log's time, at its end, or of the logs, the last ones.
        by: ``time``: each log is cut into three blocks; ``log``: whole logs, in the order given.
    """

    validation: float = 0.15
    test: float = 0.15
    by: str = "time"

    def __post_init__(self) -> None:
        require(0 < self.validation < 1, "split.validation", self.validation, "a share between 0 and 1")
        require(0 < self.test < 1, "split.test", self.test, "a share between 0 and 1")
        total = self.validation + self.test
        require(total < 1, "split.validation + split.test", total, "below 1: training needs the rest")
        require(self.by in ("time", "log"), "split.by", self.by, "time or log")
