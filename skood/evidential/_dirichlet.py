r"""Closed forms of Dirichlet distributions.

All functions are pure, compute in float64 and return nats. None of them subtracts large
numbers: with

.. math:: \log\Gamma(x) = (x - \tfrac12) \log x - x + \tfrac12 \log 2\pi + \Delta(x),
   \qquad \psi(x) = \log x - \delta(x),

the large terms cancel analytically, and only the remaining terms are computed.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.special import digamma, gammaln

from skood.utils._param_validation import Interval, validate_params
from skood.utils._torch import to_numpy

# From here on the Stirling series have full precision. They are in powers of 1 / x^2,
# with the Bernoulli numbers B_2k: B_2k / (2k (2k - 1)) for Delta, B_2k / 2k for delta.
_LARGE = 10.0
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_DELTA_GAMMA = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, start=1)]
_DELTA_PSI = [b / (2 * k) for k, b in enumerate(_BERNOULLI, start=1)]

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)

# Between these parameters no intermediate result overflows, including the ratio of the
# sum of many parameters to one of them.
_SMALLEST, _LARGEST = 1e-150, 1e150

# Two logarithms that are closer are subtracted with care (cancellation).
_CLOSE = 1.0


def _series(x, coefficients, start):
    """Return the sum of coefficient k times x to the power of start - 2k."""
    squared = x**-2
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * squared + coefficient
    return total * x**start


def _by_size(x, small, large):
    """Evaluate one function below `_LARGE`, another above."""
    is_large = x >= _LARGE
    values = np.empty_like(x)
    values[is_large] = large(x[is_large])
    values[~is_large] = small(x[~is_large])
    return values


def stirling_rest(x):
    """Return the rest of Stirling's formula, Delta(x) = 1 / 12x - 1 / 360x^3 + ...."""
    return _by_size(
        x,
        lambda x: gammaln(x) - ((x - 0.5) * np.log(x) - x + HALF_LOG_2PI),
        lambda x: _series(x, _DELTA_GAMMA, -1),
    )


def log_minus_digamma(x):
    """Return delta(x) = log x - digamma(x) = 1 / 2x + 1 / 12x^2 - ... > 0."""
    return _by_size(
        x,
        lambda x: 1.0 / x - (digamma(x + 1.0) - np.log(x)),
        lambda x: 0.5 / x + _series(x, _DELTA_PSI, -2),
    )


def digamma_next_minus_log(x):
    """Return digamma(x + 1) - log x = 1 / 2x - 1 / 12x^2 + ... > 0, decreasing."""
    return _by_size(
        x,
        lambda x: digamma(x + 1.0) - np.log(x),
        lambda x: 0.5 / x - _series(x, _DELTA_PSI, -2),
    )


def digamma_gain(x, gain):
    """Return digamma(x + gain) - digamma(x) as a sum of positive numbers.

    The recurrence of digamma shifts x to `_LARGE`; differences of the powers in the
    series there are multiples of the gain. x is positive, with at least one axis, and
    `gain` is non-negative and of the same shape.
    """
    total = np.zeros_like(x)
    while (is_small := x < _LARGE).any():
        total += np.where(is_small, gain / x / (x + gain), 0.0)
        x = np.where(is_small, x + 1.0, x)
    u, v = 1.0 / x, 1.0 / (x + gain)
    difference = gain * u * v  # u - v
    total += np.log1p(gain * u) + 0.5 * difference
    # u^2k - v^2k = (u^2 - v^2) (u^(2k-2) + u^(2k-4) v^2 + ... + v^(2k-2))
    sum_of_powers = np.zeros_like(total)
    series = np.zeros_like(total)
    v_power = np.ones_like(total)
    for coefficient in _DELTA_PSI:
        sum_of_powers = sum_of_powers * u**2 + v_power
        v_power = v_power * v**2
        series += coefficient * sum_of_powers
    return total + difference * (u + v) * series


# --- validation ---------------------------------------------------------------------


def check_alpha(alpha, name="alpha"):
    """Return parameters (..., n_classes) as float64, all positive, or raise."""
    alpha = np.asarray(to_numpy(alpha))
    if alpha.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {alpha.dtype}.")
    alpha = alpha.astype(np.float64, copy=False)
    if alpha.ndim == 0 or alpha.shape[-1] == 0:
        raise ValueError(
            f"{name} must have classes along its last axis, got the shape "
            f"{alpha.shape}."
        )
    wrong = ~(np.isfinite(alpha) & (alpha > 0))
    if wrong.any():
        raise ValueError(
            f"The parameters {name} of a Dirichlet distribution must be positive and "
            f"finite, but {int(wrong.sum())} of {alpha.size} are not, such as "
            f"{alpha[wrong][0]}."
        )
    if alpha.size and alpha.min() < _SMALLEST:
        raise ValueError(
            f"The parameters {name} must be at least {_SMALLEST:g}, so that what is "
            f"divided by them is finite; the smallest is {alpha.min():g}. Raise them "
            "to that."
        )
    with np.errstate(over="ignore"):
        n_wrong = int((~np.isfinite(alpha.sum(axis=-1))).sum())
    if n_wrong:
        raise ValueError(
            f"The sum of the parameters {name} overflows in {n_wrong} of "
            f"{alpha.size // alpha.shape[-1]} Dirichlet distributions; the largest "
            f"parameter is {alpha.max():g}. Lower the evidence."
        )
    return alpha


def _check_parameters(alpha, name="alpha"):
    """Return parameters for which the closed forms are finite, or raise."""
    alpha = check_alpha(alpha, name)
    if alpha.size and alpha.max() > _LARGEST:
        raise ValueError(
            f"The parameters {name} must be at most {_LARGEST:g}, so that their "
            f"products and ratios are finite; the largest is {alpha.max():g}. Lower "
            "the evidence."
        )
    return alpha


def _check_codes(codes, alpha):
    """Return class indices, one for each distribution, or raise."""
    codes = np.asarray(to_numpy(codes))
    if codes.dtype.kind not in "iu" or codes.shape != alpha.shape[:-1]:
        raise ValueError(
            f"codes must be integers of shape {alpha.shape[:-1]}, one for each "
            f"distribution, got {codes.dtype} of shape {codes.shape}. Class numbers of "
            "labels are np.searchsorted(classes_, y)."
        )
    n_classes = alpha.shape[-1]
    if codes.size and not 0 <= codes.min() <= codes.max() < n_classes:
        raise ValueError(
            f"codes must be class numbers from 0 to {n_classes - 1}, got values from "
            f"{codes.min()} to {codes.max()}."
        )
    return codes


def totals(alpha):
    """Return the sums, and for each entry the sum of the others in full precision."""
    total = alpha.sum(axis=-1, keepdims=True)
    others = total - alpha
    # only the largest can be nearly the whole sum
    largest = np.expand_dims(alpha.argmax(axis=-1), -1)
    rest = alpha.copy()
    np.put_along_axis(rest, largest, 0.0, axis=-1)
    np.put_along_axis(others, largest, rest.sum(axis=-1, keepdims=True), axis=-1)
    return total, others


# --- public ------------------------------------------------------------------------


def dirichlet_log_normalizer(alpha):
    r"""Return the log normalizer of Dirichlet distributions.

    .. math:: \log B(\alpha) = \sum_c \log\Gamma(\alpha_c) - \log\Gamma(S),
       \qquad S = \sum_c \alpha_c.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    log_normalizer : ndarray of shape (...), dtype float64
        The density of p is :math:`\prod_c p_c^{\alpha_c - 1} / B(\alpha)`.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_entropy : Entropy of the density.

    Examples
    --------
    >>> from skood.evidential import dirichlet_log_normalizer
    >>> dirichlet_log_normalizer([[1.0, 1.0, 1.0], [2.0, 3.0, 4.0]]).round(4)
    array([-0.6931, -8.1197])
    """
    alpha = _check_parameters(alpha)
    total, others = totals(alpha)
    terms = (
        stirling_rest(alpha)
        + HALF_LOG_2PI
        - 0.5 * np.log(alpha)
        - alpha * np.log1p(others / alpha)  # alpha log(alpha / total)
    )
    of_total = stirling_rest(total) + HALF_LOG_2PI - 0.5 * np.log(total)
    return terms.sum(axis=-1) - of_total[..., 0]


def dirichlet_entropy(alpha):
    r"""Return the differential entropy of Dirichlet distributions, in nats.

    .. math:: H[\mathrm{Dir}(\alpha)] = \log B(\alpha) + (S - C) \psi(S)
       - \sum_c (\alpha_c - 1) \psi(\alpha_c), \qquad S = \sum_c \alpha_c.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    entropy : ndarray of shape (...), dtype float64
        Entropy of a density, which may be negative. Its maximum, ``-log((C - 1)!)``, is
        at the uniform distribution.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_mutual_information : Information of the class on the distribution.
    dirichlet_kl : The divergence from the uniform distribution is the distance from
        the largest entropy.

    Examples
    --------
    >>> from skood.evidential import dirichlet_entropy
    >>> dirichlet_entropy([[1.0, 1.0, 1.0], [2.0, 3.0, 4.0]]).round(4)
    array([-0.6931, -1.3126])
    """
    alpha = _check_parameters(alpha)
    total, _ = totals(alpha)
    n_classes = alpha.shape[-1]
    terms = (
        0.5 * np.log(alpha)
        + HALF_LOG_2PI
        + stirling_rest(alpha)
        + (alpha - 1.0) * log_minus_digamma(alpha)
    )
    of_total = (
        (n_classes - 0.5) * np.log(total)
        + HALF_LOG_2PI
        + stirling_rest(total)
        + (total - n_classes) * log_minus_digamma(total)
    )
    return terms.sum(axis=-1) - of_total[..., 0]


def dirichlet_expected_log(alpha):
    r"""Return the expected log-probabilities under Dirichlet distributions.

    .. math:: E[\log p_c] = \psi(\alpha_c) - \psi(S), \qquad S = \sum_c \alpha_c.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    expected_log : ndarray of shape (..., n_classes), dtype float64
        At most 0.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_expected_nll : Negative value for one class.

    Examples
    --------
    >>> from skood.evidential import dirichlet_expected_log
    >>> dirichlet_expected_log([1.0, 1.0, 1.0])
    array([-1.5, -1.5, -1.5])
    """
    alpha = _check_parameters(alpha)
    return -digamma_gain(alpha, totals(alpha)[1])


def dirichlet_expected_nll(alpha, codes):
    r"""Return the expected negative log-likelihood (uncertain cross-entropy).

    .. math:: E[-\log p_y] = \psi(S) - \psi(\alpha_y), \qquad S = \sum_c \alpha_c,

    the loss of evidential networks [1]_. Read more in the
    :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    codes : array-like of int of shape (...)
        Class indices y, from 0.

    Returns
    -------
    nll : ndarray of shape (...), dtype float64
        At least 0.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150, or a class does
        not exist.

    See Also
    --------
    EvidentialLoss : The same loss for torch, with alternatives.

    References
    ----------
    .. [1] M. Sensoy, L. Kaplan, M. Kandemir. Evidential deep learning to quantify
       classification uncertainty. NeurIPS 2018.

    Examples
    --------
    >>> from skood.evidential import dirichlet_expected_nll
    >>> dirichlet_expected_nll([[1.0, 1.0, 1.0], [9.0, 1.0, 1.0]], [0, 0]).round(4)
    array([1.5   , 0.2111])
    """
    alpha = _check_parameters(alpha)
    codes = np.expand_dims(_check_codes(codes, alpha), -1)
    of_class = np.take_along_axis(alpha, codes, axis=-1)
    others = np.take_along_axis(totals(alpha)[1], codes, axis=-1)
    return digamma_gain(of_class, others)[..., 0]


def dirichlet_expected_entropy(alpha):
    r"""Return the expected entropy of categorical distributions under a Dirichlet.

    .. math:: E\bigl[H[p]\bigr] = \sum_c \frac{\alpha_c}{S}
       \bigl(\psi(S + 1) - \psi(\alpha_c + 1)\bigr), \qquad S = \sum_c \alpha_c:

    the aleatoric part of the entropy of the mean. Read more in the
    :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    entropy : ndarray of shape (...), dtype float64
        From 0 to ``log(n_classes)``.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_mutual_information : The epistemic part.

    Examples
    --------
    >>> from skood.evidential import dirichlet_expected_entropy
    >>> dirichlet_expected_entropy([[0.1, 0.1], [100.0, 100.0]]).round(4)
    array([0.1347, 0.6907])
    """
    alpha = _check_parameters(alpha)
    total, others = totals(alpha)
    return (alpha / total * digamma_gain(alpha + 1.0, others)).sum(axis=-1)


def dirichlet_mutual_information(alpha):
    r"""Return the mutual information of the class and the class probabilities.

    .. math:: I = H[\bar p] - E\bigl[H[p]\bigr] = \sum_c \bar p_c \bigl(
       \psi(\alpha_c + 1) - \log \alpha_c - \psi(S + 1) + \log S \bigr),
       \qquad \bar p_c = \frac{\alpha_c}{S}, \quad S = \sum_c \alpha_c:

    the epistemic part of the entropy of the mean [1]_. Read more in the
    :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    information : ndarray of shape (...), dtype float64
        From 0 to ``log(n_classes)``; about (C - 1) / 2S for large evidence.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_expected_entropy : The aleatoric part.
    skood.epistemic.member_uncertainty : The same decomposition for an ensemble.

    References
    ----------
    .. [1] A. Malinin, M. Gales. Predictive uncertainty estimation via prior networks.
       NeurIPS 2018.

    Examples
    --------
    >>> from skood.evidential import dirichlet_mutual_information
    >>> dirichlet_mutual_information([[0.1, 0.1], [100.0, 100.0]]).round(4)
    array([0.5584, 0.0025])
    """
    alpha = _check_parameters(alpha)
    total, _ = totals(alpha)
    # decreasing in alpha, so that no term is negative
    terms = digamma_next_minus_log(alpha) - digamma_next_minus_log(total)
    return (alpha / total * np.maximum(terms, 0.0)).sum(axis=-1)


def dirichlet_kl(alpha, beta=None):
    r"""Return the Kullback-Leibler divergence of Dirichlet distributions, in nats.

    .. math:: KL\bigl(\mathrm{Dir}(\alpha) \,\|\, \mathrm{Dir}(\beta)\bigr)
       = \log \frac{B(\beta)}{B(\alpha)} + \sum_c (\alpha_c - \beta_c)
       \bigl(\psi(\alpha_c) - \psi(S)\bigr), \qquad S = \sum_c \alpha_c.

    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters of the first distribution, positive.

    beta : array-like of shape (..., n_classes), default=None
        Parameters of the second distribution, of a shape that broadcasts. None: ones,
        the uniform distribution.

    Returns
    -------
    divergence : ndarray of shape (...), dtype float64
        At least 0.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite, from 1e-150 to 1e150.

    See Also
    --------
    dirichlet_entropy : ``-log((C - 1)!)`` minus the divergence from the uniform one.
    skood.epistemic.kl_divergence : Divergence of categorical distributions.

    Examples
    --------
    >>> from skood.evidential import dirichlet_kl
    >>> dirichlet_kl([[1.0, 1.0, 1.0], [2.0, 3.0, 4.0]]).round(4)
    array([0.    , 0.6194])
    >>> round(float(dirichlet_kl([2.0, 3.0, 4.0], [4.0, 3.0, 2.0])), 4)
    1.6667
    """
    alpha = _check_parameters(alpha)
    beta = np.ones_like(alpha) if beta is None else _check_parameters(beta, "beta")
    if beta.shape[-1] != alpha.shape[-1]:
        raise ValueError(
            f"beta has {beta.shape[-1]} classes, but alpha has {alpha.shape[-1]}."
        )
    alpha, beta = np.broadcast_arrays(alpha, beta)
    total, total_beta = (a.sum(axis=-1, keepdims=True) for a in (alpha, beta))
    # log B is a sum of convex functions: this is a Bregman divergence, whose leading
    # term is the total of beta times a divergence of the means
    d = np.log(beta / alpha) - np.log(total_beta / total)
    p = beta / total_beta
    close = np.abs(d) < _CLOSE
    of_means = np.where(
        close, d + np.expm1(-np.where(close, d, 0.0)), d - 1.0
    ) + np.where(close, 0.0, alpha / total / p)
    leading = (total_beta * p * np.maximum(of_means, 0.0)).sum(axis=-1)
    rest = _bregman_rest(beta, alpha).sum(axis=-1)
    rest_of_totals = _bregman_rest(total_beta, total)[..., 0]
    return np.maximum(leading + rest - rest_of_totals, 0.0)


def uniform_kl(alpha):
    r"""Return the divergence of Dirichlet distributions from the uniform one, in nats.

    .. math:: KL\bigl(\mathrm{Dir}(\alpha) \,\|\, \mathrm{Dir}(1)\bigr)
       = \log\Gamma(S) - \sum_c \log\Gamma(\alpha_c) - \log\Gamma(C)
       + \sum_c (\alpha_c - 1) \bigl(\psi(\alpha_c) - \psi(S)\bigr):

    the penalty "uniform" of :class:`EvidentialClassifier`, as ``dirichlet_kl(alpha)``.
    Read more in the :ref:`User Guide <evidential>`.

    Parameters
    ----------
    alpha : array-like of shape (..., n_classes)
        Parameters, positive.

    Returns
    -------
    divergence : ndarray of shape (...), dtype float64
        At least 0, which it is without evidence.

    See Also
    --------
    dirichlet_kl : The divergence of any two distributions.

    Examples
    --------
    >>> from skood.evidential import uniform_kl
    >>> uniform_kl([[1.0, 1.0, 1.0], [101.0, 1.0, 1.0]]).round(4)
    array([0.    , 6.5765])
    """
    return dirichlet_kl(alpha)


def _bregman_rest(b, a):
    """Return the Bregman divergence of log gamma, less b log(b / a) - (b - a)."""
    return (
        (b - a) * log_minus_digamma(a)
        - 0.5 * np.log(b / a)
        + stirling_rest(b)
        - stirling_rest(a)
    )


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
        belief_j = belief[..., j : j + 1]
        # b_j Bal(b_j, b_c) = 2 b_j min(b_j, b_c) / (b_j + b_c), without a difference
        pairs = 2.0 * belief_j * np.minimum(belief_j, belief)
        pairs[..., j] = 0.0
        balance += np.divide(
            pairs, belief_j + belief, out=np.zeros_like(pairs), where=pairs > 0
        )
    ratio = np.divide(balance, others, out=np.zeros_like(balance), where=others > 0)
    return (belief * ratio).sum(axis=-1)
