"""Tests of activation shaping."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest

from skood.rectifiers import ASH
from tests._loops import looped


def _naive(Z, percentile, variant):
    """One row at a time: stable sort, largest first, so ties keep the first index."""
    out = []
    for row in Z.astype(np.float64):
        d = len(row)
        k = max(1, d - round(d * percentile / 100))
        order = sorted(range(d), key=lambda j: (-row[j], j))
        remaining = [j for j in order[:k] if row[j] > 0]
        s1, s2 = sum(row), sum(row[j] for j in remaining)
        shaped = [0.0] * d
        for j in remaining:
            shaped[j] = {
                "s": row[j] * math.exp(s1 / s2),
                "b": s1 / len(remaining),
                "p": row[j],
            }[variant]
        out.append(shaped)
    return np.array(out)


def _features(kind, dtype):
    rng = np.random.default_rng(0)
    return {
        "positive": rng.exponential(size=(50, 21)),
        "relu": np.maximum(rng.normal(size=(50, 21)), 0),
        "ties": rng.integers(0, 4, size=(50, 21)),
        "constant": np.full((3, 21), 0.3),
        "zeros": np.zeros((3, 21)),
        "one feature": rng.exponential(size=(5, 1)),
        "two features": rng.exponential(size=(5, 2)),
        "tiny and huge": np.exp(rng.uniform(-60, 60, size=(50, 21))),
    }[kind].astype(dtype)


@looped("variant", ["s", "b", "p"])
@looped("percentile", [0, 10, 65, 90, 99.9])
@looped(
    "kind",
    ["positive", "relu", "ties", "constant", "zeros", "one feature", "two features"],
)
@looped("dtype", [np.float32, np.float64])
def test_equals_naive_loop(variant, percentile, kind, dtype):
    Z = _features(kind, dtype)
    got = ASH(percentile=percentile, variant=variant).fit_transform(Z)
    rtol = 3e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(got, _naive(Z, percentile, variant), rtol=rtol)


def test_defaults_are_the_authors():
    Z = _features("positive", np.float64)
    np.testing.assert_allclose(ASH().fit_transform(Z), _naive(Z, 65, "s"), rtol=1e-12)


@pytest.mark.parametrize("kind", ["positive", "ties"])
@pytest.mark.parametrize("percentile, k", [(0, 21), (65, 7), (90, 2), (99.9, 1)])
def test_number_of_survivors(kind, percentile, k):
    """Exactly k, also of equal features, unless fewer are positive."""
    Z = _features(kind, np.float64)
    out = ASH(percentile=percentile, variant="p").fit_transform(Z)
    expected = np.minimum(k, np.count_nonzero(Z, axis=1))
    np.testing.assert_array_equal(np.count_nonzero(out, axis=1), expected)


def test_first_of_equal_features_survive():
    Z = [[1.0, 2.0, 2.0, 2.0, 0.0, 3.0]]
    out = ASH(percentile=50, variant="p").fit_transform(Z)
    np.testing.assert_array_equal(out, [[0, 2, 2, 0, 0, 3]])


def test_zeros_do_not_survive():
    """Two of six are positive; three would survive."""
    Z = [[0.0, 4.0, 0.0, 2.0, 0.0, 0.0]]
    out = ASH(percentile=50, variant="b").fit_transform(Z)
    np.testing.assert_array_equal(out, [[0, 3, 0, 3, 0, 0]])


@pytest.mark.parametrize("kind", ["positive", "relu", "ties"])
def test_binarizing_keeps_the_sum(kind):
    Z = _features(kind, np.float64)
    out = ASH(percentile=80, variant="b").fit_transform(Z)
    np.testing.assert_allclose(out.sum(axis=1), Z.sum(axis=1), rtol=1e-12)


def test_scale_does_not_matter_to_the_factor():
    Z = _features("positive", np.float64)
    ash = ASH().fit(Z)
    np.testing.assert_allclose(ash.transform(8 * Z), 8 * ash.transform(Z), rtol=1e-12)


def test_nothing_pruned():
    Z = _features("positive", np.float64)
    out = ASH(percentile=0).fit_transform(Z)
    np.testing.assert_allclose(out, math.e * Z, rtol=1e-12)
    plain = ASH(percentile=0, variant="p").fit_transform(Z)
    np.testing.assert_array_equal(plain, Z)


def test_features_of_many_magnitudes():
    Z = _features("tiny and huge", np.float64)
    np.testing.assert_allclose(ASH().fit_transform(Z), _naive(Z, 65, "s"), rtol=1e-12)


@pytest.mark.parametrize("variant", ["s", "b", "p"])
def test_negative_features(variant):
    Z = _features("positive", np.float64)
    ash = ASH(variant=variant).fit(Z)
    Z[3, 4] = -0.25
    message = "Negative values in data passed to ASH, the lowest -0.25: .*after a ReLU"
    for method in (ash.transform, ash.fit):
        with pytest.raises(ValueError, match=message):
            method(Z)


def test_overflow():
    """One of a thousand equal features is the thousandth part of their sum."""
    Z = np.ones((2, 1000), dtype=np.float32)
    message = "ASH scales a sample by inf, which overflows float32. Keep more entries"
    with pytest.raises(ValueError, match=message):
        ASH(percentile=99.95).fit_transform(Z)
    with pytest.raises(ValueError, match="overflows float32"):
        ASH(percentile=65).fit_transform(np.full((2, 20), 1e37, dtype=np.float32))
    assert np.isfinite(ASH(percentile=99).fit_transform(Z.astype(np.float64))).all()
