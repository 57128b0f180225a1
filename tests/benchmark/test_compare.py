"""Tests of comparisons: their numbers, what is run, and what is not run again."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import re
import sys
import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.covariance import EllipticEnvelope
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedShuffleSplit, train_test_split

import skood.benchmark
from skood.benchmark import compare
from skood.benchmark._compare import PREDICTED, misclassified, predictor
from skood.benchmark._inputs import METRICS
from skood.detectors import KNN, MSP, Energy, Mahalanobis
from skood.exceptions import SkoodWarning
from skood.metrics import Resampling, ranking_metrics
from skood.nn import TorchClassifier, pretrained
from tests._forks import forks
from tests.benchmark.conftest import compared, kill_after

RNG = np.random.RandomState(0)
X = RNG.normal(size=(90, 3))
Y = np.arange(90) % 3
X[:, 0] += 3 * Y
OOD = {"near": RNG.normal(2, 2, (40, 3)), "far": RNG.normal(5, 3, (30, 3))}
quick = partial(compared, n_resamples=59, random_state=0)

CALLS: list = []


class Norm(BaseEstimator):
    """A detector of the norm, which says what it does."""

    def __init__(self, scale=1.0, random_state=None):
        self.scale = scale
        self.random_state = random_state

    def fit(self, X, y=None):
        CALLS.append(("fit", self.scale, len(X)))
        self.center_ = X.mean(axis=0)
        return self

    def score_samples(self, X):
        CALLS.append(("score", self.scale, len(X)))
        return -np.linalg.norm((X - self.center_) * self.scale, axis=1).round(1)


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


def cell(table, detector, ood, metric="auroc"):
    is_it = (table.detector == detector) & (table.ood == ood)
    (actual,) = table[is_it & (table.metric == metric)].to_dict("records")
    return actual


def expected_metrics(detector, X_test, ood):
    scores = [detector.score_samples(subset) for subset in (X_test, ood)]
    y = np.repeat([0, -1], [len(X_test), len(ood)])
    return ranking_metrics(y, np.concatenate(scores))


def test_values_by_hand():
    detectors = {"knn": KNN(), "gauss": EllipticEnvelope(random_state=0)}
    table = quick(
        detectors, X, Y, OOD, metrics=list(METRICS), groups={"all": ["near", "far"]}
    )
    assert len(table) == 2 * 3 * len(METRICS)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=2)[1]
    train, test = train_test_split(
        np.arange(90), test_size=0.3, stratify=Y, random_state=seed
    )
    train, test = np.sort(train), np.sort(test)
    for name, detector in detectors.items():
        detector.fit(X[train], Y[train])
        values = {k: expected_metrics(detector, X[test], o) for k, o in OOD.items()}
        for metric in METRICS:
            for ood in OOD:
                row = cell(table, name, ood, metric)
                assert row["value"] == values[ood][metric]
                assert row["low"] <= row["high"]
                assert (row["n_id"], row["n_ood"]) == (27, len(OOD[ood]))
                assert not row["is_group"]
            row = cell(table, name, "all", metric)
            mean = (values["near"][metric] + values["far"][metric]) / 2
            assert row["value"] == pytest.approx(mean, rel=1e-12)
            assert (row["is_group"], row["n_ood"]) == (True, 70)
    for _, subset in table.groupby(["ood", "metric"]):
        sign = METRICS[subset.metric.iloc[0]]
        assert_array_equal(
            subset.is_best, sign * subset.value == (sign * subset.value).max()
        )
        assert (subset.pvalue[subset.is_best] == 1).all()
        assert subset.pvalue.between(2 / 60, 1).all()
    assert not table.isna().any(axis=None)


def test_repeats():
    table = quick({"norm": Norm()}, X, Y, OOD, metrics="auroc", repeats=3, split=30)
    splitter = StratifiedShuffleSplit(3, test_size=30, random_state=0)
    values = []
    for train, test in splitter.split(X, Y):
        detector = Norm().fit(X[np.sort(train)])
        scores = [detector.score_samples(subset) for subset in (X[test], OOD["far"])]
        y = np.repeat([1, 0], [30, 30])
        values.append(roc_auc_score(y, np.concatenate(scores)))
    row = cell(table, "norm", "far")
    assert row["value"] == pytest.approx(np.mean(values), rel=1e-12)
    assert row["std"] == pytest.approx(np.std(values, ddof=1), rel=1e-12)
    assert "std" not in quick({"norm": Norm()}, X, Y, OOD).columns


def test_folds_as_repeats():
    """Frozen detectors are scored on all samples in each repeat of a splitter."""
    folds = KFold(3)
    table = quick({"norm": Norm()}, X, Y, OOD, metrics="auroc", split=folds)
    assert [call[2] for call in CALLS if call[0] == "fit"] == [60] * 3
    assert (table.n_id == 30).all()
    frozen = FrozenEstimator(Norm().fit(X[:20]))
    table = quick({"norm": frozen}, X, None, OOD, metrics="auroc", split=folds)
    assert (table.n_id == 90).all() and (table["std"] < 1e-12).all()


@pytest.mark.parametrize("options", [{"method": "bootstrap"}, {"stratify": False}])
def test_options_of_paired_tests(options):
    with pytest.raises(ValueError, match="method and stratify are options of paired"):
        compare({"a": Norm()}, X, Y, OOD, resampling=Resampling(**options))


def test_interval_is_that_of_its_level():
    narrow, wide = (
        quick({"a": Norm()}, X, Y, OOD, metrics="auroc", n_resamples=199,
              confidence_level=level)
        for level in (0.5, 0.99)
    )  # fmt: skip
    assert (wide.low < narrow.low).all()
    assert (narrow.high < wide.high).all()
    assert narrow.value.between(narrow.low, narrow.high).all()


def test_a_clear_gap_is_significant_for_every_metric():
    class Blind(Norm):
        def score_samples(self, X):
            return np.sin(1e3 * X[:, 1])

    ood = {"noise": RNG.uniform(-50, 50, (80, 3))}
    detectors = {"norm": Norm(), "blind": Blind(), "blind again": Blind()}
    table = quick(detectors, X, Y, ood, metrics=list(METRICS), n_resamples=99)
    assert table[table.detector == "norm"].is_best.all()
    assert (table[table.detector != "norm"].pvalue <= 0.03 + 1e-12).all()


def test_default_metrics():
    actual = quick([("a", Norm())], X, Y, OOD).metric.unique().tolist()
    assert actual == ["auroc", "aupr_in", "aupr_out", "fpr_at_tpr"]


def without_seconds(table):
    return table.drop(columns=[name for name in table if "seconds" in name])


def test_same_seed_same_table():
    # one job: several would add up the trees in any order, and break ties by rounding
    forest = IsolationForest(n_estimators=5, n_jobs=1)
    detectors = {"forest": forest, "knn": KNN()}
    first, again = (
        without_seconds(quick(detectors, X, Y, OOD, repeats=2)) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, again)
    with parallel_config(backend="threading", n_jobs=2):
        parallel = without_seconds(quick(detectors, X, Y, OOD, repeats=2))
    pd.testing.assert_frame_equal(first, parallel)
    # a detector draws the same next to others
    alone = without_seconds(quick({"forest": forest}, X, Y, OOD, repeats=2))
    assert_array_equal(alone.value, first[first.detector == "forest"].value)
    other = quick(detectors, X, Y, OOD, random_state=1)
    assert (
        cell(other, "forest", "far")["value"] != cell(first, "forest", "far")["value"]
    )


def test_training_samples_of_the_user():
    quick({"norm": Norm()}, X, Y, OOD, train=(X[:50], Y[:50]))
    assert CALLS[0] == ("fit", 1.0, 50)
    assert ("score", 1.0, 90) in CALLS


def test_frozen_detectors_score_all_samples():
    frozen = FrozenEstimator(Norm().fit(X[:20]))
    CALLS.clear()
    table = quick({"norm": frozen}, X, None, OOD, metrics="auroc")
    assert [call[0] for call in CALLS] == ["score"] * 3
    expected = expected_metrics(frozen, X, OOD["near"])["auroc"]
    assert cell(table, "norm", "near")["value"] == expected
    assert cell(table, "norm", "near")["fit_seconds"] == 0
    # next to one that is fitted they are evaluated on the same rows as that
    assert cell(quick({"a": frozen, "b": Norm()}, X, Y, OOD), "a", "far")["n_id"] == 27


def test_no_labels():
    quick({"norm": Norm()}, X, None, OOD)
    assert CALLS[0] == ("fit", 1.0, 63)


def test_labels_in_several_columns():
    table = np.transpose(
        [np.array(["ant", "bee", "cow"])[Y], np.arange(90).astype(str)]
    )

    class Reads(Norm):
        def fit(self, X, y):
            assert y.shape == (63, 2)
            self.classes_, self.n_rows_ = np.unique(y[:, 0], return_counts=True)
            assert self.n_rows_.tolist() == [21, 21, 21]  # split by the first column
            return super().fit(X)

    actual = quick({"r": Reads()}, X, table, OOD)
    expected = quick({"r": Norm()}, X, table[:, 0], OOD)
    pd.testing.assert_frame_equal(without_seconds(actual), without_seconds(expected))


def test_kinds_of_samples_and_labels():
    names = np.array(["ant", "bee", "cow"])[Y]
    detectors = {"gauss": Mahalanobis()}
    expected = without_seconds(quick(detectors, X, Y, OOD))
    frame = pd.DataFrame(X, columns=list("abc"))
    ood = {
        name: pd.DataFrame(samples, columns=list("abc"))
        for name, samples in OOD.items()
    }
    pd.testing.assert_frame_equal(
        without_seconds(quick(detectors, frame, names, ood)), expected
    )


def test_seconds():
    class Slow(Norm):
        def fit(self, X, y=None):
            time.sleep(0.02)
            return super().fit(X)

        def score_samples(self, X):
            time.sleep(0.01)
            return super().score_samples(X)

    table = quick({"slow": Slow()}, X, Y, OOD, metrics="auroc", repeats=2)
    assert 0.02 <= table.fit_seconds[0] < 0.5
    assert 0.03 <= table.score_seconds[0] < 0.5


def counted_network(counts):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)
    )
    module.register_forward_hook(lambda *a: counts.append(len(a[2])))
    return pretrained(module)


def test_network_runs_once(tmp_path):
    counts: list = []
    net = counted_network(counts)
    detectors = {"energy": Energy(net), "knn": KNN(net), "gauss": Mahalanobis(net)}
    samples = {k: v.astype(np.float32) for k, v in OOD.items()}
    table = quick(detectors, X.astype(np.float32), Y, samples, cache=tmp_path / "c")
    assert sorted(counts) == sorted([63, 27, 40, 30])
    assert (table.network_seconds > 0).all()
    assert table.network_seconds.nunique() == 1
    counts.clear()
    again = quick(detectors, X.astype(np.float32), Y, samples, cache=tmp_path / "c")
    assert counts == []
    pd.testing.assert_frame_equal(without_seconds(table), without_seconds(again))


def test_unfrozen_network():
    net = TorchClassifier(max_epochs=1)
    first, again = (
        without_seconds(quick({"energy": Energy(net)}, X, Y, OOD)) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, again)  # seeded


def test_resume_runs_what_is_missing(tmp_path):
    resume = partial(quick, resume=tmp_path, repeats=2)
    detectors = {"one": Norm(), "two": Norm(scale=[1, 2, 3])}
    table = resume(detectors, X, Y, OOD)
    assert len(CALLS) == 2 * 2 * 4
    CALLS.clear()
    pd.testing.assert_frame_equal(resume(detectors, X, Y, OOD), table)
    assert CALLS == []
    # another parameter: that detector alone
    resume({"one": Norm(), "two": Norm(scale=[1, 2, 4])}, X, Y, OOD)
    assert {str(call[1]) for call in CALLS} == {"[1, 2, 4]"}
    assert len(CALLS) == 2 * 4
    CALLS.clear()
    # another set of rows: that set alone
    resume(detectors, X, Y, OOD | {"new": OOD["far"] + 1})
    assert sorted(call[0] for call in CALLS) == ["fit"] * 4 + ["score"] * 4
    assert {call[2] for call in CALLS if call[0] == "score"} == {30}
    CALLS.clear()
    # names do not count, content does
    resume({"uno": Norm()}, X, Y, {"a": OOD["far"], "b": OOD["near"].copy()})
    assert CALLS == []


def test_resume_sees_other_training_samples(tmp_path):
    for n_train, n_calls in ((50, 4), (60, 4), (50, 0)):
        CALLS.clear()
        quick({"one": Norm()}, X, Y, OOD, train=(X[:n_train], None), resume=tmp_path)
        assert len(CALLS) == n_calls


@pytest.mark.parametrize("what", ["rows", "labels", "seed", "train"])
def test_resume_sees_a_change(tmp_path, what):
    quick({"one": Norm()}, X, Y, OOD, resume=tmp_path)
    CALLS.clear()
    args = {"X_id": X, "y_id": Y, "ood": OOD, "random_state": 0}
    args |= {
        "rows": {"X_id": X + np.eye(90, 3)[::-1] * 1e-6},
        "labels": {"y_id": np.roll(Y, 1)},
        "seed": {"random_state": 1},
        "train": {"train": (X[:50], None)},
    }[what]
    compared({"one": Norm()}, n_resamples=9, resume=tmp_path, **args)
    assert [call[0] for call in CALLS] == ["fit"] + ["score"] * 3


def test_cells_finished_before_an_error_are_stored(tmp_path):
    class Fails(Norm):
        def score_samples(self, X):
            if len(X) == 30:
                raise RuntimeError("out of luck")
            return Norm.score_samples(self, X)

    with pytest.raises(RuntimeError, match="out of luck") as info:
        quick({"one": Norm(), "bad": Fails()}, X, Y, OOD, resume=tmp_path)
    assert info.value.__notes__ == [
        "This happened in scoring the OOD samples 'far' by 'bad'."
    ]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_jobs_share_the_folder(tmp_path, backend):
    if backend == "loky" and "SKOOD_NIGHTLY" not in os.environ:
        pytest.skip("SKOOD_NIGHTLY is not set: each process imports everything")
    detectors = {f"norm {i}": Norm(scale=i + 1.0) for i in range(4)}
    with parallel_config(backend=backend):
        first = quick(detectors, X, Y, OOD, resume=tmp_path, repeats=2, n_jobs=2)
    assert (CALLS == []) == (backend == "loky")  # they were elsewhere
    CALLS.clear()
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 4 * 2 * 3
    again = quick(detectors, X, Y, OOD, resume=tmp_path, repeats=2)
    assert CALLS == []
    pd.testing.assert_frame_equal(first, again)


class Powers(Norm):
    """A detector by its power, which waits in the fit on request."""

    wait = 0

    def fit(self, X, y=None):
        if self.scale == 2:
            time.sleep(Powers.wait)
        return super().fit(X)

    def score_samples(self, X):
        return -(np.linalg.norm(X - self.center_, axis=1) ** (1 + self.scale))


@forks
def test_killed(tmp_path, monkeypatch):
    detectors = {str(i): Powers(i) for i in range(4)}
    run = partial(quick, detectors, X, None, OOD, metrics="auroc", n_resamples=79)
    monkeypatch.setattr(Powers, "wait", 60)
    journal = tmp_path / "cells.jsonl"
    kill_after(6, journal, partial(run, resume=tmp_path))
    monkeypatch.setattr(Powers, "wait", 0)
    table = run(resume=tmp_path)
    assert [call[1] for call in CALLS] == [2, 3]  # two detectors were finished
    CALLS.clear()
    assert_array_equal(run().value, table.value)
    assert [call[1] for call in CALLS] == [0, 1, 2, 3]


def test_progress(capsys):
    quick({"a": Norm()}, X, Y, OOD, verbose=1, repeats=2)
    assert re.search(r"compare: .*6/6", capsys.readouterr().err)


class Gives(Norm):
    """Gives what is no score."""

    def score_samples(self, X):
        scores = np.full(len(X), np.nan)
        return {"nan": scores, "columns": np.ones((len(X), 1))}[self.scale]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"detectors": {}}, "detectors must be a dict with one name or mo"),
        ({"detectors": [Norm()]}, r"a list of \(name, value\), got \[Norm"),
        ({"detectors": {3: Norm()}}, "detectors must be a dict"),
        ({"detectors": Norm()}, "'detectors' parameter of compare must be"),
        (
            {"detectors": [("a", Norm()), ("a", Norm())]},
            r"Names in detectors must be distinct and not empty, got \['a'\]",
        ),
        ({"detectors": {"": Norm()}}, r"distinct and not empty, got \[''\]"),
        (
            {"detectors": {"net": TorchClassifier()}},
            "'net' in detectors must be a detector with fit and score_samples",
        ),
        ({"detectors": {"a": Norm}}, "'a' in detectors must be a detector"),
        ({"ood": {}}, "ood must be a dict with one name or more"),
        ({"ood": {"a": X[:0]}}, "a has no samples. Leave it out"),
        ({"X_id": X[:0], "y_id": None}, "X_id has no samples"),
        ({"y_id": Y[:5]}, "inconsistent numbers of samples"),
        ({"train": (None, Y)}, "train has classes but no samples"),
        ({"train": (X, Y, Y)}, r"samples and their classes, \(X, y\) or"),
        (
            {"detectors": {"k": KNN()}, "y_id": np.where(Y == 0, -1, Y)},
            "y_id has 30 samples with the ood_label=-1 of the detector 'k'",
        ),
        ({"metrics": ["f1"]}, r"distinct names among \['auroc', .*'f1'"),
        ({"metrics": []}, "metrics must be distinct names"),
        ({"metrics": ["auroc"] * 2}, "metrics must be distinct names"),
        ({"groups": {"far": ["far"]}}, "'far' has the name of a set"),
        ({"groups": {"g": ["x"]}}, "'g' must have distinct sets among"),
        ({"groups": {"g": []}}, "'g' must have distinct sets among"),
        ({"groups": {"g": ["far", "far"]}}, "must have distinct sets"),
        ({"n_resamples": 0}, "'n_resamples' parameter of Resampling"),
        ({"confidence_level": 1.0}, "'confidence_level' parameter"),
        ({"split": 1.5}, "'split' parameter of compare must be"),
        ({"split": "half"}, "'split' parameter of compare must be"),
        ({"cache": 3}, "'cache' parameter of Output must be"),
        ({"resume": "x", "random_state": None}, "resume needs an integer"),
        (
            {"detectors": {"a": Gives("nan")}},
            r"'a' gave scores of shape \(27,\), 27 of them NaN, for 27 held-out ID sam",
        ),
        (
            {"detectors": {"a": Gives("columns")}},
            r"'a' gave scores of shape \(27, 1\), 0 of them NaN",
        ),
    ],
)
def test_errors(changes, message):
    error = TypeError if "must be a detector" in message else ValueError
    args = {"detectors": {"n": Norm()}, "X_id": X, "y_id": Y, "ood": OOD} | changes
    with pytest.raises(error, match=message):
        compared(**{"random_state": 0, **args})


def test_too_few_resamples_for_any_pvalue_to_be_small():
    detectors = {"one": Norm(), "two": Norm(), "three": Norm(scale=[1, 2, 4])}
    ask = partial(compared, detectors, X, Y, OOD, metrics="auroc", random_state=0)
    with pytest.warns(SkoodWarning, match="With 3 .*n_resamples=58 no p-value") as w:
        ask(n_resamples=58)
    assert "below 0.0508" in str(w[0].message)
    assert str(w[0].message).endswith("Set n_resamples=59 or more.")
    with pytest.warns(SkoodWarning, match=r"level 0\.01\. Set n_resamples=299 or more"):
        ask(n_resamples=298, confidence_level=0.99)
    with warnings.catch_warnings(action="error"):
        ask(n_resamples=59)
        ask(n_resamples=299, confidence_level=0.99)
        compared({"one": Norm()}, X, Y, OOD, n_resamples=1, random_state=0)


def test_error_in_a_fit_names_the_detector():
    with pytest.raises(ValueError, match="NaN") as info:
        quick({"k": KNN()}, X * np.nan, Y, OOD)
    assert info.value.__notes__ == ["This happened in fitting the detector 'k'."]


def test_pandas_is_asked_for_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="compare, which returns a pandas"):
        quick({"n": Norm()}, X, Y, OOD)
    assert CALLS == []


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        skood.benchmark.nope  # noqa: B018


def test_infinite_scores():
    class Sure(Norm):
        def score_samples(self, X):
            return np.where(X[:, 0] > 3, -np.inf, np.inf)

    row = cell(quick({"n": Sure()}, X, None, OOD, train=(X, None)), "n", "far")
    rate_id, rate_ood = np.mean(X[:, 0] <= 3), np.mean(OOD["far"][:, 0] <= 3)
    # ties count one half
    assert row["value"] == pytest.approx((1 + rate_id - rate_ood) / 2, rel=1e-12)


def test_labels_in_place_of_sets():
    """Samples labeled `ood_label` are the set "ood"."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4 - 1
    X = rng.normal(size=(120, 4)) + 3 * np.eye(4)[y]
    options = {"metrics": "auroc", "n_resamples": 19, "random_state": 0}
    for labels, label in ((y, -1), (np.array(["out", "a", "b", "c"])[y + 1], "out")):
        detectors = {
            "knn": KNN(n_neighbors=3, ood_label=label),
            "gauss": Mahalanobis(ood_label=label),
        }
        table = compared(detectors, X, labels, **options)
        sets = {"ood": X[y == -1]}
        expected = compared(detectors, X[y >= 0], labels[y >= 0], sets, **options)
        assert list(table["ood"]) == ["ood", "ood"]
        assert list(table["n_ood"]) == [30, 30]
        columns = ["detector", "value", "low", "high"]
        assert table[columns].equals(expected[columns])
    with pytest.raises(ValueError, match="which are 0 of 90"):
        compared(detectors, X[y >= 0], y[y >= 0].astype(str), **options)
    with pytest.raises(ValueError, match="but y_id is None"):
        compared(detectors, X, None, **options)
    detectors["knn"] = KNN(n_neighbors=3)
    with pytest.raises(ValueError, match="but detectors have"):
        compared(detectors, X, y, **options)


NAMES = np.array(["b", "c", "a"])[Y]
NET = LogisticRegression().fit(X, NAMES)
OTHER = LogisticRegression(C=0.01).fit(X, NAMES)


@pytest.mark.parametrize("net", [NET, LogisticRegression().fit(X, NAMES == "a")])
def test_predictions_are_those_of_the_classifier(net):
    y = NAMES if net is NET else NAMES == "a"
    arguments = {"knn": KNN(), "msp": MSP(FrozenEstimator(net))}
    (actual,) = predictor(arguments, y).items()
    assert actual[0] == PREDICTED
    columns = actual[1].score_samples(X)
    assert columns.dtype == np.float64
    wrong = net.predict(X) != y
    assert 0 < wrong.sum() < len(X)
    assert_array_equal(misclassified(actual[1], columns, y), wrong)


def test_single_classifier_predicts():
    net, other = FrozenEstimator(NET), FrozenEstimator(OTHER)
    assert predictor({"a": MSP(net), "b": Energy(net)}, NAMES)
    assert not predictor({"a": MSP(net), "b": Energy(other)}, NAMES)
    assert not predictor({"a": MSP(NET), "b": KNN()}, NAMES)  # fitted by the detector
    assert predictor({"a": FrozenEstimator(MSP(net).fit(X, NAMES))}, NAMES)
    regressor = FrozenEstimator(Ridge().fit(X, np.arange(90)))
    reads = Mahalanobis()
    reads.estimator = regressor
    assert not predictor({"a": reads}, NAMES)


@pytest.mark.parametrize("y", [None, np.arange(90), np.column_stack([NAMES, NAMES])])
def test_classes_that_it_does_not_know(y):
    assert not predictor({"a": MSP(FrozenEstimator(NET))}, y)


def test_there_is_nothing_to_fit():
    (member,) = predictor({"a": MSP(FrozenEstimator(NET))}, NAMES).values()
    unfitted = member.estimator
    assert unfitted.fit(X, NAMES) is unfitted
