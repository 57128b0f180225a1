"""Tests of how the demo loads and splits its rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skood.benchmark import _parts
from skood.benchmark._parts import prepare, stratified_order
from skood.datasets import load_digits_ood
from tests.benchmark.conftest import DEFAULTS, make_options

options = partial(make_options, id_data="a", ood_data="b")


def numbers(X):
    """The numbers that the fixture `numbered` wrote into images."""
    pixels = np.rint(X[:, 0, 0, :2] * 255).astype(int)
    return pixels[:, 0] * 200 + pixels[:, 1]


def sizes(parts):
    return {name: (n["id"], n["ood"]) for name, n in parts.sizes.items()}


@pytest.mark.parametrize("seed", range(5))
def test_every_stretch_of_the_order_is_stratified(seed):
    rng = np.random.RandomState(seed)
    labels = rng.permutation(np.repeat([3, 5, 8], [300, 150, 50]))
    order = stratified_order(labels, rng)
    assert_array_equal(np.sort(order), np.arange(500))
    for start in range(0, 500, 50):
        counts = [np.sum(labels[order[start : start + 50]] == c) for c in (3, 5, 8)]
        assert np.abs(np.array(counts) - [30, 15, 5]).max() <= 2
    assert np.any(np.diff(order) < 0)


@pytest.fixture
def two_sets(write_idx, numbered):
    """1,000 ID images of two classes, 3 : 1, and as many OOD images as requested."""

    def write(n_ood):
        write_idx("a", numbered(1000), np.arange(1000) % 4 == 0)
        return write_idx("b", numbered(n_ood, first=2000), np.arange(n_ood) % 3)

    return write


@pytest.mark.parametrize(
    ("n_ood", "held", "val", "test"),
    [
        (2000, 300, 100, 300),  # validation rows next to the held-out ones
        (400, 300, 100, 300),  # just enough
        (350, 300, 100, 250),  # half of them have to be held-out rows
        (300, 300, 100, 200),
        (90, 90, 30, 60),
        (3, 3, 1, 2),
    ],
)
def test_parts_do_not_overlap(two_sets, n_ood, held, val, test):
    parts = prepare(options(folder=two_sets(n_ood)))
    assert sizes(parts) == {
        "train": (700, 0),
        "held_out": (300, held),
        "validation": (100, val),
        "test": (200, test),
    }
    train, held_out, tuned = map(numbers, (parts.X_train, parts.X_held, parts.X_val))
    judged = held_out[parts.is_test]
    assert_array_equal(np.sort(np.append(train, held_out[:300])), np.arange(1000))
    assert len(set(held_out)) == 300 + held
    assert not set(tuned) & set(judged)
    assert set(tuned[:100]) | set(judged[:200]) == set(held_out[:300])
    assert len(set(tuned)) == 100 + val
    n_shared = len(set(tuned[100:]) & set(held_out))
    assert n_shared == held - test
    for samples, y in ((train, parts.y_train), (held_out, parts.y_held)):
        assert_array_equal(y, np.where(samples >= 2000, -1, samples % 4 == 0))
    assert_array_equal(parts.y_val == -1, tuned >= 2000)
    assert parts.y_train.mean() == pytest.approx(0.25, abs=0.005)
    assert parts.y_val[:100].mean() == pytest.approx(0.25, abs=0.02)


def test_seed(two_sets):
    folder = two_sets(400)
    first, again, other = (
        prepare(options(folder=folder, random_state=seed)) for seed in (0, 0, 1)
    )
    assert_array_equal(first.X_held, again.X_held)
    assert not np.array_equal(first.X_held, other.X_held)


@pytest.mark.parametrize(
    ("n_train", "n_test", "expected"),
    [
        (None, None, (700, 300)),
        (100, None, (100, 300)),
        (900, None, (900, 100)),
        (None, 10, (990, 10)),
        (20, 9, (20, 9)),
        (997, 3, (997, 3)),
    ],
)
def test_sizes(two_sets, n_train, n_test, expected):
    parts = prepare(options(folder=two_sets(400), n_train=n_train, n_test=n_test))
    assert (len(parts.X_train), parts.sizes["held_out"]["id"]) == expected


def test_default_sizes_are_bounded(write_idx, numbered):
    write_idx("a", numbered(12_000), np.arange(12_000) % 2)
    folder = write_idx("b", numbered(5_000), np.zeros(5_000))
    assert sizes(prepare(options(folder=folder))) == {
        "train": (7_000, 0),
        "held_out": (3_000, 3_000),
        "validation": (1_000, 1_000),
        "test": (2_000, 3_000),
    }


def test_left_out_classes_of_digits():
    parts = prepare(options(id_data="digits", ood_data=None, left_out=(3, 5)))
    digits = load_digits_ood((3, 5), as_images=True)
    assert parts.sizes["train"]["id"] + parts.sizes["held_out"]["id"] == np.sum(
        ~digits.is_ood
    )
    assert parts.sizes["held_out"]["ood"] == digits.is_ood.sum()
    assert set(parts.y_train) == {0, 1, 2, 4, 6, 7, 8, 9}
    held_ood = parts.X_held[parts.y_held == -1].reshape(-1, 64)
    threes_and_fives = digits.data[digits.is_ood].reshape(-1, 64)
    assert_array_equal(
        held_ood[np.lexsort(held_ood.T)],
        threes_and_fives[np.lexsort(threes_and_fives.T)],
    )


def test_left_out_classes_of_files(write_idx, numbered):
    folder = write_idx("a", numbered(300), np.arange(300) % 3)
    parts = prepare(options(ood_data=None, left_out=(1,), folder=folder))
    assert set(parts.y_train) == {0, 2}
    assert_array_equal(numbers(parts.X_held[parts.y_held == -1]) % 3, 1)


def test_out_is_made(two_sets, tmp_path):
    prepare(options(folder=two_sets(9), out=tmp_path / "new" / "results"))
    assert (tmp_path / "new" / "results").is_dir()


def test_out_that_cannot_be_written(two_sets, tmp_path, monkeypatch):
    monkeypatch.setattr(_parts.os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="results cannot be written to"):
        prepare(options(folder=two_sets(9), out=tmp_path / "results"))


def test_mnist_is_fetched_without_a_folder(monkeypatch):
    asked = []

    def fetch_mnist(left_out):
        asked.append(left_out)
        return load_digits_ood(left_out, as_images=True)

    monkeypatch.setattr(_parts, "fetch_mnist", fetch_mnist)
    parts = prepare(options(id_data="mnist", ood_data=None, left_out=(1, 2)))
    assert asked == [(1, 2)]
    assert 1 not in parts.y_train


@pytest.mark.parametrize("error", [OSError("no network"), ImportError("no pandas")])
def test_mnist_that_cannot_be_fetched(monkeypatch, error):
    def fetch_mnist(left_out):
        raise error

    monkeypatch.setattr(_parts, "fetch_mnist", fetch_mnist)
    with pytest.raises(
        OSError, match=r"could not be fetched from OpenML \(no .*--data"
    ):
        prepare(options(id_data="mnist", ood_data="digits"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"id_data": "c"}, r"contains no folder 'c', only \['a', 'b'\]"),
        ({"ood_data": ""}, "contains no folder ''"),
        ({"id_data": "digits"}, "'digits' are of 8 x 8 pixels, images of 'b"),
        (
            {"id_data": "digits", "ood_data": None},
            "was given as data folder, but 'digits' come with scikit-learn",
        ),
        (
            {"n_train": 1001},
            "1001 ID samples to train on are needed, but 'a' has 1000 ID samples in "
            "all; at least 3",
        ),
        (
            {"n_train": 998, "n_test": 3},
            "998 ID samples to train on and 3 ID samples to hold out are needed",
        ),
        ({"n_test": 1000}, "1000 ID samples to hold out are needed, but"),
        ({"n_train": 4}, "Of the 4 training samples only one is of class 1"),
        ({"n_train": 1}, "All ID training samples of 'a' are of class 0; a"),
        (
            {"ood_data": None, "left_out": (1,)},
            "All ID training samples of 'a' are of class 0; a classifier needs two",
        ),
        ({"ood_data": None, "left_out": (7,)}, r"names \[7\], which are no classes"),
    ],
)
def test_invalid(two_sets, changes, text):
    error = FileNotFoundError if "no folder" in text else ValueError
    with pytest.raises(error, match=text):
        prepare(options(folder=two_sets(50), **changes))


def test_more_invalid(write_idx, numbered, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        prepare(options(folder=tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="'a' is read from IDX files, but no data"):
        prepare(options())
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no folder 'a', only no folders"):
        prepare(options(folder=tmp_path / "empty"))
    for name in "bcdefgh":
        (tmp_path / "empty" / name).mkdir()
    with pytest.raises(FileNotFoundError, match=r"'e', 'f'\] and 2 more\."):
        prepare(options(folder=tmp_path / "empty"))
    write_idx("two", numbered(2), [0, 0])
    write_idx("tiny", numbered(3), [0, 1, 0])
    write_idx("same", np.full((40, 4, 4), 7), np.arange(40) % 2)
    folder = write_idx("b", numbered(30), np.arange(30) % 2)
    with pytest.raises(
        ValueError, match="'two' has 2 OOD samples; at least 3 are needed"
    ):
        prepare(options(id_data="b", ood_data="two", folder=folder))
    with pytest.raises(
        ValueError, match="Training samples and 3 to hold out are needed"
    ):
        prepare(options(id_data="tiny", folder=folder))
    with pytest.raises(ValueError, match="images of 'same' in one class are the same"):
        prepare(options(id_data="same", folder=folder))


def test_left_out_classes_stand_in_for_ood_data():
    assert make_options().left_out == (8, 9)
    assert make_options().ood_name == "its classes 8, 9"
    assert make_options(left_out=[3]).left_out == (3,)
    assert make_options(left_out=3).left_out == (3,)
    with_ood = make_options(ood_data="letters")
    assert with_ood.left_out == ()
    assert with_ood.ood_name == "letters"


def test_folders_become_paths(tmp_path):
    options = make_options(folder="~/data", out=str(tmp_path))
    assert options.folder == Path.home() / "data"
    assert options.out == tmp_path
    content = options.to_dict()
    assert content["folder"] == str(Path.home() / "data")
    assert content["left_out"] == [8, 9]
    assert set(content) == set(DEFAULTS)
    assert make_options().to_dict()["out"] is None


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"id_data": None}, TypeError, "id_data must be the name of data, got None"),
        ({"ood_data": 3}, TypeError, "ood_data must be the name of data, got 3"),
        ({"ood_data": "digits"}, ValueError, "'digits' cannot be both the ID and the"),
        (
            {"ood_data": "letters", "left_out": (8,)},
            ValueError,
            r"The classes \(8,\) were left out although the OOD data are "
            "'letters'; give one or the other",
        ),
        ({"left_out": ()}, ValueError, "no OOD samples: leave out at least one"),
        ({"n_train": 0}, ValueError, "n_train must be at least 1, got 0"),
        ({"n_test": 2}, ValueError, "n_test must be at least 3, got 2"),
        ({"max_epochs": 1.5}, TypeError, "max_epochs must be an integer, got 1.5"),
        ({"n_train": True}, TypeError, "n_train must be an integer, got True"),
        ({"random_state": None}, TypeError, "random_state must be an integer, got N"),
        (
            {"random_state": 2**32},
            ValueError,
            "random_state must be at least 0 and at most 4294967295, got 4294967296",
        ),
        ({"tpr_min": 1.5}, ValueError, r"tpr_min must be in \[0, 1\], got 1.5"),
        ({"fpr_max": float("nan")}, ValueError, r"fpr_max must be in \[0, 1\], got n"),
        ({"fpr_max": "0.2"}, TypeError, r"fpr_max must be a number in \[0, 1\], got"),
        ({"tpr_min": True}, TypeError, r"tpr_min must be a number in \[0, 1\], got T"),
    ],
)
def test_invalid_options(changes, error, text):
    with pytest.raises(error, match=text):
        make_options(**changes)


def test_out_that_is_a_file(tmp_path):
    path = tmp_path / "results"
    path.write_text("")
    with pytest.raises(NotADirectoryError, match="results is a file; results are"):
        make_options(out=path)
