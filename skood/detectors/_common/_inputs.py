"""Input of detectors that use features or logits, with or without a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.sparse import issparse
from sklearn.frozen import FrozenEstimator

from skood.utils._batches import is_lazy, is_torch_data, labeled_rows, loaded
from skood.utils._sparse import check_dense

# Bytes, in float64, of a block of samples that a classifier is given.
BLOCK_BYTES = 32 * 2**20


def labels_later(X, y, estimator):
    """Return samples and labels; torch data yield their labels when they are loaded."""
    is_frozen = isinstance(estimator, FrozenEstimator)
    samples, labels = labeled_rows(X, y, wait=estimator is None or is_frozen)
    if estimator is not None or not is_lazy(X):
        return samples, labels
    array = loaded(samples)  # the detector learns from the array itself
    return array, samples.labels() if y is None and is_torch_data(samples) else y


def check_columns(detector, n_columns):
    """Raise if X cannot be logits of the classes in y, for example features."""
    n_classes = len(detector.classes_)
    # a single class only marks ID samples; a single column is rejected elsewhere
    if n_classes in (1, n_columns) or n_columns == 1:
        return
    name = type(detector).__name__
    raise ValueError(
        f"X has n_features = {n_columns} columns, but y has {n_classes} classes: "
        f"with estimator=None {name} takes the columns of X for logits, one per "
        f"class. For features, pass the classifier: {name}(estimator=classifier). "
        "For logits of a network with other classes than those in y, pass "
        f"estimator=LinearHead(numpy.eye({n_columns}), "
        f"numpy.zeros({n_columns}), classes=...) with one class per column, or, "
        "where no labels are needed, fit without y."
    )


def check_logits(logits):
    """Return logits; raise if there are fewer than two classes."""
    if logits.shape[1] < 2:
        raise ValueError(
            "With estimator=None X holds logits, one column per class, but got "
            f"n_features = {logits.shape[1]}. Give a binary margin m as the two "
            "columns -m/2 and m/2, or pass the classifier as estimator=."
        )
    return logits


def column_labels(detector, n_columns):
    """Return the labels of the columns of logits, not only of the ID classes."""
    source = getattr(detector, "estimator_", detector)
    labels = np.asarray(getattr(source, "classes_", np.arange(n_columns)))
    if len(labels) != n_columns:
        raise ValueError(
            f"{type(detector).__name__} got {n_columns} logits for {len(labels)} "
            f"classes: {labels.tolist()}. Give one logit per class, in the order "
            "of classes_."
        )
    return labels


def with_dense_features(outputs):
    """Return the outputs; raise if features are sparse."""
    check_dense(outputs.features)
    return outputs


def stored_columns(array):
    """Return the number of columns, in a CSR array of stored values per row."""
    return -(-array.nnz // array.shape[0]) if issparse(array) else array.shape[1]
