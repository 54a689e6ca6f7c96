"""The first steps of an engine, which allocate and compile, made before a message waits for them."""

from __future__ import annotations

import numpy as np

from robopos.serving import Engine, EngineStats, StreamStats
from robopos.stamps import NS_PER_S

BLOCKS = (1, 8, 1)  # tokens before a prediction: alone, and as after a burst


def warm_up(engine: Engine) -> None:
    """Predict from messages that never were; nothing of them stays."""
    layout = engine.bundle.layout
    # Of rows, the reference's messages alone become tokens.
    stream = engine.inputs[0] if layout.reference is None else layout.streams[layout.reference]
    # Far apart, so that the band never holds more tokens than it is counted for.
    step_s = 0.9 * min(layout.max_gap_s, engine.bundle.settings.context_s or 1.0)
    time_ns = 0
    for count in BLOCKS:
        for _ in range(count):
            time_ns += round(step_s * NS_PER_S)
            engine.push(stream.name, time_ns, np.zeros(len(stream.fields)))
        engine.predict()
    engine.reset("warm-up")
    count_anew(engine)


def count_anew(engine: Engine) -> None:
    """Let the engine's statistics begin at zero."""
    engine.stats = EngineStats({each.name: StreamStats() for each in engine.inputs})
