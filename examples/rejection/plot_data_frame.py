"""
=================================
A table with text, dates and gaps
=================================

Offers of apartments have numbers, a kind of heating, a date, and missing values.
Gradient-boosted trees predict whether an offer is expensive, and a detector on the same
columns finds offers that are unlike the training data. The preprocessing is written
once, before the classifier. No out-of-distribution (OOD) samples are needed.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# The table
# ---------
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)


def offers(n):
    area = rng.gamma(8, 10, n)
    offered = pd.Timestamp("2019-01-01") + pd.to_timedelta(
        rng.integers(0, 1400, n), "D"
    )
    heating = rng.choice(["gas", "oil", "district"], n, p=[0.5, 0.2, 0.3])
    price = 9 * area + 0.2 * (offered - offered.min()).days - 150 * (heating == "oil")
    table = pd.DataFrame({"area": area, "heating": heating, "offered": offered})
    table["year_built"] = rng.integers(1900, 2019, n).astype(float)
    table.loc[rng.random(n) < 0.1, "year_built"] = np.nan
    noisy = price + rng.normal(0, 80, n)
    return table, np.where(noisy > 850, "expensive", "cheap")


X, y = offers(1500)
print(X.head())

# %%
# One preprocessing
# -----------------
#
# Text becomes one column per category, and dates become days. A category that was not
# in the fit is zeros in all its columns; the shrunk covariance of
# :class:`~sklearn.covariance.LedoitWolf` sees this, see :ref:`tables`.
# ``add_indicator=True`` has a column for missing values, so that these are not hidden.
from sklearn.compose import make_column_transformer
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionClassifier, TwoThresholds


def days(table):
    return table.apply(lambda dates: (dates - pd.Timestamp("2019-01-01")).dt.days)


numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
preprocessing = make_column_transformer(
    (numbers, ["area", "year_built"]),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["heating"]),
    (make_pipeline(FunctionTransformer(days), StandardScaler()), ["offered"]),
)
clf = RejectOptionClassifier(
    make_pipeline(preprocessing, HistGradientBoostingClassifier(max_iter=50)),
    ood_detector=Mahalanobis(covariance=LedoitWolf()),
    rule=TwoThresholds(ood=0.02, risk=0.05),
    random_state=0,
).fit(X, y)

# %%
# New rows, and rows of another kind
# ----------------------------------
#
# Each table has one change: another unit of the area, a kind of heating that was not in
# the training data, a year built in the future, and later offers. The first one has no
# change.
X_new, y_new = offers(600)
feet = X_new["area"] * 10.76
later = X_new["offered"] + pd.Timedelta(days=180)
late = X_new["offered"] + pd.Timedelta(days=3650)
tables = {
    "unchanged": X_new,
    "area in square feet": X_new.assign(area=feet),
    "heating is 'heat pump'": X_new.assign(heating="heat pump"),
    "built in 2190": X_new.assign(year_built=2190.0),
    "half a year later": X_new.assign(offered=later),
    "ten years later": X_new.assign(offered=late),
}
reasons = pd.DataFrame(
    {
        name: pd.Series(clf.reject_reason(table).reason).value_counts(normalize=True)
        for name, table in tables.items()
    }
).T.fillna(0.0)
print(reasons.round(2))
print(clf.report(X_new, y_new))

# %%
# Rows of another kind are rejected as OOD. Offers that are half a year later are not:
# an eighth of them are after the last date of the training data, none far from it.
# Most rejected rows of the unchanged table are neither cheap nor expensive.
import matplotlib.pyplot as plt

hatches = {"uncertain class": None, "out-of-distribution": "//"}
colors = {"accepted": "0.7", "uncertain class": "C1", "out-of-distribution": "C0"}
markers = {"accepted": "o", "uncertain class": "^", "out-of-distribution": "x"}
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
shown = pd.concat([tables["unchanged"], tables["ten years later"][:150]])
found = clf.reject_reason(shown).reason
for reason, color in colors.items():
    rows = shown[found == reason]
    left.scatter(
        rows["offered"], rows["area"], 14, color, marker=markers[reason], label=reason
    )
left.set(xlabel="date of the offer", ylabel="area (m²)", title="Unchanged, and later")
left.legend(loc="upper center")

start = np.zeros(len(reasons))
for reason in ("uncertain class", "out-of-distribution"):
    bars = right.barh(reasons.index, reasons[reason], left=start, color=colors[reason])
    plt.setp(bars, hatch=hatches[reason])
    start += reasons[reason].to_numpy()
right.invert_yaxis()
right.set(xlabel="fraction of rejected rows", xlim=(0, 1))
right.set_title("Why rows are rejected")
plt.show()
