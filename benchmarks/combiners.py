"""Error rates, time and memory of the combiners of p-values.

On drawn scores, equicorrelated and normal, with the true p-values where nothing else is
said, the script prints, at the level 0.05 (TPR: accepted fraction of ID samples, FPR:
accepted fraction of OOD samples)::

    python benchmarks/combiners.py
    python benchmarks/combiners.py --quick

1. the seconds and the peak memory of a process that combines many p-values;
2. the TPR of each combiner for 7 and 18 detectors, independent and correlated;
3. for 7 detectors, of which two see a large shift or all see a small one, the TPR and
   FPR at the level, the AUROC, and the FPR at a TPR of exactly 95 %;
4. the TPR with few calibration rows: p-values of the empirical distribution, conformal
   ones, and the conformal level of `DetectorEnsemble`;
5. the TPR of the conformal level for dependent detectors;
6. the CPU time of the scores of `DSDE` of 18 detectors whose scores are columns, and of
   the same levels in plain NumPy, with a search for each detector.

The script fails if a TPR differs from the known one by more than 0.002 and 3.3 standard
errors, if that of a conformal level is less than 0.95 by more than 3.3 standard errors
over the draws, if a million samples take more than 4 seconds or 1 GiB, if 10,000
samples take more than 1.15 times as long as in plain NumPy, or one more than 1 ms.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import math
import multiprocessing
import resource
import statistics
import sys
import time
import warnings

import numpy as np
from joblib import Parallel, delayed
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from skood.combine import (
    DSDE,
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    Cauchy,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Stouffer,
    Vote,
    conformal_pvalues,
)
from skood.exceptions import SkoodWarning
from skood.metrics import auroc, fpr_at_tpr

ALPHA = 0.05
RHOS = (0.0, 0.3, 0.6, 0.9)
C_M = {7: 2 / 7, 18: 2 / 15}
SHIFTS = {"sparse": [3, 3, 0, 0, 0, 0, 0], "dense": [1.5] * 7}

# Known fractions of accepted samples, by number of detectors, combiner and correlation.
KNOWN = {
    (7, "BenjaminiHochberg", 0.0): 0.95,
    (7, "DOSStorey", 0.0): 0.9353,
    (7, "Storey", 0.0): 0.9199,
    (18, "BenjaminiHochberg", 0.0): 0.95,
    (18, "DOSStorey", 0.0): 0.9413,
    (18, "Storey", 0.0): 0.9406,
    (7, "DOSStorey", 0.3): 0.935,
    (7, "DOSStorey", 0.6): 0.944,
    (7, "DOSStorey", 0.9): 0.960,
}

# What a million samples of 18 p-values may take.
SECONDS, MIB = 4.0, 1024

# What the scores of `DSDE` may take: a batch relative to plain NumPy, and one sample.
RATIO, ONE_SAMPLE_MS = 1.15, 1.0


def combiners(m):
    """The combiners by name."""
    return {
        "Naive": Naive(),
        "Bonferroni": Bonferroni(),
        "BenjaminiHochberg": BenjaminiHochberg(),
        "BenjaminiYekutieli": BenjaminiYekutieli(),
        "DOSStorey": DOSStorey(c_m=C_M[m]),
        "DOSStorey argmax": DOSStorey(c_m=C_M[m], fallback="argmax"),
        "Storey": Storey(),
        "Storey plus one": Storey(plus_one=True),
        "Vote 50 %": Vote(0.5),
        "Vote 60 %": Vote(0.6),
        "Fisher": Fisher(),
        "Stouffer": Stouffer(),
        "HarmonicMean": HarmonicMean(),
        "Cauchy": Cauchy(),
    }


def draw_scores(rng, n, m, rho):
    """Rows of m standard normal scores that correlate by rho."""
    own = rng.standard_normal((n, m))
    return math.sqrt(rho) * rng.standard_normal((n, 1)) + math.sqrt(1 - rho) * own


def status(met):
    """The last column of a table."""
    return {None: "", True: "  OK", False: "  missed"}[met]


def measure(name, n):
    """Seconds of both methods, and the peak memory of this process, in MiB."""
    P = np.random.default_rng(0).random((n, 18))
    combiner = combiners(18)[name]
    combiner.statistic(P[:100])
    seconds = []
    for method in (combiner.statistic, combiner.selected):
        start = time.perf_counter()
        method(P)
        seconds.append(time.perf_counter() - start)
    return *seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def print_costs(n):
    """Table 1; return whether a limit is missed."""
    print(f"\n1. {n} samples of 18 p-values, each combiner in a process of its own")
    print(f"{'':<20}{'statistic s':>13}{'selected s':>13}{'peak MiB':>11}")
    missed, context = False, multiprocessing.get_context("spawn")
    for name in combiners(18):
        with context.Pool(1) as pool:
            statistic, selected, mib = pool.apply(measure, (name, n))
        met = max(statistic, selected) <= SECONDS and mib <= MIB
        missed |= not met
        print(
            f"{name:<20}{statistic:>13.2f}{selected:>13.2f}{mib:>11.0f}{status(met)}",
            flush=True,
        )
    return missed


def print_id_rates(n, rng):
    """Table 2; return whether a known rate is missed."""
    missed = False
    for m in C_M:
        print(f"\n2. TPR of {m} detectors by their correlation, {n} samples")
        print(f"{'':<20}" + "".join(f"{rho:>9.1f}" for rho in RHOS))
        drawn = [ndtr(draw_scores(rng, n, m, rho)) for rho in RHOS]
        for name, combiner in combiners(m).items():
            rates, met = [], None
            for rho, P in zip(RHOS, drawn, strict=True):
                rate = np.mean(combiner.statistic(P) > ALPHA)
                rates.append(rate)
                if (known := KNOWN.get((m, name, rho))) is not None:
                    error = math.sqrt(known * (1 - known) / n)
                    near = abs(rate - known) <= 0.002 + 3.3 * error
                    met = near and met is not False
            missed |= met is False
            line = "".join(f"{rate:>9.4f}" for rate in rates)
            print(f"{name:<20}{line}{status(met)}", flush=True)
    return missed


def print_ood_rates(n, rng):
    """Table 3."""
    y = np.repeat([0, -1], n)
    for rho in (0.0, 0.6):
        for kind, shift in SHIFTS.items():
            scores = draw_scores(rng, 2 * n, 7, rho)
            scores[n:] -= shift
            P = ndtr(scores)
            print(
                f"\n3. 7 detectors, correlation {rho}, {kind} shift, {n} samples each"
            )
            print(f"{'in %':<20}{'TPR':>9}{'FPR':>9}{'AUROC':>9}{'FPR@95':>9}")
            for name, combiner in combiners(7).items():
                q = combiner.statistic(P)
                accepted = q > ALPHA
                rates = [accepted[:n].mean(), accepted[n:].mean(), auroc(y, q)]
                rates.append(fpr_at_tpr(y, q))
                line = "".join(f"{100 * rate:>9.2f}" for rate in rates)
                print(f"{name:<20}{line}", flush=True)


class Column(BaseEstimator):
    """A detector whose score is a column of X."""

    def __init__(self, column):
        self.column = column

    def fit(self, X, y=None):
        """Take the number of columns."""
        self.n_features_in_ = X.shape[1]
        return self

    def score_samples(self, X):
        """Return the column."""
        return X[:, self.column]


def accepted_by_level(combiner, m, rho, n, n_new, seed):
    """Fraction of new ID samples that an ensemble with a conformal level accepts."""
    rng = np.random.default_rng(seed)
    scores = draw_scores(rng, n + n_new, m, rho)
    members = [(f"c{j}", FrozenEstimator(Column(j).fit(scores))) for j in range(m)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)  # of few calibration rows
        ensemble = DetectorEnsemble(
            members,
            combiner,
            calibration="same",
            level="conformal",
            random_state=seed[0],
        ).fit(scores[:n])
    return np.mean(ensemble.predict(scores[n:]) == 1)


def accepted_nominally(method, combiner, m, n, n_new, seed):
    """Fraction of new ID samples that a combiner of p-values accepts."""
    rng = np.random.default_rng(seed)
    P = conformal_pvalues(rng.random((n_new, m)), rng.random((n, m)), method=method)
    return np.mean(combiner.statistic(P) > ALPHA)


def mean_and_error(fractions):
    """Mean over draws, and its standard error."""
    return np.mean(fractions), np.std(fractions, ddof=1) / math.sqrt(len(fractions))


def print_finite_calibration(n_draws, n_jobs):
    """Table 4; return whether the conformal level is missed."""
    print(
        f"\n4. TPR with 200 calibration rows, 18 independent detectors, {n_draws} draws"
    )
    print(f"{'':<20}{'empirical':>11}{'n + 1':>11}{'conformal level':>18}{'s. e.':>9}")
    missed, parallel = False, Parallel(n_jobs=n_jobs)
    for name, combiner in combiners(18).items():
        empirical, plus_one = (
            mean_and_error(
                parallel(
                    delayed(accepted_nominally)(method, combiner, 18, 200, 400, (i, 3))
                    for i in range(n_draws)
                )
            )[0]
            for method in ("ecdf", "conformal")
        )
        mean, error = mean_and_error(
            parallel(
                delayed(accepted_by_level)(combiner, 18, 0.0, 200, 400, (i, 4))
                for i in range(n_draws)
            )
        )
        kept = mean >= 1 - ALPHA - 3.3 * error
        missed |= not kept
        print(
            f"{name:<20}{empirical:>11.4f}{plus_one:>11.4f}{mean:>18.4f}{error:>9.4f}"
            f"{status(kept)}",
            flush=True,
        )
    return missed


def print_conformal_level(n_draws, n_jobs):
    """Table 5; return whether a level is missed."""
    missed, parallel = False, Parallel(n_jobs=n_jobs)
    for name in ("DOSStorey", "BenjaminiHochberg", "Stouffer"):
        print(f"\n5. TPR of the conformal level, {name}, {n_draws} draws")
        print(f"{'m':>4}{'n':>7}{'correlation':>13}{'TPR':>9}{'s. e.':>9}")
        for m in C_M:
            for n in (200, 2000):
                for rho in RHOS:
                    fractions = parallel(
                        delayed(accepted_by_level)(
                            combiners(m)[name], m, rho, n, 400, (i, n, m)
                        )
                        for i in range(n_draws)
                    )
                    mean, error = mean_and_error(fractions)
                    kept = mean >= 1 - ALPHA - 3.3 * error
                    missed |= not kept
                    print(
                        f"{m:>4}{n:>7}{rho:>13.1f}{mean:>9.4f}{error:>9.4f}{status(kept)}",
                        flush=True,
                    )
    return missed


def plain_levels(scores, calibration, statistics_of_id):
    """The conformal levels of `DSDE` from scores, without ties, in plain NumPy."""
    (n, m), k = calibration.shape, np.arange(1, scores.shape[1] + 1)[:, None]
    P = np.empty(scores.shape)
    for j in range(m):
        P[:, j] = np.searchsorted(calibration[:, j], scores[:, j], side="right")
    p = np.sort((1 + P) / (n + 1), axis=1).T
    i = np.arange(2, m // 2 + 1)
    slopes = (p[2 * i - 1] - 2 * p[i - 1]) / i[:, None]
    change = slopes.argmax(axis=0) + 2
    at = np.minimum(p[change - 1, np.arange(len(scores))], 1 - 1e-12)
    pi0 = np.minimum(1, (1 - change / m) / (1 - at))
    q = np.where(slopes.max(axis=0) > 0, pi0, 1) * m * (p / k).min(axis=0)
    n_below = np.searchsorted(statistics_of_id, q * (1 + 1e-12), side="right")
    return (1 + n_below) / (len(statistics_of_id) + 1)


def print_dsde_times(rng):
    """Table 6; return whether a goal is missed."""
    scores = draw_scores(rng, 12_000, 18, 0.5)
    members = [(f"c{j}", Column(j)) for j in range(18)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)  # of few calibration rows
        dsde = DSDE(members, random_state=0).fit(scores[:2000])
    calibration, in_order = dsde._levels.calibrations[0].scores, dsde._levels.statistics
    print(
        "\n6. DSDE of 18 detectors, CPU ms, 200 calibration samples and 200 of levels"
    )
    print(f"{'samples':<20}{'DSDE':>9}{'NumPy':>9}{'ratio':>9}")
    missed = False
    for n, repetitions in ((1, 500), (10_000, 15)):
        batch, times = scores[-n:], []
        levels = plain_levels(batch, calibration, *in_order)
        assert np.mean(np.isclose(dsde.levels(batch), levels)) > 0.99  # but for ties
        for _ in range(repetitions):
            start = time.process_time()
            dsde.score_samples(batch)
            middle = time.process_time()
            plain_levels(batch, calibration, *in_order)
            times.append((middle - start, time.process_time() - middle))
        skood_ms, numpy_ms = (
            1e3 * statistics.median(column) for column in zip(*times, strict=True)
        )
        ratio = statistics.median(a / b for a, b in times)
        met = skood_ms <= ONE_SAMPLE_MS if n == 1 else ratio <= RATIO
        missed |= not met
        print(
            f"{n:<20}{skood_ms:>9.2f}{numpy_ms:>9.2f}{ratio:>9.2f}{status(met)}",
            flush=True,
        )
    return missed


def main(argv=None):
    """Print the tables; return 1 if something is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="less than a minute")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.samples, arguments.draws = 50_000, 10
    rng = np.random.default_rng(arguments.seed)
    # first, since on Linux the peak of a process is at least that of its parent
    missed = print_costs(arguments.samples)
    missed |= print_id_rates(arguments.samples, rng)
    print_ood_rates(arguments.samples // 5, rng)
    missed |= print_finite_calibration(arguments.draws, arguments.n_jobs)
    missed |= print_conformal_level(arguments.draws, arguments.n_jobs)
    missed |= print_dsde_times(rng)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
