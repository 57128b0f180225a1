"""Risk scores of regressors: expected losses, and uncertainties that they predict."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import has_fit_parameter

from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import single_column
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import bind, n_rows, take_rows, unwrap
from skood.utils._stored import stored

# Uncertainties that a regressor may predict.
COMPONENTS = ("std", "total", "aleatoric", "epistemic")

# Number of folds whose losses a model of the loss is fitted on.
_N_FOLDS = 5


def as_score(uncertainty, regressor, loss, max_loss):
    """Return the unfitted detector of a parameter `uncertainty`: its score is negative.

    It is fitted by ``fit(X, y)``, after `bound_score`.
    """
    if isinstance(uncertainty, str):
        return PredictedUncertainty(uncertainty)
    if isinstance(uncertainty, tuple):
        return IntervalWidth(*uncertainty)
    if hasattr(uncertainty, "score_samples"):
        return uncertainty
    if hasattr(uncertainty, "predict_uncertainty"):
        return PredictedUncertainty("total", uncertainty)
    return LossModel(uncertainty, regressor, loss, max_loss)


def bound_score(detector, regressor):
    """Copy a detector; if it is one of this file, give it the fitted regressor."""
    is_score = isinstance(detector, RegressionScore)
    return bind(detector, regressor) if is_score else clone(detector)


def targets_of(detector, y):
    """Return the targets if a detector is fitted on them, else None."""
    if isinstance(detector, RegressionScore):
        return y
    required = hasattr(detector, "__sklearn_tags__") and (
        get_tags(detector).target_tags.required
    )
    return y if required else None


def _fit(estimator, X, y, sample_weight):
    """Fit a clone, with weights if it takes them."""
    weights = {}
    if sample_weight is not None and has_fit_parameter(estimator, "sample_weight"):
        weights["sample_weight"] = sample_weight
    return clone(estimator).fit(X, y, **weights)


def _predict(estimator, X):
    return np.asarray(single_column(estimator.predict(X)), dtype=np.float64)


class RegressionScore(SkoodEstimator):
    """Base class: a detector whose score is minus an uncertainty of a regressor."""

    @property
    def _fits_samples(self):
        """Return whether anything is fitted that would bias scores of its samples."""
        return True

    def _inner(self):
        """Return the estimators that are given the samples."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = [get_tags(estimator).input_tags for estimator in self._inner()]
        tags.input_tags.sparse = all(tags_.sparse for tags_ in inner)
        tags.input_tags.allow_nan = all(tags_.allow_nan for tags_ in inner)
        return tags

    def score_samples(self, X):
        """Return minus the uncertainty of samples."""
        return -np.asarray(self._uncertainty(X), dtype=np.float64)


@stored
class PredictedUncertainty(RegressionScore):
    """The standard deviation, or a component, that a regressor predicts.

    `estimator` None: the regressor whose samples are rejected.
    """

    def __init__(self, component, estimator=None):
        self.component = component
        self.estimator = estimator

    def _inner(self):
        return [] if self.estimator is None else [self.estimator]

    @property
    def _fits_samples(self):
        return not (
            self.estimator is None or isinstance(self.estimator, FrozenEstimator)
        )

    def fit(self, X, y, sample_weight=None):
        """Fit the estimator, unless it is frozen."""
        self.estimator_ = _fit(self.estimator, X, y, sample_weight)
        final, _ = unwrap(self.estimator_)
        if self.component == "std":
            parameters = inspect.signature(final.predict).parameters
            has = "return_std" in parameters
            remedy = "predict(X, return_std=True), such as GaussianProcessRegressor"
        else:
            has = hasattr(final, "predict_uncertainty")
            remedy = "predict_uncertainty(X), such as skood.epistemic.QUAM"
        if not has:
            raise TypeError(
                f"uncertainty={self.component!r} requires a regressor with {remedy}; "
                f"got {type(final).__name__}. Leave uncertainty at None for a model of "
                "the loss, which suits all regressors."
            )
        return self

    def _uncertainty(self, X):
        final, X = unwrap(self.estimator_, X)
        if self.component == "std":
            return single_column(final.predict(X, return_std=True)[1])
        return final.predict_uncertainty(X)[self.component]

    def _described(self, owner):
        name = "standard deviation" if self.component == "std" else self.component
        kind = name if self.component == "std" else f"{name} uncertainty"
        return f"{kind} of {type(unwrap(self.estimator_)[0]).__name__}"


@stored
class IntervalWidth(RegressionScore):
    """Width of the interval between two quantile regressors, lower and upper."""

    def __init__(self, lower, upper):
        self.lower = lower
        self.upper = upper

    def _inner(self):
        return [self.lower, self.upper]

    @property
    def _fits_samples(self):
        return not all(isinstance(end, FrozenEstimator) for end in self._inner())

    def fit(self, X, y, sample_weight=None):
        """Fit both ends."""
        self.lower_ = _fit(self.lower, X, y, sample_weight)
        self.upper_ = _fit(self.upper, X, y, sample_weight)
        return self

    def _uncertainty(self, X):
        return _predict(self.upper_, X) - _predict(self.lower_, X)

    def _described(self, owner):
        ends = " and ".join(
            type(unwrap(e)[0]).__name__ for e in (self.lower_, self.upper_)
        )
        return f"width of the interval between {ends}"


@stored
class LossModel(RegressionScore):
    """Regression of cross-validated losses: an estimate of the conditional risk.

    `regressor` is the unfitted regressor; copies of it are fitted without the
    samples whose losses are computed; `estimator` is the fitted one, whose pipeline
    transforms the samples. A frozen `model` predicts losses as it is.
    """

    # Its fit takes the groups of the samples.
    _splits_groups = True

    def __init__(
        self, model, regressor, loss, max_loss, estimator=None, random_state=None
    ):
        self.model = model
        self.regressor = regressor
        self.loss = loss
        self.max_loss = max_loss
        self.estimator = estimator
        self.random_state = random_state

    def _inner(self):
        return [RandomForestRegressor() if self.model is None else self.model]

    @property
    def _fits_samples(self):
        return not isinstance(self.model, FrozenEstimator)

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the model on the losses of samples, each without its own prediction.

        With `groups` of shape (n_samples,), regressors are fitted without the whole
        group of a sample.
        """
        self.estimator_ = self.estimator
        if not self._fits_samples:
            self.model_ = self.model
            return self
        rng = check_random_state(self.random_state)
        loss = per_sample_loss(
            y,
            self._held_out(X, y, sample_weight, groups, rng),
            self.loss,
            max_loss=self.max_loss,
        )
        if self.model is not None:
            self.model_ = _fit(self.model, X, loss, sample_weight)
            return self
        model = RandomForestRegressor(
            min_samples_leaf=5, random_state=rng.randint(np.iinfo(np.int32).max)
        )
        try:
            self.model_ = _fit(model, unwrap(self.estimator, X)[1], loss, sample_weight)
        except (TypeError, ValueError) as error:
            error.add_note(
                "uncertainty=None fits a random forest to the losses, on X as it is "
                "transformed by the pipeline of the regressor; this failed. Pass "
                "another model or uncertainty."
            )
            raise
        return self

    def _held_out(self, X, y, sample_weight, groups, rng):
        """Return predictions of samples, of regressors that were fitted without them.

        Those of a frozen regressor are its own.
        """
        n_samples = n_rows(X)
        if isinstance(self.regressor, FrozenEstimator):
            return _predict(self.regressor, X)
        grouped = groups is not None
        n_units = len(np.unique(groups)) if grouped else n_samples
        if n_units < 2:
            units = "groups" if grouped else "samples"
            raise ValueError(
                "uncertainty=None models cross-validated losses, which needs at least "
                f"2 {units} to fit on, got n_{units}={n_units}. Give more {units}, or "
                "another uncertainty."
            )
        predicted = np.empty(n_samples)
        kind = GroupKFold if grouped else KFold
        folds = kind(min(_N_FOLDS, n_units), shuffle=True, random_state=rng)
        for train, test in folds.split(np.empty(n_samples), groups=groups):
            weight = None if sample_weight is None else sample_weight[train]
            other = _fit(self.regressor, take_rows(X, train), y[train], weight)
            predicted[test] = _predict(other, take_rows(X, test))
        return predicted

    def _uncertainty(self, X):
        if self.model is None:
            X = unwrap(self.estimator_, X)[1]
        return _predict(self.model_, X)

    def _described(self, owner):
        name = type(unwrap(self.model_)[0]).__name__
        return f"{name} of the loss of {owner}"
