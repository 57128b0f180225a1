"""
========================================
Sine: data, network, methods and a table
========================================

Helpers of the study of methods for regression, after Fig. C.4 of the QUAM paper.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    Gaussian,
    HMCKernel,
    Laplace,
    MCDropout,
)
from skood.nn import TorchRegressor, TrainingOptions

# Points of the curves, and which of them are among the training samples.
GRID = np.linspace(-6.0, 6.0, 160)
INSIDE = np.abs(GRID) <= np.pi


def make_sine(n_samples=32, noise=0.1, random_state=42):
    """Return samples of a sine between -pi and pi, with normal noise."""
    rng = np.random.RandomState(random_state)
    x = np.sort(rng.uniform(-np.pi, np.pi, size=n_samples))
    return x[:, None], np.sin(x) + rng.normal(scale=noise, size=n_samples)


def make_network(hidden=(50, 50), n_epochs=250, lr=3e-3):
    """Return the network, not fitted: two steps of 16 samples per epoch."""
    return TorchRegressor(
        module_params={"hidden": hidden},
        max_epochs=n_epochs,
        lr=lr,
        batch_size=16,
        training=TrainingOptions(weight_decay=1e-3),
        random_state=0,
    )


def with_dropout(net):
    """Return the same network with dropout, not fitted."""
    params = {**net.module_params, "dropout": 0.1}
    return clone(net).set_params(module_params=params)


def prior_of(net):
    """Return scales of the priors that keep the size of activations: 1 / sqrt(fan-in).

    Biases have the scale 1.
    """
    shapes = {name: p.shape for name, p in net.module_.named_parameters()}
    return {
        name: 1.0 if len(shape) == 1 else shape[1] ** -0.5
        for name, shape in shapes.items()
    }


def quick_methods(net, variance):
    """Return the methods with settings for a minute; the first is the ground truth."""
    given = FrozenEstimator(net)
    options = {"likelihood": Gaussian(variance), "random_state": 0}
    posterior = {"prior_scale": prior_of(net), "setting": "a", **options}
    cycles = CyclicalSchedule(
        n_cycles=5, epochs_per_cycle=200, samples_per_cycle=40, exploration=0.8, lr=1e-3
    )
    return {
        "HMC": HMC(given, HMCKernel(n_leapfrog=40), n_samples=60, **posterior),
        "QUAM": QUAM(given, **options),
        "deep ensemble": DeepEnsemble(clone(net), 10, **options),
        "MC dropout": MCDropout(with_dropout(net), 200, **options),
        "Laplace": Laplace(given, **options),
        "cSG-HMC": CyclicalSGHMC(given, cycles, **posterior),
    }


def paper_methods(net, variance):
    """Return the methods with the settings of the paper, as far as they exist here."""
    given = FrozenEstimator(net)
    options = {"likelihood": Gaussian(variance), "random_state": 0}
    return {
        "HMC": HMC(
            given,
            HMCKernel(n_leapfrog=20, step_size=5e-4),
            n_samples=1000,
            n_chains=1,
            # with these steps a chain does not leave a draw of the prior
            init="estimator",
            setting="a",
            **options,
        ),
        # the objective is a divergence and not a difference, and the learning rate is
        # divided where the weight of the penalty grows
        "QUAM": QUAM(
            given,
            AdversarialSearch(
                n_steps=300,
                lr=1e-4,
                c0=0.5,
                eta=4.0,
                update_every=50,
                gamma=1e-3,
                perturbation=0.01 / np.sqrt(variance),
            ),
            scope="full",
            temperature=1e-3,
            **options,
        ),
        "deep ensemble": DeepEnsemble(clone(net), 10, **options),
        "MC dropout": MCDropout(with_dropout(net), 1000, **options),
        "Laplace": Laplace(given, **options),
        # 10,000 steps of 16 samples, noise and samples in the last fifth of each cycle
        "cSG-HMC": CyclicalSGHMC(
            given,
            CyclicalSchedule(
                n_cycles=5,
                epochs_per_cycle=1000,
                samples_per_cycle=200,
                exploration=0.8,
                lr=0.05 * variance,  # of the mean squared error in the paper
            ),
            batch_size=16,
            temperature=0.01,
            setting="a",
            **options,
        ),
    }


def table(stds, truth="HMC"):
    """Return lines: mean standard deviation inside and outside, correlations."""
    lines = [f"{'':16}{'inside':>9}{'outside':>9}{'Pearson':>9}{'Spearman':>9}"]
    for name, std in stds.items():
        values = [std[INSIDE].mean(), std[~INSIDE].mean()]
        values += [f(std, stds[truth])[0] for f in (pearsonr, spearmanr)]
        lines.append(f"{name:16}" + "".join(f"{value:9.3f}" for value in values))
    return lines
