"""Evidential probes and networks on MNIST against notMNIST, over several seeds.

::

    python benchmarks/evidential_mnist.py --data DIR [--seeds 3] [--dropout 0.0]

DIR holds the folders ``mnist`` and ``notmnist`` of IDX files. For each seed a LeNet is
trained on 7,000 digits; its energy, and probes of it that are fitted on the same
digits, tell 500 other digits from 500 letters. Evidential networks and ensembles that
share weights are trained beside it. The probes that are read are that of the logits,
the default, and that of the features before them. Where the LeNet knows its training
digits too well to say how sure it is, a probe of other digits may be better: "held out"
is fitted on 1,000 more. All networks have dropout before their linear layers with the
same probability; a LeNet as it was published has none. The script fails if, on average,
the AUROC of the default probe is not above that of the energy.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "epistemic"))

from _mnist import lenet, load

from skood.datasets import load_idx_images
from skood.detectors import MSP, Energy, Entropy
from skood.epistemic import BatchEnsemble, PackedEnsemble
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.metrics import ranking_metrics

HEADER = f"{'':42}{'accuracy':>9}{'AUROC':>8}{'AUPR':>8}{'FPR95':>8}{'fit, s':>8}"

# Epochs of all networks.
EPOCHS = 20


def held_out(folder, parts, n_rows=1000, seed=0):
    """Digits that are neither for training nor in the test."""
    digits = load_idx_images(folder / "mnist")
    order = np.random.default_rng(seed).permutation(len(digits.data))
    used = len(parts.X_train) + len(parts.X_test)
    rows = order[used : used + n_rows]
    return digits.data[rows], digits.target[rows]


def judged(parts, scores, predicted):
    """Accuracy on digits, and how well scores tell them from letters."""
    y = np.r_[parts.y_test, np.full(len(parts.letters), -1)]
    ranks = ranking_metrics(y, scores)
    accuracy = np.mean(predicted[: len(parts.y_test)] == parts.y_test)
    return accuracy, ranks["auroc"], ranks["aupr_in"], ranks["fpr_at_tpr"]


def methods(parts, more, seed, dropout):
    """Yield names, what is fitted, and the rows that it is fitted on."""
    digits = parts.X_train, parts.y_train
    options = {"max_epochs": EPOCHS, "module_params": {"dropout": dropout}}
    given = FrozenEstimator(lenet(seed, **options).fit(*digits))
    for detector in (MSP(given), Entropy(given), Energy(given)):
        yield type(detector).__name__, detector, digits
    probes = {
        "EPN": {"objective": ProbeObjective(lambda_ice=0, lambda_pcl=0)},
        "EPN-reg": {},
        "EPN-reg, features": {"layer": "penultimate"},
    }
    for name, params in probes.items():
        probe = EvidentialProbe(given, random_state=seed, **params)
        yield name, probe, digits
        yield f"{name}, held out", probe, more
    for evidence in ("softplus", "exp"):
        network = EvidentialClassifier(
            lenet(seed, **options), evidence=evidence, random_state=seed
        )
        yield f"EvidentialClassifier, {evidence}", network, digits
    for kind in (BatchEnsemble, PackedEnsemble):
        yield kind.__name__, kind(lenet(seed, **options)), digits


def table(folder, seed, dropout):
    """Print the rows of one seed, and return them."""
    parts = load(folder, seed=seed)
    both = np.concatenate([parts.X_test, parts.letters])
    rows = {}
    more = held_out(folder, parts, seed=seed)
    for name, method, data in methods(parts, more, seed, dropout):
        start = perf_counter()
        method.fit(*data)
        seconds = perf_counter() - start
        if hasattr(method, "score_samples"):
            found = {name: method.score_samples(both)}
            predicted = method.estimator_.predict(both)
        else:
            u = method.predict_uncertainty(both)
            kinds = ("epistemic", "total")
            found = {f"{name} ({kind})": -u[kind] for kind in kinds}
            predicted = method.predict(both)
        for row, scores in found.items():
            rows[row] = (*judged(parts, scores, predicted), seconds)
    print_rows(rows)
    return rows


def print_rows(rows):
    """Print a table."""
    print(HEADER)
    for name, values in rows.items():
        *numbers, seconds = values
        words = "".join(f"{value:8.4f}" for value in numbers)
        print(f"{name:43}{words}{seconds:8.1f}", flush=True)


def main(argv=None):
    """Print the tables; return 1 if the probe is not above the energy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="DIR", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    tables = []
    with threadpool_limits(arguments.threads):
        for seed in range(arguments.seeds):
            print(f"seed {seed}")
            tables.append(table(arguments.data, seed, arguments.dropout))
    mean = {name: np.mean([t[name] for t in tables], axis=0) for name in tables[0]}
    print(f"mean of {len(tables)} seeds")
    print_rows(mean)
    ahead = mean["EPN-reg (epistemic)"][1] - mean["Energy"][1]
    print(f"EPN-reg - Energy: {ahead:+.4f}  {'OK' if ahead > 0 else 'missed'}")
    return 0 if ahead > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
