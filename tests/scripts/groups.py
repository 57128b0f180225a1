"""Several visits per patient: whole patients are held out, in fit and in a search."""

import numpy as np
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold

from skood.metrics import make_cost_scorer
from skood.rejection import BoundedImprovement, CostBased, RejectOptionClassifier

rng = np.random.default_rng(0)
patient, sick = np.repeat(np.arange(60), 8), rng.integers(2, size=60)
habit = rng.normal(size=(60, 6)) + 0.7 * sick[:, None]  # of each patient
X, y = habit[patient] + 0.1 * rng.normal(size=(480, 6)), sick[patient]
new = patient >= 40

forest = RandomForestClassifier(50, random_state=0)
clf = RejectOptionClassifier(forest, rule=BoundedImprovement(0.15), random_state=0)
mixed = sklearn.clone(clf).set_params(calibration=5).fit(X[~new], y[~new])
clf.set_params(calibration=GroupKFold(5)).fit(X[~new], y[~new], groups=patient[~new])
print(clf.report(X[new], y[new]))
# the visits of a patient resemble each other: held-out visits promise too much
assert mixed.operating_point_.tpr == 1.0
assert mixed.report(X[new], y[new]).risk.value > 0.25
assert clf.operating_point_.tpr < 0.9
assert clf.report(X[new], y[new]).risk.low < 0.15

with sklearn.config_context(enable_metadata_routing=True):
    clf.set_params(rule=CostBased(0.2, ood_prior=0)).set_fit_request(groups=True)
    grid, score = (
        {"estimator__max_depth": [1, None]},
        make_cost_scorer(0.2, ood_prior=0),
    )
    search = GridSearchCV(clf, grid, scoring=score, cv=GroupKFold(3))
    search.fit(X, y, groups=patient)
print(f"cost: {-search.best_score_:.3f}")
assert 0 < -search.best_score_ < 0.2
