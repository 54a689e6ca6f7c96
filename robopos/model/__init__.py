"""The causal Transformer and the bundle that carries it."""

from robopos.model.bundle import (
    Bundle,
    Physical,
    bundle_hash,
    bundle_identity,
    pick_device,
    residual_scale_at,
)
from robopos.model.defaults import fill_position_options
from robopos.model.network import SequenceTransformer, loss_of
from robopos.model.probe import as_function
from robopos.model.settings import SIZES, ModelSettings
from robopos.model.streaming import Ring, Step, StepOutput, StreamState, given_positions, pick_mode

__all__ = [
    "SIZES",
    "Bundle",
    "ModelSettings",
    "Physical",
    "Ring",
    "SequenceTransformer",
    "Step",
    "StepOutput",
    "StreamState",
    "as_function",
    "bundle_hash",
    "bundle_identity",
    "fill_position_options",
    "given_positions",
    "loss_of",
    "pick_device",
    "pick_mode",
    "residual_scale_at",
]
