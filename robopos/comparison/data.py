"""The logs of a study, read once, as each regime trains on them and as each condition shows them."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from robopos.arrays import Ints
from robopos.comparison.conditions import Condition, half_rate, list_conditions
from robopos.comparison.settings import AUGMENTED, HALF_RATE, SchemeSettings, StudySettings
from robopos.errors import SequenceError
from robopos.logs import log_files, read_logs, separate_logs
from robopos.sequences import Block, SequenceDataset, SequenceLayout, log_streams, resolve_layout

AUGMENT_SEED = 30_000  # of the degraded copies: the same for every scheme and training seed
TRACE_S = 30.0  # of the pictures of traces
TRACE_ANCHORS = 400


@dataclass(frozen=True)
class View:
    """The data as one condition shows it.

    ``anchors`` (A,) are the tokens at which all schemes are judged; ``block`` (A,) the block of time that each
    belongs to, which is the same under every condition.
    """

    condition: Condition
    dataset: SequenceDataset
    anchors: Ints
    block: Ints


class StudyData:
    """All data of a study.

    Raises:
        RoboposError: a log cannot be read, or has no anchor.
    """

    def __init__(self, settings: StudySettings) -> None:
        self.settings = settings
        # By one process: those of a comparison may start none.
        found = read_logs(settings.logs, log_streams(settings.sequence), clock=settings.sequence.clock, workers=1)
        self._logs = found.logs
        self.layout = resolve_layout(settings.sequence, self._logs[0])
        self._whole: dict[bool, SequenceDataset] = {}
        self._views: dict[tuple[str, bool], View] = {}
        whole = self.whole(self.layout.gap_feature)
        self.interval_s = whole.median_interval_s()
        self.conditions = list_conditions(settings.conditions, self._logs, self.interval_s)
        if not len(self.view(self.conditions[0], self.layout.gap_feature).anchors):
            raise SequenceError(
                f"no test anchor has {settings.network.history} tokens before it: "
                "shorten network.context, or raise split.test"
            )

    def gap(self, scheme: SchemeSettings) -> bool:
        """Whether a scheme's network sees the gap."""
        return scheme.gap_feature or self.layout.gap_feature

    def layout_of(self, gap: bool) -> SequenceLayout:
        """The layout, with or without the gap as an input."""
        return replace(self.layout, gap_feature=gap)

    def whole(self, gap: bool) -> SequenceDataset:
        """The logs as recorded."""
        if gap not in self._whole:
            self._whole[gap] = SequenceDataset.build(self._logs, self.layout_of(gap), self.settings.split)
        return self._whole[gap]

    def training(self, regime: str, gap: bool) -> tuple[SequenceDataset, list[SequenceDataset]]:
        """What a regime trains on: the data, and degraded copies beside it."""
        whole = self.whole(gap)
        if regime == HALF_RATE:
            return whole.degraded([half_rate(log, np.random.default_rng()) for log in self._logs]), []
        if regime != AUGMENTED:
            return whole, []
        generator, augment = np.random.default_rng(AUGMENT_SEED), self.settings.augment
        degraded = [[augment.degrade(log, generator) for log in self._logs] for _ in range(augment.copies)]
        return whole, [whole.degraded(logs) for logs in degraded]

    def view(self, condition: Condition, gap: bool) -> View:
        """The data under a condition; no anchor where nothing has enough history left."""
        key = (condition.name, gap)
        if key not in self._views:
            self._views[key] = self._make_view(condition, gap)
        return self._views[key]

    def _make_view(self, condition: Condition, gap: bool) -> View:
        whole, logs = self.whole(gap), condition.apply(self._logs)
        if condition.change is None:
            dataset = whole
        elif condition.shift_ns:
            # On another date nothing of the truth is at its place but the moved log itself.
            dataset = SequenceDataset.build(logs, whole.layout, self.settings.split)
        else:
            dataset = whole.degraded(logs)
        anchors = anchors_of(dataset.of_split("test"), self.settings.network.history * condition.longer)
        if len(anchors) > self.settings.max_anchors:
            anchors = anchors[np.linspace(0, len(anchors) - 1, self.settings.max_anchors).astype(np.int64)]
        return View(condition, dataset, anchors, self.blocks(dataset, anchors, condition.shift_ns))

    def blocks(self, dataset: SequenceDataset, tokens: Ints, shift_ns: int = 0) -> Ints:
        """The block of time of each token, by its arrival: numbers grow with time and log."""
        table, first = dataset.table, self._first_arrivals
        since_ns = table.arrival_ns[tokens] - shift_ns - first[table.log[tokens]]
        return table.log[tokens] * 10**9 + since_ns // round(self.settings.block_s * 1e9)

    @cached_property
    def _first_arrivals(self) -> Ints:
        return np.array([min(int(s.arrival_ns.min()) for s in log.values() if len(s)) for log in self._logs])

    def trace(self, gap: bool) -> tuple[SequenceDataset, Ints]:
        """Neighbouring tokens of the middle of the test split, for a picture."""
        dataset = self.whole(gap)
        anchors = anchors_of(dataset.of_split("test"), self.settings.network.history)
        arrival_ns = dataset.table.arrival_ns[anchors]
        start_ns = arrival_ns[len(anchors) // 2]
        near = (arrival_ns >= start_ns) & (arrival_ns < start_ns + TRACE_S * 1e9)
        near &= dataset.table.log[anchors] == dataset.table.log[anchors[len(anchors) // 2]]
        return dataset, anchors[near][:TRACE_ANCHORS]

    @cached_property
    def notes(self) -> list[str]:
        """What had to be said about the logs."""
        return [warning for log in self._logs for warning in log.warnings]

    @cached_property
    def files(self) -> list[str]:
        """The files of all logs."""
        return [str(path) for log in self._logs for path in log.paths]

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each log's files, by the log's path."""
        return {str(path): _hash(path) for path in separate_logs(self.settings.logs)}

    def describe(self) -> dict[str, object]:
        """Facts for a report; plain types."""
        views = {c.name: self.view(c, self.layout.gap_feature) for c in self.conditions}
        table = self.whole(self.layout.gap_feature).table
        names = Counter(Path(path).name for path in self.hashes)
        return {
            "streams": {s.name: int((table.stream == n).sum()) for n, s in enumerate(self.layout.streams)},
            "interval_s": self.interval_s,
            "notes": self.notes,
            "anchors": {name: len(view.anchors) for name, view in views.items()},
            "blocks": {name: len(np.unique(view.block)) for name, view in views.items()},
            # By the name alone, where no two logs share it.
            "hashes": {p if names[Path(p).name] > 1 else Path(p).name: digest for p, digest in self.hashes.items()},
        }


def anchors_of(blocks: list[Block], history: int) -> Ints:
    """The tokens with at least ``history`` tokens before them in their block."""
    parts = [np.arange(b.start + history, b.stop) for b in blocks if b.stop - b.start > history]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    for file in log_files(path):
        with open(file, "rb") as opened:
            while piece := opened.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
