"""Positions of tokens, by number and by real time: every scheme, exact over years of nanoseconds."""

from robopos.positions.build import build_positions
from robopos.positions.learned import LearnedEncoding
from robopos.positions.plan import Plan
from robopos.positions.positions import Positions
from robopos.positions.rotary import RotaryEmbedding
from robopos.positions.scheme import PositionScheme
from robopos.positions.sinusoidal import SinusoidalEncoding

__all__ = [
    "LearnedEncoding",
    "Plan",
    "PositionScheme",
    "Positions",
    "RotaryEmbedding",
    "SinusoidalEncoding",
    "build_positions",
]
