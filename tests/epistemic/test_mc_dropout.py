"""Monte-Carlo dropout against networks that are thinned by hand."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional

from skood.base import UncertaintyDetector
from skood.epistemic import MCDropout
from skood.epistemic import _mc_dropout as _dropout
from skood.nn import TorchClassifier, TorchRegressor, pretrained
from skood.nn import _dropout_masks as _thinned
from skood.nn._make_network import make_network
from tests.epistemic._naive import naive_uncertainty

NET = TorchClassifier(
    module_params={"hidden": (8,), "dropout": 0.4},
    max_epochs=20,
    lr=0.05,
    random_state=0,
)


@pytest.fixture
def data():
    return make_blobs(70, 4, centers=3, cluster_std=4.0, random_state=0)


@pytest.fixture
def fitted(data):
    return FrozenEstimator(clone(NET).fit(*data))


def _module(*layers, seed=0):
    torch.manual_seed(seed)
    for layer in layers:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return nn.Sequential(*layers)


def _masks(clf, shapes, p):
    """The masks that it draws: by thinned network, and by call of dropout."""
    return [
        [
            np.random.default_rng([clf._seed, s, call]).random(shape) >= p
            for call, shape in enumerate(shapes)
        ]
        for s in range(clf.n_samples)
    ]


# ---- numbers


def test_members_are_networks_thinned_by_hand(data, fitted):
    """Two layers, loops over samples, rows and units."""
    X, y = data
    clf = MCDropout(fitted, n_samples=6, random_state=0).fit(X, y)
    members = clf.predict_members(X)
    linear, head = fitted.module_.linear_1, fitted.module_.head
    W, b = linear.weight.detach().double().numpy(), linear.bias.detach().numpy()
    V, c = head.weight.detach().double().numpy(), head.bias.detach().numpy()
    masks = _masks(clf, [(8,)], 0.4)
    for s in range(6):
        for i, x in enumerate(X.astype(np.float32)):
            logits = [float(bias) for bias in c]
            for j in range(8):
                h = max(0.0, float(W[j] @ x + b[j]))
                if masks[s][0][j]:
                    logits = [z + V[k, j] * h / 0.6 for k, z in enumerate(logits)]
            assert_allclose(members[s, i], softmax(logits), rtol=3e-5)
    assert 0.3 < np.mean(masks) < 0.9
    assert_allclose(
        clf.set_params(setting="a").predict_proba(X), members.mean(axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("setting", ["a", "b"])
def test_uncertainty_against_a_loop(data, fitted, setting):
    X, y = data
    clf = MCDropout(fitted, n_samples=5, setting=setting, random_state=0).fit(X, y)
    members = clf.predict_members(X)
    original = members.mean(axis=0) if setting == "a" else fitted.predict_proba(X)
    assert_allclose(clf.predict_proba(X), original, rtol=1e-12)
    uncertainty = clf.predict_uncertainty(X)
    expected = naive_uncertainty(members, None, original if setting == "b" else None)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-7, atol=1e-12)
    assert uncertainty.epistemic.max() > 0.01


def test_auto_is_b_for_a_frozen_estimator(data, fitted):
    X, y = data
    frozen = MCDropout(fitted, n_samples=3, random_state=0).fit(X, y)
    assert_allclose(frozen.predict_proba(X), fitted.predict_proba(X), rtol=1e-12)
    trained = MCDropout(NET, n_samples=3, random_state=0).fit(X, y)
    mixture = trained.predict_members(X).mean(axis=0)
    assert_allclose(trained.predict_proba(X), mixture, rtol=1e-12)
    assert_array_equal(trained.predict_members(X), frozen.predict_members(X))


def test_moments_of_a_linear_layer():
    """For logits W(z x / q): mean W x and covariance W diag(x^2 p / q) W^T."""
    p, n = 0.3, 1_500
    net = _module(nn.Dropout(p), nn.Linear(4, 3)).double()
    x = np.array([[1.0, -2.0, 0.5, 1.5]])
    clf = MCDropout(pretrained(net), n_samples=n, random_state=0).fit(x, [0])
    members = np.log(clf.predict_members(x))[:, 0]
    logits = members - members.mean(axis=1, keepdims=True)  # up to a common shift
    W = net[1].weight.detach().numpy()
    mean = W @ x[0] + net[1].bias.detach().numpy()
    center = np.eye(3) - 1 / 3
    covariance = center @ W @ np.diag(x[0] ** 2 * p / (1 - p)) @ W.T @ center
    error = 5 * np.sqrt(np.diag(covariance) / n)
    assert (np.abs(logits.mean(axis=0) - center @ mean) < error).all()
    assert_allclose(
        np.cov(logits.T), covariance, atol=5 * np.abs(covariance).max() / n**0.5
    )


# ---- kinds of dropout


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    "kind, shape",
    [
        (nn.Dropout, (6,)),
        (nn.Dropout, (3, 5)),
        (nn.Dropout1d, (3, 5)),
        (nn.Dropout2d, (3, 4, 5)),
        (nn.Dropout3d, (3, 2, 4, 5)),
        (nn.AlphaDropout, (3, 5)),
        (nn.FeatureAlphaDropout, (3, 4, 5)),
    ],
)
def test_each_kind_does_to_a_row_what_torch_does(kind, shape, inplace):
    """Values that units and channels can take are those of torch's own module."""
    p = 0.4
    size = int(np.prod(shape))
    net = nn.Sequential(kind(p, inplace=inplace), nn.Flatten(), nn.Linear(size, size))
    with torch.no_grad():  # logits are the dropped units
        net[2].weight.copy_(torch.eye(size))
        net[2].bias.zero_()
    net.double()
    x = 1 + np.arange(size).reshape(1, *shape) / size
    clf = MCDropout(pretrained(net), n_samples=40, random_state=0).fit(x, [0])
    result = np.log(clf.predict_members(x))[:, 0].reshape(40, *shape)
    torch.manual_seed(0)
    theirs = torch.from_numpy(np.repeat(x, 40, axis=0))
    theirs = kind(p)(theirs).numpy()
    by_unit = kind in (nn.Dropout, nn.AlphaDropout)
    dropped = stored = 0
    for s in range(40):
        rng = np.random.default_rng([clf._seed, s, 0])
        mask = rng.random(shape if by_unit else (shape[0], *[1] * len(shape[1:]))) >= p
        mask = np.broadcast_to(mask, shape)
        expected = np.empty(shape)
        for i in np.ndindex(shape):
            values = np.unique(theirs[(slice(None), *i)])
            low, high = values.min(), values.max()
            assert len(values) == 2
            expected[i] = high if mask[i] else low
        dropped, stored = dropped + np.sum(~mask), stored + np.sum(mask)
        difference = result[s] - expected  # softmax loses a common shift
        assert_allclose(difference, difference.flat[0], atol=1e-12)
    assert dropped / (dropped + stored) == pytest.approx(p, abs=0.12)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout, nn.Dropout1d])
def test_probability_of_1_drops_all(kind):
    net = _module(kind(1.0), nn.Flatten(), nn.Linear(6, 3)).double()
    x = np.ones((2, 2, 3))
    clf = MCDropout(pretrained(net), n_samples=3, random_state=0).fit(x, [0, 1])
    expected = softmax(net[2].bias.detach().numpy())
    assert_allclose(
        clf.predict_members(x), np.broadcast_to(expected, (3, 2, 3)), rtol=1e-12
    )


class Branches(nn.Module):
    """Uses one dropout module twice, has another behind it, and writes in place."""

    def __init__(self, inplace):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.drop = nn.Dropout(0.5, inplace=inplace)
        self.second = nn.Linear(5, 5)
        self.last = nn.Dropout(0.25)
        self.head = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        x -= 0.5
        skip = torch.relu_(self.norm(self.first(x)))
        low, high = torch.split(skip, [2, 3], dim=1)
        skip = torch.cat([high, low], dim=1) + skip.shape[1]
        h = self.drop(skip.clone())
        skip += 1  # a tensor from before dropout is written to
        h = self.drop(self.second(h)) + skip
        return self.head(self.last(h))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("reuses", [True, False])
def test_masks_by_hand_in_a_network_with_branches(inplace, reuses, monkeypatch):
    torch.manual_seed(0)
    net = Branches(inplace).double().eval()
    net.norm.running_mean.normal_()
    clf = pretrained(net)
    X = np.random.default_rng(0).normal(size=(40, 4))
    if not reuses:
        monkeypatch.setattr(
            _thinned.ThinnedNetwork, "_can_replay", lambda self, batch: False
        )
    mc = MCDropout(clf, n_samples=7, random_state=1).fit(X, np.arange(40) % 3)
    members = mc.predict_members(X)
    with torch.no_grad():
        for s in range(7):
            masks = [
                torch.from_numpy(
                    (np.random.default_rng([mc._seed, s, call]).random(5) >= p)
                    / (1 - p)
                )
                for call, p in enumerate((0.5, 0.5, 0.25))
            ]
            skip = torch.relu(net.norm(net.first(torch.from_numpy(X) - 0.5)))
            skip = torch.cat([skip[:, 2:], skip[:, :2]], dim=1) + 5
            h = net.second(skip * masks[0]) * masks[1] + skip + 1
            expected = torch.softmax(net.head(h * masks[2]), 1)
            assert_allclose(members[s], expected, rtol=1e-10)


def test_transformer_layers_run_their_dropout():
    """The fused form of a layer in eval mode would leave it out."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(
                8, 2, 16, dropout=0.3, batch_first=True
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(1))

    X = np.random.default_rng(0).normal(size=(9, 4, 8)).astype(np.float32)
    clf = MCDropout(pretrained(Net()), n_samples=4, random_state=0).fit(X, [0] * 9)
    before = torch.backends.mha.get_fastpath_enabled()
    members = clf.predict_members(X)
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert np.ptp(members, axis=0).max() > 0.01
    assert_allclose(clf.predict_members(X[4:5])[:, 0], members[:, 4], 1e-5)


# ---- what all thinned networks have in common is computed once


def test_layers_before_dropout_run_once_for_a_batch():
    calls = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append((func, args))
            return func(*args, **(kwargs or {}))

    net = _module(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))
    X = np.random.default_rng(0).normal(size=(64, 4))
    clf = MCDropout(pretrained(net), 130, batch_size=32, setting="a", random_state=0)
    clf.fit(X, [0, 1] * 32)
    with Seen():
        clf.predict_members(X)
    # 2 batches; before them the head is looked for, then the shapes of masks with 2
    # rows and with 1, then whether results can be reused
    before = 1 + 2 + 2
    assert sum(func is torch.tanh for func, _ in calls) == before + 2
    heads = sum(func is functional.linear and len(args[1]) == 3 for func, args in calls)
    assert heads == before + 1 + 2 * 130


class Parallel(nn.Module):
    """Adds two layers, each behind dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 6), nn.Linear(4, 6)])
        self.drops = nn.ModuleList([nn.Dropout(0.5), nn.Dropout(0.2)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        """Drop twice."""
        pairs = zip(self.layers, self.drops, strict=True)
        return self.head(sum(drop(layer(x)) for layer, drop in pairs))


@pytest.mark.parametrize("n_samples", [1, 2, 5])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_copies_of_samples_run_as_a_batch(n_samples, is_parallel, monkeypatch):
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 6)
    net = _module(*layers, nn.AlphaDropout(0.2), nn.Linear(6, 3))
    if is_parallel:
        torch.manual_seed(0)
        net = Parallel()
    X = np.random.default_rng(0).normal(size=(n_samples, 4)).astype(np.float32)
    clf = MCDropout(pretrained(net), n_samples=16, random_state=0).fit(X, [0] * len(X))
    shapes, run = [], torch.nn.functional.linear

    def counted(x, weight, bias):
        shapes.append((len(x), len(weight)))
        return run(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    members = clf.predict_members(X)
    assert [n for n, m in shapes if m == 3 and n > 5] == [max(32, 16 * n_samples)]
    monkeypatch.setattr(_thinned, "_MAX_COPIES", 0)
    assert_allclose(members, clf.predict_members(X), rtol=2e-6)


@pytest.mark.parametrize("n_samples", [1, 3, 31])
def test_few_samples_are_padded_by_the_last(n_samples):
    batch = torch.arange(2.0 * n_samples).reshape(n_samples, 2)
    expected = [[2.0 * i, 2.0 * i + 1] for i in range(n_samples)]
    expected += [expected[-1]] * (32 - n_samples)
    assert _thinned.padded(batch).tolist() == expected
    batch = torch.zeros(32, 2)
    assert _thinned.padded(batch) is batch


def _in_place(net):
    with torch.no_grad():
        net[0].weight *= 2


def _by_data(net):
    net[0].bias.data += 1


def _by_numpy(net):
    net[3].weight.detach().numpy()[:] *= 2


def _loaded(net):
    state = {name: 1.5 * tensor for name, tensor in net.state_dict().items()}
    net.load_state_dict(state)


def _new_weights(net):
    net[0].weight.data = net[0].weight.data.flip(0)


def _new_layer(net):
    net[1] = nn.Tanh()


def _new_probability(net):
    net[2].p = 0.9


def _new_hook(net):
    net[0].register_forward_hook(lambda layer, args, output: output + 1)


def _in_double(net):
    net.double()


def _new_statistics(net):
    net[4].running_mean[0] += 1


@pytest.mark.parametrize(
    "change",
    [
        _in_place,
        _by_data,
        _by_numpy,
        _loaded,
        _new_weights,
        _new_layer,
        _new_probability,
        _new_hook,
        _in_double,
        _new_statistics,
    ],
)
def test_changes_of_the_network_change_the_next_prediction(change):
    """The networks of the call before are used only while they are the same."""
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
    net = _module(*layers, nn.BatchNorm1d(3)).train()
    X = np.random.default_rng(0).normal(size=(2, 4))
    clf = MCDropout(pretrained(net), n_samples=8, random_state=0).fit(X, [0, 1])
    before = clf.predict_members(X)
    pickled = pickle.dumps(clf)
    opened = _dropout._OPENED[clf.likelihood_]
    assert_array_equal(clf.predict_members(X), before)
    assert _dropout._OPENED[clf.likelihood_] is opened
    assert len(pickle.dumps(clf)) == len(pickled)
    change(net)
    after = clf.predict_members(X)
    fresh = copy.copy(clf)
    fresh.likelihood_ = clone(clf.likelihood_)
    assert_array_equal(after, fresh.predict_members(X))
    assert np.abs(after - before).max() > (1e-9 if change is _in_double else 1e-2)
    clf.set_params(random_state=1).fit(X, [0, 1])
    assert np.abs(clf.predict_members(X) - after).max() > 1e-2


@pytest.mark.parametrize("network", [TorchClassifier, TorchRegressor])
def test_changes_of_earlier_steps_change_the_next_prediction(network):
    X = np.random.default_rng(0).normal(size=(60, 4))
    y = (X[:, 0] > 0).astype(float)
    network = network(module_params={"dropout": 0.3}, max_epochs=2, random_state=0)
    pipeline = make_pipeline(StandardScaler(), network).fit(X, y)
    clf = MCDropout(FrozenEstimator(pipeline), n_samples=4, random_state=0).fit(X, y)
    other = Pipeline([("scale", StandardScaler().fit(9 * X - 1)), pipeline.steps[1]])
    predictions = [clf.predict_members(X[:2])]
    pipeline.steps[0] = ("scale", StandardScaler().fit(5 * X + 1))
    for estimator in (clf.estimator_, FrozenEstimator(other)):
        clf.estimator_ = estimator
        predictions.append(clf.predict_members(X[:2]))
        _dropout._OPENED.clear()
        assert_array_equal(predictions[-1], clf.predict_members(X[:2]))
        assert np.abs(predictions[-1] - predictions[-2]).max() > 1e-2


def test_large_networks_are_not_stored(monkeypatch):
    layers = nn.Linear(4, 60), nn.ReLU(), nn.Dropout(0.5), nn.Linear(60, 3)
    X = np.random.default_rng(0).normal(size=(2, 4))
    clf = MCDropout(pretrained(_module(*layers)), n_samples=8, random_state=0)
    clf.fit(X, [0, 1])
    n_bytes = 4 * (5 * 60 + 61 * 3) + 8 * 60  # of weights, and of masks
    for most, is_stored in ((n_bytes - 1, False), (n_bytes, True)):
        monkeypatch.setattr(_thinned, "_STORED_BYTES", most)
        clf.predict_members(X)
        assert (clf.likelihood_ in _dropout._OPENED) == is_stored


def test_threads_and_numbers_of_samples_share_no_masks():
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
    X = np.random.default_rng(0).normal(size=(40, 4))
    clf = MCDropout(pretrained(_module(*layers)), n_samples=8, random_state=0)
    clf.fit(X, [0, 1, 2, 1] * 10)
    parts = [X[i : i + 1 + i % 3] for i in range(30)]
    expected = []
    for part in parts:
        _dropout._OPENED.clear()
        expected.append(clf.predict_members(part))
    with ThreadPoolExecutor(4) as pool:
        for members, same in zip(
            pool.map(clf.predict_members, parts), expected, strict=True
        ):
            assert_array_equal(members, same)
    few = clf.set_params(n_samples=5).predict_members(parts[0])
    assert_array_equal(few, expected[0][:5])


class Exporting(nn.Module):
    """Hands memory over to NumPy, which can be done once only."""

    def forward(self, x):
        """Double."""
        return torch.from_numpy(2 * np.from_dlpack(x))


def test_networks_that_cannot_be_replayed_are_run_in_full():
    net = _module(nn.Linear(4, 6), Exporting(), nn.Dropout(0.5), nn.Linear(6, 3))
    plain = nn.Sequential(net[0], nn.Identity(), net[2], net[3])
    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.arange(30) % 3
    result = MCDropout(pretrained(net), n_samples=4, random_state=0).fit(X, y)
    members = result.predict_members(X)
    with torch.no_grad():
        net[0].weight *= 2
        net[0].bias *= 2
    expected = MCDropout(pretrained(plain), n_samples=4, random_state=0).fit(X, y)
    assert_allclose(members, expected.predict_members(X), rtol=1e-4)
    thinned = make_network(pretrained(net)).with_dropout("cpu", 0)
    thinned.log_proba(thinned.prepare(X), 2)
    assert not thinned._reuses


# ---- rows, batches, seeds


def test_samples_do_not_depend_on_each_other(data):
    X, y = data
    net = make_pipeline(StandardScaler(), NET)
    clf = MCDropout(net, n_samples=4, random_state=0).fit(X, y)
    members = clf.predict_members(X)
    order = np.random.default_rng(0).permutation(len(X))
    assert_allclose(clf.predict_members(X[order]), members[:, order], 1e-6)
    order = order[:15]
    one_by_one = np.concatenate([clf.predict_members(X[i : i + 1]) for i in order], 1)
    assert_allclose(one_by_one, members[:, order], rtol=1e-6)
    for batch_size in (3, 64, 1000):
        clf.set_params(batch_size=batch_size)
        assert_allclose(clf.predict_members(X), members, rtol=1e-6)


@pytest.mark.parametrize("setting", ["a", "b"])
def test_samples_in_blocks_give_the_same(data, fitted, setting, monkeypatch, capsys):
    X, y = data
    clf = MCDropout(
        fitted, n_samples=8, random_state=0, setting=setting, batch_size=5, verbose=1
    ).fit(X, y)
    whole = clf.predict_uncertainty(X)
    row_chunks = _dropout.row_chunks

    def short_chunks(n_samples, bytes_per_row, budget=12):
        return row_chunks(n_samples, 1, budget)

    monkeypatch.setattr(_dropout, "row_chunks", short_chunks)
    assert len(list(clf._blocks(X))) == 6
    capsys.readouterr()
    parts = clf.predict_uncertainty(torch.from_numpy(X))
    assert "MCDropout" in capsys.readouterr().err
    for name, component in parts.items():
        assert_allclose(component, whole[name], rtol=1e-5, atol=1e-9)


def test_more_members_begin_with_the_same_ones(data, fitted):
    X, y = data
    few, many = (
        MCDropout(fitted, n_samples=n, random_state=0).fit(X, y).predict_members(X)
        for n in (5, 9)
    )
    assert_array_equal(many[:5], few)


def test_the_users_network_is_left_as_it_is(data):
    X, y = data
    net = _module(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    net.train()
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    clf = MCDropout(pretrained(net), n_samples=2, random_state=0).fit(X, y)
    clf.predict_uncertainty(X)
    assert all(module.training for module in net.modules())
    assert all("forward" not in vars(module) for module in net.modules())
    assert torch.equal(net[0].weight.grad, torch.ones(6, 4))
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
    with torch.inference_mode():
        inside = clf.predict_members(X)
    assert_array_equal(clf.predict_members(X), inside)


# ---- errors


@pytest.mark.parametrize(
    "estimator, result",
    [
        (LogisticRegression(), r"network of LogisticRegression\(\)\. Train"),
        (MLPClassifier((3,), max_iter=500), r"network of MLPClassifier\(.*\)\. Train"),
        (TorchClassifier(max_epochs=1), r"network of TorchClassifier\(.*\)\. Train"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_dropout_raises(data, estimator, result):
    X, y = data
    with pytest.raises(ValueError, match="no torch.nn dropout module.*" + result):
        MCDropout(estimator).fit(X, y)


def test_dropout_of_nothing_raises(data):
    X, y = data
    net = _module(nn.Dropout(0.0), nn.Linear(4, 3))
    with pytest.raises(ValueError, match="with a probability above zero"):
        MCDropout(pretrained(net)).fit(X, y)


class Unused(nn.Module):
    """Has dropout and does not run it."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        """Skip it."""
        return self.head(x)


class RowsLast(Unused):
    """Runs it on rows as the second axis, or as often as there are rows."""

    repeats = False

    def forward(self, x):
        """Mix rows into the mask."""
        if self.repeats:
            for _ in range(len(x)):
                x = self.drop(x)
            return self.head(x)
        return self.head(self.drop(x[None])[0])


class Fickle(Unused):
    """Runs it a second time on rows of some values."""

    def forward(self, x):
        """Look at the values."""
        x = self.drop(x)
        return self.head(self.drop(x) if x.max() > 0 else x)


def test_dropout_that_does_not_run_raises(data):
    X, y = data
    clf = MCDropout(pretrained(Unused())).fit(X, y)
    with pytest.raises(ValueError, match="dropout modules of Unused do not run when"):
        clf.predict_members(X)


@pytest.mark.parametrize("repeats", [False, True])
def test_masks_that_depend_on_the_batch_raise(data, repeats):
    X, y = data
    net = RowsLast()
    net.repeats = repeats
    clf = MCDropout(pretrained(net)).fit(X, y)
    with pytest.raises(ValueError, match=r"'drop' changes its shape.*with the samples"):
        clf.predict_members(X)


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.head = nn.Dropout(0.4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(input=self.drop(input=x))


def test_dropout_that_is_called_with_a_keyword(data):
    X, y = data
    module = ByKeyword()
    plain = nn.Sequential(module.drop, module.head)
    by_keyword, expected = (
        MCDropout(pretrained(net), n_samples=5, random_state=0).fit(X, y)
        for net in (module, plain)
    )
    assert_array_equal(by_keyword.predict_members(X), expected.predict_members(X))


def test_masks_that_depend_on_the_values_raise(data):
    X, y = data
    clf = MCDropout(pretrained(Fickle()), n_samples=2, random_state=0).fit(X, y)
    X = -np.abs(X)
    assert clf.predict_members(X).shape == (2, 70, 3)
    few = clf.predict_members(X[:1])
    assert clf.predict_members(-X[:1]).shape == (2, 1, 3)  # a second mask
    assert_array_equal(clf.predict_members(X[:1]), few)
    X[50] = 1.0
    with pytest.raises(ValueError, match=r"'drop' changes its shape.*with the samples"):
        clf.predict_members(X)


def test_logits_that_overflow_raise(data):
    X, y = data
    net = _module(nn.Linear(4, 3), nn.Dropout(0.5))
    with torch.no_grad():
        net[0].weight.fill_(3e38)
    clf = MCDropout(pretrained(net), n_samples=2, setting="a").fit(X, y)
    with pytest.raises(ValueError, match="NaN or infinite logits"):
        clf.predict_members(np.full((3, 4), 1.1))


def test_networks_with_probabilities_and_a_margin():
    """A softmax, or one output for two classes, gives the same members."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    net = _module(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2)).double()
    both = nn.Sequential(*net, nn.Softmax(dim=1))
    margin = nn.Linear(6, 1).double()
    with torch.no_grad():
        margin.weight.copy_(net[2].weight[1:] - net[2].weight[:1])
        margin.bias.copy_(net[2].bias[1:] - net[2].bias[:1])
    single = nn.Sequential(net[0], net[1], margin)
    members = [
        MCDropout(pretrained(item, classes=["no", "yes"]), n_samples=4, random_state=0)
        .fit(X, ["no"] * 20)
        .predict_members(X)
        for item in (net, both, single)
    ]
    assert_allclose(members[1], members[0], rtol=1e-10)
    assert_allclose(members[2], members[0], rtol=1e-10)


def test_images_and_a_detector():
    """Far from the training images the thinned networks contradict each other."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 1, 6, 6)).astype(np.float32)
    X[np.arange(60), 0, y, :] += 3
    net = TorchClassifier(
        module_params={"channels": (4, 4), "hidden": 16, "dropout": 0.3},
        max_epochs=15,
        lr=0.02,
        random_state=0,
    )
    clf = MCDropout(net, n_samples=10, random_state=0)
    detector = UncertaintyDetector(clf).fit(X, y)
    labels = np.r_[y, np.full(60, -1)]
    noise = rng.normal(size=(60, 1, 6, 6)).astype(np.float32)
    assert detector.score(np.r_[X, noise], labels) > 0.7


def test_dropout_behind_the_logits_raises(data):
    """Logits are taken before a softmax, and would not see it."""
    X, y = data
    layers = nn.Linear(4, 5), nn.Linear(5, 3)
    net = _module(*layers, nn.Dropout(0.5), nn.Softmax(dim=1))
    clf = MCDropout(pretrained(net), n_samples=4).fit(X, y)
    text = "dropout module '2' runs after the layer that gives the logits"
    with pytest.raises(ValueError, match=text):
        clf.predict_members(X)
    # without the softmax they do see it
    net = _module(*layers, nn.Dropout(0.5))
    clf = MCDropout(pretrained(net), n_samples=4, random_state=0).fit(X, y)
    # eight masks of three logits: two members draw the same one now and then
    assert np.ptp(clf.predict_members(X), axis=0).max() > 0.1


class Refined(nn.Module):
    """Runs its last layer twice, with dropout in between."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        """Look twice."""
        return torch.softmax(self.head(self.drop(self.head(x))), dim=1)


def test_dropout_between_two_uses_of_the_last_layer(data):
    X, y = data
    torch.manual_seed(0)
    clf = MCDropout(pretrained(Refined()), n_samples=3, random_state=0).fit(X[:, :3], y)
    head = clf.estimator_.estimator.module.head
    samples = torch.as_tensor(X[:, :3], dtype=torch.float32)
    with torch.no_grad():
        for s, (mask,) in enumerate(_masks(clf, [(1, 3)], 0.5)):
            logits = head(2 * torch.as_tensor(mask) * head(samples))
            members = clf.predict_members(X[:, :3])[s]
            assert_allclose(members, softmax(logits.numpy(), 1), rtol=1e-4)


def test_sample_weight_reaches_the_network(data, fitted):
    X, y = data
    weight = np.linspace(0, 2, len(y))
    clf = MCDropout(NET, n_samples=2, random_state=0).fit(X, y, sample_weight=weight)
    expected = clone(NET).fit(X, y, sample_weight=weight).predict_proba(X)
    assert_array_equal(clf.estimator_.predict_proba(X), expected)
    plain = clone(clf).fit(X, y).estimator_.predict_proba(X)
    assert not np.allclose(expected, plain)
    MCDropout(fitted).fit(X, y, sample_weight=weight)  # is not fitted
    with pytest.raises(ValueError, match="Pipeline has no sample_weight in its fit"):
        MCDropout(make_pipeline(NET)).fit(X, y, sample_weight=weight)
