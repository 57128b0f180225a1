"""Checks of the parts and the data of a selective predictor before its fit."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn import get_config
from sklearn.frozen import FrozenEstimator

from skood.decision._options import check_certifiable
from skood.rejection._inputs import Parts
from skood.utils._labels import check_nested_ood_labels, has_label, ood_mask
from skood.utils._metaestimators import estimator_kind
from skood.utils._routing import weight_params
from skood.utils._warnings import warn

# Labels of OOD samples in public data sets.
_OOD_NAMES = {"oos", "ood", "outlier", "anomaly", "unknown", "novel", "out_of_scope"}


def _is_ood_name(label):
    """Return whether a label is a usual name of OOD samples."""
    return isinstance(label, str) and label.casefold() in _OOD_NAMES


def check_calibration(owner, parts, data, solver, certificate):
    """Raise before a long fit on errors that would only occur after it."""
    owner.rule.check_params()
    solver._validate_params()
    if certificate is not None:
        certificate._validate_params()
    if owner.rule.needs_ood and data.X_ood is None:
        names = [label for label in np.unique(data.y).tolist() if _is_ood_name(label)]
        advice = ""
        if names:
            label = names[0]
            advice = (
                f"If {label!r} is the label of OOD samples, pass ood_label={label!r}. "
            )
        raise ValueError(
            f"{owner.rule!r} needs OOD samples: samples {owner._marked_ood()} in y. "
            f"{advice}Give some, or use a rule that needs none, such as "
            "TwoThresholds(ood=0.05, risk=0.05)."
        )
    check_guarantee(owner, data, solver, certificate)
    if not isinstance(owner.calibration, str):
        share = isinstance(owner.calibration, Real) and owner.calibration < 1
        if certificate is not None and not share:
            raise ValueError(
                f"guarantee={owner.guarantee!r} needs calibration samples scored by "
                f"the final models; calibration={owner.calibration!r} cross-fits. Hold "
                "samples out, with calibration=0.3."
            )
        return
    for name, part in zip(owner._part_names, parts, strict=True):
        learns = part is not None and not isinstance(part, FrozenEstimator)
        if learns and getattr(part, "_fits_samples", True):
            raise ValueError(
                f"calibration='same' needs frozen parts, but {name} would be fitted "
                "on the samples that choose the rule. Put a fitted one in "
                "sklearn.frozen.FrozenEstimator, or hold samples out with "
                "calibration=0.3."
            )


def check_guarantee(owner, data, solver, certificate):
    """Raise if samples or options exclude the guarantee, or need one."""
    if certificate is None:
        if data.source_ood is not None:
            raise ValueError(
                "ood_source is for a guarantee, which holds for each source of OOD "
                "samples. Set guarantee='high_probability', or leave ood_source out."
            )
        return
    check_certifiable(solver)
    within = certificate.within
    if within == "groups" and data.groups is None:
        raise ValueError(
            "Certificate(within='groups') needs a group for each sample: call "
            "fit(X, y, groups=...). In a search or cross-validation turn on "
            "sklearn.set_config(enable_metadata_routing=True) and use "
            "set_fit_request(groups=True) of this estimator."
        )
    if within in ("class", "predicted_class") and not hasattr(owner, "reject_label"):
        raise ValueError(
            f"Certificate(within={within!r}) is for classifiers; a regressor has no "
            "classes. Use within='groups'."
        )
    if certificate.thresholds == "group" and within not in (
        "groups",
        "predicted_class",
    ):
        raise ValueError(
            f"Certificate(thresholds='group') needs groups that are available in "
            f"predict: within='groups' or 'predicted_class', got within={within!r}."
        )
    _check_independent(owner, data, within)


def _check_independent(owner, data, within):
    """Raise if samples are not independent draws, which a guarantee requires."""
    if data.weight is not None:
        raise ValueError(
            f"guarantee={owner.guarantee!r} and sample_weight exclude each other: a "
            "bound counts independent samples. Repeats of a sample, which whole "
            "weights stand for, are not independent, and with other weights the share "
            "of samples is not the share in use. Leave one of them out."
        )
    groups = data.groups
    if within == "groups" or groups is None:
        return
    if len(np.unique(groups)) < len(groups):
        raise ValueError(
            f"guarantee={owner.guarantee!r} requires independent samples, but groups "
            f"has {len(np.unique(groups))} groups of {len(groups)} ID samples. Give "
            "one sample of each group, or leave the guarantee out. If samples of one "
            "group are independent too, and bounds are to hold within every group, "
            "use guarantee=Certificate(within='groups')."
        )


def check_classes(owner, classes, y):
    """Raise if labels are ambiguous, or unknown to the classifier.

    `classes` has shape (n_classes,), `y` has the labels of ID samples, shape (n_id,).
    """
    labels = {"reject_label": owner.reject_label_, "ood_label": owner.ood_label}
    for name, label in labels.items():
        if has_label(classes, label):
            raise ValueError(
                f"{name}={label!r} is one of the classes. Choose a label that no class "
                "has."
            )
    unknown = ood_mask(y, ood_label=owner.ood_label, classes=classes)
    if unknown.any():
        raise ValueError(
            f"y has the labels {np.unique(y[unknown]).tolist()}, which are none of the "
            f"classes {classes.tolist()} of the fitted classifier. Label OOD "
            f"samples ood_label={owner.ood_label!r}; give each class enough samples to "
            "be both fitted and held out."
        )


def check_is_classifier(estimator, *, fitted=False):
    """Raise a TypeError unless the estimator is a classifier.

    If it is `fitted`, it must have ``classes_`` and ``predict``.
    """
    kind = estimator_kind(estimator)
    if kind not in ("classifier", None):
        remedy = {
            "regressor": "Use a classifier, such as RidgeClassifier for Ridge",
            "outlier_detector": "Pass a detector as ood_detector or risk_detector",
        }.get(kind, "Use a classifier")
        raise TypeError(
            f"estimator must be a classifier, got the {kind.replace('_', ' ')} "
            f"{estimator!r}. {remedy}."
        )
    if fitted and not all(hasattr(estimator, a) for a in ("classes_", "predict")):
        raise TypeError(
            "estimator must be a classifier, but the fitted "
            f"{type(estimator).__name__} has no classes_, or no predict. Use a "
            "classifier; wrap a trained torch module with skood.nn.pretrained(module, "
            "classes=...)."
        )


def check_is_regressor(estimator, *, fitted=False):
    """Raise a TypeError unless the estimator is a regressor.

    If it is `fitted`, it must have ``predict``.
    """
    kind = estimator_kind(estimator)
    if kind not in ("regressor", None):
        remedy = {
            "classifier": "Use RejectOptionClassifier for a classifier",
            "outlier_detector": "Pass a detector as ood_detector or uncertainty",
        }.get(kind, "Use a regressor")
        raise TypeError(
            f"estimator must be a regressor, got the {kind.replace('_', ' ')} "
            f"{estimator!r}. {remedy}."
        )
    if fitted and not hasattr(estimator, "predict"):
        raise TypeError(
            "estimator must be a regressor, but the fitted "
            f"{type(estimator).__name__} has no predict."
        )


def check_ood_labels(parts, y):
    """Raise if a part would exclude a class because of its own `ood_label`."""
    for name, part in parts._asdict().items():
        if part is not None:
            check_nested_ood_labels(name, part, y, "RejectOptionClassifier")


def fit_arguments(owner, parts, data):
    """Return the arguments that pass weights and groups to the fits of the parts.

    Groups are for a model of cross-validated losses alone.
    """
    found = []
    for name, part in zip(owner._part_names, parts, strict=True):
        arguments = {}
        learns = part is not None and getattr(part, "_fits_samples", True)
        if data.weight is not None and learns:
            arguments = _weight_argument(owner, name, part, data.weight)
        if data.groups is not None and getattr(part, "_splits_groups", False):
            arguments = {**arguments, "groups": data.groups}
        found.append(arguments)
    return Parts(*found)


def _weight_argument(owner, name, part, weight):
    """Return the argument that passes sample weights to the fit of a part, or none.

    With metadata routing it is what the part requests. Else a detector that takes no
    weights is fitted without them, with a warning.
    """
    found = weight_params(owner, name, part, weight, required=name == "estimator")
    routed = get_config()["enable_metadata_routing"]
    if not (found or routed or isinstance(part, FrozenEstimator)):
        warn(
            f"{name} is fitted without sample_weight: {type(part).__name__} has no "
            "sample_weight in its fit."
        )
    return found
