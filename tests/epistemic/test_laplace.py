"""Laplace's approximation in closed form, and its predictives against loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from scipy.special import expit, log_softmax, logsumexp, softmax
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from torch import nn

from skood.epistemic import (
    HMC,
    DeepEnsemble,
    Laplace,
    MCDropout,
    MixtureLaplace,
    member_uncertainty,
)
from skood.epistemic.laplace import _laplace
from skood.epistemic.laplace._curvature import Kronecker
from skood.epistemic.laplace._laplace import (
    bridge_log_alpha,
    bridge_proba,
    mean_field_of_blocks,
    mean_field_proba,
    probit_proba,
)
from skood.nn import pretrained
from skood.nn._make_network import make_network
from skood.utils import _array_api
from tests.nn._conv_net import conv_classifier, fully_convolutional, images


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 4)) + 2 * np.eye(4)[y], y


def _posterior(clf, X, tau):
    """Features with ones, weights row by row, and (H + τI)^-1 of all weights."""
    phi = np.column_stack([X, np.ones(len(X))])
    W = np.column_stack([clf.coef_, clf.intercept_])
    H = np.zeros((W.size, W.size))
    for row in phi:
        p = softmax(W @ row)
        H += np.kron(np.diag(p) - np.outer(p, p), np.outer(row, row))
    return phi, W, np.linalg.inv(H + tau * np.eye(W.size))


def test_full_posterior_of_a_logistic_regression(data):
    """Members are normal draws around the weights: moments over many of them."""
    X, y = data
    inner = LogisticRegression(C=0.5)
    clf = Laplace(
        inner, hessian="full", prior_precision=2.0, n_samples=20_000, random_state=0
    ).fit(X, y)
    phi, W, covariance = _posterior(clf.estimator_, X, 2.0)
    members = np.log(clf.predict_members(X[:3]))
    differences = members[:, :, 1:] - members[:, :, :1]  # of logits
    for i in range(3):
        J = np.kron(np.eye(3), phi[i])
        contrast = np.array([[-1, 1, 0], [-1, 0, 1]])
        mean, cov = contrast @ W @ phi[i], contrast @ J @ covariance @ J.T @ contrast.T
        error = np.sqrt(np.diag(cov) / 20_000)
        assert (np.abs(differences[:, i].mean(axis=0) - mean) < 4 * error).all()
        result = np.cov(differences[:, i].T)
        # standard errors of (co)variances of normals
        error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 20_000)
        assert (np.abs(result - cov) < 4 * error).all()


def test_mc_predictive_against_draws(data):
    X, y = data
    clf = Laplace(
        LogisticRegression(),
        hessian="full",
        prior_precision=0.5,
        predictive="mc",
        n_samples=5000,
        random_state=0,
    ).fit(X, y)
    phi, W, covariance = _posterior(clf.estimator_, X, 0.5)
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal(W.ravel(), covariance, size=5000)
    proba = softmax(phi[:10] @ draws.reshape(-1, *W.shape).transpose(0, 2, 1), axis=2)
    error = proba.std(axis=0) * math.sqrt(2 / 5000)
    assert (np.abs(clf.predict_proba(X[:10]) - proba.mean(axis=0)) < 4.5 * error).all()


def test_margin_in_closed_form(data):
    """MacKay's predictive of a binary logistic regression with a Gaussian prior."""
    X, y = data[0], data[1] > 0
    clf = Laplace(LogisticRegression(), hessian="full", prior_precision=1.0).fit(X, y)
    phi = np.column_stack([X, np.ones(len(X))])
    w = np.append(clf.estimator_.coef_, clf.estimator_.intercept_)
    p = expit(phi @ w)
    H = (phi * (p * (1 - p))[:, None]).T @ phi
    v = np.einsum("nd,de,ne->n", phi, np.linalg.inv(H + np.eye(5)), phi)
    expected = expit(phi @ w / np.sqrt(1 + np.pi / 8 * v))
    for predictive in ("mean_field", "probit"):
        clf.set_params(predictive=predictive)
        assert_allclose(clf.predict_proba(X)[:, 1], expected, rtol=1e-12)
    log_lik = np.log(np.where(y, p, 1 - p)).sum()
    log_det = np.linalg.slogdet(H + np.eye(5))[1]
    expected = log_lik - 0.5 * w @ w - 0.5 * log_det
    assert clf.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("hessian", ["diag", "full", "kron"])
def test_members_are_networks_with_other_weights(data, hessian):
    X, y = data
    net = MLPClassifier((6,), solver="lbfgs", random_state=0, max_iter=30)
    clf = Laplace(net, hessian=hessian, n_samples=4, random_state=0).fit(X, y)
    network = make_network(clf.estimator_).with_weights(device="cpu")
    samples = network.prepare(X)
    weights = network.weights()
    name = network.head_name
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    draws = torch.cat([*clf._draws(torch.cat([weight, bias[:, None]], dim=1))])
    members = clf.predict_members(X)
    for draw, member in zip(draws, members, strict=True):
        other = {f"{name}.weight": weight + draw[:, :-1]}
        other[f"{name}.bias"] = bias + draw[:, -1]
        assert_allclose(np.log(member), network.log_proba(samples, other), atol=1e-10)


def test_prior_precision_is_that_with_the_largest_evidence(data):
    X, y = data
    best = Laplace(LogisticRegression()).fit(X, y)
    for factor in (0.9, 1.1):
        tau = factor * best.prior_precision_
        other = Laplace(LogisticRegression(), prior_precision=tau).fit(X, y)
        assert other.prior_precision_ == tau
        assert other.log_marginal_likelihood_ < best.log_marginal_likelihood_


@pytest.mark.parametrize("setting", ["a", "b"])
def test_uncertainty_is_that_of_the_members(data, setting):
    X, y = data
    clf = Laplace(LogisticRegression(), setting=setting, random_state=0).fit(X, y)
    uncertainty = clf.predict_uncertainty(X)
    reference = log_softmax(clf.estimator_.decision_function(X), axis=1)
    expected = member_uncertainty(
        np.log(clf.predict_members(X)), reference=reference, setting=setting
    )
    for name in ("total", "aleatoric", "epistemic"):
        assert_allclose(uncertainty[name], expected[name], rtol=1e-9, atol=1e-12)
    assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)


def test_setting_b_predicts_by_the_network(data):
    X, y = data
    net = LogisticRegression().fit(X, y)
    clf = Laplace(FrozenEstimator(net)).fit(X, y)
    assert_allclose(clf.predict_proba(X), net.predict_proba(X), rtol=1e-12)
    mixture = clone(clf).set_params(setting="a").fit(X, y).predict_proba(X)
    sure = net.predict_proba(X).max(axis=1)
    assert (mixture.max(axis=1) < sure).mean() > 0.9  # a doubt makes it less sure


@pytest.mark.parametrize(
    "predictive", ["mean_field", "probit", "mc", "bridge", "bridge_norm"]
)
@pytest.mark.parametrize("hessian", ["diag", "full", "kron"])
def test_samples_are_independent_of_others_and_of_batches(data, predictive, hessian):
    X, y = data
    clf = Laplace(
        MLPClassifier((5,), solver="lbfgs", max_iter=30, random_state=0),
        predictive=predictive,
        hessian=hessian,
        n_samples=7,
        random_state=0,
    ).fit(X, y)
    proba = clf.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    epistemic = clf.predict_uncertainty(X).epistemic
    one_by_one = np.concatenate([clf.predict_proba(row[None]) for row in X[::9]])
    assert_allclose(one_by_one, proba[::9], rtol=1e-10)
    small = clone(clf).set_params(batch_size=7).fit(X, y)
    assert_allclose(small.predict_proba(X), proba, rtol=1e-8)
    assert_allclose(small.predict_uncertainty(X).epistemic, epistemic, rtol=1e-6)


def test_no_variance_is_left_with_a_strong_prior(data):
    X, y = data
    net = LogisticRegression().fit(X, y)
    for predictive in ("mean_field", "probit", "mc"):
        clf = Laplace(
            FrozenEstimator(net),
            prior_precision=1e14,
            predictive=predictive,
            setting="a",
        ).fit(X, y)
        assert_allclose(clf.predict_proba(X), net.predict_proba(X), atol=1e-6)
        assert clf.predict_uncertainty(X).epistemic.max() < 1e-10


def test_uncertainty_grows_away_from_the_data(data):
    X, y = data
    clf = Laplace(LogisticRegression(), random_state=0).fit(X, y)
    between = X.mean(axis=0)  # the classes are equally probable far out, too
    out = between + 5 * np.array([0.0, 0.0, 0.0, 10.0])
    near, far = clf.predict_uncertainty([between, out]).epistemic
    assert far > 3 * near


def test_images_pipelines_and_labels_of_text():
    X = images(60)
    _, net = conv_classifier()
    y = net.predict(X)
    clf = Laplace(FrozenEstimator(net), device="cpu", random_state=0).fit(X, y)
    assert clf.predict_members(X[:5]).shape == (100, 5, 3)
    assert_array_equal(clf.predict(X), y)
    samples = X.reshape(len(X), -1)
    names = np.array(["ant", "bee", "cat"])
    pipe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    inside = Laplace(pipe, random_state=0).fit(samples, names[y])
    scaled = StandardScaler().fit_transform(samples)
    outside = Laplace(pipe[-1], random_state=0).fit(scaled, names[y])
    assert_allclose(
        inside.predict_proba(samples), outside.predict_proba(scaled), rtol=1e-9
    )
    assert set(inside.predict(samples)) == set(names)


def test_network_with_a_single_output(data):
    X, y = data[0].astype(np.float32), data[1] > 0
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    clf = Laplace(FrozenEstimator(pretrained(net, classes=[False, True])), setting="a")
    clf.fit(X, y)
    assert clf._curvature.eigenvalues.shape == (1, 4)
    assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)
    for predictive in ("bridge", "bridge_norm"):
        proba = clf.set_params(predictive=predictive).predict_proba(X)
        assert_array_equal(proba.argmax(axis=1), clf.predict(X).astype(int))


# ---- errors


def test_no_best_prior_precision(data):
    X, y = data
    net = LogisticRegression().fit(X, y)
    net.coef_, net.intercept_ = 0 * net.coef_, 0 * net.intercept_
    with pytest.raises(ValueError, match=r"weights are zero.* Pass a number"):
        Laplace(FrozenEstimator(net)).fit(X, y)
    clf = Laplace(FrozenEstimator(net), prior_precision=1.0).fit(X, y)
    assert np.isfinite(clf.predict_uncertainty(X).epistemic).all()


# ---- what is kept, and how much


@pytest.mark.parametrize("hessian", ["diag", "full", "kron"])
def test_only_public_classes_need_to_be_trusted(data, hessian):
    """Of skops: the fitted state has arrays, and the estimators of the user."""
    skops = pytest.importorskip("skops.io")
    X, y = data
    net = LogisticRegression().fit(X, y)
    for subset in ("last_layer", "all"):
        if subset == "all" and hessian == "kron":
            continue
        clf = Laplace(FrozenEstimator(net), subset=subset, hessian=hessian).fit(X, y)
        dumped = skops.dumps(clf)
        ours = [
            name
            for name in skops.get_untrusted_types(data=dumped)
            if name.startswith("skood.")
        ]
        assert ours == [
            "skood.epistemic._likelihood.Categorical",
            "skood.epistemic.laplace._laplace.Laplace",
        ]
        loaded = skops.loads(dumped, trusted=ours)
        assert_array_equal(loaded.predict_members(X), clf.predict_members(X))


@pytest.mark.parametrize("hessian", ["diag", "full", "kron"])
def test_draws_in_pieces_equal_draws_at_once(data, hessian, monkeypatch):
    """Draws that are too many to be kept are made again, and are the same."""
    X, y = data
    clf = Laplace(LogisticRegression(), hessian=hessian, n_samples=7, random_state=0)
    expected = clf.fit(X, y).predict_members(X)
    sizes = []
    inner = type(clf._curvature).draw

    def counted(self, normals, precision):
        sizes.append(len(normals))
        return inner(self, normals, precision)

    monkeypatch.setattr(type(clf._curvature), "draw", counted)
    monkeypatch.setattr(_laplace, "_DRAW_BYTES", 3 * 8 * 15)
    clf.set_params(batch_size=50)
    assert_allclose(clf.predict_members(X), expected, rtol=1e-12)
    assert sizes == [3, 3, 1]  # once for all blocks of rows
    monkeypatch.setattr(_laplace, "_STORED_BYTES", 7 * 8 * 15 - 1)
    assert_allclose(clf.predict_members(X), expected, rtol=1e-12)
    assert sizes == 3 * [3, 3, 1]


def test_only_the_last_draws_are_stored(data):
    """Else a search for the best precision fills the memory."""
    X, y = data
    clf = Laplace(LogisticRegression(), n_samples=7, random_state=0).fit(X, y)
    expected = [clf.set_params(n_samples=n).predict_members(X) for n in (7, 8, 9)]
    array = clf._arrays["eigenvalues"]
    stored = [copy for source, copy in _array_api._COPIES.values() if source() is array]
    assert [len(copy) for copy in stored] == [1]
    (draws,) = stored[0].values()
    assert sum(len(part) for part in draws) == 9
    assert_array_equal(clf.set_params(n_samples=7).predict_members(X), expected[0])


def test_list_of_layers_is_copied(data):
    X, y = data
    net = MLPClassifier((6,), solver="lbfgs", random_state=0, max_iter=30)
    layers = ["2"]
    clf = Laplace(net, subset=layers, hessian="diag", random_state=0).fit(X, y)
    before = clf.predict_members(X)
    layers.append("0")
    assert_array_equal(clf.predict_members(X), before)


def test_head_of_zeros(data):
    """Two outputs of a module are two, whatever their weights."""
    X, y = data[0].astype(np.float32), data[1] > 0
    net = nn.Linear(4, 2)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    original = FrozenEstimator(pretrained(net, classes=[False, True]))
    clf = Laplace(original, prior_precision=1.0, hessian="full").fit(X, y)
    assert clf._curvature.eigenvalues.shape == (10,)


@pytest.mark.parametrize(
    "kind",
    [Laplace, lambda net: MixtureLaplace(Laplace(net)), HMC, MCDropout],
    ids=["Laplace", "MixtureLaplace", "HMC", "MCDropout"],
)
def test_networks_take_dense_samples(kind):
    # scikit-learn 1.6 does not say yet that a linear model takes sparse rows
    takes_sparse = get_tags(LogisticRegression()).input_tags.sparse
    assert not get_tags(kind(LogisticRegression())).input_tags.sparse
    ensemble = DeepEnsemble(LogisticRegression())
    assert get_tags(ensemble).input_tags.sparse == takes_sparse


def test_many_classes_are_those_of_single_samples(monkeypatch):
    """From 100 classes on samples are grouped: the same numbers, one by one as well."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 120
    X = rng.normal(size=(240, 5)) + 3 * rng.normal(size=(120, 5))[y]
    head = LogisticRegression(max_iter=20).fit(X, y)
    clf = Laplace(FrozenEstimator(head), setting="a", random_state=0).fit(X, y)
    proba = clf.predict_proba(X[:30])
    alone = np.concatenate([clf.predict_proba(X[i : i + 1]) for i in range(30)])
    assert_allclose(proba, alone, rtol=1e-9)
    monkeypatch.setattr("skood.epistemic.laplace._laplace._GROUP_BYTES", 4000)
    assert_allclose(clf.predict_proba(X[:30]), proba, rtol=1e-9)
    monkeypatch.setattr("skood.epistemic.laplace._laplace._MANY_CLASSES", 1000)
    assert_allclose(clf.predict_proba(X[:30]), proba, rtol=1e-9)


class Flattening(nn.Module):
    """Convolution whose output is cut into rows of 32 numbers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).reshape(-1, 32))


LINEARIZED = {"subset": "all", "hessian": "diag"}


@pytest.mark.parametrize(
    ("make", "kwargs", "message"),
    [
        (Flattening, {}, "first axis is not the samples"),
        (Flattening, LINEARIZED, "first axis is not the samples"),
        (fully_convolutional, LINEARIZED, "must have one output per class"),
    ],
)
def test_images_of_another_size_raise(make, kwargs, message):
    """Four rows, or 75 logits, of an image: the check of `fit` does not suffice."""
    rng = np.random.default_rng(0)
    images_of_fit = rng.normal(size=(12, 1, 4, 4)).astype(np.float32)
    net = FrozenEstimator(pretrained(make(), classes=[0, 1, 2]))
    clf = Laplace(net, setting="a", n_samples=3, random_state=0, **kwargs)
    clf.fit(images_of_fit, np.arange(12) % 3)
    assert clf.predict_proba(images_of_fit).shape == (12, 3)
    larger = rng.normal(size=(5, 1, 8, 8)).astype(np.float32)
    for method in (clf.predict_proba, clf.predict_members, clf.predict_uncertainty):
        with pytest.raises(ValueError, match=message):
            method(larger)


def test_frozen_network_changed_in_place_is_probed_again():
    """What `fit` found about its layers is not used for others."""
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3))
    clf = Laplace(FrozenEstimator(pretrained(net, classes=[0, 1, 2])), n_samples=3)
    clf.set_params(setting="a", random_state=0).fit(X, np.arange(20) % 3)
    expected = clf.predict_proba(X)
    net.append(net[2])
    net[2] = nn.Identity()  # the last layer has another name
    assert_allclose(clf.predict_proba(X), expected, rtol=1e-6)
    net.append(nn.LogSoftmax(1))  # the output is not that of the last layer
    assert_allclose(clf.predict_proba(X), expected, rtol=1e-6)
    net[4] = nn.ReLU()
    with pytest.raises(ValueError, match="are not the output of one"):
        clf.predict_proba(X)


def _moments(n_samples=6, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n_samples, n_classes, n_classes))
    return 2 * rng.normal(size=(n_samples, n_classes)), half @ half.transpose(0, 2, 1)


def _diagonal(covariances):
    return np.diagonal(covariances, axis1=1, axis2=2)


def test_probit_against_a_loop():
    logits, covariances = _moments()
    result = probit_proba(logits, _diagonal(covariances))
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        e = [math.exp(f[k] / math.sqrt(1 + math.pi * S[k, k] / 8)) for k in range(4)]
        assert_allclose(result[i], np.array(e) / sum(e), rtol=1e-13)


def test_mean_field_against_a_loop():
    logits, covariances = _moments()
    result = mean_field_proba(logits, covariances)
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        p = []
        for k in range(4):
            total = 0.0
            for j in range(4):
                v = S[k, k] + S[j, j] - 2 * S[k, j]
                total += math.exp(-(f[k] - f[j]) / math.sqrt(1 + math.pi * v / 8))
            p.append(1 / total)
        assert_allclose(result[i], np.array(p) / sum(p), rtol=1e-12)


def test_no_variance_gives_the_softmax():
    logits, covariances = _moments()
    none = np.zeros_like(covariances)
    expected = softmax(logits, axis=1)
    assert_allclose(probit_proba(logits, _diagonal(none)), expected, rtol=1e-14)
    assert_allclose(mean_field_proba(logits, none), expected, rtol=1e-13)


def test_mean_field_of_two_classes_is_that_of_the_margin():
    """It is MacKay's, which is within 0.02 of the integral; the margin's probit too."""
    for mean, variance in [(0.5, 0.3), (2.0, 4.0), (-1.0, 25.0), (4.0, 9.0)]:
        expected = expit(mean / math.sqrt(1 + math.pi * variance / 8))
        logits = np.array([[-mean, mean]]) / 2
        covariances = variance / 4 * np.array([[[1.0, -1.0], [-1.0, 1.0]]])
        result = mean_field_proba(logits, covariances)[0, 1]
        assert result == pytest.approx(expected, rel=1e-13)
        margin = probit_proba(logits, np.array([[variance]]))[0, 1]
        assert margin == pytest.approx(expected, rel=1e-13)
        normal = stats.norm(mean, math.sqrt(variance))
        exact, _ = integrate.quad(
            lambda m, normal=normal: expit(m) * normal.pdf(m),
            *normal.interval(1 - 1e-14),
        )
        assert abs(result - exact) < 0.02


def test_mean_field_ignores_what_all_logits_share():
    """A constant, however uncertain, changes no probability. Probit is fooled."""
    logits, covariances = _moments()
    shared = covariances + 50.0
    assert_allclose(
        mean_field_proba(logits + 3.0, shared),
        mean_field_proba(logits, covariances),
        rtol=1e-12,
    )
    change = probit_proba(logits, _diagonal(shared)) - probit_proba(
        logits, _diagonal(covariances)
    )
    assert np.abs(change).max() > 0.1


def _dirichlet(alpha):
    """Mean and covariance of the Laplace approximation in the basis of the softmax."""
    n_classes = len(alpha)
    mean = np.log(alpha) - np.mean(np.log(alpha))
    inverse = 1 / alpha
    covariance = np.diag(inverse) - np.add.outer(inverse, inverse) / n_classes
    return mean, covariance + inverse.sum() / n_classes**2


@pytest.mark.parametrize("alpha", [[0.5, 2.0], [1.0, 2.0, 30.0], [0.1, 1, 5, 5, 900.0]])
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_bridge_returns_to_the_dirichlet(alpha, shift):
    """Also if a constant of the logits is uncertain: it is conditioned away."""
    alpha = np.array(alpha)
    mean, covariance = _dirichlet(alpha)
    covariance = covariance + shift
    log_alpha = bridge_log_alpha(
        mean[None], np.diag(covariance)[None], covariance.sum(axis=1)[None]
    )
    assert_allclose(np.exp(log_alpha[0]), alpha, rtol=1e-10)
    proba = bridge_proba(
        mean[None], np.diag(covariance)[None], covariance.sum(axis=1)[None]
    )
    assert_allclose(proba[0], alpha / alpha.sum(), rtol=1e-10)


@pytest.mark.parametrize("normalize", [False, True])
def test_bridge_against_a_loop(normalize):
    logits, covariances = _moments()
    result = bridge_proba(
        logits, _diagonal(covariances), covariances.sum(axis=2), normalize=normalize
    )
    K = logits.shape[1]
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        ones = np.ones(K)
        f = f - S @ ones * (ones @ f) / (ones @ S @ ones)
        S = S - np.outer(S @ ones, ones @ S) / (ones @ S @ ones)
        if normalize:
            c = np.mean(np.diag(S)) / math.sqrt(K / 2)
            f, S = f / math.sqrt(c), S / c
        alpha = []
        for k in range(K):
            total = sum(math.exp(-f[j]) for j in range(K))
            alpha.append((1 - 2 / K + math.exp(f[k]) / K**2 * total) / S[k, k])
        assert_allclose(result[i], np.array(alpha) / sum(alpha), rtol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_bridge_of_large_logits_is_finite(n_classes):
    logits = np.zeros((1, n_classes))
    logits[0, 0] = 5000.0
    variances, row_sums = np.ones((1, n_classes)), np.ones((1, n_classes))
    result = bridge_proba(logits, variances, row_sums)
    assert_allclose(result, np.eye(n_classes)[:1], atol=1e-300)


def test_bridge_of_hardly_any_variance_is_finite():
    zero = np.zeros((1, 3))
    logits = np.array([[1.0, 0.0, -1.0]])
    alpha = 1 / 3 + np.exp(logits[0]) / 9 * np.exp(-logits[0]).sum()
    assert_allclose(
        bridge_proba(logits, zero, zero)[0], alpha / alpha.sum(), rtol=1e-12
    )


@pytest.mark.parametrize(("n_outputs", "n_features"), [(120, 7), (40, 60), (5, 1)])
@pytest.mark.parametrize("precision", [1e-4, 1.0, 1e4])
def test_mean_field_of_blocks_is_that_of_whole_covariances(
    n_outputs, n_features, precision
):
    """Sums of few matrices, for any spread of eigenvalues and any size of blocks."""
    rng = np.random.default_rng(0)
    p = softmax(2 * rng.normal(size=(300, n_outputs)), axis=1)
    scales = 10.0 ** rng.uniform(-4, 4, size=n_features)
    features = torch.from_numpy(scales * rng.normal(size=(300, n_features)))
    sums = Kronecker.sums(features, torch.from_numpy(np.log(p)), n_outputs)
    curvature = Kronecker(*(tensor.numpy() for tensor in sums), n_samples=300)
    logits = torch.from_numpy(2 * rng.normal(size=(9, n_outputs)))
    samples = features[:9]
    # sums of squares: differences of covariances would lose digits
    tensors = curvature._along_outputs(samples, precision)
    along, vectors = (tensor.numpy() for tensor in tensors)
    gaps = (vectors[:, None] - vectors) ** 2
    spread = np.einsum("nj,klj->nkl", along, gaps)
    pairs = logits[:, :, None] - logits[:, None, :]
    scaled = pairs.numpy() / np.sqrt(1 + np.pi / 8 * spread)
    expected = softmax(-logsumexp(-scaled, axis=2), axis=1)
    for block_bytes in (1, 50_000, 2**20):
        blocks = curvature.pair_variances(samples, precision, block_bytes)
        result = mean_field_of_blocks(logits, blocks)
        assert_allclose(result, expected, rtol=1e-9)
