"""The live engine and the replay of a log through it. Imports neither Lightning nor matplotlib."""

from robopos.serving.engine import Engine, Prediction
from robopos.serving.replay import ReplaySummary, Step, replay, replay_to_log
from robopos.serving.stats import EngineStats, StreamStats

__all__ = ["Engine", "EngineStats", "Prediction", "ReplaySummary", "Step", "StreamStats", "replay", "replay_to_log"]
