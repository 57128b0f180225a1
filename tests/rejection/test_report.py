"""Tests of the report: counts, exact intervals and how often they hold."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, binomtest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.datasets import load_digits_ood
from skood.detectors import KNN, Energy
from skood.exceptions import SkoodWarning
from skood.rejection import (
    AllOf,
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    RejectionReport,
    RejectOptionClassifier,
    Solver,
    TwoThresholds,
    risk_upper_bound,
)
from skood.rejection._report import make_report, possible_losses
from skood.stats._mean_intervals import clopper_pearson
from tests.rejection._problem import Cells, selective

RNG = np.random.default_rng(0)


def report_of(accepted, loss, is_ood, level=0.95, prior=None, possible=(0.0, 1.0)):
    return make_report(
        np.asarray(accepted, dtype=bool),
        np.asarray(loss, dtype=float),
        np.asarray(is_ood, dtype=bool),
        confidence_level=level,
        ood_prior=prior,
        possible=None if possible is None else np.array(possible),
    )


# ----------------------------------------------------------- Clopper and Pearson


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("trials", [1, 2, 10, 137])
def test_interval_is_that_of_scipy(trials, level):
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        estimate = clopper_pearson(successes, trials, level)
        # SciPy looks for the roots of the tail probability, to about 1e-12
        exact = binomtest(successes, trials).proportion_ci(level, method="exact")
        assert estimate.value == successes / trials
        assert_allclose((estimate.low, estimate.high), exact, rtol=1e-9, atol=1e-11)


def test_interval_without_trials():
    assert all(math.isnan(v) for v in clopper_pearson(0, 0))


@pytest.mark.parametrize("trials", [7, 40])
def test_interval_holds_as_often_as_it_says(trials):
    # exact coverage: sum over all outcomes, no simulation
    k = np.arange(trials + 1)
    ends = np.array([clopper_pearson(int(i), trials, 0.9)[1:] for i in k])
    for p in np.linspace(0.01, 0.99, 33):
        holds = (ends[:, 0] <= p) & (p <= ends[:, 1])
        assert binom.pmf(k, trials, p)[holds].sum() >= 0.9


# ------------------------------------------------------------------------ counts


def test_numbers_equal_a_naive_loop():
    is_ood = RNG.uniform(size=300) < 0.4
    accepted = RNG.uniform(size=300) < np.where(is_ood, 0.3, 0.8)
    loss = (RNG.uniform(size=300) < 0.2).astype(float)
    report = report_of(accepted, loss[~is_ood], is_ood, prior=0.25)
    n = {"id": 0, "ood": 0, "kept_id": 0, "kept_ood": 0, "loss": 0.0}
    for accepts, value, ood in zip(accepted, loss, is_ood, strict=True):
        kind = "ood" if ood else "id"
        n[kind] += 1
        n["kept_" + kind] += accepts
        n["loss"] += value * (accepts and not ood)
    assert (report.n_id, report.n_ood) == (n["id"], n["ood"])
    counts = report.n_accepted_id, report.n_accepted_ood
    assert counts == (n["kept_id"], n["kept_ood"])
    assert report.tpr.value == n["kept_id"] / n["id"]
    assert report.fpr.value == n["kept_ood"] / n["ood"]
    assert report.coverage.value == (n["kept_id"] + n["kept_ood"]) / 300
    assert report.risk.value == n["loss"] / n["kept_id"]
    for name, successes, trials in (
        ("tpr", n["kept_id"], n["id"]),
        ("fpr", n["kept_ood"], n["ood"]),
        ("coverage", n["kept_id"] + n["kept_ood"], 300),
        ("risk", int(n["loss"]), n["kept_id"]),
    ):
        exact = binomtest(int(successes), int(trials)).proportion_ci(0.95, "exact")
        assert_allclose(getattr(report, name)[1:], exact, rtol=1e-9)
    tpr, fpr = report.tpr.value, report.fpr.value
    assert report.precision.value == 0.75 * tpr / (0.75 * tpr + 0.25 * fpr)
    assert (report.confidence_level, report.ood_prior) == (0.95, 0.25)


def test_what_is_undefined():
    report = report_of([1, 0], [0, 1], [0, 0], prior=0.5)
    for name in ("fpr", "precision"):
        assert all(math.isnan(v) for v in getattr(report, name))
    report = report_of([0, 0, 1], [0, 1], [0, 0, 1])
    assert (report.tpr.value, report.fpr.value, report.tpr.low) == (0.0, 1.0, 0.0)
    assert all(math.isnan(v) for v in report.risk + report.precision)
    report = report_of([1], [], [1], prior=0.5)
    assert all(math.isnan(v) for v in report.tpr + report.risk + report.precision)


# ---------------------------------------------------------------------- precision


def test_precision_and_its_limits():
    accepted = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    is_ood = [0] * 4 + [1] * 5
    loss = [0, 0, 1, 1]
    report = report_of(accepted, loss, is_ood, prior=0.2)
    assert_allclose(report.precision.value, 0.8 * 0.75 / (0.8 * 0.75 + 0.2 * 0.2))
    assert report.precision.low < report.precision.value < report.precision.high
    # no OOD rows at deployment: everything accepted is ID
    assert report_of(accepted, loss, is_ood, prior=0.0).precision == (1, 1, 1)
    # the mix of the rows available plays no role
    twice = report_of(
        accepted + accepted[4:], loss, is_ood + is_ood[4:], prior=0.2
    ).precision.value
    assert_allclose(twice, report.precision.value)
    # nothing accepted: undefined, though not unbounded
    nothing = report_of([0] * 9, loss, is_ood, prior=0.2).precision
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


def test_precision_interval_holds_at_least_as_often_as_it_says():
    # exact coverage: sum over all pairs of outcomes
    n_id, n_ood, level, prior = 15, 12, 0.8, 0.3
    k_id, k_ood = np.arange(n_id + 1), np.arange(n_ood + 1)
    is_ood = np.repeat([False, True], [n_id, n_ood])
    low, high = np.empty((2, n_id + 1, n_ood + 1))
    for i in k_id:
        for j in k_ood:
            accepted = np.concatenate([np.arange(n_id) < i, np.arange(n_ood) < j])
            report = report_of(accepted, np.zeros(n_id), is_ood, level, prior)
            low[i, j], high[i, j] = report.precision[1:]
    for tpr in (0.5, 0.8, 0.95):
        for fpr in (0.05, 0.2, 0.5):
            weight = np.outer(binom.pmf(k_id, n_id, tpr), binom.pmf(k_ood, n_ood, fpr))
            true = (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)
            assert weight[(low <= true) & (true <= high)].sum() >= level


# --------------------------------------------------------------------------- risk


GRADED = {
    "matrix": lambda rng, size: rng.choice([0.0, 1, 5], size, p=[0.8, 0.15, 0.05]),
    "heavy ties": lambda rng, size: rng.choice(
        [0.0, 0.1, 5], size, p=[0.5, 0.49, 0.01]
    ),
    "exponential": lambda rng, size: np.minimum(rng.exponential(size=size), 5.0),
    "rare large": lambda rng, size: 10.0 * (rng.uniform(size=size) < 0.01),
    "rare large, more": lambda rng, size: np.where(
        rng.uniform(size=size) < 0.01, 10.0, 0.2 * rng.uniform(size=size)
    ),
    "equal": lambda rng, size: np.full(size, 0.7),
}


@pytest.mark.parametrize(
    ("n", "draws"),
    [
        *((1, 60), (20, 60)),
        *(pytest.param(n, 300, marks=pytest.mark.slow) for n in (1, 2, 20, 50, 200)),
    ],
)
@pytest.mark.parametrize("name", GRADED)
def test_interval_of_graded_losses_covers_the_risk(name, n, draws):
    rng = np.random.default_rng(n)
    draw_losses = GRADED[name]
    true = draw_losses(rng, 10**6).mean()
    largest = 10.0 if "rare" in name else 5.0
    hits = 0
    samples, times = np.unique(
        np.sort(draw_losses(rng, (draws, n)), axis=1), axis=0, return_counts=True
    )
    for loss, k in zip(samples, times, strict=True):
        risk = report_of(np.ones(n), loss, np.zeros(n), possible=(0, 1, largest)).risk
        assert 0 <= risk.low <= risk.value <= risk.high <= largest
        assert risk.low < risk.high
        hits += k * (risk.low <= true <= risk.high)
    # an interval that covers 0.95 covers less than 0.93 of 300 in one of 14 runs, and
    # less than 0.91 in one of 1,000; these are conservative
    assert hits / draws >= 0.93


def test_width_of_an_interval_of_graded_losses():
    for loss in (
        RNG.choice([0.0, 1, 5], 2000, p=[0.8, 0.15, 0.05]),
        RNG.uniform(0, 1, 2000),  # Hoeffding's inequality alone: 4 times as wide
    ):
        risk = report_of(np.ones(2000), loss, np.zeros(2000), possible=(0, 1, 5)).risk
        normal = 2 * 1.96 * loss.std() / math.sqrt(2000)
        assert normal < risk.high - risk.low < 1.9 * normal


def test_ends_of_an_interval_of_graded_losses_mirror_each_other():
    loss = RNG.uniform(0, 3, size=80)
    estimate, other = (
        report_of(np.ones(80), x, np.zeros(80), 0.9, possible=(0, 1, 3)).risk
        for x in (loss, 3 - loss)
    )
    assert_allclose(estimate, [3 - other.value, 3 - other.high, 3 - other.low])
    # either end shares its error with betting, which is better here
    upper = risk_upper_bound(loss, 0.025, method="hoeffding_bentkus", max_loss=3)
    assert estimate.value < estimate.high <= upper


def test_two_valued_losses_have_the_exact_interval():
    loss = np.repeat([0.0, 5.0], [18, 2])
    report = report_of(np.ones(20), loss, np.zeros(20), possible=(0, 5))
    share = clopper_pearson(2, 20)
    assert_allclose(report.risk, [5 * v for v in share])
    # no loss seen does not mean that there is none
    report = report_of(np.ones(20), np.zeros(20), np.zeros(20), possible=(0, 5))
    assert report.risk == (0.0, 0.0, 5 * clopper_pearson(0, 20).high)
    # two values that are not 0
    risk = report_of(np.ones(20), loss + 1, np.zeros(20), possible=(1, 6)).risk
    assert_allclose(risk, [1 + 5 * v for v in share])
    # which values there can be is not seen from the samples
    risk = report_of(np.ones(20), loss, np.zeros(20), possible=(0, 1, 5)).risk
    assert risk.low < 5 * share.low and 5 * share.high < risk.high
    # a loss that cannot vary
    assert report_of([1], [2.0], [0], possible=(2,)).risk == (2, 2, 2)


def test_losses_without_a_bound_have_no_interval():
    risk = report_of(np.ones(80), np.ones(80), np.zeros(80), possible=None).risk
    assert risk.value == 1
    assert math.isnan(risk.low) and math.isnan(risk.high)


def test_possible_losses():
    assert_array_equal(possible_losses("zero_one"), [0, 1])
    assert_array_equal(possible_losses([[0, 1], [5, 0]]), [0, 1, 5])

    def loss(y_true, y_pred):
        return np.zeros(len(y_true))

    assert possible_losses(loss) is None
    assert_array_equal(possible_losses(loss, 4.0), [0, 2, 4])
    for bad in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="max_loss must be positive and finite"):
            possible_losses(loss, bad)
    with pytest.raises(ValueError, match="is for a callable loss"):
        possible_losses("zero_one", 1.0)
    with pytest.raises(ValueError, match=r"matrix of shape .* got .* shape \(3,\)"):
        possible_losses([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"A loss of 2\.0 is above max_loss=1\.5"):
        report_of([1, 1], [0, 2], [0, 0], possible=(0, 0.5, 1.5))


# ---------------------------------------------------------------- dicts and tables


def test_dict_is_ready_for_json():
    report = report_of([1, 0, 1], [0.5, 0.25, 0.0], [0, 0, 0], possible=(0, 0.5, 1))
    loaded = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert set(loaded) == set(RejectionReport.__dataclass_fields__)
    assert loaded["tpr"] == report.tpr._asdict()
    assert loaded["fpr"] == {"value": None, "low": None, "high": None}
    assert loaded["n_id"] == 3
    assert loaded["ood_prior"] is None
    report = report_of([1], [0.5], [0], possible=None).to_dict()
    assert report["risk"] == {"value": 0.5, "low": None, "high": None}


def test_text():
    report = report_of([1, 1, 1, 0, 1, 0], [0, 0, 1, 0], [0] * 4 + [1] * 2, 0.9, 0.25)
    assert str(report).splitlines() == [
        "             value  90 % interval     ",
        "tpr         0.7500  [0.2486, 0.9873]    3 of 4 ID samples accepted",
        "fpr         0.5000  [0.0253, 0.9747]    1 of 2 OOD samples accepted",
        "coverage    0.6667  [0.2713, 0.9372]    accepted fraction of all samples",
        "risk        0.3333  [0.0170, 0.8646]    mean loss of the accepted ID samples",
        "precision   0.8182  [0.3710, 0.9958]    ID fraction of accepted, "
        "0.25 of samples OOD",
        "error_rate  0.4545  [0.0084, 0.9742]    mean loss of all accepted samples",
    ]
    unbounded = report_of([1, 1], [0.5, 1], [0, 0], possible=None)
    assert str(unbounded).splitlines()[3] == (
        "risk        0.7500  unknown             mean loss of the accepted ID samples"
    )
    without_ood = str(report_of([1], [0], [0])).splitlines()
    assert [line.split()[0] for line in without_ood[1:]] == ["tpr", "coverage", "risk"]


def test_report_cannot_be_written_to():
    with pytest.raises(AttributeError):
        report_of([1], [0], [0]).tpr = 1.0


# ------------------------------------------------------------- of a fitted classifier


def make_data(seed=0, n=80):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3 * n, 2)) + np.repeat([[-1, 0], [1, 0], [2, 4]], n, axis=0)
    return X, np.repeat([0, 1, -1], n)


@pytest.fixture(scope="module")
def fitted():
    X, y = make_data()
    model = LogisticRegression().fit(X[y >= 0], y[y >= 0])
    detector = KNN(n_neighbors=5, normalize=False).fit(X[y >= 0])
    return RejectOptionClassifier(
        FrozenEstimator(model),
        ood_detector=FrozenEstimator(detector),
        rule=BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2),
        calibration="same",
    ).fit(*make_data(1))


def test_report_on_the_calibration_samples_is_the_operating_point(fitted):
    report, point = fitted.report(*make_data(1)), fitted.operating_point_
    assert report.tpr.value == point.tpr >= 0.7
    assert report.fpr.value == point.fpr <= 0.2
    assert report.risk.value == point.risk


def test_report_on_new_samples_equals_a_naive_loop(fitted):
    X, y = make_data(2)
    y[:20] = 7  # an unknown class is OOD as well
    report = fitted.report(X, y, confidence_level=0.9, ood_prior=0.1)
    decided = fitted.predict(X)
    accepted_id = [d != -1 for d, t in zip(decided, y, strict=True) if t in (0, 1)]
    accepted_ood = [d != -1 for d, t in zip(decided, y, strict=True) if t in (-1, 7)]
    wrong = [d != t for d, t in zip(decided, y, strict=True) if t in (0, 1) and d != -1]
    assert report.tpr.value == np.mean(accepted_id)
    assert report.fpr.value == np.mean(accepted_ood)
    assert report.risk.value == np.mean(wrong)
    assert (report.n_id, report.n_ood) == (140, 100)
    exact = binomtest(sum(accepted_id), 140).proportion_ci(0.9, "exact")
    assert_allclose(report.tpr[1:], exact)


def test_report_of_a_loss_matrix():
    X, y = make_data()
    clf = selective(rule=BoundedAbstention(0.9), loss=[[0, 1], [10, 0]]).fit(X, y)
    X, y = make_data(1)
    decided = clf.predict(X)
    loss = [
        {(0, 1): 1, (1, 0): 10}.get((t, d), 0)
        for t, d in zip(y, decided, strict=True)
        if t != -1 and d != -1
    ]
    assert set(loss) == {0, 1, 10}
    risk = clf.report(X, y).risk
    assert_allclose(risk.value, np.mean(loss))
    assert risk.value < risk.high < 10
    # the same cost for both errors: that many times the interval of their share
    clf.set_params(loss=[[0, 10], [10, 0]]).fit(*make_data())
    risk = clf.report(X, y).risk
    errors = clf.set_params(loss="zero_one").report(X, y).risk
    assert_allclose(risk, [10 * v for v in errors])


def test_report_of_a_callable_loss():
    def loss(y_true, y_pred):
        return np.where(y_true == y_pred, 0.0, 2.0 + (y_true == 1))

    X, y = make_data()
    clf = RejectOptionClassifier(LogisticRegression(), loss=loss).fit(X, y)
    value, low, high = clf.report(X, y).risk
    assert value > 0 and math.isnan(low) and math.isnan(high)
    risk = clf.report(X, y, max_loss=3).risk
    assert 0 < risk.low < risk.value == value < risk.high < 3
    with pytest.raises(ValueError, match=r"above max_loss=2\.5"):
        clf.report(X, y, max_loss=2.5)
    with pytest.raises(ValueError, match="is for a callable loss"):
        clf.set_params(loss="zero_one").report(X, y, max_loss=1)


def test_report_without_a_rule_accepts_all():
    X, y = make_data()
    clf = RejectOptionClassifier(LogisticRegression()).fit(X, y)
    report = clf.report(X, y)
    assert report.tpr.value == report.fpr.value == report.coverage.value == 1
    assert_allclose(1 - report.risk.value, clf.score(X, y))
    assert_array_equal(clf.accept_proba(X), 1)


def test_report_refuses_what_is_no_share(fitted):
    X, y = make_data()
    for level in (0, 1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"confidence_level must be in \(0, 1\)"):
            fitted.report(X, y, confidence_level=level)
    for prior in (-0.1, 1, math.nan):
        with pytest.raises(ValueError, match=r"ood_prior must be in \[0, 1\), got"):
            fitted.report(X, y, ood_prior=prior)


# ---------------------------------------------------------------------- in a notebook


def test_a_table_in_html():
    """The same numbers as in print, with what must be escaped escaped."""
    report = report_of([1, 1, 0, 1], [0, 1], [0, 0, 1, 1], prior=0.5)
    cells = Cells(report._repr_html_())
    assert cells.lines[0] == ["", "value", "95 % interval", ""]
    names = [row[0] for row in cells.lines[1:]]
    assert names == ["tpr", "fpr", "coverage", "risk", "precision", "error_rate"]
    printed = [" ".join(line.split()) for line in str(report).splitlines()[1:]]
    assert [" ".join(row) for row in cells.lines[1:]] == printed
    assert cells.caption == ""
    without = report_of([1], [0], [0])
    assert "fpr" not in [row[0] for row in Cells(without._repr_html_()).lines]
    named = replace(without, scores={"risk": "1 - <max> & more"})
    assert Cells(named._repr_html_()).caption == "risk score: 1 - <max> & more"
    assert str(named).endswith("\nrisk score: 1 - <max> & more")


def test_data_frame_has_the_rates():
    pytest.importorskip("pandas")
    report = report_of([1, 1, 0, 1], [0, 1], [0, 0, 1, 1], prior=0.5)
    frame = report.to_frame()
    assert list(frame) == ["value", "low", "high"]
    for rate in ("tpr", "fpr", "coverage", "risk", "precision"):
        assert_array_equal(frame.loc[rate], getattr(report, rate))
    frame = report_of([1, 0], [0.5, 1], [0, 0], possible=None).to_frame()
    assert frame.loc["fpr"].isna().all() and frame.loc["precision"].isna().all()
    assert frame.loc["risk"].isna().tolist() == [False, True, True]


def _marks(report):
    """Return the bounds in a plot of a report, and their legend."""
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = report.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    marks = [line for line in ax.lines if line.get_markersize() == 20]
    legend = ax.get_legend()
    texts = [] if legend is None else [text.get_text() for text in legend.texts]
    plt.close("all")
    return {labels[int(m.get_ydata()[0])]: m.get_xdata()[0] for m in marks}, texts


@pytest.mark.parametrize(
    ("rule", "guarantee", "expected"),
    [
        (BoundedTPRFPR(0.6, 0.4), None, {"tpr": 0.6, "fpr": 0.4}),
        (BoundedTPRFPR(0.6, 0.4), "high_probability", {"tpr": 0.6, "fpr": 0.4}),
        (BoundedTPRFPR(0.0, 0.4), None, {"fpr": 0.4}),  # a bound that always holds
        (BoundedImprovement(0.3), None, {"risk": 0.3}),
        (TwoThresholds(0.1, 0.15), "high_probability", {"tpr": 0.75}),
        (CostBased(ood_prior=0.3), None, {}),
        (None, None, {}),
    ],
)
def test_plot_marks_the_bounds_of_the_rule(rule, guarantee, expected):
    clf, X, y = _selective(rule, guarantee)
    report = clf.report(X, y)
    marks, texts = _marks(report)
    assert marks == pytest.approx(expected)
    certified = [s for s in report.certified if s.rate is not None]
    kind = "certified bound" if certified else "bound of the rule"
    assert texts == ([kind] if expected else [])
    assert dict(json.loads(json.dumps(report.to_dict()))["limits"]) == marks


def test_bound_of_the_precision_is_at_the_prior_of_the_report():
    clf, X, y = _selective(BoundedPrecisionRecall(0.9, 0.6, ood_prior=0.2), None)
    # odds of 9 at 4 ID samples per OOD sample are 9 / 4 * 7 / 3 at 7 per 3
    odds = 9 / 4 * 7 / 3
    marks, _ = _marks(clf.report(X, y, ood_prior=0.3))
    assert marks == pytest.approx({"tpr": 0.6, "precision": odds / (1 + odds)})
    assert _marks(clf.report(X, y))[0] == {"tpr": 0.6}
    same = _marks(clf.report(X, y, ood_prior=0.2))[0]
    assert same["precision"] == pytest.approx(0.9)


def test_plot_without_intervals_and_with_large_risks():
    plt = pytest.importorskip("matplotlib.pyplot")
    report = report_of([1, 1, 0], [40.0, 2, 0], [0, 0, 0], possible=None)
    ax = report.plot(plt.figure().subplots())
    (risk_ax,) = (other for other in ax.figure.axes if other is not ax)
    (point,) = (line for line in risk_ax.lines if line.get_marker() == "o")
    assert point.get_xdata().tolist() == [21.0] and risk_ax.get_xlabel() == "risk"
    assert ax.get_xlim()[1] < 2  # the rates are not at zero
    ax = report_of([1, 1, 0], [0, 1, 0], [0, 0, 0]).plot()
    assert ax.figure.axes == [ax]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["tpr", "coverage", "risk"]  # others are undefined
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_of([0, 0], [0, 1], [0, 0]).plot()  # nothing is accepted: no risk
    plt.close("all")


def _selective(rule, guarantee):
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(size=(900, 2)), rng.normal(5, 1, size=(300, 2))]
    y = np.r_[X[:900, 0] + rng.normal(size=900) > 0, np.full(300, -1)].astype(int)
    clf = selective(
        ood_detector=KNN(normalize=False),
        rule=rule,
        guarantee=guarantee,
        calibration=0.5,
    )
    return clf.fit(X, y), X, y


def test_bounds_that_were_not_attainable_are_reported():
    X = np.r_[np.zeros(30), np.ones(30), np.full(20, 0.5)][:, None]
    y = np.repeat([0, 1, -1], [30, 30, 20])
    clf = selective(
        ood_detector=KNN(normalize=False),
        rule=BoundedTPRFPR(tpr_min=1.0, fpr_max=0.1),
        solver=Solver(infeasible="nearest"),
    )
    X[::7] = 0.5  # ID samples that are equal to the OOD samples
    with pytest.warns(SkoodWarning, match="The nearest rule violates a bound by 0\\."):
        clf.fit(X, y)
    point = clf.operating_point_
    assert not point.feasible
    assert point.violation == pytest.approx(1 - point.tpr)
    note = (
        "bounds: not attainable on the calibration samples; the nearest rule violates "
        f"one by {1 - point.tpr:.4g}"
    )
    report = clf.report(X, y)
    assert str(report).splitlines()[-1] == note
    assert Cells(report._repr_html_()).caption.endswith(note)
    assert f"bounds: {report.to_dict()['scores']['bounds']}" == note
    with pytest.raises(ValueError, match="infeasible='nearest' and a guarantee exclu"):
        clf.set_params(guarantee="ltt").fit(X, y)


def test_what_is_certified_is_reported_beside_what_is_measured():
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    clf = selective(
        LogisticRegression(max_iter=500),
        ood_detector=Energy(),
        rule=AllOf([BoundedTPRFPR(0.5, 0.7), BoundedImprovement(0.1)]),
        guarantee="high_probability",
        calibration=0.5,
    ).fit(X[::2], y[::2])
    report = clf.report(X[1::2], y[1::2])
    certificate = clf.operating_point_.certificate
    for statement in certificate.statements:
        text = f"{statement.text} (p = {statement.pvalue:.2g})"
        assert text in str(report)
        assert text.replace(">", "&gt;").replace("<", "&lt;") in report._repr_html_()
    assert "\ncertified: TPR >= 0.5 (p = " in str(report)
    assert "together with a probability of 0.9 over the draw" in str(report)
    assert report.tpr.value >= 0.5
    plain = clf.with_rule(BoundedAbstention(0.5), X[1::2], y[1::2], guarantee=None)
    assert "certified" not in str(plain.report(X[1::2], y[1::2]))


# -------------------------------------------------------- errors among all answers


def test_error_rate_of_the_samples_as_a_mixture():
    accepted, loss = [1, 1, 0, 1, 1, 0], [0, 1, 0, 0]
    report = report_of(accepted, loss, [0] * 4 + [1] * 2, 0.9)
    assert report.error_rate == clopper_pearson(2, 4, 0.9)
    assert report.to_dict()["error_rate"]["value"] == 0.5
    assert math.isnan(report_of(accepted[:4], loss, [0] * 4).error_rate.value)
    graded = report_of(accepted, [0, 1, 0, 2], [0] * 4 + [1] * 2, 0.9, None, [0, 1, 4])
    assert graded.error_rate.value == (0 + 1 + 2 + 4) / 4
    assert 0 < graded.error_rate.low < 1.75 < graded.error_rate.high <= 4
    unknown = report_of(accepted, loss, [0] * 4 + [1] * 2, 0.9, None, None)
    assert math.isnan(unknown.error_rate.value)


def test_error_rate_at_a_prior():
    accepted, loss = np.r_[np.ones(80), np.zeros(20), np.ones(5), np.zeros(15)], [1, 0]
    is_ood = np.arange(120) >= 100
    report = report_of(accepted, np.tile(loss, 50), is_ood, 0.9, 0.25)
    t, f, e = 0.8, 0.25, 0.4
    assert report.error_rate.value == pytest.approx(
        (0.75 * e + 0.25 * f) / (0.75 * t + 0.25 * f)
    )
    # each of three intervals with a third of the error
    level = 1 - 0.1 / 3
    (_, t_low, t_high), (_, f_low, f_high), (_, r_low, r_high) = (
        clopper_pearson(*counts, level) for counts in ((80, 100), (5, 20), (40, 80))
    )
    low = (0.75 * t_high * r_low + 0.25 * f_low) / (0.75 * t_high + 0.25 * f_low)
    high = (0.75 * t_low * r_high + 0.25 * f_high) / (0.75 * t_low + 0.25 * f_high)
    assert_allclose(report.error_rate[1:], (low, high))


def test_error_rate_without_id_samples():
    report = report_of([1, 0], [], [1, 1], prior=0.5)
    assert math.isnan(report.error_rate.value) and report.fpr.value == 0.5
    assert report_of([1, 0], [], [1, 1]).error_rate.value == 1
