"""Base class of classifiers and regressors with many members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skood.base import UncertaintyMixin
from skood.epistemic._likelihood import BaseLikelihood, Categorical, Gaussian
from skood.utils._batches import blockwise, joined
from skood.utils._estimator import SkoodEstimator
from skood.utils._linalg import check_no_overflow
from skood.utils._metaestimators import (
    check_one_column,
    check_takes_weight,
    copy_input_attributes,
    estimator_kind,
    fit_wrapped,
    wrapped_tags,
)
from skood.utils._named_estimators import missing_methods
from skood.utils._param_validation import HasMethods, InvalidParameterError, StrOptions
from skood.utils._warnings import warn


@UncertaintyMixin.register  # an interface without code of its own
class BaseMembers(SkoodEstimator, metaclass=ABCMeta):
    """Base class of estimators whose uncertainty is the disagreement of many members.

    The estimator is a classifier or a regressor, as its `estimator` is. A subclass
    implements ``fit``, which sets ``likelihood_``, ``classes_`` of a classifier and
    ``estimator_``, and ``_blocks(X)``.
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "setting": [StrOptions({"auto", "a", "b"})],
    }
    # Further parameters of estimators with a likelihood and draws.
    _network_constraints: dict = {
        "likelihood": [StrOptions({"auto"}), BaseLikelihood],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
    }

    _default_parts: dict = {"likelihood": Gaussian}

    # The parameter, and the variance of the targets of regressors if it is "auto".
    likelihood: BaseLikelihood | str = Categorical()
    _auto_variance = "residuals"

    likelihood_: Any = Categorical()
    classes_: np.ndarray

    @abstractmethod
    def _blocks(self, X):
        """Yield a `Block` for consecutive samples; memory is bounded by the blocks."""

    def _member_blocks(self, X):
        """Yield blocks whose `reference` is not used."""
        return self._blocks(X)

    def _check_fitted(self):
        if "estimator_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self)

    # --- kind of estimator ---------------------------------------------------

    def _models(self):
        """Return the estimators, in a list, that determine the kind and the tags."""
        return [self.estimator]

    def _kind(self):
        """Return "classifier" or "regressor"."""
        if isinstance(self.likelihood, BaseLikelihood):
            return self.likelihood.kind
        kind = estimator_kind(next(iter(self._models()), None))
        return "regressor" if kind == "regressor" else "classifier"

    def _is_classifier(self):
        likelihood = vars(self).get("likelihood_")  # of a fit: tags are slow
        return (likelihood.kind if likelihood else self._kind()) == "classifier"

    def _as_part(self, name, value):
        if name == "likelihood" and isinstance(value, str):
            is_classifier = self._kind() == "classifier"
            return Categorical() if is_classifier else Gaussian(self._auto_variance)
        return super()._as_part(name, value)

    def _new_likelihood(self):
        """Return the likelihood to fit; raise if it is not of the given models."""
        likelihood = clone(self._part("likelihood"))
        for model in self._models():
            kind = estimator_kind(model)
            if kind in ("classifier", "regressor") and kind != likelihood.kind:
                raise ValueError(
                    f"{type(self).__name__} with likelihood={likelihood!r} is for "
                    f"{likelihood.kind}s, but {type(model).__name__} is a {kind}."
                )
        return likelihood

    def _check_methods(self, **models):
        """Raise if a model, by the name of its parameter, does not predict."""
        for name, model in models.items():
            if missing_methods(model, ("fit", self.likelihood_.method)):
                raise InvalidParameterError(
                    f"The {name!r} parameter of {type(self).__name__} must be an "
                    f"object implementing 'fit' and {self.likelihood_.method!r}. Got "
                    f"{model!r} instead."
                )

    # --- predictions ---------------------------------------------------------

    @blockwise(axis=1)
    def predict_members(self, X):
        """Return the predictions of each member.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        predictions : ndarray of shape (n_members, n_samples[, n_classes])
            Of a classifier the probabilities in the order of ``classes_``, of a
            regressor the means, in float64.
        """
        self._check_fitted()
        location = self.likelihood_.location
        parts = [location(block.predictions) for block in self._member_blocks(X)]
        return np.concatenate(parts, axis=1)

    @available_if(_is_classifier)
    @blockwise
    def predict_proba(self, X):
        """Return the class probabilities; only of a classifier.

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
        self._check_fitted()
        if self._setting() == "b":
            return np.exp(self._reference(X))
        return self._mixture_proba(X)

    def _mixture_proba(self, X):
        """Return the class probabilities in setting "a"."""
        mixture = self.likelihood_.mixture
        proba = np.concatenate([mixture(block) for block in self._blocks(X)])
        check_no_overflow(proba, "A logit")
        return proba

    @blockwise
    def predict(self, X, return_std=False):
        r"""Return the most probable class, or the mean of the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        return_std : bool or "epistemic", default=False
            Whether a regressor returns a standard deviation as well. True: of the
            prediction, which is the root of the variance of the targets plus the mean
            squared distance of the members from the predicted mean. "epistemic": the
            root of the latter alone; in setting "a" it is the standard deviation of
            the members.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels of a classifier. Of a regressor the mean of all members in
            setting "a", of the given model in setting "b", in float64.

        y_std : ndarray of shape (n_samples,), dtype float64
            Standard deviations. Only with `return_std`.
        """
        self._check_fitted()
        if return_std not in (False, True, "epistemic"):
            raise ValueError(
                f"return_std must be False, True or 'epistemic', got {return_std!r}."
            )
        if self._is_classifier():
            if return_std:
                raise ValueError(
                    f"return_std={return_std!r} is for regressors, but "
                    f"{type(self).__name__} is a classifier. Use predict_uncertainty."
                )
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        if not return_std:
            return self._mean(X)
        mean, noise, spread = self._moments(X)
        return mean, np.sqrt(spread if return_std == "epistemic" else noise + spread)

    def _mean(self, X):
        return self._reference(X)[0] if self._setting() == "b" else self._moments(X)[0]

    def _moments(self, X):
        """Return the mean, the variance of the targets and the spread of members."""
        return joined([self.likelihood_.mixture(block) for block in self._blocks(X)])

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
            :func:`~skood.epistemic.member_uncertainty`, and for regressors, whose
            entropies can be negative, :func:`~skood.epistemic.gaussian_uncertainty`.
            With `return_error` also ``epistemic_error`` and ``n_effective`` of shape
            (n_samples,), and ``epistemic_interval`` of shape (n_samples, 2).
        """
        self._check_fitted()
        uncertainty = self._uncertainty(X, return_error)
        if return_error:
            warn_of_few_members(self, uncertainty.n_effective)
        return uncertainty

    def _uncertainty(self, X, return_error):
        """Return the uncertainty of samples in memory."""
        options = {"setting": self._setting(), "return_error": return_error}
        measure = partial(self.likelihood_.uncertainty, **options)
        return joined([*map(measure, self._blocks(X))])

    def score(self, X, y, sample_weight=None):
        """Return the accuracy of a classifier, or the R^2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,)
            Targets.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        score : float
            At most 1.
        """
        mixin = ClassifierMixin if self._is_classifier() else RegressorMixin
        return mixin.score(self, X, y, sample_weight)

    # --- the given model -----------------------------------------------------

    def _setting(self):
        """Return the setting; "auto" is "b" if a model is given."""
        if self.setting != "auto":
            return self.setting
        return "b" if self._has_fixed_model() else "a"

    def _has_fixed_model(self):
        return isinstance(self.estimator, FrozenEstimator)

    def _fit_estimator(self, X, y, sample_weight=None):
        """Fit the given model, or return a frozen one unchanged; return the targets."""
        self.likelihood_ = self._new_likelihood()
        self._check_methods(estimator=self.estimator)
        if self.likelihood_.kind == "regressor":
            y = self.likelihood_.checked(y, self)
        self._fit_model(X, y, sample_weight)
        return y

    def _fit_model(self, X, y, sample_weight=None):
        """Set ``estimator_``, and ``classes_`` of a classifier."""
        self.estimator_ = fit_model(self, self.estimator, X, y, sample_weight)
        if self.likelihood_.kind == "classifier":
            check_one_column(self.estimator_)
            self.classes_ = np.asarray(self.estimator_.classes_)

    def _fit_targets(self, X, y, sample_weight=None):
        """Fit the likelihood to targets, with the means by the given model."""

        def means():
            return self._reference(X)[0]

        self.likelihood_.fit_targets(y, means, sample_weight)

    def _reference(self, X):
        """Return the predictions of the given model."""
        device = getattr(self, "device", "auto")
        return self.likelihood_.of_network(self.estimator_, X, device)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.target_tags.required = self._kind(), True
        if tags.estimator_type == "classifier":
            tags.classifier_tags = ClassifierTags()
        else:
            tags.regressor_tags = RegressorTags()
        tags = wrapped_tags(tags, next(iter(self._models()), None))
        tags.input_tags.sparse = False  # networks that are opened read dense rows
        return tags


def fit_model(owner, estimator, X, y, sample_weight=None):
    """Return a fitted clone of a model, or a frozen model unchanged."""
    check_takes_weight(estimator, sample_weight)
    if sample_weight is None or isinstance(estimator, FrozenEstimator):
        return fit_wrapped(owner, estimator, X, y)
    fitted = clone(estimator).fit(X, y, sample_weight=sample_weight)
    copy_input_attributes(owner, fitted)
    return fitted


def warn_of_few_members(estimator, n_effective):
    """Warn if `n_effective` (n_samples,) of some samples is hardly above one."""
    few = int(np.sum(n_effective < 2 - 1e-6))  # not two rounded weights
    if not few:
        return
    advice = "Use more members"
    if getattr(estimator, "component", "delta") != "delta":
        advice = "Use more members (n_samples of the component)"
    elif hasattr(estimator, "temperature"):
        temperature = estimator.temperature
        advice = "Raise temperature" + (
            "" if temperature is None else f"={temperature!r}"
        )
    warn(
        f"The epistemic uncertainty of {few} of {len(n_effective)} samples has an "
        f"effective number of members below 2 (least: {n_effective.min():.3g}): the "
        f"weights are concentrated on one of them. {advice}."
    )
