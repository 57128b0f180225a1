"""Likelihoods: distributions of the targets, given the outputs of a network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import column_or_1d

from skood.epistemic._measures import (
    gaussian_uncertainty,
    kl_divergence,
    kl_divergence_gaussian,
    member_uncertainty,
)
from skood.nn._dropout_masks import ThinnedNetwork
from skood.nn._functional_network import FunctionalRegressor
from skood.nn._make_network import make_network
from skood.nn._training_data import check_numbers, check_target, class_codes
from skood.utils._estimator import SkoodEstimator
from skood.utils._log_proba import log_proba_of
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import to_numpy
from skood.utils._weights import check_weight


@dataclass(frozen=True)
class Block:
    """Predictions of the members for consecutive samples.

    `predictions` are log-probabilities (n_members, n_samples, n_classes), or a tuple of
    means (n_members, n_samples) and variances, of this shape or a number, as is the
    `reference` without the first axis; for the others see `member_uncertainty`.
    """

    predictions: Any
    weights: np.ndarray | None = None
    reference: Any = None
    groups: np.ndarray | None = None


def taken(predictions, indices):
    """Return predictions of some samples; None and a single variance as they are."""
    if isinstance(predictions, tuple):
        return tuple(taken(values, indices) for values in predictions)
    return predictions if np.ndim(predictions) == 0 else predictions[indices]


def combined(function, predictions):
    """Return a function of a list of predictions: of arrays; one variance stays one."""
    first = predictions[0]
    if isinstance(first, tuple):
        columns = zip(*predictions, strict=True)
        return tuple(combined(function, column) for column in columns)
    return first if np.ndim(first) == 0 else function(predictions)


class BaseLikelihood(SkoodEstimator):
    """Base class of likelihoods, with the methods of `Categorical`."""

    kind: str  # "classifier" or "regressor"
    method: str  # by which an estimator predicts

    def losses(self, outputs, targets):
        """Return the negative log-likelihood of samples, as an ndarray."""
        outputs, targets = torch.from_numpy(outputs), torch.from_numpy(targets)
        return -self.log_density(outputs, targets).numpy()


class Categorical(BaseLikelihood):
    r"""Likelihood of classifiers: class probabilities by the softmax of the logits.

    .. math:: p(y \mid x, w) = \operatorname{softmax}\bigl(f(x, w)\bigr)_y .

    Read more in the :ref:`User Guide <epistemic_regression>`.

    See Also
    --------
    Gaussian : Likelihood of regressors.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import HMC, Categorical
    >>> HMC(LogisticRegression(), likelihood=Categorical()).likelihood
    Categorical()
    """

    _parameter_constraints: dict = {}

    kind = "classifier"
    method = "predict_proba"

    def checked(self, y, owner):
        """Return valid targets for a fit, or raise for `owner`."""
        return check_target(y, owner)

    def targets(self, y, owner):
        """Return the targets of samples as numbers, after the fit of `owner`."""
        return class_codes(check_target(y, owner), owner.classes_)

    def fit_targets(self, y, means, sample_weight=None):
        """Fit parameters to targets; ``means()`` returns the predicted means."""

    def open(self, estimator, device, **options):
        """Return the network of a fitted estimator as a function of its weights."""
        return make_network(estimator).with_weights(device=device, **options)

    def thinned(self, estimator, device, seed):
        """Return the networks that dropout makes of a fitted estimator."""
        return make_network(estimator).with_dropout(device, seed)

    def thinned_predictions(self, networks, samples, n_members, bar):
        """Return predictions for prepared samples by the networks of `thinned`."""
        return networks.log_proba(samples, n_members, bar)

    def outputs(self, network, samples, logits=None):
        """Return float64 outputs of an opened network; see its method for `logits`."""
        return network.log_proba(samples, logits=logits)

    def predictions(self, outputs):
        """Return predictions from float64 outputs (..., n_outputs) of a network."""
        return torch.log_softmax(torch.from_numpy(outputs), dim=-1).numpy()

    def of_model(self, model, X):
        """Return the predictions of any fitted estimator, by its method."""
        return log_proba_of(model, X)

    def of_network(self, estimator, X, device):
        """Return the predictions of a fitted estimator with a network."""
        return log_proba_of(estimator, X)

    def location(self, predictions):
        """Return the mean of the targets: probabilities of the classes, or means."""
        return np.exp(predictions)

    def fields(self, outputs):
        """Return the predictions by the names of their arrays."""
        return {"log_proba": outputs}

    def log_density(self, outputs, targets):
        """Return log p(y|x) of tensors (..., n_samples, n_outputs), (n_samples,)."""
        codes = targets.expand(outputs.shape[:-1])[..., None]
        return torch.log_softmax(outputs, dim=-1).gather(-1, codes)[..., 0]

    def divergence(self, reference, outputs):
        """Return the KL divergence of given outputs from the outputs of models."""
        return kl_divergence(reference, outputs)

    def mixture(self, block):
        """Return the prediction of the weighted mixture of the members."""
        proba = np.exp(np.asarray(block.predictions, dtype=np.float64))
        if block.weights is None:
            return proba.mean(axis=0)
        weights = block.weights if block.weights.ndim == 2 else block.weights[:, None]
        return np.sum(weights[:, :, None] * proba, axis=0)

    def uncertainty(self, block, setting, return_error):
        """Return total, aleatoric and epistemic uncertainty of the samples."""
        options = {**vars(block), "setting": setting, "return_error": return_error}
        return member_uncertainty(options.pop("predictions"), **options)


class Gaussian(BaseLikelihood):
    r"""Likelihood of regressors: a normal distribution around the output of a network.

    .. math:: p(y \mid x, w) = N\bigl(y; \mu(x, w), \sigma^2\bigr) .

    Read more in the :ref:`User Guide <epistemic_regression>`.

    Parameters
    ----------
    variance : {"residuals", "network", "marglik"} or float, default="residuals"
        The variance :math:`\sigma^2` of the targets. "residuals": the mean squared
        residual of the given model on the samples of `fit`, which is too small if it
        overfits (of the mean of all members of a `DeepEnsemble`, and on the samples of
        the steps of `QUAM`). "network": the exponential of the second output of the
        network, or the square of the standard deviation by ``predict(X,
        return_std=True)`` of a member of a `DeepEnsemble`. "marglik": the value that
        maximizes the marginal likelihood, for `Laplace` only. Or a number.

    Attributes
    ----------
    variance_ : float
        Variance of the targets; not with ``variance="network"``.

    See Also
    --------
    Categorical : Likelihood of classifiers.
    gaussian_uncertainty : Decomposition of the uncertainty.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from skood.epistemic import HMC, Gaussian
    >>> HMC(LinearRegression(), likelihood=Gaussian(0.01)).likelihood
    Gaussian(variance=0.01)
    """

    _parameter_constraints: dict = {
        "variance": [
            StrOptions({"residuals", "network", "marglik"}),
            Interval(Real, 0, None, closed="neither"),
        ]
    }

    kind = "regressor"
    method = "predict"

    def __init__(self, variance="residuals"):
        self.variance = variance

    def checked(self, y, owner):
        return check_numbers(y, owner)

    def targets(self, y, owner):
        if y is not None:
            y = column_or_1d(to_numpy(y))  # a column without a warning
        return check_numbers(y, owner)

    def fit_targets(self, y, means, sample_weight=None):
        if isinstance(self.variance, Real):
            self.variance_ = float(self.variance)
        elif self.variance == "residuals":
            self.variance_ = 1.0  # not used by the means
            square = np.square(y - means())
            weight = check_weight(sample_weight, len(y), default=1)
            self.variance_ = float(np.average(square, weights=weight))
            check_residuals(self.variance_, y)
        elif self.variance == "marglik":
            raise ValueError(
                "variance='marglik' maximizes the marginal likelihood of Laplace: for "
                "other estimators use 'residuals', 'network' or a number."
            )

    def open(self, estimator, device, **options):
        n_outputs = 2 if self.variance == "network" else 1
        return FunctionalRegressor(estimator, n_outputs, device=device, **options)

    def thinned(self, estimator, device, seed):
        return ThinnedNetwork(self.open(estimator, device), estimator, seed)

    def thinned_predictions(self, networks, samples, n_members, bar):
        return self.predictions(networks.outputs(samples, n_members, bar))

    def outputs(self, network, samples, logits=None):
        return network.outputs(samples, logits=logits)

    def predictions(self, outputs):
        if self.variance != "network":
            return outputs[..., 0], self.variance_
        with np.errstate(over="ignore"):  # reported by `gaussian_uncertainty`
            return outputs[..., 0], np.exp(outputs[..., 1])

    def of_model(self, model, X):
        if self.variance != "network":
            return _checked_mean(model, model.predict(X)), self.variance_
        try:
            mean, std = model.predict(X, return_std=True)
        except TypeError as error:
            raise TypeError(
                "variance='network' needs members with predict(X, return_std=True), "
                f"but {type(model).__name__} fails: {error}. Use "
                "skood.nn.TorchRegressor(criterion='gaussian_nll'), or another "
                "variance."
            ) from error
        return _checked_mean(model, mean), np.square(np.asarray(std, dtype=np.float64))

    def of_network(self, estimator, X, device):
        # in float32 the result for a sample would depend on the size of the batch
        network = self.open(estimator, device, dtype=torch.float64)
        return self.predictions(network.outputs(network.prepare(X)))

    def location(self, predictions):
        return predictions[0]

    def fields(self, outputs):
        mean, variance = self.predictions(outputs)
        return {"mean": mean, "variance": np.broadcast_to(variance, mean.shape).copy()}

    def log_density(self, outputs, targets):
        precision: torch.Tensor | float
        if self.variance == "network":
            log_variance = outputs[..., 1]
            precision = torch.exp(-log_variance)
        else:
            log_variance, precision = math.log(self.variance_), 1 / self.variance_
        square = (targets - outputs[..., 0]).square()
        return -0.5 * (square * precision + log_variance + math.log(2 * math.pi))

    def divergence(self, reference, outputs):
        normals, models = self.predictions(reference), self.predictions(outputs)
        return kl_divergence_gaussian(*normals, *models)

    def mixture(self, block):
        """Return the mean, the variance of the targets, and the spread of members.

        The spread is the mean squared distance of the members from the predicted mean.
        """
        means, variances = block.predictions
        if block.reference is not None:
            mean, variance = block.reference
        else:
            mean = np.average(means, axis=0, weights=block.weights)
            variance = np.broadcast_to(variances, means.shape)
            variance = np.average(variance, axis=0, weights=block.weights)
        square = np.square(means - mean)
        if block.weights is None:
            spread = square.mean(axis=0)
        else:
            spread = np.sum(block.weights * square, axis=0)
        return mean, np.broadcast_to(variance, mean.shape), spread

    def uncertainty(self, block, setting, return_error):
        options = {**vars(block), "setting": setting, "return_error": return_error}
        return gaussian_uncertainty(*options.pop("predictions"), **options)


def check_residuals(mean_square, y):
    """Raise if residuals of targets are zero, up to rounding."""
    rounding = 10 * np.finfo(np.float64).eps * float(np.abs(y).max())
    if np.sqrt(mean_square) <= rounding:
        raise ValueError(
            f"The model meets all samples (n_samples={len(y)}) exactly, which leaves "
            "no variance of the targets. Pass variance as a number."
        )


def _checked_mean(model, mean):
    """Return predictions of a member as float64, one number for each sample."""
    mean = np.asarray(mean, dtype=np.float64)
    if mean.ndim == 2 and mean.shape[1] == 1:  # skorch
        mean = mean[:, 0]
    if mean.ndim != 1:
        raise ValueError(
            f"{type(model).__name__} predicts an array of shape {mean.shape}; members "
            "must predict one number for each sample."
        )
    return mean
