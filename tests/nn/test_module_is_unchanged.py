"""A torch module is left as it was found, whatever is done with it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from numpy.testing import assert_array_equal
from torch import nn

from skood.detectors import KNN, Energy
from skood.nn import _torch_network, pretrained
from skood.nn._borrowed_module import borrowed
from skood.nn._make_network import make_network
from tests.nn._outputs import ALL, Counter, data, read
from tests.nn.test_network import gradients


def aspects(net):
    """All that must be left as found, by name."""
    modules = dict(net.named_modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "modes": {name: m.training for name, m in modules.items()},
        "buffers": {name: (b.data_ptr(), b.clone()) for name, b in net.named_buffers()},
        "parameters": {
            name: (id(p), p.data_ptr(), p.detach().clone(), p.requires_grad, p.device)
            for name, p in net.named_parameters()
        },
        "gradients": {
            name: None if p.grad is None else (id(p.grad), p.grad.clone())
            for name, p in net.named_parameters()
        },
        "hooks": {
            (name, kind): list(getattr(m, kind).values())
            for name, m in modules.items()
            for kind in hooks
        },
        "keyword hooks": {
            (name, kind): dict(getattr(m, kind))
            for name, m in modules.items()
            for kind in ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
        },
        "grad mode": torch.is_grad_enabled(),
    }


def assert_same(actual, expected):
    if isinstance(expected, torch.Tensor):
        assert torch.equal(actual, expected)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_same(actual[name], expected[name])
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)
    else:
        assert actual == expected


def used_net(X, **params):
    """A network in the middle of its training: mixed modes, gradients, hooks."""
    net = Counter(**params)
    net.train()
    net.body[3].eval()  # a user may freeze a part
    fails_at, net.fails_at = net.fails_at, None
    net(torch.as_tensor(X)).logsumexp(1).mean().backward()
    net.body[0].bias.requires_grad_(False)
    net.fired = []
    net.body[0].register_forward_hook(lambda m, i, o: net.fired.append("forward"))
    net.head.register_forward_pre_hook(lambda m, i: net.fired.append("before"))
    net.head.register_full_backward_hook(lambda m, i, o: net.fired.append("backward"))
    net.fails_at = fails_at
    net.sizes.clear()
    return net


def reads_all(net, X):
    read(pretrained(net), X, ALL, batch_size=20)


def forward_is_interrupted(net, X):
    net.fails_at = len(net.sizes) + 2
    with pytest.raises(KeyboardInterrupt):
        read(pretrained(net), X, ALL, batch_size=20)


def layer_is_missing(net, X):
    with pytest.raises(ValueError, match="no layer named"):
        read(pretrained(net), X, {"features"}, layer="fc")


def rows_are_infinite_in_the_network(net, X):
    with pytest.raises(ValueError, match="logits contain NaN or infinity"):
        read(pretrained(net), X.astype(float) * 1e200, {"logits"})


def device_is_unknown(net, X):
    with pytest.raises(ValueError, match="Unknown device"):
        read(pretrained(net), X, {"logits"}, device="abacus")


def consumer_raises(net, X):
    with pytest.raises(ZeroDivisionError):
        for _ in make_network(pretrained(net), batch_size=20).iter_outputs(X, ALL):
            raise ZeroDivisionError


def detector_fails(net, X):
    with pytest.raises(ValueError, match="n_neighbors=1000 is more than"):
        KNN(pretrained(net), n_neighbors=1000).fit(X)


def head_is_searched(net, X):
    make_network(pretrained(net, input_shape=(5,))).find_head()


def opened(net, **options):
    return make_network(pretrained(net, classes=[0, 1, 2], **options))


def squares(z):
    """Gradient of half the sum of squares."""
    return z


def reads_layers(net, X):
    list(opened(net, batch_size=20).layers(X, ["body.0", "penultimate"]))


def moves_rows(net, X):
    list(
        opened(net, batch_size=20).input_gradient(X, squares, lambda part, g: part + g)
    )


def replaces(net, X):
    list(opened(net, batch_size=20).replaced(X, ["body"], lambda z: z))


def names_layers(net, X):
    opened(net).layer_names(X)


def run_is_interrupted(net, X):
    for happens in (reads_layers, moves_rows, replaces):
        net.fails_at = len(net.sizes) + 2
        with pytest.raises(KeyboardInterrupt):
            happens(net, X)
    net.fails_at = None


def function_raises(net, X):
    def fails(*args):
        raise ZeroDivisionError

    network = opened(net)
    for parts in (
        network.input_gradient(X, fails, fails),
        network.input_gradient(X, squares, fails),
        network.replaced(X, ["body"], fails),
        network.replaced(X, ["input:head"], fails),
    ):
        with pytest.raises(ZeroDivisionError):
            next(parts)


@pytest.mark.parametrize(
    "happens",
    [
        reads_all,
        forward_is_interrupted,
        layer_is_missing,
        rows_are_infinite_in_the_network,
        device_is_unknown,
        consumer_raises,
        detector_fails,
        head_is_searched,
        reads_layers,
        moves_rows,
        replaces,
        names_layers,
        run_is_interrupted,
        function_raises,
    ],
)
def test_module_is_unchanged(happens, monkeypatch):
    """Modes, buffers, weights, `.grad`, `requires_grad`, hooks and the grad mode."""
    monkeypatch.setattr(_torch_network, "_BLOCK_BYTES", 1)
    X, _ = data()
    net = used_net(X)
    before = aspects(net)
    happens(net, X)
    assert_same(aspects(net), before)


@pytest.mark.parametrize("enabled", [True, False])
def test_grad_mode_is_unchanged(enabled):
    X, _ = data()
    with torch.set_grad_enabled(enabled):
        reads_all(Counter(), X)
        assert torch.is_grad_enabled() == enabled


def test_hooks_of_the_user_fire_while_we_read():
    X, _ = data()
    net = used_net(X)
    reads_all(net, X)
    assert net.fired == ["forward", "before"] * 4
    net(torch.as_tensor(X)).sum().backward()
    assert net.fired[8:] == ["forward", "before", "backward"]


def test_training_goes_on_as_if_nothing_had_happened():
    X, y = data()

    def train(between):
        net = Counter()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(torch.as_tensor(X)), torch.tensor(y))
            loss.backward()
            between(net, X)
            optimizer.step()
        return dict(net.state_dict())

    assert_same(train(reads_all), train(lambda net, X: None))


def test_train_method_of_the_user_is_not_called():
    class Merging(Counter):
        """Like layers that merge low-rank updates into their weights in eval()."""

        def train(self, mode=True):
            with torch.no_grad():
                self.head.weight.mul_(1.5)
            return super().train(mode)

    X, _ = data()
    net = Merging()
    before = net.head.weight.detach().clone()
    reads_all(net, X)
    assert torch.equal(net.head.weight, before) and net.training


def test_module_moves_to_the_device_and_home():
    class Moving(Counter):
        moves = ()

        def to(self, device):
            self.moves = (*self.moves, str(device))
            return super().to(device)

    X, _ = data()
    net = Moving()
    expected = read(pretrained(net), X, {"logits"}, device="cpu").logits
    assert net.moves == ()
    net.fails_at = 3
    logits = read(pretrained(net), X, {"logits"}, device="cpu:0").logits
    assert net.moves == ("cpu:0", "cpu")
    assert_array_equal(logits, expected)
    with pytest.raises(KeyboardInterrupt):
        read(pretrained(net), X, {"logits"}, device="cpu:0")
    assert net.moves == ("cpu:0", "cpu") * 2


def test_module_that_is_spread_over_devices_stays_so():
    net = Counter()
    net.register_buffer("elsewhere", torch.empty(2, device="meta"))
    for device in ("auto", "cpu"):
        with borrowed(net, device) as found:
            assert found.type == "cpu"  # of the first parameter
        assert net.elsewhere.device.type == "meta"
    X, _ = data()
    assert read(pretrained(net), X, {"logits"}).logits.shape == (80, 3)


def test_two_detectors_on_a_module():
    X, _ = data()
    net = used_net(X)
    clf = pretrained(net)
    knn = KNN(clf, n_neighbors=5).fit(X)
    first = knn.score_samples(X[:10])
    energy = Energy(clf).fit(X * 2)
    other = energy.score_samples(X[10:30])
    assert_array_equal(knn.score_samples(X[:10]), first)
    assert_array_equal(energy.score_samples(X[10:30]), other)
    # and interleaved, block by block
    a = make_network(clf, batch_size=8, layer="body").iter_outputs(X, ALL - {"head"})
    b = make_network(clf, batch_size=8).iter_outputs(X, {"logits"})
    assert_array_equal(next(a).logits, next(b).logits)


def test_two_threads_on_a_module():
    X, _ = data(n_samples=400)
    net = used_net(X)
    clf = pretrained(net)
    before = aspects(net)
    jobs = [("body.0", 16), ("penultimate", 16), ("input:body", 16), ("head", 16)] * 4

    def job(layer, batch_size):
        return read(clf, X, {"features", "logits"}, layer=layer, batch_size=batch_size)

    expected = [job(*options) for options in jobs]
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda options: job(*options), jobs))
    for a, b in zip(result, expected, strict=True):
        assert_array_equal(a.features, b.features)
        assert_array_equal(a.logits, b.logits)
    assert_same(aspects(net), before)


def test_other_threads_that_run_the_module_are_not_overheard():
    class Net(Counter):
        def forward(self, x):
            out = super().forward(x)
            thread = threading.Thread(target=self.head, args=(torch.zeros(2, 8),))
            thread.start()
            thread.join()
            return out

    X, _ = data()
    outputs = read(pretrained(Net()), X, ALL)
    assert_array_equal(outputs.logits, read(pretrained(Counter()), X, ALL).logits)
    assert outputs.features.shape == (80, 8)


def test_blocks(monkeypatch):
    # 8 float32 features and 3 logits: 44 bytes a row, so that 3 batches of 10 rows
    # fill a block
    monkeypatch.setattr(_torch_network, "_BLOCK_BYTES", 3 * 10 * 44)
    X, _ = data(n_samples=75)
    net = Counter().train()
    net.body[1].eval()
    clf = pretrained(net)
    before = aspects(net)
    n_samples = 0
    for block in make_network(clf, batch_size=10).iter_outputs(X, ALL):
        assert block.n_samples == (30 if n_samples < 60 else 15)
        n_samples += block.n_samples
        assert_same(aspects(net), before)
    assert n_samples == 75
    assert net.sizes == [10] * 7 + [5]
    joined = read(clf, X, ALL, batch_size=10)
    monkeypatch.undo()
    whole = read(clf, X, ALL, batch_size=10)
    assert_array_equal(joined.features, whole.features)
    assert_array_equal(joined.logits, whole.logits)


def test_autocast_is_off_while_a_module_is_borrowed():
    with torch.autocast("cpu", torch.bfloat16):
        with borrowed(nn.Linear(2, 2), "cpu"):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    with borrowed(nn.Linear(2, 2).to("meta")) as device:  # knows no autocast
        assert device.type == "meta"


def test_no_gradients_are_left():
    X, _ = data()
    net = Counter()
    moves_rows(net, X)
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, torch.enable_grad]
)
@pytest.mark.parametrize("frozen", [False, True])
def test_grad_mode_of_the_caller_and_frozen_parameters(mode, frozen):
    X, _ = data()
    expected = gradients(opened(Counter()), X, squares)
    net = Counter().requires_grad_(not frozen)
    with mode():
        gradient = gradients(opened(net), torch.as_tensor(X).clone(), squares)
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
    assert_array_equal(gradient, expected)
    assert [p.requires_grad for p in net.parameters()] == [not frozen] * 6


def test_changed_modules_are_run_as_they_are():
    """Nothing about a network is remembered that its user may change."""
    X = torch.randn(1, 6, generator=torch.Generator().manual_seed(0)).numpy()
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    clf = pretrained(net, classes=["a", "b", "c"])
    others = nn.Linear(8, 3), nn.Sequential(nn.Linear(8, 3), nn.Softmax(1))
    for head in (net[3], *others):
        net[3] = head
        for mode in (True, False):
            net.train(mode)
            logits = clf.predict_logits(X)
            assert [m.training for m in net.modules()] == [mode] * len([*net.modules()])
            net.eval()
            linear = head if isinstance(head, nn.Linear) else head[0]
            with torch.no_grad():
                expected = linear(net[:3](torch.from_numpy(X))).numpy()
            assert_array_equal(logits, expected)
    net.double()
    assert_array_equal(clf.predict_logits(X).argmax(axis=1), expected.argmax(axis=1))
