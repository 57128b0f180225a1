"""
===================================
Digits and letters: network, images
===================================

Helpers of the examples on MNIST: a LeNet, the images, the methods and their
evaluation.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from time import perf_counter, process_time

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch
from torch import nn

from skood.datasets import load_idx_images
from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    DeepEnsemble,
    Laplace,
    MCDropout,
)
from skood.metrics import aurc, auroc, ranking_metrics
from skood.nn import TorchClassifier


class LeNet(nn.Module):
    """LeNet-5 with dropout before its linear layers, for images of 28 x 28."""

    def __init__(self, input_shape=(1, 28, 28), n_classes=10, dropout=0.2):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(input_shape[0], 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256, 120),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(84, n_classes),
        )

    def forward(self, x):
        """Return the logits of images."""
        return self.head(self.body(x))


def load(folder, n_train=7000, n_test=500, seed=0):
    """Return digits for training, digits and letters for the test."""
    rng = np.random.default_rng(seed)
    digits = load_idx_images(folder / "mnist")
    letters = load_idx_images(folder / "notmnist").data
    order = rng.permutation(len(digits.data))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    return Bunch(
        X_train=digits.data[train],
        y_train=digits.target[train],
        X_test=digits.data[test],
        y_test=digits.target[test],
        letters=letters[rng.permutation(len(letters))[:n_test]],
    )


def lenet(seed=0, max_epochs=20, **options):
    """Return the untrained classifier of the experiments."""
    return TorchClassifier(LeNet, max_epochs=max_epochs, random_state=seed, **options)


def companions(given, seed):
    """Return methods to compare with QUAM, around the given network or next to it."""
    frozen = FrozenEstimator(given)
    return {
        "MC dropout": MCDropout(frozen, random_state=seed),
        "Laplace": Laplace(frozen, random_state=seed),
        "deep ensemble": DeepEnsemble(
            lenet(), 10, reference=frozen, setting="b", random_state=seed + 1
        ),
    }


def quams(given, seed):
    """Return QUAM in its two fast scopes, with a weaker penalty than by default."""
    frozen = FrozenEstimator(given)
    return {
        "QUAM, dense": QUAM(
            frozen, search=AdversarialSearch(c0=3.0), random_state=seed
        ),
        "QUAM, last": QUAM(
            frozen,
            scope="last",
            search=AdversarialSearch(c0=3.0),
            temperature=0.01,
            random_state=seed,
        ),
    }


def uncertainty(method, parts):
    """Return uncertainties of both, predictions of digits, CPU seconds a point."""
    start = process_time()
    found = [method.predict_uncertainty(X) for X in (parts.X_test, parts.letters)]
    seconds = (process_time() - start) / (len(parts.X_test) + len(parts.letters))
    both = Bunch(
        **{k: np.concatenate([one[k] for one in found]) for k in ("total", "epistemic")}
    )
    return Bunch(**both, predicted=method.predict(parts.X_test), seconds=seconds)


def evaluate(parts, u, predicted):
    """Return AUROCs of letters against digits and of wrong against right predictions.

    The area under the accuracy over the retained fraction is computed from the most
    certain digit to all of them.
    """
    n = len(parts.X_test)
    y = np.r_[parts.y_test, np.full(len(u) - n, -1)]
    ranks = ranking_metrics(y, -u)
    wrong = predicted != parts.y_test
    return Bunch(
        auroc=ranks["auroc"],
        aupr=ranks["aupr_out"],
        fpr95=ranks["fpr_at_tpr"],
        wrong=auroc(np.where(wrong, -1, 0), -u[:n]) if wrong.any() else np.nan,
        retained=1.0 - aurc(parts.y_test, predicted, -u[:n]),
    )


def compare(parts, seed):
    """Train the network and all methods; return a table of metrics by name."""
    given = lenet(seed).fit(parts.X_train, parts.y_train)
    print(f"accuracy of the given network: {given.score(parts.X_test, parts.y_test)}")
    table = {}
    for name, method in {**quams(given, seed), **companions(given, seed)}.items():
        start = perf_counter()
        method.fit(parts.X_train, parts.y_train)
        seconds = perf_counter() - start
        found = uncertainty(method, parts)
        for part in ("epistemic", "total"):
            row = evaluate(parts, found[part], found.predicted)
            table[f"{name} ({part})"] = Bunch(**row, fit=seconds, point=found.seconds)
        if name == "QUAM, last":  # in setting "b", what is left is the entropy
            row = evaluate(parts, found.total - found.epistemic, found.predicted)
            table["entropy of the network"] = Bunch(**row, fit=0.0, point=0.0)
        print_rows(table, [key for key in table if key.startswith(name)])
    return table


def print_rows(table, names):
    """Print a line of the table for each of some methods."""
    for name in names:
        row = table[name]
        print(
            f"{name:32} {row.auroc:.4f} {row.aupr:.4f} {row.fpr95:.4f}  "
            f"{row.wrong:.4f} {row.retained:.5f}  {row.fit:7.1f} {row.point:.4f}",
            flush=True,
        )


HEADER = (
    f"{'':32} letters against digits  wrong  accuracy     seconds\n"
    f"{'':32} AUROC  AUPR   FPR95   AUROC  retained     fit  a point"
)
