"""
===========================
Explain a rejected loan
===========================

A classifier grades loans from a table with numbers and a category. It rejects rows
that are unlike the training data, and rows between the grades. Someone who has
to answer the customer needs the reason in the words of the table: which columns, and
by how much.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# A table
# -------
#
# Income and debt depend on each other: who earns more owes more.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)


def make_loans(n):
    """Return a table of loans, and their grades."""
    grade = rng.choice(["good", "poor"], n)
    income = rng.normal(np.where(grade == "good", 48_000, 36_000), 6_000)
    debt = 0.5 * income + rng.normal(np.where(grade == "good", -15_000, -6_000), 1_500)
    table = pd.DataFrame(
        {
            "income": income.round(),
            "debt": debt.round(),
            "age": rng.integers(22, 66, n),
            "city": rng.choice(["Oslo", "Paris", "Rome"], n),
        }
    )
    return table, grade


X, y = make_loans(2000)

# %%
# Classifier, detector and rule
# -----------------------------
#
# Mahalanobis distances have contributions. The detector has no classifier of its own,
# so that it uses the features of this one: the scaled columns.
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionClassifier, TwoThresholds

to_numbers = make_column_transformer(
    (OneHotEncoder(drop="first"), ["city"]),
    (StandardScaler(), ["income", "debt", "age"]),
)
clf = RejectOptionClassifier(
    make_pipeline(to_numbers, LogisticRegression()),
    ood_detector=Mahalanobis(),
    rule=TwoThresholds(ood=0.01, risk=0.05),
    random_state=0,
).fit(X, y)

# %%
# Four customers
# --------------
#
# The first has a typing error in the income; the debt of the second is normal, and so
# is the income, but not both together; the third is between the grades.
customers = pd.DataFrame(
    {
        "income": [482_000, 60_000, 42_000, 50_000],
        "debt": [9_500, 2_000, 10_200, 10_000],
        "age": [44, 39, 51, 30],
        "city": ["Oslo", "Rome", "Rome", "Paris"],
    },
    index=["typing error", "no debt", "in between", "usual"],
)
explanation = clf.explain(customers)
for name, sentence in zip(explanation.index, explanation.sentences, strict=True):
    print(f"{name}: {sentence}")

# %%
# In a notebook it is a table.
explanation

# %%
# Contributions
# -------------
#
# They sum to the squared distance to the nearest class. The customer without debt is
# not far from the mean in any column: with such an income more debt is
# expected, so that both columns contribute.
from skood.metrics import ContributionDisplay

figure, axes = plt.subplots(2, 1, figsize=(8, 5), layout="constrained")
for i, ax in enumerate(axes):
    ContributionDisplay.from_explanation(explanation, i, ax=ax)
plt.show()

# %%
explanation.table(1).round(1)

# %%
# Another rule
# ------------
#
# Bounds change more often than models. On loans that no model was fitted on, another
# rule is chosen without a fit: it rejects rows that are unlike the training data only.
X_new, y_new = make_loans(1000)
lenient = clf.with_rule(TwoThresholds(ood=0.01, risk=0), X_new, y_new)
print(lenient.explain(customers))
