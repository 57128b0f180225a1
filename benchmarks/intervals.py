"""Coverage and mean width of every interval that skood prints.

Data are simulated from distributions whose rates, risks and metrics are known, by a
closed form or from a million samples, and for each kind of data the fraction of data
sets is counted whose nominal 95 % interval contains the true value. A row is OK from
0.93 on (less two standard errors of the simulation; the column is the plain
fraction). Parts:

- *report*: `RejectOptionClassifier.report`, rates and risks of 0/1 and graded losses;
- *ranking*: the tables of `compare`, which are the intervals of `bootstrap_ci` too, for
  AUROCs from 0.5 to 0.995 with normal, heavy-tailed, discrete and contaminated scores;
- *selective*: `bootstrap_ci` of metrics of predictions and scores;
- *difference*: `paired_test` of two correlated detectors.

The column "percentile" has coverage and mean width of the percentile bootstrap on the
same resamples. Run ``python benchmarks/intervals.py``, about an hour on one core; with
``--repetitions 100 --resampled 50`` it is a look of some minutes.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import math
import time

import numpy as np
from scipy.stats import cauchy, norm

from skood.metrics import (
    Resampling,
    augrc,
    aurc,
    auroc,
    bootstrap_ci,
    brier,
    ccr_at_fpr,
    coverage_at_risk,
    e_aurc,
    expected_calibration_error,
    fpr_at_tpr,
    oscr,
    paired_test,
    ranking_metrics,
    risk_at_coverage,
)
from skood.metrics._compare_with_best import METRICS, Resamples
from skood.rejection._report import make_report

LEAST = 0.93
RESAMPLES = 60
MANY = 10**6


class Count:
    """Count how often intervals contain the true value, and print a row."""

    def __init__(self):
        self.missed = []

    def row(self, name, true, intervals, others=None):
        """Print coverage and width of intervals, and of others on the same data."""
        low, high = np.transpose(intervals)
        fraction = np.mean((low <= true + 1e-9) & (true - 1e-9 <= high))
        error = math.sqrt(LEAST * (1 - LEAST) / len(low))
        verdict = "OK" if fraction >= LEAST - 2 * error else "missed"
        if verdict == "missed":
            self.missed.append(name)
        text = f"{name:52} {true:7.4f}  {fraction:.3f} {np.mean(high - low):.4f}"
        if others is not None:
            low, high = np.transpose(others)
            fraction = np.mean((low <= true + 1e-9) & (true - 1e-9 <= high))
            text += f"   {fraction:.3f} {np.mean(high - low):.4f}"
        print(f"{text:88} {verdict}", flush=True)


# ------------------------------------------------------------------------- reports

LOSSES = {
    "0/1": ((0, 1), lambda rng, n: 1.0 * (rng.uniform(size=n) < 0.05)),
    "costs 0, 1, 5": (
        (0, 1, 5),
        lambda rng, n: rng.choice([0.0, 1, 5], n, p=[0.8, 0.15, 0.05]),
    ),
    "exponential, at most 5": (
        (0, 1, 5),
        lambda rng, n: np.minimum(rng.exponential(size=n), 5),
    ),
    "10 with a probability of 0.01": (
        (0, 1, 10),
        lambda rng, n: 10.0 * (rng.uniform(size=n) < 0.01),
    ),
    "small, and 10 with a probability of 0.01": (
        (0, 1, 10),
        lambda rng, n: np.where(rng.uniform(size=n) < 0.01, 10, rng.uniform(size=n)),
    ),
    "all equal": ((0, 1, 5), lambda rng, n: np.full(n, 0.7)),
}


def report_rows(count, options):
    """Measure the intervals of reports."""
    for n in options.sizes:
        rng = np.random.default_rng(n)
        for tpr, fpr in ((0.5, 0.5), (0.95, 0.05), (0.995, 0.005)):
            found = {name: [] for name in ("tpr", "fpr", "coverage", "precision")}
            is_ood = np.repeat([False, True], [n - n // 5, n // 5])
            for _ in range(options.repetitions):
                accepted = rng.uniform(size=n) < np.where(is_ood, fpr, tpr)
                given = {"confidence_level": 0.95, "possible": np.array([0.0, 1.0])}
                report = make_report(
                    accepted, np.zeros(n - n // 5), is_ood, ood_prior=0.2, **given
                )
                for name, intervals in found.items():
                    intervals.append(getattr(report, name)[1:])
            coverage = (tpr * (n - n // 5) + fpr * (n // 5)) / n
            precision = 0.8 * tpr / (0.8 * tpr + 0.2 * fpr)
            true = dict(zip(found, (tpr, fpr, coverage, precision), strict=True))
            for name, intervals in found.items():
                count.row(f"report.{name}, {n} samples", true[name], intervals)
        for name, (possible, draw) in LOSSES.items():
            true = float(np.mean(draw(np.random.default_rng(0), MANY)))
            ours, normal = [], []
            for loss in draw(rng, (options.repetitions, n)):
                report = make_report(
                    np.ones(n, dtype=bool),
                    loss,
                    np.zeros(n, dtype=bool),
                    confidence_level=0.95,
                    ood_prior=None,
                    possible=np.array(possible, dtype=float),
                )
                ours.append(report.risk[1:])
                half = 1.96 * loss.std(ddof=1) / math.sqrt(n)
                normal.append((loss.mean() - half, loss.mean() + half))
            count.row(f"report.risk, {n} accepted, {name}", true, ours, normal)


# ------------------------------------------------------------------------- rankings


def draw_scores(kind, area, m, n, rng):
    """Return scores of ID and OOD samples with the given AUROC."""
    if kind == "normal" or kind == "discrete":
        a, b = rng.normal(size=m) + math.sqrt(2) * norm.ppf(area), rng.normal(size=n)
        return (a, b) if kind == "normal" else (a.round(), b.round())
    if kind == "heavy tails":
        return rng.standard_cauchy(m) + 2 * cauchy.ppf(area), rng.standard_cauchy(n)
    if kind == "two values":
        return 1.0 * (rng.uniform(size=m) < area), 1.0 * (rng.uniform(size=n) > area)
    far = 1 - area  # contaminated: so many ID samples are below all OOD samples
    return np.where(rng.uniform(size=m) < far, -9.0, 9.0) + rng.normal(
        size=m
    ), rng.normal(size=n)


KINDS = "normal", "heavy tails", "discrete", "two values", "contaminated"


def ranking_intervals(a, b, seed):
    """Return the intervals that `compare` prints, and percentile intervals."""
    names, random_state = list(METRICS), np.random.RandomState(seed)
    resamples = Resamples(
        [a[None]], [[b[None]]], [np.arange(len(a))], [], names, random_state
    )
    draws = np.array([resamples(i) for i in range(RESAMPLES)])
    intervals = resamples.intervals(resamples.each().mean(axis=0), draws, 0.95)
    return {
        name: (
            intervals[0, 0, k],
            np.quantile(draws[:, 0, 0, k], [0.025, 0.975]),
        )
        for k, name in enumerate(names)
    }


def ranking_rows(count, options):
    """Measure the intervals of ranking metrics."""
    for kind in options.kinds:
        for area in options.areas:
            for fraction in (1 / 2, 5 / 6, 1 / 6):
                rng = np.random.default_rng(0)
                scores = draw_scores(
                    kind, area, int(MANY * fraction), int(MANY * (1 - fraction)), rng
                )
                y = np.repeat([0, -1], [len(s) for s in scores])
                true = ranking_metrics(y, np.concatenate(scores))
                for size in options.sizes:
                    m = round(size * fraction)
                    found = [
                        ranking_intervals(
                            *draw_scores(kind, area, m, size - m, rng), seed
                        )
                        for seed in range(options.resampled)
                    ]
                    for name in METRICS:
                        label = f"{name}, {kind}, AUROC {area}, {m} + {size - m}"
                        pairs = [row[name] for row in found]
                        count.row(label, true[name], *zip(*pairs, strict=True))


# -------------------------------------------------------- predictions and scores


def draw_predictions(area, risk, m, n, rng):
    """Return labels, predictions and scores; errors are more likely at low scores."""
    a, b = draw_scores("normal", area, m, n, rng)
    y_true = np.append(rng.integers(3, size=m), np.full(n, -1))
    chance = 2 * risk * norm.sf(a - math.sqrt(2) * norm.ppf(area))
    wrong = rng.uniform(size=m) < chance
    y_pred = y_true.copy()
    y_pred[:m][wrong] = (y_pred[:m][wrong] + 1 + rng.integers(2, size=wrong.sum())) % 3
    y_pred[m:] = 0
    return y_true, y_pred, np.append(a, b)


COSTS = np.array([[0.0, 1, 5], [1, 0, 1], [1, 1, 0]])
SELECTIVE = {
    "aurc": (aurc, {}),
    "aurc, costs 0, 1, 5": (aurc, {"loss": COSTS, "classes": [0, 1, 2]}),
    "e_aurc": (e_aurc, {}),
    "augrc": (augrc, {}),
    "risk_at_coverage": (risk_at_coverage, {}),
    "coverage_at_risk": (coverage_at_risk, {"risk": 0.05}),
    "oscr": (oscr, {}),
    "oscr, dhamija": (oscr, {"definition": "dhamija"}),
    "ccr_at_fpr": (ccr_at_fpr, {"fpr": 0.2}),
    "ccr_at_fpr, dhamija": (ccr_at_fpr, {"fpr": 0.2, "definition": "dhamija"}),
}


def selective_rows(count, options):
    """Measure the intervals of metrics of predictions and scores."""
    for name, (metric, params) in SELECTIVE.items():
        for area, risk in ((0.7, 0.2), (0.95, 0.02)):
            rng = np.random.default_rng(0)
            data = draw_predictions(area, risk, MANY // 2, MANY // 2, rng)
            true = metric(*data, **params)
            for size in options.sizes:
                found = []
                for seed in range(options.resampled):
                    data = draw_predictions(area, risk, size // 2, size // 2, rng)
                    draw = {"n_resamples": RESAMPLES, "random_state": seed}
                    found.append(bootstrap_ci(metric, *data, **draw, **params)[1:])
                count.row(f"{name}, AUROC {area}, risk {risk}, {size}", true, found)
    calibration_rows(count, options)


def calibration_rows(count, options):
    """Measure the intervals of calibration metrics, for right probabilities."""
    for metric, shift in (
        (brier, 0.0),
        (expected_calibration_error, 0.0),
        (expected_calibration_error, 0.1),
    ):
        rng = np.random.default_rng(0)

        def draw(n, rng, shift=shift):
            p = 0.8 * rng.uniform(size=n)
            y_true = (rng.uniform(size=n) < p + shift).astype(int)
            return y_true, np.column_stack([1 - p, p])

        true = metric(*draw(MANY, rng)) if metric is brier else shift_error(shift)
        for size in options.sizes:
            found = [
                bootstrap_ci(
                    metric,
                    *draw(size, rng),
                    classes=[0, 1],  # a resample may lack one
                    n_resamples=RESAMPLES,
                    random_state=seed,
                )[1:]
                for seed in range(options.resampled)
            ]
            count.row(f"{metric.__name__}, shift {shift}, {size}", true, found)


def shift_error(shift):
    """Return the ECE of the positive probabilities, all of them off by `shift`."""
    rng = np.random.default_rng(0)
    p = 0.8 * rng.uniform(size=4 * MANY)
    if shift == 0:
        return 0.0
    y_true = (rng.uniform(size=p.size) < p + shift).astype(int)
    return expected_calibration_error(y_true, np.column_stack([1 - p, p]))


# ---------------------------------------------------------------------- differences


def difference_rows(count, options):
    """Measure the intervals of differences of two correlated detectors."""
    for metric in (auroc, fpr_at_tpr):
        for areas in ((0.7, 0.7), (0.9, 0.8), (0.95, 0.95), (0.995, 0.98)):
            means = math.sqrt(2) * norm.ppf(areas)
            true = areas[0] - areas[1]
            if metric is fpr_at_tpr:
                fprs = norm.sf(means + norm.ppf(0.05))
                true = fprs[0] - fprs[1]
            for size in options.sizes:
                rng = np.random.default_rng(size)
                found = []
                y = np.repeat([0, -1], size // 2)
                for seed in range(options.resampled):
                    common, *own = rng.normal(size=(3, size)) / math.sqrt(2)
                    a, b = (
                        common + x + mean * (y == 0)
                        for x, mean in zip(own, means, strict=True)
                    )
                    result = paired_test(
                        metric,
                        y,
                        a,
                        b,
                        resampling=Resampling(RESAMPLES, "bootstrap"),
                        random_state=seed,
                    )
                    found.append((result.low, result.high))
                label = f"difference of {metric.__name__}, AUROCs {areas}, {size}"
                count.row(label, true, found)


PARTS = {
    "report": report_rows,
    "ranking": ranking_rows,
    "selective": selective_rows,
    "difference": difference_rows,
}


def main():
    """Print a row per interval and kind of data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000, help="of reports")
    parser.add_argument("--resampled", type=int, default=400, help="of other intervals")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[20, 50, 200, 2000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    areas = [0.5, 0.7, 0.9, 0.95, 0.99, 0.995]
    parser.add_argument("--areas", nargs="+", type=float, default=areas)
    options = parser.parse_args()
    start, count = time.perf_counter(), Count()
    print(f"{'interval':52} {'true':>7}  cover. width    percentile or normal")
    for part in options.parts:
        PARTS[part](count, options)
    print(f"{len(count.missed)} missed, {time.perf_counter() - start:.0f} s")
    for name in count.missed:
        print(f"  {name}")


if __name__ == "__main__":
    main()
