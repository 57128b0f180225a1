"""Tests of the reasons: shares, percentiles, planted samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import KNN
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    OperatingPoint,
    RejectOptionClassifier,
)
from skood.rejection._explanation import ScoreReference
from tests.rejection._problem import selective

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 200))
A_NEW, B_NEW = RNG.normal(scale=2, size=(2, 500))
THETAS = (0.0, 0.3, math.pi / 4, 1.2, math.pi / 2)
NAMES = ("accepted", "uncertain class", "out-of-distribution")


def point_at(theta, level=0.7, a=A, b=B):
    """A rule that accepts the fraction `level` of the rows (a, b)."""
    scales = (2.0, 0.5)
    projected = np.cos(theta) * a / scales[0]
    if b is not None:
        projected = projected + np.sin(theta) * b / scales[1]
    return OperatingPoint(
        theta=theta, lam=float(np.quantile(projected, level)), scales=scales
    )


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ------------------------------------------------------------- fractions of the excess


@pytest.mark.parametrize("theta", THETAS)
def test_shares_equal_a_naive_loop(theta):
    point = point_at(theta)
    accepted = point.accept(A, B)
    mean_a, mean_b = A[accepted].mean(), B[accepted].mean()
    reason = ScoreReference.of(point, A, B).explain(point, A_NEW, B_NEW)
    accepted = point.accept(A_NEW, B_NEW)
    assert 0 < accepted.sum() < len(accepted)
    for i, (a, b) in enumerate(zip(A_NEW, B_NEW, strict=True)):
        shares = reason.risk_fraction[i], reason.ood_fraction[i]
        if accepted[i]:
            assert reason.reason[i] == "accepted"
            assert shares == (0, 0)
            continue
        from_a = math.cos(theta) * (a - mean_a) / 2.0
        from_b = math.sin(theta) * (b - mean_b) / 0.5
        ood_fraction = min(1, max(0, from_b / (from_a + from_b)))
        assert_allclose(shares, (1 - ood_fraction, ood_fraction), atol=1e-9)
        assert reason.reason[i] == NAMES[1 + (from_b > from_a)]
    total = reason.risk_fraction + reason.ood_fraction
    assert_array_equal(total, np.where(accepted, 0.0, 1.0))


def test_a_score_that_the_rule_does_not_use_is_no_reason():
    for theta, name in ((0.0, NAMES[1]), (math.pi / 2, NAMES[2])):
        point = point_at(theta)
        reason = ScoreReference.of(point, A, B).explain(point, A_NEW, B_NEW)
        assert set(reason.reason) == {"accepted", name}


def test_equal_excess_is_uncertainty():
    point = OperatingPoint(theta=math.pi / 4, lam=0.0)
    reference = ScoreReference.of(point, np.zeros(3), np.zeros(3))
    reason = reference.explain(point, np.ones(1), np.ones(1))
    assert (reason.reason[0], reason.ood_fraction[0]) == ("uncertain class", 0.5)


def test_single_score():
    point = point_at(0.0, b=None)
    reason = ScoreReference.of(point, A, None).explain(point, A_NEW, None)
    rejected = ~point.accept(A_NEW)
    assert_array_equal(reason.reason == "uncertain class", rejected)
    assert_array_equal(reason.risk_fraction, rejected.astype(float))
    assert_array_equal(reason.ood_fraction, 0)
    assert reason.ood_percentile is None


@pytest.mark.parametrize("theta", [-2.5, -1.0, 2.0])
def test_a_reversed_score(theta):
    # rejected because of a small score: its term of the excess still is positive
    point = point_at(theta)
    reason = ScoreReference.of(point, A, B).explain(point, A_NEW, B_NEW)
    rejected = ~point.accept(A_NEW, B_NEW)
    assert_array_equal(
        reason.risk_fraction + reason.ood_fraction, rejected.astype(float)
    )
    w_b = math.sin(theta)
    blamed = reason.reason == "out-of-distribution"
    assert blamed.any()
    excess = w_b * (B_NEW[blamed] - B[point.accept(A, B)].mean())
    assert (excess > 0).all()


# ---------------------------------------------------------------------- percentiles


def test_percentiles_equal_a_naive_loop():
    a, b = np.round(A, 1), np.round(B, 1)  # with ties
    point = point_at(0.8, a=a, b=b)
    new_a, new_b = np.round(A_NEW, 1), np.round(B_NEW, 1)
    reason = ScoreReference.of(point, a, b).explain(point, new_a, new_b)
    for i in range(len(new_a)):
        assert reason.risk_percentile[i] == 100 * sum(v <= new_a[i] for v in a) / 200
        assert reason.ood_percentile[i] == 100 * sum(v <= new_b[i] for v in b) / 200
    ends = np.array([-9.0, 9.0])
    extremes = ScoreReference.of(point, a, b).explain(point, ends, -ends)
    assert extremes.risk_percentile.tolist() == [0.0, 100.0]
    assert extremes.ood_percentile.tolist() == [100.0, 0.0]


def test_calibration_samples_rank_uniformly():
    point = point_at(0.8)
    reason = ScoreReference.of(point, A, B).explain(point, A, B)
    expected = 100 * np.arange(1, 201) / 200
    assert_allclose(np.sort(reason.risk_percentile), expected)
    assert_allclose(np.sort(reason.ood_percentile), expected)


# ------------------------------------------------------------------ infinite scores


def test_infinite_scores_are_the_reason():
    inf = np.inf
    for theta in THETAS:  # a row with an infinite score is rejected at every angle
        point = point_at(theta)
        reason = ScoreReference.of(point, A, B).explain(
            point,
            np.array([inf, 0.0, inf, -inf]),
            np.array([0.0, inf, inf, inf]),
        )
        assert reason.reason.tolist() == [NAMES[1], NAMES[2], NAMES[1], NAMES[2]]
        assert reason.ood_fraction.tolist() == [0, 1, 0.5, 1]
        assert reason.risk_fraction.tolist() == [1, 0, 0.5, 0]
        assert reason.risk_percentile.tolist()[2:] == [100, 0]


def test_infinite_calibration_scores_do_not_spoil_the_mean():
    a, b = np.append(A, -np.inf), np.append(B, 0.0)
    point = point_at(0.8)
    assert point.accept(a, b)[-1]
    with_inf = ScoreReference.of(point, a, b).explain(point, A_NEW, B_NEW)
    without = ScoreReference.of(point, A, B).explain(point, A_NEW, B_NEW)
    assert_array_equal(with_inf.risk_fraction, without.risk_fraction)


def test_only_infinite_scores_are_accepted():
    a, b = np.array([-np.inf, 0.0, 1.0]), np.zeros(3)
    point = OperatingPoint(theta=0.5, lam=-np.inf)
    reason = ScoreReference.of(point, a, b).explain(point, np.array([-5.0, 1.0]), b[:2])
    assert reason.reason.tolist() == ["uncertain class"] * 2
    assert reason.risk_fraction.tolist() == [1, 1]


def test_rounding_gives_no_nan():
    # the mean of accepted terms may be rounded above the threshold that they meet
    lam = 0.1
    a = np.full(3, lam)
    point = OperatingPoint(theta=0.0, lam=lam)
    reference = ScoreReference.of(point, a, None)
    assert reference.typical[0] > lam
    new = np.full(1, np.nextafter(lam, 1))
    reason = reference.explain(point, new, None)
    assert (reason.risk_fraction[0], reason.ood_fraction[0]) == (1, 0)


# ------------------------------------------------------------- planted, from the top


class LastColumn(BaseEstimator):
    """A detector whose score is minus the last column of X."""

    def fit(self, X, y=None):
        return self

    def score_samples(self, X):
        return -np.asarray(X)[:, -1]


def make_data(seed=0, n=150):
    """Two classes left and right of zero; OOD rows far up, on the side of one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3 * n, 2)) + np.repeat([[-2, 0], [2, 0], [4, 9]], n, axis=0)
    return X, np.repeat([0, 1, -1], n)


def test_planted_samples():
    X, y = make_data()
    clf = selective(
        ood_detector=KNN(n_neighbors=3, normalize=False),
        rule=BoundedTPRFPR(tpr_min=0.85, fpr_max=0.02),
    ).fit(X, y)
    uncertain, typical, ood = [0.0, 0.0], [2.0, 0.0], [3.0, 12.0]
    reason = clf.reject_reason([uncertain, typical, ood])
    assert reason.reason.tolist() == [NAMES[1], NAMES[0], NAMES[2]]
    assert_array_equal(clf.predict([uncertain, typical, ood]), [-1, 1, -1])
    assert reason.risk_percentile[0] > 95 > 60 > reason.risk_percentile[1]
    assert reason.ood_percentile[2] == 100
    assert reason.ood_percentile[0] < 95
    # on new data the reasons tell the two kinds of rejected rows apart
    X, y = make_data(seed=1)
    reason = clf.reject_reason(X)
    assert_array_equal(reason.reason == "accepted", clf.accept_proba(X) == 1)
    rejected = reason.reason != "accepted"
    assert np.mean(reason.reason[(y == -1) & rejected] == NAMES[2]) > 0.95
    assert np.mean(reason.reason[(y != -1) & rejected] == NAMES[1]) > 0.8


def test_reference_is_the_calibration_data():
    X, y = make_data()
    clf = RejectOptionClassifier(
        LogisticRegression(),
        risk_detector=LastColumn(),
        rule=BoundedAbstention(0.5),
        calibration=3,
    ).fit(X[y >= 0], y[y >= 0])
    seen = np.sort(X[y >= 0][:, 1])
    expected = 100 * np.searchsorted(seen, X[:, 1], side="right") / len(seen)
    assert_allclose(clf.reject_reason(X).risk_percentile, expected)


class Gate(LastColumn):
    """A detector that is certain about rows with a large last column."""

    def score_samples(self, X):
        return np.where(np.asarray(X)[:, -1] > 20, -np.inf, 0.0)


def test_a_detector_may_be_certain():
    X, y = make_data()
    clf = selective(ood_detector=Gate(), rule=BoundedAbstention(0.8)).fit(X, y)
    samples = [[5.0, 0.0], [5.0, 25.0], [0.0, 25.0]]
    assert clf.predict(samples).tolist() == [1, -1, -1]
    reason = clf.reject_reason(samples)
    assert reason.reason.tolist() == [NAMES[0], NAMES[2], NAMES[2]]
    assert reason.ood_fraction.tolist() == [0, 1, 1]


def test_makes_a_table():
    pandas = pytest.importorskip("pandas")
    X, y = make_data()
    clf = selective(rule=BoundedAbstention(0.9)).fit(X, y)
    table = pandas.DataFrame(clf.reject_reason(X))
    assert table.shape == (len(X), 5)
    assert set(table["reason"]) == {"accepted", "uncertain class"}


def test_needs_a_rule():
    X, y = make_data()
    clf = RejectOptionClassifier(LogisticRegression())
    with pytest.raises(AttributeError, match="has no attribute 'reject_reason'") as e:
        clf.reject_reason(X)
    assert "not available when rule=None" in str(e.value.__cause__)
    clf.fit(X, y).set_params(rule=BoundedAbstention())
    assert not hasattr(clf, "reject_reason")  # until it is fitted again
    assert hasattr(clf.fit(X, y), "reject_reason")
    assert not hasattr(clf.set_params(rule=None).fit(X, y), "reject_reason")
