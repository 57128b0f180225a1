"""Selection over several splits, under covariate shift, and in streams."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import lru_cache
from numbers import Real

import numpy as np

from skood.selection._best_of import pruned, xi_of
from skood.selection._step_up import Selection, evalues_of
from skood.stats._conformal import check_pair
from skood.stats._evalues import e_bh
from skood.stats._ranks import check_level, check_pvalues
from skood.utils._estimator import SkoodEstimator
from skood.utils._param_validation import Interval, fit_context
from skood.utils._scores import check_nonnegative
from skood.utils._ties import loosened
from skood.utils._torch import to_numpy

# Number of float64 that a block of a matrix of pairs of samples may have.
_BLOCK = 2**20

# Number of samples of a stream among which LOND distributes its level.
_HORIZON = 10**6


def evalue_selection(pvalues, n_calibration, alpha=0.1, *, alpha_bh=None):
    r"""Select the OOD samples of a batch by the p-values of several splits.

    A selection depends on the random split into training and calibration samples. With
    several splits, let R' be the size of the Benjamini-Hochberg set of a split at the
    level :math:`\alpha'`. Then

    .. math:: e_j = \frac{1\{p_j \le t\}}{t}, \qquad
       t = \frac{\lfloor \alpha' (n + 1) R' / m \rfloor}{n + 1},

    has a mean of at most 1 for an ID sample: it is an e-value. E-values are averaged
    over splits, and the samples with :math:`e_j \ge e_{(\hat k)}` are selected, for
    :math:`\hat k = \max \{k : \alpha k e_{(k)} \ge m\}` of decreasing e-values (e-BH)
    [1]_.
    The false discovery rate is at most :math:`\alpha` for any dependence between the
    splits [2]_. The selection varies less between runs than by one split, and has less
    power. Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    pvalues : array-like of shape (n_splits, n_samples)
        Conformal p-values of the batch, of each split.

    n_calibration : int
        Number n of calibration samples of each split.

    alpha : float, default=0.1
        The level of the false discovery rate, in (0, 1).

    alpha_bh : float or array-like of shape (n_splits,), default=None
        :math:`\alpha'`, in (0, 1). None: ``alpha / 2``.

    Returns
    -------
    selected : ndarray of shape (n_samples,), dtype bool
        True for samples that are selected as OOD.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    select_novelties : Selection by one split.
    skood.monitor.e_bh : The selection by e-values.

    References
    ----------
    .. [1] R. Wang, A. Ramdas. False discovery rate control with e-values. Journal of
       the Royal Statistical Society B 84, 2022.

    .. [2] M. Bashari, A. Epstein, Y. Romano, M. Sesia. Derandomized novelty detection
       with FDR control via conformal e-values. NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import evalue_selection
    >>> p = np.array([[1, 1, 2, 1, 60, 80], [1, 2, 1, 1, 90, 9]]) / 100
    >>> evalue_selection(p, 99, alpha=0.2)
    array([ True,  True,  True,  True, False, False])
    """
    alpha = check_level(alpha)
    ranks = check_pvalues(pvalues, ndim=2, n_calibration=n_calibration)
    levels = np.atleast_1d(alpha / 2 if alpha_bh is None else alpha_bh).tolist()
    levels = [check_level(level, "alpha_bh") for level in levels]
    if len(ranks) == 0 or len(levels) not in (1, len(ranks)):
        raise ValueError(
            "pvalues needs one row of each split, and alpha_bh one number, or one for "
            f"each split. Got {len(ranks)} rows and {len(levels)} numbers."
        )
    levels = levels * len(ranks) if len(levels) == 1 else levels
    each = [
        evalues_of(split_ranks, n_calibration, level)
        for split_ranks, level in zip(ranks, levels, strict=True)
    ]
    return e_bh(np.mean(each, axis=0), alpha)


def weighted_selection(
    calibration_scores,
    scores,
    calibration_weights,
    weights,
    alpha=0.1,
    *,
    pruning="shared",
    random_state=None,
):
    r"""Select the OOD samples of a batch under a known covariate shift.

    The ID samples of the batch have another distribution of covariates than the n
    calibration samples, with a density that is w times as large. The p-values are

    .. math:: p_j = \frac{\sum_i w_i 1\{s_i \le s_j\} + w_j}{\sum_i w_i + w_j}.

    The procedure of Benjamini and Hochberg has no guarantee on these. Let :math:`R_j`
    be the size of its set if :math:`p_j` is 0, and the other p-values are relative to
    the calibration samples and j. Sample j passes if :math:`m p_j \le \alpha R_j`,
    and is selected if it is not pruned as in `BestOf`. The false discovery rate is at
    most :math:`\alpha` if the weights are exact [1]_. Read more in the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    calibration_scores : array-like of shape (n_calibration,)
        Scores of held-out ID samples, high = ID.

    scores : array-like of shape (n_samples,)
        Scores of the batch.

    calibration_weights : array-like of shape (n_calibration,)
        The ratio w of densities at the calibration samples, up to a factor.

    weights : array-like of shape (n_samples,)
        The ratio w at the samples of the batch. A ratio that is learned from the batch
        is not covered by the guarantee.

    alpha : float, default=0.1
        The level of the false discovery rate, in (0, 1).

    pruning : {"shared", "none"} or float, default="shared"
        How samples that pass are pruned, see `BestOf`.

    random_state : int, RandomState instance or None, default=None
        Draws the number of the shared pruning.

    Returns
    -------
    selection : Selection
        The selected samples, and the weighted p-values.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid: a weight is negative or infinite, or all are zero.

    See Also
    --------
    select_novelties : Without a shift.

    Notes
    -----
    Takes O(m (m + n)) for m samples in the batch, in bounded memory.

    References
    ----------
    .. [1] Y. Jin, E. Candes. Model-free selective inference under covariate shift via
       weighted conformal p-values. arXiv:2307.09291, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import weighted_selection
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=4000)  # the score is the covariate itself
    >>> z = np.concatenate([rng.normal(-0.5, 1, 180), rng.normal(-4.5, 0.5, 20)])
    >>> w = lambda x: np.exp(-0.5 * x)  # N(-0.5, 1) against N(0, 1)
    >>> batch = weighted_selection(x, z, w(x), w(z), random_state=0)
    >>> int(batch.selected[:180].sum()), int(batch.selected[180:].sum())
    (1, 20)
    """
    alpha = check_level(alpha)
    check_pruning(pruning)
    test, calibration = check_pair(scores, calibration_scores, ndim=1)
    w_calibration = check_nonnegative(
        calibration_weights, "calibration_weights", len(calibration)
    )
    w_test = check_nonnegative(weights, "weights", len(test))
    if w_calibration.sum() == 0:
        raise ValueError(
            "All calibration_weights are zero: no calibration sample is like the ID "
            "samples of the batch, so that there is no p-value."
        )
    p = weighted_pvalues(test, w_test, calibration, w_calibration)
    counts = weighted_counts(test, w_test, calibration, w_calibration, alpha)
    passed = p * len(test) <= loosened(alpha * counts)
    return Selection(
        selected=pruned(passed, counts, xi_of(pruning, random_state)),
        pvalues=p,
        alpha=alpha,
        n_calibration=len(calibration),
    )


class LOND(SkoodEstimator):
    r"""Selection of OOD samples in a stream, one by one (LOND).

    The t-th sample is selected if its p-value is at most

    .. math:: \alpha_t = \alpha \gamma_t (D_{t-1} + 1), \qquad
       \gamma_t \propto \frac{\log \max(t, 2)}{t \exp \sqrt{\log t}},

    where :math:`D_{t-1}` is the number of samples that were selected before, and the
    :math:`\gamma_t` of the first million samples have the sum 1 [1]_. The false
    discovery rate of all samples up to t is at most :math:`\alpha` at every t, for
    conformal p-values that refer to the same calibration samples. The level decreases
    with t: windows of samples have more power, see the
    :ref:`User Guide <selection>`.

    Parameters
    ----------
    alpha : float, default=0.1
        The level of the false discovery rate, in (0, 1).

    Attributes
    ----------
    n_seen_ : int
        Number of samples up to now.

    n_selected_ : int
        Number of selected samples up to now.

    See Also
    --------
    NoveltySelector : Selects in batches, such as consecutive windows of a stream.

    References
    ----------
    .. [1] A. Javanmard, A. Montanari. On online control of false discovery rate.
       arXiv:1502.06197, 2015.

    Examples
    --------
    >>> from skood.selection import LOND
    >>> stream = LOND(alpha=0.2)
    >>> stream.update([0.001, 0.2, 0.002])
    array([ True, False,  True])
    >>> stream.update(0.5)
    array([False])
    >>> stream.n_seen_, stream.n_selected_
    (4, 2)
    """

    _parameter_constraints: dict = {"alpha": [Interval(Real, 0, 1, closed="neither")]}

    def __init__(self, alpha=0.1):
        self.alpha = alpha

    @fit_context(prefer_skip_nested_validation=True)
    def update(self, pvalues):
        """Decide on the next samples, in their order.

        Parameters
        ----------
        pvalues : float or array-like of shape (n_samples,)
            Conformal p-values, small = OOD.

        Returns
        -------
        selected : ndarray of shape (n_samples,), dtype bool
            True for samples that are selected as OOD.

        Raises
        ------
        ValueError
            If a p-value is not in (0, 1]. Nothing is counted then.
        """
        p = check_pvalues(np.atleast_1d(to_numpy(pvalues)))
        if (p == 0).any():
            raise ValueError(
                "pvalues must be positive, got 0: an empirical distribution function "
                "has no guarantee. Use conformal_pvalues with method='conformal'."
            )
        seen = getattr(self, "n_seen_", 0)
        n_selected = getattr(self, "n_selected_", 0)
        fractions = _fractions()[seen : seen + len(p)]
        fractions = np.append(fractions, np.zeros(len(p) - len(fractions)))
        selected = np.zeros(len(p), dtype=bool)
        for t, (pvalue, fraction) in enumerate(zip(p, fractions, strict=True)):
            selected[t] = pvalue <= loosened(self.alpha * fraction * (n_selected + 1))
            n_selected += int(selected[t])
        self.n_seen_, self.n_selected_ = seen + len(p), n_selected
        return selected


@lru_cache(maxsize=1)
def _fractions():
    """Return gamma_1, gamma_2, ... with the sum 1."""
    t = np.arange(1, _HORIZON + 1)
    fractions = np.log(np.maximum(t, 2)) / (t * np.exp(np.sqrt(np.log(t))))
    fractions /= fractions.sum()
    fractions.flags.writeable = False
    return fractions


def weighted_counts(scores, weights, calibration_scores, calibration_weights, alpha):
    """Return R_j of weighted p-values, of shape (m,), in O(m^2) by blocks."""
    m = len(scores)
    alpha = loosened(alpha)
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    mass = _mass_at_most(ranked, calibration_scores, calibration_weights)
    total = calibration_weights.sum()
    ends = ranked.searchsorted(ranked, side="right")
    positions = np.arange(m)
    counts = np.empty(m, dtype=np.intp)
    size = max(1, _BLOCK // max(m, 1))
    for start in range(0, m, size):
        at = positions[start : start + size, None]
        j = order[start : start + size]
        below = ranked < ranked[at]  # (block, m): samples l with s_l < s_j
        weight = weights[j][:, None]
        rank = ends + below  # p_j = 0 is before the samples below j
        reached = (mass + weight * ~below) * m <= alpha * rank * (total + weight)
        reached &= positions != at
        counts[j] = np.where(reached, rank, 1).max(axis=1)
    return counts


def _mass_at_most(scores, calibration_scores, calibration_weights):
    """Return the weight of the calibration scores that are at most each score."""
    order = np.argsort(calibration_scores, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(calibration_weights[order])])
    at = calibration_scores[order].searchsorted(scores, side="right")
    return cumulated[at]


def weighted_pvalues(scores, weights, calibration_scores, calibration_weights):
    """Return (sum_i w_i 1{s_i <= s_j} + w_j) / (sum_i w_i + w_j)."""
    mass = _mass_at_most(scores, calibration_scores, calibration_weights)
    total = calibration_weights.sum()
    return (mass + weights) / (total + weights)


def check_pruning(pruning):
    """Raise unless `pruning` is "none", "shared" or a number in (0, 1]."""
    if pruning in ("none", "shared") if isinstance(pruning, str) else False:
        return
    number = isinstance(pruning, Real) and not isinstance(pruning, bool)
    if not (number and 0 < pruning <= 1):
        raise ValueError(
            f"pruning must be 'shared', 'none' or a number in (0, 1], got {pruning!r}."
        )
