"""Tests of the p-values of statements, and of certificates by a path of candidates."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

import skood.rejection
from skood.decision._certified_path import sequence
from skood.decision._class_priors import solve_confusion
from skood.decision._ood_fraction import precision_pvalue, prior_from_counts
from skood.decision._statements import TestedSamples
from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.rejection import (
    AllOf,
    BaseRule,
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    Linear,
    LinearRule,
    OperatingPoint,
    Solver,
    certify,
    class_prior,
    ood_prior_interval,
    shift_posteriors,
    solve,
)
from skood.stats._rate_tests import (
    at_least,
    at_most,
    betting,
    fixed_stake,
    predictable_stakes,
    two_sample,
    weighted_sum,
)
from tests.decision._scores import (
    FixedPValues,
    certified,
    certified_path,
    samples_of,
    solved,
)

VECTORS = json.loads(Path(__file__).with_name("vectors_certificates.json").read_text())


def _vectors(*names):
    vectors = [v for v in VECTORS if v["id"].startswith(names)]
    assert vectors
    return pytest.mark.parametrize("vector", vectors, ids=lambda v: v["id"])


# ---- numbers computed independently

PVALUES = {
    "G-p-tpr": lambda i: at_least(i["N"], i["n"], i["phi"]),
    "G-p-fpr": lambda i: at_most(i["F"], i["n"], i["rho"]),
    "G-p-risk": lambda i: at_most(i["E"], i["N"], i["r"]) if i["N"] else 1.0,
    "G-p-bet": lambda i: betting(np.array(i["loss"], float), i["r"], i["stake"]),
    "G-p-predictable": lambda i: betting(
        np.array(i["loss"], float),
        i["r"],
        predictable_stakes(np.array(i["loss"], float), i["r"], i["delta"]),
    ),
    "G-p-two": lambda i: two_sample(
        i["N"], i["n_id"], i["F"], i["n_ood"], i["R"], i["W"], 100 * i["gamma"]
    ),
    "G-p-general": lambda i: weighted_sum(
        np.array(i["z"]),
        np.array(i["accepted_ood"]),
        i["c"],
        (i["stake_id"], i["stake_ood"]),
        100 * i["gamma"],
    ),
}


@_vectors(*PVALUES)
def test_pvalues(vector):
    name = vector["id"].rsplit("-", 1)[0]
    pvalue = PVALUES[name](vector["input"])
    assert pvalue == pytest.approx(vector["expected"]["p"], abs=vector["tolerance"])


@_vectors("G-stake")
def test_stakes(vector):
    stake = fixed_stake(*(vector["input"][k] for k in ("r", "var", "n", "delta")))
    assert stake == pytest.approx(vector["expected"]["stake"], abs=1e-9)


@_vectors("G-statements")
def test_statements_of_rules(vector):
    rule = getattr(skood.rejection, vector["input"]["rule"])
    statements = rule(**vector["input"]["params"]).statements()
    expected = np.reshape(vector["expected"]["statements"], (-1, 4))
    assert_allclose(np.reshape(statements, (-1, 4)), expected, atol=1e-9)


@_vectors("G-path")
def test_path_of_candidates(vector):
    inputs, expected = vector["input"], vector["expected"]
    bounds = BoundedTPRFPR(inputs["tpr_min"], inputs["fpr_max"])
    rule = AllOf([bounds, BoundedImprovement(inputs["risk_max"])])
    scores = ("risk_id", "ood_id", "loss_id", "risk_ood", "ood_ood")
    labels = {}
    if vector["id"] == "G-path-groups":
        labels = {key: inputs[key] for key in ("group_id", "source_ood")}
    point = certified_path(
        rule, inputs["path"], *(inputs[key] for key in scores), delta=0.1, **labels
    )
    assert_allclose(point.certificate.path_pvalues, expected["p"], rtol=1e-9)
    assert point.certificate.n_certified == len(expected["certified"])
    assert point.lam == inputs["path"][expected["chosen"]]["lam"]
    # renaming and reordering groups and sources changes nothing
    names = {key: np.array(["b", "a"])[np.array(v)] for key, v in labels.items()}
    again = certified_path(
        rule, inputs["path"], *(inputs[key] for key in scores), delta=0.1, **names
    )
    assert again.lam == point.lam
    assert_allclose(
        np.sort(again.certificate.path_pvalues), np.sort(point.certificate.path_pvalues)
    )


@_vectors("G-prior")
def test_share_of_ood_samples_from_counts(vector):
    """The vectors have limits from Bonferroni's inequality, which are wider."""
    i = vector["input"]
    counts = (i[key] for key in ("N", "n_id", "F", "n_ood", "Q", "M", "delta"))
    counts = tuple(counts)
    expected = vector["expected"]
    low, high = prior_from_counts(*counts)
    assert expected["low"] <= low <= high <= expected["high"]
    if high < 1:
        assert high - low < 0.8 * (expected["high"] - expected["low"])
    low, high = prior_from_counts(*counts, "any")
    assert_allclose((low, high), (expected["low_any_ood"], 1.0), atol=1e-12)


@_vectors("G-deployed-precision")
def test_precision_in_use(vector):
    """The vectors have limits from Bonferroni's inequality, which are lower."""
    i = vector["input"]
    low, delta = vector["expected"]["low"], i["delta"]
    for F, n_ood in zip(i["F"], i["n_ood"], strict=True):
        counts = i["N"], i["n_id"], F, n_ood, i["Q"], i["M"]
        assert low == 0 or precision_pvalue(low, *counts, delta) < 0.4 * delta
        assert precision_pvalue(0.999, *counts, delta) > delta


@_vectors("G-em")
def test_class_priors_by_maximum_likelihood(vector):
    i, expected = vector["input"], vector["expected"]
    prior = class_prior(i["proba"], i["prior"])
    assert_allclose(prior, expected["prior"], atol=1e-9)
    shifted = shift_posteriors(i["proba"][:3], i["prior"], prior)
    assert_allclose(shifted, expected["adapted"], atol=1e-9)


@_vectors("G-bbse")
def test_class_priors_by_the_confusion_matrix(vector):
    i = vector["input"]
    priors = solve_confusion(np.array(i["confusion"]), np.array(i["predicted"]))
    assert_allclose(priors, vector["expected"]["prior"], atol=1e-9)


@_vectors("G-weights")
def test_weights_of_solve(vector):
    i = vector["input"]
    rule = getattr(skood.rejection, i["rule"])(**i["params"])
    point = solved(
        rule,
        i["risk_id"],
        None,
        i["loss_id"],
        i["risk_ood"],
        None,
        weight_id=i["weight_id"],
        weight_ood=i["weight_ood"],
    )
    for name, value in vector["expected"].items():
        assert getattr(point, name) == pytest.approx(value, abs=1e-9)


# ---- the level of each p-value, by enumeration of all outcomes


@pytest.mark.parametrize(("n_id", "n_ood"), [(8, 5), (25, 20), (6, 25)])
@pytest.mark.parametrize("delta", [0.1, 0.3])
def test_level_of_the_two_sample_test(n_id, n_ood, delta):
    id_factor, ood_factor = 0.1, 0.2
    pvalues = np.array(
        [
            [
                two_sample(N, n_id, F, n_ood, id_factor, ood_factor, delta)
                for F in range(n_ood + 1)
            ]
            for N in range(n_id + 1)
        ]
    )
    levels = []
    for t in np.linspace(0.02, 1.0, 50):  # the border f = R t / W
        N = binom.pmf(np.arange(n_id + 1), n_id, t)
        F = binom.pmf(np.arange(n_ood + 1), n_ood, id_factor * t / ood_factor)
        levels.append(N @ (pvalues <= delta) @ F)
    assert max(levels) <= delta
    assert (n_id < 10) or max(levels) > 0.3 * delta


@pytest.mark.parametrize("predictable", [False, True])
@pytest.mark.parametrize("mean", [0.4, 0.7])
def test_level_of_betting(predictable, mean):
    """All sequences of losses 0, 1/2 and 1 whose mean is the bound."""
    n, delta = 8, 0.2
    half = min(mean, 1 - mean)
    chances = np.array([1 - mean - half / 2, half, mean - half / 2])
    level = 0.0
    for outcome in itertools.product(range(3), repeat=n):
        values = np.array(outcome) / 2
        stakes = fixed_stake(mean, 0.05, n, delta)
        if predictable:
            stakes = predictable_stakes(values, mean, delta)
        if betting(values, mean, stakes) <= delta:
            level += chances[list(outcome)].prod()
    assert 0 < level <= delta


def test_level_of_a_weighted_sum():
    """All outcomes of 4 ID and 3 OOD samples, at the largest FPR that keeps the sum."""
    delta, c = 0.3, 0.5
    z = np.array([-0.4, 0.1, 0.6])
    for chances in ([0.7, 0.2, 0.1], [0.8, 0.0, 0.2]):
        f = -(z @ chances) / c
        assert 0 < f < 1
        level = 0.0
        for outcome in itertools.product(range(3), repeat=4):
            for leaked in itertools.product(range(2), repeat=3):
                p = weighted_sum(z[list(outcome)], leaked, c, (0.8, 1.0), delta)
                if p <= delta:
                    F = sum(leaked)
                    chance = np.prod(np.array(chances)[list(outcome)])
                    level += chance * f**F * (1 - f) ** (3 - F)
        assert level <= delta


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_level_of_binomial_tests(share):
    counts = np.arange(31)
    chances = binom.pmf(counts, 30, share)
    for test in (at_least, at_most):
        pvalues = np.array([test(int(k), 30, share) for k in counts])
        for delta in (0.01, 0.1, 0.5):
            assert chances[pvalues <= delta].sum() <= delta


def test_two_sample_test_of_many_samples():
    """Where all counts are far from the border, and where they are at it."""
    sizes = 400_000, 300_000
    far = two_sample(320_000, 400_000, 3_000, 300_000, 0.1, 0.2, 0.1)
    assert far == pytest.approx(0.001, abs=1e-8)
    at = two_sample(320_000, sizes[0], 120_000, sizes[1], 0.1, 0.2, 0.1)
    assert 0.4 < at < 0.6


# ---- whole certificates


def _population(n, seed, n_groups=1, n_sources=1, decimals=None):
    """Arguments of ScoredSamples.from_arrays, and labels; the groups are shifted."""
    rng = np.random.default_rng(seed)
    group, source = rng.integers(n_groups, size=n), rng.integers(n_sources, size=n)
    a, b = rng.normal(size=(2, n)) + 0.1 * group
    a_ood, b_ood = rng.normal([[0.5], [2.0]], size=(2, n)) + 0.1 * source
    loss = rng.random(n) < 0.3 / (1 + np.exp(1.0 - 1.5 * a))
    scores = a, b, a_ood, b_ood
    if decimals is not None:
        scores = tuple(np.round(2 * s, decimals) / 2 for s in scores)
    a, b, a_ood, b_ood = scores
    return (a, b, loss, a_ood, b_ood), {"group_id": group, "source_ood": source}


def _draw_from(population, rng, n):
    """Draw n ID and n OOD samples, and their labels."""
    (a, b, loss, a_ood, b_ood), labels = population
    drawn, others = rng.integers(len(a), size=(2, n))
    samples = a[drawn], b[drawn], loss[drawn], a_ood[others], b_ood[others]
    group, source = labels["group_id"][drawn], labels["source_ood"][others]
    return samples, {"group_id": group, "source_ood": source}


def _rates(population, point):
    """Largest excess of TPR .7, FPR .25 and risk .12 in all groups and sources."""
    (a, b, loss, a_ood, b_ood), labels = population
    inside, leaked = point.accept(a, b), point.accept(a_ood, b_ood)
    group, source = labels["group_id"], labels["source_ood"]
    excesses = [leaked[source == s].mean() - 0.25 for s in np.unique(source)]
    for g in np.unique(group):
        accepted = inside[group == g]
        excesses += [0.7 - accepted.mean(), loss[group == g][accepted].mean() - 0.12]
    return max(excesses)


RULE = AllOf([BoundedTPRFPR(0.7, 0.25), BoundedImprovement(0.12)])


@pytest.mark.parametrize(
    ("n_groups", "n_sources", "decimals", "n"),
    [(1, 1, None, 800), (1, 1, 0, 800), (2, 2, None, 1500)],
    ids=["continuous", "ties", "groups"],
)
@pytest.mark.parametrize(
    "n_draws", [40, pytest.param(300, marks=pytest.mark.slow)], ids=str
)
def test_promise_on_new_samples(n_groups, n_sources, decimals, n, n_draws):
    population = _population(60_000, 0, n_groups, n_sources, decimals)
    rng = np.random.default_rng(1)
    n_certified = broken = 0
    for seed in range(n_draws):
        samples, labels = _draw_from(population, rng, n)
        if n_groups == 1:
            labels = {}
        try:
            point = certified(RULE, *samples, delta=0.2, random_state=seed, **labels)
        except NotCertifiableError:
            continue
        n_certified += 1
        broken += _rates(population, point) > 0
        statements = point.certificate.statements
        assert len(statements) == 2 * n_groups + n_sources
        assert max(s.pvalue for s in statements) <= 0.2
    assert n_certified > 0.3 * n_draws
    assert broken <= binom.ppf(0.999, n_draws, 0.2)


def test_without_a_certificate_the_bounds_are_broken():
    """So that the test above can fail."""
    population = _population(60_000, 0)
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(20):
        samples, _ = _draw_from(population, rng, 800)
        point = solved(RULE, *samples, solver="grid", n_angles=24)
        broken += _rates(population, point) > 0
    assert broken > 6


def test_statements_in_the_certificate_are_of_the_certifying_samples():
    samples, labels = _population(3000, 0, 2, 2)
    point = certified(RULE, *samples, random_state=0, **labels)
    texts = {s.text: s for s in point.certificate.statements}
    assert list(texts) == [
        *(f"TPR >= 0.7 in group {g}" for g in (0, 1)),
        *(f"FPR <= 0.25 for source {s}" for s in (0, 1)),
        *(f"selective risk <= 0.12 in group {g}" for g in (0, 1)),
    ]
    certificate = point.certificate
    counts = [np.bincount(label) for label in labels.values()]
    sizes = [n - (0.4 * n).astype(int) for n in counts]
    assert (certificate.n_id, certificate.n_ood) == tuple(x.sum() for x in sizes)
    assert 1 <= certificate.n_certified <= certificate.n_candidates <= 200
    # p-values are functions of the estimates, and of the sizes of the second part
    for g, n in enumerate(sizes[0]):
        tpr = texts[f"TPR >= 0.7 in group {g}"]
        count = round(tpr.estimate * n)
        assert tpr.estimate == pytest.approx(count / n)
        assert tpr.pvalue == pytest.approx(binom.sf(count - 1, n, 0.7))
        risk = texts[f"selective risk <= 0.12 in group {g}"]
        expected = binom.cdf(round(risk.estimate * count), count, 0.12)
        assert risk.pvalue == pytest.approx(expected)
    assert repr(pickle.loads(pickle.dumps(point))) == repr(point)


def test_order_of_samples_and_names_of_labels_do_not_matter():
    """Without `random_state` fixed they only change the random split."""
    arrays, labels = _population(4000, 0, 2, 2)
    group, source = labels.values()
    points = [
        certify(RULE, samples_of(*arrays, group_id=g, source_ood=s), random_state=0)
        for g, s in (
            (group, source),
            (np.array(["x", "y"])[group], np.array([7, 9])[source]),
        )
    ]
    assert points[0].lam == points[1].lam
    assert points[0].theta == points[1].theta


@pytest.mark.parametrize("double", [False, True], ids=["one score", "two scores"])
def test_rounding_of_scores_changes_no_decision(double):
    """Scores of repeated samples differ in their last digits between calls."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(5, size=(2, 1500)).astype(float)
    a_ood, b_ood = rng.integers(5, size=(2, 1500)) + 1.5
    loss = (rng.random(1500) < 0.02 + 0.03 * a).astype(float)

    def noisy(*scores):
        return [score + rng.uniform(-1e-7, 1e-7, 1500) for score in scores]

    if not double:
        b = b_ood = None
    rule = AllOf([BoundedTPRFPR(0.4, 0.7), BoundedImprovement(0.2)])
    (a1, a_ood1), others = noisy(a, a_ood), (None, None)
    if double:
        others = noisy(b, b_ood)
    point = certified(rule, a1, others[0], loss, a_ood1, others[1], random_state=0)
    decisions = []
    for _ in range(2):
        scores = noisy(a, b) if double else noisy(a)
        decisions.append(point.accept(*scores))
    np.testing.assert_array_equal(*decisions)
    for value in np.unique(a):  # with one score an atom is accepted or not
        if not double:
            assert np.unique(decisions[0][a == value]).size == 1


def test_infinite_scores():
    """They are rejected at all angles, unless they are -inf in the risk score."""
    a = np.append(np.arange(40.0), np.full(10, np.inf))
    with pytest.raises(NotCertifiableError, match="has a p-value"):
        certified(BoundedImprovement(0.1), a + np.inf, a, np.zeros(50), None, None)
    a[:30] = -np.inf
    point = certified(BoundedAbstention(0.3), a, np.zeros(50), np.zeros(50), None, None)
    assert point.accept([-np.inf, np.inf], [0.0, 0.0]).tolist() == [True, False]


def test_small_groups():
    group = np.full(1500, "large", dtype=object)
    group[:4], group[4:9] = "tiny", "small"
    arrays = BoundedTPRFPR(0.5, 0.95), *_population(1500, 0)[0]
    # .5^4 < .1 < .5^3; a group keeps n - int(.4 n) samples for the tests
    named = r"than 4 .*'small' \(3\), 'tiny' \(3\)"
    with pytest.raises(NotCertifiableError, match=named):
        certified(*arrays, group_id=group, random_state=0)
    point = certified(*arrays, group_id=group, random_state=0, small_groups="skip")
    assert point.certificate.not_certified == ("small", "tiny")
    assert [s.group for s in point.certificate.statements] == ["large", None]
    group[:20] = np.repeat(["few", "odd", "rare", "small"], 5)
    point = certified(*arrays, group_id=group, random_state=0, small_groups="pool")
    assert point.certificate.pooled == ("few", "odd", "rare", "small")
    groups = [s.group for s in point.certificate.statements]
    assert groups == ["large", "pooled", None]


def test_upper_bound_of_the_cost():
    """It holds on new samples, and it is near the cost with many samples."""
    (a, b, loss, a_ood, b_ood), _ = population = _population(20_000, 0)
    rule = CostBased(0.3, 1.0, 0.0, 0.3)
    rng = np.random.default_rng(2)
    broken, excess = 0, []
    for seed in range(25):
        samples, _ = _draw_from(population, rng, 500)
        point = certified(rule, *samples, random_state=seed, delta=0.2, solver="grid")
        (statement,) = point.certificate.statements
        inside, leaked = point.accept(a, b), point.accept(a_ood, b_ood)
        cost = rule.cost().at(inside.mean(), (loss * inside).mean(), leaked.mean())
        bound = rule.cost().constant - _constant(statement)
        excess.append(bound - cost)
        broken += cost > bound
    assert broken <= binom.ppf(0.999, 25, 0.2)
    assert 0 < np.mean(excess) < 0.1


def _constant(statement):
    """Constant of "... + constant <= 0" at the end of a statement."""
    return float(statement.text.split("<=")[0].split()[-1])


def test_bounded_cost():
    arrays, _ = _population(4000, 0)
    cost = solve(CostBased(), samples_of(*arrays), Solver("grid")).objective
    rule = CostBased(cost_max=cost + 0.05)
    point = certify(rule, samples_of(*arrays), random_state=0)
    assert point.objective < cost + 0.05
    with pytest.raises(NotCertifiableError):
        certify(CostBased(cost_max=cost - 0.02), samples_of(*arrays), random_state=0)


def test_precision_is_tested_directly():
    """Also at a recall at which the corner of two bounds is out of reach."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 2000))
    a_ood, b_ood = rng.normal(1.6, size=(2, 2000))
    rule = BoundedPrecisionRecall(0.9, 0.3, ood_prior=0.3)
    point = certified(rule, a, b, np.zeros(2000), a_ood, b_ood, random_state=0)
    assert [s.text for s in point.certificate.statements] == [
        "TPR >= 0.3",
        "0.07 TPR >= 0.27 FPR",
    ]
    assert point.precision > 0.9


def test_prior_in_an_interval_with_a_cost():
    """A cost is affine in the prior: both ends are tested."""
    arrays, rule = _population(4000, 0)[0], CostBased(cost_max=0.3)
    point = certified(rule, *arrays, random_state=0, ood_prior=(0.1, 0.6))
    assert len(point.certificate.statements) == 2


class _LargestFPR(BaseRule):
    """A rule that bounds the TPR from above and the FPR from below."""

    def rates(self):
        return Linear(id=1.0, constant=-0.6), Linear(ood=-1.0, constant=0.2)

    def cost(self):
        return Linear(id=-1.0)


class _CostOfDecisions(BaseRule):
    """A rule without bounds, whose cost does not depend on losses."""

    def rates(self):
        return ()

    def cost(self):
        return Linear(id=-0.5, ood=1.0, constant=0.5)


def test_mirrored_bounds_of_a_custom_rule():
    rng = np.random.default_rng(0)
    a, a_ood = rng.normal(size=1500), rng.normal(0.3, size=1500)
    point = certified(
        _LargestFPR(), a, None, np.zeros(1500), a_ood, None, random_state=0
    )
    tpr, fpr = point.certificate.statements
    assert (tpr.text, fpr.text) == ("TPR <= 0.6", "FPR >= 0.2")
    assert tpr.pvalue == pytest.approx(binom.cdf(round(tpr.estimate * 900), 900, 0.6))
    assert fpr.pvalue == pytest.approx(
        binom.sf(round(fpr.estimate * 900) - 1, 900, 0.2)
    )


def test_factor_of_the_samples_needed():
    """So many samples of the same distribution are certified in most draws."""
    population = _population(60_000, 0)

    def draw_samples(n, seed):
        return _draw_from(population, np.random.default_rng(seed), n)[0]

    with pytest.raises(NotCertifiableError, match="samples suffice") as error:
        certify(RULE, samples_of(*draw_samples(120, 6)), random_state=0)
    n = error.value.n_id_needed
    assert 150 < n == error.value.n_ood_needed < 20_000
    certified = 0
    for seed in range(10):
        try:
            certify(RULE, samples_of(*draw_samples(n, 10 + seed)), random_state=seed)
        except NotCertifiableError:
            continue
        certified += 1
    assert certified >= 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_id": [1, 2]}, "group_id must have one label per ID sample, got 2 for"),
        ({"source_ood": [None] * 40}, "source_ood contains missing labels"),
        ({"group_id": [0] * 50, "guarantee": "ltt"}, "are for guarantee='high_probab"),
        ({"small_groups": "ignore"}, "'small_groups' parameter of Certificate must be"),
    ],
)
def test_invalid_labels(options, message):
    a, b, loss = np.zeros(50), np.zeros(50), np.zeros(50)
    with pytest.raises(ValueError, match=message):
        certified(BoundedTPRFPR(), a, b, loss, np.ones(40), np.ones(40), **options)


def test_losses_below_the_largest_count_as_errors():
    """Half a loss is an error of the binomial test: 20 of 100, not 15."""
    loss = np.repeat([0.0, 0.5, 1.0], [80, 10, 10])
    data = np.arange(100.0), None, loss, None, None
    point = certified_path(
        BoundedImprovement(0.4), [{"theta": 0.0, "lam": 99.5}], *data
    )
    (statement,) = point.certificate.statements
    assert_allclose(statement.pvalue, binom.cdf(20, 100, 0.4), rtol=1e-12)


def test_losses_above_the_largest():
    a = np.arange(50.0)
    with pytest.raises(ValueError, match=r"max_loss=1\.0, but a loss is 2\.0"):
        certified(BoundedImprovement(0.5), a, None, np.full(50, 2.0), None, None)
    # unbounded where nothing is claimed about losses
    certified(
        BoundedAbstention(0.3), a, a, np.full(50, 2.0), None, None, random_state=0
    )
    scores = a, None, np.full(50, 2.0), a + 25, None
    point = certify(_CostOfDecisions(), samples_of(*scores), random_state=0)
    assert point.certificate.n_certified == 1


def test_invalid_paths():
    a = np.arange(50.0)
    rule = BoundedAbstention(0.5)
    arrays = a, None, np.zeros(50), None, None
    path = [{"theta": 0.0, "lam": 20.0}]
    with pytest.raises(ValueError, match="path is empty"):
        certified_path(rule, [], *arrays)
    for other in (BoundedAbstention(0.0), LinearRule()):
        with pytest.raises(ValueError, match=r"has no bound that a path could break"):
            certified_path(other, path, *arrays)
    with pytest.raises(ValueError, match="rules with one threshold"):
        certified_path(rule, [OperatingPoint(theta=0.0, lam=1.0, tau=0.5)], *arrays)
    with pytest.raises(NotCertifiableError, match="first rule of the path is not cert"):
        certified_path(rule, path, *arrays)
    with pytest.raises(ValueError, match="stakes must be given for the statement"):
        certified_path(CostBased(cost_max=0.5), path, *arrays[:3], a, None)
    with pytest.raises(ValueError, match="one for each of 1 statements; got 2"):
        certified_path(rule, path, *arrays, stakes=[1, 2])


def test_rules_that_cannot_be_combined():
    with pytest.raises(ValueError, match="rules of AllOf is empty"):
        solve(AllOf([]), samples_of([1.0], None, [0], None, None))
    with pytest.raises(ValueError, match="TwoThresholds is found without a search"):
        rule = AllOf([BoundedAbstention(), skood.rejection.TwoThresholds()])
        solve(rule, samples_of([1.0], None, [0], None, None))
    with pytest.raises(TypeError, match="rule must be an instance of a rule"):
        solve(AllOf([0.5]), samples_of([1.0], None, [0], None, None))


def test_all_bounds_of_all_rules():
    """By brute force over thresholds; the objective is that of the first rule."""
    rng = np.random.default_rng(0)
    a, a_ood = np.round(rng.normal(size=60), 1), np.round(rng.normal(1, size=40), 1)
    loss = (rng.random(60) < 0.3).astype(float)
    bounds = BoundedTPRFPR(0.4, 0.5)
    for first, objective in (
        (bounds, lambda t, r, f: r),
        (CostBased(ood_prior=0.5), lambda t, r, f: 0.5 * (t * r + 0.3 * (1 - t) + f)),
    ):
        rule = AllOf([first, bounds, BoundedImprovement(0.3)])
        best = np.inf
        for lam in np.unique(np.append(a, a_ood)):
            inside, leaked = a <= lam, a_ood <= lam
            t, f = inside.mean(), leaked.mean()
            risk = loss[inside].mean() if t else np.inf
            if t >= 0.4 and f <= 0.5 and risk <= 0.3:
                best = min(best, objective(t, risk, f))
        point = solve(rule, samples_of(a, None, loss, a_ood, None))
        assert point.objective == pytest.approx(best)
    assert rule.ood_prior == 0.5
    assert rule.violation(0.3, 0.6, 0.4) == pytest.approx(0.1 + 0.1 + 0.1)


# ---- fractions at deployment


@pytest.mark.parametrize("n_draws", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_interval_of_the_share_on_mixtures(n_draws):
    rng = np.random.default_rng(0)
    point = OperatingPoint(theta=0.0, lam=1.5)
    missed, widths = 0, []
    for _ in range(n_draws):
        share, fraction = rng.uniform(0, 0.5), rng.random()
        n_ood = rng.binomial(2000, share)
        first = rng.binomial(n_ood, fraction)
        new = np.concatenate(
            [
                rng.normal(size=2000 - n_ood),
                rng.normal(3.0, size=first),
                rng.normal(2.0, size=n_ood - first),
            ]
        )
        ood = np.append(rng.normal(3.0, size=300), rng.normal(2.0, size=300))
        scores = rng.normal(size=500), None, ood, None, new, None
        source = np.repeat(["far", "near"], 300)
        low, high = ood_prior_interval(point, *scores, source_ood=source)
        missed += not low <= share <= high
        widths.append(high - low)
        low, high = ood_prior_interval(point, *scores, mixture="any")
        missed += not low <= share
        assert high == 1
    assert missed <= binom.ppf(0.999, 2 * n_draws, 0.05)
    assert np.mean(widths) < 0.4


def test_shares_where_the_rule_does_not_separate():
    point = OperatingPoint(theta=0.0, lam=0.0)
    rng = np.random.default_rng(0)
    a, new = rng.normal(size=(2, 500))
    assert ood_prior_interval(point, a, None, -a, None, new, None) == (0.0, 1.0)
    with pytest.raises(ValueError, match="No unlabeled samples"):
        ood_prior_interval(point, a, None, a, None, [], None)
    with pytest.raises(ValueError, match="one label per OOD sample, got 2 for 500"):
        ood_prior_interval(point, a, None, a, None, a, None, source_ood=[1, 2])
    with pytest.raises(ValueError, match="accept all samples at its threshold"):
        randomized = OperatingPoint(theta=0.0, lam=0.0, tau=0.5)
        ood_prior_interval(randomized, a, None, a, None, a, None)


def test_invalid_class_priors():
    proba = np.full((4, 2), 0.5)
    with pytest.raises(ValueError, match="method='em' needs prior"):
        class_prior(proba)
    with pytest.raises(ValueError, match="method='bbse' needs confusion"):
        class_prior(proba, method="bbse")
    with pytest.raises(ValueError, match="prior must have 2 positive fractions"):
        class_prior(proba, [1.0, 0.0])
    with pytest.raises(ValueError, match="confusion is nearly singular"):
        class_prior(proba, method="bbse", confusion=[[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"confusion must have shape \(2, 2\), got"):
        class_prior(proba, method="bbse", confusion=[[1.0]])
    with pytest.raises(ValueError, match="new_prior must have 2 fractions"):
        shift_posteriors(proba, [0.5, 0.5], [-1.0, 2.0])


def test_reversed_scores_are_reported():
    """A path over all angles may use a score reversed."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1500))
    a_ood, b_ood = rng.normal(size=1500), rng.normal(-2.0, size=1500)
    arrays = a, b, np.zeros(1500), a_ood, b_ood
    with pytest.warns(SkoodWarning, match="reversed"):
        certified(BoundedTPRFPR(0.7, 0.2), *arrays, random_state=0, angles="full")


@pytest.mark.parametrize(
    ("answers", "wrong", "expected"),
    [
        (
            "44 86 130 147 191 217 251 276 306 332 364 403 431 449",
            "1 3 7 9 20 25 28 31 38 42 50 59 62 68",
            [0, 1, 2, 3, 4],
        ),
        (
            "38 65 108 132 157 177 211 225 240 275 309 338 365 409",
            "3 6 9 12 14 16 19 22 24 30 34 37 42 52",
            [6, 7, 8, 9, 10, 11, 12],
        ),
        (
            "20 40 74 87 123 139 175 213 237 252 290 312 335 370",
            "4 4 10 14 19 20 24 31 37 43 53 58 65 76",
            [],
        ),
    ],
)
def test_levels_of_several_starts(answers, wrong, expected):
    """D-levels: starts 0, 3, 6 and 9 of 14 candidates, each with delta / 4."""
    pvalues = binom.cdf(*(np.array(x.split(), int) for x in (wrong, answers)), 0.15)
    scores = np.arange(14.0)
    samples = samples_of(scores, None, 0 * scores, None, None)
    path = [(0.0, k - 0.5, (1.0, 1.0)) for k in range(14)]
    weights = np.where(np.isin(np.arange(14), [0, 3, 6, 9]), 0.25, 0.0)
    how = TestedSamples([FixedPValues(pvalues)], samples), path, lambda k: [None], 0.1
    certified, _ = sequence(*how, weights=weights)
    assert list(certified) == expected
