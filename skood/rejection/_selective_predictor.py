"""Base class of predictors with a reject option: their fit, and their rule."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import abstractmethod
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.metadata_routing import MethodMapping

from skood.decision import (
    BaseRule,
    Certificate,
    Rates,
    ScoredSamples,
    Solver,
    TwoThresholds,
    certify,
    solve,
)
from skood.decision._base_rule import check_rule
from skood.exceptions import NotCertifiableError
from skood.rejection._decisions import Decisions
from skood.rejection._explanation import ScoreReference
from skood.rejection._parts import (
    RISK_NAMES,
    CalibrationRecord,
    LabeledSamples,
    Parts,
    followed_by,
    is_cross_fitted,
)
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import labeled_rows
from skood.utils._id_samples import warn_of_earlier_steps
from skood.utils._labels import check_y
from skood.utils._metaestimators import (
    bind,
    check_given,
    copy_input_attributes,
    with_seeds,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, Interval, StrOptions
from skood.utils._routing import router_of
from skood.utils._warnings import warn
from skood.utils._weights import row_weight

# Labels of OOD samples in public data sets.
_OOD_NAMES = {"oos", "ood", "outlier", "anomaly", "unknown", "novel", "out_of_scope"}


class SelectivePredictor(Decisions):
    """Base class of classifiers and regressors with a rule.

    A subclass defines `ood_label` (NaN in a regression), the parts that are fitted, and
    the losses and the values of predictions.
    """

    _default_parts: dict = {"guarantee": Certificate, "solver": Solver}

    # candidates of a search share them, see `__skood_share__`
    _fit_parts: Any = staticmethod(Parts.fit)
    _fit_and_score: Any = staticmethod(Parts.fit_and_score)

    _parameter_constraints: dict = {
        "ood_detector": [HasMethods(["fit", "score_samples"]), None],
        "rule": [BaseRule, None],
        "calibration": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),  # a str has split
            StrOptions({"same"}),
        ],
        "guarantee": [*Certificate._parameter_constraints["method"], Certificate, None],
        "solver": [*Solver._parameter_constraints["method"], Solver],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    # parameters that all subclasses have
    calibration: Any
    loss: Any
    guarantee: Any
    solver: Any
    n_jobs: Any

    @abstractmethod
    def _make_parts(self):
        """Return the unfitted parts."""

    @abstractmethod
    def _check_data(self, data):
        """Raise if the parameters do not suit the samples."""

    def _store(self, parts, y_id):
        """Set the attributes of the fitted parts."""
        self.estimator_, self.risk_detector_, self.ood_detector_ = parts
        self._planned_parts = parts
        copy_input_attributes(self, self.estimator_)

    def _check_labels(self, y):
        """Raise if ID samples have other labels than the classes."""

    def _naming_ood_label(self, data):
        """Return a context in which errors of fits mention the label of OOD samples."""
        return nullcontext()

    def _validate_params(self):
        if isinstance(self.rule, type):
            check_rule(self.rule)
        for name in self._parts_type.names[1:]:
            if isinstance(getattr(self, name), BaseRule):
                raise TypeError(
                    f"{name} is the rule {getattr(self, name)!r}: give rules by "
                    "keyword: rule=..."
                )
        super()._validate_params()

    def _fit(self, X, y, sample_weight, groups, ood_source):
        """Fit the parts, and choose the rule; a failing fit changes nothing."""
        X, y = labeled_rows(X, y)
        check_given(X)
        if y is None:
            name = type(self).__name__
            raise ValueError(
                f"{name} requires y to be passed, but the target y is None."
            )
        with fresh_fit(self):
            self._parts_type.check_estimator(self.estimator)
            self._possible_losses()  # raises if the loss is of another kind
            data = self._separated(X, y, sample_weight, groups, ood_source)
            self._check_data(data)
            parts = self._make_parts().checked(data)
            if self.rule is not None:
                self._check_rule(parts, data)
            self.detector_inputs_ = parts.inputs()
            certificate, labeled = self._options()[1], data
            if certificate is not None and certificate.within == "groups":
                # they are no groups of dependent samples, which are held out together
                labeled = data._replace(groups=None, groups_ood=None)
            labeled = labeled._replace(arguments=parts.arguments(self, labeled))
            with self._naming_ood_label(data):
                if self.rule is None:
                    parts = parts.like(with_seeds(parts, self.random_state))
                    self._store(self._fit_parts(parts, labeled), data.y)
                else:
                    how = self.calibration, self.random_state, self.n_jobs
                    together = getattr(certificate, "sampling", None) == "mixture"
                    fitted = self._fit_and_score(parts, labeled, *how, together)
                    parts, indices, outputs = fitted
                    self._store(parts, data.y)
            if self.rule is None:
                self.operating_point_ = self._reference = self._calibration = None
            else:
                record = self._record(data, indices, outputs)
                self._set_rule(self._choose_rule(record), record)
                self._warn_of_weight(data)
        return self

    def _warn_of_weight(self, data):
        """Warn if only errors on ID samples determine a small weight of the OOD score.

        TwoThresholds has no weights, also if it lacks a threshold.
        """
        if data.X_ood is not None or self.ood_detector is None:
            return
        if abs(self.theta_) >= math.pi / 4 or isinstance(self.rule, TwoThresholds):
            return
        warn(
            "y has no OOD samples, so that the weight of ood_detector was chosen by "
            f"the errors on ID samples alone: theta_ = {self.theta_:.3g} (at 0 only "
            f"the risk score counts, at pi / 2 only the OOD score), mu_ = "
            f"{self.mu_:.3g}. OOD samples may be accepted, however low the detector "
            f"scores them. Add known OOD samples, {self._marked_ood()}, and use a rule "
            "that bounds their rate, such as BoundedTPRFPR; or use "
            "rule=TwoThresholds(), which has a threshold for each score."
        )

    # --- samples, and checks before a long fit ------------------------------------

    def _separated(self, X, y, sample_weight, groups, ood_source, needs_id=True):
        """Return the samples of positive weight as `LabeledSamples`."""
        y = check_y(y, self.ood_label)
        labels = y, sample_weight, groups, ood_source
        data = LabeledSamples.of(X, *labels, self.ood_label, needs_id)
        if data.n_ood:
            warn_of_earlier_steps(self)
        return data

    def _check_rule(self, parts, data):
        """Raise before a long fit on errors that would only occur after it."""
        solver, certificate = self._options()
        self.rule.check_params()
        if parts.risk_detector is not None and self.rule.plug_in() is not None:
            parts.check_plug_in(self.rule)
        solver._validate_params()
        rule = self.rule
        if certificate is not None:
            certificate._validate_params()
            rule = certificate._checked_rule(rule, ood_source=data.source_ood)
        if rule.needs_ood and data.X_ood is None:
            names = [
                label
                for label in np.unique(data.y).tolist()
                if isinstance(label, str) and label.casefold() in _OOD_NAMES
            ]
            advice = ""
            if names:
                label = names[0]
                advice = (
                    f"If {label!r} is the label of OOD samples, pass "
                    f"ood_label={label!r}. "
                )
            raise ValueError(
                f"{self.rule!r} needs OOD samples: samples {self._marked_ood()} in y. "
                f"{advice}Give some, or use a rule that needs none, such as "
                "TwoThresholds(ood=0.05, risk=0.05)."
            )
        is_classifier = hasattr(self, "reject_label")
        data.check_guarantee(self.guarantee, solver, certificate, is_classifier)
        if isinstance(self.calibration, str):
            for name in parts.learning():
                raise ValueError(
                    f"calibration='same' needs frozen parts, but {name} would be "
                    "fitted on the samples that choose the rule. Put a fitted one in "
                    "sklearn.frozen.FrozenEstimator, or hold samples out with "
                    "calibration=0.3."
                )
        elif certificate is not None and is_cross_fitted(self.calibration):
            raise ValueError(
                f"guarantee={self.guarantee!r} needs calibration samples scored by the "
                f"final models; calibration={self.calibration!r} cross-fits. Hold "
                "samples out, with calibration=0.3."
            )

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
        parts = {
            name: getattr(self, name)
            for name in self._parts_type.names
            if hasattr(getattr(self, name), "fit")
        }
        router = router_of(self, None, parts)
        if hasattr(self.calibration, "get_n_splits"):
            splits = MethodMapping().add(caller="fit", callee="split")
            router.add(method_mapping=splits, splitter=self.calibration)
        return router

    def _drawn_parts(self):
        parts = dict(zip(self._parts_type.names, self._parts(), strict=True))
        if self.risk_detector_ is None:
            parts["risk_detector"] = RISK_NAMES[self._table is None]
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
        for name, estimator in zip(self._parts_type.names, fitted, strict=True):
            frozen = estimator is None or isinstance(estimator, FrozenEstimator)
            parts[name] = estimator if frozen else FrozenEstimator(estimator)
        params = {**self.get_params(deep=False), **parts, "rule": rule}
        if not (isinstance(guarantee, str) and guarantee == "auto"):
            params["guarantee"] = guarantee
        new = type(self)(**{**params, "calibration": "same"})
        new.fit(X, y, sample_weight, groups, ood_source)
        new.estimator_, new.risk_detector_, new.ood_detector_ = fitted
        new._planned_parts = fitted
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
        >>> print(f"{clf.operating_point_.tpr:.2f}")
        0.89
        >>> print(f"{clf.recalibrate(X[1000:], y[1000:]).operating_point_.tpr:.2f}")
        0.83
        """
        self._check_fitted()
        X, y = labeled_rows(X, y)
        of_samples = sample_weight, groups, ood_source
        data = self._separated(X, y, *of_samples, needs_id=False)
        self._check_labels(data.y)
        record = self._recorded()
        if choose not in ("split", "previous"):
            raise ValueError(f"choose must be 'split' or 'previous', got {choose!r}.")
        if window is not None:
            check_scalar(window, "window", Integral, min_val=1)
        solver, certificate = self._options()
        is_classifier = hasattr(self, "reject_label")
        data.check_guarantee(self.guarantee, solver, certificate, is_classifier)
        of_mixture = getattr(certificate, "sampling", None) == "mixture"
        if of_mixture and (window is not None or accepted_only):
            raise ValueError(
                "sampling='mixture' excludes window and accepted_only: they change the "
                "fraction of OOD samples. Use with_rule(rule, X, y) with recent "
                "samples."
            )
        # stored samples have chosen the rule that determines which are accepted
        only_fresh = choose == "previous" or accepted_only
        self._check_recorded(record, only_fresh, accepted_only)
        X_id, every = data.X if len(data.y) else None, (slice(None), slice(None))
        outputs = self._parts().labeled_scores(X_id, data.X_ood)
        old, fresh = record.samples, self._record(data, every, outputs).samples
        if accepted_only:
            self._check_accepted(fresh)
            old, fresh = self._accepted(old), self._accepted(fresh)
        samples = followed_by(old, fresh).latest(window)
        n_certificates = record.n_certificates + 1
        record = record._replace(
            samples=samples, n_certificates=n_certificates, accepted_only=accepted_only
        )
        split = None
        if only_fresh:
            n_samples, n_fresh = len(samples.risk), len(fresh.latest(window).risk)
            split = np.arange(n_samples) < n_samples - n_fresh
            if not (split & ~samples.is_ood).any():
                raise ValueError(
                    f"Earlier samples choose the candidates, but window={window} has "
                    f"only the {fresh.sizes[0]} new ID samples. Use a larger window."
                )
        choose_rule = (
            self._choose_among_accepted if accepted_only else self._choose_rule
        )
        self._set_rule(self._counted(choose_rule, record, split), record)
        return self

    def adapt(self, X):
        """Certify the precision in deployment with unlabeled samples, without a fit.

        The stored calibration samples and the samples in deployment, a mixture of ID
        and OOD samples with an unknown fraction of OOD samples, certify a bound on the
        precision for this mixture, see :func:`certify`. If this fails, the estimator is
        unchanged. Read more in the :ref:`User Guide <recalibration>`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Samples in deployment, all of a period, whether or not they were accepted.

        Returns
        -------
        self : object
            The estimator with the new rule. ``operating_point_.certificate`` has
            ``n_unlabeled``, the number of samples in deployment that certify it; the
            others choose the candidates.

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
        The guarantee assumes that the ID samples in deployment have the distribution of
        the calibration samples, and that the OOD samples are a mixture of its sources.
        """
        self._check_fitted()
        record, certificate = self._recorded(), self._options()[1]
        self._check_recorded(record)
        if certificate is None or certificate.method != "high_probability":
            raise ValueError(
                "adapt is for guarantee='high_probability', got "
                f"guarantee={self.guarantee!r}."
            )
        risk, ood = self._risks(X)
        record = record._replace(n_certificates=record.n_certificates + 1)
        unlabeled = risk, None if record.samples.ood is None else ood
        point = self._counted(self._choose_rule, record, None, unlabeled)
        self._set_rule(point, record)
        return self

    def __skood_share__(self, shared):
        """Share the fit with other candidates of a search, see `RuleSearchCV`.

        Returns names of parameters that fit nothing, and what else a fit depends on.
        """
        shared(self, "_separated", "_fit_parts", "_fit_and_score")
        self.__dict__["_parts"] = lambda: type(self)._parts(self).sharing(shared)
        if self.rule is not None:  # the parts have both scores
            self.__dict__["decide"] = lambda X: np.array(self._parts().predict(X)[2])
        certificate = self._options()[1] or Certificate()
        by_group = getattr(certificate, "within", None) == "groups"
        kind = self.rule is None, by_group, getattr(certificate, "sampling", None)
        return ("rule", "guarantee", "solver"), kind

    # --- the rule -----------------------------------------------------------------

    def _record(self, data, indices, outputs):
        """Return the record of scored samples: losses, groups, sources and weights.

        `indices` of ID and of OOD samples are positions in `data`, `outputs` are as of
        `Parts.labeled_scores`. The parameter `within` of the certificate determines the
        labels of groups.
        """
        of_id, of_ood = indices
        risk_id, ood_id, predicted, risk_ood, ood_ood = outputs
        certificate = self._options()[1]
        within = None if certificate is None else certificate.within
        by_group = certificate is not None and certificate.thresholds == "group"
        group_id = group_ood = None
        if within == "class":
            group_id = data.y[of_id]
        elif within == "predicted_class":
            group_id = np.asarray(predicted)
            if by_group and data.X_ood is not None:
                group_ood = self._parts().predict(data.X_ood)[2][of_ood]
        elif within == "groups":
            group_id = data.groups[of_id]
            group_ood = data.groups_ood[of_ood] if by_group else None
        losses = self._losses(data.y[of_id], predicted) if len(data.y) else np.empty(0)
        samples = ScoredSamples.from_arrays(
            *(risk_id, ood_id, losses, risk_ood, ood_ood),
            group_id=group_id,
            group_ood=group_ood,
            source_ood=None if data.source_ood is None else data.source_ood[of_ood],
            weight_id=row_weight(data.weight, of_id),
            weight_ood=row_weight(data.weight_ood, of_ood),
        )
        return CalibrationRecord(samples, within, is_cross_fitted(self.calibration))

    def _choose_rule(self, record, split=None, unlabeled=None):
        """Return the operating point of the rule on calibration samples.

        `split` is a mask of the samples that choose a path; None: a random subset.
        `unlabeled` are both scores of samples in deployment.
        """
        solver, certificate = self._options()
        if certificate is None:
            return solve(self.rule, record.samples, solver)
        losses = self._possible_losses()
        largest = 1.0 if losses is None else float(losses.max())
        certificate = certificate._of(record.n_certificates, largest)
        if split is not None:
            certificate.set_params(split=split)
        return certify(
            self.rule,
            record.samples,
            certificate,
            solver,
            unlabeled=unlabeled,
            random_state=self.random_state,
        )

    def _set_rule(self, point, record):
        """Set the attributes of a rule that was chosen on calibration samples."""
        names = "risk", "ood", "weight", "group"
        of_id = [record.samples.by_kind(name)[0] for name in names]
        reference = ScoreReference.of(point, *of_id)
        if record.accepted_only:  # percentiles remain those among all samples
            reference = self._reference._replace(typical=reference.typical)
        self.operating_point_ = point
        self.theta_, self.lambda_, self.tau_ = point.theta, point.lam, point.tau
        self.mu_, self.gap_ = point.mu, point.gap
        self.lower_bound_ = point.lower_bound
        self._reference, self._calibration = reference, record

    def _recorded(self):
        """Return the record of the calibration samples, or raise."""
        record = self._calibration
        if self.rule is None or record is None:
            raise ValueError(
                "There is no rule to recalibrate, or it has no stored scores. Use "
                "with_rule(rule, X, y), which chooses a rule for the fitted parts."
            )
        return record

    def _counted(self, choose, *arguments):
        """Return the chosen rule; a refused certificate counts if all must hold."""
        try:
            return choose(*arguments)
        except NotCertifiableError:
            if self._options()[1].schedule == "all":  # what was tried is spent
                old = self._calibration
                counted = old._replace(n_certificates=old.n_certificates + 1)
                self._calibration = counted
            raise

    def _check_recorded(self, record, only_fresh=False, accepted_only=False):
        """Raise unless the stored scores suit the kind of calibration."""
        certificate = self._options()[1]
        if certificate is not None and record.cross_fitted:
            raise ValueError(
                f"guarantee={self.guarantee!r} needs scores of the final models, but "
                "the stored ones were cross-fitted, with "
                f"calibration={self.calibration!r}. Use with_rule(rule, X, y), which "
                "starts with the samples given to it."
            )
        is_high = certificate is not None and certificate.method == "high_probability"
        if only_fresh and not is_high:
            raise ValueError(
                "choose='previous' and accepted_only=True are for "
                f"guarantee='high_probability', got guarantee={self.guarantee!r}."
            )
        if record.accepted_only and not accepted_only:
            raise ValueError(
                "The stored samples are accepted samples only, from a call with "
                "accepted_only=True. Use with_rule(rule, X, y) to start with samples "
                "labeled regardless of decisions."
            )

    def _check_accepted(self, fresh):
        """Raise unless labels of accepted samples alone can certify the rule."""
        point = self.operating_point_
        statements = self.rule.statements()
        if not statements or any(
            bound.loss <= 0 or bound.id > 0 or bound.ood or bound.constant
            for bound in statements
        ):
            raise ValueError(
                f"accepted_only=True: labels of accepted samples certify bounds on the "
                f"selective risk alone, but {self.rule!r} has other ones, or none: TPR "
                "and FPR are fractions of all samples. Use BoundedImprovement, or "
                "label samples regardless of decisions."
            )
        if point.tau != 1 or point.has_two_thresholds or point.has_group_thresholds:
            raise ValueError(
                "accepted_only=True is for rules with one threshold that accept all "
                f"samples below it, got {point!r}."
            )
        scores = [fresh.by_kind(name)[0] for name in ("risk", "ood")]
        rejected = point.project(*scores) > point.lam
        if rejected.any():
            raise ValueError(
                f"accepted_only=True, but the rule rejects {int(rejected.sum())} of "
                f"{rejected.size} ID samples. Give accepted samples, all whose labels "
                "are known; or set accepted_only=False if samples were labeled "
                "regardless of decisions."
            )

    def _accepted(self, samples):
        """Return the ID samples that the rule accepts."""
        point = self.operating_point_
        accepted = point.project(samples.risk, samples.ood) <= point.lam
        return samples.take(accepted & ~samples.is_ood)

    def _choose_among_accepted(self, record, split):
        """Return a rule of the same angle that accepts some of the accepted samples.

        Of the samples that a rule accepts, any rule that accepts a subset has the same
        selective risk as among all samples.
        """
        old, samples = self.operating_point_, record.samples
        values = old.project(samples.risk, samples.ood)
        samples = replace(samples, risk=values, ood=None)
        new = self._choose_rule(record._replace(samples=samples), split)
        return replace(
            new,
            theta=old.theta,
            lam=min(new.lam * new.scales[0], old.lam),
            scales=old.scales,
            rates=Rates(risk=new.risk),
        )

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.required = True
        parts = self._make_parts()
        for detector in parts[1:]:
            if hasattr(detector, "__sklearn_tags__"):
                if self._parts_type is Parts:
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
