"""Tests of the rules with a linear objective."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from skood.datasets import make_reject_option_1d
from skood.rejection import (
    AllOf,
    BoundedImprovement,
    Certificate,
    CostBased,
    LinearRule,
    PlugInCost,
    RejectOptionClassifier,
    ScoredSamples,
    certify,
    solve,
)
from tests.decision._scores import samples_of, solved

N = np.array([0, 6, 7, 8, 10])
E = np.array([0.0, 3.0, 0.0, 2.0, 5.0])
F = np.array([0, 1, 1, 2, 3])


def test_cost():
    rule = CostBased(reject_id=0.3, accept_ood=2.0, reject_ood=0.5, ood_prior=0.25)
    cost = [
        0.75 * (e + 0.3 * (10 - n)) / 10 + 0.25 * (2 * f + 0.5 * (5 - f)) / 5
        for n, e, f in zip(N, E, F, strict=True)
    ]
    np.testing.assert_allclose(rule.objective(N, E, F, 10, 5), cost, rtol=1e-15)
    assert rule.feasible(N, E, F, 10, 5).all()
    assert rule.needs_ood and rule.violation(0.0, 1.0, np.nan) == 0
    assert rule.violation(np.zeros(3)).tolist() == [0, 0, 0]
    # no OOD rows at deployment
    rule.set_params(ood_prior=0)
    assert not rule.needs_ood
    np.testing.assert_allclose(
        rule.objective(N, E, F, 10, 0), (E + 0.3 * (10 - N)) / 10
    )
    # at deployment, but not available
    assert np.isnan(PlugInCost(ood_prior=0.5).objective(3, 1.0, 0, 10, 0))


def test_improvement():
    rule = BoundedImprovement(risk_max=0.25)
    assert not rule.needs_ood
    np.testing.assert_allclose(rule.objective(N, E, F, 10, 5), -N / 10)
    assert rule.feasible(N, E, F, 10, 5).tolist() == [False, False, True, True, False]
    assert rule.violation(1.0, 1.0, 0.25) == 0
    assert rule.violation(1.0, 1.0, 0.75) == pytest.approx(0.5)
    # 3 * 0.1 is above 0.3, by rounding only
    assert BoundedImprovement(0.1).feasible(3, 0.1 + 0.1 + 0.1, 0, 3, 0)


@pytest.mark.parametrize("cls", [CostBased, PlugInCost])
def test_costs_are_checked(cls):
    cls(reject_id=0, accept_ood=5, reject_ood=4.5, ood_prior=0).check_params()
    for name in ("reject_id", "accept_ood", "reject_ood"):
        for bad in (-0.1, math.inf, math.nan):
            message = rf"'{name}' parameter of {cls.__name__} .* \[0.0, inf\)"
            with pytest.raises(ValueError, match=message):
                cls(**{name: bad}).check_params()
        with pytest.raises(TypeError, match=rf"'{name}' parameter of .* a float"):
            cls(**{name: "1"}).check_params()
    for bad in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"'ood_prior' .* \[0.0, 1.0\)"):
            cls(ood_prior=bad).check_params()
    for accept_ood in (0.5, 0.2):
        with pytest.raises(
            ValueError,
            match=r"must be above reject_ood, or nothing is gained .*=0\.5\.",
        ):
            cls(accept_ood=accept_ood, reject_ood=0.5).check_params()


def test_risk_max_is_checked():
    BoundedImprovement(risk_max=7.5).check_params()  # losses may be larger than one
    with pytest.raises(ValueError, match=r"'risk_max' .* \[0.0, inf\)"):
        BoundedImprovement(risk_max=-0.5).check_params()


def test_accept_none_and_accept_all():
    a, a_ood = [1.0, 2.0, 3.0], [1.0, 2.0]
    # rejecting is free
    point = solve(CostBased(reject_id=0.0), samples_of(a, None, [0, 0, 1], a_ood, None))
    assert (point.tpr, point.fpr, point.objective, point.gap) == (0, 0, 0, 0)
    assert (point.lam, point.tau) == (-math.inf, 0.0)
    assert math.isnan(point.risk) and math.isnan(point.precision)
    assert not point.accept([-1e300, -math.inf]).any()
    # errors are cheaper than rejections
    point = solved(CostBased(5.0, ood_prior=0.1), a, None, [0, 0, 1], a_ood, None)
    assert (point.tpr, point.fpr) == (1, 1)
    assert point.objective == pytest.approx(0.9 / 3 + 0.1)
    # a tie: the larger TPR is preferred
    point = solved(CostBased(reject_id=1.0, ood_prior=0), a, None, [1] * 3, None, None)
    assert (point.tpr, point.objective) == (1, 1)


@pytest.mark.parametrize("ood_prior", [0.0, 0.25, 0.6])
def test_plug_in_is_the_formula(ood_prior):
    rule = PlugInCost(0.3, accept_ood=1.5, reject_ood=0.5, ood_prior=ood_prior)
    assert not rule.needs_ood
    rng = np.random.default_rng(0)
    r, g = rng.uniform(size=50), rng.exponential(size=50)
    point = solve(rule, samples_of(r, g, r < 0.2, None, None))
    formula = r + (1.5 - 0.5) * ood_prior / (1 - ood_prior) * g <= 0.3
    assert 0 < formula.mean() < 1
    np.testing.assert_array_equal(point.accept(r, g), formula)
    assert point.mu == pytest.approx(ood_prior / (1 - ood_prior))
    assert point.risk == pytest.approx(np.mean(r[formula] < 0.2))
    assert math.isnan(point.gap)


def test_plug_in_without_ood_score_is_chows_rule():
    point = solved(
        PlugInCost(reject_id=0.3), [0.1, 0.3, 0.31], None, [0] * 3, None, None
    )
    assert point.accept([0.1, 0.3, 0.31]).tolist() == [True, True, False]
    assert (point.theta, point.scales) == (0.0, (1.0, 1.0))
    assert point.lam == pytest.approx(0.3, rel=2e-5)
    # 1 - 0.7 exceeds 0.3 by rounding
    assert point.accept([1 - 0.7, 0.3001]).tolist() == [True, False]


def test_plug_in_is_optimal_for_known_densities():
    problem = make_reject_option_1d((30_000, 10_000), random_state=0)
    is_id = ~problem.is_ood
    wrong = problem.posteriors.argmax(axis=1) + 1 != problem.target
    r, g = problem.risk, np.minimum(problem.likelihood_ratio, 1e300)
    arrays = r[is_id], g[is_id], wrong[is_id], r[~is_id], g[~is_id]
    costs = {"reject_id": 0.3, "accept_ood": 1.0, "reject_ood": 0.0, "ood_prior": 0.25}
    plug_in, searched = (
        solve(PlugInCost(**costs), samples_of(*arrays)),
        solve(CostBased(**costs), samples_of(*arrays)),
    )
    # A-dens-2.0-0.2-0.25, cost_eps_0.3_1_0, by sampling
    assert plug_in.objective == pytest.approx(0.14988425140398326, abs=0.006)
    assert searched.objective <= plug_in.objective
    assert searched.objective == pytest.approx(plug_in.objective, abs=0.002)


def test_a_logarithm_is_no_ratio():
    message = r"takes the OOD score for a likelihood ratio.*ood_id contains -0\.5"
    with pytest.raises(ValueError, match=message):
        solve(PlugInCost(), samples_of([0.1], [-0.5], [0], None, None))
    with pytest.raises(ValueError, match="ood_ood contains -2"):
        solve(PlugInCost(), samples_of([0.1], [0.5], [0], [0.2], [-2.0]))


@pytest.mark.parametrize("mu", [-30.0, -0.7, 0.0, 1e-9, 2.5, 1e300, math.inf])
@pytest.mark.parametrize("lam", [-math.inf, -0.4, 0.0, 0.9, math.inf])
def test_linear_rule_is_the_inequality(mu, lam):
    """In the units of the scores, whatever their scales."""
    rng = np.random.default_rng(0)
    a, b = 400 * rng.normal(size=200), 1e-3 * rng.normal(size=200)
    a_ood, b_ood = a[:50] + 1, b[:50] + 2
    wrong = rng.uniform(size=200) < 0.3
    rule = LinearRule(mu=mu, lam=lam)
    assert not rule.needs_ood
    point = solve(rule, samples_of(a, b, wrong, a_ood, b_ood))

    def accepts(a, b):
        return b <= lam if mu == math.inf else a + mu * b <= lam

    accepted = accepts(a, b)
    np.testing.assert_array_equal(point.accept(a, b), accepted)
    assert point.tpr == accepted.mean() and point.fpr == accepts(a_ood, b_ood).mean()
    assert point.feasible and math.isnan(point.precision)
    if accepted.any():
        assert point.risk == point.objective == pytest.approx(wrong[accepted].mean())
    else:
        assert math.isnan(point.risk) and point.objective == math.inf
    if mu != 1e300:
        assert point.mu == pytest.approx(mu, rel=1e-12)
    without = solve(rule, samples_of(a, b, wrong, None, None))
    assert (without.lam, without.theta) == (point.lam, point.theta)
    assert math.isnan(without.fpr)


@pytest.mark.parametrize("mu", [-3.0, 0.0, 0.1, 7.0])
@pytest.mark.parametrize("lam", [-0.7, 0.3, 250.0])
def test_linear_rule_accepts_values_at_its_threshold(mu, lam):
    b = np.linspace(-5, 5, 31)
    point = solve(LinearRule(mu, lam), samples_of(lam - mu * b, b, b > 0, None, None))
    assert point.tpr == 1
    above = lam - mu * b + 1e-4 * (abs(lam) + abs(mu) * 5)
    assert not point.accept(above, b).any()


def test_linear_rule_is_a_plug_in_rule():
    rng = np.random.default_rng(1)
    r, g = rng.uniform(size=300), rng.exponential(size=300)
    samples = samples_of(r, g, rng.uniform(size=300) < r, None, None)
    plug_in = solve(PlugInCost(0.4, 1.5, 0.5, 0.25), samples)
    point = solve(LinearRule(1 / 3, 0.4), samples)
    np.testing.assert_array_equal(point.accept(r, g), plug_in.accept(r, g))
    assert point.risk == plug_in.risk
    # whole weights count samples
    copies = np.repeat(r, 3), np.repeat(g, 3), np.repeat(samples.loss, 3), None, None
    repeated = solve(LinearRule(1 / 3, 0.4), samples_of(*copies))
    weight = np.full(300, 3)
    weighted = ScoredSamples.from_arrays(
        r, g, samples.loss, None, None, weight_id=weight
    )
    assert solve(LinearRule(1 / 3, 0.4), weighted).rates == pytest.approx(
        repeated.rates, nan_ok=True
    )


def test_linear_rule_and_bad_input():
    one, two = (samples_of([0.1], b, [0], None, None) for b in (None, [0.2]))
    assert solve(LinearRule(), one).tpr == 1
    assert solve(LinearRule(lam=0.05), one).tpr == 0
    with pytest.raises(ValueError, match=r"LinearRule\(mu=0\.5\) requires two scores"):
        solve(LinearRule(0.5), one)
    for method in ("high_probability", "ltt", "expectation"):
        with pytest.raises(ValueError, match=r"certify_path\(rule, path, samples\)"):
            certify(LinearRule(0.5), two, Certificate(method))
    with pytest.raises(ValueError, match="LinearRule is found without a search"):
        solve(AllOf([BoundedImprovement(), LinearRule()]), two)
    bad = [("mu", -math.inf), ("mu", math.nan), ("lam", math.nan)]
    for name, value in bad:
        with pytest.raises(ValueError, match=f"'{name}' parameter of LinearRule"):
            solve(LinearRule(**{name: value}), two)
    for name in ("mu", "lam"):
        for value in ("1", None, True):
            with pytest.raises(TypeError, match=f"'{name}' parameter of LinearRule"):
                solve(LinearRule(**{name: value}), two)


def test_linear_rule_of_a_classifier():
    """Chow's rule with the given threshold; parameters are nested, scores are risks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.normal(size=400) > 0, "high", "low")
    clf = RejectOptionClassifier(
        LogisticRegression(), rule=LinearRule(), random_state=0
    )
    clf.set_params(rule__lam=0.2).fit(X, y)
    risk = 1 - clf.predict_proba(X).max(axis=1)
    np.testing.assert_array_equal(clf.accept_proba(X) == 1, risk <= 0.2)
    wrong = clf.estimator_.predict(X) != y
    assert clf.score(X, y) == pytest.approx(-wrong[risk <= 0.2].mean())
    with pytest.raises(ValueError, match="certify_path"):
        clf.set_params(guarantee="high_probability").fit(X, y)
