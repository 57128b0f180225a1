"""Which rows of a search are for what."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.logic.search._constraint_search import split_samples


def test_split_of_samples():
    id_rows, ood_rows = np.arange(100), np.arange(100, 130)
    draw = np.random.RandomState
    rows = split_samples(id_rows, ood_rows, 0.2, 0.1, draw(0), keep_ood=False)
    assert [len(part) for part in rows] == [70, 20 + 20, 10 + 10]
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(130))
    assert all((np.diff(part) > 0).all() for part in rows)
    kept = split_samples(id_rows, ood_rows, 0.2, 0.1, draw(0), keep_ood=True)
    assert [len(part) for part in kept] == [70 + 21, 20 + 6, 10 + 3]
    none = split_samples(id_rows, ood_rows[:0], 0.2, 0.1, draw(0), keep_ood=False)
    for part, other, alone in zip(rows, kept, none, strict=True):
        np.testing.assert_array_equal(part[part < 100], alone)
        np.testing.assert_array_equal(other[other < 100], alone)
    with pytest.raises(
        ValueError,
        match=r"validation=0\.6 and test=0\.5 leave 0 ID samples of n_samples=10 to "
        r"fit the estimator on\. Give more samples, or smaller shares\.",
    ):
        split_samples(np.arange(10), ood_rows, 0.6, 0.5, draw(0), keep_ood=False)
    with pytest.raises(ValueError, match="leave 1 OOD samples of n_samples=3"):
        split_samples(id_rows, np.arange(3), 0.2, 0.1, draw(0), keep_ood=True)
