"""The live engine and the replay of a log through it. Imports neither Lightning nor matplotlib."""

from robopos.serving.engine import Engine, Prediction
from robopos.serving.export import export_step
from robopos.serving.replay import ReplaySummary, Step, replay, replay_to_log
from robopos.serving.stats import EngineStats, StreamStats
from robopos.serving.steps import STEPS, intra_op_threads
from robopos.serving.trajectory import TOPIC_PREFIX, TRAJECTORY, Trajectories, TrajectoryWriter, fits_stamp

__all__ = [
    "STEPS",
    "TOPIC_PREFIX",
    "TRAJECTORY",
    "Engine",
    "EngineStats",
    "Prediction",
    "ReplaySummary",
    "Step",
    "StreamStats",
    "Trajectories",
    "TrajectoryWriter",
    "export_step",
    "fits_stamp",
    "intra_op_threads",
    "replay",
    "replay_to_log",
]
