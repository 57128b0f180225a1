"""Class-aware relative feature error (CARef)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._inputs import column_labels
from skood.detectors._common._predicted_means import PredictedMeans, l1_norms


class CARef(OutputDetector):
    r"""Class-aware relative feature error (CARef) [1]_.

    .. math:: s(x) = -\frac{\lVert z - m_{\hat y} \rVert_1}{\lVert z \rVert_1}

    where :math:`m_k` is the mean of the features of the training samples that are
    *predicted* to be of class k. A class that no training sample is predicted to be
    gets the mean of all training features, with a warning. The norm
    :math:`\lVert z \rVert_1` is at least 2.2e-16 times the norm of this mean, so that a
    zero vector has a very low, but finite score. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)``.

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
    location_ : ndarray of shape (n_classes, n_features)
        The means :math:`m_k`, in the order of the logits.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    CADRef : Weights the error by its effect on the largest logit.
    SHE : Inner product with the mean of the predicted class.

    References
    ----------
    .. [1] Z. Ling, Y. Chang, H. Zhao, X. Zhao, K. Chow, S. Deng. "CADRef: Robust
       out-of-distribution detection via class-aware decoupled relative feature
       leveraging". CVPR 2025.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import CARef
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> detector = CARef(LogisticRegression(max_iter=500)).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.81
    """

    _needs: ClassVar[frozenset] = frozenset({"features", "logits"})
    _sparse: ClassVar[str | None] = "chunks"
    _elementwise: ClassVar[bool] = True
    _chunk_bytes: ClassVar[int] = 16 * 2**20

    def _begin(self, outputs, y):
        self._class_labels = column_labels(self, outputs.logits.shape[1])

    def _added(self, sums, chunk, labels):
        if sums is None:
            sums = PredictedMeans()
        return sums.updated(chunk)

    def _settle(self, outputs, y):
        self.location_ = self._sums.means(self._class_labels)
        self._least = self._sums.least_norm()

    def _score_left_out(self, chunk, labels):
        return self._score_outputs(chunk) * self._sums.growth(chunk)

    def _score_outputs(self, outputs):
        xp = outputs.xp
        gaps = outputs.asarray(self.location_)[xp.argmax(outputs.logits, axis=1)]
        gaps -= outputs.features
        error = xp.sum(xp.abs(gaps, out=gaps), axis=1)
        return -error / l1_norms(outputs.features, self._least)
