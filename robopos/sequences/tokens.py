"""Streams of a log to a table of messages in arrival order, and to the tokens that a model sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robopos.arrays import Floats, Ints
from robopos.errors import SequenceError
from robopos.sequences.admission import DROPPED, STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.features import log_elapsed, transform_rows
from robopos.sequences.layout import SequenceLayout

if TYPE_CHECKING:
    from robopos.logs import Log, Stream


@dataclass(frozen=True)
class TokenTable:
    """Messages or tokens of one or more logs, in arrival order; n rows, F features, S streams, T targets.

    ``log`` (n,) number of the log; ``order`` (n,) place in the log's file; ``stream`` (n,) stream number;
    ``time_ns`` (n,) the chosen clock; ``arrival_ns`` (n,) log time; ``reference_ns`` (n,) newest time admitted so
    far; ``segment`` (n,) number of the gap-free run; ``carries`` (n, S) the streams whose values it has;
    ``features`` (n, F) transformed, NaN where not measured; ``observed`` (n, T) the targets' raw values of this
    message, else NaN; ``counts`` messages by verdict.
    """

    log: Ints
    order: Ints
    stream: Ints
    time_ns: Ints
    arrival_ns: Ints
    reference_ns: Ints
    segment: Ints
    carries: NDArray[np.bool_]
    features: Floats
    observed: Floats
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.time_ns)

    def segment_starts(self) -> Ints:
        """The first row of each row's segment, (n,)."""
        first = np.flatnonzero(np.diff(self.segment, prepend=-1))
        return np.repeat(first, np.diff(np.append(first, len(self))))

    def take(self, rows: Ints) -> TokenTable:
        """The rows of these numbers."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return TokenTable(**columns, counts=self.counts)


COLUMNS = tuple(name for name in TokenTable.__dataclass_fields__ if name != "counts")


def read_messages(logs: Sequence[Log], layout: SequenceLayout) -> TokenTable:
    """The admitted messages of logs, and those of targets that the model does not see; a new log is a new segment.

    Raises:
        SequenceError: no message was admitted.
    """
    tables = []
    segments = 0
    for number, log in enumerate(logs):
        table = _read_one(log, layout, number, segments)
        segments = int(table.segment[-1]) + 1 if len(table) else segments
        tables.append(table)
    joined = {name: np.concatenate([getattr(table, name) for table in tables]) for name in COLUMNS}
    counts = {name: sum(table.counts[name] for table in tables) for name in tables[0].counts}
    table = TokenTable(**joined, counts=counts)
    if not len(table):
        paths = ", ".join(str(path) for log in logs for path in log.paths)
        raise SequenceError(f"{paths}: no message of the streams {', '.join(s.name for s in layout.streams)}")
    return table


def _read_one(log: Log, layout: SequenceLayout, number: int, first_segment: int) -> TokenTable:
    streams = [log[s.name] for s in layout.streams]
    values = [s.values[:, _columns(d.fields, s, log)] for d, s in zip(layout.streams, streams, strict=True)]
    kind = np.concatenate([np.full(len(s.time_ns), i) for i, s in enumerate(streams)])
    row = np.concatenate([np.arange(len(s.time_ns)) for s in streams])
    time_ns = np.concatenate([s.time_ns for s in streams])
    arrival_ns = np.concatenate([s.arrival_ns for s in streams])
    file_order = np.concatenate([s.order for s in streams])
    measured = np.concatenate([np.isfinite(v).any(axis=1) for v in values])
    arrival = np.lexsort((file_order, arrival_ns))

    admission = Admission.of(layout)
    messages = (column[arrival].tolist() for column in (kind, time_ns, measured))
    verdicts = np.fromiter(map(admission.push, *messages), np.int64, len(arrival))
    counts = {verdict.name.lower(): int((verdicts == verdict).sum()) for verdict in Verdict}
    kept = ~np.isin(verdicts, DROPPED)
    arrival, verdicts = arrival[kept], verdicts[kept]
    kind, row, time_ns = kind[arrival], row[arrival], time_ns[arrival]
    segment = np.cumsum(np.isin(verdicts, STARTS_SEGMENT)) + first_segment
    # What the model does not see does not move its reference time; before the first that it sees, there is none.
    seen_ns = np.where(verdicts == Verdict.TARGET, np.iinfo(np.int64).min, time_ns)

    features = np.full((len(arrival), layout.num_features), np.nan)
    observed = np.full((len(arrival), len(layout.targets)), np.nan)
    for i, described in enumerate(layout.streams):
        rows = np.flatnonzero(kind == i)
        for part in _runs(segment[rows]):
            made = transform_rows(described, values[i][row[rows[part]]], time_ns[rows[part]], None)
            if described.input:
                features[rows[part], layout.feature_slices[i]] = made.features
            for t, (s, field) in enumerate(layout.targets):
                if s == i:
                    observed[rows[part], t] = made.values[:, field]
    return TokenTable(
        log=np.full(len(arrival), number),
        order=file_order[arrival],
        stream=kind,
        time_ns=time_ns,
        arrival_ns=arrival_ns[arrival],
        reference_ns=_running_max(seen_ns, segment),
        segment=segment,
        carries=kind[:, None] == np.arange(len(streams)),
        features=features,
        observed=observed,
        counts=counts,
    )


def choose_tokens(messages: TokenTable, layout: SequenceLayout) -> Ints:
    """The numbers of the messages that are tokens: those that the model sees, or in rows those of the reference."""
    if layout.reference is not None:
        return np.flatnonzero(messages.stream == layout.reference)
    return np.flatnonzero(np.array([stream.input for stream in layout.streams])[messages.stream])


def make_tokens(messages: TokenTable, layout: SequenceLayout, chosen: Ints) -> TokenTable:
    """The tokens of chosen messages: in rows with the held values of the other streams and their ages, and the gap."""
    table = messages.take(chosen)
    for n, column in zip(layout.aged, range(layout.age_slice.start, layout.age_slice.stop), strict=True):
        last = last_true(messages.stream == n)[chosen]
        known = last >= messages.segment_starts()[chosen]
        held = np.maximum(last, 0)
        columns = layout.feature_slices[n]
        table.features[known, columns] = messages.features[held[known], columns]
        table.carries[known, n] = True
        age_s = (table.reference_ns - messages.time_ns[held]) / 1e9
        table.features[:, column] = np.where(known, log_elapsed(age_s), np.nan)
    if layout.gap_feature:
        gap_s = np.diff(table.time_ns, prepend=0) / 1e9
        first = table.segment_starts() == np.arange(len(table))
        table.features[:, layout.gap_slice.start] = np.where(first, np.nan, log_elapsed(gap_s))
    return table


def last_true(mask: NDArray[np.bool_]) -> Ints:
    """The index of the last true element at or before each, or -1."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1)) if len(mask) else np.zeros(0, np.int64)


def _running_max(values: Ints, segment: Ints) -> Ints:
    parts = [np.maximum.accumulate(values[part]) for part in _runs(segment)]
    return np.concatenate(parts) if parts else values


def _columns(fields: tuple[str, ...], stream: Stream, log: Log) -> list[int]:
    """Where the fields stand in a stream: another log of the robot may list its joints in another order."""
    missing = [field for field in fields if field not in stream.names]
    if missing:
        raise SequenceError(
            f"{', '.join(map(str, log.paths))}: topic {stream.topic} has no field {', '.join(missing)}; "
            f"it has {', '.join(stream.names)}"
        )
    return [stream.names.index(field) for field in fields]


def _runs(labels: Ints) -> list[slice]:
    """Slices of equal neighbours."""
    edges = np.flatnonzero(np.diff(labels)) + 1
    return [slice(a, b) for a, b in pairwise([0, *edges.tolist(), len(labels)]) if b > a]
