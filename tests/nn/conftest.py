"""Data and classifiers of several tests of networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.preprocessing import scale

from skood.nn import MultiHeadClassifier, TorchClassifier


@pytest.fixture(scope="module")
def digits():
    """Pixels of digits in [0, 1], and the digits."""
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32) / 16, y


@pytest.fixture
def quick():
    """A classifier that is trained in no time."""
    return TorchClassifier(max_epochs=5, random_state=0)


@pytest.fixture(scope="session")
def iris3():
    """Samples, and three columns of labels: species, length of petals, chance."""
    X, y = load_iris(return_X_y=True)
    long = (X[:, 2] > 1.5).astype(int) + (X[:, 2] > 5)
    chance = np.random.RandomState(0).randint(2, size=150)
    return scale(X), np.column_stack([y, long, chance])


@pytest.fixture
def quick_heads():
    """A classifier of several columns that is trained in no time."""
    return MultiHeadClassifier(max_epochs=5, random_state=0)
