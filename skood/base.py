"""Base classes of detectors, and mixin for estimators with an uncertainty."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from abc import ABCMeta, abstractmethod
from contextlib import contextmanager
from inspect import signature
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OutlierMixin, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from skood.utils._array_api import all_finite
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import labeled_rows, loaded_blocks
from skood.utils._estimator import SkoodEstimator
from skood.utils._id_samples import (
    chosen_samples,
    warn_of_binary_classes,
    warn_of_earlier_steps,
)
from skood.utils._input import takes_input
from skood.utils._labels import (
    check_id_mask,
    check_label_columns,
    check_labels,
    checked_ood_mask,
    naming_ood_label,
    sortable_labels,
    unique_codes,
)
from skood.utils._left_out import (
    MAX_REFITTED_SAMPLES,
    NETWORK_FOLDS,
    compared_samples,
    drawn_copies,
    folds,
    is_fixed,
    rescaled,
    unused_thresholds,
)
from skood.utils._metaestimators import (
    check_given,
    fit_wrapped,
    n_rows,
    take_rows,
    warn_of_known_classes,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, Interval, StrOptions, fit_context
from skood.utils._routing import router_of
from skood.utils._sample_keys import SampleKeys, stored_keys
from skood.utils._ties import threshold_at
from skood.utils._torch import to_numpy
from skood.utils._warnings import quiet, warn
from skood.utils._weights import check_weight, row_weight, weighted

__all__ = ["BaseDetector", "UncertaintyDetector", "UncertaintyMixin"]


class BaseDetector(OutlierMixin, SkoodEstimator, metaclass=ABCMeta):
    """Base class of all detectors.

    A detector has a score that is high for in-distribution (ID) samples, and a
    threshold on it. A subclass implements ``_fit(X, y)``, which fits on ID samples only
    and returns their scores, and ``_score(X)``. One that supports sample weights
    implements ``_fit(X, y, sample_weight=None)``. If these are not the scores of all
    samples in order, it returns a pair with weights: the scores and their weights.

    Parameters
    ----------
    contamination : float, default=0.05
        Fraction of new ID samples to reject, in (0, 0.5]: the true positive rate of
        ``predict`` is ``1 - contamination``, on average over training samples. The
        threshold is computed from out-of-sample scores of training samples: each from a
        fit without it, see :ref:`contamination`. A classifier in a
        :class:`~sklearn.frozen.FrozenEstimator` is not fitted again: if it was trained
        on the same samples, more than `contamination` of new samples are rejected. In
        this case fit on other samples, or set the threshold on other samples by
        ``DetectorEnsemble(..., calibration=)``.

    ood_label : int or str, default=-1
        Label of known out-of-distribution (OOD) samples in ``y``. They are excluded
        from the fit of the detector and of its `estimator`; steps of a pipeline before
        it are fitted on them, with a warning, unless they are in
        :class:`~skood.model_selection.IDOnly`.

    Attributes
    ----------
    offset_ : float
        Threshold with at most a fraction `contamination` of the out-of-sample scores of
        ID training samples below it, halfway between two scores that are not tied, see
        :ref:`ties`; ``decision_function(X) = score_samples(X) - offset_``.

    classes_ : ndarray of shape (n_classes,)
        The classes seen in fit, without `ood_label`. Only if `y` was given.
    """

    _parameter_constraints: dict = {
        "contamination": [Interval(Real, 0, 0.5, closed="right")],
        "ood_label": [Integral, str],
    }

    # Whether samples or features may be NaN.
    _allows_nan: Any = False

    # Whether the detector learns from the training samples, besides the estimator that
    # it may fit, so that their scores differ from scores of new samples.
    _learns: ClassVar[bool] = True

    def __init__(self, *, contamination=0.05, ood_label=-1):
        self.contamination = contamination
        self.ood_label = ood_label

    @fit_context(
        # Wrapped estimators are validated by their own fit.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None, sample_weight=None):
        """Fit the detector on in-distribution samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data of the detector or its `estimator`. A torch ``Dataset`` or
            ``DataLoader`` is loaded in batches, see :ref:`scale`.

        y : array-like of shape (n_samples,), default=None
            Class labels. Samples labeled `ood_label` are excluded. None: no labels, or
            the labels in the items of a dataset or loader.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. Integers are frequencies: the fit equals one on
            repeated samples, see :ref:`sample_weights`. None: each sample has weight 1.

        Returns
        -------
        self : object
            The fitted detector.

        Raises
        ------
        ValueError
            If the data or weights are invalid, only OOD samples are given, or weights
            are given that a part of the detector does not take. The estimator is then
            unchanged.
        """
        check_given(X)
        with fresh_fit(self):
            self._training_keys = None
            if sample_weight is None:
                scores = self._fit_samples(X, y)
            else:
                self._check_takes_weight()
                weight = check_weight(sample_weight, n_rows(X))
                scores = self._fit_samples(X, y, weight)
            if scores is not None:
                self._set_offset(scores)
            if self._training_keys is None:
                self._store_keys(X)
        return self

    def _store_keys(self, X):
        """Store keys of training samples, for `warn_of_training_samples`."""
        if self._learns or self._fits_parts:  # else no score depends on the samples
            self._training_keys = stored_keys(X)

    @property
    def _fits_parts(self):
        """Return whether the detector fits an estimator, which is not frozen."""
        parts = self._fitted_parts().values()
        return not all(isinstance(estimator, FrozenEstimator) for estimator in parts)

    def _check_takes_weight(self):
        """Raise if sample weights are not supported."""
        for hook in (self._fit_samples, self._fit):
            if "sample_weight" not in signature(hook).parameters:
                raise ValueError(
                    f"sample_weight was passed, but {type(self).__name__} does not "
                    "support weights. Leave it out, or repeat samples; to support it, "
                    "implement _fit(X, y, sample_weight=None)."
                )

    def _fit_samples(self, X, y, sample_weight=None):
        """Fit on samples as they were given to `fit`; return scores for the threshold.

        Detectors that use known OOD samples, or other labels, override it. None: it has
        set ``offset_`` itself.
        """
        X, y = labeled_rows(X, y, sample_weight)
        with self._id_only(X, y, sample_weight) as training:
            scores = self._fit(*training)
            if sample_weight is None or scores is None or isinstance(scores, tuple):
                return scores
            return scores, training[2]

    @contextmanager
    def _id_only(self, X, y, sample_weight=None, *, copy=True):
        """Yield what to fit on: ID samples, labels and, if there are any, weights.

        Errors and warnings name `ood_label` if only one class is left; see
        `_id_samples`. ``self._id_indices`` are the indices of the samples.
        """
        X_id, y_id, indices = self._id_samples(X, y, sample_weight, copy=copy)
        self._id_indices = indices
        n_left_out = 0 if indices is None else n_rows(X) - len(indices)
        estimator = getattr(self, "estimator", None)
        warns = estimator is not None and not isinstance(estimator, FrozenEstimator)
        with naming_ood_label(y_id, n_left_out, self.ood_label, warns=warns):
            if sample_weight is None:
                yield X_id, y_id
            else:
                yield X_id, y_id, row_weight(sample_weight, indices)
        self._store_keys(X_id)
        del self._id_indices  # as long as X

    def _id_samples(self, X, y, sample_weight=None, *, copy=True):
        """Return ID samples, their labels and indices (None: all), and set `classes_`.

        Samples of weight zero are left out as well. Without `copy`, samples chosen from
        a memory-mapped file are not loaded yet.
        """
        if y is None:
            if sample_weight is None or sample_weight.all():
                return X, None, None
            indices = np.flatnonzero(sample_weight)
            return chosen_samples(X, indices, copy), None, indices
        y = check_labels(y)
        check_consistent_length(X, y)
        is_id = check_id_mask(y, self.ood_label)
        if not is_id.all():
            warn_of_earlier_steps(self)
        if sample_weight is not None:
            is_id = is_id & (sample_weight > 0)
            if not is_id.any():
                raise ValueError(
                    "The sample weights of all ID samples are zero: only samples with "
                    f"ood_label={self.ood_label!r} have a weight. Give ID samples a "
                    "positive sample_weight."
                )
        y_id = sortable_labels(y[is_id])
        # integers and text are classes, and need no second search for unique labels
        if y_id.dtype.kind not in "biuUS" and type_of_target(y_id).startswith(
            "continuous"
        ):
            raise ValueError(
                "Unknown label type: continuous. y must hold class labels (and "
                f"ood_label={self.ood_label!r} for known OOD samples)."
            )
        self.classes_, _ = unique_codes(y_id)
        if is_id.all():
            return X, y_id, None
        indices = np.flatnonzero(is_id)
        warn_of_binary_classes(y, y_id, self)
        return chosen_samples(X, indices, copy), y_id, indices

    def _set_offset(self, scores):
        """Set the threshold from scores of ID samples, or the scores and weights."""
        weight = None
        if isinstance(scores, tuple):
            scores, weight = scores
        scores = _checked_scores(self, scores)
        offset = threshold_at(scores, self.contamination, weight)
        if not np.isfinite(offset):
            raise ValueError(
                f"{type(self).__name__} has no finite threshold: the training scores "
                f"at contamination={self.contamination} are infinite. Scale X, or look "
                "at the network's outputs."
            )
        self.offset_ = offset

    def _scores_of_refits(
        self,
        X,
        y,
        fit,
        score,
        n_folds=NETWORK_FOLDS,
        rescale=True,
        weight=None,
        stratify=True,
        keys=None,
    ):
        """Return scores of at most 1,000 samples, each from a fit without it.

        ``fit(other, X, y, weight)`` fits the classifier of a copy, ``score(other,
        left_out, copy_weights)`` scores the other samples with it; with weights, the
        samples are copies of these weights, and it returns a pair, see `weighted`.
        `stratify`: folds are by the labels `y`, not targets of a regression. `keys`: of
        the samples (None: computed). If none can be fitted, warns and returns scores of
        this fit.
        """
        n_samples, scores, weights, reason = n_rows(X), [], [], None
        keys = SampleKeys(X) if keys is None else keys
        drawn, copy_weights = drawn_copies(keys, weight, MAX_REFITTED_SAMPLES)
        try:
            with quiet():
                strata = y if stratify else None
                for fold in folds(keys, drawn, strata, n_folds, weight, copy_weights):
                    chosen, chosen_weight = fold.others(weight, n_samples)
                    fold_weights = (
                        None if copy_weights is None else copy_weights[fold.positions]
                    )
                    other = copy.copy(self)
                    with unused_thresholds():  # of detectors inside the copy
                        labels = None if y is None else y[chosen]
                        fit(other, take_rows(X, chosen), labels, chosen_weight)
                    left_out = score(other, drawn[fold.positions], fold_weights)
                    if weight is not None:
                        left_out, fold_weights = left_out
                        weights.append(fold_weights)
                    if rescale:
                        compared = compared_samples(keys, chosen, chosen_weight)
                        seen = take_rows(X, chosen[compared])
                        pair = (
                            fitted._score_validated(seen) for fitted in (other, self)
                        )
                        left_out = rescaled(left_out, *pair)
                    scores.append(left_out)
        except ValueError as error:
            scores, reason = [], str(error)
        if not scores:
            return self._in_sample(weighted(self._score_validated(X), weight), reason)
        copy_weights = None if weight is None else np.concatenate(weights)
        return weighted(np.concatenate(scores), copy_weights)

    def _in_sample(self, scores, error=None):
        """Return scores of samples that it was fitted on, and warn."""
        reason = "" if error is None else f" ({error})"
        n_samples = len(scores[0] if isinstance(scores, tuple) else scores)
        warn(
            f"The threshold of {type(self).__name__} is taken from scores of samples "
            "that it was fitted on, so that more than contamination="
            f"{self.contamination} of new ID samples may be rejected: with n_samples ="
            f" {n_samples} none can be left out of the fit{reason}. Give more samples, "
            "or set the threshold on others by DetectorEnsemble(calibration=)."
        )
        return scores

    @abstractmethod
    def _fit(self, X, y):
        """Fit on ID samples (`y` may be None) and return their scores."""

    @abstractmethod
    def _score(self, X):
        """Score validated or, with an `estimator`, raw samples: high = ID."""

    def _score_validated(self, X):
        """Return scores of samples inside a fit."""
        return self._score(X)

    @takes_input
    def score_samples(self, X):
        """Score samples: the higher, the more in-distribution.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples. A torch ``Dataset`` or ``DataLoader``, or a dask array, is
            loaded in batches, see :ref:`scale`.

        Returns
        -------
        scores : ndarray of shape (n_samples,), dtype float64
            The scores. They do not depend on the other samples of the call, and are
            finite: values beyond the range of float64 are clipped to it.
        """
        self._check_fitted()
        blocks = [*map(self._score, self._checked(X))]
        scores = np.array(np.concatenate(blocks), dtype=np.float64)
        return (
            scores if all_finite(scores) else _saturated(_checked_scores(self, scores))
        )

    def _checked(self, X):
        """Return an iterable over samples of any kind, as `_score` takes them."""
        return loaded_blocks(X)

    def _check_fitted(self):
        if "offset_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self, "offset_")

    def decision_function(self, X):
        """Signed distance to the threshold: ``score_samples(X) - offset_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        decision : ndarray of shape (n_samples,), dtype float64
            Non-negative for samples predicted as in-distribution.
        """
        self._check_fitted()
        return _saturated(self.score_samples(X) - self.offset_)

    def predict(self, X):
        """Predict whether samples are in-distribution.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        is_inlier : ndarray of shape (n_samples,), dtype int
            +1 for in-distribution, -1 for out-of-distribution samples.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit, then predict the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data.

        y : array-like of shape (n_samples,), default=None
            Class labels; samples labeled `ood_label` are excluded from the fit, but are
            predicted.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the fit, see `fit`. Samples of weight zero are predicted, too.

        Returns
        -------
        is_inlier : ndarray of shape (n_samples,), dtype int
            +1 for in-distribution, -1 for out-of-distribution samples.
        """
        if sample_weight is None:
            return self.fit(X, y).predict(X)
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def score(self, X, y):
        """Area under the ROC curve of ID against OOD samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        y : array-like of shape (n_samples,)
            Labels. A sample is OOD when its label is `ood_label` or is not in
            ``classes_``.

        Returns
        -------
        auroc : float
            Probability that an ID sample scores above an OOD sample, ties counting one
            half.
        """
        from skood.metrics import auroc

        self._check_fitted()
        classes = getattr(self, "classes_", None)
        score = auroc(
            y, self.score_samples(X), ood_label=self.ood_label, classes=classes
        )
        if classes is not None:
            y = check_label_columns(y)
            is_ood = checked_ood_mask(y, self.ood_label, classes)
            warn_of_known_classes(self, y, is_ood, self.ood_label)
        return score

    @property
    def _validation(self):
        """Return the options of `validate_data` for samples without an estimator."""
        finite = "allow-nan" if self._allows_nan else True
        return {"dtype": [np.float64, np.float32], "ensure_all_finite": finite}

    def get_metadata_routing(self):
        """Return how ``sample_weight`` is passed on, if metadata routing is enabled.

        Returns
        -------
        routing : MetadataRouter or MetadataRequest
            The request of the detector, and the routing to estimators that it fits.
        """
        return router_of(self, super().get_metadata_routing(), self._fitted_parts())

    def _fitted_parts(self):
        """Return the estimators that `fit` fits, by name."""
        estimator = getattr(self, "estimator", None)
        return {} if estimator is None else {"estimator": estimator}

    def _validate(self, X, *, reset):
        """Validate samples for use without an estimator: float32 or float64, 2-D."""
        return validate_data(self, to_numpy(X), reset=reset, **self._validation)


def _checked_scores(detector, scores):
    """Return scores as float64; raise on NaN."""
    scores = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(scores).all() and np.isnan(scores).any():
        raise ValueError(
            f"{type(detector).__name__} got NaN as the score of "
            f"{int(np.isnan(scores).sum())} of {scores.shape[0]} samples: its features "
            "or logits overflow. Scale X, or look at the network's outputs."
        )
    return scores


def _saturated(scores):
    """Replace infinite scores by the nearest finite number."""
    if all_finite(scores):
        return np.array(scores)  # a copy, as below
    largest = np.finfo(np.float64).max
    return np.clip(scores, -largest, largest)


class UncertaintyMixin(metaclass=ABCMeta):
    """Mixin for estimators with a decomposition of their predictive uncertainty.

    Such a classifier or regressor has ``predict_uncertainty(X)``, which returns a
    :class:`~sklearn.utils.Bunch` with three float64 arrays of shape
    (n_samples,), all high for uncertain samples:

    - ``total``: the uncertainty of the prediction;
    - ``aleatoric``: the part that more training data would not reduce;
    - ``epistemic``: the part that more training data could reduce.

    Uncertainties are never scores: :class:`UncertaintyDetector` turns one of
    them into a detector.
    """

    @abstractmethod
    def predict_uncertainty(self, X):
        """Return total, aleatoric and epistemic uncertainty of each prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        uncertainty : Bunch
            With the arrays ``total``, ``aleatoric`` and ``epistemic``, each of
            shape (n_samples,), high for uncertain samples.
        """


class UncertaintyDetector(BaseDetector):
    r"""Detector whose score is minus one component of an uncertainty.

    .. math:: s(x) = -u_{\text{component}}(x)

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object
        An uncertainty classifier or regressor: it has ``predict_uncertainty``. It is
        cloned and fitted, unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
        For a regressor, the `y` of `fit` are its targets, and all samples are ID.

    component : {"epistemic", "aleatoric", "total"}, default="epistemic"
        The uncertainty that serves as OOD score.

    contamination : float, default=0.05
        Fraction of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are excluded from the fit.

    Attributes
    ----------
    estimator_ : object
        The fitted uncertainty classifier or regressor.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        or of 1,000 of them if there are more, are below it, see :ref:`ties`. Unless the
        estimator is frozen it is fitted up to five more times for this, without the
        scored samples.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`. Not for a regressor.

    See Also
    --------
    UncertaintyMixin : Interface of an estimator with an uncertainty.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.utils import Bunch
    >>> from skood.base import UncertaintyDetector, UncertaintyMixin
    >>> class PlainEntropy(UncertaintyMixin, LogisticRegression):
    ...     def predict_uncertainty(self, X):
    ...         p = self.predict_proba(X)
    ...         h = -np.sum(p * np.log(p), axis=1)
    ...         return Bunch(total=h, aleatoric=h, epistemic=np.zeros_like(h))
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = UncertaintyDetector(PlainEntropy(max_iter=500), component="total")
    >>> float(np.mean(detector.fit(X, y).predict(X) == 1).round(2))
    0.96
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [HasMethods(["fit", "predict_uncertainty"])],
        "component": [StrOptions({"total", "aleatoric", "epistemic"})],
    }

    _learns = False

    def __init__(
        self, estimator, *, component="epistemic", contamination=0.05, ood_label=-1
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.component = component

    def _is_regressor(self):
        """Return whether the estimator is a regressor, whose targets are no labels."""
        tagged = hasattr(self.estimator, "__sklearn_tags__")
        return tagged and is_regressor(self.estimator)

    def _fit_samples(self, X, y, sample_weight=None):
        if not self._is_regressor():
            return super()._fit_samples(X, y, sample_weight)
        X, y = labeled_rows(X, y, sample_weight)
        if y is not None:
            y = to_numpy(y)
            check_consistent_length(X, y)
        if sample_weight is None:
            return self._fit(X, y)
        return self._fit(X, y, sample_weight)

    def _fit(self, X, y, sample_weight=None):
        def fit(other, *training):
            other.estimator_ = fit_wrapped(other, self.estimator, *training)

        def score(other, left_out, weight):
            return weighted(other._score(take_rows(X, left_out)), weight)

        fit(self, X, y, sample_weight)
        if not is_fixed(self.estimator):
            return self._scores_of_refits(
                X,
                y,
                fit,
                score,
                rescale=False,
                weight=sample_weight,
                stratify=not self._is_regressor(),
            )
        # a search per sample may be slower than the fit
        drawn = drawn_copies(SampleKeys(X), sample_weight, MAX_REFITTED_SAMPLES)
        if sample_weight is not None:
            return score(self, *drawn)
        return self._score(X if n_rows(X) == len(drawn[0]) else take_rows(X, drawn[0]))

    def _score(self, X):
        return -np.asarray(self.estimator_.predict_uncertainty(X)[self.component])

    def __sklearn_tags__(self):
        return wrapped_tags(super().__sklearn_tags__(), self.estimator)
