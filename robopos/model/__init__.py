"""The causal Transformer and the bundle that carries it."""

from robopos.model.bundle import (
    Bundle,
    Physical,
    bundle_hash,
    bundle_identity,
    pick_device,
    residual_scale_at,
)
from robopos.model.network import SequenceTransformer, loss_of
from robopos.model.settings import ModelSettings
from robopos.model.streaming import Ring, Step, StepOutput, StreamState, given_positions, pick_mode

__all__ = [
    "Bundle",
    "ModelSettings",
    "Physical",
    "Ring",
    "SequenceTransformer",
    "Step",
    "StepOutput",
    "StreamState",
    "bundle_hash",
    "bundle_identity",
    "given_positions",
    "loss_of",
    "pick_device",
    "pick_mode",
    "residual_scale_at",
]
