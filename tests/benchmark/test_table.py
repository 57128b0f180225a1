"""Tests of the report of the main job as text."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re
from types import SimpleNamespace

import pytest

from skood.benchmark._run import _missed, _reject_option, format_columns
from skood.rejection import OperatingPoint


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
    assert header.split() == [
        "method",
        "AUROC↑",
        "AUPR-in↑",
        "AUPR-out↑",
        "FPR95↓",
        "OSCR↑",
        "AURC↓",
        "risk@0.6,0.3↓",
        "risk@common↓",
        "fit",
        "s",
        "score",
        "s",
    ]
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
