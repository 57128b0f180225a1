"""Class priors in use, from predictions on unlabeled samples (label shift)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from skood.utils._param_validation import StrOptions, validate_params

__all__ = ["class_prior", "shift_posteriors"]

_TOL, _MAX_ITER, _LARGEST_CONDITION = 1e-12, 100_000, 1e8


def _check_prior(prior, n_classes, name):
    prior = column_or_1d(prior, dtype=np.float64)
    if len(prior) != n_classes or not np.all(prior > 0) or abs(prior.sum() - 1) > 1e-6:
        raise ValueError(
            f"{name} must have {n_classes} positive shares that sum to 1, got {prior}."
        )
    return prior / prior.sum()


def shift_posteriors(proba, prior, new_prior):
    r"""Class probabilities at other class priors, for unchanged densities.

    Read more in the :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Calibrated probabilities at the priors `prior`.

    prior, new_prior : array-like of shape (n_classes,)
        Shares of the classes in training, and in use.

    Returns
    -------
    shifted : ndarray of shape (n_samples, n_classes)
        Probabilities at the priors `new_prior`; scores computed from them differ, so
        that rules have to be certified again.

    Raises
    ------
    ValueError
        If shares are not positive or do not sum to 1.

    See Also
    --------
    class_prior : Estimates the priors in use.

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
            f"new_prior must have {len(prior)} shares that are not negative, got "
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
    },
    prefer_skip_nested_validation=True,
)
def class_prior(proba, prior=None, *, method="em", confusion=None):
    r"""Approximate class priors in use, from predictions on unlabeled samples.

    It is an estimate without a guarantee: a rule that is certified at the estimated
    priors is not certified in use. Read more in the :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Predicted probabilities of ID samples in use.

    prior : array-like of shape (n_classes,), default=None
        Shares of the classes in training, for "em".

    method : {"em", "bbse"}, default="em"
        "em": maximum likelihood [1]_, which needs calibrated probabilities. "bbse":
        inverts the confusion matrix [2]_, for any classifier.

    confusion : array-like of shape (n_classes, n_classes), default=None
        For "bbse": probability of each predicted class (columns) for each true class
        (rows), from labeled samples.

    Returns
    -------
    prior : ndarray of shape (n_classes,)
        Estimated shares.

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
    of :func:`shift_posteriors` at :math:`\pi'`, until no share changes by
    :math:`10^{-12}`. "bbse" solves :math:`C^\top \pi' = q`, q the shares of predicted
    classes, sets negative shares to 0 and divides by the sum.

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
            raise ValueError("method='em' needs prior, the shares of training classes.")
        return _em(proba, _check_prior(prior, n_classes, "prior"))
    if confusion is None:
        raise ValueError("method='bbse' needs confusion, the shares of predictions.")
    confusion = check_array(confusion, dtype=np.float64)
    if confusion.shape != (n_classes, n_classes):
        raise ValueError(
            f"confusion must have shape {(n_classes, n_classes)}, got "
            f"{confusion.shape}."
        )
    predicted = np.bincount(proba.argmax(axis=1), minlength=n_classes) / len(proba)
    return solve_confusion(confusion, predicted)


def solve_confusion(confusion, predicted):
    """Return class shares from the shares of predictions, by "bbse"."""
    condition = np.linalg.cond(confusion)
    if condition > _LARGEST_CONDITION:
        raise ValueError(
            f"confusion is nearly singular (condition number {condition:.3g}): the "
            "classifier does not separate some classes. Merge them, or use 'em'."
        )
    shares = np.maximum(np.linalg.solve(confusion.T, predicted), 0.0)
    return shares / shares.sum()


def _em(proba, prior):
    new = prior
    for _ in range(_MAX_ITER):
        weighted = proba * (new / prior)
        after = (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(after - new).max() < _TOL:
            return after
        new = after
    return new
