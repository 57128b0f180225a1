"""Fit of a classifier with a reject option: its parts, and its rule."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skood.decision import (
    GUARANTEES,
    SOLVERS,
    BaseRule,
    Certificate,
    Solver,
    certify,
    solve,
)
from skood.rejection._calibration import (
    calibrate,
    check_calibration,
    check_classes,
    check_is_classifier,
    check_ood_labels,
    fit_parts,
    router_of,
    weight_arguments,
)
from skood.rejection._explanation import make_reference
from skood.rejection._inputs import Parts, detector_input, separate
from skood.rejection._report import possible_losses
from skood.rejection._selective_classifier import SelectiveClassifier
from skood.utils._atomic_fit import fresh_fit
from skood.utils._batches import labeled_rows
from skood.utils._labels import (
    check_labels,
    naming_ood_label,
)
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import (
    check_given,
    check_one_column,
    copy_input_attributes,
    with_seeds,
)
from skood.utils._param_validation import (
    Classifier,
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
)
from skood.utils._warnings import warn
from skood.utils._weights import row_weight

__all__ = ["RejectOptionClassifier"]


class RejectOptionClassifier(SelectiveClassifier):
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
        A detector, a = -score_samples. If its own ``estimator`` is None, it uses the
        features and logits of the classifier fitted here. A detector in a
        :class:`~sklearn.pipeline.Pipeline`, such as ``make_pipeline(KNN())``, uses
        `X`, and so do outlier detectors of scikit-learn. None: a = 1 - max probability.

    ood_detector : object, default=None
        A detector, b = -score_samples, with input as for `risk_detector`. None: there
        is only the score a.

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

    reject_label : int or str, default="auto"
        Prediction for rejected samples; not one of the classes. "auto": "reject" if
        the classes are strings, else -1.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``.

    guarantee : str, Certificate or None, default=None
        Kind of guarantee for new data: "high_probability", "ltt" or "expectation", see
        :func:`certify`. A :class:`Certificate` has its options, such as the probability
        `delta` that it fails. None: the best rule on the calibration samples, without a
        guarantee. A guarantee requires calibration samples that are scored by the final
        models, not cross-fitted scores.

    solver : {"bnb", "exact", "grid"} or Solver, default="bnb"
        Search for the rule, see :func:`solve`; a :class:`Solver` has its options, such
        as `tol` and `randomize`.

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

    _default_parts: dict = {"guarantee": Certificate, "solver": Solver}

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
        "reject_label": [Integral, str],
        "ood_label": [Integral, str],
        "guarantee": [StrOptions(set(GUARANTEES)), Certificate, None],
        "solver": [StrOptions(set(SOLVERS)), Solver],
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
        reject_label="auto",
        ood_label=-1,
        guarantee=None,
        solver="bnb",
        random_state=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.risk_detector = risk_detector
        self.ood_detector = ood_detector
        self.rule = rule
        self.calibration = calibration
        self.loss = loss
        self.reject_label = reject_label
        self.ood_label = ood_label
        self.guarantee = guarantee
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(
        # The parts are validated by their own fits.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y, sample_weight=None, groups=None):
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

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of ID and OOD samples, see :ref:`rejection_weights`: for the
            classifier, the detectors that take them, and the rule. A guarantee
            excludes them.

        groups : array-like of shape (n_samples,), default=None
            Groups of samples that are not independent, such as patients. `calibration`
            holds out whole groups: a share of them, a number of folds or a splitter
            such as :class:`~sklearn.model_selection.GroupKFold`.

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
            self._fit(X, y, sample_weight, groups)
        return self

    def _fit(self, X, y, sample_weight, groups):
        parts = Parts(self.estimator, self.risk_detector, self.ood_detector)
        check_is_classifier(self.estimator)
        possible_losses(self.loss)  # raises if it is of another kind
        y = check_labels(y)
        check_consistent_length(X, y, groups)
        data = separate(X, y, sample_weight, groups, self.ood_label)
        y_id, X_ood = data.y, data.X_ood
        classes = np.unique(y_id)
        self.reject_label_ = self._reject_label(classes)
        check_classes(self, classes, y_id)
        check_ood_labels(parts, y_id)
        if self.rule is not None:
            check_calibration(self, parts, data, *self._options())
        self.detector_inputs_ = {
            name: detector_input(detector)
            for name, detector in zip(("risk", "ood"), parts[1:], strict=True)
            if detector is not None
        }
        if sample_weight is not None:
            data = data._replace(weights=weight_arguments(self, parts, data.weight))
        with naming_ood_label(y_id, data.n_ood, self.ood_label, warns=True):
            calibrated = self._fit_parts(parts, data)
        if self.rule is None:
            self.operating_point_ = self._reference = None
            return
        rows, ood_rows, scores = calibrated
        loss = per_sample_loss(
            y_id[rows], scores.pred_id, self.loss, classes=self.classes_
        )
        weights = row_weight(data.weight, rows), row_weight(data.weight_ood, ood_rows)
        self.operating_point_ = point = self._choose(scores, loss, weights)
        self.theta_, self.lambda_, self.tau_ = point.theta, point.lam, point.tau
        self.mu_, self.gap_ = point.mu, point.gap
        self.lower_bound_ = point.lower_bound
        self._reference = make_reference(
            point, scores.risk_id, scores.ood_id, weights[0]
        )
        # than the risk score
        weighs_less = abs(self.theta_) < math.pi / 4 and not point.has_two_thresholds
        if X_ood is None and self.ood_detector is not None and weighs_less:
            self._warn_of_weight()

    def _reject_label(self, classes):
        """Return the label of rejected samples, of the kind of the classes."""
        if self.reject_label != "auto":
            return self.reject_label
        return "reject" if all(isinstance(v, str) for v in classes.tolist()) else -1

    def _options(self):
        """Return the solver, and the certificate or None, as objects."""
        certificate = self.guarantee
        if certificate is not None:
            certificate = self._as_part("guarantee", certificate)
        return self._as_part("solver", self.solver), certificate

    def _fit_parts(self, parts, data):
        """Store the fitted parts; return the calibration data of the rule."""
        if self.rule is None:
            parts = Parts(*with_seeds(parts, self.random_state))
            fitted = fit_parts(parts, data.X, data.y, data.weights)
            self._store(fitted, data.y, data.y[:0])
            return None
        fitted, *calibrated, unfitted = calibrate(
            parts,
            data,
            calibration=self.calibration,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        self._store(fitted, data.y, unfitted)
        return calibrated

    def get_metadata_routing(self):
        """Return how ``sample_weight`` and ``groups`` are passed on by `fit`.

        Returns
        -------
        router : MetadataRouter
            The request of the classifier itself, and the routing to `estimator`, the
            detectors and a splitter in `calibration`.
        """
        return router_of(self)

    def _warn_of_weight(self):
        """Warn that only errors on ID samples determine the weight of the OOD score."""
        warn(
            "y has no OOD samples, so that the weight of ood_detector was chosen by "
            f"the errors on ID samples alone: theta_ = {self.theta_:.3g} (at 0 only "
            f"the risk score counts, at pi / 2 only the OOD score), mu_ = "
            f"{self.mu_:.3g}. OOD samples may be accepted, however low the detector "
            f"scores them. Label known OOD samples ood_label={self.ood_label!r} in y "
            "and use a rule that bounds their rate, such as BoundedTPRFPR; or use "
            "rule=TwoThresholds(), which has a threshold for each score."
        )

    def _choose(self, scores, loss, weights):
        """Choose the rule on calibration scores."""
        rows = scores.risk_id, scores.ood_id, loss, scores.risk_ood, scores.ood_ood
        solver, certificate = self._options()
        if certificate is None:
            of_id, of_ood = weights
            return solve(
                self.rule,
                *rows,
                **solver._options(),
                sample_weight_id=of_id,
                sample_weight_ood=of_ood,
            )
        return certify(
            self.rule,
            *rows,
            solver=solver.method,
            angles=solver.angles,
            random_state=self.random_state,
            **certificate._options(),
        )

    def _store(self, parts, y_id, unfitted):
        self.estimator_, self.risk_detector_, self.ood_detector_ = parts
        check_one_column(self.estimator_)
        # classes without a training sample are ID classes as well
        known = np.asarray(self.estimator_.classes_)
        self.classes_ = np.union1d(known, unfitted) if len(unfitted) else known
        check_classes(self, self.classes_, y_id)
        copy_input_attributes(self, self.estimator_)
