"""Tests of detectors on sparse features: equal to dense ones, in bounded memory."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.covariance import EllipticEnvelope
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import LocalOutlierFactor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags

from skood.detectors import (
    FDBD,
    KNN,
    MSP,
    Mahalanobis,
    NNGuide,
    Relation,
    SklearnDetector,
)
from skood.detectors._common import _memory_bank
from skood.evidential import EvidentialProbe
from skood.nn import FeatureExtractor, LinearHead, split
from skood.rectifiers import DICE, ReAct
from tests._instances import output_detectors
from tests._loops import looped

HEADS = [  # detectors that use sparse features next to logits or the head
    one
    for one in output_detectors("features", variants=True, n_neighbors=3)
    if one._needs != {"features"} and get_tags(one).input_tags.sparse
]
BANKS = [
    KNN(n_neighbors=3),
    KNN(n_neighbors=1),
    KNN(n_neighbors=4, normalize=False),
    KNN(n_neighbors=2, metric="cosine"),
    KNN(n_neighbors=2, metric="manhattan", normalize=False),
    KNN(n_neighbors=3, algorithm="sklearn", max_samples=0.5, random_state=0),
]


def _data(dtype=np.float64, n_samples=90, n_features=30):
    """Sparse samples of three classes: some empty, some equal, explicit zeros."""
    rng = np.random.default_rng(0)
    y = np.arange(n_samples) % 3
    dense = rng.exponential(size=(n_samples, n_features))
    dense[rng.random(dense.shape) < 0.7] = 0.0
    dense[np.arange(n_samples), y] += 2.0
    dense[5] = dense[6] = 0.0
    dense[20] = dense[23] = dense[26]
    X = sparse.csr_array(dense.astype(dtype))
    X.data[::7] = 0.0
    return X, y


def _head(X, y):
    """A classifier that is the same for dense and sparse samples."""
    head = LogisticRegression().fit(X.toarray(), y)
    head.intercept_ += 3.0  # energies are positive
    return FrozenEstimator(head)


def _new(X):
    """New samples: other mixtures of the entries, one of them empty."""
    order = np.random.default_rng(1).permutation(X.shape[1])
    new = sparse.csr_array(X[:, order])
    return sparse.vstack([new[:40], new[:1] * 0, X[20:21] * 2.0], format="csr")


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@looped("dtype, rtol", [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("detector", [*BANKS, *HEADS], ids=repr)
def test_scores_and_thresholds_are_those_of_dense_features(detector, dtype, rtol):
    X, y = _data(dtype)
    detector = clone(detector)
    if not isinstance(detector, KNN):
        detector.set_params(estimator=_head(X, y))
    expected = clone(detector).fit(X.toarray(), y)
    actual = clone(detector).fit(X, y)
    new = _new(X)
    atol = rtol if isinstance(detector, KNN) else 0.0
    for samples in (X, new):
        scores = expected.score_samples(samples.toarray())
        np.testing.assert_allclose(
            actual.score_samples(samples), scores, rtol=rtol, atol=atol
        )
    np.testing.assert_allclose(actual.offset_, expected.offset_, rtol=rtol)
    assert actual.n_features_in_ == X.shape[1]
    # each kind of samples is scored by a fit on the other
    scores = expected.score_samples(new.toarray())
    for fitted, samples in ((actual, new.toarray()), (expected, new)):
        np.testing.assert_allclose(
            fitted.score_samples(samples), scores, rtol=rtol, atol=atol
        )
    one_by_one = [actual.score_samples(new[[i]])[0] for i in range(new.shape[0])]
    np.testing.assert_allclose(
        one_by_one, actual.score_samples(new), rtol=rtol, atol=atol
    )


@pytest.mark.parametrize("tile_bytes", [1, 8 * 10 * 7, 2**25])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_knn_equals_a_naive_loop_over_tiles(monkeypatch, tile_bytes, k):
    X, _ = _data(n_samples=40)
    new = _new(X)
    monkeypatch.setattr(_memory_bank, "_TILE_BYTES", tile_bytes)
    knn = KNN(n_neighbors=k, normalize=False).fit(X)
    gaps = new.toarray()[:, None] - X.toarray()
    expected = -np.sort(np.linalg.norm(gaps, axis=2), axis=1)[:, k - 1]
    np.testing.assert_allclose(knn.score_samples(new), expected, rtol=1e-12)
    # the threshold leaves each sample out of the bank
    own = np.linalg.norm(X.toarray()[:, None] - X.toarray(), axis=2)
    np.fill_diagonal(own, np.inf)
    left_out = -np.sort(own, axis=1)[:, min(k, 39) - 1]
    dense = KNN(n_neighbors=k, normalize=False).fit(X.toarray())
    np.testing.assert_allclose(knn.offset_, dense.offset_, rtol=1e-12)
    assert np.mean(left_out < knn.offset_) <= 0.05


def _unsorted(X):
    """The same matrix with each row in reverse order, and with halved duplicates."""
    slices = [slice(*X.indptr[i : i + 2]) for i in range(X.shape[0])]
    order = np.concatenate([np.arange(r.start, r.stop)[::-1] for r in slices])
    data, indices = np.tile(X.data[order] / 2, 2), np.tile(X.indices[order], 2)
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = np.argsort(np.tile(owner, 2), kind="stable")
    result = sparse.csr_array((data[order], indices[order], 2 * X.indptr), X.shape)
    assert not result.has_sorted_indices and not result.has_canonical_format
    return result


def _long(X):
    result = X.copy()
    result.indices, result.indptr = X.indices.astype("i8"), X.indptr.astype("i8")
    return result


FORMATS = {
    "csr_matrix": sparse.csr_matrix,
    "csc_matrix": sparse.csc_matrix,
    "csc_array": sparse.csc_array,
    "coo_array": sparse.coo_array,
    "lil_array": sparse.lil_array,
    "unsorted": _unsorted,
    "int64": _long,
    "int64 unsorted": lambda X: _long(_unsorted(X)),
    "explicit zeros": lambda X: X,
    "integers": lambda X: X.astype(np.int64),
}


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@looped("name", FORMATS)
@pytest.mark.parametrize("detector", [KNN(n_neighbors=3), *HEADS], ids=repr)
def test_formats(detector, name):
    X, y = _data()
    if name == "integers":
        X.data[:] = np.round(2 * X.data)
    detector = clone(detector)
    if not isinstance(detector, KNN):
        detector.set_params(estimator=_head(X, y))
    given = FORMATS[name](X)
    before = given.tocoo(copy=True)
    scores = clone(detector).fit(X.toarray(), y).score_samples(X.toarray())
    fitted = detector.fit(given, y)
    np.testing.assert_allclose(
        fitted.score_samples(given), scores, rtol=1e-12, atol=1e-12
    )
    after = given.tocoo()
    np.testing.assert_array_equal(after.data, before.data)
    np.testing.assert_array_equal([after.row, after.col], [before.row, before.col])


@pytest.mark.parametrize(
    "detector", [KNN(n_neighbors=3, normalize=False), NNGuide(n_neighbors=3)], ids=repr
)
def test_changes_in_place_do_not_change_the_bank(detector):
    X, y = _data()
    if isinstance(detector, NNGuide):
        detector = clone(detector).set_params(estimator=_head(X, y))
    detector.fit(X, y)
    new = _new(X)
    scores = detector.score_samples(new)
    X.eliminate_zeros()
    X.data[:] = 7.0
    X.indices[:] = 0
    np.testing.assert_array_equal(detector.score_samples(new), scores)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "detector",
    [
        KNN(n_neighbors=3),
        KNN(n_neighbors=3, metric="cosine"),
        NNGuide(),
        Relation(),
        FDBD(),
        MSP(),
        SklearnDetector(detector=IsolationForest(n_estimators=5, random_state=0)),
    ],
    ids=repr,
)
def test_memory_is_bounded(detector):
    """The dense features would be 572 MiB, and all products of 1,500 samples 17."""
    shape = 1500, 50_000
    columns = np.random.default_rng(0).integers(shape[1], size=20 * shape[0])
    starts = np.arange(0, len(columns) + 1, 20)
    X = sparse.csr_array((np.ones(len(columns)), columns, starts), shape=shape)
    y = np.arange(shape[0]) % 3
    if not isinstance(detector, (KNN, SklearnDetector)):
        head = LinearHead(np.eye(3, shape[1]), np.full(3, 4.0))
        detector = clone(detector).set_params(estimator=FrozenEstimator(head))
    tracemalloc.start()
    try:
        detector.fit(X, y).score_samples(X)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert peak < 120


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@looped("detector", output_detectors(variants=True))
def test_the_tag_is_true_exactly_where_a_fit_succeeds(detector, few_folds):
    X, y = _data()
    network = MLPClassifier((4,), solver="lbfgs", random_state=0).fit(X, y)
    for classifier in (None, _head(X, y), FrozenEstimator(network)):
        _check_tag(clone(detector).set_params(estimator=classifier), X, y)


def _check_tag(detector, X, y):
    if not get_tags(detector).input_tags.sparse:
        with pytest.raises(TypeError, match=r"sparse matrix.*TruncatedSVD|classifier"):
            detector.fit(X, y)
        return
    scores = detector.fit(X, y).score_samples(X)
    assert scores.shape == (90,) and np.isfinite(scores).all()


@pytest.mark.parametrize(
    "estimator, message",
    [
        (
            Mahalanobis(),
            r"Mahalanobis needs dense features, got a sparse matrix\. Reduce it first: "
            r"make_pipeline\(TruncatedSVD\(100\), Mahalanobis\(\)\)\.",
        ),
        (
            Mahalanobis(LogisticRegression()),
            r"Reduce it first: Mahalanobis\(make_pipeline\(TruncatedSVD\(100\), "
            r"LogisticRegression\(\)\)\)\.",
        ),
        (
            Mahalanobis(make_pipeline(TruncatedSVD(), LogisticRegression())),
            None,
        ),
        (
            MSP(GaussianNB()),
            r"MSP\(make_pipeline\(TruncatedSVD\(100\), GaussianNB\(\)\)\)",
        ),
        (
            MSP(),
            r"With estimator=None MSP takes X for logits, which are dense; got a "
            r"sparse matrix\. For sparse features give their classifier: "
            r"MSP\(LogisticRegression\(\)\)\.",
        ),
        (ReAct(), r"make_pipeline\(TruncatedSVD\(100\), ReAct\(\)\)"),
        (DICE(), r"make_pipeline\(TruncatedSVD\(100\), DICE\(\)\)"),
        (
            KNN(algorithm="torch"),
            r"KNN\(algorithm='torch'\) needs dense features, got a sparse matrix\. Use "
            r"algorithm='auto', or reduce it first: make_pipeline\(TruncatedSVD\(100\)",
        ),
        (
            KNN(metric="chebyshev"),
            r"KNN\(metric='chebyshev'\) needs dense.*Use metric='euclidean', 'cosine' "
            r"or 'manhattan', or reduce it first: make_pipeline\(TruncatedSVD",
        ),
        (
            SklearnDetector(detector=EllipticEnvelope()),
            r"SklearnDetector needs dense features, got a sparse matrix\. Reduce it",
        ),
        (
            EvidentialProbe(LogisticRegression(), layer="penultimate"),
            r"EvidentialProbe\(make_pipeline\(TruncatedSVD\(100\), LogisticRegression",
        ),
    ],
)
def test_what_needs_dense_features_names_truncated_svd(estimator, message):
    X, y = _data()
    if message is None:
        estimator.fit(X, y)
        return
    with pytest.raises(TypeError, match=message) as error:
        estimator.fit(X, y)
    assert "toarray" not in str(error.value)


def test_a_failed_fit_leaves_the_detector_unchanged():
    X, y = _data()
    detector = Mahalanobis().fit(X.toarray() + 0.1 * np.eye(90, 30), y)
    before = detector.score_samples(X.toarray())
    with pytest.raises(TypeError, match="needs dense features, got a sparse matrix"):
        detector.fit(X, y)
    np.testing.assert_array_equal(detector.score_samples(X.toarray()), before)
    with pytest.raises(TypeError, match="needs dense features, got a sparse matrix"):
        detector.score_samples(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_invalid_values(bad):
    X, y = _data()
    knn = KNN(n_neighbors=3).fit(X, y)
    X.data[3] = bad
    for call in (lambda: knn.score_samples(X), lambda: clone(knn).fit(X, y)):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            call()
    X.data[3] = 0.0
    with pytest.raises(ValueError, match="X has 29 features, but KNN is expecting 30"):
        knn.score_samples(X[:, :29])


def test_explain_of_neighbors():
    pytest.importorskip("pandas")
    X, y = _data()
    new = _new(X)[:40]
    frame = KNN(n_neighbors=2).fit(X, y).explain(new)
    expected = KNN(n_neighbors=2).fit(X.toarray(), y).explain(new.toarray())
    assert frame.columns.tolist() == expected.columns.tolist()
    for name in ("score", "contribution_1", "distance_1", "distance_2"):
        np.testing.assert_allclose(frame[name], expected[name], atol=1e-12)


def test_bodies_and_heads():
    """A linear classifier of sparse features is taken apart."""
    X, y = _data()
    body, head = split(LogisticRegression().fit(X, y))
    Z = body.transform(X)
    assert sparse.issparse(Z) and Z is not X
    np.testing.assert_array_equal(Z.toarray(), X.toarray())
    logits = head.predict_logits(Z)
    np.testing.assert_allclose(logits, head.predict_logits(X.toarray()), rtol=1e-12)
    fitted = LinearHead().fit(X, y)
    dense = LinearHead().fit(X.toarray(), y)
    np.testing.assert_allclose(fitted.coef_, dense.coef_, atol=1e-3)
    network = MLPClassifier((4,), random_state=0, max_iter=20).fit(X, y)
    hidden = FeatureExtractor(FrozenEstimator(network)).fit(X).transform(X)
    expected = np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0)
    np.testing.assert_allclose(hidden, expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "detector",
    [
        IsolationForest(n_estimators=5, random_state=0),
        OneClassSVM(gamma="scale"),
        LocalOutlierFactor(n_neighbors=5, novelty=True),
    ],
)
@pytest.mark.parametrize("per_class", [False, True])
def test_detectors_of_scikit_learn(detector, per_class):
    X, y = _data()
    X = X[np.diff(X.indptr) > 0][:81]  # equal samples have no density
    y = np.arange(81) % 3
    detector = SklearnDetector(detector=detector, per_class=per_class)
    dense = clone(detector).fit(X.toarray(), y)
    detector.fit(sparse.csc_matrix(X), y)
    new = _new(X)
    scores = dense.score_samples(new.toarray())
    np.testing.assert_allclose(detector.score_samples(new), scores, rtol=1e-9)
    np.testing.assert_allclose(detector.offset_, dense.offset_, rtol=1e-9)


def test_saved_and_loaded():
    from skood.persistence import dump, load

    X, y = _data()
    knn = KNN(n_neighbors=3).fit(X, y)
    guide = NNGuide(_head(X, y), n_neighbors=3).fit(X, y)
    for detector in (knn, guide):
        file = io.BytesIO()
        dump(detector, file)
        file.seek(0)
        np.testing.assert_array_equal(
            load(file).score_samples(X), detector.score_samples(X)
        )


def test_onnx_needs_a_dense_bank():
    pytest.importorskip("onnx")
    from skood.onnx import to_onnx

    X, y = _data()
    knn = KNN(n_neighbors=3).fit(X, y)
    with pytest.raises(TypeError, match=r"must be dense, and it is sparse.*Truncated"):
        to_onnx(knn)


def test_text_is_scored_by_its_words():
    """Raw strings, through a pipeline whose features stay sparse."""
    texts = ["red apple pie", "green apple tart", "fast red car", "old green car"] * 5
    y = np.array(["food", "food", "cars", "cars"] * 5)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y)
    Z = model[:-1].transform(texts)
    knn = KNN(FrozenEstimator(model), n_neighbors=1).fit(texts, y)
    assert sparse.issparse(knn.bank_) and knn.bank_.shape == Z.shape
    scores = knn.score_samples(["apple apple", "quantum chromodynamics"])
    gaps = np.sqrt(2 - 2 * (Z @ model[:-1].transform(["apple apple"]).T).max())
    # no known word: a zero vector, whose distance to unit vectors is 1
    np.testing.assert_allclose(scores, [-gaps, -1.0], rtol=1e-12)
