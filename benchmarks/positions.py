"""Positions against the libraries in use: time and phase error, all in one run.

    python benchmarks/positions.py [--quick] [--json FILE] [--threads N]

B=8, H=8, N=1024, D=64, width 512, float32 on the CPU; every library is given its tables. Times are the best of
interleaved rounds, so that a busy machine slows all alike; only the ratios count. The other libraries
come with `pip install robopos[bench]`; one that is missing is named and left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from measuring import Report, in_turns, parser
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from robopos.positions import Positions, SinusoidalEncoding, build_positions

B, H, N, D = 8, 8, 1024, 64
WIDTH = H * D
# 200 messages a second: slope × span is 41 for alibi's steepest head, within the folding limit.
STEP_NS = 5_000_000
EPOCH_NS = 1_700_000_000 * 10**9
TOKEN, SECONDS = 1_000_003, 100_000.0137


class Peer(NamedTuple):
    """What another library offers; None where it has no such thing."""

    rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    """q, k (B, H, N, D) → the same, turned, with tables given."""
    add_index: Callable[[Tensor], Tensor] | None = None
    """x (B, N, width) → x with sinusoids added."""
    add_time: Callable[[Tensor, Tensor], Tensor] | None = None
    """x (B, N, width) and seconds (N,) → the same, made from the seconds."""
    sines: Callable[[Tensor, torch.dtype], Tensor] | None = None
    """One position () float64, in a model of the type → sines (F,) of its angles, slowest last."""
    frequencies: Callable[[], Tensor] | None = None
    """The nominal frequencies (F,), float64."""


def main() -> None:
    options = parser(__doc__, "few rounds: whether it runs, not how fast")
    options.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    peers = load_peers()
    rounds = 3 if args.quick else 41
    report = Report()
    rotary(report, peers, rounds)
    additive(report, peers, rounds)
    alibi(report, 3 if args.quick else 15)
    errors(report, peers)
    if args.json:
        report.write_json(args.json)


def measure(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best milliseconds of each case."""
    return {name: 1e3 * min(times_s) for name, times_s in in_turns(cases, rounds).items()}


def against(report: Report, name: str, ours: float, other: float, target: float | None) -> None:
    """A ratio of times; small is good."""
    report.add(f"{name} ({ours:.2f} / {other:.2f} ms)", ours / other, "x", at_most=target)


def stamps() -> Tensor:
    return EPOCH_NS + torch.arange(N).expand(B, N).contiguous() * STEP_NS


def rotary(report: Report, peers: dict[str, Peer], rounds: int) -> None:
    plan = build_positions("time-rotary", dim=WIDTH, heads=H).plan(Positions(time_ns=stamps()))
    q, k = torch.randn(2, B, H, N, D).unbind()
    turning = {name: peer.rotate for name, peer in peers.items() if peer.rotate}
    cases: dict[str, Callable[[], object]] = {
        "copy": lambda: (q.clone(), k.clone()),
        "ours": lambda: plan.rotate(q, k),
        **{name: (lambda rotate=rotate: rotate(q, k)) for name, rotate in turning.items()},
    }
    forward = measure(cases, rounds)

    # A projection's output (B, N, H, D), seen as (B, H, N, D): what a layer really has.
    views = [torch.randn(B, N, H, D).transpose(1, 2).requires_grad_() for _ in range(2)]
    grads = [torch.randn(B, H, N, D) for _ in range(2)]

    def both_ways(rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(rotate(*views), views, grads)

    trained = measure(
        {"ours": both_ways(plan.rotate), **{name: both_ways(rotate) for name, rotate in turning.items()}}, rounds
    )
    goals = {"transformers": (0.2, 0.3), "rotary-embedding-torch": (0.1, 0.2)}
    against(report, "rotary, contiguous: ours / copying q and k", forward["ours"], forward["copy"], 2.0)
    for name in turning:
        there, back = goals.get(name, (None, None))
        against(report, f"rotary, contiguous: ours / {name}", forward["ours"], forward[name], there)
        against(report, f"rotary, forward + backward: ours / {name}", trained["ours"], trained[name], back)


def additive(report: Report, peers: dict[str, Peer], rounds: int) -> None:
    x = torch.randn(B, N, WIDTH)
    index, on_time = SinusoidalEncoding(WIDTH), build_positions("time-sinusoidal", dim=WIDTH)
    scheme = build_positions("index-sinusoidal", dim=WIDTH)
    table, each, shared = index(torch.arange(N)), Positions(time_ns=stamps()), Positions(time_ns=stamps()[0])
    seconds = torch.arange(N) * (STEP_NS / 1e9)
    compiled = torch.compile(on_time.add)
    cases: dict[str, Callable[[], object]] = {
        "table": lambda: x + table,
        "fresh": lambda: scheme.add(x, Positions()),
        "shared": lambda: compiled(x, shared),
        "each": lambda: compiled(x, each),
    }
    for name, peer in peers.items():
        if peer.add_index:
            cases[f"index {name}"] = lambda add=peer.add_index: add(x)
        if peer.add_time:
            cases[f"time {name}"] = lambda add=peer.add_time: add(x, seconds)
    with torch.no_grad():
        found = measure(cases, rounds)
    for name in peers:
        if f"index {name}" in found:
            other, goal = found[f"index {name}"], 0.8 if name == "positional-encodings" else None
            against(report, f"index sinusoid, table given: ours / {name}", found["table"], other, goal)
            against(report, f"index sinusoid, made anew: ours / {name}", found["fresh"], other, None)
        if f"time {name}" in found:
            other, goal = found[f"time {name}"], 1.3 if name == "x-transformers" else None
            label = f"exact time sinusoid, compiled: ours{{}} / {name}, inexact"
            against(report, label.format(""), found["shared"], other, goal)
            # Windows with stamps of their own, which the other cannot take: eight times as many sines.
            against(report, label.format(", own stamps a window"), found["each"], other, goal)


def alibi(report: Report, rounds: int) -> None:
    folding, none = (build_positions(name, dim=WIDTH, heads=H) for name in ("time-alibi", "none"))
    positions, band = Positions(time_ns=stamps()), {"context": N // 2, "context_s": 2.0}
    free, banded, masked = folding.plan(positions), folding.plan(positions, **band), none.plan(positions, **band)
    assert free.key_terms is not None and banded.key_terms is not None
    blocks = free._replace(key_terms=None)
    q, k, v = torch.randn(3, B, H, N, D).unbind()
    with torch.no_grad():
        found = measure(
            {
                "causal": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
                "alibi": lambda: free.attend(q, k, v),
                "masked": lambda: masked.attend(q, k, v),
                "banded": lambda: banded.attend(q, k, v),
                "blocks": lambda: blocks.attend(q, k, v),
            },
            rounds,
        )
    causal = found["causal"]
    against(report, "alibi by time, no band: ours / plain causal attention", found["alibi"], causal, 1.3)
    against(report, "alibi by time, band: ours / the same masked attention", found["banded"], found["masked"], 1.15)
    against(report, "alibi by time, beyond folding: by blocks / plain causal", found["blocks"], causal, None)


def errors(report: Report, peers: dict[str, Peer]) -> None:
    """Largest error of a sine at a late position, against float64; narrow outputs round to 2e-3 by themselves."""
    for dtype in (torch.float32, torch.bfloat16):
        label = str(dtype).removeprefix("torch.")
        for where, value in (("position 1e6", float(TOKEN)), ("1e5 s", SECONDS)):
            goal = 5e-7 if dtype == torch.float32 else 2.0**-8
            ours = our_error(value, where.endswith("s"), dtype)
            report.add(f"error of a sine at {where}, {label}: ours", ours, at_most=goal)
            for name, peer in peers.items():
                if peer.sines is None or peer.frequencies is None:
                    continue
                try:
                    sines = peer.sines(torch.tensor(value, dtype=torch.float64), dtype)
                except NotImplementedError as reason:
                    print(f"{name}: {reason}")
                    continue
                exact = (peer.frequencies() * value).sin()
                error = float((sines.double() - exact).abs().max())
                report.add(f"error of a sine at {where}, {label}: {name}", error)


def our_error(value: float, on_time: bool, dtype: torch.dtype) -> float:
    # Seconds are given the peers' frequencies: one radian a second and slower.
    encoding = (
        SinusoidalEncoding(D, min_period_s=2 * math.pi, max_period_s=2 * math.pi * 10000)
        if on_time
        else SinusoidalEncoding(D)
    )
    tick = round(value * 1e9) if on_time else round(value)
    turns = [tick * increment % 2**64 / 2.0**64 for increment in encoding.increments.tolist()]
    exact = (torch.tensor(turns, dtype=torch.float64) * (2 * math.pi)).sin()
    given: dict[str, Any] = {"time_ns" if on_time else "index": torch.tensor([tick])}
    return float((encoding.to(dtype)(**given)[0, ::2].double() - exact).abs().max())


def nominal() -> Tensor:
    """The frequencies that all libraries share: 10000^(−2k/D)."""
    return 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)


def load_peers() -> dict[str, Peer]:
    """The libraries that are installed, by name; the others are named."""
    peers = {}
    for name, load in (
        ("rotary-embedding-torch", rotary_embedding_torch),
        ("transformers", transformers),
        ("x-transformers", x_transformers),
        ("positional-encodings", positional_encodings),
    ):
        try:
            peers[name] = load()
        except ImportError as error:
            print(f"{name} is left out: {error} (pip install 'robopos[bench]')")
    return peers


def rotary_embedding_torch() -> Peer:
    from rotary_embedding_torch import RotaryEmbedding as Theirs

    rope = Theirs(dim=D)

    def sines(position: Tensor, dtype: torch.dtype) -> Tensor:
        fresh = Theirs(dim=D, cache_if_possible=False).to(dtype)
        return fresh(position.to(torch.float32).unsqueeze(0))[0, ::2].sin().detach()

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rope.rotate_queries_or_keys(q), rope.rotate_queries_or_keys(k)

    return Peer(rotate=rotate, sines=sines, frequencies=nominal)


def transformers() -> Peer:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    rope = LlamaRotaryEmbedding(LlamaConfig(hidden_size=WIDTH, num_attention_heads=H, head_dim=D))
    cosines, sines_ = rope(torch.zeros(1), torch.arange(N).unsqueeze(0))

    def sines(position: Tensor, dtype: torch.dtype) -> Tensor:
        narrow = LlamaRotaryEmbedding(LlamaConfig(hidden_size=WIDTH, num_attention_heads=H, head_dim=D)).to(dtype)
        return narrow(torch.zeros(1, dtype=dtype), position.to(torch.float32).view(1, 1))[1][0, 0, : D // 2]

    return Peer(rotate=lambda q, k: apply_rotary_pos_emb(q, k, cosines, sines_), sines=sines, frequencies=nominal)


def x_transformers() -> Peer:
    from x_transformers.x_transformers import RotaryEmbedding as Theirs
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding, apply_rotary_pos_emb

    freqs, _ = Theirs(D)(torch.arange(N))
    sinusoid = ScaledSinusoidalEmbedding(WIDTH)

    def sines(position: Tensor, dtype: torch.dtype) -> Tensor:
        return Theirs(D).to(dtype)(position.to(torch.float32).unsqueeze(0))[0][0, 0, ::2].sin()

    return Peer(
        rotate=lambda q, k: (apply_rotary_pos_emb(q, freqs), apply_rotary_pos_emb(k, freqs)),
        add_index=lambda x: x + sinusoid(x),
        add_time=lambda x, seconds: x + sinusoid(x, pos=seconds),
        sines=sines,
        frequencies=nominal,
    )


def positional_encodings() -> Peer:
    from positional_encodings.torch_encodings import PositionalEncoding1D, Summer

    summer = Summer(PositionalEncoding1D(WIDTH))

    def sines(position: Tensor, dtype: torch.dtype) -> Tensor:
        if position != position.round():
            raise NotImplementedError("takes token numbers only, no times")
        # It knows no position but 0…N−1: the whole table, for one row.
        narrow = PositionalEncoding1D(D).to(dtype)
        return narrow(torch.empty(1, int(position) + 1, D, dtype=dtype))[0, -1, ::2]

    return Peer(add_index=summer, sines=sines, frequencies=nominal)


if __name__ == "__main__":
    main()
