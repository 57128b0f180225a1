"""Epistemic uncertainty on MNIST against notMNIST, over several seeds.

::

    python benchmarks/epistemic_mnist.py --data DIR [--seeds 3] [--threads 1] [--all]

DIR holds the folders ``mnist`` and ``notmnist`` of IDX files. For each seed a LeNet is
trained on 7,000 digits, and all methods tell 500 other digits from 500 letters, in
setting "b" where they know the given network, else in "a". The script fails if, on
average, the AUROC of QUAM's epistemic uncertainty is not at least .02 above that of the
network's entropy and of MC dropout, or more than .005 below that of a deep ensemble of
ten networks.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "epistemic"))

from _mnist import HEADER, compare, load, print_rows

# The methods that are compared below.
ASKED = "QUAM, dense", "QUAM, last", "MC dropout", "deep ensemble"

# By how much QUAM must be ahead, in AUROC.
MARGINS = {
    "entropy of the network": 0.02,
    "MC dropout (epistemic)": 0.02,
    "MC dropout (total)": 0.02,
    "deep ensemble (epistemic)": -0.005,
    "deep ensemble (total)": -0.005,
}


def averaged(rows):
    """Means of the judgments of one method."""
    return Bunch(**{key: np.mean([row[key] for row in rows]) for key in rows[0]})


def main(argv=None):
    """Print the tables; return 1 if QUAM is not ahead by the margins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="DIR", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--all", action="store_true", help="all methods, not only those asked for"
    )
    arguments = parser.parse_args(argv)
    tables = []
    with threadpool_limits(arguments.threads):
        for seed in range(arguments.seeds):
            print(f"seed {seed}\n{HEADER}")
            parts = load(arguments.data, seed=seed)
            tables.append(compare(parts, seed, None if arguments.all else ASKED))
    mean = {name: averaged([table[name] for table in tables]) for name in tables[0]}
    print(f"mean of {len(tables)} seeds\n{HEADER}")
    print_rows(mean)
    ok, quam = True, mean["QUAM, dense (epistemic)"].auroc
    for name, margin in MARGINS.items():
        ahead = quam - mean[name].auroc
        ok &= ahead >= margin
        words = "OK" if ahead >= margin else "missed"
        print(f"QUAM - {name}: {ahead:+.4f}, asked {margin:+.3f}  {words}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
