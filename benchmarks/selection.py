"""False discovery rate and power of selections of OOD samples, and their time.

::

    python benchmarks/selection.py
    python benchmarks/selection.py --quick

prints, with OK or missed for each target:

1. rate and power of one detector: Benjamini-Hochberg at three levels, and Storey's
   estimate, by size and OOD share of the batch and number of calibration samples
   (100, 500, 2000), against known numbers within three standard errors of both;
2. ten correlated detectors: the best single one, the one with most selections (which is
   not valid), `BestOf` without and with combiners, and combined statistics;
3. the rate of these for a few OOD samples, where the most selections exceed the level;
4. covariate shift, with and without weights, and streams;
5. the seconds of large batches.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time

import numpy as np

from skood.combine import (
    BenjaminiHochberg,
    DOSStorey,
    Fisher,
    conformal_pvalues,
)
from skood.selection import (
    LOND,
    BestOf,
    ConditionalStepUp,
    Fusion,
    StepUp,
    evalue_selection,
    fdp_bound,
    fdp_power,
    weighted_selection,
)

SIZES = (100, 500, 2000)
COLUMNS = (("BH", 0.05), ("BH", 0.1), ("BH", 0.2), ("Storey", 0.1))

# FDR and power for the numbers of calibration samples, of each column.
KNOWN = {
    (100, 0.01): (
        ".000/.00 .002/.00 .048/.36 .001/.00 .066/.10 .095/.46 "
        ".043/.05 .200/.54 .194/.59 .002/.00 .043/.07 .080/.42"
    ),
    (100, 0.05): (
        ".000/.00 .029/.22 .048/.50 .013/.02 .089/.54 .095/.62 "
        ".138/.40 .191/.73 .184/.74 .017/.03 .082/.49 .095/.61"
    ),
    (100, 0.2): (
        ".013/.08 .037/.67 .040/.71 .061/.66 .078/.80 .080/.82 "
        ".145/.86 .158/.90 .161/.90 .083/.73 .095/.83 .100/.84"
    ),
    (1000, 0.01): (
        ".000/.00 .000/.00 .006/.01 .000/.00 .003/.00 .066/.21 "
        ".015/.02 .095/.16 .170/.43 .000/.00 .004/.01 .059/.18"
    ),
    (1000, 0.05): (
        ".000/.00 .012/.06 .040/.43 .002/.00 .075/.47 .090/.59 "
        ".106/.26 .174/.70 .186/.73 .005/.01 .078/.48 .093/.60"
    ),
    (1000, 0.2): (
        ".007/.04 .035/.66 .039/.70 .059/.65 .076/.80 .079/.81 "
        ".144/.86 .158/.89 .160/.90 .082/.74 .096/.83 .099/.84"
    ),
}

# Shift, number of shifted detectors of ten, held-out samples, batch, OOD share; FDR and
# power of the columns of `several`.
CASES = {
    (3.5, 1, 2000, 1000, 0.05): ".08/.80 .10/.81 .08/.80 .08/.79 .00/.00 .00/.00",
    (3.5, 2, 500, 100, 0.2): ".07/.93 .11/.94 .06/.92 .07/.82 .06/.50 .01/.00",
    (3.5, 2, 500, 1000, 0.05): ".08/.72 .12/.82 .08/.70 .08/.58 .04/.08 .00/.00",
    (2.5, 10, 500, 100, 0.2): ".09/.61 .16/.79 .08/.52 .07/.94 .07/.96 .08/.98",
    (2.5, 10, 2000, 1000, 0.05): ".08/.33 .18/.51 .08/.31 .10/.87 .09/.86 .10/.93",
}

# Held-out samples and number of OOD samples of 100; the rate of the most selections.
RARE = {(500, 0): 0.25, (2000, 1): 0.45, (2000, 5): 0.15}


def _parsed(text):
    return [tuple(map(float, one.split("/"))) for one in text.split()]


class Targets:
    """Prints verdicts and counts the missed targets."""

    def __init__(self):
        self.missed = 0

    def verdict(self, good):
        """Return OK or missed."""
        self.missed += not good
        return "OK" if good else "missed"


def _summary(found):
    """Return the mean FDP and power, and their standard errors."""
    found = np.array(found, dtype=float)
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(len(found))


def _close(mean, error, known, known_error):
    """Return whether means are within three standard errors of known ones."""
    spread = 3 * np.hypot(error, known_error) + 0.005  # known ones are rounded
    return bool((np.abs(mean - np.array(known)) <= spread).all())


def one_detector(args, targets):
    """Print the rates of one normal score, with OOD samples shifted by 3."""
    procedures = {"BH": StepUp(), "Storey": StepUp("storey")}
    for (m, share), text in KNOWN.items():
        is_ood = np.arange(m) < round(share * m)
        known = iter(_parsed(text))
        for name, alpha in COLUMNS:
            row = []
            for n in SIZES:
                rng = np.random.default_rng(args.seed)
                found = []
                for _ in range(args.draws):
                    p = conformal_pvalues(
                        rng.normal(size=m) - 3 * is_ood, rng.normal(size=n)
                    )
                    found.append(
                        fdp_power(procedures[name].selected(p, n, alpha), is_ood)
                    )
                mean, error = _summary(found)
                good = _close(mean, error, next(known), 0.0075)
                row.append(f"{mean[0]:.3f}/{mean[1]:.2f} {targets.verdict(good)}")
            print(f"{m:>5}{share:>6.0%} {name:<7}{alpha:<5}", *row, flush=True)


def _drawn(rng, n, m, n_ood, shift, n_shifted):
    """Return scores of held-out samples and of a batch, ten with correlation 0.3."""
    common = rng.normal(size=(n + m, 1))
    scores = np.sqrt(0.3) * common + np.sqrt(0.7) * rng.normal(size=(n + m, 10))
    scores[n : n + n_ood, :n_shifted] -= shift
    return scores[:n], scores[n:]


def _combined(combiner, held_out, scores, alpha):
    """Return the selection by a combined statistic, on a reference part of 30 %."""
    n_reference = round(0.3 * len(held_out))
    reference, calibration = held_out[:n_reference], held_out[n_reference:]
    q = [
        combiner.statistic(conformal_pvalues(rows, reference))
        for rows in (scores, calibration)
    ]
    return StepUp().selected(conformal_pvalues(*q), len(calibration), alpha)


def selections(held_out, scores, alpha, seed):
    """Return the selections of all methods by name."""
    P = conformal_pvalues(scores, held_out).T
    sets = BenjaminiHochberg().selected(P, alpha)
    plain = BestOf(combiners=()).select(scores, held_out, alpha, random_state=seed)
    default = BestOf().select(scores, held_out, alpha, random_state=seed)
    return {
        "oracle": sets[0],
        "most": sets[sets.sum(axis=1).argmax()],
        "BestOf ()": plain.selected,
        "BestOf": default.selected,
        "DSDE q": _combined(DOSStorey(), held_out, scores, alpha),
        "Fisher q": _combined(Fisher(), held_out, scores, alpha),
    }


def several_detectors(args, targets, alpha=0.1):
    """Print the rates of ten detectors."""
    n_draws = max(args.draws // 15, 10)
    for (shift, n_shifted, n, m, share), text in CASES.items():
        n_ood = round(share * m)
        is_ood = np.arange(m) < n_ood
        rng, found = np.random.default_rng(args.seed), {}
        for seed in range(n_draws):
            held_out, scores = _drawn(rng, n, m, n_ood, shift, n_shifted)
            for name, selected in selections(held_out, scores, alpha, seed).items():
                found.setdefault(name, []).append(fdp_power(selected, is_ood))
        print(f"-{shift} on {n_shifted}; n={n}, m={m}, {share:.0%}")
        for (name, values), known in zip(found.items(), _parsed(text), strict=True):
            mean, error = _summary(values)
            good = _close(mean, error, known, 0.02)
            if name != "most":
                good = good and mean[0] <= alpha + 3 * error[0]
            print(f"    {name:<10}{mean[0]:.3f}/{mean[1]:.2f} {targets.verdict(good)}")


def rare(args, targets, alpha=0.1):
    """Print the rates for few OOD samples among 100, shifted in two detectors."""
    n_draws = max(args.draws // 3, 30)
    for (n, n_ood), known in RARE.items():
        is_ood = np.arange(100) < n_ood
        rng, found = np.random.default_rng(args.seed), {"most": [], "BestOf ()": []}
        for seed in range(n_draws):
            held_out, scores = _drawn(rng, n, 100, n_ood, 3.5, 2)
            P = conformal_pvalues(scores, held_out).T
            sets = BenjaminiHochberg().selected(P, alpha)
            choice = BestOf(combiners=())
            batch = choice.select(scores, held_out, alpha, random_state=seed)
            most = sets[sets.sum(axis=1).argmax()]
            found["most"].append(fdp_power(most, is_ood).fdp)
            found["BestOf ()"].append(fdp_power(batch.selected, is_ood).fdp)
        for name, values in found.items():
            mean, error = _summary(values)
            good = mean <= alpha + 3 * error
            if name == "most":
                good = _close(mean, error, known, 0.01)
            print(
                f"n={n}, {n_ood} OOD of 100: {name:<10}{mean:.3f} "
                f"{targets.verdict(good)}",
                flush=True,
            )


def variants(args, targets, alpha=0.1):
    """Print the rates under covariate shift, and of streams."""
    n, m = 2000, 200
    n_draws = max(args.draws // 10, 20)
    is_ood = np.arange(m) < 10
    for shift in (0.5, 1.0):
        rng, found = np.random.default_rng(args.seed), {"no weights": [], "shared": []}
        for seed in range(n_draws):
            # the score of ID samples is the covariate itself
            x, z = rng.normal(size=n), rng.normal(-shift, 1, m)
            scores = np.where(is_ood, rng.normal(-4 - shift, 0.5, m), z)
            p = conformal_pvalues(scores, x)
            plain = StepUp().selected(p, n, alpha)
            weights = [np.exp(-shift * one) for one in (x, z)]
            batch = weighted_selection(x, scores, *weights, alpha, random_state=seed)
            found["no weights"].append(fdp_power(plain, is_ood))
            found["shared"].append(fdp_power(batch.selected, is_ood))
        for name, values in found.items():
            mean, error = _summary(values)
            exceeds = mean[0] > alpha + 3 * error[0]
            good = exceeds if name == "no weights" else not exceeds
            print(
                f"shift {shift}, {name:<11}{mean[0]:.3f}/{mean[1]:.2f} "
                f"{targets.verdict(good)}"
            )
    _streams(args, targets, alpha, max(n_draws // 4, 20))


def _streams(args, targets, alpha, n_draws):
    is_ood = np.arange(1000) % 20 == 0
    for n in (2000, 20_000):
        rng = np.random.default_rng(args.seed)
        found = {"LOND": [], "windows": [], "4 splits": []}
        for _ in range(n_draws):
            scores, calibration = rng.normal(size=1000) - 4 * is_ood, rng.normal(size=n)
            p = conformal_pvalues(scores, calibration)
            found["LOND"].append(fdp_power(LOND(alpha).update(p), is_ood))
            parts = [
                fdp_power(StepUp().selected(one, n, alpha), truth)
                for one, truth in zip(
                    p.reshape(5, -1), is_ood.reshape(5, -1), strict=True
                )
            ]
            found["windows"].append(np.mean(parts, axis=0))
            P = [
                conformal_pvalues(scores + rng.normal(size=1000) / 2, one)
                for one in rng.normal(size=(4, n)) * np.sqrt(1.25)
            ]
            found["4 splits"].append(fdp_power(evalue_selection(P, n, alpha), is_ood))
        for name, values in found.items():
            mean, error = _summary(values)
            good = mean[0] <= alpha + 3 * error[0]
            print(
                f"n={n:<6} {name:<9}{mean[0]:.3f}/{mean[1]:.2f} {targets.verdict(good)}"
            )


def speed(args, targets):
    """Print the seconds of large batches."""
    rng = np.random.default_rng(args.seed)
    factor = 10 if args.quick else 1
    scores = rng.normal(size=10**6 // factor)
    calibration = rng.normal(size=10**5 // factor)
    many = rng.normal(size=(2, 10**4 // factor, 10))
    pair = scores[:2000], calibration[:2000]

    def whole():
        p = conformal_pvalues(scores, calibration)
        StepUp().selected(p, len(calibration), 0.1)

    tasks = {
        "p-values and BH, 1e6 with 1e5": (whole, 1.0),
        "BestOf of one detector, 1e6": (
            lambda: BestOf().select(scores[:, None], calibration[:, None]),
            2.0,
        ),
        "BestOf, 10 x 1e4": (lambda: BestOf().select(*many, random_state=0), 1.0),
        "Fusion, 10 x 1e4": (lambda: Fusion().select(*many, random_state=0), 1.0),
        "weighted, 2000": (
            lambda: weighted_selection(
                pair[1], pair[0], np.ones(len(pair[1])), np.ones(len(pair[0]))
            ),
            0.5,
        ),
        "band, n=2000": (
            lambda: ConditionalStepUp(band="local").selected([1.0], 2000),
            2.0,
        ),
        "envelope, n=2000, m=1000": (
            lambda: fdp_bound(np.ones(1000), 2000, 0.1),
            2.0,
        ),
    }
    for name, (task, limit) in tasks.items():
        start = time.process_time()
        task()
        seconds = time.process_time() - start
        print(f"{name:<32}{seconds:.2f} s {targets.verdict(seconds <= limit)}")


def main(argv=None):
    """Print the tables; with ``--strict`` return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=3000)
    parser.add_argument("--quick", action="store_true", help="few draws, small batches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strict", action="store_true", help="a miss is an error")
    args = parser.parse_args(argv)
    if args.quick:
        args.draws = 150
    targets = Targets()
    for part in (speed, rare, several_detectors, variants, one_detector):
        print(f"\n{part.__doc__.splitlines()[0]}")
        part(args, targets)
    print(f"{targets.missed} targets missed")
    return int(args.strict and targets.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
