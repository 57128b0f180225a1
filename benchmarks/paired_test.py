"""How often paired tests of two detectors reject: their level and their power.

Pairs of detectors are simulated whose scores are normal given the kind of a row, with a
correlation of one half between the detectors, and the scores of the second are then put
on an exponential scale. What is tested is the AUROC, at the level 0.1:

- *equal*: both detectors are alike, so that a test should reject 0.1 of the pairs;
- *different*: the first is better, so that a test should reject many;
- *shape*: the AUROCs are equal but the ROC curves are not (the ID scores of the second
  have a larger spread), on few and on more rows.

Run ``python benchmarks/paired_test.py``; it took ten minutes on one of two busy cores.
With ``--pairs 50`` it is a quick look.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import time

import numpy as np
from scipy.stats import norm

from skood.metrics import Resampling, auroc, paired_test

LEVEL = 0.1
TESTS = {
    "permutation of ranks": ("permutation", {}),
    "permutation of raw scores": ("permutation", {"rank": False}),
    "bootstrap": ("bootstrap", {}),
}
# name: rows of either kind, mean of the ID scores of both detectors, spread of those of
# the second; OOD scores are standard normal
SETTINGS = {
    "equal": (40, (1.0, 1.0), 1.0),
    "different": (40, (1.3, 0.7), 1.0),
    "shape": (40, (1.0, np.sqrt(5.0)), 3.0),
    "shape, more rows": (200, (1.0, np.sqrt(5.0)), 3.0),
}


def draw(rng, n_rows, means, spread):
    """Return labels and the scores of both detectors."""
    y_true = np.repeat([1, -1], n_rows)
    common, first, second = rng.normal(size=(3, 2 * n_rows))
    is_id = y_true == 1
    a = (common + first) / np.sqrt(2) + means[0] * is_id
    b = (common + second) / np.sqrt(2) * np.where(is_id, spread, 1) + means[1] * is_id
    return y_true, a, np.exp(b)


def rejected(n_pairs, n_resamples, seed, *setting):
    """Return the fraction of pairs that each test rejects, by its name."""
    count = dict.fromkeys(TESTS, 0)
    for pair in range(n_pairs):
        y_true, a, b = draw(np.random.default_rng([seed, pair]), *setting)
        for name, (method, params) in TESTS.items():
            result = paired_test(
                auroc,
                y_true,
                a,
                b,
                resampling=Resampling(n_resamples, method),
                random_state=pair,
                **params,
            )
            count[name] += result.pvalue <= LEVEL
    return {name: hits / n_pairs for name, hits in count.items()}


def main():
    """Print a line per setting and test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=300, help="simulated pairs")
    parser.add_argument("--resamples", type=int, default=79, help="of every test")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    for name, setting in SETTINGS.items():
        n_rows, means, spread = setting
        first, second = norm.cdf(
            [means[0] / np.sqrt(2), means[1] / np.hypot(1.0, spread)]
        )
        print(
            f"{name}: {n_rows} ID and {n_rows} OOD rows, "
            f"AUROC {first:.3f} and {second:.3f}"
        )
        fractions = rejected(args.pairs, args.resamples, args.seed, *setting)
        for test, fraction in fractions.items():
            error = np.sqrt(fraction * (1 - fraction) / args.pairs)
            print(f"  {test:26} rejects {fraction:.3f} (s.e. {error:.3f})", flush=True)
    print(f"{args.pairs} pairs each, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
