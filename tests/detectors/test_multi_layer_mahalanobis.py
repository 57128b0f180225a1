"""Tests of the weighted Mahalanobis scores of several layers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.detectors import Mahalanobis, MultiLayerMahalanobis
from skood.detectors._common._base_network_detector import held_out_copies
from skood.exceptions import SkoodWarning
from skood.nn import FeatureExtractor, pretrained
from skood.utils._sample_keys import SampleKeys
from tests.nn._conv_net import conv_classifier, conv_net, images
from tests.nn._outputs import run

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    MultiLayerMahalanobis(LogisticRegression()),
    MultiLayerMahalanobis(
        MLPClassifier((8,), solver="lbfgs", random_state=0), alphas=[2.0]
    ),
]

NAMES = ["conv1", "conv2"]


def _labeled(n_samples=90, dtype=np.float64):
    """Images with labels that the network does not know of."""
    X = images(n_samples, dtype=dtype)
    y = np.arange(n_samples) % 3
    return X + (y * 0.5)[:, None, None, None].astype(dtype), y


def _naive(X, y, new):
    """Scores of each layer (n_samples, n_layers), class by class and row by row."""
    parts = list(conv_net(dtype=torch.float64, inplace=False).eval())
    columns = []
    for n_layers in (1, 5):
        Z, Z_new = (run(*parts[:n_layers], X=A).mean(axis=(2, 3)) for A in (X, new))
        means = [Z[y == k].mean(axis=0) for k in np.unique(y)]
        residuals = np.concatenate([Z[y == k] - m for k, m in enumerate(means)])
        precision = np.linalg.inv(residuals.T @ residuals / len(Z))
        columns.append(
            [-min((z - m) @ precision @ (z - m) for m in means) for z in Z_new]
        )
    return np.array(columns).T


def test_equals_naive_loop_on_a_convolutional_network():
    _, clf = conv_classifier(dtype=torch.float64)
    X, y = _labeled()
    new = images(15, seed=1, dtype=np.float64)
    detector = MultiLayerMahalanobis(clf, layers=NAMES).fit(X, y)
    assert detector.layers_ == NAMES
    np.testing.assert_array_equal(detector.alphas_, [1, 1])
    expected = _naive(X, y, new)
    np.testing.assert_allclose(
        detector.score_samples(new), expected.sum(axis=1), rtol=1e-7
    )
    weighted = MultiLayerMahalanobis(clf, layers=NAMES, alphas=[0.5, 2.0]).fit(X, y)
    np.testing.assert_allclose(
        weighted.score_samples(new), expected @ [0.5, 2.0], rtol=1e-7
    )
    train = _naive(X, y, X) @ [0.5, 2.0]
    assert weighted.offset_ < np.percentile(train, 5)  # of fits without each sample


def test_single_layer_is_mahalanobis_of_its_features():
    _, clf = conv_classifier()
    X, y = _labeled(dtype=np.float32)
    for covariance in (None, LedoitWolf()):
        body = FeatureExtractor(clf, layer="conv2").fit(X, y)
        single = Mahalanobis(covariance=covariance).fit(body.transform(X), y)
        several = MultiLayerMahalanobis(clf, layers=["conv2"], covariance=covariance)
        several.fit(X, y)
        np.testing.assert_allclose(
            several.score_samples(X), single.score_samples(body.transform(X)), rtol=1e-5
        )
        assert several.offset_ == pytest.approx(single.offset_, rel=1e-4)


def test_all_layers():
    _, clf = conv_classifier()
    X, y = _labeled()
    assert MultiLayerMahalanobis(clf).fit(X, y).layers_ == ["conv1", "conv2"]
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = MLPClassifier((6, 5), max_iter=50, random_state=0, activation="tanh")
        net = FrozenEstimator(net.fit(X, y))
    detector = MultiLayerMahalanobis(net).fit(X, y)
    assert detector.layers_ == [0, 1]
    linear = MultiLayerMahalanobis(LogisticRegression(max_iter=500)).fit(X, y)
    plain = Mahalanobis().fit(X, y)
    np.testing.assert_allclose(linear.score_samples(X), plain.score_samples(X))


def test_single_class_without_labels():
    _, clf = conv_classifier()
    X, _ = _labeled()
    detector = MultiLayerMahalanobis(clf, layers=NAMES).fit(X)
    assert [len(one.location_) for one in detector.detectors_] == [1, 1]


class _TwoLayers(torch.nn.Module):
    """The second layer sees what the first does not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 6), torch.nn.Linear(8, 2)
        self.head = torch.nn.Linear(8, 2)
        with torch.no_grad():
            for indices, layer in ((slice(6), self.first), (slice(6, 8), self.second)):
                layer.weight.copy_(torch.eye(8)[indices])
                layer.bias.zero_()

    def forward(self, x):
        return self.head(torch.cat([self.first(x), self.second(x)], dim=1))


def _two_layers(n_samples=300, n_ood=150):
    """OOD rows differ from ID rows in what the second layer reads."""
    torch.manual_seed(0)
    clf = pretrained(_TwoLayers().double())
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples + n_ood, 8))
    y = np.arange(len(X)) % 2
    X[:, 0] += 5 * y
    y[n_samples:] = -1
    X[n_samples:, 6:] *= 2
    return clf, X, y


def test_weights_are_learned_from_known_ood_samples():
    clf, X, y = _two_layers()
    learned = MultiLayerMahalanobis(clf, layers=["first", "second"]).fit(X, y)
    equal = MultiLayerMahalanobis(clf, layers=["first", "second"]).fit(X[:300], y[:300])
    assert learned.alphas_[1] > 3 * abs(learned.alphas_[0])
    _, new, labels = _two_layers(1000, 1000)
    assert learned.score(new, labels) > equal.score(new, labels) + 0.03
    # nothing but the weights is learned from OOD rows
    for detector, other in zip(learned.detectors_, equal.detectors_, strict=True):
        np.testing.assert_array_equal(detector.location_, other.location_)
        np.testing.assert_array_equal(detector.covariance_, other.covariance_)
    np.testing.assert_array_equal(learned.classes_, [0, 1])
    given = MultiLayerMahalanobis(
        clf, layers=["first", "second"], alphas=learned.alphas_.tolist()
    ).fit(X, y)
    np.testing.assert_allclose(given.score_samples(new), learned.score_samples(new))
    assert given.offset_ == pytest.approx(learned.offset_)


def test_weights_equal_a_logistic_regression_by_hand():
    clf, X, y = _two_layers()
    names = ["first", "second"]
    detector = MultiLayerMahalanobis(clf, layers=names).fit(X, y)
    keys, seed = SampleKeys(X[:300, :6]), np.random.RandomState(0)
    held, _, _ = held_out_copies(keys, y[:300], 0.2, seed)
    training = np.setdiff1d(np.arange(300), held)
    columns = []
    for columns_of_layer in (slice(0, 6), slice(6, 8)):
        fifth = Mahalanobis().fit(X[training, columns_of_layer], y[training])
        whole = Mahalanobis().fit(X[:300, columns_of_layer], y[:300])
        columns.append(
            np.append(
                fifth.score_samples(X[held, columns_of_layer]),
                whole.score_samples(X[300:, columns_of_layer]),
            )
        )
    scores = np.array(columns).T
    spread = scores.std(axis=0)
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit((scores - scores.mean(axis=0)) / spread, np.arange(len(scores)) < 60)
    np.testing.assert_allclose(detector.alphas_, model.coef_[0] / spread, rtol=1e-6)


def test_string_labels_and_another_ood_label():
    clf, X, y = _two_layers()
    expected = MultiLayerMahalanobis(clf, layers=["first", "second"]).fit(X, y)
    names = np.array(["ant", "bee", "none"])[y]
    detector = MultiLayerMahalanobis(
        clf, layers=["first", "second"], ood_label="none"
    ).fit(X, names)
    np.testing.assert_allclose(detector.alphas_, expected.alphas_, rtol=1e-9)
    np.testing.assert_allclose(
        detector.score_samples(X), expected.score_samples(X), rtol=1e-9
    )
    # -1 is a class if ood_label is another one
    class_of_minus_one = MultiLayerMahalanobis(
        clf, layers=["first", "second"], ood_label=-9
    ).fit(X, y)
    np.testing.assert_array_equal(class_of_minus_one.classes_, [-1, 0, 1])
    np.testing.assert_array_equal(class_of_minus_one.alphas_, [1, 1])


def test_layer_that_does_not_separate_samples():
    """Its scores are equal up to rounding: its weight is 0, not noise."""
    detector = MultiLayerMahalanobis(None)
    detector.layers_ = ["a", "b"]
    ones = -1 + 1e-14 * np.arange(8)
    id_scores = np.column_stack([ones[:4], [-1, -2, -3, -4]])
    ood_scores = np.column_stack([ones[4:], [-3, -5, -6, -7]])
    features = [np.zeros((4, 1))] * 2  # so that none can be held out
    with pytest.warns(SkoodWarning, match="favors layers with many channels"):
        alphas = detector._learned_alphas(features, np.arange(4), id_scores, ood_scores)
    assert alphas[0] == 0 and alphas[1] > 0


def test_too_few_samples_to_hold_out():
    clf, X, y = _two_layers(300, 20)
    indices = [*range(20), *range(300, 320)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        MultiLayerMahalanobis(clf, layers=["first"]).fit(X[indices], y[indices])
    message = "With n_samples = 3 ID samples the weights are learned on samples that"
    indices = [0, 1, 2, *range(300, 320)]
    with pytest.warns(SkoodWarning, match=message):
        detector = MultiLayerMahalanobis(clf, layers=["first"]).fit(
            X[indices], y[indices]
        )
    assert np.isfinite(detector.score_samples(X)).all()


@pytest.mark.parametrize(
    "params, message",
    [
        ({"alphas": [1.0]}, r"alphas has shape \(1,\), expected \(2,\): one weight"),
        ({"alphas": [1.0, np.nan]}, "alphas contains NaN"),
        ({"alphas": 1.0}, "'alphas' parameter of MultiLayerMahalanobis must be"),
        ({"alphas": "ones"}, "'alphas' parameter of MultiLayerMahalanobis must be"),
        ({"layers": ["conv1", "conv9"]}, "no layer named 'conv9'"),
        ({"layers": []}, "list of distinct layers"),
        ({"covariance": 3}, "'covariance' parameter of MultiLayerMahalanobis must be"),
    ],
)
def test_bad_parameters(params, message):
    _, clf = conv_classifier()
    X, y = _labeled()
    with pytest.raises(ValueError, match=message):
        MultiLayerMahalanobis(clf, **{"layers": NAMES, **params}).fit(X, y)


def test_what_cannot_be_fitted():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="a RandomForestClassifier has neither layers"):
        MultiLayerMahalanobis(RandomForestClassifier(5)).fit(X, y)
    net, clf = conv_classifier()
    with torch.no_grad():
        net.conv2.weight.zero_()
    X, y = _labeled()
    message = "layer='conv2': The within-class covariance is zero"
    with pytest.raises(ValueError, match=message):
        MultiLayerMahalanobis(clf, layers=NAMES).fit(X, y)
    with pytest.raises(ValueError, match="every label in y equals ood_label=-1"):
        MultiLayerMahalanobis(clf, layers=NAMES).fit(X, np.full(len(X), -1))


def test_against_pytorch_ood():
    """Its covariance is a sum that is not divided by n, and it halves distances."""
    detector = pytest.importorskip("pytorch_ood.detector")
    net = conv_net(inplace=False).eval()
    X, y = _labeled(dtype=np.float32)
    parts = list(net)
    peer = detector.MultiMahalanobis(
        [torch.nn.Sequential(*parts[:1]), torch.nn.Sequential(*parts[1:5])]
    )
    peer.to("cpu").fit([(torch.as_tensor(X), torch.as_tensor(y))])
    expected = peer.predict(torch.as_tensor(X)).numpy()
    ours = MultiLayerMahalanobis(pretrained(net), layers=NAMES).fit(X, y)
    np.testing.assert_allclose(
        -ours.score_samples(X) / (2 * len(X)), expected, rtol=1e-3
    )
