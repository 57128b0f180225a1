"""Tests of the parameters of the main job."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from pathlib import Path

import pytest

from tests.benchmark.conftest import DEFAULTS, make_options


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
def test_invalid(changes, error, text):
    with pytest.raises(error, match=text):
        make_options(**changes)


def test_out_that_is_a_file(tmp_path):
    path = tmp_path / "results"
    path.write_text("")
    with pytest.raises(NotADirectoryError, match="results is a file; results are"):
        make_options(out=path)
