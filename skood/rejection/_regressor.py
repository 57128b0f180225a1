"""Regressor with a reject option."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import get_tags

from skood.decision._operating_point import draw
from skood.rejection._parts import RegressionParts
from skood.rejection._regression_scores import COMPONENTS, as_score
from skood.rejection._report import possible_losses
from skood.rejection._selective_predictor import SelectivePredictor
from skood.utils._losses import REGRESSION_LOSSES, per_sample_loss
from skood.utils._metaestimators import estimator_kind
from skood.utils._named_estimators import missing_methods
from skood.utils._param_validation import HasMethods, Interval, StrOptions, fit_context
from skood.utils._warnings import warn


class RejectOptionRegressor(RegressorMixin, SelectivePredictor):
    r"""Regressor with a reject option: predicts a value or rejects the sample.

    It accepts a sample iff

    .. math:: \cos\theta\, \frac{a(x)}{c_a} + \sin\theta\, \frac{b(x)}{c_b} \le \lambda

    where a is an uncertainty of the prediction and b an OOD score (high =
    out-of-distribution). The angle and the threshold solve the problem of the `rule` on
    calibration data, with the loss of the predictions [1]_.

    OOD samples have the target NaN: their value is unknown. So they pass through
    splits, pipelines and searches as all others do.

    Read more in the :ref:`User Guide <rejecting_regression>`.

    Parameters
    ----------
    estimator : object
        Any regressor of one target; cloned and fitted on ID samples, unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`.

    uncertainty : object, str, tuple or None, default=None
        The uncertainty a.

        - None: the expected loss, by a random forest that is fitted to cross-validated
          losses of the regressor (of a frozen one: to the losses of its predictions).
          It uses `X` as transformed by the pipeline that the regressor is the end of.
        - A regressor: the same with this model, which is given `X` as it is.
        - "std": the standard deviation of ``predict(X, return_std=True)``.
        - "total", "aleatoric" or "epistemic": a component of the regressor's
          ``predict_uncertainty(X)``.
        - A pair (lower, upper) of regressors of two quantiles: the width of the
          interval.
        - An estimator with ``predict_uncertainty``: its total uncertainty.
        - A detector: a = -score_samples.

    ood_detector : object, default=None
        A detector of unusual `X`, b = -score_samples, of skood or an outlier detector
        of scikit-learn. It is fitted on ID samples without their targets. None: there
        is only the score a.

    rule : BaseRule, default=None
        The objective and the bounds, such as `BoundedTPRFPR` (which needs OOD samples)
        or `BoundedAbstention`. None: nothing is rejected.

    calibration : float, int, CV splitter or "same", default=0.3
        The ID samples on which the rule is chosen, as in `RejectOptionClassifier`.

    loss : {"absolute_error", "squared_error"} or callable, default="absolute_error"
        Loss of a prediction; a function of (y_true, y_pred) returns one number >= 0 per
        sample.

    max_loss : float, default=None
        Larger losses are clipped to it, in the rule as in reports: a guarantee or an
        interval of a mean loss exists for bounded losses only. None: not clipped.

    rejected : {"nan", "masked"}, default="nan"
        Predictions of rejected samples: NaN, or the masked entries of a
        :class:`numpy.ma.MaskedArray` with the predictions of the regressor.

    guarantee : str, Certificate or None, default=None
        Kind of guarantee for new data, as in `RejectOptionClassifier`. A rule that
        bounds the selective risk requires `max_loss`.

    solver : {"bnb", "exact", "grid"} or Solver, default="bnb"
        Search for the rule, as in `RejectOptionClassifier`.

    random_state : int, RandomState instance or None, default=None
        Controls the held-out samples, the folds of the losses, the parts of a guarantee
        and the decisions of a randomized rule. Seeds the parts if their own
        `random_state` is None.

    n_jobs : int, default=None
        Number of joblib jobs for cross-fitting folds.

    Attributes
    ----------
    estimator_ : object
        The fitted regressor; its ``predict`` has a value for rejected samples too.

    risk_detector_ : object
        The fitted source of the uncertainty, as a detector: ``-score_samples(X)``.

    ood_detector_ : object or None
        The fitted detector.

    detector_inputs_ : dict of str to str
        "estimator" or "X" for each score, "risk" and "ood".

    operating_point_ : OperatingPoint or None
        As in `RejectOptionClassifier`.

    theta_, lambda_, mu_, tau_, gap_, lower_bound_ : float
        As in `RejectOptionClassifier`.

    n_features_in_ : int
        Number of features seen in fit, if defined by the regressor.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, if defined by the regressor.

    See Also
    --------
    RejectOptionClassifier : The same for classifiers.
    BoundedImprovement : Largest coverage at a bounded mean loss.
    BoundedAbstention : Least mean loss at a bounded coverage.
    certify : Rules whose bounds hold on new data.
    skood.metrics.RiskCoverageCurve : Mean loss against coverage.
    skood.metrics.make_selective_risk_scorer : Scorer for searches.

    Notes
    -----
    With ``uncertainty=None``, five copies of the regressor are fitted for the losses,
    in addition to the regressor itself.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    The noise grows with x, which the model of the loss learns:

    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skood.rejection import BoundedAbstention, RejectOptionRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(600, 1))
    >>> y = np.sin(6 * X[:, 0]) + X[:, 0] * rng.normal(size=600)
    >>> reg = RejectOptionRegressor(
    ...     RandomForestRegressor(min_samples_leaf=10),
    ...     rule=BoundedAbstention(coverage=0.5),
    ...     random_state=0,
    ... ).fit(X[:400], y[:400])
    >>> reg.predict([[0.1], [0.9]]).round(1)
    array([0.6, nan])
    >>> report = reg.report(X[400:], y[400:])
    >>> mean_loss = np.abs(y[400:] - reg.estimator_.predict(X[400:])).mean()
    >>> print(f"{report.risk.value:.2f} instead of {mean_loss:.2f}")
    0.22 instead of 0.42
    """

    _parts_type = RegressionParts

    _uncertain = "uncertain value"

    #: The target of OOD samples, which is not a parameter.
    ood_label = np.nan

    _parameter_constraints: dict = {
        **SelectivePredictor._parameter_constraints,
        "estimator": [HasMethods("fit")],
        "uncertainty": [
            None,
            StrOptions(set(COMPONENTS)),
            tuple,
            HasMethods(["fit", "score_samples"]),
            HasMethods(["fit", "predict_uncertainty"]),
            HasMethods(["fit", "predict"]),
        ],
        "loss": [StrOptions(set(REGRESSION_LOSSES)), callable],
        "max_loss": [Interval(Real, 0, None, closed="neither"), None],
        "rejected": [StrOptions({"nan", "masked"})],
    }

    def __init__(
        self,
        estimator,
        uncertainty=None,
        ood_detector=None,
        rule=None,
        calibration=0.3,
        *,
        loss="absolute_error",
        max_loss=None,
        rejected="nan",
        guarantee=None,
        solver="bnb",
        random_state=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.uncertainty = uncertainty
        self.ood_detector = ood_detector
        self.rule = rule
        self.calibration = calibration
        self.loss = loss
        self.max_loss = max_loss
        self.rejected = rejected
        self.guarantee = guarantee
        self.solver = solver
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(
        # The parts are validated by their own fits.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y, sample_weight=None, groups=None, ood_source=None):
        """Fit the regressor and its uncertainty, and choose the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the regressor.

        y : array-like of shape (n_samples,)
            Targets; NaN for known OOD samples, which are only used to choose the rule:
            nothing is fitted on them. Steps of a pipeline before this regressor are
            fitted on them.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of ID and OOD samples, see :ref:`rejection_weights`: for the
            regressor, the other parts if they take them, and the rule. A guarantee
            excludes them.

        groups : array-like of shape (n_samples,), default=None
            Groups of samples that are not independent, such as patients. `calibration`
            and the folds of the losses hold out whole groups. With
            ``Certificate(within="groups")`` they are groups of independent samples,
            within which bounds are certified, and samples are held out regardless of
            them.

        ood_source : array-like of shape (n_samples,), default=None
            Source of each OOD sample, as in `RejectOptionClassifier.fit`.

        Returns
        -------
        self : object
            The fitted regressor.

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

        Warns
        -----
        SkoodWarning
            If `y` has OOD samples that the rule does not use: their targets may be
            missing by mistake.
        """
        self._check_uncertainty()
        return self._fit(X, y, sample_weight, groups, ood_source)

    def _check_uncertainty(self):
        """Raise unless the uncertainty is of a known kind."""
        ends = self.uncertainty
        if isinstance(ends, tuple) and not (
            len(ends) == 2
            and not any(missing_methods(end, ("predict",)) for end in ends)
        ):
            raise ValueError(
                "A tuple as uncertainty must be a pair of regressors, of a lower and "
                f"an upper quantile, got {ends!r}."
            )
        if estimator_kind(ends) == "classifier" and not hasattr(ends, "score_samples"):
            raise TypeError(
                f"uncertainty must be a regressor of the loss, or a detector, got the "
                f"classifier {ends!r}."
            )

    def _make_parts(self):
        score = as_score(self.uncertainty, self.estimator, self.loss, self.max_loss)
        return RegressionParts(self.estimator, score, self.ood_detector)

    def _check_data(self, data):
        rule, certificate = self.rule, self._options()[1]
        of_mixture = getattr(certificate, "sampling", None) == "mixture"
        if rule is not None and certificate is not None:
            rule = certificate._checked_rule(rule)
        if data.n_ood and not of_mixture and (rule is None or not rule.needs_ood):
            warn(
                f"y is NaN for {data.n_ood} of {data.n_ood + len(data.y)} samples: "
                f"these are OOD samples, which rule={self.rule!r} does not use. If "
                "their targets are missing by mistake, leave the samples out."
            )
        certified = self.guarantee is not None and self.max_loss is None
        if rule is not None and certified:
            if any(rate.loss for rate in rule.rates()):
                raise ValueError(
                    f"A guarantee of {self.rule!r} is a bound on a mean loss, and "
                    "requires bounded losses: set max_loss, to which they are clipped."
                )

    def _possible_losses(self, max_loss=None):
        return possible_losses(
            self.loss, self.max_loss if max_loss is None else max_loss
        )

    def _losses(self, y, predicted, is_id=None):
        return per_sample_loss(
            y, predicted, self.loss, is_id=is_id, max_loss=self.max_loss
        )

    def _marked_ood(self):
        return "with the target NaN"

    def _plain_score(self, y, predicted, weight):
        return r2_score(y, predicted, sample_weight=weight)

    # not that of RegressorMixin, which comes first for its tags
    score = SelectivePredictor.score

    def predict(self, X, groups=None):
        """Predict a value, or reject the sample.

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
        y : ndarray or MaskedArray of shape (n_samples,), dtype float64
            Predictions of the regressor; NaN, or masked, where rejected.
        """
        self._check_fitted()
        values, accept = self._decided(X, groups)
        if values.ndim != 1:
            raise ValueError(
                "The regressor must predict one target, got predictions of shape "
                f"{values.shape}. Fit a RejectOptionRegressor for each target."
            )
        values = values.astype(np.float64, copy=False)
        rejected = np.zeros(len(values), dtype=bool)
        if self.operating_point_ is not None:
            rejected = ~draw(accept, self.random_state)
        if self.rejected == "masked":
            return np.ma.MaskedArray(values, mask=rejected)
        return np.where(rejected, np.nan, values)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).regressor_tags
        if inner is not None:
            # with a rule, `score` is minus its objective
            tags.regressor_tags.poor_score = inner.poor_score or self.rule is not None
        return tags
