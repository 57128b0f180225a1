"""Exact posterior of the weights of a linear output with normal targets (Laplace)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.optimize import brentq

from skood.epistemic._likelihood import check_residuals
from skood.epistemic._measures import gaussian_uncertainty
from skood.epistemic.laplace._curvature import best_precision, log_marginal_likelihood
from skood.utils._linalg import symmetric_eigh


class GaussianHead:
    """Normal distribution of the weights of a linear output, by its inverse covariance.

    `vectors` and `eigenvalues` are its eigenvectors, as columns, and eigenvalues.
    """

    def __init__(self, vectors, eigenvalues):
        self.vectors, self.eigenvalues = vectors, eigenvalues

    @property
    def covariance(self):
        """Covariance of the weights."""
        return self.vectors / self.eigenvalues @ self.vectors.T

    def spread(self, features):
        """Return the variance of the output, (n_rows,)."""
        half = self.vectors / np.sqrt(self.eigenvalues)
        return np.square(features @ half).sum(axis=1)

    def draws(self, n_samples, seed):
        """Return changes of the weights, (n_samples, n_weights)."""
        rng = np.random.default_rng(seed)
        normals = rng.standard_normal((n_samples, len(self.vectors)))
        # the symmetric root: eigenvectors are not unique where eigenvalues are equal
        turned = normals @ self.vectors / np.sqrt(self.eigenvalues)
        return turned @ self.vectors.T


class GaussianFit:
    """Posterior `head` of a linear output, from passes over the training samples.

    `passes` yields features and outputs of consecutive samples, `weights` are the given
    ones, `variance` is the parameter of a `Gaussian`, and `precision` of the prior is a
    number or "marglik". Attributes: the chosen `variance`, None if the network predicts
    it, and `precision`, and the `log_marginal_likelihood`.
    """

    def __init__(self, passes, y, weights, variance, precision):
        gram, residuals, variances = _sums(passes, y, variance == "network")
        values, vectors, _ = symmetric_eigh(gram)
        values, square_norm = np.maximum(values, 0.0), float((weights**2).sum())
        self.variance = self._chosen_variance(
            variance, precision, values, square_norm, residuals, y
        )
        if self.variance is not None:
            values, variances = values / self.variance, self.variance
        if precision == "marglik":
            precision = best_precision(values, square_norm)
        self.precision = float(precision)
        log_p = -0.5 * (residuals**2 / variances + np.log(2 * np.pi * variances))
        self.log_marginal_likelihood = log_marginal_likelihood(
            log_p.sum(), values, square_norm, self.precision
        )
        self.head = GaussianHead(vectors, values + self.precision)

    def _chosen_variance(self, variance, precision, values, square_norm, residuals, y):
        """Return the variance of the targets; None if the network predicts it."""
        n_samples, square_error = len(residuals), float(np.sum(residuals**2))
        if variance in ("marglik", "residuals"):
            check_residuals(square_error / n_samples, y)
        if variance == "residuals":
            variance = square_error / n_samples
        if variance == "marglik":
            known = None if precision == "marglik" else precision
            variance = best_variance(
                values, square_norm, square_error, n_samples, known
            )
        return None if variance == "network" else float(variance)


def _sums(passes, y, is_predicted):
    """Return the sum of φφ^T / σ^2, residuals, and the σ^2, 1 if not predicted."""
    gram, residuals, variances, start = 0.0, [], [], 0
    for features, outputs in passes:
        stop = start + len(outputs)
        residuals.append(y[start:stop] - outputs[:, 0])
        variance = np.exp(outputs[:, 1]) if is_predicted else np.ones(len(outputs))
        variances.append(variance)
        gram = gram + (features / variance[:, None]).T @ features
        start = stop
    return gram, np.concatenate(residuals), np.concatenate(variances)


def exact_uncertainty(normals, spread, setting):
    """Return the uncertainty for a normal distribution of the mean.

    The divergences are quadratic in the mean: their averages over the distribution and
    over two points, one standard deviation away, are the same.
    """
    (mean, variance), std = normals, np.sqrt(spread)
    members = np.stack([mean - std, mean + std])
    return gaussian_uncertainty(
        members,
        variance if np.ndim(variance) == 0 else np.stack([variance] * 2),
        reference=normals,
        setting=setting,
    )


def best_variance(eigenvalues, square_norm, square_error, n_samples, precision=None):
    """Return the variance of the targets with the largest marginal likelihood.

    `eigenvalues` λ of the sum of φφ^T, `square_error` > 0 of the targets. With
    γ = sum_j λ_j / (λ_j + ρ) and ρ = τ σ^2 it is σ^2 = `square_error` / (n - γ); for an
    unknown `precision` τ = γ / `square_norm`. Each is one equation for ρ with one root:
    γ decreases with ρ.
    """
    values = eigenvalues[eigenvalues > 0]
    if len(values) == 0 or (precision is None and square_norm == 0):
        raise ValueError(
            "variance='marglik' finds no best value: the features, or the weights, of "
            "the last layer are zero. Pass numbers as variance and prior_precision."
        )

    def slope(log_ratio):
        ratio = np.exp(log_ratio)
        # n - γ, without cancellation
        shares = ratio / (values + ratio)
        left = n_samples - len(values) + shares.sum()
        if precision is None:
            return ratio * left * square_norm - (1 - shares).sum() * square_error
        return ratio * left - precision * square_error

    low = high = np.log(values.mean())
    while slope(low) > 0:
        low -= 5.0
    while slope(high) < 0:
        high += 5.0
    ratio = np.exp(brentq(slope, low, high, xtol=1e-13, rtol=1e-14))
    left = n_samples - len(values) + (ratio / (values + ratio)).sum()
    return square_error / left
