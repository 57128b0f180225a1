"""What classifiers with many models have in common, against loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import math
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import skood.epistemic
from skood.epistemic import HMC, Laplace, MCDropout, PackedEnsemble
from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import Block
from skood.graph import GraphClassifier
from skood.nn import TorchClassifier
from skood.utils._atomic_fit import fresh_fit
from skood.utils._log_proba import log_proba_of
from skood.utils._param_validation import fit_context
from tests.epistemic._naive import naive_uncertainty

LOG_PROBA = log_softmax(
    3 * np.random.default_rng(0).normal(size=(4, 7, 3)), axis=-1
)  # of 4 members, for 7 rows
WEIGHTS = np.random.default_rng(1).dirichlet(np.ones(4), size=7).T


class Fixed(BaseMembers):
    """Its members are given, in blocks of three rows."""

    _parameter_constraints: dict = {
        **BaseMembers._parameter_constraints,
        "weights": [np.ndarray, None],
    }

    def __init__(self, estimator, setting="auto", weights=None):
        self.estimator = estimator
        self.setting = setting
        self.weights = weights

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Fit the given model."""
        with fresh_fit(self):
            self._fit_estimator(X, y)
        return self

    def _blocks(self, X):
        reference = self._reference(X)
        for start in (0, 3, 6):
            samples = slice(start, start + 3)
            weights = self.weights
            if weights is not None and weights.ndim == 2:
                weights = weights[:, samples]
            yield Block(LOG_PROBA[:, samples], weights, reference[samples])


@pytest.fixture
def data():
    return make_blobs(7, 2, centers=3, cluster_std=3.0, random_state=0)


@pytest.mark.parametrize("kind", ["none", "common", "by row"])
def test_setting_a_is_about_the_mixture(data, kind):
    X, y = data
    original = {"none": None, "common": WEIGHTS[:, 0], "by row": WEIGHTS}[kind]
    clf = Fixed(LogisticRegression(), weights=original).fit(X, y)
    p = np.exp(LOG_PROBA)
    assert_allclose(clf.predict_members(X), p, rtol=1e-14)
    w = {"none": np.full((4, 7), 0.25), "by row": WEIGHTS}.get(
        kind, np.tile(WEIGHTS[:, :1], 7)
    )
    mixture = np.einsum("ni,nik->ik", w, p)
    assert_allclose(clf.predict_proba(X), mixture, rtol=1e-13)
    assert_array_equal(clf.predict(X), mixture.argmax(axis=1))
    result, expected = clf.predict_uncertainty(X), naive_uncertainty(p, w)
    for name, values in expected.items():
        assert_allclose(result[name], values, rtol=1e-10)


@pytest.mark.parametrize("setting", ["b", "auto"])
def test_setting_b_is_about_the_fixed_model(data, setting):
    X, y = data
    fitted = LogisticRegression().fit(X, y)
    clf = Fixed(FrozenEstimator(fitted), setting=setting, weights=WEIGHTS).fit(X, y)
    assert clf.estimator_ is clf.estimator
    p, q = fitted.predict_proba(X), np.exp(LOG_PROBA)
    assert_allclose(clf.predict_proba(X), p, rtol=1e-12)
    assert_array_equal(clf.predict(X), fitted.predict(X))
    result, expected = clf.predict_uncertainty(X), naive_uncertainty(q, WEIGHTS, p)
    for name, values in expected.items():
        assert_allclose(result[name], values, rtol=1e-10)


def test_members_without_weight_count_nothing(data):
    X, y = data
    weights = np.array([0.0, 1.0, 0.0, 0.0])
    clf = Fixed(LogisticRegression(), weights=weights).fit(X, y)
    assert_allclose(clf.predict_proba(X), np.exp(LOG_PROBA[1]), rtol=1e-14)
    assert_allclose(clf.predict_uncertainty(X).epistemic, 0, atol=1e-15)


# ---- log-probabilities of any classifier


class OnlyProba(DecisionTreeClassifier):
    """Does not tell the logarithm."""

    predict_log_proba = None  # type: ignore[assignment]

    def __getattribute__(self, name):
        if name == "predict_log_proba":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_log_proba_of_each_kind(data):
    X, y = data
    linear = LogisticRegression(C=1e3).fit(X, y)
    assert_array_equal(log_proba_of(linear, X), linear.predict_log_proba(X))
    for tree in (DecisionTreeClassifier(), OnlyProba()):
        log_p = log_proba_of(tree.fit(X, y), X)
        expected = np.where(np.eye(3)[y] == 1, 0.0, -np.inf)
        assert_array_equal(log_p, expected)


def test_log_proba_keeps_the_digits_of_sure_networks(data):
    """Logits 800 apart: the probability is 0, its logarithm is -800."""
    X, y = data
    net = TorchClassifier(max_epochs=1, random_state=0).fit(100 * X, y)
    X = 1e5 * X
    logits = net.predict_logits(X)
    assert (net.predict_proba(X) == 0).any()
    result = log_proba_of(FrozenEstimator(net), X)
    assert result.dtype == np.float64
    for row, z in zip(result, logits, strict=True):
        top = max(z)
        expected = [
            v - top - math.log(math.fsum(math.exp(u - top) for u in z)) for v in z
        ]
        assert_allclose(row, expected, rtol=1e-12)


# ---- the package


class NoTorch:
    """Finder for which there is no torch; lists the modules that import it."""

    def __init__(self):
        self.asked = []

    def find_spec(self, name, *rest):
        if name.split(".")[0] == "torch":
            self.asked.append(name)
            raise ImportError(name)


@pytest.fixture
def without_torch():
    """Rooms are imported anew, and torch is not found."""
    before, finder = dict(sys.modules), NoTorch()
    for name in before:
        if name.split(".")[0] in ("skood", "torch"):
            del sys.modules[name]
    sys.meta_path.insert(0, finder)
    yield finder
    sys.meta_path.remove(finder)
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def test_rooms_are_imported_without_torch(without_torch):
    importlib.import_module("skood.nn._shared_forward")
    epistemic = importlib.import_module("skood.epistemic")
    evidential = importlib.import_module("skood.evidential")
    assert epistemic is not skood.epistemic
    epistemic.member_uncertainty(np.log([[[0.5, 0.5]]]))
    evidential.vacuity([1.0, 1.0])
    assert evidential.__dir__() == sorted(evidential.__all__)
    assert not without_torch.asked
    with pytest.raises(ImportError, match="torch"):
        epistemic.MCDropout  # noqa: B018
    assert without_torch.asked


def test_estimators_are_imported_on_first_use():
    for name in skood.epistemic.__all__:
        assert getattr(skood.epistemic, name).__name__ == name
    with pytest.raises(AttributeError, match=r"'skood.epistemic' has no attribute 'N'"):
        skood.epistemic.N  # noqa: B018
    assert dir(skood.epistemic) == sorted(skood.epistemic.__all__)


class Rounded(DecisionTreeClassifier):
    """Gives probabilities in float32, or what does not sum to one."""

    factor = 1.0

    def predict_proba(self, X):
        p = np.array([0.7, 0.2, 0.1], dtype=np.float32) * np.float32(self.factor)
        return np.tile(p, (len(X), 1))

    def predict_log_proba(self, X):
        return np.log(self.predict_proba(X))


def test_rounded_probabilities_are_normalized(data):
    X, y = data
    net = Rounded().fit(X, y)
    p = net.predict_proba(X).astype(float)
    assert np.abs(p.sum(axis=1) - 1).max() > 1e-9
    clf = Fixed(FrozenEstimator(net), setting="b").fit(X, y)
    assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0, rtol=1e-15)
    assert_allclose(clf.predict_proba(X), p, rtol=1e-6)
    net.factor = 2.0
    text = r"What Rounded predicts must hold the logarithms .* sum to 2 to 2\. Pass"
    with pytest.raises(ValueError, match=text):
        log_proba_of(net, X)


def test_sample_weights_reach_the_fixed_model(data):
    X, y = data
    weight = np.linspace(0.1, 3, len(X))
    clf = Fixed(LogisticRegression())
    clf._fit_estimator(X, y, weight)
    expected = LogisticRegression().fit(X, y, weight).coef_
    assert_array_equal(clf.estimator_.coef_, expected)
    assert clf.n_features_in_ == X.shape[1]


_NET = TorchClassifier(module_params={"dropout": 0.2}, max_epochs=2, random_state=0)
_GRAPH_NET = GraphClassifier(max_epochs=2, random_state=0)


@pytest.mark.parametrize(
    "estimator",
    [
        HMC(_NET, n_samples=4, n_chains=1, random_state=0),
        Laplace(_NET, random_state=0),
        MCDropout(_NET, n_samples=3, random_state=0),
        MCDropout(_GRAPH_NET, n_samples=3, random_state=0),
        PackedEnsemble(_NET, n_members=2),
    ],
)
@pytest.mark.filterwarnings("ignore:The chains of HMC do not agree")
def test_autocast_of_the_caller_has_no_effect(estimator):
    X, y = make_blobs(60, 4, centers=3, cluster_std=4.0, random_state=0)
    expected = clone(estimator).fit(X, y).predict_members(X)
    with torch.autocast("cpu", torch.bfloat16):
        estimator = clone(estimator).fit(X, y)
        assert_array_equal(estimator.predict_members(X), expected)
        assert torch.is_autocast_enabled("cpu")
