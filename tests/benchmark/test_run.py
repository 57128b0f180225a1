"""The numbers of the demo, recomputed from its labels, predictions and scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.metrics import auc, average_precision_score, roc_auc_score

from skood.benchmark import _run, run_demo
from skood.benchmark._options import Options
from skood.benchmark._output import to_json
from skood.benchmark._parts import prepare
from skood.benchmark._run import _missed, _reject_option, format_columns
from skood.datasets import load_digits_ood
from skood.exceptions import NotCertifiableError
from skood.nn import split
from skood.rejection import OperatingPoint
from tests.benchmark.conftest import QUICK, make_options

SINGLES = ["MSP", "MaxLogit", "Energy", "Entropy", "KNN", "Mahalanobis", "ViM"]
PAIRS = {"KNN+MSP": ("MSP", "KNN"), "ViM+MSP": ("MSP", "ViM")}


def row(result, name):
    return {r["method"]: r for r in result.table}[name]


def operating_points(result, score):
    """TPR, FPR and risk at every threshold, one row after the other."""
    is_id = result.y_true != -1
    wrong = result.y_pred != result.y_true
    accepted = score >= np.unique(score)[:, None]
    n_accepted = np.sum(accepted & is_id, axis=1)
    with np.errstate(invalid="ignore"):  # no ID row is kept: no risk
        risk = np.sum(accepted & is_id & wrong, axis=1) / n_accepted
    return np.transpose(
        [n_accepted / is_id.sum(), accepted[:, ~is_id].mean(axis=1), risk]
    )


def least_risk(points, tpr_min, fpr_max):
    met = (points[:, 0] >= tpr_min - 1e-9) & (points[:, 1] <= fpr_max + 1e-9)
    return points[met, 2].min() if met.any() else math.nan


def combinations(result, pair):
    """The pair's weighted sums at the 360 angles of the first quadrant."""
    is_id = result.y_true != -1
    a, b = (result.scores[name] for name in PAIRS[pair])
    a, b = (s / np.ptp(np.quantile(s[is_id], [0.05, 0.95])) for s in (a, b))
    angles = np.linspace(0, np.pi / 2, 360)
    yield a
    yield b
    for theta in angles[1:-1]:
        yield np.cos(theta) * a + np.sin(theta) * b


def test_table_has_all_methods(digits_result):
    assert [r["method"] for r in digits_result.table] == SINGLES + list(PAIRS)
    assert list(digits_result.scores) == SINGLES
    assert list(digits_result.detectors) == SINGLES
    assert list(digits_result.reject_options) == list(PAIRS)


def test_accuracy_is_that_of_the_network(digits_result):
    options = Options(**digits_result.options | {"out": None})
    parts = prepare(options)
    is_id = parts.y_held != -1
    assert_array_equal(parts.y_held, digits_result.y_true)
    predicted = digits_result.classifier.predict(parts.X_held)
    assert_array_equal(predicted, digits_result.y_pred)
    accuracy = np.mean(predicted[is_id] == parts.y_held[is_id])
    assert digits_result.accuracy == accuracy
    # the tests below are about risks, so there should be some
    assert 0.5 < accuracy < 1
    assert digits_result.n_epochs == 4
    assert digits_result.train_seconds > 0
    assert digits_result.feature_seconds > 0


@pytest.mark.parametrize("name", SINGLES)
def test_ranking_metrics(digits_result, name):
    score = digits_result.scores[name]
    is_id = digits_result.y_true != -1
    actual = row(digits_result, name)
    assert actual["auroc"] == pytest.approx(roc_auc_score(is_id, score))
    assert actual["aupr_in"] == pytest.approx(average_precision_score(is_id, score))
    assert actual["aupr_out"] == pytest.approx(average_precision_score(~is_id, -score))
    points = operating_points(digits_result, score)
    assert actual["fpr95"] == pytest.approx(points[points[:, 0] >= 0.95, 1].min())


@pytest.mark.parametrize("name", SINGLES)
def test_selective_metrics(digits_result, name):
    score = digits_result.scores[name]
    is_id = digits_result.y_true != -1
    actual = row(digits_result, name)
    points = operating_points(digits_result, score)
    # without ties, the area under the risk-coverage curve is a plain mean
    order = np.argsort(-score[is_id])
    wrong = (digits_result.y_pred != digits_result.y_true)[is_id][order]
    assert len(np.unique(score)) == len(score)
    risks = np.cumsum(wrong) / np.arange(1, is_id.sum() + 1)
    assert actual["aurc"] == pytest.approx(risks.mean())
    subset = points[~np.isnan(points[:, 2])][::-1]
    fpr, right = np.append(0, subset[:, 1]), 1 - np.append(subset[0, 2], subset[:, 2])
    assert actual["oscr"] == pytest.approx(auc(fpr, right))
    risk = least_risk(points, 0.6, 0.3)
    assert actual["risk"] == pytest.approx(risk, nan_ok=True)
    common = least_risk(points, 0.6, digits_result.common_fpr)
    assert actual["risk_common"] == pytest.approx(common)
    assert actual["min_fpr"] == points[points[:, 0] >= 0.6, 1].min()


def test_common_fpr_is_the_least_that_all_reach(digits_result):
    least = [row(digits_result, name)["min_fpr"] for name in SINGLES]
    assert digits_result.common_fpr == max(least)
    assert all(r["min_fpr"] <= digits_result.common_fpr for r in digits_result.table)
    assert not any(math.isnan(r["risk_common"]) for r in digits_result.table)


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_are_the_best_weighted_sums(digits_result, pair):
    actual = row(digits_result, pair)
    points = [
        operating_points(digits_result, s) for s in combinations(digits_result, pair)
    ]
    for key, fpr_max in (("risk", 0.3), ("risk_common", digits_result.common_fpr)):
        risks = [least_risk(p, 0.6, fpr_max) for p in points]
        assert actual[key] == pytest.approx(np.nanmin(risks))
        # no worse than the better of the two
        assert actual[key] <= np.nanmin(
            [row(digits_result, each)[key] for each in PAIRS[pair]]
        )
    reached = [p[p[:, 0] >= 0.6, 1].min() for p in points]
    assert actual["min_fpr"] == pytest.approx(min(reached))
    for key in ("auroc", "aupr_in", "aupr_out", "fpr95", "oscr", "aurc"):
        assert math.isnan(actual[key])
    for key in ("fit_seconds", "score_seconds"):
        parts = [row(digits_result, each)[key] for each in PAIRS[pair]]
        assert actual[key] == pytest.approx(sum(parts))
        assert min(parts) > 0


@pytest.mark.parametrize("pair", PAIRS)
def test_reject_options(digits_result, pair):
    result, option = digits_result, digits_result.reject_options[pair]
    test = result.is_test
    y_true, y_pred = result.y_true[test], result.y_pred[test]
    a, b = (-result.scores[name][test] for name in PAIRS[pair])
    point = option.classifier.operating_point_
    assert point.tpr >= 0.6
    assert point.fpr <= 0.3
    accepted = (
        math.cos(point.theta) * a / point.scales[0]
        + math.sin(point.theta) * b / point.scales[1]
    ) <= point.lam
    is_id = y_true != -1
    report = option.report
    assert report.tpr.value == np.mean(accepted[is_id])
    assert report.fpr.value == np.mean(accepted[~is_id])
    assert report.coverage.value == np.mean(accepted)
    wrong = (y_pred != y_true)[accepted & is_id]
    assert report.risk.value == np.mean(wrong)
    for kind, samples in (("id", is_id), ("ood", ~is_id)):
        assert sum(option.reasons[kind].values()) == np.sum(samples & ~accepted)
    assert report.n_id == result.parts["test"]["id"] == is_id.sum()
    assert report.n_ood == result.parts["test"]["ood"] == np.sum(~is_id)


def test_rules_are_certified_on_the_validation_samples(digits_result):
    options = Options(**digits_result.options | {"out": None})
    parts = prepare(options)
    option = digits_result.reject_options["KNN+MSP"]
    point = option.classifier.operating_point_
    with _run._one_thread():  # more threads round differently
        Z_val = split(digits_result.classifier)[0].transform(parts.X_val)
        again = clone(option.classifier).fit(Z_val, parts.y_val).operating_point_
    assert (again.theta, again.lam, again.tpr) == (point.theta, point.lam, point.tpr)
    p_values = [actual.pvalue for actual in point.certificate.statements]
    assert len(p_values) == 2
    assert max(p_values) <= point.certificate.delta


def test_what_is_attainable_if_the_bounds_are_not(capsys):
    bounds = {"tpr_min": 1.0, "fpr_max": 0.0}
    result = run_demo(max_epochs=1, n_train=100, **bounds, verbose=1)
    shown = capsys.readouterr().err
    assert "TorchClassifier" in shown  # progress is shown if requested
    assert "detectors" in shown
    for option in result.reject_options.values():
        assert option.classifier is option.report is option.reasons is None
        assert isinstance(option.error, NotCertifiableError)
    assert all(math.isnan(r["risk"]) for r in result.table)
    assert "KNN+MSP: infeasible. No number of ID samples certifies" in result.text
    assert "unable" not in result.text
    content = to_json(result)["reject_options"]["ViM+MSP"]
    assert content["feasible"] is False
    assert content["error"] == str(option.error)
    assert result.files == []
    json.dumps(content, allow_nan=False)


@pytest.mark.filterwarnings("ignore:The training features have rank")
def test_seed_decides_all_but_seconds(digits_result, capsys):
    again = run_demo(**QUICK)
    assert capsys.readouterr() == ("", "")
    for name in SINGLES:
        assert_array_equal(again.scores[name], digits_result.scores[name])
    assert again.common_fpr == digits_result.common_fpr
    options = digits_result.options | {"out": None, "random_state": 1}
    assert not np.array_equal(prepare(Options(**options)).y_held, again.y_true)


def test_ood_data_by_name(write_idx):
    rng = np.random.RandomState(0)
    noise = rng.randint(0, 256, (200, 8, 8))
    folder = write_idx("noise", noise, np.zeros(200))
    result = run_demo(ood_data="noise", folder=folder, max_epochs=2)
    assert result.parts["held_out"] == {"id": 539, "ood": 200}
    assert result.classifier.classes_.tolist() == list(range(10))
    assert row(result, "ViM")["auroc"] > 0.9
    assert "digits (ID) against noise (OOD)" in result.text
    digits = load_digits_ood(())
    assert len(digits.data) == sum(result.parts[p]["id"] for p in ("train", "held_out"))


def test_default_epochs():
    for n_train, epochs in ((7_000, 12), (1_010, 40), (100, 40), (49_000, 10)):
        options = make_options()
        assert _run._make_network(options, n_train, 0).max_epochs == epochs


def test_detectors_of_the_demo_separate():
    """No detector that is worse than chance, and no rule that misses its bounds."""
    result = run_demo(random_state=0)
    assert min(r["auroc"] for r in result.table if "+" not in r["method"]) > 0.9
    for option in result.reject_options.values():
        assert option.report.tpr.value >= 0.8
        assert option.report.fpr.value <= 0.2
    assert result.text.count("certified: TPR >= 0.8 (p = ") == 2


def test_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), _run._one_thread():
        assert torch.get_num_threads() == 1
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before


def test_columns_are_aligned():
    text = format_columns(
        [["name", "x", "long"], ["a", "1.25", "2"], ["bbbbb", "3", ""]]
    )
    assert text.split("\n") == [
        "name      x  long",
        "-----------------",
        "a      1.25     2",
        "bbbbb     3",
    ]


def test_table_shows_the_numbers(digits_result):
    lines = digits_result.text.split("\n")
    header = next(line for line in lines if line.startswith("method"))
    names = (
        "method AUROC↑ AUPR-in↑ AUPR-out↑ FPR95↓ OSCR↑ AURC↓ risk@0.6,0.3↓ risk@common↓"
    )
    assert header.split() == [*names.split(), "fit", "s", "score", "s"]
    start = lines.index(header) + 2
    samples = lines[start : start + len(digits_result.table)]
    for line, row in zip(samples, digits_result.table, strict=True):
        method, *cells = line.split()
        assert method == row["method"]
        numbers = list(row.values())[1:]
        keys = [key for key in row if key not in ("method", "min_fpr")]
        assert len(cells) == len(keys) == len(numbers) - 1
        for cell, key in zip(cells, keys, strict=True):
            if cell == "–":
                assert math.isnan(row[key])
            elif cell == "infeasible":
                assert key == "risk"
                assert math.isnan(row[key])
            else:
                decimals = len(cell.split(".")[1])
                assert float(cell) == pytest.approx(row[key], abs=0.51 * 10**-decimals)


def test_report_is_narrow_and_whole(digits_result):
    text = digits_result.text
    assert max(map(len, text.split("\n"))) <= 120
    assert not re.search(r"[ \t]$", text, re.MULTILINE)
    assert "skood" in text.split("\n")[0]
    assert f"accuracy {digits_result.accuracy:.4f} on the held-out ID samples" in text
    assert re.search(r"training +300 +0 ", text)
    assert re.search(r"validation +144 +118 ", text)
    assert f"FPR <= {digits_result.common_fpr:.4f}" in text
    for option in digits_result.reject_options.values():
        point = option.classifier.operating_point_
        assert f"theta = {point.theta:.4f}, mu = {point.mu:.4g}" in text
        assert f"{option.report.tpr.value:>8.4f}" in text
        n_rejected = option.report.n_id - option.report.n_accepted_id
        assert f"rejected {n_rejected} ID samples: " in text


@pytest.mark.parametrize(
    ("theta", "rule"),
    [
        (0.0, "certified; accepts iff MSP risk <= threshold; theta = 0.0000, mu = 0"),
        (
            math.pi / 2,
            "certified; accepts iff KNN OOD score <= threshold; theta = 1.5708, mu = "
            "inf",
        ),
        (
            math.pi / 4,
            "certified; accepts iff MSP risk + mu * KNN OOD score <= threshold; theta",
        ),
    ],
)
def test_rule_in_words(theta, rule):
    option = SimpleNamespace(
        error=None,
        classifier=SimpleNamespace(operating_point_=OperatingPoint(theta, 0.5)),
        report="the report",
        reasons={"id": {"uncertain class": 1200}, "ood": {"uncertain class": 3}},
    )
    text = _reject_option("KNN+MSP", option)
    assert rule in text
    assert "the report" in text
    assert text.endswith(
        "rejected 1,200 ID samples: 1,200 uncertain class\n"
        "rejected 3 OOD samples: 3 uncertain class"
    )


def test_missed_bounds_are_in_the_report():
    options = SimpleNamespace(tpr_min=0.8, fpr_max=0.2)

    def line(tpr, fpr):
        rates = {"tpr": SimpleNamespace(value=tpr), "fpr": SimpleNamespace(value=fpr)}
        return _missed(
            SimpleNamespace(error=None, report=SimpleNamespace(**rates)), options
        )

    assert line(0.8, 0.2) == ""
    assert line(0.9, 0.21) == "\nmissed on the test part: TPR 0.9000, FPR 0.2100"
    assert line(0.79, 0.1) == "\nmissed on the test part: TPR 0.7900, FPR 0.1000"
