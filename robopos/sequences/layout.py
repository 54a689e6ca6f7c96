"""The resolved description of a sequence: streams, features and targets by number. A bundle stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from robopos.errors import ConfigError, SequenceError
from robopos.sequences.geometry import ANGLE, KINDS, LINEAR, QUATERNION, quaternion_columns
from robopos.sequences.settings import SequenceSettings, StreamSettings, covers
from robopos.stamps import CLOCKS, LONGEST_S, Clock

if TYPE_CHECKING:
    from robopos.logs import Log, Stream, StreamSpec


@dataclass(frozen=True)
class InputStream:
    """One stream as the model was trained on it.

    ``fields`` are expanded names (``position[shoulder]``); ``transforms`` and ``kinds`` (``linear``, ``angle``,
    ``quaternion``) have one word a field; ``input`` says whether the model sees it.
    """

    name: str
    topic: str
    type: str
    schema: str
    encoding: str
    fields: tuple[str, ...]
    transforms: tuple[str, ...]
    kinds: tuple[str, ...]
    units: tuple[str, ...]
    frame_ids: tuple[str, ...]
    clock: Clock
    role: str
    input: bool
    max_rate_hz: float | None
    max_interpolation_s: float
    interpolation: str

    def check(self) -> None:
        """Raise ``ConfigError`` where a value is of another kind than it must be."""
        texts = (
            self.name,
            self.topic,
            self.type,
            self.schema,
            self.encoding,
            self.clock,
            self.role,
            self.interpolation,
        )
        lists = (self.fields, self.transforms, self.kinds, self.units, self.frame_ids)
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(words, tuple) and all(isinstance(word, str) for word in words) for words in lists
        ):
            raise ConfigError(f"sequence description: stream {self.name!r}: names, types and fields must be texts")
        rate = self.max_rate_hz
        if self.clock not in CLOCKS or not isinstance(self.input, bool) or not (rate is None or 0 < rate < math.inf):
            raise ConfigError(
                f"sequence description: stream {self.name!r}: clock, input or max_rate_hz has a wrong value"
            )

    @cached_property
    def plain(self) -> bool:
        """Whether the model sees the fields as they are: nothing before a row matters."""
        return set(self.transforms) == {"value"} and set(self.kinds) == {LINEAR}

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """What the model sees of the stream: the fields, an angle's value as sine and cosine."""
        names: list[str] = []
        for name, transform, kind in zip(self.fields, self.transforms, self.kinds, strict=True):
            names += [f"sin({name})", f"cos({name})"] if kind == ANGLE and transform == "value" else [name]
        return tuple(names)


@dataclass(frozen=True)
class SequenceLayout:
    """Everything that turns messages into tokens and predictions back into fields.

    ``targets`` are pairs (stream number, field number). Features are those of the input streams, stream by stream,
    then ages (tokens ``rows``) and the gap (``gap_feature``).
    """

    streams: tuple[InputStream, ...]
    targets: tuple[tuple[int, int], ...]
    horizons_s: tuple[float, ...]
    max_gap_s: float
    max_lateness_s: float | None
    reference: int | None = None  # the stream whose messages are the rows; None: each message is a token
    gap_feature: bool = False

    @cached_property
    def feature_slices(self) -> tuple[slice, ...]:
        """Columns of the features of each stream; empty for one that the model does not see."""
        slices, start = [], 0
        for stream in self.streams:
            width = len(stream.feature_names) if stream.input else 0
            slices.append(slice(start, start + width))
            start += width
        return tuple(slices)

    @cached_property
    def aged(self) -> tuple[int, ...]:
        """The streams whose age is a feature: in rows, all that are seen but the reference."""
        if self.reference is None:
            return ()
        return tuple(n for n, stream in enumerate(self.streams) if stream.input and n != self.reference)

    @property
    def age_slice(self) -> slice:
        """Columns of the ages."""
        start = self.feature_slices[-1].stop
        return slice(start, start + len(self.aged))

    @property
    def gap_slice(self) -> slice:
        """Column of the gap; empty without one."""
        start = self.age_slice.stop
        return slice(start, start + int(self.gap_feature))

    @property
    def num_features(self) -> int:
        """F: all that the model sees of a token."""
        return int(self.gap_slice.stop)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(F,) ``stream.field``, then ``age.stream`` and ``gap``."""
        names = [f"{s.name}.{feature}" for s in self.streams if s.input for feature in s.feature_names]
        names += [f"age.{self.streams[n].name}" for n in self.aged]
        return (*names, "gap") if self.gap_feature else tuple(names)

    @property
    def inputs(self) -> tuple[InputStream, ...]:
        """The streams that the model sees."""
        return tuple(stream for stream in self.streams if stream.input)

    @property
    def target_names(self) -> tuple[str, ...]:
        """(T,) ``stream.field``."""
        return tuple(f"{self.streams[s].name}.{self.streams[s].fields[f]}" for s, f in self.targets)

    @property
    def target_columns(self) -> Mapping[str, tuple[int, ...]]:
        """For each stream that is predicted, its places among the T targets."""
        columns: dict[str, tuple[int, ...]] = {}
        for column, (stream, _) in enumerate(self.targets):
            name = self.streams[stream].name
            columns[name] = (*columns.get(name, ()), column)
        return MappingProxyType(columns)

    @property
    def target_units(self) -> tuple[str, ...]:
        """(T,) SI units, "" where none is known."""
        return tuple(self.streams[s].units[f] for s, f in self.targets)

    @cached_property
    def target_kinds(self) -> tuple[str, ...]:
        """(T,) ``linear``, ``angle`` or ``quaternion``."""
        return tuple(self.streams[s].kinds[f] for s, f in self.targets)

    @cached_property
    def target_seen(self) -> tuple[bool, ...]:
        """Whether the model sees each target's stream, so that a prediction is a change of its last value."""
        return tuple(self.streams[s].input for s, _ in self.targets)

    def stream_number(self, name: str) -> int:
        """The number of a stream by its name; ``SequenceError`` lists the names there are."""
        for number, stream in enumerate(self.streams):
            if stream.name == name:
                return number
        raise SequenceError(f"stream {name!r} is unknown; the streams are {', '.join(s.name for s in self.streams)}")

    def log_streams(self) -> dict[str, StreamSpec]:
        """What to ask ``read_log`` for, so that a log gives just these columns."""
        from robopos.logs import StreamSpec  # tokens of any source need no reader of logs

        return {s.name: StreamSpec(s.topic, list(s.fields), clock=s.clock) for s in self.streams}

    def to_dict(self) -> dict[str, Any]:
        """Plain types only (for YAML)."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SequenceLayout:
        """The inverse of ``to_dict``; ``ConfigError`` for what does not fit."""
        try:
            streams = tuple(InputStream(**_tuples(stream)) for stream in values["streams"])
            layout = cls(
                streams=streams,
                targets=tuple((int(s), int(f)) for s, f in values["targets"]),
                horizons_s=tuple(float(h) for h in values["horizons_s"]),
                max_gap_s=float(values["max_gap_s"]),
                max_lateness_s=values["max_lateness_s"],
                reference=values["reference"],
                gap_feature=bool(values["gap_feature"]),
            )
            layout._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"sequence description: {type(error).__name__} {error}") from None
        return layout

    def _check(self) -> None:
        if not self.streams or not self.targets or not self.horizons_s or not self.inputs:
            raise ConfigError("sequence description: streams, inputs, targets and horizons_s must not be empty")
        names = [stream.name for stream in self.streams]
        if len(set(names)) != len(names):
            raise ConfigError(f"sequence description: two of the streams {', '.join(names)} have one name")
        if not (all(0 <= h < LONGEST_S for h in self.horizons_s) and 0 < self.max_gap_s < LONGEST_S):
            raise ConfigError(f"sequence description: horizons_s and max_gap_s must be times up to {LONGEST_S:g} s")
        if any(a >= b for a, b in pairwise(self.horizons_s)):
            raise ConfigError("sequence description: horizons_s must ascend")
        if self.max_lateness_s is not None and not 0 < self.max_lateness_s <= self.max_gap_s:
            raise ConfigError("sequence description: max_lateness_s must be null or a time up to max_gap_s")
        for stream in self.streams:
            stream.check()
            lengths = {len(stream.fields), len(stream.transforms), len(stream.kinds), len(stream.units)}
            if len(lengths) != 1 or not set(stream.kinds) <= set(KINDS):
                raise ConfigError(
                    f"sequence description: stream {stream.name}: fields, transforms, kinds and units do not fit"
                )
        topics = [stream.topic.strip("/") for stream in self.inputs]
        if len(set(topics)) != len(topics):
            raise ConfigError(f"sequence description: two input streams read one topic: {', '.join(topics)}")
        for s, f in self.targets:
            if not (0 <= s < len(self.streams) and 0 <= f < len(self.streams[s].fields)):
                raise ConfigError(f"sequence description: target ({s}, {f}) names no field")
        if self.reference is not None and not (
            0 <= self.reference < len(self.streams) and self.streams[self.reference].input
        ):
            raise ConfigError(f"sequence description: reference {self.reference} is no input stream")


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def log_streams(settings: SequenceSettings) -> dict[str, StreamSpec]:
    """What to ask ``read_log`` for, from a user's settings."""
    from robopos.logs import StreamSpec

    return {name: StreamSpec(s.topic, list(s.fields), clock=s.clock) for name, s in settings.streams.items()}


def resolve_layout(settings: SequenceSettings, log: Log) -> SequenceLayout:
    """Number streams, features and targets by what the log holds.

    Raises:
        ConfigError: a path names no field of its stream, or only a part of a quaternion.
    """
    streams, targets = [], []
    for number, (name, asked) in enumerate(settings.streams.items()):
        resolved = _resolve_stream(name, asked, log[name])
        streams.append(resolved)
        for path in settings.targets.get(name, ()):
            found = [f for f, field in enumerate(resolved.fields) if covers(path, field)]
            if not found:
                raise ConfigError(f"targets: stream {name} has no field {path!r}; it has {', '.join(resolved.fields)}")
            targets += [(number, f) for f in found if (number, f) not in targets]
        for columns in quaternion_columns(resolved.kinds):
            asked_of = {f for s, f in targets if s == number} & set(range(columns.start, columns.stop))
            if 0 < len(asked_of) < 4:
                raise ConfigError(
                    f"targets: stream {name}: {resolved.fields[columns.start][:-2]!r} is a quaternion: "
                    "name it whole, not a part of it"
                )
    targets = sorted(set(targets), key=targets.index)
    return SequenceLayout(
        streams=tuple(streams),
        targets=tuple(targets),
        horizons_s=tuple(float(h) for h in settings.horizons_s),
        max_gap_s=float(settings.max_gap_s),
        max_lateness_s=settings.max_lateness_s,
        reference=None if settings.reference is None else list(settings.streams).index(settings.reference),
        gap_feature=settings.gap_feature,
    )


def _resolve_stream(name: str, asked: StreamSettings, stream: Stream) -> InputStream:
    transforms = tuple(asked.transform_of(field) for field in stream.names)
    kinds = _kinds(stream.names, asked.angle)
    for field, kind, transform in zip(stream.names, kinds, transforms, strict=True):
        if kind == QUATERNION and transform != "value":
            raise ConfigError(f"transform of topic {asked.topic}: {field} belongs to a quaternion, which takes 'value'")
    return InputStream(
        name=name,
        topic=stream.topic.lstrip("/"),
        type=stream.type,
        schema=stream.schema,
        encoding=stream.encoding,
        fields=tuple(stream.names),
        transforms=transforms,
        kinds=kinds,
        units=tuple(stream.units),
        frame_ids=tuple(stream.frame_ids),
        clock=stream.clock,
        role=asked.role,
        input=asked.is_input,
        max_rate_hz=asked.max_rate_hz,
        max_interpolation_s=float(asked.max_interpolation_s),
        interpolation=asked.interpolation,
    )


def _kinds(names: tuple[str, ...], angles: list[str]) -> tuple[str, ...]:
    kinds = [ANGLE if any(covers(path, name) for path in angles) else LINEAR for name in names]
    for first, name in enumerate(names):
        # Only geometry_msgs/Quaternion has neighbours x, y, z, w under one path.
        path = name.removesuffix(".x")
        if path != name and list(names[first : first + 4]) == [f"{path}.{axis}" for axis in "xyzw"]:
            kinds[first : first + 4] = [QUATERNION] * 4
    return tuple(kinds)
