"""Weights of samples in solve: repeated samples, naive loops, scale, errors."""

import numpy as np
import pytest

from skood.exceptions import InfeasibleError
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    PlugInCost,
    TwoThresholds,
    solve,
)
from tests.decision._scores import samples_of, solved

RULES = [
    BoundedTPRFPR(0.7, 0.2),
    BoundedAbstention(0.6),
    BoundedImprovement(0.1),
    CostBased(),
    BoundedPrecisionRecall(0.8, 0.6, 0.3),
]
TWO = [TwoThresholds(0.1, 0.1), TwoThresholds(0.1, 0.1, criterion="selective_risk")]

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")


def _samples(seed, n=60, ties=False):
    """Return the scores and losses of ID samples, the scores of OOD, and weights."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(size=(2, n))
    loss = (rng.uniform(size=n) < a / 2) * rng.choice([1.0, 2.0], size=n)
    arrays = [a, b, loss, rng.uniform(size=n), rng.uniform(0.5, 1.5, size=n)]
    if ties:
        arrays = [r.round(1) for r in arrays]
    return arrays, rng.integers(4, size=n), rng.integers(4, size=n)


def _repeated(arrays, of_id, of_ood):
    weights = of_id, of_id, of_id, of_ood, of_ood
    return [
        None if r is None else np.repeat(r, w)
        for r, w in zip(arrays, weights, strict=True)
    ]


def _outcome(*args, **kwargs):
    """Return numbers of the rule that is found; the attainable rates if there is none.

    "bnb" resolves ties among the rules that it evaluates, which may be others.
    """
    try:
        point = solved(*args, **kwargs)
    except InfeasibleError as error:
        return np.array([error.max_tpr_at_fpr, error.min_fpr_at_tpr])
    if kwargs["solver"] == "bnb" and args[2] is not None:
        return np.array([point.objective, point.gap])
    scalars = point.theta, point.lam, point.tau, point.ood_max, point.gap
    return np.array([*scalars, *point.scales, *point.rates])


@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rule", RULES + TWO, ids=str)
def test_whole_weights_are_repeated_samples(rule, ties, solver):
    options = [{}, {"randomize": True}, {"angles": "full"}]
    for seed, kwargs in enumerate(options):
        arrays, of_id, of_ood = _samples(seed, n=30, ties=ties)
        kwargs = {"solver": solver, "n_angles": 31, **kwargs}
        weights = {"sample_weight_id": of_id, "sample_weight_ood": of_ood}
        for double in (True, False) if rule in RULES else (True,):
            scores = arrays if double else [arrays[0], None, arrays[2], arrays[3], None]
            expected = _outcome(rule, *_repeated(scores, of_id, of_ood), **kwargs)
            numbers = _outcome(rule, *scores, **kwargs, **weights)
            np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_other_weights_have_no_scale(rule, solver):
    arrays, of_id, of_ood = _samples(3, ties=True)
    of_ood[0] = 1
    points = [
        solved(
            rule,
            *arrays,
            weight_id=factor * of_id,
            weight_ood=of_ood / factor,
            solver=solver,
            n_angles=31,
        )
        for factor in (1, 1e-3, 0.7, 1e200)
    ]
    for point in points[1:]:
        for name in ("risk", "tpr", "objective"):
            expected = getattr(points[0], name)
            assert getattr(point, name) == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_naive_loop_over_all_rules_of_one_score(rule):
    rng = np.random.default_rng(4)
    for _ in range(10):
        a, loss, a_ood = rng.integers(9, size=(3, 25)).astype(float)
        loss /= 9
        w, v = rng.exponential(size=(2, 25))
        best = np.inf
        for t in np.unique(np.r_[a, a_ood]):
            N, E = w[a <= t].sum(), (w * loss)[a <= t].sum()
            F = v[a_ood <= t].sum()
            if N == 0:
                continue
            rates = N / w.sum(), F / v.sum(), E / N
            if rule.violation(*rates) <= 1e-9:
                best = min(best, rule.objective(N, E, F, w.sum(), v.sum()))
        if not rule.rates():  # it may accept nothing
            best = min(best, rule.objective(0.0, 0.0, 0.0, w.sum(), v.sum()))
        weights = {"sample_weight_id": w, "sample_weight_ood": v}
        try:
            point = solved(rule, a, None, loss, a_ood, None, **weights)
        except InfeasibleError:
            assert best == np.inf
            continue
        np.testing.assert_allclose(point.objective, best, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_bnb_and_exact_agree_on_importance_weights(rule):
    rng = np.random.default_rng(5)
    for seed in range(4):
        arrays, _, _ = _samples(seed, n=80, ties=seed % 2 == 1)
        weights = dict(
            zip(
                ("sample_weight_id", "sample_weight_ood"),
                rng.lognormal(sigma=1.5, size=(2, 80)),
                strict=True,
            )
        )
        exact = solved(rule, *arrays, solver="exact", **weights)
        point = solved(rule, *arrays, tol=0.0, **weights)
        np.testing.assert_allclose(point.objective, exact.objective, rtol=0, atol=1e-9)
        assert point.gap <= 1e-9


def test_all_samples_are_accepted_at_a_rate_of_one():
    # rates of all samples must not fail a bound of 1 by rounding of sums
    rng = np.random.default_rng(6)
    for n in (3, 100, 20_000):
        arrays, _, _ = _samples(6, n=n)
        w = rng.lognormal(sigma=3, size=n)
        point = solved(
            BoundedAbstention(1.0), arrays[0], None, arrays[2], None, None, weight_id=w
        )
        assert point.tpr == 1.0


def test_a_rule_may_accept_the_lightest_sample_only():
    # no loss below it, and no bound on the fraction of accepted samples
    a, loss = np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 1.0])
    for weight in ([1, 50, 50], [0.02, 1.0, 1.1]):
        point = solved(
            BoundedAbstention(0.0), a, None, loss, None, None, weight_id=weight
        )
        assert point.risk == 0.0
        assert point.tpr == pytest.approx(weight[0] / sum(weight))


def test_two_thresholds_of_other_weights():
    # the share of rejected weight is at most 0.2, with the largest weight at infinity
    b = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    weight = np.array([2.5, 2.0, 3.0, 0.5, 0.5])
    rule = TwoThresholds(ood=0.35, risk=0.0)
    point = solve(rule, samples_of(b, b, np.zeros(5), None, None, weight_id=weight))
    assert point.ood_max == pytest.approx(0.35)  # (8.5 + 3) * 0.65 = 7.475 <= 7.5
    rule = TwoThresholds(ood=0.2, risk=0.0)
    with pytest.warns(
        UserWarning, match="too few for a threshold.*: 4 of the largest weight are"
    ):
        point = solve(rule, samples_of(b, b, np.zeros(5), None, None, weight_id=weight))
    assert point.ood_max == np.inf


def test_rates_of_a_plug_in_rule_are_weighted():
    rule, a = PlugInCost(reject_id=0.3), [0.1, 0.2, 0.5]
    point = solved(rule, a, None, [0, 1, 0], [0.1, 0.9], None, weight_id=[2, 1, 3])
    assert (point.tpr, point.risk, point.fpr) == pytest.approx((0.5, 1 / 3, 0.5))
    args = rule, a, None, [0, 1, 0], [0.1, 0.9], None
    assert solve(args[0], samples_of(*args[1:], weight_ood=[1, 3])).fpr == 0.25
