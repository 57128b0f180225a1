"""Rows with two tied scores, and every rule on them by plain loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial

import numpy as np

from skood.metrics import SCODCurve, TwoScoreCurve
from skood.rejection import CostBased, ScoredSamples
from tests.metrics._samples import tied


def make_samples(seed, n=50):
    """Labels of three ID classes and OOD (-1), predictions, two tied scores."""
    y_true, y_pred, y_score = tied(seed, n)
    rng = np.random.default_rng(seed + 1000)
    ood_score = rng.integers(0, 9, size=n) + 3.0 * (y_true >= 0)
    return y_true, y_pred, y_score, ood_score


def scored(y_true, y_pred, *scores, loss=None):
    """Return the samples that `solve` takes: of negated scores."""
    is_id = y_true != -1
    loss = (y_true != y_pred).astype(float) if loss is None else loss
    (a, a_ood), (b, b_ood) = ((-s[is_id], -s[~is_id]) for s in scores)
    return ScoredSamples.from_arrays(a, b, loss[is_id], a_ood, b_ood)


def relabel(y):
    """String labels; the OOD label is "other"."""
    return np.array(["a", "b", "c", "other"])[y]


def _scale(score):
    low, high = np.quantile(score, [0.05, 0.95])
    return (high - low) or 1.0


def every_rule(y_true, y_pred, y_score, ood_score, thetas):
    """Return (N, E, F) of every threshold at every angle, thresholds in a loop."""
    is_id = y_true != -1
    a, b = -y_score, -ood_score
    a, b = a / _scale(a[is_id]), b / _scale(b[is_id])
    wrong = y_true != y_pred
    actual = []
    for theta in thetas:
        w_a, w_b = math.cos(theta), math.sin(theta)
        if theta == 0:
            projected = a
        elif theta == math.pi / 2:
            projected = b
        else:
            projected = w_a * a + w_b * b
        for threshold in set(projected.tolist()):
            accepted = projected <= threshold
            actual.append(
                (
                    int(np.sum(accepted & is_id)),
                    int(np.sum(accepted & is_id & wrong)),
                    int(np.sum(accepted & ~is_id)),
                )
            )
    return actual


def roc_curve(y_true, *scores, **params):
    return TwoScoreCurve.from_predictions(y_true, None, *scores, kind="roc", **params)


def precision_recall_curve(y_true, *scores, **params):
    params = {"kind": "precision_recall", **params}
    return TwoScoreCurve.from_predictions(y_true, None, *scores, **params)


ccr_curve = partial(TwoScoreCurve.from_predictions, kind="ccr")
least_risk_curve = partial(TwoScoreCurve.from_predictions, kind="risk_coverage")
scod_risk_curve = partial(TwoScoreCurve.from_predictions, kind="scod")


def cost_curve(*samples, rules=None, **params):
    """Return the curve of rules, or of arrays of their parameters."""
    names = "reject_id", "accept_ood", "reject_ood", "ood_prior"
    costs = {name: params.pop(name) for name in names if name in params}
    swept = {"reject_id": 0.3, **costs}
    if rules is None:
        columns = np.broadcast_arrays(*map(np.atleast_1d, swept.values()))
        values = zip(*(column.tolist() for column in columns), strict=True)
        rules = [CostBased(**dict(zip(swept, v, strict=True))) for v in values]
    return SCODCurve.from_predictions(*samples, rules=rules, **params)
