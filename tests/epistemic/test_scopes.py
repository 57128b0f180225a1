"""Scopes of few weights in all layers: normalization, biases, adapters."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

from skood.epistemic.quam._searched_layers import find_tail
from skood.nn import pretrained
from tests.epistemic._lenet import LeNet, digits, plain_search
from tests.epistemic._quam import QUICK, STEP, make_quam
from tests.epistemic._tails import assert_is_the_network, make_net, make_tail

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PARTIAL = "norm", "bias", "adapter"


class Normalized(nn.Module):
    """Convolutions with normalization of all kinds, and dense layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 7, stride=4)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, groups=2, bias=False)
        self.norm2 = nn.GroupNorm(3, 6)
        self.norm3 = nn.LayerNorm(6)
        self.plain = nn.LayerNorm(6, elementwise_affine=False)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        """Logits of images (n, 1, 28, 28)."""
        h = torch.tanh(self.norm1(self.conv1(x)))
        h = torch.tanh(self.norm2(self.conv2(h))).mean(dim=(2, 3))
        return self.head(self.plain(self.norm3(h)))


NAMES = {
    "norm": [f"norm{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias")],
    "bias": ["conv1.bias", *(f"norm{i}.bias" for i in (1, 2, 3)), "head.bias"],
    "adapter": ["conv1.weight", "conv2.weight", "head.weight"],
}


@pytest.fixture(scope="module")
def images():
    return digits(40, dtype=np.float64)


@pytest.fixture(scope="module")
def module():
    net = make_net(Normalized)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net.norm1.running_mean.normal_()
        for name in NAMES["norm"]:
            net.get_parameter(name).normal_(mean=0.5)
    return net


def _fitted(module, images, scope, **params):
    quam = make_quam(pretrained(module), scope=scope, **QUICK, **STEP, **params)
    return quam.fit(*images)


@pytest.mark.parametrize("scope", PARTIAL)
def test_weights_that_are_searched(module, images, scope):
    _, tail = make_tail(module, scope, images[0][:12], n_classes=4)
    named = tail.named(tail.start(3), 1)
    assert sorted(named) == sorted(NAMES[scope])
    for name, weight in named.items():  # bit by bit
        assert torch.equal(weight, module.get_parameter(name))
    assert_is_the_network(module, tail, images[0][:12])
    if scope != "adapter":
        assert tail.n_weights() == sum(weight.numel() for weight in named.values())


def test_numbers_of_weights_of_a_lenet():
    """236 biases; adapters of rank 2 have 1,348 weights in the dense layers."""
    module, (samples, _) = LeNet(10), digits(4)
    assert sum(p.numel() for p in module.parameters()) == 44426
    network, tail = make_tail(module, "bias", samples, n_classes=10)
    assert tail.n_weights() == 236
    batch = network.batch(samples[:2])
    tail = find_tail(network, "adapter", batch, rank=2)
    sizes = {
        name: a.numel() + b.numel()
        for name, a, b in zip(
            NAMES_OF_LENET, tail.start(1)[::2], tail.start(1)[1::2], strict=True
        )
    }
    assert sum(n for name, n in sizes.items() if name.startswith("fc")) == 1348
    assert sizes["conv1"] == 2 * (6 + 25)
    assert sizes["conv2"] == 2 * (16 + 6 * 25)
    # more than the smaller side of a matrix has no effect
    wide = find_tail(network, "adapter", batch, rank=100)
    assert [len(a[0]) for a in wide.start(1)[::2]] == [6, 16, 100, 84, 10]


NAMES_OF_LENET = ["conv1", "conv2", "fc1", "fc2", "fc3"]


def test_first_matrices_of_adapters():
    """B is zero, A is N(0, 1 / n_inputs), the same for all searches of a seed."""
    network, _ = make_tail(LeNet(10), "bias", digits(4)[0], n_classes=10)
    batch = network.batch(digits(2)[0])
    item, two, other = (
        find_tail(network, "adapter", batch, rank=80, seed=seed).start(2)
        for seed in (0, 0, 1)
    )
    for a, again, changed in zip(item, two, other, strict=True):
        assert torch.equal(a, again) and torch.equal(a[0], a[1])
        assert torch.equal(a, changed) == (not a.any())
    for b in item[1::2]:
        assert not b.any()
    a = item[4][0]  # 80 x 256 entries
    assert float(a.detach().var()) * 256 == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("scope", PARTIAL)
def test_step_zero_is_the_original_network(module, images, scope):
    quam = _fitted(module, images, scope)
    trace = quam.trace(images[0][:1])
    for log_proba in trace.log_proba[0]:
        assert_allclose(log_proba, trace.reference, rtol=0, atol=1e-13)
    assert_allclose(trace.training_loss[0], quam.reference_loss_[0], rtol=1e-13)
    assert (np.abs(trace.log_proba[-1] - trace.reference) > 1e-3).any()


@pytest.mark.parametrize("scope", PARTIAL)
def test_only_weights_in_scope_move(module, images, scope):
    """Not the running statistics either; adapters change matrices by a low rank."""
    state = copy.deepcopy(module.state_dict())
    quam = _fitted(module, images, scope, rank=2)
    models = quam.adversarial_models(images[0][:2], slack=np.inf)
    for x, item in zip(images[0][:2], models, strict=True):
        for i in range(4):
            clf = item.model(i)
            result = clf.estimator.module.state_dict()
            for name, tensor in result.items():
                moved = not torch.equal(tensor, state[name])
                assert moved == (name in NAMES[scope]), name
                if scope == "adapter" and moved:
                    change = (tensor - state[name]).flatten(1)
                    values = torch.linalg.svdvals(change)
                    assert values[1] > 1e-6 * values[0]
                    assert (values[2:] < 1e-12 * values[0]).all()
            proba = clf.predict_proba(x[None])[0]
            assert_allclose(proba, np.exp(item.log_proba[i]), atol=1e-6)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[name])


@pytest.mark.parametrize("scope", ["norm", "bias"])
def test_equals_a_plain_loop(module, images, scope):
    X, y = images
    quam = _fitted(module, images, scope)
    samples = [
        [int(np.flatnonzero((X == x).all(axis=(1, 2, 3)))[0]) for x in stored]
        for stored in quam.penalty_features_[quam.penalty_index_]
    ]
    batches = [(torch.as_tensor(X[r]), torch.as_tensor(y[r])) for r in samples]
    trace = quam.trace(X[:1])
    for t in range(4):
        item = plain_search(
            module, NAMES[scope], torch.as_tensor(X[0]), t, batches, **STEP
        )
        assert_allclose(trace.log_proba[:, t], item.outputs, rtol=0, atol=1e-9)


def test_adapters_equal_a_plain_loop(module, images):
    """By parametrizations of torch, in place of matrix products of skood."""
    X, _ = images
    quam = _fitted(module, images, "adapter", rank=3)
    network = quam._open()
    tail = find_tail(
        network, "adapter", torch.as_tensor(X[:2]), rank=3, seed=quam._seed
    )
    first = tail.start(1)

    class Plus(nn.Module):
        """Add B A."""

        def __init__(self, a, b):
            super().__init__()
            self.a = nn.Parameter(a.detach()[0].clone())
            self.b = nn.Parameter(b.detach()[0].clone())

        def forward(self, weight):
            """A matrix of low rank is added."""
            return weight + (self.b @ self.a).view(weight.shape)

    net = copy.deepcopy(module)
    for i, name in enumerate(("conv1", "conv2", "head")):
        layer = net.get_submodule(name)
        plus = Plus(first[2 * i], first[2 * i + 1])
        nn.utils.parametrize.register_parametrization(layer, "weight", plus)
    names = [n for n, _ in net.named_parameters() if n.endswith((".a", ".b"))]
    assert len(names) == 6
    batches = [
        (
            torch.as_tensor(quam.penalty_features_[r]),
            torch.as_tensor(quam.penalty_targets_[r]),
        )
        for r in quam.penalty_index_
    ]
    trace = quam.trace(X[:1])
    for t in range(4):
        item = plain_search(net, names, torch.as_tensor(X[0]), t, batches, **STEP)
        assert_allclose(trace.log_proba[:, t], item.outputs, rtol=0, atol=1e-9)


def test_rank_and_chunks(module, images):
    """The rank may be changed after the fit; chunks give the same."""
    X, _ = images
    quam = pickle.loads(pickle.dumps(_fitted(module, images, "adapter")))
    expected = quam.predict_uncertainty(X[:3]).epistemic
    chunks = quam.set_params(search__chunk_size=2).predict_uncertainty(X[:3]).epistemic
    assert_allclose(chunks, expected, rtol=1e-9)
    lower = quam.set_params(search__rank=1).predict_uncertainty(X[:3]).epistemic
    fresh = _fitted(module, images, "adapter", rank=1).predict_uncertainty(X[:3])
    assert_array_equal(lower, fresh.epistemic)
    assert (np.abs(lower / expected - 1) > 1e-3).all()


@pytest.mark.parametrize("scope", ["bias", "adapter"])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_classifiers_of_sklearn(data, kind, scope):
    X, y = data
    clf = (
        LogisticRegression()
        if kind == "linear"
        else MLPClassifier((6,), random_state=0)
    )
    quam = make_quam(clf, scope=scope, **QUICK, **STEP).fit(X, y)
    (item,) = quam.adversarial_models(X[:1], slack=np.inf)
    for i in range(3):
        proba = item.model(i).predict_proba(X[:1])[0]
        assert_allclose(proba, np.exp(item.log_proba[i]), rtol=1e-9)
    assert np.abs(item.log_proba - quam.trace(X[:1]).reference).max() > 1e-3


def test_networks_without_such_weights(data, mlp):
    X, y = data
    text = (
        r"scope='norm' searches weights of normalization layers with weights "
        r"\(BatchNorm, LayerNorm, GroupNorm\), but Sequential has none. Scopes of this "
        "network are 'last', 'dense', 'full', 'bias', 'adapter'"
    )
    with pytest.raises(ValueError, match=text):
        make_quam(FrozenEstimator(mlp), scope="norm", **QUICK).fit(X, y)
    no_bias = LogisticRegression(fit_intercept=False)
    with pytest.raises(ValueError, match="weights of biases, but Sequential has none"):
        make_quam(no_bias, scope="bias", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="'rank' parameter of AdversarialSearch"):
        make_quam(mlp, rank=0).fit(X, y)


class Powers(nn.Module):
    """Logits that are not the output of a linear layer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        """Three logits."""
        return torch.tanh(self.norm(x)[:, :3])


def test_network_of_normalization_alone(data):
    X, y = data
    frozen = pretrained(Powers().double(), [0, 1, 2])
    text = "adapter.* Scopes of this network are 'full', 'norm', 'bias'"
    with pytest.raises(ValueError, match=text):
        make_quam(frozen, scope="adapter", **QUICK).fit(X, y)
    uncertainty = (
        make_quam(frozen, scope="norm", **QUICK).fit(X, y).predict_uncertainty(X)
    )
    assert (uncertainty.epistemic > 0).all()


def test_regressors():
    """Searches begin with a move of the last bias."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    net = MLPRegressor(hidden_layer_sizes=(5,), random_state=0).fit(X, X[:, 0] ** 2)
    quam = make_quam(FrozenEstimator(net), scope="bias", **QUICK, **STEP)
    (item,) = quam.fit(X, X[:, 0] ** 2).adversarial_models(X[:1], slack=np.inf)
    assert sorted(item.weights) == ["0.bias", "2.bias"]
    for i in range(2):
        assert item.model(i).predict(X[:1])[0] == pytest.approx(item.mean[i])
    quam.set_params(scope="adapter").fit(X, X[:, 0] ** 2)
    text = "at first move the bias of the last layer of Sequential, which this scope"
    with pytest.raises(ValueError, match=text):
        quam.predict_uncertainty(X[:1])
