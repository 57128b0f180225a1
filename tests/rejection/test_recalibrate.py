"""Rules chosen again with fresh labeled samples, and their promises."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import astuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skood.detectors import Mahalanobis
from skood.exceptions import NotCertifiableError
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    RejectOptionClassifier,
    RejectOptionRegressor,
    certify,
)
from tests.rejection._problem import X_NEW, X, Y, make_clf, make_data

X_1, Y_1 = make_data(seed=2, n_per_class=80)
X_2, Y_2 = make_data(seed=3, n_per_class=80)
X_BOTH, Y_BOTH = np.concatenate([X_1, X_2]), np.concatenate([Y_1, Y_2])
FITTED = make_clf(rule=None).fit(X, Y)
LOOSE = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.6)


def _same(clf, other):
    assert astuple(clf.operating_point_) == astuple(other.operating_point_)
    assert (clf.theta_, clf.lambda_) == (other.theta_, other.lambda_)
    assert_array_equal(clf.predict(X_NEW), other.predict(X_NEW))
    reasons, others = clf.reject_reason(X_NEW), other.reject_reason(X_NEW)
    assert_array_equal(reasons.risk_percentile, others.risk_percentile)


@pytest.mark.parametrize("guarantee", [None, "high_probability", "ltt"])
def test_equals_a_choice_on_all_samples(guarantee):
    clf = FITTED.with_rule(LOOSE, X_1, Y_1, guarantee=guarantee)
    first = clf.operating_point_
    assert clf.recalibrate(X_2, Y_2) is clf
    assert clf.operating_point_ != first
    _same(clf, FITTED.with_rule(LOOSE, X_BOTH, Y_BOTH, guarantee=guarantee))


def test_samples_of_a_single_kind_and_in_pieces():
    clf = FITTED.with_rule(LOOSE, X_1, Y_1)
    is_ood = Y_2 < 0
    clf.recalibrate(X_2[is_ood], Y_2[is_ood]).recalibrate(X_2[~is_ood], Y_2[~is_ood])
    _same(clf, FITTED.with_rule(LOOSE, X_BOTH, Y_BOTH))


@pytest.mark.parametrize("window", [30, np.int64(200)])
def test_window_has_the_latest_samples_of_each_kind(window):
    clf = FITTED.with_rule(LOOSE, X_1, Y_1).recalibrate(X_2, Y_2, window=window)
    order = np.concatenate(
        [np.flatnonzero(kind)[-window:] for kind in (Y_BOTH < 0, Y_BOTH >= 0)]
    )
    order.sort()
    _same(clf, FITTED.with_rule(LOOSE, X_BOTH[order], Y_BOTH[order]))


def test_after_a_fit_that_holds_samples_out():
    clf = make_clf(rule=BoundedAbstention(0.5), calibration=0.5).fit(X, Y)
    n_held_out = 75
    tpr = clf.operating_point_.tpr * n_held_out
    assert tpr == round(tpr)
    clf.recalibrate(X_2, Y_2)
    tpr = clf.operating_point_.tpr * (n_held_out + 240)
    assert_allclose(tpr, round(tpr))


def test_weights_of_old_and_of_new_samples():
    weight = np.where(np.arange(len(Y_2)) % 2, 2, 1)
    clf = FITTED.with_rule(LOOSE, X_1, Y_1).recalibrate(X_2, Y_2, sample_weight=weight)
    both = np.concatenate([np.ones(len(Y_1)), weight])
    _same(clf, FITTED.with_rule(LOOSE, X_BOTH, Y_BOTH, sample_weight=both))


def test_recalibrated_regressor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    y = X[:, 0] + (1 + np.abs(X[:, 1])) * rng.normal(size=900)
    reg = RejectOptionRegressor(
        LinearRegression(),
        rule=BoundedImprovement(1.4),
        max_loss=5.0,
        guarantee="high_probability",
        random_state=0,
    )
    reg.fit(X[:600], y[:600])
    point = reg.operating_point_
    reg.recalibrate(X[600:], y[600:])
    certificate = reg.operating_point_.certificate
    assert certificate.n_id == 456 > point.certificate.n_id  # .95 of 180 + 300


def _state(clf):
    return {name: (id(value), repr(value)) for name, value in vars(clf).items()}


def test_a_refusal_changes_nothing():
    strict = BoundedTPRFPR(0.6, 0.5)
    clf = FITTED.with_rule(strict, X_1, Y_1, guarantee="high_probability")
    before, decisions = _state(clf), clf.predict(X_NEW)
    far = np.where(Y_2[:, None] < 0, -0.5, X_2)  # OOD samples amid a class
    for _ in range(2):
        with pytest.raises(NotCertifiableError, match="by 60 ID and 60 OOD") as caught:
            clf.recalibrate(far, Y_2, window=60)
        assert "random_state" not in str(caught.value)
        assert _state(clf) == before
        assert_array_equal(clf.predict(X_NEW), decisions)
    with pytest.raises(ValueError, match="X has 1 features"):
        clf.recalibrate(X_2[:, :1], Y_2)
    assert _state(clf) == before


def test_errors_of_all_certificates_sum_to_delta():
    spent = Certificate(delta=0.1, schedule="all")
    clf = FITTED.with_rule(BoundedAbstention(0.5), X_1, Y_1, guarantee=spent)
    deltas = [clf.operating_point_.certificate.delta]
    decisions = clf.predict(X_NEW)
    clf.set_params(rule=BoundedAbstention(0.995))
    with pytest.raises(NotCertifiableError):
        clf.recalibrate(X_2, Y_2)
    assert_array_equal(clf.predict(X_NEW), decisions)  # but the third is the next
    clf.set_params(rule=BoundedAbstention(0.5))
    for _ in range(8):
        clf.recalibrate(X_2[:40], Y_2[:40])
        deltas.append(clf.operating_point_.certificate.delta)
    assert_allclose(deltas[0], 0.060792710185402665)
    assert_allclose(deltas[1], 0.1 * 6 / np.pi**2 / 9)
    assert_allclose(deltas[-1], 0.0006079271018540266)
    spent = [spent._of(m, 1.0).delta for m in range(1, 2000)]
    assert_allclose(sum(spent), 0.1, rtol=1e-3)


# ---- promises

POPULATION = 5000


def _line(rng, n, *, shift=0.0):
    """Errors are likely near 0; with a shift labels are more often wrong."""
    x = rng.normal(size=n)
    p = 1 / (1 + np.exp(-2.5 * x))
    y = (rng.random(n) < (1 - shift) * p + shift / 2).astype(int)
    return x[:, None], y


BASE = LogisticRegression().fit(*_line(np.random.default_rng(99), 5000))
X_ALL, Y_ALL = _line(np.random.default_rng(98), POPULATION)


def _started(rule, guarantee, *samples):
    clf = RejectOptionClassifier(
        FrozenEstimator(BASE), rule=rule, calibration="same", guarantee=guarantee
    )
    return clf.fit(*samples)


def _risk(clf):
    accepted = clf.accept_proba(X_ALL) > 0
    return (clf.estimator_.predict(X_ALL) != Y_ALL)[accepted].mean()


@pytest.mark.parametrize("choose", ["split", "previous"])
@pytest.mark.parametrize("n_draws", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_promise_after_a_change_of_the_labels(n_draws, choose):
    """The first samples have cleaner labels: only fresh samples may certify."""
    rule, delta = BoundedImprovement(0.11), 0.2
    certified = broken = 0
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        clf = _started(rule, None, *_line(rng, 1500, shift=-0.25))
        clf.set_params(guarantee=Certificate(delta=delta), random_state=seed)
        drawn = rng.integers(POPULATION, size=400)
        try:
            clf.recalibrate(X_ALL[drawn], Y_ALL[drawn], choose=choose)
        except NotCertifiableError:
            continue
        certified += 1
        broken += _risk(clf) > 0.11
    limit = binom.ppf(0.999, n_draws, delta)
    if choose == "previous":
        assert certified > 0.5 * n_draws and broken <= limit
    else:  # the pool is of two distributions, which the text excludes
        assert broken > limit


@pytest.mark.parametrize("n_draws", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_promise_of_all_certificates_over_time(n_draws):
    """Five certificates in turn: with "all" any of them breaks with delta at most."""
    rule, delta, broken = BoundedImprovement(0.12), 0.2, 0
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        blocks = rng.integers(POPULATION, size=(5, 250))
        guarantee = Certificate(delta=delta, schedule="all")
        clf = _started(BoundedAbstention(0.1), guarantee, *_line(rng, 500))
        clf.set_params(rule=rule, random_state=seed)
        is_broken = False
        for block in blocks:
            try:
                clf.recalibrate(X_ALL[block], Y_ALL[block], window=750)
            except NotCertifiableError:
                continue
            is_broken |= _risk(clf) > 0.12
        broken += is_broken
    assert broken <= binom.ppf(0.999, n_draws, delta)


@pytest.mark.parametrize("n_draws", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_promise_with_labels_of_accepted_samples(n_draws):
    delta = 0.2
    certified = broken = 0
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        drawn = rng.integers(POPULATION, size=800)
        clf = _started(BoundedAbstention(0.9), None, X_ALL[drawn], Y_ALL[drawn])
        clf.set_params(
            rule=BoundedImprovement(0.13), guarantee=Certificate(delta=delta)
        )
        before, old = clf.operating_point_, clf.accept_proba(X_ALL)
        drawn = rng.integers(POPULATION, size=600)
        drawn = drawn[old[drawn] > 0]
        try:
            clf.set_params(random_state=seed)
            clf.recalibrate(X_ALL[drawn], Y_ALL[drawn], accepted_only=True)
        except NotCertifiableError:
            continue
        certified += 1
        broken += _risk(clf) > 0.13
        assert np.all(clf.accept_proba(X_ALL) <= old)
        assert clf.lambda_ <= before.lam and np.isnan(clf.operating_point_.tpr)
    assert certified > 0.5 * n_draws
    assert broken <= binom.ppf(0.999, n_draws, delta)


def test_accepted_samples_of_two_scores():
    clf = make_clf(ood_detector=Mahalanobis()).fit(X, Y)
    clf.set_params(rule=BoundedImprovement(0.4), guarantee="high_probability")
    inside = clf.accept_proba(X_BOTH) > 0
    theta, before = clf.theta_, clf.reject_reason(X_BOTH)
    clf.recalibrate(X_BOTH[inside], Y_BOTH[inside], accepted_only=True)
    assert clf.theta_ == theta != 0
    assert np.all(clf.accept_proba(X_BOTH)[~inside] == 0)
    certificate = clf.operating_point_.certificate
    # earlier samples chose the rule that accepted these
    assert certificate.n_id == np.sum(inside & (Y_BOTH >= 0))
    statement = certificate.statements[0]
    assert statement.text == "selective risk <= 0.4" and statement.pvalue <= 0.1
    # accepted samples have lower scores: percentiles remain those among all samples
    after = clf.reject_reason(X_BOTH)
    assert_array_equal(after.risk_percentile, before.risk_percentile)
    assert_array_equal(after.ood_percentile, before.ood_percentile)
    with pytest.raises(ValueError, match="accepted samples only"):
        clf.recalibrate(X_2, Y_2)


# ---- groups and sources


def test_certificates_within_classes():
    rule, options = BoundedAbstention(0.5), {"n_per_class": 150}
    X_cal, y_cal = make_data(seed=4, **options)
    clf = FITTED.with_rule(rule, X_cal, y_cal, guarantee=Certificate(within="class"))
    statements = clf.operating_point_.certificate.statements
    assert [s.group for s in statements] == [0, 1, 2]
    assert statements[0].text == "TPR >= 0.5 in group 0"
    clf.recalibrate(*make_data(seed=5, **options))
    certificate = clf.operating_point_.certificate
    assert len(certificate.statements) == 3 and certificate.n_id == 3 * 180

    guarantee = Certificate(within="predicted_class")
    clf = FITTED.with_rule(rule, X_cal, y_cal, guarantee=guarantee)
    n_class_0 = np.sum(FITTED.predict(X_cal[y_cal >= 0]) == 0)
    estimate = clf.operating_point_.certificate.statements[0].estimate
    n_certify = n_class_0 - int(0.4 * n_class_0)
    assert_allclose(estimate * n_certify, round(estimate * n_certify))


def test_certificates_within_groups_and_for_sources():
    guarantee = Certificate(within="groups", delta=0.2)
    group = np.array(["north", "south"])[np.arange(len(Y)) % 2]
    source = np.array(["near", "far"])[np.arange(len(Y)) // 2 % 2]
    labels = {"groups": group, "ood_source": source}
    clf = make_clf(rule=BoundedTPRFPR(0.5, 0.8), guarantee=guarantee, calibration=0.6)
    clf.fit(X, Y, **labels)
    certified = [
        (s.group, s.source) for s in clf.operating_point_.certificate.statements
    ]
    assert certified == [
        ("north", None),
        ("south", None),
        (None, "far"),
        (None, "near"),
    ]
    clf.recalibrate(X, Y, **labels)
    with pytest.raises(ValueError, match=r"needs a group for each sample: call"):
        clf.recalibrate(X, Y, ood_source=source)
    with pytest.raises(ValueError, match="given samples have no ood_source, but the"):
        clf.recalibrate(X, Y, groups=group)
    with pytest.raises(ValueError, match="stored samples have no ood_source, but the"):
        clf.with_rule(clf.rule, X, Y, groups=group).recalibrate(X, Y, **labels)


# ---- errors


def test_errors():
    with pytest.raises(NotFittedError):
        make_clf().recalibrate(X_2, Y_2)
    with pytest.raises(ValueError, match=r"Use with_rule\(rule, X, y\)"):
        make_clf(rule=None).fit(X, Y).recalibrate(X_2, Y_2)
    clf = FITTED.with_rule(LOOSE, X_1, Y_1)
    with pytest.raises(ValueError, match="choose must be 'split' or 'previous', got"):
        clf.recalibrate(X_2, Y_2, choose="latest")
    with pytest.raises(ValueError, match="window == 0, must be >= 1"):
        clf.recalibrate(X_2, Y_2, window=0)
    with pytest.raises(
        ValueError, match="choose='previous' and accepted_only=True are"
    ):
        clf.recalibrate(X_2, Y_2, choose="previous")
    with pytest.raises(ValueError, match=r"y has the labels \[7\]"):
        clf.recalibrate(X_2, np.where(Y_2 == 2, 7, Y_2))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.recalibrate(X_2, Y_2, ood_source=Y_2[1:])
    with pytest.raises(ValueError, match="ood_source is for a guarantee"):
        clf.recalibrate(X_2, Y_2, ood_source=Y_2)
    with pytest.raises(
        ValueError, match="accepted_only=True are for guarantee='high_p"
    ):
        clf.recalibrate(X_2, Y_2, accepted_only=True)
    clf.set_params(guarantee="high_probability")
    with pytest.raises(ValueError, match="only the 240 new ID samples"):
        clf.recalibrate(X_2, Y_2, choose="previous", window=240)
    with pytest.raises(ValueError, match="TPR and FPR are fractions of all samples"):
        clf.recalibrate(X_2, Y_2, accepted_only=True)
    with pytest.raises(ValueError, match="labels of accepted samples certify bounds"):
        clf.set_params(rule=CostBased(0.2)).recalibrate(X_2, Y_2, accepted_only=True)
    clf.set_params(rule=BoundedImprovement(0.4))
    with pytest.raises(ValueError, match=r"rejects \d+ of 240 ID samples"):
        clf.recalibrate(X_2, Y_2, accepted_only=True)
    cross_fitted = make_clf(calibration=3).fit(X, Y)
    cross_fitted.recalibrate(X_2, Y_2)
    with pytest.raises(ValueError, match="stored ones were cross-fitted"):
        cross_fitted.set_params(guarantee="ltt").recalibrate(X_2, Y_2)


def test_groups_of_a_guarantee():
    clf = make_clf(rule=BoundedAbstention(0.5), guarantee=Certificate(within="groups"))
    with pytest.raises(ValueError, match=r"call fit\(X, y, groups="):
        clf.fit(X, Y)
    clf.set_params(guarantee="high_probability")
    with pytest.raises(ValueError, match=r"use guarantee=Certificate\(within='groups'"):
        clf.fit(X, Y, groups=np.arange(len(Y)) // 2)
    reg = RejectOptionRegressor(
        LinearRegression(),
        rule=BoundedAbstention(0.5),
        guarantee=Certificate(within="class"),
    )
    with pytest.raises(ValueError, match="is for classifiers; a regressor has no"):
        reg.fit(X, Y.astype(float))


# --- unlabeled samples -------------------------------------------------------

PRECISE = BoundedPrecisionRecall(precision_min=0.7, recall_min=0.5)


def _in_use(share, n=1500, seed=11):
    """Unlabeled samples with a fraction of OOD samples."""
    X_use, y_use = make_data(seed=seed, n_per_class=n)
    is_ood = y_use < 0
    keep = np.random.default_rng(seed).uniform(size=len(y_use)) < share
    used = np.where(is_ood, keep, True)
    return X_use[used], y_use[used]


def test_adapt_is_certify_with_unlabeled_scores():
    X_use, _ = _in_use(0.3)
    clf = FITTED.with_rule(PRECISE, X_BOTH, Y_BOTH, guarantee="high_probability")
    risk, ood = (-score for score in clf.score_pair(X_use))
    point = certify(
        PRECISE,
        clf._calibration.samples,
        Certificate("high_probability"),
        unlabeled=(risk, ood),
        random_state=clf.random_state,
    )
    assert clf.adapt(X_use) is clf
    assert clf.operating_point_.certificate == point.certificate
    assert point.certificate.n_unlabeled == round(0.6 * len(X_use))
    assert clf.operating_point_.lam == point.lam
    _, y_use = _in_use(0.3)
    accepted = clf.accept_proba(X_use) > 0
    assert (y_use[accepted] >= 0).mean() >= 0.7


def test_refused_adaptation_keeps_the_rule():
    """Where all samples at deployment are OOD there is no precise rule."""
    clf = FITTED.with_rule(PRECISE, X_BOTH, Y_BOTH, guarantee="high_probability")
    before = astuple(clf.operating_point_)
    only_ood = X_BOTH[Y_BOTH < 0]
    with pytest.raises(NotCertifiableError):
        clf.adapt(only_ood)
    assert astuple(clf.operating_point_) == before


def test_errors_of_adapt():
    loose = FITTED.with_rule(LOOSE, X_1, Y_1, guarantee="high_probability")
    with pytest.raises(ValueError, match="precision"):
        loose.adapt(X_2)
    plain = FITTED.with_rule(PRECISE, X_1, Y_1)
    with pytest.raises(ValueError, match="adapt is for guarantee='high_probability'"):
        plain.adapt(X_2)
    with pytest.raises(ValueError, match="There is no rule to recalibrate"):
        FITTED.adapt(X_2)
    with pytest.raises(NotFittedError):
        make_clf(rule=PRECISE).adapt(X_2)
