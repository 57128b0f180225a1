"""Predictions of three classes on the simplex, and the loss that attains them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from torch import nn

from skood.epistemic import (
    QUAM,
    DeepEnsemble,
    SimplexDisplay,
    attainable_likelihood,
)

CENTERS = np.array([[-4.0, -2.0], [4.0, -2.0], [0.0, 2 * np.sqrt(2)]])
y = np.repeat(np.arange(3), 21)


def gaussians(seed):
    """Three normal distributions of sd 1.5, 21 samples each."""
    return CENTERS[y] + 1.5 * np.random.default_rng(seed).standard_normal((63, 2))


def network():
    return nn.Sequential(
        nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3)
    )


# --- attainable likelihood ---------------------------------------------------


def test_corner_of_the_nearest_class_is_cheapest():
    loss = attainable_likelihood(
        network(), gaussians(1), y, [-5.0, -2.0], np.eye(3), n_runs=3, random_state=0
    )
    assert loss.shape == (3,)
    assert loss.argmin() == 0  # the nearest center is (-4, -2)
    assert loss[1] > loss[0] + 0.01  # the center that is farthest


@pytest.mark.parametrize(
    "mode", [torch.inference_mode, partial(torch.autocast, "cpu", torch.bfloat16)]
)
def test_mode_of_the_caller_has_no_effect(mode):
    arguments = network(), gaussians(1), y, [-6.0, 2.0], np.eye(3)
    options = {"n_runs": 1, "n_steps": 5, "random_state": 0}
    expected = attainable_likelihood(*arguments, **options)
    with mode():
        assert_array_equal(attainable_likelihood(*arguments, **options), expected)


def test_linear_network_by_a_general_solver():
    """A convex problem, whose solution does not depend on the initial weights."""
    X, x, target = gaussians(0), np.array([-6.0, 2.0]), np.array([0.2, 0.5, 0.3])
    ones, labels = np.c_[X, np.ones(63)], (1 - 0.03) * np.eye(3)[y] + 0.01

    def losses(w):
        w = w.reshape(3, 3)
        training = -(labels * log_softmax(ones @ w.T, axis=1)).sum(axis=1).mean()
        return training, -(target * log_softmax(w @ [*x, 1.0])).sum()

    def objective(w):  # weight decay adds its half square
        return sum(losses(w)) + 0.5 / 2 * (w**2).sum()

    expected, _ = losses(minimize(objective, np.zeros(9), options={"gtol": 1e-8}).x)
    result = attainable_likelihood(
        nn.Linear(2, 3).double(),
        X,
        y,
        x,
        [target],
        n_runs=3,
        n_steps=500,
        lr=0.03,
        weight_decay=0.5,
        label_smoothing=0.03,
        random_state=0,
    )
    assert_allclose(result, [expected], rtol=1e-6)


def test_permuted_classes_permute_the_map():
    order, grid = np.array([2, 0, 1]), SimplexDisplay.grid(1)
    options = {"n_runs": 1, "n_steps": 800, "lr": 0.03, "weight_decay": 0.5}
    options["random_state"] = 0
    module, x = nn.Linear(2, 3).double(), [-6.0, 2.0]
    expected = attainable_likelihood(module, gaussians(0), y, x, grid, **options)
    permuted = grid[:, np.argsort(order)]  # class k is named order[k] now
    losses = attainable_likelihood(
        module, gaussians(0), order[y], x, permuted, **options
    )
    assert_allclose(losses, expected, rtol=1e-5)
    assert np.ptp(expected) > 0.05


def test_networks_are_independent_of_other_targets_and_reproducible():
    module = network()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    options = {"n_runs": 3, "n_steps": 30, "random_state": 0}
    data = module, gaussians(0), y, [-6.0, 2.0]
    together = attainable_likelihood(*data, np.eye(3), **options)
    state = torch.random.get_rng_state()
    alone = [attainable_likelihood(*data, row[None], **options)[0] for row in np.eye(3)]
    assert_allclose(together, alone, rtol=1e-4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize(
    ("module", "x", "targets", "match"),
    [
        (nn.Linear(2, 3), [0.0], [[1, 0, 0]], "x has 1 features, and the training"),
        (nn.Linear(2, 3), [0, 0], [[1, 0]], "probabilities of the 3 classes of y"),
        (nn.Linear(2, 3), [0, 0], [[1, 0, 1]], "sums from 2 to 2"),
        (nn.Linear(2, 3), [0, 0], [[1.5, -0.5, 0]], "values from -0.5 to 1.5"),
        (nn.Linear(2, 2), [0, 0], [[1, 0, 0]], r"outputs of the shape \(64, 2\)"),
    ],
)
def test_bad_input_raises(module, x, targets, match):
    with pytest.raises(ValueError, match=match):
        attainable_likelihood(module, gaussians(0), y, x, targets)


def test_layer_without_initial_weights_raises():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, batch):
            return self.scale * batch

    module = nn.Sequential(Scale(), nn.Linear(2, 3))
    with pytest.raises(ValueError, match="The layer Scale has weights, but no method"):
        attainable_likelihood(module, gaussians(0), y, [0, 0], [[1, 0, 0]])


# --- display -----------------------------------------------------------------


def test_barycentric_round_trip():
    proba = np.random.default_rng(0).dirichlet([0.5, 1, 2], size=50)
    points = SimplexDisplay.to_plane(proba)
    assert_allclose(SimplexDisplay.from_plane(points), proba, atol=1e-14)
    corners = SimplexDisplay.to_plane(np.eye(3))
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    assert_allclose(sides, 1.0)


@pytest.mark.parametrize(("n_refinements", "n"), [(0, 3), (1, 6), (3, 45), (5, 561)])
def test_grid_of_a_refined_triangle(n_refinements, n):
    grid = SimplexDisplay.grid(n_refinements)
    assert len(grid) == len(np.unique(grid, axis=0)) == n
    assert_allclose(grid.sum(axis=1), 1.0)
    assert_array_equal(grid * 2**n_refinements % 1, 0)
    assert (grid >= 0).all()


def test_display_draws_members_and_background():
    pytest.importorskip("matplotlib")
    members = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]])
    grid = SimplexDisplay.grid(2)
    display = SimplexDisplay(
        members,
        weights=[2, 1, 1],
        background=(grid, grid[:, 0]),
        names=["a", "b", "c"],
        groups=[0, 1, 1],
    ).plot()
    first, second = display.dots_
    assert_allclose(first.get_offsets(), [[0, 0]])
    assert_allclose(second.get_offsets()[0], [0.5, 0.0])
    assert_allclose(first.get_sizes()[0], 2 * second.get_sizes()[0])
    assert [text.get_text() for text in display.ax_.texts] == ["a", "b", "c"]
    assert display.background_ is not None
    assert SimplexDisplay(members).plot(display.ax_).background_ is None


def test_display_of_estimators():
    pytest.importorskip("matplotlib")
    X, labels = load_iris(return_X_y=True)
    names = np.array(["x", "y", "z"])
    quam = QUAM(LogisticRegression(), random_state=0).fit(X, names[labels])
    display = SimplexDisplay.from_estimator(quam, X[100:101])
    assert len(display.dots_) == 3  # one color for each target
    assert_allclose(display.members, quam.predict_members(X[100:101])[:, 0])
    assert [text.get_text() for text in display.ax_.texts] == ["x", "y", "z"]
    ensemble = DeepEnsemble(LogisticRegression(), n_members=4, bootstrap=True)
    display = SimplexDisplay.from_estimator(ensemble.fit(X, labels), X[:1])
    assert display.weights is None
    assert len(display.dots_[0].get_offsets()) == 4


def test_display_errors():
    pytest.importorskip("matplotlib")
    X, labels = load_iris(return_X_y=True)
    plain = LogisticRegression(max_iter=500).fit(X, labels)
    with pytest.raises(TypeError, match="members, such as QUAM or DeepEnsemble, got L"):
        SimplexDisplay.from_estimator(plain, X[:1])
    ensemble = DeepEnsemble(plain, n_members=2, bootstrap=True).fit(X, labels)
    with pytest.raises(ValueError, match="shows one point, got 2 samples"):
        SimplexDisplay.from_estimator(ensemble, X[:2])
    with pytest.raises(ValueError, match="members must be probabilities of three"):
        SimplexDisplay([[0.5, 0.5]]).plot()
    with pytest.raises(ValueError, match=r"weights must have the shape \(1,\)"):
        SimplexDisplay([[0.5, 0.5, 0]], weights=[1, 2]).plot()
    with pytest.raises(ValueError, match="one for each of the 3 classes"):
        SimplexDisplay([[0.5, 0.5, 0]], names=["a"]).plot()
