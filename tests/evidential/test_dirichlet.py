"""Tests of the closed forms of Dirichlet distributions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma, gammaln

from skood.epistemic import entropy
from skood.evidential import (
    dirichlet_entropy,
    dirichlet_expected_entropy,
    dirichlet_expected_log,
    dirichlet_expected_nll,
    dirichlet_kl,
    dirichlet_log_normalizer,
    dirichlet_mutual_information,
    dissonance,
    uniform_kl,
    vacuity,
)

CLOSED_FORMS = (
    dirichlet_entropy,
    dirichlet_expected_entropy,
    dirichlet_expected_log,
    dirichlet_kl,
    dirichlet_log_normalizer,
    dirichlet_mutual_information,
    uniform_kl,
)
FUNCTIONS = (*CLOSED_FORMS, dissonance, vacuity)

# Computed with mpmath at 60 digits, from the textbook formulas:
#
#     def log_b(a):
#         return sum(mp.loggamma(x) for x in a) - mp.loggamma(sum(a))
#     S, psi = sum(a), mp.digamma
#     h = -sum(x / S * mp.log(x / S) for x in a)
#     eh = sum(x / S * (psi(S + 1) - psi(x + 1)) for x in a)
#     [
#         log_b(a),
#         log_b(a) + (S - len(a)) * psi(S) - sum((x - 1) * psi(x) for x in a),
#         psi(S) - psi(max(a)),
#         psi(S) - psi(min(a)),
#         eh,
#         h - eh,
#         -mp.loggamma(len(a)) - log_b(a) + sum((x - 1) * (psi(x) - psi(S)) for x in a),
#     ]
#     log_b(b) - log_b(a) + sum((x - y) * (psi(x) - psi(S)) for x, y in zip(a, b))
REFERENCE = """
1e-06 1e-06
    14.508657738522574 -999984.4913455513 500000.00000164495 500000.00000164495
    1.644930460685093e-06 0.6931455356294847 999984.4913455513
1e-06 100000000.0
    13.815491560068693 -1000004.182383201 1.000000004999995e-14 1000018.9978947589
    1.9997894763920838e-13 1.3238296537995472e-13 1000004.182383201
100000000.0 100000000.0
    -138629444.05681732 -8.831122612111429 0.6931471830599453 0.6931471830599453
    0.6931471780599453 2.49999999375e-09 8.831122612111429
1.0 1.0 1.0
    -0.6931471805599453 -0.6931471805599453 1.5 1.5 0.8333333333333334
    0.26527895533477636 0.0
0.3 2.5 40.0
    -9.010206151806461 -6.850022910593036 0.06848299644456055 7.247334592679537
    0.2457395925273758 0.018165025178481415 6.15687573003309
100000000.0 1.0 1e-06
    -4.605189183883683 -1000021.603063965 1.000000999999995e-08 1000018.997894769
    1.899791622176932e-07 4.227975691670252e-09 1000020.9099167844
1000000.0 1000001.0 1000002.0
    -3295851.59016832 -13.724165768780425 1.0986116220021838 1.0986136220011837
    1.0986119553348503 3.333329259264074e-07 13.03101858822048
1.0 1.0001 1.0
    -0.6932971743103202 -0.6931471868091954 1.4998750112489376 1.5000394926361356
    0.8333402166668891 0.265272070890196 6.249250079677874e-09
9.99 10.0 10.01
    -32.8515460102881 -2.269047420998318 1.131634432367389 1.1337377598543237
    1.06601854417101 0.032593411163710895 1.5759002404383728
5.0
    0.0 0.0 0.0 0.0 0.0 0.0 0.0
"""  # parameters, and below them the values
REFERENCE_KL = [
    (
        [100000000.0, 100000000.0, 100000000.0],
        [100000001.0, 100000000.0, 100000000.0],
        3.3333333407407408e-09,
    ),
    ([1000000.0, 3000000.0], [2000000.0, 6000000.0], 0.15342645485891623),
    ([1e-06, 1e-06], [100000000.0, 1e-06], 50000000000163.305),
    ([100000000.0, 1.0], [1.0, 100000000.0], 1899789621.3874934),
    ([0.5, 1.5], [2.0, 3.0], 1.2223937282822166),
    ([20.0, 30.0], [20.0, 30.001], 6.84674012055959e-09),
]


def _reference():
    """Parameters and values of `REFERENCE`."""
    for block in re.split(r"\n(?! )", REFERENCE.strip()):
        alpha, values = block.split("\n", 1)
        yield [float(x) for x in alpha.split()], [float(x) for x in values.split()]


@pytest.mark.parametrize("alpha, expected", _reference())
def test_many_digits_at_any_size(alpha, expected):
    largest, smallest = int(np.argmax(alpha)), int(np.argmin(alpha))
    results = [
        dirichlet_log_normalizer(alpha),
        dirichlet_entropy(alpha),
        -dirichlet_expected_log(alpha)[largest],
        dirichlet_expected_nll(alpha, smallest),
        dirichlet_expected_entropy(alpha),
        dirichlet_mutual_information(alpha),
        uniform_kl(alpha),
    ]
    # what has no sign change has relative precision, the others an absolute one
    assert_allclose(results[2:6], expected[2:6], rtol=5e-12, atol=0)
    assert_allclose(results, expected, rtol=2e-15, atol=2e-14)


@pytest.mark.parametrize(
    "alpha, expected",
    [
        ([1.0, 1.0, 1.0], 0.0),
        ([5.0, 2.0, 1.0], 1.0230079692051435),
        ([30.5, 1.2, 0.7], 4.495719673184974),
        ([101.0, 1.0, 1.0], 6.576454982801868),
    ],
)
def test_divergence_from_the_uniform_distribution(alpha, expected):
    assert_allclose(uniform_kl(alpha), expected, rtol=1e-13, atol=1e-15)
    ones = torch.ones(3, dtype=torch.float64)
    divergence = torch.distributions.kl_divergence(
        torch.distributions.Dirichlet(torch.tensor(alpha, dtype=torch.float64)),
        torch.distributions.Dirichlet(ones),
    )
    assert_allclose(uniform_kl(alpha), divergence, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha, beta, expected", REFERENCE_KL)
def test_many_digits_of_divergences(alpha, beta, expected):
    assert_allclose(dirichlet_kl(alpha, beta), expected, rtol=1e-14, atol=2e-15)


@pytest.fixture(scope="module")
def alpha():
    """Parameters of many sizes, but such that textbook formulas keep digits."""
    return 10 ** np.random.RandomState(0).uniform(-1, 2, size=(50, 4))


def test_textbook_formulas(alpha):
    total = alpha.sum(axis=1)
    log_b = gammaln(alpha).sum(axis=1) - gammaln(total)
    assert_allclose(dirichlet_log_normalizer(alpha), log_b, rtol=1e-11)
    gains = digamma(alpha) - digamma(total)[:, None]
    assert_allclose(dirichlet_expected_log(alpha), gains, rtol=1e-11)
    mean = alpha / total[:, None]
    aleatoric = (mean * (digamma(total + 1)[:, None] - digamma(alpha + 1))).sum(axis=1)
    assert_allclose(dirichlet_expected_entropy(alpha), aleatoric, rtol=1e-11)
    beta = alpha[::-1]
    log_b_beta = gammaln(beta).sum(axis=1) - gammaln(total[::-1])
    divergence = log_b_beta - log_b + ((alpha - beta) * gains).sum(axis=1)
    assert_allclose(dirichlet_kl(alpha, beta), divergence, rtol=1e-10)


def test_monte_carlo():
    """Means over 200,000 draws, within five standard errors."""
    rng = np.random.default_rng(0)
    alpha, beta = np.array([0.8, 2.5, 4.0]), np.array([1.5, 1.0, 3.0])
    p = rng.dirichlet(alpha, size=200_000)
    log_p = np.log(p)
    log_density = (log_p * (alpha - 1)).sum(axis=1) - dirichlet_log_normalizer(alpha)
    log_other = (log_p * (beta - 1)).sum(axis=1) - dirichlet_log_normalizer(beta)
    draws = {
        "entropy": (-log_density, dirichlet_entropy(alpha)),
        "expected entropy": (entropy(log_p), dirichlet_expected_entropy(alpha)),
        "divergence": (log_density - log_other, dirichlet_kl(alpha, beta)),
        "nll": (-log_p[:, 1], dirichlet_expected_nll(alpha, 1)),
    }
    for name, (values, expected) in draws.items():
        error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - expected) < 5 * error, name
    mean = entropy(np.log(alpha / alpha.sum()))
    information = mean - entropy(log_p).mean()
    assert_allclose(dirichlet_mutual_information(alpha), information, atol=4e-3)


# --- what must hold ------------------------------------------------------------------


def test_entropy_of_the_mean_is_the_sum_of_its_parts(alpha):
    total = entropy(np.log(alpha / alpha.sum(axis=1, keepdims=True)))
    parts = dirichlet_expected_entropy(alpha) + dirichlet_mutual_information(alpha)
    assert_allclose(parts, total, rtol=1e-13)


def test_entropy_and_divergence_from_the_uniform_distribution(alpha):
    expected = -gammaln(4) - dirichlet_kl(alpha)
    assert_allclose(dirichlet_entropy(alpha), expected, rtol=1e-12)
    assert_array_equal(dirichlet_kl(np.ones((2, 5))), 0.0)
    assert_array_equal(dirichlet_kl(alpha, alpha), 0.0)


def test_divergences_are_not_negative():
    rng = np.random.RandomState(1)
    alpha = 10 ** rng.uniform(-6, 8, size=(2000, 3))
    near = alpha * (1 + 1e-9 * rng.normal(size=alpha.shape))
    assert (dirichlet_kl(alpha, near) >= 0).all()
    assert (dirichlet_kl(alpha, near) < 1e-8).all()
    assert (dirichlet_mutual_information(alpha) > 0).all()


def test_permuted_classes(alpha):
    order = [2, 0, 3, 1]
    for function in FUNCTIONS[:2] + FUNCTIONS[3:6]:
        assert_allclose(function(alpha[:, order]), function(alpha), rtol=1e-12)
    permuted = dirichlet_expected_log(alpha[:, order])
    assert_allclose(permuted, dirichlet_expected_log(alpha)[:, order], rtol=1e-13)


def test_more_evidence_of_the_same_kind():
    """Evidence takes epistemic uncertainty away and leaves the aleatoric one."""
    alpha = np.array([1.0, 2.0, 3.0]) * 10.0 ** np.arange(-5, 9)[:, None]
    information = dirichlet_mutual_information(alpha)
    assert (np.diff(information) < 0).all()
    assert_allclose(information[-4:], 2 / (2 * alpha[-4:].sum(axis=1)), rtol=1e-4)
    assert (np.diff(dirichlet_entropy(alpha[6:])) < 0).all()
    mean = entropy(np.log(alpha[-1] / alpha[-1].sum()))
    assert_allclose(dirichlet_expected_entropy(alpha[-1]), mean, rtol=1e-8)
    assert_allclose(information[0], mean, rtol=1e-3)


def test_single_class():
    for function in (dirichlet_expected_entropy, dirichlet_mutual_information):
        assert_array_equal(function([[3.0], [1e-6], [1e8]]), 0.0)
    assert_array_equal(dirichlet_log_normalizer([[3.0], [1e-6], [1e8]]), 0.0)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_shapes_and_kinds(function):
    alpha = np.arange(1, 25).reshape(2, 4, 3)
    result = function(alpha)
    assert result.dtype == np.float64
    assert result.shape == ((2, 4, 3) if function is dirichlet_expected_log else (2, 4))
    single = alpha.astype(np.float32)
    assert_array_equal(function(torch.tensor(single)), result)
    assert_allclose(function(alpha[1, 2].tolist()), result[1, 2], rtol=1e-15)
    assert function(np.ones((0, 3))).shape[0] == 0


def test_divergences_broadcast(alpha):
    item = dirichlet_kl(alpha, [1.0, 2.0, 3.0, 4.0])
    each = [dirichlet_kl(row, [1.0, 2.0, 3.0, 4.0]) for row in alpha]
    assert_allclose(item, each, rtol=1e-15)


# --- subjective logic --------------------------------------------------------------


def naive_dissonance(alpha, prior=1.0):
    """Dissonance of one row, by its definition."""
    belief = [(a - prior) / sum(alpha) for a in alpha]
    result = 0.0
    for c, b in enumerate(belief):
        others = [x for j, x in enumerate(belief) if j != c]
        balance = sum(
            x * (1 - abs(x - b) / (x + b)) if x * b > 0 else 0.0 for x in others
        )
        result += b * balance / sum(others) if sum(others) > 0 else 0.0
    return result


def test_dissonance_is_its_definition():
    rng = np.random.RandomState(0)
    alpha = 1 + np.maximum(rng.normal(size=(40, 4)), 0) * 10 ** rng.uniform(-6, 4)
    expected = [naive_dissonance(row) for row in alpha.tolist()]
    assert_allclose(dissonance(alpha), expected, rtol=1e-9, atol=1e-15)
    expected = [naive_dissonance(row, 0.5) for row in alpha.tolist()]
    assert_allclose(dissonance(alpha, prior=0.5), expected, rtol=1e-12)


def test_vacuity_and_dissonance_of_typical_opinions():
    alpha = [[1.0, 1.0, 1.0], [1e8, 1e8, 1e8], [1e8, 1.0, 1.0], [3.0, 1.0, 1.0]]
    assert_allclose(vacuity(alpha), [1.0, 1e-8, 3e-8, 0.6], rtol=1e-7)
    assert_allclose(dissonance(alpha), [0.0, 1.0, 0.0, 0.0], atol=1e-7)
    assert_allclose(vacuity([0.5, 0.5], prior=0.5), 1.0)


def test_dissonance_is_at_most_belief(alpha):
    alpha = alpha + 1
    assert (dissonance(alpha) <= 1 - vacuity(alpha)).all()
    assert (dissonance(alpha) > 0).all()


# --- errors --------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_parameters(function):
    name = "The parameters alpha of a Dirichlet distribution must be positive and finit"
    for value in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{name}e, but 1 of 4 are not, such as"):
            function([[1.0, 2.0], [3.0, value]])
    with pytest.raises(ValueError, match="alpha must hold real numbers, got dtype <U1"):
        function([["a", "b"]])
    for shape in ((), (3, 0)):
        with pytest.raises(ValueError, match="must have classes along its last axis"):
            function(np.ones(shape))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_parameters_that_would_overflow(function):
    with pytest.raises(
        ValueError,
        match="The sum of the parameters alpha overflows in 1 of 2 Dirichlet "
        r"distributions; the largest parameter is 1e\+308. Lower the evidence",
    ):
        function([[1e308, 1e308], [1.0, 2.0]])
    for tiny in (5e-324, 1e-310, 1e-151):
        with pytest.raises(
            ValueError,
            match="The parameters alpha must be at least 1e-150, so that what is "
            f"divided by them is finite; the smallest is {tiny:g}. Raise them",
        ):
            function([[1.0, tiny], [1.0, 2.0]])
    if function in CLOSED_FORMS:
        with pytest.raises(
            ValueError,
            match=r"The parameters alpha must be at most 1e\+150, so that their "
            r"products and ratios are finite; the largest is 1e\+151",
        ):
            function([1e151, 1.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", CLOSED_FORMS)
def test_all_parameters_that_are_let_through_give_finite_numbers(function):
    ends = [1e-150, 1e-100, 1e-8, 1.0, 1e8, 1e100, 1e150]
    alpha = np.array(list(itertools.product(ends, repeat=3)))
    assert np.isfinite(function(alpha)).all()


@pytest.mark.filterwarnings("error")
def test_divergences_and_vacuity_at_the_ends():
    ends = [1e-150, 1e-8, 1.0, 1e8, 1e150]
    pairs = np.array(list(itertools.product(ends, repeat=2)))
    vacuities = dirichlet_kl(pairs[:, None], pairs[None])
    assert np.isfinite(vacuities).all()
    assert (vacuities >= 0).all()
    assert_array_equal(np.diag(vacuities), 0.0)
    vacuities = vacuity([[1e-150, 1e-150], [1e307, 1e307]])
    assert_allclose(vacuities, [1e150, 1e-307], rtol=1e-14)
    assert dissonance([1e307, 1e307]) == 1.0


def test_bad_second_distribution():
    with pytest.raises(ValueError, match="beta has 2 classes, but alpha has 3"):
        dirichlet_kl(np.ones((4, 3)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="The parameters beta of a Dirichlet"):
        dirichlet_kl([1.0, 1.0], [1.0, 0.0])


def test_bad_class_numbers():
    alpha = np.ones((2, 3))
    with pytest.raises(ValueError, match="class numbers from 0 to 2, got values from"):
        dirichlet_expected_nll(alpha, [0, 3])
    with pytest.raises(ValueError, match=r"from -1 to 0"):
        dirichlet_expected_nll(alpha, [0, -1])
    for codes in ([0], [0.0, 1.0], ["a", "b"]):
        with pytest.raises(ValueError, match=r"codes must be integers of shape \(2,\)"):
            dirichlet_expected_nll(alpha, codes)
    assert dirichlet_expected_nll(np.ones((0, 3)), np.zeros(0, dtype=int)).shape == (0,)


def test_bad_prior():
    with pytest.raises(ValueError, match="The 'prior' parameter of vacuity must be"):
        vacuity([1.0, 1.0], prior=0.0)
    with pytest.raises(ValueError, match=r"alpha must be at least prior=1\.0"):
        dissonance([[0.5, 1.0]])
