"""The causal Transformer and the bundle that carries it."""

from robopos.model.bundle import Bundle, Physical, bundle_hash, pick_device
from robopos.model.network import SequenceTransformer, loss_of
from robopos.model.settings import ModelSettings

__all__ = ["Bundle", "ModelSettings", "Physical", "SequenceTransformer", "bundle_hash", "loss_of", "pick_device"]
