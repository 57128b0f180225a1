"""
===================================
Search a rule and its parts at once
===================================

A classifier with a reject option has many hyperparameters: of the classifier, of the
detector, and of the rule. All of them are parameters, so that one grid
search tunes them together. It needs a scorer that evaluates the objective, also
of candidates that violate its bounds.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data
# ----
#
# Digits with noise on the pixels; 0 and 4 are out-of-distribution (OOD), labeled -1.
import numpy as np
from sklearn.model_selection import train_test_split

from skood.datasets import load_digits_ood

X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.1, size=X.shape)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.4, stratify=y, random_state=0
)

# %%
# A pipeline that rejects
# -----------------------
#
# The rule is the last step of a pipeline, and the input of its detector are the scaled
# pixels. The scaler in front is wrapped in :class:`~skood.model_selection.IDOnly`:
# it is fitted without the OOD samples.
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import KNN
from skood.model_selection import IDOnly
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

pipeline = make_pipeline(
    IDOnly(StandardScaler()),
    RejectOptionClassifier(
        LogisticRegression(max_iter=1000),
        ood_detector=make_pipeline(KNN()),
        rule=BoundedTPRFPR(tpr_min=0.78),
        calibration=0.4,
        random_state=0,
    ),
)

# %%
# Objective
# ---------
#
# The least risk, where at least 75 % of known and at most 20 % of OOD digits are
# accepted: :math:`\mathrm{TPR} \ge \phi`, :math:`\mathrm{FPR} \le \rho`. A rule that is
# chosen with just these bounds violates them on new samples about half of the time. So
# the rule gets a stricter bound on the TPR, and the search finds out how strict the
# bound on the FPR must be. The scorer evaluates the decisions on samples that were not
# used to choose the rule. Its value is minus the selective risk R if both bounds hold
# on these samples, and otherwise
#
# .. math::
#     -\left(1 + \max(0, \phi - \mathrm{TPR}) + \max(0, \mathrm{FPR} - \rho)\right) ,
#
# which is below every risk: a candidate can never win by accepting what it must not.
# Two other scorers look at the same candidates. The first asks for a precision of 95 %
# at a recall of 75 % when one sample in five is OOD, which here means an FPR of at
# most 0.158. The second asks for the least cost, where a rejected known digit costs 0.3
# of an error, and an accepted OOD one as much as an error; there are no bounds.
from skood.metrics import (
    make_cost_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
)
from skood.rejection import BoundedPrecisionRecall

scoring = {
    "risk at TPR, FPR": make_selective_risk_scorer(tpr_min=0.75, fpr_max=0.2),
    "risk at precision, recall": make_rule_scorer(
        BoundedPrecisionRecall(0.95, 0.75, ood_prior=0.2)
    ),
    "cost": make_cost_scorer(reject_id=0.3, ood_prior=0.2),
}

# %%
# The search
# ----------
#
# :class:`~skood.model_selection.OODStratifiedKFold` stratifies folds by OOD
# samples as well. Bounds of the rule that no candidate can meet, such as an FPR of
# 0.02, would make fits fail, and scikit-learn rank them last, with a warning.
from sklearn.model_selection import GridSearchCV

from skood.model_selection import OODStratifiedKFold

prefix = "rejectoptionclassifier__"
grid = {
    f"{prefix}estimator__C": [0.001, 0.01, 1],
    f"{prefix}ood_detector__knn__n_neighbors": [1, 2],
    f"{prefix}rule__fpr_max": [0.1, 0.13, 0.16, 0.2],
}
search = GridSearchCV(
    pipeline,
    grid,
    scoring=scoring,
    refit="risk at TPR, FPR",
    cv=OODStratifiedKFold(3, shuffle=True, random_state=0),
)
search.fit(X_train, y_train)
for name, value in search.best_params_.items():
    print(f"{name.removeprefix(prefix)} = {value}")

# %%
# Candidates that break a bound rank below
# ----------------------------------------
#
# Each cell is a candidate: its mean score over three folds, times -1, and with "!" for
# each fold in which it violates a bound: every such fold adds more than one third. Dark
# is bad; the best is framed. On the right the bound of the rule on the FPR is the
# required one, which most candidates violate in one fold or two; on the left most meet
# it.
import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm

results = search.cv_results_
values = list(grid.values())
shape = len(values[0]) * len(values[1]), len(values[2])
fig, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
for ax, name in zip(axes, scoring, strict=True):
    mean = -results[f"mean_test_{name}"].reshape(shape)
    folds = np.array([results[f"split{i}_test_{name}"] for i in range(3)])
    n_broken = (folds < -1).sum(axis=0).reshape(shape)
    norm = LogNorm(mean.min(), mean.max())
    ax.imshow(mean, cmap="cividis_r", norm=norm, aspect="auto")
    for (i, j), value in np.ndenumerate(mean):
        dark = norm(value) > 0.55
        text = f"{value:.3f}" + "\n" * bool(n_broken[i, j]) + "!" * n_broken[i, j]
        ax.text(j, i, text, ha="center", va="center", size=9, c="w" if dark else "k")
    i, j = np.unravel_index(mean.argmin(), shape)
    frame = plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="C3", lw=3)
    ax.add_patch(frame).set_clip_on(False)
    ax.set_xticks(range(shape[1]), values[2])
    ax.set(title=name, xlabel="fpr_max of the rule")
labels = [f"C = {C}, k = {k}" for C in values[0] for k in values[1]]
axes[0].set_yticks(range(shape[0]), labels)
plt.show()

# %%
# A cost has no bounds, and no discontinuity: it changes little with the bound of the
# rule. These are the best candidates of the three scorers:
for name in scoring:
    best = results["params"][results[f"mean_test_{name}"].argmax()]
    chosen = ", ".join(f"{k.split('__')[-1]}={v}" for k, v in best.items())
    print(f"{name:27}{chosen}")

# %%
# The best one, on test data
# --------------------------
#
# It was refitted on all training samples. The test samples were not used for selection,
# so that their results are unbiased.
best = search.best_estimator_
print(best[-1].report(best[:-1].transform(X_test), y_test, ood_prior=0.2))
for name, scorer in scoring.items():
    print(f"{name:27}{-scorer(best, X_test, y_test):.4f}")

# %%
# Displays take the fitted search like a classifier. The dot is the rule on the
# test samples; in the shaded corner the bounds *of the rule* are met, which are
# stricter than the required ones. The dot is below the curve, which is the best
# TPR at every FPR: the rule trades TPR for fewer errors.
from skood.metrics import AcceptanceRegionDisplay, DoubleScoreROCDisplay

fig, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
DoubleScoreROCDisplay.from_estimator(search, X_test, y_test, ax=axes[0])
axes[0].set_title("What the two scores can reach")
AcceptanceRegionDisplay.from_estimator(search, X_test, y_test, ax=axes[1])
axes[1].set_title("The rule that was found")
plt.show()

# %%
# What we see
# -----------
#
# The numbers of the rule are worth a search, like all others: its bounds are for the
# calibration samples, the bounds of the scorer for new ones. A search has no
# guarantee, and the best of many candidates is selected partly by chance. If a bound
# must hold, use the ``guarantee`` of :class:`~skood.rejection.RejectOptionClassifier`.
