"""Adversarial models as objects: which of a search, their losses, and as estimators."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from torch import nn

from skood.epistemic import kl_divergence
from skood.epistemic.quam import _searches as _searching
from skood.nn import LinearHead, TorchClassifier, TorchRegressor, pretrained
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._member_nets import NormalLoss
from tests.epistemic._quam import QUICK, STEP, make_quam

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SLACKS = (None, 0.05, 1.0, np.inf)


def _expected_step(attack, excess, slack):
    """The first step of the smallest attack loss among those that are allowed."""
    allowed = [i for i, value in enumerate(excess) if value <= slack + 1e-12]
    return min(allowed, key=lambda i: attack[i]) if allowed else len(attack) - 1


def _batch(quam, step):
    penalty_index = quam.penalty_index_[step]
    return quam.penalty_features_[penalty_index], quam.penalty_targets_[penalty_index]


@pytest.mark.parametrize("slack", SLACKS)
def test_models_are_in_the_trace(data, quam, slack):
    """The model with the smallest attack loss within the slack, and its numbers."""
    X, _ = data
    points = np.r_[X[:3], [[30.0] * 5]]
    models = quam.adversarial_models(points, slack=slack)
    assert len(models) == 4
    steps = set()
    for x, of_point in zip(points, models, strict=True):
        trace = quam.trace(x[None])
        assert_array_equal(of_point.targets, trace.targets)
        assert len(of_point) == 3
        for i in range(3):
            step = _expected_step(
                trace.attack_loss[:, i], trace.penalty[:, i], slack or 0.0
            )
            assert of_point.step[i] == step
            steps.add(step)
            for name in ("divergence", "training_loss", "penalty", "log_proba"):
                assert_allclose(
                    getattr(of_point, name)[i],
                    trace[name][step, i],
                    rtol=1e-9,
                    atol=1e-12,
                )
            clf = of_point.model(i)
            assert isinstance(clf, FrozenEstimator)
            assert isinstance(clf.estimator, MLPClassifier)
            proba = clf.predict_proba(x[None])[0]
            assert_allclose(proba, np.exp(trace.log_proba[step, i]), atol=1e-6)
            samples, codes = _batch(quam, step)
            loss = -clf.predict_log_proba(samples)[np.arange(len(codes)), codes].mean()
            assert loss == pytest.approx(of_point.training_loss[i], rel=1e-9)
        assert of_point.is_feasible.all()
    assert steps - {0} or slack is None
    if slack == np.inf:
        assert (of_point.step == trace.attack_loss.argmin(axis=0)).all()


def test_without_a_model_within_the_slack_it_is_the_last(data, quam):
    """Of a search that has one, and of one that has none."""
    X, _ = data
    trace = quam.trace(X[:1])
    lowest = np.sort(trace.penalty.min(axis=0))
    (of_point,) = quam.adversarial_models(X[:1], slack=(lowest[0] + lowest[1]) / 2)
    assert of_point.is_feasible.sum() == 1
    for i in range(3):
        assert of_point.is_feasible[i] == (trace.penalty[:, i].min() == lowest[0])
        if not of_point.is_feasible[i]:
            assert of_point.step[i] == 5
            assert_allclose(of_point.log_proba[i], trace.log_proba[-1, i], rtol=1e-10)
            proba = of_point.model(i).predict_proba(X[:1])[0]
            assert_allclose(proba, np.exp(trace.log_proba[-1, i]), rtol=1e-9)


def test_gamma_is_the_default_slack(data, mlp):
    X, y = data
    quam = make_quam(FrozenEstimator(mlp), gamma=0.2, **QUICK, **STEP).fit(X, y)
    (default,), (original,), (tight,) = (
        quam.adversarial_models(X[:1], slack=slack) for slack in (None, 0.2, 0.0)
    )
    assert_array_equal(default.step, original.step)
    assert (default.step != tight.step).any()
    excess = original.training_loss - quam.reference_loss_[original.step]
    assert_allclose(original.penalty, excess - 0.2)


def test_log_posterior_drop(data, mlp):
    """A plain sum over all training samples, and the norm of all weights."""
    X, y = data
    params = {**QUICK, **STEP, "n_steps": 9}  # 80 samples drawn, all 60 are stored
    quam = make_quam(FrozenEstimator(mlp), **params).fit(X, y)
    assert quam.n_samples_fit_ == len(quam.penalty_targets_) == 60
    models = quam.adversarial_models(X[:2], slack=np.inf, log_posterior=True)

    def log_posterior(clf):
        clf = clf.estimator if isinstance(clf, FrozenEstimator) else clf
        likelihood = clf.predict_log_proba(X)[np.arange(60), y].sum()
        norm = math.fsum(float((w**2).sum()) for w in clf.coefs_ + clf.intercepts_)
        return likelihood - 0.5 * 1e-2 * norm

    for model in models:
        for i in range(3):
            drop = log_posterior(mlp) - log_posterior(model.model(i))
            assert model.log_posterior_drop[i] == pytest.approx(drop, rel=1e-8)
    (plain,) = quam.adversarial_models(X[:1], slack=np.inf)
    with pytest.raises(ValueError, match="call adversarial_models"):
        plain.is_adversarial(1.0, 0.1)


def test_fewer_stored_than_training_samples(data, mlp):
    """The mean over the stored ones counts for all."""
    X, y = data
    quam = make_quam(FrozenEstimator(mlp), **QUICK, **STEP).fit(X, y)
    samples, codes = quam.penalty_features_, quam.penalty_targets_
    assert len(codes) == 48 < quam.n_samples_fit_ == 60
    (of_point,) = quam.adversarial_models(X[:1], slack=np.inf, log_posterior=True)
    for i in range(3):
        clf = of_point.model(i)
        original, result = (
            -c.predict_log_proba(samples)[np.arange(48), codes].mean()
            for c in (mlp, clf)
        )
        norms = [
            sum((w**2).sum() for w in c.coefs_ + c.intercepts_)
            for c in (clf.estimator, mlp)
        ]
        drop = 60 * (result - original) + 0.5e-2 * (norms[0] - norms[1])
        assert of_point.log_posterior_drop[i] == pytest.approx(drop, rel=1e-8)


def test_is_adversarial(data, quam):
    X, _ = data
    (of_point,) = quam.adversarial_models(X[:1], slack=np.inf, log_posterior=True)
    of_point.log_posterior_drop = np.array([-2.0, 1.0, 0.5])
    of_point.divergence = np.array([1.0, 1.0, 0.2])
    assert of_point.is_adversarial(1.0, 0.5).tolist() == [True, True, False]
    assert of_point.is_adversarial(1.0, 0.2).tolist() == [True, True, True]
    assert of_point.is_adversarial(0.9, 0.2).tolist() == [True, False, True]
    result = of_point.is_adversarial(1.0, 0.2, two_sided=True)
    assert result.tolist() == [False, True, True]


# ---- as estimators of all kinds


def _skorch(X, y):
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3), nn.Softmax(dim=1)),
        max_epochs=3,
        train_split=None,
        verbose=0,
    )
    return net.fit(X.astype(np.float32), y)


def _pretrained(dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
        )
    return pretrained(net.to(dtype), ["ant", "bee", "cat"])


KINDS = {
    "linear": lambda X, y: LogisticRegression().fit(X, y),
    "linear binary": lambda X, y: LogisticRegression().fit(X, y == "cat"),
    "no intercept": lambda X, y: LogisticRegression(fit_intercept=False).fit(X, y),
    "mlp binary": lambda X, y: MLPClassifier((6,), max_iter=9).fit(X, y == "cat"),
    "pipeline": lambda X, y: make_pipeline(
        StandardScaler(), MLPClassifier((6,), max_iter=9, random_state=0)
    ).fit(X, y),
    "torch": lambda X, y: TorchClassifier(max_epochs=3, random_state=0).fit(X, y),
    "skorch": _skorch,
    "pretrained": lambda X, y: _pretrained(torch.float32),
    "float64": lambda X, y: _pretrained(torch.float64),
    "half": lambda X, y: _pretrained(torch.bfloat16),
    "head": lambda X, y: LinearHead().fit(X, y),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_classifiers(data, kind):
    """Each model predicts as found, and the given network is not changed."""
    X, y = data[0].astype(np.float32), np.array(["ant", "bee", "cat"])[data[1]]
    if kind == "half":  # samples as the network reads them
        X = torch.as_tensor(X).bfloat16().float().numpy()
    original = KINDS[kind](X, data[1] if kind == "skorch" else y)
    y = original.predict(X) if kind.endswith("binary") or kind == "skorch" else y
    if len(np.unique(y)) == 1:  # a network that has hardly learned
        y = np.where(np.arange(len(y)) % 2, original.classes_[0], original.classes_[1])
    frozen = (
        original if isinstance(original, FrozenEstimator) else FrozenEstimator(original)
    )
    before = pickle.dumps(original)
    for scope in ("last", "full"):
        quam = make_quam(frozen, scope=scope, **QUICK, **STEP).fit(X, y)
        models = quam.adversarial_models(X[:2], slack=np.inf)
        for x, of_point in zip(X, models, strict=False):
            for i in range(len(of_point)):
                clf = of_point.model(i)
                inner = getattr(original, "estimator", original)
                assert type(clf.estimator) is type(inner)
                assert_array_equal(clf.classes_, original.classes_)
                proba = clf.predict_proba(x[None])[0]
                assert_allclose(proba, np.exp(of_point.log_proba[i]), atol=1e-6)
                p = np.log(original.predict_proba(x[None]).astype(np.float64))
                expected = kl_divergence(p, np.log(proba)[None])[0]
                tolerance = 1e-2 if kind == "half" else 1e-4
                assert of_point.divergence[i] == pytest.approx(expected, abs=tolerance)
            assert of_point.step.max() > 0
    assert pickle.dumps(original) == before


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_images(scope):
    """Weights of all layers of a convolutional network, in several chunks."""
    X, y = digits(40)
    module = lenet()
    state = copy.deepcopy(module.state_dict())
    params = {**QUICK, **STEP, "chunk_size": 2}
    quam = make_quam(pretrained(module), scope=scope, **params).fit(X, y)
    models = quam.adversarial_models(X[:3] + 1, slack=np.inf)
    names = dict(module.named_parameters())
    for x, of_point in zip(X[:3] + 1, models, strict=True):
        for name, array in of_point.weights.items():
            assert array.shape == (4, *names[name].shape)
        for i in range(4):
            proba = of_point.model(i).predict_proba(x[None])[0]
            assert_allclose(proba, np.exp(of_point.log_proba[i]), atol=1e-6)
    expected = {"last": 2, "dense": 6, "full": 10}[scope]
    assert len(of_point.weights) == expected
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_targets_in_parts(data, quam, monkeypatch):
    """With very little memory, the classes are attacked one after the other."""
    X, _ = data
    expected = quam.adversarial_models(X[:2], slack=np.inf, log_posterior=True)
    monkeypatch.setattr(_searching, "_CPU_BUDGET", 1)
    models = quam.adversarial_models(X[:2], slack=np.inf, log_posterior=True)
    for of_point, other in zip(models, expected, strict=True):
        assert_array_equal(of_point.step, other.step)
        assert_allclose(
            of_point.log_posterior_drop, other.log_posterior_drop, rtol=1e-6
        )
        for name in of_point.weights:
            assert_allclose(of_point.weights[name], other.weights[name], rtol=1e-7)


def test_pickle_and_string_labels(data):
    X, y = data
    names = np.array(["ant", "bee", "cat"])[y]
    quam = make_quam(LogisticRegression(), targets=2, **QUICK).fit(X, names)
    (of_point,) = pickle.loads(
        pickle.dumps(quam.adversarial_models(X[:1], slack=np.inf))
    )
    (expected,) = quam.adversarial_models(X[:1], slack=np.inf)
    assert of_point.targets.tolist() == quam.trace(X[:1]).targets.tolist()
    assert repr(of_point) == f"AdversarialModels(targets={of_point.targets.tolist()})"
    for i in range(2):
        assert_array_equal(
            of_point.model(i).predict_proba(X), expected.model(i).predict_proba(X)
        )


def test_parameters(data, quam):
    X, _ = data
    with pytest.raises(ValueError, match="The 'slack' parameter of QUAM"):
        quam.adversarial_models(X[:1], slack="all")
    with pytest.raises(ValueError, match="'log_posterior' parameter"):
        quam.adversarial_models(X[:1], log_posterior="yes")


# ---- regression


@pytest.fixture(scope="module")
def curve():
    X, _ = make_blobs(50, 3, centers=1, random_state=0)
    return X, np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=50)


REGRESSORS = {
    "mlp": lambda: MLPRegressor(hidden_layer_sizes=(6,), max_iter=60, random_state=0),
    "ridge": Ridge,
    "torch": lambda: TorchRegressor(max_epochs=5, random_state=0),
    "pipeline": lambda: make_pipeline(StandardScaler(), Ridge()),
}


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors(curve, kind):
    X, y = curve
    fitted = REGRESSORS[kind]().fit(X, y)
    quam = make_quam(FrozenEstimator(fitted), **{**QUICK, "n_steps": 9}, **STEP)
    quam.fit(X, y)
    models = quam.adversarial_models(X[:2], slack=0.5, log_posterior=True)
    for x, of_point in zip(X, models, strict=False):
        trace = quam.trace(x[None])
        assert of_point.targets.tolist() == ["higher", "lower"]
        for i in range(2):
            step = _expected_step(trace.attack_loss[:, i], trace.penalty[:, i], 0.5)
            assert of_point.step[i] == step
            assert of_point.divergence[i] == pytest.approx(trace.divergence[step, i])
            model = of_point.model(i)
            mean = model.predict(x[None])[0]
            rel = 1e-5 if kind == "torch" else 1e-9  # in single precision
            assert mean == pytest.approx(trace.mean[step, i], rel=rel)
            assert mean == pytest.approx(of_point.mean[i], rel=rel)
            stored, targets = quam.penalty_features_, quam.penalty_targets_
            assert len(targets) == 50
            if kind in ("pipeline", "torch"):  # samples or weights of another form
                continue
            losses = [
                np.mean((targets - m.predict(stored)) ** 2)
                / (2 * quam.likelihood_.variance_)
                for m in (model, fitted)
            ]
            norms = [
                sum((w**2).sum() for w in weights)
                for weights in (
                    [array[i] for array in of_point.weights.values()],
                    fitted.coefs_ + fitted.intercepts_
                    if kind == "mlp"
                    else [fitted.coef_, np.atleast_1d(fitted.intercept_)],
                )
            ]
            drop = 50 * (losses[0] - losses[1]) + 0.5e-2 * (norms[0] - norms[1])
            assert of_point.log_posterior_drop[i] == pytest.approx(drop, rel=1e-7)


def test_regressor_of_mean_and_variance(curve):
    X, y = curve
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        net = NeuralNetRegressor(
            module, criterion=NormalLoss, max_epochs=5, verbose=0
        ).fit(X, y[:, None])
    quam = make_quam(FrozenEstimator(net), variance="network", **QUICK, **STEP).fit(
        X, y
    )
    (of_point,) = pickle.loads(
        pickle.dumps(quam.adversarial_models(X[:1], slack=np.inf))
    )
    for i in range(2):
        mean, log_variance = of_point.model(i).predict(X[:1])[0]
        assert mean == pytest.approx(of_point.mean[i])
        assert math.exp(log_variance) == pytest.approx(of_point.variance[i])
    assert repr(of_point) == "AdversarialModels(targets=['higher', 'lower'])"
