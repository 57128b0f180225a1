"""Small samples that the tests of metrics share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest


def tied(seed, n=60):
    """Labels of three ID classes and OOD (-1), predictions, tied scores."""
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, 3, size=n)
    y_true[:2] = -1, 0
    y_pred = np.where(rng.uniform(size=n) < 0.6, y_true, rng.integers(0, 3, size=n))
    y_pred[y_pred == -1] = 0
    score = rng.integers(0, 6, size=n) + (y_true >= 0) + (y_true == y_pred)
    return y_true, y_pred, score.astype(float)


def check_input_errors(metric, y_true, y_pred, y_score):
    """Check the errors of a metric of predictions and scores on wrong input."""
    n = len(y_true)
    with pytest.raises(ValueError, match=r"pass labels.*np.where\(is_ood, -1, 1\)"):
        metric(y_true == -1, y_pred, y_score)
    with pytest.raises(ValueError, match=f"y_score contains {n} NaN"):
        metric(y_true, y_pred, np.full(n, np.nan))
    with pytest.raises(
        ValueError, match=rf"y_score must .*\({n},\), .* got .*\({n - 1},\)"
    ):
        metric(y_true, y_pred, y_score[1:])
    with pytest.raises(
        ValueError, match=f"y_pred has {n - 1} entries, but y_.* has {n}"
    ):
        metric(y_true, y_pred[1:], y_score)
    with pytest.raises(ValueError, match="y_pred is required"):
        metric(y_true, None, y_score)
    with pytest.raises(ValueError, match=r"No ID samples.*ood_label=-1 or are missing"):
        metric(np.full(n, -1), y_pred, y_score)
