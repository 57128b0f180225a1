"""Neural-collapse-based OOD detection (NECO)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments, is_constant
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.utils._array_api import as_double, row_dots
from skood.utils._linalg import symmetric_eigh
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._warnings import warn


class NECO(OutputDetector):
    r"""Fraction of the features in the principal space (NECO) [1]_.

    .. math:: s(x) = \frac{\lVert P^\top h \rVert_2}{\lVert h \rVert_2} \max_k l_k,
        \qquad h_j = (z_j - \mu_j) / \sigma_j

    where :math:`\mu_j, \sigma_j` are mean and standard deviation of a training
    feature, and the columns of P the principal components of the standardized training
    features with the largest variance. If the features of a network have collapsed to
    their class means, OOD samples are mostly outside of this space.

    Features that are constant in training are only centered. A sample at the mean,
    where the ratio is undefined, scores 0. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)`` if `max_logit` needs one.

    n_components : int, float or "auto", default="auto"
        Number of principal components, or the fraction, in (0, 1), of the variance that
        they must explain. At most the rank of the features is used, with a warning.
        "auto": 100, as in the authors' code; of at most 100 features that all vary,
        half of them, or of the rank if the number of samples limits it; and the rank of
        the features if it is smaller than 100 and than both numbers.

    max_logit : bool, default=True
        Whether to multiply by the largest logit, as in the authors' code for every
        network except ResNets. False: the ratio alone, which needs features only.

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
        Means of the training features.

    scale_ : ndarray of shape (n_features,)
        Standard deviations of the training features, 1 for constant features.

    components_ : ndarray of shape (n_directions, n_features)
        The principal components, by descending variance. The largest entry of each, in
        magnitude, is positive (the first of equal entries).

    n_components_ : int
        Number of principal components of P.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    ViM : Combines the residual outside a principal space with the energy.
    NCI : Uses the direction of the features.

    References
    ----------
    .. [1] M. Ben Ammar, N. Belkhir, S. Popescu, A. Manzanera, G. Franchi. "NECO: NEural
       Collapse Based Out-of-distribution detection". ICLR 2024.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.datasets import load_digits_ood
    >>> from skood.detectors import NECO
    >>> X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    >>> classifier = LogisticRegression(max_iter=500)
    >>> detector = NECO(classifier, n_components=20).fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.95
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            StrOptions({"auto"}),
        ],
        "max_logit": ["boolean"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        n_components="auto",
        max_logit=True,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.n_components = n_components
        self.max_logit = max_logit

    _sums_need: ClassVar[tuple] = ("estimator", "max_logit")

    @property
    def _needs(self):  # type: ignore[override]
        return frozenset({"features", "logits"} if self.max_logit else {"features"})

    def _added(self, sums, chunk, labels):
        if sums is None:
            sums = ClassMoments()
        return sums.updated(chunk.features, None, chunk.weight)

    def _settle(self, outputs, y):
        self._settle_space()
        if self.max_logit:
            self._check_logits(outputs)

    def _settle_space(self):
        self._standardize()
        values, vectors, rank = symmetric_eigh(self._correlation())
        self.n_components_ = self._dimension(values, rank)
        # Eigenvalues ascend.
        leading = vectors[:, : -self.n_components_ - 1 : -1]
        self.components_ = _with_signs(np.ascontiguousarray(leading.T))

    def _standardize(self):
        """Set the mean and the scale of the features."""
        moments = self._sums
        count, mean = moments.counts[0], moments.means[0]
        variance = np.diag(moments.scatter) / count
        self._varies = ~is_constant(variance, mean)
        if not self._varies.any():
            raise NotEnoughRows(
                "No feature varies: there are no principal components. Give more "
                f"samples than n_samples = {int(count)}, or other ones."
            )
        self.mean_ = mean
        self.scale_ = np.sqrt(np.where(self._varies, variance, 1.0))

    def _correlation(self):
        """Return the covariance of the standardized training features."""
        scatter = self._sums.scatter / self._sums.counts[0]
        scatter = scatter / self.scale_ / self.scale_[:, None]
        return scatter * self._varies * self._varies[:, None]

    def _dimension(self, values, rank):
        """Return the dimension of the principal space, at most the features' rank."""
        wanted, n_features = self.n_components, len(values)
        if isinstance(wanted, str):  # "auto"
            # a rank that only the number of samples limits changes with each of them
            n_samples = max(self._sums.counts[0], self._sums.n_samples[0])
            full = min(n_features, n_samples - 1)
            few = rank if rank < full else max(1, rank // 2)
            return 100 if rank > 100 else few
        if not isinstance(wanted, Integral):
            explained = np.cumsum(values[::-1]) / values.sum()
            wanted = int(np.searchsorted(explained, wanted) + 1)
        dimension = min(wanted, rank)
        if dimension == n_features and not self.max_logit:
            raise ValueError(
                f"n_components={self.n_components!r} keeps all of the n_features = "
                f"{n_features}: the score of every sample is 1. Use fewer components."
            )
        if dimension == n_features:
            warn(
                f"n_components={self.n_components!r} keeps all of the n_features = "
                f"{n_features}: the score is the largest logit alone. Use fewer "
                "components."
            )
        elif dimension < wanted:
            warn(
                f"n_components={self.n_components!r}, but the training features have "
                f"rank {rank} of {n_features}: using {rank} components. Use fewer "
                "components, or give more samples."
            )
        return dimension

    def _check_logits(self, outputs):
        """Warn if negative logits make a larger ratio lower the score."""
        top = sum(
            chunk.total(chunk.xp.max(chunk.logits, axis=1))
            for chunk, _ in self._chunks(outputs)
        )
        if top <= 0:
            warn(
                "The largest logits of the training samples are "
                f"{top / outputs.n_samples:.3g} on average: times a negative number, a "
                "large ratio lowers the score. Shift the biases of the head so that "
                "they are positive, or use max_logit=False."
            )

    def _removed(self, sums, chunk):
        return sums.without(chunk.features, chunk.weight)

    _without_each = OutputDetector._without_blocks

    def _score_outputs(self, outputs):
        xp = outputs.xp
        scaled = outputs.features - outputs.asarray(self.mean_)  # in float64
        scaled /= outputs.asarray(self.scale_)
        projected = scaled @ outputs.asarray(self.components_).T
        length = xp.sqrt(row_dots(scaled, scaled))
        ratio = xp.sqrt(row_dots(projected, projected))
        ratio /= xp.where(length > 0, length, xp.ones_like(length))
        if not self.max_logit:
            return ratio
        return ratio * as_double(xp.max(outputs.logits, axis=1))


def _with_signs(components):
    """Fix the signs of components, which depend on rounding, by their largest entry."""
    magnitudes = np.abs(components)
    # Entries that are equal up to rounding: the first one decides.
    largest = magnitudes > (1 - 1e-6) * magnitudes.max(axis=1, keepdims=True)
    pivots = np.argmax(largest, axis=1)[:, None]
    return components * np.sign(np.take_along_axis(components, pivots, axis=1))
