"""Scorers for searches: ranking metrics, objectives of rules, rates of decisions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import inspect
import warnings
from difflib import get_close_matches
from numbers import Real

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from skood.decision import BoundedTPRFPR, CostBased
from skood.metrics._base_scorers import (
    RuleScorer,
    ScoredFold,
    WeightedScorer,
    check_kind,
    check_scored_loss,
    ood_samples,
    scored_ood_label,
)
from skood.metrics._ranking import GREATER_IS_BETTER, auroc
from skood.utils._labels import check_labels, is_nan, ood_mask
from skood.utils._metaestimators import (
    concept_columns,
    estimator_kind,
    known_classes,
    labels_before_rejection,
    unwrap,
    warn_of_known_classes,
)
from skood.utils._param_validation import Number, validate_params
from skood.utils._stored import stored
from skood.utils._weights import check_weight

_COMPONENTS = ("epistemic", "aleatoric", "total")
_SCORES = ("ood", "risk")

# Methods with scores, the first that an estimator has is used.
_METHODS = ("score_samples", "score_pair", "predict_uncertainty")

# name: metric
_METRICS = {metric.__name__: metric for metric in GREATER_IS_BETTER}


def _weights_of(sample_weight, mask):
    """Return arguments of a metric: the weights of some samples, if there are any."""
    if sample_weight is None:
        return {}
    return {"sample_weight": check_weight(sample_weight, len(mask))[mask]}


@stored
class _OODScorer(WeightedScorer):
    """Scorer of `make_ood_scorer`."""

    def __init__(self, metric, sign, ood_label, metric_params, shown, component, score):
        self._metric = metric
        self._sign = sign
        self._ood_label = ood_label
        self._metric_params = metric_params
        self._shown = shown
        self._component = component
        self._score = score

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        owner = type(estimator).__name__
        final, final_X = estimator, X
        if not hasattr(estimator, "score_samples"):
            final, final_X = unwrap(estimator, X)
        if not any(hasattr(final, method) for method in _METHODS):
            raise TypeError(
                f"{self!r} needs an estimator with score_samples, high for "
                f"in-distribution samples; {owner} has none. Pass a detector, for "
                "example skood.detectors.MSP(classifier) for a classifier."
            )
        y = concept_columns(y, estimator)
        ood_label = scored_ood_label(final, self._ood_label)
        is_ood = ood_samples(y, ood_label, known_classes(estimator, final), owner)
        if not is_nan(ood_label):
            warn_of_known_classes(final, y, is_ood, ood_label)
        y_true = np.where(is_ood, -1, 1)
        y_score = self._scores(final, final_X)
        weights = _weights_of(sample_weight, np.ones(len(y_true), dtype=bool))
        params = self._metric_params | weights
        return self._sign * float(self._metric(y_true, y_score, **params))

    def _scores(self, final, X):
        """Return the scores of samples, high for ID."""
        if hasattr(final, "score_samples"):
            return final.score_samples(X)
        if not hasattr(final, "score_pair"):
            return -np.asarray(final.predict_uncertainty(X)[self._component])
        risk_score, ood_score = final.score_pair(X)
        if self._score == "risk":
            return risk_score
        if ood_score is None:
            raise ValueError(
                f"{type(final).__name__} has no ood_detector, so that it has no OOD "
                "score. Set one, or use make_ood_scorer(score='risk')."
            )
        return ood_score

    def __repr__(self):
        return f"make_ood_scorer({self._shown})"


def _check_metric_params(name, metric, metric_params):
    """Raise if the named metric does not have the parameters."""
    passed = ("y_true", "y_score", "ood_label", "classes", "sample_weight")
    allowed = [p for p in inspect.signature(metric).parameters if p not in passed]
    unknown = sorted(set(metric_params) - set(allowed))
    if unknown:
        raise TypeError(
            f"The metric {name!r} has no parameters {unknown}; "
            f"it has {allowed or 'none'}."
        )


def _check_component(component):
    """Raise if the uncertainty is unknown."""
    if component not in _COMPONENTS:
        raise ValueError(
            f"component must be one of {list(_COMPONENTS)}. Got {component!r}."
        )


def make_ood_scorer(
    metric="auroc",
    *,
    ood_label=-1,
    greater_is_better=None,
    component="epistemic",
    score="ood",
    **metric_params,
):
    """Make a scorer of the ranking of ID above OOD samples by a detector.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=`` of
    :class:`~sklearn.model_selection.GridSearchCV`,
    :func:`~sklearn.model_selection.cross_val_score` and the like; greater is better. It
    uses ``estimator.score_samples(X)``; for a
    :class:`~skood.rejection.RejectOptionClassifier` one of the two scores of
    ``score_pair(X)``; or, for an uncertainty classifier, minus one component of
    ``predict_uncertainty(X)``. A sample is OOD when its label is
    `ood_label` or is not in ``estimator.classes_``, if the estimator has them.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    metric : str or callable, default="auroc"
        "auroc", "aupr_in", "aupr_out", "tnr_at_tpr", "f1_at_tpr", "max_f1", or
        "fpr_at_tpr" and "detection_error", which are negated; a function of these names
        or a :class:`functools.partial` of one is treated alike. Or a function
        ``metric(y_true, y_score)``, where `y_true` is +1 for ID and -1 for OOD samples,
        as in most binary metrics of :mod:`sklearn.metrics`.

    ood_label : int or str, default=-1
        Label of known OOD samples in `y`.

    greater_is_better : bool, default=None
        Whether greater values of a callable `metric` are better; if not, it is negated.
        None: True for a callable, except for the named metrics, whose direction is
        known.

    component : {"epistemic", "aleatoric", "total"}, default="epistemic"
        The uncertainty that serves as OOD score, for an estimator without
        `score_samples`.

    score : {"ood", "risk"}, default="ood"
        The score of a :class:`~skood.rejection.RejectOptionClassifier`.

    **metric_params : dict
        Further arguments of the metric, such as ``tpr=0.9`` of "fpr_at_tpr".

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, sample_weight=None)`` returns a float; greater is
        better. It raises a ValueError if the samples are all ID or all OOD, and a
        TypeError if the estimator has none of the methods. Searches turn errors into
        NaN unless ``error_score="raise"``.

    Raises
    ------
    ValueError
        If the metric, component or score is unknown, or `greater_is_better` contradicts
        the known direction.
    TypeError
        If the metric does not have one of `metric_params`, or is a partial of a
        named metric that fixes arguments by position.

    See Also
    --------
    make_misclassification_scorer : Scores the detection of errors on ID samples.
    make_selective_risk_scorer : Scores the errors on accepted samples instead.
    make_cost_scorer : Scores the expected cost of decisions.
    skood.model_selection.LeaveClassesOut : Folds with left-out classes.
    skood.model_selection.OODStratifiedKFold : Folds with known OOD samples.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.neighbors import KernelDensity
    >>> from skood.metrics import make_ood_scorer
    >>> from skood.model_selection import OODStratifiedKFold
    >>> X = np.concatenate([np.linspace(-1, 1, 40), np.linspace(5, 9, 10)])[:, None]
    >>> y = np.repeat([0, -1], [40, 10])
    >>> cv = OODStratifiedKFold(2, ood_in_train=False)
    >>> cross_val_score(KernelDensity(), X, y, cv=cv, scoring=make_ood_scorer())
    array([1., 1.])
    >>> make_ood_scorer("fpr_at_tpr", tpr=0.9)
    make_ood_scorer('fpr_at_tpr', ood_label=-1, tpr=0.9)
    """
    _check_component(component)
    if score not in _SCORES:
        raise ValueError(f"score must be one of {list(_SCORES)}. Got {score!r}.")
    if isinstance(metric, functools.partial) and metric.func in GREATER_IS_BETTER:
        if metric.args:
            raise TypeError(
                f"metric={metric!r} fixes arguments by their position, where the "
                "labels and the scores go; fix parameters by name."
            )
        metric_params = {**metric.keywords, **metric_params}
        metric = metric.func
    if callable(metric) and metric in GREATER_IS_BETTER:
        metric = metric.__name__
    if callable(metric):
        function, greater = metric, greater_is_better is not False
        shown = getattr(metric, "__name__", repr(metric))
    else:
        if not isinstance(metric, str) or metric not in _METRICS:
            near = get_close_matches(str(metric), list(_METRICS), n=1)
            raise ValueError(
                f"metric must be one of {list(_METRICS)} or a callable "
                f"metric(y_true, y_score). Got {metric!r}"
                f"{f': did you mean {near[0]!r}?' if near else '.'}"
            )
        function = _METRICS[metric]
        greater = GREATER_IS_BETTER[function]
        _check_metric_params(metric, function, metric_params)
        if greater_is_better is not None and greater_is_better != greater:
            raise ValueError(
                f"Of the metric {metric!r} it is known that greater is "
                f"{'better' if greater else 'worse'}, got greater_is_better="
                f"{greater_is_better!r}. Leave greater_is_better at None."
            )
        shown = repr(metric)
    shown = [shown, f"ood_label={ood_label!r}"]
    if callable(metric) and not greater:
        shown.append("greater_is_better=False")
    if component != "epistemic":
        shown.append(f"component={component!r}")
    if score != "ood":
        shown.append(f"score={score!r}")
    shown += [f"{key}={value!r}" for key, value in metric_params.items()]
    return _OODScorer(
        function,
        1 if greater else -1,
        ood_label,
        metric_params,
        ", ".join(shown),
        component,
        score,
    )


@stored
class _MisclassificationScorer(WeightedScorer):
    """Scorer of `make_misclassification_scorer`."""

    def __init__(self, component, ood_label):
        self._component = component
        self._ood_label = ood_label

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        owner = type(estimator).__name__
        final, final_X = unwrap(estimator, X)
        if not hasattr(final, "predict_uncertainty"):
            raise TypeError(
                f"{self!r} needs an uncertainty classifier, with predict and "
                f"predict_uncertainty; {owner} has no predict_uncertainty."
            )
        y = check_labels(y)
        is_id = ~ood_samples(y, self._ood_label, final.classes_, owner, needs_ood=False)
        if sample_weight is not None:
            is_id &= check_weight(sample_weight, len(y)) > 0
        wrong = final.predict(final_X)[is_id] != y[is_id]
        if wrong.all() or not wrong.any():
            raise ValueError(
                f"{owner} is {'wrong' if wrong.all() else 'right'} on all {wrong.size} "
                "in-distribution samples of the fold: the metric is undefined. Use "
                "larger folds."
            )
        uncertainty = np.asarray(final.predict_uncertainty(final_X)[self._component])
        y_true, weights = np.where(wrong, -1, 1), _weights_of(sample_weight, is_id)
        return float(auroc(y_true, -uncertainty[is_id], **weights))

    def __repr__(self):
        return (
            f"make_misclassification_scorer({self._component!r}, "
            f"ood_label={self._ood_label!r})"
        )


def make_misclassification_scorer(component="epistemic", *, ood_label=-1):
    """Make a scorer of the detection of misclassified ID samples by an uncertainty.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=`` of
    :class:`~sklearn.model_selection.GridSearchCV` and the like; greater is better. It
    is the area under the ROC curve of correctly classified against misclassified
    samples. So an uncertainty classifier can be tuned without OOD samples: OOD samples,
    and samples of unknown classes, are excluded.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    component, ood_label
        As in :func:`make_ood_scorer`; the uncertainty should be high for errors.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, sample_weight=None)`` returns a float. It raises a
        ValueError if no sample is ID, or if all predictions for ID samples are right or
        all are wrong, and a TypeError if the estimator has no `predict_uncertainty`.

    Raises
    ------
    ValueError
        If the component is unknown.

    See Also
    --------
    make_ood_scorer : Scores the detection of OOD samples.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skood.evidential import EvidentialProbe
    >>> from skood.metrics import make_misclassification_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> X = X[:, :2]
    >>> probe = EvidentialProbe(LogisticRegression(), max_epochs=50, random_state=0)
    >>> scorer = make_misclassification_scorer()
    >>> cross_val_score(probe, X, y, scoring=scorer, cv=3).round(1)
    array([0.7, 0.6, 0.6])
    """
    _check_component(component)
    return _MisclassificationScorer(component, ood_label)


def make_rule_scorer(
    rule, *, loss="zero_one", max_loss=None, ood_label=-1, solver=None
):
    r"""Make a scorer of the objective of any rule, such as your own.

    The same scorer as :func:`make_selective_risk_scorer`, which describes the
    estimators that can be scored, with the objective and the bounds of a given rule.
    Read more in the :ref:`User Guide <own_rule>`.

    Parameters
    ----------
    rule : BaseRule
        The objective and the bounds, such as
        :class:`~skood.rejection.BoundedPrecisionRecall` for a bound on the precision
        in deployment instead of the FPR. With an `ood_prior` of 0 no OOD samples are
        needed.

    loss, max_loss, ood_label, solver
        As in :func:`make_selective_risk_scorer`.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better: minus the
        objective or, if a bound is violated, :math:`-(L + v)` with the
        :meth:`violation <skood.rejection.BaseRule.violation>` v of the rule and an
        upper bound L of the objective, which is the same for all candidates. On one
        fold, candidates that violate a bound rank below all candidates that do not.

    See Also
    --------
    skood.rejection.BaseRule : Base class of rules.
    make_selective_risk_scorer : Bounds TPR and FPR.
    make_cost_scorer : The expected cost, without bounds.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import MSP
    >>> from skood.metrics import make_rule_scorer
    >>> from skood.model_selection import OODStratifiedKFold
    >>> from skood.rejection import BoundedPrecisionRecall
    >>> X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
    >>> scorer = make_rule_scorer(BoundedPrecisionRecall(recall_min=0.7, ood_prior=0.2))
    >>> msp, cv = MSP(LogisticRegression(max_iter=200)), OODStratifiedKFold(2)
    >>> cross_val_score(msp, X, y, scoring=scorer, cv=cv).round(3)
    array([-0.008, -0.01 ])
    """
    return RuleScorer(
        "make_rule_scorer",
        rule,
        loss,
        ood_label,
        max_loss=max_loss,
        solver=solver,
    )


def make_selective_risk_scorer(
    tpr_min=0.8,
    fpr_max=0.2,
    *,
    loss="zero_one",
    max_loss=None,
    ood_label=-1,
    solver=None,
):
    r"""Make a scorer of the selective risk at a bounded TPR and FPR.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=`` of
    :class:`~sklearn.model_selection.GridSearchCV` and the like. It returns minus the
    selective risk, so that greater is better. A sample is OOD when its label is
    `ood_label` or is not in the estimator's `classes_`.

    Two kinds of estimators can be scored, alone or as the last step of a
    :class:`~sklearn.pipeline.Pipeline`; both have a classifier in `estimator_`:

    - estimators with decisions, by ``accept_proba(X)``, such as a reject-option
      classifier: their decisions are evaluated;
    - estimators with scores, by ``score_samples(X)``, such as a detector: they are
      evaluated at the best threshold on the given samples.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    tpr_min, fpr_max
        As in :class:`~skood.rejection.BoundedTPRFPR`.

    loss : str, callable or array-like, default="zero_one"
        As in :meth:`RiskCoverageCurve.from_predictions`, except for an array of losses
        per sample; a loss matrix is in the order of `classes_`.

    max_loss : float, default=None
        Larger losses are clipped to it. None: losses are not clipped.

    ood_label : int or str, default=-1
        Label of known OOD samples in `y`. For regressors, it is always NaN.

    solver : Solver, default=None
        Search for the best threshold of estimators with scores. None: ``Solver()``.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better. It raises a
        ValueError if the samples are all ID or all OOD, and a TypeError if the
        estimator is of neither kind. Searches turn errors into NaN unless
        ``error_score="raise"``.

    Raises
    ------
    ValueError, TypeError
        If a bound is not a number in [0, 1], or the loss is of another kind or a
        matrix that is not square, not finite or negative.

    See Also
    --------
    selective_risk_at : The risk for the second kind of estimators.
    make_rule_scorer : Other bounds, such as on precision and recall.
    make_cost_scorer : Scores the expected cost, without bounds.
    make_ood_scorer : Scores the ranking of ID above OOD samples.

    Notes
    -----
    With acceptance :math:`c_i \in [0, 1]` and loss :math:`\ell_i` of ID sample i,

    .. math::

        \mathrm{TPR} = \frac{1}{n_I} \sum_{i \in I} c_i, \quad
        \mathrm{FPR} = \frac{1}{n_O} \sum_{j \in O} c_j, \quad
        R = \frac{\sum_{i \in I} c_i \ell_i}{\sum_{i \in I} c_i}

    and the score is :math:`-R` if both bounds hold. If a bound is violated, or nothing
    is accepted, it is

    .. math::

        -\left(L + \max(0, \phi - \mathrm{TPR})
        + \max(0, \mathrm{FPR} - \rho)\right)

    with :math:`\phi` = `tpr_min` and :math:`\rho` = `fpr_max`, for a detector at the
    threshold where this is greatest. If nothing is accepted, :math:`\phi` is replaced
    by :math:`1/n_I` if smaller: one sample is missing. :math:`L` is 1 or, if that is
    larger, the largest loss that any class as a prediction could have on one of the ID
    samples (where the estimator has no `classes_`, any of their labels); with
    `max_loss`, it is 1 or `max_loss`. It is the same for all candidates on the same
    samples, and an upper bound of the selective risk (of a regressor with predictions
    beyond the range of the targets: with `max_loss` only): *on one fold*, candidates
    that violate a bound rank below all candidates that do not. The mean over several
    folds does not preserve this order. A candidate that violates a bound on one of many
    folds may rank above a candidate that violates none and has a large risk: inspect
    the scores of the splits too.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import MSP
    >>> from skood.metrics import make_selective_risk_scorer
    >>> from skood.model_selection import OODStratifiedKFold
    >>> X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
    >>> msp, cv = MSP(LogisticRegression(max_iter=200)), OODStratifiedKFold(2)
    >>> for fpr_max in (0.5, 0.2):
    ...     scorer = make_selective_risk_scorer(fpr_max=fpr_max)
    ...     print(cross_val_score(msp, X, y, scoring=scorer, cv=cv).round(3))
    [-0.017 -0.012]
    [-1.149 -1.16 ]
    """
    return RuleScorer(
        "make_selective_risk_scorer",
        BoundedTPRFPR(tpr_min=tpr_min, fpr_max=fpr_max),
        loss,
        ood_label,
        ("tpr_min", "fpr_max"),
        max_loss=max_loss,
        solver=solver,
    )


def make_cost_scorer(
    reject_id=0.3,
    accept_ood=1.0,
    reject_ood=0.0,
    ood_prior=0.5,
    *,
    loss="zero_one",
    max_loss=None,
    ood_label=-1,
):
    r"""Make a scorer of the expected cost of errors, rejections and accepted OOD.

    The scorer returns minus the expected cost, so that greater is better. The same
    estimators as in :func:`make_selective_risk_scorer` can be scored: decisions are
    evaluated as they are, scores at the threshold of least cost, where accepting all or
    no samples is allowed.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    reject_id, accept_ood, reject_ood, ood_prior
        As in :class:`~skood.rejection.CostBased`.

    loss, max_loss, ood_label
        As in :func:`make_selective_risk_scorer`.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better. It raises errors
        as in :func:`make_selective_risk_scorer`, except that with `ood_prior` 0 no OOD
        samples are needed.

    Raises
    ------
    ValueError, TypeError
        If a cost or the prior is out of its range, or the loss is of another kind.

    See Also
    --------
    SCODCurve : The least cost of one or two scores, for many costs.
    skood.rejection.CostBased : The rule.
    make_selective_risk_scorer : Scores the selective risk at bounds instead.

    Notes
    -----
    The score is minus the cost of :class:`~skood.rejection.CostBased`, with
    :math:`N = \sum_{i \in I} c_i`, :math:`E = \sum_{i \in I} c_i \ell_i` and
    :math:`F = \sum_{j \in O} c_j` for the acceptance c and the loss :math:`\ell`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import MSP
    >>> from skood.metrics import make_cost_scorer
    >>> from skood.model_selection import OODStratifiedKFold
    >>> X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
    >>> msp, cv = MSP(LogisticRegression(max_iter=200)), OODStratifiedKFold(2)
    >>> scorer = make_cost_scorer(reject_id=0.3, ood_prior=0.2)
    >>> cross_val_score(msp, X, y, scoring=scorer, cv=cv).round(3)
    array([-0.122, -0.13 ])
    """
    rule = CostBased(
        reject_id=reject_id,
        accept_ood=accept_ood,
        reject_ood=reject_ood,
        ood_prior=ood_prior,
    )
    return RuleScorer(
        "make_cost_scorer",
        rule,
        loss,
        ood_label,
        ("reject_id", "accept_ood", "reject_ood", "ood_prior"),
        max_loss=max_loss,
    )


_RATES = "tpr", "coverage", "precision", "neg_fpr", "neg_risk", "neg_error_rate"


@stored
class _RateScorer(WeightedScorer):
    """Scorer of `make_rate_scorer`."""

    def __init__(self, rate, **options):
        self._rate = rate
        self._options = options

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        rate, (loss, max_loss, prior, ood_label) = self._rate, self._options.values()
        final, X = unwrap(estimator, X)
        fold = ScoredFold(final, y, sample_weight, ood_label)
        is_ood = ood_mask(fold.y, ood_label=fold.ood_label, classes=fold.classes)
        losses = np.zeros(is_ood.shape)
        if rate in ("neg_risk", "neg_error_rate"):
            predict = labels_before_rejection(final)
            if predict is None:
                raise TypeError(
                    f"{self!r} counts the errors of a classifier in estimator_, but "
                    f"{fold.owner} has none. Use another rate."
                )
            check_kind(loss, is_nan(fold.ood_label), fold.owner)
            losses = fold.losses(predict(X), loss, max_loss, is_ood)
        N, E, F, n_id, n_ood = fold.sums(self._accepted(final, X), losses, is_ood)
        per_id = per_ood = 1.0
        if prior is not None:  # without ID or OOD samples, NaN
            per_id = (1 - prior) / (n_id or np.nan)
            per_ood = prior and prior / (n_ood or np.nan)
        accepted = per_id * N + per_ood * F
        numerator, denominator = {
            "tpr": (N, n_id),
            "neg_fpr": (-F, n_ood),
            "coverage": (accepted, per_id * n_id + per_ood * n_ood),
            "precision": (per_id * N, accepted),
            "neg_risk": (-E, N),
            "neg_error_rate": (-per_id * E - (max_loss or 1) * per_ood * F, accepted),
        }[rate]
        if denominator > 0:
            return float(numerator / denominator)
        warnings.warn(
            f"The {rate.removeprefix('neg_')} is undefined on a fold with {n_id:g} ID "
            f"and {n_ood:g} OOD samples, where {N:g} and {F:g} are accepted: {self!r} "
            "returns NaN. skood.model_selection.OODStratifiedKFold makes folds with "
            "samples of both kinds.",
            UndefinedMetricWarning,
            stacklevel=2,
        )
        return np.nan

    def _accepted(self, estimator, X):
        """Return the probability with which each sample is accepted."""
        if hasattr(estimator, "accept_proba"):
            return estimator.accept_proba(X)
        if estimator_kind(estimator) == "outlier_detector":
            return np.asarray(estimator.predict(X)) == 1
        raise TypeError(
            f"{self!r} needs an estimator that accepts samples by accept_proba, such "
            "as skood.rejection.RejectOptionClassifier, or a detector. Got "
            f"{type(estimator).__name__}."
        )

    def __repr__(self):
        loss = self._options["loss"]
        options = {**self._options, "loss": getattr(loss, "__name__", loss)}
        shown = [f"{name}={value!r}" for name, value in options.items()]
        return f"make_rate_scorer({', '.join([repr(self._rate), *shown])})"


@validate_params(
    {"ood_prior": [Number(Real, 0, 1, closed="left"), None]},
    prefer_skip_nested_validation=True,
)
def make_rate_scorer(
    rate, *, loss="zero_one", max_loss=None, ood_prior=None, ood_label=-1
):
    r"""Make a scorer of a rate of decisions: TPR, FPR, coverage, precision or errors.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=``, also one of
    several; greater is better. Read more in the :ref:`User Guide <model_selection>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    rate : {"tpr", "coverage", "precision", "neg_fpr", "neg_risk", "neg_error_rate"}
        The rate; ``neg_`` is for minus the rate.

    loss, ood_label
        As in :func:`make_selective_risk_scorer`; the risk and the error rate depend on
        the loss.

    max_loss : float, default=None
        The loss of an accepted OOD sample, for the error rate; larger losses are
        clipped to it. None: 1, and losses are not clipped.

    ood_prior : float, default=None
        Fraction of OOD samples at deployment, in [0, 1), for the coverage, the
        precision and the error rate. None: these are of the samples of the fold.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, sample_weight=None)`` returns a float. Samples are
        accepted by the ``accept_proba`` of the estimator, or by a detector if it
        predicts 1. A rate without samples of a kind, or without accepted samples, is
        NaN, with an :class:`~sklearn.exceptions.UndefinedMetricWarning`.

    See Also
    --------
    make_selective_risk_scorer : Scores the risk within bounds.

    Notes
    -----
    With acceptance :math:`c_i \in [0, 1]`, loss :math:`\ell_i`, :math:`\pi` =
    `ood_prior` and L = `max_loss`, the coverage, the precision and the error rate are

    .. math::
        A = (1 - \pi) \mathrm{TPR} + \pi \, \mathrm{FPR}, \quad
        \frac{(1 - \pi) \mathrm{TPR}}{A}, \quad
        \frac{1}{A} \left( (1 - \pi) \frac{1}{n_I} \sum_{i \in I} c_i \ell_i +
        L \, \pi \, \mathrm{FPR} \right)

    Without a prior, :math:`\pi` is the fraction of OOD samples in the fold.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from skood.detectors import MSP
    >>> from skood.metrics import make_rate_scorer
    >>> from skood.model_selection import LeaveClassesOut
    >>> X, y = load_iris(return_X_y=True)
    >>> scoring = {name: make_rate_scorer(name) for name in ("tpr", "neg_fpr")}
    >>> msp, cv = MSP(LogisticRegression()), LeaveClassesOut(random_state=0)
    >>> scores = cross_validate(msp, X, y, scoring=scoring, cv=cv)
    >>> [round(float(scores[f"test_{name}"].mean()), 2) for name in scoring]
    [0.97, -0.69]
    """
    if rate not in _RATES:
        negated = f"neg_{rate}" in _RATES
        raise ValueError(
            f"The rate {rate!r} is lower for better decisions. Pass 'neg_{rate}'."
            if negated
            else f"rate must be one of {', '.join(map(repr, _RATES))}, got {rate!r}."
        )
    check_scored_loss(loss, max_loss)
    options = {"max_loss": max_loss, "ood_prior": ood_prior, "ood_label": ood_label}
    return _RateScorer(rate, loss=loss, **options)
