"""Likelihoods: what an estimator is, and the densities against formulas."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from scipy.stats import norm
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    Categorical,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    Gaussian,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
)
from skood.epistemic._likelihood import Block
from skood.epistemic.mcmc._base_sampler import Posterior
from skood.nn import TorchClassifier, TorchRegressor

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

X, LABELS = make_blobs(40, 3, centers=2, cluster_std=4.0, random_state=0)
NUMBERS = X @ [1.0, -2.0, 0.5] + np.random.default_rng(0).normal(size=40)
NET = {"module_params": {"dropout": 0.3}, "max_epochs": 3, "random_state": 0}
ESTIMATORS = [
    DeepEnsemble(None, 2, bootstrap=True, random_state=0),
    MCDropout(None, 3, random_state=0),
    Laplace(None, random_state=0),
    HMC(
        None,
        HMCKernel(n_leapfrog=3, n_warmup=4),
        n_samples=4,
        n_chains=2,
        random_state=0,
    ),
    CyclicalSGHMC(
        None,
        CyclicalSchedule(n_cycles=1, epochs_per_cycle=4, samples_per_cycle=2, lr=1e-4),
        random_state=0,
    ),
    QUAM(None, AdversarialSearch(n_steps=3), random_state=0),
]
each_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__
)


def _of(estimator, kind, **params):
    """The estimator around a classifier or a regressor, not fitted."""
    if isinstance(estimator, MCDropout):
        model = (TorchClassifier if kind == "classifier" else TorchRegressor)(**NET)
    else:
        model = LogisticRegression() if kind == "classifier" else Ridge()
    return clone(estimator).set_params(estimator=model, **params)


@each_estimator
def test_it_is_what_its_estimator_is(estimator):
    clf = _of(estimator, "classifier").fit(X, LABELS)
    assert is_classifier(clf) and get_tags(clf).classifier_tags is not None
    assert isinstance(clf.likelihood_, Categorical)
    assert clf.score(X, LABELS) == accuracy_score(LABELS, clf.predict(X))
    assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="return_std=True is for regressors, but"):
        clf.predict(X, return_std=True)
    reg = _of(estimator, "regressor").fit(X, NUMBERS)
    assert is_regressor(reg) and get_tags(reg).regressor_tags is not None
    assert isinstance(reg.likelihood_, Gaussian)
    assert reg.score(X, NUMBERS) == r2_score(NUMBERS, reg.predict(X))
    assert not hasattr(reg, "predict_proba") and not hasattr(reg, "classes_")
    pipeline = make_pipeline(StandardScaler(), _of(estimator, "regressor"))
    assert is_regressor(pipeline) and not hasattr(pipeline, "predict_proba")
    # from one kind to the other and back, nothing of the other is left
    reg.set_params(estimator=clf.estimator).fit(X, LABELS)
    assert_array_equal(reg.predict(X), clf.predict(X))
    fitted = [{k for k in vars(item) if k[0] != "_"} for item in (reg, clf)]
    assert fitted[0] == fitted[1] and not hasattr(reg, "covariance_")


@each_estimator
def test_variance_is_a_parameter(estimator):
    reg = _of(estimator, "regressor").set_params(likelihood__variance=0.5)
    reg.fit(X, NUMBERS)
    assert repr(reg.likelihood) == "Gaussian(variance=0.5)"
    assert not hasattr(reg.likelihood, "variance_")  # the user's is not fitted
    assert reg.likelihood_.variance_ == 0.5
    _, std = reg.predict(X[:3], return_std=True)
    _, spread = reg.predict(X[:3], return_std="epistemic")
    assert_allclose(std**2, 0.5 + spread**2)
    search = GridSearchCV(reg, {"likelihood__variance": [0.1, 2.0]}, cv=2)
    fitted = search.fit(X, NUMBERS).best_estimator_
    assert fitted.likelihood_.variance_ == search.best_params_["likelihood__variance"]


@each_estimator
def test_likelihoods_of_the_other_kind(estimator):
    reg = _of(estimator, "regressor", likelihood=Categorical())
    with pytest.raises(ValueError, match=r"Categorical\(\) is for classifiers, but"):
        reg.fit(X, NUMBERS)
    clf = _of(estimator, "classifier", likelihood=Gaussian())
    with pytest.raises(ValueError, match=r"Gaussian\(\) is for regressors, but"):
        clf.fit(X, LABELS)
    with pytest.raises(ValueError, match="'likelihood' parameter of"):
        clf.set_params(likelihood="normal").fit(X, LABELS)
    clf.set_params(estimator=LinearSVC(), likelihood="auto")
    with pytest.raises(ValueError, match="implementing 'fit' and 'predict_proba'"):
        clf.fit(X, LABELS)
    if not isinstance(estimator, Laplace):
        reg.set_params(likelihood=Gaussian("marglik"))
        with pytest.raises(ValueError, match="variance='marglik' maximizes"):
            reg.fit(X, NUMBERS)


def test_parameters_for_classifiers_only():
    with pytest.raises(ValueError, match="subset='all' is for classifiers: Laplace of"):
        Laplace(Ridge(), subset="all").fit(X, NUMBERS)
    with pytest.raises(ValueError, match="hessian='diag' is for classifiers: Laplace"):
        Laplace(Ridge(), hessian="diag").fit(X, NUMBERS)
    exact = [Laplace(Ridge(), hessian=h).fit(X, NUMBERS) for h in ("kron", "full")]
    assert_array_equal(*(reg.covariance_ for reg in exact))
    assert not hasattr(Laplace(LogisticRegression()).fit(X, LABELS), "covariance_")
    with pytest.raises(ValueError, match="component='laplace' is for classifiers, but"):
        QUAM(Ridge(), component="laplace").fit(X, NUMBERS)
    with pytest.raises(ValueError, match="is for classifiers, but Ridge is a regress"):
        MixtureLaplace(Laplace(Ridge())).fit(X, NUMBERS)


def test_temperature_is_another_variance_and_prior():
    """Densities of a regressor's weights differ by a constant, and gradients do not."""
    model, results = Ridge().fit(X, NUMBERS), []
    weights = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 4)))
    for variance, scale, temperature in ((0.5, 1.0, 4.0), (2.0, 2.0, 1.0)):
        likelihood = Gaussian(variance)
        likelihood.fit_targets(NUMBERS, None)
        options = {"prior_scale": scale, "temperature": temperature, "device": "cpu"}
        posterior = Posterior(model, X, NUMBERS, likelihood, **options)
        value, gradient = posterior.value_and_grad(weights)
        results.append((value - value[0], gradient))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variance", [0.7, "network"])
def test_densities(variance):
    rng = np.random.default_rng(1)
    outputs, y = rng.normal(size=(4, 5, 2)), rng.normal(size=5)
    gaussian = Gaussian(variance)
    gaussian.fit_targets(y, None)
    mean, scale2 = gaussian.predictions(outputs)
    expected = np.exp(outputs[:, :, 1]) if variance == "network" else 0.7
    assert_allclose(scale2, expected, rtol=1e-15)
    assert_array_equal(mean, outputs[:, :, 0])
    log_p = gaussian.log_density(torch.from_numpy(outputs), torch.from_numpy(y))
    assert_allclose(log_p, norm.logpdf(y, mean, np.sqrt(scale2)), rtol=1e-13)
    assert_allclose(gaussian.losses(outputs[0], y), -log_p[0], rtol=1e-15)
    codes = torch.arange(5) % 2
    log_p = Categorical().log_density(torch.from_numpy(outputs), codes)
    expected = log_softmax(outputs, axis=2)[:, np.arange(5), codes]
    assert_allclose(log_p, expected, rtol=1e-13)


@pytest.mark.parametrize("reference", [None, (np.zeros(3), 0.3)])
@pytest.mark.parametrize("weights", [None, np.array([[0.2, 0.5, 0.0], [0.8, 0.5, 1]])])
def test_moments_of_a_mixture(weights, reference):
    """Against loops over samples and members."""
    means = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, 0.25]])
    variances = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    block = Block((means, variances), weights, reference)
    result = np.array(Gaussian("network").mixture(block))
    for i in range(3):
        w = [0.5, 0.5] if weights is None else weights[:, i]
        if reference is None:
            mean = sum(w[m] * means[m, i] for m in range(2))
            noise = sum(w[m] * variances[m, i] for m in range(2))
        else:
            mean, noise = 0.0, 0.3
        spread = sum(w[m] * (means[m, i] - mean) ** 2 for m in range(2))
        assert_allclose(result[:, i], [mean, noise, spread], atol=1e-14)
