"""The causal Transformer on one page: tokens in, normalized residuals at each horizon out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robopos.model.settings import SIZES, ModelSettings
from robopos.positions import build_positions
from robopos.sequences import SequenceLayout, Tokens


class Block(nn.Module):
    """Pre-norm attention with QK-norm, then SwiGLU."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        hidden = 32 * round(dim * 8 / 3 / 32)  # 8/3 keeps the parameters of a plain 4x layer (Shazeer 2020)
        self.heads = heads
        self.norm_attention = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.norm_q = nn.RMSNorm(dim // heads)
        self.norm_k = nn.RMSNorm(dim // heads)
        self.out = nn.Linear(dim, dim, bias=False)
        self.norm_forward = nn.RMSNorm(dim)
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, plan: Any) -> Tensor:
        """(B, N, D) -> (B, N, D); ``plan`` holds positions and the band, shared by all layers."""
        batch, count, dim = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, count, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x (B, H, N, D / H)
        q, k = plan.rotate(self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype))
        attended = plan.attend(q, k, v).transpose(1, 2).reshape(batch, count, dim)
        x = x + self.dropout(self.out(attended))
        gate, up = self.gate_up(self.norm_forward(x)).chunk(2, dim=-1)
        return x + self.dropout(self.down(F.silu(gate) * up))


class HorizonHead(nn.Module):
    """The head is told the horizon: one network for every horizon, (B, N, D) -> (B, N, H, outputs)."""

    def __init__(self, dim: int, horizons_s: tuple[float, ...], outputs: int) -> None:
        super().__init__()
        self.state = nn.Linear(dim, dim)
        self.ahead = nn.Linear(2, dim, bias=False)
        self.out = nn.Linear(dim, outputs)
        horizons = torch.tensor(horizons_s, dtype=torch.float64)
        scaled = horizons / horizons.max()
        # Linear, and logarithmic over two decades: near and far horizons differ in one or the other.
        features = torch.stack([2 * scaled - 1, 1 + torch.log10(scaled) / 2], dim=-1)
        self.register_buffer("horizon_features", features.float())  # (H, 2)

    def forward(self, x: Tensor) -> Tensor:
        ahead = self.ahead(self.horizon_features.to(self.ahead.weight.dtype))  # (H, D)
        return self.out(F.silu(self.state(x)[..., None, :] + ahead))


class SequenceTransformer(nn.Module):
    """Messages to predictions.

    Args:
        layout: streams, features, targets and horizons.
        settings: size, positions, band and loss.

    ``forward`` gives (B, N, H, T) normalized residuals, and (B, N, H, T) logarithms of their standard deviation, or
    ``None`` where the loss is not ``gaussian``. Weights start as normal(0, 0.02), those that write to the residual
    stream divided by sqrt(2 x layers) (Radford 2019); biases as 0.
    """

    def __init__(self, layout: SequenceLayout, settings: ModelSettings) -> None:
        super().__init__()
        size = SIZES[settings.size]
        self.settings = settings
        self.num_targets = len(layout.targets)
        # A missing value is 0 and says so in the second half; the stream gives the token's kind.
        self.embed = nn.Linear(2 * layout.num_features, size.dim, bias=False)
        self.kind = nn.Linear(len(layout.streams), size.dim, bias=False)
        self.positions = build_positions(
            settings.positions, dim=size.dim, heads=size.heads, **settings.position_options
        )
        self.blocks = nn.ModuleList(Block(size.dim, size.heads, settings.dropout) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.dim)
        outputs = self.num_targets * (2 if settings.loss == "gaussian" else 1)
        self.head = HorizonHead(size.dim, layout.horizons_s, outputs)
        self._initialize(size.layers)

    def _initialize(self, layers: int) -> None:
        own = [self.embed, self.kind, *self.blocks.modules(), *self.head.modules()]
        for module in own:
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # Inputs are of size 1, not token numbers: let them reach the residual stream at that size.
        nn.init.normal_(self.embed.weight, std=self.embed.in_features**-0.5)
        nn.init.normal_(self.head.ahead.weight, std=0.5)
        for block in self.blocks:
            for module in (block.out, block.down):
                nn.init.normal_(module.weight, std=0.02 / (2 * layers) ** 0.5)

    def encode(self, tokens: Tokens) -> Tensor:
        """(B, N, D): what the network knows after each token."""
        values = torch.cat([tokens.values, tokens.measured.to(tokens.values.dtype)], dim=-1)
        weight = self.embed.weight.dtype
        x = self.embed(values.to(weight)) + self.kind(tokens.observed.to(weight))
        x = self.positions.add(x, tokens.positions)
        plan = self.positions.plan(tokens.positions, context=self.settings.context, context_s=self.settings.context_s)
        for block in self.blocks:
            x = block(x, plan)
        return self.norm(x)

    def predict(self, encoded: Tensor) -> tuple[Tensor, Tensor | None]:
        """The head alone, on (B, N, D)."""
        out = self.head(encoded)
        if out.shape[-1] == self.num_targets:
            return out, None
        mean, log_std = out.split(self.num_targets, dim=-1)
        # exp(±7) of the residual's scale: further out a loss would only overflow.
        return mean, log_std.clamp(-7.0, 7.0)

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor | None]:
        return self.predict(self.encode(tokens))

    def last(self, tokens: Tokens) -> tuple[Tensor, Tensor | None]:
        """The prediction of the last token alone, (B, H, T): what evaluation and serving ask for."""
        mean, log_std = self.predict(self.encode(tokens)[:, -1:])
        return mean[:, 0], None if log_std is None else log_std[:, 0]


def loss_of(kind: str, mean: Tensor, log_std: Tensor | None, targets: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss of what ``mask`` keeps, and how many that is: mean = sum / max(count, 1).

    ``mse``; ``huber`` with its knee at one residual scale; ``gaussian`` negative log likelihood without its constant.
    """
    error = (mean - targets).float()
    if kind == "mse":
        each = error**2
    elif kind == "huber":
        each = F.huber_loss(error, torch.zeros_like(error), reduction="none")
    else:
        if log_std is None:
            raise ValueError("the gaussian loss needs a network that predicts log_std")
        log_std = log_std.float()
        each = 0.5 * (error * torch.exp(-log_std)) ** 2 + log_std
    return (each * mask).sum(), mask.sum()
