"""Tied scores: thresholds exist at distinct values only."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

__all__ = ["ends_of_ties"]


def ends_of_ties(ranked):
    """Return where each group of equal values ends in a sorted array.

    Parameters
    ----------
    ranked : ndarray of shape (n,)
        Sorted values, at least one, in either direction.

    Returns
    -------
    last : ndarray of shape (n_groups,), dtype int
        Position of the last value of each group.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.utils._ties import ends_of_ties
    >>> ends_of_ties(np.array([0, 0, 1, 2, 2]))
    array([1, 2, 4])
    """
    return np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
