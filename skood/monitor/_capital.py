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

__all__ = ["Alarm", "Bettors", "Capital", "History", "log_mean_exp"]

MAX_BLOCKS = 2048

# Range of exponents in which cumulative sums keep all digits without logarithms.
_MAX_RANGE = 300.0


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


def log_mean_exp(values, log_weight, factors):
    """Return log sum_k exp(values_k + log_weight_k) factors_k over the first axis."""
    values = values + log_weight
    top = values.max(axis=0)
    return top + np.log((np.exp(values - top) * factors).sum(axis=0))


@stored
@dataclass(frozen=True)
class History:
    """At most 2048 blocks of equal numbers of samples; neighbors merge when full.

    The blocks do not depend on how a stream is cut into batches. ``closed`` has shape
    (2048, 3); only its first `n_closed` lines count, which makes appending atomic.
    """

    closed: np.ndarray
    n_closed: int = 0
    width: int = 1
    n_open: int = 0
    last: tuple = (0, 0.0, -np.inf)

    @classmethod
    def empty(cls):
        return cls(np.empty((MAX_BLOCKS, 3)))

    def extend(self, rows, path):
        """Return the history after samples with numbers `rows` and log capital `path`.

        `rows` must be of the same stream and later than all rows before.
        """
        if len(path) == 1 and self.n_open and self.n_open + 1 < self.width:
            value = float(path[0])  # for the speed of small calls
            last = (int(rows[0]), value, max(value, self.last[2]))
            return History(
                self.closed, self.n_closed, self.width, self.n_open + 1, last
            )
        now, done = self, 0
        while done < len(path):
            take = min(now.width - now.n_open, len(path) - done)
            if now.n_open == 0 and now.width < MAX_BLOCKS:
                now, used = now._whole_blocks(rows[done:], path[done:])
                if used:
                    done += used
                    continue
                take = min(now.width, len(path) - done)
            largest = float(path[done : done + take].max())
            if now.n_open:
                largest = max(largest, now.last[2])
            done += take
            last = (int(rows[done - 1]), float(path[done - 1]), largest)
            now = replace(now, n_open=now.n_open + take, last=last)
            if now.n_open == now.width:
                now = now._close()
        return now

    def _whole_blocks(self, rows, path):
        """Return the history after as many whole blocks as fit, and their samples."""
        room = MAX_BLOCKS - 1 - self.n_closed  # the last one merges: see _close
        count = min(room, len(path) // self.width)
        if count < 2:
            return self, 0
        used = count * self.width
        blocks = path[:used].reshape(count, self.width)
        closed = self.closed[self.n_closed : self.n_closed + count]
        closed[:, 0] = rows[self.width - 1 : used : self.width]
        closed[:, 1] = blocks[:, -1]
        closed[:, 2] = blocks.max(axis=1)
        last = tuple(closed[-1].tolist())
        return replace(self, n_closed=self.n_closed + count, last=last), used

    def _close(self):
        """Return the history with the open block closed, merged if it is full."""
        closed = self.closed
        closed[self.n_closed] = self.last
        if self.n_closed + 1 < MAX_BLOCKS:
            return replace(self, n_closed=self.n_closed + 1, n_open=0)
        merged = np.empty_like(closed)
        half = MAX_BLOCKS // 2
        merged[:half] = closed[1::2]
        merged[:half, 2] = np.maximum(closed[::2, 2], closed[1::2, 2])
        return replace(
            self, closed=merged, n_closed=half, width=2 * self.width, n_open=0
        )

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

    def advance(self, bettors, log_b, rows):
        """Return the log martingale after each sample, and the capital after the last.

        `log_b`, of shape (n_bettors, n_samples), are logarithms of the bets, finite or
        -inf; `rows` the numbers of the samples in the stream.
        """
        n_bettors, n_samples = log_b.shape
        if n_samples == 1:  # for the speed of small calls
            return self._advance_one(bettors, log_b[:, 0], int(rows[0]))
        log_w, log_wait = self._prior(bettors.time_scale, n_samples)
        terms = np.empty((n_bettors, n_samples + 1))
        product = np.cumsum(log_b, axis=1)  # D_{k,t}
        terms[:, 0] = self.log_capital
        terms[:, 1] = log_w[0]
        np.subtract(log_w[1:], product[:, :-1], out=terms[:, 2:])
        log_scale, sums = _partial_sums(terms)
        log_scale = log_scale + product
        path = log_mean_exp(log_scale, bettors.log_weight[:, None], sums)
        if log_wait is not None:
            path = np.logaddexp(log_wait, path)
        terms[:, 0] = self.log_start
        best = terms.argmax(axis=1)  # the first of equals
        after = Capital(
            log_scale[:, -1] + np.log(sums[:, -1]),
            terms[np.arange(n_bettors), best] + product[:, -1],
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
        capital = log_scale[:, at] + np.log(sums[:, at])
        k = int((capital + bettors.log_weight).argmax())
        first = int(terms[k, : at + 2].argmax())
        start = rows[first - 1] if first > 0 else self.start_row[k]
        return path, after._alarmed(bettors, k, rows[at], start, path[at])

    def _advance_one(self, bettors, log_b, row):
        """Return results of `advance` for one sample; bets of shape (n_bettors,)."""
        log_w, log_wait = _prior_of_one(bettors.time_scale, self.clock)
        log_capital = np.logaddexp(self.log_capital, log_w) + log_b
        log_m = float(log_mean_exp(log_capital, bettors.log_weight, 1.0))
        if log_wait is not None:
            log_m = float(np.logaddexp(log_wait, log_m))
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
            k = int((log_capital + bettors.log_weight).argmax())
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

    def _prior(self, time_scale, n_samples):
        """Return log w_t and log T(t) of the next samples."""
        if time_scale is None:
            return np.zeros(n_samples), None
        t = np.arange(self.clock, self.clock + n_samples + 1, dtype=np.float64)
        log_wait = -np.log1p(np.log1p(t / time_scale))
        log_w = np.log(np.log1p(1.0 / (time_scale + t[:-1])))
        log_w += log_wait[:-1] + log_wait[1:]
        return log_w, log_wait[1:]


def _prior_of_one(time_scale, clock):
    """Return log w_t and log T(t) of the next sample, t = clock + 1."""
    if time_scale is None:
        return 0.0, None
    before = math.log1p(math.log1p(clock / time_scale))
    log_wait = -math.log1p(math.log1p((clock + 1) / time_scale))
    log_w = math.log(math.log1p(1.0 / (time_scale + clock))) - before + log_wait
    return log_w, log_wait


def _partial_sums(terms):
    """Return factors s and sums c with ``log cumsum(exp(terms)) = s + log(c)``.

    Column 1 of `terms`, of shape (n_bettors, n_samples + 1), is finite. The cumulative
    sums are of the columns from 1.
    """
    top = terms.max(axis=1, keepdims=True)
    if (top[:, 0] - terms[:, 1]).max() < _MAX_RANGE:
        return top, np.cumsum(np.exp(terms - top), axis=1)[:, 1:]
    log_sums = np.logaddexp.accumulate(terms, axis=1)[:, 1:]
    return log_sums, np.ones_like(log_sums)
