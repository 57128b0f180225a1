r"""
==========================================
Six methods for the uncertainty of a curve
==========================================

A network learns a sine from 32 samples. What it predicts beyond them is uncertain. Six
methods report how uncertain: Hamiltonian Monte Carlo, which is the ground truth for a
given prior, adversarial models (QUAM), a deep ensemble, Monte Carlo dropout, a Laplace
approximation of the last layer, and cyclical stochastic-gradient HMC. The figure is
Fig. C.4 of the QUAM paper with smaller networks and fewer samples;
``python -m benchmarks.reproduce quam fig-C.4 --out DIR`` has the settings of the paper.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data and network
# ----------------
#
# The noise has a standard deviation of 0.1; all methods are given its variance. (The
# paper writes N(0, 0.1), its code draws with a standard deviation of 0.1, and its HMC
# assumes a variance of 0.1.)
from _sine import GRID, INSIDE, make_network, make_sine, quick_methods, table

X, y = make_sine()
net = make_network().fit(X, y)
methods = quick_methods(net, variance=0.01)

# %%
# All of them have the same interface
# -----------------------------------
#
# ``return_std="epistemic"`` returns the standard deviation of the members around the
# prediction, without the noise. The priors of HMC and cSG-HMC are normal with the
# standard deviation :math:`1 / \sqrt{\text{fan-in}}`, and 1 for biases: with a standard
# deviation of 1 for all weights, as in the paper, the chains need far more steps.
import time

grid = GRID[:, None]
means, stds = {}, {}
for name, method in methods.items():
    start = time.perf_counter()
    means[name], stds[name] = method.fit(X, y).predict(grid, return_std="epistemic")
    print(f"{name:14} {time.perf_counter() - start:5.1f} s")
print(f"R-hat of HMC: {methods['HMC'].r_hat_:.2f}")

# %%
# Bands of one, two and three standard deviations
# -----------------------------------------------
import matplotlib.pyplot as plt
import numpy as np

fig, axes = plt.subplots(2, 3, figsize=(12, 6.5), sharex=True, sharey=True)
for ax, (name, mean) in zip(axes.flat, means.items(), strict=True):
    for k in (3, 2, 1):
        low, high = mean - k * stds[name], mean + k * stds[name]
        ax.fill_between(GRID, low, high, color="#0072B2", alpha=0.2, lw=0)
    ax.plot(GRID, mean, color="#0072B2", label="prediction")
    ax.plot(GRID, np.sin(GRID), "k:", label="sine")
    ax.plot(X[:, 0], y, ".", color="#D55E00", ms=4, label="training samples")
    ax.set(title=name, ylim=(-3.5, 3.5))
axes[0, 0].legend(loc="upper right", fontsize="small")
for ax in axes[1]:
    ax.set_xlabel("x")
for ax in axes[:, 0]:
    ax.set_ylabel("y")
fig.tight_layout()
plt.show()

# %%
# The mean standard deviation among the training samples and outside of them, and the
# correlation of the 160 standard deviations with HMC's:
print("\n".join(table(stds)))

# %%
# As detectors
# ------------
#
# With the uncertainty as an OOD score, points outside of the training samples are OOD.
from sklearn.frozen import FrozenEstimator

from skood.base import UncertaintyDetector
from skood.metrics import auroc

labels = np.where(INSIDE, 1, -1)
for name, std in stds.items():
    print(f"{name:14} AUROC {auroc(labels, -std):.3f}")

# %%
# :class:`~skood.base.UncertaintyDetector` makes a detector of each of them:
detector = UncertaintyDetector(FrozenEstimator(methods["Laplace"])).fit(X, y)
accepted = detector.predict(grid) == 1
print(f"accepted: {GRID[accepted].min():.2f} to {GRID[accepted].max():.2f}")

# %%
# What is seen
# ------------
#
# All methods are more uncertain outside than inside. The Laplace approximation, which
# costs one pass over the data, agrees best with HMC here: 32 samples in one dimension,
# and features of the last layer that are piecewise linear, as the functions of all
# weights are. The ensemble is too certain, mainly among the samples. Dropout is
# uncertain everywhere: its variance does not depend on the number of samples. QUAM
# measures how far *one* network can be moved without a loss on the training samples,
# which is another question; its curve is uneven, because each point has its own search.
