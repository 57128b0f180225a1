"""Tests of the states of a `MultiHeadClassifier`: going on, interrupts, pickles."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import scale

from skood.nn import MultiHeadClassifier
from tests.nn._networks import Body, Flat, InterruptingBody


@pytest.fixture(scope="module")
def iris():
    """Rows, and three columns of labels: species, length of petals, chance."""
    X, y = load_iris(return_X_y=True)
    long = (X[:, 2] > 1.5).astype(int) + (X[:, 2] > 5)
    chance = np.random.RandomState(0).randint(2, size=150)
    return scale(X), np.column_stack([y, long, chance])


@pytest.fixture(scope="module")
def frame(iris):
    """The labels with names, and of several kinds."""
    y = iris[1]
    species = np.array(["setosa", "versicolor", "virginica"])[y[:, 0]]
    columns = {"species": species, "long": y[:, 1], "chance": y[:, 2] == 1}
    return pd.DataFrame(columns)


@pytest.fixture
def quick():
    """A classifier that is trained in no time."""
    return MultiHeadClassifier(max_epochs=5, random_state=0)


class Square(Flat):
    """Squares of the values."""

    def forward(self, x):
        return x**2


# --- partial_fit ---------------------------------------------------------------


def test_partial_fit_is_one_epoch(iris, quick):
    X, y = iris
    one = clone(quick).set_params(max_epochs=1).fit(X, y).predict_logits(X)
    classes = [[2, 1, 0], np.array([0, 1, 2, 2]), [0, 1]]
    clf = quick.partial_fit(X, y, classes=classes)
    assert clf.n_iter_ == 1
    for found, expected in zip(clf.predict_logits(X), one, strict=True):
        assert_array_equal(found, expected)
    module = clf.set_params(lr=0.03).module_
    for _ in range(20):
        clf.partial_fit(X, y, classes=classes)
    assert clf.module_ is module
    assert [row["epoch"] for row in clf.history_] == list(range(1, 22))
    assert (clf.predict(X)[:, 0] == y[:, 0]).mean() > 0.95
    clf.partial_fit(X[:10], y[:10])  # without classes, and not of all of them


def test_partial_fit_with_names(iris, frame, quick):
    X, _ = iris
    classes = [frame[name].unique().tolist() for name in frame]
    clf = quick.partial_fit(X[:50], frame[:50], classes=classes)
    assert_array_equal(clf.target_names_, ["species", "long", "chance"])
    assert clf.partial_fit(X, frame).predict(X).shape == (150, 3)
    with pytest.raises(ValueError, match=r"y has the columns \['chance', 'long', 'spe"):
        clf.partial_fit(X, frame[["chance", "long", "species"]])


# --- states --------------------------------------------------------------------


def by_pickle(clf):
    return pickle.loads(pickle.dumps(clf))


def by_joblib(clf):
    file = io.BytesIO()
    joblib.dump(clf, file)
    file.seek(0)
    return joblib.load(file)


def by_skops(clf):
    skops_io = pytest.importorskip("skops.io")
    data = skops_io.dumps(clf)
    return skops_io.loads(data, trusted=skops_io.get_untrusted_types(data=data))


@pytest.mark.parametrize("copied", [by_pickle, by_joblib, by_skops])
@pytest.mark.parametrize("module", [None, Body])
def test_persistence(copied, module, iris, frame, quick):
    X, _ = iris
    params = {"dropout": 0.5} if module else None
    clf = quick.set_params(
        module=module, module_params=params, head_weights={"species": 2.0}
    ).fit(X, frame)
    other = copied(clf)
    assert set(vars(other)) == set(vars(clf))
    assert not other.module_.training
    for _ in range(2):
        assert_array_equal(other.predict(X), clf.predict(X))
        assert_array_equal(other.transform(X), clf.transform(X))
        clf.partial_fit(X, frame)
        other.partial_fit(X, frame)
    assert other.history_ == clf.history_


def test_pickle_holds_arrays_only(iris, quick):
    state = quick.fit(*iris).__getstate__()
    assert "net_" not in state
    arrays, device = state["_net_state"]
    assert device == "cpu"
    assert all(isinstance(w, np.ndarray) for w in arrays["module"].values())


def test_interrupts_never_happened(iris, frame, quick):
    X, y = iris
    quick.set_params(module=InterruptingBody, batch_size=40)
    try:
        InterruptingBody.batches_left = 3
        with pytest.raises(KeyboardInterrupt):
            quick.fit(X, y)
        assert set(vars(quick)) == set(quick.get_params())
        InterruptingBody.batches_left = None
        quick.fit(X, frame)
        logits, state = quick.predict_logits(X), dict(vars(quick))
        InterruptingBody.batches_left = 3
        with pytest.raises(KeyboardInterrupt):
            quick.fit(X, y[:, :2])
        assert vars(quick) == state
        InterruptingBody.batches_left = 2
        with pytest.raises(KeyboardInterrupt):
            quick.partial_fit(X, frame)
    finally:
        InterruptingBody.batches_left = None
    assert quick.n_iter_ == 5
    for found, expected in zip(quick.predict_logits(X), logits, strict=True):
        assert_array_equal(found, expected)


def test_refit_on_other_columns(iris, frame, quick):
    X, y = iris
    quick.fit(X, frame).fit(X, y[:, 0])
    assert quick.n_outputs_ == 1
    assert not hasattr(quick, "target_names_")
    assert quick.predict(X).shape == (150,)
    expected = clone(quick).fit(X, y[:, 0]).predict_logits(X)
    assert_array_equal(quick.predict_logits(X), expected)


def test_too_large_values(iris, quick):
    clf = quick.set_params(module=Square).fit(*iris)
    X = np.full((5, 4), 1e30)
    with pytest.raises(ValueError, match="infinite logits for 5 of 5 samples"):
        clf.predict_proba(X)
    with pytest.raises(ValueError, match="infinite features for 5 of 5 samples"):
        clf.transform(X)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "head"])
def test_not_fitted(method, quick):
    with pytest.raises(NotFittedError, match="MultiHeadClassifier instance is not fit"):
        getattr(quick, method)(0 if method == "head" else np.ones((2, 4)))
