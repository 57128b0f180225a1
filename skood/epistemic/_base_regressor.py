"""Base class of uncertainty regressors with many members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skood.base import UncertaintyMixin
from skood.epistemic._base_uncertainty import (
    chosen_setting,
    fit_given,
    warn_of_few_members,
)
from skood.epistemic._measures import gaussian_uncertainty
from skood.nn._functional_network import FunctionalRegressor
from skood.nn._training_data import check_numbers, check_weights
from skood.utils._batches import blockwise, joined
from skood.utils._estimator import SkoodEstimator
from skood.utils._metaestimators import wrapped_tags
from skood.utils._param_validation import HasMethods, Interval, StrOptions


@dataclass(frozen=True)
class Normals:
    """Normal distributions that the members predict for consecutive samples.

    `mean` (n_members, n_rows); `variance` of this shape, or a number; `reference`, the
    mean (n_rows,) and the variance, likewise, by the given model, or None in setting
    "a".
    """

    mean: np.ndarray
    variance: np.ndarray | float
    reference: tuple | None = None


@UncertaintyMixin.register  # an interface without code of its own
class BaseMemberRegressor(RegressorMixin, SkoodEstimator, metaclass=ABCMeta):
    """Base class of regressors whose uncertainty is the disagreement of many members.

    A subclass implements ``fit``, which calls ``_fit_estimator`` and ``_set_variance``;
    and ``_blocks(X)``, which yields `Normals` for consecutive samples. It has the
    parameters ``estimator``, ``setting`` and ``variance``.
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "setting": [StrOptions({"auto", "a", "b"})],
        "variance": [
            StrOptions({"residuals", "network"}),
            Interval(Real, 0, None, closed="neither"),
        ],
    }

    @abstractmethod
    def _blocks(self, X):
        """Yield `Normals` of consecutive samples; memory is bounded by the blocks."""

    @blockwise(axis=1)
    def predict_members(self, X):
        """Return the means that the members predict.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        y : ndarray of shape (n_members, n_samples), dtype float64
            Means.
        """
        check_is_fitted(self)
        return np.concatenate([block.mean for block in self._blocks(X)], axis=1)

    @blockwise
    def predict(self, X, return_std=False):
        r"""Return the mean of the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_std : bool or "epistemic", default=False
            Whether to return a standard deviation as well. True: of the prediction,
            which is the root of the variance of the targets plus the mean squared
            distance of the members from the predicted mean. "epistemic": the root of
            the latter alone; in setting "a" it is the standard deviation of the
            members.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
            Mean of all members in setting "a", of the given model in setting "b".

        y_std : ndarray of shape (n_samples,), dtype float64
            Standard deviations. Only with `return_std`.
        """
        check_is_fitted(self)
        check_return_std(return_std)
        if not return_std and self._setting() == "b":
            return self._given(X)[0]
        mean, noise, spread = joined([self._parts(block) for block in self._blocks(X)])
        if not return_std:
            return mean
        return mean, np.sqrt(spread if return_std == "epistemic" else noise + spread)

    def _parts(self, block):
        """Return the mean, the variance of the targets and the spread of members."""
        if block.reference is None:
            mean = block.mean.mean(axis=0)
            variance = np.broadcast_to(block.variance, block.mean.shape).mean(axis=0)
        else:
            mean, variance = block.reference
        # mean squared distance from the prediction, not from the mean of the members
        spread = np.square(block.mean - mean).mean(axis=0)
        return mean, np.broadcast_to(variance, mean.shape), spread

    @blockwise
    def predict_uncertainty(self, X, return_error=False):
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_error : bool, default=False
            Whether to return the standard error of the epistemic part, which is
            estimated from a limited number of members, see
            :func:`~skood.epistemic.importance_estimate`.

        Returns
        -------
        uncertainty : Bunch
            ``total``, ``aleatoric`` and ``epistemic``, each an ndarray of shape
            (n_samples,), in nats, larger for more uncertain samples. Entropies of
            densities can be negative. See
            :func:`~skood.epistemic.gaussian_uncertainty`. With `return_error` also
            ``epistemic_error`` and ``n_effective`` of shape (n_samples,), and
            ``epistemic_interval`` of shape (n_samples, 2).
        """
        check_is_fitted(self)
        setting = self._setting()
        found = joined(
            [
                gaussian_uncertainty(
                    block.mean,
                    block.variance,
                    reference=block.reference,
                    setting=setting,
                    return_error=return_error,
                )
                for block in self._blocks(X)
            ]
        )
        if return_error:
            warn_of_few_members(self, found.n_effective)
        return found

    # --- the given model -----------------------------------------------------

    def _setting(self):
        return chosen_setting(self)

    def _has_given_model(self):
        return isinstance(self.estimator, FrozenEstimator)

    def _fit_estimator(self, X, y, sample_weight=None):
        """Fit the given model, or keep a frozen one; return the targets, float64."""
        y = check_numbers(y, self)
        self.estimator_ = fit_given(self, self.estimator, X, y, sample_weight)
        return y

    def _network(self, **options):
        """Return the given model as a function of its weights, see `open_network`."""
        return open_network(self.estimator_, self.variance, self.device, **options)

    def _given(self, X):
        """Return the mean and the variance that the given model predicts."""
        # in float32 the result for a sample would depend on the size of the batch
        network = self._network(dtype=torch.float64)
        return self._normals(network.outputs(network.prepare(X)))

    def _normals(self, outputs):
        """Return means and variances of the outputs (..., n_outputs) of a network."""
        if self.variance != "network":
            return outputs[..., 0], self.variance_
        with np.errstate(over="ignore"):  # reported by `gaussian_uncertainty`
            return outputs[..., 0], np.exp(outputs[..., 1])

    # --- variance of the targets ---------------------------------------------

    def _set_variance(self, X, y, sample_weight=None):
        """Set ``variance_``, unless the network predicts the variance."""
        if isinstance(self.variance, Real):
            self.variance_ = float(self.variance)
        elif self.variance == "residuals":
            self.variance_ = 1.0  # not used by the means
            square = np.square(y - self._fitted_means(X))
            weight = check_weights(sample_weight, len(y))
            self.variance_ = float(np.average(square, weights=weight))
            check_residuals(self.variance_, y)

    def _fitted_means(self, X):
        """Return the predictions for training samples, for their residuals."""
        return self._given(X)[0]

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False  # networks that are opened read dense rows
        return tags


def open_network(estimator, variance, device, **options):
    """Return a fitted regressor as a `FunctionalRegressor`.

    With ``variance="network"`` it has two outputs, a mean and a logarithm of a
    variance, else one.
    """
    n_outputs = 2 if variance == "network" else 1
    return FunctionalRegressor(estimator, n_outputs, device=device, **options)


def of_rows(normals, rows):
    """Return the mean and variance of some samples; the variance may be a number."""
    mean, variance = normals
    return mean[rows], variance if np.ndim(variance) == 0 else variance[rows]


def check_residuals(mean_square, y):
    """Raise if residuals of targets are zero, up to rounding."""
    rounding = 10 * np.finfo(np.float64).eps * float(np.abs(y).max())
    if np.sqrt(mean_square) <= rounding:
        raise ValueError(
            f"The model meets all samples (n_samples={len(y)}) exactly, which leaves "
            "no variance of the targets. Pass variance as a number."
        )


def check_return_std(return_std):
    """Raise if `return_std` is not valid."""
    if return_std not in (False, True, "epistemic"):
        raise ValueError(
            f"return_std must be False, True or 'epistemic', got {return_std!r}."
        )
