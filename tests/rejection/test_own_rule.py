"""A user's own rules, from the solver to searches, against loops over thresholds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import pickle
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skood.exceptions import InfeasibleError
from skood.metrics import (
    AcceptanceRegionDisplay,
    DoubleScoreROCDisplay,
    PrecisionRecallDisplay,
    make_rule_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import OODStratifiedKFold
from skood.rejection import (
    BaseRule,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Linear,
    Solver,
    max_accepted_ood,
    min_accepted_id,
    solve_finite,
)
from skood.utils._param_validation import Number
from tests.decision._scores import certified, solved
from tests.rejection._problem import (
    PLAIN_KNN,
    X_NEW,
    Y_NEW,
    X,
    Y,
    make_clf,
    make_data,
)


class Frugal(BaseRule):
    """Errors cost more than accepted OOD samples; most ID samples are accepted."""

    _parameter_constraints = {
        "coverage": [Number(Real, 0, 1, closed="both")],
        "error_cost": [Number(Real, 0, None, closed="left")],
    }

    def __init__(self, coverage=0.8, error_cost=2.0):
        self.coverage = coverage
        self.error_cost = error_cost

    def rates(self):
        return (Linear(id=-1.0, constant=self.coverage),)

    def cost(self):
        return Linear(loss=self.error_cost, ood=1.0)


class Careful(BaseRule):
    """Largest coverage at a bounded FPR and a bounded selective risk together."""

    def __init__(self, fpr_max=0.5, risk_max=0.15):
        self.fpr_max = fpr_max
        self.risk_max = risk_max

    def rates(self):
        return (
            Linear(id=-self.risk_max, loss=1.0),
            Linear(ood=1.0, constant=-self.fpr_max),
        )

    def cost(self):
        return Linear(id=-1.0)


class Proportional(BaseRule):
    """Least selective risk; the FPR is at most a fraction of the TPR."""

    def __init__(self, tpr_min=0.5, ratio=0.6):
        self.tpr_min = tpr_min
        self.ratio = ratio

    def rates(self):
        return (
            Linear(id=-1.0, constant=self.tpr_min),
            Linear(id=-self.ratio, ood=1.0),
        )


def meets(rule, t, e, f):
    """The bounds of the three rules, written anew."""
    if isinstance(rule, Frugal):
        return t >= rule.coverage - 1e-12
    if isinstance(rule, Careful):
        return t > 0 and e <= rule.risk_max * t + 1e-12 and f <= rule.fpr_max + 1e-12
    return t >= rule.tpr_min - 1e-12 and f <= rule.ratio * t + 1e-12


def objective(rule, t, e, f):
    """The objectives of the three rules, written anew."""
    if isinstance(rule, Frugal):
        return rule.error_cost * e + f
    return -t if isinstance(rule, Careful) else e / t


def naive(rule, a, loss, a_ood, feasible=None):
    """Best (objective, -N, F) over all thresholds of one score, sample by sample."""
    best = None
    for lam in {*a, *a_ood}:
        N = sum(x <= lam for x in a)
        E = sum(cost for x, cost in zip(a, loss, strict=True) if x <= lam)
        F = sum(x <= lam for x in a_ood)
        rates = N / len(a), E / len(a), F / len(a_ood)
        met = meets(rule, *rates) if feasible is None else feasible(N, F)
        if met and N:
            key = (round(objective(rule, *rates), 12), -N, F)
            best = key if best is None else min(best, key)
    return best


def is_same(point, best, n_id, n_ood):
    """Whether a point has the objective and the counts of the loop."""
    rates = point.objective, -point.tpr * n_id, point.fpr * n_ood
    assert_allclose(rates, best, atol=1e-10)
    return True


def scores(seed, n_id=60, n_ood=40):
    """Rounded scores with ties, and losses that grow with them."""
    rng = np.random.default_rng(seed)
    a, a_ood = rng.normal(size=n_id).round(1), rng.normal(1.5, size=n_ood).round(1)
    return a, (rng.uniform(size=n_id) < 0.1 + 0.2 * (a > 0)).astype(float), a_ood


RULES = [
    *(Frugal(0.5), Frugal(0.8, error_cost=0.5), Careful(0.3, 0.2), Careful(0.6, 0.12)),
    *(Proportional(0.4, 0.6), Proportional(0.7, 0.3)),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_solver_is_a_loop_over_thresholds(rule):
    n_feasible = 0
    for seed in range(10):
        a, loss, a_ood = scores(seed)
        best = naive(rule, a, loss, a_ood)
        if best is None:
            with pytest.raises(InfeasibleError, match="Attainable on this data"):
                solved(rule, a, None, loss, a_ood, None)
            continue
        n_feasible += 1
        point = solved(rule, a, None, loss, a_ood, None)
        assert is_same(point, best, 60, 40)
        rates = point.tpr, point.risk * point.tpr, point.fpr
        assert point.objective == pytest.approx(objective(rule, *rates))
        assert rule.violation(point.tpr, point.fpr, point.risk) == 0
        # two scores are no worse, and certified by branch and bound
        rng = np.random.default_rng(seed)
        two = rng.normal(size=60), rng.normal(1.0, size=40)
        both = solved(rule, a, two[0], loss, a_ood, two[1], n_angles=5)
        exact = solved(rule, a, two[0], loss, a_ood, two[1], solver="exact")
        assert both.gap <= 1e-3
        assert exact.objective <= both.objective <= point.objective + 1e-12
        assert both.objective <= exact.objective + 1e-3
        # probabilities for each atom of the scores are no worse, either
        values = np.unique(np.r_[a, a_ood])
        p, q = ((x[:, None] == values).mean(axis=0) for x in (a, a_ood))
        errors = np.array([loss[a == value].sum() for value in values])
        risk = np.divide(errors, 60 * p, out=np.zeros(len(p)), where=p > 0)
        assert solve_finite(p, q, risk, rule).objective <= point.objective + 1e-9
    assert n_feasible > 2


def test_what_follows_from_the_rates():
    rule = Proportional(0.25, 0.6)
    assert rule.needs_ood and Frugal().needs_ood and Frugal(0.5, 2.0).cost().ood == 1
    assert rule.bounds(10, 5) == (
        Linear(id=-1.0, constant=3.0),  # 2.5 samples, rounded
        Linear(id=-0.6, ood=2.0),
    )
    assert rule.bounds(10, 5, whole=False)[0].constant == 2.5
    # a selective risk needs a sample, as a lower bound on the TPR does
    assert Careful(0.35, 0.1).bounds(10, 10) == (
        Linear(id=-1.0, constant=1.0),
        Linear(id=-0.1, loss=1.0),
        Linear(ood=1.0, constant=-3.0),
    )
    assert Frugal(0.0).bounds(10, 0) == (Linear(id=-1.0, constant=1.0),)
    assert rule.violation(0.2, 0.32) == pytest.approx(0.05 + 0.2)
    careful = Careful(0.3, 0.1).violation([0.5, 0.0, 1.0], [0.4, 0.2, 0.3], [0.3] * 3)
    assert_allclose(careful, [0.1 + 0.1, 0, 0.2])
    assert rule.objective(4, 1.0, 2, 10, 5) == 0.25
    assert Frugal().objective(4, 1.0, 2, 10, 5) == pytest.approx(2 * 0.1 + 0.4)
    assert math.isnan(Frugal().objective(4, 1.0, 0, 10, 0))
    with pytest.raises(TypeError, match="abstract"):
        BaseRule()


def frozen_clf(rule, **params):
    """A classifier with one score whose calibration samples are all samples."""
    train = make_data(seed=7)
    model = LogisticRegression().fit(train[0][train[1] >= 0], train[1][train[1] >= 0])
    params = {"ood_detector": None, "calibration": "same", **params}
    return make_clf(FrozenEstimator(model), rule=rule, **params)


def calibration_scores(clf):
    """Risk scores of ID samples, their losses, and risk scores of OOD samples."""
    risk = -clf.score_pair(X)[0].round(12)
    wrong = (clf.estimator_.predict(X) != Y)[Y >= 0]
    return risk[Y >= 0], wrong.astype(float), risk[Y < 0]


@pytest.mark.parametrize(
    "rule", [Frugal(0.6), Careful(0.9, 0.15), Proportional(0.3, 1.5)], ids=repr
)
def test_classifier(rule):
    clf = frozen_clf(rule).fit(X, Y)
    a, loss, a_ood = calibration_scores(clf)
    best = naive(rule, a, loss, a_ood)
    assert is_same(clf.operating_point_, best, len(a), len(a_ood))
    accepted = clf.predict(X_NEW) != -1
    is_id = Y_NEW >= 0
    wrong = clf.estimator_.predict(X_NEW) != Y_NEW
    rates = [
        accepted[is_id].mean(),
        (wrong & accepted)[is_id].mean(),
        accepted[~is_id].mean(),
    ]
    assert clf.score(X_NEW, Y_NEW) == pytest.approx(-objective(rule, *rates))
    again = pickle.loads(pickle.dumps(clf))
    assert_array_equal(again.predict(X_NEW), clf.predict(X_NEW))
    assert clone(clf).rule.get_params() == rule.get_params()


@pytest.mark.parametrize("guarantee", ["high_probability", "ltt", "expectation"])
@pytest.mark.parametrize("rule", [Frugal(0.4), Proportional(0.3, 2.0)], ids=repr)
def test_certified_classifier(rule, guarantee):
    """With one score the certified counts are known, and all thresholds between."""
    train = make_data(seed=7)
    knn = FrozenEstimator(clone(PLAIN_KNN).fit(train[0][train[1] >= 0]))
    clf = frozen_clf(rule, guarantee=guarantee, risk_detector=knn).fit(X, Y)
    a, loss, a_ood = calibration_scores(clf)
    n, m = len(a), len(a_ood)
    k, K = min_accepted_id(n, 0.4, 0.1), m
    if isinstance(rule, Proportional):  # f <= 2 * 0.3 follows from t >= 0.3
        k, K = min_accepted_id(n, 0.3, 0.05), max_accepted_ood(m, 0.6, 0.05)
    if guarantee == "expectation":
        share = 0.4 if isinstance(rule, Frugal) else 0.3
        k, K = math.ceil((n + 1) * share), math.floor((m + 1) * 0.6 + 1e-9) - 1
        K = m if isinstance(rule, Frugal) else K
    best = naive(rule, a, loss, a_ood, lambda N, F: k <= N and K >= F)
    assert is_same(clf.operating_point_, best, n, m)


def test_certificate_of_two_scores():
    data = make_data(seed=5, n_per_class=200, n_ood=300)
    clf = make_clf(rule=Frugal(0.5), guarantee="high_probability", calibration=0.5)
    point = clf.fit(*data).operating_point_
    # about 210 samples certify the threshold
    assert point.tpr > 0.5 and point.objective == pytest.approx(
        2 * point.risk * point.tpr + point.fpr
    )
    # the cost is what chooses among certified rules, not the risk
    costly = clone(clf).set_params(rule__error_cost=1000.0).fit(*data)
    assert costly.operating_point_.fpr > point.fpr
    clf.set_params(rule=Careful(), guarantee="ltt")
    with pytest.raises(
        TypeError, match="The bounds of Careful do not follow from a lo"
    ):
        clf.fit(*data)
    assert clf.operating_point_ is point


def test_search_over_its_parameters():
    rule = Frugal(0.6)
    scorer = make_rule_scorer(rule)
    clf = make_clf(rule=Frugal(0.5), ood_detector=None)
    grid = {"rule__coverage": [0.4, 0.65], "estimator__C": [0.01, 1.0]}
    cv = OODStratifiedKFold(2)
    search = GridSearchCV(clf, grid, scoring=scorer, cv=cv, error_score="raise")
    search.fit(X, Y)
    results, violated = search.cv_results_, []
    for params, mean in zip(results["params"], results["mean_test_score"], strict=True):
        scores = []
        for train, test in cv.split(X, Y):
            fitted = clone(clf).set_params(**params).fit(X[train], Y[train])
            report = fitted.report(X[test], Y[test])
            t, f = report.tpr.value, report.fpr.value
            violated.append(t < 0.6)
            cost = 2 * t * report.risk.value + f
            # no cost is larger than 2 * 1 + 1
            scores.append(-(3 + 0.6 - t) if violated[-1] else -cost)
        assert mean == pytest.approx(np.mean(scores))
    assert 0 < sum(violated) < len(violated)
    assert search.best_params_["rule__coverage"] == search.best_estimator_.rule.coverage
    again = pickle.loads(pickle.dumps(scorer))
    assert again(search, X, Y) == scorer(search, X, Y)
    assert repr(scorer).startswith("make_rule_scorer(Frugal(coverage=0.6), loss=")


def test_scorer_of_a_built_in_rule_is_that_of_its_function():
    clf = make_clf().fit(X, Y)
    for tpr_min, fpr_max in ((0.3, 0.9), (0.99, 0.01)):
        scorer = make_selective_risk_scorer(tpr_min, fpr_max)
        other = make_rule_scorer(BoundedTPRFPR(tpr_min, fpr_max))
        assert scorer(clf, X_NEW, Y_NEW) == other(clf, X_NEW, Y_NEW)
    far = np.full((8, 2), 1e6)  # accepts nothing: one sample is missing
    y = np.repeat([0, 1, -1], [3, 3, 2])
    for rule, expected in (
        (Careful(0.5, 0.1), -(0 + 1 / 6)),
        (Frugal(0.5), -(3 + 0.5)),
        (Frugal(0.0), -(3 + 1 / 6)),
    ):
        assert (clf.predict(far) == -1).all()
        assert make_rule_scorer(rule)(clf, far, y) == pytest.approx(expected)
    with pytest.raises(TypeError, match=r"write BoundedTPRFPR\(\)"):
        make_rule_scorer(BoundedTPRFPR)


def test_displays():
    clf = make_clf(rule=Careful(0.35, 0.2)).fit(X, Y)
    display = DoubleScoreROCDisplay.from_estimator(
        clf, X_NEW, Y_NEW, solver=Solver("grid", n_angles=3)
    )
    corners = display.bounds_.get_corners()
    assert_allclose(corners.min(axis=0), [0, 0])
    assert_allclose(corners.max(axis=0), [0.35, 1])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert "bounds: FPR ≤ 0.35" in labels
    region = AcceptanceRegionDisplay.from_estimator(clf, X_NEW, Y_NEW)
    assert len(region.region_.get_xy())

    class Precise(BoundedPrecisionRecall):
        def rates(self):
            return super().rates()[1:]  # of any recall

    clf.set_params(rule=Precise(0.8, ood_prior=0.25)).fit(X, Y)
    display = PrecisionRecallDisplay.from_estimator(
        clf, X_NEW, Y_NEW, solver=Solver("grid", n_angles=3)
    )
    assert_allclose(display.bounds_.get_corners().min(axis=0), [0, 0.8])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert "bounds: precision ≥ 0.8" in labels
    plt.close("all")


def test_parameters_are_validated_as_those_of_estimators():
    for bad in (1.5, "all", True):
        with pytest.raises(ValueError, match="'coverage' parameter of Frugal must be"):
            frozen_clf(Frugal(bad)).fit(X, Y)
        with pytest.raises(ValueError, match="'coverage' parameter of Frugal must be"):
            make_rule_scorer(Frugal(bad))
        with pytest.raises(TypeError, match="'coverage' parameter of Frugal must be"):
            certified(Frugal(bad), [1.0, 2.0], None, [0, 1], [3.0], None)


def test_text_of_bounds_that_cannot_be_met():
    a, loss, a_ood = scores(0)
    with pytest.raises(InfeasibleError) as info:
        solved(Careful(0.0, 0.0), a, None, np.ones(60), a_ood, None)
    text = str(info.value)
    assert "a TPR of at most 0 within the given bounds, and an FPR of at least" in text
    assert text.endswith("and a selective risk of at least 1.")
    with pytest.raises(InfeasibleError, match="within the given bounds, and an FPR"):
        solved(Proportional(1.0, 0.1), a, None, loss, a_ood, None)
