"""Splits of the samples into parts to fit an ensemble and to calibrate it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.combine._pvalues import rows_needed
from skood.utils._warnings import warn

__all__ = ["Fold", "with_levels"]


class Fold(NamedTuple):
    """Indices of the samples of one committee.

    Parameters
    ----------
    train : ndarray of int or None
        Samples that its members are fitted on. None: all.

    pvalue_rows : ndarray of int
        Samples that p-values refer to.

    level_rows : ndarray of int
        Samples that the levels of combined statistics refer to. Empty: levels are
        nominal.
    """

    train: np.ndarray | None
    pvalue_rows: np.ndarray
    level_rows: np.ndarray


def with_levels(folds, level, alpha, correction=1.0):
    """Split held-out samples into halves for p-values and for levels, if conformal.

    Parameters
    ----------
    folds : list of (ndarray of int or None, ndarray of int)
        See `calibration_folds`.

    level : {"auto", "nominal", "conformal"}
        See `DetectorEnsemble`.

    alpha : float
        The level of the test.

    correction : float, default=1.0
        The combiner's factor of a single small p-value. With several folds, "auto"
        requires that the smallest p-value of each fold, times this, can reach `alpha`.

    Returns
    -------
    folds : list of Fold
        With or without samples for levels.

    level : {"nominal", "conformal"}
        The chosen kind.

    Raises
    ------
    ValueError
        If `level` is "conformal" and there are too few samples to reject any.
    """
    halves = [Fold(train, held[::2], held[1::2]) for train, held in folds]
    n_held_out = sum(len(held) for _, held in folds)
    n_level = sum(len(fold.level_rows) for fold in halves)
    needed = rows_needed(1.0, alpha)
    nominal = [Fold(train, held, held[:0]) for train, held in folds]
    if level == "nominal":
        return nominal, "nominal"
    if n_level < needed:
        least = (
            f"needs {needed} rows at alpha={alpha} to rank the combined statistics "
            f"among, and as many for p-values; of the {n_held_out} rows held out "
            f"{n_level} can be had. Give more rows, a larger calibration share"
        )
        if level == "conformal":
            raise ValueError(
                f"level='conformal' {least}, a larger alpha, or level='nominal'."
            )
        warn(
            f"The level is nominal, which is kept only as far as the combiner keeps it "
            f"under dependence: level='conformal' {least} or a larger alpha."
        )
        return nominal, "nominal"
    smallest = min(len(fold.pvalue_rows) for fold in halves)
    if level == "auto" and len(folds) > 1 and smallest < rows_needed(correction, alpha):
        warn(
            "The level is nominal, which is kept only as far as the combiner keeps it "
            f"under dependence: with level='conformal' only {smallest} rows of a fold "
            f"would give p-values, and at alpha={alpha} a single member is not heard "
            f"with fewer than {rows_needed(correction, alpha)}. Give "
            "more rows, or fewer folds."
        )
        return nominal, "nominal"
    return halves, "conformal"
