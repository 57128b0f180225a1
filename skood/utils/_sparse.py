"""Sparse matrices of samples: CSR arrays in canonical form, and functions of rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils.validation import validate_data

from skood.utils._optional import is_instance
from skood.utils._torch import is_tensor

# How errors about sparse samples begin, in scikit-learn as well.
_REFUSED = "Sparse data was passed"


def float_samples(estimator, X, **options):
    """Return `validate_data` of samples, in float32 or float64; CSR if sparse."""
    options = {"dtype": [np.float64, np.float32]} | options
    X = validate_data(estimator, X, accept_sparse="csr", **options)
    return _canonical(X) if issparse(X) else X


def _canonical(X):
    """Return a CSR array with sorted indices that differ, of 32 bits if they fit.

    Arrays that need no change are shared with `X`, which is not modified.
    """
    X = csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.indices.dtype != np.int32 and max(*X.shape, X.nnz) < 2**31:
        parts = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
        X = csr_array(parts, shape=X.shape)
    return X


def check_dense(array):
    """Raise a TypeError for a sparse matrix; see `dense_error`."""
    if issparse(array):
        raise TypeError(
            f"{_REFUSED}, but dense features are required. Reduce them by TruncatedSVD "
            "in a pipeline."
        )


def dense_error(owner, error):
    """Return the error of an estimator that needs dense samples, or None.

    `error` is an error of scikit-learn, or of `check_dense`.
    """
    if not (isinstance(error, TypeError) and str(error).startswith(_REFUSED)):
        return None
    name, inner = type(owner).__name__, getattr(owner, "estimator", None)
    if inner is None and "features" not in getattr(owner, "_needs", ("features",)):
        return TypeError(
            f"With estimator=None {name} takes X for logits, which are dense; got a "
            "sparse matrix. For sparse features give their classifier: "
            f"{name}(LogisticRegression())."
        )
    reduced = f"make_pipeline(TruncatedSVD(100), {name}())"
    if inner is not None:
        steps = ["TruncatedSVD(100)", *_calls(inner)[-1:]]
        steps = [*_calls(inner)[:-1], *steps]
        reduced = f"{name}(make_pipeline({', '.join(steps)}))"
    return TypeError(
        f"{name} needs dense features, got a sparse matrix. Reduce it first: {reduced}."
    )


def _calls(estimator):
    """Return the steps of a pipeline, or the only estimator, as they are written."""
    estimator = getattr(estimator, "estimator", estimator)  # frozen, or in a search
    steps = [estimator]
    if is_instance(estimator, "sklearn.pipeline", "Pipeline"):
        steps = [step for _, step in estimator.steps if not isinstance(step, str)]
    return [f"{type(step).__name__}()" for step in steps if step is not None]


def _row_of_entries(X):
    """Return the row of each stored value of a CSR array."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def csr_lengths(X, order=2):
    """Return the norms, of order 1 or 2 and in float64, of the rows of a CSR array."""
    values = np.abs(X.data.astype(np.float64, copy=False))
    sums = np.bincount(_row_of_entries(X), values**order, minlength=X.shape[0])
    return np.sqrt(sums) if order == 2 else sums


def unit_csr(X):
    """Scale rows of a CSR array to unit Euclidean length, see `unit_rows`."""
    row_index, values = _row_of_entries(X), X.data.astype(np.float64)
    if X.dtype == np.float64:
        largest = np.zeros(X.shape[0])
        np.maximum.at(largest, row_index, np.abs(values))
        largest[largest == 0] = 1.0
        values /= largest[row_index]
    lengths = np.sqrt(np.bincount(row_index, values**2, minlength=X.shape[0]))
    lengths[lengths == 0] = 1.0
    values /= lengths[row_index]
    return csr_array((values, X.indices, X.indptr), shape=X.shape)


def scaled_rows(X, factors):
    """Return rows, dense or in CSR format, times one factor each."""
    if not issparse(X):
        return X * factors[:, None]
    values = X.data * factors[_row_of_entries(X)]
    return csr_array((values, X.indices, X.indptr), shape=X.shape)


def stacked(parts):
    """Return consecutive blocks of rows, dense or in CSR format, as one new array."""
    if is_tensor(parts[0]):
        import torch

        return torch.cat(parts)
    if not issparse(parts[0]):
        return np.concatenate(parts)
    return parts[0].copy() if len(parts) == 1 else vstack(parts, format="csr")


def inner_products(queries, vectors):
    """Return the dense inner products, (n_queries, n_rows), of two sets of rows."""
    if not issparse(vectors):
        return queries @ vectors.T
    # Only the queries, which are fewer, are converted for the product.
    return (vectors @ queries.T).toarray(order="F").T
