"""Which rows fit the members of an ensemble, and which calibrate it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from skood.detectors._network import held_out_rows
from skood.utils._warnings import warn

__all__ = ["Fold", "calibration_folds", "check_same", "with_levels"]


class Fold(NamedTuple):
    """Rows of one committee.

    Parameters
    ----------
    train : ndarray of int or None
        Rows that its members are fitted on. None: all.

    pvalue_rows : ndarray of int
        Rows that p-values are relative to.

    level_rows : ndarray of int
        Rows that the levels of combined statistics are relative to. Empty: levels are
        nominal.
    """

    train: np.ndarray | None
    pvalue_rows: np.ndarray
    level_rows: np.ndarray


def check_same(names, detectors):
    """Refuse members that would be calibrated on the rows they are fitted on."""
    for name, detector in zip(names, detectors, strict=True):
        if not isinstance(detector, FrozenEstimator):
            raise ValueError(
                f"calibration='same' needs frozen members, but {name!r} would be "
                "fitted on the rows that calibrate it. Put a fitted detector in "
                "sklearn.frozen.FrozenEstimator, or hold rows out with "
                "calibration=0.2."
            )


def calibration_folds(n_samples, y, calibration, random_state):
    """Hold rows out: once, or each row in one of several folds.

    Parameters
    ----------
    n_samples : int
        Number of ID rows.

    y : ndarray of shape (n_samples,) or None
        Their labels.

    calibration, random_state
        See `DetectorEnsemble`.

    Returns
    -------
    folds : list of (ndarray of int or None, ndarray of int)
        Rows to fit on, and rows held out, in random order.

    Raises
    ------
    ValueError
        If no row can be held out.
    """
    rng = check_random_state(random_state)
    if isinstance(calibration, str):  # "same"
        return [(None, rng.permutation(n_samples))]
    if isinstance(calibration, Real) and not float(calibration).is_integer():
        held_out = held_out_rows(y, n_samples, calibration, rng)
        if len(held_out) == 0:
            raise ValueError(
                f"calibration={calibration} holds rows out, and leaves one of each "
                f"class: there are none to hold out of n_samples={n_samples}. Give "
                "more rows, or frozen members and calibration='same'."
            )
        train = np.setdiff1d(np.arange(n_samples), held_out)
        return [(train, rng.permutation(held_out))]
    splitter = check_cv(calibration, y, classifier=y is not None)
    return [
        (np.asarray(train), rng.permutation(test))
        for train, test in splitter.split(np.zeros((n_samples, 1)), y)
    ]


def with_levels(folds, level, alpha):
    """Split the rows held out in two, if the level is to be that of held-out rows.

    Parameters
    ----------
    folds : list of (ndarray of int or None, ndarray of int)
        See `calibration_folds`.

    level : {"auto", "nominal", "conformal"}
        See `DetectorEnsemble`.

    alpha : float
        The level that is wanted.

    Returns
    -------
    folds : list of Fold
        With rows for levels, or without.

    level : {"nominal", "conformal"}
        Which it is.

    Raises
    ------
    ValueError
        If "conformal" is asked for, and there are too few rows to reject any sample.
    """
    halves = [Fold(train, held[::2], held[1::2]) for train, held in folds]
    n_level = sum(len(fold.level_rows) for fold in halves)
    needed = math.ceil(1.0 / alpha * (1 - 1e-12)) - 1
    if level != "nominal" and n_level >= needed:
        return halves, "conformal"
    if level == "conformal":
        raise ValueError(
            f"level='conformal' at alpha={alpha} needs {needed} rows to rank the "
            f"combined statistics among, and as many for p-values; {n_level} of the "
            f"{sum(len(held) for _, held in folds)} rows held out can be had. Give "
            "more rows, a larger calibration share, a larger alpha, or "
            "level='nominal'."
        )
    if level == "auto":
        warn(
            f"Of the {sum(len(held) for _, held in folds)} rows held out, half are "
            f"fewer than the {needed} that level='conformal' needs at alpha={alpha}: "
            "the level is nominal, and is kept only as far as the combiner keeps it "
            "under dependence. Give more rows, or a larger calibration share."
        )
    return [Fold(train, held, held[:0]) for train, held in folds], "nominal"
