"""HMC on networks against quadrature, and what it tells about its chains."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
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
from skood.epistemic.mcmc._hmc import r_hat
from skood.exceptions import SkoodWarning
from skood.nn import TorchClassifier, pretrained
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
