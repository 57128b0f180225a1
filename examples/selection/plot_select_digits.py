r"""
=============================
New digits in a batch
=============================

Which images of a batch are new, with few false discoveries? Several detectors are
fitted on known digits. :class:`~skood.selection.NoveltySelector` selects images of the
batch such that the false discovery rate, the expected fraction of known digits among
the selected images, is bounded, although the detector is chosen on the batch itself.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

# %%
# Known and new digits
# --------------------
#
# The digits of scikit-learn: 8 and 9 are new. A batch has 60 of them among 300 images.
import numpy as np

from skood.datasets import load_digits_ood

X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
rng = np.random.default_rng(0)
known, new = rng.permutation(np.flatnonzero(y != -1)), np.flatnonzero(y == -1)
batch = np.concatenate([known[:240], rng.choice(new, 60, replace=False)])
train = known[240:]
is_ood = y[batch] == -1

# %%
# Select
# ------
#
# Half of the known digits are held out: no detector is fitted on them. They give the
# p-values of the batch.
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import GEN, KNN
from skood.selection import NoveltySelector, fdp_power

selector = NoveltySelector(
    [
        ("knn", KNN(n_neighbors=5, normalize=True)),
        ("scaled", make_pipeline(StandardScaler(), KNN(n_neighbors=5, normalize=True))),
        ("gen", GEN(LogisticRegression(max_iter=1000))),
        ("forest", IsolationForest(random_state=0)),
    ],
    alpha=0.2,
    random_state=0,
)
selector.fit(X[train], y[train])
found = selector.select(X[batch])
fdp, power = fdp_power(found.selected, is_ood)
print(f"selected: {found.n_selected}, false discoveries {fdp:.2f}, power {power:.2f}")
print(selector.explain(X[batch])[found.selected].head(4).round(3).T)

# %%
# Sample by sample, with p-values of at most 0.2, more new digits are found, but many of
# the rejected images are known digits.
fdp, power = fdp_power(selector.predict(X[batch]) == -1, is_ood)
print(f"each image alone: false discoveries {fdp:.2f}, power {power:.2f}")

# %%
# The p-values of one detector
# ----------------------------
#
# With a single detector, the selection consists of the images up to the last p-value
# below the line. ``delta`` adds an upper bound on the fraction of false discoveries
# among the selected images, which holds with 90 % probability. It is far larger than
# the expected fraction, above all for few selected images.
from skood.selection import SelectionDisplay

single = NoveltySelector(
    make_pipeline(StandardScaler(), KNN(n_neighbors=5, normalize=True)),
    alpha=0.2,
    calibration=0.6,
    delta=0.1,
    random_state=0,
).fit(X[train], y[train])
display = SelectionDisplay.from_estimator(single, X[batch], is_ood=is_ood)
print(f"at most {display.selection.fdp_bound:.2f} false discoveries, with 90 %")
