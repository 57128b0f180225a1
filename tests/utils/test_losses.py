"""Tests of the loss per row."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.utils._losses import per_sample_loss


def test_per_sample_loss():
    assert per_sample_loss([0, 1, 1], [0, 1, 0]).tolist() == [0, 0, 1]
    # a string is never equal to a number, not even to a reject label
    assert per_sample_loss(["0", "1"], [0, -1]).tolist() == [1, 1]
    is_id = np.array([True, False, True])
    assert per_sample_loss(["a", "?", "b"], ["a", "b", "a"], is_id=is_id).tolist() == [
        0,
        1,
    ]
    assert per_sample_loss(
        [3, -1, 7], [7, 3, 7], [[0, 2], [5, 1]], is_id=is_id, classes=[3, 7]
    ).tolist() == [2, 1]


def test_errors_of_per_sample_loss():
    with pytest.raises(ValueError, match=r"loss must be 'zero_one', .*, a callable"):
        per_sample_loss([0, 1], [0, 1], "hinge")
    with pytest.raises(ValueError, match=r"shape \(2,\), got an array of shape \(3,\)"):
        per_sample_loss([0, 1], [0, 1], [0, 1, 2])
    with pytest.raises(ValueError, match=r"shape \(2,\), got an array of shape \(\)"):
        per_sample_loss([0, 1], [0, 1], lambda t, p: 0.5)
    with pytest.raises(ValueError, match="A loss matrix needs classes"):
        per_sample_loss([0, 1], [0, 1], np.eye(2))
    with pytest.raises(ValueError, match=r"for 3 classes must have shape \(3, 3\)"):
        per_sample_loss([0, 1], [0, 1], np.eye(2), classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"y_pred contains labels.*\[0, 1\]: 5"):
        per_sample_loss([0, 1], [0, 5], np.eye(2), classes=[0, 1])
    with pytest.raises(ValueError, match=r"y_true contains labels.*: 'c'"):
        per_sample_loss(["a", "c"], ["a", "b"], np.eye(2), classes=["a", "b"])
    with pytest.raises(ValueError, match=r"got -1.0 \(in 1 of 2 samples\)"):
        per_sample_loss([0, 1], None, [-1.0, 1.0])
