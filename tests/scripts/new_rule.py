"""Stricter bounds for a fitted classifier, chosen on new samples without a fit."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skood.datasets import load_digits_ood
from skood.detectors import KNN
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier

X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
X, X_later, y, y_later = train_test_split(X, y, test_size=0.6, random_state=0)
clf = RejectOptionClassifier(
    RandomForestClassifier(50, random_state=0),
    ood_detector=make_pipeline(KNN()),
    rule=BoundedTPRFPR(tpr_min=0.9, fpr_max=0.5),
    random_state=0,
).fit(X, y)

X_cal, X_new, y_cal, y_new = train_test_split(X_later, y_later, random_state=0)
rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.1)
strict = clf.with_rule(rule, X_cal, y_cal, guarantee="high_probability")
for name, one in {"as fitted": clf, "stricter": strict}.items():
    print(f"{name}\n{one.report(X_new, y_new)}")
assert strict.estimator_ is clf.estimator_
assert strict.report(X_new, y_new).fpr.value <= 0.1
assert clf.rule.fpr_max == 0.5 and clf.guarantee is None
assert np.mean(strict.predict(X_new) == -1) > np.mean(clf.predict(X_new) == -1)
