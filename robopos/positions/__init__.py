"""Positions of tokens, by number and by real time: every scheme, exact over years of nanoseconds."""

from robopos.positions.alibi import AlibiBias, geometric_slopes
from robopos.positions.base import AdditiveEncoding, BiasTerm, Part, Rotation, ScoreBias
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
    "AdditiveEncoding",
    "AlibiBias",
    "BiasTerm",
    "FourierEncoding",
    "LearnedEncoding",
    "Part",
    "Plan",
    "PositionScheme",
    "Positions",
    "RelativeBias",
    "RotaryEmbedding",
    "Rotation",
    "ScoreBias",
    "SinusoidalEncoding",
    "Time2VecEncoding",
    "build_positions",
    "geometric_slopes",
]
