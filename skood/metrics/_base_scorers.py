"""Base classes of scorers, and validation of what they score."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRequest

from skood.decision import Solver
from skood.decision._base_rule import check_rule, least_tpr
from skood.decision._solver import search
from skood.metrics._selective_risk import reject_scores
from skood.utils._labels import check_y, is_nan, ood_mask
from skood.utils._losses import REGRESSION_LOSSES, is_regression_loss, per_sample_loss
from skood.utils._metaestimators import (
    estimator_kind,
    inner_estimator,
    known_classes,
    labels_before_rejection,
    unwrap,
)
from skood.utils._stored import stored
from skood.utils._weights import count_weights


def scored_ood_label(estimator, ood_label):
    """Return the label of OOD samples for an estimator: NaN if it is a regressor."""
    return np.nan if estimator_kind(estimator) == "regressor" else ood_label


def ood_samples(y, ood_label, classes, owner, *, needs_ood=True):
    """Return the mask of OOD samples of a fold; raise if a kind is missing.

    `classes` may be None; `owner` is the name of the scored method, for the error.
    """
    is_ood = ood_mask(y, ood_label=ood_label, classes=classes)
    if not is_ood.all() and (is_ood.any() or not needs_ood):
        return is_ood
    kind = "in-distribution" if is_ood.any() else "out-of-distribution"
    if is_nan(ood_label):
        raise ValueError(
            f"The fold has no {kind} samples to score {owner} on: in a regression, OOD "
            "are samples with the target NaN. Use folds that have both, such as "
            "KFold(shuffle=True), fewer folds, or more samples."
        )
    unseen = (
        "or that is not in its classes_"
        if classes is not None
        else "(it has no classes_ to identify left-out classes)"
    )
    raise ValueError(
        f"The fold has no {kind} samples to score {owner} on: OOD are samples whose "
        f"label is ood_label={ood_label!r} {unseen}. Use a splitter that puts both "
        "kinds of samples into every test fold: "
        "skood.model_selection.OODStratifiedKFold if y has known OOD samples, "
        "skood.model_selection.LeaveClassesOut if it has none."
    )


def check_scored_loss(loss, max_loss):
    """Raise if a loss, or the bound on losses, is not valid for scorers."""
    if max_loss is not None and not 0 < max_loss < np.inf:
        raise ValueError(f"max_loss must be positive and finite, got {max_loss!r}.")
    if callable(loss) or is_regression_loss(loss):
        return
    if isinstance(loss, str) and loss == "zero_one":
        return
    if isinstance(loss, str) or np.ndim(loss) != 2:
        raise ValueError(
            "loss must be 'zero_one', 'absolute_error', 'squared_error', a callable "
            "loss(y_true, y_pred) or a loss matrix of shape (n_classes, n_classes). "
            f"Got {loss!r}."
        )
    matrix = np.asarray(loss, dtype=np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            "A loss matrix has a row and a column for every class, so it must be "
            f"square; got the shape {matrix.shape}."
        )
    bad = ~(np.isfinite(matrix) & (matrix >= 0))
    if bad.any():
        raise ValueError(
            "A loss matrix must be finite and not negative, got "
            f"{float(matrix[bad][0])!r} (in {int(bad.sum())} of {matrix.size} entries)."
        )


def check_kind(loss, regression, owner):
    """Raise if a loss is not for a regressor, or not for a classifier."""
    if regression and not (callable(loss) or is_regression_loss(loss)):
        raise ValueError(
            f"{owner} is a regressor, but loss={loss!r} is for classes. Pass loss="
            f"{' or '.join(map(repr, REGRESSION_LOSSES))}, or a callable."
        )
    if not regression and is_regression_loss(loss):
        raise ValueError(
            f"{owner} is no regressor, but loss={loss!r} is for regression. Pass loss="
            "'zero_one', a callable or a loss matrix."
        )


def largest_loss(y, loss, is_id, classes, max_loss=None):
    """Return the largest loss of any prediction on the ID samples, at least 1.

    `loss` is checked; `classes` are the possible predictions and the rows of a matrix
    (None: the labels of these samples). For targets of a regression, they are the
    targets; the loss of a prediction between them is no larger, if it is convex.
    """
    if max_loss is not None:
        return max(1.0, float(max_loss))
    if is_regression_loss(loss):
        classes = np.array([y[is_id].min(), y[is_id].max()])
    elif isinstance(loss, str):
        return 1.0
    if callable(loss) or is_regression_loss(loss):
        known = np.unique(y[is_id]) if classes is None else np.asarray(classes)
        every = (known[np.full(y.shape, k)] for k in range(known.size))
        losses = [per_sample_loss(y, pred, loss, is_id=is_id) for pred in every]
    else:
        there = set(y[is_id].tolist())
        is_present = [label in there for label in np.asarray(classes).tolist()]
        losses = [np.asarray(loss, dtype=np.float64)[is_present]]
    return max(1.0, float(np.max(losses)))


class WeightedScorer:
    """Base class of scorers that take `sample_weight`, with metadata routing."""

    _request = None  # a str, the name under which weights are passed, or a bool

    def _accept_sample_weight(self):
        # requested by searches of scikit-learn if metadata routing is off
        return True

    def set_score_request(self, *, sample_weight=None):
        """Set whether `sample_weight` is passed to the scorer by metadata routing.

        Parameters
        ----------
        sample_weight : str, bool or None, default=None
            True: it is passed if given. False: it is not. A str: it is passed under
            this name. None: giving it raises an error.

        Returns
        -------
        self : object
            The scorer.
        """
        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                "set_score_request has no effect if metadata routing is off. Turn it "
                "on by sklearn.set_config(enable_metadata_routing=True)."
            )
        self._request = sample_weight
        return self

    def get_metadata_routing(self):
        """Return the metadata that the scorer requests.

        Returns
        -------
        request : MetadataRequest
            See the user guide of scikit-learn on metadata routing.
        """
        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="sample_weight", alias=self._request)
        return request


class ScoredFold:
    """Samples of positive weight, with the labels and classes of an estimator."""

    def __init__(self, estimator, y, sample_weight, ood_label):
        classifier = inner_estimator(estimator)
        ood_label = scored_ood_label(classifier, ood_label)
        self.ood_label = ood_label = scored_ood_label(estimator, ood_label)
        self.owner = type(estimator).__name__
        y = check_y(y, ood_label)
        self.y, self.weight = y, count_weights(sample_weight, y.size)
        if self.weight is not None:
            self._indices = np.flatnonzero(self.weight)
            self.y, self.weight = map(self.present, (y, self.weight))
        self.classes = known_classes(estimator, classifier)

    def present(self, values):
        """Return the entries of samples of positive weight."""
        return values if self.weight is None else np.asarray(values)[self._indices]

    def losses(self, y_pred, loss, max_loss, is_ood):
        """Return the losses of the predictions of all samples, 0 of OOD samples."""
        values = np.zeros(is_ood.shape)
        values[~is_ood] = per_sample_loss(
            self.y,
            self.present(y_pred),
            loss,
            is_id=~is_ood,
            classes=self.classes,
            max_loss=max_loss,
        )
        return values

    def sums(self, accepted, loss, is_ood):
        """Return summed acceptances of ID samples, with losses, of OOD; and numbers."""
        accepted = np.asarray(self.present(accepted), dtype=np.float64)
        if accepted.shape != is_ood.shape or not np.all(
            (accepted >= 0) & (accepted <= 1)
        ):
            raise ValueError(
                f"{self.owner}.accept_proba must return one number in "
                f"[0, 1] per sample, shape {is_ood.shape}; got shape {accepted.shape} "
                f"with values from {accepted.min()} to {accepted.max()}."
            )
        weight = self.weight
        weight = np.ones(is_ood.size, dtype=np.int64) if weight is None else weight
        n_ood = weight[is_ood].sum()
        n_id = weight[~is_ood].sum()
        accepted = accepted * weight
        N, E = accepted[~is_ood].sum(), accepted @ loss
        return N, E, accepted[is_ood].sum(), n_id, n_ood


@stored
class RuleScorer(WeightedScorer):
    """Scorer: minus the objective of a rule, with a penalty for violated bounds.

    `name` is the function that makes the scorer, and `shown` are the parameters of the
    rule in its order; none: the rule itself.
    """

    def __init__(
        self, name, rule, loss, ood_label, shown=(), max_loss=None, solver=None
    ):
        check_rule(rule)
        self._name = name
        self._rule = rule
        check_scored_loss(loss, max_loss)
        self._loss = loss
        self._max_loss = max_loss
        self._ood_label = ood_label
        self._shown = shown
        self._solver = None if solver is None else Solver._checked(solver)

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better."""
        final, X = unwrap(estimator, X)
        predict = labels_before_rejection(final)
        decides = hasattr(final, "accept_proba") and hasattr(final, "predict")
        if predict is None or not (decides or hasattr(final, "score_samples")):
            raise TypeError(
                f"{self!r} needs an estimator that accepts samples by accept_proba, "
                "such as skood.rejection.RejectOptionClassifier, or that scores them "
                "by score_samples; and either with the classifier whose errors are "
                f"counted in estimator_. Got {type(final).__name__}."
            )
        fold = ScoredFold(final, y, sample_weight, self._ood_label)
        check_kind(self._loss, is_nan(fold.ood_label), fold.owner)
        is_ood = ood_samples(
            fold.y,
            fold.ood_label,
            fold.classes,
            fold.owner,
            needs_ood=self._rule.needs_ood,
        )
        loss = fold.losses(predict(X), self._loss, self._max_loss, is_ood)
        evaluate = self._evaluate_decisions if decides else self._evaluate_scores
        objective, violation = evaluate(final, X, fold, is_ood, loss)
        if objective is not None:
            return -objective
        # The shift is the same for all candidates, and an upper bound of the objective.
        largest = largest_loss(
            fold.y, self._loss, ~is_ood, fold.classes, self._max_loss
        )
        cost = self._rule.cost()
        if cost is not None:  # each rate is at most 1, that of the loss `largest`
            gains = max(cost.id, 0), max(cost.loss, 0) * largest, max(cost.ood, 0)
            largest = cost.constant + sum(gains)
        return -(largest + violation)

    def _evaluate_decisions(self, estimator, X, fold, is_ood, loss):
        """Return the objective, or None and the violation, of the decisions."""
        N, E, F, n_id, n_ood = fold.sums(estimator.accept_proba(X), loss, is_ood)
        risk = E / N if N else np.nan
        fpr = F / n_ood if n_ood else np.nan
        violation = float(self._rule.violation(N / n_id, fpr, risk))
        objective = float(self._rule.objective(N, E, F, n_id, n_ood))
        if not N > 0:  # at least one sample is required, for any bound
            violation = np.nan_to_num(violation)
            violation += least_tpr(self._rule, n_id) - least_tpr(self._rule)
        return (None if violation > 0 else objective), violation

    def _evaluate_scores(self, estimator, X, fold, is_ood, loss):
        """Return the objective, or None and the violation, of the best threshold."""
        samples = reject_scores(
            np.where(is_ood, -1, 1),
            None,
            fold.present(estimator.score_samples(X)),
            None,
            loss,
            -1,
            None,
            needs_ood=self._rule.needs_ood,
            sample_weight=fold.weight,
        )
        point = search(self._rule, samples, self._solver)
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
        if self._solver is not None:
            shown.append(f"solver={self._solver!r}")
        return f"{self._name}({', '.join(shown)})"
