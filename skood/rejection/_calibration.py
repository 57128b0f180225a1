"""Fit of the parts of a selective predictor, and its out-of-sample scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import operator
from contextlib import nullcontext
from functools import reduce
from numbers import Real

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import (
    MethodMapping,
    get_routing_for_object,
)
from sklearn.utils.parallel import delayed

from skood.decision import ScoredSamples
from skood.nn._shared_forward import (
    few_scores,
    predict,
    predict_proba,
    predicted_classes,
    read_alike,
    shared_blocks,
    shared_outputs,
    uses_network,
)
from skood.rejection._checks import check_is_classifier, check_is_regressor
from skood.rejection._inputs import NO_ARGUMENTS, Parts
from skood.rejection._regression_scores import bound_score, targets_of
from skood.utils._batches import is_lazy, loaded_blocks
from skood.utils._folds import calibration_folds, warn_of_training_samples
from skood.utils._input import named_errors
from skood.utils._labels import single_column
from skood.utils._memory_maps import in_memory, is_mapped
from skood.utils._metaestimators import bind, take_rows, with_seeds
from skood.utils._progress import in_parallel
from skood.utils._routing import router_of as router_of_parts
from skood.utils._warnings import warn


def router_of(owner):
    """Return the metadata routing of a selective predictor."""
    parts = {name: getattr(owner, name) for name in owner._part_names}
    given = {name: part for name, part in parts.items() if hasattr(part, "fit")}
    router = router_of_parts(owner, None, given)
    if hasattr(owner.calibration, "get_n_splits"):
        splits = MethodMapping().add(caller="fit", callee="split")
        router.add(method_mapping=splits, splitter=owner.calibration)
    return router


def fit_parts(parts, X, y, arguments=NO_ARGUMENTS):
    """Clone and fit the estimator, then the detectors, which may use it.

    A detector whose `estimator` is None uses the outputs of a fitted classifier.
    `arguments` are further arguments of each fit.
    """
    with named_errors(parts.estimator):
        estimator = clone(parts.estimator).fit(X, y, **arguments.estimator)
    check = check_is_regressor if parts.regression else check_is_classifier
    check(estimator, fitted=True)
    frozen = FrozenEstimator(estimator)
    bound = bound_score if parts.regression else bind
    detectors = [None if part is None else bound(part, frozen) for part in parts[1:]]
    shares = uses_network(estimator) and not is_lazy(X) and not is_mapped(X)
    found = type(parts)(estimator, *detectors)
    with _network_runs_once(found) if shares else nullcontext():
        fitted = []
        for part, given in zip(detectors, arguments[1:], strict=True):
            if part is not None:
                targets = targets_of(part, y) if parts.regression else y
                part = part.fit(X, targets, **given)
            fitted.append(part)
    return type(parts)(estimator, *fitted)


def _network_runs_once(parts):
    """Share the outputs of a network for the same samples, see `shared_outputs`."""
    detectors = [part for part in parts[1:] if part is not None]
    # without a risk detector it predicts classes and probabilities
    n_methods = 2 if parts.risk_detector is None else 1
    return shared_outputs(detectors, [parts.estimator] * n_methods)


def score_parts(parts, X):
    """Return risk scores and OOD scores (or None) of samples: high = reject."""
    return _outputs(parts, X, [_risk, _ood])


def predict_parts(parts, X):
    """Return risk scores, OOD scores (or None) and predictions of samples."""
    return _outputs(parts, X, [_risk, _ood, predicted_labels])


def _outputs(parts, X, functions):
    """Return functions of parts and samples; a network runs once for all of them."""
    if not uses_network(parts.estimator):
        return tuple(function(parts, X) for function in functions)
    found = _few_outputs(parts, X, functions)
    if found is not None:
        return found
    results = []
    with _network_runs_once(parts):
        for samples in loaded_blocks(X):
            for block in shared_blocks(samples):
                block = in_memory(block)
                results.append([function(parts, block) for function in functions])
    return tuple(
        None if blocks[0] is None else np.concatenate(blocks)
        for blocks in zip(*results, strict=True)
    )


def _few_outputs(parts, X, functions):
    """Return `_outputs` of a few samples, if the detectors use the network alone."""
    detectors = [part for part in parts[1:] if part is not None]
    if parts.risk_detector is None or not read_alike(detectors, parts.estimator):
        return None
    predicts = predicted_labels in functions
    found = few_scores(detectors, X, frozenset({"logits"} if predicts else ()))
    if found is None:
        return None
    scores, outputs = found
    ood = None if parts.ood_detector is None else -scores[:, 1]
    results = {_risk: -scores[:, 0], _ood: ood}
    if predicts:
        results[predicted_labels] = predicted_classes(parts.estimator, outputs.logits)
    return tuple(results[function] for function in functions)


def predicted_labels(parts, X):
    """Return the predictions of samples."""
    return single_column(predict(parts.estimator, X))


def _risk(parts, X):
    if parts.risk_detector is not None:
        return -parts.risk_detector.score_samples(X)
    if hasattr(parts.estimator, "predict_proba"):
        # 1 - max p is the sum of the others, which rounding of a maximum near 1 would
        # lose
        proba = np.array(predict_proba(parts.estimator, X), dtype=np.float64)
        proba[np.arange(len(proba)), proba.argmax(axis=1)] = 0.0
        return proba.sum(axis=1)
    raise ValueError(
        "risk_detector=None uses 1 - max probability, but "
        f"{type(parts.estimator).__name__} has no predict_proba. Pass a "
        "risk_detector such as skood.detectors.MaxLogit()."
    )


def _ood(parts, X):
    if parts.ood_detector is None:
        return None
    return -parts.ood_detector.score_samples(X)


def calibrate(parts, data, *, calibration, random_state, n_jobs):
    """Fit the parts and return out-of-sample scores.

    Returns the fitted parts; the indices of the ID and of the OOD samples of `data` in
    the order of their scores; the `ScoredSamples`, without losses, and predictions for
    ID samples; and the classes without a sample in the fit of the final parts. OOD
    samples are never fitted on.
    """
    X, y, X_ood, n_ood = data.X, data.y, data.X_ood, data.n_ood
    rng = check_random_state(random_state)
    if isinstance(calibration, str):  # "same"
        fitted = fit_parts(parts, X, y, data.arguments)
        rows = np.arange(len(y)), np.arange(n_ood)
        return fitted, rows, labeled_scores(fitted, X, X_ood), y[:0]
    _check_groups(calibration, data.groups)
    folds = calibration_folds(len(y), y, calibration, rng, data.groups)
    seeded = with_seeds(parts, None if random_state is None else rng)
    parts = type(parts)(*seeded)
    once = isinstance(calibration, Real) and calibration < 1
    unfitted = y[:0]
    if not (parts.regression or isinstance(parts.estimator, FrozenEstimator)):
        unfitted = _unfitted_classes(y, folds, once)
    ood_folds = _ood_folds(data, folds, rng)
    if once:
        ((train, held_out),), (ood,) = folds, ood_folds
        fitted = _fit_on(parts, data, train)
        scores = labeled_scores(fitted, take_rows(X, held_out), _some(X_ood, ood))
        return fitted, (held_out, ood), scores, unfitted
    calls = (
        delayed(_fit_and_score)(parts, data, train, test, _some(X_ood, rows))
        for (train, test), rows in zip(folds, ood_folds, strict=True)
    )
    scores = in_parallel(calls, [1] * len(folds), desc="folds", n_jobs=n_jobs)
    order = np.concatenate([test for _, test in folds]), np.concatenate(ood_folds)
    samples, predicted = zip(*scores, strict=True)
    scored = reduce(operator.add, samples), np.concatenate(predicted)
    return fit_parts(parts, X, y, data.arguments), order, scored, y[:0]


def _check_groups(calibration, groups):
    """Raise if a splitter needs groups that are not given."""
    if groups is not None or not hasattr(calibration, "get_n_splits"):
        return
    if get_routing_for_object(calibration).consumes("split", ["groups"]):
        raise ValueError(
            f"calibration={calibration!r} needs groups: call fit(X, y, groups=...). In "
            "a search or cross-validation turn on sklearn.set_config("
            "enable_metadata_routing=True) and use set_fit_request(groups=True) of "
            "this estimator."
        )


def _some(X, rows):
    """Return some samples, or None if there are none."""
    return take_rows(X, rows) if len(rows) else None


def _ood_folds(data, folds, rng):
    """Return the indices of the OOD samples that each fold scores.

    No sample is scored by models that were fitted on its group, if a fold has others.
    """
    if len(folds) == 1 and data.groups is None:
        return [np.arange(data.n_ood)]
    rows = rng.permutation(data.n_ood)
    if data.groups is None or not data.n_ood:
        return np.array_split(rows, len(folds))
    seen = [np.isin(data.groups_ood, data.groups[train]) for train, _ in folds]
    # the fold of each sample: in turn, the next one that has not seen its group
    turns = (np.arange(data.n_ood)[:, None] + np.arange(len(folds))) % len(folds)
    unseen = np.take_along_axis(~np.transpose(seen)[rows], turns, axis=1)
    fold = turns[np.arange(data.n_ood), unseen.argmax(axis=1)]
    if not unseen.any():
        raise ValueError(
            "No OOD samples are left to choose the rule: their groups "
            f"{np.unique(data.groups_ood)[:5].tolist()} have ID samples that the "
            "models are fitted on. Give OOD samples of other groups, or cross-fit the "
            "scores with calibration=5."
        )
    return [rows[unseen.any(axis=1) & (fold == k)] for k in range(len(folds))]


def _unfitted_classes(y, folds, once):
    """Return the classes whose samples are all held out by a fold, with a warning."""
    classes = np.unique(y)
    missing = [classes[~np.isin(classes, y[train])] for train, _ in folds]
    unfitted = np.unique(np.concatenate(missing))
    if len(unfitted):
        shown = ", ".join(repr(label) for label in unfitted[:5].tolist())
        shown += ", ..." if len(unfitted) > 5 else ""
        held_out = "All samples" if once else "In one of the folds, all samples"
        effect = "" if once else " by the models of this fold"
        warn(
            f"{held_out} of {len(unfitted)} of {len(classes)} classes ({shown}) are "
            f"held out: these classes are never predicted{effect}, and their held-out "
            "samples count as errors. Samples are drawn without regard to classes, as "
            "bounds on new data require. Give more samples of these classes, or hold "
            "out fewer: a smaller calibration share, or more folds."
        )
    return unfitted


def _fit_on(parts, data, train):
    """Fit the parts on some of the samples; errors mention missing classes."""
    y = data.y
    arguments = Parts(
        *(
            {name: values[train] for name, values in given.items()}
            for given in data.arguments
        )
    )
    try:
        return fit_parts(parts, take_rows(data.X, train), y[train], arguments)
    except Exception as error:
        n_classes, n_fitted = len(np.unique(y)), len(np.unique(y[train]))
        if n_fitted < n_classes and not parts.regression:
            error.add_note(
                f"The {len(train)} samples that are not held out have {n_fitted} of "
                f"the {n_classes} classes in y. Give more samples per class, or hold "
                "out fewer with a smaller calibration share or more folds."
            )
        raise


def _fit_and_score(parts, data, train, test, X_ood):
    fitted = _fit_on(parts, data, train)
    return labeled_scores(fitted, take_rows(data.X, test), X_ood)


def labeled_scores(fitted, X, X_ood):
    """Return scored samples, without losses, and predictions for the ID samples.

    Either of `X`, ID samples, and `X_ood` may be None.
    """
    none = None if fitted.ood_detector is None else np.empty(0)
    risk_id, ood_id, predicted = np.empty(0), none, np.empty(0)
    risk_ood, ood_ood = np.empty(0), none
    if X is not None:
        risk_id, ood_id, predicted = predict_parts(fitted, X)
        warn_of_training_samples(X, *fitted)
    if X_ood is not None:
        risk_ood, ood_ood = score_parts(fitted, X_ood)
    scores = risk_id, ood_id, np.zeros(len(risk_id)), risk_ood, ood_ood
    return ScoredSamples.from_arrays(*scores), predicted
