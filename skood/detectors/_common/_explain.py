"""Explanations of scores by feature contributions, as a data frame."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skood.nn._make_network import make_network
from skood.nn._outputs import concatenate
from skood.utils._metaestimators import unwrapped
from skood.utils._optional import import_pandas

__all__ = ["explanation"]


def explanation(detector, X, n_features, **options):
    """Return the data frame of `explain`; `options` are passed to ``_explained``."""
    check_is_fitted(detector, "offset_")
    check_scalar(n_features, "n_features", Integral, min_val=0)
    pd = import_pandas("explain")
    reading = concatenate(
        reading
        for batch in detector._batches(X)
        for reading in detector._read(detector._checked(batch))
    )
    frames = []
    for rows in detector._chunks(reading):
        block = reading.rows(rows).to(None)
        columns, contributions = detector._explained(block, **options)
        found = _columns(detector, columns, contributions, n_features)
        frames.append(pd.DataFrame(found))
    frame = pd.concat(frames, ignore_index=True)
    scores = detector._score_rows(reading)
    frame.insert(0, "score", scores)
    frame.insert(1, "is_ood", scores < detector.offset_)
    if hasattr(X, "iloc"):
        frame.index = X.index
    return frame


def _columns(detector, columns, contributions, n_features):
    """Return columns with the leading features of a chunk, and their contributions."""
    if n_features > contributions.shape[1]:
        raise ValueError(
            f"n_features={n_features}, but there are only "
            f"{contributions.shape[1]} features."
        )
    # the largest first, ties in the order of the features
    order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_features]
    names = _feature_names(detector, contributions.shape[1])
    values = np.take_along_axis(contributions, order, axis=1)
    for j in range(n_features):
        columns[f"feature_{j + 1}"] = names[order[:, j]]
        columns[f"contribution_{j + 1}"] = values[:, j]
    return columns


def _feature_names(detector, n_features):
    """Return the names of the features, or indices if they have no names."""
    names = getattr(detector, "feature_names_in_", None)
    if names is not None and detector.estimator is not None:
        names = _names_of_features(detector.estimator_, names)
    return np.arange(n_features) if names is None else names


def _names_of_features(estimator, names):
    """Return the names of the features of a classifier without layers."""
    estimator = unwrapped(estimator)
    steps = getattr(estimator, "steps", None)
    if not isinstance(steps, list):
        return names if make_network(estimator).features_are_rows else None
    if len(steps) > 1:
        if not hasattr(estimator[:-1], "get_feature_names_out"):
            return None
        names = estimator[:-1].get_feature_names_out(names)
    return _names_of_features(steps[-1][1], names)
