"""Distance to the decision boundaries in feature space (fDBD)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np
from scipy.spatial.distance import pdist, squareform

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import added_features, mean_of_features
from skood.utils._array_api import as_double, centered_rows, row_dots, row_indices
from skood.utils._param_validation import StrOptions
from skood.utils._warnings import warn
from skood.utils._weights import left_out_weight


class FDBD(OutputDetector):
    r"""Mean distance to the decision boundaries of the predicted class (fDBD) [1]_.

    .. math:: s(x) = \frac{1}{\lVert z - \mu \rVert_2} \cdot
        \frac{1}{\lvert \mathcal B_{\hat y} \rvert} \sum_{c \in \mathcal B_{\hat y}}
        \frac{l_{\hat y} - l_c}{\lVert w_{\hat y} - w_c \rVert_2}

    where :math:`\mu` is the mean of the training features and
    :math:`\mathcal B_{\hat y}` is the set of classes other than the predicted one. A
    class with the same weights as :math:`\hat y` has no boundary with it: it is left
    out, with a warning in `fit`. If a class has no boundary at all, its score is 0. A
    distance to :math:`\mu` (or a length) is at least 2.2e-16 times the length of
    :math:`\mu`, so that every score is finite. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features, logits and head are used; cloned and fitted
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X`
        holds features, and a linear head is fitted on ``(X, y)``.

    normalizer : {"distance", "length"} or None, default="distance"
        Divisor of the mean distance: the distance to the mean,
        :math:`\lVert z - \mu \rVert_2`, as in the paper; the length
        :math:`\lVert z \rVert_2`, an option in the authors' later code; or None.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        The mean :math:`\mu` of the training features.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    NCI : Uses the direction of the features, by the same authors.
    MaxLogit : Uses the largest logit, not its gaps to the others.

    Notes
    -----
    OpenOOD sums over the classes instead of averaging, which gives the same ranking.

    References
    ----------
    .. [1] L. Liu and Y. Qin. "Fast decision boundary based out-of-distribution
       detector". ICML 2024.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import FDBD
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> detector = FDBD(LogisticRegression(max_iter=500)).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.94
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "normalizer": [StrOptions({"distance", "length"}), None],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits", "head"})
    _sparse: ClassVar[str | None] = "chunks"
    _elementwise: ClassVar[bool] = True
    _sums_logits: ClassVar[bool] = False
    _chunk_bytes: ClassVar[int] = 4 * 2**20

    def __init__(
        self,
        estimator=None,
        *,
        normalizer="distance",
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.normalizer = normalizer

    def _begin(self, outputs, y):
        self._slopes = inverse_gaps(outputs.head.coef)

    def _added(self, sums, chunk, labels):
        return added_features(sums, chunk)

    def _settle(self, outputs, y):
        self.mean_ = mean_of_features(self._sums)
        eps = np.finfo(np.float64).eps
        self._least = eps * (np.linalg.norm(self.mean_) or 1.0)

    def _score_left_out(self, chunk, labels):
        scores = self._score_outputs(chunk)
        if self.normalizer == "distance":  # from the mean m of the other samples
            _, count, _ = self._sums
            # m - z is count / (count - 1) times longer
            scores *= (count - left_out_weight(chunk.weight)) / count
        return scores

    def _score_outputs(self, outputs):
        xp = outputs.xp
        logits = as_double(outputs.logits)
        top = xp.argmax(logits, axis=1)
        gaps = logits[row_indices(logits), top][:, None] - logits
        score = row_dots(gaps, outputs.asarray(self._slopes)[top])
        if self.normalizer is None:
            return score
        origin = self.mean_ if self.normalizer == "distance" else np.zeros(1)
        gaps = centered_rows(outputs.features, outputs.asarray(origin))
        length = xp.sqrt(row_dots(gaps, gaps))
        return score / length.clip(self._least)


def inverse_gaps(coef):
    """Return the weights of logit gaps in the mean distance, (n_classes, n_classes).

    Row k has 1 / (n |w_k - w_c|) for the n classes c with weights other than w_k, else
    0.
    """
    gaps = squareform(pdist(np.asarray(coef, dtype=np.float64)))
    has_boundary = gaps > 0
    n_boundaries = has_boundary.sum(axis=1)
    lacking = np.flatnonzero(n_boundaries < len(coef) - 1)
    if len(lacking):
        warn(
            f"{len(lacking)} of the {len(coef)} rows of weights of the head equal "
            f"another one (the first is row {lacking[0]}): there is no boundary "
            "between their classes, and these pairs are left out of the mean. Merge "
            "such classes, or drop outputs that were never trained."
        )
    slopes = np.zeros_like(gaps)
    np.divide(1.0, gaps, out=slopes, where=has_boundary)
    return slopes / np.maximum(n_boundaries, 1)[:, None]
