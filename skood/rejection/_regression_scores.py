"""Risk scores: models of the loss, and uncertainties that regressors predict."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import has_fit_parameter

from skood.utils._batches import blockwise, is_lazy
from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import single_column
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import bind, n_rows, take_rows, unwrap
from skood.utils._stored import stored
from skood.utils._ties import SIDES
from skood.utils._warnings import warn
from skood.utils._weights import row_weight

# Uncertainties that a regressor may predict.
COMPONENTS = ("std", "total", "aleatoric", "epistemic")

# Number of folds whose losses a model of the loss is fitted on.
_N_FOLDS = 5

# Weights of the model of the loss that are compared.
_FRACTIONS = (0.0, 0.25, 0.5, 0.75)


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


def _predict(estimator, X, y=None):
    return np.asarray(single_column(estimator.predict(X)), dtype=np.float64)


class RegressionScore(SkoodEstimator):
    """Base class: a detector whose score is minus an uncertainty of a regressor."""

    @property
    def _fits_samples(self):
        """Return whether anything is fitted that would bias scores of its samples."""
        return not all(isinstance(each, FrozenEstimator) for each in self._inner())

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

    _parameter = "uncertainty=None"

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
        if self.model is not None:
            return [self.model]
        from sklearn.ensemble import RandomForestRegressor

        return [RandomForestRegressor(min_samples_leaf=5)]

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
        samples = X, y, sample_weight, groups
        predicted = self._held_out(self.regressor, _predict, *samples, rng)
        loss = per_sample_loss(y, predicted, self.loss, max_loss=self.max_loss)
        if self.model is not None:
            self.model_ = _fit(self.model, X, loss, sample_weight)
            return self
        (model,) = self._inner()
        model.set_params(random_state=rng.randint(np.iinfo(np.int32).max))
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

    def _held_out(self, model, outputs, X, y, sample_weight, groups, rng):
        """Return outputs of samples, of models that were fitted without them.

        Those of a frozen model are its own.
        """
        if isinstance(model, FrozenEstimator):
            return outputs(model, X, y)
        n_samples, grouped = n_rows(X), groups is not None
        n_units = len(np.unique(groups)) if grouped else n_samples
        if n_units < 2:
            units = "groups" if grouped else "samples"
            raise ValueError(
                f"{self._parameter} models cross-validated losses, which needs at least"
                f" 2 {units} to fit on, got n_{units}={n_units}. Give more {units}, or "
                f"another {self._parameter.split('=')[0]}."
            )
        kind = GroupKFold if grouped else KFold
        folds = kind(min(_N_FOLDS, n_units), shuffle=True, random_state=rng)
        results, order = [], []
        for train, test in folds.split(np.empty(n_samples), groups=groups):
            weight = row_weight(sample_weight, train)
            fold = _fit(model, take_rows(X, train), y[train], weight)
            results.append(outputs(fold, take_rows(X, test), y[test]))
            order.append(test)
        return np.concatenate(results)[np.argsort(np.concatenate(order))]

    def _uncertainty(self, X):
        if self.model is None:
            X = unwrap(self.estimator_, X)[1]
        return _predict(self.model_, X)

    def _described(self, owner):
        name = type(unwrap(self.model_)[0]).__name__
        return f"{name} of the loss of {owner}"


@stored
class DecisionLoss(LossModel):
    """Ranks of the expected loss of a classifier, mixed with ranks of a model of it.

    The model learns cross-validated losses; its weight has the least AURC. `table` is
    the `LossTable` of the decisions, or None; others are as of `LossModel`.
    """

    _parameter = "risk_detector='loss'"
    _fits_samples = True

    def __init__(self, classifier, table=None, estimator=None, random_state=None):
        self.classifier = classifier
        self.table = table
        self.estimator = estimator
        self.random_state = random_state

    def _inner(self):
        return []

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the model on losses of samples, each without its own label."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        from skood.metrics import aurc

        self.estimator_, self.model_, self.weight_ = self.estimator, None, 0.0
        rng = check_random_state(self.random_state)
        others = sample_weight, groups, rng
        outputs = self._held_out(self.classifier, self._outputs, X, y, *others)
        loss, risk, top = outputs[:, 0], outputs[:, 1], outputs[:, 2:]
        if loss.min() == loss.max():
            warn(
                f"All cross-validated losses are {loss[0]:g}: {self._parameter} has "
                "nothing to learn, and is the score of risk_detector=None."
            )
            return self
        seed = rng.randint(np.iinfo(np.int32).max)
        model = HistGradientBoostingRegressor(
            max_iter=60, max_leaf_nodes=8, learning_rate=0.08, random_state=seed
        )
        features = self._features(X, top)
        expected = self._held_out(model, _predict, features, loss, *others)
        self.ranked_ = np.sort([risk, expected])
        areas = []
        for fraction in _FRACTIONS:
            samples = np.zeros(len(y)), None, -self._mixed(risk, expected, fraction)
            areas.append(aurc(*samples, loss=loss, sample_weight=sample_weight))
        self.weight_ = _FRACTIONS[int(np.argmin(areas))]
        self.model_ = _fit(model, features, loss, sample_weight)
        return self

    def _outputs(self, classifier, X, y=None):
        """Return loss (0 without `y`), risk and 3 probabilities, (n_samples, 5)."""
        proba = np.asarray(classifier.predict_proba(X), dtype=np.float64)
        top = -np.sort(-proba, axis=1)
        table, labels, params = self.table, None, {}
        risk = top[:, 1:].sum(axis=1)  # 1 - max probability
        if not (y is None if table is None else table.decides):
            labels = single_column(classifier.predict(X))
        if table is not None:
            labels, risk = table.decided(proba, classifier.classes_, labels)
            params = {"loss": table.losses, "classes": table.classes}
        outputs = np.zeros((len(top), 5))
        outputs[:, 1], outputs[:, 2 : 2 + top.shape[1]] = risk, top[:, :3]
        if y is not None:
            outputs[:, 0] = per_sample_loss(y, labels, **params)
        return outputs

    def _features(self, X, top):
        """Return the input of the model: of sparse data and images, `top` alone."""
        X = unwrap(self.estimator_, X)[1]
        if issparse(X) or is_lazy(X) or getattr(self.model_, "n_features_in_", 0) == 3:
            return top
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):  # texts, categories
            return top
        return np.hstack([X, top]) if X.ndim == 2 else top

    def _mixed(self, risk, expected, fraction):
        """Return the mixture of the mid-ranks of both scores, in [0, 1]."""
        first, second = (
            sum(np.searchsorted(ranked, score, side) for side in SIDES)
            for ranked, score in zip(self.ranked_, (risk, expected), strict=True)
        )
        return ((1 - fraction) * first + fraction * second) / (
            2 * self.ranked_.shape[1]
        )

    @blockwise
    def _uncertainty(self, X):
        outputs = self._outputs(self.estimator_, X)
        risk, top = outputs[:, 1], outputs[:, 2:]
        if self.model_ is None:
            return risk
        expected = self.model_.predict(self._features(X, top))
        return self._mixed(risk, expected, self.weight_)

    def _described(self, owner):
        return f"probabilities of {owner}, and a model of its loss"
