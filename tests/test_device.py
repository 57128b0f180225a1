"""Every class with a device: the values of the CPU, within budgets of transfers.

The device is a stand-in that counts bytes, operators and waits: see
`tests/_stand_in_device.py`. Times need a GPU, and are not measured here.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import skood.detectors._common._memory_bank as memory_bank
import skood.detectors._knn as knn
import skood.detectors._nn_guide as nn_guide
import skood.detectors._relation as relation
import skood.epistemic.quam._searches as searches
import skood.nn._torch_network as torch_network
from skood.detectors import (
    KNN,
    NCI,
    Energy,
    Mahalanobis,
    NNGuide,
    OpenMax,
    Relation,
    ViM,
)
from skood.detectors._common._base_output_detector import OutputDetector
from skood.epistemic import QUAM, AdversarialSearch, MCDropout
from skood.evidential import EvidentialProbe
from skood.exceptions import SkoodWarning
from skood.graph import GraphClassifier, GraphPosteriorNetwork, NodeSet
from skood.logic import KnowledgeBase
from skood.nn import LinearHead, TorchClassifier, pretrained, split
from skood.nn._outputs import NetworkOutputs
from skood.rectifiers import ASH, DICE, LTS, SCALE, VRA, ReAct
from skood.rectifiers._base_rectifier import BaseRectifier
from skood.rejection import RejectOptionClassifier
from skood.utils import _array_api, _torch
from skood.utils._left_out import UNUSED
from skood.utils._torch import row_chunks
from tests._instances import instances, output_detectors
from tests._stand_in_device import DEVICE, Counts, _leaves, stand_in_device

_D, _CLASSES, _CHUNK = 600, 1000, 140
_RNG = np.random.default_rng(0)
_CENTERS = np.maximum(_RNG.normal(size=(_CLASSES, _D)), 0.0)
_Y = np.arange(2 * _CLASSES) % _CLASSES
_X = np.maximum(_CENTERS[_Y] + 0.2 * _RNG.normal(size=(len(_Y), _D)), 0.0)
_NEW = np.maximum(_CENTERS[:420] + 0.3 * _RNG.normal(size=(420, _D)), 0.0)
_HEAD = LinearHead(_CENTERS / 40, 4.0 - (_CENTERS**2).sum(axis=1) / 80)
_FEW_CLASSES = LinearHead(_HEAD.coef[:20, :60], _HEAD.intercept[:20])
_N_CHUNKS = -(-len(_NEW) // _CHUNK)

# What is sent for scores, as a share of the fitted arrays; fetched, of the scores; and
# waits per chunk. In the next call only the head is sent again, in float64 and in the
# precision of X. With X on the host: what is sent, as a fraction of X and the fitted
# arrays. In a fit: what is sent, as a share of the fitted arrays, and fetched, of these
# and the features and logits, of which at most 5,000 are drawn for the threshold.
# No class exceeds a budget.
_BUDGET = {"sent": 1.01, "fetched": 1.01, "waits": 3.0, "sent with X": 1.01}
_BUDGET |= {"sent again": 1.51, "sent in fit": 1.01, "fetched in fit": 1.01}

# Other estimators, for 120 samples: waits of a call, by default at most 6, and what is
# fetched as a fraction of what it returns, at most 2. Predictions of all members are
# fetched; QUAM waits for each step of a search, `CertifiedQUAM` once in each Newton and
# each SQP step (it waited 457 times, for each tensor of a mask). Each of two members is
# sent the samples, "samples": 2.
OF_MEMBERS: dict = {
    "CertifiedQUAM": {"waits": 38},
    "CyclicalSGHMC": {"fetched": 4},
    "DSDE": {"samples": 2},
    "DetectorEnsemble": {"samples": 2},
    "HMC": {"fetched": 12},
    "Laplace": {"fetched": 101},
    "MCDropout": {"fetched": 5},
    "MixtureLaplace": {"fetched": 12, "samples": 2},
    "QUAM": {"waits": 12, "fetched": 30},
}


def _assert_within(ratios):
    over = {key: round(v, 2) for key, v in ratios.items() if not v <= _BUDGET[key]}
    assert not over, over


@pytest.fixture
def device():
    """Yield the stand-in device."""
    with stand_in_device() as stand_in:
        yield stand_in


@pytest.fixture
def small_chunks(monkeypatch):
    """Cut samples on a device into chunks, and banks into tiles."""
    original = OutputDetector._chunking

    def chunking(self, outputs):
        size, target, *options = original(self, outputs)
        return (size if target is None else _CHUNK, target, *options)

    def bank_tiles(n_samples, bank, *_):
        return row_chunks(bank.shape[0], 1, 900)

    monkeypatch.setattr(OutputDetector, "_chunking", chunking)
    monkeypatch.setattr(relation, "bank_tiles", bank_tiles)
    monkeypatch.setattr(nn_guide, "bank_tiles", bank_tiles)
    monkeypatch.setattr(knn, "GPU_BYTES", 8 * 900 * _D)


def _detectors():
    """Return all detectors of outputs with a device, one of each class."""
    detectors = [
        detector
        for detector in output_detectors(n_neighbors=3, tail_size=2)
        if "device" in detector.get_params()
    ]
    for detector in detectors:
        if not detector._needs <= {"features"}:
            detector.set_params(estimator=FrozenEstimator(_HEAD))
        if "algorithm" in detector.get_params():
            detector.set_params(algorithm="torch")
    return detectors


def _name(detector):
    return type(detector).__name__


def _fit(detector, X, device):
    unused = UNUSED.set(True)  # thresholds by cross-validation take long
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)
            return clone(detector).set_params(device=device).fit(X, _Y)
    finally:
        UNUSED.reset(unused)


_FITTED: dict = {}


def _fitted(detector):
    """Return a detector that was fitted on the CPU, cached."""
    if repr(detector) not in _FITTED:
        _FITTED[repr(detector)] = _fit(detector, _X, "cpu")
    return copy.deepcopy(_FITTED[repr(detector)])


def _size(thing, seen=None):
    """Return the bytes of all arrays that an object contains."""
    seen = {} if seen is None else seen
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        return sum(_size(value, seen) for value in thing.values())
    if isinstance(thing, (list, tuple)):
        return sum(_size(value, seen) for value in thing)
    return _size(vars(thing), seen) if hasattr(thing, "__dict__") else 0


def _stored_bytes():
    """Return the bytes of the copies of fitted arrays that stay on the device."""
    copies = [copy for _, copy in _array_api._COPIES.values()]
    return sum(t.nbytes for t in _leaves(copies) if isinstance(t, torch.Tensor))


def _assert_close(scores, wanted, rtol):
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == np.float64
    # errors of float32 logits are relative to the logits, not to small differences
    size = max(np.abs(wanted).max(), 0.1 if rtol > 1e-9 else 0.0)
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=rtol * size)


# ------------------------------------------------------------------ the stand-in


def test_stand_in_counts(device):
    array = np.ones((4, 3))
    with device.counted() as counts:
        tensor = torch.as_tensor(array, device="cuda")
    assert counts == Counts(to_device=96, transfers=1)
    with device.counted() as counts:
        assert tensor[1:].T.device == DEVICE
    assert counts.waits == counts.transfers == 0
    with device.counted() as counts:
        total = (tensor * 2.0).sum()
        assert float(total) == 24.0
        assert (tensor + 1).cpu().device.type == "cpu"
    assert counts == Counts(to_host=96, transfers=1, operators=4, waits=2)
    with device.counted() as counts:
        positive = tensor[tensor[:, 0] > 0]
    assert counts.waits == 1
    assert positive.device == DEVICE
    with device.counted() as counts:
        tensor[np.array([0, 2])] = 0.0
    assert (counts.to_device, counts.waits) == (16, 0)


def test_stand_in_raises(device):
    tensor = torch.ones(4, 3, device="cuda")
    for convert in (np.asarray, np.exp, lambda x: x.numpy(), list):
        with pytest.raises((TypeError, RuntimeError), match=r"cuda:0|same device"):
            np.asarray(convert(tensor))
    with pytest.raises(RuntimeError, match="same device"):
        tensor @ torch.ones(3, 4)
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([tensor, torch.ones(1, 3)])
    assert (tensor * torch.tensor(2.0)).device == DEVICE  # a scalar of the CPU
    linear = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError, match="same device"):
        linear(tensor)
    assert linear.to("cuda")(tensor).device == DEVICE
    assert linear.to("cpu").weight.device.type == "cpu"


# ------------------------------------------------------------------- the values


@pytest.mark.parametrize("detector", _detectors(), ids=_name)
def test_scores_on_the_device(detector, device, small_chunks):
    """Several chunks and tiles, 1,000 classes, 600 features, every float type."""
    fitted = _fitted(detector)
    double = torch.from_numpy(_NEW)
    tensors = [
        (double, 1e-9),
        (torch.cat([double, double], dim=1).float()[::2, 1 : _D + 1], 2e-6),
        (double.half().T.contiguous().T, 2e-6),
        (double.bfloat16(), 2e-6),
    ]
    scores = fitted.set_params(device="cuda").score_samples(_NEW)
    for tensor, rtol in tensors:
        exact = tensor if tensor.dtype == torch.float64 else tensor.float()
        wanted = fitted.set_params(device="cpu").score_samples(exact.numpy())
        if tensor is double:
            _assert_close(scores, wanted, rtol)
        scores = fitted.set_params(device="cuda").score_samples(tensor.to(DEVICE))
        _assert_close(scores, wanted, rtol)


@pytest.mark.parametrize("detector", _detectors(), ids=_name)
def test_fit_on_the_device(detector, device, small_chunks):
    X = _X.astype(np.float32)
    tensor = torch.from_numpy(X).to(DEVICE)
    with device.counted() as counts:
        fitted = _fit(detector, tensor, "cuda")
    wanted = _fit(detector, X, "cpu").score_samples(_NEW.astype(np.float32))
    fitted.set_params(device="cpu")
    _assert_close(fitted.score_samples(_NEW.astype(np.float32)), wanted, 2e-6)
    for name, value in vars(fitted).items():
        assert not isinstance(value, torch.Tensor), name
    size = _size(fitted)
    n_values = X.size + (0 if fitted.estimator is None else len(X) * _CLASSES)
    if fitted._max_offset_samples is not None and fitted._learns:
        # samples of the threshold are drawn by hashes of all features, made on the host
        n_values += X.size * (len(X) > fitted._max_offset_samples)
    _assert_within(
        {
            "sent in fit": counts.to_device / size,
            "fetched in fit": counts.to_host / (size + n_values * X.itemsize),
        }
    )


def _data():
    y = np.arange(120) % 3
    X = np.random.default_rng(0).normal(size=(120, 3)) + 4 * np.eye(3)[y]
    return np.abs(X), y


def _estimators():
    """Return estimators with a device, also of a nested estimator."""
    return [
        instance
        for instance in instances(variants=False)
        if any(name.endswith("device") for name in instance.get_params())
        and not isinstance(instance, OutputDetector)
        and get_tags(instance).estimator_type is not None
    ]


def _on(estimator, device):
    names = [name for name in estimator.get_params() if name.endswith("device")]
    return estimator.set_params(**dict.fromkeys(names, device))


@pytest.mark.parametrize("estimator", _estimators(), ids=_name)
def test_networks_and_compositions_on_the_device(estimator, device):
    """Fitted on the device; weights and scores come back to the CPU."""
    X, y = _data()
    if "random_state" in estimator.get_params():
        estimator = clone(estimator).set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        on_cpu = _on(clone(estimator), "cpu").fit(X, y)
        fitted = _on(clone(estimator), "cuda").fit(X, y)
        for name in ("score_samples", "predict_proba", "predict_uncertainty"):
            if not hasattr(fitted, name):
                continue
            wanted = getattr(on_cpu, name)(X)
            before = _stored_bytes()
            with device.counted() as first:
                getattr(fitted, name)(X)
            stored = _stored_bytes() - before
            with device.counted() as counts:
                values = getattr(fitted, name)(X)
            outputs = values if isinstance(values, dict) else {"": values}
            n_bytes = sum(output.nbytes for output in outputs.values())
            over = OF_MEMBERS.get(_name(estimator), {})
            assert counts.waits <= over.get("waits", 6)
            assert counts.to_host <= over.get("fetched", 2) * n_bytes
            # fitted arrays were sent before; a network belongs to its classifier
            n_bytes = 1.05 * X.nbytes * over.get("samples", 1)
            n_bytes += _size(getattr(fitted, "estimator_", None))
            assert counts.to_device <= 1.01 * n_bytes
            assert first.to_device - counts.to_device <= stored
            if name == "predict_uncertainty":
                wanted, values = wanted["epistemic"], values["epistemic"]
            np.testing.assert_allclose(
                values, wanted, atol=2e-6 * max(np.abs(wanted).max(), 1.0), rtol=0
            )


# ------------------------------------------------------------------ the budgets


def test_chunks_fill_a_share_of_the_memory(device):
    X = np.broadcast_to(np.float32(0), (1_000_000, 512))
    fitted = Mahalanobis(device="cuda").fit(_X[:, :50])
    size, *_ = fitted._chunking(NetworkOutputs(features=X))
    assert -(-len(X) // size) <= 16  # of 1 GiB: there were 248
    free = torch.cuda.mem_get_info
    for memory, n_bytes in ((2**30, 2**30 // 5), (2**20, 64 * 2**20)):
        torch.cuda.mem_get_info = lambda *_, memory=memory: (memory, 2**33)
        size, *_ = fitted._chunking(NetworkOutputs(features=X))
        assert size == n_bytes // (8 * 4 * 512)
    torch.cuda.mem_get_info = free
    assert Mahalanobis(device="cpu")._chunking(NetworkOutputs(features=X))[0] == 4096


def test_copies_on_the_device_end_with_the_detector(device):
    fitted = Mahalanobis(device="cuda").fit(_X[:, :50])
    before = len(_array_api._COPIES)
    first = fitted.score_samples(_X[:100, :50])
    assert len(_array_api._COPIES) > before
    fitted.fit(2 * _X[:, :50])  # other arrays: no copy of the first is used
    assert not np.allclose(fitted.score_samples(_X[:100, :50]), first)
    del fitted
    assert len(_array_api._COPIES) <= before
    coef = _CENTERS[:30] / 40  # weights of a classifier may change in place
    detector = NCI(FrozenEstimator(LinearHead(coef)), device="cuda").fit(_X)
    first = detector.score_samples(_X[:100])
    coef *= -1.0
    changed = detector.score_samples(_X[:100])
    assert not np.allclose(changed, first)
    np.testing.assert_allclose(
        changed, detector.set_params(device="cpu").score_samples(_X[:100])
    )


def test_auto_is_the_device_of_the_weights(device):
    """A network on the CPU was moved to CUDA and back in each call."""
    X = _X[:50].astype(np.float32)
    net = torch.nn.Sequential(torch.nn.Linear(_D, 40), torch.nn.Linear(40, 10))
    clf = pretrained(net)
    with device.counted() as counts:
        wanted = clf.predict_proba(X)
    assert counts == Counts()
    net.to(DEVICE)
    with device.counted() as counts:
        proba = clf.predict_proba(X)
    np.testing.assert_allclose(proba, wanted, atol=1e-6)
    assert counts.to_device == X.nbytes
    net.to("cpu")
    with device.counted() as counts:  # unless a device is named
        proba = pretrained(net, device="cuda").predict_proba(X)
    np.testing.assert_allclose(proba, wanted, atol=1e-6)
    assert counts.to_device > X.nbytes
    assert net[0].weight.device.type == "cpu"


def test_chunks_without_memory_are_halved(device, small_chunks, monkeypatch):
    fitted, sizes = Energy().fit(_X), []
    wanted, original = fitted.score_samples(_NEW), Energy._score_outputs

    def with_memory_for(n_samples):
        def score(self, outputs):
            sizes.append(outputs.n_samples)
            if outputs.n_samples > n_samples:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(self, outputs)

        sizes.clear()
        monkeypatch.setattr(Energy, "_score_outputs", score)
        return fitted.set_params(device="cuda").score_samples(_NEW)

    np.testing.assert_allclose(with_memory_for(100), wanted, rtol=1e-12)
    assert sizes == [_CHUNK] + [_CHUNK // 2] * 6
    with pytest.raises(torch.OutOfMemoryError, match="pass device='cpu'"):
        with_memory_for(0)


def _needs_memory(monkeypatch, owner, name, n_items):
    """Let a function raise for more than `limit` items; return the list of it."""
    original, limit = getattr(owner, name), [np.inf]

    def function(*args):
        if n_items(*args) > limit[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(*args)

    monkeypatch.setattr(owner, name, function)
    return limit


@pytest.mark.parametrize(
    "detector",
    [Mahalanobis(tied=False), OpenMax(tail_size=2), ViM(), NNGuide(), Relation()],
    ids=_name,
)
def test_fits_without_memory_are_halved(detector, device, small_chunks, monkeypatch):
    """A fit starts again with half the chunks; some sums are added to in place."""
    head = LinearHead(_HEAD.coef[:3, :12], np.zeros(3))
    X, new = _X[:300, :12], _NEW[:100, :12]
    y = head.predict(X)
    if not isinstance(detector, Mahalanobis):
        detector = detector.set_params(estimator=FrozenEstimator(head))
    detector = detector.set_params(device="cuda")
    limit = _needs_memory(
        monkeypatch,
        NetworkOutputs,
        "chunk",
        lambda outputs, block, device, sparse: (
            (block.stop - block.start) * bool(device)
        ),
    )
    fitted = clone(detector).fit(X, y)
    wanted = fitted.score_samples(new)
    limit[0] = _CHUNK // 4
    halved = clone(detector).fit(X, y)
    scores = halved.score_samples(new)
    np.testing.assert_allclose(scores, wanted, rtol=1e-9)
    np.testing.assert_allclose(halved.offset_, fitted.offset_, rtol=1e-9)
    if hasattr(detector, "partial_fit"):
        halved = clone(detector).partial_fit(X[:150], y[:150])
        halved.partial_fit(X[150:], y[150:])
        scores = halved.score_samples(new)
        np.testing.assert_allclose(scores, wanted, rtol=1e-9)
    limit[0] = _CHUNK // 32
    with pytest.raises(torch.OutOfMemoryError, match="pass device='cpu'"):
        clone(detector).fit(X, y)


def test_searches_without_memory_are_halved(device, small_chunks, monkeypatch):
    """Neighbors in scores and fits, and searches of QUAM: points, then targets."""
    monkeypatch.setattr(knn, "GPU_BYTES", 8 * 100 * 500)  # chunks of about 100 samples
    limit = _needs_memory(
        monkeypatch, knn, "distances_of_tiles", lambda queries, *args: len(queries)
    )
    detector, X = KNN(algorithm="torch", device="cuda"), _X[:300, :12]
    wanted, offset = detector.fit(X).score_samples(X), detector.offset_
    limit[0] = 40
    np.testing.assert_array_equal(detector.score_samples(X), wanted)
    assert detector.fit(X).offset_ == offset
    limit[0] = 0
    for method in (detector.score_samples, detector.fit):
        with pytest.raises(torch.OutOfMemoryError, match="pass device='cpu'"):
            method(X)

    limit = _needs_memory(monkeypatch, searches, "search", lambda *args: args[3])
    X, y = _X[:300, :8].astype(np.float32), _Y[:300] % 3
    net = FrozenEstimator(pretrained(torch.nn.Linear(8, 3), device="cuda"))
    search = AdversarialSearch(n_steps=2)
    quam = QUAM(net, scope="last", search=search, device="cuda").fit(X, y)
    wanted = quam.predict_uncertainty(X[:70])
    for limit[0] in (100, 1):
        uncertainty = quam.predict_uncertainty(X[:70])
        for name in wanted:
            np.testing.assert_allclose(uncertainty[name], wanted[name], atol=1e-5)
    limit[0] = 0
    with pytest.raises(torch.OutOfMemoryError, match="pass device='cpu'"):
        quam.predict_uncertainty(X[:70])


def test_candidates_of_neighbors_in_float32(device, monkeypatch):
    """One product in float64 for samples in doubt; the bank was cast for all."""
    monkeypatch.setattr(knn, "GPU_BYTES", 8 * 900 * _D)
    original, searches = memory_bank.nearest_of_tiles, []

    def searched(queries, *args):
        searches.append((queries.dtype, len(queries)))
        return original(queries, *args)

    monkeypatch.setattr(memory_bank, "nearest_of_tiles", searched)
    monkeypatch.setattr(memory_bank, "_allows_tf32", lambda: False)
    X, new = _X.astype(np.float32), _NEW.astype(np.float32)
    X[:50] = X[0] + 1e-5 * X[1950:]  # more neighbors than candidates, in doubt
    new[:5] = X[:5] + 1e-6
    fitted = KNN(n_neighbors=3, algorithm="torch", device="cpu").fit(X)
    wanted, left_out = fitted.score_samples(new), fitted.offset_
    searches.clear()
    tensor = torch.from_numpy(new).to(DEVICE)
    fitted = fitted.set_params(device="cuda")
    fitted.score_samples(tensor)
    n_chunks = len([kind for kind, _ in searches if kind == torch.float32])
    assert n_chunks >= 3
    assert sum(n for kind, n in searches if kind == torch.float32) == len(new)
    assert sum(n for kind, n in searches if kind == torch.float64) <= 10
    with device.counted() as counts:
        scores = fitted.score_samples(tensor)
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    assert counts.to_device == 0
    assert counts.to_host == scores.nbytes
    assert counts.waits <= 3 * n_chunks
    fitted = clone(fitted).fit(torch.from_numpy(X).to(DEVICE))
    np.testing.assert_allclose(fitted.offset_, left_out, rtol=1e-6)


def test_outputs_of_networks_stay_on_the_device(device):
    """They were fetched, and sent to the detector."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(60, 40), torch.nn.Linear(40, 10))
    X = _NEW[:, :60].astype(np.float32)
    for n_classes in (10, 2):
        net[1] = torch.nn.Linear(40, 1 if n_classes == 2 else n_classes)
        clf = FrozenEstimator(pretrained(net, np.arange(n_classes), batch_size=100))
        for detector in (Energy(clf), ViM(clf), KNN(clf, algorithm="torch")):
            net.to("cpu")
            fitted = detector.set_params(device="cpu").fit(X)
            wanted = fitted.score_samples(X)
            net.to(DEVICE)
            for samples, n_bytes in ((X, X.nbytes), (torch.from_numpy(X), X.nbytes)):
                fitted.set_params(device="cuda").score_samples(samples)
                with device.counted() as counts:
                    scores = fitted.score_samples(samples)
                _assert_close(scores, wanted, 2e-6)
                assert counts.to_host == scores.nbytes
                assert counts.to_device == n_bytes
            tensor = torch.from_numpy(X).to(DEVICE)
            again = clone(detector).fit(tensor)
            _assert_close(again.score_samples(tensor), wanted, 2e-6)
            np.testing.assert_allclose(again.offset_, fitted.offset_, rtol=1e-5)


def test_features_of_bodies_stay_on_the_device(device, monkeypatch):
    """They were fetched in `transform`, and 27 times the scores in all."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(60, 40), torch.nn.ReLU(), torch.nn.Linear(40, 20)
    net = torch.nn.Sequential(*layers)
    X, y = _NEW[:, :60].astype(np.float32), _Y[: len(_NEW)] % 20
    body, head = split(pretrained(net, np.arange(20), batch_size=70))
    monkeypatch.setattr(torch_network, "_BLOCK_BYTES", 4 * 40 * _CHUNK)
    for rectifier in (ReAct(), ASH()):
        pipe = FrozenEstimator(make_pipeline(body, rectifier, head).fit(X, y))
        for detector in (Energy(pipe), ViM(pipe), KNN(pipe, algorithm="torch")):
            net.to("cpu")
            fitted = detector.set_params(device="cpu").fit(X)
            wanted = fitted.score_samples(X)
            net.to(DEVICE)
            tensor = torch.from_numpy(X).to(DEVICE)
            for samples, n_sent in ((X, X.nbytes), (tensor, 0)):
                fitted.set_params(device="cuda").score_samples(samples)
                with device.counted() as counts:
                    scores = fitted.score_samples(samples)
                _assert_close(scores, wanted, 2e-6)
                assert counts.to_host == scores.nbytes
                assert counts.to_device <= n_sent + 4 * 41 * 20  # and the head
                assert counts.waits <= 3 * _N_CHUNKS


def test_bodies_on_the_device_check_their_head(device):
    """Logits that are not the product, or overflow, raise as on the CPU."""

    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    X = _NEW[:, :60].astype(np.float32)
    large = torch.nn.Linear(60, 20)
    large.weight.data.fill_(3e38)
    for last, match in (
        (Doubled(60, 20), "not the output of a torch.nn.Linear"),
        (large, "logits contain NaN or infinity"),
    ):
        net = torch.nn.Sequential(last)
        body, head = split(pretrained(net, np.arange(20)))
        detector = Energy(FrozenEstimator(make_pipeline(body, head)), device="cuda")
        net.to(DEVICE)
        tensor = torch.from_numpy(X).to(DEVICE)
        for samples in (tensor, X):
            with pytest.raises(ValueError, match=match):
                detector.fit(samples)
            with pytest.raises(ValueError, match=match):
                body.transform(samples)


def test_searches_of_more_points_advance_together(device):
    """A small layer takes 4 batches of training samples at a time: it was one."""
    X, y = _X[:300, :8].astype(np.float32), _Y[:300] % 3
    net = FrozenEstimator(pretrained(torch.nn.Linear(8, 3), device="cuda"))
    search = AdversarialSearch(n_steps=2)
    quam = QUAM(net, scope="last", search=search, device="cuda").fit(X, y)
    quam.predict_uncertainty(X[:1])
    counts = []
    for n_points in (64, 256):
        with device.counted() as count:
            quam.predict_uncertainty(X[:n_points])
        counts.append(count)
    first, second = counts
    assert second.operators <= 1.2 * first.operators
    assert second.waits <= first.waits


def test_devices_without_float64(monkeypatch):
    """Scores are computed on the CPU."""
    mps = torch.device("mps")
    monkeypatch.setattr(_torch, "resolve_device", lambda device: mps)
    X, fitted = _NEW[:, :60], Mahalanobis().fit(_X[:, :60])
    wanted = fitted.score_samples(X)
    with pytest.warns(SkoodWarning, match="MPS has no float64"):
        scores = fitted.set_params(device="mps").score_samples(X)
    np.testing.assert_array_equal(scores, wanted)
    fitted = KNN(algorithm="torch", device="mps")
    with pytest.warns(SkoodWarning, match="MPS has no float64"):
        scores = fitted.fit(X).score_samples(X)
    wanted = KNN(algorithm="torch", device="mps").fit(X).score_samples(X)
    np.testing.assert_array_equal(scores, wanted)


def test_penalties_are_copied_once(device):
    kb = KnowledgeBase(
        ["a and not b", "a xor b", "a or b", "b -> a"], {"a": "bool", "b": "bool"}
    )
    Z, weights = np.arange(40_000).reshape(-1, 2) // 3 % 2, [1.0, 0.3, 0.7, -0.1]
    tensor = torch.from_numpy(Z).to(DEVICE)
    with device.counted() as counts:
        penalty = kb.penalty(tensor, weights)
    np.testing.assert_array_equal(penalty, kb.penalty(Z, weights))
    # one byte per sample and constraint
    assert counts.to_host <= len(Z) * len(kb) * 1.01
    assert counts.transfers == 1


@pytest.mark.parametrize("detector", _detectors(), ids=_name)
def test_budget_of_scores(detector, device, small_chunks):
    """What is sent is the fitted arrays; what is fetched is the scores."""
    fitted = _fitted(detector).set_params(device="cuda")
    X = _NEW.astype(np.float32)
    tensor = torch.from_numpy(X).to(DEVICE)
    with device.counted() as counts:
        scores = fitted.score_samples(tensor)
    ratios = {
        "sent": counts.to_device / _size(fitted),
        "fetched": counts.to_host / scores.nbytes,
        "waits": counts.waits / _N_CHUNKS,
    }
    with device.counted() as counts:
        fitted.score_samples(tensor)
    # copies of fitted arrays stay on the device; the head belongs to the classifier
    owner = 1 if fitted.estimator is None else _size(_HEAD)
    ratios["sent again"] = counts.to_device / owner
    fitted = copy.deepcopy(fitted)
    with device.counted() as counts:
        fitted.score_samples(X)
    ratios["sent with X"] = counts.to_device / (1.05 * X.nbytes + _size(fitted))
    _assert_within(ratios)


def _graph_fit(name, n_epochs):
    """Fit an estimator of nodes or a probe for a number of epochs."""
    X, y = _data()
    nodes = NodeSet((X, np.eye(len(X), k=3) + np.eye(len(X), k=-3)))
    options = {"max_epochs": n_epochs, "random_state": 0, "device": "cuda"}
    if name == "probe":
        clf = FrozenEstimator(LogisticRegression().fit(X, y))
        return EvidentialProbe(clf, **options).fit(X, y)
    if name == "densities":
        options["warmup_epochs"] = n_epochs
        return GraphPosteriorNetwork(**options).fit(nodes, y)
    batch_size = 30 if name == "batches" else None
    return GraphClassifier(batch_size=batch_size, **options).fit(nodes, y)


@pytest.mark.parametrize(
    ("name", "most_waits"),
    [("nodes", 3), ("batches", 3), ("densities", 5), ("probe", 2)],
)
def test_waits_of_an_epoch(name, most_waits, device):
    """Losses of training and validation, and one test of all weights.

    There was a wait per weight and batch; nodes and codes were sent in each epoch.
    """
    counts = []
    for n_epochs in (2, 4):
        with device.counted() as count:
            _graph_fit(name, n_epochs)
        counts.append(count)
    first, second = counts
    assert (second.waits - first.waits) / 2 <= most_waits
    if name != "batches":  # each batch is another graph
        assert second.to_device == first.to_device


def test_masks_of_dropout_are_sent_once(device):
    """Draws equal the CPU's; predictions of all networks are fetched together."""
    X, y = _data()
    net = TorchClassifier(module_params={"dropout": 0.3}, max_epochs=1, random_state=0)
    clf = MCDropout(net, 5, batch_size=40, random_state=0, device="cpu").fit(X, y)
    wanted = clf.predict_members(X)
    with device.counted() as counts:
        members = clf.set_params(device="cuda").predict_members(X)
    np.testing.assert_allclose(members, wanted, atol=1e-6)
    with device.counted() as first:
        clf.predict_members(X[:40])  # one of three batches
    assert counts.to_device - first.to_device == 4 * X[40:].size
    assert counts.to_host == members.nbytes
    assert (counts.waits - first.waits) / 2 <= 1


def _rectifiers():
    """Return a rectifier of each class and each variant of a computation."""
    return [
        *(r for r in instances(variants=False) if isinstance(r, BaseRectifier)),
        *(ASH(variant=variant) for variant in "bps"),
        VRA(below="clip"),
        LTS(FrozenEstimator(_FEW_CLASSES)),
        DICE(FrozenEstimator(_FEW_CLASSES)),
    ]


@pytest.mark.parametrize("rectifier", _rectifiers(), ids=_name)
def test_rectified_features_stay_on_the_device(rectifier, device):
    """Ties, samples of zeros: the values of the CPU, and nothing else is fetched."""
    head = FrozenEstimator(_FEW_CLASSES)
    fitted = rectifier.fit(_X[:200, :60], _Y[:200] % 20)
    estimator = fitted if isinstance(fitted, DICE) else make_pipeline(fitted, head)
    detector = ViM(FrozenEstimator(estimator)).fit(_X[:200, :60], _Y[:200] % 20)
    for dtype, rtol in ((np.float64, 1e-9), (np.float32, 2e-6)):
        X = np.round(_NEW[:, :60], 1).astype(dtype)
        X[0] = 0.0
        wanted = detector.set_params(device="cpu").score_samples(X)
        tensor = torch.from_numpy(X).to(DEVICE)
        detector.set_params(device="cuda").score_samples(tensor)
        with device.counted() as counts:
            scores = detector.score_samples(tensor)
        _assert_close(scores, wanted, rtol)
        assert counts.to_host == scores.nbytes
        assert counts.to_device <= 1.51 * _size(_FEW_CLASSES)
        assert counts.waits <= 4


def test_errors_of_rectifiers_on_the_device(device):
    """They are the errors on the CPU."""
    X = np.concatenate([_NEW[:50], np.zeros((1, _D))])
    X[-1, :60] = 3e38
    for rectifier, sign, dtype in ((SCALE(), -1, float), (ASH(), 1, np.float32)):
        pipe = make_pipeline(rectifier.fit(_X), FrozenEstimator(_HEAD))
        detector = Energy(FrozenEstimator(pipe), device="cuda").fit(_X[:100])
        array = (sign * X).astype(dtype)
        for samples in (array, torch.from_numpy(array).to(DEVICE)):
            with pytest.raises(ValueError, match=r"Negative values|which overflows"):
                detector.score_samples(samples)
        tensor = torch.full((2, _D), float("inf"), device=DEVICE)
        with pytest.raises(ValueError, match="infinity"):
            detector.score_samples(tensor)
        with pytest.raises(ValueError, match="599 features"):
            detector.score_samples(torch.from_numpy(_NEW[:, 1:]).to(DEVICE))


def test_reject_option_over_detectors_on_the_device(device):
    """Samples are fetched once; a `LinearHead` raised a TypeError for them."""
    X, y = _X[:600, :60], _Y[:600] % 20
    new = np.ascontiguousarray(_NEW[:, :60])
    tensor = torch.from_numpy(new).to(DEVICE)
    for head in (_FEW_CLASSES, copy.deepcopy(_FEW_CLASSES).fit(X, y)):
        clf = RejectOptionClassifier(
            FrozenEstimator(head), ood_detector=Mahalanobis(device="cuda")
        ).fit(X, y)
        wanted = clf.predict(new)
        with device.counted() as counts:
            predicted = clf.predict(tensor)
        np.testing.assert_array_equal(predicted, wanted)
        assert counts.to_host <= 1.01 * new.nbytes
        assert counts.waits <= 3
