"""Tests of temperature and input perturbation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.datasets import load_digits_ood
from skood.detectors import MSP, ODIN
from skood.nn import LinearHead, pretrained
from tests.nn._conv_net import (
    conv_classifier,
    conv_net,
    images,
    perceptron_in_torch,
)
from tests.nn._outputs import read

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    ODIN(LogisticRegression()),
    ODIN(
        MLPClassifier((8,), solver="lbfgs", random_state=0),
        temperature=1.0,
        epsilon=0.1,
    ),
]


def _naive(net, X, temperature, epsilon, scale=None):
    """By autograd on the cross-entropy, a row at a time, in float64."""
    net = net.double().eval()
    scores = []
    for row in X:
        x = torch.as_tensor(row[None]).double().requires_grad_()
        logits = net(x) / temperature
        loss = torch.nn.functional.cross_entropy(logits, logits.argmax(1))
        (gradient,) = torch.autograd.grad(loss, x)
        step = epsilon * gradient.sign()
        if scale is not None:
            for channel, size in enumerate(scale):
                step[:, channel] /= size
        logits = net(x - step).detach().numpy()[0] / temperature
        scores.append(softmax(logits).max() - 1)
    return np.array(scores)


@pytest.mark.parametrize("temperature", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.0014, 0.1])
def test_equals_naive_loop_on_a_convolutional_network(temperature, epsilon):
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(15, dtype=np.float64)
    odin = ODIN(clf, temperature=temperature, epsilon=epsilon).fit(X)
    expected = _naive(conv_net(inplace=False), X, temperature, epsilon)
    np.testing.assert_allclose(odin.score_samples(X), expected, rtol=1e-10)


def test_scale_divides_epsilon_by_channel():
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(9, dtype=np.float64)
    scale = [0.25, 2.0]
    odin = ODIN(clf, temperature=1.0, epsilon=0.02, scale=scale).fit(X)
    expected = _naive(conv_net(inplace=False), X, 1.0, 0.02, scale)
    np.testing.assert_allclose(odin.score_samples(X), expected, rtol=1e-10)


@pytest.mark.parametrize("activation", ["identity", "relu", "tanh", "logistic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_equals_the_same_network_in_torch(activation, n_classes):
    """scikit-learn's perceptron, differentiated by hand, and its copy by autograd."""
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlp = MLPClassifier((6, 5), activation=activation, max_iter=50, random_state=0)
        mlp.fit(X, y)
    scale = X.std(axis=0)
    odin = ODIN(FrozenEstimator(mlp), temperature=2.0, epsilon=0.1, scale=scale).fit(X)
    expected = _naive(perceptron_in_torch(mlp), X, 2.0, 0.1, scale)
    np.testing.assert_allclose(odin.score_samples(X), expected, rtol=1e-8)


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_perturbation_raises_the_largest_probability(temperature):
    """Some implementations step the other way, which lowers it."""
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, y))
    _, conv = conv_classifier(dtype=torch.float64)
    for clf, samples in ((frozen, X), (conv, images(30, dtype=np.float64))):
        plain = ODIN(clf, temperature=temperature, epsilon=0.0).fit(samples)
        moved = ODIN(clf, temperature=temperature, epsilon=1e-4).fit(samples)
        assert (moved.score_samples(samples) > plain.score_samples(samples)).all()


def test_closed_form_for_two_classes():
    """The margin w·x + b grows by ε |w|₁ towards the predicted class."""
    w, b = np.array([1.0, -2.0, 0.0]), 0.5
    X = np.random.default_rng(0).normal(size=(20, 3))
    head = FrozenEstimator(LinearHead([w], [b]))
    odin = ODIN(head, temperature=5.0, epsilon=0.1).fit(X)
    margin = np.abs(X @ w + b) + 0.1 * 3.0
    np.testing.assert_allclose(
        odin.score_samples(X), -1 / (1 + np.exp(margin / 5)), rtol=1e-10
    )


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_without_a_step_it_is_msp(temperature):
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, y))
    odin = ODIN(frozen, temperature=temperature, epsilon=0).fit(X, y)
    msp = MSP(frozen, temperature=temperature).fit(X, y)
    np.testing.assert_allclose(odin.score_samples(X), msp.score_samples(X), rtol=1e-9)
    assert odin.offset_ == pytest.approx(msp.offset_, rel=1e-9)


def test_saturated_samples_are_moved_and_rank():
    """In float32 these probabilities are all 1, and their gradients 0."""
    head = FrozenEstimator(LinearHead(np.eye(3)))
    X = np.array([[40.0, 0, 0], [60.0, 0, 0], [0, 200.0, 1]], dtype=np.float32)
    plain = MSP(head).fit(X).score_samples(X)
    odin = ODIN(head, temperature=1.0, epsilon=0.5).fit(X).score_samples(X)
    # the top logit rises by 0.5, the larger of the others falls
    assert (odin > plain).all()
    assert plain[0] < plain[1] < plain[2] < 0 and odin[0] < odin[1] < odin[2] < 0


def test_no_ties_at_a_high_temperature():
    """Probabilities are within 1e-6 of each other: float32 would tie them."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X + rng.normal(scale=1e-3, size=X.shape)
    odin = ODIN(LogisticRegression(max_iter=500), temperature=1e6).fit(X, y)
    scores = odin.score_samples(X)
    assert np.ptp(scores) < 1e-5
    assert len(np.unique(scores)) == len(X)
    assert len(np.unique(scores.astype(np.float32))) < len(X)


def test_a_feature_without_influence_is_not_moved():
    head = FrozenEstimator(LinearHead([[1.0, 0.0], [-1.0, 0.0]]))
    X = np.array([[0.5, 7.0]])
    score = ODIN(head, temperature=1.0, epsilon=0.25).fit(X).score_samples(X)
    assert score[0] == pytest.approx(-1 / (1 + np.exp(1.5)))


def test_pipeline_moves_the_input_of_its_last_step():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    whole = ODIN(FrozenEstimator(pipeline), epsilon=0.1).fit(X, y)
    Z = pipeline[:-1].transform(X)
    last = ODIN(FrozenEstimator(pipeline[-1]), epsilon=0.1).fit(Z, y)
    np.testing.assert_array_equal(whole.score_samples(X), last.score_samples(Z))
    # dividing by the standard deviations undoes the scaling
    raw = FrozenEstimator(
        LinearHead(
            pipeline[-1].coef_ / pipeline[0].scale_,
            pipeline[-1].intercept_
            - (pipeline[-1].coef_ / pipeline[0].scale_) @ pipeline[0].mean_,
        )
    )
    unscaled = ODIN(raw, epsilon=0.1).fit(X, y)
    scaled = ODIN(FrozenEstimator(pipeline), epsilon=0.1, scale=pipeline[0].scale_)
    np.testing.assert_allclose(
        scaled.fit(X, y).score_samples(X), unscaled.score_samples(X), rtol=1e-9
    )


def test_grid_search():
    X, y = load_digits_ood([3, 4], ood_label=-1, return_X_y=True)
    indices = np.random.default_rng(0).choice(len(X), 150, replace=False)
    grid = {"epsilon": [0.0, 0.5], "temperature": [1.0, 100.0]}
    classifier = LogisticRegression(max_iter=500)
    search = GridSearchCV(ODIN(classifier), grid, cv=2, error_score="raise")
    search.fit(X[indices], y[indices])
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    assert search.best_score_ > 0.8


def test_float32_network_is_close_to_float64():
    X = images(30)
    scores = {}
    for dtype in (torch.float32, torch.float64):
        _, clf = conv_classifier(dtype=dtype)
        scores[dtype] = ODIN(clf, temperature=1.0).fit(X).score_samples(X)
    np.testing.assert_allclose(scores[torch.float32], scores[torch.float64], rtol=1e-4)


def test_logits_of_the_network_are_read_once_moved():
    """The score is that of MSP on the moved images."""
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(12, dtype=np.float64)
    net = conv_net(dtype=torch.float64, inplace=False).eval()
    x = torch.as_tensor(X).requires_grad_()
    (net(x).log_softmax(1).amax(1).sum()).backward()
    moved = X + 0.01 * np.sign(x.grad.numpy())
    odin = ODIN(clf, temperature=1.0, epsilon=0.01).fit(X).score_samples(X)
    p = softmax(read(clf, moved, {"logits"}).logits, axis=1).max(axis=1)
    np.testing.assert_allclose(odin, p - 1, rtol=1e-9)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"temperature": 0.0}, "'temperature' parameter of ODIN must be"),
        ({"epsilon": -0.1}, "'epsilon' parameter of ODIN must be"),
        ({"scale": 2.0}, "'scale' parameter of ODIN must be an array-like or None"),
        ({"scale": [1.0, 1.0]}, r"scale has shape \(2,\), but .* expected \(4,\)"),
        ({"scale": [[1.0] * 4]}, r"scale has shape \(1, 4\)"),
        ({"scale": [1.0, 0.0, 1, 1]}, "scale must be positive, got 0: it is what"),
        ({"scale": [1.0, np.nan, 1, 1]}, "scale contains NaN"),
        ({"device": "abacus"}, "Unknown device 'abacus'"),
    ],
)
def test_bad_parameters(params, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        ODIN(LogisticRegression(max_iter=500), **params).fit(X, y)


def test_classifier_without_a_gradient():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="a RandomForestClassifier has neither layers"):
        ODIN(RandomForestClassifier(5)).fit(X, y)
    with pytest.raises(ValueError, match="wrap a trained torch module with"):
        ODIN(None).fit(X, y)
    with pytest.raises(ValueError, match="ODIN requires y to be passed"):
        ODIN(LogisticRegression()).fit(X)


def test_against_pytorch_ood():
    """Its scores are float32, so the comparison is at a low temperature."""
    detector = pytest.importorskip("pytorch_ood.detector")
    net, X = conv_net(inplace=False).eval(), images(20)
    peer = detector.ODIN(net, temperature=2.0, eps=0.05, norm_std=[0.5, 2.0])
    expected = peer.predict(torch.as_tensor(X)).numpy()
    ours = ODIN(pretrained(net), temperature=2.0, epsilon=0.05, scale=[0.5, 2.0]).fit(X)
    np.testing.assert_allclose(-1 - ours.score_samples(X), expected, rtol=1e-5)
