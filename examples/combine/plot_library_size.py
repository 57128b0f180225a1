"""
=====================
The size of a library
=====================

DSDE combines detectors on several networks. How many networks does it need? And which
index may be the change point of their p-values? This is the study of Table 6 of the
paper, with twelve small networks on scikit-learn's digits, and all parts of this
library, or 70 of a size.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A library
# ---------
#
# Perceptrons of different depth and width, on the digits 0 to 7. The others, and four
# kinds of images that are no digits, are out-of-distribution (OOD) samples. Each member
# is a nearest-neighbor detector on the features of a network.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from _library import divide, evaluate_sizes, print_sizes
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from skood.datasets import load_digits_ood
from skood.detectors import KNN

X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
run = divide(X, y, (8, 9), n_train=600, seed=0)


def flat(images):
    """Return images as rows of pixels."""
    return images.reshape(len(images), -1)


SHAPES = [(16,), (32,), (64,), (128,), (32, 32), (64, 32)]
members = []
with warnings.catch_warnings(), threadpool_limits(limits=1):
    warnings.simplefilter("ignore", ConvergenceWarning)
    for i, hidden in enumerate(2 * SHAPES):
        network = MLPClassifier(hidden, max_iter=40, random_state=i)
        network.fit(flat(run.X_train), run.y_train)
        detector = KNN(FrozenEstimator(network), n_neighbors=5)
        detector.fit(flat(run.X_train), run.y_train)
        members.append((f"network {i}", FrozenEstimator(detector)))
images = {kind: flat(rows) for kind, rows in run.images.items()}

# %%
# Parts
# -----
#
# TPR is the fraction of known digits that are accepted at the nominal level of 95 %,
# FPR the fraction of OOD images, a mean over five kinds; "at 95" is the FPR where
# exactly 95 % of the known digits are accepted. The p-values of a part are columns of
# the p-values of all, which are computed once. The lower bound :math:`c_m` of the
# change point is 2/m, the default, or the values of the paper, for 7 and 18 networks.
with threadpool_limits(limits=1):
    found = evaluate_sizes(members, flat(run.X_calibration), images)
print_sizes(found)

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, marker in (("2/m", "o"), ("2/7", "s"), ("2/15", "^")):
    sizes = [size for size, fraction in found if fraction == name]
    rows = [found[size, name] for size in sizes]
    for ax, rate in zip(axes, ("tpr", "fpr_at_95"), strict=True):
        means = [100 * row[rate].mean() for row in rows]
        spreads = [100 * row[rate].std() for row in rows]
        shift = {"2/m": -0.15, "2/7": 0, "2/15": 0.15}[name]
        place = np.array(sizes) + shift
        label = f"$c_m$ = {name}"
        ax.errorbar(place, means, spreads, fmt=f"{marker}-", capsize=3, label=label)
axes[0].axhline(95, color="k", ls="--", lw=1)
axes[0].set(ylabel="TPR at the nominal level of 95 %")
axes[1].set(ylabel="FPR at a TPR of 95 %")
for ax in axes:
    ax.set_xlabel("networks: mean and sd over parts")
axes[1].legend()
plt.show()

# %%
# What we see
# -----------
#
# More networks accept fewer OOD images at the same TPR, 13 % instead of 18 %, and it
# matters less which networks these are: the standard deviation falls to a quarter. Most
# of the gain comes from the first eight. These are small networks of one
# kind; the paper adds eleven networks of other kinds to seven.
#
# The lower bound of the change point hardly matters here. The nominal TPR is near 95 %
# for all sizes; :ref:`conformal levels <combine>` make it exact.
