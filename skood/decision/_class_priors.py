"""Class priors in deployment, from predictions on unlabeled samples (label shift)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import column_or_1d

from skood.utils._param_validation import Interval, StrOptions, validate_params

_TOL, _MAX_ITER, _LARGEST_CONDITION = 1e-12, 100_000, 1e8

# Resamples, and their largest change of a fraction at the end.
_N_RESAMPLES, _ROUGH = 500, 1e-6


def _check_prior(prior, n_classes, name):
    prior = column_or_1d(prior, dtype=np.float64)
    if len(prior) != n_classes or not np.all(prior > 0) or abs(prior.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} must have {n_classes} positive fractions that sum to 1, got "
            f"{prior}."
        )
    return prior / prior.sum()


def shift_posteriors(proba, prior, new_prior):
    r"""Class probabilities at other class priors, for unchanged densities.

    Read more in the :ref:`User Guide <guarantees_shift>`.

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Calibrated probabilities at the priors `prior`.

    prior, new_prior : array-like of shape (n_classes,)
        Fractions of the classes in training, and in deployment.

    Returns
    -------
    shifted : ndarray of shape (n_samples, n_classes)
        Probabilities at the priors `new_prior`; scores computed from them differ, so
        that rules have to be certified again.

    Raises
    ------
    ValueError
        If fractions are not positive or do not sum to 1.

    See Also
    --------
    class_prior : Estimates the priors in deployment.

    Notes
    -----
    By Bayes' rule :math:`p'_y \propto p_y \pi'_y / \pi_y` [1]_.

    References
    ----------
    .. [1] M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a
       classifier to new a priori probabilities: a simple procedure. Neural Computation
       14, 2002.

    Examples
    --------
    >>> from skood.rejection import shift_posteriors
    >>> shift_posteriors([[0.5, 0.5]], [0.5, 0.5], [0.9, 0.1])
    array([[0.9, 0.1]])
    """
    proba = check_array(proba, dtype=np.float64)
    prior = _check_prior(prior, proba.shape[1], "prior")
    new_prior = column_or_1d(new_prior, dtype=np.float64)
    if len(new_prior) != len(prior) or np.any(new_prior < 0) or not new_prior.any():
        raise ValueError(
            f"new_prior must have {len(prior)} fractions that are not negative, got "
            f"{new_prior}."
        )
    shifted = proba * (new_prior / prior)
    return shifted / shifted.sum(axis=1, keepdims=True)


@validate_params(
    {
        "proba": ["array-like"],
        "prior": ["array-like", None],
        "method": [StrOptions({"em", "bbse"})],
        "confusion": ["array-like", None],
        "confidence_level": [Interval(Real, 0, 1, closed="neither"), None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def class_prior(
    proba,
    prior=None,
    *,
    method="em",
    confusion=None,
    confidence_level=None,
    random_state=None,
):
    r"""Approximate class priors in deployment from predictions on unlabeled samples.

    It is an estimate without a guarantee: a rule that is certified at the estimated
    priors is not certified in deployment. Read more in the
    :ref:`User Guide <guarantees_shift>`.

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Predicted probabilities of ID samples in deployment.

    prior : array-like of shape (n_classes,), default=None
        Fractions of the classes in training, for "em".

    method : {"em", "bbse"}, default="em"
        "em": maximum likelihood [1]_, which needs calibrated probabilities. "bbse":
        inverts the confusion matrix [2]_, for any classifier.

    confusion : array-like of shape (n_classes, n_classes), default=None
        For "bbse": probability of each predicted class (columns) for each true class
        (rows), from labeled samples.

    confidence_level : float, default=None
        Level, in (0, 1), of approximate intervals from 500 bootstrap resamples of
        `proba`. They contain neither errors of the probabilities nor of `confusion`.

    random_state : int, RandomState instance or None, default=None
        Draws the resamples.

    Returns
    -------
    prior : ndarray of shape (n_classes,)
        Estimated fractions.

    low, high : ndarray of shape (n_classes,)
        Ends of the approximate intervals; only with `confidence_level`.

    Raises
    ------
    ValueError
        If the parameter that the method needs is missing or not valid; if the
        confusion matrix is nearly singular.

    See Also
    --------
    shift_posteriors : Probabilities at these priors.

    Notes
    -----
    "em" iterates :math:`\pi' \leftarrow \frac1n \sum_i p'(x_i)` with the probabilities
    of :func:`shift_posteriors` at :math:`\pi'`, until no fraction changes by
    :math:`10^{-12}`. "bbse" solves :math:`C^\top \pi' = q`, q the fractions of
    predicted classes, sets negative fractions to 0 and divides by the sum.

    References
    ----------
    .. [1] M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a
       classifier to new a priori probabilities: a simple procedure. Neural Computation
       14, 2002.
    .. [2] Z. Lipton, Y.-X. Wang, A. Smola. Detecting and correcting for label shift
       with black box predictors. ICML 2018.

    Examples
    --------
    >>> from skood.rejection import class_prior
    >>> class_prior([[0.9, 0.1]] * 3 + [[0.1, 0.9]], [0.5, 0.5]).round(4)
    array([0.8125, 0.1875])
    """
    proba = check_array(proba, dtype=np.float64)
    n_classes = proba.shape[1]
    if method == "em":
        if prior is None:
            raise ValueError(
                "method='em' needs prior, the fractions of training classes."
            )
        prior = _check_prior(prior, n_classes, "prior")
        # equal rows, as of few distinct inputs, count once
        distinct, n_equal = np.unique(proba, axis=0, return_counts=True)
    else:
        confusion = _check_confusion(confusion, n_classes)
        n_equal = np.bincount(proba.argmax(axis=1), minlength=n_classes)

    def estimate(counts, start=None, tol=_TOL):
        fractions = counts / counts.sum()
        if method == "bbse":
            return solve_confusion(confusion, fractions)
        near = prior if start is None else (start + prior) / 2
        return _em(distinct, fractions, prior, near, tol)

    estimated = estimate(n_equal)
    if confidence_level is None:
        return estimated
    rng = check_random_state(random_state)
    drawn = rng.multinomial(len(proba), n_equal / len(proba), size=_N_RESAMPLES)
    resampled = np.array([estimate(counts, estimated, _ROUGH) for counts in drawn])
    tail = (1 - confidence_level) / 2
    return estimated, *np.quantile(resampled, [tail, 1 - tail], axis=0)


def _check_confusion(confusion, n_classes):
    if confusion is None:
        raise ValueError("method='bbse' needs confusion, the fractions of predictions.")
    confusion = check_array(confusion, dtype=np.float64)
    if confusion.shape != (n_classes, n_classes):
        raise ValueError(
            f"confusion must have shape {(n_classes, n_classes)}, got "
            f"{confusion.shape}."
        )
    return confusion


def solve_confusion(confusion, predicted):
    """Return class fractions from the fractions of predictions, by "bbse"."""
    condition = np.linalg.cond(confusion)
    if condition > _LARGEST_CONDITION:
        raise ValueError(
            f"confusion is nearly singular (condition number {condition:.3g}): the "
            "classifier does not separate some classes. Merge them, or use 'em'."
        )
    fractions = np.maximum(np.linalg.solve(confusion.T, predicted), 0.0)
    return fractions / fractions.sum()


def _em(proba, fractions, prior, start, tol):
    """Return the most likely priors for distinct probabilities and their fractions.

    Until no fraction changes by `tol`, from `start`, which must be positive.
    """
    ratio, new = proba / prior, start
    for _ in range(_MAX_ITER):
        weighted = ratio * new
        after = (fractions / weighted.sum(axis=1)) @ weighted
        if np.abs(after - new).max() < tol:
            return after
        new = after
    return new
