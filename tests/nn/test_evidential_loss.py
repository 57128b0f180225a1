"""Tests of the losses of evidential networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, gammaln, polygamma
from torch.distributions import kl_divergence

from skood.evidential import (
    EvidentialLoss,
    dirichlet_expected_nll,
    dirichlet_kl,
    uniform_kl,
)
from skood.nn._evidential_loss import (
    PENALTIES,
    exp_evidence,
    expected_cross_entropy,
    expected_squared_error,
    marginal_nll,
    misleading_kl,
)
from tests._loops import looped

LOSSES = (
    expected_cross_entropy,
    expected_squared_error,
    marginal_nll,
    misleading_kl,
    PENALTIES["uniform"],
)
CHOICES = [
    (evidence, loss)
    for evidence in ("softplus", "exp", "relu")
    for loss in ("cross_entropy", "squared_error", "log_likelihood")
]


@pytest.fixture(scope="module")
def rows():
    """Parameters of at least one, and classes."""
    rng = np.random.RandomState(0)
    alpha = 1 + 10 ** rng.uniform(-3, 3, size=(30, 4))
    return torch.tensor(alpha), torch.tensor(rng.randint(4, size=30))


# --- values ----------------------------------------------------------------------


def test_expected_cross_entropy(rows):
    alpha, codes = rows
    expected = dirichlet_expected_nll(alpha, codes)
    assert_allclose(expected_cross_entropy(alpha, codes), expected, rtol=1e-11)


def test_marginal_nll(rows):
    alpha, codes = rows
    expected = [
        -np.log(a[y] / sum(a))
        for a, y in zip(alpha.tolist(), codes.tolist(), strict=True)
    ]
    assert_allclose(marginal_nll(alpha, codes), expected, rtol=1e-12)


def test_expected_squared_error_is_that_of_draws():
    alpha = torch.tensor([[2.0, 0.5, 3.0]], dtype=torch.float64)
    p = np.random.default_rng(0).dirichlet(alpha[0].numpy(), size=400_000)
    for y in range(3):
        errors = ((np.eye(3)[y] - p) ** 2).sum(axis=1)
        result = float(expected_squared_error(alpha, torch.tensor([y])))
        assert abs(errors.mean() - result) < 5 * errors.std() / np.sqrt(len(p))


def test_misleading_kl_leaves_out_the_evidence_for_the_class(rows):
    alpha, codes = rows
    replaced = alpha.numpy().copy()
    replaced[np.arange(len(codes)), codes] = 1.0
    expected = dirichlet_kl(replaced)
    assert_allclose(misleading_kl(alpha, codes), expected, rtol=1e-9, atol=1e-12)
    alpha = torch.ones(2, 3, dtype=torch.float64)
    alpha[:, 0] = 1e6
    assert_allclose(misleading_kl(alpha, torch.tensor([0, 1]))[0], 0.0, atol=1e-12)


def test_penalty_of_all_evidence(rows):
    """Equal to the divergence of torch, and the same for all classes."""
    alpha, codes = rows
    uniform = torch.distributions.Dirichlet(torch.ones_like(alpha))
    expected = kl_divergence(torch.distributions.Dirichlet(alpha), uniform)
    loss = EvidentialLoss(evidence="relu", lambda_kl=0.7, penalty="uniform")
    first = expected_cross_entropy(alpha, codes)
    assert_allclose(loss(alpha - 1.0, codes), first + 0.7 * expected, rtol=1e-9)
    other = (codes + 1) % alpha.shape[1]
    moved = loss(alpha - 1.0, other) - expected_cross_entropy(alpha, other)
    assert_allclose(moved, 0.7 * expected, rtol=1e-9)


def test_penalty_of_much_evidence():
    """Values and gradients at parameters of 1e8."""
    outputs = torch.tensor([[1e8, 0.0, 0.0], [1e8, 1e8, 3.0]], dtype=torch.float64)
    alpha = (outputs + 1.0).requires_grad_()
    divergence = PENALTIES["uniform"](alpha, None)
    assert_allclose(divergence.detach(), uniform_kl(alpha.detach()), atol=3e-6)
    divergence.sum().backward()
    trigamma = partial(polygamma, 1)
    a = alpha.detach().numpy()
    total = a.sum(axis=1, keepdims=True)
    expected = (a - 1) * trigamma(a) - (total - 3) * trigamma(total)
    assert_allclose(alpha.grad, expected, atol=1e-12)
    assert (alpha.grad[:, 0] > 0).all()


def naive_loss(outputs, code, evidence, lambda_kl):
    """The default loss of one row, from the textbook."""
    g = {
        "softplus": lambda v: np.log1p(np.exp(v)),
        "exp": lambda v: np.exp(v) if v < 10 else np.exp(10) * (v - 9),
        "relu": lambda v: max(v, 0.0),
    }[evidence]
    alpha = [g(v) + 1 for v in outputs]
    misleading = [1.0 if c == code else a for c, a in enumerate(alpha)]
    total = sum(misleading)
    divergence = gammaln(total) - gammaln(len(alpha)) - sum(gammaln(misleading))
    for a in misleading:
        divergence += (a - 1) * (digamma(a) - digamma(total))
    return digamma(sum(alpha)) - digamma(alpha[code]) + lambda_kl * divergence


@pytest.mark.parametrize("evidence", ["softplus", "exp", "relu"])
@pytest.mark.parametrize("lambda_kl", [0.0, 0.3])
def test_loss_of_outputs(evidence, lambda_kl):
    rng = np.random.RandomState(0)
    outputs = rng.normal(size=(20, 3)) * 4
    outputs[0] = [12.0, 3.0, -20.0]
    codes = rng.randint(3, size=20)
    loss = EvidentialLoss(evidence=evidence, lambda_kl=lambda_kl)
    expected = [
        naive_loss(row, code, evidence, lambda_kl)
        for row, code in zip(outputs, codes, strict=True)
    ]
    actual = loss(torch.tensor(outputs), torch.tensor(codes))
    assert_allclose(actual, expected, rtol=1e-9)


def test_exponential_evidence_goes_on_as_its_tangent():
    outputs = torch.tensor([-800.0, 0.0, 10.0, 11.0, 1e4], dtype=torch.float64)
    outputs.requires_grad_()
    evidence = exp_evidence(outputs)
    tangent = np.exp(10)
    expected = [0.0, 1.0, tangent, 2 * tangent, tangent * 9991]
    assert_allclose(evidence.detach(), expected, rtol=1e-12)
    evidence.sum().backward()
    assert_allclose(outputs.grad[[1, 3, 4]], [1.0, tangent, tangent], rtol=1e-12)
    assert outputs.grad[2] >= tangent * (1 - 1e-12)


# --- gradients --------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_parameters(loss, rows):
    alpha, codes = rows[0][:6].clone().clamp(max=50.0).requires_grad_(), rows[1][:6]
    assert torch.autograd.gradcheck(lambda a: loss(a, codes), alpha, atol=1e-6)


@pytest.mark.parametrize("evidence, loss", CHOICES)
def test_gradients_of_outputs(evidence, loss):
    outputs = torch.linspace(-3.1, 11.3, 12, dtype=torch.float64).reshape(4, 3)
    codes = torch.tensor([0, 1, 2, 1])
    loss = EvidentialLoss(evidence=evidence, loss=loss, lambda_kl=0.2)
    outputs.requires_grad_()
    assert torch.autograd.gradcheck(lambda o: loss(o, codes), outputs)


@looped("evidence, loss", CHOICES)
@looped("dtype", [torch.float32, torch.float64])
def test_extreme_outputs_are_finite(evidence, loss, dtype):
    loss = EvidentialLoss(evidence=evidence, loss=loss)
    outputs = torch.tensor(
        [[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, 1e4], [90.0, -90.0, 30.0]],
        dtype=dtype,
        requires_grad=True,
    )
    for code in range(3):
        losses = loss(outputs, torch.full((4,), code))
        assert losses.dtype == dtype
        assert (losses >= 0).all() and torch.isfinite(losses).all()
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        assert torch.isfinite(gradient).all()


def test_single_precision_loses_nothing_but_the_rounding_of_the_outputs():
    outputs = torch.tensor([[9.5, -3.0, 1.0], [14.0, 2.0, 0.3]])
    codes = torch.tensor([0, 1])
    loss = EvidentialLoss(evidence="exp")
    double = loss(outputs.double(), codes)
    assert_allclose(loss(outputs, codes), double, rtol=1e-7)


def test_evidence_for_the_class_pays_and_for_others_costs():
    loss = EvidentialLoss()
    outputs = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(outputs, torch.tensor([0])).sum(), outputs)
    assert gradient[0, 0] < 0 < gradient[0, 1] == gradient[0, 2]


# --- the object --------------------------------------------------------------------


def test_it_is_a_value():
    loss = EvidentialLoss(evidence="exp", lambda_kl=0.5)
    same = EvidentialLoss(evidence="exp", lambda_kl=0.5)
    assert loss == same and hash(loss) == hash(same)
    assert loss != EvidentialLoss(evidence="exp") and loss != "exp"
    assert pickle.loads(pickle.dumps(loss)) == loss == copy.deepcopy(loss)
    assert repr(loss) == (
        "EvidentialLoss(evidence='exp', loss='cross_entropy', lambda_kl=0.5, "
        "penalty='misleading')"
    )


def test_parameters_of_outputs():
    result = EvidentialLoss(evidence="relu").alpha(torch.tensor([[2.0, -1.0]]))
    assert_array_equal(result, [[3.0, 1.0]])
    assert result.dtype == torch.float64


@pytest.mark.parametrize(
    "params",
    [
        {"evidence": "tanh"},
        {"loss": "hinge"},
        {"lambda_kl": -1.0},
        {"penalty": "all"},
    ],
)
def test_bad_parameters(params):
    (name,) = params
    with pytest.raises(ValueError, match=f"The '{name}' parameter of EvidentialLoss"):
        EvidentialLoss(**params)
