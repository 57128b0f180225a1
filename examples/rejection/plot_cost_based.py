"""
==========================
What may a rejection cost?
==========================

Bounds on rates are one way to define the objective of a reject option. The
other is a cost for each error: for a wrong class, for a known sample that is
rejected, for an OOD sample that is accepted. The rule of least expected cost has no
bounds that could be infeasible. It depends on the costs, and on
the prior of OOD samples, which are not properties of the data.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The model
# ---------
#
# With :math:`c(x) \in \{0, 1\}` for acceptance and :math:`\ell` for the loss of the
# predicted class, the cost of a known (ID) sample is :math:`\ell` if it is accepted
# and :math:`\varepsilon_1` if not. That of an OOD sample is
# :math:`\varepsilon_2` if it is accepted and :math:`\varepsilon_3` if not. When a
# fraction :math:`\pi` of samples is OOD, the expected cost is
#
# .. math::
#     (1 - \pi) \, E_I[c \, \ell + (1 - c) \, \varepsilon_1] +
#     \pi \, E_O[c \, \varepsilon_2 + (1 - c) \, \varepsilon_3] .
#
# The costs of a wrong class and of an accepted OOD sample are 1 here:
# :math:`\varepsilon_2 = 1`, and :math:`\varepsilon_3 = 0`. This leaves two numbers.
# In the first setting rejecting is cheap, since all samples are inspected anyway,
# and OOD samples are common. In the second it is expensive, and OOD samples are rare.
from skood.rejection import CostBased, ScoredSamples

settings = {
    "cheap": CostBased(reject_id=0.05, ood_prior=0.3),
    "expensive": CostBased(reject_id=0.5, ood_prior=0.1),
}

# %%
# Data
# ----
#
# Digits with noise on the pixels; 0 and 4 are OOD and labeled -1. Their fraction in
# the data, one in five, is not used: the prior is a parameter.
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.datasets import load_digits_ood
from skood.detectors import KNN
from skood.metrics import make_cost_scorer
from skood.rejection import RejectOptionClassifier

X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.15, size=X.shape)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
distance = make_pipeline(KNN(n_neighbors=5))  # of the pixels


def fit(rule, **detectors):
    clf = RejectOptionClassifier(
        LogisticRegression(max_iter=1000),
        rule=rule,
        calibration=3,
        random_state=0,
        **detectors,
    )
    return clf.fit(X_train, y_train)


# %%
# Two settings, two rules
# -----------------------
#
# The classifier and the detector are the same in both settings; the rule accepts a
# sample if :math:`a + \mu b` stays below a threshold, for a risk score a (one minus
# the largest probability) and an OOD score b (the distance to the training data).
fitted = {}
for name, rule in settings.items():
    clf = fitted[name] = fit(rule, ood_detector=distance)
    point = clf.operating_point_
    print(f"--- {name} rejection: {rule}")
    print(f"mu = {clf.mu_:.2f}, expected cost on the training samples within")
    print(f"{clf.gap_:.4f} of the least: {point.objective:.4f}. On the test samples:")
    print(clf.report(X_test, y_test, ood_prior=rule.ood_prior))
    print()

# %%
# When rejecting is cheap, the rule takes little risk of either kind: it rejects errors
# and OOD digits, and a third of the known digits. When it is expensive,
# most known digits are accepted, and with them more errors and more OOD digits. The
# slope also changes. A prediction of low confidence is worth accepting if it
# is right more often than not, so that the distance gets the larger weight:
import matplotlib.pyplot as plt

from skood.metrics import AcceptanceRegionDisplay

fig, axes = plt.subplots(1, 2, figsize=(11, 5.5), sharey=True, layout="constrained")
for ax, (name, clf) in zip(axes, fitted.items(), strict=True):
    AcceptanceRegionDisplay.from_estimator(clf, X_test, y_test, ax=ax)
    ax.set_title(f"Rejecting is {name}")
axes[1].set_ylabel("")
plt.show()

# %%
# What it saves
# -------------
#
# :func:`~skood.metrics.make_cost_scorer` makes a scorer, for searches and for
# evaluation on test data. It returns minus the cost. There are two rules that need no
# scores: never reject, or reject all, at a cost of :math:`(1 - \pi) \, \varepsilon_1`.
# Two others threshold one score each.
everything = fit(None)
others = {
    "never reject": lambda rule: everything,
    "confidence alone": fit,
    "distance alone": lambda rule: fit(rule, risk_detector=distance),
}
costs = {name: [] for name in (*others, "reject all", "both scores")}
for name, rule in settings.items():
    scorer = make_cost_scorer(rule.reject_id, ood_prior=rule.ood_prior)
    for other, make in others.items():
        costs[other].append(-scorer(make(rule), X_test, y_test))
    costs["reject all"].append((1 - rule.ood_prior) * rule.reject_id)
    costs["both scores"].append(-scorer(fitted[name], X_test, y_test))

print(f"{'cost on test samples':26}" + "".join(f"{name:>8}" for name in settings))
for other, row in costs.items():
    print(f"{other:26}" + "".join(f"{cost:8.4f}" for cost in row))

# %%
# If rejecting is cheap, a single score must reject very many digits to avoid OOD
# samples and errors; the confidence alone is no better than to reject all of them.
# If it is expensive, the distance alone is nearly as good as both scores: rejecting
# pays for the OOD digits, but not for most errors. (There are 719 known and 180
# OOD test samples: in the expensive setting, differences below 0.01 are not
# significant.)
#
# Any cost, any prior
# -------------------
#
# For a range of costs, :class:`~skood.metrics.SCODCurve` has the least cost
# of any rule on one or two scores. Costs are linear in each cost and in the prior, so
# that their minimum is concave. These are the best rules *on the test samples*: a bound
# for the scores, not the performance of a rule selected on other samples.
from skood.metrics import SCODCurve

clf = fitted["cheap"]  # both have the same models
labels = y_test, clf.estimator_.predict(X_test)
confidence = clf.predict_proba(X_test).max(axis=1)
nearness = clf.ood_detector_.score_samples(X_test)
scores = {
    "confidence alone": ((confidence,), "C0--"),
    "distance alone": ((nearness,), "C1:"),
    "both scores": ((confidence, nearness), "k-"),
}
sweeps = {
    "reject_id": (np.linspace(0, 1, 51), {"ood_prior": 0.2}),
    "ood_prior": (np.linspace(0, 0.98, 50), {"reject_id": 0.2}),
}
words = {"reject_id": "cost of a rejection", "ood_prior": "fraction of OOD digits"}
errors = np.mean((labels[1] != y_test)[y_test >= 0])

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (swept, (values, fixed)) in zip(axes, sweeps.items(), strict=True):
    params = {swept: values, **fixed}
    rules = [CostBased(**{swept: value}, **fixed) for value in values]
    for name, (score, style) in scores.items():
        curve = SCODCurve.from_predictions(*labels, *score, rules=rules)
        ax.plot(values, curve.costs, style, label=name)
    prior = np.broadcast_to(params["ood_prior"], values.shape)
    never = (1 - prior) * errors + prior
    ax.plot(values, never, color="0.6", lw=1, label="never reject")
    ax.plot(values, (1 - prior) * params["reject_id"], "-.", c="0.6", lw=1, label="all")
    (held,) = fixed.items()
    ax.set(
        xlabel=f"{words[swept]} ({swept})",
        ylim=(0, 0.33),
        title=f"{held[0]} = {held[1]}",
    )
axes[0].set_ylabel("least expected cost")
handles, names = axes[0].get_legend_handles_labels()
names[-1] = "reject all"
fig.legend(handles, names, loc="outside lower center", ncols=5)
plt.show()

# %%
# Without a search
# ----------------
#
# If the conditional risk :math:`r(x)` and the likelihood ratio :math:`g(x) = p_O(x) /
# p_I(x)` are known, so is the best rule. A known sample at x costs :math:`r` if
# accepted and :math:`\varepsilon_1` if not. Weighing OOD samples in, accept iff
#
# .. math::
#     r(x) + (\varepsilon_2 - \varepsilon_3) \frac{\pi}{1 - \pi} \, g(x)
#     \le \varepsilon_1 .
#
# This is :class:`~skood.rejection.PlugInCost`, which is not fitted to samples. In
# :func:`~skood.datasets.make_reject_option_1d` both functions are known, and the cost
# of any rule is an integral over the line.
from skood.datasets import make_reject_option_1d
from skood.rejection import PlugInCost, solve

prices = {"reject_id": 0.3, "ood_prior": 0.25}
x = np.linspace(-8, 11, 20_001)
dx = x[1] - x[0]
model = make_reject_option_1d(1, random_state=0).model
r, g = model.risk(x), model.likelihood_ratio(x)
p_id, p_ood = model.density_id(x), model.density_ood(x)


def true_cost(accepted):
    price, prior = prices["reject_id"], prices["ood_prior"]
    return dx * (
        (1 - prior) * (p_id * np.where(accepted, r, price)).sum()
        + prior * (p_ood * accepted).sum()
    )


plug_in = solve(PlugInCost(**prices), ScoredSamples.from_arrays(r, g, r, None, None))
accepted = plug_in.accept(r, g)
least = true_cost(accepted)
print(f"mu = {plug_in.mu:.4f}, lambda_0 = {prices['reject_id']}, cost = {least:.4f}")

# %%
# It rejects where two classes are about equally likely, and where the OOD
# density is high:
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.plot(x, r, "C3--", label="risk r(x)")
ax.plot(x, p_id, "C0-", label="density of known samples")
ax.plot(x, p_ood, "C1-.", label="density of OOD samples")
ax.fill_between(x, 0, 1, where=accepted, color="C2", alpha=0.18, lw=0, label="accepted")
ax.set(xlim=(-4, 7), ylim=(0, 1), xlabel="x", title="The rule of least cost")
ax.legend(loc="upper left")
plt.show()

# %%
# Scores are rarely that good. :class:`~skood.rejection.CostBased` takes scores of any
# kind, and searches the angle and the threshold on samples. To find the required
# number, n known and n OOD samples are drawn, 30 times, and the true cost of the rule
# is computed. The plug-in rule, on the other hand, depends on its scores: if the
# likelihood ratio is estimated four times too small or too large, the cost increases,
# for any n.
sizes = np.array([50, 100, 200, 500, 1000])
excess = np.empty((len(sizes), 30))
for i, n in enumerate(sizes):
    for j in range(excess.shape[1]):
        rows = make_reject_option_1d((int(n), int(n)), random_state=j)
        is_ood = rows.is_ood
        answer = rows.target_names[rows.posteriors.argmax(axis=1)]
        point = solve(
            CostBased(**prices),
            ScoredSamples.from_arrays(
                rows.risk[~is_ood],
                rows.likelihood_ratio[~is_ood],
                (answer != rows.target)[~is_ood],
                rows.risk[is_ood],
                rows.likelihood_ratio[is_ood],
            ),
        )
        excess[i, j] = true_cost(point.accept(r, g)) - least

fig, ax = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
low, middle, high = np.percentile(excess, [10, 50, 90], axis=1)
ax.fill_between(sizes, low, high, color="C0", alpha=0.2, lw=0, label="10 to 90 %")
ax.plot(sizes, middle, "C0o-", label="CostBased, searched: median")
for factor, style in ((0.25, "C1--"), (4, "C3-.")):
    wrong = true_cost(plug_in.accept(r, factor * g)) - least
    ax.axhline(wrong, color=style[:2], ls=style[2:], label=f"PlugInCost, {factor} g")
    print(f"plug-in rule with {factor} times the true ratio: {wrong:.4f} above least")
ax.set(
    xscale="log",
    yscale="log",
    xlabel="samples of each kind",
    ylabel="cost above the least",
    title=f"Excess over the least cost, {least:.4f}",
)
fig.legend(loc="outside lower center", ncols=2)
plt.show()

# %%
# What we see
# -----------
#
# Costs and a prior are enough to define a rule, and it always exists. Two scores cost
# less than one, above all if both kinds of error matter. Known probabilities need
# no search, but must be right. With scores of any other kind a few hundred samples are
# enough for a rule that costs one or two per cent more than the best one.
