"""Scores for choosing a rule: on rows that the models were not fitted on."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from skood.base import n_rows, take_rows

__all__ = ["Parts", "Scores", "bind", "calibrate", "fit_parts", "score_parts"]


class Parts(NamedTuple):
    """The fitted models of a selective classifier; a detector may be None."""

    estimator: object
    risk_detector: object | None
    ood_detector: object | None


class Scores(NamedTuple):
    """What a rule is chosen on: both scores (high = reject) and predictions.

    `ood_id` and `ood_ood` are None without an OOD detector.
    """

    risk_id: np.ndarray
    ood_id: np.ndarray | None
    pred_id: np.ndarray
    risk_ood: np.ndarray
    ood_ood: np.ndarray | None


def fit_parts(parts, X, y):
    """Clone and fit the classifier, then the detectors, which may read it.

    A detector whose `estimator` is None reads the classifier that was just fitted.
    """
    estimator = clone(parts.estimator).fit(X, y)
    frozen = FrozenEstimator(estimator)
    return Parts(
        estimator,
        *(
            None if detector is None else bind(detector, frozen).fit(X, y)
            for detector in parts[1:]
        ),
    )


def bind(detector, estimator):
    """Clone a detector; if its own `estimator` is None, it shall read `estimator`."""
    detector = clone(detector)
    if detector.get_params(deep=False).get("estimator", "absent") is None:
        detector.set_params(estimator=estimator)
    return detector


def score_parts(parts, X):
    """Return the risk score and the OOD score (or None) of each row: high = reject."""
    if parts.risk_detector is not None:
        risk = -parts.risk_detector.score_samples(X)
    elif hasattr(parts.estimator, "predict_proba"):
        # 1 - max p as the sum of the others, which a maximum near 1 would round away
        proba = np.array(parts.estimator.predict_proba(X), dtype=np.float64)
        proba[np.arange(len(proba)), proba.argmax(axis=1)] = 0.0
        risk = proba.sum(axis=1)
    else:
        raise ValueError(
            "risk_detector=None uses 1 - max probability, but "
            f"{type(parts.estimator).__name__} has no predict_proba. Pass a "
            "risk_detector such as skood.detectors.MaxLogit()."
        )
    if parts.ood_detector is None:
        return risk, None
    return risk, -parts.ood_detector.score_samples(X)


def calibrate(parts, X, y, X_ood, *, calibration, random_state, n_jobs):
    """Fit the parts and score rows that they were not fitted on.

    Parameters
    ----------
    parts : Parts
        Unfitted, or frozen.

    X, y : array-like of shape (n_id, ...), ndarray of shape (n_id,)
        ID rows.

    X_ood : array-like of shape (n_ood, ...) or None
        OOD rows, used for scoring only.

    calibration, random_state, n_jobs
        See `RejectOptionClassifier`.

    Returns
    -------
    parts : Parts
        The fitted parts.

    order : ndarray of int
        The rows of `X` in the order in which they were scored.

    scores : Scores
        Scores and predictions of these rows, and of the OOD rows.
    """
    n_id = len(y)
    if isinstance(calibration, str):  # "same"
        fitted = fit_parts(parts, X, y)
        return fitted, np.arange(n_id), _score(fitted, X, X_ood)
    rng = check_random_state(random_state)
    if isinstance(calibration, Real) and not float(calibration).is_integer():
        train, held_out = train_test_split(
            np.arange(n_id), test_size=calibration, stratify=y, random_state=rng
        )
        fitted = fit_parts(parts, take_rows(X, train), y[train])
        return fitted, held_out, _score(fitted, take_rows(X, held_out), X_ood)
    folds = list(check_cv(calibration, y, classifier=True).split(X, y))
    ood_folds = [None] * len(folds)
    if X_ood is not None:
        ood_rows = rng.permutation(n_rows(X_ood))
        ood_folds = [
            take_rows(X_ood, rows) if len(rows) else None
            for rows in np.array_split(ood_rows, len(folds))
        ]
    scores = Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_score)(parts, X, y, train, test, rows)
        for (train, test), rows in zip(folds, ood_folds, strict=True)
    )
    order = np.concatenate([test for _, test in folds])
    return fit_parts(parts, X, y), order, _joined(scores)


def _fit_and_score(parts, X, y, train, test, X_ood):
    fitted = fit_parts(parts, take_rows(X, train), y[train])
    return _score(fitted, take_rows(X, test), X_ood)


def _score(fitted, X, X_ood):
    risk_id, ood_id = score_parts(fitted, X)
    risk_ood, ood_ood = np.empty(0), None if ood_id is None else np.empty(0)
    if X_ood is not None:
        risk_ood, ood_ood = score_parts(fitted, X_ood)
    return Scores(risk_id, ood_id, fitted.estimator.predict(X), risk_ood, ood_ood)


def _joined(scores):
    return Scores(
        *(
            None if fold[0] is None else np.concatenate(fold)
            for fold in zip(*scores, strict=True)
        )
    )
