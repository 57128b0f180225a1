"""Which rows are in-distribution."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.detectors import KNN, MSP, Mahalanobis, ViM
from skood.epistemic import DeepEnsemble, Laplace
from skood.exceptions import SkoodWarning
from skood.nn import FeatureExtractor, LinearHead, TorchClassifier
from skood.rejection import RejectOptionClassifier
from skood.utils._labels import (
    check_id_mask,
    check_label_columns,
    check_labels,
    label_codes,
    naming_ood_label,
    ood_mask,
    plain_labels,
    put_label,
    single_column,
    unique_codes,
)
from tests._loops import looped


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as NumPy's failed comparisons
        yield


@pytest.mark.parametrize(
    "y",
    [
        [0, 1, 2],
        np.array([0, 1, 2], dtype=np.uint8),
        np.array([0.0, 1.0, 2.0]),
        np.array([[0], [1], [2]])[:, 0],
        torch.tensor([0, 1, 2]),
        pd.Series([0, 1, 2], index=[5, 5, 5]),
        pd.Series([0, 1, 2], dtype="Int64"),
        pd.Categorical([0, 1, 2]),
        range(3),
    ],
)
def test_check_labels(y):
    checked = check_labels(y)
    assert isinstance(checked, np.ndarray)
    assert checked.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "y",
    [
        np.array([3, -1, 3, 0, 3], dtype=np.int8),
        np.array([127, -128] * 200, dtype=np.int8),
        np.array([5, 10**12, 5]),
        np.array(["b", "a", "b"]),
        np.array([2.5, 0.5, 2.5]),
    ],
    ids=["counted", "all of int8", "wide", "text", "floats"],
)
def test_unique_codes(y):
    classes, codes = unique_codes(y)
    expected, expected_codes = np.unique(y, return_inverse=True)
    assert classes.dtype == y.dtype
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(codes, expected_codes)


def test_check_labels_of_other_kinds():
    assert check_labels([True, False]).dtype == bool
    assert check_labels(["a", "b"]).tolist() == ["a", "b"]
    mixed = np.array(["a", 1, ("t",)], dtype=object)
    assert check_labels(mixed).tolist() == ["a", 1, ("t",)]
    assert check_labels(pd.Series(["a", "b"], dtype="string")).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "y",
    [
        [0.0, np.nan],
        [0.0, np.inf],
        np.array([0, None], dtype=object),
        np.array(["a", np.nan], dtype=object),
        np.array(["a", pd.NA], dtype=object),
        np.array(["a", pd.NaT], dtype=object),
        pd.Series([1, pd.NA], dtype="Int64"),
        pd.Series(["a", pd.NA], dtype="string"),
        torch.tensor([0.0, float("nan")]),
    ],
)
def test_missing_labels_raise(y):
    with pytest.raises(ValueError, match="Input labels contains NaN"):
        check_labels(y, "labels")


def test_labels_of_the_wrong_shape_raise():
    with pytest.raises(ValueError, match="y is required, got None"):
        check_labels(None)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        check_labels([[0, 1], [1, 0]])


@looped("kind", [int, float, str, object])
@looped("kind_of_classes", [int, float, str, object])
def test_mask_against_a_loop(kind, kind_of_classes):
    labels = [0, 1, 2, -1, 7, 1]
    classes = [0, 1, 2]
    y = np.array([str(v) if kind is str else v for v in labels], dtype=kind)
    classes = np.array(
        [str(v) if kind_of_classes is str else v for v in classes],
        dtype=kind_of_classes,
    )
    for ood_label in (-1, "-1", 7, "zebra"):
        if ood_label != "zebra" and (kind is str) != isinstance(ood_label, str):
            with pytest.raises(ValueError, match=r"ood_label=.* is of another kind"):
                ood_mask(y, ood_label=ood_label)
            continue
        alone = ood_mask(y, ood_label=ood_label)
        assert alone.tolist() == [v == ood_label for v in y.tolist()]
        if (kind is str) != (kind_of_classes is str):
            with pytest.raises(ValueError, match="every sample would be OOD"):
                ood_mask(y, ood_label=ood_label, classes=classes)
            continue
        expected = [v == ood_label or v not in classes.tolist() for v in y.tolist()]
        mask = ood_mask(y, ood_label=ood_label, classes=classes)
        assert mask.dtype == bool
        assert mask.tolist() == expected


@pytest.mark.parametrize(
    "y, ood_label, found",
    [
        (["1", "2"], 1, "'1'"),
        (np.array(["a", -1]), -1, "'-1'"),  # NumPy makes the number a text
        (np.array(["0", "-1"], dtype=object), -1, "'-1'"),
        (pd.Series([0, -1]).astype(str), -1, "'-1'"),
        ([1, 2], "1", "1"),
        ([0.0, -1.0], "-1", "-1.0"),
        (np.array([0, -1], dtype=object), "-1", "-1"),
    ],
)
def test_ood_label_of_another_kind(y, ood_label, found):
    """Text that is written as a number is no such number, and no other class."""
    with pytest.raises(
        ValueError,
        match=rf"contain {found}, but ood_label={ood_label!r} is of another kind",
    ):
        ood_mask(y, ood_label=ood_label)
    with pytest.raises(ValueError, match=f"Set ood_label={found} if these"):
        check_id_mask(check_labels(y), ood_label)


def test_labels_of_another_kind_than_the_classes():
    for y, classes in (
        ([1, 2], ["1", "2"]),
        (["1", "2"], [1, 2]),
        (np.array(["ant", "bee"], dtype=object), [True, False]),
        (np.array(["ant", -1], dtype=object), [0, 1]),
    ):
        with pytest.raises(ValueError, match="every sample would be OOD"):
            ood_mask(y, classes=classes)
    # both kinds, or no label next to that of OOD samples: nothing to refuse
    mixed = np.array(["ant", -1, 7], dtype=object)
    assert ood_mask(mixed, classes=["ant"]).tolist() == [False, True, True]
    assert ood_mask(mixed, classes=[7]).tolist() == [True, True, False]
    assert ood_mask([-1, -1], classes=["ant"]).tolist() == [True, True]
    assert ood_mask(["ood"], ood_label="ood", classes=[0, 1]).tolist() == [True]
    assert ood_mask(["0", "x"], ood_label=-1).tolist() == [False, False]


def test_labels_may_be_tuples():
    y = np.empty(3, dtype=object)
    y[:] = [("a", 1), ("b", 2), "ood"]
    known = np.empty(1, dtype=object)
    known[0] = ("a", 1)
    assert ood_mask(y, ood_label="ood", classes=known).tolist() == [False, True, True]


def test_bool_labels():
    assert ood_mask([True, False], ood_label=-1).tolist() == [False, False]
    assert ood_mask([True, False], classes=[True]).tolist() == [False, True]


def test_ood_label_that_is_among_the_classes_still_is_ood():
    assert ood_mask([0, -1], ood_label=-1, classes=[-1, 0]).tolist() == [False, True]


def test_id_mask():
    assert check_id_mask(np.array([0, -1, 5])).tolist() == [True, False, True]
    assert check_id_mask(np.array(["a", "x"]), "x").tolist() == [True, False]
    for ood_label in (-1, "x"):
        with pytest.raises(
            ValueError,
            match=rf"No in-distribution samples to fit: .* ood_label={ood_label!r}",
        ):
            check_id_mask(np.array([ood_label] * 3), ood_label)
    with pytest.raises(ValueError, match="0 samples in y while a minimum of 1"):
        check_id_mask(np.array([]))


def test_an_error_about_a_single_class_names_the_ood_label():
    y, error = np.array([1, 1]), "needs two classes"
    with (
        pytest.raises(
            ValueError, match=r"needs two.* Only the class 1 .* the 3 samples"
        ),
        naming_ood_label(y, 3, -1),
    ):
        raise ValueError(error)
    for labels, n_left_out in ((y, 0), (np.array([0, 1]), 3), (None, 3)):
        with (
            pytest.raises(ValueError, match=rf"^{error}$"),
            naming_ood_label(labels, n_left_out, -1, warns=True),
        ):
            raise ValueError(error)
    with (
        pytest.raises(ValueError, match=r"^X contains NaN\.$"),
        naming_ood_label(y, 3, -1),
    ):
        raise ValueError("X contains NaN.")
    with naming_ood_label(y, 3, -1), naming_ood_label(y, 0, -1, warns=True):
        pass
    with (
        pytest.warns(SkoodWarning, match="Only the class 1 .* ood_label=-1"),
        naming_ood_label(y, 3, -1, warns=True),
    ):
        pass


def test_a_list_of_text_and_numbers_keeps_both():
    y = ["cat", -1, "dog", "-1"]
    np.testing.assert_array_equal(ood_mask(y), [False, True, False, False])
    np.testing.assert_array_equal(check_labels(y), np.array(y, dtype=object))


@pytest.mark.parametrize(
    ("y", "label", "expected", "kind"),
    [
        (np.array([0, 1], dtype=np.uint8), -1, [-1, 1], "i"),
        (np.array([0.5, 1.5]), -1, [-1.0, 1.5], "f"),
        (np.array([True, False]), -1, [-1, False], "O"),
        (np.array(["a", "b"]), "none", ["none", "b"], "U"),
        (np.array(["a", "b"]), -1, [-1, "b"], "O"),
        (np.array([0, 1]), "none", ["none", 1], "O"),
        (np.array(["a", "b"], dtype=object), "none", ["none", "b"], "O"),
        (np.array(["a", "b"], dtype=object), -1, [-1, "b"], "O"),
    ],
)
def test_put_label(y, label, expected, kind):
    before = y.copy()
    out = put_label(y, np.array([True, False]), label)
    assert out.tolist() == expected
    assert out.dtype.kind == kind
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize(
    "y, labels, expected",
    [
        (["b", "x", "a", "b"], ["b", "a"], [0, -1, 1, 0]),
        ([3, 1, 1, 2], [1, 3], [1, 0, 0, -1]),
        ([1.0, 2.0], [2, 1], [1, 0]),
        (["1", "2"], [1, 2], [-1, -1]),
        (np.array(["a", 1], dtype=object), [1, 2], [-1, 0]),
        (np.array([], dtype=int), [1, 2], []),
    ],
)
def test_label_codes(y, labels, expected):
    codes = label_codes(np.asarray(y), np.asarray(labels))
    assert codes.dtype == np.int64
    assert codes.tolist() == expected


# ------------------------------------------------------------------- several columns

TABLE = [["cat", 1], ["dog", -1], ["cow", 2], [-1, 3]]


@pytest.mark.parametrize(
    "y",
    [
        TABLE,
        tuple(map(tuple, TABLE)),
        np.array(TABLE, dtype=object),
        pd.DataFrame(TABLE, columns=["animal", "number"]),
        [np.array(row, dtype=object) for row in TABLE],
    ],
)
def test_tables_of_labels(y):
    table = check_label_columns(y)
    assert table.tolist() == TABLE
    assert ood_mask(y).tolist() == [False, True, False, True]
    assert ood_mask(y, ood_label="cow").tolist() == [False, False, True, False]
    # only the first column holds classes
    assert ood_mask(y, classes=["cat", "dog"]).tolist() == [False, True, True, True]
    assert check_id_mask(table).tolist() == [True, False, True, False]
    with pytest.raises(ValueError, match="y should be a 1d array"):
        check_labels(np.array(TABLE, dtype=object))


@pytest.mark.parametrize("kind", [int, float, str])
def test_tables_of_labels_of_equal_kinds(kind):
    y = np.array([[0, 5], [1, -1], [2, 5]]).astype(kind)
    label = "-1" if kind is str else -1
    classes = np.array([0, 1]).astype(kind)
    mask = ood_mask(y, ood_label=label, classes=classes)
    assert mask.tolist() == [False, True, True]
    assert ood_mask(torch.tensor([[0, 5], [-1, 5]])).tolist() == [False, True]


def test_flat_labels_are_unchanged():
    for y in ([0, 1], ["a", -1], np.array([0, 1]), pd.Series(["a", "b"]), []):
        np.testing.assert_array_equal(check_label_columns(y), check_labels(y))
    with pytest.warns(match="A column-vector y was passed"):
        assert check_label_columns([[1], [2]]).tolist() == [1, 2]
    with pytest.raises(ValueError, match="y is required, got None"):
        check_label_columns(None)
    with pytest.raises(ValueError, match="dim 3"):
        check_label_columns(np.zeros((2, 2, 2)))


@pytest.mark.parametrize(
    "y",
    [
        [[0.0, np.nan], [1.0, 2.0]],
        [[0.0, np.inf], [1.0, 2.0]],
        [["a", None], ["b", 2]],
        pd.DataFrame({"a": ["x", pd.NA], "b": [1, 2]}),
    ],
)
def test_missing_labels_in_tables_raise(y):
    with pytest.raises(ValueError, match="Input labels contains NaN"):
        check_label_columns(y, "labels")


def test_every_row_is_ood():
    with pytest.raises(ValueError, match="every label in y equals ood_label=-1"):
        check_id_mask(np.array([[0, -1], [-1, 2]]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b"], "U"),
        ([np.str_("a"), "b"], "U"),
        ([True, False], "b"),
        ([1, 2], "i"),
        ([np.int8(1), 2], "i"),
        ([1.5, 2.0], "f"),
        ([1, 2.5], "f"),
        ([1, "a"], "O"),
        ([True, 1], "O"),
        ([("a",), "b"], "O"),
    ],
)
def test_plain_labels(values, kind):
    y = np.empty(2, dtype=object)
    y[:] = values
    found = plain_labels(y)
    assert found.dtype.kind == kind
    assert found.tolist() == values
    plain = np.array([1, 2])
    assert plain_labels(plain) is plain


def test_single_column():
    column = np.array(["ant", "bee"])
    table = pd.DataFrame({"a": column})
    for y in (column[:, None], table, torch.tensor([[1], [2]])):
        found = single_column(y)
        assert np.shape(found) == (2,)
        assert list(found) == list(np.asarray(y)[:, 0])
    for y in (column, table["a"], [["ant"]], pd.DataFrame({"a": [1], "b": [2]})):
        assert single_column(y) is y


@pytest.mark.usefixtures("few_folds")
@pytest.mark.parametrize("as_list", [False, True])
def test_names_and_minus_1_in_an_array(as_list):
    """Text as classes, the number -1 for OOD samples: detectors leave these out."""
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 3
    X = rng.normal(size=(60, 3)) + 4 * np.eye(3)[codes]
    names = np.array(["ant", "bee", "cat"])[codes]
    y = names.astype(object)
    y[::10] = -1
    is_id = y != -1
    mixed = y.tolist() if as_list else y
    for detector in (
        KNN(n_neighbors=3),
        Mahalanobis(),
        MSP(LogisticRegression()),
        ViM(),
        RejectOptionClassifier(LogisticRegression(), reject_label="none"),
    ):
        fitted = clone(detector).fit(X, mixed)
        assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
        expected = clone(detector).fit(X[is_id], names[is_id])
        np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        KNN(n_neighbors=3),
        MSP(LogisticRegression()),
        Laplace(LogisticRegression()),
        DeepEnsemble(LogisticRegression(), n_members=2),
        FeatureExtractor(MLPClassifier((4,))),
        LinearHead(),
        RejectOptionClassifier(LogisticRegression()),
        TorchClassifier(max_epochs=1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_classes_of_several_kinds(estimator):
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = np.array([5, "ant"] * 10, dtype=object)
    with pytest.raises(ValueError, match=r"must be of one kind.*int \(5\), str"):
        estimator.fit(X, y)


def test_ragged_labels():
    with pytest.raises(ValueError, match="same number of labels for each sample"):
        check_label_columns([[1], [1, 2]])
    with pytest.raises(ValueError, match="got from 1 to 2"):
        check_labels([[1], [1, 2]])


@pytest.mark.parametrize("dtype", ["i1", "i8", ">i4", "u1", "u8", "?", "U3"])
def test_classes_equal_numpy_unique(dtype):
    rng = np.random.default_rng(0)
    for low, high, n in [(-128, 128, 400), (3, 6, 50), (0, 127, 20), (5, 6, 10)]:
        y = rng.integers(low, high, n).astype("i8").astype(dtype)
        detector = MSP(ood_label="none" if dtype == "U3" else 4)
        detector._id_samples(y, y)
        expected = np.unique(y[y != detector.ood_label])
        assert detector.classes_.dtype == expected.dtype
        np.testing.assert_array_equal(detector.classes_, expected)


@pytest.mark.parametrize("ends", [(-(2**63), 2**63 - 1), (2**63 - 3, 2**63 - 1)])
def test_classes_of_the_largest_integers(ends):
    detector, y = MSP(), np.repeat(ends, 3)
    detector._id_samples(y, y)
    assert detector.classes_.tolist() == list(ends)
