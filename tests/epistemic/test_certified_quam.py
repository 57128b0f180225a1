"""Largest attainable probabilities of a linear head, against other solvers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.base import UncertaintyDetector
from skood.epistemic import CertifiedQUAM
from skood.exceptions import SkoodWarning
from skood.nn import pretrained

X, y = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
# data, between classes, and far from them
POINTS = np.r_[X[::12], X[::12] * 2 + 1, -4 * X[::20]]


def linear(C=1.0):
    """A linear head without biases, whose solution is the maximum for 1 / C."""
    return LogisticRegression(C=C, fit_intercept=False, tol=1e-12, max_iter=10_000)


@pytest.fixture(scope="module")
def quam():
    return CertifiedQUAM(linear(), gamma=2.0).fit(X, y)


def objective(weights, X, codes, precision):
    """L and its gradient, written with scipy."""
    weights = weights.reshape(-1, X.shape[1])
    log_p = log_softmax(X @ weights.T, axis=1)
    one_hot = np.eye(len(weights))[codes]
    loss = -(log_p * one_hot).sum() + precision / 2 * (weights**2).sum()
    gradient = (np.exp(log_p) - one_hot).T @ X + precision * weights
    return loss, gradient.ravel()


def largest_by_slsqp(weights, x, target, gamma, precision=1.0):
    """The largest attainable probability, by a general solver."""
    shape = weights.shape
    least, _ = objective(weights.ravel(), X, y, precision)
    one_hot = np.eye(shape[0])[target]

    def attack(w):
        log_p = log_softmax(w.reshape(shape) @ x)
        return -log_p[target], np.outer(np.exp(log_p) - one_hot, x).ravel()

    constraint = {
        "type": "ineq",
        "fun": lambda w: least + gamma - objective(w, X, y, precision)[0],
        "jac": lambda w: -objective(w, X, y, precision)[1],
    }
    result = minimize(
        attack,
        weights.ravel(),
        jac=True,
        method="SLSQP",
        constraints=[constraint],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert result.status in (0, 8)  # 8: no step at this precision lowers the loss
    return np.exp(-result.fun)


# --- against other solvers ---------------------------------------------------


def test_bounds_contain_the_solution_of_a_general_solver():
    quam = CertifiedQUAM(linear(), gamma=2.0, tol=1e-6).fit(X, y)
    points = POINTS[::2]
    bounds = quam.attainable_proba(points)
    expected = [
        [largest_by_slsqp(quam.weights_, x, t, 2.0) for t in range(3)] for x in points
    ]
    assert (bounds.gap <= 1e-6).all()
    assert bounds.lower.size > 50
    assert_allclose(bounds.lower, expected, rtol=2e-6)
    assert_allclose(bounds.upper, expected, rtol=2e-6)


def test_single_weight_by_the_roots_of_the_log_posterior():
    item, classes = np.array([[0.7], [-0.4]]), [1, 0]
    quam = CertifiedQUAM(linear(C=0.5), gamma=1.3, prior_precision=2.0, tol=1e-8)
    quam.fit(item, classes)

    def excess(w):  # of the margin w x, with the precision of its weight
        loss = np.logaddexp(0, -0.7 * w) + np.logaddexp(0, -0.4 * w) + w**2
        return loss - least - 1.3

    w_map = float(quam.weights_[1, 0] - quam.weights_[0, 0])
    least = 0.0
    least = excess(w_map) + 1.3
    low, high = brentq(excess, -9, w_map), brentq(excess, w_map, 9)
    point = np.array([[1.9]])
    bounds = quam.attainable_proba(point)
    expected = [[expit(-1.9 * low), expit(1.9 * high)]]
    assert_allclose(bounds.lower, expected, rtol=1e-7)
    assert_allclose(bounds.upper, expected, rtol=1e-7)
    assert_allclose(quam.predict_proba(point)[0, 1], expit(1.9 * w_map), rtol=1e-12)


def test_no_model_within_gamma_exceeds_the_upper_bound(quam):
    bounds = quam.attainable_proba(POINTS)
    rng = np.random.default_rng(0)
    center = quam.weights_.ravel()
    least, _ = objective(center, X, y, 1.0)
    best = np.zeros_like(bounds.upper)
    for k in range(200):
        step = rng.standard_normal(len(center))
        if k % 2:  # towards a class at a point
            target, x = np.eye(3)[rng.integers(3)], POINTS[rng.integers(len(POINTS))]
            step = np.outer(target, x).ravel() + 0.3 * step

        def excess(size, step=step):
            return objective(center + size * step, X, y, 1.0)[0] - least - 2.0

        size = brentq(excess, 0, 1e3) * (1 - 1e-9)
        weights = (center + size * step).reshape(3, -1)
        best = np.maximum(best, softmax(POINTS @ weights.T, axis=1))
    assert (best <= bounds.upper).all()
    assert (best > 0.5 * bounds.lower).mean() > 0.5  # so that the attack is one


def test_few_evaluations_give_valid_bounds_and_a_warning(quam):
    exact = quam.attainable_proba(POINTS)
    short = CertifiedQUAM(linear(), gamma=2.0, max_evaluations=1).fit(X, y)
    with pytest.warns(SkoodWarning, match="relative gap above tol=0.001") as caught:
        bounds = short.attainable_proba(POINTS)
    assert "they are valid. Raise max_evaluations." in str(caught[0].message)
    assert (bounds.lower <= exact.upper).all()
    assert (bounds.upper >= exact.lower).all()
    assert bounds.gap.max() > 1e-3
    with pytest.warns(SkoodWarning, match="Raise max_evaluations"):
        short.predict_uncertainty(POINTS)


# --- properties --------------------------------------------------------------


def test_gap_is_between_zero_and_tol(quam):
    bounds = quam.attainable_proba(POINTS)
    assert (bounds.gap >= 0).all()
    assert (bounds.gap <= 1e-3).all()
    assert (bounds.upper <= 1).all()
    assert_allclose(bounds.gap, 1 - bounds.lower / bounds.upper, atol=1e-12)


def test_gamma_of_zero_is_the_original_model():
    fitted = linear().fit(X, y)
    quam = CertifiedQUAM(FrozenEstimator(fitted), gamma=0.0, refit=False).fit(X, y)
    bounds = quam.attainable_proba(POINTS)
    assert_allclose(bounds.lower, fitted.predict_proba(POINTS), rtol=1e-5)
    assert_array_equal(bounds.lower, bounds.upper)
    epistemic = quam.predict_uncertainty(POINTS).epistemic
    assert_allclose(epistemic, 0.0, atol=1e-15)
    assert (epistemic >= 0).all()


def test_more_models_attain_no_less(quam):
    last = quam.predict_proba(POINTS)
    for gamma in (1e-6, 0.01, 0.3, 1.0, 5.0, 20.0):
        bounds = CertifiedQUAM(linear(), gamma=gamma).fit(X, y).attainable_proba(POINTS)
        assert (bounds.upper >= last * (1 - 1e-9)).all()
        assert (bounds.gap <= 1e-3).all()
        last = bounds.lower


def test_permuted_classes_permute_the_bounds(quam):
    order = np.array([2, 0, 1])
    other = CertifiedQUAM(linear(), gamma=2.0).fit(X, order[y])
    expected = quam.attainable_proba(POINTS)
    bounds = other.attainable_proba(POINTS)
    for name in ("lower", "upper"):
        assert_allclose(bounds[name][:, order], expected[name], rtol=1e-6)


def test_uncertainty_is_the_maximum_over_the_other_classes(quam):
    bounds, proba = quam.attainable_proba(POINTS), quam.predict_proba(POINTS)
    uncertainty = quam.predict_uncertainty(POINTS)
    indices = np.arange(len(POINTS))
    for component in (bounds.lower, bounds.upper, proba):
        component[indices, quam.predict_proba(POINTS).argmax(axis=1)] = 0
    assert (uncertainty.total <= bounds.upper.max(axis=1)).all()
    assert (uncertainty.upper >= bounds.lower.max(axis=1)).all()
    assert_allclose(uncertainty.total, bounds.lower.max(axis=1), rtol=2e-3)
    assert_allclose(uncertainty.aleatoric, proba.max(axis=1), rtol=1e-12)
    assert_allclose(
        uncertainty.aleatoric + uncertainty.epistemic, uncertainty.total, rtol=1e-12
    )
    assert (uncertainty.gap <= 1e-3).all()
    assert (uncertainty.epistemic > 0).all()


def test_a_sample_alone_has_the_same_bounds(quam):
    together = quam.attainable_proba(POINTS)
    for i in (0, 15, 30):
        alone = quam.attainable_proba(POINTS[i : i + 1])
        assert_allclose(alone.lower[0], together.lower[i], rtol=1e-9)
        assert_allclose(alone.upper[0], together.upper[i], rtol=1e-9)


@pytest.mark.parametrize("precision", [1e-3, 1e3])
def test_weak_and_strong_priors(precision):
    """Separable classes with saturated probabilities, and a useless model."""
    indices = np.flatnonzero(y < 2)
    quam = CertifiedQUAM(linear(), gamma=3.0, prior_precision=precision)
    bounds = quam.fit(X[indices], y[indices]).attainable_proba(POINTS)
    assert (bounds.gap <= 1e-3).all()
    assert (bounds.lower >= quam.predict_proba(POINTS) * (1 - 1e-9)).all()


def test_more_weights_than_samples_and_duplicates():
    rng = np.random.default_rng(0)
    few = np.repeat(rng.standard_normal((6, 30)), 2, axis=0)
    quam = CertifiedQUAM(LogisticRegression(), gamma=1.0)
    quam.fit(few, np.repeat([0, 1, 2, 0, 1, 2], 2))
    far = 5 * rng.standard_normal((4, 30))
    bounds = quam.attainable_proba(np.r_[few, far, np.zeros((1, 30))])
    assert (bounds.gap <= 1e-3).all()


# --- the head ----------------------------------------------------------------


def test_refit_maximizes_the_posterior_with_biases():
    fitted = LogisticRegression().fit(X, y)
    quam = CertifiedQUAM(FrozenEstimator(fitted), prior_precision=3.0).fit(X, y)
    ones = np.c_[X, np.ones(len(X))]
    loss, gradient = objective(quam.weights_.ravel(), ones, y, 3.0)
    assert np.abs(gradient).max() < 1e-8
    start = np.c_[fitted.coef_, fitted.intercept_].ravel()
    excess = objective(start, ones, y, 3.0)[0] - loss
    assert_allclose(quam.excess_, excess, rtol=1e-8)
    expected = softmax(POINTS @ quam.weights_[:, :-1].T + quam.weights_[:, -1], axis=1)
    assert_allclose(quam.predict_proba(POINTS), expected, rtol=1e-10)


def test_head_that_is_not_the_maximum_raises():
    quam = CertifiedQUAM(linear(C=0.1), refit=False)
    with pytest.raises(ValueError, match="nats below its maximum") as error:
        quam.fit(X, y)
    assert "prior_precision=1.0. Use refit=True" in str(error.value)
    assert not hasattr(quam, "weights_")
    quam.set_params(prior_precision=10.0).fit(X, y)
    assert_allclose(quam.predict_proba(X), quam.estimator_.predict_proba(X), atol=1e-6)


def test_margin_is_two_classes_with_half_the_precision_each():
    two = y > 0
    margin = CertifiedQUAM(linear(), prior_precision=1.0).fit(X, two)
    module = nn.Linear(4, 2, bias=False)
    classes = pretrained(module, classes=[False, True])
    both = CertifiedQUAM(classes, prior_precision=2.0).fit(X.astype(np.float32), two)
    a, b = margin.attainable_proba(POINTS), both.attainable_proba(POINTS)
    assert_allclose(a.lower, b.lower, rtol=1e-3)
    assert_allclose(margin.weights_, both.weights_, rtol=1e-4, atol=1e-6)


def test_network_and_pipeline():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    quam = CertifiedQUAM(pretrained(net, classes=["a", "b", "c"]))
    quam.fit(X.astype(np.float32), np.array(["a", "b", "c"])[y])
    assert quam.weights_.shape == (3, 7)
    assert set(quam.predict(POINTS.astype(np.float32))) <= {"a", "b", "c"}
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    uncertainty = (
        CertifiedQUAM(pipeline).fit(3 * X + 5, y).predict_uncertainty(3 * POINTS + 5)
    )
    expected = CertifiedQUAM(LogisticRegression()).fit(X, y).predict_uncertainty(POINTS)
    assert_allclose(uncertainty.total, expected.total, rtol=1e-6)


def test_unsupported_networks_raise():
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((4, 6000))
    with pytest.raises(ValueError, match=r"over its 12,002 weights, of 1.15 GB"):
        CertifiedQUAM(LogisticRegression()).fit(wide, [0, 1, 0, 1])
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    with pytest.raises(ValueError, match="output of a linear layer"):
        CertifiedQUAM(pretrained(net, classes=[0, 1, 2])).fit(X.astype("f"), y)


def test_detector_of_the_total(quam):
    expected = quam.predict_uncertainty(POINTS)
    detector = UncertaintyDetector(FrozenEstimator(quam), component="total").fit(X, y)
    assert_allclose(detector.score_samples(POINTS), -expected.total)


def test_rotated_digits_are_detected():
    """The prediction is certain of rotated digits; the attainable one is not."""
    images, digits = load_digits(return_X_y=True)
    images = images / 16.0
    train, test = slice(600), slice(600, 640)
    quam = CertifiedQUAM(linear(), refit=False).fit(images[train], digits[train])
    turned = np.rot90(images[test].reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)
    both = np.r_[images[test], turned]
    is_ood = np.repeat([0, 1], len(turned))
    uncertainty = quam.predict_uncertainty(both)
    assert (uncertainty.gap <= 1e-3).all()
    of_model = 1 - quam.predict_proba(both).max(axis=1)
    assert (
        roc_auc_score(is_ood, uncertainty.total) > roc_auc_score(is_ood, of_model) + 0.3
    )
