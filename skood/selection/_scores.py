"""Validation and splits of the scores of several detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._torch import to_numpy


def as_scores(scores, name, ndim):
    """Return scores as float64 with one or two axes, or raise. Infinity is allowed."""
    scores = np.asarray(to_numpy(scores))
    shape = "(n_samples,)" if ndim == 1 else "(n_samples, n_detectors)"
    if scores.dtype.kind not in "biuf" and scores.size:
        raise ValueError(
            f"{name} must be an array of real numbers, got dtype {scores.dtype}."
        )
    if scores.ndim != ndim or scores.shape[1:] == (0,):
        raise ValueError(f"{name} must have the shape {shape}, got {scores.shape}.")
    scores = scores.astype(np.float64, copy=False)
    if np.isnan(scores).any():
        raise ValueError(
            f"{name} has {int(np.isnan(scores).sum())} NaN among {scores.size} values, "
            "and a missing score has no p-value. Leave these samples, or the detector "
            "that gives them, out."
        )
    return scores


def check_pair(scores, calibration_scores, ndim=2):
    """Return scores of the batch and of the calibration samples, or raise."""
    scores = as_scores(scores, "scores", ndim)
    calibration = as_scores(calibration_scores, "calibration_scores", ndim)
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
