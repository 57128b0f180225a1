"""What every detector and uncertainty classifier inherits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KernelDensity
from sklearn.utils import Bunch, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skood.base import BaseDetector, UncertaintyDetector, UncertaintyMixin
from skood.detectors import KNN, MSP, Energy, Mahalanobis
from skood.utils._metaestimators import take_rows
from tests._thresholds import middle_of_gap


class FirstColumn(BaseDetector):
    """Scores a row by its first value; remembers what it was fitted on."""

    def _fit(self, X, y, sample_weight=None):
        X = self._validate(X, reset=True)
        self.seen_ = (X, y)
        return X[:, 0]

    def _score(self, X):
        return self._validate(X, reset=False)[:, 0]


class Failing(FirstColumn):
    error = None
    scores = None

    def _fit(self, X, y):
        scores = super()._fit(X, y)
        self.half_fitted_ = True
        if self.error is not None:
            raise self.error
        return scores if self.scores is None else self.scores

    def _score(self, X):
        return super()._score(X) if self.scores is None else self.scores


class Entropies(UncertaintyMixin, LogisticRegression):
    """Splits the entropy of its prediction by thirds."""

    def predict_uncertainty(self, X):
        p = self.predict_proba(X)
        h = -(p * np.log(p)).sum(axis=1)
        return Bunch(total=h, aleatoric=h / 3, epistemic=2 * h / 3)


rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = rng.integers(3, size=200)


NO_OOD_ROWS = (
    "score is the AUROC of ID against OOD samples, and there are no OOD samples."
)


@parametrize_with_checks(
    [FirstColumn()],
    expected_failed_checks=lambda estimator: dict.fromkeys(
        ("check_fit_score_takes_y", "check_pipeline_consistency"), NO_OOD_ROWS
    ),
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("contamination", [0.05, 0.2, 0.5])
def test_threshold_is_a_quantile_of_the_training_scores(contamination):
    detector = FirstColumn(contamination=contamination).fit(X)
    scores = detector.score_samples(X)
    np.testing.assert_array_equal(scores, X[:, 0])
    assert detector.offset_ == middle_of_gap(X[:, 0], contamination)
    np.testing.assert_array_equal(
        detector.decision_function(X), scores - detector.offset_
    )
    predicted = detector.predict(X)
    assert predicted.dtype.kind == "i"
    np.testing.assert_array_equal(predicted, np.where(scores < detector.offset_, -1, 1))
    assert np.mean(predicted == -1) == contamination


def test_the_threshold_itself_is_in_distribution():
    detector = FirstColumn(contamination=0.5).fit([[0.0], [1.0], [2.0]])
    assert detector.offset_ == 0.5
    assert detector.predict([[0.5], [0.499]]).tolist() == [1, -1]


def test_scores_are_float64():
    detector = FirstColumn().fit(X.astype(np.float32))
    assert detector.score_samples(X.astype(np.float32)).dtype == np.float64
    assert isinstance(detector.offset_, float)


@pytest.mark.parametrize(
    ("labels", "ood_label"),
    [
        (np.array([0, 1, -1]), -1),
        (np.array([0.0, 1.0, -1.0]), -1),
        (np.array(["cat", "dog", "ood"]), "ood"),
        (np.array(["cat", "dog", "ood"], dtype=object), "ood"),
        (np.array([0, 1, 99]), 99),
        ([0, 1, -1], -1),
        (pd.Series([0, 1, -1]), -1),
        (pd.Series(["cat", "dog", "ood"]), "ood"),
        (pd.Series(["cat", "dog", "ood"], dtype="category"), "ood"),
        (torch.tensor([0, 1, -1]), -1),
    ],
)
def test_ood_samples_are_left_out(labels, ood_label):
    X = [[1.0, 2.0], [3.0, 4.0], [-9.0, -9.0]]
    detector = FirstColumn(contamination=0.5, ood_label=ood_label).fit(X, labels)
    samples, id_labels = detector.seen_
    np.testing.assert_array_equal(samples, [[1, 2], [3, 4]])
    assert list(id_labels) == list(np.asarray(labels)[:2])
    assert detector.classes_.tolist() == list(np.asarray(labels)[:2])
    assert detector.offset_ == 2.0
    assert detector.fit_predict(X, labels).tolist() == [-1, 1, -1]


def test_without_labels_there_are_no_classes():
    detector = FirstColumn().fit(X, y)
    assert detector.classes_.tolist() == [0, 1, 2]
    detector.fit(X)
    assert not hasattr(detector, "classes_")  # nothing is left of the first fit
    assert detector.seen_[1] is None


def test_labels_of_ood_samples_need_an_ood_label():
    with pytest.raises(ValueError, match=r"No in-distribution samples .*ood_label=-1"):
        FirstColumn().fit(X, np.full(200, -1))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        FirstColumn().fit(X, X[:, 1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        FirstColumn().fit(X, np.where(y == 0, np.nan, y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FirstColumn().fit(X, y[:-1])


def test_score_is_the_auroc_of_id_against_ood():
    detector = FirstColumn().fit(X, y)
    labels = np.concatenate([y, [-1, 7, -1]])  # 7 is unknown: OOD, too
    samples = np.vstack([X, [[0.0, 0, 0], [-0.5, 0, 0], [X[3, 0], 0, 0]]])
    ood = samples[200:, 0]
    pairs = [(a > b) + 0.5 * (a == b) for a in X[:, 0] for b in ood]
    assert detector.score(samples, labels) == pytest.approx(np.mean(pairs))
    assert detector.score(samples, labels) == pytest.approx(
        roc_auc_score(np.arange(203) < 200, samples[:, 0])
    )
    # without classes only ood_label tells
    detector.fit(X)
    is_id = labels != -1
    assert detector.score(samples, labels) == pytest.approx(
        roc_auc_score(is_id, samples[:, 0])
    )
    with pytest.raises(NotFittedError):
        FirstColumn().score(X, y)


def test_score_with_string_labels():
    names = np.array(["a", "b", "c"])[y]
    detector = FirstColumn(ood_label="?").fit(X, names)
    names = np.where(X[:, 0] > 0, names, "?")
    assert detector.score(X, names) == 1.0
    assert detector.score(X, np.where(X[:, 0] > 0, names, "zebra")) == 1.0


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failed_fit_never_happened(error):
    detector = Failing().fit(X, y)
    state = dict(vars(detector))
    detector.error = error
    with pytest.raises(type(error)):
        detector.fit(X[:50] + 5)
    del detector.error
    assert vars(detector) == state
    fresh = Failing()
    fresh.error = error
    with pytest.raises(type(error)):
        fresh.fit(X)
    assert not hasattr(fresh, "half_fitted_")
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_nan_scores_raise():
    detector = Failing().fit(X)
    detector.scores = np.array([0.0, np.nan, 1.0, np.nan])
    for method in ("score_samples", "decision_function", "predict"):
        with pytest.raises(ValueError, match="Failing got NaN as the score of 2 of 4"):
            getattr(detector, method)(X[:4])
    with pytest.raises(ValueError, match="NaN as the score of 2 of 4 samples"):
        detector.fit(X)
    assert detector.offset_ == middle_of_gap(X[:, 0], 0.05)  # of the first fit


@pytest.mark.parametrize("scores", [[-np.inf] * 3 + [1.0] * 10, [np.inf] * 5])
def test_infinite_thresholds_raise(scores):
    detector = Failing()
    detector.scores = np.array(scores)
    with pytest.raises(ValueError, match="no finite threshold: the training scores at"):
        detector.fit(X)
    assert not hasattr(detector, "offset_")


def test_single_infinite_scores_are_ranked():
    detector = Failing()
    detector.scores = np.array([-np.inf] + [1.0] * 99)
    detector.fit(X)
    assert 0.999 < detector.offset_ < 1.0
    assert detector.predict(X).tolist() == [-1] + [1] * 99


def test_parameters_are_validated():
    for params, text in [
        (
            {"contamination": 0.6},
            r"'contamination' parameter of FirstColumn must be a f",
        ),
        ({"contamination": 0}, "'contamination' parameter of FirstColumn"),
        (
            {"ood_label": 1.5},
            "'ood_label' parameter of FirstColumn must be an instance",
        ),
    ]:
        with pytest.raises(ValueError, match=text):
            FirstColumn(**params).fit(X)


def test_unfitted():
    for method in ("score_samples", "decision_function", "predict"):
        with pytest.raises(
            NotFittedError, match="This FirstColumn instance is not fit"
        ):
            getattr(FirstColumn(), method)(X)


# --- input ---------------------------------------------------------------------


def test_data_frames():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    detector = FirstColumn().fit(frame, pd.Series(y, index=frame.index[::-1]))
    assert detector.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(detector.score_samples(frame), X[:, 0])
    with pytest.raises(ValueError, match="feature names should match"):
        detector.predict(frame[["b", "a", "c"]])
    labels = np.where(np.arange(200) < 150, 0, -1)
    # rows are taken by position, whatever the index says
    detector = FirstColumn().fit(frame.set_index(frame.index[::-1]), labels)
    np.testing.assert_array_equal(detector.seen_[0], X[:150])


def test_tensors():
    tensor = torch.as_tensor(X, dtype=torch.float32).requires_grad_()
    labels = torch.as_tensor(np.where(np.arange(200) < 150, 0, -1))
    detector = FirstColumn().fit(tensor, labels)
    np.testing.assert_array_equal(detector.seen_[0], X[:150].astype(np.float32))
    scores = detector.score_samples(tensor)
    assert isinstance(scores, np.ndarray)
    np.testing.assert_array_equal(scores, X[:, 0].astype(np.float32))


def test_take_samples():
    indices = np.array([2, 0])
    texts = ["a", "b", "c"]
    assert take_rows(texts, indices) == ["c", "a"]
    assert take_rows(torch.tensor([1, 2, 3]), indices).tolist() == [3, 1]
    for sparse in (csr_matrix(np.eye(3)), csr_matrix(np.eye(3)).tocoo()):
        np.testing.assert_array_equal(
            take_rows(sparse, indices).toarray(), np.eye(3)[indices]
        )
    assert take_rows(pd.Series(texts, index=[2, 1, 0]), indices).tolist() == ["c", "a"]

    class ArrayLike:
        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0], [2.0], [3.0]], dtype=dtype)

    assert take_rows(ArrayLike(), indices).tolist() == [[3.0], [1.0]]


# --- what is wrapped -----------------------------------------------------------

iris, species = load_iris(return_X_y=True)
clf = LogisticRegression(max_iter=500).fit(iris, species)


def test_frozen_estimator_tells_the_classes_where_y_does_not():
    detector = Energy(FrozenEstimator(clf)).fit(iris)
    assert detector.classes_.tolist() == [0, 1, 2]
    assert detector.n_features_in_ == 4
    assert detector.estimator_.estimator is clf
    # labels, where there are any, have the last word
    detector.fit(iris[:100], species[:100])
    assert detector.classes_.tolist() == [0, 1]
    scores = detector.score_samples(iris)
    assert detector.score(iris, species) == pytest.approx(
        roc_auc_score(species < 2, scores)
    )


def test_an_estimator_is_cloned_and_fitted_without_ood_samples():
    inner = LogisticRegression(max_iter=500)
    labels = np.where(species == 1, -1, species)
    detector = MSP(inner).fit(iris, labels)
    assert not hasattr(inner, "coef_")
    expected = clone(inner).fit(iris[species != 1], species[species != 1])
    np.testing.assert_allclose(detector.estimator_.coef_, expected.coef_, rtol=1e-6)
    assert detector.estimator_.classes_.tolist() == [0, 2]


def test_wrapped_estimators_that_need_labels():
    text = r"MSP requires y to be passed, but the target y is None: it fits its estim"
    with pytest.raises(ValueError, match=text):
        MSP(LogisticRegression()).fit(iris)
    # the classifier's own errors come through
    with pytest.raises(ValueError, match="Input X contains NaN"):
        MSP(LogisticRegression()).fit(iris * np.nan, species)


def test_wrapped_estimators_that_need_none():
    class Density(KernelDensity, UncertaintyMixin):
        def predict_uncertainty(self, X):
            return Bunch(total=-self.score_samples(X), aleatoric=0, epistemic=0)

    detector = UncertaintyDetector(Density(), component="total").fit(iris)
    np.testing.assert_allclose(
        detector.score_samples(iris), KernelDensity().fit(iris).score_samples(iris)
    )
    with pytest.raises(ValueError, match="Input X contains NaN"):
        detector.fit(iris * np.nan)


def test_tags_follow_what_is_wrapped():
    tags = get_tags(UncertaintyDetector(Entropies()))
    assert tags.estimator_type == "outlier_detector"
    assert tags.target_tags.required
    # scikit-learn 1.6 does not say yet that a linear model takes sparse rows
    assert tags.input_tags.sparse == get_tags(Entropies()).input_tags.sparse
    assert not get_tags(Mahalanobis()).target_tags.required


@pytest.mark.parametrize(
    ("component", "share"), [("total", 1), ("aleatoric", 1 / 3), ("epistemic", 2 / 3)]
)
def test_uncertainty_detector(component, share):
    model = Entropies(max_iter=500)
    detector = UncertaintyDetector(model, component=component).fit(iris, species)
    p = clf.predict_proba(iris)
    expected = share * np.array([sum(v * np.log(v) for v in row) for row in p])
    np.testing.assert_allclose(detector.score_samples(iris), expected, rtol=1e-6)
    frozen = UncertaintyDetector(
        FrozenEstimator(detector.estimator_), component=component
    )
    np.testing.assert_array_equal(
        frozen.fit(iris).score_samples(iris), detector.score_samples(iris)
    )
    assert frozen.classes_.tolist() == [0, 1, 2]
    assert frozen.offset_ == pytest.approx(middle_of_gap(expected, 0.05))
    assert detector.offset_ < frozen.offset_  # of models without the samples


def test_uncertainty_detector_errors():
    with pytest.raises(
        ValueError, match="must be an object implementing 'fit' and 'predict_uncert"
    ):
        UncertaintyDetector(LogisticRegression()).fit(iris, species)
    with pytest.raises(
        ValueError, match="'component' parameter of UncertaintyDetector"
    ):
        UncertaintyDetector(Entropies(), component="model").fit(iris, species)
    with pytest.raises(NotFittedError):
        UncertaintyDetector(Entropies()).predict(iris)


def test_what_a_subclass_must_define():
    class Nothing(BaseDetector):
        def _score(self, X):
            return X[:, 0]

    with pytest.raises(TypeError, match=r"abstract .*_fit"):
        Nothing()
    with pytest.raises(TypeError, match="abstract"):
        BaseDetector()


def test_text_labels_beside_the_number_minus_1():
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.5], [0.5, 1.0], [9.0, 9.0]])
    detector = KNN(n_neighbors=1).fit(X, ["cat", "dog", "cat", "dog", -1])
    np.testing.assert_array_equal(detector.classes_, ["cat", "dog"])
    assert len(detector.bank_) == 4


def test_uncertainty_threshold_of_many_samples():
    """A search for each of many training rows would cost more than the fit."""
    sizes = []

    class Counting(KernelDensity, UncertaintyMixin):
        def predict_uncertainty(self, X):
            sizes.append(len(X))
            return Bunch(total=-self.score_samples(X))

    X = np.random.default_rng(0).normal(size=(3000, 2))
    detector = UncertaintyDetector(Counting(), component="total").fit(X)
    assert sizes == [500, 500]  # each of another model
    scores = detector.score_samples(X[::3])
    assert 0.03 < np.mean(scores < detector.offset_) < 0.07
    few = UncertaintyDetector(Counting(), component="total").fit(X[:1000])
    assert sizes[3:] == [200] * 5
    frozen = UncertaintyDetector(FrozenEstimator(few.estimator_), component="total")
    assert frozen.fit(X).offset_ < np.inf
    assert sizes[8:] == [1000]


def test_scores_are_finite():
    """A score beyond the range of float64 keeps its rank as the least number."""
    detector = Failing().fit(X)
    detector.scores = np.array([-np.inf, np.inf, 1.0])
    largest = np.finfo(np.float64).max
    assert detector.score_samples(X[:3]).tolist() == [-largest, largest, 1.0]
    detector.offset_ = 1e300
    assert np.isfinite(detector.decision_function(X[:3])).all()
    assert detector.predict(X[:3]).tolist() == [-1, 1, -1]
