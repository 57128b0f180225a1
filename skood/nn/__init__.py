"""Networks of torch, skorch and scikit-learn as scikit-learn estimators.

Classes that train networks, and torch with them, are imported on first use: detectors
that use scikit-learn classifiers need neither.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.nn._extractor import FeatureExtractor
from skood.nn._linear_head import LinearHead, split
from skood.nn._pretrained import pretrained
from skood.nn._training_options import TrainingOptions
from skood.nn._weight_hash import weight_hash

if TYPE_CHECKING:
    from skood.nn._classifier import TorchClassifier
    from skood.nn._multi_head import MultiHeadClassifier

__all__ = [
    "FeatureExtractor",
    "LinearHead",
    "MultiHeadClassifier",
    "TorchClassifier",
    "TrainingOptions",
    "pretrained",
    "split",
    "weight_hash",
]


def __getattr__(name):
    if name == "TorchClassifier":
        from skood.nn._classifier import TorchClassifier

        return TorchClassifier
    if name == "MultiHeadClassifier":
        from skood.nn._multi_head import MultiHeadClassifier

        return MultiHeadClassifier
    raise AttributeError(f"module 'skood.nn' has no attribute {name!r}")
