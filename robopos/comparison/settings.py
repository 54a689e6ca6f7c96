"""What a study compares. One documented line a field, checked on construction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, NamedTuple

from robopos.model import ModelSettings
from robopos.positions import build_positions
from robopos.sequences import SequenceSettings, SplitSettings
from robopos.sequences.degrade import AugmentSettings
from robopos.settings import from_mapping, require
from robopos.stamps import LONGEST_S
from robopos.training.module import OptimizerSettings

SCHEMES = ("none", "index-sinusoidal", "time-sinusoidal", "index-rotary", "time-rotary")
RECORDED, AUGMENTED, HALF_RATE = "as recorded", "augmented", "half rate"
REGIMES = (RECORDED, AUGMENTED, HALF_RATE)
NETWORK: Literal["network"] = "network"
MOST_YEARS = 100  # stamps of int64 end 292 years from 1970


@dataclass(frozen=True)
class SchemeSettings:
    """One scheme of a study, with what goes along with it.

    Args:
        positions: ``none`` or CLOCK-SCHEME, joined by ``+``.
        gap_feature: give the network the time since the token before as an input (the simple rival of time).
        context_s: ``network`` takes the network's band in seconds, ``null`` lifts it, a number (s) replaces it.
        position_options: options of the scheme by name; what is left out takes the rule from the data.
        label: its name in tables; ``null`` makes one of the above.
    """

    positions: str
    gap_feature: bool = False
    context_s: float | Literal["network"] | None = NETWORK
    position_options: dict[str, Any] = field(default_factory=dict)
    label: str | None = None

    def __post_init__(self) -> None:
        band = self.context_s
        allowed = band in (NETWORK, None) or (isinstance(band, (int, float)) and 0 < band < LONGEST_S)
        require(allowed, "schemes.context_s", band, f"{NETWORK}, null, or a time > 0 in s")
        require(self.label is None or bool(slug(self.label)), "schemes.label", self.label, "null or a name")

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.label is not None:
            return self.label
        parts = [self.positions + (" + gap" if self.gap_feature else "")]
        parts += [f"{option} {value}" for option, value in self.position_options.items()]
        if self.context_s != NETWORK:
            parts.append("no band in s" if self.context_s is None else f"band {self.context_s:g} s")
        return ", ".join(parts)

    def network(self, shared: ModelSettings) -> ModelSettings:
        """The network that all share, with this scheme."""
        band = shared.context_s if self.context_s == NETWORK else self.context_s
        return replace(shared, positions=self.positions, position_options=self.position_options, context_s=band)


@dataclass(frozen=True)
class ConditionSettings:
    """The conditions of evaluation beside ``as recorded``. Lengths of time that are ``null`` follow from the data.

    Args:
        jitter_s: stamps moved by normal noise of this standard deviation (s); ``null``: half the median interval
            between tokens; 0 leaves the condition out, as everywhere here.
        drops: shares of the messages lost, each a condition.
        burst_s: all streams silent for so long (s), about every 20 times as long; ``null``: 16 median intervals.
        half_rate: every second message of each stream.
        stream: the stream that is slowed, offset and taken away; ``null``: the one with most messages.
        slow_every: that stream with one message of so many; 1 leaves it out.
        missing: that stream without messages.
        clock_offset_s: that stream's stamps moved by so much (s); ``null``: 4 median intervals.
        longer_context: the network with so many times the context that it was trained with; 1 leaves it out.
        epoch_years: all stamps moved by so many years.
    """

    jitter_s: float | None = None
    drops: list[float] = field(default_factory=lambda: [0.1, 0.3, 0.5, 0.7])
    burst_s: float | None = None
    half_rate: bool = True
    stream: str | None = None
    slow_every: int = 4
    missing: bool = True
    clock_offset_s: float | None = None
    longer_context: int = 2
    epoch_years: int = 10

    def __post_init__(self) -> None:
        for name in ("jitter_s", "burst_s"):
            value = getattr(self, name)
            require(value is None or 0 <= value < LONGEST_S, f"conditions.{name}", value, "null, or a time >= 0 in s")
        for share in self.drops:
            require(0 < share < 1, "conditions.drops", share, "shares between 0 and 1")
        require(len(set(self.drops)) == len(self.drops), "conditions.drops", self.drops, "without repeats")
        offset_s, years = self.clock_offset_s, self.epoch_years
        possible = offset_s is None or abs(offset_s) < LONGEST_S
        require(possible, "conditions.clock_offset_s", offset_s, f"null, or a time within {LONGEST_S:g} s")
        require(abs(years) <= MOST_YEARS, "conditions.epoch_years", years, f"from -{MOST_YEARS} to {MOST_YEARS}")
        require(self.slow_every >= 1, "conditions.slow_every", self.slow_every, "a whole number >= 1")
        require(self.longer_context >= 1, "conditions.longer_context", self.longer_context, "a whole number >= 1")


@dataclass(frozen=True)
class SearchSettings:
    """A small search that every cell makes for itself before its training; off by default.

    Each pair of a scale and a rate is trained from the cell's own seed; the one with the least validation loss is
    taken. Every scheme tries as many.

    Args:
        scales: factors of the interval from which the scheme's periods, slopes and buckets follow.
        learning_rates: factors of the learning rate.
        steps: training steps of each trial.
    """

    scales: list[float] = field(default_factory=lambda: [1.0])
    learning_rates: list[float] = field(default_factory=lambda: [1.0])
    steps: int = 100

    def __post_init__(self) -> None:
        for name in ("scales", "learning_rates"):
            values = getattr(self, name)
            good = len(values) > 0 and all(value > 0 for value in values) and len(set(values)) == len(values)
            require(good, f"search.{name}", values, "factors > 0 without repeats")
        require(self.steps >= 1, "search.steps", self.steps, "training steps >= 1")

    @property
    def trials(self) -> list[tuple[float, float]]:
        """(scale, learning rate) of each trial."""
        return list(product(self.scales, self.learning_rates))


class CellKey(NamedTuple):
    """One training of the grid."""

    scheme: str
    regime: str
    seed: int

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return f"{slug(self.scheme)}--{slug(self.regime)}--{self.seed}"

    def __str__(self) -> str:
        regime = "" if self.regime == RECORDED else f", trained {self.regime}"
        return f"{self.scheme}{regime}, seed {self.seed}"


@dataclass(frozen=True)
class StudySettings:
    """Schemes x regimes x seeds under one budget, judged on the same anchors.

    Args:
        logs: paths of logs: MCAP files, rosbag2 folders, folders of them, or patterns; each is a log of its own.
        sequence: streams, targets and horizons.
        split: shares of each log's time for validation and test.
        network: the network that all share; its ``positions`` are replaced by each scheme's.
        optimizer: learning rate and its schedule, the same for all.
        schemes: what to compare: names of position schemes, or mappings with the fields of ``SchemeSettings``.
        regimes: how training sees its logs: ``as recorded``, ``augmented`` (with ``augment``), ``half rate`` (every
            second message of each stream).
        seeds: a training for each; a seed sets the weights and the order of windows.
        augment: the degraded copies of the regime ``augmented``.
        search: a small search of what a scheme owns, the same for all; off by default.
        conditions: what is changed at evaluation.
        max_steps: training steps of each cell.
        batch_size: windows of a batch.
        max_anchors: at most so many test anchors a condition, evenly spread.
        block_s: length of the blocks of time that are resampled for intervals (s).
        resamples: bootstrap resamples.
        reference: the scheme that others are compared to; ``null``: the first on the index, else the first.
        clock_measured: ``false`` where stamps are simulated or counted frames: then the report makes no claim.
    """

    logs: list[str]
    sequence: SequenceSettings
    split: SplitSettings = field(default_factory=SplitSettings)
    network: ModelSettings = field(default_factory=ModelSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schemes: list[str | dict[str, Any]] = field(default_factory=lambda: list(SCHEMES))
    regimes: list[str] = field(default_factory=lambda: [RECORDED])
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3])
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    conditions: ConditionSettings = field(default_factory=ConditionSettings)
    max_steps: int = 600
    batch_size: int = 32
    max_anchors: int = 1000
    block_s: float = 20.0
    resamples: int = 2000
    reference: str | None = None
    clock_measured: bool = True

    def __post_init__(self) -> None:
        require(len(self.logs) > 0, "logs", self.logs, "at least one path")
        names = [scheme.name for scheme in self.variants]
        require(len(names) > 0, "schemes", names, "at least one scheme")
        require(len(set(map(slug, names))) == len(names), "schemes", names, "without repeats (give them labels)")
        for scheme in self.variants:
            # An unknown name or option is an error now, not after an hour.
            build_positions(scheme.positions, dim=64, heads=4, **scheme.position_options)
        require(len(self.seeds) > 0, "seeds", self.seeds, "at least one seed")
        require(len(set(self.seeds)) == len(self.seeds), "seeds", self.seeds, "without repeats")
        for seed in self.seeds:
            require(0 <= seed < 2**32, "seeds", seed, "whole numbers from 0 to 4294967295")
        require(len(self.regimes) > 0, "regimes", self.regimes, "at least one regime")
        require(len(set(self.regimes)) == len(self.regimes), "regimes", self.regimes, "without repeats")
        for regime in self.regimes:
            require(regime in REGIMES, "regimes", regime, f"one of {', '.join(REGIMES)}")
        used = AUGMENTED in self.regimes
        require(used == (self.augment.copies > 0), "augment.copies", self.augment.copies, "> 0 where regimes augment")
        for name in ("max_steps", "batch_size", "max_anchors", "resamples"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "a whole number >= 1")
        require(1e-3 <= self.block_s < LONGEST_S, "block_s", self.block_s, "a time from 0.001 in s")
        given = self.reference
        require(given is None or given in names, "reference", given, f"null or one of the schemes {', '.join(names)}")
        stream = self.conditions.stream
        known = stream is None or stream in self.sequence.streams
        require(known, "conditions.stream", stream, f"null or one of {', '.join(self.sequence.streams)}")

    @property
    def variants(self) -> list[SchemeSettings]:
        """The schemes, those that are named alone too."""
        return [
            SchemeSettings(scheme) if isinstance(scheme, str) else from_mapping(SchemeSettings, scheme, "schemes")
            for scheme in self.schemes
        ]

    def variant(self, name: str) -> SchemeSettings:
        """The scheme of this name in tables."""
        return next(scheme for scheme in self.variants if scheme.name == name)

    @property
    def reference_name(self) -> str:
        """The scheme that others are compared to."""
        names = [scheme.name for scheme in self.variants]
        if self.reference is not None:
            return self.reference
        return next((scheme.name for scheme in self.variants if scheme.positions.startswith("index-")), names[0])

    def cells(self) -> list[CellKey]:
        """The grid, seed by seed, so that an interrupted study has whole rounds."""
        names = [scheme.name for scheme in self.variants]
        return [CellKey(name, regime, seed) for seed in self.seeds for regime in self.regimes for name in names]


def slug(text: str) -> str:
    """A name as a part of a path."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
