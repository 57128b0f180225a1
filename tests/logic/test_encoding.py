"""Tests of domains, labels and codes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch

from skood.logic.language._domains import check_domains, known, value_code
from skood.logic.language._encoding import (
    check_codes,
    decode,
    encode,
    is_frame,
    narrow_columns,
)

DOMAINS = {"kind": ["x", "y", "1"], "n": [3, -1], "f": [0.5, 2], "flag": [False, True]}
ROWS = [["y", 3, 2, True], ["1", -1, 0.5, False], ["x", 3, 2.0, False]]
CODES = [[1, 0, 1, 1], [2, 1, 0, 0], [0, 0, 1, 0]]


def _frames():
    frame = pd.DataFrame(ROWS, columns=list(DOMAINS))
    yield frame
    yield frame.assign(more="?")[["flag", "more", "n", "f", "kind"]]
    yield frame.astype({"kind": "category", "flag": "boolean", "n": "Int64"})
    yield frame.set_axis([7, 5, 7])


@pytest.mark.parametrize(
    "Y",
    [
        ROWS,
        [tuple(row) for row in ROWS],
        np.array(ROWS, dtype=object),
        np.asfortranarray(np.array(ROWS, dtype=object)),
        np.array(
            [["y", "3", "2", "True"], ["1", "-1", "0.5", "False"], [*"x32", "False"]]
        ),
        *_frames(),
    ],
)
def test_labels_become_codes(Y):
    Z = encode(Y, DOMAINS)
    assert Z.dtype == np.int64
    assert Z.tolist() == CODES


def test_labels_of_numbers():
    domains = {"a": [5, 7], "b": [1, 0]}
    for kind in (np.int8, np.uint16, np.int64, np.float32):
        Y = np.array([[7, 0], [5, 1]], dtype=kind)
        assert encode(Y, domains).tolist() == [[1, 1], [0, 0]]
    tensor = torch.tensor([[7, 0], [5, 1]])
    assert encode(tensor, domains).tolist() == [[1, 1], [0, 0]]
    assert encode(np.array([[True], [False]]), {"b": [1, 0]}).tolist() == [[0], [1]]


def test_single_concept_may_have_a_flat_column():
    assert encode(["b", "a"], {"x": ["a", "b"]}).tolist() == [[1], [0]]
    assert encode(np.array([["b"]]), {"x": ["a", "b"]}).tolist() == [[1]]


@pytest.mark.parametrize(
    "Y",
    [
        np.empty((0, 4)),
        np.empty((0, 4), dtype=object),
        pd.DataFrame(columns=list(DOMAINS)),
        torch.empty(0, 4),
    ],
)
def test_no_samples(Y):
    Z = encode(Y, DOMAINS)
    assert Z.shape == (0, 4)
    assert Z.dtype == np.int64
    assert decode(Z, DOMAINS).shape == (0, 4)


@pytest.mark.parametrize(
    "label", [None, float("nan"), pd.NA, pd.NaT, "None", "nan", "<NA>", 4, "X", (1,)]
)
def test_labels_that_are_no_values(label):
    for Y in (
        np.array([["x"], ["y"], [None]], dtype=object),
        pd.DataFrame({"kind": ["x", "y", None]}, dtype=object),
    ):
        if is_frame(Y):
            Y.iat[2, 0] = label
        else:
            Y[2, 0] = label
        with pytest.raises(ValueError, match="is no value of the concept 'kind'"):
            encode(Y, {"kind": ["x", "y"]})


def test_missing_labels_are_no_values_even_if_written_so():
    domains = {"x": ["None", "nan", "<NA>"]}
    assert encode(["nan", "None", "<NA>"], domains).tolist() == [[1], [0], [2]]
    for label in (None, float("nan"), np.nan, pd.NA):
        with pytest.raises(ValueError, match="is no value of the concept 'x'"):
            encode([label], domains)


def test_unknown_labels_are_named():
    with pytest.raises(ValueError) as caught:
        encode(np.array([["x", 2]], dtype=object), {"a": ["x"], "b": [1, 77]})
    assert str(caught.value) == "2 is no value of the concept 'b'. Its values: 1, 77."
    with pytest.raises(ValueError, match=r"^'Y' is no value .* Did you mean 'y'"):
        encode(np.array(["Y"]), {"a": ["x", "y"]})
    with pytest.raises(ValueError, match=r"^7 is no value"):
        encode(np.array([7], dtype=object), {"a": ["x", "y"]})


def test_columns_that_are_missing():
    frame = pd.DataFrame({"kind": ["x"], "N": [3], 0: [1]})
    message = (
        "The data frame has no column for the concepts ['n', 'f', 'flag']; it has "
        "['kind', 'N', '0']."
    )
    with pytest.raises(ValueError) as caught:
        encode(frame, DOMAINS)
    assert str(caught.value) == message


def test_columns_that_are_there_twice():
    frame = pd.DataFrame([["x", 1, "y"]], columns=["a", "b", "a"])
    with pytest.raises(
        ValueError, match=r"more than one column for the concepts \['a'"
    ):
        encode(frame, {"a": ["x", "y"], "b": [1]})
    assert encode(frame, {"b": [1]}).tolist() == [[0]]


@pytest.mark.parametrize(
    ("Y", "shape"),
    [
        ([["x", 3]], "(1, 2)"),
        (["x", "y"], "(2,)"),
        (np.zeros((2, 4, 1)), "(2, 4, 1)"),
        ([["x", 3], ["y"]], "(2,)"),
        ("x", "()"),
    ],
)
def test_labels_of_another_shape(Y, shape):
    with pytest.raises(ValueError) as caught:
        encode(Y, DOMAINS)
    assert str(caught.value) == (
        "Expected one column for each of the 4 concepts ['kind', 'n', 'f', 'flag'], "
        f"got an array of shape {shape}."
    )


def test_codes_become_labels():
    Y = decode(CODES, DOMAINS)
    assert Y.dtype == object
    assert Y.tolist() == ROWS
    kinds = [type(label) for label in Y[0]]
    assert kinds == [str, int, int, bool]  # as the domains have them
    assert type(Y[1, 2]) is float
    assert encode(Y, DOMAINS).tolist() == CODES
    assert decode(torch.tensor(CODES), DOMAINS).tolist() == ROWS


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "long"], "U"),
        ([3, 1], "i"),
        ([False, True], "b"),
        ([0.5, 1.5], "f"),
        ([1, 2.5], "O"),
        ([1, "a"], "O"),
        ([2**70, 1], "O"),
        (["a\0", "b"], "O"),
        ([False, 3], "O"),
    ],
)
def test_labels_of_equal_kinds_keep_it(values, kind):
    domains = {"p": values, "q": values}
    Z = np.array([[0, 1], [1, 1], [1, 0]])
    Y = decode(Z, domains)
    assert Y.dtype.kind == kind
    assert Y.shape == Z.shape
    expected = [[values[i] for i in row] for row in Z]
    assert Y.tolist() == expected
    assert [[type(v) for v in row] for row in Y.tolist()] == [
        [type(v) for v in row] for row in expected
    ]
    assert encode(Y, domains).tolist() == Z.tolist()


@pytest.mark.parametrize("flags", [[False, True], [0.5, 1.5], ["1", "x"]])
def test_labels_of_two_kinds_keep_them(flags):
    domains = {"n": [3, 1], "flag": flags}
    Y = decode([[0, 1], [1, 0]], domains)
    assert Y.dtype == object
    assert Y.tolist() == [[3, flags[1]], [1, flags[0]]]
    assert [type(label) for label in Y[0]] == [int, type(flags[0])]
    assert encode(Y, domains).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    "kind", [np.int8, np.uint8, np.int16, np.uint16, np.int64, np.uint64, bool]
)
def test_codes_of_any_integers(kind):
    Z = np.array([[0, 1], [1, 1]], dtype=kind)
    assert check_codes(Z, (2, 2)) is Z
    assert check_codes(Z.tolist(), (2, 2)).tolist() == Z.tolist()


@pytest.mark.parametrize(
    "kind",
    [torch.uint8, torch.int8, torch.uint16, torch.int64, torch.bool],
)
def test_codes_of_any_tensors(kind):
    Z = torch.tensor([[0, 1], [1, 1]]).to(kind)
    assert check_codes(Z, (2, 2)) is Z
    with pytest.raises(ValueError, match="Column 1 holds the code 1, but the concept"):
        check_codes(Z, (2, 1))


@pytest.mark.parametrize(
    ("Z", "message"),
    [
        ([[0, 2]], "Column 1 holds the code 2, but the concept has the codes 0 to 1."),
        ([[3, 0]], "Column 0 holds the code 3, but the concept has the codes 0 to 2."),
        ([[0, -1]], "Column 1 holds the code -1, but the concept has the codes 0 to 1"),
        ([0, 1], "Expected codes of shape (n_samples, 2), got (2,)."),
        ([[0, 1, 0]], "Expected codes of shape (n_samples, 2), got (1, 3)."),
        ([], "Expected codes of shape (n_samples, 2), got (0,)."),
    ],
)
def test_codes_that_are_none(Z, message):
    with pytest.raises(ValueError) as caught:
        check_codes(Z, (3, 2))
    assert message in str(caught.value)
    with pytest.raises(ValueError) as caught:
        check_codes(torch.tensor(Z), (3, 2))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("Z", "kind"),
    [
        ([[0.0, 1.0]], "float64"),
        ([["a", "b"]], "<U1"),
        (np.array([[0, 1]], dtype=object), "object"),
        (torch.tensor([[0.0, 1.0]]), "torch.float32"),
        (torch.tensor([[0j, 1]]), "torch.complex64"),
    ],
)
def test_labels_are_no_codes(Z, kind):
    with pytest.raises(TypeError) as caught:
        check_codes(Z, (2, 2))
    assert str(caught.value) == (
        f"Expected codes, which are integers, got an array of {kind}. Turn labels into "
        "codes with encode(), or give a data frame."
    )


@pytest.mark.parametrize(
    ("size", "kind", "tensor"),
    [
        (1, np.uint8, torch.uint8),
        (256, np.uint8, torch.uint8),
        (257, np.uint16, torch.int64),
        (70_000, np.uint32, torch.int64),
    ],
)
def test_narrow_columns(size, kind, tensor):
    Z = np.array([[0, size - 1], [1, size - 1]])
    columns = narrow_columns(Z, (2, size))
    assert columns.dtype == kind
    assert columns.flags.c_contiguous
    assert columns.tolist() == Z.T.tolist()
    columns = narrow_columns(torch.as_tensor(Z), (2, size))
    assert columns.dtype == tensor
    assert columns.is_contiguous()
    assert columns.tolist() == Z.T.tolist()


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
    actual = check_domains(given)
    assert actual == {
        "x": ["a", "b"],
        "flag": [False, True],
        "n": [3, 1],
        "f": [0.5, 2],
        "text": ["bool"],
        "r": [0, 1],
    }
    assert actual["x"] is not values
    assert [type(name) for name in actual] == [str] * 6
    assert [type(v) for v in actual["n"] + actual["f"]] == [int, int, float, int]
    assert [type(v) for v in actual["flag"]] == [bool, bool]


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
