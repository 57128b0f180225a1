"""Ensembles inside one network: what holds for both kinds of them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.base import UncertaintyDetector
from skood.detectors import MSP
from skood.epistemic import (
    BatchEnsemble,
    PackedEnsemble,
    member_uncertainty,
)
from skood.nn._default_modules import MLP, SmallConvNet
from skood.nn._training import TrainingNet, WeightedCrossEntropy
from skood.nn._training_data import stratified_split
from skood.utils._torch import seeded
from tests.epistemic._member_nets import ResidualNet, ensemble
from tests.epistemic._naive import naive_uncertainty
from tests.nn._networks import Interrupting, margin_loss

PART = "skood.epistemic.implicit._implicit_ensemble"

both = pytest.mark.parametrize("kind", [BatchEnsemble, PackedEnsemble])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400].reshape(-1, 1, 8, 8).astype(np.float32) / 16, y[:400]


@pytest.fixture(params=[BatchEnsemble, PackedEnsemble])
def quick(request):
    """A classifier that is trained in no time."""
    return ensemble(request.param, n_members=3, max_epochs=5, lr=0.01, random_state=0)


def naive_members(clf, X):
    """Softmax of the members' logits, a number at a time."""
    with torch.no_grad():
        logits = clf.estimator_.module_.members(torch.as_tensor(X, dtype=torch.float32))
    p = np.empty((logits.shape[1], len(X), logits.shape[2]))
    for i, row in enumerate(logits.tolist()):
        for m, member in enumerate(row):
            total = math.fsum(math.exp(value) for value in member)
            p[m, i] = [math.exp(value) / total for value in member]
    return p


# --- prediction --------------------------------------------------------------


def test_prediction_is_the_mean_of_the_members(iris, quick):
    X, y = iris
    quick.fit(X, y)
    p = naive_members(quick, X)
    assert_allclose(quick.predict_members(X), p, rtol=1e-5)
    mean = quick.predict_members(X).mean(axis=0)
    proba = quick.predict_proba(X)
    assert proba.dtype == np.float64
    assert_allclose(proba, mean, rtol=1e-12)
    assert_allclose(quick.predict_logits(X), np.log(mean), rtol=1e-12, atol=1e-14)
    assert_array_equal(quick.predict(X), quick.classes_[mean.argmax(axis=1)])
    assert_allclose(quick.decision_function(X), np.log(mean), rtol=1e-12, atol=1e-14)
    with torch.no_grad():
        output = quick.estimator_.module_(torch.as_tensor(X, dtype=torch.float32))
    assert_allclose(output, np.log(mean), rtol=1e-4, atol=1e-5)


def test_uncertainty(iris, quick):
    X, y = iris
    quick.fit(X, y)
    p = quick.predict_members(X)
    mean = p.mean(axis=0)
    expected = member_uncertainty(np.log(p))
    uncertainty = quick.predict_uncertainty(X)
    for name in ("total", "aleatoric", "epistemic"):
        assert_allclose(uncertainty[name], expected[name], rtol=1e-9, atol=1e-14)
    quick.set_params(setting="b")
    assert_allclose(quick.predict_proba(X), mean, rtol=1e-12)
    uncertainty = quick.predict_uncertainty(X)
    expected = naive_uncertainty(p, reference=mean)
    assert_allclose(uncertainty.aleatoric, expected.aleatoric, rtol=1e-9)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-7, atol=1e-14)


def test_blocks_of_samples(iris, quick, monkeypatch):
    """Rows that are predicted in several blocks, in order."""
    X, y = iris
    quick.fit(X, y)
    expected = quick.predict_members(X), quick.predict_uncertainty(X).total
    monkeypatch.setattr(
        f"{PART}.row_chunks",
        lambda n, size: (slice(i, i + 40) for i in range(0, n, 40)),
    )
    assert len(list(quick._blocks(X))) == 4
    assert_allclose(quick.predict_members(X), expected[0], rtol=1e-5)
    assert_allclose(quick.predict_uncertainty(X).total, expected[1], rtol=1e-4)


@both
@pytest.mark.parametrize(
    "module, params, shape, n_members",
    [
        (None, {"hidden": (128,)}, (2,), 16),
        (SmallConvNet, {"channels": (8, 16)}, (1, 8, 8), 4),
    ],
)
def test_batches_of_a_prediction_are_small(
    kind, module, params, shape, n_members, monkeypatch
):
    """Wide layers of many members bound the rows of a pass, not the input alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, *shape)).astype(np.float32)
    y = np.arange(1500) % 2
    options = {"n_members": n_members, "module_params": params, "batch_size": 100}
    clf = ensemble(kind, module, max_epochs=1, random_state=0, **options).fit(
        X[:200], y[:200]
    )
    width = max(
        max(getattr(component, "in_features", 0), getattr(component, "out_channels", 0))
        for component in clf.estimator_.module_.modules()
    )
    needed = 64 * n_members * width * math.prod(shape[1:])
    expected = max(64 * 2**20 // needed, 100)
    assert expected < 1500
    seen = []
    handle = clf.estimator_.module_.body.register_forward_pre_hook(
        lambda module, args: seen.append(len(args[0]))
    )
    small = clf.predict_members(X)
    handle.remove()
    copies = n_members if kind is BatchEnsemble else 1
    assert max(seen) <= copies * expected
    assert sum(seen) >= copies * 1500
    monkeypatch.setattr(f"{PART}._row_bytes", lambda network, X: 0)
    assert_array_equal(small, clf.predict_members(X))


@both
@pytest.mark.parametrize(
    "module, max_epochs",
    [
        (None, 12),
        pytest.param(SmallConvNet, 30, marks=pytest.mark.slow),
        pytest.param(ResidualNet, 30, marks=pytest.mark.slow),
    ],
)
def test_images(kind, module, max_epochs, digits):
    X, y = digits
    names = np.array([f"digit {k}" for k in range(10)])
    clf = ensemble(kind, module, max_epochs=max_epochs, lr=0.02, random_state=0)
    clf.fit(X[:300], names[y[:300]])
    assert clf.score(X[300:], names[y[300:]]) > 0.85
    assert_array_equal(clf.classes_, names)
    loaded = pickle.loads(pickle.dumps(clf))
    assert_array_equal(loaded.predict_members(X), clf.predict_members(X))
    members = clf.predict_members(torch.as_tensor(X))
    assert_array_equal(members, clf.predict_members(X))


@both
def test_members_disagree_where_there_are_no_data(kind):
    X, y = make_moons(150, noise=0.1, random_state=0)
    clf = ensemble(kind, n_members=6, max_epochs=60, lr=0.05, random_state=0).fit(X, y)
    angles = np.linspace(0, 2 * np.pi, 100)
    ring = 4 * np.column_stack([np.cos(angles), np.sin(angles)])
    near, far = (clf.predict_uncertainty(samples).epistemic for samples in (X, ring))
    assert far.mean() > 5 * near.mean()


@both
def test_overflow_is_an_error(kind):
    X = np.array([[0.0, 1.0], [1.0, 0.0]] * 10)
    clf = ensemble(kind, max_epochs=1, random_state=0).fit(X, [0, 1] * 10)
    with pytest.raises(ValueError, match="NaN or infinite logits for 1 of 2 samples"):
        clf.predict_proba([[0.0, 0.0], [3e38, -3e38]])


# --- training ----------------------------------------------------------------


def initial_network(clf):
    """The network as it was before it was trained."""
    with seeded(clf.estimator_._net_config["seed"], torch.device("cpu")):
        return TrainingNet.from_config(
            clf.estimator_._net_config, torch.device("cpu")
        ).module_


def test_loss_is_the_mean_of_the_members(iris, quick):
    """Of their cross-entropies, weighted by the weights of the rows."""
    X, y = iris
    weight = np.random.default_rng(0).uniform(size=150)
    quick.set_params(estimator__batch_size=200, estimator__max_epochs=1)
    quick.fit(X, y, sample_weight=weight)
    network = initial_network(quick)
    with torch.no_grad():
        log_p = torch.log_softmax(network.members(torch.as_tensor(X).float()), -1)
    losses = [
        -weight[i] * float(log_p[i, m, y[i]]) for i in range(150) for m in range(3)
    ]
    expected = sum(losses) / weight.sum() / 3
    assert quick.estimator_.history_[0]["train_loss"] == pytest.approx(
        expected, rel=1e-5
    )


def test_step_is_that_of_the_mean(iris, quick):
    """One step of plain gradient descent on all rows, by autograd alone."""
    X, y = iris
    quick.estimator.set_params(
        batch_size=200, max_epochs=1, training__optimizer="sgd", lr=0.1
    )
    quick.fit(X, y)
    network = initial_network(quick)
    logits = network.members(torch.as_tensor(X).float())
    codes = torch.as_tensor(y)
    loss = sum(nn.functional.cross_entropy(logits[:, m], codes) for m in range(3)) / 3
    loss.backward()
    for result, before in zip(
        quick.estimator_.module_.parameters(), network.parameters(), strict=True
    ):
        expected = before - 0.1 * before.grad
        assert_allclose(result.detach(), expected.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_criterion(weighted):
    rng = np.random.default_rng(0)
    logits, codes = torch.as_tensor(rng.normal(size=(7, 4, 3))), torch.arange(7) % 3
    weight = torch.as_tensor(rng.uniform(size=7))
    criterion = WeightedCrossEntropy()
    target = (codes, weight) if weighted else codes
    expected = np.mean([criterion(logits[:, m], target) for m in range(4)])
    assert float(criterion(logits, target)) == pytest.approx(expected, rel=1e-12)


def test_early_stopping_looks_at_the_mixture(iris, quick):
    X, y = iris
    quick.estimator.set_params(
        training__early_stopping=True,
        max_epochs=60,
        lr=0.05,
        training__n_iter_no_change=3,
    )
    quick.fit(X, y)
    assert quick.estimator_.n_iter_ < 60
    losses = [row["valid_loss"] for row in quick.estimator_.history_]
    assert np.argmin(losses) < quick.estimator_.n_iter_ - 1
    seed = quick.estimator_._net_config["seed"]
    held_out = stratified_split(y, 0.1, np.random.RandomState(seed))[1]
    p = quick.predict_proba(X[held_out])[np.arange(len(held_out)), y[held_out]]
    assert min(losses) == pytest.approx(-np.log(p).mean(), rel=1e-5)


def test_partial_fit(iris, quick):
    X, y = iris
    members = (
        clone(quick).set_params(estimator__max_epochs=1).fit(X, y).predict_members(X)
    )
    quick.partial_fit(X, y, classes=[0, 1, 2])
    assert_array_equal(quick.predict_members(X), members)
    loaded = pickle.loads(pickle.dumps(quick)).partial_fit(X, y)
    assert_array_equal(
        quick.partial_fit(X, y).predict_members(X), loaded.predict_members(X)
    )
    assert quick.estimator_.n_iter_ == 2


@both
def test_failed_fit_keeps_the_state(kind, iris):
    X, y = iris
    clf = ensemble(kind, Interrupting, max_epochs=2, random_state=0).fit(X, y)
    p = clf.predict_members(X)
    Interrupting.batches_left = 1
    try:
        for method in (clf.fit, clf.partial_fit):
            with pytest.raises(KeyboardInterrupt):
                method(X, y)
            assert_array_equal(clf.predict_members(X), p)
    finally:
        Interrupting.batches_left = None


# --- the user's module -------------------------------------------------------


class Named(MLP):
    """Has parameters that are called like those of the ensemble."""

    def __init__(self, input_shape, n_classes, n_members, module, alpha):
        super().__init__(input_shape, n_classes, hidden=(n_members, module, alpha))


@both
def test_parameters_of_the_module(kind, iris):
    clf = ensemble(
        kind,
        Named,
        module_params={"n_members": 8, "module": 12, "alpha": 4},
        n_members=2,
        max_epochs=1,
    ).fit(*iris)
    assert clf.estimator_.module_.body.head.out_features == (
        3 if "Batch" in kind.__name__ else 6
    )
    assert clf.predict_members(iris[0]).shape == (2, 150, 3)


@both
def test_errors_of_the_module(kind, iris):
    with pytest.raises(TypeError, match="got an instance of Linear: fitting would"):
        ensemble(kind, nn.Linear(4, 3)).fit(*iris)
    with pytest.raises(ValueError, match="Make the last layer as wide as the n_class"):
        ensemble(kind, lambda input_shape, n_classes: nn.Linear(4, 7)).fit(*iris)
    with pytest.raises(TypeError, match="MLP does not accept that with module_params"):
        ensemble(kind, module_params={"width": 3}).fit(*iris)
    with pytest.raises(ValueError, match=r"has no torch\.nn\.Linear and no"):
        ensemble(kind, lambda input_shape, n_classes: nn.LPPool1d(1, 1, 1)).fit(
            iris[0][:, :3], iris[1]
        )


# --- with others -------------------------------------------------------------


@both
def test_detectors(kind, iris):
    X, y = iris
    clf = ensemble(kind, max_epochs=8, lr=0.02, random_state=0)
    detector = make_pipeline(StandardScaler(), UncertaintyDetector(clf)).fit(X, y)
    u = detector[-1].estimator_.predict_uncertainty(detector[0].transform(X))
    assert_array_equal(detector.score_samples(X), -u.epistemic)
    # to detectors the mixture is a network like any other
    msp = MSP(clf).fit(X, y)
    logits = msp.estimator_.predict_logits(X)
    expected = MSP().fit(logits).score_samples(logits)
    assert_allclose(msp.score_samples(X), expected, rtol=1e-5, atol=1e-6)


@both
@pytest.mark.parametrize(
    "params, match",
    [
        ({"lr": 0}, "'lr' parameter of .* must be a float in the range"),
        (
            {"criterion": margin_loss},
            "the criterion of its estimator must be None, got",
        ),
    ],
)
def test_parameters(kind, params, match, iris):
    with pytest.raises(ValueError, match=match):
        ensemble(kind, **params).fit(*iris)


@both
def test_partial_fit_uses_new_parameters(kind, iris):
    """The learning rate of the next epoch; the network stays as it is."""
    X, y = iris
    clf = ensemble(kind, max_epochs=1, random_state=0).fit(X, y)
    p = clf.predict_members(X)
    clf.set_params(estimator__lr=1e-12, n_members=7).partial_fit(X, y)
    assert_allclose(clf.predict_members(X), p, atol=1e-6)
    before = vars(clf.estimator_).copy()
    with pytest.raises(ValueError, match="y contains the label 5"):
        clf.set_params(estimator__lr=0.5).partial_fit(X, y + 5)
    assert vars(clf.estimator_) == before
