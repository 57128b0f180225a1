"""Thresholds by their definition."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np


def middle_of_gap(scores, share):
    """Middle of the gap below which there is a share of scores, none of them tied."""
    ranked = np.sort(scores)
    k = math.floor(share * len(ranked) + 1e-9)
    return (ranked[k - 1] + ranked[k]) / 2
