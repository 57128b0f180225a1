"""Tests of the rules that bound rates."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone

from skood.rejection import (
    BaseRule,
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Linear,
)

N = np.array([0, 6, 7, 8, 10])
E = np.array([0.0, 3.0, 0.0, 2.0, 5.0])
F = np.array([0, 1, 1, 2, 3])


def test_linear():
    line = Linear(id=2.0, loss=-1.0, ood=0.5, constant=3.0)
    np.testing.assert_array_equal(line.at(N, E, F), 2 * N - E + F / 2 + 3)
    assert line.at(1, 1.0, 2) == 5.0
    assert Linear(constant=4.0).at(7, 7.0, 7) == 4.0
    # what has no factor may be unknown
    assert Linear(id=1.0).at(2, np.nan, np.nan) == 2.0


def test_bounded_tpr_fpr():
    rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.4)
    assert rule.needs_ood and rule.ood_prior is None and rule.plug_in() is None
    assert rule.bounds(10, 5) == (Linear(id=-1, constant=7), Linear(ood=1, constant=-2))
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, True, False]
    assert rule.feasible(7, 0.0, 2, 10, 5)


def test_bounded_abstention():
    rule = BoundedAbstention(coverage=0.7)
    assert not rule.needs_ood
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, True, True]
    assert rule.feasible(N, E, np.zeros(5), 10, 0).tolist()[2:] == [True] * 3


def test_bounded_precision_recall():
    rule = BoundedPrecisionRecall(precision_min=0.8, recall_min=0.6, ood_prior=0.25)
    assert rule.needs_ood
    # precision .75 N/10 / (.75 N/10 + .25 F/5) of the five points
    precision = [np.nan, 0.9, 0.91304, 0.85714, 0.83333]
    right, wrong = 0.75 * N[1:] / 10, 0.25 * F[1:] / 5
    np.testing.assert_allclose(right / (right + wrong), precision[1:], atol=1e-5)
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, True, True, True, True]
    rule.set_params(precision_min=0.9)  # met exactly by the second point
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, True, True, False, False]
    rule.set_params(recall_min=0.7)
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, False, False]


def test_no_ood_samples_are_needed_at_a_prior_of_zero():
    rule = BoundedPrecisionRecall(precision_min=1.0, recall_min=0.7, ood_prior=0)
    assert not rule.needs_ood
    assert rule.feasible(N, E, F, 10, 0).tolist() == [False, False, True, True, True]
    assert rule.violation(0.7) == 0
    assert rule.violation(0.5) == pytest.approx(0.2)
    assert not BoundedPrecisionRecall(ood_prior=0.0).needs_ood


@pytest.mark.parametrize(
    "rule", [BoundedTPRFPR(), BoundedAbstention(), BoundedPrecisionRecall()]
)
def test_objective_is_the_selective_risk(rule):
    assert rule.cost() is None
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
    zero = np.zeros(n + 1)
    for rule in (
        BoundedTPRFPR(tpr_min=share, fpr_max=1.0),
        BoundedAbstention(coverage=share),
        BoundedPrecisionRecall(precision_min=0.0, recall_min=share),
    ):
        enough = rule.feasible(counts, zero, zero, n, n)
        np.testing.assert_array_equal(enough, counts >= least)
    few = BoundedTPRFPR(0.0, fpr_max=share).feasible(n, 0.0, counts, n, n)
    np.testing.assert_array_equal(few, counts <= most)


def test_shares_of_samples_are_not_rounded():
    least, most = BoundedTPRFPR(0.71, 0.25).bounds(10, 5, whole=False)
    assert least == Linear(id=-1.0, constant=pytest.approx(7.1))
    assert most == Linear(ood=1.0, constant=-1.25)


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
    rule = BoundedPrecisionRecall(precision_min=0.9, recall_min=0.7, ood_prior=0.5)
    assert rule.violation(0.9, 0.1) == 0
    assert rule.violation(0.8, 0.2) == pytest.approx(0.1)
    assert rule.violation(0.4, 0.1) == pytest.approx(0.3 + 0.1)
    assert rule.violation(0.0, 0.0) == pytest.approx(0.7 + 0.9)
    assert np.isnan(rule.violation(0.8))


def test_feasible_points_violate_nothing():
    counts = np.arange(11)
    N, F = (g.ravel() for g in np.meshgrid(counts, counts))
    for share in (0.1 + 0.2, 0.29, 0.7, 0.71):
        for rule in (
            BoundedTPRFPR(tpr_min=share, fpr_max=share),
            BoundedPrecisionRecall(share, 1 - share, 0.3),
        ):
            met = rule.feasible(N, 0 * N, F, 10, 10)
            np.testing.assert_array_equal(met, rule.violation(N / 10, F / 10) == 0)


def test_parameters_are_searchable():
    rule = BoundedTPRFPR(tpr_min=0.6)
    assert rule.get_params() == {"tpr_min": 0.6, "fpr_max": 0.2}
    assert clone(rule).set_params(fpr_max=0.1).fpr_max == 0.1
    assert BoundedAbstention().get_params() == {"coverage": 0.8}
    assert sorted(BoundedPrecisionRecall().get_params()) == [
        "ood_prior",
        "precision_min",
        "recall_min",
    ]


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (BoundedTPRFPR, "tpr_min"),
        (BoundedTPRFPR, "fpr_max"),
        (BoundedAbstention, "coverage"),
        (BoundedPrecisionRecall, "precision_min"),
        (BoundedPrecisionRecall, "recall_min"),
    ],
)
def test_parameters_are_checked_when_used(cls, name):
    for good in (0, 1, 0.5, np.float32(0.5)):
        cls(**{name: good}).check_params()
    message = rf"'{name}' parameter of {cls.__name__} must be a float .* \[0.0, 1.0\]"
    for bad in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=message):
            cls(**{name: bad}).check_params()
    for bad in ("half", None, True):
        with pytest.raises(TypeError, match=message):
            cls(**{name: bad}).check_params()


def test_a_prior_of_one_leaves_no_id_samples():
    BoundedPrecisionRecall(ood_prior=0.999).check_params()
    with pytest.raises(ValueError, match=r"'ood_prior' .* \[0.0, 1.0\)\. Got 1.0"):
        BoundedPrecisionRecall(ood_prior=1.0).check_params()


def test_base_rule_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        BaseRule()
