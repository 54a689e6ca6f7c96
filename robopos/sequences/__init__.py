"""Streams to tokens to windows: admission, features, normalization, targets."""

from robopos.sequences.admission import STARTS_SEGMENT, Admission, Verdict
from robopos.sequences.dataset import SequenceDataset
from robopos.sequences.features import Normalization, fit_normalization, with_center
from robopos.sequences.geometry import compose, difference
from robopos.sequences.layout import InputStream, SequenceLayout, log_streams, resolve_layout
from robopos.sequences.live import LiveTokens
from robopos.sequences.settings import SequenceSettings, SplitSettings, StreamSettings
from robopos.sequences.splits import Block, split_blocks, whole_blocks
from robopos.sequences.targets import Baselines, read_baselines, read_targets
from robopos.sequences.tokens import TokenTable, read_messages
from robopos.sequences.windows import Batch, TokenColumns, Tokens, WindowSampler, step_seed

__all__ = [
    "STARTS_SEGMENT",
    "Admission",
    "Baselines",
    "Batch",
    "Block",
    "InputStream",
    "LiveTokens",
    "Normalization",
    "SequenceDataset",
    "SequenceLayout",
    "SequenceSettings",
    "SplitSettings",
    "StreamSettings",
    "TokenColumns",
    "TokenTable",
    "Tokens",
    "Verdict",
    "WindowSampler",
    "compose",
    "difference",
    "fit_normalization",
    "log_streams",
    "read_baselines",
    "read_messages",
    "read_targets",
    "resolve_layout",
    "split_blocks",
    "step_seed",
    "whole_blocks",
    "with_center",
]
