"""Checks that an estimator is expected to fail, with reasons."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from inspect import signature

from sklearn.base import is_classifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from skood.base import BaseDetector

_NO_OOD_ROWS = (
    "`score` is the AUROC of ID against OOD samples, and the data of this check have "
    "no OOD samples."
)
_NEEDS_Y = (
    "The check fits without y, but a classifier, or one detector per class, has to be "
    "fitted on (X, y); the error states this."
)
_FLOAT32_SUMS = (
    "A weight of two and a repeated sample are summed in another order in float32: "
    "results agree to 1e-6, the check asks for 1e-7."
)
_FLOAT32_FLOWS = (
    "A weight of two and a repeated sample are summed in another order in float32, "
    "which the densities of normalizing flows amplify: probabilities agree to 1e-4 "
    "(largest differences of 5e-6 to 4e-5 were measured), the check asks for 1e-7."
)
_NODES_HAVE_NO_WEIGHT = (
    "Weights apply to labels: a sample of weight zero is still a node, and is "
    "regularized towards the evidence of the others; a repeated sample is two nodes."
)
_MASKS_ARE_DRAWN = (
    "The network is trained with dropout, whose masks are drawn for each sample of a "
    "batch: repeated samples draw others than a sample with a weight."
)

_NO_WEIGHTS = (
    "The detector does not support sample weights: they raise an error that states so."
)
_WEIGHT_CHECKS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
)
_DRAWS_TREES = (
    "The trees draw samples, not copies, with probabilities proportional to weights."
)
_DRAWS_BY_POSITION = (
    "Samples of the bank, or the first centers of a mixture, are drawn by position "
    "with `random_state`, and the check shuffles the samples."
)
_SUMS_OVER_SAMPLES = (
    "The coefficients of a one-class SVM sum to `nu` times the number of samples, and "
    "not of their weights, in libsvm."
)
_SPLITS_SAMPLES = (
    "Calibration samples are drawn by their position, because p-values are valid only "
    "if the draw does not depend on the samples: the check shuffles the samples."
)
_ONE_DISTANCE = (
    "The data of the check have two or four different samples; a Weibull distribution "
    "needs different distances to the mean logits of a class."
)
_COPIES_ARE_NEIGHBORS = (
    "Repeated samples would be neighbors of each other; weights act on the threshold "
    "and on sampling only."
)

_MINUS_ONE = (
    "The check names a class -1, which marks known OOD samples in `y` (`ood_label`) "
    "and rejected samples in predictions (`reject_label`); other values of these pass "
    "it."
)
_RANDOM_LABELS = (
    "The labels of this check do not depend on the features, so that no sample of one "
    "class is correctly classified, and the class has no pattern; the error states it."
)
_TIES = (
    "Few trees give few values: with so many ties no threshold rejects the asked "
    "share of the samples."
)
_TAKES_NAN = "A forest takes missing values, so NaN in X is no error."
_ONE_WIDTH = (
    "The check fits on data of another width, and this instance has one: that of the "
    "network it was frozen with, or of its class_weight."
)
_NEGATIVE_LOGITS = (
    "OpenMax scales logits down, which makes negative ones larger: the OOD samples of "
    "this check, whose logits are all negative, look known; see the docstring."
)
_LEARNS_FROM_OOD = (
    "The weights of the layers are learned from the OOD samples in `y`; see the "
    "docstring."
)
_LONG_FEATURES = (
    "The score is proportional to the length of the features, and in this check the "
    "features of the OOD samples are the longest."
)
_FEATURES_AS_LOGITS = (
    "The check fits on features and labels, but without a classifier `X` holds logits, "
    "one column per class; the error states this."
)
_TAKES_DOCUMENTS = (
    "The check fits on arrays of numbers, and the detector takes strings; the error "
    "states this."
)

_TIED_NEIGHBORS = (
    "The local outlier factor depends on which of several neighbors at the same "
    "distance are chosen, and on rounding where they are copies of the sample: whether "
    "the check passes depends on the machine."
)

# Checks of scikit-learn that fit on labels with more, or fewer, classes than columns.
_FITS_ON_FEATURES = (
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
)

# Checks of detectors that need arrays of numbers.
_FITS_ON_NUMBERS = (
    "check_bad_input",
    "check_batch_of_one",
    "check_failed_fit_keeps_state",
    "check_few_samples",
    "check_input_is_kept",
    "check_label_kinds",
    "check_large_values",
    "check_offset",
    "check_ood_rows_are_left_out",
    "check_polarity",
    "check_refit",
    "check_score_type",
    "check_serialization",
    "check_ties",
)

_NEW_SAMPLES = (
    "The check asks for the share `contamination` of the training samples; here it is "
    "the share of new ones, from scores of samples that are left out of the fit."
)
_OUTLIERS = ("check_outliers_train", "check_outliers_fit_predict")


def _requires_y(estimator):
    """Return whether a detector cannot be fitted on `X` alone."""
    per_class = getattr(estimator, "per_class", False)
    return per_class or get_tags(estimator).target_tags.required


def _learns(detector):
    """Return whether a detector, or the one that it propagates, learns."""
    if type(detector).__name__ == "Propagation":
        return _learns(detector.estimator)
    return getattr(detector, "_learns", False)


def takes_weights(detector):
    """Return whether a detector, not only its signature, supports sample weights."""
    hooks = (detector._fit_samples, detector._fit)
    return has_fit_parameter(detector, "sample_weight") and all(
        "sample_weight" in signature(hook).parameters for hook in hooks
    )


def takes_logits(detector):
    """Return whether `X` holds the logits that a detector uses."""
    reads = getattr(detector, "_needs", None)
    return reads == {"logits"} and detector.estimator is None


def expected_failed_checks(estimator, *, suite="scikit-learn"):
    """Return the checks that an estimator is expected to fail, with the reasons.

    Parameters
    ----------
    estimator : object
        An estimator of skood, fitted or not.

    suite : {"scikit-learn", "skood"}, default="scikit-learn"
        The checks of :func:`sklearn.utils.estimator_checks.check_estimator`, or, for a
        detector, the checks of :func:`check_detector`.

    Returns
    -------
    reasons : dict of str to str
        Names of checks, with a sentence for each. Pass it to either function as
        ``expected_failed_checks``.

    Raises
    ------
    ValueError
        If `suite` is unknown.

    See Also
    --------
    check_detector : Checks of the conventions of detectors.

    Examples
    --------
    >>> from sklearn.utils.estimator_checks import check_estimator
    >>> from skood.detectors import KNN
    >>> from skood.utils.estimator_checks import expected_failed_checks
    >>> knn = KNN(n_neighbors=3)
    >>> reasons = expected_failed_checks(knn)
    >>> for check in sorted(reasons):
    ...     print(check)
    check_fit_score_takes_y
    check_outliers_fit_predict
    check_outliers_train
    check_pipeline_consistency
    check_sample_weight_equivalence_on_dense_data
    check_sample_weight_equivalence_on_sparse_data
    >>> results = check_estimator(knn, expected_failed_checks=reasons, on_skip=None)
    >>> {result["status"] for result in results} <= {"passed", "skipped", "xfail"}
    True
    """
    if suite == "scikit-learn":
        return _failures_of_scikit_learn(estimator)
    if suite != "skood":
        raise ValueError(f"suite must be 'scikit-learn' or 'skood', got {suite!r}.")
    is_detector = isinstance(estimator, BaseDetector)
    return _failures_of_detectors(estimator) if is_detector else {}


def _failures_of_scikit_learn(estimator):
    """Return scikit-learn's checks that an instance fails, with the reasons."""
    name = type(estimator).__name__
    if name in (
        "BatchEnsemble",
        "MultiHeadClassifier",
        "PackedEnsemble",
        "SnapshotEnsemble",
        "TorchClassifier",
        "TorchRegressor",
    ):
        return {"check_sample_weight_equivalence_on_dense_data": _FLOAT32_SUMS}
    if name == "GraphPosteriorNetwork":
        return {"check_sample_weight_equivalence_on_dense_data": _FLOAT32_FLOWS}
    if name == "GraphClassifier":
        reason = _FLOAT32_SUMS
        if (estimator.conv_params or {}).get("dropout", 0.5):
            reason = _MASKS_ARE_DRAWN
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    if name == "GKDENetwork":
        return {"check_sample_weight_equivalence_on_dense_data": _NODES_HAVE_NO_WEIGHT}
    if name == "EvidentialClassifier":
        on_rows = type(estimator.estimator).__name__ == "TorchClassifier"
        reason = _FLOAT32_SUMS if on_rows else _MASKS_ARE_DRAWN
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    if name == "MCDropout":
        return {"check_sample_weight_equivalence_on_dense_data": _MASKS_ARE_DRAWN}
    is_ensemble = name == "DeepEnsemble" and is_classifier(estimator)
    if is_ensemble and estimator.reference is None:
        return {"check_sample_weight_equivalence_on_dense_data": _FLOAT32_SUMS}
    if name in ("DICE", "RejectOptionClassifier") and estimator.ood_label == -1:
        return {"check_classifiers_classes": _MINUS_ONE}
    failures: dict = {}
    if not get_tags(estimator).input_tags.two_d_array:  # its checks are left out
        return failures
    if name == "SHE":
        for container in ("array", "matrix"):
            failures[f"check_estimator_sparse_{container}"] = _RANDOM_LABELS
    if isinstance(estimator, BaseDetector):
        for check in ("check_fit_score_takes_y", "check_pipeline_consistency"):
            failures[check] = _NO_OOD_ROWS
        if _requires_y(estimator):
            failures.update(dict.fromkeys(_OUTLIERS, _NEEDS_Y))
        elif _learns(estimator):
            failures.update(dict.fromkeys(_OUTLIERS, _NEW_SAMPLES))
        failures.update(_failures_of_weights(estimator))
    if takes_logits(estimator):
        failures.update(dict.fromkeys(_FITS_ON_FEATURES, _FEATURES_AS_LOGITS))
    return failures


def _failures_of_weights(detector):
    """Return the checks of sample weights that a detector fails, with the reasons."""
    name = type(detector).__name__
    if not takes_weights(detector):
        if not has_fit_parameter(detector, "sample_weight"):
            return {}
        return dict.fromkeys(_WEIGHT_CHECKS, _NO_WEIGHTS)
    failures = {}
    if name == "OpenMax" and detector.estimator is None:
        spread = ("check_sample_weights_shape", "check_sample_weights_not_overwritten")
        failures.update(dict.fromkeys(spread, _ONE_DISTANCE))
    inner = getattr(detector, "estimator", None)
    one = inner if name == "Propagation" else detector
    if type(one).__name__ in ("KNN", "NNGuide"):
        reason = _COPIES_ARE_NEIGHBORS
    elif name in ("DSDE", "DetectorEnsemble", "NoveltySelector"):
        reason = _SPLITS_SAMPLES
    elif isinstance(getattr(one, "detector", None), OneClassSVM):
        reason = _SUMS_OVER_SAMPLES
    elif isinstance(inner, RandomForestClassifier) or name == "SklearnDetector":
        reason = _DRAWS_TREES
    elif getattr(detector, "max_samples", None) or (
        name == "GMM" and detector.n_components
    ):
        reason = _DRAWS_BY_POSITION
    elif name == "RankFeat":
        reason = _FLOAT32_SUMS
    elif takes_logits(detector):
        reason = _FEATURES_AS_LOGITS
    else:
        return failures
    kinds = ["dense", "sparse"] if get_tags(detector).input_tags.sparse else ["dense"]
    names = (f"check_sample_weight_equivalence_on_{kind}_data" for kind in kinds)
    return {**failures, **dict.fromkeys(names, reason)}


def _failures_of_detectors(detector):
    """Return checks of `yield_detector_checks` that an instance fails, with reasons."""
    if not get_tags(detector).input_tags.two_d_array:
        return dict.fromkeys(_FITS_ON_NUMBERS, _TAKES_DOCUMENTS)
    estimator = detector.get_params().get("estimator")
    if isinstance(estimator, RandomForestClassifier):
        nan = ("check_failed_fit_keeps_state", "check_bad_input")
        return {"check_contamination": _TIES, **dict.fromkeys(nan, _TAKES_NAN)}
    if isinstance(estimator, FrozenEstimator):
        return dict.fromkeys(("check_refit", "check_few_samples"), _ONE_WIDTH)
    if getattr(detector, "class_weight", None):
        return {"check_refit": _ONE_WIDTH}
    if isinstance(getattr(detector, "detector", None), LocalOutlierFactor):
        return {"check_ties": _TIED_NEIGHBORS}
    name = type(detector).__name__
    if name == "OpenMax" and estimator is None:
        return {"check_polarity": _NEGATIVE_LOGITS}
    if name == "MultiLayerMahalanobis" and isinstance(detector.alphas, str):
        return {"check_ood_rows_are_left_out": _LEARNS_FROM_OOD}
    if name == "GradNorm":
        return {"check_polarity": _LONG_FEATURES}
    return {}
