"""False alarms, delays and speed of monitors, with targets.

::

    python benchmarks/monitors.py [--streams 200]

Normal scores, alpha = 0.01, default parameters. False alarms are of streams of 10,000
samples without a change; delays are medians over streams with a change after 1,000
samples, without an earlier alarm. Targets are the numbers of a prototype: delays within
15 %, and at most 1 % false alarms plus two standard errors. Exits with 1 if a target is
missed.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time

import numpy as np

from skood.monitor import ExchangeabilityMonitor, MonitorPanel, RateMonitor

SIZES = (60, 300, 1000)

# Change: (shift, share of OOD samples N(-3, 1); None: no OOD samples at all), and the
# medians of the prototype for 60, 300 and 1,000 calibration samples.
CHANGES = {
    "mean -0.25": (-0.25, None, (441, 376, 342)),
    "mean -0.5": (-0.5, None, (94, 87, 84)),
    "mean -1": (-1.0, None, (26, 27, 25)),
    "OOD 5 to 20 %": (0.0, 0.2, (161, 149, 148)),
    "OOD 5 to 50 %": (0.0, 0.5, (25, 25, 25)),
}
RUN_LENGTH = {"mean -0.5": (52, 49, 48), "mean -1": (15, 17, 16)}

missed = []


def report(what, value, target, good):
    """Print a line of a table, and remember missed targets."""
    print(f"{what:<44} {value:>12} {target:>16}  {'OK' if good else 'missed'}")
    if not good:
        missed.append(what)


def scores_of(rng, n, shift=0.0, share=None):
    """Return normal scores, some of them of OOD samples."""
    scores = rng.normal(size=n) + shift
    if share is not None:
        scores -= 3 * (rng.random(n) < share)
    return scores


def false_alarms(n_streams):
    """Share of streams without a change that raise an alarm."""
    limit = 0.01 + 2 * np.sqrt(0.01 * 0.99 / n_streams)
    for alternative in ("ood", "any"):
        for n in SIZES:
            rng, found = np.random.default_rng(n), 0
            for seed in range(n_streams):
                monitor = ExchangeabilityMonitor(
                    alternative=alternative, random_state=seed
                )
                monitor.fit(rng.normal(size=n)).update(rng.normal(size=10_000))
                found += monitor.alarm_ is not None
            share = found / n_streams
            what = f"false alarms, {alternative}, n={n}"
            report(what, f"{share:.2%}", f"<= {limit:.2%}", share <= limit)


def delay(n, change, n_streams, **options):
    """Median number of samples from a change to the alarm, within 10,000 samples."""
    shift, share, _ = CHANGES[change]
    before = None if share is None else 0.05
    rng, delays = np.random.default_rng(n), []
    for seed in range(n_streams):
        monitor = ExchangeabilityMonitor(random_state=seed, **options)
        monitor.fit(scores_of(rng, n, 0, before))
        monitor.update(scores_of(rng, 1000, 0, before))
        if monitor.alarm_ is not None:
            continue
        for _ in range(10):
            monitor.update(scores_of(rng, 1000, shift, share))
            if monitor.alarm_ is not None:
                delays.append(monitor.alarm_.row - 1000)
                break
    return float(np.median(delays))


def delays(n_streams):
    """Delays of the default, and with a bounded run length."""
    for change, (_, _, targets) in CHANGES.items():
        for n, target in zip(SIZES, targets, strict=True):
            value = delay(n, change, n_streams)
            good = value <= 1.15 * target
            report(f"delay, {change}, n={n}", value, f"<= 1.15 * {target}", good)
    for change, targets in RUN_LENGTH.items():
        for n, target in zip(SIZES, targets, strict=True):
            value = delay(n, change, n_streams, guarantee="run_length")
            good = value <= 1.15 * target
            what = f"delay, run length, {change}, n={n}"
            report(what, value, f"<= 1.15 * {target}", good)


def rates(n_streams):
    """False alarms at the bound, and delays in audited samples."""
    rng, limit = np.random.default_rng(0), 0.01 + 2 * np.sqrt(0.0099 / n_streams)
    for bound in (0.05, 0.2, 0.5):
        found = 0
        for _ in range(n_streams):
            monitor = RateMonitor(quantity="fpr", bound=bound)
            monitor.update_values(rng.random(10_000) < bound)
            found += monitor.alarm_ is not None
        share = found / n_streams
        what = f"false alarms, rate at {bound}"
        report(what, f"{share:.2%}", f"<= {limit:.2%}", share <= limit)
    for rate, target in ((0.08, 1078), (0.12, 249), (0.3, 36)):
        rows = []
        for _ in range(n_streams):
            monitor = RateMonitor(quantity="fpr", bound=0.05)
            x = rng.random(9000) < np.where(np.arange(9000) < 1000, 0.04, rate)
            monitor.update_values(x)
            if monitor.alarm_ is not None and monitor.alarm_.row > 1000:
                rows.append(monitor.alarm_.row - 1000)
        value = float(np.median(rows))
        good = value <= 1.15 * target
        report(f"delay, rate .04 to {rate}", value, f"<= 1.15 * {target}", good)


def panels(n_streams):
    """One of ten dependent features moves: is it named, and are others?"""
    names, right, false = [str(k) for k in range(10)], 0, 0
    rng = np.random.default_rng(0)

    def features(n):
        return np.sqrt(0.5) * (rng.normal(size=(n, 1)) + rng.normal(size=(n, 10)))

    for seed in range(n_streams):
        panel = MonitorPanel(
            [(one, ExchangeabilityMonitor(random_state=seed)) for one in names]
        )
        new = features(2000)
        new[1000:, 3] -= 0.5
        panel.fit(dict(zip(names, features(300).T, strict=True)))
        panel.update(dict(zip(names, new.T, strict=True)))
        right += "3" in panel.culprits_
        false += any(one != "3" for one in panel.culprits_)
    share, wrong = right / n_streams, false / n_streams
    report("panel of ten: named", f"{share:.1%}", ">= 95 %", share >= 0.95)
    report("panel of ten: a false name", f"{wrong:.1%}", "<= 5 %", wrong <= 0.05)


def speed():
    """Samples per second of processor time, in batches of 1,000 and one by one."""
    rng = np.random.default_rng(0)
    for n in (1000, 10_000):
        monitor = ExchangeabilityMonitor().fit(rng.normal(size=n))
        batches, best = rng.normal(size=(500, 1000)), 0.0
        for part in np.split(batches, 10):
            start = time.process_time()
            for batch in part:
                monitor.update(batch)
            best = max(best, part.size / (time.process_time() - start))
        report(f"samples/s, n={n}", f"{best:.2e}", ">= 1e6", best >= 1e6)
    times = []
    for part in np.split(rng.normal(size=(5000, 1)), 25):
        start = time.process_time()
        for one in part:
            monitor.update(one)
        times.append((time.process_time() - start) / len(part))
    best = 1e6 * min(times)
    report("microseconds, one sample a call", f"{best:.0f}", "<= 50", best <= 50)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=2000)
    n_streams = parser.parse_args().streams
    print(f"{'':<44} {'measured':>12} {'target':>16}")
    speed()
    false_alarms(n_streams)
    delays(max(n_streams // 10, 20))
    rates(n_streams)
    panels(max(n_streams // 10, 20))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
