"""Scores of detectors as formulas of an ONNX graph.

Each function takes a fitted detector and its inputs, and returns its scores as an array
of shape (n_samples, 1). The formulas are the same as in the detectors, in float64.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.detectors import (
    GEN,
    KNN,
    MSP,
    SSD,
    Energy,
    Entropy,
    KLMatching,
    Mahalanobis,
    MaxLogit,
    RelativeMahalanobis,
    Residual,
    ViM,
)

__all__ = ["formula_of"]

# Replaces -inf for terms excluded from a log-sum-exp.
_FAR_BELOW = float(np.finfo(np.float64).min) / 4


def _log1p(x):
    """Return log(1 + x) for x >= 0, also if most or all of x is lost by rounding."""
    whole = x + 1.0
    added = whole - 1.0  # x after rounding
    logs = whole.apply("Log") * (x / added.or_one())
    return logs.where(x, x.graph.node("Greater", added, 0.0))


def _shifted(logits, temperature, n_classes):
    """Return exponentials without the largest, sum, shifted logits and largest."""
    mask = logits.graph.node("Equal", logits.argmax(), np.arange(n_classes)[None])
    shifted = (logits - logits.max()) / temperature
    exponentials = logits.graph.constant(0.0).where(shifted.apply("Exp"), mask)
    return exponentials, exponentials.sum(), shifted, mask


def _logsumexp(logits):
    top = logits.max()
    return top + (logits - top).apply("Exp").sum().apply("Log")


def _squared(rows):
    return (rows * rows).sum()


def _nearest(points, centers):
    """Return the squared distance to the nearest center, from the difference."""
    gaps = points @ (-2.0 * centers.T) + (centers**2).sum(axis=1)
    return _squared(points - gaps.smallest(1).rows_of(centers))


def _unit(rows):
    rows = rows / rows.apply("Abs").max().or_one()
    return rows / _squared(rows).apply("Sqrt").or_one()


def _msp(detector, features, logits, n_classes):
    _, others, _, _ = _shifted(logits, detector.temperature, n_classes)
    return -(others / (others + 1.0))


def _max_logit(detector, features, logits, n_classes):
    return logits.max()


def _energy(detector, features, logits, n_classes):
    logits = logits / detector.temperature
    if detector._log_weight is not None:
        logits = logits + np.maximum(detector._log_weight, _FAR_BELOW)
    return _logsumexp(logits) * detector.temperature


def _entropy(detector, features, logits, n_classes):
    exponentials, others, shifted, _ = _shifted(logits, 1.0, n_classes)
    return (exponentials * shifted).sum() / (others + 1.0) - _log1p(others)


def _gen(detector, features, logits, n_classes):
    graph = logits.graph
    _, others, shifted, mask = _shifted(logits, 1.0, n_classes)
    log_square = _log1p(others) * 2.0
    rest = graph.constant(_FAR_BELOW).where(shifted, mask)  # without the largest
    total = ((_logsumexp(rest) - log_square) * detector.gamma).apply("Exp")
    n_others = min(detector.top, n_classes) - 1
    if n_others == 0:
        return -total
    index = (-rest).smallest(n_others)
    kept = graph.node("GatherElements", rest, index, axis=1)
    terms = (others + 1.0 - kept.apply("Exp")).apply("Log") + kept - log_square
    return -(total + (terms * detector.gamma).apply("Exp").sum())


def _kl_matching(detector, features, logits, n_classes):
    exponentials, others, shifted, _ = _shifted(logits, 1.0, n_classes)
    logs = detector._log_distributions
    cross = exponentials @ logs + shifted.argmax().rows_of(logs)
    nearest = (exponentials * shifted).sum() - cross.max()
    divergence = nearest / (others + 1.0) - _log1p(others)
    return -divergence.apply("Relu")


def _mahalanobis(detector, features, logits, n_classes):
    whitening = detector._whitening
    white = (features - whitening.center) @ whitening.matrix
    if getattr(detector, "_components", None) is None:
        return -_nearest(white, whitening.means)
    columns = [
        _squared((white - mean) @ matrix) * -0.5 + constant
        for mean, (matrix, constant) in zip(
            whitening.means, detector._components, strict=True
        )
    ]
    return _logsumexp(features.graph.node("Concat", *columns, axis=1))


def _ssd(detector, features, logits, n_classes):
    return _mahalanobis(detector, _unit(features), logits, n_classes)


def _relative_mahalanobis(detector, features, logits, n_classes):
    directions = detector._directions
    at = (features - detector.background_location_) @ directions
    at = at - detector._lost @ directions
    background = (at * detector._precisions * at).sum()
    return background - _nearest(at, detector._centers)


def _knn(detector, features, logits, n_classes):
    if detector.metric != "euclidean":
        raise ValueError(
            "In ONNX, KNN measures Euclidean distances only, got metric="
            f"{detector.metric!r}. Use metric='euclidean'."
        )
    rows = _unit(features) if detector.normalize else features
    bank = detector.bank_.astype(np.float64)
    gaps = rows @ (-2.0 * bank.T) + (bank**2).sum(axis=1)
    last = rows.graph.node(
        "Slice",
        gaps.smallest(detector.n_neighbors),
        [detector.n_neighbors - 1],
        [detector.n_neighbors],
        [1],
    )
    return -_squared(rows - last.rows_of(bank)).apply("Sqrt")


def _residual(detector, features, logits, n_classes):
    space = detector._space
    return -_squared(features @ space.complement - space._shift).apply("Sqrt")


def _vim(detector, features, logits, n_classes):
    residual = _residual(detector, features, logits, n_classes)
    return _logsumexp(logits) + residual * detector.alpha_


_FORMULAS = {
    GEN: _gen,
    KNN: _knn,
    MSP: _msp,
    SSD: _ssd,
    Energy: _energy,
    Entropy: _entropy,
    KLMatching: _kl_matching,
    Mahalanobis: _mahalanobis,
    MaxLogit: _max_logit,
    RelativeMahalanobis: _relative_mahalanobis,
    Residual: _residual,
    ViM: _vim,
}


def formula_of(kind=None):
    """Return the formula of a class of detectors, or all classes with one."""
    return list(_FORMULAS) if kind is None else _FORMULAS[kind]
