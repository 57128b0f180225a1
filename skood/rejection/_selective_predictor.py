"""Base class of predictors with a reject option: their fit and their evaluation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import abstractmethod
from contextlib import nullcontext
from copy import copy
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.decision import (
    BaseRule,
    Certificate,
    Solver,
)
from skood.decision._base_rule import check_rule
from skood.decision._operating_point import draw
from skood.rejection._calibration import router_of
from skood.rejection._explained_decisions import ExplainedDecisions
from skood.rejection._inputs import Parts, described_scores, separate
from skood.rejection._report import make_report
from skood.rejection._report_groups import evaluated_labels
from skood.rejection._score_pool import recalibrated
from skood.utils._batches import labeled_rows
from skood.utils._estimator import SkoodEstimator
from skood.utils._id_samples import warn_of_earlier_steps
from skood.utils._labels import check_y, ood_mask
from skood.utils._metaestimators import bind, wrapped_tags
from skood.utils._weights import count_weights


class SelectivePredictor(ExplainedDecisions, SkoodEstimator):
    """Base class of classifiers and regressors with a rule.

    A subclass defines `ood_label` (NaN in a regression), the parts that are fitted, and
    the losses and the values of predictions.
    """

    #: Parameters with the parts, in their order in `Parts`.
    _part_names = Parts._fields

    _parts_type = Parts

    _default_parts: dict = {"guarantee": Certificate, "solver": Solver}

    # parameters that all subclasses have
    ood_label: Any
    rule: Any
    calibration: Any
    loss: Any
    guarantee: Any
    solver: Any
    n_jobs: Any

    @abstractmethod
    def _given_parts(self):
        """Return the unfitted parts."""

    @abstractmethod
    def _check_data(self, data, parts):
        """Raise if the parts do not suit the samples."""

    @abstractmethod
    def _store(self, parts, y_id, unfitted):
        """Set the attributes of the fitted parts."""

    @abstractmethod
    def _losses(self, y, predicted, is_id=None):
        """Return the losses of ID samples."""

    @abstractmethod
    def _plain_score(self, X, y, sample_weight):
        """Return the score without a rule."""

    @abstractmethod
    def _possible_losses(self, max_loss=None):
        """Return the values that a loss can take, or None; see `possible_losses`."""

    @abstractmethod
    def _marked_ood(self):
        """Return how OOD samples are marked in `y`, for messages."""

    def _check_labels(self, y):
        """Raise if ID samples have other labels than the classes."""

    def _naming_ood_label(self, data):
        """Return a context in which errors of fits mention the label of OOD samples."""
        return nullcontext()

    def _validate_params(self):
        if isinstance(self.rule, type):
            check_rule(self.rule)
        for name in self._part_names[1:]:
            if isinstance(getattr(self, name), BaseRule):
                raise TypeError(
                    f"{name} is the rule {getattr(self, name)!r}: give rules by "
                    "keyword: rule=..."
                )
        super()._validate_params()

    def _separated(self, X, y, sample_weight, groups, ood_source, **options):
        """Return the ID and the OOD samples as `Data`."""
        y = check_y(y, self.ood_label)
        given = sample_weight, groups, self.ood_label, ood_source
        data = separate(X, y, *given, **options)
        if data.n_ood:
            warn_of_earlier_steps(self)
        return data

    def _options(self):
        """Return the solver, and the certificate or None, as objects."""
        certificate = self.guarantee
        if certificate is not None:
            certificate = self._as_part("guarantee", certificate)
        return self._as_part("solver", self.solver), certificate

    def get_metadata_routing(self):
        """Return how the metadata of samples are passed on by `fit`.

        Returns
        -------
        router : MetadataRouter
            The request of the estimator itself, and the routing to `estimator`, the
            detectors and a splitter in `calibration`.
        """
        return router_of(self)

    def _largest_loss(self):
        """Return the largest loss, for a guarantee; 1 if it is unknown."""
        possible = self._possible_losses()
        return 1.0 if possible is None else float(possible.max())

    def _check_fitted(self):
        if "estimator_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self, "estimator_")

    def _parts(self):
        fitted = self.estimator_, self.risk_detector_, self.ood_detector_
        return self._parts_type(*fitted)

    def _drawn_parts(self):
        parts = dict(zip(self._part_names, self._parts(), strict=True))
        if self.risk_detector_ is None:
            parts["risk_detector"] = "1 - max probability"
        if self.ood_detector_ is None:
            del parts["ood_detector"]
        return {**parts, "rule": self._rule_line()}

    def _rule_line(self):
        """Return the rule, its thresholds and its certified bounds as one line."""
        point = self.operating_point_
        if point is None:
            return "None: all samples are accepted"
        names = ("theta", "lam", "ood_max")[: 3 if point.has_two_thresholds else 2]
        values = [(name, getattr(point, name)) for name in names]
        shown = ", ".join(f"{name} = {_shown_limit(value)}" for name, value in values)
        line = f"{' '.join(repr(self.rule).split())}; {shown}; "
        if point.certificate is None or not point.certificate.statements:
            return f"{line}not certified"
        texts = (statement.text for statement in point.certificate.statements)
        return f"{line}certified: {', '.join(texts)}"

    def with_rule(
        self,
        rule,
        X,
        y,
        *,
        guarantee="auto",
        sample_weight=None,
        groups=None,
        ood_source=None,
    ):
        """Return an estimator with another rule and the same fitted parts.

        Nothing is fitted: the rule is chosen on the scores of the given samples. The
        result equals that of a fit with ``calibration="same"`` on the frozen parts, and
        has these parameters, so that a clone of it is not fitted again either. This
        estimator is unchanged.

        Parameters
        ----------
        rule : BaseRule or None
            The new rule.

        X : array-like of shape (n_samples, ...)
            Calibration samples, on which *no part was fitted*: on training samples,
            scores are biased, and rates and guarantees invalid.

        y : array-like of shape (n_samples,)
            Their labels or targets, and known OOD samples as in `fit`.

        guarantee : str, Certificate or None, default="auto"
            Kind of guarantee of the new rule. "auto": the parameter of this estimator.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, as in `fit`.

        groups, ood_source : array-like of shape (n_samples,), default=None
            Groups and sources of the samples, as in `fit`.

        Returns
        -------
        estimator : RejectOptionClassifier or RejectOptionRegressor
            The fitted parts are shared with this estimator.

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
        for name, part in zip(self._part_names, fitted, strict=True):
            frozen = part is None or isinstance(part, FrozenEstimator)
            parts[name] = part if frozen else FrozenEstimator(part)
        params = {**self.get_params(deep=False), **parts, "rule": rule}
        if not (isinstance(guarantee, str) and guarantee == "auto"):
            params["guarantee"] = guarantee
        new = type(self)(**{**params, "calibration": "same"})
        new.fit(X, y, sample_weight, groups, ood_source)
        new.estimator_, new.risk_detector_, new.ood_detector_ = fitted
        new.detector_inputs_ = dict(self.detector_inputs_)
        return new

    def recalibrate(
        self,
        X,
        y,
        *,
        window=None,
        groups=None,
        ood_source=None,
        sample_weight=None,
        choose="split",
        accepted_only=False,
    ):
        r"""Choose the rule again with fresh labeled samples, refitting nothing.

        The samples are scored by the fitted parts, and follow the calibration samples
        that were stored before. On all of them, or the latest, the rule of the
        parameters is chosen or certified. If this fails, the estimator is unchanged:
        the previous rule stays, and the samples are not stored. Read more in the
        :ref:`User Guide <recalibration>`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Samples on which no part was fitted, in the order of time.

        y : array-like of shape (n_samples,)
            Their labels or targets, and known OOD samples as in `fit`. There may be no
            ID samples, or no OOD samples, among them.

        window : int, default=None
            Numbers of ID and of OOD samples to use: the latest ones of each. None: all.

        groups, ood_source : array-like of shape (n_samples,), default=None
            Groups and sources of the samples, as in `fit`.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, as in `fit`.

        choose : {"split", "previous"}, default="split"
            Samples that choose the candidates of a certificate. "split": a random part
            of all samples, which must be from one distribution. "previous": all earlier
            samples, which may be from another one; only the fresh samples certify.

        accepted_only : bool, default=False
            Only labels of samples that the rule accepted are known, and given. They
            certify a bound on the selective risk, by a rule that accepts some of the
            previously accepted samples, but neither the TPR nor the FPR. Earlier
            samples choose the candidates, as with ``choose="previous"``.

        Returns
        -------
        self : object
            The estimator with the new rule.

        Raises
        ------
        NotCertifiableError
            If there are too few samples for the guarantee.
        InfeasibleError
            If no acceptance region meets the bounds of the rule on the samples.
        ValueError
            If the data or a parameter is invalid, if there is no rule, or if
            `accepted_only` is set and the rule bounds the TPR or the FPR.

        See Also
        --------
        with_rule : Starts with given samples, and may use another rule.

        Notes
        -----
        Each certificate fails with a probability of at most `delta`, for the
        distribution of its certifying samples, if the time of the call does not depend
        on the labels of the samples. With ``Certificate(schedule="all")`` all of them
        hold with a probability of at least ``1 - delta``, with ever smaller errors;
        refused ones are counted, which is the only change of the estimator after a
        refusal.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from skood.datasets import load_digits_ood
        >>> from skood.rejection import BoundedAbstention, RejectOptionClassifier
        >>> X, y = load_digits_ood(left_out=[8, 9], return_X_y=True)
        >>> clf = RejectOptionClassifier(
        ...     LogisticRegression(max_iter=500),
        ...     rule=BoundedAbstention(coverage=0.8),
        ...     guarantee="high_probability",
        ...     random_state=0,
        ... ).fit(X[:1000], y[:1000])
        >>> before = clf.operating_point_.tpr
        >>> clf.recalibrate(X[1000:], y[1000:]).operating_point_.tpr < before
        True
        """
        self._check_fitted()
        X, y = labeled_rows(X, y)
        of_samples = sample_weight, groups, ood_source
        data = self._separated(X, y, *of_samples, needs_id=False)
        self._check_labels(data.y)
        recalibrated(
            self, data, window=window, choose=choose, accepted_only=accepted_only
        )
        return self

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
            Share of OOD samples in use, for the precision; in [0, 1).

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
        labels = evaluated_labels(self, outputs, groups, ood_source, sample_weight)
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
            scores=described_scores(self),
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
            Labels or targets. A sample is OOD when its label is `ood_label` or is not
            in ``classes_``; in a regression, when its target is NaN.

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
        if self.operating_point_ is None:
            return self._plain_score(X, y, sample_weight)
        accepted, loss, is_ood, weight = self._outcomes(X, y, sample_weight, groups)
        self._check_has_id(is_ood)
        is_id = ~is_ood
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

    def _check_has_id(self, is_ood):
        """Raise if all samples are OOD."""
        if is_ood.all():
            classes = getattr(self, "classes_", None)
            why = (
                "every target is NaN" if classes is None else f"classes_ are {classes}"
            )
            raise ValueError(f"No in-distribution samples in y: {why}.")

    def _outcomes(self, X, y, sample_weight, groups):
        """Return acceptance, losses of ID samples, the OOD mask, and weights or None.

        Samples with a weight of zero are left out.
        """
        outputs = self._evaluated(X, y, sample_weight, groups)
        y, predicted, accept, is_ood, weight = outputs
        return accept, self._losses(y, predicted, ~is_ood), is_ood, weight

    def _evaluated(self, X, y, sample_weight, groups=None):
        """Return targets, predictions, acceptance, the OOD mask, and weights or None.

        Samples with a weight of zero are left out.
        """
        y = check_y(y, self.ood_label)
        predicted, accept = self._answers(X, groups)
        check_consistent_length(predicted, y)
        weight = count_weights(sample_weight, len(y))
        if weight is not None and not weight.all():
            rows = weight > 0
            y, predicted, accept = y[rows], predicted[rows], accept[rows]
            weight = weight[rows]
        classes = getattr(self, "classes_", None)
        is_ood = ood_mask(y, ood_label=self.ood_label, classes=classes)
        return y, predicted, accept, is_ood, weight

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.required = True
        parts = self._given_parts()
        for detector in parts[1:]:
            if hasattr(detector, "__sklearn_tags__"):
                if not parts.regression:
                    detector = bind(detector, self.estimator, copy=copy)
                inner = get_tags(detector).input_tags
                tags.input_tags.sparse &= inner.sparse
                tags.input_tags.allow_nan &= inner.allow_nan
        return tags


def _shown_limit(limit):
    """Return a threshold, or the thresholds of groups, as text."""
    if not isinstance(limit, dict):
        return f"{limit:.4g}"
    return "{" + ", ".join(f"{k}: {value:.4g}" for k, value in limit.items()) + "}"
