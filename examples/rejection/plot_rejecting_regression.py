"""
====================
Rejecting regression
====================

A regressor with a reject option predicts a value, or rejects the sample: because
targets scatter widely where it lies, or because it is unlike the training samples. This
example shows both, on three data sets, and compares sources of the uncertainty.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A series with noise of changing size
# ------------------------------------
#
# The noise is larger in the daytime. There is no data after day 8. OOD samples, on
# these days, have the target NaN.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import KNN
from skood.metrics import RiskCoverageDisplay
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    RejectOptionRegressor,
    TwoThresholds,
)

rng = np.random.default_rng(0)


def load(day):
    daytime = np.maximum(np.sin(2 * np.pi * day), 0)
    return 2 * daytime + (0.1 + 0.6 * daytime) * rng.normal(size=len(day))


def features(day):
    return np.column_stack([day, np.sin(2 * np.pi * day), np.cos(2 * np.pi * day)])


day = np.sort(rng.uniform(0, 8, size=1500))
later = rng.uniform(8.5, 12, size=300)
X = features(np.concatenate([day, later]))
y = np.concatenate([load(day), np.full(300, np.nan)])

forest = RandomForestRegressor(min_samples_leaf=10)
reg = RejectOptionRegressor(
    forest,
    ood_detector=KNN(),
    rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.05),
    random_state=0,
).fit(X, y)

grid = np.linspace(5, 11, 1201)
fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.scatter(day[day > 5], y[: len(day)][day > 5], s=4, color="0.7", label="samples")
ax.plot(grid, reg.estimator_.predict(features(grid)), ":", color="C1", label="rejected")
ax.plot(grid, reg.predict(features(grid)), color="C0", label="predicted")
ax.set(xlabel="day", ylabel="load")
_ = ax.legend(loc="upper right")

# %%
# At night the predictions are accepted, in the daytime they are rejected as uncertain,
# and from day 8.5 on as out-of-distribution.
test = np.sort(rng.uniform(0, 8, size=1500))
for name, value in zip(
    *np.unique(reg.reject_reason(features(later)).reason, return_counts=True),
    strict=True,
):
    print(f"later days: {value} samples {name}")
print(reg.report(features(test), load(test)))

# %%
# Houses outside of the region of training
# ----------------------------------------
#
# Prices depend on income, age and place, with heavy-tailed errors that grow with the
# price, as in the California housing data. The southern houses are OOD: no model was
# fitted on them, and no price is known. Without known OOD samples,
# :class:`~skood.rejection.TwoThresholds` bounds the fraction of samples that either
# score rejects.


def houses(n, south=False):
    income, age = rng.lognormal(1.2, 0.4, size=n), rng.uniform(1, 50, size=n)
    place = rng.normal(size=(n, 2)) + (5 * np.array([1, -1]) if south else 0)
    price = 0.5 * income + 0.3 * np.abs(place[:, 0]) - 0.005 * age
    noise = 0.08 * price**1.5 * rng.standard_t(3, size=n)
    return np.column_stack([income, age, place]), price + noise


X, y = houses(3000)
X_new, y_new = houses(1500)
X_south, _ = houses(500, south=True)
reg = RejectOptionRegressor(
    GradientBoostingRegressor(),
    ood_detector=make_pipeline(StandardScaler(), KNN()),
    rule=TwoThresholds(ood=0.05, risk=0.2),
    random_state=0,
).fit(X, y)

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
predicted = reg.estimator_.predict(X_new)
rejected = np.isnan(reg.predict(X_new))
axes[0].scatter(predicted[~rejected], y_new[~rejected], s=5, label="accepted")
axes[0].scatter(
    predicted[rejected], y_new[rejected], s=9, color="C1", marker="x", label="rejected"
)
axes[0].set(xlabel="predicted price", ylabel="price", title="northern houses")
places = np.concatenate([X_new, X_south])[:, 2:]
rejected = np.isnan(reg.predict(np.concatenate([X_new, X_south])))
for mask, color, marker, name in (
    (~rejected, "C0", "o", "accepted"),
    (rejected, "C1", "x", "rejected"),
):
    axes[1].scatter(*places[mask].T, s=9, color=color, marker=marker, label=name)
print(f"north: {rejected[:1500].mean():.0%} of houses rejected")
print(f"south: {rejected[1500:].mean():.0%} of houses rejected")
axes[1].set(xlabel="longitude", ylabel="latitude", title="places of all houses")
for ax in axes:
    ax.legend(loc="best", markerscale=2)

# %%
# Sources of the uncertainty
# --------------------------
#
# Curves of the mean absolute error against the accepted fraction of samples, for the
# houses and for the progression of diabetes of 442 patients. The standard deviation of
# a linear model with noise of one size only measures how unusual a sample is. The
# expected loss, and the width between two quantiles, follow the size of the noise.


def quantile(q):
    return GradientBoostingRegressor(loss="quantile", alpha=q, max_depth=2)


def compare(X, y, X_new, y_new, ax):
    scores = {}
    linear = make_pipeline(StandardScaler(), BayesianRidge())
    for name, uncertainty in (
        ("expected loss", None),
        ("standard deviation", "std"),
        ("interval of quantiles", (quantile(0.1), quantile(0.9))),
    ):
        reg = RejectOptionRegressor(linear, uncertainty, random_state=0).fit(X, y)
        scores[name], _ = reg.score_pair(X_new)
    RiskCoverageDisplay.from_predictions(
        y_new,
        reg.estimator_.predict(X_new),
        scores,
        loss="absolute_error",
        plot_random=True,
        ax=ax,
    )


fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
compare(X, y, X_new, y_new, axes[0])
axes[0].set(title="houses", ylim=0)
X, y = load_diabetes(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, random_state=0)
compare(X, y, X_new, y_new, axes[1])
_ = axes[1].set(title="diabetes", ylim=0)

# %%
# The rule that accepts half of the patients:
reg = RejectOptionRegressor(
    RandomForestRegressor(min_samples_leaf=5),
    rule=BoundedAbstention(coverage=0.5),
    max_loss=200.0,
    random_state=0,
).fit(X, y)
report = reg.report(X_new, y_new)
everything = np.abs(y_new - reg.estimator_.predict(X_new)).mean()
print(report)
print(f"mean absolute error of all patients: {everything:.1f}")
