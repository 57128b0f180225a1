"""Values and probabilities of concepts, and scores of the detector, for samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from skood.logic._concepts import predict_codes, predict_proba
from skood.nn._shared_forward import shared_blocks, shared_outputs, uses_network
from skood.utils._metaestimators import n_rows, take_rows


def some_rows(X, rows):
    """Return samples by index; the same object if these are all samples in order."""
    if np.array_equal(rows, np.arange(n_rows(X))):
        return X
    return take_rows(X, rows)


def fit_one(name, estimator, X, y):
    """Fit a clone; errors contain the name of the estimator."""
    fitted = clone(estimator)
    try:
        if y is not None:
            return fitted.fit(X, y)
        return fitted if isinstance(fitted, FrozenEstimator) else fitted.fit(X)
    except Exception as error:
        error.add_note(f"This happened in fitting {name!r}.")
        if getattr(y, "ndim", 1) == 2 and y.dtype == object:
            error.add_note(
                "The labels of its concepts are of different kinds, which many "
                "classifiers with several outputs cannot learn. Give them in one kind, "
                "such as text, or a classifier to each concept."
            )
        raise


def read_samples(parts, detector, X, domains, needs_proba):
    """Return a Bunch of codes (n_samples, n_concepts), a list of probabilities
    (n_samples, n_values), if needed, and outlier scores (n_samples,), if any.
    """
    networks = [
        part.classifier
        for part in parts
        if isinstance(part.classifier, FrozenEstimator)
        and uses_network(part.classifier)
    ]
    if not networks or not hasattr(detector, "score_samples"):
        return _outputs(parts, detector, X, domains, needs_proba)
    # a frozen network that a concept shares with the detector is run once
    with shared_outputs([detector], networks):
        blocks = [
            _outputs(parts, detector, block, domains, needs_proba)
            for block in shared_blocks(X)
        ]
    proba = None
    if needs_proba:
        columns = zip(*(block.proba for block in blocks), strict=True)
        proba = [np.concatenate(column) for column in columns]
    return Bunch(
        codes=np.concatenate([block.codes for block in blocks]),
        proba=proba,
        outlier=np.concatenate([block.outlier for block in blocks]),
    )


def _outputs(parts, detector, X, domains, needs_proba):
    """Return the outputs for a block of samples, see `read_samples`."""
    codes: list = []
    proba: list = []
    confidence: list = []
    for part in parts:
        found = predict_proba(part, X, domains) if needs_proba else []
        proba += found
        confidence += [p.max(axis=1) for p in found if part.is_given]
        if found and uses_network(part.classifier):
            codes += [np.argmax(p, axis=1) for p in found]  # a network runs once
        else:
            codes += predict_codes(part, X, domains)
    outlier = None
    if isinstance(detector, str):
        outlier = -np.mean(confidence, axis=0)
    elif detector is not None:
        outlier = _outlier_scores(detector, X)
    return Bunch(
        codes=np.stack(codes, axis=1),
        proba=proba if needs_proba else None,
        outlier=outlier,
    )


def _outlier_scores(detector, X):
    """Return minus the scores of a detector, of shape (n_samples,), without NaN."""
    scores = np.asarray(detector.score_samples(X), dtype=np.float64)
    if scores.shape != (n_rows(X),):
        raise ValueError(
            f"The detector gave scores of shape {scores.shape} for {n_rows(X)} "
            "samples: score_samples must return one score per sample."
        )
    if np.isnan(scores).any():
        raise ValueError(
            f"The detector gave NaN as the score of {int(np.isnan(scores).sum())} of "
            f"{len(scores)} samples: its features or logits overflow. Scale X, or look "
            "at the outputs of its classifier."
        )
    return -scores
