"""Reasons of rejections: excess of each score over accepted calibration samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np
from sklearn.utils import Bunch

from skood.decision import accept_proba
from skood.decision._operating_point import of_groups, weights
from skood.utils._stored import stored


@stored
class Reference(NamedTuple):
    """Scores of the calibration ID samples, to which new scores are compared.

    `risk` and `ood` (None for a single score) are sorted, of shape (n_id,); `typical`,
    of shape (2,), has the mean terms of the rule over accepted samples (or over all);
    for thresholds of groups it is a dict of them.
    `risk_below` and `ood_below`, of shape (n_id + 1,), are the weights of the samples
    before each position; None for equal weights.
    """

    risk: np.ndarray
    ood: np.ndarray | None
    typical: np.ndarray | dict
    risk_below: np.ndarray | None = None
    ood_below: np.ndarray | None = None


def _terms(point, risk, ood):
    """Return the two terms whose sum the rule compares with lam, shape (2, n)."""
    (w_a, w_b), (c_a, c_b) = weights(point.theta), point.scales
    first = w_a * risk / c_a if w_a else np.zeros_like(risk)
    second = np.zeros_like(first) if ood is None or not w_b else w_b * ood / c_b
    return np.stack([first, second])


def make_reference(point, risk, ood, weight=None, groups=None):
    """Return the reference of calibration ID samples from scores of shape (n_id,)."""
    terms = _terms(point, risk, ood)
    accepted = accept_proba(point, risk, ood, groups=groups) > 0
    if point.has_group_thresholds:
        typical: dict | np.ndarray = {
            name: _typical(terms, accepted, weight, groups == name)
            for name in np.unique(groups).tolist()
        }
    else:
        typical = _typical(terms, accepted, weight, np.ones_like(accepted))
    ood_ranked = None if ood is None else np.sort(ood)
    below = None if weight is None else (_below(risk, weight), _below(ood, weight))
    return Reference(np.sort(risk), ood_ranked, typical, *(below or (None, None)))


def _typical(terms, accepted, weight, among):
    """Return the mean terms over accepted samples among some, shape (2,)."""
    used = accepted & among
    used = used if used.any() else among
    finite = used & np.isfinite(terms).all(axis=0)
    # No finite scores: the threshold is infinite, and so is any excess over it.
    used = finite if finite.any() else used
    of_used = None if weight is None else weight[used]
    return np.average(terms[:, used], axis=1, weights=of_used)


def _below(score, weight):
    """Return the weights of the samples before each position in ascending order."""
    if score is None:
        return None
    return np.append(0, np.cumsum(weight[np.argsort(score)]))


def explain(
    point, reference, risk, ood, accepted=None, uncertain="uncertain class", groups=None
):
    """Return the Bunch of ``RejectOptionClassifier.reject_reason``.

    `risk`, `ood` (or None) and `accepted` have shape (n_samples,). Without `accepted`,
    all samples that may be accepted are. `uncertain` is the reason for a high risk, and
    `groups` are for thresholds of groups.
    """
    if accepted is None:
        accepted = accept_proba(point, risk, ood, groups=groups) > 0
    is_known = np.ones(len(accepted), dtype=bool)
    if point.has_group_thresholds:
        is_known = np.array([name in point.lam for name in groups.tolist()], dtype=bool)
    with np.errstate(invalid="ignore"):
        if point.has_two_thresholds:
            limits = point.lam, point.ood_max
            risk_max, ood_max = (of_groups(limit, groups) for limit in limits)
            c_a, c_b = point.scales
            excess = np.stack([risk / c_a - risk_max, ood / c_b - ood_max / c_b])
            is_known &= np.broadcast_to(risk_max > -np.inf, is_known.shape)
            excess = np.where(is_known, np.maximum(excess, 0.0), 0.0)
        else:
            typical = reference.typical
            if isinstance(typical, dict):
                unknown = np.zeros(2)
                found = [typical.get(name, unknown) for name in groups.tolist()]
                typical = np.reshape(found, (-1, 2)).T
            else:
                typical = typical[:, None]
            excess = _terms(point, risk, ood) - typical
    excess[np.isnan(excess)] = 0.0  # infinite, as are accepted scores
    infinite = np.isposinf([risk, np.zeros_like(risk) if ood is None else ood])
    excess = np.where(infinite.any(axis=0), infinite, excess)
    # A rejected sample is above lam, the mean accepted one is not: positive up to
    # rounding.
    tiny = np.finfo(np.float64).tiny
    total = np.where(accepted, 1.0, np.maximum(excess.sum(axis=0), tiny))
    ood_share = np.where(accepted, 0.0, np.clip(excess[1] / total, 0, 1))
    reasons = np.where(ood_share > 0.5, "out-of-distribution", uncertain)
    reasons = np.where(is_known, reasons, "unknown group")
    counts = is_known & ~accepted
    return Bunch(
        reason=np.where(accepted, "accepted", reasons),
        risk_percentile=_percentile(reference.risk, risk, reference.risk_below),
        ood_percentile=(
            None
            if ood is None
            else _percentile(reference.ood, ood, reference.ood_below)
        ),
        risk_share=np.where(counts, 1.0 - ood_share, 0.0),
        ood_share=np.where(counts, ood_share, 0.0),
    )


def _percentile(reference, values, below):
    """Return the percentage of the sorted `reference` not larger than each value."""
    positions = np.searchsorted(reference, values, side="right")
    if below is None:
        return 100.0 * positions / len(reference)
    return 100.0 * below[positions] / below[-1]
