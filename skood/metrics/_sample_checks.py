"""Validation of the labels, scores and weights of metrics, and ranked ID samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.utils._labels import check_label_columns, is_nan, ood_mask
from skood.utils._losses import implied_ood_label, per_sample_loss
from skood.utils._scores import check_scores
from skood.utils._ties import GUARD, ends_of_ties, ranked_scores
from skood.utils._weights import check_weight, count_weights


def _is_boolean(labels):
    labels = np.asarray(labels)
    return labels.dtype.kind == "b" or (
        labels.dtype.kind == "O"
        and labels.size > 0
        and isinstance(labels[0], bool | np.bool_)
    )


def check_ood(y_true, ood_label, classes):
    """Return the OOD mask of `y_true`; raise if labels or classes are ambiguous."""
    if is_nan(ood_label):
        return ood_mask(y_true, ood_label=ood_label)
    y_true = check_label_columns(y_true, "y_true")
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


def require_both(is_ood, ood_label, needs_ood=True):
    """Raise unless there are ID samples and, if needed, OOD samples."""
    n_ood = int(np.count_nonzero(is_ood))
    if n_ood == 0 and needs_ood:
        raise ValueError(
            f"No OOD samples in y_true: none of its {is_ood.size} labels equals "
            f"ood_label={ood_label!r} or is missing from classes. Add OOD samples, "
            f"or pass the ood_label of the data."
        )
    if n_ood == is_ood.size:
        raise ValueError(
            f"No ID samples in y_true: all of its {is_ood.size} labels equal "
            f"ood_label={ood_label!r} or are missing from classes. Add ID samples, "
            f"or pass the ood_label of the data."
        )


def least_count(fraction, total):
    """Return the least count that is a fraction of a total, up to rounding."""
    if isinstance(total, np.integer):
        return np.ceil(fraction * total - GUARD)
    return fraction * total * (1 - GUARD)


def id_mask(y_true, ood_label, classes):
    """Return the mask of the ID samples of `y_true`; raise if there are none."""
    is_ood = check_ood(y_true, ood_label, classes)
    require_both(is_ood, ood_label, needs_ood=False)
    return ~is_ood


def id_samples(y_true, ood_label, classes, sample_weight):
    """Return the mask of ID samples of positive weight, and their weights or None."""
    is_id = id_mask(y_true, ood_label, classes)
    weight = check_weight(sample_weight, is_id.size)
    if weight is None:
        return is_id, None
    n_id = np.count_nonzero(is_id)
    is_id &= weight > 0
    if not is_id.any():
        raise ValueError(
            f"sample_weight is zero for all {n_id} ID samples in y_true; give some of "
            f"them a positive weight."
        )
    weight = weight[is_id]
    return is_id, count_weights(weight, weight.size)


class RankedLosses(NamedTuple):
    """ID samples from the highest score down, of shape (n_id,).

    `last` are the ends of groups of tied scores, `weight` is None if all are equal.
    """

    scores: np.ndarray
    loss: np.ndarray
    last: np.ndarray
    weight: np.ndarray | None

    @property
    def accepted(self):
        """Number of accepted samples at each distinct score."""
        if self.weight is None:
            return self.last + 1
        return np.cumsum(self.weight)[self.last]

    @property
    def summed_loss(self):
        """Summed loss of the accepted samples at each distinct score."""
        loss = self.loss if self.weight is None else self.loss * self.weight
        return np.cumsum(loss)[self.last]

    @classmethod
    def of(cls, scores, loss, weight):
        """Rank samples of shape (n_id,)."""
        order, ranked = (ascending[::-1] for ascending in ranked_scores(scores))
        weight = None if weight is None else weight[order]
        return cls(ranked, loss[order], ends_of_ties(ranked), weight)


def rank_id(y_true, y_pred, y_score, loss, ood_label, classes, sample_weight=None):
    """Check the arguments of a metric, and return the ranked ID samples."""
    ood_label = implied_ood_label(loss, ood_label)
    is_id, weight = id_samples(y_true, ood_label, classes, sample_weight)
    y_score = check_scores(y_score, "y_score", n_samples=is_id.size)
    loss = per_sample_loss(y_true, y_pred, loss, is_id=is_id, classes=classes)
    if loss.size < is_id.size:
        y_score = y_score[np.flatnonzero(is_id)]
    return RankedLosses.of(y_score, loss, weight)
