"""What positions do to a network, as numbers: does order reach the output, does time, is a shift invisible?

A network here is any callable of tokens x (..., N, D) and their `Positions` that returns (..., N, E): a
trained model, or one attention layer. An effect is the size of the change of an output relative to the
output itself (root mean squares): 0 is none, 1 is as large as the output.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robopos.errors import PositionError
from robopos.positions.positions import Positions
from robopos.positions.scheme import PositionScheme

Network = Callable[[Tensor, Positions], Tensor]


def shuffle_effect(network: Network, x: Tensor, positions: Positions) -> float:
    """Change of the last output when the tokens before it change places and the slots keep their positions.

    0: the network sees a set. A causal network of several layers sees some order even without positions,
    since early tokens see fewer others (Kazemnejad et al. 2023).
    """
    count = _count(x, positions)
    # Reversed: no token but a middle one keeps its place, and the test needs no seed.
    order = torch.cat((torch.arange(count - 2, -1, -1), torch.tensor([count - 1]))).to(x.device)
    return effect(network(x[..., order, :], positions)[..., -1, :], network(x, positions)[..., -1, :])


def stretch_effect(network: Network, x: Tensor, positions: Positions, factor: float = 2.0) -> float:
    """Change of the last output when time runs `factor` times as slow, counted from the last stamp.

    0: the network does not see time. A band in seconds shows here too, since it then holds fewer tokens.
    """
    _count(x, positions)
    time_ns = positions.stamps_ns()
    last = time_ns[..., -1:]
    # The distances are small; the stamps themselves would not survive a float.
    stretched = last - ((last - time_ns).double() * factor).round().long()
    slow = positions._replace(time_ns=stretched, origin_ns=None)
    fast = positions._replace(origin_ns=None)
    return effect(network(x, slow)[..., -1, :], network(x, fast)[..., -1, :])


def shift_effect(network: Network, x: Tensor, positions: Positions, shift_ns: int) -> float:
    """Change of all outputs when every stamp moves by `shift_ns`; rounding apart, it must be 0."""
    _count(x, positions)
    moved = positions._replace(time_ns=positions.stamps_ns() + shift_ns, origin_ns=None)
    return effect(network(x, moved), network(x, positions._replace(origin_ns=None)))


def padding_effect(network: Network, x: Tensor, positions: Positions, count: int) -> float:
    """Difference of the outputs under `count` empty slots on the left and on the right; it must be 0.

    Every given token must be valid.
    """
    tokens = _count(x, positions)
    if positions.valid is not None and not bool(positions.valid.all()):
        raise PositionError("valid has empty slots: the test of padding adds its own and takes full windows")
    left = network(_padded(x, (count, 0), -2), _pad_positions(positions, (count, 0), tokens, x.device))
    right = network(_padded(x, (0, count), -2), _pad_positions(positions, (0, count), tokens, x.device))
    return effect(left[..., count:, :], right[..., :tokens, :])


def equivariance_error(scheme: PositionScheme, x: Tensor, time_ns: Tensor | None = None) -> float:
    """How far attention is from treating x (..., heads, N, D) as a set, all tokens seeing each other.

    0 for the scheme `none`: permuting the tokens permutes the outputs. Otherwise the positions are seen.

    Args:
        time_ns: int64 (..., N), for schemes on time; they stay with the slots.
    """
    count = x.shape[-2]
    if scheme.reads_index:
        raise PositionError(
            f"{scheme.name!r} reads the token number, which orders attention: set and order cannot be told apart"
        )
    # One number for all: nobody comes later, so nobody is hidden.
    together = Positions(index=torch.zeros(count, dtype=torch.int64, device=x.device), time_ns=time_ns)
    order = torch.arange(count - 1, -1, -1, device=x.device)
    shuffled = x[..., order, :]
    return effect(
        scheme.attend(shuffled, shuffled, shuffled, together), scheme.attend(x, x, x, together)[..., order, :]
    )


def distance_products(vectors: Tensor, offset: int) -> Tensor:
    """(..., N − offset) dot products of vectors (..., N, dim) that lie `offset` apart.

    Of sinusoids they are all equal: the product depends on the distance alone (Vaswani et al. 2017, §3.5).
    """
    count = vectors.shape[-2]
    if not 0 <= offset < count:
        raise PositionError(f"offset is {offset}; for {count} vectors it is from 0 to {count - 1}")
    return (vectors[..., : count - offset, :] * vectors[..., offset:, :]).sum(-1)


def effect(changed: Tensor, output: Tensor) -> float:
    """Root mean square of the change, relative to that of the output."""
    change = (changed - output).float().pow(2).mean().sqrt()
    return float(change / output.float().pow(2).mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny))


def _count(x: Tensor, positions: Positions) -> int:
    count = positions.length(x.shape[-2])
    if count < 3:
        raise PositionError(f"the window has {count} tokens; the diagnostics need 3 or more")
    return count


def _padded(x: Tensor, sides: tuple[int, int], dim: int) -> Tensor:
    shapes = [list(x.shape), list(x.shape)]
    for shape, count in zip(shapes, sides, strict=True):
        shape[dim] = count
    return torch.cat((x.new_zeros(shapes[0]), x, x.new_zeros(shapes[1])), dim)


def _pad_positions(positions: Positions, sides: tuple[int, int], count: int, device: torch.device) -> Positions:
    valid = torch.ones(count, dtype=torch.bool, device=device)
    return positions._replace(
        index=None if positions.index is None else _padded(positions.index, sides, -1),
        time_ns=None if positions.time_ns is None else _padded(positions.time_ns, sides, -1),
        valid=_padded(valid, sides, -1),
    )
