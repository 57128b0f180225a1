"""BestOf: checked numbers, the loop over all pairs, and attacks on the rate."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.combine import BenjaminiHochberg, Bonferroni, Fisher, conformal_pvalues
from skood.selection import BestOf, StepUp, fdp_power, select_novelties
from skood.selection._best_of import auxiliary_counts, best_of, pruned
from skood.stats._fdp_bands import local_envelope
from tests.selection._cases import vector


def _counts_by_a_loop(scores, calibration, alpha):
    """R_j by its definition, sample by sample."""
    m, n = len(scores), len(calibration)
    counts = []
    for j in range(m):
        pool = np.append(calibration, scores[j])
        p = np.array([np.sum(pool <= s) / (n + 1) for s in scores])
        p[j] = 0.0
        p.sort()
        ks = np.arange(1, m + 1)
        counts.append(ks[m * p <= alpha * ks * (1 + 1e-12)].max())
    return counts


def test_auxiliary_counts():
    arguments, expected = vector("S-aux-counts")
    actual = auxiliary_counts(
        np.array(arguments["scores"]), np.array(arguments["cal"]), arguments["alpha"]
    )
    assert actual.tolist() == expected


@pytest.mark.parametrize("levels", [3, 8, 1000])
def test_counts_equal_the_loop(levels, rng):
    """With few levels nearly all scores are tied."""
    for _ in range(40):
        m, n = rng.integers(1, 16), rng.integers(1, 30)
        scores = rng.integers(0, levels, m) - rng.integers(0, 2, m) * levels / 2
        calibration = rng.integers(0, levels, n).astype(float)
        alpha = rng.choice([0.1, 0.3, 0.6])
        actual = auxiliary_counts(scores, calibration, alpha)
        assert actual.tolist() == _counts_by_a_loop(scores, calibration, alpha)


@pytest.mark.parametrize("case", list(vector("S-best-of")[1]))
def test_checked_choice(case):
    arguments, expected = vector("S-best-of")
    tau, pruning = case.removeprefix("tau=").split(",")
    pruning = 0.5 if pruning == "shared" else "none"
    scores, calibration = np.array(arguments["scores"]), np.array(arguments["cal"])
    choice = BestOf(float(tau), pruning, ())
    batch = choice.select(scores, calibration, arguments["alpha"])
    expected = expected[case]
    assert batch.selected.nonzero()[0].tolist() == expected["selected"]
    assert batch.detector.astype(int).tolist() == expected["detector"]
    choices = best_of(scores, calibration, arguments["alpha"], float(tau))
    assert choices["counts"].tolist() == expected["R"]


def test_single_detector_is_benjamini_hochberg(rng):
    for seed in range(30):
        scores = np.round(rng.normal(size=(40, 1)) - 2 * (rng.random((40, 1)) < 0.3), 1)
        calibration = np.round(rng.normal(size=(60, 1)), 1)
        p = conformal_pvalues(scores[:, 0], calibration[:, 0])
        expected = StepUp().selected(p, 60, 0.3)
        for pruning in ("none", "shared"):
            batch = BestOf(pruning=pruning).select(
                scores, calibration, 0.3, random_state=seed
            )
            assert_array_equal(batch.selected, expected)
            assert_allclose(batch.pvalues, p, rtol=1e-15)


def _most_selections(scores, calibration, alpha):
    """The detector with most selections, which looks at the batch: not valid."""
    P = conformal_pvalues(scores, calibration).T
    return max(BenjaminiHochberg().selected(P, alpha), key=np.sum)


def test_rate_where_the_most_selections_fail():
    """Ten detectors, no OOD sample: the proportion is 1 in each nonempty selection."""
    rng = np.random.default_rng(1)
    n, m, alpha, n_runs = 599, 60, 0.1, 200
    rates = {"most": 0.0, "none": 0.0, "shared": 0.0, "default": 0.0}
    is_ood = np.zeros(m, dtype=bool)
    for seed in range(n_runs):
        common = rng.normal(size=(n + m, 1)) * np.sqrt(0.3)
        drawn = rng.normal(size=(n + m, 10)) * np.sqrt(0.7) + common
        calibration, scores = drawn[:n], drawn[n:]
        chosen = {"most": _most_selections(scores, calibration, alpha)}
        for name, choice in (
            ("none", BestOf(pruning="none", combiners=())),
            ("shared", BestOf(combiners=())),
            ("default", BestOf(combiners=(Fisher(),))),
        ):
            batch = choice.select(scores, calibration, alpha, random_state=seed)
            chosen[name] = batch.selected
        for name, selected in chosen.items():
            rates[name] += fdp_power(selected, is_ood).fdp / n_runs
    limit = alpha + 3 * np.sqrt(alpha * (1 - alpha) / n_runs)
    assert rates["most"] > 0.3 > limit
    assert max(rates["none"], rates["shared"], rates["default"]) <= limit


def _exact_rates(alpha, n_orders, rng):
    """Exact rates of each method, and e-values, for fixed bags of samples.

    4 of 7 ID samples calibrate: each choice of these is equally likely. The order of
    the samples under the second detector is drawn, and has ties.
    """
    is_ood = np.arange(4) == 3
    # xi matters at multiples r / R of integers up to m
    ends = np.unique([r / k for k in range(1, 5) for r in range(k + 1)])
    rates = []
    for _ in range(n_orders):
        bag = np.column_stack([np.arange(7.0), rng.permutation(7) // 2])
        ood = np.array([[-1.0, rng.integers(4)]])
        actual, evalues = {"none": [], "shared": [], "most": []}, []
        for test in combinations(range(7), 3):
            calibration = np.delete(bag, test, axis=0)
            scores = np.concatenate([bag[list(test)], ood])
            of = best_of(scores, calibration, alpha, 0.2)
            fdp = [
                fdp_power(pruned(of["passed"], of["counts"], xi), is_ood).fdp
                for xi in (*(ends[1:] + ends[:-1]) / 2, 1.0)
            ]
            actual["none"].append(fdp[-1])
            actual["shared"].append(np.diff(ends) @ fdp[:-1])
            most = _most_selections(scores, calibration, alpha)
            actual["most"].append(fdp_power(most, is_ood).fdp)
            evalues.append(
                BestOf(combiners=()).evalues(scores, calibration, alpha)[~is_ood]
            )
        rates.append([np.mean(actual[name]) for name in ("none", "shared", "most")])
        assert np.mean(evalues) <= 1 + 1e-12
    return np.array(rates).T


@pytest.mark.parametrize("alpha", [0.4, 0.8])
def test_exact_rate(alpha, rng):
    """At most alpha m0 / m for each bag of samples, not only on average."""
    none, shared, most = _exact_rates(alpha, 15, rng)
    bound = alpha * 3 / 4
    assert none.max() <= bound + 1e-12
    assert shared.max() <= bound + 1e-12
    assert most.max() > bound
    assert shared.max() > 0.6 * bound  # the bound is not vacuous


def test_bound_on_the_selected_samples(rng):
    """For ten alphas at once, and detectors that are chosen on the batch."""
    n, m, n_runs, delta = 120, 40, 150, 0.1
    choice, n_violated, sizes = BestOf(combiners=()), 0, []
    for seed in range(n_runs):
        is_ood = np.arange(m) < (seed % 2) * 8
        common = rng.normal(size=(n + m, 1))
        drawn = rng.normal(size=(n + m, 4)) + common
        calibration, scores = drawn[:n], drawn[n:]
        scores[is_ood, seed % 4] -= 6
        violated = False
        for alpha in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
            batch = choice.select(
                scores, calibration, alpha, delta=delta, random_state=seed
            )
            fdp = fdp_power(batch.selected, is_ood).fdp
            violated |= fdp > batch.fdp_bound
        n_violated += violated
        sizes.append(batch.n_selected)
    assert n_violated / n_runs <= delta + 3 * np.sqrt(delta * (1 - delta) / n_runs)
    assert np.mean(sizes) > m / 2


def test_bound_of_a_choice_by_its_parts(rng):
    """The smallest of the bounds of single detectors, and of the sum over parts."""
    calibration, scores = rng.normal(size=(500, 3)), rng.normal(size=(60, 3))
    scores[:15, 0] -= 5
    scores[15:30, 2] -= 5
    batch = BestOf(combiners=(), tau=0).select(
        scores, calibration, 0.2, delta=0.3, random_state=0
    )
    P = conformal_pvalues(scores, calibration)

    def n_id(subset, k):  # by the definition, for any set of samples
        ranks, allowed = local_envelope(500, 60, 0.1)
        sums = [
            b + np.sum(P[subset, k] * 501 > r + 0.5)
            for r, b in zip(ranks, allowed, strict=True)
        ]
        return min(*sums, subset.sum())

    chosen = [batch.selected & (batch.detector == str(k)) for k in range(3)]
    parts = sum(n_id(subset, k) for k, subset in enumerate(chosen))
    whole = min(n_id(batch.selected, k) for k in range(3))
    assert batch.fdp_bound == min(parts, whole) / batch.n_selected < 1
    first = BestOf().select(scores[:, :1], calibration[:, :1], 0.2, delta=0.1)
    single = select_novelties(P[:, 0], 500, 0.2, delta=0.1)
    assert first.fdp_bound == single.fdp_bound > 0
    assert BestOf().select(scores, calibration, 0.2).fdp_bound is None


def test_candidates_and_their_names(rng):
    calibration, scores = rng.normal(size=(400, 5)), rng.normal(size=(100, 5))
    scores[:30] -= 2.0  # all five: a combination is best
    names = ["a", "Fisher", "c", "d", "e"]
    batch = BestOf().select(scores, calibration, names=names, random_state=0)
    assert set(batch.detector) <= {"DOSStorey", "Fisher2", *names}
    assert "Fisher2" in set(batch.detector) or "DOSStorey" in set(batch.detector)
    assert batch.n_calibration == 280 and batch.qvalues is None
    assert fdp_power(batch.selected, np.arange(100) < 30).power > 0.8
    # three members are too few for DOSStorey, one for any combination
    assert [len(BestOf()._combiners(k)) for k in (1, 3, 4)] == [0, 1, 2]


def test_invariances(rng):
    calibration, scores = rng.normal(size=(300, 4)), rng.normal(size=(80, 4))
    scores[:20, 2] -= 4
    choice = BestOf(combiners=(Bonferroni(),))
    batch = choice.select(scores, calibration, 0.2, random_state=3)
    assert 10 < batch.n_selected < 60
    order = rng.permutation(80)
    again = choice.select(scores[order], calibration, 0.2, random_state=3)
    assert_array_equal(again.selected, batch.selected[order])
    assert_array_equal(again.detector, batch.detector[order])
    scaled = choice.select(2 * scores + 1, 2 * calibration + 1, 0.2, random_state=3)
    assert_array_equal(scaled.selected, batch.selected)
    # "shared" contains "none"
    for seed in range(10):
        sets = [
            BestOf(pruning=pruning, combiners=())
            .select(scores, calibration, 0.2, random_state=seed)
            .selected
            for pruning in ("none", "shared")
        ]
        assert (sets[0] <= sets[1]).all()


def test_infinite_scores_and_empty_batches(rng):
    calibration, scores = rng.normal(size=(50, 3)), rng.normal(size=(10, 3))
    scores[:4] = -np.inf
    scores[4] = np.inf
    batch = BestOf().select(scores, calibration, 0.2, random_state=0)
    assert batch.selected[:4].all() and not batch.selected[4]
    empty = BestOf().select(np.empty((0, 3)), calibration, 0.2, random_state=0)
    assert empty.n_selected == 0 and empty.detector.shape == (0,)


@pytest.mark.parametrize(
    "choice, calibration, message",
    [
        (BestOf(tau=1.0), np.ones((9, 2)), "'tau' parameter of BestOf"),
        (BestOf(pruning=0.0), np.ones((9, 2)), "'pruning' parameter of BestOf"),
        (BestOf(), np.ones((9, 3)), r"of the same detectors.*\(9, 3\)"),
        (BestOf(), np.ones((0, 2)), "calibration_scores is empty"),
        (
            BestOf(),
            np.full((9, 2), np.nan),
            "calibration_scores contains 18 NaN among 18",
        ),
        (BestOf(), np.ones((1, 2)), "there is 1 sample in all"),
    ],
)
def test_invalid_input(choice, calibration, message):
    with pytest.raises(ValueError, match=message):
        choice.select(np.ones((5, 2)), calibration)


def test_invalid_names():
    with pytest.raises(ValueError, match=r"a list of 2 names, .* got 'ab'"):
        BestOf().select(np.ones((5, 2)), np.ones((9, 2)), names="ab")
