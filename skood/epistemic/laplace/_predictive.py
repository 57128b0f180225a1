"""Closed-form class probabilities for normally distributed logits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax

__all__ = [
    "bridge_log_alpha",
    "bridge_proba",
    "mean_field_of_blocks",
    "mean_field_proba",
    "probit_proba",
]


def mean_field_proba(logits, covariances):
    r"""Return the pairwise mean-field approximation of the mean of the softmax.

    .. math:: p_k \propto \Bigl(\sum_l \exp\Bigl(-\frac{f_k - f_l}
       {\sqrt{1 + \pi V_{kl} / 8}}\Bigr)\Bigr)^{-1}, \qquad
       V_{kl} = \Sigma_{kk} + \Sigma_{ll} - 2 \Sigma_{kl} .

    Parameters
    ----------
    logits : ndarray of shape (n_rows, n_classes)
        Means f.

    covariances : ndarray of shape (n_rows, n_classes, n_classes)
        Covariances.

    Returns
    -------
    proba : ndarray of shape (n_rows, n_classes)
        Probabilities. For two classes they equal MacKay's approximation.
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spread = variances[:, :, None] + variances[:, None, :] - 2 * covariances
    scale = np.sqrt(1 + np.pi / 8 * np.maximum(spread, 0.0))
    differences = (logits[:, :, None] - logits[:, None, :]) / scale
    return softmax(-logsumexp(-differences, axis=2), axis=1)


def mean_field_of_blocks(logits, blocks):
    """Return `mean_field_proba` from variances of differences, block by block.

    Parameters
    ----------
    logits : torch.Tensor of shape (n_rows, n_classes)
        Means f.

    blocks : iterable of (slice, slice, torch.Tensor)
        Indices of samples and of classes k, and V for these, of shape (n_rows, n_block,
        n_classes), which is overwritten.

    Returns
    -------
    proba : ndarray of shape (n_rows, n_classes)
        Probabilities.
    """
    log_sums = logits.clone()
    for rows, some, spread in blocks:
        scaled = spread.clamp_(min=0).mul_(np.pi / 8).add_(1).rsqrt_()
        scaled *= logits[rows, None] - logits[rows, some, None]
        log_sums[rows, some] = scaled.logsumexp(2)
    return softmax(-log_sums.cpu().numpy(), axis=1)


def probit_proba(logits, variances):
    r"""Return MacKay's approximation of the mean of the softmax, for many classes.

    .. math:: p_k \propto \exp\bigl(f_k / \sqrt{1 + \pi \Sigma_{kk} / 8}\bigr)

    Parameters
    ----------
    logits : ndarray of shape (n_rows, n_classes)
        Means f.

    variances : ndarray of shape (n_rows, n_classes) or (n_rows, 1)
        Variances. One column: variance of the margin with logits (-m/2, m/2).

    Returns
    -------
    proba : ndarray of shape (n_rows, n_classes)
        Probabilities.
    """
    return softmax(logits / np.sqrt(1 + np.pi / 8 * variances), axis=1)


def bridge_log_alpha(logits, variances, row_sums, *, normalize=False):
    r"""Return the parameters of the Dirichlet of the Laplace bridge.

    It is the Dirichlet whose Laplace approximation has the given moments. Means and
    covariances are first conditioned on :math:`\sum_k f_k = 0`, which the inverse of
    the softmax implies; then

    .. math:: \alpha_k = \frac{1}{\Sigma_{kk}} \Bigl(1 - \frac2K +
       \frac{e^{f_k}}{K^2} \sum_l e^{-f_l}\Bigr) .

    Parameters
    ----------
    logits : ndarray of shape (n_rows, n_classes)
        Means f.

    variances : ndarray of shape (n_rows, n_classes)
        Diagonals of the covariances Σ.

    row_sums : ndarray of shape (n_rows, n_classes)
        Sums of the rows of Σ.

    normalize : bool, default=False
        Whether to scale f and Σ first, by :math:`1/\sqrt c` and :math:`1/c` with c the
        mean of the :math:`\Sigma_{kk}` over :math:`\sqrt{K/2}`.

    Returns
    -------
    log_alpha : ndarray of shape (n_rows, n_classes)
        Logarithms of the parameters; the parameters themselves may overflow.
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
