"""The greedy search, against one that fits everything from scratch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.logic import KnowledgeBase, constraint_candidates
from tests.logic._planted import (
    NAMES,
    naive_auroc,
    planted_data,
    planted_detector,
    planted_search,
    rows_of,
)

X, y = planted_data()


def _naive_listed(mln, candidates, X, y, rows, min_improvement, start=()):
    found, tried = list(start), []
    best = naive_auroc(mln, found, X, y, rows)
    for candidate in candidates:
        value = naive_auroc(mln, [*found, candidate], X, y, rows)
        tried.append((str(candidate), best, value))
        if value > best + min_improvement:
            found.append(str(candidate))
            best = value
    return found[len(start) :], tried


@pytest.mark.parametrize(
    "params",
    [
        {},
        pytest.param({"gamma": 0.5, "prior": 5.0}, marks=pytest.mark.slow),
        {"fusion": "shifted_product"},
        {"marginalize": True},
    ],
    ids=str,
)
def test_listed_equals_a_naive_loop(params):
    mln = planted_detector(**params)
    candidates = constraint_candidates(dict.fromkeys(NAMES, "bool"))[2:11]
    search = planted_search(mln, candidates=candidates, prune=False, random_state=3)
    search.fit(X, y)
    rows = rows_of(y, 3)
    found, tried = _naive_listed(mln, candidates, X, y, rows, 0.001)
    assert search.found_ == found
    assert "a -> b" in found or params
    history = search.search_history_
    assert list(history["candidate"]) == [text for text, _, _ in tried]
    np.testing.assert_allclose(history["before"], [b for _, b, _ in tried], atol=1e-6)
    np.testing.assert_allclose(history["after"], [a for _, _, a in tried], atol=1e-6)
    assert list(history["candidate"][history["accepted"]]) == found
    assert (history["kept"] == history["accepted"]).all()
    assert (history["seconds"] >= 0).all()


def test_by_gain_equals_a_naive_loop():
    """Each round: the best of those with the largest divergence, from scratch."""
    mln = planted_detector()
    search = planted_search(mln, order="gain", n_refits=4, prune=False, random_state=3)
    search.set_params(search__min_improvement=0.002).fit(X, y)
    rows = rows_of(y, 3)
    is_id = ~(y[rows.train] == -1).any(axis=1)
    assert is_id.all()
    domains = dict.fromkeys(NAMES, "bool")
    rest = [str(c) for c in constraint_candidates(domains)]
    Z = (X[rows.train, :4] > 0).astype(int)
    found, tried = [], []
    best = naive_auroc(mln, [], X, y, rows)
    while True:
        kb = KnowledgeBase(found, domains)
        weights = kb.fit_weights(Z)
        gains = []
        for text in rest:
            larger = KnowledgeBase([*found, text], domains)
            p = larger.expected_truth(np.append(weights, 0.0))[-1]
            uniform = larger.expected_truth(np.zeros(len(larger)))[-1]
            q = (larger.truth(Z)[:, -1].sum() + uniform) / (len(Z) + 1)
            gains.append(q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)))
        first = sorted(range(len(rest)), key=lambda i: -gains[i])[:4]
        values = [naive_auroc(mln, [*found, rest[i]], X, y, rows) for i in first]
        tried += [(rest[i], gains[i], v) for i, v in zip(first, values, strict=True)]
        if max(values) <= best + 0.002:
            break
        best = max(values)
        found.append(rest.pop(first[int(np.argmax(values))]))
    assert search.found_ == found
    assert len(found) > 1
    history = search.search_history_
    assert list(history["candidate"]) == [text for text, _, _ in tried]
    np.testing.assert_allclose(history["gain"], [g for _, g, _ in tried], atol=1e-7)
    np.testing.assert_allclose(history["after"], [v for _, _, v in tried], atol=1e-6)
    assert list(history["candidate"][history["accepted"]]) == found


def test_prune():
    """Without any of what is left the objective is lower, and it never fell."""
    params = {"min_improvement": 0.0, "random_state": 3}
    full = planted_search(prune=False, **params).fit(X, y)
    search = planted_search(**params).fit(X, y)
    assert set(search.found_) < set(full.found_)
    order = [text for text in full.found_ if text in search.found_]
    assert search.found_ == order
    assert search.validation_auroc_ >= full.validation_auroc_
    rows = rows_of(y, 3)
    for text in search.found_:
        rest = [other for other in search.found_ if other != text]
        value = naive_auroc(planted_detector(), rest, X, y, rows)
        assert value < search.validation_auroc_
    history = search.search_history_
    assert list(history["candidate"][history["accepted"]]) == full.found_
    assert list(history["candidate"][history["kept"]]) == search.found_
