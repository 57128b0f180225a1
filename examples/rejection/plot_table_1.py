r"""
====================================================
Table 1 of Franc et al. on known densities
====================================================

Franc, Prusa and Paplham compare reject options on a problem on the real line with
known densities [1]_. Nothing is estimated: neither the classifier
nor the scores. The remaining question of the table is which function of the two
best scores, the conditional risk and the likelihood ratio, should reject.

The densities stated in the paper do not give its table. This example finds the ones
that do, computes the table from a sample and from the densities, and plots the results.

.. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
   out-of-distribution detection. 2023.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The problem
# -----------
#
# There are three classes in distribution (ID), and an out-of-distribution (OOD)
# density:
#
# .. math::
#     p(x, 1) = 0.3\, N(x; -1, 1), \quad p(x, 2) = 0.3\, N(x; 1, 1), \quad
#     p(x, 3) = 0.4\, N(x; 3, 1), \qquad p_O(x) = N(x; 2, 0.2),
#
# where 0.2 is a variance. With :math:`p_I(x) = \sum_k p(x, k)`, the Bayes classifier
# predicts the class of the largest posterior :math:`p(k \mid x)`. Its conditional risk
# and the likelihood ratio
#
# .. math::
#     r(x) = 1 - \max_k p(k \mid x), \qquad g(x) = p_O(x) / p_I(x)
#
# are the two scores, both high for samples to reject. Four models accept a sample
# if their score is small enough:
#
# - A: :math:`g(x)`, a perfect OOD detector;
# - B: :math:`r(x) + 0.2\, g(x)`, a mixture chosen by hand;
# - C: :math:`r(x)`, a perfect detector of misclassified samples;
# - D: :math:`r(x) + \mu\, g(x)` with the best :math:`\mu`, the double score.
#
# 100,000 samples are drawn, a quarter of them OOD.
import numpy as np

from skood.datasets import make_reject_option_1d

N_ID, N_OOD, PRIOR = 75_000, 25_000, 0.25
problem = make_reject_option_1d((N_ID, N_OOD), random_state=0)
y, r, g = problem.target, problem.risk, problem.likelihood_ratio
y_pred = problem.target_names[problem.posteriors.argmax(axis=1)]
is_id = ~problem.is_ood
print(f"error of the classifier on ID samples: {np.mean(y_pred != y, where=is_id):.4f}")

# %%
# The table from the sample
# -------------------------
#
# With the accepted fractions TPR of ID and FPR of OOD samples, the selective risk is
# the error rate of the accepted ID samples. It is minimized in two ways: at TPR
# :math:`\ge 0.7` and FPR :math:`\le 0.2`, and at a recall of 0.7 and a precision
#
# .. math::
#     \frac{(1 - \pi)\, \mathrm{TPR}}{(1 - \pi)\, \mathrm{TPR} + \pi\, \mathrm{FPR}}
#     \ge 0.9, \qquad \pi = 0.25 .
#
# Metrics of :mod:`skood.metrics` take scores that are high for samples to accept, hence
# the signs. D is two scores and a different rule for either pair of bounds, so it has
# no AUROC. The standard error is estimated from ten parts of the sample.
from skood.metrics import aupr_in, auroc, oscr, selective_risk_at
from skood.rejection import BoundedPrecisionRecall, BoundedTPRFPR

RULES = BoundedTPRFPR(0.7, 0.2), BoundedPrecisionRecall(0.9, 0.7, ood_prior=PRIOR)
SCORES = {"A": (-g,), "B": (-(r + 0.2 * g),), "C": (-r,), "D": (-r, -g)}
MEANING = {"A": "g", "B": "r + 0.2 g", "C": "r", "D": "r + μ g"}


def measure(scores, rows=slice(None)):
    """Return the five numbers of the table on some samples."""
    labels, predicted, scores = y[rows], y_pred[rows], [s[rows] for s in scores]
    risks = [
        selective_risk_at(labels, predicted, *scores, rule=RULES[0]).risk,
        selective_risk_at(labels, predicted, *scores, rule=RULES[1]).risk,
    ]
    if len(scores) == 2:
        return [*risks, np.nan, np.nan, np.nan]
    score = scores[0]
    areas = auroc(labels, score), aupr_in(labels, score), oscr(labels, predicted, score)
    return [*risks, *areas]


sampled = {name: measure(scores) for name, scores in SCORES.items()}
parts = [slice(i, None, 10) for i in range(10)]
errors = {
    name: np.std([measure(scores, part) for part in parts], axis=0, ddof=1) / 10**0.5
    for name, scores in SCORES.items()
}

# %%
# The table from the densities
# ----------------------------
#
# On a fine grid the problem is finite. The cells of the grid have probabilities, so
# that sums replace counts, and the best acceptance of each cell is a linear
# program, which :func:`~skood.rejection.solve_finite` solves. It searches all rules,
# not only rules of the form of D.
from scipy.integrate import trapezoid

from skood.exceptions import InfeasibleError
from skood.rejection import Solver, solve_finite

x = np.linspace(-7, 10, 4001)


def curve(score, model):
    """Return TPR, FPR and selective risk after each accepted cell."""
    order = np.argsort(score)
    p, q = (density(x)[order] for density in (model.density_id, model.density_ood))
    tpr, fpr = np.cumsum(p) / p.sum(), np.cumsum(q) / q.sum()
    return tpr, fpr, np.cumsum(p * model.risk(x)[order]) / np.cumsum(p)


def precision_of(tpr, fpr):
    """Return the precision at the prior."""
    return (1 - PRIOR) * tpr / ((1 - PRIOR) * tpr + PRIOR * fpr)


def population(model):
    """Return the table of a problem with these densities."""
    r, g = model.risk(x), model.likelihood_ratio(x)
    table = {}
    for name, score in (("A", g), ("B", r + 0.2 * g), ("C", r)):
        tpr, fpr, risk = curve(score, model)
        precision = precision_of(tpr, fpr)
        meet = (tpr >= 0.7) & np.array([fpr <= 0.2, precision >= 0.9])
        risks = [risk[rows].min() if rows.any() else np.nan for rows in meet]
        areas = trapezoid(tpr, fpr), trapezoid(precision, tpr), trapezoid(1 - risk, fpr)
        table[name] = [*risks, *areas]
    p, q = model.density_id(x), model.density_ood(x)
    table["D"] = [np.nan] * 5
    for i, rule in enumerate(RULES):
        try:
            table["D"][i] = solve_finite(p / p.sum(), q / q.sum(), r, rule).risk
        except InfeasibleError:
            pass  # stays NaN
    return table


exact = population(problem.model)

# %%
# Side by side with the paper
# ---------------------------
#
# The paper's risks are as published; "none" means that no threshold meets the bounds.
PAPER = {"A": [0.157], "B": [0.143], "C": [np.nan], "D": [0.133, 0.129]}


def cells(values, spread=None):
    """Format the numbers of a row; the risks come first."""
    for i, value in enumerate(values):
        if np.isnan(value):
            yield "none" if i < 2 else "–"
        elif spread is None:
            yield f"{value:.4f}"
        else:
            yield f"{value:.4f} ± {spread[i]:.4f}"


header = ["risk, TPR/FPR", "risk, prec./rec.", "AUROC", "AUPR", "OSCR"]
print(" " * 24 + "".join(f"{title:>17}" for title in header))
for name in SCORES:
    print(f"{name}: {MEANING[name]}")
    for source, numbers in (
        ("sample", cells(sampled[name], errors[name])),
        ("densities", cells(exact[name])),
        ("paper", ("none" if np.isnan(v) else f"{v:.3f}" for v in PAPER[name])),
    ):
        print(f"{source:>24}" + "".join(f"{cell:>17}" for cell in numbers))

# %%
# Sample and densities agree within the sampling error, and for A and B the paper is
# within 0.002 of them. For D its risks are larger than necessary: the linear program
# finds the smallest ones of all rules, and the rules found on the sample are as good.
#
# The paper states an OOD mean of 3. Then neither meaning of "0.2" gives its numbers:
for text, mean, variance in (
    ("N(2, variance 0.2)", 2.0, 0.2),
    ("N(3, variance 0.2)", 3.0, 0.2),
    ("N(3, deviation 0.2)", 3.0, 0.04),
):
    other = make_reject_option_1d(1, ood_mean=mean, ood_var=variance).model
    risks = {name: values[0] for name, values in population(other).items()}
    shown = ("none" if np.isnan(risk) else f"{risk:.3f}" for risk in risks.values())
    print(
        f"{text:20}", *(f"{name} {v:8}" for name, v in zip(risks, shown, strict=True))
    )

# %%
# Acceptance regions
# ------------------
#
# The OOD density overlaps classes 2 and 3. This is one of two places where the
# classifier errs; at the other one there are no OOD samples. The figure has the regions
# of acceptance for the bounds on TPR and FPR. C cannot meet them: its region has the
# smallest risk at the same TPR, for any FPR.
import matplotlib.pyplot as plt

points = {
    name: selective_risk_at(
        y,
        y_pred,
        *scores,
        rule=BoundedTPRFPR(tpr_min=0.7, fpr_max=1.0 if name == "C" else 0.2),
    )
    for name, scores in SCORES.items()
}
COLORS = {"A": "#009E73", "B": "#CC79A7", "C": "#D55E00", "D": "#0072B2"}
model = problem.model
r_x, g_x = model.risk(x), model.likelihood_ratio(x)
on_grid = {"A": (g_x,), "B": (r_x + 0.2 * g_x,), "C": (r_x,), "D": (r_x, g_x)}
accepted = {name: points[name].accept(*on_grid[name]) for name in points}

fig, (top, middle, bottom) = plt.subplots(
    3, 1, figsize=(8, 8), sharex=True, height_ratios=(3, 3, 2.2), layout="constrained"
)
joint = model.posterior(x) * model.density_id(x)[:, None]
top.plot(x, joint, color="0.55", lw=1, label=["p(x, k), k = 1, 2, 3", None, None])
top.plot(x, model.density_id(x), "k", lw=2, label="ID density")
top.plot(x, model.density_ood(x), color="#E69F00", lw=2, ls="--", label="OOD density")
top.set_ylabel("density")
top.legend(loc="upper left")

lines = middle.plot(x, r_x, color=COLORS["C"], lw=2, label="conditional risk r")
middle.set(ylabel="r", ylim=(0, 0.72))
twin = middle.twinx()
lines += twin.plot(x, g_x, color=COLORS["A"], lw=2, ls="--", label="ratio g")
twin.set(ylabel="g", ylim=(0, 7.2))
middle.legend(handles=lines, loc="upper left")

for height, (name, inside) in enumerate(accepted.items()):
    bottom.fill_between(
        x, height - 0.3, height + 0.3, where=inside, color=COLORS[name], lw=0
    )
ticks = [
    f"{name}: {MEANING[name]}, risk {p.risk:.3f}\nTPR {p.tpr:.2f}, FPR {p.fpr:.2f}"
    for name, p in points.items()
]
bottom.set_yticks(range(len(ticks)), ticks, fontsize="small")
bottom.set(xlabel="x", xlim=(-4.5, 6.5), ylim=(3.5, -0.5), ylabel="accepted at")
bottom.grid(axis="x", alpha=0.3)
plt.show()

# %%
# All of them reject 30 % of the ID samples. A rejects the OOD density only, far more
# than the bound requires, so that the errors between classes 1 and 2 remain. C rejects
# both overlaps alike, and accepts a third of the OOD samples next to the second one.
# D rejects just enough of the OOD density, and the rest at the first overlap.
#
# In the plane of both scores the real line is a curve. The region of every model is a
# half-plane: A has a horizontal border, C a vertical one, and D selects the slope. The
# lower branch, which is close to :math:`g = 0`, has misclassified samples and no OOD
# samples.
from skood.metrics import AcceptanceRegionDisplay

fig, ax = plt.subplots(figsize=(7.5, 5.5), layout="constrained")
AcceptanceRegionDisplay.from_predictions(
    y,
    y_pred,
    -r,
    -g,
    point=points["D"],
    score_names=("r(x)", "g(x)"),
    ax=ax,
    max_points=400,
)
limits = ax.get_xlim(), ax.get_ylim()
edge = np.array(limits[0])
border = {name: p.lam * p.scales[0] for name, p in points.items()}
for name, style, (r_line, g_line) in (
    ("A", "-.", (edge, np.full(2, border["A"]))),
    ("B", ":", (edge, (border["B"] - edge) / 0.2)),
    ("C", "--", (np.full(2, border["C"]), (-0.2, 5.4))),
):
    ax.plot(r_line, g_line, style, color="0.3", lw=2, label=f"border of {name}")
ax.set(xlim=limits[0], ylim=limits[1])
ax.legend(loc="upper center", ncols=2, fontsize="small")
plt.show()

# %%
# ROC and CCR-FPR curves
# ----------------------
#
# On the left the TPR against the FPR, with the best rule on both scores at every TPR,
# and the bounds. The likelihood ratio has the largest AUROC of all functions of x (the
# lemma of Neyman and Pearson), so that both scores together have the same curve as A.
# The operating point of D is not on it: D trades TPR for a smaller risk.
#
# On the right the correct classification rate, CCR = 1 - selective risk, along the
# thresholds of each score; the area below it is the OSCR. It prefers C, the only model
# that cannot meet the bounds: within them C would have to accept fewer ID samples.
from skood.metrics import DoubleScoreROCDisplay

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
names = {
    "score_names": ("C: r", "A: g"),
    "solver": Solver("grid", n_angles=31),
}
display = DoubleScoreROCDisplay.from_predictions(
    y, -r, -g, y_pred=y_pred, point=points["D"], rule=RULES[0], ax=left, **names
)
DoubleScoreROCDisplay.from_predictions(
    y, *SCORES["B"], score_names=("B: r + 0.2 g", ""), ax=left, ls=":", lw=2
)
for name, style in (("A", "-."), ("B", ":"), ("C", "--")):
    tpr, fpr, risk = curve(on_grid[name][0], model)
    inside = fpr > 1e-4
    right.plot(
        fpr[inside],
        1 - risk[inside],
        color=COLORS[name],
        ls=style,
        lw=2,
        label=f"{name}: {MEANING[name]} (OSCR {exact[name][4]:.3f})",
    )
    enough = tpr >= 0.7
    right.plot(fpr[enough][0], 1 - risk[enough][0], "o", color=COLORS[name], ms=8)
right.plot(
    points["D"].fpr, 1 - points["D"].risk, "o", color=COLORS["D"], ms=8, label="D"
)
right.axvspan(0, 0.2, color="0.5", alpha=0.15, lw=0, label="FPR ≤ 0.2")
right.set(
    xlim=(0, 1),
    ylim=(0.7, 1),
    xlabel="FPR: fraction of OOD samples accepted",
    ylabel="CCR: fraction of correct among accepted ID samples",
    title="Markers: where the TPR reaches 0.7",
)
left.set_title("ROC curves")
right.legend(loc="lower right", fontsize="small")
plt.show()

# %%
# Precision-recall and risk-coverage curves
# -----------------------------------------
#
# On the left, precision and recall at the prior 0.25. On the right, the risk as a
# function of the coverage of ID samples, without OOD samples: there C is the best
# score, and a second score cannot help. C is worse on the left, A on the right.
from skood.metrics import (
    PrecisionRecallDisplay,
    RiskCoverageCurve,
    RiskCoverageDisplay,
    TwoScoreCurve,
)

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
point = selective_risk_at(y, y_pred, -r, -g, rule=RULES[1])
names["ood_prior"] = PRIOR
PrecisionRecallDisplay.from_predictions(
    y, -r, -g, y_pred=y_pred, point=point, rule=RULES[1], ax=left, **names
)
PrecisionRecallDisplay.from_predictions(
    y,
    *SCORES["B"],
    ood_prior=PRIOR,
    score_names=("B: r + 0.2 g", ""),
    ax=left,
    ls=":",
    lw=2,
)
both = TwoScoreCurve.from_predictions(
    y, y_pred, -r, -g, kind="risk_coverage", solver=Solver("grid", n_angles=31)
)
singles = [
    RiskCoverageCurve.from_predictions(y, y_pred, *SCORES[name]) for name in "CAB"
]
RiskCoverageDisplay(
    coverage=[both.bounds, *(single.coverage for single in singles)],
    risk=[both.values, *(single.risk for single in singles)],
    aurc=[both.area, *(single.aurc for single in singles)],
    name=["both scores", "C: r", "A: g", "B: r + 0.2 g"],
).plot(ax=right)
plt.show()

# %%
# Bounds on the FPR
# -----------------
#
# The last figure has the least selective risk at a TPR
# of at least 0.7, for every bound on the FPR. A line starts where a model is able
# to meet the bounds. D has its own rule at every bound.
fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, style in (("A", "-."), ("B", ":"), ("C", "--"), ("D", "-")):
    best = TwoScoreCurve.from_predictions(
        y,
        y_pred,
        *SCORES[name],
        kind="ccr",
        tpr_min=0.7,
        solver=Solver("grid", n_angles=181),
    )
    fpr, risk = np.append(best.bounds, 1), 1 - np.append(best.values, best.values[-1])
    ax.step(fpr, risk, style, where="post", c=COLORS[name], lw=2, label=name)
    ax.plot(fpr[0], risk[0], "o", c=COLORS[name])
ax.axvline(0.2, color="0.5", lw=1, zorder=0)
ax.set(
    xlabel="largest FPR allowed",
    ylabel="least selective risk, TPR ≥ 0.7",
    xlim=(0, 0.6),
    title="At every bound, D is as good as the others or better",
)
ax.legend(title="model")
plt.show()

# %%
# What we see
# -----------
#
# D contains A, B and C, and so it is never worse. How much better it is depends on the
# bound: for a very small bound on the FPR, D is A; without a bound on the FPR,
# D is C; in between neither score is enough. None of AUROC, AUPR and OSCR shows this,
# since each of them uses one score, one kind of error or thresholds that the
# bounds exclude.
