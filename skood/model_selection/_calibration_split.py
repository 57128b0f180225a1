"""Split of ID samples into training and calibration samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state

__all__ = ["calibration_folds"]


def calibration_folds(n_samples, y, calibration, random_state):
    """Return folds of training and held-out samples: one, or cross-fitting folds.

    Samples are drawn without stratification. Given the fitted models, they must be
    exchangeable with new samples, which include rare classes: in stratified splits,
    p-values and bounds on rates are not valid.

    Parameters
    ----------
    n_samples : int
        Number of ID samples.

    y : ndarray of shape (n_samples,) or None
        Their labels, which are only passed to a splitter of the user.

    calibration : float, int, CV splitter or "same"
        Share of held-out samples, number of shuffled folds, or the user's folds.
        "same": all samples are for calibration, and none for training.

    random_state : int, RandomState instance or None
        Controls the draws.

    Returns
    -------
    folds : list of (ndarray of int or None, ndarray of int)
        Training samples, and held-out samples, in random order.

    Raises
    ------
    ValueError
        If no sample can be held out, or there are more folds than samples.
    """
    rng = check_random_state(random_state)
    if isinstance(calibration, str):  # "same"
        return [(None, rng.permutation(n_samples))]
    if isinstance(calibration, Real) and not float(calibration).is_integer():
        if n_samples < 2:
            raise ValueError(
                f"calibration={calibration} holds samples out, but no sample can be "
                f"held out of n_samples={n_samples}. Give more samples, or frozen "
                "parts and calibration='same'."
            )
        order = rng.permutation(n_samples)
        n_held_out = min(max(1, round(calibration * n_samples)), n_samples - 1)
        return [(np.sort(order[n_held_out:]), order[:n_held_out])]
    if isinstance(calibration, Integral):
        if calibration > n_samples:
            raise ValueError(
                f"calibration={calibration} folds need at least as many samples, got "
                f"n_samples={n_samples}. Use fewer folds, or more samples."
            )
        splitter = KFold(calibration, shuffle=True, random_state=rng)
    else:
        splitter = check_cv(calibration)
    return [
        (np.asarray(train), rng.permutation(test))
        for train, test in splitter.split(np.zeros((n_samples, 1)), y)
    ]
