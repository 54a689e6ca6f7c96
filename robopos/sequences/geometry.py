"""Values on the line, on the circle and on the sphere: differences, sums and what lies between.

A kind a column: ``linear``; ``angle`` in radians, wrapped to (−π, π]; ``quaternion``, four neighbouring columns x, y,
z, w of unit length, where q and −q are one rotation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robopos.arrays import Floats

LINEAR, ANGLE, QUATERNION = "linear", "angle", "quaternion"
KINDS = (LINEAR, ANGLE, QUATERNION)


def wrap(angle: Floats) -> Floats:
    """Radians to (−π, π]."""
    return np.pi - np.remainder(np.pi - angle, 2 * np.pi)


def quaternion_columns(kinds: Sequence[str]) -> list[slice]:
    """The columns of each quaternion."""
    return [slice(i, i + 4) for i, kind in enumerate(kinds) if kind == QUATERNION and _is_first(kinds, i)]


def _is_first(kinds: Sequence[str], column: int) -> bool:
    before = 0
    while column - before > 0 and kinds[column - before - 1] == QUATERNION:
        before += 1
    return before % 4 == 0


def _angles(kinds: Sequence[str]) -> list[int]:
    return [i for i, kind in enumerate(kinds) if kind == ANGLE]


def difference(kinds: Sequence[str], value: Floats, base: Floats) -> Floats:
    """(..., K): what to add to ``base`` to come to ``value``, the short way round."""
    result = value - base
    angles = _angles(kinds)
    result[..., angles] = wrap(result[..., angles])
    for columns in quaternion_columns(kinds):
        q, b = value[..., columns], base[..., columns]
        result[..., columns] = np.where((q * b).sum(-1, keepdims=True) < 0, -q, q) - b
    return result


def compose(kinds: Sequence[str], base: Floats, change: Floats) -> Floats:
    """(..., K): the inverse of ``difference``, back on the circle and the sphere."""
    result = base + change
    angles = _angles(kinds)
    result[..., angles] = wrap(result[..., angles])
    for columns in quaternion_columns(kinds):
        q = result[..., columns]
        norm = np.sqrt((q**2).sum(-1, keepdims=True))
        result[..., columns] = q / np.where(norm > 0, norm, 1.0)
    return result


def continuous(kinds: Sequence[str], rows: Floats, previous: Floats | None) -> Floats:
    """Rows (n, K) with the sign of each quaternion chosen so that it goes on from the row before.

    Args:
        previous: (K,) the last row that came out of this, with quaternions carried over missing ones; or ``None``.
    """
    rows = rows.copy()
    for columns in quaternion_columns(kinds):
        known = np.flatnonzero(np.isfinite(rows[:, columns]).all(axis=1))
        if not len(known):
            continue
        q = rows[known, columns]
        before = q[:1] if previous is None or not np.isfinite(previous[columns]).all() else previous[None, columns]
        dots = (q * np.concatenate([before, q[:-1]])).sum(axis=1)
        rows[known, columns] = q * np.cumprod(np.where(dots < 0, -1.0, 1.0))[:, None]
    return rows
