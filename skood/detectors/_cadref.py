"""Class-aware decoupled relative feature error (CADRef)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._inputs import column_labels
from skood.detectors._common._predicted_means import PredictedMeans, l1_norms
from skood.detectors._common._softmax import log_sum_exp, shifted_exponentials
from skood.detectors._gen import GEN
from skood.utils._array_api import as_double
from skood.utils._param_validation import StrOptions
from skood.utils._warnings import warn
from skood.utils._weights import left_out_weight

# Lower bound of a logit score, as a fraction of the mean.
_LEAST_FRACTION = 1e-6

# Lower bound of the generalized entropy: its inverse, and sums of it, are finite.
_LEAST_ENTROPY = 1e-100


class CADRef(OutputDetector):
    r"""Class-aware decoupled relative feature error (CADRef) [1]_.

    .. math:: s(x) = -\frac{e_+}{S(x)} - \frac{e_-}{\bar S}, \qquad
        e_\pm = \frac{1}{\lVert z \rVert_1} \sum_j
        \max\bigl(0, \pm \operatorname{sign}(w_{\hat y j}) (z_j - m_{\hat y j})\bigr)

    where :math:`m_k` is the mean of the features of the training samples that are
    *predicted* to be of class k, :math:`w_{\hat y}` are the weights of the predicted
    class, S is a score of the logits and :math:`\bar S` its mean over the training
    samples. The error of :class:`CARef` is split into the part that increases the
    largest logit, :math:`e_+`, and the part that decreases it, :math:`e_-`; the first
    has a lower weight for larger S, hence for more confident predictions.

    S must be positive: a value below 1e-6 times the mean is replaced by this bound,
    training samples that are not positive give a warning, and a mean that is not
    positive raises an error. Classes that no training sample is predicted to be, and
    zero vectors, are handled as in :class:`CARef`. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features, logits and head are used; cloned and fitted
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X`
        holds features, and a linear head is fitted on ``(X, y)``.

    logit_score : {"energy", "gen", "max_logit", "msp"}, default="energy"
        The score S: the energy (logarithm of the sum of exponentials); the inverse of
        the generalized entropy of :class:`GEN` with ``gamma=0.1`` and a tenth of the
        classes, at least 10; the largest logit; or the largest probability. "gen" and
        "msp" are always positive.

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

    mean_logit_score_ : float
        The mean :math:`\bar S`.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    CARef : The error without decoupling.
    Energy : The default S.

    Notes
    -----
    The default `logit_score` is the choice of the authors' code.

    References
    ----------
    .. [1] Z. Ling, Y. Chang, H. Zhao, X. Zhao, K. Chow, S. Deng. "CADRef: Robust
       out-of-distribution detection via class-aware decoupled relative feature
       leveraging". CVPR 2025.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import CADRef
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> detector = CADRef(LogisticRegression(max_iter=500)).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.88
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "logit_score": [StrOptions({"energy", "gen", "max_logit", "msp"})],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits", "head"})
    _sparse: ClassVar[str | None] = "chunks"
    _elementwise: ClassVar[bool] = True
    _chunk_bytes: ClassVar[int] = 16 * 2**20
    _sums_need: ClassVar[tuple] = ("estimator", "logit_score")

    def __init__(
        self,
        estimator=None,
        *,
        logit_score="energy",
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.logit_score = logit_score

    def _begin(self, outputs, y):
        self._class_labels = column_labels(self, outputs.logits.shape[1])

    def _added(self, sums, chunk, labels):
        means, total, n_low = (PredictedMeans(), 0.0, 0) if sums is None else sums
        scores = self._logit_scores(chunk)
        return (
            means.updated(chunk),
            total + chunk.total(scores),
            n_low + int((scores <= 0).sum()),
        )

    def _settle(self, outputs, y):
        means, total, n_low = self._sums
        n_samples = means.counts.sum()
        advice = (
            'Use logit_score="gen" or "msp", which are always positive, or shift the '
            "biases of the head."
        )
        mean = total / n_samples
        if mean <= 0:
            raise ValueError(
                f"The mean of logit_score={self.logit_score!r} over the training "
                f"samples is {mean:.3g}, and must be positive to divide by. {advice}"
            )
        if n_low:
            warn(
                f"logit_score={self.logit_score!r} is not positive for {n_low} of the "
                f"{n_samples:g} training samples: it counts as {_LEAST_FRACTION:g} "
                f"times its mean, so that these samples score very low. {advice}"
            )
        self.mean_logit_score_ = mean
        self.location_ = means.means(self._class_labels)
        self._least = means.least_norm()

    def _logit_scores(self, outputs):
        """Return positive scores of the logits of a chunk, high = ID."""
        xp, logits = outputs.xp, outputs.logits
        if self.logit_score == "energy":
            return log_sum_exp(as_double(logits))
        if self.logit_score == "max_logit":
            return as_double(xp.max(logits, axis=1))
        if self.logit_score == "msp":
            _, others, _ = shifted_exponentials(logits)
            return 1.0 / (1.0 + others)
        top = max(10, logits.shape[1] // 10)
        entropy = -GEN(gamma=0.1, top=top)._score_outputs(outputs)
        return 1.0 / xp.clip(entropy, _LEAST_ENTROPY, None)

    def _score_left_out(self, chunk, labels):
        means, total, _ = self._sums
        gone = left_out_weight(chunk.weight)
        others = total - gone * self._logit_scores(chunk)
        others /= means.counts.sum() - gone
        return self._compare(chunk, others) * means.growth(chunk)

    def _score_outputs(self, outputs):
        return self._compare(outputs, self.mean_logit_score_)

    def _compare(self, outputs, mean):
        xp = outputs.xp
        top = xp.argmax(outputs.logits, axis=1)
        # Each feature of m - z, with the sign of its weight.
        terms = outputs.asarray(self.location_)[top]
        terms -= outputs.features
        terms *= xp.sign(outputs.asarray(outputs.head.coef))[top]
        difference = xp.sum(terms, axis=1)
        both = xp.sum(xp.abs(terms, out=terms), axis=1)
        raising = (both - difference).clip(0.0) / 2
        lowering = (both + difference).clip(0.0) / 2
        scores = self._logit_scores(outputs)
        if self.logit_score in ("energy", "max_logit"):  # the others are positive
            scores = xp.clip(scores, _LEAST_FRACTION * self.mean_logit_score_, None)
        errors = raising / scores + lowering / mean
        return -errors / l1_norms(outputs.features, self._least)
