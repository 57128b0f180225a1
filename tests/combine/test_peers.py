"""Combiners against the same tests of other libraries."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    Fisher,
    Stouffer,
)


@pytest.fixture(params=[1, 2, 7, 18])
def P(request):
    rng = np.random.default_rng(request.param)
    return np.concatenate(
        [
            rng.random((60, request.param)) ** 3,
            rng.integers(1, 140, (60, request.param)) / 140,
        ]
    )


@pytest.mark.parametrize(
    ("combiner", "method"), [(BenjaminiHochberg(), "bh"), (BenjaminiYekutieli(), "by")]
)
def test_scipy_false_discovery_control(combiner, method, P):
    q = np.minimum(combiner.statistic(P), 1)
    for row, statistic, selected in zip(P, q, combiner.selected(P, 0.2), strict=True):
        adjusted = stats.false_discovery_control(row, method=method)
        assert statistic == pytest.approx(adjusted.min(), rel=1e-12)
        assert selected.tolist() == (adjusted <= 0.2 + 1e-12).tolist()


@pytest.mark.parametrize(
    ("combiner", "method"), [(Fisher(), "fisher"), (Stouffer(), "stouffer")]
)
def test_scipy_combine_pvalues(combiner, method, P):
    expected = [stats.combine_pvalues(row, method=method)[1] for row in P]
    assert_allclose(combiner.statistic(P), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("combiner", "method"),
    [
        (BenjaminiHochberg(), "fdr_bh"),
        (BenjaminiYekutieli(), "fdr_by"),
        (Bonferroni(), "bonferroni"),
    ],
)
def test_statsmodels(combiner, method, P):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    q = np.minimum(combiner.statistic(P), 1)
    for row, statistic, selected in zip(P, q, combiner.selected(P, 0.2), strict=True):
        _, adjusted, _, _ = multitest.multipletests(row, 0.2, method)
        assert statistic == pytest.approx(adjusted.min(), rel=1e-12)
        assert selected.tolist() == (adjusted <= 0.2 + 1e-12).tolist()
