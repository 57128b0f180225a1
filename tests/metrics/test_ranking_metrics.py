"""F1 and TNR at a threshold: closed forms, scikit-learn and naive loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import f1_score

from skood.metrics import (
    bootstrap_ci,
    f1_at_tpr,
    fpr_at_tpr,
    make_ood_scorer,
    max_f1,
    ranking_metrics,
    tnr_at_tpr,
)
from tests._loops import looped


def _tied(seed, n=200):
    rng = np.random.default_rng(seed)
    y_true = np.where(rng.random(n) < 0.3, -1, 1)
    return y_true, np.round(rng.normal(y_true * 0.5, 1), 1)


def test_value_by_hand():
    """TPR .95, FPR .2 and a prior of 1/2."""
    y_true = np.repeat([1, -1], [100, 50])
    y_score = np.repeat([1.0, 0.0, 1.0, 0.0], [95, 5, 10, 40])
    assert_allclose(f1_at_tpr(y_true, y_score, ood_prior=0.5), 0.883721, atol=5e-7)
    assert_allclose(tnr_at_tpr(y_true, y_score), 0.8, rtol=1e-12)


@looped("seed", range(5))
@looped("tpr", [0.3, 0.95, 1.0])
def test_f1_of_scikit_learn(seed, tpr):
    y_true, y_score = _tied(seed)
    thresholds = np.unique(y_score)[::-1]
    values, first = [], None
    for threshold in thresholds:
        accepted = np.where(y_score >= threshold, 1, -1)
        values.append(f1_score(y_true, accepted))
        if first is None and np.mean(accepted[y_true == 1] == 1) >= tpr - 1e-12:
            first = values[-1]
    assert_allclose(f1_at_tpr(y_true, y_score, tpr=tpr), first, rtol=1e-12)
    assert_allclose(max_f1(y_true, y_score), max(values), rtol=1e-12)
    share = np.mean(y_true == -1)
    assert_allclose(
        f1_at_tpr(y_true, y_score, tpr=tpr, ood_prior=share), first, rtol=1e-12
    )
    whole = ranking_metrics(y_true, y_score, tpr=tpr)
    assert whole["f1_at_tpr"] == f1_at_tpr(y_true, y_score, tpr=tpr)
    assert whole["max_f1"] == max_f1(y_true, y_score)
    fpr = fpr_at_tpr(y_true, y_score, tpr=tpr)
    assert whole["tnr_at_tpr"] == tnr_at_tpr(y_true, y_score, tpr=tpr) == 1 - fpr


def test_the_prior():
    y_true, y_score = _tied(0)
    # without OOD samples in use the precision is 1, and all samples are accepted
    assert max_f1(y_true, y_score, ood_prior=0.0) == 1
    values = [max_f1(y_true, y_score, ood_prior=p) for p in (0.1, 0.5, 0.9, 0.99)]
    assert values == sorted(values, reverse=True)
    for prior in (1, 1.5, -0.1):
        with pytest.raises(ValueError, match=r"ood_prior must be in \[0, 1\), got"):
            max_f1(y_true, y_score, ood_prior=prior)
    with pytest.raises(TypeError, match="ood_prior must be a number"):
        f1_at_tpr(y_true, y_score, ood_prior="half")


@pytest.mark.parametrize("metric", [tnr_at_tpr, f1_at_tpr, max_f1])
def test_scorers_and_intervals(metric, iris):
    from skood.detectors import KNN

    X, y = iris
    detector = KNN().fit(X[y < 2], y[y < 2])
    expected = metric(np.where(y < 2, 1, -1), detector.score_samples(X))
    assert make_ood_scorer(metric.__name__)(detector, X, y) == expected
    assert make_ood_scorer(metric)(detector, X, y) == expected
    y_true, y_score = _tied(3)
    interval = bootstrap_ci(metric, y_true, y_score, n_resamples=99, random_state=0)
    assert interval.low < metric(y_true, y_score) < interval.high <= 1
