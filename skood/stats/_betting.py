"""Log capital of bets over a stream, with a change prior, alarms and a short history.

A batch is processed in logarithms at once, and a state is replaced, never modified: an
update that fails half-way leaves the monitor as it was.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import Bunch

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

    def extend(self, rows, path):
        """Return the history after samples with numbers `rows` and log capital `path`.

        `rows` must be of the same stream and later than all rows before.
        """
        if len(path) == 1:  # for the speed of small calls
            value = float(path[0])
            return self._extended(1, (int(rows[0]), value, value))
        now, done = self, 0
        while done < len(path):
            if now.n_open == 0:
                now, used = now._whole_blocks(rows[done:], path[done:])
                if used:
                    done += used
                    continue
            take = min(now.width - now.n_open, len(path) - done)
            part = path[done : done + take]
            done += take
            last = (int(rows[done - 1]), float(part[-1]), float(part.max()))
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

    def _whole_blocks(self, rows, path):
        """Return the history after as many whole blocks as fit, and their samples."""
        room = MAX_BLOCKS - 1 - self.n_closed  # the last one merges: see _close
        count = min(room, len(path) // self.width)
        if count < 2:
            return self, 0
        used = count * self.width
        blocks = path[:used].reshape(count, self.width)
        lines = np.empty((count, 3))
        lines[:, 0] = rows[self.width - 1 : used : self.width]
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

    def advance(self, bettors, bets, rows):
        """Return the log martingale after each sample, and the capital after the last.

        `bets`, of shape (n_bettors, n_samples), are positive; `rows` the numbers of the
        samples in the stream.
        """
        if bets.shape[1] == 1:  # for the speed of small calls
            return self._advance_one(bettors, bets[:, 0], int(rows[0]))
        now, paths, done = self, [], 0
        while done < len(rows):
            piece = slice(done, done + _STRETCH)
            path, now = now._stretch(bettors, bets[:, piece], rows[piece])
            paths.append(path)
            done += len(path)
        return np.concatenate(paths), now

    def _stretch(self, bettors, bets, rows):
        """Return results of `advance` for the first samples, as many as fit in range.

        ``A_t = D_t (A_0 + sum_{i <= t} w_i / D_{i-1})`` with the products ``D_t`` of
        bets. Capital above one is divided by its value at the beginning.
        """
        product, n_samples = _products_in_range(bets)
        if n_samples == 1:
            return self._advance_one(bettors, bets[:, 0], int(rows[0]))
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
            np.where(best > 0, rows[best - 1], self.start_row),
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
        begin = rows[first - 1] if first > 0 else self.start_row[k]
        return path, after._alarmed(bettors, k, rows[at], begin, path[at])

    def _advance_one(self, bettors, bets, row):
        """Return results of `advance` for one sample, in logarithms."""
        log_b = np.log(bets)
        log_w, log_wait = _log_prior_of_one(bettors.time_scale, self.clock)
        log_capital = np.logaddexp(self.log_capital, log_w)
        log_capital += log_b
        shares = log_capital + bettors.log_weight
        top = max(float(shares.max()), log_wait)
        total = float(np.exp(shares - top).sum()) + math.exp(log_wait - top)
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
            k = int(shares.argmax())
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
