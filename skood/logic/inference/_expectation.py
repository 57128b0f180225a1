"""Expected truth of constraints where the values of concepts are uncertain."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._torch import row_chunks, to_numpy

__all__ = ["check_probabilities", "expected_tables"]

# Entries of the tables, and of what they are summed to, that are held at a time.
_MAX_ENTRIES = 2**22

# Rows that are summed at a time.
_ROWS = 64

# Probabilities may sum to 1 within this: those of networks are in float32 or float16.
_MAX_ROUNDING = 1e-2


def check_probabilities(P, domains):
    """Return the probabilities of the values of concepts in float64, or raise.

    Parameters
    ----------
    P : list of array-like of shape (n_samples, n_values)
        One for each concept.

    domains : dict of str to list
        The concepts and their values.

    Returns
    -------
    P : list of ndarray of shape (n_samples, n_values)
        The same.

    Raises
    ------
    ValueError
        If shapes do not fit, or rows are no probabilities.
    """
    if len(P) != len(domains):
        raise ValueError(
            f"Expected probabilities of {len(domains)} concepts, got {len(P)}."
        )
    P = [np.asarray(to_numpy(p), dtype=np.float64) for p in P]
    for p, (name, values) in zip(P, domains.items(), strict=True):
        shape = len(P[0]), len(values)
        if p.shape != shape:
            raise ValueError(
                f"Expected probabilities of shape {shape} of the concept {name!r}, got "
                f"{p.shape}."
            )
        off = np.abs(p.sum(axis=1) - 1)
        if not ((p >= 0).all() and (off <= _MAX_ROUNDING).all()):  # so if there is NaN
            raise ValueError(
                f"Probabilities of the concept {name!r} are negative, or NaN, or do "
                "not sum to 1 in each row."
            )
    return P


def expected_tables(P, scopes, tables):
    r"""Expectation of truth tables over independent concepts.

    .. math:: E_i = \sum_z \varphi_i(z) \prod_k p_k(z_k)

    Parameters
    ----------
    P : list of ndarray of shape (n_samples, n_values)
        Probabilities of the values of each concept.

    scopes : list of tuple of int
        Concepts of each constraint.

    tables : list of ndarray of bool
        Truth of each constraint for all values of these concepts.

    Returns
    -------
    expected : ndarray of shape (n_samples, n_constraints)
        The expectations, those of a row the same beside any other rows.
    """
    out = np.empty((len(P[0]), len(scopes)))
    groups: dict = {}
    for i, scope in enumerate(scopes):
        groups.setdefault(scope, []).append(i)
    for scope, same in groups.items():
        for some in row_chunks(len(same), tables[same[0]].size, budget=_MAX_ENTRIES):
            members = same[some]
            stacked = np.stack([tables[i] for i in members], axis=-1)
            out[:, members] = _summed(stacked, [P[j] for j in scope])
    return np.minimum(out, 1.0)


def _summed(tables, P):
    """Sum tables of the same concepts over their values."""
    flat = tables.reshape(len(tables), -1).astype(np.float64)
    # always as many rows, the last ones filled up: then all are summed in the same way
    n_rows = min(_ROWS, max(1, _MAX_ENTRIES // flat.shape[1]))
    out = np.empty((len(P[0]), tables.shape[-1]))
    for start in range(0, len(out), n_rows):
        rows = slice(start, min(start + n_rows, len(out)))
        parts = [np.zeros((n_rows, p.shape[1])) for p in P]
        for part, p in zip(parts, P, strict=True):
            part[: rows.stop - start] = p[rows]
        left = parts[0] @ flat
        for part in parts[1:]:
            left = left.reshape(n_rows, part.shape[1], -1)
            left = np.einsum("nv,nvr->nr", part, left)
        out[rows] = left[: rows.stop - start]
    return out
