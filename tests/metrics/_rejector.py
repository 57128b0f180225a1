"""A selective classifier whose displays are tested, and rows for it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.linear_model import LogisticRegression

from skood.rejection import RejectOptionClassifier
from tests.metrics._drawing import MarginDetector


def make_blobs_ood(seed, n=120):
    """Rows of two overlapping classes, then OOD rows (-1) further from the origin."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, -1], n // 3)
    center = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 4.0]])
    return rng.normal(size=(y.size, 2)) + center[y], y


def fit_rejector(rule, ood_detector=True, **params):
    """Fit a classifier with a rule; its second score is the distance to the origin."""
    return RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=MarginDetector() if ood_detector else None,
        rule=rule,
        random_state=0,
        **params,
    ).fit(*make_blobs_ood(0))
