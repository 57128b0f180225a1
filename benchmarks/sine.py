"""Uncertainty of a regression network on a sine: six methods against HMC.

The study of Fig. C.4 of the QUAM paper: the mean standard deviation of the members in
[-pi, pi] and in the rest of [-6, 6], and the correlations to HMC::

    python benchmarks/sine.py
    python benchmarks/sine.py --paper
    python benchmarks/sine.py --paper --only HMC "deep ensemble"

The settings equal the ones of ``examples/epistemic/plot_regression_methods.py``, and
with ``--paper`` the ones of the paper, with a network of three layers of 200 units,
which takes about half an hour on one core. The paper writes that the noise is
N(0, 0.1), its code draws it with a variance of 0.01, and its HMC assumes a variance of
0.1: both variances are run. R-hat is printed beside the rows of HMC.

With ``--paper`` and a variance of 0.01 the mean standard deviations are::

                       inside  outside
    HMC                 0.084    1.293   R-hat 1.99, acceptance rate 0.38
    QUAM                0.024    0.059
    deep ensemble       0.024    0.094
    MC dropout          0.071    0.067
    Laplace             0.044    0.179
    cSG-HMC             0.005    0.037

1,000 trajectories of length 0.01 are too few for 81,001 weights: over the samples the
log posterior falls from -816 to -2,444, so that correlations to the chain have no
meaning. From a draw of the prior, which starts a chain by default, it rejects all
steps. A plain loop in torch finds 0.017 to 0.036 inside and 0.084 to 0.130 outside for
ensembles of ten, for three draws of the data and three of the members.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from skood.exceptions import SkoodWarning

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "epistemic"))

from _sine import (
    GRID,
    make_network,
    make_sine,
    paper_methods,
    quick_methods,
    table,
)


def run(methods, X, y, only):
    """Return standard deviations by method; print seconds."""
    stds = {}
    for name, method in methods.items():
        if only and name not in only:
            continue
        start = time.perf_counter()
        _, stds[name] = method.fit(X, y).predict(GRID[:, None], return_std="epistemic")
        note = f", R-hat {method.r_hat_:.3g}" if hasattr(method, "r_hat_") else ""
        print(f"{name}: {time.perf_counter() - start:.1f} s{note}", flush=True)
    return stds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paper", action="store_true", help="settings of the paper")
    parser.add_argument("--only", nargs="*", help="names of methods")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", SkoodWarning)  # R-hat is printed
    X, y = make_sine()
    if arguments.paper:
        net, make = make_network((200, 200, 200), 500, 1e-3), paper_methods
    else:
        net, make = make_network(), quick_methods
    net.fit(X, y)
    print(f"training error {np.sqrt(np.mean((net.predict(X) - y) ** 2)):.3f}")
    for variance in (0.01, 0.1):
        print(f"\nvariance {variance}")
        stds = run(make(net, variance), X, y, arguments.only)
        if "HMC" in stds:
            print("\n".join(table(stds)))
        else:
            for name, std in stds.items():
                ends = ", ".join(f"{value:.3f}" for value in std[[0, 80, -1]])
                print(f"{name}: sd {ends} at -6, 0 and 6")


if __name__ == "__main__":
    main()
