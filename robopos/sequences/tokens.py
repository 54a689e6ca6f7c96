"""Streams of a log to a table of tokens in arrival order: each message is a token at its own time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from robopos.errors import SequenceError
from robopos.logs import Log
from robopos.sequences.admission import DROPPED, STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.features import Floats, transform_rows
from robopos.sequences.layout import SequenceLayout

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TokenTable:
    """The admitted messages of one or more logs, in arrival order; n tokens, F features, T targets.

    ``log`` (n,) number of the log; ``order`` (n,) place in the log's file; ``stream`` (n,) stream number;
    ``time_ns`` (n,) the chosen clock; ``arrival_ns`` (n,) log time; ``reference_ns`` (n,) newest time admitted so
    far; ``segment`` (n,) number of the gap-free run; ``features`` (n, F) transformed, NaN where not measured;
    ``observed`` (n, T) the targets' raw values that the token carries, else NaN; ``counts`` messages by verdict.
    """

    log: Ints
    order: Ints
    stream: Ints
    time_ns: Ints
    arrival_ns: Ints
    reference_ns: Ints
    segment: Ints
    features: Floats
    observed: Floats
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.time_ns)

    def segment_starts(self) -> Ints:
        """The first token of each token's segment, (n,)."""
        first = np.flatnonzero(np.diff(self.segment, prepend=-1))
        return first[self.segment] if len(first) else np.zeros(0, np.int64)


def tokenize(logs: Sequence[Log], layout: SequenceLayout) -> TokenTable:
    """Tokens of logs, log after log; a new log is a new segment.

    Raises:
        SequenceError: no message was admitted.
    """
    tables = []
    segments = 0
    for number, log in enumerate(logs):
        table = _tokenize_one(log, layout, number, segments)
        segments = int(table.segment[-1]) + 1 if len(table) else segments
        tables.append(table)
    joined = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in TokenTable.__dataclass_fields__
        if name != "counts"
    }
    counts = {verdict.name.lower(): 0 for verdict in Verdict}
    for table in tables:
        for name, count in table.counts.items():
            counts[name] += count
    table = TokenTable(**joined, counts=counts)
    if not len(table):
        paths = ", ".join(str(path) for log in logs for path in log.paths)
        raise SequenceError(f"{paths}: no message of the streams {', '.join(s.name for s in layout.streams)}")
    return table


def _tokenize_one(log: Log, layout: SequenceLayout, number: int, first_segment: int) -> TokenTable:
    streams = [log[s.name] for s in layout.streams]
    for described, stream in zip(layout.streams, streams, strict=True):
        if tuple(stream.names) != described.fields:
            raise SequenceError(
                f"{', '.join(map(str, log.paths))}: topic {stream.topic} has the fields {', '.join(stream.names)}, "
                f"expected {', '.join(described.fields)}"
            )
    kind = np.concatenate([np.full(len(s.time_ns), i) for i, s in enumerate(streams)])
    row = np.concatenate([np.arange(len(s.time_ns)) for s in streams])
    time_ns = np.concatenate([s.time_ns for s in streams])
    arrival_ns = np.concatenate([s.arrival_ns for s in streams])
    file_order = np.concatenate([s.order for s in streams])
    measured = np.concatenate([np.isfinite(s.values).any(axis=1) for s in streams])
    arrival = np.lexsort((file_order, arrival_ns))

    admission = Admission.of(layout)
    messages = (column[arrival].tolist() for column in (kind, time_ns, measured))
    verdicts = np.fromiter(map(admission.push, *messages), np.int64, len(arrival))
    kept = arrival[~np.isin(verdicts, DROPPED)]
    starts = np.isin(verdicts, STARTS_SEGMENT)[~np.isin(verdicts, DROPPED)]
    segment = np.cumsum(starts) + first_segment
    kind, row = kind[kept], row[kept]
    time_ns = time_ns[kept]

    features = np.full((len(kept), layout.num_features), np.nan)
    observed = np.full((len(kept), len(layout.targets)), np.nan)
    for i, (described, stream) in enumerate(zip(layout.streams, streams, strict=True)):
        tokens = np.flatnonzero(kind == i)
        values = stream.values[row[tokens]]
        for part in _runs(segment[tokens]):
            features[tokens[part], layout.feature_slices[i]] = transform_rows(
                described, values[part], time_ns[tokens[part]], None
            )
        for t, (s, field) in enumerate(layout.targets):
            if s == i:
                observed[tokens, t] = values[:, field]
    observed[~np.isfinite(observed)] = np.nan
    counts = {verdict.name.lower(): int((verdicts == verdict).sum()) for verdict in Verdict}
    return TokenTable(
        log=np.full(len(kept), number),
        order=file_order[kept],
        stream=kind,
        time_ns=time_ns,
        arrival_ns=arrival_ns[kept],
        reference_ns=np.concatenate([np.maximum.accumulate(time_ns[part]) for part in _runs(segment)])
        if len(kept)
        else time_ns,
        segment=segment,
        features=features,
        observed=observed,
        counts=counts,
    )


def _runs(labels: Ints) -> list[slice]:
    """Slices of equal neighbours."""
    edges = np.flatnonzero(np.diff(labels)) + 1
    bounds = [0, *edges.tolist(), len(labels)]
    return [slice(a, b) for a, b in pairwise(bounds) if b > a]
