"""Small samples that the tests of metrics share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

__all__ = ["tied"]


def tied(seed, n=60):
    """Labels of three ID classes and OOD (-1), predictions, tied scores."""
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, 3, size=n)
    y_true[:2] = -1, 0
    y_pred = np.where(rng.uniform(size=n) < 0.6, y_true, rng.integers(0, 3, size=n))
    y_pred[y_pred == -1] = 0
    score = rng.integers(0, 6, size=n) + (y_true >= 0) + (y_true == y_pred)
    return y_true, y_pred, score.astype(float)
