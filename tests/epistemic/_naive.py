"""Uncertainty of members by its definition, in loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from sklearn.utils import Bunch


def entropy(p):
    """Entropy of one distribution."""
    return math.fsum(-x * math.log(x) for x in p if x > 0)


def divergence(p, q):
    """Divergence of two distributions."""
    return math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0)


def naive_uncertainty(p, weights=None, reference=None):
    """Of members with probabilities (n_members, n_samples, n_classes).

    Weights have the shape (n_members, n_samples); it is setting "b" with a reference.
    """
    p = np.asarray(p)
    weights = np.full(p.shape[:2], 1 / len(p)) if weights is None else weights
    results = []
    for i in range(p.shape[1]):
        w, members = weights[:, i], p[:, i]
        if reference is None:
            mixture = w @ members
            aleatoric = math.fsum(w * [entropy(q) for q in members])
            epistemic = math.fsum(w * [divergence(q, mixture) for q in members])
            results.append((entropy(mixture), aleatoric, epistemic))
        else:
            aleatoric = entropy(reference[i])
            epistemic = math.fsum(w * [divergence(reference[i], q) for q in members])
            results.append((aleatoric + epistemic, aleatoric, epistemic))
    total, aleatoric, epistemic = np.transpose(results)
    return Bunch(total=total, aleatoric=aleatoric, epistemic=epistemic)
