r"""
===============================================
Combining a library of networks: MNIST
===============================================

The experiment of :ref:`sphx_glr_auto_examples_combine_plot_model_library.py` with real
images of 28 x 28 pixels: digits of MNIST are known, except for two left-out
classes; letters of notMNIST, mirrored digits, digits with permuted quarters
and pieces of photographs are OOD as well.

The images are read from disk. Set the environment variable ``SKOOD_DATA`` to a folder
with the folders ``mnist`` and ``notmnist`` of IDX files. Without it, this example
does nothing. The results are described at the end.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Images, networks, members
# -------------------------
#
# 4000 of the known digits are for training, and half of the rest is for the p-values,
# half for the test. The functions are defined in
# :ref:`sphx_glr_auto_examples_combine__library.py`. One thread is enough for small
# networks, and does not wait for others on a busy machine.
import os
from functools import partial
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from _library import (
    COMBINERS,
    best_single,
    divide,
    evaluate,
    frozen_members,
    print_table,
    train_library,
)
from threadpoolctl import threadpool_limits

from skood.combine import DSDE
from skood.datasets import load_idx_images
from skood.detectors import KNN, MSP, ODIN, Energy

METHODS = {
    "MSP": MSP,
    "ODIN": ODIN,
    "Energy": Energy,
    "KNN": partial(KNN, n_neighbors=10),
}


def load(folder, seed=0):
    """Return the parts of the data, with letters among the OOD images."""
    X, y = load_idx_images(folder / "mnist", return_X_y=True)
    letters = load_idx_images(folder / "notmnist").data
    return divide(X, y, (8, 9), n_train=4000, seed=seed, letters=letters, n_most=1000)


def train(parts, seed=0):
    """Return the networks, and print their accuracies."""
    start = perf_counter()
    library = train_library(parts.X_train, parts.y_train, n_views=16, seed=seed)
    print(
        f"eight networks in {perf_counter() - start:.0f} s; accuracy on known digits:"
    )
    for name, network in library.items():
        print(f"{name:18} {network.score(parts.X_test, parts.y_test):.3f}")
    return library


# %%
# Tables
# ------
#
# For each score: TPR (the fraction of known digits accepted), FPR (the same of OOD
# images) and AUROC at the level :math:`\alpha = 0.05`, in percent, of single networks
# and of combiners of their p-values. Then DSDE and the best single network at the same
# TPR, and the TPR of DSDE at the conformal level, where it must be 95 % up to the
# sampling error of some 2000 digits.


def compare(parts, library):
    """Print a table for each score, and return them."""
    tables, members = {}, {}
    for method, detector in METHODS.items():
        members[method] = frozen_members(
            detector, library, parts.X_train, parts.y_train
        )
        tables[method] = evaluate(members[method], parts.X_calibration, parts.images)
        print(f"\n{method}: single networks, and combiners of their p-values")
        print_table(tables[method], [k for k in parts.images if k != "known"])
    print("\nat the TPR of DSDE, mean FPR in %        conformal TPR")
    for method, table in tables.items():
        best = best_single(table)
        ensemble = DSDE(
            members[method], calibration="same", level="conformal", random_state=0
        ).fit(parts.X_calibration)
        print(
            f"{method:7} DSDE {100 * table['DSDE'].fpr.mean():5.2f}, {best} "
            f"{100 * table[best].fpr_at_dsde.mean():5.2f}, "
            f"{np.mean(ensemble.predict(parts.X_test) == 1):.3f}"
        )
    return tables


# %%
# The figure has the FPR for each kind of OOD images, at the TPR of DSDE: of single
# networks as dots, the one that is best on average filled, and of DSDE as a line.


def draw(tables, kinds):
    """Draw the FPR of DSDE and of single networks for each kind."""
    fig, axes = plt.subplots(
        1, len(tables), figsize=(13, 4), sharey=True, layout="constrained"
    )
    for ax, (method, table) in zip(axes, tables.items(), strict=True):
        positions, best = np.arange(len(kinds)), best_single(table)
        for name, row in table.items():
            if name not in COMBINERS:
                color = "#0072B2" if name == best else "none"
                ax.plot(positions, row.fpr_at_dsde, "o", mec="#0072B2", mfc=color)
        rates = table["DSDE"].fpr_at_dsde
        ax.hlines(rates, positions - 0.3, positions + 0.3, color="#D55E00", lw=3)
        ax.set_xticks(positions, kinds, rotation=35, ha="right")
        ax.set_title(f"{method} at TPR {table['DSDE'].tpr:.3f}\nfilled: {best}")
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_ylim(-0.002, 1.1)
    axes[0].set_ylabel("FPR")
    lines = [
        plt.Line2D([], [], marker="o", ls="", mec="#0072B2", mfc="none"),
        plt.Line2D([], [], color="#D55E00", lw=3),
    ]
    labels = "single networks", "DSDE"
    fig.legend(lines, labels, loc="outside lower center", ncols=2)
    plt.show()


# %%
# Results
# -------
folder = os.environ.get("SKOOD_DATA")
if folder:
    with threadpool_limits(limits=1):
        parts = load(Path(folder))
        tables = compare(parts, train(parts))
    draw(tables, [kind for kind in parts.images if kind != "known"])
else:
    print("SKOOD_DATA is not set: nothing to do")

# %%
# What we see
# -----------
#
# With MSP, ODIN and Energy, DSDE accepts 11 to 12 % of the OOD images, and the best
# network 17 to 19 %. Most of the gain is for permuted quarters and photographs, where
# networks make different errors. Mirrored digits are hard for all, and there some
# network is better than DSDE.
#
# With KNN the best network is better than DSDE in this run, 2.8 to 4.5 %. The plain
# networks accept most of the unknown digits, and the perceptrons many. With half of the
# members failing, DSDE needs more of the others. All other kinds are detected by nearly
# all networks.
#
# This is a single run. In five runs, each with other unknown digits (``python -m
# benchmarks.reproduce dsde --data DIR --only "MNIST/*"`` repeats them), the mean FPR of
# DSDE and of the best network at the same TPR are
#
# - 19.5 and 27.8 % with MSP (DSDE is better in 5 of 5 runs),
# - 22.3 and 30.8 % with ODIN (5),
# - 22.7 and 28.0 % with Energy (5),
# - 2.9 and 3.3 % with KNN (4).
#
# The TPR of DSDE at the conformal level is 95.3 to 95.8 % there.
