"""Fraction of OOD samples, and precision, in deployment from unlabeled samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, ndtri
from scipy.stats import binom, chi2
from sklearn.utils.validation import column_or_1d

from skood.decision._operating_point import check_pair
from skood.stats._mean_intervals import clopper_pearson
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._ties import GUARD

# Cells of a rate, groups of counts, values of q, probability of counts beyond the
# groups, and error of the confidence region of the rates, of the total error.
_CELLS, _GROUPS, _RATES, _TAIL, _GAMMA = 60, 8, 500, 1e-7, 0.02

# Bins of projected scores, of the likelihood.
_BINS = 20


def _groups(n, size):
    """Return edges of groups of counts 0 to n, some .4 of a standard deviation.

    It is the deviation of the mean of `size` samples; groups do not depend on counts.
    """
    angles = np.linspace(0, math.pi / 2, math.ceil(_GROUPS * math.sqrt(size)) + 2)
    return np.unique(np.rint((n + 1) * np.sin(angles) ** 2))


def _middles(edges):
    return (edges[:-1] + edges[1:] - 1) / 2


def _grouped(count, n, size):
    """Return the middle of the group of a count."""
    edges = _groups(n, size)
    return _middles(edges)[np.searchsorted(edges, count, side="right") - 1]


def _smooth(counts, n):
    return (counts + 1) / (n + 2)


def _cells(count, n, gamma):
    """Return largest rates of cells, counts, and their cumulated probabilities.

    Row i has the probabilities for the smallest rate of cell i.
    """
    _, low, high = clopper_pearson(count, n, 1 - gamma)
    first, last = np.arcsin(np.sqrt([low, high]))
    rates = np.sin(np.linspace(first, last, _CELLS + 1)) ** 2
    rates[0], rates[-1] = low, high
    edges = _groups(n, n)
    first = np.searchsorted(edges, binom.ppf(_TAIL, n, low), side="right") - 1
    last = np.searchsorted(edges, binom.isf(_TAIL, n, high), side="right") + 1
    edges = edges[first:last]
    below = np.ones((_CELLS, edges.size))
    below[:, 0] = 0.0
    below[:, 1:-1] = bdtr(edges[1:-1] - 1, n, rates[:-1, None])
    return rates[1:], _middles(edges), below


def _outcomes(limit, N, n_id, F, n_ood, n_new, gamma):
    r"""Bound the probability of a set of outcomes, in cells of the rates t and f.

    The set is that of :math:`Q / M \ge c(N, F)`, where `limit` is c, extended so that
    it contains (N, F, Q) with any outcome of larger N, larger F and smaller Q. Its
    probability then falls with t and f and grows with q: with q a function that grows
    with t and f, it is bounded in each cell of a confidence region of (t, f) by N and F
    of the smallest rates, and q of the largest.

    Returns the largest t and f of the cells, values of q, the probabilities of groups
    of N and F that have the same c, of shape (n_cells, n_cells, n_groups), and the
    probabilities of Q of at least c for the values of q, (n_values, n_groups).
    """
    t, N, of_N = _cells(N, n_id, gamma / 2)
    f, F, of_F = _cells(F, n_ood, gamma / 2)
    edges = _groups(n_new, min(n_new, max(n_id, n_ood)))
    least = n_new * (limit(N[:, None], F) - GUARD)
    least = np.searchsorted(_middles(edges), least)[::-1, ::-1]
    for axis in (0, 1):
        least = np.minimum.accumulate(least, axis=axis)
    least = least[::-1, ::-1]
    groups = np.arange(least.min(), least.max() + 1)
    n_inside = (least[:, :, None] <= groups).sum(axis=1)
    inside = np.stack([np.diff(of_N) @ below[n_inside] for below in of_F], axis=1)
    Q = edges[groups]
    first, last = np.arcsin(np.sqrt(np.minimum(Q[[0, -1]] / n_new, 1.0)))
    angles = np.linspace(max(first - 3 / math.sqrt(n_new), 0.0), last, _RATES)
    q = np.concatenate([[0.0], np.sin(angles) ** 2, [1.0]])
    with np.errstate(invalid="ignore"):
        tail = np.where(Q > 0, bdtrc(Q - 1, n_new, q[:, None]), 1.0)
    return t[:, None], f, q, np.diff(inside, prepend=0.0), tail


def _upper_end(N, n_id, F, n_ood, Q, n_new, delta):
    r"""Return an upper confidence limit of the OOD fraction, for one source.

    The outcomes are ordered by an approximate limit, the least u for which, for all
    :math:`u' \ge u`,

    .. math:: R(u') = (1 - u') t + u' f + z_{1 - \delta} s(u') \le Q / M ,

    with estimates of the rates; R is convex, so that u and 1 are enough. The limit is
    the least fraction for which an order at most as large has a probability of at most
    `delta` for all fractions above and all rates [3]_ in a confidence region [2]_ (see
    `ood_prior_interval`). Of all fractions above, :math:`q = (1 - \pi) t + \pi f` is
    largest for the least if :math:`t \ge f`, and at most f otherwise.
    """
    gamma, z = _GAMMA * delta, -ndtri(delta)

    def approximate(u, N, F):
        t, f = _smooth(N, n_id), _smooth(F, n_ood)
        s_id, s_ood = (1 - u) * np.sqrt(t - t**2), u * np.sqrt(f - f**2)
        variance = s_id**2 / n_id + s_ood**2 / n_ood + (s_id + s_ood) ** 2 / n_new
        return (1 - u) * t + u * f + z * np.sqrt(variance)

    counts = _grouped(N, n_id, n_id), _grouped(F, n_ood, n_ood)
    observed = _grouped(Q, n_new, min(n_new, max(n_id, n_ood))) / n_new
    if approximate(1.0, *counts) > observed:
        return 1.0
    u = 0.0
    if approximate(0.0, *counts) > observed:
        u = brentq(lambda u: approximate(u, *counts) - observed, 0.0, 1.0)

    def limit(N, F):
        return np.maximum(approximate(u, N, F), approximate(1.0, N, F))

    t, f, q, weights, tail = _outcomes(limit, N, n_id, F, n_ood, n_new, gamma)
    n_small = np.count_nonzero(weights @ tail.T <= delta - gamma - 2 * _TAIL, axis=-1)
    q = q[np.maximum(n_small - 1, 0)]  # the largest that is not too probable
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = np.where(q < f, 1.0, (t - q) / (t - f))
    return float(np.where(q >= np.maximum(t, f), 0.0, fraction).max())


def prior_from_counts(N, n_id, F, n_ood, Q, n_new, delta, ood="sources"):
    r"""Return an interval of the OOD fraction from counts of accepted samples.

    `F` and `n_ood` have one entry per source. Rejected samples have the rates
    :math:`1 - t`, :math:`1 - f` and :math:`1 - q`: with ID and OOD samples exchanged,
    the upper end of :math:`1 - \pi` from their counts is the lower end.

    The f of a mixture is at most the largest f of a source, so that q is at most what
    it were with only this source: its upper end is valid, hence the largest end of all
    sources, without a correction. So is the least lower end, by the least f.
    """
    if ood == "any":
        t_low = clopper_pearson(N, n_id, 1 - delta).low
        q_high = clopper_pearson(Q, n_new, 1 - delta).high
        return (max(0.0, 1 - q_high / t_low) if t_low > 0 else 0.0), 1.0
    lows, highs = [], []
    for count, n in zip(F, n_ood, strict=True):
        accepted = N, n_id, count, n, Q
        rejected = n - count, n, n_id - N, n_id, n_new - Q
        highs.append(_upper_end(*accepted, n_new, delta / 2))
        lows.append(1 - _upper_end(*rejected, n_new, delta / 2))
    return min(lows), max(highs)


def precision_pvalue(precision_min, N, n_id, F, n_ood, Q, n_new, delta):
    r"""Return the p-value of "the precision is at least `precision_min`".

    The precision :math:`(1 - \pi) t / q` is below :math:`\kappa` only if

    .. math::
        q \le \max(f, h) , \qquad h(t, f) = \frac{t f}{(1 - \kappa) t + \kappa f} ,

    since :math:`\pi = (t - q) / (t - f)` if :math:`t > f`, and q is at most f
    otherwise. Both grow with t and f, so that what holds for the source of the largest
    f holds for mixtures. The statistic is the smaller of :math:`(q - h) / s` and
    :math:`(q - f) / s'`, of estimates.
    """

    def mixed(t, f):
        with np.errstate(invalid="ignore"):
            h = t * f / ((1 - precision_min) * t + precision_min * f)
        return np.nan_to_num(h)

    def moments(N, F):
        t, f = _smooth(N, n_id), _smooth(F, n_ood)
        h = mixed(t, f)
        of_id = (precision_min * (h / t) ** 2) ** 2 * (t - t**2) / n_id
        of_ood = ((1 - precision_min) * (h / f) ** 2) ** 2 * (f - f**2) / n_ood
        variance = of_id + of_ood + (h - h**2) / n_new
        variance_f = (f - f**2) * (1 / n_ood + 1 / n_new)
        return np.array([h, f]), np.sqrt([variance, variance_f])

    if not min(n_id, n_ood, n_new):
        return 1.0
    observed = _grouped(Q, n_new, min(n_new, max(n_id, n_ood))) / n_new
    means, s = moments(_grouped(N, n_id, n_id), _grouped(F, n_ood, n_ood))
    z = np.min((observed - means) / s)
    if z <= 0:
        return 1.0

    def limit(N, F):
        means, s = moments(*np.broadcast_arrays(N, F))
        return np.max(means + z * s, axis=0)

    gamma = _GAMMA * delta
    t, f, q, weights, tail = _outcomes(limit, N, n_id, F, n_ood, n_new, gamma)
    above = np.searchsorted(q, np.maximum(f, mixed(t, f)))
    largest = np.einsum("ijk,ijk->ij", weights, tail[above]).max()
    return min(1.0, gamma + float(largest) + 2 * _TAIL)


def _likelihood_interval(p_id, p_ood, p_new, delta):
    r"""Return an approximate interval of the OOD fraction from projected scores.

    The likelihood is of the counts of unlabeled samples in bins, whose ID and OOD
    fractions are taken as known. It is concave in the fraction; EM goes to its maximum.
    """
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    labeled = np.concatenate([p_id, p_ood])
    edges = np.unique(np.quantile(labeled, inner, method="inverted_cdf"))
    counts = [
        np.bincount(np.searchsorted(edges, p), minlength=edges.size + 1)
        for p in (p_id, p_ood, p_new)
    ]
    of_id, of_ood = ((n + 0.5) / (n + 0.5).sum() for n in counts[:2])

    def slope(fraction):
        mixture = (1 - fraction) * of_id + fraction * of_ood
        return float(counts[2] @ ((of_ood - of_id) / mixture))

    def log_likelihood(fraction):
        return float(counts[2] @ np.log((1 - fraction) * of_id + fraction * of_ood))

    if slope(0.0) <= 0:
        best = 0.0
    elif slope(1.0) >= 0:
        best = 1.0
    else:
        best = float(brentq(slope, 0.0, 1.0))
    least = log_likelihood(best) - float(chi2.isf(delta, 1)) / 2
    ends = []
    for end in (0.0, 1.0):
        if log_likelihood(end) < least:
            low, high = sorted((end, best))
            end = float(brentq(lambda p: log_likelihood(p) - least, low, high))
        ends.append(end)
    return tuple(ends)


@validate_params(
    {
        "source_ood": ["array-like", None],
        "mixture": [StrOptions({"sources", "any"})],
        "method": [StrOptions({"counts", "em"})],
        "delta": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def ood_prior_interval(
    point,
    risk_id,
    ood_id,
    risk_ood,
    ood_ood,
    risk_new,
    ood_new,
    *,
    source_ood=None,
    mixture="sources",
    method="counts",
    delta=0.05,
):
    r"""Confidence interval of the fraction of OOD samples among unlabeled samples.

    The rule accepts fewer of the unlabeled samples than of ID samples if some are OOD.
    With "counts" the interval is exact for finite samples if the ID samples in
    deployment are distributed as the given ones; "em" is approximate. Read more in the
    :ref:`User Guide <guarantees_shift>`.

    Parameters
    ----------
    point : OperatingPoint
        A rule that was fixed without any of the samples. The better it separates ID
        from OOD, the shorter is the interval.

    risk_id, ood_id : array-like of shape (n_id,)
        Scores of ID samples; `ood_id` may be None if the rule has one score.

    risk_ood, ood_ood : array-like of shape (n_ood,)
        Scores of OOD samples; None for ``mixture="any"``.

    risk_new, ood_new : array-like of shape (n_new,)
        Scores of unlabeled samples in deployment.

    source_ood : array-like of shape (n_ood,), default=None
        Sources of the OOD samples. The interval holds for every mixture of them.

    mixture : {"sources", "any"}, default="sources"
        What the OOD samples in deployment are: a mixture of the sources of the given
        OOD samples, or anything. Then only a lower end above 0 can be proved, and the
        upper end is 1.

    method : {"counts", "em"}, default="counts"
        "counts": an exact interval from the counts of accepted samples. "em": maximum
        likelihood of the projected scores. It is shorter, but approximate and no
        guarantee: errors of the estimated densities are ignored, and the OOD samples at
        deployment must be distributed as all given ones together.

    delta : float, default=0.05
        Probability, in (0, 1), that the interval does not contain the fraction.

    Returns
    -------
    low, high : float
        The interval.

    Raises
    ------
    ValueError
        If there are no ID, OOD or unlabeled samples, or a score is NaN.

    See Also
    --------
    certify : Its parameter `ood_prior` takes the interval. It must then be computed on
        other samples than the certificate, and both hold together with a probability
        of at least one minus the sum of their errors.

    Notes
    -----
    With the accepted fractions t of ID, f of OOD and q of unlabeled samples,

    .. math:: q = (1 - \pi) t + \pi f , \qquad \pi = \frac{t - q}{t - f} .

    An end is an exact limit of one statistic [3]_, with an error of at most
    :math:`\delta / 2` for any t and f: outcomes are ordered by an approximate limit
    :math:`U`, and the upper end is

    .. math::
        \min \Bigl\{ \pi : \gamma + \max_{(t, f) \in C} \max_{\pi' \ge \pi}
        P_{\pi', t, f}(U \le U_{obs}) \le \delta / 2 \Bigr\} ,

    with a confidence region C of the nuisance rates t and f, of error
    :math:`\gamma = \delta / 100` [2]_. The probability is bounded in cells of C, from
    the binomial distributions of the counts. Of the limits for several sources the
    largest is taken, and the least for the lower end, which is found alike from the
    rejected samples. Where the rule does not separate ID from OOD, an end is 0 or 1.
    For ``mixture="any"`` the lower end is :math:`1 - q / t`, since :math:`f \ge 0`,
    with two Clopper-Pearson limits, each with the error :math:`\delta / 2`.

    With "em" [1]_ the densities of ID and OOD samples are fractions of 20 bins of the
    projected scores; of the likelihood :math:`\prod_i ((1 - \pi) + \pi g_i)`, with the
    likelihood ratios :math:`g_i`, all :math:`\pi` are taken whose logarithm is within
    half a quantile of :math:`\chi^2_1` of the maximum, to which the iteration
    :math:`\pi \leftarrow \frac1n \sum_i \pi g_i / (1 - \pi + \pi g_i)` converges.

    References
    ----------
    .. [1] M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a
       classifier to new a priori probabilities: a simple procedure. Neural Computation
       14, 2002.
    .. [2] R. L. Berger, D. D. Boos. P values maximized over a confidence set for the
       nuisance parameter. Journal of the American Statistical Association 89, 1994.
    .. [3] R. J. Buehler. Confidence intervals for the product of two binomial
       parameters. Journal of the American Statistical Association 52, 1957.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import OperatingPoint, ood_prior_interval
    >>> rng = np.random.default_rng(0)
    >>> new = np.append(rng.normal(size=1600), rng.normal(4.0, size=400))  # 20 % OOD
    >>> rule = OperatingPoint(theta=0.0, lam=2.0)
    >>> scores = rng.normal(size=1000), None, rng.normal(4.0, size=500), None, new, None
    >>> low, high = ood_prior_interval(rule, *scores)
    >>> print(f"{low:.2f} {high:.2f}")
    0.17 0.22
    """
    if method == "em" and mixture == "any":
        raise ValueError(
            "method='em' needs the distribution of OOD samples; use method='counts' "
            "for mixture='any'."
        )
    pairs = {"ID": (risk_id, ood_id), "unlabeled": (risk_new, ood_new)}
    if mixture == "sources":
        pairs["OOD"] = risk_ood, ood_ood
    accepted = {}
    for name, (risk, ood) in pairs.items():
        if risk is None or len(risk) == 0:
            raise ValueError(f"No {name} samples; the interval needs some.")
        accepted[name] = point.accept_proba(risk, ood)
        if point.tau != 1:
            raise ValueError("The rule must accept all samples at its threshold.")
    if method == "em":
        p_id, p_ood, p_new = (
            point.project(*check_pair(*pairs[name], ("risk", "ood"), False))
            for name in ("ID", "OOD", "unlabeled")
        )
        return _likelihood_interval(p_id, p_ood, p_new, delta)
    id_counts, new_counts = (
        (int(accepted[name].sum()), len(accepted[name])) for name in ("ID", "unlabeled")
    )
    if mixture == "any":
        return prior_from_counts(*id_counts, (), (), *new_counts, delta, "any")
    leaked = accepted["OOD"]
    labels = np.zeros(len(leaked))
    if source_ood is not None:
        labels = column_or_1d(source_ood)
        if len(labels) != len(leaked):
            raise ValueError(
                f"source_ood must have one label per OOD sample, got {len(labels)} for "
                f"{len(leaked)} samples."
            )
    by_source = [leaked[labels == label] for label in np.unique(labels)]
    F = [int(decisions.sum()) for decisions in by_source]
    n_ood = list(map(len, by_source))
    return prior_from_counts(*id_counts, F, n_ood, *new_counts, delta)
