"""P-values relative to the held-out samples of one or several splits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np

from skood.stats._conformal import Calibration
from skood.utils._stored import stored

# Samples of equal p-values are ranked by their scores, with differences below this.
_TIE_BREAK = 1e-9

# Scores are clipped here, so that differences are finite.
_LARGE = 1e300


@stored
@dataclass(frozen=True)
class SplitRanks:
    """Calibration scores of each split, or of each fold of a cross-conformal one."""

    calibrations: list
    spreads: list  # medians and interquartile ranges of each
    is_cross: bool

    @classmethod
    def of(cls, held_out, is_cross):
        """Calibrate on the scores of each split, (n_held_out, n_detectors)."""
        calibrations = [Calibration.of(scores) for scores in held_out]
        spreads = [_spread(one.scores) for one in calibrations]
        return cls(calibrations, spreads, is_cross)

    @property
    def n_calibration(self):
        """Number of held-out samples; of the smallest split if there are several."""
        sizes = list(map(len, self.calibrations))
        return sum(sizes) if self.is_cross else min(sizes)

    def pvalues(self, scores, rng=None):
        """Return p-values by each split, (n_splits, n_samples, n_detectors).

        With a generator `rng`, ties are broken at random.
        """
        pairs = list(zip(self.calibrations, scores, strict=True))
        counts = [one.counts(part, rng) for one, part in pairs]
        if self.is_cross:
            total = np.sum(counts, axis=0, keepdims=True)
            return (1.0 + total) / (self.n_calibration + 1.0)
        return np.stack(
            [
                (1.0 + found) / (len(one) + 1.0)
                for found, (one, _) in zip(counts, pairs, strict=True)
            ]
        )

    def log_pvalues(self, scores):
        """Return the logarithm of the p-value of each sample, ties broken by scores."""
        p = sample_pvalues(self.pvalues(scores))
        pairs = zip(scores, self.spreads, strict=True)
        above = [_share(part, *spread) for part, spread in pairs]
        return np.log(p) - _TIE_BREAK * (1 - np.mean(above, axis=(0, 2)))


def over_splits(P):
    """Return p-values of all splits: twice the mean is valid under any dependence."""
    return P[0] if len(P) == 1 else np.minimum(1.0, 2.0 * P.mean(axis=0))


def sample_pvalues(P):
    """Return one p-value per sample, by Bonferroni over detectors, then over splits."""
    smallest = np.minimum(1.0, P.shape[2] * P.min(axis=2))
    return over_splits(smallest)


def _spread(ranked):
    """Return medians and interquartile ranges (1 if 0) of sorted columns of scores."""
    ranked = np.clip(ranked, -_LARGE, _LARGE)
    low, center, high = np.quantile(ranked, [0.25, 0.5, 0.75], axis=0)
    return center, np.where(high > low, high - low, 1.0)


def _share(scores, center, spread):
    """Return a strictly increasing function of scores with values in [0, 1]."""
    with np.errstate(over="ignore"):
        z = (np.clip(scores, -_LARGE, _LARGE) - center) / spread
    z = np.clip(z, -_LARGE, _LARGE)
    return 0.5 + 0.5 * z / (1.0 + np.abs(z))
