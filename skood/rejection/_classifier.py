"""Classifier with a reject option."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.decision import SOLVERS, BaseRule, accept_proba, certify, draw, solve
from skood.rejection._calibration import (
    Parts,
    calibrate,
    check_calibration,
    check_classes,
    check_is_classifier,
    check_ood_labels,
    fit_parts,
    predict_parts,
    score_parts,
)
from skood.rejection._explanation import explain, make_reference
from skood.rejection._inputs import INPUTS, describe, detector_input, reading_x
from skood.rejection._report import make_report, possible_losses
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import blockwise, labeled_rows
from skood.utils._estimator import SkoodEstimator
from skood.utils._labels import (
    check_labels,
    id_rows,
    label_codes,
    naming_ood_label,
    ood_mask,
    put_label,
    sortable_labels,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import (
    bind,
    check_given,
    check_one_column,
    copy_input_attributes,
    n_rows,
    take_rows,
    with_seeds,
    wrapped_tags,
)
from skood.utils._param_validation import (
    Classifier,
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
)
from skood.utils._warnings import warn

__all__ = ["RejectOptionClassifier"]


def _estimator_has(name):
    """Return whether the wrapped classifier has a method, fitted or not."""

    def check(self):
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


def _has_rule(self):
    if getattr(self, "operating_point_", self.rule) is None:
        raise AttributeError(
            "reject_reason is not available when rule=None: nothing is rejected. Set "
            "a rule, such as BoundedAbstention()."
        )
    return True


class RejectOptionClassifier(ClassifierMixin, SkoodEstimator):
    r"""Classifier with a reject option: predicts a class or rejects the sample.

    It accepts a sample iff

    .. math:: \cos\theta\, \frac{a(x)}{c_a} + \sin\theta\, \frac{b(x)}{c_b} \le \lambda

    where a is a risk score (high = likely misclassified) and b an OOD score (high =
    out-of-distribution): the form of the optimal selective classifier when the data in
    use contain OOD samples [1]_. The angle and the threshold solve the problem of the
    `rule` on calibration data.

    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    estimator : object
        Any classifier; cloned and fitted on ID samples, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    risk_detector : object, default=None
        A detector, a = -score_samples, see `risk_input`. None: a = 1 - max
        probability.

    ood_detector : object, default=None
        A detector, b = -score_samples, see `ood_input`. None: there is only the score
        a.

    rule : BaseRule, default=None
        The objective and the bounds, such as `BoundedTPRFPR` (which needs OOD samples
        in ``y``) or `BoundedAbstention`. None: nothing is rejected.

    calibration : float, int, CV splitter or "same", default=0.3
        The ID samples on which the rule is chosen. A float in (0, 1): this share is
        held out, and nothing is fitted on it. An int or a splitter: scores are
        cross-fitted, and the final models are fitted on all samples. "same": all
        samples, for frozen parts that were fitted on *other* samples: otherwise rates
        and guarantees are invalid. OOD samples are never fitted on. The draws are not
        stratified by class, as guarantees require: see the notes on classes with few
        samples.

    loss : "zero_one", callable or array-like, default="zero_one"
        Loss of a prediction: 1 for a wrong class; a function of (y_true, y_pred)
        that returns one number >= 0 per sample; or a matrix of shape (n_classes,
        n_classes) with the true class in rows.

    risk_input, ood_input : {"auto", "estimator", "X"}, default="auto"
        Input of `risk_detector` and of `ood_detector`. "estimator": the features and
        logits of the classifier fitted here, for a detector whose own ``estimator`` is
        None. "X": `X` itself. "auto": "estimator" where possible; for example,
        ``KNN()`` uses the features of the classifier, and a
        :class:`~sklearn.pipeline.Pipeline` or an outlier detector of scikit-learn uses
        `X`. See ``detector_inputs_``.

    reject_label : int or str, default="auto"
        Prediction for rejected samples; not one of the classes. "auto": "reject" if
        the classes are strings, else -1.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``.

    guarantee : {"high_probability", "ltt", "expectation"} or None, default=None
        Kind of guarantee for new data, see :func:`certify`. None: the best rule on the
        calibration samples, without a guarantee. A guarantee requires calibration
        samples that are scored by the final models, not cross-fitted scores.

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails.

    solver : {"bnb", "exact", "grid"}, default="bnb"
        See :func:`solve`.

    angles : {"quadrant", "full"}, default="quadrant"
        "quadrant": both scores count against acceptance. See :func:`solve`.

    tol : float, default=1e-3
        Gap at which the solver "bnb" stops, without a guarantee. See :func:`solve`.

    randomize : bool, default=False
        Accept samples at the threshold with a probability. See :func:`solve`.

    random_state : int, RandomState instance or None, default=None
        Controls the held-out samples, the parts of a guarantee, and the decisions of a
        randomized rule: with an int they are the same in every call of `predict`. Seeds
        the classifier and the detectors if their own `random_state` is None.

    n_jobs : int, default=None
        Number of joblib jobs for cross-fitting folds.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier.

    risk_detector_, ood_detector_ : object or None
        The fitted detectors.

    detector_inputs_ : dict of str to str
        "estimator" or "X" for each present detector, "risk" and "ood".

    classes_ : ndarray of shape (n_classes,)
        The classes in ``y``, without `ood_label`.

    reject_label_ : int or str
        Prediction for rejected samples.

    operating_point_ : OperatingPoint or None
        The rule found and its risk, TPR and FPR on the calibration data; None with
        ``rule=None``.

    theta_, lambda_, mu_, tau_, gap_, lower_bound_ : float
        Angle, threshold, weight of b in a + mu b, acceptance probability at the
        threshold, optimality gap and bound of the objective of `operating_point_`.
        Not set with ``rule=None``.

    n_features_in_ : int
        Number of features seen in fit, if defined by the classifier.

    See Also
    --------
    BoundedTPRFPR : Least risk at a bounded TPR and FPR.
    BoundedPrecisionRecall : Least risk at a bounded precision and recall.
    BoundedAbstention : Least risk at a bounded coverage.
    BoundedImprovement : Largest coverage at a bounded risk.
    CostBased : Least expected cost.
    certify : Rules whose bounds hold on new data.
    skood.metrics.selective_risk_at : Risk of the best rule on given samples.

    Notes
    -----
    A rule chosen on a sample meets its bounds on that sample; on new data each bound is
    violated about half of the time, due to sampling noise, unless there is a
    `guarantee`. `report` shows intervals.

    `predict_proba` and `decision_function` return the outputs of the classifier, also
    for rejected samples. With string classes and a `reject_label` that is a number, or
    the converse, `predict` returns an array of objects, which scikit-learn's metrics do
    not accept.

    All samples of a small class may be held out, with a warning. The class is in
    ``classes_`` and counts as ID in evaluation, but is never predicted: its probability
    is 0, its margin the smallest number, and its samples have the loss of the predicted
    class.

    Without OOD samples in ``y``, the weights of both scores follow from the errors on
    ID samples alone. `fit` warns if `ood_detector` then has less weight than the risk
    score.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import train_test_split
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import KNN
    >>> from skood.rejection import BoundedTPRFPR, RejectOptionClassifier
    >>> X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    >>> clf = RejectOptionClassifier(
    ...     LogisticRegression(max_iter=500),
    ...     ood_detector=KNN(n_neighbors=5),
    ...     rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=0.2),
    ...     random_state=0,
    ... ).fit(X, y)
    >>> report = clf.report(X_test, y_test)
    >>> bool(report.tpr.value > 0.75 and report.fpr.high < 0.3)
    True
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier()],
        "risk_detector": [HasMethods(["fit", "score_samples"]), None],
        "ood_detector": [HasMethods(["fit", "score_samples"]), None],
        "rule": [BaseRule, None],
        "calibration": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),  # a str has split
            StrOptions({"same"}),
        ],
        "loss": [StrOptions({"zero_one"}), callable, "array-like"],
        "risk_input": [StrOptions(INPUTS)],
        "ood_input": [StrOptions(INPUTS)],
        "reject_label": [Integral, str],
        "ood_label": [Integral, str],
        "guarantee": [StrOptions({"high_probability", "ltt", "expectation"}), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "solver": [StrOptions(set(SOLVERS))],
        "angles": [StrOptions({"quadrant", "full"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "randomize": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator,
        risk_detector=None,
        ood_detector=None,
        rule=None,
        calibration=0.3,
        *,
        loss="zero_one",
        risk_input="auto",
        ood_input="auto",
        reject_label="auto",
        ood_label=-1,
        guarantee=None,
        delta=0.1,
        solver="bnb",
        angles="quadrant",
        tol=1e-3,
        randomize=False,
        random_state=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.risk_detector = risk_detector
        self.ood_detector = ood_detector
        self.rule = rule
        self.calibration = calibration
        self.loss = loss
        self.risk_input = risk_input
        self.ood_input = ood_input
        self.reject_label = reject_label
        self.ood_label = ood_label
        self.guarantee = guarantee
        self.delta = delta
        self.solver = solver
        self.angles = angles
        self.tol = tol
        self.randomize = randomize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(
        # The parts are validated by their own fits.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y):
        """Fit the classifier and the detectors, and choose the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        y : array-like of shape (n_samples,)
            Class labels; `ood_label` for known OOD samples, which are only used to
            choose the rule: neither the classifier nor a detector is fitted on them.
            Steps of a pipeline before this classifier are fitted on them, see
            :class:`skood.model_selection.IDOnly`.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        InfeasibleError
            If no acceptance region meets the bounds of the rule on the calibration
            data; the text gives the attainable values.
        NotCertifiableError
            If there are too few calibration samples for the guarantee; the text gives
            the numbers needed.
        ValueError
            If the data or a parameter is invalid.
        """
        X, y = labeled_rows(X, y)
        check_given(X)
        if y is None:
            raise ValueError(
                "RejectOptionClassifier requires y to be passed, but the target y is "
                "None."
            )
        with fresh_fit(self):
            self._fit(X, y)
        return self

    def _fit(self, X, y):
        parts = Parts(self.estimator, self.risk_detector, self.ood_detector)
        check_is_classifier(self.estimator)
        possible_losses(self.loss)  # raises if it is of another kind
        y = check_labels(y)
        check_consistent_length(X, y)
        is_id = id_rows(y, self.ood_label)
        X_id, X_ood = X, None
        if not is_id.all():
            X_id = take_rows(X, np.flatnonzero(is_id))
            X_ood = take_rows(X, np.flatnonzero(~is_id))
        y_id = y[is_id]
        y_id = sortable_labels(y_id)  # mixed with a string ood_label
        check_classification_targets(y_id)
        classes = np.unique(y_id)
        self.reject_label_ = self._reject_label(classes)
        check_classes(self, classes, y_id)
        check_ood_labels(parts, y_id)
        if self.rule is not None:
            check_calibration(self, parts, X_ood)
        parts = self._with_inputs(parts)
        n_ood = len(y) - len(y_id)
        with naming_ood_label(y_id, n_ood, self.ood_label, warns=True):
            calibrated = self._fit_parts(parts, X_id, y_id, X_ood)
        if self.rule is None:
            self.operating_point_ = self._reference = None
            return
        rows, scores = calibrated
        loss = per_sample_loss(
            y_id[rows], scores.pred_id, self.loss, classes=self.classes_
        )
        self.operating_point_ = point = self._choose(scores, loss)
        self.theta_, self.lambda_, self.tau_ = point.theta, point.lam, point.tau
        self.mu_, self.gap_ = point.mu, point.gap
        self.lower_bound_ = point.lower_bound
        self._reference = make_reference(point, scores.risk_id, scores.ood_id)
        weighs_less = abs(self.theta_) < math.pi / 4  # than the risk score
        if X_ood is None and self.ood_detector is not None and weighs_less:
            self._warn_of_weight()

    def _reject_label(self, classes):
        """Return the label of rejected samples, of the kind of the classes."""
        if self.reject_label != "auto":
            return self.reject_label
        return "reject" if all(isinstance(v, str) for v in classes.tolist()) else -1

    def _with_inputs(self, parts):
        """Store the input of each detector, and wrap detectors on X."""
        inputs = {
            "risk": detector_input("risk", parts.risk_detector, self.risk_input),
            "ood": detector_input("ood", parts.ood_detector, self.ood_input),
        }
        self.detector_inputs_ = {k: v for k, v in inputs.items() if v is not None}
        return parts._replace(
            risk_detector=reading_x(parts.risk_detector, inputs["risk"]),
            ood_detector=reading_x(parts.ood_detector, inputs["ood"]),
        )

    def _fit_parts(self, parts, X_id, y_id, X_ood):
        """Store the fitted parts; return the calibration data of the rule."""
        if self.rule is None:
            parts = Parts(*with_seeds(parts, self.random_state))
            self._store(fit_parts(parts, X_id, y_id), y_id, y_id[:0])
            return None
        fitted, rows, scores, unfitted = calibrate(
            parts,
            X_id,
            y_id,
            X_ood,
            calibration=self.calibration,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        self._store(fitted, y_id, unfitted)
        return rows, scores

    def _warn_of_weight(self):
        """Warn that only errors on ID samples determine the weight of the OOD score."""
        warn(
            "y has no OOD samples, so that the weight of ood_detector was chosen by "
            f"the errors on ID samples alone: theta_ = {self.theta_:.3g} (at 0 only "
            f"the risk score counts, at pi / 2 only the OOD score), mu_ = "
            f"{self.mu_:.3g}. OOD samples may be accepted, however low the detector "
            f"scores them. Label known OOD samples ood_label={self.ood_label!r} in y "
            "and use a rule that bounds their rate, such as BoundedTPRFPR; or also "
            "reject where ood_detector_ scores below a threshold, such as its own: "
            "ood_detector_.predict(X) == -1."
        )

    def _choose(self, scores, loss):
        """Choose the rule on calibration scores."""
        rows = scores.risk_id, scores.ood_id, loss, scores.risk_ood, scores.ood_ood
        options = {"solver": self.solver, "angles": self.angles}
        if self.guarantee is None:
            return solve(
                self.rule, *rows, tol=self.tol, randomize=self.randomize, **options
            )
        return certify(
            self.rule,
            *rows,
            guarantee=self.guarantee,
            delta=self.delta,
            random_state=self.random_state,
            **options,
        )

    def _store(self, parts, y_id, unfitted):
        self.estimator_, self.risk_detector_, self.ood_detector_ = parts
        check_one_column(self.estimator_)
        # classes without a training sample are ID classes as well
        known = np.asarray(self.estimator_.classes_)
        self.classes_ = np.union1d(known, unfitted) if len(unfitted) else known
        check_classes(self, self.classes_, y_id)
        copy_input_attributes(self, self.estimator_)

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
        check_is_fitted(self, "estimator_")
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
        check_is_fitted(self, "estimator_")
        labels, accept = self._answers(X)
        if self.operating_point_ is None:
            return labels
        rejected = ~draw(accept, self.random_state)
        return put_label(labels, rejected, self.reject_label_)

    @blockwise
    def _answers(self, X):
        """Return predicted classes and acceptance probabilities."""
        if self.operating_point_ is None:
            return np.array(self.estimator_.predict(X)), np.ones(n_rows(X))
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
        check_is_fitted(self, "estimator_")
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
        check_is_fitted(self, "estimator_")
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

    @available_if(_has_rule)
    def reject_reason(self, X):
        r"""Return the reason of the rejection of each sample.

        The excess of a rejected sample over the mean accepted calibration sample is a
        sum of two terms, :math:`\cos\theta\,(a - \bar a)/c_a` and
        :math:`\sin\theta\,(b - \bar b)/c_b`; their shares of the excess are clipped to
        [0, 1].

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        reason : Bunch
            Arrays of shape (n_samples,); ``pandas.DataFrame(reason)`` makes a table.

            - ``reason``: "accepted", "uncertain class" or "out-of-distribution";
            - ``risk_percentile``, ``ood_percentile``: percentage of calibration ID
              samples whose score is not larger (100 = most suspicious); the latter is
              None without an OOD detector;
            - ``risk_share``, ``ood_share``: share of each score in the excess; 0 for
              accepted samples.
        """
        check_is_fitted(self, "estimator_")
        risk, ood = self._risks(X)
        proba = accept_proba(self.operating_point_, risk, ood)
        accepted = draw(proba, self.random_state)
        return explain(self.operating_point_, self._reference, risk, ood, accepted)

    @blockwise
    def _risks(self, X):
        """Return both scores of the samples."""
        return score_parts(self._parts(), X)

    def score_pair(self, X):
        """Return the scores used by the rule, high for samples to accept.

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
        check_is_fitted(self, "estimator_")
        risk, ood = self._risks(X)
        return -risk, None if ood is None else -ood

    def report(self, X, y, *, confidence_level=0.95, ood_prior=None, max_loss=None):
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

        Returns
        -------
        report : RejectionReport
            TPR, FPR, coverage, selective risk and precision; print it for a table.
        """
        check_is_fitted(self, "estimator_")
        if not 0 < confidence_level < 1:
            raise ValueError(
                f"confidence_level must be in (0, 1), got {confidence_level!r}."
            )
        if ood_prior is not None and not 0 <= ood_prior < 1:
            raise ValueError(f"ood_prior must be in [0, 1), got {ood_prior!r}.")
        possible = possible_losses(self.loss, max_loss)
        accepted, loss, is_ood = self._outcomes(X, y, self.loss)
        report = make_report(
            draw(accepted, self.random_state),
            loss,
            is_ood,
            confidence_level=confidence_level,
            ood_prior=ood_prior,
            possible=possible,
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
        return found

    def score(self, X, y):
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

        Returns
        -------
        score : float
            Greater is better; minus infinity if the objective is a risk and no ID
            sample is accepted.
        """
        check_is_fitted(self, "estimator_")
        plain = self.operating_point_ is None
        accepted, loss, is_ood = self._outcomes(
            X, y, "zero_one" if plain else self.loss
        )
        if is_ood.all():
            raise ValueError(
                f"No in-distribution rows in y: classes_ are {self.classes_}."
            )
        if plain:
            return float((1.0 - loss).mean())
        is_id = ~is_ood
        objective = self.rule.objective(
            accepted[is_id].sum(),
            (accepted[is_id] * loss).sum(),
            accepted[is_ood].sum(),
            int(is_id.sum()),
            int(is_ood.sum()),
        )
        if math.isnan(objective):
            raise ValueError(
                f"No OOD samples in y, but the cost of {self.rule!r} depends on them: "
                f"labels {self.ood_label!r} or none of the classes."
            )
        return -float(objective)

    def _outcomes(self, X, y, loss):
        """Return acceptance of all samples, losses of ID samples, and the OOD mask."""
        y = check_labels(y)
        predicted, accept = self._answers(X)
        check_consistent_length(predicted, y)
        is_ood = ood_mask(y, ood_label=self.ood_label, classes=self.classes_)
        losses = per_sample_loss(
            y,
            predicted,
            loss,
            is_id=~is_ood,
            classes=self.classes_,
        )
        return accept, losses, is_ood

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.target_tags.required = True
        inner = get_tags(self.estimator).classifier_tags
        if inner is not None:
            tags.classifier_tags = inner
        for detector, asked in (
            (self.risk_detector, self.risk_input),
            (self.ood_detector, self.ood_input),
        ):
            if detector is not None:
                if asked != "X":
                    detector = bind(detector, self.estimator)
                tags.input_tags.sparse &= get_tags(detector).input_tags.sparse
        return tags
