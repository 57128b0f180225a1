"""Tests of what `MultiHeadClassifier` makes of `y`, of classes and of weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from skood.nn import MultiHeadClassifier
from tests.nn._networks import Flat

N = 12
X = np.random.RandomState(0).normal(size=(N, 3))
PARITY, THIRD = np.arange(N) % 2, np.arange(N) % 3
TABLE = np.column_stack([PARITY, THIRD])
FRAME = pd.DataFrame({"parity": PARITY, "third": np.array(["a", "b", "c"])[THIRD]})


def quick(**params):
    return MultiHeadClassifier(Flat, max_epochs=1, random_state=0, **params)


def unfitted(clf):
    return set(vars(clf)) == set(clf.get_params())


# --- names ---------------------------------------------------------------------


def test_names_of_the_columns():
    clf = quick().fit(X, FRAME)
    assert_array_equal(clf.target_names_, ["parity", "third"])
    assert clf.n_outputs_ == 2
    assert_array_equal(quick().fit(X, FRAME[["third"]]).target_names_, ["third"])
    for unnamed in (TABLE, FRAME.set_axis([0, 1], axis=1), FRAME["third"]):
        assert not hasattr(quick().fit(X, unnamed), "target_names_")


def test_single_column_is_as_none():
    for y in (FRAME["third"], FRAME[["third"]], FRAME[["third"]].to_numpy()):
        clf = quick().fit(X, y)
        assert clf.n_outputs_ == 1
        assert_array_equal(clf.classes_, ["a", "b", "c"])
        assert clf.predict(X).shape == (N,)
        assert 0 <= clf.score(X, y) <= 1


def test_objects_in_a_column_are_as_in_several():
    numbers = np.column_stack([PARITY, THIRD]).astype(object)
    assert_array_equal(quick().fit(X, numbers).classes_[1], [0, 1, 2], strict=True)
    for y in (numbers[:, 1:], pd.DataFrame(numbers[:, 1:])):
        assert_array_equal(quick().fit(X, y).classes_, [0, 1, 2], strict=True)


def test_names_are_compared():
    clf = quick().fit(X, FRAME)
    clf.score(X, FRAME)
    clf.score(X, FRAME.to_numpy())
    message = r"columns \['third', 'parity'\], but .* on \['parity', 'third'\], in this"
    with pytest.raises(ValueError, match=message):
        clf.score(X, FRAME[["third", "parity"]])
    with pytest.raises(ValueError, match=r"y has 1 column\(s\), but .* fitted on 2"):
        clf.partial_fit(X, PARITY)
    with pytest.raises(ValueError, match=r"y has 3 column\(s\), but .* fitted on 2"):
        clf.score(X, TABLE[:, [0, 1, 0]])
    quick().fit(X, TABLE).score(X, FRAME.assign(third=THIRD))  # it had no names


# --- errors of y ---------------------------------------------------------------


def with_value(value):
    y = FRAME.astype(object).copy()
    y.iloc[3, 1] = value
    return y


@pytest.mark.parametrize(
    "y, match",
    [
        (None, "MultiHeadClassifier requires y to be passed"),
        (
            with_value(None),
            "y contains NaN or None. Each sample needs a label in every",
        ),
        (
            with_value(np.nan),
            "y contains NaN or None. Each sample needs a label in every",
        ),
        (
            with_value(pd.NA),
            "y contains NaN or None. Each sample needs a label in every",
        ),
        (
            np.where(TABLE == 2, np.nan, TABLE),
            "NaN or infinity. Each sample needs a label",
        ),
        (
            with_value(-1),
            r"labels in column 'third' .* several kinds: int, str\. Make them all of "
            "one, and leave samples out that are labeled as OOD",
        ),
        (FRAME.set_axis(["a", "a"], axis=1), r"must differ in name, got \['a', 'a'\]"),
        (X[:, :2], "Column 0 of y: Unknown label type: continuous"),
        (FRAME.assign(third=X[:, 0]), "Column 'third' of y: Unknown label type: cont"),
        (X[:, 0], "Unknown label type: continuous"),
        (TABLE[:-1], r"inconsistent numbers of samples: \[12, 11\]"),
        (PARITY[:-1], r"inconsistent numbers of samples: \[12, 11\]"),
        (TABLE[:, :, None], "Found array with dim 3"),
        (np.empty((N, 0), dtype=int), r"no columns, shape \(12, 0\): MultiHeadClassif"),
        (FRAME[[]], r"no columns, shape \(12, 0\): .* needs at least one column"),
        (FRAME.assign(parity=1), "two classes .* got 1 class in column 'parity': 1"),
        (np.column_stack([TABLE, THIRD * 0]), "got 1 class in column 2: 0"),
        (PARITY * 0, "got 1 class: 0"),
    ],
)
def test_errors_of_y(y, match):
    clf = quick()
    with pytest.raises(ValueError, match=match):
        clf.fit(X, y)
    assert unfitted(clf)


def test_single_class_left_by_the_weights():
    weight = np.where(THIRD == 1, 1.0, 0.0)
    quick().fit(X, TABLE)
    with pytest.raises(ValueError, match=r"a weight above zero .* in column 1: 1"):
        quick().fit(X, TABLE, sample_weight=weight)
    class_weight = [None, {0: 0, 1: 1, 2: 0}]
    with pytest.raises(ValueError, match=r"a weight above zero .* in column 1: 1"):
        quick(class_weight=class_weight).fit(X, TABLE)


def test_unknown_label_later():
    clf = quick().fit(X, FRAME)
    with pytest.raises(
        ValueError, match=r"label 'd', .* the classes \['a', 'b', 'c'\]"
    ):
        clf.partial_fit(X, FRAME.replace("a", "d"))
    assert clf.n_iter_ == 1


# --- classes of partial_fit ----------------------------------------------------


@pytest.mark.parametrize(
    "classes, match",
    [
        (None, "classes must be passed on the first call"),
        ([0, 1, 2], r"y has 2 columns: classes must be a list of as many arrays"),
        ([0, 1], r"y has 2 columns: classes must be a list of as many arrays"),
        (
            np.array([[0, 1], [0, 1]]),
            r"must be a list of as many arrays of labels, got",
        ),
        ([[0, 1]], r"must be a list of as many arrays of labels, got \[\[0, 1\]\]"),
        (
            [[0, 1], [0]],
            r"two classes are needed for each column, got \[\[0, 1\], \[0\]",
        ),
        ([[0, 1], [0, 1]], r"label 2, which is not among the classes \[0, 1\]"),
    ],
)
def test_errors_of_classes(classes, match):
    clf = quick()
    with pytest.raises(ValueError, match=match):
        clf.partial_fit(X, TABLE, classes=classes)
    assert unfitted(clf)


def test_errors_of_classes_later():
    clf = quick().partial_fit(X, TABLE, classes=([0, 1], [0, 1, 2]))
    clf.partial_fit(X, TABLE, classes=[[1, 0], [2, 1, 0]])
    with pytest.raises(ValueError, match=r"classes=\[0, 1\] differs from the classes"):
        clf.partial_fit(X, TABLE, classes=[[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="classes must be a list of as many"):
        clf.partial_fit(X, TABLE, classes=[0, 1])
    one = quick().partial_fit(X, PARITY, classes=[0, 1])
    with pytest.raises(ValueError, match=r"classes=\[0, 2\] differs from the classes"):
        one.partial_fit(X, PARITY, classes=[0, 2])
    with pytest.raises(ValueError, match=r"At least two classes are needed, got \[0\]"):
        quick().partial_fit(X, PARITY, classes=[0])


@pytest.mark.parametrize("class_weight", ["balanced", [None, "balanced"]])
def test_partial_fit_cannot_balance(class_weight):
    clf = quick(class_weight=class_weight)
    with pytest.raises(ValueError, match="'balanced' needs all the data"):
        clf.partial_fit(X, TABLE, classes=[[0, 1], [0, 1, 2]])


# --- weights -------------------------------------------------------------------


@pytest.mark.parametrize(
    "y, class_weight, match",
    [
        (
            TABLE,
            {0: 1, 1: 2, 2: 1},
            r"None or a list of 2 of 'balanced', a dict or None",
        ),
        (TABLE, [None], r"because y has 2 column\(s\); got \[None\]"),
        (TABLE, [None, 2.0], r"list of 2 of .*; got \[None, 2\.0\]"),
        (PARITY, [None], r"must be 'balanced', a dict or None, because y has 1 column"),
        (
            TABLE,
            [None, {0: 0, 1: 0, 2: 0}],
            "leaves only samples of weight zero for column 1",
        ),
        (TABLE, [{0: -1, 1: 1}, None], "class_weight must be finite and not negative"),
        (
            TABLE,
            [{7: 1}, None],
            re.escape("The classes, [0, 1], are not in class_weight"),
        ),
    ],
)
def test_errors_of_class_weight(y, class_weight, match):
    clf = quick(class_weight=class_weight)
    try:
        clf.fit(X, y)
    except ValueError as error:
        assert re.search(match, str(error))
        assert unfitted(clf)
    else:
        raise AssertionError("no error")


@pytest.mark.parametrize(
    "head_weights, match",
    [
        (
            [1.0],
            r"must be 2 numbers above zero, one for each column of y; got \[1\.0\]",
        ),
        ([1.0, 0.0], r"must be 2 numbers above zero"),
        ([1.0, -1.0], r"must be 2 numbers above zero"),
        ([1.0, np.nan], "Input head_weights contains NaN"),
        ([[1.0, 2.0]], "must be 2 numbers above zero"),
        ({"parity": 0}, "must be 2 numbers above zero, .* got {'parity': 0}"),
        ({"color": 2}, r"weights of \['color'\], but .* are \['parity', 'third'\]"),
        ({0: 2}, r"weights of \[0\], but the columns of y are \['parity', 'third'\]"),
    ],
)
def test_errors_of_head_weights(head_weights, match):
    clf = quick(head_weights=head_weights)
    with pytest.raises(ValueError, match=match):
        clf.fit(X, FRAME)
    assert unfitted(clf)


def test_shares_have_a_mean_of_1():
    clf = quick(head_weights={"third": 3.0}).fit(X, FRAME)
    assert_array_equal(clf._factors(), [0.5, 1.5])
    assert_array_equal(clf.set_params(head_weights=[7, 7])._factors(), [1, 1])
    assert_array_equal(clf.set_params(head_weights=None)._factors(), [1, 1])
