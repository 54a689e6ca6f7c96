"""From a stream's raw rows to what the model sees: transforms and normalization, the same offline and live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopos.arrays import Floats, Ints
from robopos.errors import ConfigError, SequenceError
from robopos.sequences.geometry import ANGLE, continuous, difference, quaternion_columns
from robopos.sequences.layout import InputStream, SequenceLayout

# An elapsed time goes in as its logarithm; one of no length as that of a millisecond.
SHORTEST_S = 1e-3
FURTHEST = 1e6  # standard deviations
FAR_OUT = 20.0  # standard deviations: another unit or another robot, rather than an outlier


class StreamMemory(NamedTuple):
    """What a stream's next row is seen against: the row before (d,), its time, and the last known quaternions (d,)."""

    row: Floats
    time_ns: int
    quaternions: Floats


class Rows(NamedTuple):
    """Consecutive rows of a stream: ``values`` (n, d) with continuous quaternions, ``features`` (n, f), and what to
    remember for the next."""

    values: Floats
    features: Floats
    memory: StreamMemory | None


def transform_rows(stream: InputStream, rows: Floats, time_ns: Ints, memory: StreamMemory | None) -> Rows:
    """The features of consecutive rows of one stream within one segment.

    Args:
        stream: whose transforms to apply.
        rows: (n, d) raw values in arrival order; what is not finite is missing.
        time_ns: (n,) their times.
        memory: of the row before, or ``None`` at the start of a segment.

    Returns:
        float64 values and features, NaN where a value, or the value before it that a difference needs, is missing.
    """
    if not len(rows):
        return Rows(rows, np.zeros((0, len(stream.feature_names))), memory)
    rows = np.where(np.isfinite(rows), rows, np.nan)
    if stream.plain:
        return Rows(rows, rows, StreamMemory(rows[-1], int(time_ns[-1]), rows[-1]))
    rows = continuous(stream.kinds, rows, None if memory is None else memory.quaternions)
    before = np.full_like(rows[:1], np.nan) if memory is None else memory.row[None]
    columns = []
    changes = difference(stream.kinds, rows, np.concatenate([before, rows[:-1]]))
    first_ns = time_ns[0] if memory is None else memory.time_ns
    elapsed_s = np.diff(time_ns, prepend=first_ns) / 1e9
    # A rate over no time is not a number that a sensor gave: missing.
    elapsed_s = np.where(elapsed_s > 0, elapsed_s, np.nan)
    for i, (transform, kind) in enumerate(zip(stream.transforms, stream.kinds, strict=True)):
        if transform == "difference":
            columns.append(changes[:, i])
        elif transform == "rate":
            columns.append(changes[:, i] / elapsed_s)
        elif kind == ANGLE:
            columns += [np.sin(rows[:, i]), np.cos(rows[:, i])]
        else:
            columns.append(rows[:, i])
    known = rows.copy() if memory is None else np.concatenate([memory.quaternions[None], rows])
    for part in quaternion_columns(stream.kinds):
        # Signs go on from whole quaternions alone.
        known[~np.isfinite(known[:, part]).all(axis=1), part] = np.nan
    return Rows(rows, np.stack(columns, axis=1), StreamMemory(rows[-1], int(time_ns[-1]), _last_known(known)))


def _last_known(rows: Floats) -> Floats:
    """(d,) the last finite value of each column, NaN where there is none."""
    finite = np.isfinite(rows)
    last = len(rows) - 1 - finite[::-1].argmax(axis=0)
    return np.where(finite.any(axis=0), rows[last, np.arange(rows.shape[1])], np.nan)


def log_elapsed(elapsed_s: Floats) -> Floats:
    """How an elapsed time (s) goes in: its logarithm to base 10, from a millisecond up; NaN stays NaN."""
    return np.log10(np.maximum(elapsed_s, SHORTEST_S))


@dataclass(frozen=True)
class Normalization:
    """Statistics of the training split alone.

    ``mean`` and ``std`` (F,) of the features; ``center`` (T,) the base of a target that the model does not see (0 for
    the others); ``residual_scale`` (H, T) root mean square of target minus base; ``low`` and ``high`` (T,) the range of
    the targets.
    """

    mean: Floats
    std: Floats
    center: Floats
    residual_scale: Floats
    low: Floats
    high: Floats

    def apply(self, features: Floats, columns: slice) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Normalized float32 (n, d) with 0 where missing, and the mask (n, d) of what was measured."""
        scaled = (features - self.mean[columns]) / self.std[columns]
        # So far out it is no measurement; in float32 its square would spoil all that attends to it.
        measured = np.abs(scaled) <= FURTHEST
        return np.where(measured, scaled, 0.0).astype(np.float32), measured

    def to_dict(self) -> dict[str, Any]:
        """Plain lists; Python prints a float64 so that it reads back exactly."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, values: dict[str, Any], layout: SequenceLayout) -> Normalization:
        """The inverse of ``to_dict``; ``ConfigError`` for wrong shapes and values that are not finite."""
        features, horizons, targets = layout.num_features, len(layout.horizons_s), len(layout.targets)
        shapes = {
            "mean": (features,),
            "std": (features,),
            "center": (targets,),
            "residual_scale": (horizons, targets),
            "low": (targets,),
            "high": (targets,),
        }
        arrays = {}
        for name, shape in shapes.items():
            try:
                array = np.asarray(values[name], np.float64)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"normalization.{name}: {type(error).__name__} {error}") from None
            if array.shape != shape:
                raise ConfigError(f"normalization.{name} has shape {array.shape}, the layout needs {shape}")
            if not np.isfinite(array).all():
                raise ConfigError(f"normalization.{name} has values that are not finite")
            arrays[name] = array
        if (arrays["std"] <= 0).any() or (arrays["residual_scale"] <= 0).any():
            raise ConfigError("normalization.std and normalization.residual_scale must be > 0")
        return cls(**arrays)


def fit_normalization(
    layout: SequenceLayout, features: Floats, observed: Floats, base: Floats, targets: Floats
) -> Normalization:
    """Statistics of the training tokens.

    A feature that never varies, or was never measured, keeps scale 1.

    Args:
        features: (n, F) of the tokens.
        observed: (m, T) raw values of the targets' samples, for their range and center.
        base: (n, T) last observed values; of targets that the model does not see, whatever.
        targets: (n, H, T).

    Raises:
        SequenceError: a target is never known in the training split.
    """
    known = np.isfinite(features)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, features, 0.0).sum(0) / count
    std = np.sqrt((np.where(known, features - mean, 0.0) ** 2).sum(0) / count)
    center = np.where(layout.target_seen, 0.0, _mean(observed))
    residual = difference(layout.target_kinds, targets, with_center(layout, base, center)[:, None])
    for t, name in enumerate(layout.target_names):
        if not np.isfinite(residual[:, :, t]).any():
            raise SequenceError(
                f"target {name} is never known in the training split: its samples are further apart than "
                f"max_interpolation_s ({layout.streams[layout.targets[t][0]].max_interpolation_s:g} s), or absent"
            )
    known = np.isfinite(residual)
    count = np.maximum(known.sum(0), 1)
    scale = np.sqrt((np.where(known, residual, 0.0) ** 2).sum(0) / count)
    return Normalization(
        mean=mean,
        std=np.where(std > 0, std, 1.0),
        center=center,
        residual_scale=np.where(scale > 0, scale, 1.0),
        low=np.nanmin(observed, axis=0),
        high=np.nanmax(observed, axis=0),
    )


def with_center(layout: SequenceLayout, base: Floats, center: Floats) -> Floats:
    """(n, T) what predictions count from: the last observed value, or ``center`` where the model does not see it."""
    return base if all(layout.target_seen) else np.where(layout.target_seen, base, center)


def _mean(values: Floats) -> Floats:
    known = np.isfinite(values)
    mean: Floats = np.where(known, values, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return mean
