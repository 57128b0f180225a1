"""
================================
Two moons: data, network and HMC
================================

Helpers of the study of the methods: the data, the network, the grid, the priors, and
the ground truth, which is Hamiltonian Monte Carlo.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator

from skood.epistemic import HMC, HMCKernel
from skood.nn import TorchClassifier, TrainingOptions

# Width and height of the picture: the moons with a margin of about their own size.
EXTENT = (-3.0, 4.0, -2.5, 3.0)

# Scales of the normal priors on the weights.
PRIORS = {"unit": 1.0, "he": "he"}

# Gradients per transition. A particle crosses the prior in about pi / 2 of its scales;
# steps are 0.006 to 0.009 scales under the unit prior, and longer under the other.
N_LEAPFROG = {"unit": 200, "he": 50}


def make_data(n_samples=200, noise=0.1, random_state=0):
    """Return samples and classes of two moons."""
    return make_moons(n_samples, noise=noise, random_state=random_state)


def make_grid(side=40):
    """Return points of a grid, row by row from the bottom."""
    left, right, bottom, top = EXTENT
    x, y = np.meshgrid(np.linspace(left, right, side), np.linspace(bottom, top, side))
    return np.column_stack([x.ravel(), y.ravel()])


def fit_network(X, y, random_state=0, *, hidden=(100, 100), max_epochs=500):
    """Return the given model: by default a perceptron of three layers, 2-100-100-2."""
    network = TorchClassifier(
        module_params={"hidden": hidden},
        max_epochs=max_epochs,
        training=TrainingOptions(weight_decay=1e-4),
        random_state=random_state,
    )
    return network.fit(X, y)


def make_hmc(network, prior="unit", *, n_warmup=200, n_samples=300, random_state=0):
    """Return the ground truth: four chains that start at draws from the prior."""
    return HMC(
        FrozenEstimator(network),
        HMCKernel(n_leapfrog=N_LEAPFROG[prior], n_warmup=n_warmup),
        n_samples=n_samples,
        prior_scale=PRIORS[prior],
        random_state=random_state,
    )


def epistemic_maps(clf, grid):
    """Return the epistemic uncertainty on the grid, in settings "a" and "b"."""
    found = {}
    before = clf.setting
    for setting in "ab":
        clf.set_params(setting=setting)
        found[setting] = clf.predict_uncertainty(grid).epistemic
    clf.set_params(setting=before)
    return found


def agreement(found, truth):
    """Return Pearson's and Spearman's correlation of two maps."""
    return float(pearsonr(found, truth)[0]), float(spearmanr(found, truth)[0])
