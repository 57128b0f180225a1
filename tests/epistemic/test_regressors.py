"""Companions of QUAM for regression: closed forms, one interface, detection."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import Bunch
from skorch import NeuralNetRegressor
from torch import nn

from skood.base import UncertaintyDetector, UncertaintyMixin
from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    Gaussian,
    HMCKernel,
    Laplace,
    MCDropout,
    gaussian_uncertainty,
)
from skood.epistemic.mcmc._base_sampler import Posterior
from skood.nn import TorchRegressor
from skood.utils._torch import seeded

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
y = X @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=40)
FAR = 5.0 * X[:6]
NOISE, PRECISION = 0.09, 0.25
TREE = DecisionTreeRegressor(splitter="random", max_depth=3)
TWO_OUTPUTS = TorchRegressor(
    module_params={"hidden": (6,), "dropout": 0.3},
    criterion="gaussian_nll",
    max_epochs=5,
    lr=0.01,
    random_state=0,
)


def _linear():
    """The mode of the posterior of a linear model, frozen."""
    model = Ridge(alpha=PRECISION * NOISE, fit_intercept=False)
    return FrozenEstimator(model.fit(X, y))


def _posterior(features=X, noise=NOISE, precision=PRECISION):
    """Mean and covariance of the weights."""
    inverse = features.T @ (features / np.reshape(noise, (-1, 1)))
    covariance = np.linalg.inv(inverse + precision * np.eye(features.shape[1]))
    return covariance @ (features / np.reshape(noise, (-1, 1))).T @ y, covariance


# --- Laplace approximation -----------------------------------------------------


def test_laplace_is_the_posterior_of_a_linear_model():
    reg = Laplace(_linear(), likelihood=Gaussian(NOISE), prior_precision=PRECISION)
    reg.fit(X, y)
    weights, covariance = _posterior()
    variance = np.einsum("ij,jk,ik->i", FAR, covariance, FAR)
    mean, std = reg.predict(FAR, return_std=True)
    assert_allclose(mean, FAR @ weights, rtol=1e-8)
    assert_allclose(std, np.sqrt(NOISE + variance), rtol=1e-8)
    assert_allclose(reg.predict(FAR, return_std="epistemic")[1] ** 2, variance, 1e-8)
    assert_allclose(reg.covariance_, covariance, rtol=1e-8)
    evidence = multivariate_normal(cov=NOISE * np.eye(40) + X @ X.T / PRECISION)
    assert reg.log_marginal_likelihood_ == pytest.approx(evidence.logpdf(y), rel=1e-8)


def test_marginal_likelihood_is_that_of_bayesian_ridge():
    zero = dict.fromkeys(["alpha_1", "alpha_2", "lambda_1", "lambda_2"], 0)
    ridge = BayesianRidge(fit_intercept=False, tol=1e-14, max_iter=10**4, **zero)
    ridge.fit(X, y)
    reg = Laplace(FrozenEstimator(ridge)).fit(X, y)
    assert reg.prior_precision_ == pytest.approx(ridge.lambda_, rel=1e-8)
    assert reg.likelihood_.variance_ == pytest.approx(1 / ridge.alpha_, rel=1e-8)
    assert_allclose(reg.covariance_, ridge.sigma_, rtol=1e-8)
    result, expected = (item.predict(FAR, return_std=True) for item in (reg, ridge))
    assert_allclose(result, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "original",
    [{}, {"likelihood__variance": 0.2}, {"prior_precision": 3.0}],
    ids=["both", "precision", "variance"],
)
@pytest.mark.parametrize("n_samples", [40, 5], ids=["many", "few"])
def test_marginal_likelihood_has_its_maximum(original, n_samples):
    """Against a search over both numbers, for weights that are not the mode."""
    samples, targets = X[:n_samples], y[:n_samples]
    model = Ridge(alpha=2.0).fit(samples, targets)
    reg = Laplace(FrozenEstimator(model)).set_params(**original).fit(samples, targets)
    ones = np.column_stack([samples, np.ones(n_samples)])
    weights = np.append(model.coef_, model.intercept_)

    def negative(logs):
        noise = original.get("likelihood__variance", np.exp(logs[0]))
        precision = original.get("prior_precision", np.exp(logs[1]))
        inverse = ones.T @ ones / noise + precision * np.eye(4)
        fit = norm.logpdf(targets, ones @ weights, np.sqrt(noise)).sum()
        prior = norm.logpdf(weights, scale=precision**-0.5).sum()
        volume = 2 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(inverse)[1]
        return -(fit + prior + volume)

    best = minimize(negative, [0.0, 0.0], method="Nelder-Mead", tol=1e-9)
    assert reg.log_marginal_likelihood_ == pytest.approx(-best.fun, rel=1e-8)
    assert reg.likelihood_.variance_ == pytest.approx(
        original.get("likelihood__variance", np.exp(best.x[0])), rel=1e-3
    )
    assert reg.prior_precision_ == pytest.approx(
        original.get("prior_precision", np.exp(best.x[1])), rel=1e-3
    )


def test_laplace_with_a_predicted_variance():
    net = clone(TWO_OUTPUTS).fit(X, y)
    reg = Laplace(
        FrozenEstimator(net), likelihood=Gaussian("network"), prior_precision=PRECISION
    ).fit(X, y)
    body = copy.deepcopy(nn.Sequential(*list(net.module_)[:-1])).double()

    def features(samples):
        with torch.no_grad():
            hidden = body(torch.from_numpy(samples)).numpy()
        return np.column_stack([hidden, np.ones(len(samples))])

    _, std = net.predict(X, return_std=True)
    _, covariance = _posterior(features(X), std**2)
    assert_allclose(reg.covariance_, covariance, rtol=1e-4)  # std in float32
    mean, far = net.predict(FAR, return_std=True)
    phi = features(FAR)
    expected = np.sqrt(far**2 + np.einsum("ij,jk,ik->i", phi, covariance, phi))
    predictions = reg.predict(FAR, return_std=True)
    assert_allclose(predictions, [mean, expected], rtol=1e-4)
    assert not hasattr(reg.likelihood_, "variance_")


@pytest.mark.parametrize("setting", ["a", "b"])
def test_laplace_uncertainty_is_the_limit_of_many_draws(setting):
    reg = Laplace(
        _linear(),
        n_samples=1000,
        setting=setting,
        likelihood=Gaussian(NOISE),
        random_state=0,
    ).fit(X, y)
    means = reg.predict_members(FAR)
    drawn = gaussian_uncertainty(
        means,
        NOISE,
        reference=(reg.predict(FAR), NOISE),
        setting=setting,
        return_error=True,
    )
    exact = reg.predict_uncertainty(FAR, return_error=True)
    error = np.abs(exact.epistemic - drawn.epistemic)
    assert (error < 4 * drawn.epistemic_error).all()
    assert (drawn.epistemic_error < 0.1 * exact.epistemic).all()
    assert_allclose(exact.aleatoric, drawn.aleatoric)
    assert_allclose(exact.total, exact.aleatoric + exact.epistemic)
    variance = reg.predict(FAR, return_std="epistemic")[1] ** 2
    factor = 1 if setting == "a" else 0.5
    assert_allclose(exact.epistemic, factor * variance / NOISE, rtol=1e-10)
    assert not exact.epistemic_error.any()
    assert_array_equal(exact.epistemic_interval.T, [exact.epistemic] * 2)


def test_errors_of_laplace():
    exact = FrozenEstimator(LinearRegression().fit(X[:3], y[:3]))
    with pytest.raises(ValueError, match="finds no best value: the features, or the"):
        zero = FrozenEstimator(LinearRegression(fit_intercept=False).fit(0 * X, y))
        Laplace(zero).fit(0 * X, y)
    square = nn.Sequential(nn.Linear(3, 1), nn.Tanh())
    with pytest.raises(ValueError, match="output of Sequential is not the output of"):
        Laplace(FrozenEstimator(_skorch(square))).fit(X, y)
    mean = exact.predict(X)
    with pytest.raises(ValueError, match=r"all samples \(n_samples=40\) exactly"):
        Laplace(exact).fit(X, mean)
    reg = Laplace(exact, likelihood=Gaussian(1.0)).fit(X, mean)
    assert reg.likelihood_.variance_ == 1.0


# --- samples of the weights ----------------------------------------------------


def test_hmc_samples_the_posterior_of_a_linear_model():
    reg = HMC(
        _linear(),
        HMCKernel(n_leapfrog=25, n_warmup=50),
        n_samples=150,
        setting="a",
        likelihood=Gaussian(NOISE),
        prior_scale=PRECISION**-0.5,
        random_state=2,
    ).fit(X, y)
    assert reg.r_hat_ < 1.05
    assert reg.r_hat_ == reg.r_hat_mean_.max()
    assert reg.r_hat_mean_.shape == (40,)
    weights, covariance = _posterior()
    members = reg.predict_members(FAR)
    drawn = reg.samples_["0.weight"][:, 0].astype(float)
    assert_allclose(members, drawn @ FAR.T, rtol=1e-6)
    # Monte Carlo errors from 24 batches of 25 draws
    for values, exact in (
        (drawn, weights),
        ((drawn - weights) ** 2, np.diag(covariance)),
    ):
        batches = values.reshape(24, 25, -1).mean(axis=1)
        error = batches.std(axis=0, ddof=1) / np.sqrt(24)
        assert (np.abs(values.mean(axis=0) - exact) < 3 * error).all()
        assert (error < 0.1 * np.std(values, axis=0)).all()
    mean, std = reg.predict(FAR, return_std="epistemic")
    variance = np.einsum("ij,jk,ik->i", FAR, covariance, FAR)
    assert (np.abs(mean - FAR @ weights) < 3 * np.sqrt(variance / 300)).all()
    assert_allclose(std**2, variance, rtol=3 * np.sqrt(2 / 300))


@pytest.mark.parametrize("variance", [0.3, "network"])
def test_log_posterior_and_gradient(variance):
    net = clone(TWO_OUTPUTS)
    if variance != "network":
        net.set_params(criterion="squared_error")
    net.fit(X, y)
    likelihood = Gaussian(variance)
    likelihood.fit_targets(y, None)
    posterior = Posterior(
        net, X, y, likelihood, prior_scale=2.0, temperature=0.5, device="cpu"
    )
    value, grad = posterior.value_and_grad(posterior.initial)
    if variance == "network":
        mean, std = net.predict(X, return_std=True)
    else:
        mean, std = net.predict(X), np.sqrt(variance)
    flat = posterior.initial.numpy()[0]
    expected = norm.logpdf(y, mean, std).sum() - (flat**2).sum() / 8
    assert float(value[0]) == pytest.approx(2 * expected, rel=1e-5)
    step = 1e-2 * grad / grad.norm()
    around = [
        float(posterior.value_and_grad(posterior.initial + s * step)[0][0])
        for s in (-1, 1)
    ]
    slope = (around[1] - around[0]) / (2e-2)
    assert slope == pytest.approx(float(grad.norm()), rel=1e-2)
    assert posterior.predictions(posterior.initial)[0] == pytest.approx(mean, abs=1e-6)


def test_cyclical_step_is_gradient_descent_on_the_likelihood():
    """Without noise and momentum, a step follows the mean negative log-likelihood."""
    reg = CyclicalSGHMC(
        FrozenEstimator(Ridge(alpha=9.0, fit_intercept=False).fit(X, y)),
        CyclicalSchedule(
            n_cycles=1,
            epochs_per_cycle=1,
            samples_per_cycle=1,
            exploration=1.0,
            lr=0.01,
            momentum=0.0,
        ),
        likelihood=Gaussian(NOISE),
        prior_scale=2.0,
    ).fit(X, y)
    w = reg.estimator_.coef_
    grad = X.T @ (y - X @ w) / NOISE - w / 4
    assert_allclose(reg.samples_["0.weight"].ravel(), w + 0.01 * grad / 40, rtol=1e-6)
    assert reg.predict_members(FAR).shape == (1, 6)


# --- dropout -------------------------------------------------------------------


def _skorch(module):
    with seeded(0):
        return NeuralNetRegressor(module).initialize()


def test_variance_of_dropout_before_a_linear_layer():
    module = nn.Sequential(nn.Dropout(0.2), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        module[1].weight.copy_(torch.tensor([[1.0, 2.0]]))
    net = FrozenEstimator(_skorch(module))
    reg = MCDropout(net, 1000, setting="a", likelihood=Gaussian(1.0), random_state=0)
    point = np.array([[3.0, 1.0]], dtype=np.float32)
    reg.fit(point, [5.0])
    values, counts = np.unique(reg.predict_members(point), return_counts=True)
    assert_allclose(values, [0.0, 2.5, 3.75, 6.25])
    shares = np.array([0.04, 0.16, 0.16, 0.64])  # of 00, 01, 10, 11
    assert np.sum(shares * (values - 5) ** 2) == pytest.approx(3.25)
    assert (np.abs(counts / 1000 - shares) < 4 * np.sqrt(shares / 1000)).all()
    _, std = reg.predict(point, return_std="epistemic")
    fourth = np.sum(shares * (values - 5) ** 4)
    error = np.sqrt((fourth - 3.25**2) / 1000)
    assert abs(std[0] ** 2 - 3.25) < 4 * error < 0.7
    uncertainty = reg.predict_uncertainty(point)
    assert uncertainty.epistemic[0] == pytest.approx(std[0] ** 2)
    reg.set_params(setting="b")
    assert reg.predict(point)[0] == 5.0
    expected = np.sum(counts / 1000 * (values - 5) ** 2) / 2
    assert reg.predict_uncertainty(point).epistemic[0] == pytest.approx(expected)


def test_dropout_of_two_outputs():
    reg = MCDropout(TWO_OUTPUTS, 20, likelihood=Gaussian("network"), random_state=0)
    reg.fit(X, y)
    alone = np.concatenate([reg.predict(x[None], return_std=True) for x in X], axis=1)
    assert_allclose(reg.predict(X, return_std=True), alone, rtol=1e-6)
    assert reg.predict_members(X).shape == (20, 40)


# --- ensembles -----------------------------------------------------------------


def test_spread_of_an_ensemble():
    reg = DeepEnsemble(TREE, 5, random_state=0).fit(X, y)
    members = np.array([estimator.predict(FAR) for estimator in reg.estimators_])
    assert_array_equal(reg.predict_members(FAR), members)
    mean, std = reg.predict(FAR, return_std="epistemic")
    assert_allclose(mean, members.mean(axis=0), rtol=1e-12)
    assert_allclose(std, np.std(members, axis=0), rtol=1e-12)
    assert reg.likelihood_.variance_ == pytest.approx(
        np.mean((y - reg.predict(X)) ** 2)
    )
    total = reg.predict(FAR, return_std=True)[1]
    assert_allclose(total, np.sqrt(reg.likelihood_.variance_ + std**2), rtol=1e-12)
    uncertainty = reg.predict_uncertainty(FAR)
    assert_allclose(
        uncertainty.epistemic, std**2 / reg.likelihood_.variance_, rtol=1e-10
    )
    assert_allclose(
        uncertainty.aleatoric,
        0.5 * np.log(2 * np.pi * np.e * reg.likelihood_.variance_),
    )


def test_ensemble_around_a_reference():
    original = FrozenEstimator(Ridge().fit(X, y))
    reg = DeepEnsemble(
        TREE, 5, reference=original, likelihood=Gaussian(2.0), random_state=0
    )
    reg.fit(X, y)
    members, mean = reg.predict_members(FAR), original.predict(FAR)
    assert_array_equal(reg.predict(FAR), mean)
    square = np.mean((members - mean) ** 2, axis=0)
    assert_allclose(reg.predict(FAR, return_std="epistemic")[1] ** 2, square)
    assert_allclose(reg.predict_uncertainty(FAR).epistemic, square / 4)


def test_ensemble_of_members_with_a_variance():
    """The mixture of normal distributions, against a sample of it."""
    members = [BayesianRidge(alpha_init=a, max_iter=1) for a in (0.1, 1.0, 10.0)]
    reg = DeepEnsemble(members, likelihood=Gaussian("network")).fit(X, y)
    means, stds = np.array(
        [clone(member).fit(X, y).predict(FAR, return_std=True) for member in members]
    ).swapaxes(0, 1)
    second = np.mean(stds**2 + means**2, axis=0)
    mean, std = reg.predict(FAR, return_std=True)
    assert_allclose(mean, means.mean(axis=0))
    assert_allclose(std, np.sqrt(second - mean**2), rtol=1e-8)
    expected = gaussian_uncertainty(means, stds**2)
    assert_allclose(reg.predict_uncertainty(FAR).total, expected.total)
    assert not hasattr(reg.likelihood_, "variance_")


def test_members_are_weighted_seeded_and_drawn():
    weight = np.arange(40) % 3
    reg = DeepEnsemble(Ridge(), 3, bootstrap=True, random_state=0)
    reg.fit(X, y, sample_weight=weight)
    again = clone(reg).fit(X, 1e6 * (weight == 0) + y, sample_weight=weight)
    assert_allclose(again.predict(X), reg.predict(X))  # weight zero is not drawn
    assert np.unique(reg.predict_members(FAR[:1])).size == 3
    residuals = (y - reg.predict(X)) ** 2
    assert reg.likelihood_.variance_ == pytest.approx(
        np.average(residuals, weights=weight)
    )


def test_errors_of_ensembles():
    with pytest.raises(ValueError, match="frozen, so that all 3 members would be the"):
        DeepEnsemble(FrozenEstimator(Ridge().fit(X, y)), 3).fit(X, y)
    with pytest.raises(TypeError, match="must hold models with fit and predict, got"):
        DeepEnsemble([StandardScaler()], likelihood=Gaussian()).fit(X, y)
    with pytest.raises(ValueError, match="empty list: DeepEnsemble needs"):
        DeepEnsemble([]).fit(X, y)
    with pytest.raises(TypeError, match=r"predict\(X, return_std=True\), but Ridge"):
        reg = DeepEnsemble(Ridge(), 2, likelihood=Gaussian("network")).fit(X, y)
        reg.predict(X)
    with pytest.raises(ValueError, match=r"all samples \(n_samples=40\) exactly"):
        DeepEnsemble(DecisionTreeRegressor(), 2).fit(X, y)
    with pytest.warns(UserWarning, match="the same predictions for 40 of the training"):
        DeepEnsemble(Ridge(), 2).fit(X, y)


# --- one interface --------------------------------------------------------------

NET = MLPRegressor(
    hidden_layer_sizes=(8,), activation="tanh", max_iter=30, random_state=0
)
REGRESSORS = [
    DeepEnsemble(TREE, 4, random_state=0),
    MCDropout(
        clone(TWO_OUTPUTS).set_params(criterion="squared_error"), 4, random_state=0
    ),
    Laplace(make_pipeline(StandardScaler(), NET), random_state=0),
    HMC(
        NET,
        HMCKernel(n_leapfrog=5, n_warmup=8),
        n_samples=8,
        n_chains=1,
        likelihood=Gaussian(0.5),
        random_state=0,
    ),
    CyclicalSGHMC(
        NET,
        CyclicalSchedule(n_cycles=2, epochs_per_cycle=6, samples_per_cycle=2, lr=1e-3),
        likelihood=Gaussian(0.5),
        random_state=0,
    ),
    QUAM(NET, AdversarialSearch(n_steps=5), likelihood=Gaussian(0.5), random_state=0),
]
each_regressor = pytest.mark.parametrize(
    "regressor", REGRESSORS, ids=lambda one: type(one).__name__
)


@each_regressor
def test_parts_fit_together(regressor):
    """Standard deviations and nats are of the same members."""
    for setting in ("a", "b"):
        reg = clone(regressor).set_params(setting=setting).fit(X, y)
        mean, std = reg.predict(FAR, return_std=True)
        same, spread = reg.predict(FAR, return_std="epistemic")
        assert_array_equal(mean, same)
        assert_allclose(mean, reg.predict(FAR), rtol=1e-12)
        assert_allclose(std**2, reg.likelihood_.variance_ + spread**2, rtol=1e-10)
        uncertainty = reg.predict_uncertainty(FAR)
        assert_allclose(
            uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic
        )
        if setting == "b":
            expected = spread**2 / (2 * reg.likelihood_.variance_)
            assert_allclose(uncertainty.epistemic, expected, rtol=1e-8)
        if type(reg) not in (Laplace, QUAM):  # in closed form, and weighted
            distances = np.mean((reg.predict_members(FAR) - mean) ** 2, axis=0)
            assert_allclose(spread**2, distances, rtol=1e-8)
    with pytest.raises(ValueError, match="False, True or 'epistemic', got 'total'"):
        reg.predict(FAR, return_std="total")


@each_regressor
def test_frozen_models_are_not_copied(regressor):
    if isinstance(regressor, DeepEnsemble):
        return
    frozen = FrozenEstimator(clone(regressor.estimator).fit(X, y))
    reg = clone(regressor).set_params(estimator=frozen).fit(X, y)
    assert_allclose(reg.predict(FAR), frozen.predict(FAR), rtol=1e-5)


@each_regressor
def test_detector_over_a_regressor(regressor):
    """Targets are not labels: -1 is no OOD label, and numbers are no classes."""
    targets = np.where(np.arange(40) % 4, y, -1.0)
    detector = UncertaintyDetector(regressor, contamination=0.1).fit(X, targets)
    expected = clone(regressor).fit(X, targets).predict_uncertainty(FAR).epistemic
    assert_allclose(detector.score_samples(FAR), -expected, rtol=1e-10)
    assert not hasattr(detector, "classes_")
    labels = np.repeat([1, -1], [40, 6])
    assert 0.0 <= detector.score(np.concatenate([X, FAR]), labels) <= 1.0


class Nearest(UncertaintyMixin, RegressorMixin, BaseEstimator):
    """The uncertainty is the distance to the nearest sample of the fit."""

    def fit(self, X, y, sample_weight=None):
        self.X_ = X if sample_weight is None else X[sample_weight > 0]
        return self

    def predict_uncertainty(self, X):
        distance = cdist(X, self.X_).min(axis=1)
        return Bunch(total=distance, aleatoric=0 * distance, epistemic=distance)


def test_threshold_of_a_detector_is_out_of_sample():
    rng = np.random.default_rng(1)
    samples, new = rng.normal(size=(2, 600, 2))
    detector = UncertaintyDetector(Nearest(), contamination=0.2)
    detector.fit(samples, samples[:, 0])
    # standard errors of the fraction, and of the quantile that the threshold is
    error = np.sqrt(2 * 0.2 * 0.8 / 600)
    assert abs(np.mean(detector.predict(new) == -1) - 0.2) < 3 * error
    # samples without a weight are left out, also of the quantile
    samples[::2] *= 9
    detector.fit(samples, samples[:, 0], sample_weight=np.arange(600) % 2)
    assert abs(np.mean(detector.predict(new) == -1) - 0.2) < 4 * error
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        detector.fit(samples, samples[:-1, 0])


def test_errors_of_networks():
    with pytest.raises(TypeError, match="weights of RandomForestRegressor: use an MLP"):
        HMC(RandomForestRegressor(n_estimators=2)).fit(X, y)
    with pytest.raises(ValueError, match=r"no torch\.nn dropout module with"):
        MCDropout(Ridge()).fit(X, y)
    with pytest.raises(ValueError, match=r"shape \(2,\) for each .* expected \(1,\)"):
        MCDropout(TWO_OUTPUTS).fit(X, y)
    with pytest.raises(ValueError, match=r"shape \(1,\) for each .* expected \(2,\)"):
        CyclicalSGHMC(Ridge(), likelihood=Gaussian("network")).fit(X, y)
