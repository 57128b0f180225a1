"""Sample weights: integers equal repeated samples, in every detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.base import BaseDetector
from skood.detectors import (
    GMM,
    KNN,
    MSP,
    ODIN,
    PNML,
    SHE,
    SSD,
    CADRef,
    Energy,
    Gram,
    Mahalanobis,
    MultiLayerMahalanobis,
    NNGuide,
    OpenMax,
    Relation,
    RelativeMahalanobis,
    SklearnDetector,
    ViM,
)
from skood.detectors._common._base_output_detector import OutputDetector
from skood.utils._ties import threshold_at
from tests._instances import output_detectors
from tests._loops import looped

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning"),
]


def _data(seed=0, n=75):
    """Three classes, with duplicates, ties between columns, OOD rows and weights."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 3)) + 3 * np.eye(3)[y]
    X[4], X[10] = X[1], X[1]  # duplicates of one class
    X[20:26] = np.round(X[20:26])
    X = np.maximum(X, 0.25)  # ties
    y[[7, 30, 31]] = -1
    weight = rng.integers(0, 4, size=n)
    return X, y, weight, rng.normal(size=(40, 3)) * 2


X, Y, WEIGHT, NEW = _data()
ROWS = np.repeat(np.arange(len(X)), WEIGHT)
ID = Y >= 0
LINEAR = FrozenEstimator(LogisticRegression().fit(X[ID], Y[ID]))
NETWORK = FrozenEstimator(
    MLPClassifier((8,), solver="lbfgs", random_state=0).fit(X[ID], Y[ID])
)


def _same(detector, X=X, y=Y, weight=WEIGHT, new=NEW, tol=1e-9):
    """Compare a fit with integer weights with a fit on repeated samples."""
    indices = np.repeat(np.arange(len(X)), weight)
    labels = None if y is None else y[indices]
    weighted = clone(detector).fit(X, y, sample_weight=weight)
    repeated = clone(detector).fit(X[indices], labels)
    expected = repeated.score_samples(new)
    np.testing.assert_allclose(weighted.score_samples(new), expected, tol, tol)
    assert weighted.offset_ == pytest.approx(repeated.offset_, rel=tol, abs=tol)
    return weighted


def _frozen():
    neighbors = (KNN, NNGuide, SklearnDetector)
    detectors = [
        detector
        for detector in output_detectors()
        if not isinstance(detector, neighbors)
    ]
    return [
        *[detector.set_params(estimator=LINEAR) for detector in detectors],
        Mahalanobis(LINEAR, tied=False),
        Mahalanobis(covariance=LedoitWolf()),
        Mahalanobis(covariance=LedoitWolf(), tied=False),
        RelativeMahalanobis(covariance=LedoitWolf()),
        GMM(covariance_type="tied"),
        GMM(covariance_type="diag"),
        GMM(n_components=2, random_state=0),
        SHE(LINEAR, metric="cosine"),
        OpenMax(LINEAR, tail_size=7, distance="euclidean"),
        Relation(LINEAR, power=2.0),
        Gram(NETWORK, random_state=0),
        MultiLayerMahalanobis(NETWORK),
        MultiLayerMahalanobis(NETWORK, alphas=[2.0]),
        ODIN(NETWORK),
    ]


@pytest.mark.parametrize("detector", _frozen(), ids=repr)
def test_weighted_is_repeated(detector):
    _same(detector)


@pytest.mark.parametrize(
    "detector",
    [
        ViM(n_components=1),
        MSP(LogisticRegression(C=0.1)),
        Mahalanobis(make_pipeline(StandardScaler(), LogisticRegression())),
        Gram(LogisticRegression(), random_state=0),
    ],
    ids=repr,
)
def test_weights_of_a_classifier_that_is_fitted(detector):
    # the solvers stop at a tolerance, and amplify the order of summation
    _same(detector, tol=1e-7)


def test_without_labels():
    for detector in (Mahalanobis(), SSD(), GMM(), PNML(LINEAR), Energy()):
        _same(detector, y=None)


def test_copies_that_are_drawn_for_the_threshold():
    X, y, _, new = _data(1, 2000)
    weight = np.random.default_rng(1).integers(0, 8, size=len(X))
    assert weight.sum() > 5000
    for detector in (Mahalanobis(), ViM(LINEAR), GMM(), OpenMax(LINEAR)):
        _same(detector, X, y, weight, new)


@looped("scale", [0.01, 7.3])
@pytest.mark.parametrize(
    "detector",
    [
        one
        for one in _frozen()
        if not isinstance(one, (Gram, OpenMax, PNML, Relation, MultiLayerMahalanobis))
        and getattr(one, "covariance", None) is None
        and getattr(one, "n_components", None) != 2
    ],
    ids=repr,
)
def test_scores_do_not_depend_on_the_scale(detector, scale):
    weight = WEIGHT + np.random.default_rng(0).uniform(0.1, 0.9, size=len(X))
    expected = clone(detector).fit(X, Y, sample_weight=weight).score_samples(NEW)
    scores = clone(detector).fit(X, Y, sample_weight=scale * weight).score_samples(NEW)
    np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-8)


FORMULAS = [
    *(
        one.set_params(estimator=LINEAR if "logits" in one._needs else None)
        for one in output_detectors(variants=True)
        if type(one)._score_left_out is not OutputDetector._score_left_out
        and getattr(one, "covariance", None) is None
    ),
    Relation(LINEAR),
]


@pytest.mark.parametrize("detector", FORMULAS, ids=repr)
def test_weights_below_1_are_left_out_entirely(detector, monkeypatch):
    """The formulas are fits without each sample, with weights that are no integers."""
    stored = []
    original = BaseDetector._set_offset
    monkeypatch.setattr(
        BaseDetector, "_set_offset", lambda self, scores: stored.append(scores)
    )
    X, y = _data(2)[:2]
    X, y = X[y >= 0], y[y >= 0]
    weight = np.random.default_rng(2).uniform(0.05, 1.0, size=len(X))
    clone(detector).fit(X, y, sample_weight=weight)
    scores, shares = stored[0]
    np.testing.assert_array_equal(shares, weight)
    monkeypatch.setattr(BaseDetector, "_set_offset", original)
    for i in range(0, len(X), 9):
        other = weight.copy()
        other[i] = 0.0
        actual = clone(detector).fit(X, y, sample_weight=other).score_samples(X[[i]])
        rescaled = 1.0
        if isinstance(detector, Relation):  # a sum over the bank
            rescaled = weight.sum() / other.sum()
        assert scores[i] == pytest.approx(rescaled * actual[0], rel=1e-6)


def test_pnml_of_samples_that_alone_span_a_direction(monkeypatch):
    stored = []
    monkeypatch.setattr(
        BaseDetector, "_set_offset", lambda self, scores: stored.append(scores)
    )
    Z = np.array([[1.0, 0, 0], [1, 1, 0], [2, 1, 0], [0, 1, 1.0]])
    weight = np.array([0.5, 1.0, 0.25, 0.4])
    PNML(LINEAR).fit(Z, sample_weight=weight)
    others = PNML(LINEAR)
    others._check_fitted = lambda: None
    others.fit(Z[:3], sample_weight=weight[:3])
    assert stored[0][0][3] == pytest.approx(others.score_samples(Z[[3]])[0], rel=1e-9)


@pytest.mark.parametrize("detector", [KNN(n_neighbors=3), NNGuide(LINEAR)], ids=repr)
def test_neighbors_are_not_repeated(detector, monkeypatch):
    stored = []
    original = BaseDetector._set_offset

    def set_offset(self, scores):
        stored.append(scores)
        original(self, scores)

    monkeypatch.setattr(BaseDetector, "_set_offset", set_offset)
    weight = np.where(np.arange(len(X)) % 11 == 0, 40, WEIGHT + 1)
    plain = clone(detector).fit(X, Y)
    weighted = clone(detector).fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(weighted.score_samples(NEW), plain.score_samples(NEW))
    assert len(weighted.bank_) == np.count_nonzero(ID)
    expected = threshold_at(np.repeat(stored[0], weight[ID]), 0.05)
    assert weighted.offset_ == pytest.approx(expected, rel=1e-9)
    assert weighted.offset_ != plain.offset_
    one = clone(detector).fit(X, Y, sample_weight=np.ones(len(X)))
    assert one.offset_ == plain.offset_


def test_a_bank_of_drawn_copies():
    detector = Relation(LINEAR, max_samples=30, random_state=0)
    weighted = clone(detector).fit(X, Y, sample_weight=WEIGHT)
    repeated = clone(detector).fit(X[ROWS], Y[ROWS])
    np.testing.assert_allclose(
        weighted.score_samples(NEW), repeated.score_samples(NEW), rtol=1e-9
    )


def test_the_bank_is_drawn_by_weight():
    weight = np.full(len(X), 1e-9)
    weight[40:60] = 1.0
    knn = KNN(max_samples=20, random_state=0).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(knn.bank_rows_, np.arange(40, 60))
    weight[:40] = 0.0
    knn = KNN(n_neighbors=2).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(knn.bank_rows_, np.arange(40, 75))


def test_weight_zero_is_absent():
    weight = np.where(Y == 2, 0.0, 1.0)
    detector = Mahalanobis().fit(X, Y, sample_weight=weight)
    assert detector.classes_.tolist() == [0, 1]
    expected = Mahalanobis().fit(X[Y != 2], Y[Y != 2])
    np.testing.assert_allclose(
        detector.score_samples(NEW), expected.score_samples(NEW), rtol=1e-12
    )
    other = np.where(ID, 1.0, 1e9)  # weights of OOD rows are of no use
    fitted = Mahalanobis().fit(X, Y, sample_weight=other)
    assert fitted.offset_ == pytest.approx(Mahalanobis().fit(X, Y).offset_, rel=1e-12)


def test_learned_layer_weights_use_weights_of_ood_samples():
    weight = np.ones(len(X))
    plain = MultiLayerMahalanobis(NETWORK).fit(X, Y, sample_weight=weight)
    weight[[7, 30]] = 0.0
    without = MultiLayerMahalanobis(NETWORK).fit(X, Y, sample_weight=weight)
    remaining = np.delete(np.arange(len(X)), [7, 30])
    expected = MultiLayerMahalanobis(NETWORK).fit(X[remaining], Y[remaining])
    np.testing.assert_allclose(without.alphas_, expected.alphas_, rtol=1e-6)
    assert not np.allclose(plain.alphas_, expected.alphas_, rtol=1e-3)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(5), r"sample_weight has shape \(5,\), expected \(75,\)"),
        (np.ones((75, 1)), r"sample_weight has shape \(75, 1\)"),
        (np.full(75, np.nan), "sample_weight contains NaN"),
        (np.full(75, -1.0), "Negative values in data passed to sample_weight"),
        (np.zeros(75), "All 75 sample weights are zero"),
        (np.where(ID, 0.0, 1.0), "weights of all ID samples are zero"),
    ],
)
def test_invalid_weights(weight, message):
    detector = Mahalanobis().fit(X, Y)
    before = detector.offset_
    with pytest.raises(ValueError, match=message):
        detector.fit(X, Y, sample_weight=weight)
    assert detector.offset_ == before


def test_parts_that_take_no_weights():
    ones = np.ones(len(X))
    for detector, message in (
        (Energy(KNeighborsClassifier()), "KNeighborsClassifier has no sample_weight"),
        (
            SklearnDetector(detector=LocalOutlierFactor(novelty=True)),
            "LocalOutlierFactor has no sample_weight in its fit, and SklearnDetector",
        ),
        (
            MSP(make_pipeline(StandardScaler(), KNeighborsClassifier())),
            "KNeighborsClassifier has no sample_weight",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            detector.fit(X, Y, sample_weight=ones)
    for detector in (
        Mahalanobis(covariance=LedoitWolf()),
        GMM(n_components=2, random_state=0),
    ):
        with pytest.raises(ValueError, match=r"takes no weights.* such as 0\.5"):
            detector.fit(X, Y, sample_weight=0.5 * ones)


class _NoWeights(BaseDetector):
    def _fit(self, X, y):
        return X[:, 0]

    def _score(self, X):
        return X[:, 0]


def test_detector_without_weights():
    with pytest.raises(ValueError, match="_NoWeights does not support weights"):
        _NoWeights().fit(X, sample_weight=np.ones(len(X)))


def test_steps_of_pipelines_and_searches():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [1.0]})
    weight = WEIGHT + 0.5
    for estimator in (pipeline, search):
        fitted = MSP(estimator).fit(X, Y, sample_weight=weight).estimator_
        fitted = getattr(fitted, "best_estimator_", fitted)
        scaler = StandardScaler().fit(X[ID], sample_weight=weight[ID])
        np.testing.assert_allclose(fitted[0].mean_, scaler.mean_)
        expected = LogisticRegression().fit(scaler.transform(X[ID]), Y[ID], weight[ID])
        np.testing.assert_allclose(fitted[1].coef_, expected.coef_, rtol=1e-6)


def test_partial_fit():
    weight = WEIGHT + 0.25
    for detector in (Mahalanobis(), SHE(LINEAR), PNML(LINEAR), CADRef(LINEAR)):
        whole = clone(detector).fit(X, Y, sample_weight=weight)
        parts = clone(detector)
        for indices in (slice(40), slice(40, 75)):
            parts.partial_fit(X[indices], Y[indices], sample_weight=weight[indices])
        np.testing.assert_allclose(
            parts.score_samples(NEW), whole.score_samples(NEW), rtol=1e-9
        )
        assert parts.offset_ == pytest.approx(whole.offset_, rel=1e-9)
        with pytest.raises(ValueError, match="sample_weight must be given in every"):
            parts.partial_fit(X, Y)


def test_fit_predict_and_types_of_weights():
    expected = Mahalanobis().fit(X, Y, sample_weight=WEIGHT)
    predicted = Mahalanobis().fit_predict(X, Y, sample_weight=WEIGHT)
    np.testing.assert_array_equal(predicted, expected.predict(X))
    for weight in (WEIGHT.tolist(), pd.Series(WEIGHT), WEIGHT.astype(np.float32)):
        other = Mahalanobis().fit(X, Y, sample_weight=weight)
        assert other.offset_ == expected.offset_


def test_torch_data():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    items = data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    expected = Mahalanobis().fit(X, Y, sample_weight=WEIGHT)
    for given in (items, data.DataLoader(items, batch_size=8)):
        fitted = Mahalanobis().fit(given, sample_weight=WEIGHT)
        assert fitted.offset_ == pytest.approx(expected.offset_, rel=1e-12)
    with pytest.raises(ValueError, match="DataLoader shuffles"):
        Mahalanobis().fit(data.DataLoader(items, shuffle=True), sample_weight=WEIGHT)


def test_memory_mapped_samples(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for detector in (Mahalanobis(), GMM(covariance_type="diag"), ViM(LINEAR)):
        fitted = clone(detector).fit(mapped, Y, sample_weight=WEIGHT)
        expected = clone(detector).fit(X, Y, sample_weight=WEIGHT)
        assert fitted.offset_ == pytest.approx(expected.offset_, rel=1e-12)
