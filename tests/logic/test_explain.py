"""Explanations: phrases for each kind of formula, and their numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import sys

import numpy as np
import pandas as pd
import pytest

from skood.detectors import SSD
from skood.logic import KnowledgeBase, MLNDetector
from skood.logic._explain import Sample, fact, offense, signed
from tests.logic._signs import RULES, Column, mln, signs

DOMAINS = {
    "class": ["stop_sign", "yield", "other"],
    "color": ["red", "blue", "white"],
    "shape": ["octagon", "triangle"],
    "digit": [3, 5],
    "has_loop": [False, True],
    "hot": [0, 1],
}
# concepts with values in common, and with values that say little
ALIKE = {
    "class": ["stop_sign", "other"],
    "color": ["red", "blue", "white"],
    "rim": ["red", "blue", "white"],
    "digit": ["3", "5"],
    "round": ["yes", "no"],
}


STOP = "class = stop_sign"


def sample(**values):
    """A red stop sign with the digit 3, but for some values."""
    values = {
        "class": "stop_sign",
        "color": "red",
        "shape": "octagon",
        "digit": 3,
        "has_loop": False,
        "hot": 0,
        **values,
    }
    return Sample([DOMAINS[k].index(v) for k, v in values.items()], DOMAINS)


def formula(text, domains=DOMAINS):
    return KnowledgeBase([text], domains).formulas[0]


@pytest.mark.parametrize(
    "rule, values, phrase",
    [
        (
            f"{STOP} -> color = red and shape = octagon",
            {"shape": "triangle"},
            "stop sign, but not octagon (triangle)",
        ),
        (
            f"{STOP} -> color = red and shape = octagon",
            {"shape": "triangle", "color": "blue"},
            "stop sign, but not red (blue) and not octagon (triangle)",
        ),
        ("digit = 3 -> has_loop", {}, "digit 3, but not has loop"),
        (f"{STOP} -> not has_loop", {"has_loop": True}, "stop sign, but has loop"),
        (f"{STOP} -> digit = 5", {}, "stop sign, but not digit 5 (3)"),
        ("class != yield -> color != red", {}, "not yield (stop sign), but red"),
        (
            f"{STOP} -> color = red or color = blue",
            {"color": "white"},
            "stop sign, but neither red nor blue (white)",
        ),
        (
            f"{STOP} -> color = blue or has_loop",
            {},
            "stop sign, but not blue (red) and not has loop",
        ),
        ("class = yield or color = red -> digit = 5", {}, "red, but not digit 5 (3)"),
        (
            f"{STOP} and color = red -> digit = 5",
            {},
            "stop sign and red, but not digit 5 (3)",
        ),
        ("has_loop <-> class = stop_sign", {}, "stop sign, but not has loop"),
        (f"{STOP} <-> has_loop", {}, "stop sign, but not has loop"),
        ("shape", {}, "not triangle (octagon)"),
        ("color = blue", {}, "not blue (red)"),
        ("not color = red", {}, "red"),
        # "not has loop and red" could be read as "not both"
        (
            f"{STOP} -> (has_loop <-> color = red)",
            {},
            "stop sign, but red and not has loop",
        ),
        ("has_loop xor color = blue", {}, "not has loop and not blue (red)"),
        ("hot", {}, "not hot"),
        ("not hot", {"hot": 1}, "hot"),
        ("hot -> color = blue", {"hot": 1}, "hot, but not blue (red)"),
        ("digit = 3 -> hot", {}, "digit 3, but not hot"),
        ("hot = 1", {}, "not hot 1 (0)"),
        ("color = red xor class = stop_sign", {}, "red and stop sign"),
        ("color = blue xor has_loop", {}, "not blue (red) and not has loop"),
        (
            f"{STOP} -> (color = red -> has_loop)",
            {},
            "stop sign, but red and not has loop",
        ),
        (
            "not (color = red -> has_loop) -> digit = 5",
            {},
            "red and not has loop, but not digit 5 (3)",
        ),
        (
            f"{STOP} -> (color = red <-> has_loop)",
            {},
            "stop sign, but red and not has loop",
        ),
        (
            "has_loop = True or has_loop = False -> digit = 5",
            {},
            "not has loop, but not digit 5 (3)",
        ),
        # constraints that hold, of negative weight
        ("color = red", {}, "red, which is unusual"),
        (
            f"{STOP} and not has_loop",
            {},
            "stop sign and not has loop, which is unusual",
        ),
        (f"{STOP} -> color = red", {}, "red, which is unusual"),
        ("class = yield -> color = red", {}, "not yield (stop sign), which is unusual"),
        ("color = red or class = yield", {}, "red, which is unusual"),
        ("color = red and color = red", {}, "red, which is unusual"),
    ],
)
def test_phrases(rule, values, phrase):
    record = sample(**values)
    found = formula(rule)
    assert record.holds(found) == phrase.endswith("unusual")
    assert offense(found, record) == phrase


@pytest.mark.parametrize(
    "rule, phrase",
    [
        ("color = rim", "color red and rim white"),
        ("class = stop_sign -> color = rim", "stop sign, but color red and rim white"),
        ("not color = rim or rim = red", "color red and rim white, which is unusual"),
        ("class = stop_sign -> color = blue", "stop sign, but not color blue (red)"),
        ("color = red -> rim = red", "color red, but not rim red (white)"),
        ("rim = red or rim = blue", "neither rim red nor rim blue (white)"),
        ("class = other", "not class other (stop sign)"),
        ("digit = '5'", "not digit 5 (3)"),
        ("digit = '3' -> round = yes", "digit 3, but not round"),
    ],
)
def test_values_without_a_meaning_alone(rule, phrase):
    record = Sample([0, 0, 2, 0, 1], ALIKE)
    found = formula(rule, ALIKE)
    assert record.holds(found) == phrase.endswith("unusual")
    assert offense(found, record) == phrase


def test_values_in_common():
    record = Sample([0, 0, 0, 0, 0], ALIKE)
    assert offense(formula("color != rim", ALIKE), record) == "color and rim both red"


@pytest.mark.parametrize(
    "number, text",
    [
        (4.93, "+4.9"),
        (-12.34, "-12.3"),
        (0.012, "+0.01"),
        (-0.012, "-0.01"),
        (0.0, "+0.0"),
        (-0.0, "+0.0"),
    ],
)
def test_numbers(number, text):
    assert signed(number) == text


def test_facts_are_true_of_the_sample():
    """Each word names a value that the sample has, or says that it has not."""
    rules = ["a and b or not c", "a xor b xor c", "(a -> b) <-> c", "not (a or b) -> c"]
    domains = {name: [False, True] for name in "abc"}
    for rule, codes in itertools.product(rules, itertools.product([0, 1], repeat=3)):
        found = KnowledgeBase([rule], domains).formulas[0]
        record = Sample(codes, domains)
        for word in fact(found, record).split(" and "):
            is_not, name = word.startswith("not "), word[-1]
            assert record.values[name] is not is_not


def test_explain():
    X, y = signs(300, 40)
    model = mln(RULES).fit(X, y)
    rows = model.explain(X)
    broken = next(
        row for row in rows if row.concepts["color"] == "blue" and row.violated
    )
    first = model.knowledge_base_.names[0]
    assert broken.concepts == {
        "class": "stop_sign",
        "color": "blue",
        "shape": "octagon",
    }
    assert broken.violated == [first]
    assert broken.contributions == {
        first: pytest.approx(model.weights_[0]),
        model.knowledge_base_.names[1]: 0.0,
    }
    assert broken.sentence == f"stop sign, but not red (blue): {model.weights_[0]:+.1f}"
    assert broken.is_ood
    assert broken.detector == 0.0
    assert rows[0].sentence == "all constraints hold"
    np.testing.assert_array_equal(
        [row.outlier for row in rows], -model.score_samples(X)
    )
    np.testing.assert_array_equal([row.penalty for row in rows], model.penalty(X))
    np.testing.assert_array_equal([row.is_ood for row in rows], model.predict(X) == -1)
    # contributions sum to the penalty, but for a constant
    sums = np.array([sum(row.contributions.values()) for row in rows])
    np.testing.assert_allclose(
        model.penalty(X) - sums, -np.sum(model.weights_), rtol=1e-9
    )


def test_several_violations_are_in_order_of_size():
    X, y = signs(100)
    rules = {"a": "color = blue", "b": "shape = triangle", "c": "class = yield"}
    model = mln(rules, weights=[1.0, 3.0, 0.04]).fit(X, y)
    row = model.explain([[1.0, 1.0, 0.0]])[0]  # a red octagon
    assert row.violated == ["b", "a", "c"]
    assert row.sentence == (
        "not triangle (octagon): +3.0; not blue (red): +1.0; "
        "not yield (stop sign): +0.04"
    )
    negative = mln(rules, weights=[-1.0, -3.0, 0.0]).fit(X, y)
    row = negative.explain([[2.0, 0.0, 0.0]])[0]
    assert row.contributions == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert row.sentence == "blue, which is unusual: +1.0"
    row = negative.explain([[1.0, 1.0, 0.0]])[0]
    assert row.violated == []
    assert row.sentence == "no constraint counts"


def test_expected_contributions():
    X, y = signs(200, noise=0.3)
    model = mln(RULES, marginalize=True).fit(X, y)
    expected = model.knowledge_base_.expected(model.concept_proba(X))
    rows = model.explain(X)
    actual = [list(row.contributions.values()) for row in rows]
    np.testing.assert_allclose(actual, model.weights_ * (1 - expected), rtol=1e-9)
    hard = mln(RULES).fit(X, y).explain(X)
    assert [row.violated for row in rows] == [row.violated for row in hard]


def test_words_for_the_classifier_of_id_samples():
    X, y = signs(200, 80)
    X = np.column_stack([X, y[:, 0] != -1])
    model = mln(RULES, "confidence", id_estimator=Column(3), normalizer="norm").fit(
        X, y
    )
    row = model.explain([[0.0, 0.0, 0.0, 0.0]])[0]
    assert row.violated == ["is_id"]
    assert row.concepts["is_id"] is False
    assert row.sentence.startswith("the classifier of ID samples takes it for OOD: +")


def test_data_frame():
    X, y = signs(200, 20)
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).set_index(np.arange(220) + 1000)
    model = mln(RULES, "confidence", normalizer="empirical").fit(frame, y)
    found = model.explain(frame[-30:], as_frame=True)
    rows = model.explain(frame[-30:])
    assert found.index.tolist() == list(range(1190, 1220))
    np.testing.assert_array_equal(found["score"], model.score_samples(frame[-30:]))
    for name in ("penalty", "detector", "is_ood", "sentence"):
        assert found[name].tolist() == [row[name] for row in rows]
    assert found["violated"].tolist() == ["; ".join(row.violated) for row in rows]
    first = model.knowledge_base_.names[0]
    assert found[f"contribution_{first}"].tolist() == [
        row.contributions[first] for row in rows
    ]
    assert found["concept_class"].tolist() == [row.concepts["class"] for row in rows]
    assert model.explain(X[:3], as_frame=True).index.tolist() == [0, 1, 2]


def test_data_frames_need_pandas(monkeypatch):
    X, y = signs(100)
    model = MLNDetector(RULES, mln().concepts).fit(X, y)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        model.explain(X[:2], as_frame=True)
    assert len(model.explain(X[:2])) == 2


@pytest.mark.parametrize(("fusion", "scale"), [("log", 3.0), ("shifted_product", 1.0)])
def test_contributions_count_as_they_do_in_the_score(fusion, scale):
    X, y = signs(200, 40)
    model = mln(detector=SSD(), gamma=3.0, fusion=fusion, normalizer="norm").fit(X, y)
    rows = model.explain(X)
    sums = np.array([sum(row.contributions.values()) for row in rows])
    most = np.maximum(model.weights_, 0).sum()
    np.testing.assert_allclose(sums, scale * (model.penalty(X) + most), atol=1e-9)
    if fusion == "log":
        outlier = sums + [row.detector for row in rows] - scale * most
        np.testing.assert_allclose(outlier, [row.outlier for row in rows], atol=1e-9)
