"""Tests of the default networks and of how a network is built."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from skood.nn._default_modules import MLP, ModuleBuilder, SmallConvNet, default_module

# --- the default networks ----------------------------------------------------


def test_mlp_is_the_composition_of_its_layers():
    torch.manual_seed(0)
    module = MLP((2, 3), 4, hidden=(5, 7))
    X = np.random.RandomState(0).normal(size=(10, 2, 3)).astype(np.float32)
    z = X.reshape(10, 6)
    for layer in (module.linear_1, module.linear_2):
        z = np.maximum(z @ layer.weight.detach().numpy().T + layer.bias.tolist(), 0)
    expected = z @ module.head.weight.detach().numpy().T + module.head.bias.tolist()
    assert expected.shape == (10, 4)
    assert_allclose(module(torch.tensor(X)).detach(), expected, rtol=1e-4, atol=1e-5)


def test_mlp_without_hidden_layer_is_linear():
    module = MLP((3,), 2, hidden=())
    assert [type(layer) for layer in module] == [nn.Flatten, nn.Linear]
    X = torch.randn(5, 3)
    expected = X @ module.head.weight.T + module.head.bias
    assert_allclose(module(X).detach(), expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "module, n_dropout",
    [
        (MLP((3,), 2, hidden=(4, 4), dropout=0.5), 2),
        (MLP((3,), 2), 0),
        (SmallConvNet((1, 8, 8), 2, dropout=0.5), 1),
        (SmallConvNet((1, 8, 8), 2), 0),
    ],
)
def test_dropout(module, n_dropout):
    layers = [layer for layer in module if isinstance(layer, nn.Dropout)]
    assert [layer.p for layer in layers] == n_dropout * [0.5]
    assert isinstance(list(module)[-1], nn.Linear)


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 9), (2, 2), (3, 5), (8, 8), (28, 28), (33, 17), (96, 64)]
)
def test_small_conv_net_takes_images_of_any_size(size):
    module = SmallConvNet((2, *size), 3, channels=(4, 6), hidden=5)
    assert module(torch.randn(2, 2, *size)).shape == (2, 3)
    n_pixels = module.linear.in_features / 6
    assert n_pixels <= 49  # maps of at most 7 by 7
    assert module.head.in_features == 5


def test_small_conv_net_needs_images():
    with pytest.raises(ValueError, match=r"needs images .* samples of shape \(3, 4\)"):
        SmallConvNet((3, 4), 2)


@pytest.mark.parametrize(
    "shape, expected",
    [((4,), MLP), ((4, 5), MLP), ((1, 4, 5), SmallConvNet), ((1, 2, 3, 4), MLP)],
)
def test_default_module(shape, expected):
    assert default_module(shape) is expected
    assert isinstance(ModuleBuilder(None, None, shape, 2)(), expected)


# --- building ----------------------------------------------------------------


def test_builder_passes_shape_classes_and_params():
    builder = ModuleBuilder(MLP, {"hidden": (8,)}, (4,), 3)
    module = builder()
    assert module.linear_1.weight.shape == (8, 4)
    assert module.head.weight.shape == (3, 8)
    assert module.training
    assert builder() is not module


def test_builder_takes_any_factory():
    def factory(input_shape, n_classes, *, bias):
        return nn.Linear(*input_shape, n_classes, bias=bias)

    assert ModuleBuilder(factory, {"bias": False}, (4,), 3)().bias is None


def test_builder_takes_callables_without_a_signature(monkeypatch):
    def no_signature(factory):
        raise ValueError("no signature found")

    monkeypatch.setattr("inspect.signature", no_signature)
    assert isinstance(ModuleBuilder(MLP, None, (4,), 3)(), MLP)


def test_builder_sizes_lazy_layers():
    module = ModuleBuilder(lambda shape, n: nn.LazyLinear(n), None, (4,), 3)()
    assert module.weight.shape == (3, 4)


def test_builder_does_not_train_a_module_among_the_params():
    backbone = nn.Linear(4, 4)

    def factory(input_shape, n_classes, backbone):
        return nn.Sequential(backbone, nn.Linear(4, n_classes))

    module = ModuleBuilder(factory, {"backbone": backbone}, (4,), 3)()
    assert module[0] is not backbone
    assert torch.equal(module[0].weight, backbone.weight)


def test_builder_leaves_batch_statistics_alone():
    module = ModuleBuilder(
        lambda shape, n: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, n)),
        None,
        (4,),
        3,
    )()
    assert module[0].num_batches_tracked == 0


def test_builder_tries_the_module_in_its_precision():
    module = ModuleBuilder(lambda s, n: nn.Linear(*s, n).double(), None, (4,), 3)()
    assert module.weight.dtype == torch.float64


class _NoShape(nn.Module):
    def __init__(self, width):
        super().__init__()


@pytest.mark.parametrize(
    "module, params, match",
    [
        (
            nn.Linear(4, 3),
            None,
            r"must be a class or a factory, got an instance of Linear: .* "
            r"skood\.nn\.pretrained\(module, classes=\.\.\.\)",
        ),
        (
            _NoShape,
            None,
            r"called as module\(input_shape, n_classes, \*\*module_params\) .* "
            r"_NoShape does not accept that .* Its parameters are \(width\)",
        ),
        (MLP, {"widths": (4,)}, r"module_params=\{'widths': \(4,\)\}: got an unexp"),
        (
            lambda shape, n: "module",
            None,
            "must return a torch module, got an object of type str",
        ),
        (
            lambda shape, n: nn.LSTM(4, n),
            None,
            r"must return one tensor of logits .* object of type tuple",
        ),
    ],
    ids=["instance", "signature", "params", "no module", "tuple"],
)
def test_builder_type_errors(module, params, match):
    with pytest.raises(TypeError, match=match):
        ModuleBuilder(module, params, (4,), 3)()


@pytest.mark.parametrize(
    "factory, got",
    [
        (lambda shape, n: nn.Linear(4, 7), r"\(2, 3\), got \(2, 7\)"),
        (lambda shape, n: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), r"got \(2,\)"),
    ],
)
def test_builder_width_of_the_logits(factory, got):
    with pytest.raises(ValueError, match=f"2 samples of shape .* 3 classes .*{got}"):
        ModuleBuilder(factory, None, (4,), 3)()


def test_builder_for_other_samples():
    with pytest.raises(
        ValueError, match=r"failed on two .* \(4,\), .* Build it for the"
    ):
        ModuleBuilder(lambda shape, n: nn.Linear(5, n), None, (4,), 3)()
