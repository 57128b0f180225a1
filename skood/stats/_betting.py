"""Betting on a stream: log capital, alarms, and confidence sequences for a rate.

A batch is processed in logarithms at once, and a state is replaced, never modified: an
update that fails half-way leaves the monitor as it was.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln
from sklearn.utils import Bunch

from skood.utils._param_validation import Number, validate_params
from skood.utils._stored import stored

MAX_BLOCKS = 2048

# Samples processed at once, and the range of products of their bets: sums of ratios of
# two products stay below the largest number.
_STRETCH = 512
_SMALLEST, _LARGEST = 1e-200, 1e100


@stored
@dataclass(frozen=True)
class Alarm:
    """An alarm of a monitor, with an estimate of the change behind it.

    Parameters
    ----------
    row : int
        The sample of the stream at which the alarm was raised, counted from 1.

    start : int
        Estimated first sample after the change, counted from 1. No guarantee holds for
        this estimate.

    direction : str
        The direction of the change: "ood" or "id" for scores, "upper" or "lower" for
        rates.

    shape : str or None
        The bet with the largest capital, such as "power 0.25" (a few samples with very
        low scores) or "shift 0.5" (all scores moved); None for rates.

    log_evidence : float
        Logarithm of the martingale at the alarm.

    Examples
    --------
    >>> from skood.monitor import Alarm
    >>> Alarm(120, 101, "ood", "shift 0.5", 4.7).start
    101
    """

    row: int
    start: int
    direction: str
    shape: str | None
    log_evidence: float


@stored
@dataclass(frozen=True)
class Bettors:
    """Weights, names and threshold of the bets of a monitor.

    ``log_weight`` has shape (n_bettors,), ``labels`` is a tuple of (direction, shape).
    A `time_scale` of None selects the Shiryaev-Roberts e-detector: no change prior,
    capital one more for each sample.
    """

    log_weight: np.ndarray
    labels: tuple
    threshold: float
    time_scale: float | None


@stored
@dataclass(frozen=True)
class History:
    """At most 2048 blocks of equal numbers of samples; neighbors merge when full.

    The blocks do not depend on how a stream is cut into batches. ``closed`` has shape
    (2048, 3); only its first `n_closed` lines count, which makes appending atomic.
    `written`, of shape (1,), is the number of lines that were ever written: if another
    history, of a copy of the monitor, has appended to the array, it is copied first.
    """

    closed: np.ndarray
    written: np.ndarray
    n_closed: int = 0
    width: int = 1
    n_open: int = 0
    last: tuple = (0, 0.0, -np.inf)

    @classmethod
    def empty(cls):
        return cls(np.empty((MAX_BLOCKS, 3)), np.zeros(1, dtype=np.int64))

    def extend(self, numbers, path):
        """Return the history after samples with `numbers` and log capital `path`.

        `numbers` must be of the same stream and later than all numbers before.
        """
        if len(path) == 1:  # for the speed of small calls
            value = float(path[0])
            return self._extended(1, (int(numbers[0]), value, value))
        now, done = self, 0
        while done < len(path):
            if now.n_open == 0:
                now, used = now._whole_blocks(numbers[done:], path[done:])
                if used:
                    done += used
                    continue
            take = min(now.width - now.n_open, len(path) - done)
            piece = path[done : done + take]
            done += take
            last = (int(numbers[done - 1]), float(piece[-1]), float(piece.max()))
            now = now._extended(take, last)
        return now

    def _extended(self, count, last):
        """Return the history with `count` more samples of the open block."""
        if self.n_open and self.last[2] > last[2]:
            last = (*last[:2], self.last[2])
        if self.n_open + count == self.width:
            return self._close(last)
        n_open = self.n_open + count
        return History(
            self.closed, self.written, self.n_closed, self.width, n_open, last
        )

    def _whole_blocks(self, numbers, path):
        """Return the history after as many whole blocks as fit, and their samples."""
        n_left = MAX_BLOCKS - 1 - self.n_closed  # the last one merges: see _close
        count = min(n_left, len(path) // self.width)
        if count < 2:
            return self, 0
        used = count * self.width
        blocks = path[:used].reshape(count, self.width)
        lines = np.empty((count, 3))
        lines[:, 0] = numbers[self.width - 1 : used : self.width]
        lines[:, 1] = blocks[:, -1]
        lines[:, 2] = blocks.max(axis=1)
        closed, written = self._append(lines)
        last, n_closed = tuple(lines[-1].tolist()), self.n_closed + count
        return History(closed, written, n_closed, self.width, 0, last), used

    def _append(self, lines):
        """Write lines after the last; to a copy if another history has done so."""
        closed, written = self.closed, self.written
        if written[0] != self.n_closed:
            closed, written = closed.copy(), written.copy()
        end = self.n_closed + len(lines)
        written[0] = end
        closed[self.n_closed : end] = lines
        return closed, written

    def _close(self, last):
        """Return the history with a block closed, merged if it is full."""
        closed, written = self._append([last])
        n_closed, width = self.n_closed + 1, self.width
        if n_closed == MAX_BLOCKS:
            blocks, closed = closed, np.empty_like(closed)
            n_closed, width = n_closed // 2, 2 * width
            closed[:n_closed] = blocks[1::2]
            closed[:n_closed, 2] = np.maximum(blocks[::2, 2], blocks[1::2, 2])
            written = np.array([n_closed])
        return History(closed, written, n_closed, width, 0, last)

    def table(self):
        """Return a Bunch of arrays of shape (n_blocks,)."""
        blocks = self.closed[: self.n_closed]
        if self.n_open:
            blocks = np.vstack([blocks, self.last])
        return Bunch(
            row=blocks[:, 0].astype(np.int64),
            log_martingale=blocks[:, 1].copy(),
            largest=blocks[:, 2].copy(),
        )


@stored
@dataclass(frozen=True)
class Capital:
    """Capital of K bettors after some samples of a stream.

    With ``T(t) = 1 / (1 + log(1 + t / time_scale))`` and ``w_t = T(t - 1) - T(t)`` the
    capital of bettor k is ``A_t = b_t (A_{t-1} + w_t)``, and the martingale
    ``M_t = T(t) + sum_k v_k A_{k,t}``: the mixture, over the sample at which betting
    starts, of test martingales. For the e-detector ``w_t = 1`` and ``T = 0``.
    """

    log_capital: np.ndarray  # log A_k
    log_start: np.ndarray  # largest log of w_i prod_{s=i..t} b_{k,s} over i
    start_row: np.ndarray  # the sample i, of the stream
    clock: int = 0  # samples since the start or the last restart
    log_martingale: float = 0.0
    largest: float = 0.0  # of the log martingale since the start or last restart
    alarm: Alarm | None = None
    alarms: tuple = ()

    @classmethod
    def initial(cls, bettors, alarms=()):
        n_bettors = len(bettors.log_weight)
        nothing = np.full(n_bettors, -np.inf)
        log_m = 0.0 if bettors.time_scale is not None else -np.inf
        row = np.zeros(n_bettors, dtype=np.int64)
        return cls(
            nothing, nothing, row, log_martingale=log_m, largest=log_m, alarms=alarms
        )

    def advance(self, bettors, bets, numbers):
        """Return the log martingale after each sample, and the capital after the last.

        `bets`, of shape (n_bettors, n_samples), are positive; `numbers` count the
        samples of the stream.
        """
        if bets.shape[1] == 1:  # for the speed of small calls
            return self._advance_one(bettors, bets[:, 0], int(numbers[0]))
        now, paths, done = self, [], 0
        while done < len(numbers):
            piece = slice(done, done + _STRETCH)
            path, now = now._stretch(bettors, bets[:, piece], numbers[piece])
            paths.append(path)
            done += len(path)
        return np.concatenate(paths), now

    def _stretch(self, bettors, bets, numbers):
        """Return results of `advance` for the first samples, as many as fit in range.

        ``A_t = D_t (A_0 + sum_{i <= t} w_i / D_{i-1})`` with the products ``D_t`` of
        bets. Capital above one is divided by its value at the beginning.
        """
        product, n_samples = _products_in_range(bets)
        if n_samples == 1:
            return self._advance_one(bettors, bets[:, 0], int(numbers[0]))
        w, wait = _prior(bettors.time_scale, self.clock, n_samples)
        log_unit = np.maximum(self.log_capital, 0.0)
        terms = np.empty((len(bets), n_samples + 1))
        terms[:, 0] = np.exp(self.log_capital - log_unit)
        terms[:, 1] = w[0]
        np.divide(w[1:], product[:, :-1], out=terms[:, 2:])
        if log_unit.any():
            terms[:, 1:] *= np.exp(-log_unit)[:, None]
        capital = np.cumsum(terms, axis=1)[:, 1:]
        capital *= product
        log_top = log_unit.max()
        weight = np.exp(bettors.log_weight + log_unit - log_top)
        path = np.log(weight @ capital + wait * np.exp(-log_top)) + log_top
        terms[:, 0] = np.exp(self.log_start - log_unit)
        best = terms.argmax(axis=1)  # the first of equals
        start = terms[np.arange(len(bets)), best] * product[:, -1]
        after = Capital(
            np.log(capital[:, -1]) + log_unit,
            np.log(start) + log_unit,
            np.where(best > 0, numbers[best - 1], self.start_row),
            self.clock + n_samples,
            float(path[-1]),
            max(self.largest, float(path.max())),
            self.alarm,
            self.alarms,
        )
        if self.alarm is not None or after.largest < bettors.threshold:
            return path, after
        at = int((path >= bettors.threshold).argmax())
        k = int((np.log(capital[:, at]) + log_unit + bettors.log_weight).argmax())
        first = int(terms[k, : at + 2].argmax())
        begin = numbers[first - 1] if first > 0 else self.start_row[k]
        return path, after._alarmed(bettors, k, numbers[at], begin, path[at])

    def _advance_one(self, bettors, bets, row):
        """Return results of `advance` for one sample, in logarithms."""
        log_b = np.log(bets)
        log_w, log_wait = _log_prior_of_one(bettors.time_scale, self.clock)
        log_capital = np.logaddexp(self.log_capital, log_w)
        log_capital += log_b
        terms = log_capital + bettors.log_weight
        top = max(float(terms.max()), log_wait)
        total = float(np.exp(terms - top).sum()) + math.exp(log_wait - top)
        log_m = top + math.log(total)
        after = Capital(
            log_capital,
            np.maximum(self.log_start, log_w) + log_b,
            np.where(self.log_start >= log_w, self.start_row, row),
            self.clock + 1,
            log_m,
            max(self.largest, log_m),
            self.alarm,
            self.alarms,
        )
        if self.alarm is None and log_m >= bettors.threshold:
            k = int(terms.argmax())
            after = after._alarmed(bettors, k, row, after.start_row[k], log_m)
        return np.array([log_m]), after

    def _alarmed(self, bettors, k, row, start, log_evidence):
        """Return the capital with an alarm of bettor k."""
        direction, shape = bettors.labels[k]
        alarm = Alarm(int(row), int(start), direction, shape, float(log_evidence))
        return replace(self, alarm=alarm, alarms=(*self.alarms, alarm))

    def leader(self, bettors):
        """Return direction, shape and start of the bettor with the largest capital."""
        k = int((self.log_capital + bettors.log_weight).argmax())
        return (*bettors.labels[k], int(self.start_row[k]))


def _products_in_range(bets):
    """Return cumulative products of the first bets, and for how many samples.

    At least one sample; ratios of two products of the others are finite numbers.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = np.cumprod(bets, axis=1)
    if product.min() >= _SMALLEST and product.max() <= _LARGEST:
        return product, product.shape[1]
    inside = ((product >= _SMALLEST) & (product <= _LARGEST)).all(axis=0)
    n_samples = max(int(inside.argmin()), 1)
    return product[:, :n_samples], n_samples


def _prior(time_scale, clock, n_samples):
    """Return w_t and T(t) of the next samples."""
    if time_scale is None:
        return np.ones(n_samples), np.zeros(n_samples)
    t = np.arange(clock, clock + n_samples + 1, dtype=np.float64)
    wait = 1 / (1 + np.log1p(t / time_scale))
    return wait[:-1] * wait[1:] * np.log1p(1 / (time_scale + t[:-1])), wait[1:]


def _log_prior_of_one(time_scale, clock):
    """Return log w_t and log T(t) of the next sample, t = clock + 1."""
    if time_scale is None:
        return 0.0, -math.inf
    before = math.log1p(math.log1p(clock / time_scale))
    log_wait = -math.log1p(math.log1p((clock + 1) / time_scale))
    log_w = math.log(math.log1p(1.0 / (time_scale + clock))) - before + log_wait
    return log_w, log_wait


# Fractions of the largest bet that keeps capital positive.
FRACTIONS = 0.5 ** np.arange(1, 9)

# Symmetric: 1 - m is the grid in reverse order.
_GRID = np.sin(np.pi * np.arange(1, 512) / 1024) ** 2

# Samples whose factors, at most 1.1e5, are multiplied before a logarithm is taken, and
# the powers of 1 / m for their products.
_DEGREE = 32
_POWERS = (1 / _GRID[:, None]) ** np.arange(_DEGREE + 1)

# Samples processed at once.
_CHUNK = 16 * _DEGREE


def beta_interval(successes, n, delta, failures=None):
    """Return the Beta(1/2, 1/2) mixture interval of a rate, anytime-valid.

    ``log B(1/2 + S, 1/2 + N - S) - log B(1/2, 1/2) - S log m - (N - S) log(1 - m) <
    log(1 / delta)`` (Robbins, 1970), convex in m.
    """
    failures = n - successes if failures is None else failures
    if n == 0:
        return 0.0, 1.0
    level = betaln(0.5 + successes, 0.5 + failures) - betaln(0.5, 0.5) + np.log(delta)
    level = float(level)

    def excess(m):
        return level - successes * math.log(m) - failures * math.log1p(-m)

    center, tiny, end = successes / n, 1e-300, 1 - 1e-16
    low = 0.0 if successes == 0 else brentq(excess, tiny, min(center, end), xtol=1e-15)
    if failures == 0:
        return low, 1.0

    def mirrored(q):  # for digits next to one
        return level - successes * math.log1p(-q) - failures * math.log(q)

    return low, 1 - brentq(mirrored, tiny, min(1 - center, end), xtol=1e-15)


@stored
@dataclass(frozen=True)
class CountBand:
    """Counts of zeros and ones; `lost` samples are written off, see `HedgedBand`."""

    n: int = 0
    successes: int = 0
    lost: int = 0

    def extend(self, weight, x, lost):
        """Return the band after more samples; a weight of zero excludes a sample."""
        used = weight > 0
        seen = used & ~lost
        n = int(np.count_nonzero(seen))
        return CountBand(
            self.n + n,
            self.successes + int(np.count_nonzero(x[seen])),
            self.lost + int(np.count_nonzero(used)) - n,
        )

    def __add__(self, other):
        return CountBand(
            self.n + other.n, self.successes + other.successes, self.lost + other.lost
        )

    @property
    def estimate(self):
        return self.successes / self.n if self.n else np.nan

    def interval(self, delta):
        """Return the interval, the hull over all labels of samples written off."""
        n = self.n + self.lost
        low, high = beta_interval(self.successes, n, delta)
        if self.lost:
            _, high = beta_interval(self.successes + self.lost, n, delta)
        return low, high


@stored
@dataclass(frozen=True)
class HedgedBand:
    """Log products of bets on a grid of rates, and weighted sums.

    ``K+(m) = mean_i prod_t (1 + c_i r_t (x_t / m - 1))`` and ``K-(m)``, the same on 1 -
    x and 1 - m (Waudby-Smith and Ramdas, 2024). A sample that was written off counts
    as 0 in K+ and as 1 in K-.
    """

    above: np.ndarray  # log products of K+, (n_fractions, n_grid)
    below: np.ndarray  # of K-
    weight: float = 0.0
    weighted_x: float = 0.0

    @classmethod
    def empty(cls):
        nothing = np.zeros((len(FRACTIONS), len(_GRID)))
        return cls(nothing, nothing)

    def extend(self, weight, x, lost):
        """Return the band after more samples with weights r_t in [0, 1]."""
        used = weight > 0
        weight, x, lost = weight[used], x[used], lost[used]
        above, below = self.above.copy(), self.below.copy()
        for at in range(0, len(x), _CHUNK):
            chunk = slice(at, at + _CHUNK)
            bets = weight[chunk, None] * FRACTIONS
            above += _log_product(bets, np.where(lost[chunk], 0.0, x[chunk]))
            low = np.where(lost[chunk], 0.0, 1 - x[chunk])
            below += _log_product(bets, low)[:, ::-1]
        seen = ~lost
        return HedgedBand(
            above,
            below,
            self.weight + float(weight[seen].sum()),
            self.weighted_x + float(weight[seen] @ x[seen]),
        )

    def __add__(self, other):
        return HedgedBand(
            self.above + other.above,
            self.below + other.below,
            self.weight + other.weight,
            self.weighted_x + other.weighted_x,
        )

    @property
    def estimate(self):
        return self.weighted_x / self.weight if self.weight else np.nan

    def interval(self, delta):
        """Return the interval, its ends rounded outward to the grid."""
        level = np.log(2 / delta)
        excluded = np.flatnonzero(_log_mean(self.above) >= level)
        low = float(_GRID[excluded[-1]]) if len(excluded) else 0.0
        excluded = np.flatnonzero(_log_mean(self.below) >= level)
        return low, float(_GRID[excluded[0]]) if len(excluded) else 1.0


def _log_product(bets, x):
    """Return log prod_t (1 + bet_t (x_t / m - 1)), of shape (n_fractions, n_grid).

    The products of some samples are polynomials in 1 / m with positive coefficients.
    """
    n_samples, n_fractions = bets.shape
    degree = min(n_samples, _DEGREE)
    n_blocks = -(-n_samples // degree)
    padded = np.zeros((n_blocks * degree, n_fractions))
    padded[:n_samples] = bets
    slope = np.zeros_like(padded)
    slope[:n_samples] = bets * x[:, None]
    shape = (n_blocks, degree, n_fractions)
    constant, slope = (1 - padded).reshape(shape), slope.reshape(shape)
    coefficients = np.zeros((degree + 1, n_blocks, n_fractions))
    coefficients[0] = 1
    for k in range(degree):
        by_slope = coefficients[: k + 1] * slope[:, k]
        coefficients[: k + 1] *= constant[:, k]
        coefficients[1 : k + 2] += by_slope
    products = _POWERS[:, : degree + 1] @ coefficients.reshape(degree + 1, -1)
    logs = np.log(products).reshape(len(_GRID), n_blocks, n_fractions)
    return logs.sum(axis=1).T


def _log_mean(logs):
    """Return the logarithm of the mean of exponentials over the first axis."""
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))


@validate_params(
    {
        "n": [Number(Integral, 1, None, closed="left")],
        "alpha": [Number(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def detectable_shift(n, alpha=0.01):
    r"""Return the smallest shift of the mean that a monitor can be expected to detect.

    For *every* valid monitor, after `n` calibration and normal samples from :math:`P`
    and then samples from :math:`Q`, :math:`E[\log M_t] \le n\, KL(P \| Q)`: the
    martingale is an e-value for the hypothesis that all samples are from :math:`Q`, and
    Jensen's inequality applies. For a normal score whose mean moves by :math:`\delta`
    standard deviations the bound is :math:`n \delta^2 / 2`; below
    :math:`\log(1/\alpha)` an alarm is unlikely, for any method:

    .. math:: \delta = \sqrt{2 \log(1 / \alpha) / n}.

    Read more in the :ref:`User Guide <monitor_ceiling>`.

    Parameters
    ----------
    n : int
        Number of calibration samples and normal samples of the stream.

    alpha : float, default=0.01
        Level of the monitor in (0, 1).

    Returns
    -------
    shift : float
        The shift in standard deviations.

    Raises
    ------
    ValueError
        If `n` is less than 1 or `alpha` is not in (0, 1).

    Examples
    --------
    >>> from skood.monitor import detectable_shift
    >>> round(detectable_shift(60), 2), round(detectable_shift(1000), 2)
    (0.39, 0.1)
    """
    return float(np.sqrt(2 * np.log(1 / alpha) / n))
