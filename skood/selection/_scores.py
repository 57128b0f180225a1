"""Validation and splits of the scores of several detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.stats._conformal import check_scores
from skood.utils._torch import to_numpy


def check_pair(scores, calibration_scores, ndim=2):
    """Return scores of the batch and of the calibration samples, or raise."""
    scores = check_scores(scores, "scores", ndim)
    calibration = check_scores(calibration_scores, "calibration_scores", ndim)
    if scores.shape[1:] != calibration.shape[1:]:
        raise ValueError(
            "scores and calibration_scores must have one column for each detector, got "
            f"the shapes {scores.shape} and {calibration.shape}."
        )
    if len(calibration) == 0:
        raise ValueError(
            "There is no calibration sample: calibration_scores is empty. Give scores "
            "of held-out ID samples."
        )
    return scores, calibration


def member_names(names, n_detectors):
    """Return the names of the detectors, their indices if None; raise for others."""
    if names is None:
        return list(map(str, range(n_detectors)))
    if isinstance(names, str) or len(names) != n_detectors:
        raise ValueError(
            f"names must be a list of {n_detectors} names, one for each detector, got "
            f"{names!r}."
        )
    return list(map(str, names))


def split_reference(held_out, share, rng):
    """Split held-out samples at random into reference and calibration samples."""
    n = len(held_out)
    if n < 2:
        raise ValueError(
            f"A share reference={share} of the held-out samples is needed beside "
            f"calibration samples, but there is {n} sample in all. Give more samples."
        )
    order = rng.permutation(n)
    size = n_reference(n, share)
    return held_out[order[:size]], held_out[order[size:]]


def n_reference(n, share):
    """Return the number of reference samples among n held-out samples."""
    return min(max(1, round(share * n)), n - 1)


def as_matrix(X):
    """Return samples as a matrix of float64, for `ClassifierFusion`."""
    X = to_numpy(X)
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
