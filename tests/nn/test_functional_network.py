"""Networks that are opened give what the classifier gives, for each kind."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn
from torch.func import grad, stack_module_state, vmap

from skood.nn import TorchClassifier, pretrained
from skood.nn._functional_network import FunctionalRegressor, plain_attention, symmetric
from skood.nn._make_network import make_network
from tests._loops import looped
from tests.nn._conv_net import conv_net, images

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def data():
    return make_blobs(60, 4, centers=3, cluster_std=3.0, random_state=0)


def _proba(network, X):
    return np.exp(network.log_proba(network.prepare(X)))


def _body(*last, width=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, width), *last)


# ---- kinds of classifiers


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        LogisticRegression(fit_intercept=False),
        *(
            MLPClassifier((5, 4), activation=activation, max_iter=30, random_state=0)
            for activation in ("identity", "relu", "tanh", "logistic")
        ),
        MLPClassifier((), max_iter=30, random_state=0),
        TorchClassifier(max_epochs=3, random_state=0),
        TorchClassifier(
            module_params={"dropout": 0.5}, max_epochs=3, batch_size=20, random_state=0
        ),
        make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=30)),
        make_pipeline(StandardScaler(), TorchClassifier(max_epochs=3)),
        GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2),
    ],
    ids=repr,
)
@looped("n_classes", [2, 3])
def test_probabilities_are_those_of_the_classifier(data, estimator, n_classes):
    X, y = data
    names = np.array(["ant", "bee", "cat"])[y % n_classes]
    estimator = copy.deepcopy(estimator).fit(X, names)
    expected = estimator.predict_proba(X)
    for given in (estimator, FrozenEstimator(estimator)):
        network = make_network(given).with_weights()
        proba = _proba(network, X)
        assert_allclose(proba, expected, rtol=1e-5, atol=1e-12)
        assert_array_equal(network.classes, estimator.classes_)
    if not isinstance(network.module, nn.Sequential) or "head" not in dir(
        network.module
    ):
        assert network.dtype == torch.float64
        assert_allclose(proba, expected, rtol=1e-10, atol=1e-15)


def test_skorch_nets(data):
    X, y = data
    X = X.astype(np.float32)
    for criterion, last in [
        (nn.CrossEntropyLoss, ()),
        (nn.NLLLoss, (nn.Softmax(dim=1),)),
    ]:
        net = NeuralNetClassifier(
            _body(*last),
            criterion=criterion,
            max_epochs=2,
            train_split=None,
            verbose=0,
        )
        net.fit(X, y)
        expected = net.predict_proba(X)
        if not last:
            expected = softmax(net.forward(X).detach().numpy(), axis=1)
        network = make_network(net).with_weights()
        assert_allclose(_proba(network, X), expected, rtol=1e-5)
        assert network.head_name == "2"


# ---- what modules return


class Tail(nn.Module):
    """Ends without a linear layer."""

    def __init__(self, output):
        super().__init__()
        self.body = _body()
        self.output = output

    def forward(self, x):
        """Apply a function to logits that no layer gave."""
        return self.output(2 * self.body(x))


class Output:
    """An object with logits."""

    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    "module, output, has_head",
    [
        (_body(), "logits", True),
        (_body(nn.Softmax(dim=1)), "logits", True),
        (_body(nn.LogSoftmax(dim=1)), "logits", True),
        (_body(nn.Softmax(dim=1)), "probabilities", True),
        (Tail(lambda z: z), "logits", False),
        (Tail(lambda z: torch.softmax(z, 1)), "probabilities", False),
        (Tail(lambda z: torch.log_softmax(z, 1)), "logits", False),
        (Tail(lambda z: (z, "more")), "logits", False),
        (Tail(lambda z: {"logits": z}), "logits", False),
        (Tail(Output), "logits", False),
    ],
)
def test_outputs_of_modules(data, module, output, has_head):
    X, _ = data
    X = X.astype(np.float32)
    with torch.no_grad():
        body = module.body if isinstance(module, Tail) else module[:3]
        factor = 2 if isinstance(module, Tail) else 1
        z = factor * body(torch.from_numpy(X)).double().numpy()
    network = make_network(pretrained(module, [0, 1, 2], output=output)).with_weights()
    samples = network.prepare(X)
    log_p = network.log_proba(samples)
    assert_allclose(log_p, log_softmax(z, axis=1), rtol=1e-5, atol=1e-6)
    assert (network.head_name is not None) == has_head


@pytest.mark.parametrize(
    "module, output, has_head",
    [
        (_body(width=1), "logits", True),
        (_body(nn.Flatten(0), width=1), "logits", True),
        (_body(nn.Sigmoid(), width=1), "probabilities", True),
        (
            nn.Sequential(_body(width=1), nn.Softsign(), nn.Sigmoid()),
            "probabilities",
            0,
        ),
        (
            nn.Sequential(_body(width=1), nn.Softsign(), nn.Sigmoid(), nn.Flatten(0)),
            "probabilities",
            False,
        ),
    ],
)
def test_single_output_for_two_classes(data, module, output, has_head):
    X, _ = data
    X = X.astype(np.float32)
    network = make_network(
        pretrained(module, ["no", "yes"], output=output)
    ).with_weights()
    proba = _proba(network, X)
    with torch.no_grad():
        given = module(torch.from_numpy(X)).double().numpy().ravel()
    p = given if output == "probabilities" else 1 / (1 + np.exp(-given))
    assert_allclose(proba, np.column_stack([1 - p, p]), rtol=1e-5)
    assert (network.head_name is not None) == bool(has_head)
    samples = network.prepare(X)
    logits = network.logits(network.batch(samples[:5]))
    torch.testing.assert_close(logits[:, 0], -logits[:, 1], rtol=1e-4, atol=1e-5)


def test_sure_probabilities_stay_finite_and_in_order(data):
    """Behind a head a softmax is left out; elsewhere 0 is the smallest number."""
    X, _ = data
    X = 1e3 * X.astype(np.float32)
    module = _body(nn.Softmax(dim=1))
    with torch.no_grad():
        module[2].weight *= 1e3
        z = module[:3](torch.from_numpy(X)).double().numpy()
    network = make_network(pretrained(module, output="probabilities")).with_weights()
    log_p = network.log_proba(network.prepare(X))
    assert log_p.min() < -200
    assert_allclose(log_p, log_softmax(z, axis=1), rtol=1e-5, atol=1e-6)
    sharp = Tail(lambda z: torch.softmax(1e3 * z, 1))
    network = make_network(
        pretrained(sharp, [0, 1, 2], output="probabilities")
    ).with_weights()
    log_p = network.log_proba(network.prepare(X))
    assert np.isfinite(log_p).all()
    assert log_p.min() == pytest.approx(np.log(np.finfo(float).tiny))


def test_symmetric():
    margin = torch.tensor([1.0, -3.0])
    expected = torch.tensor([[-0.5, 0.5], [1.5, -1.5]])
    assert torch.equal(symmetric(margin), expected)
    assert torch.equal(symmetric(margin[:, None]), expected)
    assert symmetric(expected) is expected


# ---- the user's module


def test_the_users_module_is_untouched():
    net = conv_net()
    net.bn1.eval()
    net.conv1.weight.grad = torch.ones_like(net.conv1.weight)
    net.conv2.weight.requires_grad_(False)
    hook = net.head.register_forward_hook(lambda *args: None)
    state = {name: t.clone() for name, t in net.state_dict().items()}
    modes = [layer.training for layer in net.modules()]
    generator = torch.get_rng_state()
    X = images(10)
    network = make_network(pretrained(net)).with_weights()
    samples = network.prepare(X)
    network.log_proba(samples)
    weights = network.weights()
    network.log_proba(samples, {name: 2 * w for name, w in weights.items()})
    with torch.no_grad():
        for parameter in network.module.parameters():
            parameter.zero_()
    assert [layer.training for layer in net.modules()] == modes
    assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
    assert torch.equal(net.conv1.weight.grad, torch.ones_like(net.conv1.weight))
    assert net.conv1.weight.requires_grad and not net.conv2.weight.requires_grad
    assert list(net.head._forward_hooks) == [hook.id]
    assert torch.equal(torch.get_rng_state(), generator)
    assert not any(layer.training for layer in network.module.modules())
    assert not any(p.requires_grad for p in network.module.parameters())
    assert all(p.grad is None for p in network.module.parameters())


def test_sklearn_networks_draw_nothing(data):
    clf = MLPClassifier((5,), max_iter=20, random_state=0).fit(*data)
    generator = torch.get_rng_state()
    make_network(clf).with_weights()
    assert torch.equal(torch.get_rng_state(), generator)


class WritesToItsInput(nn.Module):
    """Subtracts in place, and works in place within."""

    def __init__(self):
        super().__init__()
        self.body = _body()
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        """Write."""
        x -= 1
        return self.head(self.act(self.body(x)))


def test_modules_that_write_to_their_input(data):
    X, _ = data
    before = X.copy()
    module = WritesToItsInput().double()
    network = make_network(pretrained(module, [0, 1, 2])).with_weights()
    with torch.no_grad():
        expected = torch.softmax(module(torch.from_numpy(X.copy())), 1).numpy()
    for samples in (X, torch.from_numpy(X)):
        assert_allclose(_proba(network, samples), expected, rtol=1e-12)
        batch = network.batch(network.prepare(samples))
        first = network.logits(batch)
        assert torch.equal(network.logits(batch), first)
    assert_array_equal(X, before)


def test_inference_mode_of_the_caller(data):
    """Weights of a network that was opened in it can be used with gradients."""
    X, _ = data
    with torch.inference_mode():
        network = make_network(pretrained(_body())).with_weights()
        samples = network.prepare(X)
    batch, weights = network.batch(samples), network.weights(["2.weight"])
    gradient = grad(lambda w: network.logits(batch, w).sum())(weights)
    assert gradient["2.weight"].abs().max() > 0


# ---- weights


def test_replaced_weights_are_those_of_another_network(data):
    X, _ = data
    one, other = _body(), _body(seed=1)
    network = make_network(pretrained(one)).with_weights()
    samples = network.prepare(X)
    expected = make_network(pretrained(other)).with_weights()
    weights = {name: p.detach() for name, p in other.named_parameters()}
    assert_array_equal(
        network.log_proba(samples, weights, batch_size=7),
        expected.log_proba(samples, batch_size=7),
    )
    part = {"2.bias": weights["2.bias"]}
    with torch.no_grad():
        z = one(torch.from_numpy(X).float()) - one[2].bias + other[2].bias
    assert_allclose(
        network.log_proba(samples, part), torch.log_softmax(z.double(), 1), rtol=1e-5
    )
    # for this call only
    assert_array_equal(
        network.log_proba(samples),
        make_network(pretrained(one)).with_weights().log_proba(samples),
    )
    assert list(network.weights()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    copies = network.weights({"2.bias"})
    assert list(copies) == ["2.bias"]
    copies["2.bias"] += 1
    assert torch.equal(network.weights()["2.bias"], one[2].bias)


@pytest.mark.parametrize("last", [(), (nn.Softmax(dim=1),)])
def test_vmap_over_stacked_weights_equals_a_loop(data, last):
    X = data[0].astype(np.float32).astype(np.float64)  # as the network reads them
    network = make_network(pretrained(_body(*last))).with_weights(dtype=torch.float64)
    batch = network.batch(network.prepare(X))
    others = [_body(*last, seed=seed).double() for seed in range(4)]
    stacked, _ = stack_module_state(others)
    stacked = {name: weight.detach() for name, weight in stacked.items()}
    logits = vmap(lambda w: network.logits(batch, w))(stacked)
    for i, other in enumerate(others):
        expected = other[:3](torch.from_numpy(X))
        torch.testing.assert_close(logits[i], expected.detach(), rtol=1e-12, atol=1e-14)
    gradients = vmap(grad(lambda w: network.logits(batch, w)[:, 0].sum()))(stacked)
    for i, other in enumerate(others):
        weight = other[2].weight
        (expected,) = torch.autograd.grad(
            other[:3](torch.from_numpy(X))[:, 0].sum(), weight
        )
        torch.testing.assert_close(gradients["2.weight"][i], expected)


def test_vmap_of_a_convolutional_network():
    nets = [conv_net(seed=seed, dtype=torch.float64, inplace=False) for seed in (0, 1)]
    network = make_network(pretrained(nets[0])).with_weights()
    X = images(5)
    batch = network.batch(network.prepare(X))
    stacked = {
        name: torch.stack([dict(net.named_parameters())[name].detach() for net in nets])
        for name in network.weights()
    }
    actual = vmap(lambda w: network.logits(batch, w))(stacked)
    for logits, net in zip(actual, nets, strict=True):
        with torch.no_grad():  # buffers stay those of the network
            for own, other in zip(network.module.buffers(), net.buffers(), strict=True):
                other.copy_(own)
            expected = net.eval()(batch)
        torch.testing.assert_close(logits, expected)


# ---- rows


def test_samples_and_batches(data):
    X, y = data
    clf = make_pipeline(StandardScaler(), TorchClassifier(max_epochs=1)).fit(X, y)
    network = make_network(clf).with_weights()
    samples = network.prepare(X)
    assert_allclose(samples, clf[0].transform(X), rtol=1e-6)
    batches = list(network.batches(samples, batch_size=25))
    assert [len(batch) for batch in batches] == [25, 25, 10]
    assert all(batch.dtype == torch.float32 for batch in batches)
    batches[0].zero_()
    assert np.abs(samples[:25]).min() > 0
    double = make_network(clf).with_weights(dtype=torch.float64)
    assert double.batch(samples).dtype == double.dtype == torch.float64
    assert_allclose(
        double.log_proba(samples), network.log_proba(samples), rtol=1e-4, atol=1e-5
    )
    sk = make_network(LogisticRegression().fit(X, y)).with_weights()
    batch = sk.batch(sk.prepare(X))
    batch.zero_()
    assert_allclose(_proba(sk, X).sum(axis=1), 1.0)


def test_token_numbers_stay_numbers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))
    X = np.random.default_rng(0).integers(0, 9, size=(8, 3))
    network = make_network(pretrained(net)).with_weights(dtype=torch.float64)
    assert network.batch(network.prepare(X)).dtype == torch.int64
    with torch.no_grad():
        expected = torch.softmax(net(torch.from_numpy(X)), 1)
    assert_allclose(_proba(network, X), expected, rtol=1e-5)


# ---- errors


def test_what_cannot_be_opened(data):
    X, y = data
    with pytest.raises(TypeError, match="Got the bare torch module Sequential"):
        make_network(_body()).with_weights()
    with pytest.raises(NotFittedError):
        make_network(TorchClassifier()).with_weights()
    with pytest.raises(TypeError, match="RandomForestClassifier"):
        make_network(RandomForestClassifier(n_estimators=2).fit(X, y)).with_weights()
    with pytest.raises(ValueError, match="Device 'cuda:99' was requested"):
        make_network(pretrained(_body())).with_weights(device="cuda:99")


@pytest.mark.parametrize(
    "module, text",
    [
        (_body(width=5), r"outputs of the shape \(2, 5\) for 2 samples and 3 classes"),
        (
            Tail(lambda z: z[:, :, None]),
            r"outputs of the shape \(2, 3, 1\) for 2 samples",
        ),
        (Tail(lambda z: z[:1]), "The network gave 1 rows for a batch of 2"),
        (Tail(lambda z: "logits"), "The module returned str; expected a tensor"),
    ],
)
def test_outputs_of_another_shape(data, module, text):
    X, _ = data
    network = make_network(pretrained(module, [0, 1, 2])).with_weights()
    with pytest.raises((ValueError, TypeError), match=text):
        network.prepare(X)


def test_logits_that_overflow(data):
    X, _ = data
    network = make_network(pretrained(_body())).with_weights()
    samples = network.prepare(X)
    weights = {"2.bias": torch.full((3,), np.inf)}
    with pytest.raises(ValueError, match="Input logits contains NaN"):
        network.log_proba(samples, weights)
    with pytest.raises(ValueError, match="contains NaN"):
        network.prepare(np.full((2, 4), np.nan))


def test_switches_that_threads_share():
    """They are back when the last one is done, in whatever order that is."""
    switches = (
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.math_sdp_enabled,
    )
    before = [switch() for switch in switches]
    first, second = plain_attention(), plain_attention()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert [switch() for switch in switches] == [False, False, True]
    second.__exit__(None, None, None)
    assert [switch() for switch in switches] == before
    assert before[0]


@pytest.mark.parametrize("loss", ["log_loss", "modified_huber"])
def test_models_whose_probabilities_are_no_softmax(data, loss):
    X, y = data
    estimator = SGDClassifier(loss=loss, random_state=0).fit(X, y)
    for given in (estimator, make_pipeline(StandardScaler(), estimator).fit(X, y)):
        network = make_network(given).with_weights()
        with pytest.raises(
            ValueError, match=r"of SGDClassifier are not the softmax.* by up to 0\.\d"
        ):
            network.prepare(X)


def test_names_of_features_reach_the_comparison(data):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data[0], columns=list("abcd"))
    estimator = LogisticRegression().fit(frame, data[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_network(estimator).with_weights().prepare(frame)


@looped("one_margin", [False, True])
@looped("n_classes", [2, 3])
@looped(
    "estimator",
    [
        LogisticRegression(),
        LogisticRegression(fit_intercept=False),
        MLPClassifier((5,), max_iter=30, random_state=0),
        RidgeClassifier(),
    ],
)
def test_margins_and_biases(data, estimator, n_classes, one_margin):
    """A binary margin may be one output; what has no intercept gets no bias."""
    X, y = data
    estimator = clone(estimator).fit(X, y % n_classes)
    network = make_network(estimator).with_weights(one_margin=one_margin)
    logits = network.logits(network.batch(network.prepare(X)))
    assert network.is_margin == (one_margin and n_classes == 2)
    head = network.module.get_submodule(network.head_name)
    assert head.out_features == (1 if network.is_margin else n_classes)
    with_bias = getattr(estimator, "fit_intercept", True)
    assert (head.bias is not None) == with_bias
    expected = estimator.decision_function(X) if hasattr(estimator, "coef_") else None
    if expected is None:
        p = np.log(estimator.predict_proba(X))
        expected = p if n_classes == 3 else p[:, 1] - p[:, 0]
    if n_classes == 2:
        actual = logits[:, 1] - logits[:, 0]
        assert torch.equal(logits[:, 0], -logits[:, 1]) or not one_margin
    else:
        actual, expected = logits.log_softmax(1), log_softmax(expected, axis=1)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("width", [1, 2])
def test_margin_of_a_module(data, width):
    network = make_network(
        pretrained(_body(width=width), classes=[0, 1])
    ).with_weights()
    network.prepare(data[0])
    assert network.is_margin == (width == 1)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_bias_of_a_regressor(data, fit_intercept):
    X, y = data
    model = LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    network = FunctionalRegressor(model, 1, device="cpu")
    outputs = network.outputs(network.prepare(X))[:, 0]
    assert_allclose(outputs, model.predict(X), rtol=1e-10)
    assert ("0.bias" in network.weights()) == fit_intercept
