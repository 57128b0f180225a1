"""Tests of the expected truth of constraints."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import product

import numpy as np
import pytest
import torch

from skood.logic import _knowledge_base
from skood.logic._knowledge_base import check_probabilities, expected_tables

SIZES = (3, 2, 4, 1)


def _problem(seed, n_samples=5):
    """Probabilities of four concepts, and tables over some of them."""
    rng = np.random.default_rng(seed)
    P = [rng.dirichlet(np.ones(size), size=n_samples) for size in SIZES]
    scopes = [(0, 1), (2,), (0, 1, 2), (0, 1), (1, 3), (0, 1, 2, 3), (3,)]
    tables = [rng.random([SIZES[j] for j in scope]) < 0.5 for scope in scopes]
    return P, scopes, tables


def _summed_over_worlds(P, scopes, tables):
    """The expectation, world by world."""
    out = np.zeros((len(P[0]), len(scopes)))
    for n in range(len(P[0])):
        for world in product(*(range(size) for size in SIZES)):
            proba = 1.0
            for p, value in zip(P, world, strict=True):
                proba *= p[n, value]
            for i, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
                out[n, i] += proba * table[tuple(world[j] for j in scope)]
    return out


def test_sums_over_all_worlds():
    P, scopes, tables = _problem(0)
    found = expected_tables(P, scopes, tables)
    np.testing.assert_allclose(
        found, _summed_over_worlds(P, scopes, tables), rtol=1e-13, atol=1e-15
    )


def test_in_small_pieces(monkeypatch):
    P, scopes, tables = _problem(1)
    whole = expected_tables(P, scopes, tables)
    monkeypatch.setattr(_knowledge_base, "_MAX_ENTRIES", 10)
    np.testing.assert_allclose(expected_tables(P, scopes, tables), whole, rtol=1e-14)


def test_what_always_holds_has_the_expectation_1():
    P, scopes, tables = _problem(3, n_samples=1000)
    found = expected_tables(P, scopes, [np.ones_like(table) for table in tables])
    assert found.max() == 1.0
    np.testing.assert_allclose(found, 1.0, rtol=1e-14)


@pytest.mark.parametrize("n_samples", [1, 63, 64, 65, 200])
def test_samples_do_not_depend_on_each_other(n_samples):
    P, scopes, tables = _problem(4, n_samples)
    whole = expected_tables(P, scopes, tables)
    order = np.random.default_rng(0).permutation(n_samples)
    mixed = expected_tables([p[order] for p in P], scopes, tables)
    assert (mixed == whole[order]).all()
    for row in range(0, n_samples, 7):
        alone = expected_tables([p[row : row + 1] for p in P], scopes, tables)
        assert (alone == whole[row]).all()


def test_no_samples_and_no_constraints():
    P, scopes, tables = _problem(5)
    assert expected_tables([p[:0] for p in P], scopes, tables).shape == (0, 7)
    assert expected_tables(P, [], []).shape == (5, 0)


DOMAINS = {"a": [0, 1], "b": ["x", "y", "z"]}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_probabilities_become_float64(kind):
    P = np.array([[1 / 3, 2 / 3]], dtype=kind), [[0.5, 0, 0.5]]
    found = check_probabilities(P, DOMAINS)
    assert [p.dtype for p in found] == [np.float64, np.float64]
    assert found[0].tolist() == P[0].astype(float).tolist()
    tensors = [torch.as_tensor(p) for p in found]
    for p, again in zip(found, check_probabilities(tensors, DOMAINS), strict=True):
        assert (p == again).all()


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ([[[1, 0]]], "Expected probabilities of 2 concepts, got 1."),
        (
            [[[1, 0]], [[1, 0]]],
            "Expected probabilities of shape (1, 3) of the concept 'b', got (1, 2).",
        ),
        (
            [[[1, 0]], [[1, 0, 0], [1, 0, 0]]],
            "Expected probabilities of shape (1, 3) of the concept 'b', got (2, 3).",
        ),
        (
            [[1, 0], [1, 0, 0]],
            "Expected probabilities of shape (2, 2) of the concept 'a', got (2,).",
        ),
        (
            [[[1, 0]], [[1.5, -0.5, 0]]],
            "Probabilities of the concept 'b' are negative, or NaN, or do not sum to 1 "
            "in each row.",
        ),
        ([[[0.5, 0.4]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
        ([[[np.nan, 1]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
        ([[[2, -1]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
    ],
)
def test_what_is_no_probability(P, message):
    with pytest.raises(ValueError) as caught:
        check_probabilities(P, DOMAINS)
    assert message in str(caught.value)
