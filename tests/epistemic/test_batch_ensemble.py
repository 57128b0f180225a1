"""BatchEnsemble: layers against dense networks of members, and training."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings
from functools import partial

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.nn.utils import parametrizations

from skood.epistemic import BatchEnsemble
from skood.epistemic.implicit._batch_ensemble import (
    BatchEnsembleConv2d,
    BatchEnsembleLinear,
    MemberBatchNorm,
    batch_ensemble,
)
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


@pytest.mark.parametrize("n_members", [1, 5])
def test_layers(n_members, iris):
    clf = ensemble(BatchEnsemble, n_members=n_members, max_epochs=1).fit(*iris)
    layer = clf.estimator_.module_.body.linear_1
    assert isinstance(layer, BatchEnsembleLinear)
    assert layer.weight.shape == (100, 4)
    assert layer.r.shape == (n_members, 4)
    assert layer.s.shape == layer.bias.shape == (n_members, 100)


def test_start_of_the_factors_of_a_classifier(iris):
    """A learning rate that moves nothing shows what they start from."""
    clf = ensemble(BatchEnsemble, max_epochs=1, lr=1e-12, random_state=0)
    factors = clf.fit(*iris).estimator_.module_.body.linear_1.s.detach()
    assert set(factors.round().unique().tolist()) == {-1.0, 1.0}
    clf.set_params(factor_init="normal").fit(*iris)
    factors = clf.estimator_.module_.body.linear_1.s.detach()
    assert abs(float(factors.mean()) - 1) < 0.1
    assert abs(float(factors.std()) - 0.5) < 0.1


def test_factors_and_common_weights_are_trained(iris):
    clf = ensemble(BatchEnsemble, max_epochs=1, lr=1e-12, random_state=0)
    start = clf.fit(*iris).estimator_.module_.state_dict()
    clf.set_params(estimator__lr=0.01).fit(*iris)
    for name, result in clf.estimator_.module_.state_dict().items():
        moved = (result - start[name]).abs()
        assert 1e-3 < float(moved.max()) < 0.1, name


def test_single_member_is_the_mixture(iris):
    X, y = iris
    clf = ensemble(BatchEnsemble, n_members=1, max_epochs=3, random_state=0).fit(X, y)
    assert_allclose(clf.predict_members(X)[0], clf.predict_proba(X), rtol=1e-12)
    assert (clf.predict_uncertainty(X).epistemic < 1e-14).all()


def test_weights_of_other_layers_are_shared(iris):
    def module(input_shape, n_classes):
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.PReLU(8), torch.nn.Linear(8, n_classes)
        )

    clf = ensemble(BatchEnsemble, module, max_epochs=20, lr=0.02, random_state=0)
    assert clf.fit(*iris).score(*iris) > 0.8
    assert clf.estimator_.module_.body[1].weight.shape == (8,)


def dense(layer, m):
    """The layer of member m alone, None for a layer that is common."""
    if isinstance(layer, MemberBatchNorm):
        return member_norm(layer.norm, layer.n_members, m)
    factors = None
    if isinstance(layer, BatchEnsembleLinear):
        factors = torch.outer(layer.s[m], layer.r[m])
        new = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
    if isinstance(layer, BatchEnsembleConv2d):
        r = layer.r[m].view(layer.groups, -1)  # channels that a group of outputs reads
        r = r.repeat_interleave(layer.out_channels // layer.groups, dim=0)
        factors = (layer.s[m][:, None] * r)[:, :, None, None]
        new = nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
            padding_mode=layer.padding_mode,
            bias=layer.bias is not None,
        )
    if factors is None:
        return None
    new.weight = nn.Parameter((layer.weight * factors).detach())
    if layer.bias is not None:
        new.bias = nn.Parameter(layer.bias[m].detach().clone())
    return new


def tokens(input_shape, n_classes):
    """A network for rows with two axes."""
    return nn.Sequential(
        nn.Linear(input_shape[1], 6),
        nn.LayerNorm(6),
        nn.Tanh(),
        nn.Flatten(),
        nn.BatchNorm1d(6 * input_shape[0]),
        nn.Linear(6 * input_shape[0], n_classes),
    )


NETWORKS = [
    (MLP, (5,)),
    (SmallConvNet, (2, 9, 7)),
    (ResidualNet, (2, 8, 8)),
    (tokens, (3, 4)),
]


@pytest.mark.parametrize("factor_init", ["sign", "normal"])
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("module, shape", NETWORKS)
def test_members_equal_dense_networks(module, shape, n_members, factor_init):
    network = batch_ensemble(
        module(shape, 3), n_members=n_members, factor_init=factor_init
    )
    assert network.training
    network = disturbed(network).eval()
    x = rows(7, shape)
    logits = network.members(x)
    assert logits.shape == (7, n_members, 3)
    for m in range(n_members):
        expected = alone(network.body, partial(dense, m=m))(x)
        assert_allclose(logits[:, m].detach(), expected.detach(), rtol=1e-9)
    p = torch.softmax(logits, -1).mean(1).detach()
    assert_allclose(network(x).exp().detach(), p, rtol=1e-12)
    assert torch.equal(network.train()(x), network.members(x))


def test_members_equal_dense_networks_while_training():
    """Batch statistics are those of a member, as if it were trained alone."""
    network = disturbed(batch_ensemble(ResidualNet((2, 8, 8), 3), n_members=3))
    x = rows(6, (2, 8, 8))
    members = [alone(network.body, partial(dense, m=m)).train() for m in range(3)]
    logits = network(x)
    for m, member in enumerate(members):
        assert_allclose(
            logits[:, m].detach(), member(x).detach(), rtol=1e-9, atol=1e-12
        )
        state = alone(network.body, partial(dense, m=m)).state_dict()
        for name, value in member.state_dict().items():
            assert_allclose(state[name], value, rtol=1e-12)


@pytest.mark.parametrize("kind", [BatchEnsembleLinear, BatchEnsembleConv2d])
def test_gradients_equal_those_of_the_dense_weights(kind):
    """The gradients that autograd finds through W * outer(s, r), made explicitly."""
    convolution = kind is BatchEnsembleConv2d
    layer = disturbed(kind(5, 3, *([2] if convolution else []), n_members=4))
    x = rows(4 * 6, (5, 4, 4) if convolution else (5,)).requires_grad_()
    weights = [x, layer.weight, layer.r, layer.s, layer.bias]
    loss = (layer(x) ** 3).sum()
    result = torch.autograd.grad(loss, weights)
    loss = 0
    for m in range(4):
        w = torch.outer(layer.s[m], layer.r[m])
        submodule = x[6 * m : 6 * (m + 1)]
        if convolution:
            w = w[:, :, None, None] * layer.weight
            out = nn.functional.conv2d(submodule, w, layer.bias[m])
        else:
            out = submodule @ (w * layer.weight).T + layer.bias[m]
        loss = loss + (out**3).sum()
    for a, b in zip(result, torch.autograd.grad(loss, weights), strict=True):
        assert_allclose(a, b, rtol=1e-9)


def n_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_number_of_parameters():
    """n k + M (n + 2 k) for a linear layer; channels in place of n and k else."""
    assert n_parameters(BatchEnsembleLinear(20, 30, 4)) == 600 + 4 * (20 + 60)
    assert n_parameters(BatchEnsembleLinear(20, 30, 4, bias=False)) == 600 + 4 * 50
    assert n_parameters(BatchEnsembleConv2d(3, 8, 5, 4)) == 600 + 4 * (3 + 16)
    network = batch_ensemble(nn.Sequential(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8)))
    assert n_parameters(network) == 600 + 4 * (3 + 16) + 4 * 16


def test_weights_of_the_network_are_preserved():
    torch.manual_seed(0)
    module = MLP((5,), 3)
    first, last = module.linear_1, module.head
    last.weight.requires_grad_(False)
    network = batch_ensemble(module)
    assert network.body.linear_1.weight is first.weight
    assert torch.equal(network.body.linear_1.bias, first.bias.expand(4, -1))
    assert not network.body.head.weight.requires_grad
    assert network.body.head.r.requires_grad


def test_start_of_the_factors():
    torch.manual_seed(0)
    layer = BatchEnsembleLinear(2000, 3000, 4)
    for factors in (layer.r, layer.s):
        assert set(factors.detach().unique().tolist()) == {-1.0, 1.0}
        assert abs(factors.mean()) < 0.03
        assert not torch.equal(factors[0], factors[1])
    layer = BatchEnsembleLinear(2000, 3000, 4, factor_init="normal")
    for factors in (layer.r.detach(), layer.s.detach()):
        assert float(factors.mean()) == pytest.approx(1.0, abs=0.03)
        assert float(factors.std()) == pytest.approx(0.5, abs=0.03)


def test_statistics_of_batch_norm_are_preserved():
    module = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, momentum=None))
    module(rows(10, (3,), dtype=torch.float32))
    norm = module[1]
    result = batch_ensemble(module, n_members=3).body[1].norm
    assert torch.equal(result.running_mean, norm.running_mean.repeat(3))
    assert result.num_batches_tracked == norm.num_batches_tracked == 1
    assert result.momentum is None


def test_repeated_layer_stays_shared():
    shared = nn.Linear(4, 4)
    network = batch_ensemble(nn.Sequential(shared, nn.ReLU(), shared))
    assert network.body[0] is network.body[2]
    assert isinstance(network.body[0], BatchEnsembleLinear)


def test_missing_submodule():
    """As networks have it whose blocks need no projection."""
    module = nn.Sequential(nn.Linear(4, 3))
    module.register_module("projection", None)
    network = batch_ensemble(module)
    assert isinstance(network.body[0], BatchEnsembleLinear)
    assert network.body._modules["projection"] is None


def _with_hook(layer):
    """Weight normalization as torch had it before parametrizations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer)


def test_which_layers_are_replaced():
    """Not those of torch that are read by others, or have no weight of their own."""
    module = nn.ModuleDict(
        {
            "own": Linear((4,), 3),
            "attention": nn.MultiheadAttention(4, 2),
            "normed": parametrizations.weight_norm(nn.Linear(4, 4)),
            "hooked": _with_hook(nn.Linear(4, 4)),
            "transposed": nn.ConvTranspose2d(4, 4, 1),
        }
    )
    network = batch_ensemble(module)
    kinds = {name: type(submodule) for name, submodule in network.body.named_modules()}
    assert kinds["own"] is BatchEnsembleLinear
    assert kinds["transposed"] is nn.ConvTranspose2d
    results = [name for name, kind in kinds.items() if kind is BatchEnsembleLinear]
    assert results == ["own"]


class Zero(nn.Module):
    """Forgets its input."""

    def forward(self, x):
        return 0 * x


class Zeros(nn.Linear):
    """Starts with weights of zero."""

    def __init__(self):
        super().__init__(6, 2, bias=False)
        nn.init.zeros_(self.weight)


class Noise(nn.Module):
    """Draws in eval mode, too."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.3, training=True)


class Doubling(nn.Linear):
    """A layer whose forward is its own."""

    def forward(self, x):
        return 2 * super().forward(x)


def test_network_that_is_a_single_layer():
    network = batch_ensemble(nn.Linear(4, 3))
    assert type(network.body) is BatchEnsembleLinear
    network = batch_ensemble(nn.Sequential(Doubling(4, 4), nn.Linear(4, 3)))
    assert type(network.body[0]) is Doubling


def test_nothing_to_replace():
    with pytest.raises(ValueError, match=r"Doubling has no torch\.nn\.Linear and no"):
        batch_ensemble(Doubling(4, 3))
    with pytest.raises(ValueError, match="would have 7 equal members"):
        batch_ensemble(nn.ReLU(), n_members=7)


def test_repr():
    layer = BatchEnsembleLinear(5, 3, 4)
    assert repr(layer) == (
        "BatchEnsembleLinear(in_features=5, out_features=3, n_members=4, bias=True)"
    )
    layer = BatchEnsembleConv2d(5, 3, 2, 4, bias=False)
    assert repr(layer) == (
        "BatchEnsembleConv2d(5, 3, kernel_size=(2, 2), stride=(1, 1), bias=False, "
        "n_members=4)"
    )


@pytest.mark.parametrize("shape", [(5,), (5, 6, 6)])
def test_layers_equal_those_of_torch_uncertainty(shape):
    layers = pytest.importorskip("torch_uncertainty.layers")
    if len(shape) == 1:
        ours = BatchEnsembleLinear(5, 3, 4)
        theirs = layers.BatchLinear(5, 3, 4).double()
        weight = theirs.linear.weight
    else:
        options = {"stride": 2, "padding": 1}
        ours = BatchEnsembleConv2d(5, 3, 3, 4, **options)
        theirs = layers.BatchConv2d(5, 3, 3, 4, **options).double()
        weight = theirs.conv.weight
    ours = disturbed(ours)
    with torch.no_grad():
        weight.copy_(ours.weight)
        theirs.r_group.copy_(ours.r)
        theirs.s_group.copy_(ours.s)
        theirs.bias.copy_(ours.bias)
        x = rows(4 * 6, shape)
        assert_allclose(ours(x), theirs(x), rtol=1e-10)


# --- rows are the first axis ---------------------------------------------------


class TokensFirst(nn.Module):
    """Runs its layers with tokens as the first axis."""

    def __init__(self, n_tokens):
        super().__init__()
        self.n_tokens = n_tokens
        self.inner = nn.Linear(3, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = x.view(len(x), self.n_tokens, 3).transpose(0, 1)
        return self.head(torch.relu(self.inner(x))).mean(0)


class Encoder(nn.Module):
    """Attention between the tokens of a row, which may be the first axis."""

    def __init__(self, batch_first):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first)
        self.axes = (0, 1) if batch_first else (1, 0)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.layer(x.permute(*self.axes, 2)).permute(*self.axes, 2)
        return self.head(x.mean(1))


@pytest.mark.parametrize(
    "module, shape, match",
    [
        (TokensFirst(4), (12,), r"factors of member 0 .* members \[0, 1, 2, 3\]\. In"),
        (
            TokensFirst(3),
            (9,),
            "samples must be the first axis, as with batch_first=True",
        ),
        (Encoder(False), (8, 4), r"the members \[0, 1, 2, 3\]\. In all of its layers"),
        (nn.Sequential(nn.Linear(4, 3), Zero()), (4,), r"the members \[\]\. In all"),
    ],
)
def test_members_that_layers_do_not_keep_apart(module, shape, match):
    with pytest.raises(ValueError, match=match):
        batch_ensemble(module, shape)


def test_check_leaves_no_trace():
    """Also with an output of zeros, and layers that draw in eval mode."""
    zeros, noise = nn.Sequential(Zeros()), nn.Sequential(nn.Linear(6, 4), Noise())
    for module, shape in ((Encoder(True), (6, 4)), (zeros, (6,)), (noise, (6,))):
        module.register_buffer("count", torch.tensor(3))
        before = {k: v.clone() for k, v in module.state_dict().items()}
        torch.manual_seed(0)
        plain = batch_ensemble(copy.deepcopy(module)).state_dict()
        drawn = torch.rand(1)
        torch.manual_seed(0)
        network = batch_ensemble(module, shape)
        assert torch.equal(torch.rand(1), drawn)
        assert all(submodule.training for submodule in network.modules())
        assert all(p.grad is None and p.requires_grad for p in network.parameters())
        state = network.state_dict()
        assert state.keys() == plain.keys()
        assert all(torch.equal(state[name], plain[name]) for name in state)
        assert torch.equal(state["body.count"], before["count"])


def test_attention_in_eval_mode_is_that_of_training():
    """The fused form of torch would read the weights without the factors."""
    network = batch_ensemble(Encoder(True), (6, 4), factor_init="normal").eval()
    x = rows(5, (6, 4)).float()
    slow = network.members(x)
    assert slow.std(1).max() > 0.1
    with torch.no_grad():
        torch.testing.assert_close(network.members(x), slow)
    assert torch.backends.mha.get_fastpath_enabled()
