"""QUAM for regression against plain loops, and the regressors that it takes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_regressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetRegressor
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from skood.base import UncertaintyMixin
from skood.epistemic import QUAM
from skood.utils._torch import seeded
from tests.epistemic._member_nets import Encoder, NormalLoss
from tests.epistemic._quam import FIELDS, make_quam

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"n_steps": 4, "batch_size": 8, "random_state": 0, "device": "cpu"}
STEP = {"lr": 0.02, "weight_decay": 1e-2, "c0": 3.0, "eta": 1.5, "update_every": 2}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(50, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + rng.normal(scale=0.3, size=50)


@pytest.fixture(scope="module")
def mlp(data):
    return MLPRegressor(
        hidden_layer_sizes=(6,), activation="tanh", max_iter=60, random_state=0
    ).fit(*data)


class Normal(nn.Module):
    """A mean and the logarithm of a variance."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 6), nn.Linear(6, 2)

    def forward(self, x):
        """Both."""
        return self.head(torch.tanh(self.body(x)))


@pytest.fixture(scope="module")
def normal_net(data):
    """A skorch net that predicts normal distributions, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = NeuralNetRegressor(
            Normal().double(), criterion=NormalLoss, max_epochs=5, verbose=0
        )
        return net.fit(data[0], data[1][:, None])


def _module(mlp):
    """A fitted perceptron with tanh units."""
    layers: list = []
    for W, b in zip(mlp.coefs_, mlp.intercepts_, strict=True):
        linear = nn.Linear(*W.shape).double()
        linear.weight.data = torch.as_tensor(W.T.copy())
        linear.bias.data = torch.as_tensor(b.copy())
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _kl(mean, variance, other_mean, other_variance):
    ratio = variance / other_variance
    return 0.5 * (
        (mean - other_mean) ** 2 / other_variance + ratio - 1 - math.log(ratio)
    )


def _naive(quam, module, X, y, x, sign, variance=None):
    """One search in plain torch: lists of means, variances, losses."""
    net = copy.deepcopy(module).eval()
    *_, weight, last = net.parameters()
    moving = [weight, last] if quam.scope == "last" else list(net.parameters())
    # the batches that the fit has drawn
    rng = np.random.RandomState(0)
    index = np.concatenate([rng.permutation(50) for _ in range(2)])[:40].reshape(5, 8)
    x = torch.as_tensor(x)[None]

    def moments(samples):
        outputs = net(samples)
        if variance is not None:
            return outputs[:, 0], torch.full_like(outputs[:, 0], variance)
        return outputs[:, 0], outputs[:, 1].exp()

    mean, separate = (value.detach() for value in moments(x))
    with torch.no_grad():
        last[0] += sign * 0.1 * separate.sqrt()[0]
    optimizer = torch.optim.Adam(moving, lr=0.02, weight_decay=1e-2)
    results = []
    for step, samples in enumerate(index):
        m, v = moments(torch.as_tensor(X[samples]))
        target = torch.as_tensor(y[samples])
        original = torch.distributions.Normal(mean, separate.sqrt())
        training = -torch.distributions.Normal(m, v.sqrt()).log_prob(target).mean()
        m, v = moments(x)
        there = torch.distributions.Normal(m, v.sqrt())
        attack = -torch.distributions.kl_divergence(original, there)[0]
        results.append([t.item() for t in (m[0], v[0], training, attack)])
        c, factor = 3.0 * 1.5 ** (step // 2), 1.5 ** (step // 2)
        for group in optimizer.param_groups:
            group["lr"] = 0.02 / factor
        optimizer.zero_grad()
        (attack + c * training).backward()
        optimizer.step()
    return results, (mean.item(), separate.item())


def _measure(members, weights, original, setting):
    if setting == "b":
        mean, variance = original
        aleatoric = 0.5 * math.log(2 * math.pi * math.e * variance)
        epistemic = math.fsum(
            w * _kl(mean, variance, m, v)
            for w, (m, v, *_) in zip(weights, members, strict=True)
        )
    else:
        aleatoric = math.fsum(
            w * 0.5 * math.log(2 * math.pi * math.e * v)
            for w, (_, v, *_) in zip(weights, members, strict=True)
        )
        epistemic = math.fsum(
            w * u * _kl(m, v, n, q)
            for w, (m, v, *_) in zip(weights, members, strict=True)
            for u, (n, q, *_) in zip(weights, members, strict=True)
        )
    return aleatoric + epistemic, aleatoric, epistemic


def _weights(members, temperature):
    low = min(member[2] for member in members)
    values = [math.exp(-(member[2] - low) / temperature) for member in members]
    return [value / math.fsum(values) for value in values]


# ---- the numbers


@pytest.mark.parametrize("setting", ["a", "b"])
@pytest.mark.parametrize("variance", ["residuals", 0.4, "network"])
@pytest.mark.parametrize("temperature", [0.1, np.inf])
@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_uncertainty_equals_a_plain_loop(
    data, mlp, normal_net, setting, variance, temperature, scope
):
    X, y = data
    network = normal_net if variance == "network" else mlp
    quam = make_quam(
        FrozenEstimator(network),
        variance=variance,
        setting=setting,
        temperature=temperature,
        scope=scope,
        **QUICK,
        **STEP,
    ).fit(X, y)
    module = normal_net.module_ if variance == "network" else _module(mlp)
    number = None
    if variance == "residuals":
        # of the rows that are used
        used = np.random.RandomState(0).permutation(50)[:40]
        number = np.mean((mlp.predict(X[used]) - y[used]) ** 2)
    elif variance != "network":
        number = variance
    if number is not None:
        assert quam.likelihood_.variance_ == pytest.approx(number, rel=1e-12)
    points = np.r_[X[:2], [[9.0, 9.0, 9.0]]]
    uncertainty = quam.predict_uncertainty(points)
    for i, x in enumerate(points):
        members = []
        for sign in (1, -1):
            models, original = _naive(quam, module, X, y, x, sign, number)
            members += models
        weights = _weights(members, temperature)
        expected = _measure(members, weights, original, setting)
        for name, value in zip(FIELDS, expected, strict=True):
            assert uncertainty[name][i] == pytest.approx(value, rel=1e-7), name
    expected = module(torch.as_tensor(points))[:, 0].detach()
    assert_allclose(quam.predict(points), expected, rtol=1e-10)


@pytest.mark.parametrize("variance", [0.4, "network"])
def test_trace_equals_a_plain_loop(data, mlp, normal_net, variance):
    X, y = data
    network = normal_net if variance == "network" else mlp
    quam = make_quam(
        FrozenEstimator(network), variance=variance, gamma=0.2, **QUICK, **STEP
    ).fit(X, y)
    trace = quam.trace(X[3:4])
    assert trace.targets.tolist() == ["higher", "lower"]
    module = normal_net.module_ if variance == "network" else _module(mlp)
    number = None if variance == "network" else variance
    members = []
    for j, sign in enumerate((1, -1)):
        models, original = _naive(quam, module, X, y, X[3], sign, number)
        members += models
        for step, (mean, var, training, attack) in enumerate(models):
            assert trace.mean[step, j] == pytest.approx(mean, rel=1e-8)
            assert trace.variance[step, j] == pytest.approx(var, rel=1e-8)
            assert trace.training_loss[step, j] == pytest.approx(training, rel=1e-8)
            assert trace.attack_loss[step, j] == pytest.approx(attack, rel=1e-7)
            penalty = training - quam.reference_loss_[step] - 0.2
            assert trace.penalty[step, j] == pytest.approx(penalty, abs=1e-8)
            loss = attack + 3.0 * 1.5 ** (step // 2) * penalty
            assert trace.loss[step, j] == pytest.approx(loss, abs=1e-7)
            kl = _kl(*original, mean, var)
            assert trace.divergence[step, j] == pytest.approx(kl, rel=1e-7)
    assert_allclose(
        trace.weights, np.reshape(_weights(members, 0.1), (2, 5)).T, rtol=1e-6
    )
    assert trace.reference == pytest.approx(original, rel=1e-10)
    # one step aside, in standard deviations
    assert_allclose(
        (trace.mean[0] - original[0]) / math.sqrt(original[1]), [0.1, -0.1], rtol=1e-6
    )


def test_reference_loss(data, mlp):
    X, y = data
    quam = make_quam(FrozenEstimator(mlp), variance=0.5, **QUICK).fit(X, y)
    penalty_features = quam.penalty_features_[quam.penalty_index_]
    answers = quam.penalty_targets_[quam.penalty_index_]
    for step in range(5):
        square = (answers[step] - mlp.predict(penalty_features[step])) ** 2
        expected = 0.5 * np.mean(square / 0.5 + math.log(2 * math.pi * 0.5))
        assert quam.reference_loss_[step] == pytest.approx(expected, rel=1e-10)


def test_far_points_are_uncertain():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 1))
    y = np.sin(X[:, 0]) + rng.normal(scale=0.1, size=200)
    net = MLPRegressor(hidden_layer_sizes=(30,), random_state=0, max_iter=500)
    quam = QUAM(net, random_state=0).fit(X, y)
    near, far = quam.predict_uncertainty([[0.0], [7.0]]).epistemic
    assert far > 5 * near


# ---- blocks, kinds of regressors


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
@pytest.mark.parametrize("variance", ["residuals", "network"])
def test_chunks_and_processes(data, mlp, normal_net, scope, variance):
    X, y = data
    network = FrozenEstimator(normal_net if variance == "network" else mlp)
    quam = make_quam(network, scope=scope, variance=variance, **QUICK).fit(X, y)
    expected = quam.predict_uncertainty(X[:5])
    for options in ({"search__chunk_size": 1}, {"search__chunk_size": 2}):
        uncertainty = (
            clone(quam).set_params(**options).fit(X, y).predict_uncertainty(X[:5])
        )
        for name in FIELDS:
            assert_allclose(uncertainty[name], expected[name], rtol=1e-7)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        MLPRegressor(hidden_layer_sizes=(5, 4), max_iter=20, random_state=0),
        make_pipeline(StandardScaler(), "passthrough", None, LinearRegression()),
        make_pipeline(
            StandardScaler(), make_pipeline(StandardScaler(), LinearRegression())
        ),
    ],
    ids=["linear", "mlp", "pipeline", "pipelines"],
)
def test_kinds_of_regressors(data, estimator):
    X, y = data
    quam = make_quam(estimator, **QUICK).fit(X, y)
    expected = quam.estimator_.predict(X)
    assert_allclose(quam.predict(X), expected, rtol=1e-9, atol=1e-12)
    assert is_regressor(quam)
    assert isinstance(quam, UncertaintyMixin)
    assert quam.n_features_in_ == 3
    assert quam.score(X, y) == pytest.approx(quam.estimator_.score(X, y))
    uncertainty = quam.predict_uncertainty(X[:4])
    assert (uncertainty.epistemic > 0).all()
    assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)
    frozen = make_quam(FrozenEstimator(quam.estimator_), **QUICK).fit(X, y)
    again = frozen.predict_uncertainty(X[:4])
    assert_array_equal(again.epistemic, uncertainty.epistemic)


def test_skorch_nets_of_a_single_output(data):
    """The targets go to the net as they were given."""
    X, y = data[0].astype(np.float32), data[1].astype(np.float32)[:, None]
    net = NeuralNetRegressor(
        nn.Linear,
        module__in_features=3,
        module__out_features=1,
        verbose=0,
        max_epochs=2,
    )
    state = torch.get_rng_state()
    quam = make_quam(net, **QUICK).fit(X, y)
    torch.set_rng_state(state)
    assert_allclose(
        quam.predict(X), quam.estimator_.predict(X)[:, 0], rtol=1e-5, atol=1e-6
    )
    assert (quam.predict_uncertainty(X[:3]).epistemic > 0).all()


def test_loader_equals_array(data, mlp):
    X, y = data
    loader = DataLoader(
        TensorDataset(torch.as_tensor(X), torch.as_tensor(y)), batch_size=7
    )
    expected = make_quam(FrozenEstimator(mlp), **QUICK).fit(X, y)
    loaded = make_quam(FrozenEstimator(mlp), **QUICK).fit(loader)
    assert loaded.likelihood_.variance_ == pytest.approx(expected.likelihood_.variance_)
    assert_allclose(
        loaded.predict_uncertainty(X[:4]).epistemic,
        expected.predict_uncertainty(X[:4]).epistemic,
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="A DataLoader gives the targets"):
        QUAM(FrozenEstimator(mlp)).fit(loader, y)


def test_kinds_of_arrays(data, mlp):
    X, y = data
    expected = make_quam(FrozenEstimator(mlp), **QUICK).fit(X, y)
    for samples, targets in [
        (X, y[:, None]),
        (X, torch.as_tensor(y)),
    ]:
        fitted = make_quam(FrozenEstimator(mlp), **QUICK).fit(samples, targets)
        assert_array_equal(
            fitted.predict_uncertainty(X[:3]).epistemic,
            expected.predict_uncertainty(X[:3]).epistemic,
        )


# ---- errors


def test_errors(data, mlp):
    X, y = data
    frozen = FrozenEstimator(mlp)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        QUAM(frozen).fit(X, np.where(y > 1, np.nan, y))
    with pytest.raises(ValueError, match="NaN"):
        QUAM(frozen).fit(np.full_like(X, np.nan), y)
    with pytest.raises(TypeError, match="weights of RandomForestRegressor: use an MLP"):
        QUAM(RandomForestRegressor(n_estimators=2)).fit(X, y)
    exact = LinearRegression().fit(X, X @ [1.0, 2.0, 3.0])
    exact.coef_ = np.array([1.0, 0.0, 0.0])
    exact.intercept_ = 0.0
    with pytest.raises(
        ValueError,
        match=r"meets all samples \(n_samples=\d+\) exactly, which leaves no variance",
    ):
        make_quam(FrozenEstimator(exact), **QUICK).fit(X, X[:, 0])
    number = make_quam(FrozenEstimator(exact), variance=0.1, **QUICK).fit(X, X[:, 0])
    assert (number.predict_uncertainty(X[:2]).epistemic > 0).all()
    with pytest.raises(
        ValueError, match=r"shape \(1,\) for each sample, expected \(2,\)"
    ):
        make_quam(frozen, variance="network").fit(X, y)
    with pytest.raises(ValueError, match="trace shows the searches of one point"):
        make_quam(frozen, **QUICK).fit(X, y).trace(X[:2])
    many = LinearRegression().fit(X, np.c_[y, y])
    with pytest.raises(
        ValueError, match=r"shape \(2,\) for each sample, expected \(1,\)"
    ):
        QUAM(FrozenEstimator(many)).fit(X, y)


def test_poisson_networks_have_no_mean(data, mlp, monkeypatch):
    X, y = data
    other = clone(mlp).fit(X, y)
    other.out_activation_ = "exp"
    with pytest.raises(ValueError, match="is not a mean: its activation is 'exp'"):
        QUAM(FrozenEstimator(other)).fit(X, y)


def test_linear_regressors_without_intercept(data):
    X, y = data
    quam = make_quam(Ridge(fit_intercept=False), **QUICK).fit(X, y)
    expected = quam.estimator_.predict(X)
    assert_allclose(quam.predict(X), expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="has no bias, which searches around a"):
        quam.predict_uncertainty(X[:1])


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_networks_without_a_last_bias(data, scope):
    X, y = data
    net = NeuralNetRegressor(nn.Linear(3, 1, bias=False).double(), verbose=0)
    net.initialize()
    quam = make_quam(FrozenEstimator(net), scope=scope, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="Linear has no bias, which searches around a"):
        quam.predict_uncertainty(X[:1])


@pytest.mark.parametrize("scope", ["last", "full"])
def test_transformers(data, scope):
    X, y = data
    with seeded(0):
        net = NeuralNetRegressor(Encoder(1).double(), verbose=0).initialize()
    quam = make_quam(FrozenEstimator(net), scope=scope, **QUICK).fit(X, y)
    assert torch.backends.mha.get_fastpath_enabled()
    uncertainty = quam.predict_uncertainty(X[:3])
    assert (uncertainty.epistemic > 0).all()
    assert_allclose(quam.predict(X), net.predict(X)[:, 0], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(data, dtype):
    """Steps that half precision would round away are done in float32."""
    X, y = np.round(data[0] * 8).astype(np.float32) / 8, data[1]
    with seeded(0):
        half = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(dtype)
    wide = copy.deepcopy(half).float()
    values = [
        FrozenEstimator(NeuralNetRegressor(module, verbose=0).initialize())
        for module in (half, wide)
    ]
    results = [
        make_quam(net, variance=0.1, lr=1e-4, **QUICK)
        .fit(X, y)
        .predict_uncertainty(X[:3])
        .epistemic
        for net in values
    ]
    assert_array_equal(*results)


class Squared(nn.Linear):
    """Its output is that of no linear layer."""

    def forward(self, x):
        """Of its square."""
        return super().forward(x) ** 2


class Sum(nn.Module):
    """Adds a function to its linear layer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        """One number for each row."""
        return (self.head(x) + x[:, :1] ** 2)[:, 0]


@pytest.mark.parametrize("make", [lambda: Squared(3, 1), Sum])
def test_networks_whose_end_is_not_linear(data, make):
    X, y = data
    net = NeuralNetRegressor(make().double(), verbose=0).initialize()
    with pytest.raises(ValueError, match=r"not the output of a torch\.nn\.Linear"):
        make_quam(FrozenEstimator(net), **QUICK).fit(X, y)


def test_networks_that_went_wrong(data):
    X, y = data
    module = nn.Linear(3, 1).double()
    module.weight.data[:] = np.nan
    net = NeuralNetRegressor(module, verbose=0).initialize()
    with pytest.raises(ValueError, match="outputs of Linear contain NaN or infinity"):
        make_quam(FrozenEstimator(net), **QUICK).fit(X, y)
