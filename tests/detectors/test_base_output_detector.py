"""Tests of what all detectors that read a classifier share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags

import skood.detectors._common._base_output_detector as module
from skood.combine import DSDE, DetectorEnsemble
from skood.datasets import load_digits_ood
from skood.detectors import (
    GEN,
    KNN,
    MSP,
    Energy,
    Entropy,
    GradNorm,
    KLMatching,
    Mahalanobis,
    MaxLogit,
    OpenMax,
    SklearnDetector,
    ViM,
)
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead, pretrained
from skood.nn._shared_forward import shared_outputs
from skood.utils._left_out import drawn_in_order
from skood.utils._torch import is_tensor, row_chunks
from tests._instances import output_detectors
from tests._loops import looped
from tests._thresholds import middle_of_gap
from tests.nn._outputs import read

READ_LOGITS = [MSP(temperature=2.0), MaxLogit(), Energy(temperature=0.5), Entropy()]
READ_FEATURES = [
    KNN(normalize=True),
    Mahalanobis(),
    Mahalanobis(tied=False),
    SklearnDetector(detector=OneClassSVM()),
]
ALL = [*READ_LOGITS, *READ_FEATURES, ViM()]


class TwoLayers(torch.nn.Sequential):
    """A network of random weights."""

    def __init__(self):
        super().__init__(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))


def _classifiers():
    """Fitted classifiers of every kind that has features, logits and a head."""
    X, y = load_iris(return_X_y=True)
    linear = LogisticRegression(max_iter=500)
    network = MLPClassifier((7,), solver="lbfgs", random_state=0)
    torch.manual_seed(0)
    yield linear.fit(X, y)
    yield make_pipeline(StandardScaler(), network).fit(X, y)
    yield GridSearchCV(linear, {"C": [0.1, 1.0]}, cv=2).fit(X, y)
    yield pretrained(TwoLayers())


@looped("detector", output_detectors("head"))
def test_classifier_without_a_head(detector):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="a RandomForestClassifier has none"):
        clone(detector).set_params(estimator=RandomForestClassifier(5)).fit(X, y)


@pytest.mark.filterwarnings("ignore:The covariances of the classes")
@looped("classifier", list(_classifiers()))
@pytest.mark.parametrize("detector", ALL, ids=repr)
def test_estimator_scores_as_its_outputs_do(detector, classifier):
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(classifier)
    outputs = read(frozen, X, {"features", "logits"})
    one = type(detector)(**{**detector.get_params(deep=False), "estimator": frozen})
    scores = one.fit(X, y).score_samples(X)
    rtol = 1e-12
    if isinstance(detector, ViM):
        rtol = 1e-4  # the head is applied in float32 here, in the network's order there
        head = read(frozen, X, {"features", "head"}).head
        bare = ViM(FrozenEstimator(LinearHead(head.coef, head.intercept)))
    else:
        bare = detector
    given = outputs.features
    if any(detector is reads for reads in READ_LOGITS):
        given = outputs.logits
    bare = bare.fit(given, y)
    np.testing.assert_allclose(scores, bare.score_samples(given), rtol, atol=rtol / 10)
    assert one.offset_ == pytest.approx(bare.offset_, rel=rtol)
    np.testing.assert_array_equal(one.classes_, [0, 1, 2])


@pytest.mark.parametrize("detector", ALL, ids=repr)
def test_unfitted_estimator_is_cloned_and_fitted_on_id_samples(detector):
    X, y = load_iris(return_X_y=True)
    y[y == 2] = -1
    linear = LogisticRegression(max_iter=500)
    detector = type(detector)(
        **{**detector.get_params(deep=False), "estimator": linear}
    ).fit(X, y)
    assert not hasattr(linear, "coef_")
    expected = LogisticRegression(max_iter=500).fit(X[y != -1], y[y != -1])
    np.testing.assert_allclose(detector.estimator_.coef_, expected.coef_)
    np.testing.assert_array_equal(detector.classes_, [0, 1])


@pytest.mark.parametrize("detector", [MSP(), KNN(n_neighbors=3), Mahalanobis()])
def test_frozen_classifier_needs_no_labels_and_tells_its_classes(detector):
    X, y = load_iris(return_X_y=True)
    names = np.array(["s", "v", "w"])[y]
    frozen = FrozenEstimator(LogisticRegression(max_iter=500).fit(X, names))
    fitted = type(detector)(frozen).fit(X)
    np.testing.assert_array_equal(fitted.classes_, ["s", "v", "w"])
    assert fitted.estimator_ is frozen
    assert fitted.n_features_in_ == 4


@pytest.mark.parametrize("detector", READ_FEATURES, ids=repr)
def test_forest_gives_its_input_as_features(detector):
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(3, random_state=0)
    one = type(detector)(**{**detector.get_params(deep=False), "estimator": forest})
    np.testing.assert_array_equal(
        one.fit(X, y).score_samples(X), detector.fit(X, y).score_samples(X)
    )


def test_samples_are_scored_in_chunks(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(100, 5))
    expected = Energy().fit(logits)
    seen = []
    original = Energy._score_outputs

    def score(self, outputs):
        seen.append(outputs.n_samples)
        return original(self, outputs)

    monkeypatch.setattr(Energy, "_score_outputs", score)
    monkeypatch.setattr(Energy, "_chunking", lambda *_: (40, None, True))
    energy = Energy().fit(logits)
    assert seen == [40, 40, 20]
    assert energy.offset_ == expected.offset_
    np.testing.assert_array_equal(
        energy.score_samples(logits), expected.score_samples(logits)
    )


def test_chunks_bound_the_memory():
    """64 MiB of temporaries, however wide the rows are."""
    for width in (2, 10, 1000):
        outputs = module.NetworkOutputs(features=np.empty((1, width), dtype=np.float32))
        size = MSP()._bytes_per_row(outputs)
        assert size >= 8 * width
        block = next(iter(row_chunks(10**9, size)))
        assert (block.stop - block.start) * 8 * width <= 64 * 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_equal_arrays(dtype):
    X, y = load_iris(return_X_y=True)
    X = X[:, :3]  # for MSP, logits of three classes
    samples = torch.as_tensor(X, dtype=dtype)
    array = samples.to(
        torch.float64 if dtype is torch.float64 else torch.float32
    ).numpy()
    for detector in (MSP(), Mahalanobis()):
        expected = detector.fit(array, y).score_samples(array)
        got = detector.fit(samples, torch.as_tensor(y)).score_samples(samples)
        np.testing.assert_array_equal(got, expected)


def test_known_ood_samples_of_data_frames_lists_and_sparse_matrices():
    X, y = load_iris(return_X_y=True)
    known = y != 2
    labels = np.where(known, y, -1)
    linear = LogisticRegression(max_iter=500)
    expected = MSP(linear).fit(X[known], y[known]).score_samples(X)
    frame = pd.DataFrame(X, columns=list("abcd"))
    got = MSP(linear).fit(frame, pd.Series(labels, index=frame.index[::-1]))
    np.testing.assert_allclose(got.score_samples(frame), expected, rtol=1e-12)
    got = MSP(linear).fit(X.tolist(), labels.tolist())
    np.testing.assert_allclose(got.score_samples(X.tolist()), expected, rtol=1e-12)
    for container in (sparse.csr_matrix, sparse.coo_array):
        got = MSP(linear).fit(container(X), labels).score_samples(sparse.csr_matrix(X))
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "detector",
    [one for one in output_detectors() if one._fits_head],
    ids=lambda one: type(one).__name__,
)
def test_fits_a_head_without_an_estimator(detector, few_folds):
    X, y = (part[::3] for part in load_iris(return_X_y=True))
    scores = clone(detector).fit(X, y).score_samples(X)
    for head, rtol in ((LinearHead(), 0), (LogisticRegression(max_iter=1000), 1e-6)):
        fitted = clone(detector).set_params(estimator=head).fit(X, y)
        np.testing.assert_allclose(fitted.score_samples(X), scores, rtol=rtol)
    with pytest.raises(
        ValueError,
        match=rf"{type(detector).__name__}\(\) requires y to be passed.*linear head",
    ):
        clone(detector).fit(X)


LOGIT_DETECTORS = [
    MSP(),
    MaxLogit(),
    Energy(),
    Entropy(),
    GEN(),
    KLMatching(),
    OpenMax(tail_size=5),
]


@pytest.mark.parametrize("detector", LOGIT_DETECTORS)
@pytest.mark.filterwarnings("ignore:No training sample")
def test_features_are_no_logits(detector):
    """With labels, X of another number of columns than classes is rejected."""
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    X, y = X[::4], y[::4]
    name = type(detector).__name__
    for n_columns in (64, 9, 7):
        with pytest.raises(
            ValueError,
            match=rf"X has n_features = {n_columns} columns, but y has 8 classes: "
            rf"with estimator=None {name} takes .* classifier: {name}\(estimator=clas",
        ):
            clone(detector).fit(X[:, :n_columns], y)
    linear = LogisticRegression(max_iter=500)
    outputs = clone(detector).set_params(estimator=linear).fit(X, y)
    logits = outputs.estimator_.decision_function(X)
    given = clone(detector).fit(logits, y)  # eight columns, eight classes and -1
    np.testing.assert_array_equal(given.classes_, np.arange(8))
    assert given.score(logits, y) > 0.7
    # one class only marks the ID samples, unless classes are needed
    if name != "OpenMax":
        clone(detector).fit(X, np.where(y == -1, -1, 1))


@pytest.mark.parametrize("detector", LOGIT_DETECTORS)
def test_logits_of_classes_that_y_lacks(detector):
    """What the error advises for a network with other classes than those in y."""
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 5
    logits = rng.normal(size=(300, 5)) + 4 * np.eye(5)[codes]
    subset = codes < 3
    with pytest.raises(ValueError, match=r"LinearHead\(numpy\.eye\(5\), numpy\.zeros"):
        clone(detector).fit(logits[subset], codes[subset])
    head = LinearHead(np.eye(5), np.zeros(5), classes=np.arange(5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)  # classes without samples
        advised = clone(detector).set_params(estimator=FrozenEstimator(head))
        scores = advised.fit(logits[subset], codes[subset]).score_samples(logits)
        assert np.isfinite(scores).all()
        if type(detector) is not OpenMax:
            bare = clone(detector).fit(logits[subset])
            np.testing.assert_allclose(bare.score_samples(logits), scores, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:With .* calibration rows")
def test_features_are_no_logits_of_members():
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    X, y = X[::2], y[::2]
    members = [("energy", Energy()), ("knn", KNN(n_neighbors=5))]
    for n_more in (0, 2):
        more = [(f"knn{k}", KNN(n_neighbors=k + 1)) for k in range(n_more)]
        ensemble = DetectorEnsemble(members, random_state=0)
        if more:
            ensemble = DSDE([*members, *more], random_state=0)
        with pytest.raises(
            ValueError, match="X has n_features = 64 columns, but y has 8 classes"
        ):
            ensemble.fit(X, y)
        ensemble.set_params(estimator=LogisticRegression(max_iter=500)).fit(X, y)


def test_logits_need_two_columns():
    X = np.arange(20.0)[:, None]
    for detector in (MSP(), MaxLogit(), Energy(), Entropy()):
        with pytest.raises(
            ValueError, match=r"n_features = 1\. Give a binary margin m"
        ):
            detector.fit(X)
    # read off a classifier, a binary margin has become two columns
    y = (X[:, 0] > 9).astype(int)
    assert MSP(LogisticRegression()).fit(X, y).score_samples(X).shape == (20,)


def test_unfitted_classifier_needs_labels():
    X, _ = load_iris(return_X_y=True)
    message = r"MSP requires y to be passed.*LogisticRegression\(\).*FrozenEstimator"
    with pytest.raises(ValueError, match=message):
        MSP(LogisticRegression()).fit(X)


def test_what_cannot_be_read_says_so():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match=r"must be a classifier .* got OneClass"):
        MSP(OneClassSVM()).fit(X, y)
    with pytest.raises(ValueError, match="'estimator' parameter of MSP must be"):
        MSP("classifier").fit(X, y)


def test_training_scores_that_are_nan_raise():
    """The difference of two logits of 1e308 overflows: no NaN, no false threshold."""
    logits = np.array([[1e308, -1e308], [1.0, 0.0]])
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match="Entropy got NaN as the score of 1 of 2"),
    ):
        Entropy().fit(logits)


def test_tags():
    assert not get_tags(MSP()).target_tags.required
    assert get_tags(ViM()).target_tags.required
    assert get_tags(MSP(LogisticRegression())).target_tags.required
    linear = LogisticRegression()
    linear_tags = get_tags(linear).input_tags  # not sparse in all versions
    assert get_tags(MSP(linear)).input_tags.sparse is linear_tags.sparse
    assert get_tags(KNN(linear)).input_tags.sparse is linear_tags.sparse
    assert not get_tags(Mahalanobis(linear)).input_tags.sparse
    assert not get_tags(MSP()).input_tags.sparse
    frozen = FrozenEstimator(LogisticRegression().fit(np.eye(2), [0, 1]))
    assert get_tags(MSP(frozen)).estimator_type == "outlier_detector"


@pytest.mark.parametrize("detector", [MSP(), KNN(n_neighbors=5), ViM(), Mahalanobis()])
def test_other_width_than_in_fit(detector):
    X, y = load_iris(return_X_y=True)
    message = rf"X has 2 features, but {type(detector).__name__} is expecting 3"
    with pytest.raises(ValueError, match=message):
        detector.fit(X[:, :3], y).score_samples(X[:, :2])


# ---------------------------------------------------------------------------------
# Tensors on a GPU, played by tensors on the CPU.


@pytest.fixture
def gpu(monkeypatch):
    """Have tensors on the CPU treated as those on a GPU are."""
    monkeypatch.setattr(module, "on_gpu", torch.is_tensor)
    monkeypatch.setattr(
        module,
        "array_device",
        lambda device, array: array.device if is_tensor(array) else None,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "detector", [Energy(), Mahalanobis(), KNN(n_neighbors=3, algorithm="torch")]
)
def test_tensors_on_a_gpu_stay_there(gpu, monkeypatch, detector, dtype):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 4 - 1  # -1 marks OOD rows
    tensor = torch.tensor(X, dtype=dtype)
    array = tensor.numpy()
    expected = clone(detector).fit(array, y)
    seen = []
    original = type(detector)._fit_outputs

    def fit_outputs(self, outputs, y):
        seen.append(type(outputs.array))
        return original(self, outputs, y)

    monkeypatch.setattr(type(detector), "_fit_outputs", fit_outputs)
    fitted = clone(detector).fit(tensor, y)
    assert seen == [torch.Tensor]
    assert fitted.n_features_in_ == 3
    scores = fitted.score_samples(tensor)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float64
    rtol = 1e-10 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(scores, expected.score_samples(array), rtol=rtol)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3"):
        fitted.score_samples(tensor[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        fitted.score_samples(tensor * np.nan)


def test_tensor_on_a_gpu_after_a_data_frame(gpu):
    frame = pd.DataFrame(np.eye(3), columns=list("abc"))
    energy = Energy().fit(frame)
    energy.fit(torch.eye(3))
    assert not hasattr(energy, "feature_names_in_")


def test_head_is_fitted_on_the_host(gpu):
    X, y = np.random.default_rng(0).normal(size=(60, 6)), np.arange(60) % 3
    expected = ViM().fit(X, y).score_samples(X)
    scores = ViM().fit(torch.from_numpy(X), y).score_samples(torch.from_numpy(X))
    np.testing.assert_allclose(scores, expected)


@pytest.mark.parametrize("detector", [*READ_LOGITS, GEN(), GradNorm()], ids=repr)
def test_threshold_of_logits_runs_the_classifier_on_5000_samples(detector):
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(9_000, 4)), rng.normal(size=(3, 4))
    n_seen = []
    steps = FunctionTransformer(lambda X: n_seen.append(len(X)) or X), LinearHead(coef)
    network = FrozenEstimator(make_pipeline(*steps).fit(X[:9], np.arange(9) % 3))
    n_seen.clear()
    detector = clone(detector).set_params(estimator=network).fit(X, np.arange(9000) % 3)
    assert sum(n_seen) == 5000
    scores = detector.score_samples(X)
    expected = middle_of_gap(scores[drawn_in_order(9000)[0]], 0.05)
    assert detector.offset_ == pytest.approx(expected, rel=1e-12)
    # five standard errors of the level of a quantile of 5,000 samples
    assert abs(np.mean(scores < detector.offset_) - 0.05) < 0.0155


def test_threshold_of_logits_in_any_container():
    rng = np.random.default_rng(1)
    X, coef = rng.normal(size=(6_000, 4)), rng.normal(size=(3, 4))
    head = FrozenEstimator(LinearHead(coef))
    expected = MSP(head).fit(X).offset_
    frame = pd.DataFrame(X)
    batches = torch.utils.data.TensorDataset(torch.from_numpy(X))
    for samples in (frame, torch.from_numpy(X), sparse.csr_array(X), batches):
        assert MSP(head).fit(samples).offset_ == pytest.approx(expected, rel=1e-12)
    assert MSP().fit(X @ coef.T).offset_ == pytest.approx(expected, rel=1e-12)
    with shared_outputs([MSP(head), Energy(head)]):
        Energy(head).fit(X)
        assert MSP(head).fit(X).offset_ == pytest.approx(expected, rel=1e-12)
    # weights equal repeated samples
    weight = rng.integers(0, 3, size=len(X))
    repeated = MSP(head).fit(np.repeat(X, weight, axis=0)).offset_
    detector = MSP(head).fit(X, sample_weight=weight)
    assert detector.offset_ == pytest.approx(repeated, rel=1e-12)
    assert repeated != expected


def test_threshold_of_logits_runs_a_refitted_classifier_on_few_samples():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(6_000, 4)), np.arange(6000) % 3
    X[np.arange(6000), y] += 2.0
    n_seen = []
    count = FunctionTransformer(lambda X: n_seen.append(len(X)) or X)
    detector = MSP(make_pipeline(count, LogisticRegression())).fit(X, y)
    # fit, outputs, fit without a sixth, its scores, and both on common samples
    assert n_seen == [6000, 5000, 5000, 1000, 1000, 1000]
    rejected = np.mean(detector.predict(X) == -1)
    assert abs(rejected - 0.05) < 5 * np.sqrt(0.05 * 0.95 / 1000)
