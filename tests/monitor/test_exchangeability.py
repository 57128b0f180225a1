"""ExchangeabilityMonitor: vectors, exact enumerations, and attacks on each promise."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
from collections import Counter
from copy import copy
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from skood.monitor import Alarm, ExchangeabilityMonitor, detectable_shift
from skood.persistence import dump, load
from skood.stats._betting import MAX_BLOCKS
from skood.stats._reference_ranks import SHAPES, bet_table, tied_ranks
from tests._loops import looped
from tests.monitor._vectors import VECTORS, long_stream

INSTANCES = [ExchangeabilityMonitor(KNN(n_neighbors=2), random_state=0)]

few = pytest.mark.filterwarnings("ignore:Only .* calibration samples")
RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=400)


def _pieces(monitor, scores, cuts):
    return np.concatenate([monitor.update(piece) for piece in np.split(scores, cuts)])


# --- vectors --------------------------------------------------------------------------


def test_bet_table():
    expected = VECTORS["M-table"]["expected"]
    assert_allclose(bet_table(4), expected["ood"], rtol=1e-9)
    assert_allclose(bet_table(4, "any")[7:], expected["any_rows_8_to_14"], rtol=1e-9)
    assert_allclose(bet_table(4, "id"), expected["any_rows_8_to_14"], rtol=1e-9)


def test_bets_have_unit_mean_and_are_monotone():
    table = bet_table(100_000)
    assert_allclose(table.sum(axis=1), 100_001, rtol=1e-12)
    assert table.min() > 0
    assert (np.diff(bet_table(1000), axis=1) < 0).all()


def test_ranks_with_ties():
    data = VECTORS["M-index"]["input"]
    order = np.lexsort((data["calibration_tie"], data["calibration"]))
    calibration, ties = (
        np.array(data[name])[order] for name in ("calibration", "calibration_tie")
    )
    ranks = tied_ranks(
        calibration, ties, np.array(data["scores"]), np.array(data["tie"])
    )
    assert_array_equal(ranks, VECTORS["M-index"]["expected"]["index"])


@few
@pytest.mark.parametrize("alternative", ["ood", "id", "any"])
@pytest.mark.parametrize("time_scale", [10, 1000])
def test_log_martingale(alternative, time_scale):
    data, expected = (VECTORS["M-monitor"][key] for key in ("input", "expected"))
    monitor = ExchangeabilityMonitor(
        alternative=alternative, time_scale=time_scale, alpha=0.2
    ).fit(data["calibration"])
    path = monitor.update(data["scores"])
    expected = expected[f"{alternative}_tau{time_scale}"]
    assert_allclose(path, expected["log_martingale"], atol=1e-9)
    assert monitor.alarm_ is None
    assert monitor.log_martingale_ == path[-1]
    assert monitor.max_log_martingale_ == max(0, path.max())


@few
def test_log_statistic_of_the_e_detector():
    data, expected = (VECTORS["M-monitor"][key] for key in ("input", "expected"))
    monitor = ExchangeabilityMonitor(guarantee="run_length").fit(data["calibration"])
    expected = expected["run_length_log_statistic_ood"]
    assert_allclose(monitor.update(data["scores"]), expected, atol=1e-9)


@few
def test_conservative_ties():
    data, expected = (VECTORS["M-conservative"][key] for key in ("input", "expected"))
    monitor = ExchangeabilityMonitor(time_scale=10, ties="conservative")
    path = monitor.fit(data["calibration"]).update(data["scores"])
    assert_allclose(path, expected["log_martingale"], atol=1e-9)


@looped("cuts", [[], [1, 2, 50, 51, 130], range(1, 200)])
@looped("name", ["ood", "id", "any", "run_length_1e4_ood"])
def test_long_stream_in_pieces(name, cuts):
    expected = VECTORS["M-long"]["expected"][name]
    options = {"alternative": name}
    if name not in ("ood", "id", "any"):
        options = {"guarantee": "run_length", "run_length": 1e4}
    calibration, scores = long_stream()
    monitor = ExchangeabilityMonitor(**options).fit(calibration)
    path = _pieces(monitor, scores, cuts)
    values = next(value for key, value in expected.items() if "at_50" in key)
    assert_allclose(path[[49, 99, 149, 199]], values, atol=1e-9)
    if "maximum" in expected:
        assert_allclose(path.max(), expected["maximum"], atol=1e-9)
        assert path.argmax() + 1 == expected["row_of_maximum"]
    if expected["alarm"] is None:
        assert monitor.alarm_ is None
        return
    alarm = monitor.alarm_
    assert (alarm.row, alarm.start) == tuple(
        expected["alarm"][key] for key in ("row", "start")
    )
    assert alarm.shape == SHAPES[expected["alarm"]["shape"]] == "shift 0.5"
    assert alarm.direction == "ood"
    assert alarm.log_evidence == pytest.approx(path[alarm.row - 1], abs=1e-12)


# --- exact enumerations ---------------------------------------------------------------


def _probabilities():
    """Probability of each sequence of four ranks among three, over all 7! orders."""
    count = Counter(
        tuple(sum(c < x for c in order[:3]) for x in order[3:])
        for order in permutations(range(7))
    )
    return {ranks: number / 5040 for ranks, number in count.items()}


PROBABILITIES = _probabilities()


@few
@pytest.mark.parametrize("alternative", ["ood", "any"])
@pytest.mark.parametrize("batch", [1, 4])
def test_every_conditional_mean_is_exact(alternative, batch):
    """E[M_t | ranks before] = M_{t-1}, for all orders of three and four samples."""
    assert len(PROBABILITIES) == 4**4
    options = {"alternative": alternative, "time_scale": 3}
    fresh = ExchangeabilityMonitor(**options).fit([0.0, 1.0, 2.0])
    paths = {}
    for ranks in PROBABILITIES:
        monitor = pickle.loads(pickle.dumps(fresh))
        scores = np.array(ranks) - 0.5
        cuts = range(1, 4) if batch == 1 else []
        paths[ranks] = np.exp([0, *_pieces(monitor, scores, cuts)])
    for t in range(1, 5):
        mean = sum(p * paths[ranks][t] for ranks, p in PROBABILITIES.items())
        assert mean == pytest.approx(1, abs=1e-12)
        for before in product(range(4), repeat=t - 1):
            same = [ranks for ranks in paths if ranks[: t - 1] == before]
            weight = np.array([PROBABILITIES[ranks] for ranks in same])
            mean = np.dot(weight, [paths[ranks][t] for ranks in same]) / weight.sum()
            assert mean == pytest.approx(paths[same[0]][t - 1], abs=1e-12)


@few
def test_mean_of_the_e_detector_and_of_a_restart_are_exact():
    """E[R_t] = t; after a restart E[M_t | ranks before] = 1."""
    detector = ExchangeabilityMonitor(guarantee="run_length").fit([0.0, 1.0, 2.0])
    restarted = ExchangeabilityMonitor(time_scale=3).fit([0.0, 1.0, 2.0])
    paths, later = {}, {}
    for ranks in PROBABILITIES:
        scores = np.array(ranks) - 0.5
        paths[ranks] = np.exp(pickle.loads(pickle.dumps(detector)).update(scores))
        monitor = pickle.loads(pickle.dumps(restarted)).partial_fit(scores[:2])
        later[ranks] = np.exp(monitor.restart().update(scores[2:]))
    for t in range(4):
        mean = sum(p * paths[ranks][t] for ranks, p in PROBABILITIES.items())
        assert mean == pytest.approx(t + 1, abs=1e-12)
    for before in product(range(4), repeat=2):
        same = [ranks for ranks in paths if ranks[:2] == before]
        weight = np.array([PROBABILITIES[ranks] for ranks in same])
        mean = weight @ np.array([later[ranks] for ranks in same]) / weight.sum()
        assert_allclose(mean, 1, atol=1e-12)


# --- attacks --------------------------------------------------------------------------


def test_few_false_alarms_with_a_small_calibration_set():
    """The level holds for n = 30, where a fixed set alarms in a third of streams."""
    rng, alarms = np.random.default_rng(1), 0
    for seed in range(200):
        monitor = ExchangeabilityMonitor(alpha=0.1, random_state=seed)
        scores = rng.standard_cauchy(size=1030).round(1)  # heavy tails and ties
        alarms += monitor.fit(scores[:30]).partial_fit(scores[30:]).alarm_ is not None
    assert alarms / 200 <= 0.1


def test_polarity():
    """Lower scores are evidence for "ood", higher ones for "id", both for "any"."""
    for alternative, direction, moves in [
        ("ood", "ood", -1),
        ("id", "id", 1),
        ("any", "ood", -1),
        ("any", "id", 1),
    ]:
        monitor = ExchangeabilityMonitor(alternative=alternative, random_state=0)
        monitor.fit(NORMAL[:300]).update(NORMAL[300:] + 2 * moves)
        assert monitor.alarm_.direction == direction
        assert monitor.alarm_.start == 1
    monitor = ExchangeabilityMonitor(random_state=0).fit(NORMAL[:300])
    assert monitor.update(NORMAL[300:] + 2).max() < 0


def _naive(monitor, calibration, scores, time_scale):
    """Loop over one sample at a time, in linear numbers, by the definitions."""
    n, table, weight = len(calibration), bet_table(len(calibration)), 1 / 7
    total = [float(n + 1)] * 7
    capital, products, path = [0.0] * 7, [[] for _ in range(7)], []

    def wait(t):
        return 1 / (1 + np.log(1 + t / time_scale))

    for t, score in enumerate(scores, 1):
        j = sum(calibration < score)
        for k in range(7):
            bet = table[k][j] * (n + t) / total[k]
            total[k] += table[k][j]
            capital[k] = bet * (capital[k] + wait(t - 1) - wait(t))
            products[k] = [
                bet * weight for weight in [*products[k], wait(t - 1) - wait(t)]
            ]
        path.append(wait(t) + weight * sum(capital))
        if path[-1] >= 1 / monitor.alpha:
            k = int(np.argmax(capital))
            start = int(np.argmax(products[k])) + 1
            return path, Alarm(t, start, "ood", SHAPES[k], np.log(path[-1]))
    return path, None


def test_alarm_of_a_naive_loop():
    scores = np.r_[NORMAL[40:100], NORMAL[100:160] - 1.5]
    monitor = ExchangeabilityMonitor(time_scale=50, random_state=0).fit(NORMAL[:40])
    path, alarm = _naive(monitor, NORMAL[:40], scores, 50)
    log_path = monitor.update(scores)
    assert_allclose(log_path[: len(path)], np.log(path), atol=1e-10)
    assert monitor.alarm_ == Alarm(
        **{**vars(alarm), "log_evidence": monitor.alarm_.log_evidence}
    )
    assert monitor.alarm_.log_evidence == pytest.approx(alarm.log_evidence, abs=1e-10)
    assert 55 <= alarm.start <= 65


@pytest.mark.parametrize("options", [{}, {"every": 3}, {"ties": "conservative"}])
def test_results_do_not_depend_on_batches(options):
    """Ties, chunks of 4096 and merged blocks of the history included."""
    rng = np.random.default_rng(2)
    scores = np.r_[rng.normal(size=9000), rng.normal(size=500) - 0.5].round(1)
    monitors = []
    for cuts in ([], [1], np.sort(rng.choice(9500, size=40))):
        monitor = ExchangeabilityMonitor(random_state=0, **options)
        monitor.fit(NORMAL.round(1))
        monitors.append((_pieces(monitor, scores, cuts), monitor))
    (path, first), *others = monitors
    assert first.alarm_.row > 9000
    for other_path, other in others:
        assert_allclose(other_path, path, atol=1e-10)
        assert other.alarms_[0].start == first.alarm_.start
        assert_allclose(
            other.history_.log_martingale, first.history_.log_martingale, atol=1e-10
        )
        assert_array_equal(other.history_.row, first.history_.row)
        assert other.n_seen_ == 9500


def test_history_is_bounded_and_exact():
    monitor = ExchangeabilityMonitor(random_state=0).fit(NORMAL)
    scores = np.random.default_rng(3).normal(size=5000)
    path = _pieces(monitor, scores, [1, 2, 2046, 2047, 2048, 2049, 4095, 4800])
    history = monitor.history_
    assert len(history.row) == 1250 <= MAX_BLOCKS  # blocks of four
    assert_array_equal(history.row, np.arange(4, 5001, 4))
    assert_array_equal(history.log_martingale, path[3::4])
    assert_array_equal(history.largest, path.reshape(-1, 4).max(axis=1))
    monitor.update(scores[:1])
    assert monitor.history_.row[-1] == 5001
    assert monitor.history_.largest[-1] == monitor.log_martingale_


def test_every():
    """Skipped samples change nothing but the count."""
    scores = np.r_[NORMAL[:100], NORMAL[100:200] - 2]
    every = ExchangeabilityMonitor(every=3, random_state=0).fit(NORMAL)
    thinned = ExchangeabilityMonitor(random_state=0).fit(NORMAL[::3])
    path = _pieces(every, scores, [1, 2, 3, 7, 100, 101])
    expected = thinned.update(scores[::3])
    assert every.n_calibration_ == thinned.n_calibration_ == 134
    assert_allclose(path, np.repeat(expected, 3)[:200], atol=1e-10)
    assert every.alarm_.row == 3 * thinned.alarm_.row - 2
    assert every.alarm_.start == 3 * thinned.alarm_.start - 2
    assert every.n_seen_ == 200


def test_shuffle():
    """A batch sorted by score is no evidence once it is permuted."""
    rng = np.random.default_rng(4)
    batches = [np.sort(rng.normal(size=500))[::-1] for _ in range(10)]
    paths = {}
    for shuffle in (False, True):
        monitor = ExchangeabilityMonitor(shuffle=shuffle, random_state=0).fit(NORMAL)
        paths[shuffle] = np.concatenate([monitor.update(batch) for batch in batches])
    assert paths[False].max() > np.log(100)
    assert paths[True].max() < 1


@pytest.mark.parametrize("alternative", ["ood", "any"])
def test_conservative_is_never_above_a_random_ranking(alternative):
    rng = np.random.default_rng(5)
    calibration, scores = rng.integers(0, 4, 60), rng.integers(-1, 4, 200) * 0.999
    scores[::2] = rng.integers(0, 4, 100)
    options = {"alternative": alternative}
    low = ExchangeabilityMonitor(ties="conservative", **options).fit(calibration)
    low = low.update(scores)
    for seed in range(20):
        monitor = ExchangeabilityMonitor(random_state=seed, **options)
        path = monitor.fit(calibration).update(scores)
        assert (low <= path + 1e-12).all()
        assert (low < path - 1e-6).any()


def test_constant_scores_are_no_evidence():
    monitor = ExchangeabilityMonitor(random_state=0).fit(np.zeros(100))
    assert monitor.update(np.zeros(5000)).max() < np.log(100)
    assert monitor.alarm_ is None


def test_very_strong_evidence_stays_finite():
    """The range of the sums exceeds floating-point numbers: logarithms are used."""
    monitor = ExchangeabilityMonitor(random_state=0).fit(np.arange(10_000.0))
    single = ExchangeabilityMonitor(random_state=0).fit(np.arange(10_000.0))
    scores = np.r_[np.full(400, 2e4), np.full(500, -np.inf), np.full(100, np.inf)]
    path = monitor.update(scores)
    assert path[899] > 1000
    assert_allclose(_pieces(single, scores, range(1, 1000)), path, rtol=1e-10)
    assert monitor.alarm_.start == 401


def test_restart():
    calibration, scores = long_stream()
    monitor = ExchangeabilityMonitor(random_state=0).fit(calibration)
    monitor.update(scores)
    (first,) = monitor.alarms_
    monitor.update(scores[100:])
    assert monitor.alarm_ == first  # one alarm until the restart
    assert monitor.restart() is monitor
    assert monitor.alarm_ is None
    assert monitor.log_martingale_ == monitor.max_log_martingale_ == 0
    path = monitor.update(scores[100:] - 3)
    assert monitor.alarms_ == [first, monitor.alarm_]
    assert monitor.alarm_.row == 301 + int((path >= np.log(100)).argmax())
    assert 301 <= monitor.alarm_.start <= monitor.alarm_.row
    assert monitor.fit(calibration).alarms_ == []


def test_failed_and_interrupted_updates_change_nothing():
    calls = []

    def score(X):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(1)
        return X[:, 0]

    monitor = ExchangeabilityMonitor(score, random_state=0).fit(NORMAL[:, None])
    monitor.update(NORMAL[:50, None])
    before = monitor.progress_
    with pytest.raises(KeyboardInterrupt):
        monitor.update(NORMAL[:50, None])
    assert monitor.progress_ is before
    plain = ExchangeabilityMonitor(random_state=0).fit(NORMAL)
    twin = ExchangeabilityMonitor(random_state=0).fit(NORMAL)
    bad = np.r_[NORMAL, np.nan]
    message = "X of a monitor without a detector contains 1 NaN among 401 values"
    with pytest.raises(ValueError, match=message):
        plain.update(bad)
    assert plain.n_seen_ == 0
    assert_array_equal(plain.update(NORMAL), twin.update(NORMAL))
    with pytest.raises(ValueError, match=message):
        plain.fit(bad)
    assert plain.n_seen_ == 400


def test_pickled_and_saved_in_mid_stream(tmp_path):
    scores = (NORMAL - 0.3).round(1)
    monitor = ExchangeabilityMonitor(random_state=0).fit(NORMAL.round(1))
    monitor.update(scores[:130])
    stored = pickle.dumps(monitor)
    assert len(stored) < 145_000
    dump(monitor, tmp_path / "monitor.skood")
    copies = [pickle.loads(stored), load(tmp_path / "monitor.skood")]
    path = monitor.update(scores[130:])
    for copied in copies:
        assert_array_equal(copied.update(scores[130:]), path)
        assert copied.alarm_ == monitor.alarm_
        assert_array_equal(copied.history_.row, monitor.history_.row)


def test_copies_have_separate_histories():
    monitor = ExchangeabilityMonitor(random_state=0).fit(NORMAL)
    before = monitor.update(NORMAL[:3])
    twin = copy(monitor)
    paths = [
        np.r_[before, copied.update(NORMAL[block])]
        for copied, block in [(monitor, slice(3, 4)), (twin, slice(10, 60))]
    ]
    paths[0] = np.r_[paths[0], monitor.update(NORMAL[4:50])]
    for copied, path in zip((monitor, twin), paths, strict=True):
        assert_array_equal(copied.history_.log_martingale, path)
        assert copied.log_martingale_ == path[-1]


@few
def test_two_calibration_samples():
    """The level holds with the least number of samples."""
    alarms = 0
    rng = np.random.default_rng(7)
    for seed in range(100):
        monitor = ExchangeabilityMonitor(alpha=0.1, random_state=seed)
        monitor.fit(rng.normal(size=2)).update(rng.normal(size=500))
        alarms += monitor.alarm_ is not None
    assert alarms <= 10


def test_single_samples_with_ties_and_infinite_scores():
    """The path of small calls is the path of a batch, alarm and start included."""
    rng = np.random.default_rng(8)
    levels = np.array([-np.inf, -1.0, 0.0, 0.0, 1.0, np.inf])
    calibration = rng.choice(levels, 60)
    scores = np.r_[rng.choice(levels, 300), np.full(40, -np.inf)]
    whole, single = (
        ExchangeabilityMonitor(random_state=0).fit(calibration) for _ in range(2)
    )
    path = whole.update(scores)
    assert_allclose(_pieces(single, scores, range(1, 340)), path, atol=1e-10)
    assert 300 < single.alarm_.row == whole.alarm_.row <= 340
    assert single.alarm_.start == whole.alarm_.start
    assert np.isfinite(path).all()


def test_repeated_samples_break_the_promise():
    """As the guide states: every sample five times raises an alarm."""
    n_alarms = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        monitor = ExchangeabilityMonitor(random_state=seed).fit(rng.normal(size=1000))
        monitor.update(np.repeat(rng.normal(size=2000), 5))
        n_alarms += monitor.alarm_ is not None
    assert n_alarms == 10


# --- interface ------------------------------------------------------------------------


def test_detectors():
    """A detector is fitted on half of the samples; a frozen one is not."""
    rng = np.random.default_rng(6)
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(100, 2)) + 3
    knn = KNN(n_neighbors=5, normalize=False)
    fitted = ExchangeabilityMonitor(knn, random_state=0).fit(X)
    assert fitted.n_calibration_ == 150
    assert fitted.n_features_in_ == 2
    assert not hasattr(knn, "offset_")
    share = ExchangeabilityMonitor(knn, calibration=0.2, random_state=0).fit(X)
    assert share.n_calibration_ == 60
    frozen = FrozenEstimator(clone(knn).fit(X))
    scores = frozen.score_samples(new)
    monitor = ExchangeabilityMonitor(frozen, random_state=0).fit(new)
    assert monitor.n_calibration_ == 100
    by_hand = ExchangeabilityMonitor(frozen.score_samples, random_state=0).fit(new)
    plain = ExchangeabilityMonitor(random_state=0).fit(scores)
    path = plain.update(frozen.score_samples(X))
    assert_array_equal(monitor.update(X), path)
    assert_array_equal(by_hand.update(X), path)
    assert fitted.partial_fit(new).alarm_.start == 1


def test_kinds_of_scores():
    """Arrays, columns, lists, series, frames and tensors, in single precision too."""
    scores = NORMAL.astype(np.float32).astype(np.float64)
    paths = [
        ExchangeabilityMonitor(random_state=0).fit(scores).update(scores)
        for scores in (
            scores,
            scores[:, None],
            scores.tolist(),
            pd.Series(scores),
            pd.DataFrame({"score": scores}),
            torch.tensor(scores, dtype=torch.float32, requires_grad=True),
        )
    ]
    for path in paths:
        assert_array_equal(path, paths[0])


def test_empty_batches_and_first_partial_fit():
    monitor = ExchangeabilityMonitor(random_state=0).partial_fit(NORMAL)
    assert (monitor.n_seen_, monitor.n_calibration_) == (0, 400)
    before = monitor.progress_
    assert monitor.update([]).shape == (0,)
    assert monitor.progress_ is before
    assert monitor.history_.row.shape == (0,)


def test_warning_about_few_samples():
    message = r"Only 20 calibration samples.*shifts below 0.68 standard deviations"
    with pytest.warns(SkoodWarning, match=message):
        ExchangeabilityMonitor().fit(NORMAL[:20])


def test_errors():
    with pytest.raises(ValueError, match="at least 2 calibration samples, got n_sampl"):
        ExchangeabilityMonitor().fit([1.0])
    with pytest.raises(ValueError, match=r"n_samples=1 of 3 samples .every=5"):
        ExchangeabilityMonitor(every=5).fit([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"one score per sample.*got the shape .4, 2."):
        ExchangeabilityMonitor().fit(np.zeros((4, 2)))
    with pytest.raises(
        ValueError, match=r"The output of the detector must .*\(4,\), one"
    ):
        ExchangeabilityMonitor(lambda X: X.mean()).fit(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"got the class KNN. Write KNN"):
        ExchangeabilityMonitor(KNN).fit(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"'alpha' parameter .* must be .*Got 1"):
        ExchangeabilityMonitor(alpha=1).fit(NORMAL)
    with pytest.raises(NotFittedError):
        ExchangeabilityMonitor().update(NORMAL)


def test_detectable_shift():
    """Below it, even the best test has an expected log capital below log 1/alpha."""
    shift = detectable_shift(60, 0.01)
    assert 60 * shift**2 / 2 == pytest.approx(np.log(100))
    assert 60 * 0.25**2 / 2 < np.log(100) < 60 * 0.5**2 / 2
    with pytest.raises(ValueError, match="'alpha' parameter of detectable_shift"):
        detectable_shift(60, 0)
