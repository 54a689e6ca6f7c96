"""Streams to tokens to windows: admission, features, normalization, targets."""

from robopos.sequences.admission import Admission, Verdict
from robopos.sequences.dataset import SequenceDataset
from robopos.sequences.features import Normalization
from robopos.sequences.layout import InputStream, SequenceLayout, log_streams, resolve_layout
from robopos.sequences.live import LiveTokens
from robopos.sequences.settings import SequenceSettings, SplitSettings, StreamSettings
from robopos.sequences.splits import Block, split_blocks, whole_blocks
from robopos.sequences.targets import Baselines, read_baselines, read_targets
from robopos.sequences.tokens import TokenTable, tokenize
from robopos.sequences.windows import Batch, TokenColumns, Tokens, WindowSampler, fit_normalization

__all__ = [
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
    "fit_normalization",
    "log_streams",
    "read_baselines",
    "read_targets",
    "resolve_layout",
    "split_blocks",
    "tokenize",
    "whole_blocks",
]
