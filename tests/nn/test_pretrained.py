"""A trained torch module as a frozen classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logit, softmax
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import cross_val_score
from torch import nn

from skood.detectors import MSP, Energy, Entropy
from skood.nn import pretrained
from tests.nn._outputs import read

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)


def net(width=3, *last):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, width), *last)


def logits_of(module):
    with torch.no_grad():
        return module[:3](torch.as_tensor(X)).double().numpy()


def test_methods():
    module = net()
    clf = pretrained(module, classes=["cat", "dog", "owl"])
    logits = logits_of(module)
    assert_allclose(clf.predict_logits(X), logits, rtol=1e-6)
    assert_allclose(clf.decision_function(X), logits, rtol=1e-6)
    assert_allclose(clf.predict_proba(X), softmax(logits, axis=1), rtol=1e-6)
    expected = [["cat", "dog", "owl"][i] for i in logits.argmax(1)]
    assert clf.predict(X).tolist() == expected
    assert clf.classes_.tolist() == ["cat", "dog", "owl"]
    assert clf.score(X, expected) == 1
    for method in ("predict_logits", "decision_function", "predict_proba"):
        assert getattr(clf, method)(X).dtype == np.float64
    assert is_classifier(clf)


def test_two_outputs():
    clf, logits = pretrained(net(2)), logits_of(net(2))
    assert_allclose(
        clf.decision_function(X), logits[:, 1] - logits[:, 0], rtol=1e-4, atol=1e-6
    )
    assert_allclose(clf.predict_logits(X), logits, rtol=1e-6)


def test_single_output_is_a_binary_margin():
    clf, margin = pretrained(net(1), ["no", "yes"]), logits_of(net(1))[:, 0]
    assert_allclose(clf.decision_function(X), margin, rtol=1e-6)
    assert_allclose(clf.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margin)), rtol=1e-6)
    assert clf.predict(X).tolist() == ["yes" if m > 0 else "no" for m in margin]
    assert pretrained(net(1)).classes_.tolist() == [0, 1]


def test_softmax_that_no_head_explains_needs_to_be_told():
    # a closing softmax is seen through, but this one is preceded by a scaling
    class Sharp(nn.Module):
        def forward(self, x):
            return (3 * x).softmax(1)

    module = net(3, Sharp())
    expected = softmax(3 * logits_of(module), axis=1)
    clf = pretrained(module, output="probabilities")
    assert_allclose(clf.predict_proba(X), expected, rtol=1e-5)
    assert_allclose(clf.predict_logits(X), np.log(expected), rtol=1e-4)
    assert_allclose(
        Entropy(clf).fit(X).score_samples(X),
        (expected * np.log(expected)).sum(1),
        rtol=1e-4,
    )


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_single_probability(squeezed):
    class Sharp(nn.Module):
        def forward(self, x):
            p = torch.sigmoid(3 * x)
            return p[:, 0] if squeezed else p

    module = net(1, Sharp())
    clf = pretrained(module, classes=[0, 1], output="probabilities")
    p = 1 / (1 + np.exp(-3 * logits_of(module)[:, 0]))
    assert_allclose(clf.predict_proba(X)[:, 1], p, rtol=1e-5)
    assert_allclose(clf.decision_function(X), logit(p), rtol=1e-4, atol=1e-5)


def test_probabilities_of_0_and_1_are_finite():
    class Fixed(nn.Module):
        def __init__(self, *p):
            super().__init__()
            self.p = p

        def forward(self, x):
            return torch.tensor([self.p]).repeat(len(x), 1)

    tiny = np.log(np.finfo(float).tiny)
    clf = pretrained(Fixed(1.0, 0.0), classes=[0, 1], output="probabilities")
    assert_allclose(clf.predict_logits(X)[0], [0, tiny])
    for p, margin in [(1.0, -tiny), (0.0, tiny)]:
        clf = pretrained(Fixed(p), classes=[0, 1], output="probabilities")
        assert_allclose(clf.decision_function(X), margin)
    assert np.isfinite(MSP(clf).fit(X).score_samples(X)).all()


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1)])
@pytest.mark.parametrize("output", ["logits", "probabilities"])
def test_a_closing_softmax_is_seen_through(last, output):
    clf = pretrained(net(3, last), output=output)
    assert_allclose(clf.predict_logits(X), logits_of(net()), rtol=1e-6)


def test_it_is_frozen():
    module = net()
    clf = pretrained(module)
    assert clone(clf) is clf
    assert clf.estimator.module_ is module  # not copied
    clf.fit(X, np.zeros(40))  # does nothing
    with pytest.raises(TypeError, match="A pretrained module is not fitted again"):
        clf.estimator.fit(X)
    copy = pickle.loads(pickle.dumps(clf))
    assert_array_equal(copy.predict_logits(X), clf.predict_logits(X))


def test_it_serves_meta_estimators():
    clf = pretrained(net())
    y = clf.predict(X)
    assert cross_val_score(clf, X, y, cv=2).tolist() == [1.0, 1.0]
    calibrated = CalibratedClassifierCV(clf).fit(X, y)
    assert calibrated.predict_proba(X).shape == (40, len(np.unique(y)))


def test_detector_without_labels_knows_the_classes():
    detector = Energy(pretrained(net(), classes=["a", "b", "c"])).fit(X)
    assert detector.classes_.tolist() == ["a", "b", "c"]
    far = 100 * np.ones((1, 4))
    labels = np.array(["a"] * 40 + ["new"])
    samples = np.vstack([X, far])
    scores = detector.score_samples(samples)
    assert detector.score(samples, labels) == np.mean(scores[:40] > scores[40])


def test_input_shape():
    clf = pretrained(net(), input_shape=[4])
    assert clf.input_shape_ == (4,)
    for samples in (X[:, :3], X[:, None]):
        with pytest.raises(ValueError, match=r"network is expecting samples of .*4,"):
            clf.predict(samples)
    assert pretrained(net()).input_shape_ is None


def test_batch_size_and_device():
    sizes = []
    module = net()
    module.register_forward_pre_hook(lambda m, args: sizes.append(len(args[0])))
    pretrained(module, batch_size=15).predict_proba(X)
    assert sizes == [15, 15, 10]
    with pytest.raises(ValueError, match="Unknown device 'abacus'"):
        pretrained(module, device="abacus").predict(X)
    with pytest.raises(ValueError, match="Unknown device 'abacus'"):
        Energy(pretrained(module, device="abacus")).fit(X)


def test_other_shapes_than_classes():
    clf = pretrained(net(3), classes=[0, 1])
    message = r"Sequential has 3 outputs, but classes names 2: \[0, 1\]. Name one class"
    for call in (clf.predict, lambda X: read(clf, X, {"logits"}), Energy(clf).fit):
        with pytest.raises(ValueError, match=message):
            call(X)
    assert read(clf, X, {"features"}).features.shape == (len(X), 6)  # without logits
    with pytest.raises(ValueError, match="has 1 outputs, but classes names 3"):
        pretrained(net(1), classes=[0, 1, 2]).predict(X)


def test_errors():
    for module in (net, nn.Linear, "net"):
        with pytest.raises(
            TypeError, match=r"must be a trained torch\.nn\.Module, got"
        ):
            pretrained(module)
    with pytest.raises(ValueError, match="output must be 'logits' or 'probabilities'"):
        pretrained(net(), output="odds")
    with pytest.raises(ValueError, match=r"pass classes=\[\.\.\.\]"):
        pretrained(nn.Conv2d(1, 3, 1))
    for classes in ([0, 0, 1], ["only"]):
        with pytest.raises(ValueError, match="at least two distinct labels, got"):
            pretrained(net(), classes=classes)
