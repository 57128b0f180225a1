"""Monitors of deployed classifiers and detectors: alarms that hold at any time."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.monitor._capital import Alarm
from skood.monitor._exchangeability import ExchangeabilityMonitor, detectable_shift
from skood.monitor._ranks import (
    log_histogram_bet,
    log_power_mixture,
    log_simple_jumper,
    sequential_ranks,
    serial_dependence,
)

__all__ = [
    "Alarm",
    "ExchangeabilityMonitor",
    "detectable_shift",
    "log_histogram_bet",
    "log_power_mixture",
    "log_simple_jumper",
    "sequential_ranks",
    "serial_dependence",
]
