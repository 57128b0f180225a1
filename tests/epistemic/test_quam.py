"""QUAM against plain loops: uncertainties, traces, blocks of points."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from torch import nn

from skood.epistemic.quam import _searches as _searching
from skood.nn import pretrained
from tests.epistemic._lenet import N_CLASSES, digits, lenet, plain_search
from tests.epistemic._quam import FIELDS, QUICK, STEP, make_quam
from tests.nn._conv_net import fully_convolutional, perceptron_in_torch

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _naive(quam, mlp, X, y, x, targets=range(3)):
    """Plain searches of one point, from the rows that the fit has drawn."""
    used = quam.penalty_features_
    place = [int(np.flatnonzero((X == row).all(axis=1))[0]) for row in used]
    batches = [
        (torch.as_tensor(X[samples]), torch.as_tensor(y[samples]))
        for samples in np.array(place)[quam.penalty_index_]
    ]
    module = perceptron_in_torch(mlp)
    names = [name for name, _ in module.named_parameters()]
    x = torch.as_tensor(x)
    return [plain_search(module, names, x, t, batches, **STEP) for t in targets]


def _softmax(losses, temperature):
    """Weights of members, from a list of losses."""
    values = [math.exp(-(loss - min(losses)) / temperature) for loss in losses]
    return [value / math.fsum(values) for value in values]


def _measure(log_p, weights, reference, setting):
    """Total, aleatoric and epistemic uncertainty of one point, by loops."""
    p = np.exp(log_p)
    if setting == "a":
        other = np.log([math.fsum(weights * p[:, k]) for k in range(p.shape[1])])
        aleatoric = -math.fsum(
            w * math.fsum(q * r) for w, q, r in zip(weights, p, log_p, strict=True)
        )
        epistemic = math.fsum(
            w * math.fsum(q * (r - other))
            for w, q, r in zip(weights, p, log_p, strict=True)
        )
    else:
        separate = np.exp(reference)
        aleatoric = -math.fsum(separate * reference)
        epistemic = math.fsum(
            w * math.fsum(separate * (reference - r))
            for w, r in zip(weights, log_p, strict=True)
        )
    return aleatoric + epistemic, aleatoric, epistemic


# ---- the numbers


@pytest.mark.parametrize("setting", ["a", "b"])
@pytest.mark.parametrize("temperature", [0.05, 1.0, np.inf])
@pytest.mark.parametrize("targets", ["all", 2])
def test_uncertainty_equals_a_plain_loop(data, mlp, setting, temperature, targets):
    X, y = data
    points = np.r_[X[:3], [[0.0] * 5, [30.0] * 5]]
    quam = make_quam(
        FrozenEstimator(mlp),
        setting=setting,
        temperature=temperature,
        targets=targets,
        **QUICK,
        **STEP,
    ).fit(X, y)
    uncertainty = quam.predict_uncertainty(points)
    members = quam.predict_members(points)
    log_p = mlp.predict_log_proba(points)
    for i, x in enumerate(points):
        attacked = range(3) if targets == "all" else np.argsort(-log_p[i])[:2].tolist()
        searches = _naive(quam, mlp, X, y, x, attacked)
        # all models, step by step
        outputs = np.array([search.outputs for search in searches]).swapaxes(0, 1)
        losses = np.array([search.training_loss for search in searches]).T
        outputs = outputs.reshape(-1, 3)
        assert_allclose(members[:, i], np.exp(outputs), rtol=1e-8)
        weights = np.array(_softmax(losses.ravel().tolist(), temperature))
        expected = _measure(outputs, weights, log_p[i], setting)
        for name, value in zip(FIELDS, expected, strict=True):
            assert uncertainty[name][i] == pytest.approx(value, rel=1e-7), name
    assert_allclose(quam.predict_proba(points), np.exp(log_p), rtol=1e-12)
    assert_array_equal(quam.predict(points), mlp.predict(points))


def test_weights_from_n_evaluation_samples(data, mlp):
    """All models are evaluated on the same rows."""
    X, y = data
    quam = make_quam(
        FrozenEstimator(mlp), n_evaluation_samples=20, **QUICK, **STEP
    ).fit(X, y)
    assert quam.evaluation_index_.shape == (20,)
    penalty_features = quam.penalty_features_[quam.evaluation_index_]
    answers = quam.penalty_targets_[quam.evaluation_index_]
    assert len(np.unique(penalty_features, axis=0)) == 20
    for row, answer in zip(penalty_features, answers, strict=True):
        assert y[(X == row).all(axis=1)] == answer
    trace = quam.trace(X[:1])
    # the last model of each search, and the first, which is the given one
    searches = _naive(quam, mlp, X, y, X[0])
    module = perceptron_in_torch(mlp)
    losses = {}
    for t, item in enumerate(searches):
        module.load_state_dict(item.weights)
        with torch.no_grad():
            loss = nn.functional.cross_entropy(
                module(torch.as_tensor(penalty_features)), torch.as_tensor(answers)
            )
        losses[t] = float(loss)
    original = float(
        -mlp.predict_log_proba(penalty_features)[np.arange(20), answers].mean()
    )
    for t, loss in losses.items():
        ratio = trace.weights[-1, t] / trace.weights[0, 0]
        assert ratio == pytest.approx(math.exp((original - loss) / 0.1), rel=1e-6)
    assert trace.weights.sum() == pytest.approx(1.0)
    plain = make_quam(FrozenEstimator(mlp), **QUICK, **STEP).fit(X, y)
    assert plain.evaluation_index_.shape == (0,)
    assert_array_equal(plain.trace(X[:1]).log_proba, trace.log_proba)


def test_more_targets_than_classes(data, mlp):
    X, y = data
    both = [
        make_quam(FrozenEstimator(mlp), targets=targets, **QUICK).fit(X, y)
        for targets in ("all", 3, 7)
    ]
    expected = both[0].predict_uncertainty(X[:4])
    for other in both[1:]:
        assert_array_equal(
            other.predict_uncertainty(X[:4]).epistemic, expected.epistemic
        )


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_images(scope):
    """A convolutional network, by a plain loop in double precision."""
    X, y = digits(40, dtype=np.float64)
    module = lenet(torch.float64)
    names = [
        name
        for name, _ in module.named_parameters()
        if scope == "full" or name.startswith("fc3" if scope == "last" else "fc")
    ]
    quam = make_quam(pretrained(module), scope=scope, **QUICK, **STEP).fit(X, y)
    rng = np.random.RandomState(0)
    order = np.concatenate([rng.permutation(40) for _ in range(2)])[:48].reshape(6, 8)
    batches = [(torch.as_tensor(X[r]), torch.as_tensor(y[r])) for r in order]
    points = X[:2] + 1
    trace_members = quam.predict_members(points)
    for i in range(2):
        for t in range(N_CLASSES):
            x = torch.as_tensor(points[i])
            item = plain_search(module, names, x, t, batches, **STEP)
            assert_allclose(
                trace_members[t::N_CLASSES, i], np.exp(item.outputs), atol=1e-9
            )


# ---- traces


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_trace_equals_a_plain_loop(data, mlp, gamma):
    X, y = data
    quam = make_quam(FrozenEstimator(mlp), gamma=gamma, **QUICK, **STEP).fit(X, y)
    trace = quam.trace(X[7:8])
    searches = _naive(quam, mlp, X, y, X[7])
    log_p = mlp.predict_log_proba(X[7:8])[0]
    assert_array_equal(trace.targets, [0, 1, 2])
    assert_allclose(trace.reference, log_p, rtol=1e-10)
    all_losses = [loss for search in searches for loss in search.training_loss]
    weights = np.reshape(_softmax(all_losses, 0.1), (3, 6)).T
    assert_allclose(trace.weights, weights, rtol=1e-7)
    penalty_features = quam.penalty_features_[quam.penalty_index_]
    answers = quam.penalty_targets_[quam.penalty_index_]
    for step in range(6):
        separate = -mlp.predict_log_proba(penalty_features[step])[
            np.arange(8), answers[step]
        ].mean()
        assert quam.reference_loss_[step] == pytest.approx(separate, rel=1e-10)
        c = 3.0 * 1.6 ** (step // 2)
        for t, search in enumerate(searches):
            training, attack = search.training_loss[step], search.attack_loss[step]
            at = step, t
            assert trace.training_loss[at] == pytest.approx(training, abs=1e-9)
            assert trace.attack_loss[at] == pytest.approx(attack, abs=1e-9)
            penalty = training - (separate + gamma)
            assert trace.penalty[at] == pytest.approx(penalty, abs=1e-9)
            assert trace.loss[at] == pytest.approx(attack + c * penalty, abs=1e-8)
            assert_allclose(trace.log_proba[step, t], search.outputs[step], atol=1e-8)
            kl = math.fsum(np.exp(log_p) * (log_p - search.outputs[step]))
            assert trace.divergence[at] == pytest.approx(kl, abs=1e-9)
    assert_allclose(trace.penalty[0], -gamma, atol=1e-12)
    assert_allclose(trace.divergence[0], 0, atol=1e-12)


def test_gamma_does_not_change_the_search(data, mlp, quam):
    X, y = data
    shifted = make_quam(FrozenEstimator(mlp), gamma=0.7, **QUICK, **STEP).fit(X, y)
    assert_array_equal(
        shifted.predict_uncertainty(X[:5]).epistemic,
        quam.predict_uncertainty(X[:5]).epistemic,
    )
    item, other = quam.trace(X[:1]), shifted.trace(X[:1])
    assert set(item) == {
        "targets",
        "loss",
        "attack_loss",
        "training_loss",
        "penalty",
        "divergence",
        "weights",
        "log_proba",
        "reference",
    }
    for name in set(item) - {"loss", "penalty"}:
        assert_array_equal(item[name], other[name])
    c = 3.0 * 1.6 ** (np.arange(6) // 2)[:, None]
    assert_allclose(item.loss - other.loss, 0.7 * c * np.ones((1, 3)))


def test_trace_is_about_a_single_point(data, quam):
    X, _ = data
    for n_samples in (2, 0):
        text = rf"searches of one point, got {n_samples} samples. Pass X\[i : i"
        with pytest.raises(ValueError, match=text):
            quam.trace(X[:n_samples])


def test_trace_of_string_labels_and_few_targets(data):
    X, y = data
    names = np.array(["ant", "bee", "cat"])[y]
    clf = MLPClassifier((6,), solver="lbfgs", max_iter=8, random_state=0)
    quam = make_quam(clf, targets=2, **QUICK).fit(X, names)
    trace = quam.trace(X[:1])
    proba = quam.predict_proba(X[:1])[0]
    assert trace.targets.tolist() == quam.classes_[np.argsort(-proba)[:2]].tolist()
    assert trace.weights.shape == trace.loss.shape == (6, 2)
    assert trace.log_proba.shape == (6, 2, 3)
    # each search moves towards its target
    for j, target in enumerate(trace.targets):
        k = list(quam.classes_).index(target)
        assert trace.log_proba[-1, j, k] > trace.reference[k]


# ---- blocks of memory, processes


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_chunks_are_all_the_same(scope):
    X, y = digits(12, dtype=np.float64)
    frozen = pretrained(lenet(torch.float64))
    quam = make_quam(frozen, scope=scope, **QUICK).fit(X, y)
    points = digits(3, seed=5, dtype=np.float64)[0]
    expected = quam.set_params(search__chunk_size=64).predict_uncertainty(points)
    for chunk_size in (2, "auto"):
        uncertainty = quam.set_params(
            search__chunk_size=chunk_size
        ).predict_uncertainty(points)
        for name in FIELDS:
            assert_allclose(uncertainty[name], expected[name], rtol=1e-7)


def test_targets_of_a_point_in_groups(data, mlp, quam, monkeypatch):
    """With very little memory, the classes are attacked one after the other."""
    X, _ = data
    result, trace = quam.predict_uncertainty(X[:4]), quam.trace(X[:1])
    sizes = []
    search = _searching.search

    def spy(tail, points, task, n_searches, *rest):
        sizes.append((len(points), n_searches))
        return search(tail, points, task, n_searches, *rest)

    monkeypatch.setattr(_searching, "search", spy)
    for budget, expected in ((1, 1), (9000, 2)):
        sizes.clear()
        monkeypatch.setattr(_searching, "_CPU_BUDGET", budget)
        split = quam.predict_uncertainty(X[:4])
        assert max(sizes) == (1, expected)
        assert sum(n for _, n in sizes) == 12
        for name in FIELDS:
            assert_allclose(split[name], result[name], rtol=1e-8)
        parts = quam.trace(X[:1])
        for name in trace:
            assert_allclose(parts[name], trace[name], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_parts_of_the_points_at_the_same_time(data, quam, backend):
    X, _ = data
    kinds = [X[:5], pd.DataFrame(X[:5]), X[:5].tolist(), torch.as_tensor(X[:5])]
    expected = quam.set_params(n_jobs=None).predict_uncertainty(X[:5])
    for samples in kinds if backend == "threading" else kinds[:1]:
        with parallel_config(backend):
            uncertainty = quam.set_params(n_jobs=2).predict_uncertainty(samples)
        for name in FIELDS:
            assert uncertainty[name].dtype == np.float64
            assert_allclose(uncertainty[name], expected[name], rtol=1e-9)


def test_images_of_another_size_raise():
    """75 logits of an image are no classes: the check of `fit` does not suffice."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(12, 1, 4, 4)).astype(np.float32)
    net = FrozenEstimator(pretrained(fully_convolutional(), classes=[0, 1, 2]))
    quam = make_quam(net, scope="full", **QUICK).fit(images, np.arange(12) % 3)
    assert quam.predict_uncertainty(images[:2]).epistemic.shape == (2,)
    larger = rng.normal(size=(2, 1, 8, 8)).astype(np.float32)
    with pytest.raises(ValueError, match="must have one output per class"):
        quam.predict_uncertainty(larger)
