"""Data and classifiers of several tests of networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import load_digits

from skood.nn import TorchClassifier


@pytest.fixture(scope="module")
def digits():
    """Pixels of digits in [0, 1], and the digits."""
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32) / 16, y


@pytest.fixture
def quick():
    """A classifier that is trained in no time."""
    return TorchClassifier(max_epochs=5, random_state=0)
