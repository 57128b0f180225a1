"""What all estimators of epistemic uncertainty share: validation, state, seeds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skood.base import UncertaintyDetector
from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    BatchEnsemble,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
    PackedEnsemble,
    SnapshotEnsemble,
)
from skood.nn import TorchClassifier, TorchRegressor
from skood.rejection import RejectOptionClassifier

pytestmark = [
    pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

X, y = make_blobs(60, 4, centers=3, cluster_std=4.0, random_state=0)
LINEAR = LogisticRegression()
NET = TorchClassifier(
    module_params={"hidden": (6,), "dropout": 0.4}, max_epochs=4, random_state=0
)
TREE = DecisionTreeClassifier(max_features=1, max_depth=3)
SEARCH = AdversarialSearch(n_steps=3, batch_size=8, chunk_size=2)

ESTIMATORS = [
    DeepEnsemble(TREE, n_members=3, random_state=0),
    SnapshotEnsemble(NET, n_members=2),
    BatchEnsemble(NET, n_members=2),
    PackedEnsemble(NET, n_members=2),
    MCDropout(NET, n_samples=3, random_state=0),
    Laplace(LINEAR, random_state=0),
    MixtureLaplace(
        Laplace(MLPClassifier((4,), solver="lbfgs", max_iter=20), n_samples=10),
        2,
        random_state=0,
    ),
    HMC(
        LINEAR,
        HMCKernel(n_leapfrog=4, n_warmup=8),
        n_samples=8,
        n_chains=2,
        random_state=0,
    ),
    CyclicalSGHMC(
        LINEAR,
        CyclicalSchedule(n_cycles=2, epochs_per_cycle=4, samples_per_cycle=2),
        random_state=0,
    ),
    QUAM(LINEAR, SEARCH, random_state=0),
    QUAM(LinearRegression(), SEARCH, random_state=0),
    DeepEnsemble(
        DecisionTreeRegressor(splitter="random", max_depth=2), 3, random_state=0
    ),
    MCDropout(
        TorchRegressor(module_params=NET.module_params, max_epochs=4, random_state=0),
        n_samples=3,
        random_state=0,
    ),
    Laplace(LinearRegression(), random_state=0),
    HMC(
        LinearRegression(),
        HMCKernel(n_leapfrog=4, n_warmup=8),
        n_samples=8,
        random_state=0,
    ),
    CyclicalSGHMC(
        LinearRegression(),
        CyclicalSchedule(n_cycles=2, epochs_per_cycle=4, samples_per_cycle=2, lr=1e-3),
        random_state=0,
    ),
]


def _name(estimator):
    return type(estimator).__name__


each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)

# Values that are not valid, by the names of parameters.
BAD = {
    "adapt_mass": "yes",
    "alpha": 0.0,
    "batch_size": 0,
    "bootstrap": "yes",
    "c0": -1.0,
    "chunk_size": 0,
    "component": "normal",
    "device": 3,
    "epochs_per_cycle": 0,
    "estimator": "net",
    "eta": 0.9,
    "exploration": 1.1,
    "factor_init": "zero",
    "gamma": -0.1,
    "hessian": "block",
    "include_reference": "yes",
    "init": "zero",
    "kernel": "fast",
    "kind": "normal",
    "likelihood": "normal",
    "lr": 0.0,
    "momentum": 1.0,
    "n_chains": 0,
    "n_cycles": 0,
    "n_evaluation_samples": 0,
    "n_jobs": "all",
    "n_leapfrog": 0,
    "n_members": 0,
    "n_samples": 0,
    "n_starts": 0,
    "n_steps": 0,
    "n_warmup": -1,
    "perturbation": 0.0,
    "predictive": "exact",
    "prior_precision": 0.0,
    "prior_scale": "unit",
    "random_state": "seed",
    "rank": 0,
    "reference": "first",
    "samples_per_cycle": 0,
    "schedule": "fast",
    "scope": "conv",
    "search": "fast",
    "setting": "c",
    "step_size": 0.0,
    "subset": "first",
    "target_accept": 1.0,
    "targets": 0,
    "temperature": 0.0,
    "thin": 0,
    "update_every": 0,
    "variance": 0.0,
    "verbose": -1,
    "weight_decay": -1.0,
}
BAD_OF = {
    "BatchEnsemble": {"setting": "auto"},
    "PackedEnsemble": {"gamma": 1.0, "setting": "auto"},
    "CyclicalSGHMC": {"prior_scale": -1.0},
    "HMC": {"n_samples": 3},
    "LocalComponent": {"slack": -1.0},
}


@each_estimator
def test_every_parameter_is_validated(estimator):
    default_parts = estimator._default_parts
    for path in estimator.get_params():
        *above, name = path.split("__")
        if above and above[0] not in default_parts:
            continue
        owner = default_parts[above[0]].__name__ if above else type(estimator).__name__
        value = {**BAD, **BAD_OF.get(owner, {})}[name]
        bad = clone(estimator).set_params(**{path: value})
        with pytest.raises(
            ValueError, match=f"The '{name}' parameter of {owner} must be"
        ):
            bad.fit(X, y)


@each_estimator
def test_not_fitted(estimator):
    names = "predict", "predict_proba", "predict_members", "predict_uncertainty"
    for name in (*names, "trace"):
        if hasattr(estimator, name):
            with pytest.raises(NotFittedError):
                getattr(clone(estimator), name)(X[:1])


@each_estimator
def test_failed_fit_keeps_the_state(estimator):
    clf = clone(estimator).fit(X, y)
    before = dict(vars(clf))
    with pytest.raises(ValueError, match="infinit"):
        clf.fit(np.full_like(X, np.inf), y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        clf.fit(X, None)
    assert vars(clf).keys() == before.keys()
    assert all(vars(clf)[name] is value for name, value in before.items())


PROGRESS = {
    "BatchEnsemble": "train_loss",
    "CyclicalSGHMC": "CyclicalSGHMC.*8",  # epochs
    "HMC": "HMC.*16",  # transitions
    "MixtureLaplace": "DeepEnsemble.*2",
    "PackedEnsemble": "train_loss",
    "QUAM": "QUAM.*5/5",  # points
    "SnapshotEnsemble": "SnapshotEnsemble.*train_loss",
}


@each_estimator
def test_progress_is_shown(estimator, capsys):
    name = "verbose" if "verbose" in estimator.get_params() else "estimator__verbose"
    clf = clone(estimator).set_params(**{name: 1}).fit(X, y)
    clf.predict_uncertainty(X[:5])
    name = type(estimator).__name__
    shown = capsys.readouterr().err
    assert re.search(PROGRESS.get(name, name), shown, re.DOTALL)
    if hasattr(clf, "trace"):
        clf.trace(X[:1])
        assert capsys.readouterr().err == ""


@each_estimator
def test_parameters_are_not_fitted(estimator):
    """Clones are, and the parameters stay the objects that were given."""
    original = estimator.get_params(deep=False)
    clf = type(estimator)(**original).fit(X, y)
    for name, value in clf.get_params(deep=False).items():
        assert value is original[name]
        if isinstance(value, BaseEstimator):
            assert not any(attribute.endswith("_") for attribute in vars(value))


def _draws(estimator, samples):
    """Members, or the uncertainty that is drawn with a seed."""
    if hasattr(estimator, "predict_members"):
        return estimator.predict_members(samples)
    return estimator.predict_uncertainty(samples).epistemic


@each_estimator
def test_seeds(estimator):
    name = "random_state"
    if name not in estimator.get_params():
        name = "estimator__random_state"
    torch.manual_seed(0)
    state = torch.get_rng_state()
    members = [
        _draws(clone(estimator).set_params(**{name: seed}).fit(X, y), X)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert_array_equal(members[0], members[1])
    assert np.abs(members[0] - members[2]).max() > 1e-6


@each_estimator
def test_a_random_state_object_continues(estimator):
    if "random_state" not in estimator.get_params():
        return
    clf = clone(estimator).set_params(random_state=np.random.RandomState(0))
    members = _draws(clf.fit(X, y), X)
    assert_array_equal(_draws(clf, X), members)
    assert not np.allclose(_draws(clf.fit(X, y), X), members)


@each_estimator
def test_samples_do_not_depend_on_others(estimator):
    clf = clone(estimator).fit(X, y)
    alone = [clf.predict_uncertainty(X[i : i + 1]).epistemic[0] for i in range(4)]
    epistemic = clf.predict_uncertainty(X).epistemic
    assert_allclose(alone, epistemic[:4], rtol=2e-5, atol=1e-9)
    order = np.arange(60)[::-1]
    reversed_ = clf.predict_uncertainty(X[order]).epistemic
    assert_allclose(reversed_, epistemic[order], rtol=2e-5, atol=1e-9)


@each_estimator
@pytest.mark.parametrize("convert", [lambda array: array.tolist(), torch.as_tensor])
def test_lists_and_tensors(estimator, convert):
    expected = clone(estimator).fit(X, y).predict_uncertainty(X[:4])
    clf = clone(estimator).fit(convert(X), convert(y))
    for name, values in clf.predict_uncertainty(convert(X[:4])).items():
        assert values.dtype == np.float64
        assert_array_equal(values, expected[name])


@each_estimator
def test_as_a_detector_in_a_search_and_with_rejection(estimator):
    clf = clone(estimator).fit(X, y)
    epistemic = clf.predict_uncertainty(X[:9]).epistemic
    detector = UncertaintyDetector(clone(estimator)).fit(X, y)
    assert_array_equal(detector.score_samples(X[:9]), -epistemic)
    grid = {"setting": ["a"]}
    search = GridSearchCV(clone(estimator), grid, cv=2, error_score="raise")
    best = search.fit(X, y).best_estimator_
    assert best.predict_uncertainty(X[:2]).total.shape == (2,)
    if is_classifier(clf):
        rejecting = RejectOptionClassifier(clone(estimator)).fit(X, y)
        assert_array_equal(rejecting.predict(X), clf.predict(X))


def _with_a_single_network():
    return [
        estimator
        for estimator in ESTIMATORS
        if isinstance(estimator.estimator, LogisticRegression)
    ]


@pytest.mark.parametrize("estimator", _with_a_single_network(), ids=_name)
def test_errors_of_a_frozen_network(estimator):
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    clf = clone(estimator).set_params(estimator=frozen).fit(X, y)
    before = clf.predict_uncertainty(X[:3]).epistemic
    for samples, labels, message in (
        (
            X,
            np.where(y == 2, 7, y),
            r"label 7, which is not among .*\[0, 1, 2\] of the",
        ),
        (X, None, "requires y to be passed"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X[:, :3], y, "X has 3 features"),
        (np.where(X > 5, np.nan, X), y, "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            clf.fit(samples, labels)
        assert_array_equal(clf.predict_uncertainty(X[:3]).epistemic, before)
    subset = y != 2  # a class without samples is no error
    clf.fit(X[subset], y[subset])
    assert clf.set_params(setting="a").predict_proba(X).shape == (60, 3)


@pytest.mark.parametrize("estimator", _with_a_single_network(), ids=_name)
def test_linear_models_that_are_no_network(estimator):
    with pytest.raises(TypeError, match="GaussianNB"):
        clone(estimator).set_params(estimator=GaussianNB()).fit(X, y)
    for loss in ("log_loss", "modified_huber"):  # a model for each class
        bad = clone(estimator).set_params(estimator=SGDClassifier(loss=loss))
        with pytest.raises(ValueError, match="SGDClassifier are not the softmax of"):
            bad.fit(X, y)


@pytest.mark.parametrize("estimator", _with_a_single_network(), ids=_name)
def test_no_uncertain_bias_where_there_is_none(estimator):
    clf = clone(estimator).set_params(estimator__fit_intercept=False).fit(X, y)
    assert clf.predict_uncertainty(np.zeros((1, 4))).epistemic < 1e-12
