"""QUAM with an adaptive penalty, members that are feasible, and records of searches."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from torch.nn import functional

from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    LocalComponent,
    SearchRecord,
    feasible_divergence,
    kl_divergence,
)
from skood.epistemic.quam import _searches
from skood.nn import pretrained
from skood.persistence import dump, load
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._quam import FIELDS
from tests.nn._conv_net import perceptron_in_torch

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N_EVALUATION = 20
OPTIONS = {"n_steps": 13, "update_every": 3, "batch_size": 8, "c0": 3.0, "lr": 0.03}


def _quam(network, component="feasible", **params):
    search = AdversarialSearch(eta="adaptive", **{**OPTIONS, **params})
    component = LocalComponent(component, n_evaluation_samples=N_EVALUATION)
    return QUAM(network, search, component=component, random_state=0, device="cpu")


@pytest.fixture(scope="module")
def feasible(data, mlp):
    return _quam(FrozenEstimator(mlp)).fit(*data)


def _loop(quam, mlp, x, target, *, attack=True):
    """Search one model in plain torch; return outputs, losses and penalty weights."""
    net = perceptron_in_torch(mlp)
    options, features = quam._search(), torch.as_tensor(quam.penalty_features_)
    codes = torch.as_tensor(quam.penalty_targets_)
    evaluation = quam.evaluation_index_
    optimizer = torch.optim.Adam(
        net.parameters(), lr=options.lr, weight_decay=options.weight_decay
    )
    n_steps = options.n_steps
    n_attacks, c = n_steps - n_steps // 4, options.c0
    outputs, losses, weights = [], [], []
    for step in range(n_steps + 1):
        logits = net(torch.as_tensor(x)[None])
        if step % options.update_every == 0 or step == n_steps:
            with torch.no_grad():
                loss = functional.cross_entropy(
                    net(features[evaluation]), codes[evaluation]
                )
            outputs.append(torch.log_softmax(logits, 1)[0].detach().numpy())
            losses.append(float(loss))
            if 0 < step < n_attacks:
                is_violated = losses[-1] > losses[0] + options.gamma
                c = c * 4 if is_violated else c / 4
        weights.append(c)
        if step == n_steps:
            break
        batch = quam.penalty_index_[step]
        objective = c * functional.cross_entropy(net(features[batch]), codes[batch])
        if attack and step < n_attacks:
            objective = objective + functional.cross_entropy(
                logits, torch.tensor([target])
            )
        for group in optimizer.param_groups:
            group["lr"] = options.lr * (1.0 if step < n_attacks else 0.1)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    return np.array(outputs), np.array(losses), np.array(weights)


# ---- the constraint, against plain loops


def test_feasible_divergence_of_a_table():
    kl = [[0, 0, 0], [0.5, 0.1, 0.02], [2.0, 0.4, 0.05], [3.0, 1.1, 0.2]]
    kl = np.array([*kl, [1.8, 0.9, 0.3]])[:, :, None]
    excess = [[0, 0, 0], [0.001, 0.002, -0.001], [0.02, 0.004, 0.0]]
    excess += [[0.3, 0.012, 0.003], [0.008, 0.0099, 0.02]]
    excess = np.array(excess)[:, :, None]
    attained = [
        feasible_divergence(kl[:, t : t + 1], excess[:, t : t + 1], gamma=0.01)[0]
        for t in range(3)
    ]
    assert attained == [1.8, 0.9, 0.2]
    for options, expected in (
        ({"gamma": 0.01}, 0.9666666666666668),
        ({"gamma": 0.001}, 0.18333333333333335),
        ({"temperature": 0.001}, 0.08249108296979414),
        ({"temperature": np.inf}, np.mean([3.0, 1.1, 0.3])),
    ):
        value = feasible_divergence(kl, excess, **options)
        assert_allclose(value, [expected], rtol=1e-12)
    with pytest.raises(ValueError, match=r"the same shape .*\(5, 3, 1\) and \(4, 3, 1"):
        feasible_divergence(kl, excess[:4])


def test_adaptive_search_equals_a_plain_loop(data, mlp, feasible):
    X, _ = data
    points = np.r_[X[:2], [[20.0] * 5]]
    record = feasible.search_models(points)
    changes = set()
    for i, x in enumerate(points):
        trace = feasible.trace(points[i : i + 1])
        c = (trace.loss - trace.attack_loss)[:10] / trace.penalty[:10]
        for t in range(3):
            outputs, losses, weights = _loop(feasible, mlp, x, t)
            assert_allclose(record.outputs[i, t], outputs, atol=1e-8)
            assert_allclose(record.loss[i, t], losses, atol=1e-8)
            assert_allclose(c[:, t], weights[:10], rtol=1e-4)
            changes |= set(weights[3:10:3] / weights[:9:3])
            # without an attack in the last quarter
            loss = trace.loss[10:, t]
            assert_allclose(loss, weights[10:] * trace.penalty[10:, t], atol=1e-7)
    assert changes == {0.25, 4.0}
    _, control, _ = _loop(feasible, mlp, X[0], 0, attack=False)
    assert feasible.evaluation_loss_ == pytest.approx(control[0], rel=1e-10)
    assert feasible.least_loss_ == pytest.approx(control.min(), abs=1e-8)
    assert feasible.least_loss_ < feasible.evaluation_loss_


@pytest.mark.parametrize("temperature, gamma", [(None, None), (1e-9, 0.05), (0.3, 0.0)])
def test_feasible_members(data, mlp, feasible, temperature, gamma):
    """The uncertainty is the mean of the largest discounted divergences."""
    X, _ = data
    points = np.r_[X[:4], [[20.0] * 5]]
    record = feasible.search_models(points)
    uncertainty = record.uncertainty(temperature, gamma)
    used = temperature or 1e-3, 0.003 if gamma is None else gamma
    log_p = mlp.predict_log_proba(points)
    for i in range(5):
        values = []
        for t in range(3):
            divergence = kl_divergence(log_p[i], record.outputs[i, t])
            excess = np.maximum(record.loss[i, t] - feasible.least_loss_ - used[1], 0)
            values.append(max(divergence * np.exp(-excess / used[0])))
        assert uncertainty.epistemic[i] == pytest.approx(np.mean(values), abs=1e-12)
        entropy = -math.fsum(np.exp(log_p[i]) * log_p[i])
        assert uncertainty.aleatoric[i] == pytest.approx(entropy, rel=1e-9)
    assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)
    if temperature is None:
        assert uncertainty.epistemic.max() > 1e-3
        direct = feasible.predict_uncertainty(points)
        for name in FIELDS:
            assert_array_equal(direct[name], uncertainty[name])
        assert_allclose(feasible.predict_proba(points), np.exp(log_p), rtol=1e-12)
        assert feasible.predict_members(points).shape == (4, 5, 3)
        trace = feasible.trace(points[-1:])
        assert trace.weights.sum() == pytest.approx(1.0)
        epistemic = (trace.weights * trace.divergence).sum()
        assert epistemic == pytest.approx(uncertainty.epistemic[-1], abs=1e-10)


def test_constraint_binds(data, mlp):
    """A fixed weak penalty leaves models that do not fit; the adaptive one does not."""
    X, y = data
    component = LocalComponent("delta", n_evaluation_samples=N_EVALUATION)
    excess = {}
    for eta in (1.0, "adaptive"):
        search = AdversarialSearch(40, eta=eta, c0=0.1, batch_size=16, lr=0.02)
        quam = QUAM(FrozenEstimator(mlp), search, component=component, random_state=0)
        quam.fit(X, y)
        loss = quam.search_models(X[:6]).loss[:, :, -1]
        excess[eta] = np.median(loss) - loss_of(quam, mlp)
    assert excess[1.0] > 0.05
    assert excess["adaptive"] < 0.01


def loss_of(quam, mlp):
    """Return the loss of the network on the evaluation samples."""
    index = quam.evaluation_index_
    log_p = mlp.predict_log_proba(quam.penalty_features_[index])
    return -log_p[np.arange(len(index)), quam.penalty_targets_[index]].mean()


# ---- blocks of points, kinds of networks


@pytest.mark.parametrize("component", ["delta", "feasible"])
def test_results_do_not_depend_on_chunks(data, mlp, component, monkeypatch):
    X, y = data
    quam = _quam(FrozenEstimator(mlp), component).fit(X, y)
    expected = quam.predict_uncertainty(X[:7])
    for chunk_size in (1, 2, 64):
        quam.set_params(search__chunk_size=chunk_size)
        uncertainty = quam.predict_uncertainty(X[:7])
        for name in FIELDS:
            assert_allclose(uncertainty[name], expected[name], rtol=1e-8, atol=1e-12)
    quam.set_params(search__chunk_size="auto")
    monkeypatch.setattr(_searches, "_CPU_BUDGET", 9000)  # targets in groups
    split = quam.predict_uncertainty(X[:2])
    assert_allclose(split.epistemic, expected.epistemic[:2], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_scopes_and_precisions(scope):
    X, y = digits(40, dtype=np.float64)
    results = []
    for dtype in (torch.float64, torch.float32):
        network = pretrained(lenet(dtype))
        quam = _quam(network).set_params(scope=scope).fit(X, y)
        results.append(quam.predict_uncertainty(X[:2]).epistemic)
        assert quam.least_loss_ <= quam.evaluation_loss_
    assert_allclose(results[1], results[0], rtol=0.05, atol=1e-4)
    assert max(results[0]) > 0


@pytest.mark.parametrize("component", ["delta", "feasible"])
def test_regressor(component):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(100, 1))
    y = np.sin(2 * X[:, 0]) + rng.normal(scale=0.2, size=100)
    net = MLPRegressor(hidden_layer_sizes=(20,), solver="lbfgs", random_state=0)
    quam = _quam(net, component, n_steps=60, c0=100.0, lr=0.01).fit(X, y)
    near, far = quam.predict_uncertainty([[0.0], [6.0]]).epistemic
    assert 0 <= 2 * near < far
    trace = quam.trace([[6.0]])
    if component == "delta":
        assert_allclose((trace.weights * trace.divergence).sum(), far, rtol=1e-9)


def test_other_searches(data, mlp):
    """Starts without a target, and draws around the models of adaptive searches."""
    X, y = data
    quam = _quam(FrozenEstimator(mlp)).set_params(targets="untargeted").fit(X, y)
    assert (quam.predict_uncertainty(X[:3]).epistemic >= 0).all()
    (models,) = quam.adversarial_models(X[:1])
    assert len(models) == 4
    drawn = _quam(FrozenEstimator(mlp), "laplace").fit(X, y)
    assert drawn.predict_members(X[:2]).shape == (30, 2, 3)


# ---- records


def test_record_needs_no_search(data, feasible, monkeypatch):
    X, _ = data
    record = feasible.search_models(X[:5])
    expected = feasible.predict_uncertainty(X[:5])
    monkeypatch.setattr(_searches, "search", None)
    for temperature in np.logspace(-5, 0, 20):
        record.uncertainty(temperature)
    for name in FIELDS:
        assert_array_equal(record.uncertainty()[name], expected[name])
    assert feasible.temperature is None
    assert feasible.component.kind == "feasible"
    assert feasible.search.gamma is None
    assert repr(record) == "SearchRecord(n_samples=5, n_targets=3, n_models=6)"
    assert len(record) == 5


def test_record_with_other_parameters(data, mlp):
    X, y = data
    quam = _quam(FrozenEstimator(mlp), "delta").fit(X, y)
    record = quam.search_models(X[:5])
    for params, options in (
        ({"temperature": 0.2}, {"temperature": 0.2}),
        ({"component__kind": "feasible"}, {"component": "feasible"}),
    ):
        other = copy.deepcopy(quam).set_params(**params)
        expected = other.predict_uncertainty(X[:5])
        uncertainty = record.uncertainty(**options)
        assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-12)
    first = SearchRecord(
        record.reference, record.outputs[:, :, :2], record.loss[:, :, :2], quam
    )
    assert_array_equal(
        record.uncertainty(n_models=2).epistemic, first.uncertainty().epistemic
    )
    assert_allclose(record.uncertainty(n_models=1).epistemic, 0, atol=1e-12)
    with parallel_config(backend="threading"):  # as processes are slow to start
        parallel = copy.copy(quam).set_params(n_jobs=2).search_models(X[:5])
    assert_allclose(parallel.outputs, record.outputs, atol=1e-8)
    with pytest.raises(ValueError, match="'laplace' draws members around"):
        record.uncertainty(component="laplace")
    with pytest.raises(ValueError, match="n_models"):
        record.uncertainty(n_models=0)


def test_tune(data, mlp):
    X, y = data
    quam = _quam(FrozenEstimator(mlp), "delta", c0=0.1).fit(X, y)
    record = quam.search_models(X[:9])
    medians = [
        np.median(record.uncertainty(temperature).epistemic)
        for temperature in np.logspace(-5, 0, 30)
    ]
    median = float(np.median(medians))
    largest = max(
        t for t, m in zip(np.logspace(-5, 0, 30), medians, strict=True) if m <= median
    )
    params = record.tune(median=median)
    assert params == {"temperature": pytest.approx(largest)}
    epistemic = copy.copy(quam).set_params(**params).predict_uncertainty(X[:9])
    assert np.median(epistemic.epistemic) <= median * (1 + 1e-9)
    least = min(medians) / 2
    with pytest.raises(ValueError, match=f"at least {min(medians):.3g}, and median="):
        record.tune(median=least)


# ---- errors, files


def test_errors(data, mlp, feasible):
    X, y = data
    with pytest.raises(ValueError, match="setting='b', but the setting is 'a'"):
        _quam(FrozenEstimator(mlp)).set_params(setting="a").fit(X, y)
    with pytest.raises(ValueError, match="setting='b', but the setting is 'a'"):
        copy.copy(feasible).set_params(setting="a").predict_uncertainty(X[:1])
    with pytest.raises(ValueError, match="return_error=True needs members that are"):
        feasible.predict_uncertainty(X[:1], return_error=True)
    changed = pickle.loads(pickle.dumps(feasible)).set_params(search__lr=0.01)
    with pytest.raises(ValueError, match=r"'lr': 0\.03.*'lr': 0\.01.*call fit again"):
        changed.predict_uncertainty(X[:1])
    search = AdversarialSearch(n_steps=3, batch_size=8)
    plain = QUAM(FrozenEstimator(mlp), search, random_state=0).fit(X, y)
    assert plain.least_loss_ is None
    with pytest.raises(ValueError, match="fit with this component, or with eta='ada"):
        plain.search_models(X[:1]).uncertainty(component="feasible")
    linear = QUAM(LinearRegression(), search, component="laplace")
    with pytest.raises(ValueError, match="'laplace' is for classifiers"):
        linear.fit(X, y)


def test_files(data, feasible, tmp_path):
    X, _ = data
    expected = feasible.predict_uncertainty(X[:3]).epistemic
    stored = pickle.loads(pickle.dumps(feasible))
    assert_array_equal(stored.predict_uncertainty(X[:3]).epistemic, expected)
    dump(feasible, tmp_path / "quam.skood")
    loaded = load(tmp_path / "quam.skood")
    assert_allclose(loaded.predict_uncertainty(X[:3]).epistemic, expected, rtol=1e-9)


def test_fixed_penalty_with_feasible_members(data, mlp):
    """The control search follows a fixed schedule, too, and all models are compared."""
    X, y = data
    search = AdversarialSearch(n_steps=8, batch_size=8)
    component = LocalComponent("feasible", n_evaluation_samples=N_EVALUATION)
    quam = QUAM(FrozenEstimator(mlp), search, component=component, random_state=0)
    quam.fit(X, y)
    record = quam.search_models(X[:3])
    assert record.loss.shape == (3, 3, 9)
    assert_allclose(record.loss[:, :, 0], quam.evaluation_loss_, rtol=1e-9)
    uncertainty = record.uncertainty()
    assert (uncertainty.epistemic >= 0).all()
