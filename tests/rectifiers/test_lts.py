"""Tests of logit scaling."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.rectifiers import LTS, SCALE


def _factors(Z, top):
    """Squared ratio of the sum to that of the largest, positive parts, row by row."""
    factors = []
    for row in Z.astype(np.float64):
        d = len(row)
        positive = sorted(max(value, 0.0) for value in row)
        k = max(1, d - round(d * (1 - top)))
        largest = sum(positive[d - k :])
        factors.append((sum(positive) / largest) ** 2 if largest else 1.0)
    return np.array(factors)


def _features(dtype=np.float64):
    Z = np.random.default_rng(0).normal(size=(60, 24)) + 0.5
    Z[3] = 0
    Z[4] = -1
    return Z.astype(dtype)


def _head(n_classes=5, n_features=24):
    rng = np.random.default_rng(1)
    coef = rng.normal(size=(n_classes, n_features))
    return FrozenEstimator(LinearHead(coef, 3 * rng.normal(size=n_classes)))


@pytest.mark.parametrize("top", [0.01, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(top, dtype):
    Z = _features(dtype)
    expected = _factors(Z, top)[:, None] * Z
    got = LTS(top=top).fit_transform(Z)
    rtol = 1e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(got, expected, rtol=rtol)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_logits_of_the_head_are_scaled_exactly(dtype, tolerance):
    Z, head = _features(dtype), _head()
    expected = _factors(Z, 0.05)[:, None] * head.predict_logits(Z.astype(np.float64))
    lts = LTS(head).fit(Z)
    got = head.predict_logits(lts.transform(Z))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * expected.max())
    np.testing.assert_allclose(head.predict_logits([lts.origin_]), 0, atol=1e-12)


def test_logits_without_the_head_are_off_by_the_bias():
    Z, head = _features(), _head()
    factors = _factors(Z, 0.05)[:, None]
    got = head.predict_logits(LTS().fit_transform(Z))
    bias = head.intercept_
    expected = factors * (head.predict_logits(Z) - bias) + bias
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    no_bias = FrozenEstimator(LinearHead(head.coef_))
    np.testing.assert_array_equal(LTS(no_bias).fit_transform(Z), LTS().fit_transform(Z))


def test_head_of_an_unfitted_classifier_learns_from_id_samples():
    X, y = load_iris(return_X_y=True)
    known = y != 2
    labels = np.where(known, y, -1)
    lts = LTS(LogisticRegression(), top=0.5).fit(X, labels)
    expected = LogisticRegression().fit(X[known], y[known])
    np.testing.assert_array_equal(lts.estimator_.coef_, expected.coef_)
    margins = expected.decision_function(X)
    scaled = expected.decision_function(lts.transform(X))
    np.testing.assert_allclose(scaled, _factors(X, 0.5) * margins, rtol=1e-9)
    assert not hasattr(lts, "classes_")


def test_softmax_head_without_an_exact_zero():
    """Rows that sum to zero, but biases that do not: the mean bias stays."""
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(3, 24))
    head = FrozenEstimator(LinearHead(coef - coef.mean(axis=0), [1.0, 2.0, 6.0]))
    Z = _features()
    message = "smallest, one is 3, because the 3 rows .* no more classes than features"
    with pytest.warns(SkoodWarning, match=message) as caught:
        lts = LTS(head).fit(Z)
    assert caught[0].filename == __file__
    got = head.predict_logits(lts.transform(Z))
    expected = _factors(Z, 0.05)[:, None] * (head.predict_logits(Z) - 3) + 3
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_the_ratio_is_that_of_scale():
    """SCALE multiplies by its exponential, LTS by its square."""
    Z = np.random.default_rng(0).exponential(size=(30, 40))
    exponential = SCALE(percentile=95).fit_transform(Z) / Z
    square = LTS(top=0.05).fit_transform(Z) / Z
    np.testing.assert_allclose(square, np.log(exponential) ** 2, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_errors():
    Z = _features()
    y = np.arange(60) % 3
    with pytest.raises(ValueError, match=r"LTS needs a linear classifier of X itself"):
        LTS(MLPClassifier((4,), max_iter=2)).fit(Z, y)
    with pytest.raises(ValueError, match="X has 24 features, but the head that LTS"):
        LTS(_head(n_features=7)).fit(Z)
    with pytest.raises(ValueError, match="LTS requires y to be passed"):
        LTS(LogisticRegression()).fit(Z)
    huge = np.full((2, 1000), 1e37, dtype=np.float32)
    with pytest.raises(
        ValueError, match="LTS scales a sample by 1e\\+06, which overflo"
    ):
        LTS(top=0.001).fit_transform(huge)
