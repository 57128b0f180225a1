"""Torch datasets and loaders in place of arrays, in all that reads a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.helper import SliceDataset
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from skood.base import UncertaintyDetector
from skood.benchmark import Output, compare
from skood.benchmark._hashing import content_hash
from skood.combine import DetectorEnsemble
from skood.detectors import (
    KNN,
    MSP,
    ODIN,
    Mahalanobis,
    SklearnDetector,
    ViM,
)
from skood.epistemic import QUAM, AdversarialSearch, BatchEnsemble, Laplace
from skood.evidential import EvidentialClassifier
from skood.metrics import Resampling
from skood.nn import (
    FeatureExtractor,
    MultiHeadClassifier,
    TorchClassifier,
    pretrained,
    split,
)
from skood.nn._shared_forward import shared_outputs
from skood.rejection import (
    BoundedTPRFPR,
    RejectOptionClassifier,
    Solver,
)
from tests._forks import forked, forks
from tests._instances import network_detectors, output_detectors
from tests.nn._conv_net import conv_classifier, images
from tests.nn._items import Items, Stream

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

X = images(120, seed=1).astype(np.float32)
Y = np.arange(120) % 3
NAMES = np.array(["ant", "bee", "cat"])[Y]
WITH_OOD = np.where(np.arange(120) % 5 == 0, -1, Y)
_, CLF = conv_classifier()

DETECTORS = {
    type(detector).__name__: detector.set_params(estimator=CLF)
    for detector in (
        *output_detectors(n_neighbors=3),
        *network_detectors(layer="conv2"),
    )
}
DETECTORS["Ensemble"] = DetectorEnsemble(
    [("msp", MSP()), ("knn", KNN(n_neighbors=3))], estimator=CLF, random_state=0
)


@pytest.mark.parametrize(
    "y", [pytest.param(Y, id="id", marks=pytest.mark.slow), WITH_OOD]
)
@pytest.mark.parametrize("name", DETECTORS)
def test_same_numbers_as_from_arrays(name, y):
    """Labels come from the items, rows of ood_label are left out, order is kept."""
    expected = clone(DETECTORS[name]).fit(X, y)
    items = Items(X, y)
    for data in (items, DataLoader(items, batch_size=32, shuffle=True)):
        detector = clone(DETECTORS[name]).fit(data)
        assert_array_equal(detector.classes_, [0, 1, 2])
        assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-5)
        for scored in (items, DataLoader(items, batch_size=50), Stream(items)):
            assert_allclose(
                detector.score_samples(scored), expected.score_samples(X), rtol=1e-4
            )
    assert_array_equal(detector.predict(items), expected.predict(X))


@pytest.mark.parametrize(
    ("name", "n_passes"), [("MSP", 1), ("Mahalanobis", 1), ("ViM", 1), ("ODIN", 2)]
)
def test_passes_over_the_items(name, n_passes):
    """What reads features or logits finds labels and rows in the same pass."""
    items = Items(X, Y)
    detector = clone(DETECTORS[name]).fit(items)
    assert items.n_loaded == n_passes * len(X)
    items.n_loaded = 0
    detector.score_samples(items)
    assert items.n_loaded == len(X)


def test_passed_labels_come_first():
    items = Items(X, Y)
    detector = Mahalanobis(CLF).fit(items, NAMES)
    assert detector.classes_.tolist() == ["ant", "bee", "cat"]
    assert items.n_loaded == len(X)


def test_items_without_labels():
    detector = KNN(CLF, n_neighbors=3).fit(Items(X))
    expected = KNN(CLF, n_neighbors=3).fit(X)
    assert_array_equal(detector.classes_, CLF.classes_)
    assert_array_equal(detector.score_samples(Items(X)), expected.score_samples(X))


def test_labels_are_text():
    detector = Mahalanobis(CLF).fit(DataLoader(Items(X, NAMES), shuffle=True))
    expected = Mahalanobis(CLF).fit(X, NAMES)
    assert_array_equal(detector.classes_, ["ant", "bee", "cat"])
    assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-5)


def test_names_of_columns_are_not_asked_of_items():
    Z = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    network = pretrained(torch.nn.Sequential(torch.nn.Linear(2, 3)))
    detector = MSP(network).fit(pd.DataFrame(Z, columns=["a", "b"]))
    assert_array_equal(
        detector.score_samples(Items(Z)), MSP(network).fit(Z).score_samples(Z)
    )


def test_subsets():
    chosen = [5, 3, 90]
    detector = KNN(CLF, n_neighbors=3).fit(Subset(Items(X, Y), range(60)))
    expected = KNN(CLF, n_neighbors=3).fit(X[:60], Y[:60])
    assert_allclose(
        detector.score_samples(Subset(Items(X, Y), chosen)),
        expected.score_samples(X[chosen]),
        rtol=1e-5,
    )


def test_workers():
    loader = DataLoader(Items(X, Y), batch_size=50, num_workers=1)
    detector = MSP(CLF).fit(loader)
    assert_allclose(
        detector.score_samples(loader), MSP(CLF).fit(X).score_samples(X), rtol=1e-5
    )


def test_features_in_a_dataset():
    """Without an estimator the items are what is learned from."""
    Z = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
    y = np.arange(90) % 3
    data = TensorDataset(torch.from_numpy(Z), torch.from_numpy(y))
    for detector in (
        Mahalanobis(),
        ViM(),
        SklearnDetector(detector=IsolationForest(n_estimators=10, random_state=0)),
    ):
        expected = clone(detector).fit(Z, y)
        detector = clone(detector).fit(data)
        assert detector.offset_ == expected.offset_
        assert_allclose(
            detector.score_samples(DataLoader(data, batch_size=7)),
            expected.score_samples(Z),
            rtol=1e-6,
        )


def test_classifiers_of_scikit_learn():
    Z = np.random.default_rng(0).normal(size=(90, 4))
    y = np.arange(90) % 3
    data = TensorDataset(torch.from_numpy(Z), torch.from_numpy(y))
    for classifier in (
        LogisticRegression().fit(Z, y),
        make_pipeline(StandardScaler(), LogisticRegression()).fit(Z, y),
    ):
        frozen = FrozenEstimator(classifier)
        for detector in (ViM(frozen), ODIN(frozen)):
            expected = clone(detector).fit(Z, y)
            fitted = clone(detector).fit(data)
            assert_allclose(fitted.score_samples(data), expected.score_samples(Z))
    _, head = split(frozen)
    assert_allclose(head.predict_proba(data), head.predict_proba(Z))


def test_steps_from_samples():
    items = Items(X, Y)
    detector = Mahalanobis(CLF)
    for start in (0, 60):
        detector.partial_fit(Subset(items, range(start, start + 60)))
    expected = Mahalanobis(CLF).fit(X, Y)
    assert_allclose(detector.score_samples(items), expected.score_samples(X), rtol=1e-4)
    Z = X.reshape(len(X), -1)[:, :5]
    detector = Mahalanobis().partial_fit(Items(Z, Y))
    assert detector.offset_ == pytest.approx(Mahalanobis().fit(Z, Y).offset_)


def test_bodies():
    items = Items(X, Y)
    body = FeatureExtractor(CLF).fit(items)
    expected = FeatureExtractor(CLF).fit_transform(X)
    assert_array_equal(body.transform(items), expected)
    assert_array_equal(clone(body).fit_transform(items), expected)
    frame = body.set_output(transform="pandas").transform(items)
    assert_array_equal(frame.to_numpy(), expected)
    loader = DataLoader(items, shuffle=True)
    with pytest.raises(ValueError, match="The DataLoader shuffles"):
        body.fit(loader).transform(loader)


def test_pipelines_give_labels_apart():
    items = Items(X, Y)
    pipeline = make_pipeline(FeatureExtractor(CLF), Mahalanobis()).fit(items, Y)
    expected = make_pipeline(FeatureExtractor(CLF), Mahalanobis()).fit(X, Y)
    assert_allclose(pipeline.score_samples(items), expected.score_samples(X))


# ---- classifiers


def test_networks_that_were_trained():
    items, table = Items(X, Y), np.column_stack([Y, Y == 0])
    options = {"max_epochs": 1, "random_state": 0}
    for classifier, y in (
        (TorchClassifier(**options), Y),
        (MultiHeadClassifier(**options), table),
        (MultiHeadClassifier(**options), Y),
        (BatchEnsemble(TorchClassifier(**options), n_members=2), Y),
        (EvidentialClassifier(TorchClassifier(**options)), Y),
    ):
        classifier.fit(X, y)
        for method in (
            "predict",
            "predict_proba",
            "predict_logits",
            "predict_alpha",
            "predict_uncertainty",
            "predict_members",
            "transform",
        ):
            if hasattr(classifier, method):
                _assert_equal(
                    getattr(classifier, method)(items), getattr(classifier, method)(X)
                )
        with pytest.raises(TypeError, match=" is trained on arrays, got a Items"):
            classifier.fit(items, y)
        with pytest.raises(TypeError, match="wrap it with skood"):
            classifier.fit(items, y)


def _assert_equal(actual, expected):
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            _assert_equal(one, other)
    elif expected.dtype.kind == "f":
        assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    else:
        assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "randomize", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_reject_option(randomize):
    items = Items(X, WITH_OOD)
    network, _ = conv_classifier()
    plain = RejectOptionClassifier(
        pretrained(network, batch_size=32),  # as the loader: so numbers are the same
        ood_detector=KNN(n_neighbors=3),
        rule=BoundedTPRFPR(tpr_min=0.5, fpr_max=0.9),
        solver=Solver(randomize=randomize),
        random_state=0,
    )
    expected = clone(plain).fit(X, WITH_OOD)
    fitted = clone(plain).fit(DataLoader(items, 32, shuffle=True), None)
    loader = DataLoader(items, batch_size=32)
    items.n_loaded = 0
    _assert_equal(fitted.predict(loader), expected.predict(X))
    assert items.n_loaded == len(X)  # the answer and both scores of a batch at once
    for method in (
        "accept_proba",
        "predict_proba",
        "decision_function",
        "reject_reason",
    ):
        _assert_equal(getattr(fitted, method)(loader), getattr(expected, method)(X))
    assert fitted.score(loader, WITH_OOD) == expected.score(X, WITH_OOD)
    assert fitted.report(loader, WITH_OOD) == expected.report(X, WITH_OOD)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(loader, WITH_OOD[:-1])
    with pytest.raises(ValueError, match="requires y to be passed"):
        fitted.fit(Items(X), None)


def test_without_a_rule():
    classifier = RejectOptionClassifier(CLF).fit(Items(X, Y), None)
    assert_array_equal(classifier.predict(Items(X)), CLF.predict(X))
    assert classifier.score(Stream(Items(X)), Y) == np.mean(CLF.predict(X) == Y)


def test_epistemic():
    items = Items(X, Y)
    quam = QUAM(CLF, search=AdversarialSearch(n_steps=2, batch_size=8), random_state=0)
    laplace = Laplace(CLF, random_state=0)
    for estimator in (quam, laplace):
        expected = clone(estimator).fit(X, Y)
        fitted = clone(estimator).fit(items, Y)
        subset = Items(X[:6])
        _assert_equal(
            fitted.predict_uncertainty(subset), expected.predict_uncertainty(X[:6])
        )
        _assert_equal(fitted.predict_proba(subset), expected.predict_proba(X[:6]))
    items.n_loaded = 0
    clone(quam).fit(items, Y)
    assert items.n_loaded < len(X)  # only the training rows that it draws
    detector = UncertaintyDetector(FrozenEstimator(fitted)).fit(items)
    assert detector.score_samples(items).shape == (len(X),)


# ---- one network for several


def test_single_pass_for_all_members():
    items = Items(X, Y)
    DETECTORS["Ensemble"].set_params(calibration=0.25)
    ensemble = clone(DETECTORS["Ensemble"]).fit(items, Y)
    assert items.n_loaded == len(X)
    items.n_loaded = 0
    ensemble.pvalues(items)
    assert items.n_loaded == len(X)
    assert len(ensemble.explain(items)) == len(X)


def test_shared_outputs():
    items = Items(X, Y)
    detectors = [MSP(CLF), KNN(CLF, n_neighbors=3)]
    with shared_outputs(detectors):
        for detector in detectors:
            detector.fit(items, Y)
            expected = clone(detector).fit(X, Y)
            assert detector.offset_ == expected.offset_


# ---- scikit-learn takes rows


def test_cross_validation():
    data = SliceDataset(Items(X, Y))
    detector = KNN(CLF, n_neighbors=3)
    scores = cross_val_score(detector, data, WITH_OOD)
    assert_allclose(scores, cross_val_score(detector, X, WITH_OOD))
    search = GridSearchCV(detector, {"n_neighbors": [1, 5]})
    scores, expected = (
        clone(search).fit(samples, WITH_OOD).cv_results_["mean_test_score"]
        for samples in (data, X)
    )
    assert_allclose(scores, expected)


def test_cross_validation_of_a_dataset_that_is_not_wrapped():
    with pytest.raises(
        TypeError, match=r"Give it skorch.helper.SliceDataset\(dataset\)"
    ):
        cross_val_score(MSP(CLF), Items(X, Y), WITH_OOD, error_score="raise")


# ---- comparisons


def test_compare(tmp_path):
    """Cells are named by the content of the items, not by the files' names."""
    detectors = {"knn": KNN(CLF, n_neighbors=3), "msp": MSP(CLF)}
    sets = {"a": X + 1, "b": X[:40] * 2}
    options = {"metrics": "auroc", "random_state": 0, "resampling": Resampling(9)}
    expected = compare(detectors, X, Y, sets, **options)

    def run():
        lazy = {"a": Items(X + 1), "b": DataLoader(Items(X[:40] * 2), shuffle=True)}
        items, output = Items(X, Y), Output(resume=tmp_path, cache=tmp_path)
        return compare(
            detectors, items, None, lazy, output=output, **options
        ), items.n_loaded

    for n_passes in (5, 2):  # labels; hashes of all, of both parts; reading - or not
        result, n_loaded = run()
        assert_allclose(result["value"], expected["value"])
        assert n_loaded <= n_passes * len(X)


def test_content_of_items():
    items = Items(X, Y)
    known = content_hash(items)
    assert content_hash(DataLoader(Items(X), batch_size=7)) == known
    assert content_hash(Subset(items, range(120))) == known
    assert content_hash(Items(X + 1)) != known
    assert content_hash(Items(X.astype(np.float64))) != known
    assert content_hash(Items(X.reshape(120, -1))) != known
    assert content_hash(Items(X[:119])) != known


# ---- memory


class Images(Dataset):
    """Images that are made when they are loaded."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.full((3, 112, 112), float(i % 7)), i % 5


def peak():
    """Largest memory so far of this process, in KiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def fit_and_score_many():
    # M_MMAP_THRESHOLD: freed arrays go back to the system, and all are new
    ctypes.CDLL(None).mallopt(-3, 65536)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 16, stride=16),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 5),
    )
    peaks = []
    for n in (128, 640):
        detector = Mahalanobis(pretrained(net)).fit(Images(n))
        detector.score_samples(DataLoader(Images(n), batch_size=64))
        peaks.append(peak())
    assert peaks[1] - peaks[0] < 15 * 1024


@forks
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_samples():
    """512 images more are 74 MiB; a batch of them is 9 MiB."""
    assert forked(fit_and_score_many) == 0
