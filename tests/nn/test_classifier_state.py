"""Tests of the states of a `TorchClassifier`: going on, interrupts, pickles."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skood.exceptions import SkoodWarning
from skood.nn import TorchClassifier
from tests._loops import looped
from tests.nn._copies import by_joblib, by_pickle, by_skops
from tests.nn._networks import Interrupting, Linear, Normalized, RandomFeatures

# --- partial_fit -------------------------------------------------------------


def test_partial_fit_is_an_epoch(iris, quick):
    X, y = iris
    one = clone(quick).set_params(max_epochs=1).fit(X, y).predict_logits(X)
    clf = quick.partial_fit(X, y, classes=[2, 1, 0, 1])
    assert_array_equal(clf.predict_logits(X), one)
    assert clf.n_iter_ == 1
    module = clf.set_params(lr=0.02).module_
    for _ in range(29):
        clf.partial_fit(X, y)
    assert clf.module_ is module
    assert not module.training
    assert clf.score(X, y) > 0.95
    assert [row["epoch"] for row in clf.history_] == list(range(1, 31))


def test_partial_fit_goes_on_after_fit(iris, quick):
    X, y = iris
    clf = quick.set_params(training__lr_schedule="cosine", lr=0.01).fit(X, y)
    clf.set_params(lr=0.02, batch_size=50, training__weight_decay=0.5)
    clf.partial_fit(X[:90], y[:90]).partial_fit(X[60:], y[60:])
    assert clf.n_iter_ == 7
    assert clf.history_[-1]["lr"] == 0.02  # the schedule is over
    assert clf.net_.optimizer_.param_groups[0]["weight_decay"] == 0.5
    assert clf.net_.history[-1, "train_batch_count"] == 2
    # two batches an epoch: the optimizer goes on counting where fit stopped
    (steps,) = {int(state["step"]) for state in clf.net_.optimizer_.state.values()}
    assert steps == 2 * 7


def test_partial_fit_with_weights(iris):
    X, y = iris
    clf = TorchClassifier(
        class_weight={0: 1, 1: 2, 2: 3}, batch_size=10**6, random_state=0
    )
    weight = np.arange(150)
    weighted, repeated = clone(clf), clone(clf)
    for _ in range(5):
        weighted.partial_fit(X, y, classes=[0, 1, 2], sample_weight=weight)
        repeated.partial_fit(X.repeat(weight, 0), y.repeat(weight), classes=[0, 1, 2])
    expected = repeated.predict_logits(X)
    assert_allclose(weighted.predict_logits(X), expected, rtol=1e-4, atol=1e-5)


def test_partial_fit_on_a_subset_of_the_classes(iris, quick):
    X, y = iris
    clf = quick.partial_fit(X[:50], y[:50], classes=[0, 1, 2])
    assert_array_equal(clf.classes_, [0, 1, 2])
    assert clf.partial_fit(X[:1], y[:1]).predict_proba(X).shape == (150, 3)


@pytest.mark.parametrize(
    "params, kwargs, match",
    [
        ({}, {}, "classes must be passed on the first call to partial_fit"),
        ({}, {"classes": [0]}, r"At least two classes are needed, got \[0\]"),
        ({}, {"classes": [0, 1]}, r"label 2, which is not among the classes \[0, 1\]"),
        (
            {"training__early_stopping": True},
            {"classes": [0, 1, 2]},
            "set early_stopping=False",
        ),
        ({"class_weight": "balanced"}, {"classes": [0, 1, 2]}, "weights as a dict"),
    ],
)
def test_partial_fit_errors(params, kwargs, match, iris, quick):
    with pytest.raises(ValueError, match=match):
        quick.set_params(**params).partial_fit(*iris, **kwargs)
    assert not hasattr(quick, "classes_")


def test_partial_fit_errors_later(iris, quick):
    X, y = iris
    clf = quick.fit(X, y)
    logits = clf.predict_logits(X)
    with pytest.raises(ValueError, match=r"classes=\[0, 1\] differs from the classes"):
        clf.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="y contains the label 7"):
        clf.partial_fit(X[:1], [7])
    with pytest.raises(ValueError, match="X has 2 features"):
        clf.partial_fit(X[:, :2], y)
    assert_array_equal(clf.predict_logits(X), logits)
    assert clf.n_iter_ == 5


# --- interrupts --------------------------------------------------------------


@pytest.fixture
def interrupt():
    """Set the number of batches after which training is interrupted."""
    yield lambda batches: setattr(Interrupting, "batches_left", batches)
    Interrupting.batches_left = None


@pytest.mark.parametrize("early_stopping", [False, True])
def test_interrupted_first_fit(early_stopping, iris, quick, interrupt):
    quick.set_params(module=Interrupting, training__early_stopping=early_stopping)
    before = torch.get_rng_state()
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        quick.fit(*iris)
    with pytest.raises(NotFittedError):
        quick.predict(iris[0])
    assert set(vars(quick)) == set(quick.get_params(deep=False))
    assert torch.equal(torch.get_rng_state(), before)
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        quick.set_params(training__early_stopping=False, batch_size=10).partial_fit(
            *iris, classes=[0, 1, 2]
        )
    assert set(vars(quick)) == set(quick.get_params(deep=False))


def test_interrupted_refit_leaves_the_earlier_fit(iris, digits, quick, interrupt):
    quick.set_params(module=Interrupting).fit(*iris)
    logits, state = quick.predict_logits(iris[0]), dict(vars(quick))
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        quick.fit(*digits)
    assert vars(quick) == state
    assert_array_equal(quick.predict_logits(iris[0]), logits)


def test_interrupted_partial_fit_never_happened(iris, quick, interrupt):
    X, y = iris
    quick.set_params(module=Interrupting, batch_size=10).fit(X, y)
    other = by_pickle(quick)
    logits = quick.predict_logits(X)
    interrupt(7)
    with pytest.raises(KeyboardInterrupt):
        quick.partial_fit(X, y)
    assert quick.n_iter_ == len(quick.history_) == 5
    assert_array_equal(quick.predict_logits(X), logits)
    interrupt(None)
    # the moments of the optimizer are those before the interrupt, too
    expected = other.partial_fit(X, y).predict_logits(X)
    assert_array_equal(quick.partial_fit(X, y).predict_logits(X), expected)


# --- persistence -------------------------------------------------------------


@looped("copied", [by_pickle, by_joblib, by_skops])
@looped("module", [None, Normalized, RandomFeatures])
@looped("optimizer", ["adam", "sgd"])
def test_persistence(copied, module, optimizer, iris, quick):
    X, y = iris[0], np.array(["x", "y", "z"], dtype=object)[iris[1]]
    clf = quick.set_params(module=module, training__optimizer=optimizer).fit(X, y)
    other = copied(clf)
    assert_array_equal(other.predict(X), clf.predict(X))
    assert_array_equal(other.predict_logits(X), clf.predict_logits(X))
    assert other.history_ == clf.history_
    assert not other.module_.training
    for _ in range(2):
        clf.partial_fit(X, y)
        other.partial_fit(X, y)
    assert_array_equal(other.predict_logits(X), clf.predict_logits(X))


def test_pickle_does_not_follow_later_params(iris, quick):
    params = {"hidden": [7]}
    clf = quick.set_params(module_params=params).fit(*iris)
    expected = clf.predict_logits(iris[0])
    params["hidden"].append(9)
    clf.set_params(module=Linear, module_params=None, lr=0.5)
    assert_array_equal(by_pickle(clf).predict_logits(iris[0]), expected)


def test_pickle_from_a_device_that_is_not_here(iris, quick, monkeypatch):
    clf = quick.fit(*iris)
    state = clf.__getstate__()
    arrays, device = state["_net_state"]
    assert device == "cpu"
    state["_net_state"] = arrays, "cuda:0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    other = TorchClassifier.__new__(TorchClassifier)
    with pytest.warns(SkoodWarning, match="trained on 'cuda:0', which this machine"):
        other.__setstate__(state)
    assert_array_equal(other.predict_logits(iris[0]), clf.predict_logits(iris[0]))


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
def test_copies_do_not_depend_on_the_default_dtype(dtypes, iris, quick):
    fitted, copying = (getattr(torch, name) for name in dtypes)
    try:
        torch.set_default_dtype(fitted)
        clf = quick.fit(*iris)
        expected = clf.predict_logits(iris[0])
        torch.set_default_dtype(copying)
        assert_array_equal(by_pickle(clf).predict_logits(iris[0]), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_clone_and_pickle_before_fit(quick):
    assert by_pickle(quick).get_params() == quick.get_params()
    clf = TorchClassifier(Linear, module_params={"a": [1]})
    assert clone(clf).module is Linear
    assert clone(clf).module_params == {"a": [1]}


# --- modes of torch ----------------------------------------------------------


_AUTOCAST = partial(torch.autocast, "cpu", torch.bfloat16)
_MODES = pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, _AUTOCAST]
)


@_MODES
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_training_in_a_mode_of_the_caller(mode, optimizer, iris, quick):
    """What is trained, or loaded, in inference mode can be trained on outside of it."""
    X, y = iris
    quick.set_params(
        module=Normalized, training__optimizer=optimizer, training__early_stopping=True
    )
    expected = clone(quick).fit(X, y)
    with mode():
        clf = clone(quick).fit(X, y)
        loaded = by_pickle(expected)
    logits = expected.predict_logits(X)
    for one in (expected, clf, loaded):
        one.set_params(training__early_stopping=False)
        assert_array_equal(one.predict_logits(X), logits)
        one.partial_fit(X, y)
        with mode():
            one.partial_fit(X, y)
        one.partial_fit(X, y)
    for one in (clf, loaded):
        assert_array_equal(one.predict_logits(X), expected.predict_logits(X))
    with mode():
        assert_array_equal(clf.predict_logits(X), expected.predict_logits(X))
        first = clone(clf).partial_fit(X, y, classes=[0, 1, 2])
    outside = clone(clf).partial_fit(X, y, classes=[0, 1, 2])
    assert_array_equal(first.predict_logits(X), outside.predict_logits(X))


@_MODES
def test_interrupt_in_a_mode_of_the_caller(mode, iris, quick, interrupt):
    X, y = iris
    quick.set_params(module=Interrupting, batch_size=10).fit(X, y)
    expected = by_pickle(quick).partial_fit(X, y).predict_logits(X)
    interrupt(7)
    with pytest.raises(KeyboardInterrupt), mode():
        quick.partial_fit(X, y)
    interrupt(None)
    assert_array_equal(quick.partial_fit(X, y).predict_logits(X), expected)


@_MODES
def test_tensors_that_were_made_in_a_mode(mode, iris, quick):
    """Rows, and the weights of a criterion."""
    X, y = iris
    weight = torch.tensor([1.0, 2.0, 3.0])
    criterion = torch.nn.CrossEntropyLoss(weight, reduction="none")
    expected = clone(quick).set_params(criterion=criterion).fit(X, y)
    with mode():
        X_made = torch.tensor(X, dtype=torch.float32)
        made = torch.nn.CrossEntropyLoss(weight.clone(), reduction="none")
        clf = clone(quick.set_params(criterion=made)).fit(X_made, y)
    assert_array_equal(clf.predict_logits(X), expected.predict_logits(X))
    quick.fit(X_made, y).partial_fit(X_made, y)
    expected.partial_fit(X, y)
    assert_array_equal(quick.predict_logits(X), expected.predict_logits(X))


# --- CUDA --------------------------------------------------------------------


@pytest.mark.gpu
def test_cuda(digits):
    X, y = digits
    clf = TorchClassifier(random_state=0, max_epochs=20, device="cuda").fit(X, y)
    assert clf.module_.head.weight.is_cuda
    assert clf.score(X, y) > 0.95
    logits = clf.predict_logits(X)
    assert_array_equal(clf.predict_logits(torch.tensor(X, device="cuda")), logits)
    again = clone(clf).fit(torch.tensor(X, device="cuda"), torch.tensor(y))
    assert_allclose(again.predict_logits(X), logits, atol=1e-3)
    state = clf.__getstate__()
    state["_net_state"] = state["_net_state"][0], "cpu"
    on_cpu = TorchClassifier.__new__(TorchClassifier)
    on_cpu.__setstate__(state)
    assert_allclose(on_cpu.predict_logits(X), logits, atol=1e-3)
    assert_array_equal(by_pickle(clf).predict_logits(X), logits)
