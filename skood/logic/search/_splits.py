"""Rows of a search, and what constraints say of them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.logic.search._candidates import truth_key
from skood.logic.search._greedy import Candidate
from skood.logic.search._incremental_network import Factor
from skood.utils._torch import row_chunks

__all__ = ["Pool", "Rows", "distinct", "grown", "pool_of", "split_rows"]


class Rows(NamedTuple):
    """Indices of the rows of a search, sorted.

    Parameters
    ----------
    train, validation, test : ndarray of int
        What the detector is fitted on; what decides; what is reported.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_rows(id_rows, ood_rows, validation, test, rng, *, keep_ood):
    """Draw rows for validation and test.

    Parameters
    ----------
    id_rows, ood_rows : ndarray of int
        The rows.

    validation, test : float
        Shares of the ID rows. Of OOD rows, those in proportion.

    rng : RandomState
        Draws. ID rows are drawn first: whatever OOD rows there are changes nothing.

    keep_ood : bool
        Whether the detector learns from OOD rows, too: then they are split as ID rows
        are.

    Returns
    -------
    rows : Rows
        The rows.

    Raises
    ------
    ValueError
        If nothing is left to fit.
    """
    parts = [_drawn(id_rows, validation, test, rng, "ID")]
    if len(ood_rows) and keep_ood:
        parts.append(_drawn(ood_rows, validation, test, rng, "OOD"))
    elif len(ood_rows):
        drawn = rng.permutation(ood_rows)
        n_validation = len(drawn) - _share(len(drawn), test / (validation + test))
        parts.append((drawn[:0], drawn[:n_validation], drawn[n_validation:]))
    return Rows(*(np.sort(np.concatenate(some)) for some in zip(*parts, strict=True)))


def _share(n, share):
    """A share of rows in whole ones, at least one if it is not zero."""
    return max(1, round(share * n)) if share > 0.0 else 0


def _drawn(rows, validation, test, rng, kind):
    n_validation, n_test = _share(len(rows), validation), _share(len(rows), test)
    n_train = len(rows) - n_validation - n_test
    if n_train < 2:
        raise ValueError(
            f"validation={validation} and test={test} leave {max(n_train, 0)} {kind} "
            f"rows of n_samples={len(rows)} to fit the estimator on. Give more rows, "
            "or smaller shares."
        )
    return np.split(rng.permutation(rows), [n_train, n_train + n_validation])


class Pool:
    """What constraints say of the rows of a search.

    Parameters
    ----------
    codes : ndarray of shape (n_samples, n_concepts)
        Codes of calibration rows.

    kinds : ndarray of shape (n_kinds, n_concepts)
        Codes of the kinds of validation rows.

    proba : list of ndarray of shape (n_kinds, n_values) or None
        Probabilities of the values of each concept, if truth is an expectation.
    """

    def __init__(self, codes, kinds, proba):
        self._codes = codes
        self._kinds = kinds
        self._proba = proba

    def candidates(self, kb, fixed):
        """Take up constraints, without those that always or never hold.

        Parameters
        ----------
        kb : KnowledgeBase
            The constraints.

        fixed : ndarray of shape (n_constraints,)
            Their weights, NaN for those that are fitted.

        Returns
        -------
        candidates : list of Candidate
            In the order of the constraints.

        Raises
        ------
        ValueError
            If a constraint has no truth table.
        """
        total = np.zeros(len(kb))
        for rows in row_chunks(len(self._codes), max(len(kb), 1)):
            total += kb.truth(self._codes[rows]).sum(axis=0)
        if self._proba is None:
            truth = kb.truth(self._kinds)
        else:
            truth = kb.expected(self._proba)
        truth = np.ascontiguousarray(truth.T)
        found = []
        for i, (scope, table) in enumerate(zip(kb.scopes, kb.tables, strict=True)):
            if table is None:
                raise ValueError(
                    f"The constraint {kb.constraints[i]!r} names concepts with too "
                    "many combinations of values for a search. Split it."
                )
            if truth_key(scope, table) is not None:
                mean = float(total[i]) / len(self._codes)
                factor = Factor(scope, table, mean, float(fixed[i]))
                found.append(Candidate(kb.constraints[i], factor, truth[i]))
        return found


def distinct(candidates, known):
    """Leave out constraints that say what an earlier one says, or its negation does.

    Parameters
    ----------
    candidates : list of Candidate
        The constraints.

    known : list of Candidate
        Those that come before all of them.

    Returns
    -------
    candidates : list of Candidate
        The others, in their order.
    """
    seen, found = set(), []
    for n, candidate in enumerate([*known, *candidates]):
        key = truth_key(candidate.factor.scope, candidate.factor.table)
        if n >= len(known) and key not in seen:
            found.append(candidate)
        seen.add(key)
    return found


def pool_of(detector, calibration, read):
    """What constraints say of the rows, and of what kind each validation row is.

    Parameters
    ----------
    detector : MLNDetector
        A fitted detector.

    calibration, read : Bunch
        What it reads in calibration and in validation rows.

    Returns
    -------
    pool : Pool
        Takes up constraints.

    kinds : ndarray of shape (n_samples,), dtype int
        The kind of each validation row.
    """
    if detector.marginalize:
        pool = Pool(calibration.codes, read.codes, read.proba)
        return pool, np.arange(len(read.codes))
    kinds, kind = np.unique(read.codes, axis=0, return_inverse=True)
    return Pool(calibration.codes, kinds, None), np.ravel(kind)


def grown(model, start):
    """Add the constraints that a search starts from.

    Parameters
    ----------
    model : SearchModel
        The empty network.

    start : list of Candidate
        The constraints.

    Returns
    -------
    model : SearchModel
        The fitted network.

    Raises
    ------
    ValueError
        If sums are too large to be exact.
    """
    for candidate in start:
        larger = model.extended(candidate.factor)
        if larger is None:
            raise ValueError(
                f"The constraint {candidate.text!r} connects too many concepts for an "
                "exact partition function, which a search needs. Split it, or leave it "
                "out."
            )
        model = larger.fit().settled()
    return model
