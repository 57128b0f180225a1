"""Acceptance on the boundary: closed forms, linear programs, and ties."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from skood.decision import (
    BoundedAbstention,
    BoundedTPRFPR,
    boundary_acceptance,
    solve_finite,
)
from skood.exceptions import InfeasibleError


@pytest.mark.parametrize(
    "mu, fpr_max, ratio, gammas",
    # p_I uniform on [0, 1], p_O = 2x, g = 2x, tpr_min = .6; checked by linear programs
    [
        (1.0, 0.5, 0.83333, (0.23333, 1.43333)),
        (1.0, 0.9, 1.4, (0.8, 2.0)),
        (-1.0, 0.5, 0.6, (0.0, 1.2)),
        (0.0, 0.5, 0.6, (0.0, 1.2)),
    ],
)
def test_closed_form(mu, fpr_max, ratio, gammas):
    x = (np.arange(30_000) + 0.5) / 30_000
    rule = BoundedTPRFPR(tpr_min=0.6, fpr_max=fpr_max)
    acceptance = boundary_acceptance(2 * x, 2 * x, rule, mu, weights_ood=x)
    assert acceptance.feasible
    assert_allclose(acceptance.tpr, 0.6, rtol=1e-9)
    assert_allclose(acceptance.fpr / acceptance.tpr, ratio, atol=1e-4)
    assert_allclose([acceptance.gamma1, acceptance.gamma2], gammas, atol=2e-4)


def test_recipe_of_the_paper_stops_too_low():
    """Its F is undefined where all of g >= s has less than the allowed FPR."""
    x = (np.arange(30_000) + 0.5) / 30_000
    rule = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.9)
    acceptance = boundary_acceptance(2 * x, 2 * x, rule, 1.0, weights_ood=x)
    last = x >= np.sqrt(1 - rule.fpr_max)  # FPR 1 - x ** 2
    tpr, fpr = last.mean(), x[last].sum() / x.sum()
    assert_allclose([fpr, fpr / tpr], [rule.fpr_max, 1.3162], atol=1e-4)
    assert tpr > rule.tpr_min
    assert acceptance.fpr / acceptance.tpr > fpr / tpr + 0.08


def _problem(rng):
    """Atoms with a likelihood ratio, some of them tied, and bounds."""
    n = int(rng.integers(1, 9))
    p_id = rng.dirichlet(np.ones(n))
    g = rng.choice([0.0, 0.2, 0.5, 1.0, 1.7, 4.0], size=n) * rng.choice([1, 1, 1.3])
    if not g.any():
        g[:] = 1.0
    g /= p_id @ g
    tpr_min, fpr_max = rng.uniform(0.05, 1, size=2)
    return p_id, g, BoundedTPRFPR(tpr_min=tpr_min, fpr_max=fpr_max)


def test_linear_programs_of_atoms():
    rng = np.random.default_rng(0)
    n_feasible = 0
    for _ in range(200):
        p_id, g, rule = _problem(rng)
        mu = float(rng.choice([-0.7, 0.9]))
        lam = 1.0 + max(mu * g.max(), 0.0)
        risk = lam - mu * g  # r + mu g is constant
        p_ood = p_id * g
        acceptance = boundary_acceptance(
            g, g, rule, mu, weights_id=p_id, weights_ood=p_ood
        )
        try:
            expected = solve_finite(p_id, p_ood, risk, rule)
        except InfeasibleError:
            assert not acceptance.feasible
            assert acceptance.fpr > rule.fpr_max
            continue
        n_feasible += 1
        assert acceptance.feasible
        assert acceptance.tpr >= rule.tpr_min - 1e-9
        assert acceptance.fpr <= rule.fpr_max + 1e-9
        ratio = acceptance.fpr / acceptance.tpr
        assert_allclose(lam - mu * ratio, expected.risk, rtol=1e-7)
        inside = (g > acceptance.gamma1) & (g < acceptance.gamma2)
        accept = inside + acceptance.chi1 * (g == acceptance.gamma1)
        if acceptance.gamma2 > acceptance.gamma1:
            accept = accept + acceptance.chi2 * (g == acceptance.gamma2)
        assert accept.min() >= 0
        assert accept.max() <= 1 + 1e-12
        assert_allclose(accept @ p_id, acceptance.tpr, atol=1e-9)
        assert_allclose(accept @ p_ood, acceptance.fpr, atol=1e-9)
    assert n_feasible > 100


def test_samples_with_ties():
    """The ratio of the counts is that of the linear program over windows."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        g_id = rng.choice([0.1, 0.4, 0.5, 1.0, 2.0], size=20)
        g_ood = rng.choice([0.4, 1.0, 2.0, 5.0], size=15)
        rule = BoundedTPRFPR(tpr_min=0.3, fpr_max=0.4)
        acceptance = boundary_acceptance(g_id, g_ood, rule, 1.0)
        assert acceptance.feasible
        assert acceptance.tpr >= 0.3 - 1e-9
        assert acceptance.fpr <= 0.4 + 1e-9
        grid = np.unique(np.concatenate([g_id, g_ood]))
        p = np.array([np.mean(g_id == v) for v in grid])
        q = np.array([np.mean(g_ood == v) for v in grid])
        # the largest FPR at this TPR: no acceptance has a larger ratio
        best = linprog(
            -q, A_ub=[q], b_ub=[0.4], A_eq=[p], b_eq=[acceptance.tpr], bounds=(0, 1)
        )
        assert acceptance.fpr <= -best.fun + 1e-9


def test_everything_is_required():
    rule = BoundedTPRFPR(tpr_min=1.0, fpr_max=1.0)
    for mu in (-1.0, 1.0):
        acceptance = boundary_acceptance([0.5, 1.5], [0.5, 1.5], rule, mu)
        assert (acceptance.tpr, acceptance.fpr, acceptance.feasible) == (1.0, 1.0, True)
    single = boundary_acceptance([1.0], [1.0], BoundedTPRFPR(0.3, 0.5), -1.0)
    assert_allclose([single.chi1, single.chi2, single.tpr, single.fpr], 0.3)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"rule": BoundedAbstention()}, TypeError, "rule must be a BoundedTPRFPR, got"),
        ({"mu": np.nan}, ValueError, "mu must be a finite number, got nan"),
        ({"mu": True}, ValueError, "mu must be a finite number"),
        ({"g_id": [-1.0, 2.0]}, ValueError, "g_id must be likelihood ratios >= 0"),
        ({"g_ood": [[1.0]]}, ValueError, r"g_ood must be .* got the shape \(1, 1\)"),
        ({"g_ood": [np.inf]}, ValueError, "Input g_ood contains infinity"),
        ({"weights_id": [1.0]}, ValueError, "weights_id must be weights >= 0"),
        ({"weights_ood": [0.0, 0.0]}, ValueError, "weights_ood must be .* not all 0"),
    ],
)
def test_errors(change, error, message):
    arguments = {
        "g_id": [0.5, 1.5],
        "g_ood": [0.5, 1.5],
        "rule": BoundedTPRFPR(),
        "mu": 1.0,
        **change,
    }
    with pytest.raises(error, match=message):
        boundary_acceptance(**arguments)
