"""Share of OOD samples, and precision, in use, from unlabeled samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2
from sklearn.utils.validation import column_or_1d

from skood.decision._mean_intervals import clopper_pearson
from skood.decision._operating_point import (
    accept_proba,
    check_pair,
    project,
    standardize,
)
from skood.utils._param_validation import Interval, StrOptions, validate_params

# p-values are not resolved below.
_LEAST_P = 1e-9

# Bins of projected scores, of the likelihood.
_BINS = 20


def _limits(count, n, delta):
    """Return one-sided Clopper-Pearson limits, each with the error `delta`."""
    if n == 0:
        return 0.0, 1.0
    return clopper_pearson(count, n, 1 - 2 * delta)[1:]


def prior_from_counts(N, n_id, F, n_ood, Q, n_new, delta, ood="sources"):
    r"""Return an interval of the OOD share from counts of accepted samples.

    `F` and `n_ood` have one entry per source. With :math:`q = (1 - \pi) t + \pi f` the
    share is :math:`(t - q) / (t - f)`, which grows with t and f and falls with q. Of
    the rates of several sources the extremes are taken, so that the interval holds for
    every mixture of them.
    """
    if ood == "any":
        t_low, _ = _limits(N, n_id, delta / 2)
        _, q_high = _limits(Q, n_new, delta / 2)
        return (max(0.0, 1 - q_high / t_low) if t_low > 0 else 0.0), 1.0
    share = delta / 6
    t_low, t_high = _limits(N, n_id, share)
    q_low, q_high = _limits(Q, n_new, share)
    ends = [_limits(f, n, share) for f, n in zip(F, n_ood, strict=True)]
    f_low, f_high = min(low for low, _ in ends), max(high for _, high in ends)
    low, high = 0.0, 1.0
    if t_low > f_low:
        low = (t_low - q_high) / (t_low - f_low)
    if t_high > f_high:
        high = (t_high - q_low) / (t_high - f_high)
    return tuple(float(np.clip(end, 0.0, 1.0)) for end in (low, high))


def precision_in_use(N, n_id, F, n_ood, Q, n_new, delta):
    r"""Return a lower bound on the precision of a fixed rule, from counts.

    Among accepted samples of the mixture the share :math:`t (q - f) / (q (t - f))` is
    ID, which grows with q and falls with t and f; `F` and `n_ood` have one entry per
    source.
    """
    share = delta / 3
    _, t = _limits(N, n_id, share)
    q, _ = _limits(Q, n_new, share)
    f = max(_limits(count, n, share)[1] for count, n in zip(F, n_ood, strict=True))
    q = min(q, t)
    if q <= f:
        return 0.0
    return float(t * (q - f) / (q * (t - f)))


def precision_pvalue(precision_min, N, n_id, F, n_ood, Q, n_new):
    """Return the least delta at which the lower bound on the precision is reached.

    It is rounded up, and a p-value of "the precision in use is at least".
    """

    def reaches(delta):
        low = precision_in_use(N, n_id, [F], [n_ood], Q, n_new, delta)
        return low >= precision_min

    low, high = _LEAST_P, 1.0
    if reaches(low):
        return low
    if not reaches(high):
        return 1.0
    while high > 1.000001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _projected(point, risk, ood):
    risk, ood = check_pair(risk, ood, ("risk", "ood"), False)
    return project(point.theta, *standardize(risk, ood, point.scales))


def _likelihood_interval(p_id, p_ood, p_new, delta):
    r"""Return an approximate interval of the OOD share from projected scores.

    The likelihood is of the counts of unlabeled samples in bins, whose ID and OOD
    shares are taken as known. It is concave in the share; EM goes to its maximum.
    """
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    labeled = np.concatenate([p_id, p_ood])
    edges = np.unique(np.quantile(labeled, inner, method="inverted_cdf"))
    counts = [
        np.bincount(np.searchsorted(edges, p), minlength=edges.size + 1)
        for p in (p_id, p_ood, p_new)
    ]
    of_id, of_ood = ((n + 0.5) / (n + 0.5).sum() for n in counts[:2])

    def slope(share):
        mixture = (1 - share) * of_id + share * of_ood
        return float(counts[2] @ ((of_ood - of_id) / mixture))

    def log_likelihood(share):
        return float(counts[2] @ np.log((1 - share) * of_id + share * of_ood))

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
    r"""Confidence interval of the share of OOD samples among unlabeled samples.

    The rule accepts fewer of the unlabeled samples than of ID samples if some are OOD.
    With "counts" the interval is exact for finite samples if the ID samples in use are
    distributed as the given ones; "em" is approximate. Read more in the
    :ref:`User Guide <guarantees>`.

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
        Scores of unlabeled samples in use.

    source_ood : array-like of shape (n_ood,), default=None
        Sources of the OOD samples. The interval holds for every mixture of them.

    mixture : {"sources", "any"}, default="sources"
        What the OOD samples in use are: a mixture of the sources of the given OOD
        samples, or anything. Then only a lower end above 0 can be proved, and the
        upper end is 1.

    method : {"counts", "em"}, default="counts"
        "counts": an exact interval from the counts of accepted samples. "em": maximum
        likelihood of the projected scores. It is shorter, but approximate and no
        guarantee: errors of the estimated densities are ignored, and the OOD samples in
        use must be distributed as all given ones together.

    delta : float, default=0.05
        Probability, in (0, 1), that the interval does not contain the share.

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
    With the accepted shares t of ID, f of OOD and q of unlabeled samples,

    .. math:: q = (1 - \pi) t + \pi f , \qquad \pi = \frac{t - q}{t - f} .

    Each of the six ends of the Clopper-Pearson intervals of the three shares has the
    error :math:`\delta / 6`. Where the rule does not separate ID from OOD, so that the
    interval of f reaches that of t, an end is 0 or 1. For ``mixture="any"`` the lower
    end is :math:`1 - q / t`, since :math:`f \ge 0`, with two errors of
    :math:`\delta / 2`.

    With "em" [1]_ the densities of ID and OOD samples are shares of 20 bins of the
    projected scores; of the likelihood :math:`\prod_i ((1 - \pi) + \pi g_i)`, with the
    likelihood ratios :math:`g_i`, all :math:`\pi` are taken whose logarithm is within
    half a quantile of :math:`\chi^2_1` of the maximum, to which the iteration
    :math:`\pi \leftarrow \frac1n \sum_i \pi g_i / (1 - \pi + \pi g_i)` converges.

    References
    ----------
    .. [1] M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a
       classifier to new a priori probabilities: a simple procedure. Neural Computation
       14, 2002.

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
    0.16 0.24
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
        accepted[name] = accept_proba(point, risk, ood)
        if point.tau != 1:
            raise ValueError("The rule must accept all samples at its threshold.")
    if method == "em":
        p_id, p_ood, p_new = (
            _projected(point, *pairs[name]) for name in ("ID", "OOD", "unlabeled")
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
    parts = [leaked[labels == label] for label in np.unique(labels)]
    F, n_ood = [int(part.sum()) for part in parts], [len(part) for part in parts]
    return prior_from_counts(*id_counts, F, n_ood, *new_counts, delta)
