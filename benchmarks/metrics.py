"""What metrics and rules with one score cost, compared with one `numpy.argsort`.

CPU seconds on one thread, minimum over repeats, for two numbers of samples, half of
them OOD except for `aurc`. Each line ends with OK, or with "missed" if the ratio to the
argsort of the same scores, in the same run, is above the target::

    python benchmarks/metrics.py
    python benchmarks/metrics.py --sizes 100000 --repeat 50
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from skood.metrics import aurc, oscr
from skood.rejection import BoundedAbstention, BoundedTPRFPR, solve

TARGET = 2.0


def seconds(function, repeat):
    """Return the least CPU seconds of a call."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def cases(n, seed):
    """Return scores, and a call without arguments for each name."""
    rng = np.random.default_rng(seed)
    score, y = rng.normal(size=n), rng.integers(0, 10, n)
    wrong = rng.random(n) < 0.2
    y_pred, y_open = (y + wrong) % 10, np.where(rng.random(n) < 0.5, -1, y)
    loss, half = wrong.astype(float), n // 2
    pair = score[:half], None, loss[:half], score[half:], None
    tpr_fpr, abstention = BoundedTPRFPR(0.5, 0.9), BoundedAbstention(0.7)
    return score, {
        "aurc": lambda: aurc(y, y_pred, score),
        "oscr": lambda: oscr(y_open, y_pred, score),
        "solve, TPR-FPR": lambda: solve(tpr_fpr, *pair),
        "solve, abstention": lambda: solve(abstention, score, None, loss, None, None),
    }


def main():
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    np.ones(30 * 2**17)  # once freed, 30 MiB let malloc keep the memory of later arrays
    print(f"{'samples':>9} {'':<18} {'ms':>8} {'argsorts':>9}")
    for n in args.sizes:
        score, calls = cases(n, args.seed)
        argsort = seconds(lambda score=score: np.argsort(score), args.repeat)
        print(f"{n:>9,} {'numpy.argsort':<18} {1e3 * argsort:8.2f} {1:9.2f}")
        for name, call in calls.items():
            spent = seconds(call, args.repeat)
            ratio = spent / argsort
            verdict = "OK" if ratio <= TARGET else f"missed ({TARGET:g})"
            print(f"{n:>9,} {name:<18} {1e3 * spent:8.2f} {ratio:9.2f}  {verdict}")


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        main()
