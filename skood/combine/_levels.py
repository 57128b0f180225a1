"""Levels of combined p-values: splits of held-out samples, and ranks among them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.utils import Bunch

from skood.combine._base_combiner import BaseCombiner, per_row
from skood.stats._conformal import (
    Calibration,
    pvalues_of,
    reaches,
    rows_needed,
    warn_if_few,
)
from skood.utils._stored import stored
from skood.utils._ties import loosened
from skood.utils._warnings import warn

# Conformal levels take few values. This weight of a tie-break separates samples of the
# same level without changing the order of different levels.
_TIE_BREAK = 1e-9


class Fold(NamedTuple):
    """Indices of the samples of one committee."""

    train: np.ndarray | None  # None: all
    pvalue_rows: np.ndarray
    level_rows: np.ndarray  # empty: levels are nominal


def with_levels(folds, level, alpha, correction=1.0, counts=None):
    """Split held-out samples into halves for p-values and for levels, if conformal.

    `correction` is the combiner's factor of a single small p-value, which in each fold
    must reach `alpha` for "auto". A sample counts as many times as the integers
    `counts` (n_samples,) give. Returns a list of Fold and the chosen kind of levels.
    """

    def size(rows):
        return len(rows) if counts is None else int(counts[rows].sum())

    halves = [Fold(train, held[::2], held[1::2]) for train, held in folds]
    n_held_out = sum(size(held) for _, held in folds)
    n_level = sum(size(fold.level_rows) for fold in halves)
    needed = rows_needed(1.0, alpha)
    nominal = [Fold(train, held, held[:0]) for train, held in folds]
    if level == "nominal":
        return nominal, "nominal"
    if n_level < needed:
        least = (
            f"needs {needed} samples at alpha={alpha} to rank the combined statistics "
            f"among, and as many for p-values; of the {n_held_out} samples held out "
            f"{n_level} can be had. Give more samples, a larger calibration share"
        )
        if level == "conformal":
            raise ValueError(
                f"level='conformal' {least}, a larger alpha, or level='nominal'."
            )
        warn(
            f"The level is nominal: it holds only if the combiner is valid under "
            f"dependence: level='conformal' {least} or a larger alpha."
        )
        return nominal, "nominal"
    smallest = min(size(fold.pvalue_rows) for fold in halves)
    if level == "auto" and len(folds) > 1 and smallest < rows_needed(correction, alpha):
        warn(
            "The level is nominal, which is kept only as far as the combiner keeps it "
            f"under dependence: with level='conformal' only {smallest} samples of a "
            f"fold would give p-values, and at alpha={alpha} no single member can "
            f"reject a sample with fewer than {rows_needed(correction, alpha)}. Give "
            "more samples, or fewer folds."
        )
        return nominal, "nominal"
    return halves, "conformal"


def repeated(fold, scores, counts):
    """Return a fold, and the scores of its held-out samples, with repeated samples."""
    pvalue_rows, level_rows = (np.repeat(one, counts[one]) for one in fold[1:])
    held_out = np.concatenate(fold[1:])
    scores = np.repeat(scores, counts[held_out], axis=0)
    return Fold(fold.train, pvalue_rows, level_rows), scores


@stored
@dataclass(frozen=True)
class Levels:
    """A combiner with the calibration scores and statistics of each fold."""

    combiner: Any
    method: str
    kind: str
    calibrations: list
    statistics: list  # sorted, empty unless levels are conformal

    @classmethod
    def of(cls, combiner, method, kind, folds, scores):
        """Calibrate on the scores of held-out samples, one array per fold."""
        levels = cls(combiner, method, kind, [], [])
        for fold, fold_scores in zip(folds, scores, strict=True):
            n_pvalues = len(fold.pvalue_rows)
            calibration = Calibration.of(fold_scores[:n_pvalues])
            statistics = np.empty(0)
            if kind == "conformal" and n_pvalues < len(fold_scores):
                counts = calibration.counts(fold_scores[n_pvalues:])
                P = pvalues_of(counts, n_pvalues, method)
                statistics = np.sort(levels.statistic(P))
            levels.calibrations.append(calibration)
            levels.statistics.append(statistics)
        return levels

    @property
    def n_calibration(self):
        """Number of samples that p-values refer to."""
        return sum(map(len, self.calibrations))

    @property
    def n_level(self):
        """Number of samples that conformal levels refer to."""
        return sum(map(len, self.statistics))

    def statistic(self, P):
        """Return the combiner's statistic of p-values; raise if it is NaN."""
        # the fit has validated the parameters, and P is made of p-values
        if getattr(type(self.combiner), "statistic", None) is BaseCombiner.statistic:
            q = per_row(self.combiner, P, self.combiner._statistic)
        else:
            with config_context(skip_parameter_validation=True):
                q = np.asarray(self.combiner.statistic(P), dtype=np.float64)
        if np.isnan(q).any():
            raise ValueError(
                f"{self.combiner!r} made NaN of the p-values of "
                f"{int(np.isnan(q).sum())} of {len(q)} samples. Repair its statistic()."
            )
        return q

    def evaluate(self, scores):
        """Return p-values, statistics and levels from the scores of each committee."""
        counts, n_below = 0, 0
        for calibration, statistics, fold_scores in zip(
            self.calibrations, self.statistics, scores, strict=True
        ):
            found = calibration.counts(fold_scores)
            counts = counts + found
            if self.kind == "conformal":
                q = self.statistic(pvalues_of(found, len(calibration), self.method))
                n_below = n_below + _at_most(statistics, q)
        P = pvalues_of(counts, self.n_calibration, self.method)
        if self.kind == "nominal":
            q = self.statistic(P)
            return Bunch(pvalues=P, statistic=q, level=q)
        if len(self.calibrations) > 1:
            q = self.statistic(P)
        level = (1.0 + n_below) / (self.n_level + 1.0)
        return Bunch(pvalues=P, statistic=q, level=level)

    def log_level(self, found):
        """Return the logarithm of the level, with the statistic as tie-break."""
        scores = np.log(np.maximum(found.level, np.finfo(np.float64).tiny))
        if self.kind == "conformal":
            with np.errstate(divide="ignore", over="ignore"):
                evidence = np.log1p(1.0 / found.statistic)  # about -log q for small q
            scores -= _TIE_BREAK * (1.0 - 1.0 / (1.0 + evidence))
        return scores

    def nominal(self, alpha):
        """Return the level of the combiner that corresponds to `alpha`."""
        if self.kind == "nominal":
            return alpha
        # (1 + n_below) / (n + 1) <= alpha: fewer than r statistics are at most q
        r = min(int(np.floor(loosened(alpha * (self.n_level + 1)))), self.n_level)
        if r == 0:
            return 0.0
        pooled = np.sort(np.concatenate(self.statistics))
        return float(pooled[r - 1]) * (1 - 1e-11)

    def selected(self, found, alpha):
        """Return the members that reject each sample, (n_samples, n_members)."""
        level = self.nominal(alpha)
        if level <= 0.0:  # nothing is rejected
            return np.zeros(found.pvalues.shape, dtype=bool)
        selected = self.combiner.selected(found.pvalues, level)
        if self.kind == "conformal" and len(self.calibrations) > 1:
            # levels refer to statistics of single folds, p-values to all samples
            selected &= reaches(found.level, alpha)[:, None]
        return selected

    def warn_if_deaf(self, alpha, n_members):
        """Warn if no sample, or no sample that one member rejects, can be rejected."""
        n_calibration, level = self.n_calibration, self.nominal(alpha)
        if self.kind == "conformal":  # the statistics are of one fold each
            n_calibration = min(map(len, self.calibrations))
            least = pvalues_of(np.zeros((1, n_members)), n_calibration, self.method)
            (q,) = self.statistic(least)
            if q > level or level <= 0.0:
                n_tied = sum(_at_most(ranked, q) for ranked in self.statistics)
                remedy = (
                    "Give more calibration samples, fewer members, or another combiner."
                    if q > 0.0
                    else "Use a combiner whose statistic is seldom 0, such as "
                    "BenjaminiHochberg() or Storey(plus_one=True), and "
                    "method='conformal'."
                )
                warn(
                    f"No sample can be rejected at alpha={alpha}: the smallest "
                    f"statistic of {type(self.combiner).__name__}, {q:.3g}, is that of "
                    f"{n_tied} of the {self.n_level} calibration samples that levels "
                    f"refer to. {remedy}"
                )
                return
        if self.method == "conformal":
            warn_if_few(self.combiner, n_calibration, n_members, level)


def _at_most(ranked, q):
    """Count the sorted statistics that are at most `q`, up to rounding."""
    return np.searchsorted(ranked, loosened(q), side="right")
