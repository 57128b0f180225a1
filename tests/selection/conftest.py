"""Fixtures of the tests of the selection of OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)
