"""Which number of neighbors ranks best, and whether KNN should normalize features.

::

    python benchmarks/n_neighbors.py [--data DIR] [--seeds 3] [--out FILE.json]
        [--only KNN]

DIR holds ``mnist`` and ``notmnist`` (IDX files), ``cora_ml`` and ``Photo`` (raw
graphs); cases whose files are missing are left out, and are named. A case has training
samples, ID test samples and OOD samples. Its candidates are ranked by their AUROC,
averaged over seeds (equal ones share their mean rank), so that an easy case counts as
much as a difficult one. The tables have the mean AUROC in percent and the mean rank
over all cases for each detector.

The candidates are numbers of neighbors, at most that of the training samples, and rules
that depend on the number n of training samples, or on the number C of classes:
log2(n), sqrt(n), sqrt(n / C), and a hundredth of n.

The last table compares KNN with features of unit length, and with features as they are:
cases whose features are the inputs, and cases whose features are of a network.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skood.benchmark._suite import PARTS
from skood.datasets import load_graph, load_idx_images, split_nodes
from skood.detectors import KNN, NNGuide, SklearnDetector
from skood.exceptions import SkoodWarning
from skood.graph import GraphClassifier
from skood.metrics import auroc
from skood.nn import TorchClassifier, TrainingOptions, split

NUMBERS = (1, 2, 3, 5, 7, 10, 20, 50, 100)
RULES = {
    "log2(n)": lambda n, n_classes: np.log2(n),
    "sqrt(n)": lambda n, n_classes: np.sqrt(n),
    "sqrt(n/C)": lambda n, n_classes: np.sqrt(n / n_classes),
    "n/100": lambda n, n_classes: n / 100,
}
UNIT, AS_IT_IS = "KNN, unit length", "KNN, not normalized"
DEFAULT = 5  # number of neighbors for the comparison of the two
MOST_TEST = 500  # ID or OOD samples of a test set


def candidates(n, n_classes):
    """Number of neighbors of each candidate, by name."""
    found = {str(k): k for k in NUMBERS}
    found.update({name: round(rule(n, n_classes)) for name, rule in RULES.items()})
    return {name: int(np.clip(k, 1, n - 1)) for name, k in found.items()}


def methods(network):
    """Detectors with a number of neighbors k, by name; `network` may be None."""
    found = {
        UNIT: lambda k: KNN(network, n_neighbors=k, normalize=True),
        AS_IT_IS: lambda k: KNN(network, n_neighbors=k, normalize=False),
        "LOF": lambda k: SklearnDetector(
            network, detector=LocalOutlierFactor(n_neighbors=k, novelty=True)
        ),
    }
    if network is not None:
        found["NNGuide"] = lambda k: NNGuide(network, n_neighbors=k)
    return found


# --- cases -------------------------------------------------------------------------


def suite(seed):
    """Yield the parts of the offline suite."""
    for name, make in PARTS.items():
        part = make(seed)
        y = part.y if part.y.ndim == 1 else part.y[:, 0]
        train, test = train_test_split(np.arange(len(y)), random_state=seed)
        test = test[:MOST_TEST]
        # the classifier whose head gives logits, for NNGuide
        network = part.detectors["MSP"].estimator if name == "tabular" else None
        network = network or getattr(part.detectors["KNN"], "estimator", None)
        for kind, others in part.ood.items():
            case = part.X[train], y[train], part.X[test], others
            yield f"{name}: {kind}", network, *case


def wine(seed):
    """Yield the wines, each class left out in turn."""
    X, y = load_wine(return_X_y=True)
    for left_out in range(3):
        is_id = y != left_out
        train, test, y_train, _ = train_test_split(
            X[is_id], y[is_id], stratify=y[is_id], random_state=seed
        )
        scaler = StandardScaler().fit(train)
        head = LogisticRegression().fit(scaler.transform(train), y_train)
        parts = (scaler.transform(part) for part in (train, test, X[~is_id]))
        train, test, others = parts
        yield f"wine: {left_out}", FrozenEstimator(head), train, y_train, test, others


def inputs(seed):
    """Yield tables and pixels of digits: KNN on the standardized columns or pixels."""
    rng = np.random.default_rng(seed)
    X, y = load_breast_cancer(return_X_y=True)
    yield "tumors: malignant", *_standardized(seed, X, y, y == 0)
    X, y = load_iris(return_X_y=True)
    yield "iris: 2", *_standardized(seed, X, y, y == 2)
    X, y = load_diabetes(return_X_y=True)
    labels = np.zeros(len(y), dtype=int)
    X_mixed = np.concatenate([X, rng.permuted(X, axis=0)])
    is_mixed = np.arange(len(X_mixed)) >= len(X)
    zeros = np.zeros(len(X_mixed), dtype=int)
    yield "diabetes: shuffled", *_standardized(seed, X_mixed, zeros, is_mixed)
    largest = X[:, 2] > np.quantile(X[:, 2], 0.85)
    yield "diabetes: body mass", *_standardized(seed, X, labels, largest)
    X, y = load_digits(return_X_y=True)
    for left_out in ([8, 9], [3, 5], [0, 1]):
        yield f"digits: {left_out}", *_split(seed, X, y, np.isin(y, left_out))


def _split(seed, X, y, is_ood):
    """Return training, ID and OOD samples."""
    train, test, labels, _ = train_test_split(
        X[~is_ood], y[~is_ood], stratify=y[~is_ood], random_state=seed
    )
    return None, train, labels, test[:MOST_TEST], X[is_ood][:MOST_TEST]


def _standardized(seed, X, y, is_ood):
    """Return training, ID and OOD samples, standardized by the training samples."""
    _, train, labels, *others = _split(seed, X, y, is_ood)
    scaler = StandardScaler().fit(train)
    parts = [scaler.transform(part) for part in (train, *others)]
    return None, parts[0], labels, *parts[1:]


def mnist(seed, folder):
    """Yield digits against letters, and against two other digits, of several sizes."""
    digits = load_idx_images(folder / "mnist")
    letters = load_idx_images(folder / "notmnist").data
    rng = np.random.default_rng(seed)
    letters = letters[rng.choice(len(letters), MOST_TEST, replace=False)]
    X, y = digits.data, np.asarray(digits.target)
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    for what, is_id, others in (
        ("letters", np.full(len(y), True), letters),
        ("4 and 9 left out", ~np.isin(y, [4, 9]), X[np.isin(y, [4, 9])][:MOST_TEST]),
    ):
        Z, labels = X[is_id], y[is_id]
        pixels = Z[3000:4000], labels[3000:4000], Z[-MOST_TEST:], others
        yield f"mnist, pixels: {what}", None, *(_rows(part) for part in pixels)
        network = TorchClassifier(
            max_epochs=4,
            lr=0.01,
            training=TrainingOptions(lr_schedule="one_cycle"),
            random_state=seed,
        ).fit(Z[:3000], labels[:3000])
        body, head = split(network)
        Z = body.transform(Z)
        for n in (200, 1000, 3000):
            kept = slice(3000, 3000 + n)
            case = Z[kept], labels[kept], Z[-MOST_TEST:], body.transform(others)
            yield f"mnist, n={n}: {what}", FrozenEstimator(head), *case


def _rows(images):
    """Return images as rows of pixels; labels as they are."""
    return images.reshape(len(images), -1) if images.ndim > 1 else images


def graph(seed, folder, name, left_out):
    """Yield nodes of a graph, some classes of which are left out."""
    nodes, y = load_graph(name, folder, return_X_y=True)
    for classes in left_out:
        split = split_nodes(y, classes, random_state=seed)
        network = GraphClassifier(random_state=seed, max_epochs=200).fit(
            nodes[split.train],
            y[split.train],
            X_val=nodes[split.valid],
            y_val=y[split.valid],
        )
        test, is_ood = split.test, split.is_ood[split.test]
        parts = (
            nodes[split.train],
            y[split.train],
            nodes[test[~is_ood][:MOST_TEST]],
            nodes[test[is_ood][:MOST_TEST]],
        )
        title = f"{name}: {list(map(int, classes))}"
        yield title, FrozenEstimator(network), *parts
        words = [part.features if hasattr(part, "nodes") else part for part in parts]
        yield f"{name}, words: {list(map(int, classes))}", None, *words


def cases(seed, folder):
    """Yield all cases whose data are there."""
    yield from suite(seed)
    yield from wine(seed)
    yield from inputs(seed)
    if folder is None:
        return
    if (folder / "mnist").is_dir() and (folder / "notmnist").is_dir():
        yield from mnist(seed, folder)
    else:
        print(f"mnist, notmnist: not in {folder}, left out")
    graphs = (
        ("CoraML", "cora_ml", [(2, 4, 5), (1, 3, 6)]),
        ("AmazonPhoto", "Photo", [(0, 1, 2), (5, 6, 7)]),
    )
    for name, needed, left_out in graphs:
        if (folder / needed).is_dir():
            yield from graph(seed, folder, name, left_out)
        else:
            print(f"{name}: not in {folder}, left out")


# --- tables ------------------------------------------------------------------------


def evaluate(case, only):
    """Yield method, candidate and AUROC of one case."""
    network, X, y, test, others = case
    truth = np.repeat([0, -1], [test.shape[0], others.shape[0]])
    for method, make in methods(network).items():
        if only not in method:
            continue
        done: dict = {}  # rules often name the same number
        for name, k in candidates(X.shape[0], len(np.unique(y))).items():
            if k not in done:
                detector = make(k).fit(X, y)
                parts = [detector.score_samples(part) for part in (test, others)]
                done[k] = auroc(truth, np.concatenate(parts))
            yield method, name, done[k]


def run(seeds, folder, out, only=""):
    """Return the AUROC of each method, case and candidate, averaged over seeds.

    The second result are the cases whose features are of a network.
    """
    found: dict = {}
    of_network = []
    for seed in range(seeds):
        for name, *case in cases(seed, folder):
            print(f"seed {seed}, {name}", flush=True)
            if seed == 0 and KNN(case[0]).fit(*case[1:3]).normalize_:
                of_network.append(name)
            for method, candidate, value in evaluate(case, only):
                values = found.setdefault(method, {}).setdefault(name, {})
                values.setdefault(candidate, []).append(float(value))
            if out is not None:
                out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found, of_network


def tables(found):
    """Yield the lines of the tables."""
    for method, by_case in found.items():
        names = [*map(str, NUMBERS), *RULES]
        values = np.array(
            [[np.mean(one[name]) for name in names] for one in by_case.values()]
        )
        ranks = np.array([rankdata(-row.round(6)) for row in values])
        yield f"\n{method}, {len(values)} cases"
        yield "case".ljust(34) + "".join(name.rjust(10) for name in names)
        for name, row in zip(by_case, values, strict=True):
            yield name.ljust(34) + "".join(f"{100 * v:10.1f}" for v in row)
        yield "mean AUROC".ljust(34) + "".join(
            f"{100 * v:10.1f}" for v in values.mean(axis=0)
        )
        yield "mean rank".ljust(34) + "".join(f"{v:10.2f}" for v in ranks.mean(axis=0))


def comparison(found, of_network):
    """Yield the lines of the comparison of features of unit length, and as they are."""
    groups = {"features of a network": [], "inputs": []}
    for name in found[UNIT]:
        groups["features of a network" if name in of_network else "inputs"].append(name)
    for group, names in groups.items():
        values = 100 * np.array(
            [
                [np.mean(found[method][name][str(DEFAULT)]) for name in names]
                for method in (UNIT, AS_IT_IS)
            ]
        )
        yield f"\n{group}, {len(names)} cases"
        yield "case".ljust(34) + "unit length    as it is"
        for name, unit, plain in zip(names, *values, strict=True):
            yield name.ljust(34) + f"{unit:11.1f}{plain:12.1f}"
        yield "mean AUROC".ljust(34) + "{:11.1f}{:12.1f}".format(*values.mean(axis=1))
        better = (values[0] > values[1]).sum(), (values[0] < values[1]).sum()
        yield "better in".ljust(34) + "{:11d}{:12d}".format(*better)


def main(argv=None):
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="PART OF A DETECTOR'S NAME")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args(argv)
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        warnings.filterwarnings("ignore", "n_neighbors .* is greater")
        found, of_network = run(
            arguments.seeds, arguments.data, arguments.out, arguments.only
        )
    print("\n".join(tables(found)))
    if UNIT in found:
        print("\n".join(comparison(found, of_network)))


if __name__ == "__main__":
    main()
