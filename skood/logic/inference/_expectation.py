"""Expected truth of constraints under uncertain values of concepts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._torch import row_chunks, to_numpy

# Entries of the tables and of their sums in memory at a time.
_MAX_ENTRIES = 2**22

# Rows that are summed at a time.
_ROWS = 64

# Tolerance of sums of probabilities: networks return float32 or float16.
_MAX_ROUNDING = 1e-2


def check_probabilities(P, domains):
    """Return float64 probabilities, (n_samples, n_values) each, or raise."""
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
        if not ((p >= 0).all() and (off <= _MAX_ROUNDING).all()):  # also true for NaN
            raise ValueError(
                f"Probabilities of the concept {name!r} are negative, or NaN, or do "
                "not sum to 1 in each row."
            )
    return P


def expected_tables(P, scopes, tables):
    """Return the expectation of truth tables, (n_samples, n_constraints)."""
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
    # padded to a constant number of rows, so that all sums have the same order
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
