"""Tests of operating points and how they are applied."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import pickle
import warnings

import numpy as np
import pytest

from skood.rejection import BoundedAbstention, OperatingPoint, Rates, solve
from tests.decision._scores import samples_of, solved


def test_mu():
    scales = (2.0, 5.0)
    for theta, mu in (
        (0.0, 0.0),
        (math.pi / 4, 0.4),
        (math.pi / 2, math.inf),
        (-math.pi / 2, -math.inf),
        (-math.pi / 4, -0.4),
    ):
        point = OperatingPoint(theta=theta, lam=1.0, scales=scales)
        assert point.mu == pytest.approx(mu)
    # a + mu b <= lam c_a / cos(theta) is the same rule
    a, b = np.random.default_rng(3).uniform(size=(2, 400))
    point = OperatingPoint(theta=0.7, lam=0.4, scales=scales)
    bound = point.lam * scales[0] / math.cos(point.theta)
    np.testing.assert_array_equal(point.accept(a, b), a + point.mu * b <= bound)


def test_errors_of_accept():
    point = OperatingPoint(theta=0.5, lam=1.0)
    with pytest.raises(ValueError, match="ood is None although the rule has two"):
        point.accept([1.0])
    with pytest.raises(ValueError, match="risk contains 1 NaN"):
        point.accept([np.nan], [1.0])
    with pytest.raises(ValueError, match="ood contains -inf"):
        point.accept([1.0], [-np.inf])
    with pytest.raises(ValueError, match="risk and ood must have one entry per sample"):
        point.accept([1.0], [1.0, 2.0])


def test_exact_at_right_angles():
    # cos(pi / 2) is not zero in floating point: a must not leak into the rule on b
    a, b = np.array([1e30, -1e30, 0.0]), np.array([1.0, 1.0, 2.0])
    point = OperatingPoint(theta=math.pi / 2, lam=1.0)
    assert point.accept(a, b).tolist() == [True, True, False]
    assert OperatingPoint(theta=0.0, lam=0.0).accept(b - 1, a).tolist() == [
        True,
        True,
        False,
    ]
    assert OperatingPoint(theta=-math.pi / 2, lam=-1.5).accept(a, b).tolist() == [
        False,
        False,
        True,
    ]


def test_scales_divide_the_scores():
    point = OperatingPoint(theta=math.pi / 4, lam=math.sqrt(2), scales=(2.0, 5.0))
    assert point.accept([1.9, 2.1], [5.0, 5.0]).tolist() == [True, False]


def test_frozen_and_picklable():
    point = OperatingPoint(0.5, 1.0, rates=Rates(risk=0.25, tpr=0.5, fpr=0.5))
    with pytest.raises(AttributeError):
        point.lam = 2.0
    again = pickle.loads(pickle.dumps(point))
    assert (again.theta, again.lam, again.risk) == (0.5, 1.0, 0.25)


def test_infinite_scores_are_rejected_first():
    a = np.array([1.0, 2.0, np.inf, 0.0])
    b = np.array([1.0, 2.0, 0.0, np.inf])
    loss = np.array([0.0, 0.0, 1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        point = solved(BoundedAbstention(0.5), a, b, loss, [np.inf], [np.inf])
        assert (point.risk, point.tpr, point.fpr) == (0.0, 0.5, 0.0)
        assert point.accept(a, b).tolist() == [True, True, False, False]
        # nothing short of accepting all rows gets at them
        point = solve(BoundedAbstention(0.6), samples_of(a, b, loss, None, None))
        assert (point.lam, point.tpr, point.risk) == (np.inf, 1.0, 0.5)
        for theta in (-3.0, -math.pi / 2, -1.0, 0.0, 0.5, math.pi / 2, 2.0):
            accepted = OperatingPoint(theta=theta, lam=1e6).accept(a, b)
            assert accepted.tolist() == [True, True, False, False]


def test_minus_infinity_in_the_risk_is_accepted_first():
    a, loss = [-np.inf, 0.0, 1.0, 2.0], [0, 1, 1, 1]
    for b in (None, [0.0, 0.0, 0.0, 0.0]):
        point = solve(BoundedAbstention(0.25), samples_of(a, b, loss, None, None))
        assert (point.risk, point.tpr) == (0.0, 0.25)
        assert -0.1 < point.lam < 0.0
        assert point.accept(a, b).tolist() == [True, False, False, False]


def test_tiny_scales_do_not_overflow_into_nan():
    a = np.array([0.0, 1e-308, 5e-309, 1e10])
    point = solved(BoundedAbstention(0.75), a[:3], a[:3], [0, 0, 1], [1e10], [1e10])
    assert point.accept(a, a).tolist() == [True, True, True, False]
