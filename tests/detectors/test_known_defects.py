"""Defects of other libraries, of which we have none.

What they do is shown where they are installed, in ``test_peers*.py``; here is our side,
which needs none of them.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from skood.detectors import (
    KNN,
    MSP,
    ODIN,
    SSD,
    Mahalanobis,
    RelativeMahalanobis,
    ViM,
)
from skood.nn import pretrained
from tests._instances import output_detectors


@pytest.fixture(scope="module")
def blobs():
    """200 samples of 4 classes in 10 dimensions, and 15 others around them."""
    X, y = make_blobs(200, 10, centers=4, cluster_std=2.0, random_state=0)
    queries = 6 * np.random.default_rng(0).normal(size=(15, 10))
    return X, y, queries


def _squared(samples, mean, covariance):
    """Mahalanobis distances, one at a time."""
    inverse = np.linalg.inv(covariance)
    return np.array([(row - mean) @ inverse @ (row - mean) for row in samples])


def _logits(X, y):
    return LogisticRegression(max_iter=1000).fit(X, y).decision_function(X)


# ---------------------------------------------------------------------------------
# Scales


def test_both_scatters_are_divided_by_the_number_of_samples(blobs):
    """If only that of the classes is, the relative distance is the plain one."""
    X, y, queries = blobs
    means = np.stack([X[y == k].mean(axis=0) for k in range(4)])
    within = (X - means[y]).T @ (X - means[y]) / len(X)
    nearest = np.min([_squared(queries, mean, within) for mean in means], axis=0)
    background = _squared(queries, X.mean(axis=0), np.cov(X.T, ddof=0))
    scores = RelativeMahalanobis().fit(X, y).score_samples(queries)
    np.testing.assert_allclose(scores, background - nearest, rtol=1e-9, atol=1e-9)
    plain = Mahalanobis().fit(X, y).score_samples(queries)
    assert spearmanr(scores, plain).statistic < 0.9


@pytest.mark.parametrize(
    "detector", [Mahalanobis(), RelativeMahalanobis(), SSD(), Mahalanobis(tied=False)]
)
def test_distances_do_not_depend_on_the_number_of_samples(blobs, detector):
    X, y, queries = blobs
    once = detector.fit(X, y).score_samples(queries)
    again = detector.fit(np.tile(X, (3, 1)), np.tile(y, 3)).score_samples(queries)
    np.testing.assert_allclose(again, once, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("detector", [Mahalanobis(), SSD()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_not_negative_for_few_samples(detector, dtype):
    rng = np.random.default_rng(0)
    Z = 30 * rng.normal(size=(30, 64)).astype(dtype)
    queries = 30 * rng.normal(size=(200, 64)).astype(dtype)
    detector.fit(Z, np.arange(30) % 3)
    assert detector.score_samples(np.concatenate([Z, queries])).max() <= 0


def test_directions_of_small_variance_count():
    """A pseudo-inverse in float32 drops them."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 4)).astype(np.float32)
    Z[:, 1] = Z[:, 0] + 1e-4 * rng.normal(size=500)
    y = np.arange(500) % 2
    apart = Z[:1] + np.array([0, 1e-2, 0, 0], dtype=np.float32)
    detector = Mahalanobis().fit(Z, y)
    # a hundred standard deviations
    assert detector.score_samples(apart)[0] == pytest.approx(-1e4, rel=0.15)
    assert detector.score_samples(Z[:1])[0] > -20


# ---------------------------------------------------------------------------------
# Batches and fits

LEARN = [one for one in output_detectors(n_neighbors=5) if one._learns]
READ_FEATURES = output_detectors("features", n_neighbors=5)
READ_LOGITS = [one for one in LEARN if one._needs == {"logits"}]


# Detectors of classes that are known, rather than of what is far.
ODD = ("GradNorm", "PNML", "NCI")


def _name(detector):
    return type(detector).__name__


@pytest.mark.parametrize("detector", [*READ_FEATURES, *READ_LOGITS], ids=_name)
def test_a_score_does_not_depend_on_the_batch(blobs, detector):
    X, y, queries = blobs
    if detector in READ_LOGITS:
        X, queries = _logits(X, y), queries[:, :4]
    detector.fit(X, y)
    whole = detector.score_samples(queries)
    alone = [detector.score_samples(row[None])[0] for row in queries]
    np.testing.assert_allclose(alone, whole, rtol=1e-9, atol=1e-9)
    with_others = np.concatenate([1e3 * queries, queries[::-1]])
    moved = detector.score_samples(with_others)[: -len(queries) - 1 : -1]
    np.testing.assert_allclose(moved, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("detector", [*READ_FEATURES, *READ_LOGITS], ids=_name)
def test_a_refit_forgets_the_first_fit(blobs, detector, few_folds):
    X, y, queries = blobs
    if detector in READ_LOGITS:
        X, queries = _logits(X, y), queries[:, :4]
    expected = detector.fit(X, y).score_samples(queries)
    offset = detector.offset_
    elsewhere = detector.fit(3 * X[::-1] + 1, y).score_samples(queries)
    assert np.abs(elsewhere - expected).max() > 0
    np.testing.assert_array_equal(detector.fit(X, y).score_samples(queries), expected)
    assert detector.offset_ == offset


def test_two_detectors_on_a_network_do_not_disturb_each_other(blobs):
    X, y, queries = blobs
    X, queries = X.astype(np.float32), queries.astype(np.float32)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(10, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    )
    network = pretrained(module, classes=[0, 1, 2, 3])
    first = Mahalanobis(network).fit(X, y)
    expected = first.score_samples(queries)
    for second in (Mahalanobis(network), KNN(network), MSP(network), ViM(network)):
        second.fit(2 * X, y).score_samples(3 * queries)
        np.testing.assert_array_equal(first.score_samples(queries), expected)
    moved = first.score_samples(3 * queries)
    assert np.abs(moved - expected).min() > 0
    assert not any(layer._forward_hooks for layer in module.modules())


# ---------------------------------------------------------------------------------
# Other methods under the name


def test_ssd_is_a_distance_and_not_the_largest_probability(blobs):
    X, y, queries = blobs
    model = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X, y))
    scores = SSD(model).fit(X, y).score_samples(queries)
    unit = normalize(X)
    expected = -_squared(normalize(queries), unit.mean(axis=0), np.cov(unit.T, ddof=0))
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    sure = MSP(model).fit(X, y).score_samples(queries)
    assert abs(spearmanr(scores, sure).statistic) < 0.9


@pytest.mark.parametrize("algorithm", ["torch", "sklearn"])
def test_neighbors_are_sought_among_all_samples(algorithm):
    """And not among the first thousand."""
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.normal(5, 1, (1500, 3)), rng.normal(-5, 1, (500, 3))])
    detector = KNN(n_neighbors=5, algorithm=algorithm, normalize=True).fit(Z)
    assert detector.score_samples([[-5.0, -5.0, -5.0]])[0] > -0.1
    assert np.all(detector.score_samples(Z) > -0.5)


@pytest.mark.parametrize(
    "detector", [d for d in LEARN if hasattr(d, "max_samples")], ids=_name
)
def test_banks_hold_all_samples(detector):
    """Two classes in order: the second is in no first thousand of rows."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [1500, 500])
    Z = rng.normal(size=(2000, 4)) + 5 * np.eye(4)[2 * y]
    detector.fit(Z, y)
    scores = detector.score_samples([[0.0, 0.0, 5.0, 0.0], [0.0, 5.0, 0.0, 0.0]])
    assert scores[0] > scores[1]


# ---------------------------------------------------------------------------------
# Signs


@pytest.mark.parametrize(
    "detector",
    [one for one in READ_FEATURES if _name(one) not in ODD],
    ids=_name,
)
def test_what_is_far_from_the_training_samples_scores_lower(detector):
    """Between the classes and away from them, towards none of them."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    Z = 6 * np.eye(6)[y] + 0.5 * rng.normal(size=(400, 6)) + 1
    far = 0.5 * rng.normal(size=(100, 6)) + 8 * np.eye(6)[5] - 1
    detector.fit(Z, y)
    assert np.median(detector.score_samples(far)) < np.median(detector.score_samples(Z))
    assert (detector.predict(far) == -1).mean() > 0.5


def test_odin_raises_the_largest_probability(blobs):
    """The opposite sign lowers it, and ID samples, where it acts most, look OOD."""
    X, y, _ = blobs
    model = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X, y))
    scores = [
        ODIN(model, temperature=1.0, epsilon=epsilon).fit(X, y).score_samples(X)
        for epsilon in (1e-9, 0.01)
    ]
    assert np.all(scores[1] >= scores[0])
    assert np.median(scores[1] - scores[0]) > 0
