"""Ranking metrics of OOD detection: AUROC, AUPR, FPR at TPR, detection error."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.decision import GUARD
from skood.utils._labels import check_label_rows, column, ood_mask
from skood.utils._stored import stored
from skood.utils._ties import at_ends, ends_of_ties, ranked_scores
from skood.utils._torch import to_numpy

__all__ = [
    "aupr_in",
    "aupr_out",
    "auroc",
    "detection_error",
    "fpr_at_tpr",
    "ranking_metrics",
]


def check_scores(y_score, n_samples, name="y_score"):
    """Return `y_score` as float64 of shape (n_samples,) without NaN, or raise."""
    y_score = to_numpy(y_score)
    shape = np.shape(y_score)
    if len(shape) != 1 and shape[1:] != (1,):
        raise ValueError(
            f"{name} must have one score per sample, shape ({n_samples},), got an "
            f"array of shape {shape}; of several columns, such as the probabilities of "
            f"classes, pass the one to rank by or their maximum."
        )
    y_score = column(y_score).astype(np.float64, copy=False)
    if y_score.shape[0] != n_samples:
        raise ValueError(
            f"{name} has {y_score.shape[0]} entries, but y_true has {n_samples}; "
            f"pass one score per label."
        )
    if np.isnan(y_score).any():
        raise ValueError(
            f"{name} contains {int(np.isnan(y_score).sum())} NaN; a score must order "
            f"the samples (infinities are allowed)."
        )
    return y_score


def _is_boolean(labels):
    labels = np.asarray(labels)
    return labels.dtype.kind == "b" or (
        labels.dtype.kind == "O"
        and labels.size > 0
        and isinstance(labels[0], bool | np.bool_)
    )


def check_ood(y_true, ood_label, classes):
    """Return the OOD mask of `y_true`; raise if labels or classes are ambiguous."""
    y_true = check_label_rows(y_true, "y_true")
    # labels of a classifier of booleans are not ambiguous
    if _is_boolean(y_true) and (classes is None or not _is_boolean(classes)):
        raise ValueError(
            "y_true is boolean, so it is ambiguous whether True means ID or OOD; "
            "pass labels, for example np.where(is_ood, -1, 1)."
        )
    if classes is not None and ood_mask(classes, ood_label=ood_label).any():
        raise ValueError(
            f"ood_label={ood_label!r} is one of classes={np.asarray(classes).tolist()},"
            f" so it is ambiguous whether samples with this label are ID or OOD. Leave "
            f"it out of classes, or pass another ood_label."
        )
    return ood_mask(y_true, ood_label=ood_label, classes=classes)


def require_both(is_ood, ood_label):
    """Raise unless there are both ID and OOD samples."""
    n_ood = int(np.count_nonzero(is_ood))
    if n_ood == 0:
        raise ValueError(
            f"No OOD samples in y_true: none of its {is_ood.size} labels equals "
            f"ood_label={ood_label!r} or is missing from classes. Add OOD samples, "
            f"or pass the ood_label in use."
        )
    if n_ood == is_ood.size:
        raise ValueError(
            f"No ID samples in y_true: all of its {is_ood.size} labels equal "
            f"ood_label={ood_label!r} or are missing from classes. Add ID samples, "
            f"or pass the ood_label in use."
        )


def accepted_counts(is_ood, y_score):
    """Return counts of accepted ID and OOD samples at distinct scores, decreasing."""
    order, ranked = (part[::-1] for part in ranked_scores(y_score))
    last = ends_of_ties(ranked)
    accepted_ood = at_ends(np.cumsum(is_ood[order].astype(np.int64)), last)
    return last + 1 - accepted_ood, accepted_ood


def _counts(y_true, y_score, ood_label, classes):
    """Check labels and scores, and return the counts."""
    is_ood = check_ood(y_true, ood_label, classes)
    y_score = check_scores(y_score, is_ood.shape[0])
    require_both(is_ood, ood_label)
    return accepted_counts(is_ood, y_score)


def _flip(counts):
    """Return counts of flagged OOD and ID samples at distinct scores, increasing."""
    n_id, n_ood = counts
    flagged_ood = n_ood[-1] - np.append(n_ood[-2::-1], 0)
    flagged_id = n_id[-1] - np.append(n_id[-2::-1], 0)
    return flagged_ood, flagged_id


def _auroc(counts):
    n_id, n_ood = counts
    # 2 U = sum over tie groups of dF (2 N_before + dN), exact in integers
    d_id, d_ood = np.diff(n_id, prepend=0), np.diff(n_ood, prepend=0)
    twice_u = int(np.sum(d_ood * (2 * n_id - d_id)))
    return twice_u / (2 * int(n_id[-1]) * int(n_ood[-1]))


def _aupr(counts, interpolation):
    tp, fp = counts
    if interpolation not in ("step", "trapezoid"):
        raise ValueError(
            f"interpolation must be 'step' or 'trapezoid', got {interpolation!r}."
        )
    precision = tp / (tp + fp)
    if interpolation == "trapezoid":
        # the curve starts at recall 0, precision 1, as scikit-learn's does
        precision = (precision + np.append(1.0, precision[:-1])) / 2
    return float(np.sum(np.diff(tp, prepend=0) * precision) / tp[-1])


def _fpr_at_tpr(counts, tpr):
    tp, fp = counts
    if isinstance(tpr, bool) or not isinstance(tpr, Real):
        raise TypeError(f"tpr must be a number in (0, 1], got {tpr!r}.")
    if not 0 < float(tpr) <= 1:
        raise ValueError(f"tpr must be in (0, 1], got {tpr!r}.")
    # tp and fp never decrease, so the first threshold that reaches tpr is the best; any
    # positive tpr requires an accepted sample
    least = max(1.0, np.ceil(tpr * tp[-1] - GUARD))
    first = np.searchsorted(tp, least)
    return float(fp[first] / fp[-1])


def _detection_error(counts):
    n_id, n_ood = counts
    error = (1 - n_id / n_id[-1]) + n_ood / n_ood[-1]
    return float(error.min() / 2)


@stored
def auroc(y_true, y_score, *, ood_label=-1, classes=None):
    r"""Area under the ROC curve, ID samples positive.

    The probability that a random ID sample scores higher than a random OOD sample, ties
    counting one half. The value is the same if OOD is the positive class and the score
    is negated. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels of ID and OOD samples, see `ood_label` and `classes`.

    y_score : array-like of shape (n_samples,)
        Scores, high for ID samples. Infinities are allowed, NaN is not.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    auroc : float
        In [0, 1], higher is better.

    Raises
    ------
    ValueError
        If there are no ID or no OOD samples, if `y_true` is boolean, or if `y_score`
        contains NaN or has another length.

    See Also
    --------
    ranking_metrics : All ranking metrics from one sort.
    aupr_in, aupr_out : Average precision of either class.

    Notes
    -----
    .. math::
        \mathrm{AUROC} = P(s_I > s_O) + \tfrac12 P(s_I = s_O)

    Examples
    --------
    >>> from skood.metrics import auroc
    >>> y_true = [0, 1, 1, -1, -1]
    >>> y_score = [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> round(auroc(y_true, y_score), 4)
    0.9167
    """
    return _auroc(_counts(y_true, y_score, ood_label, classes))


@stored
def aupr_in(y_true, y_score, *, interpolation="step", ood_label=-1, classes=None):
    r"""Area under the precision-recall curve, ID samples positive.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    interpolation : {"step", "trapezoid"}, default="step"
        "step" is the average precision, an unbiased sum over thresholds.
        "trapezoid" joins the points by straight lines from (recall 0, precision 1),
        which is optimistic but reported in several papers.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    aupr : float
        In (0, 1], higher is better. A random score has the share of ID samples.

    See Also
    --------
    aupr_out : The same with OOD samples positive.
    auroc : Does not depend on the class ratio of ID and OOD samples.

    Notes
    -----
    With recall :math:`R_k` and precision :math:`P_k` at the k-th highest distinct
    score, the average precision is

    .. math::
        \mathrm{AP} = \sum_k (R_k - R_{k-1}) P_k .

    Examples
    --------
    >>> from skood.metrics import aupr_in
    >>> round(aupr_in([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.9167
    """
    return _aupr(_counts(y_true, y_score, ood_label, classes), interpolation)


@stored
def aupr_out(y_true, y_score, *, interpolation="step", ood_label=-1, classes=None):
    """Area under the precision-recall curve, OOD samples positive.

    As elsewhere, scores are high for ID samples; they are negated internally. Read more
    in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    interpolation : {"step", "trapezoid"}, default="step"
        "step" is the average precision, "trapezoid" joins the points by straight
        lines.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    aupr : float
        In (0, 1], higher is better. A random score has the share of OOD samples.

    See Also
    --------
    aupr_in : The same with ID samples positive.

    Examples
    --------
    >>> from skood.metrics import aupr_out
    >>> round(aupr_out([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.8333
    """
    counts = _counts(y_true, y_score, ood_label, classes)
    return _aupr(_flip(counts), interpolation)


def _oriented(counts, positive):
    if positive not in ("id", "ood"):
        raise ValueError(f"positive must be 'id' or 'ood', got {positive!r}.")
    return counts if positive == "id" else _flip(counts)


@stored
def fpr_at_tpr(y_true, y_score, *, tpr=0.95, positive="id", ood_label=-1, classes=None):
    r"""False positive rate at a given true positive rate.

    The smallest FPR over the thresholds at distinct scores whose TPR is at least
    `tpr`: tied samples are accepted together. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    tpr : float, default=0.95
        The true positive rate to reach, in (0, 1].

    positive : {"id", "ood"}, default="id"
        The positive class. "id": the share of OOD samples accepted when at least `tpr`
        of the ID samples are accepted. "ood": the share of ID samples flagged when at
        least `tpr` of the OOD samples are flagged. The two values differ.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    fpr : float
        In [0, 1], lower is better.

    See Also
    --------
    auroc : The area under the whole curve.

    Notes
    -----
    .. math::
        \mathrm{FPR@TPR}(\phi) = \min_t \{ P(s_O \ge t) : P(s_I \ge t) \ge \phi \}

    Examples
    --------
    >>> from skood.metrics import fpr_at_tpr
    >>> y_true, y_score = [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> fpr_at_tpr(y_true, y_score)
    0.5
    >>> round(fpr_at_tpr(y_true, y_score, positive="ood"), 4)
    0.3333
    """
    counts = _counts(y_true, y_score, ood_label, classes)
    return _fpr_at_tpr(_oriented(counts, positive), tpr)


@stored
def detection_error(y_true, y_score, *, ood_label=-1, classes=None):
    r"""Detection error: smallest error of ID against OOD classification, equal priors.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    error : float
        In [0, 0.5], lower is better. The same for either positive class.

    See Also
    --------
    fpr_at_tpr : The error on OOD samples at a fixed error on ID samples.

    Notes
    -----
    .. math::
        \min_t \tfrac12 (1 - \mathrm{TPR}(t)) + \tfrac12 \mathrm{FPR}(t)

    Examples
    --------
    >>> from skood.metrics import detection_error
    >>> round(detection_error([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.1667
    """
    return _detection_error(_counts(y_true, y_score, ood_label, classes))


def ranking_metrics(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    interpolation="step",
    ood_label=-1,
    classes=None,
):
    """All ranking metrics from one sort of the scores.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score : array-like of shape (n_samples,)
        Labels, and scores that are high for ID samples, as in :func:`auroc`.

    tpr : float, default=0.95
        The true positive rate of `fpr_at_tpr`.

    positive : {"id", "ood"}, default="id"
        The positive class of `fpr_at_tpr`.

    interpolation : {"step", "trapezoid"}, default="step"
        The interpolation of `aupr_in` and `aupr_out`.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    Returns
    -------
    metrics : dict of str to float
        With the keys "auroc", "aupr_in", "aupr_out" (higher is better),
        "fpr_at_tpr" and "detection_error" (lower is better).

    See Also
    --------
    auroc, aupr_in, aupr_out, fpr_at_tpr, detection_error : Single metrics.

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
    """
    counts = _counts(y_true, y_score, ood_label, classes)
    return {
        "auroc": _auroc(counts),
        "aupr_in": _aupr(counts, interpolation),
        "aupr_out": _aupr(_flip(counts), interpolation),
        "fpr_at_tpr": _fpr_at_tpr(_oriented(counts, positive), tpr),
        "detection_error": _detection_error(counts),
    }
