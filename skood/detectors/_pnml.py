"""Regret of the predictive normalized maximum likelihood (pNML)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._gaussian import shrunk
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import (
    array_namespace,
    as_double,
    cast_once,
    plus,
    row_dots,
    row_indices,
    row_sums,
    unit_rows,
)
from skood.utils._linalg import symmetric_eigh
from skood.utils._warnings import warn
from skood.utils._weights import left_out_weight

# A sample with q this close to 1 alone spans a direction.
_ALONE = 1e-9


class PNML(OutputDetector):
    r"""Regret of the predictive normalized maximum likelihood of the head (pNML) [1]_.

    .. math:: s(x) = -\frac{1}{\log C}
        \log \sum_{i=1}^C \frac{p_i}{p_i + (1 - p_i) \, p_i^\kappa}, \qquad
        \kappa = \frac{q}{1 + q}, \quad
        q = \hat z^\top (\hat Z^\top \hat Z)^+ \hat z

    with the softmax probabilities p, the features :math:`\hat z` and training features
    :math:`\hat Z` of unit length. The i-th term of the sum is the probability of class
    i under a head fitted on the training samples and on x with class i; the sum is
    large where training features are rare (:math:`\kappa` near 1) or the prediction is
    uncertain.

    With fewer samples than twice the features, :math:`\hat Z^\top \hat Z` is shrunk as
    the covariance of :class:`Mahalanobis`. If training features do not span the space
    all the same, such as a feature that is always zero, q is infinite in directions
    outside of their span, not zero as with the pseudo-inverse: then :math:`\kappa` is
    at least :math:`\lVert \hat z_\perp \rVert^2`, the fraction of the squared length
    outside, and `fit` gives a warning. A zero vector, which has no direction, has
    :math:`\kappa = 1`.

    Features in float32 are projected in float32. `partial_fit` adds samples. Since q is
    computed from squares, if the distance of features from zero is r times their
    spread, its relative error is about :math:`2 \cdot 10^{-16} r^2`, and `partial_fit`
    agrees with `fit` to this precision only.

    Read more in the :ref:`User Guide <detectors_logits>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features, logits and head are used; cloned and fitted
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X`
        holds features, and a linear head is fitted on ``(X, y)``.

    normalize_logits : bool, default=False
        Whether p is computed from logits of the features of unit length,
        :math:`W \hat z + b`, instead of the network's own.

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
    rank_ : int
        Dimension of the span of the training features.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : Uses a similar distance, around the class means.
    Entropy : Uses the prediction only.

    Notes
    -----
    The code of the authors, and pytorch-ood, compute p from features of unit length,
    which a head was not trained on (``normalize_logits=True``). They use
    :math:`\kappa = 0` outside of the span, so that features orthogonal to all training
    samples are always ID; the paper proves that it is 1 there.

    References
    ----------
    .. [1] K. Bibas, M. Feder and T. Hassner. "Single layer predictive normalized
       maximum likelihood for out-of-distribution detection". NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skood.detectors import PNML
    >>> from skood.nn import LinearHead
    >>> head = FrozenEstimator(LinearHead(coef=[[1.0, 0.0], [0.0, 1.0]]))
    >>> Z = [[4.0, 1.0], [5.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
    >>> PNML(head).fit(Z).score_samples([[4.0, 0.0], [0.0, 4.0], [2.0, 2.0]]).round(3)
    array([-0.044, -0.135, -0.171])
    """

    _n_samples: float

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "normalize_logits": ["boolean"],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits", "head"})

    def __init__(
        self,
        estimator=None,
        *,
        normalize_logits=False,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.normalize_logits = normalize_logits

    def _added(self, sums, chunk, labels):
        unit = unit_rows(chunk.features)
        if chunk.weight is not None:
            unit *= chunk.asarray(np.sqrt(chunk.weight))[:, None]
        return plus(sums, unit.T @ unit)

    def _settle(self, outputs, y):
        squares = np.diag(self._sums)  # of unit vectors, which sum to their number
        few = self._shrinks if self._is_fold else None
        scatter, self._shrinks = shrunk(self._sums, squares > 0, squares.sum(), few)
        if self._is_fold:  # q is of as many samples as in the fit on all
            scatter = scatter * (self._n_samples / squares.sum())
        else:
            self._n_samples = squares.sum()
        values, vectors, rank = symmetric_eigh(scatter)
        n_features = len(values)
        if rank == 0:
            raise NotEnoughRows(
                "All training features are zero: they have no direction. Give n_samples"
                " with other features."
            )
        if rank < n_features:
            warn(
                f"The training features have rank {rank} of {n_features}: the part of "
                "a sample outside of their span counts as new. Give more samples, or "
                "drop features that are constant or copies."
            )
        self.rank_ = rank
        self._whitener = vectors[:, -rank:] / np.sqrt(values[-rank:])
        self._outside = np.ascontiguousarray(vectors[:, : n_features - rank])

    def _score_left_out(self, chunk, labels):
        if self._shrinks:
            return None
        unit = unit_rows(chunk.features)
        rest = self._rest_left_out(unit, left_out_weight(chunk.weight))
        return self._score_unit(chunk, unit, rest)

    def _rest_left_out(self, unit, gone):
        """Return 1 - kappa of training samples, each left out of q.

        By the Sherman-Morrison formula q becomes q / (1 - a q) without a weight a,
        which is 1 if there are no weights; for a sample with a q = 1, which alone spans
        a direction, by theorem 6 of C. D. Meyer, "Generalized inversion of modified
        matrices", SIAM J. Appl. Math. 24, 1973.
        """
        white = unit @ self._whitener
        q = _squared_lengths(white)
        alone = gone * q > 1.0 - _ALONE
        left = np.where(alone, 0.0, 1.0 - gone * q)
        rest = left / (left + q)  # 1 / (1 + q / (1 - a q))
        if alone.any():
            gone = np.broadcast_to(gone, q.shape)[alone]
            lost = (white[alone] * np.sqrt(gone)[:, None]) @ self._whitener.T
            squared = _squared_lengths(lost)
            inside = _squared_lengths(lost @ self._whitener) / squared**2 - 1.0
            rest[alone] = np.minimum(
                1.0 / (1.0 + np.clip(inside, 0.0, None) / gone),
                np.clip(1.0 - 1.0 / (gone * squared), 0.0, None),
            )
        return np.where(_squared_lengths(unit) > 0, rest, 0.0)

    def _score_outputs(self, outputs):
        unit = unit_rows(outputs.features)
        return self._score_unit(outputs, unit, self._rest(outputs, unit))

    def _score_unit(self, outputs, unit, rest):
        logits = outputs.logits
        if self.normalize_logits:
            coef, intercept = (
                as_double(outputs.asarray(array))
                for array in (outputs.head.coef, outputs.head.intercept)
            )
            logits = unit @ coef.T + intercept
        return -_regret(logits, rest) / np.log(logits.shape[1])

    def _rest(self, outputs, unit):
        """Return 1 - kappa of each sample."""
        xp, dtype = outputs.xp, outputs.features.dtype
        cast_units = xp.astype(unit, dtype, copy=False)
        cast = np.float32 if dtype == xp.float32 else np.float64

        def squared_length(matrix):
            return _squared_lengths(
                cast_units @ outputs.asarray(cast_once(matrix, cast))
            )

        rest = 1.0 / (1.0 + squared_length(self._whitener))
        if self._outside.shape[1]:
            inside = (1.0 - squared_length(self._outside)).clip(0.0)
            rest = xp.minimum(rest, inside)
        return xp.where(_squared_lengths(unit) > 0, rest, xp.zeros_like(rest))


def _squared_lengths(vectors):
    """Return the squared Euclidean length of each row, in float64."""
    return as_double(row_dots(vectors, vectors))


def _regret(logits, rest):
    """Return log(sum of p_i / (p_i + (1 - p_i) p_i^kappa)), with rest = 1 - kappa.

    Each term is r / (r + 1 - p) with r = p^rest, without a division of small numbers.
    The term of the largest p is 1 - x / (1 + x) with x = (1 - p) / r, so that a sum
    close to 1 is not rounded.
    """
    exponentials, others, shifted = shifted_exponentials(logits)
    xp = array_namespace(logits)
    total = 1.0 + others
    log_total = xp.log1p(others)
    indices, top = row_indices(shifted), xp.argmax(shifted, axis=1)
    shifted -= log_total[:, None]
    shifted *= rest[:, None]
    xp.exp(shifted, out=shifted)
    terms = shifted / (shifted + 1.0 - exponentials / total[:, None])
    terms[indices, top] = 0.0
    x = others / total * xp.exp(rest * log_total)
    return xp.log1p((row_sums(terms) - x / (1.0 + x)).clip(0.0))
