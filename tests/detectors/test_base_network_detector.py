"""Tests of what the detectors of the whole network share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags

from skood.detectors import ODIN, Energy
from skood.detectors._common._base_network_detector import (
    check_layers,
    held_out_copies,
)
from skood.nn import LinearHead
from skood.nn._make_network import make_network
from skood.utils._sample_keys import SampleKeys
from tests._instances import network_detectors
from tests._thresholds import middle_of_gap
from tests.nn._conv_net import conv_classifier, images


def test_held_out_samples_leave_a_sample_of_each_class():
    y = np.array(list("aabbbbbbbbcccccccccc"))
    drawn = np.zeros(len(y))
    for seed in range(50):
        rng = np.random.RandomState(seed)
        indices, _, rest = held_out_copies(_keys(20), y, 0.9, rng)
        np.testing.assert_array_equal(np.flatnonzero(rest == 0), indices)
        assert (np.diff(indices) > 0).all() and len(indices) == 17
        assert set(np.delete(y, indices)) == set("abc")
        drawn[indices] += 1
    assert drawn.min() > 0
    assert len(held_out_copies(_keys(200), None, 0.05, rng)[0]) == 10
    assert len(held_out_copies(_keys(3), None, 0.01, rng)[0]) == 1
    assert len(held_out_copies(_keys(1), y[:1], 0.5, rng)[0]) == 0


def test_held_out_copies_are_held_out_together():
    """Repeats and weights hold out the same samples, in any order."""
    X = np.arange(40.0)[:, None]
    y = np.arange(40) % 2
    weight = np.random.default_rng(0).integers(1, 4, size=40)
    indices = np.random.default_rng(1).permutation(np.repeat(np.arange(40), weight))
    for seed in range(20):
        result, shares, rest = held_out_copies(
            SampleKeys(X), y, 0.3, np.random.RandomState(seed), weight.astype(float)
        )
        repeated, _, _ = held_out_copies(
            SampleKeys(X[indices]), y[indices], 0.3, np.random.RandomState(seed)
        )
        np.testing.assert_array_equal(np.sort(indices[repeated]), result)
        np.testing.assert_array_equal(shares, 1.0)
        gone = np.bincount(result, minlength=40)
        assert set(np.flatnonzero(gone)).isdisjoint(np.flatnonzero(rest))
        assert 20 <= len(result) <= round(0.3 * weight.sum())


def test_copies_of_a_frequent_sample_are_held_out_individually():
    X = np.append(np.zeros(30), np.arange(1, 31))[:, None]
    drawn, _, _ = held_out_copies(SampleKeys(X), None, 0.2, np.random.RandomState(0))
    assert len(drawn) == 12
    assert 2 <= np.count_nonzero(drawn < 30) <= 10


def _keys(n_samples):
    return SampleKeys(np.arange(n_samples)[:, None])


def test_threshold_of_many_samples_is_taken_from_5000():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5200, 3))
    head = FrozenEstimator(LinearHead(np.eye(3)))
    odin = ODIN(head, contamination=0.2).fit(X)
    indices = np.sort(np.random.default_rng(0).choice(5200, 5000, replace=False))
    expected = middle_of_gap(odin.score_samples(X[indices]), 0.2)
    assert odin.offset_ == pytest.approx(expected, rel=1e-12)


def test_layers():
    X = np.zeros((3, 2))
    network = make_network(LinearHead(np.eye(2)))
    assert check_layers("all", network, X) == ["penultimate"]
    assert check_layers(("a", 1), network, X) == ["a", 1]
    assert check_layers(np.array([0, 2]), network, X) == [0, 2]
    for layers in ([], ["a", "b", "a"]):
        with pytest.raises(ValueError, match=r"'all' or a list of distinct layers, go"):
            check_layers(layers, network, X)
    for layers in ([1.0], [["a"]], [True], [None]):
        with pytest.raises(TypeError, match=r"named by a str or an int, got .* in \["):
            check_layers(layers, network, X)


def test_autocast_of_the_caller_changes_nothing():
    _, clf = conv_classifier()
    X, y = images(60), np.arange(60) % 3
    for detector in (
        *network_detectors(clf, layer="relu2"),
        Energy(clf),
    ):
        expected = detector.fit(X, y).score_samples(X)
        with torch.autocast("cpu", torch.bfloat16):
            scores = detector.score_samples(X)
            assert torch.is_autocast_enabled("cpu")
        np.testing.assert_array_equal(scores, expected)


def test_tags_are_those_of_the_classifier_without_sparse_input():
    tags = get_tags(ODIN(LogisticRegression()))
    assert tags.target_tags.required and not tags.input_tags.sparse
    assert not get_tags(ODIN(FrozenEstimator(LinearHead(np.eye(2))))).input_tags.sparse
    X, y = csr_matrix(np.eye(4)), [0, 1, 0, 1]
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        ODIN(LogisticRegression()).fit(X, y)
