"""
===========================
Customers who stay or leave
===========================

A classifier predicts which customers of a company leave. It must reject rows that are
unlike its training data, such as test accounts or customers of a new plan, and
customers it is unsure of. Later, unknown rows arrive, and a monitor raises an alarm.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A table
# -------
#
# The generated table has a date, categories, counts and missing values.
# :func:`~skood.datasets.make_churn` also generates unknown rows: a new plan, another
# currency, and test accounts.
import matplotlib.pyplot as plt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.covariance import LedoitWolf
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skood.datasets import make_churn
from skood.detectors import Mahalanobis
from skood.metrics import AcceptanceRegionDisplay
from skood.monitor import ExchangeabilityMonitor, MartingaleDisplay
from skood.rejection import RejectOptionClassifier, TwoThresholds

X, y = make_churn(3000, random_state=0, return_X_y=True)
print(X.head(4).to_string())


# %%
# A class, or a reason
# --------------------
#
# The detector uses the preprocessing of the classifier. At most 2 % of the customers
# are rejected as unlike the training data, and at most 15 % as uncertain; both bounds
# hold with a probability of 90 % over the calibration rows. No unknown row is needed.
def days(dates):
    """Return the days from each date to the day of the prediction."""
    return dates.apply(lambda date: (pd.Timestamp("2025-01-01") - date).dt.days)


clf = RejectOptionClassifier(
    make_pipeline(
        make_column_transformer(
            (
                make_pipeline(SimpleImputer(), StandardScaler()),
                ["monthly_spend", "support_calls", "days_idle"],
            ),
            (
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                ["plan", "region"],
            ),
            (make_pipeline(FunctionTransformer(days), StandardScaler()), ["signup"]),
        ),
        LogisticRegression(),
    ),
    ood_detector=Mahalanobis(covariance=LedoitWolf()),
    rule=TwoThresholds(ood=0.02, risk=0.15),
    guarantee="high_probability",
    ood_label="unknown",
    random_state=0,
).fit(X, y)

new = make_churn(2000, ood=0.15, random_state=1)
known = new.target != "unknown"
errors = clf.estimator_.predict(new.data)[known] != new.target[known]
print(f"errors of the classifier alone: {errors.mean():.3f}")
print(clf.report(new.data, new.target))

# %%
# Each row gets a class, or *reject* with a reason:
print(clf.explain(new.data.iloc[[2, 4, 9, 10]]))
kind, answer = pd.Series(new.kind, name="kind"), pd.Series(clf.predict(new.data))
print(pd.crosstab(kind, answer.rename("prediction")))

# %%
# Unknown rows arrive
# -------------------
#
# A monitor compares the scores of the detector on incoming rows with its scores on 400
# rows that nothing was fitted on. It needs no labels; a false alarm has a probability
# of at most 1 % over all time. After 1000 rows, 15 % of the rows are unknown.
monitor = ExchangeabilityMonitor(FrozenEstimator(clf.ood_detector_), random_state=0)
monitor.fit(make_churn(400, random_state=2).data)
monitor.update(make_churn(1000, random_state=3).data)
print("alarm before the change:", monitor.alarm_)
monitor.update(make_churn(1000, ood=0.15, random_state=4).data)
print("alarm at row", monitor.alarm_.row, "estimated start", monitor.alarm_.start)

# %%
# Left, the two scores of the new rows. The triangles above the region are unknown rows,
# many of which the classifier alone predicts with a high probability. Right, the
# evidence of the monitor, with the alarm and the estimated start of the change.
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
AcceptanceRegionDisplay.from_estimator(clf, new.data, new.target, ax=axes[0])
axes[0].set(yscale="log", ylim=(1, 1e7))
MartingaleDisplay.from_monitor(monitor, ax=axes[1])
plt.show()
