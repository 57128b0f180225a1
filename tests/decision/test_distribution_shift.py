"""Tests of certificates for distributions in use that differ from the samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, multinomial, norm

from skood.decision._base_rule import Linear
from skood.decision._certified_path import sequence
from skood.decision._distribution_shift import WeightedTest
from skood.decision._ood_fraction import precision_pvalue, prior_from_counts
from skood.decision._path_certificates import _least_size
from skood.decision._statements import StatementTest, TestedSamples
from skood.exceptions import NotCertifiableError
from skood.metrics._compare_with_best import holm
from skood.rejection import (
    AllOf,
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    OperatingPoint,
    ScoredSamples,
    Shift,
    TwoThresholds,
    certify,
    certify_path,
    class_prior,
    ood_prior_interval,
)
from skood.stats._mean_intervals import clopper_pearson
from tests.decision._scores import (
    FixedPValues,
    certified,
    certified_path,
    samples_of,
)

VECTORS = json.loads(Path(__file__).with_name("vectors_certificates.json").read_text())

LIMITS = {
    "TPR": Linear(id=-1.0, constant=0.7),
    "risk": Linear(id=-0.3, loss=1.0),
    "FPR": Linear(ood=1.0, constant=-0.2),
    "TPR from above": Linear(id=1.0, constant=-0.6),
    "margin": Linear(id=-0.3, loss=1.0, constant=0.05),
}


def _vectors(name):
    vectors = [v for v in VECTORS if v["id"].startswith(name)]
    assert vectors
    return pytest.mark.parametrize("vector", vectors, ids=lambda v: v["id"])


def _weighted(bound, weight_max):
    return WeightedTest(StatementTest(bound, None, None, True, 1.0), weight_max)


# ---- numbers computed independently


@_vectors("G-p-weighted")
def test_weighted_pvalues(vector):
    inputs, expected = vector["input"], vector["expected"]
    weight, accepted = np.array(inputs["weight"]), np.array(inputs["accepted"])
    test = _weighted(Linear(id=-1.0, constant=inputs["phi"]), 3.0)
    arrays = 1.0 - accepted, None, np.zeros(weight.size), None, None
    samples = samples_of(*arrays, weight_id=weight)
    pvalue = test.pvalue(samples, accepted, None, 0.1, inputs["stake"])
    assert pvalue == pytest.approx(expected["p"], abs=vector["tolerance"])
    tested = TestedSamples([test], samples)
    (counts,), _ = tested.counts(0.0, np.array([0.5]), (1.0, 1.0))
    assert_allclose(test.estimate(counts), expected["weighted_tpr"], rtol=1e-12)


@_vectors("G-procedures")
def test_procedures(vector):
    pvalues, expected = np.array(vector["input"]["p"]), vector["expected"]
    delta = vector["input"]["delta"]
    tests = [FixedPValues(column) for column in pvalues.T]
    scores = np.arange(6.0)
    samples = samples_of(scores, None, 0 * scores, None, None)
    tested = TestedSamples(tests, samples)
    path = [(0.0, k - 0.5, (1.0, 1.0)) for k in range(6)]  # candidate k accepts k
    certified, failed = sequence(
        tested, path, lambda k: [None, None], delta, stop=False
    )
    matrix = [{**certified, **failed}[k] for k in range(6)]
    largest = np.max(matrix, axis=1)
    assert_allclose(largest, expected["p_candidate"])
    assert list(certified) == expected["fixed_sequence"]
    certified, failed = sequence(tested, path, lambda k: [None, None], delta)
    assert list(certified) == expected["fixed_sequence"]
    assert [len(p) for p in failed.values()] == [1]  # the first statement of it
    assert np.flatnonzero(holm(largest) <= delta).tolist() == expected["holm"]
    assert np.flatnonzero(6 * largest <= delta).tolist() == expected["bonferroni"]


@_vectors("G-least")
def test_least_size_of_a_group(vector):
    phi, delta = vector["input"]["phi"], vector["input"]["delta"]
    bounds = BoundedAbstention(phi).statements()
    assert _least_size(bounds, 1.0, delta) == vector["expected"]["n"]


@_vectors("G-spending")
def test_error_of_each_of_many_certificates(vector):
    inputs = vector["input"]
    spent = Certificate(delta=inputs["delta"], schedule="all")._of(inputs["m"], 1.0)
    assert spent.delta == pytest.approx(vector["expected"]["delta_m"], abs=1e-12)


# ---- levels by enumeration


def _at_the_border(gains):
    """Chances of outcomes for which the mean of the gains is 0."""
    share = np.linspace(1.0, 2.0, gains.size)
    up, down = share @ gains.clip(0), share @ (-gains).clip(0)
    chances = share * np.select([gains > 0, gains < 0], [down, up], up)
    return chances / chances.sum()


@pytest.mark.parametrize(("stake", "delta"), [(0.3, 0.25), (0.9, 0.8)])
@pytest.mark.parametrize("name", LIMITS)
def test_level_of_weighted_tests(name, stake, delta):
    """All outcomes of 5 samples with weights 1/2 and 2; the border is in the null."""
    test, n = _weighted(LIMITS[name], 2.0), 5
    accepted = np.array([True, False, True, False, True])
    loss, weight = np.array([0.0, 1, 1, 0, 0.5]), np.array([0.5, 2, 2, 0.5, 2])
    a, b, c, d = test.bound
    gains = weight * ((a + b * loss + c) * accepted + d)
    chances = _at_the_border(gains)
    assert chances @ gains == pytest.approx(0, abs=1e-12)
    assert gains.max() <= test.ends[1]
    is_ood = np.full(n, bool(c))
    samples = ScoredSamples(np.zeros(n), None, loss, is_ood, weight=weight)
    stake, level = stake / test.ends[1], 0.0
    for outcome in itertools.product(range(5), repeat=n):
        drawn = list(outcome)
        p = test.pvalue(samples.take(drawn), accepted[drawn], None, delta, stake)
        level += chances[drawn].prod() * (p <= delta)
    assert level <= delta
    assert delta < 0.8 or level > 0  # the test has some power


@pytest.mark.parametrize("n", [12, 30])
@pytest.mark.parametrize("name", ["TPR", "risk", "FPR", "TPR from above"])
def test_level_of_many_weighted_samples(name, n):
    """The distribution of the wealth, which depends on the counts of outcomes only."""
    test, delta = _weighted(LIMITS[name], 2.0), 0.1
    accepted, loss = np.array([1, 0, 1]), np.array([0.0, 0.0, 1.0])
    weight = np.array([0.5, 1.0, 2.0])
    a, b, c, d = test.bound
    gains = weight * ((a + b * loss + c) * accepted + d)
    chances = _at_the_border(gains)
    stake = 0.9 / test.ends[1]
    # chances of counts whose wealth has not reached 1 / delta before
    alive, level = {(0, 0, 0): 1.0}, 0.0
    for _ in range(n):
        after: dict = {}
        for counts, chance in alive.items():
            for k in range(3):
                new = tuple(count + (i == k) for i, count in enumerate(counts))
                after[new] = after.get(new, 0.0) + chance * chances[k]
        alive = {}
        for counts, chance in after.items():
            if np.log1p(-stake * gains) @ counts >= -np.log(delta):
                level += chance
            else:
                alive[counts] = chance
    assert level <= delta


RATES = (0.0, 0.02, 0.1, 0.3, 0.5, 0.6, 0.8, 0.84, 0.85, 0.95, 1.0)
SIZES = [(5, 5, 5), pytest.param((8, 8, 8), marks=pytest.mark.slow)]
SIZES.append(pytest.param((10, 6, 14), marks=pytest.mark.slow))


def _outcome_probabilities(sizes, rates):
    """Return the probabilities of all tuples of counts."""
    pmf = [binom.pmf(np.arange(n + 1), n, p) for n, p in zip(sizes, rates, strict=True)]
    return functools.reduce(np.multiply.outer, pmf)


def _all_counts(sizes, function):
    shape = [n + 1 for n in sizes]
    return np.array([function(*k) for k in np.ndindex(*shape)]).reshape(*shape, -1)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_level_of_the_ends_of_the_interval_of_the_share(sizes):
    """All counts: the error of an end is at most delta / 2, and not much smaller."""
    n_id, n_ood, n_new = sizes
    ends = _all_counts(
        sizes, lambda N, F, Q: prior_from_counts(N, n_id, [F], [n_ood], Q, n_new, 0.05)
    )
    missed = np.zeros(2)
    for t, f, share in itertools.product(
        RATES, RATES, (0, 0.1, 0.3, 0.5, 0.7, 0.85, 1)
    ):
        chances = _outcome_probabilities(sizes, (t, f, (1 - share) * t + share * f))
        outside = ends[..., 0] > share + 1e-12, ends[..., 1] < share - 1e-12
        missed = np.maximum(missed, [chances[wrong].sum() for wrong in outside])
    assert (missed <= 0.025).all()
    assert (missed >= 0.5 * 0.025).all()


def test_level_of_the_interval_for_mixtures_of_sources():
    """The sources have rates of 0.1 and 0.7 and any weights."""
    sizes, delta = (3, 2, 2, 4), 0.3
    ends = _all_counts(
        sizes, lambda N, F, G, Q: prior_from_counts(N, 3, [F, G], [2, 2], Q, 4, delta)
    )
    for t, share, weight in itertools.product(
        (0.6, 0.8, 1.0), (0.1, 0.4, 0.8), (0.0, 0.3, 0.7, 1.0)
    ):
        mixed = 0.1 * weight + 0.7 * (1 - weight)
        q = (1 - share) * t + share * mixed
        chances = _outcome_probabilities(sizes, (t, 0.1, 0.7, q))
        assert chances[ends[..., 0] > share + 1e-12].sum() <= delta / 2
        assert chances[ends[..., 1] < share - 1e-12].sum() <= delta / 2


def test_ends_of_the_interval_by_plain_loops():
    """Grid of rates, each with the probability of all outcomes of smaller limits."""
    n, delta = 8, 0.05
    z, level = norm.isf(delta / 2), delta / 2 - 0.02 * delta / 2
    u = np.linspace(0, 1, 2001)
    limits = np.ones((n + 1,) * 3)
    for N, F, Q in np.ndindex(limits.shape):
        t, f = (N + 1) / (n + 2), (F + 1) / (n + 2)
        s_id, s_ood = (1 - u) * (t - t * t) ** 0.5, u * (f - f * f) ** 0.5
        s = np.sqrt((s_id**2 + s_ood**2 + (s_id + s_ood) ** 2) / n)
        above = np.flatnonzero((1 - u) * t + u * f + z * s > Q / n)
        limits[N, F, Q] = u[above[-1]] if above.size else -1.0
    for N, F, Q in [(8, 0, 8), (7, 1, 6), (8, 3, 5)]:
        smaller = limits <= limits[N, F, Q] + 1e-9
        boxes = [clopper_pearson(k, n, 1 - 0.005 * delta)[1:] for k in (N, F)]
        largest = 0.0
        for t, f in itertools.product(*(np.linspace(*box, 25) for box in boxes)):
            share = np.linspace(0, 1, 101)
            q = np.maximum(f, (1 - share) * t + share * f)
            chances = _outcome_probabilities((n, n), (t, f))
            of_new = binom.pmf(np.arange(n + 1), n, q[:, None])
            probable = np.einsum("ij,sk,ijk->s", chances, of_new, smaller) > level
            largest = max(largest, share[probable].max(initial=0.0))
        high = prior_from_counts(N, n, [F], [n], Q, n, delta)[1]
        assert largest - 0.01 <= high <= largest + 0.06
        low = prior_from_counts(n - F, n, [n - N], [n], n - Q, n, delta)[0]
        assert low == pytest.approx(1 - high)


def test_ends_of_the_interval_fall_with_accepted_unlabeled_samples():
    ends = [
        prior_from_counts(180, 200, [5, 30], [100, 150], Q, 300, 0.05)
        for Q in range(0, 301, 30)
    ]
    assert (np.diff(ends, axis=0) <= 1e-12).all()
    assert ends[0][1] == 1.0
    assert ends[-1][0] == 0.0


def test_width_of_the_interval_is_near_that_of_the_normal_interval():
    for N, n_id, F, n_ood, Q, n_new in [
        (885, 1000, 50, 500, 3650, 5000),
        (320, 400, 60, 200, 600, 1000),
        (27_000, 30_000, 4000, 20_000, 37_000, 50_000),
    ]:
        t, f, q = N / n_id, F / n_ood, Q / n_new
        share = (t - q) / (t - f)
        variance = (1 - share) ** 2 * (t - t * t) / n_id + (q - q * q) / n_new
        variance += share**2 * (f - f * f) / n_ood
        normal = 2 * norm.isf(0.025) * variance**0.5 / (t - f)
        low, high = prior_from_counts(N, n_id, [F], [n_ood], Q, n_new, 0.05)
        assert low < share < high
        assert high - low <= 1.2 * normal


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_level_of_the_precision_in_use(sizes):
    """All counts, where the precision equals the bound."""
    n_id, n_ood, n_new = sizes
    bound, delta, level = 0.8, 0.1, 0.0
    rejected = delta >= _all_counts(
        sizes,
        lambda N, F, Q: precision_pvalue(bound, N, n_id, F, n_ood, Q, n_new, delta),
    )
    for t, f in itertools.product(RATES, RATES):
        if t + f == 0:
            continue
        share = (1 - bound) * t / ((1 - bound) * t + bound * f)
        q = (1 - share) * t + share * f
        chances = _outcome_probabilities(sizes, (t, f, q))
        level = max(level, float(chances[rejected[..., 0]].sum()))
    assert 0.5 * delta <= level <= delta


def test_level_of_the_precision_in_use_of_two_sources():
    """The statement about each source is tested; the mixture misses the bound."""
    sizes, delta, t = (3, 2, 2, 4), 0.3, 0.9
    largest = _all_counts(
        sizes,
        lambda N, F, G, Q: max(
            precision_pvalue(0.7, N, 3, count, 2, Q, 4, delta) for count in (F, G)
        ),
    )
    for weight in (0.0, 0.3, 0.7, 1.0):
        f = 0.1 * weight + 0.4 * (1 - weight)
        share = 0.3 * t / (0.3 * t + 0.7 * f)
        rates = t, 0.1, 0.4, (1 - share) * t + share * f
        chances = _outcome_probabilities(sizes, rates)
        assert chances[largest[..., 0] <= delta].sum() <= delta


def test_pvalue_of_the_precision_in_use():
    """It is near that of a normal statistic, and grows with the bound."""
    N, n_id, F, n_ood, Q, n_new = counts = 480, 600, 30, 400, 1300, 2000
    t, f, q = N / n_id, F / n_ood, Q / n_new
    previous = 0.0
    for bound in (0.965, 0.97, 0.975):
        h = t * f / ((1 - bound) * t + bound * f)
        variance = (bound * h**2 / t**2) ** 2 * (t - t * t) / n_id
        variance += ((1 - bound) * h**2 / f**2) ** 2 * (f - f * f) / n_ood
        normal = norm.sf((q - h) / (variance + (h - h * h) / n_new) ** 0.5)
        p = precision_pvalue(bound, *counts, 0.1)
        assert max(normal, previous) < p < 0.003 + 1.6 * normal
        previous = p
    assert precision_pvalue(0.5, 10, 10, 10, 10, 5, 10, 0.1) == 1.0
    assert precision_pvalue(0.1, 900, 1000, 0, 1000, 800, 1000, 0.1) < 0.0021
    assert precision_pvalue(0.5, 10, 10, 0, 0, 5, 10, 0.1) == 1.0
    falling = [precision_pvalue(0.8, 9, 10, 1, 10, Q, 10, 0.1) for Q in range(11)]
    assert (np.diff(falling) <= 0).all()


def test_a_path_of_false_candidates_is_rarely_certified():
    """All outcomes of 10 samples in 4 atoms; the first rule is at its bound."""
    chances, n, delta = np.array([0.4, 0.2, 0.2, 0.2]), 10, 0.2
    rule, level, total = BoundedAbstention(0.8), 0.0, 0.0
    path = [{"theta": 0.0, "lam": lam} for lam in (2.5, 1.5, 0.5)]  # TPR .8, .6, .4
    for counts in itertools.product(range(n + 1), repeat=3):
        if sum(counts) > n:
            continue
        counts = *counts, n - sum(counts)
        chance = multinomial.pmf(counts, n, chances)
        total += chance
        a = np.repeat(np.arange(4.0), counts)
        try:
            certified_path(rule, path, a, None, np.zeros(n), None, None, delta=delta)
        except NotCertifiableError:
            continue
        level += chance
    assert total == pytest.approx(1.0)
    assert 0 < level <= delta


class _Reversed(AllOf):
    """The same rule with its statements in another order."""

    def statements(self):
        return super().statements()[::-1]


def test_order_of_statements_and_labels_does_not_matter():
    rng = np.random.default_rng(14)
    a, b, loss, weight = _tilted(rng, 3000)
    source, group = rng.integers(2, size=2000), rng.integers(2, size=3000)
    a_ood, b_ood = rng.normal(2.5, size=(2, 2000))
    data = a, b, loss, a_ood, b_ood
    options = {"sample_weight_id": weight, "weight_max": 6.0, "random_state": 0}
    points = [
        certified(rule, *data, group_id=g, source_ood=s, **options)
        for rule, g, s in (
            (RULE, group, source),
            (_Reversed(RULE.rules), group, source),
            (RULE, np.array(["b", "c"])[group], np.array([9, 11])[source]),
        )
    ]
    assert len({(p.theta, p.lam, p.certificate.n_certified) for p in points}) == 1
    pvalues = [sorted(s.pvalue for s in p.certificate.statements) for p in points]
    assert_allclose(pvalues[1:], [pvalues[0]] * 2)


# ---- weights


def _tilted(rng, n, tilt=0.8):
    """Scores and losses, and the density ratio of normal scores around `tilt`, / 6."""
    a, b = rng.normal(size=(2, n))
    loss = (rng.random(n) < 0.3 / (1 + np.exp(1.0 - 1.5 * a))).astype(float)
    return a, b, loss, np.minimum(np.exp(tilt * a - tilt**2 / 2), 6.0)


RULE = AllOf([BoundedTPRFPR(0.6, 0.3), BoundedImprovement(0.2)])


@pytest.mark.parametrize(
    "n_draws", [25, pytest.param(200, marks=pytest.mark.slow)], ids=str
)
def test_promise_for_the_weighted_distribution(n_draws):
    rng = np.random.default_rng(0)
    n_certified = broken = ignored = 0
    a, b, loss, weight = _tilted(rng, 100_000)
    a_ood, b_ood = rng.normal(2.2, size=(2, 50_000))
    for seed in range(n_draws):
        drawn, others = rng.integers(100_000, size=1500), rng.integers(50_000, size=800)
        data = a[drawn], b[drawn], loss[drawn], a_ood[others], b_ood[others]
        options = {"sample_weight_id": weight[drawn], "weight_max": 6.0}
        try:
            point = certified(RULE, *data, delta=0.2, random_state=seed, **options)
        except NotCertifiableError:
            continue
        n_certified += 1
        inside, leaked = point.accept(a, b), point.accept(a_ood, b_ood).mean()
        tpr = weight[inside].sum() / weight.sum()
        risk = np.average(loss[inside], weights=weight[inside])
        broken += tpr < 0.6 or risk > 0.2 or leaked > 0.3
        unweighted = certified(RULE, *data, random_state=seed, delta=0.2)
        inside = unweighted.accept(a, b)
        ignored += weight[inside].sum() / weight.sum() < 0.6
    assert n_certified > 0.6 * n_draws
    assert broken <= binom.ppf(0.999, n_draws, 0.2)
    assert ignored > 0.5 * n_draws  # so that this test can fail


def test_weighted_statements():
    """Estimates are weighted rates of the certifying samples; FPR stays binomial."""
    rng = np.random.default_rng(1)
    a, b, loss, weight = _tilted(rng, 4000)
    a_ood, b_ood = rng.normal(2.2, size=(2, 3000))
    data = a, b, loss, a_ood, b_ood
    options = {"sample_weight_id": weight, "weight_max": 6.0, "random_state": 0}
    point = certified(RULE, *data, **options)
    tpr, fpr, risk = point.certificate.statements
    assert tpr.estimate == pytest.approx(point.tpr)
    assert risk.estimate == pytest.approx(point.risk)
    count = round(fpr.estimate * 1800)
    assert fpr.pvalue == pytest.approx(binom.cdf(count, 1800, 0.3))
    everyone = point.accept(a, b)
    assert point.tpr == pytest.approx(np.average(everyone, weights=weight), abs=0.02)
    text = str(point.certificate) + point.certificate.assumptions
    assert "for the weighted distribution" in text
    assert "only approximately for the distributions at deployment" in text
    # the unit of the weights does not matter
    scaled = {"sample_weight_id": 8 * weight, "weight_max": 48.0, "random_state": 0}
    again = certified(RULE, *data, **scaled)
    assert (again.theta, again.lam) == (point.theta, point.lam)
    assert_allclose(
        [s.pvalue for s in again.certificate.statements],
        [s.pvalue for s in point.certificate.statements],
    )


def test_weight_zero_leaves_a_sample_out():
    rng = np.random.default_rng(2)
    a, b, loss, weight = _tilted(rng, 1500)
    a_ood, b_ood = rng.normal(2.2, size=(2, 900))
    of_ood = rng.uniform(0.5, 1.5, size=900)
    gone, gone_ood = rng.random(1500) < 0.1, rng.random(900) < 0.1
    group = rng.integers(2, size=1500)
    options = {"weight_max": 6.0, "random_state": 0}
    zeros = {
        "sample_weight_id": np.where(gone, 0.0, weight),
        "sample_weight_ood": np.where(gone_ood, 0.0, of_ood),
        "group_id": group,
    }
    rule = BoundedTPRFPR(0.5, 0.4)
    point = certified(rule, a, b, loss, a_ood, b_ood, **zeros, **options)
    remaining = {
        "sample_weight_id": weight[~gone],
        "sample_weight_ood": of_ood[~gone_ood],
        "group_id": group[~gone],
    }
    arrays = a[~gone], b[~gone], loss[~gone], a_ood[~gone_ood], b_ood[~gone_ood]
    again = certified(rule, *arrays, **remaining, **options)
    assert (point.theta, point.lam, point.rates) == (
        again.theta,
        again.lam,
        again.rates,
    )


@pytest.mark.parametrize("guarantee", ["high_probability", "ltt", "expectation"])
@pytest.mark.parametrize("double", [False, True], ids=["one score", "two"])
def test_frequencies_are_repeated_samples(guarantee, double):
    rng = np.random.default_rng(3)
    a, b, loss, _ = _tilted(rng, 300)
    a_ood, b_ood = rng.normal(2.5, size=(2, 200))
    n, m = rng.integers(4, size=300), rng.integers(4, size=200)
    if not double:
        b = b_ood = None

    def repeated(x, times):
        return None if x is None else np.repeat(x, times)

    options = {"guarantee": guarantee, "random_state": 0}
    more = {}
    if guarantee == "high_probability":
        group, source = rng.integers(2, size=300), rng.integers(2, size=200)
        options |= {"group_id": group, "source_ood": source}
        more = {"group_id": np.repeat(group, n), "source_ood": np.repeat(source, m)}
    rule = BoundedTPRFPR(0.5, 0.4)
    point = certified(
        rule,
        *(a, b, loss, a_ood, b_ood),
        sample_weight_id=n,
        sample_weight_ood=m,
        weights="frequency",
        **options,
    )
    arrays = repeated(a, n), repeated(b, n), repeated(loss, n)
    arrays = *arrays, repeated(a_ood, m), repeated(b_ood, m)
    assert repr(point) == repr(certified(rule, *arrays, **{**options, **more}))


def test_weighted_conformal_thresholds():
    """The interval by a loop over all thresholds."""
    rng = np.random.default_rng(4)
    a, _, loss, weight = _tilted(rng, 80)
    a_ood = rng.normal(2.0, size=60)
    of_ood, W, phi, rho = rng.uniform(0.2, 3.0, size=60), 6.0, 0.6, 0.3
    best = np.inf
    for lam in a:
        accepted_weight, leaked = weight[a <= lam].sum(), of_ood[a_ood <= lam].sum()
        if accepted_weight >= phi * (weight.sum() + W) and (
            leaked + W <= rho * (of_ood.sum() + W)
        ):
            best = min(best, np.average(loss[a <= lam], weights=weight[a <= lam]))
    point = certified(
        BoundedTPRFPR(phi, rho),
        a,
        None,
        loss,
        a_ood,
        None,
        weight_id=weight,
        weight_ood=of_ood,
        guarantee="expectation",
        weight_max=W,
    )
    assert np.isfinite(best)
    assert point.risk == pytest.approx(best)
    accepted_weight = weight[point.accept(a)].sum()
    leaked = of_ood[point.accept(a_ood)].sum()
    assert accepted_weight >= phi * (weight.sum() + W)
    assert leaked + W <= rho * (of_ood.sum() + W)


def test_weighted_conformal_coverage():
    """The mean TPR over draws, for a new sample of the weighted distribution."""
    rng = np.random.default_rng(5)
    a, _, _, weight = _tilted(rng, 50_000)
    tprs = []
    for _ in range(150):
        drawn = rng.integers(50_000, size=60)
        weights = {"sample_weight_id": weight[drawn], "weight_max": 6.0}
        zeros, rule = np.zeros(60), BoundedAbstention(0.7)
        point = certified(
            rule, a[drawn], None, zeros, None, None, guarantee="expectation", **weights
        )
        tprs.append(weight[point.accept(a)].sum() / weight.sum())
    assert np.mean(tprs) >= 0.7 - 3 * np.std(tprs) / np.sqrt(150)
    assert np.mean(tprs) < 0.95


def test_margin_for_a_total_variation_distance():
    """Bounds hold where a share tau of each distribution is replaced by the worst."""
    rng = np.random.default_rng(6)
    a, b, loss, _ = _tilted(rng, 4000)
    a_ood, b_ood = rng.normal(2.5, size=(2, 4000))
    data = a, b, loss, a_ood, b_ood
    point = certified(RULE, *data, random_state=0, tv=0.05)
    tpr, fpr, risk = point.certificate.statements
    assert (tpr.text, fpr.text) == ("TPR >= 0.65", "FPR <= 0.25")
    assert risk.text == "-0.2 TPR +1 mean loss of accepted samples +0.05 <= 0"
    new = [rng.normal(size=(2, 100_000)), rng.normal(2.5, size=(2, 100_000))]
    t, f = (point.accept(*scores).mean() for scores in new)
    e = point.risk * t
    assert t - 0.05 > 0.6
    assert f + 0.05 < 0.3
    # the replaced ID samples are rejected before, and accepted with an error after
    assert (e + 0.05) / (t + 0.05) < 0.2
    assert "total variation distance of 0.05" in point.certificate.assumptions
    with pytest.raises(NotCertifiableError, match=r"certifies a TPR of 1\."):
        certify(RULE, samples_of(*data), Certificate(shift=Shift(tv=0.4)))


# ---- unlabeled samples


def _mixture(rng, n, share, far):
    is_ood = rng.random(n) < share
    near = is_ood & (rng.random(n) < far)
    scores = rng.normal(size=(2, n))
    scores[:, is_ood] += 2.5
    scores[:, near] -= 0.5
    return scores, is_ood


@pytest.mark.parametrize(
    "n_draws", [20, pytest.param(150, marks=pytest.mark.slow)], ids=str
)
def test_promise_of_the_precision_in_use(n_draws):
    """The fraction of OOD samples and the mixture of their sources are unknown."""
    rng = np.random.default_rng(7)
    n_certified = broken = 0
    new, is_ood = _mixture(rng, 200_000, 0.25, 0.7)
    for seed in range(n_draws):
        a, b = rng.normal(size=(2, 1500))
        source = np.repeat([0, 1], 500)
        a_ood, b_ood = rng.normal(2.5, size=(2, 1000)) - 0.5 * source
        unlabeled, _ = _mixture(rng, 4000, 0.25, 0.7)
        try:
            point = certified(
                BoundedPrecisionRecall(0.95, 0.6),
                a,
                b,
                np.zeros(1500),
                a_ood,
                b_ood,
                source_ood=source,
                unlabeled=tuple(unlabeled),
                random_state=seed,
                delta=0.2,
            )
        except NotCertifiableError:
            continue
        n_certified += 1
        inside = point.accept(*new)
        broken += 1 - is_ood[inside].mean() < 0.95
    assert n_certified > 0.6 * n_draws
    assert broken <= binom.ppf(0.999, n_draws, 0.2)


def test_precision_in_use_in_the_certificate():
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, 2000))
    a_ood, b_ood = rng.normal(3.0, size=(2, 1000))
    new, is_ood = _mixture(rng, 5000, 0.3, 0.0)
    rule = AllOf([BoundedPrecisionRecall(0.9, 0.6), BoundedImprovement(0.3)])
    loss = (rng.random(2000) < 0.1).astype(float)
    data = a, b, loss, a_ood, b_ood
    point = certify(rule, samples_of(*data), unlabeled=tuple(new), random_state=0)
    certificate = point.certificate
    assert [s.text for s in certificate.statements] == [
        "TPR >= 0.6",
        "selective risk <= 0.3",
        "precision at deployment >= 0.9",
    ]
    assert certificate.n_unlabeled == 3000
    assert "1200 ID, 600 OOD and 3000 unlabeled samples certify" in str(certificate)
    assert "independent draws from a mixture" in certificate.assumptions
    precision = 1 - is_ood[point.accept(*new)].mean()
    assert point.precision == pytest.approx(precision, abs=0.03)
    # the prior of the rule is not used
    other = AllOf([BoundedPrecisionRecall(0.9, 0.6, 0.01), BoundedImprovement(0.3)])
    again = certify(other, samples_of(*data), unlabeled=tuple(new), random_state=0)
    assert (again.theta, again.lam) == (point.theta, point.lam)


def test_too_few_unlabeled_samples():
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(2, 400))
    a_ood, b_ood = rng.normal(2.5, size=(2, 400))
    new, _ = _mixture(rng, 60, 0.3, 0.0)
    rule = BoundedPrecisionRecall(0.985, 0.6)
    data = a, b, np.zeros(400), a_ood, b_ood
    match = r"by 400 ID, 400 OOD and 60 unlabeled samples: .*About \d+ unlabeled"
    with pytest.raises(NotCertifiableError, match=match) as error:
        certify(rule, samples_of(*data), unlabeled=tuple(new), random_state=0)
    assert error.value.factor >= 1
    assert error.value.n_id_needed == np.ceil(400 * error.value.factor)
    assert "times as many)" in str(error.value)
    with pytest.raises(NotCertifiableError, match="certifies a precision of 1"):
        certified(BoundedPrecisionRecall(1.0, 0.6), *data, unlabeled=tuple(new))


# ---- paths of one's own


def test_path_with_weights_and_unlabeled_samples():
    rng = np.random.default_rng(15)
    a, _, loss, weight = _tilted(rng, 2000)
    a_ood = rng.normal(3.0, size=1000)
    path = [{"theta": 0.0, "lam": lam} for lam in (1.5, 1.2)]
    data = a, None, loss, a_ood, None
    rule = BoundedTPRFPR(0.6, 0.3)
    weights = {"sample_weight_id": weight, "weight_max": 6.0, "stakes": 0.05}
    point = certified_path(rule, path, *data, random_state=0, **weights)
    tpr = weight[a <= 1.2].sum() / weight.sum()
    assert point.tpr == pytest.approx(tpr)
    gains = 0.05 * weight * (0.6 - (a <= 1.2))
    wealth = np.cumprod(1 - np.random.RandomState(0).permutation(gains))
    assert point.certificate.path_pvalues[1, 0] == pytest.approx(1 / wealth.max())
    new = np.append(rng.normal(size=1500), rng.normal(3.0, size=500))
    precision = BoundedPrecisionRecall(0.9, 0.6)
    point = certify_path(precision, path, samples_of(*data), unlabeled=(new, None))
    counts = np.sum(a <= 1.5), 2000, np.sum(a_ood <= 1.5), 1000, np.sum(new <= 1.5)
    pvalue = precision_pvalue(0.9, *map(int, counts), 2000, 0.1)
    assert point.certificate.path_pvalues[0, 1] == pytest.approx(pvalue)
    n = np.arange(2000) % 3
    options = {"sample_weight_id": n, "weights": "frequency"}
    repeated = np.repeat(a, n), None, np.repeat(loss, n), a_ood, None
    again = certify_path(rule, path, samples_of(*repeated))
    assert repr(certified_path(rule, path, *data, **options)) == repr(again)


@pytest.mark.parametrize(
    ("rule", "options", "most"),
    [
        (BoundedImprovement(0.2), {"two_valued": False}, 1 / (1 - 0.2)),
        (BoundedAbstention(0.6), {"sample_weight_id": np.ones(50)}, 1 / (6 * 0.6)),
        (BoundedAbstention(0.6), {"sample_weight_id": np.ones(50)}, -1.0),
        # z is at most .5 - .15 + .15 - .3, and f at most 1: the larger loss is .7
        (CostBased(cost_max=0.3), {}, 50 / 0.7),
    ],
    ids=["losses", "weights", "negative", "cost"],
)
def test_stakes_that_could_lose_more_than_there_is(rule, options, most):
    a = np.arange(50.0)
    if "sample_weight_id" in options:
        options = {**options, "weight_max": 6.0}
    data = a, None, np.zeros(50), a + 60, None
    path = [{"theta": 0.0, "lam": 70.0}]
    if most > 0:
        with pytest.raises(ValueError, match=r"must be in \[0, [\d.]+\], or its test"):
            certified_path(rule, path, *data, stakes=1.01 * most, **options)
        try:
            certified_path(rule, path, *data, stakes=0.99 * most, **options)
        except NotCertifiableError:
            pass
        return
    with pytest.raises(ValueError, match=r"would not be valid; got -1\.0"):
        certified_path(rule, path, *data, stakes=most, **options)


def test_weights_of_a_path_need_stakes():
    a = np.arange(50.0)
    arrays = a, None, np.zeros(50), None, None
    weights = {"sample_weight_id": np.ones(50), "weight_max": 1.0}
    with pytest.raises(ValueError, match="stakes must be given for the statement TPR"):
        certified_path(
            BoundedAbstention(0.5), [{"theta": 0.0, "lam": 40.0}], *arrays, **weights
        )


# ---- errors

ONES = np.ones(50)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (RULE, {"sample_weight_id": ONES}, "weight_max must be given with importance"),
        (
            RULE,
            {"sample_weight_id": 3 * ONES, "weight_max": 2.0},
            "weight_id has a weight of 3, above weight_max=2",
        ),
        (RULE, {"sample_weight_id": -ONES}, "Negative values in data passed to"),
        (RULE, {"sample_weight_ood": 0 * ONES}, "sample weights are zero"),
        (RULE, {"sample_weight_ood": np.nan * ONES}, "weight_ood contains NaN"),
        (RULE, {"sample_weight_id": [1.0, 2.0]}, r"has shape \(2,\), expected \(50,\)"),
        (
            RULE,
            {"sample_weight_id": ONES / 2, "weights": "frequency"},
            "weights='frequency' needs whole numbers in weight_id.* got 0.5",
        ),
        (RULE, {"weights": "importants"}, "'weights' parameter of Shift must be a"),
        (RULE, {"tv": 1.0}, "'tv' parameter of Shift must be a float in the range"),
        (
            BoundedPrecisionRecall(),
            {"sample_weight_id": ONES, "weight_max": 1.0},
            "Weights are for bounds on ID or on OOD samples alone.*BoundedPrecision",
        ),
        (
            CostBased(),
            {"sample_weight_id": ONES, "weight_max": 1.0},
            "CostBased has no bounds, and its cost is bounded for the",
        ),
        (
            BoundedTPRFPR(),
            {"sample_weight_id": ONES, "weight_max": 1.0, "guarantee": "ltt"},
            "Importance weights are for guarantee='high_probability', and",
        ),
        (
            TwoThresholds(0.1, 0.1),
            {"sample_weight_id": ONES, "weight_max": 1.0},
            "rules with linear bounds; got guarantee=.* and TwoThresholds",
        ),
        (BoundedTPRFPR(), {"tv": 0.1, "guarantee": "ltt"}, "unlabeled and tv are for"),
        (RULE, {"unlabeled": (ONES, ONES)}, "unlabeled is for bounds on the precision"),
        (
            CostBased(cost_max=0.5),
            {"unlabeled": (ONES, ONES)},
            "another one that depends on ood_prior",
        ),
        (
            BoundedPrecisionRecall(),
            {"unlabeled": (ONES,)},
            r"unlabeled must be a pair of scores \(risk, ood\)",
        ),
        (BoundedPrecisionRecall(), {"unlabeled": (ONES, None)}, "is None although the"),
        (BoundedPrecisionRecall(), {"unlabeled": ([], [])}, "unlabeled has no samples"),
        (
            BoundedPrecisionRecall(),
            {"unlabeled": (ONES, ONES), "ood_prior": 0.3},
            "Pass ood_prior or unlabeled, not both",
        ),
        (
            BoundedPrecisionRecall(),
            {"unlabeled": (ONES, ONES), "group_id": ONES},
            "unlabeled cannot be combined with group_id or tv",
        ),
        (
            BoundedPrecisionRecall(),
            {"unlabeled": (ONES, ONES), "sample_weight_id": ONES, "weight_max": 1.0},
            "Weights and unlabeled samples cannot be combined",
        ),
    ],
)
def test_invalid_descriptions(rule, options, message):
    a = np.arange(50.0)
    with pytest.raises(ValueError, match=message):
        certified(rule, a, a, np.zeros(50), a + 50, a + 50, **options)


# ---- fractions at deployment


def test_approximate_interval_by_maximum_likelihood():
    """Shorter than the exact one, which uses one threshold; near its level here."""
    rng = np.random.default_rng(10)
    point, missed, widths = OperatingPoint(theta=0.0, lam=1.5), 0, []
    for draw in range(100):
        share = rng.uniform(0.05, 0.4)
        n_ood = rng.binomial(1000, share)
        new = np.append(rng.normal(size=1000 - n_ood), rng.normal(2.5, size=n_ood))
        scores = rng.normal(size=3000), None, rng.normal(2.5, size=3000), None
        low, high = ood_prior_interval(point, *scores, new, None, method="em")
        missed += not low <= share <= high
        if draw < 20:  # the exact interval takes longer
            exact = ood_prior_interval(point, *scores, new, None)
            widths.append((high - low, exact[1] - exact[0]))
    assert missed <= binom.ppf(0.999, 100, 0.1)
    mean, exact = np.mean(widths, axis=0)
    assert mean < 0.9 * exact


def test_ends_of_the_approximate_interval():
    """All samples of one kind; and the maximum by iteration."""
    rng = np.random.default_rng(11)
    point = OperatingPoint(theta=0.0, lam=1.5)
    a, a_ood = rng.normal(size=2000), rng.normal(4.0, size=2000)
    args = point, a, None, a_ood, None
    low, high = ood_prior_interval(*args, rng.normal(size=500), None, method="em")
    assert low == 0
    assert high < 0.02
    low, high = ood_prior_interval(*args, rng.normal(4.0, size=500), None, method="em")
    assert low > 0.98
    assert high == 1
    with pytest.raises(ValueError, match="method='em' needs the distribution of OOD"):
        ood_prior_interval(*args, a, None, method="em", mixture="any")


def _class_problem(rng, n, shares):
    """Posteriors at equal priors of classes around three means."""
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    y = rng.choice(3, n, p=shares)
    X = means[y] + rng.normal(size=(n, 2))
    proba = np.exp(-((X[:, None] - means) ** 2).sum(axis=2) / 2)
    return proba / proba.sum(axis=1, keepdims=True)


def test_bootstrap_of_class_priors_by_the_confusion_matrix():
    """Its width is the one of a linear function of multinomial shares."""
    rng, n = np.random.default_rng(12), 2000
    proba = _class_problem(rng, n, [0.5, 0.3, 0.2])
    confusion = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.15, 0.05, 0.8]])
    options = {"method": "bbse", "confusion": confusion, "confidence_level": 0.9}
    estimate, low, high = class_prior(proba, random_state=0, **options)
    assert_allclose(estimate, class_prior(proba, method="bbse", confusion=confusion))
    q = np.bincount(proba.argmax(axis=1), minlength=3) / n
    inverse = np.linalg.inv(confusion.T)
    variance = np.diag(inverse @ (np.diag(q) - np.outer(q, q)) @ inverse.T) / n
    assert_allclose((high - low) / 2, 1.645 * np.sqrt(variance), rtol=0.15)
    again = class_prior(proba, random_state=0, **options)
    assert_allclose(again, (estimate, low, high))


def test_bootstrap_of_class_priors_by_maximum_likelihood():
    """Near its level with calibrated posteriors."""
    rng, shares = np.random.default_rng(13), np.array([0.6, 0.3, 0.1])
    missed = 0
    for seed in range(4):
        proba = _class_problem(rng, 150, shares)
        _, low, high = class_prior(
            proba, np.ones(3) / 3, confidence_level=0.8, random_state=seed
        )
        missed += np.sum((low > shares) | (shares > high))
    assert missed <= binom.ppf(0.999, 12, 0.2)
    with pytest.raises(ValueError, match="'confidence_level' parameter of class_prior"):
        class_prior(proba, np.ones(3) / 3, confidence_level=1.0)


@pytest.mark.parametrize("kind", ["weights", "expectation", "tv", "unlabeled"])
def test_certificates_describe_the_shift(kind):
    """Also certificates of a path, and on average, whose assumptions follow from it."""
    rng = np.random.default_rng(0)
    risk, risk_ood = rng.normal(size=2000), rng.normal(3, 1, size=2000)
    weights = {} if kind in ("tv", "unlabeled") else {"weight_id": np.ones(2000)}
    scores = risk, None, np.zeros(2000), risk_ood, None
    samples, rule = samples_of(*scores, **weights), BoundedAbstention(0.5)
    path, options = [{"theta": 0.0, "lam": 2.0}], {}
    certificate = Certificate(shift=Shift(weight_max=2))
    if kind == "expectation":
        certificate.set_params(method=kind)
        point = certify(rule, samples, certificate)
    else:
        if kind == "tv":
            certificate = Certificate(shift=Shift(tv=0.1))
        elif kind == "unlabeled":
            rule, certificate = BoundedPrecisionRecall(0.7, 0.5), None
            options = {"unlabeled": (np.append(risk, risk_ood[:500]), None)}
        else:
            options = {"stakes": 0.4}
        point = certify_path(rule, path, samples, certificate, **options)
    about = point.certificate
    assert about.weight_max == (2.0 if weights else None)
    assert about.tv == (0.1 if kind == "tv" else 0.0)
    assert about.n_unlabeled == (2500 if kind == "unlabeled" else 0)
    text = {"tv": "distance of 0.1", "unlabeled": "The unlabeled samples are"}
    assert text.get(kind, "Weights are a fixed function") in about.assumptions


def test_a_refused_path_does_not_exclude_more_samples():
    samples = samples_of(np.arange(30.0), None, np.zeros(30), None, None)
    path = [{"theta": 0.0, "lam": 26.5}]  # 27 of 30 at a bound of 0.8
    with pytest.raises(NotCertifiableError, match="More samples may suffice"):
        certify_path(BoundedAbstention(0.8), path, samples)
