"""Weights and groups, routed in a search to the fit, the rule and the score."""

import numpy as np
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.metrics import make_cost_scorer
from skood.rejection import CostBased, RejectOptionClassifier

X, y = load_breast_cancer(return_X_y=True)
rng = np.random.default_rng(0)
hospital, weight = rng.integers(12, size=len(y)), np.where(y == 0, 3.0, 1.0)

with sklearn.config_context(enable_metadata_routing=True):
    clf = RejectOptionClassifier(
        make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True),
            LogisticRegression().set_fit_request(sample_weight=True),
        ),
        ood_detector=IsolationForest(n_estimators=30, random_state=0).set_fit_request(
            sample_weight=True
        ),
        rule=CostBased(reject_id=0.1, ood_prior=0),
        calibration=GroupKFold(4),
    ).set_fit_request(sample_weight=True, groups=True)
    scorer = make_cost_scorer(0.1, ood_prior=0).set_score_request(sample_weight=True)
    grid = {"estimator__logisticregression__C": [1e-3, 1.0]}
    search = GridSearchCV(
        clf, grid, scoring=scorer, cv=GroupKFold(3), error_score="raise"
    )
    search.fit(X, y, sample_weight=weight, groups=hospital)
print(f"cost: {-search.best_score_:.4f}")
assert search.best_params_["estimator__logisticregression__C"] == 1.0
assert 0.005 < -search.best_score_ < 0.05
train, test = next(GroupKFold(3).split(X, y, hospital))
first = sklearn.clone(search.best_estimator_)
first.fit(X[train], y[train], sample_weight=weight[train], groups=hospital[train])
found = scorer(first, X[test], y[test], sample_weight=weight[test])
assert np.isclose(found, search.cv_results_["split0_test_score"][search.best_index_])
