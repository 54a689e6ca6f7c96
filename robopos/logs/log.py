"""What reading gives: a `Log` of named `Stream`s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robopos.arrays import Floats, Ints
from robopos.stamps import Clock

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Stream:
    """The columns of one topic, rows in arrival order (log time, then file order).

    Attributes:
        name: as the caller named it; topic, type ("nav_msgs/msg/Odometry"), schema (full text) and encoding
            ("cdr") are those of the log.
        names: expanded field names, one a column.
        units: SI unit of each column where the type fixes it, else "".
        frame_ids: the frames of the headers, in order of appearance.
        clock: the clock of `time_ns`: "header", "log" or "publish".
        time_ns: int64 (n,), the time of each message under `clock`.
        arrival_ns: int64 (n,), log times.
        order: int64 (n,), grows with the place in the file across all topics: breaks ties of arrival.
        values: float64 (n, d).
        offset_ns: median of header stamp minus log time, None without header stamps.
        zero_stamps: header stamps of zero, for which the log time stands.
    """

    name: str
    topic: str
    type: str
    schema: str
    encoding: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    frame_ids: tuple[str, ...]
    clock: Clock
    time_ns: Ints
    arrival_ns: Ints
    order: Ints
    values: Floats
    zero_stamps: int = 0
    offset_ns: int | None = None

    @cached_property
    def duplicates(self) -> int:
        """Stamps equal to the one before."""
        return int(np.count_nonzero(np.diff(self.time_ns) == 0))

    @cached_property
    def backward(self) -> int:
        """Stamps below the one before."""
        return int(np.count_nonzero(np.diff(self.time_ns) < 0))

    def __len__(self) -> int:
        return len(self.time_ns)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {self.topic!r}, {self.type!r}, rows={len(self)}, columns={len(self.names)})"

    def to_pandas(self) -> pd.DataFrame:
        """Columns by name, indexed by `time_ns` as UTC times; `arrival_ns` is a column of its own."""
        import pandas as pd  # slow to import, and most callers want arrays

        frame: pd.DataFrame = pd.DataFrame(self.values, columns=list(self.names))
        # A field of that name stays behind it.
        frame.insert(0, "arrival_ns", self.arrival_ns, allow_duplicates=True)
        frame.index = pd.DatetimeIndex(pd.to_datetime(self.time_ns, unit="ns", utc=True), name="time")
        return frame


class Log(Mapping[str, Stream]):
    """Streams by name, with the files they came from and what had to be said about them."""

    def __init__(self, streams: Mapping[str, Stream], paths: tuple[Path, ...], warnings: tuple[str, ...]) -> None:
        self._streams: dict[str, Stream] = dict(streams)
        self.paths = paths
        self.warnings = warnings

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        inner = ", ".join(repr(stream) for stream in self._streams.values())
        return f"Log({inner}, warnings={len(self.warnings)})"

    def __reduce__(self) -> Any:
        return Log, (self._streams, self.paths, self.warnings)
