"""Tests of nearest-neighbor guidance."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import Energy, NNGuide, _nn_guide
from skood.detectors._common import _memory_bank
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.utils._left_out import drawn_copies
from skood.utils._sample_keys import SampleKeys
from tests._thresholds import middle_of_gap

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    NNGuide(n_neighbors=3),
    NNGuide(LogisticRegression(), n_neighbors=2, max_samples=0.7, random_state=0),
]


def _network(n_samples=150, n_features=6, dtype=np.float64, seed=0):
    """A frozen head whose logits are positive on average, and features."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(3, n_features)).astype(dtype)
    head = LinearHead(coef, np.full(3, 12, dtype))
    Z = rng.normal(size=(n_samples, n_features)).astype(dtype)
    return FrozenEstimator(head), Z


def _naive(head, bank, queries, k):
    """The score, row by row, in plain Python."""
    W, b = np.asarray(head.coef, np.float64), np.asarray(head.intercept, np.float64)

    def energy(z):
        return math.log(sum(math.exp(w @ z + c) for w, c in zip(W, b, strict=True)))

    def unit(z):
        return z / math.sqrt(sum(z * z))

    scores = []
    for z in np.asarray(queries, np.float64):
        products = []
        for other in np.asarray(bank, np.float64):
            products.append(float(unit(z) @ (energy(other) * unit(other))))
        nearest = sorted(products, reverse=True)[:k]
        scores.append(energy(z) * sum(nearest) / k)
    return np.array(scores)


@pytest.mark.parametrize("k", [1, 10, 150])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(k, dtype):
    head, Z = _network(dtype=dtype)
    queries = 3 * np.random.default_rng(1).normal(size=(40, 6)).astype(dtype)
    detector = NNGuide(head, n_neighbors=k).fit(Z)
    expected = _naive(head.estimator, Z, queries, k)
    rtol = 1e-10 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=rtol)


def test_bank_is_in_the_precision_of_the_features():
    for dtype in (np.float32, np.float64):
        head, Z = _network(dtype=dtype)
        detector = NNGuide(head).fit(Z)
        assert detector.bank_.dtype == dtype
        assert detector.bank_.shape == Z.shape
        # the length of a row of the bank is its energy
        energy = Energy(head).fit(Z).score_samples(Z)
        lengths = np.linalg.norm(detector.bank_.astype(np.float64), axis=1)
        np.testing.assert_allclose(lengths, energy, rtol=1e-6)


def test_float32_changes_no_rank_but_of_ties():
    """Ranks differ only among rows whose scores are 1e-6 apart."""
    head, Z = _network(2000, 32, dtype=np.float32)
    queries = _network(500, 32, dtype=np.float32, seed=1)[1]
    single = NNGuide(head).fit(Z).score_samples(queries)
    double = (
        NNGuide(head)
        .fit(Z.astype(np.float64))
        .score_samples(queries.astype(np.float64))
    )
    np.testing.assert_allclose(single, double, rtol=2e-6)
    moved = np.flatnonzero(rankdata(single) != rankdata(double))
    assert len(moved) < 20
    for i in moved:
        others = np.delete(double, i)
        assert np.abs(others / double[i] - 1).min() < 2e-6


def test_sample_of_the_bank_is_its_neighbor():
    """With one neighbor and equal energies, a training row scores E²."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 4))
    head = FrozenEstimator(LinearHead(np.zeros((2, 4)), [3.0, 3.0]))
    scores = NNGuide(head, n_neighbors=1).fit(Z).score_samples(Z)
    np.testing.assert_allclose(scores, (3 + math.log(2)) ** 2, rtol=1e-12)


def test_length_counts_in_the_energy_only():
    head, Z = _network()
    detector, energy = NNGuide(head).fit(Z), Energy(head).fit(Z)
    guidance = detector.score_samples(Z) / energy.score_samples(Z)
    scaled = detector.score_samples(2 * Z) / energy.score_samples(2 * Z)
    np.testing.assert_allclose(guidance, scaled, rtol=1e-12)


def test_zero_samples_score_zero():
    head, Z = _network()
    Z[3] = 0.0
    detector = NNGuide(head).fit(Z)
    np.testing.assert_array_equal(detector.score_samples(np.zeros((1, 6))), 0.0)
    np.testing.assert_array_equal(detector.bank_[3], 0.0)


def test_large_logits():
    head, Z = _network()
    with pytest.warns(SkoodWarning, match="are not positive"):
        detector = NNGuide(head).fit(1e4 * np.abs(Z))
    assert np.isfinite(detector.score_samples(1e4 * np.abs(Z))).all()


def test_share_of_the_bank():
    head, Z = _network()
    detector = NNGuide(head, n_neighbors=10, max_samples=0.2, random_state=0).fit(Z)
    assert detector.bank_.shape == (30, 6)
    full = NNGuide(head).fit(Z).bank_
    indices = [np.flatnonzero((full == row).all(axis=1))[0] for row in detector.bank_]
    assert np.all(np.diff(indices) > 0)
    np.testing.assert_allclose(
        detector.score_samples(Z), _naive(head.estimator, Z[indices], Z, 10), rtol=1e-10
    )
    again = NNGuide(head, max_samples=0.2, random_state=0).fit(Z)
    np.testing.assert_array_equal(again.bank_, detector.bank_)
    other = NNGuide(head, max_samples=0.2, random_state=1).fit(Z)
    assert not np.array_equal(other.bank_, detector.bank_)


@pytest.mark.parametrize("n_neighbors, max_samples", [(151, None), (31, 30), (31, 0.2)])
def test_more_neighbors_than_the_bank_has_are_all_of_it(n_neighbors, max_samples):
    head, Z = _network()
    bank = {"max_samples": max_samples, "random_state": 0}
    scores = [
        NNGuide(head, n_neighbors=k, **bank).fit(Z).score_samples(Z)
        for k in (n_neighbors, n_neighbors - 1)
    ]
    np.testing.assert_array_equal(*scores)


def test_energies_that_are_not_positive():
    head, Z = _network()
    low = FrozenEstimator(LinearHead(head.coef_, head.intercept_ - 14))
    energy = Energy(low).fit(Z).score_samples(Z)
    n_low = np.sum(energy <= 0)
    assert 0 < n_low < len(Z)
    with pytest.warns(SkoodWarning, match=f"energies of {n_low} of the 150 .*Shift"):
        detector = NNGuide(low, n_neighbors=10).fit(Z)
    expected = _naive(low.estimator, Z, Z, 10)
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-10)


def test_log_probabilities_have_no_energy():
    """Those of a forest sum to one: its energy is zero, and says nothing."""
    X, y = load_iris(return_X_y=True)
    with pytest.warns(SkoodWarning, match="are not positive"):
        NNGuide(RandomForestClassifier(10, random_state=0)).fit(X, y)


def test_chunks_and_tiles_change_nothing(monkeypatch):
    head, Z = _network(700)
    expected = NNGuide(head).fit(Z).score_samples(Z)
    monkeypatch.setattr(_nn_guide, "TILE_SAMPLES", 13)
    monkeypatch.setattr(_memory_bank, "_TILE_BYTES", 13 * 8 * 150)
    # 4 parts of 150 rows, and one of 100
    actual = NNGuide(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    # a part with fewer rows than neighbors
    monkeypatch.setattr(_memory_bank, "_TILE_BYTES", 13 * 8 * 699)
    actual = NNGuide(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_threshold_from_1000_samples():
    head, Z = _network(1100)
    detector = NNGuide(head, contamination=0.1).fit(Z)
    indices, _ = drawn_copies(SampleKeys(Z), limit=1000)
    outputs = detector._all_outputs(Z).take(indices)
    scores = detector._score_outputs(outputs, indices)  # without themselves
    assert detector.offset_ == pytest.approx(middle_of_gap(scores, 0.1), rel=1e-12)
    # equal, up to rounding, where a sample is not among its own neighbors
    subset = slice(0, None, 10)
    assert np.all(
        scores[subset] <= detector.score_samples(Z[indices[subset]]) * (1 + 1e-12)
    )


def test_a_chunk_alone_is_compared_with_the_bank():
    head, Z = _network()
    detector = NNGuide(head).fit(Z)
    (outputs,) = detector._outputs(Z)
    np.testing.assert_array_equal(
        detector._score_outputs(outputs), detector.score_samples(Z)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("n_features", "scale"), [(60, 0.4), (20, 0.0)])
def test_threshold_of_a_head_that_overfits(n_features, scale):
    """Heads of four fifths of 200 samples overfit more than the head of all."""
    means = scale * np.random.default_rng(1).normal(size=(4, n_features))
    shares = []
    for seed in range(10):
        rng = np.random.default_rng((seed, 200))
        y = np.arange(200) % 4
        X = means[y] + rng.normal(size=(200, n_features))
        new = means[rng.integers(0, 4, 2000)] + rng.normal(size=(2000, n_features))
        shares.append(np.mean(NNGuide().fit(X, y).predict(new) == -1))
    error = np.std(shares) / np.sqrt(len(shares))
    assert abs(np.mean(shares) - 0.05) < 3 * error
