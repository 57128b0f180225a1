"""A table with text and missing values, through three kinds of boosting."""

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionClassifier, TwoThresholds

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(900, 2)), columns=["height", "width"])
X["color"] = rng.choice(["blue", "green", "red"], 900)
y = np.where(X["height"] + (X["color"] == "red") > 0.5, "yes", "no")
X.loc[::20, "width"] = np.nan
X, X_new, y, y_new = X[:600], X[600:], y[:600], y[600:]
one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
numbers = make_pipeline(SimpleImputer(), StandardScaler())
prep = make_column_transformer((one_hot, ["color"]), (numbers, ["height", "width"]))
trees = (HistGradientBoostingClassifier(), GradientBoostingClassifier())
for booster in (*trees, LGBMClassifier(verbose=-1, n_jobs=1)):
    clf = RejectOptionClassifier(
        make_pipeline(prep, booster),
        ood_detector=Mahalanobis(covariance=LedoitWolf()),
        rule=TwoThresholds(ood=0.05, risk=0.05),
        random_state=0,
    ).fit(X, y)
    kept = clf.predict(X_new) != "reject"
    assert 0.8 < kept.mean() < 1
    assert (clf.predict(X_new) == y_new)[kept].mean() > 0.97
    assert (clf.predict(X_new.assign(color="pink")) == "reject").all()
    assert (clf.predict(X_new.assign(height=8.0)) == "reject").mean() > 0.97
