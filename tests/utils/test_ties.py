"""Tests of where groups of equal scores end."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.utils._ties import ends_of_ties


@pytest.mark.parametrize("step", [1, -1])
def test_against_a_loop(step):
    rng = np.random.default_rng(0)
    for n in range(1, 30):
        ranked = np.sort(rng.choice([-np.inf, 0.0, 0.5, 2.0, np.inf], n))[::step]
        ends = [i for i in range(n) if i == n - 1 or ranked[i] != ranked[i + 1]]
        np.testing.assert_array_equal(ends_of_ties(ranked), ends)
