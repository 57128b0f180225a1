"""Neural relation graph: sum of relations to the training samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._memory_bank import (
    TILE_SAMPLES,
    bank_tiles,
    drawn_indices,
    leave_out,
    like_bank,
    omissions,
)
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import (
    array_namespace,
    as_double,
    numpy_dtype,
    row_dots,
    to_host,
    unit_rows,
)
from skood.utils._param_validation import Interval
from skood.utils._sparse import inner_products, stacked
from skood.utils._weights import units, weighted

# Bytes of a tile, which is worked on several times: it stays in the cache.
_TILE_BYTES = 4 * 2**20


class Relation(OutputDetector):
    r"""Sum of relations to all training samples (neural relation graph) [1]_.

    .. math:: s(x) = \sum_{i :\, k_i > \tau} k_i^t, \qquad
        k_i = \max(0, \langle \hat z, \hat z_i \rangle) \cdot \langle p, p_i \rangle,
        \qquad \hat z = z / \lVert z \rVert_2

    where :math:`z_i, p_i` are the features and the softmax probabilities of a training
    sample. A sample is ID if many training samples are similar to it and have the same
    predicted class. The sum grows with the number of training samples: compare scores
    of one fitted detector only. Features in float32 are compared in float32.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)``.

    power : float, default=1.0
        Power t of the relations. The paper uses 1 to detect OOD samples, and 4 to
        find wrong labels.

    threshold : float, default=0.03
        Relations of at most this :math:`\tau`, in [0, 1), do not count.

    max_samples : int or float, default=None
        Number or fraction of training samples in the bank, drawn at random. None: all.
        Scoring time is proportional to it.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the samples of the bank with `max_samples`.

    Attributes
    ----------
    bank_ : ndarray of shape (n_stored, n_features)
        The training features, scaled to unit length.

    bank_proba_ : ndarray of shape (n_stored, n_classes)
        Softmax probabilities of the samples in the bank.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    KNN : Uses the k-th neighbor only.
    NNGuide : Uses the k nearest neighbors.

    Notes
    -----
    The authors' outlier score is 1 / (s + 1e-6), which gives the same ranking.

    References
    ----------
    .. [1] J.-H. Kim, S. Yun, H. O. Song. "Neural relation graph: A unified framework
       for identifying label noise and outlier data". NeurIPS 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.detectors import Relation
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = Relation(LogisticRegression(max_iter=500)).fit(X, y)
    >>> detector.predict([[5.0, 3.4, 1.5, 0.2], [-5.0, 3.4, 1.5, 0.2]])
    array([ 1, -1])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "power": [Interval(Real, 0, None, closed="neither")],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "max_samples": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "random_state": ["random_state"],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits"})
    _sparse: ClassVar[str | None] = "kept"

    def __init__(
        self,
        estimator=None,
        *,
        power=1.0,
        threshold=0.03,
        max_samples=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
        random_state=None,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.power = power
        self.threshold = threshold
        self.max_samples = max_samples
        self.random_state = random_state

    def _fit_outputs(self, outputs, y):
        indices, self._bank_weight = self._drawn(outputs)
        bank_outputs = outputs.take(indices)
        dtype = numpy_dtype(bank_outputs.features)
        features, proba = [], []
        for chunk, _ in self._chunks(bank_outputs):
            features.append(to_host(unit_rows(chunk.features)).astype(dtype))
            proba.append(to_host(_probabilities(chunk.logits)).astype(dtype))
        self._bank_indices = None if isinstance(indices, slice) else indices
        self.bank_ = stacked(features)
        self.bank_proba_ = np.concatenate(proba)

    def _drawn(self, outputs):
        """Return the samples of the bank and their weights, or None."""
        if outputs.weight is None:
            indices = drawn_indices(
                outputs.n_samples, self.max_samples, self.random_state
            )
            return indices, None
        copies, copy_weights = units(outputs.weight)
        drawn = drawn_indices(len(copies), self.max_samples, self.random_state)
        if isinstance(drawn, slice):
            return drawn, outputs.weight
        indices, index = np.unique(copies[drawn], return_inverse=True)
        return indices, np.bincount(index, weights=copy_weights[drawn])

    def _bytes_per_row(self, outputs):
        return max(super()._bytes_per_row(outputs), self._chunk_bytes // TILE_SAMPLES)

    def _chunking(self, outputs):
        size, device, _, sparse = super()._chunking(outputs)
        return size, device, None, sparse

    def _left_out_scores(self, outputs, y, drawn, copy_weights=None):
        drawn, omit, copy_weights = omissions(
            self._bank_indices, drawn, self.bank_.shape[0], copy_weights
        )
        if len(drawn) == 0:
            drawn = np.arange(outputs.n_samples)
            return super()._left_out_scores(outputs, y, drawn, outputs.weight)
        left_outputs = outputs.take(drawn).weighted(copy_weights)
        chunks = self._chunks(left_outputs, omit)
        scores = [to_host(self._score_outputs(*chunk)) for chunk in chunks]
        return weighted(np.concatenate(scores), copy_weights)

    def _score_outputs(self, outputs, omit=None):
        bank, bank_proba = map(outputs.asarray, (self.bank_, self.bank_proba_))
        weight, xp = self._bank_weight, outputs.xp
        if weight is not None:
            weight = outputs.asarray(weight)
        features = unit_rows(like_bank(outputs.features, bank))
        queries = array_namespace(features).astype(features, bank.dtype, copy=False)
        proba = xp.astype(_probabilities(outputs.logits), bank.dtype, copy=False)
        total = 0.0
        for tile in bank_tiles(outputs.n_samples, bank, _TILE_BYTES):
            relations = inner_products(queries, bank[tile])
            relations *= proba @ bank_proba[tile].T
            if weight is None:
                leave_out(relations, omit, tile, 0.0)
            counted = xp.astype(relations > self.threshold, relations.dtype)
            if weight is not None:
                counted *= weight[tile]
                _reduce(counted, omit, tile, outputs, self._bank_weight)
            if self.power != 1.0:
                relations = relations.clip(0.0) ** self.power
            total = total + as_double(row_dots(relations, counted))
        if omit is None:
            return total
        # rescaled to the number of relations of a new sample
        if weight is None:
            n_bank = bank.shape[0]
            return total * outputs.asarray(n_bank / (n_bank - (omit >= 0)))
        whole = self._bank_weight.sum()
        return total * outputs.asarray(whole / (whole - outputs.weight * (omit >= 0)))


def _reduce(counted, omit, tile, outputs, weight):
    """Reduce the weights of samples in the bank by their weights where left out."""
    if omit is None:
        return
    indices = np.flatnonzero((omit >= tile.start) & (omit < tile.stop))
    gone = outputs.weight[indices] / weight[omit[indices]]
    columns = omit[indices] - tile.start
    counted[indices, columns] *= outputs.asarray(np.clip(1.0 - gone, 0.0, None))


def _probabilities(logits):
    """Return softmax probabilities in float64."""
    xp = array_namespace(logits)
    return xp.exp(logits - log_sum_exp(logits)[:, None])
