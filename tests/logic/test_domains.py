"""Tests of concepts and their values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.logic.language._domains import check_domains, known, value_code


def test_domains_become_plain():
    values = ["a", "b"]
    given = {
        np.str_("x"): values,
        "flag": "bool",
        "n": np.array([3, 1]),
        "f": (np.float32(0.5), 2),
        "text": np.array(["bool"]),
        "r": range(2),
    }
    found = check_domains(given)
    assert found == {
        "x": ["a", "b"],
        "flag": [False, True],
        "n": [3, 1],
        "f": [0.5, 2],
        "text": ["bool"],
        "r": [0, 1],
    }
    assert found["x"] is not values
    assert [type(name) for name in found] == [str] * 6
    assert [type(v) for v in found["n"] + found["f"]] == [int, int, float, int]
    assert [type(v) for v in found["flag"]] == [bool, bool]


@pytest.mark.parametrize(
    ("domains", "error", "message"),
    [
        *(
            (domains, TypeError, "domains must be a dict of concept names to lists")
            for domains in (None, ["a"], "bool", 3, {"a"})
        ),
        ({1: ["a"]}, TypeError, "name of a concept must be a str, got 1"),
        ({"": ["a"]}, ValueError, "name of a concept must not be empty"),
        ({"x": []}, ValueError, "The concept 'x' has no values"),
        *(
            ({"x": values}, TypeError, "of the concept 'x' must be a list or 'bool'")
            for values in ("red", "Bool", 3, None, {"a"}, {"a": 1}, b"ab")
        ),
        *(
            ({"x": ["a", value]}, TypeError, "A value of the concept 'x' must be a str")
            for value in (
                *(None, [1], float("nan"), -np.inf, 1j, b"a", np.array([1, 2])),
            )
        ),
    ],
)
def test_bad_domains(domains, error, message):
    with pytest.raises(error, match=message):
        check_domains(domains)


@pytest.mark.parametrize(
    ("values", "doubled"),
    [
        (["a", "b", "a"], "['a']"),
        ([1, 1.0], "['1', '1.0']"),
        ([0, False], "['0', 'False']"),
        ([1, "1", 2, "2", 3], "['1', '2']"),
        ([True, "True"], "['True']"),
        ([0.0, -0.0], "['-0.0', '0.0']"),
    ],
)
def test_values_can_be_told_apart(values, doubled):
    with pytest.raises(ValueError, match="Values must be distinct") as caught:
        check_domains({"x": values})
    assert f"or are written alike: {doubled}." in str(caught.value)


def test_many_values_are_checked_in_no_time():
    values = list(range(20_000))
    assert check_domains({"x": values}) == {"x": values}


@pytest.mark.parametrize(
    ("values", "value", "code"),
    [
        (["a", "b"], "b", 1),
        (["a", "b"], "c", -1),
        ([1, 2], 2, 1),
        ([1, 2], 2.0, 1),
        ([1, 2], "2", 1),
        (["1", "2"], 2, 1),
        (["1", "2"], 2.0, -1),
        ([0, 1], True, 1),
        ([False, True], "True", 1),
        ([False, True], 0, 0),
        ([False, True], "1", -1),
        ([0.5, 1.5], np.float32(1.5), 1),
        (["x"], np.str_("x"), 0),
        (["x"], np.array(["x"])[0], 0),
        (["a"], None, -1),
    ],
)
def test_value_code(values, value, code):
    assert value_code(values, value) == code


def test_hints():
    assert known("Values", "reb", ["red", "blue"]) == (
        "Values: red, blue. Did you mean 'red'?"
    )
    assert known("Values", "RED", ["red", "blue"]).endswith("Did you mean 'red'?")
    assert known("Values", "red", ["RED", "Blue"]).endswith("Did you mean 'RED'?")
    assert known("Values", "zz", ["red", "dark red"]) == "Values: red, 'dark red'."
    assert known("Values", 11, [1, 12]) == "Values: 1, 12. Did you mean '1'?"
    assert known("Names", "x", []) == "Names: none."
    listed = known("Names", "?", [f"n{i}" for i in range(21)])
    assert listed.endswith(", n18, n19 and 1 more.")


LONG = 30_000 * "x"


@pytest.mark.parametrize(
    "domains",
    [
        LONG,
        {LONG.encode(): "bool"},
        {LONG: LONG},
        {LONG: []},
        {LONG: [LONG, LONG]},
    ],
)
def test_errors_of_long_names_are_short(domains):
    with pytest.raises((TypeError, ValueError)) as info:
        check_domains(domains)
    assert len(str(info.value)) < 400


def test_known_names_that_are_long_are_shortened():
    text = known("Known concepts", 90 * "x", [LONG, f"{LONG} z", 91 * "x"])
    assert text.startswith("Known concepts: xxx")
    assert "…. Did you mean 'xxx" in text
    assert len(text) < 400
