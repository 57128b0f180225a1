"""Body, rectifier and detector in a pipeline: what a naive loop over rows computes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline

from skood.detectors import KNN, MSP, Energy
from skood.metrics import make_ood_scorer
from skood.nn import TorchClassifier, pretrained, split
from skood.rectifiers import ASH, DICE, LTS, SCALE, VRA, ReAct
from tests._loops import looped

N_TRAIN = 300
N_NEIGHBORS = 5


# ---------------------------------------------------------------------------------
# The naive side: lists, loops and math.


def _quantile(values, q):
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    rank = min(int(position), len(ordered) - 2)
    return ordered[rank] + (position - rank) * (ordered[rank + 1] - ordered[rank])


def _react(train, head):
    c = _quantile([value for row in train for value in row], 0.9)
    return lambda z: [min(value, c) for value in z]


def _vra(train, head):
    low = [_quantile(column, 0.1) for column in zip(*train, strict=True)]
    high = [_quantile(column, 0.9) for column in zip(*train, strict=True)]

    def rectify(z):
        cut = zip(z, low, high, strict=True)
        return [0.0 if value < a else min(value, b) for value, a, b in cut]

    return rectify


def _n_kept(z, pruned):
    return max(1, len(z) - round(len(z) * pruned))


def _ash(variant):
    def rectify(z):
        k = _n_kept(z, 0.65)
        remaining = sorted(range(len(z)), key=lambda j: (-z[j], j))[:k]
        remaining = [j for j in remaining if z[j] > 0]
        s1, s2 = sum(z), sum(z[j] for j in remaining)
        value = {
            "s": lambda j: z[j] * math.exp(s1 / s2),
            "b": lambda j: s1 / len(remaining),
            "p": lambda j: z[j],
        }[variant]
        return [value(j) if j in remaining else 0.0 for j in range(len(z))]

    return lambda train, head: rectify


def _scale(train, head):
    def rectify(z):
        s1, s2 = sum(z), sum(sorted(z)[-_n_kept(z, 0.85) :])
        return [value * math.exp(s1 / s2) for value in z]

    return rectify


def _lts_factor(z):
    return (sum(z) / sum(sorted(z)[-_n_kept(z, 0.95) :])) ** 2


def _lts(train, head):
    return lambda z: [_lts_factor(z) * value for value in z]


def _logits(z, coef, intercept):
    return [
        bias + sum(w * value for w, value in zip(row, z, strict=True))
        for row, bias in zip(coef, intercept, strict=True)
    ]


def _energy(logits):
    shift = max(logits)
    return shift + math.log(sum(math.exp(value - shift) for value in logits))


def _msp(logits):
    """The largest probability minus one, without cancellation."""
    weights = sorted(math.exp(value - max(logits)) for value in logits)
    return -sum(weights[:-1]) / sum(weights)


def _unit(z):
    length = math.sqrt(sum(value**2 for value in z))
    return [value / length for value in z]


def _knn(train, samples):
    bank = [_unit(z) for z in train]
    return [
        -sorted(math.dist(_unit(z), other) for other in bank)[N_NEIGHBORS - 1]
        for z in samples
    ]


RECTIFIERS = {
    "react": (ReAct(), _react),
    "vra": (VRA(), _vra),
    "ash-s": (ASH(), _ash("s")),
    "ash-b": (ASH(variant="b"), _ash("b")),
    "ash-p": (ASH(variant="p"), _ash("p")),
    "scale": (SCALE(), _scale),
    "lts": (LTS(), _lts),
}


# ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    """Images of eight digits to train on, and of all ten to score."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).reshape(-1, 1, 8, 8)
    known = np.flatnonzero(y < 8)[:N_TRAIN]
    return X, y, known, X[-80:]


@pytest.fixture(scope="module")
def network(data):
    """A convolutional network, trained for some epochs, in double precision."""
    X, y, known, _ = data
    trained = TorchClassifier(
        module_params={"channels": (6, 8), "hidden": 24},
        max_epochs=8,
        lr=1e-2,
        random_state=0,
        device="cpu",
    ).fit(X[known], y[known])
    assert trained.score(X[known], y[known]) > 0.8
    module = copy.deepcopy(trained.module_).double()
    return pretrained(module, classes=trained.classes_, input_shape=(1, 8, 8))


def _features(network, images):
    """Input of the last layer, by a forward pass of one image after the other."""
    layers = list(network.module_.children())[:-1]
    samples = []
    with torch.no_grad():
        for image in images:
            hidden = torch.from_numpy(image)[None]
            for layer in layers:
                hidden = layer(hidden)
            samples.append(hidden[0].tolist())
    return samples


@pytest.fixture(scope="module")
def naive(network, data):
    """Features of the training and test images, and the weights, as lists."""
    X, _, known, test = data
    last = list(network.module_.children())[-1]
    head = last.weight.tolist(), last.bias.tolist()
    return _features(network, X[known]), _features(network, test), head


@looped("name", RECTIFIERS)
@pytest.mark.parametrize("detector", ["energy", "msp", "knn"])
def test_equals_naive_loop(name, detector, network, naive, data):
    X, y, known, test = data
    train, queries, head_weights = naive
    rectifier, make_naive = RECTIFIERS[name]
    rectify = make_naive(train, head_weights)
    rectified = [rectify(z) for z in queries]
    if detector == "knn":
        expected = _knn([rectify(z) for z in train], rectified)
    else:
        score = {"energy": _energy, "msp": _msp}[detector]
        expected = [score(_logits(z, *head_weights)) for z in rectified]

    body, head = split(network)
    last = {
        "energy": Energy(estimator=head),
        "msp": MSP(estimator=head),
        "knn": KNN(n_neighbors=N_NEIGHBORS, normalize=True),
    }[detector]
    pipeline = make_pipeline(body, clone(rectifier), last)
    got = pipeline.fit(X[known], y[known]).score_samples(test)
    # binarized features have neighbors at a distance of zero
    atol = 1e-14 if detector == "knn" else 0.0
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=atol)


@pytest.mark.parametrize("score", ["energy", "msp"])
def test_lts_with_the_head_scales_the_logits(score, network, naive, data):
    """The paper's logits, which LTS without the head has up to the bias."""
    X, y, known, test = data
    _, queries, weights = naive
    logits = [
        [_lts_factor(z) * value for value in _logits(z, *weights)] for z in queries
    ]
    expected = [{"energy": _energy, "msp": _msp}[score](row) for row in logits]
    body, head = split(network)
    last = {"energy": Energy, "msp": MSP}[score](estimator=head)
    pipeline = make_pipeline(body, LTS(head), last).fit(X[known], y[known])
    np.testing.assert_allclose(pipeline.score_samples(test), expected, rtol=1e-6)


@pytest.mark.parametrize("score", ["energy", "msp"])
@pytest.mark.parametrize("react", [False, True])
def test_dice_equals_naive_loop(score, react, network, naive, data):
    X, y, known, test = data
    train, queries, (coef, intercept) = naive
    rectify = _react(train, None) if react else list
    train, queries = [rectify(z) for z in train], [rectify(z) for z in queries]
    mean = [sum(column) / len(column) for column in zip(*train, strict=True)]
    V = [[w * m for w, m in zip(row, mean, strict=True)] for row in coef]
    q = _quantile([value for row in V for value in row], 0.9)
    masked = [
        [w if v > q else 0.0 for w, v in zip(*both, strict=True)]
        for both in zip(coef, V, strict=True)
    ]
    function = {"energy": _energy, "msp": _msp}[score]
    expected = [function(_logits(z, masked, intercept)) for z in queries]

    body, head = split(network)
    last = {"energy": Energy, "msp": MSP}[score](estimator=DICE(head))
    steps = [body, ReAct(), last] if react else [body, last]
    pipeline = make_pipeline(*steps).fit(X[known], y[known])
    np.testing.assert_allclose(pipeline.score_samples(test), expected, rtol=1e-6)
    loaded = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(
        loaded.score_samples(test), pipeline.score_samples(test)
    )


def test_ood_samples_are_left_out_of_all_steps(network, data):
    X, y, known, test = data
    body, head = split(network)
    pipeline = make_pipeline(body, VRA(), Energy(estimator=DICE(head)))
    expected = clone(pipeline).fit(X[known], y[known]).score_samples(test)
    ood = np.flatnonzero(y >= 8)
    indices = np.concatenate([ood, known])
    labels = np.where(y[indices] >= 8, -1, y[indices])
    got = clone(pipeline).fit(X[indices], labels).score_samples(test)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_grid_search(network, data):
    X, y, known, _ = data
    indices = np.concatenate([known, np.flatnonzero(y >= 8)[:100]])
    X, y = X[indices], np.where(y[indices] >= 8, -1, y[indices])
    body, head = split(network)
    pipeline = Pipeline(
        [("body", body), ("react", ReAct()), ("detector", Energy(estimator=head))]
    )
    cv = StratifiedKFold(3)
    search = GridSearchCV(
        pipeline,
        {"react__quantile": [0.05, 0.9, 1.0]},
        scoring=make_ood_scorer("auroc"),
        cv=cv,
        error_score="raise",
    ).fit(X, y)
    for i, quantile in enumerate((0.05, 0.9, 1.0)):
        for j, (train, test) in enumerate(cv.split(X, y)):
            is_id = y[train] != -1
            react = ReAct(quantile=quantile).fit(body.transform(X[train][is_id]))
            logits = head.predict_logits(react.transform(body.transform(X[test])))
            energy = [_energy(row) for row in logits.tolist()]
            expected = roc_auc_score(y[test] != -1, energy)
            got = search.cv_results_[f"split{j}_test_score"][i]
            assert got == pytest.approx(expected, rel=1e-9)
    assert search.best_params_["react__quantile"] > 0.05  # that cuts nearly all
    assert search.best_score_ > 0.7
