"""Tests of the adapter for outlier detectors of scikit-learn and PyOD."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import DBSCAN
from sklearn.covariance import EllipticEnvelope
from sklearn.datasets import load_iris
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KernelDensity, LocalOutlierFactor, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags

from skood.combine import DSDE
from skood.detectors import KNN, SklearnDetector
from skood.utils._left_out import folds
from skood.utils._sample_keys import SampleKeys
from tests._thresholds import middle_of_gap

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    SklearnDetector(detector=IsolationForest(n_estimators=5, random_state=0)),
    SklearnDetector(),
    SklearnDetector(detector=LocalOutlierFactor(n_neighbors=3, novelty=True)),
    SklearnDetector(detector=OneClassSVM(), per_class=True),
    SklearnDetector(detector=OneClassSVM(), estimator=LogisticRegression()),
]

BARE = [
    IsolationForest(n_estimators=5, random_state=0),
    LocalOutlierFactor(novelty=True),
    OneClassSVM(nu=0.1),
    EllipticEnvelope(random_state=0),
    KernelDensity(),  # no outlier detector, but high score_samples mean inliers
]


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["s", "v", "w"])[y]


@pytest.mark.parametrize("bare", BARE, ids=lambda one: type(one).__name__)
def test_equals_the_bare_detector(bare, data):
    X, y = data
    detector = SklearnDetector(detector=bare, contamination=0.2).fit(X[:100], y[:100])
    expected = clone(bare).fit(X[:100])
    scores = detector.score_samples(X)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(scores, expected.score_samples(X))
    # the threshold is ours, of scores by detectors that were fitted without the sample
    left_out = np.empty(100)
    for fold in folds(SampleKeys(X[:100]), np.arange(100), y[:100], 5):
        part = fold.positions
        training = np.delete(X[:100], part, axis=0)
        other = clone(bare).fit(training)
        left_out[part] = other.score_samples(X[part])
        if isinstance(bare, OneClassSVM):  # a sum over the samples: fewer here
            own = np.quantile(other.score_samples(training), [0.25, 0.5, 0.75])
            whole = np.quantile(expected.score_samples(training), [0.25, 0.5, 0.75])
            slope = (whole[2] - whole[0]) / (own[2] - own[0])
            left_out[part] = whole[1] + slope * (left_out[part] - own[1])
    np.testing.assert_allclose(detector.offset_, middle_of_gap(left_out, 0.2))
    assert len(detector.detectors_) == 1
    assert not hasattr(bare, "n_features_in_")


@pytest.mark.parametrize(
    "bare",
    [
        pytest.param(
            bare, marks=[pytest.mark.slow] * isinstance(bare, EllipticEnvelope)
        )
        for bare in BARE
    ],
    ids=lambda one: type(one).__name__,
)
def test_per_class_is_the_largest_score(bare, data):
    X, y = data
    detector = SklearnDetector(detector=bare, per_class=True).fit(X, y)
    assert len(detector.detectors_) == 3
    expected = [clone(bare).fit(X[y == k]).score_samples(X) for k in ("s", "v", "w")]
    np.testing.assert_array_equal(detector.score_samples(X), np.max(expected, axis=0))


def test_known_ood_samples_are_in_no_class(data):
    X, y = data
    y = np.where(y == "w", "ood", y)
    detector = SklearnDetector(detector=OneClassSVM(), per_class=True, ood_label="ood")
    detector.fit(X, y)
    assert len(detector.detectors_) == 2
    np.testing.assert_array_equal(detector.classes_, ["s", "v"])


def test_default_is_an_isolation_forest(data):
    X = data[0][::15]
    expected = IsolationForest(random_state=0).fit(X).score_samples(X)
    np.testing.assert_array_equal(SklearnDetector().fit(X).score_samples(X), expected)


def test_reads_the_features_of_a_network(data):
    X, y = data
    X = StandardScaler().fit_transform(X)
    network = MLPClassifier((6,), solver="lbfgs", random_state=0)
    detector = SklearnDetector(detector=OneClassSVM(), estimator=network).fit(X, y)
    fitted = detector.estimator_
    Z = np.maximum(X @ fitted.coefs_[0] + fitted.intercepts_[0], 0)
    expected = OneClassSVM().fit(Z).score_samples(Z)
    np.testing.assert_allclose(detector.score_samples(X), expected)


def test_per_class_needs_labels(data):
    with pytest.raises(ValueError, match=r"per_class=True\) requires y to be passed"):
        SklearnDetector(per_class=True).fit(data[0])


def test_detector_that_cannot_score_new_samples(data):
    message = r"LocalOutlierFactor\(\) cannot score new samples.*novelty=True"
    with pytest.raises(ValueError, match=message):
        SklearnDetector(detector=LocalOutlierFactor()).fit(data[0])


def test_tags_follow_what_is_wrapped():
    class Random(OneClassSVM):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.non_deterministic = True
            return tags

    assert get_tags(SklearnDetector(detector=Random())).non_deterministic
    assert not get_tags(SklearnDetector(detector=OneClassSVM())).non_deterministic
    assert not get_tags(SklearnDetector()).target_tags.required
    linear = SklearnDetector(estimator=LogisticRegression())
    assert get_tags(linear).target_tags.required


class _HighForOutliers(BaseEstimator):
    """No score_samples, a decision of unknown sign, not fitted as PyOD's are."""

    def fit(self, X, y=None):
        return self

    def decision_function(self, X):
        return np.linalg.norm(X, axis=1)


def test_advice_about_a_detector_without_score_samples():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"score_samples\. Set novelty=True\."):
        SklearnDetector(detector=LocalOutlierFactor()).fit(X)
    with pytest.raises(ValueError, match=r"score_samples\. Wrap it") as info:
        SklearnDetector(detector=_HighForOutliers()).fit(X)
    assert "LocalOutlierFactor" not in str(info.value)
    assert "high for inliers or for outliers" in str(info.value)
    with pytest.raises(ValueError, match="such as IsolationForest"):
        SklearnDetector(detector=DBSCAN()).fit(X)


class LikePyOD:
    """The interface of PyOD's detectors: the distance to the k-th neighbor."""

    def __init__(self, contamination=0.1, n_neighbors=5):
        self.contamination = contamination
        self.n_neighbors = n_neighbors

    def get_params(self, deep=True):
        return vars(self).copy()

    def set_params(self, **params):
        vars(self).update(params)
        return self

    def fit(self, X, y=None):
        self._search = NearestNeighbors(n_neighbors=self.n_neighbors).fit(X)
        self.decision_scores_ = self._search.kneighbors()[0][:, -1]  # of the samples
        self.threshold_ = np.quantile(self.decision_scores_, 1 - self.contamination)
        return self

    def decision_function(self, X):
        return self._search.kneighbors(X)[0][:, -1]

    def predict(self, X):
        return (self.decision_function(X) > self.threshold_).astype(int)


@pytest.fixture(params=["stand-in", "knn.KNN", "lof.LOF", "ocsvm.OCSVM", "hbos.HBOS"])
def pyod_detector(request):
    if request.param == "stand-in":
        return LikePyOD()
    module, name = request.param.split(".")
    module = pytest.importorskip(f"pyod.models.{module}")
    return getattr(module, name)()


def test_pyod_scores_are_minus_its_decisions_on_new_samples(pyod_detector):
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(300, 3)), rng.normal(size=(2000, 3))
    far = X_new[:100] + 6
    detector = SklearnDetector(detector=pyod_detector, contamination=0.1).fit(X)
    own = clone(pyod_detector).fit(X)
    scores = detector.score_samples(X_new)
    np.testing.assert_allclose(scores, -own.decision_function(X_new), rtol=1e-9)
    one = [detector.score_samples(X_new[i : i + 1])[0] for i in range(20)]
    np.testing.assert_allclose(one, scores[:20], rtol=1e-9)
    assert detector.score_samples(far).max() < np.quantile(scores, 0.05)
    assert not hasattr(pyod_detector, "decision_scores_")  # a clone was fitted
    # the fraction of new ID samples, not of PyOD's threshold
    assert abs(np.mean(detector.predict(X_new) == -1) - 0.1) < 0.05
    assert (detector.predict(far) == -1).mean() > 0.95


def test_pyod_members_of_an_ensemble(data):
    X, y = data
    members = [
        ("pyod", SklearnDetector(detector=LikePyOD(), per_class=True)),
        ("wide", SklearnDetector(detector=LikePyOD(n_neighbors=20))),
        ("knn", KNN(normalize=False)),
        ("forest", IsolationForest(n_estimators=20, random_state=0)),
    ]
    ensemble = DSDE(members, calibration=0.4, alpha=0.1, random_state=0).fit(X, y)
    far = X[:20] + 50
    assert (ensemble.predict(far) == -1).all()
    fitted = ensemble.named_detectors_["pyod"]
    assert len(fitted.detectors_) == len(np.unique(y))
    scores = [-detector.decision_function(X) for detector in fitted.detectors_]
    np.testing.assert_array_equal(fitted.score_samples(X), np.max(scores, axis=0))
    ensemble.set_params(wide__detector__n_neighbors=30).fit(X, y)
    [wide] = ensemble.named_detectors_["wide"].detectors_
    assert wide.n_neighbors == 30


def test_a_detector_without_tags():
    """Estimators of other libraries, such as PyOD, have no tags."""

    class Distance:
        def get_params(self, deep=False):
            return {}

        def fit(self, X, y=None):
            self.center_ = X.mean(axis=0)
            return self

        def score_samples(self, X):
            return -np.linalg.norm(X - self.center_, axis=1)

    X = np.random.default_rng(0).normal(size=(30, 2))
    detector = SklearnDetector(detector=Distance()).fit(X)
    expected = -np.linalg.norm(X - X.mean(axis=0), axis=1)
    np.testing.assert_allclose(detector.score_samples(X), expected)


def test_first_argument_is_the_classifier_as_elsewhere(data):
    X, y = data
    linear = LogisticRegression(max_iter=500)
    detector = SklearnDetector(linear, detector=OneClassSVM()).fit(X, y)
    assert isinstance(detector.estimator_, LogisticRegression)
    with pytest.raises(TypeError, match=r"write SklearnDetector\(detector=OneClassSVM"):
        SklearnDetector(OneClassSVM()).fit(X, y)


def test_library_errors_name_the_detector(data):
    class Overflowing(OneClassSVM):
        def fit(self, X, y=None):
            np.zeros(4).reshape(3)

    with pytest.raises(ValueError, match="The fit of Overflowing failed on X"):
        SklearnDetector(detector=Overflowing()).fit(data[0])
