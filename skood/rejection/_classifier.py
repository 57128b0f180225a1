"""Classifier with a reject option."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from skood.decision._operating_point import draw
from skood.rejection._parts import Parts
from skood.rejection._regression_scores import DecisionLoss
from skood.rejection._report import possible_losses
from skood.rejection._score_table import ScoreTable
from skood.rejection._selective_predictor import SelectivePredictor
from skood.utils._batches import blockwise
from skood.utils._labels import (
    checked_ood_mask,
    has_label,
    label_codes,
    naming_ood_label,
    put_label,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._losses import LossTable, per_sample_loss
from skood.utils._metaestimators import check_one_column, unwrap, unwrapped
from skood.utils._param_validation import (
    Classifier,
    HasMethods,
    StrOptions,
    fit_context,
)


def _estimator_has(name):
    """Return whether the wrapped classifier has a method, fitted or not."""

    def check(self):
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class RejectOptionClassifier(ClassifierMixin, SelectivePredictor):
    r"""Classifier with a reject option: predicts a class or rejects the sample.

    It accepts a sample iff

    .. math:: \cos\theta\, \frac{a(x)}{c_a} + \sin\theta\, \frac{b(x)}{c_b} \le \lambda

    where a is a risk score (high = likely misclassified) and b an OOD score (high =
    out-of-distribution): the form of the optimal selective classifier when the data at
    deployment contain OOD samples [1]_. The angle and the threshold solve the problem
    of the `rule` on calibration data.

    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    estimator : object
        Any classifier; cloned and fitted on ID samples, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    risk_detector : object, "loss" or None, default=None
        A detector, a = -score_samples. If its own ``estimator`` is None, it uses the
        features and logits of the classifier fitted here. A detector in a
        :class:`~sklearn.pipeline.Pipeline`, such as ``make_pipeline(KNN())``, uses
        `X`, and so do outlier detectors of scikit-learn. None: a = 1 - max probability
        or, with other than zero-one losses, the expected loss of the decision. "loss"
        (new in 0.2): its ranks, mixed with ranks of a model of cross-validated losses,
        see :ref:`loss_score`.

    ood_detector : object, default=None
        A detector, b = -score_samples, with input as for `risk_detector`. None: there
        is only the score a.

    rule : BaseRule, default=None
        The objective and the bounds, such as `BoundedTPRFPR` (which needs OOD samples
        in ``y``) or `BoundedAbstention`. None: nothing is rejected.

    calibration : float, int, CV splitter or "same", default=0.3
        The ID samples on which the rule is chosen. A float in (0, 1): this fraction is
        held out, and nothing is fitted on it. An int or a splitter: scores are
        cross-fitted, and the final models are fitted on all samples. "same": all
        samples, for frozen parts that were fitted on *other* samples: otherwise rates
        and guarantees are invalid. OOD samples are never fitted on. The draws are not
        stratified by class, as guarantees require: see the notes on classes with few
        samples.

    loss : "zero_one", callable or array-like, default="zero_one"
        Loss of a prediction: 1 for a wrong class; a function of (y_true, y_pred)
        that returns one number >= 0 per sample; or a matrix of shape (n_classes,
        n_classes) with the true class in rows. Every pair of classes needs a loss; the
        losses of a function are computed once for each fit.

    decision : {"auto", "bayes", "estimator"}, default="auto"
        The predicted class. "bayes": the class of the least expected loss by the
        probabilities of the classifier, see the notes. "estimator": what the classifier
        predicts. "auto": "estimator" for zero-one losses, else "bayes".

        .. versionadded:: 0.2

    reject_label : int or str, default="auto"
        Prediction for rejected samples; not one of the classes. "auto": "reject" if
        the classes are strings or Booleans, else -1. With Booleans predictions are an
        array of objects.

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
        Not set with ``rule=None``. With thresholds of groups `lambda_` is a dict.

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

    With probabilities p(y | x) and losses L[y, k] of the true class y and the predicted
    class k, the classifier of an optimal rule is the Bayes decision h, and its risk
    score the conditional risk r ([1]_, equation 4 and theorem 1),

    .. math::
        h(x) = \operatorname{argmin}_k \rho_k(x), \quad
        r(x) = \min_k \rho_k(x), \quad
        \rho_k(x) = \sum_y p(y | x) \, L[y, k].

    Of tied classes h is the first of ``classes_``. Only classes that the classifier
    was fitted on are predicted.

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
    >>> print(f"TPR {report.tpr.value:.2f}, FPR {report.fpr.value:.2f}")
    TPR 0.95, FPR 0.15
    """

    _parameter_constraints: dict = {
        **SelectivePredictor._parameter_constraints,
        "estimator": [Classifier()],
        "risk_detector": [
            HasMethods(["fit", "score_samples"]),
            StrOptions({"loss"}),
            None,
        ],
        "loss": [StrOptions({"zero_one"}), callable, "array-like"],
        "decision": [StrOptions({"auto", "bayes", "estimator"})],
        "reject_label": [Integral, str],
        "ood_label": [Integral, str],
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
        decision="auto",
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
        self.decision = decision
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
    def fit(self, X, y, sample_weight=None, groups=None, ood_source=None):
        """Fit the classifier and the detectors, and choose the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        y : array-like of shape (n_samples,)
            Class labels; `ood_label` for known OOD samples, which are only used to
            choose the rule: neither the classifier nor a detector is fitted on them.
            Steps of a pipeline before this classifier are fitted on them, with a
            warning, see :class:`skood.model_selection.IDOnly`.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of ID and OOD samples, see :ref:`rejection_weights`: for the
            classifier, the detectors that take them, and the rule. A guarantee
            excludes them.

        groups : array-like of shape (n_samples,), default=None
            Groups of samples that are not independent, such as patients. `calibration`
            holds out whole groups: a fraction of them, a number of folds or a splitter
            such as :class:`~sklearn.model_selection.GroupKFold`. With
            ``Certificate(within="groups")`` they are groups of independent samples,
            such as regions, within which bounds are certified, and samples are held out
            regardless of them.

        ood_source : array-like of shape (n_samples,), default=None
            Source of each OOD sample, such as its data set; entries of ID samples are
            ignored. Bounds on the FPR are then certified for every source,
            and hence for every mixture of them. Requires a guarantee.

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
        return self._fit(X, y, sample_weight, groups, ood_source)

    def _make_parts(self):
        risk_detector = self.risk_detector
        if isinstance(risk_detector, str):
            risk_detector = DecisionLoss(self.estimator, self._table)
        parts = Parts(self.estimator, risk_detector, self.ood_detector)
        parts.table = self._table
        scores = unwrapped(self.estimator)
        return scores._filled(parts) if isinstance(scores, ScoreTable) else parts

    def _check_data(self, data):
        table = unwrapped(self.estimator)
        if isinstance(table, ScoreTable):
            fraction = self.calibration if self.rule is not None else "same"
            given = Parts(self.estimator, self.risk_detector, self.ood_detector)
            table._check(table._filled(given), data.y, fraction)
        classes = np.unique(data.y)
        self.reject_label_ = self.reject_label
        if self.reject_label == "auto":  # of the kind of the classes
            kinds = set(map(type, classes.tolist()))
            self.reject_label_ = "reject" if kinds <= {str, np.str_, bool} else -1
        self._check_classes(classes, data.y)
        plain, decides = isinstance(self.loss, str), self.decision == "bayes"
        decides = decides or (self.decision == "auto" and not plain)
        learns = isinstance(self.risk_detector, str)
        if (decides or learns) and not hasattr(self.estimator, "predict_proba"):
            name = type(unwrap(self.estimator)[0]).__name__
            cause = f"decision={self.decision!r} with loss={self.loss!r}"
            cause = cause if decides else "risk_detector='loss'"
            remedy = "decision='estimator'" if decides else "another risk_detector"
            if not isinstance(table, ScoreTable):
                remedy = f"CalibratedClassifierCV({name}()), or {remedy}"
            raise ValueError(
                f"{cause} is a function of probabilities, but {name} has no "
                f"predict_proba. Use {remedy}."
            )
        self._table = (
            None if plain and not decides else self._tabulated(classes, decides)
        )

    def _tabulated(self, classes, decides):
        """Return the `LossTable` of a fit on `classes`, or raise."""
        last = self.estimator
        while hasattr(last, "steps"):
            last = last.steps[-1][1]
        if isinstance(last, FrozenEstimator) and hasattr(last, "classes_"):
            classes = last.classes_
        return LossTable.of(self.loss, np.asarray(classes), decides)

    def _check_classes(self, classes, y):
        """Raise if labels are ambiguous, or unknown to the classifier.

        `classes` has shape (n_classes,), `y` has the labels of ID samples, shape
        (n_id,).
        """
        labels = {"reject_label": self.reject_label_, "ood_label": self.ood_label}
        for name, label in labels.items():
            if has_label(classes, label):
                raise ValueError(
                    f"{name}={label!r} is one of the classes. Choose a label that no "
                    "class has."
                )
        unknown = checked_ood_mask(y, self.ood_label, classes)
        if unknown.any():
            raise ValueError(
                f"y has the labels {np.unique(y[unknown]).tolist()}, which are none of "
                f"the classes {classes.tolist()} of the fitted classifier. Label OOD "
                f"samples ood_label={self.ood_label!r}; give each class enough samples "
                "to be both fitted and held out."
            )

    def _check_labels(self, y):
        self._check_classes(self.classes_, y)

    def _naming_ood_label(self, data):
        return naming_ood_label(data.y, data.n_ood, self.ood_label, warns=True)

    def _store(self, parts, y_id):
        super()._store(parts, y_id)
        check_one_column(self.estimator_)
        # classes without a training sample are ID classes as well
        known, unfitted = np.asarray(self.estimator_.classes_), parts.unfitted
        self.classes_ = np.union1d(known, unfitted) if len(unfitted) else known
        self._check_classes(self.classes_, y_id)

    def _possible_losses(self, max_loss=None):
        return possible_losses(self.loss, max_loss)

    def _losses(self, y, predicted, is_id=None):
        return per_sample_loss(
            y, predicted, self.loss, is_id=is_id, classes=self.classes_
        )

    def _marked_ood(self):
        return f"labeled ood_label={self.ood_label!r}"

    def _plain_score(self, y, predicted, weight):
        right = 1.0 - per_sample_loss(y, predicted, "zero_one")
        return np.average(right, weights=weight)

    # not that of ClassifierMixin, which comes first for its tags
    score = SelectivePredictor.score

    def predict(self, X, groups=None):
        """Predict a class or `reject_label` for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, for a rule with a threshold for each group, see
            :class:`Certificate`; else they are ignored. Samples of groups that have no
            threshold are rejected, with a warning.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels, `reject_label` where rejected.
        """
        self._check_fitted()
        labels, accept = self._decided(X, groups)
        if self.operating_point_ is None:
            return labels
        rejected = ~draw(accept, self.random_state)
        return put_label(labels, rejected, self.reject_label_)

    def decide(self, X):
        """Predict a class for each sample, also for rejected ones, see `decision`.

        .. versionadded:: 0.2

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels, whose losses the rule and the scorers count.
        """
        self._check_fitted()
        return self._predictions(X)

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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).classifier_tags
        if inner is not None:
            tags.classifier_tags = inner
        return tags
