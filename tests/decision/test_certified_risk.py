"""Tests of the certified selective risk of BoundedImprovement and TwoThresholds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from skood.exceptions import NotCertifiableError
from skood.rejection import (
    BoundedImprovement,
    TwoThresholds,
    certify,
    solve,
)
from tests.decision._scores import certified, samples_of, solved

BOUND = 3.0  # on the loss


def _draw(n, rng):
    """Two scores with many ties, and clipped absolute errors of a Cauchy law."""
    scale = rng.uniform(0.05, 1.0, n)
    a = np.round(scale, 1)
    b = np.round(rng.normal(size=n) + scale, 1)
    return a, b, np.minimum(np.abs(scale * rng.standard_cauchy(n)), BOUND)


def _violations(n_draws, n, rule, double):
    """Numbers of certified rules, and of those whose risk on new data is too large."""
    rng = np.random.default_rng(0)
    a, b, loss = _draw(50_000, rng)
    n_certified = broken = 0
    for seed in range(n_draws):
        risk, ood, losses = _draw(n, rng)
        scores = (risk, ood if double else None)
        try:
            point = certified(
                rule,
                *scores,
                losses,
                None,
                None,
                random_state=seed,
                delta=0.2,
                max_loss=BOUND,
            )
        except NotCertifiableError:
            continue
        n_certified += 1
        accepted = point.accept(a, b if double else None)
        broken += loss[accepted].mean() > rule.risk_max
    return n_certified, broken


@pytest.mark.parametrize(
    ("n_draws", "n"), [(60, 400), pytest.param(1000, 400, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("double", [False, True], ids=["one score", "two scores"])
def test_risk_of_heavy_tails_on_new_data(n_draws, n, double):
    n_certified, broken = _violations(n_draws, n, BoundedImprovement(0.7), double)
    assert n_certified > 0.4 * n_draws
    # a fraction of at most delta of all draws breaks the bound
    assert broken <= binom.ppf(0.999, n_draws, 0.2)


def test_without_a_certificate_the_bound_is_broken_more_often():
    """So that the test above can fail."""
    rng = np.random.default_rng(0)
    a, _, loss = _draw(50_000, rng)
    broken = 0
    for _ in range(60):
        risk, _, losses = _draw(400, rng)
        point = solved(BoundedImprovement(0.7), risk, None, losses, None, None)
        broken += loss[point.accept(a)].mean() > 0.7
    assert broken > 0.2 * 60


def test_few_samples_are_never_certified():
    """A handful of small losses shows nothing about tails."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 10):
        a, _, _ = _draw(n, rng)
        with pytest.raises(NotCertifiableError, match="selective risk"):
            certified(BoundedImprovement(0.1), a, None, np.zeros(n), None, None)


def test_the_tested_samples_meet_the_bound():
    """The bound of the accepted losses of the tested part, which is evaluated."""
    a, _, loss = _draw(1000, np.random.default_rng(1))
    rule = BoundedImprovement(0.8)
    options = {"max_loss": BOUND, "split": 0.4, "random_state": 0}
    point = certified(rule, a, None, loss, None, None, **options)
    # An eighth of .4 chooses thresholds: the first 5 % of the permutation.
    tested = np.sort(np.random.RandomState(0).permutation(1000)[50:])
    losses = loss[tested][point.accept(a[tested])]
    assert_allclose(point.risk, losses.mean())
    assert point.tpr == len(losses) / 950
    (statement,) = point.certificate.statements
    assert_allclose(statement.estimate, losses.mean())
    assert losses.mean() < 0.8
    assert statement.pvalue <= 0.1
    assert point.tpr < solve(rule, samples_of(a, None, loss, None, None)).tpr


@pytest.mark.parametrize("double", [False, True])
def test_units_of_the_loss(double):
    a, b, loss = _draw(400, np.random.default_rng(2))
    for unit in (1e-6, 2.0, 1e9):
        points = []
        for factor in (1.0, unit):
            rule = BoundedImprovement(1.3 * factor)
            if double:
                rule = TwoThresholds(0.1, 1.3 * factor, criterion="selective_risk")
            points.append(
                certified(
                    rule,
                    a,
                    b if double else None,
                    factor * loss,
                    None,
                    None,
                    random_state=0,
                    max_loss=BOUND * factor,
                )
            )
        assert points[0].lam == points[1].lam
        assert_allclose(points[1].risk, unit * points[0].risk)


def test_samples_needed_in_other_units():
    a, _, loss = _draw(100, np.random.default_rng(3))
    needed = []
    for factor in (1.0, 1000.0):
        with pytest.raises(NotCertifiableError) as error:
            certified(
                BoundedImprovement(0.5 * factor),
                a,
                None,
                factor * loss,
                None,
                None,
                random_state=0,
                max_loss=BOUND * factor,
            )
        needed.append(error.value.n_id_needed)
    assert needed[0] == needed[1] > 100


def test_a_loss_above_the_bound():
    a, _, loss = _draw(100, np.random.default_rng(3))
    with pytest.raises(ValueError, match=r"max_loss=1\.0, but a loss is 3.* or clip"):
        certify(BoundedImprovement(0.5), samples_of(a, None, loss, None, None))
