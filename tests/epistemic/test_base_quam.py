"""Training rows that are kept, of arrays, loaders and memory maps; blocks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import pickle
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from skood.epistemic import QUAM
from skood.epistemic.quam import _searches as _searching
from skood.epistemic.quam._searches import (
    Searches,
    _schedule,
    check_loader,
    is_loader,
)
from skood.nn import pretrained
from skood.nn._functional_network import FunctionalNetwork
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._quam import make_quam

QUICK = {"n_steps": 4, "batch_size": 8, "random_state": 0, "device": "cpu"}
FITTED = (
    "penalty_features_",
    "penalty_targets_",
    "penalty_index_",
    "evaluation_index_",
    "reference_loss_",
)


@pytest.fixture(scope="module")
def images():
    return digits(50)


@pytest.fixture(scope="module")
def network():
    return pretrained(lenet(), np.array(["a", "b", "c", "d"]))


def _loader(X, y, labels="abcd", **options):
    """A loader of images and class names, which are collated to a tuple."""
    samples = [(torch.as_tensor(x), labels[k]) for x, k in zip(X, y, strict=True)]
    return DataLoader(samples, **{"batch_size": 7, **options})


def _numbers(X, y, **options):
    data = TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    return DataLoader(data, **{"batch_size": 7, **options})


# ---- the parts


def test_schedule_is_random_order_again_and_again():
    rng = np.random.RandomState(0)
    index = _schedule(10, 7, 4, rng)
    assert index.shape == (7, 4)
    flat = index.ravel()
    rng = np.random.RandomState(0)
    for start in (0, 10, 20):
        assert_array_equal(
            flat[start : start + 10], rng.permutation(10)[: len(flat) - start]
        )
    assert sorted(flat[:10]) == list(range(10))


def test_schedule_of_few_samples():
    """A batch has each of them once."""
    index = _schedule(3, 5, 64, np.random.RandomState(0))
    assert index.shape == (5, 3)
    assert (np.sort(index, axis=1) == [0, 1, 2]).all()


@pytest.mark.parametrize("temperature", [1e-3, 0.5, np.inf])
def test_weights_of_members(temperature):
    losses = np.random.default_rng(0).exponential(size=(4, 3)) + 100
    result = Searches(QUAM(None, temperature=temperature))._weights(losses)
    for i in range(3):
        low = min(losses[:, i])
        values = [math.exp(-(loss - low) / temperature) for loss in losses[:, i]]
        expected = [value / math.fsum(values) for value in values]
        assert_allclose(result[:, i], expected, rtol=1e-10)


def test_what_a_loader_is(images, monkeypatch):
    assert is_loader(_loader(*images))
    assert not is_loader(images[0])
    monkeypatch.delitem(sys.modules, "torch.utils.data")
    assert not is_loader(images[0])


# ---- arrays


def test_stored_samples(images, network):
    """Only those that the steps use, and what the searched layers read of them."""
    X, y = images
    names = np.array(list("abcd"))[y]
    quam = make_quam(network, n_evaluation_samples=5, **QUICK).fit(X, names)
    rng = np.random.RandomState(0)
    drawn = rng.permutation(50)[:40].reshape(5, 8)
    extra = rng.permutation(50)[:5]
    used = sorted({*drawn.ravel(), *extra})
    assert quam.penalty_features_.shape == (len(used), 256)
    module = lenet()
    with torch.no_grad():
        x = torch.as_tensor(X[used])
        for conv in (module.conv1, module.conv2):
            x = nn.functional.max_pool2d(torch.relu(conv(x)), 2)
        logits = module(torch.as_tensor(X))
    assert_allclose(quam.penalty_features_, x.flatten(1), atol=1e-5)
    assert_array_equal(quam.penalty_targets_, y[used])
    assert_array_equal(np.array(used)[quam.penalty_index_], drawn)
    assert_array_equal(np.array(used)[quam.evaluation_index_], extra)
    losses = nn.functional.cross_entropy(logits, torch.as_tensor(y), reduction="none")
    assert_allclose(
        quam.reference_loss_, losses.double().numpy()[drawn].mean(axis=1), atol=1e-6
    )


# ---- loaders


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_loader_equals_array(images, network, scope):
    X, y = images
    names = np.array(list("abcd"))[y]
    expected = make_quam(network, scope=scope, n_evaluation_samples=6, **QUICK).fit(
        X, names
    )
    loaded = make_quam(network, scope=scope, n_evaluation_samples=6, **QUICK).fit(
        _loader(X, y)
    )
    for name in FITTED:
        assert_allclose(
            getattr(loaded, name), getattr(expected, name), rtol=1e-4, atol=1e-5
        )
    epistemic = loaded.predict_uncertainty(X[:3]).epistemic
    assert_allclose(epistemic, expected.predict_uncertainty(X[:3]).epistemic, rtol=1e-2)
    assert_array_equal(loaded.classes_, expected.classes_)


def test_shuffled_loader(images, network):
    """Rows keep their labels, the same ones are drawn again, nothing else moves."""
    X, y = images
    names = np.array(list("abcd"))[y]
    state = torch.get_rng_state()
    item, two = (
        make_quam(network, scope="full", **QUICK).fit(_loader(X, y, shuffle=True))
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert_array_equal(item.penalty_features_, two.penalty_features_)
    for row, answer in zip(item.penalty_features_, item.penalty_targets_, strict=True):
        place = np.flatnonzero((X == row).all(axis=(1, 2, 3)))
        assert names[place] == ["abcd"[answer]]
    plain = make_quam(network, scope="full", **QUICK).fit(X, names)
    assert not np.array_equal(plain.penalty_features_, item.penalty_features_)


@pytest.mark.parametrize("drop_last, n_samples", [(False, 50), (True, 49)])
def test_last_batch_of_a_loader(images, drop_last, n_samples):
    """The one row of the last batch may be dropped."""
    X, y = images
    frozen = pretrained(lenet())
    options = {**QUICK, "batch_size": 50, "n_steps": 1}
    quam = make_quam(frozen, scope="full", **options).fit(
        _numbers(X, y, drop_last=drop_last)
    )
    assert_array_equal(quam.penalty_features_, X[:n_samples])
    assert quam.penalty_index_.shape == (2, n_samples)


def test_batches_that_no_step_uses(images):
    X, y = images
    options = {**QUICK, "batch_size": 1, "n_steps": 1}
    quam = make_quam(pretrained(lenet()), **options).fit(_numbers(X, y))
    drawn = np.random.RandomState(0).permutation(50)[:2]
    assert_array_equal(quam.penalty_targets_[quam.penalty_index_[:, 0]], y[drawn])


def test_loader_before_a_pipeline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4)) * [1, 10, 100, 0.1]
    y = np.arange(30) % 3
    model = make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=5))
    with pytest.warns(match="Maximum iterations"):
        frozen = FrozenEstimator(model.fit(X, y))
    expected = make_quam(frozen, **QUICK).fit(X, y)
    loaded = make_quam(frozen, **QUICK).fit(_numbers(X, y))
    assert_allclose(
        loaded.predict_uncertainty(X[:5]).epistemic,
        expected.predict_uncertainty(X[:5]).epistemic,
        rtol=1e-9,
    )
    assert loaded.n_features_in_ == 4


class Stream(IterableDataset):
    """Rows without a number."""

    def __iter__(self):
        """None."""
        return iter([])


class Shorter:
    """A sampler that stops before its length."""

    def __iter__(self):
        """Ten rows."""
        return iter(range(10))

    def __len__(self):
        """Fifty."""
        return 50


def test_loaders_that_cannot_be_used(images, network):
    X, y = images
    loader = _loader(X, y)
    text = "A DataLoader gives the targets: leave y out"
    with pytest.raises(ValueError, match=text):
        QUAM(network).fit(loader, y)
    with pytest.raises(ValueError, match=text):
        check_loader(network, y)
    with pytest.raises(
        ValueError,
        match=r"given to a fitted network only\. Put it in a sklearn\.frozen",
    ):
        QUAM(MLPClassifier()).fit(loader)
    with pytest.raises(
        ValueError, match="a dataset with a length, because training samples"
    ):
        QUAM(network).fit(DataLoader(Stream(), batch_size=4))
    with pytest.raises(ValueError, match="has 50 samples, but returned 10"):
        QUAM(network).fit(_loader(X, y, sampler=Shorter()))
    with pytest.raises(ValueError, match="label 'x', which is not among the classes"):
        QUAM(network).fit(_loader(X, y, labels="abcx"))
    quam = make_quam(network, **QUICK).fit(loader)
    before = dict(vars(quam))
    with pytest.raises(ValueError, match="but returned 10"):
        quam.fit(_loader(X, y, sampler=Shorter()))
    assert all(vars(quam)[name] is value for name, value in before.items())


# ---- memory maps


class Watched(np.memmap):
    """Counts the rows that are read."""

    read = 0

    def __getitem__(self, samples):
        """Rows."""
        result = super().__getitem__(samples)
        Watched.read += len(result)
        return result


def test_of_a_memory_map_only_drawn_samples_are_loaded(tmp_path, images):
    X, y = images
    frozen = pretrained(lenet())
    expected = make_quam(frozen, **QUICK).fit(X, y)
    drawn = np.random.RandomState(0).permutation(50)[:40]
    others = np.setdiff1d(np.arange(50), drawn)
    file = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
    file[:] = X
    file[others] = np.nan  # would be an error
    file.flush()
    Watched.read = 0
    quam = make_quam(frozen, **QUICK).fit(
        Watched(tmp_path / "X", np.float32, "r", shape=X.shape), y
    )
    assert Watched.read == 40
    for name in FITTED:
        assert_array_equal(getattr(quam, name), getattr(expected, name))
    points = np.memmap(tmp_path / "X", np.float32, "r", shape=X.shape)[drawn[:3]]
    assert_array_equal(
        quam.predict_uncertainty(points).epistemic,
        expected.predict_uncertainty(X[drawn[:3]]).epistemic,
    )
    with pytest.raises(ValueError, match="NaN"):
        make_quam(frozen, **QUICK).fit(np.array(file), y)


# ---- memory


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_blocks_fit_into_memory(images, kind, monkeypatch):
    """Weights, gradients and two moments, and activations, for each search."""
    searches = Searches(QUAM(None))

    class Tail:
        network = type("N", (), {"dtype": torch.float32})
        bytes_per_row = 100

        def n_weights(self):
            return 1000

    Tail.network.device = torch.device(kind)
    budget = f"_{'CPU' if kind == 'cpu' else 'DEVICE'}_BUDGET"
    each = 4 * 4 * 1000 + 64 * 100
    # on a GPU, larger blocks, if activations of four batches fit, too: of 22,400 bytes
    # each, 1,000 searches take the room of 466, of 233 points
    most = 16 if kind == "cpu" else 233
    for room, n_targets, expected in [
        (1, 10, (1, 1)),
        (3 * each, 10, (1, 3)),
        (10 * each, 10, (1, 10)),
        (39 * each, 10, (3, 10)),
        (1000 * each, 2, (most, 2)),
    ]:
        monkeypatch.setattr(_searching, budget, room)
        assert searches._block(Tail(), n_targets, 64) == expected
    assert searches._block(Tail(), 2, 1)[0] == (1 if kind == "cpu" else 4)
    searches.options.chunk_size = 5
    assert searches._block(Tail(), 10, 64) == (5, 10)


# ---- the network is opened once


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_each_sample_runs_through_the_network_once(images, scope, monkeypatch):
    """Only functions between dense layers are recorded, with two more samples."""
    X, y = images
    runs, opened = [], []
    run, open_network = FunctionalNetwork._call, QUAM._open

    def counted_call(self, batch, weights):
        if weights is None:  # otherwise a search runs through the network
            runs.append(len(batch))
        return run(self, batch, weights)

    def counted_open(self):
        opened.append(self)
        return open_network(self)

    module = lenet()
    quam = make_quam(pretrained(module), scope=scope, chunk_size=4, **QUICK).fit(X, y)
    expected = quam.predict_uncertainty(X[:10])
    monkeypatch.setattr(FunctionalNetwork, "_call", counted_call)
    monkeypatch.setattr(QUAM, "_open", counted_open)
    monkeypatch.setattr(FunctionalNetwork, "_run_watched", None)  # not found again
    uncertainty = quam.predict_uncertainty(X[:10])
    assert_array_equal(uncertainty.epistemic, expected.epistemic)
    assert len(opened) == 1
    assert runs == ([2] if scope == "dense" else []) + [4, 4, 2]


def test_restored_layers_of_a_network_with_probabilities(images):
    """The softmax after the last layer is found in `fit` alone."""
    X, y = images
    module = nn.Sequential(nn.Flatten(), nn.Linear(X[0].size, 4), nn.Softmax(1))
    quam = make_quam(pretrained(module), **QUICK).fit(X, y)
    for item in (quam, pickle.loads(pickle.dumps(quam))):
        with torch.no_grad():
            proba = module(torch.as_tensor(X[:3])).double()
        reference = item.trace(X[:1]).reference
        assert_allclose(np.exp(reference), proba[0], rtol=1e-5)
        aleatoric = item.predict_uncertainty(X[:3]).aleatoric
        assert_allclose(aleatoric, -(proba * proba.log()).sum(1), rtol=1e-5)
