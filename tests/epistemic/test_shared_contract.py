"""What all estimators of epistemic uncertainty share: validation, state, progress."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
    SnapshotEnsemble,
)
from skood.nn import TorchClassifier, TorchRegressor

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

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
    MCDropout(NET, n_samples=3, random_state=0),
    Laplace(LINEAR, random_state=0),
    MixtureLaplace(Laplace(MLPClassifier((4,), solver="lbfgs")), 2, random_state=0),
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
    HMC(LinearRegression(), HMCKernel(n_leapfrog=4, n_warmup=8), n_samples=8),
    CyclicalSGHMC(
        LinearRegression(),
        CyclicalSchedule(n_cycles=2, epochs_per_cycle=4, samples_per_cycle=2, lr=1e-3),
    ),
]
each_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda one: type(one).__name__
)

# Values that are not valid, by the names of parameters.
BAD = {
    "adapt_mass": "yes",
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
    "CyclicalSGHMC": "CyclicalSGHMC.*8",  # epochs
    "HMC": "HMC.*16",  # transitions
    "MixtureLaplace": "DeepEnsemble.*2",
    "QUAM": "QUAM.*5/5",  # points
    "SnapshotEnsemble": "SnapshotEnsemble.*train_loss",
}


@each_estimator
def test_progress_is_shown(estimator, capsys):
    clf = clone(estimator).set_params(verbose=1).fit(X, y)
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
