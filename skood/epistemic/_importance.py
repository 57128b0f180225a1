"""Standard error of an importance estimate, such as of an epistemic uncertainty."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.special import ndtri
from sklearn.utils import Bunch

from skood.utils._param_validation import Interval, validate_params
from skood.utils._torch import to_numpy


def as_real(array, name):
    """Return an array as float64 without NaN, or raise."""
    array = np.asarray(to_numpy(array))
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    array = array.astype(np.float64, copy=False)
    if np.isnan(array).any():
        raise ValueError(
            f"{name} has {int(np.isnan(array).sum())} NaN among {array.size} values."
        )
    return array


def member_weights(weights, shape):
    """Return weights of shape `shape`, or (n_members, 1, ...), that sum to one."""
    if weights is None:
        return np.full((shape[0],) + (1,) * (len(shape) - 1), 1.0 / shape[0])
    weights = as_real(weights, "weights")
    if weights.shape not in (shape, shape[:1]):
        raise ValueError(
            f"weights must have the shape {shape}, or {shape[:1]} for the same weights "
            f"of all samples. Got the shape {weights.shape}."
        )
    if weights.ndim < len(shape):
        weights = weights.reshape(shape[:1] + (1,) * (len(shape) - 1))
    total = weights.sum(axis=0)
    if (weights < 0).any() or not np.allclose(total, 1.0, rtol=0, atol=1e-6):
        raise ValueError(
            "weights must be non-negative and sum to one over the members, got sums "
            f"from {float(total.min()):.6g} to {float(total.max()):.6g}."
        )
    return weights / total


@validate_params(
    {"confidence_level": [Interval(Real, 0, 1, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def importance_estimate(values, weights=None, *, groups=None, confidence_level=0.95):
    r"""Estimate a mean by weighted draws, with the standard error of the estimate.

    With draws n of weight :math:`\omega_n`, which sum to one, and values :math:`v_n`,

    .. math:: \hat v = \sum_{n=1}^N \omega_n v_n, \qquad
       SE^2 = \frac{N}{N - 1} \sum_n \omega_n^2 (v_n - \hat v)^2, \qquad
       n_{\text{eff}} = \frac{1}{\sum_n \omega_n^2} ,

    the delta method for self-normalized importance sampling [1]_. Draws that depend on
    each other, such as the models along one search, are one draw if they are in one
    group: with :math:`S_j = \sum_{n \in j} \omega_n (v_n - \hat v)` for J groups,
    :math:`SE^2 = \frac{J}{J - 1} \sum_j S_j^2` and :math:`1 / n_{\text{eff}} = \sum_j
    (\sum_{n \in j} \omega_n)^2`.

    Read more in the :ref:`User Guide <importance_estimate>`.

    Parameters
    ----------
    values : array-like of shape (n_draws, ...)
        Values of the draws. For draws from a known density q and a normalized density p
        these are :math:`D_n \, p(w_n) / q(w_n)`, without weights.

    weights : array-like of shape (n_draws,) or (n_draws, ...), default=None
        Weights of the draws, which sum to one over the first axis. None: equal weights.

    groups : array-like of shape (n_draws,), default=None
        Group of each draw. None: all draws are independent.

    confidence_level : float, default=0.95
        Coverage of the interval, for many independent draws.

    Returns
    -------
    result : Bunch
        ``estimate``, ``standard_error`` and ``n_effective`` (the effective number of
        draws, from 1 to the number of draws or groups), each of shape (...); and
        ``interval`` of shape (..., 2): the estimate plus and minus a multiple of the
        standard error, cut at 0 if no value is negative. With a single draw or group
        the standard error is infinite.

    Raises
    ------
    ValueError
        If the weights do not sum to one or the shapes do not match.

    See Also
    --------
    member_uncertainty : Weighted sums over the members of an ensemble.

    Notes
    -----
    The interval is computed from the draws alone: if they miss a region that
    contributes to the mean, it is short and wrong.

    References
    ----------
    .. [1] A. B. Owen. Monte Carlo theory, methods and examples. 2013, chapter 9.

    Examples
    --------
    >>> from skood.epistemic import importance_estimate
    >>> found = importance_estimate([1.0, 2.0, 6.0])
    >>> float(found.estimate), round(float(found.standard_error), 4)
    (3.0, 1.5275)
    >>> importance_estimate([1.0, 2.0, 6.0], [0.5, 0.25, 0.25]).n_effective.round(2)
    np.float64(2.67)
    """
    values = as_real(values, "values")
    if values.ndim == 0 or len(values) == 0:
        raise ValueError(
            f"values must have draws along its first axis, got the shape "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError("values has infinite values.")
    weights = np.broadcast_to(member_weights(weights, values.shape), values.shape)
    estimate = np.sum(weights * values, axis=0)
    shares = weights * (values - estimate)
    if groups is not None:
        shares, weights = _sums(groups, shares), _sums(groups, weights)
    n_draws = len(shares)
    if n_draws > 1:
        error = np.sqrt(n_draws / (n_draws - 1) * np.sum(shares**2, axis=0))
    else:
        error = np.full(estimate.shape, np.inf)
    half = ndtri(0.5 + confidence_level / 2) * error
    low, high = estimate - half, estimate + half
    if values.min() >= 0:
        low = np.maximum(low, 0.0)
    return Bunch(
        estimate=estimate,
        standard_error=error,
        interval=np.stack([low, high], axis=-1),
        n_effective=1.0 / np.sum(weights**2, axis=0),
    )


def _sums(groups, values):
    """Return the sums of values (n_draws, ...) over the draws of each group."""
    groups = np.asarray(groups)
    if groups.shape != values.shape[:1]:
        raise ValueError(
            f"groups must have the shape {values.shape[:1]}, one group for each draw, "
            f"got {groups.shape}."
        )
    return np.stack([values[groups == g].sum(axis=0) for g in np.unique(groups)])
