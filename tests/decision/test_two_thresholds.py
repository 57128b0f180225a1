"""Two thresholds from ID samples: loops over thresholds, levels on new data, errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, norm

import skood.rejection
from skood.exceptions import InfeasibleError, NotCertifiableError, SkoodWarning
from skood.rejection import Certificate, TwoThresholds, certify, min_accepted_id, solve
from tests.decision._scores import certified, samples_of, solved


def _samples(n, seed=0, *, ties=False):
    """Return dependent scores with heavy tails, or few values, and 0/1 losses."""
    rng = np.random.default_rng(seed)
    common = rng.standard_t(2, size=n)
    a, b = common + rng.standard_t(2, size=(2, n))
    if ties:
        a, b = np.clip(np.rint(a), -2, 3), np.clip(np.rint(b), -1, 2)
    wrong = rng.uniform(size=n) < 0.3 / (1 + np.exp(-a))
    return a, b, wrong.astype(float)


def _rejected(point, a, b):
    """Return the shares of samples rejected by the OOD score and by the risk score."""
    return np.mean(b > point.ood_max), np.mean(a > point.lam * point.scales[0])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("ood, risk", [(0.1, 0.2), (0.05, 0.0), (0.0, 0.3)])
def test_thresholds_are_conformal_quantiles(ood, risk, ties):
    a, b, wrong = _samples(300, ties=ties)
    point = solve(TwoThresholds(ood, risk), samples_of(a, b, wrong, None, None))
    expected = np.ones(300, bool)
    for score, share in ((a, risk), (b, ood)):
        if share:
            rank = math.ceil(301 * (1 - share) - 1e-9)
            expected &= score <= np.sort(score)[rank - 1]
    assert_array_equal(point.accept(a, b), expected)
    assert_allclose(point.tpr, expected.mean())
    assert_allclose(point.risk, wrong[expected].mean())
    assert point.tpr >= 1 - ood - risk


@pytest.mark.parametrize("ties", [False, True])
def test_largest_coverage_at_a_bounded_selective_risk(ties):
    a, b, wrong = _samples(400, seed=1, ties=ties)
    rule = TwoThresholds(0.1, 0.12, criterion="selective_risk")
    point = solve(rule, samples_of(a, b, wrong, None, None))
    within = b <= np.sort(b)[math.ceil(401 * 0.9 - 1e-9) - 1]
    best = 0
    for threshold in a:  # the naive loop
        accepted = within & (a <= threshold)
        if wrong[accepted].mean() <= 0.12:
            best = max(best, accepted.sum())
    assert_allclose(point.tpr, best / 400)
    assert point.risk <= 0.12
    assert_allclose(point.objective, -point.tpr)


def test_rates_of_ood_samples():
    a, b, wrong = _samples(200)
    a_ood, b_ood, _ = _samples(100, seed=9)
    b_ood = b_ood + 3
    point = solve(TwoThresholds(0.1, 0.1), samples_of(a, b, wrong, a_ood, b_ood))
    accepted = (b_ood <= point.ood_max) & (a_ood <= point.lam * point.scales[0])
    assert_allclose(point.fpr, accepted.mean())
    assert_array_equal(point.accept_proba(a_ood, b_ood), accepted.astype(float))


def _draws(by_day, at_night):
    draws = [by_day, pytest.param(at_night, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("n_draws", draws)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [19, 60, 200])
@_draws(150, 400)
def test_marginal_level(n, ties, n_draws):
    """Rejected fractions of new samples, on average over draws of the given samples."""
    rule, shares = TwoThresholds(0.05, 0.1), []
    new = _samples(20000, seed=10**6, ties=ties)
    for seed in range(n_draws):
        point = solve(rule, samples_of(*_samples(n, seed, ties=ties), None, None))
        shares.append(_rejected(point, *new[:2]))
    mean = np.mean(shares, axis=0)
    error = np.std(shares, axis=0) / math.sqrt(n_draws) + 1 / math.sqrt(4 * 20000)
    assert (mean <= [0.05, 0.1] + 3 * error).all()
    if not ties:  # not conservative either
        assert (mean >= [0.05, 0.1] - 3 * error - 1 / (n + 1)).all()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("guarantee", ["high_probability", "ltt"])
@_draws(150, 400)
def test_certified_shares(guarantee, ties, n_draws):
    """Both bounds together are broken in at most a fraction delta of the draws."""
    rule, delta, broken = TwoThresholds(0.1, 0.2), 0.2, 0
    new = _samples(50000, seed=10**6, ties=ties)
    for seed in range(n_draws):
        point = certified(
            rule,
            *_samples(150, seed, ties=ties),
            None,
            None,
            guarantee=guarantee,
            delta=delta,
        )
        ood, risk = _rejected(point, *new[:2])
        broken += ood > 0.1 or risk > 0.2
    assert broken <= binom.isf(1e-4, n_draws, delta)
    if not ties:  # a level that is never reached would be no test of it
        assert broken > n_draws * delta / 8


@pytest.mark.parametrize("ties", [False, True])
@_draws(50, 150)
def test_certified_selective_risk(ties, n_draws):
    rule = TwoThresholds(0.1, 0.15, criterion="selective_risk")
    new = _samples(50000, seed=10**6, ties=ties)
    broken = refused = 0
    for seed in range(n_draws):
        try:
            point = certified(
                rule,
                *_samples(250, seed, ties=ties),
                None,
                None,
                random_state=seed,
                delta=0.2,
            )
        except NotCertifiableError:
            refused += 1
            continue
        accepted = point.accept(*new[:2])
        ood, _ = _rejected(point, *new[:2])
        broken += ood > 0.1 or new[2][accepted].mean() > 0.15
    assert refused < n_draws / 2  # it certifies more often than not
    assert broken <= binom.isf(1e-4, n_draws, 0.2)


def test_expectation_is_the_conformal_quantile():
    arrays = (*_samples(200), None, None)
    rule = TwoThresholds(0.1, 0.1)
    point = certify(rule, samples_of(*arrays), Certificate("expectation"))
    assert point.certificate.delta is None
    assert replace(point, certificate=None) == solve(rule, samples_of(*arrays))
    with pytest.raises(TypeError, match="cannot be bounded with guarantee='expect"):
        certified(
            TwoThresholds(criterion="selective_risk"), *arrays, guarantee="expectation"
        )


def test_too_few_samples():
    a, b, wrong = _samples(18)
    with pytest.warns(SkoodWarning, match="18 ID samples .* 0.05 .*: 19 are needed"):
        point = solve(TwoThresholds(0.05, 0.1), samples_of(a, b, wrong, None, None))
    assert point.ood_max == math.inf
    assert point.lam < math.inf
    with pytest.raises(NotCertifiableError, match="18 ID samples are too few") as error:
        certified(TwoThresholds(0.05, 0.0), a, b, wrong, None, None, delta=0.1)
    needed = error.value.n_id_needed
    assert min_accepted_id(needed, 0.95, 0.1) is not None
    assert min_accepted_id(needed - 1, 0.95, 0.1) is None


def test_risk_that_no_threshold_has():
    a, b, _ = _samples(100)
    rule = TwoThresholds(0.1, 0.2, criterion="selective_risk")
    with pytest.raises(InfeasibleError, match=r"selective_risk.*on 100 ID"):
        solve(rule, samples_of(a, b, np.ones(100), None, None))
    with pytest.raises(NotCertifiableError, match="do not show a selective risk"):
        certify(rule, samples_of(a, b, np.ones(100), None, None))
    with pytest.raises(ValueError, match=r"losses in \[0, max_loss=1\.0\], got 3"):
        certify(rule, samples_of(a, b, 3 * np.ones(100), None, None))


def test_samples_needed_for_a_selective_risk():
    """Twice as many samples with the same rates until the risk is certified."""
    a, b, wrong = _samples(120)
    rule = TwoThresholds(0.1, 0.15, criterion="selective_risk")
    with pytest.raises(NotCertifiableError, match="do not show") as error:
        certify(rule, samples_of(a, b, wrong, None, None), random_state=0)
    times = error.value.n_id_needed // 120
    assert times >= 2
    arrays = (np.tile(array, 4 * times) for array in (a, b, wrong))
    assert certify(rule, samples_of(*arrays, None, None), random_state=0).risk <= 0.15


def test_bad_parameters():
    arrays = (*_samples(100), None, None)
    with pytest.raises(ValueError, match=r"ood \+ risk must be below 1, got 0.5 \+ 0."):
        solve(TwoThresholds(0.5, 0.5), samples_of(*arrays))
    with pytest.raises(ValueError, match="The 'ood' parameter of TwoThresholds"):
        solve(TwoThresholds(1.0), samples_of(*arrays))
    with pytest.raises(ValueError, match="The 'criterion' parameter of TwoThres"):
        solve(TwoThresholds(criterion="coverage"), samples_of(*arrays))
    with pytest.raises(ValueError, match="TwoThresholds requires two scores"):
        solve(TwoThresholds(), samples_of(arrays[0], None, arrays[2], None, None))


def test_infinite_scores_are_rejected():
    a, b, wrong = _samples(200)
    a[:3], b[3:6] = math.inf, math.inf
    point = solve(TwoThresholds(0.1, 0.1), samples_of(a, b, wrong, None, None))
    assert not point.accept(a, b)[:6].any()
    assert math.isfinite(point.ood_max)


def test_bounds_are_attacked_by_constant_scores():
    """All samples are tied: a threshold cannot reject any of them."""
    ones = np.ones(100)
    point = solved(TwoThresholds(0.1, 0.1), ones, ones, np.zeros(100), None, None)
    assert point.accept(ones, ones).all()
    near = ones * (1 + 1e-9)  # rounding in another batch
    assert point.accept(near, near).all()
    assert not point.accept([1.0], [1.1]).any()


# ---- certificates


def test_certificate_has_a_statement_per_bound():
    a, b, wrong = _samples(300)
    delta, bounds = 0.1, {"OOD": 0.1, "risk": 0.2}
    point = certified(TwoThresholds(0.1, 0.2), a, b, wrong, None, None, delta=delta)
    certificate = point.certificate
    assert (certificate.delta, certificate.n_id, certificate.n_ood) == (delta, 300, 0)
    rejected = dict(zip(("OOD", "risk"), _rejected(point, a, b), strict=True))
    assert len(certificate.statements) == 2
    for statement in certificate.statements:
        name = "OOD" if "OOD" in statement.text else "risk"
        share = bounds[name]
        assert statement.text == f"fraction rejected by the {name} score <= {share}"
        assert (statement.limit, statement.rate) == (share, None)
        assert_allclose(statement.estimate, rejected[name])
        rank = 300 - round(
            300 * rejected[name]
        )  # without ties: the rank that certifies
        assert_allclose(statement.pvalue, binom.sf(rank - 1, 300, 1 - share))
        assert delta / 4 < statement.pvalue <= delta / 2
    assert "together with a probability of 0.9" in str(certificate)


def test_certificate_of_a_selective_risk():
    arrays = (*_samples(400), None, None)
    rule = TwoThresholds(0.1, 0.2, criterion="selective_risk")
    point = certify(rule, samples_of(*arrays), Certificate(delta=0.2), random_state=0)
    texts = [statement.text for statement in point.certificate.statements]
    assert texts == [
        "fraction rejected by the OOD score <= 0.1",
        "selective risk <= 0.2",
    ]
    risk = point.certificate.statements[1]
    assert (risk.rate, risk.estimate, risk.pvalue) == ("risk", point.risk, 0.1)


def test_certificate_on_average():
    arrays = (*_samples(300), None, None)
    point = certified(TwoThresholds(0.1, 0.2), *arrays, guarantee="expectation")
    assert point.certificate.delta is None
    assert all(
        math.isnan(statement.pvalue) for statement in point.certificate.statements
    )
    assert "on average over the draw" in str(point.certificate)
    assert "nan" not in str(point.certificate)


NAMES = np.array(["a", "b", "c"])


def _draw_groups(seed, n, steps):
    """Return scores of groups of unequal size and location; ties in steps of 1."""
    rng = np.random.default_rng(seed)
    group = rng.choice(3, size=n, p=[0.6, 0.28, 0.12])
    a, b = np.round(steps * (rng.normal(size=(2, n)) + group)) / steps
    return (a, b, np.zeros(n), None, None), NAMES[group]


def _breaks_a_group(point, bounds, steps):
    """Return whether a score rejects too many of a group, by the normal law."""
    for k, name in enumerate(NAMES):
        if name in point.certificate.not_certified:
            continue
        for limit, scale, share in zip(
            (point.ood_max, point.lam), (1.0, point.scales[0]), bounds, strict=True
        ):
            limit = scale * (limit[name] if isinstance(limit, dict) else limit)
            edge = (np.floor(limit * steps + 1e-6) + 0.5) / steps
            if norm.sf(edge - k) > share + 1e-9:
                return True
    return False


@pytest.mark.parametrize("thresholds", ["shared", "group"])
@pytest.mark.parametrize("steps", [1e6, 2.0])  # no ties, many ties
@pytest.mark.parametrize("n_draws", [30, pytest.param(400, marks=pytest.mark.slow)])
def test_certified_within_groups(thresholds, steps, n_draws):
    """A group breaks a bound in at most a fraction delta of draws."""
    bounds, delta, broken, refused = (0.1, 0.15), 0.2, 0, 0
    rule, pooled_broken = TwoThresholds(*bounds), 0
    for seed in range(n_draws):
        samples, group = _draw_groups(seed, 300, steps)
        options = {"small_groups": "skip", "thresholds": thresholds, "delta": delta}
        point = certified(rule, *samples, group_id=group, **options)
        refused += bool(point.certificate.not_certified)
        broken += _breaks_a_group(point, bounds, steps)
        pooled = certify(rule, samples_of(*samples), Certificate(delta=delta))
        pooled_broken += _breaks_a_group(pooled, bounds, steps)
    assert broken <= binom.isf(1e-4, n_draws, delta)
    assert pooled_broken > 0.9 * n_draws  # all samples together hide a group
    assert 0 < refused < n_draws or thresholds == "shared"


@pytest.mark.parametrize("guarantee", ["high_probability", "expectation"])
def test_thresholds_of_groups_are_ranks_of_their_scores(guarantee):
    (a, b, *rest), group = _draw_groups(0, 400, 1e6)
    samples = samples_of(a, b, *rest, group_id=group)
    points = {}
    for kind in ("group", "shared"):
        certificate = Certificate(guarantee, delta=0.2, thresholds=kind)
        points[kind] = certify(TwoThresholds(0.1, 0.15), samples, certificate)
    for score, share, ends in (
        (a, 0.15, lambda p: p.lam),
        (b, 0.1, lambda p: p.ood_max),
    ):
        unit = points["group"].scales[0] if score is a else 1.0
        shared = {}
        for name in NAMES:
            values = np.sort(score[group == name])
            n = len(values)
            if guarantee == "expectation":
                separate = common = math.ceil((n + 1) * (1 - share) - 1e-9)
            else:  # 2 scores and 3 groups, or 2 scores
                ranks = np.arange(1, n + 1)
                errors = binom.sf(ranks - 1, n, 1 - share)
                separate = ranks[errors <= 0.2 / 6][0]
                common = ranks[errors <= 0.2 / 2][0]
            limit = ends(points["group"])[name] * unit
            assert values[separate - 1] <= limit < values[separate]
            shared[name] = values[common - 1 : common + 1]
        low, high = max(shared.values(), key=lambda pair: pair[0])
        assert low <= ends(points["shared"]) * unit < high


def test_small_groups():
    (a, b, *rest), group = _draw_groups(3, 400, 1e6)
    rare = np.flatnonzero(group == "c")
    keep = np.ones(400, dtype=bool)
    keep[rare[10:]] = False  # ten samples of a group
    samples = a[keep], b[keep], rest[0][keep], None, None
    options = {"group_id": group[keep], "delta": 0.2, "thresholds": "group"}
    rule = TwoThresholds(0.1, 0.15)
    with pytest.raises(
        NotCertifiableError, match=r"fewer than 33 .*delta=0.2: 'c' \(1"
    ):
        certified(rule, *samples, **options)
    skipped = certified(rule, *samples, small_groups="skip", **options)
    assert skipped.certificate.not_certified == ("c",)
    assert {statement.group for statement in skipped.certificate.statements} == {
        "a",
        "b",
    }
    far = [-9.0, -9.0], [-9.0, -9.0]
    assert_array_equal(skipped.accept(*far, groups=["a", "c"]), [True, False])
    with pytest.raises(NotCertifiableError, match="fewer than 33 certifying"):
        tiny = [x[:20] for x in samples[:3]]
        few = {**options, "group_id": options["group_id"][:20]}
        certified(rule, *tiny, None, None, small_groups="skip", **few)
    rest = ~np.isin(options["group_id"], ["a"]) | (np.arange(keep.sum()) % 8 == 0)
    samples = [x[rest] for x in samples[:3]]  # two small groups
    options["group_id"] = options["group_id"][rest]
    pooled = certified(rule, *samples, None, None, small_groups="pool", **options)
    assert pooled.certificate.pooled == ("a", "c")
    assert pooled.lam["a"] == pooled.lam["c"] != pooled.lam["b"]
    assert pooled.ood_max["a"] == pooled.ood_max["c"] != pooled.ood_max["b"]


def test_selective_risk_within_groups_names_rules_that_work():
    samples, group = _draw_groups(0, 3000, 1e6)
    rule = TwoThresholds(0.5, 0.2, criterion="selective_risk")
    with pytest.raises(ValueError, match="not certified within groups") as error:
        certify(rule, samples_of(*samples, group_id=group))
    named = re.search(r"AllOf\(.*\)\]\)", str(error.value)).group()
    other = eval(named, vars(skood.rejection))
    assert certified(other, *samples, group_id=group, random_state=0).certificate
    with pytest.raises(
        ValueError, match=r"bounds no rate of OOD samples.*leave source"
    ):
        certified(TwoThresholds(), *samples[:3], [1.0], [1.0], source_ood=["x"])
