"""Results of a monitor of a rate, as attributes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod

from sklearn.utils import Bunch


class RateResults:
    """Mixin for the attributes of :class:`RateMonitor` that follow from its state."""

    confidence_level: float
    quantity: str
    min_audit: float | None

    @abstractmethod
    def _started(self):
        """Return the state."""

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
        return self._started().bettors[0].threshold

    @property
    def leader_(self):
        return self._started().leader

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
        return self._started().history(1 - self.confidence_level)

    def pooled(self, *others):
        """Return the estimate and interval of the samples of several monitors together.

        For a stream that is split over several machines, each with a monitor of its
        own. The states of the intervals are added; the interval covers a rate that is
        constant and the same for all monitors, at all times. Alarms stay apart: give
        the monitors to a :class:`MonitorPanel`.

        Parameters
        ----------
        *others : RateMonitor
            Other monitors, of other samples, of the same quantity and bound.

        Returns
        -------
        pooled : Bunch
            ``estimate``, ``interval`` and ``n_audited``, as the attributes of a single
            monitor.

        Raises
        ------
        ValueError
            If quantities, bounds, weights of audits or kinds of losses differ, or a
            monitor is given twice.
        """
        monitors = (self, *others)
        if len({id(getattr(one, "stage_", one)) for one in monitors}) < len(monitors):
            raise ValueError(
                "A monitor, or its copy, is pooled with itself, which would count its "
                "samples twice. Give each monitor once."
            )
        stages = [one._started() for one in monitors]
        kinds = {
            (one.quantity, one.bound_, one._counts(), one.min_audit) for one in monitors
        }
        if len(kinds) > 1:
            raise ValueError(
                "Pooled monitors must have the same quantity, bound, min_audit, and "
                "losses of 0 and 1 or other ones, got (quantity, bound, 0 and 1, "
                f"min_audit) = {sorted(kinds, key=str)}."
            )
        band = stages[0].band
        for stage in stages[1:]:
            band = band + stage.band
        return Bunch(
            estimate=float(band.estimate),
            interval=band.interval(1 - self.confidence_level),
            n_audited=sum(one.n_audited for one in stages),
        )
