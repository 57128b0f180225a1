"""QUAM of all kinds of classifiers; what it must not touch; its parameters."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skood.epistemic import QUAM
from skood.nn import TorchClassifier, pretrained
from tests.epistemic._quam import FIELDS, QUICK, make_quam

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# ---- all kinds of classifiers


def _kinds():
    return {
        "linear": LogisticRegression(),
        "mlp": MLPClassifier((6, 5), max_iter=30, random_state=0),
        "torch": TorchClassifier(max_epochs=3, random_state=0),
        "pipeline": make_pipeline(
            StandardScaler(), TorchClassifier(max_epochs=3, random_state=0)
        ),
        "search": GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    }


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", _kinds())
def test_kinds_of_classifiers(data, kind, n_classes):
    X, y = data
    names = np.array(["ant", "bee", "cat"])[y % n_classes]
    for scope in ("last", "dense", "full"):
        quam = make_quam(_kinds()[kind], scope=scope, **QUICK).fit(X, names)
        assert quam.classes_.tolist() == sorted(set(names))
        assert quam.n_features_in_ == 5
        uncertainty = quam.predict_uncertainty(X[:6])
        for name in FIELDS:
            assert uncertainty[name].shape == (6,)
            assert uncertainty[name].dtype == np.float64
        assert (uncertainty.epistemic > 0).all()
        assert_allclose(
            uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic
        )
        p = quam.estimator_.predict_proba(X)
        assert_allclose(quam.predict_proba(X), p, rtol=1e-12)
        entropy = -(p * np.log(p)).sum(axis=1)[:6]
        assert_allclose(uncertainty.aleatoric, entropy, rtol=1e-4)
        frozen = make_quam(FrozenEstimator(quam.estimator_), scope=scope, **QUICK)
        again = frozen.fit(X, names).predict_uncertainty(X[:6])
        assert_array_equal(again.epistemic, uncertainty.epistemic)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_last_layer_of_a_linear_classifier_is_all(data, C):
    X, y = data
    results = [
        make_quam(LogisticRegression(C=C), scope=scope, **QUICK)
        .fit(X, y % 2)
        .predict_uncertainty(X[:6])
        .epistemic
        for scope in ("last", "dense", "full")
    ]
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])


def test_probabilities_are_seen_through(data):
    """A softmax at the end of a network changes nothing."""
    X, y = data
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    results = []
    for module in (body, nn.Sequential(body, nn.Softmax(dim=1))):
        for scope in ("dense", "full"):
            quam = make_quam(pretrained(module, [0, 1, 2]), scope=scope, **QUICK).fit(
                X, y
            )
            results.append(quam.predict_uncertainty(X[:4]).epistemic)
    for other in results[1:]:
        assert_allclose(other, results[0], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_networks_of_few_digits_are_searched_in_float32(data, dtype):
    X, y = data
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    single = copy.deepcopy(module).float()
    X = torch.as_tensor(X).to(dtype).double().numpy()  # as the network reads them
    result, expected = (
        make_quam(pretrained(net, [0, 1, 2]), **QUICK)
        .fit(X, y)
        .predict_uncertainty(X[:4])
        for net in (module, single)
    )
    assert_allclose(result.epistemic, expected.epistemic, rtol=1e-6)


def test_strides(data, mlp):
    X, y = data
    expected = (
        make_quam(FrozenEstimator(mlp), **QUICK).fit(X, y).predict_uncertainty(X[:4])
    )
    for samples in (np.asfortranarray(X), X[::-1].copy()[::-1]):
        quam = make_quam(FrozenEstimator(mlp), **QUICK).fit(samples, y)
        uncertainty = quam.predict_uncertainty(samples[:4])
        assert_array_equal(uncertainty.epistemic, expected.epistemic)


def test_searches_with_and_without_an_adversarial_search(data):
    X, y = (array[:30] for array in data)
    clf = make_quam(MLPClassifier((6,), max_iter=5, random_state=0), **QUICK)
    grid = {"estimator__alpha": [1.0], "search__n_steps": [3]}
    for original in (clf, clone(clf).set_params(search=None)):
        search = GridSearchCV(original, grid, cv=2).fit(X, y)
        assert search.best_estimator_.search.n_steps == 3
        assert search.best_estimator_.predict_uncertainty(X[:2]).total.shape == (2,)


def test_far_points_are_uncertain():
    X, y = make_blobs(100, 2, centers=[[-2, 0], [2, 0]], random_state=0)
    clf = MLPClassifier((20,), solver="lbfgs", alpha=0.1, random_state=0)
    quam = QUAM(clf, random_state=0).fit(X, y)
    for setting in ("a", "b"):
        quam.set_params(setting=setting)
        near, far = quam.predict_uncertainty([[-2, 0], [0, -9]]).epistemic
        assert far > 5 * near


# ---- what is not touched


class Hooked(nn.Module):
    """A network with a buffer, batch norm, dropout and functions in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 2)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.body, self.head = nn.Linear(12, 6), nn.Linear(6, 3)

    def forward(self, x):
        """Of vectors."""
        h = nn.functional.relu(self.norm(self.conv(x[:, None])), inplace=True)
        return self.head(self.drop(torch.relu(self.body(h.flatten(1)))))


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
@pytest.mark.parametrize("context", [None, torch.no_grad, torch.inference_mode])
def test_module_is_as_it_was(data, scope, context):
    X, y = data[0].astype(np.float32), data[1]
    torch.manual_seed(0)
    module = Hooked().train()
    module.norm.eval()
    module.body.weight.requires_grad_(False)
    module(torch.as_tensor(X)).sum().backward()
    calls = []
    module.head.register_forward_hook(lambda *call: calls.append(1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    grads = {n: p.grad.clone() for n, p in module.named_parameters() if p.requires_grad}
    needs = [p.requires_grad for p in module.parameters()]
    modes = [layer.training for layer in module.modules()]
    state = torch.get_rng_state()
    ids = [id(p) for p in module.parameters()]
    quam = make_quam(pretrained(module, [0, 1, 2]), scope=scope, **QUICK)
    with context() if context else torch.enable_grad():
        uncertainty = quam.fit(X, y).predict_uncertainty(X[:3])
        quam.trace(X[:1])
    assert (uncertainty.epistemic > 0).all()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    for name, p in module.named_parameters():
        assert (p.grad is None) == (name not in grads)
        assert p.grad is None or torch.equal(p.grad, grads[name])
        assert not p.is_inference()
    assert [p.requires_grad for p in module.parameters()] == needs
    assert [layer.training for layer in module.modules()] == modes
    assert [id(p) for p in module.parameters()] == ids
    n_hooks = [len(layer._forward_hooks) for layer in module.modules()]
    assert n_hooks == [0] * 5 + [1]
    assert not any(layer._forward_pre_hooks for layer in module.modules())
    assert torch.equal(torch.get_rng_state(), state)
    plain = quam.predict_uncertainty(X[:3])
    assert_array_equal(plain.epistemic, uncertainty.epistemic)


def test_autocast_of_the_caller_is_off(data):
    X, y = data[0].astype(np.float32), data[1]
    torch.manual_seed(0)
    frozen = pretrained(Hooked(), [0, 1, 2])
    expected = make_quam(frozen, **QUICK).fit(X, y).predict_uncertainty(X[:3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        uncertainty = make_quam(frozen, **QUICK).fit(X, y).predict_uncertainty(X[:3])
    assert_array_equal(uncertainty.epistemic, expected.epistemic)


# ---- parameters and state


def test_parameters_that_may_change_after_fit(data, quam):
    X, _ = data
    full = quam.trace(X[:1])
    fewer = quam.set_params(search__n_steps=3).trace(X[:1])
    for name in ("training_loss", "attack_loss", "log_proba", "loss"):
        assert_array_equal(fewer[name], full[name][:4])
    assert fewer.weights.sum() == pytest.approx(1.0)
    quam.set_params(setting="a", temperature=1.0, targets=1)
    quam.set_params(search__n_steps=5, search__lr=0.1, search__c0=1.0)
    assert (quam.predict_uncertainty(X[:3]).epistemic > 0).all()


@pytest.mark.parametrize(
    "change, now",
    [
        ({"search__n_steps": 6}, r"\('dense', 8, None\) and 6 now"),
        ({"scope": "last"}, r"\('last', 8, None\) and 5 now"),
        ({"search__batch_size": 9}, r"\('dense', 9, None\) and 5 now"),
        ({"component__n_evaluation_samples": 3}, r"\('dense', 8, 3\) and 5 now"),
    ],
)
def test_parameters_that_need_another_fit(data, quam, change, now):
    X, y = data
    text = (
        r"Training samples are drawn in fit, for scope, batch_size, "
        r"n_evaluation_samples = \('dense', 8, None\) and at most 5 steps\. They are "
    )
    with pytest.raises(ValueError, match=text + now + ": call fit again"):
        quam.set_params(**change).predict_uncertainty(X[:2])
    assert (quam.fit(X, y).predict_uncertainty(X[:2]).epistemic > 0).all()


def test_errors(data, mlp):
    X, y = data
    frozen = FrozenEstimator(mlp)
    with pytest.raises(TypeError, match="RandomForestClassifier has neither layers"):
        QUAM(RandomForestClassifier(n_estimators=2)).fit(X, y)
    with pytest.raises(ValueError, match=r"torch finds no CUDA|there are only"):
        QUAM(frozen, device="cuda:99").fit(X, y)
    quam = make_quam(frozen, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        quam.predict_uncertainty(X[:2, :4])
    with pytest.raises(ValueError, match="NaN"):
        quam.predict_uncertainty(np.full((2, 5), np.nan))


def test_steps_that_are_too_large(data, mlp):
    X, y = data
    quam = make_quam(FrozenEstimator(mlp), **{**QUICK, "lr": 1e300}).fit(X, y)
    text = r"returns NaN or infinity\. Lower lr=1e\+300, or scale the features"
    with pytest.raises(ValueError, match=text):
        quam.predict_uncertainty(X[:2])


def test_setting_auto(data, mlp):
    X, y = data
    for estimator, setting in ((FrozenEstimator(mlp), "b"), (clone(mlp), "a")):
        auto, same = (
            make_quam(estimator, setting=original, **QUICK)
            .fit(X, y)
            .predict_uncertainty(X[:3])
            for original in ("auto", setting)
        )
        assert_array_equal(auto.epistemic, same.epistemic)
