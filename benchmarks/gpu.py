"""Training and streaming on one GPU: one command, within 8 minutes on an H200, without a network.

    python benchmarks/gpu.py [--quick] [--json FILE] [--markdown FILE] [--size base] [--batch 64] [--window 1024]
                             [--context 512] [--peak-tflops 989] [--steps 20]

It makes its own data and needs Python >= 3.10 with torch >= 2.5, numpy, pyyaml and safetensors, and this repository:
run it from its top folder with PYTHONPATH=. where robopos is not installed. Streaming with CUDA graphs also needs mcap,
lz4 and zstandard. For a machine without a network, fetch what it lacks elsewhere with `pip download --dest wheels
--only-binary :all: --platform manylinux2014_x86_64 --python-version 3.12 safetensors pyyaml mcap lz4 zstandard`, and
there `pip install --no-index --find-links wheels ...`.

What it measures, in this order:

- a training step (forward, loss, backward, clipping, AdamW) in bf16, compiled: time, tokens/s, model FLOP utilisation
  against --peak-tflops (default: dense bf16 of an H100 or H200 SXM, from NVIDIA's data sheet), memory, and the share of
  sampling its windows from columns on the device;
- attention alone, forward and backward, of schemes side by side (their plan included), against the same band as a
  dense mask and the same bias as a dense array, both given;
- streaming, token by token with cached keys: latency p50 and p99, eager and as a CUDA graph.

A part that fails is told and the others go on; the exit code is 1 then. Without a GPU only --quick makes sense: tiny
sizes, everything on the CPU but the graph.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from measuring import Report, in_turns, medians, parser
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from workload import TrainingStep, Work, make_network, make_sampler, make_work, step_flops

from robopos.model import ModelSettings, SequenceTransformer, Step
from robopos.model.settings import SIZES
from robopos.positions import AlibiBias, Positions, build_positions

SCHEMES = ("none", "time-rotary", "time-alibi", "time-relative")


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    model: str
    batch: int  # windows
    window: int  # tokens
    context: int  # tokens
    steps: int  # of training, timed
    stream: int  # tokens, timed
    data: int  # tokens of the columns


QUICK = Sizes("tiny", batch=2, window=48, context=32, steps=2, stream=8, data=3000)


class Bench:
    """The parts, on one device."""

    def __init__(self, sizes: Sizes, peak_tflops: float, report: Report) -> None:
        self.sizes, self.peak_tflops, self.report = sizes, peak_tflops, report
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.work: Work = make_work(sizes.data, self.device)
        self.settings = ModelSettings(size=sizes.model, window=sizes.window, context=sizes.context)

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _median_s(self, cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
        return medians(in_turns(cases, rounds, warm_up=3, wait=self.wait))

    def training(self) -> None:
        """The step as a whole."""
        on_gpu = self.device.type == "cuda"
        network = make_network(self.work, self.settings, SequenceTransformer)
        sampler = make_sampler(self.work, self.settings, self.sizes.batch)
        step = TrainingStep(network, compiled=on_gpu, narrow=True)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        step(sampler.sample(0))
        self.wait()
        label = f"training {self.sizes.model}, {self.sizes.batch} x {self.sizes.window} tokens, bf16"
        self.report.add(f"{label}: first step, with compilation", time.perf_counter() - started, "s")
        batches = iter(range(1, 10**9))
        found = self._median_s(
            {"step": lambda: step(sampler.sample(next(batches))), "sampling": lambda: sampler.sample(next(batches))},
            self.sizes.steps,
        )
        flops = step_flops(network, self.sizes.batch)
        rate = flops / found["step"] / 1e12
        self.report.add(f"{label}: parameters", sum(p.numel() for p in network.parameters()) / 1e6, "million")
        self.report.add(f"{label}: step", 1e3 * found["step"], "ms")
        self.report.add(f"{label}: throughput", self.sizes.batch * self.sizes.window / found["step"], "tokens/s")
        self.report.add(f"{label}: model arithmetic", rate, "TFLOP/s")
        goal = {"at_least": 40.0} if on_gpu and self.sizes.model == "base" else {}
        self.report.add(f"{label}: model FLOP utilisation", 100 * rate / self.peak_tflops, "%", **goal)
        goal = {"at_most": 1.0} if on_gpu else {}
        self.report.add(f"{label}: sampling, share of a step", 100 * found["sampling"] / found["step"], "%", **goal)
        if on_gpu:
            self.report.add(f"{label}: peak memory", torch.cuda.max_memory_allocated() / 2**30, "GiB")

    def attention(self) -> None:
        """One layer's attention under the band, forward and backward, compiled on a GPU."""
        size = SIZES[self.sizes.model]
        batch = make_sampler(self.work, self.settings, self.sizes.batch).sample(0)
        positions = Positions(time_ns=batch.tokens.positions.time_ns)
        shape = (self.sizes.batch, size.heads, self.sizes.window, size.dim // size.heads)
        inputs = [torch.randn(shape, device=self.device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
        gradient = torch.randn(shape, device=self.device, dtype=torch.bfloat16)
        compiled = torch.compile if self.device.type == "cuda" else (lambda function: function)

        def case(attend: Callable[..., Tensor]) -> Callable[[], object]:
            ready = compiled(attend)
            return lambda: torch.autograd.grad(ready(*inputs), inputs, gradient)

        cases = {scheme: case(self._attend(scheme, positions)) for scheme in SCHEMES}
        band, bias = self._dense(positions, size.heads)
        cases["dense mask of the band"] = case(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=band.expand(len(q), 1, *band.shape[-2:]))
        )
        cases["dense bias, given"] = case(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=bias))
        cases["causal, no band"] = case(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
        for name, seconds in self._median_s(cases, self.sizes.steps).items():
            self.report.add(f"attention {tuple(shape)}, forward + backward: {name}", 1e3 * seconds, "ms")

    def _attend(self, name: str, positions: Positions) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        size = SIZES[self.sizes.model]
        scheme = build_positions(name, dim=size.dim, heads=size.heads).to(self.device)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with torch.autocast(self.device.type, torch.bfloat16):
                out = scheme.attend(q, k, v, positions, context=self.sizes.context)
            return out.to(q.dtype)

        return attend

    def _dense(self, positions: Positions, heads: int) -> tuple[Tensor, Tensor]:
        """The band (B, 1, N, N), true where seen, and alibi's bias with it (B, heads, N, N), both made once."""
        place = torch.arange(self.sizes.window, device=self.device)
        behind = place[:, None] - place
        band = ((behind >= 0) & (behind < self.sizes.context))[None, None]
        alibi = AlibiBias(heads, clock="time").to(self.device)
        with torch.no_grad():
            bias = alibi.scores(positions, positions).to(torch.bfloat16).masked_fill(~band, -torch.inf)
        return band, bias

    @torch.inference_mode()
    def streaming(self) -> None:
        """Token by token against the ring, as the engine does it."""
        network = make_network(self.work, self.settings, SequenceTransformer).eval()
        for name, step in self._steps(network):
            state = network.start()
            times_ms = []
            for number in range(self.sizes.context + 5 + self.sizes.stream):
                tokens, _ = self.work.columns.windows(torch.tensor([number], device=self.device), 1)
                time_ns = tokens.positions.time_ns
                assert time_ns is not None
                tokens = tokens._replace(positions=Positions(time_ns=time_ns[0]))
                self.wait()
                started = time.perf_counter()
                mean, _ = network.predict(state.absorb(step, tokens, 1)[:, -1])
                mean.cpu()
                times_ms.append(1e3 * (time.perf_counter() - started))
            for share in (50, 99):
                value = float(np.percentile(times_ms[-self.sizes.stream :], share))
                self.report.add(f"streaming {self.sizes.model}, {name}: latency of a token, p{share}", value, "ms")

    def _steps(self, network: SequenceTransformer) -> Iterator[tuple[str, Step]]:
        yield "eager", network.step
        if self.device.type != "cuda":
            print("streaming: a CUDA graph needs a GPU: left out")
            return
        try:
            from robopos.serving.steps import GraphStep
        except ModuleNotFoundError as error:
            print(f"streaming: CUDA graphs are left out: {error}")
            return
        yield "CUDA graph", GraphStep(network)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, "tiny sizes: whether it runs, not how fast")
    options.add_argument("--markdown", metavar="FILE", help="write the figures as a table")
    options.add_argument("--size", choices=list(SIZES), default="base", help="of the model (default: base)")
    options.add_argument("--batch", type=int, default=64, help="windows of a batch (default: 64)")
    options.add_argument("--window", type=int, default=1024, help="tokens of a window (default: 1024)")
    options.add_argument("--context", type=int, default=512, help="tokens that a token sees (default: 512)")
    options.add_argument("--steps", type=int, default=20, help="steps that are timed (default: 20)")
    options.add_argument("--peak-tflops", type=float, default=989.0, help="dense bf16 of the GPU (default: 989)")
    args = options.parse_args(argv)
    if not args.quick and not torch.cuda.is_available():
        options.error("torch finds no GPU here; --quick runs tiny sizes on the CPU")
    sizes = (
        QUICK
        if args.quick
        else Sizes(args.size, args.batch, args.window, args.context, args.steps, stream=2000, data=200_000)
    )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    title = f"{device}, torch {torch.__version__}"
    print(title)
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    report = Report()
    bench = Bench(sizes, args.peak_tflops, report)
    failed = 0
    for part in (bench.training, bench.attention, bench.streaming):
        try:
            part()
        except Exception as error:  # whatever a part dies of, the others still tell what the machine can do
            failed = 1
            print(f"{part.__name__} failed: {type(error).__name__}: {error}", file=sys.stderr)
    if args.json:
        report.write_json(args.json)
    if args.markdown:
        report.write_markdown(args.markdown, title)
    return failed


if __name__ == "__main__":
    sys.exit(main())
