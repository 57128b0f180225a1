"""DSDE on a library of networks against the best single network, over many runs.

Each run trains the eight networks of ``examples/combine/_library.py`` on other rows,
and leaves other digits out: 0 and 1 in the first run, 2 and 3 in the second, and so on.
On the digits that come with scikit-learn, or with ``--data`` on MNIST, with notMNIST as
letters::

    python benchmarks/model_library.py
    python benchmarks/model_library.py --data folder-with-mnist-and-notmnist --runs 5

For each score the members have, printed are the FPR (mean over the kinds of foreign
images) at the TPR that DSDE has at the level 0.05: of DSDE, of the network that is best
on average over all runs, and of the best network of each run; the mean and the standard
deviation over the runs, and how much DSDE gains. Then come all networks and combiners,
and DSDE on parts of the library of each size, with three lower bounds of the change
point (Table 6 of the paper has 7 and 18 networks). The script fails if DSDE gains
nothing on average for one of the scores.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from skood.combine import DSDE
from skood.datasets import load_digits_ood, load_idx_images
from skood.detectors import KNN, MSP, ODIN, Energy

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "combine"))

from _library import (
    best_single,
    divide,
    frozen_members,
    judge,
    judge_sizes,
    mean_table,
    print_sizes,
    train_library,
)

LEFT_OUT = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


def load(folder):
    """Return what all runs share: images, options of a division and of training."""
    if folder is None:
        X, y = load_digits_ood(left_out=(), as_images=True, return_X_y=True)
        return Bunch(X=X, y=y, divide={"n_train": 600}, views=64, neighbors=5)
    X, y = load_idx_images(folder / "mnist", return_X_y=True)
    letters = load_idx_images(folder / "notmnist").data
    options = {"n_train": 4000, "letters": letters, "n_most": 1000}
    return Bunch(X=X, y=y, divide=options, views=16, neighbors=10)


def repetition(data, seed):
    """Return tables of a run, TPRs of DSDE at the conformal level, and its sizes."""
    parts = divide(
        data.X, data.y, LEFT_OUT[seed % len(LEFT_OUT)], seed=seed, **data.divide
    )
    detectors = {
        "MSP": MSP,
        "ODIN": ODIN,
        "Energy": Energy,
        "KNN": partial(KNN, n_neighbors=data.neighbors),
    }
    tables, tprs, sizes = {}, {}, {}
    with threadpool_limits(limits=1):
        library = train_library(
            parts.X_train, parts.y_train, n_views=data.views, seed=seed
        )
        for method, detector in detectors.items():
            members = frozen_members(detector, library, parts.X_train, parts.y_train)
            tables[method] = judge(members, parts.X_calibration, parts.images)
            ensemble = DSDE(
                members, calibration="same", level="conformal", random_state=seed
            ).fit(parts.X_calibration)
            tprs[method] = np.mean(ensemble.predict(parts.X_test) == 1)
            sizes[method] = judge_sizes(members, parts.X_calibration, parts.images)
    return tables, tprs, sizes


def spread(values):
    """Return mean and standard deviation in percent, as text."""
    deviation = np.std(values, ddof=min(1, len(values) - 1))
    return f"{100 * np.mean(values):6.2f} +- {100 * deviation:5.2f}"


def report(method, tables, tprs):
    """Print what a method did in all runs; return the mean gain of DSDE."""
    mean = mean_table(tables)
    best = best_single(mean)
    dsde = np.array([table["DSDE"].fpr.mean() for table in tables])
    fixed = np.array([table[best].fpr_at_dsde.mean() for table in tables])
    of_run = np.array([t[best_single(t)].fpr_at_dsde.mean() for t in tables])
    gains = fixed - dsde
    print(
        f"{method:8}{spread(dsde)} {spread(fixed)}  {best:17} {spread(of_run)} "
        f"{spread(gains)}  {np.sum(gains > 0)}/{len(gains)} "
        f"{spread([table['DSDE'].tpr for table in tables])} {spread(tprs)}"
    )
    return gains.mean()


def main(argv=None):
    """Print the tables; return 1 if DSDE gains nothing for some score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--n-jobs", type=int, default=2)
    arguments = parser.parse_args(argv)
    start, data = time.perf_counter(), load(arguments.data)
    runs = Parallel(n_jobs=arguments.n_jobs)(
        delayed(repetition)(data, arguments.seed + i) for i in range(arguments.runs)
    )
    tables, tprs, sizes = (
        {method: [run[i][method] for run in runs] for method in runs[0][i]}
        for i in range(3)
    )
    print(f"{arguments.runs} runs in {time.perf_counter() - start:.0f} s; percent")
    print(
        f"{'':8}{'FPR of DSDE':15} {'of the best single network':34} "
        f"{'of that of a run':15} {'gain':15}  better {'TPR, nominal':15} conformal"
    )
    gains = [report(method, tables[method], tprs[method]) for method in tables]
    print("\nTPR at the level 0.05 | mean FPR at the TPR of DSDE")
    means = {method: mean_table(of_runs) for method, of_runs in tables.items()}
    print(f"{'':18}" + "".join(f"{method:>16}" for method in means))
    for name in means["MSP"]:
        cells = (
            f"{100 * mean[name].tpr:8.1f} |{100 * mean[name].fpr_at_dsde.mean():6.2f}"
            for mean in means.values()
        )
        print(f"{name:18}" + "".join(cells))
    for method, of_runs in sizes.items():
        print(f"\nDSDE on parts of the library, {method}: all parts of all runs")
        print_sizes(
            {
                key: Bunch(
                    **{
                        name: np.concatenate([run[key][name] for run in of_runs])
                        for name in row
                    }
                )
                for key, row in of_runs[0].items()
            }
        )
    return int(min(gains) <= 0)


if __name__ == "__main__":
    sys.exit(main())
