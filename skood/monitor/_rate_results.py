"""Results of a monitor of a rate, as attributes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod

__all__ = ["RateResults"]


class RateResults:
    """Mixin for the attributes of :class:`RateMonitor` that follow from its state."""

    confidence_level: float

    @abstractmethod
    def _started(self):
        """Return the state."""

    @abstractmethod
    def _bettors(self):
        """Return the bettors of each side."""

    @abstractmethod
    def _counts(self):
        """Return whether counts of 0 and 1 are the state of the interval."""

    @property
    def n_seen_(self):
        return self._started().n_seen

    @property
    def n_audited_(self):
        return self._started().n_audited

    @property
    def n_pending_(self):
        return len(self._started().pending)

    @property
    def log_martingale_(self):
        return max(one.log_martingale for one in self._started().capitals)

    @property
    def max_log_martingale_(self):
        return self._started().largest

    @property
    def threshold_(self):
        self._started()
        return self._bettors()[0].threshold

    @property
    def leader_(self):
        return self._started().leader(self._bettors())

    @property
    def alarm_(self):
        return self._started().alarm

    @property
    def alarms_(self):
        return self._started().alarms

    @property
    def estimate_(self):
        return float(self._started().band.estimate)

    @property
    def interval_(self):
        return self._started().band.interval(1 - self.confidence_level)

    @property
    def recent_(self):
        if not self._counts():
            return None
        return self._started().recent_interval(1 - self.confidence_level)

    @property
    def history_(self):
        return self._started().history()
