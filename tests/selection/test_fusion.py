"""ClassifierFusion: checked scores, symmetry, and the rate of learned scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from skood.selection import ClassifierFusion, fdp_power
from skood.selection._fusion import fused_scores
from tests.selection._cases import vector


def test_checked_scores():
    arguments, expected = vector("S-fusion")
    reference, mixed = np.array(arguments["ref"]), np.array(arguments["mix"])
    scores = fused_scores(reference, mixed, arguments["C"])
    assert_allclose(scores, expected["score"], atol=2e-3)
    assert np.argsort(scores).tolist() == expected["argsort"]


def test_unpenalized_fit_equals_scikit_learn(rng):
    """Where no weight is zero, the bound does not matter."""
    reference = rng.normal(size=(80, 2))
    mixed = np.concatenate([rng.normal(size=(90, 2)), rng.normal(-2, 1, (30, 2))])
    low, median, high = np.percentile(reference, [25, 50, 75], axis=0)
    samples = np.concatenate([reference, mixed])
    X = np.arcsinh((median - samples) / (high - low))
    y = np.repeat([0, 1], [80, 120])
    peer = LogisticRegression(C=0.7, class_weight="balanced", tol=1e-10).fit(X, y)
    assert (peer.coef_ > 0).all()
    scores = fused_scores(reference, mixed, 0.7)
    assert_allclose(scores, -(X[80:] @ peer.coef_[0]), atol=1e-6)


@pytest.mark.parametrize("classifier", [None, RandomForestClassifier(5)])
def test_calibration_and_test_samples_are_interchangeable(classifier, rng):
    """The learned scores are exactly equal if samples change sides."""
    held_out, scores = rng.normal(size=(60, 3)), rng.normal(size=(50, 3)) - 1
    fusion = ClassifierFusion(classifier=classifier)
    batch = fusion.select(scores, held_out, 0.3, random_state=0)
    order = rng.permutation(50)
    again = fusion.select(scores[order], held_out, 0.3, random_state=0)
    assert_array_equal(again.pvalues, batch.pvalues[order])
    if classifier is None:
        mixed = np.concatenate([held_out[20:], scores])
        order = rng.permutation(len(mixed))
        actual = fused_scores(held_out[:20], mixed, 1.0)
        swapped = fused_scores(held_out[:20], mixed[order], 1.0)
        assert_array_equal(swapped, actual[order])


@pytest.mark.parametrize("classifier", [None, LogisticRegression(max_iter=50)])
def test_rate(classifier, rng):
    alpha, n_runs, actual = 0.2, 60, []
    is_ood = np.arange(150) < 50
    for seed in range(n_runs):
        calibration = rng.normal(size=(200, 4))
        scores = rng.normal(size=(150, 4)) - 2 * is_ood[:, None]
        fusion = ClassifierFusion(classifier=classifier)
        batch = fusion.select(scores, calibration, alpha, random_state=seed)
        actual.append(fdp_power(batch.selected, is_ood))
    fdp, power = np.mean(actual, axis=0)
    assert fdp <= alpha * 100 / 150 + 3 * np.std(actual, axis=0)[0] / np.sqrt(n_runs)
    assert power > 0.75


def test_constant_and_infinite_scores(rng):
    held_out, scores = rng.normal(size=(80, 2)), rng.normal(size=(30, 2))
    held_out[:, 1] = scores[:, 1] = 3.0
    scores[:10, 0] = -np.inf
    batch = ClassifierFusion().select(scores, held_out, 0.2, random_state=0)
    assert batch.selected[:10].all() and np.isfinite(batch.pvalues).all()
    constant = ClassifierFusion().select(
        np.zeros((9, 2)), np.zeros((30, 2)), random_state=0
    )
    assert constant.n_selected == 0 and (constant.pvalues == 1).all()


def test_invalid_input():
    with pytest.raises(ValueError, match="'C' parameter of ClassifierFusion"):
        ClassifierFusion(C=0).select(np.ones((5, 2)), np.ones((9, 2)))
    with pytest.raises(ValueError, match="there is 1 sample in all"):
        ClassifierFusion().select(np.ones((5, 2)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="'classifier' parameter of ClassifierFusion"):
        ClassifierFusion(classifier=object()).select(np.ones((5, 2)), np.ones((9, 2)))
