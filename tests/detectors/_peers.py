"""Data that is scored through skood and through other libraries, and comparisons."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.linear_model import LogisticRegression

from skood.nn import LinearHead

TOLERANCE = 1e-5


def make_features(dtype=np.float64):
    """Features of 1,000 ID samples in 5 classes, their labels, and 200 queries."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, size=1000)
    mix = rng.normal(size=(16, 16)) / 4 + np.eye(16)
    centers = 2 * rng.normal(size=(5, 16))
    Z = np.maximum(rng.normal(size=(1000, 16)) @ mix + centers[y] + 1, 0)
    Z += 0.01 * rng.normal(size=Z.shape)
    queries = 2 * np.abs(rng.normal(size=(200, 16)))
    return Z.astype(dtype), y, queries.astype(dtype)


def make_head(features):
    """A head that classifies the features, with independent rows."""
    Z, y, _ = features
    model = LogisticRegression(max_iter=2000).fit(Z, y)
    # moved off the exactly dependent rows of a softmax head, whose pseudo-inverse is
    # a matter of the library
    coef = model.coef_ + 0.1 * np.random.default_rng(1).normal(size=model.coef_.shape)
    return LinearHead(coef.astype(Z.dtype), model.intercept_.astype(Z.dtype))


def peer_scores(score):
    """Scores of pytorch-ood, where higher means more OOD, in our direction."""
    return -score.detach().numpy().astype(np.float64)


def assert_equal(actual, expected, rtol=TOLERANCE, of_largest=False):
    """Compare scores to a relative tolerance.

    ``of_largest`` is for scores that are differences of large numbers in float32: the
    tolerance then is relative to the largest one.
    """
    atol = rtol * np.abs(expected).max() if of_largest else 0
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
