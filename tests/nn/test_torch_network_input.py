"""Outputs of torch networks: batches, and what goes in and comes out."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from skood.detectors import Energy
from skood.nn import pretrained
from skood.nn._borrowed_module import check_network_input
from tests.nn._outputs import ALL, Counter, data, read


@pytest.mark.parametrize(
    "want",
    [ALL, {"features"}, {"logits"}, {"head"}, {"features", "head"}],
    ids=lambda want: "-".join(sorted(want)),
)
def test_single_forward_pass_per_sample(want):
    X, _ = data(n_samples=80)
    net = Counter()
    outputs = read(pretrained(net), X, want, batch_size=32)
    assert net.sizes == [32, 32, 16]
    for name in ALL:
        assert (getattr(outputs, name) is not None) == (name in want)


def test_batch_size_does_not_change_the_result():
    X, _ = data()
    clf = pretrained(Counter())
    whole = read(clf, X, ALL, batch_size=80)
    for batch_size in (1, 7, 64):
        outputs = read(clf, X, ALL, batch_size=batch_size)
        assert_allclose(outputs.features, whole.features, rtol=1e-5, atol=1e-6)
        assert_allclose(outputs.logits, whole.logits, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        expected = Counter().eval()(torch.as_tensor(X))
    assert_allclose(whole.logits, expected, rtol=1e-5, atol=1e-6)


def test_batch_size_of_a_pretrained_module_is_an_upper_bound():
    X, _ = data(n_samples=80)
    net = Counter()
    Energy(pretrained(net, batch_size=50)).fit(X)
    assert net.sizes == [50, 30]
    net.sizes.clear()
    read(pretrained(net, batch_size=50), X, {"logits"}, batch_size=40)
    assert net.sizes == [40, 40]


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float64),
        lambda X: X.astype(">f4"),
        lambda X: X.tolist(),
        lambda X: torch.as_tensor(X),
        lambda X: torch.as_tensor(X).double().requires_grad_(),
        lambda X: X[::-1][::-1],
        lambda X: np.asfortranarray(X),
    ],
)
def test_kinds_of_samples(change, recwarn):
    X, _ = data()
    clf = pretrained(Counter())
    expected = read(clf, X, {"logits"}).logits
    assert_allclose(
        read(clf, change(X), {"logits"}).logits, expected, rtol=1e-5, atol=1e-6
    )
    assert not recwarn


def test_samples_that_must_not_be_written_to(recwarn):
    X, _ = data()
    X.flags.writeable = False
    read(pretrained(Counter()), X, ALL)
    assert not recwarn


def test_integers_are_numbers_for_a_network_without_embeddings():
    X = np.random.default_rng(0).integers(5, size=(9, 5)).astype(np.uint8)
    clf = pretrained(Counter())
    assert_array_equal(
        read(clf, X, {"logits"}).logits, read(clf, X.astype(float), {"logits"}).logits
    )


def test_network_without_parameters():
    net = nn.Sequential(nn.Flatten(), nn.Softsign())
    X, _ = data()
    logits = read(pretrained(net, classes=range(5)), X, {"logits"}).logits
    assert_allclose(logits, X / (1 + np.abs(X)), rtol=1e-6)


def test_check_network_input():
    for X in ([1.0, 2.0], np.empty((0, 3)), torch.zeros(3)):
        with pytest.raises(ValueError, match=r"must have shape \(n_samples, \.\.\.\)"):
            check_network_input(X)
    for X in ([["a", "b"]], [[None, 1.0]], np.zeros((2, 2), dtype=complex)):
        with pytest.raises(ValueError, match="X must hold numbers, got an array of"):
            check_network_input(X)
    for bad in (np.nan, np.inf):
        for X in (np.array([[1.0, bad]]), torch.tensor([[1.0, bad]])):
            with pytest.raises(ValueError, match="X contains NaN or infinity"):
                check_network_input(X)


def test_output_of_another_shape():
    X, _ = data()

    class Shape(Counter):
        def forward(self, x):
            return self.reshape(super().forward(x))

    net = Shape()
    net.reshape = lambda out: out[:, :, None].expand(-1, -1, 2) * 2
    with pytest.raises(ValueError, match=r"logits of shape \(80, 3, 2\); expected"):
        read(pretrained(net), X, {"logits"})
    net.reshape = lambda out: out.mean(0, keepdim=True)
    with pytest.raises(ValueError, match="The network gave 1 rows for a batch of 80"):
        read(pretrained(net), X, {"logits"})
    net.reshape = lambda out: out.transpose(0, 1) * 2
    with pytest.raises(ValueError, match="first axis is not the samples"):
        read(pretrained(net), X, {"logits"})
