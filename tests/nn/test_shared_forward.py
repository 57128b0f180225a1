"""One forward pass for all: how often a network runs, and what is served."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skood.detectors
import skood.nn._torch_network as torch_network
from skood.detectors import (
    KNN,
    MSP,
    Energy,
    Mahalanobis,
    ViM,
)
from skood.nn import FeatureExtractor, LinearHead
from skood.nn._make_network import make_network
from skood.nn._shared_forward import NetworkPlan, network_groups, shared_outputs
from tests._instances import network_detectors
from tests.nn._conv_net import conv_classifier
from tests.nn._members import MEMBERS, NEW, X, check_same, counted, fit_all, score_all
from tests.nn._outputs import ALL, data


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_single_pass_for_all():
    clf, sizes = counted()
    detectors = [MEMBERS[name](clf) for name in MEMBERS if name != "search to fit"]
    y = clf.predict(X)
    scores = []
    for fit_shared in (False, True):
        del sizes[:]
        fitted = fit_all(detectors, X, y, fit_shared)
        # frozen ones none, "classifier", "DICE" twice
        assert sizes == [len(X)] if fit_shared else sum(sizes) == 16 * len(X)
        for shared in (False, True):
            del sizes[:]
            scores.append(score_all(fitted, NEW, shared))
            # "union" twice
            assert sizes == [len(NEW)] if shared else sum(sizes) == 16 * len(NEW)
    for each in scores[1:]:
        assert_array_equal(each, scores[0])


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize("name", MEMBERS)
def test_single_pass_for_each_with_another(name):
    clf, sizes = counted()
    detectors = [MEMBERS[name](clf), Mahalanobis(clf)]
    y = clf.predict(X)
    del sizes[:]
    fitted = fit_all(detectors, X, y, shared=True)
    # the search runs 30 rows of its own, for each of its two candidates and its scores
    n_search = 30 * 2 * (name == "search to fit")
    assert sum(sizes) - n_search == len(X)
    del sizes[:]
    score_all(fitted, NEW, shared=True)
    assert sizes == [len(NEW)]
    assert network_groups(detectors) == network_groups(fitted) == [[0, 1]]


def test_what_is_fitted_and_then_read_runs_once():
    clf, sizes = counted()
    detector = MEMBERS["classifier"](clf)  # no other reads the network
    y = clf.predict(X)
    del sizes[:]
    fit_all([detector], X, y, shared=True)
    assert sizes == [len(X)]


def test_outputs_of_a_single_member_are_not_stored(monkeypatch):
    """Whoever scores by one detector keeps its memory bounded: it reads in blocks."""
    clf, sizes = counted()
    monkeypatch.setattr(torch_network, "_BLOCK_BYTES", 1)
    clf.estimator.batch_size = 10
    with shared_outputs([MSP(clf), KNN()]):
        blocks = make_network(clf).iter_outputs(X, {"logits"})
        assert next(blocks).logits.flags.writeable
        assert sizes == [10]


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "detector",
    network_detectors(layer="conv2", layers=["conv1", "conv2"]),
    ids=lambda detector: type(detector).__name__,
)
def test_those_that_run_it_themselves(detector):
    clf, sizes = counted()
    hooked = clone(detector).set_params(estimator=clf)
    y = clf.predict(X)
    fitted = check_same([MSP(clf), hooked, KNN(clf)], X, y, NEW)
    del sizes[:]
    score_all(fitted[1:2], NEW, shared=False)
    alone = sum(sizes)
    del sizes[:]
    score_all(fitted, NEW, shared=True)
    assert sum(sizes) == alone + len(NEW)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_all_detectors_that_read():
    """None writes to what it was given, and none scores otherwise than alone."""
    clf, _ = counted()
    kinds = [getattr(skood.detectors, name) for name in skood.detectors.__all__]
    kinds = [kind for kind in kinds if getattr(kind, "_needs", None)]
    assert len(kinds) > 20
    y = clf.predict(X)
    check_same([kind(estimator=clf) for kind in kinds], X, y, NEW)


def test_batches_are_the_smallest_asked_for():
    clf, sizes = counted()
    detectors = [
        MSP(clf),
        make_pipeline(FeatureExtractor(clf, batch_size=30), KNN()),
        make_pipeline(FeatureExtractor(clf, layer="conv1", batch_size=25), KNN()),
    ]
    y = clf.predict(X)
    alone = fit_all(detectors, X, y, shared=False)
    expected = score_all(alone, NEW, shared=False)
    del sizes[:]
    fitted = fit_all(detectors, X, y, shared=True)
    assert sizes == [25, 25, 10]
    for actual, scores in zip(score_all(fitted, NEW, True), expected, strict=True):
        assert_allclose(actual, scores, rtol=1e-5)


def test_names_of_a_device():
    """A network that is on the CPU, by default or by name, runs once."""
    if torch.cuda.is_available():
        pytest.skip("'auto' is not the CPU here")
    clf, sizes = counted()
    extractor = FeatureExtractor(clf, layer="conv1", device="cpu")
    detectors = [MSP(clf), make_pipeline(extractor, KNN())]
    fit_all(detectors, X, clf.predict(X), shared=True)
    assert sizes == [len(X), len(X)]  # predict, fit


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_each_device_runs_once(monkeypatch, in_pipeline):
    """Here the second device is one that only differs by its name."""
    clf, sizes = counted()
    places = []
    read_block = torch_network.TorchNetwork._block_of_outputs

    def spy(self, batches, wanted, heads):
        places.append([reader.place[0] for reader, _ in wanted])
        return read_block(self, batches, wanted, heads)

    monkeypatch.setattr(torch_network.TorchNetwork, "_block_of_outputs", spy)
    y = clf.predict(X)
    if in_pipeline:
        clf = FrozenEstimator(make_pipeline(FunctionTransformer(), clf).fit(X, y))
    elsewhere = {"device": torch.device("cpu", 0)}
    detectors = [
        MSP(clf),
        make_pipeline(FeatureExtractor(clf, **elsewhere), KNN()),
        KNN(clf),
        make_pipeline(FeatureExtractor(clf, layer="conv1", **elsewhere), KNN()),
    ]
    del sizes[:], places[:]
    fit_all(detectors, X, y, shared=True)
    assert sizes == [len(X), len(X)]
    assert places == [["penultimate"], ["penultimate", "conv1"]]


# --- what is served -------------------------------------------------------------


@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("want", [{"features"}, {"logits"}, {"head"}, ALL])
def test_served_as_read(monkeypatch, want, in_pipeline):
    """Blocks have the same rows and layout as those that are read, and are views."""
    clf, sizes = counted()
    if in_pipeline:
        clf = FrozenEstimator(make_pipeline(FunctionTransformer(), clf).fit(X))
    # Rows of 6 features and 3 logits in float32, in batches of 7 rows: blocks have 14,
    # 21 or, of both, 7 rows.
    monkeypatch.setattr(torch_network, "_BLOCK_BYTES", 250)
    reader = {"batch_size": 7}
    alone = list(make_network(clf, **reader).iter_outputs(X, want))
    extractors = [FeatureExtractor(clf, **reader), FeatureExtractor(clf, **reader)]
    with shared_outputs([*extractors, MSP(clf), ViM(clf)]):
        for _ in range(2):
            del sizes[:]
            served = list(make_network(clf, **reader).iter_outputs(X, want))
    assert sizes == []
    assert len(served) == len(alone)
    for actual, expected in zip(served, alone, strict=True):
        for name in ("features", "logits"):
            a, b = getattr(actual, name), getattr(expected, name)
            assert (a is None) == (b is None)
            if a is not None:
                assert_array_equal(a, b, strict=True)
                assert a.flags.c_contiguous == b.flags.c_contiguous
                assert not a.flags.writeable
        assert (actual.head is None) == (expected.head is None)
        if actual.head is not None:
            assert_array_equal(actual.head.coef, expected.head.coef)
            assert_array_equal(actual.head.intercept, expected.head.intercept)


def test_scores_in_many_blocks(monkeypatch):
    clf, _ = counted()
    clf.estimator.batch_size = 8
    y = clf.predict(X)
    monkeypatch.setattr(torch_network, "_BLOCK_BYTES", 300)
    pipeline = FrozenEstimator(make_pipeline(FunctionTransformer(), clf).fit(X, y))
    for frozen in (clf, pipeline):
        detectors = [MSP(frozen), KNN(frozen), ViM(frozen, n_components=2)]
        check_same(detectors, X, y, NEW)


def test_features_may_be_written_to():
    """What comes after a FeatureExtractor may work in place; the others do not see."""

    def halve(Z):
        Z *= 0.5
        return Z

    clf, _ = counted()
    in_place = make_pipeline(FeatureExtractor(clf), FunctionTransformer(halve), KNN())
    check_same([in_place, KNN(clf), in_place], X, clf.predict(X), NEW)


def test_samples_of_the_user_stay_writable():
    """The features of a linear classifier are its input: only the view is locked."""
    samples, y = data()
    clf = FrozenEstimator(LogisticRegression().fit(samples, y))
    check_same([MSP(clf), KNN(clf)], samples, y, samples[:20])
    assert samples.flags.writeable


@pytest.mark.parametrize(
    "convert", [torch.tensor, np.asfortranarray, np.ndarray.tolist]
)
def test_kinds_of_samples(convert):
    clf, sizes = counted()
    samples, y = convert(X), clf.predict(X)
    del sizes[:]
    fit_all([MSP(clf), KNN(clf)], samples, y, shared=True)
    assert sizes == [len(X)]
    check_same([MSP(clf), KNN(clf)], samples, y, convert(NEW))


def test_unplanned_outputs():
    """A layer that no detector named is read when it is requested, and kept too."""
    clf, sizes = counted()
    expected = FeatureExtractor(clf, layer="conv2").fit(X).transform(X)
    with shared_outputs([MSP(clf), Energy(clf)]):
        MSP(clf).fit(X)
        del sizes[:]
        for _ in range(2):
            extractor = FeatureExtractor(clf, layer="conv2")
            assert_array_equal(extractor.fit_transform(X), expected)
        assert sizes == [len(X)]
        KNN(clf).fit(X)
        assert sizes == [len(X), len(X)]
        KNN(clf).fit(X)
        MSP(clf).fit(X)
        assert sizes == [len(X), len(X)]
    MSP(clf).fit(X)
    assert sizes == [len(X), len(X), len(X)]


def test_logits_of_the_classifier_itself():
    clf, sizes = counted()
    expected = clf.predict_proba(X)
    with shared_outputs([MSP(clf), Energy(clf)]):
        MSP(clf).fit(X)
        del sizes[:]
        assert_array_equal(clf.predict_proba(X), expected)
    assert sizes == []


def test_only_latest_samples_are_stored():
    """Only the rows that were read last are kept."""
    clf, sizes = counted()
    samples, new = X.copy(), X.copy()
    gone = weakref.ref(samples)
    with shared_outputs([MSP(clf), Energy(clf)]):
        MSP(clf).fit(samples)
        assert sizes == [len(X)]
        Energy(clf).fit(new)  # equal, but another object
        assert sizes == [len(X), len(X)]
        del samples
        gc.collect(1)
        assert gone() is None
        MSP(clf).fit(new)
        assert sizes == [len(X), len(X)]


# --- the extractor ------------------------------------------------------------------


def test_extractor_fits_and_transforms_in_a_single_pass():
    clf, sizes = counted()
    apart, at_once = (FeatureExtractor(clf, layer="conv1") for _ in range(2))
    expected = apart.fit(X).transform(X)
    assert sizes == [1, len(X)]
    del sizes[:]
    assert_array_equal(at_once.fit_transform(X), expected)
    assert sizes == [len(X)]
    assert vars(at_once) == vars(apart)


def test_extractor_that_fails_to_fit():
    clf, _ = counted()
    extractor = FeatureExtractor(clf, layer="conv1").fit(X)
    before = dict(vars(extractor))
    extractor.layer = before["layer"] = "conv9"
    with pytest.raises(ValueError, match="no layer named 'conv9'"):
        extractor.fit_transform(X)
    assert vars(extractor) == before


# --- plans --------------------------------------------------------------------------


def is_direct(detectors, network=None):
    return NetworkPlan(network, detectors).is_direct


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize("n_samples", [1, 7, 300])
def test_direct_scores_equal_score_samples(n_samples):
    """Bit for bit, from one forward pass, by all detectors of outputs."""
    clf, sizes = counted()
    kinds = [getattr(skood.detectors, name) for name in skood.detectors.__all__]
    kinds = [kind for kind in kinds if getattr(kind, "_needs", None)]
    fitted = fit_all([kind(estimator=clf) for kind in kinds], X, clf.predict(X), True)
    plan = NetworkPlan(clf, fitted)
    assert plan.is_direct and NetworkPlan(None, fitted).is_direct
    new = np.resize(NEW, (n_samples, *NEW.shape[1:]))
    expected = score_all(fitted, new, shared=True)
    del sizes[:]
    *scores, predicted, proba = plan.direct(new, ("predict", "predict_proba"))
    assert sum(sizes) == n_samples
    assert_array_equal(scores, expected)
    assert_array_equal(predicted, clf.predict(new))
    assert_allclose(proba, clf.predict_proba(new), rtol=1e-6)
    assert_array_equal(NetworkPlan(None, fitted).direct(new), expected)


def test_what_plans_leave_to_score_samples():
    clf, _ = counted()
    energy, other = Energy(clf).fit(X), Energy(conv_classifier()[1]).fit(X)

    class Doubled(Energy):
        def score_samples(self, X):
            return 2 * super().score_samples(X)

    assert is_direct([energy]) and is_direct([energy], clf)
    assert not is_direct([energy, other]) and not is_direct([energy], other)
    assert not is_direct([energy, Doubled(clf).fit(X)])
    assert not is_direct([energy, make_pipeline(Energy(clf)).fit(X)])
    for detector in network_detectors(clf, layer="conv2"):
        assert not is_direct([energy, detector.fit(X, clf.predict(X))])
    assert not is_direct([KNN().fit(X.reshape(len(X), -1))])
    plan = NetworkPlan(clf, [energy])
    assert plan.direct(NEW[:3].tolist()) is None
    assert plan.direct(NEW[:3, 0]) is None  # `score_samples` raises
    assert plan.direct(np.resize(NEW, (8200, *NEW.shape[1:]))) is None


def test_detectors_that_are_fitted_again_leave_the_plan():
    clf, _ = counted()
    net, other = conv_classifier()
    net.head.weight.data.mul_(2)
    energy = Energy(clf).fit(X)
    plan = NetworkPlan(clf, [energy])
    before = plan.direct(NEW[:3])[0]
    energy.set_params(estimator=other).fit(X)
    assert plan.direct(NEW[:3]) is None
    assert_array_equal(plan.run(NEW[:3])[0], energy.score_samples(NEW[:3]))
    assert not np.array_equal(plan.run(NEW[:3])[0], before)


def test_direct_scores_beyond_float64_are_clipped_by_score_samples():
    samples = np.random.default_rng(0).normal(size=(60, 2))
    head = FrozenEstimator(LinearHead(np.eye(2), np.zeros(2)))
    detector = Mahalanobis(head).fit(samples, samples.argmax(axis=1))
    far = np.array([[1e200, 0.0]])
    plan = NetworkPlan(head, [detector])
    assert plan.direct(far) is None
    with np.errstate(over="raise"):
        assert plan.run(far)[0] == detector.score_samples(far)
        assert detector.score_samples(far) == [-np.finfo(np.float64).max]
