"""Base class of uncertainty classifiers with many members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skood.base import UncertaintyMixin
from skood.epistemic._measures import member_uncertainty
from skood.utils._batches import blockwise, joined
from skood.utils._estimator import SkoodEstimator
from skood.utils._linalg import check_no_overflow
from skood.utils._log_proba import log_proba_of
from skood.utils._metaestimators import (
    check_one_column,
    check_takes_weight,
    copy_input_attributes,
    fit_wrapped,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, StrOptions
from skood.utils._warnings import warn


@dataclass(frozen=True)
class Block:
    """Predictions of the members for consecutive samples.

    `log_proba` (n_members, n_rows, n_classes); `weights`, summing to one, (n_members,)
    or (n_members, n_rows), or None if they are equal; `reference` (n_rows, n_classes),
    the log-probabilities of the given model, or None in setting "a"; `groups`
    (n_members,), members that depend on each other, or None if none do.
    """

    log_proba: np.ndarray
    weights: np.ndarray | None = None
    reference: np.ndarray | None = None
    groups: np.ndarray | None = None


@UncertaintyMixin.register  # an interface without code of its own
class BaseMembers(ClassifierMixin, SkoodEstimator, metaclass=ABCMeta):
    """Base class of classifiers whose uncertainty is the disagreement of many members.

    A subclass implements ``fit``, which sets ``classes_`` and, unless there is no given
    model, ``estimator_``; and ``_blocks(X)``, which yields a `Block` for consecutive
    samples. It has the parameters ``estimator`` and ``setting``.
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "setting": [StrOptions({"auto", "a", "b"})],
    }

    classes_: np.ndarray

    @abstractmethod
    def _blocks(self, X):
        """Yield a `Block` for consecutive samples; memory is bounded by the blocks."""

    @blockwise(axis=1)
    def predict_members(self, X):
        """Return the class probabilities of each member.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_members, n_samples, n_classes), dtype float64
            Probabilities in the order of ``classes_``.
        """
        check_is_fitted(self)
        return np.exp(np.concatenate([b.log_proba for b in self._blocks(X)], axis=1))

    @blockwise
    def predict_proba(self, X):
        """Return the class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Probabilities of the mixture of all members in setting "a", of the given
            model in setting "b", in the order of ``classes_``.
        """
        check_is_fitted(self)
        if self._setting() == "b":
            return np.exp(self._reference_log_proba(X))
        return self._mixture_proba(X)

    def _mixture_proba(self, X):
        """Return the class probabilities in setting "a"."""
        proba = np.concatenate([_mixture(block) for block in self._blocks(X)])
        check_no_overflow(proba, "A logit")
        return proba

    def predict(self, X):
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

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
            (n_samples,), in nats, larger for more uncertain samples. See
            :func:`~skood.epistemic.member_uncertainty`. With `return_error` also
            ``epistemic_error`` and ``n_effective`` of shape (n_samples,), and
            ``epistemic_interval`` of shape (n_samples, 2).
        """
        check_is_fitted(self)
        found = self._uncertainty(X, return_error)
        if return_error:
            warn_of_few_members(self, found.n_effective)
        return found

    def _uncertainty(self, X, return_error):
        """Return the uncertainty of samples in memory."""
        setting = self._setting()
        parts = [
            member_uncertainty(
                block.log_proba,
                weights=block.weights,
                reference=block.reference,
                setting=setting,
                return_error=return_error,
                groups=block.groups,
            )
            for block in self._blocks(X)
        ]
        return joined(parts)

    def _setting(self):
        """Return the setting; "auto" is "b" if a model is given."""
        return chosen_setting(self)

    def _has_given_model(self):
        return isinstance(self.estimator, FrozenEstimator)

    def _fit_estimator(self, X, y, sample_weight=None):
        """Fit the given model, or return a frozen one unchanged."""
        self.estimator_ = fit_given(self, self.estimator, X, y, sample_weight)
        check_one_column(self.estimator_)
        self.classes_ = np.asarray(self.estimator_.classes_)

    def _reference_log_proba(self, X):
        """Return the log-probabilities of the given model."""
        return log_proba_of(self.estimator_, X)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False  # networks that are opened read dense rows
        return tags


def chosen_setting(estimator):
    """Return the setting; "auto" is "b" if a model is given."""
    if estimator.setting != "auto":
        return estimator.setting
    return "b" if estimator._has_given_model() else "a"


def fit_given(owner, estimator, X, y, sample_weight=None):
    """Return a fitted clone of a model, or a frozen model unchanged."""
    check_takes_weight(estimator, sample_weight)
    if sample_weight is None or isinstance(estimator, FrozenEstimator):
        return fit_wrapped(owner, estimator, X, y)
    fitted = clone(estimator).fit(X, y, sample_weight=sample_weight)
    copy_input_attributes(owner, fitted)
    return fitted


def warn_of_few_members(estimator, n_effective):
    """Warn if the uncertainty of some samples depends on hardly more than one member.

    `n_effective` (n_samples,) is the effective number of members.
    """
    few = int(np.sum(n_effective < 2 - 1e-6))  # not two rounded weights
    if not few:
        return
    advice = "Use more members"
    if getattr(estimator, "component", "delta") != "delta":
        advice = "Use more members (n_samples of the component)"
    elif hasattr(estimator, "temperature"):
        advice = f"Raise temperature={estimator.temperature!r}"
    warn(
        f"The epistemic uncertainty of {few} of {len(n_effective)} samples has an "
        f"effective number of members below 2 (least: {n_effective.min():.3g}): the "
        f"weights are concentrated on one of them. {advice}."
    )


def _mixture(block):
    """Return the probabilities of the weighted mixture of the members."""
    log_p = np.asarray(block.log_proba, dtype=np.float64)
    if block.weights is None:
        return np.exp(logsumexp(log_p, axis=0) - np.log(len(log_p)))
    weights = block.weights if block.weights.ndim == 2 else block.weights[:, None]
    with np.errstate(divide="ignore"):
        return np.exp(logsumexp(log_p + np.log(weights)[:, :, None], axis=0))
