"""Predictions of a fitted classifier with a reject option, and their evaluation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.decision import accept_proba, draw
from skood.rejection._calibration import predict_parts, score_parts
from skood.rejection._explained_decisions import ExplainedDecisions
from skood.rejection._inputs import Parts, describe
from skood.rejection._report import make_report, possible_losses
from skood.utils._batches import blockwise
from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import (
    check_labels,
    label_codes,
    ood_mask,
    put_label,
    single_column,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import (
    bind,
    n_rows,
    wrapped_tags,
)
from skood.utils._weights import count_weights

__all__ = ["SelectiveClassifier"]


def _estimator_has(name):
    """Return whether the wrapped classifier has a method, fitted or not."""

    def check(self):
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class SelectiveClassifier(ExplainedDecisions, ClassifierMixin, SkoodEstimator):
    """Base class of classifiers with a rule: predictions and their evaluation.

    `fit` of a subclass sets ``estimator_``, both detectors, ``detector_inputs_``,
    ``classes_``, ``reject_label_``, ``operating_point_`` and the private reference of
    explanations.
    """

    def _check_fitted(self):
        if "estimator_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self, "estimator_")

    def _parts(self):
        return Parts(self.estimator_, self.risk_detector_, self.ood_detector_)

    @blockwise
    def accept_proba(self, X):
        """Return the probability that each sample is accepted.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        accept : ndarray of shape (n_samples,), dtype float64
            0 or 1, or ``tau_`` at the threshold of a randomized rule; 1 with
            ``rule=None``.
        """
        self._check_fitted()
        if self.operating_point_ is None:
            return np.ones(n_rows(X))
        return accept_proba(self.operating_point_, *score_parts(self._parts(), X))

    def predict(self, X):
        """Predict a class or `reject_label` for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels, `reject_label` where rejected.
        """
        self._check_fitted()
        labels, accept = self._answers(X)
        if self.operating_point_ is None:
            return labels
        rejected = ~draw(accept, self.random_state)
        return put_label(labels, rejected, self.reject_label_)

    @blockwise
    def _answers(self, X):
        """Return predicted classes and acceptance probabilities."""
        if self.operating_point_ is None:
            labels = single_column(self.estimator_.predict(X))  # of CatBoost
            return np.array(labels), np.ones(n_rows(X))
        risk, ood, labels = predict_parts(self._parts(), X)
        return np.array(labels), accept_proba(self.operating_point_, risk, ood)

    @available_if(_estimator_has("predict_proba"))
    @blockwise
    def predict_proba(self, X):
        """Return class probabilities of the classifier, also for rejected samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``.
        """
        self._check_fitted()
        proba = self.estimator_.predict_proba(X)
        check_no_overflow(proba, "A probability")
        return self._per_class(proba, 0.0)

    @available_if(_estimator_has("decision_function"))
    @blockwise
    def decision_function(self, X):
        """Return the margins of the classifier; never an OOD score.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        margins : ndarray of shape (n_samples,) or (n_samples, n_classes)
            The margins.
        """
        self._check_fitted()
        margins = self.estimator_.decision_function(X)
        check_no_overflow(margins, "A margin")
        return self._per_class(margins, np.finfo(margins.dtype).min)

    def _per_class(self, values, missing):
        """Insert columns for the classes without a training sample."""
        known = np.asarray(self.estimator_.classes_)
        if len(known) == len(self.classes_):
            return values
        if values.ndim == 1:  # the margin of the second of two classes
            values = np.column_stack([-values, values])
        if values.shape[1] != len(known):  # not one per class, as in SVC with "ovo"
            return values
        columns = np.full((len(values), len(self.classes_)), missing, values.dtype)
        columns[:, label_codes(known, self.classes_)] = values
        return columns

    @blockwise
    def _risks(self, X):
        """Return both scores of the samples."""
        return score_parts(self._parts(), X)

    def score_pair(self, X):
        """Return the scores used by the rule, high for samples to accept.

        :func:`skood.metrics.make_ood_scorer` evaluates either of them in searches and
        cross-validation.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        risk_score : ndarray of shape (n_samples,)
            The score of the risk detector, or the negative conditional risk estimated
            by the classifier.

        ood_score : ndarray of shape (n_samples,) or None
            The score of the OOD detector. None without an OOD detector.
        """
        self._check_fitted()
        risk, ood = self._risks(X)
        return -risk, None if ood is None else -ood

    def with_rule(self, rule, X, y, *, guarantee="auto", sample_weight=None):
        """Return a classifier with another rule and the same fitted parts.

        Nothing is fitted: the rule is chosen on the scores of the given samples. The
        result equals that of a fit with ``calibration="same"`` on the frozen parts, and
        has these parameters, so that a clone of it is not fitted again either. This
        classifier is unchanged.

        Parameters
        ----------
        rule : BaseRule or None
            The new rule, see :class:`RejectOptionClassifier`.

        X : array-like of shape (n_samples, ...)
            Calibration samples, on which *no part was fitted*: on training samples,
            scores are biased, and rates and guarantees invalid.

        y : array-like of shape (n_samples,)
            Their labels; `ood_label` for known OOD samples.

        guarantee : str, Certificate or None, default="auto"
            Kind of guarantee of the new rule. "auto": the parameter of this classifier.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, as in `fit`.

        Returns
        -------
        classifier : RejectOptionClassifier
            The fitted parts are shared with this classifier.

        Raises
        ------
        InfeasibleError
            If no acceptance region meets the bounds of the rule on the samples.
        NotCertifiableError
            If there are too few samples for the guarantee.
        ValueError
            If the data or a parameter is invalid, or `y` contains other labels than the
            classes of the classifier and `ood_label`.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from skood.datasets import load_digits_ood
        >>> from skood.rejection import BoundedAbstention, RejectOptionClassifier
        >>> X, y = load_digits_ood(left_out=[8, 9], return_X_y=True)
        >>> clf = RejectOptionClassifier(LogisticRegression(max_iter=500))
        >>> clf = clf.fit(X[:1000], y[:1000])
        >>> strict = clf.with_rule(BoundedAbstention(coverage=0.5), X[1000:], y[1000:])
        >>> strict.operating_point_.tpr >= 0.5, clf.operating_point_
        (True, None)
        """
        self._check_fitted()
        fitted, parts = self._parts(), {}
        for name, part in fitted._asdict().items():
            frozen = part is None or isinstance(part, FrozenEstimator)
            parts[name] = part if frozen else FrozenEstimator(part)
        params = {**self.get_params(deep=False), **parts, "rule": rule}
        if not (isinstance(guarantee, str) and guarantee == "auto"):
            params["guarantee"] = guarantee
        new = type(self)(**{**params, "calibration": "same"}).fit(X, y, sample_weight)
        new.estimator_, new.risk_detector_, new.ood_detector_ = fitted
        new.detector_inputs_ = dict(self.detector_inputs_)
        return new

    def report(
        self,
        X,
        y,
        *,
        confidence_level=0.95,
        ood_prior=None,
        max_loss=None,
        sample_weight=None,
    ):
        """Return the rates of decisions on given samples, with confidence intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples; for unbiased rates, not the samples of fit.

        y : array-like of shape (n_samples,)
            Labels. A sample is OOD when its label is `ood_label` or is not in
            ``classes_``.

        confidence_level : float, default=0.95
            Level of each interval, in (0, 1).

        ood_prior : float, default=None
            Share of OOD samples in use, for the precision; in [0, 1).

        max_loss : float, default=None
            Largest value that a callable `loss` can take. None: its risk has no
            interval. The values of the other losses are known.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights, see :ref:`rejection_weights`. Intervals take whole weights for
            numbers of independent samples; with others they are approximate, for the
            effective number of samples, and there is none of a loss with more than two
            values.

        Returns
        -------
        report : RejectionReport
            TPR, FPR, coverage, selective risk and precision; print it for a table.
        """
        self._check_fitted()
        if not 0 < confidence_level < 1:
            raise ValueError(
                f"confidence_level must be in (0, 1), got {confidence_level!r}."
            )
        if ood_prior is not None and not 0 <= ood_prior < 1:
            raise ValueError(f"ood_prior must be in [0, 1), got {ood_prior!r}.")
        possible = possible_losses(self.loss, max_loss)
        accepted, loss, is_ood, weight = self._outcomes(X, y, self.loss, sample_weight)
        report = make_report(
            draw(accepted, self.random_state),
            loss,
            is_ood,
            confidence_level=confidence_level,
            ood_prior=ood_prior,
            possible=possible,
            weight=weight,
        )
        return replace(report, scores=self._described_scores())

    def _described_scores(self):
        """Return which scores the rule uses, or None without a rule."""
        if self.operating_point_ is None:
            return None
        found = {
            name: describe(
                getattr(self, f"{name}_detector_"),
                self.detector_inputs_.get(name),
                self.estimator_,
            )
            for name in ("risk", "ood")
        }
        if self.ood_detector_ is None:
            del found["ood"]
        if not self.operating_point_.feasible:
            found["bounds"] = (
                "not attainable on the calibration samples; the nearest rule violates "
                f"one by {self.operating_point_.violation:.4g}"
            )
        return found

    def score(self, X, y, sample_weight=None):
        """Return minus the objective of the rule, or the accuracy with ``rule=None``.

        Bounds of the rule are ignored: searches over them need a scorer with bounds,
        such as :func:`skood.metrics.make_selective_risk_scorer`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples,)
            Labels. A sample is OOD when its label is `ood_label` or is not in
            ``classes_``.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            Greater is better; minus infinity if the objective is a risk and no ID
            sample is accepted.
        """
        self._check_fitted()
        plain = self.operating_point_ is None
        accepted, loss, is_ood, weight = self._outcomes(
            X, y, "zero_one" if plain else self.loss, sample_weight
        )
        if is_ood.all():
            raise ValueError(
                f"No in-distribution samples in y: classes_ are {self.classes_}."
            )
        is_id = ~is_ood
        if plain:
            of_id = None if weight is None else weight[is_id]
            return float(np.average(1.0 - loss, weights=of_id))
        weight = np.ones(len(is_id), dtype=np.int64) if weight is None else weight
        accepted = accepted * weight
        objective = self.rule.objective(
            accepted[is_id].sum(),
            (accepted[is_id] * loss).sum(),
            accepted[is_ood].sum(),
            weight[is_id].sum(),
            weight[is_ood].sum(),
        )
        if math.isnan(objective):
            raise ValueError(
                f"No OOD samples in y, but the cost of {self.rule!r} depends on them: "
                f"labels {self.ood_label!r} or none of the classes."
            )
        return -float(objective)

    def _outcomes(self, X, y, loss, sample_weight):
        """Return acceptance, losses of ID samples, the OOD mask, and weights or None.

        Samples with a weight of zero are left out.
        """
        y = check_labels(y)
        predicted, accept = self._answers(X)
        check_consistent_length(predicted, y)
        weight = count_weights(sample_weight, len(y))
        if weight is not None and not weight.all():
            rows = weight > 0
            y, predicted, accept = y[rows], predicted[rows], accept[rows]
            weight = weight[rows]
        is_ood = ood_mask(y, ood_label=self.ood_label, classes=self.classes_)
        losses = per_sample_loss(
            y,
            predicted,
            loss,
            is_id=~is_ood,
            classes=self.classes_,
        )
        return accept, losses, is_ood, weight

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.required = True
        inner = get_tags(self.estimator).classifier_tags
        if inner is not None:
            tags.classifier_tags = inner
        for detector in (self.risk_detector, self.ood_detector):
            if detector is not None:
                detector = bind(detector, self.estimator, copy=copy)
                inner = get_tags(detector).input_tags
                tags.input_tags.sparse &= inner.sparse
                tags.input_tags.allow_nan &= inner.allow_nan
        return tags
