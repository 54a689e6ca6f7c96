"""The conditions under which trained networks are judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robopos.logs import Log
from robopos.sequences.degrade import drop_messages

AS_RECORDED = "as recorded"


def drop_name(share: float) -> str:
    """What a condition is called in tables."""
    return f"{share:.0%} of the tokens dropped"


def dropped(logs: Sequence[Log], share: float, seed: int) -> list[Log]:
    """Logs without a share of their messages; the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [drop_messages(log, share, generator) for log in logs]
