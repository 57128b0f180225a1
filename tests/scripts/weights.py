"""A table of strata that were sampled at different rates: weights in a pipeline."""

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis

rng = np.random.default_rng(0)


def draw(n_city, n_country):
    """Incomes and ages of customers, who differ between city and country."""
    city = rng.normal([3.0, 35.0], [1.0, 8.0], size=(n_city, 2))
    country = rng.normal([1.0, 55.0], [1.5, 12.0], size=(n_country, 2))
    X = np.concatenate([city, country])
    return X, np.repeat([0, 1], [n_city, n_country])


X, y = draw(2000, 100)  # of equally many customers, few were asked in the country
weight = np.where(y == 0, 1.0, 20.0)
weight /= weight.mean()

steps = [("scale", StandardScaler()), ("detector", Mahalanobis())]
detector = Pipeline(steps).fit(
    X, y, scale__sample_weight=weight, detector__sample_weight=weight
)
unweighted = clone(detector).fit(X, y)

X_new, y_new = draw(5000, 5000)
rejected = np.mean(detector.predict(X_new) == -1)
rejected_before = np.mean(unweighted.predict(X_new) == -1)
assert abs(rejected - 0.05) < 0.02 < rejected_before - 0.05
