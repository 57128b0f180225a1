"""Tests of the uncertainties of Dirichlet distributions, and of their propagation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.evidential._graph_uncertainty import evidential_uncertainty, whole_graph
from skood.graph import NodeSet

FIELDS = ("total", "aleatoric", "epistemic")


@pytest.fixture(scope="module")
def nodes():
    """Eight nodes, edges with directions and weights, and a node without any."""
    rng = np.random.default_rng(0)
    adjacency = np.where(rng.random((8, 8)) < 0.4, rng.uniform(0.5, 2, (8, 8)), 0)
    np.fill_diagonal(adjacency, 0)
    adjacency[7] = adjacency[:, 7] = 0
    return NodeSet((rng.normal(size=(8, 2)), adjacency))


@pytest.fixture(scope="module")
def alpha():
    return 1 + np.random.default_rng(1).gamma(1.0, 5.0, size=(8, 3))


def walked(nodes, values, steps, teleport):
    """A random walk with restarts, node by node."""
    edges = nodes.adjacency.toarray().astype(float)
    result = np.array(values, dtype=float)
    for _ in range(steps):
        before = result.copy()
        for i in range(len(edges)):
            weight = edges[:, i].copy()
            if not weight.any():
                continue
            weight[i] += 1.0
            mean = sum(w * b for w, b in zip(weight, before, strict=True))
            result[i] = (1 - teleport) * mean / weight.sum() + teleport * values[i]
    return result


def expected_uncertainty(alpha, u=None):
    mean = alpha / alpha.sum(axis=1, keepdims=True)
    return {
        "total": -(mean * np.log(mean)).sum(axis=1),
        "aleatoric": -mean.max(axis=1),
        "epistemic": alpha.shape[1] / alpha.sum(axis=1) if u is None else u,
    }


def test_arrays_have_no_propagation(alpha):
    expected = expected_uncertainty(alpha)
    for propagation in (None, "vacuity", "evidence", "both"):
        uncertainty = evidential_uncertainty(alpha, alpha, propagation=propagation)
        for name in FIELDS:
            assert_allclose(uncertainty[name], expected[name], rtol=1e-13)
            assert uncertainty[name].dtype == np.float64


def test_no_propagation(nodes, alpha):
    expected = expected_uncertainty(alpha)
    uncertainty = evidential_uncertainty(alpha, nodes)
    for name in FIELDS:
        assert_allclose(uncertainty[name], expected[name], rtol=1e-13)


@pytest.mark.parametrize(
    "options, of_evidence, of_vacuity",
    [
        ({}, (10, 0.1), (30, 0.02)),
        ({"n_steps": 2, "teleport": 0.4}, (2, 0.4), (2, 0.4)),
    ],
)
def test_propagation(nodes, alpha, options, of_evidence, of_vacuity):
    averaged = walked(nodes, alpha, *of_evidence)
    u = {
        "vacuity": 3 / alpha.sum(axis=1),
        "both": 3 / averaged.sum(axis=1),
    }
    u = {name: walked(nodes, value, *of_vacuity) for name, value in u.items()}
    expected = {
        "vacuity": expected_uncertainty(alpha, u["vacuity"]),
        "evidence": expected_uncertainty(averaged),
        "both": expected_uncertainty(averaged, u["both"]),
    }
    for propagation, values in expected.items():
        uncertainty = evidential_uncertainty(
            alpha, nodes, propagation=propagation, **options
        )
        for name in FIELDS:
            assert_allclose(uncertainty[name], values[name], rtol=1e-12)
            # the last node has no neighbors
            assert uncertainty[name][7] == expected_uncertainty(alpha)[name][7]


def test_nodes_of_a_view_repeat_and_have_an_order(nodes, alpha):
    view = nodes[[5, 0, 5]]
    for propagation in (None, "vacuity", "evidence", "both"):
        whole = evidential_uncertainty(alpha, nodes, propagation=propagation)
        uncertainty = evidential_uncertainty(alpha, view, propagation=propagation)
        for name in FIELDS:
            assert_array_equal(uncertainty[name], whole[name][[5, 0, 5]])


def test_no_steps_are_no_propagation(nodes, alpha):
    plain = evidential_uncertainty(alpha, nodes)
    for propagation in ("vacuity", "evidence", "both"):
        uncertainty = evidential_uncertainty(
            alpha, nodes, propagation=propagation, n_steps=0
        )
        for name in FIELDS:
            assert_array_equal(uncertainty[name], plain[name])


def test_whole_graph(nodes):
    view = nodes[[3, 1]]
    assert_array_equal(whole_graph(view).nodes, np.arange(8))
    assert whole_graph(view) is whole_graph(nodes)
    samples = [[1.0, 2.0]]
    assert whole_graph(samples) is samples
