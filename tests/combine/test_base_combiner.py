"""Tests of what all combiners share: input, chunks, levels; and of one's own."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone

from skood.combine import (
    BaseCombiner,
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Vote,
)
from skood.combine import _base_combiner as _base
from tests._loops import looped
from tests.combine._combiners import ALL, STEP_UP, mixed_pvalues

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

each = pytest.mark.parametrize("combiner", ALL, ids=repr)


@each
def test_order_of_samples_columns_and_chunks_does_not_matter(combiner, monkeypatch):
    rng = np.random.default_rng(0)
    P = mixed_pvalues(rng, 100, 7)
    q, selected = combiner.statistic(P), combiner.selected(P)
    for samples in ([0], [99], [3, 60], slice(None, None, -1)):
        assert_array_equal(combiner.statistic(P[samples]), q[samples])
        assert_array_equal(combiner.selected(P[samples]), selected[samples])
    order = rng.permutation(7)
    assert_array_equal(combiner.statistic(P[:, order]), q)
    assert_array_equal(combiner.selected(P[:, order]), selected[:, order])
    monkeypatch.setattr(_base, "_BUDGET", 3 * 7 * 32)
    assert_array_equal(combiner.statistic(P), q, strict=True)
    assert_array_equal(combiner.selected(P), selected, strict=True)


@each
def test_threads_do_not_matter(combiner, monkeypatch):
    P = mixed_pvalues(np.random.default_rng(0), 400, 7)
    q, selected = combiner.statistic(P), combiner.selected(P)
    monkeypatch.setattr(_base, "_BUDGET", 16 * 7 * 32)
    monkeypatch.setattr("skood.utils._parallel._n_threads", lambda: 3)
    assert_array_equal(combiner.statistic(P), q)
    assert_array_equal(combiner.selected(P), selected)


@each
@looped(
    "make",
    [
        lambda P: P.tolist(),
        np.asfortranarray,
        lambda P: P.astype(np.longdouble),
        lambda P: P.astype(object),
        pd.DataFrame,
        torch.from_numpy,
    ],
)
def test_kinds_of_arrays(combiner, make):
    P = mixed_pvalues(np.random.default_rng(1), 40, 5)
    q, selected = combiner.statistic(make(P)), combiner.selected(make(P))
    assert_array_equal(q, combiner.statistic(P), strict=True)
    assert_array_equal(selected, combiner.selected(P), strict=True)


@each
def test_float32_is_taken_for_what_it_is(combiner):
    P = mixed_pvalues(np.random.default_rng(1), 80, 5).astype(np.float32)
    double = P.astype(np.float64)
    q = combiner.statistic(P)
    assert_array_equal(q, combiner.statistic(double), strict=True)
    assert_array_equal(combiner.selected(P), combiner.selected(double))


@each
def test_integer_and_signed_pvalues_at_the_ends(combiner):
    P = np.random.default_rng(1).integers(0, 2, (40, 5))
    for other in (P.astype(float), P.astype(bool), np.where(P == 0, -0.0, 1.0)):
        q = combiner.statistic(other)
        assert_array_equal(q, combiner.statistic(P))
        assert not np.isnan(q).any()
        assert_array_equal(combiner.selected(other), combiner.selected(P))


@each
def test_input_is_not_written_to(combiner):
    P = mixed_pvalues(np.random.default_rng(2), 40, 6)
    before = P.copy()
    P.flags.writeable = False
    combiner.statistic(P)
    combiner.selected(P)
    assert_array_equal(P, before)


@each
def test_no_samples(combiner):
    assert combiner.statistic(np.empty((0, 5))).shape == (0,)
    assert combiner.selected(np.empty((0, 5))).shape == (0, 5)


@each
def test_same_pvalues_are_selected_together(combiner):
    P = np.random.default_rng(3).integers(0, 4, (300, 7)) / 60
    selected = combiner.selected(P, 0.04)
    for row, chosen in zip(P, selected, strict=True):
        if chosen.any():
            assert_array_equal(chosen, row <= row[chosen].max())
    assert 0 < selected.any(axis=1).mean()


@each
def test_a_larger_level_selects_more(combiner):
    P = mixed_pvalues(np.random.default_rng(4), 400, 7)
    counts = [combiner.selected(P, a).sum(axis=1) for a in (0, 0.01, 0.1, 0.5, 1, 9.0)]
    assert (np.diff(counts, axis=0) >= 0).all()
    assert counts[0].sum() < counts[1].sum() < counts[2].sum()
    if not isinstance(combiner, (BenjaminiYekutieli, HarmonicMean)):
        assert (counts[-1] == 7).all()


@each
def test_single_detector(combiner):
    if isinstance(combiner, DOSStorey):
        with pytest.raises(ValueError, match="needs at least 2 detectors"):
            combiner.statistic([[0.5]])
        return
    p = np.array([[0.0], [1e-300], [0.05], [0.3], [0.7], [1.0]])
    if isinstance(combiner, Storey):
        pi0 = np.minimum(
            1, ((p > combiner.lam) + combiner.plus_one) / (1 - combiner.lam)
        )
        assert_allclose(combiner.statistic(p), (pi0 * p)[:, 0])
        return
    assert_allclose(combiner.statistic(p), p[:, 0], rtol=1e-12)
    expected = [[True]] * 3 + [[False]] * 3
    assert combiner.selected(p, 0.05).tolist() == expected


@each
def test_no_state(combiner):
    P = mixed_pvalues(np.random.default_rng(5), 40, 5)
    before = vars(combiner).copy()
    q = combiner.statistic(P)
    assert vars(combiner) == before == combiner.get_params()
    for copy in (clone(combiner), pickle.loads(pickle.dumps(combiner))):
        assert repr(copy) == repr(combiner)
        assert_array_equal(copy.statistic(P), q)


@pytest.mark.parametrize(
    ("combiner", "params"),
    [
        (DOSStorey(), {"beta": 1.0, "c_m": None, "fallback": "bh"}),
        (Storey(), {"lam": 0.5, "plus_one": False}),
        (Vote(), {"fraction": 0.5}),
        (BenjaminiHochberg(), {}),
    ],
)
def test_parameters(combiner, params):
    assert combiner.get_params() == params


@pytest.mark.parametrize("m", [1, 2, 7, 18])
def test_corrections(m):
    # the statistic of one small p-value among ones
    P = np.array([[1e-9] + [1.0] * (m - 1)])
    for combiner in (*STEP_UP, Bonferroni(), Naive(), DOSStorey(c_m=1 / 18)):
        if m > 1 or not isinstance(combiner, DOSStorey):
            factor = combiner._correction(m)
            assert type(factor) is float
            assert combiner.statistic(P)[0] == pytest.approx(1e-9 * factor, rel=1e-8)
    if m > 3:
        assert DOSStorey()._correction(m) == Storey()._correction(m) == m
    assert Vote()._correction(m) is Fisher()._correction(m) is None


# ---- errors


@pytest.mark.parametrize("combiner", [DOSStorey(), Vote(), Fisher()], ids=repr)
@looped(
    ("P", "message"),
    [
        ([0.1, 0.2], r"got \(2,\). Pass a row as P.reshape\(1, -1\), a column as"),
        (0.3, r"P must have the shape \(n_samples, n_detectors\).*, got \(\)"),
        (np.ones((2, 2, 2)), r"got \(2, 2, 2\)"),
        (np.ones((3, 0)), r"one column for each detector, got the shape \(3, 0\)"),
        ([[0.1, np.nan]], "P has 1 NaN among 2 values. Leave the detectors, or"),
        (
            [[0.1, -0.5]],
            r"in \[0, 1\], got values from -0.5 to 0.1; skood.combine.conf",
        ),
        ([[0.1, 3], [0, 0]], r"in \[0, 1\], got values from 0 to 3"),
        ([[0.1, 1 + 1e-9]], r"in \[0, 1\], got values from 0.1 to 1"),
        ([[0.1, np.inf]], r"got values from 0.1 to inf"),
        ([["a", "b"]], "P must be numbers, got an array of dtype <U1"),
        ([[1j, 0]], "P must be numbers, got an array of dtype complex128"),
    ],
)
def test_invalid_pvalues(combiner, P, message):
    for method in (combiner.statistic, combiner.selected):
        with pytest.raises(ValueError, match=message):
            method(P)


def test_sparse_pvalues():
    message = "P must be a dense array, got a sparse matrix"
    with pytest.raises(TypeError, match=message):
        Bonferroni().statistic(csr_array((2, 3)))


@pytest.mark.parametrize(
    ("alpha", "error", "message"),
    [
        ("0.1", TypeError, "alpha must be a number, got '0.1'"),
        (True, TypeError, "alpha must be a number, got True"),
        (None, TypeError, "alpha must be a number, got None"),
        (-0.1, ValueError, "alpha must not be negative, got -0.1"),
        (np.nan, ValueError, "alpha must not be negative, got nan"),
    ],
)
def test_invalid_level(alpha, error, message):
    with pytest.raises(error, match=message):
        Bonferroni().selected([[0.1]], alpha)


# ---- one's own


class Median(BaseCombiner):
    """The upper median p-value, of at least `least` detectors."""

    def __init__(self, least=3):
        self.least = least

    def _check_members(self, m):
        if m < self.least:
            raise ValueError(f"Median needs {self.least} detectors, got {m}.")

    def _statistic(self, p):
        return p[len(p) // 2]

    def _n_selected(self, p, alpha):
        return np.where(self._statistic(p) <= alpha, len(p) // 2 + 1, 0)


def test_custom_combiner():
    P = np.random.default_rng(0).random((50, 5))
    q = Median().statistic(P)
    assert_array_equal(q, np.median(P, axis=1))
    assert_array_equal(
        Median().selected(P, 0.4), (P <= q[:, None]) & (q[:, None] <= 0.4)
    )
    assert Median()._correction(5) is None
    with pytest.raises(ValueError, match="Median needs 9 detectors, got 5"):
        clone(Median(9)).statistic(P)


class Fixed(BaseCombiner):
    """Selects a fixed number, and has a list of statistics."""

    def __init__(self, number):
        self.number = number

    def _statistic(self, p):
        return p[0].tolist()

    def _n_selected(self, p, alpha):
        return [self.number] * p.shape[1]


def test_custom_combiner_that_returns_lists():
    P = [[0.0, 0.5, 0.7], [0.3, 0.2, 0.2]]
    assert Fixed(0).statistic(P).tolist() == [0.0, 0.2]
    assert not Fixed(0).selected(P).any()  # nor the p-value of 0
    assert Fixed(1).selected(P).tolist() == [[True, False, False], [False, True, True]]
    with pytest.raises(ValueError, match="a number from 0 to 3 for each of 2 samples"):
        Fixed(4).selected(P)


def test_long_doubles_are_compared_as_doubles():
    third = np.longdouble(1) / 3
    P = np.array([[third, third / 2]])
    assert Fixed(2).selected(P).all()


def test_what_a_subclass_must_have():
    class Half(BaseCombiner):
        def _statistic(self, p):
            return p[0]

    with pytest.raises(TypeError, match="_n_selected"):
        Half()
