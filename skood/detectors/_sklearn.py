"""Adapter for outlier detectors of scikit-learn and PyOD (SklearnDetector)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np
from sklearn.base import clone, is_outlier_detector
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.utils import get_tags

from skood.detectors._common._base_output_detector import OutputDetector
from skood.nn._make_network import has_dense_features
from skood.utils._input import named_errors
from skood.utils._param_validation import HasMethods
from skood.utils._routing import weight_params
from skood.utils._weights import row_weight


def _remedy(fitted):
    """Return advice, for the error, about a detector without score_samples."""
    if isinstance(fitted, LocalOutlierFactor):
        return "Set novelty=True."
    if hasattr(fitted, "decision_function"):
        return (
            "Wrap it in a class with a score_samples that is high for inliers: its "
            "decision_function may be high for inliers or for outliers."
        )
    return "Use a detector that has it, such as IsolationForest."


def _scores(fitted, X):
    """Return scores that are high for inliers."""
    if hasattr(fitted, "score_samples"):
        return fitted.score_samples(X)
    return -np.asarray(fitted.decision_function(X))  # PyOD's is high for outliers


class SklearnDetector(OutputDetector):
    r"""Outlier detector of scikit-learn or PyOD on the features of a classifier.

    The score is the score of the detector, or with ``per_class=True`` the largest of
    the scores of one detector per class:

    .. math:: s(x) = \max_k s_k(z)

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are used; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    detector : object, default=None
        An outlier detector with ``score_samples`` high for inliers, such as
        :class:`~sklearn.ensemble.IsolationForest`,
        :class:`~sklearn.svm.OneClassSVM`,
        :class:`~sklearn.covariance.EllipticEnvelope` or
        ``LocalOutlierFactor(novelty=True)``, or a detector of PyOD, whose
        ``decision_function`` is high for outliers and is negated. It is cloned and
        fitted; its own threshold is not used. None:
        ``IsolationForest(random_state=0)``. The local outlier factor is discontinuous
        if more than its ``n_neighbors`` samples are equal: scores then depend on
        rounding, and may differ between batches. Scores of PyOD's ECOD and COPOD depend
        on the other samples of the call.

    per_class : bool, default=False
        Whether to fit one detector per class.

    contamination : float, default=0.05
        Fraction of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    detectors_ : list of objects
        The fitted detectors: one, or one per class.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    KNN : Nearest neighbors without a scikit-learn detector.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import LocalOutlierFactor
    >>> from skood.detectors import SklearnDetector
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = SklearnDetector(detector=LocalOutlierFactor(novelty=True))
    >>> detector.fit(X[:100], y[:100]).predict([[9.0, 9.0, 9.0, 9.0]])
    array([-1])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "detector": [HasMethods("fit"), None],
        "per_class": ["boolean"],
    }
    del _parameter_constraints["device"]

    _needs: ClassVar[frozenset] = frozenset({"features"})
    _sparse: ClassVar[str | None] = "kept"
    _n_folds: ClassVar[int | None] = 5  # a forest is a slow fit

    def __init__(
        self,
        estimator=None,
        *,
        detector=None,
        per_class=False,
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(estimator, contamination=contamination, ood_label=ood_label)
        del self.device  # scikit-learn computes on the CPU
        self.detector = detector
        self.per_class = per_class

    def _fit(self, X, y, sample_weight=None):
        if self.estimator is not None and is_outlier_detector(self.estimator):
            name = type(self.estimator).__name__
            raise TypeError(
                f"estimator is the classifier whose features are used, but {name} is "
                f"an outlier detector: write SklearnDetector(detector={name}(...))."
            )
        return super()._fit(X, y, sample_weight)

    def _fit_outputs(self, outputs, y):
        detector = self._detector
        if self.per_class and y is None:
            raise ValueError(
                "SklearnDetector(per_class=True) requires y to be passed, but the "
                "target y is None."
            )
        groups = [slice(None)]
        if self.per_class:
            groups = [y == label for label in self.classes_]
        self.detectors_ = []
        for group in groups:
            weight = row_weight(outputs.weight, group)
            params = weight_params(self, "detector", detector, weight)
            with named_errors(detector):
                fitted = clone(detector).fit(outputs.features[group], **params)
            pyod = ("decision_scores_", "decision_function")  # attributes of PyOD's
            is_pyod = all(hasattr(fitted, name) for name in pyod)
            if not hasattr(fitted, "score_samples") and not is_pyod:
                raise ValueError(
                    f"{detector!r} cannot score new samples: it has no score_samples. "
                    + _remedy(fitted)
                )
            self.detectors_.append(fitted)

    def _fitted_parts(self):
        parts = super()._fitted_parts()
        if self.detector is not None:
            parts["detector"] = self.detector
        return parts

    def _score_outputs(self, outputs):
        scores = [_scores(detector, outputs.features) for detector in self.detectors_]
        return np.max(scores, axis=0).astype(np.float64)

    @property
    def _detector(self):
        if self.detector is None:
            return IsolationForest(random_state=0)
        return self.detector

    @property
    def _allows_nan(self):
        """Return whether the detector takes NaN: PyOD's have no tags."""
        detector = self._detector
        return hasattr(detector, "__sklearn_tags__") and (
            get_tags(detector).input_tags.allow_nan
        )

    @property
    def _rescales(self):
        """Return whether scores are sums over the samples, as in a one-class SVM."""
        return hasattr(self.detectors_[0], "dual_coef_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.allow_nan = self._allows_nan
        takes_sparse = False
        if hasattr(self._detector, "__sklearn_tags__"):
            inner = get_tags(self._detector)
            tags.non_deterministic |= inner.non_deterministic
            takes_sparse = inner.input_tags.sparse
        if not takes_sparse:  # such as PyOD's, which have no tags
            tags.input_tags.sparse &= has_dense_features(self.estimator)
        return tags
