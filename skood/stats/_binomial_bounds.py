"""Accepted counts that certify a rate, and upper confidence bounds on a risk."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from bisect import bisect_left
from numbers import Integral, Real

import numpy as np
from scipy.stats import binom
from sklearn.utils.validation import column_or_1d

from skood.stats._mean_intervals import clopper_pearson, hoeffding_bentkus
from skood.stats._rate_tests import betting_bound
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._ties import GUARD

_COUNT = [Interval(Integral, 0, None, closed="left")]
_FRACTION = [Interval(Real, 0, 1, closed="both")]
_ERROR = [Interval(Real, 0, 1, closed="neither")]

# Largest number of samples of each kind in the search for sufficient sizes.
_MANY = 10**9


@validate_params(
    {"n_id": _COUNT, "tpr_min": _FRACTION, "delta": _ERROR},
    prefer_skip_nested_validation=True,
)
def min_accepted_id(n_id, tpr_min, delta):
    r"""Return the least number of accepted ID samples that certifies a TPR.

    Let the thresholds of a fixed score accept nested sets of samples. Thresholds that
    accept at least this many of `n_id` calibration samples have, simultaneously and
    with a probability of at least ``1 - delta``, a true positive rate (ID samples are
    the positive class) of at least `tpr_min` on new samples. Read more in the
    :ref:`User Guide <guarantees_details>`.

    Parameters
    ----------
    n_id : int
        Number of ID samples for calibration.

    tpr_min : float
        Least true positive rate, in [0, 1].

    delta : float
        Probability, in (0, 1), that the guarantee fails.

    Returns
    -------
    k : int or None
        The threshold must be the k-th smallest outlier-like score of these samples or
        larger. None if no count certifies the rate: `n_id` is too small.

    See Also
    --------
    max_accepted_ood : The same for the FPR.
    certify : Finds a rule that meets both bounds.

    Notes
    -----
    The number follows from the exact binomial test,

    .. math::
        k = \min \{ j : P(\mathrm{Bin}(n, \phi) \ge j) \le \delta \}

    for :math:`\phi` = `tpr_min`. Equivalently, k is the least count whose one-sided
    lower bound of Clopper and Pearson [1]_, the :math:`\delta` quantile of
    :math:`\mathrm{Beta}(k, n - k + 1)`, is not below :math:`\phi`. The guarantee also
    holds with ties among the scores.

    References
    ----------
    .. [1] C. J. Clopper, E. S. Pearson. The use of confidence or fiducial limits
       illustrated in the case of the binomial. Biometrika 26, 1934.

    Examples
    --------
    >>> from skood.rejection import min_accepted_id
    >>> min_accepted_id(1000, tpr_min=0.7, delta=0.05)
    725
    >>> print(min_accepted_id(10, tpr_min=0.9, delta=0.05))
    None
    """
    guess = int(binom.isf(delta, n_id, tpr_min)) + 1
    near = np.arange(guess - 3, guess + 4)
    k = int(near[binom.sf(near - 1, n_id, tpr_min) <= delta].min())
    return k if k <= n_id else None


@validate_params(
    {"n_ood": _COUNT, "fpr_max": _FRACTION, "delta": _ERROR},
    prefer_skip_nested_validation=True,
)
def max_accepted_ood(n_ood, fpr_max, delta):
    r"""Return the largest number of accepted OOD samples that certifies an FPR.

    As :func:`min_accepted_id` for the false positive rate, the accepted fraction of OOD
    samples: at most `fpr_max` on new samples, with at most this many of `n_ood`
    calibration samples accepted. Read more in the
    :ref:`User Guide <guarantees_details>`.

    Parameters
    ----------
    n_ood : int
        Number of OOD samples for calibration.

    fpr_max : float
        Largest false positive rate, in [0, 1].

    delta : float
        Probability, in (0, 1), that the guarantee fails.

    Returns
    -------
    K : int
        The threshold must be below the (K+1)-th smallest outlier-like score of these
        samples. -1 if no count certifies the rate: `n_ood` is too small. `n_ood` if
        `fpr_max` is 1, which always holds.

    See Also
    --------
    min_accepted_id : The same for the TPR.
    certify : Finds a rule that meets both bounds.

    Notes
    -----
    The number follows from the exact binomial test,

    .. math::
        K = \max \{ j : P(\mathrm{Bin}(n, \rho) \le j) \le \delta \}

    for :math:`\rho` = `fpr_max`. The guarantee also holds with ties among the scores.

    Examples
    --------
    >>> from skood.rejection import max_accepted_ood
    >>> max_accepted_ood(250, fpr_max=0.2, delta=0.05)
    39
    >>> max_accepted_ood(20, fpr_max=0.1, delta=0.05)
    -1
    """
    if fpr_max == 1:
        return int(n_ood)
    guess = int(binom.ppf(delta, n_ood, fpr_max))
    near = np.arange(guess - 3, guess + 4)
    return max(-1, int(near[binom.cdf(near, n_ood, fpr_max) <= delta].max()))


def min_accepted_id_on_average(n_id, tpr_min, largest=None):
    """Return the rank of the conformal threshold, ceil((n+1) tpr_min), or None.

    With weights, the least one 1 and their sum `n_id`, return the least weight to
    accept; a new sample has a weight of at most `largest` ([5] of `certify`).
    """
    if largest is not None:
        k = max(1.0, (n_id + largest) * tpr_min - GUARD)
    else:
        k = max(1, math.ceil((n_id + 1) * tpr_min - GUARD))
    return k if k <= n_id else None


def max_accepted_ood_on_average(n_ood, fpr_max, largest=None):
    """Return one less than the rank floor((n+1) fpr_max), -1 if there is none.

    With weights return the largest accepted weight, likewise.
    """
    if largest is not None:
        K = (n_ood + largest) * fpr_max - largest + GUARD
        return K if K >= 0 else -1
    return math.floor((n_ood + 1) * fpr_max + GUARD) - 1


def _smallest(holds, low, high):
    """Return the smallest integer in (low, high] where `holds`, which is monotone."""
    return low + 1 + bisect_left(range(low + 1, high), True, key=holds)


def sizes_needed(tpr, fpr, n_id, n_ood, rank, count):
    """Return about how many samples are needed to certify one of some thresholds.

    Shapes: tpr, fpr (n_thresholds,).
    """
    n_id, n_ood = max(n_id, 1), max(n_ood, 1)

    def enough_id(n):
        k = rank(n)
        return np.zeros(tpr.shape, dtype=bool) if k is None else tpr * n >= k - GUARD

    def enough_ood(n):
        return fpr * n <= count(n) + GUARD

    def grown(n, percent):
        return math.ceil(n * percent / 100)

    def is_feasible(percent):
        return enough_id(grown(n_id, percent)) & enough_ood(grown(n_ood, percent))

    high = 100
    while not is_feasible(high).any():
        high *= 2
        if high * max(n_id, n_ood) > 100 * _MANY:
            return None
    percent = _smallest(lambda p: is_feasible(p).any(), max(99, high // 2), high)
    best = int(np.flatnonzero(is_feasible(percent))[0])
    return (
        _smallest(lambda n: enough_id(n)[best], n_id - 1, grown(n_id, percent)),
        _smallest(lambda n: enough_ood(n)[best], n_ood - 1, grown(n_ood, percent)),
    )


@validate_params(
    {
        "loss_accepted": ["array-like"],
        "delta": _ERROR,
        "method": [StrOptions({"clopper_pearson", "hoeffding_bentkus", "betting"})],
        "max_loss": [Interval(Real, 0, None, closed="neither")],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def risk_upper_bound(
    loss_accepted, delta=0.1, *, method="clopper_pearson", max_loss=1.0, n_candidates=1
):
    r"""Upper confidence bound on the selective risk of an acceptance rule.

    With a probability of at least ``1 - delta`` the mean loss of new ID samples that
    the rule accepts is at most the bound. Read more in the
    :ref:`User Guide <guarantees_details>`.

    The rule must not have been chosen with the samples whose losses are given. If these
    samples were used to choose the rule among candidates that were fixed beforehand,
    such as thresholds at the scores of other samples, `n_candidates` is the number of
    candidates.

    Parameters
    ----------
    loss_accepted : array-like of shape (n_accepted,)
        Losses of the accepted ID samples, in ``[0, max_loss]``; for "betting" in an
        order that does not depend on them, such as the order of arrival.

    delta : float, default=0.1
        Probability, in (0, 1), that the bound does not hold. It is separate from the
        `delta` of :func:`certify`: both guarantees hold together with a probability of
        at least one minus the sum of the two.

    method : str, default="clopper_pearson"
        One of "clopper_pearson", "hoeffding_bentkus" and "betting".
        "clopper_pearson" counts the nonzero losses: it is exact if all losses are 0 or
        `max_loss`, and conservative otherwise. "hoeffding_bentkus" and "betting" are
        for losses with values in between; "betting" has smaller bounds if their
        variance is small. The choice must not depend on the losses.

        .. versionchanged:: 0.2
            "betting".

    max_loss : float, default=1.0
        Largest possible loss.

    n_candidates : int, default=1
        Number of rules among which these samples chose; `delta` is divided by it.

    Returns
    -------
    bound : float
        The bound, `max_loss` if no sample was accepted.

    Raises
    ------
    ValueError
        If a loss is not in ``[0, max_loss]``.

    See Also
    --------
    certify : Bounds the TPR and the FPR.
    RejectOptionClassifier.report : Two-sided intervals on new samples.

    Notes
    -----
    Given how many samples are accepted, their losses are a sample of the distribution
    whose mean is the selective risk :math:`R`. With :math:`E` of :math:`N` losses that
    are not 0, the first method [1]_ takes `max_loss` times the :math:`1 - \delta`
    quantile of :math:`\mathrm{Beta}(E + 1, N - E)`, a bound on the probability of
    such a loss.

    The second, with losses in units of `max_loss`, takes the largest :math:`r` that is
    ruled out neither by Hoeffding's inequality [2]_ nor by the inequality of Bentkus
    [3]_,

    .. math::
        P(\bar\ell \le t) &\le \exp\Big(-N \Big(t \ln\frac{t}{R} +
        (1 - t) \ln\frac{1 - t}{1 - R}\Big)\Big) \quad (t \le R), \\
        P(\bar\ell \le t) &\le e \, P(\mathrm{Bin}(N, R) \le \lceil N t \rceil) .

    Each right-hand side bounds the same probability, and so does the smaller one.

    The third takes the least r at which the wealth of a gambler who bets that the mean
    of x, the losses in units of `max_loss`, is below r has reached :math:`1 / \delta`,

    .. math::
        \max_{m \le N} \prod_{i \le m} (1 + \nu_i (r - x_i)) \ge 1 / \delta ,

    with stakes :math:`\nu_i \le 0.75` that depend on the losses before, but not on r
    [4]_. It grows with r, and at the mean of x it is a non-negative martingale, which
    reaches :math:`1 / \delta` with a probability of at most :math:`\delta` (Ville's
    inequality).

    References
    ----------
    .. [1] C. J. Clopper, E. S. Pearson. The use of confidence or fiducial limits
       illustrated in the case of the binomial. Biometrika 26, 1934.
    .. [2] W. Hoeffding. Probability inequalities for sums of bounded random
       variables. Journal of the American Statistical Association 58, 1963.
    .. [3] V. Bentkus. On Hoeffding's inequalities. Annals of Probability 32, 2004.
    .. [4] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
       betting. Journal of the Royal Statistical Society B 86, 2024.

    Examples
    --------
    >>> from skood.rejection import risk_upper_bound
    >>> round(risk_upper_bound([0] * 95 + [1] * 5, delta=0.1), 4)
    0.0908
    >>> loss = [0] * 90 + [0.5] * 10
    >>> round(risk_upper_bound(loss, delta=0.1, method="hoeffding_bentkus"), 4)
    0.107
    >>> loss = [0.1, 0.0, 0.2, 0.1] * 25
    >>> round(risk_upper_bound(loss, delta=0.1, method="betting"), 4)
    0.1329
    """
    loss = column_or_1d(loss_accepted).astype(np.float64, copy=False)
    bad = ~((loss >= 0) & (loss <= max_loss))
    if bad.any():
        raise ValueError(
            f"loss_accepted must be in [0, max_loss={max_loss!r}], got "
            f"{float(loss[bad][0])!r}. Pass the largest possible loss as max_loss."
        )
    n = loss.size
    if n == 0:
        return float(max_loss)
    delta = delta / n_candidates
    if method == "clopper_pearson":
        fraction = clopper_pearson(int(np.count_nonzero(loss)), n, 1 - 2 * delta).high
    elif method == "betting":
        fraction = betting_bound(loss / max_loss, delta)
    else:
        fraction = hoeffding_bentkus(math.fsum(loss / max_loss), n, delta)
    return float(max_loss * fraction)
