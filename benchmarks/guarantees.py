"""How often acceptance rules break their bounds on new data.

Many samples of ``make_reject_option_1d`` are drawn, with the true risk and the true
likelihood ratio as scores. On each of them a rule is chosen, and its rates on new
data are calculated from the densities, so that nothing but the choice is random::

    python benchmarks/guarantees.py
    python benchmarks/guarantees.py --repetitions 1000 --sizes 400 1000 --seed 1

Printed is, for each way to choose, the fraction of samples for which it returns a rule,
the fraction for which that rule breaks a bound, and its mean rates on new data. The
script fails if a guaranteed rule breaks its bounds more often than `delta` and chance
(one in 1000) allow, or if the mean rates of those that keep their bounds on average
are outside of them by more than 3.3 standard errors.

Then classifiers are fitted to samples of many Gaussian classes (`--mixtures`
SAMPLES/CLASSES), few samples of each, and hold samples out for a guaranteed coverage::

    python benchmarks/guarantees.py --sizes --mixtures 1000/100 300/60 500/100

Printed is the fraction of repetitions in which the coverage of 20,000 new samples is
below the bound, and its mean. "missed" is a fraction above `delta` + 2 standard errors,
or for "expectation" a mean below the bound by more than 2 standard errors.

Last, detectors with a scatter are fitted to few samples (`--scatters`, the number of
samples by that of features)::

    python benchmarks/guarantees.py --sizes --mixtures --scatters 0.5 1 1.5 2 5

Printed is the mean fraction of new ID samples that the default threshold rejects, over
25 training sets. "missed" is a mean that differs from the fraction at the threshold's
rank by more than 3 standard errors: with n exchangeable scores and `contamination` c it
is between k / (n + 1) and (k + 1) / (n + 1), with k = floor(c n).
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import math
import sys
import time
import warnings
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from scipy.integrate import cumulative_trapezoid
from scipy.stats import binom
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.datasets import make_reject_option_1d
from skood.decision._operating_point import project, standardize
from skood.detectors import (
    GMM,
    KNN,
    NECO,
    PNML,
    SSD,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.exceptions import NotCertifiableError, SkoodWarning
from skood.nn import LinearHead
from skood.rejection import (
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    RejectOptionClassifier,
    ScoredSamples,
    certify,
    solve,
)

TPR_MIN, FPR_MAX = 0.7, 0.2
RULE = BoundedTPRFPR(TPR_MIN, FPR_MAX)
PRECISION = BoundedPrecisionRecall(0.9, TPR_MIN, ood_prior=0.25)
DELTA = 0.1
CHANCE = 1e-3
# the rates of this fraction of samples are known well enough to evaluate their mean
MOST = 0.99

COVERAGE = 0.6
GUARANTEES = "high_probability", "ltt", "expectation"


class Truth:
    """Rates of operating points from the densities, by intervals on the real line."""

    def __init__(self):
        x = np.arange(-8.0, 11.0, 5e-4)
        model = make_reject_option_1d(1, random_state=0).model
        self.scores = model.risk(x), model.likelihood_ratio(x)
        density_id = model.density_id(x)
        densities = density_id, model.density_ood(x), density_id * self.scores[0]
        self.below = [cumulative_trapezoid(d, x, initial=0.0) for d in densities]

    def rates(self, point):
        """Return TPR, FPR and selective risk on new data."""
        scaled = standardize(*(s.copy() for s in self.scores), point.scales)
        excess = project(point.theta, *scaled) - point.lam
        inside = excess <= 0
        # ends of the accepted intervals, as fractional positions on the grid
        before = np.flatnonzero(inside[1:] != inside[:-1])
        with np.errstate(invalid="ignore"):
            step = excess[before] / (excess[before] - excess[before + 1])
        ends = before + np.nan_to_num(step)
        sign = np.where(inside[before], 1.0, -1.0)
        positions = np.arange(inside.size)
        id_, ood, errors = (
            float(sign @ np.interp(ends, positions, below) + below[-1] * inside[-1])
            for below in self.below
        )
        return id_, ood, errors / id_ if id_ else math.nan


METHODS = {
    "plug-in": lambda *a, seed: solve(RULE, ScoredSamples.from_arrays(*a)),
    "high_probability": lambda *a, seed: certify(
        RULE, ScoredSamples.from_arrays(*a), random_state=seed
    ),
    "ltt": lambda *a, seed: certify(
        RULE, ScoredSamples.from_arrays(*a), Certificate("ltt"), random_state=seed
    ),
    "precision": lambda *a, seed: certify(
        PRECISION, ScoredSamples.from_arrays(*a), random_state=seed
    ),
    "expectation": lambda *a, seed: certify(
        RULE,
        ScoredSamples.from_arrays(*a),
        Certificate("expectation"),
        random_state=seed,
    ),
}


def repetition(truth, n, seed):
    """Draw one sample; return the rates of each method, None if it found no rule."""
    state = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
    sample = make_reject_option_1d((n, n), random_state=state)
    ood = sample.is_ood
    answer = sample.target_names[sample.posteriors.argmax(axis=1)]
    arrays = (
        sample.risk[~ood],
        sample.likelihood_ratio[~ood],
        (answer != sample.target)[~ood].astype(float),
        sample.risk[ood],
        sample.likelihood_ratio[ood],
    )
    rates = {}
    for name, choose in METHODS.items():
        try:
            rates[name] = truth.rates(choose(*arrays, seed=state))
        except ValueError as error:  # infeasible or not certifiable
            if name != "plug-in" and not isinstance(error, NotCertifiableError):
                raise
            rates[name] = None
    return rates


def broken(name, tpr, fpr):
    """Tell for which rates a bound is broken."""
    if name == "precision":
        prior = PRECISION.ood_prior
        right, wrong = (1 - prior) * tpr, prior * fpr
        return (tpr < TPR_MIN) | (right < PRECISION.precision_min * (right + wrong))
    return (tpr < TPR_MIN) | (fpr > FPR_MAX)


def verdict(name, violations, repetitions, rates):
    """Return what is promised in words, and whether it is kept (None: no promise)."""
    if name == "plug-in":
        return "no promise", None
    if name != "expectation":
        limit = binom.isf(CHANCE, repetitions, DELTA) / repetitions
        return f"<= {DELTA:g} + noise = {limit:.3f}", violations <= limit * repetitions
    if len(rates) < MOST * repetitions:
        return "no promise when few are certified", None
    mean, error = rates.mean(axis=0), rates.std(axis=0) / math.sqrt(len(rates))
    text = f"means within +- {3.3 * error[0]:.4f}, {3.3 * error[1]:.4f}"
    kept = mean[0] >= TPR_MIN - 3.3 * error[0] and mean[1] <= FPR_MAX + 3.3 * error[1]
    return text, kept


def draw_mixture(rng, n_samples, n_classes):
    """Draw samples of Gaussian classes, whose means are always the same."""
    means = 2 * np.random.default_rng(1).normal(size=(n_classes, 4))
    y = rng.integers(0, n_classes, n_samples)
    return means[y] + 0.15 * rng.normal(size=(n_samples, 4)), y


def mixture_repetition(n_samples, n_classes, seed, n_new=20_000):
    """Return the coverage of new samples by number of scores and guarantee."""
    rng = np.random.default_rng(seed)
    X, y = draw_mixture(rng, n_samples, n_classes)
    X_new, _ = draw_mixture(rng, n_new, n_classes)
    detector = make_pipeline(FunctionTransformer(), KNN(n_neighbors=7, normalize=False))
    # the same samples are held out for all, so that new samples are scored once
    scores, coverage = {}, {}
    for n_scores, guarantee in product((1, 2), GUARANTEES):
        clf = RejectOptionClassifier(
            KNeighborsClassifier(7),
            detector if n_scores == 1 else None,
            detector if n_scores == 2 else None,
            rule=BoundedAbstention(COVERAGE),
            guarantee=guarantee and Certificate(guarantee, delta=DELTA),
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)  # classes without samples
            clf.fit(X, y)
        if n_scores not in scores:
            scores[n_scores] = clf._parts().score(X_new)
        covered = clf.operating_point_.accept(*scores[n_scores]).mean()
        coverage[f"{guarantee}, {n_scores} score{'s'[: n_scores - 1]}"] = covered
    return coverage


def mixture_table(settings, repetitions, n_jobs):
    """Print how often the coverage is missed; return whether a promise is broken."""
    limit = DELTA + 2 * math.sqrt(DELTA * (1 - DELTA) / repetitions)
    print(
        f"\nCoverage >= {COVERAGE:g} in classes with few samples; delta = {DELTA:g}, "
        f"{repetitions} repetitions\n{'samples/classes':<17}{'guarantee':<27}"
        f"{'broken':>8}{'mean':>8}{'s.e.':>8}"
    )
    failed = False
    for setting in settings:
        n_samples, n_classes = map(int, setting.split("/"))
        runs = Parallel(n_jobs=n_jobs)(
            delayed(mixture_repetition)(n_samples, n_classes, seed)
            for seed in range(repetitions)
        )
        for guarantee in runs[0]:
            coverage = np.array([run[guarantee] for run in runs])
            broken = np.mean(coverage < COVERAGE)
            mean, error = coverage.mean(), coverage.std() / math.sqrt(repetitions)
            if guarantee.startswith("expectation"):
                kept, text = mean >= COVERAGE - 2 * error, f"mean >= {COVERAGE:g}"
            else:
                kept, text = broken <= limit, f"broken <= {limit:.3f}"
            print(
                f"{setting:<17}{guarantee:<27}{broken:>8.3f}{mean:>8.4f}{error:>8.4f}"
                f"  {text}  {'OK' if kept else 'missed'}",
                flush=True,
            )
            failed |= not kept
    return failed


def scatter_detectors(means):
    """Return detectors with a scatter; heads have the class means as weights."""
    coef = means / np.mean(means**2) / math.sqrt(means.shape[1])
    head = FrozenEstimator(LinearHead(coef, np.full(len(means), 4.0)))
    return [
        Mahalanobis(),
        Mahalanobis(tied=False),
        RelativeMahalanobis(),
        SSD(),
        GMM(),
        GMM(covariance_type="tied"),
        GMM(n_components=2, random_state=0),
        PNML(head),
        Residual(head),
        ViM(head),
        NECO(head),
        NECO(max_logit=False),
    ]


def scatter_samples(rng, n_samples, n_features, kind):
    """Draw samples of three Gaussian classes, or one; return the class means as well.

    Features are "white", have standard deviations 1 / j in rotated directions
    ("decay"), or correlations of 1/2 ("factor").
    """
    fixed = np.random.default_rng(1)
    means = 1.5 * fixed.normal(size=(3, n_features))
    rotation = np.linalg.qr(fixed.normal(size=(n_features, n_features)))[0]
    roots = {
        "white": np.eye(n_features),
        "decay": (rotation / np.arange(1, n_features + 1)) @ rotation.T,
        "factor": np.linalg.cholesky((np.eye(n_features) + 1) / 2),
    }
    y = rng.permutation(np.arange(n_samples) % 3)
    X = (means[y] + rng.normal(size=(n_samples, n_features))) @ roots[kind].T
    return X, y, means @ roots[kind].T


def rejected_fraction(detector, n_samples, n_features, kind, seed, n_new=2000):
    """Return the fraction of new ID samples that a detector of few samples rejects."""
    rng = np.random.default_rng((seed, n_samples))
    X, y, _ = scatter_samples(rng, n_samples, n_features, kind)
    new, _, _ = scatter_samples(rng, n_new, n_features, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)  # of few samples
        return np.mean(clone(detector).fit(X, y).predict(new) == -1)


def scatter_table(ratios, n_features, n_jobs, repetitions=25):
    """Print the rejected fractions of ID samples; return whether one is missed."""
    failed = False
    for kind in ("white", "decay", "factor"):
        sizes = [round(ratio * n_features) for ratio in ratios]
        print(
            f"\nNew ID samples rejected at contamination = 0.05, {kind} features, d = "
            f"{n_features}, {repetitions} training sets\n{'n / d':<56}"
            + "".join(f"{ratio:>22g}" for ratio in ratios)
        )
        _, _, means = scatter_samples(np.random.default_rng(0), 3, n_features, kind)
        for detector in scatter_detectors(means):
            cells = []
            for n in sizes:
                fractions = Parallel(n_jobs=n_jobs)(
                    delayed(rejected_fraction)(detector, n, n_features, kind, seed)
                    for seed in range(repetitions)
                )
                mean, error = np.mean(fractions), np.std(fractions) / repetitions**0.5
                rank = math.floor(0.05 * n)
                low, high = rank / (n + 1), (rank + 1) / (n + 1)
                kept = low - 3 * error <= mean <= high + 3 * error
                failed |= not kept
                cells.append(f"{mean:.3f} +- {error:.3f} {'OK' if kept else 'missed'}")
            name = str(detector).replace("estimator=", "").split("FrozenEst")[0]
            print(f"{name[:56]:<56}" + "".join(f"{c:>22}" for c in cells), flush=True)
    return failed


def main(argv=None):
    """Print a table for each size; return 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[400, 1000, 4000, 20000]
    )
    parser.add_argument(
        "--mixtures", nargs="*", default=["1000/100", "300/60", "500/100"]
    )
    parser.add_argument(
        "--scatters", type=float, nargs="*", default=[0.5, 1, 1.5, 2, 5]
    )
    parser.add_argument("--features", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=2)
    arguments = parser.parse_args(argv)
    repetitions, failed, truth = arguments.repetitions, False, Truth()
    if arguments.sizes:
        print(
            f"TPR >= {TPR_MIN:g} and FPR <= {FPR_MAX:g}; precision: >= "
            f"{PRECISION.precision_min:g} at the prior {PRECISION.ood_prior:g} and TPR "
            f">= {TPR_MIN:g}; delta = {DELTA:g}, {repetitions} samples"
        )
    for n in arguments.sizes:
        start = time.perf_counter()
        runs = Parallel(n_jobs=arguments.n_jobs)(
            delayed(repetition)(truth, n, (arguments.seed, n, i))
            for i in range(repetitions)
        )
        print(
            f"\n{n} ID and {n} OOD rows ({time.perf_counter() - start:.0f} s)\n"
            f"{'':<18}{'certified':>10}{'violated':>10}{'TPR':>8}{'FPR':>8}{'risk':>8}"
        )
        for name in METHODS:
            found = [run[name] for run in runs if run[name] is not None]
            rates = np.array(found).reshape(-1, 3)
            violations = int(broken(name, *rates[:, :2].T).sum())
            promise, kept = verdict(name, violations, repetitions, rates)
            mean = rates.mean(axis=0) if found else np.full(3, np.nan)
            status = {None: "", True: "  OK", False: "  EXCEEDED"}[kept]
            print(
                f"{name:<18}{len(found) / repetitions:>10.3f}"
                f"{violations / repetitions:>10.3f}"
                + "".join(f"{m:>8.4f}" for m in mean)
                + f"  {promise}{status}",
                flush=True,
            )
            failed |= kept is False
    if arguments.mixtures:
        failed |= mixture_table(arguments.mixtures, repetitions, arguments.n_jobs)
    if arguments.scatters:
        failed |= scatter_table(
            arguments.scatters, arguments.features, arguments.n_jobs
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
