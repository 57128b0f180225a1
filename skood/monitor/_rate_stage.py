"""State of a monitor of a rate: capital of the bets, interval, samples that wait."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta

from skood.stats._betting import Bettors, Capital, History
from skood.stats._confidence_sequences import FRACTIONS, CountBand, HedgedBand
from skood.utils._stored import stored

# Audited samples of the recent interval.
_WINDOW = 1000


@stored
@dataclass(frozen=True)
class Stage:
    """State of a monitor of a rate; replaced by every update.

    Bets use samples after `n_restarted`, the number of samples before the last restart.
    `pending` maps numbers of audited samples, in order, to (prediction, accepted,
    probability, resolved), with None or (x, included, lost) as the last. `intervals`
    has lines of number of the sample, estimate, and both ends of the interval.
    """

    bettors: tuple
    capitals: tuple
    histories: tuple
    band: CountBand | HedgedBand
    recent: np.ndarray
    intervals: np.ndarray
    pending: dict
    n_seen: int = 0
    n_audited: int = 0
    n_restarted: int = 0

    @classmethod
    def initial(cls, bettors, counts):
        return cls(
            bettors,
            tuple(Capital.initial(one) for one in bettors),
            tuple(History.empty() for _ in bettors),
            CountBand() if counts else HedgedBand.empty(),
            np.empty(0),
            np.empty((0, 4)),
            {},
        )

    def resolve(self, ids, found):
        """Return the state with outcomes, and samples to use with their entries."""
        pending = dict(self.pending)
        for i, outcome in zip(ids, found, strict=True):
            pending[i] = (*pending[i][:3], outcome)
        ready = []
        for i, entry in pending.items():
            if entry[3] is None:
                break
            ready.append(i)
        entries = [pending.pop(i) for i in ready]
        return replace(self, pending=pending), ready, entries

    def advance(self, bound, ids, x, weight, lost, delta, n_new):
        """Return the path over samples with weights r_t, and the state after them.

        `n_new` is the number of new samples of the stream, audited or not.
        """
        capitals, histories, paths = [], [], []
        each = zip(self.bettors, self.capitals, self.histories, strict=True)
        new = slice(int(np.searchsorted(ids, self.n_restarted, side="right")), None)
        for one, capital, history in each:
            is_upper = one.labels[0][0] == "upper"
            value = np.where(lost, 0.0, x if is_upper else 1 - x)
            gain = weight * (value / (bound if is_upper else 1 - bound) - 1)
            path = np.full(len(ids), capital.log_martingale)
            if len(ids[new]):
                bets = 1 + FRACTIONS[:, None] * gain[new]
                path[new], capital = capital.advance(one, bets, ids[new])
            capitals.append(capital)
            histories.append(history.extend(ids, path))
            paths.append(path)
        recent = self.recent
        if isinstance(self.band, CountBand):
            seen = x[(weight > 0) & ~lost]
            recent = np.concatenate([recent, seen])[-_WINDOW:]
        band, intervals = self._extended_band(ids, x, weight, lost, delta)
        after = Stage(
            self.bettors,
            tuple(capitals),
            tuple(histories),
            band,
            recent,
            intervals,
            self.pending,
            self.n_seen + n_new,
            self.n_audited + len(x),
            self.n_restarted,
        )
        return paths[0] if len(paths) == 1 else np.maximum(*paths), after

    def _extended_band(self, ids, x, weight, lost, delta):
        """Return the band after more samples, and the lines of `intervals`."""
        band, lines, done = self.band, [], 0
        stop = _next_stop(self.n_audited) - self.n_audited
        while stop <= len(x):
            part = slice(done, stop)
            band = band.extend(weight[part], x[part], lost[part])
            lines.append((ids[stop - 1], band.estimate, *band.interval(delta)))
            done, stop = stop, _next_stop(self.n_audited + stop) - self.n_audited
        if done < len(x):
            band = band.extend(weight[done:], x[done:], lost[done:])
        return band, np.vstack([self.intervals, *lines]) if lines else self.intervals

    def restarted(self):
        """Return the state with bets that start again."""
        each = zip(self.bettors, self.capitals, strict=True)
        capitals = tuple(Capital.initial(one, before.alarms) for one, before in each)
        return replace(self, capitals=capitals, n_restarted=self.n_seen)

    @property
    def largest(self):
        """Maximum of the log martingale; with two sides at least half their maximum."""
        return max(one.largest for one in self.capitals) - np.log(len(self.capitals))

    @property
    def leader(self):
        """Return direction, None and start of the bet with the largest capital."""
        side = int(np.argmax([one.log_martingale for one in self.capitals]))
        return self.capitals[side].leader(self.bettors[side])

    @property
    def alarm(self):
        found = [one.alarm for one in self.capitals if one.alarm is not None]
        return min(found, key=lambda alarm: alarm.row, default=None)

    @property
    def alarms(self):
        found = [alarm for one in self.capitals for alarm in one.alarms]
        return sorted(found, key=lambda alarm: alarm.row)

    def recent_interval(self, delta):
        """Return the Clopper-Pearson interval of the last samples."""
        n, k = len(self.recent), int(self.recent.sum())
        low = float(beta.ppf(delta / 2, k, n - k + 1)) if k else 0.0
        return low, float(beta.isf(delta / 2, k + 1, n - k)) if k < n else 1.0

    def history(self, delta):
        """Return the tables of the history, the larger martingale of two sides."""
        tables = [one.table() for one in self.histories]
        table = tables[0]
        for name in ("log_martingale", "largest"):
            table[name] = np.max([one[name] for one in tables], axis=0)
        lines = self.intervals
        if len(table.row) and (not len(lines) or lines[-1, 0] < table.row[-1]):
            now = (table.row[-1], self.band.estimate, *self.band.interval(delta))
            lines = np.vstack([lines, now])
        table.interval_row = lines[:, 0].astype(np.int64)
        table.estimate, table.low, table.high = lines[:, 1:].T.copy()
        return table


def _next_stop(n):
    """Return the next number of samples after which the interval is recorded.

    All numbers up to 32, then 16 until the number has doubled.
    """
    step = 1 << max(int(n).bit_length() - 5, 0)
    return (n // step + 1) * step


def rate_bettors(sides, alpha, time_scale):
    """Return the bets of each side, which share the level alpha."""
    n = len(FRACTIONS)
    threshold = float(np.log(len(sides) / alpha))
    weight = np.full(n, -np.log(n))
    return tuple(
        Bettors(weight, ((side, None),) * n, threshold, time_scale) for side in sides
    )
