"""Instances of all combiners, and p-values of all kinds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    Cauchy,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Stouffer,
    Vote,
)

STEP_UP = (
    BenjaminiHochberg(),
    BenjaminiYekutieli(),
    DOSStorey(c_m=0.25),
    DOSStorey(0.5, 0.25, "argmax"),
    Storey(),
    Storey(0.3, plus_one=True),
)
ONE_BY_ONE = (Bonferroni(), Naive(), Vote(), Vote(0.8))
GLOBAL = (Fisher(), Stouffer(), HarmonicMean(), Cauchy())
ALL = (*STEP_UP, *ONE_BY_ONE, *GLOBAL)


def mixed_pvalues(rng, n_samples, m):
    """P-values of ID samples, of OOD samples, on grids, and of 0 and 1."""
    n = n_samples // 4
    return np.concatenate(
        [
            rng.random((n, m)),
            rng.random((n, m)) ** rng.integers(1, 9, (n, m)),
            rng.integers(1, 61, (n, m)) / 60,
            rng.choice([0, 1e-300, 1e-9, 0.01, 0.05, 0.5, 1 - 1e-9, 1], (n, m)),
        ]
    )
