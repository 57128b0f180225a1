"""Tests of certified error rates among all answers, of samples drawn as one mixture."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from skood.decision._certified_path import best_order, by_answers, sequence
from skood.decision._statements import TestedSamples
from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.rejection import (
    AllOf,
    BoundedErrorRate,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    ScoredSamples,
    Shift,
    certify,
    certify_path,
    risk_upper_bound,
    solve,
)
from tests.decision._scores import FixedPValues, samples_of

VECTORS = json.loads(Path(__file__).with_name("vectors_mixture.json").read_text())
MIXTURE = Certificate(sampling="mixture")
SIZE = 20_000


def _vectors(name):
    vectors = [v for v in VECTORS if v["id"].startswith(name)]
    assert vectors
    return pytest.mark.parametrize("vector", vectors, ids=lambda v: v["id"])


# ---- numbers computed independently


@_vectors("D-statement")
def test_statement_at_a_prior(vector):
    rule = BoundedErrorRate(**vector["input"])
    (bound,) = rule.rates()
    assert_allclose(bound, list(vector["expected"].values()), atol=1e-12)
    assert rule.statements() == (bound,)
    prior = vector["input"]["ood_prior"]
    assert_allclose(rule.cost(), (prior - 1, 0, -prior, 0))


@_vectors("D-levels")
def test_levels_of_several_starts(vector):
    i, expected = vector["input"], vector["expected"]
    sizes = np.diff(i["answers"], prepend=0)
    errors = np.diff(i["wrong"], prepend=0)
    pairs = zip(errors, sizes, strict=True)
    loss = np.concatenate([np.arange(n) < wrong for wrong, n in pairs])
    risk = np.repeat(np.arange(len(sizes)), sizes)
    path = [{"theta": 0.0, "lam": k} for k in range(len(sizes))]
    rule = BoundedErrorRate(i["error_max"])
    for is_ood in (np.zeros(len(loss), bool), loss & (np.arange(len(loss)) % 2 > 0)):
        samples = ScoredSamples(risk, None, 1.0 * (loss & ~is_ood), is_ood)
        certificate = Certificate(delta=i["delta"], sampling="mixture")
        arguments = rule, path, samples, certificate
        certified = np.flatnonzero(expected["certified"])
        if not certified.size:
            with pytest.raises(NotCertifiableError, match="has a p-value"):
                certify_path(*arguments, starts=i["starts"])
            continue
        point = certify_path(*arguments, starts=i["starts"])
        pvalues = point.certificate.path_pvalues[:, 0]
        assert_allclose(pvalues, expected["pvalues"], atol=1e-12)
        assert point.lam == certified[-1]
        assert point.certificate.n_certified == certified.size
    tests = FixedPValues(expected["pvalues"])
    weights = np.isin(np.arange(len(sizes)), i["starts"])
    passed, failed = sequence(
        _Nested(tests),
        [(0.0, k, (1.0, 1.0)) for k in range(len(sizes))],
        lambda k: [None],
        i["delta"] / len(i["starts"]),
        weights=weights,
        stop=False,
    )
    assert sorted(passed) == certified.tolist() and len(passed) + len(failed) == 14


class _Nested:
    """Tests with fixed p-values by candidate."""

    def __init__(self, test):
        self.test = test

    def pvalues(self, theta, lam, scales, stakes, delta, level=math.inf):
        return [self.test.pvalues[lam]]


def _of_vector(vector, loss="loss"):
    i = vector["input"]
    arrays = (np.array(i[name], float) for name in ("risk", "ood", loss))
    return ScoredSamples(*arrays, np.array(i["is_ood"], bool))


@_vectors("D-mixture")
def test_path_of_a_mixture(vector):
    i, expected = vector["input"], vector["expected"]
    rule = BoundedErrorRate(i["error_max"])
    samples = _of_vector(vector)
    point = certify_path(rule, i["path"], samples, MIXTURE)
    assert_allclose(
        point.certificate.path_pvalues[:, 0], expected["pvalues"], rtol=1e-8
    )
    assert point.lam == i["path"][expected["chosen"]]["lam"]
    (statement,) = point.certificate.statements
    assert (statement.rate, statement.limit) == ("error_rate", i["error_max"])
    accepted = point.accept(samples.risk, samples.ood)
    wrong = (samples.loss + samples.is_ood)[accepted]
    assert statement.estimate == pytest.approx(wrong.mean())
    assert point.objective == pytest.approx(-accepted.mean())
    assert (
        "mixture of ID and OOD samples at deployment" in point.certificate.assumptions
    )

    graded = _of_vector(vector, "graded_loss")
    point = certify_path(rule, i["path"], graded, MIXTURE, two_valued=False)
    assert_allclose(
        point.certificate.path_pvalues[:, 0], expected["pvalues_graded"], rtol=1e-7
    )


@_vectors("D-bound")
def test_bound_by_betting(vector):
    i = vector["input"]
    options = {"max_loss": i["max_loss"], "method": "betting"}
    bound = risk_upper_bound(i["loss_accepted"], i["delta"], **options)
    assert bound == pytest.approx(vector["expected"]["betting"], abs=1e-9)
    several = risk_upper_bound(
        i["loss_accepted"], 5 * i["delta"], n_candidates=5, **options
    )
    assert several == pytest.approx(bound, abs=1e-11)


# ---- the bound by betting


@pytest.mark.parametrize("chances", [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.5, 0, 0.5]])
def test_level_of_the_bound_by_betting(chances):
    """All sequences of 6 losses 0, 1 and 2."""
    mean, level = np.dot(chances, [0, 1, 2]), 0.0
    for outcome in itertools.product(range(3), repeat=6):
        options = {"max_loss": 2, "method": "betting"}
        if risk_upper_bound(np.array(outcome), 0.3, **options) < mean - 1e-9:
            level += np.prod(np.array(chances)[list(outcome)])
    assert level <= 0.3


def test_bound_by_betting_of_extreme_losses():
    options = {"method": "betting", "max_loss": 3.0}
    assert risk_upper_bound([], **options) == 3
    assert risk_upper_bound([3.0] * 50, **options) == 3
    assert 0 < risk_upper_bound([0.0] * 500, **options) < 0.05
    assert risk_upper_bound([0.0], **options) == 3


def test_sorted_losses_are_warned_of():
    loss = np.sort(np.random.default_rng(0).random(30))
    for values in (loss, loss[::-1]):
        with pytest.warns(SkoodWarning, match="30 losses are sorted"):
            risk_upper_bound(values, method="betting")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in (
            loss[:20],
            np.full(30, 0.5),
            np.random.default_rng(1).random(30),
        ):
            risk_upper_bound(values, method="betting")
        risk_upper_bound(loss, method="hoeffding_bentkus")


# ---- attacks on the guarantee


def _population(name, rng):
    """Scores, losses and OOD samples of a population, its bound and largest loss."""
    is_ood = rng.random(SIZE) < (0.01 if name == "few OOD" else 0.15)
    risk, ood = rng.normal(size=(2, SIZE))
    alpha, largest = 0.2, 1.0
    # errors are more than the bound in all, above and below it in turn by the score
    chance = 0.07 + 0.06 * np.sin(9 * risk)
    if name == "few OOD":
        chance = 0.205 + 0.1 * np.sin(9 * risk)
    loss = (rng.random(SIZE) < chance) * 1.0
    if name == "all wrong":
        loss[:] = 1.0
        alpha = 0.97
    elif name == "ties":
        risk, ood = np.round(risk), np.round(ood)
    elif name == "heavy tails":
        risk, ood = rng.standard_t(1.5, size=(2, SIZE)) ** 3
    elif name == "graded":
        loss = rng.beta(4 * chance, 4 * (1 - chance))
    elif name == "losses up to 5":
        largest, loss = 5.0, rng.choice([0.0, 0.5, 5.0], SIZE, p=[0.8, 0.15, 0.05])
        alpha = 0.99
    elif name == "near the largest loss":
        loss = (rng.random(SIZE) < 0.97) * 1.0
        alpha = 0.97
    # distances without information: hardly any rule keeps the bound
    return (risk, ood, np.where(is_ood, 0.0, loss), is_ood), alpha, largest


POPULATIONS = (
    *("waves", "ties", "heavy tails", "few OOD", "all wrong", "graded"),
    *("losses up to 5", "near the largest loss"),
)


@pytest.mark.parametrize("order", ["drawn", "by kind", "by loss"])
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize(
    ("n", "n_draws"), [(250, 24), pytest.param(1500, 400, marks=pytest.mark.slow)]
)
def test_error_rate_on_new_samples(name, order, n, n_draws):
    rng = np.random.default_rng(0)
    (risk, ood, loss, is_ood), alpha, largest = _population(name, rng)
    if n < 1000 and order != "drawn" and name not in ("waves", "graded"):
        return  # the slow test covers them
    cost = np.where(is_ood, largest, loss)
    certificate = Certificate(sampling="mixture", max_loss=largest)
    violated = 0
    for seed in range(n_draws):
        k = rng.integers(SIZE, size=n)
        if order == "by loss":
            k = k[np.argsort(cost[k])]
        arrays = risk[k], ood[k], loss[k], is_ood[k]
        samples = ScoredSamples(*arrays)
        if order == "by kind":
            of_id, of_ood = samples.take(~is_ood[k]), samples.take(is_ood[k])
            id_ = of_id.risk, of_id.ood, of_id.loss
            samples = samples_of(*id_, of_ood.risk, of_ood.ood)
        try:
            rule = BoundedErrorRate(alpha)
            point = certify(rule, samples, certificate, random_state=seed)
        except NotCertifiableError:
            continue
        violated += cost[point.accept(risk, ood)].mean() > alpha + 1e-12
    assert violated <= binom.isf(1e-3, n_draws, 0.1)


def test_false_candidates_at_several_starts():
    """Independent uniform p-values of false candidates, and true ones between them."""
    rng, n_draws, n_wrong = np.random.default_rng(0), 4000, 0
    is_false = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1], bool)
    weights, candidates = (
        np.isin(np.arange(10), (0, 3, 7)),
        [(0, k, 1) for k in range(10)],
    )
    for _ in range(n_draws):
        tests = _Nested(FixedPValues(np.where(is_false, rng.random(10), 0.0)))
        passed, _ = sequence(tests, candidates, lambda k: [None], 0.1, weights=weights)
        n_wrong += bool(is_false[list(passed)].any())
    # three starts at 0.1 each; no candidate carries more than its start
    assert 0.2 * n_draws < n_wrong <= binom.isf(1e-3, n_draws, 0.3)


def test_starts_of_a_mixture_share_delta():
    samples = _answers(np.random.default_rng(0), 400)
    first = TestedSamples([], replace(samples, is_ood=np.zeros(400, bool)))
    path, weights = by_answers(first, 0.4, (1.0, 1.0))
    accepted = [
        samples.project(0.4, (1.0, 1.0)) <= lam for _, lam, _ in path.candidates
    ]
    shares = np.mean(accepted, axis=1)
    assert_allclose(shares, np.arange(2, 101) / 100, atol=0.004)
    assert weights[[6, 18]].tolist() == [0.5, 0.5] and weights.sum() == 1
    for pvalue, passes in ((0.05, True), (0.051, False)):
        tests = _Nested(FixedPValues([0.051, 1.0, pvalue, 0.08]))
        arguments = [(0, k, 1) for k in range(4)], lambda k: [None], 0.1
        passed, _ = sequence(tests, *arguments, weights=(0.5, 0, 0.5))
        assert list(passed) == ([2] if passes else [])


@pytest.mark.parametrize("order", ["drawn", "random_state"])
def test_bets_on_a_path_keep_their_level(order):
    n_draws, n_certified = 60, 0
    path = [{"theta": 0.0, "lam": lam} for lam in (-0.5, 0.0, 1.0, 9.0)]
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        is_ood = rng.random(200) < 0.2
        loss = np.where(is_ood, 0.0, rng.beta(0.5, 4.5, 200))  # mean .28 in all
        samples = ScoredSamples(rng.normal(size=200), None, loss, is_ood)
        if order == "random_state":
            samples = samples.take(np.argsort(is_ood + loss))
        state = seed if order == "random_state" else None
        options = {"two_valued": False, "random_state": state, "starts": [0, 2]}
        try:
            certify_path(BoundedErrorRate(0.27), path, samples, MIXTURE, **options)
            n_certified += 1
        except NotCertifiableError:
            continue
    assert n_certified <= binom.isf(1e-3, n_draws, 0.1)


@pytest.mark.parametrize("name", ["is_ood", "risk", "ood", "loss"])
def test_sorted_samples_have_no_order_for_bets(name):
    rng = np.random.default_rng(0)
    is_ood = rng.random(100) < 0.3
    loss = np.where(is_ood, 0.0, rng.random(100) / 5)
    samples = ScoredSamples(*rng.normal(size=(2, 100)), loss, is_ood)
    samples = samples.take(np.argsort(getattr(samples, name), kind="stable"))
    path, rule = [{"theta": 0.0, "lam": 9.0}], BoundedErrorRate(0.9)
    with pytest.raises(ValueError, match=f"sorted by (is_ood|{name})"):
        certify_path(rule, path, samples, MIXTURE, two_valued=False)
    options = {"two_valued": False, "random_state": 0}
    assert certify_path(rule, path, samples, MIXTURE, **options).tpr == 1
    counted = replace(samples, loss=np.zeros(100))  # counts need no order
    assert certify_path(rule, path, counted, MIXTURE).tpr == 1


def test_nothing_accepted_is_not_certified():
    rng = np.random.default_rng(0)
    is_ood = rng.random(200) < 0.2
    samples = ScoredSamples(rng.normal(size=200), None, np.zeros(200), is_ood)
    path = [{"theta": 0.0, "lam": -99.0}]
    with pytest.raises(NotCertifiableError, match="p-value of 1"):
        certify_path(BoundedErrorRate(0.5), path, samples, MIXTURE)


# ---- the plan


def _answers(rng, n, heavy=False):
    """Answers of the specification, 15 % off topic."""
    off, (z, u, distance) = rng.random(n) < 0.15, rng.normal(size=(3, n))
    if heavy:
        distance = rng.standard_t(1.5, n)
    loss = rng.random(n) > 1 / (1 + np.exp(-1.2 - 1.6 * z))
    risk = -np.where(off, 0.6 + 1.3 * u, 1 + 1.5 * z + 0.7 * u)
    return ScoredSamples(risk, distance + 2 * off, np.where(off, 0.0, loss), off)


def test_order_with_the_fewest_early_errors():
    rng = np.random.default_rng(0)
    samples = _answers(rng, 300, heavy=True)
    cost = samples.loss + samples.is_ood
    merged = ScoredSamples(samples.risk, samples.ood, cost, np.zeros(300, bool))
    theta, cap = best_order(merged, (1.5, 2.0))
    best = math.inf
    for cap_ in (math.inf, *np.quantile(samples.ood, [0.9, 0.8, 0.7, 0.6, 0.5])):
        for theta_ in np.linspace(0, np.pi / 2, 16):
            score = merged.project(theta_, (1.5, 2.0))
            order = np.lexsort((score, samples.ood > cap_))
            means = [cost[order[:k]].mean() for k in range(15, 151)]
            best = min(best, np.mean(means))
    order = np.lexsort((merged.project(theta, (1.5, 2.0)), samples.ood > cap))
    means = [cost[order[:k]].mean() for k in range(15, 151)]
    assert np.mean(means) == pytest.approx(best, abs=1e-3)


def test_caps_are_needed_with_heavy_tails():
    rng, shares, caps = np.random.default_rng(1), [], []
    new = _answers(rng, 50_000, heavy=True)
    for seed in range(12):
        samples = _answers(rng, 2000, heavy=True)
        try:
            point = certify(BoundedErrorRate(0.15), samples, MIXTURE, random_state=seed)
        except NotCertifiableError:
            continue
        caps.append(point.ood_max)
        inside = point.accept(new.risk, new.ood)
        assert not inside[new.ood > point.ood_max].any()
        shares.append(inside.mean())
    assert len(shares) >= 8 and np.mean(shares) > 0.15
    assert np.isfinite(caps).sum() >= 6


def test_all_samples_of_a_mixture_count_alike():
    """Errors and OOD samples may change their labels, in both methods."""
    samples = _answers(np.random.default_rng(0), 1500)
    point = certify(BoundedErrorRate(0.2), samples, MIXTURE, random_state=0)
    certifying = point.certificate.n_id + point.certificate.n_ood
    assert certifying == 1200  # a fifth chooses
    relabeled = ScoredSamples(
        samples.risk,
        samples.ood,
        samples.loss + samples.is_ood,
        np.zeros(1500, bool),
    )
    again = certify(BoundedErrorRate(0.2), relabeled, MIXTURE, random_state=0)
    scaled = np.divide(point.scales, again.scales)
    assert_allclose(scaled, 1, atol=0.3)
    estimates = [p.certificate.statements[0].estimate for p in (point, again)]
    assert_allclose(*estimates, atol=0.05)
    mask = np.arange(1500) < 500
    certificate = Certificate(sampling="mixture", split=mask)
    point = certify(BoundedErrorRate(0.2), samples, certificate, random_state=0)
    assert point.certificate.n_id == (~samples.is_ood[500:]).sum()


def test_with_other_bounds():
    rule = AllOf([BoundedErrorRate(0.2), BoundedTPRFPR(0.2, 0.3)])
    rng = np.random.default_rng(0)
    samples, new = _answers(rng, 3000), _answers(rng, 50_000)
    point = certify(rule, samples, MIXTURE, random_state=0)
    texts = [statement.text for statement in point.certificate.statements]
    assert texts == ["TPR >= 0.2", "FPR <= 0.3", "error rate <= 0.2"]
    inside = point.accept(new.risk, new.ood)
    assert (new.loss + new.is_ood)[inside].mean() < 0.2
    assert inside[~new.is_ood].mean() > 0.2 and inside[new.is_ood].mean() < 0.3
    assert not point.has_two_thresholds


def test_a_risk_score_alone():
    rng = np.random.default_rng(0)
    risk = rng.random(2000)
    is_ood = rng.random(2000) < risk / 3
    loss = (rng.random(2000) < risk**2) * ~is_ood * 1.0
    samples = ScoredSamples(risk, None, loss, is_ood)
    point = certify(BoundedErrorRate(0.15), samples, MIXTURE, random_state=0)
    assert 0.25 < point.tpr < 0.6 and point.theta == 0
    # error rate up to u: 1 - (1 - u/3)(1 - u^2) on average
    u = np.linspace(0, point.lam * point.scales[0], 1000)
    assert np.mean(1 - (1 - u / 3) * (1 - u**2)) <= 0.15


def test_without_ood_samples():
    """Then it is a bound on the selective risk."""
    rng = np.random.default_rng(0)
    risk = rng.random(1000)
    samples = samples_of(risk, None, rng.random(1000) < risk / 2, None, None)
    point = certify(BoundedErrorRate(0.2), samples, MIXTURE, random_state=0)
    assert 0.4 < point.tpr < 0.85 and point.certificate.n_ood == 0


# ---- known prior


def test_solver_at_a_prior():
    rng = np.random.default_rng(0)
    samples = _answers(rng, 400)
    rule = BoundedErrorRate(0.2, ood_prior=0.1)
    point = solve(rule, samples)
    t, f, e = point.tpr, point.fpr, point.tpr * point.risk
    assert 0.9 * e + 0.1 * f <= 0.2 * (0.9 * t + 0.1 * f) + 1e-12
    assert -point.objective == pytest.approx(0.9 * t + 0.1 * f)
    best = 0.0
    for theta in np.linspace(0, np.pi / 2, 60):
        score = samples.project(theta, point.scales)
        lam = np.unique(score)
        N, E, *_, F, n_id, n_ood = samples.counts(theta, lam, point.scales)
        accepted = 0.9 * N / n_id + 0.1 * F / n_ood
        met = 0.9 * E / n_id + 0.1 * F / n_ood <= 0.2 * accepted
        best = max(best, np.where(met, accepted, 0).max())
    assert -point.objective >= best - 1e-5


def test_a_prior_in_the_certificate():
    rng = np.random.default_rng(0)
    samples = _answers(rng, 3000)
    at = certify(BoundedErrorRate(0.2, 0.15), samples, random_state=0)
    given_prior = Certificate(ood_prior=0.15)
    same = certify(BoundedErrorRate(0.2), samples, given_prior, random_state=0)
    assert (same.theta, same.lam) == (at.theta, at.lam)
    other = Certificate(ood_prior=0.15, max_loss=1.0, n_candidates=1)
    assert certify(BoundedErrorRate(0.2, 0.9), samples, other, random_state=0).lam == (
        at.lam
    )


def test_nothing_is_no_answer():
    """All answers are wrong: infeasible, although no answer has no error."""
    from skood.exceptions import InfeasibleError

    samples = samples_of([0, 1], None, [1, 1], [0.5], None)
    with pytest.raises(InfeasibleError):
        solve(BoundedErrorRate(0.5, 0.3), samples)


# ---- bad input


@pytest.mark.parametrize("call", ["solve", "certify", "certify_path"])
def test_no_prior_and_no_mixture(call):
    samples = _answers(np.random.default_rng(0), 50)
    functions = {
        "solve": lambda rule: solve(rule, samples),
        "certify": lambda rule: certify(rule, samples),
        "certify_path": lambda rule: certify_path(
            rule, [{"theta": 0, "lam": 0}], samples
        ),
    }
    for rule in (BoundedErrorRate(), AllOf([BoundedTPRFPR(), BoundedErrorRate()])):
        with pytest.raises(ValueError, match=r"set ood_prior, or .*sampling='mixture'"):
            functions[call](rule)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (BoundedErrorRate(0.2), {"ood_prior": 0.2}, "excludes ood_prior"),
        (BoundedErrorRate(0.2, 0.2), {}, "excludes the prior of BoundedErrorRate"),
        (AllOf([BoundedErrorRate(0.2), CostBased(cost_max=1)]), {}, "the prior of All"),
        (BoundedPrecisionRecall(), {}, "excludes the prior of BoundedPrecision"),
        (BoundedErrorRate(0.2), {"method": "ltt"}, "excludes guarantee='ltt'"),
        (BoundedErrorRate(0.2), {"method": "expectation"}, "guarantee='expectation'"),
        (BoundedErrorRate(0.2), {"thresholds": "group"}, "excludes thresholds='group'"),
        (BoundedErrorRate(0.2), {"shift": Shift(tv=0.1)}, "excludes tv"),
        (BoundedErrorRate(0.0), {}, "must be above 0"),
        (BoundedErrorRate(1.0), {}, "below the largest loss 1"),
        (BoundedErrorRate(3.0), {"max_loss": 2.0}, "below the largest loss 2"),
        (BoundedErrorRate(-0.1), {}, "error_max"),
    ],
)
def test_excluded_options(rule, options, message):
    samples = _answers(np.random.default_rng(0), 300)
    certificate = Certificate(**{"sampling": "mixture", **options})
    with pytest.raises(ValueError, match=message):
        certify(rule, samples, certificate)
    with pytest.raises(ValueError, match=message):
        certify_path(rule, [{"theta": 0.0, "lam": 0.0}], samples, certificate)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"group_id": [0] * 200}, "excludes groups"),
        ({"source_ood": [0] * 70}, "excludes sources"),
        ({"weight_id": [2] * 200}, "excludes weights"),
    ],
)
def test_excluded_labels(labels, message):
    rng = np.random.default_rng(0)
    arrays = rng.random(200), None, np.zeros(200), rng.random(70), None
    samples = samples_of(*arrays, **labels)
    with pytest.raises(ValueError, match=message):
        certify(BoundedErrorRate(0.2), samples, MIXTURE)


def test_excluded_unlabeled_samples():
    samples = _answers(np.random.default_rng(0), 300)
    new = samples.risk, samples.ood
    with pytest.raises(ValueError, match="excludes unlabeled samples"):
        certify(BoundedErrorRate(0.2), samples, MIXTURE, unlabeled=new)


def test_only_ood_samples():
    samples = ScoredSamples([1.0, 2.0], None, [0, 0], np.array([True, True]))
    with pytest.raises(NotCertifiableError, match="All of the 2 samples are OOD"):
        certify(BoundedErrorRate(0.2), samples, MIXTURE)


def test_balanced_samples_are_warned_of():
    rng = np.random.default_rng(0)
    for n, warns in ((51, True), (50, False)):
        risk = rng.random(n)
        samples = samples_of(risk, None, np.zeros(n), risk + 1, None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if warns:
                with pytest.raises(SkoodWarning, match="51 ID and 51 OOD samples"):
                    certify(BoundedErrorRate(0.4), samples, MIXTURE, random_state=0)
            else:
                certify(BoundedErrorRate(0.4), samples, MIXTURE, random_state=0)


@pytest.mark.parametrize("starts", [[], [-1], [2], [0.5]])
def test_starts_out_of_range(starts):
    samples = _answers(np.random.default_rng(0), 100)
    path = [{"theta": 0.0, "lam": lam} for lam in (0.0, 1.0)]
    with pytest.raises(ValueError, match="starts must be indices of the 2 rules"):
        certify_path(BoundedTPRFPR(), path, samples, starts=starts)


def test_losses_above_the_largest():
    samples = ScoredSamples([1.0] * 40, None, [2.0] * 40, np.arange(40) % 4 == 0)
    with pytest.raises(ValueError, match=r"max_loss=1\.0, but a loss is 2\.0"):
        certify(BoundedErrorRate(0.2), samples, MIXTURE)


def test_no_number_suffices_if_the_first_answers_are_wrong():
    """The least scores are of OOD samples; accepting more would be certified."""
    rng = np.random.default_rng(0)
    is_ood = rng.random(400) < 0.2
    risk = rng.random(400) - 2 * is_ood
    samples = ScoredSamples(risk, None, np.zeros(400), is_ood)
    with pytest.raises(NotCertifiableError, match="No number of samples suff") as error:
        certify(BoundedErrorRate(0.4), samples, MIXTURE, random_state=0)
    assert error.value.factor is None


def test_samples_that_choose_may_be_ood_by_chance():
    samples = ScoredSamples(np.arange(12.0), None, np.zeros(12), np.arange(12) < 9)
    with pytest.raises(NotCertifiableError, match="More samples may suffice"):
        certify(BoundedErrorRate(0.9), samples, MIXTURE, random_state=1)


def test_too_few_samples_name_how_many():
    samples = _answers(np.random.default_rng(0), 60)
    with pytest.raises(NotCertifiableError) as error:
        certify(BoundedErrorRate(0.01), samples, MIXTURE, random_state=0)
    assert "error rate <= 0.01" in str(error.value)


@pytest.mark.parametrize("rule", [BoundedTPRFPR(0.3, 0.3), BoundedImprovement(0.2)])
def test_rules_without_an_error_rate(rule):
    rng = np.random.default_rng(0)
    samples, new = _answers(rng, 2000), _answers(rng, 50_000)
    point = certify(rule, samples, MIXTURE, random_state=0)
    inside = point.accept(new.risk, new.ood)
    met = {
        "TPR >= 0.3": inside[~new.is_ood].mean() >= 0.3,
        "FPR <= 0.3": inside[new.is_ood].mean() <= 0.3,
        "selective risk <= 0.2": new.loss[inside & ~new.is_ood].mean() <= 0.2,
    }
    assert all(met[statement.text] for statement in point.certificate.statements)
