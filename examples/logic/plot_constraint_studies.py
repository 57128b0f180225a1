"""
=======================================================
How many rules, which search, and which OOD samples
=======================================================

Rules for digits improve a detector. Which of them matter? If rules are searched, how
many should be accepted? And do rules that detect one kind of out-of-distribution (OOD)
samples detect others? These are the ablations of the study of Markov logic networks
for OOD detection, Figures 3, 4 and 6, on scikit-learn's digits.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data
# ----
#
# The digits 0 to 5 are known, each with the concepts parity, loop, curve and size. The
# digits 6 to 9 are four sets of OOD samples.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skood
from skood.datasets import load_digit_concepts

sys.path.append(str(Path(skood.__file__).parents[1]))  # the clone
from benchmarks.reproduce._ablation import (
    ablate_constraints,
    ood_transfer,
    search_path,
)

digits = load_digit_concepts(left_out=[6, 7, 8, 9])
names = digits.concept_names
X, X_test, y, y_test, digit, digit_test = train_test_split(
    digits.data, digits.concepts, digits.digit, test_size=0.5, random_state=0
)
is_id, is_id_test = digit < 6, digit_test < 6
print(digits.constraints[2])

# %%
# The number of rules
# -------------------
#
# ``ablate_constraints``, of ``benchmarks/reproduce``, fits classifiers and detector
# once for each of five seeds, which draw the samples held out for the weights, and fits
# weights for the first k rules. The detector is :class:`~skood.detectors.ViM` on the
# pixels. With ``marginalize=True`` the truth of a rule is its expectation over the
# probabilities of the classifiers.
from skood.detectors import ViM
from skood.logic import ConceptFusion, MLNDetector

linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
concepts = [(name, linear) for name in names]
fig, ax = plt.subplots(layout="constrained")
for j, marginalize in enumerate((False, True)):
    mln = MLNDetector(
        digits.constraints,
        concepts,
        ViM(),
        fusion=ConceptFusion(normalizer="norm"),
        marginalize=marginalize,
    )
    results = ablate_constraints(
        mln, X[is_id], y[is_id], X_test, y_test, random_state=0
    )
    by_number = results.groupby("n_constraints").auroc
    label = "expected truth of rules" if marginalize else "truth of predicted values"
    ax.errorbar(
        np.arange(7) + 0.05 * j,
        by_number.mean(),
        by_number.std(),
        marker="os"[j],
        capsize=3,
        label=label,
    )
ax.set(xlabel="rules: the first k digits", ylabel="AUROC, mean and sd of 5 seeds")
ax.legend(loc="upper left")
plt.show()

# %%
# The least improvement of a search
# ---------------------------------
#
# Without given rules, a search accepts candidates that raise the AUROC on validation
# samples by more than :math:`\delta_{\min}`. Eights are the OOD samples of the search;
# the test has sixes, sevens and nines. ``search_path`` repeats the
# search for several values. Classifiers and detector are fitted on half of the
# training samples, and frozen.
from skood.logic import C, ConstraintSearch, GreedySearch

half = np.arange(len(X)) % 2 == 0
train, rest = is_id & half, ~half
frozen = [
    (name, FrozenEstimator(clone(linear).fit(X[train], y[train, j])))
    for j, name in enumerate(names)
]
candidates = [
    C("class").eq(d) >> C(name).eq(value)
    for d in range(6)
    for name in names[1:]
    for value in digits.domains[name]
]
search = ConstraintSearch(
    MLNDetector(
        [],
        frozen,
        FrozenEstimator(ViM().fit(X[train], digit[train])),
        marginalize=True,
        fusion=ConceptFusion(normalizer="norm"),
        calibration="same",
        domains=digits.domains,
    ),
    candidates=candidates,
    search=GreedySearch(),
    validation=0.5,
    test=0.0,
    random_state=0,
)
known = rest & (is_id | (digit == 8))
path = search_path(
    search, X[known], y[known], X_test[digit_test != 8], y_test[digit_test != 8]
)
print(path.round(3).to_string(index=False))

fig, ax = plt.subplots(layout="constrained")
place = np.arange(len(path))
ax.bar(place, path.n_found, color="0.85", width=0.6)
ax.set_xticks(place, [f"{value:g}" for value in path.min_improvement])
ax.set(xlabel=r"least improvement $\delta_{\min}$", ylabel="rules found (bars)")
right = ax.twinx()
right.plot(place, path.validation_auroc, "o-", label="eights of the search")
right.plot(place, path.test_auroc, "s-", label="other digits")
right.plot(place, path.baseline_auroc, "k--", label="other digits, detector alone")
right.set_ylabel("AUROC (lines)")
right.legend(loc="upper right")
plt.show()

# %%
# Other OOD samples
# -----------------
#
# ``ood_transfer`` searches with each set in turn, and evaluates on the
# others.
sets = {f"{d}": X[rest & (digit == d)] for d in range(6, 10)}
own = rest & is_id
transfer = ood_transfer(search, X[own], y[own], sets, X_test[is_id_test])
print(
    transfer.pivot(index="searched", columns="tested", values="auroc")
    .round(3)
    .to_string(na_rep="")
)

fig, ax = plt.subplots(layout="constrained")
for j, (searched, some) in enumerate(transfer.groupby("searched")):
    place = some.tested.astype(int) + 0.2 * (j - 1.5)
    hatch = [None, "//", "..", "xx"][j]
    ax.bar(place, some.auroc, 0.18, hatch=hatch, label=f"search with {searched}")
alone = transfer.groupby("tested").baseline_auroc.first()
at = alone.index.astype(int)
ax.hlines(alone, at - 0.45, at + 0.45, "k", "--", label="detector alone")
ax.set(xlabel="OOD digit of the test", ylabel="AUROC", ylim=(0.5, 1.0))
ax.set_xticks(range(6, 10))
fig.legend(ncols=3, loc="outside upper center")
plt.show()

# %%
# What we see
# -----------
#
# Most rules help, some do not: the rule of the digit 2 lowers the AUROC. All six
# together raise it from 0.90 to 0.92, and to 0.95 with the probabilities of concepts.
#
# The more rules a search accepts, the better it is for its own OOD samples. Here this
# holds for the other digits as well, with smaller gains; at the smallest improvements
# they stop. With a large one nothing is found, and the detector remains.
#
# Rules transfer to other digits in most cases, not in all: those that a search with
# nines finds lower the AUROC of sixes.
