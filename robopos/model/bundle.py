"""What is deployed: a folder with description, weights and a README. Loading it runs no code from it."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from robopos._version import __version__
from robopos.arrays import Floats
from robopos.errors import BundleError, ConfigError, RoboposError
from robopos.files import whole_folder
from robopos.model.network import SequenceTransformer
from robopos.model.settings import SIZES, ModelSettings
from robopos.plain_yaml import read_yaml
from robopos.sequences import Normalization, SequenceLayout, compose, with_center
from robopos.settings import from_mapping

FORMAT = 1
DESCRIPTION, WEIGHTS, README = "bundle.yaml", "model.safetensors", "README.md"
LIMIT_MARGIN = 0.1  # of the training range, on either side


class Physical(NamedTuple):
    """Predictions in the streams' own units: ``values`` and ``std`` (B, H, T) float64; ``std`` may be ``None``."""

    values: Floats
    std: Floats | None


@dataclass(frozen=True)
class Bundle:
    """A trained network with all that it takes to feed and to read it.

    ``training`` (logs, split, steps, seed, ...) and ``metrics`` are plain types, for the reader.
    """

    layout: SequenceLayout
    settings: ModelSettings
    normalization: Normalization
    network: SequenceTransformer
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Any = field(default_factory=list)

    def physical(
        self, mean: Tensor, log_std: Tensor | None, base: Floats, horizons_s: Floats | None = None
    ) -> Physical:
        """The network's (B, H, T) residuals on the last observed values ``base`` (B, T), in units.

        Float64 from here on; angles come back wrapped, quaternions of unit length; ``std`` is of each component.
        ``horizons_s`` (H,) are those that the head was told, where they are not the layout's.
        """
        scale = self.normalization.residual_scale
        if horizons_s is not None:
            scale = residual_scale_at(horizons_s, self.layout, self.normalization)
        base = with_center(self.layout, base, self.normalization.center)
        values = compose(self.layout.target_kinds, base[:, None], mean.double().cpu().numpy() * scale)
        std = None if log_std is None else np.exp(log_std.double().cpu().numpy()) * scale
        return Physical(values, std)

    def with_admission(self, max_gap_s: float | None = None, max_lateness_s: float | None = None) -> Bundle:
        """The same bundle with other rules of what ends a segment and what is late (s); ``None`` keeps its own.

        Raises:
            ConfigError: a rule that is not a positive number of seconds.
        """
        for name, seconds in (("max_gap_s", max_gap_s), ("max_lateness_s", max_lateness_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise ConfigError(f"{name} is {seconds:g}, must be a number of seconds > 0")
        own = self.layout
        gap_s = own.max_gap_s if max_gap_s is None else max_gap_s
        lateness_s = own.max_lateness_s if max_lateness_s is None else max_lateness_s
        return replace(self, layout=replace(own, max_gap_s=gap_s, max_lateness_s=lateness_s))

    def limits(self) -> dict[str, list[float]]:
        """Per target: the training range and a margin."""
        low, high = self.normalization.low, self.normalization.high
        margin = LIMIT_MARGIN * (high - low)
        return {
            name: [float(a), float(b)]
            for name, a, b in zip(self.layout.target_names, low - margin, high + margin, strict=True)
        }

    def save(self, folder: str | Path) -> Path:
        """Write the folder whole or not at all; an older bundle there is replaced.

        Raises:
            BundleError: the folder holds something else, or weights are not finite.
        """
        folder = Path(folder)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        _check_finite(state, f"{folder}: not written, the training diverged (try a lower learning rate)")
        if folder.exists() and not (folder / DESCRIPTION).is_file() and any(folder.iterdir()):
            raise BundleError(f"{folder}: not empty and not a bundle: name another folder")
        with whole_folder(folder) as beside:
            save_file(state, beside / WEIGHTS)
            description = {
                "format": FORMAT,
                "sequence": self.layout.to_dict(),
                "model": self.settings.to_dict(),
                "increments": _increments(state),
                "normalization": self.normalization.to_dict(),
                "limits": self.limits(),
                "training": dict(self.training),
                "metrics": self.metrics,
                "versions": {
                    "robopos": __version__,
                    "torch": str(torch.__version__),
                    "python": platform.python_version(),
                },
            }
            (beside / DESCRIPTION).write_text(yaml.safe_dump(description, sort_keys=False, allow_unicode=True), "utf-8")
            (beside / README).write_text(self._readme(folder.name), "utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Bundle:
        """Read a bundle; the network comes in evaluation mode.

        Raises:
            BundleError: a file is missing or broken, the format is newer, or weights do not fit or are not finite.
        """
        folder = Path(folder)
        description = _read_description(folder)
        try:
            layout = SequenceLayout.from_dict(description["sequence"])
            settings = from_mapping(ModelSettings, description["model"], "model")
            normalization = Normalization.from_dict(description["normalization"], layout)
            state = _read_weights(folder / WEIGHTS)
            _check_sizes(layout, settings, state, folder)
            network = SequenceTransformer(layout, settings)
        except BundleError:
            raise
        except KeyError as error:
            raise BundleError(f"{folder / DESCRIPTION}: the entry {error} is missing") from None
        except RoboposError as error:
            raise BundleError(f"{folder / DESCRIPTION}: {error}") from None
        except (TypeError, ValueError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
            raise BundleError(f"{folder / DESCRIPTION}: describes no network: {_one_line(error)[:200]}") from None
        if _increments(state) != description.get("increments"):
            raise BundleError(f"{folder}: the position increments of {DESCRIPTION} and {WEIGHTS} differ")
        try:
            network.load_state_dict(state)
        except RuntimeError as error:
            raise BundleError(f"{folder / WEIGHTS}: does not fit {DESCRIPTION}: {_one_line(error)}") from None
        return cls(
            layout,
            settings,
            normalization,
            network.to(device).eval(),
            training=description.get("training", {}),
            metrics=description.get("metrics", []),
        )

    def _readme(self, name: str) -> str:
        inputs = "\n".join(f"- `{s.topic}` ({s.type}): {', '.join(s.fields)}" for s in self.layout.streams)
        horizons = ", ".join(f"{h:g}" for h in self.layout.horizons_s)
        return (
            f"# {name}\n\nA robopos bundle (format {FORMAT}), written by robopos {__version__}.\n\n"
            f"Positions: `{self.settings.positions}`. Inputs:\n\n{inputs}\n\n"
            f"Predicts {', '.join(self.layout.target_names)} at {horizons} s after the newest message.\n\n"
            f"Serve it: `robopos serve {name}`; run it over a log: `robopos replay {name} LOG -o out.mcap`.\n"
            "It is not a safety device: keep limits in the controller.\n"
        )


def residual_scale_at(horizons_s: Floats, layout: SequenceLayout, normalization: Normalization) -> Floats:
    """(..., H) seconds -> (..., H, T): the scale of residuals, linear between the layout's horizons, held beyond.

    The head is told a horizon, not its number, so what it gives must be scaled by the horizon alone.
    """
    columns = [np.interp(horizons_s, layout.horizons_s, scale) for scale in normalization.residual_scale.T]
    return np.stack(columns, axis=-1)


def pick_device(name: str) -> torch.device:
    """``auto`` takes CUDA where torch finds it, else the CPU; any other name is torch's own.

    Raises:
        BundleError: torch knows no such device, or it is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BundleError(f"device {name!r} cannot be used: {_one_line(error)[:120]}") from None
    return device


def bundle_hash(folder: str | Path) -> str:
    """SHA-256 over the description and the weights: the bundle's identity."""
    digest = hashlib.sha256()
    for name in (DESCRIPTION, WEIGHTS):
        digest.update((Path(folder) / name).read_bytes())
    return digest.hexdigest()


def bundle_identity(bundle: Bundle) -> str:
    """SHA-256 over what a bundle computes from its tokens: layout, settings and weights, wherever it lies.

    When a message is late or a silence ends a segment is for whoever serves to say, so it is left out.
    """
    layout = replace(bundle.layout, max_gap_s=0.0, max_lateness_s=0.0)
    digest = hashlib.sha256(repr((layout, bundle.settings)).encode())
    for tensor in bundle.network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _increments(state: Mapping[str, Tensor]) -> dict[str, list[int]]:
    # The integers that define the fixed frequencies, for the eye and for other implementations.
    return {
        name: tensor.flatten().tolist()
        for name, tensor in state.items()
        if name.endswith("increments") and tensor.dtype == torch.int64
    }


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        description = read_yaml(path, BundleError)
    except FileNotFoundError:
        raise BundleError(f"{folder}: no bundle there ({DESCRIPTION} is missing)") from None
    if not isinstance(description, dict) or not isinstance(description.get("format"), int):
        raise BundleError(f"{path}: not a bundle description (no format number)")
    if description["format"] != FORMAT:
        raise BundleError(
            f"{path}: format {description['format']}, this robopos ({__version__}) reads format {FORMAT}: "
            + ("update robopos" if description["format"] > FORMAT else "write the bundle anew")
        )
    return description


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.exists() and not path.is_file():
        raise BundleError(f"{path}: is no regular file")
    try:
        state = load_file(path)
    except FileNotFoundError:
        raise BundleError(f"{path}: missing") from None
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise BundleError(f"{path}: cannot be read: {_one_line(error)}") from None
    _check_finite(state, str(path))
    return state


def _check_finite(state: Mapping[str, Tensor], said: str) -> None:
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise BundleError(f"{said}: the weights {name} are not finite")


def _check_sizes(layout: SequenceLayout, settings: ModelSettings, state: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a short text that describes a huge network, before it is made: the weights must be there."""
    dim, outputs = SIZES[settings.size].dim, len(layout.targets) * (2 if settings.loss == "gaussian" else 1)
    for name, shape in {"embed.weight": (dim, 2 * layout.num_features), "head.out.weight": (outputs, dim)}.items():
        if name not in state or tuple(state[name].shape) != shape:
            raise BundleError(f"{folder / WEIGHTS}: does not fit {DESCRIPTION}: {name} must have shape {shape}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
