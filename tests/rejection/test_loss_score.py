"""Tests of risk_detector="loss", a risk score that learns from errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification, make_moons
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skood import persistence
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.metrics import aurc
from skood.rejection import (
    BoundedAbstention,
    CostBased,
    PlugInCost,
    RejectOptionClassifier,
)

L4 = np.array([[0, 1, 2, 3], [4, 0, 1, 2], [9, 4, 0, 1], [3, 3, 3, 0.0]])


def moons(seed=0):
    x, y = make_moons(1200, noise=0.25, random_state=seed)
    return x[:700], y[:700], x[700:], y[700:]


def make(estimator=None, **params):
    estimator = LogisticRegression() if estimator is None else estimator
    return RejectOptionClassifier(estimator, "loss", random_state=0, **params)


def mid_ranks(reference, values):
    below = (reference < values[:, None]).sum(axis=1)
    return (below + (reference <= values[:, None]).sum(axis=1)) / (2 * len(reference))


def by_hand(detector, fitted, classifier, x, y, x_new, loss, groups=None):
    """Scores of the definition, by loops over folds and samples."""
    rng = np.random.RandomState(detector.random_state)
    kind = KFold if groups is None else GroupKFold
    labels, losses, risks, tops = [], np.empty(len(y)), np.empty(len(y)), []

    def outputs(model, samples):
        proba = model.predict_proba(samples)
        tops = np.zeros((len(proba), 3))
        largest = -np.sort(-proba, axis=1)[:, :3]
        tops[:, : largest.shape[1]] = largest
        if loss is None:
            return model.predict(samples), 1 - proba.max(axis=1), tops
        rho = proba @ loss[np.ix_(model.classes_, model.classes_)]
        return model.classes_[rho.argmin(axis=1)], rho.min(axis=1), tops

    tops = np.empty((len(y), 3))
    for train, test in kind(5, shuffle=True, random_state=rng).split(x, y, groups):
        model = clone(classifier).fit(x[train], y[train])
        labels, risks[test], tops[test] = outputs(model, x[test])
        errors = (labels != y[test]) * 1.0
        losses[test] = errors if loss is None else loss[y[test], labels]
    model = HistGradientBoostingRegressor(
        max_iter=60,
        max_leaf_nodes=8,
        learning_rate=0.08,
        random_state=rng.randint(np.iinfo(np.int32).max),
    )
    features, expected = np.hstack([x, tops]), np.empty(len(y))
    for train, test in kind(5, shuffle=True, random_state=rng).split(x, y, groups):
        fold = clone(model).fit(features[train], losses[train])
        expected[test] = fold.predict(features[test])
    areas = []
    for v in (0, 0.25, 0.5, 0.75):
        mixed = (1 - v) * mid_ranks(risks, risks) + v * mid_ranks(expected, expected)
        areas.append(aurc(np.zeros(len(y)), None, -mixed, loss=losses))
    v = (0, 0.25, 0.5, 0.75)[int(np.argmin(areas))]
    _, risk, top = outputs(fitted, x_new)
    predicted = model.fit(features, losses).predict(np.hstack([x_new, top]))
    return v, (1 - v) * mid_ranks(risks, risk) + v * mid_ranks(expected, predicted)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", [None, L4])
def test_scores_of_the_definition(loss, grouped):
    x, y = make_classification(
        500, 6, n_informative=4, n_classes=4, class_sep=0.8, random_state=0
    )
    groups = np.arange(300) // 7 if grouped else None
    clf = make(GaussianNB(), loss="zero_one" if loss is None else loss)
    clf.fit(x[:300], y[:300], groups=groups)
    detector = clf.risk_detector_
    samples = x[:300], y[:300], x[300:]
    weight, expected = by_hand(
        detector, clf.estimator_, GaussianNB(), *samples, loss, groups
    )
    assert detector.weight_ == weight > 0
    assert_allclose(-clf.score_pair(x[300:])[0], expected, rtol=1e-9)


def test_errors_that_probabilities_do_not_show():
    x, y, x_new, y_new = moons()
    clf = make().fit(x, y)
    plain = RejectOptionClassifier(LogisticRegression()).fit(x, y)
    area, plain_area = (
        aurc(y_new, each.decide(x_new), each.score_pair(x_new)[0])
        for each in (clf, plain)
    )
    assert area < 0.8 * plain_area
    rule = CostBased(0.1, ood_prior=0.0)
    costs = []
    for detector in ("loss", None):
        clf = RejectOptionClassifier(
            LogisticRegression(), detector, rule=rule, calibration=3, random_state=0
        )
        costs.append(-clf.fit(x, y).score(x_new, y_new))
    assert costs[0] < costs[1]


def test_noise_is_not_learned():
    # labels are noise that x does not predict: any score has the same AURC
    rng = np.random.default_rng(0)
    x, flip = rng.normal(size=(1000, 5)), rng.random(1000) < 0.3
    y = ((x[:, 0] > 0) ^ flip).astype(int)
    ratios = []
    for seed in range(3):
        parts = train_test_split(x, y, random_state=seed)
        areas = [
            aurc(parts[3], clf.decide(parts[1]), clf.score_pair(parts[1])[0])
            for clf in (
                make().fit(parts[0], parts[2]),
                RejectOptionClassifier(LogisticRegression()).fit(parts[0], parts[2]),
            )
        ]
        ratios.append(areas[0] / areas[1])
    assert np.mean(ratios) < 1.15


@pytest.mark.slow
@pytest.mark.parametrize("name", ["moons", "digits"])
@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        RandomForestClassifier(40, random_state=0),
    ],
)
def test_area_of_the_study(name, estimator):
    areas = []
    for seed in range(3):
        if name == "moons":
            x, y = make_moons(3000, noise=0.25, random_state=seed)
        else:
            x, y = load_digits(return_X_y=True)
            x = x / 16 + np.random.default_rng(seed).normal(0, 0.35, x.shape)
        x, x_new, y, y_new = train_test_split(x, y, test_size=0.4, random_state=seed)
        for detector in (None, "loss"):
            clf = RejectOptionClassifier(estimator, detector, random_state=0).fit(x, y)
            areas.append(aurc(y_new, clf.decide(x_new), clf.score_pair(x_new)[0]))
    ratio = np.sum(areas[1::2]) / np.sum(areas[::2])
    assert ratio <= (0.75 if name == "moons" else 1.01)


def test_equal_losses_leave_the_default_score():
    x = np.linspace(-5, 5, 60)[:, None]
    y = (x[:, 0] > 0).astype(int)
    tree = DecisionTreeClassifier().fit(x, y)
    with pytest.warns(SkoodWarning, match="All cross-validated losses are 0:"):
        clf = make(FrozenEstimator(tree)).fit(x, y)
    assert_array_equal(-clf.score_pair(x)[0], np.zeros(60))


class Recorded(GaussianNB):
    """It records the samples of its fits."""

    fits: list = []

    def fit(self, X, y, sample_weight=None):
        self.fits.append(np.round(X[:, 0], 9))
        return super().fit(X, y, sample_weight)


def test_frozen_classifiers_are_not_fitted_and_groups_stay_together():
    x, y, x_new, y_new = moons()
    Recorded.fits.clear()
    frozen = FrozenEstimator(Recorded().fit(x, y))
    clf = make(frozen, rule=BoundedAbstention(0.8)).fit(x_new, y_new)
    assert len(Recorded.fits) == 1
    assert set(clf.predict(x_new)) == {0, 1, -1}
    Recorded.fits.clear()
    groups = np.repeat(np.arange(70), 10)
    make(Recorded()).fit(x, y, groups=groups)
    assert len(Recorded.fits) == 6
    folds = [fit for fit in Recorded.fits if len(fit) < len(x)]
    for fit in folds:
        is_fitted = np.isin(np.round(x[:, 0], 9), fit).reshape(70, 10)
        assert (is_fitted.all(axis=1) | ~is_fitted.any(axis=1)).all()


def flattened(X):
    return np.reshape(X, (len(X), -1))


class OfImages(GaussianNB):
    """A classifier of images, arrays of shape (n_samples, 1, n)."""

    def fit(self, X, y):
        return super().fit(flattened(X), y)

    def predict_proba(self, X):
        return super().predict_proba(flattened(X))

    def predict(self, X):
        return super().predict(flattened(X))


def test_inputs_that_are_no_matrices():
    x, y, x_new, _ = moons()
    texts = np.array([f"t{a:.0f} u{b:.0f}" for a, b in x])
    kinds = {
        "texts": (texts, make_pipeline(CountVectorizer(), LogisticRegression())),
        "images": (x[:, None], OfImages()),
    }
    for name, (samples, estimator) in kinds.items():
        if name == "images":
            clf = make(FrozenEstimator(estimator.fit(samples, y))).fit(samples, y)
        else:
            clf = make(estimator).fit(samples, y)
        assert clf.risk_detector_.model_.n_features_in_ == 3
        scores = clf.score_pair(samples)[0]
        assert np.isfinite(scores).all() and np.ptp(scores) > 0.1
    # after a pipeline: the input of its last step
    clf = make(make_pipeline(FunctionTransformer(np.abs), GaussianNB())).fit(x, y)
    assert clf.risk_detector_.model_.n_features_in_ == 5
    mirrored = clf.score_pair(-x_new)[0]
    assert_array_equal(mirrored, clf.score_pair(x_new)[0])


def test_scores_are_of_single_samples():
    x, y, x_new, y_new = moons()
    names = np.array(["left", "right"])
    params = {"rule": BoundedAbstention(0.7), "ood_detector": make_pipeline(KNN())}
    with pytest.warns(SkoodWarning, match="no OOD samples"):
        clf = make(**params).fit(x, names[y])
    scores, labels = clf.score_pair(x_new)[0], clf.predict(x_new)
    for i in range(20):
        assert clf.score_pair(x_new[i : i + 1])[0] == scores[i]
    copy = pickle.loads(pickle.dumps(clf))
    assert_array_equal(copy.predict(x_new), labels)
    again = clf.with_rule(BoundedAbstention(0.7), x_new, names[y_new])
    assert_array_equal(again.score_pair(x_new)[0], scores)
    source = clf.report(x_new, names[y_new]).scores["risk"]
    assert source == "probabilities of LogisticRegression, and a model of its loss"
    assert any("probability" in sentence for sentence in clf.explain(x_new).sentences)


@pytest.mark.slow  # a file of 60 trees
def test_files(tmp_path):
    x, y, x_new, _ = moons()
    clf = make(GaussianNB(), loss=[[0, 1], [2, 0]], rule=BoundedAbstention(0.7))
    persistence.dump(clf.fit(x, y), tmp_path / "clf")
    trusted = persistence.trusted_types(compiled=True)
    copy = persistence.load(tmp_path / "clf", trusted=trusted)
    assert_array_equal(copy.predict(x_new), clf.predict(x_new))


def test_classes_that_folds_lack():
    x, y = make_classification(
        300, 6, n_informative=4, n_classes=3, class_sep=0.7, random_state=1
    )
    y[np.flatnonzero(y == 2)[2:]] = 0
    assert np.count_nonzero(y == 2) == 2
    for loss in ("zero_one", L4[:3, :3]):
        clf = make(GaussianNB(), loss=loss).fit(x, y)
        assert 0 < np.ptp(clf.score_pair(x)[0]) <= 1


def test_weights_reach_all_models():
    x, y, x_new, _ = moons()
    x, x_new = x.round(), x_new.round()  # the binning of weighted samples is slow
    weight = np.where(x[:, 0] > 0.5, 20.0, 1.0)
    ones = make(GaussianNB()).fit(x, y, sample_weight=np.ones(len(y)))
    plain = make(GaussianNB()).fit(x, y)
    assert_allclose(ones.score_pair(x_new)[0], plain.score_pair(x_new)[0], atol=1e-9)
    heavy = make(GaussianNB()).fit(x, y, sample_weight=weight)
    assert np.abs(heavy.score_pair(x_new)[0] - plain.score_pair(x_new)[0]).max() > 0.1


@pytest.mark.parametrize(
    ("params", "match"),
    [
        (
            {"rule": PlugInCost()},
            "PlugInCost takes the risk score .*leave risk_detector at None",
        ),
        ({"rule": CostBased(ood_prior=0.0), "calibration": "same"}, "risk_detector"),
        ({"estimator": SVC()}, r"risk_detector='loss' is .* SVC has no predict_proba"),
    ],
)
def test_bad_input(params, match):
    x, y, *_ = moons()
    if params.get("calibration") == "same":
        params = {**params, "estimator": FrozenEstimator(GaussianNB().fit(x, y))}
    with pytest.raises(ValueError, match=match):
        make(**params).fit(x, y)


def test_groups_that_are_too_few():
    x, y, *_ = moons()
    with pytest.raises(ValueError, match=r"'loss' models .* at least 2 groups"):
        make().fit(x, y, groups=np.zeros(len(y)))
