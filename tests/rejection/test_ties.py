"""Decisions about discrete data, whose scores are equal but for rounding."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from skood.detectors import KNN, Energy
from skood.nn import TorchClassifier
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    PlugInCost,
    RejectOptionClassifier,
)
from tests.decision._scores import certified, solved
from tests.rejection._problem import selective

RULES = [
    BoundedAbstention(0.6),
    BoundedTPRFPR(0.4, 0.8),
    BoundedPrecisionRecall(0.6, 0.4, ood_prior=0.3),
]

# Number of batches of seven samples that are predicted alone; None: all.
N_BATCHES = None if "SKOOD_NIGHTLY" in os.environ else 5


def _draw(n, rng):
    """Eight distinct samples; how often the class is noisy differs among them."""
    table = np.random.default_rng(0).integers(0, 2, size=(8, 6)).astype(np.float64)
    chosen = rng.integers(0, 8, size=n)
    noisy = rng.random(n) < 0.1 + 0.05 * chosen
    return table[chosen], (chosen % 3 + noisy) % 3


def _draw_ood(n, rng):
    table = np.random.default_rng(9).integers(-1, 2, size=(5, 6)).astype(np.float64)
    return table[rng.integers(0, 5, size=n)]


@pytest.fixture(scope="module", params=["perceptron", "torch"])
def networks(request):
    """A frozen float32 network, and a detector of its features."""
    X, y = _draw(600, np.random.default_rng(1))
    X = X.astype(np.float32)
    if request.param == "torch":
        options = {"module_params": {"hidden": (64, 32)}, "max_epochs": 15, "lr": 0.03}
        network = TorchClassifier(**options, random_state=0)
    else:
        network = MLPClassifier((32,), max_iter=60, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network = FrozenEstimator(network.fit(X, y))
    return network, FrozenEstimator(KNN(network, n_neighbors=5).fit(X, y))


def _assert_batches_agree(method, X):
    together = method(X)
    samples, copies = np.unique(X, axis=0, return_inverse=True)
    alone = np.concatenate([method(sample[None]) for sample in samples])
    np.testing.assert_array_equal(alone[copies], together)
    starts = range(0, len(X), 7)[:N_BATCHES]
    sevens = np.concatenate([method(X[i : i + 7]) for i in starts])
    np.testing.assert_array_equal(sevens, together[: len(sevens)])
    for n_threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            with threadpool_limits(n_threads):
                np.testing.assert_array_equal(method(X), together)
        finally:
            torch.set_num_threads(before)
    return together


# All cases run at night; by day each guarantee, rule and number of scores.
BY_DAY = {(None, 0, False), (None, 1, True), ("high_probability", 1, True)} | {
    *(("high_probability", 0, False), ("ltt", 2, True), ("expectation", 1, False))
}


@pytest.mark.parametrize(
    ("guarantee", "rule", "double"),
    [
        pytest.param(
            guarantee,
            RULES[k],
            double,
            marks=() if (guarantee, k, double) in BY_DAY else pytest.mark.slow,
            id=f"{guarantee}-{type(RULES[k]).__name__}-{double}",
        )
        for guarantee in (None, "high_probability", "ltt", "expectation")
        for k in range(3)
        for double in (False, True)
    ],
)
def test_certified_bounds_hold_sample_by_sample(networks, guarantee, rule, double):
    network, knn = networks
    rng = np.random.default_rng(2)
    X, y = _draw(500, rng)
    X = np.concatenate([X, _draw_ood(200, rng)]).astype(np.float32)
    y = np.concatenate([y, np.full(200, -1)])
    clf = selective(
        network,
        ood_detector=knn if double else None,
        rule=rule,
        calibration="same",
        guarantee=guarantee,
    ).fit(X, y)
    labels = _assert_batches_agree(clf.predict, X)
    is_id = y != -1
    point = clf.operating_point_
    if guarantee is None or not double:  # else part of the samples chose the angle
        assert np.mean(labels[is_id] != -1) == pytest.approx(point.tpr)
        assert np.mean(labels[~is_id] != -1) == pytest.approx(point.fpr)
    new = _draw(4000, np.random.default_rng(3))[0].astype(np.float32)
    if guarantee == "high_probability":
        tpr_min = {"BoundedAbstention": 0.6}.get(type(rule).__name__, 0.4)
        assert np.mean(_assert_batches_agree(clf.predict, new) != -1) >= tpr_min


def test_coverage_of_a_float64_network_sample_by_sample():
    """The promised coverage was kept in one batch only: .75, and .50 one by one."""
    X, y = _draw(1200, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf = selective(
            MLPClassifier((32,), max_iter=100, random_state=0),
            rule=BoundedAbstention(0.6),
            guarantee="high_probability",
        ).fit(X, y)
    assert np.mean(_assert_batches_agree(clf.predict, X) != -1) >= 0.6


@pytest.mark.parametrize("detector", [Energy, KNN])
def test_a_detector_as_the_only_score(networks, detector):
    network, knn = networks
    rng = np.random.default_rng(4)
    X, y = _draw(400, rng)
    X = X.astype(np.float32)
    risk = knn if detector is KNN else FrozenEstimator(Energy(network).fit(X, y))
    for coverage in (0.2, 0.8):
        clf = RejectOptionClassifier(
            network, risk, rule=BoundedAbstention(coverage), calibration="same"
        ).fit(X, y)
        assert np.mean(_assert_batches_agree(clf.predict, X) != -1) >= coverage


def _noisy(scores, seed):
    noise = np.random.default_rng(seed).uniform(-1e-7, 1e-7, size=scores.shape)
    return scores * (1 + noise)


def _samples(seed):
    """Scores of few levels: a, b and losses of ID samples, a and b of OOD samples."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.05, 1.0, size=(2, 6))
    k_id, k_ood = rng.integers(0, 6, size=120), rng.integers(1, 6, size=60)
    a, b = levels[0][k_id], levels[1][rng.permutation(6)][k_id]
    loss = (rng.random(120) < a).astype(float)
    return a, b, loss, levels[0][k_ood], levels[1][::-1][k_ood]


@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_rounding_changes_no_decision(solver, randomize, double):
    rules = [*RULES, BoundedImprovement(0.4), CostBased(0.3), PlugInCost(0.3)]
    n_between = 0
    for seed in range(2 if "SKOOD_NIGHTLY" in os.environ else 1):
        a, b, loss, a_ood, b_ood = _samples(seed)
        noisy = [_noisy(x, 10 + i) for i, x in enumerate((a, b, a_ood, b_ood))]
        for rule in rules:
            try:
                point = solved(
                    rule,
                    noisy[0],
                    noisy[1] if double else None,
                    loss,
                    noisy[2],
                    noisy[3] if double else None,
                    solver=solver,
                    n_angles=60,
                    randomize=randomize,
                )
            except ValueError:  # infeasible
                continue
            accepted = [
                point.accept_proba(
                    _noisy(a, noise), _noisy(b, noise + 1) if double else None
                )
                for noise in (20, 30, 40)
            ]
            np.testing.assert_array_equal(accepted[1], accepted[0])
            np.testing.assert_array_equal(accepted[2], accepted[0])
            if not isinstance(rule, PlugInCost):
                assert np.mean(accepted[0]) == pytest.approx(point.tpr)
            n_between += bool(0 < point.tau < 1)
    assert (n_between > 0) == randomize


def test_certified_thresholds_are_between_scores():
    rng = np.random.default_rng(0)
    a, a_ood = rng.normal(size=300), rng.normal(2.0, size=200)
    loss = rng.random(300) < 0.1
    for guarantee in ("high_probability", "ltt", "expectation"):
        point = certified(
            BoundedTPRFPR(0.6, 0.3), a, None, loss, a_ood, None, guarantee=guarantee
        )
        projected = np.concatenate([a, a_ood]) / point.scales[0]
        low = projected[projected <= point.lam].max()
        high = projected[projected > point.lam].min()
        assert point.lam == pytest.approx((low + high) / 2, rel=1e-12)


def test_small_risks_are_not_tied():
    """Risks of 1e-12 and 1e-9 differ; a threshold separates them."""
    a = np.repeat([1e-12, 1e-9, 0.3, 0.5], 25)
    loss = np.repeat([0.0, 1.0, 1.0, 1.0], 25)
    point = solved(BoundedAbstention(0.25), a, None, loss, None, None)
    assert (point.risk, point.tpr) == (0.0, 0.25)


def test_dense_scores_that_ties_do_not_keep_together():
    """Ties of one score are separated by the other: evaluated as they were given."""
    rng = np.random.default_rng(0)
    a = np.repeat(np.arange(1.0, 41.0), 50) * (1 + 1e-7 * rng.normal(size=2000))
    b = np.linspace(0.0, 1.0, 2000)[rng.permutation(2000)]
    loss = (rng.random(2000) < b).astype(float)
    for coverage in (0.3, 0.6):
        point = solved(BoundedAbstention(coverage), a, b, loss, None, None)
        accepted = point.accept_proba(a, b)
        assert point.tpr == accepted.mean() >= coverage
        assert point.risk == pytest.approx(loss[accepted == 1].mean())
        assert point.gap <= 1.1e-3
