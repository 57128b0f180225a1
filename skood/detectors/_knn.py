"""Distance to the k-th nearest training feature (KNN)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn import config_context
from sklearn.neighbors import VALID_METRICS_SPARSE, NearestNeighbors

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._explain import ReferencePoints
from skood.detectors._common._memory_bank import (
    CPU_BYTES,
    GPU_BYTES,
    GPU_CANDIDATES,
    TILE_SAMPLES,
    distances_of_tiles,
    distances_to,
    drawn_indices,
    half_squares,
    kth_distances,
    kth_of_sparse,
    lengths,
    like_bank,
    omissions,
    unit_features,
)
from skood.nn._make_network import has_dense_features, make_network
from skood.utils._array_api import (
    array_device,
    array_namespace,
    copy_of,
    numpy_dtype,
    row_dots,
    sent_once,
    to_device,
    to_host,
)
from skood.utils._input import takes_input
from skood.utils._optional import pip_install
from skood.utils._parallel import map_chunks
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import double_device, is_tensor, row_chunks
from skood.utils._weights import weighted

# A neighbor found in float32 is accepted if the rounding error of its squared distance
# is below this fraction of it.
_FLOAT32_TOLERANCE = 1e-5

# Samples that a thread searches at a time.
_SEARCH_SAMPLES = 1024

# MiB of distances that scikit-learn uses at a time for other metrics.
_WORKING_MEMORY = 64

# A distance is 0 if it is at most this many times the rounding error of the features:
# the features of a sample vary with the batch that a network computes them in.
_ROUNDING_ERRORS = 64

# Searches and metrics that sparse features do, or do not, have.
_DENSE_SEARCHES = "faiss", "torch"
_SPARSE_METRICS = VALID_METRICS_SPARSE["brute"]

# Advice for metrics that need more than two vectors.
_REFUSED_METRICS = {
    "mahalanobis": "Whiten the features, such as by PCA(whiten=True) in a pipeline, or "
    "use the detector Mahalanobis.",
    "precomputed": "Give the features.",
    "pyfunc": "Name another metric.",
    "seuclidean": "Scale the features, such as by StandardScaler in a pipeline.",
}


class KNN(OutputDetector):
    r"""Negative distance to the k-th nearest training feature (DKNN) [1]_.

    .. math:: s(x) = -\lVert z - z_{(k)} \rVert_2

    where :math:`z_{(k)}` is the k-th nearest of the training features. Features of a
    network are scaled to unit length, :math:`z / \lVert z \rVert_2`, as in the paper.
    Inputs `X`, such as the columns of a table, are not: a sample far from all others
    may have their direction. Columns of different units need a
    :class:`~sklearn.preprocessing.StandardScaler` before the detector. Pass
    ``normalize=True`` if `X` holds features of a network, such as embeddings.

    The search is brute force, in memory bounded by chunks, and exact up to rounding:
    see the Notes. Features in float32 are stored in float32. `explain` returns the
    nearest training samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are used; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features. Sparse
        features stay sparse, see :ref:`sparse`.

    n_neighbors : int, default=5
        The k of the k-th neighbor. The default has the best mean rank in the
        :ref:`study of numbers of neighbors <n_neighbors>`. When a training sample is
        scored, it is its own first neighbor, except for the threshold.

    normalize : bool or "auto", default="auto"
        Whether to scale features to unit Euclidean norm. Zero vectors stay zero.
        "auto": features of a network (a torch network, a graph network, an
        `MLPClassifier`, or the input of a :class:`~skood.nn.LinearHead`) are scaled;
        `X`, and the input of another linear classifier or of trees, is not. For the
        evidence see :ref:`knn_normalize`.

    metric : str, default="euclidean"
        A metric of :class:`~sklearn.neighbors.NearestNeighbors` that depends on two
        vectors only: "euclidean", "manhattan", "chebyshev", "cosine", "correlation",
        "canberra", "braycurtis", "sqeuclidean" and others. "mahalanobis", "seuclidean",
        "precomputed" and "pyfunc" need more, and raise an error.

    max_samples : int or float, default=None
        Number or fraction of training samples in the bank, drawn at random. None: all.

    algorithm : {"auto", "sklearn", "faiss", "torch"}, default="auto"
        Search implementation. "torch" searches on `device`. Otherwise products by NumPy
        find the samples whose Euclidean distance may be among the k smallest; where
        these are too many, and for other metrics, "sklearn" or "faiss" searches.
        "auto": torch on a GPU if `device` is one; else faiss if it is installed; else
        scikit-learn. "faiss" and "torch" need ``metric="euclidean"``. The distance to
        the k-th neighbor is always computed in float64; where float32 is too
        inaccurate, scikit-learn searches again.

    device : str, default="auto"
        Device for a search by torch: "auto" is CUDA for large banks if available, else
        the CPU. A network runs on the device of its classifier.

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
    bank_ : {ndarray, CSR array} of shape (n_stored, n_features)
        The training features in the bank.

    bank_rows_ : ndarray of shape (n_stored,)
        Their row indices in the `X` of fit.

    estimator_ : object
        The fitted classifier, if there is one.

    normalize_ : bool
        Whether features are scaled to unit Euclidean norm.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : Distance to class means.

    Notes
    -----
    Candidates found by products are compared by distances from differences, in float64.
    The other searches compare squared distances computed as differences of squared
    lengths. Rounding (in float64, except for neighbors found by faiss beyond doubt)
    therefore decides between samples whose squared distances are equal up to about
    1e-16 of the squared lengths. For distances of a millionth of the lengths, a sample
    other than the k-th nearest may be chosen, whose distance differs from the true one
    by about 0.1 %. The distance to the chosen sample is computed from the difference,
    in float64.

    References
    ----------
    .. [1] Y. Sun, Y. Ming, X. Zhu, Y. Li. "Out-of-distribution detection with deep
       nearest neighbors". ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.detectors import KNN
    >>> X = np.random.default_rng(0).normal(loc=3, size=(100, 2))
    >>> KNN().fit(X).predict([[3.0, 3.0], [-3.0, -3.0]])
    array([ 1, -1])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "normalize": ["boolean", StrOptions({"auto"})],
        "metric": [str],
        "max_samples": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "algorithm": [StrOptions({"auto", "sklearn", "faiss", "torch"})],
        "random_state": ["random_state"],
    }

    _needs: ClassVar[frozenset] = frozenset({"features"})
    _sparse: ClassVar[str | None] = "kept"
    _device: Any = "cpu"  # only torch uses a GPU, where the bank stays
    # Each score is a search in the bank: a standard error sqrt(.05 * .95 / n) of .007.
    _max_offset_samples = 1000

    def __init__(
        self,
        estimator=None,
        *,
        n_neighbors=5,
        normalize="auto",
        metric="euclidean",
        max_samples=None,
        algorithm="auto",
        device="auto",
        contamination=0.05,
        ood_label=-1,
        random_state=None,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.metric = metric
        self.max_samples = max_samples
        self.algorithm = algorithm
        self.random_state = random_state

    def _fit_outputs(self, outputs, y):
        if self.metric in _REFUSED_METRICS:
            raise ValueError(
                f"metric={self.metric!r} needs more than two samples of features, "
                f"which KNN cannot give it. {_REFUSED_METRICS[self.metric]}"
            )
        self.normalize_ = self.normalize
        if self.normalize == "auto":
            self.normalize_ = (
                self.estimator is not None
                and make_network(self.estimator_).features_are_hidden
            )
        drawn = drawn_indices(
            outputs.n_samples, self.max_samples, self.random_state, outputs.weight
        )
        features = outputs.take(drawn).features
        if self.n_neighbors > features.shape[0]:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the training samples to "
                f"search: n_samples = {features.shape[0]}. Lower n_neighbors or give "
                "more samples."
            )
        every, of_id = np.arange(outputs.n_samples), self._id_indices
        self.bank_rows_ = (every if of_id is None else of_id)[drawn]
        self._bank_indices = None if isinstance(drawn, slice) else drawn
        self._bank_labels = None if y is None else y[drawn]
        self._algorithm = self._choose(features)
        self.bank_ = to_host(self._prepared(features))
        if issparse(features):  # methods of sparse matrices change arrays in place
            self.bank_ = self.bank_.copy()
        self._halves = half_squares(self.bank_) if self.metric == "euclidean" else None
        self._neighbors = None
        if self._algorithm == "sklearn":
            self._neighbors = self._index()

    def _choose(self, features):
        """Return the search: a resolved `algorithm`, or "sparse"."""
        if self.algorithm in _DENSE_SEARCHES and self.metric != "euclidean":
            raise ValueError(
                f"algorithm={self.algorithm!r} needs metric='euclidean', got "
                f"{self.metric!r}. Use algorithm='sklearn'."
            )
        if issparse(features):
            option = remedy = None
            if self.algorithm in _DENSE_SEARCHES:
                option, remedy = f"algorithm={self.algorithm!r}", "algorithm='auto'"
            elif self.metric not in _SPARSE_METRICS:
                option = f"metric={self.metric!r}"
                remedy = "metric='euclidean', 'cosine' or 'manhattan'"
            if option is not None:
                raise TypeError(
                    f"KNN({option}) needs dense features, got a sparse matrix. Use "
                    f"{remedy}, or reduce it first: make_pipeline(TruncatedSVD(100), "
                    f"KNN({option}))."
                )
            return "sparse" if self.metric == "euclidean" else "sklearn"
        if self.metric != "euclidean":
            return "sklearn"
        if self.algorithm == "faiss" and find_spec("faiss") is None:
            raise ValueError(
                "algorithm='faiss' needs the package faiss, which is not installed: "
                f"{pip_install('faiss')}."
            )
        if self.algorithm != "auto":
            return self.algorithm
        if array_device(self.device, features) is not None:
            return "torch"
        return "sklearn" if find_spec("faiss") is None else "faiss"

    def _prepared(self, features):
        """Return features for comparison: of unit length, in their own precision."""
        return unit_features(features) if self.normalize_ else features

    def _bytes_per_row(self, outputs):
        if issparse(self.bank_):
            return self._chunk_bytes // TILE_SAMPLES
        return 4 * outputs.features.dtype.itemsize * outputs.features.shape[1]

    def _chunking(self, outputs):
        if self._algorithm != "torch":
            return super()._chunking(outputs)
        device, tiles = self._tiles()
        on_cpu, n_rows = device.type == "cpu", 4
        if not on_cpu:
            n_rows += 2 * (self.n_neighbors + GPU_CANDIDATES)
        per_row = 8 * (tiles[0].stop + n_rows * self.bank_.shape[1])
        size = max(1, (CPU_BYTES if on_cpu else GPU_BYTES) // per_row)
        return size, None if on_cpu else device, False, False

    def _score_outputs(self, outputs):
        features = outputs.features
        if type(features) is not type(self.bank_):  # one is sparse
            features = like_bank(features, self.bank_)
        return -self._search(self._prepared(features))

    def _onnx_score(self, outputs):
        if self.metric != "euclidean":
            raise ValueError(
                "In ONNX, KNN measures Euclidean distances only, got metric="
                f"{self.metric!r}. Use metric='euclidean'."
            )
        if issparse(self.bank_):
            raise TypeError(
                "In ONNX the bank of KNN must be dense, and it is sparse. Reduce the "
                "features first: make_pipeline(TruncatedSVD(100), KNN())."
            )
        features = outputs.features.unit() if self.normalize_ else outputs.features
        bank = self.bank_.astype(np.float64)
        return -features.nearest(bank, self.n_neighbors).apply("Sqrt")

    def _left_out_scores(self, outputs, y, drawn, copy_weights=None):
        drawn, omit, copy_weights = omissions(
            self._bank_indices, drawn, self.bank_.shape[0], copy_weights
        )
        if len(drawn) == 0:
            drawn = np.arange(outputs.n_samples)
            return super()._left_out_scores(outputs, y, drawn, outputs.weight)
        whole = copy_weights is None and len(drawn) == outputs.n_samples
        left_outputs = outputs if whole else outputs.take(drawn)
        distances = []
        for chunk, left_out in self._chunks(left_outputs, omit):
            queries = self._prepared(chunk.features)
            distances.append(to_host(self._search(queries, left_out)))
        return weighted(-np.concatenate(distances), copy_weights)

    def _search(self, queries, omit=None):
        """Return distances to the k-th neighbors, of which none is the sample itself.

        `omit` are the indices of the samples in the bank, -1 for others.
        """
        k, halves = self.n_neighbors, self._halves
        if self._algorithm == "torch":
            return self._search_torch(queries, omit)
        if self.metric != "euclidean":
            distances, nearest = self._kneighbors(queries, self._count(omit))
            column = self._column(nearest, omit)
            distances = np.take_along_axis(distances, column, axis=1)[:, 0]
            return self._without_rounding(distances, queries)
        if self._algorithm == "sparse":
            nearest = kth_of_sparse(queries, self.bank_, halves, k, omit)
            return self._distances(queries, nearest)
        if len(queries) > _SEARCH_SAMPLES:
            return self._search_in_threads(queries, omit)
        distances = kth_distances(queries, self.bank_, halves, k, omit)
        if distances is not None:
            return self._without_rounding(distances, queries)
        if self._algorithm == "faiss":
            return self._distances_faiss(queries, omit)
        return self._distances(queries, self._nearest_sklearn(queries, omit))

    def _search_in_threads(self, queries, omit):
        """Return distances as `_search`, of `_SEARCH_SAMPLES` samples per thread."""
        if self._algorithm == "faiss":
            import faiss  # noqa: F401  # so that its threads are limited
        distances = map_chunks(
            lambda chunk: self._search(
                queries[chunk], None if omit is None else omit[chunk]
            ),
            list(row_chunks(len(queries), 1, _SEARCH_SAMPLES)),
        )
        return np.concatenate(distances)

    def _search_torch(self, queries, omit):
        """Return distances as `_search`; the bank and its lengths stay on a GPU."""
        device, tiles = self._tiles()
        bank, queries = sent_once(self.bank_, device), to_device(queries, device)
        # |q - b|²/2 without |q|²/2, which all neighbors of q have in common
        half_norms = copy_of(
            self.bank_,
            ("half norms", device),
            lambda: array_namespace(bank).concat(
                [row_dots(*[bank[tile].double()] * 2) / 2 for tile in tiles]
            ),
        )
        distances = distances_of_tiles(
            queries, bank, tiles, half_norms, self.n_neighbors, omit
        )
        return self._without_rounding(distances, queries)

    def _tiles(self):
        """Return the torch device of a search, and slices of the bank."""
        device = double_device(self.device)
        budget = CPU_BYTES if device.type == "cpu" else GPU_BYTES
        return device, [*row_chunks(len(self.bank_), 8 * self.bank_.shape[1], budget)]

    def _count(self, omit):
        """Return the number of neighbors to search: k + 1 if a sample finds itself."""
        return min(self.n_neighbors + (omit is not None), self.bank_.shape[0])

    def _column(self, nearest, omit):
        """Return the column, (n_samples, 1), of the k-th neighbor, without itself."""
        k = self.n_neighbors
        if omit is None:
            return np.full((len(nearest), 1), k - 1)
        finds_itself = (nearest[:, :k] == omit[:, None]).any(axis=1, keepdims=True)
        return np.minimum(k - 1 + finds_itself, nearest.shape[1] - 1)

    def _distances(self, queries, nearest):
        """Return distances, in float64, from each query to its row of the bank.

        Searches subtract squared norms, which cancels for near samples: in float64 they
        find the right sample, but its distance is inaccurate.
        """
        distances = distances_to(self.bank_, nearest, queries)
        return self._without_rounding(distances, queries)

    def _without_rounding(self, distances, queries):
        """Return distances, set to 0 for features that are equal up to rounding."""
        on_torch = is_tensor(queries)
        dtype = numpy_dtype(queries) if on_torch else queries.dtype
        eps = max(np.finfo(dtype).eps, np.finfo(self.bank_.dtype).eps)
        is_dense = self.metric == "euclidean" and not issparse(queries)
        size = lengths(queries, None if is_dense else self.metric)
        least = _ROUNDING_ERRORS * eps * size
        if on_torch:
            return distances.masked_fill(distances <= least, 0.0)
        return np.where(distances <= least, 0.0, distances)

    def _index(self):
        """Return scikit-learn's index; not stored for faiss: files have one bank."""
        if self._neighbors is not None:
            return self._neighbors
        return NearestNeighbors(
            n_neighbors=self.n_neighbors, algorithm="brute", metric=self.metric
        ).fit(self.bank_)

    def _kneighbors(self, queries, count):
        """Return distances and indices of the neighbors, by scikit-learn."""
        with config_context(working_memory=_WORKING_MEMORY):
            return self._index().kneighbors(queries, count)

    def _nearest_sklearn(self, queries, omit=None):
        if queries.dtype != self.bank_.dtype:  # else the bank would be copied
            with np.errstate(over="ignore"):
                cast = queries.astype(self.bank_.dtype)
            if np.isfinite(cast).all():
                queries = cast
        nearest = self._kneighbors(queries, self._count(omit))[1]
        return np.take_along_axis(nearest, self._column(nearest, omit), axis=1)[:, 0]

    def _distances_faiss(self, queries, omit=None):
        """Return distances; search again what float32 leaves in doubt."""
        import faiss

        squared, nearest = faiss.knn(
            np.ascontiguousarray(queries, dtype=np.float32),
            np.ascontiguousarray(self.bank_, dtype=np.float32),
            self._count(omit),
        )
        column = self._column(nearest, omit)
        squared = np.take_along_axis(squared, column, axis=1)[:, 0].astype(np.float64)
        nearest = np.take_along_axis(nearest, column, axis=1)[:, 0]
        # The error of float32 is visible in its distances.
        distances = self._distances(queries, nearest)
        exact = distances**2
        doubtful = np.abs(squared - exact).max() > _FLOAT32_TOLERANCE * exact
        if doubtful.any():
            doubts = queries[doubtful]
            again = self._nearest_sklearn(
                doubts, None if omit is None else omit[doubtful]
            )
            distances[doubtful] = self._distances(doubts, again)
        return distances

    @takes_input
    def explain(self, X, *, n_features=3, n_neighbors=None):
        """Return the nearest training samples and the feature contributions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        n_features : int, default=3
            Number of features to report, with the largest contributions to the squared
            distance to the k-th neighbor first. 0 for metrics other than the Euclidean
            one, whose distances are not sums over features.

        n_neighbors : int, default=None
            Number of neighbors to report, the nearest first; at most the k of the
            score. None: 5, or k if that is less.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame: the
            columns ``score`` and ``is_ood``; ``nearest_class``, the label of the
            nearest training sample, if there are labels; ``neighbor_1``,
            ``distance_1``, …: row indices in the `X` of fit, and their distances;
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
        self._check_fitted()
        if n_neighbors is None:
            n_neighbors = min(5, self.n_neighbors)
        if not (
            isinstance(n_neighbors, Integral)
            and 0 <= int(n_neighbors) <= self.n_neighbors
        ):
            raise ValueError(
                f"explain can name from 0 to {self.n_neighbors} neighbors, as many as "
                f"the n_neighbors of the detector, got n_neighbors={n_neighbors!r}. "
                "Name fewer, or fit with more."
            )
        if self.metric != "euclidean" and n_features:
            raise ValueError(
                f"With metric={self.metric!r} a distance is no sum over features: "
                "pass n_features=0."
            )
        return self._explanation(X, n_features, count=n_neighbors)

    def _explained(self, outputs, count=0):
        queries = self._prepared(like_bank(outputs.features, self.bank_))
        distances, nearest = self._kneighbors(queries, self.n_neighbors)
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
        if issparse(gaps):
            queries, gaps = queries.toarray(), gaps.toarray()
        nearest_points = queries - gaps
        reference = ReferencePoints(nearest_points, "neighbor", is_unit=self.normalize_)
        return columns, gaps**2, reference

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.algorithm in _DENSE_SEARCHES or self.metric not in _SPARSE_METRICS:
            tags.input_tags.sparse &= has_dense_features(self.estimator)
        return tags
