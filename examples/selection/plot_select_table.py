r"""
=============================
Anomalies in a table
=============================

A laboratory receives batches of measurements, most of them of a known kind, and
examines what it selects by hand: the list should contain few false discoveries. The
example selects unusual rows of a table with detectors of scikit-learn, and shows why a
bound on the error per row is not enough if few rows are unusual.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Benign samples are known, malignant ones are new: 6 of 66 in each batch.
import numpy as np
from sklearn.covariance import EllipticEnvelope
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from skood.selection import BestOf, NoveltySelector, fdp_power

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
benign, malignant = np.flatnonzero(y == 1), np.flatnonzero(y == 0)

detectors = [
    ("forest", IsolationForest(n_estimators=30, random_state=0)),
    (
        "gaussian",
        make_pipeline(
            QuantileTransformer(n_quantiles=50, output_distribution="normal"),
            EllipticEnvelope(support_fraction=1.0),
        ),
    ),
]

# %%
# Forty batches
# -------------
#
# For each of forty random divisions: the detectors are fitted on half of the known
# rows, the other half gives p-values, and a batch has 60 known rows and 6 new ones.
found = {"selected": [], "each row alone": []}
for seed in range(40):
    rng = np.random.default_rng(seed)
    known = rng.permutation(benign)
    rows = np.concatenate([known[:60], rng.choice(malignant, 6, replace=False)])
    is_ood = np.arange(66) >= 60
    selector = NoveltySelector(
        detectors, choice=BestOf(combiners=()), alpha=0.2, random_state=seed
    ).fit(X.iloc[known[60:]])
    batch = X.iloc[rows]
    found["selected"].append(fdp_power(selector.select(batch).selected, is_ood))
    alone = selector.predict(batch) == -1
    found["each row alone"].append(fdp_power(alone, is_ood))

# %%
# The mean fraction of false discoveries estimates the false discovery rate, which is at
# most 0.2 for the selections.
for name, values in found.items():
    fdp, power = np.mean(values, axis=0)
    print(f"{name}: false discoveries {fdp:.2f}, power {power:.2f}")

# %%
# The detectors that reject are in a data frame, with the index of the batch.
frame = selector.explain(batch).sort_values("pvalue")
print(frame[["selected", "pvalue", "detector", "pvalue_forest"]].head(8).round(3))

# %%
# The sorted p-values of this batch. With several detectors, there is no single line.
from skood.selection import SelectionDisplay

display = SelectionDisplay.from_selection(selector.select(batch), is_ood=is_ood)
