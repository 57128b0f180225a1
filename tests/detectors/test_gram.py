"""Tests of the deviation of Gram matrices."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from skood.detectors import Gram
from skood.detectors import _gram as module
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead, pretrained
from skood.utils._sample_keys import SampleKeys
from skood.utils._torch import is_tensor, row_chunks
from tests.nn._conv_net import (
    conv_classifier,
    conv_net,
    images,
    perceptron_in_torch,
)
from tests.nn._outputs import run

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    Gram(LogisticRegression(), random_state=0),
    Gram(
        MLPClassifier((8,), solver="lbfgs", random_state=0),
        powers=[1, 3],
        entries="row_sums",
        divide_by_confidence=True,
        random_state=0,
    ),
]


def _statistics(F, powers, entries):
    """Entries of the Gram matrices of one map, one by one, in plain Python."""
    collected = []
    for p in powers:
        raised = [[float(v) ** p for v in row] for row in F]
        G = [
            [sum(a * b for a, b in zip(r, s, strict=True)) for s in raised]
            for r in raised
        ]
        if entries == "upper":
            values = [G[i][j] for i in range(len(G)) for j in range(i, len(G))]
        else:
            values = [sum(row) for row in G]
        collected.append([np.sign(v) * abs(v) ** (1 / p) for v in values])
    return collected


def _deviation(values, low, high):
    total = 0.0
    for row, lows, highs in zip(values, low, high, strict=True):
        for v, m, M in zip(row, lows, highs, strict=True):
            if v < m:
                total += (m - v) / (abs(m) + 1e-6)
            if v > M:
                total += (v - M) / (abs(M) + 1e-6)
    return total


def _maps(X, names):
    """Maps of layers (channels, positions), and predictions, by hand."""
    net = conv_net(dtype=torch.float64, inplace=False).eval()
    places = list(dict(net.named_children()))
    maps = []
    for name in names:
        Z = run(*list(net)[: places.index(name) + 1], X=X)
        maps.append(Z.reshape(len(X), Z.shape[1], -1))
    return maps, run(net, X=X)


@pytest.mark.parametrize("entries", ["upper", "row_sums"])
@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("powers", [(1, 2, 3), (4, 2, 5)])
def test_equals_naive_loop_on_a_convolutional_network(entries, divide, powers):
    _, clf = conv_classifier(dtype=torch.float64)
    X, new = images(60, dtype=np.float64), images(12, seed=1, dtype=np.float64) * 1.5
    names = ["conv1", "relu2", "flat"]
    gram = Gram(
        clf,
        layers=names,
        powers=powers,
        entries=entries,
        divide_by_confidence=divide,
        random_state=3,
    ).fit(X)
    # the rows that were held out are those that deviate
    keys, seed = SampleKeys(X), np.random.RandomState(3)
    held, _, _ = module.held_out_copies(keys, None, 0.1, seed)
    assert len(held) == 6
    samples = np.concatenate([X, new])
    maps, logits = _maps(samples, names)
    predicted = logits.argmax(1)
    p = np.exp(logits - logits.max(1, keepdims=True))
    confidence = 1 / p.sum(1)
    training = np.setdiff1d(np.arange(60), held)
    deviations = np.zeros((len(samples), 3))
    for layer in range(3):
        values = np.array([_statistics(F, powers, entries) for F in maps[layer]])
        for k in range(3):
            own = values[training][predicted[training] == k]
            low, high = own.min(axis=0), own.max(axis=0)
            np.testing.assert_allclose(gram.minima_[layer][k], low, rtol=1e-8)
            np.testing.assert_allclose(gram.maxima_[layer][k], high, rtol=1e-8)
            for i in np.flatnonzero(predicted == k):
                deviations[i, layer] = _deviation(values[i], low, high)
                if divide:
                    deviations[i, layer] /= confidence[i]
    expected = deviations[held].mean(axis=0)
    np.testing.assert_allclose(gram.expected_deviations_, expected, rtol=1e-7)
    scores = -(deviations / expected).sum(axis=1)
    np.testing.assert_allclose(
        gram.score_samples(samples), scores, rtol=1e-6, atol=1e-9
    )
    # less than one of the 6 may be rejected
    assert gram.offset_ == pytest.approx(scores[held].min(), rel=2e-5)
    assert gram.offset_ < scores[held].min()


def test_samples_within_the_ranges_score_zero():
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(40, dtype=np.float64)
    gram = Gram(clf, random_state=0).fit(X)
    keys, seed = SampleKeys(X), np.random.RandomState(0)
    held, _, _ = module.held_out_copies(keys, None, 0.1, seed)
    scores = gram.score_samples(X)
    training = np.delete(scores, held)
    np.testing.assert_allclose(training, 0, atol=1e-9)
    assert (scores[held] < -0.1).all()
    # by construction the layers share the deviation of the rows that were held out
    assert scores[held].mean() == pytest.approx(-len(gram.layers_))


def test_scaling_the_features_changes_nothing(monkeypatch):
    """G(aF) = a² G(F): no overflow at 1e100, and only the added 1e-6 is not scaled."""
    draw = module.held_out_copies
    monkeypatch.setattr(  # the same samples, whatever their scale
        module, "held_out_copies", lambda keys, *args: draw(SampleKeys(X), *args)
    )
    X, y = load_iris(return_X_y=True)
    head = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, y))
    coef, intercept = head.coef_, head.intercept_
    scores = []
    for a in (1e4, 1e100):
        scaled = FrozenEstimator(LinearHead(coef / a, intercept))
        gram = Gram(scaled, powers=[1, 9], random_state=0).fit(X * a, y)
        scores.append(gram.score_samples((X + 1) * a))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6, atol=1e-9)


def test_vectors_have_products_of_entries():
    """Of one position G^p has the entries |z_i z_j|, with the sign for odd p."""
    X, y = load_iris(return_X_y=True)
    X = X - 3
    head = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, y))
    gram = Gram(head, powers=[1, 2], random_state=0).fit(X, y)
    assert gram.layers_ == ["penultimate"]
    keys, seed = SampleKeys(X), np.random.RandomState(0)
    held, _, _ = module.held_out_copies(keys, y, 0.1, seed)
    training = np.delete(X, held, axis=0)
    predicted = head.predict(training)
    first, second = np.triu_indices(4)
    for k in range(3):
        products = (training[:, first] * training[:, second])[predicted == k]
        low, high = gram.minima_[0][k], gram.maxima_[0][k]
        np.testing.assert_allclose(low[0], products.min(axis=0), rtol=1e-9)
        np.testing.assert_allclose(high[0], products.max(axis=0), rtol=1e-9)
        np.testing.assert_allclose(low[1], np.abs(products).min(axis=0), rtol=1e-9)
        np.testing.assert_allclose(high[1], np.abs(products).max(axis=0), rtol=1e-9)


def test_layers_of_a_perceptron():
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = MLPClassifier((6, 5), max_iter=50, random_state=0).fit(X, y)
    gram = Gram(FrozenEstimator(net), powers=[1], random_state=0).fit(X, y)
    assert gram.layers_ == [0, 1]
    assert [m.shape for m in gram.minima_] == [(3, 1, 21), (3, 1, 15)]
    named = Gram(FrozenEstimator(net), layers=[0, 1], powers=[1], random_state=0)
    np.testing.assert_array_equal(
        named.fit(X, y).score_samples(X), gram.score_samples(X)
    )


@pytest.mark.parametrize("on_gpu", [None, is_tensor])
@pytest.mark.parametrize("entries", ["upper", "row_sums"])
def test_the_same_network_in_torch(entries, on_gpu, monkeypatch):
    """NumPy arrays and tensors give the same; those on the CPU play a GPU's."""
    if on_gpu is not None:
        monkeypatch.setattr(module, "on_gpu", on_gpu)
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = MLPClassifier((6, 5), max_iter=300, activation="tanh", random_state=0)
        net.fit(X, y)
        ours = Gram(FrozenEstimator(net), entries=entries, random_state=0)
        ours.fit(X, y)
    clf = pretrained(perceptron_in_torch(net))
    copied = Gram(clf, layers=["1", "3"], entries=entries, random_state=0).fit(X, y)
    np.testing.assert_allclose(
        copied.score_samples(X + 1), ours.score_samples(X + 1), rtol=1e-8
    )
    assert copied.offset_ == pytest.approx(ours.offset_, rel=1e-8)
    fitted = [vars(one) for one in (ours, copied)]
    for name in ("minima_", "maxima_"):
        for a, b in zip(*(f[name] for f in fitted), strict=True):
            assert type(a) is type(b) is np.ndarray
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


def test_random_state():
    _, clf = conv_classifier()
    X = images(40)
    scores = [
        Gram(clf, random_state=seed).fit(X).score_samples(X * 2) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_classes_that_no_row_is_predicted_as():
    """They take the ranges of all training rows."""
    head = FrozenEstimator(LinearHead(np.eye(3), [0.0, 0.0, -1e6], ["a", "b", "c"]))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    with pytest.warns(SkoodWarning, match=r"None of 45 training .* classes \['c'\]"):
        gram = Gram(head, powers=[1], random_state=0).fit(X)
    for k, which in enumerate((np.min, np.max)):
        ranges = (gram.minima_, gram.maxima_)[k][0]
        np.testing.assert_array_equal(ranges[2], which(ranges[:2], axis=0))
    X_c = np.array([[0.0, 0.0, 2e6]])
    values = [[0, 0, 0, 0, 0, 4e12]]
    expected = _deviation(values, gram.minima_[0][2], gram.maxima_[0][2])
    assert expected > 1e10
    score = gram.score_samples(X_c)[0] * gram.expected_deviations_[0]
    assert score == pytest.approx(-expected, rel=1e-9)


def test_samples_held_out_that_do_not_deviate():
    """Constant activations: nothing deviates, and nothing is divided by zero."""
    head = FrozenEstimator(LinearHead(np.eye(2)))
    X = np.tile([[1.0, 2.0]], (20, 1))
    message = r"None of the 2 samples .* layers \['penultimate'\], so .*divided by 1"
    with pytest.warns(SkoodWarning, match=message):
        gram = Gram(head, powers=[1], random_state=0).fit(X)
    assert gram.expected_deviations_ == [1.0]
    assert gram.offset_ == pytest.approx(0)
    assert gram.predict(X[:1]) == [1]
    # 1, 2 and 4 become 1, 3 and 9
    expected = -(1 / (2 + 1e-6) + 5 / (4 + 1e-6))
    assert gram.score_samples([[1.0, 3.0]])[0] == pytest.approx(expected)


def test_bounds_of_zero():
    """ReLU gives many: what then is not zero deviates by a large, finite number."""
    head = FrozenEstimator(LinearHead(np.eye(2)))
    X = np.column_stack([np.linspace(1, 2, 20), np.zeros(20)])
    gram = Gram(head, powers=[1], random_state=0).fit(X)
    score = gram.score_samples([[1.5, 0.5]])[0] * gram.expected_deviations_[0]
    assert score == pytest.approx(-(0.75 / 1e-6 + 0.25 / 1e-6), rel=1e-6)


def test_maps_of_zeros():
    net, clf = conv_classifier()
    with torch.no_grad():
        for layer in (net.conv1, net.conv2):
            layer.weight.zero_()
            layer.bias.zero_()
    with pytest.warns(SkoodWarning, match=r"layers \['conv1', 'conv2'\]"):
        gram = Gram(clf, random_state=0).fit(images(20))
    np.testing.assert_array_equal(gram.score_samples(images(5)), 0)


def test_chunks_and_blocks_change_nothing(monkeypatch):
    from skood.nn import _torch_network

    _, clf = conv_classifier(dtype=torch.float64)
    X, new = images(40, dtype=np.float64), images(9, seed=1, dtype=np.float64)
    expected = Gram(clf, random_state=0).fit(X)
    monkeypatch.setattr(
        module, "row_chunks", lambda n, size, budget: row_chunks(n, size, 3 * size)
    )
    monkeypatch.setattr(_torch_network, "_BLOCK_BYTES", 12_000)
    gram = Gram(clf, random_state=0).fit(X)
    assert gram.offset_ == pytest.approx(expected.offset_, rel=1e-9)
    np.testing.assert_allclose(
        gram.score_samples(new), expected.score_samples(new), rtol=1e-9
    )


def test_float32_network_is_close_to_float64():
    X, new = images(60), 2 * images(20, seed=1)
    scores = []
    for dtype in (torch.float32, torch.float64):
        _, clf = conv_classifier(dtype=dtype)
        scores.append(Gram(clf, random_state=0).fit(X).score_samples(new))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"powers": []}, r"powers must be integers above 0, got \[\]"),
        ({"powers": [1, 0]}, "powers must be integers above 0"),
        ({"powers": [1.5]}, "powers must be integers above 0"),
        ({"powers": [[1, 2]]}, r"got \[\[1, 2\]\]. Give a flat list"),
        ({"powers": [[1, 2], [3]]}, "powers must be integers above 0"),
        ({"powers": [True]}, "powers must be integers above 0"),
        ({"powers": 2}, "'powers' parameter of Gram must be an array-like"),
        ({"layers": []}, r"layers must be 'all' or a list of distinct .* got \[\]"),
        ({"layers": ["penultimate"] * 2}, "list of distinct layers"),
        ({"layers": "conv"}, "'layers' parameter of Gram must be"),
        ({"layers": ["conv"]}, "a LogisticRegression has no layers"),
        ({"entries": "all"}, "'entries' parameter of Gram must be"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter of Gram"),
        ({"divide_by_confidence": 2}, "'divide_by_confidence' parameter of Gram"),
    ],
)
def test_bad_parameters(params, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        Gram(LogisticRegression(max_iter=500), **params).fit(X, y)


def test_what_cannot_be_fitted():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="a RandomForestClassifier has neither layers"):
        Gram(RandomForestClassifier(5)).fit(X, y)
    _, clf = conv_classifier()
    with pytest.raises(ValueError, match=r"to hold out, but with n_samples = 1 none"):
        Gram(clf).fit(images(1))
    with pytest.raises(ValueError, match="no layer named 'conv9'"):
        Gram(clf, layers=["conv9"]).fit(images(9))
    for layers in ([0.0, 1.0], [["conv1"]], [True]):
        with pytest.raises(TypeError, match="named by a str or an int, got"):
            Gram(clf, layers=layers).fit(images(9))


def test_other_numbers_of_classes_than_logits():
    net = conv_net()
    for classes in (["a", "b"], ["a", "b", "c", "d"]):
        message = f"has 3 outputs, but classes names {len(classes)}"
        with pytest.raises(ValueError, match=message):
            Gram(pretrained(net, classes=classes), random_state=0).fit(images(30))


def test_skorch_net_with_more_logits_than_classes():
    """It has seen three classes, and is never retrained: the fourth is numbered."""
    skorch = pytest.importorskip("skorch")
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    net = skorch.NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=4,
        module__out_features=4,
        verbose=0,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=1,
    ).fit(X, y)
    with torch.no_grad():
        net.module_.bias[3] = -100
    with pytest.warns(SkoodWarning, match=r"as one of the classes \[.*3\]"):
        gram = Gram(FrozenEstimator(net), random_state=0).fit(X, y)
    assert np.isfinite(gram.score_samples(X)).all()


def test_products_use_a_single_thread(monkeypatch):
    """Of small products more threads make it slower, several times if cores are busy.

    They are made by NumPy, whatever the user has set torch to.
    """
    seen = []
    original = module._Ranges._entries

    def entries(self, maps):
        pools = [p for p in threadpool_info() if p["user_api"] == "blas"]
        seen.append((type(maps), {p["num_threads"] for p in pools}))
        return original(self, maps)

    monkeypatch.setattr(module._Ranges, "_entries", entries)
    _, clf = conv_classifier()
    with threadpool_limits(limits=2):
        Gram(clf, random_state=0).fit(images(40))
    assert len(seen) > 3
    assert all(kind is np.ndarray and n in ({1}, set()) for kind, n in seen)


def test_against_pytorch_ood():
    """Its ranges are those of the labels, so labels are the predictions here.

    With one row per class next to those that are held out by neither: fewer than 10
    rows per class are not split there, and the expected deviation is 1.
    """
    detector = pytest.importorskip("pytorch_ood.detector")
    net, X, new = conv_net(inplace=False).eval(), images(60), 2 * images(20, seed=1)
    labels = torch.as_tensor(run(net, X=X).argmax(1))
    chosen = torch.cat([torch.where(labels == k)[0][:9] for k in range(3)])
    parts = list(net)
    peer = detector.Gram(
        torch.nn.Sequential(*parts[7:]),
        [torch.nn.Sequential(*parts[:3]), torch.nn.Sequential(*parts[3:7])],
        3,
        [1, 2, 3],
    )
    peer.to("cpu").fit([(torch.as_tensor(X)[chosen], labels[chosen])])
    expected = peer.predict(torch.as_tensor(new)).numpy()

    ours = Gram(
        pretrained(net), layers=["relu1", "relu2"], powers=[1, 2, 3], entries="row_sums"
    )
    ours.fit(X[np.append(chosen, 0)])
    # the same ranges, and sums of deviations as they are
    ours.minima_ = _stacked(peer.feature_min)
    ours.maxima_ = _stacked(peer.feature_max)
    ours.expected_deviations_ = np.ones(2)
    np.testing.assert_allclose(-ours.score_samples(new), expected, rtol=2e-3)


def _stacked(bounds):
    return [torch.stack(list(layer), dim=1).double().numpy() for layer in bounds]
