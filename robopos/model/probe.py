"""A network as the function that the diagnostics of positions take."""

from __future__ import annotations

import torch
from torch import Tensor

from robopos.model.bundle import Bundle
from robopos.positions import Positions
from robopos.positions.diagnostics import Network
from robopos.sequences import Tokens


def as_function(bundle: Bundle, tokens: Tokens) -> tuple[Network, Tensor, Positions]:
    """What the network knows after each token, as a function of one tensor and positions; and these of ``tokens``.

    ``tokens`` (B, N, ...) must all be valid.
    """
    parts = [tokens.values, tokens.measured.float(), tokens.observed.float()]
    sizes = [part.shape[-1] for part in parts]

    def network(x: Tensor, positions: Positions) -> Tensor:
        values, measured, observed = torch.split(x, sizes, dim=-1)
        return bundle.network.encode(Tokens(values, measured > 0.5, observed > 0.5, positions))

    return network, torch.cat(parts, dim=-1), Positions(time_ns=tokens.positions.time_ns)
