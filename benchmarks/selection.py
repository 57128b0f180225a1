"""False discovery rate and power of selections of OOD samples, and their time.

::

    python benchmarks/selection.py                  # moderate numbers of draws
    python benchmarks/selection.py --draws 3000     # standard errors below .0075
    python benchmarks/selection.py --quick --only speed one

prints tables of false discovery rate / power, with known numbers and OK or missed:

- ``one``: one detector, by size and OOD fraction of the batch and number of calibration
  samples (100, 500, 2000): Benjamini-Hochberg at three levels and Storey's estimate,
  within three standard errors of both; the quantile estimate, the conditional
  procedure, the test of each sample alone, and bounds on the fraction;
- ``large``: batches of 2,000, with a power within .04 of batches of 1,000;
- ``given``: rates given the calibration samples: the fraction of calibration sets for
  which Benjamini-Hochberg, and the conditional procedure, exceed the level;
- ``several``: ten correlated detectors: the best single one, the one with most
  selections (not valid), `BestOf` without and with combiners, combined statistics;
- ``rare``: the same for few OOD samples, where the most selections exceed the level;
- ``digits``: ten detectors fitted on digits, with three OOD classes;
- ``shift``: covariate shift without weights (not valid), with known and learned ones;
- ``streams``: windows and LOND;
- ``splits``: e-values over 20 splits;
- ``folds``: nearest neighbors on digits, calibrated by a split, by folds and by leaving
  one out (both without a proof), or on the training samples (not valid);
- ``speed``: seconds of large batches.

A method that is valid must also have a rate of at most the level, up to three standard
errors, and one that is not valid must exceed it.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KernelDensity, LocalOutlierFactor, NearestNeighbors

from skood.combine import (
    BenjaminiHochberg,
    DOSStorey,
    Fisher,
    conformal_pvalues,
)
from skood.datasets import load_digits_ood
from skood.detectors import GEN, KNN, MSP, Energy, Mahalanobis, MaxLogit, ViM
from skood.selection import (
    LOND,
    BestOf,
    ClassifierFusion,
    ConditionalStepUp,
    NoveltySelector,
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

# Shift, number of shifted detectors of ten, held-out samples, batch, OOD fraction; FDR
# and power of the columns of `several`.
CASES = {
    (3.5, 1, 2000, 1000, 0.05): ".08/.80 .10/.81 .08/.80 .08/.79 .00/.00 .00/.00",
    (3.5, 2, 500, 100, 0.2): ".07/.93 .11/.94 .06/.92 .07/.82 .06/.50 .01/.00",
    (3.5, 2, 500, 1000, 0.05): ".08/.72 .12/.82 .08/.70 .08/.58 .04/.08 .00/.00",
    (2.5, 10, 500, 100, 0.2): ".09/.61 .16/.79 .08/.52 .07/.94 .07/.96 .08/.98",
    (2.5, 10, 2000, 1000, 0.05): ".08/.33 .18/.51 .08/.31 .10/.87 .09/.86 .10/.93",
}

# Held-out samples and number of OOD samples of 100; the rate of the most selections, of
# `BestOf` without pruning, and with the shared one.
RARE = {
    (500, 0): ".25 .084 .096",
    (2000, 1): ".45 .078 .088",
    (2000, 5): ".15 .099 .099",
}

# The digits, without a target for the power: the ten detectors of it are not known.
DIGITS = {
    "mean single": ".05/.11",
    "best single": ".07/.26",
    "DSDE q": ".07/.26",
    "Fisher q": ".07/.29",
    "BestOf ()": ".08/.27",
    "BestOf": ".07/.29",
    "most": ".11/.36",
    "p <= alpha": ".31/.87",
}


def _parsed(text):
    return [tuple(map(float, one.split("/"))) for one in text.split()]


class Table:
    """Collects FDP and power of methods, and prints means with verdicts."""

    def __init__(self, targets):
        self.targets, self.found = targets, {}

    def add(self, name, selected, is_ood):
        """Add the selection of a method, of shape (n_samples,)."""
        self.found.setdefault(name, []).append(fdp_power(selected, is_ood))

    def show(self, name, *, known=None, known_error=0.0, level=None, exceeds=None):
        """Print one method.

        `known` is text, such as ".05/.11"; without `known_error` it is printed only.
        The rate must be at most `level`, and larger than `exceeds`.
        """
        values = np.array(self.found[name], dtype=float)
        mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))
        text, checked = f"{name:<18}{mean[0]:.3f}/{mean[1]:.2f}", []
        if known is not None:
            text += f"  ({known})"
        if known_error:
            target = np.array(_parsed(known)[0])
            spread = 3 * np.hypot(error, known_error) + 0.005  # known ones are rounded
            gap = np.abs(mean[: len(target)] - target)
            checked.append(bool((gap <= spread[: len(target)]).all()))
        if level is not None:
            checked.append(mean[0] <= level + 3 * error[0])
        if exceeds is not None:
            checked.append(mean[0] > exceeds)
        verdict = "" if not checked else self.targets.verdict(all(checked))
        print(f"    {text:<46}{verdict}", flush=True)


class Targets:
    """Prints verdicts and counts the missed targets."""

    def __init__(self):
        self.missed = self.met = 0

    def verdict(self, good):
        """Return OK or missed."""
        self.missed += not good
        self.met += bool(good)
        return "OK" if good else "missed"


def one(args, targets):
    """Print one normal score, with OOD samples shifted by 3."""
    procedures = {"BH": StepUp(), "Storey": StepUp("storey")}
    for (m, fraction), text in KNOWN.items():
        is_ood, known = np.arange(m) < round(fraction * m), text.split()
        for i, n in enumerate(SIZES):
            rng, table = np.random.default_rng(args.seed), Table(targets)
            bounds = {"local": [], "simes": []}
            for _ in range(args.draws):
                p = conformal_pvalues(
                    rng.normal(size=m) - 3 * is_ood, rng.normal(size=n)
                )
                for name, alpha in COLUMNS:
                    selected = procedures[name].selected(p, n, alpha)
                    table.add(f"{name} {alpha}", selected, is_ood)
                table.add("quantile 0.1", StepUp("quantile").selected(p, n), is_ood)
                table.add("p <= 0.1", p <= 0.1, is_ood)
                if (m, fraction) == (1000, 0.2):
                    table.add("simes 0.1", ConditionalStepUp().selected(p, n), is_ood)
                    k = np.count_nonzero(StepUp().selected(p, n))
                    for method, values in bounds.items():
                        if k:
                            values.append(fdp_bound(p, n, 0.1, method)[k - 1])
            print(f"m={m}, {fraction:.0%} OOD, n={n}")
            for j, (name, alpha) in enumerate(COLUMNS):
                cell = {"known": known[3 * j + i], "known_error": 0.0075}
                table.show(f"{name} {alpha}", **cell, level=alpha)
            table.show("quantile 0.1", known=known[9 + i], level=0.1)
            # at most the fraction of ID samples: no batch has none of these
            alone = {0.01: ".9", 0.05: ".65", 0.2: ".29"}[fraction]
            table.show("p <= 0.1", known=alone, known_error=0.02, exceeds=0.1)
            if (m, fraction) == (1000, 0.2):
                power = {100: ".00", 500: ".51", 2000: ".75"}[n]
                table.show("simes 0.1", known=f"-/{power}", level=0.1)
                print("    bound on the fraction of ID samples at delta = 0.1, BH 0.1:")
                for method, known_bounds in (
                    ("local", (0.33, 0.20, 0.17)),
                    ("simes", (0.70, 0.47, 0.44)),
                ):
                    mean = np.mean(bounds[method])
                    good = targets.verdict(abs(mean - known_bounds[i]) <= 0.02)
                    print(f"    {method} {mean:.2f} ({known_bounds[i]:.2f}) {good}")


def large(args, targets):
    """Print batches of 2,000 samples next to batches of 1,000."""
    for fraction in (0.01, 0.05, 0.2):
        text = KNOWN[1000, fraction].split()
        for i, n in enumerate(SIZES):
            rng, table = np.random.default_rng(args.seed), Table(targets)
            is_ood = np.arange(2000) < round(fraction * 2000)
            for _ in range(args.draws):
                p = conformal_pvalues(
                    rng.normal(size=2000) - 3 * is_ood, rng.normal(size=n)
                )
                table.add("BH 0.1", StepUp().selected(p, n, 0.1), is_ood)
            print(f"m=2000, {fraction:.0%} OOD, n={n}")
            table.show("BH 0.1", known=text[3 + i], level=0.1)
            values = np.array(table.found["BH 0.1"])[:, 1]
            error = 3 * values.std() / np.sqrt(len(values))
            gap = abs(values.mean() - _parsed(text[3 + i])[0][1])
            print(f"    power within .04 {targets.verdict(gap <= 0.045 + error)}")


def given(args, targets):
    """Print how often the rate given the calibration samples exceeds the level."""
    is_ood = np.arange(500) < 50
    for n in (500, 2000):
        rng = np.random.default_rng(args.seed)
        rates: dict = {"BH": [], "simes": []}
        for _ in range(max(args.draws // 4, 10)):
            calibration, found = rng.normal(size=n), {"BH": [], "simes": []}
            for _ in range(200):
                scores = rng.normal(size=500) - 3 * is_ood
                p = conformal_pvalues(scores, calibration)
                for name, procedure in (
                    ("BH", StepUp()),
                    ("simes", ConditionalStepUp()),
                ):
                    selected = procedure.selected(p, n, 0.1)
                    found[name].append(fdp_power(selected, is_ood)[0])
            for name, fdp in found.items():
                rates[name].append(np.mean(fdp))
        for name, known in (("BH", "a quarter"), ("simes", "0 to .01")):
            fraction = np.mean(np.array(rates[name]) > 0.1)
            error = 3 * np.sqrt(0.1 * 0.9 / len(rates[name]))
            good = fraction > 0.1 if name == "BH" else fraction <= 0.1 + error
            print(
                f"    n={n} {name}: above .1 on {fraction:.2f} of calibration sets "
                f"({known}), at most {max(rates[name]):.2f} {targets.verdict(good)}"
            )


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


def _choices(held_out, scores, alpha, seed):
    """Return the selections of single detectors, (n_detectors, m), and of methods."""
    sets = BenjaminiHochberg().selected(conformal_pvalues(scores, held_out).T, alpha)
    pair = scores, held_out, alpha
    return sets, {
        "most": sets[sets.sum(axis=1).argmax()],
        "BestOf ()": BestOf(combiners=()).select(*pair, random_state=seed).selected,
        "BestOf": BestOf().select(*pair, random_state=seed).selected,
        "DSDE q": _combined(DOSStorey(), held_out, scores, alpha),
        "Fisher q": _combined(Fisher(), held_out, scores, alpha),
    }


def several(args, targets, alpha=0.1):
    """Print ten detectors."""
    for (shift, n_shifted, n, m, fraction), text in CASES.items():
        is_ood = np.arange(m) < round(fraction * m)
        rng, table = np.random.default_rng(args.seed), Table(targets)
        for seed in range(max(args.draws // 4, 10)):
            pair = _drawn(rng, n, m, is_ood.sum(), shift, n_shifted)
            sets, methods = _choices(*pair, alpha, seed)
            for name, selected in {"oracle": sets[0], **methods}.items():
                table.add(name, selected, is_ood)
        print(f"-{shift} on {n_shifted}; n={n}, m={m}, {fraction:.0%}")
        for name, cell in zip(table.found, text.split(), strict=True):
            level = None if name == "most" else alpha
            table.show(name, known=cell, known_error=0.02, level=level)


def rare(args, targets, alpha=0.1):
    """Print few OOD samples among 100, shifted in two of ten detectors."""
    for (n, n_ood), text in RARE.items():
        is_ood, known = np.arange(100) < n_ood, text.split()
        rng, table = np.random.default_rng(args.seed), Table(targets)
        for seed in range(max(args.draws // 2, 30)):
            held_out, scores = _drawn(rng, n, 100, n_ood, 3.5, 2)
            P = conformal_pvalues(scores, held_out).T
            sets = BenjaminiHochberg().selected(P, alpha)
            table.add("most", sets[sets.sum(axis=1).argmax()], is_ood)
            for pruning in ("none", "shared"):
                choice = BestOf(combiners=(), pruning=pruning)
                batch = choice.select(scores, held_out, alpha, random_state=seed)
                table.add(pruning, batch.selected, is_ood)
        print(f"n={n}, {n_ood} OOD of 100")
        table.show("most", known=known[0], known_error=0.014, exceeds=alpha)
        for pruning, cell in zip(("none", "shared"), known[1:], strict=True):
            table.show(pruning, known=cell, known_error=0.01, level=alpha)


def _digits(rng, n_fit, n_held_out, n_ood, n_id):
    """Return training, held-out and test samples of digits, 7 to 9 being OOD."""
    X, y = load_digits_ood(left_out=[7, 8, 9], ood_label=-1, return_X_y=True)
    known = rng.permutation(np.flatnonzero(y != -1))
    new = rng.choice(np.flatnonzero(y == -1), n_ood, replace=False)
    fit, held_out, rest = np.split(known, [n_fit, n_fit + n_held_out])
    return X, y, fit, held_out, np.append(new, rest[:n_id])


def digits(args, targets, alpha=0.1):
    """Print ten detectors fitted on 350 digits, 500 held out; 7, 8 and 9 are OOD."""
    for m, n_ood in ((300, 60), (100, 5)):
        rng, table = np.random.default_rng(args.seed), Table(targets)
        is_ood, singles = np.arange(m) < n_ood, []
        for seed in range(max(args.draws // 10, 5)):
            X, y, fit, held_out, test = _digits(rng, 350, 500, n_ood, m - n_ood)
            network = LogisticRegression(C=0.01, max_iter=300).fit(X[fit], y[fit])
            fitted = [
                *(kind(network) for kind in (GEN, MSP, MaxLogit, Energy, ViM)),
                *(
                    Mahalanobis(covariance=LedoitWolf()),
                    KNN(n_neighbors=5, normalize=False),
                ),
                *(KernelDensity(bandwidth=8), LocalOutlierFactor(novelty=True)),
                IsolationForest(n_estimators=50, random_state=seed),
            ]
            pair = [
                np.stack([d.fit(X[fit], y[fit]).score_samples(X[of]) for d in fitted])
                for of in (held_out, test)
            ]
            sets, methods = _choices(pair[0].T, pair[1].T, alpha, seed)
            singles.append([fdp_power(chosen, is_ood) for chosen in sets])
            alone = conformal_pvalues(pair[1][0], pair[0][0]) <= alpha
            for name, selected in {**methods, "p <= alpha": alone}.items():
                table.add(name, selected, is_ood)
        singles = np.array(singles)
        best = singles[..., 1].mean(axis=0).argmax()
        table.found["mean single"] = singles.mean(axis=1)
        table.found["best single"] = singles[:, best]
        print(f"n=500, m={m}, {n_ood} OOD; best single: {type(fitted[best]).__name__}")
        for name, known in DIGITS.items():
            rate = {"exceeds": alpha} if name == "p <= alpha" else {"level": alpha}
            if name == "most":  # exceeds the level if few are OOD
                rate = {} if n_ood == 60 else {"exceeds": alpha}
                known = known if n_ood == 60 else ".22"
            table.show(
                name, known=known if n_ood == 60 or name == "most" else None, **rate
            )


SHIFTS = {
    0.5: (".29", ".08/.79", ".07/.65"),
    1.0: (".64", ".03/.67", ".00/.18"),
}


def shift(args, targets, alpha=0.1):
    """Print a shift of a covariate that the score reads, n=2000, m=200, 5 % OOD."""
    n, m = 2000, 200
    is_ood = np.arange(m) < 10
    for by, cells in SHIFTS.items():
        rng, table = np.random.default_rng(args.seed), Table(targets)
        for seed in range(max(args.draws // 4, 20)):
            x, z = rng.normal(size=n), rng.normal(-by, 1, m)
            calibration = x + rng.normal(size=n) / 2
            scores = z + rng.normal(size=m) / 2 - 4 * is_ood
            p = conformal_pvalues(scores, calibration)
            table.add("no weights", StepUp().selected(p, n, alpha), is_ood)
            both = np.append(rng.normal(size=n), rng.normal(-by, 1, n))  # unlabeled
            model = LogisticRegression().fit(both[:, None], np.repeat([0, 1], n))
            odds = [np.exp(model.decision_function(of[:, None])) for of in (x, z)]
            exact = [np.exp(-by * of) for of in (x, z)]
            for name, weights in (("", exact), ("learned, ", odds)):
                for pruning in ("shared", "none"):
                    batch = weighted_selection(
                        *(calibration, scores, *weights, alpha),
                        pruning=pruning,
                        random_state=seed,
                    )
                    table.add(name + pruning, batch.selected, is_ood)
        print(f"shift {by}")
        table.show("no weights", known=cells[0], exceeds=alpha)
        for name in ("", "learned, "):
            for pruning, cell in zip(("shared", "none"), cells[1:], strict=True):
                table.show(name + pruning, known=cell, level=alpha)


def streams(args, targets, alpha=0.1):
    """Print 1000 samples of a stream, one by one, and in five windows."""
    n_draws = max(args.draws // 2, 20)
    for n, fraction, cells in (
        (2000, 0.05, (".02", ".93")),
        (20_000, 0.05, (".68", ".92")),
        (2000, 0.0, ("-", "-")),
    ):
        is_ood = np.arange(1000) % 20 < 20 * fraction
        rng, table, windows = np.random.default_rng(args.seed), Table(targets), []
        for _ in range(n_draws):
            scores, calibration = rng.normal(size=1000) - 4 * is_ood, rng.normal(size=n)
            p = conformal_pvalues(scores, calibration)
            table.add("LOND", LOND(alpha).update(p), is_ood)
            parts = [StepUp().selected(part, n, alpha) for part in np.split(p, 5)]
            truths = np.split(is_ood, 5)
            windows.append(
                np.mean(
                    [fdp_power(*pair) for pair in zip(parts, truths, strict=True)],
                    axis=0,
                )
            )
            table.add("union of windows", np.concatenate(parts), is_ood)
        table.found["windows"] = windows
        print(f"n={n}, {fraction:.0%} OOD")
        for name, cell in zip(("LOND", "windows"), cells, strict=True):
            table.show(name, known=f"-/{cell}", level=alpha)
        if fraction == 0:
            table.show("union of windows", known=".32", known_error=0.03, exceeds=alpha)


def splits(args, targets, alpha=0.1):
    """Print e-values over 20 splits of 1000 ID samples, with noise of a half."""
    is_ood = np.arange(200) < 40
    for by, cells in ((3, (".68", ".52")), (4, (".93", ".91"))):
        rng, table, agreed = np.random.default_rng(args.seed), Table(targets), []
        for _ in range(max(args.draws // 16, 10)):
            known, scores = rng.normal(size=1000), rng.normal(size=200) - by * is_ood
            runs = []
            for _ in range(2):
                P = []
                for _ in range(20):
                    part = known[rng.permutation(1000)[:500]] + rng.normal(size=500) / 2
                    P.append(conformal_pvalues(scores + rng.normal(size=200) / 2, part))
                first = StepUp().selected(P[0], 500, alpha)
                runs.append([first, evalue_selection(P, 500, alpha)])
            table.add("one split", runs[0][0], is_ood)
            table.add("20 splits", runs[0][1], is_ood)
            agreed.append(
                [np.mean(a == b) for a, b in zip(runs[0], runs[1], strict=True)]
            )
        print(f"n=500, m=200, 20 % OOD, shift {by}")
        for name, cell in zip(table.found, cells, strict=True):
            table.show(name, known=f"-/{cell}", level=alpha)
        one_split, over = np.mean(agreed, axis=0)
        good = targets.verdict(over > one_split)
        print(f"    two runs agree: {one_split:.1%}, over splits {over:.1%} {good}")


def folds(args, targets, alpha=0.1):
    """Print 5 nearest neighbors on digits, 800 ID samples, m=300, 20 % OOD."""
    rng, table = np.random.default_rng(args.seed), Table(targets)
    is_ood, knn = np.arange(300) < 60, KNN(n_neighbors=5, normalize=False)
    for seed in range(max(args.draws // 10, 5)):
        X, _, known, _, test = _digits(rng, 800, 0, 60, 240)
        for name, options in (
            ("split", {}),
            ("5 folds", {"calibration": 5}),
            ("20 splits", {"n_splits": 20}),
        ):
            selector = NoveltySelector(knn, random_state=seed, alpha=alpha, **options)
            batch = selector.fit(X[known]).select(X[test])
            table.add(name, batch.selected, is_ood)
        near = NearestNeighbors(n_neighbors=5).fit(X[known])
        scores = -near.kneighbors(X[test])[0][:, -1]
        both = NearestNeighbors(n_neighbors=5).fit(X[np.append(known, test)])
        union = -both.kneighbors()[0][:, -1]
        nearest = -near.kneighbors(X[test], 1)[0][:, 0]
        for name, of, held_out in (
            ("leave one out", scores, -near.kneighbors()[0][:, -1]),
            ("in-sample, nearest", nearest, np.zeros(800)),  # to itself
            ("with the batch", union[800:], union[:800]),
        ):
            p = conformal_pvalues(of, held_out)
            table.add(name, StepUp().selected(p, 800, alpha), is_ood)
    table.show("split", known=".05/.22", level=alpha)
    table.show("5 folds", known=".05/.38, no proof")
    table.show("leave one out", known=".06/.54, no proof")
    table.show("20 splits", known="-/.01", level=alpha)
    table.show("with the batch", known=".04/.09", level=alpha)
    table.show("in-sample, nearest", known=".80", exceeds=alpha)


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

    def with_fits():
        members = [(f"n{k}", KNN(n_neighbors=k, normalize=False)) for k in range(1, 11)]
        selector = NoveltySelector(members, choice=ClassifierFusion(), random_state=0)
        selector.fit(np.concatenate(many)).select(many[1])

    tasks = {
        "p-values and BH, 1e6 with 1e5": (whole, 1.0),
        "BestOf of one detector, 1e6": (
            lambda: BestOf().select(scores[:, None], calibration[:, None]),
            1.0,
        ),
        "BestOf, 10 x 1e4": (lambda: BestOf().select(*many, random_state=0), 1.0),
        "ClassifierFusion, 10 x 1e4": (
            lambda: ClassifierFusion().select(*many, random_state=0),
            1.0,
        ),
        "ClassifierFusion, 10 x 1e4 with fits": (with_fits, 30.0),
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


PARTS = (
    *(one, large, given, several, rare, digits),
    *(shift, streams, splits, folds, speed),
)


def main(argv=None):
    """Print the tables; with ``--strict`` return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400, help="3000: known errors")
    parser.add_argument("--quick", action="store_true", help="few draws, small batches")
    parser.add_argument("--only", nargs="+", choices=[part.__name__ for part in PARTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strict", action="store_true", help="a miss is an error")
    args = parser.parse_args(argv)
    if args.quick:
        args.draws = 60
    targets = Targets()
    for part in PARTS:
        if args.only is None or part.__name__ in args.only:
            print(f"\n{part.__name__}: {part.__doc__.splitlines()[0].split(' ', 1)[1]}")
            part(args, targets)
    print(f"{targets.met} targets met, {targets.missed} missed")
    return int(args.strict and targets.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
