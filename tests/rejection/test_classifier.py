"""Tests of RejectOptionClassifier: decisions, labels, errors, losses, scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import asdict

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesClassifier, StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from skood.detectors import KNN, Energy, MaxLogit
from skood.epistemic import DeepEnsemble
from skood.exceptions import InfeasibleError, SkoodWarning
from skood.metrics import RiskCoverageDisplay, make_cost_scorer
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    RejectOptionClassifier,
    Solver,
)
from tests.rejection._problem import (
    PLAIN_KNN,
    RULE,
    X_NEW,
    Y_NEW,
    X,
    Y,
    make_clf,
)


@pytest.fixture(scope="module")
def fitted():
    return make_clf().fit(X, Y)


class Scaled(BaseEstimator):
    """A detector whose scores are those of another one, times a factor."""

    def __init__(self, detector, factor=1.0):
        self.detector = detector
        self.factor = factor

    def fit(self, X, y=None):
        self.detector_ = clone(self.detector).fit(X, y)
        return self

    def score_samples(self, X):
        return self.factor * self.detector_.score_samples(X)


# ------------------------------------------------------------------------- decisions


def test_predicts_the_class_or_rejects(fitted):
    accepted = fitted.accept_proba(X_NEW)
    assert accepted.dtype == np.float64
    assert set(accepted) == {0.0, 1.0}
    classes = fitted.estimator_.predict(X_NEW)
    decisions = fitted.predict(X_NEW)
    for label, proba, decided in zip(classes, accepted, decisions, strict=True):
        assert decided == (label if proba else -1)
    proba = fitted.estimator_.predict_proba(X_NEW)
    assert_array_equal(fitted.predict_proba(X_NEW), proba)
    margins = fitted.estimator_.decision_function(X_NEW)
    assert_array_equal(fitted.decision_function(X_NEW), margins)


def test_accepts_by_its_operating_point(fitted):
    point = fitted.operating_point_
    a = 1 - fitted.predict_proba(X_NEW).max(axis=1)
    b = -fitted.ood_detector_.score_samples(X_NEW)
    projected = np.cos(point.theta) * a / point.scales[0]
    projected += np.sin(point.theta) * b / point.scales[1]
    assert np.abs(projected - point.lam).min() > 1e-9
    assert_array_equal(fitted.accept_proba(X_NEW) == 1, projected <= point.lam)
    assert_array_equal(fitted.accept_proba(X_NEW) == 1, point.accept(a, b))
    assert_array_equal(
        fitted.accept_proba(X_NEW) == 1,
        a + fitted.mu_ * b <= fitted.lambda_ * point.scales[0] / np.cos(point.theta),
    )
    assert 0 <= fitted.gap_ <= 1e-3
    assert fitted.lower_bound_ == point.objective - fitted.gap_
    # the grid certifies nothing
    assert np.isnan(clone(fitted).set_params(solver="grid").fit(X, Y).gap_)


@pytest.mark.parametrize("calibration", [0.3, 3])
def test_two_scores_are_no_worse_than_either(calibration):
    options = {"calibration": calibration, "rule": BoundedAbstention(0.6)}
    both = make_clf(risk_detector=Energy(), **options).fit(X, Y)
    for detector in (Energy(), PLAIN_KNN):
        alone = make_clf(risk_detector=detector, ood_detector=None, **options)
        alone.fit(X, Y)
        assert both.operating_point_.risk <= alone.operating_point_.risk
        assert (alone.theta_, alone.mu_, alone.gap_) == (0.0, 0.0, 0.0)
    # Here one score cannot keep the OOD rows out, and the other one cannot rank risk.
    with pytest.raises(InfeasibleError):
        make_clf(ood_detector=None).fit(X, Y)


@pytest.mark.parametrize("factor", [1000.0, 2.0**-20])
@pytest.mark.parametrize("name", ["risk_detector", "ood_detector"])
def test_units_of_a_score_play_no_role(name, factor):
    parts = {"risk_detector": MaxLogit(), "ood_detector": PLAIN_KNN}
    parts = {key: make_pipeline(Scaled(d)) for key, d in parts.items()}
    parts["risk_detector"].set_params(scaled__detector=MaxLogit(LogisticRegression()))
    plain = make_clf(**parts).fit(X, Y)
    scaled = make_clf(**parts).set_params(**{f"{name}__scaled__factor": factor})
    scaled.fit(X, Y)
    assert_allclose(scaled.theta_, plain.theta_, rtol=1e-12)
    assert_allclose(scaled.lambda_, plain.lambda_)
    assert_array_equal(scaled.predict(X_NEW), plain.predict(X_NEW))
    ratio = factor if name == "risk_detector" else 1 / factor
    assert_allclose(scaled.mu_, ratio * plain.mu_)


def test_full_circle_of_angles():
    with pytest.warns(UserWarning, match="uses the risk score reversed"):
        clf = make_clf(
            risk_detector=make_pipeline(Scaled(Energy(LogisticRegression()), -1.0)),
            ood_detector=None,
            rule=BoundedAbstention(0.5),
            solver=Solver(angles="full"),
        )
        # one score has one direction; two have four
        clf.set_params(ood_detector=make_pipeline(PLAIN_KNN)).fit(X, Y)
    assert abs(clf.theta_) > np.pi / 2


# ------------------------------------------------------------------- no rule, no reject


def test_without_a_rule_it_is_the_classifier():
    clf = RejectOptionClassifier(LogisticRegression()).fit(X, Y)
    plain = LogisticRegression().fit(X[Y >= 0], Y[Y >= 0])
    for method in ("predict", "predict_proba", "decision_function"):
        assert_array_equal(getattr(clf, method)(X_NEW), getattr(plain, method)(X_NEW))
    assert_array_equal(clf.accept_proba(X_NEW), np.ones(len(X_NEW)))
    assert clf.operating_point_ is None
    for name in ("theta_", "lambda_", "mu_", "tau_", "gap_"):
        assert not hasattr(clf, name)
    is_id = Y_NEW >= 0
    assert clf.score(X_NEW, Y_NEW) == plain.score(X_NEW[is_id], Y_NEW[is_id])


@pytest.mark.parametrize("rule", [None, RULE])
def test_decisions_ignore_the_rule(rule):
    clf = make_clf(rule=rule).fit(X, Y)
    labels = clf.decide(X_NEW)
    assert_array_equal(labels, clf.estimator_.predict(X_NEW))
    accepted = clf.predict(X_NEW) != clf.reject_label_
    assert_array_equal(clf.predict(X_NEW)[accepted], labels[accepted])
    assert accepted.all() == (rule is None)


class SecondClass(RejectOptionClassifier):
    """It always decides for its second class."""

    def decide(self, X):
        return np.full(len(X), self.classes_[1])


def test_scorers_and_displays_take_the_labels_of_decide():
    clf = SecondClass(GaussianNB()).fit(X, Y)  # accepts all samples
    wrong = np.mean(Y_NEW[Y_NEW >= 0] != clf.classes_[1])
    assert wrong > 0.5 > np.mean(clf.estimator_.predict(X_NEW) != Y_NEW)
    scorer = make_cost_scorer(reject_id=0.3, ood_prior=0.0)
    assert_allclose(scorer(clf, X_NEW, Y_NEW), -wrong, rtol=1e-12)
    display = RiskCoverageDisplay.from_estimator(clf, X_NEW, Y_NEW)
    assert_allclose(display.risk[0][-1], wrong, rtol=1e-12)


def test_a_refit_equals_a_fresh_fit():
    clf = make_clf().fit(X_NEW, Y_NEW)
    assert_array_equal(
        clf.fit(X, Y).predict(X_NEW), make_clf().fit(X, Y).predict(X_NEW)
    )
    bare = clf.set_params(rule=None, ood_detector=None).fit(X, Y)
    fresh = RejectOptionClassifier(LogisticRegression()).fit(X, Y)
    assert set(vars(bare)) == set(vars(fresh))
    assert bare._reference is None


# --------------------------------------------------------------------------- labels

NAMES = np.array(["ant", "bee", "cat"])


def test_string_labels():
    y = np.where(Y < 0, "ood", NAMES[Y])
    expected = make_clf().fit(X, Y).predict(X_NEW)
    clf = make_clf(ood_label="ood", reject_label=-1).fit(X, y)
    assert_array_equal(clf.classes_, NAMES)
    mixed = clf.predict(X_NEW)
    assert mixed.dtype == object
    assert set(mixed) == {"ant", "bee", "cat", -1}
    assert all(isinstance(v, int) for v in mixed if not isinstance(v, str))
    clf.set_params(reject_label="I do not know").fit(X, y)
    decided = clf.predict(X_NEW)
    assert decided.dtype.kind == "U"
    assert_array_equal(
        decided, np.where(expected < 0, "I do not know", NAMES[expected])
    )
    assert_array_equal(mixed == -1, decided == "I do not know")


@pytest.mark.parametrize("kind", [str, object])
def test_the_default_reject_label_is_of_the_kind_of_the_classes(kind):
    """Predictions and labels of one kind are what scikit-learn's metrics take."""
    expected = make_clf().fit(X, Y).predict(X_NEW)
    clf = make_clf(ood_label="ood").fit(
        X, np.where(Y < 0, "ood", NAMES[Y]).astype(kind)
    )
    decided = clf.predict(X_NEW)
    assert clf.reject_label == "auto"
    assert clf.reject_label_ == "reject"
    assert all(isinstance(v, str) for v in decided)
    assert_array_equal(decided, np.where(expected < 0, "reject", NAMES[expected]))
    truth = np.where(Y_NEW < 0, "reject", NAMES[Y_NEW])
    assert accuracy_score(truth, decided) == np.mean(truth == decided)
    for y in (Y, Y.astype(float), Y.astype(object)):
        numbers = make_clf().fit(X, y)
        assert numbers.reject_label_ == -1
        assert_array_equal(numbers.predict(X_NEW), expected)
    is_right = make_clf(rule=BoundedAbstention(0.6), ood_detector=None)
    assert is_right.fit(X[Y >= 0], Y[Y >= 0] == 1).reject_label_ == "reject"
    bare = RejectOptionClassifier(LogisticRegression()).fit(X[Y >= 0], NAMES[Y[Y >= 0]])
    assert bare.reject_label_ == "reject"
    with pytest.raises(ValueError, match="reject_label='reject' is one of the classes"):
        bare.fit(X[Y >= 0], np.array(["reject", "bee", "cat"])[Y[Y >= 0]])


def test_labels_of_any_kind():
    decided = make_clf().fit(X, Y).predict(X_NEW)
    classes = np.array([3, 17, 40])
    clf = make_clf(ood_label=5).fit(X, np.where(Y < 0, 5, classes[Y]))
    assert_array_equal(clf.classes_, classes)
    assert_array_equal(clf.predict(X_NEW) == -1, decided == -1)
    accepted = decided != -1
    assert_array_equal(clf.predict(X_NEW)[accepted], classes[decided[accepted]])

    unsigned = make_clf(rule=BoundedAbstention(0.6)).fit(
        X[Y >= 0], Y[Y >= 0].astype(np.uint8)
    )
    assert_array_equal(np.unique(unsigned.predict(X_NEW)), [-1, 0, 1, 2])
    small = make_clf(reject_label=-1000).fit(X, Y.astype(np.int8))
    assert_array_equal(np.unique(small.predict(X_NEW)), [-1000, 0, 1, 2])
    is_right = make_clf(rule=BoundedAbstention(0.6)).fit(X[Y >= 0], Y[Y >= 0] == 1)
    assert set(is_right.predict(X_NEW).tolist()) == {True, False, "reject"}
    real = make_clf().fit(X, Y.astype(float)).predict(X_NEW)
    assert real.dtype == np.float64
    assert_array_equal(real, decided)
    # numbers next to a string
    mixed = Y.astype(object)
    mixed[Y < 0] = "unknown"
    clf = make_clf(ood_label="unknown", reject_label="reject").fit(X, mixed)
    expected = decided.astype(object)
    expected[decided == -1] = "reject"
    assert_array_equal(clf.predict(X_NEW), expected)
    assert clf.classes_.dtype.kind == "i"
    assert clf.report(X, mixed) == make_clf().fit(X, Y).report(X, Y)


def test_predictions_of_the_classifier_are_not_written_to():
    classes = np.array([0.0, 1.0, 2.0])

    class Stored(KNeighborsClassifier):
        def predict(self, X):
            return classes if len(X) == 3 else super().predict(X)

    clf = make_clf(Stored(), ood_detector=make_pipeline(PLAIN_KNN)).fit(X, Y * 1.0)
    assert clf.predict([[99.0, 99.0]] * 3).tolist() == [-1, -1, -1]
    assert classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize("rule", [None, RULE])
def test_reject_label_must_not_be_a_class(rule):
    clf = make_clf(rule=rule, reject_label=2)
    with pytest.raises(ValueError, match="reject_label=2 is one of the classes"):
        clf.fit(X, Y)


def test_labels_of_a_frozen_classifier_count_too():
    model = FrozenEstimator(LogisticRegression().fit(X[Y >= 0], Y[Y >= 0]))
    known = Y < 2  # class 2 is missing from the calibration data
    with pytest.raises(ValueError, match="reject_label=2 is one of the classes"):
        make_clf(model, reject_label=2).fit(X[known], Y[known])
    with pytest.raises(ValueError, match="ood_label=2 is one of the classes"):
        make_clf(model, ood_label=2).fit(X[Y >= 0], Y[Y >= 0])
    make_clf(model).fit(X[known], Y[known])
    with pytest.raises(
        ValueError, match=r"labels \[8, 9\], which are none of the classes \[0, 1, 2\]"
    ):
        make_clf(model).fit(X, np.where(Y == 1, 8, np.where(Y == 2, 9, Y)))


# --------------------------------------------------------------------------- errors


def test_errors_about_y():
    clf = make_clf()
    with pytest.raises(ValueError, match=r"RejectOptionClassifier requires y .* None"):
        clf.fit(X, None)
    with pytest.raises(ValueError, match="No in-distribution samples to fit"):
        clf.fit(X, np.full(len(X), -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.fit(X, Y[:-1])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        clf.fit(X, X[:, 0])


def test_labels_of_another_kind_than_in_fit(fitted):
    """The text "0" is no class 0: all samples would count as OOD, in silence."""
    for method in (fitted.report, fitted.score):
        for y in (Y_NEW.astype(str), Y_NEW.astype(str).astype(object)):
            with pytest.raises(
                ValueError, match=r"labels are text, such as '.', but the classes are"
            ):
                method(X_NEW, y)
    with pytest.raises(ValueError, match="contain '-1', but ood_label=-1"):
        make_clf().fit(X, Y.astype(str))
    assert fitted.report(X_NEW[:3], [-1, -1, -1]).n_ood == 3
    assert fitted.report(X_NEW, np.where(Y_NEW == 2, 9, Y_NEW)).n_ood > 40


@pytest.mark.parametrize("rule", [None, BoundedAbstention(0.6)])
def test_classes_of_opposite_sign(rule):
    """An `ood_label` that is one of two classes is named."""
    y = np.where(Y[Y >= 0] == 1, 1, -1)
    with pytest.raises(
        ValueError,
        match=r"Only the class 1 is left in y, because the 100 samples labeled "
        r"ood_label=-1 .* If -1 is a class, set ood_label",
    ):
        make_clf(rule=rule).fit(X[Y >= 0], y)
    clf = make_clf(ExtraTreesClassifier(5), rule=rule)
    with pytest.warns(SkoodWarning, match="Only the class 1 is left .* 100 samples"):
        clf.fit(X[Y >= 0], y)
    both = make_clf(rule=rule, ood_label=-9, reject_label=0, ood_detector=None).fit(
        X[Y >= 0], y
    )
    assert both.classes_.tolist() == [-1, 1]


def test_no_samples():
    for clf in (make_clf(), RejectOptionClassifier(LogisticRegression())):
        with pytest.raises(ValueError, match="X is required, got None"):
            clf.fit(None, Y)


def test_samples_that_the_rule_needs():
    clf = make_clf(ood_label=-7)
    with pytest.raises(
        ValueError,
        match=r"BoundedTPRFPR\(.*\) needs OOD samples: samples labeled ood_label=-7 in "
        r"y. Give some, or use a rule that needs none, such as TwoThresholds\(ood=0.05",
    ):
        clf.fit(X[Y >= 0], Y[Y >= 0])


def test_infeasible_bounds():
    clf = make_clf().fit(X, Y)
    before, predictions = dict(vars(clf)), clf.predict(X_NEW)
    clf.set_params(rule=BoundedTPRFPR(tpr_min=1.0, fpr_max=0.0), calibration=3)
    with pytest.raises(InfeasibleError, match="a TPR of at most") as info:
        clf.fit(X, Y)
    error = info.value
    assert 0 < error.max_tpr_at_fpr < 1
    assert 0 < error.min_fpr_at_tpr < 1
    # what it calls attainable is, and no more
    for name, bound, more in (
        ("tpr_min", error.max_tpr_at_fpr, 0.01),
        ("fpr_max", error.min_fpr_at_tpr, -0.01),
    ):
        point = clone(clf).set_params(**{f"rule__{name}": bound}).fit(X, Y)
        rule = {"tpr_min": 1.0, "fpr_max": 0.0, name: bound}
        assert point.operating_point_.tpr >= rule["tpr_min"]
        assert point.operating_point_.fpr <= rule["fpr_max"]
        with pytest.raises(InfeasibleError):
            clone(clf).set_params(**{f"rule__{name}": bound + more}).fit(X, Y)
    # the earlier fit is as it was
    assert_array_equal(clf.predict(X_NEW), predictions)
    fitted_before = {k: v for k, v in before.items() if k.endswith("_")}
    assert all(vars(clf)[k] is v for k, v in fitted_before.items())
    assert set(vars(clf)) == set(before)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"rule": "tpr"}, "'rule' parameter of RejectOptionClassifier must be"),
        ({"calibration": 1.0}, "'calibration' parameter .* Got 1.0"),
        ({"calibration": 1}, "'calibration' parameter .* Got 1 "),
        # a str has a method split, but is no splitter
        ({"calibration": "held-out"}, r"'calibration' parameter .* Got 'held-out'"),
        ({"ood_detector": LogisticRegression()}, "'ood_detector' parameter"),
        ({"solver": "magic"}, "'solver' parameter"),
        ({"loss": "hinge"}, "'loss' parameter"),
        ({"loss": [0.0, 1.0, 1.0]}, r"loss must be .* got an array of shape \(3,\)"),
        ({"loss": np.eye(2)}, r"for 3 classes must have shape \(3, 3\)"),
        ({"loss": -np.eye(3)}, "loss must be finite and not negative"),
        (
            {"rule": BoundedAbstention(1.5)},
            r"'coverage' .* of BoundedAb.* \[0.0, 1.0\]",
        ),
    ],
)
def test_invalid_parameters(params, match):
    with pytest.raises(ValueError, match=match):
        make_clf(**params).fit(X, Y)


@pytest.mark.parametrize("rule", [None, BoundedAbstention(0.6)])
def test_other_estimators_are_no_classifiers(rule):
    for estimator, match in (
        (Ridge(), r"classifier, got the regressor Ridge\(\)\. Use a classifier"),
        (PLAIN_KNN, r"got the outlier detector KNN\(.*\)\. Pass a detector as ood_det"),
        (KMeans(2), "must be a classifier, got the clusterer KMeans"),
        (make_pipeline(Ridge()), "must be a classifier, got the regressor Pipeline"),
        (_Nothing(), "fitted _Nothing has no classes_, or no predict"),
    ):
        with pytest.raises(TypeError, match=match):
            make_clf(estimator, rule=rule).fit(X, Y)
    torch = pytest.importorskip("torch")
    clf = RejectOptionClassifier(torch.nn.Linear(2, 3), rule=rule)
    with pytest.raises(
        TypeError, match=r"wrap a trained torch .* skood\.nn\.pretrained"
    ):
        clf.fit(X, Y)


class _Nothing(BaseEstimator):
    """It has a fit, and is of no kind."""

    def fit(self, X, y=None):
        return self


@pytest.mark.parametrize("name", ["estimator", "risk_detector", "ood_detector"])
def test_a_class_is_no_object(name):
    kind = LogisticRegression if name == "estimator" else KNN
    clf = RejectOptionClassifier(**{"estimator": LogisticRegression(), name: kind})
    with pytest.raises(TypeError, match=f"'{name}' parameter .* not a class"):
        clf.fit(X, Y)


@pytest.mark.parametrize(
    "estimator",
    [
        StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], cv=2),
        DeepEnsemble([LogisticRegression(), LogisticRegression(C=0.1)]),
    ],
)
def test_a_classifier_that_predicts_once_it_is_fitted(estimator):
    clf = make_clf(estimator).fit(X, Y)
    plain = clone(estimator).fit(X[Y >= 0], Y[Y >= 0])
    assert set(clf.predict(X_NEW)) == {-1, 0, 1, 2}
    bare = RejectOptionClassifier(clone(estimator)).fit(X, Y)
    assert_array_equal(bare.predict(X_NEW), plain.predict(X_NEW))


def test_not_fitted():
    clf = make_clf()
    for method in (
        "predict",
        "predict_proba",
        "decision_function",
        "accept_proba",
        "reject_reason",
    ):
        with pytest.raises(NotFittedError):
            getattr(clf, method)(X)
    for method in ("report", "score"):
        with pytest.raises(NotFittedError):
            getattr(clf, method)(X, Y)


# ------------------------------------------------------------------------------ loss


def test_loss_matrix_and_callable_agree(fitted):
    matrix = np.array([[0, 1, 5], [1, 0, 2], [5, 2, 0]], dtype=float)
    names = NAMES.tolist()

    def loss(y_true, y_pred):
        pairs = zip(y_true, y_pred, strict=True)
        return [matrix[names.index(t), names.index(p)] for t, p in pairs]

    y = np.where(Y < 0, "ood", NAMES[Y])
    options = {"ood_label": "ood", "calibration": 3}
    by_matrix = make_clf(loss=matrix, **options).fit(X, y)
    by_callable = make_clf(loss=loss, **options).fit(X, y)
    points = [asdict(clf.operating_point_) for clf in (by_matrix, by_callable)]
    assert_equal(*points)
    assert_allclose(by_matrix.score(X, y), by_callable.score(X, y))
    # costly pairs are paid for: the plain rule does worse on this loss
    plain = make_clf(calibration=3).fit(X, Y)
    accepted = plain.accept_proba(X) == 1
    assert plain.operating_point_.risk < 1 < matrix.max()
    assert by_matrix.operating_point_.risk != plain.operating_point_.risk
    assert accepted.any()


# ----------------------------------------------------------------------------- score


def test_score_is_minus_the_selective_risk(fitted):
    decided = fitted.predict(X_NEW)
    wrong = [d != t for d, t in zip(decided, Y_NEW, strict=True) if t >= 0 and d != -1]
    assert_allclose(fitted.score(X_NEW, Y_NEW), -np.mean(wrong))
    assert fitted.score(X_NEW, Y_NEW) == -fitted.report(X_NEW, Y_NEW).risk.value
    # rows of an unknown class are OOD: no loss, no acceptance counted
    y = np.where(Y_NEW == 2, 9, Y_NEW)
    wrong = [d != t for d, t in zip(decided, y, strict=True) if t in (0, 1) and d != -1]
    assert_allclose(fitted.score(X_NEW, y), -np.mean(wrong))


def test_score_without_accepted_or_id_samples(fitted):
    far = np.full((5, 2), 99.0)
    assert fitted.score(far, [0, 1, 2, 0, 1]) == -np.inf
    plain = RejectOptionClassifier(LogisticRegression()).fit(X, Y)
    for clf in (fitted, plain):
        with pytest.raises(
            ValueError, match=r"No in-distribution samples in y: classes_"
        ):
            clf.score(X, np.full(len(X), -1))
