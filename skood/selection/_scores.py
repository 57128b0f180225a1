"""Names of detectors, and splits of their scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._torch import to_numpy


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


def split_reference(held_out, fraction, rng):
    """Split held-out samples at random into reference and calibration samples."""
    n = len(held_out)
    if n < 2:
        raise ValueError(
            f"A fraction reference={fraction} of the held-out samples is needed in "
            f"addition to calibration samples, but there is {n} sample in all. Give "
            "more samples."
        )
    order = rng.permutation(n)
    size = n_reference(n, fraction)
    return held_out[order[:size]], held_out[order[size:]]


def n_reference(n, fraction):
    """Return the number of reference samples among n held-out samples."""
    return min(max(1, round(fraction * n)), n - 1)


def as_matrix(X):
    """Return samples as a matrix of float64, for `ClassifierFusion`."""
    X = to_numpy(X)
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
