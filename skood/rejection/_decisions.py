"""Decisions of a selective predictor on new samples: rates, reasons, explanations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import operator
from abc import abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.decision._operating_point import draw
from skood.rejection._explanation import explain_decisions
from skood.rejection._parts import Parts
from skood.rejection._report import make_report
from skood.utils._batches import blockwise
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._labels import check_y, checked_ood_mask, column, is_missing
from skood.utils._metaestimators import n_rows
from skood.utils._weights import check_weight, count_weights


def _has_rule(self):
    """Return whether the predictor has a rule, else raise."""
    if getattr(self, "operating_point_", self.rule) is None:
        raise AttributeError(
            "reject_reason and explain are not available when rule=None: nothing is "
            "rejected. Set a rule, such as TwoThresholds(ood=0.05, risk=0.05)."
        )
    return True


class Decisions(SkoodEstimator):
    """Base class of selective predictors: their decisions, and their evaluation."""

    _parts_type = Parts
    _planned_parts: Any = None

    #: Losses of all pairs of classes, or None, see `Parts`.
    _table: Any = None

    #: Reason of rejections because of a high risk.
    _uncertain = "uncertain class"

    rule: Any
    ood_label: Any
    random_state: Any
    operating_point_: Any
    _reference: Any
    _calibration: Any

    @abstractmethod
    def _losses(self, y, predicted, is_id=None):
        """Return the losses of ID samples."""

    @abstractmethod
    def _plain_score(self, y, predicted, weight):
        """Return the score of ID samples without a rule."""

    @abstractmethod
    def _possible_losses(self, max_loss=None):
        """Return the values that a loss can take, or None; see `possible_losses`."""

    @abstractmethod
    def _marked_ood(self):
        """Return how OOD samples are marked in `y`, for messages."""

    def _check_fitted(self):
        if "estimator_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self, "estimator_")

    def _parts(self):
        """Return the fitted parts with their plan, which files do not contain."""
        fitted = self.estimator_, self.risk_detector_, self.ood_detector_
        parts = self._planned_parts
        if parts is None or any(map(operator.is_not, parts, fitted)):
            parts = self._planned_parts = self._parts_type(*fitted)
            parts.table = self._table
        return parts

    def __getstate__(self):
        state = super().__getstate__()
        return {**state, "_planned_parts": None} if "_planned_parts" in state else state

    def accept_proba(self, X, groups=None):
        """Return the probability that each sample is accepted.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, for a rule with a threshold for each group; as for
            `predict`.

        Returns
        -------
        accept : ndarray of shape (n_samples,), dtype float64
            0 or 1, or ``tau_`` at the threshold of a randomized rule; 1 with
            ``rule=None``.
        """
        self._check_fitted()
        if self.operating_point_ is None:
            return self._ones(X)
        if self.operating_point_.has_group_thresholds:
            return self._decided(X, groups)[1]
        return self.operating_point_.accept_proba(*self._risks(X))

    @blockwise
    def _ones(self, X):
        return np.ones(n_rows(X))

    @takes_input
    def _decided(self, X, groups=None):
        """Return predictions of the estimator, and acceptance probabilities."""
        if self.operating_point_ is None:
            values = self._predictions(X)
            return values, np.ones(len(values))
        risk, ood, values = self._parts().predict(X)
        groups = self._groups_of(values, groups)
        accept = self.operating_point_.accept_proba(risk, ood, groups=groups)
        return np.array(values), accept

    def _groups_of(self, predicted, groups):
        """Return the groups of samples whose thresholds decide, or None."""
        if not self.operating_point_.has_group_thresholds:
            return None
        by_prediction = self._calibration.within == "predicted_class"
        return np.asarray(predicted) if by_prediction else groups

    @blockwise
    def _predictions(self, X):
        return np.array(self._parts().decide(X))

    @takes_input
    def _risks(self, X):
        """Return both scores of the samples."""
        return self._parts().score(X)

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
            Minus the conditional risk that the estimator predicts, unless there is a
            risk detector or another uncertainty.

        ood_score : ndarray of shape (n_samples,) or None
            The score of the OOD detector. None without an OOD detector.
        """
        self._check_fitted()
        risk, ood = self._risks(X)
        return -risk, None if ood is None else -ood

    @available_if(_has_rule)
    def reject_reason(self, X, groups=None):
        r"""Return the reason of the rejection of each sample.

        The excess of a rejected sample over the mean accepted calibration sample is a
        sum of two terms, :math:`\cos\theta\,(a - \bar a)/c_a` and
        :math:`\sin\theta\,(b - \bar b)/c_b`; their fractions of the excess are clipped
        to [0, 1]. With :class:`TwoThresholds` each term is the scaled excess of a score
        over its own threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, as for `predict`.

        Returns
        -------
        reason : Bunch
            Arrays of shape (n_samples,); ``pandas.DataFrame(reason)`` makes a table.

            - ``reason``: "accepted", "uncertain class" (of a regressor "uncertain
              value"), "out-of-distribution", or "unknown group" if the rule has
              thresholds of groups, but none for the group of the sample;
            - ``risk_percentile``, ``ood_percentile``: percentage of calibration ID
              samples whose score is not larger (100 = most suspicious); the latter is
              None without an OOD detector;
            - ``risk_fraction``, ``ood_fraction``: fraction of each score in the excess;
              0 for accepted samples.
        """
        self._check_fitted()
        point = self.operating_point_
        if point.has_group_thresholds:
            risk, ood, values = self._parts().predict(X)
            groups = self._groups_of(values, groups)
            groups = None if groups is None else column(groups)
        else:
            (risk, ood), groups = self._risks(X), None
        proba = point.accept_proba(risk, ood, groups=groups)
        accepted = draw(proba, self.random_state)
        scores = risk, ood, accepted, self._uncertain, groups
        return self._reference.explain(point, *scores)

    @available_if(_has_rule)
    @takes_input
    def explain(self, X, *, n_columns=3, groups=None):
        """Return a sentence on the decision for each sample, and a table of columns.

        A sample that is rejected as out-of-distribution is explained by the columns of
        `X` that contribute most to the score of `ood_detector`, if this is a sum over
        features, see :func:`skood.detectors.column_contributions`; by the members of an
        ensemble that reject it; or by the constraints that it violates. Otherwise the
        sentence compares the score with calibration samples. A sample that is rejected
        as likely misclassified is explained by the probabilities of the two likeliest
        classes, and by `risk_detector`, if there is one; a rejection of a regressor by
        the rank of its risk score. Read more in the
        :ref:`User Guide <explain_rejection>`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        n_columns : int, default=3
            Number of columns that a sentence may mention, with the largest
            contributions first. Columns with less than a tenth of the largest
            contribution are left out.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, as for `predict`.

        Returns
        -------
        explanation : RejectionExplanation
            Sentences, reasons, predictions and contributions; ``print`` shows the
            sentences.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from skood.detectors import Mahalanobis
        >>> from skood.rejection import RejectOptionClassifier, TwoThresholds
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["good", "poor"], 300)
        >>> income = np.where(y == "good", 50e3, 30e3) + rng.normal(0, 5e3, 600)
        >>> X = pd.DataFrame({"income": income, "age": rng.normal(45, 12, 600)})
        >>> clf = RejectOptionClassifier(
        ...     make_pipeline(StandardScaler(), LogisticRegression()),
        ...     ood_detector=Mahalanobis(),
        ...     rule=TwoThresholds(),
        ...     random_state=0,
        ... ).fit(X, y)
        >>> new = pd.DataFrame({"income": [9e4, 5e4], "age": [45, 40]})
        >>> explanation = clf.explain(new)
        >>> sentence = explanation.sentences[0]
        >>> sentence[:64]
        'rejected as out-of-distribution: income 90,000, 8.0 sd above the'
        >>> sentence[65:]
        "mean 49,815 of the nearest class 'good'"
        >>> explanation.sentences[1]
        "accepted as 'good' with probability 0.99"
        """
        check_scalar(n_columns, "n_columns", Integral, min_val=0)
        return explain_decisions(self, X, n_columns, groups, self._table)

    def report(
        self,
        X,
        y,
        *,
        confidence_level=0.95,
        ood_prior=None,
        max_loss=None,
        sample_weight=None,
        groups=None,
        ood_source=None,
    ):
        """Return the rates of decisions on given samples, with confidence intervals.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples; for unbiased rates, not the samples of fit.

        y : array-like of shape (n_samples,)
            Labels or targets. A sample is OOD when its label is `ood_label` or is not
            in ``classes_``; in a regression, when its target is NaN.

        confidence_level : float, default=0.95
            Level of each interval, in (0, 1).

        ood_prior : float, default=None
            Fraction of OOD samples in deployment, for the precision; in [0, 1).

        max_loss : float, default=None
            Largest value that a callable `loss`, or one of a regression, can take.
            None: the `max_loss` of a regressor or, without one, no interval of the
            risk. The values of other losses are known.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights, see :ref:`rejection_weights`. Intervals take whole weights for
            numbers of independent samples; with others there are none.

        groups, ood_source : array-like of shape (n_samples,), default=None
            Groups and sources as in `fit`, whose rates are reported too. None: with
            ``Certificate(within=)`` classes or predicted classes are the groups.

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
        possible = self._possible_losses(max_loss)
        outputs = self._evaluated(X, y, sample_weight, groups)
        y, predicted, accepted, is_ood, weight = outputs
        labels = self._labels_of(outputs, groups, ood_source, sample_weight)
        point = self.operating_point_
        certificate = None if point is None else point.certificate
        return make_report(
            draw(accepted, self.random_state),
            self._losses(y, predicted, ~is_ood),
            is_ood,
            confidence_level=confidence_level,
            ood_prior=ood_prior,
            possible=possible,
            weight=weight,
            labels=labels,
            scores=self._described_scores(),
            certified=() if certificate is None else certificate.statements,
            rule=None if point is None else self.rule,
        )

    def score(self, X, y, sample_weight=None, groups=None):
        """Return minus the objective of the rule.

        With ``rule=None``, it is the accuracy of a classifier, and R² of a regressor.

        Bounds of the rule are ignored: searches over them need a scorer with bounds,
        such as :func:`skood.metrics.make_selective_risk_scorer`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples,)
            Labels or targets, as in `report`.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, as for `predict`.

        Returns
        -------
        score : float
            Greater is better; minus infinity if the objective is a risk and no ID
            sample is accepted.
        """
        self._check_fitted()
        outputs = self._evaluated(X, y, sample_weight, groups)
        y, predicted, accepted, is_ood, weight = outputs
        if is_ood.all():
            classes = getattr(self, "classes_", None)
            why = (
                "every target is NaN" if classes is None else f"classes_ are {classes}"
            )
            raise ValueError(f"No in-distribution samples in y: {why}.")
        is_id = ~is_ood
        if self.operating_point_ is None:
            of_id = None if weight is None else weight[is_id]
            return float(self._plain_score(y[is_id], predicted[is_id], of_id))
        loss = self._losses(y, predicted, is_id)
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
                f"samples {self._marked_ood()}."
            )
        return -float(objective)

    def _evaluated(self, X, y, sample_weight, groups=None):
        """Return targets, predictions, acceptance, the OOD mask, and weights or None.

        Samples with a weight of zero are left out.
        """
        y = check_y(y, self.ood_label)
        predicted, accept = self._decided(X, groups)
        check_consistent_length(predicted, y)
        weight = count_weights(sample_weight, len(y))
        if weight is not None and not weight.all():
            used = weight > 0
            y, predicted, accept = y[used], predicted[used], accept[used]
            weight = weight[used]
        classes = getattr(self, "classes_", None)
        is_ood = checked_ood_mask(y, self.ood_label, classes)
        return y, predicted, accept, is_ood, weight

    def _labels_of(self, outputs, groups, sources, sample_weight):
        """Return groups and sources of the samples that are evaluated, or None.

        Without `groups` they are the classes for which the rule is certified, and then
        None for OOD samples. `_evaluated` returns `outputs`.
        """
        y, predicted, _, is_ood, weight = outputs
        if weight is not None and len(np.atleast_1d(sample_weight)) > len(weight):
            used = check_weight(sample_weight, len(sample_weight)) > 0
        else:
            used = np.ones(len(y), dtype=bool)
        checked: list = []
        pairs = (groups, "groups", ~is_ood), (sources, "ood_source", is_ood)
        for labels, name, needed in pairs:
            if labels is None:
                checked.append(None)
                continue
            labels = column(labels)
            if labels.shape != used.shape:
                raise ValueError(
                    f"{name} must have one label per sample, got {labels.size} for "
                    f"{used.size} samples."
                )
            checked.append(labels[used])
            if any(map(is_missing, checked[-1][needed])):
                raise ValueError(f"{name} contains missing labels; leave them out.")
        within = getattr(getattr(self, "_calibration", None), "within", None)
        if groups is None and within == "predicted_class":
            checked[0] = np.asarray(predicted)
        elif groups is None and within == "class":
            checked[0] = np.asarray(y, dtype=object).copy()
            checked[0][is_ood] = None
        return checked

    def _described_scores(self):
        """Return which scores the rule uses, or None without a rule."""
        point = self.operating_point_
        if point is None:
            return None
        lines = self._parts().described(self.detector_inputs_)
        if not point.feasible:
            lines["bounds"] = (
                "not attainable on the calibration samples; the nearest rule violates "
                f"one by {point.violation:.4g}"
            )
        if point.certificate is not None and point.certificate.statements:
            lines["certified"] = str(point.certificate)
        return lines
