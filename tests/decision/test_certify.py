"""Tests of certified rules against brute force, exact laws and simulations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from skood.decision import _certify as _guarantee
from skood.decision._base_rule import rates_within
from skood.decision._calibration_sample import Problem
from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.rejection import (
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    OperatingPoint,
    ScoredSamples,
    certify,
    max_accepted_ood,
    min_accepted_id,
    risk_upper_bound,
    solve,
)
from tests.decision._scores import (
    GUARANTEES,
    certified,
    draw,
    increasing,
    samples_of,
    true_rates,
)


def _tied(seed, n_id=40, n_ood=30, infinite=False):
    """Small integer scores; with `infinite`, some are infinite."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, size=(2, n_id)).astype(float)
    a_ood = rng.integers(4, 14, size=n_ood).astype(float)
    b_ood = rng.integers(2, 9, size=n_ood).astype(float)
    loss = rng.choice([0.0, 0.0, 1.0], size=n_id)
    if infinite:
        a[:3], b_ood[:4], a_ood[2:6] = np.inf, np.inf, np.inf
        a[3] = -np.inf
    return a, b, loss, a_ood, b_ood


# ---- the choice of the threshold, by brute force


def _counts(guarantee, delta, phi, rho, n_id, n_ood, n_angles=1):
    """k and K, from the definitions in plain Python."""
    if guarantee == "expectation":
        ranks = [k for k in range(1, n_id + 1) if k / (n_id + 1) >= phi - 1e-12]
        counts = [K for K in range(n_ood) if (K + 1) / (n_ood + 1) <= rho + 1e-12]
        if rho == 1:
            counts.append(n_ood)
    else:
        share = delta / n_angles / (1 if rho == 1 or phi == 0 else 2)
        ranks = [k for k in range(1, n_id + 1) if binom.sf(k - 1, n_id, phi) <= share]
        counts = [K for K in range(n_ood) if binom.cdf(K, n_ood, rho) <= share]
        if rho == 1:
            counts.append(n_ood)
    return min(ranks, default=None), max(counts, default=-1)


def _brute_force(angles, scales, a, b, loss, a_ood, b_ood, k, K):
    """Least (risk, -N, F, angle) over all angles and thresholds, row by row."""

    def projected(theta, x, y):
        if (math.isinf(x) and x > 0) or math.isinf(y):
            return math.inf
        w_a, w_b = (round(w(theta), 15) for w in (math.cos, math.sin))
        return (w_a * (x / scales[0]) if w_a else 0.0) + w_b * (y / scales[1])

    best = None
    for theta in angles:
        p_id = [round(projected(theta, *xy), 9) for xy in zip(a, b, strict=True)]
        p_ood = [
            round(projected(theta, *xy), 9) for xy in zip(a_ood, b_ood, strict=True)
        ]
        for lam in {*p_id, *p_ood}:
            n = sum(p <= lam for p in p_id)
            e = sum(cost for p, cost in zip(p_id, loss, strict=True) if p <= lam)
            f = sum(p <= lam for p in p_ood)
            if k is not None and n >= k and f <= K:
                key = (round(e / n, 12), -n, f, theta)
                best = key if best is None else min(best, key)
    return best


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("infinite", [False, True], ids=["finite", "infinite"])
def test_one_score_by_brute_force(guarantee, infinite):
    n_certified = 0
    for seed in range(25):
        rng = np.random.default_rng(100 + seed)
        a, _, loss, a_ood, _ = _tied(seed, infinite=infinite)
        # NumPy numbers, whose comparisons add up differently from those of Python
        phi, rho = rng.choice([0.0, 0.4, 0.8]), rng.choice([0.1, 0.4, 1.0])
        k, K = _counts(guarantee, 0.2, phi, rho, len(a), len(a_ood))
        zeros, zeros_ood = np.zeros(len(a)), np.zeros(len(a_ood))
        best = _brute_force([0.0], (1, 1), a, zeros, loss, a_ood, zeros_ood, k, K)
        arguments = BoundedTPRFPR(phi, rho), a, None, loss, a_ood, None
        if best is None:
            with pytest.raises(NotCertifiableError):
                certified(*arguments, guarantee=guarantee, delta=0.2)
            continue
        n_certified += 1
        point = certified(*arguments, guarantee=guarantee, delta=0.2)
        assert point.risk == pytest.approx(best[0], abs=1e-11)
        assert (round(point.tpr * len(a)), round(point.fpr * len(a_ood))) == (
            -best[1],
            best[2],
        )
        assert point.accept(a).mean() == point.tpr
        assert point.accept(a_ood).mean() == point.fpr
        assert (point.theta, point.gap, point.objective) == (0, 0, point.risk)
    assert 5 < n_certified < 25


@pytest.mark.parametrize("infinite", [False, True], ids=["finite", "infinite"])
def test_many_angles_by_brute_force(monkeypatch, infinite):
    n_certified = 0
    for seed in range(12):
        a, b, loss, a_ood, b_ood = _tied(seed, n_id=60, n_ood=50, infinite=infinite)
        first, second = np.arange(6), np.arange(6, 60)
        parts = first, np.arange(6, 110)
        monkeypatch.setattr(
            ScoredSamples,
            "split",
            lambda samples, share, rng, parts=parts: tuple(map(samples.take, parts)),
        )
        phi, rho = 0.3, (0.6, 0.75)[seed % 2]
        k, K = _counts("ltt", 0.3, phi, rho, 54, 50, n_angles=5)
        sample = a[first], b[first], loss[first], a_ood, b_ood
        scales = Problem(samples_of(*sample)).scales
        angles = [i * math.pi / 8 for i in range(5)]
        certifying = a[second], b[second], loss[second], a_ood, b_ood
        best = _brute_force(angles, scales, *certifying, k, K)
        arguments = BoundedTPRFPR(phi, rho), a, b, loss, a_ood, b_ood
        options = {"guarantee": "ltt", "delta": 0.3, "n_angles": 5}
        if best is None:
            with pytest.raises(NotCertifiableError):
                certified(*arguments, **options)
            continue
        n_certified += 1
        point = certified(*arguments, **options)
        assert point.risk == pytest.approx(best[0], abs=1e-11)
        assert (round(point.tpr * 54), round(point.fpr * 50)) == (-best[1], best[2])
        assert point.theta == pytest.approx(best[3], abs=1e-12)
        assert point.scales == scales
        assert math.isnan(point.gap)
    assert 3 < n_certified


def test_default_angles_of_ltt():
    """16, not the 360 of `solve`: each is certified with ``delta / 16``."""
    rng = np.random.default_rng(0)
    a, b, a_ood, b_ood = rng.normal([[0], [0], [2], [1]], size=(4, 300))
    arguments = BoundedTPRFPR(0.5, 0.5), a, b, (a > 0).astype(float), a_ood, b_ood
    options = {"guarantee": "ltt", "random_state": 0}
    point = certified(*arguments, **options)
    assert point.certificate.n_candidates == 16
    assert point == certified(*arguments, **options, n_angles=16)
    steps = point.theta / (math.pi / 2 / 15)
    assert steps == pytest.approx(round(steps), abs=1e-9)


# ---- which counts are requested


@pytest.mark.parametrize(
    ("rule", "guarantee", "k"),
    [
        (BoundedTPRFPR(0.7, 0.5), "high_probability", min_accepted_id(200, 0.7, 0.05)),
        (BoundedTPRFPR(0.7, 0.5), "ltt", min_accepted_id(200, 0.7, 0.05)),
        (BoundedTPRFPR(0.7, 0.5), "expectation", 141),
        # all of delta where the other bound cannot be broken
        (BoundedTPRFPR(0.7, 1.0), "high_probability", min_accepted_id(200, 0.7, 0.1)),
        (BoundedAbstention(0.7), "high_probability", min_accepted_id(200, 0.7, 0.1)),
        (BoundedAbstention(0.7), "expectation", 141),
        (BoundedTPRFPR(0.0, 0.5), "high_probability", 1),
        (BoundedAbstention(0.0), "high_probability", 1),
    ],
)
def test_lower_end(rule, guarantee, k):
    point = certify(rule, samples_of(*increasing()), Certificate(guarantee))
    assert round(point.tpr * 200) == k


@pytest.mark.parametrize(
    ("rule", "guarantee", "K"),
    [
        (BoundedTPRFPR(0.3, 0.5), "high_probability", max_accepted_ood(150, 0.5, 0.05)),
        (BoundedTPRFPR(0.3, 0.5), "expectation", 74),
        (BoundedTPRFPR(0.0, 0.5), "high_probability", max_accepted_ood(150, 0.5, 0.1)),
        (BoundedTPRFPR(0.3, 1.0), "high_probability", 150),
    ],
)
def test_upper_end(rule, guarantee, K):
    # the risk falls with the threshold, and each OOD row is just below an ID row
    a = np.arange(1500, dtype=float)
    a_ood = np.arange(150) * 10 + 4.5
    point = certified(rule, a, None, (1500 - a) ** 2, a_ood, None, guarantee=guarantee)
    assert round(point.fpr * 150) == K
    # the last ID row before the next OOD row
    assert round(point.tpr * 1500) == (10 * K + 5 if K < 150 else 1500)


def test_ties_at_the_upper_end_are_counted():
    # K = 4 of 20: the fourth to sixth smallest OOD scores are tied with ID scores
    K = max_accepted_ood(20, 0.5, 0.05)
    a_ood = np.repeat([1.0, 2.0, 9.0], [K - 1, 3, 18 - K])
    a = np.repeat([1.0, 2.0], [12, 18])
    loss = np.repeat([1.0, 0.0], [12, 18])
    rule = BoundedTPRFPR(0.2, 0.5)
    point = certify(rule, samples_of(a, None, loss, a_ood, None))
    assert (point.tpr, point.fpr) == (12 / 30, (K - 1) / 20)
    # accepting the tie would have been better, and solve does so
    assert solve(rule, samples_of(a, None, loss, a_ood, None)).tpr == 1


def test_infinite_scores_are_accepted_only_if_they_must_be():
    a = np.concatenate([np.arange(10.0), np.full(10, np.inf)])
    loss = np.zeros(20)
    assert (
        certify(BoundedAbstention(0.2), samples_of(a, None, loss, None, None)).tpr == 1
    )
    a_ood = np.concatenate([np.full(5, 3.5), np.full(15, np.inf)])
    point = certify(BoundedTPRFPR(0.2, 0.6), samples_of(a, None, loss, a_ood, None))
    assert (point.tpr, point.fpr) == (0.5, 0.25)
    assert math.isfinite(point.lam)


# ---- precision


def test_precision_by_way_of_two_rates():
    # A-pr-equals-tprfpr: precision .9 at recall .7, prior .25 is FPR 7/30
    data = draw(np.random.default_rng(0), 900, 700)
    rule = BoundedPrecisionRecall(0.9, 0.7, ood_prior=0.25)
    rates = BoundedTPRFPR(0.7, 0.2333333333333333)
    for guarantee in ("ltt", "expectation"):
        by_precision, other = (
            certify(r, samples_of(*data), Certificate(guarantee), random_state=0)
            for r in (rule, rates)
        )
        assert (by_precision.theta, by_precision.lam, by_precision.scales) == (
            other.theta,
            other.lam,
            other.scales,
        )
        right, wrong = 0.75 * by_precision.tpr, 0.25 * by_precision.fpr
        assert by_precision.precision == pytest.approx(
            right / (right + wrong), rel=1e-12
        )


def test_prior_may_be_an_interval():
    data = draw(np.random.default_rng(0), 900, 700)
    rule = BoundedPrecisionRecall(0.9, 0.7, ood_prior=0.1)
    upper = BoundedPrecisionRecall(0.9, 0.7, ood_prior=0.25)
    expected = certify(upper, samples_of(*data), random_state=0)
    assert certified(rule, *data, random_state=0, ood_prior=(0.05, 0.25)) == expected
    assert (
        certify(rule, samples_of(*data), Certificate(ood_prior=0.25), random_state=0)
        == expected
    )
    assert rule.ood_prior == 0.1
    # larger priors leave less room for OOD rows
    assert certify(rule, samples_of(*data), random_state=0).fpr > expected.fpr


@pytest.mark.parametrize(
    "rule",
    [BoundedPrecisionRecall(0.9, 0.7, 0.0), BoundedPrecisionRecall(0.9, 0.7, 0.05)],
    ids=["no-ood", "few-ood"],
)
def test_precision_that_nothing_can_break(rule):
    # at the prior .05 even an FPR of one leaves a precision of .93
    a, _, loss, a_ood, _ = increasing()
    point = certify(rule, samples_of(a, None, loss, a_ood, None))
    assert round(point.tpr * 200) == min_accepted_id(200, 0.7, 0.1)


def test_certify_needs_no_ood_samples_at_a_prior_of_zero():
    a, _, loss, _, _ = increasing()
    point = certified(BoundedPrecisionRecall(0.9, 0.7, 0.0), a, None, loss, None, None)
    assert point.precision == 1
    assert math.isnan(point.fpr)
    with pytest.raises(ValueError, match="BoundedPrecisionRecall needs OOD samples"):
        certified(
            BoundedPrecisionRecall(0.9, 0.7, 0.0),
            a,
            None,
            loss,
            None,
            None,
            ood_prior=0.3,
        )


# ---- the angle


def test_angle_depends_on_the_first_samples_only(monkeypatch):
    rng = np.random.default_rng(3)
    a, b, loss, a_ood, b_ood = draw(rng, 600, 500)
    halves = np.arange(180), np.arange(180, 600), np.arange(150), np.arange(150, 500)
    parts = np.append(halves[0], 600 + halves[2]), np.append(halves[1], 600 + halves[3])
    monkeypatch.setattr(
        ScoredSamples,
        "split",
        lambda samples, share, rng: tuple(map(samples.take, parts)),
    )
    rule = BoundedTPRFPR(0.6, 0.3)
    point = certified(rule, a, b, loss, a_ood, b_ood, guarantee="expectation")
    loss[halves[1]] = rng.permutation(loss[halves[1]])
    b[halves[1]] += 0.5
    other = certified(rule, a, b, loss, a_ood, b_ood, guarantee="expectation")
    assert (other.theta, other.scales) == (point.theta, point.scales)
    assert other.lam != point.lam
    # the numbers are those of the second part
    inside = other.accept(a[halves[1]], b[halves[1]])
    assert other.tpr == inside.mean()
    assert other.risk == pytest.approx(loss[halves[1]][inside].mean(), rel=1e-12)
    assert other.fpr == other.accept(a_ood[halves[3]], b_ood[halves[3]]).mean()


def test_first_samples_leave_room_for_the_second(monkeypatch):
    asked = []
    search = _guarantee.search_problem

    def spy(rule, problem, solver):
        point = search(rule, problem, solver)
        asked.append((rule, problem.n_id, problem.n_ood, point.feasible))
        return point

    monkeypatch.setattr(_guarantee, "search_problem", spy)
    data = draw(np.random.default_rng(0), 500, 400)
    options = {"split": 0.2, "random_state": 0, "guarantee": "expectation"}
    certified(BoundedTPRFPR(0.6, 0.4), *data, **options)
    (rule, n_id, n_ood, feasible), *more = asked
    assert (n_id, n_ood, feasible, more) == (100, 80, True, [])
    tpr = math.ceil(401 * 0.6) / 400
    fpr = (math.floor(321 * 0.4) - 1) / 320
    spread_id = math.sqrt(tpr * (1 - tpr) * (1 / 100 + 1 / 400))
    spread_ood = math.sqrt(fpr * (1 - fpr) * (1 / 80 + 1 / 320))
    z = norm.ppf(0.95)
    least, most = rates_within(rule.rates())
    assert least == pytest.approx(tpr + z * spread_id, abs=1e-4)
    assert most == pytest.approx(fpr - z * spread_ood, abs=1e-4)

    # if that is too much, less room, down to what the second part will be held to
    asked.clear()
    with pytest.raises(NotCertifiableError):
        certified(BoundedTPRFPR(0.97, 0.01), *data, **options)
    assert [feasible for *_, feasible in asked] == [False, False, False]
    least, most = math.ceil(401 * 0.97) / 400, (math.floor(321 * 0.01) - 1) / 320
    assert rates_within(asked[-1][0].rates()) == (least, most)


def test_coverage_of_two_scores_without_ood_samples():
    a, b, loss, _, _ = draw(np.random.default_rng(5), 400, 1)
    rule = BoundedAbstention(0.7)
    for guarantee, n, delta in (("high_probability", 240, 0.1), ("ltt", 360, 0.1 / 16)):
        point = certified(
            rule, a, b, loss, None, None, random_state=0, guarantee=guarantee
        )
        assert round(point.tpr * n) >= min_accepted_id(n, 0.7, delta)
        assert point.tpr * n == pytest.approx(round(point.tpr * n), abs=1e-9)
        assert math.isnan(point.fpr)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_reproducible(guarantee):
    data = draw(np.random.default_rng(0), 600, 600)
    rule = BoundedTPRFPR(0.6, 0.3)
    points = [
        certify(rule, samples_of(*data), Certificate(guarantee), random_state=seed)
        for seed in (0, 0, 1)
    ]
    assert repr(points[0]) == repr(points[1]) != repr(points[2])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_reversed_score_is_warned_of_once(guarantee):
    a, b, loss, a_ood, b_ood = draw(np.random.default_rng(0), 500, 500)
    arguments = BoundedTPRFPR(0.6, 0.3), a, -b, loss, a_ood, -b_ood
    with pytest.warns(SkoodWarning, match="uses the OOD score reversed") as record:
        point = certified(
            *arguments,
            random_state=0,
            guarantee=guarantee,
            angles="full",
        )
    assert len(record) == 1
    assert point.theta < 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certified(
            _swap(arguments)[0],
            *_swap(arguments)[1:],
            random_state=0,
            guarantee=guarantee,
        )


def _swap(arguments):
    rule, a, b, loss, a_ood, b_ood = arguments
    return rule, a, -b, loss, a_ood, -b_ood


# ---- promises on new data


def _is_broken(rule, point):
    return bool(rule.violation(*true_rates(point)) > 0)


def _allowed(repetitions, delta, level=1e-6):
    """Violations that chance exceeds once in a million, or with this probability."""
    return binom.isf(level, repetitions, delta)


@pytest.mark.parametrize(
    ("rule", "guarantees", "repetitions", "level"),
    [
        pytest.param(rule, guarantees, n, level, marks=marks, id=f"{name}-{n}")
        for name, rule, guarantees in (
            ("rates", BoundedTPRFPR(0.6, 0.2), ("high_probability", "ltt")),
            ("precision", BoundedPrecisionRecall(0.9, 0.6, 0.25), GUARANTEES[:1]),
        )
        for n, level, marks in ((16, 0.02, ()), (60, 1e-6, pytest.mark.slow))
    ],
)
def test_certificates_hold_where_the_plug_in_breaks_bounds(
    rule, guarantees, repetitions, level
):
    delta = 0.1
    broken = dict.fromkeys((*guarantees, "plug-in"), 0)
    n_certified = dict.fromkeys(guarantees, 0)
    for seed in range(repetitions):
        data = draw(np.random.default_rng(seed), 300, 300)
        broken["plug-in"] += _is_broken(rule, solve(rule, samples_of(*data)))
        for guarantee in guarantees:
            options = {"guarantee": guarantee, "delta": delta, "random_state": seed}
            try:
                point = certified(rule, *data, **options)
            except NotCertifiableError:
                continue
            n_certified[guarantee] += 1
            broken[guarantee] += _is_broken(rule, point)
    allowed = _allowed(repetitions, delta, level)
    assert broken.pop("plug-in") > allowed
    assert max(broken.values()) <= allowed
    assert min(n_certified.values()) >= 0.9 * repetitions


@pytest.mark.parametrize("delta", [pytest.param(0.05, marks=pytest.mark.slow), 0.3])
def test_rate_of_broken_promises_has_a_closed_form(delta):
    # the k-th smallest score is always taken: TPR is Beta(k, n - k + 1)
    n, repetitions = 80, 400
    rng = np.random.default_rng(0)
    tpr = []
    for _ in range(repetitions):
        a = rng.normal(size=n)
        point = certified(
            BoundedAbstention(0.7), a, None, np.exp(a), None, None, delta=delta
        )
        tpr.append(norm.cdf(point.lam * point.scales[0]))
    k = min_accepted_id(n, 0.7, delta)
    expected = binom.sf(k - 1, n, 0.7)
    assert expected <= delta
    noise = 4 * math.sqrt(expected * (1 - expected) / repetitions)
    assert np.mean(np.array(tpr) < 0.7) == pytest.approx(expected, abs=noise)
    law = beta(k, n - k + 1)
    noise = 4 * law.std() / math.sqrt(repetitions)
    assert np.mean(tpr) == pytest.approx(law.mean(), abs=noise)


def test_expectations_have_closed_forms():
    # E[TPR] at the k-th ID score is k/(n+1); E[FPR] below the j-th OOD score, of a
    # dense set of ID scores, is j/(n+1)
    n, repetitions = 39, 150
    rng = np.random.default_rng(1)
    tpr, fpr = [], []
    for _ in range(repetitions):
        a, a_ood = rng.uniform(size=n), rng.uniform(size=n)
        point = certified(
            BoundedTPRFPR(0.72, 1.0), a, None, a, a_ood, None, guarantee="expectation"
        )
        tpr.append(point.lam * point.scales[0])
        dense = np.linspace(0, 1, 401)
        point = certified(
            BoundedTPRFPR(0.0, 0.29),
            dense,
            None,
            2 - dense,
            a_ood,
            None,
            guarantee="expectation",
        )
        fpr.append(point.lam * point.scales[0])
    for rates, rank in ((tpr, 29), (fpr, 11)):
        law = beta(rank, n + 1 - rank)
        noise = 4 * law.std() / math.sqrt(repetitions)
        assert np.mean(rates) == pytest.approx(rank / (n + 1), abs=noise + 1 / 400)
    # both promises are kept, and neither with room to spare
    assert 28 / 40 < 0.72 <= 29 / 40
    assert 11 / 40 <= 0.29 < 12 / 40


def test_risk_bound_with_a_fixed_rule_and_with_candidates():
    # thresholds at fixed scores; the one with the least empirical risk is taken
    fixed = np.linspace(0.0, 2.0, 6)
    grid = np.linspace(-8, 8, 160_001)
    density = norm.pdf(grid)
    true = [
        np.sum((density * norm.cdf(grid - 1.5))[grid <= lam])
        / np.sum(density[grid <= lam])
        for lam in fixed
    ]
    delta, repetitions = 0.2, 400
    broken, broken_if_ignored = 0, 0
    for seed in range(repetitions):
        a, _, loss, _, _ = draw(np.random.default_rng(seed), 40, 1)
        risks = [loss[a <= lam].mean() for lam in fixed]
        best = int(np.argmin(risks))
        accepted = loss[OperatingPoint(0.0, fixed[best]).accept(a)]
        broken += risk_upper_bound(accepted, delta, n_candidates=6) < true[best]
        broken_if_ignored += np.mean(accepted) < true[best]
    assert broken <= _allowed(repetitions, delta)
    assert broken_if_ignored > _allowed(repetitions, delta)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_certificate_of_thresholds_of_one_score(guarantee):
    """Statements of the rule, with the errors of the ranks that certify them."""
    a, _, loss, a_ood, _ = draw(np.random.default_rng(3), 400, 300)
    rule = BoundedTPRFPR(0.5, 0.3)
    point = certified(rule, a, None, loss, a_ood, None, guarantee=guarantee, delta=0.1)
    tpr, fpr = point.certificate.statements
    assert (tpr.text, fpr.text) == ("TPR >= 0.5", "FPR <= 0.3")
    assert (tpr.estimate, fpr.estimate) == (point.tpr, point.fpr)
    if guarantee == "expectation":
        assert point.certificate.delta is None
        assert math.isnan(tpr.pvalue) and math.isnan(fpr.pvalue)
        return
    k, K = _counts(guarantee, 0.1, 0.5, 0.3, 400, 300)
    assert tpr.pvalue == pytest.approx(binom.sf(k - 1, 400, 0.5))
    assert fpr.pvalue == pytest.approx(binom.cdf(K, 300, 0.3))


def test_cost_of_one_score_is_bounded():
    """The upper bound on the cost holds for new samples; there is no other bound."""
    a, _, loss, a_ood, _ = draw(np.random.default_rng(3), 2000, 1500)
    rule = CostBased()
    point = certified(rule, a, None, loss, a_ood, None, random_state=0, delta=0.1)
    (statement,) = point.certificate.statements
    assert "<= 0" in statement.text
    new = draw(np.random.default_rng(4), 40_000, 40_000)
    accepted, leaked = point.accept(new[0]), point.accept(new[3])
    cost = rule.cost().at(accepted.mean(), (accepted * new[2]).mean(), leaked.mean())
    assert point.objective < cost + 0.1
    assert cost <= point.objective - statement.estimate
