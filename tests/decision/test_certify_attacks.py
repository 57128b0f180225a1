"""Guarantees attacked: few samples per class, ties, heavy tails, one sample a call."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.rejection import (
    BoundedAbstention,
    RejectOptionClassifier,
    accept,
    certify,
)
from tests.decision._scores import GUARANTEES


def _draw_classes(rng, n_samples, n_classes):
    means = 2 * np.random.default_rng(1).normal(size=(n_classes, 4))
    y = rng.integers(0, n_classes, n_samples)
    return means[y] + 0.15 * rng.normal(size=(n_samples, 4)), y


def _coverages(n_samples, n_classes, repetitions, **options):
    """Coverage of new samples by classifiers with a promised coverage of .6."""
    coverages = []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        clf = RejectOptionClassifier(
            KNeighborsClassifier(7),
            make_pipeline(KNN(n_neighbors=7, normalize=False)),
            rule=BoundedAbstention(0.6),
            random_state=seed,
            **options,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)  # classes without samples
            clf.fit(*_draw_classes(rng, n_samples, n_classes))
        new, _ = _draw_classes(rng, 4000, n_classes)
        coverages.append(np.mean(clf.accept_proba(new)))
    return np.array(coverages)


@pytest.mark.parametrize("guarantee", ["high_probability", "expectation"])
@pytest.mark.parametrize(
    "sizes", [(300, 60), pytest.param((500, 100), marks=pytest.mark.slow)]
)
def test_few_samples_of_many_classes(sizes, guarantee):
    """With stratified held-out samples 42 to 65 % of the promises of 10 % broke."""
    coverage = _coverages(*sizes, 24, guarantee=guarantee)
    if guarantee == "expectation":
        error = coverage.std() / math.sqrt(len(coverage))
        assert coverage.mean() >= 0.6 - 3 * error
    else:
        assert np.sum(coverage < 0.6) <= binom.isf(1e-3, len(coverage), 0.1)
    assert coverage.mean() < 0.9  # not by accepting all


def _heavy(rng, n):
    """Scores with heavy tails and many ties, and infinite ones."""
    scores = np.round(rng.standard_cauchy(n), 0)
    scores[rng.uniform(size=n) < 0.02] = np.inf
    return scores


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n_draws", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_promises_with_ties_and_heavy_tails(guarantee, double, n_draws):
    """Coverage of one new sample a call, and of many: what `accept` returns."""
    coverage = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        a, b = _heavy(rng, 60), _heavy(rng, 60)
        loss = 1.0 * (rng.uniform(size=60) < 1 / (1 + np.exp(-np.clip(a, -5, 5))))
        point = certify(
            BoundedAbstention(0.5),
            a,
            b if double else None,
            loss,
            None,
            None,
            guarantee=guarantee,
            random_state=seed,
        )
        new = _heavy(rng, 4000), _heavy(rng, 4000) if double else None
        accepted = accept(point, *new)
        coverage.append(accepted.mean())
        alone = [
            accept(point, new[0][[i]], new[1][[i]] if double else None)[0]
            for i in range(15)
        ]
        assert alone == accepted[:15].tolist()
    coverage = np.array(coverage)
    if guarantee == "expectation":
        assert coverage.mean() >= 0.5 - 3 * coverage.std() / math.sqrt(n_draws)
    else:
        assert np.sum(coverage < 0.5) <= binom.isf(1e-3, n_draws, 0.1)
