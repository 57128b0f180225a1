"""Tiny estimators whose scores and decisions are columns of X."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from skood.metrics import make_rule_scorer
from skood.rejection import BoundedPrecisionRecall


class Classify(BaseEstimator):
    """Predicts column 0 of X."""

    def __init__(self, classes=(0, 1)):
        self.classes = classes

    def fit(self, X=None, y=None):
        self.classes_ = np.array(self.classes)
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(int)


class Detector(BaseEstimator):
    """Scores by `sign` times column 1 of X; knows the classes of y."""

    def __init__(self, sign=1.0):
        self.sign = sign

    def fit(self, X=None, y=None):
        if y is not None:
            self.classes_ = np.unique(np.asarray(y)[np.asarray(y) != -1])
        self.estimator_ = Classify().fit()
        return self

    def score_samples(self, X):
        return self.sign * np.asarray(X)[:, 1]


class Decider(BaseEstimator):
    """Accepts with the probability in column 1 of X; rejects by predict -1."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X=None, y=None):
        self.estimator_ = Classify().fit()
        self.classes_ = self.estimator_.classes_
        return self

    def accept_proba(self, X):
        return self.scale * np.asarray(X)[:, 1]

    def predict(self, X):
        return np.where(self.accept_proba(X) > 0.5, self.estimator_.predict(X), -1)


class ProbabilityDetector(BaseEstimator):
    """The greatest probability of a logistic regression."""

    def __init__(self, C=1.0):
        self.C = C

    def fit(self, X, y):
        self.estimator_ = LogisticRegression(C=self.C, max_iter=300).fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self

    def score_samples(self, X):
        return self.estimator_.predict_proba(X).max(axis=1)


def outputs(y_pred, score):
    return np.column_stack([y_pred, score]).astype(float)


def make_precision_recall_scorer(
    precision_min=0.9, recall_min=0.8, ood_prior=0.5, **options
):
    """A scorer of the selective risk at a bounded precision and recall."""
    rule = BoundedPrecisionRecall(precision_min, recall_min, ood_prior)
    return make_rule_scorer(rule, **options)
