"""Decisions of a selective predictor on new samples, and their explanations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.metaestimators import available_if

from skood.decision import accept_proba
from skood.decision._operating_point import draw
from skood.rejection._calibration import predict_parts, score_parts
from skood.rejection._explanation import explain
from skood.rejection._score_pool import adapted
from skood.utils._batches import blockwise
from skood.utils._input import takes_input
from skood.utils._labels import column, single_column
from skood.utils._metaestimators import n_rows


def _has_rule(self):
    """Return whether the predictor has a rule, else raise."""
    if getattr(self, "operating_point_", self.rule) is None:
        raise AttributeError(
            "reject_reason and explain are not available when rule=None: nothing is "
            "rejected. Set a rule, such as TwoThresholds(ood=0.05, risk=0.05)."
        )
    return True


class ExplainedDecisions:
    """Mixin of selective predictors with their decisions, and explanations of them."""

    #: Reason of rejections because of a high risk.
    _uncertain = "uncertain class"

    # of the selective predictor
    estimator_: Any
    operating_point_: Any
    random_state: Any
    _reference: Any
    _calibration: Any
    _parts: Callable
    _check_fitted: Callable

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
            return self._answers(X, groups)[1]
        return accept_proba(self.operating_point_, *self._risks(X))

    @blockwise
    def _ones(self, X):
        return np.ones(n_rows(X))

    def _answers(self, X, groups=None):
        """Return predictions of the estimator, and acceptance probabilities."""
        if self.operating_point_ is None:
            values = self._predictions(X)
            return values, np.ones(len(values))
        risk, ood, values = self._outputs(X)
        groups = self._groups_of(values, groups)
        accept = accept_proba(self.operating_point_, risk, ood, groups=groups)
        return np.array(values), accept

    def _groups_of(self, predicted, groups):
        """Return the groups of samples whose thresholds decide, or None."""
        if not self.operating_point_.has_group_thresholds:
            return None
        by_prediction = self._calibration.within == "predicted_class"
        return np.asarray(predicted) if by_prediction else groups

    @blockwise
    def _predictions(self, X):
        return np.array(single_column(self.estimator_.predict(X)))  # of CatBoost

    @blockwise
    def _outputs(self, X):
        """Return both scores of the samples, and predictions."""
        return predict_parts(self._parts(), X)

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
            Minus the conditional risk that the estimator predicts, unless there is a
            risk detector or another uncertainty.

        ood_score : ndarray of shape (n_samples,) or None
            The score of the OOD detector. None without an OOD detector.
        """
        self._check_fitted()
        risk, ood = self._risks(X)
        return -risk, None if ood is None else -ood

    def adapt(self, X):
        """Certify the precision in use with unlabeled samples, refitting nothing.

        The stored calibration samples and the samples in use, a mixture of ID and OOD
        samples with an unknown share of OOD samples, certify a bound on the precision
        for this mixture, see :func:`certify`. If this fails, the estimator is
        unchanged. Read more in the :ref:`User Guide <recalibration>`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Samples in use, all of a period, whether or not they were accepted.

        Returns
        -------
        self : object
            The estimator with the new rule. ``operating_point_.certificate`` has
            ``n_unlabeled``, the number of samples in use that certify it; the others
            choose the candidates.

        Raises
        ------
        NotCertifiableError
            If there are too few samples for the guarantee.
        ValueError
            If the rule bounds something else than a precision, or if `guarantee` is not
            "high_probability".

        See Also
        --------
        recalibrate : With labeled samples.

        Notes
        -----
        The guarantee assumes that the ID samples in use have the distribution of those
        of the calibration, and that the OOD samples are a mixture of its sources.
        """
        self._check_fitted()
        adapted(self, self._risks(X))
        return self

    @available_if(_has_rule)
    def reject_reason(self, X, groups=None):
        r"""Return the reason of the rejection of each sample.

        The excess of a rejected sample over the mean accepted calibration sample is a
        sum of two terms, :math:`\cos\theta\,(a - \bar a)/c_a` and
        :math:`\sin\theta\,(b - \bar b)/c_b`; their shares of the excess are clipped to
        [0, 1]. With :class:`TwoThresholds` each term is the scaled excess of a score
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
            - ``risk_share``, ``ood_share``: share of each score in the excess; 0 for
              accepted samples.
        """
        self._check_fitted()
        point = self.operating_point_
        if point.has_group_thresholds:
            risk, ood, values = self._outputs(X)
            groups = self._groups_of(values, groups)
            groups = None if groups is None else column(groups)
        else:
            (risk, ood), groups = self._risks(X), None
        proba = accept_proba(point, risk, ood, groups=groups)
        accepted = draw(proba, self.random_state)
        scores = risk, ood, accepted, self._uncertain, groups
        return explain(point, self._reference, *scores)

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
        from skood.rejection._sentences import explain_decisions

        check_scalar(n_columns, "n_columns", Integral, min_val=0)
        return explain_decisions(self, X, n_columns, groups)
