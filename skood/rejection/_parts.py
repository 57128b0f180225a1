"""Estimator and detectors of a selective predictor: their fit, and their scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections import namedtuple
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import delayed
from sklearn.utils.validation import check_consistent_length

from skood.decision import ScoredSamples
from skood.nn._shared_forward import NetworkPlan, shared_outputs
from skood.rejection._regression_scores import (
    DecisionLoss,
    LossModel,
    RegressionScore,
    bound_score,
    targets_of,
)
from skood.utils._batches import is_lazy
from skood.utils._folds import calibration_folds, warn_of_training_samples
from skood.utils._input import named_errors
from skood.utils._labels import (
    check_id_mask,
    check_nested_ood_labels,
    checked_ood_mask,
    column,
    is_nan,
    single_column,
    sortable_labels,
)
from skood.utils._memory_maps import is_mapped
from skood.utils._metaestimators import (
    bind,
    estimator_kind,
    take_rows,
    unwrap,
    unwrapped,
    with_seeds,
)
from skood.utils._progress import in_parallel
from skood.utils._routing import weight_params
from skood.utils._stored import stored
from skood.utils._warnings import warn
from skood.utils._weights import check_weight, row_weight

_NO_ARGUMENTS: tuple = ({}, {}, {})

#: Names of the risk score without a detector, for a `LossTable`, and without one.
RISK_NAMES = "expected loss of the decision", "1 - max probability"


class LabeledSamples(NamedTuple):
    """Samples of positive weight of a fit: `X` and `y` are ID samples.

    Weights, groups and sources of shape (n_id,) and (n_ood,) may be None; `arguments`
    pass them to the fits of the parts.
    """

    X: object
    y: np.ndarray
    X_ood: object | None
    n_ood: int
    weight: np.ndarray | None
    weight_ood: np.ndarray | None
    groups: np.ndarray | None
    groups_ood: np.ndarray | None
    source_ood: np.ndarray | None
    arguments: tuple = _NO_ARGUMENTS

    @classmethod
    def of(cls, X, y, sample_weight, groups, ood_source, ood_label, needs_id=True):
        """Separate the ID and the OOD samples of positive weight.

        If no sample is ID, this raises, unless `needs_id` is false.
        """
        check_consistent_length(X, y, groups, ood_source)
        is_id = (
            check_id_mask(y, ood_label) if needs_id else ~checked_ood_mask(y, ood_label)
        )
        is_ood = ~is_id
        weight = check_weight(sample_weight, len(y))
        if weight is not None:
            is_id, is_ood = is_id & (weight > 0), is_ood & (weight > 0)
            if not is_id.any():
                raise ValueError(
                    "sample_weight is zero for all ID samples: only samples labeled "
                    f"ood_label={ood_label!r} have a weight."
                )
        X_id, X_ood, y_id = X, None, y[is_id]
        if not is_id.all():
            X_id = take_rows(X, np.flatnonzero(is_id))
        if is_ood.any():
            X_ood = take_rows(X, np.flatnonzero(is_ood))
        if not is_nan(ood_label) and y_id.size:
            y_id = sortable_labels(y_id)  # mixed with a string ood_label
            check_classification_targets(y_id)
        groups = None if groups is None else column(groups)
        source = None if ood_source is None else column(ood_source)
        return cls(
            X_id,
            y_id,
            X_ood,
            int(is_ood.sum()),
            weight=row_weight(weight, is_id),
            weight_ood=row_weight(weight, is_ood),
            groups=row_weight(groups, is_id),
            groups_ood=row_weight(groups, is_ood),
            source_ood=row_weight(source, is_ood),
        )

    def check_guarantee(self, guarantee, solver, certificate, is_classifier):
        """Raise if samples or options exclude the guarantee, or need one."""
        if certificate is None:
            if self.source_ood is not None:
                raise ValueError(
                    "ood_source is for a guarantee, which holds for each source of OOD "
                    "samples. Set guarantee='high_probability', or leave ood_source "
                    "out."
                )
            return
        solver._check_certifiable()
        within = certificate.within
        if within == "groups" and self.groups is None:
            raise ValueError(
                "Certificate(within='groups') needs a group for each sample: call "
                "fit(X, y, groups=...). In a search or cross-validation turn on "
                "sklearn.set_config(enable_metadata_routing=True) and use "
                "set_fit_request(groups=True) of this estimator."
            )
        if within in ("class", "predicted_class") and not is_classifier:
            raise ValueError(
                f"Certificate(within={within!r}) is for classifiers; a regressor has "
                "no classes. Use within='groups'."
            )
        if certificate.thresholds == "group" and within not in (
            "groups",
            "predicted_class",
        ):
            raise ValueError(
                f"Certificate(thresholds='group') needs groups that are available in "
                f"predict: within='groups' or 'predicted_class', got within={within!r}."
            )
        self._check_independent(guarantee, within)

    def _check_independent(self, guarantee, within):
        """Raise if samples are not independent draws, which a guarantee requires."""
        if self.weight is not None:
            raise ValueError(
                f"guarantee={guarantee!r} and sample_weight exclude each other: a "
                "bound counts independent samples. Repeats of a sample, which whole "
                "weights stand for, are not independent, and with other weights the "
                "fraction of samples is not the fraction at deployment. Leave one of "
                "them out."
            )
        groups = self.groups
        if within == "groups" or groups is None:
            return
        if len(np.unique(groups)) < len(groups):
            raise ValueError(
                f"guarantee={guarantee!r} requires independent samples, but groups "
                f"has {len(np.unique(groups))} groups of {len(groups)} ID samples. "
                "Give one sample of each group, or leave the guarantee out. If samples "
                "of one group are independent too, and bounds are to hold within every "
                "group, use guarantee=Certificate(within='groups')."
            )


@stored
class CalibrationRecord(NamedTuple):
    """Samples on which a rule was chosen.

    ``within`` is the kind of groups, ``n_certificates`` counts the certificates that
    were tried, with ``cross_fitted`` several models computed the scores, and with
    ``accepted_only`` the rule accepts all samples.
    """

    samples: ScoredSamples
    within: str | None = None
    cross_fitted: bool = False
    accepted_only: bool = False
    n_certificates: int = 1


def is_cross_fitted(calibration):
    """Return whether several models compute the scores for this `calibration`."""
    once = isinstance(calibration, Real) and calibration < 1
    return not (once or isinstance(calibration, str))


def followed_by(stored_samples, fresh):
    """Return stored samples and fresh ones after them, or raise if labels differ."""
    sizes = list(zip(stored_samples.sizes, fresh.sizes, strict=True))
    for name, label in (("group", "groups"), ("source", "ood_source")):
        pairs = zip(stored_samples.by_kind(name), fresh.by_kind(name), strict=True)
        for (old, new), (n_old, n_new) in zip(pairs, sizes, strict=True):
            if n_old and n_new and (old is None) != (new is None):
                raise ValueError(
                    f"The {'stored' if old is None else 'given'} samples have no "
                    f"{label}, but the others have: give {label} in each call of fit, "
                    "with_rule and recalibrate, or in none."
                )
    return stored_samples + fresh


class Parts(namedtuple("Parts", "estimator risk_detector ood_detector")):
    """Classifier and detectors of a selective classifier; a detector may be None."""

    #: Parameters that hold them.
    names: tuple = ("estimator", "risk_detector", "ood_detector")

    #: Classes all whose samples were held out of the fit.
    unfitted: Any = ()

    #: A `LossTable`; None: zero-one losses of what the estimator predicts.
    table: Any = None

    #: Kind of the estimator, and texts of errors for others.
    kind = "classifier"
    remedies: dict = {
        "regressor": "Use a classifier, such as RidgeClassifier for Ridge",
        "outlier_detector": "Pass a detector as ood_detector or risk_detector",
    }
    fitted_names: tuple = ("classes_", "predict")
    lacks = (
        "has no classes_, or no predict. Use a classifier; wrap a trained torch module "
        "with skood.nn.pretrained(module, classes=...)"
    )

    def like(self, estimators):
        """Return these parts with other estimators, such as fitted ones."""
        parts = type(self)(*estimators)
        parts.table = self.table
        return parts

    @cached_property
    def plan(self):
        """How the detectors share the network of the fitted estimator."""
        detectors = [detector for detector in self[1:] if detector is not None]
        return NetworkPlan(self.estimator, detectors)

    # --- checks -------------------------------------------------------------------

    @classmethod
    def check_estimator(cls, estimator, *, fitted=False):
        """Raise a TypeError unless the estimator is of this kind, `fitted` or not."""
        kind = estimator_kind(estimator)
        if kind not in (cls.kind, None):
            remedy = cls.remedies.get(kind, f"Use a {cls.kind}")
            raise TypeError(
                f"estimator must be a {cls.kind}, got the {kind.replace('_', ' ')} "
                f"{estimator!r}. {remedy}."
            )
        for name in cls.fitted_names if fitted else ():
            if not hasattr(estimator, name):
                raise TypeError(
                    f"estimator must be a {cls.kind}, but the fitted "
                    f"{type(estimator).__name__} {cls.lacks}."
                )

    def checked(self, data):
        """Return the parts; raise if an `ood_label` of one would exclude a class."""
        for name, estimator in zip(self.names, self, strict=True):
            if estimator is not None:
                owner = "RejectOptionClassifier"
                check_nested_ood_labels(name, estimator, data.y, owner)
        return self

    def learning(self):
        """Return the names of the parts that are fitted on samples."""
        return [
            name
            for name, part in zip(self.names, self, strict=True)
            if not (part is None or isinstance(part, FrozenEstimator))
            and getattr(part, "_fits_samples", True)
        ]

    def check_plug_in(self, rule):
        """Raise if a rule takes a risk score for the expected loss that is none."""
        losses = None if self.table is None else self.table.losses
        plain = losses is None or np.array_equal(losses, 1 - np.eye(len(losses)))
        if not plain or isinstance(unwrapped(self.risk_detector), DecisionLoss):
            raise _no_expected_loss(rule, "risk_detector")

    def arguments(self, owner, data):
        """Return the arguments that pass weights and groups to the fits of the parts.

        Groups are for a model of cross-validated losses alone.
        """
        if data.weight is None and data.groups is None:
            return {}, {}, {}
        every, learning = [], self.learning()
        for name, estimator in zip(self.names, self, strict=True):
            arguments = {}
            if data.weight is not None and name in learning:
                arguments = _weight_argument(owner, name, estimator, data.weight)
            if data.groups is not None and getattr(estimator, "_splits_groups", False):
                arguments = {**arguments, "groups": data.groups}
            every.append(arguments)
        return tuple(every)

    def inputs(self):
        """Return "estimator" or "X" for each detector, by "risk" and "ood"."""
        inputs = {}
        for name, detector in zip(("risk", "ood"), self[1:], strict=True):
            if detector is not None:
                inputs[name] = "estimator" if self._uses_outputs(detector) else "X"
        return inputs

    def _uses_outputs(self, detector):
        """Return whether a detector has an `estimator` that is None."""
        return detector.get_params(deep=False).get("estimator", "absent") is None

    def described(self, inputs):
        """Return a line for a report on each score, from `inputs` of the fit."""
        classifier = type(unwrap(self.estimator)[0]).__name__
        lines = {"risk": f"{RISK_NAMES[self.table is None]} of {classifier}"}
        for name, detector in zip(("risk", "ood"), self[1:], strict=True):
            if detector is None:
                continue
            if hasattr(detector, "_described"):
                lines[name] = detector._described(classifier)
                continue
            used = "X" if inputs.get(name) == "X" else f"the outputs of {classifier}"
            lines[name] = f"{type(unwrap(detector)[0]).__name__} on {used}"
        return lines

    # --- the fit ------------------------------------------------------------------

    #: Copies a detector, and gives it the fitted estimator if it has none.
    _bound: Callable = staticmethod(bind)

    def fit(self, data, train=None):
        """Clone and fit the estimator, then the detectors, which may use it.

        A detector whose `estimator` is None uses the outputs of a fitted classifier.
        `train` are indices of the samples, None: all.
        """
        X, y, arguments = data.X, data.y, data.arguments
        if train is not None:
            X, y = take_rows(X, train), y[train]
            if any(arguments):
                arguments = [
                    {name: values[train] for name, values in each.items()}
                    for each in arguments
                ]
        try:
            with named_errors(self.estimator):
                estimator = clone(self.estimator).fit(X, y, **arguments[0])
            self.check_estimator(estimator, fitted=True)
            frozen = FrozenEstimator(estimator)
            fitted, detectors, is_shared = [estimator, None, None], {}, False
            for i, detector in enumerate(self[1:], start=1):
                if detector is not None:
                    detectors[i] = detector = self._bound(detector, frozen)
                    is_shared |= getattr(detector, "estimator", None) is not frozen
            # a single detector of the fitted estimator runs it once anyway
            is_shared |= len(detectors) > 1
            is_shared = is_shared and not is_lazy(X) and not is_mapped(X)
            every = detectors.values()
            with shared_outputs(every) if is_shared else nullcontext():
                for i, detector in detectors.items():
                    targets = self._targets(detector, y)
                    fitted[i] = detector.fit(X, targets, **arguments[i])
            return self.like(fitted)
        except Exception as error:
            if train is not None:
                self._explain_failure(error, data.y, train)
            raise

    def _targets(self, detector, y):
        """Return the targets on which a detector is fitted."""
        return y

    def fit_and_score(self, data, calibration, random_state, n_jobs, together=False):
        """Return fitted parts, indices of samples, and their out-of-sample `outputs`.

        The indices are of ID and of OOD samples of `data`, in the order of the outputs,
        which are as of `labeled_scores`. OOD samples are never fitted on. If samples
        are drawn `together`, a fraction is held out of all of them, and other OOD
        samples are left out.
        """
        X, y, X_ood, n_ood = data.X, data.y, data.X_ood, data.n_ood
        rng = check_random_state(random_state)
        if isinstance(calibration, str):  # "same"
            fitted = self.fit(data)
            indices = np.arange(len(y)), np.arange(n_ood)
            return fitted, indices, fitted.labeled_scores(X, X_ood)
        _check_groups(calibration, data.groups)
        if together:
            n_id, n_all = len(y), len(y) + n_ood
            ((train, test),) = calibration_folds(n_all, None, calibration, rng)
            folds = [(train[train < n_id], test[test < n_id])]
            ood_folds = [test[test >= n_id] - n_id]
            if not all(map(len, folds[0])):
                raise ValueError(
                    f"calibration={calibration} leaves no ID samples on one side. Give "
                    "more samples, or frozen parts and calibration='same'."
                )
        else:
            folds = calibration_folds(len(y), y, calibration, rng, data.groups)
        parts = self.like(with_seeds(self, None if random_state is None else rng))
        once = not is_cross_fitted(calibration)
        unfitted = parts._unfitted_classes(y, folds, once)
        if not together:
            ood_folds = _ood_folds(data, folds, rng)
        if once:
            ((train, held_out),), (ood,) = folds, ood_folds
            fitted = parts.fit(data, train)
            fitted.unfitted = unfitted
            X_ood = take_rows(X_ood, ood) if len(ood) else None
            outputs = fitted.labeled_scores(take_rows(X, held_out), X_ood)
            return fitted, (held_out, ood), outputs
        calls = (
            delayed(parts._fold_scores)(data, train, test, ood)
            for (train, test), ood in zip(folds, ood_folds, strict=True)
        )
        scored = in_parallel(calls, [1] * len(folds), desc="folds", n_jobs=n_jobs)
        outputs = [
            None if of_folds[0] is None else np.concatenate(of_folds)
            for of_folds in zip(*scored, strict=True)
        ]
        indices = np.concatenate([test for _, test in folds]), np.concatenate(ood_folds)
        return parts.fit(data), indices, outputs

    def _fold_scores(self, data, train, test, ood):
        """Return the scores of a fold, by parts that are fitted without it."""
        X_ood = take_rows(data.X_ood, ood) if len(ood) else None
        fitted = self.fit(data, train)
        return fitted.labeled_scores(take_rows(data.X, test), X_ood)

    def _explain_failure(self, error, y, train):
        """Add a note to an error of a fit without all classes."""
        n_classes, n_fitted = len(np.unique(y)), len(np.unique(y[train]))
        if n_fitted < n_classes:
            error.add_note(
                f"The {len(train)} samples that are not held out have {n_fitted} of "
                f"the {n_classes} classes in y. Give more samples per class, or hold "
                "out fewer with a smaller calibration fraction or more folds."
            )

    def _unfitted_classes(self, y, folds, once):
        """Return the classes whose samples are all held out by a fold; warn of them."""
        if isinstance(self.estimator, FrozenEstimator):
            return ()
        classes = np.unique(y)
        is_fitted = np.ones(len(classes), dtype=bool)
        for train, _ in folds:
            is_fitted &= np.isin(classes, y[train])
        if is_fitted.all():
            return ()
        unfitted = classes[~is_fitted]
        shown = ", ".join(repr(label) for label in unfitted[:5].tolist())
        shown += ", ..." if len(unfitted) > 5 else ""
        held_out = "All samples" if once else "In one of the folds, all samples"
        effect = "" if once else " by the models of this fold"
        warn(
            f"{held_out} of {len(unfitted)} of {len(classes)} classes ({shown}) are "
            f"held out: these classes are never predicted{effect}, and their held-out "
            "samples count as errors. Samples are drawn without regard to classes, as "
            "bounds on new data require. Give more samples of these classes, or hold "
            "out fewer: a smaller calibration fraction, or more folds."
        )
        return unfitted

    # --- scores -------------------------------------------------------------------

    def score(self, X):
        """Return risk scores and OOD scores (or None) of samples: high = reject."""
        return self.predict(X, labels=False)

    def predict(self, X, labels=True):
        """Return risk scores, OOD scores (or None) and, with `labels`, the labels."""
        table, by_proba = self.table, self.risk_detector is None
        decides = table is not None and table.decides
        methods: tuple = ()
        if by_proba or (labels and decides):
            methods += ("predict_proba",)
            if not hasattr(self.estimator, "predict_proba"):
                raise ValueError(
                    f"risk_detector=None uses {RISK_NAMES[table is None]}, but "
                    f"{type(self.estimator).__name__} has no predict_proba. Pass a "
                    "risk_detector such as skood.detectors.MaxLogit()."
                )
        if not decides and (labels or (by_proba and table is not None)):
            methods += ("predict",)
        results = self.plan.run(X, methods)
        risk = None if by_proba else -results.pop(0)
        ood = None if self.ood_detector is None else -results.pop(0)
        proba = results.pop(0) if "predict_proba" in methods else None
        predicted = results.pop() if results else None
        if proba is not None and table is None:
            # 1 - max p is the sum of the others, which rounding of a maximum near 1
            # would lose
            proba = np.array(proba, dtype=np.float64)
            proba[np.arange(len(proba)), proba.argmax(axis=1)] = 0.0
            risk = proba.sum(axis=1)
        elif proba is not None:
            classes = self.estimator.classes_
            predicted, expected = table.decided(proba, classes, predicted)
            risk = expected if by_proba else risk
        return (risk, ood, predicted) if labels else (risk, ood)

    def decide(self, X):
        """Return the labels of samples, without scores of detectors."""
        if self.table is None or not self.table.decides:
            return single_column(self.estimator.predict(X))  # of CatBoost
        proba = self.estimator.predict_proba(X)
        return self.table.decided(proba, self.estimator.classes_)[0]

    def sharing(self, shared):
        """Return the parts, which store their outputs for candidates of a search."""
        shared(self, "predict", by_samples=True)
        outputs = self.predict
        vars(self)["predict"] = lambda X, labels=True: outputs(X)[: 2 + labels]
        return self

    def labeled_scores(self, X, X_ood):
        """Return risk and OOD scores and predictions of ID samples, scores of OOD ones.

        Either of `X`, ID samples, and `X_ood` may be None. OOD scores may be None.
        """
        none = None if self.ood_detector is None else np.empty(0)
        of_id, of_ood = (np.empty(0), none, np.empty(0)), (np.empty(0), none)
        if X is not None:
            of_id = self.predict(X)
            warn_of_training_samples(X, *self)
        if X_ood is not None:
            of_ood = self.predict(X_ood, labels=False)
        return *of_id, *of_ood


class RegressionParts(Parts):
    """Regressor, its uncertainty as a detector, and a detector of a regression."""

    names = ("estimator", "uncertainty", "ood_detector")

    kind = "regressor"
    remedies: dict = {
        "classifier": "Use RejectOptionClassifier for a classifier",
        "outlier_detector": "Pass a detector as ood_detector or uncertainty",
    }
    fitted_names: tuple = ("predict",)
    lacks = "has no predict"

    def checked(self, data):
        """Return the parts: there are no labels."""
        return self

    def check_plug_in(self, rule):
        """Raise if a rule takes a risk score for the expected loss that is none."""
        if not isinstance(unwrapped(self.risk_detector), LossModel):
            raise _no_expected_loss(rule, "uncertainty")

    def _uses_outputs(self, detector):
        is_score = isinstance(detector, RegressionScore)
        return is_score and super()._uses_outputs(detector)

    _bound: Callable = staticmethod(bound_score)

    def _targets(self, detector, y):
        return targets_of(detector, y)

    def _explain_failure(self, error, y, train):
        pass

    def _unfitted_classes(self, y, folds, once):
        return ()


def _no_expected_loss(rule, name):
    """Return the error of a rule that requires another risk score."""
    return ValueError(
        f"{type(rule).__name__} takes the risk score for the expected loss: leave "
        f"{name} at None, or use CostBased."
    )


def _check_groups(calibration, groups):
    """Raise if a splitter needs groups that are not passed."""
    if groups is not None or not hasattr(calibration, "get_n_splits"):
        return
    if get_routing_for_object(calibration).consumes("split", ["groups"]):
        raise ValueError(
            f"calibration={calibration!r} needs groups: call fit(X, y, groups=...). In "
            "a search or cross-validation turn on sklearn.set_config("
            "enable_metadata_routing=True) and use set_fit_request(groups=True) of "
            "this estimator."
        )


def _ood_folds(data, folds, rng):
    """Return the indices of the OOD samples that each fold scores.

    No sample is scored by models that were fitted on its group, if a fold has others.
    """
    if len(folds) == 1 and data.groups is None:
        return [np.arange(data.n_ood)]
    order = rng.permutation(data.n_ood)
    if data.groups is None or not data.n_ood:
        return np.array_split(order, len(folds))
    seen = [np.isin(data.groups_ood, data.groups[train]) for train, _ in folds]
    # the fold of each sample: in turn, the next one that has not seen its group
    turns = (np.arange(data.n_ood)[:, None] + np.arange(len(folds))) % len(folds)
    unseen = np.take_along_axis(~np.transpose(seen)[order], turns, axis=1)
    fold = turns[np.arange(data.n_ood), unseen.argmax(axis=1)]
    if not unseen.any():
        raise ValueError(
            "No OOD samples are left to choose the rule: their groups "
            f"{np.unique(data.groups_ood)[:5].tolist()} have ID samples that the "
            "models are fitted on. Give OOD samples of other groups, or cross-fit the "
            "scores with calibration=5."
        )
    return [order[unseen.any(axis=1) & (fold == k)] for k in range(len(folds))]


def _weight_argument(owner, name, estimator, weight):
    """Return the argument that passes sample weights to the fit of a part, or none.

    With metadata routing it is what the part requests. Else a detector that takes
    no weights is fitted without them, with a warning.
    """
    required = name == "estimator"
    arguments = weight_params(owner, name, estimator, weight, required=required)
    routed = get_config()["enable_metadata_routing"]
    if not (arguments or routed):
        warn(
            f"{name} is fitted without sample_weight: {type(estimator).__name__} has "
            "no sample_weight in its fit."
        )
    return arguments
