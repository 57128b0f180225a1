"""Tests of conformal p-values against loops, and of their promise over all rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    Naive,
    Storey,
    Vote,
    conformal_pvalues,
    min_calibration_size,
)
from skood.exceptions import SkoodWarning
from skood.stats import _conformal
from skood.stats._conformal import (
    counts_at_most,
    reaches,
    sorted_calibration,
    warn_if_few,
)
from tests._loops import looped


def _loop(scores, calibration, method):
    """P-values of one detector, score by score."""
    n = len(calibration)
    counts = [sum(c <= s for c in calibration) for s in scores]
    if method == "ecdf":
        return [count / n for count in counts]
    return [(1 + count) / (n + 1) for count in counts]


def _tied(rng, *shape):
    return rng.integers(-6, 7, shape) / 4


# ---- p-values


@pytest.mark.parametrize("method", ["conformal", "ecdf"])
@pytest.mark.parametrize("n_cal", [1, 2, 40, 5000])
def test_loop_over_scores(n_cal, method):
    rng = np.random.default_rng(n_cal)
    scores, calibration = _tied(rng, 50, 3), _tied(rng, n_cal, 3)
    pvalues = conformal_pvalues(scores, calibration, method=method)
    assert pvalues.dtype == np.float64
    assert pvalues.shape == (50, 3)
    for j in range(3):
        expected = _loop(scores[:, j], calibration[:, j], method)
        assert_array_equal(pvalues[:, j], expected)
        single = conformal_pvalues(scores[:, j], calibration[:, j], method=method)
        assert_array_equal(single, expected, strict=True)


def test_rank_among_all_samples_is_uniform():
    # each of n + 1 rows in turn is the new one: without ties p takes every multiple of
    # 1 / (n + 1) once, which is what exchangeability makes a probability of
    values = np.random.default_rng(0).normal(size=30)
    pvalues = [
        conformal_pvalues(values[[i]], np.delete(values, i))[0] for i in range(30)
    ]
    assert_allclose(np.sort(pvalues), np.arange(1, 31) / 30, rtol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_promise_holds_with_ties_and_ecdf_breaks_it(seed):
    values = _tied(np.random.default_rng(seed), 30)
    rest = [np.delete(values, i) for i in range(30)]
    p = [conformal_pvalues(values[[i]], rest[i])[0] for i in range(30)]
    p_ecdf = [
        conformal_pvalues(values[[i]], rest[i], method="ecdf")[0] for i in range(30)
    ]
    levels = np.arange(1, 30) / 30
    small = [np.sum(reaches(np.array(p), a)) for a in levels]
    assert (np.array(small) <= 30 * levels + 1e-9).all()
    # a single smallest row has p = 0 there
    lowest = values == values.min()
    assert min(p_ecdf) == (lowest.sum() - 1) / 29


def _tie_patterns(n_scores):
    """Yield sizes of groups of equal scores, in order: all, or some if too many."""
    if n_scores <= 7:
        cuts = itertools.product([False, True], repeat=n_scores - 1)
    else:
        rng = np.random.default_rng(n_scores)
        cuts = rng.uniform(size=(5, n_scores - 1)) < rng.uniform(size=(5, 1))
    for cut in cuts:
        yield np.cumsum([0, *cut]).astype(float)


@looped("n_cal", [*range(1, 31), 50])
def test_super_uniform_for_all_ties(n_cal):
    """Exact: each of n + 1 exchangeable scores is the new one with equal probability.

    With the levels a = r / (n + 1), P(p <= a) <= a, and p cannot be smaller: equality
    holds at each value that p takes.
    """
    n = n_cal + 1
    for scores in _tie_patterns(n):
        _, first, groups = np.unique(scores, return_index=True, return_inverse=True)
        p = [conformal_pvalues(scores[[i]], np.delete(scores, i))[0] for i in first]
        p = np.array(p)[groups]  # equal scores have the same calibration scores
        ranks = np.rint(p * n).astype(int)
        assert_allclose(p, ranks / n, rtol=1e-15)
        n_small = np.array([(ranks <= r).sum() for r in range(n + 1)])
        assert (n_small <= np.arange(n + 1)).all()
        assert_array_equal(n_small[ranks], ranks)


def test_a_single_detector_as_an_ensemble_of_one():
    """Any scikit-learn outlier detector, with ties, on held-out samples."""
    rng = np.random.default_rng(0)
    X, X_cal, X_new = (rng.integers(-4, 5, (n, 2)).astype(float) for n in (99, 59, 80))
    frozen = FrozenEstimator(IsolationForest(n_estimators=5, random_state=0).fit(X))
    ensemble = DetectorEnsemble(
        [("forest", frozen)], calibration="same", level="nominal", alpha=0.1
    ).fit(X_cal)
    p = ensemble.pvalues(X_new)[:, 0]
    calibration = frozen.estimator.score_samples(X_cal)
    expected = conformal_pvalues(frozen.estimator.score_samples(X_new), calibration)
    assert len(np.unique(p)) > 20
    assert_array_equal(p, expected)
    assert_array_equal(ensemble.levels(X_new), p)
    assert_allclose(ensemble.score_samples(X_new), np.log(p), atol=1e-3)
    assert_array_equal(ensemble.predict(X_new) == -1, reaches(p, 0.1))


def test_only_the_order_of_scores_counts():
    rng = np.random.default_rng(1)
    scores, calibration = _tied(rng, 40, 2), _tied(rng, 25, 2)
    expected = conformal_pvalues(scores, calibration)
    shuffled = rng.permuted(calibration, axis=0)
    assert_array_equal(conformal_pvalues(scores, shuffled), expected)
    bent = conformal_pvalues(np.exp(scores), np.exp(calibration))
    assert_array_equal(bent, expected)
    assert_array_equal(conformal_pvalues(scores[7:9], calibration), expected[7:9])


def test_infinite_scores():
    calibration = [-np.inf, 0.0, np.inf, np.inf]
    scores = [-np.inf, -1.0, 0.0, 9.0, np.inf]
    assert conformal_pvalues(scores, calibration).tolist() == [0.4, 0.4, 0.6, 0.6, 1.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.tolist(),
        lambda a: a.astype(np.float32),
        lambda a: (4 * a).astype(int),
        np.asfortranarray,
        pd.DataFrame,
        torch.from_numpy,
        lambda a: np.repeat(a, 2, axis=0)[::2],
    ],
    ids=["list", "float32", "int", "F", "DataFrame", "tensor", "strided"],
)
def test_kinds_of_arrays(make):
    rng = np.random.default_rng(2)
    scores, calibration = _tied(rng, 30, 4), _tied(rng, 20, 4)
    expected = conformal_pvalues(scores, calibration)
    pvalues = conformal_pvalues(make(scores), make(calibration))
    assert_array_equal(pvalues, expected, strict=True)


def test_float32_is_compared_as_what_it_is():
    score = np.float32(0.1)  # more than the float64 next to 0.1
    assert conformal_pvalues([0.1], np.array([score]))[0] == 0.5
    assert conformal_pvalues(np.array([score]), [0.1])[0] == 1.0


def test_inputs_are_not_written_to():
    rng = np.random.default_rng(3)
    scores, calibration = rng.normal(size=(9, 2)), rng.normal(size=(8, 2))
    before = scores.copy(), calibration.copy()
    scores.flags.writeable = calibration.flags.writeable = False
    conformal_pvalues(scores, calibration)
    assert_array_equal(scores, before[0])
    assert_array_equal(calibration, before[1])


def test_no_samples():
    assert conformal_pvalues(np.empty((0, 3)), np.ones((4, 3))).shape == (0, 3)
    assert conformal_pvalues([], [1.0, 2.0]).shape == (0,)


def test_objects_are_numbers():
    scores = np.array([2, 0.5, -np.inf], dtype=object)
    assert conformal_pvalues(scores, [1.0, 2.0]).tolist() == [1.0, 1 / 3, 1 / 3]
    with pytest.raises(ValueError, match="scores contains 1 NaN among 2 values"):
        conformal_pvalues(np.array([1.0, None]), [1.0, 2.0])


@pytest.mark.parametrize(
    ("scores", "calibration", "message"),
    [
        ([1, np.nan], [1, 2], "scores contains 1 NaN among 2 values; every sample"),
        ([1, 2], [[np.nan], [1]], "calibration_scores contains 1 NaN among 2 values"),
        ([1, 2], [], "calibration_scores is empty: p-values are relative"),
        ([[1, 2]], np.empty((0, 2)), "calibration_scores is empty"),
        ([1, 2], [[1], [2]], r"the same detectors.*\(2,\) and \(2, 1\)"),
        ([[1, 2]], [[1, 2, 3]], r"the same detectors.*\(1, 2\) and \(1, 3\)"),
        (3.0, [1, 2], r"scores must have the shape \(n_samples,\).*got the shape \(\)"),
        (np.ones((2, 2, 2)), [1], r"scores must have the shape.*\(2, 2, 2\)"),
        (np.ones((3, 0)), np.ones((3, 0)), r"scores must have the shape.*\(3, 0\)"),
        (["a"], [1], "scores must be an array of real numbers, got dtype <U1"),
        ([1], [1j], "calibration_scores must be an array of real numbers, got dtype c"),
    ],
)
def test_invalid_scores(scores, calibration, message):
    with pytest.raises(ValueError, match=message):
        conformal_pvalues(scores, calibration)


def test_unknown_method():
    with pytest.raises(ValueError, match=r"'method' parameter.*'ecdf'.*Got 'other'"):
        conformal_pvalues([1], [1], method="other")


# ---- what the ensemble uses


def test_columns_are_sorted_and_contiguous():
    scores = np.array([[3, 1], [1, 5], [2, 4]], dtype=np.float32)
    ranked = sorted_calibration(scores)
    assert ranked.tolist() == [[1, 1], [2, 4], [3, 5]]
    assert ranked.dtype == np.float64
    assert ranked.flags.f_contiguous
    assert scores.tolist() == [[3, 1], [1, 5], [2, 4]]


def test_counts_of_folds_add_up(monkeypatch):
    rng = np.random.default_rng(4)
    scores, calibration = _tied(rng, 300, 3), _tied(rng, 90, 3)
    whole = counts_at_most(sorted_calibration(calibration), scores)
    assert whole.dtype == np.int64
    folds = [sorted_calibration(fold) for fold in np.array_split(calibration, 4)]
    parts = [counts_at_most(fold, scores) for fold in folds]
    assert_array_equal(sum(parts), whole)
    monkeypatch.setattr(_conformal, "_FEW", 0)
    monkeypatch.setattr(_conformal, "_CHUNK", 7)
    assert_array_equal(counts_at_most(sorted_calibration(calibration), scores), whole)


@pytest.mark.parametrize("alpha", ["1/20", "1/10", "1/100", "3/10"])
def test_equal_to_the_level_rejects_whatever_rounding(alpha):
    level, n = Fraction(alpha), 359
    for m in (2, 3, 7, 18):
        for k in range(1, m + 1):
            counts = np.arange(1, n + 2)
            reached = reaches(m * (counts / (n + 1)) / k, float(level))
            exact = [Fraction(m * int(c), k * (n + 1)) <= level for c in counts]
            assert_array_equal(reached, exact)


# ---- how many calibration scores


@looped("alpha", ["1/20", "9/1000", "1/7", "999/1000", "1/1000"])
@looped("m", [1, 2, 3, 7, 9, 18, 1000])
def test_smallest_number_of_calibration_scores(m, alpha):
    level = Fraction(alpha)
    n = min_calibration_size(m, float(level))
    assert Fraction(m, n + 1) <= level
    assert n == 1 or Fraction(m, n) > level


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.05), r"'n_detectors' .* must be an int in the range \[1, inf\)"),
        ((7, 0.0), r"'alpha' .* range \(0\.?0?, 1\.?0?\)"),
        ((7, 1.0), r"'alpha' .* range \(0\.?0?, 1\.?0?\)"),
        ((2.5, 0.1), "'n_detectors' .* must be an int"),
    ],
)
def test_invalid_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        min_calibration_size(*arguments)


@pytest.mark.parametrize("m", [7, 18])
@pytest.mark.parametrize(
    "combiner", [Bonferroni(), BenjaminiHochberg(), DOSStorey(), Storey()], ids=repr
)
def test_warning_below_the_smallest_number(combiner, m):
    n = min_calibration_size(m, 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_few(combiner, n, m, 0.05)
    name = type(combiner).__name__
    adaptive = hasattr(combiner, "pi0")
    times = " times its estimate of pi0," if adaptive else ""
    unless = ", unless that estimate is small" if adaptive else ""
    message = (
        f"With {n - 1} calibration samples the smallest p-value is 1/{n}, which {name} "
        rf"multiplies by {m}{times} if only one of {m} detectors rejects: .* not "
        rf"rejected at the level 0\.05.* on its own{unless}\. Calibrate on at least "
        rf"{n} samples, or combine fewer detectors"
    )
    with pytest.warns(SkoodWarning, match=message):
        warn_if_few(combiner, n - 1, m, 0.05)


def test_warning_says_what_is_true():
    # one detector rejects as much as it can, and the others not at all
    for combiner in (
        Naive(),
        Bonferroni(),
        BenjaminiYekutieli(),
        DOSStorey(),
        Storey(),
    ):
        for n in (5, 18, 19, 20, 138, 139, 362, 363):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warn_if_few(combiner, n, 7, 0.05)
            q = combiner.statistic([[1 / (n + 1)] + [1.0] * 6])[0]
            assert len(caught) == (not reaches(q, 0.05))


@pytest.mark.parametrize("combiner", [Vote(), Fisher(), object()], ids=type)
def test_no_warning_where_nothing_is_multiplied(combiner):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_few(combiner, 1, 100, 0.01)
