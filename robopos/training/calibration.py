"""Standard deviations that say what they mean: one factor a target, from the validation split."""

from __future__ import annotations

import math

import numpy as np
import torch

from robopos.model import Bundle
from robopos.sequences import SequenceDataset, difference
from robopos.training.evaluation import predict


@torch.no_grad()
def calibrate(bundle: Bundle, dataset: SequenceDataset, split: str = "validation") -> Bundle:
    """Scale each target's standard deviation so that errors have on average the size that it says.

    The factor is the root mean square of error / std over the split (the maximum-likelihood scale of a Gaussian; as
    temperature scaling, Guo 2017, for regression). It is folded into the bias of the head. A bundle without standard
    deviations comes back as it is.
    """
    if bundle.settings.loss != "gaussian":
        return bundle
    predictions = predict(bundle, dataset, split)
    if predictions.std is None or not len(predictions.anchors):
        return bundle
    error = difference(bundle.layout.target_kinds, predictions.values, predictions.truth) / predictions.std
    bias = bundle.network.head.out.bias
    count = len(bundle.layout.targets)
    for t in range(count):
        known = error[..., t][np.isfinite(error[..., t])]
        if len(known) and (known != 0).any():
            bias[count + t] += math.log(float(np.sqrt((known**2).mean())))
    return bundle
