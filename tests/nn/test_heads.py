"""Tests of networks with several heads: how they are built, their losses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from skood.nn import MultiHeadClassifier
from skood.nn._default_modules import MLP, SmallConvNet
from skood.nn._multi_head_network import (
    HeadNetwork,
    HeadSamples,
    MultiHeadFactory,
    MultiHeadNetwork,
)
from tests.nn._networks import Body, Flat, Linear


def test_logits_side_by_side():
    torch.manual_seed(0)
    body, heads = Body((3,)), [nn.Linear(8, size) for size in (2, 4)]
    network = MultiHeadNetwork(body, heads)
    x = torch.randn(5, 3)
    expected = torch.cat([heads[0](body(x)), heads[1](body(x))], dim=1)
    assert torch.equal(network(x), expected)
    for k, block in enumerate(network.split(network(x))):
        assert torch.equal(block, heads[k](body(x)))
        assert torch.equal(network.one_head(k)(x), heads[k](body(x)))
    assert isinstance(network.one_head(0), HeadNetwork)
    assert network.one_head(1).head is heads[1]


def test_single_head_is_not_copied():
    network = MultiHeadNetwork(nn.Identity(), [nn.Linear(3, 2)])
    x = torch.randn(4, 3)
    outputs = []
    network.heads[0].register_forward_hook(lambda *call: outputs.append(call[2]))
    assert network(x) is outputs[0]


@pytest.mark.parametrize(
    "shape, kind, width", [((4,), MLP, 100), ((2, 9, 7), SmallConvNet, 64)]
)
def test_default_body_is_the_default_network_without_head(shape, kind, width):
    torch.manual_seed(0)
    network = MultiHeadFactory(None, [5])(shape, 5)
    torch.manual_seed(0)
    expected = kind(shape, 5)
    x = torch.randn(3, *shape)
    assert isinstance(network.body, kind)
    assert network.heads[0].in_features == width
    assert torch.equal(network(x), expected(x))


@pytest.mark.parametrize(
    "kind, shape, layers",
    [
        (MLP, (3,), ["flatten"]),
        (MLP, (3,), ["flatten", "linear_1", "relu_1", "dropout_1"]),
        (SmallConvNet, (1, 8, 8), ["linear", "relu_3", "dropout"]),
    ],
)
def test_default_networks_without_head(kind, shape, layers):
    options = {"hidden": ()} if layers == ["flatten"] else {"dropout": 0.5}
    module = kind(shape, None, **options)
    assert [name for name, _ in module.named_children()][-len(layers) :] == layers


def test_body_params_precision_and_lazy_layers():
    def body(input_shape, width):
        layers = nn.LazyLinear(width), nn.ReLU()
        return nn.Sequential(*layers).double()

    network = MultiHeadFactory(body, [3, 2])((4,), 5, width=6)
    assert [head.weight.dtype for head in network.heads] == 2 * [torch.float64]
    assert [head.weight.shape for head in network.heads] == [(3, 6), (2, 6)]
    assert network(torch.zeros(2, 4).double()).shape == (2, 5)


def test_a_module_among_the_params_is_not_trained():
    backbone = nn.Linear(4, 4)
    before = backbone.weight.detach().clone()

    def body(input_shape, backbone):
        return nn.Sequential(backbone, nn.ReLU())

    rng = np.random.RandomState(0)
    y = rng.randint(2, size=(30, 2))
    clf = MultiHeadClassifier(
        body, module_params={"backbone": backbone}, max_epochs=3, lr=0.1
    ).fit(rng.normal(size=(30, 4)), y)
    assert torch.equal(backbone.weight, before)
    assert not torch.equal(clf.module_.body[0].weight, before)


class _Pair(Flat):
    def forward(self, x):
        return x, x


class _Empty(Flat):
    def forward(self, x):
        return x[:, :0]


class _Mean(Flat):
    def forward(self, x):
        return x.mean()


class _Summed(Flat):
    def forward(self, x):
        return x.sum(dim=0, keepdim=True)


class _Whole(Flat):
    def forward(self, x):
        return x.sum(dim=1)


@pytest.mark.parametrize(
    "module, params, kind, match",
    [
        (
            nn.Linear(4, 3),
            None,
            TypeError,
            r"got an instance of Linear: fitting would change it\. Pass the class with "
            r"module_params, or a function \(input_shape\) -> module",
        ),
        (
            Linear,
            None,
            TypeError,
            r"called as module\(input_shape, \*\*module_params\) with the shape of one "
            r"sample; Linear does not accept that with module_params=\{\}: missing a "
            r"required argument: 'n_classes'",
        ),
        (Body, {"widht": 3}, TypeError, "unexpected keyword argument 'widht'"),
        (None, {"widht": 3}, TypeError, "unexpected keyword argument 'widht'"),
        (
            lambda shape: None,
            None,
            TypeError,
            r"module\(input_shape\) must return a tor",
        ),
        (
            lambda shape: nn.Linear(5, 2),
            None,
            ValueError,
            r"failed on two samples of zeros of shape \(4,\)",
        ),
        (_Pair, None, TypeError, "one tensor of features, got an object of type tuple"),
        (_Empty, None, ValueError, r"2 samples of shape \(4,\) it returned \(2, 0\)"),
        (
            _Mean,
            None,
            ValueError,
            r"shape \(n_samples, n_features\).* it returned \(\)",
        ),
        (_Summed, None, ValueError, r"it returned \(1, 4\)"),
        (_Whole, None, ValueError, r"it returned \(2,\)"),
    ],
)
def test_errors_of_the_body(module, params, kind, match):
    y = np.column_stack([np.arange(10) % 2, np.arange(10) % 3])
    clf = MultiHeadClassifier(module, module_params=params)
    with pytest.raises(kind, match=match):
        clf.fit(np.ones((10, 4)), y)
    assert set(vars(clf)) == set(clf.get_params())


# --- rows ----------------------------------------------------------------------


def test_weights_of_each_head_have_the_mean_of_its_share():
    rng = np.random.default_rng(0)
    codes, weight = rng.integers(2, size=(8, 3)), rng.uniform(size=(8, 3))
    shares = np.array([0.5, 1.5, 1.0])
    training_set = HeadSamples(np.arange(8), codes, weight, shares)
    assert_allclose(training_set.weight.mean(axis=0), shares, rtol=1e-12)
    assert_allclose(
        training_set.weight / shares, weight / weight.mean(axis=0), rtol=1e-12
    )
    part = training_set.subset(np.array([1, 3, 4]))
    assert_allclose(part.weight.mean(axis=0), shares, rtol=1e-12)
    assert_allclose(part.weight[1] / part.weight[0], weight[3] / weight[1], rtol=1e-12)
    inputs, (classes, weights) = part[np.array([2, 0])]
    assert_array_equal(inputs, [4, 1])
    assert_array_equal(classes, codes[[4, 1]])
    assert weights.dtype == np.float32
    assert_allclose(weights, part.weight[[2, 0]], rtol=1e-6)


def test_samples_without_weight_for_a_head_stay_so():
    weight = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 3.0]])
    training_set = HeadSamples(
        np.arange(3), np.zeros((3, 2), dtype=int), weight, np.ones(2)
    )
    assert_array_equal(training_set.weight, [[1, 0], [1, 0], [1, 3]])
    assert_array_equal(training_set.subset([0, 1]).weight, [[1, 0], [1, 0]])
