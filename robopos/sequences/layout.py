"""The resolved description of a sequence: streams, features and targets by number. A bundle stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from robopos.errors import ConfigError, SequenceError
from robopos.logs import Log, StreamSpec
from robopos.sequences.settings import SequenceSettings


@dataclass(frozen=True)
class InputStream:
    """One stream as the model was trained on it.

    ``fields`` are expanded names (``position[shoulder]``); ``transforms`` has one word a field.
    """

    name: str
    topic: str
    type: str
    schema: str
    encoding: str
    fields: tuple[str, ...]
    transforms: tuple[str, ...]
    units: tuple[str, ...]
    frame_ids: tuple[str, ...]
    clock: str
    max_rate_hz: float | None
    max_interpolation_s: float


@dataclass(frozen=True)
class SequenceLayout:
    """Everything that turns messages into tokens and predictions back into fields.

    ``targets`` are pairs (stream number, field number). Features are the fields of all streams, stream by stream.
    """

    streams: tuple[InputStream, ...]
    targets: tuple[tuple[int, int], ...]
    horizons_s: tuple[float, ...]
    max_gap_s: float
    max_lateness_s: float | None

    @cached_property
    def feature_slices(self) -> tuple[slice, ...]:
        """Columns of the features of each stream."""
        slices, start = [], 0
        for stream in self.streams:
            slices.append(slice(start, start + len(stream.fields)))
            start += len(stream.fields)
        return tuple(slices)

    @property
    def num_features(self) -> int:
        return self.feature_slices[-1].stop

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{stream.name}.{field}" for stream in self.streams for field in stream.fields)

    @property
    def target_names(self) -> tuple[str, ...]:
        return tuple(f"{self.streams[s].name}.{self.streams[s].fields[f]}" for s, f in self.targets)

    @property
    def target_units(self) -> tuple[str, ...]:
        return tuple(self.streams[s].units[f] for s, f in self.targets)

    def stream_number(self, name: str) -> int:
        """The number of a stream by its name; ``SequenceError`` lists the names there are."""
        for number, stream in enumerate(self.streams):
            if stream.name == name:
                return number
        raise SequenceError(f"stream {name!r} is unknown; the streams are {', '.join(s.name for s in self.streams)}")

    def log_streams(self) -> dict[str, StreamSpec]:
        """What to ask ``read_log`` for, so that a log gives just these columns."""
        return {s.name: StreamSpec(s.topic, list(s.fields), clock=s.clock) for s in self.streams}

    def to_dict(self) -> dict[str, Any]:
        """Plain types only (for YAML)."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SequenceLayout:
        """The inverse of ``to_dict``; ``ConfigError`` for what does not fit."""
        try:
            streams = tuple(
                InputStream(**{k: tuple(v) if isinstance(v, list) else v for k, v in stream.items()})
                for stream in values["streams"]
            )
            layout = cls(
                streams=streams,
                targets=tuple((int(s), int(f)) for s, f in values["targets"]),
                horizons_s=tuple(float(h) for h in values["horizons_s"]),
                max_gap_s=float(values["max_gap_s"]),
                max_lateness_s=values["max_lateness_s"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"sequence description: {type(error).__name__} {error}") from None
        layout._check()
        return layout

    def _check(self) -> None:
        if not self.streams or not self.targets or not self.horizons_s:
            raise ConfigError("sequence description: streams, targets and horizons_s must not be empty")
        for stream in self.streams:
            lengths = {len(stream.fields), len(stream.transforms), len(stream.units)}
            if len(lengths) != 1:
                raise ConfigError(f"sequence description: stream {stream.name}: fields, transforms and units differ")
        for s, f in self.targets:
            if not (0 <= s < len(self.streams) and 0 <= f < len(self.streams[s].fields)):
                raise ConfigError(f"sequence description: target ({s}, {f}) names no field")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def log_streams(settings: SequenceSettings) -> dict[str, StreamSpec]:
    """What to ask ``read_log`` for, from a user's settings."""
    return {name: StreamSpec(s.topic, list(s.fields), clock=s.clock) for name, s in settings.streams.items()}


def resolve_layout(settings: SequenceSettings, log: Log) -> SequenceLayout:
    """Number streams, features and targets by what the log holds.

    Raises:
        ConfigError: a target path names no field of its stream.
    """
    streams, targets = [], []
    for number, (name, asked) in enumerate(settings.streams.items()):
        stream = log[name]
        streams.append(
            InputStream(
                name=name,
                topic=stream.topic.lstrip("/"),
                type=stream.type,
                schema=stream.schema,
                encoding=stream.encoding,
                fields=tuple(stream.names),
                transforms=tuple(asked.transform_of(field) for field in stream.names),
                units=tuple(stream.units),
                frame_ids=tuple(stream.frame_ids),
                clock=stream.clock,
                max_rate_hz=asked.max_rate_hz,
                max_interpolation_s=float(asked.max_interpolation_s),
            )
        )
        for path in settings.targets.get(name, ()):
            found = [
                f for f, field in enumerate(stream.names) if field == path or field.startswith((path + ".", path + "["))
            ]
            if not found:
                raise ConfigError(f"targets: stream {name} has no field {path!r}; it has {', '.join(stream.names)}")
            targets += [(number, f) for f in found if (number, f) not in targets]
    return SequenceLayout(
        streams=tuple(streams),
        targets=tuple(targets),
        horizons_s=tuple(float(h) for h in settings.horizons_s),
        max_gap_s=float(settings.max_gap_s),
        max_lateness_s=settings.max_lateness_s,
    )
