r"""
=====================================
AUROC over the computational budget
=====================================

More computation per image buys more models. QUAM spends it on steps of its searches,
Monte-Carlo dropout on more thinned networks. The budget is counted in passes of a
sample through the layers that are searched: a step of QUAM takes a pass and a gradient
(two more) for each target, with a batch of training samples and the image itself,

.. math:: 3 \cdot \text{steps} \cdot \text{targets} \cdot (\text{batch} + 1) ,

a sample of MC dropout one pass through the layers behind the first dropout, which here
are the same.

The images are read from disk. Set the environment variable ``SKOOD_DATA`` to a folder
that holds the folders ``mnist`` and ``notmnist`` of IDX files. Without it, this example
does nothing.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Budgets
# -------
import os
from pathlib import Path

import matplotlib.pyplot as plt
from _mnist import evaluate, lenet, load, uncertainty
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from skood.epistemic import QUAM, AdversarialSearch, MCDropout

FOLDER = os.environ.get("SKOOD_DATA")
STEPS = (1, 3, 7, 14, 28)
SAMPLES = (3, 10, 30, 100, 300, 1000)


def quam_budget(quam, n_classes):
    """Return the number of passes of a sample for one image."""
    targets = n_classes if quam.targets == "all" else quam.targets
    return 3 * quam.search.n_steps * targets * (quam.search.batch_size + 1)


def curves(parts):
    """Return AUROC over the budget: QUAM by steps and targets; MC dropout."""
    given = FrozenEstimator(lenet(0).fit(parts.X_train, parts.y_train))
    methods = {
        f"QUAM, {targets} targets": [
            QUAM(
                given,
                targets=targets,
                search=AdversarialSearch(n_steps=steps),
                random_state=0,
            )
            for steps in STEPS
        ]
        for targets in (3, 10)
    }
    methods["MC dropout"] = [
        MCDropout(given, n_samples=n, random_state=0) for n in SAMPLES
    ]
    found = {}
    for name, instances in methods.items():
        found[name] = []
        for method in instances:
            method.fit(parts.X_train, parts.y_train)
            u = uncertainty(method, parts)
            budget = (
                quam_budget(method, 10)
                if isinstance(method, QUAM)
                else method.n_samples
            )
            score = evaluate(parts, u.epistemic, u.predicted).auroc
            found[name].append((budget, score, u.seconds))
            print(f"{name:16} {budget:8} passes {u.seconds:.4f} s, AUROC {score:.4f}")
    return found


# %%
# Curves
# ------


def draw(found):
    """Draw AUROC over passes, and over seconds."""
    _, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    colors = "#0072B2", "#009E73", "#D55E00"
    for (name, rows), color, marker in zip(found.items(), colors, "osD", strict=True):
        budgets, scores, seconds = zip(*rows, strict=True)
        axes[0].semilogx(budgets, scores, marker=marker, color=color, label=name)
        axes[1].semilogx(seconds, scores, marker=marker, color=color, label=name)
    axes[0].set(xlabel="passes of one sample per image", ylabel="AUROC, epistemic")
    axes[1].set(xlabel="CPU seconds for an image")
    axes[0].legend()
    plt.show()


if FOLDER is None:
    print("SKOOD_DATA is not set: there are no images to read.")
else:
    with threadpool_limits(1):
        draw(curves(load(Path(FOLDER), n_test=100)))

# %%
# What is seen
# ------------
#
# With 100 digits and 100 letters, MC dropout has .92 after 30 samples, and more do
# not help: all thinned networks are near the given one. QUAM is better after some 14
# steps (AUROC .94 with 3 targets, .95 with 10) and has .97 and .98 after 28. Steps
# matter more than targets: with the three most probable classes a search takes a third
# of the passes, with a small loss. It takes thousands of passes, but they
# are products of matrices: .05 and .17 seconds for an image on a busy core.
