"""The live engine: messages in, predictions out, the same numbers as evaluation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from robopos.errors import LogError, ServingError
from robopos.logs import Decoder, message_time_ns
from robopos.model import Bundle, pick_device
from robopos.sequences import InputStream, LiveTokens, Verdict


class Prediction(NamedTuple):
    """What the model expects after ``time_ns``, the newest time it has seen.

    ``horizons_s`` (H,) seconds after ``time_ns``; ``values`` (H, T) in the streams' units, NaN for a target that was
    never observed since the last reset; ``std`` (H, T) or ``None``; ``names`` the T targets (``stream.field``).
    """

    time_ns: int
    horizons_s: NDArray[np.float64]
    values: NDArray[np.float64]
    std: NDArray[np.float64] | None
    names: tuple[str, ...]


@dataclass
class StreamStats:
    """Counts of one input stream, by what became of its messages."""

    received: int = 0
    admitted: int = 0
    late: int = 0
    thinned: int = 0
    empty: int = 0
    undecodable: int = 0
    missing_values: int = 0
    last_time_ns: int | None = None
    last_arrival_ns: int | None = None


@dataclass
class EngineStats:
    """What happened since the engine was made."""

    streams: dict[str, StreamStats]
    predictions: int = 0
    resets: dict[str, int] = field(default_factory=dict)
    last_step_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


class Engine:
    """A bundle that is fed message by message, in order of arrival. One thread at a time.

    Mode ``window``: each prediction computes the last ``window`` tokens anew, as evaluation does.

    Args:
        bundle: what to serve; its network is moved to ``device``.
        device: ``auto`` takes CUDA where torch finds it, else the CPU.
    """

    mode = "window"

    def __init__(self, bundle: Bundle, device: str = "auto") -> None:
        self.bundle = bundle
        self.device = pick_device(device)
        self._network = bundle.network.to(self.device).eval()
        self._live = LiveTokens(bundle.layout, bundle.normalization, bundle.settings.window)
        self._decoders = [Decoder(s.type, s.schema, list(s.fields), encoding=s.encoding) for s in self.inputs]
        self._numbers = {stream.name: number for number, stream in enumerate(self.inputs)}
        self.stats = EngineStats({stream.name: StreamStats() for stream in self.inputs})

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Engine:
        """The engine of a bundle's folder.

        Raises:
            BundleError: the bundle is missing or broken.
        """
        return cls(Bundle.load(folder), device)

    @property
    def inputs(self) -> tuple[InputStream, ...]:
        """The input streams, with ``name``, ``topic``, ``type``, ``clock`` and ``fields``."""
        return self.bundle.layout.streams

    @property
    def targets(self) -> Mapping[str, tuple[int, ...]]:
        """For each stream that is predicted, its columns in ``Prediction.values``."""
        columns: dict[str, tuple[int, ...]] = {}
        for column, (stream, _) in enumerate(self.bundle.layout.targets):
            name = self.inputs[stream].name
            columns[name] = (*columns.get(name, ()), column)
        return MappingProxyType(columns)

    @property
    def tokens(self) -> int:
        """Messages that the next prediction will see."""
        return len(self._live.window)

    @property
    def settled(self) -> bool:
        """Whether there is as much history as evaluation asks for before it scores."""
        return self.tokens > self.bundle.settings.history

    def push(self, name: str, time_ns: int, values: ArrayLike, arrival_ns: int | None = None) -> Verdict:
        """Take one message of the stream ``name``.

        Args:
            time_ns: its time by the stream's clock, int64 nanoseconds.
            values: (d,) in the order of the stream's ``fields``; what is not finite counts as missing.
            arrival_ns: when it came, for the statistics.

        Returns:
            what became of it.

        Raises:
            ServingError: unknown stream, wrong number of values, or a time that is no whole number.
        """
        number = self._number(name)
        stats = self.stats.streams[name]
        stats.received += 1
        if isinstance(time_ns, bool) or not isinstance(time_ns, (int, np.integer)):
            raise ServingError(f"stream {name}: time_ns is {time_ns!r}, must be an integer of nanoseconds")
        row = np.asarray(values, np.float64)
        fields = self.inputs[number].fields
        if row.shape != (len(fields),):
            raise ServingError(
                f"stream {name}: values of shape {row.shape}, expected ({len(fields)},): {', '.join(fields)}"
            )
        return self._take(number, stats, int(time_ns), row, arrival_ns)

    def push_raw(self, name: str, data: bytes, arrival_ns: int, publish_ns: int | None = None) -> Verdict:
        """Take one serialized message, decoded as a log's would be.

        Raises:
            ServingError: unknown stream.
            LogError: the bytes are no message of the stream's type; counted as ``undecodable``.
        """
        number = self._number(name)
        stats = self.stats.streams[name]
        stats.received += 1
        try:
            decoded = self._decoders[number].decode(data)
        except LogError:
            stats.undecodable += 1
            raise
        publish_ns = arrival_ns if publish_ns is None else publish_ns
        time_ns = message_time_ns(decoded.stamp_ns, arrival_ns, publish_ns, self.inputs[number].clock)
        return self._take(number, stats, time_ns, decoded.values, arrival_ns)

    def _take(
        self, number: int, stats: StreamStats, time_ns: int, row: NDArray[np.float64], arrival_ns: int | None
    ) -> Verdict:
        verdict = self._live.push(number, time_ns, row)
        if verdict in (Verdict.GAP, Verdict.CLOCK_JUMP):
            self._count_reset(verdict.name.lower())
        if verdict in (Verdict.LATE, Verdict.THINNED, Verdict.EMPTY):
            kept = verdict.name.lower()
            setattr(stats, kept, getattr(stats, kept) + 1)
        else:
            stats.admitted += 1
            stats.last_time_ns = time_ns
        stats.missing_values += int((~np.isfinite(row)).sum())
        stats.last_arrival_ns = arrival_ns
        return verdict

    @torch.inference_mode()
    def predict(self, at_ns: int | None = None) -> Prediction | None:
        """Predict from what was pushed; ``None`` before the first message.

        Args:
            at_ns: the time to count horizons from; only the newest message's time is possible, as in training.

        Raises:
            ServingError: ``at_ns`` is another time than the newest message's.
        """
        reference_ns = self._live.reference_ns
        if reference_ns is None or not self.tokens:
            return None
        if at_ns is not None and at_ns != reference_ns:
            raise ServingError(
                f"at_ns is {(at_ns - reference_ns) / 1e9:g} s from the newest message: this model was trained to "
                "predict from the time of a message only"
            )
        started = time.perf_counter()
        tokens = self._live.tokens()
        if self.device.type != "cpu":
            tokens = tokens.to(self.device)
        mean, log_std = self._network.last(tokens)
        physical = self.bundle.physical(mean, log_std, self._live.base[None])
        self.stats.predictions += 1
        self.stats.last_step_s = time.perf_counter() - started
        return Prediction(
            time_ns=reference_ns,
            horizons_s=np.asarray(self.bundle.layout.horizons_s),
            values=physical.values[0],
            std=None if physical.std is None else physical.std[0],
            names=self.bundle.layout.target_names,
        )

    def reset(self, reason: str) -> None:
        """Forget all messages; ``reason`` is counted in the statistics."""
        self._live.reset()
        self._count_reset(reason)

    def _count_reset(self, reason: str) -> None:
        self.stats.resets[reason] = self.stats.resets.get(reason, 0) + 1

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise ServingError(f"stream {name!r} is unknown; the bundle's are {', '.join(self._numbers)}")
        return self._numbers[name]
