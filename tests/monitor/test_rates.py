"""RateMonitor: vectors, exact enumerations, audits and late labels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
from copy import copy
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from skood.monitor import RateMonitor
from skood.persistence import dump, load
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from skood.stats._betting import CountBand, HedgedBand, beta_interval
from tests.monitor._vectors import VECTORS


def absolute(y, predicted):
    return np.abs(y - predicted)


def _risk(**options):
    return RateMonitor(quantity="selective_risk", bound=0.3, **options)


class Accepting:
    """A classifier of {0, 1}: rejects (-1) if the second feature is negative."""

    classes_ = np.array([0, 1])
    reject_label_ = -1
    rule = SimpleNamespace(risk_max=0.3, tpr_min=0.8)

    def predict(self, X):
        return np.where(X[:, 1] < 0, -1, X[:, 0]).astype(int)


# --- vectors --------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_log_martingale(side):
    data, expected = (VECTORS["M-rate"][key] for key in ("input", "expected"))
    values, probability = data["values"], np.array(data["probability"])
    monitor = _risk(side=side, loss=absolute, min_audit=0.2, time_scale=10)
    path = monitor.update_values(values, probability=probability)
    assert_allclose(path, expected[side], atol=1e-9)
    twin = clone(monitor)
    pieces = [
        twin.update_values(values[i : i + 4], probability=probability[i : i + 4])
        for i in range(0, 15, 4)
    ]
    assert_allclose(np.concatenate(pieces), path, atol=1e-12)
    assert twin.interval_ == pytest.approx(monitor.interval_)
    path = _risk(side="upper", loss=absolute).update_values(values)
    assert_allclose(path, expected["upper_pi_1_tau_1000"], atol=1e-9)


def test_interval_of_counts():
    cases = VECTORS["M-beta-cs"]["input"]["cases"]
    expected = VECTORS["M-beta-cs"]["expected"]["intervals"]
    for (successes, n, alpha), interval in zip(cases, expected, strict=True):
        assert_allclose(beta_interval(successes, n, alpha), interval, atol=1e-9)
    monitor = RateMonitor(bound=0.5)
    monitor.update_values(np.arange(20) < 3)
    assert_allclose(monitor.interval_, expected[3], atol=1e-9)
    assert monitor.estimate_ == 0.15
    exact = binomtest(3, 20).proportion_ci(0.95, method="exact")
    assert_allclose(monitor.recent_, exact, rtol=1e-9)
    assert_allclose(beta_interval(600, 2000, 0.05), [0.263, 0.339], atol=5e-4)


def _root(x, weight, alpha, sign):
    """The end of the hedged interval, by root finding in place of a grid."""

    def excess(m):
        gain = (x - m) / m if sign > 0 else (m - x) / (1 - m)
        products = [np.prod(1 + weight * 2.0**-i * gain) for i in range(1, 9)]
        return np.mean(products) - 2 / alpha

    return brentq(excess, 1e-4, 1 - 1e-4)


@pytest.mark.parametrize("name", ["weighted", "unweighted", "binary_unweighted"])
def test_interval_of_bounded_values(name):
    """Ends are the exact roots, rounded outward to the grid."""
    data = VECTORS["M-hedged-cs"]["input"]
    exact = VECTORS["M-hedged-cs"]["expected"][name]
    x = np.array(data["binary_values" if "binary" in name else "values"])
    probability = np.array(data["probability"]) if name == "weighted" else np.ones(15)
    least = 0.2 if name == "weighted" else 1.0
    weight = least / probability
    assert_allclose(
        [_root(x, weight, 0.1, 1), _root(x, weight, 0.1, -1)], exact, atol=1e-9
    )
    monitor = _risk(loss=absolute, min_audit=least, confidence_level=0.9)
    monitor.update_values(x, probability=probability)
    grid = np.sin(np.pi * np.arange(513) / 1024) ** 2
    low, high = monitor.interval_
    assert low == pytest.approx(grid[grid <= exact[0]].max())
    assert high == pytest.approx(grid[grid >= exact[1]].min())
    assert monitor.estimate_ == pytest.approx(np.average(x, weights=weight))
    assert monitor.recent_ is None


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000])
def test_hedged_interval_of_a_naive_loop(n):
    """Products of many samples, cut anywhere; lost ones, values 0, 1 and between."""
    rng = np.random.default_rng(n)
    x = rng.choice([0.0, 1.0, 0.3, 1e-9], n)
    weight, lost = rng.choice([0.0, 0.2, 1.0], n), rng.random(n) < 0.1
    band = HedgedBand.empty()
    for block in np.split(np.arange(n), [n // 3, n // 2]):
        band = band.extend(weight[block], x[block], lost[block])
    grid = np.sin(np.pi * np.arange(1, 512) / 1024) ** 2
    above, below = np.zeros((8, 511)), np.zeros((8, 511))
    for value, r, is_lost in zip(x, weight, lost, strict=True):
        bets = r * 0.5 ** np.arange(1, 9)[:, None]
        above += np.log1p(bets * ((0 if is_lost else value) / grid - 1))
        below += np.log1p(bets * ((0 if is_lost else 1 - value) / (1 - grid) - 1))
    assert_allclose(band.above, above, rtol=1e-11, atol=1e-11)
    assert_allclose(band.below, below, rtol=1e-11, atol=1e-11)


# --- exact enumerations ---------------------------------------------------------------


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("rate", [0.3, 0.15])
def test_mean_over_all_outcomes(side, rate):
    """E[M] = 1 at the bound, at most 1 inside; all 2^6 outcomes."""
    rate = rate if side == "upper" else 0.6 - rate if rate < 0.3 else rate
    mean = np.zeros(6)
    for outcome in product([0, 1], repeat=6):
        path = _risk(side=side, time_scale=3).update_values(outcome)
        probability = np.prod([rate if is_hit else 1 - rate for is_hit in outcome])
        mean += probability * np.exp(path)
    if rate == 0.3:
        assert_allclose(mean, 1, atol=1e-12)
    else:
        assert (np.diff(np.r_[1, mean]) < -1e-5).all()


def test_mean_over_all_outcomes_and_audits():
    """Audits with probabilities 1/2 and 1/4 in turn: weights keep E[M] = 1."""
    probability, mean = np.array([0.5, 0.25, 0.5]), 0.0
    for outcome in product([0, 1], repeat=3):
        for audited in product([False, True], repeat=3):
            chosen = np.array(audited)
            weight = np.prod([0.3 if is_hit else 0.7 for is_hit in outcome])
            weight *= np.prod(np.where(chosen, probability, 1 - probability))
            monitor = _risk(min_audit=0.25, time_scale=3)
            values = np.array(outcome)[chosen]
            path = monitor.update_values(values, probability=probability[chosen])
            mean += weight * np.exp(path[-1] if len(path) else 0)
    assert mean == pytest.approx(1, abs=1e-12)


# --- attacks --------------------------------------------------------------------------


def test_few_false_alarms_and_a_valid_interval():
    """At the bound, with changing order of samples; the interval at its worst time."""
    rng, alarms, misses = np.random.default_rng(0), 0, 0
    for _ in range(100):
        monitor = _risk(alpha=0.1, side="both", confidence_level=0.9)
        x = rng.random(600) < 0.3
        missed = False
        for at in range(0, 600, 60):
            monitor.update_values(x[at : at + 60])
            low, high = monitor.interval_
            missed |= not low <= 0.3 <= high
        misses += missed
        alarms += monitor.alarm_ is not None
    assert alarms <= 10
    assert misses <= 10


def test_alarm_and_restart():
    rng = np.random.default_rng(1)
    x = np.r_[rng.random(1000) < 0.3, rng.random(300) < 0.6]
    monitor = _risk()
    path = monitor.update_values(x)
    alarm = monitor.alarm_
    assert alarm.row == int((path >= np.log(100)).argmax()) + 1
    assert 980 <= alarm.start <= 1020
    assert (alarm.direction, alarm.shape) == ("upper", None)
    assert monitor.history_.row[-1] == 1300
    assert monitor.restart().alarm_ is None
    assert monitor.log_martingale_ == 0
    assert monitor.alarms_ == [alarm]
    both = _risk(side="both")
    both_path = both.update_values(x)
    assert both.alarm_.row == int((both_path >= np.log(200)).argmax()) + 1
    low = clone(monitor).set_params(side="lower")
    assert_allclose(both_path, np.maximum(path, low.update_values(x)))


def _with_waiting_labels(seed, *, is_wrong, n_restarts=1):
    """Return a monitor that is restarted while labels of errors wait for the first.

    All labels that waited are then used, and those of 300 samples after the restart.
    """
    monitor = RateMonitor(quantity="selective_risk", bound=0.3, estimator=Accepting())
    X, _ = _stream(600, seed=seed)
    predicted = monitor.estimator.predict(X)
    monitor.update(X[:300])
    ids = np.fromiter(monitor.stage_.pending, dtype=int)
    label = np.where(is_wrong(ids), 1 - predicted[ids - 1], predicted[ids - 1])
    monitor.add_labels(ids[1:], label[1:])
    for _ in range(n_restarts):
        monitor.restart()
    monitor.add_labels(ids[:1], label[:1])
    return monitor, label != predicted[ids - 1]


@pytest.mark.parametrize("n_restarts", [0, 1, 2])
def test_restart_with_labels_that_wait(n_restarts):
    """The user has seen the labels that wait: they are no evidence after a restart."""
    monitor, errors = _with_waiting_labels(
        0, is_wrong=lambda ids: ids > 1, n_restarts=n_restarts
    )
    assert monitor.n_pending_ == 0
    assert monitor.estimate_ == pytest.approx(errors.mean())  # they are used here
    assert monitor.n_audited_ == len(errors)
    if n_restarts == 0:
        assert monitor.alarm_ is not None
        return
    assert monitor.log_martingale_ == pytest.approx(0, abs=1e-12)
    assert monitor.alarm_ is None
    before = monitor.n_seen_
    audit = monitor.update(np.zeros((40, 2)))
    late = audit.ids[audit.audited]
    predicted = monitor.estimator.predict(np.zeros((1, 2)))[0]
    monitor.add_labels(late, np.full(len(late), 1 - predicted))
    assert monitor.alarm_.start > before


def test_labels_that_arrive_after_a_restart():
    """Samples before a restart are no evidence, whenever their labels arrive."""
    X, _ = _stream()
    monitor = RateMonitor(Accepting(), "ood_fraction", 0.2)
    audit = monitor.update(X[:100])
    monitor.restart()
    after = monitor.update(X[100:])
    monitor.add_labels(audit.ids, np.full(100, 7))  # all OOD
    assert monitor.log_martingale_ == pytest.approx(0, abs=1e-12)
    assert monitor.estimate_ == 1
    monitor.add_labels(after.ids, np.full(200, 7))
    assert monitor.alarm_.start > 100


def test_excluded_samples_change_nothing_but_the_clock():
    x, included = np.array([1, 0, 1, 1]), np.array([True, False, True, False])
    monitor = _risk(time_scale=5)
    monitor.update_values(x, included=included)
    assert monitor.estimate_ == 1
    assert monitor.stage_.band == CountBand(2, 2)
    assert monitor.n_audited_ == 4


# --- audits and labels ----------------------------------------------------------------


def _stream(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 2, n), rng.normal(size=n) + 1])
    y = np.where(rng.random(n) < 0.2, 1 - X[:, 0], X[:, 0]).astype(int)
    y[rng.random(n) < 0.1] = 7  # an unknown class
    return X, y


def _by_hand(quantity, X, y):
    """Values and included samples, from the definitions."""
    accepted, is_id = X[:, 1] >= 0, y != 7
    return {
        "tpr": (accepted, is_id),
        "fpr": (accepted, ~is_id),
        "ood_fraction": (~is_id, np.ones(len(y), dtype=bool)),
        "selective_risk": (y != X[:, 0], accepted & is_id),
        "precision": (is_id, accepted),
    }[quantity]


@pytest.mark.parametrize(
    "quantity", ["tpr", "fpr", "ood_fraction", "selective_risk", "precision"]
)
def test_quantities(quantity):
    X, y = _stream()
    monitor = RateMonitor(Accepting(), quantity, 0.5, audit=0.5, random_state=0)
    audits = [monitor.update(batch) for batch in np.split(X, [100, 101])]
    ids = np.concatenate([audit.ids for audit in audits])
    audited = np.concatenate([audit.audited for audit in audits])
    assert_array_equal(ids, np.arange(1, 301))
    assert_array_equal(monitor.n_pending_, audited.sum())
    monitor.add_labels(ids[audited], y[audited])
    x, included = _by_hand(quantity, X, y)
    used = included & audited
    assert monitor.estimate_ == pytest.approx(x[used].mean())
    assert 0.3 * included.sum() < used.sum() < 0.7 * included.sum()
    by_hand = RateMonitor(None, quantity, 0.5)
    by_hand.update_values(x[audited], included=included[audited])
    assert monitor.log_martingale_ == pytest.approx(by_hand.log_martingale_, abs=1e-12)
    assert monitor.interval_ == pytest.approx(by_hand.interval_)
    again = clone(monitor)
    assert_array_equal(again.update(X).audited, audited)


def test_acceptance_needs_no_labels():
    X, _ = _stream()
    monitor = RateMonitor(Accepting(), bound=0.95)
    assert not monitor.update(X).audited.any()
    assert monitor.estimate_ == np.mean(X[:, 1] >= 0)
    assert monitor.alarm_.direction == "lower"


def test_late_labels_in_any_order(tmp_path):
    """Labels wait for labels of earlier samples, also through a pickle and a file."""
    X, y = _stream()
    monitor = RateMonitor(Accepting(), "selective_risk")
    audit = monitor.update(X)
    assert monitor.bound_ == 0.3  # of the rule
    ids = audit.ids[audit.audited]
    order = np.random.default_rng(0).permutation(ids[1:])
    monitor.add_labels(order, y[order - 1])
    assert monitor.n_audited_ == 0
    assert monitor.log_martingale_ == 0
    in_order = RateMonitor(Accepting(), "selective_risk")
    in_order.update(X)
    in_order.add_labels(ids, y[ids - 1])
    pickled = pickle.loads(pickle.dumps(monitor))
    for each in (monitor, pickled):
        each.add_labels(ids[:1], y[ids[:1] - 1])
        assert each.n_pending_ == 0
        assert_allclose(each.history_.log_martingale, in_order.history_.log_martingale)
    plain = _risk()
    plain.update_values(np.arange(30) % 3 == 0)
    dump(plain, tmp_path / "rates.skood")
    loaded = load(tmp_path / "rates.skood")
    assert_array_equal(
        loaded.update_values(np.ones(5)), plain.update_values(np.ones(5))
    )


def test_written_off():
    """A lost label is harmless to the alarm, and the interval covers both values."""
    X, y = _stream()
    monitor = RateMonitor(Accepting(), "ood_fraction", 0.2, side="both")
    audit = monitor.update(X)
    lost = audit.ids[::10]
    answered = np.setdiff1d(audit.ids, lost)
    monitor.add_labels(answered, y[answered - 1])
    monitor.write_off(lost)
    assert monitor.n_pending_ == 0
    ends = []
    for value in (0, 1):  # both completions
        x = (y == 7).astype(float)
        x[lost - 1] = value
        side = ("upper", "lower")[value]
        twin = RateMonitor(None, "ood_fraction", 0.2, side)
        path = twin.update_values(x)[-1]
        capital = monitor.stage_.capitals[1 - value]  # lower, upper
        assert capital.log_martingale == pytest.approx(path, abs=1e-12)
        ends.append(twin.interval_[value])
    assert monitor.interval_ == pytest.approx(ends)
    band = HedgedBand.empty().extend(
        np.ones(4), np.array([0, 1, 0.5, 0]), np.array([False, False, False, True])
    )
    assert band.estimate == 0.5


def test_max_delay():
    X, y = _stream(100)
    monitor = RateMonitor(Accepting(), "ood_fraction", 0.2, max_delay=10)
    monitor.update(X[:50])
    assert monitor.n_audited_ == 39
    assert monitor.n_pending_ == 11
    with pytest.raises(ValueError, match="Sample 5 does not wait for a label"):
        monitor.add_labels([45, 5], y[[44, 4]])
    assert monitor.stage_.pending[45][3] is None  # no label was used
    monitor.add_labels(np.arange(40, 51), y[39:50])
    assert monitor.n_pending_ == 0


def test_probabilities_that_follow_the_risk():
    """Weights 1 / pi undo an audit of the risky samples; without them it alarms."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.zeros(8000), np.ones(8000), rng.random(8000) < 0.3])
    y = (rng.random(8000) < np.where(X[:, 2], 0.7, 0.1)).astype(int)

    def audit(X):
        return np.where(X[:, 2], 1.0, 0.1)

    monitor = RateMonitor(
        Accepting(), "selective_risk", audit=audit, min_audit=0.1, random_state=0
    )
    chosen = monitor.update(X)
    ids = chosen.ids[chosen.audited]
    monitor.add_labels(ids, y[ids - 1])
    assert monitor.alarm_ is None
    low, high = monitor.interval_
    assert low < 0.28 < high < 0.4  # the risk is 0.3 * 0.7 + 0.7 * 0.1
    plain = _risk()
    plain.update_values(y[ids - 1])
    assert plain.alarm_ is not None


def test_errors():
    with pytest.raises(ValueError, match="bound=None needs an estimator whose rule"):
        RateMonitor().update_values([1])
    with pytest.raises(ValueError, match=r"update\(X\) needs an estimator"):
        _risk().update(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="audit is a callable, which needs min_audit"):
        _risk(audit=len).update_values([1])
    with pytest.raises(ValueError, match=r"Values must be in \[0, 1\].*0.0 to 2.0"):
        _risk().update_values([0, 2])
    with pytest.raises(ValueError, match="'selective_risk' must be 0 or 1, got"):
        _risk().update_values([0, 0.5])
    with pytest.raises(ValueError, match=r"Probabilities of audits must .* \(1,\)"):
        _risk(min_audit=0.5).update_values([1], probability=[0.2])
    with pytest.raises(ValueError, match=r"included must be bool, of shape \(2,\)"):
        _risk().update_values([0, 1], included=[1])
    monitor = RateMonitor(Accepting(), "fpr", 0.5)
    monitor.update(_stream(10)[0])
    with pytest.raises(ValueError, match=r"y must have the shape \(1,\)"):
        monitor.add_labels(1, "a")
    with pytest.raises(ValueError, match="ids must differ"):
        monitor.add_labels([1, 1], [0, 0])
    with pytest.raises(ValueError, match=r"y must have the shape \(2,\)"):
        monitor.add_labels([1, 2], [0])
    with pytest.raises(ValueError, match="would overtake 10 audited samples"):
        monitor.update_values([1])
    assert monitor.n_pending_ == 10


# --- histories, copies, pooled monitors -----------------------------------------------


@pytest.mark.parametrize("options", [{}, {"loss": absolute, "min_audit": 1.0}])
def test_history_of_the_interval(options):
    """It does not depend on how the stream is cut, and ends with the interval now."""
    x = np.random.default_rng(0).integers(0, 2, 500)
    whole = _risk(**options)
    whole.update_values(x)
    single = _risk(**options)
    for value in x:
        single.update_values([value])
    history, other = whole.history_, single.history_
    for name in ("interval_row", "estimate", "low", "high", "row", "log_martingale"):
        assert_allclose(history[name], other[name], atol=1e-10)
    assert len(history.interval_row) == 32 + 16 * 3 + 16
    for n in (7, 40, 500):
        alone = _risk(**options)
        alone.update_values(x[:n])
        at = history.interval_row == n
        assert (history.low[at], history.high[at]) == pytest.approx(alone.interval_)
        assert history.estimate[at] == pytest.approx(x[:n].mean())


def test_copies_have_separate_histories():
    monitor = _risk()
    monitor.update_values(np.arange(10) % 2)
    twin = copy(monitor)
    monitor.update_values(np.ones(20))
    expected = twin.history_.log_martingale
    path = twin.update_values(np.zeros(20))
    assert_array_equal(twin.history_.log_martingale, np.r_[expected, path])
    assert monitor.n_audited_ == 30
    assert monitor.history_.log_martingale[-1] == monitor.log_martingale_


@pytest.mark.parametrize("options", [{}, {"loss": absolute, "min_audit": 0.5}])
def test_pooled(options):
    """Monitors of three parts of a stream have the interval of the whole."""
    rng = np.random.default_rng(1)
    x, pi = rng.integers(0, 2, 90), rng.choice([0.5, 1.0], 90) if options else None
    parts = [_risk(audit=1.0, **options) for _ in range(3)]
    whole = clone(parts[0])
    whole.update_values(x, probability=pi)
    for k, monitor in enumerate(parts):
        monitor.update_values(x[k::3], probability=None if pi is None else pi[k::3])
    pooled = parts[0].pooled(*parts[1:])
    assert pooled.estimate == pytest.approx(whole.estimate_, rel=1e-12)
    assert pooled.interval == pytest.approx(whole.interval_, rel=1e-12)
    assert pooled.n_audited == 90
    assert parts[0].n_audited_ == 30
    with pytest.raises(ValueError, match=r"Pooled monitors must have the same.*'fpr'"):
        parts[0].pooled(RateMonitor(quantity="fpr", bound=0.3))
    with pytest.raises(ValueError, match=r"same quantity, bound.*0\.3.*0\.4"):
        parts[0].pooled(clone(parts[1]).set_params(bound=0.4))
    for same in (parts[0], copy(parts[0]), parts[1]):
        with pytest.raises(ValueError, match="samples twice"):
            parts[0].pooled(parts[1], same)


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_kinds_of_samples_and_labels():
    """Frames, tensors and lists give the monitor of arrays, a sample a call as well."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)).astype(np.float32).astype(np.float64)
    y = (X[:, 0] > 0).astype(int) ^ (rng.uniform(size=300) < 0.1)
    classifier = RejectOptionClassifier(
        LogisticRegression(), rule=BoundedAbstention(0.9), random_state=0
    ).fit(X[:150], y[:150])
    X, y = X[150:], y[150:]
    kinds = (
        (X, y),
        (X.astype(np.float32), pd.Series(y, index=np.arange(150)[::-1])),
        (pd.DataFrame(X, columns=["a", "b"]), y.tolist()),
        (torch.tensor(X), torch.tensor(y)),
    )
    monitors = []
    for samples, labels in kinds:
        monitor = RateMonitor(
            classifier,
            quantity="selective_risk",
            bound=0.3,
            audit=0.5,
            random_state=0,
        )
        for block in [slice(i, i + 1) for i in range(20)] + [slice(20, None)]:
            batch = samples.iloc[block] if hasattr(samples, "iloc") else samples[block]
            audit = monitor.update(batch)
            ids = audit.ids[audit.audited]
            if isinstance(labels, list):
                audited_labels = [labels[i] for i in ids - 1]
            else:
                audited_labels = getattr(labels, "iloc", labels)[ids - 1]
            monitor.add_labels(ids, audited_labels)
        monitors.append(monitor)
    assert 0 < monitors[0].n_audited_ < 150
    for monitor in monitors[1:]:
        assert monitor.n_audited_ == monitors[0].n_audited_
        assert monitor.interval_ == monitors[0].interval_
        assert_array_equal(
            monitor.history_.log_martingale, monitors[0].history_.log_martingale
        )
