"""The block step as a file: its inputs and outputs by name, and the steps that run it.

The step is pure: the ring and the time go in explicitly, new keys and values come out, and the host writes them. A
counter or a cache kept inside an exported graph is lost without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from robopos.errors import ServingError
from robopos.model import Bundle, Ring, SequenceTransformer, Step, StepOutput, bundle_identity, given_positions
from robopos.positions import Positions
from robopos.sequences import Tokens

FORMAT = "robopos block step 1"
# Whole names: an exporter gives its own values names such as "index".
TOKEN_INPUTS = ("token_values", "token_measured", "token_observed", "token_time_ns", "token_index", "token_valid")
RING_INPUTS = ("ring_time_ns", "ring_index", "ring_valid")
SUFFIXES = {".onnx": "onnx", ".pt2": "aotinductor"}


class Artifact(NamedTuple):
    """What an exported step says of itself."""

    block: int
    """Tokens of a block; fewer are padded, with ``token_valid`` false."""
    identity: str
    """`bundle_identity` of the bundle it was made from."""
    device: str
    """Type of the device that it runs on; ``any`` for ONNX."""

    def to_metadata(self, bundle: Bundle, inputs: Mapping[str, Tensor]) -> dict[str, str]:
        """Strings that travel in the file: the artifact, names of features and targets, and the inputs' shapes."""
        layout = bundle.layout
        told = {
            "format": FORMAT,
            **self._asdict(),
            "context": bundle.settings.context,
            "context_s": bundle.settings.context_s,
            "streams": [stream.name for stream in layout.streams],
            "features": layout.feature_names,
            "targets": layout.target_names,
            "horizons_s": layout.horizons_s,
            "inputs": {name: [str(x.dtype).removeprefix("torch."), list(x.shape)] for name, x in inputs.items()},
            "outputs": output_names(bundle.network),
        }
        return {"robopos": json.dumps(told)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], path: Path) -> Artifact:
        """The inverse.

        Raises:
            ServingError: the file is no exported step.
        """
        try:
            told = json.loads(metadata["robopos"])
            if told["format"] != FORMAT:
                raise ValueError(told["format"])
            return cls(int(told["block"]), str(told["identity"]), str(told["device"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ServingError(f"{path}: not a step written by robopos export ({error})") from None


class StepModule(nn.Module):
    """The network's step on named tensors, with the head on every token, for whoever runs the file elsewhere."""

    def __init__(self, network: SequenceTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Tensors in the order of `step_inputs`; gives those of `output_names`."""
        values, measured, observed, time_ns, index, valid, ring_time_ns, ring_index, ring_valid, horizons_s = tensors[
            :10
        ]
        caches = tensors[10:]
        tokens = Tokens(values[None], measured[None], observed[None], Positions(index, time_ns, valid))
        half = len(caches) // 2
        ring = Ring(caches[:half], caches[half:], ring_time_ns, ring_index, ring_valid)  # type: ignore[arg-type]
        output = self.network.step(tokens, ring)
        mean, log_std = self.network.predict(output.encoded[0], horizons_s)
        heads = (mean,) if log_std is None else (mean, log_std)
        return (output.encoded[0], output.keys, output.values, *heads)


def output_names(network: SequenceTransformer) -> list[str]:
    """Names of what comes out.

    ``encoded`` (N, D), ``new_keys`` and ``new_values`` (L, 1, heads, N, D / heads); ``residual`` and, where the network
    has it, ``residual_log_std`` (N, H, T), in the scales of residuals that the bundle holds.
    """
    heads = ["residual", "residual_log_std"] if network.settings.loss == "gaussian" else ["residual"]
    return ["encoded", "new_keys", "new_values", *heads]


def step_inputs(tokens: Tokens, ring: Ring, horizons_s: Tensor) -> dict[str, Tensor]:
    """Inputs by name, N tokens and S slots; each layer's cache is one input, so that no runtime copies a whole.

    ``token_values``, ``token_measured`` (N, F), ``token_observed`` (N, streams), ``token_time_ns``, ``token_index``,
    ``token_valid`` (N,); ``ring_time_ns``, ``ring_index``, ``ring_valid`` (S,); ``horizons_s`` (H,) float64; and for
    each layer, by its number, ``ring_keys_0``, ``ring_values_0`` (1, heads, S, D / heads).
    """
    index, time_ns, valid = given_positions(tokens.positions)
    given = (tokens.values[0], tokens.measured[0], tokens.observed[0], time_ns, index, valid)
    named = dict(zip(TOKEN_INPUTS, given, strict=True))
    named |= dict(zip(RING_INPUTS, (ring.time_ns, ring.index, ring.valid), strict=True))
    named["horizons_s"] = horizons_s
    named |= {f"ring_keys_{layer}": keys for layer, keys in enumerate(ring.keys)}
    named |= {f"ring_values_{layer}": values for layer, values in enumerate(ring.values)}
    return named


def load_step(path: str | Path, bundle: Bundle, device: torch.device, threads: int | None) -> tuple[int, Step]:
    """The step in a file, and the size of its blocks.

    An AOTInductor package is native code: load only what you made.

    Raises:
        ServingError: it is missing or no exported step, of another bundle, or for another device; or its runtime is
            not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise ServingError(f"{path}: no exported step there")
    kind = SUFFIXES.get(path.suffix)
    if kind is None:
        raise ServingError(f"{path}: an exported step ends in {' or '.join(SUFFIXES)}")
    horizons_s = torch.tensor(bundle.layout.horizons_s, dtype=torch.float64)
    try:
        step = OnnxStep(path, horizons_s, threads) if kind == "onnx" else PackageStep(path, horizons_s.to(device))
        artifact = Artifact.from_metadata(step.metadata, path)
    except RuntimeError as error:
        raise ServingError(f"{path}: cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    if artifact.identity != bundle_identity(bundle):
        raise ServingError(f"{path}: exported from another bundle: export this one anew")
    if artifact.device not in ("any", device.type):
        raise ServingError(f"{path}: compiled for {artifact.device}, not for {device.type}")
    return artifact.block, step


class OnnxStep:
    """A step that ONNX Runtime computes, on the CPU."""

    def __init__(self, path: Path, horizons_s: Tensor, threads: int | None) -> None:
        onnxruntime = import_or_say("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base
            raise RuntimeError(str(error)) from None
        self._horizons_s = horizons_s
        self.metadata = self._session.get_modelmeta().custom_metadata_map

    def __call__(self, tokens: Tokens, ring: Ring) -> StepOutput:
        feed = {name: x.cpu().numpy() for name, x in step_inputs(tokens, ring, self._horizons_s).items()}
        outputs = self._session.run(["encoded", "new_keys", "new_values"], feed)
        encoded, keys, values = (torch.from_numpy(np.asarray(output)).to(ring.keys.device) for output in outputs)
        return StepOutput(encoded[None], keys, values)


class PackageStep:
    """A step that AOTInductor compiled."""

    def __init__(self, path: Path, horizons_s: Tensor) -> None:
        from torch._inductor import aoti_load_package

        self._compiled: Any = aoti_load_package(str(path))
        self._horizons_s = horizons_s
        self.metadata = self._compiled.get_metadata()

    def __call__(self, tokens: Tokens, ring: Ring) -> StepOutput:
        encoded, keys, values, *_ = self._compiled(*step_inputs(tokens, ring, self._horizons_s).values())
        return StepOutput(encoded[None], keys, values)


def import_or_say(name: str) -> Any:
    """A module of the extra ``export``.

    Raises:
        ServingError: it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ServingError(f"{name} is not installed: pip install 'robopos[export]'") from None
