"""Scorers for searches and cross-validation: ranking metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import inspect
from difflib import get_close_matches

import numpy as np
from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRequest

from skood.metrics._ranking import aupr_in, aupr_out, auroc, detection_error, fpr_at_tpr
from skood.metrics._ranking_metrics import f1_at_tpr, max_f1, tnr_at_tpr
from skood.utils._labels import check_labels, is_nan, ood_mask
from skood.utils._metaestimators import (
    concept_columns,
    estimator_kind,
    known_classes,
    unwrap,
    warn_of_known_classes,
)
from skood.utils._stored import stored
from skood.utils._weights import check_weight

_COMPONENTS = ("epistemic", "aleatoric", "total")
_SCORES = ("ood", "risk")

# Methods with scores, the first that an estimator has is used.
_METHODS = ("score_samples", "score_pair", "predict_uncertainty")

# name: (metric, whether greater is better)
_METRICS = {
    "auroc": (auroc, True),
    "aupr_in": (aupr_in, True),
    "aupr_out": (aupr_out, True),
    "fpr_at_tpr": (fpr_at_tpr, False),
    "detection_error": (detection_error, False),
    "tnr_at_tpr": (tnr_at_tpr, True),
    "f1_at_tpr": (f1_at_tpr, True),
    "max_f1": (max_f1, True),
}


def scored_ood_label(estimator, ood_label):
    """Return the label of OOD samples for an estimator: NaN if it is a regressor."""
    return np.nan if estimator_kind(estimator) == "regressor" else ood_label


def ood_rows(y, ood_label, classes, owner, *, needs_ood=True):
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


class WeightedScorer:
    """Base class of scorers that take `sample_weight`, with metadata routing."""

    _request = None  # a str, the name under which weights are passed, or a bool

    def _accept_sample_weight(self):
        # asked by searches of scikit-learn if metadata routing is off
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


def _weights_of(sample_weight, rows):
    """Return arguments of a metric: the weights of some samples, if there are any."""
    if sample_weight is None:
        return {}
    return {"sample_weight": check_weight(sample_weight, len(rows))[rows]}


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
        is_ood = ood_rows(y, ood_label, known_classes(estimator, final), owner)
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
    given_here = ("y_true", "y_score", "ood_label", "classes", "sample_weight")
    allowed = [p for p in inspect.signature(metric).parameters if p not in given_here]
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
    ours = {function: name for name, (function, _) in _METRICS.items()}
    if isinstance(metric, functools.partial) and metric.func in ours:
        if metric.args:
            raise TypeError(
                f"metric={metric!r} fixes arguments by their position, where the "
                "labels and the scores go; fix parameters by name."
            )
        metric_params = {**metric.keywords, **metric_params}
        metric = metric.func
    if callable(metric):
        metric = ours.get(metric, metric)
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
        is_id = ~ood_rows(y, self._ood_label, final.classes_, owner, needs_ood=False)
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
    component : {"epistemic", "aleatoric", "total"}, default="epistemic"
        Which uncertainty of ``estimator.predict_uncertainty(X)`` should be high for
        errors.

    ood_label : int or str, default=-1
        Label of known OOD samples in `y`.

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
    >>> bool(cross_val_score(probe, X, y, scoring=scorer, cv=3).mean() > 0.6)
    True
    """
    _check_component(component)
    return _MisclassificationScorer(component, ood_label)
