"""Tests of what scorers ask of a loss."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools

import numpy as np
import pytest

from skood.metrics import (
    make_cost_scorer,
    make_selective_risk_scorer,
)
from skood.metrics._base_scorers import largest_loss
from skood.utils._losses import per_sample_loss
from tests.metrics._scored import make_precision_recall_scorer

MATRIX = np.array([[0.0, 2, 5], [3, 0, 1], [9, 8, 0]])
MAKERS = [
    make_cost_scorer,
    make_precision_recall_scorer,
    make_selective_risk_scorer,
]


def look_up(y_true, y_pred):
    position = {"ant": 0, "bee": 1, "cow": 2}
    return np.array(
        [
            MATRIX[position[t], position[p]]
            for t, p in zip(y_true.tolist(), y_pred.tolist(), strict=True)
        ]
    )


@pytest.mark.parametrize("loss", [MATRIX, look_up], ids=["matrix", "callable"])
@pytest.mark.parametrize(
    "labels",
    [["ant", "bee"], ["bee"], ["cow", "ant"], ["ant"]],
    ids=lambda labels: "-".join(labels),
)
def test_largest_loss_is_that_of_the_worst_predictions(labels, loss):
    """All predictions in a loop; OOD rows, and classes without rows, do not count."""
    y = np.array([*labels, "other"])
    is_id = y != "other"
    classes = np.array(["ant", "bee", "cow"])
    worst = max(
        per_sample_loss(
            y, np.array([*pred, "ant"]), loss, is_id=is_id, classes=classes
        ).max()
        for pred in itertools.product(classes, repeat=len(labels))
    )
    assert largest_loss(y, loss, is_id, classes) == worst


def test_largest_loss_is_at_least_unity():
    y, is_id = np.array([0, 1, -1]), np.array([True, True, False])
    assert largest_loss(y, "zero_one", is_id, [0, 1]) == 1.0
    assert largest_loss(y, [[0, 0.5], [0.2, 0]], is_id, [0, 1]) == 1.0


def test_without_classes_any_label_could_be_predicted():
    y, is_id = np.array([0, 3, 7, -1]), np.array([True, True, True, False])

    def distance(y_true, y_pred):
        return np.abs(y_true - y_pred).astype(float)

    assert largest_loss(y, distance, is_id, None) == 7.0


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ([[0, 1, 2], [1, 0, 2]], r"must be square; got the shape \(2, 3\)"),
        ([[0, 1], [-2, 0]], r"not negative, got -2.0 \(in 1 of 4 entries\)"),
        ([[0, np.nan], [np.inf, 0]], r"finite .*got nan \(in 2 of 4 entries\)"),
        ("hinge", "loss must be 'zero_one', .*Got 'hinge'"),
        ([0, 1], r"loss must be .* Got \[0, 1\]"),
    ],
    ids=["not square", "negative", "not finite", "unknown", "one-dimensional"],
)
def test_impossible_losses_are_refused_at_once(make, loss, message):
    with pytest.raises(ValueError, match=message):
        make(loss=loss)
