"""What a study compares. One documented line a field, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from robopos.model import ModelSettings
from robopos.sequences import SequenceSettings, SplitSettings
from robopos.sequences.settings import require
from robopos.training.module import OptimizerSettings

SCHEMES = ("none", "index-sinusoidal", "time-sinusoidal", "index-rotary", "time-rotary")


@dataclass(frozen=True)
class StudySettings:
    """Schemes x seeds under one budget, judged on the same anchors.

    Args:
        logs: paths of MCAP files.
        sequence: streams, targets and horizons.
        split: shares of each log's time for validation and test.
        network: the network that all share; its ``positions`` are replaced by each scheme.
        optimizer: learning rate and its schedule, the same for all.
        schemes: position schemes to compare.
        seeds: a training for each scheme and seed; a seed sets the weights and the order of windows.
        max_steps: training steps of each.
        batch_size: windows of a batch.
        drops: shares of messages taken away at test time, each a condition beside ``as recorded``.
        max_anchors: at most so many test anchors, evenly spread.
    """

    logs: list[str]
    sequence: SequenceSettings
    split: SplitSettings = field(default_factory=SplitSettings)
    network: ModelSettings = field(default_factory=ModelSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schemes: list[str] = field(default_factory=lambda: list(SCHEMES))
    seeds: list[int] = field(default_factory=lambda: [1, 2])
    max_steps: int = 600
    batch_size: int = 32
    drops: list[float] = field(default_factory=lambda: [0.5])
    max_anchors: int = 2000

    def __post_init__(self) -> None:
        require(len(self.logs) > 0, "logs", self.logs, "at least one path")
        for name in ("schemes", "seeds", "drops"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), name, values, "without repeats")
        require(len(self.schemes) > 0, "schemes", self.schemes, "at least one scheme")
        require(len(self.seeds) > 0, "seeds", self.seeds, "at least one seed")
        require(self.max_steps >= 1, "max_steps", self.max_steps, "training steps >= 1")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "windows >= 1")
        require(self.max_anchors >= 1, "max_anchors", self.max_anchors, "anchors >= 1")
        for share in self.drops:
            require(0 < share < 1, "drops", share, "shares between 0 and 1")
