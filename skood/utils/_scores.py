"""Validation of scores, and of values that must not be negative."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._labels import column
from skood.utils._torch import to_numpy


def check_scores(scores, name, ndim=1, n_samples=None):
    """Return scores as float64 with `ndim` axes, None: one or two; raise on NaN.

    With ``ndim=1`` a column is raveled, and `n_samples` is the expected length.
    """
    scores = np.asarray(to_numpy(scores))
    if scores.dtype.kind not in "biufO":
        raise ValueError(
            f"{name} must be an array of real numbers, got dtype {scores.dtype}."
        )
    shape, expected = scores.shape, "(n_samples,), or (n_samples, n_detectors)"
    if ndim == 1:
        expected = "(n_samples,)" if n_samples is None else f"({n_samples},)"
        scores = scores.reshape(-1) if shape[1:] == (1,) else scores
    elif ndim == 2:
        expected = "(n_samples, n_detectors)"
    if (
        scores.ndim not in ((1, 2) if ndim is None else (ndim,))
        or n_samples not in (None, len(scores))
        or shape[1:] == (0,)
    ):
        hint = (
            " Of several columns, such as the probabilities of classes, pass the one "
            "to rank by or their maximum."
        )
        raise ValueError(
            f"{name} must have the shape {expected}, one score per sample, got the "
            f"shape {shape}." + hint * (ndim == 1 and len(shape) == 2)
        )
    scores = scores.astype(np.float64, copy=False)
    if np.isnan(scores).any():
        raise ValueError(
            f"{name} contains {int(np.isnan(scores).sum())} NaN among {scores.size} "
            "values; every sample needs a score (infinities are allowed). Impute "
            "missing values before scoring, or use another detector."
        )
    return scores


def check_nonnegative(values, name, n_samples=None):
    """Return finite values as float64 of shape (n_samples,), none negative; or raise.

    They are losses, probabilities, or weights that may all be zero.
    """
    values = column(values).astype(np.float64, copy=False)
    if n_samples not in (None, len(values)):
        raise ValueError(
            f"{name} must have one value per sample, got {len(values)} for {n_samples} "
            "samples."
        )
    # without arrays in between; a NaN is the minimum
    if not (values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf):
        bad = ~(np.isfinite(values) & (values >= 0))
        raise ValueError(
            f"{name} must be finite and not negative, got {float(values[bad][0])!r}."
        )
    return values
