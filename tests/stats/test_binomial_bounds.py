"""Tests of certifying counts and risk bounds against exact sums over all outcomes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from fractions import Fraction
from functools import partial
from itertools import accumulate, product

import numpy as np
import pytest
from scipy.stats import beta, binom

from skood.rejection import max_accepted_ood, min_accepted_id, risk_upper_bound
from skood.stats._binomial_bounds import (
    max_accepted_ood_on_average,
    min_accepted_id_on_average,
    sizes_needed,
)
from skood.stats._mean_intervals import clopper_pearson
from tests._loops import looped


def _pmf(n, p):
    p = Fraction(p)
    return [math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(n + 1)]


# ---- counts that certify a rate


@pytest.mark.parametrize(
    ("n", "phi", "k", "check", "lower"),
    [
        (1000, 0.7, 725, 0.0445925882129124, 0.7008008344478123),
        (200, 0.95, 196, 0.026446800009119954, 0.9548195850052813),
        (10, 0.9, None, 0.0, None),
    ],
)
def test_checked_numbers_tpr(n, phi, k, check, lower):
    # A-cp-tpr-1000-0.7-0.05, A-cp-tpr-200-0.95-0.05, A-cp-tpr-10-0.9-0.05
    assert min_accepted_id(n, phi, 0.05) == k
    accepted = n + 1 if k is None else k
    assert binom.sf(accepted - 1, n, phi) == pytest.approx(check, abs=1e-9)
    if k is not None:
        assert clopper_pearson(k, n, 0.9).low == pytest.approx(lower, abs=1e-9)
        assert clopper_pearson(k - 1, n, 0.9).low < phi < lower


@pytest.mark.parametrize(
    ("n", "rho", "K", "check"),
    [(250, 0.2, 39, 0.045341253324369744), (20, 0.1, -1, 0.0)],
)
def test_checked_numbers_fpr(n, rho, K, check):
    # A-cp-fpr-250-0.2-0.05, A-cp-fpr-20-0.1-0.05
    assert max_accepted_ood(n, rho, 0.05) == K
    assert binom.cdf(K, n, rho) == pytest.approx(check, abs=1e-9)


@looped("delta", ["1/100", "1/10", "1/2", "9/10"])
@looped("p", ["0", "1/1000", "3/10", "1/2", "4/5", "999/1000"])
@looped("n", [0, 1, 2, 9, 40])
def test_counts_are_the_extreme_ones_that_pass_the_binomial_test(n, p, delta):
    pmf, level = _pmf(n, p), Fraction(delta)
    tails = [*[*accumulate(pmf[::-1])][::-1], 0]  # P(Bin >= j)
    k = next(j for j in range(n + 2) if tails[j] <= level)
    K = max([j for j, cdf in enumerate(accumulate(pmf)) if cdf <= level], default=-1)
    p, delta = float(Fraction(p)), float(level)
    assert min_accepted_id(n, p, delta) == (k if k <= n else None)
    assert max_accepted_ood(n, p, delta) == K


@pytest.mark.parametrize("n", [1, 50, 10**6, 10**9])
def test_bounds_that_nothing_or_everything_breaks(n):
    assert min_accepted_id(n, 0, 0.1) == 1
    assert min_accepted_id(n, 1, 0.1) is None
    assert max_accepted_ood(n, 1, 0.1) == n
    assert max_accepted_ood(n, 0, 0.1) == -1


def test_many_samples():
    # the count approaches its share as z sqrt(p (1 - p) n) of the normal law
    n, p, z = 10**8, 0.7, 1.6448536269514722
    margin = z * math.sqrt(p * (1 - p) * n)
    assert min_accepted_id(n, p, 0.05) - n * p == pytest.approx(margin, abs=2)
    assert n * p - max_accepted_ood(n, p, 0.05) == pytest.approx(margin, abs=2)


@looped("n", [0, 1, 3, 9, 10, 99])
@looped("share", [0.0, 0.1, 0.3, 0.7, 0.9, 1.0])
def test_counts_on_average(n, share):
    exact = Fraction(str(share))
    ranks = [k for k in range(1, n + 1) if Fraction(k, n + 1) >= exact]
    counts = [K for K in range(n + 1) if Fraction(K + 1, n + 1) <= exact]
    assert min_accepted_id_on_average(n, share) == min(ranks, default=None)
    assert max_accepted_ood_on_average(n, share) == max(counts, default=-1)


def _outcomes(n, probabilities):
    """All samples of n rows on some atoms: counts of the atoms and probability."""
    *most, last = probabilities
    for counts in product(range(n + 1), repeat=len(most)):
        rest = n - sum(counts)
        if rest >= 0:
            ways, left = 1, n
            for c in counts:
                ways *= math.comb(left, c)
                left -= c
            weight = math.prod(p**c for p, c in zip(most, counts, strict=True))
            yield (*counts, rest), ways * weight * last**rest


@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_with_ties(seed):
    # four atoms: the promises of all thresholds at once, summed over all samples
    rng = np.random.default_rng(seed)
    atoms, n, delta = rng.dirichlet(np.ones(4)), 9, 0.2
    cdf = np.cumsum(atoms)
    share = (*cdf[:3], 0.3, 0.4, 0.5, 0.6, 0.8)[seed]
    k, K = min_accepted_id(n, share, delta), max_accepted_ood(n, share, delta)
    missed = leaked = 0.0
    for counts, probability in _outcomes(n, atoms):
        accepted = np.cumsum(counts)
        enough = accepted >= k if k is not None else np.zeros(4, dtype=bool)
        missed += probability * (cdf[enough] < share - 1e-12).any()
        leaked += probability * (cdf[accepted <= K] > share + 1e-12).any()
    assert missed <= delta
    assert leaked <= delta


def test_promises_are_tight_at_an_atom():
    # P(TPR < phi) is that of k of n rows at the first of two atoms
    n, phi, delta, k = 30, 0.7, 0.1, min_accepted_id(30, 0.7, 0.1)
    first = phi - 1e-9
    assert 0.5 * delta < binom.sf(k - 1, n, first) <= delta
    assert binom.sf(k - 2, n, first) > delta


@pytest.mark.parametrize("function", [min_accepted_id, max_accepted_ood])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 1.5, 0.1), r"must be a float in the range \[0.*1.5 instead"),
        ((10, 0.5, 0.0), r"'delta' parameter .* range \(0.*0.0 instead"),
        ((-1, 0.5, 0.1), r"must be an int in the range \[0.*-1 instead"),
    ],
    ids=["share", "delta", "n"],
)
def test_invalid_counts(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


# ---- bounds on the risk


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.7])
@pytest.mark.parametrize(("errors", "n"), [(0, 5), (3, 40), (39, 40)])
def test_clopper_pearson_upper_bound(errors, n, delta):
    bound = risk_upper_bound([1] * errors + [0] * (n - errors), delta)
    assert binom.cdf(errors, n, bound) == pytest.approx(delta, rel=1e-9)


def test_all_wrong():
    for method in ("clopper_pearson", "hoeffding_bentkus"):
        assert risk_upper_bound([1, 1, 1], 0.1, method=method) == 1.0


@pytest.mark.parametrize("method", ["clopper_pearson", "hoeffding_bentkus"])
def test_no_error_has_a_closed_form(method):
    bound = risk_upper_bound(np.zeros(20), 0.05, method=method)
    assert bound == pytest.approx(1 - 0.05 ** (1 / 20), rel=1e-9)


@pytest.mark.parametrize("risk", [0.02, 0.1, 0.35, 0.5, 0.8, 0.97])
def test_clopper_pearson_keeps_its_level_exactly(risk):
    n, delta = 25, 0.1
    low = [e for e in range(n + 1) if risk_upper_bound([1] * e + [0] * (n - e)) < risk]
    assert sum(binom.pmf(low, n, risk)) <= delta


@pytest.mark.parametrize(
    "atoms", [(0.9, 0.05, 0.05), (0.2, 0.6, 0.2), (0.02, 0.9, 0.08), (0.5, 0.5, 0.0)]
)
@pytest.mark.parametrize("method", ["clopper_pearson", "hoeffding_bentkus"])
def test_level_with_losses_in_between(atoms, method):
    # losses 0, 1/2 and 1: all samples, with their probabilities
    n, delta = 12, 0.2
    values = np.array([0.0, 0.5, 1.0])
    risk = float(values @ atoms)
    failed = sum(
        probability
        for counts, probability in _outcomes(n, atoms)
        if risk_upper_bound(np.repeat(values, counts), delta, method=method) < risk
    )
    assert failed <= delta


def test_hoeffding_bentkus_is_the_smaller_of_two_roots():
    rng = np.random.default_rng(0)
    seen = set()
    for n in (5, 20, 100):
        for top in (0.02, 0.3, 1.0):
            loss, delta = rng.uniform(0, top, size=n), 0.1
            mean, count = loss.mean(), math.ceil(loss.sum())
            bound = risk_upper_bound(loss, delta, method="hoeffding_bentkus")
            r = bound
            kl = mean * math.log(mean / r) + (1 - mean) * math.log((1 - mean) / (1 - r))
            tails = [math.exp(-n * kl), math.e * binom.cdf(count, n, r)]
            assert min(tails) == pytest.approx(delta, rel=1e-6)
            seen.add(int(np.argmin(tails)))
    assert seen == {0, 1}


def test_hoeffding_bentkus_near_one():
    # nothing below one is ruled out by a single row
    assert risk_upper_bound([0.999], 0.1, method="hoeffding_bentkus") == 1.0


@pytest.mark.parametrize("method", ["clopper_pearson", "hoeffding_bentkus"])
def test_bound_has_the_unit_of_the_loss(method):
    loss = np.repeat([0.0, 1.0], [30, 5])
    plain = risk_upper_bound(loss, method=method)
    scaled = risk_upper_bound(4 * loss, method=method, max_loss=4)
    assert scaled == pytest.approx(4 * plain, rel=1e-12)


@pytest.mark.parametrize("method", ["clopper_pearson", "hoeffding_bentkus"])
def test_candidates_share_delta(method):
    loss = np.repeat([0.0, 1.0], [30, 5])
    assert risk_upper_bound(loss, 0.1, method=method, n_candidates=8) == (
        risk_upper_bound(loss, 0.1 / 8, method=method)
    )


def test_nothing_accepted():
    assert risk_upper_bound([], 0.1) == 1.0
    assert risk_upper_bound([], 0.1, max_loss=3) == 3.0


def test_losses_in_between_count_as_errors_for_clopper_pearson():
    few = risk_upper_bound([0.1, 0.2, 0, 0, 0], 0.1)
    assert few == pytest.approx(float(beta.ppf(0.9, 3, 3)), rel=1e-12)


@pytest.mark.parametrize("value", [-0.5, 1.5, math.nan], ids=["below", "above", "nan"])
def test_loss_out_of_range(value):
    message = rf"must be in \[0, max_loss=1.0\], got {value}\. Pass the largest"
    with pytest.raises(ValueError, match=message):
        risk_upper_bound([0.0, value])


# ---- how many samples suffice


def _needs(delta):
    return (
        partial(min_accepted_id, tpr_min=0.7, delta=delta),
        partial(max_accepted_ood, fpr_max=0.2, delta=delta),
    )


def _room(tpr, fpr, n_id, n_ood, rank, count):
    k, K = rank(n_id), count(n_ood)
    return k is not None and any(
        t * n_id >= k - 1e-9 and f * n_ood <= K + 1e-9
        for t, f in zip(tpr, fpr, strict=True)
    )


@pytest.mark.parametrize(
    ("tpr", "fpr"),
    [([0.75], [0.1]), ([0.72, 0.8], [0.05, 0.19]), ([1.0], [0.0]), ([0.95], [0.19])],
)
def test_sizes_are_enough_and_not_much_more(tpr, fpr):
    tpr, fpr = np.array(tpr), np.array(fpr)
    needs = _needs(0.05)
    n_id, n_ood = sizes_needed(tpr, fpr, 20, 5, *needs)
    assert _room(tpr, fpr, n_id, n_ood, *needs)
    # one row less of both or of either kind is too few, if there are not more already
    assert not _room(tpr, fpr, n_id - 1, n_ood - 1, *needs)
    assert n_id == 20 or not _room(tpr, fpr, n_id - 1, n_ood, *needs)
    assert n_ood == 5 or not _room(tpr, fpr, n_id, n_ood - 1, *needs)


def test_only_samples_of_a_single_kind_are_short():
    # all OOD rows are rejected: 14 of them certify 0.2 at 0.05, since 0.8^14 < 0.05
    sizes = sizes_needed(np.array([0.95]), np.array([0.0]), 100, 7, *_needs(0.05))
    assert sizes == (100, 14)
    # and no ID row is: 9 certify 0.7, since 0.7^9 < 0.05
    assert sizes_needed(np.ones(1), np.zeros(1), 3, 40, *_needs(0.05)) == (9, 40)


@pytest.mark.parametrize(("tpr", "fpr"), [(0.69, 0.1), (0.9, 0.21)], ids=["id", "ood"])
def test_no_size_would_do(tpr, fpr):
    assert sizes_needed(np.array([tpr]), np.array([fpr]), 50, 50, *_needs(0.1)) is None
