"""Tests of predictors whose calibration samples are drawn as one mixture."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from skood.detectors import KNN
from skood.rejection import (
    BoundedErrorRate,
    BoundedTPRFPR,
    Certificate,
    OperatingPoint,
    RejectOptionClassifier,
    RejectOptionRegressor,
)
from skood.rejection._explanation import ScoreReference
from tests.rejection._problem import selective

MIXTURE = Certificate(sampling="mixture")


def _stream(rng, n, prior=0.2):
    """Inputs and labels in order of arrival; OOD samples are far."""
    is_ood = rng.random(n) < prior
    X = rng.normal(size=(n, 2)) + 4 * is_ood[:, None]
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    return X, np.where(is_ood, -1, y)


def _fitted(X, y, rule=None, **params):
    rule = BoundedErrorRate(0.15) if rule is None else rule
    params = {"guarantee": MIXTURE, "calibration": 0.6, **params}
    return selective(None, None, KNN(normalize=False), rule=rule, **params).fit(X, y)


class NeverFitted(LogisticRegression):
    """Classifier whose fit must not be reached."""

    def fit(self, X, y, sample_weight=None):
        raise AssertionError("fit")


def test_a_share_of_all_samples_calibrates():
    X, y = _stream(np.random.default_rng(0), 1000)
    n_ood = int((y == -1).sum())
    counts = []
    for seed in range(8):
        clf = _fitted(X, y, calibration=0.5).set_params(random_state=seed).fit(X, y)
        samples = clf._calibration.samples
        assert samples.is_ood.size == 500
        counts.append(samples.sizes[1])
        scores = -clf.ood_detector_.score_samples(X)
        assert np.isin(samples.ood, scores).all()
    # hypergeometric, and not all OOD samples
    assert len(set(counts)) > 2
    deviation = np.sqrt(n_ood * (1 - n_ood / 1000) / 4)
    assert abs(np.mean(counts) - n_ood / 2) < 3 * deviation / np.sqrt(8)
    separate = _fitted(X, y, BoundedErrorRate(0.2, 0.2), guarantee="high_probability")
    assert separate._calibration.samples.sizes[1] == n_ood


def test_error_rate_of_new_answers():
    rng = np.random.default_rng(1)
    X, y = _stream(rng, 3000)
    clf = _fitted(X, y)
    (statement,) = clf.operating_point_.certificate.statements
    assert (statement.text, statement.rate) == ("error rate <= 0.15", "error_rate")
    X_new, y_new = _stream(rng, 30_000)
    predicted = clf.predict(X_new)
    answered = clf.accept_proba(X_new) == 1
    wrong = (predicted != y_new)[answered]
    assert wrong.mean() < 0.15 and answered.mean() > 0.5
    report = clf.report(X_new, y_new)
    assert report.error_rate.value == pytest.approx(wrong.mean())
    assert report.limits == (("error_rate", 0.15),)
    assert "certified: error rate <= 0.15" in str(report)
    assert clf.score(X_new, y_new) == pytest.approx(answered.mean())
    assert "error rate" in clf._rule_line()


def test_losses_of_a_matrix_count_in_its_units():
    X, y = _stream(np.random.default_rng(2), 3000)
    loss = np.array([[0.0, 1.0], [4.0, 0.0]])
    clf = _fitted(X, y, BoundedErrorRate(1.0), loss=loss)
    (statement,) = clf.operating_point_.certificate.statements
    assert statement.estimate <= 1.0 and clf.operating_point_.fpr < 0.5
    report = clf.report(X, y)
    n, n_ood = report.n_accepted_id, report.n_accepted_ood
    expected = (report.risk.value * n + 4 * n_ood) / (n + n_ood)
    assert report.error_rate.value == pytest.approx(expected)


def test_without_ood_samples():
    X, y = _stream(np.random.default_rng(0), 1500, prior=0.0)
    clf = _fitted(X, y)
    assert clf.operating_point_.certificate.n_ood == 0 < clf.operating_point_.tpr


def test_fresh_samples_of_the_mixture():
    rng = np.random.default_rng(3)
    X, y = _stream(rng, 1500)
    clf = _fitted(X, y)
    before = clf.operating_point_.certificate
    clf.recalibrate(*_stream(rng, 1500))
    after = clf.operating_point_.certificate
    assert after.n_id + after.n_ood == (before.n_id + before.n_ood) + 1200
    other = clf.with_rule(BoundedErrorRate(0.3), *_stream(rng, 800))
    certificate = other.operating_point_.certificate
    assert certificate.n_id + certificate.n_ood == 640
    clf.recalibrate(*_stream(rng, 900), choose="previous")
    certificate = clf.operating_point_.certificate
    assert certificate.n_id + certificate.n_ood == 900
    for options in ({"window": 100}, {"accepted_only": True}):
        with pytest.raises(ValueError, match="excludes window and accepted_only"):
            clf.recalibrate(*_stream(rng, 100), **options)
    with pytest.raises(ValueError, match="excludes unlabeled samples"):
        clf.adapt(X)


def test_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = X[:, 0] + 0.2 * rng.normal(size=2000)
    is_ood = rng.random(2000) < 0.1
    X[is_ood] += 8
    y[is_ood] = np.nan
    reg = RejectOptionRegressor(
        LinearRegression(),
        ood_detector=KNN(normalize=False),
        rule=BoundedErrorRate(0.21),
        guarantee=MIXTURE,
        max_loss=1.0,
        random_state=0,
        calibration=0.5,
    ).fit(X, y)
    point = reg.operating_point_
    assert point.fpr < 0.5 < point.tpr
    assert point.certificate.statements[0].text == "error rate <= 0.21"
    assert reg.report(X, y).error_rate.value < 0.21


@pytest.mark.parametrize(
    ("rule", "params", "message"),
    [
        (BoundedErrorRate(), {"guarantee": None}, "set ood_prior, or certify"),
        (BoundedErrorRate(), {"guarantee": "ltt"}, "set ood_prior, or certify"),
        (BoundedErrorRate(0.1, 0.2), {}, "excludes the prior of BoundedErrorRate"),
        (BoundedErrorRate(0.0), {}, "must be above 0"),
        (
            BoundedErrorRate(),
            {"guarantee": Certificate(sampling="mixture", within="class")},
            "excludes within",
        ),
        (
            BoundedErrorRate(),
            {"guarantee": Certificate("ltt", sampling="mixture")},
            "excludes guarantee='ltt'",
        ),
        (BoundedErrorRate(), {"calibration": 5}, "Hold samples out"),
    ],
)
def test_errors_before_a_fit(rule, params, message):
    X, y = _stream(np.random.default_rng(0), 300)
    params = {"guarantee": MIXTURE, **params}
    clf = RejectOptionClassifier(NeverFitted(), rule=rule, **params)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)


def test_sources_are_excluded_before_a_fit():
    X, y = _stream(np.random.default_rng(0), 300)
    clf = RejectOptionClassifier(
        NeverFitted(), rule=BoundedErrorRate(), guarantee=MIXTURE
    )
    with pytest.raises(ValueError, match="excludes ood_source"):
        clf.fit(X, y, ood_source=np.zeros(300))


def test_a_share_that_leaves_no_id_sample():
    X, y = np.arange(12.0)[:, None], np.array([0, 1] + [-1] * 10)
    clf = selective(rule=BoundedErrorRate(0.5), guarantee=MIXTURE, calibration=0.05)
    with pytest.raises(ValueError, match="leaves no ID samples on one side"):
        clf.fit(X, y)


def test_a_prior_of_the_certificate():
    X, y = _stream(np.random.default_rng(0), 3000)
    options = {"guarantee": Certificate(ood_prior=0.2)}
    clf = _fitted(X, y, BoundedErrorRate(0.2), **options)
    assert clf.operating_point_.tpr > 0.3


def test_reason_of_a_rejection_by_the_cap():
    point = OperatingPoint(0.3, 1.0, ood_max=2.0)
    rng = np.random.default_rng(0)
    risk, ood = rng.normal(size=(2, 200)) / 3
    reference = ScoreReference.of(point, risk, ood)
    new = np.array([-9.0, 0.0, 5.0, 0.0]), np.array([2.5, 0.0, 0.0, 2.0])
    reason = reference.explain(point, *new)
    assert reason.reason.tolist() == [
        "out-of-distribution",
        "accepted",
        "uncertain class",
        "accepted",
    ]
    assert reason.ood_fraction[0] == 1 and reason.risk_fraction[0] == 0


def test_region_of_a_cap_is_drawn():
    plt = pytest.importorskip("matplotlib.pyplot")
    from skood.metrics import AcceptanceRegionDisplay

    rng = np.random.default_rng(0)
    risk, ood = rng.normal(size=(2, 200))
    point = OperatingPoint(0.5, 0.4, ood_max=0.8)
    scores = {"risk_id": risk, "ood_id": ood, "wrong_id": risk > 1}
    empty = {"risk_ood": np.empty(0), "ood_ood": np.empty(0)}
    display = AcceptanceRegionDisplay(point=point, **scores, **empty).plot()
    corners = display.region_.get_xy()
    assert corners[:, 1].max() == pytest.approx(0.8)
    assert "b ≤ 0.8" in display.line_.get_label()
    plt.close("all")


def test_bounds_on_rates_of_a_mixture():
    X, y = _stream(np.random.default_rng(0), 2000)
    clf = _fitted(X, y, BoundedTPRFPR(0.5, 0.3))
    assert clf._calibration.samples.is_ood.size == 1200
