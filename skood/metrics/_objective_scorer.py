"""Scorer of estimators by the objective and the bounds of a rule."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision import check_rule, least_tpr
from skood.metrics._scorer_losses import (
    check_kind,
    check_loss,
    check_max_loss,
    largest_loss,
)
from skood.metrics._scorers import WeightedScorer, ood_rows, scored_ood_label
from skood.metrics._selective_risk import reject_scores, search_rows
from skood.utils._labels import check_y, is_nan, single_column
from skood.utils._losses import per_sample_loss
from skood.utils._metaestimators import known_classes, unwrap
from skood.utils._stored import stored
from skood.utils._weights import count_weights


class _Present:
    """Return the samples of positive weight, all without weights (None)."""

    def __init__(self, weight):
        self.rows = None if weight is None else np.flatnonzero(weight)

    def __call__(self, values):
        return values if self.rows is None else np.asarray(values)[self.rows]


@stored
class RuleScorer(WeightedScorer):
    """Scorer: minus the objective of a rule, with a penalty for violated bounds.

    `name` is the function that makes the scorer, and `shown` are the parameters of the
    rule in its order; none: the rule itself.
    """

    def __init__(self, name, rule, loss, ood_label, shown=(), max_loss=None, **angles):
        check_rule(rule)
        self._name = name
        self._rule = rule
        check_loss(loss)
        check_max_loss(max_loss)
        self._loss = loss
        self._max_loss = max_loss
        self._ood_label = ood_label
        self._shown = shown
        self._angles = angles

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        final, X = unwrap(estimator, X)
        classifier = getattr(final, "estimator_", None)
        predict = getattr(classifier, "predict", None)
        decides = hasattr(final, "accept_proba") and hasattr(final, "predict")
        if predict is None or not (decides or hasattr(final, "score_samples")):
            raise TypeError(
                f"{self!r} needs an estimator that accepts samples by accept_proba, "
                "such as skood.rejection.RejectOptionClassifier, or that scores them "
                "by score_samples; and either with the classifier whose errors are "
                f"counted in estimator_. Got {type(final).__name__}."
            )
        ood_label = scored_ood_label(classifier, self._ood_label)
        ood_label = scored_ood_label(final, ood_label)
        check_kind(self._loss, is_nan(ood_label), type(final).__name__)
        y = check_y(y, ood_label)
        weight = count_weights(sample_weight, y.size)
        present = _Present(weight)
        y, weight = present(y), None if weight is None else present(weight)
        classes = known_classes(final, classifier)
        is_ood = ood_rows(
            y,
            ood_label,
            classes,
            type(final).__name__,
            needs_ood=self._rule.needs_ood,
        )
        loss = np.zeros(is_ood.shape)
        loss[~is_ood] = per_sample_loss(
            y,
            present(single_column(predict(X))),
            self._loss,
            is_id=~is_ood,
            classes=classes,
            max_loss=self._max_loss,
        )
        judge = self._judge_decisions if decides else self._judge_scores
        objective, violation = judge(final, X, present, is_ood, loss, weight)
        if objective is not None:
            return -objective
        # The shift is the same for all candidates, and an upper bound of the objective.
        largest = largest_loss(y, self._loss, ~is_ood, classes, self._max_loss)
        cost = self._rule.cost()
        if cost is not None:  # each rate is at most 1, that of the loss `largest`
            gains = max(cost.id, 0), max(cost.loss, 0) * largest, max(cost.ood, 0)
            largest = cost.constant + sum(gains)
        return -(largest + violation)

    def _judge_decisions(self, estimator, X, present, is_ood, loss, weight):
        """Return the objective, or None and the violation, of the decisions."""
        accepted = np.asarray(present(estimator.accept_proba(X)), dtype=np.float64)
        if accepted.shape != is_ood.shape or not np.all(
            (accepted >= 0) & (accepted <= 1)
        ):
            raise ValueError(
                f"{type(estimator).__name__}.accept_proba must return one number in "
                f"[0, 1] per sample, shape {is_ood.shape}; got shape {accepted.shape} "
                f"with values from {accepted.min()} to {accepted.max()}."
            )
        weight = np.ones(is_ood.size, dtype=np.int64) if weight is None else weight
        n_ood = weight[is_ood].sum()
        n_id = weight[~is_ood].sum()
        accepted = accepted * weight
        N, E = accepted[~is_ood].sum(), accepted @ loss
        F = accepted[is_ood].sum()
        risk = E / N if N else np.nan
        fpr = F / n_ood if n_ood else np.nan
        violation = float(self._rule.violation(N / n_id, fpr, risk))
        objective = float(self._rule.objective(N, E, F, n_id, n_ood))
        if not N > 0:  # at least one sample is required, for any bound
            violation = np.nan_to_num(violation)
            violation += least_tpr(self._rule, n_id) - least_tpr(self._rule)
        return (None if violation > 0 else objective), violation

    def _judge_scores(self, estimator, X, present, is_ood, loss, weight):
        """Return the objective, or None and the violation, of the best threshold."""
        rows = reject_scores(
            np.where(is_ood, -1, 1),
            None,
            present(estimator.score_samples(X)),
            None,
            loss,
            -1,
            None,
            needs_ood=self._rule.needs_ood,
            sample_weight=weight,
        )
        point = search_rows(self._rule, rows, **self._angles)
        if point.feasible:
            return point.objective, 0.0
        return None, float(self._rule.violation(point.tpr, point.fpr, point.risk))

    def __repr__(self):
        loss = self._loss
        shown = [f"{name}={getattr(self._rule, name)!r}" for name in self._shown]
        shown = shown or [f"{self._rule!r}"]
        shown.append(f"loss={getattr(loss, '__name__', None) or repr(loss)}")
        shown.append(f"ood_label={self._ood_label!r}")
        if self._max_loss is not None:
            shown.append(f"max_loss={self._max_loss!r}")
        shown += [f"{name}={value!r}" for name, value in self._angles.items()]
        return f"{self._name}({', '.join(shown)})"
