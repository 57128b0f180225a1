"""Virtual-logit matching."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.detectors._base import ReadingDetector
from skood.detectors._softmax import logsumexp_rows
from skood.exceptions import SkoodWarning
from skood.utils._linalg import symmetric_eigh
from skood.utils._params import Interval, StrOptions
from skood.utils._torch import row_chunks

__all__ = ["ViM"]


def _rcond(coef):
    """Share of the largest singular value of a head below which one counts as zero.

    The rows of a fitted softmax head sum to zero, but only up to the precision that
    its solver worked in: the inverse of that remainder would move the origin far away.
    """
    eps = np.finfo(np.result_type(coef, np.float32)).eps
    return max(max(coef.shape) * eps, eps ** (2 / 3))


class ViM(ReadingDetector):
    r"""Virtual-logit matching (ViM) [1]_.

    .. math:: s(x) = \log \sum_k e^{l_k} - \alpha \lVert (z - u) N \rVert_2,
        \qquad u = -W^+ b, \qquad
        \alpha = \frac{\sum_i \max_k l_{ik}}{\sum_i \lVert (z_i - u) N \rVert_2}

    where W, b are the weights of the linear head, the columns of N are the
    eigenvectors of :math:`\sum_i (z_i - u)(z_i - u)^\top` outside the principal
    space, and the sums run over the training samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features, logits and head are read; cloned and fitted
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X`
        holds features, and a linear head is fitted on ``(X, y)``.

    n_components : "auto", int or float, default="auto"
        Dimension of the principal space: "auto" is 512 for 1,024 or more features,
        256 for 512 or more, else half of them (and half of the rank, with a
        warning, if training features have no rank beyond that); a float in (0, 1)
        is the share of the squared length that it must explain.

    contamination : float, default=0.05
        Share of the ID training samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD rows in ``y``; they are left out of the fit.

    Attributes
    ----------
    alpha_ : float
        Scale :math:`\alpha` of the residual.

    n_components_ : int
        Dimension of the principal space.

    origin_ : ndarray of shape (n_features,)
        The origin u.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        The `contamination` quantile of the training scores.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Energy : Its first term.

    References
    ----------
    .. [1] H. Wang et al. "ViM: Out-of-distribution with virtual-logit matching".
       CVPR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.detectors import ViM
    >>> X, y = load_digits(return_X_y=True)
    >>> y[y >= 7] = -1  # known OOD: left out of the fit
    >>> detector = ViM(LogisticRegression(max_iter=500)).fit(X / 16, y)
    >>> bool(detector.score(X / 16, y) > 0.75)
    True
    """

    _parameter_constraints: dict = {
        **ReadingDetector._parameter_constraints,
        "n_components": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
    }

    _reads: ClassVar[frozenset] = frozenset({"features", "logits", "head"})

    def __init__(
        self, estimator=None, *, n_components="auto", contamination=0.05, ood_label=-1
    ):
        super().__init__(estimator, contamination=contamination, ood_label=ood_label)
        self.n_components = n_components

    def _fit_reading(self, reading, y):
        coef = reading.head.coef.astype(np.float64)
        intercept = reading.head.intercept.astype(np.float64)
        rcond = _rcond(reading.head.coef)
        self.origin_ = -np.linalg.pinv(coef, rcond=rcond) @ intercept
        Z = reading.features
        scatter = np.zeros((Z.shape[1], Z.shape[1]))
        for part in row_chunks(len(Z), 16 * Z.shape[1]):
            centred = Z[part] - self.origin_
            scatter += centred.T @ centred
        values, vectors, rank = symmetric_eigh(scatter)
        self.n_components_ = self._dimension(values, rank)
        # Ascending order: the first columns are outside the principal space.
        self._null_space = vectors[:, : Z.shape[1] - self.n_components_]
        residuals = sum(
            float(self._residuals(Z[part]).sum())
            for part in row_chunks(len(Z), 32 * Z.shape[1])
        )
        self.alpha_ = float(
            reading.logits.max(axis=1).astype(np.float64).sum() / residuals
        )
        if self.alpha_ <= 0:
            warnings.warn(
                f"alpha_ is {self.alpha_:.3g}: the largest logits of the training "
                "samples are negative on average, so a large residual does not lower "
                "the score. Shift the biases of the head so that they are positive.",
                SkoodWarning,
                stacklevel=6,
            )

    def _dimension(self, values, rank):
        """Dimension of the principal space, below the rank of the features."""
        n_features = len(values)
        if isinstance(self.n_components, str):
            wanted = n_features // 2
            for size, dimension in ((1024, 512), (512, 256)):
                if n_features >= size:
                    wanted = dimension
                    break
            if wanted >= rank > 0:
                warnings.warn(
                    f"The training features have rank {rank} of {n_features}: a "
                    f"principal space of dimension {wanted} would leave no residual. "
                    f"Using n_components={rank // 2}; give more samples to use more.",
                    SkoodWarning,
                    stacklevel=7,
                )
                wanted = rank // 2
        elif isinstance(self.n_components, Integral):
            wanted = int(self.n_components)
        else:
            explained = np.cumsum(values[::-1]) / values.sum()
            wanted = int(np.searchsorted(explained, self.n_components) + 1)
        if wanted >= rank:
            raise ValueError(
                f"n_components={self.n_components!r} gives a principal space of "
                f"dimension {wanted}, but the training features have rank {rank} "
                f"(n_features = {n_features}): no residual is left. Use fewer "
                "components or give more samples."
            )
        return wanted

    def _residuals(self, features):
        projected = (features - self.origin_) @ self._null_space
        return np.linalg.norm(projected, axis=1)

    def _score_reading(self, reading):
        return logsumexp_rows(reading.logits) - self.alpha_ * self._residuals(
            reading.features
        )
