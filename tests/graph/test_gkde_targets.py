"""What the distributions of a graph network are drawn to."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln
from scipy.stats import entropy

from skood.evidential import dirichlet_kl
from skood.graph._gkde_targets import (
    Targets,
    dirichlet_divergence,
    divergence_of_means,
)


def test_divergences_against_scipy():
    rng = np.random.default_rng(0)
    alpha, beta = 1 + rng.gamma(2.0, size=(2, 50, 4))
    a, b = torch.tensor(alpha), torch.tensor(beta)
    expected = [
        gammaln(p.sum())
        - gammaln(p).sum()
        - gammaln(q.sum())
        + gammaln(q).sum()
        + ((p - q) * (digamma(p) - digamma(p.sum()))).sum()
        for p, q in zip(alpha, beta, strict=True)
    ]
    np.testing.assert_allclose(dirichlet_divergence(a, b), expected, rtol=1e-11)
    np.testing.assert_allclose(
        dirichlet_divergence(a, b), dirichlet_kl(alpha, beta), rtol=1e-11
    )
    np.testing.assert_allclose(dirichlet_divergence(a, a), 0.0, atol=1e-14)
    q = beta / beta.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        divergence_of_means(a, torch.tensor(np.log(q))),
        entropy(alpha, q, axis=1),
        rtol=1e-11,
    )


def test_gradients():
    rng = np.random.default_rng(1)
    alpha, beta = torch.tensor(1 + rng.gamma(2.0, size=(2, 5, 3)))
    alpha.requires_grad_()
    log_q = torch.log_softmax(beta, dim=1)
    assert torch.autograd.gradcheck(lambda a: dirichlet_divergence(a, beta), alpha)
    assert torch.autograd.gradcheck(lambda a: divergence_of_means(a, log_q), alpha)


@pytest.mark.parametrize("lambdas", [(0.3, 0.5), (0.0, 2.0), (1.0, 0.0)])
@pytest.mark.parametrize("numbers", [slice(None), np.array([4, 0, 2])], ids=str)
def test_distance_node_by_node(lambdas, numbers):
    rng = np.random.default_rng(2)
    prior, teacher = 1 + rng.gamma(2.0, size=(6, 3)), rng.dirichlet(np.ones(3), size=6)
    nodes = np.arange(6)[numbers]
    alpha = 1 + rng.gamma(2.0, size=(len(nodes), 3))
    of_prior = of_teacher = 0.0
    for a, j in zip(alpha, nodes, strict=True):
        of_prior += dirichlet_kl(a, prior[j]) / len(nodes)
        of_teacher += entropy(a / a.sum(), teacher[j]) / len(nodes)
    both = torch.tensor(prior), torch.tensor(np.log(teacher))
    for given, expected in (
        (both, lambdas[0] * of_prior + lambdas[1] * of_teacher),
        ((both[0], None), lambdas[0] * of_prior),
        ((None, both[1]), lambdas[1] * of_teacher),
        ((None, None), 0.0),
    ):
        found = Targets(*given).distance(torch.tensor(alpha), numbers, *lambdas)
        assert found.shape == ()
        np.testing.assert_allclose(found, expected, rtol=1e-11)
