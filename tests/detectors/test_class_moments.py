"""Tests of the moments of classes of rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.sparse import issparse

from skood.detectors._common._class_moments import (
    ClassMoments,
    class_sums,
    is_constant,
    offset_sums,
)
from skood.detectors._common._partial_fit import on_host
from skood.utils._array_api import to_host
from tests._loops import looped


def _data(dtype=np.float64):
    rng = np.random.default_rng(0)
    y = rng.choice(["p", "q", "r"], size=40)
    return (rng.normal(size=(40, 3)) + 5).astype(dtype), y


def _naive(X, y):
    """Counts, means and scatters by loops."""
    means, scatters = {}, {}
    for label in sorted(set(y)):
        samples = [
            x for x, k in zip(np.asarray(X, np.float64), y, strict=True) if k == label
        ]
        means[label] = sum(samples) / len(samples)
        scatters[label] = sum(
            np.outer(x - means[label], x - means[label]) for x in samples
        )
    counts = [np.sum(y == label) for label in means]
    return counts, np.array(list(means.values())), np.array(list(scatters.values()))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_class_sums(kind):
    X, y = _data()
    samples = torch.from_numpy(X) if kind == "torch" else X
    classes, counts, sums, add = class_sums(samples, y)
    assert classes.tolist() == ["p", "q", "r"]
    assert counts.tolist() == [np.sum(y == k) for k in "pqr"]
    np.testing.assert_allclose(sums, [X[y == k].sum(axis=0) for k in "pqr"], rtol=1e-12)
    np.testing.assert_array_equal(add(samples), sums)
    np.testing.assert_array_equal(add(samples - samples + 2.0)[:, 0], 2.0 * counts)
    assert type(sums) is type(samples)
    classes, counts, sums, _ = class_sums(samples, None)
    assert classes.tolist() == [0] and counts.tolist() == [40]
    np.testing.assert_allclose(sums, X.sum(axis=0)[None], rtol=1e-12)


@looped("per_class", [False, True])
@looped("dtype", [np.float32, np.float64])
@looped("kind", ["numpy", "torch"])
@looped("cuts", [[], [1], [4, 5, 30], list(range(1, 40))])
def test_equal_naive_loops_however_cut(per_class, dtype, kind, cuts):
    X, y = _data(dtype)
    moments = ClassMoments(per_class)
    for samples, labels in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        moments = moments.updated(
            torch.from_numpy(samples) if kind == "torch" else samples, labels
        )
    counts, means, scatters = _naive(X, y)
    assert isinstance(moments.scatter, np.ndarray) == (kind == "numpy")
    moments = on_host(moments)
    assert moments.classes.tolist() == ["p", "q", "r"]
    np.testing.assert_array_equal(moments.counts, counts)
    np.testing.assert_allclose(moments.means, means, rtol=1e-12)
    expected = scatters if per_class else scatters.sum(axis=0)
    np.testing.assert_allclose(moments.scatter, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moments.within(), scatters.sum(axis=0), rtol=1e-10)
    mean, total = moments.total()
    X = X.astype(np.float64)
    np.testing.assert_allclose(moments.origin + mean, X.mean(axis=0), rtol=1e-12)
    gaps = X - X.mean(axis=0)
    np.testing.assert_allclose(total, gaps.T @ gaps, rtol=1e-10, atol=1e-12)
    for array in (moments.counts, moments.means, moments.scatter, mean):
        assert isinstance(array, np.ndarray) and array.dtype == np.float64


def test_no_cancellation_far_from_the_origin():
    """At 1e8 a difference of sums of squares has lost all digits."""
    rng = np.random.default_rng(0)
    X = rng.integers(-50, 50, size=60) + 100_000_000
    exact = [Fraction(int(x)) for x in X]
    mean = sum(exact) / len(exact)
    scatter = float(sum((x - mean) ** 2 for x in exact))
    moments = ClassMoments()
    for block in np.split(X.astype(np.float64)[:, None], [7, 8, 30]):
        moments = moments.updated(block, None)
    assert moments.scatter[0, 0] == pytest.approx(scatter, rel=1e-9)
    naive = float(np.sum(X.astype(float) ** 2) - np.sum(X.astype(float)) ** 2 / len(X))
    assert abs(naive / scatter - 1) > 1e-9


@pytest.mark.parametrize("per_class", [False, True])
def test_adding_samples_leaves_the_old_moments_as_they_are(per_class):
    X, y = _data()
    moments = ClassMoments(per_class).updated(X[:20], y[:20])
    before = [
        np.copy(getattr(moments, name)) for name in ("counts", "means", "scatter")
    ]
    moments.updated(X[20:], y[20:])
    moments.within(), moments.total()
    after = [getattr(moments, name) for name in ("counts", "means", "scatter")]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@looped("per_class", [False, True])
@looped("value", [0.1, 1000.1, 1e6 + 0.1])
@looped("cuts", [[], [3], [1, 7000, 15_000]])
def test_constants_stay_constant_however_many(per_class, value, cuts):
    """Of all rows, and of each class: their sums round, their moments do not."""
    y = np.arange(30_000) % 3
    X = np.stack([np.full(len(y), value), value * (1 + y) / 3], axis=1)
    moments = ClassMoments(per_class)
    for samples, labels in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        moments = moments.updated(samples, labels)
    np.testing.assert_allclose(moments.means, X[:3], rtol=4e-16)
    variances = np.diag(moments.within()) / len(y)
    assert variances[0] == 0
    assert is_constant(variances, moments.means.max(axis=0)).all()


def test_means_have_a_single_rounding_error():
    rng = np.random.default_rng(0)
    X = 1e6 + rng.normal(size=20_000) * 1e-3
    exact = sum(Fraction(x) for x in X) / len(X)
    for cuts in ([], [100, 3000, 12_000]):
        moments = ClassMoments()
        for samples in np.split(X[:, None], cuts):
            moments = moments.updated(samples, None)
        assert moments.origin[0] == X[0]
        offset = float(exact - Fraction(X[0]))
        assert moments.offsets[0, 0] == pytest.approx(offset, rel=1e-12)
        assert moments.means[0, 0] == pytest.approx(float(exact), rel=2.3e-16)


def test_is_constant():
    eps = np.finfo(np.float64).eps
    means = np.array([1e6, -1e6, 1e6, 0.0, 0.0])
    deviations = np.array([4 * eps * 1e6, 3 * eps * 1e6, 5 * eps * 1e6, 0, 1e-150])
    expected = [True, True, False, True, False]
    assert is_constant(deviations**2, means).tolist() == expected
    assert is_constant(np.array(1e-308), 0.0)  # too small to be divided by


def test_moments_that_may_be_consumed():
    """They save a copy, and give the same."""
    X, y = _data()
    first = ClassMoments(per_class=True).updated(X[:20], y[:20])
    expected = first.updated(X[20:], y[20:])
    scatter = first.scatter
    moments = first.updated(X[20:], y[20:], consume=True)
    assert moments.scatter is scatter
    np.testing.assert_array_equal(moments.scatter, expected.scatter)
    np.testing.assert_array_equal(moments.means, expected.means)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_differences_are_those_of_fractions(kind, dtype):
    """Whose digits a sum of the rows would have lost."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 2)), rng.choice(["p", "q"], size=3000)
    X = (1e6 + X * (1e-3 if dtype is np.float64 else 10)).astype(dtype)
    origin = X[0].astype(np.float64)
    samples = torch.from_numpy(X) if kind == "torch" else X
    classes, counts, sums = offset_sums(samples, origin, y)
    assert classes.tolist() == ["p", "q"]
    assert counts.tolist() == [np.sum(y == "p"), np.sum(y == "q")]
    sums = to_host(sums)
    assert sums.dtype == np.float64
    for k, label in enumerate(classes):
        for j in range(2):
            values = X[y == label, j]
            exact = sum(Fraction(float(v)) - Fraction(origin[j]) for v in values)
            assert sums[k, j] == pytest.approx(float(exact), rel=1e-12)
    _, _, (total,) = offset_sums(samples, origin, None)
    np.testing.assert_allclose(to_host(total), sums.sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize("n_classes", [16, 17, 40])
def test_sums_of_many_classes(n_classes):
    """Of few classes by a dense product, of many by a sparse one."""
    rng = np.random.default_rng(0)
    labels = np.array([f"class {k:02d}" for k in rng.integers(n_classes, size=500)])
    samples = rng.normal(size=(500, 3))
    classes, counts, sums, add = class_sums(samples, labels)
    assert issparse(add.__self__) == (n_classes > 16)
    for k, label in enumerate(classes):
        assert counts[k] == np.sum(labels == label)
        np.testing.assert_allclose(sums[k], samples[labels == label].sum(axis=0))
    np.testing.assert_allclose(add(samples), sums)
    tensor = class_sums(torch.from_numpy(samples), labels)
    np.testing.assert_allclose(tensor[2].numpy(), sums)
