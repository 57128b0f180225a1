"""Tests of the files of the demo."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import csv
import json
import math
import sys

import pytest

import skood
from skood.benchmark import _output
from skood.benchmark._options import Options
from skood.exceptions import SkoodWarning


@pytest.fixture
def options(digits_result):
    return Options(**digits_result.options)


def test_csv_has_every_digit(digits_result, options):
    with (options.out / "table.csv").open(newline="", encoding="utf-8") as file:
        entries = list(csv.DictReader(file))
    assert len(entries) == len(digits_result.table)
    for written, row in zip(entries, digits_result.table, strict=True):
        assert list(written) == list(row)
        assert written.pop("method") == row["method"]
        for key, text in written.items():
            if text == "":
                assert math.isnan(row[key])
            else:
                assert float(text) == row[key]


def test_csv_in_pandas(digits_result, options):
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(options.out / "table.csv", index_col="method")
    expected = digits_result.table[4]["auroc"]
    # older pandas read to the last digit but one
    assert table.loc["KNN", "auroc"] == pytest.approx(expected, rel=1e-15)
    assert table["auroc"].isna().sum() == 2


def test_json(digits_result, options):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (options.out / "results.json").read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=refuse)
    assert content["versions"]["skood"] == skood.__version__
    assert set(content["versions"]) >= {"python", "numpy", "scikit-learn", "torch"}
    assert content["options"]["n_train"] == 300
    assert content["options"]["random_state"] == 0
    assert content["parts"] == digits_result.parts
    assert content["network"]["accuracy"] == digits_result.accuracy
    assert content["network"]["classes"] == list(range(8))
    assert content["common_fpr"] == digits_result.common_fpr
    for written, row in zip(content["table"], digits_result.table, strict=True):
        assert {k: v for k, v in written.items() if v is not None} == {
            k: v for k, v in row.items() if v == v
        }
    for name, option in digits_result.reject_options.items():
        written = content["reject_options"][name]
        point = option.classifier.operating_point_
        assert written["feasible"] is True
        assert written["theta"] == point.theta
        assert written["mu"] == (None if math.isinf(point.mu) else point.mu)
        assert written["lambda"] == point.lam
        assert written["validation"]["tpr"] == point.tpr
        assert written["test"]["risk"]["value"] == option.report.risk.value
        assert written["reasons"] == option.reasons


def test_files_are_named_in_the_result(digits_result, options):
    assert [path.name for path in digits_result.files] == [
        "table.csv",
        "results.json",
        "score_histograms.png",
        "roc_curves.png",
        "risk_coverage.png",
        "acceptance.png",
    ]
    assert sorted(options.out.iterdir()) == sorted(digits_result.files)


def test_no_plots_without_matplotlib(digits_result, options, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    options.out = tmp_path
    with pytest.warns(SkoodWarning, match=r"Plots were not written: .* \"matplotlib>="):
        files = _output.write(digits_result, options)
    assert [path.name for path in files] == ["table.csv", "results.json"]
    assert sorted(tmp_path.iterdir()) == files[::-1]
