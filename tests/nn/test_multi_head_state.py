"""Tests of the states of a `MultiHeadClassifier`: going on, interrupts, pickles."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tests.nn._copies import by_joblib, by_pickle, by_skops
from tests.nn._networks import Body, Flat, InterruptingBody


@pytest.fixture(scope="module")
def frame(iris3):
    """The labels with names, and of several kinds."""
    y = iris3[1]
    species = np.array(["setosa", "versicolor", "virginica"])[y[:, 0]]
    columns = {"species": species, "long": y[:, 1], "chance": y[:, 2] == 1}
    return pd.DataFrame(columns)


class Square(Flat):
    """Squares of the values."""

    def forward(self, x):
        return x**2


# --- partial_fit ---------------------------------------------------------------


def test_partial_fit_is_an_epoch(iris3, quick_heads):
    X, y = iris3
    one = clone(quick_heads).set_params(max_epochs=1).fit(X, y).predict_logits(X)
    classes = [[2, 1, 0], np.array([0, 1, 2, 2]), [0, 1]]
    clf = quick_heads.partial_fit(X, y, classes=classes)
    assert clf.n_iter_ == 1
    for logits, expected in zip(clf.predict_logits(X), one, strict=True):
        assert_array_equal(logits, expected)
    module = clf.set_params(lr=0.03).module_
    for _ in range(20):
        clf.partial_fit(X, y, classes=classes)
    assert clf.module_ is module
    assert [row["epoch"] for row in clf.history_] == list(range(1, 22))
    assert (clf.predict(X)[:, 0] == y[:, 0]).mean() > 0.95
    clf.partial_fit(X[:10], y[:10])  # without classes, and not of all of them


def test_partial_fit_with_names(iris3, frame, quick_heads):
    X, _ = iris3
    classes = [frame[name].unique().tolist() for name in frame]
    clf = quick_heads.partial_fit(X[:50], frame[:50], classes=classes)
    assert_array_equal(clf.target_names_, ["species", "long", "chance"])
    assert clf.partial_fit(X, frame).predict(X).shape == (150, 3)
    with pytest.raises(ValueError, match=r"y has the columns \['chance', 'long', 'spe"):
        clf.partial_fit(X, frame[["chance", "long", "species"]])


# --- states --------------------------------------------------------------------


@pytest.mark.parametrize("copied", [by_pickle, by_joblib, by_skops])
@pytest.mark.parametrize("module", [None, Body])
def test_persistence(copied, module, iris3, frame, quick_heads):
    X, _ = iris3
    params = {"dropout": 0.5} if module else None
    clf = quick_heads.set_params(
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


def test_pickle_holds_arrays_only(iris3, quick_heads):
    state = quick_heads.fit(*iris3).__getstate__()
    assert "net_" not in state
    arrays, device = state["_net_state"]
    assert device == "cpu"
    assert all(isinstance(w, np.ndarray) for w in arrays["module"].values())


def test_interrupts_never_happened(iris3, frame, quick_heads):
    X, y = iris3
    quick_heads.set_params(module=InterruptingBody, batch_size=40)
    try:
        InterruptingBody.batches_left = 3
        with pytest.raises(KeyboardInterrupt):
            quick_heads.fit(X, y)
        assert set(vars(quick_heads)) == set(quick_heads.get_params())
        InterruptingBody.batches_left = None
        quick_heads.fit(X, frame)
        logits, state = quick_heads.predict_logits(X), dict(vars(quick_heads))
        InterruptingBody.batches_left = 3
        with pytest.raises(KeyboardInterrupt):
            quick_heads.fit(X, y[:, :2])
        assert vars(quick_heads) == state
        InterruptingBody.batches_left = 2
        with pytest.raises(KeyboardInterrupt):
            quick_heads.partial_fit(X, frame)
    finally:
        InterruptingBody.batches_left = None
    assert quick_heads.n_iter_ == 5
    for actual, expected in zip(quick_heads.predict_logits(X), logits, strict=True):
        assert_array_equal(actual, expected)


def test_refit_on_other_columns(iris3, frame, quick_heads):
    X, y = iris3
    quick_heads.fit(X, frame).fit(X, y[:, 0])
    assert quick_heads.n_outputs_ == 1
    assert not hasattr(quick_heads, "target_names_")
    assert quick_heads.predict(X).shape == (150,)
    expected = clone(quick_heads).fit(X, y[:, 0]).predict_logits(X)
    assert_array_equal(quick_heads.predict_logits(X), expected)


def test_too_large_values(iris3, quick_heads):
    clf = quick_heads.set_params(module=Square).fit(*iris3)
    X = np.full((5, 4), 1e30)
    with pytest.raises(ValueError, match="infinite logits for 5 of 5 samples"):
        clf.predict_proba(X)
    with pytest.raises(ValueError, match="infinite features for 5 of 5 samples"):
        clf.transform(X)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "head"])
def test_not_fitted(method, quick_heads):
    with pytest.raises(NotFittedError, match="MultiHeadClassifier instance is not fit"):
        getattr(quick_heads, method)(0 if method == "head" else np.ones((2, 4)))
