"""
===========================================
A reject option for misclassified and OOD
===========================================

A classifier of handwritten digits fails in two ways. It confuses digits that look
alike, and it predicts a class with full confidence for inputs of none of
its classes. One score does not detect both: the confidence of the classifier is high
for many OOD samples, and the distance to the training data is small for digits between
two classes. :class:`~skood.rejection.RejectOptionClassifier` combines the two scores
optimally for a given objective.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Data
# ----
#
# The digits 0 and 4 are out-of-distribution (OOD): the classes are the other
# eight digits only. Noise on the pixels makes the task hard enough to have errors. Some
# OOD samples are in the training data, labeled -1. No model is fitted on them; they
# are used to select the rule.
import numpy as np
from sklearn.model_selection import train_test_split

from skood.datasets import load_digits_ood

X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.15, size=X.shape)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)

# %%
# Bounds on TPR and FPR
# ---------------------
#
# The objective is the least error rate of the accepted digits, such that at least 80 %
# of the known digits and at most 10 % of the OOD ones are accepted. The risk score is
# one minus the largest probability, by default; the OOD score is the distance to the
# fifth nearest training sample. Its input are the pixels; by default it would be the
# features of the classifier. Scores are cross-fitted: each sample is scored by models
# that were not fitted on it.
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

clf = RejectOptionClassifier(
    LogisticRegression(max_iter=1000),
    ood_detector=make_pipeline(KNN(n_neighbors=5)),
    rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=0.1),
    calibration=5,
    random_state=0,
).fit(X_train, y_train)
print(clf.report(X_test, y_test, ood_prior=0.2))

# %%
# On the training data both bounds are met. On new data each is met up to sampling
# noise, hence the intervals. The classifier alone is wrong far more often:
is_id = y_test >= 0
accuracy = clf.estimator_.score(X_test[is_id], y_test[is_id])
print(f"errors on all known digits: {1 - accuracy:.3f}")
print(f"errors on the accepted ones: {-clf.score(X_test, y_test):.3f}")

# %%
# The rule
# --------
#
# A sample is accepted if a weighted sum of the two scores is below a threshold: a
# half-plane. Errors are on the right (low confidence), OOD digits at the
# top (far from the training data). The classifier is as confident on many OOD digits as
# on known ones, so that no threshold on its confidence alone would reject them.
import matplotlib.pyplot as plt

point = clf.operating_point_
risk = (1 - clf.predict_proba(X_test).max(axis=1)) / point.scales[0]
ood = -clf.ood_detector_.score_samples(X_test) / point.scales[1]
wrong = is_id & (clf.estimator_.predict(X_test) != y_test)

fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
for mask, color, marker, label in (
    (is_id & ~wrong, "C0", "o", "known digit, right"),
    (~is_id, "C1", "^", "OOD digit"),
    (wrong, "k", "x", "known digit, wrong"),
):
    ax.scatter(risk[mask], ood[mask], 16, color, marker=marker, label=label, alpha=0.7)
edge = np.linspace(0, risk.max(), 200)
line = (point.lam - np.cos(point.theta) * edge) / np.sin(point.theta)
bottom = ood.min() - 0.1
ax.plot(edge, line, "k", label="the rule")
ax.fill_between(
    edge,
    bottom,
    line,
    where=line > bottom,
    color="C2",
    alpha=0.18,
    lw=0,
    label="accepted",
)
ax.set(
    xlim=(-0.02, risk.max()),
    ylim=(bottom, ood.max() + 0.1),
    xlabel="risk score: one minus largest probability (scaled)",
    ylabel="OOD score: distance to training data (scaled)",
    title="Scores of test digits, and the rule",
)
fig.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# One score or two
# ----------------
#
# For every bound on the fraction of OOD
# digits, the next plot shows the least error rate of the accepted known digits
# for any rule on these scores, with at least 80 % of them accepted. Where a line is
# missing, the score cannot meet the bounds.
from skood.metrics import selective_risk_at

confidence = clf.predict_proba(X_test).max(axis=1)
nearness = clf.ood_detector_.score_samples(X_test)
y_pred = clf.estimator_.predict(X_test)
bounds = np.linspace(0.02, 0.5, 25)

fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, scores, style in (
    ("confidence", (confidence, None), "C0--"),
    ("distance", (nearness, None), "C1:"),
    ("both", (confidence, nearness), "k-"),
):
    risks = [
        selective_risk_at(
            y_test, y_pred, *scores, rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=bound)
        ).risk
        for bound in bounds
    ]
    ax.plot(bounds, risks, style, label=name)
ax.set(
    xlabel="largest fraction of OOD digits accepted",
    ylabel="errors among accepted known digits",
    ylim=(0, None),
    title="Least selective risk, 80 % of the known digits accepted",
)
ax.legend()
plt.show()

# %%
# Why was it rejected?
# --------------------
#
# Each rejection has a reason: the score that contributes more to crossing the line.
reason = clf.reject_reason(X_test)
digits = load_digits_ood(left_out=(0, 4)).target
true_digit = train_test_split(digits, test_size=0.5, stratify=y, random_state=0)[1]

fig, axes = plt.subplots(2, 7, figsize=(7.5, 3.2), layout="constrained")
for row, name in zip(axes, ("uncertain class", "out-of-distribution"), strict=True):
    rows = np.flatnonzero(reason.reason == name)[: len(row)]
    row[0].set_ylabel(name.replace(" ", "\n").replace("of-", "of-\n"))
    for ax, i in zip(row, rows, strict=True):
        ax.imshow(X_test[i].reshape(8, 8), cmap="gray_r")
        ax.set(title=f"{true_digit[i]}, taken\nfor {y_pred[i]}", xticks=[], yticks=[])
fig.suptitle("Rejected digits, by reason")
plt.show()

# %%
for name in ("uncertain class", "out-of-distribution"):
    named = reason.reason == name
    print(f"{name}: {named.sum()} rejected, {np.mean(~is_id[named]):.0%} OOD")

# %%
# What we see
# -----------
#
# The distance rejects OOD digits, but does not detect errors: more than half of
# them are among the digits that it accepts. The confidence detects the errors, but
# accepts about three in ten OOD digits when it accepts 80 % of the known ones. Both
# together meet the objective, with fewer errors than either at any bound.
#
# On the test samples the fraction of accepted OOD digits is close to its
# bound, on either side of it with other random states: a rule selected on a
# sample meets its bounds on that sample. If a bound must hold, choose a stricter one,
# according to the width of the intervals.
#
# Most rejections as "out-of-distribution" are OOD digits. Rejections as "uncertain
# class" are mixed: an OOD digit may look like something between two classes.
