"""What the engine counts: nothing is dropped, refused or forgotten without a number here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from robopos.sequences import Verdict


@dataclass
class StreamStats:
    """Counts of one input stream, by what became of its messages."""

    received: int = 0
    admitted: int = 0
    late: int = 0  # dropped: too far behind the newest stamp
    thinned: int = 0  # dropped: above max_rate_hz
    empty: int = 0  # dropped: not one finite value
    undecodable: int = 0  # raised: bytes that are no message of the type
    refused: int = 0  # raised: wrong number of values, or a time that is no whole number
    missing_values: int = 0  # not finite, masked in a message that was admitted or dropped
    far_out: int = 0  # admitted with a value more than 20 standard deviations from the mean of training
    out_of_order: int = 0  # admitted though behind the newest stamp
    repeated_stamps: int = 0  # admitted with the stamp of the message before
    future_stamps: int = 0  # admitted with a stamp after their arrival
    zero_stamps: int = 0  # header without a stamp: the arrival counts
    last_time_ns: int | None = None
    last_arrival_ns: int | None = None

    def count(self, verdict: Verdict, time_ns: int, arrival_ns: int | None, newest_ns: int | None) -> None:
        """Count a judged message; ``newest_ns`` is the newest stamp before it."""
        self.last_arrival_ns = arrival_ns
        if verdict in (Verdict.LATE, Verdict.THINNED, Verdict.EMPTY):
            name = verdict.name.lower()
            setattr(self, name, getattr(self, name) + 1)
            return
        self.admitted += 1
        # A message that starts anew is not behind anything.
        self.out_of_order += verdict is Verdict.ADMITTED and newest_ns is not None and time_ns < newest_ns
        self.repeated_stamps += time_ns == self.last_time_ns
        self.future_stamps += arrival_ns is not None and time_ns > arrival_ns
        self.last_time_ns = time_ns


@dataclass
class EngineStats:
    """What happened since the engine was made.

    ``resets`` by reason; ``backlog`` tokens that wait for the next prediction, and the most that ever did;
    ``band_truncated`` tokens whose band in seconds is longer than ``context`` tokens; ``steps`` of the network.
    """

    streams: dict[str, StreamStats]
    predictions: int = 0
    steps: int = 0
    absorbed: int = 0
    backlog: int = 0
    backlog_most: int = 0
    band_truncated: int = 0
    resets: dict[str, int] = field(default_factory=dict)
    newest_ns: int | None = None
    last_step_s: float = 0.0

    def ages_s(self) -> dict[str, float | None]:
        """Per stream: the newest stamp of all minus its own newest, ``None`` before its first message."""
        return {
            name: None
            if stream.last_time_ns is None or self.newest_ns is None
            else (self.newest_ns - stream.last_time_ns) / 1e9
            for name, stream in self.streams.items()
        }

    def count_reset(self, reason: str) -> None:
        """One more reset for ``reason``."""
        self.resets[reason] = self.resets.get(reason, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """Plain types, with ``age_s`` for each stream."""
        told = asdict(self)
        for name, age_s in self.ages_s().items():
            told["streams"][name]["age_s"] = age_s
        return told
