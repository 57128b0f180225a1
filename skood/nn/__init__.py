"""Networks of torch, skorch and scikit-learn as scikit-learn estimators.

Names are imported on first use, and torch with the classes that train networks:
detectors that use scikit-learn classifiers do not need it.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.nn._classifier import TorchClassifier
    from skood.nn._linear_head import FeatureExtractor, LinearHead, split
    from skood.nn._multi_head import MultiHeadClassifier
    from skood.nn._pretrained import pretrained
    from skood.nn._regressor import TorchRegressor
    from skood.nn._training_options import TrainingOptions
    from skood.nn._weight_hash import weight_hash

__all__ = [
    "FeatureExtractor",
    "LinearHead",
    "MultiHeadClassifier",
    "TorchClassifier",
    "TorchRegressor",
    "TrainingOptions",
    "pretrained",
    "split",
    "weight_hash",
]

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "FeatureExtractor": "._linear_head",
    "LinearHead": "._linear_head",
    "MultiHeadClassifier": "._multi_head",
    "TorchClassifier": "._classifier",
    "TorchRegressor": "._regressor",
    "TrainingOptions": "._training_options",
    "pretrained": "._pretrained",
    "split": "._linear_head",
    "weight_hash": "._weight_hash",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)
