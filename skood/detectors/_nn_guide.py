"""Nearest-neighbor guidance (NNGuide)."""

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
    top_k_of_many,
)
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import (
    array_namespace,
    as_double,
    numpy_dtype,
    row_sums,
    to_host,
    top_k,
    unit_rows,
)
from skood.utils._param_validation import Interval
from skood.utils._sparse import inner_products, scaled_rows, stacked
from skood.utils._warnings import warn
from skood.utils._weights import weighted


class NNGuide(OutputDetector):
    r"""Energy guided by the nearest training features (NNGuide) [1]_.

    .. math:: s(x) = E(x) \cdot \frac 1 k \sum_{i \in \mathcal N_k(x)}
        \langle \hat z, E_i \hat z_i \rangle,
        \qquad \hat z = z / \lVert z \rVert_2, \qquad E = \log \sum_k e^{l_k}

    where :math:`E_i, z_i` are the energy and the features of a training sample of the
    bank, and :math:`\mathcal N_k(x)` the k samples with the largest
    :math:`\langle \hat z, E_i \hat z_i \rangle`. The search is exact, by brute force,
    in memory bounded by chunks; features in float32 are compared in float32.

    The product assumes positive energies: if both factors are negative, a sample that
    is far from all others has a high score. Training energies that are not positive
    give a warning. A zero vector has no direction and scores 0.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)``.

    n_neighbors : int, default=50
        Number k of neighbors; all of the bank if it has fewer samples. The default has
        the best mean rank in the :ref:`study of numbers of neighbors <n_neighbors>`.
        When a training sample in the bank is scored, it is one of its own neighbors,
        except for the threshold.

    max_samples : int or float, default=None
        Number or fraction of training samples in the bank, drawn at random. None: all.
        The paper uses 1 % of ImageNet.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 1,000 training samples
        the threshold is estimated from 1,000, drawn with a fixed seed: the standard
        error of the rejected fraction is then 0.007 at a `contamination` of 0.05.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the samples of the bank with `max_samples`.

    Attributes
    ----------
    bank_ : ndarray of shape (n_stored, n_features)
        The training features :math:`E_i \hat z_i`, in the precision of the features.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Energy : The first factor.
    KNN : Uses the k-th neighbor only, and no logits.
    Relation : Compares with all samples of its bank.

    Notes
    -----
    The threshold depends on refits of the classifier, on a fifth fewer samples. Where
    these overfit, fewer new ID samples than `contamination` are rejected: with a
    logistic regression as `estimator`, 0.02 to 0.03 for 0.05 (100 and 200 samples of 60
    features). With ``estimator=None`` the head is refitted 20 times, for 0.04 to 0.05.

    OpenOOD uses the first training samples instead of a random draw, and adds 1e-10 to
    each normalized feature.

    References
    ----------
    .. [1] J. Park, Y. G. Jung, A. B. J. Teoh. "Nearest neighbor guidance for
       out-of-distribution detection". ICCV 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.detectors import NNGuide
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = NNGuide(LogisticRegression(max_iter=500)).fit(X, y)
    >>> detector.predict([[5.0, 3.4, 1.5, 0.2], [-5.0, 3.4, 1.5, 0.2]])
    array([ 1, -1])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "random_state": ["random_state"],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits"})
    _sparse: ClassVar[str | None] = "kept"
    _max_offset_samples: ClassVar[int | None] = 1000

    def __init__(
        self,
        estimator=None,
        *,
        n_neighbors=50,
        max_samples=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
        random_state=None,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.n_neighbors = n_neighbors
        self.max_samples = max_samples
        self.random_state = random_state

    def _fit_outputs(self, outputs, y):
        indices = drawn_indices(
            outputs.n_samples, self.max_samples, self.random_state, outputs.weight
        )
        bank_outputs = outputs.take(indices)
        dtype = numpy_dtype(bank_outputs.features)
        guides, n_low = [], 0
        for chunk, _ in self._chunks(bank_outputs):
            energy = log_sum_exp(chunk.logits)
            n_low += int((energy <= 0).sum())
            guide = scaled_rows(unit_rows(chunk.features), energy)
            guides.append(to_host(guide).astype(dtype))
        self.bank_ = stacked(guides)
        self._bank_indices = None if isinstance(indices, slice) else indices
        if n_low:
            warn(
                f"The energies of {n_low} of the {bank_outputs.n_samples} training "
                "samples of the bank are not positive, so that their neighbors are "
                "pushed away, or score high if their own energies are negative. Shift "
                "the biases of the head so that the logits are positive, or use KNN."
            )

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
        chunks = self._chunks(outputs.take(drawn), omit)
        scores = [to_host(self._score_outputs(*chunk)) for chunk in chunks]
        return weighted(np.concatenate(scores), copy_weights)

    def _score_outputs(self, outputs, omit=None):
        bank, xp = outputs.asarray(self.bank_), outputs.xp
        features = unit_rows(like_bank(outputs.features, bank))
        queries = array_namespace(features).astype(features, bank.dtype, copy=False)
        tile_nearest = []
        for tile in bank_tiles(features.shape[0], bank):
            products = inner_products(queries, bank[tile])
            leave_out(products, omit, tile, -xp.inf)
            tile_nearest.append(
                top_k_of_many(products, min(self.n_neighbors, products.shape[1]))
            )
        count = min(self.n_neighbors, bank.shape[0] - (omit is not None))
        if len(tile_nearest) > 1:
            tile_nearest = [xp.concat(tile_nearest, axis=1)]
        guidance = row_sums(as_double(top_k(tile_nearest[0], count))) / count
        return log_sum_exp(outputs.logits) * guidance
