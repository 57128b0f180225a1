"""Tests of the energy without the largest component of a feature map."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from skood.detectors import Energy, RankFeat
from skood.detectors import _rank_feat as module
from skood.nn import pretrained
from tests.nn._conv_net import conv_classifier, conv_net, images, map_classifier
from tests.nn._outputs import numbers

# What the tests of all estimators check; at night, all of them.
INSTANCES = [RankFeat(map_classifier(max_epochs=4, lr=1e-2), layer="conv")]


def _removed(maps):
    """Maps without their first singular component, one by one, by NumPy's SVD."""
    reduced = np.empty_like(maps)
    for i, F in enumerate(maps):
        matrix = F.reshape(len(F), -1).astype(np.float64)
        u, s, vt = np.linalg.svd(matrix)
        reduced[i] = (matrix - s[0] * np.outer(u[:, 0], vt[0])).reshape(F.shape)
    return reduced


def _logits(X, n_before, n_classes=3, dtype=torch.float64):
    """Logits after the output of the first layers was replaced, by hand."""
    parts = list(conv_net(dtype=dtype, inplace=False, n_classes=n_classes).eval())
    with torch.no_grad():
        maps = nn.Sequential(*parts[:n_before])(torch.as_tensor(X))
        reduced = torch.as_tensor(_removed(maps.numpy()))
        return nn.Sequential(*parts[n_before:])(reduced).numpy()


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize(
    ("layer", "n_before"), [("conv1", 1), ("relu1", 3), ("relu2", 7), (1, 5)]
)
def test_equals_svd_of_each_map(layer, n_before, temperature):
    """More channels than positions, and fewer."""
    _, clf = conv_classifier(dtype=torch.float64)
    for size in (4, 8):
        X = images(11, size=size, dtype=np.float64)
        detector = RankFeat(clf, layer=layer, temperature=temperature).fit(X)
        logits = _logits(X, n_before)
        expected = temperature * logsumexp(logits / temperature, axis=1)
        np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-8)


def test_logits_of_several_layers_are_averaged():
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(11, dtype=np.float64)
    detector = RankFeat(clf, layer=["relu1", "relu2"]).fit(X)
    mean = (_logits(X, 3) + _logits(X, 7)) / 2
    np.testing.assert_allclose(
        detector.score_samples(X), logsumexp(mean, axis=1), rtol=1e-8
    )


def test_power_iteration_converges_to_the_svd():
    """At once where one component is much larger, as in maps after a ReLU."""
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(25, dtype=np.float64)
    for layer, enough in (("conv1", 3000), ("relu2", 20)):
        exact = RankFeat(clf, layer=layer).fit(X).score_samples(X)
        gaps = []
        for n_iterations in (1, enough):
            detector = RankFeat(
                clf, layer=layer, method="power", n_iterations=n_iterations
            ).fit(X)
            gaps.append(np.abs(detector.score_samples(X) - exact).max())
        assert gaps[1] < 1e-9
        assert layer == "relu2" or gaps[0] > 1e-3


@pytest.mark.parametrize("method", ["svd", "power"])
def test_maps_of_known_components(method):
    """Orthogonal components of sizes 5, 2, 1: the first goes, the others stay."""
    u, _ = np.linalg.qr(numbers(4, 4).astype(np.float64))
    v, _ = np.linalg.qr(numbers(9, 9, seed=1).astype(np.float64))
    detector = RankFeat(None, layer="x", method=method, n_iterations=200)
    for sign in (1.0, -1.0):
        parts = [sign * s * np.outer(u[:, i], v[i]) for i, s in enumerate((5, 2, 1))]
        for maps in (sum(parts), sum(parts).T):
            rest = parts[1] + parts[2]
            expected = rest if maps.shape == (4, 9) else rest.T
            result = detector._without_rank_one(torch.as_tensor(maps[None]))
            np.testing.assert_allclose(result[0], expected, atol=1e-12)


@pytest.mark.parametrize("method", ["svd", "power"])
@pytest.mark.parametrize("size", [1e-150, 1e-20, 1.0, 1e20, 1e200])
def test_size_of_the_map_does_not_matter(method, size):
    """Squares would underflow or overflow."""
    detector = RankFeat(None, layer="x", method=method)
    maps = torch.as_tensor(numbers(3, 4, 5, 5)).double()
    expected = detector._without_rank_one(maps)
    result = detector._without_rank_one(maps * size) / size
    np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize("method", ["svd", "power"])
def test_maps_of_zeros_and_of_rank_1(method):
    detector = RankFeat(None, layer="x", method=method)
    maps = torch.zeros(2, 4, 3, 3)
    maps[1] = torch.arange(1.0, 5)[:, None, None] * torch.arange(9.0).reshape(3, 3)
    result = detector._without_rank_one(maps)
    assert result.dtype == torch.float32 and result.shape == maps.shape
    np.testing.assert_array_equal(result[0], 0)
    np.testing.assert_allclose(result[1], 0, atol=1e-5)


def test_without_a_dominant_component_little_changes():
    """A map that the network ignores may be removed: the energy stays."""

    class Reads(nn.Module):
        """Its head reads what the first component of its maps does not hold."""

        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Identity(), nn.Linear(2, 3)

        def forward(self, x):
            maps = self.body(x)
            return self.head(torch.stack([maps[:, 1, 0], maps[:, 2, 1]], dim=1))

    torch.manual_seed(0)
    clf = pretrained(Reads().double())
    X = np.zeros((20, 3, 3))
    X[:, 0, 2] = 100
    X[:, 1, 0], X[:, 2, 1] = np.random.default_rng(0).normal(size=(2, 20))
    detector = RankFeat(clf, layer="body").fit(X)
    energy = Energy(clf).fit(X)
    np.testing.assert_allclose(
        detector.score_samples(X), energy.score_samples(X), rtol=1e-10
    )


def test_float32_network_is_close_to_float64():
    X = images(30)
    scores = []
    for dtype in (torch.float32, torch.float64):
        _, clf = conv_classifier(dtype=dtype)
        scores.append(RankFeat(clf, layer="relu2").fit(X).score_samples(X))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4)


def test_half_precision_keeps_its_kind():
    net = conv_net().to(torch.bfloat16)
    clf = pretrained(net)
    X = images(10)
    scores = RankFeat(clf, layer="relu2").fit(X).score_samples(X)
    assert scores.dtype == np.float64 and np.isfinite(scores).all()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"layer": "conv9"}, "no layer named 'conv9'"),
        ({"layer": []}, "list of distinct layers"),
        ({"layer": ["relu2", "relu2"]}, "list of distinct layers"),
        ({"layer": "head"}, r"needs feature maps .*layer='head' gave .* \(30, 3\)"),
        ({"layer": "penultimate"}, "name the layer to replace"),
        (
            {"layer": "pool2"},
            r"layer='pool2' gave .* \(30, 6, 1, 1\), from which nothing",
        ),
        ({"layer": 1.5}, "'layer' parameter of RankFeat must be"),
        ({"layer": "relu2", "method": "qr"}, "'method' parameter of RankFeat must be"),
        ({"layer": "relu2", "n_iterations": 0}, "'n_iterations' parameter of RankFeat"),
        ({"layer": "relu2", "temperature": 0}, "'temperature' parameter of RankFeat"),
    ],
)
def test_bad_parameters(params, message):
    _, clf = conv_classifier()
    with pytest.raises(ValueError, match=message):
        RankFeat(clf, **params).fit(images(30))


def test_maps_of_a_single_channel():
    net = nn.Sequential(nn.Conv2d(2, 1, 3), nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(ValueError, match=r"gave an array of shape \(9, 1, 6, 6\)"):
        RankFeat(pretrained(net), layer="0").fit(images(9))


def test_layers_that_are_no_names():
    _, clf = conv_classifier()
    for layer in ([0.0], True, [["conv1"]]):
        with pytest.raises(TypeError, match="named by a str or an int, got"):
            RankFeat(clf, layer=layer).fit(images(9))


@pytest.mark.parametrize("method", ["svd", "power"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_maps_that_are_not_finite(method, value):
    """What follows may hide them, such as a clamp."""

    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Identity(), nn.Linear(16, 3)

        def forward(self, x):
            maps = self.body(torch.where(x > 1, value, x))
            return self.head(maps.nan_to_num(0, 1, -1).flatten(1))

    X = np.random.default_rng(0).normal(size=(20, 4, 4))
    detector = RankFeat(pretrained(Hides().double()), layer="body", method=method)
    with pytest.raises(ValueError, match="layer='body' gave NaN or infinity, so that"):
        detector.fit(X)


@pytest.mark.parametrize("method", ["svd", "power"])
def test_chunks_change_nothing(method, monkeypatch):
    detector = RankFeat(None, layer="x", method=method)
    maps = torch.as_tensor(numbers(7, 4, 5, 5))
    expected = detector._without_rank_one(maps)
    sizes = []
    original = RankFeat._without_first
    monkeypatch.setattr(
        RankFeat,
        "_without_first",
        lambda self, part: sizes.append(len(part)) or original(self, part),
    )
    # four times the map, and three times the products of channels
    monkeypatch.setattr(module, "_CPU_BYTES", 2 * 8 * (4 * 100 + 3 * 16))
    np.testing.assert_allclose(detector._without_rank_one(maps), expected, atol=1e-6)
    assert sizes == [2, 2, 2, 1]


@pytest.mark.parametrize("kind", [LogisticRegression, MLPClassifier])
def test_networks_without_maps(kind):
    X, y = load_iris(return_X_y=True)
    message = f"torch network with feature maps, and a {kind.__name__} has none"
    with pytest.raises(TypeError, match=message):
        RankFeat(kind(max_iter=2000), layer=0).fit(X, y)


def test_against_pytorch_ood():
    detector = pytest.importorskip("pytorch_ood.detector")
    net, X = conv_net(inplace=False).eval(), images(30)
    parts = list(net)
    peer = detector.RankFeat(nn.Sequential(*parts[:7]), nn.Sequential(*parts[7:]))
    expected = peer.predict(torch.as_tensor(X)).numpy()
    ours = RankFeat(pretrained(net), layer="relu2").fit(X)
    np.testing.assert_allclose(-ours.score_samples(X), expected, rtol=1e-4)
