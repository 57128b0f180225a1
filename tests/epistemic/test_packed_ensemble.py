"""PackedEnsemble: layers against small networks run one by one, and training."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn
from torch.nn import functional

from skood.epistemic import PackedEnsemble
from skood.epistemic.implicit._packed_ensemble import PackedLinear, pack, packed_width
from skood.nn import TorchClassifier
from skood.nn._default_modules import MLP, SmallConvNet
from tests.epistemic._member_nets import (
    ResidualNet,
    alone,
    disturbed,
    ensemble,
    member_norm,
    rows,
)
from tests.nn._networks import Linear


def n_weights(clf):
    return sum(parameter.numel() for parameter in clf.module_.parameters())


@pytest.mark.parametrize(
    "params, groups, width",
    [
        ({}, (4, 4, 4), 200),
        ({"n_members": 2, "alpha": 1, "gamma": 5}, (2, 10, 2), 100),
        ({"n_members": 3, "alpha": 1.0, "gamma": 1}, (3, 3, 3), 102),
    ],
)
def test_layers(params, groups, width, iris):
    options = {"module_params": {"hidden": (100, 100)}, "max_epochs": 1}
    clf = ensemble(PackedEnsemble, **params, **options).fit(*iris)
    body = clf.estimator_.module_.body
    results = [component for component in body if isinstance(component, PackedLinear)]
    assert tuple(layer.groups for layer in results) == groups
    assert results[0].out_features == results[1].out_features == width
    assert results[2].out_features == 3 * clf.n_members


def test_as_many_weights_between_hidden_layers_as_a_network(iris):
    """With alpha^2 = M gamma; what reads the input and gives the logits has more."""
    options = {"module_params": {"hidden": (64, 64)}, "max_epochs": 1}
    packed = ensemble(PackedEnsemble, **options).fit(*iris)
    fitted = TorchClassifier(**options).fit(*iris)
    hidden = packed.estimator_.module_.body.linear_2.weight.numel()
    assert hidden == fitted.module_.linear_2.weight.numel()
    assert (
        n_weights(packed.estimator_)
        == n_weights(fitted) + (4 + 1) * 64 + 64 + 64 * 3 + 3 * 3
    )


def test_weights_of_the_module_are_not_used(iris):
    """Layers are built anew: other widths need other weights."""

    def module(input_shape, n_classes):
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, n_classes))
        for parameter in network.parameters():
            nn.init.zeros_(parameter)
        return network

    clf = ensemble(PackedEnsemble, module, max_epochs=30, lr=0.02, random_state=0)
    assert clf.fit(*iris).score(*iris) > 0.9


def test_members_equal_networks_that_are_trained_alone(iris):
    """Adam on the mean of losses moves each member as it would move it alone.

    Its step does not depend on the scale of the loss, but for eps.
    """
    X, y = iris
    clf = ensemble(
        PackedEnsemble,
        n_members=3,
        max_epochs=4,
        batch_size=200,
        lr=0.01,
        random_state=0,
    )
    start = clone_state(clf.set_params(estimator__lr=1e-30).fit(X, y))
    clf.set_params(estimator__lr=0.01).fit(X, y)
    samples, codes = torch.as_tensor(X).float(), torch.as_tensor(y)
    for m in range(3):
        first, last = (
            nn.Linear(*shape) for shape in ((4, 67), (67, 3))
        )  # 200 / 3, rounded up
        with torch.no_grad():
            for layer, name in ((first, "linear_1"), (last, "head")):
                layer.weight.copy_(start[f"body.{name}.weight"][m])
                layer.bias.copy_(start[f"body.{name}.bias"][m])
        alone = nn.Sequential(first, nn.ReLU(), last)
        optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(alone(samples), codes).backward()
            optimizer.step()
        p = torch.softmax(alone(samples), 1).detach()
        assert_allclose(clf.predict_members(X)[m], p, atol=1e-4)


def clone_state(clf):
    return {name: x.clone() for name, x in clf.estimator_.module_.state_dict().items()}


def test_network_that_cannot_be_packed(iris):
    def module(input_shape, n_classes):
        return nn.Sequential(nn.Linear(4, 8), nn.Softmax(1), nn.Linear(8, n_classes))

    clf = ensemble(PackedEnsemble, max_epochs=1, random_state=0).fit(*iris)
    p = clf.predict_proba(iris[0])
    with pytest.raises(ValueError, match="Something in it mixes channels"):
        clf.set_params(estimator__module=module).fit(*iris)
    assert_array_equal(clf.predict_proba(iris[0]), p)


NETWORKS = [(MLP, (5,)), (SmallConvNet, (2, 9, 7)), (ResidualNet, (2, 8, 8))]


def small(layer, n_members, m):
    """The layer of member m alone, None for a layer without weights."""
    if hasattr(layer, "running_mean"):
        return member_norm(layer, n_members, m)
    if isinstance(layer, PackedLinear):
        groups = layer.groups // n_members
        mine = slice(m * groups, (m + 1) * groups)
        weight = torch.block_diag(*layer.weight[mine])
        bias = None if layer.bias is None else layer.bias[mine].flatten()
        new = nn.Linear(weight.shape[1], weight.shape[0])
    elif isinstance(layer, nn.Conv2d):
        width = layer.out_channels // n_members
        mine = slice(m * width, (m + 1) * width)
        weight, bias = layer.weight[mine], layer.bias
        bias = None if bias is None else bias[mine]
        new = nn.Conv2d(
            layer.in_channels // n_members,
            width,
            layer.kernel_size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups // n_members,
            padding_mode=layer.padding_mode,
        )
    else:
        return None
    assert new.weight.shape == weight.shape
    new.weight = nn.Parameter(weight.detach().clone())
    new.bias = None if bias is None else nn.Parameter(bias.detach().clone())
    return new


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"n_members": 4, "alpha": 2, "gamma": 1},
        {"n_members": 2, "alpha": 2.0, "gamma": 2},
        {"n_members": 3, "alpha": 1.3, "gamma": 2},
        {"n_members": 1, "alpha": 1, "gamma": 1},
    ],
)
@pytest.mark.parametrize("module, shape", NETWORKS)
def test_members_equal_small_networks(module, shape, options, training):
    network = pack(module(shape, 3), shape, **options)
    assert all(submodule.training for submodule in network.modules())
    network = disturbed(network).train(training)
    n_members = options["n_members"]
    members = [
        alone(network.body, partial(small, n_members=n_members, m=m))
        for m in range(n_members)
    ]
    x = rows(7, shape)
    logits = network.members(x)
    assert logits.shape == (7, n_members, 3)
    for m, member in enumerate(members):
        assert_allclose(
            logits[:, m].detach(), member(x).detach(), rtol=1e-9, atol=1e-12
        )
        state = alone(
            network.body, partial(small, n_members=n_members, m=m)
        ).state_dict()
        for name, value in member.state_dict().items():
            assert_allclose(state[name], value, rtol=1e-12)
    p = torch.softmax(logits, -1).mean(1).detach()
    assert_allclose(network.eval()(x).exp().detach().sum(1), 1, rtol=1e-12)
    if not training:
        assert_allclose(network(x).exp().detach(), p, rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layer_and_its_gradient_equal_a_block_diagonal(bias):
    layer = disturbed(PackedLinear(12, 6, 3, bias=bias))
    x = rows(7, (12,)).requires_grad_()
    result = torch.autograd.grad((layer(x) ** 3).sum(), [x, layer.weight])
    y = functional.linear(
        x, torch.block_diag(*layer.weight), layer.bias.flatten() if bias else None
    )
    assert_allclose(layer(x).detach(), y.detach(), rtol=1e-12)
    expected = torch.autograd.grad((y**3).sum(), [x, layer.weight])
    for a, b in zip(result, expected, strict=True):
        assert_allclose(a, b, rtol=1e-10)


def test_groups_start_like_separate_layers():
    """Weights are uniform up to 1 / sqrt(inputs of the group), and differ."""
    torch.manual_seed(0)
    layer = PackedLinear(400, 300, 4)
    for tensor in (layer.weight, layer.bias):
        assert 0.95 / 10 < tensor.detach().abs().max() <= 1 / 10
    assert not torch.equal(layer.weight[0], layer.weight[1])
    # and so do the groups of torch's convolutions
    layer = pack(SmallConvNet((3, 8, 8), 5), (3, 8, 8)).body.conv_2
    bound = 1 / np.sqrt(layer.weight[0].numel())
    assert 0.9 * bound < layer.weight.detach().abs().max() <= bound


def test_width():
    assert packed_width(64, 4, 2, 1) == 128
    assert packed_width(64, 4, 1, 1) == 64
    assert packed_width(10, 4, 1, 2) == 16  # groups of 2 rather than 10 / 8
    assert packed_width(1, 4, 0.1, 1) == 4
    assert packed_width(10, 11, 1.1, 1) == 11  # 1.1 * 10 is above 11 in binary
    for width in range(1, 40):
        for alpha in (0.5, 1, 1.5, 3):
            result = packed_width(width, 3, alpha, 2)
            assert result % 6 == 0
            assert 0 <= result - alpha * width < 6


@pytest.mark.parametrize("alpha, n_members, gamma", [(2, 4, 1), (4, 4, 2), (1, 2, 2)])
def test_number_of_parameters(alpha, n_members, gamma):
    """As in the paper: alpha^2 / (M gamma) times those of one network inside it."""
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False),
        nn.Conv2d(16, 32, 3, bias=False),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64, bias=False),
        nn.Linear(64, 10, bias=False),
    )
    network = pack(
        module, (3, 8, 8), n_members=n_members, alpha=alpha, gamma=gamma
    ).body
    results = [network[i].weight.numel() for i in (0, 1, 3, 4)]
    share = alpha**2 / (n_members * gamma)
    assert results == [
        alpha * 3 * 16 * 9,
        share * 16 * 32 * 9,
        share * 32 * 16 * 64,
        alpha * 64 * 10,
    ]


def test_single_member_is_the_network():
    module = ResidualNet((2, 8, 8), 3)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
    network = pack(module, (2, 8, 8), n_members=1, alpha=1.0).body
    assert isinstance(network.head, PackedLinear)
    result = {name: tuple(p.shape) for name, p in network.named_parameters()}
    for name in ("head.weight", "head.bias", "extra.weight"):
        shapes[name] = (1, *shapes[name])
    assert result == shapes


def test_single_linear_layer():
    """It reads the input and gives the logits: M layers side by side."""
    network = pack(Linear((4,), 3), (4,), n_members=2)
    assert network.body.weight.shape == (2, 3, 4)
    assert network.body.bias is None


def test_loss_of_a_member_moves_that_member_only():
    network = pack(SmallConvNet((2, 9, 7), 3), (2, 9, 7)).double()
    network(rows(5, (2, 9, 7)))[:, 2].exp().sum().backward()
    for parameter in network.parameters():
        parts = parameter.grad.unflatten(0, (4, -1)).flatten(1)
        assert (parts.any(1) == torch.tensor([False, False, True, False])).all()


def test_repeated_layer_stays_shared():
    shared = nn.Linear(8, 8)
    module = nn.Sequential(nn.Linear(3, 8), shared, shared, nn.Linear(8, 2))
    network = pack(module, (3,)).body
    assert network[1] is network[2]


def test_weights_that_are_frozen_are_built_anew_to_be_trained():
    module = MLP((3,), 2).requires_grad_(False)
    network = pack(module, (3,))
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_precision_and_generators_are_preserved():
    state = torch.get_rng_state()
    network = pack(SmallConvNet((2, 9, 7), 3).double(), (2, 9, 7))
    assert {p.dtype for p in network.parameters()} == {torch.float64}
    torch.set_rng_state(state)
    again = pack(SmallConvNet((2, 9, 7), 3).double(), (2, 9, 7))
    for a, b in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


class Function(nn.Module):
    """Two layers with a function in between."""

    def __init__(self, function):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self, self.first(x)))


class Constant(nn.Module):
    """Does not look at its input."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.ones_like(x))


def test_network_that_does_not_read_its_input():
    assert pack(Constant(), (4,)).members(rows(2, (4,)).float()).shape == (2, 4, 3)


def test_functions_that_keep_channels_apart():
    for function in (
        lambda net, x: functional.gelu(x),
        lambda net, x: functional.dropout(x, 0.5, net.training),
        lambda net, x: x + x.square(),
    ):
        pack(Function(function), (4,))


@pytest.mark.parametrize(
    "function",
    [
        lambda net, x: torch.softmax(x, 1),
        lambda net, x: x - x.mean(1, keepdim=True),
        lambda net, x: functional.layer_norm(x, x.shape[1:]),
        lambda net, x: x.flip(1),
    ],
)
def test_functions_that_mix_channels(function):
    match = (
        r"Function cannot be packed: the logits of member 0 would depend on the "
        r"channels of the members \[.*\]. Something in it mixes channels"
    )
    with pytest.raises(ValueError, match=match):
        pack(Function(function), (4,))


@pytest.mark.parametrize(
    "function, match",
    [
        (lambda net, x: x @ net.last.weight.T @ net.last.weight, "no attribute 'weigh"),
        (lambda net, x: x + torch.ones(8), "size of tensor"),
    ],
)
def test_functions_that_rely_on_the_width(function, match):
    with pytest.raises(
        ValueError, match=f"4 members side by side it failed: .*{match}"
    ):
        pack(Function(function), (4,))


@pytest.mark.parametrize(
    "layer, match",
    [
        (nn.LayerNorm(8), "layer '1' of the module is a LayerNorm, whose weights"),
        (nn.PReLU(), "Use BatchEnsemble or DeepEnsemble"),
        (nn.ConvTranspose2d(8, 8, 3), "is a ConvTranspose2d"),
    ],
)
def test_layers_that_cannot_be_packed(layer, match):
    shape = (4, 6, 6) if isinstance(layer, nn.ConvTranspose2d) else (4,)
    start = nn.Conv2d(4, 8, 3) if len(shape) == 3 else nn.Linear(4, 8)
    with pytest.raises(TypeError, match=match):
        pack(nn.Sequential(start, layer), shape)


def test_other_errors():
    module = nn.Sequential(nn.Conv2d(2, 8, 3), nn.Conv2d(8, 8, 3, groups=4))
    with pytest.raises(ValueError, match="convolution '1' of the module has groups=4"):
        pack(module, (2, 9, 9))
    module = nn.Sequential(nn.Linear(4, 8), nn.Flatten(), nn.Linear(24, 3))
    with pytest.raises(ValueError, match=r"'0' .* shape \(4, 12, 4\), but linear"):
        pack(module, (3, 4))
    with pytest.raises(ValueError, match=r"ReLU has no torch\.nn\.Linear and no"):
        pack(nn.ReLU(), (4,))
    module = Function(lambda net, x: net.aside(x) if net.training else x)
    module.aside = nn.Linear(8, 8)
    with pytest.raises(ValueError, match="'aside' of the module Function did not run"):
        pack(module, (4,))
    with pytest.raises(ValueError, match="must be multiples of groups=3"):
        PackedLinear(4, 3, 3)
    with pytest.raises(ValueError, match="in_features=3 and out_features=4 must"):
        PackedLinear(3, 4, 3)


def test_repr():
    assert repr(PackedLinear(4, 6, 2)) == (
        "PackedLinear(in_features=4, out_features=6, groups=2, bias=True)"
    )


def test_layers_equal_those_of_torch_uncertainty():
    layers = pytest.importorskip("torch_uncertainty.layers")
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    network = disturbed(pack(module, (5,), n_members=2, gamma=2))
    options = {"alpha": 2, "num_estimators": 2}
    theirs = nn.Sequential(
        layers.PackedLinear(5, 8, first=True, **options),
        nn.ReLU(),
        layers.PackedLinear(8, 8, gamma=2, **options),
        layers.PackedLinear(8, 3, last=True, **options),
    ).double()
    with torch.no_grad():
        for i in (0, 2, 3):
            ours = network.body[i]
            assert ours.weight.numel() == theirs[i].weight.numel()
            theirs[i].weight.copy_(ours.weight.reshape(theirs[i].weight.shape))
            theirs[i].bias.copy_(ours.bias.flatten())
        x = rows(7, (5,))
        expected = theirs(x).unflatten(0, (2, 7)).transpose(0, 1)  # members first
        assert_allclose(network.members(x), expected, rtol=1e-10)


def test_convolutions_equal_those_of_torch_uncertainty():
    layers = pytest.importorskip("torch_uncertainty.layers")
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, stride=2), nn.Conv2d(8, 3, 1)
    )
    network = disturbed(pack(module, (3, 9, 9), n_members=2, gamma=2))
    options = {"alpha": 2, "num_estimators": 2}
    # without the last argument it has one group to a member, and says nothing
    theirs = nn.Sequential(
        layers.PackedConv2d(3, 8, 3, first=True, **options),
        layers.PackedConv2d(
            8, 8, 3, stride=2, gamma=2, minimum_channels_per_group=1, **options
        ),
        layers.PackedConv2d(8, 3, 1, last=True, **options),
    ).double()
    with torch.no_grad():
        for ours, their in zip(network.body, theirs, strict=True):
            their.conv.weight.copy_(ours.weight.reshape(their.conv.weight.shape))
            their.conv.bias.copy_(ours.bias)
        x = rows(7, (3, 9, 9))
        expected = theirs(x).unflatten(0, (2, 7)).transpose(0, 1)
        assert_allclose(network.members(x), expected, rtol=1e-10)


def _gate(net, x):
    return torch.relu(x) * (x.sum(1, keepdim=True) > 0)


def _norm_without_gradient(net, x):
    return x / x.detach().std(1, keepdim=True)


@pytest.mark.parametrize("function", [_gate, _norm_without_gradient])
def test_channels_that_are_mixed_without_a_gradient(function):
    match = r"logits of member [0-3] would depend on the channels of the members \[\d\]"
    with pytest.raises(ValueError, match=match):
        pack(Function(function), (4,))


def test_functions_that_draw_in_eval_mode_can_be_packed():
    network = pack(Function(lambda net, x: functional.dropout(x, 0.3, True)), (4,))
    assert network.members(rows(2, (4,)).float()).shape == (2, 4, 3)


class Image(nn.Module):
    """Makes an image of a vector, whose channels so become rows, or pixels."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.head = nn.Linear(16, 2)
        self.channels = channels

    def forward(self, x):
        x = x.view(-1, self.channels, 4, 4)
        return self.head(self.conv(x).flatten(1))


class Pooled(nn.Module):
    """Takes the mean of its channels."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(1, 2)

    def forward(self, x):
        return self.last(self.first(x).mean(1, keepdim=True))


@pytest.mark.parametrize(
    "module, shape, match",
    [
        (Image(1), (16,), "layer 'conv' .* uses 1 channels of the 4 members together"),
        (Pooled(), (4,), "layer 'last' .* uses 1 channels .* divided into 4 groups"),
    ],
)
def test_inputs_that_cannot_be_divided(module, shape, match):
    with pytest.raises(ValueError, match=match):
        pack(module, shape)


def test_weights_that_a_hook_computes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = nn.utils.weight_norm(nn.Linear(4, 8))
    with pytest.raises(TypeError, match=r"without parametrizations\. Use"):
        pack(nn.Sequential(layer, nn.Linear(8, 2)), (4,))
