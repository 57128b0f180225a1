"""Models of ONNX give the numbers of the detectors that they were made of."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skood.detectors import (
    GEN,
    KNN,
    MSP,
    SHE,
    SSD,
    Energy,
    Entropy,
    KLMatching,
    Mahalanobis,
    MaxLogit,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.nn import LinearHead, pretrained, split
from skood.onnx import register_converters, to_onnx
from skood.utils.discovery import all_estimators

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

LINEAR = LogisticRegression()

EXPORTABLE = [kind for _, kind in all_estimators() if hasattr(kind, "_onnx_score")]


def network(activation="relu", hidden=(8,)):
    return MLPClassifier(
        hidden, activation=activation, solver="lbfgs", max_iter=300, random_state=0
    )


DETECTORS = [
    Energy(),
    Energy(LINEAR, temperature=3.0),
    Energy(class_weight=[1.0, 0.0, 2.0, 1.0]),
    Entropy(),
    Entropy(network("tanh")),
    GEN(),
    GEN(top=1),
    GEN(network(hidden=(8, 6)), gamma=0.5, top=3),
    KLMatching(),
    KLMatching(network("logistic")),
    KNN(n_neighbors=3),
    KNN(n_neighbors=120, normalize=False),
    KNN(network("identity"), n_neighbors=2),
    MSP(),
    MSP(LINEAR, temperature=2.0),
    Mahalanobis(),
    Mahalanobis(LINEAR, tied=False),
    Mahalanobis(covariance=LedoitWolf()),
    MaxLogit(),
    RelativeMahalanobis(),
    RelativeMahalanobis(covariance=LedoitWolf()),
    Residual(n_components=2),
    SSD(),
    ViM(n_components=2),
    ViM(LinearHead(coef=np.eye(4), intercept=np.arange(4.0)), n_components=1),
]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = rng.normal(size=(120, 4)) + 4 * np.eye(4)[y]
    far = 6 * rng.normal(size=(30, 4))
    saturated = 300 * X[:10]  # all but one probability is below the least float
    return X, y, np.concatenate([X, far, saturated, np.zeros((1, 4)), 1e-3 * X[:3]])


def run(model, samples):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert [output.name for output in session.get_outputs()] == ["label", "scores"]
    return session.run(None, {session.get_inputs()[0].name: samples})


def needs_skl2onnx():
    return pytest.importorskip("skl2onnx")


@pytest.mark.parametrize("detector", DETECTORS, ids=repr)
def test_scores_are_those_of_the_detector(detector, data):
    needs_skl2onnx()
    X, y, samples = data
    model = to_onnx(detector.fit(X, y))
    label, scores = run(model, samples)
    expected = detector.score_samples(samples)
    assert scores.dtype == np.float64
    assert label.dtype == np.int64
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-300)
    clear = np.abs(expected - detector.offset_) > 1e-9 * np.abs(detector.offset_)
    np.testing.assert_array_equal(label[clear], detector.predict(samples)[clear])
    # any number of rows, each by itself
    _, one = run(model, samples[5:6])
    np.testing.assert_allclose(one, scores[5:6], rtol=1e-12)


def test_every_formula_is_tested():
    assert {type(detector) for detector in DETECTORS} == set(EXPORTABLE)


def test_binary_classifier(data):
    """A margin is two logits, as for the detector itself."""
    needs_skl2onnx()
    X, y, samples = data
    for classifier in (LINEAR, network()):
        detector = MSP(classifier).fit(X, y % 2)
        _, scores = run(to_onnx(detector), samples)
        np.testing.assert_allclose(
            scores, detector.score_samples(samples), rtol=1e-9, atol=1e-300
        )


def test_frozen_classifier(data):
    needs_skl2onnx()
    X, y, samples = data
    detector = ViM(FrozenEstimator(network().fit(X, y)), n_components=2).fit(X)
    _, scores = run(to_onnx(detector), samples)
    np.testing.assert_allclose(scores, detector.score_samples(samples), rtol=1e-9)


@pytest.mark.parametrize(
    "with_head, dtype",
    [
        (False, np.float64),
        (True, np.float32),
        pytest.param(True, np.float64, marks=pytest.mark.slow),
        pytest.param(False, np.float32, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", EXPORTABLE, ids=lambda kind: kind.__name__)
def test_features_of_a_split_network(kind, with_head, dtype, data):
    """Every detector on features, logits or a head with given weights."""
    needs_skl2onnx()
    X, y, samples = data
    body, head = split(network().fit(X, y))
    train, test = (body.transform(one).astype(dtype) for one in (X, samples[:150]))
    if kind._needs == {"logits"} and not with_head:
        train, test = head.predict_logits(train), head.predict_logits(test)
    detector = kind(head if with_head else None).fit(train, y)
    model = to_onnx(detector, dtype=dtype)
    label, scores = run(model, test)
    # the detector computes in float64 from either kind of number
    expected = detector.score_samples(test.astype(np.float64))
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-11)
    clear = np.abs(expected - detector.offset_) > 1e-9 * np.abs(detector.offset_)
    predicted = detector.predict(test.astype(np.float64))
    np.testing.assert_array_equal(label[clear], predicted[clear])
    for i in range(3):
        one_label, one = run(model, test[i : i + 1])
        np.testing.assert_allclose(one, scores[i : i + 1], rtol=1e-12)
        assert one_label.shape == (1,)


def test_float32_features_of_a_torch_network(data):
    """The features that a torch body gives go into the model as they are."""
    torch = pytest.importorskip("torch")
    needs_skl2onnx()
    X, y, samples = data
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
        )
    body, head = split(pretrained(module, range(4)))
    train, test = body.transform(X), body.transform(samples[:150])
    assert test.dtype == np.float32
    detector = Energy(head).fit(train, y)
    _, scores = run(to_onnx(detector, dtype=np.float32), test)
    np.testing.assert_allclose(scores, detector.score_samples(test), rtol=1e-5)


def test_type_of_the_input(data):
    needs_skl2onnx()
    detector = SSD().fit(data[0])
    for dtype in (np.float16, int, None, "number"):
        with pytest.raises(
            ValueError, match=r"dtype must be np\.float64 or np\.float3"
        ):
            to_onnx(detector, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pipeline_of_either_type(data, dtype):
    needs_skl2onnx()
    X, y, samples = data
    samples = samples.astype(dtype)
    pipeline = make_pipeline(StandardScaler(), KNN(n_neighbors=5)).fit(X, y)
    _, scores = run(to_onnx(pipeline, dtype=dtype), samples)
    rtol = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(scores, pipeline.score_samples(samples), rtol=rtol)


def test_pipeline(data):
    needs_skl2onnx()
    X, y, samples = data
    pipeline = make_pipeline(StandardScaler(), KNN(n_neighbors=5)).fit(X, y)
    label, scores = run(to_onnx(pipeline), samples)
    np.testing.assert_allclose(scores, pipeline.score_samples(samples), rtol=1e-9)
    np.testing.assert_array_equal(label, pipeline.predict(samples))


def test_pipeline_that_starts_with_nothing(data):
    needs_skl2onnx()
    X, y, samples = data
    pipeline = make_pipeline("passthrough", StandardScaler(), SSD()).fit(X, y)
    _, scores = run(to_onnx(pipeline), samples)
    np.testing.assert_allclose(scores, pipeline.score_samples(samples), rtol=1e-9)


@pytest.mark.parametrize("step", [PolynomialFeatures(), LinearDiscriminantAnalysis()])
def test_transformer_without_float64(step, data):
    """What skl2onnx writes for it no runtime loads: that is said at once."""
    needs_skl2onnx()
    X, y, _ = data
    pipeline = make_pipeline(step, KNN(n_neighbors=3)).fit(X, y)
    expected = (
        rf"no valid model of float64 for {type(step).__name__} \(.*samples before"
    )
    with pytest.raises(ValueError, match=f"(?s){expected}"):
        to_onnx(pipeline)


def test_float32_samples_by_skl2onnx_itself(data):
    """What the model is given may be float32: it computes in float64."""
    skl2onnx = needs_skl2onnx()
    X, y, samples = data
    register_converters()
    samples = samples.astype(np.float32)
    detector = Mahalanobis().fit(X, y)
    _, scores = run(skl2onnx.to_onnx(detector, samples[:1]), samples)
    expected = detector.score_samples(samples.astype(np.float64))
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_versions_of_operators(data):
    needs_skl2onnx()
    X, y, samples = data
    detector = GEN().fit(X, y)
    model = to_onnx(detector, target_opset=18)
    assert {opset.version for opset in model.opset_import if not opset.domain} == {18}
    _, scores = run(model, samples)
    np.testing.assert_allclose(scores, detector.score_samples(samples), rtol=1e-9)
    with pytest.raises(ValueError, match=r"target_opset=17 is too old: .* 18 or newer"):
        to_onnx(detector, target_opset=17)


def test_errors(data):
    needs_skl2onnx()
    X, y, _ = data
    with pytest.raises(TypeError, match=r"no formula in ONNX for SHE\. .*Energy, Ent"):
        to_onnx(SHE().fit(X, y))
    with pytest.raises(TypeError, match="no formula in ONNX for LogisticRegression"):
        to_onnx(LINEAR)
    with pytest.raises(NotFittedError):
        to_onnx(KNN())
    with pytest.raises(ValueError, match="Euclidean distances only, got metric='man"):
        to_onnx(KNN(n_neighbors=3, metric="manhattan").fit(X))
    forest = RandomForestClassifier(n_estimators=3, random_state=0)
    with pytest.raises(TypeError, match="of a RandomForestClassifier, which has"):
        to_onnx(Entropy(forest).fit(X, y))
    scaled = make_pipeline(StandardScaler(), LINEAR)
    with pytest.raises(TypeError, match=r"steps before .* make_pipeline\(..., MSP\("):
        to_onnx(MSP(scaled).fit(X, y))


def test_without_skl2onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    for function in (register_converters, lambda: to_onnx(KNN())):
        with pytest.raises(ImportError, match=r'pip install "skl2onnx>=1'):
            function()
