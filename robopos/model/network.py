"""The causal Transformer on one page: tokens in, normalized residuals at each horizon out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robopos.model.settings import SIZES, ModelSettings
from robopos.model.streaming import Ring, StepOutput, StreamState, pick_mode
from robopos.positions import Plan, build_positions
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

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        """(B, N, D) -> (B, N, D); ``plan`` holds positions and the band, shared by all layers."""
        q, k, v = self._project(x, plan)
        return self._mix(x, plan.attend(q, k, v))

    def step(self, x: Tensor, plan: Plan, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same for new tokens behind cached keys and values (B, heads, S, D / heads); gives the new ones too."""
        q, k, v = self._project(x, plan)
        attended = plan.attend(q, torch.cat([keys, k], dim=-2), torch.cat([values, v], dim=-2))
        return self._mix(x, attended), k, v

    def _project(self, x: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
        batch, count, dim = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, count, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x (B, H, N, D / H)
        q, k = plan.rotate(self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype))
        return q, k, v

    def _mix(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(x.shape)))
        gate, up = self.gate_up(self.norm_forward(x)).chunk(2, dim=-1)
        mixed: Tensor = x + self.dropout(self.down(F.silu(gate) * up))
        return mixed


class HorizonHead(nn.Module):
    """The head is told the horizon: one network for every horizon, (..., D) -> (..., H, outputs)."""

    def __init__(self, dim: int, horizons_s: tuple[float, ...], outputs: int) -> None:
        super().__init__()
        self.state = nn.Linear(dim, dim)
        self.ahead = nn.Linear(2, dim, bias=False)
        self.out = nn.Linear(dim, outputs)
        self.furthest_s = max(horizons_s) or 1.0  # the present alone, of an action
        features = self.features(torch.tensor(horizons_s, dtype=torch.float64))
        self.register_buffer("horizon_features", features.float())  # (H, 2)

    def features(self, horizons_s: Tensor) -> Tensor:
        """(..., H) float64 seconds after the newest message -> (..., H, 2)."""
        scaled = horizons_s / self.furthest_s
        # Linear, and logarithmic over two decades: near and far horizons differ in one or the other.
        return torch.stack([2 * scaled - 1, 1 + torch.log10(scaled.clamp(min=1e-4)) / 2], dim=-1)

    def forward(self, x: Tensor, horizons_s: Tensor | None = None) -> Tensor:
        """``horizons_s`` (..., H) float64, instead of those of the layout."""
        features = self.horizon_features if horizons_s is None else self.features(horizons_s)
        ahead = self.ahead(features.to(self.ahead.weight.dtype))  # (..., H, D)
        outputs: Tensor = self.out(F.silu(self.state(x)[..., None, :] + ahead))
        return outputs


class SequenceTransformer(nn.Module):
    """Messages to predictions.

    Args:
        layout: streams, features, targets and horizons.
        settings: size, positions, band and loss.

    ``forward`` gives (B, N, H, T) normalized residuals, and (B, N, H, T) logarithms of their standard deviation, or
    ``None`` where the loss is not ``gaussian``. Weights start as normal(0, 0.02), those that write to the residual
    stream divided by sqrt(2 x layers) (Radford 2019); biases as 0.
    """

    blocks: Sequence[Block]

    def __init__(self, layout: SequenceLayout, settings: ModelSettings) -> None:
        super().__init__()
        size = SIZES[settings.size]
        self.settings = settings
        self.num_targets = len(layout.targets)
        self.horizons_s = layout.horizons_s
        # A missing value is 0 and says so in the second half; the stream gives the token's kind.
        self.embed = nn.Linear(2 * layout.num_features, size.dim, bias=False)
        self.kind = nn.Linear(len(layout.streams), size.dim, bias=False)
        self.positions = build_positions(
            settings.positions, dim=size.dim, heads=size.heads, **settings.position_options
        )
        blocks = [Block(size.dim, size.heads, settings.dropout) for _ in range(size.layers)]
        self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]  # such a sequence, but of Module by its type
        self.norm = nn.RMSNorm(size.dim)
        outputs = self.num_targets * (2 if settings.loss == "gaussian" else 1)
        self.head = HorizonHead(size.dim, layout.horizons_s, outputs)
        self._initialize(size.layers)

    def _initialize(self, layers: int) -> None:
        inside = [module for part in (*self.blocks, self.head) for module in part.modules()]
        for module in (self.embed, self.kind, *inside):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        # Inputs are of size 1, not token numbers: let them reach the residual stream at that size.
        nn.init.normal_(self.embed.weight, std=self.embed.in_features**-0.5)
        nn.init.normal_(self.head.ahead.weight, std=0.5)
        for block in self.blocks:
            for linear in (block.out, block.down):
                nn.init.normal_(linear.weight, std=0.02 / (2 * layers) ** 0.5)

    def encode(self, tokens: Tokens) -> Tensor:
        """(B, N, D): what the network knows after each token."""
        x = self.positions.add(self._embed(tokens), tokens.positions)
        plan = self.positions.plan(tokens.positions, context=self.settings.context, context_s=self.settings.context_s)
        for block in self.blocks:
            x = block(x, plan)
        encoded: Tensor = self.norm(x)
        return encoded

    def step(self, tokens: Tokens, ring: Ring) -> StepOutput:
        """New tokens behind those of a ring, for schemes that stream. Writes nothing: the caller keeps the ring.

        Args:
            tokens: (B, N, ...) with every field of ``positions`` (N,), numbered on from the ring's.
            ring: at least ``context`` - 1 slots.
        """
        plan = self.positions.plan(
            tokens.positions,
            ring.positions_with(tokens.positions),
            context=self.settings.context,
            context_s=self.settings.context_s,
        )
        x, keys, values = self._embed(tokens), [], []
        for block, old_keys, old_values in zip(self.blocks, ring.keys, ring.values, strict=True):
            x, k, v = block.step(x, plan, old_keys, old_values)
            keys.append(k)
            values.append(v)
        return StepOutput(self.norm(x), torch.stack(keys), torch.stack(values))

    @property
    def reach(self) -> int:
        """Tokens before one that can touch its prediction: the bands of all layers."""
        return len(self.blocks) * (self.settings.context - 1)

    def start(self) -> StreamState:
        """The state of a stream of which nothing came yet.

        Raises:
            ConfigError: the scheme does not stream.
        """
        pick_mode(self.positions, "stream")
        size = SIZES[self.settings.size]
        weight = self.embed.weight.detach()
        return StreamState(Ring.empty(size.layers, size.heads, self.settings.context, size.dim, weight))

    def _embed(self, tokens: Tokens) -> Tensor:
        weight = self.embed.weight.dtype
        values = torch.cat([tokens.values.to(weight), tokens.measured.to(weight)], dim=-1)
        embedded: Tensor = self.embed(values) + self.kind(tokens.observed.to(weight))
        return embedded

    def predict(self, encoded: Tensor, horizons_s: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The head alone, on (..., D); ``horizons_s`` float64 (H,) or (..., H) instead of the layout's."""
        out = self.head(encoded, horizons_s)
        if out.shape[-1] == self.num_targets:
            return out, None
        mean, log_std = out.split(self.num_targets, dim=-1)
        # exp(±7) of the residual's scale: further out a loss would only overflow.
        return mean, log_std.clamp(-7.0, 7.0)

    def forward(self, tokens: Tokens, horizons_s: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Predictions after each token, see the class; ``horizons_s`` as for ``predict``."""
        return self.predict(self.encode(tokens), horizons_s)

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
