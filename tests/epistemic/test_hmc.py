"""HMC on networks against quadrature; chains and R-hat against loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.epistemic import (
    HMC,
    CyclicalSchedule,
    CyclicalSGHMC,
    HMCKernel,
    member_uncertainty,
)
from skood.epistemic.mcmc import _hmc as _chains
from skood.epistemic.mcmc._hmc import _DualAveraging, _Sampler, leapfrog, r_hat, sample
from skood.exceptions import SkoodWarning
from skood.nn import TorchClassifier, pretrained
from skood.utils._progress import progress
from skood.utils._torch import seeded
from tests.epistemic import _logistic
from tests.epistemic._member_nets import Encoder

X, y = make_moons(60, noise=0.1, random_state=0)
QUICK = {
    "kernel": HMCKernel(n_leapfrog=4, n_warmup=8),
    "n_samples": 8,
    "n_chains": 2,
}
quiet = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")

SAMPLERS = [
    partial(HMC, **QUICK),
    partial(
        CyclicalSGHMC,
        schedule=CyclicalSchedule(n_cycles=2, epochs_per_cycle=4, samples_per_cycle=2),
        batch_size=25,
    ),
]
each_sampler = pytest.mark.parametrize("make", SAMPLERS, ids=["HMC", "CyclicalSGHMC"])


def _network():
    return MLPClassifier((6,), solver="lbfgs", max_iter=50, random_state=0)


def _quick(estimator=None, **kwargs):
    estimator = _network() if estimator is None else estimator
    hmc = HMC(estimator, **QUICK, random_state=0, device="cpu")
    return clone(hmc).set_params(**kwargs)


# --- against the exact posterior -------------------------------------------------


@pytest.mark.parametrize(
    "prior_scale, temperature",
    [
        (3.0, 0.2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1.0, 1.0), (3.0, 1.0), (1.0, 0.2))
        ),
    ],
)
def test_logistic_regression_against_quadrature(prior_scale, temperature):
    hmc = HMC(
        _logistic.frozen(),
        n_samples=400,
        kernel=HMCKernel(n_leapfrog=4, n_warmup=60),
        n_chains=4,
        prior_scale=prior_scale,
        temperature=temperature,
        random_state=0,
        device="cpu",
    ).fit(_logistic.X, _logistic.y)
    exact = _logistic.Quadrature(prior_scale, temperature)
    proba, error = _logistic.sample_moments(hmc.samples_)
    assert (np.abs(proba - exact.moments()) < 4 * error).all()
    assert (error[:2] < 0.1 * np.sqrt(exact.moments()[2:4])).all()
    assert hmc.r_hat_ < 1.02
    hmc.set_params(setting="a")
    points = [-3.0, 0.0, 4.0]
    expected = [exact.proba(x) for x in points]
    proba = hmc.predict_proba(np.array(points)[:, None])[:, 1]
    assert_allclose(proba, expected, atol=0.01)


def test_scales_of_single_parameters():
    """A tight prior holds a parameter at zero, another does not."""
    hmc = _quick(
        LogisticRegression(),
        n_samples=100,
        kernel__n_warmup=50,
        prior_scale={"0.weight": 2.0, "0.bias": 1e-3},
    ).fit(X, y)
    assert np.abs(hmc.samples_["0.bias"]).max() < 5e-3
    assert hmc.samples_["0.weight"].std(axis=0).min() > 0.1


# --- what it keeps ---------------------------------------------------------------


@quiet
@each_sampler
def test_members_are_the_samples(make):
    clf = make(_network(), random_state=0, device="cpu").fit(X, y)
    n = clf.log_density_.size
    shapes = {"0.weight": (6, 2), "0.bias": (6,), "2.weight": (2, 6), "2.bias": (2,)}
    assert {k: v.shape for k, v in clf.samples_.items()} == {
        name: (n, *shape) for name, shape in shapes.items()
    }
    members = clf.predict_members(X)
    assert members.shape == (n, 60, 2)
    log_density = clf.log_density_.ravel()
    for i in range(n):
        w = {name: stacked[i] for name, stacked in clf.samples_.items()}
        h = np.maximum(X @ w["0.weight"].T + w["0.bias"], 0)
        margin = np.diff(h @ w["2.weight"].T + w["2.bias"])[:, 0]
        p = 1 / (1 + np.exp(-margin))
        assert_allclose(members[i, :, 1], p, rtol=1e-9)
        value = -np.logaddexp(0, np.where(y == 1, -margin, margin)).sum()
        value -= sum(0.5 * (component**2).sum() for component in w.values())
        assert log_density[i] == pytest.approx(value, rel=1e-9)
    assert_allclose(clf.predict_proba(X), members.mean(axis=0), rtol=1e-9)
    expected = member_uncertainty(np.log(members))
    uncertainty = clf.predict_uncertainty(X)
    for name in ("total", "aleatoric", "epistemic"):
        assert_allclose(uncertainty[name], expected[name], rtol=1e-6)


@quiet
def test_diagnostics_are_those_of_the_samples():
    hmc = _quick().fit(X, y)
    chains = hmc.predict_members(X).reshape(2, 8, 60, 2)
    assert_allclose(hmc.r_hat_proba_, r_hat(chains), rtol=1e-6)
    assert hmc.r_hat_ == hmc.r_hat_proba_.max()
    assert hmc.r_hat_log_density_ == r_hat(hmc.log_density_)
    weights = hmc.samples_["0.weight"].reshape(2, 8, 6, 2)
    assert_array_equal(hmc.r_hat_weights_["0.weight"], r_hat(weights))
    assert hmc.acceptance_rate_.shape == hmc.step_size_.shape == (2,)
    assert hmc.n_divergences_.tolist() == [0, 0]
    assert hmc.n_features_in_ == 2
    assert hmc.classes_.tolist() == [0, 1]


@quiet
@each_sampler
@pytest.mark.parametrize(
    "network",
    [
        _network(),
        TorchClassifier(
            module_params={"hidden": (5,)}, max_epochs=3, random_state=0, device="cpu"
        ),
    ],
    ids=["scikit-learn", "torch"],
)
def test_fixed_model_predicts_in_setting_b(make, network):
    network = clone(network).fit(X, y)
    before = copy.deepcopy(network)
    clf = make(FrozenEstimator(network), random_state=0, device="cpu").fit(X, y)
    assert_allclose(clf.predict_proba(X), network.predict_proba(X))
    epistemic = clf.predict_uncertainty(X).epistemic
    # the network returns logits: its probabilities have too few digits
    expected = member_uncertainty(
        np.log(clf.predict_members(X)),
        reference=np.log(network.predict_proba(X)),
        setting="b",
    ).epistemic
    assert_allclose(epistemic, expected, rtol=1e-5)
    alone = [clf.predict_uncertainty(X[[i]]).epistemic[0] for i in range(5)]
    assert_allclose(epistemic[:5], alone, rtol=1e-9)
    assert_array_equal(network.predict_proba(X), before.predict_proba(X))
    if isinstance(network, TorchClassifier):
        state = before.module_.state_dict()
        for name, tensor in network.module_.state_dict().items():
            assert torch.equal(tensor, state[name])
    in_a = clf.set_params(setting="a").predict_uncertainty(X)
    assert not np.allclose(in_a.epistemic, epistemic)


# --- options ---------------------------------------------------------------------


@quiet
def test_chains_start_at_the_prior_or_at_the_fixed_model():
    frozen = FrozenEstimator(_network().fit(X, y))
    still = {"kernel__step_size": 1e-9, "kernel__n_warmup": 0, "prior_scale": 0.5}
    hmc = _quick(frozen, init="estimator", **still).fit(X, y)
    assert max(np.abs(coef).max() for coef in frozen.coefs_) > 1
    hidden, head = (coef.T for coef in frozen.coefs_)
    original = {"0.weight": hidden, "2.weight": np.concatenate([-head, head]) / 2}
    for name, weight in original.items():
        distance = hmc.samples_[name] - weight
        assert np.abs(distance).max() < 5 * 0.1 * 0.5
        assert 0.02 < distance.std() < 0.1
    hmc = _quick(frozen, n_chains=30, **still).fit(X, y)
    assert hmc.samples_["0.weight"].std() == pytest.approx(0.5, rel=0.15)
    assert hmc.step_size_.tolist() == [1e-9] * 30


@quiet
@pytest.mark.parametrize("adapt_mass", [False, True])
def test_step_sizes_and_masses_are_adapted(adapt_mass):
    hmc = _quick(kernel__n_warmup=60, kernel__adapt_mass=adapt_mass).fit(X, y)
    assert len(set(hmc.step_size_)) == 2
    assert ((hmc.acceptance_rate_ > 0.4) & (hmc.acceptance_rate_ <= 1)).all()


def test_chains_that_do_not_agree_are_reported():
    with pytest.warns(SkoodWarning, match="chains of HMC do not agree") as caught:
        hmc = _quick(kernel__step_size=1e-6).fit(X, y)
    message = str(caught[0].message)
    share = np.mean((hmc.r_hat_proba_ > 1.1).any(axis=1))
    assert f"up to {hmc.r_hat_:.3g}" in message
    assert f"{share:.1%} of 60 training samples" in message
    assert "Raise n_leapfrog, n_warmup or n_samples" in message


def test_divergences_are_reported():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hmc = _quick(kernel__step_size=1e3, kernel__thin=2).fit(X, y)
    assert hmc.n_divergences_.tolist() == [16, 16]
    (message,) = (str(w.message) for w in caught if "diverged" in str(w.message))
    assert "diverged in 32 of 32 transitions: steps of 1e+03" in message


def test_chains_that_agree_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hmc = _quick(LogisticRegression(), n_samples=100, kernel__n_warmup=50).fit(X, y)
    assert hmc.r_hat_ < 1.1


# --- other estimators, and errors ------------------------------------------------


@quiet
def test_pipelines_torch_networks_and_labels():
    names = np.array(["left", "right"])[y]
    torch_network = TorchClassifier(
        module_params={"hidden": (5,)}, max_epochs=3, random_state=0, device="cpu"
    )
    hmc = _quick(make_pipeline(StandardScaler(), torch_network)).fit(100 * X, names)
    assert hmc.samples_["head.weight"].shape == (16, 2, 5)
    assert hmc.samples_["head.weight"].dtype == np.float32
    assert set(hmc.predict(100 * X)) <= {"left", "right"}
    epistemic = hmc.predict_uncertainty(100 * X).epistemic
    alone = [hmc.predict_uncertainty(100 * X[[i]]).epistemic[0] for i in range(5)]
    assert_allclose(epistemic[:5], alone, rtol=1e-9)


@quiet
def test_search_over_the_kernel():
    grid = {"prior_scale": [0.1, 1.0], "kernel__n_leapfrog": [2]}
    clf = _quick(LogisticRegression(), kernel=None)
    search = GridSearchCV(clf, grid, cv=2).fit(X, y)
    assert search.best_params_["prior_scale"] in (0.1, 1.0)
    assert search.best_estimator_.kernel.n_leapfrog == 2


@quiet
def test_scales_of_other_parameters_keep_what_was_fitted():
    hmc = _quick(LogisticRegression()).fit(X, y)
    before = hmc.samples_
    hmc.set_params(prior_scale={"weight": 1.0})
    with pytest.raises(ValueError, match=r"each parameter of the network, \['0.bias'"):
        hmc.fit(X, y)
    assert hmc.samples_ is before


# --- networks and modes that torch treats in another way -------------------------


@quiet
@each_sampler
def test_transformers(make):
    with seeded(0):
        module = Encoder()
    original = FrozenEstimator(pretrained(module, classes=[0, 1]))
    clf = make(original, random_state=0, device="cpu").fit(X.astype(np.float32), y)
    assert torch.backends.mha.get_fastpath_enabled()
    members = clf.predict_members(X.astype(np.float32))
    twin = copy.deepcopy(module).double().eval()
    for i, member in enumerate(members):
        weights = {k: torch.as_tensor(w[i]) for k, w in clf.samples_.items()}
        twin.load_state_dict(weights)
        with torch.no_grad():
            logits = twin(torch.as_tensor(X.astype(np.float32)).double())
        assert_allclose(member, torch.softmax(logits, 1), rtol=1e-8)


@quiet
@each_sampler
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(make, dtype):
    with seeded(0):
        module = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype)
    original = FrozenEstimator(pretrained(module, classes=[0, 1]))
    clf = make(original, random_state=0, device="cpu").fit(X, y)
    assert clf.samples_["0.weight"].dtype == np.float32
    assert np.isfinite(clf.predict_uncertainty(X).epistemic).all()


@quiet
@each_sampler
@pytest.mark.parametrize("kind", ["rows", "tensor"])
def test_inference_mode_of_the_caller(make, kind):
    torch_network = TorchClassifier(
        module_params={"hidden": (5,)}, max_epochs=2, random_state=0, device="cpu"
    )
    clf = make(FrozenEstimator(torch_network.fit(X, y)), random_state=0, device="cpu")
    expected = clf.fit(X, y).samples_
    with torch.inference_mode():
        selected = torch.tensor(X, dtype=torch.float32) if kind == "tensor" else X
        result = clf.fit(selected, y).samples_
        assert np.isfinite(clf.predict_uncertainty(selected).epistemic).all()
    for name, samples in expected.items():
        assert_array_equal(result[name], samples)


# --- diagnostics of many rows and of one chain -----------------------------------


@quiet
def test_many_samples_are_compared_on_a_subset(monkeypatch):
    many = np.random.default_rng(0).normal(size=(1200, 2))
    hmc = _quick(LogisticRegression(), init="estimator")
    hmc.fit(many, many[:, 0] > 0)
    assert hmc.r_hat_proba_.shape == (1000, 2)
    chains = hmc.predict_members(many).reshape(2, 8, 1200, 2)
    samples = np.sort(np.random.default_rng(0).choice(1200, 1000, replace=False))
    assert_allclose(hmc.r_hat_proba_, r_hat(chains)[samples], rtol=1e-6)
    monkeypatch.setattr(
        "skood.epistemic.mcmc._hmc.row_chunks",
        lambda n, size: (slice(i, i + 300) for i in range(0, n, 300)),
    )
    again = clone(hmc).fit(many, many[:, 0] > 0)
    assert_allclose(again.r_hat_proba_, hmc.r_hat_proba_, rtol=1e-12)


def test_halves_of_a_single_chain():
    with pytest.warns(SkoodWarning, match="The halves of the chain of HMC do not"):
        _quick(kernel__step_size=1e-6, n_chains=1).fit(X, y)


class _Casting(nn.Module):
    """Network whose output is float32 in any precision of its weights."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x).float()


def test_cast_output_is_predicted_in_float64():
    """Sampled in float32, where the cast has no effect; predictions are float64."""
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    network = FrozenEstimator(pretrained(_Casting(), classes=[0, 1]))
    kernel = HMCKernel(n_leapfrog=2, n_warmup=4)
    hmc = HMC(network, kernel, n_samples=4, n_chains=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hmc.fit(X, np.arange(20) % 2)
    weight = hmc.samples_["head.weight"].astype(np.float64)
    logits = X.astype(np.float64) @ weight.transpose(0, 2, 1)
    logits += hmc.samples_["head.bias"][:, None]
    assert_allclose(hmc.predict_members(X), softmax(logits, axis=2), rtol=1e-12)


def test_infinite_logits_raise():
    """Members of a model of scikit-learn, at samples whose logits overflow."""
    points = np.random.default_rng(0).normal(size=(20, 3))
    labels = (points[:, 0] > 0).astype(int)
    model = MLPClassifier((5,), max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(points, labels)
        model.coefs_ = [100 * coef for coef in model.coefs_]
        kernel = HMCKernel(n_leapfrog=2, n_warmup=4)
        hmc = HMC(FrozenEstimator(model), kernel, setting="a")
        hmc.set_params(n_samples=4, n_chains=1, random_state=0).fit(points, labels)
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(ValueError, match="Input logits contains"),
    ):
        hmc.predict_members(np.outer([1.0, -1.0], np.full(3, 1e308)))


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _sample(value_and_grad, start, *, seed=0, **kwargs):
    bar = progress(1, desc="", verbose=0)
    options = {"n_samples": 100, "n_warmup": 0, "n_leapfrog": 5}
    return sample(
        value_and_grad,
        torch.as_tensor(start, dtype=torch.float64),
        generator=_generator(seed),
        bar=bar,
        **{**options, **kwargs},
    )


def _gaussian(mean, covariance):
    precision = torch.as_tensor(np.linalg.inv(covariance))
    mean = torch.as_tensor(mean)

    def value_and_grad(z):
        grad = -(z - mean) @ precision
        return 0.5 * ((z - mean) * grad).sum(dim=1), grad

    return value_and_grad


def _quartic(z):
    """Not a normal density: its force grows with the third power."""
    value = -0.25 * (z**4).sum(dim=1) - 0.5 * (z[:, 0] * z[:, 1])
    return value, -(z**3) - 0.5 * z[:, [1, 0]]


def _follow(z, r, step, n_steps, inverse_mass=None):
    if inverse_mass is None:
        inverse_mass = torch.ones(z.shape[1], dtype=z.dtype)
    step = torch.full((len(z), 1), step, dtype=z.dtype)
    return leapfrog(_quartic, z, r, *_quartic(z), step, n_steps, inverse_mass)


def _state(n_chains=3, seed=0):
    draws = torch.randn(2, n_chains, 2, generator=_generator(seed), dtype=torch.float64)
    return draws[0], draws[1]


# --- leapfrog ------------------------------------------------------------------


def test_leapfrog_is_reversible():
    z, r = _state()
    mass = torch.tensor([0.5, 2.0], dtype=torch.float64)
    z1, r1, value, grad = _follow(z, r, 0.1, 17, mass)
    back, momentum, *_ = _follow(z1, -r1, 0.1, 17, mass)
    assert not torch.allclose(z1, z, atol=0.1)
    torch.testing.assert_close(back, z, rtol=0, atol=1e-12)
    torch.testing.assert_close(-momentum, r, rtol=0, atol=1e-12)
    torch.testing.assert_close((value, grad), _quartic(z1))


def test_energy_error_is_of_second_order():
    z, r = _state()

    def error(n_steps):
        _, r1, value, _ = _follow(z, r, 1.0 / n_steps, n_steps)
        return (0.5 * (r1**2 - r**2).sum(dim=1) - value + _quartic(z)[0]).abs()

    for coarse, fine in ((50, 100), (100, 200)):
        ratio = error(coarse) / error(fine)
        torch.testing.assert_close(
            ratio, torch.full_like(ratio, 4.0), rtol=0.02, atol=0
        )


def test_leapfrog_keeps_volume():
    z, r = _state(n_chains=1)

    def flow(state):
        end = _follow(state[None, :2], state[None, 2:], 0.2, 5)
        return torch.cat([end[0][0], end[1][0]])

    jacobian = torch.autograd.functional.jacobian(flow, torch.cat([z[0], r[0]]))
    assert float(torch.det(jacobian)) == pytest.approx(1.0, abs=1e-12)
    assert not torch.allclose(jacobian, torch.eye(4, dtype=torch.float64), atol=0.5)


def test_chains_do_not_see_each_other():
    z, r = _state()
    together = _follow(z, r, 0.1, 4)
    for i in range(3):
        alone = _follow(z[i : i + 1], r[i : i + 1], 0.1, 4)
        for result, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(result[i : i + 1], expected)


# --- transitions ---------------------------------------------------------------


def test_single_chain_against_a_loop():
    """Plain Python with the same draws gives the same samples."""
    step, n_leapfrog, n = 0.4, 5, 60
    chains = _sample(
        _quartic, [[1.0, -1.0]], step_size=step, n_samples=n, n_leapfrog=n_leapfrog
    )

    def log_p(z):
        return -0.25 * (z[0] ** 4 + z[1] ** 4) - 0.5 * z[0] * z[1]

    def force(z):
        return [-(z[0] ** 3) - 0.5 * z[1], -(z[1] ** 3) - 0.5 * z[0]]

    generator = _generator()
    z, accepted = [1.0, -1.0], []
    for i in range(n):
        n_steps = int(torch.randint(3, 8, (1,), generator=generator))
        r = torch.empty(1, 2, dtype=torch.float64).normal_(generator=generator)
        r = r[0].tolist()
        u = float(torch.empty(1, dtype=torch.float64).uniform_(generator=generator))
        q, p = list(z), list(r)
        for _ in range(n_steps):
            half = [a + 0.5 * step * b for a, b in zip(p, force(q), strict=True)]
            q = [a + step * b for a, b in zip(q, half, strict=True)]
            p = [a + 0.5 * step * b for a, b in zip(half, force(q), strict=True)]
        change = log_p(q) - log_p(z) + 0.5 * sum(a * a for a in r)
        change -= 0.5 * sum(a * a for a in p)
        accepted.append(min(1.0, math.exp(change)))
        z = q if u < accepted[-1] else z
        assert_allclose(chains.samples[0, i], z, rtol=1e-9)
        assert float(chains.log_density[0, i]) == pytest.approx(log_p(z), rel=1e-9)
    assert 0 < sum(a < 1 for a in accepted)
    assert len({tuple(row) for row in chains.samples[0].tolist()}) < n  # a rejection
    assert_allclose(chains.acceptance_rate, [np.mean(accepted)], rtol=1e-9)
    assert chains.step_size.tolist() == [step]
    assert chains.n_divergences.tolist() == [0]


def _z_scores(draws, expected):
    """Distance of means from what is expected, in their Monte-Carlo errors."""
    draws = draws[:, : draws.shape[1] // 10 * 10]
    batches = draws.reshape(len(draws) * 10, -1, *draws.shape[2:]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    return np.abs(batches.mean(axis=0) - expected) / error


@pytest.mark.parametrize("adapt_mass", [False, True])
def test_correlated_gaussian(adapt_mass):
    covariance = np.array([[4.0, 1.2, 0.0], [1.2, 0.5, 0.1], [0.0, 0.1, 0.2]])
    mean = np.array([1.0, -2.0, 3.0])
    chains = _sample(
        _gaussian(mean, covariance),
        np.zeros((8, 3)),
        n_samples=750,
        n_warmup=200,
        n_leapfrog=8,
        adapt_mass=adapt_mass,
    )
    draws = chains.samples.numpy()
    assert _z_scores(draws, mean).max() < 4
    products = (draws - mean)[..., :, None] * (draws - mean)[..., None, :]
    assert _z_scores(products, covariance).max() < 4
    assert r_hat(draws).max() < 1.01
    assert chains.n_divergences.sum() == 0


def test_thinning_keeps_every_third():
    start = np.ones((2, 2))
    all_of_them = _sample(_quartic, start, step_size=0.2, n_samples=30)
    thinned = _sample(_quartic, start, step_size=0.2, n_samples=10, thin=3)
    torch.testing.assert_close(thinned.samples, all_of_them.samples[:, 2::3])
    torch.testing.assert_close(thinned.log_density, all_of_them.log_density[:, 2::3])
    assert_allclose(thinned.acceptance_rate, all_of_them.acceptance_rate)


def test_long_steps_diverge_and_are_rejected():
    chains = _sample(_quartic, np.ones((2, 2)), step_size=50.0, n_samples=7, thin=2)
    assert chains.n_divergences.tolist() == [14, 14]
    assert chains.acceptance_rate.tolist() == [0.0, 0.0]
    assert (chains.samples == 1.0).all()


def test_undefined_densities_are_rejected():
    def square_root(z):  # NaN below zero
        return torch.sqrt(z[:, 0]) - z[:, 0], 0.5 / torch.sqrt(z) - 1

    chains = _sample(square_root, [[1.0]], step_size=0.5, n_samples=300)
    assert (chains.samples > 0).all()
    assert torch.isfinite(chains.log_density).all()
    assert 0 < chains.acceptance_rate[0] < 1


# --- adaptation ----------------------------------------------------------------


def test_dual_averaging_against_the_published_algorithm():
    """Hoffman & Gelman 2014, algorithm 5, in scalars."""
    rng = np.random.default_rng(0)
    accepts = rng.uniform(size=30)
    averaging = _DualAveraging(torch.tensor([0.3], dtype=torch.float64), 0.65)
    assert averaging.mean().tolist() == [0.3]
    mu, h, log_mean = math.log(10 * 0.3), 0.0, 0.0
    for m, accept in enumerate(accepts, start=1):
        h = (1 - 1 / (m + 10)) * h + (0.65 - accept) / (m + 10)
        log_step = mu - math.sqrt(m) / 0.05 * h
        log_mean = m**-0.75 * log_step + (1 - m**-0.75) * log_mean
        averaging.update(torch.tensor([accept], dtype=torch.float64))
        assert float(averaging.step) == pytest.approx(math.exp(log_step))
        assert float(averaging.mean()) == pytest.approx(math.exp(log_mean))


def test_target_orders_the_steps():
    gaussian = _gaussian(np.zeros(10), np.diag(np.linspace(0.5, 2, 10)))
    results = [
        _sample(gaussian, np.zeros((2, 10)), n_warmup=300, target_accept=target)
        for target in (0.5, 0.8, 0.95)
    ]
    steps = [item.step_size.mean() for item in results]
    rates = [item.acceptance_rate.mean() for item in results]
    assert steps[0] > steps[1] > steps[2] > 0
    assert rates[0] < rates[1] < rates[2]
    assert abs(rates[1] - 0.8) < 0.1


def test_first_step_on_a_plateau_is_finite():
    """Nothing is ever rejected, so the search has to end on its own."""

    def flat(z):
        return torch.zeros(len(z), dtype=torch.float64), torch.zeros_like(z)

    sampler = _Sampler(flat, torch.zeros((2, 3), dtype=torch.float64), _generator())
    step = sampler.first_step(torch.full((2,), 0.1, dtype=torch.float64))
    assert torch.isfinite(step).all() and (step > 1e20).all()


def test_single_gradient_per_transition():
    """The number of steps has nothing to vary; this is Langevin dynamics."""
    gaussian = _gaussian(np.zeros(2), np.eye(2))
    chains = _sample(
        gaussian, np.zeros((6, 2)), n_leapfrog=1, step_size=0.8, n_samples=700
    )
    draws = chains.samples.numpy()
    assert _z_scores(draws**2, np.ones(2)).max() < 4


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_first_step_follows_the_scale(scale):
    """One step of it is accepted about half of the time, whatever the units."""
    gaussian = _gaussian(np.zeros(20), scale**2 * np.eye(20))
    start = scale * torch.randn(4, 20, generator=_generator(1), dtype=torch.float64)
    sampler = _Sampler(gaussian, start, _generator())
    step = sampler.first_step(torch.full((4,), 0.1, dtype=torch.float64))
    assert (step > 0.3 * scale).all() and (step < 5 * scale).all()


def test_masses_are_inverse_variances():
    """Scales that differ by 1e4 are sampled with few steps."""
    variances = np.array([1e-4, 1.0, 1e4])
    kwargs = {"n_warmup": 400, "n_leapfrog": 6, "n_samples": 150}
    results = [
        _sample(
            _gaussian(np.zeros(3), np.diag(variances)),
            np.zeros((6, 3)),
            adapt_mass=adapt,
            **kwargs,
        )
        for adapt in (False, True)
    ]
    without, adapted = (item.samples.numpy().var(axis=(0, 1)) for item in results)
    assert without[2] < 0.5 * variances[2]
    assert_allclose(adapted, variances, rtol=0.4)


# --- R-hat ---------------------------------------------------------------------


def _naive_r_hat(draws):
    """Equations 3, 4 and 14 of Vehtari et al. 2021, for one quantity."""
    n = draws.shape[1] // 2
    halves = [half for chain in draws for half in (chain[:n], chain[-n:])]
    median = np.median(np.concatenate(halves))

    def ratio_of(chains):
        values = np.concatenate(chains)
        z = []
        for chain in chains:
            row = []
            for value in chain:
                rank = np.sum(values < value) + (np.sum(values == value) + 1) / 2
                row.append(norm.ppf((rank - 3 / 8) / (len(values) + 1 / 4)))
            z.append(row)
        means = [np.mean(row) for row in z]
        between = n * np.sum((means - np.mean(means)) ** 2) / (len(z) - 1)
        within = np.mean([np.sum((row - np.mean(row)) ** 2) / (n - 1) for row in z])
        return np.sqrt(((n - 1) / n * within + between / n) / within)

    return max(ratio_of(halves), ratio_of([np.abs(half - median) for half in halves]))


@pytest.mark.parametrize("n_draws", [4, 15, 40])
def test_r_hat_against_a_loop(n_draws):
    draws = np.random.default_rng(0).standard_t(3, size=(3, n_draws, 2, 2))
    draws[..., 1] = draws[..., 1].round()  # ties
    r_hats = r_hat(draws)
    for i in range(2):
        for j in range(2):
            expected = _naive_r_hat(draws[:, :, i, j])
            assert r_hats[i, j] == pytest.approx(expected, rel=1e-12)


def test_r_hat_finds_what_is_wrong():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    assert r_hat(good) == pytest.approx(1.0, abs=0.01)
    assert r_hat(np.exp(30 * good)) == pytest.approx(r_hat(good), abs=0.01)
    shifted, wide, drifting = good.copy(), good.copy(), good.copy()
    shifted[0] += 2
    wide[0] *= 5
    drifting += np.linspace(-2, 2, 500)
    for bad in (shifted, wide, drifting):
        assert r_hat(bad) > 1.1


def test_r_hat_of_constants():
    assert r_hat(np.ones((2, 10))) == 1.0
    # each chain has a value of its own
    assert r_hat(np.repeat([[1.0], [2.0]], 10, axis=1)) == np.inf


def test_r_hat_in_small_pieces(monkeypatch):
    """Memory is bounded, and each number is on its own."""
    draws = np.random.default_rng(0).normal(size=(3, 21, 4, 5)).astype(np.float32)
    expected = r_hat(draws)
    assert expected.shape == (4, 5)
    seen = []

    def pieces(n_numbers, n_bytes):
        seen.append((n_numbers, n_bytes))
        return (slice(i, i + 3) for i in range(0, n_numbers, 3))

    monkeypatch.setattr(_chains, "row_chunks", pieces)
    assert_array_equal(r_hat(draws), expected)
    assert seen == [(20, 10 * 8 * 63)]
    assert r_hat(draws[:, :, 1, 2]).shape == ()
    assert r_hat(draws[:, :, 1, 2]) == expected[1, 2]
