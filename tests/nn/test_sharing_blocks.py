"""Which detectors read the same network, and what a block keeps for how long."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import threading
import weakref
from contextvars import copy_context

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from skood.detectors import (
    KNN,
    MSP,
    ODIN,
    Energy,
    ViM,
)
from skood.nn import FeatureExtractor, LinearHead, _shared_forward, pretrained
from skood.nn._make_network import SHARING, make_network
from skood.nn._shared_forward import NetworkPlan, network_groups, shared_outputs
from tests.nn._members import MEMBERS, NEW, X, counted, fit_all, score_all
from tests.nn._outputs import ALL, Counter, data


def test_groups():
    samples, y = data()
    net, other = pretrained(Counter()), pretrained(Counter())
    logistic = FrozenEstimator(LogisticRegression().fit(samples, y))
    scaled = FrozenEstimator(make_pipeline(StandardScaler(), logistic))
    detectors = [
        MSP(net),
        KNN(),
        Energy(other),
        make_pipeline(StandardScaler(), KNN(net)),  # reads other rows than the first
        ODIN(net),
        make_pipeline(FeatureExtractor(other), KNN()),
        MSP(LogisticRegression()),
        LocalOutlierFactor(novelty=True),
        MSP(logistic),
        FrozenEstimator(FrozenEstimator(KNN(net))),
        KNN(scaled),  # the pipeline is what is read
        MSP(LogisticRegression()),
        make_pipeline("passthrough"),
        Energy(scaled),
        MSP(logistic.estimator),
        "drop",
    ]
    expected = [
        [0, 4, 9],
        [1],
        [2, 5],
        [3],
        [6],
        [7],
        [8],
        [10, 13],
        [11],
        [12],
        [14],
        [15],
    ]
    assert network_groups(detectors) == expected
    fitted = [MSP(LogisticRegression()).fit(samples, y) for _ in range(2)]
    reads_the_first = KNN(FrozenEstimator(fitted[0].estimator_))
    assert network_groups([*fitted, reads_the_first]) == [[0, 2], [1]]
    assert network_groups([]) == []


def test_groups_are_joined():
    """One that reads two networks joins those that read either."""
    net, other = pretrained(Counter()), pretrained(Counter())
    union = make_union(FeatureExtractor(net), FeatureExtractor(other))
    both = make_pipeline(union, KNN())
    assert network_groups([MSP(other), KNN(), MSP(net), both, KNN(net)]) == [
        [0, 2, 3, 4],
        [1],
    ]


class Ensemble:
    """Anything that lists its detectors."""

    def __init__(self, detectors):
        self.detectors = detectors


def test_groups_of_ensembles():
    net, other = pretrained(Counter()), pretrained(Counter())
    inner = Ensemble([("a", MSP(net)), ("b", "drop"), ("c", KNN(other))])
    assert network_groups([KNN(net), inner, KNN()]) == [[0, 1], [2]]
    inner.named_detectors_ = {"a": MSP(other)}
    assert network_groups([KNN(net), inner, KNN(other)]) == [[0], [1, 2]]
    assert network_groups([KNN(net), Ensemble("nonsense")]) == [[0], [1]]


# --- blocks ------------------------------------------------------------------------


def test_nested_blocks():
    clf, sizes = counted()
    own = FrozenEstimator(LinearHead().fit(np.eye(3), np.arange(3)))
    with shared_outputs([MSP(clf), KNN(clf)]):
        with shared_outputs([MSP(clf), Energy(clf), MSP(own), KNN(own)]):
            MSP(clf).fit(X)
            samples = np.eye(3)
            logits = [
                next(make_network(own).iter_outputs(samples, {"logits"})).logits
                for _ in range(2)
            ]
            assert logits[0] is logits[1]  # kept by the inner block
        assert sizes == [len(X)]
        KNN(clf).fit(X)  # kept by the outer block, for what it wants
        assert sizes == [len(X)]
        logits = next(make_network(own).iter_outputs(samples, {"logits"})).logits
        assert logits.flags.writeable


def test_the_inner_block_only():
    clf, sizes = counted()
    with shared_outputs([MSP(clf)]), shared_outputs([MSP(clf), KNN(clf)]):
        MSP(clf).fit(X)
        KNN(clf).fit(X)
    assert sizes == [len(X)]


def test_nothing_is_stored_after_the_block():
    clf, sizes = counted()
    samples = X.copy()
    with shared_outputs([MSP(clf), Energy(clf)]):
        reader = make_network(clf)
        outputs = next(reader.iter_outputs(samples, ALL))
        refs = [weakref.ref(a.base) for a in (outputs.features, outputs.logits)]
        refs.append(weakref.ref(samples))
        del samples, outputs
        assert all(ref() is not None for ref in refs)
        late = reader.iter_outputs(NEW, {"logits"})
        next(late)
    gc.collect(1)  # the generations of this test
    assert all(ref() is None for ref in refs)
    del sizes[:]
    assert next(reader.iter_outputs(X, {"logits"})).logits.flags.writeable
    assert next(reader.iter_outputs(X, {"logits"})).logits.flags.writeable
    assert sizes == [len(X), len(X)]


def test_block_that_fails():
    clf, sizes = counted()
    samples = X.copy()
    gone = weakref.ref(samples)
    with pytest.raises(KeyError, match="mine"):
        with shared_outputs([MSP(clf), KNN(clf)]):
            MSP(clf).fit(samples)
            raise KeyError("mine")
    del samples
    gc.collect(1)
    assert gone() is None
    assert SHARING.get() == ()
    del sizes[:]
    MSP(clf).fit(X)
    KNN(clf).fit(X)
    assert sizes == [len(X), len(X)]


def test_interrupted_forward_pass():
    """An interrupt is not one of the errors after which each reads for itself."""
    samples, _ = data()
    net = Counter(fails_at=2)
    clf = pretrained(net, batch_size=30)
    with shared_outputs([MSP(clf), KNN(clf)]):
        with pytest.raises(KeyboardInterrupt):
            MSP(clf).fit(samples)
        assert net.sizes == [30, 30]
        MSP(clf).fit(samples)
        assert net.sizes == [30, 30, 30, 30, 20]


def test_module_is_unchanged():
    clf, _ = counted()
    net = clf.estimator.module
    net.bn1.eval()
    modes = [layer.training for layer in net.modules()]
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()]
    detectors = [build(clf) for build in MEMBERS.values()]
    broken = make_pipeline(FeatureExtractor(clf, layer="conv9"), KNN())
    with shared_outputs([*detectors, broken]):
        for detector in detectors:
            clone(detector).fit(X, clf.predict(X))
        with pytest.raises(ValueError, match="conv9"):
            broken.fit(X)
    assert [layer.training for layer in net.modules()] == modes
    assert [
        (len(m._forward_hooks), len(m._forward_pre_hooks)) for m in net.modules()
    ] == hooks
    assert all(torch.equal(net.state_dict()[name], state[name]) for name in state)
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("copies_context", [False, True])
def test_threads(copies_context):
    """A block is for the thread that enters it; others may have one of their own."""
    clf, sizes = counted()
    detectors = [MSP(clf), KNN(clf)]
    y = clf.predict(X)
    expected = score_all(fit_all(detectors, X, y, False), NEW, False)
    results = {}

    def work(shared):
        fitted = fit_all(detectors, X, y, shared)
        results[shared] = score_all(fitted, NEW, shared)

    with shared_outputs(detectors):
        MSP(clf).fit(X)
        for shared, passes in ((False, 2), (True, 1)):
            del sizes[:]
            run = copy_context().run if copies_context else lambda f, *args: f(*args)
            thread = threading.Thread(target=run, args=(work, shared))
            thread.start()
            thread.join()
            assert sum(sizes) == passes * (len(X) + len(NEW))
        del sizes[:]
        KNN(clf).fit(X)
        assert sizes == []
    for scores in results.values():
        assert_array_equal(scores, expected)


def test_two_threads_at_once():
    clf, sizes = counted()
    detectors = [MSP(clf), KNN(clf), ViM(clf, n_components=2)]
    y = clf.predict(X)
    expected = score_all(fit_all(detectors, X, y, False), NEW, False)
    start, results = threading.Barrier(2), []
    del sizes[:]

    def work():
        start.wait()
        results.append(score_all(fit_all(detectors, X, y, True), NEW, True))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sizes) == 2 * (len(X) + len(NEW))
    assert len(results) == 2
    for scores in results:
        assert_array_equal(scores, expected)


def test_a_plan_finds_uses_once(monkeypatch):
    """A block of a plan serves its detectors with the uses that it has found."""
    clf, sizes = counted()
    other = pretrained(Counter())
    extractor = FeatureExtractor(clf, layer="conv1")
    detectors = [
        MSP(clf),
        KNN(),
        Energy(clf),  # the second use of the same outputs: these are stored
        MSP(clf),
        KNN(clf),
        MSP(other),
        Energy(clf),
        make_pipeline(extractor, KNN()),
        KNN(clf),
        make_pipeline(clone(extractor), KNN()),
        ODIN(clf),  # runs it itself
    ]
    own = [detector for i, detector in enumerate(detectors) if i not in (1, 5, 10)]
    fitted = fit_all(own, X, clf.predict(X), shared=True)
    expected = score_all(fitted, NEW, shared=True)
    plan = NetworkPlan(None, fitted)
    assert len(plan.uses) == len(own)
    monkeypatch.setattr(_shared_forward, "_uses", None)
    del sizes[:]
    with shared_outputs((), known_uses=plan.uses):
        for detector, scores in zip(fitted, expected, strict=True):
            assert_array_equal(detector.score_samples(NEW), scores)
    assert sizes == [len(NEW)]


def test_a_network_is_opened_once(monkeypatch):
    samples, y = data()
    clf = FrozenEstimator(LogisticRegression().fit(samples, y))
    fitted = fit_all([MSP(clf), Energy(clf), KNN(clf)], samples, y, shared=True)
    opened = []

    def plain_network(estimator, **options):
        opened.append(options)
        return make_plain(estimator, **options)

    make_plain = _shared_forward.plain_network
    monkeypatch.setattr(_shared_forward, "plain_network", plain_network)
    score_all(fitted, samples, shared=True)
    assert opened == [{}]
