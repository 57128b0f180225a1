"""Scorers for searches and cross-validation: OOD ranking and selective risk."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect

import numpy as np

from skood.metrics._ranking import (
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    fpr_at_tpr,
)
from skood.metrics._selective import selective_risk_at
from skood.rejection._rules import BoundedTPRFPR
from skood.utils._labels import check_labels, ood_mask
from skood.utils._loss import per_sample_loss
from skood.utils._wrapping import unwrapped

__all__ = ["make_ood_scorer", "make_selective_risk_scorer"]

# name: (metric, whether greater is better)
_METRICS = {
    "auroc": (auroc, True),
    "aupr_in": (aupr_in, True),
    "aupr_out": (aupr_out, True),
    "fpr_at_tpr": (fpr_at_tpr, False),
    "detection_error": (detection_error, False),
}


def unwrap(estimator, X):
    """Return the estimator inside searches, pipelines and frozen ones, and its `X`.

    Parameters
    ----------
    estimator : object
        A fitted estimator. `X` goes through the steps of a pipeline before the last.

    X : array-like
        What `estimator` reads.

    Returns
    -------
    estimator : object
        The innermost estimator.

    X : array-like
        What it reads.
    """
    while True:
        estimator = unwrapped(estimator)
        if not isinstance(getattr(estimator, "steps", None), list):
            return estimator, X
        for _, step in estimator.steps[:-1]:
            if step is not None and not isinstance(step, str):
                X = step.transform(X)
        estimator = estimator.steps[-1][1]


def known_classes(*estimators):
    """Return the `classes_` of the first estimator that has them, or None."""
    for estimator in estimators:
        classes = getattr(estimator, "classes_", None)
        if classes is not None:
            return np.asarray(classes)
    return None


def _ood_rows(y, ood_label, classes, owner):
    """Tell which rows of a fold are OOD; both kinds must be there."""
    is_ood = ood_mask(y, ood_label=ood_label, classes=classes)
    if is_ood.any() and not is_ood.all():
        return is_ood
    kind = "in-distribution" if is_ood.any() else "out-of-distribution"
    unseen = (
        "or that is not in its classes_"
        if classes is not None
        else "(it has no classes_ by which left-out classes could be told)"
    )
    raise ValueError(
        f"The fold has no {kind} rows to score {owner} on: OOD are the rows whose "
        f"label is ood_label={ood_label!r} {unseen}. Use a splitter that puts both "
        "kinds of rows into every test fold: "
        "skood.model_selection.OODStratifiedKFold if y has known OOD rows, "
        "skood.model_selection.LeaveClassesOut if it has none."
    )


class _OODScorer:
    """What `make_ood_scorer` returns."""

    def __init__(self, metric, sign, ood_label, metric_params, shown):
        self._metric = metric
        self._sign = sign
        self._ood_label = ood_label
        self._metric_params = metric_params
        self._shown = shown

    def __call__(self, estimator, X, y):
        """Score a fitted estimator; greater is better."""
        owner = type(estimator).__name__
        if not hasattr(estimator, "score_samples"):
            raise TypeError(
                f"{self!r} needs an estimator with score_samples, high for "
                f"in-distribution samples; {owner} has none. Pass a detector, for "
                "example skood.detectors.MSP(classifier) for a classifier."
            )
        is_ood = _ood_rows(y, self._ood_label, known_classes(estimator), owner)
        y_true = np.where(is_ood, -1, 1)
        y_score = estimator.score_samples(X)
        return self._sign * float(self._metric(y_true, y_score, **self._metric_params))

    def __repr__(self):
        return f"make_ood_scorer({self._shown})"


def _check_metric_params(name, metric, metric_params):
    """Refuse parameters that the named metric does not have."""
    given_here = ("y_true", "y_score", "ood_label", "classes")
    allowed = [p for p in inspect.signature(metric).parameters if p not in given_here]
    unknown = sorted(set(metric_params) - set(allowed))
    if unknown:
        raise TypeError(
            f"The metric {name!r} has no parameters {unknown}; "
            f"it has {allowed or 'none'}."
        )


def make_ood_scorer(
    metric="auroc", *, ood_label=-1, greater_is_better=None, **metric_params
):
    """Make a scorer that says how well a detector ranks ID rows above OOD rows.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=`` of
    :class:`~sklearn.model_selection.GridSearchCV`,
    :func:`~sklearn.model_selection.cross_val_score` and the like; greater is better.
    It reads ``estimator.score_samples(X)``. A row is OOD when its label is
    `ood_label` or is not in ``estimator.classes_``, if the estimator has them.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    metric : str or callable, default="auroc"
        "auroc", "aupr_in", "aupr_out", "fpr_at_tpr" or "detection_error", of which
        the last two are negated; or a function ``metric(y_true, y_score)``, where
        `y_true` is +1 for ID and -1 for OOD rows, as most binary metrics of
        :mod:`sklearn.metrics` take it.

    ood_label : int or str, default=-1
        Label of known OOD rows in `y`.

    greater_is_better : bool, default=None
        Whether a great value of a callable `metric` is good; if not, it is negated.
        None: True for a callable. The direction of the named metrics is known.

    **metric_params : dict
        Further arguments of the metric, such as ``tpr=0.9`` of "fpr_at_tpr".

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better. It raises a
        ValueError if the rows are all ID or all OOD, and a TypeError if the
        estimator has no `score_samples`. Searches turn errors into NaN unless they
        are given ``error_score="raise"``.

    Raises
    ------
    ValueError
        If the metric is unknown, or `greater_is_better` contradicts what is known.
    TypeError
        If the metric does not have one of `metric_params`.

    See Also
    --------
    make_selective_risk_scorer : Scores the errors on accepted rows instead.
    skood.model_selection.LeaveClassesOut : Folds with left-out classes.
    skood.model_selection.OODStratifiedKFold : Folds with known OOD rows.

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
    ours = {function: name for name, (function, _) in _METRICS.items()}
    if callable(metric):
        metric = ours.get(metric, metric)
    if callable(metric):
        function, greater = metric, greater_is_better is not False
        shown = getattr(metric, "__name__", repr(metric))
    else:
        if not isinstance(metric, str) or metric not in _METRICS:
            raise ValueError(
                f"metric must be one of {list(_METRICS)} or a callable "
                f"metric(y_true, y_score). Got {metric!r}."
            )
        function, greater = _METRICS[metric]
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
    shown += [f"{key}={value!r}" for key, value in metric_params.items()]
    return _OODScorer(
        function, 1 if greater else -1, ood_label, metric_params, ", ".join(shown)
    )


class _SelectiveRiskScorer:
    """What `make_selective_risk_scorer` returns."""

    def __init__(self, rule, loss, ood_label, angles):
        self._rule = rule
        self._loss = loss
        self._ood_label = ood_label
        self._angles = angles

    def __call__(self, estimator, X, y):
        """Score a fitted estimator; greater is better."""
        final, X = unwrap(estimator, X)
        classifier = getattr(final, "estimator_", None)
        predict = getattr(classifier, "predict", None)
        decides = hasattr(final, "accept_proba") and hasattr(final, "predict")
        if predict is None or not (decides or hasattr(final, "score_samples")):
            raise TypeError(
                f"{self!r} needs an estimator that accepts rows by accept_proba, such "
                "as skood.rejection.RejectOptionClassifier, or that scores them by "
                "score_samples; and either with the classifier whose errors are "
                f"counted in estimator_. Got {type(final).__name__}."
            )
        y = check_labels(y)
        classes = known_classes(final, classifier)
        is_ood = _ood_rows(y, self._ood_label, classes, type(final).__name__)
        loss = np.zeros(is_ood.shape)
        loss[~is_ood] = per_sample_loss(
            y, predict(X), self._loss, is_id=~is_ood, classes=classes
        )
        judge = self._judge_decisions if decides else self._judge_scores
        risk, violation = judge(final, X, is_ood, loss)
        if risk is not None:
            return -risk
        # Losses above 1 shift the infeasible below the worst feasible score too.
        return -(max(1.0, float(loss.max())) + violation)

    def _judge_decisions(self, estimator, X, is_ood, loss):
        """Risk, or None and the violation, of the decisions that were made."""
        accepted = np.asarray(estimator.accept_proba(X), dtype=np.float64)
        if accepted.shape != is_ood.shape or not np.all(
            (accepted >= 0) & (accepted <= 1)
        ):
            raise ValueError(
                f"{type(estimator).__name__}.accept_proba must return one number in "
                f"[0, 1] per row, shape {is_ood.shape}; got shape {accepted.shape} "
                f"with values from {accepted.min()} to {accepted.max()}."
            )
        tpr, fpr = accepted[~is_ood].mean(), accepted[is_ood].mean()
        violation = float(self._rule.violation(tpr, fpr))
        if violation > 0 or tpr == 0:
            return None, violation
        return float(np.average(loss[~is_ood], weights=accepted[~is_ood])), 0.0

    def _judge_scores(self, estimator, X, is_ood, loss):
        """Risk, or None and the violation, of the best threshold on these rows."""
        point = selective_risk_at(
            np.where(is_ood, -1, 1),
            None,
            estimator.score_samples(X),
            tpr_min=self._rule.tpr_min,
            fpr_max=self._rule.fpr_max,
            loss=loss,
            angles=self._angles,
        )
        if point.feasible:
            return point.risk, 0.0
        return None, float(self._rule.violation(point.tpr, point.fpr))

    def __repr__(self):
        loss = self._loss
        shown = getattr(loss, "__name__", None) or repr(loss)
        return (
            f"make_selective_risk_scorer(tpr_min={self._rule.tpr_min!r}, "
            f"fpr_max={self._rule.fpr_max!r}, loss={shown}, "
            f"ood_label={self._ood_label!r}, angles={self._angles!r})"
        )


def make_selective_risk_scorer(
    tpr_min=0.8, fpr_max=0.2, *, loss="zero_one", ood_label=-1, angles="quadrant"
):
    r"""Make a scorer of the errors on accepted rows, at a bounded TPR and FPR.

    The scorer is a callable ``scorer(estimator, X, y)`` for ``scoring=`` of
    :class:`~sklearn.model_selection.GridSearchCV` and the like. It returns minus the
    selective risk, so that greater is better. A row is OOD when its label is
    `ood_label` or is not in the estimator's `classes_`.

    Two kinds of estimators can be scored, alone or as the last step of a
    :class:`~sklearn.pipeline.Pipeline`; both keep a classifier in `estimator_`:

    - one that decides, by ``accept_proba(X)``, such as a reject-option classifier:
      its decisions are judged as they are;
    - one that scores, by ``score_samples(X)``, such as a detector: it is judged at
      the best threshold on the rows at hand.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    tpr_min : float, default=0.8
        Least share of ID rows to accept.

    fpr_max : float, default=0.2
        Largest share of OOD rows to accept.

    loss : "zero_one", callable or array-like, default="zero_one"
        "zero_one"; a function ``loss(y_true, y_pred)`` of the ID rows that returns
        one number per row; or a loss matrix of shape (n_classes, n_classes), the
        true class in rows, both in the order of `classes_`. Not negative.

    ood_label : int or str, default=-1
        Label of known OOD rows in `y`.

    angles : {"quadrant", "full"}, default="quadrant"
        As in :func:`selective_risk_at`; of no effect with a single score.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better. It raises a
        ValueError if the rows are all ID or all OOD, and a TypeError if the
        estimator is of neither kind. Searches turn errors into NaN unless they are
        given ``error_score="raise"``.

    Raises
    ------
    ValueError, TypeError
        If a bound is not a number in [0, 1], or the loss is of another kind.

    See Also
    --------
    selective_risk_at : The number for the second kind of estimators.
    make_ood_scorer : Scores the ranking of ID above OOD rows.

    Notes
    -----
    With acceptance :math:`c_i \in [0, 1]` and loss :math:`\ell_i` of ID row i,

    .. math::

        \mathrm{TPR} = \frac{1}{n_I} \sum_{i \in I} c_i, \quad
        \mathrm{FPR} = \frac{1}{n_O} \sum_{j \in O} c_j, \quad
        R = \frac{\sum_{i \in I} c_i \ell_i}{\sum_{i \in I} c_i}

    and the score is :math:`-R` if both bounds hold. If one does not, or nothing is
    accepted, it is

    .. math::

        -\left(1 + \max(0, \phi - \mathrm{TPR})
        + \max(0, \mathrm{FPR} - \rho)\right)

    with :math:`\phi` = `tpr_min` and :math:`\rho` = `fpr_max`, for a detector at the
    threshold where this is greatest. So every candidate that breaks a bound is
    ranked, below all that do not. With losses above 1, their greatest value on the
    rows takes the place of the 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skood.metrics import make_selective_risk_scorer
    >>> class Magnitude(BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.estimator_ = DecisionTreeClassifier(max_depth=1).fit(X, y)
    ...         self.classes_ = self.estimator_.classes_
    ...         return self
    ...     def score_samples(self, X):
    ...         return -np.abs(X).ravel()
    >>> detector = Magnitude().fit([[-1.0], [-0.5], [0.5], [1.0]], [0, 0, 1, 1])
    >>> X, y = np.array([[-0.9], [0.1], [0.8], [0.5], [-3.0]]), [0, 0, 1, -1, -1]
    >>> round(make_selective_risk_scorer(fpr_max=0.5)(detector, X, y), 3)
    -0.333
    >>> round(make_selective_risk_scorer(fpr_max=0.0)(detector, X, y), 3)
    -1.467
    """
    if not (
        callable(loss)
        or (isinstance(loss, str) and loss == "zero_one")
        or (not isinstance(loss, str) and np.ndim(loss) == 2)
    ):
        raise ValueError(
            "loss must be 'zero_one', a callable loss(y_true, y_pred) or a loss "
            f"matrix of shape (n_classes, n_classes). Got {loss!r}."
        )
    if angles not in ("quadrant", "full"):
        raise ValueError(f"angles must be 'quadrant' or 'full', got {angles!r}.")
    rule = BoundedTPRFPR(tpr_min=tpr_min, fpr_max=fpr_max)
    rule.check_params()
    return _SelectiveRiskScorer(rule, loss, ood_label, angles)
