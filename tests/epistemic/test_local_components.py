"""Distributions around adversarial models: densities, draws, and a known answer."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import nn

from skood.epistemic import (
    LocalComponent,
    importance_estimate,
    kl_divergence,
)
from skood.epistemic.quam import _local_components as components
from skood.epistemic.quam._adversarial_models import BestModels
from skood.epistemic.quam._local_components import (
    NormalMixture,
    draw_members,
    normals_at,
)
from skood.epistemic.quam._searches import Searches
from skood.nn import pretrained
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._quam import FIELDS, QUICK, STEP, make_quam
from tests.epistemic._tails import make_tail

KINDS = "laplace", "subspace", "sgmcmc"


class Problem:
    """A fitted QUAM, its searched layers and stored samples, and some models."""

    def __init__(self, quam, X, n_models=3, size=0.1):
        searches = Searches(quam)
        self.quam = quam
        self.tail, samples = searches._opened(X)
        self.points, self.reference = searches._run(self.tail, samples)
        targets = quam._targets(self.reference[:1])
        self.task = quam._task(targets, self.reference[:1], self.tail)
        self.stored = searches.stored(self.tail.network.device, self.task)
        theta = self.tail.flatten(self.tail.start(n_models)).double()
        noise = np.random.default_rng(0).normal(scale=size, size=theta.shape)
        self.theta = theta + torch.from_numpy(noise)

    def members(self, kind, theta=None, iterates=None, *, rank=2, seed=0, **params):
        component = LocalComponent(kind, **params)
        theta = self.theta if theta is None else theta
        options = component, 0.1, rank, seed
        return draw_members(
            self.tail, self.stored, self.points[:1], theta, iterates, options
        )


@pytest.fixture
def problem(data, mlp):
    quam = make_quam(FrozenEstimator(mlp), **QUICK, **STEP).fit(*data)
    return Problem(quam, data[0][:2])


# ---- a known answer: two modes of the posterior times the divergence


EXACT = 4.609
MODES = torch.tensor([[4.3109, -3.0614], [4.4805, 1.9266]], dtype=torch.float64)


def _logistic_samples():
    rng = np.random.default_rng(0)
    parts = [0.5 * rng.normal(size=(10, 2)) + [side, 0] for side in (-1, 1)]
    return np.concatenate(parts), np.repeat([0, 1], 10)


@pytest.fixture(scope="module")
def logistic():
    """Logistic regression without intercept, with the prior N(0, 9 I); the MAP."""
    X, y = _logistic_samples()
    clf = LogisticRegression(C=9, fit_intercept=False, tol=1e-12).fit(X, y)
    assert_allclose(clf.coef_, [[4.08064, -0.63576]], atol=1e-5)
    module = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(clf.coef_))
    x = np.array([[0.3, 6.0]])
    # the prior as weight decay of the search, where the training loss has the weight n
    search = {"n_steps": 100, "c0": 20.0, "lr": 0.1, "weight_decay": 1 / 9}
    quam = make_quam(
        pretrained(module, [0, 1]),
        scope="last",
        component=LocalComponent("laplace", n_samples=250, prior_precision=1 / 9),
        batch_size=20,
        random_state=0,
        device="cpu",
        **search,
    ).fit(X, y)
    assert quam.predict_proba(x)[0, 1] == pytest.approx(0.069759, abs=1e-6)
    return Problem(quam, x), x


def _studied(logistic, theta, n_samples, n_repetitions, factor=1.0):
    """Mean, standard deviation and coverage of estimates with 500 draws."""
    problem, _ = logistic
    stored, result, covered = problem.stored, [], []
    mixture = normals_at(problem.tail, stored, theta, 1 / 9)
    if factor != 1:
        mixture._roots = mixture._roots * math.sqrt(factor)
    X, y = _logistic_samples()
    x, reference = problem.points[0].numpy(), problem.reference
    for seed in range(n_repetitions):
        draws = mixture.draw(n_samples, torch.Generator().manual_seed(seed))
        log_q = mixture.log_density(draws).numpy()
        draws = draws.numpy()
        margins = (draws @ X.T) * np.where(y, 1, -1)
        log_p = -np.logaddexp(0, -margins).sum(1) - (draws**2).sum(1) / 18
        margin = draws @ x
        outputs = -np.logaddexp(0, np.stack([margin, -margin], axis=1))
        weights = softmax(log_p - log_q)
        if seed == 0 and factor == 1:  # the same by the code under test
            separate, log_weights = problem.members(
                "laplace", theta, n_samples=n_samples, prior_precision=1 / 9
            )
            assert_allclose(separate.numpy(), outputs, rtol=1e-9, atol=1e-12)
            assert_allclose(softmax(log_weights.numpy()), weights, rtol=1e-8)
        estimate = importance_estimate(kl_divergence(reference, outputs), weights)
        result.append(estimate.estimate)
        covered.append(estimate.interval[0] <= EXACT <= estimate.interval[1])
    return np.mean(result), np.std(result), np.mean(covered)


def test_known_answer(logistic):
    """By quadrature; two adversarial components, and weights of the posterior."""
    X, y = _logistic_samples()
    center = np.array([4.08064, -0.63576])
    a, b = np.meshgrid(*(np.linspace(-r, r, 601) for r in (30, 20)), indexing="ij")
    w = np.stack([a.ravel(), b.ravel()], axis=1) + center
    margins = (w @ X.T) * np.where(y, 1, -1)
    p = softmax(-np.logaddexp(0, -margins).sum(1) - (w**2).sum(1) / 18)
    margin = w @ [0.3, 6.0]
    outputs = -np.logaddexp(0, np.stack([margin, -margin], axis=1))
    problem, _ = logistic
    exact = p @ kl_divergence(problem.reference, outputs)
    assert exact == pytest.approx(EXACT, abs=1e-3)
    mixture = np.log(p @ np.exp(outputs))[None]
    assert p @ kl_divergence(outputs, mixture) == pytest.approx(0.5951, abs=1e-3)
    mean, _, coverage = _studied(logistic, MODES, 250, 60)
    assert mean == pytest.approx(EXACT, abs=3 * 0.341 / math.sqrt(60))
    assert coverage > 0.85


@pytest.mark.slow
def test_known_answer_in_many_repetitions(logistic):
    """Mean, standard deviation and coverage; the draws are stratified by component."""
    mean, deviation, coverage = _studied(logistic, MODES, 250, 400)
    assert mean == pytest.approx(4.605, abs=0.05)
    assert deviation == pytest.approx(0.341, abs=0.04)
    assert coverage == pytest.approx(0.948, abs=0.03)
    problem, _ = logistic
    original = torch.from_numpy(
        problem.quam.estimator_.estimator.module_.weight.detach().numpy()
    )
    both = torch.cat([MODES, original])
    mean, deviation, coverage = _studied(logistic, both, 167, 400)
    assert mean == pytest.approx(4.587, abs=0.05)
    assert deviation == pytest.approx(0.337, abs=0.04)
    assert coverage == pytest.approx(0.945, abs=0.03)
    # around the reference alone the interval is too short, and more so if it is narrow;
    # the variance is infinite, see below: .498 in the specification, .49 to .77 here
    mean, deviation, coverage = _studied(logistic, original, 500, 400)
    assert mean == pytest.approx(4.56, abs=0.1)
    assert 0.45 < deviation < 0.8
    assert coverage == pytest.approx(0.90, abs=0.03)
    mean, _, coverage = _studied(logistic, original, 500, 400, factor=4.0)
    assert mean == pytest.approx(3.77, abs=0.3)
    assert coverage == pytest.approx(0.46, abs=0.08)


def test_variance_of_a_single_component_is_infinite(logistic):
    """p^2 / q grows along the eigenvector with the largest precision."""
    problem, _ = logistic
    theta = problem.tail.flatten(problem.tail.start(1))
    root = normals_at(problem.tail, problem.stored, theta, 1 / 9)._roots[0]
    values, vectors = np.linalg.eigh((root @ root.T).numpy())
    assert_allclose(values, [0.185156, 0.432752], atol=1e-5)
    assert values[1] > 2 / 9  # twice the precision of the prior
    X, y = _logistic_samples()
    mixture = NormalMixture(theta, (root @ root.T)[None])
    direction = vectors[:, 1] * np.sign(vectors[0, 1])  # to larger margins
    w = theta.numpy() + np.array([[10.0], [20.0], [40.0]]) * direction
    margins = (w @ X.T) * np.where(y, 1, -1)
    log_p = -np.logaddexp(0, -margins).sum(1) - (w**2).sum(1) / 18
    log_ratio = 2 * log_p - mixture.log_density(torch.from_numpy(w)).numpy()
    assert (np.diff(log_ratio) > 0).all()


def test_two_models_alone_are_biased(logistic):
    """6.14 with the weights of the posterior, without the volume around them."""
    problem, _ = logistic
    X, y = _logistic_samples()
    w = MODES.numpy()
    margins = (w @ X.T) * np.where(y, 1, -1)
    log_p = -np.logaddexp(0, -margins).sum(1) - (w**2).sum(1) / 18
    original = problem.tail.flatten(problem.tail.start(1)).numpy()
    original_margins = (original @ X.T) * np.where(y, 1, -1)
    best = -np.logaddexp(0, -original_margins).sum() - (original**2).sum() / 18
    assert_allclose(best - log_p, [0.54, 0.61], atol=5e-3)
    margin = w @ [0.3, 6.0]
    outputs = -np.logaddexp(0, np.stack([margin, -margin], axis=1))
    result = softmax(log_p) @ kl_divergence(problem.reference, outputs)
    assert result == pytest.approx(6.14, abs=0.01)


def test_components_of_a_search(logistic):
    """The adversarial models that QUAM finds, in place of the exact modes."""
    problem, x = logistic
    (models,) = problem.quam.adversarial_models(x, slack=0.1)
    theta = torch.from_numpy(models.weights["weight"][:, 0])
    assert (theta - problem.tail.flatten(problem.tail.start(1))).abs().max() > 0.5
    mean, deviation, coverage = _studied(logistic, theta, 250, 60)
    assert mean == pytest.approx(EXACT, abs=3 * deviation / math.sqrt(60))
    assert deviation < 0.5
    assert coverage > 0.85
    # the same models, and draws, are the members of QUAM
    outputs, log_weights = problem.members(
        "laplace",
        theta,
        n_samples=250,
        prior_precision=1 / 9,
        seed=problem.quam._seed,
    )
    divergence = kl_divergence(problem.reference, outputs.numpy())
    expected = softmax(log_weights.numpy()) @ divergence
    uncertainty = problem.quam.predict_uncertainty(x)
    assert uncertainty.epistemic[0] == pytest.approx(expected, rel=1e-8)


# ---- densities


@pytest.mark.parametrize("is_full", [True, False])
def test_normal_mixture(is_full):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 4))
    roots = rng.normal(size=(3, 4, 4)) + 2 * np.eye(4)
    precisions = roots @ roots.transpose(0, 2, 1)
    if not is_full:
        precisions = precisions.diagonal(axis1=1, axis2=2).copy()
    mixture = NormalMixture(torch.from_numpy(means), torch.from_numpy(precisions))
    matrices = (
        precisions if is_full else [np.diag(precision) for precision in precisions]
    )
    theta = rng.normal(size=(5, 4))
    densities = [
        multivariate_normal(mean, np.linalg.inv(matrix)).pdf(theta)
        for mean, matrix in zip(means, matrices, strict=True)
    ]
    result = mixture.log_density(torch.from_numpy(theta))
    assert_allclose(result, np.log(np.mean(densities, axis=0)), rtol=1e-10)
    draws = mixture.draw(40000, torch.Generator().manual_seed(0)).numpy()
    for k, component in enumerate(draws.reshape(3, 40000, 4)):
        covariance = np.linalg.inv(matrices[k])
        scale = np.sqrt(np.diag(covariance))
        assert_allclose((component.mean(0) - means[k]) / scale, 0, atol=0.02)
        apart = (np.cov(component.T) - covariance) / np.outer(scale, scale)
        assert_allclose(apart, 0, atol=0.03)


def _hessian(problem, theta):
    """Gauss-Newton matrix of a model by derivatives of all logits, sample by sample."""
    tail, n_weights = problem.tail, len(theta)
    total = torch.zeros(n_weights, n_weights, dtype=torch.float64)
    for row in problem.stored.features:

        def logits(item, row=row):
            weights = tail.stacked(item.detach()[None])
            result = tail.logits(weights, row[None], row[None])[0][0, 0]
            return result, weights

        output, weights = logits(theta)
        if len(output) == 1:
            output = torch.cat([-output, output]) / 2
        jacobian = torch.stack(
            [
                torch.cat(
                    [
                        g.flatten()
                        for g in tail.by_search(
                            list(torch.autograd.grad(z, weights, retain_graph=True))
                        )
                    ]
                )
                for z in output
            ]
        )
        p = torch.softmax(output, 0).detach()
        total += jacobian.T @ (torch.diag(p) - torch.outer(p, p)) @ jacobian
    return total.detach()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_full_matrix_of_a_last_layer(data, n_classes, bias):
    X, y = data
    module = nn.Linear(5, 1 if n_classes == 2 else 3, bias=bias).double()
    quam = make_quam(
        pretrained(module, range(n_classes)), scope="last", **QUICK, **STEP
    ).fit(X / 10, y % n_classes)
    problem = Problem(quam, X[:1] / 10, size=0.5)
    assert len(problem.stored.features) == 48 < problem.stored.n_samples == 60
    mixture = normals_at(problem.tail, problem.stored, problem.theta, 0.7)
    for root, theta in zip(mixture._roots, problem.theta, strict=True):
        expected = _hessian(problem, theta).numpy() * 60 / 48 + 0.7 * np.eye(len(theta))
        assert_allclose(root @ root.T, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scope", ["last", "dense", "full", "bias", "adapter"])
def test_diagonal(scope, monkeypatch):
    """By matrix products for linear layers, else by derivatives of each sample."""
    monkeypatch.setattr(components, "_MOST_FULL", 0)
    X, y = digits(9, dtype=np.float64)
    module = nn.Sequential(
        nn.AvgPool2d(7),
        nn.Conv2d(1, 3, 2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(27, 5),
        nn.ReLU(),
        nn.Linear(5, 4),
    ).double()
    quam = make_quam(pretrained(module), scope=scope, **QUICK, **STEP).fit(X, y)
    problem = Problem(quam, X[:1], n_models=2)
    mixture = normals_at(problem.tail, problem.stored, problem.theta, 0.5)
    for root, theta in zip(mixture._roots, problem.theta, strict=True):
        expected = _hessian(problem, theta).diagonal() + 0.5
        assert_allclose(root**2, expected, rtol=1e-8, atol=1e-12)


# ---- draws of each kind


def test_weights_of_laplace(problem, data):
    """Posterior over mixture density, with all stored samples."""
    outputs, log_weights = problem.members("laplace", n_samples=4, prior_precision=0.3)
    assert outputs.shape == (12, 3)
    stored, tail = problem.stored, problem.tail
    mixture = normals_at(tail, stored, problem.theta, 0.3)
    draws = mixture.draw(4, torch.Generator().manual_seed(0))
    for w, log_weight, output in zip(draws, log_weights, outputs, strict=True):
        weights = tail.stacked(w[None])
        samples, point = tail.logits(weights, stored.features, problem.points[:1])
        log_p = torch.log_softmax(samples[0], 1)
        likelihood = log_p[range(48), stored.targets].sum() * 60 / 48
        prior = -0.15 * w.square().sum()
        expected = likelihood + prior - mixture.log_density(w[None])[0]
        assert float(log_weight) == pytest.approx(float(expected.detach()), rel=1e-9)
        assert_allclose(output, torch.log_softmax(point[0], 0).detach(), rtol=1e-9)


def test_subspace(problem):
    """Draws have the covariance of the iterates, in the first directions."""
    rng = np.random.default_rng(0)
    n_weights = problem.theta.shape[1]
    steps = rng.normal(size=(3, 20, n_weights)) * np.linspace(1, 0.1, n_weights)
    iterates = torch.from_numpy(steps)
    draws = components._in_subspace(
        problem.theta, iterates, 3, 4000, torch.Generator().manual_seed(0)
    )
    for k, component in enumerate(draws.view(3, 4000, -1).numpy()):
        values, vectors = np.linalg.eigh(np.cov(steps[k].T))
        top = vectors[:, -3:]
        moved = component - problem.theta[k].numpy()
        assert_allclose(moved - moved @ top @ top.T, 0, atol=1e-10)
        result = np.cov((moved @ top).T)
        assert_allclose(result, np.diag(values[-3:]), atol=0.1 * values[-1])
        assert_allclose((moved @ top).mean(0), 0, atol=0.06 * np.sqrt(values[-1]))
    outputs, log_weights = problem.members(
        "subspace", iterates=iterates, n_samples=5, prior_precision=0.3
    )
    draws = components._in_subspace(
        problem.theta, iterates, 2, 5, torch.Generator().manual_seed(0)
    )
    losses = problem.stored.loss(
        problem.tail, problem.tail.stacked(draws), problem.points[:1]
    )
    expected = -60 * losses - 0.15 * draws.square().sum(1)
    assert_allclose(log_weights, expected, rtol=1e-9)
    assert outputs.shape == (15, 3)


def test_last_models_of_a_search():
    """They are the 20 last ones, with the last step."""
    samples, _ = digits(4, dtype=np.float64)
    _, tail = make_tail(lenet(torch.float64), "last", samples, n_classes=4)
    best = BestModels(tail, np.zeros(30), np.inf, n_iterates=20)
    for step in range(30):
        weights = tail.start(2)
        with torch.no_grad():
            for weight in weights:
                weight += step
        best.update(step, weights, -torch.ones(2) * step, torch.zeros(2))
    original = tail.flatten(tail.start(2))
    assert best.iterates.shape == (2, 20, 340)
    for i in range(20):
        assert_allclose(best.iterates[:, i], original + 10 + i, rtol=1e-12)


def test_chains_equal_a_plain_loop(problem):
    """Momentum with friction and noise, and mini-batches in the order of the steps."""
    outputs, log_weights = problem.members(
        "sgmcmc", n_samples=3, thinning=2, lr=0.05, prior_precision=0.3
    )
    tail, stored = problem.tail, problem.stored
    generator = torch.Generator().manual_seed(0)
    views = [v.detach().clone() for v in tail.by_search(tail.stacked(problem.theta))]
    momenta = [torch.zeros_like(view) for view in views]
    h, retained = math.sqrt(0.05 / 60), []
    for step in range(6):
        samples, codes = stored.batches[step]
        weights = tail.stacked(torch.cat([v.flatten(1) for v in views], dim=1))
        logits, _ = tail.logits(weights, samples, problem.points[:1])
        loss = (
            60
            * nn.functional.cross_entropy(
                logits.flatten(0, 1), codes.repeat(3), reduction="none"
            )
            .view(3, -1)
            .mean(1)
            .sum()
        )
        loss.backward()
        gradients = tail.by_search([weight.grad for weight in weights])
        for view, momentum, gradient in zip(views, momenta, gradients, strict=True):
            noise = torch.randn(view.shape, generator=generator).double()
            momentum *= 0.9
            momentum -= h * (gradient + 0.3 * view)
            momentum += math.sqrt(0.2) * noise
            view += h * momentum
        if step % 2:
            retained.append(torch.cat([v.flatten(1) for v in views], dim=1))
    draws = torch.stack(retained, 1).flatten(0, 1)
    weights = tail.stacked(draws)
    logits = tail.logits(weights, stored.features, problem.points[:1])
    assert_allclose(outputs, torch.log_softmax(logits[1], 1).detach(), rtol=1e-7)
    losses = stored.loss(tail, weights, problem.points[:1]).view(3, 3).mean(1)
    assert_allclose(log_weights, (-losses / 0.1).repeat_interleave(3), rtol=1e-7)


def test_chains_sample_the_posterior(logistic):
    """On the logistic regression, against quadrature."""
    problem, _ = logistic
    theta = MODES.repeat(100, 1)
    outputs, _ = problem.members(
        "sgmcmc", theta, n_samples=40, thinning=5, lr=0.01, prior_precision=1 / 9
    )
    late = np.exp(outputs.numpy()).reshape(200, 40, 2)[:, 20:, 1]
    X, y = _logistic_samples()
    a, b = np.meshgrid(*(np.linspace(-r, r, 401) for r in (30, 20)), indexing="ij")
    w = np.stack([a.ravel(), b.ravel()], axis=1)
    margins = (w @ X.T) * np.where(y, 1, -1)
    p = softmax(-np.logaddexp(0, -margins).sum(1) - (w**2).sum(1) / 18)
    exact = p @ (1 / (1 + np.exp(-w @ [0.3, 6.0])))
    error = late.mean(axis=1).std() / math.sqrt(200)
    assert abs(late.mean() - exact) < 4 * error
    assert error < 0.05


# ---- as a part of QUAM


def _quam(data, mlp, component, **params):
    params = {**QUICK, **STEP, **params}
    return make_quam(FrozenEstimator(mlp), component=component, **params).fit(*data)


@pytest.mark.parametrize("setting", ["a", "b"])
@pytest.mark.parametrize("kind", KINDS)
def test_points_and_chunks_do_not_matter(data, mlp, kind, setting):
    X, _ = data
    component = LocalComponent(kind, n_samples=3, thinning=2)
    quam = _quam(data, mlp, component, setting=setting)
    together = quam.predict_uncertainty(X[:4])
    assert quam.predict_members(X[:4]).shape == (9, 4, 3)
    for chunk_size in (1, 3):
        quam.set_params(search__chunk_size=chunk_size)
        uncertainty = quam.predict_uncertainty(X[:4])
        for name in FIELDS:
            assert_allclose(uncertainty[name], together[name], rtol=1e-6, atol=1e-12)
    assert (together.epistemic > 0).all()
    assert_allclose(quam.predict_proba(X), mlp.predict_proba(X), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The epistemic uncertainty of:UserWarning")
@pytest.mark.parametrize("kind", ["laplace", "sgmcmc"])
def test_reference_as_a_component(data, mlp, kind):
    X, _ = data
    component = LocalComponent(kind, n_samples=3, include_reference=True)
    quam = _quam(data, mlp, component)
    assert quam.predict_members(X[:2]).shape == (12, 2, 3)
    uncertainty = quam.predict_uncertainty(X[:2], return_error=True)
    assert (uncertainty.n_effective <= (4 if kind == "sgmcmc" else 12) + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_components(data, mlp, kind):
    """A name is a component with its defaults, whose parameters can be set."""
    X, _ = data
    named, original = (
        _quam(data, mlp, component).predict_members(X[:2])
        for component in (kind, LocalComponent(kind))
    )
    assert_array_equal(named, original)
    assert named.shape == (30, 2, 3)
    quam = _quam(data, mlp, kind).set_params(component__n_samples=2)
    assert quam.component.kind == kind
    assert quam.predict_members(X[:2]).shape == (6, 2, 3)


def test_delta_is_the_default(data, mlp, quam):
    X, _ = data
    expected = quam.predict_uncertainty(X[:2])
    for component in ("delta", LocalComponent("delta")):
        uncertainty = _quam(data, mlp, component).predict_uncertainty(X[:2])
        assert_array_equal(uncertainty.epistemic, expected.epistemic)


def test_slack_of_the_components(data, mlp, monkeypatch):
    """2 / n without `gamma`, else `gamma`; or as given."""
    X, _ = data
    slacks = []

    class Recorded(BestModels):
        def __init__(self, tail, original, slack, n_iterates=0):
            slacks.append(slack)
            super().__init__(tail, original, slack, n_iterates)

    monkeypatch.setattr("skood.epistemic.quam._searches.BestModels", Recorded)
    for slack, gamma in ((None, 0.0), (None, 0.2), (0.01, 0.2)):
        component = LocalComponent("laplace", slack=slack)
        _quam(data, mlp, component, gamma=gamma).predict_uncertainty(X[:1])
    assert slacks == [2 / 60, 0.2, 0.01]


def test_bad_parameters(data, mlp):
    X, _ = data
    component = LocalComponent("subspace", include_reference=True)
    with pytest.raises(ValueError, match="needs kind='laplace' or 'sgmcmc': there is"):
        _quam(data, mlp, component).predict_uncertainty(X[:1])
    with pytest.raises(ValueError, match="'n_samples' parameter of LocalComponent"):
        _quam(data, mlp, LocalComponent(n_samples=0))
    with pytest.raises(ValueError, match="'component' parameter of QUAM"):
        _quam(data, mlp, "swag")
    component = LocalComponent("sgmcmc", lr=1e6, n_samples=40)
    text = "outputs of NaN or infinity. Raise its prior_precision=1.0, lower its lr=10"
    with pytest.raises(ValueError, match=text):
        _quam(data, mlp, component).predict_uncertainty(X[:1])


def test_single_effective_member_is_reported(data, mlp):
    """The advice is about draws, and not the temperature, which is not used."""
    X, _ = data
    component = LocalComponent("laplace", n_samples=1, prior_precision=1e-4)
    quam = _quam(data, mlp, component, targets=1)
    with pytest.warns(UserWarning, match="Use more members .n_samples of the comp"):
        quam.predict_uncertainty(X[:2], return_error=True)


def test_images():
    """Dense layers of a convolutional network in single precision."""
    X, y = digits(40)
    for kind in KINDS:
        component = LocalComponent(kind, n_samples=2, thinning=2)
        quam = make_quam(pretrained(lenet()), component=component, **QUICK).fit(X, y)
        uncertainty = quam.predict_uncertainty(X[:2])
        assert np.isfinite(uncertainty.epistemic).all()
        assert quam.predict_members(X[:2]).shape == (8, 2, 4)
