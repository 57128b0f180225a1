"""The demo on MNIST against notMNIST, with the numbers that it must reach.

It trains on 7,000 digits and is evaluated on 3,000 digits and 3,000 letters::

    python benchmarks/mnist_notmnist.py --data DIR

where DIR holds the folders ``mnist`` and ``notmnist`` of IDX files. The script fails
if the accuracy is below 0.97, if a pair of scores has a greater selective risk than
the better of its two at the common operating point, or if it takes 3 minutes.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time

from skood.benchmark import run_demo

LEAST_ACCURACY = 0.97
MOST_SECONDS = 180.0


def checks(result, seconds):
    """Yield the requirements, in words with numbers, and whether it holds."""
    yield (
        f"accuracy {result.accuracy:.4f} >= {LEAST_ACCURACY}",
        result.accuracy >= LEAST_ACCURACY,
    )
    risks = {row["method"]: row["risk_common"] for row in result.table}
    for pair in result.reject_options:
        better = min(pair.split("+"), key=risks.get)
        yield (
            f"risk of {pair} {risks[pair]:.5f} <= {risks[better]:.5f} of {better}, at "
            f"TPR >= {result.options['tpr_min']} and FPR <= {result.common_fpr:.4f}",
            risks[pair] <= risks[better],
        )
    yield f"{seconds:.1f} s < {MOST_SECONDS:.0f} s", seconds < MOST_SECONDS


def main(argv=None):
    """Run the job; return 1 if a number is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="DIR")
    arguments = parser.parse_args(argv)
    start = time.perf_counter()
    result = run_demo(
        "mnist",
        "notmnist",
        folder=arguments.data,
        n_train=7_000,
        n_test=3_000,
        random_state=arguments.seed,
        out=arguments.out,
        verbose=1,
    )
    seconds = time.perf_counter() - start
    print(result.text, end="\n\n")
    outcomes = list(checks(result, seconds))
    for text, holds in outcomes:
        print(f"{'ok    ' if holds else 'FAILED'}  {text}")
    return int(not all(holds for _, holds in outcomes))


if __name__ == "__main__":
    sys.exit(main())
