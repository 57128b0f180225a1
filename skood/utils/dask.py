"""Lazy application of estimators to dask arrays.

Methods of skood compute dask arrays chunk by chunk and return NumPy arrays. With
:func:`map_rows` the result is itself a dask array.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect

import numpy as np

from skood.utils._optional import is_instance

__all__ = ["map_rows"]


def map_rows(method, X):
    """Apply a method of a fitted estimator to the chunks of a dask array, lazily.

    The estimator is sent to each worker of a cluster once, not with each chunk as by
    ``X.map_blocks(detector.score_samples)``.

    Read more in the :ref:`User Guide <scale>`.

    Parameters
    ----------
    method : bound method
        Such as ``detector.score_samples`` or ``classifier.predict_proba``, of a fitted
        estimator. Its result for a sample must not depend on other samples. It is
        called with one sample of zeros to determine the shape of the result.

    X : dask.array.Array of shape (n_samples, ...)
        The samples. The sizes of chunks may be unknown. Chunks of columns are joined.

    Returns
    -------
    result : dask.array.Array of shape (n_samples,) or (n_samples, n_columns)
        Chunked along the samples like `X`.

    Raises
    ------
    TypeError
        If `X` is no dask array, or `method` is no bound method.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import KNN
    >>> from skood.utils.dask import map_rows
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = KNN(n_neighbors=5).fit(X, y)
    >>> scores = map_rows(detector.score_samples, da.from_array(X, chunks=(50, 4)))
    >>> scores.chunks
    ((50, 50, 50),)
    >>> scores.compute()[:3].round(2), detector.score_samples(X[:3]).round(2)
    (array([-0.14, -0.17, -0.26]), array([-0.14, -0.17, -0.26]))
    """
    if not is_instance(X, "dask.array", "Array"):
        raise TypeError(
            f"X must be a dask.array.Array, got a {type(X).__name__}. Call the method "
            "itself for samples in memory; make an array of a dask data frame by "
            "X.to_dask_array()."
        )
    if X.ndim < 2:
        raise ValueError(
            f"X must have the shape (n_samples, ...), got {X.ndim} axis. Reshape it."
        )
    if not inspect.ismethod(method):
        raise TypeError(
            f"method must be one of a fitted estimator, such as "
            f"detector.score_samples, got {method!r}."
        )
    from dask.delayed import delayed

    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    tried = np.asarray(method(np.zeros((1, *X.shape[1:]), dtype=X.dtype)))
    columns = tuple((size,) for size in tried.shape[1:])
    return X.map_blocks(
        _called,
        name=None,
        estimator=delayed(method.__self__, traverse=False),
        method=method.__name__,
        empty=tried[:0],
        drop_axis=list(range(tried.ndim, X.ndim)),
        chunks=(X.chunks[0], *columns),
        dtype=tried.dtype,
        meta=tried[:0],
    )


def _called(block, *, estimator, method, empty):
    """Return the result for a chunk, which may have no samples."""
    return getattr(estimator, method)(block) if len(block) else empty
