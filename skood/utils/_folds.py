"""Calibration on held-out ID samples: splits, and ranks among their scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import chain
from numbers import Integral, Real

import numpy as np
from scipy.special import bdtrc
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold, check_cv
from sklearn.utils import check_random_state

from skood.utils._metaestimators import take_rows, unwrap, unwrapped
from skood.utils._sample_keys import compared_keys, drawn_samples
from skood.utils._warnings import warn

# Least fraction of training samples among calibration samples for a warning; level of
# the test against repeated samples; pairs that count without a test if no others are
# equal.
_LEAST_FRACTION = 0.05
_LEVEL = 1e-4
_FEW_SHARED = 5

# Number of calibration samples that pass through the steps of a pipeline again.
_MAX_PIPED = 500


def calibration_folds(n_samples, y, calibration, random_state, groups=None):
    """Return pairs of training samples (or None) and held-out samples, one per fold.

    `calibration` is the fraction of held-out samples, the number of shuffled folds, a
    splitter of the user (which alone is passed `y`), or "same". Folds are not
    stratified: held-out samples must be exchangeable with new ones, or p-values and
    bounds are not valid. With `groups` of shape (n_samples,), a fraction or a number of
    folds holds out whole groups.
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
        if groups is not None:
            return [_held_out_groups(groups, float(calibration), rng)]
        order = rng.permutation(n_samples)
        n_held_out = min(max(1, round(calibration * n_samples)), n_samples - 1)
        return [(np.sort(order[n_held_out:]), order[:n_held_out])]
    if isinstance(calibration, Integral):
        if calibration > n_samples:
            raise ValueError(
                f"calibration={calibration} folds need at least as many samples, got "
                f"n_samples={n_samples}. Use fewer folds, or more samples."
            )
        kind = KFold if groups is None else GroupKFold
        splitter = kind(calibration, shuffle=True, random_state=rng)
    else:
        splitter = check_cv(calibration)
    return [
        (np.asarray(train), rng.permutation(test))
        for train, test in splitter.split(np.zeros((n_samples, 1)), y, groups)
    ]


def _held_out_groups(groups, fraction, rng):
    """Return the training samples, and the samples of a fraction of the groups."""
    names, codes = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"calibration={fraction} holds out whole groups, but there is one group "
            f"only, {names.tolist()[0]!r}. Give samples of more groups."
        )
    n_held_out = min(max(1, round(fraction * len(names))), len(names) - 1)
    held_out = np.isin(codes, rng.permutation(len(names))[:n_held_out])
    return np.flatnonzero(~held_out), rng.permutation(np.flatnonzero(held_out))


def check_same(names, detectors):
    """Raise if members would be calibrated on the samples they are fitted on."""
    for name, detector in zip(names, detectors, strict=True):
        if not isinstance(detector, FrozenEstimator):
            raise ValueError(
                f"calibration='same' needs frozen members, but {name!r} would be "
                "fitted on the samples that calibrate it. Put a fitted detector in "
                "sklearn.frozen.FrozenEstimator, or hold samples out with "
                "calibration=0.2."
            )


def warn_of_training_samples(X, *estimators, indices=None):
    """Warn if fitted estimators are calibrated on their detectors' training samples.

    The calibration samples are `X` at `indices` (None: all). Detectors are
    compared by the keys that they store, in frozen pipelines after the steps before
    them.
    """
    pairs = list(chain.from_iterable(map(_detectors, estimators)))
    if not pairs:
        return
    drawn, n_samples = drawn_samples(X, indices)
    for fitted, detector in pairs:
        is_piped = fitted is not detector
        # steps before the detector, such as a network, may take long
        samples = take_rows(drawn, slice(_MAX_PIPED)) if is_piped else drawn
        keys = compared_keys(unwrap(fitted, samples)[1] if is_piped else samples)
        if keys is None or len(keys) == 0:
            continue
        n_stored, stored = detector._training_keys
        n_training = _n_training(n_stored, stored, keys, n_samples)
        if n_training:
            warn(
                f"{n_training} of {n_samples} calibration samples are training samples "
                f"of {type(detector).__name__}: use others. Training samples score "
                "higher than new ID samples, which then seem to be OOD."
            )


def _detectors(estimator):
    """Yield pairs of a fitted estimator and the detector in it, with stored keys."""
    owner = getattr(estimator, "__self__", None)  # of a method
    fitted = estimator if owner is None else owner
    frozen = owner is not None or isinstance(fitted, FrozenEstimator)
    detector = unwrap(fitted)[0] if frozen else fitted
    if getattr(detector, "_training_keys", None) is not None:
        yield (fitted if unwrapped(fitted) is not detector else detector), detector
    if hasattr(detector, "get_params") and not isinstance(detector, type):
        for value in detector.get_params().values():
            if isinstance(value, FrozenEstimator):
                yield from _detectors(value)


def _n_training(n_stored, stored, keys, n_samples):
    """Return how many calibration samples are training samples; "" if below 5 %.

    If both sets are samples of one distribution with repeated values, then of two
    samples with a value of their own one is in each set with the probability
    2 n m / ((n + m) (n + m - 1)): other pairs are not counted.
    """
    values, counts = np.unique(np.concatenate([stored, keys]), return_counts=True)
    pairs, n, m = values[counts == 2], len(stored), len(keys)
    n_shared = int((np.isin(pairs, stored) & np.isin(pairs, keys)).sum())
    chance = 2 * n * m / ((n + m) * (n + m - 1))
    n_within = len(pairs) - n_shared
    fraction = (n_shared - n_within * chance / (1 - chance)) / m * n_stored / n
    if fraction < _LEAST_FRACTION:
        return ""
    by_chance = bdtrc(n_shared - 1, len(pairs), chance)
    if by_chance > _LEVEL and (n_within or n_shared < _FEW_SHARED):
        return ""
    if (n, m) == (n_stored, n_samples):
        return str(np.isin(keys, stored).sum())
    return f"About {min(fraction, 1.0) * n_samples:.0f}"
