"""Finding the head in networks of many shapes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn
from torch.nn import functional as F

from skood.nn import pretrained
from tests._loops import looped
from tests.nn._networks import Net
from tests.nn._outputs import ALL, assert_head, numbers, read, run


class Headed(nn.Module):
    """Features z = relu(a x), logits = head z, and what `close` makes of them."""

    def __init__(self, close, width=3):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(4, 6)
        self.head = nn.Linear(6, width)
        self.close = close

    def forward(self, x):
        z = torch.relu(self.a(x))
        return self.close(self.head(z))


def true_logits(net, X):
    with torch.no_grad():
        x = torch.as_tensor(X).to(net.head.weight.dtype)
        return net.head(torch.relu(net.a(x))).double().numpy()


OUTPUTS = {
    "plain": lambda v: v,
    "tuple": lambda v: (v, "extra"),
    "nested list": lambda v: [(v, v.sum())],
    "attribute": lambda v: SimpleNamespace(loss=None, logits=v),
    "dict": lambda v: {"loss": None, "logits": v},
    "copy": lambda v: v.clone(),
    "view": lambda v: v.view(-1, 3),
    "float": lambda v: v.float(),
    "softmax": lambda v: v.softmax(1),
    "log_softmax": lambda v: v.log_softmax(1),
    "by hand": lambda v: v.exp() / v.exp().sum(1, keepdim=True),
}


@looped("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("how", OUTPUTS)
def test_head_is_behind(how, dtype):
    net = Headed(OUTPUTS[how]).to(getattr(torch, dtype))
    X = numbers(20, 4)
    outputs = read(pretrained(net), X, ALL)
    kind = np.float64 if dtype == "float64" else np.float32
    assert outputs.features.dtype == outputs.logits.dtype == kind
    assert_allclose(outputs.logits, true_logits(net, X), rtol=1e-6)
    assert_array_equal(outputs.head.coef, net.head.weight.detach().double().numpy())
    tol = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 3e-2}[dtype]
    assert_head(outputs, rtol=tol, atol=tol)


@pytest.mark.parametrize("close", [lambda v: v, lambda v: v[:, 0], torch.sigmoid])
def test_single_output(close):
    net, X = Headed(close, width=1), numbers(20, 4)
    outputs = read(pretrained(net), X, ALL)
    margin = true_logits(net, X)
    assert_allclose(outputs.logits, np.hstack([-margin, margin]) / 2, rtol=1e-5)
    proba = pretrained(net).predict_proba(X)
    assert_allclose(proba[:, 1], 1 / (1 + np.exp(-margin[:, 0])), rtol=1e-5)
    assert outputs.head.coef.shape == (2, 6)


def test_saturated_softmax_still_tells_two_heads_apart():
    # Both heads give [1, 0, 0] as rounded probabilities for every row; the one that
    # does not give the output runs last.
    def two_heads(net, x):
        out = net.main(x).softmax(1)
        net.aux(x)
        return out

    net = Net(two_heads, main=nn.Linear(1, 3), aux=nn.Linear(1, 3))
    X = np.ones((1, 1), dtype=np.float32)
    with torch.no_grad():
        net.main.weight.copy_(torch.tensor([[40.0], [0.0], [-10.0]]))
        net.aux.weight.copy_(torch.tensor([[50.0], [-5.0], [-30.0]]))
    outputs = read(pretrained(net), X, ALL)
    assert_array_equal(outputs.head.coef, net.main.weight.detach())
    assert_allclose(outputs.logits[0], run(net.main, X=X)[0])


def no_head(net, X, classes=(0, 1, 2), **options):
    with pytest.raises(ValueError, match=r"are not the output of a torch\.nn\.Li"):
        read(pretrained(net, classes), X, ALL, **options)
    return read(pretrained(net, classes), X, {"features", "logits"}, **options)


def test_scaled_head_is_no_head():
    net, X = Headed(lambda v: v / 2), numbers(20, 4)
    outputs = no_head(net, X)
    assert_allclose(outputs.logits, true_logits(net, X) / 2, rtol=1e-6)
    # features still are the input of the last linear layer
    assert_allclose(outputs.features, run(net.a, nn.ReLU(), X=X), rtol=1e-6, atol=1e-7)


def test_head_changed_in_place_is_no_head():
    net, X = Headed(lambda v: v.mul_(3).add_(1)), numbers(20, 4)
    outputs = no_head(net, X)
    assert_allclose(outputs.logits, true_logits(net, X) * 3 + 1, rtol=1e-5)
    with pytest.raises(ValueError, match="are not the output"):
        read(pretrained(net), X, {"head", "logits"})


def test_linear_layer_that_does_more_is_no_head():
    class Cosine(nn.Linear):
        def forward(self, x):
            return F.linear(F.normalize(x), F.normalize(self.weight))

    net, X = Headed(lambda v: v), numbers(20, 4)
    net.head = Cosine(6, 3)
    no_head(net, X)


def test_integer_output_is_not_taken_for_a_copy():
    net, X = Headed(lambda v: v.round().int()), numbers(20, 4)
    outputs = no_head(net, X)
    assert_array_equal(outputs.logits, np.round(true_logits(net, X)))


def test_user_hook_that_changes_the_head_is_seen():
    net, X = Headed(lambda v: v), numbers(20, 4)
    unhooked = true_logits(net, X)
    net.head.register_forward_hook(lambda module, args, output: output * 2)
    outputs = no_head(net, X)
    assert_allclose(outputs.logits, 2 * unhooked, rtol=1e-6)


def test_no_head_at_another_layer():
    net, X = Headed(lambda v: v), numbers(20, 4)
    for layer in ("a", "input:a", "head"):
        no_head(net, X, layer=layer)
    assert read(pretrained(net), X, ALL, layer="input:head").head is not None


@pytest.mark.parametrize("close", [lambda v: v, lambda v: v.softmax(1)])
def test_auxiliary_head(close):
    # defined last and run last, of the same width
    def two_heads(net, x):
        z = torch.relu(net.a(x))
        out = close(net.head(z))
        return out, net.aux(z)

    layers = {"a": nn.Linear(4, 6), "head": nn.Linear(6, 3), "aux": nn.Linear(6, 3)}
    net, X = Net(two_heads, **layers), numbers(20, 4)
    outputs = read(pretrained(net), X, ALL)
    assert_allclose(outputs.logits, true_logits(net, X), rtol=1e-6)
    assert_array_equal(outputs.head.coef, net.head.weight.detach())
    assert_allclose(outputs.features, run(net.a, nn.ReLU(), X=X), rtol=1e-6, atol=1e-7)


def test_head_defined_before_the_body():
    def run_last_to_first(net, x):
        return net.head(torch.tanh(net.second(torch.tanh(net.first(x)))))

    net, X = Net(run_last_to_first, head=nn.Linear(5, 3)), numbers(20, 4)
    net.second, net.first = nn.Linear(4, 5), nn.Linear(4, 4)
    clf = pretrained(net, classes=["x", "y", "z"])
    outputs = read(clf, X, ALL)
    assert_array_equal(outputs.head.coef, net.head.weight.detach())
    expected = run(net.first, nn.Tanh(), net.second, nn.Tanh(), X=X)
    assert_allclose(outputs.features, expected, rtol=1e-5)


def test_bias_free_head():
    net, X = Headed(lambda v: v), numbers(20, 4)
    net.head = nn.Linear(6, 3, bias=False)
    head = read(pretrained(net), X, ALL).head
    assert_array_equal(head.intercept, np.zeros(3))


def test_network_without_a_linear_layer():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 1), nn.AdaptiveAvgPool2d(1)
    )
    net.append(nn.Flatten())
    X = numbers(6, 2, 8, 8)
    clf = pretrained(net, classes=[0, 1, 2])
    assert_allclose(read(clf, X, {"logits"}).logits, run(*net, X=X), rtol=1e-5)
    with pytest.raises(ValueError, match=r"none ran .* it has 0, 1, 2, 3, 4\."):
        read(clf, X, {"features"})
    assert_allclose(
        read(clf, X, {"features"}, layer="1").features,
        run(net[0], net[1], X=X).mean((2, 3)),
        rtol=1e-4,
    )
    with pytest.raises(ValueError, match="are not the output"):
        read(clf, X, ALL, layer="1")


def test_output_that_is_no_tensor():
    net, X = Headed(lambda v: "logits"), numbers(20, 4)
    for close, name in [(lambda v: "logits", "str"), (lambda v: (), "tuple")]:
        net.close = close
        with pytest.raises(TypeError, match=f"module returned {name}; expected a ten"):
            read(pretrained(net), X, {"logits"})
