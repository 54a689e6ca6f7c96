"""Positions with plain torch: a network of one's own on samples that come at irregular times.

Two small networks learn to tell a swinging signal 0.1 s ahead; one knows the number of each sample, the other its time.
Printed are the error of both, with a third of the samples lost, and how much the prediction changes when every stamp
moves by 50 years: nothing, since times are int64 nanoseconds until the last moment. (About 15 s.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robopos.positions import Plan, Positions, build_positions

YEAR_NS = 31_557_600 * 10**9
AHEAD_S = 0.1


class Block(nn.Module):
    """A pre-norm Transformer block; what positions do to attention is in the plan."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        # (B, N, dim) -> three of (B, heads, N, dim / heads)
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = plan.rotate(q, k)
        x = x + self.out(plan.attend(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norms[1](x))


class Forecaster(nn.Module):
    """(B, N, 1) samples and their positions -> (B, N, 1) the signal `AHEAD_S` after each."""

    def __init__(self, positions: str, dim: int = 32, heads: int = 4, layers: int = 2, **options: float) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(1, dim), nn.Linear(dim, 1)
        self.scheme = build_positions(positions, dim=dim, heads=heads, **options)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))

    def forward(self, values: Tensor, positions: Positions) -> Tensor:
        x = self.scheme.add(self.embed(values), positions)  # rotary adds nothing; sinusoids would
        plan = self.scheme.plan(positions, context_s=2.0)  # once, for all layers: nobody looks back further than 2 s
        for block in self.blocks:
            x = block(x, plan)
        return self.head(x)


def samples(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """time_ns (B, 32), the signal then and `AHEAD_S` later (B, 32, 1): 50 Hz with jitter, a third lost."""
    ticks = torch.rand(batch, 48, generator=generator).topk(32).indices.sort().values
    time_s = (ticks + 0.5 * torch.rand(batch, 32, generator=generator)).double() / 50
    phase = 6.3 * torch.rand(batch, 1, generator=generator).double()
    at, later = (torch.sin(9 * t + phase) + torch.sin(15 * t + 2 * phase) for t in (time_s, time_s + AHEAD_S))
    return (time_s * 1e9).long() + 1_700_000_000 * 10**9, at[..., None].float(), later[..., None].float()


def trained(positions: str, steps: int = 150, **options: float) -> Forecaster:
    """A network after a few hundred steps; the same seed gives all schemes the same samples."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Forecaster(positions, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        time_ns, at, later = samples(16, generator)
        loss = nn.functional.mse_loss(model(at, Positions(time_ns=time_ns))[:, 8:], later[:, 8:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def main() -> None:
    time_ns, at, later = samples(256, torch.Generator().manual_seed(2))
    print(f"holding the last value: RMSE {(at - later)[:, 8:].square().mean().sqrt():.3f}")
    for name, options in (("index-rotary", {}), ("time-rotary", {"min_period_s": 0.05, "max_period_s": 8.0})):
        with torch.enable_grad():
            model = trained(name, **options)
        predicted = model(at, Positions(time_ns=time_ns))
        moved = model(at, Positions(time_ns=time_ns + 50 * YEAR_NS))
        print(
            f"{name}: RMSE {(predicted - later)[:, 8:].square().mean().sqrt():.3f}, "
            f"changes by {(moved - predicted).abs().max():.1e} when all stamps move by 50 years"
        )


if __name__ == "__main__":
    main()
