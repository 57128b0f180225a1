"""Checked numbers of the combiners that need no simulation; the names are their ids."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    HarmonicMean,
    Naive,
    Storey,
    Vote,
    conformal_pvalues,
    min_calibration_size,
)
from skood.metrics import auroc, fpr_at_tpr
from skood.stats._ranks import change_point_range

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

# p, d(2), d(3), k, pi0, q-values in ascending order, Simes' statistic, number of
# selected members at 0.05, equation 15 as it is printed
DSDE = {
    "B-dsde-typical": (
        [0.5, 0.001, 0.7, 0.03, 0.9, 0.008, 0.2],
        (0.092, 0.21333333333333335),
        3,
        0.5891016200294551,
        [
            0.004123711340206186,
            0.016494845360824743,
            0.041237113402061855,
            0.20618556701030927,
            0.41237113402061853,
            0.48109965635738833,
            0.5301914580265096,
        ],
        0.007,
        3,
        0.5542857142857143,
    ),
    "B-dsde-rescued_by_pi0": (
        [0.02, 0.024, 0.026, 0.5, 0.6, 0.8, 0.9],
        (0.226, 0.24933333333333332),
        3,
        0.5866823115283074,
        [
            0.03559206023271732,
            0.03559206023271732,
            0.03559206023271732,
            0.4928131416837782,
            0.4928131416837782,
            0.5280140803754767,
            0.5280140803754767,
        ],
        0.06066666666666667,
        3,
        0.5565714285714286,
    ),
    "B-dsde-no_positive_dos": (
        [0.1, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25],
        (-0.09, -0.06),
        0,
        1.0,
        [0.25] * 7,
        0.25,
        0,
        None,
    ),
    "B-dsde-ties_all_equal": (
        [0.3] * 7,
        (-0.15, -0.1),
        0,
        1.0,
        [0.3] * 7,
        0.3,
        0,
        None,
    ),
    "B-dsde-zeros": ([0.0] * 7, (0.0, 0.0), 0, 1.0, [0.0] * 7, 0.0, 7, None),
    "B-dsde-ones": (
        [1.0] * 7,
        (-0.5, -0.3333333333333333),
        0,
        1.0,
        [1.0] * 7,
        1.0,
        0,
        None,
    ),
}


@pytest.mark.parametrize("name", DSDE)
def test_dsde(name):
    p, d, k, pi0, q_values, simes, n_selected, product = DSDE[name]
    for combiner in (DOSStorey(beta=1, c_m=2 / 7), DOSStorey()):
        actual = combiner.dos([p])[0]
        assert np.isnan(actual[0])
        assert actual[1:] == pytest.approx(d, abs=1e-12)
        assert combiner.change_point([p]).tolist() == [k]
        assert combiner.pi0([p]) == pytest.approx(pi0, abs=1e-12)
        q = combiner.statistic([p])
        assert q == pytest.approx(q_values[0], abs=1e-12)
        assert (q[0] <= 0.05) == (n_selected > 0)
        assert combiner.selected([p], 0.05).sum() == n_selected
        assert BenjaminiHochberg().statistic([p]) == pytest.approx(simes, abs=1e-12)
        for level in q_values:  # the members up to which q is at most the level
            count = sum(each <= level for each in q_values)
            assert combiner.selected([p], level).sum() == count
            fewer = combiner.selected([p], level * (1 - 1e-9)).sum()
            assert fewer < count or level == 0
        if product is not None:
            printed = (1 - k / 7) * (1 - sorted(p)[k - 1])
            assert printed == pytest.approx(product, abs=1e-12)


def test_index_ranges():
    # B-cm-range
    pairs = [(7, 2 / 7), (18, 2 / 15), (15, 2 / 15), (6, 1 / 3), (2, 1 / 2), (4, 1 / 4)]
    ranges = [(2, 3), (3, 9), (2, 7), (2, 3), (1, 1), (1, 2)]
    assert [change_point_range(*pair) for pair in pairs] == ranges
    for (m, c_m), (first, last) in zip(pairs, ranges, strict=True):
        looked_at = ~np.isnan(DOSStorey(c_m=c_m).dos(np.full((1, m), 0.5))[0])
        assert (np.flatnonzero(looked_at) + 1).tolist() == [*range(first, last + 1)]
    for m, c_m in ((1, 0.5), (7, 0.5), (5, 0.45)):
        with pytest.raises(ValueError, match="change point"):
            DOSStorey(c_m=c_m).statistic(np.full((1, m), 0.5))


def test_conformal_pvalues():
    # B-conformal-p
    calibration, scores = [1, 2, 2, 3, 5], [0, 1, 2, 2.5, 5, 6]
    assert conformal_pvalues(scores, calibration) == pytest.approx(
        [1 / 6, 1 / 3, 2 / 3, 2 / 3, 1, 1], abs=1e-12
    )
    assert conformal_pvalues(scores, calibration, method="ecdf") == pytest.approx(
        [0, 0.2, 0.6, 0.6, 1, 1], abs=1e-12
    )


def test_resolution():
    # B-resolution
    assert [min_calibration_size(m, 0.05) for m in (7, 18)] == [139, 359]


def test_ranks_that_are_the_same():
    # B-auc-identities, and the same of the FPR at a TPR
    rng = np.random.default_rng(0)
    P, y = rng.random((3000, 7)), np.repeat([0, -1], 1500)
    P[y == -1, :3] **= 4
    ranked = np.sort(P, axis=1)

    def quality(q):
        return auroc(y, q), fpr_at_tpr(y, q)

    naive = quality(Naive().statistic(P))
    assert naive == quality(Bonferroni().statistic(P)) == quality(ranked[:, 0])
    bh = quality(BenjaminiHochberg().statistic(P))
    assert bh == quality(BenjaminiYekutieli().statistic(P))
    for share in (0.5, 0.6, 1.0):
        position = math.ceil(7 * share)
        vote = quality(Vote(share).statistic(P))
        assert vote == quality(ranked[:, position - 1])
    factor_free = quality(1 / np.sum(1 / ranked, axis=1))
    assert quality(HarmonicMean().statistic(P)) == factor_free
    different = {naive, bh, vote, factor_free, quality(Storey().statistic(P))}
    assert len(different) == 5
    assert all(0.55 < each[0] < 0.98 for each in different)
