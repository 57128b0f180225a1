"""Distance to the k-th nearest training feature."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib.util import find_spec
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state

from skood.detectors._base import ReadingDetector
from skood.utils._params import Interval, StrOptions
from skood.utils._torch import resolve_device, row_chunks

__all__ = ["KNN"]

# The threshold is estimated from at most this many training rows: scoring all of a
# bank of n rows against itself would take n² distances. The standard error of a 5 %
# quantile's level is then .3 %. Rows are drawn, not evenly spaced: in data whose
# classes take turns, evenly spaced rows may all be of one class.
_MAX_OFFSET_ROWS = 5000

# A neighbour found in float32 is taken if the rounding error of its squared distance
# is below this share of it.
_FLOAT32_TOLERANCE = 1e-5

# Below this many rows in the bank, asking torch for a GPU costs more than it gives.
_MIN_GPU_ROWS = 10_000


class KNN(ReadingDetector):
    r"""Negative distance to the k-th nearest training feature (DKNN) [1]_.

    .. math:: s(x) = -\lVert \hat z - \hat z_{(k)} \rVert_2,
        \qquad \hat z = z / \lVert z \rVert_2

    where :math:`\hat z_{(k)}` is the k-th nearest of the training features. The
    search is exact, brute force, in memory bounded by chunks.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are read; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    n_neighbors : int, default=50
        The k of the k-th neighbour. When a training sample is scored, it is its
        own first neighbour.

    normalize : bool, default=True
        Whether to scale features to unit Euclidean norm. Zero vectors stay zero.

    metric : str, default="euclidean"
        Any metric of :class:`~sklearn.neighbors.NearestNeighbors`.

    max_samples : int or float, default=None
        Number or share of training rows to keep, drawn at random. None: all.

    algorithm : {"auto", "sklearn", "faiss", "torch"}, default="auto"
        What searches. "auto": torch on a GPU if `device` gives one and the bank
        has 10,000 rows or more; else faiss if it is installed; else scikit-learn.
        "faiss" and "torch" need ``metric="euclidean"``. The distance of the
        neighbour that was found is computed in float64 in any case; where the
        float32 search of faiss is too coarse, scikit-learn searches again.

    device : str, default="auto"
        Where torch searches: "auto" is CUDA if there is one, else the CPU.

    contamination : float, default=0.05
        Share of the ID training samples to reject. With more than 5,000 of them
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD rows in ``y``; they are left out of the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the rows to keep with `max_samples`.

    Attributes
    ----------
    bank_ : ndarray of shape (n_kept, n_features)
        The training features that are searched.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        The `contamination` quantile of the training scores.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : Distance to class means.

    References
    ----------
    .. [1] Y. Sun et al. "Out-of-distribution detection with deep nearest
       neighbors". ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.detectors import KNN
    >>> X = np.random.default_rng(0).normal(loc=3, size=(100, 2))
    >>> KNN(n_neighbors=5).fit(X).predict([[3.0, 3.0], [-3.0, -3.0]])
    array([ 1, -1])
    """

    _parameter_constraints: dict = {
        **ReadingDetector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "normalize": ["boolean"],
        "metric": [str],
        "max_samples": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "algorithm": [StrOptions({"auto", "sklearn", "faiss", "torch"})],
        "device": "no_validation",  # validated where it is used
        "random_state": ["random_state"],
    }

    _reads: ClassVar[frozenset] = frozenset({"features"})

    def __init__(
        self,
        estimator=None,
        *,
        n_neighbors=50,
        normalize=True,
        metric="euclidean",
        max_samples=None,
        algorithm="auto",
        device="auto",
        contamination=0.05,
        ood_label=-1,
        random_state=None,
    ):
        super().__init__(estimator, contamination=contamination, ood_label=ood_label)
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.metric = metric
        self.max_samples = max_samples
        self.algorithm = algorithm
        self.device = device
        self.random_state = random_state

    def _fit_reading(self, reading, y):
        features = self._kept(reading.features)
        if self.n_neighbors > len(features):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the training rows to "
                f"search: n_samples = {len(features)}. Lower n_neighbors or give more "
                "rows."
            )
        self.bank_ = self._prepared(features)
        self._algorithm = self._choose(len(features))
        self._neighbors = None
        if self._algorithm == "sklearn":
            self._neighbors = self._index()

    def _kept(self, features):
        """Rows of the bank: all, or `max_samples` of them in their order."""
        if self.max_samples is None:
            return features
        n_samples = len(features)
        size = self.max_samples
        if not isinstance(size, Integral):
            size = max(1, round(size * n_samples))
        if size >= n_samples:
            return features
        rng = check_random_state(self.random_state)
        return features[np.sort(rng.choice(n_samples, size, replace=False))]

    def _choose(self, n_rows):
        """Resolve `algorithm` to one that can run here."""
        if self.algorithm in ("faiss", "torch") and self.metric != "euclidean":
            raise ValueError(
                f"algorithm={self.algorithm!r} needs metric='euclidean', got "
                f"{self.metric!r}. Use algorithm='sklearn'."
            )
        if self.algorithm == "faiss" and find_spec("faiss") is None:
            raise ValueError(
                "algorithm='faiss' needs the package faiss, which is not installed: "
                'pip install "skood[faiss]".'
            )
        if self.algorithm != "auto":
            return self.algorithm
        if self.metric != "euclidean":
            return "sklearn"
        on_cpu = self.device == "auto" and n_rows < _MIN_GPU_ROWS
        if not on_cpu and resolve_device(self.device).type != "cpu":
            return "torch"
        return "sklearn" if find_spec("faiss") is None else "faiss"

    def _prepared(self, features):
        features = np.ascontiguousarray(features)
        return normalize(features) if self.normalize else features

    def _bytes_per_row(self, reading):
        return 4 * reading.features.itemsize * reading.features.shape[1]

    def _training_scores(self, reading):
        if len(reading) > _MAX_OFFSET_ROWS:
            rng = np.random.default_rng(0)
            rows = rng.choice(len(reading), _MAX_OFFSET_ROWS, replace=False)
            reading = reading.rows(np.sort(rows))
        return self._score_rows(reading)

    def _score_reading(self, reading):
        queries = self._prepared(reading.features)
        if self.metric != "euclidean":
            distances, _ = self._index().kneighbors(queries)
            return -distances[:, -1].astype(np.float64)
        search = {
            "sklearn": self._nearest_sklearn,
            "faiss": self._nearest_faiss,
            "torch": self._nearest_torch,
        }
        return -self._distances(queries, search[self._algorithm](queries))

    def _distances(self, queries, nearest):
        """Distances, in float64, from each query to its row of the bank.

        Searches subtract squared norms, which cancels for near rows: in float64
        they find the right row, but the distance that they give is not precise.
        """
        distances = np.empty(len(queries))
        for part in row_chunks(len(queries), 16 * queries.shape[1]):
            difference = queries[part].astype(np.float64) - self.bank_[nearest[part]]
            distances[part] = np.linalg.norm(difference, axis=1)
        return distances

    def _index(self):
        """What scikit-learn searches: it looks at the bank, and copies nothing.

        Kept where it is what always searches; made anew as the second opinion on
        faiss, so that no file of a fitted detector holds the bank twice.
        """
        if self._neighbors is not None:
            return self._neighbors
        return NearestNeighbors(
            n_neighbors=self.n_neighbors, algorithm="brute", metric=self.metric
        ).fit(self.bank_)

    def _nearest_sklearn(self, queries):
        return self._index().kneighbors(queries, return_distance=False)[:, -1]

    def _nearest_faiss(self, queries):
        import faiss

        squared, nearest = faiss.knn(
            np.ascontiguousarray(queries, dtype=np.float32),
            np.ascontiguousarray(self.bank_, dtype=np.float32),
            self.n_neighbors,
        )
        squared, nearest = squared[:, -1].astype(np.float64), nearest[:, -1]
        # How far off float32 is shows in the distances that it gives.
        exact = self._distances(queries, nearest) ** 2
        doubtful = np.abs(squared - exact).max() > _FLOAT32_TOLERANCE * exact
        if doubtful.any():
            nearest[doubtful] = self._nearest_sklearn(queries[doubtful])
        return nearest

    def _nearest_torch(self, queries):
        import torch

        device = resolve_device(self.device)
        # float32 would mistake neighbours that are much nearer than the origin
        dtype = torch.float32 if device.type == "mps" else torch.float64
        bank = torch.as_tensor(self.bank_, device=device, dtype=dtype)
        half_norms = bank.square().sum(1) / 2
        nearest = np.empty(len(queries), dtype=np.int64)
        chunks = row_chunks(len(queries), bank.element_size() * len(bank))
        for part in chunks:
            chunk = torch.as_tensor(queries[part], device=device, dtype=dtype)
            # |q - b|²/2 without the |q|²/2 that all neighbours of q share
            gap = half_norms - chunk @ bank.T
            found = gap.topk(self.n_neighbors, largest=False).indices[:, -1]
            nearest[part] = found.cpu().numpy()
        return nearest
