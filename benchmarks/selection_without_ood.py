"""How well do synthetic outliers predict which detector is best on real OOD samples?

::

    python benchmarks/selection_without_ood.py [--data DIR] [--seeds 3] [--rst]

DIR holds ``mnist`` and ``notmnist`` (IDX files); without it three tasks are left out. A
task has training samples for a network and its detectors, held-out ID samples, ID test
samples and OOD test samples. The AUROC of each detector on the test samples is the
truth. A *proxy* replaces the OOD samples: synthetic outliers made of held-out samples,
classes that are left out of another fit, or 20 real OOD samples, for comparison. The
tables have, for each proxy, Spearman's correlation of its AUROCs with the truth, and
the regret: the AUROC of the best of all detectors minus the AUROC of the detector that
is best by the proxy (ties: their mean), in percent.

Rules without a proxy: "always" takes one detector, "any" is the mean over all, and
"best on other tasks" takes the detector with the best mean rank on the other tasks.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, spearmanr
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from skood import detectors
from skood.datasets import load_idx_images
from skood.metrics import auroc
from skood.model_selection import LeaveClassesOut, make_synthetic_outliers
from skood.nn import split

KINDS = ("mixing", "swapping", "dropout", "boundary", "uniform")
HEADS = ("MSP", "MaxLogit", "Energy", "GEN", "KLMatching", "PNML", "ViM", "SHE")
HEADS += ("NNGuide", "FDBD", "NCI", "NECO", "CADRef")
FEATURES = ("KNN", "Mahalanobis", "RelativeMahalanobis", "SSD", "GMM")
INPUTS = ("KNN", "Mahalanobis")
LEFT_OUT = "left-out classes"
REAL = "20 real OOD samples"
CONSTANT = ("GMM", "ViM", "Mahalanobis", "KNN", "MSP")
N_LEFT_OUT = 3  # fits per task
MOST = 2000  # ID samples of MNIST


# --- tasks ---------------------------------------------------------------------------


def without_classes(X, y, rng, n_out):
    """Return ID samples, their labels, and the samples of random classes as OOD."""
    out = np.isin(y, rng.choice(np.unique(y), n_out, replace=False))
    return X[~out], y[~out], X[out]


def shifted(X, rng, n_sd=5.0):
    """Return samples with a random column shifted by five standard deviations."""
    X, j = X.copy(), rng.integers(X.shape[1])
    X[:, j] += n_sd * X[:, j].std()
    return X


def rotated(X, rng):
    """Return square images rotated by 90 degrees."""
    side = round(X.shape[1] ** 0.5)
    return np.rot90(X.reshape(-1, side, side), axes=(1, 2)).reshape(len(X), -1)


def tasks(folder, seed):
    """Yield name, ID samples, labels, and OOD samples or what makes them of ID ones."""
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    digits, wine = (images / 16, labels), load_wine(return_X_y=True)
    yield "digits, 2 classes left out", *without_classes(*digits, rng, 2)
    yield "digits, rotated", *digits, rotated
    yield "wine, 1 class left out", *without_classes(*wine, rng, 1)
    yield "wine, a column shifted", *wine, shifted
    yield "cancer, a column shifted", *load_breast_cancer(return_X_y=True), shifted
    if folder is None:
        return
    options = {"subset": "test", "as_images": False, "return_X_y": True}
    images, labels = load_idx_images(folder / "mnist", **options)
    letters, _ = load_idx_images(folder / "notmnist", **options)
    rows = rng.permutation(len(images))[:MOST]
    X, y = images[rows], labels[rows]
    letters = rng.permutation(letters)[: MOST // 3]
    yield "MNIST, 2 classes left out", *without_classes(X, y, rng, 2)
    yield "MNIST, rotated", X, y, rotated
    yield "MNIST, notMNIST", X, y, letters


# --- detectors -----------------------------------------------------------------------


class Fitted:
    """A network, and detectors of its features and of its inputs."""

    def __init__(self, X, y, seed):
        network = MLPClassifier((64,), max_iter=60, alpha=1e-3, random_state=seed)
        # images are in [0, 1]; columns of tables have units
        self.scaler = StandardScaler() if X.shape[1] < 64 else FunctionTransformer()
        self.scaler.fit(X)
        X = self.scaler.transform(X)
        self.body, head = split(network.fit(X, y))
        head, Z = FrozenEstimator(head), self.body.transform(X)
        self.of_features = {
            **{name: getattr(detectors, name)(head).fit(Z, y) for name in HEADS},
            **{name: getattr(detectors, name)(head).fit(Z, y) for name in FEATURES},
            "IsolationForest": self._forest().fit(Z),
        }
        self.of_inputs = {
            **{f"{n}, inputs": getattr(detectors, n)().fit(X, y) for n in INPUTS},
            "IsolationForest, inputs": self._forest().fit(X),
        }

    def _forest(self):
        forest = IsolationForest(random_state=0)
        return detectors.SklearnDetector(detector=forest)

    def features(self, X):
        """Return the features of samples."""
        return self.body.transform(self.scaler.transform(X))

    def aurocs(self, X, y, Z=None):
        """Return the AUROC of each detector; of features only if these are given."""
        found = {}
        if Z is None:
            X, Z = self.scaler.transform(X), self.features(X)
            for name, one in self.of_inputs.items():
                found[name] = auroc(np.where(y == -1, -1, 1), one.score_samples(X))
        for name, one in self.of_features.items():
            found[name] = auroc(np.where(y == -1, -1, 1), one.score_samples(Z))
        return found


def joined(X_id, X_ood):
    """Return samples of both kinds, and labels 1 and -1."""
    return np.concatenate([X_id, X_ood]), np.repeat([1, -1], [len(X_id), len(X_ood)])


def left_out_classes(X, y, seed):
    """Return the mean AUROCs over fits without a class, or None with two classes."""
    n_classes = len(np.unique(y))
    if n_classes < 3:
        return None
    cv = LeaveClassesOut(n_splits=min(n_classes, N_LEFT_OUT), random_state=seed)
    found = []
    for train, test in cv.split(X, y):
        is_ood = ~np.isin(y[test], y[train])
        fitted = Fitted(X[train], y[train], seed)
        found.append(fitted.aurocs(X[test], np.where(is_ood, -1, 1)))
    return {name: np.mean([one[name] for one in found]) for name in found[0]}


def run_task(X, y, ood, seed):
    """Return the true AUROCs of all detectors, and the AUROCs of each proxy."""
    X, X_test, y, _ = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=seed
    )
    X, X_held, y, y_held = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=seed
    )
    rng = np.random.default_rng(seed)
    X_ood = ood(X_test, rng) if callable(ood) else ood
    fitted = Fitted(X, y, seed)
    real = rng.permutation(len(X_ood))
    truth = fitted.aurocs(*joined(X_test, X_ood[real[20:]]))
    proxies = {LEFT_OUT: left_out_classes(X, y, seed)}
    Z_held = fitted.features(X_held)
    for kind in KINDS:
        options = {"kind": kind, "random_state": seed}
        found = fitted.aurocs(*make_synthetic_outliers(X_held, y_held, **options))
        proxies[kind] = found
        Z, labels = make_synthetic_outliers(Z_held, y_held, **options)
        proxies[f"{kind}, features"] = fitted.aurocs(None, labels, Z)
    several = [proxies[f"{kind}, features"] for kind in KINDS]
    ranks = np.mean([rankdata(list(one.values())) for one in several], axis=0)
    proxies["all five, features"] = dict(zip(several[0], ranks, strict=True))
    proxies[REAL] = fitted.aurocs(*joined(X_held, X_ood[real[:20]]))
    return truth, proxies


# --- results -------------------------------------------------------------------------


def regret(truth, chosen):
    """Return the loss of AUROC in percent by taking the maximum of `chosen`."""
    most = max(chosen.values())
    taken = [truth[name] for name, value in chosen.items() if value >= most - 1e-12]
    return 100 * (max(truth.values()) - np.mean(taken))


def best_elsewhere(truths, task):
    """Return the mean ranks of detectors on all other tasks."""
    others = [
        rankdata(list(truth.values()))
        for name, runs in truths.items()
        if name != task
        for truth in runs
    ]
    return dict(zip(truths[task][0], np.mean(others, axis=0), strict=True))


def summarize(truths, proxies):
    """Return correlation and regret, by proxy and task, as lists over seeds."""
    names = list(next(iter(proxies.values()))[0])
    constant = {f"always {name}": {name: 1.0} for name in CONSTANT}
    table = {name: {} for name in (*names, *constant, "best on other tasks", "any")}
    for task, runs in truths.items():
        prior = best_elsewhere(truths, task)
        rows = {name: [] for name in table}
        for truth, found in zip(runs, proxies[task], strict=True):
            worst = 100 * (max(truth.values()) - np.mean(list(truth.values())))
            rows["any"].append((np.nan, worst))
            others = {**constant, "best on other tasks": prior}
            for name, chosen in {**found, **others}.items():
                if chosen is not None:
                    order = [truth[key] for key in chosen]
                    values = list(chosen.values())
                    rho = np.nan
                    if len(values) > 1:
                        rho = spearmanr(order, values).statistic
                    rows[name].append((rho, regret(truth, chosen)))
        for name, values in rows.items():
            if values:
                table[name][task] = np.array(values)
    return table


def show(title, rows, columns, digits, rst):
    """Print a table, aligned or as rows of a list-table."""
    print(f"\n{title}")
    if not rst:
        head = [i + 1 if "," in one else one for i, one in enumerate(columns)]
        print(" " * 26 + "".join(f"{one:>7}" for one in head))
    for name, found in rows.items():
        cells = [number(found, column, digits) for column in columns]
        if rst:
            print("\n".join([f"   * - {name}", *(f"     - {one}" for one in cells)]))
        else:
            print(f"{name:<26}" + "".join(f"{one:>7}" for one in cells))


def number(found, column, digits):
    """Return the value of a task, or a statistic of all tasks, as text."""
    means = {key: np.mean(values) for key, values in found.items()}
    if not means or np.isnan(list(means.values())).all():
        return ""
    if column in ("mean", "sd", "worst"):
        value = {
            "mean": np.mean(list(means.values())),
            "sd": np.std(list(means.values()), ddof=1),
            "worst": max(np.max(values) for values in found.values()),
        }[column]
    else:
        value = means.get(column, np.nan)
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def report(truths, proxies, rst=False):
    """Print the tables."""
    table, names = summarize(truths, proxies), list(truths)
    print("\n".join(f"{i + 1}: {name}" for i, name in enumerate(names)))
    columns = [*names, "mean", "sd"]
    for place, digits, title, more in (
        (0, 2, "Spearman's correlation", []),
        (1, 1, "Regret, percent of AUROC; the worst run", ["worst"]),
    ):
        found = {
            name: {key: value[:, place] for key, value in row.items()}
            for name, row in table.items()
        }
        show(title, found, [*columns, *more], digits, rst)
    aurocs = {
        name: {key: [100 * one[name] for one in runs] for key, runs in truths.items()}
        for name in truths[names[0]][0]
    }
    order = sorted(aurocs, key=lambda name: -np.mean(list(aurocs[name].values())))
    aurocs = {name: aurocs[name] for name in order}
    show("AUROC on real OOD samples, percent", aurocs, columns, 1, rst)


def main(argv=None):
    """Run all tasks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rst", action="store_true", help="rows of a list-table")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    truths, proxies = {}, {}
    with threadpool_limits(1):
        for seed in range(args.seeds):
            for name, X, y, ood in tasks(args.data, seed):
                truth, found = run_task(X, y, ood, seed)
                truths.setdefault(name, []).append(truth)
                proxies.setdefault(name, []).append(found)
                print(f"seed {seed}: {name}", flush=True)
    report(truths, proxies, args.rst)
    return truths, proxies


if __name__ == "__main__":
    main()
