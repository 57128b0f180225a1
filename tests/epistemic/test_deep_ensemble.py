"""Ensembles against loops over their members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from joblib.externals.loky.backend.reduction import dumps
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from torch import nn

from skood.epistemic import DeepEnsemble
from skood.epistemic import _deep_ensemble as _ensembles
from skood.exceptions import SkoodWarning
from skood.nn import TorchClassifier
from tests.epistemic._naive import entropy, naive_uncertainty

TREE = DecisionTreeClassifier(max_features=1, max_depth=3)
NET = TorchClassifier(module_params={"hidden": (6,)}, max_epochs=4, lr=0.05)


@pytest.fixture
def data():
    return make_blobs(90, 4, centers=3, cluster_std=4.0, random_state=0)


# ---- numbers


@pytest.mark.parametrize("base", [TREE, NET])
def test_setting_a_against_a_loop_over_members(data, base):
    X, y = data
    clf = DeepEnsemble(base, n_members=5, random_state=0).fit(X, y)
    assert len(clf.estimators_) == 5
    p = np.array([member.predict_proba(X) for member in clf.estimators_])
    assert_allclose(clf.predict_members(X), p, rtol=1e-12, atol=0)
    mixture = sum(p) / 5
    assert_allclose(clf.predict_proba(X), mixture, rtol=1e-12)
    assert_array_equal(clf.predict(X), clf.classes_[mixture.argmax(axis=1)])
    uncertainty = clf.predict_uncertainty(X)
    expected = naive_uncertainty(p)
    assert_allclose(uncertainty.total, expected.total, rtol=1e-9)
    assert_allclose(uncertainty.aleatoric, expected.aleatoric, rtol=1e-9, atol=1e-15)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-9, atol=1e-12)
    assert uncertainty.epistemic.max() > 0.01


@pytest.mark.parametrize("with_reference", [True, False])
def test_setting_b_against_a_loop_over_members(data, with_reference):
    X, y = data
    reference = LogisticRegression().fit(X, y) if with_reference else None
    clf = DeepEnsemble(
        NET,
        n_members=4,
        reference=FrozenEstimator(reference) if with_reference else None,
        setting="b",
        random_state=0,
    ).fit(X, y)
    original = reference if with_reference else clf.estimators_[0]
    p = original.predict_proba(X)
    assert_allclose(clf.predict_proba(X), p, rtol=1e-12)
    assert_array_equal(clf.predict(X), original.predict(X))
    uncertainty = clf.predict_uncertainty(X)
    members = [member.predict_proba(X) for member in clf.estimators_]
    expected = naive_uncertainty(members, reference=p)
    assert_allclose(uncertainty.aleatoric, expected.aleatoric, rtol=1e-9)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-9)
    assert_array_equal(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)


def test_auto_is_b_with_a_reference(data):
    X, y = data
    params = {"n_members": 2, "random_state": 0}
    plain = DeepEnsemble(TREE, **params).fit(X, y)
    same = DeepEnsemble(TREE, setting="a", **params).fit(X, y)
    assert_array_equal(plain.predict_proba(X), same.predict_proba(X))
    reference = LogisticRegression()
    clf = DeepEnsemble(TREE, reference=reference, **params).fit(X, y)
    assert clf.estimator_ is not reference
    assert not hasattr(reference, "coef_")
    expected = LogisticRegression().fit(X, y).predict_proba(X)
    assert_allclose(clf.predict_proba(X), expected, rtol=1e-12)
    mixture = clf.set_params(setting="a").predict_proba(X)
    assert_array_equal(mixture, plain.predict_proba(X))


def test_members_that_agree_have_no_epistemic_uncertainty(data):
    X, y = data
    member = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.warns(
        SkoodWarning, match="All 3 members of DeepEnsemble give the same"
    ):
        clf = DeepEnsemble([member] * 3).fit(X, y)
    uncertainty = clf.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, 0.0, atol=1e-14)
    expected = [entropy(p) for p in member.predict_proba(X)]
    assert_allclose(uncertainty.total, expected, rtol=1e-12)


def test_sure_members_that_contradict_each_other(data):
    """One vote for each class: the mutual information is log(3)."""
    X, y = data
    names = np.array([0, 1, 2])
    members = [
        FrozenEstimator(DecisionTreeClassifier().fit(X, np.roll(names, k)[y]))
        for k in range(3)
    ]
    uncertainty = DeepEnsemble(members).fit(X, y).predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, np.log(3), rtol=1e-12)
    assert_allclose(uncertainty.aleatoric, 0.0, atol=1e-15)


def test_samples_in_blocks_give_the_same(data, monkeypatch):
    X, y = data
    clf = DeepEnsemble(NET, n_members=3, setting="b", random_state=0).fit(X, y)
    whole = clf.predict_uncertainty(X), clf.predict_members(X), clf.predict_proba(X)

    def short_chunks(n_samples, bytes_per_row):
        assert bytes_per_row >= 3 * 3 * 8
        yield from (slice(k, min(k + 7, n_samples)) for k in range(0, n_samples, 7))

    monkeypatch.setattr(_ensembles, "row_chunks", short_chunks)
    assert len(list(clf._blocks(X))) == 13
    for samples in (X, torch.from_numpy(X), X.tolist()):
        parts = clf.predict_uncertainty(samples)
        for name, component in parts.items():
            assert_allclose(component, whole[0][name], rtol=1e-12, atol=1e-15)
        assert_allclose(clf.predict_members(samples), whole[1], rtol=1e-12)
        assert_allclose(clf.predict_proba(samples), whole[2], rtol=1e-12)
    forest = DeepEnsemble(TREE, n_members=3, random_state=0).fit(csr_matrix(X), y)
    assert_array_equal(forest.predict_members(csr_matrix(X)), forest.predict_members(X))


# ---- seeds


def _weights(member):
    return member.module_.head.weight.detach().numpy()


@pytest.mark.parametrize("bootstrap", [False, True])
def test_seeds(data, bootstrap):
    X, y = data
    options = {"bootstrap": bootstrap, "random_state": 3}
    a = DeepEnsemble(NET, n_members=3, **options).fit(X, y)
    b = DeepEnsemble(NET, n_members=5, **options).fit(X, y)
    for first, second in zip(a.estimators_, b.estimators_, strict=False):
        assert_array_equal(_weights(first), _weights(second))
    seeds = [member.random_state for member in b.estimators_]
    assert len(set(seeds)) == 5
    assert all(isinstance(seed, int) for seed in seeds)
    other = DeepEnsemble(NET, n_members=3, **{**options, "random_state": 4}).fit(X, y)
    assert not np.array_equal(
        _weights(a.estimators_[0]), _weights(other.estimators_[0])
    )
    assert NET.random_state is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nested_seeds_are_set(data):
    X, y = data
    base = make_pipeline(
        StandardScaler(), UncertainSearch(MLPClassifier((3,), max_iter=20))
    )
    clf = DeepEnsemble(base, n_members=2, random_state=0).fit(X, y)
    seeds = [
        member.get_params()["uncertainsearch__estimator__random_state"]
        for member in clf.estimators_
    ]
    assert len(set(seeds)) == 2
    assert None not in seeds


class UncertainSearch(LogisticRegression):
    """A classifier with another inside of it."""

    def __init__(self, estimator=None):
        super().__init__()
        self.estimator = estimator

    def fit(self, X, y):
        """Fit the one inside, and itself on its probabilities."""
        self.inner_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        """Ask the one inside."""
        return self.inner_.predict_proba(X)

    def predict_log_proba(self, X):
        """Ask the one inside."""
        return np.log(self.predict_proba(X))


# ---- bootstrap


def test_bootstrap_draws_as_many_of_each_class(data):
    X, y = data
    X = np.arange(len(X), dtype=float)[:, None]

    class Rows(KNeighborsClassifier):
        def fit(self, X, y, sample_weight=None):
            self.rows_ = np.asarray(X)[:, 0].astype(int)
            self.y_, self.weight_ = np.asarray(y), sample_weight
            return super().fit(X, y)

    weight = np.linspace(1, 2, len(X))
    names = np.array(["ant", "bee", "cat"])[y]
    names[:4] = "dog"  # few rows
    clf = DeepEnsemble(Rows(), n_members=20, bootstrap=True, random_state=0)
    clf.fit(X, names, sample_weight=weight)
    drawn = [member.rows_ for member in clf.estimators_]
    for member in clf.estimators_:
        assert_array_equal(member.y_, names[member.rows_])
        assert_array_equal(member.weight_, weight[member.rows_])
        for name in np.unique(names):
            assert np.sum(member.y_ == name) == np.sum(names == name)
    # a row is missed with probability (1 - 1/n)^n of its class
    missed = np.mean([1 - len(np.unique(samples)) / len(X) for samples in drawn])
    sizes = np.unique(names, return_counts=True)[1]
    expected = np.sum(sizes * (1 - 1 / sizes) ** sizes) / len(X)
    assert missed == pytest.approx(expected, abs=0.03)
    assert not np.array_equal(drawn[0], drawn[1])


class Noting(LogisticRegression):
    """Notes what it was fitted on."""

    def fit(self, X, y, sample_weight=None):
        """Fit and note."""
        self.rows_ = np.asarray(X)[:, 0].astype(int)
        self.weight_ = np.asarray(sample_weight)
        return super().fit(X, y, sample_weight=sample_weight)


def test_bootstrap_draws_no_samples_of_weight_zero(data):
    """As many of the others of each class as there are, however few."""
    X, y = np.arange(90.0)[:, None], np.arange(90) % 3
    weight = np.zeros(90)
    weight[[0, 3, 6, 1, 4]] = 1.0, 2.0, 3.0, 4.0, 5.0  # none of class 2
    base = Noting(max_iter=1000)
    clf = DeepEnsemble(base, n_members=8, bootstrap=True, random_state=0)
    clf.fit(X, y, sample_weight=weight)
    drawn = [tuple(m.rows_[m.weight_ > 0].tolist()) for m in clf.estimators_]
    for member, samples in zip(clf.estimators_, drawn, strict=True):
        assert sorted(row % 3 for row in samples) == [0, 0, 0, 1, 1]
        assert_array_equal(member.weight_, weight[member.rows_])
    assert len(set(drawn)) > 1
    assert clf.classes_.tolist() == [0, 1, 2]


def test_bootstrap_of_frames_and_without_weights(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X)) + 1000)
    params = {"n_members": 3, "bootstrap": True, "random_state": 0}
    a = DeepEnsemble(TREE, **params).fit(frame, pd.Series(y, index=frame.index))
    b = DeepEnsemble(TREE, **params).fit(X, y)
    assert_array_equal(a.predict_members(frame), b.predict_members(X))
    assert list(a.feature_names_in_) == list("abcd")


# ---- weights


def test_sample_weight_reaches_the_members(data):
    X, y = data
    weight = np.where(y == 2, 0.0, 1.0) + np.linspace(0, 1, len(y))
    members = [LogisticRegression(C=1.0), LogisticRegression(C=0.01)]
    clf = DeepEnsemble(members).fit(X, y, sample_weight=weight)
    for member, fitted in zip(members, clf.estimators_, strict=True):
        expected = clone(member).fit(X, y, sample_weight=weight).coef_
        assert_allclose(fitted.coef_, expected, rtol=1e-6)


def test_sample_weight_reaches_the_reference(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    weight = np.where(y == 2, 0.0, 1.0) + np.linspace(0, 1, len(y))
    base = LogisticRegression(max_iter=500)
    clf = DeepEnsemble(TREE, 2, reference=base, random_state=0)
    clf.fit(frame, y, sample_weight=weight)
    expected = clone(base).fit(X, y, sample_weight=weight)
    assert_allclose(clf.estimator_.coef_, expected.coef_, rtol=1e-6)
    assert not np.allclose(expected.coef_, clone(base).fit(X, y).coef_, rtol=0.1)
    assert list(clf.feature_names_in_) == list("abcd")
    frozen = FrozenEstimator(KNeighborsClassifier().fit(X, y))
    clf.set_params(reference=frozen).fit(X, y, sample_weight=weight)
    assert clf.estimator_ is frozen
    clf.set_params(reference=KNeighborsClassifier())
    with pytest.raises(ValueError, match="KNeighborsClassifier has no sample_weight"):
        clf.fit(X, y, sample_weight=weight)
    assert clf.estimator_ is frozen


def test_weights_that_a_member_does_not_take(data):
    X, y = data
    weight = np.ones(len(y))
    frozen = FrozenEstimator(KNeighborsClassifier().fit(X, y))
    DeepEnsemble([frozen, TREE], random_state=0).fit(X, y, sample_weight=weight)
    clf = DeepEnsemble([frozen, KNeighborsClassifier()])
    with pytest.raises(
        ValueError, match="KNeighborsClassifier has no sample_weight in"
    ):
        clf.fit(X, y, sample_weight=weight)


# ---- lists of members


def test_frozen_members_come_through(data):
    X, y = data
    fitted = [TREE, LogisticRegression(), KNeighborsClassifier(50)]
    frozen = [FrozenEstimator(clone(member).fit(X, y)) for member in fitted]
    clf = DeepEnsemble([*frozen, SGDClassifier(loss="log_loss")], random_state=0)
    clf = clone(clf).fit(X, y)
    assert [a is b for a, b in zip(clf.estimators_, frozen, strict=False)] == [True] * 3
    assert isinstance(clf.estimators_[3].random_state, int)
    p = np.mean([member.predict_proba(X) for member in clf.estimators_], axis=0)
    assert_allclose(clf.predict_proba(X), p, rtol=1e-12)
    # a list says how many there are
    assert len(clf.set_params(n_members=2).fit(X, y).estimators_) == 4
    assert DeepEnsemble(frozen).fit(X, None).predict(X).shape == y.shape


def test_members_of_different_classes_raise(data):
    X, y = data
    members = [
        FrozenEstimator(LogisticRegression().fit(X, y)),
        FrozenEstimator(LogisticRegression().fit(X[y < 2], y[y < 2])),
    ]
    text = r"the same classes in the same order, got \[0, 1, 2\] and \[0, 1\]\."
    with pytest.raises(ValueError, match=text):
        DeepEnsemble(members).fit(X, y)
    with pytest.raises(ValueError, match=text):
        DeepEnsemble(TREE, 2, reference=members[1]).fit(X, y)


def test_lists_that_hold_no_classifiers(data):
    with pytest.raises(ValueError, match="estimator is an empty list"):
        DeepEnsemble([]).fit(*data)
    with pytest.raises(
        TypeError, match=r"with fit and predict_proba, got Linear\(in_f"
    ):
        DeepEnsemble([nn.Linear(4, 3)]).fit(*data)


def test_single_frozen_estimator_is_no_ensemble(data):
    X, y = data
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    with pytest.raises(ValueError, match="all 10 members would be the same model"):
        DeepEnsemble(frozen).fit(X, y)


# ---- parameters and state


def test_equal_members_are_reported(data):
    X, y = data
    text = (
        "All 3 members of DeepEnsemble give the same probabilities for 90 of the "
        r"training samples: .* depend on random_state, .*Use bootstrap=True, or another"
    )
    base = LogisticRegression(max_iter=500)
    with pytest.warns(SkoodWarning, match=text):
        DeepEnsemble(base, n_members=3).fit(X, y)
    clf = DeepEnsemble(base, n_members=3, bootstrap=True, random_state=0).fit(X, y)
    assert clf.predict_uncertainty(X).epistemic.max() > 0
    alone = DeepEnsemble(base, n_members=1).fit(X, y)
    assert_allclose(alone.predict_uncertainty(X).epistemic, 0.0, atol=1e-14)


def test_equal_members_of_drawn_samples(data):
    """They are not told to draw rows."""
    X, y = data
    prior = DummyClassifier()  # says how frequent classes are
    text = r"depend on random_state and the samples that are drawn, .* Use another est"
    with pytest.warns(SkoodWarning, match=text):
        DeepEnsemble(prior, n_members=3, bootstrap=True).fit(X, y)


def test_members_that_differ_for_late_samples_only():
    """They are compared on rows from the first to the last."""
    X = np.arange(300.0)[:, None]
    y = (X[:, 0] >= 150).astype(int)
    late = np.where(X[:, 0] >= 290, 0, y)
    members = [
        FrozenEstimator(DecisionTreeClassifier().fit(X, codes)) for codes in (y, late)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeepEnsemble(members).fit(X, y)


def test_missing_labels(data):
    X, y = data
    for bootstrap in (False, True):
        clf = DeepEnsemble(TREE, bootstrap=bootstrap)
        with pytest.raises(ValueError, match="requires y to be passed"):
            clf.fit(X, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        DeepEnsemble(TREE, bootstrap=True).fit(X, y[:-1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        DeepEnsemble(TREE, bootstrap=True).fit(X, y, sample_weight=np.ones(180))
    with pytest.raises(ValueError, match="Sample weights must be 1D"):
        clf.fit(X, y, sample_weight=np.ones((90, 2)))


def test_empty_narrow_and_odd_input(data):
    X, y = data
    clf = DeepEnsemble(TREE, n_members=2, random_state=0).fit(X, y)

    class Rows:
        """An array, and nothing else."""

        def __array__(self, dtype=None, copy=None):
            return np.array(X, dtype=dtype)

    members = clf.predict_members(X)
    clf.fit(Rows(), y)
    assert_array_equal(clf.predict_members(Rows()), members)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        clf.predict_uncertainty(X[:0])
    with pytest.raises(ValueError, match="X has 3 features, but"):
        clf.predict_proba(X[:, :3])


class Sparse(LogisticRegression):
    """Says that it takes sparse rows, which LogisticRegression did not always."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def test_tags_follow_the_estimator():
    assert get_tags(DeepEnsemble(Sparse())).input_tags.sparse
    assert get_tags(DeepEnsemble([Sparse(), Sparse()])).input_tags.sparse
    assert not get_tags(DeepEnsemble([Sparse(), NET])).input_tags.sparse
    assert not get_tags(DeepEnsemble(NET)).input_tags.sparse
    assert not get_tags(DeepEnsemble([])).input_tags.sparse
    assert get_tags(DeepEnsemble([MultinomialNB()])).input_tags.positive_only


# ---- processes


def _one_by_one(n_jobs):
    """As other processes would: copies of the jobs, the last one first."""

    def run(jobs):
        sent = [pickle.loads(dumps(job)) for job in jobs][::-1]
        done = [function(*args, **kwargs) for function, args, kwargs in sent]
        return [pickle.loads(dumps(member)) for member in done[::-1]]

    return run


@pytest.mark.filterwarnings("ignore:`sklearn.utils.parallel.delayed`:UserWarning")
@pytest.mark.parametrize(
    "in_processes", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_processes_give_the_same_members(data, in_processes, monkeypatch):
    """Also with a network whose class cannot be imported."""
    X, y = data

    class Local(nn.Sequential):
        def __init__(self, input_shape, n_classes):
            super().__init__(
                nn.Linear(*input_shape, 5), nn.Tanh(), nn.Linear(5, n_classes)
            )

    base = make_pipeline(StandardScaler(), TorchClassifier(Local, max_epochs=3))
    fitted = DeepEnsemble(base, n_members=3, random_state=0).fit(X, y)
    if not in_processes:
        monkeypatch.setattr(_ensembles, "as_they_come", _one_by_one)
    two = DeepEnsemble(base, n_members=3, random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(two.predict_members(X), fitted.predict_members(X))
    assert all(type(m[-1].module_) is Local for m in two.estimators_)


def test_a_backend_that_gives_all_results_at_once(data):
    X, y = data
    fitted = DeepEnsemble(TREE, n_members=3, random_state=0).fit(X, y)
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        two = DeepEnsemble(TREE, n_members=3, random_state=0).fit(X, y)
    assert_array_equal(two.predict_members(X), fitted.predict_members(X))
