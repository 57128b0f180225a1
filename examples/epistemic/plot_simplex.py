r"""
========================
Models at a single point
========================

Three classes, and a point far from the training data: which predictions do models make
that fit these data? The probabilities of three classes are a point in a triangle, the
probability simplex, whose corners are the certain predictions. Each member of an
ensemble is such a point. Methods for epistemic uncertainty differ in how they find
members. The members of QUAM [1]_ are found by a search, for each class, for models that
predict it, and are weighted; the members of other methods are drawn or trained
independently of the point, with equal weights.

.. [1] K. Schweighofer, L. Aichberger, M. Ielanskyi, G. Klambauer, S. Hochreiter.
   Quantification of uncertainty with adversarial models. NeurIPS 2023.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data and the given network
# --------------------------
#
# Three normal distributions in the plane, 100 samples of each, and the point (-6, 2).
# The given network has one hidden layer.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

from skood.nn import TorchClassifier, TrainingOptions

CENTERS = np.array([[-4.0, -2.0], [4.0, -2.0], [0.0, 2.0 * np.sqrt(2.0)]])
COLORS = ["#0072B2", "#E69F00", "#009E73"]

X, y = make_blobs(300, centers=CENTERS, cluster_std=1.5, random_state=0)
point = np.array([[-6.0, 2.0]])


def make_network(**module_params):
    """Return an untrained perceptron with a hidden layer."""
    return TorchClassifier(
        module_params={"hidden": (30,), **module_params},
        max_epochs=60,
        batch_size=50,
        lr=0.01,
        training=TrainingOptions(weight_decay=1e-4),
        random_state=0,
    )


with threadpool_limits(limits=1):
    network = make_network().fit(X, y)
print(f"accuracy on the training data {network.score(X, y):.3f}")
print("at the point:", network.predict_proba(point).round(3)[0])

fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
side = np.linspace(-9, 9, 200)
plane = np.stack(np.meshgrid(side, side), axis=-1)
with threadpool_limits(limits=1):
    proba = network.predict_proba(plane.reshape(-1, 2)).reshape(200, 200, 3)
for k, (color, marker) in enumerate(zip(COLORS, "osD", strict=True)):
    ax.scatter(*X[y == k].T, s=12, color=color, marker=marker, label=f"class {k}")
    rest = np.delete(proba, k, axis=2).max(axis=2)
    ax.contour(side, side, proba[..., k] - rest, levels=[0], colors="0.5", zorder=0)
ax.plot(*point[0], "k*", ms=15, label="the point")
ax.set(xlim=(-9, 9), ylim=(-7, 7), title="training data, and borders of the network")
ax.set(xlabel="first feature", ylabel="second feature")
fig.legend(loc="outside right upper")
plt.show()

# %%
# Members
# -------
#
# All methods except the ensemble and dropout use the trained network. Dropout needs
# a network that was trained with it. The ensemble trains ten, and Hamiltonian Monte
# Carlo (HMC) draws networks from the posterior under normal priors of unit variance,
# which the others approximate.
from sklearn.frozen import FrozenEstimator

from skood.epistemic import (
    HMC,
    QUAM,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    member_uncertainty,
)

frozen = FrozenEstimator(network)
methods = {
    "HMC": HMC(
        frozen,
        HMCKernel(n_leapfrog=60, n_warmup=50),
        n_samples=50,
        random_state=0,
    ),
    "QUAM": QUAM(frozen, random_state=0),
    "CyclicalSGHMC": CyclicalSGHMC(
        frozen,
        schedule=CyclicalSchedule(
            n_cycles=10, epochs_per_cycle=100, samples_per_cycle=10
        ),
        random_state=0,
    ),
    "DeepEnsemble": DeepEnsemble(make_network(), reference=frozen, random_state=0),
    "MCDropout": MCDropout(make_network(dropout=0.2), 200, setting="b", random_state=0),
    "Laplace": Laplace(frozen, n_samples=200, random_state=0),
}


def members_at(clf, x):
    """Return members' log-probabilities at a point, weights, and the given
    network's."""
    if isinstance(clf, QUAM):  # the models of all searches
        trace = clf.trace(x)
        return trace.log_proba.reshape(-1, 3), trace.weights.ravel(), trace.reference
    with np.errstate(divide="ignore"):
        log_proba = np.log(clf.predict_members(x)[:, 0])
        reference = np.log(clf.set_params(setting="b").predict_proba(x)[0])
    return log_proba, np.full(len(log_proba), 1.0 / len(log_proba)), reference


found = {}
with threadpool_limits(limits=1):
    for name, clf in methods.items():
        found[name] = members_at(clf.fit(X, y), point)
print(f"R-hat of HMC {methods['HMC'].r_hat_:.2f}")

print(f"{'':14} members  effective   class 0 class 1 class 2   epistemic a       b")
for name, (log_proba, weights, reference) in found.items():
    mean = weights @ np.exp(log_proba)
    epistemic = [
        member_uncertainty(
            log_proba[:, None],
            weights=weights,
            reference=reference[None],
            setting=setting,
        ).epistemic[0]
        for setting in "ab"
    ]
    print(
        f"{name:14} {len(weights):7} {1 / np.sum(weights**2):10.0f}  "
        + "".join(f"{p:8.2f}" for p in mean)
        + "".join(f"{u:11.3f}" for u in epistemic)
    )

# %%
# The simplex
# -----------
#
# A dot is a member, its area the weight. A cross is the prediction of the given
# network (for dropout: of the whole network that was trained with it), a diamond the
# weighted mean of the members. The members of QUAM have the color of their target. The
# background shows which predictions the data support: networks are trained to have a
# prediction at the point, for each of 45 points of the triangle, and the loss of the
# training data that they attain is smallest where it is dark.
from torch import nn

from skood.epistemic import SimplexDisplay, attainable_likelihood

grid = SimplexDisplay.grid(3)
with threadpool_limits(limits=1):
    loss = attainable_likelihood(
        nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 3)),
        X,
        y,
        point[0],
        grid,
        n_runs=3,
        n_steps=300,
        random_state=0,
    )
print("training loss of networks that are certain of a class at the point:")
for k, corner in enumerate(np.eye(3)):
    print(f"  class {k}: {loss[(grid == corner).all(axis=1)][0]:.4f}")

fig, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
for ax, (name, (log_proba, weights, reference)) in zip(
    axes.flat, found.items(), strict=True
):
    searched = np.arange(len(log_proba)) % 3 if name == "QUAM" else None
    SimplexDisplay(
        np.exp(log_proba), weights, background=(grid, loss), groups=searched
    ).plot(ax)
    given = SimplexDisplay.to_plane(np.exp(reference)[None])
    ax.plot(*given.T, "kx", ms=9, mew=2, label="given network", zorder=4)
    mean = SimplexDisplay.to_plane(weights[None] @ np.exp(log_proba))
    ax.plot(*mean.T, "D", color="#56B4E9", mec="k", ms=8, label="mean", zorder=4)
    ax.set_title(name)
fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %%
# What we see
# -----------
#
# The given network is certain of class 0, with a probability of 0.945, although the
# point is at the border of classes 0 and 2, away from the data. The posterior, by HMC,
# is not: its networks are anywhere between class 0 and class 2, with hardly any towards
# class 1, and their mean is 0.75 and 0.25. The background agrees: networks with any
# prediction on this edge fit the training data. QUAM finds the same edge from the one
# given network. It searches for all classes, so that it has models of class 1, too;
# these fit the training data worse, and have little weight: 0.05 of the mean. Its
# uncertainty, 0.87 nats in setting "b", is larger than with HMC, 0.44, since it
# searches for models that disagree, where HMC draws from the posterior. Laplace's
# approximation covers the edge too, dropout a third of it. The ten networks of the
# ensemble have the same prediction (0.01 nats): training does not encourage
# disagreement. Nor did the sampler with small batches get far in 1000 epochs.
#
# A search shows possible predictions, and sampling likely ones; a
# single point does not support more conclusions. Whether QUAM ranks points like HMC is
# examined in :ref:`sphx_glr_auto_examples_epistemic_plot_two_moons.py`.
