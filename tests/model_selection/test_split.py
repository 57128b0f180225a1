"""Tests of the splitters: what every split must hold, and small cases by hand."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    check_cv,
    cross_val_predict,
    cross_val_score,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from skood.detectors import MSP, Energy
from skood.exceptions import SkoodWarning
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold

RNG = np.random.RandomState(0)


def zeros(y):
    return np.zeros((len(y), 1))


def splits(cv, y):
    return list(cv.split(zeros(y), y))


@pytest.mark.parametrize("cv", [OODStratifiedKFold(3), LeaveClassesOut(2)])
def test_is_a_scikit_learn_splitter(cv):
    assert check_cv(cv) is cv
    assert repr(pickle.loads(pickle.dumps(cv))) == repr(cv)
    assert repr(clone(cv, safe=False)) == repr(cv)
    assert "ood_label=-1" in repr(cv)
    assert cv.get_metadata_routing().split.requests == {"groups": True}


# ---------------------------------------------------------------- OODStratifiedKFold


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ood_in_train", [True, False])
def test_folds_partition_the_samples(shuffle, ood_in_train):
    y = RNG.permutation(np.repeat([0, 1, 2, -1], [23, 31, 12, 17]))
    cv = OODStratifiedKFold(
        4,
        shuffle=shuffle,
        random_state=0 if shuffle else None,
        ood_in_train=ood_in_train,
    )
    assert cv.get_n_splits() == 4
    parts = splits(cv, y)
    assert len(parts) == 4
    assert_array_equal(np.sort(np.concatenate([test for _, test in parts])), range(83))
    for train, test in parts:
        rest = np.setdiff1d(np.arange(83), test)
        assert_array_equal(train, rest if ood_in_train else rest[y[rest] != -1])
        for label in np.unique(y):
            share = np.sum(y == label) / 4
            assert abs(np.sum(y[test] == label) - share) < 1
        assert 20 <= test.size <= 21


def test_without_shuffling_strata_keep_their_order():
    y = np.array([0, -1, 0, 1, -1, 1])
    parts = splits(OODStratifiedKFold(2), y)
    assert_array_equal(parts[0][1], [0, 1, 3])
    assert_array_equal(parts[1][1], [2, 4, 5])


def test_equals_stratified_k_fold_when_ood_samples_come_last():
    y = np.repeat([3, 5, 4, -1], 10)
    pairs = zip(
        splits(OODStratifiedKFold(5, shuffle=True, random_state=1), y),
        StratifiedKFold(5, shuffle=True, random_state=1).split(zeros(y), y),
        strict=True,
    )
    for ours, theirs in pairs:
        assert_array_equal(ours[0], theirs[0])
        assert_array_equal(ours[1], theirs[1])


@pytest.mark.filterwarnings("ignore:The least populated class")
def test_classes_smaller_than_n_splits_still_give_id_samples_to_each_fold():
    """StratifiedKFold on these labels has a test fold without any ID row."""
    y = np.repeat([0, -1, 1], [3, 6, 3])
    plain = [y[test] for _, test in StratifiedKFold(5).split(zeros(y), y)]
    assert any((subset == -1).all() for subset in plain)
    for _, test in splits(OODStratifiedKFold(5), y):
        assert (y[test] == -1).any()
        assert (y[test] != -1).any()


def test_random_state_of_folds():
    y = RNG.permutation(np.repeat([0, 1, -1], 20))

    def tests(seed):
        cv = OODStratifiedKFold(3, shuffle=True, random_state=seed)
        return [splits(cv, y)[i][1].tolist() for i in range(3)]

    assert tests(0) == tests(0)
    assert tests(0) != tests(1)


def test_string_labels_and_other_ood_label():
    y = np.array(["a", "b", "a", "b", "junk", "junk"])
    cv = OODStratifiedKFold(2, ood_label="junk", ood_in_train=False)
    for train, test in splits(cv, y):
        assert sorted(y[test]) == ["a", "b", "junk"]
        assert sorted(y[train]) == ["a", "b"]
    objects = np.array(["a", "b", "a", "b", -1, -1], dtype=object)
    for _, test in splits(OODStratifiedKFold(2), objects):
        assert sorted(map(str, objects[test])) == ["-1", "a", "b"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            np.repeat([0, 1, -1], [9, 9, 2]),
            "y has 2 out-of-distribution samples .* few",
        ),
        (np.repeat([0, 1], 9), "y has 0 out-of-distribution samples .*LeaveClassesOut"),
        (np.repeat([0, -1], [2, 9]), "y has 2 in-distribution samples"),
        (np.repeat([-1], 9), "no in-distribution samples: every label in y equals"),
        (np.append(RNG.rand(9), [-1] * 3), "needs class labels in y, got 'continuous'"),
        (None, "OODStratifiedKFold splits by the labels: y is required"),
    ],
)
def test_fold_errors(y, message):
    X = np.zeros((9 if y is None else len(y), 1))
    with pytest.raises(ValueError, match=message):
        next(OODStratifiedKFold(3).split(X, y))


def test_fold_parameter_errors():
    with pytest.raises(ValueError, match="'n_splits' parameter of OODStratifiedKFold"):
        OODStratifiedKFold(1)
    with pytest.raises(ValueError, match="random_state=0 has no effect here"):
        OODStratifiedKFold(random_state=0)


# ------------------------------------------------------------------- LeaveClassesOut


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4])
def test_groups_of_sorted_classes(n_classes):
    """Every class is out at least once; only the last group is filled up."""
    y = RNG.permutation(np.repeat([2, 3, 5, 7, 11], 8))
    cv = LeaveClassesOut(n_classes, random_state=0)
    parts = splits(cv, y)
    n_splits = -(-5 // n_classes)
    assert cv.get_n_splits(y=y) == len(parts) == n_splits
    out = [sorted(set(y) - set(y[train])) for train, _ in parts]
    cycle = [2, 3, 5, 7, 11] * 2
    assert out == [
        sorted(cycle[i * n_classes : (i + 1) * n_classes]) for i in range(n_splits)
    ]


@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_of_a_split(shuffle):
    """All left-out and OOD rows are tested on, and a fraction of each other class."""
    y = RNG.permutation(np.repeat([0, 1, 2, 3, -1], [40, 24, 7, 2, 9]))
    cv = LeaveClassesOut(
        2, test_size=0.25, shuffle=shuffle, random_state=3 if shuffle else None
    )
    for (train, test), out in zip(splits(cv, y), [(0, 1), (2, 3)], strict=True):
        assert_array_equal(np.sort(np.append(train, test)), np.arange(y.size))
        assert np.intersect1d(train, test).size == 0
        for label in (*out, -1):
            assert np.sum(y[test] == label) == np.sum(y == label)
        for label, n_test in {0: 10, 1: 6, 2: 2, 3: 1}.items():
            if label not in out:
                assert np.sum(y[test] == label) == n_test


def test_share_is_never_empty_and_never_everything():
    y = np.repeat([0, 1, 2], 3)
    for size, n_test in ((0.01, 1), (0.99, 2)):
        for train, test in splits(LeaveClassesOut(test_size=size), y):
            accepted = np.unique(y[train])
            assert [np.sum(y[test] == label) for label in accepted] == [n_test] * 2


def test_without_shuffling_the_last_samples_are_tested_on():
    y = np.array([0, 1, 0, 1, 0, 1])
    train, test = splits(LeaveClassesOut(shuffle=False, test_size=0.4), y)[0]
    assert_array_equal(test, [0, 2, 4, 5])
    assert_array_equal(train, [1, 3])


def test_shuffled_shares_differ_between_splits():
    y = np.repeat(np.arange(4), 50)
    parts = splits(LeaveClassesOut(random_state=0), y)
    shares = [test[y[test] == 3].tolist() for _, test in parts[:3]]
    assert shares[0] != shares[1] != shares[2]
    again = splits(LeaveClassesOut(random_state=0), y)
    assert all((a[1] == b[1]).all() for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize(
    ("n_known", "n_classes", "n_splits"), [(5, 2, 10), (5, 1, 3), (40, 20, 30)]
)
def test_random_class_sets_are_distinct(n_known, n_classes, n_splits):
    """(40, 20) has more sets than are ever listed, (5, 2, 10) all there are."""
    y = np.repeat(np.arange(n_known), 2)
    cv = LeaveClassesOut(n_classes, n_splits=n_splits, random_state=0)
    assert cv.get_n_splits() == n_splits
    out = [tuple(sorted(set(y) - set(y[train]))) for train, _ in splits(cv, y)]
    assert len(set(out)) == len(out) == n_splits
    assert {len(group) for group in out} == {n_classes}
    assert out == [tuple(sorted(set(y) - set(y[train]))) for train, _ in splits(cv, y)]


def test_random_class_sets_without_shuffling_samples():
    y = np.repeat(np.arange(6), 5)
    cv = LeaveClassesOut(2, n_splits=3, shuffle=False, random_state=0)
    for train, test in splits(cv, y):
        accepted = np.unique(y[train])
        assert_array_equal(test[np.isin(y[test], accepted)], accepted * 5 + 4)


def test_listed_class_sets_of_strings():
    y = np.repeat(["cat", "dog", "eel", "fox"], 4)
    cv = LeaveClassesOut(left_out=[("eel",), ("cat", "dog")])
    assert cv.get_n_splits() == 2
    trained = [sorted(set(y[train])) for train, _ in splits(cv, y)]
    assert trained == [["cat", "dog", "fox"], ["eel", "fox"]]


def test_labels_of_other_kinds():
    pd = pytest.importorskip("pandas")
    y = pd.Series(["a", "b", "c"] * 3)
    assert len(splits(LeaveClassesOut(), y)) == 3
    floats = np.repeat([1.0, 2.0, -1.0], 4)
    parts = splits(LeaveClassesOut(left_out=[(2,)]), floats)
    assert set(floats[parts[0][0]]) == {1.0}


@pytest.mark.parametrize(
    ("params", "y", "message"),
    [
        ({}, None, "LeaveClassesOut splits by the labels: y is required, got None"),
        ({}, RNG.rand(9), "needs class labels in y, got 'continuous' values such as 0"),
        ({}, [0, 1, np.nan], "Input y contains NaN"),
        ({}, [-1, -1], "no in-distribution samples"),
        ({}, [4, 4, -1], "n_classes=1 must be smaller than .* which is 1, so"),
        ({"n_classes": 2}, [0, 0, 1, 1], "n_classes=2 must be smaller than"),
        ({}, [0, 0, 1], "Class 1 has a single sample"),
        ({}, ["a", "b", "b"], "Class 'a' has a single sample"),
        ({"n_splits": 3}, [0, 0, 1, 1], "only 2 ways to leave n_classes=1 of 2"),
        ({"left_out": [(0, 9)]}, [0, 0, 1, 1], r"names \[9\], which y does not"),
        ({"left_out": [("b",)]}, [0, 0, 1, 1], r"names \['b'\], which y does not"),
        ({"left_out": [(0, 1)]}, [0, 0, 1, 1], r"not all 2 of them. Got \(0, 1\)"),
        ({"left_out": [(0, 0)]}, [0, 0, 1, 1], "each class once"),
        ({"left_out": [()]}, [0, 0, 1, 1], "at least one class"),
    ],
)
def test_leave_classes_out_errors(params, y, message):
    X = np.zeros((3 if y is None else len(y), 1))
    with pytest.raises(ValueError, match=message):
        list(LeaveClassesOut(**params).split(X, y))


def test_number_of_splits_needs_labels():
    with pytest.raises(ValueError, match="y is required, got None"):
        LeaveClassesOut().get_n_splits(np.zeros((4, 1)))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_classes": 0}, "'n_classes' parameter of LeaveClassesOut"),
        ({"test_size": 1.0}, "'test_size' parameter of LeaveClassesOut"),
        ({"left_out": [3, 4]}, "one tuple of classes for each split"),
        ({"left_out": ["cat"]}, "one tuple of classes for each split"),
        ({"left_out": []}, "one tuple of classes for each split"),
        ({"left_out": [(1,)], "n_splits": 2}, "Give one of them"),
        ({"shuffle": False, "random_state": 0}, "random_state=0 has no effect here"),
    ],
)
def test_leave_classes_out_parameter_errors(params, message):
    with pytest.raises(ValueError, match=message):
        LeaveClassesOut(**params)


# ------------------------------------------------------------------------- groups


@pytest.mark.parametrize(
    "cv",
    [
        OODStratifiedKFold(3),
        OODStratifiedKFold(3, shuffle=True, random_state=0, ood_in_train=False),
        LeaveClassesOut(random_state=0),
        LeaveClassesOut(2, shuffle=False, test_size=0.4),
    ],
)
@pytest.mark.parametrize("pure", [True, False])
def test_groups_are_not_divided(cv, pure):
    """Patients with one class each, or with samples of all classes and OOD samples."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2, -1], [60, 50, 40, 50]))
    patients = rng.integers(0, 12, size=200)
    patients = np.char.add(patients.astype(str), y.astype(str) if pure else "")
    folds = list(cv.split(zeros(y), y, patients))
    assert len(folds) == cv.get_n_splits(zeros(y), y)
    for train, test in folds:
        assert not np.intersect1d(patients[train], patients[test]).size
        assert (y[test] == -1).any() and (y[test] != -1).any()
        left_out = np.setdiff1d([0, 1, 2], y[train])
        assert np.isin([0, 1, 2], y[test]).all()
        if isinstance(cv, OODStratifiedKFold):
            assert not left_out.size
            assert (-1 in y[train]) == cv.ood_in_train
            continue
        assert left_out.size == cv.n_classes and -1 not in y[train]
        unused = np.setdiff1d(np.arange(200), np.concatenate([train, test]))
        assert np.isin(y[unused], [*left_out, -1]).all()
        assert bool(unused.size) == (not pure)
        accepted = np.isin(y, y[train])
        share = np.isin(np.flatnonzero(accepted), test).mean()
        assert cv.test_size <= share < cv.test_size + 0.2
    if isinstance(cv, OODStratifiedKFold):
        assert_array_equal(np.sort(np.concatenate([t for _, t in folds])), range(200))


@pytest.mark.parametrize("shuffle", [False, True])
def test_groups_of_single_samples_are_as_no_groups(shuffle):
    y = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, -1], [9, 7, 5, 4]))
    cv = LeaveClassesOut(shuffle=shuffle, random_state=3 if shuffle else None)
    single = np.random.default_rng(2).permutation(25)
    for ours, alone in zip(cv.split(zeros(y), y, single), splits(cv, y), strict=True):
        if not shuffle:  # with it, another draw of the same kind
            assert_array_equal(ours[0], alone[0])
        assert [len(subset) for subset in ours] == [len(subset) for subset in alone]


@pytest.mark.parametrize(
    ("cv", "groups", "message"),
    [
        (
            OODStratifiedKFold(2),
            [0, 0, 1, 1, 2, 2, 2, 2],
            "y has 1 out-of-distribution groups of samples .*Lower n_splits",
        ),
        (
            LeaveClassesOut(),
            [0, 1, 2, 2, 3, 3, 4, 5],
            "Class 1 has samples in too few groups to be both trained and tested on",
        ),
        (
            LeaveClassesOut(left_out=[(1,)], shuffle=False),
            [0, 1, 0, 0, 2, 2, 2, 2],
            "Class 1 is left out, but each of its groups also has training samples",
        ),
        (LeaveClassesOut(), [0, 1], "inconsistent numbers of samples"),
        (LeaveClassesOut(), [0.0, np.nan] * 4, "groups contains NaN"),
    ],
)
def test_groups_that_cannot_be_split(cv, groups, message):
    y = np.array([0, 0, 1, 1, -1, -1, -1, -1])
    with pytest.raises(ValueError, match=message):
        list(cv.split(zeros(y), y, groups))


def test_groups_are_passed_by_scikit_learn():
    """With metadata routing and without it, in cross-validation."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, -1], 40))
    X, groups = rng.normal(size=(120, 2)), rng.integers(0, 15, size=120)
    cv = OODStratifiedKFold(3)
    args = MSP(LogisticRegression()), X, y
    plain = cross_val_score(*args, cv=cv, groups=groups)
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(*args, cv=cv, params={"groups": groups})
    assert_array_equal(plain, routed)
    assert_array_equal(plain, cross_val_score(*args, cv=list(cv.split(X, y, groups))))
    assert (plain != cross_val_score(*args, cv=cv)).any()


# -------------------------------------------------------------- in scikit-learn's hands


def seen_classes(estimator, X, y):
    """A scorer: how many of the test labels the estimator was fitted on."""
    return np.isin(np.unique(y), estimator.classes_).sum()


def test_in_grid_search_on_digits():
    X, y = load_digits(return_X_y=True)
    search = GridSearchCV(
        KNeighborsClassifier(),
        {"n_neighbors": [1, 3]},
        cv=LeaveClassesOut(3, random_state=0),
        scoring=seen_classes,
        refit=False,
    ).fit(X, y)
    assert search.n_splits_ == 4
    assert_array_equal(search.cv_results_["mean_test_score"], [7, 7])


def test_in_cross_validation():
    y = np.repeat([0, 1, 2, -1], 10)
    X = y.reshape(-1, 1).astype(float)
    cv = OODStratifiedKFold(5, ood_in_train=False)
    knn = KNeighborsClassifier(1)
    assert_array_equal(cross_val_score(knn, X, y, cv=cv), [0.75] * 5)
    with config_context(enable_metadata_routing=True):
        # params: without them scikit-learn 1.6.0 trips over its own default
        routed = cross_val_score(knn, X, y, cv=cv, params={})
        assert_array_equal(routed, [0.75] * 5)
    predicted = cross_val_predict(knn, X, y, cv=cv)
    assert_array_equal(predicted[:30], y[:30])
    assert_array_equal(predicted[30:], [0] * 10)


# --------------------------------------------------------------- labels in columns


def _table(n=60):
    rng = np.random.RandomState(3)
    y = np.empty((n, 2), dtype=object)
    y[:, 0] = rng.randint(3, size=n)
    y[:, 1] = rng.permutation(np.repeat(["red", "blue"], n // 2))
    y[rng.permutation(n)[:12], rng.randint(2, size=12)] = -1
    return y


@pytest.mark.parametrize("kind", ["array", "frame", "list"])
def test_the_first_column_holds_the_classes(kind):
    table = _table()
    flat = np.where((table == -1).any(axis=1), -1, table[:, 0]).astype(int)
    y = {
        "array": table,
        "frame": pd.DataFrame(table, columns=["class", "color"]),
        "list": table.tolist(),
    }[kind]
    for cv in (OODStratifiedKFold(3), LeaveClassesOut(random_state=0)):
        for ours, theirs in zip(
            cv.split(zeros(table), y), splits(cv, flat), strict=True
        ):
            assert_array_equal(ours[0], theirs[0])
            assert_array_equal(ours[1], theirs[1])
    assert LeaveClassesOut().get_n_splits(y=y) == 3
    with pytest.raises(ValueError, match="no in-distribution samples"):
        splits(OODStratifiedKFold(2), [[-1, 1], [2, -1]])


# ---------------------------------------------------------------- frozen classifiers


def test_a_frozen_classifier_that_has_the_left_out_classes():
    """Nothing is new to it: scores rank at random, and a warning says why."""
    X, y = load_digits(n_class=6, return_X_y=True)
    X, y = X[::2], y[::2]
    plain = LogisticRegression(max_iter=200)
    frozen = FrozenEstimator(clone(plain).fit(X, y))
    cv = LeaveClassesOut(left_out=[(3, 4)], random_state=0)
    match = r"classes \[3, 4\] count as OOD, but .*estimator, a frozen LogisticReg"
    for scoring in (make_ood_scorer(), None):
        for detector in (Energy(frozen), make_pipeline(MaxAbsScaler(), Energy(frozen))):
            with pytest.warns(SkoodWarning, match=match):
                cross_val_score(detector, X, y, cv=cv, scoring=scoring)
        fitted_anew = MSP(plain)
        with warnings.catch_warnings(action="error", category=SkoodWarning):
            (score,) = cross_val_score(fitted_anew, X, y, cv=cv, scoring=scoring)
        assert score > 0.8
    # known OOD samples, and classes that the classifier lacks, are no reason to warn
    known = y < 4
    subset = FrozenEstimator(clone(plain).fit(X[known], y[known]))
    with warnings.catch_warnings(action="error", category=SkoodWarning):
        detector = Energy(subset).fit(X[known], y[known])
        detector.score(X, y)
        detector.score(X, np.where(known, y, -1))
        make_ood_scorer()(detector, X, y)
