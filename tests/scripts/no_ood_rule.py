"""A rejecting classifier without OOD samples: a threshold for each score."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.rejection import RejectOptionClassifier, TwoThresholds

X, y = load_breast_cancer(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, random_state=0)
clf = RejectOptionClassifier(
    make_pipeline(StandardScaler(), LogisticRegression()),
    ood_detector=Mahalanobis(),
    rule=TwoThresholds(ood=0.05, risk=0.05),
    random_state=0,
).fit(X, y)

broken = X_new.copy()
broken[:, 3] += 15 * X[:, 3].std()  # a sensor with an offset
rejected = np.mean(clf.predict(X_new) == clf.reject_label_)
caught = np.mean(clf.predict(broken) == clf.reject_label_)
print(f"rejected: {rejected:.0%} of new samples, {caught:.0%} of broken ones")
assert rejected < 0.2
assert caught > 0.95
