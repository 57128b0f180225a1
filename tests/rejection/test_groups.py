"""Thresholds of groups in predictors, and reports of groups and sources."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import math

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import beta, binom
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.detectors import Mahalanobis
from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.metrics import AcceptanceRegionDisplay
from skood.persistence import dump, load
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    Certificate,
    RejectOptionClassifier,
    RejectOptionRegressor,
    TwoThresholds,
)
from tests.rejection._problem import selective

BY_GROUP = Certificate(within="groups", thresholds="group")
BY_CLASS = Certificate(within="predicted_class", thresholds="group")
SITES = np.array(["east", "north", "west"])


def _data(seed, n=1500):
    """Three sites with noisier inputs, two classes, and OOD samples far away."""
    rng = np.random.default_rng(seed)
    y, site = rng.integers(2, size=n), rng.integers(3, size=n)
    X = rng.normal(size=(n, 2)) * (1 + site[:, None]) + 2 * np.c_[y, y]
    is_ood = rng.random(n) < 0.4
    X[is_ood] += [9.0, -9.0]
    return X, np.where(is_ood, -1, y), SITES[site], np.where(X[:, 0] > 7, "far", "near")


X_FIT, Y_FIT, SITE_FIT, SOURCE_FIT = _data(0)
X_NEW, Y_NEW, SITE_NEW, SOURCE_NEW = _data(1)
RULE = BoundedTPRFPR(0.7, 0.5)


def _fitted(guarantee=BY_GROUP, **labels):
    clf = selective(
        ood_detector=Mahalanobis(), rule=RULE, calibration=0.6, guarantee=guarantee
    )
    return clf.fit(X_FIT, Y_FIT, **labels)


CLF = _fitted(groups=SITE_FIT)


def test_thresholds_of_groups_decide():
    point = CLF.operating_point_
    assert list(point.lam) == list(SITES) and CLF.lambda_ is point.lam
    risk, ood = (-score for score in CLF.score_pair(X_NEW))
    expected = point.accept(risk, ood, groups=SITE_NEW)
    assert_array_equal(CLF.accept_proba(X_NEW, SITE_NEW) == 1, expected)
    decisions = CLF.predict(X_NEW, groups=SITE_NEW)
    labels = CLF.estimator_.predict(X_NEW)
    assert_array_equal(decisions, np.where(expected, labels, CLF.reject_label_))
    for i in range(5):  # one sample a call
        sample = slice(i, i + 1)
        assert CLF.predict(X_NEW[sample], SITE_NEW[sample]) == decisions[sample]
    reasons = CLF.reject_reason(X_NEW, groups=SITE_NEW)
    assert_array_equal(reasons.reason == "accepted", expected)
    assert_allclose((reasons.risk_fraction + reasons.ood_fraction)[~expected], 1)
    assert_allclose((reasons.risk_fraction + reasons.ood_fraction)[expected], 0)
    sentences = CLF.explain(X_NEW[:9], groups=SITE_NEW[:9]).sentences
    accepted = [sentence.startswith("accepted as") for sentence in sentences]
    assert accepted == expected[:9].tolist()
    with pytest.raises(ValueError, match="threshold for each group; pass groups"):
        CLF.predict(X_NEW)
    with pytest.raises(ValueError, match="threshold for each group; pass groups"):
        CLF.reject_reason(X_NEW)


def test_the_objective_of_the_rule_by_groups():
    is_id = Y_NEW >= 0
    accepted = CLF.predict(X_NEW, SITE_NEW) != CLF.reject_label_
    wrong = CLF.estimator_.predict(X_NEW) != Y_NEW
    score = CLF.score(X_NEW, Y_NEW, groups=SITE_NEW)
    assert_allclose(score, -wrong[is_id & accepted].mean())


def test_samples_of_other_groups_are_rejected():
    sites = SITE_NEW.astype(object)
    before = CLF.predict(X_NEW, groups=sites)
    sites[:4] = "south"
    with pytest.warns(SkoodWarning, match="4 of 1500 samples are rejected.*'south'"):
        decisions = CLF.predict(X_NEW, groups=sites)
    assert_array_equal(decisions[:4], CLF.reject_label_)
    assert_array_equal(decisions[4:], before[4:])
    with pytest.warns(SkoodWarning):
        reasons = CLF.reject_reason(X_NEW, groups=sites)
    assert set(reasons.reason[:4]) == {"unknown group"}
    assert not reasons.risk_fraction[:4].any() and not reasons.ood_fraction[:4].any()
    with pytest.warns(SkoodWarning):
        explanation = CLF.explain(X_NEW[:1], groups=sites[:1])
    assert "no threshold for the group" in explanation.sentences[0]


def test_thresholds_of_predicted_classes_need_no_groups():
    clf = _fitted(BY_CLASS)
    point = clf.operating_point_
    assert list(point.lam) == [0, 1]
    risk, ood = (-score for score in clf.score_pair(X_NEW))
    predicted = clf.estimator_.predict(X_NEW)
    expected = point.accept(risk, ood, groups=predicted)
    assert_array_equal(clf.predict(X_NEW) != clf.reject_label_, expected)
    assert_array_equal(clf.accept_proba(X_NEW) == 1, expected)
    assert list(clf.report(X_NEW, Y_NEW).groups) == [0, 1]
    clf.recalibrate(X_NEW, Y_NEW)
    assert clf.operating_point_ != point


@pytest.mark.parametrize("thresholds", ["shared", "group"])
@pytest.mark.parametrize("n_draws", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_promise_within_predicted_classes(thresholds, n_draws):
    """A rare class that scatters more; tied scores; all samples together hide it."""
    rng = np.random.default_rng(0)

    def draw(n_samples):
        y = (rng.random(n_samples) < 0.15).astype(int)
        X = rng.normal(size=(n_samples, 2)) * (1 + y[:, None]) + 2 * y[:, None]
        return X.round(1), y

    X, y = draw(400)
    parts = (
        FrozenEstimator(LogisticRegression().fit(X, y)),
        FrozenEstimator(Mahalanobis().fit(X)),
    )
    new, _ = draw(20_000)
    predicted = parts[0].predict(new)
    counts = dict.fromkeys(["certified", "broken", "pooled"], 0)
    for seed in range(n_draws):
        samples = draw(300)
        for within in ("predicted_class", None):
            options = {"thresholds": thresholds} if within else {}
            clf = RejectOptionClassifier(
                *parts,
                rule=BoundedAbstention(0.7),
                calibration="same",
                guarantee=Certificate(delta=0.2, within=within, **options),
                random_state=seed,
            )
            try:
                accepted = clf.fit(*samples).accept_proba(new)
            except NotCertifiableError:
                continue
            coverage = min(accepted[predicted == c].mean() for c in (0, 1))
            counts["certified"] += within is not None
            counts["broken" if within else "pooled"] += coverage < 0.7
    assert counts["certified"] > 0.3 * n_draws
    assert counts["broken"] <= binom.isf(1e-3, n_draws, 0.2) < counts["pooled"]


def test_recalibration_and_files(tmp_path):
    pytest.importorskip("skops")
    clf = CLF.with_rule(RULE, X_FIT, Y_FIT, groups=SITE_FIT)
    clf.recalibrate(X_NEW, Y_NEW, groups=SITE_NEW)
    both = [np.concatenate(two) for two in ((X_FIT, X_NEW), (Y_FIT, Y_NEW))]
    sites = np.concatenate([SITE_FIT, SITE_NEW])
    other = CLF.with_rule(RULE, *both, groups=sites)
    assert clf.operating_point_.lam == other.operating_point_.lam
    dump(clf, tmp_path / "clf.skood")
    again = load(tmp_path / "clf.skood")
    assert_array_equal(again.predict(X_NEW, SITE_NEW), clf.predict(X_NEW, SITE_NEW))
    again.recalibrate(X_NEW, Y_NEW, groups=SITE_NEW)


def test_thresholds_of_groups_of_a_regressor():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(900, 2)), rng.integers(2, size=900)
    y = X[:, 0] + (1 + 3 * group) * rng.normal(size=900)
    reg = RejectOptionRegressor(
        LinearRegression(), rule=BoundedAbstention(0.6), guarantee=BY_GROUP
    )
    reg.fit(X, y, groups=group)
    rejected = np.isnan(reg.predict(X, groups=group))
    assert 0 < rejected.mean() < 0.5
    assert list(reg.report(X, y, groups=group).groups) == [0, 1]


def test_metadata_routing():
    with sklearn.config_context(enable_metadata_routing=True):
        clf = selective(
            FrozenEstimator(CLF.estimator_),
            ood_detector=FrozenEstimator(CLF.ood_detector_),
            rule=RULE,
            calibration="same",
            guarantee=BY_GROUP,
        )
        clf.set_fit_request(groups=True, ood_source=True)
        clf.set_predict_request(groups=True)
        pipe = make_pipeline(FunctionTransformer(), clf)
        pipe.fit(X_FIT, Y_FIT, groups=SITE_FIT, ood_source=SOURCE_FIT)
        decisions = pipe.predict(X_NEW, groups=SITE_NEW)
    assert_array_equal(decisions, pipe[-1].predict(X_NEW, SITE_NEW))
    statements = pipe[-1].operating_point_.certificate.statements
    assert {s.source for s in statements} == {None, "far", "near"}


# ---- reports


def _interval(k, n, level):
    tail = (1 - level) / 2
    low = beta.ppf(tail, k, n - k + 1) if k else 0.0
    return low, beta.isf(tail, k + 1, n - k) if k < n else 1.0


def test_report_of_groups_has_simultaneous_intervals():
    report = CLF.report(X_NEW, Y_NEW, groups=SITE_NEW, ood_source=SOURCE_NEW)
    accepted = CLF.predict(X_NEW, SITE_NEW) != CLF.reject_label_
    wrong = CLF.estimator_.predict(X_NEW) != Y_NEW
    is_id = Y_NEW >= 0
    assert list(report.groups) == list(SITES)
    level = 1 - 0.05 / 11  # three rates of three groups, and two sources
    for name, row in report.groups.items():
        of_id, of_ood = ((SITE_NEW == name) & kind for kind in (is_id, ~is_id))
        taken = of_id & accepted
        assert (row["n_id"], row["n_ood"]) == (of_id.sum(), of_ood.sum())
        for rate, k, n in (
            ("tpr", taken.sum(), of_id.sum()),
            ("fpr", accepted[of_ood].sum(), of_ood.sum()),
            ("risk", wrong[taken].sum(), taken.sum()),
        ):
            assert_allclose(row[rate], (k / n, *_interval(k, n, level)), rtol=1e-9)
    for name, row in report.sources.items():
        of_source = (SOURCE_NEW == name) & ~is_id
        k = accepted[of_source].sum()
        expected = k / of_source.sum(), *_interval(k, of_source.sum(), level)
        assert_allclose(row["fpr"], expected, rtol=1e-9)
    rates = [row["tpr"] for row in report.groups.values()]
    least, most = min(r.value for r in rates), max(r.value for r in rates)
    low = max(0.0, max(r.low for r in rates) - min(r.high for r in rates))
    high = max(r.high for r in rates) - min(r.low for r in rates)
    assert_allclose(report.gaps["tpr"], (most - least, low, high))


def test_report_of_groups_of_several_types():
    """Labels that are numbers and strings are not converted; none is missing."""
    names = np.array([10, "a", 2, None], dtype=object)
    codes = np.where(Y_NEW >= 0, np.arange(len(Y_NEW)) % 3, 3)
    report = CLF.with_rule(None, X_FIT, Y_FIT, guarantee=None).report(
        X_NEW, Y_NEW, groups=names[codes]
    )
    counts = np.bincount(codes)
    assert {name: row["n_id"] for name, row in report.groups.items()} == {
        2: counts[2],
        10: counts[0],
        "a": counts[1],
    }
    for missing in (None, np.nan, pytest.importorskip("pandas").NA):
        names[0] = missing
        with pytest.raises(ValueError, match="groups contains missing labels"):
            CLF.report(X_NEW, Y_NEW, groups=names[codes])
        with pytest.raises(ValueError, match="ood_source contains missing labels"):
            CLF.report(X_NEW, Y_NEW, groups=SITE_NEW, ood_source=names[3 - codes])


def test_shown_beside_what_is_certified():
    report = CLF.report(X_NEW, Y_NEW, groups=SITE_NEW)
    lines = str(report).splitlines()
    (line,) = (line for line in lines if line.startswith("north"))
    row = report.groups["north"]["tpr"]
    assert f"{row.value:.4f} [{row.low:.4f}, {row.high:.4f}]" in line
    assert line.endswith("  TPR >= 0.7")
    (line,) = (line for line in lines if line.startswith("fpr"))
    assert line.endswith("OOD samples accepted; certified: FPR <= 0.5")
    assert any(line.startswith("gap ") for line in lines)
    assert "<pre>" in report._repr_html_() and "north" in report._repr_html_()
    report_dict = json.loads(json.dumps(report.to_dict()))
    assert report_dict["groups"]["north"]["tpr"]["value"] == row.value
    assert report_dict["certified"][0]["text"] == "TPR >= 0.7 in group east"
    by_class = CLF.with_rule(
        BoundedAbstention(0.5), X_FIT, Y_FIT, guarantee=Certificate(within="class")
    )
    report = by_class.report(X_NEW, Y_NEW)
    assert list(report.groups) == [0, 1]
    assert math.isnan(report.groups[0]["fpr"].value)  # OOD samples have no class
    assert report.groups[1]["n_id"] == np.sum(Y_NEW == 1)
    weight = np.arange(len(Y_NEW)) % 2
    half = by_class.report(X_NEW, Y_NEW, sample_weight=weight, ood_source=SOURCE_NEW)
    rest = weight == 1
    other = by_class.report(X_NEW[rest], Y_NEW[rest], ood_source=SOURCE_NEW[rest])
    assert (half.groups, half.sources) == (other.groups, other.sources)
    with pytest.raises(ValueError, match="ood_source must have one label per sample"):
        by_class.report(X_NEW, Y_NEW, ood_source=["far"])


def test_errors():
    with pytest.raises(ValueError, match=r"available in predict: within='groups' or"):
        _fitted(Certificate(within="class", thresholds="group"))
    with pytest.raises(ValueError, match="a threshold for each group, and the disp"):
        AcceptanceRegionDisplay.from_estimator(CLF, X_NEW, Y_NEW)


@pytest.mark.parametrize("thresholds", ["shared", "group"])
def test_two_thresholds_within_groups(thresholds, tmp_path):
    clf = _fitted(Certificate(within="groups", thresholds=thresholds), groups=SITE_FIT)
    clf = clf.with_rule(TwoThresholds(0.1, 0.15), X_FIT, Y_FIT, groups=SITE_FIT)
    point = clf.operating_point_
    statements = point.certificate.statements
    assert [each.group for each in statements] == 2 * list(SITES)
    labels = {"groups": SITE_NEW} if thresholds == "group" else {}
    risk, ood = (-score for score in clf.score_pair(X_NEW))
    expected = np.zeros(len(X_NEW), dtype=bool)
    for site in SITES:
        lam, ood_max = (
            end[site] if thresholds == "group" else end
            for end in (point.lam, point.ood_max)
        )
        accepted = (risk <= lam * point.scales[0]) & (ood <= ood_max)
        expected |= (site == SITE_NEW) & accepted
    decisions = clf.predict(X_NEW, **labels)
    assert_array_equal(decisions != clf.reject_label_, expected)
    reasons = clf.reject_reason(X_NEW, **labels)
    assert_array_equal(reasons.reason == "accepted", expected)
    far = (Y_NEW < 0) & ~expected
    assert np.mean(reasons.reason[far] == "out-of-distribution") > 0.9
    assert_allclose((reasons.risk_fraction + reasons.ood_fraction)[~expected], 1)
    dump(clf, tmp_path / "clf.skops")
    assert_array_equal(load(tmp_path / "clf.skops").predict(X_NEW, **labels), decisions)
    text = str(clf.report(X_NEW, Y_NEW, groups=SITE_NEW))
    assert (
        "certified: fraction rejected by the risk score <= 0.15 in group east" in text
    )
    row = next(line for line in text.splitlines() if line.startswith("north"))
    assert row.endswith("risk score <= 0.15, fraction rejected by the OOD score <= 0.1")


@pytest.mark.parametrize("guarantee", ["high_probability", "ltt", "expectation"])
@pytest.mark.parametrize("rule", [TwoThresholds(0.1, 0.15), RULE])
def test_every_guarantee_has_a_certified_line(guarantee, rule):
    clf = CLF.with_rule(rule, X_FIT, Y_FIT, guarantee=guarantee)
    certificate = clf.operating_point_.certificate
    texts = [each.text for each in certificate.statements]
    if rule is RULE:
        assert texts == ["TPR >= 0.7", "FPR <= 0.5"]
    else:
        assert len(texts) == 2
    line = str(clf.report(X_NEW, Y_NEW)).splitlines()[-1]
    assert line.startswith("certified: " + texts[0])
    if guarantee == "expectation":
        assert certificate.delta is None and "on average" in line
    else:
        total = sum(each.pvalue for each in certificate.statements)
        assert 0 < total <= (0.2 if guarantee == "high_probability" else 0.1)


def test_data_frame_and_plot_have_groups_and_sources():
    pytest.importorskip("pandas")
    plt = pytest.importorskip("matplotlib.pyplot")
    report = CLF.report(X_NEW, Y_NEW, groups=SITE_NEW, ood_source=SOURCE_NEW)
    frame = report.to_frame()
    assert list(frame) == ["group", "source", "value", "low", "high"]
    for group, row in report.groups.items():
        values = frame[frame["group"] == group]
        assert list(values.index) == ["tpr", "fpr", "risk"]
        expected = [row[rate] for rate in values.index]
        assert_array_equal(values[["value", "low", "high"]], expected)
    for source, row in report.sources.items():
        (values,) = frame[frame["source"] == source].to_numpy()
        assert_array_equal(values[2:].astype(float), row["fpr"])
    overall = frame[frame["group"].isna() & frame["source"].isna()]
    assert_array_equal(overall.loc["tpr", "value":"high"], report.tpr)
    assert_array_equal(overall.loc["tpr_gap", "value":"high"], report.gaps["tpr"])
    integers = CLF.report(X_NEW, Y_NEW, groups=(SITE_NEW == "north") + 3)
    groups = integers.to_frame()["group"].dropna()
    assert groups.tolist() == [3, 3, 3, 4, 4, 4]
    assert isinstance(groups.iloc[0], int) and "source" not in integers.to_frame()
    ax = report.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    points = {
        labels[round(point.get_ydata()[0])]: point.get_xdata()[0]
        for point in ax.lines
        if point.get_marker() == "o"
    }
    assert points["tpr, group north"] == report.groups["north"]["tpr"].value
    assert len(points) == frame["value"].notna().sum() == len(labels)
    marks = {
        labels[round(mark.get_ydata()[0])]: (mark.get_xdata()[0], mark.get_color())
        for mark in ax.lines
        if mark.get_marker() == "|" and mark.get_markersize() == 20
    }
    sites = sorted(set(SITE_NEW))
    expected = {f"tpr, group {site}": (0.7, "black") for site in sites}
    expected |= {"tpr": (0.7, "0.6"), "fpr": (0.5, "black")}
    assert marks == expected
    plt.close("all")
