"""Positions of tokens, by number and by real time: every scheme, exact over years of nanoseconds."""

from robopos.positions.alibi import AlibiBias
from robopos.positions.build import build_positions
from robopos.positions.fourier import FourierEncoding
from robopos.positions.learned import LearnedEncoding
from robopos.positions.plan import Plan
from robopos.positions.positions import Positions
from robopos.positions.relative import RelativeBias
from robopos.positions.rotary import RotaryEmbedding
from robopos.positions.scheme import PositionScheme
from robopos.positions.sinusoidal import SinusoidalEncoding
from robopos.positions.time2vec import Time2VecEncoding

__all__ = [
    "AlibiBias",
    "FourierEncoding",
    "LearnedEncoding",
    "Plan",
    "PositionScheme",
    "Positions",
    "RelativeBias",
    "RotaryEmbedding",
    "SinusoidalEncoding",
    "Time2VecEncoding",
    "build_positions",
]
