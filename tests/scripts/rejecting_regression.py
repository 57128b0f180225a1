"""A rejecting regressor in a pipeline: which predictions can be relied on."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionRegressor, TwoThresholds

X, y = load_diabetes(return_X_y=True, as_frame=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, random_state=0)
reg = make_pipeline(
    StandardScaler(),
    RejectOptionRegressor(
        RandomForestRegressor(min_samples_leaf=5),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(ood=0.05, risk=0.4),
        random_state=0,
    ),
).fit(X, y)

predicted = reg.predict(X_new)
accepted = ~np.isnan(predicted)
error = np.abs(y_new - predicted)[accepted].mean()
everything = np.abs(y_new - reg[-1].estimator_.predict(reg[0].transform(X_new))).mean()
print(f"error {error:.1f} on {accepted.mean():.0%}, {everything:.1f} on all patients")
assert 0.4 < accepted.mean() < 0.8
assert error < 0.97 * everything
