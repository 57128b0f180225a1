"""Sequential ranks, bets on them for comparison, and a test of serial dependence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from scipy.special import gammainc, gammaln, hyp1f1
from sklearn.utils import check_random_state

from skood.stats._reference_ranks import tied_ranks
from skood.utils._param_validation import Number, StrOptions, validate_params
from skood.utils._scores import check_scores

# Factors of the products of neighboring ranks in `serial_dependence`.
_LAMBDAS = np.array([0.1, 0.3, 0.9])


@validate_params(
    {
        "calibration_scores": ["array-like"],
        "scores": ["array-like"],
        "resolution": [StrOptions({"calibration", "full"})],
        "theta": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def sequential_ranks(
    calibration_scores,
    scores,
    *,
    resolution="calibration",
    theta=None,
    random_state=None,
):
    r"""Return p-values of a stream, independent and uniform under exchangeability.

    Each sample is ranked among the calibration samples *and* all earlier samples of the
    stream [1]_, at the resolution of the calibration samples,

    .. math:: p_t = \frac{\sum_{i<j_t} (1 + c_i) + \theta_t (1 + c_{j_t})}{n + t},

    with :math:`j_t` calibration samples below sample :math:`t` and :math:`c_j` earlier
    samples of the stream with index :math:`j`, or among all of them,

    .. math:: p_t = \frac{\#\{\text{earlier} < s_t\} +
       \theta_t (\#\{\text{earlier} = s_t\} + 1)}{n + t}.

    Read more in the :ref:`User Guide <monitor_ranks>`.

    Parameters
    ----------
    calibration_scores : array-like of shape (n_calibration,)
        Scores of normal operation, high for ID samples.

    scores : array-like of shape (n_samples,)
        Scores of the stream, in the order of arrival.

    resolution : {"calibration", "full"}, default="calibration"
        Whether earlier samples between the same two calibration samples count as equal.

    theta : array-like of shape (n_samples,), default=None
        Numbers in [0, 1] that break ties; None: uniform at random.

    random_state : int, RandomState instance or None, default=None
        Seed of tie-breakers and `theta`.

    Returns
    -------
    p : ndarray of shape (n_samples,)
        P-values, low for OOD samples.

    Raises
    ------
    ValueError
        If a score is NaN, there is no calibration score, or `theta` is not as above.

    See Also
    --------
    log_power_mixture, log_simple_jumper, log_histogram_bet : Martingales of p-values.
    ExchangeabilityMonitor : Bets on the ranks, with a change prior.

    References
    ----------
    .. [1] V. Vovk. Testing randomness online. Statistical Science, 2021.

    Examples
    --------
    >>> from skood.monitor import sequential_ranks
    >>> sequential_ranks([1, 2, 3], [0, 4, 0.5], theta=[0.5, 0.5, 0.5])
    array([0.125     , 0.9       , 0.16666667])
    """
    calibration = np.sort(
        _at_least(check_scores(calibration_scores, "calibration_scores"), 1)
    )
    scores = check_scores(scores, "scores")
    n, t = len(calibration), np.arange(1, len(scores) + 1)
    rng = check_random_state(random_state)
    # sorted breakers are as good: they are independent of the calibration scores
    ties = np.sort(rng.random_sample(n)), rng.random_sample(len(scores))
    theta = _probabilities(
        rng.random_sample(len(scores)) if theta is None else theta, "theta", len(scores)
    )
    if resolution == "full":
        below = calibration.searchsorted(scores)
        equal = calibration.searchsorted(scores, side="right") - below
        less, same = _earlier_counts(scores)
        return (below + less + theta * (equal + same + 1)) / (n + t)
    index = tied_ranks(calibration, ties[0], scores, ties[1])
    less, same = _earlier_counts(index)
    return (index + less + theta * (1 + same)) / (n + t)


@validate_params({"p": ["array-like"]}, prefer_skip_nested_validation=True)
def log_power_mixture(p):
    r"""Return the log martingale of a mixture of power bets on p-values.

    .. math:: M_t = \int_0^1 \prod_{s \le t} \kappa\, p_s^{\kappa - 1} \, d\kappa,

    in closed form with the incomplete gamma function [1]_.

    Read more in the :ref:`User Guide <monitor_ranks>`.

    Parameters
    ----------
    p : array-like of shape (n_samples,)
        P-values in [0, 1], independent and uniform under the null hypothesis.

    Returns
    -------
    log_martingale : ndarray of shape (n_samples,)
        Logarithm of the martingale after each sample; inf from a p-value of zero on.

    Raises
    ------
    ValueError
        If `p` is not as above.

    References
    ----------
    .. [1] V. Vovk, I. Nouretdinov, A. Gammerman. Testing exchangeability on-line. ICML,
       2003.

    Examples
    --------
    >>> from skood.monitor import log_power_mixture
    >>> log_power_mixture([0.5, 0.01, 0.01]).round(3)
    array([-0.448,  0.882,  2.513])
    """
    p = _probabilities(p, "p")
    with np.errstate(divide="ignore"):
        s = np.cumsum(-np.log(p))
    t = np.arange(1.0, len(p) + 1)
    path = np.full(len(p), np.inf)
    low = s < t + 1
    path[low] = np.log(hyp1f1(1, t[low] + 2, s[low])) - np.log(t[low] + 1)
    high = ~low & np.isfinite(s)
    s, t = s[high], t[high]
    path[high] = s + gammaln(t + 1) + np.log(gammainc(t + 1, s)) - (t + 1) * np.log(s)
    return path


@validate_params(
    {
        "p": ["array-like"],
        "jump": [Number(Real, 0, 1, closed="both")],
        "eps": ["array-like"],
    },
    prefer_skip_nested_validation=True,
)
def log_simple_jumper(p, *, jump=0.01, eps=(-1, 0, 1)):
    r"""Return the log martingale of the simple jumper on p-values [1]_.

    Capitals :math:`a_e` of equal size and sum one become, with each p-value,
    :math:`((1 - J) a_e + J \bar a)(1 + e (p - 1/2))`.

    Read more in the :ref:`User Guide <monitor_ranks>`.

    Parameters
    ----------
    p
        As in :func:`log_power_mixture`.

    jump : float, default=0.01
        Fraction J in [0, 1] of the capital that is divided anew at each sample.

    eps : array-like of shape (n_bets,), default=(-1, 0, 1)
        Slopes e in [-2, 2]. (-1, 0) bets on low p-values only, "more OOD".

    Returns
    -------
    log_martingale : ndarray of shape (n_samples,)
        Logarithm of the sum of capitals after each sample.

    Raises
    ------
    ValueError
        If `p` or `eps` is not as above.

    References
    ----------
    .. [1] V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman.
       Retrain or not retrain: conformal test martingales for change-point detection.
       COPA, 2021.

    Examples
    --------
    >>> from skood.monitor import log_simple_jumper
    >>> log_simple_jumper([0.5, 0.01, 0.01], eps=(-1, 0)).round(3)
    array([0.   , 0.219, 0.476])
    """
    p = _probabilities(p, "p")
    eps = np.asarray(eps, dtype=np.float64)
    if eps.ndim != 1 or not eps.size or not (np.abs(eps) <= 2).all():
        raise ValueError(
            f"eps must be a sequence of numbers in [-2, 2], got {eps}: other slopes "
            "make capitals negative."
        )
    capital, log_sum, path = np.full(len(eps), 1 / len(eps)), 0.0, np.empty(len(p))
    for t, value in enumerate(p):
        capital = ((1 - jump) * capital + jump / len(eps)) * (1 + eps * (value - 0.5))
        total = capital.sum()
        if total == 0:
            path[t:] = -np.inf
            break
        capital /= total
        log_sum += np.log(total)
        path[t] = log_sum
    return path


@validate_params(
    {"p": ["array-like"], "bins": [Number(Integral, 1, None, closed="left")]},
    prefer_skip_nested_validation=True,
)
def log_histogram_bet(p, *, bins=10):
    """Return the log martingale of bets by a histogram of the earlier p-values.

    The bet on a p-value is the density ``bins * (count + 1) / (t - 1 + bins)`` of its
    bin, with the number of earlier p-values in this bin [1]_.

    Read more in the :ref:`User Guide <monitor_ranks>`.

    Parameters
    ----------
    p
        As in :func:`log_power_mixture`.

    bins : int, default=10
        Number of bins of equal width.

    Returns
    -------
    log_martingale : ndarray of shape (n_samples,)
        Logarithm of the martingale after each sample.

    Raises
    ------
    ValueError
        If `p` or `bins` is not as above.

    References
    ----------
    .. [1] V. Fedorova, A. Gammerman, I. Nouretdinov, V. Vovk. Plug-in martingales for
       testing exchangeability on-line. ICML, 2012.

    Examples
    --------
    >>> from skood.monitor import log_histogram_bet
    >>> log_histogram_bet([0.5, 0.01, 0.01]).round(3)
    array([ 0.   , -0.095,  0.416])
    """
    p = _probabilities(p, "p")
    _, count = _earlier_counts(np.minimum((p * bins).astype(np.int64), bins - 1))
    return np.cumsum(np.log((count + 1) / (np.arange(len(p)) + bins) * bins))


@validate_params(
    {
        "scores": ["array-like"],
        "n_calibration": [Number(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def serial_dependence(scores, *, n_calibration=None, random_state=None):
    r"""Test whether scores of normal operation depend on the scores before them.

    The first scores are calibration samples. With indices :math:`j_t` of the others
    among them, :math:`g_t = 1 - 2 (j_t + 1/2) / (n + 1)` and :math:`\bar g_t =
    \sum_{s<t} g_s / (n + t)`, the conditional mean of :math:`g_t` under
    exchangeability, the e-value is the mean over :math:`\lambda \in \{0.1, 0.3, 0.9\}`
    of products of

    .. math:: \frac{1 + \lambda g_{t-1} g_t}{1 + \lambda g_{t-1} \bar g_t}.

    It is a test martingale: the probability that it ever reaches :math:`1/\alpha` is at
    most :math:`\alpha` if the scores are exchangeable. A shift raises it as well: use
    it on scores of normal operation.

    Read more in the :ref:`User Guide <monitor_dependence>`.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Scores in the order of time.

    n_calibration : int, default=None
        Number of calibration samples, less than n_samples; None: half of the samples.

    random_state : int, RandomState instance or None, default=None
        Seed of tie-breakers.

    Returns
    -------
    log_e_value : ndarray of shape (n_samples - n_calibration,)
        Logarithm of the e-value after each sample that is not a calibration sample.

    Raises
    ------
    ValueError
        If a score is NaN, or there are too few.

    See Also
    --------
    ExchangeabilityMonitor : Its parameter `every` thins autocorrelated streams.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import serial_dependence
    >>> noise = np.random.default_rng(0).normal(size=2001)
    >>> float(serial_dependence(noise).max().round(1))
    0.6
    >>> float(serial_dependence(noise[1:] + 0.5 * noise[:-1]).max().round())
    69.0
    """
    scores = _at_least(check_scores(scores, "scores"), 2)
    n = len(scores) // 2 if n_calibration is None else n_calibration
    if n >= len(scores):
        raise ValueError(
            f"n_calibration={n} must be less than the number of scores, "
            f"{len(scores)}. Give more scores, or fewer calibration samples."
        )
    calibration, later = np.sort(scores[:n]), scores[n:]
    rng = check_random_state(random_state)
    ties = np.sort(rng.random_sample(n)), rng.random_sample(len(later))
    index = tied_ranks(calibration, ties[0], later, ties[1])
    g = 1 - 2 * (index + 0.5) / (n + 1)
    before = np.r_[0.0, g[:-1]]
    mean = np.cumsum(before) / (n + np.arange(1, len(g) + 1))
    bets = _LAMBDAS[:, None] * before
    log_factors = np.log1p(bets * g) - np.log1p(bets * mean)
    path = np.cumsum(log_factors, axis=1)
    return np.logaddexp.reduce(path, axis=0) - np.log(len(_LAMBDAS))


def _earlier_counts(values):
    """Return how many earlier values are less than, and equal to, each value.

    A bottom-up merge sort: in each of log2(n) passes, values of the right half of a
    block are compared with the left half.
    """
    n = len(values)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.r_[True, ordered[1:] != ordered[:-1]] if n else np.empty(0, dtype=bool)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.cumsum(new) - 1
    equal = np.empty(n, dtype=np.int64)
    first = np.flatnonzero(new)
    equal[order] = np.arange(n) - first[rank[order]]
    less = np.zeros(n, dtype=np.int64)
    at = np.arange(n)
    width = 1
    while width < n:
        block, is_left = at // (2 * width), (at // width) % 2 == 0
        # by block, then rank; of equal ranks the right half first
        merged = np.lexsort((is_left, rank, block))
        before = np.cumsum(is_left[merged]) - block[merged] * width
        right = ~is_left[merged]
        less[merged[right]] += before[right]
        width *= 2
    return less, equal


def _at_least(scores, number):
    if len(scores) < number:
        raise ValueError(
            f"At least {number} score{'s' * (number > 1)} of normal operation are "
            f"needed, got n_samples={len(scores)}. Give more."
        )
    return scores


def _probabilities(values, name, size=None):
    """Return numbers in [0, 1] of shape (n_samples,), or raise."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or size not in (None, len(values)):
        shape = "(n_samples,)" if size is None else f"({size},)"
        raise ValueError(
            f"{name} must have the shape {shape}, got {values.shape}. Give one number "
            "per sample."
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"{name} must be in [0, 1], got {values.min()} to {values.max()}. Give "
            "p-values, such as sequential_ranks returns."
        )
    return values
