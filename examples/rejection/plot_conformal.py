"""
===============================
Prediction sets after rejection
===============================

A classifier with a reject option predicts one class. A *conformal set* contains all
classes that may be right, and includes the right one with a chosen probability. The two
can be combined: the rule rejects OOD samples, for which no set is right, and sets are
computed for the others. This requires MAPIE (``pip install mapie``); the recipe
:doc:`/recipes/conformal` does the same in three lines of NumPy.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Three parts of the data
# -----------------------
#
# The digits 8 and 9 are OOD: they have the label -1. Noise makes the task hard
# enough for sets of more than one class. One part of the samples is used to fit the
# models and to select the rule. The rest is split, many times, into samples that
# calibrate sets and new samples.
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.datasets import load_digits_ood
from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

X, y = load_digits_ood(left_out=(8, 9), ood_label=-1, return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.3, size=X.shape)
X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.7, stratify=y, random_state=0)

clf = RejectOptionClassifier(
    LogisticRegression(max_iter=1000),
    ood_detector=make_pipeline(KNN(n_neighbors=5)),
    rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.2),
    random_state=0,
).fit(X, y)
print(clf.report(X_rest, y_rest))

# %%
# Calibration samples
# -------------------
#
# A set has a coverage of :math:`1 - \alpha`, the probability that the right class is in
# it, for new samples exchangeable with the calibration samples. New *accepted* samples
# are exchangeable with accepted calibration samples. So there are three ways, and two
# of them have a guarantee:
#
# - without rejecting: calibrate on all known samples, and compute sets for all;
# - calibrate on **all** known samples, and compute sets for the accepted ones;
# - calibrate on the **accepted** known samples, and compute sets for the accepted ones.
from mapie.classification import SplitConformalClassifier

level = 0.98  # 1 - alpha
known = y_rest != -1
accepted = clf.accept_proba(X_rest) == 1
columns = np.searchsorted(clf.classes_, y_rest)  # of the known samples


def sets_of(calibration, new):
    conformal = SplitConformalClassifier(
        clf.estimator_, confidence_level=level, prefit=True
    ).conformalize(X_rest[calibration], y_rest[calibration])
    return conformal.predict_set(X_rest[new])[1][:, :, 0]


ways = {
    "nothing rejected": (known, known),
    "calibrated on all samples": (known, known & accepted),
    "calibrated on accepted samples": (known & accepted, known & accepted),
}
coverage = {way: [] for way in ways}
size = {way: [] for way in ways}
for seed in range(60):
    first, second = train_test_split(
        np.arange(len(y_rest)), test_size=0.5, stratify=y_rest, random_state=seed
    )
    for way, (calibrates, evaluates) in ways.items():
        calibration, new = first[calibrates[first]], second[evaluates[second]]
        sets = sets_of(calibration, new)
        coverage[way].append(sets[np.arange(len(new)), columns[new]].mean())
        size[way].append(sets.sum(axis=1).mean())

print(f"{'':30}{'coverage':>9}{'classes in a set':>18}")
for way in ways:
    print(f"{way:30}{np.mean(coverage[way]):9.3f}{np.mean(size[way]):18.2f}")

# %%
# Each dot is a split. Its coverage varies, since a split has a few hundred samples of
# each kind; the guarantee is on the mean.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
spread = np.random.default_rng(0).uniform(-0.22, 0.22, size=60)
for ax, numbers, label in (
    (axes[0], coverage, "fraction of sets with the right class"),
    (axes[1], size, "classes in a set, on average"),
):
    for i, way in enumerate(ways):
        ax.plot(numbers[way], i + spread, "o", c=f"C{i}", ms=3, alpha=0.6)
        ax.plot(np.mean(numbers[way]), i, "|", c="k", ms=26, mew=2)
    ax.set(xlabel=label, yticks=range(3), yticklabels=ways, ylim=(2.5, -0.5))
axes[0].axvline(level, color="0.4", ls="--", lw=1)
axes[0].set_title(f"requested: {level} (dashed)")
axes[1].set_title("bar: mean of the splits")
plt.show()

# %%
# What holds
# ----------
#
# Both ways that calibrate on samples like the new ones attain the nominal level.
# The one in the middle does not: the rule accepts digits that are easy, and
# sets calibrated to cover hard ones as well are larger than necessary. With
# another rule they could be too small: one that uses only the distance to the training
# data may accept digits that are harder than the average. Therefore calibrate on
# accepted samples.
#
# The guarantee is on the average over accepted known samples, not for each
# class, and not for accepted OOD samples. These get a set as well, which
# cannot be right:
is_ood = ~known & accepted
sets = sets_of(known & accepted, is_ood)
print(f"accepted OOD digits: {is_ood.sum()} of {(~known).sum()}")
print(f"classes in their sets: {sets.sum(axis=1).mean():.2f} on average, none right")

# %%
# Their fraction is bounded by `fpr_max`; with `guarantee="high_probability"` also on
# new samples, see :ref:`guarantees`. The coverage is not guaranteed if the rule is
# selected on the samples that calibrate the sets, since these are then not exchangeable
# with new ones.
