"""Mixtures of Laplace approximations against what they are made of."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from skood.epistemic import DeepEnsemble, Laplace, MixtureLaplace, member_uncertainty


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 4)) + 2 * np.eye(4)[y], y


NET = MLPClassifier((6,), solver="lbfgs", max_iter=30)


def test_is_the_mean_of_its_approximations(data):
    X, y = data
    clf = MixtureLaplace(Laplace(NET, n_samples=4), 3, random_state=0).fit(X, y)
    parts = [approximation.predict_proba(X) for approximation in clf.approximations_]
    assert_allclose(clf.predict_proba(X), sum(parts) / 3, rtol=1e-13)
    members = clf.predict_members(X)
    assert members.shape == (12, 90, 3)
    parts = [approximation.predict_members(X) for approximation in clf.approximations_]
    assert_array_equal(members, np.concatenate(parts))
    expected = member_uncertainty(np.log(members))
    uncertainty = clf.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-9)
    for approximation, net in zip(
        clf.approximations_, clf.estimator_.estimators_, strict=True
    ):
        alone = Laplace(FrozenEstimator(net), setting="a").fit(X, y)
        assert approximation.prior_precision_ == alone.prior_precision_
        assert_array_equal(approximation.predict_proba(X), alone.predict_proba(X))


def test_approximations_draw_differently(data):
    """Also around equal networks, else draws of the members would be copies."""
    X, y = data
    net = FrozenEstimator(NET.set_params(random_state=0).fit(X, y))
    NET.set_params(random_state=None)
    with pytest.warns(match="the same probabilities"):
        clf = MixtureLaplace(Laplace([net, net], n_samples=3), random_state=0).fit(X, y)
    first, second = (
        approximation.predict_members(X) for approximation in clf.approximations_
    )
    assert np.abs(first - second).max() > 1e-3


def test_strong_prior_leaves_the_ensemble(data):
    X, y = data
    ensemble = DeepEnsemble(NET, 3, random_state=1)
    clf = MixtureLaplace(Laplace(ensemble, prior_precision=1e14), random_state=0).fit(
        X, y
    )
    expected = ensemble.fit(X, y)
    assert_allclose(clf.predict_proba(X), expected.predict_proba(X), atol=1e-5)
    assert_allclose(
        clf.predict_uncertainty(X).epistemic,
        expected.predict_uncertainty(X).epistemic,
        atol=1e-5,
    )


def test_frozen_ensemble_is_the_fixed_model(data):
    X, y = data
    ensemble = DeepEnsemble(NET, 2, random_state=0).fit(X, y)
    clf = MixtureLaplace(
        Laplace(FrozenEstimator(ensemble), n_samples=3), random_state=0
    )
    clf.fit(X, y)
    reference = ensemble.predict_proba(X)
    assert_allclose(clf.predict_proba(X), reference, rtol=1e-12)
    with np.errstate(divide="ignore"):
        members = np.log(clf.predict_members(X))
    expected = member_uncertainty(members, reference=np.log(reference), setting="b")
    uncertainty = clf.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-8)
    mixture = clf.set_params(setting="a").predict_proba(X)
    assert np.abs(mixture - reference).max() > 1e-3


def test_frozen_network_is_no_ensemble(data):
    X, y = data
    net = FrozenEstimator(MLPClassifier((6,), max_iter=5).fit(X, y))
    with pytest.raises(
        ValueError, match=r"frozen, so that all 5 members .* use Laplace"
    ):
        MixtureLaplace(Laplace(net)).fit(X, y)


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_same_seed_same_numbers(data, n_jobs):
    X, y = data
    item, two, other = (
        MixtureLaplace(Laplace(NET, n_samples=2), 2, n_jobs=jobs, random_state=seed)
        .fit(X, y)
        .predict_members(X)
        for seed, jobs in ((0, None), (0, n_jobs), (1, None))
    )
    assert_array_equal(item, two)
    assert np.abs(item - other).max() > 0.01


def test_blocks_equal_a_single_call(data, monkeypatch):
    X, y = data
    clf = MixtureLaplace(Laplace(NET, n_samples=2), 2, setting="b", random_state=0).fit(
        X, y
    )
    expected = clf.predict_uncertainty(X).epistemic
    monkeypatch.setattr(
        "skood.epistemic.laplace._mixture_laplace.row_blocks",
        lambda X, size: iter([X[:7], X[7:]]),
    )
    assert_allclose(clf.predict_uncertainty(X).epistemic, expected, rtol=1e-9)


def test_parameters_of_the_prediction_may_change(data):
    """As those of Laplace may; the fitted approximations are as they were."""
    X, y = data
    clf = MixtureLaplace(Laplace(NET, n_samples=3), 2, random_state=0).fit(X, y)
    mean_field = clf.predict_proba(X)
    first = clf.predict_members(X)
    clf.estimator.set_params(predictive="mc", n_samples=5, batch_size=20)
    members = clf.predict_members(X)
    assert members.shape == (10, 90, 3)
    assert_allclose(members[:3], first[:3], rtol=1e-12)
    assert_allclose(clf.predict_proba(X), members.mean(axis=0), rtol=1e-12, atol=1e-14)
    assert {approximation.predictive for approximation in clf.approximations_} == {
        "mean_field"
    }
    clf.set_params(estimator__predictive="mean_field")
    assert_allclose(clf.predict_proba(X), mean_field, rtol=1e-10)
    clf.set_params(estimator__device="cuda:99")
    with pytest.raises(ValueError, match="'cuda:99' was requested"):
        clf.predict_members(X)


def test_parameters_are_checked_before_members_are_trained(data):
    with pytest.raises(ValueError, match="'hessian' parameter of Laplace must be"):
        MixtureLaplace(Laplace(NET, hessian="block")).fit(*data)
    with pytest.raises(ValueError, match="'estimator' parameter of MixtureLaplace mus"):
        MixtureLaplace(NET).fit(*data)
