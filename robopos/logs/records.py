"""The small records that the readers and writers of logs exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from robopos.errors import LogError
from robopos.stamps import CLOCKS, Clock

OnDamage = Literal["error", "skip"]
ON_DAMAGE: tuple[OnDamage, ...] = get_args(OnDamage)


@dataclass(frozen=True)
class StreamSpec:
    """What to read of one topic.

    Attributes:
        topic: the topic; a leading slash makes no difference.
        fields: paths of numeric fields ("position", "twist.twist.linear.x", "position[shoulder]"); a path that
            holds several numbers expands to all of them in the order of the definition.
        clock: "header", "log" or "publish"; None takes the clock of the whole log.
    """

    topic: str
    fields: Sequence[str]
    clock: Clock | None = None

    def __post_init__(self) -> None:
        if isinstance(self.fields, str):
            raise LogError(f"StreamSpec {self.topic}: fields is a list of paths, not the text {self.fields!r}")
        object.__setattr__(self, "fields", tuple(self.fields))
        for what, text in (("topic", self.topic), *(("a field", path) for path in self.fields)):
            if not isinstance(text, str):
                raise LogError(f"StreamSpec {self.topic}: {what} is {text!r}, must be a text")
        if not self.fields:
            raise LogError(f"StreamSpec {self.topic}: name at least one field")
        check_clock(self.clock, f"StreamSpec {self.topic}")


class RawMessage(NamedTuple):
    """One message as it stands in a log; `data` is a copy of its payload.

    `type` and `schema` are "" where none is declared; a binary schema (see `schema_encoding`) stands in base64.
    """

    topic: str
    type: str
    schema: str
    encoding: str
    log_time_ns: int
    publish_time_ns: int
    data: bytes
    schema_encoding: str = ""


class LogMessage(NamedTuple):
    """One message to write: `message` is a mapping of fields, or bytes that are cdr already.

    `publish_time_ns` None means the log time; `schema` None means the standard definition of `type`.
    """

    topic: str
    type: str
    log_time_ns: int
    message: Mapping[str, Any] | bytes
    publish_time_ns: int | None = None
    schema: str | None = None


def check_clock(clock: str | None, where: str) -> None:
    """Raise LogError when `clock` is neither None nor one of `CLOCKS`."""
    if clock is not None and clock not in CLOCKS:
        raise LogError(f"{where}: clock {clock!r} is none of {', '.join(CLOCKS)}")


def topic_key(topic: str) -> str:
    """The topic without its leading slash: "/joint_states" and "joint_states" are one topic."""
    return topic[1:] if topic.startswith("/") else topic


def message_time_ns(stamp_ns: int | None, log_time_ns: int, publish_time_ns: int, clock: str) -> int:
    """The time of one message under `clock`, offline and live alike, in ns.

    `header` takes the header's stamp, `publish` the publish time; where that is zero or missing, the log time.
    """
    if clock == "header":
        return stamp_ns if stamp_ns else log_time_ns
    if clock == "publish":
        return publish_time_ns or log_time_ns
    if clock == "log":
        return log_time_ns
    raise LogError(f"clock {clock!r} is none of {', '.join(CLOCKS)}")
