"""P-values with ties broken at random: size by enumeration, and selections by them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator

from skood.combine import conformal_pvalues
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.selection import NoveltySelector, StepUp, select_novelties
from skood.stats._conformal import sorted_calibration, untied_counts


class _TieBreakers:
    """Generator that returns given tie-breakers, of calibration scores and of one."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def random(self, shape):
        drawn = [self.numbers.pop(0) for _ in range(shape[0])]
        return np.array(drawn, dtype=float).reshape(shape)


@pytest.mark.parametrize("slack", [0.0, 1e-9])
def test_size_by_enumeration(slack):
    """All binary scores, and all orders of tie-breakers: P(p <= k / 5) is k / 5."""
    probability = np.array([[0.1], [0.5], [0.9]])
    law = np.zeros((3, 5))
    orders = list(permutations(range(5)))
    for scores in product([0.0, 1.0], repeat=5):
        n_ones = sum(scores)
        weight = (probability**n_ones * (1 - probability) ** (5 - n_ones))[:, 0]
        ranked = sorted_calibration(np.reshape(scores[:4], (4, 1)))
        new = np.reshape(scores[4:], (1, 1))
        for order in orders:
            breakers = _TieBreakers(order)
            count = untied_counts(ranked, new, slack, breakers)[0, 0]
            law[:, count] += weight / len(orders)
    assert_allclose(law, 0.2, rtol=1e-12)


def test_scores_without_ties_and_at_infinity():
    rng = np.random.default_rng(0)
    scores, calibration = rng.normal(size=(200, 2)), rng.normal(size=(50, 2))
    plain = conformal_pvalues(scores, calibration)
    untied = conformal_pvalues(scores, calibration, ties="random", random_state=0)
    assert_array_equal(plain, untied)
    ends = np.array([-np.inf, np.inf, 0.0])
    p = conformal_pvalues(ends, ends, ties="random", random_state=0)
    assert np.all(p <= conformal_pvalues(ends, ends))
    assert np.all((p > 0) & (p <= 1))


def test_seeds_and_bounds():
    rng = np.random.default_rng(0)
    scores, calibration = rng.integers(0, 3, 400), rng.integers(0, 3, 60)
    pair = [
        conformal_pvalues(scores, calibration, ties="random", random_state=seed)
        for seed in (0, 0, 1)
    ]
    assert_array_equal(pair[0], pair[1])
    assert (pair[0] != pair[2]).mean() > 0.5
    high = conformal_pvalues(scores, calibration)
    low = (1 + (calibration < scores[:, None]).sum(axis=1)) / 61
    assert np.all((low - 1e-12 <= pair[0]) & (pair[0] <= high + 1e-12))
    assert len(np.unique(pair[0])) > 30  # the places are not all at an end


@pytest.mark.parametrize("m1", [0, 2])
def test_false_discovery_rate_of_binary_scores(m1):
    """It is alpha m0 / m where alpha (n + 1) / m is an integer, as without ties."""
    rng, m, n, alpha = np.random.default_rng(0), 10, 49, 0.2
    rates = {}
    for seed in range(1000):
        calibration = rng.integers(0, 2, n)
        scores = np.append(rng.integers(0, 2, m - m1), np.zeros(m1))
        for ties in ("random", "conservative")[: 1 + (seed < 200)]:
            p = conformal_pvalues(scores, calibration, ties=ties, random_state=seed)
            selected = select_novelties(p, n, alpha).selected
            fdp = selected[: m - m1].sum() / max(1, selected.sum())
            rates.setdefault(ties, []).append(fdp)
    expected = alpha * (m - m1) / m
    error = np.std(rates["random"]) / np.sqrt(1000)
    assert abs(np.mean(rates["random"]) - expected) < 3.5 * error
    assert np.mean(rates["conservative"]) < 0.01


def test_ecdf_has_no_random_ties():
    with pytest.raises(ValueError, match="needs method='conformal', got 'ecdf'"):
        conformal_pvalues([1.0], [1.0], method="ecdf", ties="random")


@pytest.mark.parametrize("n_scores", [100, 101])
def test_warning_about_swapped_arguments(n_scores, recwarn):
    scores, calibration = np.arange(n_scores), np.arange(10)
    if n_scores == 100:
        conformal_pvalues(scores, calibration)
        assert not len(recwarn)
        return
    with pytest.warns(SkoodWarning, match="101 scores, but only 10 calibration_scores"):
        conformal_pvalues(scores, calibration)


class _Rounded(KNN):
    """Distance from zero, rounded: a score with few values."""

    def score_samples(self, X):
        return -np.abs(X[:, 0]).round()


def _batch(seed):
    rng = np.random.default_rng(seed)
    X, batch = rng.normal(size=(400, 1)), rng.normal(size=(50, 1))
    batch[:10] = 2.4  # rounded to 2, as some ID samples are
    return X, batch


def test_selector():
    frozen = FrozenEstimator(_Rounded().fit(_batch(1000)[0]))
    X, batch = _batch(0)
    selector = NoveltySelector(
        frozen, alpha=0.2, calibration="same", random_state=0
    ).fit(X)
    plain, untied = selector.select(batch), selector.select(batch, ties="random")
    again = selector.select(batch, ties="random")
    assert_array_equal(untied.pvalues, again.pvalues)
    assert np.all(untied.pvalues <= plain.pvalues)
    assert (untied.pvalues < plain.pvalues).mean() > 0.9
    equal = [conformal_pvalues(*2 * [-np.abs(X[:, 0]).round()]) for _ in range(2)]
    assert len(np.unique(untied.pvalues)) > len(np.unique(equal))
    # other methods stay conservative: a sample does not depend on the batch
    assert_array_equal(selector.pvalues(batch)[:, 0], plain.pvalues)
    assert_array_equal(
        selector.score_samples(batch[::-1])[::-1], selector.score_samples(batch)
    )
    frame = selector.explain(batch, alpha=0.9, ties="random")
    assert_array_equal(frame["pvalue"], untied.pvalues)
    assert frame["selected"].any()
    assert frame.loc[frame["selected"], "rejects_detector"].all()
    other = NoveltySelector(frozen, calibration="same", random_state=1).fit(X)
    assert (other.select(batch, ties="random").pvalues != untied.pvalues).any()


def test_rate_of_the_selector():
    """Batches of ID samples alone: a selection is false with probability alpha."""
    false = {"conservative": [], "random": []}
    frozen = FrozenEstimator(_Rounded().fit(_batch(1000)[0]))
    for seed in range(300):
        rng = np.random.default_rng(seed)
        selector = NoveltySelector(
            frozen, alpha=0.2, calibration="same", random_state=seed
        ).fit(rng.normal(size=(49, 1)))
        X = rng.normal(size=(10, 1))
        for ties, selections in false.items():
            selections.append(selector.select(X, ties=ties).n_selected > 0)
    assert abs(np.mean(false["random"]) - 0.2) < 3.5 * np.sqrt(0.16 / 300)
    assert np.mean(false["conservative"]) < 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"detectors": [("a", KNN()), ("b", KNN(n_neighbors=1))]},
        {"n_splits": 2},
        {"calibration": 5},
    ],
)
def test_selectors_without_random_ties(options):
    X, batch = _batch(0)
    selector = NoveltySelector(**{"detectors": KNN(), **options}).fit(X)
    for method in (selector.select, selector.explain):
        with pytest.raises(ValueError, match="one detector and one split"):
            method(batch, ties="random")
        with pytest.raises(ValueError, match="'conservative' or 'random', got 'none'"):
            method(batch, ties="none")


def test_pvalues_suit_all_procedures():
    rng = np.random.default_rng(0)
    scores, calibration = rng.integers(0, 3, 40), rng.integers(0, 3, 60)
    p = conformal_pvalues(scores, calibration, ties="random", random_state=0)
    assert StepUp("storey").selected(p, 60).shape == (40,)
