"""A training step of our network against PyTorch's own encoder, in the same loop and in one run, on the CPU.

    python benchmarks/training.py [--quick] [--json FILE] [--threads N]

The rival is `torch.nn.TransformerEncoder` of the same width, depth, heads, batch and band (context in tokens),
pre-norm, with a sinusoid on the token number; inputs, head, loss, clipping and optimizer are ours for both, and its
feed-forward of four times the width has as many weights as our gated one, to 5 %. Both eager and both compiled.
Then: what positions on time cost over none, and the share of a step that sampling its windows takes for the default
model and batch. Times are the best of steps that take turns, so that a load from elsewhere meets all alike; only the
ratios count.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from measuring import Report, in_turns, parser
from torch import Tensor, nn
from workload import TrainingStep, Work, make_network, make_sampler, make_work

from robopos.model import ModelSettings, SequenceTransformer
from robopos.model.settings import SIZES
from robopos.sequences import SequenceLayout, Tokens

BATCH = 32  # windows, as `robopos train` has it by default
TOKENS = 20_000


class PlainTransformer(SequenceTransformer):
    """Our inputs, positions and head around PyTorch's encoder; windows must be full (it pads nothing)."""

    def __init__(self, layout: SequenceLayout, settings: ModelSettings) -> None:
        super().__init__(layout, settings)
        size = SIZES[settings.size]
        del self.blocks
        layer = nn.TransformerEncoderLayer(
            size.dim, size.heads, 4 * size.dim, settings.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False)
        place = torch.arange(settings.window)
        behind = place[:, None] - place
        self.register_buffer("hidden", (behind < 0) | (behind >= settings.context))  # (N, N), true: not seen

    def encode(self, tokens: Tokens) -> Tensor:
        x = self.positions.add(self._embed(tokens), tokens.positions)
        # Told that the mask is no triangle, it need not look: compiled, that would break its graph.
        return self.norm(self.encoder(x, mask=self.hidden, is_causal=False))


def steps(work: Work, size: str, compiled: bool) -> dict[str, TrainingStep]:
    """Ours with time-rotary and without positions, and PyTorch's."""
    kinds = {
        "ours": ("time-rotary", SequenceTransformer),
        "none": ("none", SequenceTransformer),
        "plain": ("index-sinusoidal", PlainTransformer),
    }
    return {
        name: TrainingStep(make_network(work, ModelSettings(positions=scheme, size=size), kind), compiled=compiled)
        for name, (scheme, kind) in kinds.items()
    }


def best(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each case."""
    return {name: min(times_s) for name, times_s in in_turns(cases, rounds).items()}


def compare(report: Report, work: Work, size: str, compiled: bool, rounds: int) -> float:
    """Time a step of all three; returns the seconds of ours."""
    settings = ModelSettings(size=size)
    batch = make_sampler(work, settings, BATCH).sample(0)
    if not bool(batch.tokens.positions.valid.all()):
        raise RuntimeError("a window is not full: the rival does not know padding")
    cases = {name: (lambda step=step: step(batch)) for name, step in steps(work, size, compiled).items()}
    found = best(cases, rounds)
    label = f"{size}, {'compiled' if compiled else 'eager'}"
    count = BATCH * settings.window
    report.add(f"{label}: ours", count / found["ours"], "tokens/s")
    report.add(f"{label}: nn.TransformerEncoder", count / found["plain"], "tokens/s")
    report.add(
        f"{label}: ours / nn.TransformerEncoder, tokens per second",
        found["plain"] / found["ours"],
        "x",
        at_least=1.2 if compiled else 0.95,
    )
    report.add(
        f"{label}: time-rotary over no positions, time of a step",
        100 * (found["ours"] / found["none"] - 1),
        "%",
        at_most=5,
    )
    return found["ours"]


def main(argv: list[str] | None = None) -> None:
    options = parser(__doc__, "few rounds of the smallest model, eager only: whether it runs, not how fast")
    options.add_argument("--threads", type=int, default=1, help="threads of torch (default: 1)")
    args = options.parse_args(argv)
    torch.set_num_threads(args.threads)
    report = Report()
    work = make_work(TOKENS)
    eager_s = compare(report, work, "tiny", False, 2 if args.quick else 31)
    sampler = make_sampler(work, ModelSettings(), BATCH)
    sampling_s = best({"sample": lambda: sampler.sample(1)}, 5 if args.quick else 51)["sample"]
    report.add("default model and batch: sampling, share of a step", 100 * sampling_s / eager_s, "%", at_most=3)
    if not args.quick:
        compare(report, work, "small", False, 7)
        compare(report, work, "tiny", True, 31)
        compare(report, work, "small", True, 7)
    if args.json:
        report.write_json(args.json)


if __name__ == "__main__":
    main()
