"""Curves of selective classification by one score: risk-coverage and OSCR."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.special import digamma

from skood.metrics._ranking import accepted_counts
from skood.metrics._sample_checks import (
    RankedLosses,
    check_ood,
    least_count,
    rank_id,
    require_both,
)
from skood.utils._losses import per_sample_loss
from skood.utils._param_validation import Number, validate_params
from skood.utils._scores import check_scores
from skood.utils._ties import GUARD, ends_of_ties
from skood.utils._weights import count_weights


class RiskCoverageCurve:
    r"""Selective risk against coverage, accepting the highest scores first.

    OOD samples are excluded. Tied samples are accepted together, so there is one point
    per distinct score. Use `from_predictions` to make a curve. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    ranked : RankedLosses
        The ID samples from the highest score down, which `from_predictions` makes.

    Attributes
    ----------
    coverage : ndarray of shape (n_points,)
        Accepted fraction of ID samples, increasing to 1.

    risk : ndarray of shape (n_points,)
        Mean loss of the accepted ID samples; lower is better.

    thresholds : ndarray of shape (n_points,)
        Distinct scores, decreasing; samples with ``y_score >= threshold`` are accepted.

    aurc, e_aurc, augrc : float
        Area under the curve, its excess over the best ranking of the losses, and area
        of the generalized risk, as in :func:`aurc`, :func:`e_aurc` and :func:`augrc`.

    See Also
    --------
    RiskCoverageDisplay : Plot of the curve.
    TwoScoreCurve : The least risk at each coverage, also of two scores.
    selective_risk_at : The least selective risk at bounds on TPR and FPR.

    Notes
    -----
    .. math::
        \mathrm{coverage}(t) = \frac{1}{n}\sum_i [s_i \ge t], \qquad
        R(t) = \frac{\sum_i \ell_i [s_i \ge t]}{\sum_i [s_i \ge t]}

    Examples
    --------
    >>> from skood.metrics import RiskCoverageCurve
    >>> curve = RiskCoverageCurve.from_predictions(
    ...     [0, 1, 1, 0, -1], [0, 1, 0, 0, 1], [0.9, 0.8, 0.5, 0.5, 0.4]
    ... )
    >>> curve.coverage
    array([0.25, 0.5 , 1.  ])
    >>> curve.risk
    array([0.  , 0.  , 0.25])
    >>> curve.thresholds
    array([0.9, 0.8, 0.5])
    >>> curve.risk_at(0.6), curve.coverage_at(0.01)
    (0.25, 0.5)
    """

    def __init__(self, ranked):
        self._ranked = ranked

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        y_score,
        *,
        loss="zero_one",
        ood_label=-1,
        classes=None,
        sample_weight=None,
    ):
        """Make the curve from labels, predictions and scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels of ID and OOD samples, see `ood_label` and `classes`.

        y_pred : array-like of shape (n_samples,)
            Predicted labels. May be None when `loss` is an array of losses.

        y_score : array-like of shape (n_samples,)
            Confidence, high for samples to accept first. Infinities are allowed.

        loss : str, callable or array-like, default="zero_one"
            "zero_one"; for targets of a regression, "absolute_error" or
            "squared_error"; a function ``loss(y_true, y_pred)`` of the ID samples that
            returns a loss per sample; an array of shape (n_samples,) of losses (ignored
            on OOD samples); or, with `classes`, a loss matrix of shape (n_classes,
            n_classes) with the true class in rows. Not negative.

        ood_label, classes : int, str or NaN, default=-1, and array-like, default=None
            OOD samples have the label `ood_label`, or a label that is not in `classes`.
            NaN is for targets of a regression, and implied by its losses.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, see :ref:`metric_weights`. None: equal weights.

        Returns
        -------
        curve : RiskCoverageCurve
            The curve.
        """
        return cls(
            rank_id(y_true, y_pred, y_score, loss, ood_label, classes, sample_weight)
        )

    @property
    def coverage(self):
        """Accepted fraction of ID samples, increasing to 1."""
        accepted = self._ranked.accepted
        return accepted / accepted[-1]

    @property
    def risk(self):
        """Mean loss of the accepted ID samples."""
        return self._ranked.summed_loss / self._ranked.accepted

    @property
    def thresholds(self):
        """Distinct scores, decreasing."""
        return self._ranked.scores[self._ranked.last]

    @property
    def aurc(self):
        """Area under the curve."""
        return float(_aurc(self._ranked))

    @property
    def e_aurc(self):
        """Excess of the area over the area of the best ranking of the losses."""
        ranked = self._ranked
        if ranked.weight is None:
            loss = np.sort(ranked.loss)
            best = RankedLosses(loss, loss, ends_of_ties(loss), None)
        else:
            best = RankedLosses.of(-ranked.loss, ranked.loss, ranked.weight)
        return float(max(_aurc(ranked) - _aurc(best), 0.0))  # 0 up to rounding

    @property
    def augrc(self):
        """Area under the curve of the generalized risk."""
        N = self._ranked.accepted
        summed = np.append(0.0, self._ranked.summed_loss)
        width = np.diff(N, prepend=0)
        area = np.sum((summed[1:] + summed[:-1]) * width)
        return float(area / (2 * float(N[-1]) ** 2))

    @validate_params(
        {"coverage": [Number(Real, 0, 1, closed="right")]},
        prefer_skip_nested_validation=True,
    )
    def risk_at(self, coverage):
        """Return the selective risk at a coverage of the ID samples.

        Coverages exist at distinct scores only, where tied samples are accepted
        together. The risk is taken at the smallest of these coverages that is at least
        `coverage`; a larger coverage may have a smaller risk.

        Parameters
        ----------
        coverage : float
            Least fraction of ID samples to accept, in (0, 1].

        Returns
        -------
        risk : float
            Mean loss of the accepted ID samples; lower is better.
        """
        N = self._ranked.accepted
        k = np.searchsorted(N, least_count(coverage, N[-1]))
        return float(self._ranked.summed_loss[k] / N[k])

    @validate_params(
        {"risk": [Number(Real, 0, None, closed="left")]},
        prefer_skip_nested_validation=True,
    )
    def coverage_at(self, risk):
        r"""Return the largest coverage whose selective risk is within a bound.

        Parameters
        ----------
        risk : float
            Largest mean loss of the accepted ID samples; not negative.

        Returns
        -------
        coverage : float
            Accepted fraction of ID samples, in [0, 1]; higher is better. 0 if the risk
            is above the bound at every threshold.

        Notes
        -----
        .. math::
            \max \{ \mathrm{coverage}(t) : R(t) \le r \}

        over the distinct scores :math:`t`. All scores are evaluated, since the risk is
        not monotone in the coverage: it may exceed the bound and fall below it again.
        """
        N = self._ranked.accepted
        within = self._ranked.summed_loss / N <= risk * (1 + GUARD)
        return float(np.max(N * within) / N[-1])


def _aurc(ranked):
    """Return the AURC of ranked losses, with the mean loss in each group of ties."""
    _, loss, last, weight = ranked
    if weight is not None:
        return _weighted_aurc(ranked.accepted, ranked.summed_loss)
    if last.size < loss.size:
        first = np.append(0, last[:-1] + 1)
        size = last + 1 - first
        loss = np.repeat(np.add.reduceat(loss, first) / size, size)
    risk = np.cumsum(loss)
    risk /= np.arange(1.0, loss.size + 1)
    return np.mean(risk)


def _weighted_aurc(N, E):
    """Return the AURC from counts and summed losses at distinct scores.

    In a group of ties from N0 to N samples the risk of k samples is (E0 + (k - N0) m) /
    k with the mean loss m: a sum of harmonic numbers, which digamma continues.
    """
    before = np.append(0, N[:-1])
    start = np.append(0.0, E[:-1])
    mean = (E - start) / (N - before)
    harmonic = digamma(N + 1.0) - digamma(before + 1.0)
    return np.sum((N - before) * mean + (start - before * mean) * harmonic) / N[-1]


def aurc(
    y_true,
    y_pred,
    y_score,
    *,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Area under the risk-coverage curve.

    The mean of the selective risk over the coverages 1/n, 2/n, ..., 1. OOD samples are
    excluded. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`.

    Returns
    -------
    aurc : float
        Lower is better; a constant score has the mean loss.

    See Also
    --------
    RiskCoverageCurve : The curve.
    e_aurc : Excess over the AURC of the best ranking.
    augrc : The same area of the generalized risk.

    Notes
    -----
    Inside a group of :math:`g` tied samples the summed loss is interpolated linearly:
    after :math:`j` of them it is :math:`E_0 + j \bar\ell`, with the mean loss
    :math:`\bar\ell` of the group. This is its expectation under random breaking of
    ties, and so the result is the expectation of

    .. math::
        \mathrm{AURC} = \frac1n \sum_{k=1}^n \frac1k \sum_{i \le k} \ell_{(i)} .

    Examples
    --------
    >>> from skood.metrics import aurc
    >>> aurc([0, 1, 1, 0], [0, 1, 0, 0], [0.9, 0.8, 0.4, 0.5])
    0.0625
    """
    samples = y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
    return RiskCoverageCurve(rank_id(*samples)).aurc


def e_aurc(
    y_true,
    y_pred,
    y_score,
    *,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Excess AURC (E-AURC): difference to the AURC of the best ranking of the losses.

    It is 0 if no sample is accepted before, or together with, a sample of smaller loss.
    Unlike AURC, it evaluates the score and not the classifier. OOD samples are
    excluded. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`.

    Returns
    -------
    e_aurc : float
        Not negative, lower is better.

    See Also
    --------
    aurc : The area itself.

    Notes
    -----
    With the losses in increasing order, :math:`\ell_{[1]} \le \dots \le \ell_{[n]}`,

    .. math::
        \mathrm{E\text{-}AURC} = \mathrm{AURC}
        - \frac1n \sum_{k=1}^n \frac1k \sum_{i \le k} \ell_{[i]} .

    For 0/1 losses with the mean :math:`R` the subtrahend tends to
    :math:`R + (1 - R) \ln(1 - R)` as :math:`n` grows [1]_. Here it is the exact sum,
    so that a perfect ranking gives 0 at any :math:`n`; the two differ by
    :math:`O(1/n)`.

    References
    ----------
    .. [1] Y. Geifman, G. Uziel, R. El-Yaniv. Bias-reduced uncertainty estimation for
       deep neural classifiers. ICLR 2019.

    Examples
    --------
    >>> from skood.metrics import e_aurc
    >>> y_true, y_pred = [0, 1, 1, 0], [0, 1, 0, 0]
    >>> e_aurc(y_true, y_pred, [0.9, 0.8, 0.4, 0.5])
    0.0
    >>> round(e_aurc(y_true, y_pred, [0.9, 0.8, 0.5, 0.4]), 4)
    0.0833
    """
    samples = y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
    return RiskCoverageCurve(rank_id(*samples)).e_aurc


def augrc(
    y_true,
    y_pred,
    y_score,
    *,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Area under the generalized risk-coverage curve (AUGRC).

    The generalized risk is the summed loss of the accepted ID samples over the number
    of *all* ID samples: for 0/1 losses, the fraction of samples that are wrong and
    accepted. So the weight of an error is linear in its rank, whereas AURC gives more
    weight to errors among few accepted samples. OOD samples are excluded. Read more in
    the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`.

    Returns
    -------
    augrc : float
        Lower is better; in [0, 1/2] for 0/1 losses. A constant score has half the mean
        loss.

    See Also
    --------
    aurc : The area of the selective risk.

    Notes
    -----
    The points :math:`(k/n, E_k/n)` at the distinct scores, with the summed loss
    :math:`E_k` of the :math:`k` samples accepted, are joined by straight lines from (0,
    0) to (1, mean loss). A straight line through a group of ties is the expectation
    under random breaking of ties. With the mean rank :math:`p_i` of sample i, 1 for the
    highest score, the area is

    .. math::
        \mathrm{AUGRC} = \frac{1}{n^2} \sum_i \ell_i (n - p_i + \tfrac12) .

    For 0/1 losses, with the accuracy :math:`a` and the AUROC of right against wrong
    samples, ties counting one half, this is at every :math:`n`

    .. math::
        \mathrm{AUGRC} = (1 - \mathrm{AUROC}) \, a (1 - a) + \tfrac12 (1 - a)^2 .

    A right-hand sum over :math:`k = 1, \dots, n` in place of the straight lines
    would be greater by :math:`\bar\ell / (2n)`, with the mean loss
    :math:`\bar\ell`.

    References
    ----------
    .. [1] J. Traub, T. J. Bungert, C. T. Lüth, M. Baumgartner, K. H. Maier-Hein,
       L. Maier-Hein, P. F. Jäger. Overcoming common flaws in the evaluation of
       selective classification systems. NeurIPS 2024.

    Examples
    --------
    >>> from skood.metrics import augrc
    >>> augrc([0, 1, 1, 0], [0, 1, 0, 0], [0.9, 0.8, 0.4, 0.5])
    0.03125
    """
    samples = y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
    return RiskCoverageCurve(rank_id(*samples)).augrc


def risk_at_coverage(
    y_true,
    y_pred,
    y_score,
    *,
    coverage=0.8,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    """Selective risk at a given coverage of the ID samples, a point on the curve.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`.

    coverage : float, default=0.8
        Least fraction of ID samples to accept, in (0, 1].

    Returns
    -------
    risk : float
        Mean loss of the accepted ID samples; lower is better.

    See Also
    --------
    RiskCoverageCurve.risk_at : The definition.
    selective_risk_at : The least risk at this coverage *or more*, with a bound on
        the fraction of accepted OOD samples.

    Examples
    --------
    >>> from skood.metrics import risk_at_coverage
    >>> y_true, y_pred = [0, 1, 1, 0, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.5, 0.4, 0.6]
    >>> risk_at_coverage(y_true, y_pred, y_score, coverage=0.5)
    0.0
    """
    samples = y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
    return RiskCoverageCurve(rank_id(*samples)).risk_at(coverage)


def coverage_at_risk(
    y_true,
    y_pred,
    y_score,
    *,
    risk=0.01,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    """Largest coverage of the ID samples whose selective risk is within a bound.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`.

    risk : float, default=0.01
        Largest mean loss of the accepted ID samples; not negative.

    Returns
    -------
    coverage : float
        Accepted fraction of ID samples, in [0, 1]; higher is better. 0 if the risk is
        above the bound at every threshold.

    See Also
    --------
    RiskCoverageCurve.coverage_at : The definition.

    Examples
    --------
    >>> from skood.metrics import coverage_at_risk
    >>> y_true, y_pred = [0, 1, 1, 0, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.5, 0.4, 0.6]
    >>> coverage_at_risk(y_true, y_pred, y_score, risk=0.25)
    1.0
    """
    samples = y_true, y_pred, y_score, loss, ood_label, classes, sample_weight
    return RiskCoverageCurve(rank_id(*samples)).coverage_at(risk)


def _curve_counts(
    y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
):
    """Return counts of accepted ID, OOD and correct ID samples at distinct scores."""
    if definition not in ("selective_risk", "dhamija"):
        raise ValueError(
            f"definition must be 'selective_risk' or 'dhamija', got {definition!r}."
        )
    is_ood = check_ood(y_true, ood_label, classes)
    y_score = check_scores(y_score, "y_score", n_samples=is_ood.size)
    weight = count_weights(sample_weight, is_ood.size)
    require_both(is_ood if weight is None else is_ood[weight > 0], ood_label)
    correct = ~is_ood if weight is None else ~is_ood & (weight > 0)
    loss = per_sample_loss(y_true, y_pred, is_id=correct)
    correct[np.flatnonzero(correct)] = loss == 0
    if weight is not None:
        present = np.flatnonzero(weight)
        is_ood, y_score, weight, correct = (
            array[present] for array in (is_ood, y_score, weight, correct)
        )
    return accepted_counts(is_ood, y_score, weight, correct)


def oscr(
    y_true,
    y_pred,
    y_score,
    *,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Area under the correct classification rate against the FPR (OSCR).

    ID samples are positive: the false positive rate (FPR) is the fraction of OOD
    samples that are accepted. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, ood_label, classes, sample_weight
        As in :meth:`RiskCoverageCurve.from_predictions`; entries of OOD samples in
        `y_pred` are ignored.

    definition : {"selective_risk", "dhamija"}, default="selective_risk"
        The correct classification rate (CCR). "selective_risk": the fraction of correct
        among accepted ID samples, one minus the selective risk [1]_. "dhamija": the
        fraction of ID samples that are accepted and correct [2]_. The two definitions
        rank detectors differently: the first ignores the number of rejected ID samples.

    Returns
    -------
    oscr : float
        In [0, 1], higher is better.

    See Also
    --------
    auroc : Equals "dhamija" if every prediction is right.
    ccr_at_fpr : A point on the curve.
    selective_risk_at : The selective risk at bounds on TPR and FPR.

    Notes
    -----
    The operating points are at distinct scores, joined by straight lines from FPR 0 to
    1. "dhamija" starts at (0, 0). The CCR of "selective_risk" is undefined as long as
    no ID sample is accepted; it is extended there from the first point where it is
    defined.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.
    .. [2] A. R. Dhamija, M. Günther, T. E. Boult. Reducing network agnostophobia.
       NeurIPS 2018.

    Examples
    --------
    >>> from skood.metrics import oscr
    >>> y_true, y_pred = [0, 1, 1, -1, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.5, 0.1]
    >>> round(oscr(y_true, y_pred, y_score), 4)
    0.8333
    >>> round(oscr(y_true, y_pred, y_score, definition="dhamija"), 4)
    0.6667
    """
    n_id, n_ood, n_correct = _curve_counts(
        y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
    )
    if definition == "dhamija":
        fpr = np.append(0.0, n_ood / n_ood[-1])
        ccr = np.append(0.0, n_correct / n_id[-1])
    else:
        accepted = slice(np.searchsorted(n_id, 0, side="right"), None)
        ccr = n_correct[accepted] / n_id[accepted]
        fpr = np.append(0.0, n_ood[accepted] / n_ood[-1])
        ccr = np.append(ccr[0], ccr)
    area = np.diff(fpr)
    area *= ccr[1:] + ccr[:-1]
    return float(np.sum(area) / 2)


@validate_params(
    {"fpr": [Number(Real, 0, 1, closed="both")]}, prefer_skip_nested_validation=True
)
def ccr_at_fpr(
    y_true,
    y_pred,
    y_score,
    *,
    fpr=0.05,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Correct classification rate at a bounded false positive rate.

    The threshold accepts as many samples as the bound on the FPR allows. Read more in
    the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
        As in :func:`oscr`.

    fpr : float, default=0.05
        Largest fraction of OOD samples to accept, in [0, 1].

    Returns
    -------
    ccr : float
        In [0, 1], higher is better. 0 if no ID sample can be accepted within the bound.

    Raises
    ------
    ValueError
        If `fpr` is not in [0, 1], or there are no ID or no OOD samples.

    See Also
    --------
    oscr : Area under the curve of these points.
    selective_risk_at : The least selective risk at this bound, with a least TPR.

    Notes
    -----
    The threshold is the lowest distinct score whose FPR is at most `fpr`; tied samples
    are accepted together. For "dhamija" the CCR grows with the number of accepted
    samples, so this is its greatest value within the bound. For "selective_risk" this
    does not hold, and the greatest value is often attained by accepting a single
    sample; so the threshold is the same.

    Examples
    --------
    >>> from skood.metrics import ccr_at_fpr
    >>> y_true, y_pred = [0, 1, 1, -1, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.5, 0.1]
    >>> round(ccr_at_fpr(y_true, y_pred, y_score, fpr=0.5), 4)
    0.6667
    >>> ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0)
    1.0
    >>> round(ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0, definition="dhamija"), 4)
    0.6667
    """
    n_id, n_ood, n_correct = _curve_counts(
        y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
    )
    bound = fpr * n_ood[-1] * (1 + GUARD)
    lowest = np.searchsorted(n_ood, bound, side="right") - 1
    if lowest < 0 or n_id[lowest] == 0:
        return 0.0
    total = n_id[-1] if definition == "dhamija" else n_id[lowest]
    return float(n_correct[lowest] / total)
