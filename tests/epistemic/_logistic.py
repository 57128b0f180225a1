"""A logistic regression whose posterior is known by quadrature.

Its network has a logit for each class. The margin is their difference, so its slope and
intercept have priors of twice the variance.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

X = np.array([[-2.0], [-1.0], [-0.5], [0.3], [0.5], [1.0], [1.5], [2.5]])
y = np.array([0, 0, 1, 0, 1, 1, 1, 1])


def frozen():
    """A fitted model of one slope and one intercept."""
    return FrozenEstimator(LogisticRegression().fit(X, y))


class Quadrature:
    """Moments and predictions of the posterior p(w | D)^(1/T), on a grid."""

    def __init__(self, prior_scale=1.0, temperature=1.0):
        scale = np.sqrt(2.0) * prior_scale
        axis = np.linspace(-8 * scale, 8 * scale, 401)
        self.slope, self.bias = np.meshgrid(axis, axis, indexing="ij")
        log_p = -(self.slope**2 + self.bias**2) / (2 * scale**2)
        for (x,), label in zip(X, y, strict=True):
            margin = (self.slope * x + self.bias) * (1 if label else -1)
            log_p -= np.logaddexp(0, -margin)
        p = np.exp((log_p - log_p.max()) / temperature)
        self.p = p / p.sum()

    def mean(self, values):
        """Expectation of an array on the grid."""
        return float((self.p * values).sum())

    def moments(self):
        """Means, variances and covariance of slope and intercept."""
        slope, bias = self.mean(self.slope), self.mean(self.bias)
        return np.array(
            [
                slope,
                bias,
                self.mean((self.slope - slope) ** 2),
                self.mean((self.bias - bias) ** 2),
                self.mean((self.slope - slope) * (self.bias - bias)),
            ]
        )

    def proba(self, x):
        """Predictive probability of class 1."""
        return self.mean(1 / (1 + np.exp(-(self.slope * x + self.bias))))


def sample_moments(samples):
    """The same moments of samples, and their standard errors by batch means."""
    slope = np.diff(samples["0.weight"][:, :, 0], axis=1)[:, 0]
    bias = np.diff(samples["0.bias"], axis=1)[:, 0]
    a, b = slope - slope.mean(), bias - bias.mean()
    values = np.stack([slope, bias, a**2, b**2, a * b])
    batches = values[:, : values.shape[1] // 20 * 20].reshape(5, 20, -1).mean(axis=2)
    return values.mean(axis=1), batches.std(axis=1, ddof=1) / np.sqrt(20)
