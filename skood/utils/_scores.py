"""Scores of detectors: finite numbers, and the threshold on them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._array_api import all_finite
from skood.utils._ties import threshold_at


def checked_scores(detector, scores):
    """Return scores as float64; raise on NaN."""
    scores = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(scores).all() and np.isnan(scores).any():
        raise ValueError(
            f"{type(detector).__name__} got NaN as the score of "
            f"{int(np.isnan(scores).sum())} of {scores.shape[0]} samples: its features "
            "or logits overflow. Scale X, or look at the network's outputs."
        )
    return scores


def finite_scores(detector, scores):
    """Return new float64 scores, infinite ones replaced; raise on NaN."""
    scores = np.array(scores, dtype=np.float64)
    if all_finite(scores):
        return scores
    return saturated(checked_scores(detector, scores))


def saturated(scores):
    """Replace infinite scores by the nearest finite number."""
    if all_finite(scores):
        return np.array(scores)  # a copy, as below
    largest = np.finfo(np.float64).max
    return np.clip(scores, -largest, largest)


def score_threshold(detector, scores, weight=None):
    """Return the threshold that a share `contamination` of the scores is below.

    With weights (n_samples,) it is this share of their sum.
    """
    scores = checked_scores(detector, scores)
    offset = threshold_at(scores, detector.contamination, weight)
    if not np.isfinite(offset):
        raise ValueError(
            f"{type(detector).__name__} has no finite threshold: the training scores "
            f"at contamination={detector.contamination} are infinite. Scale X, or look "
            "at the network's outputs."
        )
    return offset
