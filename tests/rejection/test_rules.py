"""Tests of the rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone

from skood.rejection import BaseRule, BoundedAbstention, BoundedTPRFPR

N = np.array([0, 6, 7, 8, 10])
E = np.array([0.0, 3.0, 0.0, 2.0, 5.0])
F = np.array([0, 1, 1, 2, 3])


def test_bounded_tpr_fpr():
    rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.4)
    assert rule.needs_ood
    assert rule.accepts_enough(N, 10).tolist() == [False, False, True, True, True]
    assert rule.keeps_out(N, E, F, 10, 5).tolist() == [True] * 4 + [False]
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, True, False]


def test_bounded_abstention():
    rule = BoundedAbstention(coverage=0.7)
    assert not rule.needs_ood
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, True, True]
    assert rule.feasible(N, E, np.zeros(5), 10, 0).tolist()[2:] == [True] * 3


@pytest.mark.parametrize("rule", [BoundedTPRFPR(), BoundedAbstention()])
def test_objective_is_the_selective_risk(rule):
    np.testing.assert_array_equal(
        rule.objective(N, E, F, 10, 5), [np.inf, 0.5, 0.0, 0.25, 0.5]
    )
    assert rule.objective(4, 1.0, 0, 10, 5) == 0.25


@pytest.mark.parametrize(
    ("share", "n", "least", "most"),
    [
        (0.7, 10, 7, 7),
        (0.1 + 0.2, 10, 3, 3),  # 3.0000000000000004
        (0.29, 100, 29, 29),  # 28.999999999999996
        (0.71, 10, 8, 7),
        (1.0, 10, 10, 10),
        (0.0, 10, 1, 0),  # the risk of no row is undefined
    ],
)
def test_ceil_and_floor_are_guarded(share, n, least, most):
    counts = np.arange(n + 1)
    enough = BoundedTPRFPR(tpr_min=share).accepts_enough(counts, n)
    np.testing.assert_array_equal(enough, counts >= least)
    enough = BoundedAbstention(coverage=share).accepts_enough(counts, n)
    np.testing.assert_array_equal(enough, counts >= least)
    few = BoundedTPRFPR(fpr_max=share).keeps_out(counts, counts, counts, n, n)
    np.testing.assert_array_equal(few, counts <= most)


def test_violation_sums_what_is_broken():
    rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    assert rule.violation(0.7, 0.2) == 0
    assert rule.violation(0.9, 0.1) == 0
    assert rule.violation(0.5, 0.1) == pytest.approx(0.2)
    assert rule.violation(0.9, 0.5) == pytest.approx(0.3)
    assert rule.violation(0.5, 0.5) == pytest.approx(0.5)
    assert np.isnan(rule.violation(0.5))
    np.testing.assert_allclose(
        rule.violation(np.array([0.5, 1.0]), np.array([0.2, 0.3])), [0.2, 0.1]
    )
    assert BoundedAbstention(coverage=0.7).violation(0.4) == pytest.approx(0.3)
    assert BoundedAbstention(coverage=0.7).violation(0.7) == 0


def test_feasible_points_violate_nothing():
    counts = np.arange(11)
    for share in (0.1 + 0.2, 0.29, 0.7, 0.71):
        rule = BoundedTPRFPR(tpr_min=share, fpr_max=share)
        N, F = (g.ravel() for g in np.meshgrid(counts, counts))
        met = rule.feasible(N, 0 * N, F, 10, 10)
        np.testing.assert_array_equal(met, rule.violation(N / 10, F / 10) == 0)


def test_parameters_are_searchable():
    rule = BoundedTPRFPR(tpr_min=0.6)
    assert rule.get_params() == {"tpr_min": 0.6, "fpr_max": 0.2}
    assert clone(rule).set_params(fpr_max=0.1).fpr_max == 0.1
    assert BoundedAbstention().get_params() == {"coverage": 0.8}


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (BoundedTPRFPR, "tpr_min"),
        (BoundedTPRFPR, "fpr_max"),
        (BoundedAbstention, "coverage"),
    ],
)
def test_parameters_are_checked_when_used(cls, name):
    for good in (0, 1, 0.5, np.float32(0.5)):
        cls(**{name: good}).check_params()
    for bad in (-0.1, 1.1, np.nan):
        rule = cls(**{name: bad})
        with pytest.raises(ValueError, match=rf"{name} of {cls.__name__} must be in"):
            rule.check_params()
    for bad in ("half", None, True):
        rule = cls(**{name: bad})
        with pytest.raises(
            TypeError, match=rf"{name} of {cls.__name__} must be a number in \[0, 1\]"
        ):
            rule.check_params()


def test_base_rule_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        BaseRule()
