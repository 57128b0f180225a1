"""
===============================
Prediction sets of what is kept
===============================

A classifier that rejects answers with one class. A *conformal set* names all classes
that may be right, and holds the right one with a chosen probability. The two go
together: the rule turns foreign samples away, of which no set is right, and sets are
made for the others. This takes MAPIE (``pip install mapie``); the recipe
:doc:`/recipes/conformal` does the same in three lines of NumPy.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Three parts of the data
# -----------------------
#
# The digits 8 and 9 are foreign: they carry the label -1. Noise makes the task hard
# enough for sets of more than one class. One part of the rows fits the models and
# chooses the rule. The rest is split, many times, into rows that calibrate sets and new
# rows.
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skood.datasets import load_digits_ood
from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

X, y = load_digits_ood(left_out=(8, 9), ood_label=-1, return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.3, size=X.shape)
X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.7, stratify=y, random_state=0)

clf = RejectOptionClassifier(
    LogisticRegression(max_iter=1000),
    ood_detector=KNN(n_neighbors=5),
    ood_input="X",
    rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.2),
    random_state=0,
).fit(X, y)
print(clf.report(X_rest, y_rest))

# %%
# Who calibrates?
# ---------------
#
# A set has a coverage of :math:`1 - \alpha`, the probability that the right class is in
# it, for new samples that are like those that calibrated it. New *accepted* samples are
# like calibration rows that were accepted, too. So there are three ways, and two of
# them keep the promise for the samples that they are about:
#
# - without rejecting: calibrate on all known rows, and make sets for all;
# - calibrate on **all** known rows, and make sets for the accepted ones;
# - calibrate on the **accepted** known rows, and make sets for the accepted ones.
from mapie.classification import SplitConformalClassifier

level = 0.98  # 1 - alpha
known = y_rest != -1
accepted = clf.accept_proba(X_rest) == 1
columns = np.searchsorted(clf.classes_, y_rest)  # of the known rows


def sets_of(calibration, new):
    conformal = SplitConformalClassifier(
        clf.estimator_, confidence_level=level, prefit=True
    ).conformalize(X_rest[calibration], y_rest[calibration])
    return conformal.predict_set(X_rest[new])[1][:, :, 0]


ways = {
    "nothing rejected": (known, known),
    "calibrated on all rows": (known, known & accepted),
    "calibrated on accepted rows": (known & accepted, known & accepted),
}
coverage = {way: [] for way in ways}
size = {way: [] for way in ways}
for seed in range(60):
    first, second = train_test_split(
        np.arange(len(y_rest)), test_size=0.5, stratify=y_rest, random_state=seed
    )
    for way, (calibrates, asks) in ways.items():
        calibration, new = first[calibrates[first]], second[asks[second]]
        sets = sets_of(calibration, new)
        coverage[way].append(sets[np.arange(len(new)), columns[new]].mean())
        size[way].append(sets.sum(axis=1).mean())

print(f"{'':30}{'coverage':>9}{'classes in a set':>18}")
for way in ways:
    print(f"{way:30}{np.mean(coverage[way]):9.3f}{np.mean(size[way]):18.2f}")

# %%
# Each dot is a split. Its coverage varies, for a split has a few hundred rows of each
# kind; what is promised is the mean.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
spread = np.random.default_rng(0).uniform(-0.22, 0.22, size=60)
for ax, numbers, label in (
    (axes[0], coverage, "share of sets with the right class"),
    (axes[1], size, "classes in a set, on average"),
):
    for i, way in enumerate(ways):
        ax.plot(numbers[way], i + spread, "o", c=f"C{i}", ms=3, alpha=0.6)
        ax.plot(np.mean(numbers[way]), i, "|", c="k", ms=26, mew=2)
    ax.set(xlabel=label, yticks=range(3), yticklabels=ways, ylim=(2.5, -0.5))
axes[0].axvline(level, color="0.4", ls="--", lw=1)
axes[0].set_title(f"asked for: {level} (dashed)")
axes[1].set_title("bar: mean of the splits")
plt.show()

# %%
# What holds
# ----------
#
# Both ways that calibrate on rows like the new ones come out at the level that was
# asked for. The one in the middle does not: the rule keeps digits that are easy, and
# sets that were made to cover hard ones as well are larger than they need be. With
# another rule they could be too small: one that looks at the distance to the training
# data alone may keep digits that are harder than the average. So calibrate on accepted
# rows.
#
# The promise is about the average over accepted known samples. It is none for each
# class, nor for foreign samples that are accepted. These get a set as well, which
# cannot be right:
foreign = ~known & accepted
sets = sets_of(known & accepted, foreign)
print(f"accepted foreign digits: {foreign.sum()} of {(~known).sum()}")
print(f"classes in their sets: {sets.sum(axis=1).mean():.2f} on average, none right")

# %%
# Their share is what `fpr_max` bounds; `guarantee="high_probability"` does so on new
# rows, see :ref:`guarantees`. And all of it breaks if the rule is chosen on the rows
# that calibrate the sets, for then these rows and new ones are no longer alike.
