"""Warnings about detectors that are calibrated on samples that they were fitted on."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skood import persistence
from skood.combine import DSDE, DetectorEnsemble
from skood.detectors import GMM, KNN, MSP, Mahalanobis, MultiLayerMahalanobis
from skood.exceptions import SkoodWarning
from skood.graph import NodeSet, Propagation
from skood.logic import LogicDetector
from skood.monitor import ExchangeabilityMonitor, MonitorPanel
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from skood.selection import NoveltySelector
from tests._loops import looped

_RNG = np.random.default_rng(0)
A, B = _RNG.normal(size=(2, 500, 16))
LABELS = (B[:, 0] > 0).astype(int)
CLASSIFIER = FrozenEstimator(LogisticRegression().fit(B, LABELS))


def _messages(calibrate, *args):
    """Return the warnings about training samples."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrate(*args)
    messages = [str(one.message) for one in caught if one.category is SkoodWarning]
    return [one for one in messages if "calibration samples are training" in one]


def _monitored(detector, X):
    """Return the warnings of a monitor of a fitted detector."""
    return _messages(ExchangeabilityMonitor(FrozenEstimator(detector)).fit, X)


def test_message():
    [message] = _monitored(KNN().fit(A), A)
    expected = "500 of 500 calibration samples are training samples of KNN: use others"
    assert message.startswith(expected)


def test_streams_with_and_without_alarm():
    alarms = {}
    for seed in range(100, 112):
        rng = np.random.default_rng(seed)
        X, stream = rng.normal(size=(500, 16)), rng.normal(size=(2000, 16))
        frozen = FrozenEstimator(KNN(normalize=True).fit(X))
        for detector in (frozen, KNN(normalize=True)):
            monitor = ExchangeabilityMonitor(detector, random_state=seed)
            n_warnings = len(_messages(monitor.fit, X))
            alarm = monitor.partial_fit(stream).alarm_ is not None
            key = detector is frozen, n_warnings, alarm
            alarms[key] = alarms.get(key, 0) + 1
    assert alarms == {(True, 1, True): 12, (False, 0, False): 12}


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(np.float32),
        lambda X: torch.tensor(X, dtype=torch.float32),
        lambda X: X.tolist(),
        lambda X: np.asfortranarray(X[::-1]),
        pd.DataFrame,
    ],
)
def test_containers(convert):
    [message] = _monitored(KNN().fit(A), convert(A))
    assert message.startswith("500 of 500")
    assert not _monitored(KNN().fit(A), convert(B))


@pytest.mark.parametrize(("n_shared", "n_warnings"), [(500, 1), (25, 1), (24, 0)])
def test_from_five_percent_on(n_shared, n_warnings):
    X = np.vstack([A[500 - n_shared :], B[: 500 - n_shared]])
    messages = _monitored(KNN().fit(A), _RNG.permutation(X))
    assert len(messages) == n_warnings
    assert all(one.startswith(f"{n_shared} of 500") for one in messages)


def test_five_percent_of_a_hundred():
    knn = KNN().fit(A[:100])
    assert len(_monitored(knn, np.vstack([A[:5], B[:95]]))) == 1


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(StandardScaler(), KNN()),
        make_pipeline(StandardScaler(), PCA(8), Mahalanobis()),
        make_pipeline(FunctionTransformer(np.tanh), "passthrough", GMM()),
    ],
)
def test_pipelines(pipeline):
    fitted = pipeline.fit(A)
    assert _monitored(fitted, A)[0].startswith("500 of 500")
    assert _monitored(fitted, A[::3])[0].startswith("167 of 167")
    assert not _monitored(fitted, B)


def test_sparse_and_mixed_columns():
    X = csr_array(np.where(np.abs(A) > 1.5, A, 0))
    other = csr_array(np.where(np.abs(B) > 1.5, B, 0))
    knn = KNN().fit(X)
    assert _monitored(knn, X)
    assert not _monitored(knn, other)
    names = [f"x{j}" for j in range(16)]
    frame = pd.DataFrame(A, columns=names).assign(
        text=[f"text {i}" for i in range(500)]
    )
    numbers = FunctionTransformer(lambda frame: frame.drop(columns="text"))
    network = make_pipeline(numbers, LogisticRegression())
    detector = Mahalanobis(network).fit(frame, LABELS)
    assert _monitored(detector, frame)
    assert not _monitored(detector, frame.assign(text="another"))


def test_nodes_of_two_graphs():
    adjacency = np.diag(np.ones(499), 1)
    features = FunctionTransformer(lambda nodes: nodes.features)
    detector = Propagation(make_pipeline(features, KNN()))
    nodes, other = NodeSet((A, adjacency)), NodeSet((B, adjacency))
    detector.fit(nodes[:300])
    assert _monitored(detector, nodes[:300])
    assert not _monitored(detector, nodes[300:])
    assert not _monitored(detector, other[:300])
    # the nested detector is frozen: Propagation itself learns nothing
    nested = Propagation(FrozenEstimator(detector.estimator_)).fit(nodes[300:])
    assert not _monitored(nested, nodes[300:])
    assert _monitored(nested, nodes[:300])


def test_large_sets():
    X = np.random.default_rng(1).normal(size=(30_000, 4))
    detector = Mahalanobis().fit(X)
    for part in (X, X[-500:], X[::50]):
        [message] = _monitored(detector, part)
        about = re.match(r"About (\d+) of (\d+) ", message)
        n_training, n_samples = map(int, about.groups())
        assert n_samples == len(part)
        assert 0.5 * n_samples < n_training <= n_samples
    assert not _monitored(detector, np.random.default_rng(2).normal(size=(5000, 4)))


@pytest.mark.parametrize("n_batches", [2, 40])
def test_partial_fit(n_batches):
    X = np.random.default_rng(1).normal(size=(8_000, 4))
    detector = Mahalanobis()
    for batch in np.array_split(X, n_batches):
        detector.partial_fit(batch)
    for part in (X[:500], X[3800:4300], X[-500:]):
        assert len(_monitored(detector, part)) == 1
    assert not _monitored(detector, np.random.default_rng(2).normal(size=(500, 4)))


def _repeated(name, n, rng):
    """Draw samples of a distribution with repeated values."""
    if name == "integers":
        return rng.integers(0, 1000, (n, 1)).astype(float)
    if name == "skewed":
        return rng.zipf(1.5, (n, 1)).clip(max=1e6).astype(float)
    if name == "counts":
        return rng.poisson(2, (n, 3)).astype(float)
    X = rng.normal(size=(n, 4))
    X[rng.random(n) < 0.1] = 0
    return X.round(1) if name == "rounded" else X


@looped("n_samples", [(500, 500), (2500, 200), (100, 1500), (20, 20)])
@looped("name", ["integers", "skewed", "counts", "rounded", "zeros"])
def test_samples_that_are_equal_by_chance(name, n_samples):
    rng = np.random.default_rng(0)
    for _ in range(10):
        X, new = (_repeated(name, n, rng) for n in n_samples)
        assert not _monitored(Mahalanobis().fit(X), new)


@pytest.mark.parametrize("name", ["integers", "skewed", "counts", "rounded", "zeros"])
def test_training_samples_with_repeated_values(name):
    X = _repeated(name, 500, np.random.default_rng(0))
    assert _monitored(Mahalanobis().fit(X), X)[0].startswith("500 of 500")


def test_oversampled_classes():
    X = np.vstack([A, *[A[:50]] * 5])  # a rare class is repeated
    assert _monitored(KNN().fit(X), A)[0].startswith("500 of 500")


def test_detectors_that_do_not_learn_from_samples():
    logits = A[:, :3]
    for detector in (
        MSP().fit(logits),
        MSP(CLASSIFIER).fit(A),
        DetectorEnsemble(
            [("a", FrozenEstimator(KNN().fit(B)))], calibration="same"
        ).fit(A),
    ):
        assert not _monitored(detector, A if detector.n_features_in_ == 16 else logits)
    assert len(_monitored(MSP(LogisticRegression()).fit(A, LABELS), A)) == 1


def test_samples_that_were_left_out_of_the_fit():
    y = np.repeat([0, -1], 250)
    weight = np.repeat([1, 0], 250)
    for fit in ({"y": y}, {"sample_weight": weight}):
        knn = KNN().fit(A, **fit)
        assert len(_monitored(knn, A[:250])) == 1
        assert not _monitored(knn, A[250:])


def test_refitted_detector():
    knn = KNN().fit(A).fit(B)
    assert len(_monitored(knn, B)) == 1
    assert not _monitored(knn, A)
    with pytest.raises(ValueError, match="NaN"):
        knn.fit(np.full((5, 16), np.nan))
    assert len(_monitored(knn, B)) == 1


def test_unfrozen_detectors_are_fitted_on_other_samples():
    knn = KNN().fit(A)  # the fit is not used
    assert not _messages(ExchangeabilityMonitor(knn).fit, A)
    assert not _messages(DetectorEnsemble([("a", knn)]).fit, A)
    assert not _messages(NoveltySelector(knn).fit, A)


def test_methods_of_detectors():
    for method in (KNN().fit(A).score_samples, KNN().fit(A).decision_function):
        assert len(_messages(ExchangeabilityMonitor(method).fit, A)) == 1
        assert not _messages(ExchangeabilityMonitor(method).fit, B)


def test_panel():
    frozen = FrozenEstimator(KNN().fit(A))
    pair = [
        ("knn", ExchangeabilityMonitor(frozen)),
        ("scores", ExchangeabilityMonitor()),
    ]
    scores = A[:, 0]
    assert len(_messages(MonitorPanel(pair).fit, {"knn": A, "scores": scores})) == 1
    assert not _messages(MonitorPanel(pair).fit, {"knn": B, "scores": scores})
    panel = MonitorPanel(ExchangeabilityMonitor(frozen), by=CLASSIFIER)
    assert len(_messages(panel.fit, A)) == 2  # one per class
    assert not _messages(panel.fit, B)


_MEMBERS = [(str(k), FrozenEstimator(KNN(n_neighbors=k).fit(A))) for k in range(1, 5)]


@pytest.mark.parametrize(
    ("estimator", "n_warnings"),
    [
        (DetectorEnsemble(_MEMBERS, calibration="same"), 4),
        (DetectorEnsemble([_MEMBERS[0], ("b", Mahalanobis())]), 1),
        (DSDE(_MEMBERS, calibration=0.5), 4),
        (NoveltySelector(_MEMBERS[0][1], calibration="same"), 1),
        (NoveltySelector(_MEMBERS[:2], n_splits=2), 2),
        (
            RejectOptionClassifier(
                CLASSIFIER,
                ood_detector=_MEMBERS[0][1],
                rule=BoundedAbstention(coverage=0.8),
                calibration="same",
            ),
            1,
        ),
        (
            RejectOptionClassifier(
                LogisticRegression(),
                ood_detector=_MEMBERS[0][1],
                rule=BoundedAbstention(coverage=0.8),
            ),
            1,
        ),
        (
            LogicDetector(
                ["y = 0 or y = 1"],
                [("y", CLASSIFIER)],
                detector=_MEMBERS[0][1],
                calibration="same",
            ),
            1,
        ),
    ],
)
def test_meta_estimators(estimator, n_warnings):
    y = np.tile([0, 1], 250)
    assert len(_messages(estimator.fit, A, y)) == n_warnings
    assert not _messages(estimator.fit, B, y)


def test_recalibrated_on_training_samples():
    y = (A[:, 0] > 0).astype(int)
    rule = BoundedAbstention(coverage=0.8)
    clf = RejectOptionClassifier(
        LogisticRegression(), ood_detector=KNN(), rule=rule, random_state=0
    )
    assert not _messages(clf.fit, A, y)
    assert len(_messages(clf.recalibrate, A, y)) == 1
    assert not _messages(clf.recalibrate, B, LABELS)
    assert len(_messages(clf.with_rule, rule, A, y)) == 1
    assert not _messages(clf.with_rule, rule, B, LABELS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_detector_that_uses_ood_samples():
    network = MLPClassifier((8,), max_iter=20, random_state=0).fit(B, LABELS)
    network = FrozenEstimator(network)
    y = np.repeat([0, 1, -1], [200, 200, 100])
    detector = MultiLayerMahalanobis(network).fit(A, y)
    assert len(_monitored(detector, A)) == 1
    assert not _monitored(detector, B)


def test_stored_keys_in_files(tmp_path):
    knn = KNN().fit(A)
    persistence.dump(knn, tmp_path / "knn.skood")
    loaded = persistence.load(tmp_path / "knn.skood")
    for detector in (loaded, pickle.loads(pickle.dumps(knn))):
        assert len(_monitored(detector, A)) == 1
        assert not _monitored(detector, B)


def test_memory():
    n_samples, keys = Mahalanobis().fit(_RNG.normal(size=(5000, 3)))._training_keys
    assert (n_samples, keys.nbytes) == (5000, 16_000)
