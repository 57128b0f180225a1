"""Monitors of deployed classifiers and detectors: alarms that hold at any time."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.monitor._displays import MartingaleDisplay, RateDisplay
from skood.monitor._exchangeability import ExchangeabilityMonitor
from skood.monitor._panel import MonitorPanel
from skood.monitor._rates import Audit, RateMonitor
from skood.stats._betting import Alarm, detectable_shift
from skood.stats._evalues import e_bh
from skood.stats._sequential_ranks import (
    log_histogram_bet,
    log_power_mixture,
    log_simple_jumper,
    sequential_ranks,
    serial_dependence,
)

__all__ = [
    "Alarm",
    "Audit",
    "ExchangeabilityMonitor",
    "MartingaleDisplay",
    "MonitorPanel",
    "RateDisplay",
    "RateMonitor",
    "detectable_shift",
    "e_bh",
    "log_histogram_bet",
    "log_power_mixture",
    "log_simple_jumper",
    "sequential_ranks",
    "serial_dependence",
]
