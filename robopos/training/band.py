"""Whether the band of attention, in tokens and in seconds, fits the log."""

from __future__ import annotations

import numpy as np

from robopos.model import ModelSettings
from robopos.sequences import SequenceDataset


def band_notes(dataset: SequenceDataset, settings: ModelSettings) -> list[str]:
    """What to say of ``context`` and ``context_s`` on the training split; empty where both hold."""
    context, context_s = settings.context, settings.context_s
    if context_s is None:
        return []
    step_s = dataset.median_interval_s()
    if context_s < step_s:
        return [
            f"context_s {context_s:g} s is shorter than the median step {step_s:.3g} s: a token sees only itself "
            "(model.network.context_s)"
        ]
    blocks = [dataset.table.reference_ns[block.start : block.stop] for block in dataset.of_split("train")]
    # From each token to the first one that `context` tokens leave out.
    spans_ns = np.concatenate([times[context:] - times[:-context] for times in blocks])
    share = float(np.mean(spans_ns <= context_s * 1e9)) if len(spans_ns) else 0.0
    if share <= 0.5:
        return []
    return [
        f"{100 * share:.0f} % of tokens reach context ({context} tokens) before context_s ({context_s:g} s): "
        "the count of tokens ends what they see (model.network.context)"
    ]
