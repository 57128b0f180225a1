"""Layers, gradients and replacements of torch networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

from skood.nn import _torch_network as module
from skood.nn import pretrained
from skood.nn._make_network import make_network
from tests.nn._conv_net import conv_classifier, conv_net, images, map_classifier
from tests.nn._networks import Net
from tests.nn._outputs import Counter, data, numbers, read, run
from tests.nn.test_module_is_unchanged import aspects, assert_same
from tests.nn.test_network import gradients


def opened(net, **options):
    return make_network(pretrained(net, classes=[0, 1, 2], **options))


def up_to(net, name, X):
    """What the layers up to one give, by hand, in eval mode."""
    names = list(dict(net.named_children()))
    net = conv_net(inplace=False).to(next(net.parameters()).dtype).eval()
    return run(*list(net)[: names.index(name) + 1], X=X)


# --- layers ---------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "max", "flatten", None, "maps"])
def test_several_layers_from_a_single_pass(pooling):
    """Also where an operation in place changes what a layer gave."""
    net, clf = conv_classifier()
    X = images(12)
    passes = []
    net.register_forward_pre_hook(lambda m, args: passes.append(len(args[0])))
    layers = ["conv1", "relu2", "flat", "input:head", "penultimate", 1]
    (block,) = make_network(clf).layers(X, layers, pooling)
    assert sum(passes) == len(X)
    for layer in layers:
        place = {"input:head": "drop", "penultimate": "drop", 1: "conv2"}
        expected = torch.as_tensor(up_to(net, place.get(layer, layer), X))
        if expected.ndim == 4:
            if pooling in ("mean", "max"):
                reduce = expected.mean if pooling == "mean" else expected.amax
                expected = reduce((2, 3))
            elif pooling is not None:
                expected = expected.flatten(1 if pooling == "flatten" else 2)
        elif pooling == "maps":
            expected = expected[:, :, None]
        outputs = block.outputs[layer]
        assert isinstance(outputs, torch.Tensor) and not outputs.requires_grad
        assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    expected = up_to(net, "head", X)
    assert_allclose(block.logits, expected, rtol=1e-5, atol=1e-6)


def test_tokens_become_maps_with_channels_first():
    def tokens(net, x):
        x = net.norm(net.embed(x))
        return net.head(net.conv(x.mT).mean(2))

    net, X = Net(tokens, embed=nn.Linear(3, 6)), numbers(4, 5, 3)
    net.norm, net.conv = nn.LayerNorm(6), nn.Conv1d(6, 4, 1)
    net.head = nn.Linear(4, 3)
    layers = ["norm", "conv", "head"]
    (block,) = opened(net).layers(X, layers, "maps")
    tokens = net.norm(net.embed(torch.as_tensor(X))).detach()
    assert_allclose(block.outputs["norm"], tokens.mT, rtol=1e-6)
    expected = net.conv(tokens.mT).detach()
    assert_allclose(block.outputs["conv"], expected, rtol=1e-5, atol=1e-6)
    assert block.outputs["head"].shape == (4, 3, 1)


def test_names_of_the_layers():
    _, clf = conv_classifier()
    network = make_network(clf)
    assert network.layer_names(images(3)) == ["conv1", "conv2"]
    assert opened(Counter()).layer_names(data()[0]) == ["body.0"]
    assert opened(nn.Sequential(nn.Linear(5, 3))).layer_names(data()[0]) == [
        "penultimate"
    ]

    backwards = Net(  # defines its layers in another order than it runs them
        lambda net, x: net.head(net.second(net.first(x))),
        head=nn.Linear(4, 3),
        spare=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
        first=nn.Linear(5, 4),
    )
    assert opened(backwards).layer_names(data()[0]) == ["first", "second"]


def test_logits_that_no_linear_layer_gives():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = opened(net)
    assert network.layer_names(images(2)) == ["0"]
    with pytest.raises(ValueError, match=r"'penultimate' is the .* has 0, 1, 2"):
        next(network.layers(images(2), ["penultimate"]))

    bare = Net(lambda net, x: x[:, :3] * 2)
    for net, message in ((bare, "no named modules"), (nn.Sequential(bare), "has 0")):
        with pytest.raises(ValueError, match=f"No linear or convolutional.*{message}"):
            opened(net).layer_names(numbers(4, 5))


def test_layer_that_did_not_run():
    net = Counter()
    net.spare = nn.Linear(2, 2)
    network = opened(net)
    X, _ = data()
    with pytest.raises(ValueError, match="The layer 'spare' did not run"):
        next(network.layers(X, ["spare"]))
    with pytest.raises(ValueError, match="The layer 'spare' did not run"):
        next(network.replaced(X, ["spare"], lambda z: z))
    with pytest.raises(ValueError, match="no layer named 'nope'"):
        next(network.layers(X, ["nope"]))


def test_last_run_of_a_layer_is_read():
    layers = {"layer": nn.Linear(5, 5), "head": nn.Linear(5, 3)}
    net = Net(lambda net, x: net.head(net.layer(net.layer(x))), **layers)
    X = numbers(6, 5)
    (block,) = opened(net).layers(X, ["layer"])
    expected = run(net.layer, net.layer, X=X)
    assert_allclose(block.outputs["layer"], expected, rtol=1e-5)
    (logits,) = opened(net).replaced(X, ["layer"], lambda z: -z)
    expected = run(net.layer, torch.neg, net.layer, torch.neg, net.head, X=X)
    assert_allclose(logits[0], expected, rtol=1e-5, atol=1e-6)


def test_half_precision_is_read_as_float32():
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).to(torch.bfloat16)
    (block,) = opened(net).layers(numbers(6, 5), ["0"])
    assert block.outputs["0"].dtype == torch.float32


def test_numbers_that_are_not_finite():
    def hides(net, x):
        return net.head(torch.nan_to_num(net.layer(x * 1e38 * 1e38)))

    net = Net(hides, layer=nn.Linear(5, 4), head=nn.Linear(4, 3))
    with pytest.raises(ValueError, match="layer='layer' gave NaN or infinity"):
        next(opened(net).layers(numbers(6, 5), ["layer"]))


def test_first_axis_must_be_the_samples():
    net = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 3)), nn.Linear(3, 3))
    with pytest.raises(ValueError, match="The network gave 10 rows for a batch of 6"):
        next(opened(net).layers(numbers(6, 5), ["2"]))

    class Sneaky(Counter):
        def forward(self, x):
            self.body(x[:1])
            return self.head(torch.zeros(len(x), 8))

    with pytest.raises(ValueError, match="layer='body' gave 1 rows for a batch of 6"):
        next(opened(Sneaky()).layers(numbers(6, 5), ["body"]))


# --- blocks -----------------------------------------------------------------------


def test_blocks_are_bounded(monkeypatch):
    """A row has 4 * 8 * 8 float32 numbers at conv1, and 3 logits."""
    per_row = 4 * (4 * 8 * 8 + 3)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 20 * per_row)
    net, clf = conv_classifier()
    X = images(70)
    sizes = []
    net.register_forward_pre_hook(lambda m, args: sizes.append(len(args[0])))
    before = aspects(net)
    blocks = []
    for block in make_network(clf).layers(X, ["conv1"], None):
        assert_same(aspects(net), before)
        blocks.append(block)
    assert sizes == [8, 20, 20, 20, 2]  # 8 rows tell how many fit
    assert [len(block.logits) for block in blocks] == [28, 20, 20, 2]
    joined = torch.cat([block.outputs["conv1"] for block in blocks])
    assert_allclose(joined, up_to(net, "conv1", X), rtol=1e-4, atol=1e-6)


def test_a_row_may_be_larger_than_a_block(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    _, clf = conv_classifier()
    blocks = list(make_network(clf).layers(images(11), ["conv1"], None))
    assert [len(block.logits) for block in blocks] == [8, 1, 1, 1]


def test_batches_of_logits(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 2 * 10 * 3 * 4)
    X, _ = data()
    net = Counter()
    network = opened(net, batch_size=10)
    assert len(list(network.layers(X, ()))) == 4
    assert net.sizes == [10] * 8
    parts = list(network.input_gradient(X, torch.ones_like, lambda part, g: part))
    assert [len(part) for part in parts] == [20] * 4
    parts = list(network.replaced(X, ["body", "body.0"], lambda z: z))
    assert [[len(z) for z in part] for part in parts] == [[10, 10]] * 8
    expected = read(pretrained(Counter()), X, {"logits"}).logits
    joined = np.concatenate([part[1] for part in parts])
    assert_allclose(joined, expected, rtol=1e-5)


# --- gradients --------------------------------------------------------------------


def squares(z):
    """Gradient of half the sum of squares."""
    return z


def by_autograd(function, X):
    """Gradient of half the sum of squares of a function."""
    x = torch.as_tensor(X).requires_grad_()
    (function(x) ** 2 / 2).sum().backward()
    return x.grad


def test_gradient_equals_sample_by_sample():
    _, clf = conv_classifier(dtype=torch.float64)
    X = images(7, dtype=np.float64)
    gradient = gradients(make_network(clf), X, squares)
    net = conv_net(dtype=torch.float64).eval()
    for i in range(len(X)):
        expected = by_autograd(net, X[i : i + 1])[0]
        assert_allclose(gradient[i], expected, rtol=1e-10, atol=1e-14)


def test_binary_margin_is_differentiated_as_two_logits():
    """With logits (-m/2, m/2) the squares sum to m² / 2; half of it has slope m/2."""
    for tail in ([nn.Linear(4, 1)], [nn.Linear(4, 1), nn.Flatten(0)]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), *tail).double()
        X = numbers(6, 5).astype(np.float64)
        network = make_network(pretrained(net, classes=[0, 1]))
        gradient = gradients(network, X, squares)
        assert_allclose(gradient, by_autograd(net, X) / 2, rtol=1e-12)


def test_margin_that_no_linear_layer_gives():
    X = numbers(6, 5)
    product = Net(lambda net, x: x[:, 0] * x[:, 1])
    network = make_network(pretrained(product, classes=[0, 1]))
    gradient = gradients(network, X, squares)  # of m² / 4
    expected = np.zeros_like(X)
    expected[:, 0] = X[:, 0] * X[:, 1] ** 2 / 2
    expected[:, 1] = X[:, 0] ** 2 * X[:, 1] / 2
    assert_allclose(gradient, expected, rtol=1e-5)


def test_gradient_of_probabilities_is_that_of_their_logarithms():
    net = nn.Sequential(nn.Linear(5, 3), nn.Identity(), nn.Softmax(1)).double()
    X = numbers(6, 5).astype(np.float64)
    seen_through = gradients(opened(net), X, squares)
    assert_allclose(seen_through, by_autograd(net[0], X), rtol=1e-12)

    # no linear layer gives the logits
    net = Net(lambda net, x: torch.softmax(x[:, :3] * x[:, 1:4], 1))
    gradient = gradients(opened(net, output="probabilities"), X, squares)
    expected = by_autograd(lambda x: torch.log_softmax(x[:, :3] * x[:, 1:4], 1), X)
    assert_allclose(gradient, expected, rtol=1e-5)  # computed in float32


class Rude(nn.Module):
    """Writes to its input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        x.mul_(2).add_(1)
        return self.head(x.tanh())


def test_module_that_writes_to_its_input():
    net, X = Rude(), numbers(6, 5)
    before = X.copy()
    gradient = gradients(opened(net), X, squares)
    expected = by_autograd(lambda x: net(x.clone()), X)
    assert_allclose(gradient, expected, rtol=1e-5)
    (moved,) = opened(net).input_gradient(X, squares, lambda part, g: part)
    assert_allclose(moved, run(net, X=X.copy()), rtol=1e-6)
    (replaced,) = opened(net).replaced(X, ["head", "head"], lambda z: z)
    for logits in replaced:
        assert_allclose(logits, run(net, X=X.copy()), rtol=1e-6)
    assert_array_equal(X, before)


def test_samples_that_are_moved_are_those_of_the_network():
    """Unsigned bytes are read as floating-point numbers; tensors are not written to."""
    net = Rude()
    bytes_ = np.random.default_rng(0).integers(0, 9, (6, 5)).astype(np.uint8)

    def move(part, gradient):
        assert part.dtype == gradient.dtype == torch.float32
        assert not part.requires_grad
        return part + gradient

    for X in (bytes_, torch.as_tensor(bytes_).float()):
        before = np.asarray(X).copy()
        (moved,) = opened(net).input_gradient(X, squares, move)
        steps = gradients(opened(net), X, squares)
        assert_allclose(moved, run(net, X=before + steps), rtol=1e-5)
        assert_array_equal(X, before)


def test_no_gradient():
    embedding = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = np.array([[1, 2], [3, 4]])
    with pytest.raises(TypeError, match="reads numbers of int64, such as tokens"):
        gradients(opened(embedding), tokens, squares)

    def detached(net, x):
        z = net.body(x).detach()
        with torch.set_grad_enabled(net.learns):
            return net.head(z)

    net = Net(detached, body=nn.Linear(5, 4), head=nn.Linear(4, 3))
    for net.learns in (True, False):
        with pytest.raises(ValueError, match="Net have no gradient with respect"):
            gradients(opened(net), numbers(4, 5), squares)
    root = Net(lambda net, x: net.head(torch.sqrt(x - x.detach())))
    root.head = nn.Linear(5, 3)
    with pytest.raises(ValueError, match=r"gradient of Net .* NaN or infinity"):
        gradients(opened(root), numbers(4, 5), squares)


def recurrent():
    torch.manual_seed(0)
    layers = {"rnn": nn.LSTM(3, 4, batch_first=True), "head": nn.Linear(4, 3)}
    return Net(lambda net, x: net.head(net.rnn(x)[0][:, -1]), **layers)


def test_recurrent_network():
    net, X = recurrent().double(), numbers(6, 5, 3).astype(np.float64)
    gradient = gradients(opened(net), X, squares)
    assert_allclose(gradient, by_autograd(net, X), rtol=1e-10)


# --- replacements -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "n_before"),
    [("conv1", 1), ("relu2", 7), ("input:conv2", 4), ("pool1", 4), (1, 5)],
)
def test_replaced_layer(layer, n_before):
    _, clf = conv_classifier()
    X = images(9)

    def function(z):
        return torch.sin(z) * 3

    (logits,) = make_network(clf).replaced(X, [layer], function)
    parts = list(conv_net(inplace=False).eval())
    expected = run(*parts[:n_before], function, *parts[n_before:], X=X)
    assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-5)


def test_each_layer_is_replaced_alone():
    _, clf = conv_classifier()
    network = make_network(clf)
    X = images(9)
    layers = ["conv1", "conv2"]
    (both,) = network.replaced(X, layers, torch.zeros_like)
    for layer, logits in zip(layers, both, strict=True):
        ((alone,),) = network.replaced(X, [layer], torch.zeros_like)
        assert_array_equal(logits, alone)


def test_inputs_passed_by_name_are_replaced():
    net = Net(lambda net, x: net.head(input2=x[:, :2], input1=x))
    net.head, X = nn.Bilinear(5, 2, 3), numbers(6, 5)
    (logits,) = opened(net).replaced(X, ["input:head"], torch.zeros_like)
    expected = run(lambda x: net.head(x, torch.zeros_like(x[:, :2])), X=X)
    assert_allclose(logits[0], expected, rtol=1e-5)


def test_what_cannot_be_replaced():
    _, clf = conv_classifier()
    network = make_network(clf)
    with pytest.raises(ValueError, match=r"name the layer .* has: conv1, bn1"):
        next(network.replaced(images(2), ["penultimate"], torch.zeros_like))
    with pytest.raises(TypeError, match="'rnn' returned tuple, and only a tensor can"):
        next(opened(recurrent()).replaced(numbers(2, 5, 3), ["rnn"], torch.zeros_like))


# --- any classifier -----------------------------------------------------------------


def test_classifiers_of_all_kinds():
    X, y = data()
    trained = make_pipeline(StandardScaler(), map_classifier(max_epochs=2)).fit(X, y)
    skorch = NeuralNetClassifier(
        Counter, criterion=nn.CrossEntropyLoss, max_epochs=1, verbose=0
    ).fit(X, y)
    for clf, layer in ((trained, "conv"), (skorch, "body.0")):
        network = make_network(clf)
        samples = network.prepare(X)
        assert network.layer_names(samples) == [layer]
        expected = read(clf, X, {"logits"}).logits
        (block,) = network.layers(samples, [layer])
        assert_allclose(block.logits, expected, rtol=1e-5, atol=1e-6)
        (moved,) = network.input_gradient(samples, squares, lambda part, g: part)
        assert_allclose(moved, expected, rtol=1e-5, atol=1e-6)


def test_gradient_of_a_network_made_in_inference_mode():
    """Torch saves none of its tensors for a backward pass."""
    with torch.inference_mode():
        net = conv_net()
    X = images(5)
    network = opened(net)
    assert len(next(network.layers(X, ["conv1"])).logits) == 5
    message = "No gradient passes .*'conv1.weight' and others were made under torch.inf"
    with pytest.raises(ValueError, match=message):
        list(network.input_gradient(X, np.ones_like, lambda samples, g: samples))
    net = nn.Sequential(nn.Linear(4, 3))
    with torch.inference_mode():
        net[0].weight = nn.Parameter(torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"Sequential: '0.weight' was made under"):
        list(opened(net).input_gradient(numbers(5, 4), torch.ones_like, lambda x, g: x))


def test_other_errors_of_a_gradient_stay():
    class Fails(Counter):
        def forward(self, x):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        list(opened(Fails()).input_gradient(data()[0], np.ones_like, lambda x, g: x))
