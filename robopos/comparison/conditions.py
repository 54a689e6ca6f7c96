"""Logs as a worse day would have recorded them: what is taken away is taken from the input, never from the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robopos.logs import Log

AS_RECORDED = "as recorded"


def drop_name(share: float) -> str:
    """What a condition is called in tables."""
    return f"{share:.0%} of the tokens dropped"


def drop_messages(logs: Sequence[Log], share: float, seed: int) -> list[Log]:
    """Logs without a share of their messages, each dropped independently; the same for the same seed."""
    generator = np.random.default_rng(seed)
    thinned = []
    for log in logs:
        streams = {}
        for name, stream in log.items():
            kept = generator.random(len(stream)) >= share
            columns = {c: getattr(stream, c)[kept] for c in ("time_ns", "arrival_ns", "order", "values")}
            streams[name] = replace(stream, **columns)
        thinned.append(Log(streams, log.paths, log.warnings))
    return thinned
