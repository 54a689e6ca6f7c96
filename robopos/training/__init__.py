"""Training with Lightning, and evaluation. The Lightning parts are imported by name, so that evaluation needs none."""

from robopos.training.evaluation import Predictions, overall_skill, predict, score

__all__ = ["Predictions", "overall_skill", "predict", "score"]
