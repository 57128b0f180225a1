r"""
======================================================
Digits and letters: epistemic uncertainty
======================================================

A LeNet is trained on 7,000 digits of MNIST. Its uncertainty should be high for letters
of notMNIST, and for misclassified digits. Methods that use the given network
measure its uncertainty (setting "b"), the others the disagreement of their
members (setting "a").

The images are read from disk. Set the environment variable ``SKOOD_DATA`` to a folder
that holds the folders ``mnist`` and ``notmnist`` of IDX files. Without it, this example
does nothing. ``python -m benchmarks.reproduce quam 1`` does the same with several
seeds.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Methods
# -------
#
# The network, the methods and what is measured are in
# :ref:`sphx_glr_auto_examples_epistemic__mnist.py`. QUAM searches, for each image, ten
# models that predict one class each: among the weights of the dense layers ("dense")
# or of the last one ("last").
import os
from pathlib import Path

import matplotlib.pyplot as plt
from _mnist import HEADER, compare, load
from threadpoolctl import threadpool_limits

FOLDER = os.environ.get("SKOOD_DATA")
METHODS = ("QUAM, dense", "QUAM, last", "MC dropout", "Laplace", "deep ensemble")

# %%
# Table
# -----
#
# AUROC, AUPR and FPR at 95 % TPR for letters against digits; AUROC of wrong against
# right predictions of digits; the accuracy over the retained fraction, averaged
# from the surest digit to all of them; seconds to fit and for an image.

table = {}
if FOLDER is None:
    print("SKOOD_DATA is not set: there are no images to read.")
else:
    print(HEADER)
    with threadpool_limits(1):
        table = compare(load(Path(FOLDER), seed=0), 0)

# %%
# Figure
# ------


def draw(table):
    """Draw the AUROC of the epistemic and the total uncertainty of each method."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    names = [name for name in METHODS if f"{name} (total)" in table]
    for ax, key, label in zip(
        axes,
        ("auroc", "wrong"),
        ("letters against digits", "wrong against right digits"),
        strict=True,
    ):
        for part, marker, color in (
            ("epistemic", "o", "#0072B2"),
            ("total", "s", "#D55E00"),
        ):
            values = [table[f"{name} ({part})"][key] for name in names]
            ax.plot(values, names, marker, color=color, label=part)
        entropy = table["entropy of the network"][key]
        ax.axvline(entropy, color="0.5", ls="--", label="entropy of the network")
        ax.set(xlabel="AUROC", title=label)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3)
    plt.show()


if table:
    draw(table)

# %%
# What is seen
# ------------
#
# Letters: the epistemic uncertainty of QUAM is the best (AUROC .98; the
# ensemble of ten networks .97, MC dropout .93, the entropy of the network .92),
# although it has one network only, and its total uncertainty is better still. Searches
# of the last layer alone cannot change the features, and are little better than the
# entropy. Wrong digits: here the ensemble and MC dropout are better. Errors are near
# the border of two classes, where many models disagree, and no search is needed to find
# them.
