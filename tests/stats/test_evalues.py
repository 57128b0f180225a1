"""e_bh: exact fractions, and the selections that one split has by its p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from fractions import Fraction

import numpy as np
from numpy.testing import assert_array_equal

from skood.selection import StepUp, evalue_selection
from skood.stats._evalues import e_bh


def test_e_bh_by_exact_fractions():
    """E-values of selections are fractions, and often equal their bound exactly."""
    rng, n_equal = np.random.default_rng(0), 0
    for _ in range(300):
        K, denominator = int(rng.integers(1, 12)), int(rng.integers(2, 30))
        fdr = Fraction(int(rng.integers(1, denominator)), denominator)
        t = rng.integers(1, 8, K)
        exact = [Fraction(int(rng.integers(1, 80)), int(value)) for value in t]
        if rng.random() < 0.5:  # a mean over splits that equals its bound
            k = int(rng.integers(1, K + 1))
            exact[:k] = [K / (fdr * k)] * k
        ordered = sorted(exact, reverse=True)
        reached = [k for k in range(1, K + 1) if fdr * k * ordered[k - 1] >= K]
        n_equal += any(fdr * k * ordered[k - 1] == K for k in range(1, K + 1))
        least = ordered[max(reached) - 1] if reached else np.inf
        rounded = [
            np.mean([float(value * i / 6) for i in (1, 4, 13)]) for value in exact
        ]
        assert_array_equal(
            e_bh(rounded, float(fdr)), [value >= least for value in exact]
        )
    assert n_equal > 100


def test_equals_benjamini_hochberg_for_one_split():
    """At the same level, e-values of a selection reach the bound of e-BH exactly."""
    rng, sizes = np.random.default_rng(0), []
    for n, m, alpha in ((19, 4, 0.2), (99, 30, 0.1), (499, 200, 0.05), (58, 7, 0.3)):
        for _ in range(30):
            ranks = np.where(rng.random(m) < 0.5, 1, rng.integers(1, n + 2, m))
            p = ranks / (n + 1)
            selected = evalue_selection(p[None], n, alpha, alpha_bh=alpha)
            assert_array_equal(selected, StepUp().selected(p, n, alpha))
            sizes.append(selected.sum())
    assert np.mean(np.array(sizes) > 0) > 0.5
