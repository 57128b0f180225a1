"""A search over a detector in a pipeline, with weights that metadata routing passes."""

import numpy as np
import sklearn
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.metrics import make_ood_scorer
from skood.model_selection import IDOnly, OODStratifiedKFold

X, y = load_iris(return_X_y=True)
y[y == 2] = -1  # known OOD samples, for evaluation only
weight = np.where(X[:, 0] > 5.5, 3.0, 1.0)

with sklearn.config_context(enable_metadata_routing=True):
    classifier = LogisticRegression().set_fit_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=True)
    pipeline = make_pipeline(
        IDOnly(scaler).set_fit_request(sample_weight=True),
        Mahalanobis(classifier).set_fit_request(sample_weight=True),
    )
    search = GridSearchCV(
        pipeline,
        {"mahalanobis__tied": [True, False]},
        scoring=make_ood_scorer("auroc").set_score_request(sample_weight=True),
        cv=OODStratifiedKFold(3, shuffle=True, random_state=0),
        error_score="raise",
    )
    search.fit(X, y, sample_weight=weight)

assert search.best_score_ > 0.95
means = search.best_estimator_[0].transformer_.mean_
np.testing.assert_allclose(means, np.average(X[y >= 0], 0, weight[y >= 0]))
