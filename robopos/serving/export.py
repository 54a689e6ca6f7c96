"""A bundle's block step to a file that runs without this code, checked against the network over many steps."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from robopos.errors import ServingError
from robopos.model import Bundle, Step, bundle_identity
from robopos.positions import Positions
from robopos.sequences import Tokens
from robopos.serving.exported import SUFFIXES, Artifact, StepModule, import_or_say, load_step, output_names, step_inputs
from robopos.serving.steps import BLOCK, intra_op_threads

TOLERANCE = 1e-4
EPOCH_NS = 1_700_000_000_000_000_000
Inputs = dict[str, Tensor]


class Parity(NamedTuple):
    """How far an exported step is from the network's own, each with a ring of its own."""

    steps: int
    tokens: int
    largest: float
    """Largest difference of ``encoded``, whose size is about 1."""
    rms: float


def export_step(bundle: Bundle, to: str, out: str | Path, *, block: int = BLOCK) -> Parity:
    """Write a bundle's step; the file is there only if it agrees with the network.

    Args:
        to: ``onnx`` (runs on the CPU of any machine with an ONNX runtime) or ``aotinductor`` (native code for this
            kind of machine, for the device that the network is on).
        out: ends in ``.onnx`` or ``.pt2``.
        block: tokens of a block.

    Raises:
        ConfigError: the position scheme does not stream.
        ServingError: a wrong argument, a tool that is missing, or a file that does not agree with the network.
    """
    out = Path(out)
    if to not in EXPORTERS:
        raise ServingError(f"export to {to!r} is not known; there are {', '.join(EXPORTERS)}")
    if SUFFIXES.get(out.suffix) != to:
        raise ServingError(f"{out}: the file of {to} ends in {dict(zip(SUFFIXES.values(), SUFFIXES, strict=True))[to]}")
    if block < 1:
        raise ServingError(f"block is {block}, must be a number of tokens >= 1")
    network = bundle.network.eval().requires_grad_(False)
    state = network.start()
    device = state.ring.keys.device
    horizons_s = torch.tensor(bundle.layout.horizons_s, dtype=torch.float64, device=device)
    order = torch.arange(block, device=device)
    example = random_tokens(bundle, block, seed=0).to(device)
    assert example.positions.time_ns is not None
    positions = Positions(order, example.positions.time_ns, torch.ones_like(order).bool())
    inputs = step_inputs(example._replace(positions=positions), state.ring, horizons_s)
    artifact = Artifact(block, bundle_identity(bundle), "any" if to == "onnx" else device.type)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.stem}-") as folder:
        beside = Path(folder) / out.name
        try:
            EXPORTERS[to](StepModule(network), inputs, artifact.to_metadata(bundle, inputs), beside)
        except ServingError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ServingError(f"{to} cannot take this network: {type(error).__name__}: {reason}") from error
        _, step = load_step(beside, bundle, device, 1)
        parity = check_step(bundle, step, block)
        if not parity.largest <= TOLERANCE:
            raise ServingError(
                f"the exported step differs from the network by {parity.largest:.2g} after {parity.steps} steps "
                f"(allowed {TOLERANCE:g}): nothing was written"
            )
        os.replace(beside, out)
    return parity


@torch.inference_mode()
def check_step(bundle: Bundle, step: Step, block: int) -> Parity:
    """Run a step beside the network's own over more than two turns of the ring, in blocks full and not."""
    network = bundle.network
    ours, theirs = network.start(), network.start()
    device = ours.ring.keys.device
    generator = torch.Generator().manual_seed(1)
    total = max(2 * bundle.settings.context + 3 * block, 20 * block)
    tokens = random_tokens(bundle, total + block, seed=2).to(device)
    steps, start, largest, squares, numbers = 0, 0, 0.0, 0.0, 0
    with intra_op_threads(1):
        while start < total:
            count = int(torch.randint(1, block + 1, (), generator=generator)) if steps % 2 else block
            part = _part(tokens, start, start + block)
            error = (ours.absorb(step, part, count) - theirs.absorb(network.step, part, count))[:, :count].double()
            # A value that is not finite is no agreement.
            largest = max(largest, float(error.abs().nan_to_num(torch.inf).max()))
            squares += float(error.square().sum())
            numbers += error.numel()
            start, steps = start + count, steps + 1
    return Parity(steps, start, largest, (squares / numbers) ** 0.5)


def random_tokens(bundle: Bundle, count: int, seed: int) -> Tokens:
    """(1, count, ...) tokens at irregular times of this century, some late, some with missing values."""
    layout, settings = bundle.layout, bundle.settings
    generator = torch.Generator().manual_seed(seed)
    shape = (1, count, layout.num_features)
    measured = torch.rand(shape, generator=generator) < 0.8
    kind = torch.randint(len(layout.streams), (1, count), generator=generator)
    usual_ns = round(1e9 * (settings.context_s or 0.01 * settings.context) / settings.context)
    steps = torch.randint(0, 2 * usual_ns, (count,), generator=generator)
    late = torch.randint(0, usual_ns, (count,), generator=generator)
    return Tokens(
        torch.randn(shape, generator=generator) * measured,
        measured,
        torch.nn.functional.one_hot(kind, len(layout.streams)).bool(),
        Positions(time_ns=EPOCH_NS + steps.cumsum(0) - late),
    )


def _part(tokens: Tokens, start: int, stop: int) -> Tokens:
    assert tokens.positions.time_ns is not None
    time_ns = tokens.positions.time_ns[start:stop]
    values, measured, observed = (x[:, start:stop] for x in tokens[:3])
    return Tokens(values, measured, observed, Positions(time_ns=time_ns))


def _to_onnx(module: StepModule, inputs: Inputs, metadata: dict[str, str], out: Path) -> None:
    onnx = import_or_say("onnx")
    import_or_say("onnxscript")
    module = module.cpu()
    with warnings.catch_warnings(), _quiet("torch.onnx._internal.exporter._registration"):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(x.cpu() for x in inputs.values()),
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=output_names(module.network),
        )
    assert program is not None
    program.save(str(out), external_data=False)
    model = onnx.load(str(out))
    for name, text in metadata.items():
        model.metadata_props.add(key=name, value=text)
    onnx.save(model, str(out))


def _to_package(module: StepModule, inputs: Inputs, metadata: dict[str, str], out: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, tuple(inputs.values()))
        aoti_compile_and_package(exported, package_path=str(out), inductor_configs={"aot_inductor.metadata": metadata})


EXPORTERS: dict[str, Callable[[StepModule, Inputs, dict[str, str], Path], None]] = {
    "onnx": _to_onnx,
    "aotinductor": _to_package,
}


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Errors alone from a logger: the exporter warns of each operator of a torchvision that nobody needs."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
