"""MonitorPanel and e_bh: vectors, definitions, and culprits that are planted."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.detectors import KNN
from skood.monitor import (
    ExchangeabilityMonitor,
    MartingaleDisplay,
    MonitorPanel,
    RateMonitor,
    e_bh,
)
from skood.persistence import dump, load
from tests.monitor._vectors import VECTORS

INSTANCES = [
    MonitorPanel(
        [
            ("near", ExchangeabilityMonitor(KNN(n_neighbors=2), random_state=0)),
            ("far", ExchangeabilityMonitor(KNN(n_neighbors=4), random_state=1)),
        ]
    )
]

NAMES = ["a", "b", "c", "d"]


def _panel(**options):
    return MonitorPanel(
        [(name, ExchangeabilityMonitor(random_state=0)) for name in NAMES], **options
    )


def _scores(n, seed=0, moved=(), by=1.0):
    """Dependent scores, by name."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return {
        name: common + rng.normal(size=n) - by * np.sqrt(2) * (name in moved)
        for name in NAMES
    }


def test_e_bh():
    data, expected = (VECTORS["M-ebh"][key] for key in ("input", "expected"))
    assert_array_equal(e_bh(data["e"], data["fdr"]), expected["e_bh"])
    harmonic = (1 / np.arange(1, len(data["e"]) + 1)).sum()
    by = e_bh(np.array(data["e"]) / harmonic, data["fdr"])
    assert_array_equal(by, expected["by"])
    assert_array_equal(e_bh([1, 300, 40, 250, 3], 0.05), expected["e_bh_example"])
    assert e_bh([np.inf, 0.0]).tolist() == [True, False]
    assert e_bh([]).shape == (0,)
    assert e_bh([20.0, 20.0]).all()  # step-up: together, not the first alone
    assert not e_bh([39.9, 0]).any()
    with pytest.raises(ValueError, match="numbers that are not negative, got"):
        e_bh([-1.0, 3.0])


def test_alarm_and_culprit():
    """The alarm of the member whose maximum reaches K / alpha first."""
    panel = _panel().fit(_scores(300))
    paths = panel.update(_scores(1000, 1))
    assert panel.alarm_ is None
    assert panel.alarm_name_ is None
    assert panel.culprits_ == []
    assert panel.update(_scores(300, 2, moved="c"))["c"].shape == (300,)
    alone = ExchangeabilityMonitor(alpha=0.01 / 4, random_state=0)
    alone.fit(_scores(300)["c"])
    assert_allclose(alone.update(_scores(1000, 1)["c"]), paths["c"])
    alone.update(_scores(300, 2, moved="c")["c"])
    assert panel.alarm_ == alone.alarm_
    assert panel.alarm_.log_evidence >= np.log(400)
    assert panel.alarm_name_ == "c"
    assert panel.culprits_ == ["c"]
    table = panel.explain()
    assert table.name[0] == "c"
    assert table.named.tolist() == [True, False, False, False]
    assert 990 < table.start[0] < 1010
    assert table.direction[0] == "ood"
    assert table.largest[0] == alone.max_log_martingale_
    copy = pickle.loads(pickle.dumps(panel))
    assert copy.culprits_ == ["c"]
    assert copy.explain().equals(table)


def test_several_culprits():
    panel = _panel().fit(_scores(300)).partial_fit(_scores(300, 3, moved="ad"))
    assert sorted(panel.culprits_) == ["a", "d"]


@pytest.mark.parametrize("n_streams", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_few_false_alarms(n_streams):
    """Few calibration samples; dependent members, with ties and copies of scores."""
    n_alarms = 0
    for seed in range(n_streams):
        scores = {name: v.round() for name, v in _scores(830, seed).items()}
        scores["d"] = -scores["a"]
        panel = _panel(alpha=0.2).fit({k: v[:30] for k, v in scores.items()})
        panel.update({k: v[30:] for k, v in scores.items()})
        n_alarms += panel.alarm_ is not None
    assert 0 < n_alarms <= 0.2 * n_streams


def test_samples_of_detectors_and_rates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    panel = clone(INSTANCES[0]).fit(X)
    path = panel.update(X)
    assert path.shape == (200, 2)
    assert panel.n_features_in_ == 2
    mixed = MonitorPanel(
        [("score", ExchangeabilityMonitor()), ("rate", RateMonitor(bound=0.9))]
    ).fit({"score": X[:, 0]})
    mixed.update({"rate": rng.random(300) < 0.6})
    assert mixed.culprits_ == ["rate"]
    assert mixed.alarm_name_ == "rate"
    assert mixed.explain().direction[0] == "lower"


def _by_class(n, seed, moved=None):
    rng = np.random.default_rng(seed)
    predicted = rng.integers(0, 3, n)
    return np.column_stack([rng.normal(size=n) - 1.5 * (predicted == moved), predicted])


def test_classes():
    """Members run on their own samples; the alarm is of the mean of martingales."""
    template = ExchangeabilityMonitor(lambda X: X[:, 0], random_state=0)
    panel = MonitorPanel(template, by=lambda X: X[:, 1].astype(int))
    X = _by_class(300, 0)
    panel.fit(X)
    stream = np.vstack([_by_class(600, 1), _by_class(300, 2, moved=1)])
    twin = clone(panel).fit(X)
    path = panel.update(stream)
    pieces = [twin.update(piece) for piece in np.split(stream, [1, 2, 610, 700])]
    assert_allclose(np.vstack(pieces), path, atol=1e-10)
    for k in range(3):
        alone = clone(template).fit(X[X[:, 1] == k])
        of_class = stream[:, 1] == k
        assert_allclose(path[of_class, k], alone.update(stream[of_class]), atol=1e-12)
    mean = np.log(np.exp(path).mean(axis=1))
    row = int((mean >= np.log(100)).argmax()) + 1
    assert panel.alarm_.row == twin.alarm_.row == row
    assert panel.alarm_.log_evidence == pytest.approx(mean[row - 1])
    assert panel.alarm_name_ == 1
    assert panel.culprits_ == [1]
    assert 585 < panel.alarm_.start < 615  # counted in the stream of all classes
    assert panel.n_seen_ == 900


def test_monitors_of_classes_have_the_alpha_of_the_panel():
    knn = FrozenEstimator(KNN().fit(_by_class(60, 0)))
    template = ExchangeabilityMonitor(knn, alpha=0.001, random_state=0)
    panel = MonitorPanel(template, by=lambda X: X[:, 1].astype(int), alpha=0.05)
    panel.fit(_by_class(200, 1))
    assert panel.n_features_in_ == 2
    display = MartingaleDisplay.from_monitor(panel)
    assert display.threshold == pytest.approx(np.log(20))


def test_the_alarm_of_classes_is_as_of_its_sample_not_of_the_batch():
    """A later change in the same batch moved `start` behind the alarm."""
    template = ExchangeabilityMonitor(
        lambda X: X[:, 0], alternative="any", random_state=0
    )
    panel = MonitorPanel(template, by=lambda X: X[:, 1].astype(int)).fit(
        _by_class(300, 0)
    )
    later = _by_class(900, 2) + np.array([4.0, 0.0])
    stream = np.vstack([_by_class(100, 1, moved=1), later])
    twin = copy(panel)
    panel.update(stream)
    alarm = panel.alarm_
    twin.update(stream[: alarm.row])
    assert alarm.start <= alarm.row <= 100
    assert alarm.direction == "ood"
    assert twin.alarm_ == replace(alarm, log_evidence=twin.alarm_.log_evidence)


def test_a_failed_update_changes_no_monitor():
    panel = _panel().fit(_scores(100))
    bad = _scores(50, 1)
    bad["d"][3] = np.nan
    with pytest.raises(ValueError, match="contains 1 NaN among 50 values"):
        panel.update(bad)
    assert [monitor.n_seen_ for monitor in panel.named_monitors_.values()] == [0] * 4


def test_frames_tensors_and_single_samples():
    scores = {k: v.astype(np.float32).astype(float) for k, v in _scores(80, 1).items()}
    X = pd.DataFrame(scores)

    def column(name):
        return lambda X: np.asarray(X[name] if hasattr(X, "columns") else X[:, k(name)])

    k = NAMES.index
    panels = [
        MonitorPanel(
            [(n, ExchangeabilityMonitor(column(n), random_state=0)) for n in NAMES]
        )
        for _ in range(3)
    ]
    values = X.to_numpy(), torch.tensor(X.to_numpy(), dtype=torch.float32)
    paths = [
        panel.partial_fit(samples).update(samples)
        for panel, samples in zip(panels[:2], (X, values[1]), strict=True)
    ]
    panels[2].fit(values[0])
    paths.append(np.vstack([panels[2].update(sample) for sample in values[0][:, None]]))
    for path in paths[1:]:
        assert_allclose(path, paths[0], atol=1e-10)


def test_copied_saved_and_pickled_in_mid_stream(tmp_path):
    panel = _panel().partial_fit(_scores(100)).partial_fit(_scores(50, 1))
    dump(panel, tmp_path / "panel.skood")
    copies = [
        copy(panel),
        pickle.loads(pickle.dumps(panel)),
        load(tmp_path / "panel.skood"),
    ]
    new = _scores(60, 2, moved="b")
    path = panel.update(new)
    for copied in copies:
        again = copied.update(new)
        for name in NAMES:
            assert_array_equal(again[name], path[name])
        assert copied.explain().equals(panel.explain())
    for name, monitor in panel.named_monitors_.items():
        assert_array_equal(monitor.history_.log_martingale[-60:], path[name])


def test_errors():
    with pytest.raises(ValueError, match=r"monitors must be a list of \(name, monitor"):
        MonitorPanel(ExchangeabilityMonitor()).fit([1.0, 2.0])
    with pytest.raises(ValueError, match="Names of monitors must differ"):
        MonitorPanel([("a", ExchangeabilityMonitor())] * 2).fit([1.0, 2.0])
    with pytest.raises(
        ValueError, match=r"X must have the keys \['a', 'b', 'c', 'd'\]"
    ):
        _panel().fit({"a": [1.0, 2.0]})
    run_length = ExchangeabilityMonitor(guarantee="run_length")
    with pytest.raises(ValueError, match=r"Monitor 'a' must be .*guarantee='anytime'"):
        MonitorPanel([("a", run_length)]).fit([1.0, 2.0])
    with pytest.raises(ValueError, match="With by, monitors must be one Exchangeab"):
        MonitorPanel(run_length, by=np.ravel).fit([1.0, 2.0])
    with pytest.raises(ValueError, match=r"No monitor is named \['z'\]"):
        _panel().fit(_scores(50)).update({"z": [1.0]})
    template = ExchangeabilityMonitor(lambda X: X[:, 0])
    panel = MonitorPanel(template, by=lambda X: X[:, 1].astype(int))
    X = _by_class(90, 0)
    with pytest.raises(ValueError, match=r"at least 2 calibration samples, but \[.*7"):
        panel.fit(np.vstack([X, [[0.0, 7.0]]]))
    with pytest.raises(ValueError, match=r"The classes \[7\] had no calibration"):
        panel.fit(X).update([[0.0, 7.0]] * np.ones((1, 1)))
