"""Schemes by name."""

from __future__ import annotations

from typing import Any

from robopos.errors import PositionError
from robopos.positions.alibi import AlibiBias
from robopos.positions.base import AdditiveEncoding, Clock, Part, Rotation
from robopos.positions.fourier import FourierEncoding
from robopos.positions.learned import LearnedEncoding
from robopos.positions.relative import RelativeBias
from robopos.positions.rotary import RotaryEmbedding
from robopos.positions.scheme import PositionScheme
from robopos.positions.sinusoidal import SinusoidalEncoding
from robopos.positions.time2vec import Time2VecEncoding

SCHEMES: dict[str, type[Part]] = {
    "sinusoidal": SinusoidalEncoding,
    "learned": LearnedEncoding,
    "fourier": FourierEncoding,
    "time2vec": Time2VecEncoding,
    "rotary": RotaryEmbedding,
    "alibi": AlibiBias,
    "relative": RelativeBias,
}
CLOCKS: tuple[Clock, ...] = ("index", "time")


def build_positions(name: str, dim: int, heads: int = 1, **options: Any) -> PositionScheme:
    """The scheme called `name`: "none", "CLOCK-SCHEME", or several joined by "+".

    CLOCK is `index` or `time`; SCHEME is one of `SCHEMES`. An option goes to every part that knows it.

    Args:
        name: for example "time-rotary" or "index-sinusoidal+time-rotary".
        dim: width of the tokens.
        heads: heads of the attention; dim is a multiple of it.
        options: by name, see the classes; each has a default that works.

    Raises:
        PositionError: an unknown scheme or option, a width that does not fit, a value that makes no sense.
    """
    if dim < 1 or heads < 1 or dim % heads:
        raise PositionError(f"dim={dim} and heads={heads}: dim must be a positive multiple of heads")
    parts: dict[str, Part] = {}
    unused = set(options)
    for part_name in [] if name == "none" else name.split("+"):
        if part_name in parts:
            raise PositionError(f"{part_name!r} stands twice in {name!r}")
        clock, kind = _parse(part_name)
        known = {option: options[option] for option in kind.OPTIONS[clock] if option in options}
        unused -= set(known)
        parts[part_name] = kind(**_size(kind, dim, heads), clock=clock, **known)
    if unused:
        allowed = sorted({option for part in parts.values() for option in part.OPTIONS[part.clock]})
        raise PositionError(
            f"{name!r} has no option {', '.join(sorted(unused))}; allowed: {', '.join(allowed) or 'none'}"
        )
    return PositionScheme(name, parts)


def _parse(name: str) -> tuple[Clock, type[Part]]:
    for clock in CLOCKS:
        for scheme, kind in SCHEMES.items():
            if name == f"{clock}-{scheme}":
                return clock, kind
    raise PositionError(
        f"unknown scheme {name!r}; allowed: 'none' alone, or 'index-' or 'time-' with one of "
        f"{', '.join(SCHEMES)}, joined by '+'"
    )


def _size(kind: type[Part], dim: int, heads: int) -> dict[str, int]:
    if issubclass(kind, AdditiveEncoding):
        return {"dim": dim}
    if issubclass(kind, Rotation):
        return {"dim": dim // heads}
    return {"heads": heads}
