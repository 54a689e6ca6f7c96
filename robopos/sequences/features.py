"""From a stream's raw rows to what the model sees: transforms and normalization, the same offline and live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopos.errors import ConfigError
from robopos.sequences.layout import InputStream, SequenceLayout

Floats = NDArray[np.float64]
FURTHEST = 1e6  # standard deviations


def transform_rows(
    stream: InputStream, rows: Floats, time_ns: NDArray[np.int64], previous: tuple[Floats, int] | None
) -> Floats:
    """The features of consecutive rows of one stream within one segment.

    Args:
        stream: whose transforms to apply.
        rows: (n, d) raw values in arrival order; what is not finite is missing.
        time_ns: (n,) their times.
        previous: the raw row (d,) and time before the first, or ``None`` at the start of a segment.

    Returns:
        (n, d) float64; NaN where a value, or the value before it that a difference needs, is missing.
    """
    rows = np.where(np.isfinite(rows), rows, np.nan)
    features = rows.copy()
    changing = [i for i, word in enumerate(stream.transforms) if word != "value"]
    if changing and len(rows):
        before = np.full((1, rows.shape[1]), np.nan) if previous is None else previous[0][None]
        difference = rows - np.concatenate([before, rows[:-1]])
        first_ns = time_ns[0] if previous is None else previous[1]
        elapsed_s = np.diff(time_ns, prepend=first_ns) / 1e9
        # A rate over no time is not a number that a sensor gave: missing.
        elapsed_s = np.where(elapsed_s > 0, elapsed_s, np.nan)
        for i in changing:
            column = difference[:, i]
            features[:, i] = column / elapsed_s if stream.transforms[i] == "rate" else column
    return features


@dataclass(frozen=True)
class Normalization:
    """Statistics of the training split alone.

    ``mean`` and ``std`` (F,) of the features; ``residual_scale`` (H, T) root mean square of target minus base,
    ``low`` and ``high`` (T,) the range of the targets.
    """

    mean: Floats
    std: Floats
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
