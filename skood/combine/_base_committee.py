"""Base class of ensembles of detectors: fits, scores and calibration of the members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from collections import defaultdict
from itertools import chain, starmap
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, check_random_state, get_tags
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.parallel import Parallel, delayed

from skood.base import BaseDetector
from skood.nn._shared_forward import (
    NetworkPlan,
    network_groups,
    shared_blocks,
    shared_outputs,
)
from skood.utils._folds import calibration_folds, check_same, warn_of_training_samples
from skood.utils._labels import check_nested_ood_labels
from skood.utils._left_out import unused_thresholds
from skood.utils._metaestimators import (
    bind,
    copy_input_attributes,
    join_input_tags,
    n_rows,
    take_rows,
    with_seeds,
)
from skood.utils._named_estimators import check_parts, named_parts
from skood.utils._param_validation import Classifier, HasMethods, Interval, StrOptions
from skood.utils._progress import in_parallel
from skood.utils._routing import weight_params
from skood.utils._ties import loosened

# Methods of the members.
METHODS = ("fit", "score_samples")


class Fold(NamedTuple):
    """Indices of the samples of one committee."""

    train: np.ndarray | None  # None: all
    held_out: np.ndarray
    counts: np.ndarray | None = None  # of each held-out sample; None: 1

    def training(self, X):
        """Return the training samples of `X`, None if it is None."""
        return X if self.train is None or X is None else take_rows(X, self.train)

    def repeated(self, values, subset=slice(None)):
        """Return values of a subset of the held-out samples, repeated by counts."""
        values = values[subset]
        if self.counts is None:
            return values
        return np.repeat(values, self.counts[subset], axis=0)


class BaseCommittee(_BaseComposition, BaseDetector):
    """Base class of detectors fitted on the same folds, scored on held-out samples.

    A subclass implements ``_calibrate(X, folds, scores, rng)``, with the scores
    (n_held_out, n_members) of each fold. Its parameters include those in the
    constraints below. It may override ``_check_members``, to raise before the fit, and
    ``_folds``. A sample is OOD if its level or p-value, whose logarithm is its score,
    is at most `alpha`.
    """

    _parameter_constraints: dict = {
        "detectors": "no_validation",  # validated by check_parts
        "estimator": [Classifier(), None],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "calibration": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),  # a str has split
            StrOptions({"same"}),
        ],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
        "ood_label": [Integral, str],
    }

    _learns = False

    # Candidates of a search share them, see `DetectorEnsemble.__skood_share__`.
    _in_parallel: Any = staticmethod(in_parallel)
    _calibration_folds: Any = staticmethod(calibration_folds)

    # Plans of the networks of the members, which files do not contain.
    _plans: Any = None

    detectors: Any
    estimator: Any
    alpha: Any
    calibration: Any
    n_jobs: Any
    verbose: Any
    random_state: Any

    def get_params(self, deep=True):
        """Get the parameters, including the detectors by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the detectors, and their parameters.

        Returns
        -------
        params : dict
            Values by name.
        """
        if not isinstance(self.detectors, (list, tuple)):
            return super().get_params(deep=deep)
        return self._get_params("detectors", deep=deep)

    def set_params(self, **params):
        """Set parameters, detectors by name, or parameters of detectors.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The estimator.
        """
        return self._set_params("detectors", **params)

    def _fit(self, X, y, sample_weight=None):
        names, detectors = self._named_members()
        self._check_members(names, detectors, y)
        weights, counts = self._member_weights(names, detectors, sample_weight)
        rng = check_random_state(self.random_state)
        folds = self._folds(len(names), n_rows(X), y, counts, rng)
        seeds = None if self.random_state is None else rng
        estimator, *detectors = with_seeds([self.estimator, *detectors], seeds)
        estimators = self._fit_estimators(estimator, folds, X, y, weights[None])
        # the fold and the indices of the members that use one network, as one job
        tasks, calls, sizes = [], [], []
        committees: list = []
        scores: list = []
        for k, (inner, fold) in enumerate(zip(estimators, folds, strict=True)):
            committees.append([None] * len(names))
            scores.append(np.empty((len(fold.held_out), len(names))))
            members = detectors
            if inner is not None:
                is_frozen = isinstance(inner, FrozenEstimator)
                inner = inner if is_frozen else FrozenEstimator(inner)
                members = [bind(detector, inner) for detector in detectors]
            for group in network_groups(members):
                jobs = [names[i] for i in group], [members[i] for i in group]
                calls.append(delayed(_fit_group)(*jobs, weights, X, y, fold))
                tasks.append((k, group))
                sizes.append(len(group))
        results = self._in_parallel(
            calls, sizes, desc="members", n_jobs=self.n_jobs, verbose=self.verbose
        )
        for (k, group), (fitted, group_scores) in zip(tasks, results, strict=True):
            scores[k][:, group] = group_scores
            for i, detector in zip(group, fitted, strict=True):
                committees[k][i] = detector
        warn_of_training_samples(X, *committees[0], indices=folds[0].held_out)
        self._store_members(names, committees, [estimators[0], *committees[0]], y)
        self._alpha = float(self.alpha)
        # a level that equals alpha up to rounding is rejected
        self.offset_ = float(np.log(loosened(self._alpha)))
        self._calibrate(X, folds, scores, rng)

    def _named_members(self):
        """Return the names and detectors that are not "drop", or raise."""
        return check_parts(self, "detectors", METHODS)

    def _check_members(self, names, detectors, y):
        """Raise, before a long fit, errors that would otherwise occur after it."""
        if isinstance(self.calibration, str):
            check_same(names, detectors)
        if y is not None:
            for name, detector in zip(names, detectors, strict=True):
                check_nested_ood_labels(name, detector, y, type(self).__name__)
        elif self._fits_estimator and get_tags(self.estimator).target_tags.required:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                f"None: it fits estimator={self.estimator!r}. Pass class labels, or a "
                "fitted classifier inside sklearn.frozen.FrozenEstimator."
            )

    def _member_weights(self, names, detectors, sample_weight):
        """Return keyword arguments of the fits of the estimator (None) and the members.

        Members that take no weights are fitted without. Also returns the weights as
        counts of the samples, or None; raise if these are no integers.
        """
        if sample_weight is None:
            return defaultdict(dict), None
        pairs = [(None, self.estimator), *zip(names, detectors, strict=True)]
        weights = {
            key: {}
            if estimator is None
            else weight_params(
                self, key or "estimator", estimator, sample_weight, required=False
            )
            for key, estimator in pairs
        }
        counts = sample_weight.astype(np.intp)
        if (counts != sample_weight).any():
            raise ValueError(
                f"sample_weight of {type(self).__name__} must be integers, the numbers "
                "of times that samples were observed, got "
                f"{sample_weight[counts != sample_weight][0]:g}: p-values are ranks "
                "among calibration samples. For other weights fit the members with "
                "them, put them in sklearn.frozen.FrozenEstimator, and leave "
                "sample_weight out here."
            )
        return weights, counts

    def _folds(self, n_members, n_samples, y, counts, rng):
        """Return the folds; each sample counts as many times as `counts` gives."""
        folds = self._calibration_folds(n_samples, y, self.calibration, rng)
        return [
            Fold(train, held_out, None if counts is None else counts[held_out])
            for train, held_out in folds
        ]

    def _fit_estimators(self, estimator, folds, X, y, weights):
        """Return the estimator of each fold: fitted, frozen, or None."""
        if estimator is None:
            return [None] * len(folds)
        estimators = [estimator] * len(folds)
        if self._fits_estimator:
            fit = delayed(_fit_estimator)
            calls = (fit(estimator, X, y, weights, fold) for fold in folds)
            options = {"n_jobs": self.n_jobs, "verbose": self.verbose}
            sizes = [1] * len(folds)
            estimators = self._in_parallel(calls, sizes, desc="folds", **options)
        self.estimator_ = estimators[0]
        return estimators

    def _store_members(self, names, committees, fitted, y):
        """Store the members, and attributes of the first `fitted` that has them."""
        self._committees = committees
        self.named_detectors_ = Bunch(**dict(zip(names, committees[0], strict=True)))
        self._plans = self._planned()
        for estimator in reversed(fitted):
            if estimator is not None:
                copy_input_attributes(self, estimator)
        if y is None:
            for estimator in fitted:
                if hasattr(estimator, "classes_"):
                    self.classes_ = np.asarray(estimator.classes_)
                    break

    def _planned(self):
        """Return indices of all members on one network, and its plan, per network.

        All at once, since committees may use the same network.
        """
        members = list(chain(*self._committees))
        plans = []
        for group in network_groups(members):
            plans.append((group, NetworkPlan(None, [*map(members.__getitem__, group)])))
        return plans

    def __getstate__(self):
        state = super().__getstate__()
        return {**state, "_plans": None} if "_plans" in state else state

    @abstractmethod
    def _calibrate(self, X, folds, scores, rng):
        """Calibrate on the scores of the held-out samples of each fold."""

    def _member_scores(self, X):
        """Return scores by each committee, (n_folds, n_samples, n_members)."""
        if self._plans is None:  # of a file
            self._plans = self._planned()
        n_folds = len(self._committees)
        names = list(self.named_detectors_) * n_folds
        scores = np.empty((n_rows(X), len(names)))
        tasks = []
        for group, plan in self._plans:
            tasks.append((X, list(map(names.__getitem__, group)), plan))
        # joblib is slow for a sample
        if len(tasks) == 1 or effective_n_jobs(self.n_jobs) == 1:
            results = starmap(_score_group, tasks)
        else:
            results = Parallel(n_jobs=self.n_jobs)(
                starmap(delayed(_score_group), tasks)
            )
        for (group, _), columns in zip(self._plans, results, strict=True):
            scores[:, group] = columns
        return scores.reshape(len(scores), n_folds, -1).transpose(1, 0, 2)

    def _pairs(self):
        """Return names and detectors, or the parameter that is a single detector."""
        if isinstance(self.detectors, (list, tuple)):
            return named_parts(self.detectors)
        return [("detectors", self.detectors)]

    def _fitted_parts(self):
        return {**super()._fitted_parts(), **dict(self._pairs())}

    @property
    def _fits_estimator(self):
        return self.estimator is not None and not isinstance(
            self.estimator, FrozenEstimator
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = [
            get_tags(detector)
            for _, detector in self._pairs()
            if hasattr(detector, "get_params")
        ]
        join_input_tags(tags, inner)
        if self._fits_estimator:
            inner.append(get_tags(self.estimator))
        tags.target_tags.required = any(each.target_tags.required for each in inner)
        tags.non_deterministic = any(each.non_deterministic for each in inner)
        return tags


def _fit_clone(estimator, X, y, weights, fold):
    """Fit a clone on training samples; a frozen one is passed `y` also if it is None.

    `weights` are keyword arguments, of all samples.
    """
    for name in weights:
        weights = {**weights, name: fold.training(weights[name])}
    estimator = clone(estimator)
    if y is None and not isinstance(estimator, FrozenEstimator):
        return estimator.fit(X, **weights)
    return estimator.fit(X, y, **weights)


def _fit_estimator(estimator, X, y, weights, fold):
    return _fit_clone(estimator, fold.training(X), fold.training(y), weights, fold)


def _fit_group(names, detectors, weights, X, y, fold):
    """Fit members that use the same network, and score the held-out samples."""
    X_train, y_train = fold.training(X), fold.training(y)
    fitted = []
    with shared_outputs(detectors), unused_thresholds():
        for name, detector in zip(names, detectors, strict=True):
            try:
                fitted.append(
                    _fit_clone(detector, X_train, y_train, weights[name], fold)
                )
            except Exception as error:
                error.add_note(f"This happened in fitting the member {name!r}.")
                raise
    plan = NetworkPlan(None, fitted)
    return fitted, _score_group(take_rows(X, fold.held_out), names, plan)


def _score_group(X, names, plan):
    """Score samples by members that use the same network, which runs once."""
    columns = plan.direct(X)
    if columns is not None:  # else a member is named in the error
        return np.stack(columns, axis=1)
    blocks, detectors = [], plan.detectors
    with shared_outputs((), known_uses=plan.uses):
        for chunk in shared_blocks(X, len(detectors)):
            block = np.empty((n_rows(chunk), len(detectors)))
            for j, (name, detector) in enumerate(zip(names, detectors, strict=True)):
                try:
                    scores = np.asarray(detector.score_samples(chunk), dtype=np.float64)
                except Exception as error:
                    error.add_note(
                        f"This happened in scoring with the member {name!r}."
                    )
                    raise
                if scores.shape != (len(block),):
                    raise ValueError(
                        f"The member {name!r} gave scores of shape {scores.shape} for "
                        f"{len(block)} samples: score_samples must return one score "
                        "per sample."
                    )
                block[:, j] = scores
            if np.isnan(block).any():
                n_missing = np.isnan(block).sum(axis=0)
                j = np.flatnonzero(n_missing)[0]
                raise ValueError(
                    f"The member {names[j]!r} gave NaN as the score of {n_missing[j]} "
                    f"of {len(block)} samples, and a missing score has no p-value. "
                    "Repair the member, or leave it out."
                )
            blocks.append(block)
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
