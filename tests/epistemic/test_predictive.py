"""Closed-form predictives against loops, integrals and identities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import expit, logsumexp, softmax

from skood.epistemic.laplace._curvature import Kronecker
from skood.epistemic.laplace._laplace import (
    bridge_log_alpha,
    bridge_proba,
    mean_field_of_blocks,
    mean_field_proba,
    probit_proba,
)


def _moments(n_samples=6, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n_samples, n_classes, n_classes))
    return 2 * rng.normal(size=(n_samples, n_classes)), half @ half.transpose(0, 2, 1)


def _diagonal(covariances):
    return np.diagonal(covariances, axis1=1, axis2=2)


def test_probit_against_a_loop():
    logits, covariances = _moments()
    result = probit_proba(logits, _diagonal(covariances))
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        e = [math.exp(f[k] / math.sqrt(1 + math.pi * S[k, k] / 8)) for k in range(4)]
        assert_allclose(result[i], np.array(e) / sum(e), rtol=1e-13)


def test_mean_field_against_a_loop():
    logits, covariances = _moments()
    result = mean_field_proba(logits, covariances)
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        p = []
        for k in range(4):
            total = 0.0
            for j in range(4):
                v = S[k, k] + S[j, j] - 2 * S[k, j]
                total += math.exp(-(f[k] - f[j]) / math.sqrt(1 + math.pi * v / 8))
            p.append(1 / total)
        assert_allclose(result[i], np.array(p) / sum(p), rtol=1e-12)


def test_no_variance_gives_the_softmax():
    logits, covariances = _moments()
    none = np.zeros_like(covariances)
    expected = softmax(logits, axis=1)
    assert_allclose(probit_proba(logits, _diagonal(none)), expected, rtol=1e-14)
    assert_allclose(mean_field_proba(logits, none), expected, rtol=1e-13)


def test_mean_field_of_two_classes_is_that_of_the_margin():
    """It is MacKay's, which is within 0.02 of the integral; the margin's probit too."""
    for mean, variance in [(0.5, 0.3), (2.0, 4.0), (-1.0, 25.0), (4.0, 9.0)]:
        expected = expit(mean / math.sqrt(1 + math.pi * variance / 8))
        logits = np.array([[-mean, mean]]) / 2
        covariances = variance / 4 * np.array([[[1.0, -1.0], [-1.0, 1.0]]])
        result = mean_field_proba(logits, covariances)[0, 1]
        assert result == pytest.approx(expected, rel=1e-13)
        margin = probit_proba(logits, np.array([[variance]]))[0, 1]
        assert margin == pytest.approx(expected, rel=1e-13)
        normal = stats.norm(mean, math.sqrt(variance))
        exact, _ = integrate.quad(
            lambda m, normal=normal: expit(m) * normal.pdf(m),
            *normal.interval(1 - 1e-14),
        )
        assert abs(result - exact) < 0.02


def test_mean_field_ignores_what_all_logits_share():
    """A constant, however uncertain, changes no probability. Probit is fooled."""
    logits, covariances = _moments()
    shared = covariances + 50.0
    assert_allclose(
        mean_field_proba(logits + 3.0, shared),
        mean_field_proba(logits, covariances),
        rtol=1e-12,
    )
    change = probit_proba(logits, _diagonal(shared)) - probit_proba(
        logits, _diagonal(covariances)
    )
    assert np.abs(change).max() > 0.1


def _dirichlet(alpha):
    """Mean and covariance of the Laplace approximation in the basis of the softmax."""
    n_classes = len(alpha)
    mean = np.log(alpha) - np.mean(np.log(alpha))
    inverse = 1 / alpha
    covariance = np.diag(inverse) - np.add.outer(inverse, inverse) / n_classes
    return mean, covariance + inverse.sum() / n_classes**2


@pytest.mark.parametrize("alpha", [[0.5, 2.0], [1.0, 2.0, 30.0], [0.1, 1, 5, 5, 900.0]])
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_bridge_returns_to_the_dirichlet(alpha, shift):
    """Also if a constant of the logits is uncertain: it is conditioned away."""
    alpha = np.array(alpha)
    mean, covariance = _dirichlet(alpha)
    covariance = covariance + shift
    log_alpha = bridge_log_alpha(
        mean[None], np.diag(covariance)[None], covariance.sum(axis=1)[None]
    )
    assert_allclose(np.exp(log_alpha[0]), alpha, rtol=1e-10)
    proba = bridge_proba(
        mean[None], np.diag(covariance)[None], covariance.sum(axis=1)[None]
    )
    assert_allclose(proba[0], alpha / alpha.sum(), rtol=1e-10)


@pytest.mark.parametrize("normalize", [False, True])
def test_bridge_against_a_loop(normalize):
    logits, covariances = _moments()
    result = bridge_proba(
        logits, _diagonal(covariances), covariances.sum(axis=2), normalize=normalize
    )
    K = logits.shape[1]
    for i, (f, S) in enumerate(zip(logits, covariances, strict=True)):
        ones = np.ones(K)
        f = f - S @ ones * (ones @ f) / (ones @ S @ ones)
        S = S - np.outer(S @ ones, ones @ S) / (ones @ S @ ones)
        if normalize:
            c = np.mean(np.diag(S)) / math.sqrt(K / 2)
            f, S = f / math.sqrt(c), S / c
        alpha = []
        for k in range(K):
            total = sum(math.exp(-f[j]) for j in range(K))
            alpha.append((1 - 2 / K + math.exp(f[k]) / K**2 * total) / S[k, k])
        assert_allclose(result[i], np.array(alpha) / sum(alpha), rtol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_bridge_of_large_logits_is_finite(n_classes):
    logits = np.zeros((1, n_classes))
    logits[0, 0] = 5000.0
    variances, row_sums = np.ones((1, n_classes)), np.ones((1, n_classes))
    result = bridge_proba(logits, variances, row_sums)
    assert_allclose(result, np.eye(n_classes)[:1], atol=1e-300)


def test_bridge_of_hardly_any_variance_is_finite():
    zero = np.zeros((1, 3))
    logits = np.array([[1.0, 0.0, -1.0]])
    alpha = 1 / 3 + np.exp(logits[0]) / 9 * np.exp(-logits[0]).sum()
    assert_allclose(
        bridge_proba(logits, zero, zero)[0], alpha / alpha.sum(), rtol=1e-12
    )


@pytest.mark.parametrize(("n_outputs", "n_features"), [(120, 7), (40, 60), (5, 1)])
@pytest.mark.parametrize("precision", [1e-4, 1.0, 1e4])
def test_mean_field_of_blocks_is_that_of_whole_covariances(
    n_outputs, n_features, precision
):
    """Sums of few matrices, for any spread of eigenvalues and any size of blocks."""
    rng = np.random.default_rng(0)
    p = softmax(2 * rng.normal(size=(300, n_outputs)), axis=1)
    scales = 10.0 ** rng.uniform(-4, 4, size=n_features)
    features = torch.from_numpy(scales * rng.normal(size=(300, n_features)))
    sums = Kronecker.sums(features, torch.from_numpy(np.log(p)), n_outputs)
    curvature = Kronecker(*(tensor.numpy() for tensor in sums), n_samples=300)
    logits = torch.from_numpy(2 * rng.normal(size=(9, n_outputs)))
    samples = features[:9]
    # sums of squares: differences of covariances would lose digits
    tensors = curvature._along_outputs(samples, precision)
    along, vectors = (tensor.numpy() for tensor in tensors)
    gaps = (vectors[:, None] - vectors) ** 2
    spread = np.einsum("nj,klj->nkl", along, gaps)
    pairs = logits[:, :, None] - logits[:, None, :]
    scaled = pairs.numpy() / np.sqrt(1 + np.pi / 8 * spread)
    expected = softmax(-logsumexp(-scaled, axis=2), axis=1)
    for block_bytes in (1, 50_000, 2**20):
        blocks = curvature.pair_variances(samples, precision, block_bytes)
        result = mean_field_of_blocks(logits, blocks)
        assert_allclose(result, expected, rtol=1e-9)
