"""Thresholds of groups: their numbers, promises and decisions; masks of a split."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, norm

from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.rejection import (
    AllOf,
    BoundedAbstention,
    BoundedImprovement,
    BoundedTPRFPR,
    Certificate,
    OperatingPoint,
    TwoThresholds,
    certify,
)
from tests.decision._scores import certified, samples_of

NAMES = np.array(["a", "b", "c"])
RULE = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.15)
SIZE = 60_000


def _population(seed, *, decimals=None, shift=1.0, separation=2.1):
    """Three groups with shifted scores; the last OOD samples are rarer."""
    rng = np.random.default_rng(seed)
    group, group_ood = rng.integers(3, size=(2, SIZE))
    a, b = rng.normal(size=(2, SIZE)) + shift * group
    loss = (rng.random(SIZE) < norm.cdf(a - shift * group - 1.5)).astype(float)
    a_ood, b_ood = rng.normal([[0.5], [separation]], size=(2, SIZE)) + shift * group_ood
    scores = a, b, a_ood, b_ood
    if decimals is not None:
        scores = tuple(np.round(2 * score, decimals) / 2 for score in scores)
    a, b, a_ood, b_ood = scores
    return (a, b, loss, NAMES[group]), (a_ood, b_ood, NAMES[group_ood])


POPULATION = _population(0)


def _draw(rng, n, population=POPULATION):
    """Return arguments of certify, and labels of groups."""
    drawn, others = rng.integers(SIZE, size=(2, n))
    (a, b, loss, group), (a_ood, b_ood, group_ood) = population
    samples = a[drawn], b[drawn], loss[drawn], a_ood[others], b_ood[others]
    return samples, {"group_id": group[drawn], "group_ood": group_ood[others]}


def _is_broken(point, population):
    (a, b, _, group), (a_ood, b_ood, group_ood) = population
    accepted = point.accept(a, b, groups=group)
    leaked = point.accept(a_ood, b_ood, groups=group_ood)
    return min(accepted[group == g].mean() for g in NAMES) < 0.7 or leaked.mean() > 0.15


@pytest.mark.parametrize(
    ("n", "n_draws", "least", "most"),
    [
        (1000, 4, 0.25, 1.0),
        pytest.param(1000, 200, 0.6, 0.8, marks=pytest.mark.slow),
        pytest.param(3000, 100, 0.97, 1.0, marks=pytest.mark.slow),
    ],
)
def test_shares_that_are_certified(n, n_draws, least, most):
    """One threshold for all groups is never certified, and one for each often."""
    rng = np.random.default_rng(1)
    n_certified = broken = 0
    for seed in range(n_draws):
        samples, labels = _draw(rng, n)
        try:
            point = certified(
                RULE, *samples, thresholds="group", random_state=seed, **labels
            )
        except NotCertifiableError:
            pass
        else:
            n_certified += 1
            broken += _is_broken(point, POPULATION)
        if seed < 20:
            with pytest.raises(NotCertifiableError):
                certified(
                    RULE, *samples, group_id=labels["group_id"], random_state=seed
                )
    assert least * n_draws <= n_certified <= most * n_draws
    assert broken <= binom.ppf(0.999, n_draws, 0.1)


@pytest.mark.parametrize("n_draws", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_promise_with_ties_where_bounds_are_just_within_reach(n_draws):
    population = _population(2, decimals=0, separation=1.6)
    rng = np.random.default_rng(3)
    broken = 0
    for seed in range(n_draws):
        samples, labels = _draw(rng, 900, population)
        try:
            point = certified(
                RULE,
                *samples,
                thresholds="group",
                delta=0.2,
                random_state=seed,
                **labels,
            )
        except NotCertifiableError:
            continue
        broken += _is_broken(point, population)
    assert broken <= binom.ppf(0.999, n_draws, 0.2)


def _certified(rule=RULE, n=2000, seed=4, **options):
    samples, labels = _draw(np.random.default_rng(seed), n)
    labels.update(options)
    point = certified(rule, *samples, thresholds="group", random_state=0, **labels)
    return point, samples, labels


def test_rates_and_decisions():
    """Each sample is compared with the threshold of its group, naively."""
    rule = AllOf([RULE, BoundedImprovement(0.2)])
    point, (a, b, loss, a_ood, b_ood), labels = _certified(rule)
    assert sorted(point.lam) == ["a", "b", "c"] and point.has_group_thresholds
    assert point.lam["a"] < point.lam["b"] < point.lam["c"]
    certificate = point.certificate
    by_group = [s.group for s in certificate.statements]
    assert by_group == ["a", "b", "c", None, "a", "b", "c"]
    assert max(s.pvalue for s in certificate.statements) <= 0.1
    decisions = point.accept(a, b, groups=labels["group_id"])
    cos, sin = math.cos(point.theta), math.sin(point.theta)
    for i in range(0, 2000, 40):
        value = cos * a[i] / point.scales[0] + sin * b[i] / point.scales[1]
        assert decisions[i] == (value <= point.lam[labels["group_id"][i]])
    # the rates of the certifying samples, by a split of the whole that is given
    first = np.arange(2000) < 800
    point, *_ = _certified(rule, split=np.tile(first, 2))
    rest = slice(800, None)
    accepted = point.accept(a[rest], b[rest], groups=labels["group_id"][rest])
    leaked = point.accept(a_ood[rest], b_ood[rest], groups=labels["group_ood"][rest])
    assert_allclose(
        [point.tpr, point.fpr, point.risk],
        [accepted.mean(), leaked.mean(), loss[rest][accepted].mean()],
    )
    of_a = accepted[labels["group_id"][rest] == "a"]
    assert_allclose(point.certificate.statements[0].estimate, of_a.mean())
    p = binom.sf(of_a.sum() - 1, of_a.size, 0.7)
    assert_allclose(point.certificate.statements[0].pvalue, p)


def test_thresholds_are_quantiles_at_one_level():
    """One score: t* + c sd, in steps of 1/4, is the fraction of the first part."""
    (a, _, loss, group), (a_ood, _, group_ood) = POPULATION
    indices = np.arange(3000)
    first = indices < 1000
    point = certified(
        BoundedTPRFPR(0.7, 0.6),
        a[indices],
        None,
        loss[indices],
        a_ood[indices] + 2,
        None,
        group_id=group[indices],
        group_ood=group_ood[indices],
        thresholds="group",
        split=np.concatenate([first, first]),
    )
    levels = []
    for name, lam in point.lam.items():
        scores = a[indices][group[indices] == name] / point.scales[0]
        n_1 = np.count_nonzero(first[group[indices] == name])
        n_2 = len(scores) - n_1
        needed = norm.isf(0.1) * math.sqrt(0.21 / n_2) + 0.5 / n_2
        share = 0.7 + needed
        sd = math.sqrt(share * (1 - share) * (1 / n_1 + 1 / n_2))
        count = np.count_nonzero(scores[:n_1] <= lam)
        # the smallest count whose fraction reaches the fraction of the level
        levels.append(((count - 1) / n_1 - share) / sd // 0.25 + 1)
    assert len(set(levels)) == 1


def test_order_of_samples_and_names_of_groups_do_not_matter():
    point, samples, labels = _certified()
    number = {"a": 2, "b": 0, "c": 1}
    numbers = {k: np.array([number[g] for g in v]) for k, v in labels.items()}
    other = certified(RULE, *samples, thresholds="group", random_state=0, **numbers)
    assert {number[g]: lam for g, lam in point.lam.items()} == other.lam
    assert all(type(g) is int for g in other.lam)
    again = pickle.loads(pickle.dumps(point))
    assert again.lam == point.lam


def test_groups_without_a_threshold_are_rejected():
    point, (a, b, *_), labels = _certified()
    groups = labels["group_id"].astype(object)
    before = point.accept(a, b, groups=groups)
    groups[:3], groups[3], groups[4] = "z", None, math.nan
    with pytest.warns(SkoodWarning, match=r"5 of 2000 samples are rejected.*'z', None"):
        decisions = point.accept(a, b, groups=groups)
    assert not decisions[:5].any()
    assert_array_equal(decisions[5:], before[5:])
    with pytest.raises(ValueError, match=r"threshold for each group; pass groups"):
        point.accept_proba(a, b)
    with pytest.raises(ValueError, match="one label per sample, got 3 for 2000"):
        point.accept_proba(a, b, groups=["a"] * 3)


@pytest.mark.parametrize("kind", ["strings", "numbers"])
def test_small_groups(kind):
    samples, labels = _draw(np.random.default_rng(5), 2000)
    if kind == "numbers":
        labels = {k: np.searchsorted(NAMES, v) for k, v in labels.items()}
    small = list(range(10, 16)) if kind == "numbers" else list("uvwxyz")
    group = labels["group_id"].copy()
    group[:54] = np.repeat(small, 9)
    labels["group_id"] = group
    arguments = BoundedTPRFPR(0.7, 0.5), *samples
    options = {**labels, "thresholds": "group", "random_state": 2}
    with pytest.raises(NotCertifiableError, match="fewer than 7 certifying samples"):
        certified(*arguments, **options)
    point = certified(*arguments, small_groups="skip", **options)
    assert {point.lam[name] for name in small} == {-math.inf}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decisions = point.accept(*samples[:2], groups=group)
    assert not decisions[:54].any() and decisions[54:].any()
    point = certified(*arguments, small_groups="pool", **options)
    (lam,) = {point.lam[name] for name in small}
    assert lam > -math.inf and len(point.lam) == 9


def test_infinite_scores_and_no_ood_samples():
    samples, labels = _draw(np.random.default_rng(6), 1500)
    a, b, loss = samples[:3]
    a = a.copy()
    a[::50] = np.inf
    rule = BoundedAbstention(0.6)
    arguments = rule, a, b, loss, None, None
    group = labels["group_id"]
    point = certified(*arguments, group_id=group, random_state=0, thresholds="group")
    assert math.isnan(point.fpr)
    assert not point.accept(a, b, groups=group)[::50].any()
    a[group == "b"] = np.inf
    with pytest.raises(NotCertifiableError, match=r"TPR >= 0\.6 in group"):
        certified(rule, a, *arguments[2:], group_id=group, thresholds="group")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guarantee": "ltt"}, "thresholds='group' is for guarantee='high_prob.*'ltt'"),
        ({"guarantee": "expectation"}, "thresholds='group' is for guarantee='high_pro"),
        ({"group_id": None}, "needs the group of each sample: pass group_id, and gr"),
        ({"group_ood": None}, "needs the group of each sample: pass group_id, and gr"),
        ({"group_ood": ["a"]}, "group_ood must have one label per OOD sample, got 1"),
        ({"thresholds": "shared"}, "group_ood is for thresholds='group'"),
        (
            {"rule": BoundedImprovement(0.1)},
            r"needs a lower bound on the TPR .*AllOf\(",
        ),
        (
            {"rule": TwoThresholds(0.1, 0.1, criterion="selective_risk")},
            r"not certified within groups. Use TwoThresholds\(ood=0.1, .* AllOf\(",
        ),
        (
            {"sample_weight_id": np.ones(500), "weight_max": 2.0},
            "thresholds='group' excludes weights and unlabeled samples",
        ),
    ],
)
def test_errors(options, message):
    samples, labels = _draw(np.random.default_rng(7), 500)
    options = {"rule": RULE, "thresholds": "group", **labels, **options}
    with pytest.raises(ValueError, match=message):
        certified(options.pop("rule"), *samples, **options)


def test_masks_of_a_split():
    samples, _ = _draw(np.random.default_rng(8), 600)
    rule = BoundedTPRFPR(0.3, 0.6)
    first = np.arange(600) % 2 == 0
    point = certified(rule, *samples, random_state=0, split=np.tile(first, 2))
    moved = list(samples)
    for k in (0, 1):  # the samples that certify are worse
        moved[k] = np.where(first, samples[k], samples[k] + 5)
    with pytest.raises(NotCertifiableError, match=r"TPR >= 0\.3"):
        certified(rule, *moved, random_state=0, split=np.tile(first, 2))
    assert point.certificate.n_id == point.certificate.n_ood == 300
    for split, message in (
        (first, "a Boolean mask of the 1200 samples"),
        (np.tile(first, 2).astype(int), "a Boolean mask of the 1200 samples"),
        (np.arange(1200) < 600, "must leave ID samples that choose and ID samples"),
    ):
        with pytest.raises(ValueError, match=message):
            certify(rule, samples_of(*samples), Certificate(split=split))
    with pytest.raises(ValueError, match="mask is for guarantee='high_probability'"):
        certify(rule, samples_of(*samples), Certificate("ltt", split=np.tile(first, 2)))
    with pytest.raises(ValueError, match="mask excludes weights"):
        weights = {"sample_weight_id": np.ones(600), "weight_max": 1.0}
        certified(rule, *samples, split=np.tile(first, 2), **weights)
    assert isinstance(point, OperatingPoint)
