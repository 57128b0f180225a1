"""Closed-form class probabilities for normally distributed logits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax


def mean_field_proba(logits, covariances):
    """Return the pairwise mean-field approximation of the mean of the softmax.

    p_k is proportional to 1 / sum_l exp(-(f_k - f_l) / sqrt(1 + π V_kl / 8)), where
    V_kl = Σ_kk + Σ_ll - 2 Σ_kl, with means `logits` (n_rows, n_classes) and
    `covariances` (n_rows, n_classes, n_classes). For two classes it is MacKay's
    approximation.
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spread = variances[:, :, None] + variances[:, None, :] - 2 * covariances
    scale = np.sqrt(1 + np.pi / 8 * np.maximum(spread, 0.0))
    differences = (logits[:, :, None] - logits[:, None, :]) / scale
    return softmax(-logsumexp(-differences, axis=2), axis=1)


def mean_field_of_blocks(logits, blocks):
    """Return `mean_field_proba` from variances of differences, block by block.

    Blocks are slices of samples and of classes k, and V (n_rows, n_block, n_classes)
    for these, which is overwritten.
    """
    log_sums = logits.clone()
    for rows, some, spread in blocks:
        scaled = spread.clamp_(min=0).mul_(np.pi / 8).add_(1).rsqrt_()
        scaled *= logits[rows, None] - logits[rows, some, None]
        log_sums[rows, some] = scaled.logsumexp(2)
    return softmax(-log_sums.cpu().numpy(), axis=1)


def probit_proba(logits, variances):
    """Return MacKay's approximation of the mean of the softmax, for many classes.

    p_k is proportional to exp(f_k / sqrt(1 + π Σ_kk / 8)). `variances` have the shape
    (n_rows, n_classes), or (n_rows, 1) for a margin with logits (-m/2, m/2).
    """
    return softmax(logits / np.sqrt(1 + np.pi / 8 * variances), axis=1)


def bridge_log_alpha(logits, variances, row_sums, *, normalize=False):
    """Return log parameters (n_rows, n_classes) of the Laplace bridge's Dirichlet.

    It is the Dirichlet whose Laplace approximation has the given moments, means and
    covariances Σ, whose diagonals and row sums are given. They are first conditioned on
    sum_k f_k = 0, which the inverse of the softmax implies; then alpha_k = 1 / Σ_kk (1
    - 2/K + e^f_k / K^2 sum_l e^-f_l). The parameters themselves may overflow.

    `normalize` scales f and Σ first, by 1 / sqrt(c) and 1/c with c the mean of the Σ_kk
    over sqrt(K/2).
    """
    n_classes = logits.shape[1]
    total = row_sums.sum(axis=1, keepdims=True)
    # row sums of zero up to rounding: no conditioning is needed
    some = total > 1e-12 * variances.sum(axis=1, keepdims=True)
    share = np.where(some, row_sums / np.where(some, total, 1.0), 1 / n_classes)
    mean = logits - share * logits.sum(axis=1, keepdims=True)
    variances = variances - np.where(some, share * row_sums, 0.0)
    variances = np.maximum(variances, np.finfo(np.float64).tiny)
    if normalize:
        scale = variances.mean(axis=1, keepdims=True) / np.sqrt(n_classes / 2)
        mean, variances = mean / np.sqrt(scale), variances / scale
    grown = mean + logsumexp(-mean, axis=1, keepdims=True) - 2 * np.log(n_classes)
    with np.errstate(divide="ignore"):
        constant = np.log(1 - 2 / n_classes)  # minus infinity for two classes
    return np.logaddexp(constant, grown) - np.log(variances)


def bridge_proba(logits, variances, row_sums, *, normalize=False):
    """Return the mean of the Laplace bridge's Dirichlet, see `bridge_log_alpha`."""
    log_alpha = bridge_log_alpha(logits, variances, row_sums, normalize=normalize)
    return np.exp(log_softmax(log_alpha, axis=1))
