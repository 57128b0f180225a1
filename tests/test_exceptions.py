"""Tests of the errors that carry numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import pytest

from skood.exceptions import ConstraintSyntaxError, NotCertifiableError, SkoodError


def test_not_certifiable_names_the_sizes():
    error = NotCertifiableError("Asked for much.", 400, 900)
    assert (error.n_id_needed, error.n_ood_needed) == (400, 900)
    assert str(error) == (
        "Asked for much. About 400 ID and 900 OOD samples suffice, if rates are as on "
        "these samples."
    )
    assert isinstance(error, SkoodError)
    assert isinstance(error, ValueError)


def test_not_certifiable_with_any_number_of_samples():
    error = NotCertifiableError("Asked for too much.")
    assert (error.n_id_needed, error.n_ood_needed) == (None, None)
    assert str(error) == (
        "Asked for too much. No number of samples suffices if rates are as on these "
        "samples; use weaker bounds, or other scores."
    )


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(NotCertifiableError("Few.", 4, 9)))
    assert (error.message, error.n_id_needed, error.n_ood_needed) == ("Few.", 4, 9)


@pytest.mark.parametrize(
    ("text", "position", "place", "shown"),
    [
        ("a = ", 4, (1, 5), "No.\n    a = \n        ^"),
        ("", 0, (1, 1), "No.\n    \n    ^"),
        ("a\nb = ?\nc", 6, (2, 5), "No. (line 2)\n    b = ?\n        ^"),
        ("a\n", 2, (2, 1), "No. (line 2)\n    \n    ^"),
        ("\n\ta ?", 4, (2, 4), "No. (line 2)\n    \ta ?\n    \t  ^"),
        # nothing that would move the cursor of a terminal
        ("a\r\x1b[2J ?", 8, (1, 9), "No.\n    a  [2J ?\n            ^"),
    ],
)
def test_syntax_errors_show_the_place(text, position, place, shown):
    error = ConstraintSyntaxError("No.", text, position)
    assert (error.message, error.text, error.position) == ("No.", text, position)
    assert (error.lineno, error.column) == place
    assert str(error) == shown
    assert isinstance(error, SkoodError)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == shown
    assert (again.lineno, again.column) == place


@pytest.mark.parametrize("position", [0, 500_000, 1_000_000])
def test_syntax_errors_of_long_lines_are_short(position):
    text = "a" * 1_000_000
    error = ConstraintSyntaxError("No.", text, position)
    assert len(str(error)) < 300
    assert error.text == text
    shown, caret = str(error).split("\n")[1:]
    at = caret.index("^")
    assert shown[:at].strip("a ") in ("", "…")
    assert (position == 0) == (shown[:at].strip() == "")
