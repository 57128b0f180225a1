"""Tests of the sparsified head."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skood.detectors import Energy, ViM
from skood.nn import LinearHead
from skood.rectifiers import DICE, ReAct


def _head(n_classes=4, n_features=9, dtype=np.float64):
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(n_classes, n_features)).astype(dtype)
    return FrozenEstimator(LinearHead(coef, rng.normal(size=n_classes)))


def _features(n_samples=80, n_features=9):
    rng = np.random.default_rng(1)
    return np.maximum(rng.normal(size=(n_samples, n_features)) + 0.5, 0)


def _naive(Z, coef, intercept, train, sparsity):
    """Mean contributions, their quantile, then each logit as a loop over features."""
    n_classes, d = coef.shape
    means = [sum(float(row[j]) for row in train) / len(train) for j in range(d)]
    V = [[float(coef[k, j]) * means[j] for j in range(d)] for k in range(n_classes)]
    q = np.quantile(V, sparsity)
    logits = []
    for z in Z:
        row = []
        for k in range(n_classes):
            remaining = [j for j in range(d) if sparsity == 0 or V[k][j] > q]
            row.append(intercept[k] + sum(coef[k, j] * float(z[j]) for j in remaining))
        logits.append(row)
    return np.array(logits)


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(sparsity, dtype):
    head, train = _head(), _features().astype(dtype)
    test = (2 * _features(20)).astype(dtype)
    dice = DICE(head, sparsity=sparsity).fit(train)
    expected = _naive(test, head.coef_, head.intercept_, train, sparsity)
    rtol = 1e-5 if dtype is np.float32 else 1e-12
    logits = dice.predict_logits(test)
    assert logits.dtype == dtype
    np.testing.assert_allclose(logits, expected, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(dice.predict(test), expected.argmax(axis=1))
    np.testing.assert_allclose(
        dice.predict_proba(test), softmax(expected, axis=1), rtol=20 * rtol
    )
    np.testing.assert_array_equal(dice.decision_function(test), logits)


@pytest.mark.parametrize("sparsity, kept", [(0.0, 36), (0.5, 18), (0.9, 4), (0.98, 1)])
def test_weights_that_are_left(sparsity, kept):
    head, Z = _head(), _features()
    dice = DICE(head, sparsity=sparsity).fit(Z)
    assert dice.mask_.sum() == kept
    np.testing.assert_array_equal(dice.coef_, np.where(dice.mask_, head.coef_, 0.0))
    np.testing.assert_array_equal(dice.intercept_, head.intercept_)
    contribution = head.coef_ * Z.mean(axis=0)
    if sparsity:
        assert contribution[dice.mask_].min() > contribution[~dice.mask_].max()


def test_nothing_dropped_is_the_head():
    head, Z = _head(), _features()
    dice = DICE(head, sparsity=0).fit(Z)
    np.testing.assert_array_equal(dice.predict_logits(Z), head.predict_logits(Z))


def test_precision_of_the_weights_is_unchanged():
    assert DICE(_head(dtype=np.float32)).fit(_features()).coef_.dtype == np.float32


def test_a_detector_reads_it():
    head, Z = _head(), _features()
    dice = DICE(head, sparsity=0.6).fit(Z)
    expected = logsumexp(_naive(Z, head.coef_, head.intercept_, Z, 0.6), axis=1)
    for estimator in (DICE(head, sparsity=0.6), FrozenEstimator(dice)):
        energy = Energy(estimator=estimator).fit(Z)
        np.testing.assert_allclose(energy.score_samples(Z), expected, rtol=1e-12)
    masked = FrozenEstimator(LinearHead(dice.coef_, dice.intercept_))
    np.testing.assert_allclose(  # it has features and a head as well
        ViM(FrozenEstimator(dice)).fit(Z).score_samples(Z),
        ViM(masked).fit(Z).score_samples(Z),
        rtol=1e-10,
    )


def test_after_a_rectifier():
    head, Z = _head(), _features()
    pipeline = make_pipeline(ReAct(quantile=0.8), DICE(head, sparsity=0.5)).fit(Z)
    cut = np.minimum(Z, np.quantile(Z, 0.8))
    expected = _naive(cut, head.coef_, head.intercept_, cut, 0.5)
    np.testing.assert_allclose(
        pipeline.decision_function(Z), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("model", [LogisticRegression(), RidgeClassifier()])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_linear_classifiers(model, n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes] / 8, y[y < n_classes]
    dice = DICE(model, sparsity=0.0).fit(X, y)
    fitted = dice.estimator_
    assert dice.coef_.shape == (n_classes, 4)
    np.testing.assert_allclose(
        dice.decision_function(X), fitted.decision_function(X), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(dice.classes_, fitted.classes_)


def test_fits_a_head():
    X, y = load_iris(return_X_y=True)
    own = DICE(sparsity=0.5).fit(X, y)
    given = DICE(LogisticRegression(max_iter=1000), sparsity=0.5).fit(X, y)
    np.testing.assert_array_equal(own.mask_, given.mask_)
    np.testing.assert_allclose(own.coef_, given.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="DICE requires y to be passed"):
        DICE().fit(X)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("ood", [-1, "unknown"])
def test_ood_samples_are_left_out(frozen, ood):
    X, y = load_iris(return_X_y=True)
    y = y if ood == -1 else np.array(["ant", "bee", "cat"])[y]
    model = LogisticRegression(max_iter=500)
    model = FrozenEstimator(model.fit(X, y)) if frozen else model
    expected = DICE(model, sparsity=0.5, ood_label=ood).fit(X, y)
    both = np.concatenate([X[:40] - 50, X, X[:9] + 50])
    labels = np.concatenate([np.full(40, ood), y, np.full(9, ood)])
    got = DICE(model, sparsity=0.5, ood_label=ood).fit(both, labels.tolist())
    np.testing.assert_array_equal(got.classes_, np.unique(y))
    np.testing.assert_array_equal(got.coef_, expected.coef_)
    with pytest.raises(ValueError, match="every label in y equals ood_label"):
        got.fit(X, np.full(len(X), ood))


def test_names_of_the_features_are_those_it_has_seen():
    X, y = load_iris(return_X_y=True, as_frame=True)
    frozen = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, y))
    assert not hasattr(DICE(frozen).fit(X.to_numpy()), "feature_names_in_")
    frame = X.set_axis(list("abcd"), axis=1)
    dice = DICE(frozen).fit(frame)
    assert list(dice.feature_names_in_) == list("abcd")
    np.testing.assert_array_equal(
        dice.predict_logits(frame), DICE(frozen).fit(X).predict_logits(X)
    )
    assert isinstance(frame, pd.DataFrame)


def test_torch_tensors():
    head, Z = _head(), _features().astype(np.float32)
    expected = DICE(head, sparsity=0.5).fit(Z).predict_logits(Z)
    tensor = torch.from_numpy(Z)
    got = DICE(head, sparsity=0.5).fit(tensor).predict_logits(tensor)
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        MLPClassifier((4,), max_iter=2),
        RandomForestClassifier(n_estimators=2),
        make_pipeline(MinMaxScaler(), LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_no_linear_classifier_of_x(estimator):
    X, y = load_iris(return_X_y=True)
    message = (
        rf"DICE needs a linear classifier of X itself, and a "
        rf"{type(estimator).__name__} is none\. "
        r"Take a network apart by body, head = skood\.nn\.split\(network\)"
    )
    with pytest.raises(ValueError, match=message):
        DICE(estimator).fit(X, y)


def test_no_weight_is_left():
    message = r"DICE has no weight left: at sparsity=0.9 .* maximum, 0\. Use a lower"
    with pytest.raises(ValueError, match=message):
        DICE(_head()).fit(np.zeros((5, 9)))
    equal = FrozenEstimator(LinearHead(np.ones((2, 9))))
    with pytest.raises(ValueError, match="no contribution is above the quantile"):
        DICE(equal, sparsity=0.5).fit(np.ones((5, 9)))
    dice = DICE(equal, sparsity=0.0).fit(np.ones((5, 9)))
    assert dice.mask_.all()


def test_errors():
    head, Z = _head(), _features()
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        DICE(head).predict(Z)
    with pytest.raises(ValueError, match="X has 5 features, but the head that DICE"):
        DICE(head).fit(Z[:, :5])
    dice = DICE(head).fit(Z)
    with pytest.raises(ValueError, match="X has 5 features, but DICE is expecting 9"):
        dice.predict_logits(Z[:, :5])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        dice.fit(Z, np.zeros(3))
    assert dice.predict_logits(Z).shape == (80, 4)  # as before the fit that failed
    with pytest.raises(ValueError, match="wrap a trained torch module"):
        DICE(torch.nn.ReLU()).fit(Z)
