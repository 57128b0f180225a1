"""Checks of the conventions of detectors, in addition to scikit-learn's checks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import time
import warnings
from functools import partial
from inspect import signature

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor
from sklearn.neural_network import MLPClassifier
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from skood.base import BaseDetector
from skood.exceptions import SkoodWarning

_NO_OOD_SAMPLES = (
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

# Classes whose fits with weights and with repeated samples differ.
_WEIGHT_REASONS = {
    **dict.fromkeys(
        (
            "BatchEnsemble",
            "EvidentialClassifier",
            "GraphClassifier",
            "MultiHeadClassifier",
            "PackedEnsemble",
            "SnapshotEnsemble",
            "TorchClassifier",
            "TorchRegressor",
        ),
        _FLOAT32_SUMS,
    ),
    "GraphPosteriorNetwork": _FLOAT32_FLOWS,
    "GKDENetwork": _NODES_HAVE_NO_WEIGHT,
    "MCDropout": _MASKS_ARE_DRAWN,
}

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
    "Calibration samples are drawn by their position, because p-values and guarantees "
    "are valid only if the draw does not depend on the samples, which the check "
    "shuffles."
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
    "Few trees give few values: with so many ties no threshold rejects the requested "
    "fraction of the samples."
)
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

# Checks of detectors that do not need arrays of numbers.
_FITS_ON_ANYTHING = {"check_contamination", "check_two_detectors_share_a_network"}

_NEW_SAMPLES = (
    "The check asks for the fraction `contamination` of the training samples; here it "
    "is the fraction of new ones, from scores of samples that are left out of the fit."
)
_OUTLIERS = ("check_outliers_train", "check_outliers_fit_predict")


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
    >>> [result for result in results if result["status"] == "failed"]
    []
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
    reason = _WEIGHT_REASONS.get(name)
    if name == "GraphClassifier" and (estimator.conv_params or {}).get("dropout", 0.5):
        reason = _MASKS_ARE_DRAWN
    elif name == "EvidentialClassifier":
        if type(estimator.estimator).__name__ != "TorchClassifier":
            reason = _MASKS_ARE_DRAWN
    elif name == "DeepEnsemble" and is_classifier(estimator):
        reason = _FLOAT32_SUMS if estimator.reference is None else None
    if reason:
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    if name in ("DICE", "RejectOptionClassifier") and estimator.ood_label == -1:
        return {"check_classifiers_classes": _MINUS_ONE}
    if name == "RejectOptionClassifier" and estimator.rule is not None:
        names = (name for name in _WEIGHT_CHECKS if "equivalence" in name)
        return dict.fromkeys(names, _SPLITS_SAMPLES)
    if not get_tags(estimator).input_tags.two_d_array:  # its checks are left out
        return {}
    failures: dict = {}
    if name == "SHE":
        sparse = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")
        failures.update(dict.fromkeys(sparse, _RANDOM_LABELS))
    if isinstance(estimator, BaseDetector):
        scorer = estimator.estimator if name == "Propagation" else estimator
        scored = ("check_fit_score_takes_y", "check_pipeline_consistency")
        failures.update(dict.fromkeys(scored, _NO_OOD_SAMPLES))
        required = get_tags(estimator).target_tags.required
        if required or getattr(estimator, "per_class", False):
            failures.update(dict.fromkeys(_OUTLIERS, _NEEDS_Y))
        elif hasattr(scorer, "_score_outputs") and scorer._learns:
            failures.update(dict.fromkeys(_OUTLIERS, _NEW_SAMPLES))
        failures.update(_failures_of_weights(estimator))
    if takes_logits(estimator):
        failures.update(dict.fromkeys(_FITS_ON_FEATURES, _FEATURES_AS_LOGITS))
    return failures


def _failures_of_weights(detector):
    """Return the checks of sample weights that a detector fails, with the reasons."""
    name = type(detector).__name__
    if not has_fit_parameter(detector, "sample_weight"):
        return {}
    for fit in (
        detector._fit_samples,
        detector._fit,
        getattr(getattr(detector, "detector", None), "fit", detector._fit),
    ):
        if "sample_weight" not in signature(fit).parameters:
            return dict.fromkeys(_WEIGHT_CHECKS, _NO_WEIGHTS)
    inner = getattr(detector, "estimator", None)
    failures = {}
    if name == "OpenMax":
        failures["check_sample_weights_shape"] = _ONE_DISTANCE
        if inner is None:
            failures["check_sample_weights_not_overwritten"] = _ONE_DISTANCE
    scorer = inner if name == "Propagation" else detector
    if type(scorer).__name__ in ("KNN", "NNGuide"):
        reason = _COPIES_ARE_NEIGHBORS
    elif name in ("DSDE", "DetectorEnsemble", "NoveltySelector"):
        reason = _SPLITS_SAMPLES
    elif isinstance(getattr(scorer, "detector", None), OneClassSVM):
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
        names = {check.__name__ for check in yield_detector_checks()}
        return dict.fromkeys(sorted(names - _FITS_ON_ANYTHING), _TAKES_DOCUMENTS)
    estimator = detector.get_params().get("estimator")
    if isinstance(estimator, RandomForestClassifier):
        return {"check_contamination": _TIES}
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


__all__ = ["check_detector", "expected_failed_checks", "yield_detector_checks"]

_N_CLASSES = 5
_N_NEW = 2000  # new samples from the distribution of the training samples
_SECONDS = 0.5  # for fits on samples of one size, where their number is free


def _data(seed=0, n_features=_N_CLASSES, n_classes=_N_CLASSES):
    """Return samples that are plausible features and plausible logits.

    ID samples of class k are around 8 times the k-th unit vector; OOD samples around
    minus 8 times the vector of ones: far from all classes, and with equal, low logits.
    """
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), 40)
    rng.shuffle(y)
    X = rng.normal(size=(len(y), n_features))
    X[np.arange(len(y)), y] += 8
    X_ood = rng.normal(scale=0.5, size=(40, n_features)) - 8
    return X, y, X_ood


def _fit(detector, X, y, ood_label=-1):
    """Fit a clone, ignoring warnings about the data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        return clone(detector).set_params(ood_label=ood_label).fit(X, y)


def _same(actual, expected, what):
    np.testing.assert_allclose(
        actual, expected, rtol=1e-5, atol=1e-7, err_msg=f"{what} changed the scores"
    )


def _raises(kind, function, says):
    """Assert that a call raises `kind` with a message that contains `says`."""
    try:
        function()
    except kind as error:
        if says.lower() not in str(error).lower():
            raise AssertionError(
                f"The error should contain {says!r}, got: {error}"
            ) from error
        return
    raise AssertionError(f"Expected {kind.__name__} with {says!r}, nothing raised")


def _fraction_name(detector):
    """Return the name of the parameter that is the fraction of samples to reject."""
    has_fraction = "contamination" in detector.get_params(deep=False)
    return "contamination" if has_fraction else "alpha"


def check_polarity(detector):
    """Check that scores of nearly all ID samples are above those for OOD samples."""
    X, y, X_ood = _data()
    detector = _fit(detector, X, y)
    low, high = detector.score_samples(X_ood), detector.score_samples(X)
    auroc = np.mean(low[:, None] < high) + np.mean(low[:, None] == high) / 2
    assert auroc > 0.9, f"AUROC of ID against far OOD samples is only {auroc:.3f}"
    for label, what in ((-1, "ood_label"), (_N_CLASSES + 7, "a class not seen in fit")):
        labels = np.concatenate([y, np.full(len(X_ood), label)])
        score = detector.score(np.concatenate([X, X_ood]), labels)
        np.testing.assert_allclose(
            score, auroc, rtol=1e-9, err_msg=f"score(X, y), OOD samples labeled {what}"
        )


def check_score_type(detector):
    """Check that scores are finite float64 of shape (n,), for float32 and float64."""
    X, y, X_ood = _data()
    for dtype in (np.float32, np.float64):
        fitted = _fit(detector, X.astype(dtype), y)
        for samples in (X, X_ood):
            for method in (fitted.score_samples, fitted.decision_function):
                scores = method(samples.astype(dtype))
                kind = type(scores)
                assert kind is np.ndarray, f"scores must be an ndarray, got {kind}"
                kind = scores.dtype
                assert kind == np.float64, f"scores must be float64, got {kind}"
                shape = scores.shape
                assert shape == (len(samples),), (
                    f"expected one score per sample, got {shape}"
                )
                assert np.isfinite(scores).all(), "scores must be finite"
        labels = fitted.predict(X_ood)
        values = np.unique(labels).tolist()
        assert set(values) <= {-1, 1}, f"predict must return +1 and -1, got {values}"
        assert labels.dtype.kind == "i", f"predict must be int, got {labels.dtype}"


def check_offset(detector):
    """Check that `decision_function` and `predict` use an increasing `offset_`."""
    X, y, _ = _data()
    name = _fraction_name(detector)
    assert name in detector.get_params(deep=False), (
        "A detector must have a fraction of ID samples to reject: contamination, or "
        "the level alpha"
    )
    offsets = []
    for level in (0.05, 0.2, 0.5):
        fitted = _fit(clone(detector).set_params(**{name: level}), X, y)
        decision = fitted.score_samples(X) - fitted.offset_
        np.testing.assert_allclose(fitted.decision_function(X), decision)
        np.testing.assert_array_equal(fitted.predict(X), np.where(decision >= 0, 1, -1))
        offsets.append(fitted.offset_)
    if name == "contamination":
        assert offsets == sorted(offsets), (
            f"offset_ must not fall where contamination grows, got {offsets}"
        )


def _id_samples(n_samples, rng):
    """Return new samples of all classes, with random class sizes."""
    y = rng.integers(_N_CLASSES, size=n_samples)
    X = rng.normal(size=(n_samples, _N_CLASSES))
    X[np.arange(n_samples), y] += 5
    return X, y


def _rejected(detector, n_samples, least, most, seconds):
    """Return fractions of new samples rejected by `least` to `most` fits."""
    fractions: list[float] = []
    start = time.perf_counter()
    while len(fractions) < least or (
        len(fractions) < most and time.perf_counter() - start < seconds
    ):
        rng = np.random.default_rng([n_samples, len(fractions)])
        fitted = _fit(detector, *_id_samples(n_samples, rng))
        X, _ = _id_samples(_N_NEW, rng)
        fractions.append(float(np.mean(fitted.predict(X) == -1)))
    return np.array(fractions)


def check_contamination(detector):
    """Check that the mean fraction of new ID samples rejected is `contamination`.

    The level of a threshold at one of n scores has a Beta distribution, with the
    variance c (1 - c) / (n + 2), and the fraction of m new samples below it a binomial
    distribution. Thresholds may be computed from 1,000 of the samples, or from 200 for
    slow detectors, so that one or two fits are not conclusive, and may lie between two
    scores. Levels of detectors without `contamination` are upper bounds. A class whose
    docstring explains why its level is not exact has ``_keeps_contamination = False``.
    """
    keeps = getattr(detector, "_keeps_contamination", True)
    if not keeps or _fraction_name(detector) != "contamination":
        return
    level = 0.1
    detector = clone(detector).set_params(contamination=level)
    for n_samples, least, most in ((200, 3, 40), (2000, 1, 8)):
        fractions = _rejected(detector, n_samples, least, most, _SECONDS)
        n_scores = min(n_samples, 1000 if len(fractions) > 2 else 200)
        variance = level * (1 - level) * (1 / (n_scores + 2) + 1 / _N_NEW)
        if len(fractions) > 2:  # larger if fewer samples are held out
            variance = max(variance, fractions.var(ddof=1))
        noise = 4 * np.sqrt(variance / len(fractions)) + 1 / (n_scores + 1)
        gap = abs(fractions.mean() - level)
        assert gap <= noise, (
            f"contamination={level} rejects {fractions.mean():.4f} of new ID samples, "
            f"as the mean of {len(fractions)} fits on {n_samples} samples each: the "
            f"noise is at most {noise:.4f}. Take the threshold from scores of samples "
            "that are left out of the fit"
        )


def check_batch_of_one(detector):
    """Check that a sample's score does not depend on other samples of the call."""
    X, y, X_ood = _data()
    fitted = _fit(detector, X, y)
    samples = np.concatenate([X[:10], X_ood[:10]])
    together = fitted.score_samples(samples)
    alone = [fitted.score_samples(samples[i : i + 1])[0] for i in range(len(samples))]
    _same(alone, together, "scoring one by one")
    order = np.random.default_rng(0).permutation(len(samples))
    permuted = fitted.score_samples(samples[order])
    _same(permuted, together[order], "permuting the samples")


def check_ties(detector):
    """Check that equal samples get the same decision, in batches of any size.

    The data are a few distinct samples, each repeated. A detector with an `estimator`
    is also fitted on a network that computes in float32.
    """
    X, y = _repeated()
    samples, copies = np.unique(X, axis=0, return_inverse=True)
    for fitted, dtype in _fits_on_ties(detector, X, y):
        batch = X.astype(dtype)
        expected = fitted.predict(batch)
        alone = [fitted.predict(sample[None].astype(dtype))[0] for sample in samples]
        sevens = [fitted.predict(batch[i : i + 7]) for i in range(0, len(batch), 7)]
        others = {
            "one by one": np.array(alone)[copies],
            "in batches of 7": np.concatenate(sevens),
            "as float32": fitted.predict(X.astype(np.float32)),
            "as float64": fitted.predict(X.astype(np.float64)),
        }
        for how, labels in others.items():
            np.testing.assert_array_equal(
                labels, expected, err_msg=f"predict {how} is not predict of one batch"
            )


def _repeated(n_samples=210):
    """Return a few distinct samples of integers, each repeated many times."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % _N_CLASSES
    table = (
        rng.integers(-2, 3, size=(40, _N_CLASSES)) + 8.0 * np.eye(_N_CLASSES)[labels]
    )
    drawn = rng.integers(0, len(table), size=n_samples)
    return table[drawn], labels[drawn]


def _fits_on_ties(detector, X, y):
    """Yield detectors fitted on `X`, and the type of the data they are fitted on."""
    for fraction in (0.05, 0.3):
        detector = clone(detector).set_params(**{_fraction_name(detector): fraction})
        yield _fit(detector, X, y), np.float64
    if "estimator" not in detector.get_params(deep=False):
        return
    X = X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network = MLPClassifier((32,), max_iter=50, random_state=0).fit(X, y)
    try:
        detector.set_params(estimator=FrozenEstimator(network))
        fitted = _fit(detector, X, y)
    except (TypeError, ValueError):  # needs another kind of estimator
        return
    yield fitted, np.float32


def check_refit(detector):
    """Check that a refit equals a fresh fit, for any previous fit."""
    X, y, X_ood = _data()
    width = _N_CLASSES + 4  # number of logits and of classes
    wide, wide_y, _ = _data(seed=1, n_features=width, n_classes=width)
    refitted = _fit(detector, wide, wide_y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        refitted.fit(X, y)
    fresh = _fit(detector, X, y)
    _same(refitted.score_samples(X_ood), fresh.score_samples(X_ood), "A refit")
    assert set(vars(refitted)) == set(vars(fresh)), "A refit left attributes behind"


def check_failed_fit_keeps_state(detector):
    """Check that a fit that raises does not change a fitted detector."""
    X, y, X_ood = _data()
    fitted = _fit(detector, X, y)
    before, attributes = fitted.score_samples(X_ood), set(vars(fitted))
    broken = X.copy()
    broken[3, 1] = np.inf if get_tags(detector).input_tags.allow_nan else np.nan
    _raises(ValueError, lambda: fitted.fit(broken, y), str(broken[3, 1]))
    changed = set(vars(fitted)) ^ attributes
    assert not changed, f"A fit that raised added or removed the attributes {changed}"
    _same(fitted.score_samples(X_ood), before, "A fit that raised")


def check_two_detectors_share_a_network(detector):
    """Check that two detectors on one frozen classifier are independent."""
    if "estimator" not in detector.get_params():
        return
    X, y, X_ood = _data()
    network = FrozenEstimator(LogisticRegression().fit(X, y))
    if isinstance(detector.estimator, FrozenEstimator):
        network = detector.estimator
    try:
        first = _fit(clone(detector).set_params(estimator=network), X, y)
    except TypeError:  # needs another kind of estimator
        return
    before = first.score_samples(X_ood)
    second = _fit(clone(detector).set_params(estimator=network), X + 3, y)
    second.score_samples(X_ood)
    _same(first.score_samples(X_ood), before, "A second detector on the same network")


def check_few_samples(detector):
    """Check fewer samples than features: finite scores, or a clear error."""
    X, _, _ = _data(n_features=30)
    few, few_y = X[:12], np.resize(np.arange(3), 12)
    try:
        fitted = _fit(detector, few, few_y)
    except ValueError as error:
        named = any(word in str(error) for word in ("n_samples", "n_features", "rank"))
        assert named, (
            f"The error should name n_samples, n_features or the rank, got: {error}"
        )
        return
    finite = np.isfinite(fitted.score_samples(X)).all()
    assert finite, "scores must be finite, also with fewer samples than features"


def check_large_values(detector):
    """Check that inputs (saturated logits) of 1e4 give finite scores."""
    X, y, X_ood = _data()
    scale = 1e4 / np.abs(X).max()
    fitted = _fit(detector, X * scale, y)
    scores = fitted.score_samples(scale * np.concatenate([X, X_ood]))
    assert np.isfinite(scores).all(), "scores must be finite, also for inputs of 1e4"
    assert np.isfinite(fitted.offset_), f"offset_ is {fitted.offset_}"


def check_bad_input(detector):
    """Check that NaN, infinity, wrong widths and bad parameters raise ValueError."""
    X, y, _ = _data()
    fitted = _fit(detector, X, y)
    for value, says in ((np.nan, "nan"), (np.inf, "infinity")):
        broken = X.copy()
        broken[0, 0] = value
        if says == "nan" and get_tags(detector).input_tags.allow_nan:
            scores = clone(detector).fit(broken, y).score_samples(broken)
            assert np.isfinite(scores).all(), "scores must be finite, also of NaN"
            continue
        _raises(ValueError, partial(fitted.score_samples, broken), says)
        _raises(ValueError, partial(clone(detector).fit, broken, y), says)
    _raises(ValueError, lambda: fitted.score_samples(X[:, :-1]), "features")
    name = _fraction_name(fitted)
    most = 0.5 if name == "contamination" else 1.0
    for value in (0.0, most + 0.1, -1.0):  # the fraction of ID samples to reject
        bad = clone(detector).set_params(**{name: value})
        _raises(ValueError, partial(bad.fit, X, y), name)
    _raises(ValueError, lambda: clone(detector).fit(X, y[:-1]), "inconsistent")


def check_ood_rows_are_left_out(detector):
    """Check that known OOD samples in `y` do not affect the fit."""
    X, y, X_ood = _data()
    names = np.array(list("abcde"))
    both = np.concatenate([X_ood[:20], X, X_ood[20:]])
    for label, classes in ((-1, y), ("unknown", names[y])):
        fitted = _fit(detector, X, classes, ood_label=label)
        ood = np.full(len(X_ood), label)
        labels = np.concatenate([ood[:20], classes, ood[20:]])
        with_ood = _fit(detector, both, labels, ood_label=label)
        np.testing.assert_array_equal(with_ood.classes_, fitted.classes_)
        np.testing.assert_allclose(with_ood.offset_, fitted.offset_, rtol=1e-6)
        _same(with_ood.score_samples(X_ood), fitted.score_samples(X_ood), "OOD samples")
        only = partial(_fit, detector, X_ood, ood, ood_label=label)
        _raises(ValueError, only, "ood_label")


def check_label_kinds(detector):
    """Check that string and non-contiguous labels give the scores of 0, 1, ..., 4."""
    X, y, X_ood = _data()
    expected = _fit(detector, X, y).score_samples(X_ood)
    for labels in (np.array(list("abcde")), np.array([3, 7, 20, 21, 100])):
        fitted = _fit(detector, X, labels[y])
        np.testing.assert_array_equal(fitted.classes_, labels)
        _same(fitted.score_samples(X_ood), expected, "Renaming the classes")


def check_serialization(detector):
    """Check that a pickled detector gives the same scores."""
    X, y, X_ood = _data()
    fitted = _fit(detector, X, y)
    loaded = pickle.loads(pickle.dumps(fitted))
    _same(loaded.score_samples(X_ood), fitted.score_samples(X_ood), "Pickling")
    _same(loaded.decision_function(X), fitted.decision_function(X), "Pickling")


def check_input_is_kept(detector):
    """Check that fitting and scoring do not modify `X` or `y`."""
    X, y, _ = _data()
    before, labels = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    _fit(detector, X, y).score_samples(X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(y, labels)


def yield_detector_checks():
    """Yield the checks of detectors: functions of one unfitted detector.

    Yields
    ------
    check : callable
        Raises AssertionError if the detector violates a convention.
    """
    yield from (
        check_polarity,
        check_score_type,
        check_offset,
        check_contamination,
        check_batch_of_one,
        check_ties,
        check_refit,
        check_failed_fit_keeps_state,
        check_two_detectors_share_a_network,
        check_few_samples,
        check_large_values,
        check_bad_input,
        check_ood_rows_are_left_out,
        check_label_kinds,
        check_serialization,
        check_input_is_kept,
    )


def check_detector(detector, *, expected_failed_checks=None):
    """Check that a detector follows the conventions of skood.

    The data are 5 classes of 2-D arrays that are plausible both as features and as
    logits. Checks are run on clones. scikit-learn's conventions are checked by
    :func:`sklearn.utils.estimator_checks.check_estimator`.

    Parameters
    ----------
    detector : object
        An unfitted detector.

    expected_failed_checks : dict, default=None
        Names of checks that are expected to fail, each with a reason. They must fail:
        a check that passes raises.

    Raises
    ------
    AssertionError
        If a check fails, or an expected failure does not happen.

    ValueError
        If `expected_failed_checks` names an unknown check.

    Examples
    --------
    >>> from skood.detectors import Energy
    >>> from skood.utils.estimator_checks import check_detector
    >>> check_detector(Energy())
    """
    expected = expected_failed_checks or {}
    names = [check.__name__ for check in yield_detector_checks()]
    unknown = sorted(set(expected) - set(names))
    if unknown:
        raise ValueError(
            f"expected_failed_checks names {unknown}, which are not among the detector "
            f"checks {names}."
        )
    for check in yield_detector_checks():
        name = check.__name__
        try:
            check(clone(detector))
        except Exception:
            if name in expected:
                continue
            raise
        if name not in expected:
            continue
        raise AssertionError(
            f"{name} was expected to fail ({expected[name]}); it passed"
        )
