"""The network's settings. One documented line a field, checked on construction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from robopos.settings import require
from robopos.stamps import LONGEST_S

LOSSES = ("mse", "huber", "gaussian")

MAX_TOKENS = 65_536  # the ring of the largest network takes 5 GB with so many


class Size(NamedTuple):
    """Depth, width and heads of a preset."""

    layers: int
    dim: int
    heads: int


SIZES = {"tiny": Size(2, 64, 4), "small": Size(6, 256, 8), "base": Size(12, 768, 12)}


@dataclass(frozen=True)
class ModelSettings:
    """The causal Transformer.

    Args:
        positions: how order comes back in: ``none`` or CLOCK-SCHEME, joined by ``+`` (``time-rotary``).
        position_options: options of the scheme by name; what is left out takes the rule from the data.
        size: ``tiny`` (2 layers, width 64), ``small`` (6, 256) or ``base`` (12, 768).
        context: a token sees at most so many tokens, itself included, in each layer.
        context_s: and none further back than this (s); ``null`` for no limit in time.
        window: tokens of a training window, longer than ``context`` so that deep layers see what they see live.
        burn_in: tokens at the start of a window without loss; ``null`` takes ``context``.
        dropout: after attention and feed-forward, in training.
        loss: ``mse``, ``huber`` or ``gaussian`` (predicts a standard deviation too).
        max_input_age_s: trained to predict from up to so long (s) after the newest message, which serving may then ask
            for; 0 predicts from the message's time only.
    """

    positions: str = "time-rotary"
    position_options: dict[str, Any] = field(default_factory=dict)
    size: str = "tiny"
    context: int = 64
    context_s: float | None = None
    window: int = 128
    burn_in: int | None = None
    dropout: float = 0.0
    loss: str = "huber"
    max_input_age_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.size in SIZES, "network.size", self.size, f"one of {', '.join(SIZES)}")
        require(
            1 <= self.context <= MAX_TOKENS,
            "network.context",
            self.context,
            f"a number of tokens from 1 to {MAX_TOKENS}",
        )
        require(
            self.window <= 2 * MAX_TOKENS, "network.window", self.window, f"a number of tokens up to {2 * MAX_TOKENS}"
        )
        require(
            self.context_s is None or 0 < self.context_s < LONGEST_S,
            "network.context_s",
            self.context_s,
            f"a time > 0 in s and below {LONGEST_S:g}, or null",
        )
        require(self.window > self.context, "network.window", self.window, f"> network.context ({self.context}) tokens")
        require(
            self.burn_in is None or 0 <= self.burn_in < self.window,
            "network.burn_in",
            self.burn_in,
            f"null, or tokens from 0 to below network.window ({self.window})",
        )
        require(0 <= self.dropout < 1, "network.dropout", self.dropout, "a share from 0 to below 1")
        require(
            0 <= self.max_input_age_s < LONGEST_S,
            "network.max_input_age_s",
            self.max_input_age_s,
            f"a time >= 0 in s and below {LONGEST_S:g}",
        )
        require(self.loss in LOSSES, "network.loss", self.loss, f"one of {', '.join(LOSSES)}")

    @property
    def history(self) -> int:
        """Tokens before the first one that is scored."""
        return self.context if self.burn_in is None else self.burn_in

    def to_dict(self) -> dict[str, Any]:
        """Plain types only (for YAML)."""
        return asdict(self)
