"""Subjective logic: vacuity and dissonance of Dirichlet distributions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.evidential._dirichlet import check_alpha, totals
from skood.utils._param_validation import Interval, validate_params


@validate_params(
    {"prior": [Interval(Real, 0, None, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def vacuity(alpha, *, prior=1.0):
    r"""Return the vacuity: lack of evidence, the uncertainty mass of subjective logic.

    .. math:: u = \frac{C a}{S}, \qquad S = \sum_c \alpha_c,

    with a = `prior`: 1 without evidence, and decreasing to 0 as it grows [1]_. Read
    more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters: the evidence plus `prior`.

    prior : float, default=1.0
        Parameter of a class without evidence.

    Returns
    -------
    vacuity : ndarray of shape (...), dtype float64
        In (0, 1] if no evidence is negative.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, at least 1e-150, or their sum
        overflows.

    See Also
    --------
    dissonance : Conflicting evidence.

    References
    ----------
    .. [1] A. Jøsang. Subjective logic. Springer 2016.

    Examples
    --------
    >>> from skood.evidential import vacuity
    >>> vacuity([[1.0, 1.0], [10.0, 10.0], [19.0, 1.0]])
    array([1. , 0.1, 0.1])
    """
    alpha = check_alpha(alpha)
    return alpha.shape[-1] * prior / alpha.sum(axis=-1)


@validate_params(
    {"prior": [Interval(Real, 0, None, closed="neither")]},
    prefer_skip_nested_validation=True,
)
def dissonance(alpha, *, prior=1.0):
    r"""Return the dissonance: conflicting evidence, in subjective logic.

    With the belief :math:`b_c = (\alpha_c - a) / S` in each class, a = `prior`,

    .. math:: \sum_c b_c \frac{\sum_{j \neq c} b_j \, \mathrm{Bal}(b_j, b_c)}
       {\sum_{j \neq c} b_j}, \qquad
       \mathrm{Bal}(b_j, b_c) = 1 - \frac{|b_j - b_c|}{b_j + b_c} :

    large if there is much evidence for several classes, in equal amounts [1]_. Read
    more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters: the evidence plus `prior`.

    prior : float, default=1.0
        Parameter of a class without evidence.

    Returns
    -------
    dissonance : ndarray of shape (...), dtype float64
        From 0 to 1 - `vacuity`.

    Raises
    ------
    ValueError
        If a parameter is below `prior` or 1e-150 or not finite, or their sum overflows.

    See Also
    --------
    vacuity : Lack of evidence.

    References
    ----------
    .. [1] A. Jøsang, J.-H. Cho, F. Chen. Uncertainty characteristics of subjective
       opinions. FUSION 2018.

    Examples
    --------
    >>> from skood.evidential import dissonance
    >>> dissonance([[1.0, 1.0], [10.0, 10.0], [19.0, 1.0]])
    array([0. , 0.9, 0. ])
    """
    alpha = check_alpha(alpha)
    if (alpha < prior).any():
        raise ValueError(
            f"alpha must be at least prior={prior}, the parameter of a class without "
            f"evidence; the smallest is {alpha.min()}. If other parameters mean no "
            "evidence, pass them as prior."
        )
    belief = (alpha - prior) / alpha.sum(axis=-1, keepdims=True)
    _, others = totals(belief)
    balance = np.zeros_like(belief)
    for j in range(belief.shape[-1]):
        one = belief[..., j : j + 1]
        # b_j Bal(b_j, b_c) = 2 b_j min(b_j, b_c) / (b_j + b_c), without a difference
        pairs = 2.0 * one * np.minimum(one, belief)
        pairs[..., j] = 0.0
        balance += np.divide(
            pairs, one + belief, out=np.zeros_like(pairs), where=pairs > 0
        )
    ratio = np.divide(balance, others, out=np.zeros_like(balance), where=others > 0)
    return (belief * ratio).sum(axis=-1)
