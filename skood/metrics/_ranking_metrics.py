"""Metrics at one threshold on the ROC curve, and all ranking metrics together."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

from skood.metrics._ranking import (
    _aupr,
    _auroc,
    _counts,
    _detection_error,
    _flip,
    _fpr_at_tpr,
    _oriented,
    first_reaching,
)
from skood.utils._stored import stored


@stored
def tnr_at_tpr(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Largest true negative rate (TNR) at a true positive rate of at least `tpr`.

    It is 1 minus the FPR: the share of OOD samples that are rejected while at least
    `tpr` of the ID samples are accepted. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    tpr : float, default=0.95
        True positive rate in (0, 1].

    positive : {"id", "ood"}, default="id"
        The positive class.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    tnr : float
        In [0, 1], higher is better.

    See Also
    --------
    fpr_at_tpr : One minus this.

    Examples
    --------
    >>> from skood.metrics import tnr_at_tpr
    >>> tnr_at_tpr([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1])
    0.5
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return 1.0 - _fpr_at_tpr(_oriented(counts, positive), tpr)


def _f1(counts, ood_prior):
    """Return F1 of the acceptance of ID samples at all thresholds."""
    n_id, n_ood = counts
    if ood_prior is None:
        return 2 * n_id / (n_id[-1] + n_id + n_ood)
    if isinstance(ood_prior, bool) or not isinstance(ood_prior, Real):
        raise TypeError(f"ood_prior must be a number in [0, 1), got {ood_prior!r}.")
    if not 0 <= float(ood_prior) < 1:
        raise ValueError(f"ood_prior must be in [0, 1), got {ood_prior!r}.")
    tpr, fpr = n_id / n_id[-1], n_ood / n_ood[-1]
    share = 1.0 - float(ood_prior)
    # 2 precision * recall / (precision + recall), without a division by 0
    return 2 * share * tpr / (share * (1 + tpr) + ood_prior * fpr)


def _f1_at_tpr(counts, tpr, ood_prior):
    return float(_f1(counts, ood_prior)[first_reaching(counts, tpr)])


def _max_f1(counts, ood_prior):
    return float(_f1(counts, ood_prior).max())


@stored
def f1_at_tpr(
    y_true,
    y_score,
    *,
    tpr=0.95,
    ood_prior=None,
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""F1 score of the acceptance of ID samples at a given true positive rate.

    With the recall :math:`\varphi` and FPR :math:`\rho` at the largest threshold that
    reaches `tpr`, and the share :math:`\pi` of OOD samples,

    .. math:: F_1 = \frac{2 \kappa \varphi}{\kappa + \varphi}, \qquad \kappa =
       \frac{(1 - \pi) \varphi}{(1 - \pi) \varphi + \pi \rho} ,

    where :math:`\kappa` is the precision [1]_. Read more in the :ref:`User Guide
    <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    tpr : float, default=0.95
        True positive rate in (0, 1].

    ood_prior : float, default=None
        Share :math:`\pi` of OOD samples in use, in [0, 1). None: their share here.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    f1 : float
        In [0, 1], higher is better.

    See Also
    --------
    max_f1 : At the best threshold.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.metrics import f1_at_tpr
    >>> y_true, y_score = [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> round(f1_at_tpr(y_true, y_score), 4)
    0.8571
    >>> round(f1_at_tpr(y_true, y_score, tpr=0.6, ood_prior=0.5), 4)
    0.8
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _f1_at_tpr(counts, tpr, ood_prior)


@stored
def max_f1(
    y_true, y_score, *, ood_prior=None, ood_label=-1, classes=None, sample_weight=None
):
    """Largest F1 score of the acceptance of ID samples, over all thresholds.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    ood_prior : float, default=None
        Share of OOD samples in use, in [0, 1). None: their share here.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    f1 : float
        In (0, 1], higher is better.

    See Also
    --------
    f1_at_tpr : At a given true positive rate, with the equation.

    Examples
    --------
    >>> from skood.metrics import max_f1
    >>> max_f1([0, 1, -1], [0.9, 0.8, 0.3])
    1.0
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _max_f1(counts, ood_prior)


def ranking_metrics(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    interpolation="step",
    ood_prior=None,
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    """All ranking metrics from one sort of the scores.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    tpr : float, default=0.95
        The true positive rate of `fpr_at_tpr`, `tnr_at_tpr` and `f1_at_tpr`.

    positive : {"id", "ood"}, default="id"
        The positive class of `fpr_at_tpr` and `tnr_at_tpr`.

    interpolation : {"step", "trapezoid"}, default="step"
        The interpolation of `aupr_in` and `aupr_out`.

    ood_prior : float, default=None
        Share of OOD samples of `f1_at_tpr` and `max_f1`. None: their share here.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    metrics : dict of str to float
        With the keys "auroc", "aupr_in", "aupr_out", "tnr_at_tpr", "f1_at_tpr" and
        "max_f1" (higher is better), "fpr_at_tpr" and "detection_error" (lower is
        better).

    See Also
    --------
    auroc, aupr_in, aupr_out, fpr_at_tpr, detection_error : Single metrics.
    tnr_at_tpr, f1_at_tpr, max_f1 : Single metrics.

    Examples
    --------
    >>> from skood.metrics import ranking_metrics
    >>> res = ranking_metrics([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1])
    >>> for name, value in res.items():
    ...     print(f"{name}: {value:.4f}")
    auroc: 0.9167
    aupr_in: 0.9167
    aupr_out: 0.8333
    fpr_at_tpr: 0.5000
    detection_error: 0.1667
    tnr_at_tpr: 0.5000
    f1_at_tpr: 0.8571
    max_f1: 0.8571
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    fpr = _fpr_at_tpr(_oriented(counts, positive), tpr)
    return {
        "auroc": _auroc(counts),
        "aupr_in": _aupr(counts, interpolation),
        "aupr_out": _aupr(_flip(counts), interpolation),
        "fpr_at_tpr": fpr,
        "detection_error": _detection_error(counts),
        "tnr_at_tpr": 1.0 - fpr,
        "f1_at_tpr": _f1_at_tpr(counts, tpr, ood_prior),
        "max_f1": _max_f1(counts, ood_prior),
    }
