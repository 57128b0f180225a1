"""Classes of which the draw holds all samples out: ID classes, never predicted."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.metrics import make_selective_risk_scorer
from skood.rejection import BoundedAbstention, RejectOptionClassifier

MEANS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [2.0, 8.0]])


def draw(counts, seed=0):
    """Samples of Gaussian classes 0, 1, 2, 3 in the plane, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return MEANS[y] + rng.normal(size=(len(y), 2)), y


def make_clf(**params):
    options = {"rule": BoundedAbstention(0.5), "random_state": 0, **params}
    return RejectOptionClassifier(
        options.pop("estimator", LogisticRegression()),
        ood_detector=KNN(n_neighbors=3, normalize=False),
        **options,
    )


def fit_without(clf, X, y, label=3):
    """Fit with the first seed that holds all samples of a class out."""
    for seed in range(100):
        clf.set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)
            clf.fit(X, y)
        if label not in clf.estimator_.classes_:
            return clf
    raise AssertionError("no draw held the class out")


@pytest.mark.parametrize("guarantee", [None, "high_probability", "ltt", "expectation"])
def test_class_with_a_single_sample(guarantee):
    X, y = draw([60, 60, 60, 1])
    clf = fit_without(make_clf(guarantee=guarantee), X, y)
    with pytest.warns(
        SkoodWarning,
        match=r"All samples of 1 of 4 classes \(3\) are held out: .* never predicted.*"
        "count as errors.* smaller calibration fraction",
    ):
        clf.fit(X, y)
    assert_array_equal(clf.estimator_.classes_, [0, 1, 2])
    assert_array_equal(clf.classes_, [0, 1, 2, 3])
    assert 3 not in clf.predict(X)


def test_most_draws_fit_a_class_with_a_single_sample():
    X, y = draw([60, 60, 60, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        fitted = [
            3 in make_clf(random_state=s).fit(X, y).estimator_.classes_
            for s in range(10)
        ]
    assert 3 < sum(fitted) < 10


def test_probabilities_and_margins_have_a_column_for_it():
    X, y = draw([60, 60, 60, 1])
    clf = fit_without(make_clf(), X, y, label=3)
    proba, margins = clf.predict_proba(X), clf.decision_function(X)
    assert_array_equal(proba[:, :3], clf.estimator_.predict_proba(X))
    assert_array_equal(proba[:, 3], 0.0)
    assert_array_equal(margins[:, :3], clf.estimator_.decision_function(X))
    assert (margins[:, 3] < margins[:, :3].min()).all()
    assert np.isfinite(margins).all()
    # a class between others, of strings
    names = np.array(["a", "c", "d", "b"])
    clf = fit_without(make_clf(reject_label="none"), X, names[y], label="b")
    assert clf.classes_.tolist() == ["a", "b", "c", "d"]
    inner = clf.estimator_.predict_proba(X)
    assert_array_equal(clf.predict_proba(X), np.insert(inner, 1, 0.0, axis=1))


def test_margin_of_two_classes_becomes_a_column_per_class():
    X, y = draw([60, 60, 1])
    clf = fit_without(make_clf(), X, y, label=2)
    margin = clf.estimator_.decision_function(X)
    assert margin.ndim == 1
    margins = clf.decision_function(X)
    assert_array_equal(margins[:, :2], np.column_stack([-margin, margin]))
    assert_array_equal(margins.argmax(axis=1), clf.estimator_.predict(X))


class OfPairs(KNeighborsClassifier):
    """A classifier with margins of pairs of classes, such as SVC."""

    def decision_function(self, X):
        return np.arange(6.0) * np.ones((len(X), 1))


def test_margins_of_pairs_are_left_alone():
    X, y = draw([30, 30, 30, 1])
    clf = fit_without(make_clf(estimator=OfPairs()), X, y)
    assert_array_equal(clf.decision_function(X), clf.estimator_.decision_function(X))


def test_it_is_an_id_class_in_evaluation():
    X, y = draw([60, 60, 60, 1])
    clf = fit_without(make_clf(rule=BoundedAbstention(1.0)), X, y)
    X_new, y_new = draw([10, 10, 10, 10], seed=1)
    report = clf.report(X_new, y_new)
    wrong = clf.predict(X_new) != y_new
    accepted = clf.accept_proba(X_new) == 1
    assert wrong[y_new == 3].all()
    assert report.n_id == 40 and report.n_ood == 0
    assert report.risk.value == pytest.approx(wrong[accepted].mean())
    assert clf.score(X_new, y_new) == pytest.approx(-wrong[accepted].mean())
    scorer = make_selective_risk_scorer(tpr_min=0.1, fpr_max=1.0)
    with_ood = np.r_[y_new, [-1, -1]], np.r_[X_new, [[30, 30], [40, 40]]]
    assert np.isfinite(scorer(clf, with_ood[1], with_ood[0]))


def test_losses_are_of_the_predictions_that_are_made():
    X, y = draw([60, 60, 60, 1])
    matrix = np.ones((4, 4)) - np.eye(4)
    matrix[3, :3] = [5.0, 6.0, 7.0]

    def loss(y_true, y_pred):
        return matrix[y_true, y_pred]

    everything = BoundedAbstention(1.0)
    with_matrix = fit_without(make_clf(rule=everything, loss=matrix), X, y)
    other = fit_without(make_clf(rule=everything, loss=loss), X, y)
    (row,) = np.flatnonzero(y == 3)
    wrong = matrix[3, with_matrix.predict(X[[row]])[0]]
    n = round(0.3 * len(y))
    plain = fit_without(make_clf(rule=everything), X, y)
    errors = plain.operating_point_.risk * n  # one of them is that of class 3
    for clf in (with_matrix, other):
        assert clf.operating_point_.risk * n == pytest.approx(errors - 1 + wrong)
    assert wrong >= 5


@pytest.mark.parametrize("calibration", [2, 5, StratifiedKFold(5)])
def test_fewer_samples_of_a_class_than_folds(calibration):
    X, y = draw([40, 40, 40, 1])
    clf = make_clf(calibration=calibration)
    with warnings.catch_warnings():
        # scikit-learn warns of what its splitter cannot stratify
        warnings.filterwarnings("ignore", "The least populated", UserWarning)
        with pytest.warns(SkoodWarning, match=r"one of the folds, all samples of 1 of"):
            clf.fit(X, y)
    # the final models are fitted on all samples
    assert_array_equal(clf.estimator_.classes_, [0, 1, 2, 3])
    assert_array_equal(clf.classes_, clf.estimator_.classes_)


def test_no_warning_where_the_classifier_is_frozen():
    X, y = draw([40, 40, 40, 1])
    frozen = FrozenEstimator(KNeighborsClassifier(1).fit(X, y))
    for seed in range(8):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*held out", SkoodWarning)
            clf = make_clf(estimator=frozen, random_state=seed).fit(X, y)
        assert_array_equal(clf.classes_, [0, 1, 2, 3])
    # labels that a frozen classifier has never seen are refused as before
    with pytest.raises(
        ValueError, match=r"labels \[9\], which are none of the classes"
    ):
        make_clf(estimator=frozen).fit(X, np.where(y == 3, 9, y))


def test_too_few_classes_to_fit():
    X, y = draw([20, 1])
    clf = make_clf()
    for seed in range(40):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SkoodWarning)
                clf.set_params(random_state=seed).fit(X, y)
        except ValueError as error:
            assert "have 1 of the 2 classes in y. Give more" in error.__notes__[0]
            return
    raise AssertionError("no draw held the second class out")


def test_single_sample_of_each_class_or_of_most():
    """As of 100 classes with 3 samples each: no error, and never an OOD label."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(60), 2)
    X = rng.normal(size=(60, 3))[y] * 3 + 0.1 * rng.normal(size=(120, 3))
    with pytest.warns(
        SkoodWarning, match=r"classes \(\d+, \d+, \d+, \d+, \d+, \.\.\.\)"
    ):
        clf = make_clf(estimator=KNeighborsClassifier(1), calibration=0.5).fit(X, y)
    assert_array_equal(clf.classes_, np.arange(60))
    assert clf.predict_proba(X).shape == (120, 60)
    assert clf.report(X, y).n_ood == 0
    lda = make_clf(estimator=LinearDiscriminantAnalysis())
    with pytest.warns(SkoodWarning, match="held out"):
        lda.fit(X, y)
