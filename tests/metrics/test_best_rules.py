"""Tests of the step function of what is best at every bound."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skood.metrics import TwoScoreCurve
from skood.rejection import OperatingPoint
from tests.metrics._double_samples import roc_curve


def make_curve(bounds, values, at_most):
    n = len(bounds)
    return TwoScoreCurve(
        bounds=np.array(bounds),
        values=np.array(values),
        at_most=at_most,
        thetas=np.arange(n) / 10,
        lams=np.arange(n) * 2.0,
        taus=np.ones(n),
        scales=(3.0, 4.0),
    )


LOWER = make_curve([0.2, 0.7, 1.0], [1.0, 3.0, 10.0], False)
UPPER = make_curve([0.25, 0.5], [0.4, 0.8], True)


def test_values_of_lower_bounds():
    """To ask for less is to get the next point that is enough."""
    actual = LOWER.at([-1.0, 0.0, 0.2, 0.2001, 0.7, 0.9, 1.0, 1.1])
    assert_array_equal(actual, [1, 1, 1, 3, 3, 10, 10, np.nan])
    assert isinstance(LOWER.at(0.5), float) and LOWER.at(0.5) == 3.0


def test_values_of_upper_bounds():
    actual = UPPER.at([[-1.0, 0.2, 0.25], [0.4, 0.5, 9.0]])
    assert_array_equal(actual, [[np.nan, np.nan, 0.4], [0.4, 0.8, 0.8]])


def test_bounds_are_guarded_against_rounding():
    assert_array_equal(LOWER.at([0.2 + 1e-12, 0.7 + 1e-12, 1 + 1e-12]), [1, 3, 10])
    assert_array_equal(UPPER.at([0.25 - 1e-12, 0.5 - 1e-12]), [0.4, 0.8])


def test_area_is_the_integral_of_the_step_function():
    assert LOWER.area == pytest.approx(0.2 * 1 + 0.5 * 3 + 0.3 * 10, rel=1e-14)
    assert UPPER.area == pytest.approx(0.25 * 0.4 + 0.5 * 0.8, rel=1e-14)
    middles = (np.arange(1000) + 0.5) / 1000
    assert np.mean(LOWER.at(middles)) == pytest.approx(LOWER.area, rel=1e-12)
    assert np.nansum(UPPER.at(middles)) / 1000 == pytest.approx(UPPER.area, rel=1e-12)


def test_rules():
    point = LOWER.rule_at(0.5)
    assert isinstance(point, OperatingPoint)
    assert (point.theta, point.lam, point.tau) == (0.1, 2.0, 1.0)
    assert point.scales == (3.0, 4.0)
    assert UPPER.rule_at(0.3).theta == 0.0
    with pytest.raises(ValueError, match=r"of at least 1.5: the largest .* is 1\."):
        LOWER.rule_at(1.5)
    with pytest.raises(ValueError, match=r"of at most 0.1: the least .* is 0.25\."):
        UPPER.rule_at(0.1)
    for ask in (LOWER.at, UPPER.rule_at):
        with pytest.raises(ValueError, match="bound contains NaN; pass numbers"):
            ask(math.nan)


def test_the_rule_that_accepts_nothing():
    """Also not the row that every threshold would accept."""
    scores = np.array([2.0, 1.0, np.inf, 0.0])
    curve = roc_curve([0, 0, -1, -1], scores)
    assert_array_equal(curve.bounds, [0, 1])
    assert_array_equal(curve.values, [0, 0.5])
    assert not curve.rule_at(0.0).accept(-scores).any()
    assert_array_equal(curve.rule_at(0.1).accept(-scores), [True, True, True, False])


def test_repr_is_short():
    assert "lams" not in repr(LOWER) and "bounds=array([0.2, 0.7, 1. ])" in repr(LOWER)
