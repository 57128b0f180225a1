"""Distance to the k-th nearest training feature."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib.util import find_spec
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted

from skood.detectors._base import MAX_OFFSET_ROWS, ReadingDetector
from skood.detectors._explain import ExplainMixin
from skood.utils._arrays import array_device, to_device, to_host
from skood.utils._params import Interval, StrOptions
from skood.utils._torch import is_tensor, resolve_device, row_chunks

__all__ = ["KNN"]

# A neighbour found in float32 is taken if the rounding error of its squared distance
# is below this share of it.
_FLOAT32_TOLERANCE = 1e-5

# Bytes of distances that torch computes at a time.
_TORCH_BYTES = 256 * 2**20


class KNN(ExplainMixin, ReadingDetector):
    r"""Negative distance to the k-th nearest training feature (DKNN) [1]_.

    .. math:: s(x) = -\lVert \hat z - \hat z_{(k)} \rVert_2,
        \qquad \hat z = z / \lVert z \rVert_2

    where :math:`\hat z_{(k)}` is the k-th nearest of the training features. The
    search is exact, brute force, in memory bounded by chunks. Features in float32 are
    kept in float32. `explain` names the nearest training rows.

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
        What searches. "auto": torch on a GPU if `device` gives one; else faiss if
        it is installed; else scikit-learn.
        "faiss" and "torch" need ``metric="euclidean"``. The distance of the
        neighbour that was found is computed in float64 in any case; where the
        float32 search of faiss is too coarse, scikit-learn searches again.

    device : str, default="auto"
        Where torch searches: "auto" is CUDA for large banks if there is one, else
        the CPU. A network runs where its classifier says.

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

    bank_rows_ : ndarray of shape (n_kept,)
        Their row numbers in the `X` of fit.

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
        "random_state": ["random_state"],
    }

    _reads: ClassVar[frozenset] = frozenset({"features"})
    _max_offset_rows: ClassVar[int | None] = MAX_OFFSET_ROWS

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
        super().__init__(
            estimator,
            device=device,
            contamination=contamination,
            ood_label=ood_label,
        )
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.metric = metric
        self.max_samples = max_samples
        self.algorithm = algorithm
        self.random_state = random_state

    def _fit_reading(self, reading, y):
        kept = self._kept(len(reading))
        features = reading.rows(kept).features
        if self.n_neighbors > len(features):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the training rows to "
                f"search: n_samples = {len(features)}. Lower n_neighbors or give more "
                "rows."
            )
        rows = np.arange(len(reading)) if self._id_rows is None else self._id_rows
        self.bank_rows_ = rows[kept]
        self._bank_labels = None if y is None else y[kept]
        self._algorithm = self._choose(features)
        self.bank_ = to_host(self._prepared(features))
        self._neighbors = None
        if self._algorithm == "sklearn":
            self._neighbors = self._index()

    def _kept(self, n_samples):
        """Rows of the bank: all, or `max_samples` of them in their order."""
        size = n_samples if self.max_samples is None else self.max_samples
        if not isinstance(size, Integral):
            size = max(1, round(size * n_samples))
        if size >= n_samples:
            return slice(None)
        rng = check_random_state(self.random_state)
        return np.sort(rng.choice(n_samples, size, replace=False))

    def _choose(self, features):
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
        if array_device(self.device, features) is not None:
            return "torch"
        return "sklearn" if find_spec("faiss") is None else "faiss"

    def _prepared(self, features):
        """Features as they are compared: of unit length, in their precision."""
        if not self.normalize:
            return features
        if not is_tensor(features):
            return normalize(np.ascontiguousarray(features))
        norm = features.norm(dim=1, keepdim=True)
        return features / norm.where(norm > 0, 1)

    @property
    def _device(self):
        return "cpu"  # but for torch, which has the bank there only once per call

    def _bytes_per_row(self, reading):
        return 4 * reading.features.dtype.itemsize * reading.features.shape[1]

    def _score_rows(self, reading):
        if self._algorithm == "torch":
            return -self._distances_torch(reading)
        return super()._score_rows(reading)

    def _score_reading(self, reading):
        queries = self._prepared(reading.features)
        if self.metric != "euclidean":
            distances, _ = self._index().kneighbors(queries)
            return -distances[:, -1]
        search = {"sklearn": self._nearest_sklearn, "faiss": self._nearest_faiss}
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

    def _distances_torch(self, reading):
        """Distances of all rows; the bank is brought to the device once."""
        device = resolve_device(self.device)
        bank = to_device(self.bank_, device).double()
        half_norms = bank.square().sum(1) / 2
        distances = []
        for rows in row_chunks(len(reading), 8 * len(bank), _TORCH_BYTES):
            queries = self._prepared(reading.rows(rows).features)
            queries = to_device(queries, device).double()
            # |q - b|²/2 without the |q|²/2 that all neighbours of q share; float32
            # would mistake neighbours that are much nearer than the origin
            gap = half_norms - queries @ bank.T
            found = gap.topk(self.n_neighbors, largest=False).indices[:, -1]
            distances.append(to_host((queries - bank[found]).norm(dim=1)))
        return np.concatenate(distances)

    def explain(self, X, *, n_features=3, n_neighbors=None):
        """Name the nearest training rows of each sample, and the features that count.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        n_features : int, default=3
            How many features to name, those first that have the largest part of the
            squared distance to the k-th neighbour. 0 for other metrics than the
            Euclidean one, whose distances are no sums over features.

        n_neighbors : int, default=None
            How many neighbours to name, the nearest first; at most the k of the
            score. None: 5, or k if that is less.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame: the
            columns ``score`` and ``is_ood``; ``nearest_class``, the label of the
            nearest training row, if there are labels; ``neighbor_1``,
            ``distance_1``, …: row numbers in the `X` of fit, and their distances;
            ``feature_1``, ``contribution_1``, ….

        Raises
        ------
        ImportError
            If pandas is not installed.

        ValueError
            If `n_features` or `n_neighbors` is out of range.

        NotFittedError
            If the detector is not fitted.
        """
        check_is_fitted(self, "offset_")
        if n_neighbors is None:
            n_neighbors = min(5, self.n_neighbors)
        check_scalar(
            n_neighbors, "n_neighbors", Integral, min_val=0, max_val=self.n_neighbors
        )
        if self.metric != "euclidean" and n_features:
            raise ValueError(
                f"With metric={self.metric!r} a distance is no sum over features: "
                "pass n_features=0."
            )
        return self._explain(X, n_features, count=n_neighbors)

    def _explained(self, reading, count=0):
        queries = self._prepared(reading.features)
        distances, nearest = self._index().kneighbors(queries)
        columns = {}
        if self._bank_labels is not None:
            columns["nearest_class"] = self._bank_labels[nearest[:, 0]]
        for j in range(count):
            columns[f"neighbor_{j + 1}"] = self.bank_rows_[nearest[:, j]]
            columns[f"distance_{j + 1}"] = (
                self._distances(queries, nearest[:, j])
                if self.metric == "euclidean"
                else distances[:, j]
            )
        gaps = queries.astype(np.float64) - self.bank_[nearest[:, -1]]
        return columns, gaps**2
