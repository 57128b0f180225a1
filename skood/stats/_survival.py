"""Survival functions that normalize the outlier scores of detectors.

Scores of detectors have any scale. A survival function fitted to the outlier scores
of ID samples maps them to probabilities.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gamma, gammaln

from skood.stats._conformal import Calibration
from skood.utils._stored import stored
from skood.utils._warnings import warn

# Lower bound of survival probabilities, so that their logarithm is finite.
FLOOR = 1e-12

# Distributions of scipy.stats
FAMILIES = frozenset({"genextreme", "norm", "gennorm", "lognorm", "uniform"})

NORMALIZERS = FAMILIES | {"empirical", "none"}

# Largest distance of a generalized extreme value distribution from the scores.
_MAX_DISTANCE = 0.1

_EULER = 0.5772156649015329

# Range of the shift of a log-normal distribution, in standard deviations below the
# smallest score; with a larger shift it is a normal distribution.
_LARGEST_SHIFT = 1e3
_N_SHIFTS = 40


@stored
@dataclass(eq=False, repr=False)
class SurvivalFunction:
    """Probability P(O >= o) that an ID sample is at least as outlying."""

    name: str
    params: dict
    calibration: Any = None

    def log_sf(self, outlier):
        """Return log P, (n_samples,), at least log(FLOOR); -outlier without a fit."""
        outlier = np.asarray(outlier, dtype=np.float64)
        if self.name == "none":
            return -outlier
        with np.errstate(all="ignore"):
            log_sf = self._log_sf(outlier)
        return np.maximum(log_sf, np.log(FLOOR))

    def sf(self, outlier):
        """Return the survival function, not below `FLOOR`; see `log_sf`."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_sf(outlier))

    def pdf(self, outlier):
        """Return the density of a fitted family."""
        return getattr(stats, self.name).pdf(outlier, **self.params)

    def distance(self, outlier):
        """Return the Kolmogorov-Smirnov distance from the empirical distribution."""
        values, counts = np.unique(outlier, return_counts=True)
        above = np.cumsum(counts) / len(outlier)
        below = above - counts / len(outlier)
        with np.errstate(divide="ignore"):
            F = 1.0 - np.exp(self._log_sf(values))
        return float(max(np.max(np.abs(F - above)), np.max(np.abs(F - below))))

    def _log_sf(self, outlier):
        if self.name == "empirical":
            counts = self.calibration.counts(-outlier[:, None])[:, 0]
            return np.log((1.0 + counts) / (len(self.calibration) + 1.0))
        return getattr(stats, self.name).logsf(outlier, **self.params)

    def __repr__(self):
        shown = [f"{name}={value:.4g}" for name, value in self.params.items()]
        if self.calibration is not None:
            shown.append(f"{len(self.calibration)} scores")
        return f"{self.name}({', '.join(shown)})"


def fit_survival(name, outlier):
    """Return the survival function of outlier scores of shape (n_calibration,)."""
    outlier = np.asarray(outlier, dtype=np.float64)
    if name == "none":
        return SurvivalFunction("none", {})
    empirical = SurvivalFunction("empirical", {}, Calibration.of(-outlier[:, None]))
    if name == "empirical":
        return empirical
    survival, why = _fitted(name, outlier)
    if why:
        warn(
            f"normalizer={name!r} is replaced by 'empirical': {why}. It ranks samples "
            f"among the {len(outlier)} calibration samples, and cannot rank samples "
            "that are further out than all of them. Give more calibration samples, or "
            "choose another normalizer."
        )
        return empirical
    return survival


def _fitted(name, outlier):
    """Return a survival function that suits the scores or None, and the reason."""
    survival, why = fit_family(name, outlier)
    if survival is None or name != "genextreme":
        return survival, why
    shape = survival.params["c"]
    if shape <= -1.0:
        return None, f"its shape ξ={-shape:.3g} is at least 1: it has no mean"
    distance = survival.distance(outlier)
    if distance > _MAX_DISTANCE:
        return None, (
            f"the Kolmogorov-Smirnov distance of the detector's scores from it is "
            f"{distance:.3g}, more than {_MAX_DISTANCE}"
        )
    return survival, ""


def fit_family(name, outlier):
    """Return the best survival function of a family, or None and the reason."""
    n_infinite = int(np.isinf(outlier).sum())
    if n_infinite:
        return None, f"{n_infinite} of the detector's scores are infinite"
    if len(outlier) < 3 or np.min(outlier) == np.max(outlier):
        return None, f"the detector gave {len(np.unique(outlier))} distinct scores"
    # fitted to scores of mean 0 and standard deviation 1
    with np.errstate(over="ignore", invalid="ignore"):
        middle, spread = np.mean(outlier), np.std(outlier)
        z = (outlier - middle) / spread if spread > 0 else np.full(1, np.nan)
    if not np.isfinite(spread) or not np.isfinite(z).all():
        return None, "the range of the detector's scores is too large or too small"
    params = _FITS[name](z)
    if params is None:
        return None, "the likelihood has no maximum that could be found"
    params["loc"] = params["loc"] * spread + middle
    params["scale"] = params["scale"] * spread
    params = {key: float(value) for key, value in params.items()}
    return SurvivalFunction(name, params), ""


# ---------------------------------------------------------------------------------
# Generalized extreme values


def _l_moments(x):
    """Return the first two L-moments, and the ratio of the third to the second."""
    x, n = np.sort(x), len(x)
    i = np.arange(n)
    b0 = np.mean(x)
    b1 = np.mean(x * i / (n - 1))
    b2 = np.mean(x * i * (i - 1) / ((n - 1) * (n - 2)))
    l2 = 2 * b1 - b0
    return b0, l2, (6 * b2 - 6 * b1 + b0) / l2


def _gumbel(l1, l2):
    scale = l2 / np.log(2)
    return np.array([0.0, l1 - _EULER * scale, np.log(scale)])


def _genextreme_by_l_moments(x):
    """Return shape c, location and log scale, by Hosking's approximation."""
    l1, l2, ratio = _l_moments(x)
    k = 2 / (3 + ratio) - np.log(2) / np.log(3)
    c = k * (7.8590 + 2.9554 * k)
    if c <= -0.95 or abs(c) < 1e-6:
        return _gumbel(l1, l2)
    g = gamma(1 + c)
    scale = l2 * c / ((1 - 2.0**-c) * g)
    return np.array([c, l1 - scale * (1 - g) / c, np.log(scale)])


def _fit_genextreme(x):
    """Return the maximum likelihood fit from L-moments; no maximum for c >= 1."""

    def loss(theta):
        c, loc, log_scale = theta
        z = (x - loc) * np.exp(-log_scale)
        if c >= 1.0 or np.max(c * z) >= 1.0:
            return np.inf
        log_y = np.log1p(-c * z) / c if abs(c) > 1e-12 else -z
        return log_scale + np.mean(np.exp(log_y) - (1 - c) * log_y)

    # a score may be outside the support of the fit by L-moments
    starts = _genextreme_by_l_moments(x), _gumbel(*_l_moments(x)[:2])
    theta = _minimum(loss, *starts)
    if theta is None:
        return None
    return {"c": theta[0], "loc": theta[1], "scale": np.exp(theta[2])}


def _minimum(loss, *starts):
    """Minimize a smooth function of few variables that may be infinite."""
    best = None
    with np.errstate(over="ignore"):
        for start in starts:
            if not np.isfinite(loss(start)):
                continue
            for width in (0.2, 0.05):  # the second simplex has not collapsed
                simplex = start + width * np.eye(len(start) + 1, len(start))
                result = minimize(
                    loss,
                    start,
                    method="Nelder-Mead",
                    options={
                        "initial_simplex": simplex,
                        "xatol": 1e-7,
                        "fatol": 1e-11,
                        "maxiter": 2000,
                    },
                )
                start = result.x
            if result.success and (best is None or result.fun < best.fun):
                best = result
    return None if best is None else best.x


# ---------------------------------------------------------------------------------
# Other families


def _fit_gennorm(x):
    """Return the maximum likelihood fit; the scale has a closed form."""

    def scale(beta, loc):
        return (beta * np.mean(np.abs(x - loc) ** beta)) ** (1 / beta)

    def loss(theta):
        beta, loc = np.exp(theta[0]), theta[1]
        # for large shapes the density is nearly uniform, and powers overflow
        if not 0.2 <= beta <= 50.0:
            return np.inf
        return np.log(2 * scale(beta, loc) / beta) + gammaln(1 / beta) + 1 / beta

    middles = np.mean(x), np.median(x)
    theta = _minimum(loss, *(np.array([np.log(2.0), middle]) for middle in middles))
    if theta is None:
        return None
    beta, loc = np.exp(theta[0]), theta[1]
    return {"beta": beta, "loc": loc, "scale": scale(beta, loc)}


def _fit_lognorm(x):
    """Return the maximum likelihood fit with a bounded shift."""
    # the likelihood is unbounded as the shift approaches the smallest score: it stays
    # 1/n of the standard deviation away
    least = np.min(x)

    def loss(log_gap):
        logs = np.log(x - least + np.exp(log_gap))
        return np.log(np.std(logs)) + np.mean(logs)

    grid = np.linspace(-np.log(len(x)), np.log(_LARGEST_SHIFT), _N_SHIFTS)
    best = int(np.argmin([loss(log_gap) for log_gap in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _N_SHIFTS - 1)]
    log_gap = minimize_scalar(loss, bounds=(low, high), method="bounded").x
    loc = least - np.exp(log_gap)
    logs = np.log(x - loc)
    return {"s": np.std(logs), "loc": loc, "scale": np.exp(np.mean(logs))}


_FITS = {
    "genextreme": _fit_genextreme,
    "norm": lambda x: {"loc": np.mean(x), "scale": np.std(x)},
    "gennorm": _fit_gennorm,
    "lognorm": _fit_lognorm,
    "uniform": lambda x: {"loc": np.min(x), "scale": np.ptp(x)},
}
