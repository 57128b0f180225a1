"""Table 1 of the paper, corrected: all numbers, of densities and of samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from skood.datasets import make_reject_option_1d
from skood.exceptions import InfeasibleError
from skood.metrics import aupr_in, auroc, oscr, selective_risk_at
from skood.rejection import (
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    PlugInCost,
    solve_finite,
)
from tests.decision._scores import COST, DOUBLE, solved

TPR_FPR = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
PRECISION_RECALL = BoundedPrecisionRecall(
    precision_min=0.9, recall_min=0.7, ood_prior=0.25
)
COSTS = {"reject_id": 0.3, "accept_ood": 1.0, "reject_ood": 0.0, "ood_prior": 0.25}
ID_ERROR = 0.20451754457302518

# A-dens-2.0-0.2-0.25 and A-dens-3.0-0.2-0.25, by the mean of the OOD density. For the
# scores g (A), r + 0.2 g (B) and r (C): selective risk at the bounds on TPR and FPR,
# and on precision and recall; AUROC, AUPR, OSCR of both definitions, largest TPR.
SINGLE = {
    2.0: {
        "A": (
            *(0.15848793701963335, 0.15848793701963335, 0.8782300341732343),
            *(0.9620377821557609, 0.819841532616011, 0.7187953848299856),
            0.8041237874314453,
        ),
        "B": (
            *(0.14179186887599884, 0.14179186887599884, 0.8649078632693777),
            *(0.9543093401928565, 0.8267210506981113, 0.7112133491795829),
            0.8034627863984655,
        ),
        "C": (
            *(math.nan, math.nan, 0.7575949183895513),
            *(0.9138817426632463, 0.8619464059528054, 0.6446444991911879),
            0.5888419058518811,
        ),
    },
    3.0: {
        "A": (
            *(0.22906702544311638, 0.2257477995966358, 0.8797457455166151),
            *(0.9629226678428449, 0.7810473056701032, 0.6879022972921774),
            0.805964772447926,
        ),
        "B": (
            *(0.20944030857663534, 0.20944030857663534, 0.858792386378466),
            *(0.9489504156634428, 0.7915229854687339, 0.6764296376520159),
            0.8025944412815896,
        ),
        "C": (
            *(math.nan, math.nan, 0.36657712472491166),
            *(0.7454719344731267, 0.9562099752453249, 0.34484767482310036),
            0.2361415992277983,
        ),
    },
}


class _Samples(NamedTuple):
    """ID and OOD rows with their true scores, as metrics read them."""

    y_true: np.ndarray
    y_pred: np.ndarray
    r: np.ndarray
    g: np.ndarray

    def score(self, model):
        """Return the single score of a model, high for rows to accept."""
        return -{"A": self.g, "B": self.r + 0.2 * self.g, "C": self.r}[model]

    def solve(self, rule, *names, **options):
        """Find the best rule on one or two of r and g."""
        is_id = self.y_true != -1
        a, b = (getattr(self, name) for name in (*names, names[0])[:2])
        loss = (self.y_true != self.y_pred)[is_id]
        b_id, b_ood = (b[is_id], b[~is_id]) if len(names) == 2 else (None, None)
        return solved(rule, a[is_id], b_id, loss, a[~is_id], b_ood, **options)

    def sample(self, k, n_parts):
        """Return a part with the same fraction of OOD rows."""
        arrays = [
            np.flatnonzero(of_kind)[k::n_parts]
            for of_kind in (self.y_true != -1, self.y_true == -1)
        ]
        return _Samples(*(values[np.concatenate(arrays)] for values in self))


def _draw(ood_mean, sizes, seed):
    """A sample."""
    data = make_reject_option_1d(sizes, ood_mean=ood_mean, random_state=seed)
    y_pred = data.posteriors.argmax(axis=1) + 1
    return _Samples(data.target, y_pred, data.risk, data.likelihood_ratio)


def _quantiles(ood_mean, n_id=60_000, n_ood=20_000):
    """Rows at the quantiles of both densities: sums over them are integrals.

    The summed risk of the rows up to any x, rounded, is the number of wrong ones. So
    in an interval of x the wrong rows are as many as is expected, up to one.
    """
    model = make_reject_option_1d(1, ood_mean=ood_mean).model
    grid = np.linspace(-8, 10, 200_001)
    cdf = 0.3 * norm.cdf(grid + 1) + 0.3 * norm.cdf(grid - 1) + 0.4 * norm.cdf(grid - 3)
    x_id = np.interp((np.arange(n_id) + 0.5) / n_id, cdf, grid)
    x_ood = norm.ppf((np.arange(n_ood) + 0.5) / n_ood, ood_mean, math.sqrt(0.2))
    wrong = np.diff(np.rint(np.cumsum(model.risk(x_id))), prepend=0).astype(bool)
    ranked = np.argsort(-model.posterior(x_id), axis=1) + 1
    y_id = np.where(wrong, ranked[:, 1], ranked[:, 0])
    x = np.concatenate([x_id, x_ood])
    return _Samples(
        np.concatenate([y_id, np.full(n_ood, -1)]),
        model.posterior(x).argmax(axis=1) + 1,
        model.risk(x),
        model.likelihood_ratio(x),
    )


KINDS = {
    "sample": (lambda mean: _draw(mean, (150_000, 50_000), seed=0), 0.006),
    "population": (_quantiles, 0.0005),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (mean, kind),
            marks=pytest.mark.slow if (mean, kind) == (3.0, "sample") else (),
            id=f"{mean}-{kind}",
        )
        for mean in SINGLE
        for kind in KINDS
    ],
)
def case(request):
    """The mean of the OOD density, rows, and the tolerance."""
    mean, kind = request.param
    make, atol = KINDS[kind]
    return mean, make(mean), atol


def _numbers(samples, model):
    """The numbers of SINGLE by the metrics."""
    y_true, y_pred, y_score = samples.y_true, samples.y_pred, samples.score(model)
    return (
        selective_risk_at(y_true, y_pred, y_score, rule=TPR_FPR).risk,
        selective_risk_at(y_true, y_pred, y_score, rule=PRECISION_RECALL).risk,
        auroc(y_true, y_score),
        aupr_in(y_true, y_score),
        oscr(y_true, y_pred, y_score),
        oscr(y_true, y_pred, y_score, definition="dhamija"),
        # no threshold has this TPR, so that the one there is is reported
        selective_risk_at(
            y_true, y_pred, y_score, rule=BoundedTPRFPR(tpr_min=0.95, fpr_max=0.2)
        ).attainable.max_tpr_at_fpr,
    )


@pytest.mark.parametrize("model", ["A", "B", "C"])
def test_single_score(case, model):
    mean, samples, atol = case
    assert (
        np.mean(samples.y_true == -1) == PRECISION_RECALL.ood_prior
    )  # as AUPR needs it
    assert_allclose(_numbers(samples, model), SINGLE[mean][model], rtol=0, atol=atol)


def test_risk_alone_is_infeasible(case):
    mean, samples, atol = case
    with pytest.raises(InfeasibleError, match="a TPR of at most") as info:
        samples.solve(TPR_FPR, "r")
    attained = info.value.max_tpr_at_fpr
    assert attained == pytest.approx(SINGLE[mean]["C"][-1], abs=atol)


@pytest.mark.parametrize("rule", [TPR_FPR, PRECISION_RECALL], ids=["tpr", "precision"])
def test_both_scores(case, rule):
    mean, samples, atol = case
    expected = DOUBLE[mean][rule is PRECISION_RECALL]
    point = samples.solve(rule, "r", "g", tol=1e-4)
    assert point.gap <= 1e-4
    lam = point.lam * point.scales[0] / math.cos(point.theta)  # of r + mu g
    numbers = point.risk, point.mu, lam, point.fpr
    assert_allclose(numbers, expected, rtol=0, atol=atol)
    assert rule.violation(point.tpr, point.fpr) == 0
    assert point.tpr == pytest.approx(0.7, abs=atol)


@pytest.mark.slow
def test_a_grid_of_angles():
    point = _draw(2.0, (150_000, 50_000), seed=0).solve(
        TPR_FPR, "r", "g", solver="grid", n_angles=90
    )
    assert_allclose(point.risk, DOUBLE[2.0][0][0], rtol=0, atol=0.006)
    assert_allclose(point.mu, DOUBLE[2.0][0][1], rtol=0, atol=0.01)
    assert point.tpr >= 0.7 and point.fpr <= 0.2


@pytest.mark.parametrize("mean", SINGLE, ids=str)
def test_precision_recall_is_tpr_fpr(mean):
    """A-pr-equals-tprfpr, on rows: what is found is feasible for both."""
    phi, kappa, pi = 0.7, 0.9, 0.25
    rho = phi * (1 - pi) * (1 - kappa) / (pi * kappa)
    assert rho == pytest.approx(0.2333333333333333, abs=1e-12)
    point = _quantiles(mean).solve(BoundedTPRFPR(phi, rho), "r", "g")
    assert PRECISION_RECALL.violation(point.tpr, point.fpr) == 0
    assert point.risk == pytest.approx(DOUBLE[mean][1][0], abs=5e-4)


def test_costs(case):
    mean, samples, atol = case
    is_id = samples.y_true != -1
    wrong = (samples.y_true != samples.y_pred)[is_id]
    assert wrong.mean() == pytest.approx(ID_ERROR, abs=atol)
    chow = samples.solve(PlugInCost(**COSTS), "r")
    np.testing.assert_array_equal(chow.accept(samples.r), samples.r <= 0.3)
    best = samples.solve(PlugInCost(**COSTS), "r", "g")
    numbers = best.objective, chow.objective
    assert_allclose(numbers, COST[mean], rtol=0, atol=atol)
    # either score alone costs more, even at its best threshold
    for name in ("r", "g"):
        assert (
            samples.solve(CostBased(**COSTS), name).objective > best.objective + 0.005
        )


def test_searched_costs():
    """Nothing is gained by a search, if the risk and the ratio are the true ones."""
    for mean, (least, _) in COST.items():
        samples = _quantiles(mean, 15_000, 5_000)
        point = samples.solve(CostBased(**COSTS), "r", "g")
        assert point.objective == pytest.approx(least, abs=5e-4)
        assert (
            point.lower_bound <= samples.solve(PlugInCost(**COSTS), "r", "g").objective
        )


@pytest.mark.parametrize("mean", SINGLE, ids=str)
def test_largest_tpr_is_that_of_the_likelihood_ratio(mean):
    """Neyman and Pearson: no acceptance probabilities have a larger one."""
    model = make_reject_option_1d(1, ood_mean=mean).model
    x = np.linspace(-7, 9, 8001)
    p, q = model.density_id(x), model.density_ood(x)
    with pytest.raises(InfeasibleError) as info:
        solve_finite(p / p.sum(), q / q.sum(), model.risk(x), BoundedTPRFPR(0.95, 0.2))
    attained = info.value.max_tpr_at_fpr
    assert attained == pytest.approx(SINGLE[mean]["A"][-1], abs=5e-4)


@pytest.mark.slow
def test_table_within_sampling_error():
    """100,000 rows: four standard errors, from the scatter of 20 parts of the rows.

    Each number is that of a smooth functional of both distributions, whose variance
    is inversely proportional to the number of rows.
    """
    n_parts = 20
    samples = _draw(2.0, (75_000, 25_000), seed=3)

    def table(samples):
        single = [x for model in "ABC" for x in _numbers(samples, model)]
        both = [
            samples.solve(rule, "r", "g").risk for rule in (TPR_FPR, PRECISION_RECALL)
        ]
        costs = [
            samples.solve(PlugInCost(**COSTS), *names).objective
            for names in (("r", "g"), ("r",))
        ]
        return np.array([*single, *both, *costs])

    expected = np.array(
        [
            *(x for numbers in SINGLE[2.0].values() for x in numbers),
            *(numbers[0] for numbers in DOUBLE[2.0]),
            *COST[2.0],
        ]
    )
    parts = np.array([table(samples.sample(k, n_parts)) for k in range(n_parts)])
    error = parts.std(axis=0, ddof=1) / math.sqrt(n_parts)
    numbers = table(samples)
    feasible = ~np.isnan(expected)
    np.testing.assert_array_equal(~np.isnan(numbers), feasible)
    assert feasible.sum() == 23
    deviation = np.abs(numbers - expected)[feasible] / error[feasible]
    assert deviation.max() < 4
    # that of the largest TPR within a bound on the FPR: 25,000 rows tell no more
    assert error[feasible].max() < 0.004
