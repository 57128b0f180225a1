"""Scorers for searches and cross-validation: objectives and bounds of reject rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.decision import BoundedPrecisionRecall, BoundedTPRFPR, CostBased
from skood.metrics._objective_scorer import RuleScorer


def _check_angles(angles):
    """Raise if the range of angles is unknown."""
    if angles not in ("quadrant", "full"):
        raise ValueError(f"angles must be 'quadrant' or 'full', got {angles!r}.")
    return angles


def make_rule_scorer(
    rule, *, loss="zero_one", max_loss=None, ood_label=-1, angles="quadrant"
):
    r"""Make a scorer of the objective of any rule, such as your own.

    The same scorer as :func:`make_selective_risk_scorer`, which describes the
    estimators that can be scored, with the objective and the bounds of a given rule.
    Read more in the :ref:`User Guide <own_rule>`.

    Parameters
    ----------
    rule : BaseRule
        The objective and the bounds.

    loss, max_loss, ood_label, angles
        As in :func:`make_selective_risk_scorer`.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better: minus the
        objective or, if a bound is violated, :math:`-(L + v)` with the
        :meth:`violation <skood.rejection.BaseRule.violation>` v of the rule and an
        upper bound L of the objective, which is the same for all candidates.

    See Also
    --------
    skood.rejection.BaseRule : Base class of rules.
    make_selective_risk_scorer : Bounds TPR and FPR.
    make_cost_scorer : The expected cost, without bounds.

    Examples
    --------
    >>> from skood.metrics import make_rule_scorer
    >>> from skood.rejection import BoundedImprovement
    >>> make_rule_scorer(BoundedImprovement(0.1))  # doctest: +NORMALIZE_WHITESPACE
    make_rule_scorer(BoundedImprovement(risk_max=0.1), loss='zero_one',
    ood_label=-1, angles='quadrant')
    """
    return RuleScorer(
        "make_rule_scorer",
        rule,
        loss,
        ood_label,
        max_loss=max_loss,
        angles=_check_angles(angles),
    )


def make_selective_risk_scorer(
    tpr_min=0.8,
    fpr_max=0.2,
    *,
    loss="zero_one",
    max_loss=None,
    ood_label=-1,
    angles="quadrant",
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
    tpr_min : float, default=0.8
        Least share of ID samples to accept.

    fpr_max : float, default=0.2
        Largest share of OOD samples to accept.

    loss : str, callable or array-like, default="zero_one"
        "zero_one"; for regressors, "absolute_error" or "squared_error"; a function
        ``loss(y_true, y_pred)`` of the ID samples that returns one number per sample;
        or a loss matrix of shape (n_classes, n_classes), the true class in rows, both
        in the order of `classes_`. Not negative.

    max_loss : float, default=None
        Larger losses are clipped to it. None: losses are not clipped.

    ood_label : int or str, default=-1
        Label of known OOD samples in `y`. For regressors, it is always NaN.

    angles : {"quadrant", "full"}, default="quadrant"
        As in :func:`selective_risk_at`; no effect with a single score.

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
    make_precision_recall_risk_scorer : Bounds the precision instead of the FPR.
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
    return RuleScorer(
        "make_selective_risk_scorer",
        BoundedTPRFPR(tpr_min=tpr_min, fpr_max=fpr_max),
        loss,
        ood_label,
        ("tpr_min", "fpr_max"),
        max_loss=max_loss,
        angles=_check_angles(angles),
    )


def make_precision_recall_risk_scorer(
    precision_min=0.9,
    recall_min=0.8,
    ood_prior=0.5,
    *,
    loss="zero_one",
    max_loss=None,
    ood_label=-1,
    angles="quadrant",
):
    r"""Make a scorer of the selective risk at a bounded precision and recall.

    Like :func:`make_selective_risk_scorer`, for the same estimators, with a bound on
    the precision instead of the FPR. ID samples are positive.

    Read more in the :ref:`User Guide <model_selection>`.

    Parameters
    ----------
    precision_min : float, default=0.9
        Least share of ID samples among accepted samples.

    recall_min : float, default=0.8
        Least share of ID samples to accept.

    ood_prior : float, default=0.5
        Share of OOD samples in use, in [0, 1). It is never estimated from the data.
        With 0 no OOD samples are needed.

    loss, max_loss, ood_label
        As in :func:`make_selective_risk_scorer`.

    angles : {"quadrant", "full"}, default="quadrant"
        As in :func:`selective_risk_at_precision_recall`; no effect with a single score.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)`` returns a float; greater is better. It raises errors
        as in :func:`make_selective_risk_scorer`, except that with `ood_prior` 0 no OOD
        samples are needed.

    Raises
    ------
    ValueError, TypeError
        If a bound is not a number in [0, 1], the prior not one in [0, 1), or the loss
        is of another kind.

    See Also
    --------
    selective_risk_at_precision_recall : The risk for estimators with scores.
    make_selective_risk_scorer : Bounds TPR and FPR, which do not depend on a prior.

    Notes
    -----
    With the TPR, FPR and selective risk R of :func:`make_selective_risk_scorer`, and
    the prior :math:`\pi`, the score is :math:`-R` if

    .. math::

        P = \frac{(1 - \pi) \mathrm{TPR}}{(1 - \pi) \mathrm{TPR} +
        \pi \mathrm{FPR}} \ge \kappa \quad\text{and}\quad \mathrm{TPR} \ge \phi

    and otherwise

    .. math::

        -\left(L + \max(0, \kappa - P) + \max(0, \phi - \mathrm{TPR})\right)

    with :math:`\kappa` = `precision_min` and :math:`\phi` = `recall_min`, where the
    precision of accepting nothing counts as 0 and :math:`\phi` then as at least
    :math:`1/n_I`. :math:`L` is defined in :func:`make_selective_risk_scorer`: on one
    fold, candidates that violate a bound rank below all candidates that do not; the
    mean over several folds does not preserve this order.

    Examples
    --------
    >>> from skood.metrics import make_precision_recall_risk_scorer
    >>> scorer = make_precision_recall_risk_scorer(recall_min=0.7, ood_prior=0.2)
    >>> scorer  # doctest: +NORMALIZE_WHITESPACE
    make_precision_recall_risk_scorer(precision_min=0.9, recall_min=0.7,
    ood_prior=0.2, loss='zero_one', ood_label=-1, angles='quadrant')
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import MSP
    >>> from skood.model_selection import OODStratifiedKFold
    >>> X, y = load_digits_ood(left_out=(0, 4), ood_label=-1, return_X_y=True)
    >>> scores = cross_val_score(
    ...     MSP(LogisticRegression(max_iter=200)),
    ...     X,
    ...     y,
    ...     scoring=scorer,
    ...     cv=OODStratifiedKFold(2),
    ... )
    >>> bool((scores <= 0).all() and (scores > -0.1).all())
    True
    """
    rule = BoundedPrecisionRecall(
        precision_min=precision_min, recall_min=recall_min, ood_prior=ood_prior
    )
    return RuleScorer(
        "make_precision_recall_risk_scorer",
        rule,
        loss,
        ood_label,
        ("precision_min", "recall_min", "ood_prior"),
        max_loss=max_loss,
        angles=_check_angles(angles),
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
    reject_id : float, default=0.3
        Cost of rejecting an ID sample, in units of the loss; not negative.

    accept_ood : float, default=1.0
        Cost of accepting an OOD sample; above `reject_ood`.

    reject_ood : float, default=0.0
        Cost of rejecting an OOD sample; not negative.

    ood_prior : float, default=0.5
        Share of OOD samples in use, in [0, 1). It is never estimated from the data.
        With 0 no OOD samples are needed.

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
    With acceptance :math:`c_i \in [0, 1]` and loss :math:`\ell_i` of ID sample i, the
    score is minus

    .. math::

        (1 - \pi) \frac{1}{n_I} \sum_{i \in I}
        \left( c_i \ell_i + \varepsilon_1 (1 - c_i) \right) +
        \pi \frac{1}{n_O} \sum_{j \in O}
        \left( \varepsilon_2 c_j + \varepsilon_3 (1 - c_j) \right)

    with :math:`\varepsilon_1` = `reject_id`, :math:`\varepsilon_2` = `accept_ood`,
    :math:`\varepsilon_3` = `reject_ood` and :math:`\pi` = `ood_prior`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skood.metrics import make_cost_scorer
    >>> class Magnitude(BaseEstimator):
    ...     def fit(self, X, y):
    ...         self.estimator_ = DecisionTreeClassifier(max_depth=1).fit(X, y)
    ...         self.classes_ = self.estimator_.classes_
    ...         return self
    ...     def score_samples(self, X):
    ...         return -np.abs(X).ravel()
    >>> detector = Magnitude().fit([[-1.0], [-0.5], [0.5], [1.0]], [0, 0, 1, 1])
    >>> X, y = np.array([[-0.9], [0.1], [0.8], [0.5], [-3.0]]), [0, 0, 1, -1, -1]
    >>> make_cost_scorer(reject_id=0.6, ood_prior=0.2)(detector, X, y)
    -0.3666...
    >>> make_cost_scorer(reject_id=0.0)(detector, X, y)
    -0.0
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
