"""Bounds on the false discovery proportion: checked numbers, loops and coverage."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import betabinom

from skood.combine import conformal_pvalues
from skood.selection import fdp_bound, select_novelties
from skood.stats._fdp_bands import envelope, local_envelope
from tests.selection._cases import vector


def test_simes_bound():
    arguments, expected = vector("S-fdp-simes")
    bounds = fdp_bound(arguments["p"], 999, arguments["delta"], method="simes")
    actual = bounds[np.array(arguments["k"]) - 1]
    assert_allclose(actual, expected["bound"], rtol=1e-12)


def test_envelope():
    arguments, expected = vector("S-envelope")
    actual = envelope(
        arguments["n"], arguments["m"], arguments["gamma"], arguments["r"]
    )
    assert actual.tolist() == expected
    for r, bound in zip(arguments["r"], expected, strict=True):
        law = betabinom(arguments["m"], r, arguments["n"] + 1 - r)
        assert law.sf(bound - 1) >= arguments["gamma"] > law.sf(bound)


@pytest.mark.parametrize("method", ["simes", "local"])
def test_bounds_by_a_loop(method, rng):
    n, m, delta = 39, 30, 0.2
    ranks = np.concatenate([rng.integers(1, 4, 12), rng.integers(1, 41, 18)])
    p = ranks / (n + 1)
    bound = fdp_bound(p, n, delta, method)
    order = np.argsort(ranks)
    for k in range(1, m + 1):
        inside = ranks <= ranks[order[k - 1]]
        if method == "simes":
            bounds = [
                j - 1 + np.sum(inside & (p > delta * j / m)) for j in range(1, m + 1)
            ]
        else:
            pairs = zip(*local_envelope(n, m, delta), strict=True)
            bounds = [b + np.sum(inside & (ranks > r)) for r, b in pairs]
        size = inside.sum()
        assert bound[k - 1] == min(*bounds, size) / size


@pytest.mark.parametrize("method", ["simes", "local"])
def test_bounds_hold_for_all_k_at_once(method, rng):
    """Also on batches that are all ID: one violation at any k counts."""
    n, m, delta, n_runs = 60, 40, 0.1, 400
    for n_ood in (0, 10):
        n_violated = 0
        is_id = np.arange(m) >= n_ood
        for _ in range(n_runs):
            scores = rng.normal(size=m) - 3 * ~is_id
            p = conformal_pvalues(scores, rng.normal(size=n))
            order = np.argsort(p, kind="stable")
            sizes = np.searchsorted(p[order], p[order], side="right")
            share = np.cumsum(is_id[order])[sizes - 1] / sizes
            n_violated += (share > fdp_bound(p, n, delta, method) + 1e-12).any()
        limit = delta + 3 * np.sqrt(delta * (1 - delta) / n_runs)
        assert n_violated / n_runs <= limit


def test_the_bound_of_a_selection(rng):
    scores = np.concatenate([rng.normal(-4, 1, 30), rng.normal(size=70)])
    p = conformal_pvalues(scores, rng.normal(size=500))
    batch = select_novelties(p, 500, 0.1, delta=0.1)
    assert batch.fdp_bound == fdp_bound(p, 500, 0.1)[batch.n_selected - 1] < 0.5

    class Everything:
        def selected(self, p, n, alpha):
            return np.ones(len(p), dtype=bool)

    everything = select_novelties(p, 500, 0.1, Everything(), delta=0.1)
    assert everything.fdp_bound == fdp_bound(p, 500, 0.1)[-1] > 0.5


def test_extreme_levels():
    assert fdp_bound([], 9).shape == (0,)
    # fewer draws than a level this small needs: nothing is certified
    assert (fdp_bound([0.1, 0.1, 0.5], 9, delta=1e-6) == 1).all()
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got 0"):
        fdp_bound([0.1], 9, delta=0)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'dkw'"):
        fdp_bound([0.1], 9, method="dkw")
