"""The live engine: messages in, predictions out, the same numbers as evaluation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from robopos.arrays import Floats
from robopos.errors import LogError, ServingError
from robopos.logs import Decoder, message_time_ns
from robopos.model import Bundle, Step, bundle_identity, pick_device, pick_mode
from robopos.sequences import STARTS_SEGMENT, InputStream, LiveTokens, Tokens, Verdict
from robopos.serving.stats import EngineStats, StreamStats
from robopos.serving.steps import STEPS, exported_steps, intra_op_threads, size_for
from robopos.stamps import NS_PER_S

MAX_BACKLOG = 1024


class Prediction(NamedTuple):
    """What the model expects after ``time_ns``: the newest time it has seen, or the later time that was asked for.

    ``horizons_s`` (H,) seconds after ``time_ns``; ``values`` (H, T) in the streams' units, NaN for a target that was
    never observed since the last reset; ``std`` (H, T) or ``None``; ``names`` the T targets (``stream.field``).
    """

    time_ns: int
    horizons_s: Floats
    values: Floats
    std: Floats | None
    names: tuple[str, ...]


class Engine:
    """A bundle that is fed message by message, in order of arrival. One thread at a time.

    Mode ``stream``: each token is computed once, against the cached keys of the last ``context`` tokens; a step costs
    the same whatever the history. Mode ``window``: each prediction computes the last ``window`` tokens anew. Either
    gives the numbers of evaluation in the same mode.

    Args:
        bundle: what to serve; its network is moved to ``device``.
        device: ``auto`` takes CUDA where torch finds it, else the CPU.
        mode: ``stream`` or ``window``; ``None`` takes ``stream`` where the position scheme allows it.
        step: how mode ``stream`` computes a block: ``eager``, ``compile``, ``graph`` (CUDA), or a file of ``robopos
            export`` (or several, of different block sizes).
        max_backlog: tokens that may wait for a prediction in mode ``stream``; one more is a reset, with the reason
            ``backlog``.

    Attributes:
        threads: intra-op threads of a step: 1 for ``tiny`` and ``small`` on the CPU, where a second one waits more
            than it works; ``None`` leaves torch's own number.

    Raises:
        ConfigError: an unknown mode, or ``stream`` with a scheme that does not stream.
        ServingError: a step that cannot serve this bundle, or in mode ``window``; a ``max_backlog`` below 1.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: str = "auto",
        mode: str | None = None,
        *,
        step: str | Path | Sequence[str | Path] = "eager",
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        self.bundle = bundle
        if max_backlog < 1:
            raise ServingError(f"max_backlog is {max_backlog}, must be a number of tokens >= 1")
        self.max_backlog = max_backlog
        self.device = pick_device(device)
        self.mode = pick_mode(bundle.network.positions, mode)
        self._network = bundle.network.to(self.device).eval()
        self._state = self._network.start() if self.mode == "stream" else None
        small = self.device.type == "cpu" and bundle.settings.size in ("tiny", "small")
        self.threads = 1 if small else None
        self._steps = self._pick_steps(step)
        settings = bundle.settings
        self._live = LiveTokens(
            bundle.layout,
            bundle.normalization,
            max_backlog if self.mode == "stream" else settings.window,
            (settings.context, settings.context_s),
        )
        self._numbers = {s.name: number for number, s in enumerate(bundle.layout.streams) if s.input}
        self._decoders = {
            self._numbers[s.name]: Decoder(s.type, s.schema, list(s.fields), encoding=s.encoding) for s in self.inputs
        }
        self.advanced = False
        self.stats = EngineStats({stream.name: StreamStats() for stream in self.inputs})

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        mode: str | None = None,
        *,
        step: str | Path | Sequence[str | Path] = "eager",
        max_backlog: int = MAX_BACKLOG,
    ) -> Engine:
        """The engine of a bundle's folder.

        Raises:
            BundleError: the bundle is missing or broken.
            ConfigError: the mode cannot be served.
            ServingError: the step cannot.
        """
        return cls(Bundle.load(folder), device, mode, step=step, max_backlog=max_backlog)

    def _pick_steps(self, step: str | Path | Sequence[str | Path]) -> dict[int, Step]:
        if self.mode == "window" and step != "eager":
            raise ServingError(f"step {step!r} is of mode 'stream'; mode 'window' computes eagerly")
        if isinstance(step, str) and step in STEPS:
            return STEPS[step](self.bundle)
        paths = [step] if isinstance(step, (str, Path)) else step
        return exported_steps(paths, self.bundle, self.device, self.threads)

    @property
    def inputs(self) -> tuple[InputStream, ...]:
        """The input streams, with ``name``, ``topic``, ``type``, ``clock`` and ``fields``."""
        return self.bundle.layout.inputs

    @property
    def targets(self) -> Mapping[str, tuple[int, ...]]:
        """For each stream that is predicted, its columns in ``Prediction.values``."""
        return self.bundle.layout.target_columns

    @property
    def tokens(self) -> int:
        """Tokens since the last reset, up to the ``window`` of training."""
        return min(self._live.count, self.bundle.settings.window)

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
            ServingError: unknown stream; wrong number of values, or a time that is no int64, counted as ``refused``.
        """
        number = self._number(name)
        stats = self.stats.streams[name]
        stats.received += 1
        fields = self.bundle.layout.streams[number].fields
        self.advanced = False
        if not _is_stamp(time_ns):
            stats.refused += 1
            raise ServingError(f"stream {name}: time_ns is {time_ns!r}, must be an integer of nanoseconds (int64)")
        row = np.asarray(values, np.float64)
        if row.shape != (len(fields),):
            stats.refused += 1
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
        self.advanced = False
        try:
            decoded = self._decoders[number].decode(data)
        except LogError:
            stats.undecodable += 1
            raise
        clock = self.bundle.layout.streams[number].clock
        stats.zero_stamps += decoded.stamp_ns == 0 and clock == "header"
        publish_ns = arrival_ns if publish_ns is None else publish_ns
        time_ns = message_time_ns(decoded.stamp_ns, arrival_ns, publish_ns, clock)
        return self._take(number, stats, time_ns, decoded.values, arrival_ns)

    def _take(self, number: int, stats: StreamStats, time_ns: int, row: Floats, arrival_ns: int | None) -> Verdict:
        newest_ns, made = self._live.newest_ns, self._live.made
        full = self._state is not None and self._live.held == self._live.capacity
        verdict = self._live.push(number, time_ns, row)
        if full and self._live.made > made and verdict not in STARTS_SEGMENT:
            # A token that the network has not seen was pushed out: the context has a hole, so it starts anew here.
            self.reset("backlog")
            newest_ns = None
            verdict = self._live.push(number, time_ns, row)
        self.advanced = self._live.made > made
        if verdict in STARTS_SEGMENT:
            self._forget(verdict.name.lower())
        stats.count(verdict, time_ns, arrival_ns, newest_ns)
        stats.far_out += self._live.far_out
        stats.missing_values += len(row) - int(np.isfinite(row).sum())
        self.stats.newest_ns = self._live.newest_ns
        self.stats.band_truncated = self._live.band_truncated
        if self._state is not None:
            self.stats.backlog = self._live.held
            self.stats.backlog_most = max(self.stats.backlog_most, self._live.held)
        return verdict

    @torch.inference_mode()
    def predict(self, at_ns: int | None = None) -> Prediction | None:
        """Predict from what was pushed; ``None`` before the first message.

        Args:
            at_ns: the time to count horizons from, after the newest message's; ``None`` is that message's.

        Raises:
            ServingError: ``at_ns`` is no int64, before the newest message, or further after it than was trained for
                (``max_input_age_s``).
        """
        reference_ns = self._live.reference_ns
        if reference_ns is None or not self.tokens:
            return None
        horizons_s = np.asarray(self.bundle.layout.horizons_s)
        told_s = None
        if at_ns is not None and not _is_stamp(at_ns):
            raise ServingError(f"at_ns is {at_ns!r}, must be an integer of nanoseconds (int64)")
        if at_ns is not None and at_ns != reference_ns:
            told_s = horizons_s + self._elapsed_s(at_ns, reference_ns)
        started = time.perf_counter()
        with intra_op_threads(self.threads):
            ahead_s = None if told_s is None else torch.from_numpy(told_s).to(self.device)
            mean, log_std = self._network.predict(self._encode(), ahead_s)
        physical = self.bundle.physical(mean, log_std, self._live.base[None], told_s)
        self.stats.predictions += 1
        self.stats.last_step_s = time.perf_counter() - started
        return Prediction(
            time_ns=reference_ns if at_ns is None else at_ns,
            horizons_s=horizons_s,
            values=physical.values[0],
            std=None if physical.std is None else physical.std[0],
            names=self.bundle.layout.target_names,
        )

    def _elapsed_s(self, at_ns: int, reference_ns: int) -> float:
        elapsed_s = (at_ns - reference_ns) / NS_PER_S
        most_s = self.bundle.settings.max_input_age_s
        if not 0 <= elapsed_s <= most_s:
            raise ServingError(
                f"at_ns is {elapsed_s:g} s after the newest message; this model was trained to predict from "
                + (f"0 to {most_s:g} s after it" if most_s else "the time of a message only: max_input_age_s is 0")
            )
        return elapsed_s

    @torch.inference_mode()
    def absorb(self) -> None:
        """Take what waits into the cache, without a prediction. Mode ``window`` has nothing that waits."""
        if self._state is None:
            return
        with intra_op_threads(self.threads):
            while self._live.held:
                size = size_for(list(self._steps), self._live.held)
                tokens, count = self._live.take(size)
                self._state.absorb(self._steps[size], self._there(tokens), count)
                self.stats.steps += 1
                self.stats.absorbed += count
        self.stats.backlog = 0

    def _encode(self) -> Tensor:
        """(1, D) of the newest token."""
        if self._state is None:
            self.stats.steps += 1
            return self._network.encode(self._there(self._live.tokens()))[:, -1]
        self.absorb()
        assert self._state.encoded is not None
        return self._state.encoded

    def _there(self, tokens: Tokens) -> Tokens:
        return tokens if self.device.type == "cpu" else tokens.to(self.device)

    def reset(self, reason: str) -> None:
        """Forget all messages; ``reason`` is counted in the statistics."""
        self._live.reset()
        self._forget(reason)

    def snapshot(self) -> dict[str, Any]:
        """All that was taken from the messages, in plain types and tensors (``torch.save`` keeps it); no statistics."""
        return {
            "mode": self.mode,
            "network": bundle_identity(self.bundle),
            "tokens": self._live.snapshot(),
            "stream": None if self._state is None else self._state.snapshot(),
        }

    @torch.inference_mode()
    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot, on any device; what was taken since is forgotten.

        Raises:
            ServingError: it is of another bundle or mode.
        """
        if snapshot["network"] != bundle_identity(self.bundle) or snapshot["mode"] != self.mode:
            raise ServingError(
                f"the snapshot (mode {snapshot['mode']}) is not of this bundle in this mode ({self.mode}): "
                "what it remembers has no meaning here"
            )
        self._live.restore(snapshot["tokens"])
        if self._state is not None:
            self._state.restore(snapshot["stream"])
        self.stats.count_reset("restored")
        self.stats.newest_ns = self._live.newest_ns
        self.stats.backlog = self._live.held if self._state is not None else 0

    def _forget(self, reason: str) -> None:
        if self._state is not None:
            self._state.clear()
        self.stats.count_reset(reason)
        self.stats.newest_ns = self._live.newest_ns

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise ServingError(f"stream {name!r} is unknown; the bundle's are {', '.join(self._numbers)}")
        return self._numbers[name]


def _is_stamp(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
