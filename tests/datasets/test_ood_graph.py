"""Tests of `skood.datasets.make_ood_graph` against what it promises."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import chisquare

from skood.datasets import make_ood_graph
from skood.datasets._ood_graph import _unfold
from skood.graph import NodeSet


def ends(nodes):
    """Both ends of each edge, each edge once."""
    edges = sparse.triu(nodes.adjacency).tocoo()
    return edges.row, edges.col


@pytest.mark.parametrize("features", ["gaussian", "words"])
@pytest.mark.parametrize("homophily", [0.0, 0.37, 1.0])
def test_edges(features, homophily):
    nodes, y = make_ood_graph(
        301,
        n_classes=5,
        average_degree=7.0,
        homophily=homophily,
        features=features,
        return_X_y=True,
        random_state=0,
    )
    assert isinstance(nodes, NodeSet)
    A = nodes.adjacency
    assert_array_equal((A - A.T).toarray(), 0)
    assert_array_equal(A.diagonal(), 0)
    assert_array_equal(A.data, 1)
    i, j = ends(nodes)
    n_edges = round(301 * 7 / 2)
    assert len(i) == n_edges  # no pair twice: weights would have added up
    assert (y[i] == y[j]).sum() == round(homophily * n_edges)
    assert sorted(np.bincount(y)) == [60, 60, 60, 60, 61]
    assert_array_equal(nodes.labels, y)


@pytest.mark.parametrize("size", range(2, 9))
def test_each_number_is_a_different_pair(size):
    n_pairs = size * (size - 1) // 2
    i, j = _unfold(np.arange(n_pairs), np.full(n_pairs, size))
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == {
        (a, b) for a in range(size) for b in range(a + 1, size)
    }


@pytest.mark.parametrize("degree", [0.8, 2.0])
@pytest.mark.parametrize("n_runs", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_pairs_are_drawn_alike(degree, n_runs):
    """All pairs within classes as often as each other, and all others, too.

    With few edges of many pairs, and with so many that pairs are shuffled.
    """
    counts = np.zeros((8, 8))
    for seed in range(n_runs):
        nodes, y = make_ood_graph(
            8,
            n_classes=2,
            average_degree=degree,
            homophily=0.5,
            n_features=1,
            return_X_y=True,
            random_state=seed,
        )
        order = np.argsort(y, kind="stable")  # nodes of class 0 first
        counts += nodes.adjacency.toarray()[np.ix_(order, order)]
    n_edges = round(8 * degree / 2)
    within = np.concatenate([counts[:4, :4], counts[4:, 4:]])[
        np.tile(np.triu(np.ones((4, 4), bool), 1), (2, 1))
    ]
    between = counts[:4, 4:].ravel()
    assert within.sum() == n_runs * round(n_edges / 2)
    assert between.sum() == n_runs * (n_edges - round(n_edges / 2))
    assert chisquare(within).pvalue > 1e-3
    assert chisquare(between).pvalue > 1e-3


def test_complete_graph_and_no_edges():
    full = make_ood_graph(
        6, n_classes=2, average_degree=5.0, homophily=6 / 15, random_state=0
    )
    assert_array_equal(full.adjacency.toarray(), 1 - np.eye(6))
    empty = make_ood_graph(6, n_classes=2, average_degree=0.0, random_state=0)
    assert empty.adjacency.nnz == 0


def test_gaussian_features():
    nodes, y = make_ood_graph(
        20000,
        n_classes=4,
        n_features=50,
        feature_signal=3.0,
        return_X_y=True,
        random_state=1,
    )
    X = nodes.features
    assert X.dtype == np.float32
    means = np.stack([X[y == c].mean(axis=0) for c in range(4)])
    # a mean of 5000 rows is off by a squared length of 50 / 5000
    assert_allclose((means**2).sum(axis=1), 3.0**2 / 2, atol=0.1)
    for c in range(4):
        assert_allclose(X[y == c].std(axis=0), 1, atol=0.06)
    cosines = np.corrcoef(means)[np.triu_indices(4, 1)]
    assert (abs(cosines) < 0.6).all()


def test_features_without_signal():
    nodes, y = make_ood_graph(
        20000, n_classes=2, feature_signal=0.0, return_X_y=True, random_state=1
    )
    difference = nodes.features[y == 0].mean(axis=0) - nodes.features[y == 1].mean(0)
    assert abs(difference).max() < 4 * np.sqrt(2 / 10000)


def test_words():
    nodes, y = make_ood_graph(
        40000,
        n_classes=2,
        n_features=25,
        features="words",
        feature_signal=1.5,
        return_X_y=True,
        random_state=0,
    )
    X = nodes.features
    assert sparse.issparse(X)
    assert X.dtype == np.float32
    assert_array_equal(X.data, 1)
    words = np.asarray(X.sum(axis=1)).ravel()
    assert words.min() >= 1
    assert words.max() <= 5  # the root of 25, fewer where a word came twice
    # a word of probability p is there with 1 - (1 - p)^5: so p is found, sums to one,
    # and its logarithm has the spread that was requested
    shares = np.stack([np.asarray(X[y == c].mean(axis=0)).ravel() for c in range(2)])
    p = 1 - (1 - shares) ** (1 / 5)
    assert_allclose(p.sum(axis=1), 1, atol=0.02)
    spread = np.log(p).std(axis=1)
    assert (abs(spread - 1.5) < 0.5).all()
    assert abs(np.corrcoef(np.log(p))[0, 1]) < 0.6


def test_words_without_signal():
    nodes = make_ood_graph(
        30000, n_features=10, features="words", feature_signal=0.0, random_state=0
    )
    shares = np.asarray(nodes.features.mean(axis=0)).ravel()
    assert_allclose(shares, 1 - 0.9**3, atol=0.01)


def test_single_feature():
    nodes = make_ood_graph(100, n_features=1, features="words", random_state=0)
    assert_array_equal(nodes.features.toarray(), np.ones((100, 1)))


def test_left_out():
    whole = make_ood_graph(80, random_state=0)
    nodes, y = make_ood_graph(80, left_out=(1, 3), return_X_y=True, random_state=0)
    assert_array_equal(y, np.where(np.isin(whole.labels, [1, 3]), -1, whole.labels))
    assert_array_equal(nodes.labels, y)
    assert_array_equal(nodes.features, whole.features)
    assert_array_equal(nodes.adjacency.toarray(), whole.adjacency.toarray())
    one = make_ood_graph(80, left_out=2, ood_label=2, random_state=0)
    assert_array_equal(one.labels, whole.labels)


def test_seeds():
    first = make_ood_graph(50, random_state=0)
    again = make_ood_graph(50, random_state=0)
    other = make_ood_graph(50, random_state=1)
    for part in ("features", "labels"):
        assert_array_equal(getattr(first, part), getattr(again, part))
        assert not np.array_equal(getattr(first, part), getattr(other, part))
    assert_array_equal(first.adjacency.toarray(), again.adjacency.toarray())
    rng = np.random.RandomState(0)
    drawn = make_ood_graph(50, random_state=rng)
    assert_array_equal(drawn.features, first.features)
    assert not np.array_equal(
        make_ood_graph(50, random_state=rng).features, first.features
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_samples": 3}, "n_samples=3 nodes cannot be of n_classes=4 classes"),
        (
            {"n_samples": 8, "average_degree": 4.0},
            "13 edges within classes are to be drawn, but there are only 4 pairs of "
            "nodes within classes. Lower average_degree or change homophily",
        ),
        (
            {"n_samples": 8, "average_degree": 7.0, "homophily": 0.0},
            "28 edges between classes are to be drawn, but there are only 24 pairs",
        ),
        ({"left_out": 4}, "which are no classes of this data set"),
        ({"left_out": (0, 1, 2, 3)}, "leaves out all 4 classes"),
        ({"ood_label": 2}, "ood_label=2 is one of the classes that are kept"),
        ({"ood_label": 2, "left_out": 1}, "is one of the classes that are kept"),
        ({"n_classes": 1}, "'n_classes' parameter of make_ood_graph must be an int"),
        ({"homophily": 1.1}, "'homophily' parameter of make_ood_graph must be"),
        ({"features": "images"}, "'features' parameter of make_ood_graph must be"),
    ],
)
def test_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_ood_graph(**{"n_samples": 20, **parameters})


@pytest.mark.slow
def test_as_large_as_ogbn_arxiv():
    """No array of all pairs: at 8 bytes for each, that would be 214 GiB."""
    nodes = make_ood_graph(
        169_343,
        n_classes=40,
        n_features=8,
        average_degree=2_315_598 / 169_343,
        random_state=0,
    )
    assert nodes.n_nodes == 169_343
    assert nodes.adjacency.nnz == 2_315_598
