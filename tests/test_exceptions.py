"""Tests of the errors that carry numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

from skood.exceptions import NotCertifiableError, SkoodError


def test_not_certifiable_names_the_sizes():
    error = NotCertifiableError("Asked for much.", 400, 900)
    assert (error.n_id_needed, error.n_ood_needed) == (400, 900)
    assert str(error) == (
        "Asked for much. About 400 ID and 900 OOD rows would do, if rates stay what "
        "they are on these rows."
    )
    assert isinstance(error, SkoodError)
    assert isinstance(error, ValueError)


def test_not_certifiable_with_any_number_of_rows():
    error = NotCertifiableError("Asked for too much.")
    assert (error.n_id_needed, error.n_ood_needed) == (None, None)
    assert str(error) == (
        "Asked for too much. No number of rows would do with the rates of these rows; "
        "ask for less, or use other scores."
    )


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(NotCertifiableError("Few.", 4, 9)))
    assert (error.message, error.n_id_needed, error.n_ood_needed) == ("Few.", 4, 9)
