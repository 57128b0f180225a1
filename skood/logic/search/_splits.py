"""Splits of the samples of a search, and the truth of constraints on them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np

from skood.logic.search._candidates import truth_key
from skood.logic.search._greedy import Candidate
from skood.logic.search._incremental_network import Factor
from skood.utils._torch import row_chunks


class Rows(NamedTuple):
    """Sorted indices of the training, validation and test samples of a search."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_rows(id_rows, ood_rows, validation, test, rng, *, keep_ood):
    """Draw validation and test samples: fractions of the ID samples.

    OOD samples are divided in this proportion; with `keep_ood` by the same fractions.
    """
    # ID samples first, so that OOD samples do not affect their split
    parts = [_drawn(id_rows, validation, test, rng, "ID")]
    if len(ood_rows) and keep_ood:
        parts.append(_drawn(ood_rows, validation, test, rng, "OOD"))
    elif len(ood_rows):
        drawn = rng.permutation(ood_rows)
        n_validation = len(drawn) - _share(len(drawn), test / (validation + test))
        parts.append((drawn[:0], drawn[:n_validation], drawn[n_validation:]))
    return Rows(*(np.sort(np.concatenate(some)) for some in zip(*parts, strict=True)))


def _share(n, share):
    """Return a fraction of samples as an integer, at least one if not zero."""
    return max(1, round(share * n)) if share > 0.0 else 0


def _drawn(rows, validation, test, rng, kind):
    n_validation, n_test = _share(len(rows), validation), _share(len(rows), test)
    n_train = len(rows) - n_validation - n_test
    if n_train < 2:
        raise ValueError(
            f"validation={validation} and test={test} leave {max(n_train, 0)} {kind} "
            f"samples of n_samples={len(rows)} to fit the estimator on. Give more "
            "samples, or smaller shares."
        )
    return np.split(rng.permutation(rows), [n_train, n_train + n_validation])


class Pool:
    """Truth of constraints on the samples of a search."""

    def __init__(self, codes, kinds, proba):
        # codes of calibration samples, distinct ones of validation samples; with
        # probabilities of values the truth is an expectation
        self._codes = codes
        self._kinds = kinds
        self._proba = proba

    def candidates(self, kb, fixed):
        """Return a `Candidate` for each constraint of `kb` that is not constant."""
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
    """Return candidates not equivalent to an earlier one, or to its negation."""
    seen, found = set(), []
    for n, candidate in enumerate([*known, *candidates]):
        key = truth_key(candidate.factor.scope, candidate.factor.table)
        if n >= len(known) and key not in seen:
            found.append(candidate)
        seen.add(key)
    return found


def pool_of(detector, calibration, read):
    """Return the `Pool` of a detector, and the kind of each validation sample."""
    if detector.marginalize:
        pool = Pool(calibration.codes, read.codes, read.proba)
        return pool, np.arange(len(read.codes))
    kinds, kind = np.unique(read.codes, axis=0, return_inverse=True)
    return Pool(calibration.codes, kinds, None), np.ravel(kind)


def grown(model, start):
    """Return the fitted network with the initial constraints of a search, or raise."""
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
