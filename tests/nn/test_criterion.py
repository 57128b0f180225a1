"""Tests of the parameter `criterion` of `TorchClassifier`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from torch import nn
from torch.nn import functional

from skood.nn._training import WeightedCriterion


def cross_entropy(logits, codes):
    """What it is by default."""
    return functional.cross_entropy(logits, codes, reduction="none")


class Margin:
    """Multi-class hinge loss with a margin."""

    def __init__(self, margin):
        self.margin = margin

    def __call__(self, logits, codes):
        """Sum over other classes of how far they are within the margin."""
        own = logits.gather(1, codes[:, None])
        return (logits - own + self.margin).clamp(min=0).sum(dim=1) - self.margin


class Scaled(nn.Module):
    """Cross-entropy with a temperature, which is a parameter, and class weights."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("weight", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, logits, codes):
        """Loss of each row."""
        logits = logits / self.temperature
        return cross_entropy(logits, codes) * self.weight[codes]


def test_cross_entropy_is_the_default(iris, quick):
    X, y = iris
    weight = np.linspace(0, 2, 150)
    expected = clone(quick).set_params(training__early_stopping=True)
    expected.fit(X, y, sample_weight=weight)
    clf = quick.set_params(training__early_stopping=True, criterion=cross_entropy)
    clf.fit(X, y, sample_weight=weight)
    assert clf.history_ == expected.history_
    assert_array_equal(clf.predict_logits(X), expected.predict_logits(X))


def test_loss_is_the_weighted_mean():
    rng = np.random.default_rng(0)
    logits, codes = rng.normal(size=(6, 3)), rng.integers(3, size=6)
    weight = rng.uniform(size=6)
    losses = [
        sum(max(0.0, a - row[y] + 0.5) for c, a in enumerate(row) if c != y)
        for row, y in zip(logits, codes, strict=True)
    ]
    criterion = WeightedCriterion(Margin(0.5))
    tensors = torch.tensor(logits), torch.tensor(codes)
    result = criterion(tensors[0], (tensors[1], torch.tensor(weight)))
    assert_allclose(result, np.mean(weight * losses))
    assert_allclose(criterion(*tensors), np.mean(losses))


def test_another_loss_trains_another_network(iris, quick):
    X, y = iris
    default = clone(quick).fit(X, y)
    clf = quick.set_params(criterion=Margin(1.0), max_epochs=60).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert np.abs(clf.predict_logits(X) - default.predict_logits(X)).max() > 0.1
    assert clf.history_[-1]["train_loss"] < 0.3 * clf.history_[0]["train_loss"]
    logits = clf.predict_logits(X)
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(clf.predict_proba(X), proba, rtol=1e-12)


def test_parameters_of_the_criterion_are_not_trained(iris, quick):
    criterion = Scaled()
    clf = quick.set_params(criterion=criterion).fit(*iris)
    inner = clf.net_.criterion_.criterion
    assert inner is not criterion
    assert inner.temperature.detach() == criterion.temperature.detach() == 2.0
    assert criterion.temperature.requires_grad and criterion.temperature.grad is None


@pytest.mark.parametrize("criterion", [cross_entropy, Margin(0.5), Scaled()])
def test_pickle_and_more_training(iris, quick, criterion):
    X, y = iris
    clf = quick.set_params(criterion=criterion).fit(X, y)
    loaded = pickle.loads(pickle.dumps(clf))
    assert_array_equal(loaded.predict_logits(X), clf.predict_logits(X))
    for one in (clf, loaded):
        one.partial_fit(X, y)
    assert loaded.history_ == clf.history_
    assert_array_equal(loaded.predict_logits(X), clf.predict_logits(X))


def test_later_changes_need_a_fit(iris, quick):
    X, y = iris
    criterion = Margin(0.5)
    clf, same = (
        clone(quick).set_params(criterion=criterion).fit(X, y) for _ in range(2)
    )
    clf.criterion.margin = 100.0
    for one in (clf, same):
        one.partial_fit(X, y)
    assert clf.history_ == same.history_


@pytest.mark.parametrize(
    "criterion, found",
    [
        (functional.cross_entropy, r"a tensor of shape \(\)"),
        (lambda logits, codes: logits, r"a tensor of shape \(128, 3\)"),
        (lambda logits, codes: 1.0, "an object of type float"),
    ],
)
def test_what_gives_no_loss_of_each_row(iris, quick, criterion, found):
    message = rf"must return a tensor with a loss for each sample: .*got {found}"
    with pytest.raises(ValueError, match=message):
        quick.set_params(criterion=criterion).fit(*iris)
    assert not hasattr(quick, "classes_")


def test_bad_criterion(iris, quick):
    with pytest.raises(ValueError, match="The 'criterion' parameter of TorchClassif"):
        quick.set_params(criterion="hinge").fit(*iris)
